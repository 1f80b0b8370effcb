"""Model files: ONNX, LIBSVM's text, Margrave's own."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._certificate import Certificate
from ._linear import LinearSVC, LinearSVR
from ._machine import _KernelModel, store_threshold
from ._novelty import OneClassSVM
from ._pipeline import scaling_of, split, table_of
from ._prepare import linear_weights
from ._ridge import KernelRidge
from ._spec import model_parts, params
from ._svm import SVC, SVR, NuSVC, NuSVR
from ._table import from_schema, to_schema


def _labels(classes: Any) -> list[Any]:
    """Labels as a file can store them: numbers or strings."""
    if np.issubdtype(classes.dtype, np.number) or classes.dtype == bool:
        return [float(label) for label in classes]
    return [str(label) for label in classes]


def _spec_and_parts(estimator: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A fitted estimator as `_core` takes it."""
    check_is_fitted(estimator)
    if isinstance(estimator, _KernelModel):
        if callable(estimator.kernel):
            raise ValueError("a kernel that is a Python function cannot be written to a file")
        spec = estimator._params(1, 1, width=1)
        parts = estimator._parts(estimator.support_vectors_)
        if estimator._task == "classify":
            parts["labels"] = _labels(estimator.classes_)
        if estimator._kernel_name == "precomputed":
            parts.update(rows=np.ascontiguousarray(estimator.support_), width=estimator.shape_fit_[0])
        else:
            # Row numbers of the training data, in its order within every class.
            parts["rows"] = np.ascontiguousarray(estimator.support_)
        return spec, parts
    if isinstance(estimator, (LinearSVC, LinearSVR)):
        classify = isinstance(estimator, LinearSVC)
        coef, bias = linear_weights(estimator)
        loss = estimator.loss if isinstance(estimator.loss, str) else None
        spec = params("classify" if classify else "regress", C=estimator.C, loss=loss)
        return spec, model_parts(
            np.empty((0, len(coef))),
            bias,
            rows=np.empty(0, dtype=np.int32),
            width=coef.shape[1],
            n=0,
            labels=_labels(estimator.classes_) if classify else [],
            threshold=getattr(estimator, "_threshold", None),
            weights=coef,
        )
    if isinstance(estimator, KernelRidge):
        if not estimator._native():
            raise ValueError("a KernelRidge can be written to a file only with a kernel of Margrave")
        alpha = np.unique(np.asarray(estimator.alpha, dtype=np.float64))
        # A file has one C: it says nothing of targets with penalties of their own, or of none.
        cost = 1.0 / alpha[0] if alpha.size == 1 and alpha[0] > 0 else 1.0
        spec = estimator._params(estimator.X_fit_, 0.0, C=cost, loss=estimator.loss or "square")
        return spec, estimator._parts(estimator.X_fit_)
    raise TypeError(f"{type(estimator).__name__} cannot be written: pass a fitted estimator of margrave")


def _write(content: str | bytes, path: str | os.PathLike[str] | None) -> None:
    if path is not None:
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)


def _names(estimator: Any) -> list[str] | None:
    """Names of the features that an estimator or a pipeline was fitted to, if it knows them."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def export_onnx(
    estimator: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    columns: bool | Sequence[str] = False,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Export a fitted estimator, or a pipeline that ends with one, to ONNX.

    Parameters
    ----------
    estimator : fitted estimator or Pipeline
        An estimator of margrave. The steps of a pipeline before it must be `StandardScaler`, `MinMaxScaler`,
        `MaxAbsScaler`, `RobustScaler` or "passthrough"; the first may be a `TablePreprocessor`, which is not part of the
        ONNX model: apply its ``transform`` before. The inputs are then its ``get_feature_names_out``.
    path : path, default=None
        File to write.
    columns : bool or sequence of str, default=False
        False: one input, a double tensor `X` of shape (n, n_features). True: one input of shape (n, 1) per feature,
        with the names of the training data. Names: the same with these names.
    metadata : dict of str, default=None
        Further entries of the metadata. The name of the estimator, its classes, the names of the features, the task, the
        kernel, the loss and the result of the certificate are always there.

    Returns
    -------
    bytes
        The model.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import SVC, export_onnx
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = np.arange(12.0).reshape(6, 2), [0, 0, 0, 1, 1, 1]
    >>> model = export_onnx(make_pipeline(StandardScaler(), SVC()).fit(X, y), columns=["length", "width"])
    >>> type(model)
    <class 'bytes'>
    """
    before, last = split(estimator)
    table, before = table_of(before)
    spec, parts = _spec_and_parts(last)
    known = _names(estimator) if table is None else [str(name) for name in table.get_feature_names_out()]
    if columns is True and known is None:
        raise ValueError("columns=True needs the names of the features: fit with a DataFrame, or give the names")
    named = known if columns is True else None if columns is False else [str(name) for name in columns]
    entries = {"estimator": type(last).__name__}
    if hasattr(last, "classes_"):
        entries["classes"] = json.dumps(_labels(last.classes_))
    if named or known:
        entries["feature_names"] = json.dumps(named or known)
    certificate = getattr(last, "certificate_", None)
    if certificate is not None and certificate.status is not None:
        entries["status"] = certificate.status
        if certificate.relative_gap is not None:
            entries["relative_gap"] = repr(float(certificate.relative_gap))
    entries.update({str(key): str(value) for key, value in (metadata or {}).items()})
    content = _core.export_onnx(spec, parts, scaling_of(before, parts["width"]), named or [], list(entries.items()))
    _write(content, path)
    return content


