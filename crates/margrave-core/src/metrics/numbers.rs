//! Metrics of regressions.

use super::weight;

/// Σ w·f(row) / Σ w.
fn mean(n: usize, weights: Option<&[f64]>, of: impl Fn(usize) -> f64) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for row in 0..n {
        let w = weight(weights, row);
        sum += w * of(row);
        total += w;
    }
    if total > 0.0 { sum / total } else { 0.0 }
}

/// Mean squared error.
pub fn mse(truth: &[f64], values: &[f64], weights: Option<&[f64]>) -> f64 {
    mean(truth.len(), weights, |row| (truth[row] - values[row]).powi(2))
}

/// Root of the mean squared error.
pub fn rmse(truth: &[f64], values: &[f64], weights: Option<&[f64]>) -> f64 {
    mse(truth, values, weights).sqrt()
}

/// Mean absolute error.
pub fn mae(truth: &[f64], values: &[f64], weights: Option<&[f64]>) -> f64 {
    mean(truth.len(), weights, |row| (truth[row] - values[row]).abs())
}

/// The pinball loss of the quantile `tau` at one row.
pub fn pinball_loss(tau: f64, truth: f64, value: f64) -> f64 {
    let r = truth - value;
    if r >= 0.0 { tau * r } else { (tau - 1.0) * r }
}

/// Mean pinball loss of the quantile `tau`.
pub fn pinball(tau: f64, truth: &[f64], values: &[f64], weights: Option<&[f64]>) -> f64 {
    mean(truth.len(), weights, |row| pinball_loss(tau, truth[row], values[row]))
}

/// 1 − part/whole; 1 where both are 0, and 0 where only the whole is.
fn explained(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        1.0 - part / whole
    } else if part > 0.0 {
        0.0
    } else {
        1.0
    }
}

/// Mean square of the truth around its mean.
pub fn variance(truth: &[f64], weights: Option<&[f64]>) -> f64 {
    let centre = mean(truth.len(), weights, |row| truth[row]);
    mean(truth.len(), weights, |row| (truth[row] - centre).powi(2))
}

/// R². A constant truth has no variance: then it is 1 if every value is right, and 0 otherwise.
pub fn r2(truth: &[f64], values: &[f64], weights: Option<&[f64]>) -> f64 {
    explained(mse(truth, values, weights), variance(truth, weights))
}

/// Explained variance: R² of the values plus their mean residual.
pub fn explained_variance(truth: &[f64], values: &[f64], weights: Option<&[f64]>) -> f64 {
    let residual: Vec<f64> = truth.iter().zip(values).map(|(y, z)| y - z).collect();
    explained(variance(&residual, weights), variance(truth, weights))
}
