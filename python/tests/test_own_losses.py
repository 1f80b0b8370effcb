"""Losses of the user: called with arrays, a few times per fit, and proved with their own functions."""

import ctypes

import numpy as np
import pytest
from scipy import LowLevelCallable

import margrave
from margrave.losses import Custom


class Counted:
    """Counts the calls of its functions and the numbers they evaluate."""

    def __init__(self):
        self.calls = self.numbers = 0

    def count(self, z):
        self.calls += 1
        self.numbers += np.size(z)


class Logistic(Counted):
    def value(self, y, z):
        self.count(z)
        return np.logaddexp(0, -y * z)

    def slope(self, y, z):
        self.count(z)
        return -y / (1 + np.exp(y * z))


class SquaredHinge(Counted):
    def value(self, y, z):
        self.count(z)
        return np.maximum(0, 1 - y * z) ** 2

    def slope(self, y, z):
        self.count(z)
        return -2 * y * np.maximum(0, 1 - y * z)


class Huber(Counted):
    def value(self, y, z):
        self.count(z)
        r = np.abs(y - z)
        return np.where(r <= 1, 0.5 * r**2, r - 0.5)

    def slope(self, y, z):
        self.count(z)
        return np.clip(z - y, -1, 1)


class Poisson(Counted):
    """Minus the log-likelihood of a count y whose mean is exp(z): not a function of y - z."""

    def value(self, y, z):
        self.count(z)
        return np.exp(z) - y * z

    def slope(self, y, z):
        self.count(z)
        return np.exp(z) - y


#: Calls per fit that no number of samples or iterations may exceed.
MOST_CALLS = 400


def same_fit(own, twin, X, loss, tolerance):
    score = "decision_function" if hasattr(own, "decision_function") else "predict"
    a, b = (getattr(model, score)(X) for model in (own, twin))
    np.testing.assert_allclose(a, b, atol=tolerance * np.abs(b).max())
    assert own.certificate_.status == "optimal" and own.certificate_.relative_gap < 1e-3
    assert own.certificate_.primal == pytest.approx(twin.certificate_.primal, rel=1e-3)
    if isinstance(loss, Counted):
        assert 10 < loss.calls < MOST_CALLS, loss.calls


@pytest.mark.parametrize("model", [margrave.SVC, margrave.LinearSVC])
@pytest.mark.parametrize("loss, name", [(Logistic, "logistic"), (SquaredHinge, "squared-hinge")])
def test_own_classification_losses_take_few_calls(blobs, model, loss, name):
    X, y = blobs
    own = loss()
    same_fit(model(loss=own, gap_tol=1e-6).fit(X, y), model(loss=name, gap_tol=1e-6).fit(X, y), X, own, 1e-3)


@pytest.mark.parametrize("model", [margrave.SVR, margrave.LinearSVR])
def test_an_own_regression_loss_takes_few_calls(line, model):
    X, y = line
    own, name = Huber(), "huber:delta=1"
    same_fit(model(loss=own, gap_tol=1e-6).fit(X, 3 * y), model(loss=name, gap_tol=1e-6).fit(X, 3 * y), X, own, 1e-3)


def test_the_number_of_calls_does_not_grow_with_the_samples():
    rng = np.random.default_rng(0)
    calls = []
    for n in (200, 2000):
        X = rng.normal(size=(n, 3))
        loss = Logistic()
        margrave.LinearSVC(loss=loss).fit(X, (X @ [1, 2, -1] + rng.normal(size=n) > 0))
        calls.append(loss.calls)
    assert calls[1] < 1.5 * calls[0], calls


def test_a_loss_with_branches_is_called_with_numbers(line):
    class Branches(Counted):
        def value(self, y, z):
            self.count(z)
            r = abs(y - z)
            return 0.5 * r * r if r <= 1 else r - 0.5

        def slope(self, y, z):
            self.count(z)
            return max(-1.0, min(1.0, z - y))

    X, y = line
    loss = Branches()
    same_fit(margrave.SVR(loss=loss).fit(X, 3 * y), margrave.SVR(loss="huber:delta=1").fit(X, 3 * y), X, None, 1e-3)
    # One call per number, but by far fewer than one per sample and iteration.
    assert loss.calls < 60000, loss.calls


def test_counts_have_a_loss_of_their_own():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 2))
    y = rng.poisson(np.exp(0.5 * X[:, 0])).astype(float)
    loss = Poisson()
    model = margrave.SVR(loss=loss, kernel="linear", C=10).fit(X, y)
    assert model.certificate_.status == "optimal"
    assert model.coef_[0, 0] == pytest.approx(0.5, abs=0.2) and loss.calls < 3000, (model.coef_, loss.calls)


def test_wrong_functions_are_refused_with_a_reason(blobs):
    X, y = blobs

    right = Logistic()

    def fit(value=right.value, slope=right.slope, **others):
        return margrave.SVC(loss=Custom(value, slope, name="mine", **others)).fit(X, y)

    assert fit().certificate_.status == "optimal"
    with pytest.raises(ValueError, match=r"mine\.slope returned an array of shape \(1,\) .* of shape \(3,\)"):
        fit(slope=lambda y, z: np.array([1.0]))
    with pytest.raises(ValueError, match=r"mine\.value returns .* for one pair at a time: it must be elementwise"):
        fit(value=lambda y, z: np.logaddexp(0, -y * z) - np.mean(z) * (np.size(z) > 1))
    with pytest.raises(margrave.DataError, match="slope of the loss mine is wrong"):
        fit(slope=lambda y, z: -y / (2 + np.exp(y * z)))
    with pytest.raises(margrave.DataError, match="curvature of the loss mine is wrong"):
        fit(curvature=lambda y, z: z**2)
    with pytest.raises(margrave.DataError, match="conjugate at the slope of the loss mine is wrong"):
        fit(conjugate=lambda y, u: 0 * u)
    with pytest.raises(TypeError, match="neither callable nor a compiled function"):
        fit(value=3)
    with pytest.raises(ValueError, match="a loss needs a slope"):
        fit(slope=None)


