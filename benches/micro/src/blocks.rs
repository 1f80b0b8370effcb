//! RBF blocks compared with a matrix product of the same shape.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use margrave_core::backend::cpu::CpuGram;
use margrave_core::gram::{Gram, Pick};
use margrave_core::kernel::Kernel;
use margrave_core::{Control, Threads};
use rayon::prelude::*;

use crate::timing::{least, points, uniform};

const N: usize = 20_000;
const Q: usize = 1_024;

/// `c = a·bᵀ`, row-major, parallel over column panels of the product because faer's own threading is uneven.
fn product<T: faer::traits::ComplexField + Send + Sync + Copy>(
    a: &[T],
    b: &[T],
    c: &mut [T],
    d: usize,
    threads: usize,
    one: T,
) {
    let rows = Q / threads;
    let part = |(i, c): (usize, &mut [T])| {
        let a = MatRef::from_row_major_slice(&a[i * rows * d..(i + 1) * rows * d], rows, d);
        let b = MatRef::from_row_major_slice(b, N, d);
        let c = MatMut::from_row_major_slice_mut(c, rows, N);
        matmul(c, Accum::Replace, a, b.transpose(), one, Par::Seq);
    };
    if threads == 1 {
        c.chunks_mut(rows * N).enumerate().for_each(part);
    } else {
        c.par_chunks_mut(rows * N).enumerate().for_each(part);
    }
}

pub(crate) fn run() {
    println!("\nRBF block, {Q} rows × {N} columns; GFLOP/s of the 2·q·n·d of the product alone");
    println!("{:>9} {:>5} {:>8} {:>9} {:>9} {:>7}", "precision", "d", "threads", "ours", "faer", "ratio");
    for d in [50, 200, 784] {
        let values = uniform(N, d, 1);
        let points = points(&values, N, d);
        let gram = CpuGram::square(Kernel::rbf(1.0 / d as f64), &points).expect("a valid kernel");
        let flops = 2e-9 * (Q * N * d) as f64;
        for threads in [1, 2] {
            let control = Control::unlimited(Threads::new(threads));
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            let report = |precision: &str, ours: f64, theirs: f64| {
                println!(
                    "{precision:>9} {d:>5} {threads:>8} {:>9.1} {:>9.1} {:>7.2}",
                    flops / ours,
                    flops / theirs,
                    theirs / ours
                );
            };
            let mut out = vec![0f32; Q * N];
            let ours = least(threads, 1.0, || {
                gram.block_f32(Pick::Range(0, Q), Pick::All, &mut out, &control).expect("no limit");
            });
            let b: Vec<f32> = values.iter().map(|x| *x as f32).collect();
            let theirs = pool.install(|| least(threads, 1.0, || product(&b[..Q * d], &b, &mut out, d, threads, 1.0)));
            report("single", ours, theirs);
            drop(out);
            let mut out = vec![0f64; Q * N];
            let ours = least(threads, 1.0, || {
                gram.block_f64(Pick::Range(0, Q), Pick::All, &mut out, &control).expect("no limit");
            });
            let theirs =
                pool.install(|| least(threads, 1.0, || product(&values[..Q * d], &values, &mut out, d, threads, 1.0)));
            report("double", ours, theirs);
        }
    }
}
