"""Other models for the same problem: no certified lower bound may be above the objective of any of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .data import Array
from .invariants import Bracket
from .model import Model
from .reference import EPS, Problem, Scores, Value, evaluate, kernel_matrix, machine_parts, objective, squared_norm

try:
    from sklearn import linear_model, svm

    SKLEARN = True
except ImportError:
    SKLEARN = False


def rescaled(problem: Problem, model: Model, given: Scores) -> Bracket:
    """The best multiple of the model with an adjusted bias; the zero model is one of them. For one output and a cost."""
    rows, y, c = machine_parts(problem, model, 0)
    norm = squared_norm(model, given, 0)
    best = objective(problem, model, given, 0)
    b = float(given.bias[0])
    moves = [0.0]
    if model.header["free_bias"]:
        spread = float(np.abs(given.f[rows, 0]).max(initial=0.0)) + float(np.abs(y).max(initial=0.0))
        moves += [sign * step * spread for sign in (-1.0, 1.0) for step in (1e-4, 1e-2, 0.1, 0.5)]
        moves += [float(np.median(y)) - b, float(np.mean(y)) - b]
    for scale in (0.0, 0.5, 0.9, 0.99, 0.999, 1.0, 1.001, 1.01, 1.1, 2.0):
        square = Value(norm.value * scale**2, norm.slip * scale**2)
        if model.header.get("penalty") == "l1":
            square = Value(norm.value * scale, norm.slip)
        for move in moves:
            shift = (b + move) if model.header.get("intercept_scaling") is None else b * scale
            value = evaluate(problem, model, square, scale * given.f[rows, 0], given.slip[rows, 0], shift, y, c, 0)
            if value.value < best.value:
                best = value
    return Bracket(None, best.value, best.slip)


def sklearn_peer(problem: Problem, model: Model, features: Array) -> tuple[str, Bracket] | None:
    """scikit-learn's model under our objective, if it has one for this problem."""
    header = model.header
    if not SKLEARN or model.scheme != "one" or header["formulation"]["name"] != "cost" or header["task"] == "novelty":
        return None
    loss, kernel = header["loss"], header["kernel"]
    width = int(header["features"])
    padded = np.hstack([features, np.zeros((len(features), max(0, width - features.shape[1])))])[:, :width]
    x = model.scaled(padded)
    rows, y, c = machine_parts(problem, model, 0)
    keep = c > 0
    if keep.sum() < 2 or len(set(y[keep])) < 2 or header.get("penalty") == "l1" or header.get("intercept_scaling"):
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            fitted = fit(loss, kernel, x[keep], y[keep], c[keep], bool(header["free_bias"]))
        except ValueError:  # scikit-learn gives up on data this large
            return None
    if fitted is None:
        return None
    name, f, square, b, slip = fitted
    full_f, full_slip = np.zeros(len(y)), np.zeros(len(y))
    full_f[keep], full_slip[keep] = f, slip
    if not (np.isfinite(full_f).all() and np.isfinite(b) and np.isfinite(square)):
        return None
    value = evaluate(problem, model, Value(square, EPS * square), full_f, full_slip, b, y, c, 0)
    return name, Bracket(None, value.value, value.slip)


def fit(
    spec: dict[str, Any], kernel: dict[str, Any], x: Array, y: Array, c: Array, bias: bool
) -> tuple[str, Array, float, float, Array] | None:
    """Name, f, ‖f‖², bias and rounding of f of scikit-learn's model; `None` if it has none."""
    loss = spec["name"]
    if loss in ("hinge", "epsilon") and bias and kernel["name"] != "precomputed":
        gram, error, _ = kernel_matrix(kernel, x, x)
        if not np.isfinite(gram).all():
            return None
        if loss == "hinge":
            machine = svm.SVC(kernel="precomputed", C=1.0, tol=1e-6, max_iter=100_000)
        else:
            machine = svm.SVR(kernel="precomputed", C=1.0, epsilon=spec["epsilon"], tol=1e-6, max_iter=100_000)
        machine.fit(gram, y, sample_weight=c)
        beta = np.zeros(len(x))
        beta[machine.support_] = machine.dual_coef_[0]
        f = gram @ beta
        return type(machine).__name__, f, float(beta @ f), float(machine.intercept_[0]), error @ np.abs(beta)
    if kernel["name"] != "linear":
        return None
    if loss == "square":
        machine = linear_model.Ridge(alpha=1.0, fit_intercept=bias)
    elif loss == "logistic":
        machine = linear_model.LogisticRegression(C=1.0, fit_intercept=bias, tol=1e-8, max_iter=1000)
    else:
        return None
    machine.fit(x, y, sample_weight=c)
    w = np.ravel(machine.coef_)
    b = float(np.ravel(machine.intercept_)[0]) if bias else 0.0
    return type(machine).__name__, x @ w, float(w @ w), b, 8 * EPS * (x.shape[1] + 4) * (np.abs(x) @ np.abs(w))
