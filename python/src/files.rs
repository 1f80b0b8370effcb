//! Models in file formats, as bytes.

use margrave::Error;
use margrave::engine::data::{Label, Points, ScaleKind, Scaling};
use margrave::engine::kernel::{Gamma, Kernel};
use margrave::engine::model::{Calibration, Layout, Model, Scheme};
use margrave::engine::problem::{Formulation, Penalty, Task};
use margrave::io::model::{LibsvmModel, OnnxOptions, from_bytes, libsvm_from_bytes, schema, to_bytes, to_onnx_with};
use margrave::io::{Encoding, FeatureColumn};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::data::{PyPoints, matrix, vector};
use crate::errors::{raise, raise_file};
use crate::fit::{records, threshold_parts};
use crate::machine::Parts;
use crate::params::Params;

/// The ONNX model of a machine. `scaling` are the numbers that are subtracted from the features, and those that they are then
/// multiplied by; `columns` the names of the inputs, one per feature, or none; `metadata` further keys and values.
#[pyfunction]
#[pyo3(signature = (params, parts, scaling=None, columns=Vec::new(), metadata=Vec::new()))]
pub(crate) fn export_onnx<'py>(
    py: Python<'py>,
    params: Params,
    parts: Parts<'py>,
    scaling: ScalingParts,
    columns: Vec<String>,
    metadata: Vec<(String, String)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let model = scaled(parts.model(&params)?, scaling)?;
    let options = OnnxOptions { columns, metadata };
    Ok(PyBytes::new(py, &to_onnx_with(&model, &options).map_err(raise)?))
}

/// The parts of a native model, coefficients in our order and signs.
#[pyfunction]
pub(crate) fn read_native<'py>(py: Python<'py>, bytes: &[u8], name: &str) -> PyResult<Bound<'py, PyDict>> {
    let model = from_bytes(bytes, name).map_err(raise_file)?;
    let out = PyDict::new(py);
    let (kind, nu, c) = match model.formulation {
        Formulation::Cost { c } => ("cost", None, Some(c)),
        Formulation::Nu { nu, c } => ("nu", Some(nu), Some(c)),
        Formulation::OneClass { nu } => ("one-class", Some(nu), None),
        Formulation::Svdd { nu } => ("svdd", Some(nu), None),
    };
    let task = match model.task {
        Task::Classify => "classify",
        Task::Regress => "regress",
        Task::Novelty => "novelty",
    };
    let expansion = &model.expansion;
    out.set_item("task", task)?;
    out.set_item("formulation", kind)?;
    out.set_item("nu", nu)?;
    out.set_item("C", c)?;
    out.set_item("loss", model.loss.as_ref().map(ToString::to_string))?;
    out.set_item("epsilon", model.loss.as_ref().and_then(|loss| loss.epsilon()))?;
    out.set_item("bias_is_free", model.free_bias)?;
    out.set_item("intercept_scaling", model.intercept_scaling)?;
    out.set_item("l1", model.penalty == Penalty::L1)?;
    let scheme = match model.scheme {
        Scheme::One => "one",
        Scheme::OneVsOne => "ovo",
        Scheme::OneVsRest => "ovr",
        Scheme::CrammerSinger => "crammer-singer",
        Scheme::Outputs => "outputs",
    };
    out.set_item("scheme", scheme)?;
    kernel_items(&out, expansion.kernel())?;
    out.set_item("labels", labels(py, &model.labels)?)?;
    out.set_item("class_weights", model.class_weights.clone())?;
    out.set_item("rows", vector(py, expansion.rows().iter().map(|&row| row as i32).collect()))?;
    let coefficients = expansion.coefficients().to_vec();
    out.set_item("coefficients", matrix(py, expansion.len(), expansion.stride(), coefficients)?)?;
    if let Layout::Pairs { class_of, .. } = expansion.layout() {
        out.set_item("class_of", vector(py, class_of.iter().map(|&class| class as i32).collect()))?;
    }
    out.set_item("bias", vector(py, expansion.bias().to_vec()))?;
    let (d, outputs) = (expansion.width(), expansion.outputs());
    if let (true, Some(weights)) = (expansion.is_weights(), expansion.weights()) {
        out.set_item("weights", matrix(py, d, outputs, weights.to_vec())?)?;
    }
    out.set_item("sparse", expansion.centres().is_sparse())?;
    let (starts, columns, values) = sparse(expansion.centres());
    out.set_item("indptr", vector(py, starts))?;
    out.set_item("indices", vector(py, columns))?;
    out.set_item("data", vector(py, values))?;
    out.set_item("width", d)?;
    out.set_item("n", model.n)?;
    out.set_item("solver", &model.solver)?;
    out.set_item("machines", records(py, &model.machines)?)?;
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
    if let Some(scaling) = &model.scaling {
        out.set_item("shift", vector(py, scaling.shift.clone()))?;
        out.set_item("factor", vector(py, scaling.factor.clone()))?;
    }
    let schema = schema(&model).map_err(raise)?;
    // Columns that are not just numbers: texts, dates, values for missing cells.
    let plain = |c: &FeatureColumn| c.encoding == Encoding::Number && c.fill.is_none();
    let encoded = schema.as_ref().is_some_and(|schema| !schema.columns.iter().flatten().all(plain));
    out.set_item("schema", model.schema.as_ref().filter(|_| encoded))?;
    let columns = schema.and_then(|schema| schema.columns).filter(|_| !encoded);
    let names: Option<Vec<String>> = columns.and_then(|columns| columns.into_iter().map(|c| c.name).collect());
    out.set_item("columns", names)?;
    Ok(out)
}

