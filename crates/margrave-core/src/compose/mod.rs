//! Wrappers around any trainer: several classes from binary machines, folds, calibration.
//!
//! A wrapper cuts one data set into [`Part`]s, rows with targets ±1, and has each trained by whatever trains: nothing here
//! knows a solver. Parts are trained side by side in [`lanes`](run), each within a share of the memory that does not depend
//! on the number of threads, so that neither does the result.

pub mod calibrate;
pub mod cross_validate;
mod lanes;
pub mod one_vs_one;
pub mod one_vs_rest;

pub use lanes::{LANES, run};

/// A binary problem cut out of a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Rows of the data set.
    pub rows: Vec<u32>,
    /// −1 or +1 for each.
    pub targets: Vec<f64>,
}
