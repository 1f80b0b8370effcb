//! Regularised least squares (paper 003, §1) and the least-squares SVM: linear systems instead of quadratic programs.
//!
//! Problem: min ½‖f‖² + Σᵢ ½cᵢ(yᵢ − f(xᵢ) − b)². With f = Σ βᵢk(xᵢ, ·) its solution solves
//!
//! ```text
//! (K + diag(1/c))·β + b·1 = y,     Σβ = 0 with a bias, b = 0 without
//! ```
//!
//! which is (5) of the paper for c = 1/λ without a bias, and the LS-SVM with a free bias. The same system covers
//! regression and classification (labels ±1 as targets), any costs, and several targets at once.
//!
//! | file | contents | cost |
//! |---|---|---|
//! | [`direct`] | one λ, any costs: Cholesky, and leave-one-out in closed form | n³/3, plus n³/3 for leave-one-out |
//! | [`primal`] | the linear kernel with n ≥ d: (XᵀCX + I)w = XᵀCy, (12) of the paper | nd² + d³/3 |
//! | [`spectral`] | every λ from one eigendecomposition, (8) and (9), with leave-one-out | O(n³) once, O(n²) per λ |
//!
//! Leave-one-out needs no refitting: with M the matrix of the whole system, border included,
//! yᵢ − z₍₋ᵢ₎(xᵢ) = βᵢ / (M⁻¹)ᵢᵢ. (Block inversion of M: row i of M·(β, b) = (y, 0) minus the prediction of the other
//! rows.)
//!
//! If K is singular to working precision, a jitter is added to its diagonal: the smallest with which the factorisation
//! succeeds. It is reported, and refinement against the true K removes as much of its effect as possible.

pub mod direct;
pub mod options;
pub mod primal;
mod solve;
pub mod spectral;
#[cfg(test)]
mod tests;

pub use options::{PathOptions, RidgeOptions, Side};
pub use solve::{Fit, Path, RidgeSolution, Source, fit, path, solve};
pub use spectral::{PathPoint, Spectrum};

use crate::control::Interrupt;
use crate::error::{Error, Result};
use crate::linalg::eigen::EigenError;
use crate::linalg::factor::FactorError;

/// Why a computation ended without a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Halt {
    /// The budget is exhausted.
    Interrupted(Interrupt),
    /// The input cannot be used.
    Error(Error),
}

impl From<Interrupt> for Halt {
    fn from(why: Interrupt) -> Self {
        Halt::Interrupted(why)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Halt::Error(error)
    }
}

impl From<FactorError> for Halt {
    fn from(error: FactorError) -> Self {
        match error {
            FactorError::Interrupted(why) => Halt::Interrupted(why),
            FactorError::NotPositive(_) => Halt::Error(not_semidefinite()),
        }
    }
}

impl From<EigenError> for Halt {
    fn from(error: EigenError) -> Self {
        match error {
            EigenError::Interrupted(why) => Halt::Interrupted(why),
            EigenError::NoConvergence => Halt::Error(Error::data(
                "the eigendecomposition of the Gram matrix failed: some of its entries are not finite",
            )),
        }
    }
}

fn not_semidefinite() -> Error {
    Error::data(
        "the Gram matrix is far from positive semi-definite, so least squares has no solution: use another kernel",
    )
}

/// Fails unless `entries` doubles fit in `budget` bytes.
fn check_memory(what: &'static str, entries: usize, budget: u64) -> Result<()> {
    let needed = (entries as u64).saturating_mul(8);
    if needed > budget { Err(Error::Memory { what, needed, budget }) } else { Ok(()) }
}
