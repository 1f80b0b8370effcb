"""TablePreprocessor: what the program's table options do, for DataFrames and arrays."""

import json
import subprocess
import sys
import warnings

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from margrave import SVC, SVCCV, SVR, TablePreprocessor, evaluate, export_onnx, load, save


def people():
    return pd.DataFrame(
        {
            "age": [20, 22, np.nan, 25, 60, 65, 61, np.nan],
            "colour": ["red", "blue", "red", None, "blue", "green", "blue", "blue"],
            "when": pd.to_datetime(["2024-01-01"] * 4 + ["2024-03-04"] * 4),
            "id": [f"case {i}" for i in range(8)],
        }
    )


@parametrize_with_checks([TablePreprocessor(missing="mean", unknown="ignore")])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_means_medians_and_indicators_are_learnt():
    frame = people()
    for rule, age in [("mean", 253 / 6), ("median", 42.5)]:
        table = TablePreprocessor(missing=rule, drop="id").fit(frame)
        assert list(table.get_feature_names_out()) == ["age", "colour=blue", "colour=green", "colour=red", "when"]
        other = pd.DataFrame({"when": ["1970-01-02"], "colour": [np.nan], "age": [None]})
        np.testing.assert_allclose(table.transform(other), [[age, 1, 0, 0, 1]])
    table = TablePreprocessor(missing="indicator", drop=["id", "when"]).fit(frame)
    names = ["age", "age is missing", "colour=blue", "colour=green", "colour=red", "colour is missing"]
    assert list(table.get_feature_names_out()) == names
    np.testing.assert_allclose(table.transform(frame)[2:4], [[253 / 6, 1, 0, 0, 1, 0], [25, 0, 0, 0, 0, 1]])


def test_missing_and_unknown_are_refused_with_the_remedy():
    frame = people()
    with pytest.raises(ValueError, match=r"row 3 of column 1 \('age'\).*missing='mean'"):
        TablePreprocessor().fit(frame)
    table = TablePreprocessor(missing="mean", drop="id").fit(frame)
    frame.loc[0, "colour"] = "black"
    with pytest.raises(ValueError, match="'black'.*unknown='ignore'"):
        table.transform(frame)
    np.testing.assert_array_equal(clone(table).set_params(unknown="ignore").fit(people()).transform(frame)[0, 1:4], 0)
    with pytest.raises(ValueError, match="dropna"):
        TablePreprocessor(missing="row").fit(frame)
    for bad in [{"missing": "zero"}, {"unknown": "maybe"}, {"dates": "days"}, {"drop": ["nothing"]}, {"drop": [9]}]:
        with pytest.raises(ValueError, match=next(iter(bad))):
            TablePreprocessor(**bad).fit(people())
    with pytest.raises(ValueError, match="age"):
        table.transform(frame.drop(columns="age"))


def test_orders_and_dates():
    frame = pd.DataFrame(
        {"size": ["small", "large", "small"], "when": ["2024-05-17T08:30:36Z", "2024-05-18", "2024-05-19"]}
    )
    table = TablePreprocessor(ordinal={"size": ["small", "medium", "large"]}, dates="parts").fit(frame)
    assert list(table.get_feature_names_out())[1:] == [f"when.{p}" for p in ("year", "month", "day", "weekday", "hour")]
    np.testing.assert_allclose(table.transform(frame)[:2], [[0, 2024, 5, 17, 5, 8.51], [2, 2024, 5, 18, 6, 0]])
    with pytest.raises(ValueError, match="'tiny'"):
        table.transform(frame.assign(size="tiny"))
    with pytest.raises(ValueError, match="is not one"):
        table.transform(frame.assign(when="17.05.2024"))
    words = TablePreprocessor(dates="text", drop=["size"]).fit(frame)
    assert words.transform(frame).shape == (3, 3)


def test_pipelines_are_fitted_inside_folds():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80), "word": rng.choice(["a", "b"], 80)})
    y = np.where(frame.x + (frame.word == "a") > 0.5, "yes", "no")
    frame.loc[::7, "x"] = np.nan
    model = make_pipeline(TablePreprocessor(missing="indicator", unknown="ignore"), StandardScaler(), SVC())
    assert cross_val_score(model, frame, y).mean() > 0.8
    lazy = pl.DataFrame({"word": frame.word.to_list(), "x": frame.x.to_numpy()})
    np.testing.assert_array_equal(model.fit(frame, y).predict(frame), model.predict(lazy))
    array = frame.to_numpy(dtype=object)
    np.testing.assert_array_equal(model.fit(frame, y).predict(frame), model.fit(array, y).predict(array))


