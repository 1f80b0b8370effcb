//! Conformance tests for every [`Gram`] over points, independent of the backend.
//!
//! [`backend_suite!`](crate::backend_suite!) generates a module of tests from a constructor.

use margrave_core::control::{Budget, Control, Interrupt, Threads};
use margrave_core::data::Points;
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::{Kernel, Statistic};

use crate::{naive, points};

/// Creates the Gram of rows and columns; `None`: the columns are the rows.
pub type Make<'a> = &'a dyn Fn(Kernel, &Points, Option<&Points>) -> Box<dyn Gram>;

/// Largest error of an entry in single precision, relative to [`scale`].
pub const SINGLE: f64 = 2e-6;
/// Largest error of an entry in double precision, relative to [`scale`].
pub const DOUBLE: f64 = 1e-13;

/// Every kernel, with a width for which entries of normal points in `d` dimensions are neither all 0 nor all 1.
pub fn kernels(d: usize) -> Vec<Kernel> {
    let gamma = 0.5 / d.max(1) as f64;
    vec![
        Kernel::Linear,
        Kernel::Poly { gamma, coef0: 1.0, degree: 3 },
        Kernel::Poly { gamma, coef0: -0.5, degree: 6 },
        Kernel::Rbf { gamma },
        Kernel::Sigmoid { gamma, coef0: -0.25 },
        Kernel::Laplacian { gamma },
        Kernel::Matern32 { gamma },
        Kernel::Matern52 { gamma },
        Kernel::Chi2 { gamma },
    ]
}

/// The scale of errors: 1 for bounded kernels, otherwise the magnitude of the terms of the entry.
pub fn scale(kernel: &Kernel, x: &[f64], y: &[f64]) -> f64 {
    let norm = |x: &[f64]| naive::statistic(Statistic::Dot, x, x).sqrt();
    match *kernel {
        Kernel::Linear => (norm(x) * norm(y)).max(1.0),
        Kernel::Poly { gamma, coef0, degree } => (gamma * norm(x) * norm(y) + coef0.abs()).max(1.0).powi(degree as i32),
        _ => 1.0,
    }
}

/// Largest error of all entries, relative to [`scale`], in single and in double precision.
pub fn errors(make: Make<'_>, kernel: Kernel, rows: &Points, cols: Option<&Points>) -> (f64, f64) {
    let gram = make(kernel, rows, cols);
    let control = Control::unlimited(Threads::one());
    let right = cols.unwrap_or(rows);
    let (n, m) = (rows.len(), right.len());
    assert_eq!(gram.shape(), (n, m));
    let mut single = vec![f32::NAN; n * m];
    let mut double = vec![f64::NAN; n * m];
    gram.block_f32(Pick::All, Pick::All, &mut single, &control).expect("no limit");
    gram.block_f64(Pick::All, Pick::All, &mut double, &control).expect("no limit");
    let exact = naive::gram(&kernel, rows, right);
    let right: Vec<Vec<f64>> = (0..m).map(|j| naive::row(right, j)).collect();
    let mut worst = (0.0f64, 0.0f64);
    for i in 0..n {
        let x = naive::row(rows, i);
        for j in 0..m {
            let at = i * m + j;
            let scale = scale(&kernel, &x, &right[j]);
            let error = |value: f64| if value.is_nan() { f64::INFINITY } else { (value - exact[at]).abs() / scale };
            worst.0 = worst.0.max(error(f64::from(single[at])));
            worst.1 = worst.1.max(error(double[at]));
        }
    }
    worst
}

