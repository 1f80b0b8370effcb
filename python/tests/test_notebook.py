"""A notebook: progress is an output of the cell, and results have an HTML form."""

import nbclient
import nbformat

CELLS = [
    "import numpy as np, margrave, margrave.progress\nmargrave.progress.PATIENCE = 0.0",
    "rng = np.random.default_rng(0)\nX = rng.normal(size=(300, 3)); y = X[:, 0] * X[:, 1] > 0",
    "model = margrave.SVC(verbose=True, C=10).fit(X, y)",
    "margrave.SVCCV(Cs=[1, 10], gammas=[0.1, 1], verbose=True).fit(X, y).best_score_",
    "model.certificate_",
    "model",
]


def test_a_notebook_shows_progress_and_tables():
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    outputs = [cell.outputs for cell in book.cells]
    assert outputs[0] == [] and outputs[1] == []
    fit, search, certificate, estimator = outputs[2:]
    assert fit[0].output_type == "display_data" and fit[0].data["text/plain"].startswith("SVC · ")
    shown = [one.data["text/plain"] for one in search if one.output_type == "display_data"]
    assert [line.split(" · ")[0] for line in shown] == ["SVCCV search", "SVCCV"]
    assert not [one for one in fit + search if one.output_type == "stream"]
    assert "<table>" in certificate[0].data["text/html"] and "relative gap" in certificate[0].data["text/html"]
    assert "SVC" in estimator[0].data["text/html"]
