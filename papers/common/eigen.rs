//! The extreme eigenvalues of a small matrix.

/// Smallest and largest eigenvalue of a symmetric matrix, by Jacobi rotations.
pub(crate) fn extremes(mut a: Vec<f64>, n: usize) -> (f64, f64) {
    for _ in 0..30 {
        let off: f64 = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i * n + j].powi(2)).sum();
        if off < 1e-24 {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p * n + q] == 0.0 {
                    continue;
                }
                let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * a[p * n + q]);
                let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
                let t = if theta == 0.0 { 1.0 } else { t };
                let (c, s) = (1.0 / t.hypot(1.0), t / t.hypot(1.0));
                for k in 0..n {
                    let (x, y) = (a[k * n + p], a[k * n + q]);
                    (a[k * n + p], a[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (a[p * n + k], a[q * n + k]);
                    (a[p * n + k], a[q * n + k]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
    }
    let diagonal = (0..n).map(|i| a[i * n + i]);
    (diagonal.clone().fold(f64::INFINITY, f64::min), diagonal.fold(f64::NEG_INFINITY, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenvalues_of_a_known_matrix() {
        // 2 on the diagonal, −1 beside it: 2 − 2cos(kπ/4), k = 1…3.
        let (low, high) = extremes(vec![2.0, -1.0, 0.0, -1.0, 2.0, -1.0, 0.0, -1.0, 2.0], 3);
        assert!((low - (2.0 - 2f64.sqrt())).abs() < 1e-12 && (high - (2.0 + 2f64.sqrt())).abs() < 1e-12);
    }
}
