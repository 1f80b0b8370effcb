"""Plots of models with matplotlib: `pip install margrave[plot]`.

Every function draws on `ax`, or on new axes, and returns them. Colours are safe for colour-blind readers (Okabe and
Ito's palette), and classes also differ by marker.
"""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from . import losses as _losses
from ._evaluate import Evaluation

#: Okabe and Ito's palette, black first.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
_CLASSES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "^", "s", "D", "v", "P")


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("margrave.plot needs matplotlib: pip install 'margrave[plot]'") from error
    return plt


def _axes(ax: Any, width: Any = 5.6, height: Any = 4.2) -> Any:
    if ax is not None:
        return ax
    return _pyplot().subplots(figsize=(width, height), layout="constrained")[1]


def _finish(ax: Any, x: Any, y: Any, title: Any = None) -> Any:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if title:
        ax.set_title(title, fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def boundary(
    machine: Any, X: Any, y: Any = None, *, ax: Any = None, resolution: Any = 240, features: Any = None
) -> Any:
    """Decision boundary, margins and support vectors of a model with two features.

    Parameters
    ----------
    machine : fitted estimator
        A classifier or `OneClassSVM`, fitted to two features.
    X, y : array-likes
        Samples to draw, and their classes.
    resolution : int
        Grid points along each axis.
    features : pair of str
        Axis labels.
    """
    check_is_fitted(machine)
    names = features or getattr(X, "columns", None)
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"boundary needs a model with two features; X has shape {X.shape}")
    if resolution < 2:
        raise ValueError("resolution must be at least 2")
    ax = _axes(ax)
    low, high = X.min(axis=0), X.max(axis=0)
    room = 0.08 * np.where(high > low, high - low, 1.0)
    axes = [np.linspace(low[k] - room[k], high[k] + room[k], resolution) for k in range(2)]
    grid = np.stack(np.meshgrid(*axes), axis=-1)
    points = grid.reshape(-1, 2)
    classes = getattr(machine, "classes_", None)
    if classes is None or len(classes) == 2:
        z = np.asarray(machine.decision_function(points)).reshape(grid.shape[:2])
        reach = max(float(np.abs(z).max()), 1e-12)
        ax.contourf(*axes, z, levels=[-reach, 0.0, reach], colors=_CLASSES[:2], alpha=0.13)
        margins = [level for level in (-1.0, 0.0, 1.0) if classes is not None or level == 0.0]
        styles = ["--", "-", "--"] if len(margins) == 3 else ["-"]
        ax.contour(
            *axes, z, levels=margins, colors="black", linestyles=styles, linewidths=[0.8, 1.6, 0.8][: len(margins)]
        )
    else:
        label = np.searchsorted(classes, machine.predict(points)).reshape(grid.shape[:2])
        edges = np.arange(len(classes) + 1) - 0.5
        colours = [_CLASSES[k % len(_CLASSES)] for k in range(len(classes))]
        ax.contourf(*axes, label, levels=edges, colors=colours, alpha=0.18)
        ax.contour(*axes, label, levels=edges[1:-1], colors="black", linewidths=1.2)
    if y is None:
        ax.scatter(*X.T, s=14, color="#555555", linewidths=0, label=f"{len(X)} samples")
    else:
        y = np.asarray(y)
        for k, name in enumerate(np.unique(y)):
            chosen = X[y == name]
            style = {"color": _CLASSES[k % len(_CLASSES)], "marker": _MARKERS[k % len(_MARKERS)]}
            ax.scatter(*chosen.T, s=18, linewidths=0, label=f"class {name} ({len(chosen)})", **style)
    support = getattr(machine, "support_vectors_", None)
    if support is not None and len(support):
        support = np.asarray(support.todense()) if hasattr(support, "todense") else np.asarray(support)
        ring = {"facecolors": "none", "edgecolors": "black", "linewidths": 0.7}
        ax.scatter(*support.T, s=52, label=f"support vectors ({len(support)})", **ring)
    ax.legend(fontsize="small", framealpha=0.9)
    names = ["feature 1", "feature 2"] if names is None else [str(name) for name in names]
    return _finish(ax, *names)


