"""What must hold for every run. Each check takes observed values and returns the errors; none runs anything itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .data import Array
from .model import Model
from .options import Options
from .program import Ran
from .reference import Scores, Value

# Limit in processor seconds for a training of at most SMALL rows.
SECONDS, SMALL = 20.0, 1000
# Seconds that a run may continue after --max-seconds.
OVERSHOOT = 1.5
# Relative agreement of two evaluations of one objective, in addition to rounding.
AGREE = 1e-6
# Relative gap that is required if only a violation, or nothing, is given.
DEFAULT_GAP = 1e-2
DEFAULT_TOL = 1e-3
# A relative gap above this is accepted as rounding only if the optimality conditions hold.
EXCUSED = 1e-6
STATUSES = {"optimal": 0, "inaccurate": 3, "time_limit": 3, "iteration_limit": 3, "stalled": 3, "interrupted": 130}


@dataclass
class Finding:
    """A violated invariant."""

    invariant: str
    seen: str
    command: str = ""


@dataclass
class Bracket:
    """What a training proves: the optimal value lies between the two, up to rounding."""

    lower: float | None
    upper: float
    slip: float


def finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def machines(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The binary models of a report, or the report itself if there is only one."""
    several = report.get("machines")
    return several if isinstance(several, list) and several else [report]


def rounding(machine: dict[str, Any]) -> float:
    value = machine.get("rounding")
    return float(value) if value is not None and finite(value) else 0.0


def within_rounding(machine: dict[str, Any]) -> bool:
    """Whether the gap is within the bound on its own rounding: double precision cannot resolve more."""
    relative = relative_gap(machine)
    if relative is None or machine["gap"] > 2.0001 * rounding(machine):
        return False
    return relative <= EXCUSED or machine.get("violation", float("inf")) <= 2.0001 * 1e-3


def no_panic(ran: Ran) -> list[Finding]:
    """No panic and no termination by a signal."""
    if ran.killed:
        return []
    if "panicked" in ran.err or ran.code in (101, 134, 139) or (ran.code < 0 and ran.code != -2):
        lines = [line for line in ran.err.splitlines() if line.strip()]
        return [Finding("no-panic", f"exit {ran.code}: {' '.join(lines[:3])[:400]}", ran.shell())]
    return []


def in_time(ran: Ran, n: int, factor: float) -> list[Finding]:
    """No run takes more than 20 s of processor time for n ≤ 1 000; no run has to be killed."""
    if ran.killed:
        return [Finding("time", f"killed after {ran.wall:.0f} s, n = {n}", ran.shell())]
    if n <= SMALL and ran.cpu > SECONDS * factor:
        return [Finding("time", f"{ran.cpu:.1f} s of processor time, n = {n}, wanted ≤ {SECONDS * factor:.0f} s", ran.shell())]
    return []


def in_limit(ran: Ran, seconds: float) -> list[Finding]:
    """With --max-seconds the program ends within 1.5 s of it, not counting time spent waiting for a processor."""
    waited = min(max(0.0, ran.wall - ran.cpu - seconds), 4.0)
    if ran.wall > seconds + OVERSHOOT + waited:
        return [Finding("time-limit", f"{ran.wall:.2f} s with --max-seconds {seconds}", ran.shell())]
    return []


def exit_code(ran: Ran, allowed: tuple[int, ...]) -> list[Finding]:
    """Exit codes are those of the contract."""
    if ran.killed or no_panic(ran):
        return []
    if ran.code not in allowed:
        return [Finding("exit-code", f"exit {ran.code}, wanted one of {allowed}: {ran.err.strip()[:300]}", ran.shell())]
    return []


def refusal(ran: Ran, outputs: list[Path]) -> list[Finding]:
    """Exit code 2 gives a reason and writes nothing."""
    found = []
    if len(ran.err.strip()) < 10:
        found.append(Finding("refusal", f"exit 2 with the message {ran.err.strip()!r}", ran.shell()))
    left = [path.name for path in outputs if path.exists()]
    if left:
        found.append(Finding("refusal", f"exit 2, yet {', '.join(left)} was written", ran.shell()))
    return found


def status(ran: Ran, report: dict[str, Any]) -> list[Finding]:
    """The exit code agrees with the status."""
    word = report.get("status")
    if word not in STATUSES:
        return [Finding("status", f"exit {ran.code} with the status {word!r}", ran.shell())]
    if STATUSES[str(word)] != ran.code:
        return [Finding("status", f"exit {ran.code} with the status {word!r}", ran.shell())]
    return []


