"""Crammer and Singer's machine beside LIBLINEAR's, which scikit-learn runs. See `run classes`.

For every set: the time and the objective of LIBLINEAR at its default tolerance 0.1 and at 1e-3 (penalised bias), the time in which
Margrave certifies that its own objective is as near to the optimum, and the time to a certified gap of 1e-6. Times cover training
without reading, least of `--repeats`, on one core.
"""

import argparse
import csv
import gzip
import json
import os
import subprocess
import tempfile
import time
import warnings

import numpy as np
import scipy.sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.svm import LinearSVC

STORED = {"dna": "dna_scale.svm.gz", "letter": "letter_scale.svm.gz", "segment": "segment_scale.svm.gz",
          "vehicle": "vehicle_scale.svm.gz", "vowel": "vowel_scale.svm"}  # fmt: skip


def table(path):
    """Features scaled to [-1, 1] and classes of a CSV file with a header."""
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt") as file:
        rows = list(csv.reader(file))[1:]
    features = np.array([[float(value) for value in row[:-1]] for row in rows])
    return features, np.unique([row[-1] for row in rows], return_inverse=True)[1]


def scaled(features):
    low, high = features.min(0), features.max(0)
    return 2 * (features - low) / np.maximum(high - low, 1e-12) - 1


def blobs(random, n, d, k, spread):
    y = random.integers(0, k, n)
    return random.normal(size=(k, d))[y] * spread + random.normal(size=(n, d)), y


def text(random, n=8000, d=20000, k=20):
    """Rows like TF-IDF of texts on k topics, 15 % with a wrong label."""
    frequency = 1 / (np.arange(d) + 10.0)
    frequency /= frequency.sum()
    topics = [random.choice(d, 300, replace=False) for _ in range(k)]
    y, rows, columns = random.integers(0, k, n), [], []
    for i in range(n):
        length = random.integers(40, 160)
        topic = topics[y[i] if random.random() > 0.15 else random.integers(k)]
        words = np.unique(np.r_[random.choice(d, length, p=frequency), random.choice(topic, length // 6)])
        rows += [i] * len(words)
        columns += list(words)
    X = scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), (n, d))
    X = X @ scipy.sparse.diags(np.log(n / (1 + np.asarray(X.sum(0)).ravel())))
    norms = np.sqrt(np.asarray(X.multiply(X).sum(1)).ravel())
    return scipy.sparse.diags(1 / norms) @ X, y


def make(name, data):
    random = np.random.default_rng(0)
    if name in STORED:
        return load_svmlight_file(os.path.join(data, STORED[name]))
    if name == "iris":
        return table(os.path.join(data, "iris.csv"))
    if name in ("satimage", "shuttle"):
        X, y = table(os.path.join(data, name + ".csv.gz"))
        return scaled(X), y
    if name == "mnist10k":
        images = gzip.open(os.path.join(data, "mnist_t10k_images.idx3.gz")).read()[16:]
        with open(os.path.join(data, "mnist_t10k_labels.idx1"), "rb") as file:
            labels = file.read()[8:]
        return np.frombuffer(images, np.uint8).reshape(-1, 784) / 255.0, np.frombuffer(labels, np.uint8)
    if name == "text20":
        return text(random)
    if name == "bad-scales":
        X, y = blobs(random, 3000, 12, 5, 1.0)
        return X * 10.0 ** (np.arange(12) % 6 - 3), y
    if name == "copies":
        X, y = blobs(random, 400, 10, 4, 0.8)
        rows = random.integers(0, 400, 6000)
        return X[rows], y[rows]
    if name == "sorted":
        X, y = blobs(random, 6000, 30, 8, 0.5)
        order = np.argsort(y, kind="stable")
        return X[order], y[order]
    if name == "two":
        return blobs(random, 10000, 40, 2, 0.25)
    if name == "hundred":
        X, y = blobs(random, 10000, 50, 100, 0.7)
        return X / np.abs(X).max(0), y
    raise SystemExit(f"no cell {name}")


def objective(model, X, y, C):
    W, b = model.coef_, np.atleast_1d(model.intercept_)
    if len(W) == 1:  # scikit-learn keeps the difference of two classes, which are each other's negative
        W, b = np.vstack([-W, W]) / 2, np.array([-b[0], b[0]]) / 2
    Z, rows = X @ W.T + b, np.arange(len(y))
    own = np.searchsorted(model.classes_, y)
    margins = Z + 1.0
    margins[rows, own] -= 1.0
    return 0.5 * (W**2).sum() + 0.5 * (b**2).sum() + C * (margins.max(1) - Z[rows, own]).sum()


def ours(program, path, C, gap, repeats):
    command = [program, "classes", path, "-C", str(C), "--bias", "1", "--gap", f"{gap:.3e}", "--repeats", str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument(
        "--cells", default="iris,vowel,vehicle,segment,dna,satimage,letter,copies,sorted,two,text20,hundred"
    )
    parser.add_argument("--costs", default="1")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=int, default=100000, help="rounds after which LIBLINEAR gives up")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in args.cells.split(","):
        X, y = make(name, args.data)
        X = scipy.sparse.csr_matrix(X)
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        with tempfile.NamedTemporaryFile(suffix=".svm") as file:
            dump_svmlight_file(X, y, file.name, zero_based=False)
            for C in map(float, args.costs.split(",")):
                exact = ours(args.bench, file.name, C, 1e-6, args.repeats)
                line = f"{name} C={C:g}: gap 1e-6 in {exact['seconds'] * 1e3:.1f} ms ({exact['epochs']} steps, {exact['status']})"
                for tol in [0.1, 1e-3]:
                    least = np.inf
                    for _ in range(args.repeats):
                        model = LinearSVC(multi_class="crammer_singer", tol=tol, C=C, max_iter=args.limit)
                        begun = time.perf_counter()
                        model.fit(X, y)
                        least = min(least, time.perf_counter() - begun)
                    their = objective(model, X, y, C)
                    gap = max((their - exact["primal"]) / their, 1e-6)
                    own = ours(args.bench, file.name, C, gap, args.repeats)
                    done = "" if model.n_iter_ < args.limit else " (gave up)"
                    line += f"; LIBLINEAR tol {tol:g}: {their:.6g} in {least * 1e3:.1f} ms{done},"
                    line += f" ours {own['primal']:.6g} in {own['seconds'] * 1e3:.1f} ms (gap {gap:.1e})"
                print(line, flush=True)


main()
