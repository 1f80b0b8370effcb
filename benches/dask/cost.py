"""What a fit on Dask costs: processes on this machine, and a simulation of many workers from measured times.

usage: python benches/dask/cost.py [ROWS] [FEATURES]

1. A linear model of ROWS generated rows: LinearSVC, one process with two threads, and 1, 2 and 4 worker processes, the data in
   memory in every case. Least of three.
2. Rounds of tasks that do nothing, with 2 to 512 tasks: what the scheduler takes for a task and for a round.
3. The time of a fit on up to 1 000 workers from those numbers: a round takes the task, the scheduler, and the sums over a
   network of 1 GB/s. Rows of a worker stay the same (weak scaling), or the rows of all do (strong scaling).
"""

import logging
import sys
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from margrave import LinearSVC
from margrave.dask import DaskLinearSVC
from margrave.dask._cluster import Rounds

#: Bytes per second and seconds per message of the simulated network.
BANDWIDTH, LATENCY = 1e9, 5e-4
#: Sums that one task adds.
FAN_IN = 8


def generated(rows, features, chunk):
    def block(block_info=None):
        at = block_info[None]["chunk-location"][0]
        return np.random.default_rng([1, at]).normal(size=(chunk, features))

    X = da.map_blocks(block, chunks=((chunk,) * (rows // chunk), (features,)), dtype=np.float64)
    w = np.random.default_rng(0).normal(size=features)

    def label(x, block_info=None):
        at = block_info[0]["chunk-location"][0]
        return (x @ w + np.random.default_rng([2, at]).normal(size=len(x)) > 0).astype(np.int64)

    return X, X.map_blocks(label, drop_axis=1, dtype=np.int64)


def least(fit, times=3):
    best, model = np.inf, None
    for _ in range(times):
        begun = time.perf_counter()
        model = fit()
        best = min(best, time.perf_counter() - begun)
    return best, model


def nothing(*_):
    return np.zeros(1)


def main(rows, features):
    chunk = rows // 4
    results = {}
    for name, given in {
        "one process, 2 threads": {"n_workers": 1, "threads_per_worker": 2, "processes": False},
        "1 process": {"n_workers": 1, "threads_per_worker": 1},
        "2 processes": {"n_workers": 2, "threads_per_worker": 1},
        "4 processes": {"n_workers": 4, "threads_per_worker": 1},
    }.items():
        with LocalCluster(dashboard_address=":0", **given) as cluster, Client(cluster) as client:
            X, y = client.persist(list(generated(rows, features, chunk)))
            wait([X, y])
            DaskLinearSVC().fit(X, y)
            seconds, model = least(lambda: DaskLinearSVC().fit(X, y))
            results[name] = seconds
            print(
                f"{name}: {seconds:.2f} s, {model._rounds['passes']} passes, {model._rounds['tasks']} tasks,"
                f" {model._rounds['bytes'] / 1e6:.2f} MB to the driver, {model.certificate_.summary()}",
                flush=True,
            )
            passes, size = model._rounds["passes"], model._rounds["bytes"] / model._rounds["passes"] / 4
            if name == "2 processes":
                per_round = []
                for count in (2, 8, 32, 128, 512):
                    rounds = Rounds(client, None, "nothing")
                    rounds.gather([rounds.submit(nothing, name="nothing") for _ in range(count)])
                    seconds, _ = least(lambda: rounds.gather([rounds.submit(nothing, name="n") for _ in range(count)]))
                    per_round.append((count, seconds))
                    print(f"  a round of {count} tasks that do nothing: {1e3 * seconds:.1f} ms", flush=True)
            if name.startswith("one process"):
                A, b = X.compute(), y.compute()
                seconds, local = least(lambda: LinearSVC().fit(A, b))
                print(f"LinearSVC, 2 threads: {seconds:.2f} s, {local.certificate_.summary()}", flush=True)
                del A, b
    print(f"2 processes / one process: {results['2 processes'] / results['one process, 2 threads']:.2f}")
    counts, seconds = np.array(per_round).T
    per_task, base = np.polyfit(counts, seconds, 1)
    per_task = max(per_task, 1e-5)
    # A pass over the rows of one partition, by one thread.
    work = max(0.0, results["1 process"] / passes - 4 * per_task - max(base, 0.0)) / 4
    print(
        f"scheduler: {1e6 * per_task:.0f} us per task, {1e3 * max(base, 0.0):.1f} ms per round; a task: {1e3 * work:.1f} ms"
    )
    simulate(passes, per_task, max(base, 0.0), work, size)


def simulate(passes, per_task, base, work, size):
    """Prints the time of a fit by number of workers."""
    print("workers | rows of a worker stay: s per fit, of it scheduler | rows of all stay: s per fit | MB per round")
    for workers in (1, 10, 100, 1000):
        tasks, levels = workers, 0
        while tasks > FAN_IN:
            tasks = -(-tasks // FAN_IN)
            levels += 1
        total = workers + sum(-(-workers // FAN_IN**level) for level in range(1, levels + 1))
        scheduler = base + per_task * total
        network = (levels + 1) * (LATENCY + FAN_IN * size / BANDWIDTH)
        weak = passes * (work + scheduler + network)
        # The four partitions of the measured fit, spread over all workers.
        strong = passes * (4 * work / workers + scheduler + network)
        print(
            f"{workers:7d} | {weak:6.2f}, {passes * scheduler:5.2f} | {strong:6.2f} | {total * size / 1e6:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, int(sys.argv[2]) if len(sys.argv) > 2 else 20)
