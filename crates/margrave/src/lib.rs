//! Kernel machines for any loss, with a proof of optimality on every fit.
//!
//! This crate is what to depend on: the engine ([`margrave_core`]) and the readers ([`io`]) under one roof.
//!
//! ```
//! use margrave::{Gamma, Kernel, backend::cpu::CpuGram, gram, observe::Silent};
//! # let file = std::env::temp_dir().join(format!("margrave-doc-{}.svm", std::process::id()));
//! # std::fs::write(&file, "+1 1:0.5 2:1\n-1 1:-0.5 2:2\n+1 1:1 2:0.5\n")?;
//! # let path = &file;
//! let data = margrave::load(path)?;
//! let kernel = Kernel::rbf(Gamma::Scale.resolve(&data.points, 0)?);
//! let gram = CpuGram::square(kernel, &data.points)?;
//! let control = margrave::Control::unlimited(margrave::Threads::default());
//! let (spectrum, _) = gram::smallest_eigenvalue(&gram, &Default::default(), &control, &mut Silent)?;
//! assert!(spectrum.is_some_and(|s| !s.is_indefinite()));
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

use std::path::Path;

pub use margrave_core::data::{Dataset, Label, Points, Targets};
pub use margrave_core::kernel::{Gamma, Kernel};
pub use margrave_core::{
    Budget, Control, Error, Interrupt, Result, Status, Threads, backend, certificate, control, data, gram, kernel,
    loss, model, observe, problem, solver,
};
pub use margrave_io as io;

/// Reads a data file, everything told from its content and name. [`io::load`] takes options.
pub fn load(path: impl AsRef<Path>) -> io::Result<Dataset> {
    Ok(io::load(path, &io::ReadOptions::default())?.data)
}
