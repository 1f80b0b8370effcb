"""Sets and parameters that are in no other table, Margrave beside scikit-learn-intelex: prints every ratio.

Each set with several (γ, C): the defaults of scikit-learn, stiff problems (large C), kernels close to the identity (large γ); word
counts, dense and sparse tables, images, regressions. Both train in a process of their own, in turn; the least time of each counts.
Run by the Python of `run`: `python benches/peers/other_cells.py [--data DIR] [--repeats 3] [--only NAME,NAME]`.
"""

import argparse
import gzip
import json
import math
import os
import subprocess
import sys
import tempfile

import compare
import numpy as np
import scipy.sparse as sp
from cells import _standardise


def table(folder, name, positive=None, target=-1, rows=None, scale=True, seed=0):
    """A CSV file as features and ±1 (whether the target is in `positive`), or as a regression."""
    import pandas

    frame = pandas.read_csv(os.path.join(folder, name))
    if rows and len(frame) > rows:
        frame = frame.iloc[np.sort(np.random.default_rng(seed).choice(len(frame), rows, replace=False))]
    y = frame.pop(frame.columns[target])
    X = pandas.get_dummies(frame, dtype=float).to_numpy(dtype=float)
    if scale:
        X, _ = _standardise(X, X[:1])
    if positive is None:
        y = y.to_numpy(dtype=float)
        return X, (y - y.mean()) / y.std()
    return X, np.where(y.isin(positive), 1.0, -1.0)


def lines(folder, name, positive, rows=None):
    """A LIBSVM file, dense where it has few columns."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(os.path.join(folder, name))
    if rows and X.shape[0] > rows:
        of = np.sort(np.random.default_rng(0).choice(X.shape[0], rows, replace=False))
        X, y = X[of], y[of]
    y = np.where(np.isin(y, positive), 1.0, -1.0)
    return (X.toarray() if X.shape[1] <= 400 and X.nnz > 0.2 * X.shape[0] * X.shape[1] else X), y


def digits(folder):
    """Raw pixels from 0 to 255, zeros and ones against the rest."""
    with gzip.open(os.path.join(folder, "mnist_t10k_images.idx3.gz")) as f:
        X = np.frombuffer(f.read()[16:], dtype=np.uint8).reshape(-1, 784).astype(float)
    with open(os.path.join(folder, "mnist_t10k_labels.idx1"), "rb") as f:
        y = np.frombuffer(f.read()[8:], dtype=np.uint8)
    return X, np.where(y < 5, 1.0, -1.0)


def words(rows, columns, length, seed=1008):
    """Generated documents of two kinds: words by Zipf's law, more frequent in one kind or the other; tf-idf, rows of length 1."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(3, columns + 3)
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    tilt = np.exp(0.7 * rng.standard_normal(columns))
    starts, found = [0], []
    for kind in y:
        p = share * (tilt if kind > 0 else 1 / tilt)
        count = max(5, int(length * rng.lognormal(0, 0.6)))
        found.append(rng.choice(columns, size=count, p=p / p.sum()))
        starts.append(starts[-1] + count)
    X = sp.csr_matrix((np.ones(starts[-1]), np.concatenate(found), starts), shape=(rows, columns))
    X.sum_duplicates()
    seen = np.bincount(X.indices, minlength=columns)
    X.data = (1 + np.log(X.data)) * np.log(rows / (1.0 + seen[X.indices]) + 1)
    X = sp.diags(1 / np.sqrt(X.multiply(X).sum(1)).A1) @ X
    return X.tocsr(), y


