//! The certificate of a linear model given by w.
//!
//! A primal method finds w, a dual one β, and w = Xᵀβ holds only approximately. P is evaluated at (w, b) and D at a
//! feasible γ near β:
//!
//! ```text
//! gap = ½‖w − Xᵀγ‖² + ½(ρb − Σγ)²/ρ + Σᵢ cᵢ·[ ℓ(yᵢ, zᵢ) + ℓ*(yᵢ, −γᵢ/cᵢ) + (γᵢ/cᵢ)·zᵢ ],   z = Xw + b
//! ```
//!
//! where the middle term is present only for a penalised bias. The violation compares γ with the scores of w; the
//! distance of w from Xᵀγ is part of the gap. Cost: four passes over X, and the passes over the samples that every
//! certificate makes.

use super::rounding::{self, UNIT};
use super::{Bounded, Certificate, Point, choose_bias, is_convex, members, optimality, stationarity};
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::gram::{Matrix, Pick};
use crate::problem::{Bias, LinearProblem};

/// Rows per task of a loop over all rows.
const TASK_ROWS: usize = 1 << 11;

/// The scores of w with bounds on their rounding errors, computed only in this module.
pub(super) struct LinearScores {
    pub(super) f: Vec<f64>,
    pub(super) error: Vec<f64>,
}

/// Xw, plus `fixed`.
pub(super) fn linear_scores(
    x: &dyn Matrix,
    weights: &[f64],
    fixed: f64,
    control: &Control,
) -> Result<LinearScores, Interrupt> {
    let mut f = vec![0.0; x.rows()];
    x.dots(Pick::All, weights, &mut f, control)?;
    let mut error = vec![0.0; x.rows()];
    // A row with m stored values needs a chain of at most m additions.
    let of_row = |points: &Points, at: usize| {
        let (mut sum, mut count) = (0.0, 8.0);
        points.visit(at, |column, value| {
            sum += (weights[column] * value).abs();
            count += 1.0;
        });
        UNIT * (count * sum + 2.0 * fixed.abs())
    };
    match x.points() {
        Some(points) => {
            control.threads.chunks(&mut error, TASK_ROWS, |task, part| {
                if control.check().is_ok() {
                    part.iter_mut().enumerate().for_each(|(k, e)| *e = of_row(points, task * TASK_ROWS + k));
                }
            });
            control.check()?;
        }
        None => each_streamed_row(x, control, |row, points, at| error[row] = of_row(points, at))?,
    }
    f.iter_mut().for_each(|f| *f += fixed);
    Ok(LinearScores { f, error })
}

/// Calls `work(row, points, row within points)` for every row of a matrix that is read in blocks.
fn each_streamed_row(
    x: &dyn Matrix,
    control: &Control,
    mut work: impl FnMut(usize, &Points, usize),
) -> Result<(), Interrupt> {
    let order: Vec<u32> = (0..x.blocks() as u32).collect();
    x.each_block(&order, control, &mut |first, points| {
        (0..points.len()).for_each(|at| work(first + at, points, at));
        control.check()
    })
}

/// Xᵀγ with bounds on the rounding errors of its entries.
pub(super) fn combination(x: &dyn Matrix, gamma: &[f64], control: &Control) -> Result<(Vec<f64>, Vec<f64>), Interrupt> {
    let mut v = vec![0.0; x.dims()];
    x.combine(Pick::All, gamma, &mut v, control)?;
    let mut error = vec![0.0; x.dims()];
    let add = |error: &mut [f64], size: f64, points: &Points, at: usize| {
        if size > 0.0 {
            points.visit(at, |column, value| error[column] += size * value.abs());
        }
    };
    match x.points() {
        Some(points) => {
            // One sum of length d per group of rows, where a group is long enough to be worth it.
            let groups = (points.stored() / (4 * x.dims() + (1 << 15))).clamp(1, 16);
            let each = points.len().div_ceil(groups).max(1);
            let parts = control.threads.map(groups, |group| {
                let mut part = vec![0.0; x.dims()];
                for row in group * each..((group + 1) * each).min(points.len()) {
                    if row % 1024 == 0 && control.check().is_err() {
                        break;
                    }
                    add(&mut part, gamma[row].abs(), points, row);
                }
                part
            });
            control.check()?;
            parts.iter().for_each(|part| error.iter_mut().zip(part).for_each(|(e, p)| *e += p));
        }
        None => each_streamed_row(x, control, |row, points, at| add(&mut error, gamma[row].abs(), points, at))?,
    }
    let used = gamma.iter().filter(|g| **g != 0.0).count() as f64 + 32.0;
    error.iter_mut().for_each(|e| *e *= UNIT * used);
    Ok((v, error))
}

