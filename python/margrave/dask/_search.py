"""`SVCCV` and `SVRCV` with their trainings on the workers of a cluster."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .. import _core
from .._cv import COSTS, GAMMAS, SVCCV, SVRCV, fit_and_score
from .._spec import aligned
from .._svm import SVC, SVR
from ..losses import LossLike
from ._cluster import ATTEMPTS, LOST, Ended, LostDataError, Rounds, call, dask, distributed, threads_per_task
from ._partitions import is_collection
from ._predict import Classifies, Predicts

if TYPE_CHECKING:
    from typing_extensions import Self


def search_task(arguments: Any, spec: Any, options: Any, task: Any, before: Any) -> Any:
    """A task of a search: outcomes, and machines for the next task of the same kernel."""
    x, y, weights, costs, gammas, epsilons, folds, fold_of, counts, race = arguments
    earlier = [] if before is None else [(cell, [_machine(*one) for one in machines]) for cell, machines in before[1]]
    return _core.tune_task(
        spec,
        tuple(map(_settled, x)) if isinstance(x, tuple) else aligned(x),
        aligned(y),
        None if weights is None else aligned(weights),
        costs,
        gammas,
        epsilons,
        folds,
        aligned(fold_of),
        None if counts is None else aligned(counts),
        race,
        options["score"],
        options["keep_scores"],
        task,
        earlier,
    )


def _settled(part: Any) -> Any:
    return aligned(part) if isinstance(part, np.ndarray) else part


def _machine(beta: Any, scores: Any, bias: float) -> Any:
    return aligned(beta), aligned(scores), bias


def refit_task(data: Any, base: Any, given: Any, chosen: Any, classes: Any) -> Any:
    """The chosen combination fitted on all samples. `classes` turns class numbers into labels; None for numbers."""
    model = base(**given)
    model.__dict__.update(chosen)
    plain = SVC if issubclass(base, SVC) else SVR
    x, codes, weights = data[:3]
    if isinstance(x, tuple):
        values, indices, starts, width = x
        x = sp.csr_matrix((values, indices.view(np.int32), starts.astype(np.int64)), shape=(len(starts) - 1, width))
    elif not sp.issparse(x):
        x = aligned(x)
    return plain.fit(model, x, codes if classes is None else classes[codes.astype(np.intp)], weights)


def fit_task(data: Any, base: Any, given: Any, fold: int, scorer: Any) -> tuple[float, float]:
    """Score and seconds of a model fitted without a fold."""
    return fit_and_score(base, given, fold, scorer, data)


class _DaskSearch(Predicts):
    """Base of DaskSVCCV and DaskSVRCV."""

    _rounds: Rounds
    _remote: _Remote | None
    #: The samples on the workers and their number, where the search is made of fits.
    _sent: Any

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Search the grid by cross-validation on the workers, then fit the best combination on all samples there.

        The data is sent to every worker once. A task trains all values of C for one γ, on one fold or on all: distances
        and warm starts are those of the local search, and so is the result, bit for bit. Dask collections are gathered
        first: every worker needs all samples.

        Returns
        -------
        self : object
            The fitted estimator; an awaitable of it if the client is asynchronous.
        """
        return call(self, lambda client: self._fit_on(client, X, y, sample_weight))

    def _fit_on(self, client: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        self._rounds = Rounds(client, self.max_seconds, type(self).__name__)
        self._remote = self._sent = None
        try:
            X, y, sample_weight = (_gathered(client, value) for value in (X, y, sample_weight))
            return super().fit(X, y, sample_weight=sample_weight)
        finally:
            del self._rounds, self._remote, self._sent

    def _tune(self, spec: Any, arguments: Any, report: Any, **options: Any) -> Any:
        remote = self._remote = _Remote(self._rounds, spec, arguments, options, report)
        # On this thread, so that Ctrl-C reaches the waiting driver.
        own = {**spec, "threads": 1, "small": True}
        return _core.tune(own, *arguments, **options, remote=remote)

    def _fit_and_score(self, base: Any, jobs: Any, scorer: Any, data: Any) -> Any:
        rounds = self._rounds
        sent = scattered(rounds, data)
        self._sent = (sent, np.shape(data[0])[0])
        futures = [rounds.submit(fit_task, sent, base, given, fold, scorer, name="fit") for given, fold in jobs]
        return _or_raise(rounds, futures)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """Fit the chosen combination on a worker."""
        rounds = self._rounds
        base = SVCCV if isinstance(self, SVCCV) else SVRCV
        given = {name: value for name, value in self.get_params(deep=False).items() if name != "client"}
        if self.max_seconds is not None:
            given["max_seconds"] = max(0.0, rounds.left() or 0.0)
        given["n_jobs"] = threads_per_task(rounds.client, 1) if given["n_jobs"] is None else given["n_jobs"]
        names = ("C_", "gamma_", "epsilon_", "best_score_", "cv_results_")
        chosen = {name: self.__dict__[name] for name in names if name in self.__dict__}
        # The engine ends the fit at its time limit by itself.
        rounds.max_seconds = None
        for attempt in range(ATTEMPTS):
            data, classes = self._data(X, y, sample_weight)
            task = rounds.submit(refit_task, data, base, given, chosen, classes, name="refit")
            try:
                found = _or_raise(rounds, [task])
                break
            except LostDataError:
                # Every worker that had the data is gone: it is sent again.
                self._remote = self._sent = None
                if attempt + 1 == ATTEMPTS:
                    raise
        params = set(self.get_params(deep=False))
        self.__dict__.update({name: value for name, value in found[0].__dict__.items() if name not in params})
        return self

    def _data(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """The samples on the workers: those of the search, unless some had no weight."""
        remote = self._remote
        # Samples without weight take no part in a search, but they count in the row numbers of the model.
        if self._sent is not None and self._sent[1] == np.shape(X)[0]:
            return self._sent[0], None
        classes = getattr(self, "classes_", None)
        if remote is not None and remote.data is not None and remote.arguments[0] is not None:
            x = remote.arguments[0]
            rows = len(x[2]) - 1 if isinstance(x, tuple) else x.shape[0]
            if rows == np.shape(X)[0]:
                return remote.data, classes
        weights = self._weights(X, np.shape(X)[0], sample_weight)
        return scattered(self._rounds, (X if sp.issparse(X) else np.asarray(X), np.asarray(y), weights)), None

    def _local(self, base: Any) -> Any:
        params = {name: value for name, value in self.get_params(deep=False).items() if name != "client"}
        local = base(**params)
        local.__dict__.update({name: value for name, value in self.__dict__.items() if name not in {*params, "client"}})
        return local


def _gathered(client: Any, value: Any) -> Any:
    """A Dask collection as an array; anything else as it is."""
    if not is_collection(value):
        return value
    if isinstance(value, (list, tuple)):
        from ._partitions import stack

        blocks = client.gather([b if isinstance(b, distributed.Future) else client.compute(b) for b in value])
        return stack(blocks)
    return dask.compute(value)[0]


def _or_raise(rounds: Rounds, futures: list[Any]) -> list[Any]:
    try:
        return rounds.gather(futures)
    except Ended as ended:
        if ended.raised is not None:
            raise ended.raised from None
        raise _core.BudgetError("max_seconds ended before one combination was scored: raise it") from None


def scattered(rounds: Rounds, data: Any) -> Any:
    """The data on every worker, sent once to each: directly if the workers can be reached, through the scheduler if not."""
    try:
        return rounds.client.scatter([data], broadcast=True, direct=True, hash=False)[0]
    except (OSError, TimeoutError):
        return rounds.client.scatter([data], broadcast=True, hash=False)[0]


class _Remote:
    """Carries out the tasks of a search on the cluster; `_core.tune` calls it with those of a round."""

    def __init__(self, rounds: Rounds, spec: Any, arguments: Any, options: Any, report: Any) -> None:
        self.rounds, self.spec, self.arguments, self.options, self.report = rounds, spec, arguments, options, report
        self.data: Any = None
        #: The tasks of each kernel so far: if all copies of the data are lost, they are repeated.
        self.chains: dict[int, list[Any]] = {}
        self.last: dict[int, Any] = {}
        cells = len(arguments[3]) * max(1, len(arguments[4])) * max(1, len(arguments[5]))
        self.whole = cells * arguments[6]
        self.done = 0

    def __call__(self, tasks: list[Any]) -> list[Any]:
        for _ in range(ATTEMPTS):
            try:
                return self.run(tasks)
            except LOST:
                # Every worker that had the data is gone.
                self.data = None
        raise RuntimeError(f"the data of the search was lost with its workers {ATTEMPTS} times: keep workers alive")

    def run(self, tasks: list[Any]) -> list[Any]:
        rounds = self.rounds
        left = rounds.left()
        if left is not None and left <= 0:
            # The search keeps what it has.
            return []
        spec = {**self.spec, "threads": threads_per_task(rounds.client, len(tasks)), "small": False}
        if spec["max_seconds"] is not None:
            spec["max_seconds"] = max(0.0, rounds.left() or 0.0)
        if self.data is None:
            self.data = scattered(rounds, self.arguments)
            self.last = {kernel: self.chain(kernel, spec) for kernel in self.chains}
        futures = []
        for task in tasks:
            future = self.submit(spec, task, self.last.get(task["kernel"]))
            futures.append(future)
        small = [rounds.submit(operator.itemgetter(0), future, name="outcomes") for future in futures]
        outcomes = self.wait(small, tasks)
        for task, future in zip(tasks, futures):
            if task["keep_machines"]:
                self.chains.setdefault(task["kernel"], []).append(task)
                self.last[task["kernel"]] = future
        return outcomes

    def submit(self, spec: Any, task: Any, before: Any) -> Any:
        return self.rounds.submit(search_task, self.data, spec, self.options, task, before, name="search")

    def chain(self, kernel: int, spec: Any) -> Any:
        future = None
        for task in self.chains[kernel]:
            future = self.submit(spec, task, future)
        return future

    def wait(self, futures: list[Any], tasks: list[Any]) -> list[Any]:
        """Outcomes of the tasks; those of tasks that a time limit has ended are missing."""
        rounds = self.rounds
        sizes = [len(task["folds"]) * len(task["cells"]) for task in tasks]
        while True:
            try:
                distributed.wait(futures, timeout=0.1)
                break
            except (TimeoutError, asyncio.TimeoutError):
                self.tell(sum(size for size, future in zip(sizes, futures) if future.status == "finished"))
                left = rounds.left()
                if left is not None and left <= 0:
                    break
            except KeyboardInterrupt:
                rounds.cancel(futures)
                raise
        ready = [future for future in futures if future.status != "pending"]
        if len(ready) < len(futures):
            rounds.cancel([future for future in futures if future.status == "pending"])
        found = rounds.client.gather(ready)
        self.done += sum(sizes)
        return [[_outcome(one) for one in outcomes] for outcomes in found]

    def tell(self, ready: int) -> None:
        """Report the progress of the search."""
        if self.report is not None:
            fraction = min(1.0, (self.done + ready) / max(1, self.whole))
            self.report({"iteration": 0, "seconds": self.rounds.seconds(), "phase": "tune", "fraction": fraction})


def _outcome(one: dict[str, Any]) -> dict[str, Any]:
    return {name: _settled(value) for name, value in one.items()}


class DaskSVCCV(Classifies, _DaskSearch, SVCCV):
    """`SVCCV` with its trainings on the workers of a Dask cluster: the same result, bit for bit.

    Parameters
    ----------
    Cs, gammas, cv, race, scoring : object
        As in `SVCCV`.
    client : distributed.Client, default=None
        The client; the one that is in use by default. It is not part of pickles.
    **others : object
        The other parameters are those of `SVC`. Threads are those of the workers, unless `n_jobs` is given.

    Attributes
    ----------
    C_, gamma_ : float
        The chosen values.
    best_score_, cv_results_ : object
        As in `SVCCV`.

    Examples
    --------
    >>> from dask.distributed import Client
    >>> from margrave.dask import DaskSVCCV
    >>> from sklearn.datasets import load_iris
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DaskSVCCV(Cs=[1, 10], gammas=[0.01, 0.1], client=client).fit(X, y)
    >>> len(model.cv_results_["params"])
    4
    >>> client.close()
    """

    _parameter_constraints: dict[str, Any] = {**SVCCV._parameter_constraints, "client": "no_validation"}

    def __init__(
        self,
        *,
        Cs: npt.ArrayLike = COSTS,
        gammas: npt.ArrayLike = GAMMAS,
        cv: Any = None,
        race: bool | float = False,
        scoring: Any = None,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
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
        probability_rule: str = "auto",
        client: Any = None,
    ) -> None:
        super().__init__(
            Cs=Cs,
            gammas=gammas,
            cv=cv,
            race=race,
            scoring=scoring,
            kernel=kernel,
            degree=degree,
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
            probability_rule=probability_rule,
        )
        self.client = client

    def to_local(self) -> SVCCV:
        """The `SVCCV` with the same parameters and the same fitted model."""
        return self._local(SVCCV)


class DaskSVRCV(_DaskSearch, SVRCV):
    """`SVRCV` with its trainings on the workers of a Dask cluster: the same result, bit for bit.

    Parameters
    ----------
    Cs, gammas, epsilons, cv, race, scoring : object
        As in `SVRCV`.
    client : distributed.Client, default=None
        The client; the one that is in use by default. It is not part of pickles.
    **others : object
        The other parameters are those of `SVR`. Threads are those of the workers, unless `n_jobs` is given.

    Attributes
    ----------
    C_, gamma_, epsilon_ : float
        The chosen values.
    best_score_, cv_results_ : object
        As in `SVRCV`.

    Examples
    --------
    >>> from dask.distributed import Client
    >>> from margrave.dask import DaskSVRCV
    >>> from sklearn.datasets import load_diabetes
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DaskSVRCV(Cs=[1, 10], gammas=[0.1, 1], client=client).fit(X, y)
    >>> len(model.cv_results_["params"])
    4
    >>> client.close()
    """

    _parameter_constraints: dict[str, Any] = {**SVRCV._parameter_constraints, "client": "no_validation"}

    def __init__(
        self,
        *,
        Cs: npt.ArrayLike = COSTS,
        gammas: npt.ArrayLike = GAMMAS,
        epsilons: npt.ArrayLike = (0.1,),
        cv: Any = None,
        race: bool | float = False,
        scoring: Any = None,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
        coef0: float = 0.0,
        tol: float = 1e-3,
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
        intervals: bool = False,
        client: Any = None,
    ) -> None:
        super().__init__(
            Cs=Cs,
            gammas=gammas,
            epsilons=epsilons,
            cv=cv,
            race=race,
            scoring=scoring,
            kernel=kernel,
            degree=degree,
            coef0=coef0,
            tol=tol,
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
            intervals=intervals,
        )
        self.client = client

    def to_local(self) -> SVRCV:
        """The `SVRCV` with the same parameters and the same fitted model."""
        return self._local(SVRCV)


__all__ = ["DaskSVCCV", "DaskSVRCV"]
