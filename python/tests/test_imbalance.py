"""Rare classes: probabilities that estimate frequencies, scores to choose by, and what both say about it."""

import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification, make_regression
from sklearn.metrics import (
    balanced_accuracy_score,
    fbeta_score,
    get_scorer,
    log_loss,
    make_scorer,
    roc_auc_score,
)
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.svm import SVC as PeerSVC
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)

import margrave
from margrave import SVC, SVCCV, LinearSVC, NuSVC, load, save


def rare(rows, seed=1):
    """A tenth of the rows is of class 1."""
    X, y = make_classification(rows, 5, n_informative=3, weights=[0.9], flip_y=0.03, class_sep=0.9, random_state=seed)
    return X, y


def drawn(share, seed=0, rows=500, test=4000, classes=2):
    X, y = make_classification(
        rows + test,
        8,
        n_informative=5,
        weights=None if classes > 2 else [share],
        n_classes=classes,
        class_sep=0.8,
        flip_y=0.02,
        random_state=seed,
    )
    return X[:rows], y[:rows], X[rows:], y[rows:]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
@pytest.mark.parametrize("weight", [None, "balanced"])
def test_log_loss_is_that_of_scikit_learns_sigmoid(share, weight):
    ours, theirs = [], []
    for seed in range(3):
        X, y, A, b = drawn(share, seed)
        model = margrave.SVC(probability=True, class_weight=weight).fit(X, y)
        assert weight is None or share == 0.5 or model.probability_rule_ == "free"
        ours.append(log_loss(b, model.predict_proba(A)))
        peer = CalibratedClassifierCV(PeerSVC(class_weight=weight), method="sigmoid", ensemble=False).fit(X, y)
        theirs.append(log_loss(b, peer.predict_proba(A)))
    # Three seeds of 500 rows: the folds of the peer alone move its mean by 2 %; the bench has the full grid.
    assert np.mean(ours) <= 1.03 * np.mean(theirs)


@pytest.mark.parametrize("rule", ["auto", "agree", "free"])
@pytest.mark.parametrize("weight", [None, "balanced"])
def test_weights_are_copies_for_probabilities_too(rule, weight):
    model = margrave.SVC(probability=True, probability_rule=rule, class_weight=weight)
    check_sample_weight_equivalence_on_dense_data("SVC", model)
    check_sample_weight_equivalence_on_sparse_data("SVC", model)


def test_rules_say_what_they_do():
    X, y, A, _ = drawn(0.9)
    model = margrave.SVC(probability=True, class_weight="balanced").fit(X, y)
    assert (model.probability_rule_, model.probability_reason_) == ("free", "weighted")
    p = model.predict_proba(A)[:, 1]
    assert ((p > model.probability_threshold_) == (model.predict(A) == 1)).all()
    # Left alone, the mean of the probabilities is the share of the class.
    assert abs(p.mean() - 0.1) < 0.03
    agree = margrave.SVC(probability=True, class_weight="balanced", probability_rule="agree").fit(X, y)
    assert agree.probability_threshold_ == 0.5 and agree.probability_reason_ == "asked"
    assert ((agree.predict_proba(A)[:, 1] > 0.5) == (agree.predict(A) == 1)).all()
    assert agree.predict_proba(A)[:, 1].mean() > p.mean() + 0.02
    back = pickle.loads(pickle.dumps(agree))
    np.testing.assert_array_equal(back.predict_proba(A), agree.predict_proba(A))
    with pytest.raises(ValueError, match="probability_rule"):
        margrave.SVC(probability_rule="platt").fit(X, y)


