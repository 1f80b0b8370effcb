"""Times readers on the same files, turn by turn, and prints a table of the best of each.

Usage: compare.py THREADS REPEATS, from the root of the repository, with target/release/examples/read_time built.
"""

import os
import platform
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import pandas as pd
import scipy
import sklearn
from sklearn.datasets import load_svmlight_file

SEED = 0


def cpu_name():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def sparse_text(path, rng, n, d, per_row, form):
    """Rows of `per_row` entries on average at random places."""
    with open(path, "w") as out:
        for _ in range(n):
            k = max(1, rng.poisson(per_row))
            columns = np.unique(rng.integers(1, d + 1, size=k))
            values = rng.random(len(columns))
            entries = " ".join(f"{c}:{form(v)}" for c, v in zip(columns, values))
            out.write(f"{rng.choice((-1, 1)):+d} {entries}\n")


def dense_text(path, rng, n, d):
    with open(path, "w") as out:
        for row in rng.standard_normal((n, d)):
            entries = " ".join(f"{k}:{v:.6g}" for k, v in enumerate(row, 1))
            out.write(f"{rng.choice((-1, 1)):+d} {entries}\n")


def numbers_csv(path, rng, n, d, form):
    frame = pd.DataFrame(rng.standard_normal((n, d)), columns=[f"x{k}" for k in range(d)])
    frame["y"] = rng.integers(0, 3, n)
    frame.to_csv(path, index=False, float_format=form)


def integers_csv(path, rng, n, d):
    frame = pd.DataFrame(rng.integers(0, 5000, (n, d)), columns=[f"x{k}" for k in range(d)])
    frame["y"] = rng.integers(1, 8, n)
    frame.to_csv(path, index=False)


def texts_csv(path, rng, n, d, quoted):
    frame = pd.DataFrame(rng.standard_normal((n, d)), columns=[f"x{k}" for k in range(d)])
    frame["colour"] = rng.choice(["red", "green", "blue"], n)
    frame["class"] = rng.choice(["yes", "no"], n)
    quoting = 2 if quoted else 0  # csv.QUOTE_NONNUMERIC, csv.QUOTE_MINIMAL
    frame.to_csv(path, index=False, float_format="%.6g", quoting=quoting)


FILES = [
    (
        "text.svm",
        "40 000 × 47 236, 75 a row, 6 digits",
        lambda p, r: sparse_text(p, r, 40_000, 47_236, 75, "{:.6g}".format),
    ),
    (
        "text17.svm",
        "20 000 × 47 236, 75 a row, 17 digits",
        lambda p, r: sparse_text(p, r, 20_000, 47_236, 75, repr_float),
    ),
    ("binary.svm", "200 000 × 123, 14 a row, all 1", lambda p, r: sparse_text(p, r, 200_000, 123, 14, lambda v: "1")),
    ("dense.svm", "100 000 × 30, 6 digits", lambda p, r: dense_text(p, r, 100_000, 30)),
    ("numbers.csv", "100 000 × 50, 6 digits", lambda p, r: numbers_csv(p, r, 100_000, 50, "%.6g")),
    ("numbers17.csv", "50 000 × 50, 17 digits", lambda p, r: numbers_csv(p, r, 50_000, 50, None)),
    ("integers.csv", "200 000 × 54, whole numbers", lambda p, r: integers_csv(p, r, 200_000, 54)),
    ("texts.csv", "100 000 × 30 and a text, text target", lambda p, r: texts_csv(p, r, 100_000, 30, False)),
    ("quoted.csv", "the same, texts quoted", lambda p, r: texts_csv(p, r, 100_000, 30, True)),
]


def repr_float(value):
    return repr(float(value))


def peer(path):
    """One read by the peer: wall seconds, CPU seconds, rows."""
    wall, cpu = time.perf_counter(), time.process_time()
    if path.endswith(".svm"):
        x, _ = load_svmlight_file(path)
        rows = x.shape[0]
    else:
        rows = len(pd.read_csv(path, engine="c"))
    return time.perf_counter() - wall, time.process_time() - cpu, rows


def ours(path, threads):
    """One read by ours, in a process of its own, whose start counts as CPU time but not as wall time."""
    command = ["target/release/examples/read_time", str(threads), "1", path]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(words[0]), cpu, int(words[-3])


def main():
    threads, repeats = int(sys.argv[1]), int(sys.argv[2])
    versions = f"scikit-learn {sklearn.__version__}, pandas {pd.__version__}, numpy {np.__version__}, scipy {scipy.__version__}"
    print(
        f"{cpu_name()}, {os.cpu_count()} cores, {threads} threads, best of {repeats}, turn by turn; {versions}; Python {platform.python_version()}"
    )
    print(f"Load before: {os.getloadavg()[0]:.1f}\n")
    print(
        "| file | content | MB | peer | peer rows/s | ours rows/s | ratio | ours, 1 thread | ratio | rows per CPU second, ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, content, write in FILES:
            path = os.path.join(folder, name)
            write(path, np.random.default_rng(SEED))
            size = os.path.getsize(path) / 1e6
            best = {}
            for _ in range(repeats):
                turn = {"peer": peer(path), "many": ours(path, threads), "one": ours(path, 1)}
                rows = turn["peer"][2]
                assert all(rows == count for _, _, count in turn.values()), (name, turn)
                for key, (wall, cpu, _) in turn.items():
                    old = best.get(key, (np.inf, np.inf))
                    best[key] = (min(old[0], wall), min(old[1], cpu))
            wall = {key: rows / value[0] for key, value in best.items()}
            who = "scikit-learn" if name.endswith(".svm") else "pandas"
            print(
                f"| {name} | {content} | {size:.1f} | {who} | {wall['peer']:.3g} | {wall['many']:.3g} | **{wall['many'] / wall['peer']:.1f}** "
                f"| {wall['one']:.3g} | {wall['one'] / wall['peer']:.1f} | {best['peer'][1] / best['one'][1]:.1f} |",
                flush=True,
            )
            os.remove(path)
    print(f"\nLoad after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
