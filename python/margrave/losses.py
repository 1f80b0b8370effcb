"""Losses: the built-in ones as objects, and losses of your own.

A loss is a function ℓ(y, z) of the target y (−1 or +1 in classification) and the score z. `margrave.losses.all()` lists
the built-in losses. Estimators take a loss by name, `"huber:delta=0.5"`, or as an object, `Loss("huber:delta=0.5")`.

Any object with `value(y, z)` and `slope(y, z)` (the derivative in z) is a loss as well. Both are called with arrays of
targets and scores and return an array of the same shape, some hundred times per fit whatever the number of samples. If
arrays make them fail, they are called with one pair of numbers at a time, which is much slower. `curvature(y, z)` and
`conjugate(y, u)` are used if they exist. The slope is checked against the value, and convexity is tested. `Custom` makes
a loss of functions, compiled ones included.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from . import _core

#: The base class of the functions of ctypes.
_COMPILED: Any = ctypes.CFUNCTYPE(None).__mro__[1]

#: The functions of a loss; the last two are optional.
_FUNCTIONS = ("value", "slope", "curvature", "conjugate")


@runtime_checkable
class LossLike(Protocol):
    """Methods that a loss of your own must have."""

    def value(self, y: Any, z: Any) -> Any:
        """ℓ(y, z)."""

    def slope(self, y: Any, z: Any) -> Any:
        """dℓ/dz."""


class Info(NamedTuple):
    """An entry of the list of losses."""

    name: str
    about: str
    classification: bool
    regression: bool


class Loss:
    """A built-in loss.

    Parameters
    ----------
    name : str
        Name of a loss, "huber", with or without parameters, "huber:delta=0.5".
    **parameters : float
        Parameters of the loss.

    Attributes
    ----------
    spec : str
        The name with its parameters, as the command line writes it.
    properties : dict
        Properties of the loss: `convex`, `slope_bounded`, `slope_at_zero`, `majorised`, `classification`.

    Examples
    --------
    >>> from margrave.losses import Loss
    >>> huber = Loss("huber", delta=0.5)
    >>> huber
    Loss('huber:delta=0.5')
    >>> [float(slope) for slope in huber.slope(0.0, [0.25, 2.0])]
    [0.25, 0.5]
    """

    def __init__(self, name: str, **parameters: float) -> None:
        text = name.replace("_", "-") if ":" not in name else name
        if parameters:
            text += ":" + ",".join(f"{key}={float(value)!r}" for key, value in parameters.items())
        self.properties: dict[str, Any] = _core.loss_properties(text)
        #: The name with its parameters, as the command line writes it.
        self.spec: str = self.properties["name"]

    @property
    def convex(self) -> bool:
        """Whether the loss is convex, so that every stationary point is optimal."""
        return bool(self.properties["convex"])

    def value(self, y: npt.ArrayLike, z: npt.ArrayLike) -> Any:
        """ℓ(y, z), elementwise."""
        return self._both(y, z)[0]

    def slope(self, y: npt.ArrayLike, z: npt.ArrayLike) -> Any:
        """dℓ/dz, elementwise; at a kink a number between the one-sided slopes."""
        return self._both(y, z)[1]

    def _both(self, y: npt.ArrayLike, z: npt.ArrayLike) -> tuple[Any, ...]:
        targets, scores = np.broadcast_arrays(np.asarray(y, dtype=np.float64), np.asarray(z, dtype=np.float64))
        shape = targets.shape
        out = _core.loss_values(self.spec, np.ascontiguousarray(targets).ravel(), np.ascontiguousarray(scores).ravel())
        return tuple(part.reshape(shape)[()] for part in out)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loss) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.spec)

    def __repr__(self) -> str:
        return f"Loss({self.spec!r})"

    def __reduce__(self) -> tuple[type["Loss"], tuple[str]]:
        return Loss, (self.spec,)


class Custom:
    """A loss made of functions.

    Parameters
    ----------
    value : callable or compiled function
        ℓ(y, z): takes arrays of targets and scores and returns an array of the same shape. A compiled function is a
        `double f(double, double)`: a numba `cfunc`, a ctypes function with its argument and result types set, or a
        `scipy.LowLevelCallable`. It is called without the interpreter, from several threads at once.
    slope : callable or compiled function
        dℓ/dz; at a kink any number between the one-sided slopes.
    curvature : callable or compiled function, default=None
        d²ℓ/dz².
    conjugate : callable or compiled function, default=None
        ℓ*(y, u), the supremum of u·z − ℓ(y, z) over z.
    name : str, default=None
        Name of the loss in messages; the name of `value` by default.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import SVC
    >>> from margrave.losses import Custom
    >>> logistic = Custom(
    ...     lambda y, z: np.logaddexp(0, -y * z),
    ...     lambda y, z: -y / (1 + np.exp(y * z)),
    ...     name="logistic",
    ... )
    >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
    >>> SVC(kernel="linear", loss=logistic).fit(X, y).certificate_.status
    'optimal'
    """

    def __init__(
        self,
        value: Any,
        slope: Any,
        *,
        curvature: Any = None,
        conjugate: Any = None,
        name: str | None = None,
    ) -> None:
        self.name = name or getattr(value, "__name__", type(value).__name__)
        self._given = {"value": value, "slope": slope, "curvature": curvature, "conjugate": conjugate}
        self._kinds: dict[str, str] = {}
        for function in ("value", "slope"):
            if self._given[function] is None:
                raise ValueError(f"a loss needs a {function}")

    @classmethod
    def of(cls, loss: Any) -> "Custom":
        """The functions of an object with `value(y, z)` and `slope(y, z)`."""
        if isinstance(loss, cls):
            return loss
        given = {name: getattr(loss, name, None) for name in _FUNCTIONS}
        own = getattr(loss, "name", None)
        return cls(**given, name=own if isinstance(own, str) else type(loss).__name__)

    def value(self, y: npt.ArrayLike, z: npt.ArrayLike) -> Any:
        """ℓ(y, z), elementwise."""
        return self._elementwise("value", y, z)

    def slope(self, y: npt.ArrayLike, z: npt.ArrayLike) -> Any:
        """dℓ/dz, elementwise."""
        return self._elementwise("slope", y, z)

    def _elementwise(self, name: str, y: npt.ArrayLike, z: npt.ArrayLike) -> Any:
        targets, scores = np.broadcast_arrays(np.asarray(y, dtype=np.float64), np.asarray(z, dtype=np.float64))
        return self._evaluate(name, targets.ravel(), scores.ravel()).reshape(targets.shape)[()]

    def __repr__(self) -> str:
        return f"Custom({self.name!r})"

    # What the engine calls.

    def _kind(self, name: str) -> str:
        """How a function is called: "arrays", "numbers", "compiled", or "none" if there is none."""
        if name not in self._kinds:
            self._kinds[name] = self._find_kind(name)
        return self._kinds[name]

    def _find_kind(self, name: str) -> str:
        function = self._given[name]
        if function is None:
            return "none"
        if _address(function, f"{self.name}.{name}") is not None:
            return "compiled"
        if not callable(function):
            raise TypeError(f"{name} of the loss {self.name} is neither callable nor a compiled function")
        y, z = np.array([1.0, -1.0, 1.0]), np.array([0.3, -0.7, 1.9])
        if name == "conjugate":
            z = np.array([-0.3, 0.2, -0.6])
        with np.errstate(all="ignore"):
            try:
                single: list[float] | None = [float(function(a, b)) for a, b in zip(y.tolist(), z.tolist())]
            except Exception:
                # A function of arrays need not take numbers.
                single = None
            try:
                found = np.asarray(function(y.copy(), z.copy()), dtype=np.float64)
            except Exception:
                # Branches (`if y * z < 1`) fail with arrays.
                if single is None:
                    raise
                return "numbers"
        if found.shape != z.shape:
            if single is not None and found.ndim == 0:
                return "numbers"
            raise ValueError(_wrong_shape(f"{self.name}.{name}", found.shape, z.shape))
        if single is not None and not np.allclose(found, single, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise ValueError(
                f"{self.name}.{name} returns {found} for the targets {y} and scores {z}, but {single} for one pair at a"
                " time: it must be elementwise"
            )
        return "arrays"

    def _evaluate(self, name: str, y: npt.NDArray[np.float64], z: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The function at many pairs."""
        function, kind = self._given[name], self._kind(name)
        with np.errstate(all="ignore"):
            if kind == "arrays":
                found = np.asarray(function(y, z), dtype=np.float64)
                if found.shape != z.shape:
                    raise ValueError(_wrong_shape(f"{self.name}.{name}", found.shape, z.shape))
                return np.ascontiguousarray(found)
            if kind == "compiled":
                function = _callable(function)
            pairs = zip(y.tolist(), z.tolist())
            return np.fromiter((function(a, b) for a, b in pairs), np.float64, len(z))

    def _address(self, name: str) -> int:
        """The address of a compiled function."""
        address = _address(self._given[name], f"{self.name}.{name}")
        return 0 if address is None else address


