"""Grid search beside scikit-learn's GridSearchCV: same rows, same folds, same cells. See `run`."""

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import time

import numpy as np

COSTS = [2.0**e for e in range(-5, 15, 2)]
GAMMAS = [2.0**e for e in range(-15, 5, 2)]
FOLDS = 5

# A peer in a process of its own, so that the processor time of its workers can be told from ours.
PEER = r"""
import json, resource, sys, time
import numpy as np
job = json.load(sys.stdin)
if job["peer"] == "intelex":
    from sklearnex.svm import SVC
else:
    from sklearn.svm import SVC
from sklearn.model_selection import GridSearchCV
data = np.load(job["data"])
X, y, fold = data["X"], data["y"], data["fold"]
splits = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(fold.max() + 1)]
search = GridSearchCV(SVC(cache_size=1000), {"C": job["costs"], "gamma": job["gammas"]}, cv=splits, refit=False, n_jobs=job["jobs"])
start = time.perf_counter()
search.fit(X, y)
seconds = time.perf_counter() - start
from joblib.externals.loky import get_reusable_executor
get_reusable_executor().shutdown(wait=True)
cpu = sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
found = search.cv_results_
cells = [[p["C"], p["gamma"], [float(found[f"split{f}_test_score"][i]) for f in range(len(splits))]] for i, p in enumerate(found["params"])]
print(json.dumps({"seconds": seconds, "cpu": cpu, "best": search.best_params_, "score": float(search.best_score_), "cells": cells}))
"""


def covtype(folder):
    """The first 5 000 rows, class 2 against the rest, standardised."""
    rows = []
    with gzip.open(os.path.join(folder, "covtype_50k.csv.gz"), "rt") as file:
        for row in csv.reader(file):
            try:
                rows.append([float(v) for v in row])
            except ValueError:
                continue
            if len(rows) == 5000:
                break
    table = np.array(rows)
    X, y = table[:, :-1], np.where(table[:, -1] == 2, 1, -1)
    spread = X.std(0)
    return (X - X.mean(0)) / np.where(spread > 0, spread, 1), y


def a9a(folder):
    """The first 11 220 rows."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(os.path.join(folder, "a9a.svm.gz"), n_features=123)
    return X[:11220].toarray(), y[:11220].astype(int)


SETS = {"covtype": covtype, "a9a": a9a}


def prepare(name, data, work):
    """Rows and folds for everybody: NPZ, and the folds as one number a line."""
    from sklearn.model_selection import StratifiedKFold

    path, folds = os.path.join(work, name + ".npz"), os.path.join(work, name + ".folds")
    X, y = SETS[name](data)
    fold = np.zeros(len(y), dtype=np.int64)
    for f, (_, held) in enumerate(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y)):
        fold[held] = f
    np.savez(path, X=X, y=y, fold=fold)
    np.savez(os.path.join(work, name + ".ours.npz"), X=X, y=y)
    np.savetxt(folds, fold, fmt="%d")
    return path


def peer(who, name, work, jobs):
    job = {"peer": who, "data": os.path.join(work, name + ".npz"), "costs": COSTS, "gammas": GAMMAS, "jobs": jobs}
    done = subprocess.run([sys.executable, "-c", PEER], input=json.dumps(job), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(margrave, name, work, threads, extra):
    def numbers(values):
        return ",".join(map(repr, values))

    command = [
        margrave,
        "tune",
        os.path.join(work, name + ".ours.npz"),
        "--fold-file",
        os.path.join(work, name + ".folds"),
        "--grid",
        "C=" + numbers(COSTS),
        "--grid",
        "gamma=" + numbers(GAMMAS),
        "--threads",
        str(threads),
        "--json",
        *extra,
    ]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    cells = [[c["params"]["C"], c["params"]["gamma"], c["folds"]] for c in found["cells"]]
    return {
        "seconds": seconds,
        "best": {k: found["best"]["params"][k] for k in ("C", "gamma")},
        "score": found["best"]["score"],
        "cells": cells,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--margrave", default="target/release/margrave")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--work", default="target/tune-bench")
    parser.add_argument("--sets", default="covtype,a9a")
    parser.add_argument("--peers", default="sklearn,intelex")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--keep", action="store_true", help="take peers' results from an earlier run where there are any"
    )
    parser.add_argument("extra", nargs="*", help="more options for margrave, after --")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    for name in args.sets.split(","):
        prepare(name, args.data, args.work)
        own = None
        if args.margrave != "none":
            runs = [ours(args.margrave, name, args.work, args.jobs, args.extra) for _ in range(args.repeats)]
            own = min(runs, key=lambda run: run["seconds"])
            print(
                f"{name:8} margrave  {own['seconds']:8.2f} s  best {own['best']}  score {own['score']:.6f}", flush=True
            )
        for who in filter(None, args.peers.split(",")):
            kept = os.path.join(args.work, f"{name}.{who}.json")
            if args.keep and os.path.exists(kept):
                with open(kept) as file:
                    found = json.load(file)
            else:
                found = peer(who, name, args.work, args.jobs)
                with open(kept, "w") as file:
                    json.dump(found, file)
            half = found["cpu"] / args.jobs
            print(
                f"{name:8} {who:9} {found['seconds']:8.2f} s, processor time / {args.jobs}: {half:.2f} s  best {found['best']}  score {found['score']:.6f}",
                flush=True,
            )
            if own:
                theirs = {(c, g): folds for c, g, folds in found["cells"]}
                apart = max(abs(a - b) for c, g, folds in own["cells"] for a, b in zip(folds, theirs[c, g]))
                rivals = sum(np.mean(folds) > own["score"] + 1e-12 for folds in theirs.values())
                print(
                    f"{'':8} ratio {found['seconds'] / own['seconds']:.1f} by the clock, {half / own['seconds']:.1f} by processor time; "
                    f"largest difference of a fold {apart:.5f}; cells of the peer above our winner: {rivals}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
