//! Wrappers around any solver: several classes from binary machines, folds, calibration.
//!
//! A wrapper divides a data set into [`Part`]s, rows with targets ±1. Nothing here depends on the solver that trains them.
//! Parts are trained in parallel in [`lanes`](run), each with a share of the memory that does not depend on the number of
//! threads, so that the result does not either.

pub mod calibrate;
pub mod cross_validate;
mod lanes;
pub mod one_vs_one;
pub mod one_vs_rest;
pub mod sigmoid;
pub mod threshold;

pub use lanes::{LANES, run};

/// A binary problem over some rows of a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Rows of the data set.
    pub rows: Vec<u32>,
    /// −1 or +1 for each row.
    pub targets: Vec<f64>,
}
