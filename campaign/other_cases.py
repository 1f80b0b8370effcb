"""Cases without a certificate: damaged files, LIBSVM's commands, searches, limits, outputs that are inputs."""

from __future__ import annotations

import numpy as np

from . import data, files, invariants, options
from .case import Case, train
from .data import Rng
from .invariants import Finding
from .options import Options

# Small, so that the cases test the handling of files and not the solvers.
FEW = 60


def small_table(case: Case, rng: Rng, task: str) -> data.Table:
    return data.draw(rng, task, case.setting.root, case.setting.beside, largest=FEW)


def quick(task: str, rng: Rng) -> Options:
    """Simple options of a short training."""
    kernel = str(rng.choice(["linear", "rbf", "poly"]))
    return Options(task, kernel=kernel, scale=str(rng.choice(["none", "minmax", "standard"])), seconds=3.0)


def damaged_data(case: Case, rng: Rng) -> None:
    """A damaged data file for every command that reads data: no panic, a documented exit code, bounded memory."""
    task = str(rng.choice(["classify", "regress", "novelty"]))
    table = small_table(case, rng, task)
    form = files.choose(rng, table)
    whole = files.store(table, case.folder, "whole", form)
    broken = files.store(table, case.folder, "broken", form)
    way = files.damage(rng, broken.path, form)
    case.about = f"damaged data ({way}), {table.about}, n = {table.n}, {form}"
    case.counts[f"damaged {way}"] += 1
    drawn = quick(task, rng)
    out = case.folder / "out.model"
    reading = [*broken.reading]
    ran = case.run("train", str(broken.path), "-o", str(out), *reading, *drawn.arguments(), "--json", n=FEW, codes=(0, 2, 3), limited=True)
    if ran.code == 2:
        case.add(invariants.refusal(ran, [out]))
    elif ran.code in (0, 3) and not ran.killed:
        case.add(invariants.status(ran, ran.report()))
    fine = case.folder / "fine.model"
    trained = case.run("train", str(whole.path), "-o", str(fine), *reading, *drawn.arguments(), n=FEW, codes=(0, 2, 3))
    if trained.code in (0, 3) and fine.exists():
        result = case.folder / "out.csv"
        for command in (["predict", "-o", str(result)], ["verify"], ["plot", "-o", str(case.folder / "out.svg")]):
            ran = case.run(command[0], str(fine), str(broken.path), *reading, *command[1:], n=FEW, codes=(0, 1, 2), limited=True)
            if ran.code == 2:
                case.add(
                    invariants.refusal(
                        ran, [case.folder / "out.svg"] if command[0] == "plot" else [result] if command[0] == "predict" else []
                    )
                )
                result.unlink(missing_ok=True)
    for arguments in (
        ["scale", str(broken.path), "-o", str(case.folder / "scaled.out")],
        ["svm-train", "-q", str(broken.path), str(case.folder / "o.model")],
    ):
        if form == "svm" or arguments[0] == "scale":
            case.run(*arguments, n=FEW, codes=(0, 1, 2, 3), limited=True)


def damaged_model(case: Case, rng: Rng) -> None:
    """A damaged model file for every command that reads models."""
    table = small_table(case, rng, "classify")
    form = "svm" if files.fits("svm", table) else "csv"
    stored = files.store(table, case.folder, "data", form)
    path = case.folder / "fine.model"
    libsvm = form == "svm" and rng.random() < 0.4 and table.target is not None and table.target.dtype == float
    if libsvm:
        ran = case.run("svm-train", "-q", str(stored.path), str(path), n=FEW, codes=(0, 1, 2, 3))
    else:
        ran = case.run(
            "train", str(stored.path), "-o", str(path), *stored.reading, *quick("classify", rng).arguments(), n=FEW, codes=(0, 2, 3)
        )
    if not path.exists():
        return
    broken = case.folder / "broken.model"
    broken.write_bytes(path.read_bytes())
    way = files.damage(rng, broken, "svm" if libsvm else "model")
    case.about = f"damaged {'LIBSVM ' if libsvm else ''}model ({way})"
    case.counts[f"damaged model {way}"] += 1
    out = case.folder / "out.csv"
    for arguments in (
        ["predict", str(broken), str(stored.path), *stored.reading, "-o", str(out)],
        ["verify", str(broken), str(stored.path), *stored.reading],
        ["inspect", str(broken), "--json"],
        ["convert", str(broken), "--to", str(rng.choice(["native", "libsvm", "onnx"])), "-o", str(case.folder / "converted")],
        ["train", str(stored.path), *stored.reading, "--resume", str(broken), "--max-seconds", "3", "-o", str(case.folder / "again.model")],
    ):
        ran = case.run(*arguments, n=FEW, codes=(0, 1, 2, 3), limited=True)
        if ran.code == 2:
            case.add(invariants.refusal(ran, []))


