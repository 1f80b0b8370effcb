//! Errors of the engine as Python exceptions: one class per variant, each also derived from a built-in exception.

use margrave::conflict::{OptionName, Spelling};
use margrave::io::ReadError;
use margrave::{Error, Interrupt};
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(margrave, OptionError, PyValueError, "A parameter is outside its range.");
pyo3::create_exception!(margrave, ShapeError, PyValueError, "Two lengths that must agree do not.");
pyo3::create_exception!(margrave, NotFiniteError, PyValueError, "A value is NaN or infinite.");
pyo3::create_exception!(margrave, DataError, PyValueError, "The data cannot be trained on as asked.");
pyo3::create_exception!(margrave, UnsupportedError, PyValueError, "The solver has no view of what was asked of it.");
pyo3::create_exception!(margrave, OutOfMemoryError, PyMemoryError, "The memory budget is too small.");
pyo3::create_exception!(margrave, DeviceError, PyRuntimeError, "The device cannot be used.");
pyo3::create_exception!(margrave, BudgetError, PyTimeoutError, "The time was over before there was a result.");

/// Options as Python writes them: `penalty="l1"`.
struct Keywords;

impl Spelling for Keywords {
    fn option(&self, option: OptionName, value: Option<&str>) -> String {
        let name = match option {
            OptionName::Bias => "fit_intercept",
            OptionName::Cost => "C",
            OptionName::Gap => "gap_tol",
            OptionName::Resume => "warm_start",
            OptionName::Weights => "sample_weight",
            OptionName::Multiclass => "multi_class",
            OptionName::Target => "y",
            other => other.name(),
        };
        match (option, value) {
            (OptionName::Bias, None) => format!("{name}=False"),
            (OptionName::Bias, Some(_)) => format!("{name}=False"),
            (_, Some(value)) => format!("{name}=\"{value}\""),
            (_, None) => name.to_owned(),
        }
    }
}

/// The parameter that a range in the engine belongs to.
fn keyword(option: &str) -> String {
    match option {
        "lambda" => "alpha".to_owned(),
        "score" => "scoring".to_owned(),
        "max_iterations" => "max_iter".to_owned(),
        "gap" => "gap_tol".to_owned(),
        other => other.replace('-', "_"),
    }
}

/// The exception of an error.
pub(crate) fn raise(error: Error) -> PyErr {
    let text = error.text(&Keywords);
    match error {
        Error::Option { option, value, allowed } => OptionError::new_err(margrave::conflict::spell(
            &format!("{}={value} is not allowed: {allowed}", keyword(option)),
            &Keywords,
        )),
        Error::Shape { .. } => ShapeError::new_err(text),
        Error::NotFinite { .. } => NotFiniteError::new_err(text),
        Error::Unsupported { .. } | Error::Conflict { .. } => UnsupportedError::new_err(text),
        Error::Device { .. } => DeviceError::new_err(text),
        Error::Memory { .. } => OutOfMemoryError::new_err(text),
        Error::Interrupted(Interrupt::Cancelled) => PyKeyboardInterrupt::new_err(()),
        Error::Interrupted(Interrupt::Deadline) => BudgetError::new_err(text),
        _ => DataError::new_err(text),
    }
}

/// The exception of a file that could not be read or written.
pub(crate) fn raise_file(error: ReadError) -> PyErr {
    match error {
        ReadError::Io { .. } => PyOSError::new_err(error.to_string()),
        other => DataError::new_err(other.text(&Keywords)),
    }
}
