//! Dual coordinate descent (Hsieh, Chang, Lin, Keerthi and Sundararajan, ICML 2008, Algorithms 1 and 3; Ho and Lin, JMLR 13,
//! 2012, for regression), for every loss with a dual term.
//!
//! ```text
//! minimise ½‖Xᵀβ‖² + Σ h(βᵢ),   h(β) = pβ + eps|β| + ½dβ² on [lo, hi]
//! βᵢ ← clip(soft(Qᵢᵢβᵢ − zᵢ − p, eps)/(Qᵢᵢ + d), lo, hi),   Qᵢᵢ = ‖xᵢ‖² + s²
//! ```
//!
//! w = Xᵀβ and b are kept up to date, so a step costs the stored values of one row. A penalised bias is the weight of a feature of value s.
//! A free bias is the multiplier of Σβ = 0: within an epoch it is penalised about where it stood, with s² the mean squared norm of the
//! rows, and after it moves by s²Σβ (method of multipliers). Rows are taken in a new random order each epoch. Samples at a bound whose
//! gradient is beyond every violation of the last epoch are left out until all others agree; nothing is concluded
//! before all are looked at again.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::piece::{Smoothed, Terms};
use super::state::{Measure, State};
use crate::backend::cpu::rows::{sparse_add, sparse_dot};
use crate::control::Status;
use crate::data::{Points, Real, Storage};
use crate::loss::DualTerm;

/// Rows between two looks at the clock.
const LOOK: usize = 4096;

/// How coordinate descent ended.
pub(super) enum Descended {
    /// The gap asked for holds.
    Reached(Measure),
    /// Newton will be faster from here.
    Crawling(Measure),
}

struct Sweep<'t> {
    terms: &'t Terms,
    /// Qᵢᵢ.
    diagonal: Vec<f64>,
    /// s² of the bias.
    square: f64,
    active: Vec<u32>,
    /// Violations above this were seen in the last epoch.
    bar: f64,
}

/// By how much β wants to rise, and to fall, in units of the score; −∞ where it cannot.
#[inline(always)]
fn pulls(t: &DualTerm, beta: f64, slope: f64) -> (f64, f64) {
    let up = if beta < t.hi { -(slope + if beta < 0.0 { -t.eps } else { t.eps }) } else { f64::NEG_INFINITY };
    let down = if beta > t.lo { slope + if beta > 0.0 { t.eps } else { -t.eps } } else { f64::NEG_INFINITY };
    (up, down)
}

impl Sweep<'_> {
    /// One epoch over the active samples: the largest violation met; samples that agree firmly become inactive.
    fn epoch(
        &mut self,
        state: &mut State<'_, '_>,
        points: &Points,
        rng: &mut ChaCha8Rng,
        shrink: bool,
    ) -> Result<f64, Status> {
        self.active.shuffle(rng);
        match points.storage() {
            Storage::SparseF32(m) => self.rows(state, shrink, |i| m.row(i), SparseRow),
            Storage::SparseF64(m) => self.rows(state, shrink, |i| m.row(i), SparseRow),
            Storage::DenseF32(m) => self.rows(state, shrink, |i| m.row(i), DenseRow),
            Storage::DenseF64(m) => self.rows(state, shrink, |i| m.row(i), DenseRow),
        }
    }

    #[inline(always)]
    fn rows<R, K: Kernel<R>>(
        &mut self,
        state: &mut State<'_, '_>,
        shrink: bool,
        row: impl Fn(usize) -> R,
        kernel: K,
    ) -> Result<f64, Status> {
        let bar = if shrink { self.bar } else { f64::INFINITY };
        let mut worst = 0.0f64;
        let mut kept = 0;
        for at in 0..self.active.len() {
            if at % LOOK == 0 {
                state.control.check()?;
            }
            let index = self.active[at];
            let i = index as usize;
            let (t, beta, q) = (self.terms.get(i), state.beta[i], self.diagonal[i]);
            let x = row(i);
            let z = kernel.dot(&x, &state.w) + state.b;
            let (up, down) = pulls(&t, beta, z + t.p + t.d * beta);
            let pull = up.max(down);
            if pull < -bar {
                continue;
            }
            self.active[kept] = index;
            kept += 1;
            if pull <= 0.0 {
                continue;
            }
            worst = worst.max(pull);
            let s = q * beta - z - t.p;
            let soft = (s - t.eps).max(0.0) + (s + t.eps).min(0.0);
            let bottom = q + t.d;
            let new = if bottom > 0.0 {
                (soft / bottom).max(t.lo).min(t.hi)
            } else if soft > 0.0 {
                t.hi
            } else {
                t.lo
            };
            let delta = new - beta;
            if delta != 0.0 {
                state.beta[i] = new;
                kernel.add(&x, delta, &mut state.w);
                state.b += self.square * delta;
                state.sum += delta;
            }
        }
        self.active.truncate(kept);
        Ok(worst)
    }
}