/// Entries are within [`SINGLE`] and [`DOUBLE`] of the naive ones, for easy and hard points.
pub fn entries_are_accurate(make: Make<'_>) {
    let check = |what: &str, kernel: Kernel, rows: &Points, cols: Option<&Points>| {
        let (single, double) = errors(make, kernel, rows, cols);
        assert!(single <= SINGLE, "{what}, {kernel}: single precision off by {single:e}");
        assert!(double <= DOUBLE, "{what}, {kernel}: double precision off by {double:e}");
    };
    for (n, d) in [(3, 1), (40, 2), (37, 17), (70, 50), (33, 200), (50, 333), (35, 784)] {
        let signed = points::dense(n, d, d as u64);
        let positive: Vec<f64> = points::normal(n, d, 1.0, 0.0, 7).iter().map(|x| x.abs()).collect();
        let positive = Points::dense_f64(n, d, positive).expect("finite");
        let single: Vec<f32> = points::normal(n, d, 1.0, 0.0, 9).iter().map(|x| x.abs() as f32).collect();
        let single = Points::dense_f32(n, d, single).expect("finite");
        for kernel in kernels(d) {
            let chi = kernel.statistic() == Statistic::ChiSquare;
            if !chi {
                check("normal points", kernel, &signed, None);
                check("normal against positive", kernel, &signed, Some(&positive));
            }
            check("positive points", kernel, &positive, None);
            check("single-precision points", kernel, &single, Some(&positive));
        }
    }
    for d in [2, 30] {
        let n = 60;
        for kernel in kernels(d) {
            if kernel.statistic() == Statistic::ChiSquare {
                continue;
            }
            // A cloud far from the origin, then two clouds far from each other, each with near duplicates.
            // (Powers of a larger shift would not fit single precision.)
            let mut far = points::normal(n, d, 1.0, if kernel.unit_diagonal() { 1e4 } else { 1e3 }, 1);
            check("far points", kernel, &Points::dense_f64(n, d, far.clone()).expect("finite"), None);
            far[n / 2 * d..].iter_mut().for_each(|x| *x -= 3e4);
            for i in 0..10 {
                for k in 0..d {
                    far[(i + 10) * d + k] = far[i * d + k] * (1.0 + 1e-9);
                    far[(i + 40) * d + k] = far[(i + 30) * d + k] + 1e-3;
                }
            }
            if kernel.unit_diagonal() {
                check("two far clouds", kernel, &Points::dense_f64(n, d, far).expect("finite"), None);
            }
        }
    }
}

/// Sparse points give the entries of the same points stored dense.
pub fn sparse_points_are_accurate(make: Make<'_>) {
    for (n, d, density) in [(50, 30, 0.3), (70, 1000, 0.02), (40, 200, 0.05), (40, 5, 0.0), (33, 64, 1.0)] {
        let left = points::sparse(n, d, density, 3);
        let right = points::sparse(n + 9, d, density, 4);
        let dense = points::densified(&right);
        for kernel in kernels(d.min(10)) {
            for cols in [None, Some(&right), Some(&dense)] {
                let (single, double) = errors(make, kernel, &left, cols);
                assert!(single <= SINGLE, "n={n} d={d}, {kernel}: single precision off by {single:e}");
                assert!(double <= DOUBLE, "n={n} d={d}, {kernel}: double precision off by {double:e}");
            }
            let (single, double) = errors(make, kernel, &dense, Some(&left));
            assert!(single <= SINGLE && double <= DOUBLE, "dense against sparse, {kernel}: {single:e} {double:e}");
        }
    }
}

/// K is exactly symmetric and, for kernels with unit diagonal, exactly 1 on the diagonal and for duplicates.
pub fn symmetry_is_exact(make: Make<'_>) {
    for (n, d) in [(45, 3), (67, 50), (40, 321)] {
        let mut values = points::normal(n, d, 3.0, 10.0, 5);
        values.copy_within(0..d, (n - 1) * d);
        let dense = Points::dense_f64(n, d, values.iter().map(|x| x.abs()).collect::<Vec<_>>()).expect("finite");
        let sparse = points::sparse(n, d, 0.2, 8);
        for kernel in kernels(d) {
            for (points, twin) in [(&dense, true), (&sparse, false)] {
                let gram = make(kernel, points, None);
                let control = Control::unlimited(Threads::one());
                let mut single = vec![0f32; n * n];
                let mut double = vec![0f64; n * n];
                gram.block_f32(Pick::All, Pick::All, &mut single, &control).expect("no limit");
                gram.block_f64(Pick::All, Pick::All, &mut double, &control).expect("no limit");
                for i in 0..n {
                    for j in 0..i {
                        assert_eq!(single[i * n + j].to_bits(), single[j * n + i].to_bits(), "{kernel} {i} {j}");
                        assert_eq!(double[i * n + j].to_bits(), double[j * n + i].to_bits(), "{kernel} {i} {j}");
                    }
                    if kernel.unit_diagonal() {
                        assert_eq!((single[i * n + i], double[i * n + i]), (1.0, 1.0), "{kernel} {i}");
                    }
                }
                if kernel.unit_diagonal() && twin {
                    assert_eq!((single[n - 1], double[n - 1]), (1.0, 1.0), "{kernel}: a point and its copy");
                }
            }
        }
    }
}

