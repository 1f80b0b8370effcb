#!/usr/bin/env python3
"""Many rows: machines on few centres with their proof, beside scikit-learn's approximations, in one run.

    python3 benches/large/compare.py --program target/release/margrave [--data FOLDER] [--cells covtype,checkerboard]
                                     [--centres 500,1000,2000] [--peers] [--equal SECONDS] [--rows N]

Needs numpy and scikit-learn. `--data` is a folder with `covtype.csv.gz` (54 features and the class; class 2 against the
rest), `skin_nonskin.csv.gz` and `ijcnn1.svm.gz` with `ijcnn1.t.svm.gz`; cells whose files are not there are left out.
Generated cells need none: a checkerboard of 4 x 4 fields in 2 of 20 dimensions with 5 % of the labels flipped (the Bayes
error is 5 %), and Friedman's first function with noise of variance 1.

Prints a Markdown table: seconds, peak memory, the objective P of the exact problem, the proven relative gap and its two
parts, and the error on rows that were held out. Peers report their own objective evaluated for the same problem: Nystroem's
and RBFSampler's features change the kernel, so P is that of their model on their features, comparable for Nystroem because
its span is one of centres too.

`--equal SECONDS` adds Nystroem + LinearSVC at equal objective. It is trained with 100 iterations and then twice as many, until its P is
at most 1.0001 times ours or another doubling has lowered it by less than a ten-thousandth. In the second case it has converged, and only
more centres help, because those it draws represent the kernel less well than ours: the same with a quarter more of them, and so on, until
P is reached or features and training together take longer than SECONDS. The row has the seconds of the features and of the cheapest training
whose P is within a ten-thousandth of the best one, as if both numbers had been known. The row for as many centres as ours is always
printed: its P is higher if more centres were needed.
"""

import argparse
import gzip
import json
import pathlib
import resource
import subprocess
import tempfile
import time

import numpy as np


def held_out(X, y, share, seed=0):
    order = np.random.default_rng(seed).permutation(len(y))
    cut = int(len(y) * (1 - share))
    return X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]]


def unit_interval(train, test):
    low, high = train.min(0), train.max(0)
    size = np.where(high > low, high - low, 1)
    return (train - low) / size, (test - low) / size


def table(path):
    with gzip.open(path) as file:
        return np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.float32)


def covtype(data, rows):
    a = table(data / "covtype.csv.gz")
    X, y, Xt, yt = held_out(a[:, :-1], np.where(a[:, -1] == 2, 1.0, -1.0), 0.1)
    X, Xt = unit_interval(X, Xt)
    return X[:rows], y[:rows], Xt, yt, {"gamma": 4.0, "C": 1.0, "task": "classify"}


def skin(data, rows):
    a = table(data / "skin_nonskin.csv.gz")
    y = np.where(a[:, -1] == a[0, -1], 1.0, -1.0)
    X, y, Xt, yt = held_out(a[:, :-1], y, 0.1)
    X, Xt = unit_interval(X, Xt)
    return X[:rows], y[:rows], Xt, yt, {"gamma": 10.0, "C": 1.0, "task": "classify"}


def ijcnn1(data, rows):
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(data / "ijcnn1.svm.gz"), n_features=22)
    Xt, yt = load_svmlight_file(str(data / "ijcnn1.t.svm.gz"), n_features=22)
    X, Xt = X.toarray().astype(np.float32), Xt.toarray().astype(np.float32)
    return X[:rows], y[:rows], Xt, yt, {"gamma": 2.0, "C": 1.0, "task": "classify"}


def checkerboard(data, rows):
    rng = np.random.default_rng(1002)
    n = (rows or 1_000_000) + 50_000
    u = rng.uniform(0, 4, (n, 2))
    y = np.where((np.floor(u[:, 0]) + np.floor(u[:, 1])) % 2 == 0, 1.0, -1.0)
    q, _ = np.linalg.qr(rng.standard_normal((20, 2)))
    X = ((u - 2) @ q.T + 0.03 * rng.standard_normal((n, 20))).astype(np.float32)
    y = np.where(rng.random(n) < 0.05, -y, y)
    cut = n - 50_000
    return X[:cut], y[:cut], X[cut:], y[cut:], {"gamma": 2.0, "C": 1.0, "task": "classify"}


def friedman(data, rows):
    rng = np.random.default_rng(1003)
    n = (rows or 1_000_000) + 50_000
    X = rng.uniform(0, 1, (n, 10)).astype(np.float32)
    clean = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    y = (clean + rng.standard_normal(n) - 14.4) / 5.0
    cut = n - 50_000
    return X[:cut], y[:cut], X[cut:], y[cut:], {"gamma": 1.0, "C": 1.0, "task": "regress"}


CELLS = {"covtype": covtype, "skin": skin, "ijcnn1": ijcnn1, "checkerboard": checkerboard, "friedman": friedman}


def error(y, z, task):
    return float(np.mean((y - z) ** 2)) if task == "regress" else float(np.mean(np.sign(z) != y))


def ours(program, X, y, Xt, yt, how, centres, extra):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        np.save(folder / "train.npy", np.column_stack([X, y]).astype(np.float32))
        np.save(folder / "test.npy", np.column_stack([Xt, yt]).astype(np.float32))
        command = [program, "train", folder / "train.npy", "--task", how["task"], "--gamma", str(how["gamma"])]
        command += ["-C", str(how["C"]), "--approx", str(centres), "-o", folder / "m", "--json", *extra]
        begun = time.perf_counter()
        found = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - begun
        if found.returncode not in (0, 3):
            raise SystemExit(found.stderr)
        fit = json.loads(found.stdout)
        test = subprocess.run(
            [program, "predict", folder / "m", folder / "test.npy", "--json"], capture_output=True, text=True
        )
        test = json.loads(test.stdout)
    wrong = test.get("mse") if how["task"] == "regress" else 1 - test["accuracy"]
    parts = fit["approximation"]
    return {
        "seconds": seconds,
        "memory": fit["peak_memory_bytes"],
        "objective": fit["primal"],
        "gap": fit["relative_gap"],
        "own": parts["own_relative_gap"],
        "check": parts["check"],
        "error": wrong,
    }


