"""What the program can do, from Python: model files, warm starts, intervals, rules for γ, pipelines, progress."""

import io
import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_regression
from sklearn.feature_selection import SelectKBest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC as PlainSVC

import margrave

MODELS = [
    margrave.SVC(C=3, gamma="median"),
    margrave.SVC(kernel="poly", coef0=1.0, degree=2, probability=True),
    margrave.NuSVC(nu=0.3),
    margrave.SVC(loss="logistic"),
    margrave.LinearSVC(C=0.5),
    margrave.LinearSVC(loss="logistic", fit_intercept=False),
]
REGRESSIONS = [
    margrave.SVR(C=2, epsilon=0.05),
    margrave.SVR(loss="huber:delta=0.3", intervals=True),
    margrave.NuSVR(nu=0.4, C=2),
    margrave.LinearSVR(epsilon=0.01),
    margrave.KernelRidge(alpha=0.3, kernel="rbf", gamma=0.2),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers_come_back_from_native_files(iris, tmp_path, model, classes):
    X, y = iris
    X, y = X[y < classes], np.array(["a", "b", "c"])[y[y < classes]]
    model = model.fit(X, y)
    margrave.save(model, tmp_path / "one.model")
    again = margrave.load(tmp_path / "one.model")
    assert type(again) is type(model) and list(again.classes_) == list(model.classes_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-12)
    if getattr(model, "probability", False):
        np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-12)
    assert again.C == model.C if hasattr(model, "C") else again.nu == model.nu


@pytest.mark.parametrize("model", REGRESSIONS, ids=str)
def test_regressions_come_back_from_native_files(line, tmp_path, model):
    X, y = line
    model = model.fit(X, y)
    margrave.save(model, tmp_path / "one.model")
    again = margrave.load((tmp_path / "one.model").read_bytes())
    assert type(again) is type(model)
    np.testing.assert_allclose(again.predict(X), model.predict(X), atol=1e-12)


def test_novelty_and_svdd_come_back_from_native_files(blobs, tmp_path):
    X, _ = blobs
    for loss in (None, "svdd"):
        model = margrave.OneClassSVM(nu=0.2, loss=loss).fit(X)
        margrave.save(model, tmp_path / "one.model")
        again = margrave.load(tmp_path / "one.model")
        assert again.loss == loss
        np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-12)


def test_svdd_and_one_class_agree_for_a_kernel_of_constant_diagonal(blobs):
    X, _ = blobs
    ball = margrave.OneClassSVM(nu=0.3, loss="svdd", tol=1e-6).fit(X).predict(X)
    plane = margrave.OneClassSVM(nu=0.3, tol=1e-6).fit(X).predict(X)
    assert (ball == plane).mean() > 0.97 and abs((ball < 0).mean() - 0.3) < 0.05


def test_models_of_the_program_are_read(blobs, tmp_path):
    X, y = blobs
    table = pd.DataFrame(X, columns=list("abcde")).assign(label=y)
    table.to_csv(tmp_path / "data.csv", index=False)
    command = [sys.executable, "-m", "margrave", "train", str(tmp_path / "data.csv"), "--scale", "standard", "-o"]
    subprocess.run([*command, str(tmp_path / "m"), "--quiet"], check=True)
    model = margrave.load(tmp_path / "m")
    twin = make_pipeline(StandardScaler(), margrave.SVC()).fit(X, y)
    assert list(model.feature_names_in_) == list("abcde")
    np.testing.assert_allclose(model.decision_function(table[list("abcde")]), twin.decision_function(X), atol=1e-2)
    assert model[-1].certificate_.status == "optimal" and model[-1].certificate_.relative_gap < 1e-2


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match="give a model written by 'margrave train'"):
        margrave.load(b"no model")
    with pytest.raises(FileNotFoundError):
        margrave.load(tmp_path / "nothing")


