"""Runs Margrave and its peers on the same cells, interleaved, and certifies every model. See `run`.

Every run is a process of its own; `memory` is the largest resident set of that process up to the end of training, the
data and the interpreter included. Predictions are three calls each, of which the least counts, on the same number of
threads; peers in single precision are compared with our single precision, the others with our double precision. LIBSVM's
program reads text and writes its model within its time, and its predictions are not timed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import scipy.sparse as sp
from cells import cells, smaller

#: Calls of every prediction; the least time counts, for everybody.
CALLS = 3
#: Rows of every cell, and seconds a peer may take, of a quick run.
QUICK_ROWS, QUICK_LIMIT = 3000, 10.0

# One peer run in a process of its own, so that peak memory and thread counts are its own.
CHILD = r"""
import json, resource, sys, time
import numpy as np, scipy.sparse as sp
job = json.load(sys.stdin)
if job["peer"].startswith("intelex"):
    from sklearnex.svm import SVC, SVR
else:
    from sklearn.svm import SVC, SVR
X = sp.load_npz(job["x"]) if job["sparse"] else np.load(job["x"])
T = sp.load_npz(job["t"]) if job["sparse"] else np.load(job["t"])
y = np.load(job["y"])
if job["peer"] == "intelex-f32":
    X, T = X.astype(np.float32), T.astype(np.float32)
    y = y.astype(np.float32) if job["epsilon"] is not None else y
common = dict(C=job["C"], tol=job["tol"], cache_size=4000, kernel="rbf" if job["gamma"] else "linear", gamma=job["gamma"] or "scale")
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
if job["epsilon"] is None:
    model = SVC(**common).fit(X, y)
else:
    model = SVR(epsilon=job["epsilon"], **common).fit(X, y)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
predict = []
for _ in range(job["calls"]):
    start = time.perf_counter()
    model.decision_function(T) if job["epsilon"] is None else model.predict(T)
    predict.append(time.perf_counter() - start)
beta = np.zeros(X.shape[0])
coef = model.dual_coef_
beta[model.support_] = (coef.toarray() if sp.issparse(coef) else np.asarray(coef)).ravel()
beta.astype("<f8").tofile(job["beta"])
print(json.dumps({"seconds": seconds, "predict": predict, "sv": int(len(model.support_)), "peak_mb": (peak - base) / 1024, "rss_mb": peak / 1024}))
"""


def libsvm_run(job, data, bench, limit):
    """LIBSVM's own program, one thread. Its time includes reading the text file and writing the model."""
    model = job["beta"] + ".model"
    kind = ["-s", "0"] if job["epsilon"] is None else ["-s", "3", "-p", repr(job["epsilon"])]
    kernel = ["-t", "2", "-g", repr(job["gamma"])] if job["gamma"] else ["-t", "0"]
    command = [
        "svm-train",
        "-q",
        "-m",
        "4000",
        *kind,
        *kernel,
        "-c",
        repr(job["C"]),
        "-e",
        repr(job["tol"]),
        data,
        model,
    ]
    start = time.perf_counter()
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except FileNotFoundError:
        return {"error": "svm-train is not installed (Debian package libsvm-tools)"}
    timer = threading.Timer(limit, process.kill)
    timer.start()
    # Waits for the process, and tells its own peak memory.
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return {"error": f"more than {limit:.0f} s" if seconds >= limit else process.stderr.read().decode().strip()}
    with open(model) as file:
        vectors = next(int(line.split()[1]) for line in file if line.startswith("total_sv"))
    report = {"seconds": seconds, "sv": vectors, "rss_mb": usage.ru_maxrss / 1024}
    done = subprocess.run(
        [bench, "certify", data, "--libsvm", model, "--gamma", repr(job["gamma"]), "-C", repr(job["C"])]
        + (["--epsilon", repr(job["epsilon"])] if job["epsilon"] is not None else []),
        capture_output=True,
        text=True,
    )
    return report | (json.loads(done.stdout) if done.returncode == 0 else {})


