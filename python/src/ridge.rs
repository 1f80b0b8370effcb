//! The certificate of kernel ridge regression.

use margrave::engine::certificate::certify;
use margrave::engine::problem::{Constraint, KernelProblem};
use margrave::loss::Square;
use margrave::{Control, Error};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::data::{PyPoints, Vector};
use crate::errors::raise;
use crate::fit::certificate_dict;
use crate::params::Params;
use crate::supervise::supervise;

/// The certificate of a given β as the solution of (K + diag(1/c))β = y.
#[pyfunction]
pub(crate) fn certify_ridge<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    y: Vector<'py>,
    costs: Vector<'py>,
    beta: Vector<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let (targets, costs, beta) = (y.as_slice()?.to_vec(), costs.as_slice()?.to_vec(), beta.as_slice()?.to_vec());
    let (kernel, points, threads) = (params.kernel()?, x.0, params.threads());
    kernel.check().map_err(raise)?;
    if beta.len() != points.len() {
        return Err(raise(Error::Shape { what: "number of coefficients", expected: points.len(), found: beta.len() }));
    }
    let device = crate::params::device(params.device_name(), &points)?;
    let ended = supervise(py, None, params.small(), |cancel, _| {
        let control = Control::unlimited(threads).with_cancel(cancel).with_device(device);
        let gram = control.backend().square_gram(kernel, &points)?;
        let problem = KernelProblem::new(gram.as_ref(), &targets, &costs, &Square, Constraint::None)?;
        Ok(certify(&problem, &beta, None, None, &control)?)
    })?;
    match (ended.value, ended.interrupted) {
        (_, Some(error)) => Err(error),
        (value, None) => certificate_dict(py, &value.map_err(raise)?, None),
    }
}
