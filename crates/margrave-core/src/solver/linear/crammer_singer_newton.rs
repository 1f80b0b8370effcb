//! Proximal points of the dual of Crammer and Singer by Newton's method: `proximal.rs` for several classes.
//!
//! With a_m = c − α_m for the own class and −α_m for the others, a sample's loss is the largest of Σ a_m·(e_m + z_m) − c·z_y over the
//! simplex a ≥ 0, Σa = c. Taking ½ε‖a − aᵏ‖² off makes it smooth: a is then the projection of aᵏ + (e + z)/ε on the simplex, −α is the
//! slope in z, and the curvature is (I − 11ᵀ/|S|)/ε over the classes S with a > 0. Newton's system over W,
//!
//! ```text
//! (I + Σᵢ xᵢxᵢᵀ ⊗ Hᵢ)·ΔW = −(W − Σᵢ xᵢαᵢᵀ)
//! ```
//!
//! is factored where it has at most 1 500 unknowns and solved by conjugate gradients beyond.

use super::crammer_singer::{Measured, Work};
use super::solve::{Progress, SHRINK};
use super::state::dot;
use crate::control::Status;
use crate::linalg::factor::{Cholesky, FactorError};

/// Samples between two looks at the clock.
const LOOK: usize = 256;
/// Most unknowns of a system that is factored.
const DIRECT: usize = 1500;
/// Conjugate gradient steps at most.
const GRADIENTS: usize = 200;
/// Newton steps in a round at most.
const STEPS: usize = 60;
/// Rounds without progress in the gap after which the run ends.
const PATIENCE: usize = 12;
/// Width of the smoothing at most, in units of the score.
const WIDEST: f64 = 1e6;

/// The smoothing of one round: its width in units of the score, and α about which it is taken.
struct Smoothing {
    width: f64,
    centre: Vec<f64>,
}

/// One point of a line: what the projections give there.
struct Projected {
    /// θ: a_m = max(0, u_m − θ)/ε.
    theta: f64,
}

/// θ with Σ max(0, u_m − θ) = total.
fn project(u: &[f64], total: f64, sorted: &mut Vec<f64>) -> Projected {
    sorted.clear();
    sorted.extend_from_slice(u);
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut theta) = (0.0, f64::NEG_INFINITY);
    for (at, &value) in sorted.iter().enumerate() {
        if value <= theta {
            break;
        }
        sum += value;
        theta = (sum - total) / (at + 1) as f64;
    }
    Projected { theta }
}

impl Smoothing {
    /// ε of a sample of cost c, and u = ε·aᵏ + e + z into `u`.
    fn targets(&self, work: &Work<'_, '_>, i: usize, z: impl Fn(usize) -> f64, u: &mut [f64]) -> f64 {
        let (k, own, c) = (work.k, work.codes[i] as usize, work.costs[i]);
        let eps = self.width / c;
        let centre = &self.centre[i * k..(i + 1) * k];
        for (m, u) in u.iter_mut().enumerate() {
            let (bound, e) = if m == own { (c, 0.0) } else { (0.0, 1.0) };
            *u = eps * (bound - centre[m]) + e + z(m);
        }
        eps
    }
}

/// The curvature of the samples that have any: classes S of each, and 1/ε.
struct Curved {
    rows: Vec<(u32, f64)>,
    starts: Vec<usize>,
    classes: Vec<u32>,
}

impl Work<'_, '_> {
    /// Number of unknowns of Newton's system.
    fn unknowns(&self) -> usize {
        (self.points.dims() + usize::from(self.scaling > 0.0)) * self.k
    }

    /// Whether that system is factored.
    pub(super) fn has_direct_newton(&self) -> bool {
        let size = self.unknowns();
        size <= DIRECT && 24 * (size * size) as u64 <= self.options.memory
    }