def peer_run(job, threads, limit):
    env = dict(
        os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads)
    )
    command = [sys.executable, "-c", CHILD]
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        command = ["taskset", "-c", "0"] + command
    try:
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, env=env, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {limit} s"}
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def train_command(bench, data, cell, threads):
    _, gamma, C, epsilon = cell
    command = [bench, "train", data, "--gamma", repr(gamma), "-C", repr(C), "--threads", str(threads)]
    return command + (["--epsilon", repr(epsilon)] if epsilon is not None else [])


def ours(bench, data, cell, tol, gap, threads, beta, test):
    command = train_command(bench, data, cell, threads) + ["--beta", beta, "--test", test]
    command += ["--tol", repr(tol)] if tol else []
    command += ["--gap", repr(gap)] if gap else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip()}
    return json.loads(done.stdout)


def certify(bench, data, cell, beta):
    _, gamma, C, epsilon = cell
    command = [bench, "certify", data, "--gamma", repr(gamma), "-C", repr(C), "--beta", beta]
    command += ["--epsilon", repr(epsilon)] if epsilon is not None else []
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip()}


def save(folder, name, X, y):
    """The same arrays for everybody: NPZ for dense data, LIBSVM text for sparse."""
    if sp.issparse(X):
        from sklearn.datasets import dump_svmlight_file

        path = os.path.join(folder, name + ".svm")
        dump_svmlight_file(X, y, path, zero_based=False)
    else:
        path = os.path.join(folder, name + ".npz")
        np.savez(path, X=np.ascontiguousarray(X), y=y)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--cells", default="")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tols", default="1e-3,1e-6")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--peers", default="intelex-f32,intelex-f64,sklearn,libsvm")
    parser.add_argument("--limit", type=float, default=300, help="seconds a peer may take")
    parser.add_argument("--out", default="target/peers.json")
    parser.add_argument("--quick", action="store_true", help="every cell with few rows, within 5 minutes on 2 cores")
    args = parser.parse_args()
    everything, missing = cells(args.data)
    for name, files in missing.items():
        print(f"left out: {name}, because {args.data} has no {' and no '.join(files)}")
    chosen = [c for c in args.cells.split(",") if c] or list(everything)
    unknown = [name for name in chosen if name not in everything and name not in missing]
    if unknown:
        sys.exit(f"no such cell: {', '.join(unknown)}. There are: {', '.join([*everything, *missing])}")
    chosen = [name for name in chosen if name in everything]
    if args.quick:
        everything = {name: smaller(cell, QUICK_ROWS) for name, cell in everything.items()}
        args.repeats, args.tols, args.limit = 1, "1e-3", QUICK_LIMIT
    rows = []
    for name in chosen:
        cell = everything[name]
        X, y, T = cell[0]()
        with tempfile.TemporaryDirectory() as folder:
            data = save(folder, "train", X, y)
            text = data if sp.issparse(X) else save(folder, "text", sp.csr_matrix(X), y)
            test = save(folder, "test", T, np.resize([1.0, -1.0], T.shape[0]))
            sparse = bool(sp.issparse(X))
            px, pt, py = (
                os.path.join(folder, f)
                for f in ("x.npz" if sparse else "x.npy", "t.npz" if sparse else "t.npy", "y.npy")
            )
            (sp.save_npz if sparse else np.save)(px, X)
            (sp.save_npz if sparse else np.save)(pt, T)
            np.save(py, y)
            beta = os.path.join(folder, "beta.bin")
            for threads in map(int, args.threads.split(",")):
                for tol in map(float, args.tols.split(",")):
                    runs = {}
                    for _ in range(args.repeats):
                        report = ours(args.bench, data, cell, tol, None, threads, beta, test)
                        runs.setdefault("margrave", []).append(report)
                        if tol <= 1e-6 + 1e-12 or tol == min(map(float, args.tols.split(","))):
                            runs.setdefault("margrave gap 1e-6", []).append(
                                ours(args.bench, data, cell, 1e-3, 1e-6, threads, beta, test)
                            )
                        for peer in filter(None, args.peers.split(",")):
                            if any("error" in r for r in runs.get(peer, [])):
                                continue
                            job = dict(
                                peer=peer,
                                x=px,
                                t=pt,
                                y=py,
                                sparse=sparse,
                                C=cell[2],
                                tol=tol,
                                gamma=cell[1],
                                epsilon=cell[3],
                                beta=beta,
                                calls=CALLS,
                            )
                            if peer == "libsvm":
                                report = libsvm_run(job, text, args.bench, args.limit)
                            else:
                                report = peer_run(job, threads, args.limit)
                                if "error" not in report and len(runs.get(peer, [])) == 0:
                                    report |= certify(args.bench, data, cell, beta)
                            runs.setdefault(peer, []).append(report)
                    for who, reports in runs.items():
                        row = summarise(name, who, threads, tol, reports)
                        if who == "margrave":
                            own = row
                        elif "min" in row and "min" in own:
                            row["ratio"] = row["min"] / own["min"]
                            # In the precision of the peer.
                            mine = own.get("predict_single" if who == "intelex-f32" else "predict")
                            if row.get("predict") and mine:
                                row["predict_ratio"] = row["predict"] / mine
                        rows.append(row)
                        print(line(row), flush=True)
                    with open(args.out, "w") as f:
                        json.dump(rows, f, indent=1)
    print("wrote", args.out)