def libsvm(case: Case, rng: Rng) -> None:
    """LIBSVM's commands: train, predict, and a certificate of the model."""
    kind = int(rng.choice([0, 0, 0, 1, 2, 3, 3, 4]))
    task = "regress" if kind >= 3 else "classify"
    table = data.draw(rng, task, case.setting.root, case.setting.beside, largest=300)
    table.weights = None
    if not files.fits("svm", table) or table.target is None or table.target.dtype == object or table.target.ndim > 1:
        table = data.from_matrix(rng.normal(size=(40, 3)), np.where(rng.random(40) < 0.5, 1.0, -1.0), "normal")
    stored = files.store(table, case.folder, "data", "svm")
    cost = options.power(rng, -2, 3)
    path = case.folder / "libsvm.model"
    arguments = ["-s", str(kind), "-t", str(rng.integers(0, 4)), "-c", repr(cost), "-n", repr(round(float(rng.uniform(0.05, 0.6)), 2))]
    arguments += ["-e", repr(options.power(rng, -5, -1))] if rng.random() < 0.3 else []
    case.about = f"svm-train {' '.join(arguments)}, {table.about}, n = {table.n}"
    case.counts["svm-train"] += 1
    ran = case.run("svm-train", "-q", *arguments, str(stored.path), str(path), n=table.n, codes=(0, 1, 2, 3))
    if ran.code in (1, 2) or not path.exists():
        case.counts["refused"] += 1
        return
    out = case.folder / "out.txt"
    ran = case.run("svm-predict", str(stored.path), str(path), str(out), n=table.n)
    if ran.code == 0 and len(out.read_text().split()) != table.n:
        case.add([Finding("predictions", f"{len(out.read_text().split())} predictions for {table.n} rows", ran.shell())])
    said = ["-C", repr(cost)] if kind in (0, 3, 4) else []
    ran = case.run("verify", str(path), str(stored.path), *said, "--gap", "1e-2", "--json", n=table.n, codes=(0, 1, 2))
    if ran.code not in (0, 1):
        return
    case.add(invariants.verify_exit(ran, ran.report(), 1e-2))
    # A wrong bias cannot be certified: it costs much more than the required gap.
    text = path.read_text()
    if kind in (0, 3) and "rho " in text:
        lines = text.splitlines()
        lines = [" ".join(["rho", *["1e6"] * (len(line.split()) - 1)]) if line.startswith("rho ") else line for line in lines]
        path.write_text("\n".join(lines) + "\n")
        ran = case.run("verify", str(path), str(stored.path), *said, "--gap", "1e-2", "--json", n=table.n, codes=(0, 1, 2))
        if ran.code == 0:
            case.add([Finding("verify-own", "proven with the bias 1e6 in the file", ran.shell())])


def wide(case: Case, rng: Rng) -> None:
    """Few rows with very many features: clear errors or results, within the memory limit."""
    n, most = int(rng.integers(4, 60)), int(10.0 ** rng.uniform(4, 9.5))
    lines = []
    for i in range(n):
        columns = np.unique(rng.integers(1, most, size=int(rng.integers(1, 30))))
        entries = [
            f"{column}:{files.number(round(float(value), 3))}" for column, value in zip(columns, rng.normal(size=len(columns)), strict=True)
        ]
        lines.append(" ".join(["1" if i % 2 else "-1", *entries]))
    path, saved = case.folder / "wide.svm", case.folder / "wide.model"
    path.write_text("\n".join(lines) + "\n")
    case.about = f"wide, n = {n}, indices to {most}"
    case.counts["wide"] += 1
    drawn = quick("classify", rng)
    ran = case.run("train", str(path), "-o", str(saved), *drawn.arguments(), "--json", n=n, codes=(0, 2, 3), limited=True)
    if ran.code == 2:
        case.add(invariants.refusal(ran, [saved]))
    if ran.code not in (0, 3) or ran.killed:
        return
    case.add(invariants.status(ran, ran.report()))
    for arguments in (
        ["predict", str(saved), str(path), "-o", str(case.folder / "out.csv")],
        ["verify", str(saved), str(path)],
        ["plot", str(saved), str(path), "-o", str(case.folder / "out.svg")],
        ["inspect", str(saved)],
        ["scale", str(path), "-o", str(case.folder / "scaled.svm")],
        ["svm-train", "-q", str(path), str(case.folder / "libsvm.model")],
    ):
        ran = case.run(*arguments, n=n, codes=(0, 1, 2), limited=True)
        if ran.code == 2:
            case.add(invariants.refusal(ran, []))


