"""Plots of the Python examples, drawn from the variables that an example defines."""

import matplotlib.pyplot as plt
import numpy as np

from margrave import SVC, plot

plt.rcParams["svg.hashsalt"] = "margrave"


def _axes(count=1):
    figure, axes = plt.subplots(1, count, figsize=(5.6 * count, 4.2), layout="constrained", squeeze=False)
    return figure, axes[0]


def _quantiles(names):
    figure, (ax,) = _axes()
    X, y = names["X"], names["y"]
    grid = np.linspace(X.min(), X.max(), 300)[:, None]
    ax.plot(X[:, 0], y, ".", color="0.6", markersize=3, label="samples")
    low, middle, high = (names["bands"][tau].predict(grid) for tau in (0.05, 0.5, 0.95))
    ax.fill_between(grid[:, 0], low, high, color=plot.COLOURS[1], alpha=0.2, label="5 % to 95 %")
    ax.plot(grid[:, 0], middle, color=plot.COLOURS[1], label="median")
    ax.set(xlabel="x", ylabel="y", title="Quantiles by the pinball loss")
    ax.legend(frameon=False)
    return figure


def _robust(names):
    figure, axes = _axes(2)
    X, y = names["X"], names["noisy"]
    for ax, loss in zip(axes, ("hinge", "sigmoid:eta=2")):
        plot.boundary(SVC(C=10.0, kernel="linear", loss=loss).fit(X, y), X, y, ax=ax)
        ax.set_title(f"{loss}: {100 * names['score'][loss]:.1f} % right on clean labels", fontsize="medium")
    return figure


def _tune(names):
    figure, (ax,) = _axes()
    costs, gammas = names["costs"], names["gammas"]
    found = {
        (p["C"], p["gamma"]): s
        for p, s in zip(names["model"].cv_results_["params"], names["model"].cv_results_["mean_test_score"])
    }
    table = np.array([[found[c, g] for c in costs] for g in gammas])
    image = ax.imshow(100 * table, origin="lower", cmap="viridis", aspect="auto")
    ax.set_xticks(range(len(costs)), [f"{c:g}" for c in costs])
    ax.set_yticks(range(len(gammas)), [f"{g:g}" for g in gammas])
    ax.set(xlabel="C", ylabel="γ", title="Digits: accuracy in four folds")
    figure.colorbar(image, ax=ax, label="% right")
    return figure


def _certify(names):
    figure, (ax,) = _axes()
    labels = ["200 iterations", "tol = 1", "tol = 0.001"]
    gaps = [names["proof"].relative_gap, *(names["found"][tol].relative_gap for tol in (1.0, 1e-3))]
    ax.barh(labels, gaps, color=plot.COLOURS[1])
    ax.set_xscale("log")
    ax.set(xlabel="relative duality gap", title="Models of scikit-learn, certified")
    return figure


def _switch(names):
    figure, (ax,) = _axes()
    ours = names["model"].decision_function(names["X_test"])
    theirs = names["theirs"].decision_function(names["X_test"])
    ax.plot([ours.min(), ours.max()], [ours.min(), ours.max()], color="0.7")
    ax.plot(theirs, ours, ".", color=plot.COLOURS[1])
    ax.set(xlabel="score by scikit-learn", ylabel="score by Margrave", title="The same model")
    return figure


DRAWN = {"certify": _certify, "quantiles": _quantiles, "robust": _robust, "switch": _switch, "tune": _tune}


def draw(name, names, path):
    """Draws the plot of the example `name` into the file `path`, if there is one."""
    if name in DRAWN:
        DRAWN[name](names).savefig(path, metadata={"Date": None})
