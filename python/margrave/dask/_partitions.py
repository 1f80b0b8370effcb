"""Data in partitions: Dask arrays, dataframes and delayed blocks as parts that the tasks of a fit take."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .._spec import aligned as aligned_memory
from .._spec import points
from ._cluster import Rounds, dask, distributed

#: Rows that all partitions together send for a first solution.
SAMPLE_ROWS = 20_000
#: Values that they send at most.
SAMPLE_VALUES = 4_000_000


class Table:
    """A collection as blocks of rows: futures, one per partition."""

    def __init__(self, name: str, blocks: list[Any], sizes: list[int] | None, columns: list[str] | None) -> None:
        self.name = name
        self.blocks = blocks
        self.sizes = sizes
        self.columns = columns


def _module(value: Any) -> str:
    return type(value).__module__


def is_collection(value: Any) -> bool:
    """Whether this is a Dask array, dataframe or series, or a list of delayed blocks."""
    if dask.is_dask_collection(value):
        return True
    return isinstance(value, (list, tuple)) and bool(value) and all(_is_block(item) for item in value)


def _is_block(value: Any) -> bool:
    return dask.is_dask_collection(value) or isinstance(value, distributed.Future)


def table(client: Any, value: Any, name: str) -> Table:
    """The blocks of a collection. Raise if it is none, or is not split by rows."""
    if isinstance(value, (list, tuple)) and value and all(_is_block(item) for item in value):
        blocks = [item if isinstance(item, distributed.Future) else client.compute(item) for item in value]
        return Table(name, blocks, None, None)
    if not dask.is_dask_collection(value):
        kind = f"{_module(value).partition('.')[0]} {type(value).__name__}"
        raise TypeError(
            f"{name} is not a Dask collection but a {kind}: use dask.array.from_array, or margrave's estimator of the"
            " same name without 'Dask'"
        )
    if hasattr(value, "chunks") and hasattr(value, "numblocks"):
        return _array(client, value, name)
    if hasattr(value, "to_delayed") and hasattr(value, "npartitions"):
        _check_types(value, name)
        columns = [str(column) for column in value.columns] if getattr(value, "ndim", 1) == 2 else None
        return Table(name, client.compute(list(value.to_delayed())), None, columns)
    raise TypeError(
        f"{name} is a {type(value).__name__}: give a Dask array, a Dask dataframe or a list of delayed blocks"
    )


def _array(client: Any, value: Any, name: str) -> Table:
    if value.ndim == 2 and value.numblocks[1] > 1:
        raise ValueError(
            f"{name} is split into {value.numblocks[1]} blocks of columns: every partition needs whole rows,"
            f" {name}.rechunk({{1: -1}})"
        )
    if value.ndim not in (1, 2):
        raise ValueError(f"{name} has {value.ndim} dimensions: rows of features have 2")
    sizes = [int(size) for size in value.chunks[0]] if not np.isnan(value.chunks[0]).any() else None
    return Table(name, client.compute(list(value.to_delayed().ravel())), sizes, None)


def _check_types(value: Any, name: str) -> None:
    types = value.dtypes.items() if getattr(value, "ndim", 1) == 2 else [(value.name, value.dtype)]
    if name != "X":
        return
    for column, kind in types:
        if str(kind) in ("category", "object", "string", "str") or "string" in str(kind):
            raise ValueError(
                f"column {column!r} of {name} is of type {kind}: encode it as numbers first, for example with"
                " dask.dataframe.get_dummies (categories must be known) or OrdinalEncoder"
            )


def aligned(first: Table, *others: Table | None) -> None:
    """Raise unless all tables have the same partitions, as far as that is known."""
    for other in others:
        if other is None:
            continue
        if len(first.blocks) != len(other.blocks):
            raise ValueError(
                f"{first.name} has {len(first.blocks)} partitions but {other.name} has {len(other.blocks)}: split them"
                f" alike, for arrays {other.name}.rechunk({first.name}.chunks[0])"
            )
        if first.sizes is not None and other.sizes is not None and first.sizes != other.sizes:
            at = next(k for k, (a, b) in enumerate(zip(first.sizes, other.sizes)) if a != b)
            raise ValueError(
                f"partition {at} has {first.sizes[at]} rows of {first.name} but {other.sizes[at]} of {other.name}: split"
                f" them alike, for arrays {other.name}.rechunk({first.name}.chunks[0])"
            )


def as_rows(block: Any, where: str) -> Any:
    """A block of features as an array or CSR matrix of numbers."""
    if sp.issparse(block):
        rows: Any = block.tocsr()
        if rows.dtype not in (np.float32, np.float64):
            rows = rows.astype(np.float64)
        finite = np.isfinite(rows.data).all()
    else:
        rows = np.asarray(block)
        if rows.dtype == object:
            raise ValueError(f"{where} has values that are not numbers: encode them first")
        if rows.ndim != 2:
            raise ValueError(f"{where} has {rows.ndim} dimensions: rows of features have 2")
        if rows.dtype not in (np.float32, np.float64):
            rows = rows.astype(np.float64)
        rows = aligned_memory(rows)
        finite = bool(np.isfinite(rows.sum())) or bool(np.isfinite(rows).all())
    if not finite:
        raise ValueError(f"{where} contains NaN or infinity: fill or drop those rows first")
    return rows


def as_vector(block: Any, where: str) -> Any:
    """A block of labels, targets or weights as a vector."""
    values = np.asarray(block)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{where} has shape {values.shape}: one value per row is needed")
    return values


def describe(at: int, task: str, x: Any, y: Any, weight: Any) -> dict[str, Any]:
    """What the driver needs to know of a partition: its size, its classes and their weights, sums of its targets."""
    rows = as_rows(x, f"partition {at} of X")
    targets = as_vector(y, f"partition {at} of y")
    n = rows.shape[0]
    if len(targets) != n:
        raise ValueError(
            f"partition {at} has {n} rows of X but {len(targets)} of y: split both in the same way (rechunk, repartition,"
            " or compute_chunk_sizes to see the sizes)"
        )
    weights = _weights(at, n, weight)
    found: dict[str, Any] = {
        "rows": n,
        "features": int(rows.shape[1]),
        "sparse": bool(sp.issparse(rows)),
        "values": int(rows.nnz if sp.issparse(rows) else rows.size),
        "kept": int((weights > 0).sum()),
    }
    if task == "classify":
        if targets.dtype.kind == "f" and not np.isfinite(targets).all():
            raise ValueError(f"partition {at} of y contains NaN or infinity")
        classes, codes = np.unique(targets, return_inverse=True)
        found["classes"] = classes
        found["totals"] = np.bincount(codes, weights=weights, minlength=len(classes))
        found["counts"] = np.bincount(codes, weights=weights > 0, minlength=len(classes))
        return found
    numbers = targets.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"partition {at} of y contains NaN or infinity")
    found["sums"] = np.array([weights.sum(), float(weights @ numbers)])
    return found


def _weights(at: int, n: int, weight: Any) -> Any:
    if weight is None:
        return np.ones(n)
    weights = as_vector(weight, f"partition {at} of sample_weight").astype(np.float64)
    if len(weights) != n:
        raise ValueError(f"partition {at} has {n} rows of X but {len(weights)} of sample_weight")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"partition {at} of sample_weight has values that are negative, NaN or infinite")
    return weights


def make_part(at: int, x: Any, y: Any, weight: Any, classes: Any, factors: Any, C: float) -> dict[str, Any]:
    """A partition as the tasks take it: rows, targets (class numbers or numbers) and costs."""
    rows = as_rows(x, f"partition {at} of X")
    targets = as_vector(y, f"partition {at} of y")
    costs = C * _weights(at, rows.shape[0], weight)
    if classes is None:
        return {"x": rows, "y": targets.astype(np.float64), "costs": costs}
    codes = np.searchsorted(classes, targets)
    return {"x": rows, "y": codes.astype(np.float64), "costs": costs * factors[codes]}


def rows_of(part: dict[str, Any], positive: Any, scaling: float | None) -> dict[str, Any]:
    """A part as `_core` takes it: targets ±1 for a class against the rest or for a pair of classes, or the numbers."""
    y, costs = part["y"], part["costs"]
    if isinstance(positive, tuple):
        costs = np.where((y == positive[0]) | (y == positive[1]), costs, 0.0)
        y = np.where(y == positive[1], 1.0, -1.0)
    elif positive is not None:
        y = np.where(y == positive, 1.0, -1.0)
    return {
        "x": points(part["x"]),
        "y": aligned_memory(y),
        "costs": aligned_memory(costs),
        "scaling": scaling,
    }


def sample(part: dict[str, Any], at: int, count: int) -> dict[str, Any]:
    """`count` rows of a part, chosen by a seed that depends on the part alone."""
    rows = np.flatnonzero(part["costs"] > 0)
    if len(rows) > count:
        rows = np.sort(np.random.default_rng([20_011, at]).choice(rows, count, replace=False))
    return {"x": part["x"][rows], "y": part["y"][rows], "costs": part["costs"][rows], "rows": rows}


def stack(parts: list[Any]) -> Any:
    """Blocks of rows as one."""
    if any(sp.issparse(part) for part in parts):
        return sp.vstack([sp.csr_matrix(part) for part in parts]).tocsr()
    return np.concatenate(parts)


class Partitions:
    """The data of a fit on the workers.

    Parameters
    ----------
    rounds : Rounds
        Sends the tasks.
    task : {"classify", "regress"}
        What is fitted.
    X, y, sample_weight : Dask collections
        The data.
    """

    def __init__(self, rounds: Rounds, task: str, X: Any, y: Any, sample_weight: Any) -> None:
        self.rounds = rounds
        client = rounds.client
        x_table = table(client, X, "X")
        y_table = table(client, y, "y")
        w_table = None if sample_weight is None else table(client, sample_weight, "sample_weight")
        aligned(x_table, y_table, w_table)
        self.columns = x_table.columns
        weights = [None] * len(x_table.blocks) if w_table is None else w_table.blocks
        self._blocks = list(zip(x_table.blocks, y_table.blocks, weights))
        futures = [
            rounds.submit(describe, at, task, *blocks, name="describe") for at, blocks in enumerate(self._blocks)
        ]
        found = rounds.gather(futures)
        self.sizes = [one["rows"] for one in found]
        self.rows = sum(self.sizes)
        self.kept = sum(one["kept"] for one in found)
        self.found = found
        if self.rows == 0:
            raise ValueError("X has no rows: all its partitions are empty")
        if self.kept == 0:
            raise ValueError("Invalid input - all samples have zero weight.")
        full = [at for at, size in enumerate(self.sizes) if size > 0]
        widths = {found[at]["features"] for at in full}
        if len(widths) > 1:
            low = min(full, key=lambda at: found[at]["features"])
            high = max(full, key=lambda at: found[at]["features"])
            raise ValueError(
                f"partition {low} has {found[low]['features']} features but partition {high} has"
                f" {found[high]['features']}"
            )
        self.features = widths.pop()
        self.full = full
        self.dense = not any(found[at]["sparse"] for at in full)
        self.values = sum(found[at]["values"] for at in full)
        self.firsts = {at: sum(self.sizes[:at]) for at in full}
        self.parts: list[Any] = []

    def classes(self) -> tuple[Any, Any, Any]:
        """The classes of all partitions, the weight of each, and its number of samples of positive weight."""
        each = [self.found[at] for at in self.full]
        classes = np.unique(np.concatenate([one["classes"] for one in each]))
        totals, counts = np.zeros(len(classes)), np.zeros(len(classes))
        for one in each:
            place = np.searchsorted(classes, one["classes"])
            totals[place] += one["totals"]
            counts[place] += one["counts"]
        return classes, totals, counts

    def make(self, classes: Any, factors: Any, C: float) -> None:
        """Make the parts, each where its block lives."""
        self.parts = [
            self.rounds.submit(make_part, at, *self._blocks[at], classes, factors, C, name="part") for at in self.full
        ]

    def sample(self, most: int | None = None) -> dict[str, Any]:
        """Rows of all partitions, in proportion to their sizes."""
        width = max(1, self.values // max(1, self.rows))
        most = max(1, min(SAMPLE_ROWS, SAMPLE_VALUES // width)) if most is None else most
        counts = [max(1, round(most * self.sizes[at] / self.rows)) for at in self.full]
        futures = [
            self.rounds.submit(sample, part, at, count, name="sample")
            for part, at, count in zip(self.parts, self.full, counts)
        ]
        found = self.rounds.gather(futures)
        return {
            "x": stack([one["x"] for one in found]),
            "y": np.concatenate([one["y"] for one in found]),
            "costs": np.concatenate([one["costs"] for one in found]),
            "rows": np.concatenate([one["rows"] + self.firsts[at] for one, at in zip(found, self.full)]),
        }


__all__ = ["Partitions", "aligned", "is_collection", "rows_of", "stack", "table"]
