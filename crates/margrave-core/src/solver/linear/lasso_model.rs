//! The quadratic model of the L1 penalty: minimise gᵀs + ½sᵀHs + Σ_j pⱼ|wⱼ + sⱼ| over s.
//!
//! Epochs of coordinate descent settle most weights at 0. Where the columns are alike, or far from the origin, those left are found by an active
//! set (the feature-sign search of Lee, Battle, Raina and Ng, NIPS 2006): the weights that are not 0 move to the minimum of the quadratic
//! under their present signs, at most as far as the first change of a sign; then the weight at 0 that breaks its condition most joins.
//! The objective falls with every step, and no set of signs comes twice.

use super::lasso::Descent;
use crate::control::{Control, Interrupt};
use crate::linalg::factor::{Cholesky, FactorError};

/// Epochs of coordinate descent at most.
const EPOCHS: usize = 200;
/// Violation, relative to that of the start, that is enough.
const ENOUGH: f64 = 1e-7;
/// Steps of the active set at most, per weight.
const STEPS: usize = 12;
/// Floating-point operations on factors at most.
const WORK: f64 = 4e9;

pub(super) struct Model<'a> {
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

impl Model<'_> {
    /// wⱼ + sⱼ.
    fn at(&self, j: usize) -> f64 {
        self.point[j] + self.step[j]
    }

    fn row(&self, j: usize) -> &[f64] {
        &self.matrix[j * self.point.len()..(j + 1) * self.point.len()]
    }

    /// Moves weight `j` by `change`; exactly to 0 where that is where it ends.
    fn change(&mut self, j: usize, change: f64) {
        self.step[j] = if change == -self.at(j) { -self.point[j] } else { self.step[j] + change };
        let size = self.point.len();
        let row = &self.matrix[j * size..(j + 1) * size];
        self.slope.iter_mut().zip(row).for_each(|(a, h)| *a += change * h);
    }

    /// The best step of weight `j` alone.
    fn descend(&mut self, j: usize) {
        let change = Descent::newton(self.at(j), self.slope[j], self.row(j)[j], self.penalties[j]);
        if change != 0.0 {
            self.change(j, change);
        }
    }

    /// How far weight `j` is from its condition.
    fn violation(&self, j: usize) -> f64 {
        Descent::violation(self.at(j), self.slope[j], self.penalties[j])
    }

    fn worst(&self) -> f64 {
        (0..self.point.len()).fold(0.0, |worst, j| self.violation(j).max(worst))
    }

    /// s near the minimum.
    pub(super) fn minimise(&mut self, control: &Control) -> Result<(), Interrupt> {
        let size = self.point.len();
        let goal = ENOUGH * self.worst();
        for _ in 0..EPOCHS {
            control.check()?;
            control.spend(size * (size + 20));
            let mut worst = 0.0f64;
            for j in 0..size {
                let violation = self.violation(j);
                if violation > 0.0 {
                    worst = worst.max(violation);
                    self.descend(j);
                }
            }
            if worst <= goal {
                return Ok(());
            }
        }
        self.active_set(goal, control)
    }

    fn active_set(&mut self, goal: f64, control: &Control) -> Result<(), Interrupt> {
        let size = self.point.len();
        let mut work = 0.0;
        // In exact arithmetic no set of signs comes twice; rounding may bring one back.
        for _ in 0..STEPS * (size + 8) {
            control.check()?;
            control.spend(2 * size * size);
            let active: Vec<usize> = (0..size).filter(|&j| self.at(j) != 0.0 || self.penalties[j] == 0.0).collect();
            work += (active.len() as f64).powi(3) / 3.0 + (size * active.len()) as f64 + 1e4;
            if work > WORK {
                return Ok(());
            }
            if !active.is_empty() && !self.towards(&active, control)? {
                continue;
            }
            let zero = |j: &usize| self.at(*j) == 0.0 && self.penalties[*j] > 0.0;
            let joins = (0..size).filter(zero).max_by(|a, b| self.violation(*a).total_cmp(&self.violation(*b)));
            match joins {
                Some(j) if self.violation(j) > goal => self.descend(j),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Moves the active weights towards the minimum under their signs; false if a sign stopped it.
    fn towards(&mut self, active: &[usize], control: &Control) -> Result<bool, Interrupt> {
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
                // Columns that repeat each other.
                Err(FactorError::NotPositive(_)) if jitter < 1.0 => {
                    jitter = if jitter == 0.0 { 1e-13 } else { 30.0 * jitter };
                }
                Err(FactorError::NotPositive(_)) => return Ok(true),
            }
        };
        let wanted = |j: usize| self.slope[j] + self.penalties[j] * sign(self.at(j));
        let mut s: Vec<f64> = active.iter().zip(&roots).map(|(&j, root)| -wanted(j) * root).collect();
        factor.solve(&mut s);
        s.iter_mut().zip(&roots).for_each(|(s, root)| *s *= root);
        if s.iter().any(|s| !s.is_finite()) {
            return Ok(true);
        }
        let mut whole = (1.0, None);
        for (&j, s) in active.iter().zip(&s) {
            let at = self.at(j);
            if self.penalties[j] > 0.0 && at * (at + s) < 0.0 && -at / s < whole.0 {
                whole = (-at / s, Some(j));
            }
        }
        for (&j, s) in active.iter().zip(&s) {
            let change = if whole.1 == Some(j) { -self.at(j) } else { whole.0 * s };
            self.change(j, change);
        }
        Ok(whole.1.is_none())
    }
}

/// −1, 0 or 1.
fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}
