"""`SVC`, `SVR` and `KernelRidge` on Dask collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .. import _core
from .._machine import _Native
from .._ridge import KernelRidge
from .._spec import cut_short, finish, loss_name, params, points, report_of
from .._svm import SVC, SVR
from ..losses import LossLike
from ._blocks import Blocks, number_part, pair_part
from ._cluster import Ended, Progress, Rounds, call, threads_per_task
from ._linear import check_loss, factors_of, unit_of
from ._newton import Linear
from ._partitions import Partitions
from ._predict import Classifies, Predicts

if TYPE_CHECKING:
    from typing_extensions import Self

#: Relative gap of approximate models, as a multiple of `tol`.
GAP_PER_TOL = 1e-3
#: Rows among which the centres of an approximation are chosen.
CANDIDATES = 20_000


def spread(part: dict[str, Any], factors: Any, C: float) -> Any:
    """Weight, weighted mean and squared deviations of all entries of a partition."""
    x = part["x"]
    weights = part["costs"] / C if factors is None else part["costs"] / (C * factors[part["y"].astype(np.intp)])
    total = float(weights.sum()) * x.shape[1]
    if total == 0:
        return np.zeros(3)
    sums = np.asarray(x.sum(axis=1)).ravel().astype(np.float64)
    mean = float(weights @ sums) / total
    if sp.issparse(x):
        counts = np.diff(x.indptr)
        inside = np.repeat(weights, counts) @ (x.data.astype(np.float64) - mean) ** 2
        outside = (weights * (x.shape[1] - counts)).sum() * mean**2
        return np.array([total, mean, inside + outside])
    return np.array([total, mean, weights @ ((x.astype(np.float64, copy=False) - mean) ** 2).sum(axis=1)])


def gamma_of(gamma: Any, rounds: Rounds, data: Partitions, factors: Any, C: float) -> float:
    """γ as a number; rows count by their weights. "median" is that of a sample."""
    if not isinstance(gamma, str):
        return float(gamma)
    if gamma == "auto":
        return 1.0 / data.features
    if gamma == "median":
        return float(_core.gamma_of(points(data.sample(5000)["x"]), "median"))
    found = rounds.gather([rounds.submit(spread, part, factors, C, name="spread") for part in data.parts])
    total, mean, squares = 0.0, 0.0, 0.0
    for weight, own, deviation in found:
        if weight > 0:
            shift = own - mean
            squares += deviation + shift**2 * total * weight / (total + weight)
            mean += shift * weight / (total + weight)
            total += weight
    variance = squares / total * data.features
    return 1.0 / variance if variance > 0 else 1.0


def features_part(part: dict[str, Any], spec: dict[str, Any], centres: Any, factor: Any) -> dict[str, Any]:
    """A partition in the features of an approximation: K(x, centres)·L⁻ᵀ."""
    block = _core.kernel_block(spec, points(part["x"]), points(centres))
    rows = scipy.linalg.solve_triangular(factor, block.T, lower=True, check_finite=False).T
    return {**part, "x": np.ascontiguousarray(rows)}


def choose_centres(spec: dict[str, Any], x: Any, count: int, seed: int) -> tuple[Any, Any]:
    """Rows of x and the Cholesky factor of their kernel matrix, by randomly pivoted Cholesky.

    A pivot is drawn with a probability proportional to what the rows before it leave of its diagonal entry (Chen, Epperly,
    Tropp and Webber, 2023). Rows that add nothing beyond rounding are not taken.
    """
    n = x.shape[0]
    rng = np.random.default_rng(seed)
    diagonal = np.array([_core.kernel_block(spec, points(x[[0]]), points(x[[0]]))[0, 0]] * n)
    if spec["kernel"] not in ("rbf", "laplacian", "matern32", "matern52"):
        step = 512
        for at in range(0, n, step):
            rows = points(x[at : at + step])
            diagonal[at : at + step] = np.diag(_core.kernel_block(spec, rows, rows))
    first = diagonal.max()
    factor = np.zeros((n, 0))
    chosen: list[int] = []
    block = max(1, min(128, count // 8))
    while len(chosen) < min(count, n) and diagonal.sum() > 1e-12 * first * n:
        weights = np.maximum(diagonal, 0)
        drawn = np.unique(rng.choice(n, size=min(block, count - len(chosen)), p=weights / weights.sum()))
        columns = _core.kernel_block(spec, points(x), points(x[drawn])) - factor @ factor[drawn].T
        inner = columns[drawn]
        lower, kept = _pivoted(inner, 1e-10 * first)
        if not kept:
            break
        columns = scipy.linalg.solve_triangular(lower, columns[:, kept].T, lower=True).T
        factor = np.hstack([factor, columns])
        chosen += [int(drawn[k]) for k in kept]
        diagonal = np.maximum(diagonal - (columns**2).sum(axis=1), 0)
        diagonal[chosen] = 0
    centres = x[chosen]
    K = _core.kernel_block(spec, points(centres), points(centres))
    K = 0.5 * (K + K.T)
    shift = 0.0
    while True:
        try:
            return centres, scipy.linalg.cholesky(K + shift * np.eye(len(K)), lower=True)
        except np.linalg.LinAlgError:
            shift = 1e-14 * first if shift == 0 else 10 * shift


def _pivoted(matrix: Any, least: float) -> tuple[Any, list[int]]:
    """Cholesky factor of the rows that are not combinations of those before, and their numbers."""
    kept: list[int] = []
    lower = np.zeros((0, 0))
    for k in range(len(matrix)):
        row = scipy.linalg.solve_triangular(lower, matrix[kept, k], lower=True) if kept else np.zeros(0)
        left = matrix[k, k] - row @ row
        if left > least:
            grown = np.zeros((len(kept) + 1, len(kept) + 1))
            grown[:-1, :-1], grown[-1, :-1], grown[-1, -1] = lower, row, np.sqrt(left)
            lower = grown
            kept.append(k)
    return lower, kept


class _DaskKernel(Predicts):
    """Base of DaskSVC and DaskSVR."""

    def _checked(self) -> None:
        self._validate_params()  # type: ignore[attr-defined]
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
        return params(  # type: ignore[no-any-return]
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

    def _names(self, data: Partitions) -> None:
        self.n_features_in_ = data.features
        if data.columns is not None:
            self.feature_names_in_ = np.array(data.columns, dtype=object)
        else:
            self.__dict__.pop("feature_names_in_", None)

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
        return done, progress, raised

    def _approximate(self, rounds: Rounds, data: Partitions, spec: Any, pairs: Any, unit: float, free: bool) -> Any:
        """Linear models in the features of an approximation; coefficients on the centres, one column per model."""
        progress = Progress(report_of(self), rounds)
        centres, factor = choose_centres(spec, data.sample(CANDIDATES)["x"], int(self.approx), 20_029)
        shared = rounds.value(centres, "centres")
        lower = rounds.value(factor, "factor")
        data.parts = [
            rounds.submit(features_part, part, spec, shared, lower, name="features") for part in data.parts
        ]
        data.features, data.dense, data.values = factor.shape[0], True, factor.shape[0] * data.rows
        gap = GAP_PER_TOL * self.tol if self.gap_tol is None else self.gap_tol
        own = {**spec, "kernel": "linear", "solver": "linear", "gap_tol": gap, "memory": 2 << 30}
        steps = self.max_iter if getattr(self, "max_iter", -1) >= 0 else 1000
        linear = Linear(rounds, data, progress, own, np.inf if free else None, pairs, unit, steps)
        raised = None
        try:
            linear.start(data.sample())
            linear.run()
        except Ended as ended:
            raised = ended.raised
        result = linear.result(raised)
        result["reason"] = f"partitions on Dask: {len(factor)} centres, Newton's method on their features"
        columns = [machine.w for machine in linear.machines]
        coefficients = scipy.linalg.solve_triangular(factor, np.array(columns).T, lower=True, trans="T")
        bias = np.array([machine.b for machine in linear.machines])
        return centres, coefficients, bias, result

    def _finish(self, result: Any, rounds: Rounds) -> None:
        short = any(machine["status"] != "optimal" for machine in result["machines"])
        self.fit_status_ = int(short or cut_short(result["machines"], self.max_iter))
        self._counted = {"tasks": rounds.count, "bytes": rounds.received}
        finish(self, result, self.max_iter)

    def _local(self, base: Any) -> Any:
        given = {name: value for name, value in self.get_params(deep=False).items() if name not in OWN}  # type: ignore[attr-defined]
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
    randomly pivoted Cholesky; the certificate is that of the approximate problem.

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
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
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
        return call(self, lambda client: self._fit_on(client, X, y, sample_weight))  # type: ignore[no-any-return]

    def _fit_on(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        rounds = Rounds(client, self.max_seconds, type(self).__name__)
        data = Partitions(rounds, "classify", X, y, sample_weight)
        classes, totals, counts = data.classes()
        if (counts > 0).sum() < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {int((counts > 0).sum())} class in all partitions"
            )
        if (counts == 0).any():
            raise ValueError(f"all samples of class {classes[int(np.argmin(counts))]!r} have weight 0: leave them out")
        factors = factors_of(self.class_weight, classes, totals)
        data.make(classes, factors, float(self.C))
        gamma = gamma_of(self.gamma, rounds, data, factors, float(self.C))
        spec = self._problem("classify", gamma, threads_per_task(client, len(data.parts)))
        self.classes_, self.class_weight_ = classes, factors
        self._kernel_name, self._gamma, self._sparse = self.kernel, gamma, not data.dense
        self.shape_fit_ = (data.rows, data.features)
        self._names(data)
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
        centres, found, bias, result = self._approximate(rounds, data, spec, pairs, 1.0, True)
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
        return self._local(SVC)  # type: ignore[no-any-return]


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
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
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
        return call(self, lambda client: self._fit_on(client, X, y, sample_weight))  # type: ignore[no-any-return]

    def _fit_on(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        rounds = Rounds(client, self.max_seconds, type(self).__name__)
        data = Partitions(rounds, "regress", X, y, sample_weight)
        data.make(None, None, float(self.C))
        gamma = gamma_of(self.gamma, rounds, data, None, float(self.C))
        spec = self._problem("regress", gamma, threads_per_task(client, len(data.parts)), epsilon=self.epsilon)
        self._kernel_name, self._gamma, self._sparse = self.kernel, gamma, not data.dense
        self.shape_fit_ = (data.rows, data.features)
        self._names(data)
        if self.approx is None:
            self._store_exact(rounds, data, spec)
            return self
        centres, found, bias, result = self._approximate(rounds, data, spec, [None], unit_of(data), True)
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
        return self._local(SVR)  # type: ignore[no-any-return]


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
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
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
        if np.ndim(self.alpha) or not self.alpha > 0:  # type: ignore[operator]
            raise ValueError("DaskKernelRidge needs one alpha > 0")
        if not isinstance(self.approx, (int, np.integer)) or self.approx < 1:
            raise ValueError(f"approx must be a number of centres ≥ 1, but it is {self.approx!r}")
        check_loss(self.loss or "square")
        return call(self, lambda client: self._fit_on(client, X, y, sample_weight))  # type: ignore[no-any-return]

    def _fit_on(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        rounds = Rounds(client, self.max_seconds, type(self).__name__)
        data = Partitions(rounds, "regress", X, y, sample_weight)
        C = 1.0 / float(self.alpha)  # type: ignore[arg-type]
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
        _DaskKernel._names(self, data)  # type: ignore[arg-type]
        unit = unit_of(data)
        found = _DaskKernel._approximate(self, rounds, data, spec, [None], unit, False)  # type: ignore[arg-type]
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


__all__ = ["DaskKernelRidge", "DaskSVC", "DaskSVR"]
