//! The extension module `margrave._core`: arrays in, arrays out.
//!
//! Nothing here is public to Python users: the estimators in `margrave/*.py` call it. Every function takes a description of
//! the machine ([`params::Params`], a dictionary) and arrays, and returns arrays. No state is kept between calls except thread
//! pools, and the [`machine::Machine`] that an estimator keeps for its predictions.

mod card;
mod certify;
mod data;
mod errors;
mod files;
mod fit;
mod linear;
mod losses;
mod machine;
mod params;
mod partition;
mod ridge;
mod supervise;
mod tune;

use pyo3::prelude::*;

/// Runs the program `margrave` with these arguments and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| margrave_cli::run(arguments))
}

/// The engine behind the estimators of `margrave`: private, may change at any time.
#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::card::CardArray;
    #[pymodule_export]
    use super::certify::{certify, certify_libsvm};
    #[pymodule_export]
    use super::data::fingerprint;
    #[pymodule_export]
    use super::errors::{
        BudgetError, DataError, DeviceError, NotFiniteError, OptionError, OutOfMemoryError, ShapeError,
        UnsupportedError,
    };
    #[pymodule_export]
    use super::files::{export_libsvm, export_native, export_onnx, gamma_of, read_libsvm, read_native};
    #[pymodule_export]
    use super::fit::fit;
    #[pymodule_export]
    use super::linear::certify_linear;
    #[pymodule_export]
    use super::losses::{loss_names, loss_properties, loss_values};
    #[pymodule_export]
    use super::machine::{Machine, votes};
    #[pymodule_export]
    use super::main;
    #[pymodule_export]
    use super::partition::{
        balance_parts, certify_kernel_rows, certify_rows, combine_kernel_parts, combine_linear_parts, kernel_block,
        kernel_scores, linear_centre, linear_direction, linear_pass, linear_product, linear_width, solve_rows,
        worst_rows,
    };
    #[pymodule_export]
    use super::ridge::certify_ridge;
    #[pymodule_export]
    use super::tune::{is_score, tune, tune_task};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