def convergence(machine: Any, *, ax: Any = None, against: Any = "seconds") -> Any:
    """Violation of the optimality conditions during the fit, one marker per phase, from `history_`.

    `against` is "seconds" or "iteration". `machine` is a fitted estimator, or a list of them, drawn as one line each.
    """
    if against not in ("seconds", "iteration"):
        raise ValueError(f"against must be 'seconds' or 'iteration', not {against!r}")
    machines = machine if isinstance(machine, (list, tuple)) else [machine]
    ax = _axes(ax)
    for k, one in enumerate(machines):
        check_is_fitted(one, "history_")
        steps = [step for step in one.history_ if step.get("violation")]
        colour = _CLASSES[k % len(_CLASSES)]
        name = f"{type(one).__name__}, C = {one.C:g}" if hasattr(one, "C") else type(one).__name__
        ax.plot([s[against] for s in steps], [s["violation"] for s in steps], color=colour, lw=1.2, label=name)
        if len(machines) == 1:
            phases = list(dict.fromkeys(step["phase"] for step in steps))
            for j, phase in enumerate(phases):
                of = [s for s in steps if s["phase"] == phase]
                mark = {"ls": "none", "marker": _MARKERS[j % len(_MARKERS)], "ms": 4.5}
                ax.plot(
                    [s[against] for s in of], [s["violation"] for s in of], color=_CLASSES[j % 6], label=phase, **mark
                )
    tol = getattr(machines[0], "tol", None)
    if tol:
        ax.axhline(tol, color="#777777", lw=0.8, ls=":", label=f"tol = {tol:g}")
    ax.set_yscale("log")
    ax.legend(fontsize="small")
    ax.margins(y=0.08)
    return _finish(ax, "time, s" if against == "seconds" else "iteration", "largest violation, units of the score")


def path(X: Any, y: Any, *, kernel: Any = "rbf", gamma: Any = None, alphas: Any = None, ax: Any = None) -> Any:
    """Leave-one-out and training error of regularised least squares for every α, from one eigendecomposition.

    The leave-one-out error of sample i is cᵢ/((K + αI)⁻¹)ᵢᵢ with c = (K + αI)⁻¹y. The best α is marked, and stored as
    `ax.best_alpha`.
    """
    from sklearn.metrics.pairwise import pairwise_kernels

    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} samples and y has {len(y)}")
    options = {} if gamma is None or kernel == "linear" else {"gamma": gamma}
    values, vectors = np.linalg.eigh(pairwise_kernels(X, metric=kernel, **options))
    values = np.maximum(values, 0.0)
    alphas = np.logspace(-6, 3, 60) if alphas is None else np.sort(np.asarray(alphas, dtype=float))
    if not (alphas > 0).all():
        raise ValueError("alphas must be positive")
    turned = vectors.T @ y
    left_out, trained = [], []
    for alpha in alphas:
        share = 1.0 / (values + alpha)
        c = vectors @ (share * turned)
        left_out.append(np.sqrt(np.mean((c / ((vectors**2) @ share)) ** 2)))
        trained.append(np.sqrt(np.mean((alpha * c) ** 2)))
    ax = _axes(ax)
    best = int(np.argmin(left_out))
    ax.plot(alphas, left_out, color=_CLASSES[1], lw=1.6, label="leave-one-out")
    ax.plot(alphas, trained, color=_CLASSES[0], lw=1.2, ls="--", label="training")
    ax.plot(alphas[best], left_out[best], "o", color=_CLASSES[1], ms=6, label=f"best: α = {alphas[best]:.2g}")
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize="small")
    ax.best_alpha = float(alphas[best])
    return _finish(ax, "α", "root mean square error, units of y")


