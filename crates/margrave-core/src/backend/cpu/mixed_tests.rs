use super::*;
use crate::backend::cpu::CpuGram;
use crate::control::Threads;
use crate::gram::{Gram, Precision};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// `n` rows of measurements, indicators, counts that start at other values, a constant and one odd step.
fn table(n: usize, measured: usize, indicators: usize, seed: u64, spread: f64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut values = Vec::new();
    for _ in 0..n {
        values.extend((0..measured).map(|_| spread * (rng.random::<f64>() - 0.3)));
        let one = (rng.random::<f64>() * indicators as f64) as usize;
        values.extend((0..indicators).map(|k| if k == one { 1.0 } else { 0.0 }));
        values.push(-7.0 + f64::from((rng.random::<f64>() * 9.0) as u32));
        values.push(3.25);
        values.push(if rng.random::<f64>() < 0.4 { 0.0 } else { 0.1 });
    }
    values
}

fn points(n: usize, values: Vec<f64>, kind: usize) -> Points {
    let d = values.len() / n;
    match kind {
        0 => Points::dense_f64(n, d, values).unwrap(),
        1 => Points::dense_f32(n, d, values.iter().map(|v| *v as f32).collect::<Vec<_>>()).unwrap(),
        _ => {
            let (mut starts, mut columns, mut stored) = (vec![0], Vec::new(), Vec::new());
            for row in values.chunks(d) {
                for (k, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
                    columns.push(k as u32);
                    stored.push(*v);
                }
                starts.push(columns.len());
            }
            crate::data::Csr::new(d, starts, columns, stored).unwrap().into()
        }
    }
}

/// The kernel from its definition.
fn naive(kernel: Kernel, rows: &Points, i: usize, cols: &Points, j: usize) -> f64 {
    let (mut x, mut z) = (vec![0.0; rows.dims()], vec![0.0; cols.dims()]);
    rows.copy_row(i, &mut x);
    cols.copy_row(j, &mut z);
    kernel.of_statistic(x.iter().zip(&z).map(|(a, b)| (a - b).powi(2)).sum())
}

/// The levels at which features are summed as whole numbers.
fn levels() -> impl Iterator<Item = Level> {
    Level::available().into_iter().filter(|level| super::super::bytes::supported(*level))
}

fn is_mixed(gram: &CpuGram) -> bool {
    gram.mixed.is_some()
}

#[test]
fn entries_and_products_are_those_of_the_definition() {
    let control = Control::unlimited(Threads::new(2));
    for (case, (n, measured, indicators)) in [(300, 3, 40), (517, 11, 70), (261, 170, 300)].into_iter().enumerate() {
        for (kind, spread) in [(0, 1.0), (1, 3.0), (2, 1.0), (0, 1e4)] {
            let values = table(n, measured, indicators, case as u64, spread);
            let x = points(n, values, kind);
            let z = points(290, table(290, measured, indicators, 77, spread), kind);
            for kernel in [Kernel::rbf(0.3), Kernel::Matern52 { gamma: 0.2 }, Kernel::rbf(1e-3)] {
                for (square, level) in [true, false].into_iter().flat_map(|square| levels().map(move |l| (square, l))) {
                    let cols = if square { &x } else { &z };
                    let gram = if square { CpuGram::square(kernel, &x) } else { CpuGram::new(kernel, &x, &z) };
                    let gram = gram.unwrap().with_level(level);
                    assert!(is_mixed(&gram), "case {case}, kind {kind}");
                    let m = cols.len();
                    let (mut single, mut double) = (vec![0f32; n * m], vec![0f64; n * m]);
                    gram.block_f32(Pick::All, Pick::All, &mut single, &control).unwrap();
                    gram.block_f64(Pick::All, Pick::All, &mut double, &control).unwrap();
                    let v: Vec<f64> = (0..m).map(|j| ((j * 7919) % 13) as f64 - 6.0).collect();
                    let (mut rough, mut fine) = (vec![0.0; n], vec![0.0; n]);
                    gram.apply(Precision::Single, Pick::All, &v, 1, &mut rough, &control).unwrap();
                    gram.apply(Precision::Double, Pick::All, &v, 1, &mut fine, &control).unwrap();
                    for i in 0..n {
                        let mut sum = 0.0;
                        for j in 0..m {
                            let k = naive(kernel, &x, i, cols, j);
                            let (s, d) = (f64::from(single[i * m + j]), double[i * m + j]);
                            assert!((s - k).abs() <= 2e-6, "{kernel} case {case} kind {kind}: {s} {k}");
                            assert!((d - k).abs() <= 1e-13, "{kernel} case {case} kind {kind}: {d} {k}");
                            if square {
                                assert!(d == double[j * m + i] && single[i * m + j] == single[j * m + i]);
                            }
                            sum += k * v[j];
                        }
                        assert!((rough[i] - sum).abs() <= 2e-6 * 3.3 * m as f64);
                        assert!((fine[i] - sum).abs() <= 1e-13 * 3.3 * m as f64);
                    }
                }
            }
        }
    }
}

