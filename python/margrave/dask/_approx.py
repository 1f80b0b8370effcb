"""Kernels on partitions: γ from all of them, and the features of an approximation by a few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .. import _core
from .._spec import points
from ._cluster import Rounds
from ._partitions import Partitions


def spread(part: dict[str, Any], factors: Any, C: float) -> Any:
    """Weight, weighted mean and squared deviations of all entries of a partition."""
    x = part["x"]
    weights = part["costs"] / C if factors is None else part["costs"] / (C * factors[part["y"].astype(np.intp)])
    total = float(weights.sum()) * x.shape[1]
    if total == 0:
        return np.zeros(3)
    sums = np.asarray(x.sum(axis=1)).ravel().astype(np.float64)
    mean = float(weights @ sums) / total
    if sp.issparse(x):
        counts = np.diff(x.indptr)
        inside = np.repeat(weights, counts) @ (x.data.astype(np.float64) - mean) ** 2
        outside = (weights * (x.shape[1] - counts)).sum() * mean**2
        return np.array([total, mean, inside + outside])
    return np.array([total, mean, weights @ ((x.astype(np.float64, copy=False) - mean) ** 2).sum(axis=1)])


def gamma_of(gamma: Any, rounds: Rounds, data: Partitions, factors: Any, C: float) -> float:
    """γ as a number; rows count by their weights. "median" is that of a sample."""
    if not isinstance(gamma, str):
        return float(gamma)
    if gamma == "auto":
        return 1.0 / data.features
    if gamma == "median":
        return float(_core.gamma_of(points(data.sample(5000)["x"]), "median"))
    found = rounds.gather([rounds.submit(spread, part, factors, C, name="spread") for part in data.parts])
    total, mean, squares = 0.0, 0.0, 0.0
    for weight, own, deviation in found:
        if weight > 0:
            shift = own - mean
            squares += deviation + shift**2 * total * weight / (total + weight)
            mean += shift * weight / (total + weight)
            total += weight
    variance = squares / total * data.features
    return 1.0 / variance if variance > 0 else 1.0


def features_part(part: dict[str, Any], spec: dict[str, Any], centres: Any, factor: Any) -> dict[str, Any]:
    """A partition in the features of an approximation: K(x, centres)·L⁻ᵀ."""
    block = _core.kernel_block(spec, points(part["x"]), points(centres))
    rows = scipy.linalg.solve_triangular(factor, block.T, lower=True, check_finite=False).T
    return {**part, "x": np.ascontiguousarray(rows)}


def choose_centres(spec: dict[str, Any], x: Any, count: int, seed: int) -> tuple[Any, Any]:
    """Rows of x and the Cholesky factor of their kernel matrix, by randomly pivoted Cholesky.

    A pivot is drawn with a probability proportional to what the rows before it leave of its diagonal entry (Chen, Epperly,
    Tropp and Webber, 2023). Rows that add nothing beyond rounding are not taken.
    """
    n = x.shape[0]
    rng = np.random.default_rng(seed)
    diagonal = np.array([_core.kernel_block(spec, points(x[[0]]), points(x[[0]]))[0, 0]] * n)
    if spec["kernel"] not in ("rbf", "laplacian", "matern32", "matern52"):
        step = 512
        for at in range(0, n, step):
            rows = points(x[at : at + step])
            diagonal[at : at + step] = np.diag(_core.kernel_block(spec, rows, rows))
    first = diagonal.max()
    factor = np.zeros((n, 0))
    chosen: list[int] = []
    block = max(1, min(128, count // 8))
    while len(chosen) < min(count, n) and diagonal.sum() > 1e-12 * first * n:
        weights = np.maximum(diagonal, 0)
        drawn = np.unique(rng.choice(n, size=min(block, count - len(chosen)), p=weights / weights.sum()))
        columns = _core.kernel_block(spec, points(x), points(x[drawn])) - factor @ factor[drawn].T
        inner = columns[drawn]
        lower, kept = _pivoted(inner, 1e-10 * first)
        if not kept:
            break
        columns = scipy.linalg.solve_triangular(lower, columns[:, kept].T, lower=True).T
        factor = np.hstack([factor, columns])
        chosen += [int(drawn[k]) for k in kept]
        diagonal = np.maximum(diagonal - (columns**2).sum(axis=1), 0)
        diagonal[chosen] = 0
    centres = x[chosen]
    K = _core.kernel_block(spec, points(centres), points(centres))
    K = 0.5 * (K + K.T)
    shift = 0.0
    while True:
        try:
            return centres, scipy.linalg.cholesky(K + shift * np.eye(len(K)), lower=True)
        except np.linalg.LinAlgError:
            shift = 1e-14 * first if shift == 0 else 10 * shift


def _pivoted(matrix: Any, least: float) -> tuple[Any, list[int]]:
    """Cholesky factor of the rows that are not combinations of those before, and their numbers."""
    kept: list[int] = []
    lower = np.zeros((0, 0))
    for k in range(len(matrix)):
        row = scipy.linalg.solve_triangular(lower, matrix[kept, k], lower=True) if kept else np.zeros(0)
        left = matrix[k, k] - row @ row
        if left > least:
            grown = np.zeros((len(kept) + 1, len(kept) + 1))
            grown[:-1, :-1], grown[-1, :-1], grown[-1, -1] = lower, row, np.sqrt(left)
            lower = grown
            kept.append(k)
    return lower, kept


__all__ = ["choose_centres", "features_part", "gamma_of"]
