//! The proximal point method on the dual of Crammer and Singer, by Newton: `proximal.rs` for several classes.
//!
//! With a_m = c − α_m for the own class and −α_m for the others, the loss of a sample is the maximum of
//! Σ a_m·(e_m + z_m) − c·z_y over the simplex a ≥ 0, Σa = c. Subtracting ½ε‖a − aᵏ‖² makes it smooth: a is then the
//! projection of aᵏ + (e + z)/ε on the simplex, −α is the slope in z, and the curvature is (I − 11ᵀ/|S|)/ε over the
//! classes S with a > 0. Newton's system over W,
//!
//! ```text
//! (I + Σᵢ xᵢxᵢᵀ ⊗ Hᵢ)·ΔW = −(W − Σᵢ xᵢαᵢᵀ)
//! ```
//!
//! is factored if it has at most 1 500 unknowns, and otherwise solved by conjugate gradients.

use super::crammer_singer::{CrammerSingerMeasure, CrammerSingerState};
use super::line_search::search_derivative;
use super::solve::{GapProgress, WIDTH_FACTOR};
use super::state::dot;
use crate::control::Status;
use crate::linalg::factor::{Cholesky, FactorError};

/// Samples between two checks of the budget.
const CHECK_INTERVAL: usize = 256;
/// Most unknowns of a system that is factored.
const MAX_DIRECT_UNKNOWNS: usize = 1500;
/// Most conjugate gradient steps.
const MAX_CG_STEPS: usize = 200;
/// Most Newton steps in a round.
const MAX_STEPS: usize = 60;
/// Rounds without progress in the gap after which the run ends.
const MAX_IDLE_ROUNDS: usize = 12;
/// Largest width of the smoothing, in units of the score.
const MAX_WIDTH: f64 = 1e6;

/// The smoothing of one round: its width in units of the score, and the α of its centre.
struct Smoothing {
    width: f64,
    centre: Vec<f64>,
}

/// The θ with Σ max(0, u_m − θ) = total; the projection is a_m = max(0, u_m − θ)/ε.
fn projection_threshold(u: &[f64], total: f64, sorted: &mut Vec<f64>) -> f64 {
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
    theta
}

impl Smoothing {
    /// Writes u = ε·aᵏ + e + z of sample `i` to `u`, and returns ε.
    fn fill_u(&self, state: &CrammerSingerState<'_, '_>, i: usize, z: impl Fn(usize) -> f64, u: &mut [f64]) -> f64 {
        let (k, own_class, c) = (state.k, state.codes[i] as usize, state.costs[i]);
        let eps = self.width / c;
        let centre = &self.centre[i * k..(i + 1) * k];
        for (m, u) in u.iter_mut().enumerate() {
            let (bound, e) = if m == own_class { (c, 0.0) } else { (0.0, 1.0) };
            *u = eps * (bound - centre[m]) + e + z(m);
        }
        eps
    }
}

/// The samples with a curvature.
struct CurvedSamples {
    /// The sample, and 1/ε.
    rows: Vec<(u32, f64)>,
    /// Where the classes of each sample start in `classes`.
    starts: Vec<usize>,
    /// The classes S of the samples.
    classes: Vec<u32>,
}

impl CrammerSingerState<'_, '_> {
    /// Number of unknowns of Newton's system.
    fn unknowns(&self) -> usize {
        (self.points.dims() + usize::from(self.scaling > 0.0)) * self.k
    }

    /// Whether Newton's system is factored.
    pub(super) fn can_factor_newton(&self) -> bool {
        let size = self.unknowns();
        size <= MAX_DIRECT_UNKNOWNS && 24 * (size * size) as u64 <= self.options.memory
    }

