//! Scores K·β and the gradient that follows from them, in working and in double precision.

use super::rows::StoredEntry;
use super::solve::Decomposition;
use super::state::DualState;
use crate::control::{Control, Status};
use crate::gram::{Pick, Precision};
use crate::problem::KernelProblem;

/// K·v in double precision, where it is known.
pub(super) struct ExactScores {
    v: Vec<f64>,
    f: Vec<f64>,
    known: Vec<bool>,
}

impl<T: StoredEntry> Decomposition<'_, '_, T> {
    /// Makes all variables active with a gradient computed from scratch; returns K·β by row.
    pub(super) fn recompute_gradient(&mut self, precision: Precision) -> Result<Vec<f64>, Status> {
        let problem = self.work.problem;
        self.state.restore_sums(&problem.constraint);
        let (n, m) = problem.gram.shape();
        let mut v = vec![0.0; m];
        for (i, b) in self.state.beta.iter().enumerate() {
            v[problem.row(i)] += b;
        }
        let precision = if size_of::<T>() == 8 { Precision::Double } else { precision };
        if precision == Precision::Single {
            let mut f = vec![0.0; n];
            self.work.gram.apply(precision, Pick::All, &v, 1, &mut f, self.work.control).map_err(Status::from)?;
            self.work.gradient_error = self.work.entry_error * v.iter().map(|b| b.abs()).sum::<f64>();
            self.set_gradient(&f);
            return Ok(f);
        }
        let f = self.exact_scores(v)?;
        self.work.gradient_error = 0.0;
        self.set_gradient(&f);
        Ok(f)
    }

    /// K·v in double precision, v being β by column: from scratch, or from the scores before by the change in v where
    /// that touches fewer columns. Rows whose sample has β = 0 and certainly no loss, within the error of the score at
    /// hand, keep that score: nothing in objective or violation depends on its last digits.
    fn exact_scores(&mut self, v: Vec<f64>) -> Result<Vec<f64>, Status> {
        let (problem, control) = (self.work.problem, self.work.control);
        let n = problem.gram.shape().0;
        let (mut f, needed) = self.scores_from_gradient();
        let apply = |rows: &[u32], v: &[f64]| {
            let mut out = vec![0.0; rows.len()];
            let pick = if rows.len() == n { Pick::All } else { Pick::List(rows) };
            problem.gram.apply(Precision::Double, pick, v, 1, &mut out, control).map_err(Status::from).map(|()| out)
        };
        let count = |v: &[f64]| v.iter().filter(|x| **x != 0.0).count();
        let rows: Vec<u32> = (0..n as u32).filter(|&r| needed[r as usize]).collect();
        let mut from_scratch = rows.clone();
        let mut known = needed;
        if let Some(ExactScores { v: before, f: old, known: was_known }) = self.exact.take() {
            let change: Vec<f64> = v.iter().zip(&before).map(|(v, b)| v - b).collect();
            if 4 * count(&change) <= 3 * count(&v) {
                let updated: Vec<u32> = rows.iter().copied().filter(|&r| was_known[r as usize]).collect();
                from_scratch.retain(|&r| !was_known[r as usize]);
                for (&r, by) in updated.iter().zip(apply(&updated, &change)?) {
                    f[r as usize] = old[r as usize] + by;
                }
                if change.iter().all(|c| *c == 0.0) {
                    // Nothing moved: all scores known before are still exact.
                    for r in (0..n).filter(|&r| was_known[r]) {
                        (f[r], known[r]) = (old[r], true);
                    }
                }
            }
        }
        for (&r, score) in from_scratch.iter().zip(apply(&from_scratch, &v)?) {
            f[r as usize] = score;
        }
        self.exact = Some(ExactScores { v, f: f.clone(), known });
        Ok(f)
    }

    /// The score of every row as far as the gradient gives it, and whether a more exact one is needed.
    fn scores_from_gradient(&self) -> (Vec<f64>, Vec<bool>) {
        let problem = self.work.problem;
        let (state, n) = (&self.state, problem.gram.shape().0);
        let mut f = vec![0.0; n];
        let mut needed = vec![true; n];
        if problem.row_of.is_some() || state.active.len() < n || !self.work.gradient_error.is_finite() {
            return (f, needed);
        }
        let error = self.work.gradient_error + 1e-9;
        let multipliers = state.multipliers();
        for (a, &i) in state.active.iter().enumerate() {
            let i = i as usize;
            let t = &state.terms[i];
            f[i] = state.g[a] - t.p - t.d * state.beta[i];
            let bias = if state.paired { -multipliers[state.group[i] as usize] } else { 0.0 };
            let loss = |z: f64| problem.costs[i] * problem.loss(i).value(problem.targets[i], z);
            let z = f[i] + bias;
            // Twice the error, and a margin: the bias that the certificate finds best may differ by as much.
            let margin = 2.0 * error + 1e-3;
            needed[i] = state.beta[i] != 0.0 || [z - margin, z, z + margin].into_iter().any(|z| loss(z) != 0.0);
        }
        (f, needed)
    }

    /// g = Kβ + p + dβ for all variables, all of them active.
    pub(super) fn set_gradient(&mut self, f: &[f64]) {
        let problem = self.work.problem;
        let g: Vec<f64> = (0..problem.len())
            .map(|i| f[problem.row(i)] + self.state.terms[i].p + self.state.terms[i].d * self.state.beta[i])
            .collect();
        self.work.shrunk = None;
        self.state.activate((0..problem.len() as u32).collect(), g);
    }
}

/// Whether differences of single-precision entries still separate pairs of points: the typical pair curvature
/// κ = Kᵢᵢ + Kⱼⱼ − 2Kᵢⱼ is well above the rounding of its terms.
pub(super) fn single_precision_suffices(problem: &KernelProblem<'_>, state: &DualState) -> bool {
    const SAMPLE: usize = 24;
    let n = problem.len();
    if n == 0 {
        return true;
    }
    let rows: Vec<u32> = (0..SAMPLE.min(n)).map(|k| problem.row(k * n / SAMPLE.min(n)) as u32).collect();
    let mut block = vec![0.0; rows.len() * rows.len()];
    let control = Control::unlimited(crate::Threads::one());
    // A Gram of the sample alone, so that nothing is prepared for all points.
    let computed = match problem.gram.select(&rows) {
        Some(sample) => sample.block_f64(Pick::All, Pick::All, &mut block, &control),
        None => problem.gram.block_f64(Pick::List(&rows), Pick::List(&rows), &mut block, &control),
    };
    if computed.is_err() {
        return true;
    }
    let m = rows.len();
    let mut ratios: Vec<f64> = Vec::new();
    for a in 0..m {
        for b in 0..a {
            let (kaa, kbb) = (block[a * m + a], block[b * m + b]);
            let scale = kaa.abs().max(kbb.abs());
            let kappa = kaa + kbb - 2.0 * block[a * m + b];
            if scale > 0.0 {
                ratios.push(kappa / scale);
            }
        }
    }
    let largest = state.kernel_diag.iter().fold(0.0, |w: f64, v| w.max(v.abs()));
    if ratios.is_empty() {
        return largest <= 1e3;
    }
    let middle = ratios.len() / 2;
    let typical = *ratios.select_nth_unstable_by(middle, f64::total_cmp).1;
    typical >= 1e-3 && largest <= 1e6
}
