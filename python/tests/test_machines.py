"""Additions of Margrave: certificates, losses, weights, budgets, interruption, inputs without copies."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import margrave


def test_every_fit_is_certified(blobs, line):
    X, y = blobs
    for model in (margrave.SVC(), margrave.NuSVC(nu=0.3), margrave.LinearSVC(), margrave.OneClassSVM()):
        certificate = model.fit(X, y).certificate_
        assert certificate.status == "optimal"
        assert 0 <= certificate.gap and certificate.relative_gap < 1e-2
        assert certificate.primal >= certificate.dual and certificate["gap"] == certificate.gap
    X, y = line
    for model in (margrave.SVR(), margrave.NuSVR(), margrave.LinearSVR(), margrave.KernelRidge()):
        assert model.fit(X, y).certificate_.relative_gap < 1e-2
    assert margrave.SVC(gap_tol=1e-9).fit(*blobs).certificate_.relative_gap <= 1e-9


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic", "smooth_hinge", "sigmoid:eta=2", "square", "ramp"])
def test_losses_for_classification(blobs, loss):
    X, y = blobs
    model = margrave.SVC(loss=loss).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.certificate_.convex == margrave.losses.Loss(loss).convex


@pytest.mark.parametrize("loss", ["huber:delta=0.5", "absolute", "pinball:tau=0.9", "square", "logcosh"])
def test_losses_for_regression(line, loss):
    X, y = line
    model = margrave.SVR(loss=loss, C=10).fit(X, y)
    assert model.certificate_.convex and model.score(X, y) > 0.3
    if "pinball" in loss:
        # A tenth of the samples lies above the 0.9-quantile; four weights and a bias may each move one sample.
        model = margrave.SVR(loss=loss, C=100, kernel="linear").fit(X, y)
        assert abs((y > model.predict(X) + 1e-3).mean() - 0.1) <= 5 / len(y) + 0.01


class Huberised:
    """A custom loss: quadratic up to 1, then linear."""

    def value(self, y, z):
        r = abs(y - z)
        return 0.5 * r * r if r <= 1 else r - 0.5

    def slope(self, y, z):
        r = z - y
        return max(-1.0, min(1.0, r))


def test_a_loss_in_python_is_the_same_as_the_built_in_one(line):
    X, y = line
    X, y = X[:50], 3 * y[:50]
    own = margrave.SVR(loss=Huberised(), tol=1e-5, kernel="linear").fit(X, y)
    library = margrave.SVR(loss="huber:delta=1", tol=1e-5, kernel="linear").fit(X, y)
    np.testing.assert_allclose(own.predict(X), library.predict(X), atol=1e-3)
    assert own.certificate_.relative_gap < 1e-3

    class Wrong(Huberised):
        def slope(self, y, z):
            return 7.0

    with pytest.raises(margrave.DataError, match="slope"):
        margrave.SVR(loss=Wrong()).fit(X, y)

    class Broken(Huberised):
        def value(self, y, z):
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        margrave.SVR(loss=Broken()).fit(X, y)


def test_losses_as_objects():
    huber = margrave.losses.Loss("huber", delta=0.5)
    assert huber.spec == "huber:delta=0.5" and huber.convex
    np.testing.assert_allclose(huber.value(0.0, [0.25, 2.0]), [0.03125, 0.875])
    np.testing.assert_allclose(huber.slope(0.0, [0.25, 2.0]), [0.25, 0.5])
    assert pickle.loads(pickle.dumps(huber)) == huber
    assert "hinge" in margrave.losses.names() and len(margrave.losses.all()) == 17
    with pytest.raises(margrave.OptionError):
        margrave.losses.Loss("no-such-loss")


@pytest.mark.parametrize(
    "model",
    [
        margrave.SVC(C=3),
        margrave.SVC(class_weight="balanced", probability=True),
        margrave.NuSVC(nu=0.3),
        margrave.SVC(loss="logistic"),
        margrave.LinearSVC(),
        margrave.LinearSVC(loss="hinge", class_weight="balanced"),
        margrave.OneClassSVM(nu=0.3),
    ],
    ids=str,
)
def test_a_weight_of_two_is_a_sample_twice(blobs, model):
    X, y = blobs
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 4, len(y))
    again = np.repeat(np.arange(len(y)), counts)
    model = clone(model).set_params(tol=1e-7)
    weighted = clone(model).fit(X, y, sample_weight=counts)
    repeated = clone(model).fit(X[again], y[again])
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=2e-5)
    if hasattr(weighted, "support_"):
        assert (counts[weighted.support_] > 0).all()


def test_probabilities_agree_with_the_prediction_and_are_repeatable(blobs, iris):
    for X, y in (blobs, iris):
        model = margrave.SVC(probability=True, probability_rule="agree").fit(X, y)
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
        np.testing.assert_array_equal(p, clone(model).set_params(random_state=7).fit(X, y).predict_proba(X))
        np.testing.assert_array_equal(model.predict_log_proba(X), np.log(p))
        assert model.probA_.shape == model.probB_.shape == (len(model.classes_) * (len(model.classes_) - 1) // 2,)
    assert not hasattr(margrave.SVC(), "predict_proba")


def forms(X):
    """X in every accepted form."""
    frozen = X.copy()
    frozen.flags.writeable = False
    wide = sp.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    return [
        np.asfortranarray(X),
        frozen,
        X[::1],
        sp.csr_matrix(X),
        sp.csc_matrix(X),
        sp.coo_matrix(X),
        wide,
        sp.csr_array(X),
    ]


def test_every_form_of_x_gives_the_same_model(blobs, tmp_path):
    X, y = blobs
    want = margrave.SVC(tol=1e-6).fit(X, y).decision_function(X)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for form in [*forms(X), mapped]:
        model = margrave.SVC(tol=1e-6).fit(form, y)
        for other in (form, X, sp.csr_matrix(X)):
            np.testing.assert_allclose(model.decision_function(other), want, atol=1e-6)
    single = margrave.SVC(tol=1e-6).fit(X.astype(np.float32), y)
    assert single.support_vectors_.dtype == np.float32
    np.testing.assert_allclose(single.decision_function(X.astype(np.float32)), want, atol=1e-4)


def test_frames(blobs):
    X, y = blobs
    want = margrave.SVC().fit(X, y).predict(X)
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = margrave.SVC().fit(frame, pd.Series(y))
    np.testing.assert_array_equal(model.predict(frame), want)
    assert list(model.feature_names_in_) == list("abcde")
    pl = pytest.importorskip("polars")
    np.testing.assert_array_equal(margrave.SVC().fit(pl.DataFrame(X), y).predict(pl.DataFrame(X)), want)


def test_nothing_is_copied_from_a_float_array():
    X = np.random.default_rng(0).normal(size=(2000, 5))
    assert margrave._spec.points(X) is X
    single = X.astype(np.float32)
    assert margrave._spec.points(single) is single
    sparse = sp.csr_matrix(X)
    data, indices, _, _ = margrave._spec.points(sparse)
    assert np.shares_memory(data, sparse.data) and np.shares_memory(indices, sparse.indices)


def test_custom_kernels(blobs, iris):
    for X, y in (blobs, iris):
        want = margrave.SVC(kernel="rbf", gamma=0.2, tol=1e-6).fit(X, y)
        calls = []

        def kernel(A, B):
            calls.append((len(A), len(B)))
            return np.exp(-0.2 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

        own = margrave.SVC(kernel=kernel, tol=1e-6).fit(X, y)
        np.testing.assert_allclose(own.decision_function(X), want.decision_function(X), atol=1e-4)
        # Only the support vectors are used to predict.
        assert calls[-1] == (len(X), len(own.support_))
        K = kernel(X, X)
        given = margrave.SVC(kernel="precomputed", tol=1e-6).fit(K, y)
        np.testing.assert_allclose(given.decision_function(K), want.decision_function(X), atol=1e-4)


def test_a_kernel_function_is_called_with_blocks_of_rows(monkeypatch, blobs):
    X, y = blobs
    monkeypatch.setattr(margrave._machine, "BLOCK", 30 * len(X))
    calls = []

    def kernel(A, B):
        calls.append(len(A))
        return A @ B.T

    own = margrave.SVC(kernel=kernel).fit(X, y)
    assert calls == [30] * 5
    np.testing.assert_allclose(
        own.decision_function(X), margrave.SVC(kernel="linear").fit(X, y).decision_function(X), atol=2e-3
    )


def hard(n=3000):
    """Data that keeps a solver busy for a while."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    return X, rng.integers(0, 2, n)