/// The free bias that minimises P for the weights w. `given` is returned if it is as good up to rounding.
pub fn best_bias_linear(
    problem: &LinearProblem<'_>,
    weights: &[f64],
    given: f64,
    control: &Control,
) -> Result<f64, Interrupt> {
    let samples = problem.samples();
    if problem.bias != Bias::Free || (!is_convex(&samples) && given.is_finite()) {
        return Ok(given);
    }
    let scores = linear_scores(problem.matrix, weights, 0.0, control)?;
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    let best = choose_bias(&point, Some(&[given]), &members(samples.constraint))?;
    Ok(best.first().copied().unwrap_or(given))
}

/// Certifies the model (w, b), using the dual point β for the lower bound. The given bias is used as it is; it is
/// ignored if the problem has no bias.
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
    // A penalised bias is one more weight, and part of f.
    let fixed = if penalty.is_some() { bias } else { 0.0 };
    let scores = linear_scores(x, weights, fixed, control)?;
    let mut squared_norm: f64 = weights.iter().map(|w| w * w).sum();
    squared_norm += penalty.map_or(0.0, |p| p * bias * bias);
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    let groups = members(samples.constraint);
    let own = if problem.bias == Bias::Free { vec![bias] } else { vec![] };
    let compare = |gamma: &[f64]| {
        let (v, errors) = combination(x, gamma, control)?;
        let each = || weights.iter().zip(&v).zip(&errors);
        let mut distance: f64 = each().map(|((w, v), _)| (w - v) * (w - v)).sum();
        let mut upper: f64 = each().map(|((w, v), e)| ((w - v).abs() + e).powi(2)).sum();
        if let Some(p) = penalty {
            let sum = point.sum(None, |i| gamma[i])?;
            let size = point.sum(None, |i| gamma[i].abs())?;
            let off = (p * bias - sum).abs();
            distance += off * off / p;
            upper += (off + UNIT * (gamma.len() as f64 + 8.0) * size).powi(2) / p;
        }
        Ok(Bounded { value: 0.5 * distance, rounding: 0.5 * (upper - distance).max(0.0) })
    };
    if is_convex(&samples) {
        let mut certificate = optimality(&point, squared_norm, beta, own, &groups, compare)?;
        if let (Some(_), Certificate::Optimality(o)) = (penalty, &mut certificate) {
            o.bias = vec![bias];
        }
        return Ok(certificate);
    }
    let mut certificate = stationarity(&point, squared_norm, beta, own, &groups)?;
    if let Certificate::Stationarity(s) = &mut certificate {
        let largest = weights.iter().fold(0.0f64, |m, w| m.max(w.abs()));
        s.stationarity = s.stationarity.max((2.0 * compare(beta)?.value).sqrt() / largest.max(1.0));
        if penalty.is_some() {
            s.bias = vec![bias];
        }
    }
    Ok(certificate)
}

/// Bound on the rounding error of a sum of `count` terms with total magnitude `size`.
pub(super) fn of_sum(count: usize, size: f64) -> f64 {
    UNIT * (rounding::chain(count) * 8.0) * size
}
