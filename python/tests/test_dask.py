"""Estimators on Dask: real worker processes, compared with the local estimators."""

import asyncio
import doctest
import importlib
import os
import pickle
import signal
import threading
import time

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import make_scorer, matthews_corrcoef

from margrave import SVC, SVCCV, SVR, SVRCV, KernelRidge, LinearSVC, LinearSVR, certify
from margrave._core import BudgetError
from margrave.dask import (
    DaskKernelRidge,
    DaskLinearSVC,
    DaskLinearSVR,
    DaskSVC,
    DaskSVCCV,
    DaskSVR,
    DaskSVRCV,
)

ROWS, CHUNK = 3000, 600


def cluster(workers):
    return LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0")


@pytest.fixture(scope="module")
def client():
    with dask.config.set({"distributed.worker.memory.terminate": False}), cluster(2) as own, Client(own) as client:
        yield client


@pytest.fixture(scope="module")
def four():
    with cluster(4) as own, Client(own, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 5))
    score = X @ rng.normal(size=5) + 0.5 * rng.normal(size=ROWS)
    return X, (score > 0.2).astype(int), score


def split(*arrays):
    return [da.from_array(a, chunks=(CHUNK, *a.shape[1:])) for a in arrays]


def same_bytes(a, b):
    """Whether two models have the same bits."""
    names = ("coef_", "intercept_", "dual_coef_", "support_", "X_fit_")
    kept = [name for name in names if name in a.__dict__]
    assert kept
    return all(np.asarray(getattr(a, name)).tobytes() == np.asarray(getattr(b, name)).tobytes() for name in kept)


# Linear models.


@pytest.mark.parametrize(
    ("loss", "scaling"),
    [
        ("squared_hinge", 1.0),
        ("hinge", 2.0),
        ("hinge", float("inf")),
        ("logistic", None),
        ("power:s=1.5", float("inf")),
    ],
)
def test_linear_classifiers_agree_with_local_ones(client, data, loss, scaling):
    X, y, _ = data
    kind = {"fit_intercept": False} if scaling is None else {"intercept_scaling": scaling}
    dX, dy = split(X, y)
    model = DaskLinearSVC(loss=loss, gap_tol=1e-10, tol=1e-4, **kind).fit(dX, dy)
    local = LinearSVC(loss=loss, gap_tol=1e-10, **kind).fit(X, y)
    assert model.certificate_.status == "optimal"
    assert model.certificate_.relative_gap <= 1e-10
    np.testing.assert_allclose(model.coef_, local.coef_, atol=2e-5)
    # The proof over all partitions is that of one machine.
    checked = certify(model.to_local(), X, y)
    assert abs(checked.primal - model.certificate_.primal) <= 1e-12 * checked.primal
    assert abs(checked.gap - model.certificate_.gap) <= 1e-9 * checked.primal


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "huber:delta=0.5", "pinball:tau=0.8", "logcosh"])
def test_linear_regressions_agree_with_local_ones(client, data, loss):
    X, _, score = data
    dX, dy = split(X, score)
    model = DaskLinearSVR(loss=loss, epsilon=0.1, gap_tol=1e-9).fit(dX, dy)
    local = LinearSVR(loss=loss, epsilon=0.1, gap_tol=1e-9).fit(X, score)
    assert model.certificate_.status == "optimal"
    assert abs(model.certificate_.primal - local.certificate_.primal) <= 1e-8 * local.certificate_.primal
    np.testing.assert_allclose(model.predict(dX).compute(), local.predict(X), atol=1e-3)


def test_a_loss_of_ones_own_travels_to_the_workers(client, data):
    X, _, score = data
    dX, dy = split(X, score)

    # A class of this function is pickled by value: the workers do not have this file.
    class Squared:
        def value(self, y, z):
            return 0.5 * (y - z) ** 2

        def slope(self, y, z):
            return z - y

        def curvature(self, y, z):
            return np.ones_like(z)

        def conjugate(self, y, u):
            return 0.5 * u**2 + u * y

    model = DaskLinearSVR(loss=Squared()).fit(dX, dy)
    local = LinearSVR(loss="square").fit(X, score)
    assert model.certificate_.status == "optimal"
    np.testing.assert_allclose(model.coef_, local.coef_, atol=1e-5)


