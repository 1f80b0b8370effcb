//! Files made in memory.
#![allow(dead_code, reason = "every test uses a part of this")]

use std::io::{Cursor, Write};
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::{ArrayRef, Date32Array, Float64Array, RecordBatch};

/// `bytes` gzipped.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An NPY file in C order.
pub(crate) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy_ordered(descr, shape, data, false)
}

/// An NPY file in C or Fortran order.
pub(crate) fn npy_ordered(descr: &str, shape: &str, data: &[u8], fortran: bool) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// An NPY file of doubles.
pub(crate) fn npy_f64(shape: &[usize], values: &[f64]) -> Vec<u8> {
    let shape: String = shape.iter().map(|k| format!("{k}, ")).collect();
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    npy("<f8", &shape, &data)
}

/// A zip of arrays, packed.
pub(crate) fn npz(arrays: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// An idx file.
pub(crate) fn idx(kind: u8, shape: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    shape.iter().for_each(|k| bytes.extend(k.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// A Parquet file of these columns.
pub(crate) fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
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
