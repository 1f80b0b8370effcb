"""Pytest plugin: runs scikit-learn's own tests on Margrave's estimators.

    pytest -p margrave.pytest_swap --pyargs sklearn.svm sklearn.tests.test_kernel_ridge

Before tests are collected, the estimators of `sklearn.svm` and `sklearn.kernel_ridge` are replaced by those of the same
name.
"""

from typing import Any

import sklearn.kernel_ridge
import sklearn.svm
import sklearn.svm._classes

import margrave

SWAPPED = ("SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM", "LinearSVC", "LinearSVR")


def swap() -> Any:
    """Replace the estimators; return the originals."""
    before = {name: getattr(sklearn.svm, name) for name in SWAPPED}
    before["KernelRidge"] = sklearn.kernel_ridge.KernelRidge
    for name in SWAPPED:
        for module in (sklearn.svm, sklearn.svm._classes):
            setattr(module, name, getattr(margrave, name))
    sklearn.kernel_ridge.KernelRidge = margrave.KernelRidge
    return before


def restore(before: Any) -> Any:
    """Restore the originals that `swap` returned."""
    for name in SWAPPED:
        for module in (sklearn.svm, sklearn.svm._classes):
            setattr(module, name, before[name])
    sklearn.kernel_ridge.KernelRidge = before["KernelRidge"]


def pytest_configure(config: Any) -> Any:
    config._margrave_before = swap()


def pytest_unconfigure(config: Any) -> Any:
    restore(config._margrave_before)


def pytest_report_header(config: Any) -> Any:
    return f"margrave {margrave.__version__} in place of sklearn.svm and sklearn.kernel_ridge"
