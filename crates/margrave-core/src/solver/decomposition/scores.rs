//! Scores K·β and the gradient that follows from them, in working and in double precision.

use super::rows::StoredEntry;
use super::solve::Decomposition;
use super::state::DualState;
use crate::certificate;
use crate::control::{Control, Status};
use crate::gram::{Pick, Precision};
use crate::problem::KernelProblem;

impl<T: StoredEntry> Decomposition<'_, '_, T> {
    /// Makes all variables active with a gradient computed from scratch; returns K·β by row. In double precision they
    /// are the certificate's scores: if β does not change any more, its proof needs no further product.
    pub(super) fn recompute_gradient(&mut self, precision: Precision) -> Result<Vec<f64>, Status> {
        let (problem, control) = (self.work.problem, self.work.control);
        self.state.restore_sums(&problem.constraint);
        let double = precision == Precision::Double || size_of::<T>() == 8;
        let f = if double {
            let scores = match self.exact.take() {
                Some(scores) => scores.moved(problem, &self.state.beta, control),
                None => certificate::scores(problem, &self.state.beta, control),
            };
            let scores = self.exact.insert(scores.map_err(Status::from)?);
            self.work.gradient_error = 0.0;
            scores.values().to_vec()
        } else {
            let (n, m) = problem.gram.shape();
            let mut v = vec![0.0; m];
            for (i, b) in self.state.beta.iter().enumerate() {
                v[problem.row(i)] += b;
            }
            let mut f = vec![0.0; n];
            self.work.gram.apply(precision, Pick::All, &v, 1, &mut f, control).map_err(Status::from)?;
            self.work.gradient_error = self.work.entry_error * v.iter().map(|b| b.abs()).sum::<f64>();
            f
        };
        self.set_gradient(&f);
        Ok(f)
    }

    /// g = Kβ + p + dβ for all variables, all of them active.
    pub(super) fn set_gradient(&mut self, f: &[f64]) {
        self.work.shrunk = None;
        self.state.activate_all(self.work.problem, f);
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
