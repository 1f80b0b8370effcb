//! How fast the bias follows Σβ within an epoch of dual coordinate descent.
//!
//! A penalised bias is the weight of a constant feature, and could be treated like any other. But its value s is in
//! every row: it adds s² to the diagonal of the dual problem and its stiffest direction, β = 1, while the progress of an
//! epoch is that of the softest directions, about (λ + d)/(q + d) with q the diagonal. On text with rows of norm 1 and
//! s = 1 half of q is the bias. So is a free bias, which needs some penalty to be updated in a dual method at all.
//!
//! The bias therefore moves by the proximal point method, one iteration per epoch:
//!
//! ```text
//! b = argmax bΣβ − ½ρb² − (b − bₖ)²/(2t) = τ·(Σβ + bₖ/t),   τ = 1/(ρ + 1/t)
//! ```
//!
//! which adds only τ ≤ t to the diagonal, for any ρ ≥ 0. An iteration reduces the error of the bias by the factor
//! 1/(1 + tG), where G = ρ + 1ᵀ(K + dI)⁻¹1 over the free rows. That is about 1/c, with c the mean product of two different
//! rows, if there are many: t is a few times c.

use crate::data::Points;

/// t in units of the mean product of two different rows.
const PRODUCTS: f64 = 3.0;
/// Least and greatest t in units of the mean squared norm of the rows.
const RANGE: (f64, f64) = (0.05, 1.0);
/// Rows from which the mean product is estimated.
const SAMPLED_ROWS: usize = 128;

/// The step of the bias.
#[derive(Debug, Clone, Copy)]
pub(super) struct BiasPace {
    /// ρ; `None` without a bias.
    rho: Option<f64>,
    /// 1/t.
    inverse: f64,
    /// τ: the change of b for a change of Σβ within an epoch.
    pub(super) stiffness: f64,
}

impl BiasPace {
    /// For all rows of a problem.
    pub(super) fn new(rho: Option<f64>, points: &Points) -> Self {
        if rho.is_none() {
            return Self { rho, inverse: 0.0, stiffness: 0.0 };
        }
        let norm = points.squared_norms().iter().sum::<f64>() / points.len().max(1) as f64;
        Self::with(rho, (PRODUCTS * mean_product(points)).clamp(RANGE.0 * norm, RANGE.1 * norm))
    }

    /// A penalised bias follows Σβ without delay, a free one with the given t: for few epochs, or rows in blocks.
    pub(super) fn immediate(rho: Option<f64>, t: f64) -> Self {
        match rho {
            None => Self { rho, inverse: 0.0, stiffness: 0.0 },
            Some(rho) if rho > 0.0 => Self { rho: Some(rho), inverse: 0.0, stiffness: 1.0 / rho },
            Some(_) => Self::with(rho, t),
        }
    }

    fn with(rho: Option<f64>, t: f64) -> Self {
        let rows_are_empty = !(t > 0.0);
        let inverse = if rows_are_empty { 1.0 } else { 1.0 / t };
        Self { rho, inverse, stiffness: rho.map_or(0.0, |rho| 1.0 / (rho + inverse)) }
    }

    /// The bias at the start of an epoch, from the last bias and Σβ.
    pub(super) fn next(&self, b: f64, sum: f64) -> f64 {
        self.stiffness * (sum + self.inverse * b)
    }

    /// The contribution of the bias to the gap; 0 for a free one, whose constraint Σβ = 0 is treated apart.
    pub(super) fn mismatch(&self, b: f64, sum: f64) -> f64 {
        self.rho.filter(|rho| *rho > 0.0).map_or(0.0, |rho| 0.5 * (rho * b - sum).powi(2) / rho)
    }
}

/// The mean product of two different rows, estimated from rows at equal distances; at least 0.
fn mean_product(points: &Points) -> f64 {
    let count = points.len().min(SAMPLED_ROWS);
    if count < 2 {
        return 0.0;
    }
    let (mut sum, mut squares) = (vec![0.0f64; points.dims()], 0.0);
    for k in 0..count {
        let i = k * points.len() / count;
        points.visit(i, |j, v| sum[j] += v);
        squares += points.squared_norms()[i];
    }
    let total: f64 = sum.iter().map(|s| s * s).sum();
    ((total - squares) / (count * (count - 1)) as f64).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_that_has_settled_stays() {
        let points = Points::dense_f64(4, 2, vec![1.0, 0.0, 1.0, 1.0, 0.0, 1.0, -1.0, 2.0]).unwrap();
        for rho in [0.0, 0.25, 1.0, 100.0] {
            let pace = BiasPace::new(Some(rho), &points);
            // Settled: ρb = Σβ.
            assert!((pace.next(0.7, rho * 0.7) - 0.7).abs() < 1e-15, "{rho}");
            assert!(pace.mismatch(0.7, rho * 0.7) < 1e-30);
            assert!(pace.stiffness > 0.0 && (rho == 0.0 || pace.stiffness < 1.0 / rho));
        }
        let none = BiasPace::new(None, &points);
        assert_eq!((none.stiffness, none.next(0.0, 3.0)), (0.0, 0.0));
        let empty = BiasPace::new(Some(0.0), &Points::dense_f64(2, 1, vec![0.0, 0.0]).unwrap());
        assert!(empty.next(1.0, 0.5).is_finite() && empty.stiffness > 0.0);
    }

    #[test]
    fn the_mean_product_leaves_out_the_norms() {
        // Orthogonal rows: 0 although their norms are 1. Equal rows: their squared norm.
        let identity: Vec<f64> = (0..36).map(|k| f64::from(u8::from(k % 7 == 0))).collect();
        assert_eq!(mean_product(&Points::dense_f64(6, 6, identity).unwrap()), 0.0);
        let equal = Points::dense_f64(300, 2, [3.0, 4.0].repeat(300)).unwrap();
        assert!((mean_product(&equal) - 25.0).abs() < 1e-12);
    }
}