/// A whole matrix, of which half may be copies, has exactly the entries of its parts.
pub fn halves_are_equal(make: Make<'_>) {
    for (n, d) in [(300, 40), (515, 100), (33, 200)] {
        for points in [points::dense(n, d, 4), points::sparse(n, d, 0.3, 4)] {
            for kernel in [Kernel::rbf(0.01), Kernel::Linear] {
                let gram = make(kernel, &points, None);
                let control = Control::unlimited(Threads::new(2));
                let (mut whole32, mut whole64) = (vec![f32::NAN; n * n], vec![f64::NAN; n * n]);
                gram.block_f32(Pick::All, Pick::All, &mut whole32, &control).expect("no limit");
                gram.block_f64(Pick::All, Pick::All, &mut whole64, &control).expect("no limit");
                let (mut part32, mut part64) = (vec![f32::NAN; n * n], vec![f64::NAN; n * n]);
                gram.block_f32(Pick::Range(0, n), Pick::Range(0, n), &mut part32, &control).expect("no limit");
                gram.block_f64(Pick::Range(0, n), Pick::Range(0, n), &mut part64, &control).expect("no limit");
                assert!(bits32(&whole32) == bits32(&part32), "{kernel}, {n} × {d}");
                assert!(bits64(&whole64) == bits64(&part64), "{kernel}, {n} × {d}");
            }
        }
    }
}

