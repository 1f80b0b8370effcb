"""Data sets as files: every format the program reads, and damaged ones."""

from __future__ import annotations

import gzip
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .data import Array, Rng, Table, from_matrix

FORMATS = ["svm", "svm", "svm.gz", "csv", "csv", "csv.gz", "bare.csv", "npy", "f32.npy", "npz", "f32.npz", "sparse.npz"]


@dataclass
class Stored:
    """A file, the options that read it, and the features as the program will read them."""

    path: Path
    reading: list[str]
    features: Array
    table: Table
    form: str


def number(value: float) -> str:
    """As many digits as the number needs, integers without a decimal point."""
    value = float(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def cell(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"' if any(c in value for c in ',"\n ') else value
    return number(float(value))  # type: ignore[arg-type]


def choose(rng: Rng, table: Table) -> str:
    """A format that can store the table."""
    fitting = [form for form in FORMATS if fits(form, table)]
    return fitting[int(rng.integers(len(fitting)))]


def fits(form: str, table: Table) -> bool:
    text_target = table.target is not None and table.target.dtype == object
    several = table.target is not None and table.target.ndim > 1
    if ".np" in "." + form:
        return not table.has_text and not text_target
    if form.startswith("svm"):
        # A label of several words would be read as features.
        spaced = text_target and table.target is not None and any(" " in str(label) for label in table.target)
        return not (table.has_text or several or table.weights is not None or spaced)
    return True


def store(table: Table, folder: Path, stem: str, form: str) -> Stored:
    """Writes the table in this format."""
    path = folder / f"{stem}.{form}"
    single = form.startswith("f32")
    if single:
        table = Table(
            [single_precision(column) for column in table.columns],
            # NPY stores targets and weights as columns, NPZ separately in double precision.
            single_precision(table.target) if form.endswith("npy") else table.target,
            table.about,
            single_precision(table.weights) if form.endswith("npy") else table.weights,
            table.notes,
        )
    features = table.encoded()
    reading: list[str] = []
    if form.startswith("svm"):
        data = libsvm_text(features, table.target).encode()
    elif form.endswith("npy"):
        reading, data = npy_bytes(table, features, single)
    elif form.endswith("npz"):
        reading, data = npz_bytes(table, features, single, form.startswith("sparse"))
    else:
        reading, data = csv_bytes(table, header=not form.startswith("bare"))
    path.write_bytes(gzip.compress(data, mtime=0) if form.endswith(".gz") else data)
    return Stored(path, reading, features, table, form)


def single_precision(values: Any) -> Any:
    """The values rounded to single precision; strings and None are unchanged."""
    if values is None or values.dtype == object:
        return values
    return values.astype(np.float32).astype(float)


def libsvm_text(x: Array, target: Array | None) -> str:
    lines = []
    for i, row in enumerate(x):
        label = "0" if target is None else cell(target[i])
        entries = [f"{k + 1}:{number(v)}" for k, v in enumerate(row) if v != 0.0]
        lines.append(" ".join([label, *entries]))
    return "\n".join(lines) + "\n"


def csv_bytes(table: Table, header: bool) -> tuple[list[str], bytes]:
    names = [f"x{k}" for k in range(len(table.columns))]
    columns: list[Array] = list(table.columns)
    reading: list[str] = []
    if table.weights is not None:
        reading += ["--weights", "wt" if header else str(len(columns))]
        names.append("wt")
        columns.append(table.weights)
    if table.target is None:
        reading += ["--no-target"]
    else:
        targets = table.target.reshape(len(table.target), -1).T
        own = [f"y{k}" if len(targets) > 1 else "y" for k in range(len(targets))]
        if header:
            reading += ["--target", ",".join(own)]
        elif len(targets) > 1:
            reading += ["--target", ",".join(str(len(columns) + k) for k in range(len(targets)))]
        names += own
        columns += list(targets)
    if not header:
        reading += ["--header", "no"]
    lines = [",".join(names)] if header else []
    lines += [",".join(cell(column[i]) for column in columns) for i in range(table.n)]
    return reading, ("\n".join(lines) + "\n").encode()


def npy_bytes(table: Table, x: Array, single: bool) -> tuple[list[str], bytes]:
    columns, reading = [x], []
    if table.weights is not None:
        reading += ["--weights", str(x.shape[1])]
        columns.append(table.weights.reshape(-1, 1))
    if table.target is None:
        reading += ["--no-target"]
    else:
        targets = table.target.astype(float).reshape(table.n, -1)
        if targets.shape[1] > 1:
            first = sum(part.shape[1] for part in columns)
            reading += ["--target", ",".join(str(first + k) for k in range(targets.shape[1]))]
        columns.append(targets)
    out = io.BytesIO()
    np.save(out, np.hstack(columns).astype(np.float32 if single else np.float64))
    return reading, out.getvalue()


def npz_bytes(table: Table, x: Array, single: bool, sparse: bool) -> tuple[list[str], bytes]:
    arrays = {"X": x.astype(np.float32 if single else np.float64)}
    if sparse:
        # As scipy.sparse.save_npz writes a CSR matrix.
        rows, columns = np.nonzero(x)
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
        arrays = {"indices": columns.astype(np.int32), "indptr": starts.astype(np.int32), "format": np.array(b"csr")}
        arrays |= {"shape": np.array(x.shape), "data": x[rows, columns]}
    reading: list[str] = []
    if table.target is not None:
        arrays["y"] = table.target.astype(float)
    else:
        reading += ["--no-target"]
    if table.weights is not None:
        arrays["wt"] = table.weights
        reading += ["--weights", "wt"]
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return reading, out.getvalue()


def gram_table(gram: Array, table: Table) -> Table:
    """The Gram matrix as data."""
    square = from_matrix(gram, table.target, f"gram of {table.about}")
    square.weights, square.notes = table.weights, table.notes
    return square


def damage(rng: Rng, path: Path, form: str) -> str:
    """Damages the file in one way and returns its name."""
    data = bytearray(gzip.decompress(path.read_bytes()) if form.endswith(".gz") else path.read_bytes())
    text = form.startswith("svm") or form.endswith(("csv", "csv.gz"))
    ways = ["truncate", "flip", "empty", "repeat", "insert"]
    if text:
        ways += ["line", "nan", "index", "huge", "blank", "null", "columns", "bare"]
    way = str(rng.choice(ways))
    at = int(rng.integers(len(data) + 1))
    lines = bytes(data).split(b"\n")
    spot = int(rng.integers(len(lines)))
    if way == "truncate":
        data = data[:at]
    elif way == "flip":
        for _ in range(int(rng.integers(1, 20))):
            if data:
                data[int(rng.integers(len(data)))] = int(rng.integers(256))
    elif way == "empty":
        data = bytearray()
    elif way == "repeat":
        data = data[:at] + data[at // 2 :]
    elif way == "insert":
        data = data[:at] + bytes(rng.integers(256, size=int(rng.integers(1, 50))).astype(np.uint8)) + data[at:]
    elif way == "line":
        lines.insert(spot, lines[int(rng.integers(len(lines)))])
    elif way == "nan":
        lines[spot] = lines[spot].replace(b"1", rng.choice([b"nan", b"inf", b"-inf", b"1e999", b"NA"]))
    elif way == "index":
        odd = [b" 4000000000:1", b" 18446744073709551616:1", b" 0:1", b" -1:1", b" 2147483647:1", b" 1:1 1:1", b" 3:", b" :3"]
        lines[spot] += odd[int(rng.integers(len(odd)))]
    elif way == "huge":
        lines[spot] += rng.choice([b",1e308", b" 7:1e308", b"9" * 400])
    elif way == "blank":
        lines[spot] = b""
    elif way == "null":
        lines[spot] = b"\0" * 9
    elif way == "columns":
        lines[spot] = lines[spot].replace(b",", b",,", 1).replace(b" ", b"  \t", 1)
    elif way == "bare":
        lines = [line.split(b" ")[0] for line in lines]
    if way in ("line", "nan", "index", "huge", "blank", "null", "columns", "bare"):
        data = bytearray(b"\n".join(lines))
    path.write_bytes(gzip.compress(bytes(data), mtime=0) if form.endswith(".gz") and rng.random() < 0.8 else bytes(data))
    return way


def digest(paths: list[Path]) -> dict[Path, str]:
    """A hash of each file."""
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}
