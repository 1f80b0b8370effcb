//! Newton's method on a smooth (or smoothed) linear problem.
//!
//! ```text
//! minimise ½‖w‖² + ½ρb² + Σᵢ φᵢ(xᵢᵀw + b),   φᵢ′ = −βᵢ(z), φᵢ″ = aᵢ(z) ≥ 0
//! (I + XᵀAX)Δw + XᵀA1·Δb = −(w − Xᵀβ),   1ᵀAXΔw + (ρ + 1ᵀA1)Δb = −(ρb − Σβ)
//! ```
//!
//! Δb is eliminated first, which centres X at its mean weighted by a. The d × d system is formed and factored where d is
//! moderate, with its diagonal scaled to 1 so that badly scaled features do no harm; otherwise it is solved by conjugate
//! gradients on the rows with a > 0. φ is piecewise quadratic for losses with a dual term, and only rows near a kink
//! have a > 0: late steps cost little.
//!
//! A step is followed by a search for the root of the derivative along it, over z + t·Δz alone (Xw is kept). Only *active*
//! samples are looked at: those from which β could change within a given distance of the score. The others have their
//! scores brought up to date before anything is concluded.

use super::piece::Piece;
use super::state::{CHUNK, Measure, State, dot, sums};
use crate::control::{Interrupt, Status};
use crate::gram::Pick;
use crate::linalg::factor::{Cholesky, FactorError};
use crate::work_limit::ITERATION;

/// Newton steps on one active set at most.
const STEPS: usize = 30;
/// Conjugate gradient steps at most.
const GRADIENTS: usize = 300;
/// Largest d for which the system is formed.
const DIRECT: usize = 1500;

/// A step of all variables.
struct Direction {
    w: Vec<f64>,
    b: f64,
}

/// When a smooth problem counts as solved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    /// The mismatch may be this share of the excess that smoothing leaves.
    pub(super) share: f64,
    /// Or this share of the objective.
    pub(super) relative: f64,
    /// Scores this far from any change of β are left out of the steps; `None`: all take part.
    pub(super) reach: Option<f64>,
    /// Whether φ is convex: a search by derivative, otherwise by value.
    pub(super) convex: bool,
}

impl Goal {
    fn allows(&self, m: &Measure) -> bool {
        m.mismatch <= (self.share * m.excess).max(self.relative * m.scale()).max(m.rounding)
    }
}

/// How a smooth problem ended.
pub(super) enum Ended {
    Reached(Measure),
    /// No step gains any more: rounding.
    Stuck(Measure),
}

impl<'a, 'o> State<'a, 'o> {
    /// Solves the smooth problem of `piece` from the current point.
    pub(super) fn newton<P: Piece>(&mut self, piece: &P, goal: Goal) -> Result<Ended, Status> {
        self.refresh(piece, Pick::All)?;
        let mut reach = goal.reach;
        let mut best = f64::INFINITY;
        let mut poor = 0;
        loop {
            if goal.convex {
                self.balance(piece)?;
            }
            let m = self.measure(piece)?;
            self.report("newton", &m, self.n())?;
            if goal.allows(&m) {
                return Ok(Ended::Reached(m));
            }
            poor = if m.mismatch < 0.5 * best { 0 } else { poor + 1 };
            best = best.min(m.mismatch);
            if poor > 12 {
                return Ok(Ended::Stuck(m));
            }
            self.check()?;
            let floor = 1e-2 * (goal.share * m.excess).max(goal.relative * m.scale());
            let active = reach.map(|reach| self.near(piece, reach)).filter(|list| 3 * list.len() < 2 * self.n());
            let moved = match &active {
                None => self.steps(piece, Pick::All, 1, floor, goal.convex)?,
                Some(list) => {
                    let (w, b) = (self.w.clone(), self.b);
                    let moved = self.steps(piece, Pick::List(list), STEPS, floor, goal.convex)?;
                    self.catch_up(list, &w, b)?;
                    self.refresh(piece, Pick::All)?;
                    moved
                }
            };
            if !moved {
                match reach {
                    // What was left out may be what holds the step.
                    Some(_) if active.is_some() => reach = None,
                    _ => return Ok(Ended::Stuck(self.measure(piece)?)),
                }
            }
            reach = reach.map(|r| 1.5 * r);
        }
    }

