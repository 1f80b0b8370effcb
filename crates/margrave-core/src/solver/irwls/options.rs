//! Options of the IRWLS solver.

use crate::error::{Error, Result};
use crate::solver::Stop;

/// The default K: a corner rounded over the square root of the machine precision. A score cannot be told from the corner
/// more finely than that once values near 1 have been squared.
pub const CAP: f64 = 67_108_864.0;

/// How IRWLS works. The defaults are right for almost everybody.
#[derive(Debug, Clone)]
pub struct Options {
    /// When to stop. For a loss that is not convex `tol` is the stationarity residual and `gap` must be absent.
    pub stop: Stop,
    /// K of paper 000: a corner of the loss counts as a parabola over 1/K, which caps weights at K·c. 1e4 to 1e10.
    pub cap: f64,
    /// Steps with majorising weights (paper 000, (9)) at most before curvatures take over; `None`: by the loss.
    pub majorise: Option<u64>,
    /// Keep factors from one iteration to the next where that pays, and leave samples at a bound out of the system. Without it
    /// every iteration forms and factors the whole system of paper 000 anew.
    pub reuse: bool,
    /// Where to start: β of every sample.
    pub start: Option<Vec<f64>>,
    /// The bias to start with; `None`: 0 for a cold start, the best one for a warm start.
    pub start_bias: Option<f64>,
    /// Linear systems at most; `None`: no limit.
    pub iterations: Option<u64>,
    /// Bytes for the Gram matrix, factors and other working memory.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stop: Stop::default(),
            cap: CAP,
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
