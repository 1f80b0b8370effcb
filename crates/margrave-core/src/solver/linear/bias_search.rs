//! The sum of β as a function of a shift of the bias, for the search for its root.

use super::smooth_loss::SmoothLoss;
use super::state::{CHUNK, sums};
use crate::control::Control;

/// Σβ(z + shift) as a function of the shift. β is monotone in the score, so a row whose β is the same at both ends of a
/// bracket has that β within it: only the other rows are evaluated again.
pub(super) struct BiasSearch<'a, L> {
    losses: &'a L,
    z: &'a [f64],
    control: &'a Control,
    /// Rows whose β may differ within the bracket; `None`: all.
    rows: Option<Vec<u32>>,
    /// Σβ and Σ|β| of the others.
    sum: f64,
    size: f64,
}

impl<'a, L: SmoothLoss> BiasSearch<'a, L> {
    /// Over all rows.
    pub(super) fn new(losses: &'a L, z: &'a [f64], control: &'a Control) -> Self {
        Self { losses, z, control, rows: None, sum: 0.0, size: 0.0 }
    }

    /// Σβ, Σ|β| and the sum of the curvatures.
    pub(super) fn sums(&self, shift: f64) -> [f64; 3] {
        let (losses, z) = (self.losses, self.z);
        let term = |i: usize| {
            let (beta, curvature) = losses.beta_and_curvature(i, z[i] + shift);
            [beta, beta.abs(), curvature]
        };
        let [sum, size, curvature] = match &self.rows {
            None => sums(self.control, z.len(), term),
            Some(rows) => sums(self.control, rows.len(), |k| term(rows[k] as usize)),
        };
        [self.sum + sum, self.size + size, curvature]
    }

    /// Leaves out the rows whose β is the same for all shifts from `low` to `high`.
    pub(super) fn narrow(&mut self, low: f64, high: f64) {
        let rows = self.rows.take().unwrap_or_else(|| (0..self.z.len() as u32).collect());
        let (losses, z) = (self.losses, self.z);
        let parts = self.control.threads.map(rows.len().div_ceil(CHUNK), |task| {
            let (mut left, mut sum, mut size) = (Vec::new(), 0.0, 0.0);
            for &i in &rows[task * CHUNK..((task + 1) * CHUNK).min(rows.len())] {
                let at = |shift: f64| losses.beta(i as usize, z[i as usize] + shift);
                let beta = at(low);
                if beta == at(high) {
                    sum += beta;
                    size += beta.abs();
                } else {
                    left.push(i);
                }
            }
            (left, sum, size)
        });
        let mut left = Vec::new();
        for (part, sum, size) in parts {
            left.extend(part);
            self.sum += sum;
            self.size += size;
        }
        self.rows = Some(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::rows::RowMatrix;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::loss::LossSpec;
    use crate::problem::{Bias, LinearProblem};
    use crate::solver::linear::smooth_loss::{DualTerms, SmoothedDual};

    #[test]
    fn rows_left_out_change_no_sum_within_the_bracket() {
        let n = 3 * CHUNK / 2;
        let points = Points::dense_f64(n, 1, vec![1.0; n]).unwrap();
        let matrix = RowMatrix::new(&points);
        let targets: Vec<f64> = (0..n).map(|i| if i % 3 == 0 { 1.0 } else { -1.0 }).collect();
        let costs: Vec<f64> = (0..n).map(|i| 1.0 + (i % 2) as f64).collect();
        let z: Vec<f64> = (0..n).map(|i| ((i * 7919) % 4001) as f64 / 1000.0 - 2.0).collect();
        let control = Control::unlimited(Threads::new(2));
        for (name, width) in [("hinge", 0.0), ("hinge", 0.1), ("squared-hinge", 0.0), ("pinball", 0.0)] {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            let problem = LinearProblem::new(&matrix, &targets, &costs, &*loss, Bias::Free).unwrap();
            let terms = DualTerms::new(&problem).unwrap();
            let losses = SmoothedDual::new(&terms, width, &vec![0.5; n]);
            let (all, mut search) = (BiasSearch::new(&losses, &z, &control), BiasSearch::new(&losses, &z, &control));
            for (low, high) in [(-0.3, 0.2), (-0.05, 0.1), (-0.001, 0.001)] {
                search.narrow(low, high);
                for shift in [low, 0.37 * low + 0.63 * high, high] {
                    let (expected, found) = (all.sums(shift), search.sums(shift));
                    // Sums of n terms in another order.
                    let rounding = n as f64 * f64::EPSILON * expected[1];
                    assert!((expected[0] - found[0]).abs() <= rounding, "{name} {shift}: {expected:?} {found:?}");
                    assert!((expected[1] - found[1]).abs() <= rounding, "{name} {shift}: {expected:?} {found:?}");
                }
            }
            // Scores are multiples of 0.001, and kinks at whole numbers or a width apart.
            let left = search.rows.as_ref().map_or(n, Vec::len);
            assert!(name == "squared-hinge" || width > 0.0 || left < n / 100, "{name}: {left}");
        }
    }
}
