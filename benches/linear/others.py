"""The L1 penalty and Crammer and Singer's machine beside LIBLINEAR: objectives and non-zero weights. See `run others`.

LIBLINEAR -s 5 (L1, squared hinge), -s 6 (L1, logistic) and -s 4 (Crammer and Singer), all with -B 1. Its objective is computed here from
its weights, in double precision.
"""

import argparse
import json
import os
import subprocess
import time

import numpy as np
from liblinear.liblinear import parameter, problem
from liblinear.liblinearutil import train
from sklearn.datasets import load_svmlight_file


def ours(program, command, path, *more):
    done = subprocess.run(
        [program, command, path, "-C", "1", "--bias", "1", "--gap", "1e-7", *more], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def theirs(X, y, solver, tol):
    prob, param = problem(y, X, bias=1), parameter(f"-s {solver} -c 1 -e {tol} -B 1 -q")
    start = time.perf_counter()
    model = train(prob, param)
    return model, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--data", default="../shared/data")
    args = parser.parse_args()
    for name in ["a9a", "reuters_moneyfx"]:
        path = os.path.join(args.data, name + ".svm.gz")
        X, y = load_svmlight_file(path)
        y = np.where(y == y.max(), 1.0, -1.0)
        for loss, solver in [("squared-hinge", 5), ("logistic", 6)]:
            own = ours(args.bench, "l1", path, "--loss", loss)
            for tol in [1e-4, 1e-6]:
                model, seconds = theirs(X, y, solver, tol)
                w, b = model.get_decfun()
                w, b = (
                    np.array(w) * (1 if model.get_labels()[0] > 0 else -1),
                    b * (1 if model.get_labels()[0] > 0 else -1),
                )
                z = y * (X @ w + b)
                lost = (np.maximum(0, 1 - z) ** 2).sum() if solver == 5 else np.logaddexp(0, -z).sum()
                their = np.abs(w).sum() + abs(b) + lost
                print(
                    f"{name} l1 {loss} LIBLINEAR -e {tol:g}: objective {their:.7f}, {np.count_nonzero(w)} non-zero, {seconds:.3f} s;"
                    f" ours {own['primal']:.7f}, {own['nonzero']} non-zero, gap {own['relative_gap']:.1e}, {own['seconds']:.3f} s;"
                    f" relative difference {(their - own['primal']) / their:.1e}",
                    flush=True,
                )
    for name in ["dna_scale", "letter_scale"]:
        path = os.path.join(args.data, name + ".svm.gz")
        X, y = load_svmlight_file(path)
        own = ours(args.bench, "classes", path)
        for tol in [0.1, 1e-3]:
            model, seconds = theirs(X, y, 4, tol)
            k = model.nr_class
            W = np.ctypeslib.as_array(model.w, shape=((X.shape[1] + 1) * k,)).reshape(-1, k)
            Z = X @ W[:-1] + W[-1]
            own_class = np.searchsorted(sorted(model.get_labels()), y)
            order = np.argsort(model.get_labels())
            Z = Z[:, order]
            margins = Z + 1.0
            rows = np.arange(len(y))
            margins[rows, own_class] -= 1.0
            their = 0.5 * (W**2).sum() + (margins.max(1) - Z[rows, own_class]).sum()
            print(
                f"{name} crammer-singer LIBLINEAR -e {tol:g}: objective {their:.6f}, {seconds:.3f} s; ours {own['primal']:.6f},"
                f" gap {own['relative_gap']:.1e}, {own['seconds']:.3f} s; relative difference {(their - own['primal']) / their:.1e}",
                flush=True,
            )


main()