def test_words_for_missing_values_are_those_of_the_program():
    frame = pd.DataFrame(
        {"a": ["1.5", "?", "2.5", "NA"], "b": ["x", "n/a", "y", "y"], "zip": ["8001", "8002", "8001", "8003"]}
    )
    table = TablePreprocessor(missing="mean").fit(frame)
    assert list(table.get_feature_names_out()) == ["a", "b=x", "b=y", "zip=8001", "zip=8002", "zip=8003"]
    np.testing.assert_array_equal(table.transform(frame)[:, :3], [[1.5, 1, 0], [2, 0, 1], [2.5, 0, 1], [2, 0, 1]])
    flagged = TablePreprocessor(missing="indicator").fit_transform(frame)
    np.testing.assert_array_equal(flagged[:, 1], [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"row 2 of column 1 \('a'\) has no value"):
        TablePreprocessor().fit(frame)
    # Without numbers around it, a word is a word.
    assert "b=n/a" in TablePreprocessor(drop=["a"]).fit(frame).get_feature_names_out()


def clinic(n=80):
    """Words, an order, dates, missing values and names of rows, sorted by finding."""
    rng = np.random.default_rng(3)
    ill = np.arange(n) >= 3 * n // 4
    frame = pd.DataFrame(
        {
            "id": [f"case {i}" for i in range(n)],
            "age": np.where(np.arange(n) % 9 == 2, np.nan, np.round(rng.normal(50 + 15 * ill, 8), 1)),
            "habit": np.where(np.arange(n) % 11 == 4, None, np.where(ill, "daily", rng.choice(["never", "daily"], n))),
            "size": rng.choice(["small", "medium", "large"], n),
            "visit": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )
    frame["visit"] = frame["visit"].dt.strftime("%Y-%m-%d")
    return frame, np.where(ill, "ill", "well")


def program(*args):
    """The object that a command of the program prints."""
    ran = subprocess.run([sys.executable, "-m", "margrave", *map(str, args), "--json"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    "options",
    [
        ["--missing", "median"],
        ["--missing", "indicator", "--scale", "standard", "--ordinal", "size=small,medium,large"],
        ["--missing", "mean", "--dates", "parts", "--unknown", "ignore", "--kernel", "linear"],
        ["--missing", "row"],
    ],
    ids=lambda options: options[1],
)
def test_models_of_the_program_read_the_same_tables(tmp_path, options):
    frame, y = clinic()
    frame.assign(finding=y).to_csv(tmp_path / "d.csv", index=False)
    program("train", tmp_path / "d.csv", "--drop", "id", "-o", tmp_path / "m", *options)
    model = load(tmp_path / "m")
    rows = frame.dropna() if "row" in options else frame
    rows.to_csv(tmp_path / "new.csv", index=False)
    found = program("predict", tmp_path / "m", tmp_path / "new.csv", "--scores")
    # Other columns may stand between, in any order.
    other = rows[["visit", "size", "id", "habit", "age"]]
    np.testing.assert_allclose(model.decision_function(other), np.ravel(found["scores"]), atol=1e-9)
    assert list(model.predict(other)) == found["predictions"]
    if "row" in options:
        with pytest.raises(ValueError, match="has no value"):
            model.predict(frame)
    unseen = rows.assign(habit="weekly")
    if "ignore" in options:
        model.predict(unseen)
    else:
        with pytest.raises(ValueError, match="weekly"):
            model.predict(unseen)
    # It is a pipeline like others: it can be fitted again.
    assert (
        np.mean(clone(model).set_params(table__missing="mean").fit(frame.drop(columns="id"), y).predict(frame) == y)
        > 0.7
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"missing": "median", "unknown": "ignore"},
        {"missing": "indicator", "dates": "parts", "ordinal": {"size": ["small", "medium", "large"]}},
        {"missing": "mean", "dates": "text"},
    ],
    ids=lambda settings: settings["missing"],
)
def test_pipelines_with_tables_are_saved_exported_and_judged(tmp_path, settings):
    frame, y = clinic()
    table = TablePreprocessor(drop=["id"], **settings)
    model = make_pipeline(table, StandardScaler(), SVC(probability=True)).fit(frame, y)
    save(model, tmp_path / "m")
    scores = model.decision_function(frame)
    np.testing.assert_allclose(load(tmp_path / "m").decision_function(frame), scores, atol=1e-9)
    frame.to_csv(tmp_path / "d.csv", index=False)
    found = program("predict", tmp_path / "m", tmp_path / "d.csv", "--scores")
    np.testing.assert_allclose(np.ravel(found["scores"]), scores, atol=1e-9)
    # The preprocessor stays outside an ONNX model, whose inputs are its features.
    session = onnxruntime.InferenceSession(export_onnx(model, columns=True), providers=["CPUExecutionProvider"])
    features = model[0].transform(frame)
    assert [one.name for one in session.get_inputs()] == list(model[0].get_feature_names_out())
    inputs = {one.name: features[:, [at]] for at, one in enumerate(session.get_inputs())}
    np.testing.assert_allclose(np.ravel(session.run(["scores"], inputs)[0]), scores, atol=1e-9)
    with pytest.raises(TypeError, match="TablePreprocessor as the first step"):
        export_onnx(make_pipeline(StandardScaler(), TablePreprocessor(), SVC()).fit(features, y))


def test_reports_of_tables_say_what_was_done_to_them(tmp_path):
    frame, y = clinic()
    found = evaluate(make_pipeline(TablePreprocessor(missing="median", drop=["id"]), StandardScaler(), SVC()), frame, y)
    assert found.steps == ["TablePreprocessor(drop=['id'], missing='median')", "StandardScaler()"]
    assert found.as_dict()["steps"] == found.steps
    frame.assign(finding=y).to_csv(tmp_path / "d.csv", index=False)
    command = ["train", tmp_path / "d.csv", "--drop", "id", "--missing", "median", "-o", tmp_path / "m"]
    assert found.fingerprint == program(*command, "--report", tmp_path / "r.html")["report"]["fingerprint"]
    found.save(tmp_path / "py.html")
    page = (tmp_path / "py.html").read_text()
    assert "missing=&#x27;median&#x27;" in page and found.fingerprint in page and '<table class="card">' in page
    with pytest.raises(ValueError, match=r"report.txt: the name of a report must end in \.html or \.json"):
        found.save(tmp_path / "report.txt")
    with pytest.raises(FileNotFoundError, match="nosuch does not exist: create it"):
        found.save(tmp_path / "nosuch" / "r.html")
    assert not (tmp_path / "report.txt").exists()


def test_names_of_rows_and_words_outside_an_order_are_noticed():
    frame, _ = clinic()
    with pytest.warns(UserWarning, match=r"column 1 \('id'\) has 80 different texts in 80 rows.*drop=\['id'\]"):
        TablePreprocessor(missing="mean").fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TablePreprocessor(missing="mean", drop=["id"]).fit(frame)
    with pytest.raises(ValueError, match="'large'.*add it to ordinal"):
        TablePreprocessor(missing="mean", drop=["id"], ordinal={"size": ["small", "medium"]}).fit(frame)


def test_parameters_out_of_range_are_named_as_python_writes_them(blobs, line):
    X, y = blobs
    with pytest.raises(ValueError, match=r"class_weight: the weight of class '1' is negative \(-2\)"):
        SVC(class_weight={1: -2}).fit(X, y)
    with pytest.raises(ValueError, match="scoring=r2 is not allowed: it is for numbers"):
        SVCCV(scoring="r2").fit(X, y)
    with pytest.raises(ValueError, match="threshold=recall=2 is not allowed"):
        SVC(threshold="recall=2").fit(X, y)
    with pytest.raises(ValueError, match="loss=nonsense is not allowed"):
        SVR(loss="nonsense").fit(*line)
    model = SVCCV(Cs=[1, 10], gammas=[0.1, 1]).fit(X, y)
    assert model.best_params_ == {"C": model.C_, "gamma": model.gamma_}
