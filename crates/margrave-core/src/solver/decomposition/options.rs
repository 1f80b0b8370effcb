//! Options of the decomposition solver.

use crate::error::Result;
use crate::solver::Stop;

/// How the decomposition solver works. The defaults are right for almost everybody.
#[derive(Debug, Clone)]
pub struct Options {
    /// When to stop.
    pub stop: Stop,
    /// Leave variables aside that look settled; all are looked at again before stopping.
    pub shrinking: bool,
    /// Finish with the Newton polish once the sets are roughly right.
    pub polish: bool,
    /// Where to start: one β a variable. Clipped to the box and re-balanced first.
    pub start: Option<Vec<f64>>,
    /// Pair steps at most; `None`: no limit.
    pub iterations: Option<u64>,
    /// Bytes for kernel rows and factors.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { stop: Stop::default(), shrinking: true, polish: true, start: None, iterations: None, memory: 2 << 30 }
    }
}

impl Options {
    /// Fails if an option is out of range.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }
}