def sets(folder):
    """name -> (make, epsilon, [(γ, C)]); γ is in units of 1 / (columns × variance), scikit-learn's "scale"."""
    letters = [float(k) for k in range(1, 14)]
    classes = [(1, 1), (1, 100), (0.1, 1000), (10, 10)]
    curves = [(1, 1), (1, 100), (5, 10)]
    return {
        "satimage": (lambda: table(folder, "satimage.csv.gz", [1, 2, 3]), None, classes),
        "shuttle": (lambda: table(folder, "shuttle.csv.gz", [1]), None, classes),
        "letter": (lambda: lines(folder, "letter_scale.svm.gz", letters), None, classes),
        "segment": (lambda: lines(folder, "segment_scale.svm.gz", [1, 2, 3]), None, classes),
        "mushrooms": (lambda: lines(folder, "mushrooms.svm.gz", [1]), None, classes),
        "svmguide1": (lambda: lines(folder, "svmguide1.svm.gz", [1]), None, classes),
        "dna": (lambda: lines(folder, "dna_scale.svm.gz", [3]), None, classes),
        "ijcnn1": (lambda: lines(folder, "ijcnn1.svm.gz", [1], 30000), None, classes),
        "a9a": (lambda: lines(folder, "a9a.svm.gz", [1], 20000), None, classes),
        "w8a": (lambda: lines(folder, "w8a.svm.gz", [1], 25000), None, classes),
        "phishing": (lambda: lines(folder, "phishing.svm.gz", [1]), None, classes),
        "reuters": (lambda: lines(folder, "reuters_moneyfx.svm.gz", [1], 5000), None, classes[:2]),
        "basehock": (lambda: lines(folder, "basehock.svm.gz", [1]), None, classes[:2]),
        "words": (lambda: words(8000, 30000, 90), None, [(1, 1), (1, 30)]),
        "digits": (lambda: digits(folder), None, classes[:2]),
        "covtype": (lambda: table(folder, "covtype_50k.csv.gz", [2], rows=15000), None, classes),
        "skin": (lambda: table(folder, "skin_nonskin.csv.gz", [1], rows=40000), None, classes),
        "magic04": (lambda: table(folder, "magic04.csv.gz", ["g"]), None, classes),
        "cadata": (lambda: table(folder, "cadata.csv.gz", rows=12000), 0.1, curves),
        "space_ga": (lambda: table(folder, "space_ga.csv.gz", target=0), 0.1, curves),
        "abalone": (lambda: table(folder, "abalone.csv.gz"), 0.05, curves),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", default="target/release/margrave-bench-peers")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=30, help="seconds a peer may take")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    found, ratios = sets(args.data), []
    for name in [n for n in args.only.split(",") if n] or found:
        make, epsilon, parameters = found[name]
        try:
            X, y = make()
        except FileNotFoundError as missing:
            print(f"left out: {name}, because {missing.filename} is not there")
            continue
        sparse = bool(sp.issparse(X))
        variance = X.multiply(X).mean() - X.mean() ** 2 if sparse else X.var()
        with tempfile.TemporaryDirectory() as folder:
            data = compare.save(folder, "train", X, y)
            files = {k: os.path.join(folder, k + (".npz" if sparse else ".npy")) for k in ("x", "t")}
            for file, part in zip(files.values(), (X, X[:1])):
                (sp.save_npz if sparse else np.save)(file, part)
            np.save(os.path.join(folder, "y.npy"), y)
            for share, C in parameters:
                gamma = float(f"{share / (X.shape[1] * variance):.6g}")
                beta = os.path.join(folder, "beta.bin")
                cell = (None, gamma, C, epsilon)
                command = compare.train_command(args.bench, data, cell, 2) + ["--tol", "1e-3"]
                job = files | {"peer": "intelex-f32", "y": os.path.join(folder, "y.npy"), "gamma": gamma, "C": C}
                job |= {"epsilon": epsilon, "tol": 1e-3, "calls": 0, "sparse": sparse, "beta": beta}
                ours, theirs = [], []
                for _ in range(args.repeats):
                    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
                    if done.returncode:
                        sys.exit(f"{name}: {done.stderr}")
                    ours.append(json.loads(done.stdout))
                    if not theirs or "seconds" in theirs[-1]:
                        theirs.append(compare.peer_run(job, 2, args.limit))
                own = min(run["seconds"][0] for run in ours)
                peer = min((run["seconds"] for run in theirs if "seconds" in run), default=math.nan)
                proof = compare.certify(args.bench, data, cell, beta) if peer == peer else {}
                ratio = peer / own
                ratios.append(ratio)
                first = ours[0]
                print(
                    f"{ratio:7.2f} {name:10} {X.shape[0]} x {X.shape[1]}{' sparse' if sparse else ''} γ={gamma:g} C={C}: {own:.3f} s,"
                    f" {first['status']} {first['relative_gap']:.0e}, {first['support_vectors']} SVs, {first['iterations']} steps,"
                    f" {first['entries_per_n_sv']:.1f} × n × SVs, {own / first['pass_seconds'][1]:.1f} passes;"
                    f" intelex {peer:.3f} s, {proof.get('relative_gap', math.nan):.0e} {theirs[-1].get('error', '')}",
                    flush=True,
                )
    known = [r for r in ratios if r == r]
    print(
        f"\n{len(known)} cells: geometric mean {math.exp(sum(map(math.log, known)) / len(known)):.2f}, least {min(known):.2f}"
    )


if __name__ == "__main__":
    main()
