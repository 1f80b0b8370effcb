//! Losses: those of the library by name, and those written in Python.

use std::sync::{Arc, Mutex, PoisonError};

use margrave::loss::{CustomLoss, LossSpec};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::data::{Vector, vector};
use crate::errors::raise;

/// A loss written in Python: `value(y, z)` and `slope(y, z)`, on numbers.
pub(crate) struct PyLoss {
    object: Arc<Py<PyAny>>,
    classification: bool,
}

impl PyLoss {
    pub(crate) fn new(object: Py<PyAny>, classification: bool) -> PyResult<Self> {
        Ok(Self { object: Arc::new(object), classification })
    }

    /// The loss for the engine: its slope is checked against its value, convexity is determined by sampling.
    pub(crate) fn build(&self, py: Python<'_>) -> PyResult<CustomLoss> {
        let object = self.object.bind(py);
        let name = match object.getattr("name").and_then(|name| name.extract::<String>()) {
            Ok(name) => name,
            Err(_) => object.get_type().name()?.to_string(),
        };
        for method in ["value", "slope"] {
            object.getattr(method)?;
        }
        // An exception inside a closure makes the number NaN, which is rejected; the exception is then the better message.
        let trouble: Arc<Mutex<Option<PyErr>>> = Arc::default();
        let call = |method: &'static str| {
            let (object, trouble) = (self.object.clone(), trouble.clone());
            move |y: f64, z: f64| {
                Python::attach(|py| {
                    let value = object.bind(py).call_method1(method, (y, z)).and_then(|value| value.extract::<f64>());
                    value.unwrap_or_else(|error| {
                        trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        f64::NAN
                    })
                })
            }
        };
        let built = CustomLoss::new(name, self.classification, call("value"), call("slope"));
        match trouble.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => built.map_err(raise),
        }
    }
}

/// Names, formulas and uses of the losses of the library.
#[pyfunction]
pub(crate) fn loss_names() -> Vec<(String, String, bool, bool)> {
    let line = |info: margrave::loss::LossInfo| {
        (info.spec.to_string(), info.about.to_owned(), info.classification, info.regression)
    };
    LossSpec::all().into_iter().map(line).collect()
}

/// The properties of a loss.
#[pyfunction]
pub(crate) fn loss_properties<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
    let spec: LossSpec = name.parse().map_err(raise)?;
    let p = spec.build().map_err(raise)?.properties();
    let dict = PyDict::new(py);
    dict.set_item("name", spec.to_string())?;
    dict.set_item("convex", p.convex)?;
    dict.set_item("slope_bounded", p.slope_bounded)?;
    dict.set_item("slope_at_zero", p.slope_at_zero)?;
    dict.set_item("majorised", p.majorised)?;
    dict.set_item("classification", p.classification)?;
    for (key, value) in spec.parameters() {
        dict.set_item(key, value)?;
    }
    Ok(dict)
}

/// Values and slopes of a loss at pairs of targets and scores.
#[pyfunction]
pub(crate) fn loss_values<'py>(
    py: Python<'py>,
    name: &str,
    y: Vector<'py>,
    z: Vector<'py>,
) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
    let loss = name.parse::<LossSpec>().and_then(|spec| spec.build()).map_err(raise)?;
    let pairs: Vec<(f64, f64)> = y.as_slice()?.iter().copied().zip(z.as_slice()?.iter().copied()).collect();
    let values = pairs.iter().map(|(y, z)| loss.value(*y, *z)).collect();
    let slopes = pairs.iter().map(|(y, z)| loss.slope(*y, *z)).collect();
    Ok((vector(py, values), vector(py, slopes)))
}
