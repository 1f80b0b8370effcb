"""Linear models with the interface of `sklearn.svm.LinearSVC` and `LinearSVR`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.linear_model._base import LinearClassifierMixin, LinearModel, SparseCoefMixin
from sklearn.utils import column_or_1d
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._callbacks import CallbackSupportMixin, with_callbacks
from ._machine import _Versioned, store_threshold
from ._prepare import (
    check_fit,
    check_rows,
    check_weights,
    class_codes,
    class_factors,
    dense,
    intercept_feature,
    several,
)
from ._spec import EXTRA, SMALL, finish, params, points, report_of, threads
from .losses import LossLike

if TYPE_CHECKING:
    from typing_extensions import Self

#: Relative gap to reach, as a multiple of `tol`.
GAP_PER_TOL = 1e-3

#: Relative gap that the engine aims at: sample weights then agree with copies of the samples to many digits.
AIM_GAP = 1e-6

_SHARED = {
    **EXTRA,
    "solver": [StrOptions({"auto", "linear"})],
    "dual": ["boolean", StrOptions({"auto"})],
    "tol": [Interval(Real, 0.0, None, closed="neither")],
    "C": [Interval(Real, 0.0, None, closed="neither")],
    "fit_intercept": ["boolean"],
    "intercept_scaling": [Interval(Real, 0, None, closed="right")],
    "verbose": ["verbose"],
    "random_state": ["random_state"],
    "max_iter": [Interval(Integral, 0, None, closed="left")],
}


class _LinearModel(_Versioned, CallbackSupportMixin, BaseEstimator):
    """Base of LinearSVC and LinearSVR."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _params(self, task: Any, X: Any, **own: Any) -> Any:
        work = 100.0 * (X.nnz if sp.issparse(X) else X.shape[0] * X.shape[1])
        return params(
            task,
            C=self.C,
            tol=self.tol,
            # The dual point follows from the scores, so the violation says little; the gap measures the progress.
            gap_tol=GAP_PER_TOL * self.tol if self.gap_tol is None else self.gap_tol,
            max_seconds=self.max_seconds,
            max_iter=self.max_iter,
            threads=threads(self.n_jobs, work),
            small=work < SMALL,
            device=self.device,
            **own,
        )

    def _drop_unweighted(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """X, y and weights of the samples of positive weight."""
        weights = check_weights(sample_weight, X)
        if (weights > 0).all():
            return X, y, weights
        if not (weights > 0).any():
            raise ValueError("Invalid input - all samples have zero weight.")
        kept = np.flatnonzero(weights)
        return X[kept], y[kept], weights[kept]

    def _train(self, task: Any, X: Any, y: Any, weights: Any, report: Any, **own: Any) -> Any:
        """Train by the engine; gives its result, the weights (one row per binary model) and the biases."""
        scaling = intercept_feature(self)
        spec = self._params(
            task,
            X,
            bias=scaling is not None,
            intercept_scaling=scaling if scaling is not None and np.isfinite(scaling) else None,
            aim_gap=AIM_GAP,
            **own,
        )
        spec["leave_one_out"] = getattr(self, "_wants_left_out", False)
        outputs = y.shape[1] if y.ndim == 2 else 1
        targets = np.ascontiguousarray(y).ravel()
        result = _core.fit(spec, points(X), targets, np.ascontiguousarray(weights), report, outputs)
        self._left_out = result.get("left_out")
        if "weights" in result:
            coef = result["weights"].T
        else:
            # Trained through the kernel matrix: w = Xᵀβ.
            coef = result["coefficients"].T @ X[result["rows"]]
        return result, np.ascontiguousarray(dense(coef)), result["bias"]

    def _rows_times_weights(self, X: Any) -> Any:
        """Scores of the samples, with a shorter validation of plain arrays than scikit-learn's."""
        check_is_fitted(self)
        return safe_sparse_dot(check_rows(self, X), self.coef_.T, dense_output=True) + self.intercept_

    def _store_fit(self, result: Any, report: Any) -> Any:
        """Set the fitted attributes that both models have."""
        self.n_iter_ = max(1, *(one["iterations"] for one in result["machines"]), 1)
        finish(self, result, self.max_iter, report)


class LinearSVC(LinearClassifierMixin, SparseCoefMixin, _LinearModel):
    """Linear support vector classification: scikit-learn's `LinearSVC`, with any loss and a certificate.

    Parameters
    ----------
    penalty : {"l2", "l1"}, default="l2"
        "l2" is ½‖w‖². "l1" is Σ|w|: it makes many weights exactly 0 and needs a smooth loss.
    loss : str or object, default="squared_hinge"
        Name of a classification loss of `margrave.losses`, or an object with `value(y, z)` and `slope(y, z)`.
    dual, random_state : object
        Accepted for compatibility: the solver does not depend on them, and nothing is random.
    tol : float, default=1e-4
        The fit stops at a relative duality gap of 1e-3 · `tol`, unless `gap_tol` is given.
    C : float, default=1.0
        Cost of errors.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    intercept_scaling : float, default=1.0
        The intercept is the weight of a constant feature with this value and penalised like the other weights, as in
        scikit-learn; `float("inf")` leaves it unpenalised.
    multi_class : {"ovr", "crammer_singer"}, default="ovr"
        One model per class against the rest, or one model of all classes together (Crammer and Singer).
    class_weight : dict or "balanced", default=None
        Factors on the cost of each class.
    verbose : int, default=0
        Show progress.
    max_iter : int, default=1000
        Limit on iterations.
    solver : str, default="auto"
        "auto" or "linear".
    max_seconds : float, default=None
        Time limit. A fit that reaches it keeps the best model so far and warns.
    gap_tol : float, default=None
        Relative duality gap to reach, in addition to `tol`.
    n_jobs : int, default=None
        Number of threads; all cores by default. Results do not depend on it.
    device : {"auto", "cpu", "cuda", "cuda:N"}, default="auto"
        Where to compute: ``"cuda:N"`` is NVIDIA card N; ``"auto"`` takes a card for 20 000 rows or more, if there is one.
    threshold : str, default=None
        Two classes: how to choose the score above which `predict` returns the second class. "max-f1", "recall=0.9" (the
        largest precision with at least this recall) or "cost=FP:1,FN:10" (the least total cost), on left-out scores.
        None is 0. `threshold_` has the score; it is kept by `save`.

    Attributes
    ----------
    coef_, intercept_ : ndarray
        The weights, as in scikit-learn.
    certificate_ : Certificate
        How far the result can be from the optimum.
    history_ : list of dict
        Steps of the solver.
    solver_, reason_ : str
        The solver that was used, and the reason for the choice.
    n_iter_ : int or ndarray
        Number of iterations.
    classes_ : ndarray
        The classes in ascending order.
    n_features_in_ : int
        Number of features.
    threshold_ : float
        The score above which `predict` returns the second of two classes; 0 unless `threshold` chose another.
    threshold_recall_, threshold_precision_ : float
        Recall and precision of the second class at the threshold, on the left-out scores it was chosen on.

    Examples
    --------
    >>> from margrave import LinearSVC
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearSVC(loss="logistic").fit(X, y)
    >>> model.coef_.shape
    (3, 4)
    """

    _parameter_constraints: dict[str, Any] = {
        **_SHARED,
        "penalty": [StrOptions({"l1", "l2"})],
        "loss": [str, HasMethods(["value", "slope"])],
        "multi_class": [StrOptions({"ovr", "crammer_singer"})],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "threshold": [None, str],
    }

    def __init__(
        self,
        penalty: str = "l2",
        loss: str | LossLike = "squared_hinge",
        *,
        dual: bool | str = "auto",
        tol: float = 1e-4,
        C: float = 1.0,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Mapping[Any, float] | str | None = None,
        verbose: bool | int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        solver: str = "auto",
        max_seconds: float | None = None,
        gap_tol: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        threshold: str | None = None,
    ) -> None:
        self.penalty = penalty
        self.loss = loss
        self.dual = dual
        self.tol = tol
        self.C = C
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.solver = solver
        self.max_seconds = max_seconds
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device
        self.threshold = threshold

    def _check_combination(self) -> Any:
        """Raise for combinations that the L1 penalty, or LIBLINEAR with the given `dual`, does not support."""
        if self.multi_class != "ovr" or self.loss not in ("hinge", "squared_hinge"):
            return
        smooth = self.loss == "squared_hinge"
        if self.penalty == "l1" and (not smooth or self.dual is True) or not smooth and self.dual is False:
            raise ValueError(
                f"Unsupported set of arguments: penalty='{self.penalty}', loss='{self.loss}', dual={self.dual}. The L1"
                " penalty needs a smooth loss; dual='auto' leaves the rest to the solver."
            )

    @_fit_context(prefer_skip_nested_validation=True)
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model; sample weights multiply C."""
        X, y = check_fit(self, X, y)
        y = column_or_1d(y)
        self._check_combination()
        self.classes_, codes = class_codes(y)
        total = len(y)
        X, y, weights = self._drop_unweighted(X, y, sample_weight)
        present = self.classes_
        if len(y) < total:
            present, codes = np.unique(y), np.searchsorted(self.classes_, y)
        k = len(self.classes_)
        if len(present) < 2:
            raise ValueError(
                "This solver needs samples of at least 2 classes in the data, but the data contains only one class:"
                f" {present[0]!r}"
            )
        factors = class_factors(self.class_weight, self.classes_, y, weights if sample_weight is not None else None)
        costs = weights * factors[codes]
        report = report_of(self, X, y)
        if self.multi_class == "crammer_singer":
            if intercept_feature(self) == float("inf"):
                raise ValueError("multi_class='crammer_singer' needs a finite intercept_scaling")
            own: dict[str, Any] = {"multiclass": "crammer-singer"}
        else:
            own = {"multiclass": "ovr", "loss": self.loss, "penalty": self.penalty}
        own["threshold"] = self.threshold
        result, weights_, bias = self._train("classify", X, codes.astype(np.float64), costs, report, **own)
        if self.multi_class == "crammer_singer" and len(weights_) == 2:
            weights_, bias = weights_[[1]] - weights_[[0]], bias[[1]] - bias[[0]]
        if len(present) < k:
            weights_, bias = self._with_absent(weights_, bias, np.searchsorted(self.classes_, present))
        self.coef_ = weights_
        self.intercept_ = bias if self.fit_intercept else 0.0
        store_threshold(self, result.get("threshold"))
        self._store_fit(result, report)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Class of each sample."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > getattr(self, "threshold_", 0.0)).astype(np.intp)]
        return self.classes_[scores.argmax(axis=1)]

    def decision_function(self, X: Any) -> Any:
        """Scores of the samples, one column per class, or positive for the second of two classes."""
        scores = self._rows_times_weights(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def _with_absent(self, weights: Any, bias: Any, present: Any) -> Any:
        """One row per class: classes whose samples all have weight 0 get no weights and never win."""
        if len(weights) == 1:
            weights, bias = np.vstack([-weights, weights]), np.concatenate([-bias, bias])
        coef = np.zeros((len(self.classes_), weights.shape[1]))
        intercept = np.full(len(self.classes_), -1.0)
        coef[present], intercept[present] = weights, bias
        return coef, intercept


class LinearSVR(RegressorMixin, LinearModel, _LinearModel):
    """Linear support vector regression: scikit-learn's `LinearSVR`, with any loss and a certificate.

    Parameters
    ----------
    epsilon : float, default=0.0
        Half-width of the tube, for losses that have one.
    loss : str or object, default="epsilon_insensitive"
        Name of a regression loss of `margrave.losses`, or an object with `value(y, z)` and `slope(y, z)`.
    dual, random_state : object
        Accepted for compatibility: the solver does not depend on them, and nothing is random.
    tol : float, default=1e-4
        The fit stops at a relative duality gap of 1e-3 · `tol`, unless `gap_tol` is given.
    C : float, default=1.0
        Cost of errors.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    intercept_scaling : float, default=1.0
        The intercept is the weight of a constant feature with this value and penalised like the other weights, as in
        scikit-learn; `float("inf")` leaves it unpenalised.
    verbose : int, default=0
        Show progress.
    max_iter : int, default=1000
        Limit on iterations.
    solver : str, default="auto"
        "auto" or "linear".
    max_seconds : float, default=None
        Time limit. A fit that reaches it keeps the best model so far and warns.
    gap_tol : float, default=None
        Relative duality gap to reach, in addition to `tol`.
    n_jobs : int, default=None
        Number of threads; all cores by default. Results do not depend on it.
    device : {"auto", "cpu", "cuda", "cuda:N"}, default="auto"
        Where to compute: ``"cuda:N"`` is NVIDIA card N; ``"auto"`` takes a card for 20 000 rows or more, if there is one.

    Attributes
    ----------
    coef_, intercept_ : ndarray
        The weights, as in scikit-learn; one row, and one intercept, per target if there are several.
    certificate_ : Certificate
        How far the result can be from the optimum.
    history_ : list of dict
        Steps of the solver.
    solver_, reason_ : str
        The solver that was used, and the reason for the choice.
    n_iter_ : int or ndarray
        Number of iterations.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import LinearSVR
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> model = LinearSVR(C=100).fit(X, 2 * X.ravel() + 1)
    >>> print(f"{model.coef_[0]:.2f}")
    2.00
    """

    _parameter_constraints: dict[str, Any] = {
        **_SHARED,
        "epsilon": [Real],
        "loss": [str, HasMethods(["value", "slope"])],
    }

    def __init__(
        self,
        *,
        epsilon: float = 0.0,
        tol: float = 1e-4,
        C: float = 1.0,
        loss: str | LossLike = "epsilon_insensitive",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        dual: bool | str = "auto",
        verbose: bool | int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        solver: str = "auto",
        max_seconds: float | None = None,
        gap_tol: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
    ) -> None:
        self.epsilon = epsilon
        self.tol = tol
        self.C = C
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.dual = dual
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.solver = solver
        self.max_seconds = max_seconds
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device

    @_fit_context(prefer_skip_nested_validation=True)
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model; sample weights multiply C. `y` may have several columns, one per target."""
        X, y = check_fit(self, X, y, y_numeric=True, **({"multi_output": True} if several(y) else {}))
        y = (y if several(y) else column_or_1d(y)).astype(np.float64)
        X, y, weights = self._drop_unweighted(X, y, sample_weight)
        report = report_of(self, X, y)
        own = {"loss": self.loss, "epsilon": self.epsilon}
        result, weights_, bias = self._train("regress", X, np.ascontiguousarray(y), weights, report, **own)
        self.coef_ = weights_ if y.ndim == 2 else weights_.ravel()
        self.intercept_ = bias if self.fit_intercept else 0.0
        self._store_fit(result, report)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _decision_function(self, X: Any) -> Any:
        return self._rows_times_weights(X)


__all__ = ["LinearSVC", "LinearSVR"]
