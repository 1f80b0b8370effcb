//! Rows read back in blocks give the products of the same rows in memory.

use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::gram::{Matrix, Pick};
use margrave_core::{Control, Threads};
use margrave_io::{ReadOptions, load, stream, streams};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn streamed_products_are_those_of_rows_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.svm");
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    // Over two million stored values: several blocks.
    let (n, d) = (30_000, 90);
    let mut text = String::new();
    for i in 0..n {
        text += if i % 3 == 0 { "1" } else { "-1" };
        for j in 0..d {
            if rng.random_range(0..10) > 1 {
                text += &format!(" {}:{:.3}", j + 1, rng.random_range(-1.0..1.0));
            }
        }
        text += "\n";
    }
    std::fs::write(&path, text).unwrap();
    let options = ReadOptions::default();
    assert!(streams(&path, &options).unwrap().is_some_and(|size| size > 1_000_000));
    assert!(streams(folder.path().join("none"), &options).unwrap().is_none());
    let streamed = stream(&path, folder.path(), &options).unwrap().unwrap();
    let whole = load(&path, &options).unwrap();
    assert_eq!((&streamed.rest.data.targets, &streamed.rest.schema), (&whole.data.targets, &whole.schema));
    let (a, b) = (&streamed.matrix, RowMatrix::new(&whole.data.points));
    assert_eq!((a.rows(), a.dims()), (n, d));
    assert!(a.points().is_none());
    let control = Control::unlimited(Threads::new(2));
    let w: Vec<f64> = (0..d).map(|_| rng.random_range(-1.0..1.0)).collect();
    // Not ascending, and from all blocks.
    let list: Vec<u32> = (0..n as u32).rev().step_by(7).collect();
    // Sums of at most n·d terms of size 1.
    let close = |x: &[f64], y: &[f64]| x.iter().zip(y).all(|(x, y)| (x - y).abs() <= 1e-15 * (n * d) as f64);
    for rows in [Pick::All, Pick::Range(100, 20_500), Pick::List(&list)] {
        let count = rows.len(n);
        let c: Vec<f64> = (0..count).map(|k| (k % 5) as f64 * 0.1).collect();
        let (mut x, mut y) = (vec![0.0; count], vec![0.0; count]);
        a.dots(rows, &w, &mut x, &control).unwrap();
        b.dots(rows, &w, &mut y, &control).unwrap();
        assert!(close(&x, &y));
        let (mut x, mut y) = (vec![0.0; d], vec![0.0; d]);
        a.combine(rows, &c, &mut x, &control).unwrap();
        b.combine(rows, &c, &mut y, &control).unwrap();
        assert!(close(&x, &y));
        let (mut x2, mut y2) = (vec![0.0; d * d], vec![0.0; d * d]);
        a.moments(rows, &c, &[], &mut x, &mut x2, &control).unwrap();
        b.moments(rows, &c, &[], &mut y, &mut y2, &control).unwrap();
        assert!(close(&x, &y) && close(&x2, &y2));
        a.squares(rows, &c, &mut x, &control).unwrap();
        b.squares(rows, &c, &mut y, &control).unwrap();
        assert!(close(&x, &y));
    }
    assert!(a.trouble().is_none());
    // The file has no name: only the data is left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// An NPY file in row-major order.
fn write_npy(path: &std::path::Path, descr: &str, n: usize, d: usize, values: impl Iterator<Item = u8>) {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({n}, {d}), }}");
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend(values);
    std::fs::write(path, bytes).unwrap();
}