/// Products with one row.
trait Kernel<R> {
    fn dot(&self, x: &R, w: &[f64]) -> f64;
    fn add(&self, x: &R, c: f64, w: &mut [f64]);
}

struct SparseRow;

impl<T: Real> Kernel<(&[u32], &[T])> for SparseRow {
    #[inline(always)]
    fn dot(&self, x: &(&[u32], &[T]), w: &[f64]) -> f64 {
        sparse_dot(x.0, x.1, w)
    }
    #[inline(always)]
    fn add(&self, x: &(&[u32], &[T]), c: f64, w: &mut [f64]) {
        sparse_add(x.0, x.1, c, w);
    }
}

struct DenseRow;

impl<T: Real> Kernel<&[T]> for DenseRow {
    #[inline(always)]
    fn dot(&self, x: &&[T], w: &[f64]) -> f64 {
        let mut sums = [0.0; 8];
        let (xs, ws) = (x.chunks_exact(8), w.chunks_exact(8));
        let rest: f64 = xs.remainder().iter().zip(ws.remainder()).map(|(x, w)| x.to_f64() * w).sum();
        for (x, w) in xs.zip(ws) {
            (0..8).for_each(|l| sums[l] += x[l].to_f64() * w[l]);
        }
        sums.iter().sum::<f64>() + rest
    }
    #[inline(always)]
    fn add(&self, x: &&[T], c: f64, w: &mut [f64]) {
        w.iter_mut().zip(*x).for_each(|(w, x)| *w += c * x.to_f64());
    }
}

impl State<'_, '_> {
    /// Coordinate descent from the current β until the relative gap is `aim`, or Newton promises more. w becomes Xᵀβ.
    pub(super) fn descend_coordinates(
        &mut self,
        terms: &Terms,
        points: &Points,
        aim: f64,
        seed: u64,
        most: usize,
    ) -> Result<Descended, Status> {
        let n = self.n();
        let norms = points.squared_norms();
        let square = match self.rho {
            None => 0.0,
            Some(rho) if rho > 0.0 => 1.0 / rho,
            Some(_) => norms.iter().sum::<f64>() / n.max(1) as f64,
        };
        let free = self.rho == Some(0.0);
        self.w.copy_from_slice(&self.v);
        if self.rho.is_some_and(|rho| rho > 0.0) {
            self.b = square * self.sum;
        }
        let diagonal = norms.iter().map(|q| q + square).collect();
        let all = || {
            (0..n as u32)
                .filter(|&i| {
                    let t = terms.get(i as usize);
                    t.hi > t.lo
                })
                .collect::<Vec<u32>>()
        };
        let mut sweep = Sweep { terms, diagonal, square, active: all(), bar: f64::INFINITY };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut checked = f64::INFINITY;
        let mut next = 4;
        for epoch in 1.. {
            self.check()?;
            self.iterations += 1;
            let worst = sweep.epoch(self, points, &mut rng, true)?;
            if free {
                self.b += square * self.sum;
            }
            sweep.bar = if worst > 0.0 { worst } else { f64::INFINITY };
            if epoch < next && epoch < most && worst > 0.03 * checked && !sweep.active.is_empty() {
                continue;
            }
            // All samples again, with scores computed anew.
            self.v.copy_from_slice(&self.w);
            self.rescore()?;
            let piece = Smoothed::new(terms, 0.0, &self.beta);
            let m = self.measure(&piece);
            self.report("coordinate", &m, sweep.active.len())?;
            // What is missing to Σβ = 0 costs about its product with a score.
            let slack = if free { self.sum.abs() * (1.0 + self.b.abs()) } else { 0.0 };
            if m.gap() + slack <= aim * m.scale() {
                return Ok(Descended::Reached(m));
            }
            if epoch >= most {
                return Ok(Descended::Crawling(m));
            }
            checked = worst;
            next = epoch + (epoch / 3).max(4);
            let bar = 2.0 * worst;
            sweep.active = all();
            sweep.active.retain(|&i| {
                let (t, beta) = (terms.get(i as usize), self.beta[i as usize]);
                let (up, down) = pulls(&t, beta, self.z[i as usize] + t.p + t.d * beta);
                up.max(down) >= -bar
            });
        }
        Err(Status::IterationLimit)
    }
}
