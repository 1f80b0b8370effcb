//! Parquet files made in memory.

use std::sync::Arc;

use ::parquet::basic::Compression;
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::{ByteArray, FixedLenByteArray};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;

/// The values of a column as they are stored.
pub(crate) enum Stored {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Text(Vec<&'static str>),
    Fixed(Vec<Vec<u8>>),
}

/// A Parquet file: the fields of its schema, such as `required double a`, their values, and levels where values are optional or repeated.
pub(crate) fn parquet_file(
    fields: &[&str],
    columns: &[(Stored, Option<Vec<i16>>, Option<Vec<i16>>)],
    compression: Compression,
) -> Vec<u8> {
    let schema = format!("message schema {{ {} }}", fields.iter().map(|f| format!("{f};")).collect::<String>());
    let schema = Arc::new(parse_message_type(&schema.replace("};", "}")).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    for (values, def, rep) in columns {
        let mut column = group.next_column().unwrap().unwrap();
        let (def, rep) = (def.as_deref(), rep.as_deref());
        let written = match (column.untyped(), values) {
            (ColumnWriter::BoolColumnWriter(w), Stored::Bool(v)) => w.write_batch(v, def, rep),
            (ColumnWriter::Int32ColumnWriter(w), Stored::Int32(v)) => w.write_batch(v, def, rep),
            (ColumnWriter::Int64ColumnWriter(w), Stored::Int64(v)) => w.write_batch(v, def, rep),
            (ColumnWriter::FloatColumnWriter(w), Stored::Float(v)) => w.write_batch(v, def, rep),
            (ColumnWriter::DoubleColumnWriter(w), Stored::Double(v)) => w.write_batch(v, def, rep),
            (ColumnWriter::ByteArrayColumnWriter(w), Stored::Text(v)) => {
                let v: Vec<ByteArray> = v.iter().map(|text| ByteArray::from(*text)).collect();
                w.write_batch(&v, def, rep)
            }
            (ColumnWriter::FixedLenByteArrayColumnWriter(w), Stored::Fixed(v)) => {
                let v: Vec<FixedLenByteArray> = v.iter().map(|b| ByteArray::from(b.clone()).into()).collect();
                w.write_batch(&v, def, rep)
            }
            _ => panic!("the values are not those of the field"),
        };
        written.unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    file.into_inner().unwrap()
}

/// A Parquet file without missing or repeated values.
pub(crate) fn parquet(columns: Vec<(&str, Stored)>) -> Vec<u8> {
    let (fields, values): (Vec<&str>, Vec<_>) = columns.into_iter().map(|(f, v)| (f, (v, None, None))).unzip();
    parquet_file(&fields, &values, Compression::SNAPPY)
}

/// A Parquet file of doubles.
pub(crate) fn parquet_numbers(names: &[&str], columns: &[&[f64]]) -> Vec<u8> {
    let fields: Vec<String> = names.iter().map(|name| format!("required double {name}")).collect();
    let values = columns.iter().map(|c| Stored::Double(c.to_vec()));
    parquet(fields.iter().map(String::as_str).zip(values).collect())
}

/// A Parquet file with a column of lists.
pub(crate) fn parquet_nested() -> Vec<u8> {
    let plain = || (Stored::Double(vec![1.0, 2.0]), None, None);
    let list = (Stored::Double(vec![1.0, 2.0, 3.0]), Some(vec![1, 1, 1]), Some(vec![0, 1, 0]));
    let fields = ["required double a", "required group list { repeated double element; }", "required double y"];
    parquet_file(&fields, &[plain(), list, plain()], Compression::UNCOMPRESSED)
}

/// A Parquet file with a missing value.
pub(crate) fn parquet_null() -> Vec<u8> {
    let holes = (Stored::Double(vec![1.0]), Some(vec![1, 0]), None);
    let plain = (Stored::Double(vec![1.0, 2.0]), None, None);
    parquet_file(&["optional double a", "required double y"], &[holes, plain], Compression::UNCOMPRESSED)
}

/// A Parquet file with times of day.
pub(crate) fn parquet_times() -> Vec<u8> {
    parquet(vec![
        ("required int32 when (TIME_MILLIS)", Stored::Int32(vec![1, 2])),
        ("required double y", Stored::Double(vec![1.0, 2.0])),
    ])
}

/// A Parquet file with dates: days since 1970-01-01.
pub(crate) fn parquet_dates() -> Vec<u8> {
    parquet(vec![
        ("required int32 when (DATE)", Stored::Int32(vec![1, 2])),
        ("required double y", Stored::Double(vec![1.0, 2.0])),
    ])
}