/// γ by a rule: "scale", "auto" or "median".
#[pyfunction]
pub(crate) fn gamma_of(py: Python<'_>, x: PyPoints, rule: &str) -> PyResult<f64> {
    let rule = match rule {
        "scale" => Gamma::Scale,
        "auto" => Gamma::Auto,
        "median" => Gamma::Median,
        other => return Err(raise(Error::option("gamma", other, "scale, auto, median or a number"))),
    };
    py.detach(|| rule.resolve(&x.0, 0)).map_err(raise)
}

/// Name and numbers of a kernel.
fn kernel_items(out: &Bound<'_, PyDict>, kernel: &Kernel) -> PyResult<()> {
    out.set_item("kernel", kernel.name())?;
    out.set_item("gamma", kernel.gamma())?;
    if let Kernel::Poly { coef0, degree, .. } = kernel {
        out.set_item("coef0", coef0)?;
        out.set_item("degree", degree)?;
    }
    if let Kernel::Sigmoid { coef0, .. } = kernel {
        out.set_item("coef0", coef0)?;
    }
    Ok(())
}

/// Labels as Python's numbers and strings.
fn labels(py: Python<'_>, labels: &[Label]) -> PyResult<Vec<Py<PyAny>>> {
    let one = |label: &Label| match label {
        Label::Number(v) => Ok(v.into_pyobject(py)?.into_any().unbind()),
        Label::Text(s) => Ok(s.into_pyobject(py)?.into_any().unbind()),
    };
    labels.iter().map(one).collect()
}

/// What is subtracted from the features, and what they are then multiplied by.
type ScalingParts = Option<(Vec<f64>, Vec<f64>)>;

/// The model with this scaling of its features.
fn scaled(mut model: Model, scaling: ScalingParts) -> PyResult<Model> {
    if let Some((shift, factor)) = scaling {
        let d = model.expansion.width();
        if shift.len() != d || factor.len() != d {
            return Err(raise(Error::Shape { what: "features of the scaling", expected: d, found: shift.len() }));
        }
        model.scaling = Some(Scaling { kind: ScaleKind::Standard, shift, factor });
    }
    Ok(model)
}

/// The native model file of a machine. `columns`: how the columns of a table become its features, as JSON.
#[pyfunction]
#[pyo3(signature = (params, parts, scaling=None, columns=None))]
pub(crate) fn export_native<'py>(
    py: Python<'py>,
    params: Params,
    parts: Parts<'py>,
    scaling: ScalingParts,
    columns: Option<String>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut model = scaled(parts.model(&params)?, scaling)?;
    model.schema = columns;
    schema(&model).map_err(raise)?;
    Ok(PyBytes::new(py, &to_bytes(&model).map_err(raise)?))
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
    kernel_items(&out, model.expansion.kernel())?;
    out.set_item("labels", labels(py, &model.labels)?)?;
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
    if let Some(Calibration::Sigmoid { a, b, rule, .. }) = &model.calibration {
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
