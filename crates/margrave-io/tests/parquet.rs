//! What a Parquet file holds comes out.
#![cfg(feature = "parquet")]

use crate::common::{Stored, parquet, parquet_dates, parquet_file, parquet_null, parquet_times};
use ::parquet::basic::Compression;
use margrave_core::data::Targets;
use margrave_io::{Column, Loaded, Missing, ReadOptions, read_bytes};

fn rows(loaded: &Loaded) -> Vec<Vec<f64>> {
    let mut row = vec![0.0; loaded.data.points.dims()];
    (0..loaded.data.len())
        .map(|i| {
            loaded.data.points.copy_row(i, &mut row);
            row.clone()
        })
        .collect()
}

fn plain() -> ReadOptions<'static> {
    ReadOptions::default()
}

#[test]
fn parquet_of_every_kind_of_column() {
    let columns = vec![
        ("required float f", Stored::Float(vec![0.5, 1.5, 2.5])),
        ("required int64 i", Stored::Int64(vec![-1, 0, 1])),
        ("required int32 u (UINT_8)", Stored::Int32(vec![1, 2, 3])),
        ("required boolean b", Stored::Bool(vec![true, false, true])),
        ("required binary s (UTF8)", Stored::Text(vec!["q", "p", "q"])),
        ("required binary d (STRING)", Stored::Text(vec!["m", "n", "m"])),
        ("required binary y (UTF8)", Stored::Text(vec!["no", "yes", "no"])),
    ];
    let l = read_bytes(&parquet(columns), "t.parquet", &plain()).unwrap();
    let expected = [
        [0.5, -1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0],
        [1.5, 0.0, 2.0, 0.0, 1.0, 0.0, 0.0, 1.0],
        [2.5, 1.0, 3.0, 1.0, 0.0, 1.0, 1.0, 0.0],
    ];
    assert_eq!(rows(&l), expected);
    assert_eq!(l.data.targets, Targets::Text(vec!["no".into(), "yes".into(), "no".into()]));
    assert_eq!(l.data.names.as_ref().unwrap()[4..6], ["s=p", "s=q"]);
    // The model's schema serves other formats too.
    let again = ReadOptions { schema: Some(&l.schema), ..plain() };
    let p = read_bytes(b"s,d,b,u,i,f\np,n,1,2,3,4\n", "t.csv", &again).unwrap();
    assert_eq!(rows(&p), [[4.0, 3.0, 2.0, 1.0, 1.0, 0.0, 0.0, 1.0]]);
}

#[test]
fn wide_integers_decimals_and_halves_are_numbers() {
    let columns = vec![
        ("required int32 u (UINT_32)", Stored::Int32(vec![-1, 5])),
        ("required int64 w (UINT_64)", Stored::Int64(vec![-1, 5])),
        ("required int32 a (DECIMAL(9,2))", Stored::Int32(vec![1234, -50])),
        ("required fixed_len_byte_array(3) c (DECIMAL(6,1))", Stored::Fixed(vec![vec![0, 0, 15], vec![255, 255, 255]])),
        ("required fixed_len_byte_array(2) h (FLOAT16)", Stored::Fixed(vec![vec![0, 0x3c], vec![0, 0xc0]])),
        ("required double y", Stored::Double(vec![1.0, 2.0])),
    ];
    let l = read_bytes(&parquet(columns), "t.parquet", &plain()).unwrap();
    let found = rows(&l);
    let expected = [[4_294_967_295.0, 18_446_744_073_709_551_615.0, 12.34, 1.5, 1.0], [5.0, 5.0, -0.5, -0.1, -2.0]];
    for (found, expected) in found.iter().zip(expected) {
        found.iter().zip(expected).for_each(|(f, e)| assert!((f - e).abs() <= 1e-12 * e.abs(), "{f} {e}"));
    }
}

#[test]
fn optional_columns_without_holes_and_every_compression() {
    let n = 20_000;
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(Default::default()),
    ] {
        let values: Vec<f64> = (0..n).map(|i| f64::from(i) / 7.0).collect();
        let columns = [
            (Stored::Double(values.clone()), Some(vec![1; n as usize]), None),
            (Stored::Int32((0..n).collect()), None, None),
        ];
        let bytes = parquet_file(&["optional double a", "required int32 y"], &columns, compression);
        let l = read_bytes(&bytes, "t.parquet", &plain()).unwrap();
        assert_eq!(rows(&l).into_iter().flatten().collect::<Vec<_>>(), values);
        assert_eq!(l.data.targets, Targets::Real((0..n).map(f64::from).collect()));
    }
}

/// Labels that are numbers, of a model that was trained on texts.
#[test]
fn numbers_are_labels_where_the_model_has_labels() {
    let first = read_bytes(b"a,y\n1,7\n2,x\n", "t.csv", &ReadOptions { header: Some(true), ..plain() }).unwrap();
    let bytes =
        parquet(vec![("required double a", Stored::Double(vec![3.0])), ("required int32 y", Stored::Int32(vec![7]))]);
    let l = read_bytes(&bytes, "t.parquet", &ReadOptions { schema: Some(&first.schema), ..plain() }).unwrap();
    assert_eq!(l.data.targets, Targets::Text(vec!["7".into()]));
}

#[test]
fn nulls_are_filled_dates_are_days_and_dropped_columns_may_be_anything() {
    let with = |missing| ReadOptions { missing, ..plain() };
    let l = read_bytes(&parquet_null(), "t.parquet", &with(Missing::Mean)).unwrap();
    assert_eq!(rows(&l), [[1.0], [1.0]]);
    let again = ReadOptions { schema: Some(&l.schema), ..plain() };
    assert_eq!(rows(&read_bytes(&parquet_null(), "t.parquet", &again).unwrap()), rows(&l));
    let l = read_bytes(&parquet_null(), "t.parquet", &with(Missing::Row)).unwrap();
    assert_eq!((rows(&l), l.left_out), (vec![vec![1.0]], vec![1]));
    assert_eq!(rows(&read_bytes(&parquet_dates(), "t.parquet", &plain()).unwrap()), [[1.0], [2.0]]);
    let columns = vec![
        ("required int32 when (TIME_MILLIS)", Stored::Int32(vec![1, 2])),
        ("required double a", Stored::Double(vec![5.0, 6.0])),
        ("required double y", Stored::Double(vec![1.0, 2.0])),
    ];
    let drop = Some(Column::Name("when".into()));
    let l = read_bytes(&parquet(columns), "t.parquet", &ReadOptions { drop, ..plain() }).unwrap();
    assert_eq!(rows(&l), [[5.0], [6.0]]);
    assert!(read_bytes(&parquet_times(), "t.parquet", &plain()).is_err());
}