@pytest.mark.parametrize("model", [margrave.SVC(), margrave.SVR(), margrave.OneClassSVM(nu=0.2)], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_warm_start_takes_fewer_steps_and_gives_the_same(iris, model, sparse):
    X, y = iris
    X = sp.csr_matrix(X) if sparse else X
    score = "predict" if isinstance(model, margrave.SVR) else "decision_function"
    model = model.set_params(warm_start=True).fit(X, y)
    cold, scores = np.sum(model.n_iter_), getattr(model, score)(X)
    model.fit(X, y)
    assert np.sum(model.n_iter_) < cold and model.certificate_.status == "optimal"
    np.testing.assert_allclose(getattr(model, score)(X), scores, atol=2e-2)
    # Other parameters, other rows, other classes: the start is adapted, or not used.
    if hasattr(model, "C"):
        model.set_params(C=10).fit(X, y)
        fresh = type(model)(C=10).fit(X, y)
        np.testing.assert_allclose(getattr(model, score)(X), getattr(fresh, score)(X), atol=2e-2)
    model.fit(X[::-1], y[::-1])
    model.fit(X[:100], y[:100])
    assert model.certificate_.status == "optimal"


def test_intervals_cover_new_samples():
    X, y = make_regression(400, 5, noise=20, random_state=0)
    y = y / y.std()
    model = margrave.SVR(C=10, intervals=True).fit(X[:200], y[:200])
    values, wide = model.predict(X[200:], return_interval=0.9)
    _, narrow = model.predict(X[200:], return_interval=0.5)
    np.testing.assert_allclose(values, model.predict(X[200:]))
    inside = (y[200:] >= wide[:, 0]) & (y[200:] <= wide[:, 1])
    assert 0.83 <= inside.mean() <= 0.97 and (narrow[:, 1] < wide[:, 1]).all()
    np.testing.assert_allclose(wide.mean(axis=1), values)
    with pytest.raises(ValueError, match=r"coverage between 0.5 and 0.99, but it is 1.5"):
        model.predict(X, return_interval=1.5)
    with pytest.raises(ValueError, match="set intervals=True"):
        margrave.SVR().fit(X, y).predict(X, return_interval=0.9)


def test_gamma_by_the_median_distance(blobs):
    X, y = blobs
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)[np.triu_indices(len(X), 1)]
    model = margrave.SVC(gamma="median").fit(X, y)
    assert model._gamma == pytest.approx(1 / np.median(squared), rel=1e-3)
    assert margrave.SVC(gamma="median").fit(sp.csr_matrix(X), y)._gamma == pytest.approx(model._gamma, rel=1e-9)
    with pytest.raises(ValueError, match="gamma"):
        margrave.SVC(gamma="mean").fit(X, y)


SCALERS = [StandardScaler(), MinMaxScaler((-1, 2)), MaxAbsScaler(), RobustScaler(), StandardScaler(with_mean=False)]


@pytest.mark.parametrize("scaler", SCALERS, ids=str)
def test_pipelines_become_onnx_models(blobs, scaler):
    X, y = blobs
    pipe = make_pipeline(make_pipeline(scaler, "passthrough"), MinMaxScaler(), margrave.SVC()).fit(X, y)
    content = margrave.export_onnx(pipe, metadata={"author": "me"})
    session = onnxruntime.InferenceSession(content)
    label, scores = session.run(["label", "scores"], {"X": X})
    np.testing.assert_array_equal(label, pipe.predict(X))
    np.testing.assert_allclose(scores.ravel(), pipe.decision_function(X), atol=1e-9)
    found = session.get_modelmeta().custom_metadata_map
    assert found["author"] == "me" and found["estimator"] == "SVC" and found["kernel"] == "rbf"
    assert found["status"] == "optimal" and json.loads(found["classes"]) == [0, 1]


def test_onnx_inputs_have_the_names_of_the_columns(blobs):
    X, y = blobs
    table = pd.DataFrame(X, columns=["a", "b", "c", "d", "e 1"])
    pipe = make_pipeline(StandardScaler(), margrave.SVC()).fit(table, y)
    content = margrave.export_onnx(pipe, columns=True)
    onnx.checker.check_model(onnx.load_from_string(content))
    session = onnxruntime.InferenceSession(content)
    assert [one.name for one in session.get_inputs()] == list(table.columns)
    label = session.run(["label"], {name: table[[name]].to_numpy() for name in table.columns})[0]
    np.testing.assert_array_equal(label, pipe.predict(table))
    assert json.loads(session.get_modelmeta().custom_metadata_map["feature_names"]) == list(table.columns)
    model = margrave.SVC().fit(X, y)
    with pytest.raises(ValueError, match="fit with a DataFrame, or give the names"):
        margrave.export_onnx(model, columns=True)
    with pytest.raises(ValueError, match="names of the features"):
        margrave.export_onnx(model, columns=["a", "b"])
    with pytest.raises(ValueError, match="different names: 'a'"):
        margrave.export_onnx(model, columns=["a", "b", "a", "c", "d"])


