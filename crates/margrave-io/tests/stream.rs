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
    let streamed = stream(&path, folder.path(), &options).unwrap();
    let whole = load(&path, &options).unwrap();
    assert_eq!(streamed.targets, whole.data.targets);
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
