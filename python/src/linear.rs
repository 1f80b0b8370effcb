//! Linear machines given by their weights, with LIBLINEAR's penalties on weights and bias.

use margrave::backend::cpu::rows::RowMatrix;
use margrave::certificate::{self, Certificate, best_bias_linear, certify_crammer_singer, certify_l1};
use margrave::problem::{Bias, LinearProblem};
use margrave::solver::Stop;
use margrave::solver::linear::{LinearSolution, Options, solve, solve_crammer_singer, solve_l1};
use margrave::train::Asked;
use margrave::train::verdict::verdict;
use margrave::{Control, Error, Status};
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::data::{PyPoints, Vector, matrix, vector};
use crate::errors::raise;
use crate::fit::certificate_dict;
use crate::params::Params;
use crate::supervise::{Supervised, supervise};

/// The bias: none, free (∞), or the weight of a feature of this value.
fn bias_of(scaling: Option<f64>) -> Bias {
    match scaling {
        None => Bias::None,
        Some(s) if s == f64::INFINITY => Bias::Free,
        Some(scaling) => Bias::Penalised { scaling },
    }
}

/// Trains one machine a row of `targets`. `scaling`: see [`bias_of`]; `l1`: the penalty ‖w‖₁ in place of ½‖w‖².
#[pyfunction]
#[pyo3(signature = (params, x, targets, costs, scaling, l1, report=None))]
pub(crate) fn fit_linear<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    targets: PyReadonlyArray2<'py, f64>,
    costs: Vector<'py>,
    scaling: Option<f64>,
    l1: bool,
    report: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (k, n) = (targets.shape()[0], targets.shape()[1]);
    let (targets, costs, points) = (targets.as_slice()?.to_vec(), costs.as_slice()?.to_vec(), x.0);
    let d = points.dims();
    let loss = params.loss(py)?;
    let control = params.control()?;
    let bias = bias_of(scaling);
    let budget = params.budget();
    let asked = Asked::from(params.stop());
    // Beyond what is asked: weights of samples should count like copies of them, to many digits.
    const AIM: f64 = 1e-6;
    let options = Options {
        stop: Stop { gap: asked.gap.map(|gap| gap.min(AIM)), ..params.stop() },
        iterations: budget.iterations,
        memory: budget.memory,
        seed: params.seed,
        ..Options::default()
    };
    let ended = supervise(py, report, params.small(), |cancel, observer| {
        let control = control.with_cancel(cancel);
        let rows = RowMatrix::new(&points);
        let mut all: Vec<(Vec<f64>, Proven)> = Vec::with_capacity(k);
        for own in targets.chunks_exact(n.max(1)) {
            let problem = LinearProblem::new(&rows, own, &costs, loss.as_ref(), bias)?;
            let solved = match l1 {
                true => solve_l1(&problem, &options, &control, observer)?,
                false => solve(&problem, &options, &control, observer)?,
            };
            all.push(proven(&problem, l1, solved, &asked, &control.for_proof()));
        }
        Ok(all)
    })?;
    let Supervised { value, history, interrupted } = ended;
    let all = match (value, interrupted.as_ref()) {
        (Ok(all), _) => all,
        (Err(_), Some(error)) => return Err(error.clone_ref(py)),
        (Err(error), None) => return Err(raise(error)),
    };
    let out = PyDict::new(py);
    let (mut weights, mut biases) = (Vec::with_capacity(k * d), Vec::with_capacity(k));
    let machines = PyList::empty(py);
    for (own, Proven { bias, certificate, status, iterations }) in all {
        weights.extend(own);
        biases.push(bias);
        let record = certificate_dict(py, &certificate, Some(status))?;
        record.set_item("iterations", iterations)?;
        machines.append(record)?;
    }
    out.set_item("weights", matrix(py, k, d, weights)?)?;
    out.set_item("bias", vector(py, biases))?;
    out.set_item("machines", machines)?;
    out.set_item("history", history.to_list(py)?)?;
    out.set_item("interrupted", interrupted.map(|error| error.into_value(py)))?;
    Ok(out)
}

/// What is known of a machine (w, b).
struct Proven {
    bias: f64,
    certificate: Certificate,
    status: Status,
    iterations: u64,
}

/// The machine of a solution with its best bias, and its proof.
fn proven(
    problem: &LinearProblem<'_>,
    l1: bool,
    solved: LinearSolution,
    asked: &Asked,
    control: &Control,
) -> (Vec<f64>, Proven) {
    let own = match problem.bias {
        Bias::None => 0.0,
        _ => solved.bias,
    };
    let weights = solved.weights;
    let bias = best_bias_linear(problem, &weights, own, control).unwrap_or(own);
    let certificate = match l1 {
        true => certify_l1(problem, &weights, bias, &solved.beta, control),
        false => certificate::certify_linear(problem, &weights, bias, &solved.beta, control),
    };
    let certificate = certificate.unwrap_or(Certificate::Unknown);
    let status = verdict(asked, &certificate, solved.status);
    (weights, Proven { bias, certificate, status, iterations: solved.iterations })
}