def test_pipelines_are_saved_with_their_scaling(blobs, tmp_path):
    X, y = blobs
    pipe = make_pipeline(MinMaxScaler(), margrave.SVC()).fit(X, y)
    margrave.save(pipe, tmp_path / "m")
    again = margrave.load(tmp_path / "m")
    np.testing.assert_allclose(again.decision_function(X), pipe.decision_function(X), atol=1e-9)
    with pytest.raises(TypeError, match="the step 'selectkbest' of the pipeline, a SelectKBest, cannot be part"):
        margrave.save(make_pipeline(SelectKBest(k=3), margrave.SVC()).fit(X, y), tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("last", [margrave.SVC(), PlainSVC(), margrave.LinearSVC()], ids=str)
def test_pipelines_are_certified(blobs, last):
    X, y = blobs
    pipe = make_pipeline(StandardScaler(), SelectKBest(k=3), last).fit(X, y)
    found = margrave.certify(pipe, X, y)
    assert found.relative_gap < 1e-2
    assert found.primal == pytest.approx(margrave.certify(pipe[-1], pipe[:-1].transform(X), y).primal)


def test_the_plots_need_no_second_import():
    code = "import margrave; assert 'margrave.plot' not in __import__('sys').modules; margrave.plot.boundary"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_verbose_writes_lines_where_there_is_no_terminal(blobs, capsys):
    X, y = blobs
    margrave.SVC(verbose=True).fit(X, y)
    found = capsys.readouterr().err.splitlines()
    assert len(found) == 1 and found[0].startswith("SVC · ") and found[0].endswith(" s")
    margrave.SVCCV(Cs=[1, 10], gammas=[0.1], verbose=True).fit(X, y)
    found = capsys.readouterr().err.splitlines()
    assert [line.split(" · ")[0] for line in found] == ["SVCCV search", "SVCCV"], found
    margrave.SVC().fit(X, y)
    assert capsys.readouterr().err == ""


def test_lines_of_a_log_become_rare(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(margrave.progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    bar = margrave.progress.Bar("SVC", stream)
    for tenth in range(300):
        now[0] = tenth / 10
        bar({"phase": "pairs", "iteration": tenth, "seconds": now[0]})
    bar.close()
    seconds = [float(line.split(" · ")[-1].split()[0]) for line in stream.getvalue().splitlines()]
    assert seconds == [0.5, 1.5, 3.5, 7.5, 15.5, 29.9]


def test_the_last_line_says_that_the_fit_is_done(monkeypatch):
    stream = io.StringIO()
    bar = margrave.progress.Bar("SVC", stream=stream)
    bar({"phase": "pairs", "iteration": 3, "seconds": 0.1, "violation": 0.5})
    bar({"phase": "certify", "iteration": 4, "seconds": 0.2, "violation": 0.001})
    bar.close()
    bar({"phase": "tune", "iteration": 0, "seconds": 0.3, "fraction": 1.0})
    bar.close()
    done = ["SVC · done · step 4 · violation 1.0e-03 · 0.2 s", f"SVC · done · {'█' * 20} 100 % · 0.3 s"]
    assert stream.getvalue().splitlines() == done


def test_a_certificate_is_a_table_in_a_notebook(blobs):
    text = margrave.SVC().fit(*blobs).certificate_._repr_html_()
    assert text.startswith("<table>") and "relative gap" in text and "optimal" in text


def test_several_targets_with_any_loss(line):
    X, y = line
    Y = np.column_stack([y, -2 * y])
    model = margrave.KernelRidge(alpha=[0.1, 0.2], kernel="rbf", loss="huber:delta=0.1").fit(X, Y)
    for at, alpha in enumerate([0.1, 0.2]):
        alone = margrave.KernelRidge(alpha=alpha, kernel="rbf", loss="huber:delta=0.1").fit(X, Y[:, at])
        np.testing.assert_allclose(model.predict(X)[:, at], alone.predict(X), atol=1e-9)
    assert len(model.certificate_.machines) == 2 and model.certificate_.status == "optimal"
