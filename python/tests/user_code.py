"""Code as users write it, checked with `mypy --strict` and run by the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

import margrave
from margrave.losses import Custom, LossLike

Array = npt.NDArray[np.float64]


class Logistic:
    """A loss of the user."""

    def value(self, y: Array, z: Array) -> Array:
        losses: Array = np.logaddexp(0, -y * z)
        return losses

    def slope(self, y: Array, z: Array) -> Array:
        slopes: Array = -y / (1 + np.exp(y * z))
        return slopes


def fit_and_report(X: Array, y: npt.NDArray[np.int64]) -> str:
    loss: LossLike = Logistic()
    model = margrave.SVC(C=10.0, gamma="median", loss=loss, max_seconds=10).fit(X, y)
    certificate: margrave.Certificate = model.certificate_
    assert certificate.convex
    scores: Array = model.decision_function(X)
    labels = model.predict(X)
    assert scores.shape == labels.shape
    return certificate.summary()


def search(X: Array, y: Array) -> tuple[float, Array]:
    found = margrave.SVRCV(Cs=[1, 10], gammas=(0.1, 1.0), epsilons=[0.05], intervals=True).fit(X, y)
    values, intervals = found.predict(X, return_interval=0.9)
    assert intervals.shape == (len(values), 2)
    return float(found.best_score_), values


def keep(folder: Path, X: Array, y: Array) -> bytes:
    model = margrave.LinearSVR(loss=Custom(lambda y, z: (y - z) ** 2, lambda y, z: 2 * (z - y))).fit(X, y)
    ridge = margrave.KernelRidge(kernel="rbf", alpha=0.1).fit(X, y)
    margrave.save(ridge, folder / "ridge.model")
    again = margrave.load(folder / "ridge.model")
    assert np.allclose(again.predict(X), ridge.predict(X))
    assert margrave.certify(model, X, y).known
    return margrave.export_onnx(ridge, metadata={"author": "a user"})


def judge(folder: Path, X: Array, y: npt.NDArray[np.int64]) -> float:
    found: margrave.Evaluation = margrave.evaluate(margrave.SVC(threshold="max-f1"), X, y, cv=3)
    found.save(folder / "report.json")
    figures: margrave.Figures = found.best()
    assert figures.confusion().sum() == len(y)
    accuracy: float = figures.metrics["accuracy"]
    return accuracy


def main(folder: Path) -> list[str]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = X[:, 0] - X[:, 1] ** 2
    score, _ = search(X, y)
    names = [info.name for info in margrave.losses.all() if info.regression]
    assert keep(folder, X, y) and score > -1 and names
    novelty = margrave.OneClassSVM(nu=0.1, loss="svdd", warm_start=True).fit(X)
    assert novelty.score_samples(X).shape == (80,)
    assert 0.5 < judge(folder, X, (y > 0).astype(np.int64)) <= 1
    return [fit_and_report(X, (y > 0).astype(np.int64))]
