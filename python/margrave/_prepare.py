"""Samples, weights and labels as the engine takes them: shared by the estimators, `certify` and the model files."""

from math import isfinite
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _check_y, check_consistent_length, validate_data

from ._card import card_array, not_here, on_card, to_host

#: How `validate_data` checks X: float32 and float64 stay as they are, sparse matrices become CSR.
INPUT = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}


def is_plain(X: Any, y: Any = None) -> bool:
    """Whether X, and y if given, are arrays that scikit-learn's validation would return unchanged, without a remark.

    X is a C-ordered matrix or a CSR matrix of floats with rows and columns, y a vector of whole or floating numbers of the
    same length, and all of them are finite. A sum that overflows only leads to the full validation.
    """
    if type(X) is np.ndarray:
        values, usual = X, X.ndim == 2 and X.flags.c_contiguous
    elif type(X) is sp.csr_matrix or type(X) is sp.csr_array:
        values, usual = X.data, X.ndim == 2 and X.indices.dtype == np.int32 and X.indptr.dtype == np.int32
    else:
        return False
    if not usual or values.dtype.char not in "fd" or not all(X.shape) or not isfinite(values.sum()):
        return False
    if y is None:
        return True
    if type(y) is not np.ndarray or y.shape != (X.shape[0],) or y.dtype.kind not in "iubf":
        return False
    return y.dtype.kind != "f" or isfinite(y.sum())


def several(y: Any) -> bool:
    """Whether y has several columns."""
    shape = getattr(y, "shape", None)
    if shape is None:
        try:
            shape = np.asarray(y).shape
        except ValueError:  # rows of different lengths
            return False
    return len(shape) == 2 and shape[1] > 1


def check_fit(estimator: Any, X: Any, y: Any = "no_validation", card: bool = False, **options: Any) -> Any:
    """`validate_data` of X, or of X and y, for a fit: plain arrays of finite numbers skip the general validation.

    `card`: X may be in the memory of a card.
    """
    alone = isinstance(y, str) and y == "no_validation"
    if on_card(X):
        return _check_fit_on_card(estimator, X, y, card, alone, options)
    y = y if alone else to_host(y)
    if y is None or not is_plain(X, None if alone else y):
        return validate_data(estimator, X, y, **INPUT, **options)
    estimator.n_features_in_ = X.shape[1]
    estimator.__dict__.pop("feature_names_in_", None)
    return X if alone else (X, y)


def _check_fit_on_card(estimator: Any, X: Any, y: Any, card: bool, alone: bool, options: Any) -> Any:
    if not card:
        not_here(estimator)
    X = card_array(estimator, X, reset=True)
    if alone:
        return X
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    y = _check_y(to_host(y), estimator=estimator, **options)
    check_consistent_length(X, y)
    return X, y


def check_rows(estimator: Any, X: Any, card: bool = False) -> Any:
    """`validate_data` of X for a prediction: plain arrays of finite numbers skip the general validation.

    `card`: X may be in the memory of a card.
    """
    fitted = estimator.__dict__
    if on_card(X):
        if not card:
            not_here(estimator)
        return card_array(estimator, X, reset=False)
    if is_plain(X) and X.shape[1] == fitted.get("n_features_in_") and "feature_names_in_" not in fitted:
        return X
    return validate_data(estimator, X, **INPUT, reset=False)


def class_codes(y: Any) -> Any:
    """The classes of the labels y, sorted, and the number of each label's class."""
    # Whole numbers are labels without asking, also as floats; only many different ones deserve scikit-learn's remark.
    if y.ndim != 1 or y.dtype.kind not in "iubf":
        check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    classes, codes = np.unique(y, return_inverse=True)
    whole = y.dtype.kind != "f" or bool((np.isfinite(classes) & (classes == np.floor(classes))).all())
    if not whole or 2 * len(classes) > len(y):
        check_classification_targets(y)
    return classes, codes


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
        factors = compute_class_weight(class_weight, classes=classes, y=y)
        wrong = np.flatnonzero(~((factors >= 0) & np.isfinite(factors)))
        if wrong.size:
            label, factor = classes[wrong[0]], float(factors[wrong[0]])
            what = "negative" if factor < 0 else "not finite"
            raise ValueError(
                f"class_weight: the weight of class {str(label)!r} is {what} ({factor:g}): weights are factors of C, >= 0"
            )
        return factors
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
    "check_fit",
    "check_rows",
    "check_square",
    "check_weights",
    "class_codes",
    "class_factors",
    "dense",
    "intercept_feature",
    "is_plain",
    "linear_weights",
    "one_vs_rest",
    "sample_costs",
    "several",
]