def test_several_classes_weights_and_a_sample_as_start(client):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100_000, 4))
    y = np.array(["a", "b", "c"])[np.digitize(X @ [1.0, 2.0, 0.0, -1.0], [-1, 1])]
    weights = rng.integers(0, 3, size=len(y)).astype(float)
    dX, dy, dw = (da.from_array(a, chunks=(25_000, *a.shape[1:])) for a in (X, y, weights))
    model = DaskLinearSVC(class_weight="balanced", gap_tol=1e-10).fit(dX, dy, dw)
    local = LinearSVC(class_weight="balanced", gap_tol=1e-10).fit(X, y, weights)
    assert model.certificate_.status == "optimal"
    np.testing.assert_allclose(model.coef_, local.coef_, atol=1e-6)
    assert (model.predict(dX).compute() == local.predict(X)).all()
    np.testing.assert_allclose(model.decision_function(dX).compute(), local.decision_function(X), atol=1e-5)


def test_many_features_by_conjugate_gradients(client):
    X = sp.random(2000, 1800, density=0.01, random_state=0, format="csr")
    y = (X @ np.random.default_rng(0).normal(size=1800) > 0).astype(int)
    blocks = [dask.delayed(X[k : k + 500]) for k in range(0, 2000, 500)]
    targets = [dask.delayed(y[k : k + 500]) for k in range(0, 2000, 500)]
    model = DaskLinearSVC(C=10).fit(blocks, targets)
    local = LinearSVC(C=10).fit(X, y)
    assert model.certificate_.status == "optimal"
    assert abs(model.certificate_.primal - local.certificate_.primal) <= 1e-6 * local.certificate_.primal
    found = np.concatenate(dask.compute(*model.predict(blocks)))
    assert (found == local.predict(X)).mean() > 0.999
    assert model.score(blocks, targets) == pytest.approx((found == y).mean())


# Kernel models.


@pytest.mark.parametrize(
    "given",
    [{}, {"C": 30, "block_size": 400}, {"loss": "squared-hinge"}, {"class_weight": "balanced", "kernel": "laplacian"}],
    ids=str,
)
def test_exact_kernel_classifiers_agree_with_local_ones(client, data, given):
    X, _, _ = data
    y = (X**2).sum(axis=1) > 4.5
    dX, dy = split(X, y)
    model = DaskSVC(**given).fit(dX, dy)
    local = SVC(**{name: value for name, value in given.items() if name != "block_size"}).fit(X, y)
    assert model.certificate_.status == "optimal"
    assert abs(model.certificate_.primal - local.certificate_.primal) <= 1e-3 * local.certificate_.primal
    # The proof over all partitions is that of one machine.
    own = model.to_local()
    checked = certify(own, X, y)
    assert abs(checked.primal - model.certificate_.primal) <= 1e-9 * checked.primal
    assert abs(checked.gap - model.certificate_.gap) <= 1e-9 * checked.primal
    assert (X[model.support_] == model.support_vectors_).all()
    assert (own.predict(X) == local.predict(X)).mean() > 0.995
    assert (model.predict(dX).compute() == own.predict(X)).all()


def test_exact_kernel_models_of_several_classes_and_numbers(client, data):
    X, _, score = data
    y = np.digitize((X**2).sum(axis=1), [3, 6])
    dX, dy, ds = split(X, y, np.sin(score))
    model, local = DaskSVC().fit(dX, dy), SVC().fit(X, y)
    assert model.certificate_.status == "optimal"
    np.testing.assert_allclose(model.decision_function(dX).compute(), local.decision_function(X), atol=0.02)
    assert abs(certify(model.to_local(), X, y).gap - model.certificate_.gap) <= 1e-9 * model.certificate_.primal
    model, local = DaskSVR(C=10).fit(dX, ds), SVR(C=10).fit(X, np.sin(score))
    assert model.certificate_.status == "optimal"
    np.testing.assert_allclose(model.predict(dX).compute(), local.predict(X), atol=0.01)


