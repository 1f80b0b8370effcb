//! Kernel ridge regression of several targets at once.

use margrave::backend::cpu::CpuGram;
use margrave::certificate::{Certificate, certify};
use margrave::data::Points;
use margrave::gram::{Gram, PrecomputedGram};
use margrave::kernel::Kernel;
use margrave::loss::Square;
use margrave::problem::{Constraint, KernelProblem};
use margrave::solver::ridge::{self, Halt, RidgeOptions, Source};
use margrave::train::Asked;
use margrave::train::verdict::verdict;
use margrave::{Control, Error, Status};
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::data::{PyPoints, Vector, matrix};
use crate::errors::raise;
use crate::fit::certificate_dict;
use crate::params::Params;
use crate::supervise::supervise;

/// Solves (K + diag(1/c))β = y for each column of `y`. Gives β and a certificate a column.
#[pyfunction]
pub(crate) fn fit_ridge<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    y: PyReadonlyArray2<'py, f64>,
    costs: Vector<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let (n, k) = (y.shape()[0], y.shape()[1]);
    let (targets, costs, points) = (y.as_slice()?.to_vec(), costs.as_slice()?.to_vec(), x.0);
    let kernel = params.kernel()?;
    kernel.check().map_err(raise)?;
    let control = params.control()?;
    let options = RidgeOptions { memory: params.budget().memory, ..RidgeOptions::default() };
    let ended = supervise(py, None, params.small(), |cancel, _| {
        let control = control.with_cancel(cancel);
        let gram = gram_of(kernel, &points)?;
        let source =
            if kernel == Kernel::Linear { Source::Linear(&points, gram.as_ref()) } else { Source::Gram(gram.as_ref()) };
        let solved = ridge::fit(source, &targets, k, &costs, None, &options, &control).map_err(|halt| match halt {
            Halt::Interrupted(why) => Error::Interrupted(why),
            Halt::Error(error) => error,
        })?;
        let proof = control.for_proof();
        let asked = Asked::from(params.stop());
        let column = |all: &[f64], at: usize| (0..n).map(|row| all[row * k + at]).collect::<Vec<f64>>();
        let mut certificates = Vec::with_capacity(k);
        for at in 0..k {
            let own = column(&targets, at);
            let problem = KernelProblem::new(gram.as_ref(), &own, &costs, &Square, Constraint::None)?;
            let certificate =
                certify(&problem, &column(&solved.beta, at), None, None, &proof).unwrap_or(Certificate::Unknown);
            let status = verdict(&asked, &certificate, Status::Optimal);
            certificates.push((certificate, status));
        }
        Ok((solved.beta, solved.jitter, certificates))
    })?;
    if let Some(error) = ended.interrupted {
        return Err(error);
    }
    let (beta, jitter, certificates) = ended.value.map_err(raise)?;
    let out = PyDict::new(py);
    out.set_item("beta", matrix(py, n, k, beta)?)?;
    out.set_item("jitter", jitter)?;
    let list = PyList::empty(py);
    for (certificate, status) in &certificates {
        list.append(certificate_dict(py, certificate, Some(*status))?)?;
    }
    out.set_item("machines", list)?;
    Ok(out)
}

/// The certificate of a β that somebody says solves (K + diag(1/c))β = y.
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
    let ended = supervise(py, None, params.small(), |cancel, _| {
        let control = Control::unlimited(threads).with_cancel(cancel);
        let gram = gram_of(kernel, &points)?;
        let problem = KernelProblem::new(gram.as_ref(), &targets, &costs, &Square, Constraint::None)?;
        Ok(certify(&problem, &beta, None, None, &control)?)
    })?;
    match (ended.value, ended.interrupted) {
        (_, Some(error)) => Err(error),
        (value, None) => certificate_dict(py, &value.map_err(raise)?, None),
    }
}

/// The Gram matrix of a kernel over all points.
fn gram_of(kernel: Kernel, points: &Points) -> Result<Box<dyn Gram>, Error> {
    Ok(match kernel {
        Kernel::Precomputed => Box::new(PrecomputedGram::new(points.clone())),
        _ => Box::new(CpuGram::square(kernel, points)?),
    })
}
