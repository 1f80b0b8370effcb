"""Linear models on partitions: Newton's method on the driver, sums over rows on the workers.

The problem is ½‖w‖² + ½ρb² + Σ cost·ℓ(y, wᵀx + b). A task takes a partition and a point and returns sums over the rows; the
driver adds them in the order of the partitions and makes the step. Losses with kinks are smoothed around a dual point βₖ
that moves (the proximal point method on the dual, as in the engine's own linear solver): βₖ of a partition stays on its
worker, and Dask computes it again from the points before it if the worker is lost.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from .. import _core
from .._spec import aligned, points
from ._cluster import Ended, Progress, Rounds, size_of
from ._partitions import Partitions, rows_of

#: Up to so many features the Newton system is formed; above, it is solved by conjugate gradients.
DIRECT_FEATURES = 1500
#: Results that are added by one task, and at most by the driver.
FAN_IN = 8
#: Step lengths at which the derivative is evaluated. The sums are those at the first.
STEPS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 1e-3)
#: Factor of the smoothing width from one round to the next.
WIDTH_FACTOR = 0.3
#: Steps of conjugate gradients per Newton step.
CG_STEPS = 60
#: Rounding of a sum, relative to the sizes of its terms.
SUM_ROUNDING = 4 * np.finfo(float).eps
#: Bytes that are part of every task; more is sent to one worker, from which the others fetch it.
EMBEDDED = 1 << 18

Request = dict[str, Any]
Steps = Generator[Request, Any, Any]


def evaluate(part: dict[str, Any], spec: dict[str, Any], requests: list[Request], *centres: Any) -> list[Any]:
    """Sums over a partition, one for each request."""
    return [_answer(part, spec, request, centre) for request, centre in zip(requests, centres)]


def _opened(part: dict[str, Any], request: Request, centre: Any) -> tuple[Any, Any, Any, float]:
    """The rows, the smoothing and the point of a request, as `_core` takes them."""
    rows = rows_of(part, request["positive"], request["scaling"])
    smoothing = {"width": request["width"], "centre": None if centre is None else aligned(centre)}
    return rows, smoothing, aligned(request["w"]), request["b"]


def _answer(part: dict[str, Any], spec: dict[str, Any], request: Request, centre: Any) -> Any:
    rows, smoothing, w, b = _opened(part, request, centre)
    if request["kind"] == "product":
        vector, entry = _core.linear_product(spec, rows, smoothing, w, b, aligned(request["p"]), request["p_b"])
        return {"combination": vector, "sums": np.array([entry])}
    if request["kind"] == "certify":
        beta = _core.linear_centre(spec, rows, smoothing, w, b)
        return [_core.certify_rows(spec, rows, w, b, beta, request["factors"])]
    direction, means = request["direction"], request["means"]
    found = _core.linear_pass(
        spec,
        rows,
        smoothing,
        w,
        b,
        None if direction is None else (aligned(direction[0]), direction[1]),
        list(request["steps"]),
        request["moments"],
        None if means is None else aligned(means),
    )
    if request["moments"] == "full":
        # The lower triangle is half of the bytes.
        d = len(w)
        found["second"] = found["second"].reshape(d, d)[np.tril_indices(d)]
    return found


def move_centre(part: dict[str, Any], spec: dict[str, Any], request: Request, centre: Any) -> Any:
    """β of a partition at a point: the next centre of the smoothing."""
    return _core.linear_centre(spec, *_opened(part, request, centre))


def add(*results: list[Any]) -> list[Any]:
    """The sums of several partitions, added in their order; lists are joined."""
    total = [_copy(one) for one in results[0]]
    for result in results[1:]:
        for mine, other in zip(total, result):
            if isinstance(mine, list):
                mine.extend(other)
            else:
                for name in mine:
                    mine[name] += other[name]
    return total


def _copy(one: Any) -> Any:
    return list(one) if isinstance(one, list) else {name: value.copy() for name, value in one.items()}


def settled(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts of a certificate with aligned arrays."""
    arrays = ("numbers", "combination", "combination_error")
    return [{**part, **{name: aligned(part[name]) for name in arrays}} for part in parts]


class Machine:
    """One binary model or regression: its point and how it is smoothed."""

    def __init__(self, positive: Any, features: int, partitions: int) -> None:
        self.positive = positive
        self.w = np.zeros(features)
        self.b = 0.0
        self.width = 0.0
        self.centres: list[Any] = [None] * partitions
        self.iterations = 0
        self.certificate: dict[str, Any] = {"unknown": True}
        self.status = "inaccurate"
        #: The point of the smallest gap so far: gap, w, b, width, centres.
        self.best: tuple[float, Any, float, float, list[Any]] | None = None
        self.gap = np.inf
        self.primal = np.nan

    def keep(self, gap: float) -> None:
        """Remember the point if its gap is the smallest so far."""
        if self.best is None or gap < self.best[0]:
            self.best = (gap, self.w.copy(), self.b, self.width, list(self.centres))

    def restore(self) -> None:
        """Return to the point of the smallest gap."""
        if self.best is not None:
            _, self.w, self.b, self.width, self.centres = self.best


