//! The certificate of a linear machine, given as w itself.
//!
//! A primal method finds w, a dual one β, and near the optimum w = Xᵀβ only nearly. P is taken at w with the best b and D
//! at the nearest feasible γ to β:
//!
//! ```text
//! gap = ½‖w − Xᵀγ‖² + ½(ρb − Σγ)²/ρ + Σᵢ cᵢ·[ ℓ(yᵢ, zᵢ) + ℓ*(yᵢ, −γᵢ/cᵢ) + (γᵢ/cᵢ)·zᵢ ],   z = Xw + b
//! ```
//!
//! the middle term only for a penalised bias. The violation compares γ with the scores of w; how far w is from Xᵀγ shows in
//! the gap. Cost: two passes over X, and those over the samples alone that every certificate makes.

use super::{Certificate, Point, is_convex, members, optimality, stationarity};
use crate::control::{Control, Interrupt};
use crate::gram::Pick;
use crate::problem::{Bias, LinearProblem};

/// Certifies the machine (w, b) with the dual point β; β is needed for the lower bound alone. Without a bias `bias` is not
/// looked at. A free bias that is worse than the best one by more than rounding is replaced by the best one.
pub fn certify_linear(
    problem: &LinearProblem<'_>,
    weights: &[f64],
    bias: f64,
    beta: &[f64],
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let samples = problem.samples();
    let x = problem.matrix;
    let penalty = match problem.bias {
        Bias::Penalised { .. } => problem.bias.penalty(),
        Bias::None | Bias::Free => None,
    };
    // Under a penalty b is one more weight, and part of f.
    let fixed = if penalty.is_some() { bias } else { 0.0 };
    let mut f = vec![0.0; x.rows()];
    x.dots(Pick::All, weights, &mut f, control)?;
    f.iter_mut().for_each(|f| *f += fixed);
    let mut squared_norm: f64 = weights.iter().map(|w| w * w).sum();
    squared_norm += penalty.map_or(0.0, |p| p * bias * bias);
    let point = Point { problem: &samples, f: &f, control };
    let groups = members(samples.constraint);
    let free = [bias];
    let given = (problem.bias == Bias::Free && bias.is_finite()).then_some(&free[..]);
    let compare = |gamma: &[f64]| {
        let mut v = vec![0.0; x.dims()];
        x.combine(Pick::All, gamma, &mut v, control)?;
        let mut distance: f64 = weights.iter().zip(&v).map(|(w, v)| (w - v) * (w - v)).sum();
        if let Some(p) = penalty {
            let sum = point.sum(None, |i| gamma[i])?;
            distance += (p * bias - sum) * (p * bias - sum) / p;
        }
        Ok(0.5 * distance)
    };
    if is_convex(&samples) {
        let mut certificate = optimality(&point, squared_norm, beta, given, &groups, compare)?;
        if let (Some(_), Certificate::Optimality(o)) = (penalty, &mut certificate) {
            o.bias = vec![bias];
        }
        return Ok(certificate);
    }
    let mut certificate = stationarity(&point, squared_norm, beta, given, &groups)?;
    if let Certificate::Stationarity(s) = &mut certificate {
        let largest = weights.iter().fold(0.0f64, |m, w| m.max(w.abs()));
        s.stationarity = s.stationarity.max((2.0 * compare(beta)?).sqrt() / largest.max(1.0));
        if penalty.is_some() {
            s.bias = vec![bias];
        }
    }
    Ok(certificate)
}