def calibration(machine: Any, X: Any = None, y: Any = None, *, ax: Any = None, bins: Any = 10) -> Any:
    """Calibration curve: fraction of the positive class among samples of similar predicted probability.

    `machine` is an `Evaluation`, whose left-out and training figures are drawn (X and y are then not given), or a classifier
    of two classes with `predict_proba`, or a dictionary of names and classifiers, drawn for X and y. Each bin holds the same
    number of samples. The legend shows the expected calibration error.
    """
    if isinstance(machine, Evaluation):
        known = {name: one for name, one in machine.sets().items() if one.probabilities is not None}
        if machine.positive is None or not known:
            raise ValueError("calibration needs two classes and an estimator with predict_proba (probability=True)")
        drawn = {name: (one.probabilities[:, 1], one.truth == machine.positive) for name, one in known.items()}
    else:
        machines = machine if isinstance(machine, dict) else {type(machine).__name__: machine}
        if any(len(one.classes_) != 2 for one in machines.values()):
            raise ValueError("calibration needs classifiers of two classes")
        if X is None or y is None:
            raise ValueError("calibration of a classifier needs X and y")
        drawn = {name: (one.predict_proba(X)[:, 1], np.asarray(y) == one.classes_[1]) for name, one in machines.items()}
    ax = _axes(ax, 4.8, 4.6)
    ax.plot([0, 1], [0, 1], color="#777777", lw=0.8, ls=":")
    for k, (name, (p, hits)) in enumerate(drawn.items()):
        truth = hits.astype(float)
        parts = [part for part in np.array_split(np.argsort(p, kind="stable"), bins) if len(part)]
        mean, often = (np.array([v[part].mean() for part in parts]) for v in (p, truth))
        error = sum(len(part) * abs(m - o) for part, m, o in zip(parts, mean, often)) / len(p)
        style = {"color": _CLASSES[k % 6], "marker": _MARKERS[k % 6], "ms": 5, "lw": 1.2}
        ax.plot(mean, often, label=f"{name}: error {error:.3f}", **style)
    ax.set_aspect("equal")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.legend(fontsize="small", loc="upper left")
    return _finish(ax, "predicted probability", "fraction of the positive class")


def _figures(evaluation: Any, which: str | None) -> tuple[str, Any]:
    """The name and the figures of one kind of prediction; the most honest ones by default."""
    if not isinstance(evaluation, Evaluation):
        raise TypeError(f"this draws what margrave.evaluate returns, not a {type(evaluation).__name__}")
    sets = evaluation.sets()
    name = next(iter(sets)) if which is None else which.replace("_", " ")
    if name not in sets:
        raise ValueError(f"which={which!r} is not one of {', '.join(sets)}")
    return name, sets[name]


def confusion(evaluation: Any, *, which: str | None = None, ax: Any = None) -> Any:
    """Confusion matrix of an `Evaluation`: rows of each true class by predicted class, with counts and shares.

    `which` is "left out" (the default where there are such figures), "leave one out" or "training".
    """
    name, figures = _figures(evaluation, which)
    counts = figures.confusion()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    k = len(counts)
    ax = _axes(ax, 1.8 + 0.9 * k, 1.5 + 0.8 * k)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    labels = [str(label) for label in figures.classes]
    ax.set_xticks(range(k), labels, rotation=30 if max(map(len, labels)) > 6 else 0, ha="center")
    ax.set_yticks(range(k), labels)
    if k <= 20:
        for i in range(k):
            for j in range(k):
                colour = "white" if shares[i, j] > 0.6 else "black"
                ax.text(
                    j, i, f"{counts[i, j]:g}\n{shares[i, j]:.0%}", ha="center", va="center", color=colour, fontsize=9
                )
    return _finish(ax, "predicted", "true", name)


def _curves(evaluation: Any, ax: Any) -> Any:
    _figures(evaluation, None)
    if evaluation.positive is None:
        raise ValueError("curves are of two classes")
    known = {name: one for name, one in evaluation.sets().items() if one.scores is not None}
    if not known:
        raise ValueError("curves need an estimator with decision_function")
    return known, _axes(ax, 4.8, 4.6)


def roc(evaluation: Any, *, ax: Any = None) -> Any:
    """ROC curves of an `Evaluation` of two classes, left-out and training."""
    known, ax = _curves(evaluation, ax)
    ax.plot([0, 1], [0, 1], color="#777777", lw=0.8, ls=":")
    for k, (name, one) in enumerate(known.items()):
        fpr, tpr, _ = one.roc()
        ax.plot(fpr, tpr, color=_CLASSES[k % 6], lw=1.5, label=f"{name}: area {one.metrics['roc_auc']:.3f}")
    ax.set_aspect("equal")
    ax.legend(fontsize="small", loc="lower right")
    return _finish(ax, "false positive rate", f"true positive rate ({evaluation.positive})")


def precision_recall(evaluation: Any, *, ax: Any = None) -> Any:
    """Precision-recall curves of an `Evaluation` of two classes, left-out and training."""
    known, ax = _curves(evaluation, ax)
    for k, (name, one) in enumerate(known.items()):
        precision, recall, _ = one.precision_recall()
        label = f"{name}: average {one.metrics['average_precision']:.3f}"
        ax.step(recall, precision, where="post", color=_CLASSES[k % 6], lw=1.5, label=label)
    ax.set_ylim(0, 1.02)
    ax.legend(fontsize="small", loc="lower left")
    return _finish(ax, f"recall ({evaluation.positive})", "precision")