class Linear:
    """A linear model of one or several machines on partitions.

    Parameters
    ----------
    rounds, data, progress : object
        The cluster, the partitions, and where steps are reported.
    spec : dict
        The problem as `_core` takes it.
    scaling : float or None
        Value of the constant feature of the intercept: infinity for no penalty, None for no intercept.
    positives : list
        The class number of each machine; [None] for a regression.
    unit : float
        Typical size of an error of the score.
    max_iter : int
        Limit on Newton steps of a machine.
    """

    def __init__(
        self,
        rounds: Rounds,
        data: Partitions,
        progress: Progress,
        spec: dict[str, Any],
        scaling: float | None,
        positives: list[Any],
        unit: float,
        max_iter: int,
    ) -> None:
        self.rounds, self.data, self.progress, self.spec = rounds, data, progress, spec
        self.scaling = scaling
        self.rho = None if scaling is None else 0.0 if np.isinf(scaling) else 1.0 / scaling**2
        self.unit = unit
        self.max_iter = max_iter
        d = data.features
        self.direct = d <= DIRECT_FEATURES
        self.means: Any = None
        self.machines = [Machine(positive, d, len(data.parts)) for positive in positives]
        self.passes = 0
        label = np.array([1.0, -1.0]) if positives[0] is not None else np.array([0.0, unit])
        rows = {"x": np.zeros((2, 1)), "y": label, "costs": np.full(2, float(spec["C"])), "scaling": scaling}
        self.smooth = _core.linear_width(spec, rows) >= 0.5 * unit

    # Starting.

    def start(self, sample: dict[str, Any]) -> None:
        """Start from the solutions of a sample of the rows; its costs stand for all."""
        if self.direct and self.data.dense and self.rho is not None:
            self.means = np.asarray(sample["x"].mean(axis=0, dtype=np.float64)).ravel()
        if len(sample["y"]) * 4 > self.data.rows:
            # The sample would be a large part of the work: the first steps are as good.
            return
        scale = self.data.kept / len(sample["y"]) / self.spec["C"]
        for machine in self.machines:
            rows = rows_of({**sample, "y": sample["y"]}, machine.positive, None)
            used = np.flatnonzero(rows["costs"] > 0)
            y = rows["y"][used]
            if machine.positive is not None:
                # Class numbers 0 and 1.
                y = (y > 0).astype(np.float64)
            if len(used) == 0 or (machine.positive is not None and y.min() == y.max()):
                continue
            x, costs = points(sample["x"][used]), scale * rows["costs"][used]
            own = {**self.spec, "gap_tol": 1e-3, "tol": None, "aim_gap": None, "multiclass": "ovr", "threads": 0}
            own = {**own, "small": False} if self.spec["task"] == "classify" else {**own, "multiclass": None}
            result = _core.fit(own, x, np.ascontiguousarray(y), np.ascontiguousarray(costs))
            if "weights" in result:
                machine.w = np.ascontiguousarray(result["weights"].T[0])
            else:
                machine.w = np.asarray(sample["x"][used[result["rows"]]].T @ result["coefficients"]).ravel()
            machine.b = float(result["bias"][0]) if self.rho is not None else 0.0
            machine.width = 0.2 * self.unit

    # Rounds.

    def run(self) -> None:
        """Minimise all machines side by side: one task per partition and round answers all of them."""
        running = {at: self.minimise(machine) for at, machine in enumerate(self.machines)}
        requests: dict[int, Request] = {}
        answers: dict[int, Any] = {}
        try:
            while running:
                self.rounds.check()
                for at in list(running):
                    try:
                        requests[at] = running[at].send(answers.get(at))
                    except StopIteration:
                        del running[at]
                        requests.pop(at, None)
                if running:
                    answers = self.round({at: requests[at] for at in running})
        except Ended as ended:
            for at in running:
                self.machines[at].status = ended.status
                self.machines[at].restore()
            if ended.status == "time_limit":
                self.certify_rest([self.machines[at] for at in running])
            raise

    def round(self, requests: dict[int, Request]) -> dict[int, Any]:
        """The answers to the requests of some machines, summed over the partitions."""
        order = list(requests)
        asked: Any = [{name: value for name, value in requests[at].items() if name != "centres"} for at in order]
        if size_of(asked) * len(self.data.parts) > EMBEDDED:
            asked = self.rounds.value(asked, "point")
        count = len(self.data.parts)
        centres = [requests[at]["centres"] for at in order]
        futures = self.rounds.map(
            evaluate, self.data.parts, [self.spec] * count, [asked] * count, *centres, name="sums"
        )
        self.passes += 1
        # A tree of a shape that depends on the number of partitions alone: the same sums on any number of workers.
        while len(futures) > FAN_IN:
            groups = [futures[k : k + FAN_IN] for k in range(0, len(futures), FAN_IN)]
            futures = [self.rounds.submit(add, *group, name="add") for group in groups]
        return dict(zip(order, add(*self.rounds.gather(futures))))

    def request(self, machine: Machine, kind: str, **own: Any) -> Request:
        """A request at the point of a machine."""
        return {
            "kind": kind,
            "positive": machine.positive,
            "scaling": self.scaling,
            "w": machine.w,
            "b": machine.b,
            "width": machine.width,
            "centres": machine.centres,
            **own,
        }

    def probe(self, machine: Machine, direction: Any = None, steps: Any = ()) -> Request:
        """A request for the sums at a point of a direction."""
        moments = "full" if self.direct else "diagonal"
        means = self.means if self.direct else None
        return self.request(machine, "pass", direction=direction, steps=steps, moments=moments, means=means)

    def recentre(self, machine: Machine) -> None:
        """Move the centre of the smoothing to β at the present point."""
        request = {**self.request(machine, "centre"), "centres": None}
        count = len(self.data.parts)
        machine.centres = self.rounds.map(
            move_centre, self.data.parts, [self.spec] * count, [request] * count, machine.centres, name="centre"
        )

    # One machine.

    def minimise(self, machine: Machine) -> Steps:
        """Rounds of Newton's method until the certificate meets what was asked for."""
        target = float(self.spec["gap_tol"])
        machine.width = 0.0 if self.smooth else machine.width or 2.0 * self.unit
        idle, best = 0, np.inf
        while True:
            reached = yield from self.newton(machine, target)
            machine.keep(machine.gap)
            while machine.gap <= target:
                yield from self.certify(machine)
                if machine.certificate["met"]:
                    machine.status = "optimal"
                    return
                target *= 0.1
                if target < 1e-16:
                    return
            idle = 0 if machine.gap < 0.9 * best else idle + 1
            best = min(best, machine.gap)
            stalled = idle >= 8 or (self.smooth and (not reached or idle >= 2))
            if machine.iterations >= self.max_iter or stalled:
                machine.restore()
                yield from self.certify(machine)
                if machine.certificate["met"]:
                    machine.status = "optimal"
                else:
                    machine.status = "iteration_limit" if machine.iterations >= self.max_iter else "stalled"
                return
            if not self.smooth:
                self.recentre(machine)
                machine.width *= WIDTH_FACTOR if reached else 3.0

    def newton(self, machine: Machine, target: float) -> Steps:
        """Newton's method on the smoothed losses; returns whether w is as close to Xᵀβ as is worth it."""
        sums = yield self.probe(machine)
        idle, least = 0, np.inf
        while True:
            excess, mismatch, scale = self.measure(machine, sums)
            goal = 0.5 * target * scale if self.smooth else max(excess, 0.3 * target * scale)
            if mismatch <= goal:
                return True
            idle = 0 if mismatch < 0.5 * least else idle + 1
            least = min(least, mismatch)
            if idle > 12 or machine.iterations >= self.max_iter:
                return False
            machine.iterations += 1
            if self.direct:
                dw, db = self.direct_direction(machine, sums)
            else:
                dw, db = yield from self.cg_direction(machine, sums)
            start = self.slope(machine, dw, db, 0.0) - dw @ sums["combination"] - db * sums["sums"][3]
            if not start < 0:
                return False
            found = yield self.probe(machine, (dw, db), STEPS)
            t = 1.0
            slopes = {step: self.slope(machine, dw, db, step) + at for step, at in zip(STEPS, found["slopes"])}
            if slopes[1.0] > 0.1 * abs(start):
                t = _root(start, slopes)
                found = yield self.probe(machine, (dw, db), (t,))
            machine.w = machine.w + t * dw
            machine.b += t * db
            sums = found

    def slope(self, machine: Machine, dw: Any, db: float, t: float) -> float:
        """The derivative of the penalty along a direction."""
        penalty = machine.w @ dw + t * (dw @ dw)
        return float(penalty + (self.rho or 0.0) * (machine.b + t * db) * db)

    def measure(self, machine: Machine, sums: Any) -> tuple[float, float, float]:
        """The parts of the gap, Fenchel–Young terms and ½‖w − Xᵀβ‖², and max(|P|, |D|); reports the step."""
        loss, excess, size, total, _, _ = sums["sums"]
        difference = machine.w - sums["combination"]
        mismatch = 0.5 * float(difference @ difference)
        if self.rho == 0.0:
            # β must be scaled to Σβ = 0: an estimate of what that costs.
            mismatch += abs(total) * (self.unit + abs(machine.b))
        elif self.rho is not None:
            mismatch += 0.5 * (self.rho * machine.b - total) ** 2 / self.rho
        norm = 0.5 * float(machine.w @ machine.w) + 0.5 * (self.rho or 0.0) * machine.b**2
        primal, gap = norm + loss, excess + mismatch
        scale = max(abs(primal), abs(primal - gap))
        rounding = SUM_ROUNDING * (size + norm)
        machine.primal = primal
        machine.gap = 0.0 if gap <= rounding else gap / scale if np.isfinite(gap) and scale > 0 else np.inf
        self.progress.step("newton", machine.iterations, primal=primal, dual=primal - gap, active=self.data.rows)
        return float(excess), mismatch, scale

    # Directions.

    def bias_derivatives(self, machine: Machine, sums: Any) -> tuple[float, float]:
        """Slope and curvature of the objective in b; the curvature is infinite without a bias."""
        if self.rho is None:
            return 0.0, np.inf
        total = float(sums["sums"][5])
        bottom = self.rho + total
        return self.rho * machine.b - float(sums["sums"][3]), bottom if bottom > 0 else 1e-12

    def direct_direction(self, machine: Machine, sums: Any) -> tuple[Any, float]:
        """The Newton direction from the second moments, with b eliminated; 0 if rounding makes it singular."""
        gradient = machine.w - sums["combination"]
        total, bias = float(sums["sums"][5]), self.bias_derivatives(machine, sums)
        found = _core.linear_direction(
            aligned(sums["second"]), aligned(sums["first"]), self.means, total, gradient, bias
        )
        return found if found is not None else (np.zeros(len(gradient)), 0.0)

    def cg_direction(self, machine: Machine, sums: Any) -> Steps:
        """The Newton direction by conjugate gradients: one round for each product with the curvature."""
        slope, bottom = self.bias_derivatives(machine, sums)
        h = sums["first"] if self.rho is not None else np.zeros(len(machine.w))
        diagonal = 1.0 + sums["second"]
        residual = slope * h / bottom - (machine.w - sums["combination"])
        s = np.zeros(len(machine.w))
        y = residual / diagonal
        p = y.copy()
        energy = float(residual @ y)
        goal = 1e-2 * energy
        for _ in range(CG_STEPS):
            if not energy > goal:
                break
            # With b eliminated the product is that of the centred curvature.
            found = yield self.request(machine, "product", p=p, p_b=-float(h @ p) / bottom)
            q = p + found["combination"]
            curvature = float(p @ q)
            if not curvature > 0:
                break
            t = energy / curvature
            s += t * p
            residual = residual - t * q
            y = residual / diagonal
            following = float(residual @ y)
            p = y + (following / energy) * p
            energy = following
        return s, 0.0 if self.rho is None else -(slope + float(h @ s)) / bottom

    # Certifying.

    def certify(self, machine: Machine) -> Steps:
        """The certificate of the point of a machine, with β at its scores."""
        factors = (1.0, 1.0)
        if self.rho == 0.0:
            parts = yield self.request(machine, "certify", factors=factors)
            factors = _core.balance_parts(settled(parts))
        parts = yield self.request(machine, "certify", factors=factors)
        machine.certificate = _core.combine_linear_parts(self.spec, settled(parts), self.scaling, machine.w, machine.b)

    def certify_rest(self, machines: list[Machine]) -> None:
        """Certificates of machines that a time limit has ended; they take a little more time."""
        self.rounds.max_seconds = None
        for machine in machines:
            steps = self.certify(machine)
            try:
                answer = None
                while True:
                    answer = self.round({0: steps.send(answer)})[0]
            except StopIteration:
                if machine.certificate["met"]:
                    machine.status = "optimal"

    def result(self, interrupted: Any) -> dict[str, Any]:
        """What `_core.fit` returns of a linear model."""
        return {
            "machines": [
                {**machine.certificate, "status": machine.status, "iterations": machine.iterations}
                for machine in self.machines
            ],
            "history": self.progress.history,
            "interrupted": interrupted,
            "solver": "linear",
            "reason": "partitions on Dask: Newton's method, sums over rows on the workers",
        }


def _root(start: float, slopes: dict[float, float]) -> float:
    """The step at which the derivative vanishes, interpolated: it rises with the step."""
    before = (0.0, start)
    for step in sorted(slopes):
        if slopes[step] > 0:
            low, high = before[1], slopes[step]
            return before[0] + (step - before[0]) * (-low / (high - low))
        before = (step, slopes[step])
    return 1.0


__all__ = ["Linear"]
