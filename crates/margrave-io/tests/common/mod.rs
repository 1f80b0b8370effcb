//! Files made in memory.
#![allow(dead_code, reason = "every test uses a part of this")]

use std::io::{Cursor, Write};

#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
#[allow(unused_imports, reason = "every test uses a part of this")]
pub(crate) use parquet::{
    Stored, parquet, parquet_dates, parquet_file, parquet_nested, parquet_null, parquet_numbers, parquet_times,
};

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