def _wrong_shape(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    return (
        f"{name} returned an array of shape {found} for targets and scores of shape {expected}: it must be elementwise,"
        " one number per pair"
    )


def _unwrapped(function: Any) -> Any:
    """The ctypes function or capsule inside numba's and SciPy's objects; anything else unchanged."""
    if hasattr(function, "ctypes") and hasattr(function, "address"):
        return function.ctypes
    if type(function).__name__ == "LowLevelCallable" and hasattr(function, "function"):
        return _unwrapped(function.function)
    return function


def _address(function: Any, name: str) -> int | None:
    """The address of a compiled function `double f(double, double)`; None if it is not compiled."""
    signature = getattr(function, "signature", None)
    inner = _unwrapped(function)
    if type(inner).__name__ == "PyCapsule":
        if signature != "double (double, double)":
            raise TypeError(f"{name} has the signature {signature!r}: a loss is a 'double (double, double)'")
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        return int(get(inner, signature.encode()))
    if not isinstance(inner, _COMPILED):
        return None
    types = tuple(inner.argtypes or ())
    if types != (ctypes.c_double, ctypes.c_double) or inner.restype is not ctypes.c_double:
        raise TypeError(
            f"{name} must be a compiled function of two doubles that returns a double: set its argtypes to"
            " [ctypes.c_double, ctypes.c_double] and its restype to ctypes.c_double"
        )
    return ctypes.cast(inner, ctypes.c_void_p).value


def _callable(function: Any) -> Callable[[float, float], float]:
    """A compiled function as one that Python can call."""
    inner = _unwrapped(function)
    if callable(inner):
        return inner
    address = _address(function, "a function of the loss")
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(address or 0)


def all() -> list[Info]:
    """All built-in losses: name with default parameters, formula, and the tasks they are for."""
    return [Info(*line) for line in _core.loss_names()]


def names() -> list[str]:
    """Names of the built-in losses."""
    return [info.name.partition(":")[0] for info in all()]


__all__ = ["Custom", "Info", "Loss", "LossLike", "all", "names"]
