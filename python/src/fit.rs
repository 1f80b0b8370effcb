//! Training.

use margrave::engine::certificate::{Certificate, TailCheck};
use margrave::engine::model::{Calibration, Layout, Record, Threshold, Totals};
use margrave::{Fit, Status};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::data::{PyPoints, Vector, dataset_of, matrix, vector};
use crate::errors::raise;
use crate::losses::Trouble;
use crate::machine::Parts;
use crate::params::Params;
use crate::supervise::{Supervised, supervise};

/// Trains a machine. `y` are class numbers from 0, real targets (`outputs` per row, row-major), or nothing; `weights` multiply C.
/// `report` is called with each step, `start` is a machine of the same rows to start from. Returns a dictionary: rows, coefficients, bias, certificates, history. Its `interrupted`
/// is the exception that ended the training early, if any: the rest is then the best result so far.
#[pyfunction]
#[pyo3(signature = (params, x, y=None, weights=None, report=None, outputs=1, start=None))]
pub(crate) fn fit<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    y: Option<Vector<'py>>,
    weights: Option<Vector<'py>>,
    report: Option<&Bound<'py, PyAny>>,
    outputs: usize,
    start: Option<Parts<'py>>,
) -> PyResult<Bound<'py, PyDict>> {
    let data = dataset_of(x, y, outputs, weights)?;
    let trouble = Trouble::default();
    let mut svm = params.svm(py, &data.points, &data.targets, &trouble)?;
    if let Some(start) = start {
        svm = svm.start(start.model(&params)?);
    }
    let ended =
        supervise(py, report, params.small(), |cancel, observer| svm.cancel(cancel).fit_observed(&data, observer))?;
    trouble.check()?;
    crate::card::check(&data.points)?;
    let Supervised { value, history, interrupted } = ended;
    let fit = match (value, interrupted.as_ref()) {
        (Ok(fit), _) => fit,
        (Err(_), Some(error)) => return Err(error.clone_ref(py)),
        (Err(error), None) => return Err(raise(error)),
    };
    let out = fit_dict(py, &fit)?;
    out.set_item("history", history.to_list(py)?)?;
    out.set_item("interrupted", interrupted.map(|error| error.into_value(py)))?;
    Ok(out)
}

/// The parts of a fitted machine.
fn fit_dict<'py>(py: Python<'py>, fit: &Fit) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let model = fit.model();
    let expansion = &model.expansion;
    out.set_item("rows", vector(py, expansion.rows().iter().map(|&row| row as i32).collect()))?;
    let coefficients = expansion.coefficients().to_vec();
    out.set_item("coefficients", matrix(py, expansion.len(), expansion.stride(), coefficients)?)?;
    if let Layout::Pairs { class_of, .. } = expansion.layout() {
        out.set_item("class_of", vector(py, class_of.iter().map(|&class| class as i32).collect()))?;
    }
    out.set_item("bias", vector(py, expansion.bias().to_vec()))?;
    if let (true, Some(weights)) = (expansion.is_weights(), expansion.weights()) {
        let outputs = expansion.outputs();
        out.set_item("weights", matrix(py, weights.len() / outputs.max(1), outputs, weights.to_vec())?)?;
    }
    match &model.calibration {
        Some(Calibration::Sigmoid { a, below, b, rule, reason, .. }) => {
            out.set_item("sigmoid_a", vector(py, a.clone()))?;
            out.set_item("sigmoid_b", vector(py, b.clone()))?;
            if !below.is_empty() {
                out.set_item("sigmoid_below", vector(py, below.clone()))?;
            }
            out.set_item("probability_rule", rule.name())?;
            out.set_item("probability_reason", reason.name())?;
            out.set_item("probability_threshold", model.probability_threshold())?;
        }
        Some(Calibration::Residuals { radii, .. }) => out.set_item("radii", vec![radii.clone()])?,
        Some(Calibration::ResidualsByOutput { radii, .. }) => out.set_item("radii", radii.clone())?,
        _ => {}
    }
    out.set_item("threshold", model.threshold.as_ref().map(threshold_parts))?;
    if let Some(left) = fit.leave_one_out() {
        let scores = matrix(py, left.rows.len(), expansion.outputs(), left.scores.clone())?;
        let rows = vector(py, left.rows.iter().map(|&row| row as i32).collect());
        out.set_item("left_out", (rows, scores, left.exact))?;
    }
    out.set_item("machines", records(py, fit.records())?)?;
    out.set_item("totals", totals_dict(py, &fit.totals())?)?;
    out.set_item("solver", &model.solver)?;
    out.set_item("reason", fit.reason())?;
    Ok(out)
}

