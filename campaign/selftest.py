"""Forged outcomes that the invariants must report, and correct ones that they must accept."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import files, invariants, model, reference
from .case import Case, Setting, Trained, check_predictions, train
from .data import from_matrix
from .invariants import Bracket, Finding
from .options import Options
from .program import Program, Ran


def fixture(program: Path, folder: Path) -> tuple[Case, Trained]:
    """A small, correct training."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    x = rng.normal(size=(40, 3))
    y = np.where(x[:, 0] * x[:, 1] + 0.3 * rng.normal(size=40) > 0, 1.0, -1.0)
    stored = files.store(from_matrix(x, y, "self-test"), folder, "data", "csv")
    case = Case(Setting(0, folder, None), 0, Program(program, folder))
    drawn = Options("classify", kernel="rbf", gamma="0.5", cost=2.0, gap=1e-6)
    trained = train(case, stored, drawn, "true")
    if trained is None or case.findings:
        raise SystemExit(f"the self-test's own training fails: {case.findings}")
    return case, trained


def ended(code: int, err: str = "", wall: float = 0.1, killed: bool = False) -> Ran:
    return Ran(["margrave"], code, "", err, wall, wall, killed)


def changed(report: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**report, **values}


def forged_scores(trained: Trained, change: Callable[[model.Model], None]) -> tuple[list[reference.Value], reference.Scores]:
    """The naive evaluation of a model that was changed after it was certified."""
    forged = copy.deepcopy(trained.model)
    forged.arrays = {name: array.copy() for name, array in forged.arrays.items()}
    change(forged)
    given = reference.scores(forged, trained.stored.features)
    return reference.objectives(trained.problem, forged, given), given


def with_bias(forged: model.Model) -> None:
    forged.arrays["bias"] += 0.5


def with_beta(forged: model.Model) -> None:
    forged.arrays["beta"][0] *= 1.01


