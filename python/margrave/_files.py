"""Model files: ONNX, LIBSVM's text, Margrave's own."""

import os

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._linear import LinearSVC, LinearSVR
from ._machine import _KernelModel
from ._novelty import OneClassSVM
from ._prepare import linear_weights
from ._ridge import KernelRidge
from ._spec import model_parts, params
from ._svm import SVC, SVR, NuSVC, NuSVR


def _labels(classes):
    """Labels as a file can store them: numbers or strings."""
    if np.issubdtype(classes.dtype, np.number) or classes.dtype == bool:
        return [float(label) for label in classes]
    return [str(label) for label in classes]


def _spec_and_parts(estimator):
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
            weights=coef,
        )
    if isinstance(estimator, KernelRidge):
        if not estimator._native():
            raise ValueError("a KernelRidge can be written to a file only with a kernel of Margrave")
        spec = estimator._params(estimator.X_fit_, 0.0, loss="square")
        return spec, estimator._parts(estimator.X_fit_)
    raise TypeError(f"{type(estimator).__name__} cannot be written: pass a fitted estimator of margrave")


def _write(content, path):
    if path is not None:
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    return content


def export_onnx(estimator, path=None):
    """The ONNX model of a fitted estimator, as bytes; also written to `path`.

    Its input is a float tensor `X` of shape (n, n_features).
    """
    return _write(_core.export_onnx(*_spec_and_parts(estimator)), path)


def to_libsvm(estimator, path=None):
    """LIBSVM's model file of a fitted SVC, NuSVC, SVR, NuSVR or OneClassSVM, as text; also written to `path`."""
    if not isinstance(estimator, _KernelModel):
        raise TypeError(f"LIBSVM's format cannot store a {type(estimator).__name__}")
    return _write(_core.export_libsvm(*_spec_and_parts(estimator)), path)


def save(estimator, path):
    """Write a fitted estimator to a native model file: lossless, and safe to open even from untrusted sources."""
    _write(_core.export_native(*_spec_and_parts(estimator)), path)


def from_libsvm(source, *, n_features=None):
    """Read a LIBSVM model file as a fitted estimator.

    Parameters
    ----------
    source : path, or the content of the file as bytes
    n_features : int, default=None
        Number of features, if it is more than the file mentions.

    Returns
    -------
    SVC, NuSVC, OneClassSVM, SVR or NuSVR
        Ready to predict. The file stores neither C nor ν: `certify` takes C from the estimator (1, or what `set_params`
        set) and recovers ν (and the C of ν-SVR) from the coefficients.
    """
    if isinstance(source, bytes):
        content, name = source, "the model"
    else:
        name = os.fspath(source)
        with open(name, "rb") as stream:
            content = stream.read()
    file = _core.read_libsvm(content, name)
    classes = {"c_svc": SVC, "nu_svc": NuSVC, "one_class": OneClassSVM, "epsilon_svr": SVR, "nu_svr": NuSVR}
    settings = {"kernel": file["kernel"]}
    for key in ("gamma", "coef0", "degree"):
        if file.get(key) is not None:
            settings[key] = file[key]
    model = classes[file["kind"]](**settings)
    model._libsvm_file = content
    m = len(file["rows"])
    lookup = file["kernel"] == "precomputed"
    width = max(file["width"], n_features or 0)
    centres = sp.csr_matrix((file["data"], file["indices"], file["indptr"]), shape=(m, 0 if lookup else width))
    model._sparse = not lookup
    model._kernel_name = file["kernel"]
    model._gamma = file["gamma"] or 0.0
    model.n_features_in_ = width
    model.shape_fit_ = (file["n"], width)
    model.fit_status_ = 0
    labels, of = np.array(file["labels"]), file["class_of"]
    coefficients, bias, slope_b = file["coefficients"], file["bias"], file.get("sigmoid_b")
    if len(labels) == 2 and labels[0] > labels[1]:
        # Margrave sorts the labels, which swaps the two classes and the sign of the score.
        labels, of = labels[::-1], 1 - of
        coefficients, bias = -coefficients, -bias
        slope_b = None if slope_b is None else -slope_b
    if np.issubdtype(labels.dtype, np.floating) and (labels == labels.astype(np.int64)).all():
        labels = labels.astype(np.int64)
    order = np.arange(m)
    if model._task == "classify":
        model.classes_ = labels
        model.class_weight_ = np.ones(len(labels))
        order = np.argsort(of, kind="stable")
        model._n_support = np.bincount(of, minlength=len(labels)).astype(np.int32)
    else:
        model._n_support = np.array([m, m], dtype=np.int32)
    model.support_ = np.ascontiguousarray(file["rows"][order])
    model.support_vectors_ = np.empty((0, 0)) if lookup else centres[order]
    raw = np.ascontiguousarray(model._sign * coefficients[order].T)
    model._store_dual(raw if lookup else sp.csr_matrix(raw), model._sign * bias)
    model._centres = model._w = None
    model._rho = np.ones(len(bias))
    model._probA = file.get("sigmoid_a", np.empty(0))
    model._probB = np.empty(0) if slope_b is None else -slope_b
    if model._probA.size and model._task == "classify":
        model.probability = True
        model.probability_rule_ = file["probability_rule"]
    return model


__all__ = ["export_onnx", "from_libsvm", "save", "to_libsvm"]