def test_several_classes_follow_the_rule_as_well():
    X, y, A, b = drawn(None, classes=3)
    keep = (y == 0) | (np.arange(len(y)) % 5 == 0)
    X, y = X[keep], y[keep]
    free = margrave.SVC(probability=True, class_weight="balanced").fit(X, y)
    agree = margrave.SVC(probability=True, class_weight="balanced", probability_rule="agree").fit(X, y)
    assert free.probability_rule_ == "free" and free.probability_threshold_ is None
    assert (agree.predict_proba(A).argmax(1) == agree.predict(A)).all()
    np.testing.assert_allclose(free.predict_proba(A).sum(1), 1)
    rare = y.size / np.bincount(y)
    inside = np.bincount(y) / y.size
    # Weighted back to the shares of the training data.
    weights = (inside / np.bincount(b) * b.size)[b]
    assert rare.max() > 4
    assert log_loss(b, free.predict_proba(A), sample_weight=weights) < log_loss(
        b, agree.predict_proba(A), sample_weight=weights
    )


def test_files_keep_probabilities(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y, A, _ = drawn(0.7)
    for settings in ({}, {"class_weight": "balanced"}, {"probability_rule": "agree", "class_weight": "balanced"}):
        model = margrave.SVC(probability=True, **settings).fit(X, y)
        session = onnxruntime.InferenceSession(margrave.export_onnx(model))
        label, _, p = session.run(None, {"X": A})
        np.testing.assert_array_equal(label, model.predict(A))
        np.testing.assert_allclose(p, model.predict_proba(A), atol=1e-9)
    with pytest.raises(ValueError, match="probability_rule='free'|probability_rule=\"free\""):
        margrave.to_libsvm(model)
    free = margrave.SVC(probability=True, probability_rule="free").fit(X, y)
    read = margrave.from_libsvm(margrave.to_libsvm(free).encode())
    np.testing.assert_allclose(read.predict_proba(A), free.predict_proba(A), atol=1e-9)
    margrave.save(model, tmp_path / "m.model")
    assert (tmp_path / "m.model").stat().st_size > 0


GRID = {"Cs": [1.0, 3.0, 10.0], "gammas": [0.01, 0.03, 0.1, 0.3]}
PLAIN = {"C": GRID["Cs"], "gamma": GRID["gammas"]}


@pytest.mark.parametrize(
    "scoring",
    [
        "accuracy",
        "balanced_accuracy",
        "f1",
        "f1_macro",
        "roc_auc",
        "average_precision",
        "matthews_corrcoef",
        make_scorer(fbeta_score, beta=2.0, zero_division=0),
        "jaccard",
        lambda model, X, y: balanced_accuracy_score(y, model.predict(X)),
    ],
)
def test_classifiers_are_chosen_as_by_scikit_learn(scoring):
    X, y, _, _ = drawn(0.85, rows=200)
    cv = StratifiedKFold(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = margrave.SVCCV(**GRID, cv=cv, scoring=scoring, class_weight={1: 3}, tol=1e-5).fit(X, y)
        theirs = GridSearchCV(PeerSVC(class_weight={1: 3}, tol=1e-5), PLAIN, cv=cv, scoring=scoring).fit(X, y)
    expected = {
        (p["C"], p["gamma"]): s for p, s in zip(theirs.cv_results_["params"], theirs.cv_results_["mean_test_score"])
    }
    found = {(p["C"], p["gamma"]): s for p, s in zip(ours.cv_results_["params"], ours.cv_results_["mean_test_score"])}
    assert expected.keys() == found.keys()
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), atol=2e-3)
    assert ours.best_score_ == max(found.values())


