//! The right answers: what each format holds comes out.

use crate::common::{idx, npy, npy_f64, npy_ordered, npz};
use margrave_core::data::{Storage, Targets};
use margrave_io::{Column, Format, Loaded, ReadOptions, Schema, load, read_bytes};

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
fn npy_elements_of_every_type() {
    let values = [0i64, 1, 2, 3, 100, 1];
    let le = |size: usize| values.iter().flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect::<Vec<u8>>();
    let be = |size: usize| values.iter().flat_map(|v| v.to_be_bytes()[8 - size..].to_vec()).collect::<Vec<u8>>();
    let floats = |f: &dyn Fn(f64) -> Vec<u8>| values.iter().flat_map(|v| f(*v as f64)).collect::<Vec<u8>>();
    let mut cases = vec![
        ("<f8", floats(&|v| v.to_le_bytes().to_vec())),
        (">f8", floats(&|v| v.to_be_bytes().to_vec())),
        ("<f4", floats(&|v| (v as f32).to_le_bytes().to_vec())),
        (">f4", floats(&|v| (v as f32).to_be_bytes().to_vec())),
        ("|i1", le(1)),
        ("|u1", le(1)),
    ];
    let names = ["<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", ">u4", "<i8", ">i8", "<u8", ">u8"];
    for name in names {
        let size = usize::from(name.as_bytes()[2] - b'0');
        cases.push((name, if name.starts_with('<') { le(size) } else { be(size) }));
    }
    for (descr, data) in cases {
        let l = read_bytes(&npy(descr, "2, 3", &data), "a.npy", &plain()).unwrap();
        assert_eq!(rows(&l), [[0.0, 1.0], [3.0, 100.0]], "{descr}");
        assert_eq!(l.data.targets, Targets::Real(vec![2.0, 1.0]), "{descr}");
    }
    let l = read_bytes(&npy("|b1", "2, 2", &[1, 0, 0, 1]), "a.npy", &plain()).unwrap();
    assert_eq!((rows(&l), l.data.targets), (vec![vec![1.0], vec![0.0]], Targets::Real(vec![0.0, 1.0])));
    let half: Vec<u8> = [0x3c00u16, 0xc000, 0x3800, 0x0000].iter().flat_map(|b| b.to_le_bytes()).collect();
    let l = read_bytes(&npy("<f2", "2, 2", &half), "a.npy", &plain()).unwrap();
    assert_eq!((rows(&l), l.data.targets), (vec![vec![1.0], vec![0.5]], Targets::Real(vec![-2.0, 0.0])));
}

