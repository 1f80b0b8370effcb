"""Plots show the numbers of the model."""

import numpy as np
import pytest

from margrave import SVC, OneClassSVM

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from margrave import plot  # noqa: E402


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_boundary_counts_support_vectors_and_classes(iris, blobs):
    X, y = iris
    model = SVC().fit(X[:, 2:], y)
    ax = plot.boundary(model, X[:, 2:], y, features=("length", "width"))
    assert f"support vectors ({len(model.support_)})" in labels(ax) and "class 2 (50)" in labels(ax)
    assert ax.get_xlabel() == "length"
    X, y = blobs
    novelty = OneClassSVM(nu=0.2).fit(X[:, :2])
    assert "150 samples" in labels(plot.boundary(novelty, X[:, :2]))
    with pytest.raises(ValueError, match="two features"):
        plot.boundary(SVC().fit(X, y), X, y)


def test_convergence_draws_the_history(blobs):
    model = SVC(C=10.0).fit(*blobs)
    ax = plot.convergence(model, against="iteration")
    drawn = ax.get_lines()[0].get_ydata()
    assert list(drawn) == [step["violation"] for step in model.history_ if step.get("violation")]
    assert len(labels(plot.convergence([model, SVC(C=1.0).fit(*blobs)]))) == 3
    with pytest.raises(ValueError, match="seconds"):
        plot.convergence(model, against="days")


def test_path_is_the_leave_one_out_error(line):
    from sklearn.kernel_ridge import KernelRidge

    X, y = line[0][:40], line[1][:40]
    alphas = np.array([0.05, 1.0, 20.0])
    ax = plot.path(X, y, gamma=0.2, alphas=alphas)
    drawn = ax.get_lines()[0].get_ydata()
    for alpha, value in zip(alphas, drawn):
        left = []
        for i in range(40):
            rest = np.arange(40) != i
            model = KernelRidge(alpha=alpha, kernel="rbf", gamma=0.2).fit(X[rest], y[rest])
            left.append(y[i] - model.predict(X[i : i + 1])[0])
        assert np.sqrt(np.mean(np.square(left))) == pytest.approx(value, rel=1e-8)
    assert ax.best_alpha == alphas[np.argmin(drawn)]
    with pytest.raises(ValueError, match="positive"):
        plot.path(X, y, alphas=[0.0])


def test_calibration_and_losses(blobs):
    X, y = blobs
    model = SVC(probability=True).fit(X, y)
    ax = plot.calibration({"ours": model}, X, y, bins=5)
    drawn = ax.get_lines()[1]
    assert len(drawn.get_xdata()) == 5 and np.all(np.diff(drawn.get_xdata()) > 0)
    assert labels(ax)[0].startswith("ours: error 0.")

    class Mine:
        def value(self, y, z):
            return abs(y - z)

    ax = plot.losses(["hinge", Mine()])
    assert labels(ax) == ["hinge", "Mine"]
    assert ax.get_lines()[0].get_ydata()[0] == pytest.approx(2.5)
