"""Comparisons of a training with another training, or another model, of the same problem."""

from __future__ import annotations

import copy

import numpy as np

from . import files, invariants, model, options, peers, reference
from .case import Case, Trained, label_text, train
from .data import Rng
from .invariants import Bracket


def compare(case: Case, trained: Trained, rng: Rng) -> None:
    """Another training, or another model, of the same problem."""
    drawn, saved = trained.options, trained.model
    limited = drawn.seconds is not None
    convex = not drawn.level and drawn.definite and drawn.kernel != "precomputed"
    simple = saved.scheme == "one" and saved.header["formulation"]["name"] == "cost"
    if convex and simple and saved.header["task"] != "novelty":
        with np.errstate(all="ignore"):
            other = peers.rescaled(trained.problem, saved, trained.scores)
        if trained.values[0].value > 2 * other.upper + other.slip and trained.report.get("status") in ("stalled", "inaccurate"):
            case.counts["worse by half than a multiple of itself"] += 1
        case.add(invariants.brackets("bracket", trained.ran, trained.brackets(), [other], "a multiple of the model itself"))
    if convex and trained.stored.table.n <= 300 and rng.random() < 0.4:
        peer = peers.sklearn_peer(trained.problem, saved, trained.stored.features)
        if peer is not None:
            case.counts["compared with scikit-learn"] += 1
            case.add(invariants.brackets("peer", trained.ran, trained.brackets(), [peer[1]], f"scikit-learn's {peer[0]}"))
    kind = rng.choice(["threads", "permutation", "duplicate", "solver", "forged", "convert", "resume", "none", "none"])
    if kind == "threads" and not limited:
        second = train(case, trained.stored, drawn, "second", "--threads", "2")
        if second is not None:
            case.add(invariants.same_model(second.ran, saved, second.model))
    elif kind == "permutation" and convex:
        permutation(case, trained, rng)
    elif kind == "duplicate" and convex:
        duplicate(case, trained, rng)
    elif kind == "solver" and convex:
        another_solver(case, trained, rng)
    elif kind == "forged":
        forged(case, trained, rng, convex)
    elif kind == "convert":
        converted(case, trained, rng)
    elif kind == "resume":
        resumed(case, trained, convex)


def both(case: Case, name: str, first: Trained, second: Trained | None, what: str) -> None:
    if second is not None:
        case.counts[f"compared by {name}"] += 1
        case.add(invariants.brackets(name, second.ran, first.brackets(), second.brackets(), what))


def permutation(case: Case, trained: Trained, rng: Rng) -> None:
    """The order of the rows changes the objective by no more than the gaps."""
    table = trained.stored.table
    stored = files.store(table.take(rng.permutation(table.n)), case.folder, "permuted", trained.stored.form)
    drawn = trained.options
    if drawn.gamma == "median":
        # The median is that of a sample of pairs, and a permutation changes the sample.
        drawn = drawn.other(gamma=repr(float(trained.model.header["kernel"]["gamma"])))
    second = train(case, stored, drawn, "permuted")
    if second is not None and trained.options.scale is not None:
        # Means and variances are summed in another order: scaled features change by rounding relative to the offset.
        x = trained.stored.features
        spread = x.std(axis=0)
        ratio = float((np.abs(x).max(axis=0) / np.where(spread > 0, spread, 1.0))[spread > 0].max(initial=1.0))
        for value in second.values:
            value.slip += 1000 * reference.EPS * ratio * abs(value.value)
    both(case, "permutation", trained, second, "rows in another order")


def duplicate(case: Case, trained: Trained, rng: Rng) -> None:
    """Two copies of a row equal one row of twice the weight."""
    drawn = trained.options.other(scale=None, probability=None, compact=None)
    gamma = trained.model.header["kernel"].get("gamma")
    if gamma is not None:
        drawn = drawn.other(gamma=repr(float(gamma)))
    if drawn.lam is not None:
        drawn = drawn.other(lam=None, cost=trained.problem.cost())
    if drawn.class_weight == "balanced":
        drawn = drawn.other(class_weight=None)
    if drawn.kernel == "chi2" and (trained.stored.features < 0).any():
        return
    table = trained.stored.table
    twice = rng.random(table.n) < 0.3
    weighted = table.take(np.arange(table.n))
    weighted.weights = (np.ones(table.n) if table.weights is None else table.weights) * np.where(twice, 2.0, 1.0)
    repeated = table.take(np.concatenate([np.arange(table.n), np.flatnonzero(twice)]))
    form = "csv" if trained.stored.form.startswith("svm") else trained.stored.form
    first = train(case, files.store(weighted, case.folder, "weighted", form), drawn, "weighted")
    if first is None:
        return
    second = train(case, files.store(repeated, case.folder, "repeated", form), drawn, "repeated")
    both(case, "duplicate", first, second, "rows twice, against twice the weight")


