"""Left-out figures: the same as by hand, and as the program has them."""

import json
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from sklearn import metrics, svm
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import margrave
from margrave import SVC, SVR, KernelRidge, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM, TablePreprocessor, evaluate

matplotlib.use("Agg")


def program(*arguments):
    done = subprocess.run([sys.executable, "-m", "margrave", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_left_out_figures_are_those_of_scikit_learn(blobs):
    X, y = blobs
    model = make_pipeline(StandardScaler(), SVC(C=100, gamma=1.0, probability=True))
    folds = KFold(4, shuffle=True, random_state=3)
    found = evaluate(model, X, y, cv=folds)
    assert found.folds == 4 and found.task == "classify" and found.positive == 1
    labels = cross_val_predict(model, X, y, cv=folds)
    scores = cross_val_predict(model, X, y, cv=folds, method="decision_function")
    p = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
    left = found.left_out
    assert (left.predictions == labels).all()
    np.testing.assert_allclose(left.scores, scores)
    np.testing.assert_allclose(left.probabilities, p)
    expected = {
        "accuracy": metrics.accuracy_score(y, labels),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, labels),
        "f1": metrics.f1_score(y, labels),
        "f1_macro": metrics.f1_score(y, labels, average="macro"),
        "mcc": metrics.matthews_corrcoef(y, labels),
        "roc_auc": metrics.roc_auc_score(y, scores),
        "average_precision": metrics.average_precision_score(y, scores),
        "log_loss": metrics.log_loss(y, p),
        "brier": metrics.brier_score_loss(y, p[:, 1]),
    }
    assert left.metrics == {**left.metrics, **{name: pytest.approx(value) for name, value in expected.items()}}
    # A machine this flexible remembers its rows.
    assert found.training.metrics["accuracy"] > left.metrics["accuracy"] + 0.05
    assert (left.confusion() == metrics.confusion_matrix(y, labels)).all()
    fpr, tpr, _ = left.roc()
    assert metrics.auc(fpr, tpr) == pytest.approx(left.metrics["roc_auc"])
    assert len(left.precision_recall()) == 3
    bins = left.calibration(5)
    assert sum(b["count"] for b in bins) == len(y)
    assert sum(b["count"] * b["share"] for b in bins) == pytest.approx(y.sum())
    assert all(b["low"] <= b["probability"] <= b["high"] for b in bins)


@pytest.mark.parametrize(
    "model", [KernelRidge(alpha=0.1, kernel="rbf", gamma=0.2), SVR(C=3.0, loss="square", gamma=0.2)]
)
def test_leave_one_out_is_exact_for_the_square_loss(line, model):
    X, y = line[0][:50], line[1][:50]
    found = evaluate(model, X, y)
    assert found.exact is True and "exact" in found.how_one_out
    by_hand = cross_val_predict(model, X, y, cv=LeaveOneOut())
    np.testing.assert_allclose(found.leave_one_out.predictions, by_hand, atol=1e-5)
    np.testing.assert_allclose(found.leave_one_out.residuals(), y - by_hand, atol=1e-5)


@pytest.mark.parametrize("model", [SVC(C=1.0, gamma=0.5), LinearSVC(C=1.0), SVR(C=1.0, gamma=0.5)])
def test_the_span_rule_is_nearer_than_training_scores(blobs, model):
    X, y = blobs[0][:60], blobs[1][:60]
    X = StandardScaler().fit_transform(X)
    found = evaluate(model, X, y.astype(float) if isinstance(model, SVR) else y)
    assert found.exact is False and "span rule" in found.how_one_out
    method = "predict" if isinstance(model, SVR) else "decision_function"
    truth = cross_val_predict(model, X, y, cv=LeaveOneOut(), method=method)
    one, training = found.leave_one_out, found.training
    own = [one.predictions, training.predictions] if isinstance(model, SVR) else [one.scores, training.scores]
    near, far = (np.abs(v - truth).sum() for v in own)
    assert near < 0.7 * far


def test_several_classes_and_their_leave_one_out(iris):
    X, y = iris
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    for model in (SVC(), LinearSVC(max_iter=10000), NuSVC(nu=0.2)):
        found = evaluate(model, X, names)
        assert found.positive is None and found.left_out.scores is None
        assert 0.9 < found.left_out.metrics["accuracy"] <= found.training.metrics["accuracy"] + 0.03
        assert [entry["label"] for entry in found.left_out.metrics["by_class"]] == sorted(set(names))
        # ν-machines have two biases, and no closed form.
        assert (found.leave_one_out is None) == isinstance(model, NuSVC)
        if found.leave_one_out is not None:
            assert abs(found.leave_one_out.metrics["accuracy"] - found.left_out.metrics["accuracy"]) < 0.05
        with pytest.raises(ValueError, match="two classes"):
            found.left_out.roc()
        with pytest.raises(ValueError, match="regression"):
            found.left_out.residuals()


def test_what_steps_learn_is_learnt_inside_the_folds():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    X[rng.random(X.shape) < 0.3] = np.nan
    X[::2] += 3.0
    y = (rng.random(60) < 0.5).astype(int)
    model = make_pipeline(TablePreprocessor(missing="mean"), StandardScaler(), SVC(loss="squared-hinge"))
    folds = [(np.arange(1, 60, 2), np.arange(0, 60, 2)), (np.arange(0, 60, 2), np.arange(1, 60, 2))]
    found = evaluate(model, X, y, cv=folds)
    for train, test in folds:
        own = clone(model).fit(X[train], y[train])
        assert (found.left_out.predictions[test] == own.predict(X[test])).all()
    assert found.fingerprint is not None and "those of all rows" in found.how_one_out
    # Without a preprocessor of ours nobody knows which numbers the program would read.
    words = np.where(X > 1, "high", "low").astype(object)
    assert evaluate(make_pipeline(OneHotEncoder(), SVC()), words, y).fingerprint is None


def test_weights_count_in_training_and_in_metrics(blobs):
    X, y = blobs
    weights = np.arange(len(y)) % 3.0
    for model in (SVC(gamma=0.3), make_pipeline(StandardScaler(), LinearSVC())):
        found = evaluate(model, X, y, sample_weight=weights)
        training = found.training
        assert training.metrics["accuracy"] == metrics.accuracy_score(y, training.predictions, sample_weight=weights)
        assert training.confusion().sum() == weights.sum()
        # Rows of weight 0 are no part of the solution.
        assert (weights[found.leave_one_out.rows] > 0).all()
        assert len(found.leave_one_out.rows) == (weights > 0).sum()


def test_a_fitted_model_is_not_fitted_again(blobs):
    X, y = blobs
    model = SVC(C=3).fit(X, y)
    before = model.dual_coef_.copy()
    found = evaluate(model, X, y)
    assert (model.dual_coef_ == before).all() and not hasattr(model, "_wants_left_out")
    assert found.certificate is model.certificate_ and found.params["C"] == 3
    assert (found.training.predictions == model.predict(X)).all()


def test_thresholds_and_foreign_estimators_and_precomputed_kernels(blobs):
    X, y = blobs
    found = evaluate(SVC(threshold="recall=0.9"), X, y)
    assert found.left_out.metrics["by_class"][1]["recall"] > 0.8
    assert "threshold was chosen" in found.how_one_out
    other = evaluate(svm.SVC(), X, y)
    assert other.leave_one_out is None and "not an estimator of margrave" in other.how_one_out
    ours = evaluate(SVC(), X, y)
    assert abs(other.left_out.metrics["accuracy"] - ours.left_out.metrics["accuracy"]) < 0.01
    K = X @ X.T
    table = evaluate(SVC(kernel="precomputed"), K, y)
    assert table.left_out.metrics == evaluate(SVC(kernel="linear"), X, y).left_out.metrics


def test_mistakes_are_named(blobs, line):
    X, y = blobs
    with pytest.raises(ValueError, match="novelty detection has no targets"):
        evaluate(OneClassSVM(), X, y)
    with pytest.raises(TypeError, match="neither a classifier nor a regressor"):
        evaluate(StandardScaler(), X, y)
    with pytest.raises(ValueError, match="at least 2 folds"):
        evaluate(SVC(), X, y, cv=1)
    with pytest.raises(ValueError, match="exactly once"):
        evaluate(SVC(), X, y, cv=[(np.arange(100), np.arange(100, 150))])
    with pytest.raises(ValueError, match="nothing to tell apart"):
        evaluate(SVC(), X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        evaluate(SVC(), X, y[:-1])
    alone = y.copy()
    alone[:] = 0
    alone[0] = 1
    found = evaluate(SVC(), X, alone)
    assert found.left_out is None and "single row" in found.how and found.folds is None
    assert found.best() is found.leave_one_out
    with pytest.raises(ValueError, match="probability=True"):
        found.best().calibration()
    with pytest.raises(ValueError, match="bins must be at least 1"):
        evaluate(SVC(probability=True), X, y).best().calibration(0)
    groups = np.arange(len(y)) // 10
    assert evaluate(SVC(), X, y, cv=GroupKFold(5), groups=groups).folds == 5


@pytest.mark.parametrize("model", [SVR(C=10), NuSVR(C=10), LinearSVR(C=10), KernelRidge(), SVR(kernel="linear")])
def test_several_targets_are_judged_together(line, model):
    X, y = line
    Y = np.column_stack([y, 100 * y**2, X[:, 0]])
    found = evaluate(make_pipeline(StandardScaler(), model), X, Y)
    assert found.left_out.predictions.shape == Y.shape and found.left_out.residuals().shape == Y.shape
    each = [metrics.mean_squared_error(Y[:, k], found.left_out.predictions[:, k]) for k in range(3)]
    assert found.left_out.metrics["mse"] == pytest.approx(np.mean(each))
    assert found.left_out.metrics["rmse"] == pytest.approx(np.mean(np.sqrt(each)))


def test_the_program_and_python_say_the_same(tmp_path, blobs):
    X, y = blobs
    X = np.round(X, 3)
    np.savetxt(tmp_path / "d.csv", np.column_stack([X, y]), delimiter=",", fmt="%.9g")
    options = ["--header", "no", "--gamma", "0.3", "-C", "2", "--report", tmp_path / "r.html", "--json"]
    said = program("train", tmp_path / "d.csv", "-o", tmp_path / "m", *options)["report"]
    found = evaluate(SVC(C=2, gamma=0.3), X, y).as_dict()
    assert found["fingerprint"] == said["fingerprint"]
    for part, names in [("training", ["accuracy", "mcc", "roc_auc"]), ("leave_one_out", ["accuracy", "f1", "roc_auc"])]:
        for name in names:
            assert found[part][name] == pytest.approx(said[part][name], abs=1e-6), (part, name)
    assert found["leave_one_out"]["rows"] == said["leave_one_out"]["rows"] == len(y)
    # Words as targets, and weights, are part of it.
    words = np.array(["no", "yes"])[y]
    other = evaluate(SVC(), X, words)
    assert other.fingerprint != found["fingerprint"]
    assert evaluate(SVC(), X, y, sample_weight=np.full(len(y), 2.0)).fingerprint != found["fingerprint"]


def test_reports_are_pages_json_and_text(tmp_path, blobs, iris, line):
    X, y = blobs
    names = np.array(["ill & <tired>", "well"])[y]
    found = evaluate(SVC(probability=True), X, names)
    for part in ("left out", "leave one out", "training", "positive class: well", "5 folds, seed 0"):
        assert part in str(found), part
    assert repr(found).startswith("Evaluation(SVC, left out: accuracy=0.")
    assert "<table>" in found._repr_html_()
    found.save(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    parts = [
        "ill &amp; &lt;tired&gt;",
        "<svg",
        "Model card",
        found.fingerprint,
        "prefers-color-scheme:dark",
        "@media print",
    ]
    for part in [*parts, "Calibration", "leave one out", "probability_rule"]:
        assert part in page, part
    assert "<script" not in page and "href=" not in page.replace("xlink:href=", "")
    found.save(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["left_out"]["positive"] == "well"
    for model, data in [(SVC(), iris), (SVR(), line), (SVR(), (line[0], np.column_stack([line[1]] * 2)))]:
        evaluate(model, *data).save(tmp_path / "other.html")
    with pytest.raises(FileNotFoundError):
        found.save(tmp_path / "nowhere" / "r.html")


def test_figures_are_drawn(blobs, iris, line):
    import matplotlib.pyplot as plt

    from margrave import plot

    X, y = blobs
    found = evaluate(SVC(probability=True), X, y)
    ax = plot.roc(found)
    assert [line.get_label() for line in ax.lines[1:]] == [
        f"{name}: area {one.metrics['roc_auc']:.3f}" for name, one in found.sets().items()
    ]
    assert len(plot.precision_recall(found).lines) == 3
    assert len(plot.calibration(found).lines) == 3
    assert sum(int(t.get_text().split()[0]) for t in plot.confusion(found).texts) == len(y)
    assert plot.confusion(found, which="training").get_title() == "training"
    assert len(plot.scores(found).containers) == 2
    assert sum(ax.get_visible() for ax in plot.report(found).flat) == 6
    numbers = evaluate(SVR(), *line)
    assert len(plot.residuals(numbers).collections[0].get_offsets()) == len(line[1])
    plot.report(numbers)
    plot.report(evaluate(SVC(), *iris))
    with pytest.raises(ValueError, match="not one of left out"):
        plot.confusion(found, which="best")
    with pytest.raises(TypeError, match=r"margrave\.evaluate"):
        plot.roc(SVC())
    with pytest.raises(ValueError, match="two classes"):
        plot.roc(evaluate(SVC(), *iris))
    with pytest.raises(ValueError, match="needs X and y"):
        plot.calibration(SVC(probability=True).fit(X, y))
    plt.close("all")


def test_it_is_part_of_the_package():
    assert margrave.evaluate is evaluate and "evaluate" in margrave.__all__


def test_pictures_show_the_threshold_and_readable_numbers(blobs, line):
    X, y = blobs
    model = SVC(threshold="recall=0.95").fit(X, y)
    ax = margrave.plot.scores(evaluate(model, X, y))
    assert ax.lines[-1].get_xdata()[0] == model.threshold_ != 0
    assert f"threshold {model.threshold_:.3g}" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert margrave.plot.scores(evaluate(SVC(), X, y)).lines[-1].get_xdata()[0] == 0
    # Labels of large numbers do not overlap.
    axes = margrave.plot.report(evaluate(SVR(C=1e6), line[0], 1e6 * line[1]))
    axes[0, 0].figure.canvas.draw()
    for ax in axes.flat:
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
        assert all(a.x1 < b.x0 for a, b in zip(boxes, boxes[1:]))
