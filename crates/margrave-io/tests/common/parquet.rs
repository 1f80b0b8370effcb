//! Parquet files made in memory.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::{ArrayRef, Date32Array, Float64Array, RecordBatch};

/// A Parquet file of these columns.
pub(crate) fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ::parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// A Parquet file of doubles.
pub(crate) fn parquet_numbers(names: &[&str], columns: &[&[f64]]) -> Vec<u8> {
    let array = |c: &&[f64]| Arc::new(Float64Array::from(c.to_vec())) as ArrayRef;
    parquet(names.iter().copied().zip(columns.iter().map(array)).collect())
}

/// A Parquet file with a column of lists.
pub(crate) fn parquet_nested() -> Vec<u8> {
    let mut list = ListBuilder::new(Float64Builder::new());
    list.append_value([Some(1.0), Some(2.0)]);
    list.append_value([Some(3.0)]);
    let plain = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    parquet(vec![("a", plain.clone()), ("list", Arc::new(list.finish())), ("y", plain)])
}

/// A Parquet file with a missing value.
pub(crate) fn parquet_null() -> Vec<u8> {
    let holes = Arc::new(Float64Array::from(vec![Some(1.0), None]));
    parquet(vec![("a", holes), ("y", Arc::new(Float64Array::from(vec![1.0, 2.0])))])
}

/// A Parquet file with dates.
pub(crate) fn parquet_dates() -> Vec<u8> {
    let dates = Arc::new(Date32Array::from(vec![1, 2]));
    parquet(vec![("when", dates), ("y", Arc::new(Float64Array::from(vec![1.0, 2.0])))])
}
