//! Newton's method on a smooth (or smoothed) linear problem.
//!
//! ```text
//! minimise ½‖w‖² + ½ρb² + Σᵢ φᵢ(xᵢᵀw + b),   φᵢ′ = −βᵢ(z), φᵢ″ = aᵢ(z) ≥ 0
//! (I + XᵀAX)Δw + XᵀA1·Δb = −(w − Xᵀβ),   1ᵀAXΔw + (ρ + 1ᵀA1)Δb = −(ρb − Σβ)
//! ```
//!
//! Δb is eliminated first, which centres X at its mean weighted by a. For moderate d the d × d system is formed and
//! factored, with its diagonal scaled to 1 so that badly scaled features do no harm. Otherwise it is solved by
//! conjugate gradients on the rows with a > 0. For losses with a dual term φ is piecewise quadratic, and only rows near
//! a kink have a > 0: late steps are cheap.
//!
//! Each step is followed by a search for the root of the derivative along it, over z + t·Δz only (Xw is kept). Steps
//! use only the *active* samples: those whose β could change within a given distance of the score. The scores of all
//! others are updated before the result is measured.

use super::line_search::search_derivative;
use super::smooth_loss::SmoothLoss;
use super::state::{CHUNK, LinearState, Measure, Moments, dot, range_sums, sums};
use crate::control::{Interrupt, Status, Threads};
use crate::gram::Pick;
use crate::work_limit::ITERATION;

/// Most Newton steps on one active set.
const MAX_ACTIVE_STEPS: usize = 30;

/// A direction of all variables.
pub(super) struct NewtonDirection {
    pub(super) w: Vec<f64>,
    pub(super) b: f64,
    /// Xw of the rows with curvature, if it is known.
    pub(super) dots: Option<Vec<f64>>,
}

/// When a smooth problem counts as solved.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewtonGoal {
    /// Largest mismatch, as a fraction of the excess left by smoothing.
    pub(super) of_excess: f64,
    /// Or as a fraction of the objective, if that is larger.
    pub(super) of_objective: f64,
    /// Samples whose score is further than this from any change of β are inactive; `None`: all samples are active.
    pub(super) active_distance: Option<f64>,
    /// Whether φ is convex: the line search then uses derivatives, otherwise values.
    pub(super) convex: bool,
}

impl NewtonGoal {
    fn is_met(&self, m: &Measure) -> bool {
        m.mismatch <= (self.of_excess * m.excess).max(self.of_objective * m.scale()).max(m.rounding)
    }
}

/// How the solution of a smooth problem ended.
pub(super) enum NewtonEnd {
    Reached(Measure),
    /// Steps make no more progress because of rounding.
    Stuck(Measure),
}

impl<'a, 'o> LinearState<'a, 'o> {
    /// Solves the smooth problem of `losses` from the current point.
    pub(super) fn newton<L: SmoothLoss>(&mut self, losses: &L, goal: NewtonGoal) -> Result<NewtonEnd, Status> {
        self.update_beta(losses, Pick::All)?;
        let mut active_distance = goal.active_distance;
        let mut best = f64::INFINITY;
        let mut idle = 0;
        loop {
            if goal.convex {
                self.balance_bias(losses)?;
            }
            let m = self.measure(losses)?;
            self.report("newton", &m, self.n())?;
            if goal.is_met(&m) {
                return Ok(NewtonEnd::Reached(m));
            }
            idle = if m.mismatch < 0.5 * best { 0 } else { idle + 1 };
            best = best.min(m.mismatch);
            if idle > 12 {
                return Ok(NewtonEnd::Stuck(m));
            }
            self.check()?;
            let max_mismatch = self.active_share() * (goal.of_excess * m.excess).max(goal.of_objective * m.scale());
            let active = active_distance
                .map(|distance| self.active_samples(losses, distance))
                .filter(|list| 3 * list.len() < 2 * self.n());
            let moved = match &active {
                None => self.newton_steps(losses, Pick::All, 1, max_mismatch, goal.convex)?,
                Some(list) => {
                    let before = self.departure();
                    let rows = Pick::List(list);
                    let moved = self.newton_steps(losses, rows, MAX_ACTIVE_STEPS, max_mismatch, goal.convex)?;
                    self.update_inactive_scores(list, &before.w, before.b)?;
                    self.update_beta(losses, Pick::All)?;
                    if goal.convex {
                        self.retreat(losses, before)?;
                    }
                    moved
                }
            };
            if !moved {
                match active_distance {
                    // The step may be possible with all samples active.
                    Some(_) if active.is_some() => active_distance = None,
                    _ => return Ok(NewtonEnd::Stuck(self.measure(losses)?)),
                }
            }
            active_distance = active_distance.map(|distance| 1.5 * distance);
        }
    }

