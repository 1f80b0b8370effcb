//! Grid search by cross-validation.

use margrave::engine::metrics::Metric;
use margrave::engine::{Interrupt, Result};
use margrave::tune::{Found, Grid, MachineState, Outcome, Remote, SearchTask, Tuner};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::data::{PyPoints, Vector, dataset, matrix, vector};
use crate::errors::raise;
use crate::losses::Trouble;
use crate::params::Params;
use crate::supervise::{Supervised, supervise};

/// Scores of all combinations of `costs`, `gammas` and `epsilons`; an empty list means the value of the machine.
/// `fold_of` numbers the fold of each row, below `folds`; `counts` is how much each row counts in a score; `race` is the number of
/// standard deviations by which a combination must fall behind to be dropped; `None`: none is dropped. `score` names what to
/// choose by; with `keep_scores` the result has the scores of the test rows of each cell and fold, rows × outputs. `remote` is
/// called with the tasks of each round, dictionaries, and returns what `tune_task` returns for each of them.
#[pyfunction]
#[pyo3(signature = (params, x, y, weights, costs, gammas, epsilons, folds, fold_of, counts=None, race=None, report=None, score=None, keep_scores=false, remote=None))]
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
    remote: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let score = score.map(|name| name.parse::<Metric>().map_err(raise)).transpose()?;
    let data = dataset(x, Some(y), weights)?;
    let trouble = Trouble::default();
    let svm = params.svm(py, &data.points, &data.targets, &trouble)?;
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
        match remote {
            None => tuner.search(&data, observer).map(|tuned| (tuned, None)),
            Some(call) => {
                let mut remote = PyRemote { call, raised: None };
                let tuned = tuner.search_on(&data, Some(&mut remote), observer);
                tuned.map(|tuned| (tuned, remote.raised))
            }
        }
    })?;
    trouble.check()?;
    let Supervised { value, interrupted, .. } = ended;
    let (tuned, raised) = match (value, interrupted.as_ref()) {
        (Ok(tuned), _) => tuned,
        (Err(_), Some(error)) => return Err(error.clone_ref(py)),
        (Err(error), None) => return Err(raise(error)),
    };
    let interrupted = interrupted.or(raised);
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

/// Tasks carried out by a Python function.
struct PyRemote {
    call: Py<PyAny>,
    /// The exception that ended the search.
    raised: Option<PyErr>,
}

impl Remote for PyRemote {
    fn run(&mut self, tasks: &[SearchTask]) -> Result<Vec<Outcome>> {
        let found = Python::attach(|py| -> PyResult<Vec<Outcome>> {
            let list = PyList::empty(py);
            for task in tasks {
                let dict = PyDict::new(py);
                dict.set_item("kernel", task.kernel)?;
                dict.set_item("folds", &task.folds)?;
                dict.set_item("cells", &task.cells)?;
                dict.set_item("keep_machines", task.keep_machines)?;
                list.append(dict)?;
            }
            let found: Vec<Vec<OutcomeParam<'_>>> = self.call.bind(py).call1((list,))?.extract()?;
            found.into_iter().flatten().map(OutcomeParam::outcome).collect()
        });
        found.map_err(|error| {
            self.raised = Some(error);
            Interrupt::Cancelled.into()
        })
    }
}

/// A combination on a fold, as `tune_task` returns it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct OutcomeParam<'py> {
    cell: usize,
    fold: usize,
    seconds: f64,
    score: Option<f64>,
    losses: PyReadonlyArray1<'py, f32>,
    kept: Vector<'py>,
    scores: Option<Vector<'py>>,
}

impl OutcomeParam<'_> {
    fn outcome(self) -> PyResult<Outcome> {
        let scores = self.scores.map(|scores| scores.as_slice().map(<[f64]>::to_vec)).transpose()?;
        let (losses, kept) = (self.losses.as_slice()?.to_vec(), self.kept.as_slice()?.to_vec());
        let found = self.score.map(|score| Found { score, losses, kept, scores, machines: vec![] });
        Ok(Outcome { cell: self.cell, fold: self.fold, seconds: self.seconds, found })
    }
}

