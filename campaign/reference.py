"""Naive evaluations: kernels, scores, losses and objectives, each with a bound on its own rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .data import Array, Table
from .model import Model, pairs
from .options import Options, costs, encode

EPS = float(np.finfo(float).eps)


def differences(a: Array, b: Array, term: str) -> Array:
    """Σₖ of (aₖ − bₖ)², |aₖ − bₖ| or (aₖ − bₖ)²/(aₖ + bₖ) for every pair of rows."""
    total = np.zeros((len(a), len(b)))
    for k in range(a.shape[1]):
        diff = a[:, k][:, None] - b[:, k][None, :]
        if term == "square":
            total += diff * diff
        elif term == "absolute":
            total += np.abs(diff)
        else:
            both = a[:, k][:, None] + b[:, k][None, :]
            total += np.divide(diff * diff, both, out=np.zeros_like(diff), where=both > 0)
    return total


def kernel_matrix(kernel: dict[str, Any], a: Array, b: Array) -> tuple[Array, Array, Array]:
    """K(a, b), a bound on the error of any reasonable evaluation of it, and the size of the terms summed for an entry."""
    name, d = kernel["name"], a.shape[1]
    gamma = float(kernel.get("gamma") or 0.0)
    with np.errstate(all="ignore"):
        if name in ("linear", "poly", "sigmoid"):
            dot, size = a @ b.T, np.abs(a) @ np.abs(b).T
            slip = 4 * (d + 4) * EPS * size
            if name == "linear":
                return dot, slip, size
            coef0 = float(kernel["coef0"])
            s = gamma * dot + coef0
            slip = gamma * slip + 4 * EPS * (np.abs(gamma * dot) + abs(coef0))
            if name == "sigmoid":
                value = np.tanh(s)
                return value, np.minimum(slip, 2.0) + 4 * EPS, np.abs(value)
            degree = int(kernel["degree"])
            value = s**degree
            return value, degree * (np.abs(s) + slip) ** (degree - 1) * slip + 4 * degree * EPS * np.abs(value), np.abs(value)
        if name in ("rbf", "matern32", "matern52"):
            centre = a.mean(axis=0)
            # A program may expand ‖a − b‖² into norms of points that were centred first: the error is relative to those.
            norms = ((a - centre) ** 2).sum(axis=1)[:, None] + ((b - centre) ** 2).sum(axis=1)[None, :]
            s = differences(a, b, "square")
            slip = 8 * (d + 8) * EPS * (norms + s)
        else:
            s = differences(a, b, "absolute" if name == "laplacian" else "chi")
            slip = 8 * (d + 8) * EPS * s
        if name == "matern32":
            t = np.sqrt(6 * gamma * s)
            value, slope = (1 + t) * np.exp(-t), 3 * gamma * np.exp(-t)
        elif name == "matern52":
            t = np.sqrt(10 * gamma * s)
            value, slope = (1 + t + t * t / 3) * np.exp(-t), 5 / 3 * gamma * (1 + t) * np.exp(-t)
        else:
            value = np.exp(-gamma * s)
            slope = gamma * value
        # For large arguments the relative error of exp is the absolute error of the argument.
        # The program guarantees entries relative to those of the diagonal, which are 1.
        bound = np.minimum(np.expm1(np.minimum(gamma * slip * 10, 700)), 1e300) * value + slope * slip + 8 * EPS
        return value, np.minimum(bound, 1.0), value


@dataclass
class Scores:
    """f(x) + b of every row and output, with bounds on the rounding of f and the parts of the objective."""

    f: Array
    bias: Array
    slip: Array
    diagonal: Array | None = None

    @property
    def z(self) -> Array:
        return self.f + self.bias


def scores(model: Model, features: Array) -> Scores:
    """The naive scores of a model on rows; for a precomputed kernel `features` are rows of the Gram matrix."""
    bias = model.bias
    width = int(model.header["features"])
    if features.shape[1] < width:
        features = np.hstack([features, np.zeros((len(features), width - features.shape[1]))])
    x = model.scaled(features[:, :width])
    if "weights" in model.arrays:
        w = model.arrays["weights"].reshape(width, model.outputs)
        f = x @ w
        slip = 4 * (width + 4) * EPS * (np.abs(x) @ np.abs(w)) + 4 * EPS * np.abs(bias)
        return Scores(f, bias, slip)
    beta = model.coefficients()
    if model.header["kernel"]["name"] == "precomputed":
        gram = x[:, model.rows]
        error, size = np.zeros_like(gram), np.abs(gram)
    else:
        gram, error, size = kernel_matrix(model.header["kernel"], x, model.centres())
    f = gram @ beta
    slip = error @ np.abs(beta) + 4 * (len(beta) + 4) * EPS * (size @ np.abs(beta)) + 4 * EPS * np.abs(bias)
    diagonal = None
    if model.header["formulation"]["name"] == "svdd":
        diagonal = np.array([kernel_matrix(model.header["kernel"], row[None], row[None])[0][0, 0] for row in x])
        slip = slip + 4 * (width + 4) * EPS * np.abs(diagonal)[:, None] * 4
    return Scores(f, bias, slip, diagonal)


def loss_value(loss: dict[str, Any], y: Array, z: Array) -> Array:
    """The loss of each sample."""
    name = loss["name"]
    u, r = np.maximum(1 - y * z, 0.0), y - z
    with np.errstate(all="ignore"):
        if name == "hinge":
            return u
        if name == "smooth-hinge":
            k = loss["K"]
            return np.where(u < 1 / k, 0.5 * k * u * u, u - 0.5 / k)
        if name == "squared-hinge":
            return u * u
        if name == "power":
            return u ** loss["s"]
        if name == "huber-hinge":
            return np.where(u < loss["delta"], u * u, loss["delta"] * (2 * u - loss["delta"]))
        if name == "logistic":
            return np.logaddexp(0.0, -y * z)
        if name == "ramp":
            return np.minimum(u, loss["limit"])
        if name == "sigmoid":
            return 1 / (1 + np.exp(-2 * loss["eta"] * (u - 1)))
        if name == "polynomial":
            ratio = (u + loss["kappa"]) / (1 + loss["kappa"])
            return np.where(u < 1, 0.5 * ratio ** loss["s"], 1 - 0.5 * ratio ** -loss["s"])
        if name == "epsilon":
            return np.maximum(np.abs(r) - loss["epsilon"], 0.0)
        if name == "squared-epsilon":
            return np.maximum(np.abs(r) - loss["epsilon"], 0.0) ** 2
        if name == "square":
            return 0.5 * r * r
        if name == "huber":
            size = np.abs(r)
            return np.where(size <= loss["delta"], 0.5 * r * r, loss["delta"] * (size - 0.5 * loss["delta"]))
        if name == "absolute":
            return np.abs(r)
        if name == "pinball":
            return np.where(r >= 0, loss["tau"] * r, (loss["tau"] - 1) * r)
        if name == "expectile":
            return np.where(r >= 0, loss["tau"], 1 - loss["tau"]) * r * r
        if name == "logcosh":
            size = np.abs(r)
            return np.where(size < 20, 0.5 * np.log1p(np.sinh(np.minimum(size, 20)) ** 2), size - np.log(2.0))
        if name == "above":
            return np.maximum(r, 0.0)
    raise ValueError(f"unknown loss {name}")


def summed(loss: dict[str, Any], c: Array, y: Array, z: Array, slip: Array) -> tuple[float, float]:
    """Σ c·loss and how much an error `slip` of the scores can change it."""
    value = loss_value(loss, y, z)
    moved = np.maximum(np.abs(loss_value(loss, y, z + slip) - value), np.abs(loss_value(loss, y, z - slip) - value))
    keep = c > 0
    total = float((c * value)[keep].sum())
    return total, float((c * moved)[keep].sum()) + 4 * EPS * (len(c) + 8) * float((c * np.abs(value))[keep].sum())


def conjugate(loss: dict[str, Any], y: Array, a: Array) -> tuple[Array, Array] | None:
    """ℓ*(y, −a) with a = β/c, and how far `a` is outside the domain; `None` for losses without one here."""
    name = loss["name"]
    margin = {"hinge": 1.0, "smooth-hinge": 1.0, "squared-hinge": np.inf, "power": np.inf, "logistic": 1.0}
    margin["huber-hinge"] = 2.0 * loss.get("delta", 1.0)
    if name == "power" and loss["s"] == 1.0:
        margin["power"] = 1.0
    with np.errstate(all="ignore"):
        if name in margin:
            top, t = margin[name], y * a
            off = np.maximum(np.maximum(-t, t - top), 0.0)
            t = np.clip(t, 0.0, top)
            if name == "hinge" or (name == "power" and loss["s"] == 1.0):
                value = -t
            elif name == "smooth-hinge":
                value = 0.5 * t * t / loss["K"] - t
            elif name == "logistic":
                value = np.where(t > 0, t * np.log(t), 0.0) + np.where(t < 1, (1 - t) * np.log1p(-t), 0.0)
            elif name == "power":
                s = loss["s"]
                value = (s - 1) * (t / s) ** (s / (s - 1)) - t
            else:
                value = 0.25 * t * t - t
            return value, off
        ends = {"epsilon": 1.0, "absolute": 1.0, "logcosh": 1.0, "huber": loss.get("delta", 1.0)}
        low, high = -ends.get(name, np.inf), ends.get(name, np.inf)
        if name == "pinball":
            low, high = loss["tau"] - 1, loss["tau"]
        off = np.maximum(np.maximum(low - a, a - high), 0.0)
        t = np.clip(a, low, high)
        if name in ("epsilon", "squared-epsilon"):
            value = loss["epsilon"] * np.abs(t) + (0.25 * t * t if name == "squared-epsilon" else 0.0)
        elif name in ("absolute", "pinball"):
            value = np.zeros_like(t)
        elif name in ("square", "huber"):
            value = 0.5 * t * t
        elif name == "expectile":
            value = 0.25 * t * t / np.where(t >= 0, loss["tau"], 1 - loss["tau"])
        elif name == "logcosh":
            value = 0.5 * (np.where(t > -1, (1 + t) * np.log1p(t), 0.0) + np.where(t < 1, (1 - t) * np.log1p(-t), 0.0))
        else:
            return None
        return value - t * y, off


@dataclass
class Value:
    """An objective and a bound on the rounding of it."""

    value: float
    slip: float


@dataclass
class Problem:
    """The problem that is minimised, for naive evaluations of the objective."""

    options: Options
    table: Table
    target: Array | None

    def weights(self, model: Model) -> Array:
        return costs(self.options, self.table, model.header["labels"])

    def cost(self) -> float:
        if self.options.lam is not None:
            return 1.0 / (2.0 * self.options.lam * self.table.n)
        return 1.0 if self.options.cost is None else self.options.cost

    def codes(self, model: Model) -> Array:
        assert self.target is not None
        return encode(self.target, model.header["labels"])


def machine_parts(problem: Problem, model: Model, output: int) -> tuple[Array, Array, Array]:
    """Rows of the data that one of several binary models is trained on, its targets, and the costs of those rows."""
    n = problem.table.n
    everything = np.arange(n)
    c = problem.cost() * problem.weights(model)
    if model.header["task"] != "classify":
        target = np.zeros(n) if problem.target is None else problem.target.reshape(n, -1)[:, output]
        return everything, target.astype(float), c
    codes = problem.codes(model)
    if model.scheme == "one":
        return everything, np.where(codes == 1, 1.0, -1.0), c
    if model.scheme == "one-vs-rest":
        return everything, np.where(codes == output, 1.0, -1.0), c
    i, j = pairs(len(model.header["labels"]))[output]
    rows = np.flatnonzero((codes == i) | (codes == j))
    return rows, np.where(codes[rows] == j, 1.0, -1.0), c[rows]


def squared_norm(model: Model, given: Scores, output: int) -> Value:
    """‖f‖² of one output."""
    if "weights" in model.arrays:
        w = model.arrays["weights"].reshape(-1, model.outputs)[:, output]
        square = float(w @ w)
        if model.header.get("penalty") == "l1":
            square = 2.0 * float(np.abs(w).sum())
        return Value(square, 4 * EPS * (len(w) + 4) * square)
    beta = model.coefficients()[:, output]
    f, slip = given.f[model.rows, output], given.slip[model.rows, output]
    size = np.abs(beta) @ (slip + 4 * EPS * (len(beta) + 4) * np.abs(f))
    return Value(float(beta @ f), float(size))


def objective(problem: Problem, model: Model, given: Scores, output: int) -> Value:
    """The primal objective of one binary model at its own bias."""
    rows, y, c = machine_parts(problem, model, output)
    norm = squared_norm(model, given, output)
    f, slip, b = given.f[rows, output], given.slip[rows, output], float(given.bias[output])
    return evaluate(problem, model, norm, f, slip, b, y, c, output)


def evaluate(problem: Problem, model: Model, norm: Value, f: Array, slip: Array, b: float, y: Array, c: Array, output: int) -> Value:
    """The primal objective of a function with these scores, for the problem of binary model `output`."""
    form, record = model.header["formulation"], model.header["machines"][min(output, len(model.header["machines"]) - 1)]
    half = 0.5 * norm.value
    weights = problem.weights(model)
    if form["name"] == "cost":
        total, moved = summed(model.header["loss"], c, y, f + b, slip)
        half += penalised_bias(model, b)
        return Value(half + total, 0.5 * norm.slip + moved + 8 * EPS * abs(half + total))
    above = {"name": "above"}
    if form["name"] == "nu" and model.header["task"] == "classify":
        w, rho = (c / problem.cost()), float(record["rho"])
        # A model without a margin is saved unscaled, with its ρ ≤ 0.
        margin = rho if record.get("tube") is None else float(record["tube"])
        total, moved = summed(above, w, np.full(len(y), margin), rho * y * (f + b), rho * slip)
        linear = -form["nu"] * w.sum() * margin
        value = rho * rho * half + total + linear
        return Value(value, rho * rho * 0.5 * norm.slip + moved + 8 * EPS * abs(linear))
    if form["name"] == "nu":
        tube = float(record["tube"])
        up, moved_up = summed(above, c, y, f + b + tube, slip)
        down, moved_down = summed(above, c, -y, -(f + b - tube), slip)
        linear = form["nu"] * c.sum() * tube
        return Value(half + up + down + linear, 0.5 * norm.slip + moved_up + moved_down + 8 * EPS * abs(linear))
    if form["name"] == "one-class":
        total, moved = summed(above, weights, np.zeros(len(f)), f + b, slip)
        linear = form["nu"] * weights.sum() * b
        return Value(half + total + linear, 0.5 * norm.slip + moved + 8 * EPS * abs(linear))
    raise ValueError(form["name"])


def svdd_objective(problem: Problem, model: Model, given: Scores) -> Value:
    """The objective of the smallest ball; the targets are half the diagonal."""
    weights = problem.weights(model)
    norm = squared_norm(model, given, 0)
    assert given.diagonal is not None
    c = weights / (float(model.header["formulation"]["nu"]) * weights.sum())
    b = float(given.bias[0])
    total, moved = summed({"name": "above"}, c, 0.5 * given.diagonal, given.f[:, 0] + b, given.slip[:, 0])
    return Value(0.5 * norm.value + b + total, 0.5 * norm.slip + moved + 8 * EPS * abs(b))


def penalised_bias(model: Model, b: float) -> float:
    scaling = model.header.get("intercept_scaling")
    if scaling is None:
        return 0.0
    return abs(b) / scaling if model.header.get("penalty") == "l1" else 0.5 * (b / scaling) ** 2


def crammer_singer(problem: Problem, model: Model, given: Scores) -> Value:
    """The objective of the Crammer–Singer model."""
    codes, c = problem.codes(model), problem.cost() * problem.weights(model)
    norms = [squared_norm(model, given, k) for k in range(model.outputs)]
    value = sum(0.5 * norm.value + penalised_bias(model, float(b)) for norm, b in zip(norms, given.bias, strict=True))
    rows = np.arange(len(codes))
    own = given.z[rows, codes]
    raised = given.z + 1.0
    raised[rows, codes] -= 1.0
    total = float((c * (raised.max(axis=1) - own)).sum())
    moved = float((c * 2 * given.slip.max(axis=1)).sum())
    return Value(value + total, moved + sum(0.5 * norm.slip for norm in norms) + 8 * EPS * (abs(value) + total))


def objectives(problem: Problem, model: Model, given: Scores) -> list[Value]:
    """The primal objective of every binary model."""
    if model.scheme == "crammer-singer":
        return [crammer_singer(problem, model, given)]
    if model.header["formulation"]["name"] == "svdd":
        return [svdd_objective(problem, model, given)]
    return [objective(problem, model, given, output) for output in range(model.outputs)]


def dual_objective(problem: Problem, model: Model, given: Scores, x: Array, output: int) -> Value | None:
    """The dual objective at the model's own β; `None` if β is not feasible without changes or the loss has no dual here."""
    header = model.header
    if header["formulation"]["name"] != "cost" or header.get("penalty") == "l1" or model.scheme == "crammer-singer":
        return None
    rows, y, c = machine_parts(problem, model, output)
    beta = np.zeros(problem.table.n)
    beta[model.rows] = model.coefficients()[:, output]
    beta = beta[rows]
    size = float(np.abs(beta).sum())
    if (c <= 0).any() or (header["free_bias"] and abs(beta.sum()) > 1e-12 * size):
        return None
    found = conjugate(header["loss"], y, beta / c)
    if found is None or (found[1] > 1e-12 * np.abs(beta / c)).any():
        return None
    if "weights" in model.arrays:
        w = beta @ x[rows]
        square, slip = float(w @ w), 8 * EPS * (len(rows) + 4) * float(np.linalg.norm(np.abs(beta) @ np.abs(x[rows]))) ** 2
    else:
        norm = squared_norm(model, given, output)
        square, slip = norm.value, norm.slip
    if header.get("intercept_scaling") is not None:
        square += float(header["intercept_scaling"] * beta.sum()) ** 2
    terms = c * found[0]
    slip = 0.5 * slip + 8 * EPS * (len(c) + 8) * float(np.abs(terms).sum())
    if header["free_bias"]:
        # The certificate moves β onto Σβ = 0, at the cost of a target and a score per unit moved.
        slip += 2 * abs(float(beta.sum())) * float(np.abs(y).max() + np.abs(given.z[rows, output]).max())
    return Value(-0.5 * square - float(terms.sum()), slip)