/// Rows of tables, which are dense, come back as they were, beside their targets, weights and names.
#[test]
fn tables_are_streamed_as_they_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let (n, d) = (150_000, 4);
    let rows: Vec<Vec<f64>> = (0..n).map(|_| (0..d).map(|_| rng.random_range(-1.0..1.0)).collect()).collect();
    let csv = folder.path().join("d.csv");
    let mut text = "a,w,b,y\n".to_owned();
    rows.iter().for_each(|r| text += &format!("{:.4},{:.2},{},{}\n", r[0], r[1] + 1.0, r[2], u8::from(r[3] > 0.0)));
    std::fs::write(&csv, text).unwrap();
    let npy = folder.path().join("d.npy");
    write_npy(&npy, "<f4", n, d, rows.iter().flatten().flat_map(|v| (*v as f32).to_le_bytes()));
    let weighted = ReadOptions { weights: Some("w".parse().unwrap()), ..ReadOptions::default() };
    for (path, options) in [(&csv, &weighted), (&npy, &ReadOptions::default())] {
        assert!(streams(path, options).unwrap().is_some());
        let streamed = stream(path, folder.path(), options).unwrap().unwrap();
        let whole = load(path, options).unwrap();
        let (rest, matrix) = (&streamed.rest, &streamed.matrix);
        assert_eq!((&rest.data.targets, &rest.data.weights), (&whole.data.targets, &whole.data.weights));
        assert_eq!((&rest.data.names, &rest.schema), (&whole.data.names, &whole.schema));
        assert_eq!((matrix.rows(), matrix.dims()), (n, whole.data.points.dims()));
        assert!(matrix.blocks() > 1);
        let control = Control::unlimited(Threads::new(2));
        let order: Vec<u32> = (0..matrix.blocks() as u32).collect();
        let (mut a, mut b) = (vec![0.0; matrix.dims()], vec![0.0; matrix.dims()]);
        let compare = &mut |first: usize, points: &margrave_core::data::Points| {
            for i in 0..points.len() {
                points.copy_row(i, &mut a);
                whole.data.points.copy_row(first + i, &mut b);
                assert_eq!(a, b);
            }
            Ok(())
        };
        matrix.each_block(&order, &control, compare).unwrap();
    }
}

/// Texts and missing values need all rows, and a value that is not a number is reported with its place.
#[test]
fn what_cannot_be_streamed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.csv");
    let options = ReadOptions::default();
    std::fs::write(&path, "a,b,y\n1,red,0\n2,blue,1\n").unwrap();
    assert!(stream(&path, folder.path(), &options).unwrap().is_none());
    // The text comes only after the rows by which columns are judged.
    let mut text = "a,b,y\n".to_owned();
    (0..50_000).for_each(|i| text += &format!("{i},{},{}\n", i % 7, i % 2));
    std::fs::write(&path, format!("{text}1,x,0\n2,x,1\n{}", text.split_once('\n').unwrap().1.replace(",0\n", ",z\n")))
        .unwrap();
    let kept = stream(&path, folder.path(), &options);
    assert!(matches!(kept, Ok(None) | Err(_)), "a column of texts is not streamed");
    std::fs::write(&path, format!("{text}1,,0\n")).unwrap();
    let error = stream(&path, folder.path(), &options).unwrap_err().to_string();
    assert!(error.contains("50002") && error.contains("missing("), "{error}");
    let filled = ReadOptions { missing: margrave_io::Missing::Mean, ..ReadOptions::default() };
    assert!(stream(&path, folder.path(), &filled).unwrap().is_none());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Floating-point numbers of an NPY file are read from that file, without the columns of targets and weights; numbers of other
