"""Losses: the built-in ones as objects, and the protocol for your own.

A loss is a function ℓ(y, z) of the target y (−1 or +1 in classification) and the score z. `margrave.losses.all()` lists
the built-in losses. Estimators take a loss by name, `"huber:delta=0.5"`, or as an object, `Loss("huber:delta=0.5")`.
Any object with `value(y, z)` and `slope(y, z)` (the derivative in z) also works: its slope is checked against its
value, and its convexity is tested.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from . import _core


@runtime_checkable
class LossLike(Protocol):
    """Methods that a loss of your own must have."""

    def value(self, y, z):
        """ℓ(y, z)."""

    def slope(self, y, z):
        """dℓ/dz."""


class Info(NamedTuple):
    """An entry of the list of losses."""

    name: str
    about: str
    classification: bool
    regression: bool


class Loss:
    """A built-in loss: `Loss("hinge")`, `Loss("huber", delta=0.5)`, `Loss("pinball:tau=0.9")`."""

    def __init__(self, name, **parameters):
        text = name.replace("_", "-") if ":" not in name else name
        if parameters:
            text += ":" + ",".join(f"{key}={float(value)!r}" for key, value in parameters.items())
        self.properties = _core.loss_properties(text)
        #: The name with its parameters, as the command line writes it.
        self.spec = self.properties["name"]

    @property
    def convex(self):
        """Whether the loss is convex, so that every stationary point is optimal."""
        return self.properties["convex"]

    def value(self, y, z):
        """ℓ(y, z), elementwise."""
        return self._both(y, z)[0]

    def slope(self, y, z):
        """dℓ/dz, elementwise; at a kink a number between the one-sided slopes."""
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
    """All built-in losses: name with default parameters, formula, and the tasks they are for."""
    return [Info(*line) for line in _core.loss_names()]


def names():
    """Names of the built-in losses."""
    return [info.name.partition(":")[0] for info in all()]


__all__ = ["Info", "Loss", "LossLike", "all", "names"]
