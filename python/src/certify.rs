//! The independent certificate of a fitted machine, whichever library fitted it.

use margrave::engine::problem::{Formulation, Task};
use margrave::io::model::libsvm_from_bytes;
use margrave::{Control, LibsvmTraining, verify, verify_libsvm};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::data::{PyPoints, Vector, dataset, dataset_of};
use crate::errors::raise;
use crate::fit::certificate_dict;
use crate::machine::Parts;
use crate::params::Params;
use crate::supervise::supervise;

/// Certifies a machine on its training data: one dictionary per binary machine. `y` are class numbers or real
/// targets, `outputs` per row.
#[pyfunction]
#[pyo3(signature = (params, parts, x, y=None, weights=None, outputs=1))]
pub(crate) fn certify<'py>(
    py: Python<'py>,
    params: Params,
    parts: Parts<'py>,
    x: PyPoints,
    y: Option<Vector<'py>>,
    weights: Option<Vector<'py>>,
    outputs: usize,
) -> PyResult<Bound<'py, PyList>> {
    let mut model = parts.model(&params)?;
    let data = dataset_of(x, y, outputs, weights)?;
    if let (Task::Classify, Formulation::Nu { nu, .. }) = (model.task, model.formulation) {
        // Fitted models keep β/ρ. Σ|β| = νW of the rows a machine was trained on gives ρ back.
        let (classes, codes) = data.targets.classes().map_err(raise)?;
        let weight = |row: usize| data.weights.as_ref().map_or(1.0, |w| w[row]);
        let mut by_class = vec![0.0; classes.len()];
        codes.iter().enumerate().for_each(|(row, &code)| by_class[code as usize] += weight(row));
        let pairs: Vec<(usize, usize)> = margrave::engine::model::pairs(classes.len()).collect();
        for (output, record) in model.machines.iter_mut().enumerate() {
            let (i, j) = pairs[output];
            let total: f64 = model.expansion.column(output).iter().map(|c| c.abs()).sum();
            // A ν that the classes do not allow was lowered: see `Svm::lower_nu`.
            let largest = 2.0 * by_class[i].min(by_class[j]) / (by_class[i] + by_class[j]);
            let nu = if nu > largest { 0.99 * largest } else { nu };
            if total > 0.0 {
                record.rho = nu * (by_class[i] + by_class[j]) / total;
            }
        }
    }
    let threads = params.threads();
    let device = crate::params::device(params.device_name(), &data.points)?;
    let ended = supervise(py, None, params.small(), |cancel, _| {
        let control = Control::unlimited(threads).with_cancel(cancel).with_device(device);
        verify(&model, &data, None, &control)
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

/// Certifies the model of a LIBSVM file on its training data: one dictionary per binary machine. ν, and C of ν-SVR, are recovered
/// from the coefficients.
#[pyfunction]
#[pyo3(signature = (params, content, x, y=None, cost=None, epsilon=None))]
pub(crate) fn certify_libsvm<'py>(
    py: Python<'py>,
    params: Params,
    content: &[u8],
    x: PyPoints,
    y: Option<Vector<'py>>,
    cost: Option<f64>,
    epsilon: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let model = libsvm_from_bytes(content, "the model").map_err(|e| PyValueError::new_err(e.to_string()))?;
    let data = dataset(x, y, None)?;
    let threads = params.threads();
    let said = LibsvmTraining { cost, epsilon, nu: None };
    let ended = supervise(py, None, params.small(), |cancel, _| {
        let control = Control::unlimited(threads).with_cancel(cancel);
        verify_libsvm(&model, &data, said, &control)
    })?;
    if let Some(error) = ended.interrupted {
        return Err(error);
    }
    let list = PyList::empty(py);
    for certificate in ended.value.map_err(raise)?.certificates {
        list.append(certificate_dict(py, &certificate, None)?)?;
    }
    Ok(list)
}
