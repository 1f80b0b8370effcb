//! The kernel system by Cholesky: (K + diag(r))·β + b·1 = y, Σβ = s (paper 003, (5); with b, the LS-SVM).
//!
//! With A = K + diag(r) = LLᵀ and v = A⁻¹1, elimination of the border gives b = (1ᵀA⁻¹y − s)/(1ᵀv), β = A⁻¹y − b·v, and
//! the diagonal of the inverse of the bordered matrix is (A⁻¹)ᵢᵢ − vᵢ²/(1ᵀv). (A⁻¹)ᵢᵢ = ‖L⁻¹eᵢ‖².
//!
//! Cost: n² kernel entries, n³/3 multiply–adds to factor, n² per target, n³/3 for leave-one-out. Memory: n² doubles;
//! the factor overwrites K.
//!
//! Where the Gram has a factor on its device, that is used; β is refined and judged in the same way.
//!
//! Departures from the paper: the solution is refined against the true K. If K + diag(r) is not positive definite, a
//! multiple τ of 11ᵀ is added first; with Σβ = s it only changes b by τ·s. It makes a kernel positive definite that is
//! so on vectors of sum zero, such as a linear kernel minus a constant. Jitter is the last resort (see the module
//! head).

use std::sync::OnceLock;

use super::{Halt, check_memory, not_semidefinite};
use crate::control::{Control, Interrupt};
use crate::gram::{DeviceFactor, DeviceFactored, Gram, Pick, Precision};
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::pages;

/// τ relative to the largest |Kᵢᵢ|.
const RELATIVE_LIFT: f64 = 10.0;
/// Most rounds of refinement.
const MAX_ROUNDS: usize = 4;
/// Most rounds of refinement if a jitter separates the factor from the system.
const MAX_ROUNDS_WITH_JITTER: usize = 60;

/// A factor on the processor, or on the device of the Gram until one is needed here.
struct Factor {
    there: Option<Box<dyn DeviceFactor>>,
    here: OnceLock<Cholesky<f64>>,
}

/// A factored system over the given rows.
pub struct System<'a> {
    gram: &'a dyn Gram,
    /// The rows of K used.
    rows: &'a [u32],
    /// rᵢ = 1/cᵢ of each row used.
    ridge: &'a [f64],
    factor: Factor,
    jitter: f64,
    /// τ.
    lift: f64,
    /// v = A⁻¹1 and 1ᵀv, with a bias.
    border: Option<(Vec<f64>, f64)>,
}

/// Solutions for k targets: β over the rows of the system, b, K·β, and the largest violation of an equation.
#[derive(Debug, Clone)]
pub struct DirectSolution {
    /// β, rows × k.
    pub beta: Vec<f64>,
    /// b of each target, 0 without a bias.
    pub bias: Vec<f64>,
    /// K·β of the rows of the system, without bias, rows × k.
    pub scores: Vec<f64>,
    /// For each target the larger of max |yᵢ − (Kβ)ᵢ − b − rᵢβᵢ| and |s − Σβ|/Σ(1/r), both in units of the score.
    pub violation: Vec<f64>,
}