#[test]
fn parts_have_the_bits_of_the_whole() {
    levels().for_each(parts_at);
}

fn parts_at(level: Level) {
    let n = 2300;
    let x = points(n, table(n, 5, 60, 3, 1.0), 0);
    let gram = CpuGram::square(Kernel::rbf(0.2), &x).unwrap().with_level(level);
    assert!(is_mixed(&gram));
    let v: Vec<f64> = (0..n).map(|j| ((j * 31) % 17) as f64 - 8.0).collect();
    let mut outputs = Vec::new();
    for threads in [1, 3] {
        let control = Control::unlimited(Threads::new(threads));
        let mut out = vec![0.0; n];
        gram.apply(Precision::Double, Pick::All, &v, 1, &mut out, &control).unwrap();
        outputs.push(out);
    }
    assert!(outputs[0] == outputs[1]);
    let control = Control::unlimited(Threads::new(2));
    let list: Vec<u32> = (0..n as u32).filter(|i| i % 3 == 1).collect();
    let some = gram.select(&list).unwrap();
    let k = list.len();
    let (mut whole, mut part) = (vec![0f32; k * k], vec![0f32; k * k]);
    gram.block_f32(Pick::List(&list), Pick::List(&list), &mut whole, &control).unwrap();
    some.block_f32(Pick::All, Pick::All, &mut part, &control).unwrap();
    assert!(whole == part);
    // Few columns, for which panels are packed anew, against all of them.
    let mut sparse = vec![0.0; n];
    list.iter().for_each(|&j| sparse[j as usize] = v[j as usize]);
    let mut some = vec![0.0; n];
    gram.apply(Precision::Double, Pick::All, &sparse, 1, &mut some, &control).unwrap();
    for i in (0..n).step_by(97) {
        let exact: f64 = list.iter().map(|&j| naive(Kernel::rbf(0.2), &x, i, &x, j as usize) * v[j as usize]).sum();
        assert!((some[i] - exact).abs() < 1e-9);
    }
}

#[test]
fn tables_without_a_common_step_are_left_alone() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let n = 400;
    // Measurements only, indicators that were standardised, and too few rows.
    let measured: Vec<f64> = (0..n * 20).map(|_| rng.random::<f64>()).collect();
    assert!(Layout::find(&Kernel::rbf(1.0), &[&points(n, measured, 0)], Level::Avx2).is_none());
    let scaled: Vec<f64> =
        (0..n * 20).map(|at| if rng.random::<f64>() < 0.3 { 1.0 + (at % 20) as f64 / 7.0 } else { 0.0 }).collect();
    assert!(Layout::find(&Kernel::rbf(1.0), &[&points(n, scaled, 0)], Level::Avx2).is_none());
    assert!(Layout::find(&Kernel::rbf(1.0), &[&points(50, table(50, 3, 40, 1, 1.0), 0)], Level::Avx2).is_none());
    assert!(Layout::find(&Kernel::Linear, &[&points(n, table(n, 3, 40, 1, 1.0), 0)], Level::Avx2).is_none());
    // A row on the other side that is off the grid: that feature is not summed as bytes.
    let x = points(n, table(n, 3, 40, 1, 1.0), 0);
    let mut other = table(n, 3, 40, 2, 1.0);
    let d = other.len() / n;
    other[5] = 0.123_456;
    let both = Layout::find(&Kernel::rbf(1.0), &[&x, &points(n, other, 0)], Level::Avx2).unwrap();
    assert!(both.others.contains(&5) && both.others.len() + both.on_grid.len() == d);
}
