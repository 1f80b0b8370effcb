"""Small problems from Python beside scikit-learn: milliseconds of a fit and of predicting one row.

Both libraries run in this process, in turn, on the same arrays and with the same parameters. Every figure is the least
of several rounds; a round times as many calls as fit into `--slice` seconds. Usage:

    python benches/small/compare.py [--cells fit-svc-100x5,…] [--rounds 5] [--slice 0.05] [--json FILE]
"""

import argparse
import json
import os
import platform
import time
import warnings

import numpy as np
import scipy.sparse as sp
import sklearn
import sklearn.svm

import margrave

SHAPES = {"100x5": (100, 5), "1000x20": (1000, 20), "100x2000": (100, 2000)}


def data(shape, kind="classes", classes=2):
    """Seeded points and targets: two or more overlapping classes, or a smooth function with noise."""
    n, d = SHAPES[shape.removesuffix("-sparse")]
    rng = np.random.default_rng(17)
    X = rng.standard_normal((n, d))
    w = rng.standard_normal(d)
    z = X @ w / np.linalg.norm(w) + 0.5 * rng.standard_normal(n)
    if kind == "classes":
        y = np.digitize(z, np.quantile(z, np.linspace(0, 1, classes + 1)[1:-1]))
    else:
        y = np.sin(z) + 0.1 * rng.standard_normal(n)
    if shape.endswith("-sparse"):
        X = sp.csr_matrix(np.where(rng.random((n, d)) < 0.1, X, 0.0))
    return X, y


#: Name of a cell's estimator -> class, parameters, kind of targets, number of classes.
ESTIMATORS = {
    "svc": ("SVC", {}, "classes", 2),
    "svc-linear": ("SVC", {"kernel": "linear"}, "classes", 2),
    "svc-4classes": ("SVC", {}, "classes", 4),
    "nusvc": ("NuSVC", {}, "classes", 2),
    "svr": ("SVR", {}, "real", 2),
    "nusvr": ("NuSVR", {}, "real", 2),
    "oneclass": ("OneClassSVM", {}, "classes", 2),
    "linearsvc": ("LinearSVC", {}, "classes", 2),
    "linearsvr": ("LinearSVR", {}, "real", 2),
}


def cells():
    """Name -> (estimator, shape, method); the method is "fit" or what is called with one row."""
    found = {}
    for shape in ["100x5", "1000x20", "100x2000", "100x2000-sparse"]:
        names = list(ESTIMATORS) if shape == "100x5" else ["svc", "svr", "linearsvc"]
        for name in names:
            found[f"fit-{name}-{shape}"] = (name, shape, "fit")
    for name in ESTIMATORS:
        found[f"predict-{name}-100x5"] = (name, "100x5", "predict")
    for name in ["svc", "svc-4classes", "oneclass"]:
        found[f"decision_function-{name}-100x5"] = (name, "100x5", "decision_function")
    for name in ["svc", "svc-4classes"]:
        found[f"predict_proba-{name}-100x5"] = (name, "100x5", "predict_proba")
    for shape in ["1000x20", "100x2000", "100x2000-sparse"]:
        found[f"predict-svc-{shape}"] = ("svc", shape, "predict")
    return found


def call(library, name, shape, method):
    """What is timed: a fit of a fresh estimator, or a method of a fitted one on one row."""
    kind, parameters, targets, classes = ESTIMATORS[name]
    X, y = data(shape, targets, classes)
    if method == "predict_proba":
        parameters = parameters | {"probability": True}
    make = getattr(library, kind)
    if method == "fit":
        return lambda: make(**parameters).fit(X, y)
    fitted = make(**parameters).fit(X, y)
    row = X[:1]
    return lambda: getattr(fitted, method)(row)


def milliseconds(function, seconds):
    """Mean time of a call over about `seconds`."""
    begun = time.perf_counter()
    function()
    once = time.perf_counter() - begun
    count = max(1, int(seconds / max(once, 1e-6)))
    begun = time.perf_counter()
    for _ in range(count):
        function()
    return 1e3 * (time.perf_counter() - begun) / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice", type=float, default=0.05)
    parser.add_argument("--json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    every = cells()
    chosen = [name for name in args.cells.split(",") if name] or list(every)
    print(
        f"margrave {margrave.__version__}, scikit-learn {sklearn.__version__}, numpy {np.__version__},"
        f" Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    print(f"{'cell':38} {'ours ms':>9} {'sklearn ms':>10} {'times':>6}")
    rows = []
    for name in chosen:
        own, other = call(margrave, *every[name]), call(sklearn.svm, *every[name])
        own(), other()
        times = [(milliseconds(own, args.slice), milliseconds(other, args.slice)) for _ in range(args.rounds)]
        ours, theirs = min(t[0] for t in times), min(t[1] for t in times)
        rows.append({"cell": name, "ours_ms": ours, "sklearn_ms": theirs, "times": theirs / ours})
        print(f"{name:38} {ours:9.3f} {theirs:10.3f} {theirs / ours:6.2f}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
