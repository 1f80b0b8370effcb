//! Leave-one-out scores without refitting, and the residuals of regression.
//!
//! **Leave-one-out.** At the optimum the free variables F (inside their box, where h is smooth) satisfy M·(β_F, b) = const
//! with M = [K_FF + D, 1; 1ᵀ, 0], D = diag(d) of their dual terms, while bounded variables stay at their bounds. If no other
//! variable changes its state, leaving out sample i changes its score from zᵢ to
//!
//! ```text
//! zᵢ − βᵢ·(1/(M⁻¹)ᵢᵢ − dᵢ)              i free
//! zᵢ − βᵢ·(Kᵢᵢ − vᵢᵀM⁻¹vᵢ)              i at a bound, vᵢ = (K_Fi, 1)
//! zᵢ                                      βᵢ = 0
//! ```
//!
//! which is exact for the square loss (everything is free) and the span rule of Vapnik and Chapelle for the hinge. Cost:
//! |F|³/3 to factor, |F|² per sample.

use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick};
use crate::problem::{Constraint, KernelProblem};
use crate::solver::ridge::Halt;
use crate::solver::ridge::direct::System;

/// Largest number of bounded samples that are left out, evenly spread: a sigmoid needs no more.
const MAX_BOUNDED_SAMPLES: usize = 2000;
/// Number of samples per block of right-hand sides.
const BATCH: usize = 128;

/// Rows and their leave-one-out scores, bias included.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// Rows of the problem.
    pub rows: Vec<u32>,
    /// Out-of-sample score of each.
    pub scores: Vec<f64>,
}

/// Leave-one-out scores of a solution (β, b) with K·β = `f`. At most a few thousand bounded samples, evenly
/// spread, are evaluated (and then the same fraction of the others). `None` where there is no closed form (a loss without a dual
/// term, several biases, an indefinite K) or the factor does not fit in `memory` bytes.
pub fn leave_one_out(
    problem: &KernelProblem<'_>,
    beta: &[f64],
    bias: &[f64],
    f: &[f64],
    memory: u64,
    control: &Control,
) -> Result<Option<LeftOut>, Interrupt> {
    let bordered = match problem.constraint {
        Constraint::None => false,
        Constraint::Sum(_) => true,
        Constraint::Groups { .. } => return Ok(None),
    };
    if problem.row_of.is_some() {
        return Ok(None);
    }
    let n = problem.len();
    let b = bias.first().copied().unwrap_or(0.0);
    let (mut free, mut ridge, mut bound, mut rest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for i in 0..n {
        let Some(term) = problem.dual_term(i) else { return Ok(None) };
        let edge = |limit: f64| limit.is_finite() && (beta[i] - limit).abs() <= 1e-9 * limit.abs();
        if problem.costs[i] == 0.0 || beta[i] == 0.0 {
            rest.push(i as u32);
        } else if edge(term.lo) || edge(term.hi) {
            bound.push(i as u32);
        } else {
            free.push(i as u32);
            ridge.push(term.d);
        }
    }
    if 3 * (free.len() as u64).pow(2) * 8 > memory {
        return Ok(None);
    }
    let step = bound.len().div_ceil(MAX_BOUNDED_SAMPLES).max(1);
    let spread = |list: &[u32]| list.iter().copied().step_by(step).collect::<Vec<u32>>();
    let bound = spread(&bound);
    let mut out = LeftOut { rows: spread(&rest), scores: Vec::new() };
    out.scores = out.rows.iter().map(|&i| f[i as usize] + b).collect();
    let diag = problem.gram.diag();
    if free.is_empty() {
        // No variable but the bias can compensate for a bounded sample. The bias is then anywhere in an interval: it is kept.
        for &i in &bound {
            out.rows.push(i);
            out.scores.push(f[i as usize] + b - beta[i as usize] * diag[i as usize]);
        }
        return Ok(Some(out));
    }
    let system = match System::new(problem.gram, &free, &ridge, bordered, memory, control) {
        Ok(system) => system,
        Err(Halt::Interrupted(why)) => return Err(why),
        Err(Halt::Error(_)) => return Ok(None),
    };
    let inverse = system.inverse_diag(control)?;
    for ((&i, m), d) in free.iter().zip(&inverse).zip(&ridge).step_by(step) {
        // A free sample that alone determines the bias cannot be left out: it is on its margin either way.
        let moved = if *m > 0.0 { beta[i as usize] * (1.0 / m - d).max(0.0) } else { 0.0 };
        out.rows.push(i);
        out.scores.push(f[i as usize] + b - moved);
    }
    for chunk in bound.chunks(BATCH) {
        let v = columns(problem.gram, &free, chunk, control)?;
        let k = chunk.len();
        let solved = system.solve(&v, k, if bordered { 1.0 } else { 0.0 }, control)?;
        for (c, &i) in chunk.iter().enumerate() {
            let along: f64 = (0..free.len()).map(|r| v[r * k + c] * solved.beta[r * k + c]).sum();
            let border = if bordered { solved.bias[c] } else { 0.0 };
            let span = (diag[i as usize] - along - border).max(0.0);
            out.rows.push(i);
            out.scores.push(f[i as usize] + b - beta[i as usize] * span);
        }
    }
    Ok(Some(out))
}

fn columns(gram: &dyn Gram, rows: &[u32], cols: &[u32], control: &Control) -> Result<Vec<f64>, Interrupt> {
    let mut block = vec![0.0; rows.len() * cols.len()];
    gram.block_f64(Pick::List(rows), Pick::List(cols), &mut block, control)?;
    Ok(block)
}

/// Mean absolute residual, without those beyond five standard deviations, and the radii that contain given fractions of them.
pub fn residual_scale(residuals: &[f64], shares: &[f64]) -> (f64, Vec<(f64, f64)>) {
    let n = residuals.len().max(1) as f64;
    let mean = residuals.iter().map(|r| r.abs()).sum::<f64>() / n;
    // Standard deviation of a Laplace distribution with this mean absolute value.
    let deviation = (2.0 * mean * mean).sqrt();
    let kept: Vec<f64> = residuals.iter().map(|r| r.abs()).filter(|r| *r <= 5.0 * deviation).collect();
    let sigma = if kept.is_empty() { mean } else { kept.iter().sum::<f64>() / kept.len() as f64 };
    let mut sorted: Vec<f64> = residuals.iter().map(|r| r.abs()).collect();
    sorted.sort_by(f64::total_cmp);
    let radius = |share: f64| {
        // The rank that makes the interval valid for a new sample: ⌈share·(n + 1)⌉.
        let rank = (share * (sorted.len() as f64 + 1.0)).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
    };
    (sigma, shares.iter().map(|&share| (share, radius(share))).collect())
}

#[cfg(test)]
#[path = "calibrate_tests.rs"]
mod tests;
