"""Honest evaluation: predictions for rows that a model was not trained on, beside those for its training data."""

from __future__ import annotations

import html
import io
import json
import os
import platform
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.base import clone, is_classifier, is_outlier_detector, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted

from . import _core
from ._figures import Figures, plain
from ._linear import LinearSVC
from ._machine import _Versioned
from ._pipeline import split, table_of
from ._spec import points


class Evaluation:
    """What `evaluate` returns: left-out figures beside training figures.

    Attributes
    ----------
    left_out : Figures or None
        Predictions of each row by a model trained on the other folds.
    leave_one_out : Figures or None
        Leave-one-out predictions in closed form, where the estimator is one of margrave and its loss has such a form.
    training : Figures
        Predictions of the model for its own training data. They flatter every model.
    task : {"classify", "regress"}
        The task.
    classes : ndarray or None
        The classes in ascending order.
    positive : object
        The positive class of two; None otherwise.
    folds : int or None
        Number of folds.
    how, how_one_out : str
        How the left-out and leave-one-out predictions were made, or why there are none.
    exact : bool or None
        Whether the leave-one-out predictions are exact (square loss) or follow the span rule.
    fingerprint : str or None
        64 bits of the data, the same as in reports of the program; None for tables that are not numbers.
    params : dict
        Parameters of the estimator; of the last step of a pipeline.
    steps : list of str
        The steps of a pipeline before the last, with the parameters that are not the defaults.
    versions : dict
        Versions of margrave, scikit-learn, NumPy and Python.
    certificate : Certificate or None
        Of the model, if it has one.
    threshold : float or None
        The score above which the positive class is predicted, if the model has chosen one.
    """

    def __init__(self, **values: Any) -> None:
        self.left_out: Figures | None = values["left_out"]
        self.leave_one_out: Figures | None = values["leave_one_out"]
        self.training: Figures = values["training"]
        self.task: str = values["task"]
        self.classes: Any = values["classes"]
        self.positive: Any = self.training.positive
        self.folds: int | None = values["folds"]
        self.how: str = values["how"]
        self.how_one_out: str = values["how_one_out"]
        self.exact: bool | None = values["exact"]
        self.fingerprint: str | None = values["fingerprint"]
        self.params: dict[str, Any] = values["params"]
        self.steps: list[str] = values["steps"]
        self.name: str = values["name"]
        self.certificate: Any = values["certificate"]
        self.threshold: float | None = values["threshold"]
        self.versions = {
            "margrave": _core.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        }

    def sets(self) -> dict[str, Figures]:
        """The figures that there are, left-out ones first, by their names."""
        named = {"left out": self.left_out, "leave one out": self.leave_one_out, "training": self.training}
        return {name: figures for name, figures in named.items() if figures is not None}

    def best(self) -> Figures:
        """The most honest figures that there are: those of folds, then leave-one-out, then training."""
        return next(iter(self.sets().values()))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        sets = self.sets()
        names = [name for name, value in self.training.metrics.items() if name not in ("by_class", "positive")]

        def cell(value: Any) -> str:
            return "–" if value is None else f"{value:.4g}"

        rows = [[name.replace("_", " "), *(cell(one.metrics.get(name)) for one in sets.values())] for name in names]
        return list(sets), rows

    def summary(self) -> str:
        """The metrics side by side, as text."""
        header, rows = self._table()
        rows = [["", *header], *rows]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]).rstrip()
            for row in rows
        ]
        lines.append(f"left out: {self.how}")
        lines.append(f"leave one out: {self.how_one_out}")
        if self.positive is not None:
            lines.append(f"positive class: {self.positive}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the predictions, as values that `json.dumps` takes; keys as in `margrave train --json`."""
        one = self.leave_one_out
        closed = None
        if one is not None:
            closed = {**one.metrics, "rows": len(one.rows), "exact": self.exact, "how": self.how_one_out}
        return {
            "training": self.training.metrics,
            "left_out": None if self.left_out is None else self.left_out.metrics,
            "leave_one_out": closed,
            "folds": self.folds,
            "how": self.how,
            "estimator": self.name,
            "steps": self.steps,
            "params": {name: plain(value) for name, value in self.params.items()},
            "fingerprint": self.fingerprint,
            "version": self.versions["margrave"],
            "versions": self.versions,
        }

    def __repr__(self) -> str:
        shown = self.best().metrics
        first = ", ".join(f"{name}={shown[name]:.4g}" for name in list(shown)[:2])
        return f"Evaluation({self.name}, {next(iter(self.sets()))}: {first})"

    def __str__(self) -> str:
        return self.summary()

    def _notes(self) -> str:
        notes = [f"Left out: {self.how}.", f"Leave one out: {self.how_one_out}."]
        if self.positive is not None:
            notes.append(f"The positive class is {self.positive}.")
        return "".join(f"<p>{html.escape(note)}</p>" for note in notes)

    def _repr_html_(self) -> str:
        """The metrics as a table, for notebooks."""
        header, rows = self._table()
        return _html_table(["", *header], rows) + self._notes()

    def _card(self) -> list[list[str]]:
        rows = [["estimator", self.name]]
        rows += [[f"step {at + 1}", step] for at, step in enumerate(self.steps)]
        rows += [[name, repr(value)] for name, value in sorted(self.params.items())]
        if self.classes is not None:
            rows.append(["classes", ", ".join(str(label) for label in self.classes)])
        rows.append(["rows", str(len(self.training.rows))])
        if self.fingerprint is not None:
            rows.append(["data fingerprint", self.fingerprint])
        if self.certificate is not None:
            rows.append(["certificate", self.certificate.summary()])
        return rows + [[name, version] for name, version in self.versions.items()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a report as one HTML page: metrics, figures and a model card. Needs matplotlib.

        Parameters
        ----------
        path : path
            File to write, its name ending in .html; or in .json, for `as_dict()`.
        """
        ending = os.path.splitext(os.fspath(path))[1].lower()
        if ending not in (".html", ".htm", ".json"):
            raise ValueError(f"{os.fspath(path)}: the name of a report must end in .html or .json")
        folder = os.path.dirname(os.fspath(path))
        if folder and not os.path.isdir(folder):
            raise FileNotFoundError(
                f"{os.fspath(path)}: the folder {folder} does not exist: create it, or name another"
            )
        content = json.dumps(self.as_dict(), indent=2) if ending == ".json" else self._page()
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)

    def _page(self) -> str:
        from . import plot

        parts = [f"<h1>{html.escape(self.name)}</h1>", "<h2>Figures of merit</h2>", self._repr_html_()]
        if self.classes is not None:
            parts.append("<h2>Confusion matrix</h2>")
            for name, figures in self.sets().items():
                labels = [str(label) for label in self.classes]
                counts = [[f"{v:g}" for v in row] for row in figures.confusion()]
                parts.append(f"<h3>{name}: true classes down, predicted ones across</h3>")
                parts.append(_html_table(["", *labels], [[t, *row] for t, row in zip(labels, counts)]))
        if self.best().probabilities is not None and self.positive is not None:
            bins = [
                [
                    f"{b['low']:.2g}–{b['high']:.2g}",
                    f"{b['probability']:.3f}",
                    f"{b['share']:.3f}",
                    f"{b['count']:g}",
                ]
                for b in self.best().calibration()
            ]
            header = ["bin", "mean probability", "share of the positive class", "rows"]
            parts += ["<h2>Calibration</h2>", f"<p>{next(iter(self.sets()))}</p>", _html_table(header, bins)]
        figure = plot.report(self).flat[0].figure
        image = io.StringIO()
        figure.savefig(image, format="svg", metadata={"Date": None})
        plot._pyplot().close(figure)
        svg = image.getvalue()
        parts += ["<h2>Figures</h2>", f'<div class="wide">{svg[svg.index("<svg") :]}</div>', "<h2>Model card</h2>"]
        parts.append(_html_table([], self._card()).replace("<table>", '<table class="card">'))
        return _PAGE.format(title=html.escape(self.name), body="\n".join(parts))


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>body{{font:15px/1.5 Helvetica,Arial,sans-serif;max-width:900px;margin:2em auto;padding:0 1em}}
td,th{{padding:3px 14px 3px 0;text-align:right}}td:first-child,th:first-child{{text-align:left}}
.card td{{text-align:left;vertical-align:top;overflow-wrap:anywhere}}.card td:first-child{{color:#808080;white-space:nowrap}}
.wide{{overflow-x:auto}}.wide svg{{min-width:600px}}
@media (max-width:500px){{td,th{{padding-right:9px}}}}svg{{max-width:100%;height:auto;background:#fff}}
@media screen and (prefers-color-scheme:dark){{body{{color:#e4e4e4;background:#16181c}}}}
@media print{{body{{margin:0;max-width:none}}.wide{{overflow:visible}}.wide svg{{min-width:0}}h2,h3{{break-after:avoid}}svg,table{{break-inside:avoid}}}}</style></head>
<body>
{body}
</body></html>
"""


def _html_table(header: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    head = f"<thead><tr>{head}</tr></thead>" if header else ""
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def evaluate(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    cv: Any = 5,
    groups: Any = None,
    random_state: int = 0,
) -> Evaluation:
    """Judge an estimator by rows it was not trained on, beside its training data.

    Every row is predicted by a clone trained on the other folds. A pipeline is cloned as a whole, so what its steps learn
    (scaling, values for missing cells, encodings) is learnt without the row. Where the last step is an estimator of
    margrave whose loss has a dual, leave-one-out predictions in closed form are added: exact for the square loss, by the
    span rule otherwise. They leave out the row from the last step only.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A classifier or regressor of margrave or scikit-learn. If it is fitted, it is taken to be fitted to X and y;
        otherwise a clone is fitted. It is not changed.
    X, y : array-like
        The training data. `y` may have several columns for regression.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, in training and in the metrics.
    cv : int, splitter or iterable, default=5
        Number of folds, stratified and shuffled by `random_state` (fewer where a class has fewer rows), or a splitter of
        scikit-learn that tests every row exactly once.
    groups : array-like of shape (n_samples,), default=None
        Groups for a splitter that keeps them together.
    random_state : int, default=0
        How rows are dealt to folds.

    Returns
    -------
    Evaluation
        Metrics, confusion, ROC, precision-recall, calibration and residuals of left-out and of training predictions.

    Examples
    --------
    >>> from margrave import SVC, evaluate
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = evaluate(make_pipeline(StandardScaler(), SVC(C=100)), X, y)
    >>> found.training.metrics["accuracy"] > found.left_out.metrics["accuracy"] > 0.95
    True
    >>> int(found.left_out.confusion().sum())
    569
    """
    if is_outlier_detector(estimator):
        raise ValueError("novelty detection has no targets to judge predictions by")
    if not is_classifier(estimator) and not is_regressor(estimator):
        raise TypeError(f"{type(estimator).__name__} is neither a classifier nor a regressor")
    X, y, groups = indexable(X, y, groups)
    n, classify = _num_samples(X), is_classifier(estimator)
    targets, classes = np.asarray(y), None
    if classify:
        check_classification_targets(targets)
        classes = np.unique(targets)
        if len(classes) < 2:
            raise ValueError(f"all rows are of the class {classes[0]!r}: there is nothing to tell apart")
    else:
        targets = targets.astype(np.float64)
    weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
    judge = _Judge(estimator, X, targets, classes, weights)
    model = judge.fitted()
    training = judge.figures(np.arange(n), *judge.predictions(model, X))
    left_out, folds, how = judge.left_out(cv, groups, random_state)
    one_out, exact, how_one = judge.leave_one_out(model)
    before, last = split(model)
    return Evaluation(
        left_out=left_out,
        leave_one_out=one_out,
        training=training,
        task="classify" if classify else "regress",
        classes=classes,
        folds=folds,
        how=how,
        how_one_out=how_one,
        exact=exact,
        fingerprint=_fingerprint(_numbers_of(before, X), targets, classes, weights),
        steps=[repr(step) for _, step in before],
        params=last.get_params(deep=False),
        name=" → ".join(type(step).__name__ for step in [*(step for _, step in before), last]),
        certificate=getattr(last, "certificate_", None),
        threshold=getattr(last, "threshold_", None) if getattr(last, "threshold", None) is not None else None,
    )


class _Judge:
    """An estimator with the data it is judged on."""

    def __init__(self, estimator: Any, X: Any, y: Any, classes: Any, weights: Any) -> None:
        self.estimator = estimator
        self.X = X
        self.y = y
        self.classes = classes
        self.weights = weights

    def fit(self, model: Any, X: Any, y: Any, weights: Any) -> Any:
        if weights is None:
            return model.fit(X, y)
        name, inner = "sample_weight", model
        prefix = ""
        while isinstance(inner, Pipeline):
            prefix += f"{inner.steps[-1][0]}__"
            inner = inner.steps[-1][1]
        return model.fit(X, y, **{prefix + name: weights})

    def fitted(self) -> Any:
        try:
            check_is_fitted(self.estimator)
        except NotFittedError:
            return self.fit(clone(self.estimator), self.X, self.y, self.weights)
        return self.estimator

    def predictions(self, model: Any, X: Any) -> tuple[Any, Any, Any]:
        """Predictions, scores of two classes, and probabilities, as far as the model has them."""
        found = model.predict(X)
        if self.classes is None:
            return np.asarray(found, dtype=np.float64), None, None
        if not np.array_equal(model.classes_, self.classes):
            raise ValueError("a model of a fold does not know all classes: use stratified folds, or fewer of them")
        scores = probabilities = None
        if len(self.classes) == 2 and hasattr(model, "decision_function"):
            scores = np.asarray(model.decision_function(X), dtype=np.float64).ravel()
        if hasattr(model, "predict_proba"):
            probabilities = np.asarray(model.predict_proba(X), dtype=np.float64)
        return np.asarray(found), scores, probabilities

    def figures(self, rows: Any, found: Any, scores: Any, probabilities: Any) -> Figures:
        weights = None if self.weights is None else self.weights[rows]
        return Figures(rows, self.y[rows], found, scores, probabilities, weights, self.classes)

    def splitter(self, cv: Any, seed: int) -> tuple[Any, str | None]:
        """The splitter, or None and why there is none."""
        if isinstance(cv, bool) or not isinstance(cv, (int, np.integer)):
            return check_cv(cv, self.y, classifier=self.classes is not None), None
        if cv < 2:
            raise ValueError(f"cv must be at least 2 folds, but it is {cv}")
        if self.classes is None:
            return KFold(min(int(cv), len(self.y)), shuffle=True, random_state=seed), None
        smallest = int(min((self.y == label).sum() for label in self.classes))
        if smallest < 2:
            return None, "not computed: a class has a single row, and without it there is nothing to learn it from"
        return StratifiedKFold(min(int(cv), smallest), shuffle=True, random_state=seed), None

    def left_out(self, cv: Any, groups: Any, seed: int) -> tuple[Figures | None, int | None, str]:
        splitter, why = self.splitter(cv, seed)
        if splitter is None:
            return None, None, str(why)
        n = len(self.y)
        tested = np.zeros(n, dtype=int)
        found: Any = np.empty(self.y.shape, dtype=self.y.dtype if self.classes is not None else np.float64)
        scores: Any = np.full(n, np.nan)
        probabilities: Any = None if self.classes is None else np.full((n, len(self.classes)), np.nan)
        count = 0
        for train, test in splitter.split(self.X, self.y, groups):
            model = clone(self.estimator)
            A, a = _safe_split(model, self.X, self.y, train)
            B, _ = _safe_split(model, self.X, self.y, test, train)
            self.fit(model, A, a, None if self.weights is None else self.weights[train])
            own, z, p = self.predictions(model, B)
            found[test] = own
            scores = None if z is None or scores is None else _put(scores, test, z)
            probabilities = None if p is None or probabilities is None else _put(probabilities, test, p)
            tested[test] += 1
            count += 1
        if (tested != 1).any():
            raise ValueError("cv must test every row exactly once")
        dealt = f", seed {seed}" if isinstance(cv, (int, np.integer)) else ""
        how = f"{count} folds{dealt}: each row is predicted by a model trained on the other folds, all steps included"
        return self.figures(np.arange(n), found, scores, probabilities), count, how

    def leave_one_out(self, model: Any) -> tuple[Figures | None, bool | None, str]:
        before, last = split(model)
        if not isinstance(last, _Versioned):
            return None, None, f"not computed: {type(last).__name__} is not an estimator of margrave"
        X = self.X
        for _, step in before:
            X = step.transform(X)
        again = clone(last)
        again._wants_left_out = True
        again.fit(X, self.y) if self.weights is None else again.fit(X, self.y, sample_weight=self.weights)
        left = getattr(again, "_left_out", None)
        if left is None:
            return (
                None,
                None,
                "not computed: there is no closed form for this loss or formulation, or it is too coarse here",
            )
        rows, scores, exact = left
        # The engine saw the rows of positive weight only.
        kept = np.arange(len(self.y)) if self.weights is None else np.flatnonzero(self.weights > 0)
        rows = kept[rows]
        if self.classes is None:
            found = scores.ravel() if self.y.ndim == 1 else scores
        elif scores.shape[1] == 1:
            cut = getattr(again, "threshold_", 0.0)
            found = self.classes[(scores.ravel() > cut).astype(np.intp)]
        elif isinstance(again, LinearSVC):
            found = self.classes[scores.argmax(axis=1)]
        else:
            found = self.classes[_core.votes(len(self.classes), np.ascontiguousarray(scores))]
        two = self.classes is not None and len(self.classes) == 2
        figures = self.figures(rows, found, scores.ravel() if two else None, None)
        how = "in closed form and exact for this loss" if exact else "in closed form, by the span rule"
        if len(rows) < len(kept):
            how += f", {len(rows)} of {len(kept)} rows"
        if before:
            how += "; the steps before are those of all rows"
        if getattr(again, "threshold", None) is not None:
            how += "; the threshold was chosen on the same scores"
        return figures, exact, how


def _put(values: Any, rows: Any, new: Any) -> Any:
    values[rows] = new
    return values


def _numbers_of(before: Any, X: Any) -> Any:
    """The numbers that the program would read from a table: after a preprocessor of tables, before anything is scaled."""
    table, _ = table_of(before)
    return X if table is None else table.transform(X)


def _fingerprint(X: Any, y: Any, classes: Any, weights: Any) -> str | None:
    """The fingerprint of the data, as the program computes it; None for tables that are not numbers."""
    try:
        matrix = sp.csr_matrix(X) if sp.issparse(X) else np.asarray(X)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
            return None
    except (TypeError, ValueError):
        return None
    texts = None
    if classes is not None and not np.issubdtype(y.dtype, np.number) and y.dtype != bool:
        texts = [str(label) for label in y]
    numbers = None if texts is not None else np.ascontiguousarray(y, dtype=np.float64).ravel()
    outputs = y.shape[1] if y.ndim == 2 else 1
    return _core.fingerprint(points(matrix), numbers, texts, outputs, weights)


__all__ = ["Evaluation", "evaluate"]