def test_approximate_models(client, data):
    X, _, score = data
    y = np.digitize((X**2).sum(axis=1), [3, 6])
    dX, dy, ds = split(X, y, np.sin(score))
    model, local = DaskSVC(approx=100, loss="squared-hinge").fit(dX, dy), SVC(loss="squared-hinge").fit(X, y)
    assert model.certificate_.status == "optimal"
    # Optimal on the centres, and nothing is said about the exact problem.
    parts = model.certificate_.approximation
    assert (parts["centres"], parts["check"], parts["kernel_gap"]) == (100, "own", None)
    assert "Only the problem on 100 centres was certified, not the exact one" in model.certificate_.summary()
    assert "not compared" in model.reason_
    assert (model.predict(dX).compute() == local.predict(X)).mean() > 0.9
    assert (model.to_local().predict(X) == model.predict(dX).compute()).all()
    model, local = DaskSVR(approx=100).fit(dX, ds), SVR().fit(X, np.sin(score))
    assert model.certificate_.status == "optimal"
    assert np.corrcoef(model.predict(dX).compute(), local.predict(X))[0, 1] > 0.95
    model = DaskKernelRidge(kernel="rbf", gamma=0.2, alpha=0.1, approx=400).fit(dX, ds)
    local = KernelRidge(kernel="rbf", gamma=0.2, alpha=0.1).fit(X, np.sin(score))
    assert model.certificate_.status == "optimal"
    assert np.corrcoef(model.predict(dX).compute(), local.predict(X))[0, 1] > 0.98


# Searches.


def assert_same_search(a, b):
    for name, found in a.cv_results_.items():
        if name == "fit_seconds":
            continue
        expected = b.cv_results_[name]
        assert found == expected if name == "params" else np.array_equal(found, expected, equal_nan=True), name
    assert (a.C_, a.gamma_, a.best_score_) == (b.C_, b.gamma_, b.best_score_)
    assert same_bytes(a, b)


@pytest.mark.parametrize(
    "given",
    [
        {"gammas": [0.001, 0.01]},
        {"gammas": [0.001, 0.01, 0.1, 1]},
        {"gammas": [0.001, 0.01, 0.1, 1], "race": 2.0},
        {"gammas": [0.01, 0.1], "scoring": "roc_auc"},
        {"gammas": [0.01, 0.1], "scoring": make_scorer(matthews_corrcoef)},
        {"kernel": "linear", "class_weight": "balanced"},
    ],
    ids=["few", "many", "race", "roc_auc", "scorer", "linear"],
)
def test_searches_have_the_bits_of_local_ones(client, given):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = DaskSVCCV(Cs=[0.1, 1, 10], **given).fit(X, y)
    assert_same_search(model, SVCCV(Cs=[0.1, 1, 10], **given).fit(X, y))
    if given.get("race"):
        assert model.cv_results_["dropped"].any()


def test_searches_of_regressions_sparse_data_and_functions(client):
    X, y = load_diabetes(return_X_y=True)
    given = {"Cs": [1, 10], "gammas": [0.1, 1, 10, 100], "epsilons": [0.1, 10]}
    assert_same_search(DaskSVRCV(**given).fit(X, y), SVRCV(**given).fit(X, y))
    X, y = load_iris(return_X_y=True)
    given = {"Cs": [1, 10], "gammas": [0.1], "scoring": lambda model, X, y: model.score(X, y)}
    weights = np.arange(len(y)) % 3.0
    assert_same_search(DaskSVCCV(**given).fit(X, y, weights), SVCCV(**given).fit(X, y, weights))
    given = {"Cs": [1, 10], "gammas": [0.1], "probability": True}
    model, local = DaskSVCCV(**given).fit(sp.csr_matrix(X), y), SVCCV(**given).fit(sp.csr_matrix(X), y)
    assert (model.predict_proba(X) == local.predict_proba(X)).all()
    assert isinstance(model.to_local(), SVCCV)
    lazy = DaskSVCCV(Cs=[1, 10], gammas=[0.1]).fit(*(da.from_array(a, chunks=(50, *a.shape[1:])) for a in (X, y)))
    assert_same_search(lazy, SVCCV(Cs=[1, 10], gammas=[0.1]).fit(X, y))


