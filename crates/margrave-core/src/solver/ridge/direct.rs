//! The kernel system by Cholesky: (K + diag(r))·β + b·1 = y, Σβ = s (paper 003, (5); with b, the LS-SVM).
//!
//! With A = K + diag(r) = LLᵀ and v = A⁻¹1, elimination of the border gives b = (1ᵀA⁻¹y − s)/(1ᵀv), β = A⁻¹y − b·v, and
//! the diagonal of the inverse of the bordered matrix is (A⁻¹)ᵢᵢ − vᵢ²/(1ᵀv). (A⁻¹)ᵢᵢ = ‖L⁻¹eᵢ‖².
//!
//! Cost: n²  kernel entries, n³/3 multiply–adds to factor, n² a target, n³/3 for the leave-one-out. Memory: n² doubles;
//! the factor overwrites K.
//!
//! Departure from the paper: jitter (see the module head), and refinement of the solution against the true K.

use super::{Halt, check_memory, not_semidefinite};
use crate::backend::cpu::factor::{Cholesky, FactorError};
use crate::backend::cpu::pages;
use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick, Precision};

/// A factored system over the rows it was given.
pub struct System<'a> {
    gram: &'a dyn Gram,
    /// Rows of K that take part.
    rows: &'a [u32],
    /// rᵢ = 1/cᵢ of each of them.
    ridge: &'a [f64],
    factor: Cholesky<f64>,
    jitter: f64,
    /// v = A⁻¹1 and 1ᵀv, with a bias.
    border: Option<(Vec<f64>, f64)>,
}

/// One solution: β over the rows of the system, b, K·β, and the largest violated equation.
#[derive(Debug, Clone)]
pub struct Solved {
    /// β.
    pub beta: Vec<f64>,
    /// b, 0 without a bias.
    pub bias: f64,
    /// K·β of the rows of the system, without bias.
    pub scores: Vec<f64>,
    /// max |yᵢ − (Kβ)ᵢ − b − rᵢβᵢ|.
    pub violation: f64,
}

impl<'a> System<'a> {
    /// Assembles and factors K[rows, rows] + diag(ridge), with the least jitter that makes it positive definite.
    pub fn new(
        gram: &'a dyn Gram,
        rows: &'a [u32],
        ridge: &'a [f64],
        bias: bool,
        memory: u64,
        control: &Control,
    ) -> Result<Self, Halt> {
        let n = rows.len();
        check_memory("the matrix of a least-squares system", n * n, memory)?;
        let all = gram.diag();
        let largest = rows.iter().map(|&i| all[i as usize].abs()).fold(f64::MIN_POSITIVE, f64::max);
        let mut jitter = 0.0;
        let factor = loop {
            let mut a = pages::zeros(n * n);
            gram.block_f64(Pick::List(rows), Pick::List(rows), &mut a, control)?;
            for i in 0..n {
                a[i * n + i] += ridge[i] + jitter;
            }
            match Cholesky::new(a, n, n, control) {
                Ok(factor) => break factor,
                Err(FactorError::Interrupted(why)) => return Err(why.into()),
                Err(FactorError::NotPositive(_)) => {
                    jitter = if jitter == 0.0 { n as f64 * f64::EPSILON * largest } else { 10.0 * jitter };
                    // No eigenvalue of K is below −n·max|K|; entries off a sound diagonal do not exceed it.
                    if jitter > 10.0 * n as f64 * largest {
                        return Err(not_semidefinite().into());
                    }
                }
            }
        };
        let mut this = Self { gram, rows, ridge, factor, jitter, border: None };
        if bias {
            let mut v = vec![1.0; n];
            this.factor.solve(&mut v);
            let total = v.iter().sum();
            this.border = Some((v, total));
        }
        Ok(this)
    }

    /// What was added to the diagonal of K.
    pub fn jitter(&self) -> f64 {
        self.jitter
    }

    /// (β, b) of the factored system for the right-hand sides y and s.
    fn eliminate(&self, y: &[f64], s: f64) -> (Vec<f64>, f64) {
        let mut beta = y.to_vec();
        let Some((v, total)) = &self.border else {
            self.factor.solve(&mut beta);
            return (beta, 0.0);
        };
        // Targets far from 0 would be taken up by b and cancel in β: take their mean out first.
        let mean = y.iter().sum::<f64>() / y.len().max(1) as f64;
        beta.iter_mut().for_each(|x| *x -= mean);
        self.factor.solve(&mut beta);
        let b = (beta.iter().sum::<f64>() - s) / total;
        beta.iter_mut().zip(v).for_each(|(x, v)| *x -= b * v);
        (beta, mean + b)
    }

    /// Solves for one target, Σβ = s, and refines against the true K while that helps.
    pub fn solve(&self, y: &[f64], s: f64, control: &Control) -> Result<Solved, Interrupt> {
        let (beta, bias) = self.eliminate(y, s);
        let mut best = self.residual(beta, bias, y, control)?;
        for _ in 0..3 {
            if best.1.violation == 0.0 {
                break;
            }
            let short = s - best.1.beta.iter().sum::<f64>();
            let (step, shift) = self.eliminate(&best.0, if self.border.is_some() { short } else { 0.0 });
            let beta = best.1.beta.iter().zip(&step).map(|(a, b)| a + b).collect();
            let next = self.residual(beta, best.1.bias + shift, y, control)?;
            // A step that gains less than half is rounding.
            let enough = next.1.violation < 0.5 * best.1.violation;
            if next.1.violation < best.1.violation {
                best = next;
            }
            if !enough {
                break;
            }
        }
        Ok(best.1)
    }

    /// The residuals of all equations, with the point they belong to.
    fn residual(
        &self,
        beta: Vec<f64>,
        bias: f64,
        y: &[f64],
        control: &Control,
    ) -> Result<(Vec<f64>, Solved), Interrupt> {
        let mut all = vec![0.0; self.gram.shape().1];
        self.rows.iter().zip(&beta).for_each(|(&i, b)| all[i as usize] = *b);
        let mut scores = vec![0.0; self.rows.len()];
        self.gram.apply(Precision::Double, Pick::List(self.rows), &all, 1, &mut scores, control)?;
        let residual: Vec<f64> = (0..y.len()).map(|i| y[i] - scores[i] - bias - self.ridge[i] * beta[i]).collect();
        let violation = residual.iter().fold(0.0f64, |m, r| m.max(r.abs()));
        Ok((residual, Solved { beta, bias, scores, violation }))
    }

    /// (M⁻¹)ᵢᵢ of the whole system, border included: leave-one-out residuals are β divided by it.
    pub fn inverse_diag(&self, control: &Control) -> Result<Vec<f64>, Interrupt> {
        let mut diag = self.factor.inverse_diag(control)?;
        if let Some((v, total)) = &self.border {
            diag.iter_mut().zip(v).for_each(|(d, v)| *d -= v * v / total);
        }
        Ok(diag)
    }
}
