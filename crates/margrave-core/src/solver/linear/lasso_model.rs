//! The quadratic model of the L1 penalty: minimise gᵀs + ½sᵀHs + Σ_j pⱼ|wⱼ + sⱼ| over s.
//!
//! Epochs of coordinate descent bring most weights to 0. For correlated columns, or columns far from the origin, the
//! others are found by an active-set method (the feature-sign search of Lee, Battle, Raina and Ng, NIPS 2006): the
//! nonzero weights move to the minimum of the quadratic under their current signs, at most up to the first change of a
//! sign. Then the zero weight with the largest violation enters. The objective falls with every step, and no set of
//! signs occurs twice.

use super::lasso::LassoState;
use crate::control::{Control, Interrupt};
use crate::linalg::factor::{Cholesky, FactorError};

/// Most epochs of coordinate descent.
const MAX_EPOCHS: usize = 200;
/// Tolerance of the violation, relative to that at the start.
const RELATIVE_TOLERANCE: f64 = 1e-7;
/// Most steps of the active-set method, per weight.
const MAX_STEPS_PER_WEIGHT: usize = 12;
/// Most floating-point operations on factors.
const MAX_WORK: f64 = 4e9;

/// The model, and the current step.
pub(super) struct PenalisedQuadratic<'a> {
    /// H, `size × size`, symmetric, with a positive diagonal.
    pub(super) matrix: &'a [f64],
    /// w at s = 0.
    pub(super) point: &'a [f64],
    /// Penalty of each weight; 0 for a free bias.
    pub(super) penalties: &'a [f64],
    /// s.
    pub(super) step: Vec<f64>,
    /// g + Hs.
    pub(super) slope: Vec<f64>,
}

impl PenalisedQuadratic<'_> {
    /// wⱼ + sⱼ.
    fn weight(&self, j: usize) -> f64 {
        self.point[j] + self.step[j]
    }

    fn row(&self, j: usize) -> &[f64] {
        &self.matrix[j * self.point.len()..(j + 1) * self.point.len()]
    }

    /// Moves weight `j` by `change`; exactly to 0 if the change brings it there.
    fn move_weight(&mut self, j: usize, change: f64) {
        self.step[j] = if change == -self.weight(j) { -self.point[j] } else { self.step[j] + change };
        let size = self.point.len();
        let row = &self.matrix[j * size..(j + 1) * size];
        self.slope.iter_mut().zip(row).for_each(|(a, h)| *a += change * h);
    }

    /// Minimises the model over weight `j` alone.
    fn minimise_weight(&mut self, j: usize) {
        let change = LassoState::weight_step(self.weight(j), self.slope[j], self.row(j)[j], self.penalties[j]);
        if change != 0.0 {
            self.move_weight(j, change);
        }
    }

    /// The violation of the optimality condition of weight `j`.
    fn violation(&self, j: usize) -> f64 {
        LassoState::weight_violation(self.weight(j), self.slope[j], self.penalties[j])
    }

    fn largest_violation(&self) -> f64 {
        (0..self.point.len()).fold(0.0, |worst, j| self.violation(j).max(worst))
    }

    /// Minimises the model approximately.
    pub(super) fn minimise(&mut self, control: &Control) -> Result<(), Interrupt> {
        let size = self.point.len();
        let goal = RELATIVE_TOLERANCE * self.largest_violation();
        for _ in 0..MAX_EPOCHS {
            control.check()?;
            control.spend(size * (size + 20));
            let mut worst = 0.0f64;
            for j in 0..size {
                let violation = self.violation(j);
                if violation > 0.0 {
                    worst = worst.max(violation);
                    self.minimise_weight(j);
                }
            }
            if worst <= goal {
                return Ok(());
            }
        }
        self.active_set(goal, control)
    }

    /// Active-set steps until no violation is above `goal`.
    fn active_set(&mut self, goal: f64, control: &Control) -> Result<(), Interrupt> {
        let size = self.point.len();
        let mut work = 0.0;
        // In exact arithmetic no set of signs occurs twice; with rounding one may.
        for _ in 0..MAX_STEPS_PER_WEIGHT * (size + 8) {
            control.check()?;
            control.spend(2 * size * size);
            let active: Vec<usize> = (0..size).filter(|&j| self.weight(j) != 0.0 || self.penalties[j] == 0.0).collect();
            work += (active.len() as f64).powi(3) / 3.0 + (size * active.len()) as f64 + 1e4;
            if work > MAX_WORK {
                return Ok(());
            }
            if !active.is_empty() && !self.step_under_signs(&active, control)? {
                continue;
            }
            let zero = |j: &usize| self.weight(*j) == 0.0 && self.penalties[*j] > 0.0;
            let entering = (0..size).filter(zero).max_by(|a, b| self.violation(*a).total_cmp(&self.violation(*b)));
            match entering {
                Some(j) if self.violation(j) > goal => self.minimise_weight(j),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Moves the active weights towards the minimum under their signs; false if a change of sign ended the step.
    fn step_under_signs(&mut self, active: &[usize], control: &Control) -> Result<bool, Interrupt> {
        let n = active.len();
        let roots: Vec<f64> = active.iter().map(|&j| 1.0 / self.row(j)[j].sqrt()).collect();
        let mut scaled = vec![0.0; n * n];
        for (a, &i) in active.iter().enumerate() {
            let row = self.row(i);
            (0..=a).for_each(|b| scaled[a * n + b] = row[active[b]] * roots[a] * roots[b]);
        }
        let mut jitter = 0.0;
        let factor = loop {
            let mut copy = scaled.clone();
            (0..n).for_each(|a| copy[a * n + a] += jitter);
            match Cholesky::new(copy, n, n, control) {
                Ok(factor) => break factor,
                Err(FactorError::Interrupted(why)) => return Err(why),
                // Duplicate columns.
                Err(FactorError::NotPositive(_)) if jitter < 1.0 => {
                    jitter = if jitter == 0.0 { 1e-13 } else { 30.0 * jitter };
                }
                Err(FactorError::NotPositive(_)) => return Ok(true),
            }
        };
        let slope_under_sign = |j: usize| self.slope[j] + self.penalties[j] * sign(self.weight(j));
        let mut s: Vec<f64> = active.iter().zip(&roots).map(|(&j, root)| -slope_under_sign(j) * root).collect();
        factor.solve(&mut s);
        s.iter_mut().zip(&roots).for_each(|(s, root)| *s *= root);
        if s.iter().any(|s| !s.is_finite()) {
            return Ok(true);
        }
        let mut step_limit = (1.0, None);
        for (&j, s) in active.iter().zip(&s) {
            let at = self.weight(j);
            if self.penalties[j] > 0.0 && at * (at + s) < 0.0 && -at / s < step_limit.0 {
                step_limit = (-at / s, Some(j));
            }
        }
        for (&j, s) in active.iter().zip(&s) {
            let change = if step_limit.1 == Some(j) { -self.weight(j) } else { step_limit.0 * s };
            self.move_weight(j, change);
        }
        Ok(step_limit.1.is_none())
    }
}

/// −1, 0 or 1.
fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}