def summarise(cell, who, threads, tol, reports):
    errors = [r["error"] for r in reports if "error" in r]
    row = {"cell": cell, "who": who, "threads": threads, "tol": tol}
    good = [r for r in reports if "error" not in r]
    if not good:
        return row | {"error": errors[0]}
    times = [s for r in good for s in (r["seconds"] if isinstance(r["seconds"], list) else [r["seconds"]])]
    row |= {"min": min(times), "median": statistics.median(times)}
    for key in ("predict", "predict_single"):
        row[key] = min((s for r in good for s in r.get(key) or []), default=None)
    row["rss_mb"] = max((r["rss_mb"] for r in good if r.get("rss_mb")), default=None)
    first = good[0]
    for key in (
        "relative_gap",
        "violation",
        "dual",
        "primal",
        "status",
        "iterations",
        "entries_per_n_sv",
        "pass_seconds",
        "peak_mb",
    ):
        if key in first:
            row[key] = first[key]
    row["sv"] = first.get("support_vectors", first.get("sv"))
    return row


def line(row):
    if "error" in row:
        return f"{row['cell']:16} {row['who']:18} {row['threads']}t tol {row['tol']:.0e}  {row['error'][:60]}"
    predict = f"{row['predict']:.3f}" if row.get("predict") else "-"
    extra = (
        f" entries {row['entries_per_n_sv']:.2f} passes {row['pass_seconds'][0]:.3f}/{row['pass_seconds'][1]:.3f}"
        if "pass_seconds" in row
        else ""
    )
    return (
        f"{row['cell']:16} {row['who']:18} {row['threads']}t tol {row['tol']:.0e}  {row['min']:8.3f} s (median {row['median']:.3f})  gap {row.get('relative_gap', float('nan')):.1e}"
        f"  dual {row.get('dual', float('nan')):.8g}  sv {row['sv']}  predict {predict}  memory {row.get('rss_mb') or 0:.0f} MB"
        f"{'  ratio {:.2f}'.format(row['ratio']) if 'ratio' in row else ''}"
        f"{' predict {:.2f}'.format(row['predict_ratio']) if 'predict_ratio' in row else ''}{extra}"
    )


if __name__ == "__main__":
    start = time.time()
    main()
    print(f"{time.time() - start:.0f} s in all")
