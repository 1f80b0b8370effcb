//! Models in file formats, as bytes.

use margrave::engine::data::{Label, Points};
use margrave::engine::kernel::Kernel;
use margrave::io::model::{LibsvmModel, libsvm_from_bytes, to_bytes, to_onnx};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::data::{matrix, vector};
use crate::errors::{raise, raise_file};
use crate::machine::Parts;
use crate::params::Params;

/// The ONNX model of a machine.
#[pyfunction]
pub(crate) fn export_onnx<'py>(py: Python<'py>, params: Params, parts: Parts<'py>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &to_onnx(&parts.model(&params)?).map_err(raise)?))
}

/// The native model file of a machine.
#[pyfunction]
pub(crate) fn export_native<'py>(py: Python<'py>, params: Params, parts: Parts<'py>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &to_bytes(&parts.model(&params)?).map_err(raise)?))
}

/// LIBSVM's model file of a machine.
#[pyfunction]
pub(crate) fn export_libsvm(params: Params, parts: Parts<'_>) -> PyResult<String> {
    Ok(LibsvmModel::from_model(&parts.model(&params)?, None).map_err(raise)?.to_text())
}

/// The parts of a LIBSVM model, labels and coefficients in our order and signs.
#[pyfunction]
pub(crate) fn read_libsvm<'py>(py: Python<'py>, bytes: &[u8], name: &str) -> PyResult<Bound<'py, PyDict>> {
    let file = libsvm_from_bytes(bytes, name).map_err(raise_file)?;
    let model = file.to_model(file.training(None)).map_err(raise)?;
    let out = PyDict::new(py);
    out.set_item("kind", file.kind.name())?;
    let kernel = model.expansion.kernel();
    out.set_item("kernel", kernel.name())?;
    out.set_item("gamma", kernel.gamma())?;
    if let Kernel::Poly { coef0, degree, .. } = kernel {
        out.set_item("coef0", coef0)?;
        out.set_item("degree", degree)?;
    }
    if let Kernel::Sigmoid { coef0, .. } = kernel {
        out.set_item("coef0", coef0)?;
    }
    let labels: Vec<Py<PyAny>> = model
        .labels
        .iter()
        .map(|label| match label {
            Label::Number(v) => Ok(v.into_pyobject(py)?.into_any().unbind()),
            Label::Text(s) => Ok(s.into_pyobject(py)?.into_any().unbind()),
        })
        .collect::<PyResult<_>>()?;
    out.set_item("labels", labels)?;
    let expansion = &model.expansion;
    out.set_item("rows", vector(py, expansion.rows().iter().map(|&row| row as i32).collect()))?;
    let coefficients = expansion.coefficients().to_vec();
    out.set_item("coefficients", matrix(py, expansion.len(), expansion.stride(), coefficients)?)?;
    out.set_item("class_of", vector(py, classes_of(&file, model.labels.len())))?;
    out.set_item("bias", vector(py, expansion.bias().to_vec()))?;
    let (starts, columns, values) = sparse(expansion.centres());
    out.set_item("indptr", vector(py, starts))?;
    out.set_item("indices", vector(py, columns))?;
    out.set_item("data", vector(py, values))?;
    out.set_item("width", expansion.width())?;
    out.set_item("n", model.n)?;
    if let Some(margrave::engine::model::Calibration::Sigmoid { a, b, rule, .. }) = &model.calibration {
        out.set_item("probability_rule", rule.name())?;
        out.set_item("sigmoid_a", vector(py, a.clone()))?;
        out.set_item("sigmoid_b", vector(py, b.clone()))?;
    }
    Ok(out)
}

/// The class of each centre in our order of labels; with two classes the order is reversed.
fn classes_of(file: &LibsvmModel, classes: usize) -> Vec<i32> {
    let own = |class: u32| if classes == 2 { 1 - class as i32 } else { class as i32 };
    file.class_of().into_iter().map(own).collect()
}

/// Row pointers, columns and values of points.
fn sparse(points: &Points) -> (Vec<i64>, Vec<i32>, Vec<f64>) {
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..points.len() {
        points.visit(row, |column, value| {
            columns.push(column as i32);
            values.push(value);
        });
        starts.push(columns.len() as i64);
    }
    (starts, columns, values)
}
