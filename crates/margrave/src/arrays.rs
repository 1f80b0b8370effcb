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

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn rows_are_points_whatever_the_memory_order() {
        let x = array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]];
        let mut row = [0.0; 3];
        let flipped = points(x.t()).unwrap();
        assert_eq!((flipped.len(), flipped.dims()), (2, 3));
        flipped.copy_row(1, &mut row);
        assert_eq!(row, [2.0, 4.0, 6.0]);
        let data = dataset(x.view(), array![1.0, -1.0, 1.0].view()).unwrap();
        assert_eq!(data.len(), 3);
        assert!(dataset(x.view(), array![1.0].view()).is_err());
    }
}
