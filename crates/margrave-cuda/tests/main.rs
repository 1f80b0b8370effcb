//! Tests against a card. Without one they check that the reason is given, and pass.
#![allow(clippy::print_stderr)]

mod chains;
mod features;
mod gram;
mod resident;
mod solver;

use margrave_cuda::{CudaBackend, CudaError};

/// The first card; `None`, and a line on stderr, if there is none. A card that fails is a failed test.
fn card() -> Option<&'static CudaBackend> {
    match CudaBackend::open(0) {
        Ok(backend) => Some(backend),
        Err(
            error @ (CudaError::NoDriver
            | CudaError::NoCard
            | CudaError::DriverTooOld { .. }
            | CudaError::CardTooOld { .. }),
        ) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
