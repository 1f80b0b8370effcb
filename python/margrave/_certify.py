"""Certificates of fitted estimators, Margrave's and scikit-learn's."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from . import _core
from ._certificate import Certificate
from ._pipeline import split, transform
from ._prepare import class_factors, dense, intercept_feature, linear_weights, one_vs_rest, sample_costs
from ._spec import model_parts, params, points, threads

#: Names of the kernel models and their tasks.
_TASKS = {"SVC": "classify", "NuSVC": "classify", "SVR": "regress", "NuSVR": "regress", "OneClassSVM": "novelty"}


def _kind(estimator: Any) -> Any:
    """Name of the class of Margrave or scikit-learn that an estimator is an instance of."""
    for base in type(estimator).__mro__:
        if base.__module__.split(".")[0] in ("margrave", "sklearn") and base.__name__ in {
            *_TASKS,
            "LinearSVC",
            "LinearSVR",
            "KernelRidge",
        }:
            return base.__name__
    raise TypeError(
        f"{type(estimator).__name__} is not an estimator that can be certified: pass a fitted SVC, SVR, NuSVC, NuSVR,"
        " OneClassSVM, LinearSVC, LinearSVR or KernelRidge of margrave or scikit-learn"
    )


def certify(
    estimator: Any, X: Any, y: Any = None, *, sample_weight: Any = None, n_jobs: int | None = None
) -> Certificate:
    """Prove how far a fitted estimator is from the optimum of its own problem.

    The certificate does not rely on anything the solver reported: scores are recomputed in double precision, and the
    gap follows from them, the coefficients and the parameters. Works for estimators of Margrave and of scikit-learn.

    Parameters
    ----------
    estimator : fitted estimator or Pipeline
        An SVC, SVR, NuSVC, NuSVR, OneClassSVM, LinearSVC, LinearSVR or KernelRidge, or a pipeline that ends with one:
        its other steps transform X, and the certificate is that of the last step on the result.
    X, y : array-like
        The training data, in the same order.
    sample_weight : array-like of shape (n_samples,), default=None
        The weights used in the fit.
    n_jobs : int, default=None
        Number of threads; all cores by default.

    Returns
    -------
    Certificate
        The bound.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import certify
    >>> from sklearn.svm import SVC
    >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
    >>> certify(SVC(tol=1e-6).fit(X, y), X, y).relative_gap < 1e-5
    True
    """
    before, estimator = split(estimator)
    check_is_fitted(estimator)
    X = transform(before, X)
    kind = _kind(estimator)
    X = X.tocsr() if sp.issparse(X) else np.asarray(X) if not callable(getattr(estimator, "kernel", None)) else X
    if not sp.issparse(X) and isinstance(X, np.ndarray) and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    content = getattr(estimator, "_libsvm_file", None)
    if content is not None and not hasattr(estimator, "certificate_"):
        return _libsvm(estimator, kind, content, X, y, sample_weight, n_jobs)
    if kind == "KernelRidge":
        return _ridge(estimator, X, y, sample_weight, n_jobs)
    if kind in ("LinearSVC", "LinearSVR"):
        return _linear(estimator, kind, X, y, sample_weight, n_jobs)
    return _kernel_model(estimator, kind, X, y, sample_weight, n_jobs)


def _libsvm(estimator: Any, kind: Any, content: Any, X: Any, y: Any, sample_weight: Any, n_jobs: Any) -> Any:
    """A model that was read from a LIBSVM file, which does not store how it was trained."""
    if sample_weight is not None:
        raise ValueError("LIBSVM's models are trained without sample weights: omit sample_weight")
    targets = None if kind == "OneClassSVM" else np.ascontiguousarray(y, dtype=np.float64)
    found = _core.certify_libsvm(
        params(_TASKS[kind], threads=threads(n_jobs, float(X.shape[0]) ** 2 * X.shape[1])),
        content,
        points(X),
        targets,
        cost=float(estimator.C) if kind in ("SVC", "SVR") else None,
        epsilon=float(estimator.epsilon) if kind == "SVR" else None,
    )
    return Certificate.of_machines(found)


def _weights(sample_weight: Any, X: Any) -> Any:
    if sample_weight is None:
        return None
    return np.maximum(_check_sample_weight(sample_weight, X, dtype=np.float64), 0.0)


def _kernel_model(estimator: Any, kind: Any, X: Any, y: Any, sample_weight: Any, n_jobs: Any) -> Any:
    task = _TASKS[kind]
    ours = type(estimator).__module__.startswith("margrave")
    kernel = "precomputed" if callable(estimator.kernel) else estimator.kernel
    if callable(estimator.kernel):
        X = np.ascontiguousarray(dense(estimator.kernel(X, X)), dtype=np.float64)
    n = X.shape[0]
    weights = _weights(sample_weight, X)
    labels, class_of, targets, sign = [], None, None, 1.0
    if task == "classify":
        sign = -1.0
        classes = estimator.classes_
        labels = [float(c) for c in range(len(classes))]
        codes = np.searchsorted(classes, np.asarray(y))
        if not np.array_equal(classes[np.minimum(codes, len(classes) - 1)], np.asarray(y)):
            raise ValueError("y has labels that the estimator was not trained on: pass the training data")
        targets = codes.astype(np.float64)
        if len(classes) > 2:
            class_of = codes[estimator.support_].astype(np.int32)
        # scikit-learn's NuSVC ignores class_weight.
        if kind == "SVC" or ours:
            weights = sample_costs(weights, np.asarray(estimator.class_weight_)[codes])
    elif task == "regress":
        targets = np.ascontiguousarray(y, dtype=np.float64).ravel()
    dual = dense(estimator._dual_coef_)
    rows = np.ascontiguousarray(estimator.support_, dtype=np.int32)
    lookup = kernel == "precomputed"
    spec = params(
        task,
        kernel=kernel,
        gamma=estimator._gamma if not lookup else 1.0,
        degree=estimator.degree,
        coef0=estimator.coef0,
        C=getattr(estimator, "C", 1.0) or 1.0,
        nu=estimator.nu if kind in ("NuSVC", "NuSVR", "OneClassSVM") else None,
        epsilon=estimator.epsilon if kind == "SVR" else None,
        loss=getattr(estimator, "loss", None) if kind in ("SVC", "SVR") else None,
        svdd=getattr(estimator, "loss", None) == "svdd",
        threads=threads(n_jobs, float(n) * len(rows) * X.shape[1]),
        approx=getattr(estimator, "approx", None),
        polish=getattr(estimator, "polish", False),
    )
    parts = model_parts(
        np.ascontiguousarray(sign * dual.T),
        np.ascontiguousarray(sign * np.atleast_1d(estimator._intercept_), dtype=np.float64),
        rows=rows,
        width=X.shape[1],
        n=n,
        centres=None if lookup else points(X[rows]),
        class_of=class_of,
        labels=labels,
    )
    _same_centres(estimator, X, rows)
    outputs = len(dual) if task == "regress" else 1
    return Certificate.of_machines(_core.certify(spec, parts, points(X), targets, weights, outputs))


def _same_centres(estimator: Any, X: Any, rows: Any) -> Any:
    """Raise unless the support vectors are rows of X."""
    centres = estimator.support_vectors_
    if centres.shape[0] != len(rows):
        return
    ours = X[rows]
    if sp.issparse(ours) and sp.issparse(centres):
        same = (ours != centres).nnz == 0
    else:
        same = np.array_equal(dense(ours), dense(centres))
    if not same:
        raise ValueError("the support vectors are not rows of X: pass the training data, in the same order")


def _linear(estimator: Any, kind: Any, X: Any, y: Any, sample_weight: Any, n_jobs: Any) -> Any:
    weights = _weights(sample_weight, X)
    weights = np.ones(X.shape[0]) if weights is None else weights
    loss, l1 = estimator.loss, getattr(estimator, "penalty", "l2") == "l1"
    if kind == "LinearSVC":
        if estimator.multi_class == "crammer_singer":
            raise ValueError("a Crammer-Singer model stores no dual point, so it cannot be certified after training")
        classes = estimator.classes_
        codes = np.searchsorted(classes, np.asarray(y))
        targets = one_vs_rest(codes, len(classes))
        given = weights if sample_weight is not None else None
        weights = weights * class_factors(estimator.class_weight, classes, np.asarray(y), given)[codes]
        task, epsilon = "classify", None
    else:
        targets = np.ascontiguousarray(np.asarray(y, dtype=np.float64).reshape(X.shape[0], -1).T)
        task, epsilon = "regress", estimator.epsilon
    spec = params(
        task,
        loss=loss,
        epsilon=epsilon,
        C=estimator.C,
        tol=1e-6,
        # The lower bound comes from a dual point found here: a loose one would be blamed on the model.
        gap_tol=1e-11,
        threads=threads(n_jobs, float(X.shape[0]) * X.shape[1] * 100),
    )
    machines = _core.certify_linear(
        spec, points(X), targets, estimator.C * weights, intercept_feature(estimator), l1, *linear_weights(estimator)
    )
    return Certificate.of_machines(machines)


def _ridge(estimator: Any, X: Any, y: Any, sample_weight: Any, n_jobs: Any) -> Any:
    from ._ridge import KernelRidge

    weights = _weights(sample_weight, X)
    weights = np.ones(X.shape[0]) if weights is None else weights
    if not np.all(np.asarray(estimator.alpha) > 0):
        raise ValueError("alpha=0 means no penalty, and then there is no dual to certify with")
    if getattr(estimator, "loss", None) not in (None, "square", "squared_error"):
        raise ValueError("a KernelRidge can be certified after training only with the square loss")
    own = KernelRidge(
        **{name: getattr(estimator, name) for name in ("alpha", "kernel", "gamma", "degree", "coef0", "kernel_params")},
        n_jobs=n_jobs,
    )
    targets = np.asarray(y, dtype=np.float64).reshape(X.shape[0], -1)
    dual = np.asarray(estimator.dual_coef_, dtype=np.float64).reshape(X.shape[0], -1)
    K = own._points_or_gram(X)
    spec = own._params(K, float(X.shape[0]) ** 2 * X.shape[1])
    alpha = np.broadcast_to(np.asarray(estimator.alpha, dtype=np.float64), (targets.shape[1],))
    machines = []
    for at, penalty in enumerate(alpha):
        part = _core.certify_ridge(
            spec,
            points(K),
            np.ascontiguousarray(targets[:, at]),
            np.ascontiguousarray(weights / penalty),
            np.ascontiguousarray(dual[:, at]),
        )
        machines.append(part)
    return Certificate.of_machines(machines)


__all__ = ["certify"]
