//! Whatever bytes come, no reader panics; and what is written is read back to the bit.

use crate::common::{gzip, idx, npy_f64, npz};
use margrave_core::data::{Csr, Dataset, Points, Targets};
use margrave_io::{Format, ReadOptions, read_bytes, write_csv, write_libsvm};
use proptest::prelude::*;

fn read_every_way(bytes: &[u8]) {
    for format in Format::ALL.into_iter().map(Some).chain([None]) {
        for no_target in [false, true] {
            let options = ReadOptions { format, no_target, ..ReadOptions::default() };
            if let Err(e) = read_bytes(bytes, "name", &options) {
                assert!(e.to_string().starts_with("name"), "{e}");
            }
        }
    }
}

fn samples() -> Vec<Vec<u8>> {
    let matrix = npy_f64(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let csr = [("indptr", &[0u64, 1, 2][..]), ("indices", &[1, 0]), ("shape", &[2, 2]), ("data", &[1, 2])];
    let arrays = csr.map(|(name, v)| {
        let data: Vec<u8> = v.iter().flat_map(|k| k.to_le_bytes()).collect();
        (name, crate::common::npy("<i8", &format!("{},", v.len()), &data))
    });
    let parts: Vec<(&str, &[u8])> = arrays.iter().map(|(n, b)| (*n, &b[..])).collect();
    vec![
        b"+1 1:0.5 3:2 # c\n-1 qid:2 2:1e-3\n".to_vec(),
        b"1 0:1 1:2 2:3\n1 0:2 1:3 2:4\n".to_vec(),
        b"a,b,\"c\"\n1,2,x\n3,\"4\",\"y\"\"z\"\n".to_vec(),
        b"1;2;3\r\n4;5;6".to_vec(),
        gzip(b"1 1:1\n2 2:2\n"),
        matrix.clone(),
        npz(&[("X", &matrix), ("y", &npy_f64(&[2], &[1.0, 2.0]))]),
        npz(&parts),
        idx(8, &[2, 1, 2], &[1, 2, 3, 4]),
        #[cfg(feature = "parquet")]
        crate::common::parquet_numbers(&["a", "y"], &[&[1.0, 2.0], &[3.0, 4.0]]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_every_way(&bytes);
    }

    #[test]
    fn random_text(text in "[-+0-9a-f:.,;# \t\r\n\"|?eE]{0,200}") {
        read_every_way(text.as_bytes());
    }

    #[test]
    fn damaged_files(which in any::<prop::sample::Index>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in any::<prop::sample::Index>(), whole: bool) {
        let mut bytes = which.get(&samples()).clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        read_every_way(&bytes);
    }

    #[test]
    fn what_is_written_is_read_back(
        (n, d, values) in (1usize..8, 1usize..6).prop_flat_map(|(n, d)| {
            let value = prop_oneof![Just(0.0), -1e3..1e3f64, prop::num::f64::NORMAL];
            (Just(n), Just(d), prop::collection::vec(value, n * d))
        }),
        // The words for a missing value ("na", "none", …) are none of them.
        labels in prop::collection::vec("[a-z]{1,5}[ ,;\"\n]?[a-m]q", 8),
        text: bool,
        single: bool,
    ) {
        let points = if single {
            let values: Vec<f32> = values.iter().map(|v| (v % 1e30) as f32).collect();
            Points::dense_f32(n, d, values).unwrap()
        } else {
            Points::dense_f64(n, d, values).unwrap()
        };
        let targets = if text {
            Targets::Text(labels[..n].to_vec())
        } else {
            Targets::Real((0..n).map(|i| i as f64 / 3.0).collect())
        };
        let mut data = Dataset::new(points, targets).unwrap();
        let options = ReadOptions { single, header: Some(false), separator: Some(b','), ..ReadOptions::default() };
        let mut csv = Vec::new();
        write_csv(&data, &mut csv).unwrap();
        let back = read_bytes(&csv, "t.csv", &options).unwrap();
        same(&data, &back.data)?;
        data.targets = match data.targets {
            Targets::Text(t) => Targets::Text(t.iter().map(|l| l.replace([' ', ',', ';', '"', '\n'], "-")).collect()),
            other => other,
        };
        let mut libsvm = Vec::new();
        write_libsvm(&data, &mut libsvm).unwrap();
        let schema = margrave_io::Schema::plain(d, false);
        let options = ReadOptions { single, schema: Some(&schema), ..ReadOptions::default() };
        let back = read_bytes(&libsvm, "t.svm", &options).unwrap();
        same(&data, &back.data)?;
    }
}

fn same(a: &Dataset, b: &Dataset) -> Result<(), TestCaseError> {
    prop_assert_eq!((a.len(), a.points.dims()), (b.len(), b.points.dims()));
    let (mut x, mut y) = (vec![0.0; a.points.dims()], vec![0.0; a.points.dims()]);
    for i in 0..a.len() {
        a.points.copy_row(i, &mut x);
        b.points.copy_row(i, &mut y);
        prop_assert_eq!(&x, &y);
    }
    prop_assert_eq!(&a.targets, &b.targets);
    Ok(())
}

#[test]
fn weights_names_and_sparse_rows_are_written() {
    let m = Csr::new(3, vec![0, 1, 3], vec![1, 0, 2], vec![5.0, 0.25, -1.0]).unwrap();
    let mut data =
        Dataset::new(m.into(), Targets::Real(vec![1.0, -1.0])).unwrap().with_weights(vec![2.0, 0.5]).unwrap();
    data.names = Some(vec!["a".into(), "b,c".into(), "d".into()]);
    let mut csv = Vec::new();
    write_csv(&data, &mut csv).unwrap();
    assert_eq!(String::from_utf8_lossy(&csv), "a,\"b,c\",d,weight,target\n0,5,0,2,1\n0.25,0,-1,0.5,-1\n");
    let options = ReadOptions { weights: "weight".parse().ok(), ..ReadOptions::default() };
    let back = read_bytes(&csv, "t.csv", &options).unwrap();
    assert_eq!((&back.data.weights, &back.data.names), (&data.weights, &data.names));
    let mut libsvm = Vec::new();
    write_libsvm(&data, &mut libsvm).unwrap();
    assert_eq!(String::from_utf8_lossy(&libsvm), "1 2:5\n-1 1:0.25 3:-1\n");
    data.targets = Targets::Text(vec!["a b".into(), "c".into()]);
    assert!(write_libsvm(&data, &mut Vec::new()).is_err());
}