def to_libsvm(estimator: Any, path: str | os.PathLike[str] | None = None) -> str:
    """LIBSVM's model file of a fitted SVC, NuSVC, SVR, NuSVR or OneClassSVM, as text.

    Parameters
    ----------
    estimator : fitted estimator
        The model.
    path : path, default=None
        File to write.

    Returns
    -------
    str
        The content of the file.
    """
    if not isinstance(estimator, _KernelModel):
        raise TypeError(f"LIBSVM's format cannot store a {type(estimator).__name__}")
    content = _core.export_libsvm(*_spec_and_parts(estimator))
    _write(content, path)
    return content


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a native model file: lossless, and safe to open even from untrusted sources.

    Parameters
    ----------
    estimator : fitted estimator or Pipeline
        An estimator of margrave, or a pipeline of scalers and one, which may begin with a `TablePreprocessor`: the file
        then reads tables as that does.
    path : path
        File to write. `load` and the program `margrave` read it.
    """
    before, last = split(estimator)
    table, before = table_of(before)
    spec, parts = _spec_and_parts(last)
    columns = None if table is None else to_schema(table)
    _write(_core.export_native(spec, parts, scaling_of(before, parts["width"]), columns), path)


def _content(source: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    """The bytes of a file, and how messages call it."""
    if isinstance(source, bytes):
        return source, "the model"
    name = os.fspath(source)
    with open(name, "rb") as stream:
        return stream.read(), name


def load(source: str | os.PathLike[str] | bytes) -> Any:
    """Read a native model file, of `save` or of the program `margrave`, as a fitted estimator.

    Parameters
    ----------
    source : path, or the content of the file as bytes
        The file. Nothing in it is executed.

    Returns
    -------
    estimator or Pipeline
        Ready to predict: an SVC, NuSVC, SVR, NuSVR, OneClassSVM, LinearSVC, LinearSVR or KernelRidge, with the parameters
        and the certificate that the file holds. A model that scales its features becomes a `Pipeline` of a
        `StandardScaler` and the estimator; one that reads a table with words, dates or missing values begins with a
        `TablePreprocessor` and takes DataFrames.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from margrave import SVR, load, save
    >>> X = np.linspace(0, 3, 20).reshape(-1, 1)
    >>> model = SVR(C=10).fit(X, np.sin(X).ravel())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, os.path.join(folder, "sine.model"))
    ...     again = load(os.path.join(folder, "sine.model"))
    >>> bool(np.array_equal(again.predict(X), model.predict(X)))
    True
    """
    content, name = _content(source)
    file = _core.read_native(content, name)
    model = _native_linear(file) if "weights" in file else _native_kernel(file, name)
    model.certificate_ = Certificate.of_machines(file["machines"])
    model.history_ = []
    model.solver_ = file["solver"]
    names = file["columns"]
    steps = [] if file["schema"] is None else [("table", from_schema(file["schema"]))]
    if "shift" not in file:
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
        return Pipeline([*steps, ("model", model)]) if steps else model
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_ = file["shift"], 1.0 / file["factor"]
    scaler.var_ = scaler.scale_**2
    scaler.n_samples_seen_, scaler.n_features_in_ = file["n"], file["width"]
    if names is not None:
        scaler.feature_names_in_ = np.array(names, dtype=object)
    return Pipeline([*steps, ("scale", scaler), ("model", model)])


def _numbers(labels: Any) -> Any:
    """Labels as an array, of integers if they are."""
    array = np.array(labels)
    if np.issubdtype(array.dtype, np.floating) and (array == array.astype(np.int64)).all():
        array = array.astype(np.int64)
    return array


def _native_linear(file: dict[str, Any]) -> LinearSVC | LinearSVR:
    """A model given by its weights."""
    scaling = float("inf") if file["bias_is_free"] else file["intercept_scaling"]
    settings: dict[str, Any] = {
        "C": file["C"] or 1.0,
        "fit_intercept": scaling is not None,
        "loss": file["loss"] or "hinge",
    }
    settings["intercept_scaling"] = 1.0 if scaling is None else scaling
    coef, bias = np.ascontiguousarray(file["weights"].T), file["bias"]
    model: LinearSVC | LinearSVR
    if file["task"] == "classify":
        crammer = file["scheme"] == "crammer-singer"
        model = LinearSVC(
            penalty="l1" if file["l1"] else "l2", multi_class="crammer_singer" if crammer else "ovr", **settings
        )
        model.classes_ = _numbers(file["labels"])
        if len(coef) not in (1, len(model.classes_)):
            raise ValueError("linear models of pairs of classes cannot be read: train them with multiclass ovr")
        model.coef_ = coef
    elif file["task"] == "regress":
        if file["epsilon"] is not None:
            settings["epsilon"] = file["epsilon"]
        model = LinearSVR(**settings)
        model.coef_ = coef if file["scheme"] == "outputs" else coef.ravel()
    else:
        raise ValueError("linear models of novelty detection cannot be read in Python")
    model.intercept_ = bias if scaling is not None else 0.0
    model.n_features_in_ = file["width"]
    model.n_iter_ = max([1, *(one["iterations"] for one in file["machines"])])
    if file["task"] == "classify":
        _threshold(model, file)
    return model


def _threshold(model: Any, file: dict[str, Any]) -> None:
    """Set the threshold that a file has."""
    store_threshold(model, file["threshold"])
    if file["threshold"] is not None:
        model.threshold = file["threshold"][1]


def _native_kernel(file: dict[str, Any], name: str) -> Any:
    """A model given by its support vectors."""
    settings: dict[str, Any] = {"kernel": file["kernel"]}
    settings.update({key: file[key] for key in ("gamma", "coef0", "degree") if file.get(key) is not None})
    task, kind, loss = file["task"], file["formulation"], file["loss"]
    if task == "regress" and not file["bias_is_free"]:
        return _native_ridge(file, settings)
    if file["scheme"] not in ("one", "ovo", "outputs"):
        raise ValueError(f"{name} has the scheme {file['scheme']!r} for its classes: SVC has one model per pair")
    if kind == "cost":
        settings["C"] = file["C"]
        settings["loss"] = None if loss == "hinge" or file["epsilon"] is not None and loss.startswith("eps") else loss
        if file["epsilon"] is not None:
            settings["epsilon"] = file["epsilon"]
    else:
        settings["nu"] = file["nu"]
        if task == "regress":
            settings["C"] = file["C"]
    model: Any
    if task == "classify":
        model = SVC(**settings) if kind == "cost" else NuSVC(**settings)
    elif task == "regress":
        model = SVR(**settings) if kind == "cost" else NuSVR(**settings)
    else:
        model = OneClassSVM(**settings, loss="svdd" if kind == "svdd" else None)
    labels = _numbers(file["labels"])
    of = file.get("class_of")
    if of is None:
        # β is positive for the second class.
        of = (file["coefficients"][:, 0] > 0).astype(np.int32)
    _fill(model, file, labels, of, file["coefficients"], file["bias"], file["width"], file["sparse"])
    if file["class_weights"]:
        model.class_weight_ = np.array(file["class_weights"])
    model._rho = np.array([one["rho"] for one in file["machines"]])
    iterations = np.array([max(1, one["iterations"]) for one in file["machines"]], dtype=np.int32)
    model.n_iter_ = iterations if task == "classify" or len(iterations) > 1 else int(iterations[0])
    if task == "classify":
        _threshold(model, file)
    model._probA = file.get("sigmoid_a", np.empty(0))
    model._probB = -file["sigmoid_b"] if "sigmoid_b" in file else np.empty(0)
    model._prob_below = file.get("sigmoid_below")
    if model._probA.size:
        model.probability = True
        model.probability_rule_ = file["probability_rule"]
        model.probability_reason_ = file["probability_reason"]
        model.probability_threshold_ = file["probability_threshold"]
    if file.get("radii") is not None:
        model.intervals, model._radii = True, file["radii"]
    return model


def _native_ridge(file: dict[str, Any], settings: dict[str, Any]) -> KernelRidge:
    loss = None if file["loss"] == "square" else file["loss"]
    model = KernelRidge(alpha=1.0 / file["C"], loss=loss, **settings)
    m = len(file["rows"])
    centres = sp.csr_matrix((file["data"], file["indices"], file["indptr"]), shape=(m, file["width"]))
    model.X_fit_ = centres if file["sparse"] else centres.toarray()
    dual = file["coefficients"]
    model.dual_coef_ = dual.ravel() if file["scheme"] == "one" else dual
    model.n_features_in_ = file["width"]
    return model


def _fill(
    model: Any,
    file: dict[str, Any],
    labels: Any,
    of: Any,
    coefficients: Any,
    bias: Any,
    width: int,
    sparse: bool,
) -> None:
    """Set the fitted attributes of a kernel model from the parts of a file, with the signs of the engine."""
    m, lookup = len(file["rows"]), file["kernel"] == "precomputed"
    centres = sp.csr_matrix((file["data"], file["indices"], file["indptr"]), shape=(m, 0 if lookup else width))
    model._sparse = sparse and not lookup
    model._kernel_name = file["kernel"]
    model._gamma = file["gamma"] or 0.0
    model.n_features_in_ = width
    model.shape_fit_ = (file["n"], width)
    model.fit_status_ = 0
    order = np.arange(m)
    if model._task == "classify":
        model.classes_ = labels
        model.class_weight_ = np.ones(len(labels))
        order = np.argsort(of, kind="stable")
        model._n_support = np.bincount(of, minlength=len(labels)).astype(np.int32)
    else:
        model._n_support = np.array([m, m], dtype=np.int32)
    model.support_ = np.ascontiguousarray(file["rows"][order])
    ordered = centres[order]
    model.support_vectors_ = np.empty((0, 0)) if lookup else ordered if sparse else ordered.toarray()
    raw = np.ascontiguousarray(model._sign * coefficients[order].T)
    model._store_dual(sp.csr_matrix(raw) if model._sparse else raw, model._sign * bias)
    model._centres = model._w = None
    model._radii = None


def from_libsvm(source: str | os.PathLike[str] | bytes, *, n_features: int | None = None) -> Any:
    """Read a LIBSVM model file as a fitted estimator.

    Parameters
    ----------
    source : path, or the content of the file as bytes
        The file.
    n_features : int, default=None
        Number of features, if it is more than the file mentions.

    Returns
    -------
    SVC, NuSVC, OneClassSVM, SVR or NuSVR
        Ready to predict. The file stores neither C nor ν: `certify` takes C from the estimator (1, or what `set_params`
        set) and recovers ν (and the C of ν-SVR) from the coefficients.
    """
    content, name = _content(source)
    file = _core.read_libsvm(content, name)
    classes: dict[str, Any] = {
        "c_svc": SVC,
        "nu_svc": NuSVC,
        "one_class": OneClassSVM,
        "epsilon_svr": SVR,
        "nu_svr": NuSVR,
    }
    settings = {"kernel": file["kernel"]}
    for key in ("gamma", "coef0", "degree"):
        if file.get(key) is not None:
            settings[key] = file[key]
    model = classes[file["kind"]](**settings)
    model._libsvm_file = content
    labels, of = np.array(file["labels"]), file["class_of"]
    coefficients, bias, slope_b = file["coefficients"], file["bias"], file.get("sigmoid_b")
    if len(labels) == 2 and labels[0] > labels[1]:
        # Margrave sorts the labels, which swaps the two classes and the sign of the score.
        labels, of = labels[::-1], 1 - of
        coefficients, bias = -coefficients, -bias
        slope_b = None if slope_b is None else -slope_b
    width = max(file["width"], n_features or 0)
    _fill(model, file, _numbers(labels), of, coefficients, bias, width, sparse=True)
    model._rho = np.ones(len(bias))
    model._probA = file.get("sigmoid_a", np.empty(0))
    model._probB = np.empty(0) if slope_b is None else -slope_b
    if model._probA.size and model._task == "classify":
        model.probability = True
        model.probability_rule_ = file["probability_rule"]
    return model


__all__ = ["export_onnx", "from_libsvm", "load", "save", "to_libsvm"]