/// A task of a search: a kernel, folds, combinations, and whether to return machines.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TaskParam {
    kernel: usize,
    folds: Vec<usize>,
    cells: Vec<usize>,
    keep_machines: bool,
}

/// β, K·β and b of the machines of a combination.
type Machines<'py> = Vec<(Vector<'py>, Vector<'py>, f64)>;

/// Carries out a task of `tune` with the same arguments. Returns the outcomes, and the machines of each combination on the last
/// fold of the task, if they are asked for; `earlier` are those of the task before.
#[pyfunction]
#[pyo3(signature = (params, x, y, weights, costs, gammas, epsilons, folds, fold_of, counts, race, score, keep_scores, task, earlier))]
pub(crate) fn tune_task<'py>(
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
    score: Option<&str>,
    keep_scores: bool,
    task: TaskParam,
    earlier: Vec<(usize, Machines<'py>)>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let score = score.map(|name| name.parse::<Metric>().map_err(raise)).transpose()?;
    let data = dataset(x, Some(y), weights)?;
    let trouble = Trouble::default();
    let svm = params.svm(py, &data.points, &data.targets, &trouble)?;
    let grid = Grid { costs, gammas, epsilons, ..Grid::default() };
    let fold_of = Some(fold_of.as_slice()?.iter().map(|&fold| fold as u32).collect());
    let counts = counts.map(|counts| counts.as_slice().map(<[f64]>::to_vec)).transpose()?;
    let TaskParam { kernel, folds: own, cells, keep_machines } = task;
    let task = SearchTask { kernel, folds: own, cells, keep_machines };
    let mut starts = Vec::with_capacity(earlier.len());
    for (cell, machines) in &earlier {
        let state = |(beta, scores, bias): &(Vector<'py>, Vector<'py>, f64)| -> PyResult<MachineState> {
            Ok(MachineState { beta: beta.as_slice()?.to_vec(), scores: scores.as_slice()?.to_vec(), bias: *bias })
        };
        starts.push((*cell, machines.iter().map(state).collect::<PyResult<Vec<_>>>()?));
    }
    let ended = supervise(py, None, params.small(), |cancel, _| {
        let tuner = Tuner { folds, fold_of, counts, race, score, keep_scores, ..Tuner::new(svm.cancel(cancel), grid) };
        tuner.run_task(&data, &task, &starts)
    })?;
    trouble.check()?;
    if let Some(error) = ended.interrupted {
        return Err(error);
    }
    let (outcomes, machines) = (PyList::empty(py), PyList::empty(py));
    for outcome in ended.value.map_err(raise)? {
        let dict = PyDict::new(py);
        dict.set_item("cell", outcome.cell)?;
        dict.set_item("fold", outcome.fold)?;
        dict.set_item("seconds", outcome.seconds)?;
        let found = outcome.found;
        dict.set_item("score", found.as_ref().map(|found| found.score))?;
        let (losses, kept, scores, own) =
            found.map(|found| (found.losses, found.kept, found.scores, found.machines)).unwrap_or_default();
        // The driver needs the losses of rows for a race only.
        let losses = if race.is_some() { losses } else { vec![] };
        dict.set_item("losses", vector(py, losses))?;
        dict.set_item("kept", vector(py, kept))?;
        dict.set_item("scores", scores.map(|scores| vector(py, scores)))?;
        outcomes.append(dict)?;
        if !own.is_empty() {
            let states = PyList::empty(py);
            for MachineState { beta, scores, bias } in own {
                states.append((vector(py, beta), vector(py, scores), bias))?;
            }
            machines.append((outcome.cell, states))?;
        }
    }
    Ok((outcomes, machines))
}