def primal(F, y, model, how):
    w, b = model.coef_.ravel(), float(np.ravel(model.intercept_)[0])
    z = F @ w + b
    loss = np.maximum(np.abs(y - z) - 0.1, 0) if how["task"] == "regress" else np.maximum(1 - y * z, 0)
    return 0.5 * float(w @ w) + how["C"] * float(loss.sum())


def peer_on_centres(X, y, Xt, yt, how, centres, wanted, limit):
    """Nystroem + LinearSVC on so many centres: the cheapest training that is as good as it gets, or good enough."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.svm import LinearSVC, LinearSVR

    begun = time.perf_counter()
    features = Nystroem(gamma=how["gamma"], n_components=centres, random_state=0)
    F = features.fit_transform(X)
    prepared = time.perf_counter() - begun
    iterations, best = 100, None
    while True:
        begun = time.perf_counter()
        if how["task"] == "regress":
            model = LinearSVR(C=how["C"], epsilon=0.1, max_iter=iterations, tol=1e-12)
        else:
            model = LinearSVC(C=how["C"], loss="hinge", dual=True, max_iter=iterations, tol=1e-12)
        model.fit(F, y)
        seconds = time.perf_counter() - begun
        objective = primal(F, y, model, how)
        # More iterations that gain nothing are not counted.
        stalled = best is not None and objective > (1 - 1e-4) * best["objective"]
        if not stalled:
            w, b = model.coef_.ravel(), float(np.ravel(model.intercept_)[0])
            best = {
                "kind": f"Nystroem + LinearSV, {iterations} iterations",
                "seconds": prepared + seconds,
                "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "objective": objective,
                "error": error(yt, features.transform(Xt) @ w + b, how["task"]),
                "reached": objective <= 1.0001 * wanted,
                "centres": centres,
            }
        if stalled or best["reached"] or prepared + 2 * seconds > limit:
            return best
        iterations *= 2


def peers_at_equal_objective(X, y, Xt, yt, how, centres, wanted, limit):
    found = []
    while True:
        found.append(peer_on_centres(X, y, Xt, yt, how, centres, wanted, limit))
        last = found[-1]
        last["kind"] += ", equal P" if last["reached"] else ", P not reached"
        if last["reached"] or 1.6 * last["seconds"] > limit or 2 * centres > len(y):
            # The first, on as many centres as ours, and the last.
            return found if len(found) == 1 else [found[0], last]
        centres += centres // 4


def peer(kind, X, y, Xt, yt, how, centres):
    from sklearn.kernel_approximation import Nystroem, RBFSampler
    from sklearn.linear_model import SGDClassifier
    from sklearn.svm import LinearSVC, LinearSVR

    begun = time.perf_counter()
    if kind.startswith("RBFSampler"):
        features = RBFSampler(gamma=how["gamma"], n_components=centres, random_state=0)
    else:
        features = Nystroem(gamma=how["gamma"], n_components=centres, random_state=0)
    F = features.fit_transform(X)
    if how["task"] == "regress":
        model = LinearSVR(C=how["C"], epsilon=0.1, loss="epsilon_insensitive", dual=True)
    elif kind.endswith("SGD"):
        model = SGDClassifier(alpha=1 / (how["C"] * len(y)), random_state=0)
    else:
        model = LinearSVC(C=how["C"], loss="hinge", dual=True)
    model.fit(F, y)
    seconds = time.perf_counter() - begun
    w, b = model.coef_.ravel(), float(np.ravel(model.intercept_)[0])
    zt = features.transform(Xt) @ w + b
    return {
        "seconds": seconds,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "objective": primal(F, y, model, how),
        "error": error(yt, zt, how["task"]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--centres", default="500,1000,2000")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--equal", type=float, metavar="SECONDS", help="also compare at equal objective")
    parser.add_argument("extra", nargs="*", help="more options of the program, after --")
    args = parser.parse_args()
    print("| data | rows | machine | centres | seconds | memory | P | proven gap | own gap | error |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in args.cells.split(","):
        try:
            X, y, Xt, yt, how = CELLS[name](args.data or pathlib.Path("."), args.rows)
        except FileNotFoundError:
            continue
        for centres in map(int, args.centres.split(",")):
            rows = [("margrave", ours(args.program, X, y, Xt, yt, how, centres, args.extra))]
            if args.peers:
                kinds = ["Nystroem + LinearSVC", "Nystroem + SGD", "RBFSampler + LinearSVC"]
                kinds = ["Nystroem + LinearSVR"] if how["task"] == "regress" else kinds
                rows += [(kind, peer(kind, X, y, Xt, yt, how, centres)) for kind in kinds]
            if args.equal:
                ours_at = rows[0][1]["objective"]
                found = peers_at_equal_objective(X, y, Xt, yt, how, centres, ours_at, args.equal)
                rows += [(peer["kind"], peer) for peer in found]
            for kind, r in rows:
                gap = f"{r['gap']:.1e} ({r['check']})" if "gap" in r else "-"
                own = f"{r['own']:.0e}" if "own" in r else "-"
                print(
                    f"| {name} | {len(y)} | {kind} | {r.get('centres', centres)} | {r['seconds']:.1f} | {r['memory'] / 2**30:.2f} GiB |"
                    f" {r['objective']:.6g} | {gap} | {own} | {r['error']:.4f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