    /// Samples whose β could change within `reach` of their score.
    fn near<P: Piece>(&self, piece: &P, reach: f64) -> Vec<u32> {
        let (n, z) = (self.n(), &self.z);
        let parts = self.control.threads.map(n.div_ceil(CHUNK), |task| {
            let range = task * CHUNK..((task + 1) * CHUNK).min(n);
            range.filter(|&i| piece.distance(i, z[i]) <= reach).map(|i| i as u32).collect::<Vec<_>>()
        });
        parts.concat()
    }

    /// Brings the scores of all samples that are not in `list` (sorted) up to date.
    fn catch_up(&mut self, list: &[u32], w: &[f64], b: f64) -> Result<(), Interrupt> {
        let difference: Vec<f64> = self.w.iter().zip(w).map(|(new, old)| new - old).collect();
        let shift = self.b - b;
        let mut inside = list.iter().copied().peekable();
        let rest: Vec<u32> = (0..self.n() as u32).filter(|i| inside.next_if_eq(i).is_none()).collect();
        let mut change = vec![0.0; rest.len()];
        self.x.dots(Pick::List(&rest), &difference, &mut change, self.control)?;
        rest.iter().zip(&change).for_each(|(&i, dz)| self.z[i as usize] += dz + shift);
        Ok(())
    }

    /// Newton steps on the samples `rows` until the mismatch is below `floor`; false if not even one step was possible.
    fn steps<P: Piece>(
        &mut self,
        piece: &P,
        rows: Pick<'_>,
        most: usize,
        floor: f64,
        convex: bool,
    ) -> Result<bool, Status> {
        let count = rows.len(self.n());
        let mut dz = vec![0.0; count];
        let (mut best, mut poor) = (self.mismatch(), 0);
        for step in 0..most {
            self.check()?;
            self.iterations += 1;
            self.control.spend(ITERATION);
            let direction = self.direction(piece, rows)?;
            self.x.dots(rows, &direction.w, &mut dz, self.control)?;
            dz.iter_mut().for_each(|dz| *dz += direction.b);
            let t = if convex {
                self.search(piece, rows, &direction, &dz)?
            } else {
                self.descend(piece, rows, &direction, &dz)?
            };
            if t == 0.0 {
                return Ok(step > 0);
            }
            self.w.iter_mut().zip(&direction.w).for_each(|(w, dw)| *w += t * dw);
            self.b += t * direction.b;
            match rows {
                Pick::All => self.z.iter_mut().zip(&dz).for_each(|(z, dz)| *z += t * dz),
                _ => (0..count).for_each(|k| self.z[rows.get(k)] += t * dz[k]),
            }
            self.refresh(piece, rows)?;
            let mismatch = self.mismatch();
            if mismatch <= floor && (self.rho != Some(0.0) || self.sum.abs() <= 1e-6 * self.size()) {
                return Ok(true);
            }
            poor = if mismatch < 0.9 * best { 0 } else { poor + 1 };
            best = best.min(mismatch);
            if poor > 8 {
                break;
            }
        }
        Ok(true)
    }

    /// Σ|β|.
    fn size(&self) -> f64 {
        let beta = &self.beta;
        sums(self.control, self.n(), |i| [beta[i].abs()])[0].max(f64::MIN_POSITIVE)
    }

    fn direction<P: Piece>(&mut self, piece: &P, rows: Pick<'_>) -> Result<Direction, Status> {
        let z = &self.z;
        let count = rows.len(self.n());
        let parts = self.control.threads.map(count.div_ceil(CHUNK), |task| {
            let mut curved: Vec<(u32, f64)> = Vec::new();
            for k in task * CHUNK..((task + 1) * CHUNK).min(count) {
                let i = rows.get(k);
                let a = piece.curvature(i, z[i]);
                if a > 0.0 {
                    curved.push((i as u32, a));
                }
            }
            curved
        });
        let (curved, weights): (Vec<u32>, Vec<f64>) = parts.into_iter().flatten().unzip();
        let gradient: Vec<f64> = self.w.iter().zip(&self.v).map(|(w, v)| w - v).collect();
        let d = self.x.dims();
        if d <= DIRECT && 24 * (d * d) as u64 <= self.memory {
            self.direct(&curved, &weights, &gradient)
        } else {
            self.conjugate(&curved, &weights, &gradient)
        }
    }