    /// Rounds from the present α: `Optimal` once what was asked for holds, `Stalled` when the gap falls no more.
    pub(super) fn proximal(&mut self) -> Result<Status, Status> {
        let v = self.combined()?;
        let mut m = self.measure(&v)?;
        // Wide enough to matter beside α: under a large cost the optimal α may be far below it.
        let mut width = (m.relative().min(1.0).sqrt() / self.typical_share()).clamp(1e-4, WIDEST);
        let mut aim = self.aim();
        let mut progress = Progress::default();
        let mut best = (m, self.w.clone(), self.alpha.clone());
        loop {
            let smoothing = Smoothing { width, centre: self.alpha.clone() };
            let reached;
            (m, reached) = match self.newton(&smoothing, aim) {
                Ok(ended) => ended,
                Err(early) => {
                    (_, self.w, self.alpha) = best;
                    return Err(early);
                }
            };
            if self.holds(&m) {
                return Ok(Status::Optimal);
            }
            if m.relative() <= aim && aim > 1e-16 {
                aim = (0.1 * aim).min(0.1 * m.relative());
            }
            if m.gap() < best.0.gap() {
                best = (m, self.w.clone(), self.alpha.clone());
            }
            if progress.ended(m.gap(), PATIENCE) {
                (_, self.w, self.alpha) = best;
                return Ok(Status::Stalled);
            }
            if reached {
                width *= SHRINK;
            } else {
                // Too sharp for Newton: again from the best point, with more smoothing.
                (self.w, self.alpha) = (best.1.clone(), best.2.clone());
                width = (10.0 * width).min(WIDEST);
            }
        }
    }

    /// Mean of α/c of the own class over the samples with α ≠ 0; 1 if there are none.
    fn typical_share(&self) -> f64 {
        let shares = (0..self.n()).filter(|&i| self.costs[i] > 0.0);
        let shares = shares.map(|i| self.alpha[i * self.k + self.codes[i] as usize] / self.costs[i]);
        let (sum, count) = shares.filter(|s| *s > 0.0).fold((0.0, 0.0), |(sum, count), s| (sum + s, count + 1.0));
        if sum > 0.0 { sum / count } else { 1.0 }
    }

    /// Scores of all samples under `w`, without e.
    fn all_products(&self, w: &[f64]) -> Result<Vec<f64>, Status> {
        let mut z = vec![0.0; self.n() * self.k];
        self.control.spend(self.n() * self.work_of_a_row());
        for (i, z) in z.chunks_mut(self.k).enumerate() {
            if i % LOOK == 0 {
                self.control.check().map_err(Status::from)?;
            }
            if self.costs[i] > 0.0 {
                self.products(i, w, z);
            }
        }
        Ok(z)
    }

    /// α of the smoothed losses at the scores `z`, and their curvature.
    fn refresh(&mut self, smoothing: &Smoothing, z: &[f64]) -> Curved {
        let k = self.k;
        let (mut u, mut sorted) = (vec![0.0; k], Vec::with_capacity(k));
        let mut curved = Curved { rows: Vec::new(), starts: vec![0], classes: Vec::new() };
        for i in (0..self.n()).filter(|&i| self.costs[i] > 0.0) {
            let (own, c) = (self.codes[i] as usize, self.costs[i]);
            let eps = smoothing.targets(self, i, |m| z[i * k + m], &mut u);
            let theta = project(&u, smoothing.width, &mut sorted).theta;
            let mut others = 0.0;
            let count = curved.classes.len();
            // Σa = c by construction; for a small ε rounding says otherwise.
            let total: f64 = u.iter().map(|u| (u - theta).max(0.0)).sum();
            for (m, u) in u.iter().enumerate() {
                let a = c * (u - theta).max(0.0) / total;
                if u - theta > 0.0 {
                    curved.classes.push(m as u32);
                }
                if m != own {
                    self.alpha[i * k + m] = -a;
                    others += a;
                }
            }
            self.alpha[i * k + own] = others.min(c);
            if curved.classes.len() - count >= 2 {
                curved.rows.push((i as u32, 1.0 / eps));
                curved.starts.push(curved.classes.len());
            } else {
                curved.classes.truncate(count);
            }
        }
        curved
    }

