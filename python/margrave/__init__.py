"""Kernel models with any loss, scikit-learn's interface and a certificate on every fit."""

from . import losses
from ._certificate import Certificate
from ._certify import certify
from ._core import (
    BudgetError,
    DataError,
    NotFiniteError,
    OptionError,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
    __version__,
)
from ._cv import SVCCV, SVRCV
from ._files import export_onnx, from_libsvm, save, to_libsvm
from ._linear import LinearSVC, LinearSVR
from ._novelty import OneClassSVM
from ._ridge import KernelRidge
from ._svm import SVC, SVR, NuSVC, NuSVR
from ._table import TablePreprocessor

__all__ = [
    "SVC",
    "SVCCV",
    "SVR",
    "SVRCV",
    "BudgetError",
    "Certificate",
    "DataError",
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
    "export_onnx",
    "from_libsvm",
    "losses",
    "save",
    "to_libsvm",
]
