//! Options of the solver on few centres.

use crate::error::Result;
use crate::solver::Stop;
use crate::solver::linear::Start;

/// Options of the solver on few centres.
#[derive(Debug, Clone)]
pub struct Options {
    /// When the solution of the problem on the centres counts as optimal.
    pub stop: Stop,
    /// Warm start, in features: w may be shorter than the features, which are nested.
    pub start: Option<Start>,
    /// Largest number of Newton steps; `None`: no limit.
    pub iterations: Option<u64>,
    /// Bytes of working memory, besides the features.
    pub memory: u64,
    /// Seed of subsamples.
    pub seed: u64,
    /// Whether features that are recomputed are so in double precision.
    pub precise: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stop: Stop { tol: None, gap: Some(1e-4) },
            start: None,
            iterations: None,
            memory: 2 << 30,
            seed: 0,
            precise: false,
        }
    }
}

impl Options {
    /// Fails if an option is out of range.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }
}
