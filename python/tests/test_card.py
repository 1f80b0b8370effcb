"""Arrays in the memory of a card. Without one, what can be seen without: which arrays are taken for such, and the errors."""

import numpy as np
import pytest

import margrave
from margrave import _core
from margrave._card import on_card, to_host


class OnCard:
    """An array that says it is on a card."""

    def __init__(self, values, typestr="<f8"):
        self.values = np.asarray(values)
        shape, address = self.values.shape, self.values.ctypes.data
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, True),
            "strides": None,
            "version": 3,
        }

    @property
    def shape(self):
        return self.values.shape

    def get(self):
        return self.values


class Tensor:
    """A tensor of DLPack in a place of its choice."""

    def __init__(self, place):
        self.place = place

    def __dlpack_device__(self):
        return self.place


def test_arrays_are_told_apart_by_their_memory():
    assert on_card(OnCard(np.ones((3, 2)))) and on_card(Tensor((2, 0))) and on_card(Tensor((13, 1)))
    for other in (np.ones(3), [1.0], None, "x", 3.0, Tensor((1, 0)), np.float64(2.0)):
        assert not on_card(other)
    values = np.arange(6.0).reshape(3, 2)
    assert to_host(OnCard(values)) is values and to_host(values) is values and to_host(None) is None


def test_targets_and_weights_may_be_on_a_card():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y, weights = (X[:, 0] > 0).astype(int), np.linspace(1, 2, 60)
    here = margrave.SVC().fit(X, y, weights)
    there = margrave.SVC().fit(X, OnCard(y), OnCard(weights))
    assert np.array_equal(here.dual_coef_, there.dual_coef_)
    assert here.score(X, y) == there.score(X, OnCard(y))
    ridge = margrave.KernelRidge(kernel="rbf").fit(X, OnCard(X[:, 1]))
    assert ridge.score(X, OnCard(X[:, 1])) > 0.5


@pytest.mark.parametrize(
    "estimator", [margrave.LinearSVC(), margrave.LinearSVR(), margrave.SVC(kernel="precomputed")], ids=str
)
def test_estimators_of_the_processor_say_so(estimator):
    X = OnCard(np.eye(40))
    with pytest.raises(TypeError, match=r"X\.get\(\)"):
        estimator.fit(X, np.arange(40) % 2)


@pytest.mark.parametrize("typestr", ["<i8", "<f2", "<c16"])
def test_other_numbers_are_refused(typestr):
    with pytest.raises(TypeError, match="float32 or float64"):
        margrave.SVC().fit(OnCard(np.ones((20, 2)), typestr), np.arange(20) % 2)


def test_vectors_are_refused():
    with pytest.raises(ValueError, match="2D"):
        margrave.SVC().fit(OnCard(np.ones(20)), np.arange(20) % 2)


def test_memory_that_is_not_on_a_card_is_an_error():
    """With a driver it is not its memory; without one there is none."""
    with pytest.raises((ValueError, _core.DeviceError), match="card|driver"):
        margrave.SVC().fit(OnCard(np.ones((20, 2))), np.arange(20) % 2)
    fitted = margrave.SVC().fit(np.eye(20), np.arange(20) % 2)
    with pytest.raises((ValueError, _core.DeviceError), match="card|driver"):
        fitted.predict(OnCard(np.eye(20)))


def test_a_model_is_the_same_wherever_its_points_are():
    cupy = pytest.importorskip("cupy")
    X = np.random.default_rng(0).normal(size=(3000, 5))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    here = margrave.SVC(gamma=0.2, device="cuda").fit(X, y)
    for array in (cupy.asarray(X), cupy.asfortranarray(cupy.asarray(X))):
        before = _core.CardArray.copied()
        there = margrave.SVC(gamma=0.2).fit(array, cupy.asarray(y))
        assert _core.CardArray.copied() - before < X.size
        assert np.array_equal(here.dual_coef_, there.dual_coef_)
        assert np.array_equal(here.predict(X), there.predict(array))
    with pytest.raises(ValueError, match="device is cpu"):
        margrave.SVC(device="cpu").fit(cupy.asarray(X), y)
