"""Novelty detection with the interface of `sklearn.svm.OneClassSVM`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import OutlierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _num_samples

from ._machine import _KernelModel
from ._spec import without
from .losses import LossLike

if TYPE_CHECKING:
    from typing_extensions import Self

#: Scores of novelty detection up to this size, relative to the offset, count as 0.
ROUNDING = 1e-8


class OneClassSVM(OutlierMixin, _KernelModel):
    """Novelty detection: scikit-learn's `OneClassSVM` with a certificate.

    Parameters
    ----------
    nu : float, default=0.5
        Upper bound on the fraction of training samples outside, lower bound on the fraction of support vectors.
    kernel : str or callable, default="rbf"
        "linear", "poly", "rbf", "sigmoid", "laplacian", "matern32", "matern52", "chi2", "precomputed", or a function of
        two arrays of points that returns their kernel matrix.
    degree : int, default=3
        Degree of the polynomial kernel.
    gamma : "scale", "auto", "median" or float, default="scale"
        γ of the kernel: "scale" is 1 / (n_features · variance of X), "auto" is 1 / n_features, "median" is 1 / median
        squared distance between two samples.
    coef0 : float, default=0.0
        Constant of the polynomial and sigmoid kernels.
    shrinking : bool, default=True
        Accepted for compatibility; has no effect.
    tol : float, default=1e-3
        Largest allowed violation of the optimality conditions.
    cache_size : float, default=200
        Memory limit in MB; values below 2 GiB have no effect.
    verbose : bool, default=False
        Show progress.
    max_iter : int, default=-1
        Limit on iterations; -1 means no limit.
    loss : {None, "svdd"}, default=None
        "svdd" fits the smallest enclosing ball (SVDD) instead of the one-class SVM.
    solver : str, default="auto"
        "decomposition" (exact), "irwls" (any loss), "linear", "ridge", or a textbook solver: "smo", "svmtorch".
    max_seconds : float, default=None
        Time limit. A fit that reaches it keeps the best model so far and warns.
    gap_tol : float, default=None
        Relative duality gap to reach, in addition to `tol`.
    n_jobs : int, default=None
        Number of threads; all cores by default. Results do not depend on it.
    device : {"auto", "cpu", "cuda", "cuda:N"}, default="auto"
        Where to compute: ``"cuda:N"`` is NVIDIA card N; ``"auto"`` takes a card for 20 000 rows or more, if there is one.
    warm_start : bool, default=False
        Start from the solution of the last fit if X has the same rows. The result is certified either way.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_ : ndarray
        The model, as in scikit-learn.
    n_features_in_, fit_status_ : int
        Number of features, and 0 if the fit is optimal, 1 otherwise.
    shape_fit_ : tuple of int
        Shape of the training data.
    offset_ : float
        `decision_function` is `score_samples` minus this offset.
    certificate_ : Certificate
        How far the result can be from the optimum.
    history_ : list of dict
        Steps of the solver.
    solver_, reason_ : str
        The solver that was used, and the reason for the choice.
    n_iter_ : int or ndarray
        Number of iterations.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import OneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> ball = OneClassSVM(nu=0.1, loss="svdd").fit(X)
    >>> ball.predict([[0.0, 0.0], [5.0, 5.0]])
    array([ 1, -1])
    """

    _parameter_constraints: dict[str, Any] = {
        **without(
            _KernelModel._parameter_constraints,
            "C",
            "class_weight",
            "epsilon",
            "intervals",
            "probability",
            "random_state",
        ),
        "loss": [None, StrOptions({"svdd"})],
    }
    _task = "novelty"

    def __init__(
        self,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
        gamma: str | float = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        nu: float = 0.5,
        shrinking: bool = True,
        cache_size: float = 200,
        verbose: bool | int = False,
        max_iter: int = -1,
        loss: str | LossLike | None = None,
        solver: str = "auto",
        max_seconds: float | None = None,
        gap_tol: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        warm_start: bool = False,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.nu = nu
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.loss = loss
        self.solver = solver
        self.max_seconds = max_seconds
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device
        self.warm_start = warm_start

    def _own_params(self) -> Any:
        return {"nu": self.nu, "svdd": self.loss == "svdd"}

    def _encode(self, y: Any, sample_weight: Any, removed: Any = False) -> Any:
        return None, None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to the points X; `y` is ignored."""
        if callable(self.kernel):
            y = np.ones(_num_samples(X))
        return super().fit(X, y, sample_weight=sample_weight)

    def _store_dual(self, dual: Any, intercept: Any) -> Any:
        super()._store_dual(dual, intercept)
        self.offset_ = -self._intercept_

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Scores of the samples: positive inside, negative outside, 0 on the boundary."""
        scores = self._scores(X).ravel()
        # Support vectors lie on the boundary: rounding must not put them on one side.
        scores[np.abs(scores) <= ROUNDING * max(1.0, abs(self.offset_[0]))] = 0.0
        return scores

    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """Scores of the samples before `offset_` is subtracted."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """+1 for inliers, -1 for outliers."""
        return np.where(self.decision_function(X) >= 0, 1, -1)


__all__ = ["OneClassSVM"]
