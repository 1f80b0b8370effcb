"""The data of the comparison: name → (X, y, loss, C). Sparse or dense, labels ±1 or real."""

import gzip
import os

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file


def text(folder, name):
    X, y = load_svmlight_file(os.path.join(folder, name + ".svm.gz"))
    return X.tocsr(), np.where(y == y.max(), 1.0, -1.0)


def table(folder, name):
    with gzip.open(os.path.join(folder, name + ".csv.gz")) as f:
        A = np.loadtxt(f, delimiter=",", skiprows=1)
    X, y = A[:, :-1], A[:, -1]
    spread = X.std(0)
    spread[spread == 0] = 1
    return np.ascontiguousarray((X - X.mean(0)) / spread), y


def seeded(n=200_000, d=50_000, width=60, seed=7):
    """Columns by a law like Zipf's, unit rows, labels by a sparse truth with 5 % of them wrong."""
    rng = np.random.default_rng(seed)
    columns = np.minimum((d ** rng.random((n, width)) - 1) * d / (d - 1), d - 1).astype(int)
    values = np.abs(rng.normal(size=(n, width))) + 0.1
    X = sp.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * width + 1, width)), shape=(n, d))
    X.sum_duplicates()
    X = (sp.diags(1 / np.sqrt(np.asarray(X.multiply(X).sum(1)).ravel())) @ X).tocsr()
    X.sort_indices()
    score = X @ (rng.normal(size=d) * (rng.random(d) < 0.2))
    y = np.where(score > np.median(score), 1.0, -1.0)
    return X, np.where(rng.random(n) < 0.05, -y, y)


def cells(folder):
    out = {}
    for name in ["a9a", "w8a", "reuters_moneyfx", "basehock", "rcv1_vw1000"]:
        for loss in ["hinge", "squared-hinge"]:
            out[f"{name}-{loss}"] = (lambda name=name: text(folder, name), loss, 1.0)

    def covtype():
        X, y = table(folder, "covtype")
        return X, np.where(y == 2, 1.0, -1.0)

    def skin():
        X, y = table(folder, "skin_nonskin")
        return X, np.where(y == 2, 1.0, -1.0)

    def cadata():
        X, y = table(folder, "cadata")
        return X, (y - y.mean()) / y.std()

    for name, make in [("covtype", covtype), ("skin", skin)]:
        for loss in ["hinge", "squared-hinge"]:
            for C in [1.0, 100.0]:
                out[f"{name}-{loss}-C{C:g}"] = (make, loss, C)
    for loss in ["epsilon:epsilon=0.1", "squared-epsilon:epsilon=0.1"]:
        out[f"cadata-{loss.split(':')[0]}"] = (cadata, loss, 1.0)
    for loss in ["hinge", "squared-hinge"]:
        out[f"seeded-{loss}"] = (seeded, loss, 1.0)
    return out
