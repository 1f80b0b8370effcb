//! What a Parquet file holds comes out.
#![cfg(feature = "parquet")]

use std::sync::Arc;

use crate::common::parquet;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float32Array, Int32Array, Int64Array, StringArray, UInt8Array,
};
use margrave_core::data::Targets;
use margrave_io::{Loaded, ReadOptions, read_bytes};

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
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("f", Arc::new(Float32Array::from(vec![0.5, 1.5, 2.5]))),
        ("i", Arc::new(Int64Array::from(vec![-1, 0, 1]))),
        ("u", Arc::new(UInt8Array::from(vec![1, 2, 3]))),
        ("b", Arc::new(BooleanArray::from(vec![true, false, true]))),
        ("s", Arc::new(StringArray::from(vec!["q", "p", "q"]))),
        (
            "d",
            Arc::new(DictionaryArray::new(
                Int32Array::from(vec![0, 1, 0]),
                Arc::new(StringArray::from(vec!["m", "n"])),
            )),
        ),
        ("y", Arc::new(StringArray::from(vec!["no", "yes", "no"]))),
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