def test_out_of_time_is_a_warning_and_a_usable_model():
    X, y = hard()
    model = margrave.SVC(C=1e4, gamma=0.01, tol=1e-9, max_seconds=0.2)
    begun = time.monotonic()
    with pytest.warns(ConvergenceWarning, match="max_seconds"):
        model.fit(X, y)
    assert time.monotonic() - begun < 3
    assert model.certificate_.status == "time_limit" and model.fit_status_ == 1
    assert model.predict(X).shape == y.shape and len(model.history_) > 0
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        assert margrave.SVC(max_iter=2).fit(X[:500], y[:500]).certificate_.status == "iteration_limit"


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_ctrl_c_stops_within_a_tenth_of_a_second():
    X, y = hard(6000)
    model = margrave.SVC(C=1e5, gamma=0.005, tol=1e-10)
    sent = []

    def press():
        time.sleep(0.6)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    # A shell starts background processes with the signal ignored, and Python then keeps ignoring it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(ConvergenceWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
            thread.start()
            model.fit(X, y)
    finally:
        signal.signal(signal.SIGINT, before)
    # 100 ms to stop, then the certificate of the best model so far.
    assert time.monotonic() - sent[0] < 2.0
    thread.join()
    assert model.certificate_.status == "interrupted"
    assert model.predict(X[:10]).shape == (10,)