def tune(case: Case, rng: Rng) -> None:
    """A tiny search."""
    task = str(rng.choice(["classify", "regress"]))
    table = small_table(case, rng, task)
    form = files.choose(rng, table)
    stored = files.store(table, case.folder, "data", form)
    case.about = f"tune, {table.about}, n = {table.n}, {form}"
    case.counts["tune"] += 1
    path = case.folder / "tuned.model"
    drawn = Options(task, kernel=str(rng.choice(["linear", "rbf"])), scale=str(rng.choice(["none", "standard"])))
    drawn.iterations = 1 if rng.random() < 0.1 else None
    arguments = ["tune", str(stored.path), *stored.reading, *drawn.arguments(), "--grid", "C=0.1,10", "--folds", str(rng.integers(2, 4))]
    ran = case.run(*arguments, "-o", str(path), "--json", "--threads", "1", n=table.n, codes=(0, 2, 3))
    if ran.code == 2:
        case.add(invariants.refusal(ran, [path]))
        case.counts["refused"] += 1
    elif ran.code == 0:
        report = ran.report()
        scores = [cell.get("score") for cell in report.get("cells", []) if cell.get("score") is not None]
        best = report.get("best", {}).get("score")
        if not scores or best is None or best < max(scores) - 1e-12:
            case.add([Finding("tune", f"best {best} of {scores}", ran.shell())])
        checked = case.run("verify", str(path), str(stored.path), *stored.reading, "--gap", "1e-2", "--json", n=table.n, codes=(0, 1))
        gaps = [invariants.relative_gap(machine) for machine in invariants.machines(checked.report())]
        if checked.code == 1 and all(gap is None or gap > 1e-2 for gap in gaps):
            case.add([Finding("tune", f"exit 0, and the model it wrote is not proven: gaps {gaps}", ran.shell())])


def overwrite(case: Case, rng: Rng) -> None:
    """An output that is an input, or another output, is refused before anything runs."""
    table = small_table(case, rng, "classify")
    stored = files.store(table, case.folder, "data", files.choose(rng, table))
    fine = case.folder / "fine.model"
    made = case.run("train", str(stored.path), "-o", str(fine), *stored.reading, *quick("classify", rng).arguments(), codes=(0, 2, 3))
    if made.code == 2 or not fine.exists():
        return
    link = case.folder / "link"
    link.symlink_to(stored.path)
    hard = case.folder / "hard"
    hard.hardlink_to(stored.path)
    same = [str(stored.path), str(link), str(hard), str(case.folder / "." / stored.path.name)][int(rng.integers(4))]
    commands = [
        ["train", str(stored.path), "-o", same],
        ["train", str(stored.path), "-o", str(case.folder / "x"), "--report", same],
        ["train", str(stored.path), "-o", str(case.folder / "x"), "--trace", same],
        ["train", str(stored.path), "-o", str(case.folder / "x"), "--report", str(case.folder / "x")],
        ["train", str(stored.path), "--resume", str(fine), "-o", same],
        ["predict", str(fine), str(stored.path), "-o", same],
        ["predict", str(fine), str(stored.path), "-o", str(fine)],
        ["tune", str(stored.path), "--grid", "C=1", "--table", same],
        ["plot", str(fine), str(stored.path), "-o", same],
        ["scale", str(stored.path), "-o", same],
        ["convert", str(fine), "--to", "onnx", "-o", str(fine)],
    ]
    chosen = commands[int(rng.integers(len(commands)))]
    case.about = "output is input: " + " ".join(chosen)
    case.counts["overwrite"] += 1
    reading = [] if chosen[0] in ("convert", "scale") else stored.reading
    before = files.digest([stored.path, fine])
    ran = case.run(*chosen, *reading, n=FEW, codes=(2,))
    if files.digest([stored.path, fine]) != before:
        case.add([Finding("untouched", "an input was overwritten", ran.shell())])


def hard(case: Case, rng: Rng) -> tuple[files.Stored, Options]:
    """A long training."""
    n = int(rng.integers(600, 2000))
    x = rng.normal(size=(n, 8))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    stored = files.store(data.from_matrix(x, y, "noise"), case.folder, "data", "npz")
    drawn = Options("classify", kernel=str(rng.choice(["linear", "rbf", "poly"])), cost=options.power(rng, 2, 6))
    drawn.loss = str(rng.choice(["hinge", "logistic", "squared-hinge", "sigmoid"]))
    drawn.gap, drawn.tol = (None, 1e-9) if drawn.level else (1e-10, None)
    return stored, drawn


def interrupt(case: Case, rng: Rng) -> None:
    """Ctrl-C ends a training at once, with the best model so far."""
    stored, drawn = hard(case, rng)
    path = case.folder / "cut.model"
    case.about = f"interrupted, n = {stored.table.n}, {drawn.loss}, {drawn.kernel}"
    case.counts["interrupt"] += 1
    ran = case.run(
        "train", str(stored.path), "-o", str(path), *drawn.arguments(), "--json", codes=(0, 3, 130), interrupt=float(rng.uniform(0.15, 0.5))
    )
    if ran.code == 130 and ran.report():
        case.add(invariants.status(ran, ran.report()))
        if not path.exists():
            case.add([Finding("exit-code", "interrupted with a report and no model", ran.shell())])
    case.add(invariants.in_limit(ran, 1.0))


def time_limit(case: Case, rng: Rng) -> None:
    """A time limit is respected, and the reported numbers are correct."""
    stored, drawn = hard(case, rng)
    drawn.seconds = round(float(rng.uniform(0.05, 0.5)), 2)
    case.about = f"time limit, n = {stored.table.n}, {drawn.loss}, {drawn.kernel}"
    case.counts["time limit"] += 1
    train(case, stored, drawn, "limited")
