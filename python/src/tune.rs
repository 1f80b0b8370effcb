//! Grid search by cross-validation.

use margrave::engine::metrics::Metric;
use margrave::tune::{Grid, Tuner};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::data::{PyPoints, Vector, dataset, matrix};
use crate::errors::raise;
use crate::losses::Trouble;
use crate::params::Params;
use crate::supervise::{Supervised, supervise};

/// Scores of all combinations of `costs`, `gammas` and `epsilons`; an empty list means the value of the machine.
/// `fold_of` numbers the fold of each row, below `folds`; `counts` is how much each row counts in a score; `race` is the number of
/// standard deviations by which a combination must fall behind to be dropped; `None`: none is dropped. `score` names what to
/// choose by; with `keep_scores` the result has the scores of the test rows of each cell and fold, rows × outputs.
#[pyfunction]
#[pyo3(signature = (params, x, y, weights, costs, gammas, epsilons, folds, fold_of, counts=None, race=None, report=None, score=None, keep_scores=false))]
pub(crate) fn tune<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    y: Vector<'py>,
    weights: Option<Vector<'py>>,
    costs: Vec<f64>,
    gammas: Vec<f64>,
    epsilons: Vec<f64>,
    folds: usize,
    fold_of: PyReadonlyArray1<'py, i64>,
    counts: Option<Vector<'py>>,
    race: Option<f64>,
    report: Option<&Bound<'py, PyAny>>,
    score: Option<&str>,
    keep_scores: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let score = score.map(|name| name.parse::<Metric>().map_err(raise)).transpose()?;
    let data = dataset(x, Some(y), weights)?;
    let trouble = Trouble::default();
    let svm = params.svm(py, data.len(), &data.targets, &trouble)?;
    let grid = Grid { costs, gammas, epsilons, ..Grid::default() };
    let fold_of: Vec<u32> = fold_of.as_slice()?.iter().map(|&fold| fold as u32).collect();
    let sizes: Vec<usize> = (0..folds).map(|f| fold_of.iter().filter(|&&g| g as usize == f).count()).collect();
    let fold_of = Some(fold_of);
    let counts = match counts {
        Some(counts) => Some(counts.as_slice()?.to_vec()),
        None => None,
    };
    let ended = supervise(py, report, params.small(), |cancel, observer| {
        let tuner = Tuner { folds, fold_of, counts, race, score, keep_scores, ..Tuner::new(svm.cancel(cancel), grid) };
        tuner.search(&data, observer)
    })?;
    trouble.check()?;
    let Supervised { value, interrupted, .. } = ended;
    let tuned = match (value, interrupted.as_ref()) {
        (Ok(tuned), _) => tuned,
        (Err(_), Some(error)) => return Err(error.clone_ref(py)),
        (Err(error), None) => return Err(raise(error)),
    };
    let cells = PyList::empty(py);
    for cell in &tuned.cells {
        let dict = PyDict::new(py);
        dict.set_item("C", cell.params.c)?;
        dict.set_item("gamma", cell.params.kernel.gamma())?;
        dict.set_item("epsilon", cell.params.epsilon)?;
        dict.set_item("folds", cell.folds.clone())?;
        dict.set_item("dropped", cell.dropped)?;
        dict.set_item("seconds", cell.seconds)?;
        cells.append(dict)?;
    }
    let out = PyDict::new(py);
    let scores = PyList::empty(py);
    for cell in tuned.scores {
        let by_fold = PyList::empty(py);
        for (fold, z) in cell.into_iter().enumerate() {
            let rows = sizes.get(fold).copied().unwrap_or(0).max(1);
            by_fold.append(matrix(py, rows, z.len() / rows, z)?)?;
        }
        scores.append(by_fold)?;
    }
    out.set_item("scores", scores)?;
    out.set_item("cells", cells)?;
    out.set_item("best", tuned.best)?;
    out.set_item("status", tuned.status.name())?;
    out.set_item("seconds", tuned.seconds)?;
    out.set_item("interrupted", interrupted.map(|error| error.into_value(py)))?;
    Ok(out)
}

/// Whether a text names a score of the engine.
#[pyfunction]
pub(crate) fn is_score(name: &str) -> bool {
    name.parse::<Metric>().is_ok()
}
