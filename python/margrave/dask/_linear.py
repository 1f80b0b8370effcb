"""`LinearSVC` and `LinearSVR` on Dask collections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from .. import _core
from .._linear import GAP_PER_TOL, LinearSVC, LinearSVR
from .._prepare import intercept_feature
from .._spec import finish, params, report_of
from ..losses import LossLike
from ._cluster import Ended, Progress, Rounds, call, threads_per_task
from ._newton import Linear
from ._partitions import Partitions
from ._predict import Classifies, Predicts

if TYPE_CHECKING:
    from typing_extensions import Self


def factors_of(class_weight: Any, classes: Any, totals: Any) -> Any:
    """Factor on C of each class, from the total weight of each."""
    if class_weight is None:
        return np.ones(len(classes))
    if class_weight == "balanced":
        return totals.sum() / (len(classes) * totals)
    return compute_class_weight(class_weight, classes=classes, y=classes)


def unit_of(data: Partitions) -> float:
    """Typical size of the deviation of targets from their mean, from the sample that is at hand."""
    weight, total = np.sum([data.found[at]["sums"] for at in data.full], axis=0)
    mean = total / weight
    sample = data.sample(1000)
    unit = float(np.mean(np.abs(sample["y"] - mean)))
    return unit if unit > 0 and np.isfinite(unit) else 1.0


def set_names(estimator: Any, data: Partitions) -> None:
    """Set number and names of the features."""
    estimator.n_features_in_ = data.features
    if data.columns is not None:
        estimator.feature_names_in_ = np.array(data.columns, dtype=object)
    else:
        estimator.__dict__.pop("feature_names_in_", None)


class _DaskLinear(Predicts):
    """Base of DaskLinearSVC and DaskLinearSVR."""

    def _local(self, base: Any) -> Any:
        own = base(**{name: value for name, value in self.get_params(deep=False).items() if name != "client"})
        names = ("coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_", "n_iter_", "certificate_")
        for name in (*names, "history_", "solver_", "reason_"):
            if name in self.__dict__:
                setattr(own, name, self.__dict__[name])
        return own

    def _spec(self, task: str, threads: int, **own: Any) -> dict[str, Any]:
        scaling = intercept_feature(self)
        return params(
            task,
            loss=self.loss,
            C=self.C,
            tol=self.tol,
            gap_tol=GAP_PER_TOL * self.tol if self.gap_tol is None else self.gap_tol,
            bias=scaling is not None,
            intercept_scaling=scaling if scaling is not None and np.isfinite(scaling) else None,
            threads=threads,
            **own,
        )

    def _minimise(self, rounds: Rounds, data: Partitions, spec: Any, positives: Any, unit: float) -> Any:
        """Minimise, and set what every fit has. Returns the machines."""
        progress = Progress(report_of(self), rounds)
        linear = Linear(rounds, data, progress, spec, intercept_feature(self), positives, unit, self.max_iter)
        raised = None
        try:
            linear.start(data.sample())
            linear.run()
        except Ended as ended:
            raised = ended.raised
            if ended.status == "time_limit" and not any(machine.iterations for machine in linear.machines):
                raise _core.BudgetError(
                    f"max_seconds={self.max_seconds} ended before the first step: raise it"
                ) from None
        progress.close()
        coef = np.array([machine.w for machine in linear.machines])
        bias = np.array([machine.b for machine in linear.machines])
        set_names(self, data)
        result = linear.result(raised)
        self.n_iter_ = max(1, *(machine.iterations for machine in linear.machines), 1)
        self._rounds = {"tasks": rounds.count, "passes": linear.passes, "bytes": rounds.received}
        return coef, bias, result


class DaskLinearSVC(Classifies, _DaskLinear, LinearSVC):
    """`LinearSVC` on Dask collections, with any convex loss and a certificate over all partitions.

    Every round of Newton's method is one short task per partition, which returns sums over its rows. Tasks keep nothing,
    so Dask repeats those of a lost worker, and the result has the same bits on any number of workers.

    Parameters
    ----------
    penalty, multi_class : str
        Must be "l2" and "ovr".
    loss : str or object, default="squared_hinge"
        Name of a convex classification loss of `margrave.losses` ("logistic" is L2-regularised logistic regression), or
        an object with `value(y, z)` and `slope(y, z)` that workers can unpickle.
    dual, random_state, solver, n_jobs, device : object
        Accepted for compatibility. Threads are those of the workers.
    tol : float, default=1e-4
        The fit stops at a relative duality gap of 1e-3 · `tol`, unless `gap_tol` is given.
    C : float, default=1.0
        Cost of errors.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    intercept_scaling : float, default=1.0
        As in `LinearSVC`; `float("inf")` leaves the intercept unpenalised.
    class_weight : dict or "balanced", default=None
        Factors on the cost of each class.
    verbose : int, default=0
        Show progress.
    max_iter : int, default=1000
        Limit on Newton steps.
    max_seconds : float, default=None
        Time limit. A fit that reaches it keeps the best model so far and warns.
    gap_tol : float, default=None
        Relative duality gap to reach.
    client : distributed.Client, default=None
        The client; the one that is in use by default. It is not part of pickles.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, n_features_in_ : object
        As in `LinearSVC`.
    certificate_ : Certificate
        How far the result can be from the optimum of the problem over all partitions.
    history_ : list of dict
        Steps of the solver.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from margrave.dask import DaskLinearSVC
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X = da.random.default_rng(0).normal(size=(400, 3), chunks=(100, 3))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = DaskLinearSVC(loss="logistic", client=client).fit(X, y)
    >>> model.certificate_.status
    'optimal'
    >>> model.predict(X).chunks
    ((100, 100, 100, 100),)
    >>> client.close()
    """

    _parameter_constraints: dict[str, Any] = {**LinearSVC._parameter_constraints, "client": "no_validation"}

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
        client: Any = None,
    ) -> None:
        super().__init__(
            penalty,
            loss,
            dual=dual,
            tol=tol,
            C=C,
            multi_class=multi_class,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            class_weight=class_weight,
            verbose=verbose,
            random_state=random_state,
            max_iter=max_iter,
            solver=solver,
            max_seconds=max_seconds,
            gap_tol=gap_tol,
            n_jobs=n_jobs,
            device=device,
        )
        self.client = client

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model; sample weights multiply C.

        Parameters
        ----------
        X : dask array, dask dataframe, or list of delayed arrays or CSR matrices
            Rows of features, split by rows.
        y : dask array, dask series, or list of delayed arrays
            Labels, split like X.
        sample_weight : the same, default=None
            Factors on C.

        Returns
        -------
        self : object
            The fitted estimator; an awaitable of it if the client is asynchronous.
        """
        self._validate_params()
        if self.penalty != "l2" or self.multi_class != "ovr":
            raise ValueError(
                f"penalty='{self.penalty}' and multi_class='{self.multi_class}' cannot be split into partitions: use"
                " penalty='l2' and multi_class='ovr', or LinearSVC on one machine"
            )
        check_loss(self.loss)
        return call(self, lambda client: self._fit(client, X, y, sample_weight))

    def _fit(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        rounds = Rounds(client, self.max_seconds, type(self).__name__)
        data = Partitions(rounds, "classify", X, y, sample_weight)
        classes, totals, counts = data.classes()
        if (counts > 0).sum() < 2:
            raise ValueError(
                "This solver needs samples of at least 2 classes in the data, but the data contains only one class:"
                f" {classes[int(np.argmax(counts))].item()!r}"
            )
        if (counts == 0).any():
            raise ValueError(
                f"all samples of class {classes[int(np.argmin(counts))].item()!r} have weight 0: leave them out"
            )
        data.make(classes, factors_of(self.class_weight, classes, totals), float(self.C))
        spec = self._spec("classify", threads_per_task(client, len(data.parts)), multiclass="ovr")
        positives = [1] if len(classes) == 2 else list(range(len(classes)))
        coef, bias, result = self._minimise(rounds, data, spec, positives, 1.0)
        self.classes_ = classes
        self.coef_, self.intercept_ = coef, bias if self.fit_intercept else 0.0
        finish(self, result, self.max_iter)
        return self

    def to_local(self) -> LinearSVC:
        """The `LinearSVC` with the same parameters and the same fitted model."""
        return self._local(LinearSVC)


class DaskLinearSVR(_DaskLinear, LinearSVR):
    """`LinearSVR` on Dask collections, with any convex loss and a certificate over all partitions.

    Parameters
    ----------
    epsilon : float, default=0.0
        Half-width of the tube, for losses that have one.
    loss : str or object, default="epsilon_insensitive"
        Name of a convex regression loss of `margrave.losses`, or an object with `value(y, z)` and `slope(y, z)` that
        workers can unpickle.
    dual, random_state, solver, n_jobs, device : object
        Accepted for compatibility. Threads are those of the workers.
    tol : float, default=1e-4
        The fit stops at a relative duality gap of 1e-3 · `tol`, unless `gap_tol` is given.
    C : float, default=1.0
        Cost of errors.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    intercept_scaling : float, default=1.0
        As in `LinearSVR`; `float("inf")` leaves the intercept unpenalised.
    verbose : int, default=0
        Show progress.
    max_iter : int, default=1000
        Limit on Newton steps.
    max_seconds : float, default=None
        Time limit. A fit that reaches it keeps the best model so far and warns.
    gap_tol : float, default=None
        Relative duality gap to reach.
    client : distributed.Client, default=None
        The client; the one that is in use by default. It is not part of pickles.

    Attributes
    ----------
    coef_, intercept_, n_iter_, n_features_in_ : object
        As in `LinearSVR`.
    certificate_ : Certificate
        How far the result can be from the optimum of the problem over all partitions.
    history_ : list of dict
        Steps of the solver.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from margrave.dask import DaskLinearSVR
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X = da.random.default_rng(0).normal(size=(400, 3), chunks=(100, 3))
    >>> model = DaskLinearSVR(C=100, client=client).fit(X, 2 * X[:, 0])
    >>> print(f"{model.coef_[0]:.2f}")
    2.00
    >>> client.close()
    """

    _parameter_constraints: dict[str, Any] = {**LinearSVR._parameter_constraints, "client": "no_validation"}

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
        client: Any = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            tol=tol,
            C=C,
            loss=loss,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            dual=dual,
            verbose=verbose,
            random_state=random_state,
            max_iter=max_iter,
            solver=solver,
            max_seconds=max_seconds,
            gap_tol=gap_tol,
            n_jobs=n_jobs,
            device=device,
        )
        self.client = client

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model; sample weights multiply C.

        Parameters
        ----------
        X : dask array, dask dataframe, or list of delayed arrays or CSR matrices
            Rows of features, split by rows.
        y : dask array, dask series, or list of delayed arrays
            Targets, split like X.
        sample_weight : the same, default=None
            Factors on C.

        Returns
        -------
        self : object
            The fitted estimator; an awaitable of it if the client is asynchronous.
        """
        self._validate_params()
        check_loss(self.loss)
        return call(self, lambda client: self._fit(client, X, y, sample_weight))

    def _fit(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        rounds = Rounds(client, self.max_seconds, type(self).__name__)
        data = Partitions(rounds, "regress", X, y, sample_weight)
        data.make(None, None, float(self.C))
        spec = self._spec("regress", threads_per_task(client, len(data.parts)), epsilon=self.epsilon)
        coef, bias, result = self._minimise(rounds, data, spec, [None], unit_of(data))
        self.coef_, self.intercept_ = coef.ravel(), bias if self.fit_intercept else 0.0
        finish(self, result, self.max_iter)
        return self

    def to_local(self) -> LinearSVR:
        """The `LinearSVR` with the same parameters and the same fitted model."""
        return self._local(LinearSVR)


def check_loss(loss: Any) -> None:
    """Raise for a loss that is not convex: its sums over partitions have no certificate."""
    from .._spec import loss_name

    name = loss_name(loss)
    if isinstance(name, str) and not _core.loss_properties(name)["convex"]:
        raise ValueError(
            f"the loss {name} is not convex: models on Dask need a convex loss. Use the estimator without 'Dask' on one"
            " machine."
        )


__all__ = ["DaskLinearSVC", "DaskLinearSVR"]
