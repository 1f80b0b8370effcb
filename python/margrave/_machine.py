"""Base classes of the kernel models: fitting, fitted attributes, scores."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from numbers import Integral, Real
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, _fit_context
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils._param_validation import Hidden, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _ovr_decision_function
from sklearn.utils.validation import (
    _num_samples,
    check_consistent_length,
    check_is_fitted,
)

from . import _core
from ._callbacks import CallbackSupportMixin, with_callbacks
from ._card import rows_of, to_host
from ._prepare import check_fit, check_rows, check_square, class_codes, class_factors, dense, several
from ._spec import (
    EXTRA,
    KERNELS,
    MEMORY,
    SMALL,
    cut_short,
    finish,
    model_parts,
    params,
    points,
    report_of,
    resolve_gamma,
    threads,
    without,
)

if TYPE_CHECKING:
    from typing_extensions import Self

#: Up to this many samples the solver aims at the violation `EXACT_TOL`: it costs next to nothing.
EXACT_SAMPLES = 256
EXACT_TOL = 1e-11

#: Version of the state that `pickle` stores of an estimator.
STATE_VERSION = 1

#: Kernel entries per call of a kernel that is a Python function.
BLOCK = 1 << 22

#: Everything that the engine's form of a fitted model is made of.
_SOURCES = (
    "support_vectors_",
    "_dual_coef_",
    "_intercept_",
    "_n_support",
    "_probA",
    "_probB",
    "_rho",
    "_threshold",
    "_gamma",
    "_kernel_name",
    "shape_fit_",
    "classes_",
    "degree",
    "coef0",
    "nu",
    "loss",
)

#: Up to this many samples the linear kernel is trained in the dual, so that `dual_coef_` is exact.
DUAL_LINEAR_SAMPLES = 3000


#: Parameters that were found valid: the class, and type and value of each.
_VALID: set[tuple[Any, ...]] = set()

#: Names of the parameters of each class.
_NAMES: dict[type, tuple[str, ...]] = {}


def store_threshold(estimator: Any, threshold: Any) -> None:
    """Set the attributes of a threshold, given as a tuple of the engine or None."""
    estimator._threshold = threshold
    estimator.threshold_ = 0.0 if threshold is None else threshold[0]
    for name in ("threshold_precision_", "threshold_recall_"):
        estimator.__dict__.pop(name, None)
    if threshold is not None:
        estimator.threshold_precision_, estimator.threshold_recall_ = threshold[3:]


class _Native:
    """The engine's own form of a fitted model, kept between predictions.

    It is a function of the fitted attributes: `get` makes it again once one of them was replaced. It belongs to one
    estimator. Copies and pickles do not contain it.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[tuple[Any, ...], Any] | None = None

    def get(self, sources: tuple[Any, ...], make: Any) -> Any:
        """What `make` returned for the same objects `sources`; compared by identity."""
        kept = self._kept
        if kept is not None and len(kept[0]) == len(sources) and all(map(is_, kept[0], sources)):
            return kept[1]
        made = make()
        # One assignment: other threads see the old pair or the new one.
        self._kept = (sources, made)
        return made


class _Versioned:
    """Pickles carry the version of their state."""

    def _validate_params(self) -> None:
        """Validate the parameters; the same values are not validated twice."""
        cls = type(self)
        names = _NAMES.get(cls)
        if names is None:
            names = _NAMES[cls] = tuple(cls._get_param_names())
        values = [getattr(self, name) for name in names]
        key = (cls, *map(type, values), *values)
        try:
            if key in _VALID:
                return
        except TypeError:  # a value without a hash
            super()._validate_params()
            return
        super()._validate_params()
        if len(_VALID) >= 256:
            _VALID.clear()
        _VALID.add(key)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state = dict(state if state is not None else self.__dict__)
        state.pop("_prepared", None)
        state["_margrave_state"] = STATE_VERSION
        return state

    def __setstate__(self, state: Any) -> None:
        state = dict(state)
        version = state.pop("_margrave_state", 0)
        if version > STATE_VERSION:
            raise ValueError(
                f"this {type(self).__name__} was pickled by a newer margrave (state {version}, known {STATE_VERSION}):"
                " install that version"
            )
        super().__setstate__(state)
        if "_dual_coef_" in state:
            self._prepared = _Native()


