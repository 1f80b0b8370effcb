//! Kernels and products computed by definition, in double precision.

use margrave_core::data::Points;
use margrave_core::kernel::{Kernel, Statistic};

/// The statistic of two points, term by term.
pub fn statistic(kind: Statistic, x: &[f64], y: &[f64]) -> f64 {
    let pairs = x.iter().zip(y);
    match kind {
        Statistic::Dot => pairs.map(|(a, b)| a * b).sum(),
        Statistic::SquaredDistance => pairs.map(|(a, b)| (a - b) * (a - b)).sum(),
        Statistic::AbsoluteDistance => pairs.map(|(a, b)| (a - b).abs()).sum(),
        Statistic::ChiSquare => pairs.map(|(a, b)| if a + b > 0.0 { (a - b) * (a - b) / (a + b) } else { 0.0 }).sum(),
        Statistic::Lookup => f64::NAN,
    }
}

/// Row `i` of the points, zeros included.
pub fn row(points: &Points, i: usize) -> Vec<f64> {
    let mut x = vec![0.0; points.dims()];
    points.copy_row(i, &mut x);
    x
}

/// K over rows × columns, row-major.
pub fn gram(kernel: &Kernel, rows: &Points, cols: &Points) -> Vec<f64> {
    let right: Vec<Vec<f64>> = (0..cols.len()).map(|j| row(cols, j)).collect();
    let mut out = Vec::with_capacity(rows.len() * cols.len());
    for i in 0..rows.len() {
        let x = row(rows, i);
        out.extend(right.iter().map(|y| kernel.of_statistic(statistic(kernel.statistic(), &x, y))));
    }
    out
}

/// `A·V`, A being row-major `rows × m` and V `m × k`.
pub fn product(a: &[f64], m: usize, v: &[f64], k: usize) -> Vec<f64> {
    let rows = a.len().checked_div(m).unwrap_or(0);
    let mut out = vec![0.0; rows * k];
    for r in 0..rows {
        for c in 0..m {
            for j in 0..k {
                out[r * k + j] += a[r * m + c] * v[c * k + j];
            }
        }
    }
    out
}