def test_searches_send_the_data_once_to_each_worker(client):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 400))
    y = X[:, 0] > 0

    def sent(dask_worker):
        return dask_worker.transfer_outgoing_bytes_total

    before = sum(client.run(sent).values())
    DaskSVCCV(Cs=[0.1, 1], gammas=[1e-4, 1e-3, 1e-2, 1e-1], cv=3).fit(X, y)
    # Between workers; the first of them has its copy from the driver.
    between = sum(client.run(sent).values()) - before
    assert between > 0
    workers = len(client.nthreads())
    assert workers == 2
    assert X.nbytes + between <= 1.1 * X.nbytes * workers


# The same bits whatever happens.


def test_one_two_and_four_workers_give_the_same_bytes(client, four, data):
    X, y, score = (a[:1000] for a in data)
    dX, dy, ds = (da.from_array(a, chunks=(200, *a.shape[1:])) for a in (X, y, score))
    makers = [
        lambda client: DaskLinearSVC(loss="hinge", client=client).fit(dX, dy),
        lambda client: DaskLinearSVR(client=client, loss="huber", intercept_scaling=float("inf")).fit(dX, ds),
        lambda client: DaskSVC(client=client, block_size=400).fit(dX, dy),
        lambda client: DaskSVC(client=client, approx=50, loss="squared-hinge").fit(dX, dy),
    ]
    with cluster(1) as own, Client(own, set_as_default=False) as one:
        for make in makers:
            first = make(one)
            assert same_bytes(first, make(client)) and same_bytes(first, make(four))


def kill(cluster):
    """Kill a worker process; its nanny starts another one."""
    os.kill(next(iter(cluster.workers.values())).process.process.pid, signal.SIGKILL)


class Killer(threading.Thread):
    """Kills one worker process once so many tasks of a fit have been sent."""

    def __init__(self, cluster, after):
        super().__init__(daemon=True)
        self.cluster, self.after, self.killed = cluster, after, False
        self.sent = threading.Event()

    def count(self, rounds):
        if rounds.count >= self.after:
            self.sent.set()

    def run(self):
        if self.sent.wait(timeout=60):
            kill(self.cluster)
            self.killed = True


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_worker_changes_nothing(data, seed, monkeypatch):
    from margrave.dask import _cluster

    X, y = (a[:1000] for a in data[:2])
    dX, dy = (da.from_array(a, chunks=(200, *a.shape[1:])) for a in (X, y))
    rng = np.random.default_rng(seed)
    makers = [
        lambda: DaskLinearSVC(loss="hinge").fit(dX, dy),
        lambda: DaskSVC(block_size=300).fit(dX, dy),
        lambda: DaskSVCCV(Cs=[0.1, 1, 10], gammas=[0.01, 0.1, 1, 10], race=3.0).fit(X, y),
    ]
    make = makers[seed]
    gather = _cluster.Rounds.gather
    with cluster(2) as own, Client(own):
        counts = []

        def looking(self, futures):
            counts.append(self.count)
            if killer is not None:
                killer.count(self)
            return gather(self, futures)

        killer = None
        monkeypatch.setattr(_cluster.Rounds, "gather", looking)
        expected = make()
        killer = Killer(own, after=int(rng.choice(counts)))
        killer.start()
        found = make()
        killer.join(timeout=60)
        assert killer.killed
    assert same_bytes(expected, found)


# Ends, clients, conventions.


def test_a_time_limit_keeps_the_best_model(client, data, monkeypatch):
    from margrave.dask import _cluster

    X, y, _ = data
    dX, dy = split(X, y)
    # A clock that counts tasks: the limit is reached in the middle of the fit on any machine.
    monkeypatch.setattr(_cluster.Rounds, "seconds", lambda self: float(self.count))
    with pytest.warns(ConvergenceWarning, match="max_seconds"):
        model = DaskLinearSVC(loss="hinge", gap_tol=1e-12, max_seconds=100).fit(dX, dy)
    assert model.certificate_.status == "time_limit"
    assert np.isfinite(model.certificate_.gap)
    with pytest.raises(BudgetError, match="max_seconds"):
        DaskLinearSVC(max_seconds=2).fit(dX, dy)
    with pytest.warns(ConvergenceWarning, match="max_seconds"):
        model = DaskSVC(block_size=100, max_seconds=80).fit(dX, dy)
    assert model.certificate_.status == "time_limit"
    assert np.isfinite(model.certificate_.gap)


