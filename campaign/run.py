"""The campaign: cases until the time is over, then counts and failures."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from . import peers, selftest
from .case import Case, Setting
from .cases import run_case
from .invariants import Finding
from .program import OutOfTime, Program, machine_factor


@dataclass
class Result:
    """Result of one case."""

    number: int
    about: str
    findings: list[Finding]
    counts: Counter[str]
    seconds: float
    folder: str = ""
    cut: bool = False


@dataclass
class Totals:
    """Results of all cases."""

    passed: int = 0
    failed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)


def one(setting: Setting, number: int, path: Path, keep: Path, deadline: float, verbose: bool) -> Result:
    """Runs one case in its own folder, which is kept if the case fails."""
    folder = keep / f"seed-{setting.seed}-case-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program = Program(path, folder, deadline, verbose)
    case = Case(setting, number, program)
    begun = time.monotonic()
    cut = False
    try:
        run_case(case)
    except OutOfTime:
        cut = True
    except Exception:
        case.add([Finding("campaign", "the campaign itself failed:\n" + traceback.format_exc())])
    result = Result(number, case.about, case.findings, case.counts, time.monotonic() - begun, str(folder), cut)
    if case.findings:
        lines = [ran.shell() for ran in program.history]
        (folder / "commands.txt").write_text("\n".join(lines) + "\n")
    elif not verbose:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def work(setting: Setting, following: Any, results: Any, path: Path, keep: Path, deadline: float, cases: int | None) -> None:
    """A worker: takes the next case number until the time is over."""
    os.environ["OMP_NUM_THREADS"] = "1"
    while time.monotonic() < deadline:
        with following.get_lock():
            number = int(following.value)
            following.value += 1
        if cases is not None and number >= cases:
            break
        results.put(one(setting, number, path, keep, deadline, False))
    results.put(None)


def tell(result: Result, setting: Setting, extra: str) -> None:
    """Prints the failures of a case."""
    print(f"FAILED case {result.number}: {result.about}")
    for finding in result.findings:
        print(f"  {finding.invariant}: {finding.seen}")
        if finding.command:
            print(f"    command: {finding.command}")
    print(f"  repeat:  scripts/campaign --seed {setting.seed} --case {result.number}{extra}")
    print(f"  kept in: {result.folder}", flush=True)


def add(totals: Totals, result: Result) -> None:
    if result.cut and not result.findings:
        return
    totals.counts += result.counts
    if result.findings:
        totals.failed += 1
        totals.broken.update({finding.invariant for finding in result.findings})
    else:
        totals.passed += 1


def summary(totals: Totals, seconds: float) -> None:
    """Counts of what was tested."""
    groups: dict[str, list[str]] = {}
    for name, times in sorted(totals.counts.items()):
        head, _, rest = name.partition(" ")
        groups.setdefault(head if rest else "", []).append(f"{rest or name} {times}")
    print()
    for head, entries in groups.items():
        print(f"{head or 'other'}: {', '.join(entries)}")
    if totals.broken:
        print("broken:", ", ".join(f"{name} {times}" for name, times in totals.broken.most_common()))
    if not peers.SKLEARN:
        print("scikit-learn is not installed: no case was compared with it")
    print(f"{seconds:.0f} s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration in seconds [60]")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other cases [1]")
    parser.add_argument("--case", type=int, help="repeat this case alone, printing its commands")
    parser.add_argument("--cases", type=int, help="stop after this many cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case [0]")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel cases [1]")
    parser.add_argument("--program", type=Path, help="the program to test")
    parser.add_argument("--data", type=Path, help="folder with more real data sets [../shared/data, if it exists]")
    parser.add_argument("--keep", type=Path, help="folder for the files of failed cases [target/campaign]")
    parser.add_argument("--self-test", action="store_true", help="check that the invariants report forged outcomes")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    root = Path(__file__).resolve().parent.parent
    if given.program is None or not given.program.is_file():
        print(f"scripts/campaign: there is no program {given.program}: name it with --program", file=sys.stderr)
        return 2
    program = given.program.resolve()
    keep = (given.keep or root / "target" / "campaign").resolve()
    beside = given.data or root.parent / "shared" / "data"
    setting = Setting(given.seed, root, beside if beside.is_dir() else None, machine_factor())
    if given.self_test:
        return selftest.main(program, keep / "self-test")
    begun = time.monotonic()
    totals = Totals()
    if given.case is not None:
        result = one(setting, given.case, program, keep, float("inf"), True)
        print(f"case {result.number}: {result.about}, {result.seconds:.2f} s")
        add(totals, result)
        if result.findings:
            tell(result, setting, "")
    else:
        campaign(setting, given, program, keep, begun + given.seconds, totals)
    summary(totals, time.monotonic() - begun)
    print(f"{totals.passed} passed, {totals.failed} failed")
    return 1 if totals.failed else 0


def campaign(setting: Setting, given: argparse.Namespace, program: Path, keep: Path, deadline: float, totals: Totals) -> None:
    """All workers until the deadline; failures are printed at once.

    Processor time of parallel cases includes waiting for caches and for the other half of a core. A case that fails by
    time alone is therefore repeated by itself after the others, and that result counts.
    """
    slow: list[int] = []
    context = multiprocessing.get_context("fork")
    following = context.Value("q", given.first)
    results: Any = context.Queue()
    last = None if given.cases is None else given.first + given.cases
    workers = [
        context.Process(target=work, args=(setting, following, results, program, keep, deadline, last)) for _ in range(max(1, given.jobs))
    ]
    for worker in workers:
        worker.start()
    running = len(workers)
    while running:
        try:
            result = results.get(timeout=1.0)
        except Empty:
            if not any(worker.is_alive() for worker in workers):
                break
            continue
        if result is None:
            running -= 1
            continue
        if len(workers) > 1 and result.findings and all(finding.invariant == "time" for finding in result.findings):
            slow.append(result.number)
            continue
        add(totals, result)
        if result.findings:
            tell(result, setting, "")
    for worker in workers:
        worker.join(timeout=10.0)
    for number in sorted(slow):
        result = one(setting, number, program, keep, float("inf"), False)
        print(f"case {number} took too long beside others, {result.seconds:.1f} s for all its commands alone")
        add(totals, result)
        if result.findings:
            tell(result, setting, "")


if __name__ == "__main__":
    sys.exit(main())
