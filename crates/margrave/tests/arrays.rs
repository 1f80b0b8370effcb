//! Data from arrays of the crate ndarray.

use margrave::arrays::{dataset, points};
use ndarray::array;

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
