//! A search whose trainings run elsewhere: in other processes, or on other machines.
//!
//! The search itself (rounds, race, scores, the choice) is the one of [`Tuner::search`]. Only the trainings of a round are handed
//! to a [`Remote`], as independent tasks. Whoever carries out a task has the same data and the same [`Tuner`], and calls
//! [`Tuner::run_task`], which trains exactly what the search would have trained: the result has the same bits.

use super::fold::{FoldMachine, FoldResult};
use super::judge::Held;
use super::search::Tried;

/// Some combinations of one kernel (one γ) on some folds. Combinations are numbered in the order of [`Tuned::cells`](super::Tuned).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchTask {
    /// Number of the kernel.
    pub kernel: usize,
    /// The folds, in the order in which they are trained.
    pub folds: Vec<usize>,
    /// The combinations, in the order in which they are trained.
    pub cells: Vec<usize>,
    /// Whether machines must be returned: a later task of these combinations starts from them.
    pub keep_machines: bool,
}

/// A binary machine of a combination on a fold, from which its training on another fold can start.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineState {
    /// β of all rows.
    pub beta: Vec<f64>,
    /// K·β of all rows.
    pub scores: Vec<f64>,
    /// b.
    pub bias: f64,
}

/// A combination on a fold.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The combination.
    pub cell: usize,
    /// The fold.
    pub fold: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// What was found; `None` if time ran out.
    pub found: Option<Found>,
}

/// The result of a combination on a fold.
#[derive(Debug, Clone)]
pub struct Found {
    /// The score; NaN where it needs all folds.
    pub score: f64,
    /// The losses of the rows, where the score is a mean of them.
    pub losses: Vec<f32>,
    /// What the score is computed from, where that is needed later.
    pub kept: Vec<f64>,
    /// The scores of the held-out rows, if they are to be returned.
    pub scores: Option<Vec<f64>>,
    /// The machines, if they were asked for.
    pub machines: Vec<MachineState>,
}

/// Carries out the tasks of a round.
pub trait Remote {
    /// Runs the tasks. Outcomes may be in any order and may be missing if time ran out. An interruption is
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    fn run(&mut self, tasks: &[SearchTask]) -> crate::Result<Vec<Outcome>>;
}

impl From<&MachineState> for FoldMachine {
    fn from(state: &MachineState) -> Self {
        FoldMachine { beta: state.beta.clone(), scores: state.scores.clone(), bias: state.bias }
    }
}

pub(super) fn outcome((cell, fold, result, seconds): Tried, keep_machines: bool) -> Outcome {
    let machine = |m: FoldMachine| MachineState { beta: m.beta, scores: m.scores, bias: m.bias };
    let found = result.map(|FoldResult { held: Held { score, losses, kept }, scores, machines }| Found {
        score,
        losses,
        kept,
        scores,
        machines: if keep_machines { machines.into_iter().map(machine).collect() } else { vec![] },
    });
    Outcome { cell, fold, seconds, found }
}

pub(super) fn tried(outcome: Outcome) -> Tried {
    let Outcome { cell, fold, seconds, found } = outcome;
    // Machines stay where the tasks ran: the next task gets them there.
    let result = found.map(|Found { score, losses, kept, scores, .. }| FoldResult {
        held: Held { score, losses, kept },
        scores,
        machines: vec![],
    });
    (cell, fold, result, seconds)
}
