"""TablePreprocessor: what the program's table options do, for DataFrames and arrays."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from margrave import SVC, TablePreprocessor


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
