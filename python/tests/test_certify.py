"""Certificates of models fitted elsewhere."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.kernel_ridge
import sklearn.svm
from sklearn.base import BaseEstimator

import margrave


@pytest.mark.parametrize("package", [margrave, sklearn.svm], ids=["margrave", "sklearn"])
@pytest.mark.parametrize("tol", [1e-6, 0.3])
def test_kernel_models(package, tol, blobs, iris, line):
    settings = {"tol": tol, "gamma": 0.2}
    cases = [
        (package.SVC(C=2.0, class_weight="balanced", **settings), blobs),
        (package.SVC(C=2.0, **settings), iris),
        (package.SVC(C=2.0, kernel=lambda A, B: A @ B.T, tol=tol), blobs),
        (package.NuSVC(nu=0.3, **settings), blobs),
        (package.NuSVC(nu=0.2, **settings), iris),
        (package.SVR(C=2.0, epsilon=0.05, **settings), line),
        (package.NuSVR(C=2.0, **settings), line),
        (package.OneClassSVM(nu=0.3, **settings), blobs),
    ]
    for model, (X, y) in cases:
        certificate = margrave.certify(model.fit(X, y), X, y)
        assert certificate.gap >= 0 and certificate.primal >= certificate.dual
        # A violation of 1e-6 in every score gives a gap of at most C·n times that.
        limit = 1e-3 if tol < 1e-3 else 1.0
        assert certificate.relative_gap < limit, (model, certificate)
        if package is margrave and hasattr(model, "certificate_"):
            assert certificate.primal == pytest.approx(model.certificate_.primal, rel=1e-6)


def test_the_certificate_detects_a_model_that_is_not_optimal(blobs):
    X, y = blobs
    model = sklearn.svm.SVC(C=2.0, gamma=0.2, tol=1e-6).fit(X, y)
    good = margrave.certify(model, X, y).relative_gap
    model._dual_coef_ = model._dual_coef_ * 0.5
    assert margrave.certify(model, X, y).relative_gap > 100 * good
    model._dual_coef_ = model._dual_coef_ * 2
    model.C = 1.0
    assert margrave.certify(model, X, y).relative_gap > 100 * good


def test_weights_and_sparse_data(blobs):
    X, y = blobs
    weights = np.random.default_rng(0).uniform(0.1, 3.0, len(y))
    model = sklearn.svm.SVC(tol=1e-6).fit(sp.csr_matrix(X), y, sample_weight=weights)
    assert margrave.certify(model, sp.csr_matrix(X), y, sample_weight=weights).relative_gap < 1e-4
    assert margrave.certify(model, sp.csr_matrix(X), y).relative_gap > 1e-3


def test_other_data_is_refused(blobs):
    X, y = blobs
    model = sklearn.svm.SVC().fit(X, y)
    with pytest.raises(ValueError, match="training data"):
        margrave.certify(model, X[::-1], y[::-1])
    with pytest.raises(TypeError, match="can be certified"):
        margrave.certify(Fitted(), X, y)


class Fitted(BaseEstimator):
    """A fitted estimator that is not a kernel model."""

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True


@pytest.mark.parametrize("package", [margrave, sklearn.svm], ids=["margrave", "sklearn"])
def test_linear_models(package, blobs, iris, line):
    for loss in ("squared_hinge", "hinge"):
        for X, y in (blobs, iris):
            X = (X - X.mean(axis=0)) / X.std(axis=0)
            model = package.LinearSVC(loss=loss, C=0.5, tol=1e-6, max_iter=100_000).fit(X, y)
            assert margrave.certify(model, X, y).relative_gap < 1e-4
            model.coef_ = 0.9 * model.coef_
            assert margrave.certify(model, X, y).relative_gap > 1e-3
    X, y = line
    model = package.LinearSVR(epsilon=0.05, tol=1e-6, max_iter=100_000).fit(X, y)
    assert margrave.certify(model, X, y).relative_gap < 1e-4


def test_kernel_ridge(line):
    X, y = line
    for package in (margrave, sklearn.kernel_ridge):
        model = package.KernelRidge(alpha=0.5, kernel="rbf", gamma=0.1).fit(X, np.column_stack([y, -y]))
        certificate = margrave.certify(model, X, np.column_stack([y, -y]))
        assert certificate.relative_gap < 1e-10 and len(certificate.machines) == 2
        model.dual_coef_ = model.dual_coef_ * 1.1
        assert margrave.certify(model, X, np.column_stack([y, -y])).relative_gap > 1e-6


def test_models_read_from_files_of_libsvm(blobs, iris, line):
    for model, (X, y) in [
        (margrave.SVC(C=2.0, tol=1e-6), iris),
        (margrave.NuSVC(nu=0.3, tol=1e-6), blobs),
        (margrave.NuSVC(nu=0.2, tol=1e-6), iris),
        (margrave.SVR(C=0.5, epsilon=0.05, tol=1e-6), line),
        (margrave.NuSVR(nu=0.4, C=2.0, tol=1e-6), line),
        (margrave.OneClassSVM(nu=0.2, tol=1e-6), blobs),
    ]:
        text = margrave.to_libsvm(model.fit(X, y)).encode()
        again = margrave.from_libsvm(text, n_features=X.shape[1])
        if hasattr(model, "C"):
            again.set_params(C=model.C)
        if isinstance(model, margrave.SVR):
            again.set_params(epsilon=model.epsilon)
        certificate = margrave.certify(again, X, y)
        # Features have eight digits in the file.
        assert certificate.relative_gap < 1e-4
        assert len(certificate.machines) == len(model.certificate_.machines)
        if type(model) in (margrave.SVC, margrave.SVR):
            assert margrave.certify(again.set_params(C=30.0), X, y).relative_gap > 1e-2
        # A new fit replaces the model of the file.
        again.fit(X, y)
        assert margrave.certify(again, X, y).relative_gap < 1e-2
    with pytest.raises(ValueError, match="sample_weight"):
        margrave.certify(margrave.from_libsvm(text), X, y, sample_weight=np.ones(len(y)))
