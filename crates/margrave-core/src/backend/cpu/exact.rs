//! The statistic of one pair of points from the original data, in double precision, term by term: slow but accurate.

use crate::data::{Csr, Dense, Points, Real, Storage};
use crate::kernel::Statistic;

/// The statistic of point `i` of `rows` and point `j` of `cols`. Exchanging the two gives the same bits.
#[inline(always)]
pub(crate) fn statistic(kind: Statistic, rows: &Points, i: usize, cols: &Points, j: usize) -> f64 {
    match kind {
        Statistic::Dot => pair(rows, i, cols, j, |a, b| a * b),
        Statistic::SquaredDistance => pair(rows, i, cols, j, |a, b| (a - b) * (a - b)),
        Statistic::AbsoluteDistance => pair(rows, i, cols, j, |a, b| (a - b).abs()),
        Statistic::ChiSquare => {
            pair(rows, i, cols, j, |a, b| if a + b > 0.0 { (a - b) * (a - b) / (a + b) } else { 0.0 })
        }
        Statistic::Lookup => f64::NAN,
    }
}

/// Σ term(a, b); the term of two zeros is zero.
#[inline(always)]
fn pair(rows: &Points, i: usize, cols: &Points, j: usize, term: impl Fn(f64, f64) -> f64) -> f64 {
    use Storage::{DenseF32, DenseF64, SparseF32, SparseF64};
    let flipped = |a, b| term(b, a);
    match (rows.storage(), cols.storage()) {
        (DenseF32(a), DenseF32(b)) => both_dense(a, i, b, j, term),
        (DenseF32(a), DenseF64(b)) => both_dense(a, i, b, j, term),
        (DenseF64(a), DenseF32(b)) => both_dense(a, i, b, j, term),
        (DenseF64(a), DenseF64(b)) => both_dense(a, i, b, j, term),
        (SparseF32(a), SparseF32(b)) => both_sparse(a, i, b, j, term),
        (SparseF32(a), SparseF64(b)) => both_sparse(a, i, b, j, term),
        (SparseF64(a), SparseF32(b)) => both_sparse(a, i, b, j, term),
        (SparseF64(a), SparseF64(b)) => both_sparse(a, i, b, j, term),
        (DenseF32(a), SparseF32(b)) => mixed(a, i, b, j, term),
        (DenseF32(a), SparseF64(b)) => mixed(a, i, b, j, term),
        (DenseF64(a), SparseF32(b)) => mixed(a, i, b, j, term),
        (DenseF64(a), SparseF64(b)) => mixed(a, i, b, j, term),
        (SparseF32(a), DenseF32(b)) => mixed(b, j, a, i, flipped),
        (SparseF32(a), DenseF64(b)) => mixed(b, j, a, i, flipped),
        (SparseF64(a), DenseF32(b)) => mixed(b, j, a, i, flipped),
        (SparseF64(a), DenseF64(b)) => mixed(b, j, a, i, flipped),
    }
}

#[inline(always)]
fn both_dense<A: Real, B: Real>(a: &Dense<A>, i: usize, b: &Dense<B>, j: usize, term: impl Fn(f64, f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let (left, left_rest) = a.row(i).as_chunks::<LANES>();
    let (right, right_rest) = b.row(j).as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (x, y) in left.iter().zip(right) {
        for l in 0..LANES {
            sums[l] += term(x[l].to_f64(), y[l].to_f64());
        }
    }
    let rest: f64 = left_rest.iter().zip(right_rest).map(|(x, y)| term(x.to_f64(), y.to_f64())).sum();
    sums.iter().sum::<f64>() + rest
}

fn both_sparse<A: Real, B: Real>(a: &Csr<A>, i: usize, b: &Csr<B>, j: usize, term: impl Fn(f64, f64) -> f64) -> f64 {
    let ((left, x), (right, y)) = (a.row(i), b.row(j));
    let (mut p, mut q, mut sum) = (0, 0, 0.0);
    while p < left.len() || q < right.len() {
        let l = left.get(p).copied().unwrap_or(u32::MAX);
        let r = right.get(q).copied().unwrap_or(u32::MAX);
        let (mut u, mut v) = (0.0, 0.0);
        if l <= r {
            u = x[p].to_f64();
            p += 1;
        }
        if r <= l {
            v = y[q].to_f64();
            q += 1;
        }
        sum += term(u, v);
    }
    sum
}

fn mixed<A: Real, B: Real>(a: &Dense<A>, i: usize, b: &Csr<B>, j: usize, term: impl Fn(f64, f64) -> f64) -> f64 {
    let (columns, y) = b.row(j);
    let (mut q, mut sum) = (0, 0.0);
    for (k, x) in a.row(i).iter().enumerate() {
        let stored = columns.get(q).is_some_and(|c| *c as usize == k);
        sum += term(x.to_f64(), if stored { y[q].to_f64() } else { 0.0 });
        q += usize::from(stored);
    }
    sum
}
