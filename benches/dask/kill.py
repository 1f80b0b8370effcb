"""Fits on Dask with one worker killed at a random round: all finish, with the same bits.

usage: python benches/dask/kill.py [RUNS] [SEED]

Prints one line per kind of model: runs, runs that finished, runs with the bits of an undisturbed fit, and the times relative
to it. Two worker processes on this machine; a nanny starts a new one for the one that was killed.
"""

import os
import signal
import sys
import threading
import time

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from margrave.dask import DaskLinearSVC, DaskSVC, DaskSVCCV, _cluster, _search

ROWS, CHUNK = 8_000, 2_000


class Killer:
    """Kills a worker in the round in which a fit has sent so many tasks."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.after = None
        self.killed = False
        gather = _cluster.Rounds.gather
        wait = _search._Remote.wait

        def look(rounds):
            self.most = rounds.count
            if self.after is not None and rounds.count >= self.after and not self.killed:
                self.killed = True
                threading.Thread(target=self.kill).start()

        def gathering(rounds, futures):
            look(rounds)
            return gather(rounds, futures)

        def waiting(remote, futures, tasks):
            look(remote.rounds)
            return wait(remote, futures, tasks)

        _cluster.Rounds.gather = gathering
        _search._Remote.wait = waiting

    def kill(self):
        nannies = list(self.cluster.workers.values())
        nanny = nannies[self.after % len(nannies)]
        process = nanny.process and nanny.process.process
        if process is not None and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)


def model_bytes(model):
    names = ("coef_", "intercept_", "dual_coef_", "support_")
    return b"".join(np.asarray(model.__dict__[name]).tobytes() for name in names if name in model.__dict__)


def main(runs, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, 20))
    y = (X @ rng.normal(size=20) + rng.normal(size=ROWS) > 0).astype(int)
    dX, dy = (da.from_array(a, chunks=(CHUNK, *a.shape[1:])) for a in (X, y))
    few, labels = X[:3000, :5], (X[:3000, :5] ** 2).sum(axis=1) > 4.3
    small = [da.from_array(a, chunks=(500, *a.shape[1:])) for a in (few, labels)]
    kinds = {
        "DaskLinearSVC(hinge)": (0.6, lambda: DaskLinearSVC(loss="hinge").fit(dX, dy)),
        "DaskSVC": (0.2, lambda: DaskSVC(block_size=600).fit(*small)),
        "DaskSVCCV(race)": (
            0.2,
            lambda: DaskSVCCV(Cs=[0.1, 1, 10], gammas=[0.01, 0.1, 1, 10], race=3.0).fit(few, labels),
        ),
    }
    # LocalCluster closes a nanny whose worker has come back with another port: not within this program.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        killer = Killer(cluster)
        for name, (share, fit) in kinds.items():
            fit()
            times = []
            for _ in range(3):
                begun = time.perf_counter()
                expected = model_bytes(fit())
                times.append(time.perf_counter() - begun)
            undisturbed, most = sorted(times)[1], killer.most
            count = round(share * runs)
            finished = same = killed = 0
            ratios = []
            for _ in range(count):
                client.wait_for_workers(2)
                killer.after, killer.killed = int(rng.integers(1, most + 1)), False
                begun = time.perf_counter()
                try:
                    found = model_bytes(fit())
                except Exception as error:
                    print(f"{name}: {type(error).__name__}: {error}", flush=True)
                else:
                    finished += 1
                    killed += killer.killed
                    same += found == expected
                    ratios.append((time.perf_counter() - begun) / undisturbed)
                killer.after = None
                if (finished % 10) == 0:
                    print(f"  {finished}: {killed} killed, {same} same bits", flush=True)
            print(
                f"{name}: {count} runs, {killed} with a killed worker, {finished} finished, {same} same bits; undisturbed {undisturbed:.2f} s, with a"
                f" killed worker {np.median(ratios):.2f} times that (median), {max(ratios):.2f} at most",
                flush=True,
            )


if __name__ == "__main__":
    import logging

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