def test_second_derivative_and_conjugate_are_accepted(blobs):
    X, y = blobs

    def entropy(y, u):
        p = np.clip(-u * y, 1e-300, 1 - 1e-16)
        return p * np.log(p) + (1 - p) * np.log1p(-p)

    def curvature(y, z):
        return 1 / (2 + np.exp(y * z) + np.exp(-y * z))

    loss = Logistic()
    full = Custom(loss.value, loss.slope, curvature=curvature, conjugate=entropy)
    same_fit(margrave.SVC(loss=full).fit(X, y), margrave.SVC(loss="logistic").fit(X, y), X, None, 1e-3)


def test_an_exception_in_the_middle_of_a_fit_is_raised(blobs):
    class Failing(Logistic):
        def slope(self, y, z):
            if np.size(z) == 150:
                raise RuntimeError("not with 150 samples")
            return super().slope(y, z)

    with pytest.raises(RuntimeError, match="not with 150 samples"):
        margrave.SVC(loss=Failing()).fit(*blobs)


def test_a_loss_that_differs_from_its_description_is_not_called_optimal(line):
    """The solver sees a description of the loss, the certificate the loss itself."""

    class Inconsistent(Huber):
        def value(self, y, z):
            far = np.size(z) == 120
            return super().value(y, z) + far * 0.3 * np.abs(z)

        def slope(self, y, z):
            far = np.size(z) == 120
            return super().slope(y, z) + far * 0.3 * np.sign(z)

    X, y = line
    with pytest.warns(UserWarning, match="certificate"):
        model = margrave.SVR(loss=Inconsistent(), C=10).fit(X, 3 * y)
    assert model.certificate_.status != "optimal"


SOURCE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)


@SOURCE
def c_value(y, z):
    return max(0.0, 1 - y * z) ** 2


@SOURCE
def c_slope(y, z):
    return -2 * y * max(0.0, 1 - y * z)


def test_addresses_of_compiled_functions_are_losses(blobs):
    X, y = blobs
    twin = margrave.SVC(loss="squared-hinge").fit(X, y)
    for value, slope in [(c_value, c_slope), (LowLevelCallable(c_value), LowLevelCallable(c_slope))]:
        loss = Custom(value, slope)
        assert loss._kind("value") == "compiled"
        np.testing.assert_allclose(loss.slope(1.0, [0.5, 2.0]), [-1, 0])
        same_fit(margrave.SVC(loss=loss).fit(X, y), twin, X, None, 1e-6)

    untyped = ctypes.CDLL(None).pow
    with pytest.raises(TypeError, match="two doubles that returns a double: set its argtypes"):
        margrave.SVC(loss=Custom(untyped, c_slope)).fit(X, y)


def test_a_library_function_is_a_loss_with_its_types_set(line):
    """`hypot` of the C library: the loss √(y² + z²) is convex in z."""
    X, y = line
    hypot = ctypes.CDLL("libm.so.6").hypot
    hypot.argtypes, hypot.restype = [ctypes.c_double, ctypes.c_double], ctypes.c_double
    loss = Custom(hypot, lambda y, z: z / np.hypot(y, z), name="hypot")
    model = margrave.SVR(loss=loss, kernel="linear").fit(X, np.sign(y) + 2)
    assert model.certificate_.status == "optimal" and np.abs(model.predict(X)).max() < 0.1


numba = pytest.importorskip("numba")


@numba.njit
def _softplus(y, z):
    m = y * z
    return np.log1p(np.exp(-m)) if m > 0 else np.log1p(np.exp(m)) - m


@numba.njit
def _softplus_slope(y, z):
    return -y / (1.0 + np.exp(y * z))


def test_numba_functions_of_numbers_and_compiled_ones_are_losses(blobs):
    X, y = blobs
    twin = margrave.SVC(C=3, gamma=0.2, loss="logistic").fit(X, y).decision_function(X)
    signature = "float64(float64, float64)"
    compiled = [numba.cfunc(signature)(f.py_func) for f in (_softplus, _softplus_slope)]
    vectorised = [numba.vectorize([signature])(f.py_func) for f in (_softplus, _softplus_slope)]
    # A compiled function without branches takes arrays as well as numbers.
    plain, mixed = (_softplus, _softplus_slope), ["numbers", "arrays"]
    for functions, kind in [(compiled, ["compiled"] * 2), (vectorised, ["arrays"] * 2), (plain, mixed)]:
        loss = margrave.losses.Custom(*functions, name="softplus")
        assert [loss._kind(name) for name in ("value", "slope")] == kind
        for model in (margrave.SVC(C=3, gamma=0.2, loss=loss), margrave.SVC(C=3, gamma=0.2, loss=loss, solver="irwls")):
            model.fit(X, y)
            assert model.certificate_.status == "optimal", kind
            np.testing.assert_allclose(model.decision_function(X), twin, atol=2e-2)
    wrong = numba.cfunc("float64(float64)")(lambda z: z)
    with pytest.raises(TypeError, match="two doubles"):
        margrave.SVC(loss=margrave.losses.Custom(wrong, wrong)).fit(X, y)
