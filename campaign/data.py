"""Random data sets: subsampled real ones, and synthetic ones of every shape that has caused errors."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Array = np.ndarray
Rng = np.random.Generator

# Real data sets by name; the first ones are part of the repository, the others are used if the data folder has them.
INSIDE = {
    "heart": ("crates/margrave-cli/data/heart_scale.svm", "classify"),
    "haberman": ("papers/data/haberman.csv", "classify"),
    "liver": ("papers/data/liver_bupa.csv", "classify"),
    "balance": ("papers/data/balance_scale.csv", "classify"),
    "ecoli": ("papers/data/ecoli.csv", "classify"),
    "cmc": ("papers/data/cmc.csv", "classify"),
    "tic-tac-toe": ("papers/data/tic_tac_toe.csv", "classify"),
    "car": ("papers/data/car.csv", "classify"),
    "abalone": ("papers/data/abalone_1000.csv", "regress"),
}
BESIDE = {
    "iris": ("iris.csv", "classify"),
    "ionosphere": ("ionosphere.csv", "classify"),
    "diabetes": ("diabetes.svm", "classify"),
    "australian": ("australian.svm.gz", "classify"),
    "fourclass": ("fourclass_scale.svm", "classify"),
    "glass": ("glass_scale.svm", "classify"),
    "wine": ("wine_scale.svm", "classify"),
    "vowel": ("vowel_scale.svm", "classify"),
    "a1a": ("a1a.svm.gz", "classify"),
    "housing": ("housing.csv", "regress"),
    "bodyfat": ("bodyfat.csv", "regress"),
    "mpg": ("mpg.csv", "regress"),
    "triazines": ("triazines.csv", "regress"),
}


@dataclass
class Table:
    """Columns of numbers or strings, and the target: labels, numbers (n or n × k), or none."""

    columns: list[Array]
    target: Array | None
    about: str
    weights: Array | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def n(self) -> int:
        return len(self.columns[0])

    @property
    def has_text(self) -> bool:
        return any(column.dtype == object for column in self.columns)

    def encoded(self) -> Array:
        """The features as the program encodes them: a text column becomes one feature per distinct string, in sorted order."""
        parts = []
        for column in self.columns:
            if column.dtype == object:
                texts = sorted(set(column), key=lambda t: t.encode())
                parts.append(np.array([[float(cell == text) for text in texts] for cell in column]))
            else:
                parts.append(column.reshape(-1, 1).astype(float))
        return np.hstack(parts)

    def take(self, rows: Array) -> Table:
        """Some of the rows, in this order."""
        return Table(
            # If the strings in the remaining rows are all numbers, any reader takes them for numbers.
            [typed(column[rows]) if column.dtype == object else column[rows] for column in self.columns],
            None if self.target is None else self.target[rows],
            self.about,
            None if self.weights is None else self.weights[rows],
            list(self.notes),
        )


def from_matrix(x: Array, target: Array | None, about: str) -> Table:
    """A table of numbers."""
    return Table([np.ascontiguousarray(column, dtype=float) for column in x.T], target, about)


def read_text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def read_set(path: Path, task: str, about: str) -> Table:
    """A real data set: CSV with a header and the target last, or LIBSVM text."""
    if ".csv" in path.name:
        rows = [row for row in csv.reader(read_text(path).splitlines()) if row][1:]
        columns = [typed(np.array(column, dtype=object)) for column in zip(*rows, strict=True)]
        target = columns.pop()
        if task == "classify" and target.dtype == float:
            target = target.astype(int).astype(float)
        return Table(columns, target, about)
    labels, entries = [], []
    for line in read_text(path).splitlines():
        parts = line.split()
        if parts:
            labels.append(float(parts[0]))
            entries.append({int(k): float(v) for k, v in (part.split(":") for part in parts[1:])})
    x = np.zeros((len(labels), max(max(e, default=1) for e in entries)))
    for i, entry in enumerate(entries):
        for k, v in entry.items():
            x[i, k - 1] = v
    return from_matrix(x, np.array(labels), about)


def typed(column: Array) -> Array:
    try:
        return column.astype(float)
    except ValueError:
        return column


def draw_size(rng: Rng) -> int:
    """Mostly small, so that many cases fit in a minute."""
    kind = rng.random()
    if kind < 0.12:
        return int(rng.integers(2, 7))
    if kind < 0.55:
        return int(rng.integers(7, 60))
    if kind < 0.92:
        return int(rng.integers(60, 300))
    if kind < 0.99:
        return int(rng.integers(300, 1001))
    return int(rng.integers(1001, 2001))


def draw_real(rng: Rng, task: str, n: int, root: Path, beside: Path | None) -> Table:
    """Rows of a real data set; if its file is missing, the same draw among the sets in the repository."""
    known = {k: v for k, v in (INSIDE | BESIDE).items() if task == "novelty" or v[1] == task}
    name = sorted(known)[int(rng.integers(len(known)))]
    file, kind = known[name]
    path = (root / file) if name in INSIDE else (beside / file if beside else root / "absent")
    if not path.exists():
        inside = sorted(k for k, v in INSIDE.items() if task == "novelty" or v[1] == task)
        name = inside[int(rng.integers(len(inside)))]
        file, kind = INSIDE[name]
        path = root / file
    table = read_set(path, kind, f"real {name}")
    rows = rng.permutation(table.n)[: min(n, table.n)]
    return table.take(np.sort(rows) if rng.random() < 0.5 else rows)


def draw_points(rng: Rng, n: int) -> tuple[Array, str]:
    """A matrix of numbers and a description of it."""
    d = int(rng.choice([1, 2, 2, 3, 5, 8, 13, 20, 40]))
    kind = rng.choice(["blobs", "cube", "heavy", "sparse", "integers", "lattice", "binary"])
    if kind == "blobs":
        centres = rng.normal(size=(int(rng.integers(2, 6)), d)) * rng.choice([0.5, 1.5, 4.0])
        x = centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, d))
    elif kind == "cube":
        x = rng.random((n, d)) * 2 - 1
    elif kind == "heavy":
        x = rng.standard_t(1.5, size=(n, d))
    elif kind == "sparse":
        x = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.15)
    elif kind == "integers":
        x = rng.integers(0, 10, size=(n, d)).astype(float)
    elif kind == "lattice":
        x = rng.integers(-1, 2, size=(n, d)) * 0.5
    else:
        x = (rng.random((n, d)) < 0.4).astype(float)
    return x, str(kind)


def draw_labels(rng: Rng, x: Array, classes: int) -> Array:
    """A class for each row, every class at least once: linear, xor or partly random."""
    n, d = x.shape
    centred = x - x.mean(axis=0)
    spread = centred.std(axis=0)
    unit = centred / np.where(spread > 0, spread, 1.0)
    rule = rng.choice(["linear", "xor", "ball", "noise"])
    if rule == "linear":
        score = unit @ rng.normal(size=d)
    elif rule == "xor":
        score = unit[:, 0] * unit[:, min(1, d - 1)]
    elif rule == "ball":
        score = (unit**2).sum(axis=1)
    else:
        score = rng.normal(size=n)
    score = score + rng.choice([0.0, 0.1, 0.5]) * rng.normal(size=n) * (score.std() or 1.0)
    if rng.random() < 0.2:
        shares = rng.dirichlet(np.full(classes, 0.4))
        cuts = np.quantile(score, np.clip(np.cumsum(shares)[:-1], 0, 1))
    else:
        cuts = np.quantile(score, np.arange(1, classes) / classes)
    codes = np.searchsorted(cuts, score)
    spots = rng.permutation(n)[:classes]
    for code, spot in enumerate(spots):
        codes[spot] = code
    return codes


def draw_surface(rng: Rng, x: Array, outputs: int) -> Array:
    """Real targets, n or n × outputs."""
    n, d = x.shape
    centred = x - x.mean(axis=0)
    spread = centred.std(axis=0)
    unit = centred / np.where(spread > 0, spread, 1.0)
    values = []
    for _ in range(outputs):
        smooth = unit @ rng.normal(size=d) + np.sin(unit @ rng.normal(size=d))
        noise = rng.standard_t(2, size=n) if rng.random() < 0.3 else rng.normal(size=n)
        values.append(smooth + rng.choice([0.0, 0.1, 1.0]) * noise)
    scale = 10.0 ** rng.choice([-5, -3, -1, 0, 0, 0, 1, 3, 5])
    offset = scale * rng.choice([0.0, 0.0, 1.0, 100.0])
    y = np.array(values).T * scale + offset
    if rng.random() < 0.03:
        y = np.full_like(y, float(scale))
    return y if outputs > 1 else y[:, 0]


NAMES = [["-1", "1"], ["0", "1"], ["1", "2"], ["no", "yes"], ["b", "a"]]


def name_labels(rng: Rng, codes: Array, classes: int) -> Array:
    """Labels as in files: numbers or strings."""
    if classes == 2:
        names = NAMES[int(rng.integers(len(NAMES)))]
    elif rng.random() < 0.5:
        names = [str(i + int(rng.integers(0, 2))) for i in range(classes)]
        names = [str(i) for i in range(int(names[0]), int(names[0]) + classes)]
    else:
        names = [f"class {chr(97 + i)}" if rng.random() < 0.1 else f"k{chr(97 + i)}" for i in range(classes)]
    try:
        return np.array([float(names[c]) for c in codes])
    except ValueError:
        return np.array([names[c] for c in codes], dtype=object)


def distort(rng: Rng, table: Table) -> Table:
    """Difficult shapes: scales, offsets, repeated rows, constant columns, order."""
    numeric = [k for k, column in enumerate(table.columns) if column.dtype == float]
    kind = rng.random()
    if kind < 0.12 and numeric:
        for k in numeric:
            table.columns[k] = table.columns[k] * 10.0 ** rng.uniform(-6, 6)
        table.notes.append("raw scales")
    elif kind < 0.22 and numeric:
        offset = 10.0 ** rng.integers(3, 10)
        for k in numeric:
            table.columns[k] = table.columns[k] + offset
        table.notes.append(f"far {offset:g}")
    elif kind < 0.28 and numeric:
        scale = 10.0 ** rng.uniform(-6, 6)
        for k in numeric:
            table.columns[k] = table.columns[k] * scale
        table.notes.append("one scale")
    if rng.random() < 0.1:
        table.columns.insert(int(rng.integers(len(table.columns) + 1)), np.full(table.n, float(rng.choice([0.0, 1.0, 1e3]))))
        table.notes.append("constant column")
    if rng.random() < 0.15:
        rows = np.concatenate([np.arange(table.n), rng.integers(table.n, size=max(1, table.n // 3))])
        table = table.take(rows)
        table.notes.append("repeated rows")
    if rng.random() < 0.1 and table.target is not None and table.target.ndim == 1:
        table = table.take(np.argsort(table.target, kind="stable"))
        table.notes.append("sorted by target")
    if rng.random() < 0.08:
        texts = np.array(["red", "green", "blue", "o k", "déjà"], dtype=object)
        table.columns.append(texts[rng.integers(int(rng.integers(2, 6)), size=table.n)])
        table.notes.append("text column")
    return table


def draw(rng: Rng, task: str, root: Path, beside: Path | None, largest: int = 2000) -> Table:
    """A random data set for a task."""
    n = min(draw_size(rng), largest)
    if rng.random() < 0.3 and n > 6:
        table = draw_real(rng, task, n, root, beside)
        if task == "classify" and table.target is not None and len(set(table.target)) < 2:
            table = draw_synthetic(rng, task, n)
    else:
        table = draw_synthetic(rng, task, n)
    if task == "novelty":
        table.target = None
    table = distort(rng, table)
    if rng.random() < 0.15:
        table.weights = np.round(rng.gamma(1.0, 1.0, table.n), 3) if rng.random() < 0.7 else rng.integers(0, 4, table.n) * 1.0
        if table.weights.sum() == 0:
            table.weights[:] = 1.0
    return table


def draw_synthetic(rng: Rng, task: str, n: int) -> Table:
    """Points with a target computed from them."""
    x, about = draw_points(rng, n)
    if task == "regress":
        outputs = int(rng.integers(2, 4)) if rng.random() < 0.08 else 1
        return from_matrix(x, draw_surface(rng, x, outputs), about)
    if task == "novelty":
        return from_matrix(x, None, about)
    classes = 2 if n < 6 or rng.random() < 0.7 else int(rng.integers(3, min(7, n)))
    return from_matrix(x, name_labels(rng, draw_labels(rng, x, classes), classes), about)
