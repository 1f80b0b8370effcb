//! The ways in which the CPU backend computes entries: points on a grid, points with heavy tails, products that use every
//! entry twice. The suite of `gram.rs` does not reach them.

use margrave_core::backend::cpu::{CpuGram, Level};
use margrave_core::control::{Control, Threads};
use margrave_core::data::{Csr, Points};
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_testkit::backend_suite::{DOUBLE, SINGLE};
use margrave_testkit::{naive, points};

fn control() -> Control {
    Control::unlimited(Threads::new(2))
}

/// Uniform whole numbers from 0 to `most`, `n × d`.
fn numbers(n: usize, d: usize, most: u64, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % (most + 1)) as f64
    };
    (0..n * d).map(|_| next()).collect()
}

fn sparse(n: usize, d: usize, values: &[f64]) -> Points {
    let (mut starts, mut columns, mut stored) = (vec![0], Vec::new(), Vec::new());
    for row in values.chunks(d) {
        for (k, x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            columns.push(k as u32);
            stored.push(*x);
        }
        starts.push(columns.len());
    }
    assert_eq!(starts.len(), n + 1);
    Csr::new(d, starts, columns, stored).unwrap().into()
}

/// Blocks and products of `gram` agree with entries computed one by one, within the errors that are guaranteed.
fn check(gram: &dyn Gram, exact: &[f64], what: &str) {
    let (n, m) = gram.shape();
    let control = control();
    let some: Vec<u32> = (0..m as u32).filter(|j| j % 7 != 2).rev().collect();
    for rows in [Pick::All, Pick::Range(3, 4), Pick::Range(1, 6), Pick::List(&[5, 0, 5])] {
        for cols in [Pick::All, Pick::Range(5, m - 1), Pick::List(&some)] {
            let (height, width) = (rows.len(n), cols.len(m));
            let (mut single, mut double) = (vec![0f32; height * width], vec![0.0; height * width]);
            gram.block_f32(rows, cols, &mut single, &control).unwrap();
            gram.block_f64(rows, cols, &mut double, &control).unwrap();
            for i in 0..height {
                for j in 0..width {
                    let want = exact[rows.get(i) * m + cols.get(j)];
                    let off = (f64::from(single[i * width + j]) - want).abs();
                    assert!(off <= SINGLE, "{what} single {i} {j}: {off} of {want}");
                    assert!((double[i * width + j] - want).abs() <= DOUBLE, "{what} double {i} {j}");
                }
            }
        }
    }
    for every in [1, 3] {
        for k in [1, 2] {
            let mut v = points::normal(m, k, 1.0, 0.0, 9);
            v.chunks_mut(k).enumerate().filter(|(j, _)| j % every != 0).for_each(|(_, line)| line.fill(0.0));
            let size: f64 = v.iter().map(|x| x.abs()).sum();
            for rows in [Pick::All, Pick::Range(2, 13)] {
                let mut out = vec![f64::NAN; rows.len(n) * k];
                let want = naive::product(exact, m, &v, k);
                for (precision, error) in [(Precision::Single, SINGLE), (Precision::Double, DOUBLE)] {
                    gram.apply(precision, rows, &v, k, &mut out, &control).unwrap();
                    for i in 0..rows.len(n) {
                        for c in 0..k {
                            let off = (out[i * k + c] - want[rows.get(i) * k + c]).abs();
                            assert!(off <= error * size, "{what} product, row {i}: {off}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn points_on_a_grid_have_accurate_entries() {
    // Numbers of every packing, with the largest and the smallest that are packed alike, and rows of several parts.
    let grids = [(1, 0.0, 1.0), (255, 0.0, 1.0 / 255.0), (10, -3.0, 0.1), (63, 0.0, 1.0), (64, 0.0, 1.0)];
    for (d, zeros) in [(8, 0), (37, 0), (130, 3), (431, 9)] {
        for (most, low, step) in grids {
            let place = |k: &f64| low + step * k;
            let (mut rows, mut cols) = (numbers(45, d, most, 1), numbers(70, d, most, 2));
            for (values, seed) in [(&mut rows, 11), (&mut cols, 12)] {
                let kept = numbers(values.len() / d, d, zeros, seed);
                values.iter_mut().zip(kept).for_each(|(k, kept)| *k *= f64::from(u8::from(kept == 0.0)));
                // The largest sums there are.
                values[..2 * d].fill(most as f64);
                values[2 * d..3 * d].fill(0.0);
            }
            let gamma = 1.0 / (d as f64 * (step * most as f64).powi(2) / 6.0);
            for kernel in [Kernel::rbf(gamma), Kernel::Matern32 { gamma }, Kernel::Matern52 { gamma }] {
                let dense = |v: &[f64], n| Points::dense_f64(n, d, v.iter().map(place).collect::<Vec<_>>()).unwrap();
                let (x, y) = (dense(&rows, 45), dense(&cols, 70));
                let exact = naive::gram(&kernel, &x, &y);
                for level in Level::available() {
                    let gram = CpuGram::new(kernel, &x, &y).unwrap().with_level(level);
                    check(&gram, &exact, &format!("{kernel} d={d} {most} {level:?}"));
                }
                if low == 0.0 {
                    let spread = |v: &[f64], n| sparse(n, d, &v.iter().map(place).collect::<Vec<_>>());
                    let (x, y) = (spread(&rows, 45), spread(&cols, 70));
                    check(&CpuGram::new(kernel, &x, &y).unwrap(), &exact, &format!("sparse {kernel} d={d} {most}"));
                }
                let square = naive::gram(&kernel, &y, &y);
                let gram = CpuGram::square(kernel, &y).unwrap();
                check(&gram, &square, &format!("square {kernel} d={d} {most}"));
                let single: Vec<f32> = y_as_single(&y);
                let y = Points::dense_f32(70, d, single).unwrap();
                let square = naive::gram(&kernel, &y, &y);
                check(&CpuGram::square(kernel, &y).unwrap(), &square, &format!("f32 {kernel} d={d} {most}"));
            }
        }
    }
}

fn y_as_single(points: &Points) -> Vec<f32> {
    (0..points.len()).flat_map(|i| naive::row(points, i)).map(|x| x as f32).collect()
}

#[test]
fn entries_on_a_grid_are_symmetric_and_exactly_one_on_the_diagonal() {
    let (n, d) = (90, 40);
    let x = Points::dense_f64(n, d, numbers(n, d, 255, 3).iter().map(|k| k / 255.0).collect::<Vec<_>>()).unwrap();
    let gram = CpuGram::square(Kernel::rbf(0.05), &x).unwrap();
    let mut k = vec![0.0; n * n];
    gram.block_f64(Pick::All, Pick::All, &mut k, &control()).unwrap();
    for i in 0..n {
        assert_eq!(k[i * n + i], 1.0);
        (0..i).for_each(|j| assert_eq!(k[i * n + j].to_bits(), k[j * n + i].to_bits()));
    }
}

/// A few points are very far from the others, and some of them close together: their distances need care, nobody else's.
#[test]
fn heavy_tails_do_not_spoil_entries() {
    for d in [3, 30, 333] {
        let n = 300;
        let mut values = points::normal(n, d, 1.0, 0.0, 4);
        // Rare enough for the others to be computed as if they were not there.
        for (from, far) in [(10, 40.0), (110, 40.0), (210, 1e3)] {
            let (before, copy) = values.split_at_mut((from + 60) * d);
            let original = &mut before[from * d..(from + 1) * d];
            original.iter_mut().for_each(|x| *x *= far);
            copy[..d].copy_from_slice(original);
            copy[..d].iter_mut().for_each(|x| *x += 0.3);
        }
        let x = Points::dense_f64(n, d, values).unwrap();
        for kernel in [Kernel::rbf(0.3), Kernel::Matern32 { gamma: 0.3 }, Kernel::Matern52 { gamma: 0.3 }] {
            let exact = naive::gram(&kernel, &x, &x);
            for level in Level::available() {
                let gram = CpuGram::square(kernel, &x).unwrap().with_level(level);
                check(&gram, &exact, &format!("{kernel} d={d} {level:?}"));
                let mut k = vec![0f32; n * n];
                gram.block_f32(Pick::All, Pick::All, &mut k, &control()).unwrap();
                (0..n * n).for_each(|at| assert_eq!(k[at].to_bits(), k[at % n * n + at / n].to_bits()));
            }
        }
    }
}

/// Products large enough for every entry to be used twice: the same as one row at a time, on any number of threads, and
/// with half as many entries.
#[test]
fn products_that_use_entries_twice_are_those_of_the_rows() {
    let (n, d) = (2700, 9);
    let plain = points::dense(n, d, 5);
    let grid = Points::dense_f64(n, d, numbers(n, d, 3, 6)).unwrap();
    for points in [&plain, &grid] {
        for level in Level::available() {
            for columns in [2100, n] {
                let mut v = points::normal(n, 1, 1.0, 0.0, 7);
                let idle = n - columns;
                (0..idle).for_each(|j| v[n * j / idle.max(1)] = 0.0);
                let size: f64 = v.iter().map(|x| x.abs()).sum();
                let mut bits: Vec<u64> = Vec::new();
                for threads in [1, 3] {
                    let gram = CpuGram::square(Kernel::rbf(0.1), points).unwrap().with_level(level);
                    let control = Control::unlimited(Threads::new(threads));
                    let mut now = Vec::new();
                    for (precision, error) in [(Precision::Single, SINGLE), (Precision::Double, 1e-14)] {
                        let mut out = vec![f64::NAN; n];
                        let before = gram.entries();
                        gram.apply(precision, Pick::All, &v, 1, &mut out, &control).unwrap();
                        assert_eq!(gram.entries() - before, (n * columns - columns * (columns - 1) / 2) as u64);
                        now.extend(out.iter().map(|x| x.to_bits()));
                        for rows in [Pick::Range(0, 40), Pick::Range(1301, 1309), Pick::Range(n - 30, n)] {
                            let mut part = vec![f64::NAN; rows.len(n)];
                            gram.apply(precision, rows, &v, 1, &mut part, &control).unwrap();
                            for (i, part) in part.iter().enumerate() {
                                let off = (part - out[rows.get(i)]).abs();
                                assert!(off <= error * size, "{level:?} row {}: {off}", rows.get(i));
                            }
                        }
                    }
                    assert!(bits.is_empty() || bits == now, "{level:?} on {threads} threads");
                    bits = now;
                }
            }
        }
    }
}

/// A solver keeps K over some rows and computes products with others: one matrix only if the entries have the same bits.
#[test]
fn a_selection_and_its_rough_form_have_the_same_bits() {
    let (n, d) = (200, 12);
    let rows: Vec<u32> = (0..n as u32).filter(|i| i % 3 != 1).rev().collect();
    let grid = Points::dense_f64(n, d, numbers(n, d, 9, 8)).unwrap();
    let shifted = Points::dense_f64(n, d, points::normal(n, d, 1.0, 5.0, 3)).unwrap();
    for (points, gamma) in [(&grid, 0.01), (&shifted, 0.02), (&shifted, 2.0)] {
        let gram = CpuGram::square(Kernel::rbf(gamma), points).unwrap();
        let rough = gram.rough();
        for gram in [Some(&gram as &dyn Gram), rough.as_deref()].into_iter().flatten() {
            let part = gram.select(&rows).unwrap();
            let (mut own, mut all) = (vec![0f32; rows.len().pow(2)], vec![0f32; rows.len().pow(2)]);
            part.block_f32(Pick::All, Pick::All, &mut own, &control()).unwrap();
            gram.block_f32(Pick::List(&rows), Pick::List(&rows), &mut all, &control()).unwrap();
            assert!(own.iter().zip(&all).all(|(a, b)| a.to_bits() == b.to_bits()), "γ = {gamma}");
        }
    }
}

/// Points as word counts are: few features that many points have, many that hardly any has, a point without any, a point with
/// many, a zero that is stored.
fn words(n: usize, d: usize) -> Points {
    let pick = numbers(n, 40, 9999, 12);
    let (mut starts, mut columns, mut stored) = (vec![0], Vec::new(), Vec::new());
    for (i, row) in pick.chunks(40).enumerate() {
        let length = if i % 50 == 7 { 0 } else { i % 39 + 1 };
        // The cube of a uniform number prefers the first features.
        let feature = |x: &f64| ((x / 1e4).powi(3) * d as f64) as u32;
        let mut own: Vec<u32> = row[..length].iter().map(feature).collect();
        if i % 97 == 3 {
            own.extend((0..d as u32).step_by(d / 90));
        }
        own.sort_unstable();
        own.dedup();
        for k in own {
            columns.push(k);
            stored.push(if i % 31 == 5 && k % 5 == 0 {
                0.0
            } else {
                (0.1 + f64::from(k) * 0.618 + i as f64 * 0.414).fract()
            });
        }
        starts.push(columns.len());
    }
    Csr::new(d, starts, columns, stored).unwrap().into()
}

/// Rows of sparse points are prepared in blocks that depend on the request: entries do not, and are symmetric.
#[test]
fn entries_of_sparse_points_do_not_depend_on_their_blocks() {
    for (n, d) in [(420, 900), (150, 20_000)] {
        let x = words(n, d);
        let kernels = [
            Kernel::rbf(0.05),
            Kernel::Laplacian { gamma: 0.03 },
            Kernel::Chi2 { gamma: 0.05 },
            Kernel::Poly { gamma: 0.01, coef0: 0.5, degree: 2 },
        ];
        for kernel in kernels {
            let exact = naive::gram(&kernel, &x, &x);
            for level in Level::available() {
                let gram = CpuGram::square(kernel, &x).unwrap().with_level(level);
                let what = format!("{kernel} d={d} {level:?}");
                if kernel.unit_diagonal() {
                    check(&gram, &exact, &what);
                }
                let mut k = vec![0f32; n * n];
                gram.block_f32(Pick::All, Pick::All, &mut k, &control()).unwrap();
                for i in 0..n {
                    (0..i).for_each(|j| assert_eq!(k[i * n + j].to_bits(), k[j * n + i].to_bits(), "{what} {i} {j}"));
                }
                for height in [1, 2, 17, 130] {
                    for first in [0, 11, n - height] {
                        let mut part = vec![0f32; height * n];
                        let rows = Pick::Range(first, first + height);
                        gram.block_f32(rows, Pick::All, &mut part, &Control::unlimited(Threads::new(3))).unwrap();
                        let same = part.iter().zip(&k[first * n..]).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same, "{what}: {height} rows from {first}");
                    }
                }
            }
        }
    }
}
