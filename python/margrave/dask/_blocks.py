"""Exact kernel models on partitions: blocks of rows on the driver, scores on the workers.

f = Σ βᵢ k(xᵢ, ·) + b. A partition keeps its rows and their scores f(x). In a round every partition names the rows that
violate their optimality conditions most; the driver minimises over them and over the rows that are free to move, all others
fixed; the changes of β are sent with their rows, and the scores follow. The gap is measured in every round, and the result is
certified with scores computed afresh from β.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._spec import aligned, points
from ._cluster import Progress, Rounds
from ._newton import settled
from ._partitions import stack

#: The scores are computed afresh from β after so many rounds: what Dask would have to repeat stays short.
FRESH = 12
#: Most rounds without a smaller gap.
IDLE = 25


def pair_part(part: dict[str, Any], first: int, second: int) -> dict[str, Any]:
    """The rows of two classes with targets −1 and +1, and their row numbers in the partition."""
    y = part["y"]
    rows = np.flatnonzero(((y == first) | (y == second)) & (part["costs"] > 0))
    whole = len(rows) == len(y)
    return {
        "x": part["x"] if whole else part["x"][rows],
        "y": np.where(y[rows] == second, 1.0, -1.0),
        "costs": part["costs"][rows],
        "rows": rows,
    }


def number_part(part: dict[str, Any]) -> dict[str, Any]:
    """The rows of a regression that have a cost."""
    rows = np.flatnonzero(part["costs"] > 0)
    whole = len(rows) == len(part["y"])
    x = part["x"] if whole else part["x"][rows]
    return {"x": x, "y": part["y"][rows], "costs": part["costs"][rows], "rows": rows}


def count_rows(part: dict[str, Any]) -> int:
    """Number of rows."""
    return len(part["y"])


def draw(part: dict[str, Any], at: int, count: int) -> dict[str, Any]:
    """Rows to begin with: a share of each sign of the target."""
    rng = np.random.default_rng([20_021, at])
    y, chosen = part["y"], []
    sides = [np.flatnonzero(y < 0), np.flatnonzero(y >= 0)]
    for side in sides:
        share = min(len(side), int(np.ceil(count * len(side) / max(1, len(y)))))
        chosen.append(rng.choice(side, share, replace=False))
    rows = np.sort(np.concatenate(chosen))[:count]
    return {"rows": rows, "x": part["x"][rows], "y": y[rows], "costs": part["costs"][rows]}


def follow(part: dict[str, Any], scores: Any, spec: dict[str, Any], change: dict[str, Any]) -> Any:
    """The scores of a partition after a change of β; `scores` is None for the scores of β itself."""
    if len(change["beta"]) == 0:
        return np.zeros(len(part["y"])) if scores is None else scores
    moved = _core.kernel_scores(spec, points(part["x"]), points(change["x"]), aligned(change["beta"]))
    return moved if scores is None else scores + moved


def judge(
    part: dict[str, Any],
    scores: Any,
    spec: dict[str, Any],
    beta: tuple[Any, Any],
    b: float,
    slack: float,
    count: int,
) -> dict[str, Any]:
    """The rows of a partition that the next block may contain, and its part of the gap.

    F is relative to −b. The best b is not known before all partitions have answered: rows within `slack` of violating
    their conditions count as well.
    """
    own = np.zeros(len(part["y"]))
    own[beta[0]] = beta[1]
    z = scores + b
    rows, fall, rise, estimate = _core.worst_rows(spec, aligned(part["y"]), aligned(part["costs"]), z, b, own, count)
    rows = rows[(fall[rows] > -slack) | (rise[rows] < slack)]
    inside = np.flatnonzero((own != 0) & (np.abs(own) < part["costs"] * (1 - 1e-9)))
    chosen = np.union1d(rows.astype(np.int64), inside)
    # The driver has the rows of the support vectors already.
    fresh = chosen[own[chosen] == 0]
    return {
        "estimate": estimate,
        "rows": chosen,
        "scores": scores[chosen],
        "fall": fall[chosen],
        "rise": rise[chosen],
        "fresh": fresh,
        "x": part["x"][fresh],
        "y": part["y"][fresh],
        "costs": part["costs"][fresh],
    }


def certify_part(
    part: dict[str, Any], spec: dict[str, Any], model: dict[str, Any], beta: tuple[Any, Any], b: float
) -> dict[str, Any]:
    """The part of the certificate of a partition, with scores computed from the model."""
    own = np.zeros(len(part["y"]))
    own[beta[0]] = beta[1]
    return _core.certify_kernel_rows(
        spec,
        points(part["x"]),
        points(model["x"]),
        aligned(model["beta"]),
        aligned(part["y"]),
        aligned(part["costs"]),
        b,
        own,
    )


class Support:
    """The rows that the driver has seen: partition and row, features, target, cost and β."""

    def __init__(self) -> None:
        self.place: dict[tuple[int, int], int] = {}
        self.where = np.empty((0, 2), dtype=np.int64)
        self.x: Any = None
        self.y = np.empty(0)
        self.costs = np.empty(0)
        self.beta = np.empty(0)

    def add(self, at: int, rows: Any, x: Any, y: Any, costs: Any) -> None:
        """Rows of a partition; those known already are left out."""
        new = np.array([k for k, row in enumerate(rows) if (at, int(row)) not in self.place], dtype=np.int64)
        if len(new) == 0:
            return
        for k in new:
            self.place[at, int(rows[k])] = len(self.place)
        self.where = np.concatenate([self.where, np.column_stack([np.full(len(new), at), rows[new]])])
        self.x = x[new] if self.x is None else stack([self.x, x[new]])
        self.y = np.concatenate([self.y, y[new]])
        self.costs = np.concatenate([self.costs, costs[new]])
        self.beta = np.concatenate([self.beta, np.zeros(len(new))])

    def of(self, at: int) -> tuple[Any, Any]:
        """Rows of a partition with β ≠ 0, and their β."""
        mine = np.flatnonzero((self.where[:, 0] == at) & (self.beta != 0))
        return self.where[mine, 1], self.beta[mine]

    def model(self) -> dict[str, Any]:
        """The rows with β ≠ 0."""
        used = np.flatnonzero(self.beta)
        return {"x": self.x[used], "beta": self.beta[used], "y": self.y[used], "where": self.where[used]}


class Blocks:
    """One binary model or regression on partitions.

    Parameters
    ----------
    rounds, progress : object
        The cluster, and where steps are reported.
    parts : list of futures
        The rows of the model, by partition.
    spec, own : dict
        The problem as `_core` takes it: for tasks, and for the blocks on the driver.
    block : int
        Rows of a block.
    max_iter : int
        Limit on rounds; negative for none.
    """

    def __init__(
        self, rounds: Rounds, progress: Progress, parts: list[Any], spec: Any, own: Any, block: int, max_iter: int
    ) -> None:
        self.rounds, self.progress, self.parts, self.spec, self.own = rounds, progress, parts, spec, own
        self.block, self.max_iter = block, max_iter
        self.tol = float(spec["tol"])
        self.free = bool(spec["bias"])
        self.support = Support()
        self.b = 0.0
        self.scores: list[Any] = []
        self.numbers: list[int] = []
        self.slack = np.inf
        self.iterations = 0
        self.certificate: dict[str, Any] = {"unknown": True}
        self.status = "inaccurate"

    def run(self) -> None:
        """Rounds until the certificate meets what was asked for."""
        sizes = self.rounds.gather([self.rounds.submit(count_rows, part, name="count") for part in self.parts])
        # Partitions without rows of this model have no part in it.
        self.numbers = [at for at, size in enumerate(sizes) if size > 0]
        self.parts = [self.parts[at] for at in self.numbers]
        self.scores = [None] * len(self.parts)
        sizes = [size for size in sizes if size > 0]
        total = sum(sizes)
        counts = [int(np.ceil(min(self.block, total) * size / max(1, total))) for size in sizes]
        drawn = self.rounds.gather(
            [
                self.rounds.submit(draw, part, at, count, name="draw")
                for at, (part, count) in enumerate(zip(self.parts, counts))
            ]
        )
        for at, one in enumerate(drawn):
            self.support.add(at, one["rows"], one["x"], one["y"], one["costs"])
        chosen = np.arange(len(self.support.beta))
        offsets = np.zeros(len(chosen))
        best, idle, strict = np.inf, 0, 1.0
        while True:
            self.iterations += 1
            change = self.solve(chosen, offsets, strict)
            self.update(change)
            found = self.look()
            estimate = _core.combine_kernel_parts(self.spec, settled([one["estimate"] for one in found]), self.b)
            gap, violation = estimate["relative_gap"], estimate["violation"]
            self.slack = max(self.tol, violation)
            self.progress.step(
                "blocks",
                self.iterations,
                primal=estimate["primal"],
                dual=estimate["dual"],
                violation=violation,
                active=len(chosen),
            )
            if estimate["met"] and violation <= self.tol:
                self.certify()
                if self.certificate["met"]:
                    self.status = "optimal"
                    return
                strict *= 0.3
            idle = 0 if gap < 0.99 * best else idle + 1
            best = min(best, gap)
            limit = 0 <= self.max_iter <= self.iterations
            if limit or idle > IDLE or strict < 1e-6:
                self.certify()
                self.status = "optimal" if self.certificate["met"] else "iteration_limit" if limit else "stalled"
                return
            chosen, offsets = self.choose(found)

    def solve(self, chosen: Any, offsets: Any, strict: float) -> dict[str, Any]:
        """Minimise over the chosen rows; returns the changes of β with their rows."""
        support = self.support
        before = support.beta[chosen]
        own = {**self.own, "tol": 0.3 * strict * self.tol, "gap_tol": None}
        left = self.rounds.left()
        if left is not None:
            own["max_seconds"] = max(0.05, left)
        after, bias, _ = _core.solve_rows(
            own,
            points(support.x[chosen]),
            aligned(support.y[chosen]),
            aligned(support.costs[chosen]),
            aligned(offsets),
            aligned(before),
            float(before.sum()) if self.free else None,
        )
        if self.free and np.isfinite(bias):
            self.b = bias
        moved = np.flatnonzero(after != before)
        support.beta[chosen] = after
        return {"x": support.x[chosen[moved]], "beta": (after - before)[moved]}

    def update(self, change: dict[str, Any]) -> None:
        """Let the scores of all partitions follow; now and then compute them afresh."""
        if self.iterations % FRESH == 0:
            self.refresh()
            return
        sent = self.rounds.value(change, "change")
        count = len(self.parts)
        self.scores = self.rounds.map(
            follow, self.parts, self.scores, [self.spec] * count, [sent] * count, name="scores"
        )

    def refresh(self) -> None:
        """Compute the scores of all partitions from β."""
        model = self.support.model()
        sent = self.rounds.value({"x": model["x"], "beta": model["beta"]}, "model")
        count = len(self.parts)
        self.scores = self.rounds.map(
            follow, self.parts, [None] * count, [self.spec] * count, [sent] * count, name="scores"
        )

    def look(self) -> list[dict[str, Any]]:
        """What the partitions say after a round."""
        count = max(32, self.block // max(1, len(self.parts)))
        futures = [
            self.rounds.submit(
                judge, part, scores, self.spec, self.support.of(at), self.b, self.slack, count, name="judge"
            )
            for at, (part, scores) in enumerate(zip(self.parts, self.scores))
        ]
        return self.rounds.gather(futures)

    def choose(self, found: list[dict[str, Any]]) -> tuple[Any, Any]:
        """The rows of the next block: violators first, then rows that are free to move; and their fixed scores."""
        for at, one in enumerate(found):
            self.support.add(at, one["fresh"], one["x"], one["y"], one["costs"])
        places: list[int] = []
        for at, one in enumerate(found):
            places += [self.support.place[at, int(row)] for row in one["rows"]]
        place = np.array(places, dtype=np.int64)
        f, fall, rise = (np.concatenate([one[name] for one in found]) for name in ("scores", "fall", "rise"))
        # Half of the block can decrease and half can increase: with a free bias only both together can move.
        middle = 0.5 * (fall.max() + rise.min()) if self.free else 0.0
        mixed = np.random.default_rng([20_023, self.iterations]).permutation(len(place))
        down = mixed[np.argsort(-(fall - middle)[mixed], kind="stable")]
        up = mixed[np.argsort((rise - middle)[mixed], kind="stable")]
        down, up = down[fall[down] > middle], up[rise[up] < middle]
        half = self.block // 2
        taken = np.union1d(down[: max(half, self.block - len(up))], up[: max(half, self.block - len(down))])
        # The rest of the block: rows that are free to move, in a new order in every round.
        inside = (np.isfinite(fall) & np.isfinite(rise) & (self.support.beta[place] != 0))[mixed]
        others = np.setdiff1d(mixed[inside], taken, assume_unique=True)
        others = mixed[np.isin(mixed, others)][: max(0, self.block - len(taken))]
        order = np.union1d(taken, others)
        chosen, f = place[order], f[order]
        support = self.support
        inner = _core.kernel_scores(
            self.own, points(support.x[chosen]), points(support.x[chosen]), aligned(support.beta[chosen])
        )
        return chosen, f - inner

    def certify(self) -> None:
        """The certificate of the model, from scores computed afresh."""
        model = self.support.model()
        sent = self.rounds.value({"x": model["x"], "beta": model["beta"]}, "model")
        futures = [
            self.rounds.submit(certify_part, part, self.spec, sent, self.support.of(at), self.b, name="certify")
            for at, part in enumerate(self.parts)
        ]
        parts = self.rounds.gather(futures)
        self.certificate = _core.combine_kernel_parts(self.spec, settled(parts), self.b)


__all__ = ["Blocks", "number_part", "pair_part"]
