"""What is kept between calls, and the short way around validation."""

import copy
import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.svm
from sklearn.datasets import make_classification

import margrave
from margrave._prepare import is_plain

X, Y = make_classification(n_samples=80, n_features=4, n_informative=3, n_redundant=0, n_classes=3, random_state=5)


def kept(model):
    """The engine's model of a fitted estimator, or None if there is none yet."""
    entry = model._prepared._kept
    return None if entry is None else entry[1]


def test_the_engine_keeps_the_model_until_an_attribute_is_replaced():
    model = margrave.SVC().fit(X, Y)
    assert kept(model) is None
    scores = model.decision_function(X[:3])
    first = kept(model)
    assert first is not None
    assert np.array_equal(model.decision_function(X[:3]), scores)
    assert kept(model) is first
    model._intercept_ = model._intercept_ + 10.0
    moved = model.decision_function(X[:3])
    assert kept(model) is not first
    assert not np.allclose(moved, scores)
    model.support_vectors_ = model.support_vectors_ + 1.0
    assert not np.allclose(model.decision_function(X[:3]), moved)
    again = kept(model)
    model.fit(X[:, :2], Y)
    assert kept(model) is None
    model.predict(X[:1, :2])
    assert kept(model) is not again


def test_parameters_of_the_kernel_count_as_they_are_now():
    model = margrave.SVC(kernel="poly", degree=2).fit(X, Y)
    before = model.decision_function(X[:2])
    model.set_params(degree=3)
    assert not np.allclose(model.decision_function(X[:2]), before)
    model.set_params(degree=2)
    assert np.allclose(model.decision_function(X[:2]), before)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_do_not_share_the_engines_model(way):
    model = margrave.SVC(probability=True).fit(X, Y)
    expected = model.predict_proba(X[:5])
    other = way(model)
    assert kept(other) is None
    assert np.array_equal(other.predict_proba(X[:5]), expected)
    assert kept(other) is not kept(model)
    other._intercept_ = other._intercept_ + 5.0
    other.predict(X[:5])
    assert np.array_equal(model.predict_proba(X[:5]), expected)
    assert "_prepared" not in model.__getstate__()


def test_threads_may_predict_with_one_estimator():
    model = margrave.SVC().fit(X, Y)
    expected = model.decision_function(X)
    fresh = copy.copy(model)
    wrong = []

    def work():
        for _ in range(50):
            if not np.array_equal(fresh.decision_function(X), expected):
                wrong.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_row_has_the_score_it_has_among_others():
    for storage in (np.asarray, np.float32, sp.csr_matrix):
        points = storage(X)
        for model in (margrave.SVC(), margrave.NuSVC(), margrave.SVC(kernel="laplacian"), margrave.SVR()):
            model.fit(points, Y)
            call = getattr(model, "decision_function", model.predict)
            together = call(points)
            alone = np.concatenate([call(points[i : i + 1]) for i in range(12)])
            assert np.allclose(alone, together[:12], atol=1e-6 if points.dtype == np.float32 else 1e-10)


def test_only_arrays_that_validation_leaves_alone_are_plain():
    assert is_plain(X, Y) and is_plain(X.astype(np.float32)) and is_plain(X, Y.astype(float))
    assert is_plain(sp.csr_matrix(X), Y) and is_plain(sp.csr_array(X)) and is_plain(sp.csr_matrix((3, 2)))
    nan = X.copy()
    nan[3, 1] = np.nan
    infinite = Y.astype(float)
    infinite[0] = np.inf
    wide = sp.csr_matrix(X)
    wide.indices = wide.indices.astype(np.int64)
    others = [
        (nan, Y),
        (X, infinite),
        (X, Y[:-1]),
        (X, Y.astype(str)),
        (X, Y.reshape(-1, 1)),
        (X, list(Y)),
        (X.tolist(), Y),
        (np.asfortranarray(X), Y),
        (X.astype(int), Y),
        (X[:0], Y[:0]),
        (X[:, :0], Y),
        (sp.csr_matrix(nan), Y),
        (sp.csc_matrix(X), Y),
        (sp.csr_matrix(X.astype(int)), Y),
        (sp.csr_matrix((3, 0)), Y[:3]),
        (wide, Y),
        (np.ma.masked_array(X), Y),
    ]
    assert not any(is_plain(*pair) for pair in others)


def test_plain_arrays_are_still_checked():
    pandas = pytest.importorskip("pandas")
    model = margrave.SVC().fit(pandas.DataFrame(X, columns=list("abcd")), Y)
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(X[:1])
    model.fit(X, Y)
    assert not hasattr(model, "feature_names_in_") and model.n_features_in_ == 4
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:1, :3])
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, 4), np.nan))
    with pytest.raises(ValueError, match="inf"):
        margrave.SVC().fit(np.where(X > 1, np.inf, X), Y)
    with pytest.raises(ValueError, match="continuous"):
        margrave.SVC().fit(X, Y + 0.5 * X[:, 0])
    with pytest.raises(ValueError, match="number of classes"):
        margrave.SVC().fit(X, np.zeros(len(X), dtype=int))
    with pytest.raises(sklearn.exceptions.NotFittedError):
        margrave.SVC().predict(X)


def test_parameters_are_validated_whenever_they_differ():
    model = margrave.SVC().fit(X, Y)
    model.C = -1.0
    with pytest.raises(ValueError, match="'C' parameter"):
        model.fit(X, Y)
    model.C = True  # equal to 1, but not a number as a parameter is
    model.kernel = ["rbf"]  # without a hash
    with pytest.raises(ValueError, match="'kernel' parameter"):
        model.fit(X, Y)


def test_many_classes_agree_with_sklearn():
    rng = np.random.default_rng(3)
    centres = rng.standard_normal((7, 5))
    codes = rng.integers(0, 7, size=2200)
    points = centres[codes] + 0.7 * rng.standard_normal((2200, 5))
    own, other = margrave.SVC(C=3.0).fit(points, codes), sklearn.svm.SVC(C=3.0, tol=1e-5).fit(points, codes)
    assert own.certificate_.status == "optimal"
    assert np.mean(own.predict(points) != other.predict(points)) < 0.005
    theirs = other.set_params(decision_function_shape="ovo").decision_function(points)
    ours = own.set_params(decision_function_shape="ovo").decision_function(points)
    assert np.abs(ours - theirs).max() < 0.02
    one = margrave.SVC(C=3.0, n_jobs=1).fit(points, codes)
    assert np.array_equal(one.dual_coef_, own.dual_coef_) and np.array_equal(one.support_, own.support_)
