//! Regularised least squares (paper 003, §1) and the least-squares SVM: linear systems instead of quadratic programs.
//!
//! Problem: min ½‖f‖² + Σᵢ ½cᵢ(yᵢ − f(xᵢ) − b)². With f = Σ βᵢk(xᵢ, ·) its solution is that of
//!
//! ```text
//! (K + diag(1/c))·β + b·1 = y,     Σβ = 0 with a bias, b = 0 without
//! ```
//!
//! which is (5) of the paper for c = 1/λ and no bias, and the LS-SVM for a free bias. One system serves regression and
//! classification (labels ±1 as targets), any costs, and several targets at once.
//!
//! | file | what | cost |
//! |---|---|---|
//! | [`direct`] | one λ, any costs: Cholesky, and the closed leave-one-out | n³/3, and n³/3 more for leave-one-out |
//! | [`primal`] | the linear kernel with n ≥ d: (XᵀCX + I)w = XᵀCy, (12) of the paper | nd² + d³/3 |
//! | [`spectral`] | every λ from one eigendecomposition, (8) and (9), with leave-one-out | O(n³) once, O(n²) a λ |
//!
//! Leave-one-out needs no refitting: with M the matrix of the whole system, border included,
//! yᵢ − z₍₋ᵢ₎(xᵢ) = βᵢ / (M⁻¹)ᵢᵢ. (Block inversion of M: the i-th row of M·(β, b) = (y, 0) minus what the others predict.)
//!
//! A K that is singular to working precision gets a jitter on its diagonal, the smallest that lets the factorisation
//! pass, which is reported; refinement against the true K then takes back what it can.

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

/// Why a computation has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum Halt {
    /// The budget ran out.
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
                "the Gram matrix has no eigendecomposition: some of its entries are not finite",
            )),
        }
    }
}

fn not_semidefinite() -> Error {
    Error::data(
        "the Gram matrix is far from positive semi-definite: least squares with it has no solution; use another kernel",
    )
}

/// Fails unless `entries` doubles fit in `budget` bytes.
fn check_memory(what: &'static str, entries: usize, budget: u64) -> Result<()> {
    let needed = (entries as u64).saturating_mul(8);
    if needed > budget { Err(Error::Memory { what, needed, budget }) } else { Ok(()) }
}
