//! Options of the linear solver and the solution it returns.

use std::str::FromStr;

use crate::control::Status;
use crate::error::{Error, Result};
use crate::solver::Stop;

/// The method for a linear problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// Chosen by the size of the problem, with the reason reported.
    #[default]
    Auto,
    /// Dual coordinate descent, then Newton if it is slow. For convex losses whose slope does not jump or that have a
    /// dual term; Newton for all others.
    Coordinate,
    /// Newton's method on the (smoothed) primal problem.
    Newton,
}

impl FromStr for Method {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Method::Auto),
            "coordinate" => Ok(Method::Coordinate),
            "newton" => Ok(Method::Newton),
            _ => Err(Error::option("method", text, "one of auto, coordinate, newton")),
        }
    }
}

/// A warm start.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// w; if empty, Xᵀβ is used.
    pub weights: Vec<f64>,
    /// b.
    pub bias: f64,
    /// β of every sample; if empty, it is computed from the scores of w.
    pub beta: Vec<f64>,
}

/// Options of the linear solver.
#[derive(Debug, Clone)]
pub struct Options {
    /// When the solution counts as optimal.
    pub stop: Stop,
    /// Warm start; `None`: start at zero.
    pub start: Option<Start>,
    /// Largest number of Newton steps and epochs of coordinate descent together; `None`: no limit.
    pub iterations: Option<u64>,
    /// Bytes of working memory, besides a few vectors of length n and d.
    pub memory: u64,
    /// Seed of subsamples and permutations.
    pub seed: u64,
    /// The method.
    pub method: Method,
    /// Most features for which the Newton system is formed and factored; with more it is solved by conjugate gradients.
    pub direct: usize,
    /// Solve every Newton system by conjugate gradients, preconditioned by the system of this many rows per feature: for
    /// features that are expensive to multiply with each other.
    pub sampled: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stop: Stop::default(),
            start: None,
            iterations: None,
            memory: 2 << 30,
            seed: 0,
            method: Method::Auto,
            direct: 1500,
            sampled: None,
        }
    }
}

impl Options {
    /// Fails if an option is out of range.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }
}

/// The point that the linear solver reached.
#[derive(Debug, Clone)]
pub struct LinearSolution {
    /// w.
    pub weights: Vec<f64>,
    /// b; 0 without a bias.
    pub bias: f64,
    /// β of every sample: feasible, and Xᵀβ close to w.
    pub beta: Vec<f64>,
    /// Why the run ended.
    pub status: Status,
    /// Newton steps and epochs of coordinate descent.
    pub iterations: u64,
    /// The solver's own estimate of the KKT violation; NaN if no tolerance was given.
    pub violation: f64,
    /// The solver's own estimate of the relative gap; for a non-convex loss that of ‖w − Xᵀβ‖² in the same units.
    pub relative_gap: f64,
    /// P of the convex start, for a non-convex loss.
    pub start_objective: Option<f64>,
    /// The method used, and why.
    pub reason: String,
}
