"""Models on few centres: the certificate is that of the exact problem."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier

from margrave import SVC, SVR, certify


def _data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    z = np.sin(3 * X[:, 0]) + X[:, 1] + rng.normal(0, 0.2, n)
    return X, z


def test_the_interval_contains_the_exact_optimum():
    X, z = _data()
    for exact, y in [(SVC(C=2, gamma=1.0), z > 0), (SVR(C=2, gamma=1.0), z)]:
        best = clone(exact).set_params(gap_tol=1e-6).fit(X, y).certificate_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = clone(exact).set_params(approx=60).fit(X, y)
        found = model.certificate_
        assert found.status == ("optimal" if found.relative_gap <= 1e-2 else "inaccurate")
        assert found.dual <= best.primal and found.primal >= best.dual
        parts = found.approximation
        assert parts["centres"] == 60 == len(model.support_)
        assert parts["own_relative_gap"] <= 1e-4 and parts["check"] == "exact"
        assert found.gap == pytest.approx(parts["own_gap"] + parts["kernel_gap"])
        assert model.score(X, y) > 0.8


def test_more_centres_until_the_gap_is_proven_and_polish():
    X, z = _data(800, 1)
    y = z > 0
    model = SVC(gamma=2.0, approx="auto", gap_tol=1e-2).fit(X, y)
    assert model.certificate_.status == "optimal" and model.certificate_.relative_gap <= 1e-2
    exact = SVC(gamma=2.0, approx=50, polish=True).fit(X, y)
    assert exact.certificate_.approximation is None
    assert np.array_equal(exact.predict(X), SVC(gamma=2.0).fit(X, y).predict(X))


def test_a_large_gap_of_the_exact_problem_is_never_optimal():
    X, z = _data()
    with pytest.warns(ConvergenceWarning, match="On 5 centres the objective is .* relative gap"):
        found = SVC(gamma=5.0, approx=5).fit(X, z > 0).certificate_
    assert found.status == "inaccurate" and found.relative_gap > 1e-2


def test_own_says_that_the_exact_problem_was_not_compared():
    X, z = _data()
    found = SVC(approx=30, certify="own").fit(X, z > 0).certificate_
    parts = found.approximation
    assert found.status == "optimal" and parts["check"] == "own" and parts["kernel_gap"] is None
    assert "Only the problem on 30 centres was certified, not the exact one" in found.summary()


def test_bad_input():
    X, z = _data(50)
    y = z > 0
    with pytest.raises(ValueError, match="from 1 to 50"):
        SVC(approx=51).fit(X, y)
    for bad in (0, "many", 2.5):
        with pytest.raises(ValueError, match="approx"):
            SVC(approx=bad).fit(X, y)
    with pytest.raises(ValueError, match="sigmoid"):
        SVC(approx=10, kernel="sigmoid").fit(X, y)
    with pytest.raises(ValueError, match="OneVsRestClassifier"):
        SVC(approx=10).fit(X, np.digitize(z, [-0.5, 0.5]))
    several = OneVsRestClassifier(SVC(approx=10, certify="own")).fit(X, np.digitize(z, [-0.5, 0.5]))
    assert several.score(X, np.digitize(z, [-0.5, 0.5])) > 0.5
    assert certify(SVC(approx=50).fit(X, y), X, y).gap >= 0
