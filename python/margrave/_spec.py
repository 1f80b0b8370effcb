"""From parameters and arrays of scikit-learn to what the engine takes."""

import os
import warnings
from numbers import Integral, Real

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Hidden, Interval, StrOptions

from ._callbacks import Reports, Steps, StopFit
from ._certificate import Certificate
from .progress import reporter

KERNELS = {"linear", "poly", "rbf", "sigmoid", "laplacian", "matern32", "matern52", "chi2", "precomputed"}
SOLVERS = {"auto", "decomposition", "irwls", "ridge", "linear", "smo", "svmtorch"}

#: Bytes of working memory unless `cache_size` asks for more.
MEMORY = 2 << 30

#: An infinite C, a hard margin, is taken for this.
HARD = 1e10

#: Fewer multiplications than this are not worth waking other threads for.
SMALL = 1 << 22

#: Constraints of the parameters that every estimator has beyond scikit-learn's.
EXTRA = {
    "loss": [None, str, HasMethods(["value", "slope"])],
    "solver": [StrOptions(SOLVERS)],
    "max_seconds": [None, Interval(Real, 0, None, closed="left")],
    "gap_tol": [None, Interval(Real, 0, None, closed="neither")],
    "n_jobs": [None, Integral],
    "device": [StrOptions({"auto", "cpu", "cuda"})],
}

#: Names of losses in scikit-learn.
ALIASES = {
    "epsilon_insensitive": "epsilon",
    "squared_epsilon_insensitive": "squared-epsilon",
    "squared_error": "square",
}


def loss_name(loss):
    """The loss as the engine writes it; objects with `value` and `slope` stay as they are."""
    if isinstance(loss, str):
        head, colon, rest = loss.partition(":")
        return ALIASES.get(head, head.replace("_", "-")) + colon + rest
    # A loss of `margrave.losses` says its own name.
    return getattr(loss, "spec", loss)


def threads(n_jobs, work):
    """Threads to use: all cores unless told otherwise, one where there is little to do."""
    if work < SMALL:
        return 1
    if n_jobs is None:
        # joblib tells its workers in this way how many cores are theirs.
        told = os.environ.get("OMP_NUM_THREADS", "")
        return int(told) if told.isdigit() else 0
    if n_jobs == 0:
        raise ValueError("n_jobs == 0 has no meaning: use a number of threads, or -1 for all cores")
    if n_jobs < 0:
        return max(1, (os.cpu_count() or 1) + 1 + n_jobs)
    return n_jobs


def params(
    task,
    *,
    kernel="linear",
    gamma=1.0,
    degree=3,
    coef0=0.0,
    loss=None,
    C=1.0,
    nu=None,
    epsilon=None,
    svdd=False,
    bias=True,
    one_vs_rest=False,
    probability=False,
    solver="auto",
    tol=1e-3,
    aim=None,
    gap_tol=None,
    max_seconds=None,
    max_iter=None,
    memory=MEMORY,
    threads=1,
    seed=0,
    small=False,
    device="auto",
):
    """The dictionary `_core` takes."""
    if device == "cuda":
        raise ValueError("device='cuda' is not built into this package: use device='cpu' or 'auto'")
    if int(degree) != degree:
        raise ValueError(f"degree must be a whole number, but it is {degree}")
    return {
        "task": task,
        "kernel": kernel,
        "gamma": float(gamma),
        "degree": int(degree),
        "coef0": float(coef0),
        "loss": loss_name(loss),
        "C": min(float(C), HARD),
        "nu": None if nu is None else float(nu),
        "epsilon": None if epsilon is None else float(epsilon),
        "svdd": svdd,
        "bias": bias,
        "one_vs_rest": one_vs_rest,
        "probability": bool(probability),
        "solver": solver,
        "tol": None if tol is None else float(tol),
        "aim": None if aim is None else float(aim),
        "gap_tol": None if gap_tol is None else float(gap_tol),
        "max_seconds": None if max_seconds is None else float(max_seconds),
        "max_iter": None if max_iter is None else int(max_iter),
        "memory": int(memory),
        "threads": int(threads),
        "seed": seed,
        "small": small,
    }


