//! The sets of an iteration, and its direction.
//!
//! A sample whose model has no curvature (w = 0) is settled by its slope alone: β = γ, which is 0 where the loss is flat and a
//! bound where it is a straight line. Only the others, the free ones, enter the system. With Δβ = γ − β on the settled samples S,
//! the free ones F solve
//!
//! ```text
//! (K_FF + W⁻¹)Δβ_F + Δb = (γ − β)_F/w_F − K_FS·Δβ_S,      Σ_F Δβ = s − Σβ − Σ_S Δβ
//! ```
//!
//! which is the system of paper 000, (10), written for the change instead of the value, samples at a bound moved to the
//! right. The bias comes from the Schur complement of its row: with A = K_FF + W⁻¹, v = A⁻¹1 and x = A⁻¹(right),
//! Δb = (1ᵀx − sum)/(1ᵀv).

use super::reweight::Weights;
use super::system::Core;
use crate::control::Control;
use crate::gram::Pick;
use crate::linalg::factor::FactorError;

/// A weight this much below the largest settles the sample by its slope: in the system it would only be rounding.
const FAINT: f64 = 1e-13;

/// Where an iteration wants to go.
pub(super) struct Direction {
    pub(super) beta: Vec<f64>,
    pub(super) bias: f64,
    /// K·Δβ.
    pub(super) f: Vec<f64>,
    /// Samples in the system.
    pub(super) free: usize,
}

/// What the iteration starts from.
pub(super) struct At<'a> {
    pub(super) beta: &'a [f64],
    /// Σβ must be this, with a bias.
    pub(super) sum: Option<f64>,
}

impl Core<'_> {
    /// The direction these models give. Without a free sample the bias stays.
    pub(super) fn direction(
        &mut self,
        at: &At<'_>,
        weights: &Weights,
        accuracy: f64,
        control: &Control,
    ) -> Result<Direction, FactorError> {
        let mut d = self.unknowns(at, weights, accuracy, control)?;
        self.scores(&mut d, control)?;
        Ok(d)
    }

    /// K·Δβ.
    pub(super) fn scores(&self, d: &mut Direction, control: &Control) -> Result<(), FactorError> {
        d.f = self.product_rows(self.working(), Pick::All, &d.beta, 1, control)?;
        Ok(())
    }

    /// The same without its scores.
    pub(super) fn unknowns(
        &mut self,
        at: &At<'_>,
        weights: &Weights,
        accuracy: f64,
        control: &Control,
    ) -> Result<Direction, FactorError> {
        let n = at.beta.len();
        let largest = weights.weight.iter().fold(0.0, |m: f64, w| m.max(*w));
        let free: Vec<u32> = (0..n as u32).filter(|&i| weights.weight[i as usize] > FAINT * largest).collect();
        let mut delta: Vec<f64> = (0..n).map(|i| weights.gamma[i] - at.beta[i]).collect();
        let own: Vec<f64> = free.iter().map(|&i| delta[i as usize] / weights.weight[i as usize]).collect();
        free.iter().for_each(|&i| delta[i as usize] = 0.0);
        let value: Vec<f64> = if free.is_empty() || delta.iter().all(|d| *d == 0.0) {
            own
        } else {
            let settled = self.product_rows(self.working(), Pick::List(&free), &delta, 1, control)?;
            own.iter().zip(&settled).map(|(own, f)| own - f).collect()
        };
        let ridge: Vec<f64> = free.iter().map(|&i| 1.0 / weights.weight[i as usize]).collect();
        let mut bias = 0.0;
        let moved = match at.sum {
            None => self.solve(&free, &ridge, &[value], accuracy, control)?.remove(0),
            Some(sum) => {
                let ones = vec![1.0; free.len()];
                let mut solved = self.solve(&free, &ridge, &[value, ones], accuracy, control)?;
                let (v, mut x) = (solved.remove(1), solved.remove(0));
                let total: f64 = v.iter().sum();
                if total > 0.0 {
                    let wanted = sum - at.beta.iter().sum::<f64>() - delta.iter().sum::<f64>();
                    bias = (x.iter().sum::<f64>() - wanted) / total;
                    x.iter_mut().zip(&v).for_each(|(x, v)| *x -= bias * v);
                }
                x
            }
        };
        free.iter().zip(&moved).for_each(|(&i, m)| delta[i as usize] = *m);
        Ok(Direction { beta: delta, bias, f: Vec::new(), free: free.len() })
    }
}
