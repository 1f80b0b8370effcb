"""Agreement with scikit-learn: objectives, scores, signs and shapes, but not the sets of support vectors."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.kernel_ridge
import sklearn.svm

import margrave

# Both sides stop at a KKT violation of 1e-6: their scores then agree to some 1e-4, those of
# polynomials, whose entries are large, to 1e-3.
TIGHT = 1e-6
CLOSE = {"rtol": 1e-3, "atol": 1e-3}
KERNELS = ["rbf", "linear", "poly", "sigmoid"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_svc_of_two_classes(blobs, kernel, weighted):
    X, y = blobs
    if kernel == "sigmoid":
        X = 0.1 * X
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    settings = {"kernel": kernel, "C": 0.7, "gamma": 0.3, "tol": TIGHT, "class_weight": {0: 2.0}}
    ours = margrave.SVC(**settings).fit(X, y, weights)
    theirs = sklearn.svm.SVC(**settings).fit(X, y, weights)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), **CLOSE)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **CLOSE)
    assert ours.dual_coef_.shape == (1, len(ours.support_)) and ours.n_support_.sum() == len(ours.support_)
    assert (ours.dual_coef_[0, : ours.n_support_[0]] <= 0).all() and (
        ours.dual_coef_[0, ours.n_support_[0] :] >= 0
    ).all()
    if kernel != "sigmoid":  # tanh is not positive semi-definite: no bound to speak of
        assert ours.certificate_.relative_gap < 1e-4
    if kernel == "linear":
        np.testing.assert_allclose(ours.coef_, theirs.coef_, **CLOSE)


@pytest.mark.parametrize("kernel", KERNELS[:3])
@pytest.mark.parametrize("sparse", [False, True])
def test_svc_of_three_classes(iris, kernel, sparse):
    X, y = iris
    X = sp.csr_matrix(X) if sparse else X
    settings = {"kernel": kernel, "tol": TIGHT, "gamma": 0.25}
    ours, theirs = margrave.SVC(**settings).fit(X, y), sklearn.svm.SVC(**settings).fit(X, y)
    for shape in ("ovr", "ovo"):
        ours.decision_function_shape = theirs.decision_function_shape = shape
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), **CLOSE)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **CLOSE)
    assert ours.dual_coef_.shape == (2, len(ours.support_))
    assert len(ours.certificate_.machines) == 3
    # LIBSVM's layout: the coefficients give the scores of each pair.
    if kernel == "linear":
        coef, want = ours.coef_, theirs.coef_
        coef, want = (coef.toarray(), want.toarray()) if sparse else (coef, want)
        np.testing.assert_allclose(coef, want, **CLOSE)
        scores = (X @ coef.T) + ours.intercept_
        ours.decision_function_shape = "ovo"
        np.testing.assert_allclose(scores, ours.decision_function(X), atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS[:3])
def test_svr(line, kernel):
    X, y = line
    settings = {"kernel": kernel, "C": 2.0, "gamma": 0.2, "epsilon": 0.05, "tol": TIGHT}
    ours, theirs = margrave.SVR(**settings).fit(X, y), sklearn.svm.SVR(**settings).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), **CLOSE)
    assert isinstance(ours.n_iter_, int) and ours.n_support_.shape == (1,)


def test_nu_svms(blobs, line, iris):
    for X, y in (blobs, iris):
        settings = {"nu": 0.3, "gamma": 0.2, "tol": TIGHT, "decision_function_shape": "ovo"}
        ours, theirs = margrave.NuSVC(**settings).fit(X, y), sklearn.svm.NuSVC(**settings).fit(X, y)
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)
    X, y = line
    settings = {"nu": 0.4, "C": 3.0, "gamma": 0.2, "tol": TIGHT}
    ours, theirs = margrave.NuSVR(**settings).fit(X, y), sklearn.svm.NuSVR(**settings).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-3)


def test_one_class(blobs):
    X, _ = blobs
    settings = {"nu": 0.2, "gamma": 0.1, "tol": TIGHT}
    ours, theirs = margrave.OneClassSVM(**settings).fit(X), sklearn.svm.OneClassSVM(**settings).fit(X)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-4)
    np.testing.assert_allclose(ours.offset_, theirs.offset_, atol=1e-4)
    assert abs((ours.predict(X) == -1).mean() - 0.2) < 0.05


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
@pytest.mark.parametrize("data", ["blobs", "iris"])
def test_linear_svc(request, loss, data):
    X, y = request.getfixturevalue(data)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    settings = {"loss": loss, "C": 0.5, "tol": 1e-9, "max_iter": 100_000}
    ours = margrave.LinearSVC(**settings | {"tol": 1e-7}).fit(X, y)
    theirs = sklearn.svm.LinearSVC(**settings).fit(X, y)
    # LIBLINEAR's stopping rule limits the gradient: its weights are accurate to some 1e-3, ours are certified.
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-3)
    assert ours.certificate_.primal <= margrave.certify(theirs, X, y).primal * (1 + 1e-9)


def test_linear_svc_of_crammer_and_singer_and_with_the_l1_penalty(iris):
    X, y = iris
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    settings = {"multi_class": "crammer_singer", "C": 0.1, "tol": 1e-8, "max_iter": 100_000}
    ours, theirs = margrave.LinearSVC(**settings).fit(X, y), sklearn.svm.LinearSVC(**settings).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=2e-2)
    settings = {"penalty": "l1", "dual": False, "C": 0.05, "tol": 1e-8, "max_iter": 100_000}
    ours, theirs = margrave.LinearSVC(**settings).fit(X, y), sklearn.svm.LinearSVC(**settings).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)


def test_linear_svr(line):
    X, y = line
    for loss in ("epsilon_insensitive", "squared_epsilon_insensitive"):
        settings = {"loss": loss, "C": 1.0, "epsilon": 0.05, "tol": 1e-9, "max_iter": 200_000}
        ours = margrave.LinearSVR(**settings | {"tol": 1e-7}).fit(X, y)
        theirs = sklearn.svm.LinearSVR(**settings, dual=True).fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "laplacian", "cosine", "precomputed"])
def test_kernel_ridge(line, kernel):
    X, y = line
    Y = np.column_stack([y, y**2])
    if kernel == "precomputed":
        X = X @ X.T
    weights = np.linspace(0.5, 2.0, len(y))
    for target, alpha in ((y, 0.3), (Y, 0.3), (Y, [0.3, 2.0])):
        ours = margrave.KernelRidge(alpha=alpha, kernel=kernel, gamma=0.2).fit(X, target, weights)
        theirs = sklearn.kernel_ridge.KernelRidge(alpha=alpha, kernel=kernel, gamma=0.2).fit(X, target, weights)
        np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-7, atol=1e-9)
