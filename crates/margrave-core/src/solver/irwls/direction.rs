//! The free and fixed samples of an iteration, and its direction.
//!
//! A sample whose model has no curvature (w = 0) is fixed by its slope: β = γ, which is 0 where the loss is flat and a
//! bound where it is a straight line. Only the other samples, the free ones, enter the system. With Δβ = γ − β on the
//! fixed samples S, the free samples F solve
//!
//! ```text
//! (K_FF + W⁻¹)Δβ_F + Δb = (γ − β)_F/w_F − K_FS·Δβ_S,      Σ_F Δβ = s − Σβ − Σ_S Δβ
//! ```
//!
//! which is the system of paper 000, (10), written for the change instead of the value, with the samples at a bound
//! moved to the right-hand side. The bias comes from the Schur complement of its row: with A = K_FF + W⁻¹, v = A⁻¹1 and
//! x = A⁻¹(right), Δb = (1ᵀx − sum)/(1ᵀv).

use super::reweight::ModelWeights;
use super::system::SystemSolver;
use crate::control::Control;
use crate::gram::Pick;
use crate::linalg::factor::FactorError;

/// A sample whose weight is below this fraction of the largest is fixed by its slope: in the system it would be lost in
/// rounding.
const NEGLIGIBLE_WEIGHT: f64 = 1e-13;

/// The direction of an iteration.
pub(super) struct IrwlsDirection {
    pub(super) beta: Vec<f64>,
    pub(super) bias: f64,
    /// K·Δβ.
    pub(super) f: Vec<f64>,
    /// Samples in the system.
    pub(super) free: usize,
}

/// The point where a direction starts.
pub(super) struct DirectionStart<'a> {
    pub(super) beta: &'a [f64],
    /// Σβ must be this, with a bias.
    pub(super) sum: Option<f64>,
}

impl SystemSolver<'_> {
    /// The direction given by these models. Without a free sample the bias does not change.
    pub(super) fn direction(
        &mut self,
        at: &DirectionStart<'_>,
        weights: &ModelWeights,
        accuracy: f64,
        control: &Control,
    ) -> Result<IrwlsDirection, FactorError> {
        let mut d = self.direction_without_scores(at, weights, accuracy, control)?;
        self.add_scores(&mut d, control)?;
        Ok(d)
    }

    /// Computes K·Δβ.
    pub(super) fn add_scores(&self, d: &mut IrwlsDirection, control: &Control) -> Result<(), FactorError> {
        d.f = self.product_rows(self.working_precision(), Pick::All, &d.beta, 1, control)?;
        Ok(())
    }

    /// The direction without its scores K·Δβ.
    pub(super) fn direction_without_scores(
        &mut self,
        at: &DirectionStart<'_>,
        weights: &ModelWeights,
        accuracy: f64,
        control: &Control,
    ) -> Result<IrwlsDirection, FactorError> {
        let n = at.beta.len();
        let largest = weights.weight.iter().fold(0.0, |m: f64, w| m.max(*w));
        let free: Vec<u32> =
            (0..n as u32).filter(|&i| weights.weight[i as usize] > NEGLIGIBLE_WEIGHT * largest).collect();
        let mut delta: Vec<f64> = (0..n).map(|i| weights.gamma[i] - at.beta[i]).collect();
        let ratio: Vec<f64> = free.iter().map(|&i| delta[i as usize] / weights.weight[i as usize]).collect();
        free.iter().for_each(|&i| delta[i as usize] = 0.0);
        let value: Vec<f64> = if free.is_empty() || delta.iter().all(|d| *d == 0.0) {
            ratio
        } else {
            let fixed = self.product_rows(self.working_precision(), Pick::List(&free), &delta, 1, control)?;
            ratio.iter().zip(&fixed).map(|(ratio, f)| ratio - f).collect()
        };
        let ridge: Vec<f64> = free.iter().map(|&i| 1.0 / weights.weight[i as usize]).collect();
        let mut bias = 0.0;
        let free_delta = match at.sum {
            None => self.solve(&free, &ridge, &[value], accuracy, control)?.remove(0),
            Some(sum) => {
                let ones = vec![1.0; free.len()];
                let mut solved = self.solve(&free, &ridge, &[value, ones], accuracy, control)?;
                let (v, mut x) = (solved.remove(1), solved.remove(0));
                let total: f64 = v.iter().sum();
                if total > 0.0 {
                    let free_sum = sum - at.beta.iter().sum::<f64>() - delta.iter().sum::<f64>();
                    bias = (x.iter().sum::<f64>() - free_sum) / total;
                    x.iter_mut().zip(&v).for_each(|(x, v)| *x -= bias * v);
                }
                x
            }
        };
        free.iter().zip(&free_delta).for_each(|(&i, m)| delta[i as usize] = *m);
        Ok(IrwlsDirection { beta: delta, bias, f: Vec::new(), free: free.len() })
    }
}