impl<'a> System<'a> {
    /// Assembles and factors K[rows, rows] + diag(ridge), with the smallest jitter that makes it positive definite.
    pub fn new(
        gram: &'a dyn Gram,
        rows: &'a [u32],
        ridge: &'a [f64],
        bias: bool,
        memory: u64,
        control: &Control,
    ) -> Result<Self, Halt> {
        let n = rows.len();
        if let Some(DeviceFactored::Factor(there)) = gram.factored(rows, ridge, control) {
            let factor = Factor { there: Some(there), here: OnceLock::new() };
            let mut this = Self { gram, rows, ridge, factor, jitter: 0.0, lift: 0.0, border: None };
            if bias {
                let v = this.factor.there.as_ref().and_then(|there| {
                    let mut ones = vec![vec![1.0; n]];
                    there.solve(&mut ones).then(|| ones.remove(0))
                });
                this.border = v.map(|v| {
                    let total = v.iter().sum();
                    (v, total)
                });
            }
            if !bias || this.border.as_ref().is_some_and(|(_, total)| total.is_finite() && *total > 0.0) {
                return Ok(this);
            }
        }
        check_memory("the matrix of a least-squares system", n * n, memory)?;
        let all = gram.diag();
        let largest = rows.iter().map(|&i| all[i as usize].abs()).fold(f64::MIN_POSITIVE, f64::max);
        let (mut jitter, mut lift) = (0.0, 0.0);
        let factor = loop {
            let mut a = pages::zeros(n * n);
            gram.block_f64(Pick::List(rows), Pick::List(rows), &mut a, control)?;
            if lift > 0.0 {
                a.iter_mut().for_each(|a| *a += lift);
            }
            for i in 0..n {
                a[i * n + i] += ridge[i] + jitter;
            }
            match Cholesky::new(a, n, n, control) {
                Ok(factor) => break factor,
                Err(FactorError::Interrupted(why)) => return Err(why.into()),
                Err(FactorError::NotPositive(_)) if bias && lift == 0.0 => lift = RELATIVE_LIFT * largest,
                Err(FactorError::NotPositive(_)) => {
                    jitter = if jitter == 0.0 { n as f64 * f64::EPSILON * largest } else { 10.0 * jitter };
                    // No eigenvalue of K is below −n·max|K|, and no entry of a valid K exceeds its largest diagonal.
                    if jitter > 10.0 * n as f64 * largest {
                        return Err(not_semidefinite().into());
                    }
                }
            }
        };
        let factor = Factor { there: None, here: OnceLock::from(factor) };
        let mut this = Self { gram, rows, ridge, factor, jitter, lift, border: None };
        if bias {
            let mut v = vec![1.0; n];
            this.apply_inverse(&mut v, control)?;
            let total = v.iter().sum();
            this.border = Some((v, total));
        }
        Ok(this)
    }

    /// The jitter added to the diagonal of K.
    pub fn jitter(&self) -> f64 {
        self.jitter
    }

    /// The factor in the memory of the processor; a device's is computed again where that is asked for things it cannot do.
    fn here(&self, control: &Control) -> Result<&Cholesky<f64>, Interrupt> {
        if let Some(factor) = self.factor.here.get() {
            return Ok(factor);
        }
        let n = self.rows.len();
        let mut jitter = self.jitter;
        loop {
            let mut a = pages::zeros(n * n);
            self.gram.block_f64(Pick::List(self.rows), Pick::List(self.rows), &mut a, control)?;
            (0..n).for_each(|i| a[i * n + i] += self.ridge[i] + jitter);
            match Cholesky::new(a, n, n, control) {
                Ok(factor) => return Ok(self.factor.here.get_or_init(|| factor)),
                Err(FactorError::Interrupted(why)) => return Err(why),
                // The device has factored it: only rounding is missing.
                Err(FactorError::NotPositive(_)) => jitter = (10.0 * jitter).max(n as f64 * f64::EPSILON),
            }
        }
    }

    /// v = A⁻¹v.
    fn apply_inverse(&self, v: &mut Vec<f64>, control: &Control) -> Result<(), Interrupt> {
        if let Some(there) = &self.factor.there {
            let mut right = [v.clone()];
            if there.solve(&mut right) {
                let [solved] = right;
                *v = solved;
                return Ok(());
            }
        }
        self.here(control)?.solve(v);
        Ok(())
    }

    /// (β, b) of the factored system for the right-hand sides y and s.
    fn eliminate(&self, y: impl Iterator<Item = f64>, s: f64, control: &Control) -> Result<(Vec<f64>, f64), Interrupt> {
        let mut beta: Vec<f64> = y.collect();
        let Some((v, total)) = &self.border else {
            self.apply_inverse(&mut beta, control)?;
            return Ok((beta, 0.0));
        };
        // Targets far from 0 would cancel in β against b: subtract their mean first.
        let mean = beta.iter().sum::<f64>() / beta.len().max(1) as f64;
        beta.iter_mut().for_each(|x| *x -= mean);
        self.apply_inverse(&mut beta, control)?;
        let b = (beta.iter().sum::<f64>() - s) / total;
        beta.iter_mut().zip(v).for_each(|(x, v)| *x -= b * v);
        Ok((beta, mean + b + self.lift * s))
    }

