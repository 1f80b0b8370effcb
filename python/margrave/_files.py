"""Models for other programs: ONNX, LIBSVM's text, the file of the command line."""

import os

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._linear import LinearSVC, LinearSVR
from ._machine import _KernelMachine
from ._ridge import KernelRidge
from ._spec import params
from ._svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM


def _labels(classes):
    """Labels as a file can hold them: numbers or texts."""
    if np.issubdtype(classes.dtype, np.number) or classes.dtype == bool:
        return [float(label) for label in classes]
    return [str(label) for label in classes]


def _spec_and_parts(estimator):
    """A fitted estimator of ours as `_core` takes it."""
    check_is_fitted(estimator)
    if isinstance(estimator, _KernelMachine):
        if callable(estimator.kernel):
            raise ValueError("a kernel that is a Python function cannot be written to a file")
        spec = estimator._params(1, 1, width=1)
        parts = estimator._parts(estimator.support_vectors_)
        if estimator._task == "classify":
            parts["labels"] = _labels(estimator.classes_)
        if estimator._kernel_name == "precomputed":
            parts.update(rows=np.ascontiguousarray(estimator.support_), width=estimator.shape_fit_[0])
        else:
            # Row numbers of the training data, where they are in its order for every class.
            parts["rows"] = np.ascontiguousarray(estimator.support_)
        return spec, parts
    if isinstance(estimator, (LinearSVC, LinearSVR)):
        classify = isinstance(estimator, LinearSVC)
        coef = estimator.coef_.toarray() if sp.issparse(estimator.coef_) else estimator.coef_
        coef = np.ascontiguousarray(np.atleast_2d(coef))
        loss = estimator.loss if isinstance(estimator.loss, str) else None
        spec = params("classify" if classify else "regress", C=estimator.C, loss=loss)
        parts = {
            "centres": None,
            "rows": np.empty(0, dtype=np.int32),
            "coefficients": np.empty((0, len(coef))),
            "class_of": None,
            "bias": np.zeros(len(coef)) + estimator.intercept_,
            "labels": _labels(estimator.classes_) if classify else [],
            "width": coef.shape[1],
            "n": 0,
            "sigmoid_a": None,
            "sigmoid_b": None,
            "rho": None,
            "weights": coef,
        }
        return spec, parts
    if isinstance(estimator, KernelRidge):
        if not estimator._native():
            raise ValueError("only a KernelRidge with a kernel of the library can be written to a file")
        spec = estimator._params(estimator.X_fit_, 0.0, loss="square")
        return spec, estimator._parts(estimator.X_fit_)
    raise TypeError(f"{type(estimator).__name__} cannot be written: give a fitted estimator of margrave")


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
    if not isinstance(estimator, _KernelMachine):
        raise TypeError(f"LIBSVM's file cannot hold a {type(estimator).__name__}")
    return _write(_core.export_libsvm(*_spec_and_parts(estimator)), path)


def save(estimator, path):
    """Write the model file of `margrave train` for a fitted estimator: lossless, and safe to open from strangers."""
    _write(_core.export_native(*_spec_and_parts(estimator)), path)


def from_libsvm(source, *, n_features=None):
    """A fitted estimator from a model file of LIBSVM.

    Parameters
    ----------
    source : path, or the text of the file as bytes
    n_features : int, default=None
        Number of features, where the file mentions fewer.

    Returns
    -------
    SVC, NuSVC, OneClassSVM, SVR or NuSVR
        Ready to predict. The file stores neither C nor ν: `certify` takes C from the estimator, 1 unless set with `set_params`, and
        finds ν (and the C of ν-SVR) in the coefficients.
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
        # Ours are sorted; the score is then of the other class.
        labels, of = labels[::-1], 1 - of
        coefficients, bias = -coefficients, -bias
        slope_b = None if slope_b is None else -slope_b
    if np.issubdtype(labels.dtype, np.floating) and (labels == labels.astype(np.int64)).all():
        labels = labels.astype(np.int64)
    sign = 1.0
    order = np.arange(m)
    if model._task == "classify":
        sign = -1.0
        model.classes_ = labels
        model.class_weight_ = np.ones(len(labels))
        order = np.argsort(of, kind="stable")
        model._n_support = np.bincount(of, minlength=len(labels)).astype(np.int32)
    else:
        model._n_support = np.array([m, m], dtype=np.int32)
    model.support_ = np.ascontiguousarray(file["rows"][order])
    model.support_vectors_ = np.empty((0, 0)) if lookup else centres[order]
    raw = np.ascontiguousarray(sign * coefficients[order].T)
    model._dual_coef_ = raw if lookup else sp.csr_matrix(raw)
    model._intercept_ = sign * bias
    two = model._task == "classify" and len(labels) == 2
    model.dual_coef_ = -model._dual_coef_ if two else model._dual_coef_
    model.intercept_ = -model._intercept_ if two else model._intercept_
    if model._task == "novelty":
        model.offset_ = -model._intercept_
    model._centres = model._w = None
    model._rho = np.ones(len(bias))
    model._probA = file.get("sigmoid_a", np.empty(0))
    model._probB = np.empty(0) if slope_b is None else -slope_b
    if model._probA.size and model._task == "classify":
        model.probability = True
    return model


__all__ = ["export_onnx", "from_libsvm", "save", "to_libsvm"]
