//! Margrave on NVIDIA cards.
//!
//! [`CudaBackend`] is a [`Backend`](margrave_core::backend::Backend): Gram blocks, and products with K that store nothing,
//! computed on a card with the accuracy that every backend guarantees. Only the driver's library is needed, and it is
//! opened at run time: this crate builds, and its functions return a [`CudaError`], on computers without a card.

mod arithmetic;
mod backend;
mod chains;
mod choose;
mod driver;
mod error;
mod factored;
mod features;
mod gram;
mod packed;
pub mod phases;
mod pivots;
mod points;
mod ptx;
mod resident;
mod solver;
mod tall;
mod wide;

pub use backend::CudaBackend;
pub use choose::{Chosen, DeviceName, WORTHWHILE, WhyNot, choose, choose_for};
pub use driver::{CardInfo, cards};
pub use error::{CudaError, LEAST_CAPABILITY, LEAST_CUDA};
pub use resident::{CardMatrix, card_number, copied_values, copy_to_card, points_on_card, row_sums};
