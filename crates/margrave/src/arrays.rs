//! Data from arrays of the crate [`ndarray`].

use margrave_core::Result;
use margrave_core::data::{Dataset, Points, Targets};
use ndarray::{ArrayView1, ArrayView2};

/// One point per row; copied.
pub fn points(x: ArrayView2<'_, f64>) -> Result<Points> {
    let (n, d) = x.dim();
    Points::dense_f64(n, d, x.iter().copied().collect::<Vec<f64>>())
}

/// Points with one target each: ±1 or class numbers, or real targets.
pub fn dataset(x: ArrayView2<'_, f64>, y: ArrayView1<'_, f64>) -> Result<Dataset> {
    Dataset::new(points(x)?, Targets::Real(y.to_vec()))
}
