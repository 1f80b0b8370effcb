"""`KernelRidge` on Dask collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .._ridge import KernelRidge
from .._spec import finish, params
from ..losses import LossLike
from ._cluster import Rounds, call, threads_per_task
from ._kernel import GAP_PER_TOL, approximate
from ._linear import check_loss, set_names, unit_of
from ._partitions import Partitions
from ._predict import Predicts

if TYPE_CHECKING:
    from typing_extensions import Self


class DaskKernelRidge(Predicts, KernelRidge):
    """`KernelRidge` on Dask collections, on the features of `approx` centres.

    Parameters
    ----------
    alpha : float, default=1
        Regularisation strength.
    approx : int, default=1000
        Number of centres.
    client : distributed.Client, default=None
        The client; the one that is in use by default. It is not part of pickles.
    **others : object
        The other parameters are those of `KernelRidge`. There is one target.

    Attributes
    ----------
    dual_coef_, X_fit_ : ndarray
        Coefficients and centres.
    certificate_ : Certificate
        How far the result can be from the optimum of the approximate problem over all partitions.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from margrave.dask import DaskKernelRidge
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X = da.random.default_rng(0).normal(size=(400, 1), chunks=(100, 1))
    >>> model = DaskKernelRidge(alpha=0.01, kernel="rbf", approx=30, client=client).fit(X, da.sin(X[:, 0]))
    >>> model.certificate_.status
    'optimal'
    >>> client.close()
    """

    _parameter_constraints: dict[str, Any] = {
        **KernelRidge._parameter_constraints,
        "client": "no_validation",
        "approx": "no_validation",
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
        approx: int = 1000,
        client: Any = None,
    ) -> None:
        super().__init__(
            alpha=alpha,
            kernel=kernel,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
            loss=loss,
            solver=solver,
            max_seconds=max_seconds,
            gap_tol=gap_tol,
            n_jobs=n_jobs,
            device=device,
        )
        self.approx = approx
        self.client = client

    #: What the approximation of `_DaskKernel` asks for.
    tol = 1e-4

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model; sample weights multiply the losses.

        Parameters
        ----------
        X : dask array, dask dataframe, or list of delayed arrays or CSR matrices
            Rows of features, split by rows.
        y : dask array, dask series, or list of delayed arrays
            Targets, split like X.
        sample_weight : the same, default=None
            Factors on the losses.

        Returns
        -------
        self : object
            The fitted estimator; an awaitable of it if the client is asynchronous.
        """
        self._validate_params()
        if callable(self.kernel) or self.kernel not in ("linear", "poly", "polynomial", "rbf", "sigmoid", "laplacian"):
            raise ValueError(f"DaskKernelRidge needs a kernel of the engine by name, not {self.kernel!r}")
        alpha: Any = self.alpha
        if np.ndim(alpha) or not alpha > 0:
            raise ValueError("DaskKernelRidge needs one alpha > 0")
        if not isinstance(self.approx, (int, np.integer)) or self.approx < 1:
            raise ValueError(f"approx must be a number of centres ≥ 1, but it is {self.approx!r}")
        check_loss(self.loss or "square")
        return call(self, lambda client: self._fit_on(client, X, y, sample_weight))

    def _fit_on(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        rounds = Rounds(client, self.max_seconds, type(self).__name__)
        data = Partitions(rounds, "regress", X, y, sample_weight)
        alpha: Any = self.alpha
        C = 1.0 / float(alpha)
        data.make(None, None, C)
        spec = params(
            "regress",
            kernel="poly" if self.kernel == "polynomial" else self.kernel,
            gamma=1.0 / data.features if self.gamma is None else self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            loss=self.loss or "square",
            C=C,
            tol=None,
            gap_tol=GAP_PER_TOL * self.tol if self.gap_tol is None else self.gap_tol,
            bias=False,
            threads=threads_per_task(client, len(data.parts)),
        )
        set_names(self, data)
        unit = unit_of(data)
        found = approximate(self, rounds, data, spec, [None], unit, False)
        centres, coefficients, _, result = found
        self.X_fit_, self.dual_coef_ = centres, coefficients.ravel()
        finish(self, result)
        return self

    def to_local(self) -> KernelRidge:
        """The `KernelRidge` with the same parameters and the same fitted model."""
        own = ("client", "approx")
        given = {name: value for name, value in self.get_params(deep=False).items() if name not in own}
        local = KernelRidge(**given)
        fitted = ("X_fit_", "dual_coef_", "certificate_", "history_", "n_features_in_", "feature_names_in_")
        local.__dict__.update({name: self.__dict__[name] for name in fitted if name in self.__dict__})
        return local


__all__ = ["DaskKernelRidge"]