def another_solver(case: Case, trained: Trained, rng: Rng) -> None:
    """Two solvers do not contradict each other."""
    known = [name for name in options.solvers(trained.options) if name != trained.report.get("solver")]
    if trained.stored.table.n > 300:
        known = [name for name in known if name not in ("smo", "svmtorch")]
    if not known or trained.options.multiclass is None and len(trained.model.header["labels"]) > 2:
        return
    drawn = trained.options.other(solver=known[int(rng.integers(len(known)))], iterations=None)
    both(case, "solver", trained, train(case, trained.stored, drawn, "solver"), f"{drawn.solver} and {trained.report.get('solver')}")


def resumed(case: Case, trained: Trained, convex: bool) -> None:
    """Resuming from a model that a limit ended, or from a finished one."""
    if trained.options.multiclass == "crammer-singer":
        return
    drawn = trained.options.other(seconds=None, iterations=None)
    second = train(case, trained.stored, drawn, "resumed", "--resume", str(trained.path))
    if convex:
        both(case, "resume", trained, second, "resumed")


def forged(case: Case, trained: Trained, rng: Rng, convex: bool) -> None:
    """`verify` evaluates the model in the file and does not use the certificate in its header."""
    changed = copy.deepcopy(trained.model)
    scale = float(np.abs(trained.scores.z).max(initial=1.0)) or 1.0
    kind = str(rng.choice(["bias", "beta", "weights"]))
    if kind == "weights" and "weights" in changed.arrays:
        changed.arrays["weights"] = changed.arrays["weights"] * 1.1
    elif kind == "beta" and "weights" not in changed.arrays and len(changed.arrays["beta"]):
        changed.arrays["beta"] = changed.arrays["beta"] * float(rng.choice([0.0, 0.9, 1.1, -1.0]))
    elif trained.options.no_bias:
        return
    else:
        changed.arrays["bias"] = changed.arrays["bias"] + scale * float(rng.choice([-1.0, 1.0])) * 10.0 ** float(rng.uniform(-3, 3))
    if changed.header["formulation"]["name"] == "nu":
        return
    path = case.folder / "forged.model"
    model.write(changed, path)
    stored = trained.stored
    with np.errstate(all="ignore"):
        given = reference.scores(changed, stored.features)
        values = reference.objectives(trained.problem, changed, given)
    ran = case.run("verify", str(path), str(stored.path), *stored.reading, "--json", "--threads", "1", n=stored.table.n, codes=(0, 1, 2))
    case.counts[f"forged {kind}"] += 1
    if ran.code not in (0, 1):
        return
    report = ran.report()
    case.add(invariants.objective_matches(ran, report, values, "verify-own"))
    case.add(invariants.verify_exit(ran, report, 1e-3))
    if convex:
        found = [
            Bracket(machine.get("dual"), value.value, value.slip + invariants.rounding(machine))
            for machine, value in zip(invariants.machines(report), values, strict=True)
        ]
        case.add(invariants.brackets("bracket", ran, trained.brackets(), found, "a forged model"))


def converted(case: Case, trained: Trained, rng: Rng) -> None:
    """A converted model predicts the same."""
    form = str(rng.choice(["native", "libsvm"]))
    path, out = case.folder / f"converted.{form}", case.folder / "converted.csv"
    ran = case.run("convert", str(trained.path), "--to", form, "-o", str(path), codes=(0, 2))
    if ran.code == 2:
        case.add(invariants.refusal(ran, [path]))
        return
    case.counts[f"converted {form}"] += 1
    stored, saved = trained.stored, trained.model
    if form == "native":
        case.add(invariants.same_model(ran, saved, model.read(path)))
        return
    ran = case.run("predict", str(path), str(stored.path), *stored.reading, "-o", str(out), n=stored.table.n, codes=(0, 2))
    if ran.code != 0 or saved.header["task"] == "regress":
        return
    places, sure = reference.decisions(saved, trained.scores)
    names = [label_text(label) for label in saved.header["labels"]] or ["-1", "1"]
    # Ties between classes are broken in the order of the labels, which is different in LIBSVM.
    sure &= len(names) <= 2
    rows = out.read_text().splitlines()[1:]
    case.add(invariants.labels_match(ran, [row.strip('"') for row in rows], [names[place] for place in places], sure))