    /// Rounds from the current α. `Optimal` once the stopping criteria hold; `Stalled` when the gap stops falling.
    pub(super) fn proximal(&mut self) -> Result<Status, Status> {
        let v = self.combined()?;
        let mut m = self.measure(&v)?;
        // Wide enough relative to α: for a large cost the optimal α may be far below the cost.
        let mut width = (m.relative().min(1.0).sqrt() / self.typical_share()).clamp(1e-4, MAX_WIDTH);
        let mut target_gap = self.target_gap();
        let mut progress = GapProgress::default();
        let mut best = (m, self.w.clone(), self.alpha.clone());
        loop {
            let smoothing = Smoothing { width, centre: self.alpha.clone() };
            let reached;
            (m, reached) = match self.newton(&smoothing, target_gap) {
                Ok(has_stalled) => has_stalled,
                Err(early) => {
                    (_, self.w, self.alpha) = best;
                    return Err(early);
                }
            };
            if self.is_optimal(&m) {
                return Ok(Status::Optimal);
            }
            if m.relative() <= target_gap && target_gap > 1e-16 {
                target_gap = (0.1 * target_gap).min(0.1 * m.relative());
            }
            if m.gap() < best.0.gap() {
                best = (m, self.w.clone(), self.alpha.clone());
            }
            if progress.has_stalled(m.gap(), MAX_IDLE_ROUNDS) {
                (_, self.w, self.alpha) = best;
                return Ok(Status::Stalled);
            }
            if reached {
                width *= WIDTH_FACTOR;
            } else {
                // Too little smoothing for Newton: repeat from the best point with more.
                (self.w, self.alpha) = (best.1.clone(), best.2.clone());
                width = (10.0 * width).min(MAX_WIDTH);
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

    /// The scores of all samples under `w`, without e.
    fn all_products(&self, w: &[f64]) -> Result<Vec<f64>, Status> {
        let mut z = vec![0.0; self.n() * self.k];
        self.control.spend(self.n() * self.row_cost());
        for (i, z) in z.chunks_mut(self.k).enumerate() {
            if i % CHECK_INTERVAL == 0 {
                self.control.check().map_err(Status::from)?;
            }
            if self.costs[i] > 0.0 {
                self.products(i, w, z);
            }
        }
        Ok(z)
    }

    /// Sets α to that of the smoothed losses at the scores `z`, and returns their curvature.
    fn update_alpha(&mut self, smoothing: &Smoothing, z: &[f64]) -> CurvedSamples {
        let k = self.k;
        let (mut u, mut sorted) = (vec![0.0; k], Vec::with_capacity(k));
        let mut curved = CurvedSamples { rows: Vec::new(), starts: vec![0], classes: Vec::new() };
        for i in (0..self.n()).filter(|&i| self.costs[i] > 0.0) {
            let (own_class, c) = (self.codes[i] as usize, self.costs[i]);
            let eps = smoothing.fill_u(self, i, |m| z[i * k + m], &mut u);
            let theta = projection_threshold(&u, smoothing.width, &mut sorted);
            let mut other_sum = 0.0;
            let count = curved.classes.len();
            // Σa = c in exact arithmetic; for a small ε rounding breaks this, so a is scaled.
            let total: f64 = u.iter().map(|u| (u - theta).max(0.0)).sum();
            for (m, u) in u.iter().enumerate() {
                let a = c * (u - theta).max(0.0) / total;
                if u - theta > 0.0 {
                    curved.classes.push(m as u32);
                }
                if m != own_class {
                    self.alpha[i * k + m] = -a;
                    other_sum += a;
                }
            }
            self.alpha[i * k + own_class] = other_sum.min(c);
            if curved.classes.len() - count >= 2 {
                curved.rows.push((i as u32, 1.0 / eps));
                curved.starts.push(curved.classes.len());
            } else {
                curved.classes.truncate(count);
            }
        }
        curved
    }

    /// Newton's method on the smoothed problem from the current W; true if the mismatch is at most the gap left by
    /// smoothing.
    fn newton(&mut self, smoothing: &Smoothing, target_gap: f64) -> Result<(CrammerSingerMeasure, bool), Status> {
        let mut z = self.all_products(&self.w)?;
        let mut curved = self.update_alpha(smoothing, &z);
        let mut progress = GapProgress::default();
        for step in 0.. {
            let v = self.combined()?;
            let m = self.measure(&v)?;
            self.report("newton", curved.rows.len())?;
            let scale = m.primal.abs().max((m.primal - m.gap()).abs());
            if m.mismatch <= m.excess.max(0.3 * target_gap * scale).max(m.rounding) {
                return Ok((m, true));
            }
            if step >= MAX_STEPS || progress.has_stalled(m.mismatch, 12) {
                return Ok((m, false));
            }
            self.count_iteration()?;
            let right: Vec<f64> = v.iter().zip(&self.w).map(|(v, w)| v - w).collect();
            let solved = if self.can_factor_newton() {
                self.direct_direction(&curved, &right)
            } else {
                self.cg_direction(&curved, &right)
            };
            let direction = match solved {
                Err(Status::Stalled) => return Ok((m, false)),
                other => other?,
            };
            let dz = self.all_products(&direction)?;
            let t = self.line_search(smoothing, &z, &dz, &direction, &right)?;
            if t == 0.0 {
                return Ok((m, false));
            }
            self.w.iter_mut().zip(&direction).for_each(|(w, d)| *w += t * d);
            z.iter_mut().zip(&dz).for_each(|(z, d)| *z += t * d);
            curved = self.update_alpha(smoothing, &z);
        }
        Err(Status::Stalled)
    }

    /// Solves Newton's system by Cholesky; unknowns are ordered by class, then by feature.
    fn direct_direction(&mut self, curved: &CurvedSamples, right: &[f64]) -> Result<Vec<f64>, Status> {
        let (k, size) = (self.k, self.unknowns());
        let d = size / k;
        let mut matrix = vec![0.0; size * size];
        (0..size).for_each(|at| matrix[at * size + at] = 1.0);
        let mut row: Vec<(usize, f64)> = Vec::new();
        for (at, &(i, gain)) in curved.rows.iter().enumerate() {
            if at % CHECK_INTERVAL == 0 {
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
                        // Of a diagonal block only the lower triangle is read; the entries of a row ascend by feature.
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
                // The matrix is I plus a semidefinite one; the factorisation can fail only by rounding.
                Err(FactorError::NotPositive(_)) => jitter = if jitter == 0.0 { 1e-14 } else { 30.0 * jitter },
            }
        };
        let mut s: Vec<f64> = (0..size).map(|at| right[place(at)] * roots[at]).collect();
        factor.solve(&mut s);
        let mut out = vec![0.0; right.len()];
        (0..size).for_each(|at| out[place(at)] = s[at] * roots[at]);
        Ok(out)
    }

    /// Solves Newton's system by conjugate gradients with a diagonal preconditioner.
    fn cg_direction(&mut self, curved: &CurvedSamples, right: &[f64]) -> Result<Vec<f64>, Status> {
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
        for _ in 0..MAX_CG_STEPS {
            if !(ry > goal) {
                break;
            }
            self.control.spend(2 * curved.rows.len() * self.row_cost());
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
            let ratio = next / ry;
            ry = next;
            p.iter_mut().zip(&y).for_each(|(p, y)| *p = y + ratio * *p);
        }
        Ok(s)
    }

    /// The step at which the derivative along the direction has fallen to a tenth; 0 if the direction does not descend.
    fn line_search(
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
        let (norm_curvature, norm_slope) = (dot(direction, direction), dot(&self.w, direction));
        let (mut u, mut sorted) = (vec![0.0; k], Vec::with_capacity(k));
        let derivatives = |t: f64| {
            self.control.spend(40 * self.n() * k);
            let (mut slope, mut curvature) = (norm_slope + t * norm_curvature, norm_curvature);
            for i in (0..self.n()).filter(|&i| self.costs[i] > 0.0) {
                let dz = &dz[i * k..(i + 1) * k];
                let eps = smoothing.fill_u(self, i, |m| z[i * k + m] + t * dz[m], &mut u);
                let theta = projection_threshold(&u, smoothing.width, &mut sorted);
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
        search_derivative(start, self.control, derivatives).map_err(Status::from)
    }
}