    /// To which share of its goal the problem of the active samples is solved: where steps are expensive, no further than
    /// the others leave it unchanged.
    fn active_share(&self) -> f64 {
        if self.sampled.is_some() { 0.2 } else { 1e-2 }
    }

    /// Samples whose β could change within `distance` of their score.
    fn active_samples<L: SmoothLoss>(&self, losses: &L, distance: f64) -> Vec<u32> {
        let (n, z) = (self.n(), &self.z);
        let parts = self.control.threads.map(n.div_ceil(CHUNK), |task| {
            let range = task * CHUNK..((task + 1) * CHUNK).min(n);
            range.filter(|&i| losses.distance(i, z[i]) <= distance).map(|i| i as u32).collect::<Vec<_>>()
        });
        parts.concat()
    }

    /// Updates the scores of all samples that are not in `list` (sorted), from the old `w` and `b`.
    fn update_inactive_scores(&mut self, list: &[u32], w: &[f64], b: f64) -> Result<(), Interrupt> {
        let difference: Vec<f64> = self.w.iter().zip(w).map(|(new, old)| new - old).collect();
        let shift = self.b - b;
        let mut inside = list.iter().copied().peekable();
        let rest: Vec<u32> = (0..self.n() as u32).filter(|i| inside.next_if_eq(i).is_none()).collect();
        let mut change = vec![0.0; rest.len()];
        self.x.dots(Pick::List(&rest), &difference, &mut change, self.control)?;
        rest.iter().zip(&change).for_each(|(&i, dz)| self.z[i as usize] += dz + shift);
        Ok(())
    }

    /// At most `max_steps` Newton steps on the samples `rows`, until the mismatch is at most `max_mismatch`. False if
    /// no step was possible.
    fn newton_steps<L: SmoothLoss>(
        &mut self,
        losses: &L,
        rows: Pick<'_>,
        max_steps: usize,
        max_mismatch: f64,
        convex: bool,
    ) -> Result<bool, Status> {
        let count = rows.len(self.n());
        let mut dz = vec![0.0; count];
        let (mut best, mut idle) = (self.mismatch(), 0);
        for step in 0..max_steps {
            self.check()?;
            self.iterations += 1;
            self.control.spend(ITERATION);
            let direction = self.direction(losses, rows)?;
            match direction.dots.as_ref().filter(|dots| dots.len() == count) {
                Some(dots) => dz.copy_from_slice(dots),
                None => self.x.dots(rows, &direction.w, &mut dz, self.control)?,
            }
            self.control.threads.chunks(&mut dz, CHUNK, |_, dz| dz.iter_mut().for_each(|dz| *dz += direction.b));
            let t = if convex {
                self.line_search(losses, rows, &direction, &dz)?
            } else {
                self.backtrack(losses, rows, &direction, &dz)?
            };
            if t == 0.0 {
                return Ok(step > 0);
            }
            self.w.iter_mut().zip(&direction.w).for_each(|(w, dw)| *w += t * dw);
            self.b += t * direction.b;
            match rows {
                Pick::All => self.control.threads.chunks(&mut self.z, CHUNK, |task, z| {
                    z.iter_mut().zip(&dz[task * CHUNK..]).for_each(|(z, dz)| *z += t * dz);
                }),
                _ => (0..count).for_each(|k| self.z[rows.get(k)] += t * dz[k]),
            }
            self.update_beta(losses, rows)?;
            let mismatch = self.mismatch();
            if mismatch <= max_mismatch && (self.rho != Some(0.0) || self.sum.abs() <= 1e-6 * self.beta_size()) {
                return Ok(true);
            }
            idle = if mismatch < 0.9 * best { 0 } else { idle + 1 };
            best = best.min(mismatch);
            if idle > 8 {
                break;
            }
        }
        Ok(true)
    }