def relative_gap(machine: dict[str, Any]) -> float | None:
    """gap / max(|primal|, |dual|) from the numbers themselves; 0/0 is 0."""
    primal, dual, gap = machine.get("primal"), machine.get("dual"), machine.get("gap")
    if not (finite(primal) and finite(dual) and finite(gap)):
        return None
    assert isinstance(primal, int | float) and isinstance(dual, int | float) and isinstance(gap, int | float)
    size = max(abs(primal), abs(dual))
    return gap / size if size > 0 else (0.0 if gap == 0 else math.inf)


def target_scale(target: Array | None) -> float:
    if target is None or target.dtype == object:
        return 1.0
    return float(np.abs(target).max(initial=0.0))


def asked_tol(options: Options, report: dict[str, Any], target: Array | None) -> float | None:
    """The violation that an optimal model may have; `None` if only a gap was required."""
    if options.tol is not None:
        return options.tol
    if options.gap is not None:
        return None
    if options.task != "regress":
        return DEFAULT_TOL
    # The default is relative to the scale of the targets; the reported value is accepted within that.
    most = DEFAULT_TOL * max(target_scale(target), 1e-300)
    said = (report.get("asked") or {}).get("tol")
    return min(float(said), most) if said is not None and finite(said) else max(most, DEFAULT_TOL)


def asked(ran: Ran, options: Options, report: dict[str, Any], target: Array | None) -> list[Finding]:
    """Optimal means that every binary model meets the required accuracy."""
    if report.get("status") != "optimal":
        return []
    found: list[str] = []
    tol = asked_tol(options, report, target)
    for at, machine in enumerate(machines(report)):
        where = f"model {at}: " if len(machines(report)) > 1 else ""
        if options.level:
            # A loss without a gap: the limit on the gap applies to the stationarity, as in `verify`.
            most = tol if tol is not None else max(options.gap or 0.0, DEFAULT_TOL)
            found += [where + text for text in asked_level(machine, most)]
            continue
        relative = relative_gap(machine)
        if relative is None or relative < 0:
            found.append(f"{where}optimal with primal {machine.get('primal')}, dual {machine.get('dual')}, gap {machine.get('gap')}")
            continue
        wanted = options.gap if options.gap is not None else DEFAULT_GAP
        if within_rounding(machine):
            continue
        if relative > wanted * (1 + 1e-9):
            found.append(
                f"{where}optimal with a relative gap of {relative:.3g}, wanted ≤ {wanted:g} "
                f"(primal {machine['primal']:.6g}, dual {machine['dual']:.6g}, rounding {rounding(machine):.2g})"
            )
        violation = machine.get("violation")
        if tol is not None and not (finite(violation) and float(violation or 0.0) <= 2.0001 * tol):
            found.append(f"{where}optimal with a violation of {violation}, wanted ≤ 2·{tol:g}")
    return [Finding("asked", text, ran.shell()) for text in found[:3]]


def is_ordinary(options: Options, features: Array) -> bool:
    """Whether a training is of the kind that everybody expects to work: convex, features of similar size, a moderate cost and accuracy."""
    if (
        options.level
        or options.seconds is not None
        or options.iterations is not None
        or options.compact is not None
        or options.memory is not None
    ):
        return False
    if (
        options.solver not in (None, "auto", "decomposition")
        or options.kernel not in ("linear", "rbf")
        or options.gamma not in (None, "scale", "median")
    ):
        return False
    cost = options.cost if options.cost is not None else 1.0
    if not 1e-4 <= cost <= 1e3 or options.lam is not None or options.class_weight is not None or options.intercept is not None:
        return False
    if (options.tol or 1.0) < 1e-5 or (options.gap or 1.0) < 1e-6:
        return False
    n, spread = features.shape[0], features.std(axis=0)
    if n > SMALL or not np.isfinite(spread).all():
        return False
    spread = spread[spread > 0]
    if options.scale == "standard" or spread.size == 0:
        return True
    return bool(np.abs(features).max() <= 100.0 and spread.max() <= 100.0 * spread.min())


def solved(ran: Ran, options: Options, report: dict[str, Any], features: Array) -> list[Finding]:
    """An ordinary training ends optimal: an honest "stalled" is no answer there."""
    if report.get("status") in ("optimal", None) or not is_ordinary(options, features):
        return []
    return [Finding("solved", f"{report['status']} at a relative gap of {report.get('relative_gap')}, an ordinary training", ran.shell())]


def asked_level(machine: dict[str, Any], tol: float) -> list[str]:
    stationarity = machine.get("stationarity")
    if not finite(stationarity) or not finite(machine.get("objective")):
        return [f"optimal with objective {machine.get('objective')} and stationarity {stationarity}"]
    if float(stationarity or 0.0) > 2.0001 * tol:
        return [f"optimal with a stationarity of {stationarity:.3g}, wanted ≤ 2·{tol:g}"]
    return []