    /// Newton's method on the smoothed problem from the present W; true if it came as near as the gap left by smoothing.
    fn newton(&mut self, smoothing: &Smoothing, aim: f64) -> Result<(Measured, bool), Status> {
        let mut z = self.all_products(&self.w)?;
        let mut curved = self.refresh(smoothing, &z);
        let mut progress = Progress::default();
        for step in 0.. {
            let v = self.combined()?;
            let m = self.measure(&v)?;
            self.report("newton", curved.rows.len())?;
            let scale = m.primal.abs().max((m.primal - m.gap()).abs());
            if m.mismatch <= m.excess.max(0.3 * aim * scale).max(m.rounding) {
                return Ok((m, true));
            }
            if step >= STEPS || progress.ended(m.mismatch, 12) {
                return Ok((m, false));
            }
            self.count()?;
            let right: Vec<f64> = v.iter().zip(&self.w).map(|(v, w)| v - w).collect();
            let solved =
                if self.has_direct_newton() { self.direct(&curved, &right) } else { self.conjugate(&curved, &right) };
            let direction = match solved {
                Err(Status::Stalled) => return Ok((m, false)),
                other => other?,
            };
            let dz = self.all_products(&direction)?;
            let t = self.search(smoothing, &z, &dz, &direction, &right)?;
            if t == 0.0 {
                return Ok((m, false));
            }
            self.w.iter_mut().zip(&direction).for_each(|(w, d)| *w += t * d);
            z.iter_mut().zip(&dz).for_each(|(z, d)| *z += t * d);
            curved = self.refresh(smoothing, &z);
        }
        Err(Status::Stalled)
    }

    /// Newton's system formed and factored; unknowns by class, then feature.
    fn direct(&mut self, curved: &Curved, right: &[f64]) -> Result<Vec<f64>, Status> {
        let (k, size) = (self.k, self.unknowns());
        let d = size / k;
        let mut matrix = vec![0.0; size * size];
        (0..size).for_each(|at| matrix[at * size + at] = 1.0);
        let mut row: Vec<(usize, f64)> = Vec::new();
        for (at, &(i, gain)) in curved.rows.iter().enumerate() {
            if at % LOOK == 0 {
                self.poll("newton", curved.rows.len())?;
            }
            row.clear();
            self.visit(i as usize, |j, v| row.push((j, v)));
            let classes = &curved.classes[curved.starts[at]..curved.starts[at + 1]];
            self.control.spend((classes.len() * row.len()).pow(2) / 2);
            let share = gain / classes.len() as f64;
            for &m in classes {
                for &other in classes.iter().filter(|&&other| other <= m) {
                    let weight = if m == other { gain - share } else { -share };
                    for &(j, x) in &row {
                        let from = (m as usize * d + j) * size + other as usize * d;
                        // Of a block on the diagonal only the lower half is read; rows ascend by feature.
                        for &(l, y) in row.iter().take_while(|(l, _)| m != other || *l <= j) {
                            matrix[from + l] += weight * x * y;
                        }
                    }
                }
            }
        }
        let place = |at: usize| (at % d) * k + at / d;
        let roots: Vec<f64> = (0..size).map(|at| 1.0 / matrix[at * size + at].sqrt()).collect();
        for i in 0..size {
            (0..=i).for_each(|j| matrix[i * size + j] *= roots[i] * roots[j]);
        }
        let mut jitter = 0.0;
        let factor = loop {
            let mut copy = matrix.clone();
            (0..size).for_each(|i| copy[i * size + i] += jitter);
            match Cholesky::new(copy, size, size, self.control) {
                Ok(factor) => break factor,
                Err(FactorError::Interrupted(why)) => return Err(why.into()),
                Err(FactorError::NotPositive(_)) if jitter > 1.0 => return Err(Status::Stalled),
                // The matrix is I plus a semidefinite one: only rounding can say otherwise.
                Err(FactorError::NotPositive(_)) => jitter = if jitter == 0.0 { 1e-14 } else { 30.0 * jitter },
            }
        };
        let mut s: Vec<f64> = (0..size).map(|at| right[place(at)] * roots[at]).collect();
        factor.solve(&mut s);
        let mut out = vec![0.0; right.len()];
        (0..size).for_each(|at| out[place(at)] = s[at] * roots[at]);
        Ok(out)
    }