def points(X):
    """X for `_core`: a C-contiguous array, or the parts of a CSR matrix; nothing is copied that need not be."""
    if not sp.issparse(X):
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        return np.ascontiguousarray(X)
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.shape[1] > np.iinfo(np.uint32).max:
        raise ValueError(f"X has {X.shape[1]} columns: more than 4 294 967 295 cannot be numbered")
    indices = X.indices
    indices = indices.view(np.uint32) if indices.dtype == np.int32 else indices.astype(np.uint32)
    values = X.data if X.data.dtype in (np.float32, np.float64) else X.data.astype(np.float64)
    return (
        np.ascontiguousarray(values),
        np.ascontiguousarray(indices),
        X.indptr.astype(np.uint64),
        int(X.shape[1]),
    )


def variance(X, weights=None):
    """The variance of all entries of X, rows counted by their weights."""
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


def resolve_gamma(gamma, X, weights=None):
    """γ as a number. Rows count by their weights, so that a doubled row and a doubled weight are the same."""
    if isinstance(gamma, str):
        if gamma == "auto":
            return 1.0 / X.shape[1]
        spread = variance(X, weights) * X.shape[1]
        return 1.0 / spread if spread > 0 else 1.0
    return float(gamma)


def cut_short(machines, max_iter):
    """Whether a machine took all the iterations it was allowed."""
    return max_iter is not None and max_iter >= 0 and any(one.get("iterations", 0) >= max_iter for one in machines)


def warn(estimator, certificate, max_iter=None, cut=False):
    """A warning unless the fit is optimal; the message carries the certificate.

    Like scikit-learn it also warns of a machine that took all its iterations, `cut`, and turned out to be good enough.
    """
    status = certificate.status
    if status == "optimal" and cut:
        status = "iteration_limit"
    if status in ("optimal", None):
        return
    why = {
        # Worded so that filters for scikit-learn's warning find it.
        "iteration_limit": f"Solver terminated early (max_iter={max_iter}).  Consider pre-processing your data with"
        " StandardScaler or MinMaxScaler.",
        "time_limit": "Solver terminated early: max_seconds are over.",
        "interrupted": "Solver was interrupted: the best machine so far is kept.",
        "stalled": "Solver can make no further progress in double precision.",
        "inaccurate": "Solver ended, but its answer is not proven to be as accurate as asked.",
    }[status]
    warnings.warn(f"{why}  {certificate.summary()}", ConvergenceWarning, stacklevel=4)


def finish(estimator, result, max_iter=None, report=None):
    """What every fit leaves behind, from the dictionary of `_core`; raises what interrupted it."""
    estimator.certificate_ = Certificate.of_machines(result["machines"], result.get("totals"))
    estimator.history_ = result.get("history", [])
    if "reason" in result:
        estimator.solver_, estimator.reason_ = result["solver"], result["reason"]
    warn(estimator, estimator.certificate_, max_iter, cut_short(result["machines"], max_iter))
    stopped = result.get("interrupted")
    if stopped is not None and not isinstance(stopped, StopFit):
        raise stopped
    if report is not None:
        report.close()


def report_of(estimator, X=None, y=None):
    """What listens to the steps of a fit: a bar if it is to be verbose, the callbacks that were set; or nobody."""
    parts = [reporter(type(estimator).__name__)] if getattr(estimator, "verbose", False) else []
    if getattr(estimator, "_skl_callbacks", None):
        parts.append(Steps(estimator, X, y))
    return Reports(parts) if parts else None


__all__ = [
    "EXTRA",
    "KERNELS",
    "Hidden",
    "finish",
    "params",
    "points",
    "report_of",
    "resolve_gamma",
    "threads",
    "variance",
]