def descent(ran: Ran, report: dict[str, Any], slip: float) -> list[Finding]:
    """With a non-convex loss the objective is no higher than that of the convex start."""
    for machine in machines(report):
        start, end = machine.get("start_objective"), machine.get("objective")
        if start is not None and end is not None and finite(start) and finite(end) and end > start + 1e-9 * abs(start) + slip:
            return [Finding("descent", f"objective {end!r} above that of the convex start, {start!r}", ran.shell())]
    return []


def ordered(ran: Ran, report: dict[str, Any]) -> list[Finding]:
    """Dual ≤ primal, and gap is their difference, up to rounding."""
    found = []
    for machine in machines(report):
        relative = relative_gap(machine)
        if relative is None:
            continue
        primal, dual, gap = machine["primal"], machine["dual"], machine["gap"]
        room = 1e-9 * max(abs(primal), abs(dual)) + rounding(machine)
        if dual > primal + room or abs(primal - dual - gap) > room + 1e-6 * abs(gap):
            found.append(Finding("ordered", f"primal {primal!r}, dual {dual!r}, gap {gap!r}", ran.shell()))
    return found[:1]


def verify_agrees(ran: Ran, report: dict[str, Any], verified: dict[str, Any], slip: float) -> list[Finding]:
    """`verify` computes the numbers that `train` printed."""
    found = []
    ours, theirs = machines(report), machines(verified)
    if len(ours) != len(theirs):
        return [Finding("verify-agrees", f"{len(ours)} models trained, {len(theirs)} verified", ran.shell())]
    for at, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        where = f"model {at}: " if len(ours) > 1 else ""
        sizes = [abs(float(a[key])) for key in ("primal", "dual", "objective") if finite(a.get(key))]
        size = max(sizes, default=0.0)
        room = AGREE * size + slip + rounding(a) + rounding(b)
        for key in ("primal", "dual", "objective"):
            x, y = a.get(key), b.get(key)
            if x is None and y is None:
                continue
            # The dual is the primal minus the gap, and both may be off by their rounding.
            twice = room + rounding(a) + rounding(b) if key == "dual" else room
            if not (finite(x) and finite(y)) or abs(float(x or 0) - float(y or 0)) > twice:
                found.append(f"{where}{key} {x} trained, {y} verified")
        x, y = relative_gap(a), relative_gap(b)
        if x is not None and y is not None and abs(x - y) * size > 2 * room:
            found.append(f"{where}relative gap {x:.3g} trained, {y:.3g} verified")
    return [Finding("verify-agrees", text, ran.shell()) for text in found[:2]]


def verify_exit(ran: Ran, verified: dict[str, Any], gap: float) -> list[Finding]:
    """`verify` succeeds exactly if the gap (or the stationarity) of every binary model is within the limit."""
    holds = True
    doubt = False
    for machine in machines(verified):
        value = machine.get("stationarity") if "stationarity" in machine else relative_gap(machine)
        if value is None or not finite(value):
            holds = False
            continue
        doubt |= abs(value - gap) <= 1e-6 * gap or within_rounding(machine)
        holds &= value <= gap
    if not doubt and ran.code in (0, 1) and (ran.code == 0) != holds:
        each = [relative_gap(machine) for machine in machines(verified)]
        return [Finding("verify-exit", f"exit {ran.code} with --gap {gap:g}, relative gaps {each[:4]}", ran.shell())]
    return []


def scores_match(ran: Ran, given: Scores, z: Array) -> list[Finding]:
    """`predict --scores` equals a naive evaluation, up to the rounding of both."""
    naive = given.z if given.diagonal is None else given.z - 0.5 * given.diagonal[:, None]
    if naive.shape != z.shape:
        return [Finding("scores", f"{z.shape} scores, wanted {naive.shape}", ran.shell())]
    with np.errstate(all="ignore"):
        off = np.abs(naive - z) > given.slip + 1e-12 * np.abs(naive) + 1e-300
    off |= ~np.isfinite(z) & np.isfinite(naive)
    if off.any():
        row, output = (int(v) for v in np.argwhere(off)[0])
        text = f"{int(off.sum())} scores differ; row {row}: {z[row, output]:.17g}, naive {naive[row, output]:.17g}, "
        return [Finding("scores", text + f"rounding ≤ {given.slip[row, output]:.2g}", ran.shell())]
    return []


def labels_match(ran: Ran, found: list[str], wanted: list[str], sure: Array) -> list[Finding]:
    """Predictions follow from the scores."""
    if len(found) != len(wanted):
        return [Finding("predictions", f"{len(found)} predictions for {len(wanted)} rows", ran.shell())]
    for row, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if sure[row] and a != b:
            return [Finding("predictions", f"row {row}: predicted {a!r}, the scores say {b!r}", ran.shell())]
    return []


