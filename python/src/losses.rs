//! Losses: those of the library by name, and those written in Python.

use std::sync::{Arc, Mutex, PoisonError};

use margrave::Targets;
use margrave::loss::{BulkFunction, BulkFunctions, CustomLoss, LossSpec};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::data::{Vector, vector};
use crate::errors::raise;

/// The first exception that a function of a loss has raised: a bulk function of the engine cannot return it.
#[derive(Clone, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<PyErr>>>);

impl Trouble {
    fn set(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Raises the exception, if there is one.
    pub(crate) fn check(&self) -> PyResult<()> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// A loss written in Python: an object of `margrave.losses.Custom`, whose functions take arrays, or are addresses of compiled
/// functions of two numbers.
pub(crate) struct PyLoss {
    object: Arc<Py<PyAny>>,
    classification: bool,
}

/// `double f(double y, double z)` in C.
type Compiled = extern "C" fn(f64, f64) -> f64;

impl PyLoss {
    pub(crate) fn new(object: Py<PyAny>, classification: bool) -> Self {
        Self { object: Arc::new(object), classification }
    }

    /// One of the functions; `None` if the loss does not have it.
    fn function(&self, py: Python<'_>, name: &'static str, trouble: &Trouble) -> PyResult<Option<BulkFunction>> {
        let object = self.object.bind(py);
        let kind: String = object.call_method1("_kind", (name,))?.extract()?;
        match kind.as_str() {
            "none" => Ok(None),
            "compiled" => {
                let address: usize = object.call_method1("_address", (name,))?.extract()?;
                if address == 0 {
                    return Err(PyValueError::new_err(format!("the address of {name} is 0")));
                }
                // SAFETY: the user states, and `Custom` has checked where the object carries its signature, that this is the
                // address of a function of two doubles; `keep` keeps the object that owns its code.
                let function = unsafe { std::mem::transmute::<usize, Compiled>(address) };
                let keep = self.object.clone();
                Ok(Some(Box::new(move |y, z, out| {
                    let _owner = &keep;
                    y.iter().zip(z).zip(out).for_each(|((y, z), out)| *out = function(*y, *z));
                })))
            }
            _ => {
                let (object, trouble) = (self.object.clone(), trouble.clone());
                Ok(Some(Box::new(move |y, z, out| {
                    // After an exception no further call is made: the fit ends, and it is raised.
                    if trouble.is_set() {
                        return out.fill(f64::NAN);
                    }
                    let done = Python::attach(|py| -> PyResult<()> {
                        let (y, z) = (PyArray1::from_slice(py, y), PyArray1::from_slice(py, z));
                        let found = object.bind(py).call_method1("_evaluate", (name, y, z))?;
                        let found: Vector<'_> = found.extract()?;
                        out.copy_from_slice(found.as_slice()?);
                        Ok(())
                    });
                    if let Err(error) = done {
                        out.fill(f64::NAN);
                        trouble.set(error);
                    }
                })))
            }
        }
    }

    /// The loss for the engine: its slope is checked against its value, convexity is determined by sampling. `targets` are those
    /// of a regression.
    pub(crate) fn build(&self, py: Python<'_>, targets: &Targets, trouble: &Trouble) -> PyResult<CustomLoss> {
        let name: String = self.object.bind(py).getattr("name")?.extract()?;
        let required = |function: &'static str| {
            self.function(py, function, trouble)?
                .ok_or_else(|| PyValueError::new_err(format!("the loss {name} has no {function}")))
        };
        let functions = BulkFunctions {
            value: required("value")?,
            slope: required("slope")?,
            curvature: self.function(py, "curvature", trouble)?,
            conjugate: self.function(py, "conjugate", trouble)?,
        };
        let targets: &[f64] = match targets {
            Targets::Real(values) | Targets::Several { values, .. } => values,
            _ => &[],
        };
        let built = py.detach(|| CustomLoss::from_bulk(name, self.classification, functions, targets));
        trouble.check()?;
        built.map_err(raise)
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
