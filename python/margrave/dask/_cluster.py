"""The cluster: the client, the rounds of a fit, and what ends them early."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

try:
    import dask
    import distributed
except ImportError as error:  # pragma: no cover
    raise ImportError("margrave.dask needs dask and distributed: pip install 'margrave[dask]'") from error

from .. import _core
from .._callbacks import StopFit

#: Seconds between two looks at the clock while futures are awaited.
POLL = 0.25

#: How often data that was lost with its workers is sent again.
ATTEMPTS = 5


#: What Dask raises for futures of data that was lost and has no recipe.
LOST: tuple[type[BaseException], ...] = tuple(
    getattr(distributed.client, name)
    for name in ("FutureCancelledError", "FuturesCancelledError", "CancelledError")
    if hasattr(distributed.client, name)
)


class LostDataError(RuntimeError):
    """Data was lost with its workers, and Dask has no recipe for it."""


class Ended(Exception):
    """A fit ends early and keeps its best point."""

    def __init__(self, status: str, raised: BaseException | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.raised = raised


def find_client(given: Any) -> Any:
    """The client given, or the one that is in use."""
    if given is not None:
        if not isinstance(given, distributed.Client):
            raise TypeError(f"client must be a dask.distributed.Client, but it is a {type(given).__name__}")
        return given
    try:
        return distributed.get_client()
    except ValueError:
        raise ValueError(
            "there is no Dask client: start one, client = dask.distributed.Client(), or give one with client="
        ) from None


def call(estimator: Any, work: Callable[[Any], Any]) -> Any:
    """`work(client)`, or something to await for it if the client is asynchronous."""
    client = find_client(estimator.client)

    def run() -> Any:
        try:
            return work(client)
        except Ended as ended:
            # Nothing was reached yet that could be kept.
            if ended.raised is not None:
                raise ended.raised from None
            raise _core.BudgetError(
                f"max_seconds={estimator.max_seconds} ended before the first round: raise it"
            ) from None

    # A thread of its own: the event loop, which the cluster needs as well, stays free.
    return asyncio.to_thread(run) if client.asynchronous else run()


class OnDask:
    """What estimators on Dask have in common: the client is used by reference and is not part of copies and pickles."""

    client: Any

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "client": None}

    def __sklearn_clone__(self) -> Any:
        from sklearn.base import clone

        given = self.get_params(deep=False)
        params = {name: value if name == "client" else clone(value, safe=False) for name, value in given.items()}
        return type(self)(**params)


class Rounds:
    """Sends the tasks of a fit and waits for their results, within its time limit.

    Parameters
    ----------
    client : distributed.Client
        The client.
    max_seconds : float or None
        Time limit of the fit.
    name : str
        Prefix of the keys of the tasks.
    """

    def __init__(self, client: Any, max_seconds: float | None, name: str) -> None:
        self.client = client
        self.begun = time.monotonic()
        self.max_seconds = max_seconds
        self.name = f"margrave-{name}-{uuid.uuid4().hex[:12]}"
        self.count = 0
        #: Bytes that were sent to the driver, by the sizes of the arrays in the results.
        self.received = 0

    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun

    def left(self) -> float | None:
        """Seconds that are left; None without a limit."""
        return None if self.max_seconds is None else self.max_seconds - self.seconds()

    def check(self) -> None:
        """Raise `Ended` if no time is left."""
        left = self.left()
        if left is not None and left <= 0:
            raise Ended("time_limit")

    def submit(self, task: Callable[..., Any], *arguments: Any, name: str, **options: Any) -> Any:
        """A future for `task(*arguments)`. Tasks are functions of their arguments, so that Dask can repeat them."""
        self.count += 1
        # The key ends with a number of its own: Dask groups tasks by what comes before.
        key = f"{self.name}-{name}-{self.count}"
        return self.client.submit(task, *arguments, key=key, pure=False, **options)

    def map(self, task: Callable[..., Any], *lists: Sequence[Any], name: str) -> list[Any]:
        """Futures for `task` of the elements of the lists, sent to the scheduler together."""
        count = len(lists[0])
        keys = [f"{self.name}-{name}-{self.count + at}" for at in range(1, count + 1)]
        self.count += count
        return list(self.client.map(task, *lists, key=keys, pure=False))

    def value(self, value: Any, name: str) -> Any:
        """A future for a value: sent once, fetched by the workers from each other, and sent again if it is lost."""
        return self.submit(_itself, value, name=name)

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Results in the order of the futures. A time limit or Ctrl-C cancels them and raises `Ended`."""
        futures = list(futures)
        try:
            while True:
                left = self.left()
                wait = POLL if left is None else max(0.0, min(POLL, left))
                try:
                    distributed.wait(futures, timeout=wait)
                    break
                except (TimeoutError, asyncio.TimeoutError):
                    self.check()
            results = self.client.gather(futures)
        except Ended:
            self.cancel(futures)
            raise
        except KeyboardInterrupt as interrupt:
            self.cancel(futures)
            raise Ended("interrupted", interrupt) from None
        except LOST as error:
            raise LostDataError(
                "data of the fit was lost with its workers and Dask cannot compute it again: it was scattered. Give data"
                " that Dask can recompute (read it from files, or dask.array.from_array), or scatter it again."
            ) from error
        self.received += sum(size_of(result) for result in results)
        return list(results)

    def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel futures; errors of a cluster that is going away do not matter."""
        try:
            self.client.cancel(list(futures), force=True)
        except Exception:  # noqa: S110
            pass


def _itself(value: Any) -> Any:
    return value


def size_of(value: Any) -> int:
    """Bytes of the arrays in a result."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(size_of(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(size_of(item) for item in value)
    return 8


def threads_of(client: Any) -> dict[str, int]:
    """Threads of each worker."""
    found = {address: int(threads) for address, threads in client.nthreads().items()}
    if not found:
        client.wait_for_workers(1, timeout=30)
        found = {address: int(threads) for address, threads in client.nthreads().items()}
    return found


def threads_per_task(client: Any, tasks: int) -> int:
    """Threads for each of so many tasks at a time: what the workers have, shared."""
    return max(1, sum(threads_of(client).values()) // max(1, tasks))


class Progress:
    """Steps of a fit: recorded, shown if `verbose`, passed to callbacks."""

    def __init__(self, report: Any, rounds: Rounds) -> None:
        self.report = report
        self.rounds = rounds
        self.history: list[dict[str, Any]] = []

    def close(self) -> None:
        """End of the fit."""
        if self.report is not None:
            self.report.close()

    def step(self, phase: str, iteration: int, **numbers: Any) -> None:
        """Record a step. A callback may end the fit."""
        step = {"iteration": iteration, "seconds": self.rounds.seconds(), "phase": phase, **numbers}
        self.history.append(step)
        if self.report is not None:
            try:
                self.report(step)
            except StopFit as stop:
                raise Ended("interrupted", stop) from None
            except KeyboardInterrupt as interrupt:
                raise Ended("interrupted", interrupt) from None


__all__ = [
    "Ended",
    "LostDataError",
    "OnDask",
    "Progress",
    "Rounds",
    "call",
    "dask",
    "distributed",
    "find_client",
    "threads_per_task",
]