    /// Solves for k targets (`y` is rows × k) with Σβ = s for each, and refines against the true K as long as that
    /// helps.
    ///
    /// A round costs one pass over K for all targets together.
    pub fn solve(&self, y: &[f64], k: usize, s: f64, control: &Control) -> Result<DirectSolution, Interrupt> {
        let n = self.rows.len();
        let zero =
            DirectSolution { beta: vec![0.0; n * k], bias: vec![0.0; k], scores: Vec::new(), violation: vec![0.0; k] };
        let mut residual = y.to_vec();
        let mut best = zero;
        let mut open: Vec<usize> = (0..k).collect();
        let (rounds, max_ratio) = if self.jitter > 0.0 { (MAX_ROUNDS_WITH_JITTER, 0.9) } else { (MAX_ROUNDS, 0.5) };
        for round in 0..rounds {
            let steps = control.threads.map(open.len(), |c| {
                let j = open[c];
                let missing_sum = s - (0..n).map(|i| best.beta[i * k + j]).sum::<f64>();
                self.eliminate((0..n).map(|i| residual[i * k + j]), missing_sum, control)
            });
            let steps = steps.into_iter().collect::<Result<Vec<_>, Interrupt>>()?;
            control.check()?;
            let mut next = best.clone();
            for (&j, (beta, bias)) in open.iter().zip(&steps) {
                (0..n).for_each(|i| next.beta[i * k + j] += beta[i]);
                next.bias[j] += bias;
            }
            let next_residual = self.residual(&mut next, y, k, s, control)?;
            if round == 0 {
                (best, residual) = (next, next_residual);
                open.retain(|&j| best.violation[j] > 0.0);
            } else {
                open.retain(|&j| {
                    let (before, after) = (best.violation[j], next.violation[j]);
                    if after < before {
                        for at in (j..n * k).step_by(k) {
                            (best.beta[at], best.scores[at]) = (next.beta[at], next.scores[at]);
                            residual[at] = next_residual[at];
                        }
                        (best.bias[j], best.violation[j]) = (next.bias[j], after);
                    }
                    // A smaller gain is due to rounding or to the jitter.
                    after < max_ratio * before && after > 0.0
                });
            }
            if open.is_empty() {
                break;
            }
        }
        Ok(best)
    }

    /// Computes the residuals of all equations at `point`, and sets its scores and violations.
    fn residual(
        &self,
        point: &mut DirectSolution,
        y: &[f64],
        k: usize,
        s: f64,
        control: &Control,
    ) -> Result<Vec<f64>, Interrupt> {
        let n = self.rows.len();
        let mut all = vec![0.0; self.gram.shape().1 * k];
        for (i, &row) in self.rows.iter().enumerate() {
            all[row as usize * k..(row as usize + 1) * k].copy_from_slice(&point.beta[i * k..(i + 1) * k]);
        }
        point.scores = vec![0.0; n * k];
        self.gram.apply(Precision::Double, Pick::List(self.rows), &all, k, &mut point.scores, control)?;
        let residual: Vec<f64> = (0..n * k)
            .map(|at| y[at] - point.scores[at] - point.bias[at % k] - self.ridge[at / k] * point.beta[at])
            .collect();
        point.violation.fill(0.0);
        for (at, r) in residual.iter().enumerate() {
            point.violation[at % k] = larger(point.violation[at % k], r.abs());
        }
        if self.border.is_some() {
            let total: f64 = self.ridge.iter().map(|r| 1.0 / r).sum();
            for (j, worst) in point.violation.iter_mut().enumerate() {
                let sum: f64 = (0..n).map(|i| point.beta[i * k + j]).sum();
                *worst = larger(*worst, (s - sum).abs() / total);
            }
        }
        Ok(residual)
    }

    /// (M⁻¹)ᵢᵢ of the whole system, border included: leave-one-out residuals are β divided by it.
    pub fn inverse_diag(&self, control: &Control) -> Result<Vec<f64>, Interrupt> {
        let mut diag = self.here(control)?.inverse_diag(control)?;
        if let Some((v, total)) = &self.border {
            diag.iter_mut().zip(v).for_each(|(d, v)| *d -= v * v / total);
        }
        Ok(diag)
    }
}

/// The larger of two numbers; NaN counts as infinite.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::INFINITY } else { a.max(b) }
}
