"""The kinds of cases, and the kind that trains."""

from __future__ import annotations

import numpy as np

from . import data, files, options, other_cases, reference
from .case import Case, check_predictions, check_verify, train
from .comparisons import compare
from .data import Array, Rng
from .options import Options


def run_case(case: Case) -> None:
    """Draws and runs the case; errors are in its findings."""
    rng = case.stream(0)
    kind = rng.random()
    if kind < 0.80:
        training_case(case, rng)
    elif kind < 0.88:
        other_cases.damaged_data(case, rng)
    elif kind < 0.91:
        other_cases.damaged_model(case, rng)
    elif kind < 0.95:
        other_cases.libsvm(case, rng)
    elif kind < 0.965:
        other_cases.tune(case, rng)
    elif kind < 0.97:
        other_cases.wide(case, rng)
    elif kind < 0.98:
        other_cases.overwrite(case, rng)
    elif kind < 0.99:
        other_cases.interrupt(case, rng)
    else:
        other_cases.time_limit(case, rng)


def draw_task(rng: Rng) -> str:
    return str(rng.choice(["classify", "classify", "classify", "regress", "regress", "novelty"]))


def training_case(case: Case, rng: Rng) -> None:
    """A training, its certificate, its predictions, and one comparison with another training."""
    task = draw_task(rng)
    table = data.draw(rng, task, case.setting.root, case.setting.beside)
    drawn = options.draw(case.stream(1), table, task)
    if drawn.solver in ("smo", "svmtorch") and table.n > 300:
        table = table.take(np.arange(300))
    gram = None
    if rng.random() < 0.05 and drawn.kernel in ("linear", "rbf") and drawn.scale is None and not table.has_text and not drawn.svdd:
        gram, table, drawn = precomputed(table, drawn)
    if drawn.kernel == "chi2" and drawn.scale is None:
        table.columns = [column if column.dtype == object else np.abs(column) for column in table.columns]
    fitting = [form for form in ("npy", "npz", "csv") if files.fits(form, table)]
    form = files.choose(rng, table) if gram is None else str(rng.choice(fitting))
    stored = files.store(table, case.folder, "data", form)
    case.about = f"{table.about}, {', '.join(table.notes) or 'plain'}, n = {table.n}, {form}"
    trained = train(case, stored, drawn, "first")
    if trained is None:
        return
    check_verify(case, trained, rng)
    check_predictions(case, trained)
    compare(case, trained, rng)


def precomputed(table: data.Table, drawn: Options) -> tuple[Array, data.Table, Options]:
    """The Gram matrix itself as the data."""
    x = table.encoded()
    spread = float(x.var() * x.shape[1])
    gamma = 1.0 / spread if spread > 0 else 1.0
    gram = reference.kernel_matrix({"name": drawn.kernel, "gamma": gamma}, x, x)[0]
    gram = 0.5 * (gram + gram.T)
    changed = drawn.other(kernel="precomputed", gamma=None, intercept=None, l1=False)
    if changed.multiclass == "crammer-singer" or changed.solver == "linear":
        changed = changed.other(multiclass=None, solver=None)
    return gram, files.gram_table(gram, table), changed
