//! Solvers. All folders use the same file names; each file starts with the problem it solves and its paper.
//!
//! Every solver takes a problem, its own options, a [`Control`](crate::Control) and an
//! [`Observer`](crate::observe::Observer), and returns a [`Solution`]: the best point found and the reason why the run
//! ended. Bad input is an error; an exhausted budget is a status.

pub mod choose;
pub mod decomposition;
mod gap;
pub mod irwls;
pub mod linear;
pub mod nystrom;
pub mod ridge;
pub mod textbook;

use serde::{Deserialize, Serialize};

use crate::certificate::Scores;
use crate::control::Status;
use crate::error::{Error, Result};
use crate::problem::KernelProblem;

/// When a convex solver may report an optimal solution: every criterion that is given must hold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// Largest KKT violation, in units of the score; `None`: not required.
    pub tol: Option<f64>,
    /// Largest relative duality gap, (P − D) / max(|P|, |D|); `None`: not required.
    pub gap: Option<f64>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { tol: Some(1e-3), gap: None }
    }
}

impl Stop {
    /// Fails if neither criterion is given, or if one is not a positive number.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [("tol", self.tol), ("gap", self.gap)] {
            if let Some(v) = value
                && !(v > 0.0 && v.is_finite())
            {
                return Err(Error::option(name, v, "a finite number > 0"));
            }
        }
        match (self.tol, self.gap) {
            (None, None) => Err(Error::option("tol", "none", "a tolerance or a gap to stop at")),
            _ => Ok(()),
        }
    }
}

/// Multiply–adds of one pass over the whole of K.
fn pass(problem: &KernelProblem<'_>) -> f64 {
    let n = problem.len() as f64;
    n * n * problem.gram.effort().clamp(1.0, 400.0)
}

/// The point that a solver reached.
#[derive(Debug, Clone)]
pub struct Solution {
    /// Signed dual variables, one per variable of the problem.
    pub beta: Vec<f64>,
    /// The bias of each group of the constraint; empty without a bias.
    pub bias: Vec<f64>,
    /// K·β for every *row* of K, without bias, in double precision, where the solver has them.
    pub scores: Option<Vec<f64>>,
    /// The same as the certificate has computed them, where the solver has measured β with them: they save a product.
    pub exact: Option<Scores>,
    /// Why the run ended.
    pub status: Status,
    /// Iterations, as the solver counts them.
    pub iterations: u64,
    /// The solver's own estimate of the KKT violation.
    pub violation: f64,
}
