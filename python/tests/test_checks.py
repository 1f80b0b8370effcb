"""All of scikit-learn's estimator checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import margrave

ESTIMATORS = [
    margrave.SVC(),
    margrave.SVC(probability=True),
    margrave.SVC(kernel="precomputed"),
    margrave.SVR(),
    margrave.SVR(kernel="precomputed"),
    margrave.NuSVC(),
    margrave.NuSVR(),
    margrave.OneClassSVM(),
    margrave.LinearSVC(),
    margrave.LinearSVR(),
    margrave.KernelRidge(),
    margrave.KernelRidge(kernel="rbf"),
    margrave.SVCCV(Cs=[0.1, 1.0, 10.0], gammas=[0.1, 1.0]),
    margrave.SVRCV(Cs=[0.1, 1.0, 10.0], gammas=[0.1, 1.0]),
]


def name_of(check):
    return getattr(check, "func", check).__name__


@parametrize_with_checks(ESTIMATORS)
def test_estimator(estimator, check):
    if isinstance(estimator, margrave.NuSVC) and name_of(check) == "check_class_weight_classifiers":
        # Weights of 10⁷ to 1 leave no feasible ν: the largest feasible one is used, which is weaker than the check expects.
        pytest.skip("ν limits the effect of class weights")
    check(estimator)