def objective_matches(ran: Ran, report: dict[str, Any], values: list[Value], name: str = "objective") -> list[Finding]:
    """The objective of the saved model is the certified one."""
    found = []
    ours = machines(report)
    if len(ours) != len(values):
        return [Finding(name, f"{len(ours)} models reported, {len(values)} in the file", ran.shell())]
    for at, (machine, value) in enumerate(zip(ours, values, strict=True)):
        where = f"model {at}: " if len(ours) > 1 else ""
        said = machine.get("primal", machine.get("objective"))
        if said is None or not finite(said):
            if math.isfinite(value.value) and report.get("status") == "optimal":
                found.append(f"{where}reported {said}, naive {value.value!r}")
            continue
        dual = machine.get("dual")
        size = max(abs(float(said)), abs(float(dual)) if dual is not None and finite(dual) else 0.0)
        room = AGREE * size + value.slip + rounding(machine)
        if abs(value.value - said) > room:
            found.append(f"{where}reported {said!r}, the saved model has {value.value:.17g} (rounding ≤ {value.slip:.2g})")
    return [Finding(name, text, ran.shell()) for text in found[:2]]


def dual_matches(ran: Ran, report: dict[str, Any], values: list[Value | None]) -> list[Finding]:
    """The lower bound is the dual objective at the saved β, if that is feasible without changes."""
    found = []
    for machine, value in zip(machines(report), values, strict=True):
        said = machine.get("dual")
        if value is None or said is None or not finite(said) or not math.isfinite(value.value):
            continue
        size = max(abs(float(said)), abs(float(machine.get("primal") or 0.0)))
        if abs(value.value - said) > AGREE * size + value.slip + 2 * rounding(machine):
            found.append(
                Finding("dual", f"reported {said!r}, at the saved β {value.value:.17g} (rounding ≤ {value.slip:.2g})", ran.shell())
            )
    return found[:1]


def gamma_matches(ran: Ran, rule: str, said: float, wanted: float | None) -> list[Finding]:
    """γ = scale and auto follow their definitions."""
    if wanted is not None and abs(said - wanted) > 1e-9 * wanted:
        return [Finding("gamma", f"gamma {rule} is {said!r}, wanted {wanted!r}", ran.shell())]
    return []


def same_model(ran: Ran, a: Model, b: Model) -> list[Finding]:
    """The same model for any number of threads, except for times."""

    def plain(model: Model) -> dict[str, Any]:
        header = dict(model.header)
        header["machines"] = [{k: v for k, v in machine.items() if k != "seconds"} for machine in header["machines"]]
        return header

    if a.arrays.keys() != b.arrays.keys():
        return [Finding("threads", f"arrays {sorted(a.arrays)} and {sorted(b.arrays)}", ran.shell())]
    for name, array in a.arrays.items():
        if array.shape != b.arrays[name].shape or array.tobytes() != b.arrays[name].tobytes():
            return [Finding("threads", f"the array {name} differs", ran.shell())]
    where = difference(plain(a), plain(b))
    return [Finding("threads", where, ran.shell())] if where else []


def difference(a: Any, b: Any, path: str = "") -> str:
    """The first place where two JSON values differ, and how; empty if they are equal."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next((text for key in a if (text := difference(a[key], b[key], f"{path}.{key}"))), "")
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return next((text for at in range(len(a)) if (text := difference(a[at], b[at], f"{path}[{at}]"))), "")
    return "" if a == b else f"{path.lstrip('.')}: {str(a)[:100]} and {str(b)[:100]}"


def brackets(name: str, ran: Ran, a: list[Bracket], b: list[Bracket], what: str) -> list[Finding]:
    """Two certificates of one problem do not contradict each other: neither lower bound is above the other's objective."""
    if len(a) != len(b):
        return [Finding(name, f"{len(a)} and {len(b)} models", ran.shell())]
    for x, y in zip(a, b, strict=True):
        for low, high in ((x, y), (y, x)):
            if low.lower is None:
                continue
            room = low.slip + high.slip + 1e-9 * (abs(low.lower) + abs(high.upper))
            if not low.lower <= high.upper + room:
                text = f"{what}: {low.lower:.17g} is proven to be a lower bound, but a model has {high.upper:.17g}"
                return [Finding(name, text + f" (rounding ≤ {low.slip + high.slip:.2g})", ran.shell())]
    return []


def untouched(before: dict[str, str], after: dict[str, str], written: set[str], folder: Path, command: str) -> list[Finding]:
    """Files that a run should not write are unchanged, and no temporary file is left."""
    found = []
    for path, mark in before.items():
        if path not in written and after.get(path) != mark:
            found.append(Finding("untouched", f"{path} was modified", command))
    for left in folder.rglob(".margrave-*.tmp"):
        found.append(Finding("untouched", f"{left.name} was left behind", command))
        left.unlink()
    return found