    /// The same by conjugate gradients, the diagonal as preconditioner.
    fn conjugate(&mut self, curved: &Curved, right: &[f64]) -> Result<Vec<f64>, Status> {
        let k = self.k;
        let mut diagonal = vec![1.0; right.len()];
        for (at, &(i, gain)) in curved.rows.iter().enumerate() {
            let classes = &curved.classes[curved.starts[at]..curved.starts[at + 1]];
            let weight = gain - gain / classes.len() as f64;
            self.visit(i as usize, |j, v| classes.iter().for_each(|&m| diagonal[j * k + m as usize] += weight * v * v));
        }
        let mut s = vec![0.0; right.len()];
        let mut r = right.to_vec();
        let mut y: Vec<f64> = r.iter().zip(&diagonal).map(|(r, d)| r / d).collect();
        let mut p = y.clone();
        let mut ry = dot(&r, &y);
        let goal = 1e-4 * ry;
        let mut g = vec![0.0; k];
        for _ in 0..GRADIENTS {
            if !(ry > goal) {
                break;
            }
            self.control.spend(2 * curved.rows.len() * self.work_of_a_row());
            self.poll("newton", curved.rows.len())?;
            let mut q = p.clone();
            for (at, &(i, gain)) in curved.rows.iter().enumerate() {
                let classes = &curved.classes[curved.starts[at]..curved.starts[at + 1]];
                self.products(i as usize, &p, &mut g);
                let mean = classes.iter().map(|&m| g[m as usize]).sum::<f64>() / classes.len() as f64;
                self.visit(i as usize, |j, v| {
                    classes.iter().for_each(|&m| q[j * k + m as usize] += gain * v * (g[m as usize] - mean));
                });
            }
            let curvature = dot(&p, &q);
            if !(curvature > 0.0) {
                break;
            }
            let t = ry / curvature;
            for j in 0..s.len() {
                s[j] += t * p[j];
                r[j] -= t * q[j];
                y[j] = r[j] / diagonal[j];
            }
            let next = dot(&r, &y);
            let keep = next / ry;
            ry = next;
            p.iter_mut().zip(&y).for_each(|(p, y)| *p = y + keep * *p);
        }
        Ok(s)
    }

    /// The step at which the derivative along the direction is a tenth of what it was; 0 if it does not fall at all.
    fn search(
        &self,
        smoothing: &Smoothing,
        z: &[f64],
        dz: &[f64],
        direction: &[f64],
        right: &[f64],
    ) -> Result<f64, Status> {
        let k = self.k;
        let start = -dot(right, direction);
        if !(start < 0.0) {
            return Ok(0.0);
        }
        let (bend, along) = (dot(direction, direction), dot(&self.w, direction));
        let (mut u, mut sorted) = (vec![0.0; k], Vec::with_capacity(k));
        let mut at = |t: f64| {
            let (mut slope, mut curvature) = (along + t * bend, bend);
            for i in (0..self.n()).filter(|&i| self.costs[i] > 0.0) {
                let dz = &dz[i * k..(i + 1) * k];
                let eps = smoothing.targets(self, i, |m| z[i * k + m] + t * dz[m], &mut u);
                let theta = project(&u, smoothing.width, &mut sorted).theta;
                let (mut sum, mut first, mut second, mut count) = (0.0, 0.0, 0.0, 0.0);
                for (u, dz) in u.iter().zip(dz).filter(|(u, _)| **u > theta) {
                    sum += (u - theta) / eps * dz;
                    first += dz;
                    second += dz * dz;
                    count += 1.0;
                }
                slope += sum - self.costs[i] * dz[self.codes[i] as usize];
                if count > 0.0 {
                    curvature += (second - first * first / count).max(0.0) / eps;
                }
            }
            (slope, curvature)
        };
        let (mut low, mut high, mut t) = (0.0, f64::INFINITY, 1.0);
        for _ in 0..60 {
            self.control.check().map_err(Status::from)?;
            self.control.spend(40 * self.n() * k);
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
            t = match (newton > low && newton < high, high.is_finite()) {
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
}
