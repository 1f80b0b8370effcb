"""Predictions for some rows, and how good they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import metrics as sk

#: Number of bins of probabilities.
BINS = 10


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


class Figures:
    """Predictions for some rows, and how good they are.

    Attributes
    ----------
    rows : ndarray
        The rows of X that the predictions are for.
    truth, predictions : ndarray
        Targets and predictions of these rows.
    scores : ndarray or None
        Scores of two classes; positive means `positive`.
    probabilities : ndarray or None
        Probabilities of the classes.
    weights : ndarray or None
        How much each row counts.
    classes : ndarray or None
        The classes; None for regression.
    metrics : dict
        The names are those of `margrave predict --json`: accuracy, balanced_accuracy, f1_macro, mcc, by_class; with two
        classes f1, and with scores or probabilities roc_auc, average_precision, log_loss, brier. For numbers mse, rmse,
        mae, r2, explained_variance, over all targets.
    """

    def __init__(
        self, rows: Any, truth: Any, predictions: Any, scores: Any, probabilities: Any, weights: Any, classes: Any
    ) -> None:
        self.rows = rows
        self.truth = truth
        self.predictions = predictions
        self.scores = scores
        self.probabilities = probabilities
        self.weights = weights
        self.classes = classes
        self.metrics: dict[str, Any] = self._of_numbers() if classes is None else self._of_classes()

    @property
    def positive(self) -> Any:
        """The positive class: the second of two."""
        return self.classes[1] if self.classes is not None and len(self.classes) == 2 else None

    def _of_classes(self) -> dict[str, Any]:
        truth, found, counted = self.truth, self.predictions, {"sample_weight": self.weights}
        precision, recall, f1, _ = sk.precision_recall_fscore_support(
            truth, found, labels=self.classes, zero_division=0, **counted
        )
        present = np.isin(self.classes, truth)
        result: dict[str, Any] = {
            "accuracy": sk.accuracy_score(truth, found, **counted),
            "balanced_accuracy": float(recall[present].mean()),
            "f1_macro": float(f1.mean()),
            "mcc": sk.matthews_corrcoef(truth, found, **counted),
            "by_class": [
                {"label": plain(label), "precision": float(p), "recall": float(r), "f1": float(f)}
                for label, p, r, f in zip(self.classes, precision, recall, f1)
            ],
        }
        if self.positive is not None:
            hits = truth == self.positive
            result["positive"] = plain(self.positive)
            result["f1"] = float(f1[1])
            if self.scores is not None and 0 < hits.sum() < len(hits):
                result["roc_auc"] = sk.roc_auc_score(hits, self.scores, **counted)
                result["average_precision"] = sk.average_precision_score(hits, self.scores, **counted)
        if self.probabilities is not None:
            codes = np.searchsorted(self.classes, truth)
            own = np.maximum(self.probabilities[np.arange(len(codes)), codes], np.finfo(float).tiny)
            result["log_loss"] = float(np.average(-np.log(own), weights=self.weights))
            square = ((self.probabilities - np.eye(len(self.classes))[codes]) ** 2).sum(axis=1)
            half = 0.5 if self.positive is not None else 1.0
            result["brier"] = float(np.average(half * square, weights=self.weights))
        return {name: float(v) if isinstance(v, np.floating) else v for name, v in result.items()}

    def _of_numbers(self) -> dict[str, Any]:
        truth, found, counted = self.truth, self.predictions, {"sample_weight": self.weights}
        each = np.atleast_1d(sk.mean_squared_error(truth, found, multioutput="raw_values", **counted))
        spread = (np.ptp(truth, axis=0) > 0).all()
        return {
            "mse": float(each.mean()),
            "rmse": float(np.sqrt(each).mean()),
            "mae": float(sk.mean_absolute_error(truth, found, **counted)),
            # A constant target has no R².
            "r2": float(sk.r2_score(truth, found, **counted)) if spread else None,
            "explained_variance": float(sk.explained_variance_score(truth, found, **counted)) if spread else None,
        }

    def _two(self) -> Any:
        if self.positive is None or self.scores is None:
            raise ValueError("this needs two classes and an estimator with decision_function")
        return self.truth == self.positive

    def confusion(self) -> Any:
        """Confusion matrix, true classes down and predicted ones across, in the order of `classes`; rows by weight."""
        if self.classes is None:
            raise ValueError("a confusion matrix is of classes")
        return sk.confusion_matrix(self.truth, self.predictions, labels=self.classes, sample_weight=self.weights)

    def roc(self) -> Any:
        """False positive rates, true positive rates and thresholds of the ROC curve of two classes."""
        return sk.roc_curve(self._two(), self.scores, sample_weight=self.weights)

    def precision_recall(self) -> Any:
        """Precisions, recalls and thresholds of the precision-recall curve of two classes."""
        return sk.precision_recall_curve(self._two(), self.scores, sample_weight=self.weights)

    def calibration(self, bins: int = BINS) -> list[dict[str, float]]:
        """Bins of equal width of the probability of the positive class.

        Returns
        -------
        list of dict
            For each bin that has rows: "low" and "high", the mean "probability", the "share" of positive rows, and
            "count", how many rows there are (by weight).
        """
        if self.positive is None or self.probabilities is None:
            raise ValueError("calibration needs two classes and an estimator with predict_proba (probability=True)")
        if bins < 1:
            raise ValueError(f"bins must be at least 1, but it is {bins}")
        p = self.probabilities[:, 1]
        weights = np.ones(len(p)) if self.weights is None else self.weights
        of = np.minimum((p * bins).astype(int), bins - 1)
        found = []
        for at in range(bins):
            inside = (of == at) & (weights > 0)
            if inside.any():
                w = weights[inside]
                share = float(np.average(self.truth[inside] == self.positive, weights=w))
                mean = float(np.average(p[inside], weights=w))
                bounds = {"low": at / bins, "high": (at + 1) / bins}
                found.append({**bounds, "probability": mean, "share": share, "count": float(w.sum())})
        return found

    def residuals(self) -> Any:
        """Targets minus predictions of a regression."""
        if self.classes is not None:
            raise ValueError("residuals are of a regression")
        return self.truth - self.predictions


__all__ = ["BINS", "Figures", "plain"]
