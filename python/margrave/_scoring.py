"""Scores to choose parameters by: those of the engine, scikit-learn's scorers, and functions."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.utils.multiclass import _ovr_decision_function

from . import _core

#: scikit-learn's names of the scores that the engine computes itself; the engine's own names are accepted as well.
NATIVE = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced-accuracy",
    "f1": "f1",
    "f1_macro": "f1-macro",
    "roc_auc": "roc-auc",
    "average_precision": "average-precision",
    "neg_log_loss": "log-loss",
    "neg_brier_score": "brier",
    "matthews_corrcoef": "mcc",
    "r2": "r2",
    "neg_root_mean_squared_error": "rmse",
    "neg_mean_absolute_error": "mae",
    "neg_mean_squared_error": "mse",
    "explained_variance": "explained-variance",
}

#: Classes are called imbalanced where the largest has more than this many times the samples of the smallest.
IMBALANCE = 4


def resolve(scoring: Any) -> Any:
    """The name of a score of the engine, or None; and a scorer `(estimator, X, y)`, or None."""
    if scoring is None:
        return None, None
    if callable(scoring):
        return None, scoring
    name = NATIVE.get(scoring, scoring)
    if _core.is_score(name):
        return name, None
    return None, get_scorer(scoring)


def takes_scores(scorer: Any) -> bool:
    """Whether a scorer of scikit-learn needs predictions or scores only, not the estimator itself."""
    methods = getattr(scorer, "_response_method", None)
    if methods is None:
        return False
    methods = [methods] if isinstance(methods, str) else list(methods)
    return bool(methods) and methods[0] in ("predict", "decision_function")


class _HeldOut(BaseEstimator):
    """Stands for the model of one fold: answers for the samples of its test set, whose scores are known."""

    def __init__(self, scores: Any) -> None:
        self.scores = scores

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _known(self, X: Any) -> Any:
        if X.shape[0] != len(self.scores):
            raise ValueError("a scorer must score the test set as it is: pass a function to score a part of it")
        return self.scores


class HeldOutClassifier(ClassifierMixin, _HeldOut):
    """The classifier of a fold."""

    def __init__(self, scores: Any, classes: Any, shape: str) -> None:
        super().__init__(scores)
        self.classes = classes
        self.shape = shape
        self.classes_ = classes

    def decision_function(self, X: Any) -> Any:
        """Scores as those of `SVC.decision_function`."""
        scores = self._known(X)
        if len(self.classes_) == 2:
            return scores.ravel()
        if self.shape == "ovr":
            return _ovr_decision_function(scores > 0, scores, len(self.classes_))
        return -scores

    def predict(self, X: Any) -> Any:
        """Class of each sample."""
        scores = self._known(X)
        if len(self.classes_) == 2:
            return self.classes_[(scores.ravel() > 0).astype(np.intp)]
        return self.classes_[_core.votes(len(self.classes_), np.ascontiguousarray(scores))]


class HeldOutRegressor(RegressorMixin, _HeldOut):
    """The regression of a fold."""

    def predict(self, X: Any) -> Any:
        """Predicted value of each sample."""
        return self._known(X).ravel()


def imbalance(y: Any) -> Any:
    """A warning about classes of very different size, or None."""
    classes, counts = np.unique(y, return_counts=True)
    most, least = counts.argmax(), counts.argmin()
    if counts[most] <= IMBALANCE * counts[least]:
        return None
    return (
        f"{counts[most]} samples are {classes[most]} and {counts[least]} are {classes[least]}: accuracy hardly counts the"
        " rare class. Consider class_weight='balanced' or scoring='balanced_accuracy'; scoring='accuracy' avoids this"
        " warning."
    )


__all__ = ["HeldOutClassifier", "HeldOutRegressor", "imbalance", "resolve", "takes_scores"]