def test_metrics_are_those_of_scikit_learn():
    """Every score of the engine on folds that are refitted and judged by scikit-learn's own function."""
    X, y, _, _ = drawn(0.8, rows=240)
    cv = StratifiedKFold(3)
    for name in (
        "accuracy",
        "balanced_accuracy",
        "f1",
        "f1_macro",
        "roc_auc",
        "average_precision",
        "matthews_corrcoef",
    ):
        ours = margrave.SVCCV(Cs=[1.0], gammas=[0.1], cv=cv, scoring=name, class_weight={0: 1, 1: 2}).fit(X, y)
        model = margrave.SVC(C=1.0, gamma=0.1, class_weight={0: 1, 1: 2})
        expected = cross_val_score(model, X, y, cv=cv, scoring=name)
        found = [ours.cv_results_[f"split{at}_test_score"][0] for at in range(3)]
        np.testing.assert_allclose(found, expected, atol=2e-3, err_msg=name)
    R, r = make_regression(150, 4, noise=10.0, random_state=0)
    r = r / r.std()
    plain = {
        "neg_mean_squared_error",
        "neg_root_mean_squared_error",
        "neg_mean_absolute_error",
        "r2",
        "explained_variance",
    }
    for name in sorted(plain):
        ours = margrave.SVRCV(Cs=[10.0], gammas=[0.05], cv=3, scoring=name, tol=1e-6).fit(R, r)
        expected = cross_val_score(margrave.SVR(C=10.0, gamma=0.05, tol=1e-6), R, r, cv=3, scoring=name)
        found = [ours.cv_results_[f"split{at}_test_score"][0] for at in range(3)]
        np.testing.assert_allclose(found, expected, rtol=1e-4, err_msg=name)
    pinball = margrave.SVRCV(Cs=[10.0], gammas=[0.05], cv=3, scoring="pinball:0.9").fit(R, r)
    assert pinball.best_score_ < 0


