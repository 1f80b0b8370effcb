//! The certificate of a linear machine with the L1 penalty.
//!
//! P(w, b) = ‖w‖₁ + |b|/s + Σ cᵢℓ(yᵢ, zᵢ) and D(γ) = −Σ cᵢℓ*(yᵢ, −γᵢ/cᵢ) subject to ‖Xᵀγ‖∞ ≤ 1, and Σγ = 0 for a free bias or
//! s·|Σγ| ≤ 1 for a penalised one. β is repaired as ever and scaled down until the constraints hold: its box contains 0.

use super::{Certificate, FEASIBLE, Optimality, Point, bias, members, repair};
use crate::control::{Control, Interrupt};
use crate::gram::Pick;
use crate::problem::{Bias, LinearProblem};

/// Certifies the machine (w, b) of a convex loss with the L1 penalty and the dual point β. A free bias that is not the best one is
/// replaced by it. The violation is the largest excess of |Xᵀβ| over 1.
pub fn certify_l1(
    problem: &LinearProblem<'_>,
    weights: &[f64],
    bias: f64,
    beta: &[f64],
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let samples = problem.samples();
    let x = problem.matrix;
    let mut f = vec![0.0; x.rows()];
    x.dots(Pick::All, weights, &mut f, control)?;
    let scaling = match problem.bias {
        Bias::Penalised { scaling } => Some(scaling),
        Bias::None | Bias::Free => None,
    };
    let fixed = if scaling.is_some() { bias } else { 0.0 };
    f.iter_mut().for_each(|f| *f += fixed);
    let point = Point { problem: &samples, f: &f, control };
    let groups = members(samples.constraint);
    let repaired = repair::repair(&samples, beta, &groups);
    let mut gamma = repaired.beta;
    let mut v = vec![0.0; x.dims()];
    x.combine(Pick::All, &gamma, &mut v, control)?;
    let mut most = v.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if let Some(s) = scaling {
        most = most.max(s * gamma.iter().sum::<f64>().abs());
    }
    let scale = 1.0 / most.max(1.0);
    gamma.iter_mut().for_each(|g| *g *= scale);
    let best = if problem.bias == Bias::Free { vec![bias::best(&point, 0, None, Some(bias), 1e-14)?] } else { vec![] };
    let norm: f64 = weights.iter().map(|w| w.abs()).sum::<f64>() + scaling.map_or(0.0, |s| bias.abs() / s);
    let primal = norm + point.primal(0.0, &best)?;
    let dual = -point.sum(None, |i| {
        let (c, y) = (samples.costs[i], samples.targets[i]);
        if c == 0.0 {
            return 0.0;
        }
        let (lo, hi) = problem.loss.domain(y);
        c * problem.loss.conjugate(y, (-gamma[i] / c).clamp(lo, hi)).unwrap_or(f64::INFINITY)
    })?;
    let dual = if repaired.exists { dual } else { f64::NEG_INFINITY };
    let gap = (primal - dual).max(0.0);
    Ok(Certificate::Optimality(Optimality {
        primal,
        dual,
        gap,
        relative_gap: if gap.is_finite() { gap / primal.abs().max(dual.abs()).max(1.0) } else { gap },
        violation: (most - 1.0).max(0.0),
        feasible: repaired.exists && repaired.infeasibility.max(most - 1.0) <= FEASIBLE,
        infeasibility: repaired.infeasibility.max(most - 1.0).max(0.0),
        bias: if problem.bias == Bias::Free { best } else { scaling.map(|_| bias).into_iter().collect() },
        bias_excess: None,
        squared_norm: weights.iter().map(|w| w * w).sum(),
        worst: Vec::new(),
    }))
}
