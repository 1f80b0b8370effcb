//! Properties of the CPU Gram on shapes and picks nobody thought of.

use margrave_core::backend::cpu::{CpuGram, Level};
use margrave_core::data::{Csr, Points};
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::{Kernel, Statistic};
use margrave_core::{Control, Threads};
use margrave_testkit::backend_suite::{DOUBLE, SINGLE, kernels, scale};
use margrave_testkit::{naive, points};
use proptest::prelude::*;

/// Points of a kind: dense, far from the origin, clustered, or sparse; features ≥ 0 for the kernels that need it.
fn make(kind: usize, n: usize, d: usize, seed: u64) -> Points {
    let positive = |values: Vec<f64>| values.into_iter().map(f64::abs).collect::<Vec<_>>();
    match kind {
        0 => Points::dense_f64(n, d, positive(points::normal(n, d, 1.0, 0.0, seed))).expect("finite"),
        1 => Points::dense_f64(n, d, positive(points::normal(n, d, 1.0, 50.0, seed))).expect("finite"),
        2 => {
            // Every third point is a slightly moved copy of the one before.
            let mut values = positive(points::normal(n, d, 2.0, 5.0, seed));
            for i in (1..n).step_by(3) {
                for k in 0..d {
                    values[i * d + k] = values[(i - 1) * d + k] * (1.0 + 1e-7);
                }
            }
            Points::dense_f64(n, d, values).expect("finite")
        }
        3 => points::sparse(n, d, 0.05, seed),
        _ => points::sparse(n, d, 0.5, seed),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_and_products_are_those_of_the_definition(
        (n, m, d) in (1usize..50, 1usize..120, 1usize..90),
        kind in 0usize..5,
        which in 0usize..9,
        width in -2.0f64..2.0,
        k in 1usize..4,
        level in 0usize..3,
        seed in 0u64..1000,
    ) {
        let kernel = match kernels(d)[which] {
            Kernel::Rbf { gamma } => Kernel::Rbf { gamma: gamma * 10f64.powf(width) },
            Kernel::Matern32 { gamma } => Kernel::Matern32 { gamma: gamma * 10f64.powf(width) },
            Kernel::Laplacian { gamma } => Kernel::Laplacian { gamma: gamma * 10f64.powf(width) },
            other => other,
        };
        let rows = make(kind, n, d, seed);
        let cols = make(kind, m, d, seed + 1);
        let level = [Level::Portable, Level::Avx2, Level::Avx512][level];
        let gram = CpuGram::new(kernel, &rows, &cols).unwrap().with_level(level);
        let exact = naive::gram(&kernel, &rows, &cols);
        let right: Vec<Vec<f64>> = (0..m).map(|j| naive::row(&cols, j)).collect();
        let one = Control::unlimited(Threads::one());
        let mut single = vec![f32::NAN; n * m];
        let mut double = vec![f64::NAN; n * m];
        gram.block_f32(Pick::All, Pick::All, &mut single, &one).unwrap();
        gram.block_f64(Pick::All, Pick::All, &mut double, &one).unwrap();
        let mut largest = 0f64;
        for i in 0..n {
            let x = naive::row(&rows, i);
            for j in 0..m {
                let at = i * m + j;
                let size = scale(&kernel, &x, &right[j]);
                largest = largest.max(size);
                let (off32, off64) = ((f64::from(single[at]) - exact[at]).abs(), (double[at] - exact[at]).abs());
                prop_assert!(off32 <= SINGLE * size, "{kernel} {level:?} single {} {}", single[at], exact[at]);
                prop_assert!(off64 <= DOUBLE * size, "{kernel} {level:?} double {} {}", double[at], exact[at]);
            }
        }

        let columns: Vec<u32> = (0..m as u32).filter(|c| (u64::from(*c) * 7 + seed) % 3 != 0).collect();
        let mut part = vec![f64::NAN; n * columns.len()];
        gram.block_f64(Pick::All, Pick::List(&columns), &mut part, &one).unwrap();
        for (at, value) in part.iter().enumerate() {
            let whole = double[at / columns.len() * m + columns[at % columns.len()] as usize];
            prop_assert_eq!(value.to_bits(), whole.to_bits());
        }

        let mut v = points::normal(m, k, 1.0, 0.0, seed);
        v.chunks_mut(k).enumerate().filter(|(j, _)| j % 4 == 1).for_each(|(_, line)| line.fill(0.0));
        let mut out = vec![f64::NAN; n * k];
        gram.apply(Precision::Double, Pick::All, &v, k, &mut out, &one).unwrap();
        // Numbers of V are below 6; m terms of error DOUBLE each, and as much again for the sum.
        let tolerance = 12.0 * m as f64 * DOUBLE * largest;
        for (got, want) in out.iter().zip(naive::product(&exact, m, &v, k)) {
            prop_assert!((got - want).abs() <= tolerance, "{kernel} {got} {want}");
        }
        for threads in [2, 3] {
            let control = Control::unlimited(Threads::new(threads));
            let mut again = vec![f64::NAN; n * k];
            gram.apply(Precision::Double, Pick::All, &v, k, &mut again, &control).unwrap();
            prop_assert_eq!(&again, &out);
        }
    }

    #[test]
    fn a_square_gram_is_symmetric_with_unit_diagonal(
        n in 1usize..60,
        d in 1usize..300,
        kind in 0usize..5,
        which in 0usize..9,
        seed in 0u64..1000,
    ) {
        let kernel = kernels(d)[which];
        let points = make(kind, n, d, seed);
        let gram = CpuGram::square(kernel, &points).unwrap();
        let control = Control::unlimited(Threads::one());
        let mut single = vec![0f32; n * n];
        let mut double = vec![0f64; n * n];
        gram.block_f32(Pick::All, Pick::All, &mut single, &control).unwrap();
        gram.block_f64(Pick::All, Pick::All, &mut double, &control).unwrap();
        for i in 0..n {
            for j in 0..n {
                prop_assert_eq!(single[i * n + j].to_bits(), single[j * n + i].to_bits());
                prop_assert_eq!(double[i * n + j].to_bits(), double[j * n + i].to_bits());
            }
            if kernel.statistic() != Statistic::Dot {
                prop_assert_eq!((single[i * n + i], double[i * n + i]), (1.0, 1.0));
            }
        }
    }
}

/// Sparse points that differ by about 1 in a few features of a common offset.
fn sparse_far(n: usize, offset: f64, seed: u64) -> Points {
    const STORED: usize = 3;
    let spread = points::normal(n, STORED, 0.4, 0.0, seed);
    let starts: Vec<usize> = (0..=n).map(|i| i * STORED).collect();
    let columns: Vec<u32> = (0..n).flat_map(|_| [4u32, 17, 63]).collect();
    Csr::<f64>::new(80, starts, columns, spread.iter().map(|x| offset + x).collect::<Vec<f64>>())
        .expect("sorted columns")
        .into()
}

#[test]
fn distances_of_sparse_points_far_from_the_origin_are_those_of_their_differences() {
    for offset in [1e3, 1e6, 1e8, 1e12, 1e200] {
        let (rows, cols) = (sparse_far(30, offset, 1), sparse_far(40, offset, 2));
        for gamma in [1e-3, 0.5, 15.0] {
            for kernel in [Kernel::Rbf { gamma }, Kernel::Laplacian { gamma }, Kernel::Matern52 { gamma }] {
                let gram = CpuGram::new(kernel, &rows, &cols).unwrap();
                let exact = naive::gram(&kernel, &rows, &cols);
                let one = Control::unlimited(Threads::one());
                let (mut single, mut double) = (vec![f32::NAN; exact.len()], vec![f64::NAN; exact.len()]);
                gram.block_f32(Pick::All, Pick::All, &mut single, &one).unwrap();
                gram.block_f64(Pick::All, Pick::All, &mut double, &one).unwrap();
                for ((single, double), exact) in single.iter().zip(&double).zip(&exact) {
                    assert!((f64::from(*single) - exact).abs() <= SINGLE, "{kernel} at {offset}: {single} {exact}");
                    assert!((double - exact).abs() <= DOUBLE, "{kernel} at {offset}: {double} {exact}");
                }
            }
        }
    }
}
