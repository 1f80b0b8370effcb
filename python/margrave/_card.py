"""Arrays in the memory of a graphics card: CuPy's, PyTorch's and others with `__cuda_array_interface__` or DLPack."""

from typing import Any, NoReturn

import numpy as np

from . import _core

#: DLPack's numbers of memory on NVIDIA cards: plain and managed.
_CUDA = (2, 13)


def on_card(array: Any) -> bool:
    """Whether the array is in the memory of a card."""
    kind = type(array)
    if kind is np.ndarray or kind is list or array is None:
        return False
    if kind is _core.CardArray:
        return True
    place = getattr(array, "__dlpack_device__", None)
    if callable(place):
        try:
            return place()[0] in _CUDA
        except Exception:  # an array in several places, or a class: left to the usual checks
            return False
    return hasattr(array, "__cuda_array_interface__")


def to_host(array: Any) -> Any:
    """An array on a card as a NumPy array; anything else as it is."""
    if not on_card(array):
        return array
    if type(array) is _core.CardArray:
        return array.copy()
    if hasattr(array, "get"):  # CuPy
        return array.get()
    if hasattr(array, "detach"):  # PyTorch
        return array.detach().cpu().numpy()
    if hasattr(array, "copy_to_host"):  # Numba
        return array.copy_to_host()
    return np.asarray(array)


def card_array(estimator: Any, X: Any, reset: bool) -> Any:
    """X on a card as the engine takes it, checked as scikit-learn checks arrays; `reset`: a fit."""
    X = X if type(X) is _core.CardArray else _core.CardArray(X)
    fitted = estimator.__dict__
    if reset:
        estimator.n_features_in_ = X.shape[1]
        fitted.pop("feature_names_in_", None)
    elif X.shape[1] != fitted.get("n_features_in_"):
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting"
            f" {fitted.get('n_features_in_')} features as input"
        )
    return X


def not_here(estimator: Any, what: str = "") -> NoReturn:
    """Raise for an estimator that computes on the processor."""
    raise TypeError(
        f"{type(estimator).__name__}{what} computes on the processor, but X is in the memory of a card: copy it first,"
        " X.get() in CuPy or X.cpu().numpy() in PyTorch"
    )


def moments(X: Any, weights: Any) -> float:
    """Variance of all entries of X on a card; rows count by their weights."""
    counts = np.ones(X.shape[0]) if weights is None else weights
    total = counts.sum() * X.shape[1]
    mean = float(counts @ X.row_sums(0.0, False)) / total
    return float(counts @ X.row_sums(mean, True) / total)


def rows_of(X: Any, rows: Any) -> Any:
    """The chosen rows of X as a NumPy array."""
    return X.take(np.ascontiguousarray(rows, dtype=np.int64)).copy()


__all__ = ["card_array", "moments", "not_here", "on_card", "rows_of", "to_host"]