def duals(problem: Problem, model: Model, given: Scores, features: Array) -> list[Value | None]:
    """The dual objective of every binary model, where it can be computed."""
    if model.scheme == "crammer-singer":
        return [None]
    width = int(model.header["features"])
    padded = np.hstack([features, np.zeros((len(features), max(0, width - features.shape[1])))])[:, :width]
    x = model.scaled(padded)
    return [dual_objective(problem, model, given, x, output) for output in range(model.outputs)]


def gamma_rule(rule: str, model: Model, features: Array) -> float | None:
    """γ by its rule, from the features as the kernel gets them."""
    width = int(model.header["features"])
    padded = np.hstack([features, np.zeros((len(features), max(0, width - features.shape[1])))])[:, :width]
    x = model.scaled(padded)
    if rule == "auto":
        return 1.0 / max(width, 1)
    if rule == "scale":
        spread = float(x.astype(np.longdouble).var()) * x.shape[1] if x.size else 0.0
        return 1.0 / spread if spread > 0 else 1.0
    return None


def decisions(model: Model, given: Scores) -> tuple[Array, Array]:
    """The expected output of each row, as the index of a label or a number, and whether it is certain despite rounding."""
    z, slip = given.z, given.slip
    if given.diagonal is not None:
        z = z - 0.5 * given.diagonal[:, None]
    if model.header["task"] != "classify":
        return (z[:, 0] >= 0).astype(int), (np.abs(z) > slip).all(axis=1)
    if model.scheme == "one":
        return (z[:, 0] > 0).astype(int), np.abs(z[:, 0]) > slip[:, 0]
    if model.scheme == "one-vs-one":
        classes = len(model.header["labels"])
        votes = np.zeros((len(z), classes), dtype=int)
        for output, (i, j) in enumerate(pairs(classes)):
            won = z[:, output] > 0
            votes[won, j] += 1
            votes[~won, i] += 1
        return votes.argmax(axis=1), (np.abs(z) > slip).all(axis=1)
    order = np.sort(z, axis=1)
    return z.argmax(axis=1), order[:, -1] - order[:, -2] > 2 * slip.max(axis=1)
