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
//! distance of w from Xᵀγ is part of the gap. Cost: two passes over X, and the passes over the samples that every
//! certificate makes.

use std::sync::{Mutex, PoisonError};

use super::rounding::{self, UNIT};
use super::{Bounded, Certificate, Point, choose_bias, is_convex, members, optimality, stationarity};
use crate::control::{Control, Interrupt};
use crate::data::{Csr, Points, Real, Storage};
use crate::gram::Matrix;
use crate::linalg::sparse::{DenseDots, DenseSums, add_with_size, dot_and_size};
use crate::linalg::vectorised::vectorised;
use crate::problem::{Bias, LinearProblem};

/// Rows per task of a loop over all rows.
const TASK_ROWS: usize = 1 << 11;

/// The scores Xw with bounds on their rounding errors, computed only in this module.
pub struct LinearScores<'a> {
    matrix: &'a dyn Matrix,
    weights: &'a [f64],
    pub(super) f: Vec<f64>,
    pub(super) error: Vec<f64>,
}

impl LinearScores<'_> {
    /// w·x of every row.
    pub fn values(&self) -> &[f64] {
        &self.f
    }

    /// Adds `fixed` to every score.
    pub(super) fn shifted(mut self, fixed: f64) -> Self {
        if fixed != 0.0 {
            self.f.iter_mut().for_each(|f| *f += fixed);
            self.error.iter_mut().for_each(|e| *e += UNIT * 2.0 * fixed.abs());
        }
        self
    }
}

/// The arrays of sparse rows: reading them through the points takes a virtual call per row and array.
struct SparseRows<'a, T> {
    starts: &'a [usize],
    columns: &'a [u32],
    values: &'a [T],
}

impl<'a, T: Real> SparseRows<'a, T> {
    fn new(m: &'a Csr<T>) -> Self {
        Self { starts: m.starts(), columns: m.columns(), values: m.values() }
    }

    fn row(&self, i: usize) -> (&'a [u32], &'a [T]) {
        let range = self.starts[i]..self.starts[i + 1];
        (&self.columns[range.clone()], &self.values[range])
    }
}

/// Σ w·x and a bound on its rounding error for the rows `first..first + f.len()`: the terms and their magnitudes are summed
/// in one pass.
fn score_rows(points: &Points, first: usize, weights: &[f64], f: &mut [f64], error: &mut [f64]) {
    // A row with m stored values needs a chain of at most m additions.
    let bound = |count: usize, size: f64| UNIT * (count as f64 + 8.0) * size;
    fn sparse<T: Real>(m: &Csr<T>, first: usize, w: &[f64], mut out: impl FnMut(usize, usize, f64, f64), count: usize) {
        let rows = SparseRows::new(m);
        for at in 0..count {
            let (columns, values) = rows.row(first + at);
            let (sum, size) = dot_and_size(columns, values, w);
            out(at, columns.len(), sum, size);
        }
    }
    let (count, d) = (f.len(), points.dims());
    let mut out = |at: usize, stored: usize, sum: f64, size: f64| {
        f[at] = sum;
        error[at] = bound(stored, size);
    };
    let range = first * d..(first + count) * d;
    match points.storage() {
        Storage::SparseF32(m) => sparse(m, first, weights, out, count),
        Storage::SparseF64(m) => sparse(m, first, weights, out, count),
        _ if d == 0 => (0..count).for_each(|at| out(at, 0, 0.0, 0.0)),
        Storage::DenseF32(m) => {
            let out = |at: usize, sum: f64, size: f64| out(at, d, sum, size);
            vectorised(DenseDots { values: &m.values()[range], w: weights, out });
        }
        Storage::DenseF64(m) => {
            let out = |at: usize, sum: f64, size: f64| out(at, d, sum, size);
            vectorised(DenseDots { values: &m.values()[range], w: weights, out });
        }
    }
}

/// Xw.
pub fn linear_scores<'a>(
    x: &'a dyn Matrix,
    weights: &'a [f64],
    control: &Control,
) -> Result<LinearScores<'a>, Interrupt> {
    let (mut f, mut error) = (vec![0.0; x.rows()], vec![0.0; x.rows()]);
    match x.points() {
        Some(points) => {
            let tasks: Vec<Mutex<(&mut [f64], &mut [f64])>> =
                f.chunks_mut(TASK_ROWS).zip(error.chunks_mut(TASK_ROWS)).map(Mutex::new).collect();
            control.spend(points.stored());
            control.threads.each(tasks.len(), |task| {
                if control.check().is_ok() {
                    let mut part = tasks[task].lock().unwrap_or_else(PoisonError::into_inner);
                    let (f, error) = &mut *part;
                    score_rows(points, task * TASK_ROWS, weights, f, error);
                }
            });
            control.check()?;
        }
        None => each_streamed_block(x, control, |first, points| {
            let range = first..first + points.len();
            score_rows(points, 0, weights, &mut f[range.clone()], &mut error[range]);
        })?,
    }
    Ok(LinearScores { matrix: x, weights, f, error })
}

/// Calls `work(first row, points)` for every block of a matrix that is read in blocks.
fn each_streamed_block(
    x: &dyn Matrix,
    control: &Control,
    mut work: impl FnMut(usize, &Points),
) -> Result<(), Interrupt> {
    let order: Vec<u32> = (0..x.blocks() as u32).collect();
    x.each_block(&order, control, &mut |first, points| {
        work(first, points);
        control.check()
    })
}