    /// Slope and total curvature of the bias; the latter is ∞ without one.
    fn bias_part(&self, total: f64) -> (f64, f64) {
        match self.rho {
            None => (0.0, f64::INFINITY),
            // With no curvature at all the bias is left to the search.
            Some(rho) => (rho * self.b - self.sum, if rho + total > 0.0 { rho + total } else { 1e-12 }),
        }
    }

    fn direct(&mut self, curved: &[u32], weights: &[f64], gradient: &[f64]) -> Result<Direction, Status> {
        let d = gradient.len();
        let moments = self.moments(curved, weights)?;
        let (first, mut second) = (moments.first.clone(), moments.second.clone());
        let total: f64 = weights.iter().sum();
        let (slope, bottom) = self.bias_part(total);
        let zero;
        let centre = if self.centre.is_empty() {
            zero = vec![0.0; d];
            &zero
        } else {
            &self.centre
        };
        // About the origin the matrix is S + fcᵀ + cfᵀ + total·ccᵀ; eliminating b subtracts hhᵀ/bottom, h = f + total·c.
        let left = 1.0 - total / bottom;
        for i in 0..d {
            for j in 0..=i {
                second[i * d + j] += left
                    * (first[i] * centre[j] + centre[i] * first[j] + total * centre[i] * centre[j])
                    - first[i] * first[j] / bottom;
            }
            second[i * d + i] += 1.0;
        }
        let h: Vec<f64> = first.iter().zip(centre).map(|(f, c)| f + total * c).collect();
        let right: Vec<f64> = gradient.iter().zip(&h).map(|(g, h)| slope * h / bottom - g).collect();
        let w = self.solve(second, &right)?;
        let b = if self.rho.is_some() { -(slope + dot(&h, &w)) / bottom } else { 0.0 };
        Ok(Direction { w, b })
    }

    /// Solves with the lower triangle given, its diagonal scaled to 1.
    fn solve(&self, mut matrix: Vec<f64>, right: &[f64]) -> Result<Vec<f64>, Status> {
        let d = right.len();
        self.control.spend(4 * d * d);
        let roots: Vec<f64> = (0..d).map(|i| 1.0 / matrix[i * d + i].max(1.0).sqrt()).collect();
        for i in 0..d {
            for j in 0..=i {
                matrix[i * d + j] *= roots[i] * roots[j];
            }
        }
        let mut jitter = 0.0;
        let factor = loop {
            let mut copy = matrix.clone();
            (0..d).for_each(|i| copy[i * d + i] += jitter);
            match Cholesky::new(copy, d, d, self.control) {
                Ok(factor) => break factor,
                Err(FactorError::Interrupted(why)) => return Err(why.into()),
                Err(FactorError::NotPositive(_)) if jitter > 1.0 => return Err(Status::Stalled),
                // The matrix is I plus a semidefinite one: only rounding can say otherwise.
                Err(FactorError::NotPositive(_)) => jitter = if jitter == 0.0 { 1e-14 } else { 30.0 * jitter },
            }
        };
        let mut s: Vec<f64> = right.iter().zip(&roots).map(|(r, root)| r * root).collect();
        factor.solve(&mut s);
        s.iter_mut().zip(&roots).for_each(|(s, root)| *s *= root);
        Ok(s)
    }

