"""The compiled engine behind the estimators: private, may change at any time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "BudgetError",
    "CardArray",
    "DataError",
    "DeviceError",
    "Machine",
    "NotFiniteError",
    "OptionError",
    "OutOfMemoryError",
    "ShapeError",
    "UnsupportedError",
    "__version__",
    "balance_parts",
    "certify",
    "certify_kernel_rows",
    "certify_libsvm",
    "certify_linear",
    "certify_ridge",
    "certify_rows",
    "combine_kernel_parts",
    "combine_linear_parts",
    "export_libsvm",
    "export_native",
    "export_onnx",
    "fingerprint",
    "fit",
    "gamma_of",
    "is_score",
    "kernel_block",
    "kernel_scores",
    "linear_centre",
    "linear_direction",
    "linear_pass",
    "linear_product",
    "linear_width",
    "loss_names",
    "loss_properties",
    "loss_values",
    "main",
    "read_libsvm",
    "read_native",
    "solve_rows",
    "tune",
    "tune_task",
    "votes",
    "worst_rows",
]

__version__: str

_Vector = npt.NDArray[np.float64]
_Matrix = npt.NDArray[np.float64]
_Dense = npt.NDArray[np.float32] | npt.NDArray[np.float64]
_Sparse = tuple[_Dense, npt.NDArray[np.uint32], npt.NDArray[np.uint64], int]
_Params = Mapping[str, Any]
_Parts = Mapping[str, Any]
_Scaling = tuple[Sequence[float], Sequence[float]]
_Report = Callable[[dict[str, Any]], object]
_Rows = Mapping[str, Any]

class OptionError(ValueError): ...
class ShapeError(ValueError): ...
class NotFiniteError(ValueError): ...
class DataError(ValueError): ...
class DeviceError(RuntimeError): ...
class UnsupportedError(ValueError): ...
class OutOfMemoryError(MemoryError): ...
class BudgetError(TimeoutError): ...

@final
class CardArray:
    def __new__(cls, array: Any) -> CardArray: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def card(self) -> int: ...
    @staticmethod
    def copied() -> int: ...
    def __len__(self) -> int: ...
    def row_sums(self, shift: float, squared: bool) -> _Vector: ...
    def take(self, rows: npt.NDArray[np.int64]) -> CardArray: ...
    def copy(self) -> _Dense: ...

_Points = _Dense | _Sparse | CardArray

@final
class Machine:
    def __new__(cls, params: _Params, parts: _Parts) -> Machine: ...
    def scores(self, x: _Points, threads: int, small: bool) -> _Matrix: ...
    def probabilities(self, scores: _Matrix) -> _Matrix: ...

def fingerprint(
    x: _Points,
    numbers: _Vector | None = None,
    texts: Sequence[str] | None = None,
    outputs: int = 1,
    weights: _Vector | None = None,
) -> str: ...
def main(arguments: Sequence[str]) -> int: ...
def fit(
    params: _Params,
    x: _Points,
    y: _Vector | None = None,
    weights: _Vector | None = None,
    report: _Report | None = None,
    outputs: int = 1,
    start: _Parts | None = None,
) -> dict[str, Any]: ...
def votes(classes: int, scores: _Matrix) -> npt.NDArray[np.int64]: ...
def certify(
    params: _Params,
    parts: _Parts,
    x: _Points,
    y: _Vector | None = None,
    weights: _Vector | None = None,
    outputs: int = 1,
) -> list[dict[str, Any]]: ...
def certify_libsvm(
    params: _Params,
    content: bytes,
    x: _Points,
    y: _Vector | None = None,
    cost: float | None = None,
    epsilon: float | None = None,
) -> list[dict[str, Any]]: ...
def certify_linear(
    params: _Params,
    x: _Points,
    targets: _Matrix,
    costs: _Vector,
    scaling: float | None,
    l1: bool,
    weights: _Matrix,
    bias: _Vector,
) -> list[dict[str, Any]]: ...
def certify_ridge(params: _Params, x: _Points, y: _Vector, costs: _Vector, beta: _Vector) -> dict[str, Any]: ...
def tune(
    params: _Params,
    x: _Points,
    y: _Vector,
    weights: _Vector | None,
    costs: Sequence[float],
    gammas: Sequence[float],
    epsilons: Sequence[float],
    folds: int,
    fold_of: npt.NDArray[np.int64],
    counts: _Vector | None = None,
    race: float | None = None,
    report: _Report | None = None,
    score: str | None = None,
    keep_scores: bool = False,
    remote: Callable[[list[dict[str, Any]]], list[list[dict[str, Any]]]] | None = None,
) -> dict[str, Any]: ...
def tune_task(
    params: _Params,
    x: _Points,
    y: _Vector,
    weights: _Vector | None,
    costs: Sequence[float],
    gammas: Sequence[float],
    epsilons: Sequence[float],
    folds: int,
    fold_of: npt.NDArray[np.int64],
    counts: _Vector | None,
    race: float | None,
    score: str | None,
    keep_scores: bool,
    task: Mapping[str, Any],
    earlier: Sequence[tuple[int, Sequence[tuple[_Vector, _Vector, float]]]],
) -> tuple[list[dict[str, Any]], list[tuple[int, list[tuple[_Vector, _Vector, float]]]]]: ...
def is_score(name: str) -> bool: ...
def export_onnx(
    params: _Params,
    parts: _Parts,
    scaling: _Scaling | None = None,
    columns: Sequence[str] = ...,
    metadata: Sequence[tuple[str, str]] = ...,
) -> bytes: ...
def export_native(
    params: _Params, parts: _Parts, scaling: _Scaling | None = None, columns: str | None = None
) -> bytes: ...
def export_libsvm(params: _Params, parts: _Parts) -> str: ...
def read_native(bytes: bytes, name: str) -> dict[str, Any]: ...
def gamma_of(x: _Points, rule: str) -> float: ...
def read_libsvm(bytes: bytes, name: str) -> dict[str, Any]: ...
def loss_names() -> list[tuple[str, str, bool, bool]]: ...
def loss_properties(name: str) -> dict[str, Any]: ...
def loss_values(name: str, y: _Vector, z: _Vector) -> tuple[_Vector, _Vector]: ...
def linear_width(params: _Params, rows: _Rows) -> float: ...
def linear_pass(
    params: _Params,
    rows: _Rows,
    smoothing: Mapping[str, Any],
    w: _Vector,
    b: float,
    direction: tuple[_Vector, float] | None = None,
    steps: Sequence[float] = ...,
    moments: str = "none",
    means: _Vector | None = None,
) -> dict[str, Any]: ...
def linear_centre(params: _Params, rows: _Rows, smoothing: Mapping[str, Any], w: _Vector, b: float) -> _Vector: ...
def linear_product(
    params: _Params,
    rows: _Rows,
    smoothing: Mapping[str, Any],
    w: _Vector,
    b: float,
    p: _Vector,
    p_b: float,
) -> tuple[_Vector, float]: ...
def linear_direction(
    packed: _Vector,
    first: _Vector,
    means: _Vector | None,
    total: float,
    gradient: _Vector,
    bias: tuple[float, float],
) -> tuple[_Vector, float] | None: ...
def certify_rows(
    params: _Params, rows: _Rows, w: _Vector, b: float, beta: _Vector, factors: tuple[float, float]
) -> dict[str, Any]: ...
def balance_parts(parts: Sequence[Mapping[str, Any]]) -> tuple[float, float]: ...
def combine_linear_parts(
    params: _Params, parts: Sequence[Mapping[str, Any]], scaling: float | None, w: _Vector, b: float
) -> dict[str, Any]: ...
def combine_kernel_parts(params: _Params, parts: Sequence[Mapping[str, Any]], b: float) -> dict[str, Any]: ...
def kernel_scores(params: _Params, x: _Points, centres: _Points, coefficients: _Vector) -> _Vector: ...
def kernel_block(params: _Params, x: _Points, centres: _Points) -> _Matrix: ...
def worst_rows(
    params: _Params, y: _Vector, costs: _Vector, z: _Vector, b: float, beta: _Vector, count: int
) -> tuple[npt.NDArray[np.uint32], _Vector, _Vector, dict[str, Any]]: ...
def solve_rows(
    params: _Params,
    x: _Points,
    y: _Vector,
    costs: _Vector,
    offsets: _Vector,
    beta: _Vector,
    sum: float | None,
) -> tuple[_Vector, float, str]: ...
def certify_kernel_rows(
    params: _Params,
    x: _Points,
    centres: _Points,
    coefficients: _Vector,
    y: _Vector,
    costs: _Vector,
    b: float,
    beta: _Vector,
) -> dict[str, Any]: ...
