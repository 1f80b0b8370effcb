"""Losses: those of the library as objects, and what a loss of one's own needs.

A loss is a function ℓ(y, z) of the target y (−1 or +1 in classification) and the score z. `margrave.losses.all()` lists
those of the library; `Loss("huber:delta=0.5")` is one of them, and can be given to an estimator as it is or by its name.
Any object with `value(y, z)` and `slope(y, z)` (the derivative in z) is a loss, too: the slope is checked against the value,
and whether the loss is convex is found out.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from . import _core


@runtime_checkable
class LossLike(Protocol):
    """What a loss of one's own must have."""

    def value(self, y, z):
        """ℓ(y, z)."""

    def slope(self, y, z):
        """dℓ/dz."""


class Info(NamedTuple):
    """A line of the list of losses."""

    name: str
    about: str
    classification: bool
    regression: bool


class Loss:
    """A loss of the library: `Loss("hinge")`, `Loss("huber", delta=0.5)`, `Loss("pinball:tau=0.9")`."""

    def __init__(self, name, **parameters):
        text = name.replace("_", "-") if ":" not in name else name
        if parameters:
            text += ":" + ",".join(f"{key}={float(value)!r}" for key, value in parameters.items())
        self.properties = _core.loss_properties(text)
        #: The name with its parameters, as the command line writes it.
        self.spec = self.properties["name"]

    @property
    def convex(self):
        """Whether every stationary point is the optimum."""
        return self.properties["convex"]

    def value(self, y, z):
        """ℓ(y, z), element by element."""
        return self._both(y, z)[0]

    def slope(self, y, z):
        """dℓ/dz, element by element; at a kink a number between the one-sided slopes."""
        return self._both(y, z)[1]

    def _both(self, y, z):
        y, z = np.broadcast_arrays(np.asarray(y, dtype=np.float64), np.asarray(z, dtype=np.float64))
        shape = y.shape
        out = _core.loss_values(self.spec, np.ascontiguousarray(y).ravel(), np.ascontiguousarray(z).ravel())
        return tuple(part.reshape(shape)[()] for part in out)

    def __eq__(self, other):
        return isinstance(other, Loss) and self.spec == other.spec

    def __hash__(self):
        return hash(self.spec)

    def __repr__(self):
        return f"Loss({self.spec!r})"

    def __reduce__(self):
        return Loss, (self.spec,)


def all():
    """Every loss of the library with its default parameters, its formula, and what it is for."""
    return [Info(*line) for line in _core.loss_names()]


def names():
    """Names of the losses of the library."""
    return [info.name.partition(":")[0] for info in all()]


__all__ = ["Info", "Loss", "LossLike", "all", "names"]
