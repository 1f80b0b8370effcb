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
        Ok(backend) => {
            // Tests that run at the same time wait for each other's programs otherwise, which no interrupt can end.
            static LOADED: std::sync::Once = std::sync::Once::new();
            LOADED.call_once(|| backend.load_programs().expect("programs that the card runs"));
            Some(backend)
        }
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
