"""Damages the state of fitted estimators (the dictionary of arrays that pickle stores) and predicts with the result.

A prediction and an ordinary Python exception are both fine; a panic of the engine (PanicException) or a crash is not.

    python -I fuzz/pickle.py [RUNS] [SEED]      # -I: the name of this file must not hide the module pickle
"""

import copy
import random
import sys

import numpy as np

import margrave


def fitted():
    """Estimators of every kind, fitted to little data, and rows to predict."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    two, three, real = (x[:, 0] > 0).astype(int), rng.integers(0, 3, 40), x @ [1.0, -1.0, 0.5]
    yield margrave.SVC().fit(x, two), x
    yield margrave.SVC(probability=True).fit(x, three), x
    yield margrave.SVC(kernel="linear").fit(x, two), x
    yield margrave.SVC(kernel="precomputed").fit(x @ x.T, two), x @ x.T
    yield margrave.NuSVC(nu=0.3).fit(x, two), x
    yield margrave.SVR().fit(x, real), x
    yield margrave.OneClassSVM().fit(x), x
    yield margrave.LinearSVC().fit(x, three), x
    yield margrave.LinearSVR().fit(x, real), x
    yield margrave.KernelRidge(kernel="rbf").fit(x, real), x


def damaged(value, rng):
    """Another value of about the same kind."""
    if isinstance(value, np.ndarray) and value.size:
        value = value.copy()
        kind = rng.randrange(6)
        if kind == 0:
            return value[: rng.randrange(value.shape[0] + 1)] if value.ndim else value
        if kind == 1:
            return np.concatenate([value, value]) if value.ndim else value
        if kind == 2:
            return value.astype(rng.choice([np.float32, np.int8, np.int64, object, np.float64]), casting="unsafe")
        if kind == 3:
            return value.reshape(-1)
        if value.dtype.kind in "iuf":
            extreme = [np.nan, np.inf, -1, 2**31, -(2**31), 0] if value.dtype.kind == "f" else [-1, 0, 2**31 - 1]
            value.flat[rng.randrange(value.size)] = rng.choice(extreme)
        return value
    if isinstance(value, (bool, np.bool_)):
        return not value
    if isinstance(value, (int, float, np.number)):
        return rng.choice([0, -1, 1, 2**31, 2**63 - 1, 1e308, float("nan"), None, "x"])
    if isinstance(value, str):
        return rng.choice(["", "rbf", "linear", "precomputed", "no such", "\0"])
    return rng.choice([None, 0, "", [], {}, value])


def main():
    """Runs the damaged states and prints the results."""
    runs, seed = (int(a) for a in (sys.argv[1:] + ["1000", "0"][len(sys.argv) - 1 :]))
    rng = random.Random(seed)
    machines = list(fitted())
    predicted = refused = 0
    for run in range(runs):
        model, rows = rng.choice(machines)
        state = copy.deepcopy(model.__getstate__())
        names = [name for name in state if name.endswith("_") or name.startswith("_")]
        for name in rng.sample(names, min(len(names), rng.choice([1, 1, 2]))):
            if rng.random() < 0.1:
                del state[name]
            else:
                state[name] = damaged(state[name], rng)
        try:
            other = type(model)()
            other.__setstate__(state)
            other.predict(rows)
            predicted += 1
        except Exception:  # any ordinary exception is an answer
            refused += 1
        except BaseException as error:
            print(f"run {run} of seed {seed}: {type(model).__name__}: {type(error).__name__}: {error}")
            return 1
    print(f"{runs} runs: {predicted} predicted, {refused} refused, no panic")
    return 0


if __name__ == "__main__":
    sys.exit(main())
