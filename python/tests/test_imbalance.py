"""Rare classes: probabilities that estimate frequencies, scores to choose by, and what both say about it."""

import pickle
import warnings

import numpy as np
import pytest
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
    assert agree.predict_proba(A)[:, 1].mean() > p.mean() + 0.03
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
