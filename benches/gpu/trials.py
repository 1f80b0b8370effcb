"""Random trainings on a card, each beside `verify` and beside a training on the processor.

Checked for every configuration: the exit code fits the status, `verify` on the processor confirms the gap of the saved model,
and the two objectives differ by no more than both gaps allow. With `--approx` machines on few centres are trained: the intervals
that card and processor prove for the exact optimum must overlap. Needs NumPy and the program, neither Rust nor a network:
`python benches/gpu/trials.py target/release/margrave [--device cuda] [--count 500] [--workers 8] [--seed 1] [--approx]`.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

KINDS = ["gauss", "heavy", "indicators", "copies", "raw"]
KERNELS = ["rbf", "rbf", "rbf", "poly", "laplacian", "matern32", "matern52", "linear"]
LOSSES = {
    "classify": ["hinge", "hinge", "squared-hinge", "square"],
    "regress": ["epsilon", "epsilon", "huber:delta=0.5", "pinball:tau=0.3", "square", "squared-epsilon"],
}


def draw(rng, approx=False):
    """A table whose last column is the target, and the options of a training."""
    sizes = [(4200, 20000), (2, 60)] if approx else [(60, 6000), (1, 150)]
    n, d = (int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in sizes)
    kind, task = rng.choice(KINDS), rng.choice(["classify", "classify", "regress", "regress" if approx else "novelty"])
    X = rng.standard_normal((n, d)) if kind != "heavy" else rng.standard_t(2, (n, d))
    if kind == "indicators":
        X = (X > 0.5).astype(float)
    if kind == "raw":
        X = np.round(X * 10 ** rng.uniform(-1, 2, d) + 5)
    if kind == "copies":
        X = X[rng.integers(0, max(2, n // 3), n)]
    deviation = X.std(0) + 1e-9
    score = np.sin(X[:, 0] / deviation[0]) + (X[:, -1] - X[:, -1].mean()) / deviation[-1] + 0.3 * rng.standard_normal(n)
    y = score if task == "regress" else np.where(score > rng.choice([0.0, 0.0, 1.0]), 1.0, -1.0)
    if task == "classify" and abs(y.sum()) == n:
        y[:3] *= -1
    if rng.random() < 0.3:
        order = np.argsort(y, kind="stable")
        X, y = X[order], y[order]
    return np.column_stack([X, y]), options(rng, str(kind), str(task), d * X.var(), approx)


def options(rng, kind, task, spread, approx):
    """Kernel, loss, cost and what is asked for; `spread` is the mean squared distance from the mean."""
    kernel = str(rng.choice(KERNELS[:-1] if approx else KERNELS))
    args = ["--task", task, "--kernel", kernel]
    if kernel != "linear":
        gamma = repr(float(10 ** rng.uniform(-2, 1) / max(1e-9, 2 * spread))) if rng.random() < 0.8 else "scale"
        args += ["--gamma", gamma]
    if kernel == "poly":
        args += ["--degree", str(int(rng.integers(2, 4))), "--coef0", "1"]
    if task == "novelty":
        args += ["--nu", repr(float(rng.choice([0.05, 0.2, 0.5])))]
    elif rng.random() < 0.1 and not approx:
        args += ["--nu", "0.2"]
    else:
        args += ["-C", repr(float(10 ** rng.uniform(-2, 3))), "--loss", str(rng.choice(LOSSES[task]))]
        args += ["--no-bias"] if rng.random() < 0.2 else []
    if approx:
        args += ["--approx", str(int(rng.integers(64, 700))), "--gap", "0.5"]
    elif rng.random() < 0.3:
        args += ["--gap", repr(float(rng.choice([1e-3, 1e-6])))]
    return args + (["--scale", "standard"] if kernel in ("poly", "linear") or kind in ("raw", "heavy") else [])


def trial(program, device, seed, number, approx):
    """What was wrong with a configuration, its status and the seconds of the training on the card."""
    table, args = draw(np.random.default_rng([seed, number]), approx)
    faults = []

    def run(*command):
        done = subprocess.run([program, *command], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    with tempfile.TemporaryDirectory() as folder:
        data, model, other = (os.path.join(folder, name) for name in ("data.npy", "card.model", "processor.model"))
        np.save(data, table)
        train = ["train", data, "--json", "--max-seconds", "20", *args]
        began = time.time()
        code, out, err = run(*train, "-o", model, "--device", device)
        seconds = time.time() - began
        if "is not allowed: with these classes at most" in err and code == 2:
            return args, [], "refused", seconds
        if code not in (0, 3) or "panicked" in err:
            return args, [f"exit {code}: {err.strip()[-300:]}"], "failed", seconds
        ours = json.loads(out)
        if (code == 0) != (ours["status"] == "optimal"):
            faults.append(f"exit {code} with {ours['status']}")
        # The same proof, computed on the processor: its rounding is another.
        gap = repr(1.5 * max(ours["relative_gap"], 1e-6) + 1e-9)
        code_of_proof, _, err = run("verify", model, data, "--json", "--gap", gap)
        if code_of_proof != 0:
            faults.append(f"verify: exit {code_of_proof} {err.strip()[-200:]}")
        code_there, out, _ = run(*train, "-o", other, "--device", "cpu", "--threads", "1")
        if code_there == 0:
            theirs = json.loads(out)
            size = max(abs(ours["primal"]), abs(theirs["primal"]), 1e-12)
            allowed = (1.01 * (ours["relative_gap"] + theirs["relative_gap"]) + 1e-9) * size
            if approx:
                rounding = 1e-9 * size
                if ours["dual"] > theirs["primal"] + rounding or theirs["dual"] > ours["primal"] + rounding:
                    own = [[each["dual"], each["primal"]] for each in (ours, theirs)]
                    faults.append(f"the exact optimum cannot be in both of {own}")
            elif code != 0:
                faults.append(f"{ours['status']} where the processor ends optimal")
            elif abs(ours["primal"] - theirs["primal"]) > allowed:
                faults.append(f"objectives {ours['primal']} and {theirs['primal']}")
    return args, faults, f"{ours['status']} {ours['device']}", seconds


def main():
    """Runs the trials and prints those with faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--approx", action="store_true")
    options = parser.parse_args()
    statuses: dict[str, int] = {}
    failed, slowest = 0, 0.0
    with ThreadPoolExecutor(options.workers) as pool:
        one = partial(trial, options.program, options.device, options.seed, approx=options.approx)
        trials = pool.map(one, range(options.count))
        for number, (args, faults, status, seconds) in enumerate(trials):
            statuses[status] = statuses.get(status, 0) + 1
            slowest = max(slowest, seconds)
            if faults:
                failed += 1
                print(number, " ".join(args), *faults, sep="\n  ", flush=True)
    print(f"{options.count - failed} passed, {failed} failed")
    print(f"{statuses}, longest {slowest:.1f} s")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