def checks(case: Case, trained: Trained) -> list[tuple[str, bool, list[Finding]]]:
    """Name, whether it must be reported, and the findings."""
    ran, report, drawn = trained.ran, trained.report, trained.options
    primal, dual = float(report["primal"]), float(report["dual"])
    stopped = changed(report, status="stalled")
    other = copy.deepcopy(trained.model)
    other.arrays["beta"] = other.arrays["beta"] * (1 + 1e-15)
    counted = copy.deepcopy(trained.model)
    counted.header["machines"][0]["iterations"] += 1
    timed = copy.deepcopy(trained.model)
    timed.header["machines"][0]["seconds"] += 1.0
    level = Options("classify", loss="ramp", tol=1e-3)
    true = trained.brackets()
    biased, biased_scores = forged_scores(trained, with_bias)
    moved, _ = forged_scores(trained, with_beta)
    z = trained.scores.z
    ordinary = np.array([[0.0, 1.0], [1.0, -1.0], [2.0, 0.5]])
    left = case.folder / ".margrave-1.tmp"
    left.write_text("")
    stale = invariants.untouched({}, {}, set(), case.folder, "")
    return [
        ("a panic", True, invariants.no_panic(ended(101, "thread 'main' panicked at src/x.rs"))),
        ("a signal", True, invariants.no_panic(ended(-11))),
        ("an ordinary refusal", False, invariants.no_panic(ended(2, "error: no such file"))),
        ("a foreign exit code", True, invariants.exit_code(ended(1), (0, 2, 3))),
        ("a silent refusal", True, invariants.refusal(ended(2), [])),
        ("a refusal that wrote", True, invariants.refusal(ended(2, "error: no such column"), [trained.path])),
        ("a killed run", True, invariants.in_time(ended(-9, wall=60.0, killed=True), 10, 1.0)),
        ("a slow run", True, invariants.in_time(ended(0, wall=25.0), 1000, 1.0)),
        ("a slow run of many rows", False, invariants.in_time(ended(0, wall=25.0), 2000, 1.0)),
        ("a limit that does not hold", True, invariants.in_limit(ended(3, wall=3.0), 0.5)),
        ("the true status", False, invariants.status(ran, report)),
        ("optimal with exit 3", True, invariants.status(ended(3), report)),
        ("stalled with exit 0", True, invariants.status(ended(0), stopped)),
        ("no status", True, invariants.status(ended(0), {})),
        ("the true gap", False, invariants.asked(ran, drawn, report, None)),
        ("optimal with a gap of 1", True, invariants.asked(ran, drawn, changed(report, dual=0.0, gap=primal), None)),
        ("optimal without a gap", True, invariants.asked(ran, drawn, changed(report, gap=None), None)),
        (
            "optimal with a large violation",
            True,
            invariants.asked(ran, drawn.other(gap=None), changed(report, violation=0.1, gap=1e-7 * primal, rounding=0.0), None),
        ),
        (
            "a gap within its rounding",
            False,
            invariants.asked(ran, drawn.other(gap=1e-9), changed(report, gap=1e-7 * primal, rounding=1e-7 * primal), None),
        ),
        (
            "one bad model of two",
            True,
            invariants.asked(ran, drawn, changed(report, machines=[report, changed(report, dual=0.0, gap=primal)]), None),
        ),
        ("stalled with a gap of 1", False, invariants.asked(ran, drawn, changed(stopped, dual=0.0, gap=primal), None)),
        ("an ordinary training that stalled", True, invariants.solved(ran, drawn.other(gap=None, gamma=None), stopped, ordinary)),
        ("an ordinary training that ended", False, invariants.solved(ran, drawn.other(gap=None, gamma=None), report, ordinary)),
        ("a stall far from the origin", False, invariants.solved(ran, drawn.other(gap=None, gamma=None), stopped, 1e6 + ordinary)),
        ("a stall below rounding", False, invariants.solved(ran, drawn.other(gap=1e-14, gamma=None), stopped, ordinary)),
        (
            "a loss that is not stationary",
            True,
            invariants.asked(ran, level, {"status": "optimal", "objective": 1.0, "stationarity": 0.1}, None),
        ),
        ("an ascent", True, invariants.descent(ran, {"start_objective": 1.0, "objective": 1.1}, 0.0)),
        ("a dual above the primal", True, invariants.ordered(ran, changed(report, dual=primal * 1.01))),
        ("a gap that is not the difference", True, invariants.ordered(ran, changed(report, gap=0.0, dual=0.9 * primal))),
        ("verify agrees", False, invariants.verify_agrees(ran, report, report, 0.0)),
        ("verify with another primal", True, invariants.verify_agrees(ran, report, changed(report, primal=primal * (1 + 1e-5)), 0.0)),
        ("verify without a dual", True, invariants.verify_agrees(ran, report, changed(report, dual=None), 0.0)),
        ("verify that says yes to a gap of 1", True, invariants.verify_exit(ended(0), changed(report, dual=0.0, gap=primal), 1e-3)),
        ("verify that says no to a proof", True, invariants.verify_exit(ended(1), changed(report, gap=1e-7 * primal, rounding=0.0), 1e-3)),
        ("the true objective", False, invariants.objective_matches(ran, report, trained.values)),
        ("a bias that was not certified", True, invariants.objective_matches(ran, report, biased)),
        ("a coefficient that was not certified", True, invariants.objective_matches(ran, report, moved)),
        ("the true scores", False, invariants.scores_match(ran, trained.scores, z)),
        ("scores of another bias", True, invariants.scores_match(ran, biased_scores, z)),
        ("one score that is off by 1e-9", True, invariants.scores_match(ran, trained.scores, z + 1e-9 * (np.arange(40) == 3)[:, None])),
        ("a wrong label", True, invariants.labels_match(ran, ["1", "1"], ["1", "-1"], np.array([True, True]))),
        ("a label in doubt", False, invariants.labels_match(ran, ["1", "1"], ["1", "-1"], np.array([True, False]))),
        ("the same model", False, invariants.same_model(ran, trained.model, timed)),
        ("another last bit", True, invariants.same_model(ran, trained.model, other)),
        ("another count", True, invariants.same_model(ran, trained.model, counted)),
        ("brackets that meet", False, invariants.brackets("bracket", ran, true, true, "")),
        ("a false lower bound", True, invariants.brackets("bracket", ran, true, [Bracket(None, dual * 0.99, 0.0)], "")),
        (
            "a false lower bound of the other",
            True,
            invariants.brackets("bracket", ran, true, [Bracket(primal * 1.01, primal * 1.02, 0.0)], ""),
        ),
        ("an input that changed", True, invariants.untouched({"a": "1"}, {"a": "2"}, set(), case.folder, "")),
        ("an output that changed", False, invariants.untouched({"a": "1"}, {"a": "2"}, {"a"}, case.folder, "")),
        ("a temporary file", True, stale),
    ]


def forged_model(case: Case, trained: Trained) -> list[Finding]:
    """`predict` of a forged file against the scores of the true one, through the program."""
    forged = copy.deepcopy(trained.model)
    forged.arrays["bias"] = forged.arrays["bias"] + 0.5
    model.write(forged, trained.path)
    case.findings = []
    check_predictions(case, trained)
    return [finding for finding in case.findings if finding.invariant == "scores"]


def main(program: Path, folder: Path) -> int:
    """Runs all; 0 if every forgery is reported and every correct outcome is accepted."""
    case, trained = fixture(program, folder)
    found = checks(case, trained)
    check_predictions(case, trained)
    found.append(("the true predictions", False, case.findings))
    found.append(("a model file with another bias", True, forged_model(case, trained)))
    wrong = [(name, caught) for name, caught, findings in found if bool(findings) != caught]
    for name, caught in wrong:
        print(f"FAILED self-test: {name} {'is not caught' if caught else 'is accused'}")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(found) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0
