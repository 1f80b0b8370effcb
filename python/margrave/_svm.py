"""Kernel models with the interface of `sklearn.svm`.

Constructors and docstrings repeat the shared parameters on purpose: scikit-learn reads parameters from the signature,
and editors and the documentation site read docstrings from the source.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ._machine import _Classifier, _KernelModel, _Regressor
from ._spec import APPROXIMATE, without
from .losses import LossLike


class SVC(_Classifier):
    """Support vector classification: scikit-learn's `SVC`, with any loss and a certificate.

    Parameters
    ----------
    C : float, default=1.0
        Cost of errors: the fit minimises ½‖f‖² + C·Σ loss.
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
    probability : bool, default=False
        Enable `predict_proba`. It is calibrated on leave-one-out scores in closed form, or on folds where those would be
        coarse: deterministic either way.
    probability_rule : {"auto", "agree", "free"}, default="auto"
        "agree": the most probable class is the predicted one. "free": probabilities estimate frequencies, whatever is
        predicted. "auto": free where `class_weight` makes costs differ or where the log-loss of "free" on left-out
        scores is lower by more than 1 %, otherwise agree. `probability_rule_` and `probability_reason_` say which.
    threshold : str, default=None
        Two classes: how to choose the score above which `predict` returns the second class. "max-f1", "recall=0.9" (the
        largest precision with at least this recall) or "cost=FP:1,FN:10" (the least total cost), on left-out scores.
        None is 0. `threshold_` has the score; it is kept by `save`.
    class_weight : dict or "balanced", default=None
        Factors on the cost of each class.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of `decision_function` with several classes; one model per pair of classes is trained in either case.
    break_ties : bool, default=False
        Break ties of votes by the scores ("ovr" only).
    random_state : object, default=None
        Accepted for compatibility; nothing is random.
    loss : str or object, default=None
        None is the hinge loss. Otherwise the name of a loss of `margrave.losses` ("squared-hinge", "logistic",
        "sigmoid:eta=2", …) or an object with `value(y, z)` and `slope(y, z)`, where y is -1 or +1.
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
    approx : int or "auto", default=None
        Train on this many centres instead of all rows, for many rows: `certificate_` bounds the distance from the exact
        optimum, and its `approximation` has the parts. That distance has to be at most `gap_tol` (1e-2 by default),
        otherwise the fit warns and its status is "inaccurate". "auto": as many centres as that needs. `tol` is not used.
        For two classes or regression.
    certify : {"exact", "sampled", "own"}, default=None
        How that distance is bounded; see `Certificate`. By default exactly if that takes only seconds, else sampled.
        "own": not at all, only the problem on the centres is certified.
    polish : bool, default=False
        Go on from the model on few centres to the exact one.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_ : ndarray
        The model, as in scikit-learn.
    classes_, class_weight_ : ndarray
        The classes in ascending order, and the factor on the cost of each.
    n_features_in_, fit_status_ : int
        Number of features, and 0 if the fit is optimal, 1 otherwise.
    shape_fit_ : tuple of int
        Shape of the training data.
    certificate_ : Certificate
        How far the result can be from the optimum.
    history_ : list of dict
        Steps of the solver.
    solver_, reason_ : str
        The solver that was used, and the reason for the choice.
    n_iter_ : int or ndarray
        Number of iterations.
    threshold_ : float
        The score above which `predict` returns the second of two classes; 0 unless `threshold` chose another.
    threshold_recall_, threshold_precision_ : float
        Recall and precision of the second class at the threshold, on the left-out scores it was chosen on.

    Examples
    --------
    >>> from margrave import SVC
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SVC(C=10).fit(X, y)
    >>> model.certificate_.status
    'optimal'
    >>> model.score(X, y) > 0.97
    True
    """

    _parameter_constraints: dict[str, Any] = {**without(_Classifier._parameter_constraints, "nu"), **APPROXIMATE}

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
        gamma: str | float = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: bool | str = False,
        tol: float = 1e-3,
        cache_size: float = 200,
        class_weight: Mapping[Any, float] | str | None = None,
        verbose: bool | int = False,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        random_state: Any = None,
        loss: str | LossLike | None = None,
        solver: str = "auto",
        max_seconds: float | None = None,
        gap_tol: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        warm_start: bool = False,
        probability_rule: str = "auto",
        threshold: str | None = None,
        approx: int | str | None = None,
        certify: str | None = None,
        polish: bool = False,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.probability_rule = probability_rule
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.random_state = random_state
        self.loss = loss
        self.solver = solver
        self.max_seconds = max_seconds
        self.approx = approx
        self.certify = certify
        self.polish = polish
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device
        self.warm_start = warm_start
        self.threshold = threshold

    def _own_params(self) -> Any:
        return {"C": self.C, "loss": self.loss, **self._probability_params(), **self._approximate_params()}


class NuSVC(_Classifier):
    """ν-support vector classification: scikit-learn's `NuSVC` with a certificate. It uses class weights as well.

    Parameters
    ----------
    nu : float, default=0.5
        Upper bound on the fraction of margin errors and lower bound on the fraction of support vectors.
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
    probability : bool, default=False
        Enable `predict_proba`. It is calibrated on leave-one-out scores in closed form, or on folds where those would be
        coarse: deterministic either way.
    probability_rule : {"auto", "agree", "free"}, default="auto"
        "agree": the most probable class is the predicted one. "free": probabilities estimate frequencies, whatever is
        predicted. "auto": free where `class_weight` makes costs differ or where the log-loss of "free" on left-out
        scores is lower by more than 1 %, otherwise agree. `probability_rule_` and `probability_reason_` say which.
    threshold : str, default=None
        Two classes: how to choose the score above which `predict` returns the second class. "max-f1", "recall=0.9" (the
        largest precision with at least this recall) or "cost=FP:1,FN:10" (the least total cost), on left-out scores.
        None is 0. `threshold_` has the score; it is kept by `save`.
    class_weight : dict or "balanced", default=None
        Factors on the cost of each class.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of `decision_function` with several classes; one model per pair of classes is trained in either case.
    break_ties : bool, default=False
        Break ties of votes by the scores ("ovr" only).
    random_state : object, default=None
        Accepted for compatibility; nothing is random.
    loss : str or object, default=None
        Must be None: the loss is fixed.
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
    classes_, class_weight_ : ndarray
        The classes in ascending order, and the factor on the cost of each.
    n_features_in_, fit_status_ : int
        Number of features, and 0 if the fit is optimal, 1 otherwise.
    shape_fit_ : tuple of int
        Shape of the training data.
    certificate_ : Certificate
        How far the result can be from the optimum.
    history_ : list of dict
        Steps of the solver.
    solver_, reason_ : str
        The solver that was used, and the reason for the choice.
    n_iter_ : int or ndarray
        Number of iterations.
    threshold_ : float
        The score above which `predict` returns the second of two classes; 0 unless `threshold` chose another.
    threshold_recall_, threshold_precision_ : float
        Recall and precision of the second class at the threshold, on the left-out scores it was chosen on.

    Examples
    --------
    >>> from margrave import NuSVC
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = NuSVC(nu=0.2).fit(X, y)
    >>> bool(model.n_support_.sum() >= 0.2 * len(y))
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **without(_Classifier._parameter_constraints, "C"),
        "loss": [None],
    }

    def __init__(
        self,
        *,
        nu: float = 0.5,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
        gamma: str | float = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: bool | str = False,
        tol: float = 1e-3,
        cache_size: float = 200,
        class_weight: Mapping[Any, float] | str | None = None,
        verbose: bool | int = False,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        random_state: Any = None,
        loss: str | LossLike | None = None,
        solver: str = "auto",
        max_seconds: float | None = None,
        gap_tol: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        warm_start: bool = False,
        probability_rule: str = "auto",
        threshold: str | None = None,
    ) -> None:
        self.nu = nu
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.probability_rule = probability_rule
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.random_state = random_state
        self.loss = loss
        self.solver = solver
        self.max_seconds = max_seconds
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device
        self.warm_start = warm_start
        self.threshold = threshold

    def _own_params(self) -> Any:
        return {"nu": self.nu, **self._probability_params()}

    def _encode(self, y: Any, sample_weight: Any, removed: Any = False) -> Any:
        codes, factors = super()._encode(y, sample_weight, removed)
        weights = factors if sample_weight is None else sample_weight * factors
        total = np.sort(np.bincount(codes.astype(np.intp), weights=weights))
        # In a pair of classes each gets half of νW; the class of smaller total weight limits ν.
        largest = 2 * total[0] / (total[0] + total[-1])
        if self.nu > largest * (1 + 1e-9):
            warnings.warn(
                f"specified nu is infeasible: with these classes it can be at most {largest:.3g}."
                " It is lowered for the pairs of classes that do not allow it.",
                UserWarning,
                stacklevel=5,
            )
        return codes, factors


