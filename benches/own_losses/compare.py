"""Losses written in Python beside their built-in twins: seconds of a fit and calls of the functions.

usage: python benches/own_losses/compare.py [--rows 500,2000,8000,20000] [--repeats 3]   (needs numpy, scikit-learn and margrave)

Fits of the two take turns; a figure is the least of the repeats. The data are drawn from two overlapping classes with ten features,
and from a linear function with outliers for regression.
"""

import argparse
import time

import numpy as np

import margrave


class Counted:
    """Counts the calls of its functions."""

    calls = 0


class Logistic(Counted):
    def value(self, y, z):
        self.calls += 1
        return np.logaddexp(0, -y * z)

    def slope(self, y, z):
        self.calls += 1
        return -y / (1 + np.exp(y * z))


class SquaredHinge(Counted):
    def value(self, y, z):
        self.calls += 1
        return np.maximum(0, 1 - y * z) ** 2

    def slope(self, y, z):
        self.calls += 1
        return -2 * y * np.maximum(0, 1 - y * z)


class Huber(Counted):
    def value(self, y, z):
        self.calls += 1
        r = np.abs(y - z)
        return np.where(r <= 1, 0.5 * r**2, r - 0.5)

    def slope(self, y, z):
        self.calls += 1
        return np.clip(z - y, -1, 1)


def data(rows):
    """Points, labels and real targets."""
    rng = np.random.default_rng(rows)
    X = rng.normal(size=(rows, 10))
    score = X @ rng.normal(size=10) + X[:, 0] * X[:, 1]
    labels = (score + rng.normal(size=rows) > 0).astype(int)
    return X, labels, score / score.std() + 0.3 * rng.standard_t(2, size=rows)


def fit(model, X, y):
    """The fitted model and its seconds."""
    begun = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="500,2000,8000,20000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases = [
        (margrave.SVC, Logistic, "logistic"),
        (margrave.SVC, SquaredHinge, "squared-hinge"),
        (margrave.SVR, Huber, "huber:delta=1"),
        (margrave.LinearSVC, Logistic, "logistic"),
        (margrave.LinearSVC, SquaredHinge, "squared-hinge"),
        (margrave.LinearSVR, Huber, "huber:delta=1"),
    ]
    print("| estimator | loss | rows | built-in, s | own, s | ratio | calls | status |")
    print("|---|---|---|---|---|---|---|---|")
    for rows in map(int, options.rows.split(",")):
        X, labels, targets = data(rows)
        for kind, loss, name in cases:
            if options.only not in kind.__name__:
                continue
            y = targets if kind.__name__.endswith("R") else labels
            best = [np.inf, np.inf]
            for _ in range(options.repeats):
                own = loss()
                twin, mine = kind(loss=name), kind(loss=own)
                best = [min(best[0], fit(twin, X, y)), min(best[1], fit(mine, X, y))]
            status = f"{twin.certificate_.status}, {mine.certificate_.status}"
            ratio = f"{best[1] / best[0]:.2f}"
            row = (kind.__name__, name, rows, f"{best[0]:.4f}", f"{best[1]:.4f}", ratio, own.calls, status)
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
