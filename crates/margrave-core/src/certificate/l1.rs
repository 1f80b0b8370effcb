//! The certificate of a linear model with the L1 penalty.
//!
//! P(w, b) = ‖w‖₁ + |b|/s + Σ cᵢℓ(yᵢ, zᵢ) and D(γ) = −Σ cᵢℓ*(yᵢ, −γᵢ/cᵢ) subject to ‖Xᵀγ‖∞ ≤ 1, and Σγ = 0 for a free
//! bias or s·|Σγ| ≤ 1 for a penalised one. β is repaired as in the other certificates and scaled down until the
//! constraints hold, which is possible because its box contains 0.

use super::linear::{combination, linear_scores, of_sum};
use super::{CHUNK, Certificate, FEASIBLE, Optimality, Point, bulk, members, relative, repair};
use crate::control::{Control, Interrupt};
use crate::problem::{Bias, LinearProblem};

/// Certifies the model (w, b) of a convex loss with the L1 penalty, using the dual point β. The given bias is used as
/// it is. The violation is the largest excess of |Xᵀβ| over 1 as computed; its rounding is part of the gap.
pub fn certify_l1(
    problem: &LinearProblem<'_>,
    weights: &[f64],
    bias: f64,
    beta: &[f64],
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let samples = problem.samples();
    let x = problem.matrix;
    let scaling = match problem.bias {
        Bias::Penalised { scaling } => Some(scaling),
        Bias::None | Bias::Free => None,
    };
    let fixed = if scaling.is_some() { bias } else { 0.0 };
    let scores = linear_scores(x, weights, control)?.shifted(fixed);
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    let groups = members(samples.constraint);
    let repaired = repair::repair(&point, beta, &groups);
    let mut gamma = repaired.beta;
    let (v, errors) = combination(x, &gamma, control)?.into_vectors();
    let mut most = v.iter().zip(&errors).fold(0.0f64, |m, (v, e)| m.max(v.abs() + e));
    let mut computed = v.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if let Some(s) = scaling {
        let of_bias = s * gamma.iter().sum::<f64>().abs();
        (most, computed) = (most.max(of_bias), computed.max(of_bias));
    }
    // Scale slightly more than needed, so that rounding cannot leave the point infeasible.
    let scale = if most > 1.0 { (1.0 - 4.0 * f64::EPSILON) / most } else { 1.0 };
    gamma.iter_mut().for_each(|g| *g *= scale);
    let own = if problem.bias == Bias::Free { vec![bias] } else { vec![] };
    let norm: f64 = weights.iter().map(|w| w.abs()).sum::<f64>() + scaling.map_or(0.0, |s| bias.abs() / s);
    let primal = norm + point.primal(0.0, &own)?;
    let n = samples.len();
    let tasks = |task: usize| task * CHUNK..((task + 1) * CHUNK).min(n);
    let count = n.div_ceil(CHUNK);
    let conjugates = control.threads.map(count, |task| bulk::conjugates(&samples, tasks(task), &gamma)).concat();
    let value = -point.sum(None, |i| conjugates[i])?;
    let sizes = point.sum(None, |i| conjugates[i].abs())? + primal.abs();
    let terms = control.threads.map(count, |task| bulk::terms(&point, tasks(task), &gamma, &own)).concat();
    let of_scores = point.sum(None, |i| terms[i].1)?;
    let of_bias =
        own.first().map_or(0.0, |b| 4.0 * f64::EPSILON * b.abs() * gamma.iter().map(|g| g.abs()).sum::<f64>());
    let rounding = of_scores + of_sum(samples.len(), sizes) + of_bias;
    let mut gap = (primal - value).max(0.0) + rounding;
    if !repaired.exists || gap.is_nan() || !primal.is_finite() {
        gap = f64::INFINITY;
    }
    let dual = primal - gap;
    Ok(Certificate::Optimality(Optimality {
        primal,
        dual,
        gap,
        rounding,
        at_zero: point.sum_values(|_| 0.0)?,
        relative_gap: relative(gap, primal, dual),
        violation: (computed - 1.0).max(0.0),
        feasible: repaired.exists && repaired.infeasibility.max(most - 1.0) <= FEASIBLE,
        infeasibility: repaired.infeasibility.max(most - 1.0).max(0.0),
        bias: if scaling.is_some() { vec![bias] } else { own },
        squared_norm: weights.iter().map(|w| w * w).sum(),
        definite: true,
        worst: Vec::new(),
        approximation: None,
    }))
}
