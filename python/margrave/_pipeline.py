"""Pipelines: the scalers before an estimator as one shift and one factor per feature."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from ._table import TablePreprocessor


def split(estimator: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The named steps before the last of a pipeline, pipelines inside it included, and its last step."""
    if not isinstance(estimator, Pipeline):
        return [], estimator
    before: list[tuple[str, Any]] = []
    for name, step in estimator.steps[:-1]:
        inner, last = split(step)
        before += [*inner, (name, last)]
    inner, last = split(estimator.steps[-1][1])
    return [step for step in [*before, *inner] if step[1] not in (None, "passthrough")], last


def table_of(before: list[tuple[str, Any]]) -> tuple[TablePreprocessor | None, list[tuple[str, Any]]]:
    """The preprocessor of tables that these steps begin with, if there is one, and the steps after it."""
    if before and isinstance(before[0][1], TablePreprocessor):
        return before[0][1], before[1:]
    return None, before


def transform(before: Sequence[tuple[str, Any]], X: Any) -> Any:
    """X after these steps."""
    for _, step in before:
        X = step.transform(X)
    return X


def _affine(name: str, step: Any, d: int) -> tuple[Any, Any]:
    """(shift, factor) with (x − shift)·factor the output of a fitted scaler."""
    zero, one = np.zeros(d), np.ones(d)
    if isinstance(step, StandardScaler):
        return (step.mean_ if step.with_mean else zero), 1.0 / (step.scale_ if step.with_std else one)
    if isinstance(step, MinMaxScaler) and not step.clip:
        return -step.min_ / step.scale_, step.scale_
    if isinstance(step, MaxAbsScaler):
        return zero, 1.0 / step.scale_
    if isinstance(step, RobustScaler):
        return (step.center_ if step.with_centering else zero), 1.0 / (step.scale_ if step.with_scaling else one)
    raise TypeError(
        f"the step {name!r} of the pipeline, a {type(step).__name__}, cannot be part of the model: StandardScaler,"
        " MinMaxScaler without clip, MaxAbsScaler and RobustScaler can, and a TablePreprocessor as the first step. Export the last step, and apply the others to the"
        " data yourself"
    )


def scaling_of(before: Sequence[tuple[str, Any]], d: int) -> tuple[list[float], list[float]] | None:
    """What all scalers together subtract from the d features, and what they then multiply by; None without scalers."""
    if not before:
        return None
    shift, factor = np.zeros(d), np.ones(d)
    for name, step in before:
        own_shift, own_factor = _affine(name, step, d)
        # ((x − s)·f − t)·g = (x − (s + t/f))·f·g
        shift, factor = shift + own_shift / factor, factor * own_factor
    return shift.tolist(), factor.tolist()


__all__ = ["scaling_of", "split", "table_of", "transform"]