    fn conjugate(&self, curved: &[u32], weights: &[f64], gradient: &[f64]) -> Result<Direction, Status> {
        let d = gradient.len();
        let rows = Pick::List(curved);
        let total: f64 = weights.iter().sum();
        let (slope, bottom) = self.bias_part(total);
        let mut h = vec![0.0; d];
        if self.rho.is_some() {
            self.x.combine(rows, weights, &mut h, self.control)?;
        }
        let mut diagonal = vec![1.0; d];
        self.x.squares(rows, weights, &mut diagonal, self.control)?;
        let mut s = vec![0.0; d];
        let mut r: Vec<f64> = gradient.iter().zip(&h).map(|(g, h)| slope * h / bottom - g).collect();
        let mut y: Vec<f64> = r.iter().zip(&diagonal).map(|(r, d)| r / d).collect();
        let mut p = y.clone();
        let mut ry = dot(&r, &y);
        let goal = ry * 1e-4;
        let mut u = vec![0.0; curved.len()];
        let mut q = vec![0.0; d];
        for _ in 0..GRADIENTS {
            if ry <= goal || ry <= 0.0 {
                break;
            }
            self.x.dots(rows, &p, &mut u, self.control)?;
            let mean = dot(&h, &p) / bottom;
            u.iter_mut().zip(weights).for_each(|(u, a)| *u = a * (*u - mean));
            q.copy_from_slice(&p);
            self.x.combine(rows, &u, &mut q, self.control)?;
            let curvature = dot(&p, &q);
            if !(curvature > 0.0) {
                break;
            }
            let t = ry / curvature;
            for j in 0..d {
                s[j] += t * p[j];
                r[j] -= t * q[j];
                y[j] = r[j] / diagonal[j];
            }
            let next = dot(&r, &y);
            let keep = next / ry;
            ry = next;
            p.iter_mut().zip(&y).for_each(|(p, y)| *p = y + keep * *p);
        }
        let b = if self.rho.is_some() { -(slope + dot(&h, &s)) / bottom } else { 0.0 };
        Ok(Direction { w: s, b })
    }

    /// The step at which the derivative along the direction is a tenth of what it was, or changes sign; 0 if it does not fall.
    fn search<P: Piece>(&self, piece: &P, rows: Pick<'_>, direction: &Direction, dz: &[f64]) -> Result<f64, Interrupt> {
        let (z, beta) = (&self.z, &self.beta);
        let mut start = dot(&self.w, &direction.w) - dot(&self.v, &direction.w);
        let mut bend = dot(&direction.w, &direction.w);
        if let Some(rho) = self.rho {
            start += (rho * self.b - self.sum) * direction.b;
            bend += rho * direction.b * direction.b;
        }
        if !(start < 0.0) {
            return Ok(0.0);
        }
        let at = |t: f64| {
            let [change, curvature] = sums(self.control, dz.len(), |k| {
                let i = rows.get(k);
                let there = z[i] + t * dz[k];
                let (new, dz) = (piece.beta(i, there), dz[k]);
                [(new - beta[i]) * dz, piece.curvature(i, there) * dz * dz]
            });
            (start + t * bend - change, bend + curvature)
        };
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut t = 1.0;
        for _ in 0..60 {
            self.control.check()?;
            let (slope, curvature) = at(t);
            if slope.abs() <= 0.1 * start.abs() {
                return Ok(t);
            }
            if slope < 0.0 {
                low = t
            } else {
                high = t
            }
            let newton = t - slope / curvature;
            let inside = newton > low && (high.is_infinite() || newton < high);
            t = match (inside, high.is_finite()) {
                // Far from the root Newton on a piecewise linear slope creeps along its pieces.
                (true, true) => newton.clamp(low + 0.05 * (high - low), high - 0.05 * (high - low)),
                (false, true) => 0.5 * (low + high),
                (true, false) => newton.min(4.0 * t),
                (false, false) => 2.0 * t,
            };
            if high.is_finite() && high - low <= 1e-14 * high {
                break;
            }
        }
        Ok(low)
    }

    /// The first of 1, ½, ¼, … at which the smooth objective falls by a small share of what the slope promises; 0 if there is none.
    fn descend<P: Piece>(
        &self,
        piece: &P,
        rows: Pick<'_>,
        direction: &Direction,
        dz: &[f64],
    ) -> Result<f64, Interrupt> {
        let z = &self.z;
        let mut slope = dot(&self.w, &direction.w) - dot(&self.v, &direction.w);
        let mut bend = dot(&direction.w, &direction.w);
        let mut linear = dot(&self.w, &direction.w);
        if let Some(rho) = self.rho {
            slope += (rho * self.b - self.sum) * direction.b;
            bend += rho * direction.b * direction.b;
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
                let (old, new) = (piece.smooth_value(i, z[i]), piece.smooth_value(i, z[i] + t * dz[k]));
                [new - old, old.abs()]
            });
            let gained = t * linear + 0.5 * t * t * bend + change;
            if gained <= 1e-4 * t * slope + 1e-15 * size {
                return Ok(t);
            }
            t *= 0.5;
        }
        Ok(0.0)
    }
}
