"""Parameters and arrays of scikit-learn as the engine takes them, and what every fit stores."""

import os
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from . import _core
from ._callbacks import Reports, Steps, StopFit
from ._card import moments
from ._certificate import Certificate
from .losses import Custom, Loss
from .progress import reporter

KERNELS = {"linear", "poly", "rbf", "sigmoid", "laplacian", "matern32", "matern52", "chi2", "precomputed"}
SOLVERS = {"auto", "decomposition", "irwls", "ridge", "linear", "smo", "svmtorch"}

#: Constraints of the parameters of models on few centres.
APPROXIMATE = {
    "approx": [None, StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "certify": [None, StrOptions({"exact", "sampled", "own"})],
    "polish": ["boolean"],
}

#: Bytes of working memory; a larger `cache_size` raises it.
MEMORY = 2 << 30

#: Largest C: stands for an infinite C, which is a hard margin.
LARGEST_C = 1e10

#: With fewer multiplications than this, one thread is fastest.
SMALL = 1 << 22

#: Constraints of the parameters that every estimator has in addition to scikit-learn's.
EXTRA = {
    "loss": [None, str, HasMethods(["value", "slope"])],
    "solver": [StrOptions(SOLVERS)],
    "max_seconds": [None, Interval(Real, 0, None, closed="left")],
    "gap_tol": [None, Interval(Real, 0, None, closed="neither")],
    "n_jobs": [None, Integral],
    "device": [str],
}

#: scikit-learn's names of losses, and ours.
ALIASES = {
    "epsilon_insensitive": "epsilon",
    "squared_epsilon_insensitive": "squared-epsilon",
    "squared_error": "square",
}


def loss_name(loss: Any) -> Any:
    """The loss by its name in the engine, or its functions as the engine calls them."""
    if isinstance(loss, str):
        head, colon, rest = loss.partition(":")
        return ALIASES.get(head, head.replace("_", "-")) + colon + rest
    # A built-in loss has its name in `spec`.
    return loss.spec if isinstance(loss, Loss) else None if loss is None else Custom.of(loss)


def without(constraints: Any, *names: Any) -> Any:
    """Parameter constraints without those of the parameters `names`."""
    return {name: value for name, value in constraints.items() if name not in names}


def threads(n_jobs: Any, work: Any) -> Any:
    """Number of threads for `work` multiplications; 0 means all cores."""
    if work < SMALL:
        return 1
    if n_jobs is None:
        # joblib limits the threads of its workers with this variable.
        limit = os.environ.get("OMP_NUM_THREADS", "")
        return int(limit) if limit.isdigit() else 0
    if n_jobs == 0:
        raise ValueError("n_jobs == 0 has no meaning: use a number of threads, or -1 for all cores")
    if n_jobs < 0:
        return max(1, (os.cpu_count() or 1) + 1 + n_jobs)
    return n_jobs


def params(
    task: Any,
    *,
    kernel: Any = "linear",
    gamma: Any = 1.0,
    degree: Any = 3,
    coef0: Any = 0.0,
    loss: Any = None,
    C: Any = 1.0,
    nu: Any = None,
    epsilon: Any = None,
    svdd: Any = False,
    bias: Any = True,
    multiclass: Any = "ovo",
    penalty: Any = "l2",
    intercept_scaling: Any = None,
    probability: Any = False,
    probability_rule: Any = "auto",
    threshold: Any = None,
    leave_one_out: Any = False,
    class_weight: Any = None,
    solver: Any = "auto",
    tol: Any = 1e-3,
    aim: Any = None,
    aim_gap: Any = None,
    gap_tol: Any = None,
    max_seconds: Any = None,
    max_iter: Any = None,
    memory: Any = MEMORY,
    threads: Any = 1,
    seed: Any = 0,
    small: Any = False,
    device: Any = "auto",
    approx: Any = None,
    certify: Any = None,
    polish: Any = False,
) -> Any:
    """The training problem as the dictionary that `_core` takes."""
    if int(degree) != degree:
        raise ValueError(f"degree must be a whole number, but it is {degree}")
    return {
        "task": task,
        "kernel": kernel,
        "gamma": float(gamma),
        "degree": int(degree),
        "coef0": float(coef0),
        "loss": loss_name(loss),
        "C": min(float(C), LARGEST_C),
        "nu": None if nu is None else float(nu),
        "epsilon": None if epsilon is None else float(epsilon),
        "svdd": svdd,
        "bias": bias,
        "multiclass": multiclass if task == "classify" and approx is None else None,
        "penalty": penalty,
        "intercept_scaling": intercept_scaling,
        "probability": bool(probability),
        "probability_rule": probability_rule,
        "threshold": threshold,
        "leave_one_out": bool(leave_one_out),
        "class_weight": class_weight,
        "solver": solver,
        "tol": None if tol is None else float(tol),
        "aim": None if aim is None else float(aim),
        "aim_gap": None if aim_gap is None else float(aim_gap),
        "gap_tol": None if gap_tol is None else float(gap_tol),
        "max_seconds": None if max_seconds is None else float(max_seconds),
        "max_iter": None if max_iter is None else int(max_iter),
        "memory": int(memory),
        "threads": int(threads),
        "seed": seed,
        "small": small,
        "device": device,
        "approx": None if approx is None else str(approx),
        "certify": certify,
        "polish": bool(polish),
    }


def model_parts(
    coefficients: Any,
    bias: Any,
    *,
    rows: Any,
    width: Any,
    n: Any,
    centres: Any = None,
    class_of: Any = None,
    labels: Any = (),
    sigmoid_a: Any = None,
    sigmoid_b: Any = None,
    sigmoid_below: Any = None,
    probability_rule: Any = "agree",
    threshold: Any = None,
    rho: Any = None,
    weights: Any = None,
) -> Any:
    """A fitted model as the dictionary that `_core` takes."""
    return {
        "centres": centres,
        "rows": rows,
        "coefficients": coefficients,
        "class_of": class_of,
        "bias": bias,
        "labels": list(labels),
        "width": width,
        "n": n,
        "sigmoid_a": sigmoid_a,
        "sigmoid_b": sigmoid_b,
        "sigmoid_below": sigmoid_below,
        "probability_rule": probability_rule,
        "threshold": threshold,
        "rho": rho,
        "weights": weights,
    }


def aligned(array: Any) -> Any:
    """The array, C-contiguous and aligned: memory that came over a network may be neither. Copies only where it has to."""
    return np.require(array, requirements=("C", "A"))


def points(X: Any) -> Any:
    """X for `_core`: a C-contiguous array, one on a card, or the parts of a CSR matrix. Copies only where it has to."""
    if type(X) is _core.CardArray:
        return X
    if not sp.issparse(X):
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        return aligned(X)
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.shape[1] > np.iinfo(np.uint32).max:
        raise ValueError(f"X has {X.shape[1]} columns, more than the limit of 4 294 967 295")
    indices = X.indices
    indices = indices.view(np.uint32) if indices.dtype == np.int32 else indices.astype(np.uint32)
    values = X.data if X.data.dtype in (np.float32, np.float64) else X.data.astype(np.float64)
    return (
        aligned(values),
        aligned(indices),
        X.indptr.astype(np.uint64),
        int(X.shape[1]),
    )


def variance(X: Any, weights: Any = None) -> Any:
    """Variance of all entries of X; rows count by their weights."""
    if type(X) is _core.CardArray:
        return moments(X, weights)
    if weights is None:
        if not sp.issparse(X):
            return float(np.var(X, dtype=np.float64))
        mean = X.mean()
        total = X.shape[0] * X.shape[1]
        spread = ((X.data.astype(np.float64) - mean) ** 2).sum() + (total - X.data.size) * mean**2
        return float(spread / total)
    total = weights.sum() * X.shape[1]
    rows = np.asarray(X.sum(axis=1, dtype=np.float64) if not sp.issparse(X) else X.sum(axis=1)).ravel()
    mean = float(weights @ rows) / total
    if sp.issparse(X):
        counts = np.diff(X.indptr)
        by_entry = np.repeat(weights, counts)
        inside = by_entry @ (X.data.astype(np.float64) - mean) ** 2
        outside = (weights * (X.shape[1] - counts)).sum() * mean**2
        return float((inside + outside) / total)
    return float(weights @ ((X.astype(np.float64, copy=False) - mean) ** 2).sum(axis=1) / total)


def resolve_gamma(gamma: Any, X: Any, weights: Any = None) -> Any:
    """γ as a number. Rows count by their weights, so a weight of 2 is the same as two copies of the row."""
    if isinstance(gamma, str):
        if gamma == "auto":
            return 1.0 / X.shape[1]
        if gamma == "median":
            return _core.gamma_of(points(X), "median")
        spread = variance(X, weights) * X.shape[1]
        return 1.0 / spread if spread > 0 else 1.0
    return float(gamma)


def cut_short(machines: Any, max_iter: Any) -> Any:
    """Whether one of the binary models used all the iterations it was allowed."""
    return max_iter is not None and max_iter >= 0 and any(one.get("iterations", 0) >= max_iter for one in machines)


def warn(certificate: Any, max_iter: Any = None, cut: Any = False) -> Any:
    """Warn unless the fit is optimal; the message includes the certificate.

    Like scikit-learn, also warn if the fit used all its iterations (`cut`), even where the result is accurate enough.
    """
    status = certificate.status
    if status == "optimal" and cut:
        status = "iteration_limit"
    if status in ("optimal", None):
        return
    why = {
        # Starts like scikit-learn's warning, so that filters for that one match.
        "iteration_limit": f"Solver terminated early (max_iter={max_iter}).  Consider pre-processing your data with"
        " StandardScaler or MinMaxScaler.",
        "time_limit": "Solver terminated early: max_seconds reached.",
        "interrupted": "Solver was interrupted: the best model so far is kept.",
        "stalled": "Solver can make no further progress in double precision.",
        "inaccurate": "Solver ended, but the certificate does not prove the requested accuracy.",
    }[status]
    warnings.warn(f"{why}  {certificate.summary()}", ConvergenceWarning, stacklevel=4)


def finish(estimator: Any, result: Any, max_iter: Any = None, report: Any = None) -> Any:
    """Store what every fit has, from the dictionary of `_core`; raise the exception that interrupted it, if any."""
    estimator.certificate_ = Certificate.of_machines(result["machines"], result.get("totals"))
    estimator.history_ = result.get("history", [])
    if "reason" in result:
        estimator.solver_, estimator.reason_ = result["solver"], result["reason"]
    warn(estimator.certificate_, max_iter, cut_short(result["machines"], max_iter))
    stopped = result.get("interrupted")
    if stopped is not None and not isinstance(stopped, StopFit):
        raise stopped
    if report is not None:
        report.close()


def report_of(estimator: Any, X: Any = None, y: Any = None) -> Any:
    """Callable for the steps of a fit: a progress line if `verbose`, and the callbacks that are set; or None."""
    parts: list[Any] = [reporter(type(estimator).__name__)] if getattr(estimator, "verbose", False) else []
    if getattr(estimator, "_skl_callbacks", None):
        parts.append(Steps(estimator, X, y))
    return Reports(parts) if parts else None


__all__ = [
    "EXTRA",
    "KERNELS",
    "MEMORY",
    "SMALL",
    "SOLVERS",
    "aligned",
    "cut_short",
    "finish",
    "model_parts",
    "params",
    "points",
    "report_of",
    "resolve_gamma",
    "threads",
    "variance",
    "without",
]
