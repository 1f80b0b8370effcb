"""Expected calibration error beside scikit-learn's CalibratedClassifierCV: same halves of the data, same machine.

usage: python benches/calibration/compare.py --margrave target/release/margrave --data DIR   (needs numpy and scikit-learn)

Each set is cut into halves at random, --repeats times; machines train on one half and are judged on the other. A cell is the mean
expected calibration error (Brier score), and for ours the mean difference from scikit-learn's sigmoid on the same halves with the
deviation of that mean: a difference of less than two deviations is none.
"""

import argparse
import csv
import os
import subprocess
import tempfile
import time

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.svm import SVC

# Name, file, C, γ for features in [0, 1].
SETS = [
    ("heart", "heart_scale.svm", 1, 0.3),
    ("diabetes", "diabetes.svm", 1, 1),
    ("australian", "australian.svm.gz", 1, 0.5),
    ("fourclass", "fourclass_scale.svm", 10, 4),
    ("svmguide1", "svmguide1.svm.gz", 2, 10),
    ("a1a", "a1a.svm.gz", 1, 0.03),
]


def judge(p, y, bins=10):
    """Expected calibration error over bins of equal width, and the Brier score."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    ece = sum(abs(p[place == b].sum() - y[place == b].sum()) for b in range(bins)) / len(p)
    return np.array([ece, np.mean((p - y) ** 2)])


def ours(margrave, folder, X, y, T, C, gamma, option):
    train, test, model = (os.path.join(folder, name) for name in ("train.svm", "test.svm", "model"))
    dump_svmlight_file(X, y, train, zero_based=False)
    dump_svmlight_file(T, np.resize([0, 1], T.shape[0]), test, zero_based=False)
    start = time.perf_counter()
    subprocess.run(
        [margrave, "train", train, "-o", model, "-q", option, "-C", str(C), "--gamma", str(gamma)],
        check=True,
        capture_output=True,
    )
    seconds = time.perf_counter() - start
    said = subprocess.run(
        [margrave, "predict", model, test, "--probability", "-q"], check=True, capture_output=True, text=True
    ).stdout
    return np.array([float(row[-1]) for row in list(csv.reader(said.splitlines()))[1:]]), seconds


def cell(who, values, reference):
    text = f"{values[:, 0].mean():.4f} ({values[:, 1].mean():.4f})"
    if who in ("loo", "folds"):
        apart = (values - reference)[:, 0]
        text += f" {apart.mean():+.4f} ± {apart.std(ddof=1) / np.sqrt(len(apart)):.4f}"
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--margrave", default="target/release/margrave")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--sets", default="", help="only these, by name, with commas between them")
    args = parser.parse_args()
    print("| set | leave-one-out | five folds | sklearn sigmoid | sklearn isotonic |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, file, C, gamma in SETS:
            if args.sets and name not in args.sets.split(","):
                continue
            X, y = load_svmlight_file(os.path.join(args.data, file))
            X = X.toarray()
            y = (y == np.unique(y)[1]).astype(int)
            found = {who: [] for who in ("loo", "folds", "sigmoid", "isotonic")}
            for seed in range(args.repeats):
                order = np.random.default_rng(seed).permutation(len(y))
                a, b = order[: len(y) // 2], order[len(y) // 2 :]
                low, high = X[a].min(0), X[a].max(0)
                A, B = ((X[half] - low) / np.where(high > low, high - low, 1) for half in (a, b))
                for who, option in (("loo", "--probability"), ("folds", "--probability=5")):
                    p, _ = ours(args.margrave, folder, A, y[a], B, C, gamma, option)
                    found[who].append(judge(p, y[b]))
                for method in ("sigmoid", "isotonic"):
                    machine = CalibratedClassifierCV(SVC(C=C, gamma=gamma), method=method, cv=5).fit(A, y[a])
                    found[method].append(judge(machine.predict_proba(B)[:, 1], y[b]))
            cells = " | ".join(cell(who, np.array(v), np.array(found["sigmoid"])) for who, v in found.items())
            print(f"| {name} ({len(y)}) | {cells} |", flush=True)


if __name__ == "__main__":
    main()