/// Adds γ·x and its magnitude, over the rows `first..first + γ.len()`, to `sums`.
fn sum_rows(points: &Points, first: usize, gamma: &[f64], sums: &mut [[f64; 2]]) {
    fn sparse<T: Real>(m: &Csr<T>, first: usize, gamma: &[f64], sums: &mut [[f64; 2]]) {
        let rows = SparseRows::new(m);
        for (at, c) in gamma.iter().enumerate().filter(|(_, c)| **c != 0.0) {
            let (columns, values) = rows.row(first + at);
            add_with_size(columns, values, *c, sums);
        }
    }
    let d = sums.len();
    let range = first * d..(first + gamma.len()) * d;
    match points.storage() {
        Storage::SparseF32(m) => sparse(m, first, gamma, sums),
        Storage::SparseF64(m) => sparse(m, first, gamma, sums),
        Storage::DenseF32(m) => vectorised(DenseSums { values: &m.values()[range], c: gamma, out: sums }),
        Storage::DenseF64(m) => vectorised(DenseSums { values: &m.values()[range], c: gamma, out: sums }),
    }
}

/// Xᵀγ, and bounds on the rounding errors of its entries. Both stay in the array of their sums: with many features, vectors
/// of their own cost more than the passes over the rows.
pub(super) struct Combination {
    /// Sums of the terms, and of their magnitudes.
    sums: Vec<[f64; 2]>,
    /// Rounding error in units of the magnitudes.
    unit: f64,
}

impl Combination {
    /// Entries and bounds on their errors.
    fn each(&self) -> impl Iterator<Item = (f64, f64)> {
        self.sums.iter().map(|sum| (sum[0], sum[1] * self.unit))
    }

    /// The entries, and the bounds on their errors.
    pub(super) fn into_vectors(self) -> (Vec<f64>, Vec<f64>) {
        self.each().unzip()
    }
}

/// Xᵀγ: the terms and their magnitudes are summed in one pass.
pub(super) fn combination(x: &dyn Matrix, gamma: &[f64], control: &Control) -> Result<Combination, Interrupt> {
    let mut sums = vec![[0.0; 2]; x.dims()];
    match x.points() {
        Some(points) => {
            // One sum of length d per group of rows, where a group is long enough to be worth it.
            let groups = (points.stored() / (8 * x.dims() + (1 << 15))).clamp(1, 16);
            let each = points.len().div_ceil(groups).max(1);
            control.spend(points.stored());
            let run = |group: usize, sums: &mut [[f64; 2]]| {
                let end = ((group + 1) * each).min(points.len());
                for first in (group * each..end).step_by(TASK_ROWS) {
                    if control.check().is_err() {
                        break;
                    }
                    sum_rows(points, first, &gamma[first..(first + TASK_ROWS).min(end)], sums);
                }
            };
            if groups == 1 {
                run(0, &mut sums);
            } else {
                let parts = control.threads.map(groups, |group| {
                    let mut part = vec![[0.0; 2]; x.dims()];
                    run(group, &mut part);
                    part
                });
                for part in &parts {
                    sums.iter_mut().zip(part).for_each(|(sum, p)| *sum = [sum[0] + p[0], sum[1] + p[1]]);
                }
            }
            control.check()?;
        }
        None => each_streamed_block(x, control, |first, points| {
            sum_rows(points, 0, &gamma[first..first + points.len()], &mut sums);
        })?,
    }
    let used = gamma.iter().filter(|g| **g != 0.0).count() as f64 + 32.0;
    Ok(Combination { sums, unit: UNIT * used })
}

/// The free bias that minimises P for the weights w. `given` is returned if it is as good up to rounding.
pub fn best_bias_linear(
    problem: &LinearProblem<'_>,
    weights: &[f64],
    given: f64,
    control: &Control,
) -> Result<f64, Interrupt> {
    best_bias_of_scores(problem, &linear_scores(problem.matrix, weights, control)?, given, control)
}

/// The same for known scores.
pub fn best_bias_of_scores(
    problem: &LinearProblem<'_>,
    scores: &LinearScores<'_>,
    given: f64,
    control: &Control,
) -> Result<f64, Interrupt> {
    let samples = problem.samples();
    if problem.bias != Bias::Free || (!is_convex(&samples) && given.is_finite()) {
        return Ok(given);
    }
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
    certify_scores(problem, linear_scores(problem.matrix, weights, control)?, bias, beta, control)
}

/// The same for known scores, which tell the weights.
pub fn certify_scores(
    problem: &LinearProblem<'_>,
    scores: LinearScores<'_>,
    bias: f64,
    beta: &[f64],
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let samples = problem.samples();
    // The scores are of their own matrix: so is the rest of the proof.
    let (x, weights) = (scores.matrix, scores.weights);
    let penalty = match problem.bias {
        Bias::Penalised { .. } => problem.bias.penalty(),
        Bias::None | Bias::Free => None,
    };
    // A penalised bias is one more weight, and part of f.
    let fixed = if penalty.is_some() { bias } else { 0.0 };
    let scores = scores.shifted(fixed);
    let mut squared_norm: f64 = weights.iter().map(|w| w * w).sum();
    squared_norm += penalty.map_or(0.0, |p| p * bias * bias);
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    let groups = members(samples.constraint);
    let own = if problem.bias == Bias::Free { vec![bias] } else { vec![] };
    let compare = |gamma: &[f64]| {
        let v = combination(x, gamma, control)?;
        let (mut distance, mut upper) = (0.0f64, 0.0f64);
        for (w, (v, e)) in weights.iter().zip(v.each()) {
            distance += (w - v) * (w - v);
            upper += ((w - v).abs() + e).powi(2);
        }
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
