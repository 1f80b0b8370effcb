//! From what a solver found to a model: the proof of the machine as it is saved, and the status that follows from it.
//!
//! A solver says how it ended; [`prove`] makes the machine that will be saved and certifies *that*, with scores of its own; and
//! [`verdict`](mod@verdict) alone turns what was asked, what the certificate found and how the solver ended into a [`Status`].

mod proof;
pub mod verdict;

pub use proof::{Proven, prove, prove_linear};
pub use verdict::{Asked, Met};

use crate::control::Status;