def test_a_time_limit_of_a_search_keeps_what_is_finished(client):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = (X**2).sum(axis=1) + rng.normal(size=300) > 3.5
    given = {"Cs": [0.1, 1, 10], "gammas": [0.01, 0.1, 1, 10], "race": 4.0}
    with pytest.raises(BudgetError, match="max_seconds"):
        DaskSVCCV(max_seconds=1e-6, **given).fit(X, y)
    whole = DaskSVCCV(max_seconds=1000, **given).fit(X, y)
    assert np.isfinite(whole.best_score_)


def test_an_interruption_keeps_the_best_model_and_is_raised(client, data, monkeypatch):
    X, y, _ = data
    dX, dy = split(X, y)
    model = DaskLinearSVC(loss="hinge")
    wait, calls = distributed.wait, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return wait(*arguments, **options)

    monkeypatch.setattr(distributed, "wait", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        model.fit(dX, dy)
    assert model.certificate_.status == "interrupted"
    assert not model.certificate_.known
    assert model.score(dX, dy) > 0.8


def test_progress_is_reported(client, data, capsys):
    X, y, _ = data
    model = DaskLinearSVC(verbose=1).fit(*split(X, y))
    assert "DaskLinearSVC · newton" in capsys.readouterr().err
    assert model.history_[-1]["primal"] - model.history_[-1]["dual"] < 1e-3
    DaskSVCCV(Cs=[1], gammas=[0.1], verbose=True).fit(X[:300], y[:300])


def test_an_asynchronous_client(data):
    X, y, _ = data
    expected = LinearSVC().fit(X, y)

    async def run():
        async with LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", asynchronous=True
        ) as own:
            async with Client(own, asynchronous=True) as client:
                dX, dy = split(X, y)
                model = await DaskLinearSVC(client=client).fit(client.persist(dX), client.persist(dy))
                return model

    model = asyncio.run(run())
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)


def test_the_client_is_not_part_of_copies(client, data):
    X, y, _ = data
    model = DaskLinearSVC(client=client).fit(*split(X, y))
    again = pickle.loads(pickle.dumps(model))
    assert again.client is None
    assert same_bytes(model, again)
    assert clone(model).client is client
    local = model.to_local()
    assert type(local) is LinearSVC
    assert (local.predict(X) == again.predict(X)).all()


def test_dataframes_keep_names_index_and_meta(client, data):
    X, y, _ = data
    frame = pd.DataFrame(X, columns=list("abcde"), index=np.arange(len(y)) + 100)
    labels = pd.Series(np.where(y, "yes", "no"), index=frame.index)
    ddf, dy = dd.from_pandas(frame, npartitions=4), dd.from_pandas(labels, npartitions=4)
    model = DaskLinearSVC().fit(ddf, dy)
    assert list(model.feature_names_in_) == list("abcde")
    found = model.predict(ddf)
    assert isinstance(found, dd.Series)
    computed = found.compute()
    assert (computed.index == frame.index).all()
    assert (computed == model.to_local().predict(frame)).all()
    assert model.score(ddf, dy) > 0.85


def test_empty_and_one_class_partitions_and_unknown_sizes(client, data):
    X, y, _ = data
    order = np.argsort(y, kind="stable")
    dX, dy = split(X[order], y[order])
    # Partitions of one class, one of them emptied, sizes unknown.
    kept = da.from_array(np.arange(ROWS) >= CHUNK, chunks=CHUNK)
    model = DaskLinearSVC(gap_tol=1e-9).fit(dX[kept], dy[kept])
    local = LinearSVC(gap_tol=1e-9).fit(X[order][CHUNK:], y[order][CHUNK:])
    np.testing.assert_allclose(model.coef_, local.coef_, atol=1e-5)
    assert DaskSVC().fit(dX[kept], dy[kept]).certificate_.status == "optimal"
    assert len(model.predict(dX[kept]).compute()) == ROWS - CHUNK


