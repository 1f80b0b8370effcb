"""`SVC`, `SVR` and `KernelRidge` on Dask collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from .. import _core
from .._machine import _Native
from .._spec import cut_short, finish, loss_name, params, report_of
from .._svm import SVC, SVR
from ..losses import LossLike
from ._approx import choose_centres, features_part, gamma_of
from ._blocks import Blocks, number_part, pair_part
from ._cluster import Ended, Progress, Rounds, call, threads_per_task
from ._linear import check_loss, factors_of, set_names, unit_of
from ._newton import Linear
from ._partitions import Partitions
from ._predict import Classifies, Predicts

if TYPE_CHECKING:
    from typing_extensions import Self

#: Relative gap of approximate models, as a multiple of `tol`.
GAP_PER_TOL = 1e-3
#: Rows among which the centres of an approximation are chosen.
CANDIDATES = 20_000


def approximate(
    estimator: Any, rounds: Rounds, data: Partitions, spec: Any, pairs: Any, unit: float, free: bool
) -> Any:
    """Linear models in the features of an approximation; coefficients on the centres, one column per model."""
    progress = Progress(report_of(estimator), rounds)
    centres, factor = choose_centres(spec, data.sample(CANDIDATES)["x"], int(estimator.approx), 20_029)
    shared = rounds.value(centres, "centres")
    lower = rounds.value(factor, "factor")
    data.parts = [rounds.submit(features_part, part, spec, shared, lower, name="features") for part in data.parts]
    data.features, data.dense, data.values = factor.shape[0], True, factor.shape[0] * data.rows
    gap = GAP_PER_TOL * estimator.tol if estimator.gap_tol is None else estimator.gap_tol
    own = {**spec, "kernel": "linear", "solver": "linear", "gap_tol": gap, "memory": 2 << 30}
    steps = estimator.max_iter if getattr(estimator, "max_iter", -1) >= 0 else 1000
    linear = Linear(rounds, data, progress, own, np.inf if free else None, pairs, unit, steps)
    raised = None
    try:
        linear.start(data.sample())
        linear.run()
    except Ended as ended:
        raised = ended.raised
        if ended.status == "time_limit" and not any(machine.iterations for machine in linear.machines):
            raise
    progress.close()
    result = linear.result(raised)
    result["reason"] = (
        f"partitions on Dask: {len(factor)} centres, Newton's method on their features; the exact problem was not"
        " compared"
    )
    for machine in result["machines"]:
        on_centres(machine, len(factor))
    columns = [machine.w for machine in linear.machines]
    coefficients = scipy.linalg.solve_triangular(factor, np.array(columns).T, lower=True, trans="T")
    bias = np.array([machine.b for machine in linear.machines])
    return centres, coefficients, bias, result


def on_centres(machine: dict[str, Any], centres: int) -> None:
    """Mark the certificate of a model as that of the problem on its centres: the exact one was not compared."""
    if machine.get("gap") is not None:
        machine["approximation"] = {
            "centres": centres,
            "own_gap": machine["gap"],
            "own_relative_gap": machine["relative_gap"],
            "kernel_gap": None,
            "check": "own",
            "rows_drawn": 0,
        }


class _DaskKernel(Predicts):
    """Base of DaskSVC and DaskSVR."""

    def _checked(self) -> None:
        self._validate_params()
        name = type(self).__name__
        if callable(self.kernel) or self.kernel == "precomputed":
            raise ValueError(f"{name} needs a kernel by name: tasks compute it from rows of different partitions")
        if getattr(self, "probability", False) is True or getattr(self, "intervals", False):
            raise ValueError(
                f"{name} has no probabilities and intervals: they need the left-out scores of all rows. Calibrate"
                " decision_function on other data, or use the estimator without 'Dask'"
            )
        loss = loss_name(self.loss)
        if loss is not None and not isinstance(loss, str):
            raise ValueError(f"{name} takes losses by name")
        check_loss(self.loss or "hinge")

    def _problem(self, task: str, gamma: float, threads: int, **own: Any) -> dict[str, Any]:
        return params(
            task,
            kernel=self.kernel,
            gamma=gamma,
            degree=self.degree,
            coef0=self.coef0,
            loss=self.loss,
            C=self.C,
            tol=self.tol,
            gap_tol=self.gap_tol,
            threads=threads,
            **own,
        )

    def _exact(self, rounds: Rounds, data: Partitions, spec: Any, models: Any) -> Any:
        """Models on blocks, one after the other, and the exception that ended them early."""
        progress = Progress(report_of(self), rounds)
        own = {**spec, "threads": 0, "max_seconds": None}
        done, raised = [], None
        for name, parts in models:
            block = Blocks(rounds, progress, parts(), spec, own, self.block_size, self.max_iter)
            done.append((name, block))
            if raised is not None or (done[:-1] and done[-2][1].status in ("time_limit", "interrupted")):
                block.status = done[-2][1].status
                continue
            try:
                block.run()
            except Ended as ended:
                block.status, raised = ended.status, ended.raised
                if ended.status == "time_limit" and len(block.support.beta):
                    # The certificate of what was reached takes a little more time.
                    limit, rounds.max_seconds = rounds.max_seconds, None
                    block.certify()
                    rounds.max_seconds = limit
                    if block.certificate["met"]:
                        block.status = "optimal"
        if all(block.iterations == 0 or not block.support.beta.any() for _, block in done) and done[0][1].status in (
            "time_limit",
            "interrupted",
        ):
            if raised is not None:
                raise raised
            raise _core.BudgetError(f"max_seconds={self.max_seconds} ended before the first round: raise it")
        progress.close()
        return done, progress, raised

    def _finish(self, result: Any, rounds: Rounds) -> None:
        short = any(machine["status"] != "optimal" for machine in result["machines"])
        self.fit_status_ = int(short or cut_short(result["machines"], self.max_iter))
        self._counted = {"tasks": rounds.count, "bytes": rounds.received}
        finish(self, result, self.max_iter)

    def _local(self, base: Any) -> Any:
        given = {name: value for name, value in self.get_params(deep=False).items() if name not in OWN}
        local = base(**given)
        own = {name: value for name, value in self.__dict__.items() if name not in {*given, *OWN, "_counted"}}
        local.__dict__.update(own)
        local._prepared = _Native()
        return local


#: Parameters that only the estimators on Dask have.
OWN = ("client", "approx", "block_size")


def _machines(done: Any) -> list[dict[str, Any]]:
    return [
        {**block.certificate, "status": block.status, "iterations": block.iterations, "rho": 1.0} for _, block in done
    ]


class DaskSVC(Classifies, _DaskKernel, SVC):
    """`SVC` on Dask collections: exact by blocks of rows, or approximate on the features of `approx` centres.

    Exact (`approx=None`): the workers keep their rows and the scores of those; in every round the driver minimises over
    the rows that violate their conditions most and sends the changes. The result is that of `SVC` up to `tol`, with a
    certificate over all partitions. Approximate: the model is a combination of the kernel at `approx` rows, chosen by
    randomly pivoted Cholesky; the certificate and its status are those of the approximate problem only
    (`certificate_.approximation["check"]` is "own"), and say nothing about the exact one.

    Parameters
    ----------
    approx : int, default=None
        Number of centres of an approximation; None for the exact model.
    block_size : int, default=4096
        Rows over which the driver minimises in a round of the exact model.
    client : distributed.Client, default=None
        The client; the one that is in use by default. It is not part of pickles.
    **others : object
        The other parameters are those of `SVC`. Kernels and losses are given by name, the loss of an exact model has a
        dual term (hinge, squared hinge, …), and there are no probabilities. Threads are those of the workers.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_, classes_ : ndarray
        As in `SVC`; of an approximation the centres, which have no row numbers (-1). With several classes every class
        has all of them.
    certificate_ : Certificate
        How far the result can be from the optimum of the problem over all partitions.
    history_ : list of dict
        Rounds of the solver.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from margrave.dask import DaskSVC
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X = da.random.default_rng(0).normal(size=(400, 2), chunks=(100, 2))
    >>> y = (X**2).sum(axis=1) > 1
    >>> model = DaskSVC(client=client).fit(X, y)
    >>> model.certificate_.status
    'optimal'
    >>> client.close()
    """

    _parameter_constraints: dict[str, Any] = {**SVC._parameter_constraints, **dict.fromkeys(OWN, "no_validation")}

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
        approx: int | None = None,
        block_size: int = 4096,
        client: Any = None,
    ) -> None:
        super().__init__(
            C=C,
            kernel=kernel,
            degree=degree,
            gamma=gamma,
            coef0=coef0,
            shrinking=shrinking,
            probability=probability,
            tol=tol,
            cache_size=cache_size,
            class_weight=class_weight,
            verbose=verbose,
            max_iter=max_iter,
            decision_function_shape=decision_function_shape,
            break_ties=break_ties,
            random_state=random_state,
            loss=loss,
            solver=solver,
            max_seconds=max_seconds,
            gap_tol=gap_tol,
            n_jobs=n_jobs,
            device=device,
            warm_start=warm_start,
            probability_rule=probability_rule,
        )
        self.approx = approx
        self.block_size = block_size
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
        self._checked()
        return call(self, lambda client: self._fit_on(client, X, y, sample_weight))

    def _fit_on(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        rounds = Rounds(client, self.max_seconds, type(self).__name__)
        data = Partitions(rounds, "classify", X, y, sample_weight)
        classes, totals, counts = data.classes()
        if (counts > 0).sum() < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {int((counts > 0).sum())} class in all partitions"
            )
        if (counts == 0).any():
            raise ValueError(
                f"all samples of class {classes[int(np.argmin(counts))].item()!r} have weight 0: leave them out"
            )
        factors = factors_of(self.class_weight, classes, totals)
        data.make(classes, factors, float(self.C))
        gamma = gamma_of(self.gamma, rounds, data, factors, float(self.C))
        spec = self._problem("classify", gamma, threads_per_task(client, len(data.parts)))
        self.classes_, self.class_weight_ = classes, factors
        self._kernel_name, self._gamma, self._sparse = self.kernel, gamma, not data.dense
        self.shape_fit_ = (data.rows, data.features)
        set_names(self, data)
        k = len(classes)
        pairs = [(i, j) for i in range(k) for j in range(i + 1, k)]
        if self.approx is None:
            self._store_exact(rounds, data, spec, pairs)
        else:
            self._store_approximate(rounds, data, spec, pairs)
        return self

    def _store_exact(self, rounds: Rounds, data: Partitions, spec: Any, pairs: Any) -> None:
        def of(i: int, j: int) -> Callable[[], list[Any]]:
            return lambda: [rounds.submit(pair_part, part, i, j, name="pair") for part in data.parts]

        done, progress, raised = self._exact(rounds, data, spec, [(pair, of(*pair)) for pair in pairs])
        k = len(self.classes_)
        places: dict[int, int] = {}
        rows, labels, entries = [], [], []
        for (i, j), block in done:
            if not block.support.beta.any():
                continue
            model = block.support.model()
            where = global_rows(data, block, model["where"], rounds)
            for at, row in enumerate(where):
                label = j if model["y"][at] > 0 else i
                if row not in places:
                    places[row] = len(places)
                    rows.append(model["x"][[at]])
                    labels.append(label)
                other = i if label == j else j
                # LIBSVM's layout: the column of another class, its own left out.
                slot = 0 if k == 2 else other - (other > label)
                entries.append((places[row], slot, model["beta"][at]))
        coefficients = np.zeros((len(places), max(1, k - 1)))
        for at, slot, value in entries:
            coefficients[at, slot] = value
        x = _stacked(rows, data)
        kept = np.array(list(places), dtype=np.int64)
        result = {
            "rows": np.arange(len(kept)),
            "coefficients": coefficients,
            "bias": np.array([block.b for _, block in done]),
            "machines": _machines(done),
            "history": progress.history,
            "interrupted": raised,
            "solver": "decomposition",
            "reason": "partitions on Dask: blocks of rows on the driver, scores on the workers",
        }
        order = np.argsort(kept)
        result["coefficients"] = coefficients[order]
        self._store_fit(result, x[order], np.array(labels, dtype=np.float64)[order], kept[order])
        self._finish(result, rounds)

    def _store_approximate(self, rounds: Rounds, data: Partitions, spec: Any, pairs: Any) -> None:
        centres, found, bias, result = approximate(self, rounds, data, spec, pairs, 1.0, True)
        m, k = len(found), len(self.classes_)
        if k == 2:
            # The sign of a coefficient is the class that the centre speaks for.
            coefficients, x, labels = found, centres, (found[:, 0] > 0).astype(np.float64)
        else:
            # A coefficient belongs to a class and another one: the first class of a pair has those of the pair.
            coefficients = np.zeros((k * m, k - 1))
            for column, (i, j) in enumerate(pairs):
                coefficients[i * m : (i + 1) * m, j - 1] = found[:, column]
            x = _stacked([centres] * k, data)
            labels = np.repeat(np.arange(k), m).astype(np.float64)
        result = {**result, "coefficients": coefficients, "bias": bias, "rows": np.arange(len(labels))}
        for machine in result["machines"]:
            machine["rho"] = 1.0
        self._store_fit(result, x, labels, np.full(len(labels), -1))
        self._finish(result, rounds)

    def to_local(self) -> SVC:
        """The `SVC` with the same parameters and the same fitted model."""
        return self._local(SVC)


class DaskSVR(_DaskKernel, SVR):
    """`SVR` on Dask collections: exact by blocks of rows, or approximate on the features of `approx` centres.

    Parameters
    ----------
    approx : int, default=None
        Number of centres of an approximation; None for the exact model.
    block_size : int, default=4096
        Rows over which the driver minimises in a round of the exact model.
    client : distributed.Client, default=None
        The client; the one that is in use by default. It is not part of pickles.
    **others : object
        The other parameters are those of `SVR`. Kernels and losses are given by name, the loss of an exact model has a
        dual term (ε-insensitive, Huber, …), and there are no intervals. Threads are those of the workers.

    Attributes
    ----------
    support_, support_vectors_, dual_coef_, intercept_ : ndarray
        As in `SVR`; of an approximation the centres, which have no row numbers (-1).
    certificate_ : Certificate
        How far the result can be from the optimum of the problem over all partitions.
    history_ : list of dict
        Rounds of the solver.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from margrave.dask import DaskSVR
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X = da.random.default_rng(0).normal(size=(400, 1), chunks=(100, 1))
    >>> model = DaskSVR(client=client).fit(X, da.sin(X[:, 0]))
    >>> model.certificate_.status
    'optimal'
    >>> client.close()
    """

    _parameter_constraints: dict[str, Any] = {**SVR._parameter_constraints, **dict.fromkeys(OWN, "no_validation")}

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
        approx: int | None = None,
        block_size: int = 4096,
        client: Any = None,
    ) -> None:
        super().__init__(
            kernel=kernel,
            degree=degree,
            gamma=gamma,
            coef0=coef0,
            tol=tol,
            C=C,
            epsilon=epsilon,
            shrinking=shrinking,
            cache_size=cache_size,
            verbose=verbose,
            max_iter=max_iter,
            loss=loss,
            solver=solver,
            max_seconds=max_seconds,
            gap_tol=gap_tol,
            n_jobs=n_jobs,
            device=device,
            warm_start=warm_start,
            intervals=intervals,
        )
        self.approx = approx
        self.block_size = block_size
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
        self._checked()
        return call(self, lambda client: self._fit_on(client, X, y, sample_weight))

    def _fit_on(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        rounds = Rounds(client, self.max_seconds, type(self).__name__)
        data = Partitions(rounds, "regress", X, y, sample_weight)
        data.make(None, None, float(self.C))
        gamma = gamma_of(self.gamma, rounds, data, None, float(self.C))
        spec = self._problem("regress", gamma, threads_per_task(client, len(data.parts)), epsilon=self.epsilon)
        self._kernel_name, self._gamma, self._sparse = self.kernel, gamma, not data.dense
        self.shape_fit_ = (data.rows, data.features)
        set_names(self, data)
        if self.approx is None:
            self._store_exact(rounds, data, spec)
            return self
        centres, found, bias, result = approximate(self, rounds, data, spec, [None], unit_of(data), True)
        result = {**result, "coefficients": found, "bias": bias, "rows": np.arange(len(found))}
        for machine in result["machines"]:
            machine["rho"] = 1.0
        self._store_fit(result, centres, None, np.full(len(found), -1))
        self._finish(result, rounds)
        return self

    def _store_exact(self, rounds: Rounds, data: Partitions, spec: Any) -> None:
        def parts() -> list[Any]:
            return [rounds.submit(number_part, part, name="numbers") for part in data.parts]

        done, progress, raised = self._exact(rounds, data, spec, [(None, parts)])
        block = done[0][1]
        model = block.support.model()
        kept = global_rows(data, block, model["where"], rounds)
        order = np.argsort(kept)
        result = {
            "rows": np.arange(len(kept)),
            "coefficients": model["beta"][order][:, None],
            "bias": np.array([block.b]),
            "machines": _machines(done),
            "history": progress.history,
            "interrupted": raised,
            "solver": "decomposition",
            "reason": "partitions on Dask: blocks of rows on the driver, scores on the workers",
        }
        self._store_fit(result, model["x"][order], None, kept[order])
        self._finish(result, rounds)

    def to_local(self) -> SVR:
        """The `SVR` with the same parameters and the same fitted model."""
        return self._local(SVR)


def _stacked(rows: list[Any], data: Partitions) -> Any:
    from ._partitions import stack

    return stack(rows) if rows else np.empty((0, data.features))


def row_numbers(part: dict[str, Any], rows: Any) -> Any:
    """Rows of a partition from their numbers in a model."""
    return part["rows"][rows]


def global_rows(data: Partitions, block: Blocks, where: Any, rounds: Rounds) -> Any:
    """Rows of X from partitions of a model and the rows in those."""
    limit, rounds.max_seconds = rounds.max_seconds, None
    found = np.empty(len(where), dtype=np.int64)
    present = np.unique(where[:, 0])
    futures = []
    for at in present:
        mine = where[where[:, 0] == at, 1]
        futures.append(rounds.submit(row_numbers, block.parts[at], mine, name="rows"))
    for at, rows in zip(present, rounds.gather(futures)):
        first = data.firsts[data.full[block.numbers[at]]]
        found[where[:, 0] == at] = first + rows
    rounds.max_seconds = limit
    return found


__all__ = ["DaskSVC", "DaskSVR"]
