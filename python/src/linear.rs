//! The certificate of linear models given by their weights.

use margrave::engine::backend::cpu::rows::RowMatrix;
use margrave::engine::certificate::{self, certify_l1};
use margrave::engine::problem::{Bias, LinearProblem};
use margrave::engine::solver::linear::{Options, solve, solve_l1};
use margrave::{Error, Targets};
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::data::{PyPoints, Vector};
use crate::errors::raise;
use crate::fit::certificate_dict;
use crate::losses::Trouble;
use crate::params::Params;
use crate::supervise::supervise;

/// The bias: none, free (∞), or the weight of a feature of this value.
pub(crate) fn bias_of(scaling: Option<f64>) -> Bias {
    match scaling {
        None => Bias::None,
        Some(s) if s == f64::INFINITY => Bias::Free,
        Some(scaling) => Bias::Penalised { scaling },
    }
}

/// Certifies machines (w, b), one per row of `targets`, whatever trained them. The lower bound needs a dual point, which they
/// do not have: it comes from a machine trained here.
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
    let trouble = Trouble::default();
    let loss = params.loss(py, &Targets::Real(targets.clone()), &trouble)?;
    let control = params.control()?;
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
    trouble.check()?;
    if let Some(error) = ended.interrupted {
        return Err(error);
    }
    let list = PyList::empty(py);
    for certificate in ended.value.map_err(raise)? {
        list.append(certificate_dict(py, &certificate, None)?)?;
    }
    Ok(list)
}
