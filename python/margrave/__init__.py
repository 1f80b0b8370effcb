"""Kernel models with any loss, scikit-learn's interface and a certificate on every fit."""

from typing import TYPE_CHECKING, Any

from . import losses
from ._certificate import Certificate
from ._certify import certify
from ._core import (
    BudgetError,
    DataError,
    DeviceError,
    NotFiniteError,
    OptionError,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
    __version__,
)
from ._cv import SVCCV, SVRCV
from ._evaluate import Evaluation, evaluate
from ._figures import Figures
from ._files import export_onnx, from_libsvm, load, save, to_libsvm
from ._linear import LinearSVC, LinearSVR
from ._novelty import OneClassSVM
from ._ridge import KernelRidge
from ._svm import SVC, SVR, NuSVC, NuSVR
from ._table import TablePreprocessor

if TYPE_CHECKING:
    from . import plot


def __getattr__(name: str) -> Any:
    """`margrave.plot` is imported when it is first used."""
    if name == "plot":
        import importlib

        return importlib.import_module(".plot", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "SVC",
    "SVCCV",
    "SVR",
    "SVRCV",
    "BudgetError",
    "Certificate",
    "DataError",
    "DeviceError",
    "Evaluation",
    "Figures",
    "KernelRidge",
    "LinearSVC",
    "LinearSVR",
    "NotFiniteError",
    "NuSVC",
    "NuSVR",
    "OneClassSVM",
    "OptionError",
    "OutOfMemoryError",
    "ShapeError",
    "TablePreprocessor",
    "UnsupportedError",
    "__version__",
    "certify",
    "evaluate",
    "export_onnx",
    "from_libsvm",
    "load",
    "losses",
    "plot",
    "save",
    "to_libsvm",
]
