//! The way back from steps on the active samples that went too far for the others.

use super::newton::NewtonDirection;
use super::smooth_loss::SmoothLoss;
use super::state::{LinearState, dot};
use crate::control::Interrupt;
use crate::gram::Pick;

/// Slope at the end of steps on active samples, relative to that at their beginning, from which they went too far.
const OVERSHOT: f64 = 0.5;

/// Where steps on the active samples began.
pub(super) struct Departure {
    pub(super) w: Vec<f64>,
    pub(super) b: f64,
    z: Vec<f64>,
    beta: Vec<f64>,
    v: Vec<f64>,
    sum: f64,
}

impl LinearState<'_, '_> {
    /// The point as it is.
    pub(super) fn departure(&self) -> Departure {
        let (w, z, beta, v) = (self.w.clone(), self.z.clone(), self.beta.clone(), self.v.clone());
        Departure { w, b: self.b, z, beta, v, sum: self.sum }
    }

    /// Steps on the active samples take the losses of all others to be linear. If they went too far for those, goes back on the
    /// line to where the steps began, to its lowest point: without that, samples that pass a kink outside the active set would push
    /// the next steps as far to the other side.
    pub(super) fn retreat<L: SmoothLoss>(&mut self, losses: &L, before: Departure) -> Result<(), Interrupt> {
        let mut direction = NewtonDirection { w: self.w.clone(), b: self.b - before.b, dots: None };
        direction.w.iter_mut().zip(&before.w).for_each(|(d, w)| *d -= w);
        let bias = |b: f64, sum: f64| self.rho.map_or(0.0, |rho| (rho * b - sum) * direction.b);
        let begin = dot(&before.w, &direction.w) - dot(&before.v, &direction.w) + bias(before.b, before.sum);
        let end = dot(&self.w, &direction.w) - dot(&self.v, &direction.w) + bias(self.b, self.sum);
        if !(begin < 0.0 && end > OVERSHOT * -begin) {
            return Ok(());
        }
        let mut dz = before.z.clone();
        dz.iter_mut().zip(&self.z).for_each(|(dz, z)| *dz = z - *dz);
        (self.w, self.b, self.z) = (before.w, before.b, before.z);
        (self.beta, self.v, self.sum) = (before.beta, before.v, before.sum);
        let t = self.line_search(losses, Pick::All, &direction, &dz)?;
        self.w.iter_mut().zip(&direction.w).for_each(|(w, dw)| *w += t * dw);
        self.b += t * direction.b;
        self.z.iter_mut().zip(&dz).for_each(|(z, dz)| *z += t * dz);
        self.update_beta(losses, Pick::All)
    }
}

#[cfg(test)]
mod tests {
    use super::super::smooth_loss::{DualTerms, SmoothedDual};
    use super::*;
    use crate::backend::cpu::rows::RowMatrix;
    use crate::control::{Control, Threads};
    use crate::data::Points;
    use crate::loss::Hinge;
    use crate::observe::Silent;
    use crate::problem::{Bias, LinearProblem};

    /// From w = 0, a step that is far too long for the hinge ends at the lowest point on its line; a short one stays.
    #[test]
    fn a_step_that_went_too_far_is_shortened() {
        let n = 400;
        let values: Vec<f64> = (0..2 * n).map(|i| (0.37 * (i * i % 101) as f64).sin()).collect();
        let targets: Vec<f64> = (0..n).map(|i| if values[2 * i] > 0.1 { 1.0 } else { -1.0 }).collect();
        let points = Points::dense_f64(n, 2, values).unwrap();
        let (matrix, costs, control) = (RowMatrix::new(&points), vec![1.0; n], Control::unlimited(Threads::one()));
        let problem = LinearProblem::new(&matrix, &targets, &costs, &Hinge, Bias::Free).unwrap();
        let terms = DualTerms::new(&problem).unwrap();
        let losses = SmoothedDual::new(&terms, 0.1, &vec![0.0; n]);
        let mut observer = Silent;
        let mut state = LinearState::at_zero(&problem, &control, &mut observer);
        state.update_beta(&losses, Pick::All).unwrap();
        let objective = |state: &LinearState<'_, '_>| {
            0.5 * dot(&state.w, &state.w) + (0..n).map(|i| losses.smooth_value(i, state.z[i])).sum::<f64>()
        };
        let at_zero = objective(&state);
        for (length, shortened) in [(1e-3, false), (10.0, true)] {
            let before = state.departure();
            state.w = vec![length * targets.len() as f64, 0.0];
            state.update_scores().unwrap();
            state.update_beta(&losses, Pick::All).unwrap();
            let there = objective(&state);
            assert_eq!(there > at_zero, shortened, "{there} {at_zero}");
            let far = state.w[0];
            state.retreat(&losses, before).unwrap();
            assert_eq!(state.w[0] < far, shortened);
            assert!(objective(&state) < at_zero);
            state.reset().unwrap();
            state.update_beta(&losses, Pick::All).unwrap();
        }
    }
}