def test_bad_input_is_refused_with_a_remedy(client, data):
    X, y, _ = data
    dX, dy = split(X, y)
    with pytest.raises(TypeError, match="X is not a Dask collection but a numpy ndarray: use dask.array.from_array"):
        DaskLinearSVC().fit(X, y)
    with pytest.raises(ValueError, match=r"X.rechunk\(\{1: -1\}\)"):
        DaskLinearSVC().fit(dX.rechunk((CHUNK, 2)), dy)
    with pytest.raises(ValueError, match=r"partition 0 has 600 rows of X but 500 of y.*rechunk"):
        DaskLinearSVC().fit(dX, dy.rechunk(((500, 700, 600, 600, 600),)))
    with pytest.raises(ValueError, match="X has 5 partitions but y has 3"):
        DaskSVC().fit(dX, dy.rechunk(1000))
    short = dy[da.from_array(np.arange(ROWS) != 700, chunks=CHUNK)]
    with pytest.raises(ValueError, match="partition 1 has 600 rows of X but 599 of y"):
        DaskLinearSVC().fit(dX, short)
    with pytest.raises(ValueError, match="only one class: 0"):
        DaskLinearSVC().fit(dX, 0 * dy)
    with pytest.raises(ValueError, match="greater than one; got 1 class"):
        DaskSVC().fit(dX, 0 * dy)
    broken = X.copy()
    broken[1300, 2] = np.nan
    with pytest.raises(ValueError, match="partition 2 of X contains NaN or infinity"):
        DaskLinearSVC().fit(split(broken)[0], dy)
    frame = pd.DataFrame({"a": X[:, 0], "colour": pd.Categorical(np.where(y, "red", "blue"))})
    with pytest.raises(ValueError, match="column 'colour' of X is of type category: encode it"):
        DaskLinearSVC().fit(dd.from_pandas(frame, npartitions=2), dy)
    with pytest.raises(ValueError, match="the loss ramp is not convex"):
        DaskLinearSVC(loss="ramp").fit(dX, dy)
    with pytest.raises(ValueError, match="penalty='l2'"):
        DaskLinearSVC(penalty="l1").fit(dX, dy)
    with pytest.raises(ValueError, match="X has 4 features, but LinearSVC is expecting 5"):
        DaskLinearSVC().fit(dX, dy).predict(dX[:, :4])
    with pytest.raises(ValueError, match="kernel by name"):
        DaskSVC(kernel="precomputed").fit(dX, dy)
    with pytest.raises(ValueError, match="no dual term"):
        DaskSVC(loss="logistic").fit(dX, dy)
    with pytest.raises(TypeError, match="client must be a dask.distributed.Client"):
        DaskLinearSVC(client="tcp://somewhere").fit(dX, dy)
    with pytest.raises(ValueError, match="approx must be a number of centres"):
        DaskKernelRidge(approx=0).fit(dX, dy)


def test_without_a_client_there_is_a_remedy(data, monkeypatch):
    X, y, _ = data

    def none(*_, **__):
        raise ValueError("No clients found")

    monkeypatch.setattr(distributed, "get_client", none)
    with pytest.raises(ValueError, match=r"client = dask.distributed.Client\(\)"):
        DaskLinearSVC().fit(*split(X, y))


def test_lost_scattered_data_is_named(data):
    X, y, _ = data
    with cluster(1) as own, Client(own) as client:
        blocks = client.scatter([X[:1500], X[1500:]])
        targets = client.scatter([y[:1500], y[1500:]])
        model = DaskLinearSVC(client=client)
        first = model.fit(blocks, targets)
        assert first.certificate_.status == "optimal"
        kill(own)
        time.sleep(0.5)
        with pytest.raises(RuntimeError, match="lost with its workers|cancelled"):
            model.fit(blocks, targets)


# Documentation.


@pytest.mark.parametrize("name", ["_kernel", "_linear", "_ridge", "_search"])
def test_examples_of_the_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(f"margrave.dask.{name}"))
    assert found.failed == 0 and found.attempted > 0