def test_other_threads_run_while_it_trains():
    X, y = hard(2500)
    ticks = []
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(1)
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        margrave.SVC(C=1e3, gamma=0.01, tol=1e-8, max_seconds=0.5).fit(X, y)
    done.set()
    thread.join()
    assert len(ticks) > 5


def test_fits_in_several_threads_are_independent(blobs):
    X, y = blobs
    want = margrave.SVC(n_jobs=2).fit(X, y).decision_function(X)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(margrave.SVC(n_jobs=2).fit(X, y).decision_function(X)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_array_equal(result, want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_fit():
    code = """
import os, numpy as np, margrave
X = np.random.default_rng(0).normal(size=(1500, 10)); y = (X[:, 0] > 0).astype(int)
margrave.SVC(n_jobs=2).fit(X, y)
child = os.fork()
if child == 0:
    margrave.SVC(n_jobs=2).fit(X, y)
    os._exit(0)
_, status = os.waitpid(child, 0)
raise SystemExit(status)
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60).returncode == 0


def test_the_number_of_threads_does_not_change_the_result():
    X, y = hard(1500)
    one = margrave.SVC(n_jobs=1).fit(X, y)
    two = margrave.SVC(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)


def test_pickles_have_a_version_and_are_lossless(blobs):
    X, y = blobs
    for model in (margrave.SVC(probability=True), margrave.LinearSVC(), margrave.KernelRidge()):
        model.fit(X, y)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.certificate_ == model.certificate_
    state = model.__getstate__()
    assert state["_margrave_state"] == 1
    state["_margrave_state"] = 99
    with pytest.raises(ValueError, match="newer"):
        margrave.KernelRidge().__setstate__(state)


def test_messages_name_the_parameter(blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="'C' parameter of SVC"):
        margrave.SVC(C=-1).fit(X, y)
    with pytest.warns(UserWarning, match="nu is infeasible"):
        margrave.NuSVC(nu=0.999).fit(X[:21], np.array([0] * 20 + [1]))
    with pytest.raises(margrave.UnsupportedError, match="irwls"):
        margrave.SVC(loss="logistic", solver="decomposition").fit(X, y)
    with pytest.raises(margrave.OptionError, match="cuda:N"):
        margrave.SVC(device="gpu").fit(X, y)
    with pytest.raises(margrave.DeviceError, match="driver|card"):
        margrave.SVC(device="cuda:999").fit(X, y)
    bad = X.copy()
    bad[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        margrave.SVC().fit(bad, y)


def test_svdd_is_a_ball(blobs):
    X, _ = blobs
    model = margrave.OneClassSVM(loss="svdd", kernel="linear", nu=0.1).fit(X)
    assert abs((model.predict(X) == -1).mean() - 0.1) < 0.05
    # The points inside are those nearest to the centre.
    centre = (model.dual_coef_ @ model.support_vectors_).ravel()
    distance = np.linalg.norm(X - centre, axis=1)
    inside = model.predict(X) == 1
    assert distance[inside].max() <= distance[~inside].min() + 1e-2


def test_history_and_verbose(blobs, capsys):
    X, y = blobs
    model = margrave.SVC(verbose=True).fit(X, y)
    assert model.history_ and {"iteration", "seconds", "phase"} <= set(model.history_[0])
    out = capsys.readouterr()
    assert out.out == ""
    step = {"phase": "smo", "iteration": 1200, "seconds": 2.0, "violation": 0.1}
    assert "1,200" in margrave.progress.describe("SVC", step)