/// Trains the machine of Crammer and Singer on class numbers `y`.
#[pyfunction]
#[pyo3(signature = (params, x, y, classes, costs, scaling, report=None))]
pub(crate) fn fit_crammer_singer<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    y: Vector<'py>,
    classes: usize,
    costs: Vector<'py>,
    scaling: Option<f64>,
    report: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let codes: Vec<u32> = y.as_slice()?.iter().map(|&code| code as u32).collect();
    let (costs, points) = (costs.as_slice()?.to_vec(), x.0);
    let d = points.dims();
    let control = params.control()?;
    let budget = params.budget();
    let options = Options {
        stop: params.stop(),
        iterations: budget.iterations,
        memory: budget.memory,
        seed: params.seed,
        ..Options::default()
    };
    let bias = bias_of(scaling);
    let asked = Asked::from(params.stop());
    let ended = supervise(py, report, params.small(), |cancel, observer| {
        let control = control.with_cancel(cancel);
        let solved = solve_crammer_singer(&points, &codes, classes, &costs, bias, &options, &control, observer)?;
        let (weights, own, alpha) = (&solved.weights, &solved.bias, &solved.alpha);
        let certificate =
            certify_crammer_singer(&points, &codes, &costs, bias, weights, own, alpha, &control.for_proof())
                .unwrap_or(Certificate::Unknown);
        Ok((solved, certificate))
    })?;
    let Supervised { value, history, interrupted } = ended;
    let (solved, certificate) = match (value, interrupted.as_ref()) {
        (Ok(both), _) => both,
        (Err(_), Some(error)) => return Err(error.clone_ref(py)),
        (Err(error), None) => return Err(raise(error)),
    };
    let out = PyDict::new(py);
    let transposed = (0..classes).flat_map(|class| (0..d).map(move |j| (j, class)));
    let weights = transposed.map(|(j, class)| solved.weights[j * classes + class]).collect();
    out.set_item("weights", matrix(py, classes, d, weights)?)?;
    let status = verdict(&asked, &certificate, solved.status);
    let record = certificate_dict(py, &certificate, Some(status))?;
    record.set_item("iterations", solved.iterations)?;
    out.set_item("bias", vector(py, solved.bias))?;
    out.set_item("machines", PyList::new(py, [record])?)?;
    out.set_item("history", history.to_list(py)?)?;
    out.set_item("interrupted", interrupted.map(|error| error.into_value(py)))?;
    Ok(out)
}

/// Certifies machines (w, b), one a row of `targets`, wherever they are from. The lower bound needs a dual point, which they
/// do not keep: it is that of a machine trained here.
#[pyfunction]
pub(crate) fn certify_linear<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    targets: PyReadonlyArray2<'py, f64>,
    costs: Vector<'py>,
    scaling: Option<f64>,
    l1: bool,
    weights: PyReadonlyArray2<'py, f64>,
    bias: Vector<'py>,
) -> PyResult<Bound<'py, PyList>> {
    let (k, n) = (targets.shape()[0], targets.shape()[1]);
    let (targets, costs, points) = (targets.as_slice()?.to_vec(), costs.as_slice()?.to_vec(), x.0);
    let (given, given_bias) = (weights.as_slice()?.to_vec(), bias.as_slice()?.to_vec());
    let d = points.dims();
    if weights.shape() != [k, d] || given_bias.len() != k || n == 0 {
        return Err(raise(Error::data(format!("{k} machines over {d} features do not have these weights"))));
    }
    let (loss, control) = (params.loss(py)?, params.control()?);
    let kind = bias_of(scaling);
    let options = Options { stop: params.stop(), memory: params.budget().memory, ..Options::default() };
    let ended = supervise(py, None, params.small(), |cancel, observer| {
        let control = control.with_cancel(cancel);
        let rows = RowMatrix::new(&points);
        let mut all = Vec::with_capacity(k);
        for (at, own) in targets.chunks_exact(n).enumerate() {
            let problem = LinearProblem::new(&rows, own, &costs, loss.as_ref(), kind)?;
            let (w, b) = (&given[at * d..(at + 1) * d], given_bias[at]);
            all.push(if l1 {
                let solved = solve_l1(&problem, &options, &control, observer)?;
                certify_l1(&problem, w, b, &solved.beta, &control)?
            } else {
                let solved = solve(&problem, &options, &control, observer)?;
                certificate::certify_linear(&problem, w, b, &solved.beta, &control)?
            });
        }
        Ok(all)
    })?;
    if let Some(error) = ended.interrupted {
        return Err(error);
    }
    let list = PyList::empty(py);
    for certificate in ended.value.map_err(raise)? {
        list.append(certificate_dict(py, &certificate, None)?)?;
    }
    Ok(list)
}
