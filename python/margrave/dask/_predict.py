"""Predictions on Dask collections: lazy, block by block, of the same kind as the data."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import Any

import numpy as np

from ._cluster import OnDask, dask
from ._partitions import is_collection


def predict_block(block: Any, model: Any = None, method: str = "predict") -> Any:
    """The predictions of a block; a dataframe keeps its index."""
    if hasattr(block, "index") and hasattr(block, "columns"):
        import pandas

        found = _predict(block, model, method)
        if found.ndim == 1:
            return pandas.Series(found, index=block.index, name=method)
        return pandas.DataFrame(found, index=block.index, columns=list(range(found.shape[1])))
    return _predict(block, model, method)


def _predict(block: Any, model: Any, method: str) -> Any:
    if block.shape[0] == 0:
        kind, columns = shape_of(model, method)
        return np.empty((0,) if columns == 0 else (0, columns), dtype=kind)
    return getattr(model, method)(block)


def shape_of(model: Any, method: str) -> tuple[Any, int]:
    """Type of the predictions, and their number of columns; 0 for a vector."""
    classes = getattr(model, "classes_", None)
    if method == "predict":
        return (np.dtype(np.float64) if classes is None else classes.dtype), 0
    k = 0 if classes is None else len(classes)
    if method == "decision_function":
        ovo = getattr(model, "decision_function_shape", "ovr") == "ovo"
        return np.dtype(np.float64), 0 if k <= 2 else k * (k - 1) // 2 if ovo else k
    return np.dtype(np.float64), k


def lazily(model: Any, X: Any, method: str) -> Any:
    """Predictions of a local model on a collection."""
    kind, columns = shape_of(model, method)
    if isinstance(X, (list, tuple)):
        shared = dask.delayed(model, pure=True)
        return [dask.delayed(predict_block)(block, model=shared, method=method) for block in X]
    if hasattr(X, "chunks") and hasattr(X, "map_blocks"):
        if X.ndim != 2 or X.numblocks[1] > 1:
            raise ValueError("X must be split by rows only: X.rechunk({1: -1})")
        if X.shape[1] == X.shape[1] and X.shape[1] != model.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(model).__name__} is expecting {model.n_features_in_} features"
                " as input"
            )
        shared = dask.delayed(model, pure=True)
        meta: Any = np.empty((0,) if columns == 0 else (0, 0), dtype=kind)
        if columns == 0:
            return X.map_blocks(predict_block, model=shared, method=method, drop_axis=1, dtype=kind, meta=meta)
        chunks = (X.chunks[0], (columns,))
        return X.map_blocks(predict_block, model=shared, method=method, chunks=chunks, dtype=kind, meta=meta)
    if hasattr(X, "map_partitions"):
        import pandas

        index = X._meta.index
        if columns == 0:
            meta = pandas.Series(np.empty(0, dtype=kind), index=index, name=method)
        else:
            meta = pandas.DataFrame(np.empty((0, columns), dtype=kind), index=index, columns=list(range(columns)))
        return X.map_partitions(predict_block, model=model, method=method, meta=meta)
    return dask.delayed(predict_block)(X, model=dask.delayed(model, pure=True), method=method)


class Predicts(OnDask, metaclass=ABCMeta):
    """Predictions that are lazy on Dask collections; other data is predicted at once."""

    @abstractmethod
    def to_local(self) -> Any:
        """The ordinary estimator with the same parameters and the same fitted model."""

    def _on(self, X: Any, method: str) -> Any:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        model = self.to_local()
        return lazily(model, X, method) if is_collection(X) else getattr(model, method)(X)

    def predict(self, X: Any) -> Any:
        """Predictions: lazy, of the kind of X, for Dask arrays, dataframes and lists of delayed blocks."""
        return self._on(X, "predict")

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, R² of a regression. Computes."""
        if not is_collection(X):
            return float(self.to_local().score(X, y, sample_weight))
        predicted, y, weights = dask.compute(self.predict(X), y, sample_weight)
        predicted, y = _joined(predicted), _joined(y)
        weights = None if weights is None else _joined(weights)
        from sklearn.metrics import accuracy_score, r2_score

        classifier = hasattr(self, "classes_")
        return float((accuracy_score if classifier else r2_score)(y, predicted, sample_weight=weights))


class Classifies(Predicts):
    """The same of classifiers."""

    def decision_function(self, X: Any) -> Any:
        """Scores of the samples: lazy, of the kind of X."""
        return self._on(X, "decision_function")


def _joined(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.asarray(block).ravel() for block in value])
    return np.asarray(value).ravel()


__all__ = ["Classifies", "Predicts", "lazily"]