    /// Σ|β|.
    fn beta_size(&self) -> f64 {
        let beta = &self.beta;
        sums(self.control, self.n(), |i| [beta[i].abs()])[0].max(f64::MIN_POSITIVE)
    }

    fn direction<L: SmoothLoss>(&mut self, losses: &L, rows: Pick<'_>) -> Result<NewtonDirection, Status> {
        let z = &self.z;
        let count = rows.len(self.n());
        let parts = self.control.threads.map(count.div_ceil(CHUNK), |task| {
            let range = task * CHUNK..((task + 1) * CHUNK).min(count);
            let mut a = vec![0.0; range.len()];
            match rows {
                Pick::All => losses.curvatures(range.start, &z[range.clone()], &mut a),
                _ => range.clone().zip(&mut a).for_each(|(k, a)| *a = losses.curvature(rows.get(k), z[rows.get(k)])),
            }
            let curved: Vec<u32> = range.filter(|k| a[k % CHUNK] > 0.0).map(|k| rows.get(k) as u32).collect();
            a.retain(|a| *a > 0.0);
            (curved, a)
        });
        let (curved, weights): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let (curved, weights) = (curved.concat(), weights.concat());
        let gradient: Vec<f64> = self.w.iter().zip(&self.v).map(|(w, v)| w - v).collect();
        let d = self.x.dims();
        if let Some(rows_per_feature) = self.sampled {
            self.sampled_direction(&curved, &weights, &gradient, rows_per_feature * d)
        } else if d <= self.direct && 24 * (d * d) as u64 <= self.memory {
            self.direct_direction(&curved, &weights, &gradient)
        } else {
            self.diagonal_direction(&curved, &weights, &gradient)
        }
    }

    /// Slope and total curvature of the objective in the bias; the curvature is ∞ without a bias.
    pub(super) fn bias_derivatives(&self, total: f64) -> (f64, f64) {
        match self.rho {
            None => (0.0, f64::INFINITY),
            // Without any curvature the line search determines the bias.
            Some(rho) => (rho * self.b - self.sum, if rho + total > 0.0 { rho + total } else { 1e-12 }),
        }
    }

    fn direct_direction(
        &mut self,
        curved: &[u32],
        weights: &[f64],
        gradient: &[f64],
    ) -> Result<NewtonDirection, Status> {
        let d = gradient.len();
        self.moments(curved, weights)?;
        let total: f64 = weights.iter().sum();
        let (slope, bottom) = self.bias_derivatives(total);
        let Moments { first, second, .. } = self.moments.as_ref().expect("computed above");
        // About the origin the matrix is S + fcᵀ + cfᵀ + total·ccᵀ; eliminating b subtracts hhᵀ/bottom with
        // h = f + total·c.
        let left = 1.0 - total / bottom;
        let assemble = || {
            let mut matrix = second.clone();
            for i in 0..d {
                let (row, own) = (&mut matrix[i * d..=i * d + i], first[i] / bottom);
                row.iter_mut().zip(first).for_each(|(m, f)| *m -= own * f);
                if let Some(&c) = self.centre.get(i) {
                    for (m, (f, other)) in row.iter_mut().zip(first.iter().zip(&self.centre)) {
                        *m += left * (first[i] * other + c * f + total * c * other);
                    }
                }
                row[i] += 1.0;
            }
            matrix
        };
        let mut h = first.clone();
        h.iter_mut().zip(&self.centre).for_each(|(h, c)| *h += total * c);
        let right: Vec<f64> = gradient.iter().zip(&h).map(|(g, h)| slope * h / bottom - g).collect();
        let w = self.solve_scaled(assemble, &right)?;
        let b = if self.rho.is_some() { -(slope + dot(&h, &w)) / bottom } else { 0.0 };
        Ok(NewtonDirection { w, b, dots: None })
    }