#[test]
fn npy_orders_columns_and_precision() {
    let by_columns: Vec<u8> = [1.0f64, 4.0, 2.0, 5.0, 3.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let file = npy_ordered("<f8", "2, 3", &by_columns, true);
    let l = read_bytes(&file, "a.npy", &plain()).unwrap();
    assert_eq!(rows(&l), [[1.0, 2.0], [4.0, 5.0]]);
    let options = ReadOptions { target: Some(Column::Number(0)), weights: Some(Column::Number(-1)), ..plain() };
    let l = read_bytes(&file, "a.npy", &options).unwrap();
    assert_eq!((rows(&l), l.data.weights), (vec![vec![2.0], vec![5.0]], Some(vec![3.0, 6.0])));
    let options = ReadOptions { single: true, ..plain() };
    let big = npy_f64(&[1, 2], &[0.5, 16_777_217.0]);
    let l = read_bytes(&big, "a.npy", &options).unwrap();
    assert!(matches!(l.data.points.storage(), Storage::DenseF32(_)));
    assert_eq!(l.data.targets, Targets::Real(vec![16_777_217.0]), "targets keep double precision");
    let schema = read_bytes(&file, "a.npy", &plain()).unwrap().schema;
    let again = ReadOptions { schema: Some(&schema), ..plain() };
    let l = read_bytes(&npy_f64(&[1, 2], &[7.0, 8.0]), "a.npy", &again).unwrap();
    assert_eq!((rows(&l), l.data.targets), (vec![vec![7.0, 8.0]], Targets::None));
    assert!(read_bytes(&npy_f64(&[1, 4], &[7.0; 4]), "a.npy", &again).is_err());
}

#[test]
fn npz_dense_sparse_and_named() {
    let x = npy_f64(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let text: Vec<u8> = "ab\0c\0\0".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
    let l = read_bytes(&npz(&[("y", &npy("<U3", "2,", &text)), ("X", &x)]), "a.npz", &plain()).unwrap();
    assert_eq!(rows(&l), [[1.0, 2.0], [3.0, 4.0]]);
    assert_eq!(l.data.targets, Targets::Text(vec!["ab".into(), "c".into()]));
    let w = npy_f64(&[2], &[0.5, 2.0]);
    let t = npy_f64(&[2], &[9.0, 8.0]);
    let options =
        ReadOptions { weights: Some(Column::Name("w".into())), target: Some(Column::Name("t".into())), ..plain() };
    let l = read_bytes(&npz(&[("w", &w), ("t", &t), ("arr", &x)]), "a.npz", &options).unwrap();
    assert_eq!((l.data.weights, l.data.targets), (Some(vec![0.5, 2.0]), Targets::Real(vec![9.0, 8.0])));
    let ints = |v: &[i32]| v.iter().flat_map(|k| k.to_le_bytes()).collect::<Vec<u8>>();
    let longs = |v: &[i64]| v.iter().flat_map(|k| k.to_le_bytes()).collect::<Vec<u8>>();
    // Row 1 is neither sorted nor without duplicates.
    let file = npz(&[
        ("format", &npy("|S3", "", b"csr")),
        ("shape", &npy("<i8", "2,", &longs(&[2, 1_000_000]))),
        ("data", &npy_f64(&[4], &[1.0, 2.0, 3.0, 4.0])),
        ("indices", &npy("<i4", "4,", &ints(&[7, 9, 2, 9]))),
        ("indptr", &npy("<i4", "3,", &ints(&[0, 1, 4]))),
        ("y", &t),
    ]);
    let l = read_bytes(&file, "a.npz", &plain()).unwrap();
    let Storage::SparseF64(m) = l.data.points.storage() else { unreachable!("the file is sparse") };
    assert_eq!(
        (m.dims(), m.starts(), m.columns(), m.values()),
        (1_000_000, &[0, 1, 3][..], &[7, 2, 9][..], &[1.0, 3.0, 6.0][..])
    );
    assert_eq!(l.data.targets, Targets::Real(vec![9.0, 8.0]));
}

#[test]
fn images_find_their_labels() {
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("train-images-idx3-ubyte.gz");
    std::fs::write(&images, crate::common::gzip(&idx(8, &[2, 1, 2], &[0, 255, 3, 4]))).unwrap();
    std::fs::write(dir.path().join("train-labels-idx1-ubyte"), idx(8, &[2], &[7, 1])).unwrap();
    let l = load(&images, &plain()).unwrap();
    assert_eq!((rows(&l), l.format), (vec![vec![0.0, 255.0], vec![3.0, 4.0]], Format::Idx));
    assert_eq!(l.data.targets, Targets::Real(vec![7.0, 1.0]));
    let other = dir.path().join("other.npy");
    std::fs::write(&other, npy_f64(&[2], &[1.5, 2.5])).unwrap();
    let l = load(&images, &ReadOptions { target_file: Some(other), ..plain() }).unwrap();
    assert_eq!(l.data.targets, Targets::Real(vec![1.5, 2.5]));
    let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let l = read_bytes(&idx(0x0d, &[1, 2], &floats), "x", &ReadOptions { no_target: true, ..plain() }).unwrap();
    assert_eq!(rows(&l), [[1.5, -2.0]]);
}

#[test]
fn a_schema_that_contradicts_itself_is_refused() {
    let mut schema = Schema::plain(3, false);
    schema.columns = Some(Vec::new());
    let options = ReadOptions { schema: Some(&schema), ..plain() };
    assert!(read_bytes(b"1,2,3\n", "t.csv", &options).unwrap_err().to_string().contains("schema"));
}

#[test]
fn a_model_on_centres_is_read_from_its_arrays() {
    use margrave_core::kernel::Kernel;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.npz");
    let text: Vec<u8> = "square".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
    let loss = npy("<U6", "", &text);
    let centres = npy_f64(&[2, 1], &[0.5, -1.0]);
    let (coefficients, number) = (npy_f64(&[2, 1], &[1.5, -2.0]), |v: f64| npy_f64(&[], &[v]));
    let load = |arrays: &[(&str, &[u8])]| {
        std::fs::write(&path, npz(arrays)).unwrap();
        margrave_io::model::load_centres(&path)
    };
    let (gamma, bias, c) = (number(2.0), number(0.25), npy_f64(&[1], &[3.0]));
    let all: [(&str, &[u8]); 6] = [
        ("centers", &centres),
        ("coefficients", &coefficients),
        ("gamma", &gamma),
        ("bias", &bias),
        ("C", &c),
        ("loss", &loss),
    ];
    let model = load(&all).unwrap().unwrap();
    assert_eq!((model.machine.kernel, model.machine.bias, model.cost), (Kernel::rbf(2.0), Some(0.25), Some(3.0)));
    assert_eq!((model.machine.coefficients.as_slice(), model.loss.name()), (&[1.5, -2.0][..], "square"));
    assert_eq!((model.machine.centres.len(), model.machine.centres.dims()), (2, 1));
    let few = load(&all[..3]).unwrap().unwrap();
    assert_eq!((few.machine.bias, few.cost, few.loss.name()), (None, None, "hinge"));
    let one = npy_f64(&[1], &[1.0]);
    let negative = number(-1.0);
    let said = |arrays: &[(&str, &[u8])]| load(arrays).unwrap_err().to_string();
    assert!(said(&all[1..]).contains("centres"));
    assert!(said(&all[..1]).contains("coefficients"));
    assert!(said(&all[..2]).contains("gamma"));
    assert!(said(&[all[0], ("coefficients", &one), all[2]]).contains("2 centres"));
    assert!(said(&[all[0], all[1], all[2], ("C", &negative)]).contains("C must be positive"));
    assert!(said(&[all[0], all[1], all[2], ("kernel", &loss)]).contains("square"));
    std::fs::write(&path, b"1 1:2\n").unwrap();
    assert!(margrave_io::model::load_centres(&path).unwrap().is_none());
}