/// types are copied.
#[test]
fn rows_of_npy_files_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (n, d) = (250_000, 7);
    // The first rows are exact in single precision, so that blocks differ in their precision.
    let value = |k: usize, v: f64| if k < 160_000 * d { (v * 8.0).round() } else { v };
    let values: Vec<f64> = (0..n * d).map(|k| value(k, rng.random_range(-9.0..9.0))).collect();
    let path = folder.path().join("d.npy");
    let options = ReadOptions {
        target: Some("2".parse().unwrap()),
        weights: Some("4".parse().unwrap()),
        drop: Some("5".parse().unwrap()),
        ..ReadOptions::default()
    };
    let weights = |k: usize, v: f64| if k % d == 4 { v.abs() } else { v };
    let cells = || values.iter().enumerate().map(|(k, v)| weights(k, *v));
    for (descr, in_place) in [("<f4", true), ("<f8", true), (">f8", false), ("<i4", false)] {
        match descr {
            "<f4" => write_npy(&path, descr, n, d, cells().flat_map(|v| (v as f32).to_le_bytes())),
            "<f8" => write_npy(&path, descr, n, d, cells().flat_map(f64::to_le_bytes)),
            ">f8" => write_npy(&path, descr, n, d, cells().flat_map(f64::to_be_bytes)),
            _ => write_npy(&path, descr, n, d, cells().flat_map(|v| (v as i32).to_le_bytes())),
        }
        let whole = load(&path, &options).unwrap();
        let streamed = stream(&path, folder.path(), &options).unwrap().unwrap();
        let (rest, matrix) = (&streamed.rest, &streamed.matrix);
        assert_eq!(matrix.in_place(), in_place, "{descr}");
        assert_eq!((&rest.data.targets, &rest.data.weights), (&whole.data.targets, &whole.data.weights));
        assert_eq!((&rest.schema, matrix.rows(), matrix.dims()), (&whole.schema, n, 4));
        assert!(matrix.blocks() > 1 && matrix.block_start(1) < 160_000);
        let control = Control::unlimited(Threads::new(2));
        let (mut a, mut b) = (vec![0.0; 4], vec![0.0; 4]);
        let compare = &mut |first: usize, points: &margrave_core::data::Points| {
            for i in 0..points.len() {
                points.copy_row(i, &mut a);
                whole.data.points.copy_row(first + i, &mut b);
                assert_eq!(a, b, "{descr}, row {}", first + i);
            }
            Ok(())
        };
        let order: Vec<u32> = (0..matrix.blocks() as u32).rev().collect();
        matrix.each_block(&order, &control, compare).unwrap();
    }
}

/// Of many columns few may be features: these are copied, rather than read with all others in every pass.
#[test]
fn few_features_of_a_wide_npy_file_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (n, d) = (1000, 8);
    let path = folder.path().join("d.npy");
    write_npy(&path, "<f4", n, d, (0..n * d).flat_map(|k| ((k % 13) as f32).to_le_bytes()));
    for (only, in_place) in [("0,1,2", false), ("0,1,2,3", true)] {
        let options = ReadOptions { only: Some(only.parse().unwrap()), ..ReadOptions::default() };
        let streamed = stream(&path, folder.path(), &options).unwrap().unwrap();
        assert_eq!(streamed.matrix.in_place(), in_place);
    }
}

/// A file that is changed or cut off while its rows are in use ends the training with an error, not with other numbers.
#[test]
fn a_file_that_changes_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (n, d) = (400_000, 4);
    let path = folder.path().join("d.npy");
    let values = |shift: f32| (0..n * d).flat_map(move |k| ((k % 17) as f32 + shift).to_le_bytes());
    let control = Control::unlimited(Threads::new(2));
    for cut in [true, false] {
        write_npy(&path, "<f4", n, d, values(0.0));
        let streamed = stream(&path, folder.path(), &ReadOptions::default()).unwrap().unwrap();
        let mut out = vec![0.0; n];
        assert!(streamed.matrix.in_place());
        streamed.matrix.dots(Pick::All, &[1.0; 3], &mut out, &control).unwrap();
        assert!(streamed.matrix.trouble().is_none());
        if cut {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
        } else {
            // Times of files may be coarse.
            std::thread::sleep(std::time::Duration::from_millis(50));
            write_npy(&path, "<f4", n, d, values(1.0));
        }
        assert!(streamed.matrix.dots(Pick::All, &[1.0; 3], &mut out, &control).is_err());
        assert!(streamed.matrix.trouble().is_some());
    }
}
