#!/usr/bin/env python3
"""Cholesky, eigendecomposition and a path of 40 lambda: ours against SciPy, interleaved in one run.

    python3 benches/ridge/run.py [--sizes 1000,2000,4000] [--threads 1,2] [--repeats 3]

Makes its own environment under target/ (ignored by git), builds the Rust side in release mode and prints a Markdown
table. Both sides decompose the same RBF Gram matrix. Times are minima over the repeats; `wall` is what a clock shows,
`cpu` is processor time summed over threads, which other programs on the machine disturb less.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = ROOT / "target" / "bench-ridge-venv"


def environment():
    python = HOME / "bin" / "python"
    if not python.exists():
        venv.create(HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "numpy", "scipy", "threadpoolctl"], check=True)
    return python


def build():
    subprocess.run(["cargo", "build", "--release", "-p", "margrave-bench-micro"], cwd=ROOT, check=True)
    return str(ROOT / "target" / "release" / "margrave-bench-micro")


class Ours:
    def __init__(self, program):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program, "ridge"], stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        return self.process.stdout.readline().strip()

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def time(self, *words):
        assert self.ask(*words) == "begin"
        before = self.processor_seconds()
        wall = float(self.process.stdout.readline())
        return wall, self.processor_seconds() - before


def measure(sizes, threads, repeats, program):
    import time

    import numpy as np
    import scipy.linalg
    from threadpoolctl import threadpool_limits

    def timed(work):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - wall, time.process_time() - cpu

    print("| n | threads | what | ours, wall s | SciPy, wall s | ratio | ours, cpu s | SciPy, cpu s | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    ours = Ours(program)
    for n in sizes:
        d = 10
        x = np.random.default_rng(n).standard_normal((n, d))
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            file.write(x.astype("<f8").tobytes())
            file.flush()
            ours.ask("load", file.name, n, d)
        q = (x * x).sum(1)
        k = np.exp(-(q[:, None] + q[None, :] - 2 * x @ x.T) / d)
        a = k + 0.1 * np.eye(n)
        for t in threads:
            with threadpool_limits(t):
                cells = {
                    "cholesky": (("cholesky", t), lambda: scipy.linalg.cholesky(a, lower=True)),
                    "eigen (evd)": (("eigen", t), lambda: scipy.linalg.eigh(k, driver="evd")),
                    "eigen (evr, SciPy's default)": (("eigen", t), lambda: scipy.linalg.eigh(k, driver="evr")),
                }
                best = {}
                for _ in range(repeats):
                    for name, (words, theirs) in cells.items():
                        mine = ours.time(*words)
                        for who, seconds in (("ours", mine), ("scipy", timed(theirs))):
                            old = best.get((name, who), (1e9, 1e9))
                            best[name, who] = tuple(map(min, old, seconds))
                    mine = ours.time("path", t, 40)
                    best["path", "ours"] = tuple(map(min, best.get(("path", "ours"), (1e9, 1e9)), mine))
                for name in cells:
                    (w, c), (sw, sc) = best[name, "ours"], best[name, "scipy"]
                    row = f"| {n} | {t} | {name} | {w:.3f} | {sw:.3f} | {sw / w:.2f} | {c:.3f} | {sc:.3f} | {sc / c:.2f} |"
                    print(row, flush=True)
                w, c = best["path", "ours"]
                base = min(best[name, "ours"] for name in cells if name.startswith("eigen"))
                print(
                    f"| {n} | {t} | path of 40 λ with leave-one-out | {w:.3f} | | {w / base[0]:.2f} × our eigen "
                    f"| {c:.3f} | | {c / base[1]:.2f} × our eigen |",
                    flush=True,
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def numbers(text):
        return [int(part) for part in text.split(",")]

    parser.add_argument("--sizes", type=numbers, default=[1000, 2000, 4000])
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--program", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.program:
        measure(given.sizes, given.threads, given.repeats, given.program)
        return
    python, program = environment(), build()
    os.execv(python, [str(python), __file__, *sys.argv[1:], "--program", program])


if __name__ == "__main__":
    main()