    /// Solves a system given by the lower triangle that `assemble` returns, with its diagonal scaled to 1.
    fn solve_scaled(&self, assemble: impl Fn() -> Vec<f64>, right: &[f64]) -> Result<Vec<f64>, Status> {
        let factor = self.factor_scaled(assemble, |_| 1.0, right.len())?;
        Ok(factor.solve(right, &Threads::one()))
    }

    /// The step at which the derivative along the direction has fallen to a tenth; 0 if the direction does not descend.
    pub(super) fn line_search<L: SmoothLoss>(
        &self,
        losses: &L,
        rows: Pick<'_>,
        direction: &NewtonDirection,
        dz: &[f64],
    ) -> Result<f64, Interrupt> {
        let (z, beta) = (&self.z, &self.beta);
        let mut start = dot(&self.w, &direction.w) - dot(&self.v, &direction.w);
        let mut norm_curvature = dot(&direction.w, &direction.w);
        if let Some(rho) = self.rho {
            start += (rho * self.b - self.sum) * direction.b;
            norm_curvature += rho * direction.b * direction.b;
        }
        if !(start < 0.0) {
            return Ok(0.0);
        }
        search_derivative(start, self.control, |t| {
            let [change, curvature] = match rows {
                Pick::All => range_sums(self.control, dz.len(), |r| {
                    losses.along(r.start, &z[r.clone()], &dz[r.clone()], t, &beta[r])
                }),
                _ => sums(self.control, dz.len(), |k| {
                    let i = rows.get(k);
                    let (new_beta, curvature) = losses.beta_and_curvature(i, z[i] + t * dz[k]);
                    [(new_beta - beta[i]) * dz[k], curvature * dz[k] * dz[k]]
                }),
            };
            (start + t * norm_curvature - change, norm_curvature + curvature)
        })
    }

    /// The first of 1, ½, ¼, … at which the smooth objective falls by a small fraction of the decrease predicted by the
    /// slope; 0 if there is none.
    fn backtrack<L: SmoothLoss>(
        &self,
        losses: &L,
        rows: Pick<'_>,
        direction: &NewtonDirection,
        dz: &[f64],
    ) -> Result<f64, Interrupt> {
        let z = &self.z;
        let mut slope = dot(&self.w, &direction.w) - dot(&self.v, &direction.w);
        let mut norm_curvature = dot(&direction.w, &direction.w);
        let mut linear = dot(&self.w, &direction.w);
        if let Some(rho) = self.rho {
            slope += (rho * self.b - self.sum) * direction.b;
            norm_curvature += rho * direction.b * direction.b;
            linear += rho * self.b * direction.b;
        }
        if !(slope < 0.0) {
            return Ok(0.0);
        }
        let mut t = 1.0;
        for _ in 0..40 {
            self.control.check()?;
            let [change, size] = sums(self.control, dz.len(), |k| {
                let i = rows.get(k);
                let (old, new) = (losses.smooth_value(i, z[i]), losses.smooth_value(i, z[i] + t * dz[k]));
                [new - old, old.abs()]
            });
            let total_change = t * linear + 0.5 * t * t * norm_curvature + change;
            if total_change <= 1e-4 * t * slope + 1e-15 * size {
                return Ok(t);
            }
            t *= 0.5;
        }
        Ok(0.0)
    }
}