def scores(evaluation: Any, *, which: str | None = None, ax: Any = None, bins: int = 30) -> Any:
    """Histogram of the scores of an `Evaluation` of two classes, by true class."""
    name, figures = _figures(evaluation, which)
    if figures.scores is None:
        raise ValueError("scores need two classes and an estimator with decision_function")
    ax = _axes(ax)
    edges = np.linspace(figures.scores.min(), figures.scores.max() + 1e-9, bins + 1)
    for k, label in enumerate(figures.classes):
        own = figures.truth == label
        weights = None if figures.weights is None else figures.weights[own]
        ax.hist(figures.scores[own], edges, weights=weights, color=_CLASSES[k], alpha=0.55, label=str(label))
    # The threshold of the model itself; those of the folds scatter around it.
    cut = evaluation.threshold
    shown = f"threshold {cut:.3g}" if cut else None
    ax.axvline(cut or 0.0, color="#777777", lw=0.8, ls=":", label=shown)
    ax.legend(fontsize="small")
    return _finish(ax, "score", "rows", name)


def residuals(evaluation: Any, *, which: str | None = None, target: int = 0, ax: Any = None) -> Any:
    """Residuals of an `Evaluation` of a regression against the predictions; `target` chooses one of several."""
    name, figures = _figures(evaluation, which)
    left = figures.residuals()
    z, r = (v if v.ndim == 1 else v[:, target] for v in (figures.predictions, left))
    ax = _axes(ax)
    ax.axhline(0, color="#777777", lw=0.8, ls=":")
    ax.scatter(z, r, s=14, color=_CLASSES[0], alpha=0.6, linewidths=0)
    # Large numbers would overlap.
    ax.locator_params(axis="x", nbins=5)
    return _finish(ax, "prediction", "target − prediction", name)


def report(evaluation: Any) -> Any:
    """All figures that suit an `Evaluation`, in one matplotlib figure. Returns its axes, as the other functions do."""
    _figures(evaluation, None)
    plt = _pyplot()
    best = evaluation.best()
    drawn: list[Any] = []
    if evaluation.task == "regress":
        drawn = [residuals, lambda e, ax: residuals(e, which="training", ax=ax)]
    else:
        drawn = [confusion, lambda e, ax: confusion(e, which="training", ax=ax)]
        if evaluation.positive is not None and best.scores is not None:
            drawn += [roc, precision_recall, scores]
        if evaluation.positive is not None and best.probabilities is not None:
            drawn.append(calibration)
    rows = (len(drawn) + 1) // 2
    _, axes = plt.subplots(rows, 2, figsize=(9.6, 4.2 * rows), layout="constrained", squeeze=False)
    for one, ax in zip(drawn, axes.flat):
        one(evaluation, ax=ax)
    for ax in axes.flat[len(drawn) :]:
        ax.set_visible(False)
    return axes


def losses(
    names: Any = ("hinge", "squared-hinge", "logistic", "sigmoid:eta=2"),
    *,
    ax: Any = None,
    span: Any = (-1.5, 2.5),
    y: Any = 1.0,
) -> Any:
    """Losses, by name or as objects with `value(y, z)`, as functions of the score."""
    ax = _axes(ax)
    z = np.linspace(span[0], span[1], 401)
    styles = ("-", "--", "-.", ":")
    for k, loss in enumerate(names):
        shown = _losses.Loss(loss) if isinstance(loss, str) else loss
        name = getattr(shown, "spec", type(shown).__name__)
        value = np.array([float(shown.value(y, float(one))) for one in z])
        ax.plot(z, value, color=_CLASSES[k % 6], ls=styles[k % 4], lw=1.6, label=name)
    ax.axvline(y, color="#777777", lw=0.8, ls=":")
    ax.set_ylim(-0.05, 3.0)
    ax.legend(fontsize="small")
    return _finish(ax, f"score z (target y = {y:g}, dotted)", "loss ℓ(y, z)")


__all__ = [
    "COLOURS",
    "boundary",
    "calibration",
    "confusion",
    "convergence",
    "losses",
    "path",
    "precision_recall",
    "report",
    "residuals",
    "roc",
    "scores",
]
