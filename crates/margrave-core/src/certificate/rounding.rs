//! Bounds on rounding errors: what is added to a gap computed in double precision.
//!
//! With u = 2⁻⁵³, a sum of m terms added one after the other has an error of at most m·u·Σ|terms|, to first order
//! (Higham, *Accuracy and Stability of Numerical Algorithms*, section 4.2); sums in several lanes have shorter chains.
//! For f̂ᵢ = Σⱼ K̂ᵢⱼβⱼ with
//! |Kᵢⱼ| ≤ sᵢsⱼ and |K̂ᵢⱼ − Kᵢⱼ| ≤ κ·u·sᵢsⱼ this gives
//!
//! ```text
//! |f̂ᵢ − fᵢ| ≤ (κ + chain)·u·sᵢ·Σⱼ sⱼ|βⱼ| =: δᵢ
//! ```
//!
//! A Fenchel–Young term is convex in the score, so over [ẑ − δ, ẑ + δ] it is largest at one of the ends: the gap is at
//! most the sum of those largest values. The errors of P itself are added, so that the interval [D, P] contains the
//! optimal value.

use super::{CHUNK, Point};
use crate::control::Interrupt;
use crate::gram::Accuracy;

/// Unit roundoff.
pub(super) const UNIT: f64 = 0.5 * f64::EPSILON;

/// Minimum number of lanes in which products with K and dot products are summed.
const LANES: f64 = 8.0;

/// Number of additions in the longest chain of a product with `terms` terms.
pub(super) fn chain(terms: usize) -> f64 {
    terms as f64 / LANES + 32.0
}

/// Bounds on the errors of K·v, by row.
pub(super) fn product_errors(accuracy: &Accuracy, v: &[f64]) -> Vec<f64> {
    let used = v.iter().filter(|v| **v != 0.0).count();
    let reach: f64 = accuracy.size.iter().zip(v).map(|(s, v)| s * v.abs()).sum();
    let units = UNIT * (accuracy.relative + accuracy.chain.additions(used)) * reach;
    accuracy.size.iter().map(|s| units * s).collect()
}

/// Bound on the rounding error of z = f + b and of the difference from the target, as used when the loss is evaluated.
pub(super) fn sum_error(z: f64, f: f64, target: f64) -> f64 {
    4.0 * UNIT * (z.abs() + f.abs() + (z - f).abs() + target.abs())
}

/// Bound on the rounding error of the sums in P, and of the sum constraints that b multiplies.
pub(super) fn of_sums(
    point: &Point<'_, '_>,
    squared_norm: f64,
    primal: f64,
    gamma: &[f64],
    bias: &[f64],
) -> Result<f64, Interrupt> {
    let p = point.problem;
    let additions = (p.len().min(CHUNK) + p.len().div_ceil(CHUNK)) as f64;
    let sizes = point.sum(None, |i| (gamma[i] * point.f(i)).abs())?;
    let linear: f64 = bias.iter().enumerate().map(|(g, b)| (p.constraint.sum(g) * b).abs()).sum();
    // The terms of the loss are non-negative: their sum is P minus the other parts.
    let losses = (primal - 0.5 * squared_norm).abs() + linear;
    let of_constraint = point.sum(None, |i| match p.constraint.group(i) {
        Some(g) => (gamma[i] * bias[g]).abs(),
        None => 0.0,
    })?;
    Ok(UNIT * (additions * (0.5 * sizes + losses) + 4.0 * of_constraint))
}
