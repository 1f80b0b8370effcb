//! Options of the linear solver and the solution it returns.

use std::str::FromStr;

use crate::control::Status;
use crate::error::{Error, Result};
use crate::solver::Stop;

/// How a linear problem is solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// By the size of the problem, with the reason reported.
    #[default]
    Auto,
    /// Dual coordinate descent, then Newton where it is slow. Needs a loss with a dual term, and rows in memory.
    Coordinate,
    /// Newton's method on the (smoothed) primal.
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

/// Where to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// w; empty: Xᵀβ.
    pub weights: Vec<f64>,
    /// b.
    pub bias: f64,
    /// β of every sample; empty: taken from the scores of w.
    pub beta: Vec<f64>,
}

/// Options of the linear solver.
#[derive(Debug, Clone)]
pub struct Options {
    /// When the answer counts as optimal.
    pub stop: Stop,
    /// Where to start; `None`: at zero.
    pub start: Option<Start>,
    /// Newton steps and epochs of coordinate descent together; `None`: no limit.
    pub iterations: Option<u64>,
    /// Bytes of working memory, besides a few vectors of length n and d.
    pub memory: u64,
    /// Seed of samples and permutations.
    pub seed: u64,
    /// How.
    pub method: Method,
}

impl Default for Options {
    fn default() -> Self {
        Self { stop: Stop::default(), start: None, iterations: None, memory: 2 << 30, seed: 0, method: Method::Auto }
    }
}

impl Options {
    /// Fails if an option is out of its range.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }
}

/// The point the linear solver reached.
#[derive(Debug, Clone)]
pub struct LinearSolution {
    /// w.
    pub weights: Vec<f64>,
    /// b; 0 without a bias.
    pub bias: f64,
    /// β of every sample: feasible, and Xᵀβ near w.
    pub beta: Vec<f64>,
    /// How it ended.
    pub status: Status,
    /// Newton steps and epochs of coordinate descent.
    pub iterations: u64,
    /// The solver's own estimate of the KKT violation; not a number where it was not asked for.
    pub violation: f64,
    /// The solver's own estimate of the relative gap; for a non-convex loss of ‖w − Xᵀβ‖² in the same units.
    pub relative_gap: f64,
    /// P of the convex start, for a non-convex loss.
    pub start_objective: Option<f64>,
    /// Which method, and why.
    pub reason: String,
}
