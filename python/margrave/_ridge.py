"""Kernel ridge regression with the interface of `sklearn.kernel_ridge.KernelRidge`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, _fit_context
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _core
from ._card import card_array, not_here, on_card, to_host
from ._machine import _Versioned
from ._prepare import INPUT, check_fit, check_square, check_weights, dense
from ._spec import EXTRA, KERNELS, finish, model_parts, params, points, threads
from .losses import LossLike

if TYPE_CHECKING:
    from typing_extensions import Self

#: Kernels that the engine evaluates; scikit-learn evaluates the others.
_ENGINE_KERNELS = {"linear", "poly", "polynomial", "rbf", "sigmoid", "laplacian", "matern32", "matern52"}


class KernelRidge(_Versioned, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Kernel ridge regression: scikit-learn's `KernelRidge`, with any loss and a certificate.

    Parameters
    ----------
    alpha : float or array-like of shape (n_targets,), default=1
        Regularisation strength.
    kernel : str or callable, default="linear"
        A kernel of scikit-learn or of `SVC`.
    gamma, degree, coef0 : float
        Parameters of the kernel, as in scikit-learn.
    kernel_params : dict, default=None
        Additional arguments for a kernel that is a function.
    loss : str or object, default=None
        None and "square" are ordinary kernel ridge regression. Any other regression loss, by name or as an object with
        `value(y, z)` and `slope(y, z)`, minimises Σ weight·loss + ½·alpha·‖f‖², one target after the other.
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

    Attributes
    ----------
    dual_coef_, X_fit_ : ndarray
        The model, as in scikit-learn.
    certificate_ : Certificate
        How far the result can be from the optimum.
    history_ : list of dict
        Steps of the solver, if it reports them.
    solver_, reason_ : str
        The solver that was used, and the reason for the choice, for losses other than the square.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import KernelRidge
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> Y = np.hstack([np.sin(X), np.cos(X)])
    >>> model = KernelRidge(alpha=0.01, kernel="rbf", gamma=1.0, loss="huber:delta=0.5").fit(X, Y)
    >>> model.predict(X).shape
    (60, 2)
    """

    _parameter_constraints: dict[str, Any] = {
        **EXTRA,
        "alpha": [Interval(Real, 0, None, closed="left"), "array-like"],
        "kernel": [StrOptions(set(PAIRWISE_KERNEL_FUNCTIONS) | KERNELS), callable],
        "gamma": [Interval(Real, 0, None, closed="left"), None],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "kernel_params": [dict, None],
    }

    def __init__(
        self,
        alpha: npt.ArrayLike = 1,
        *,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        loss: str | LossLike | None = None,
        solver: str = "auto",
        max_seconds: float | None = None,
        gap_tol: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
    ) -> None:
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.loss = loss
        self.solver = solver
        self.max_seconds = max_seconds
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _native(self) -> Any:
        """Whether the engine evaluates the kernel."""
        return isinstance(self.kernel, str) and self.kernel in _ENGINE_KERNELS and self.degree == int(self.degree)

    def _gram(self, X: Any, Y: Any = None) -> Any:
        if callable(self.kernel):
            extra = self.kernel_params or {}
        else:
            extra = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return pairwise_kernels(X, Y, metric=self.kernel, filter_params=True, **extra)

    def _takes_card(self) -> Any:
        """Whether X may be in the memory of a card."""
        return self._native() and np.all(np.asarray(self.alpha) > 0)

    def _points_or_gram(self, X: Any) -> Any:
        """X if the engine evaluates the kernel, the kernel matrix of X otherwise."""
        if self._native():
            return X
        return dense(X if self.kernel == "precomputed" else self._gram(X))

    def _params(self, X: Any, work: Any, **own: Any) -> Any:
        kernel: Any = "precomputed"
        if self._native():
            kernel = "poly" if self.kernel == "polynomial" else self.kernel
        return params(
            "regress",
            kernel=kernel,
            gamma=1.0 / X.shape[1] if self.gamma is None else self.gamma,
            degree=int(self.degree) if self._native() else 3,
            coef0=self.coef0,
            bias=False,
            solver=own.pop("solver", self.solver),
            gap_tol=self.gap_tol,
            max_seconds=self.max_seconds,
            threads=threads(self.n_jobs, work),
            device=self.device,
            **own,
        )

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training points, or the kernel matrix for `kernel="precomputed"`. An array of CuPy or PyTorch in the memory of a
            card is used there, by that card; `X_fit_` is a NumPy array in any case.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights of the squared residuals.
        """
        if on_card(X):
            X, y = check_fit(self, X, y, card=self._takes_card(), multi_output=True, y_numeric=True)
        else:
            X, y = validate_data(
                self,
                X,
                to_host(y),
                accept_sparse=("csr", "csc"),
                dtype=INPUT["dtype"],
                multi_output=True,
                y_numeric=True,
            )
        X = X.tocsr() if sp.issparse(X) else X
        if self.kernel == "precomputed":
            check_square(X)
        weights = check_weights(to_host(sample_weight), X)
        targets = y.reshape(X.shape[0], -1).astype(np.float64)
        alpha = np.atleast_1d(np.asarray(self.alpha, dtype=np.float64))
        if alpha.size not in (1, targets.shape[1]):
            raise ValueError(
                f"{alpha.size} values of alpha for {targets.shape[1]} targets: give one, or one per target"
            )
        K = self._points_or_gram(X)
        if self.loss is not None and self.loss not in ("square", "squared_error"):
            dual = self._any_loss(K, targets, alpha, weights)
        else:
            dual = self._least_squares(K, targets, alpha, weights)
        self.X_fit_ = to_host(X)
        self.dual_coef_ = dual.ravel() if y.ndim == 1 else dual
        return self

    def _least_squares(self, K: Any, targets: Any, alpha: Any, weights: Any) -> Any:
        work = float(K.shape[0]) ** 3
        dual = np.empty_like(targets)
        machines = []
        groups = [np.arange(targets.shape[1])] if alpha.size == 1 else [[at] for at in range(alpha.size)]
        for group, own in zip(groups, alpha):
            part = np.ascontiguousarray(targets[:, group])
            if own == 0:
                dual[:, group] = self._interpolate(K, part, weights)
                continue
            solver = "ridge" if self.solver == "auto" else self.solver
            spec = self._params(K, work, loss="square", C=1.0 / own, solver=solver, leave_one_out=self._wants())
            result = _core.fit(spec, points(K), part.ravel(), weights, None, part.shape[1])
            beta = np.zeros_like(part)
            beta[result["rows"]] = result["coefficients"]
            dual[:, group] = beta
            machines.extend(result["machines"])
            # With a penalty per target there would be several answers.
            self._left_out = result.get("left_out") if len(groups) == 1 else None
        if machines:
            finish(self, {"machines": machines})
        return dual

    def _wants(self) -> bool:
        """Whether a fit computes leave-one-out scores."""
        return bool(getattr(self, "_wants_left_out", False))

    def _interpolate(self, K: Any, targets: Any, weights: Any) -> Any:
        """The least-squares fit of smallest norm, for alpha = 0: K·β = y where that is possible."""
        matrix = dense(self._gram(K) if self._native() else K)
        root = np.sqrt(weights)[:, None]
        return root * scipy.linalg.lstsq(root * matrix * root.T, root * targets)[0]

    def _any_loss(self, K: Any, targets: Any, alpha: Any, weights: Any) -> Any:
        if not alpha.all():
            raise ValueError("losses other than the square need alpha > 0")
        dual = np.zeros(targets.shape)
        results = []
        for at, own in enumerate(np.broadcast_to(alpha, targets.shape[1])):
            spec = self._params(K, float(K.shape[0]) ** 3, loss=self.loss, C=1.0 / own, leave_one_out=self._wants())
            result = _core.fit(spec, points(K), np.ascontiguousarray(targets[:, at]), weights)
            dual[result["rows"], at] = result["coefficients"][:, 0]
            results.append(result)
        machines = [machine for result in results for machine in result["machines"]]
        self._left_out = results[0].get("left_out") if len(results) == 1 else None
        finish(self, {**results[0], "machines": machines})
        return dual

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predicted value of each sample, one column per target if there are several."""
        check_is_fitted(self)
        if on_card(X):
            if not self._takes_card():
                not_here(self, f" with kernel={self.kernel!r}")
            X = card_array(self, X, reset=False)
            # Sparse centres are multiplied on the processor.
            X = X.copy() if sp.issparse(self.X_fit_) else X
        else:
            X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=INPUT["dtype"], reset=False)
        if not self._native():
            K = X if self.kernel == "precomputed" else self._gram(X, self.X_fit_)
            return K @ self.dual_coef_
        centres = self.X_fit_
        if sp.issparse(X) != sp.issparse(centres):
            X, centres = sp.csr_matrix(X), sp.csr_matrix(centres)
        work = float(X.shape[0]) * X.shape[1] * centres.shape[0]
        machine = _core.Machine(self._params(X, work), self._parts(centres))
        scores = machine.scores(points(X), threads(self.n_jobs, work), False)
        return scores.ravel() if self.dual_coef_.ndim == 1 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions."""
        return super().score(X, to_host(y), to_host(sample_weight))

    def _parts(self, centres: Any) -> Any:
        """The fitted model as `_core` takes it."""
        n, width = centres.shape
        dual = self.dual_coef_.reshape(n, -1)
        return model_parts(
            np.ascontiguousarray(dual),
            np.zeros(dual.shape[1]),
            rows=np.arange(n, dtype=np.int32),
            width=width,
            n=n,
            centres=points(centres),
        )


__all__ = ["KernelRidge"]
