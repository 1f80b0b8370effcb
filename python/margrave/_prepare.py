"""Samples, weights and labels as the engine takes them: shared by the estimators, `certify` and the model files."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

#: How `validate_data` checks X: float32 and float64 stay as they are, sparse matrices become CSR.
INPUT = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}


def dense(matrix: Any) -> Any:
    """The matrix as an array."""
    return matrix.toarray() if sp.issparse(matrix) else matrix


def check_square(K: Any) -> Any:
    """Raise unless the precomputed kernel matrix is square."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"Precomputed matrix must be a square matrix. Input is a {K.shape[0]}x{K.shape[1]} matrix.")


def check_weights(sample_weight: Any, X: Any) -> Any:
    """Non-negative sample weights as an array; 1 for every sample if `sample_weight` is None."""
    if sample_weight is None:
        return np.ones(X.shape[0])
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


def class_factors(class_weight: Any, classes: Any, y: Any, sample_weight: Any) -> Any:
    """Factor on C of each class. "balanced" counts samples by their weights: a weight of 2 is like two copies."""
    if class_weight is None:
        return np.ones(len(classes))
    if sample_weight is None or class_weight != "balanced":
        return compute_class_weight(class_weight, classes=classes, y=y)
    codes = np.searchsorted(classes, y)
    total = np.bincount(codes, weights=sample_weight, minlength=len(classes))
    return sample_weight.sum() / (len(classes) * total)


def sample_costs(weights: Any, factors: Any) -> Any:
    """Weights times class factors. Either can be None, which is 1 for every sample, and so can the result."""
    if factors is None or not (factors != 1).any():
        return weights
    return factors if weights is None else weights * factors


def one_vs_rest(codes: Any, n_classes: Any) -> Any:
    """Targets ±1, one row per binary model: one per class, or a single one for two classes."""
    targets = np.where(codes == np.arange(n_classes)[:, None], 1.0, -1.0)
    return np.ascontiguousarray(targets[1:] if n_classes == 2 else targets)


def linear_weights(estimator: Any) -> Any:
    """Weights, one row per binary model, and biases of a fitted linear model."""
    coef = np.ascontiguousarray(np.atleast_2d(dense(estimator.coef_)), dtype=np.float64)
    return coef, np.zeros(len(coef)) + estimator.intercept_


def intercept_feature(estimator: Any) -> Any:
    """Value of the constant feature whose weight is the intercept: infinity for no penalty, None for no intercept."""
    return float(estimator.intercept_scaling) if estimator.fit_intercept else None


__all__ = [
    "INPUT",
    "check_square",
    "check_weights",
    "class_factors",
    "dense",
    "intercept_feature",
    "linear_weights",
    "one_vs_rest",
    "sample_costs",
]