fn bits32(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn bits64(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Any selection of rows and columns gives exactly the entries of the full matrix.
pub fn picks_are_consistent(make: Make<'_>) {
    let (n, m, d) = (45, 301, 13);
    for (rows, cols) in
        [(points::dense(n, d, 1), points::dense(m, d, 2)), (points::sparse(n, d, 0.3, 1), points::sparse(m, d, 0.3, 2))]
    {
        for kernel in [Kernel::rbf(0.05), Kernel::Laplacian { gamma: 0.05 }, Kernel::Linear] {
            let gram = make(kernel, &rows, Some(&cols));
            let control = Control::unlimited(Threads::one());
            let mut all32 = vec![0f32; n * m];
            let mut all64 = vec![0f64; n * m];
            gram.block_f32(Pick::All, Pick::All, &mut all32, &control).expect("no limit");
            gram.block_f64(Pick::All, Pick::All, &mut all64, &control).expect("no limit");
            let row_list: Vec<u32> = vec![44, 0, 7, 7, 13, 14, 15, 16, 17];
            let ascending: Vec<u32> = (0..m as u32).filter(|c| c % 3 != 1).collect();
            let scattered: Vec<u32> = (0..100u32).map(|i| (i * 67 + 5) % m as u32).collect();
            let contiguous: Vec<u32> = (64..160).collect();
            let row_picks =
                [Pick::All, Pick::Range(3, 4), Pick::Range(5, 43), Pick::List(&row_list), Pick::Range(9, 9)];
            let col_picks = [
                Pick::All,
                Pick::Range(0, 64),
                Pick::Range(31, 290),
                Pick::List(&ascending),
                Pick::List(&scattered),
                Pick::List(&contiguous),
                Pick::List(&[]),
            ];
            for rows in row_picks {
                for cols in col_picks {
                    let (height, width) = (rows.len(n), cols.len(m));
                    let mut some32 = vec![f32::NAN; height * width];
                    let mut some64 = vec![f64::NAN; height * width];
                    gram.block_f32(rows, cols, &mut some32, &control).expect("no limit");
                    gram.block_f64(rows, cols, &mut some64, &control).expect("no limit");
                    let at = |i: usize| rows.get(i / width) * m + cols.get(i % width);
                    let want32: Vec<f32> = (0..height * width).map(|i| all32[at(i)]).collect();
                    let want64: Vec<f64> = (0..height * width).map(|i| all64[at(i)]).collect();
                    assert!(bits32(&some32) == bits32(&want32), "{kernel} {rows:?} {cols:?}");
                    assert!(bits64(&some64) == bits64(&want64), "{kernel} {rows:?} {cols:?}");
                }
            }
        }
    }
}

/// Products agree with the entries; zero lines of V do not change the result.
pub fn products_are_those_of_the_entries(make: Make<'_>) {
    let d = 7;
    for (n, m) in [(1, 1), (5, 300), (210, 33), (150, 140)] {
        let rows = points::dense(n, d, 1);
        let cols = points::dense(m, d, 2);
        let sparse_rows = points::sparse(n, d, 0.4, 1);
        let sparse_cols = points::sparse(m, d, 0.4, 2);
        for (rows, cols) in [(&rows, &cols), (&sparse_rows, &sparse_cols)] {
            for kernel in [Kernel::rbf(0.1), Kernel::Poly { gamma: 0.1, coef0: 1.0, degree: 2 }] {
                let gram = make(kernel, rows, Some(cols));
                let square = make(kernel, cols, None);
                let exact = naive::gram(&kernel, rows, cols);
                let exact_square = naive::gram(&kernel, cols, cols);
                let control = Control::unlimited(Threads::one());
                for k in [1, 2, 3, 5, 11] {
                    for keep in [1, 3, 50] {
                        // Every `keep`-th line of V is not zero.
                        let mut v = points::normal(m, k, 1.0, 0.0, 3);
                        for (i, line) in v.chunks_mut(k).enumerate() {
                            if i % keep != 0 {
                                line.fill(0.0);
                            }
                        }
                        for (precision, tolerance) in [(Precision::Single, SINGLE), (Precision::Double, DOUBLE)] {
                            let close = |got: &[f64], want: &[f64], size: f64, what: &str| {
                                for (got, want) in got.iter().zip(want) {
                                    let error = (got - want).abs();
                                    assert!(error <= tolerance * size, "{what} {kernel} {n}×{m} k={k}: {got} {want}");
                                }
                            };
                            // Entries here are below 40, numbers of V below 5.
                            let size = 200.0 * n.max(m) as f64;
                            let mut out = vec![f64::NAN; n * k];
                            gram.apply(precision, Pick::All, &v, k, &mut out, &control).expect("no limit");
                            let want = naive::product(&exact, m, &v, k);
                            close(&out, &want, size, "apply");
                            let some: Vec<u32> = (0..n as u32).rev().step_by(2).collect();
                            let mut part = vec![f64::NAN; some.len() * k];
                            gram.apply(precision, Pick::List(&some), &v, k, &mut part, &control).expect("no limit");
                            for (i, row) in some.iter().enumerate() {
                                let row = *row as usize;
                                close(&part[i * k..(i + 1) * k], &want[row * k..(row + 1) * k], size, "apply to rows");
                            }
                            let mut out = vec![f64::NAN; m * k];
                            square.apply(precision, Pick::All, &v, k, &mut out, &control).expect("no limit");
                            close(&out, &naive::product(&exact_square, m, &v, k), size, "square apply");
                        }
                    }
                }
            }
        }
    }
}

/// The same bits on one, two and three threads, for sizes large enough to be split.
pub fn threads_do_not_change_bits(make: Make<'_>) {
    let (n, m, d) = (700, 900, 40);
    for (rows, cols) in
        [(points::dense(n, d, 1), points::dense(m, d, 2)), (points::sparse(n, d, 0.3, 1), points::sparse(m, d, 0.3, 2))]
    {
        for kernel in [Kernel::rbf(0.02), Kernel::Matern32 { gamma: 0.02 }, Kernel::Laplacian { gamma: 0.02 }] {
            let v = points::normal(m, 3, 1.0, 0.0, 3);
            let mut first: Option<(Vec<u32>, Vec<u64>)> = None;
            for threads in [1, 2, 3] {
                let gram = make(kernel, &rows, Some(&cols));
                let control = Control::unlimited(Threads::new(threads));
                let mut single = vec![0f32; n * m];
                gram.block_f32(Pick::All, Pick::All, &mut single, &control).expect("no limit");
                let mut rest = Vec::new();
                for precision in [Precision::Single, Precision::Double] {
                    let mut out = vec![0.0; n * 3];
                    gram.apply(precision, Pick::All, &v, 3, &mut out, &control).expect("no limit");
                    rest.extend(bits64(&out));
                    let mut few = vec![0.0; 4];
                    gram.apply(precision, Pick::Range(5, 9), &v[..m], 1, &mut few, &control).expect("no limit");
                    rest.extend(bits64(&few));
                }
                let now = (bits32(&single), rest);
                match &first {
                    Some(first) => assert!(*first == now, "{kernel} on {threads} threads"),
                    None => first = Some(now),
                }
            }
        }
    }
}

/// Interrupts end the computation, before any work and soon after it begins.
pub fn interrupts_are_obeyed(make: Make<'_>) {
    let points = points::dense(3000, 300, 1);
    // A device may have to compile its programs once, for seconds.
    let few = make(Kernel::rbf(0.001), &points::dense(300, 300, 2), None);
    let unlimited = Control::unlimited(Threads::new(1));
    few.block_f64(Pick::All, Pick::All, &mut vec![0.0; 300 * 300], &unlimited).expect("no limit");
    few.apply(Precision::Double, Pick::All, &[1.0; 300], 1, &mut [0.0; 300], &unlimited).expect("no limit");
    let gram = make(Kernel::rbf(0.001), &points, None);
    let n = points.len();
    let v = vec![1.0; n];
    for (threads, seconds, slack) in [(1, 0.0, 0.1), (2, 0.0, 0.1), (2, 0.02, 0.3)] {
        let budget = Budget { seconds: Some(seconds), ..Budget::default() };
        let expected = Err(Interrupt::Deadline);
        let start = std::time::Instant::now();
        let control = Control::start(&budget, Threads::new(threads));
        let mut out = vec![0f64; n * n];
        let mut sums = vec![0f64; n];
        // A device may be fast enough to be done in time, or soon after.
        let obeyed = |ended: Result<(), Interrupt>| match ended {
            Ok(()) => seconds > 0.0 && start.elapsed().as_secs_f64() <= seconds + slack,
            other => other == expected,
        };
        assert!(obeyed(gram.block_f64(Pick::All, Pick::All, &mut out, &control)));
        assert!(obeyed(gram.apply(Precision::Double, Pick::All, &v, 1, &mut sums, &control)));
        let spent = start.elapsed().as_secs_f64();
        // The contract is 50 ms per call; the slack is for a computer busy with other tests.
        assert!(spent < seconds + 3.0 * slack, "{spent} s on {threads} threads");
    }
}

/// The count of entries increases by the requested entries; zero lines of V are not counted.
pub fn entries_are_counted(make: Make<'_>) {
    let points = points::dense(100, 5, 1);
    let gram = make(Kernel::rbf(0.1), &points, None);
    let control = Control::unlimited(Threads::one());
    assert_eq!(gram.entries(), 0);
    let mut out = vec![0f32; 300];
    gram.block_f32(Pick::Range(0, 3), Pick::All, &mut out, &control).expect("no limit");
    assert_eq!(gram.entries(), 300);
    let mut v = vec![0.0; 100];
    v[17] = 1.0;
    let mut out = vec![0.0; 100];
    gram.apply(Precision::Double, Pick::All, &v, 1, &mut out, &control).expect("no limit");
    assert_eq!(gram.entries(), 400);
}

/// A module of tests that check `$make` with everything in [`backend_suite`](mod@crate::backend_suite).
#[macro_export]
macro_rules! backend_suite {
    ($name:ident, $make:expr) => {
        $crate::backend_suite!(@tests $name, $make, entries_are_accurate, sparse_points_are_accurate,
            symmetry_is_exact, halves_are_equal, picks_are_consistent, products_are_those_of_the_entries, threads_do_not_change_bits,
            interrupts_are_obeyed, entries_are_counted);
    };
    (@tests $name:ident, $make:expr, $($test:ident),*) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $test() {
                    $crate::backend_suite::$test(&$make);
                }
            )*
        }
    };
}
