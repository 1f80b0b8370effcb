//! Kernel machines for any loss, with a proof of optimality on every fit.
//!
//! This is the crate to depend on: the builder [`Svm`], the result of a training ([`Fit`]), the readers ([`io`]), and the parts
//! of the engine that users need by name. [`engine`] is the complete engine.
//!
//! ```
//! use margrave::{Kernel, Svm, loss};
//! # let file = std::env::temp_dir().join(format!("margrave-doc-{}.svm", std::process::id()));
//! # std::fs::write(&file, "+1 1:0.5 2:1\n-1 1:-0.5 2:2\n+1 1:1 2:0.5\n-1 1:-1 2:1\n")?;
//! # let path = &file;
//! let data = margrave::load(path)?;
//! let fit = Svm::classifier().kernel(Kernel::rbf(0.1)).cost(1.0).loss(loss::Hinge).fit(&data)?;
//! println!("{}", fit.certificate());
//! assert_eq!(fit.status(), margrave::Status::Optimal);
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

#[cfg(feature = "ndarray")]
pub mod arrays;
mod fit;
mod svm;

use std::path::Path;

pub use fit::Fit;
pub use margrave_core as engine;
pub use margrave_core::backend::Device;
pub use margrave_core::certificate::{Approximation, Certificate, TailCheck};
pub use margrave_core::conflict;
pub use margrave_core::data::{Dataset, Label, Points, ScaleKind, Targets};
pub use margrave_core::kernel::{Gamma, Kernel};
pub use margrave_core::loss;
pub use margrave_core::model::{Model, Prediction, Record, Scheme, Threshold, ThresholdRule, Totals};
pub use margrave_core::observe::{Observer, Recorder, Silent, Step};
pub use margrave_core::problem::{ClassWeight, Formulation, Penalty, Task};
pub use margrave_core::solver::Stop;
pub use margrave_core::train::{
    Approx, Caution, Compacted, Plan, Probability, ProbabilityRule, SolverName, TrainOptions, tune, verify,
};
pub use margrave_core::{Budget, Cancel, Control, Error, Interrupt, Result, Status, Threads};
pub use margrave_io as io;
pub use margrave_io::model::{LibsvmProof, LibsvmTraining, verify_libsvm};
pub use svm::Svm;

/// Reads a data file; its format is detected from content and name. [`io::load`] takes options.
pub fn load(path: impl AsRef<Path>) -> io::Result<Dataset> {
    Ok(io::load(path, &io::ReadOptions::default())?.data)
}
