//! Options of the IRWLS solver.

use crate::error::{Error, Result};
use crate::solver::Stop;

/// The default K = 2²⁶: a corner is smoothed over the square root of the machine precision. Scores closer to the corner
/// than that cannot be distinguished from it once values near 1 have been squared.
pub const DEFAULT_CAP: f64 = 67_108_864.0;

/// Options of IRWLS. The defaults suit almost all problems.
#[derive(Debug, Clone)]
pub struct Options {
    /// When to stop. For a loss that is not convex `tol` is the stationarity residual and `gap` must be absent.
    pub stop: Stop,
    /// K of paper 000: a corner of the loss is replaced by a parabola over 1/K, which caps weights at K·c. 1e4 to 1e10.
    pub cap: f64,
    /// Most steps with majorising weights (paper 000, (9)) before curvatures are used; `None`: chosen by the loss.
    pub majorise: Option<u64>,
    /// Keep factors from one iteration to the next where that saves time, and leave samples at a bound out of the
    /// system. Without it every iteration forms and factors the whole system of paper 000.
    pub reuse: bool,
    /// Warm start: β of every sample.
    pub start: Option<Vec<f64>>,
    /// The initial bias; `None`: 0 for a cold start, the optimal one for a warm start.
    pub start_bias: Option<f64>,
    /// Largest number of linear systems; `None`: no limit.
    pub iterations: Option<u64>,
    /// Bytes for the Gram matrix, factors and other working memory.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stop: Stop::default(),
            cap: DEFAULT_CAP,
            majorise: None,
            reuse: true,
            start: None,
            start_bias: None,
            iterations: None,
            memory: 2 << 30,
        }
    }
}

impl Options {
    /// Fails if an option is out of range.
    pub fn check(&self) -> Result<()> {
        self.stop.check()?;
        if !(self.cap >= 1e4 && self.cap <= 1e10) {
            return Err(Error::option("K", self.cap, "a number from 1e4 to 1e10"));
        }
        Ok(())
    }
}