class SVR(_Regressor):
    """Support vector regression: scikit-learn's `SVR`, with any loss and a certificate.

    Parameters
    ----------
    C : float, default=1.0
        Cost of errors: the fit minimises ½‖f‖² + C·Σ loss.
    epsilon : float, default=0.1
        Half-width of the tube, for losses that have one.
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
    loss : str or object, default=None
        None is the ε-insensitive loss. Otherwise the name of a loss of `margrave.losses` ("huber:delta=1",
        "pinball:tau=0.9", "square", …) or an object with `value(y, z)` and `slope(y, z)`.
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
    intervals : bool, default=False
        Keep what `predict(X, return_interval=...)` needs: quantiles of the leave-one-out residuals.
    approx : int or "auto", default=None
        Train on this many centres instead of all rows, for many rows: `certificate_` bounds the distance from the exact
        optimum, and its `approximation` has the parts. That distance has to be at most `gap_tol` (1e-2 by default),
        otherwise the fit warns and its status is "inaccurate". "auto": as many centres as that needs. `tol` is not used.
        For two classes or regression.
    certify : {"exact", "sampled", "own"}, default=None
        How that distance is bounded; see `Certificate`. By default exactly if that takes only seconds, else sampled.
        "own": not at all, only the problem on the centres is certified.
    polish : bool, default=False
        Go on from the model on few centres to the exact one.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_ : ndarray
        The model, as in scikit-learn.
    n_features_in_, fit_status_ : int
        Number of features, and 0 if the fit is optimal, 1 otherwise.
    shape_fit_ : tuple of int
        Shape of the training data.
    certificate_ : Certificate
        How far the result can be from the optimum.
    history_ : list of dict
        Steps of the solver.
    solver_, reason_ : str
        The solver that was used, and the reason for the choice.
    n_iter_ : int or ndarray
        Number of iterations; one per target if there are several.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import SVR
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> y = np.sin(X).ravel() + 0.1 * np.cos(50 * X).ravel()
    >>> model = SVR(C=10, loss="huber:delta=0.1", intervals=True).fit(X, y)
    >>> values, intervals = model.predict(X, return_interval=0.9)
    >>> intervals.shape
    (60, 2)
    """

    _parameter_constraints: dict[str, Any] = {
        **without(_KernelModel._parameter_constraints, "class_weight", "nu", "probability", "random_state"),
        **APPROXIMATE,
    }

    def __init__(
        self,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
        gamma: str | float = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        C: float = 1.0,
        epsilon: float = 0.1,
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
        intervals: bool = False,
        approx: int | str | None = None,
        certify: str | None = None,
        polish: bool = False,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.C = C
        self.epsilon = epsilon
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.loss = loss
        self.solver = solver
        self.max_seconds = max_seconds
        self.approx = approx
        self.certify = certify
        self.polish = polish
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device
        self.warm_start = warm_start
        self.intervals = intervals

    def _own_params(self) -> Any:
        own = {"C": self.C, "loss": self.loss, "epsilon": self.epsilon, "probability": self.intervals}
        return {**own, **self._approximate_params()}


class NuSVR(_Regressor):
    """ν-support vector regression: scikit-learn's `NuSVR` with a certificate.

    Parameters
    ----------
    nu : float, default=0.5
        Upper bound on the fraction of samples outside the tube; replaces ε.
    C : float, default=1.0
        Cost of errors: the fit minimises ½‖f‖² + C·Σ loss.
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
    loss : str or object, default=None
        Must be None: the loss is fixed.
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
    intervals : bool, default=False
        Keep what `predict(X, return_interval=...)` needs: quantiles of the leave-one-out residuals.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_ : ndarray
        The model, as in scikit-learn.
    n_features_in_, fit_status_ : int
        Number of features, and 0 if the fit is optimal, 1 otherwise.
    shape_fit_ : tuple of int
        Shape of the training data.
    certificate_ : Certificate
        How far the result can be from the optimum.
    history_ : list of dict
        Steps of the solver.
    solver_, reason_ : str
        The solver that was used, and the reason for the choice.
    n_iter_ : int or ndarray
        Number of iterations; one per target if there are several.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import NuSVR
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> model = NuSVR(nu=0.2, C=10).fit(X, np.sin(X).ravel())
    >>> model.score(X, np.sin(X).ravel()) > 0.99
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **without(_KernelModel._parameter_constraints, "class_weight", "epsilon", "probability", "random_state"),
        "loss": [None],
    }

    def __init__(
        self,
        *,
        nu: float = 0.5,
        C: float = 1.0,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
        gamma: str | float = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        tol: float = 1e-3,
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
        intervals: bool = False,
    ) -> None:
        self.nu = nu
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.tol = tol
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
        self.intervals = intervals

    def _own_params(self) -> Any:
        return {"C": self.C, "nu": self.nu, "probability": self.intervals}


__all__ = ["SVC", "SVR", "NuSVC", "NuSVR"]
