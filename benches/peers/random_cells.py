"""Random data sets and parameters, Margrave beside scikit-learn-intelex: lists every ratio, the worst first.

Sets that nothing was tuned on: sorted by class, with copies, unbalanced, sparse, one-hot, heavy-tailed, raw integers, regression;
500 to 20 000 rows, γ over three decades around the median distance, C from 0.01 to 1 000. Ratios are of processor time, so that
other programs disturb little. Run by the Python of `run`: `python benches/peers/random_cells.py [--seed 1] [--count 40]`.
"""

import argparse
import json
import os
import subprocess
import tempfile

import compare
import numpy as np
import scipy.sparse as sp

KINDS = ["gauss", "blobs", "checker", "linear", "heavy", "sparse", "categorical", "raw", "friedman"]
#: Peers report the processor time of a fit as well.
CHILD = compare.CHILD.replace(
    "start = time.perf_counter()\nif job", "start = time.perf_counter(); used = time.process_time()\nif job"
)
CHILD = CHILD.replace("- start\npeak", "- start; used = time.process_time() - used\npeak")
CHILD = CHILD.replace('"seconds": seconds,', '"seconds": seconds, "processor": used,')


def points(rng, kind, n, d):
    """Features, and a score that the target follows."""
    if kind == "blobs":
        centres = rng.integers(4, 40)
        of = rng.integers(0, centres, n)
        means = 1.5 * rng.standard_normal((centres, d))
        return means[of] + rng.standard_normal((n, d)), rng.standard_normal(centres)[of]
    if kind == "checker":
        X = rng.uniform(0, 4, (n, d))
        return X, np.where(np.floor(X[:, :2]).sum(1) % 2 == 0, 1.0, -1.0)
    if kind == "heavy":
        X = rng.standard_t(2, (n, d))
        return X, np.tanh(X[:, 0]) + np.tanh(X[:, -1])
    if kind == "sparse":
        d = max(d, 50)
        X = sp.random(n, d, density=min(0.2, 10 / d), random_state=int(rng.integers(1 << 30)), format="csr")
        return X, np.asarray(X @ rng.standard_normal(d)).ravel()
    if kind == "categorical":
        values = rng.integers(2, 5, size=max(3, d // 4))
        X = np.hstack([rng.integers(0, k, (n, 1)) == np.arange(k) for k in values]).astype(float)
        return X, X @ rng.standard_normal(X.shape[1])
    if kind == "raw":
        X = np.round(rng.standard_normal((n, d)) * 10 ** rng.uniform(-1, 2, d) + 10 ** rng.uniform(-1, 2, d))
        return X, np.sin(X[:, 0] / X[:, 0].std()) + X[:, -1] / X[:, -1].std()
    if kind == "friedman":
        X = rng.uniform(0, 1, (n, max(d, 5)))
        return X, 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    X = rng.standard_normal((n, d))
    if kind == "linear":
        return X, X @ rng.standard_normal(d) / np.sqrt(d)
    return X, np.sin(2 * X @ rng.standard_normal((d, 3)) / np.sqrt(d)).sum(1)


def draw(rng):
    """The parameters of a cell, its features and targets."""
    n, d = (int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in [(500, 20000), (2, 300)])
    kind = str(rng.choice(KINDS))
    regression = kind == "friedman" or rng.random() < 0.2
    X, score = points(rng, kind, n, d)
    score = (score - score.mean()) / (score.std() + 1e-9) + rng.choice([0, 0.1, 0.5]) * rng.standard_normal(n)
    y = score if regression else np.where(score > rng.choice([0, 0, 1.0, 1.7]), 1.0, -1.0)
    if not regression and abs(y.sum()) == n:
        y[:5] *= -1
    order = str(rng.choice(["as drawn", "sorted", "copies"]))
    if order != "as drawn":
        of = np.argsort(y, kind="stable") if order == "sorted" else rng.integers(0, n, n)
        X, y = X[of], y[of]
    if not sp.issparse(X) and kind not in ("raw", "heavy") and rng.random() < 0.6:
        X = (X - X.mean(0)) / (X.std(0) + 1e-9)
    difference = X[rng.integers(0, n, 300)] - X[rng.integers(0, n, 300)]
    squares = difference.multiply(difference) if sp.issparse(X) else difference * difference
    distance = max(float(np.median(np.asarray(squares.sum(1)))), 1e-9)
    gamma, cost = float(10 ** rng.uniform(-2, 1.3) / distance), float(10 ** rng.uniform(-2, 3))
    epsilon = float(rng.choice([0.01, 0.1, 0.3])) if regression else None
    return {"kind": kind, "order": order, "gamma": gamma, "C": cost, "epsilon": epsilon}, X, y


def compare_cell(cell, X, y, bench, folder):
    """Our report and that of intelex."""
    data = compare.save(folder, "train", X, y)
    command = [bench, "train", data, "--gamma", repr(cell["gamma"]), "-C", repr(cell["C"]), "--tol", "1e-3"]
    command += ["--threads", "2"] + (["--epsilon", repr(cell["epsilon"])] if cell["epsilon"] is not None else [])
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    ours = json.loads(done.stdout) if done.returncode == 0 else {"status": done.stderr.strip()[-80:]}
    files = {name: os.path.join(folder, name + (".npz" if sp.issparse(X) else ".npy")) for name in ("x", "t")}
    for file in files.values():
        (sp.save_npz if sp.issparse(X) else np.save)(file, X)
    np.save(os.path.join(folder, "y.npy"), y)
    job = cell | files | {"peer": "intelex-f32", "y": os.path.join(folder, "y.npy"), "tol": 1e-3, "calls": 1}
    job |= {"sparse": bool(sp.issparse(X)), "beta": os.path.join(folder, "beta.bin")}
    return ours, compare.peer_run(job, 2, 60)


def main():
    """Draws the cells and prints one line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", default="target/release/margrave-bench-peers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    args = parser.parse_args()
    compare.CHILD = CHILD
    lines = []
    for number in range(args.count):
        cell, X, y = draw(np.random.default_rng([args.seed, number]))
        with tempfile.TemporaryDirectory() as folder:
            ours, peer = compare_cell(cell, X, y, args.bench, folder)
        used, theirs = (ours.get("processor") or [None])[0], peer.get("processor")
        # Times are read in hundredths of a second.
        ratio = theirs / max(used, 0.01) if used is not None and theirs else float("nan")
        wall, their_wall = min(ours.get("seconds") or [float("nan")]), peer.get("seconds") or float("nan")
        line = f"{ratio:7.2f} ({their_wall / wall:.2f} by the clock) ours {used} s ({wall:.3f}),"
        line += f" intelex {theirs if theirs else peer.get('error')} ({their_wall:.3f}); {ours.get('status')},"
        line += f" {ours.get('support_vectors')} SVs, {ours.get('iterations')} iterations; {X.shape[0]} x {X.shape[1]} {cell}"
        print(f"{number:3} {line}", flush=True)
        lines.append((ratio, line))
    print("\nworst first:")
    for _, line in sorted(lines)[:10]:
        print(line)


if __name__ == "__main__":
    main()