def test_probabilities_are_scored_out_of_fold():
    X, y, A, b = drawn(0.9, rows=400)
    for name in ("neg_log_loss", "neg_brier_score"):
        ours = margrave.SVCCV(**GRID, scoring=name, probability=True).fit(X, y)
        best = get_scorer(name)(ours, A, b)
        assert abs(ours.best_score_ - best) < 0.25 * abs(best)
        assert not ours.cv_results_["dropped"].any()
    # A scorer that needs predict_proba gets fitted models.
    scorer = make_scorer(log_loss, response_method="predict_proba", greater_is_better=False)
    slow = margrave.SVCCV(Cs=[1.0, 10.0], gammas=[0.1], cv=3, scoring=scorer, class_weight="balanced").fit(X, y)
    fast = margrave.SVCCV(Cs=[1.0, 10.0], gammas=[0.1], cv=3, scoring="neg_log_loss", class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(slow.cv_results_["mean_test_score"], fast.cv_results_["mean_test_score"], rtol=0.15)


def test_a_better_score_than_accuracy_is_had():
    X, y, A, b = drawn(0.89, seed=3, rows=400)
    with pytest.warns(UserWarning, match="accuracy hardly counts the rare class"):
        plain = margrave.SVCCV(**GRID).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        balanced = margrave.SVCCV(**GRID, scoring="balanced_accuracy", class_weight="balanced", race=True).fit(X, y)
        margrave.SVCCV(**GRID, scoring="accuracy").fit(X, y)
    found, usual = (balanced_accuracy_score(b, model.predict(A)) for model in (balanced, plain))
    assert found > usual + 0.05
    assert roc_auc_score(b, balanced.decision_function(A)) > 0.7


def test_weights_count_in_scores():
    X, y, _, _ = drawn(0.7, rows=120)
    weights = np.random.default_rng(0).integers(1, 4, len(y))
    folds = np.arange(len(y)) % 3
    cv = [(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(3)]
    many = np.repeat(np.arange(len(y)), weights)
    again = [(np.flatnonzero(folds[many] != f), np.flatnonzero(folds[many] == f)) for f in range(3)]
    for scoring in ("f1", "roc_auc", "neg_log_loss", "jaccard"):
        a = margrave.SVCCV(**GRID, cv=cv, scoring=scoring).fit(X, y, sample_weight=weights)
        b = margrave.SVCCV(**GRID, cv=again, scoring=scoring).fit(X[many], y[many])
        np.testing.assert_allclose(
            a.cv_results_["mean_test_score"], b.cv_results_["mean_test_score"], atol=2e-3, err_msg=str(scoring)
        )


@pytest.mark.parametrize("scoring", ["r2", "nonsense", "pinball:7", 3])
def test_bad_scores_are_named(scoring):
    X, y, _, _ = drawn(0.5, rows=60)
    with pytest.raises(ValueError, match="scor"):
        margrave.SVCCV(**GRID, scoring=scoring).fit(X, y)


@pytest.mark.parametrize("rule", ["max-f1", "recall=0.9", "cost=FP:1,FN:10"])
@pytest.mark.parametrize("model", [SVC(C=5), SVC(C=5, probability=True), NuSVC(nu=0.1), LinearSVC()])
def test_a_threshold_is_chosen_on_left_out_scores_and_kept(tmp_path, rule, model):
    X, y = rare(300)
    plain = clone(model).fit(X, y)
    fitted = clone(model).set_params(threshold=rule).fit(X, y)
    # Scores stay, and with them the certificate; predictions are those above the threshold.
    np.testing.assert_array_equal(fitted.decision_function(X), plain.decision_function(X))
    assert fitted.certificate_ == plain.certificate_ and plain.threshold_ == 0.0
    assert (fitted.predict(X) == fitted.classes_[(fitted.decision_function(X) > fitted.threshold_).astype(int)]).all()
    if rule == "recall=0.9":
        assert fitted.threshold_recall_ >= 0.9
        assert (fitted.predict(X) == 1).sum() > (plain.predict(X) == 1).sum()
    assert not hasattr(plain, "threshold_recall_")
    for again in (pickle.loads(pickle.dumps(fitted)), _saved(fitted, tmp_path)):
        assert (again.predict(X) == fitted.predict(X)).all() and again.threshold_ == fitted.threshold_
        assert again.threshold == rule
    # A fit without it forgets it.
    assert fitted.set_params(threshold=None).fit(X, y).threshold_ == 0.0
    assert not hasattr(fitted, "threshold_recall_")


def test_the_program_chooses_the_same_threshold(tmp_path):
    X, y = rare(300)
    np.savetxt(tmp_path / "d.csv", np.column_stack([X, y]), delimiter=",", fmt="%.17g")
    options = ["--header", "no", "-C", "5", "--gamma", "0.5", "--threshold", "max-f1", "--tol", "1e-9", "--json"]
    command = [sys.executable, "-m", "margrave", "train", str(tmp_path / "d.csv"), "-o", str(tmp_path / "m"), *options]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["threshold"]
    found = SVC(C=5, gamma=0.5, threshold="max-f1", tol=1e-9).fit(X, y)
    assert found.threshold_ == pytest.approx(said["score"], abs=1e-6)
    assert found.threshold_recall_ == pytest.approx(said["recall"])
    # The program reads what Python saved.
    save(found, tmp_path / "p")
    shown = subprocess.run(
        [sys.executable, "-m", "margrave", "inspect", str(tmp_path / "p")], capture_output=True, text=True
    )
    assert "max-f1" in shown.stdout


@pytest.mark.parametrize("bad", ["f1", "recall=0", "recall=1.5", "cost=FP:1", "cost=FP:0,FN:0", ""])
def test_a_wrong_threshold_is_refused(bad):
    X, y = rare(60)
    for model in (SVC(threshold=bad), LinearSVC(threshold=bad), SVCCV(threshold=bad, Cs=[1], gammas=[1])):
        with pytest.raises(ValueError, match="threshold"):
            model.fit(X, y)
        assert not hasattr(model, "dual_coef_") and not hasattr(model, "coef_")


def test_a_threshold_is_between_two_classes(iris):
    for model in (SVC(threshold="max-f1"), LinearSVC(threshold="max-f1")):
        with pytest.raises(ValueError, match="two"):
            model.fit(*iris)


def test_a_search_chooses_the_threshold_of_the_best():
    X, y = rare(200)
    found = SVCCV(Cs=[1, 10], gammas=[0.1, 1], scoring="average_precision", threshold="recall=0.9").fit(X, y)
    assert found.threshold_recall_ >= 0.9 and found.threshold_ < 0


def _saved(model, folder):
    save(model, folder / "m")
    return load(folder / "m")


@pytest.mark.parametrize("seed", range(6))
def test_tiny_nu_machines_have_probabilities(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(15, 2)), np.r_[[0, 1, 2], rng.integers(0, 3, 12)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = NuSVC(probability=True).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
