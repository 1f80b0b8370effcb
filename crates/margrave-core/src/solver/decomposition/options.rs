//! Options of the decomposition solver.

use crate::error::Result;
use crate::solver::Stop;

/// Options of the decomposition solver. The defaults suit nearly all problems.
#[derive(Debug, Clone)]
pub struct Options {
    /// When to stop.
    pub stop: Stop,
    /// Shrinking: variables that look settled are left out for a while; all are checked before stopping.
    pub shrinking: bool,
    /// Finish with the Newton polish once the active sets are roughly right.
    pub polish: bool,
    /// Warm start: one β per variable, clipped to the box and balanced first.
    pub start: Option<Vec<f64>>,
    /// Whether that start is known to be far from the optimum: it is then measured in working precision, unless it turns
    /// out to be close.
    pub rough_start: bool,
    /// Most pair steps; `None`: no limit.
    pub iterations: Option<u64>,
    /// Bytes for kernel rows and factors.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stop: Stop::default(),
            shrinking: true,
            polish: true,
            start: None,
            rough_start: false,
            iterations: None,
            memory: 2 << 30,
        }
    }
}

impl Options {
    /// Fails if an option is out of range.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }
}
