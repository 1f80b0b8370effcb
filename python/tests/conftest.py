"""Data for the tests: small, seeded."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification, make_regression


@pytest.fixture(scope="session")
def blobs():
    """Two classes that overlap."""
    return make_classification(n_samples=150, n_features=5, n_informative=3, flip_y=0.1, random_state=3)


@pytest.fixture(scope="session")
def iris():
    """Three classes."""
    return load_iris(return_X_y=True)


@pytest.fixture(scope="session")
def line():
    """Real targets."""
    X, y = make_regression(n_samples=120, n_features=4, noise=5.0, random_state=1)
    return X, y / np.abs(y).max()
