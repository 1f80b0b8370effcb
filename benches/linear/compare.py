"""Runs Margrave and its peers on the same linear problems and certifies every w. See `run`.

Everybody solves ½‖w‖² + ½b² + C·Σ loss (LIBLINEAR's -B 1). A peer is run with tighter and tighter tolerances until the
objective of its w, computed by Margrave, is within the gap asked for of the best lower bound; the time of that run counts.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import scipy.sparse as sp
from cells import cells

# One run of a peer in a process of its own; only the training is timed.
CHILD = r"""
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np, scipy.sparse as sp
job = json.load(sys.stdin)
X = sp.load_npz(job["x"]) if job["sparse"] else np.load(job["x"])
y = np.load(job["y"])
peer, loss, C, tol = job["peer"], job["loss"], job["C"], job["tol"]
regression = "epsilon" in loss
if peer.startswith("liblinear"):
    from liblinear.liblinear import problem, parameter
    from liblinear.liblinearutil import train
    solver = int(peer.split("-s")[1])
    prob = problem(y, X if job["sparse"] else sp.csr_matrix(X), bias=1)
    param = parameter(f"-s {solver} -c {C} -e {tol} -B 1 -q" + (" -p 0.1" if regression else ""))
    start = time.perf_counter()
    model = train(prob, param)
    seconds = time.perf_counter() - start
    w, b = model.get_decfun()
    sign = 1.0 if regression or model.get_labels()[0] > 0 else -1.0
    w, b = sign * np.array(w), sign * b
elif peer.startswith("sklearn"):
    from sklearn.svm import LinearSVC, LinearSVR
    dual = peer.endswith("dual")
    common = dict(C=C, tol=tol, dual=dual, max_iter=job["iterations"], random_state=0)
    if regression:
        name = "epsilon_insensitive" if loss.startswith("epsilon") else "squared_epsilon_insensitive"
        model = LinearSVR(loss=name, epsilon=0.1, **common)
    else:
        model = LinearSVC(loss="hinge" if loss == "hinge" else "squared_hinge", **common)
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
else:
    from snapml import SupportVectorMachine
    model = SupportVectorMachine(loss="hinge" if loss == "hinge" else "squared_hinge", regularizer=1 / C, fit_intercept=True,
                                 intercept_scaling=1.0, tol=tol, max_iter=job["iterations"], n_jobs=2, random_state=0)
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
np.append(w, b).astype("<f8").tofile(job["w"])
print(json.dumps({"seconds": seconds}))
"""


def peers_of(loss):
    if loss == "hinge":
        return ["liblinear-s3", "sklearn-dual", "snapml"]
    if loss == "squared-hinge":
        return ["liblinear-s1", "liblinear-s2", "sklearn-dual", "sklearn-primal", "snapml"]
    if loss.startswith("epsilon"):
        return ["liblinear-s13", "sklearn-dual"]
    return ["liblinear-s11", "liblinear-s12", "sklearn-dual", "sklearn-primal"]


def peer_run(job, limit):
    env = dict(os.environ, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD], input=json.dumps(job), capture_output=True, text=True, env=env, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {limit:g} s"}
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def bench(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def save(folder, X, y):
    if sp.issparse(X):
        from sklearn.datasets import dump_svmlight_file

        path = os.path.join(folder, "train.svm")
        dump_svmlight_file(X, y, path, zero_based=False)
    else:
        path = os.path.join(folder, "train.npz")
        np.savez(path, X=X, y=y)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--cells", default="")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--gap", type=float, default=1e-6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", default="2")
    parser.add_argument(
        "--limit", type=float, default=120, help="seconds one run of a peer may take, its start included"
    )
    parser.add_argument("--out", default="target/linear.json")
    args = parser.parse_args()
    everything = cells(args.data)
    rows, ratios = [], []
    for name in [c for c in args.cells.split(",") if c] or list(everything):
        make, loss, C = everything[name]
        X, y = make()
        with tempfile.TemporaryDirectory() as folder:
            data = save(folder, X, y)
            sparse = bool(sp.issparse(X))
            x, labels, w = (os.path.join(folder, f) for f in ("x.npz" if sparse else "x.npy", "y.npy", "w.bin"))
            (sp.save_npz if sparse else np.save)(x, X)
            np.save(labels, y)
            common = [data, "--loss", loss, "-C", repr(C), "--bias", "1"]
            own = bench(
                args.bench,
                "train",
                *common,
                "--gap",
                repr(args.gap),
                "--threads",
                args.threads,
                "--repeats",
                str(args.repeats),
            )
            bound = bench(args.bench, "train", *common, "--gap", repr(args.gap / 100), "--threads", args.threads)[
                "dual"
            ]
            print(
                f"{name:28} {'margrave':16} {own['least']:9.4f} s  gap {own['relative_gap']:.1e}  {own['reason']}",
                flush=True,
            )
            row = {"cell": name, "n": X.shape[0], "d": X.shape[1], "margrave": own, "peers": {}}
            best = math.inf
            for peer in peers_of(loss):
                found = None
                for exponent in range(1, 13):
                    job = dict(
                        peer=peer,
                        x=x,
                        y=labels,
                        w=w,
                        sparse=sparse,
                        loss=loss,
                        C=C,
                        tol=10.0**-exponent,
                        iterations=10**6,
                    )
                    report = peer_run(job, args.limit)
                    if "error" in report:
                        found = report | {"tol": job["tol"]}
                        break
                    primal = bench(args.bench, "certify", *common, "--weights", w)["primal"]
                    report |= {"tol": job["tol"], "relative_gap": (primal - bound) / max(1.0, abs(primal), abs(bound))}
                    found = report
                    if report["relative_gap"] <= args.gap:
                        for _ in range(args.repeats - 1):
                            again = peer_run(job, args.limit)
                            report["seconds"] = min(report["seconds"], again.get("seconds", math.inf))
                        best = min(best, report["seconds"])
                        break
                row["peers"][peer] = found
                told = found.get("error") or f"{found['seconds']:9.4f} s  gap {found['relative_gap']:.1e}"
                print(f"{'':28} {peer:16} {told}  tol {found['tol']:.0e}", flush=True)
            if math.isfinite(best):
                row["ratio"] = best / own["least"]
                ratios.append(row["ratio"])
                print(f"{'':28} fastest peer / margrave = {row['ratio']:.2f}", flush=True)
            rows.append(row)
            with open(args.out, "w") as f:
                json.dump(rows, f, indent=1)
    if ratios:
        print(f"geometric mean over {len(ratios)} cells: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


main()