/// A threshold as a tuple: score, rule, the left-out scores it was chosen on, precision and recall there.
pub(crate) fn threshold_parts(threshold: &Threshold) -> (f64, String, &'static str, f64, f64) {
    let Threshold { score, rule, origin, precision, recall } = threshold;
    (*score, rule.to_string(), origin.name(), *precision, *recall)
}

/// One dictionary per binary machine.
pub(crate) fn records<'py>(py: Python<'py>, machines: &[Record]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for record in machines {
        let dict = certificate_dict(py, &record.certificate, Some(record.status))?;
        dict.set_item("iterations", record.iterations)?;
        dict.set_item("support_vectors", record.support_vectors)?;
        dict.set_item("bounded", record.bounded)?;
        dict.set_item("rho", record.rho)?;
        dict.set_item("tube", record.tube)?;
        list.append(dict)?;
    }
    Ok(list)
}

/// A certificate as a Python dictionary, with `status` if there was a training.
pub(crate) fn certificate_dict<'py>(
    py: Python<'py>,
    certificate: &Certificate,
    status: Option<Status>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("status", status.map(Status::name))?;
    match certificate {
        Certificate::Optimality(o) => {
            dict.set_item("primal", o.primal())?;
            dict.set_item("dual", o.dual())?;
            dict.set_item("gap", o.gap())?;
            dict.set_item("rounding", o.rounding())?;
            dict.set_item("relative_gap", o.relative_gap())?;
            if let Some(a) = o.approximation() {
                let parts = PyDict::new(py);
                parts.set_item("centres", a.centres)?;
                parts.set_item("own_gap", a.own_gap)?;
                parts.set_item("own_relative_gap", a.own_relative_gap)?;
                let checked = a.check != TailCheck::Own;
                parts.set_item("kernel_gap", checked.then_some(a.kernel_gap))?;
                let name = TailCheck::ALL.into_iter().find(|(_, check)| *check == a.check).map(|(name, _)| name);
                parts.set_item("check", name)?;
                parts.set_item("rows_drawn", a.rows_drawn)?;
                dict.set_item("approximation", parts)?;
            }
            dict.set_item("violation", o.violation())?;
            dict.set_item("feasible", o.feasible())?;
            dict.set_item("kernel_is_psd", o.definite().then_some(true))?;
            let worst: Vec<(usize, f64)> = o.worst().iter().map(|worst| (worst.row, worst.share)).collect();
            dict.set_item("worst", worst)?;
        }
        Certificate::Stationarity(s) => {
            dict.set_item("objective", s.objective())?;
            dict.set_item("stationarity", s.stationarity())?;
            dict.set_item("start_objective", s.start_objective())?;
        }
        Certificate::Unknown => dict.set_item("unknown", true)?,
    }
    Ok(dict)
}

fn totals_dict<'py>(py: Python<'py>, totals: &Totals) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("status", totals.status.name())?;
    dict.set_item("primal", totals.primal)?;
    dict.set_item("dual", totals.dual)?;
    dict.set_item("gap", totals.gap)?;
    dict.set_item("rounding", totals.rounding)?;
    dict.set_item("relative_gap", totals.relative_gap)?;
    dict.set_item("violation", totals.violation)?;
    dict.set_item("iterations", totals.iterations)?;
    dict.set_item("seconds", totals.seconds)?;
    dict.set_item("kernel_entries", totals.kernel_entries)?;
    dict.set_item("support_vectors", totals.support_vectors)?;
    dict.set_item("bounded", totals.bounded)?;
    Ok(dict)
}
