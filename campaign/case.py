"""A running case: the runs of the program, and the checks of a training, its certificate and its predictions."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import files, invariants, model, reference
from .data import Rng
from .invariants import Bracket, Finding
from .options import Options
from .program import Program, Ran


@dataclass
class Setting:
    """Settings that are the same for all cases."""

    seed: int
    root: Path
    beside: Path | None
    factor: float = 1.0


@dataclass
class Case:
    """A running case."""

    setting: Setting
    number: int
    program: Program
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    about: str = ""

    @property
    def folder(self) -> Path:
        return self.program.folder

    def stream(self, part: int) -> Rng:
        """Random numbers for one part of the case; parts are independent of each other."""
        return np.random.default_rng([self.setting.seed, self.number, part])

    def add(self, found: list[Finding]) -> None:
        self.findings += found

    def run(self, *arguments: str, n: int = 0, codes: tuple[int, ...] = (0,), **limits: Any) -> Ran:
        """Runs the program and checks how it ended."""
        mine = {str(path): mark for path, mark in files.digest(list(self.folder.iterdir())).items()}
        ran = self.program.run(*arguments, **limits)
        now = {str(path): mark for path, mark in files.digest(list(self.folder.iterdir())).items()}
        written = {arguments[at + 1] for at, word in enumerate(arguments[:-1]) if word == "-o"}
        self.add(invariants.untouched(mine, now, written, self.folder, ran.shell()))
        self.add(invariants.no_panic(ran))
        self.add(invariants.in_time(ran, n, self.setting.factor))
        self.add(invariants.exit_code(ran, codes))
        return ran


@dataclass
class Trained:
    """A training that produced a model, and its naive evaluation."""

    options: Options
    stored: files.Stored
    ran: Ran
    report: dict[str, Any]
    path: Path
    model: model.Model
    problem: reference.Problem
    scores: reference.Scores
    values: list[reference.Value]

    def brackets(self) -> list[Bracket]:
        """The certified bounds, with the naive objective of the saved model as the upper bound."""
        found = []
        for machine, value in zip(invariants.machines(self.report), self.values, strict=True):
            dual = machine.get("dual")
            lower = float(dual) if dual is not None and invariants.finite(dual) else None
            found.append(Bracket(lower, value.value, value.slip + invariants.rounding(machine)))
        return found


def train(case: Case, stored: files.Stored, drawn: Options, name: str, *extra: str) -> Trained | None:
    """Trains and makes all checks of a single training; `None` if it produced no model."""
    path = case.folder / f"{name}.model"
    arguments = ["train", str(stored.path), "-o", str(path), *stored.reading, *drawn.arguments(), "--json"]
    threads = [] if "--threads" in extra else ["--threads", "1"]
    n = stored.table.n
    ran = case.run(*arguments, *threads, *extra, n=n, codes=(0, 2, 3))
    if ran.code == 2:
        case.add(invariants.refusal(ran, [path]))
        case.counts["refused"] += 1
        return None
    if drawn.seconds is not None:
        case.add(invariants.in_limit(ran, drawn.seconds))
    if ran.killed or ran.code not in (0, 3):
        return None
    report = ran.report()
    case.add(invariants.status(ran, report))
    if not path.exists():
        if ran.code == 3 and not report:
            case.counts["no model"] += 1
            return None
        case.add([Finding("exit-code", f"exit {ran.code} and no model", ran.shell())])
        return None
    count(case, drawn, report)
    target = stored.table.target
    case.add(invariants.asked(ran, drawn, report, target))
    case.add(invariants.solved(ran, drawn, report, stored.features))
    case.add(invariants.ordered(ran, report))
    saved = model.read(path)
    problem = reference.Problem(drawn, stored.table, target)
    with np.errstate(all="ignore"):
        given = reference.scores(saved, stored.features)
        values = reference.objectives(problem, saved, given)
    case.add(invariants.objective_matches(ran, report, values))
    if not drawn.level:
        with np.errstate(all="ignore"):
            case.add(invariants.dual_matches(ran, report, reference.duals(problem, saved, given, stored.features)))
    gamma = saved.header["kernel"].get("gamma")
    if gamma is not None:
        rule = drawn.gamma or "scale"
        case.add(invariants.gamma_matches(ran, rule, float(gamma), reference.gamma_rule(rule, saved, stored.features)))
    if drawn.compact is None:
        case.add(invariants.descent(ran, report, 2 * sum(value.slip for value in values)))
    return Trained(drawn, stored, ran, report, path, saved, problem, given, values)


def count(case: Case, drawn: Options, report: dict[str, Any]) -> None:
    case.counts[f"task {drawn.task}"] += 1
    case.counts[f"kernel {drawn.kernel}"] += 1
    case.counts[f"loss {drawn.loss or report.get('formulation', {}).get('name') or 'default'}"] += 1
    case.counts[f"solver {report.get('solver')}"] += 1
    case.counts[f"status {report.get('status')}"] += 1


def check_verify(case: Case, trained: Trained, rng: Rng) -> None:
    """`verify` agrees with `train` and with itself."""
    gap = trained.options.gap or 1e-3
    if rng.random() < 0.3:
        gap = float(10.0 ** rng.uniform(-9, -1))
    stored = trained.stored
    ran = case.run(
        "verify", str(trained.path), str(stored.path), *stored.reading, "--gap", repr(gap), "--json", "--threads", "1",
        n=stored.table.n, codes=(0, 1),
    )  # fmt: skip
    if ran.code in (0, 1) and not ran.killed:
        slip = 2 * max(value.slip for value in trained.values)
        case.add(invariants.verify_agrees(ran, trained.report, ran.report(), slip))
        case.add(invariants.verify_exit(ran, ran.report(), gap))


def check_predictions(case: Case, trained: Trained) -> None:
    """`predict` equals a naive evaluation."""
    stored, saved = trained.stored, trained.model
    out = case.folder / "predictions.csv"
    ran = case.run(
        "predict", str(trained.path), str(stored.path), *stored.reading, "--scores", "-o", str(out), "--json", "--threads", "1",
        n=stored.table.n,
    )  # fmt: skip
    if ran.code != 0 or not out.exists():
        return
    rows = list(csv.reader(io.StringIO(out.read_text())))[1:]
    outputs = saved.outputs
    z = np.array([[float(cell) for cell in row[-outputs:]] for row in rows]).reshape(len(rows), outputs)
    case.add(invariants.scores_match(ran, trained.scores, z))
    if saved.header["task"] == "regress":
        return
    if saved.header["task"] == "classify" and stored.table.target is not None:
        own = [label_text(label) for label in stored.table.target]
        right = np.array([row[0] == label for row, label in zip(rows, own, strict=True)], dtype=float)
        weights = stored.table.weights
        share = float(np.average(right, weights=weights)) if weights is not None and weights.sum() > 0 else float(right.mean())
        if abs(share - float(ran.report().get("accuracy", -1.0))) > 1e-12:
            case.add([Finding("predictions", f"accuracy {ran.report().get('accuracy')}, by count {share}", ran.shell())])
    places, sure = reference.decisions(saved, trained.scores)
    names = [label_text(label) for label in saved.header["labels"]] or ["-1", "1"]
    wanted = [names[place] for place in places]
    case.add(invariants.labels_match(ran, [row[0] for row in rows], wanted, sure))


def label_text(label: object) -> str:
    return str(label) if isinstance(label, str) else files.number(float(str(label)))