class _KernelModel(_Versioned, CallbackSupportMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of SVC, SVR, NuSVC, NuSVR and OneClassSVM."""

    _parameter_constraints: dict[str, Any] = {
        "kernel": [StrOptions(KERNELS), callable],
        "degree": [Interval(Integral, 0, None, closed="left")],
        "gamma": [StrOptions({"scale", "auto", "median"}), Interval(Real, 0.0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "tol": [Interval(Real, 0.0, None, closed="neither")],
        "C": [Interval(Real, 0.0, None, closed="right")],
        "nu": [Interval(Real, 0.0, 1.0, closed="right")],
        "epsilon": [Interval(Real, 0.0, None, closed="left")],
        "shrinking": ["boolean"],
        "probability": ["boolean", Hidden(StrOptions({"deprecated"}))],
        "cache_size": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "verbose": ["verbose"],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "random_state": ["random_state"],
        "intervals": ["boolean"],
        "warm_start": ["boolean"],
        **EXTRA,
    }

    #: "classify", "regress" or "novelty".
    _task: str

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags

    @property
    def _sign(self) -> Any:
        """Factor between scikit-learn's signs of coefficients and biases and those of the engine."""
        return -1.0 if self._task == "classify" else 1.0

    # Different in each estimator.

    @abstractmethod
    def _own_params(self) -> Any:
        """Arguments of `_spec.params` that only this estimator has."""

    @abstractmethod
    def _encode(self, y: Any, sample_weight: Any, removed: Any = False) -> Any:
        """Targets for the engine, and factors on the sample weights. `removed`: samples of weight 0 were left out."""

    # Fitting.

    @_fit_context(prefer_skip_nested_validation=True)
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features) or (n_samples, n_samples)
            Training points, or the kernel matrix for `kernel="precomputed"`. Arrays of float32 and float64 are not
            copied. An array of CuPy or PyTorch in the memory of a card is used there, by that card.
        y : array-like of shape (n_samples,), or (n_samples, n_targets) for regression
            Labels or real targets. Several targets are fitted one after the other, or together for the square loss; all
            share one set of support vectors.
        sample_weight : array-like of shape (n_samples,), default=None
            Factors on C. A weight of 2 is the same as two copies of the sample; samples of weight 0 or less are left
            out.

        Returns
        -------
        self : object
            The fitted estimator, with `certificate_` and `history_`.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        sparse = sp.issparse(X)
        if sparse and self.kernel == "precomputed":
            raise TypeError("Sparse precomputed kernels are not supported.")
        self._sparse = sparse and not callable(self.kernel)
        if callable(self.kernel):
            check_consistent_length(X, y)
        else:
            card = self.kernel != "precomputed"
            if self._task == "novelty":
                X = check_fit(self, X, card=card)
            else:
                options = {"multi_output": True} if self._task == "regress" and several(y) else {}
                X, y = check_fit(self, X, y, card=card, **options)
        n = _num_samples(X)
        if self.kernel == "precomputed":
            check_square(X)
        weights = self._weights(X, n, sample_weight)
        shape = X.shape if hasattr(X, "shape") else (n,)
        X, y, weights, kept = self._drop_unweighted(X, y, weights)
        y, factors = self._encode(y, weights, removed=kept is not None)
        self._kernel_name = "precomputed" if callable(self.kernel) else self.kernel
        self._gamma = 0.0 if self._kernel_name == "precomputed" else resolve_gamma(self.gamma, X, weights)
        if not self._gamma > 0 and self._kernel_name not in ("precomputed", "linear"):
            raise ValueError(
                f"The dual coefficients or intercepts are not finite with gamma = {self._gamma}. The input data may"
                " contain large values and need to be preprocessed."
            )
        K = self._gram(X) if callable(self.kernel) else X
        report = report_of(self, X, y)
        # Work is counted in stored values.
        width = K.nnz / max(K.shape[0], 1) if sp.issparse(K) else K.shape[1]
        spec = self._params(_num_samples(X), width, fitting=True)
        spec["leave_one_out"] = getattr(self, "_wants_left_out", False)
        if factors is not None and (factors != 1).any():
            # Apart from the weights: probabilities estimate frequencies, in which a sample counts by its weight alone.
            spec["class_weight"] = [float(factor) for factor in self.class_weight_]
        outputs = y.shape[1] if y is not None and y.ndim == 2 else 1
        start = self._start(X, y, kept) if getattr(self, "warm_start", False) and outputs == 1 else None
        targets = y if outputs == 1 else np.ascontiguousarray(y).ravel()
        result = _core.fit(spec, points(K), targets, weights, report, outputs, start)
        self.shape_fit_ = shape
        self._store_fit(result, X, y, kept)
        short = any(machine["status"] != "optimal" for machine in result["machines"])
        self.fit_status_ = int(short or cut_short(result["machines"], self.max_iter))
        finish(self, result, self.max_iter, report)
        return self

    def _start(self, X: Any, y: Any, kept: Any) -> Any:
        """The last fit as `_core` takes it; None if it was not one of these rows and classes."""
        last = getattr(self, "_started", None)
        rows = getattr(self, "support_", None)
        if last is None or rows is None or kept is not None or self.shape_fit_[0] != _num_samples(X):
            return None
        kernel, classes = last
        now = getattr(self, "classes_", None) if self._task == "classify" else None
        same_classes = classes is None if now is None else classes is not None and np.array_equal(classes, now)
        if kernel != self._kernel_name or not same_classes or not rows.size:
            return None
        order = np.argsort(rows)
        centres = self.support_vectors_
        if self._kernel_name != "precomputed":
            if centres.shape[1] != X.shape[1] or sp.issparse(centres) != sp.issparse(X):
                return None
            different = centres != (rows_of(X, rows) if type(X) is _core.CardArray else X[rows])
            if different.nnz if sp.issparse(different) else different.any():
                return None
            centres = centres[order]
        if now is not None and not np.array_equal(np.repeat(np.arange(len(now)), self._n_support), y[rows]):
            return None
        parts = self._parts(centres)
        parts["rows"] = np.ascontiguousarray(rows[order])
        parts["coefficients"] = np.ascontiguousarray(parts["coefficients"][order])
        if parts["class_of"] is not None:
            parts["class_of"] = np.ascontiguousarray(parts["class_of"][order])
        if self._kernel_name == "precomputed":
            parts["width"] = self.shape_fit_[0]
        return parts

    def _weights(self, X: Any, n: Any, sample_weight: Any) -> Any:
        if sample_weight is None:
            return None
        weights = np.asarray(to_host(sample_weight), dtype=np.float64)
        if weights.ndim == 0:
            weights = np.full(n, float(weights))
        if weights.shape != (n,):
            raise ValueError(
                f"sample_weight and X have incompatible shapes: {weights.shape} vs {getattr(X, 'shape', (n,))}"
            )
        if not np.isfinite(weights).all():
            raise ValueError("Input sample_weight contains NaN or infinity.")
        return np.ascontiguousarray(weights)

    def _drop_unweighted(self, X: Any, y: Any, weights: Any) -> Any:
        """X, y and weights of the samples of positive weight, and their row numbers; None if those are all samples."""
        if weights is None or (weights > 0).all():
            return X, y, weights, None
        if not (weights > 0).any():
            raise ValueError("Invalid input - all samples have zero or negative weights.")
        kept = np.flatnonzero(weights > 0)
        X = X.take(kept) if type(X) is _core.CardArray else _safe_indexing(X, kept)
        if self.kernel == "precomputed":
            X = np.ascontiguousarray(X[:, kept])
        y = None if y is None else _safe_indexing(y, kept)
        return X, y, weights[kept], kept

    def _params(self, n: Any, d: Any, fitting: Any = False, width: Any = None) -> Any:
        """Parameters for `_core`: a fit to n samples of d features, or scores of n samples with `width` centres."""
        own = self._own_params()
        box = own.get("loss") in (None, "hinge", "epsilon")
        solver = self.solver
        if fitting and solver == "auto" and self._kernel_name == "linear" and n <= DUAL_LINEAR_SAMPLES and box:
            solver = "decomposition"
        # A model on few centres stops at its gap.
        approximate = own.get("approx") is not None
        box = box and not approximate
        aim = EXACT_TOL if fitting and n <= EXACT_SAMPLES and self.max_iter < 0 and box else None
        work = float(n) * n * max(d, 1) if fitting else float(n) * max(d, 1) * max(width, 1)
        return params(
            self._task,
            kernel=self._kernel_name,
            gamma=self._gamma,
            degree=self.degree,
            coef0=self.coef0,
            solver=solver,
            tol=None if approximate else self.tol,
            aim=aim,
            gap_tol=self.gap_tol,
            max_seconds=self.max_seconds,
            max_iter=None if self.max_iter < 0 else self.max_iter,
            memory=max(MEMORY, int(self.cache_size * (1 << 20))),
            threads=threads(self.n_jobs, work),
            small=work < SMALL,
            device=self.device,
            **own,
        )

    def _approximate_params(self) -> Any:
        """The parameters of a model on few centres."""
        approx = getattr(self, "approx", None)
        if approx is not None and len(getattr(self, "classes_", ())) > 2:
            raise ValueError(
                "approx= is for two classes: wrap the estimator in sklearn.multiclass.OneVsRestClassifier for more"
            )
        return {"approx": approx, "certify": getattr(self, "certify", None), "polish": getattr(self, "polish", False)}

    def _gram(self, X: Any, Y: Any = None) -> Any:
        """The kernel function between X and Y (default: X itself), a block of rows per call."""
        Y = X if Y is None else Y
        n, m = _num_samples(X), _num_samples(Y)
        step = max(1, BLOCK // max(m, 1))
        blocks = []
        for start in range(0, n, step):
            rows = X if step >= n else _safe_indexing(X, slice(start, min(start + step, n)))
            block = self.kernel(rows, Y)
            block = np.asarray(dense(block), dtype=np.float64)
            if block.shape != (_num_samples(rows), m):
                raise ValueError(
                    f"the kernel function returned an array of shape {block.shape} where {(_num_samples(rows), m)} was"
                    " expected: X.shape[0] should be equal to X.shape[1] for the training data"
                )
            blocks.append(block)
        return np.ascontiguousarray(blocks[0] if len(blocks) == 1 else np.vstack(blocks), dtype=np.float64)

    def _store_fit(self, result: Any, X: Any, y: Any, kept: Any) -> Any:
        """Set the fitted attributes, support vectors in LIBSVM's order: by class, then by row."""
        rows, coefficients, bias = result["rows"], result["coefficients"], result["bias"]
        if self._task == "classify":
            order = np.lexsort((rows, y[rows]))
            rows, coefficients = rows[order], coefficients[order]
            counts = np.bincount(y[rows].astype(np.intp), minlength=len(self.classes_))
            self._n_support = counts.astype(np.int32)
        else:
            self._n_support = np.array([len(rows), len(rows)], dtype=np.int32)
        self.support_ = rows if kept is None else kept[rows].astype(np.int32)
        self._centres = None
        if self._kernel_name == "precomputed":
            self.support_vectors_ = np.empty((0, 0))
            if callable(self.kernel):
                # If X is not an array, the kernel is called with all of it, as in scikit-learn.
                self._centres = _safe_indexing(X, rows) if hasattr(X, "shape") else X
                self._columns = None if hasattr(X, "shape") else rows
        else:
            self.support_vectors_ = rows_of(X, rows) if type(X) is _core.CardArray else X[rows]
        raw = np.ascontiguousarray(self._sign * coefficients.T)
        self._w = result.get("weights")
        dual = sp.csr_matrix(raw) if self._sparse else raw
        if self._sparse and raw.size and not raw.all():
            # Zeros stay explicit, as in LIBSVM.
            k, m = raw.shape
            dual = sp.csr_matrix((raw.ravel(), np.tile(np.arange(m), k), np.arange(0, k * m + 1, m)), shape=(k, m))
        self._store_dual(dual, self._sign * bias)
        iterations = np.array([max(1, one["iterations"]) for one in result["machines"]], dtype=np.int32)
        self.n_iter_ = iterations if self._task == "classify" or len(iterations) > 1 else int(iterations[0])
        self._rho = np.array([one["rho"] for one in result["machines"]])
        self._radii = result.get("radii")
        self._started = (self._kernel_name, getattr(self, "classes_", None) if kept is None else ())
        self._probA = result.get("sigmoid_a", np.empty(0))
        # LIBSVM's sigmoid takes the score of the first class of a pair, ours that of the second.
        self._probB = -result["sigmoid_b"] if "sigmoid_b" in result else np.empty(0)
        self._prob_below = result.get("sigmoid_below")
        if self._probA.size:
            self.probability_rule_ = result["probability_rule"]
            self.probability_reason_ = result["probability_reason"]
            self.probability_threshold_ = result["probability_threshold"]
        self._left_out = result.get("left_out")
        if self._task == "classify":
            store_threshold(self, result.get("threshold"))

    def _store_dual(self, dual: Any, intercept: Any) -> Any:
        """Set coefficients and intercepts, given with LIBSVM's signs; scikit-learn's are opposite for two classes."""
        self._dual_coef_, self._intercept_ = dual, intercept
        self._prepared = _Native()
        two = self._task == "classify" and len(self.classes_) == 2
        self.dual_coef_ = -dual if two else dual
        self.intercept_ = -intercept if two else intercept.copy()

    # Predicting.

    def _parts(self, centres: Any) -> Any:
        """The fitted model as `_core` takes it, with the signs of the engine."""
        dual = dense(self._dual_coef_)
        m = dual.shape[1]
        classes = getattr(self, "classes_", None) if self._task == "classify" else None
        class_of = None
        if classes is not None and len(classes) > 2:
            class_of = np.repeat(np.arange(len(classes), dtype=np.int32), self._n_support)
        lookup = self._kernel_name == "precomputed"
        return model_parts(
            np.ascontiguousarray(self._sign * dual.T),
            np.ascontiguousarray(self._sign * self._intercept_),
            rows=np.arange(m, dtype=np.int32),
            width=m if lookup else centres.shape[1],
            n=self.shape_fit_[0],
            centres=None if lookup else points(centres),
            class_of=class_of,
            labels=[] if classes is None else [float(c) for c in range(len(classes))],
            sigmoid_a=self._probA if self._probA.size else None,
            sigmoid_b=-self._probB if self._probB.size else None,
            sigmoid_below=getattr(self, "_prob_below", None),
            probability_rule=getattr(self, "probability_rule_", "agree"),
            threshold=getattr(self, "_threshold", None),
            rho=self._rho,
        )

    def _engine(self, centres: Any) -> Any:
        """The fitted model in the engine, made once. `centres` are the support vectors, or a copy in another storage."""
        native = getattr(self, "_prepared", None)

        def make() -> Any:
            # What is fitted decides, with the kernel; size and threads of a prediction do not.
            return _core.Machine(self._params(1, 1, width=1), self._parts(centres))

        if native is None or (centres is not self.support_vectors_ and self._kernel_name != "precomputed"):
            return make()
        fitted = self.__dict__
        return native.get(tuple([fitted.get(name) for name in _SOURCES]), make)

    def _check_predict(self, X: Any) -> Any:
        check_is_fitted(self)
        if not callable(self.kernel):
            X = check_rows(self, X, card=self.kernel != "precomputed")
        if sp.issparse(X) and self.kernel == "precomputed":
            raise TypeError("Sparse precomputed kernels are not supported.")
        if self.kernel == "precomputed" and X.shape[1] != self.shape_fit_[0]:
            raise ValueError(
                f"X.shape[1] = {X.shape[1]} should be equal to {self.shape_fit_[0]},"
                " the number of samples at training time"
            )
        sv = self.support_vectors_
        if not self._sparse and sv.size > 0 and self._support_count() != sv.shape[0]:
            raise ValueError(f"The internal representation of {type(self).__name__} was altered")
        return X

    def _scores(self, X: Any) -> Any:
        """Scores with the sign of the engine, one column per binary model: positive for the second class of a pair."""
        X = self._check_predict(X)
        centres = self.support_vectors_
        if type(X) is _core.CardArray and (self._w is not None or self._sparse):
            # Weights and sparse centres are multiplied on the processor.
            X = X.copy()
        if callable(self.kernel):
            X = self._gram(X, self._centres)
            if self._columns is not None:
                X = np.ascontiguousarray(X[:, self._columns])
        elif self._kernel_name == "precomputed":
            X = np.ascontiguousarray(X[:, self.support_])
        elif self._w is not None:
            w = self._w.reshape(X.shape[1], -1)
            return np.ascontiguousarray(X @ w + self._sign * self._intercept_)
        elif sp.issparse(X) and not self._sparse:
            centres = sp.csr_matrix(centres)
        elif self._sparse and not sp.issparse(X):
            X = sp.csr_matrix(X)
        if self._dual_coef_.shape[1] == 0:
            return np.tile(self._sign * self._intercept_, (_num_samples(X), 1))
        work = float(X.shape[0]) * max(X.shape[1], 1) * self._dual_coef_.shape[1]
        return self._engine(centres).scores(points(X), threads(self.n_jobs, work), work < SMALL)

    @property
    def coef_(self) -> Any:
        """Weights of the features, for `kernel="linear"`."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        coef = self._coef()
        (coef.data if sp.issparse(coef) else coef).flags.writeable = False
        return coef

    def _coef(self) -> Any:
        return self._product(self._dual_coef_, self.support_vectors_)

    def _product(self, dual: Any, centres: Any) -> Any:
        coef = dual @ centres
        if sp.issparse(coef) or not sp.issparse(centres):
            return coef
        return sp.csr_matrix(coef)

    @property
    def n_support_(self) -> Any:
        """Number of support vectors of each class."""
        try:
            check_is_fitted(self)
        except NotFittedError as error:
            raise AttributeError(str(error)) from error
        return self._n_support if self._task == "classify" else self._n_support[:1]

    def _support_count(self) -> Any:
        """Number of support vectors, as they are counted by class."""
        return self._n_support.sum() if self._task == "classify" else self._n_support[0]


class _Classifier(ClassifierMixin, _KernelModel, metaclass=ABCMeta):
    """Base of SVC and NuSVC."""

    _parameter_constraints: dict[str, Any] = {
        **without(_KernelModel._parameter_constraints, "epsilon", "intervals"),
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
        "break_ties": ["boolean"],
        "probability_rule": [StrOptions({"auto", "agree", "free"})],
        "threshold": [None, str],
    }
    _task = "classify"

    def _encode(self, y: Any, sample_weight: Any, removed: Any = False) -> Any:
        labels = column_or_1d(y, warn=True) if callable(self.kernel) else y
        classes, codes = class_codes(labels)
        if len(classes) < 2:
            if removed:
                nu = ": specified nu is infeasible" if hasattr(self, "nu") else ""
                raise ValueError(f"Invalid input - all samples with positive weights belong to the same class{nu}.")
            raise ValueError(f"The number of classes has to be greater than one; got {len(classes)} class")
        self.class_weight_ = class_factors(self.class_weight, classes, labels, sample_weight)
        self.classes_ = classes
        return codes.astype(np.float64), self.class_weight_[codes]

    def _coef(self) -> Any:
        two = self.dual_coef_.shape[0] == 1
        if two:
            if self._w is not None:
                return self._w.reshape(1, -1).copy()
            return self._product(self.dual_coef_, self.support_vectors_)
        ends = np.concatenate([[0], np.cumsum(self._n_support)])
        spans = [slice(ends[c], ends[c + 1]) for c in range(len(self.classes_))]
        dual, sv = self.dual_coef_, self.support_vectors_
        rows = []
        for i in range(len(self.classes_)):
            for j in range(i + 1, len(self.classes_)):
                first, second = spans[i], spans[j]
                rows.append(dual[[j - 1]][:, first] @ sv[first] + dual[[i]][:, second] @ sv[second])
        if sp.issparse(rows[0]):
            return sp.vstack(rows).tocsr()
        return np.vstack(rows)

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Scores of the samples.

        Returns
        -------
        ndarray of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_classes * (n_classes - 1) / 2)
            For two classes, positive means the second class. For more, one column per class
            (`decision_function_shape="ovr"`: votes, with ties ordered by the summed scores) or one per pair of classes
            ("ovo": positive means the first class of the pair).
        """
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return scores.ravel()
        if self.decision_function_shape == "ovr":
            return _ovr_decision_function(scores > 0, scores, len(self.classes_))
        return -scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Class of each sample."""
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        if self.break_ties and len(self.classes_) > 2:
            return self.classes_[np.argmax(self.decision_function(X), axis=1)]
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return self.classes_[(scores.ravel() > getattr(self, "threshold_", 0.0)).astype(np.intp)]
        return self.classes_[_core.votes(len(self.classes_), scores)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of the predictions."""
        return super().score(X, to_host(y), to_host(sample_weight))

    def _has_probability(self) -> Any:
        if not self._wants_probability():
            raise AttributeError("predict_proba is not available when probability=False")
        return True

    def _probability_params(self) -> dict[str, Any]:
        rule = getattr(self, "probability_rule", "auto")
        own = {"probability": self._wants_probability(), "probability_rule": rule}
        return {**own, "threshold": getattr(self, "threshold", None)}

    def _wants_probability(self) -> Any:
        return self.probability is not False and self.probability != "deprecated" and bool(self.probability)

    @available_if(_has_probability)
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities of the classes, in the order of `classes_`.

        They are calibrated on leave-one-out scores, which follow from the fit, or on folds where those would be coarse:
        nothing is random. Samples count by their weights. If `probability_rule_` is "agree", the most probable class is the
        one that `predict` returns. If it is "free", the probabilities estimate frequencies whatever is predicted; with
        two classes `predict` then returns the second where its probability exceeds `probability_threshold_`.
        """
        scores = self._scores(X)
        if self._probA.size == 0:
            raise NotFittedError("predict_proba is not available when fitted with probability=False")
        return self._engine(self.support_vectors_).probabilities(scores)

    @available_if(_has_probability)
    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Logarithms of the probabilities."""
        return np.log(self.predict_proba(X))

    @property
    def probA_(self) -> Any:
        """Slopes of the sigmoids, if fitted with `probability=True`: on the side of the second class, where they differ."""
        return self._probA

    @property
    def probB_(self) -> Any:
        """Offsets of the sigmoids, if fitted with `probability=True`."""
        return self._probB


class _Regressor(RegressorMixin, _KernelModel, metaclass=ABCMeta):
    """Base of SVR and NuSVR."""

    _task = "regress"

    def _encode(self, y: Any, sample_weight: Any, removed: Any = False) -> Any:
        if several(y):
            return np.ascontiguousarray(y, dtype=np.float64), None
        return column_or_1d(y, warn=True).astype(np.float64, copy=False), None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, return_interval: float | None = None) -> Any:
        """Predicted value of each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features) or (n_samples, n_samples_fit)
            Points, or their kernel with the training points.
        return_interval : float, default=None
            Coverage between 0.5 and 0.99: also return intervals that contain this share of targets. Needs
            `intervals=True`.

        Returns
        -------
        values : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions.
        intervals : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
            Lower and upper ends, if `return_interval` is given. All have the same width: a quantile of the absolute
            leave-one-out residuals of the fit.
        """
        scores = self._scores(X)
        values = scores.ravel() if scores.shape[1] == 1 else scores
        if return_interval is None:
            return values
        radius = self._radius(return_interval)
        return values, np.stack([values - radius, values + radius], axis=-1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions."""
        return super().score(X, to_host(y), to_host(sample_weight))

    def _radius(self, coverage: Any) -> Any:
        """Half the width of the intervals of this coverage: one number, or one per target."""
        if getattr(self, "_radii", None) is None:
            raise ValueError("intervals were not fitted: set intervals=True and fit again")
        shares = np.array(self._radii[0])[:, 0]
        if (
            coverage is True
            or not isinstance(coverage, (int, float, np.number))
            or not shares[0] <= coverage <= shares[-1]
        ):
            raise ValueError(
                f"return_interval is a coverage between {shares[0]:g} and {shares[-1]:g}, but it is {coverage!r}"
            )
        found = [float(np.interp(float(coverage), shares, np.array(own)[:, 1])) for own in self._radii]
        return found[0] if len(found) == 1 else np.array(found)

    def _coef(self) -> Any:
        if self._w is not None:
            return np.ascontiguousarray(self._w.reshape(-1, len(self._intercept_)).T)
        return super()._coef()
