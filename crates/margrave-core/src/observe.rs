//! Solvers report only through observers. Progress bars, traces, live charts and callbacks are all observers of one
//! stream.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::control::Status;

/// Information available when a computation begins.
#[derive(Debug, Clone, Serialize)]
pub struct Begin {
    /// The solver's name.
    pub solver: &'static str,
    /// Number of variables.
    pub n: usize,
    /// The KKT violation at which the solver stops, if it has one.
    pub tol: Option<f64>,
    /// The relative gap at which the solver stops, if it has one.
    pub gap: Option<f64>,
}

/// A progress report. Fields that a solver does not have are `None`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Step {
    /// Iterations so far, as defined by the solver.
    pub iteration: u64,
    /// Seconds since the start.
    pub seconds: f64,
    /// Current phase of the solver: `"smo"`, `"polish"`, `"certify"`, …
    pub phase: &'static str,
    /// Largest KKT violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<f64>,
    /// Primal objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primal: Option<f64>,
    /// Dual objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dual: Option<f64>,
    /// Size of the active set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<usize>,
    /// Length of the step taken (IRWLS's η, a line search).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_length: Option<f64>,
    /// Kernel entries computed so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_entries: Option<u64>,
    /// Fraction of the work done, if the amount is known in advance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
}

/// Observes a solver. Each call may end the computation by returning [`ControlFlow::Break`].
///
/// Calls come in the order `begin`, `step`…, `finish`, from the solver's own thread, at least every 50 ms of work.
pub trait Observer {
    /// The computation begins.
    fn begin(&mut self, _begin: &Begin) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// Progress was made.
    fn step(&mut self, _step: &Step) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// The computation has ended.
    fn finish(&mut self, _status: Status, _last: &Step) {}
}

/// Ignores everything.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {}

/// Two observers of one stream; either may stop it.
pub struct Both<'a>(pub &'a mut dyn Observer, pub &'a mut dyn Observer);

impl Observer for Both<'_> {
    fn begin(&mut self, begin: &Begin) -> ControlFlow<()> {
        merge(self.0.begin(begin), self.1.begin(begin))
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        merge(self.0.step(step), self.1.step(step))
    }
    fn finish(&mut self, status: Status, last: &Step) {
        self.0.finish(status, last);
        self.1.finish(status, last);
    }
}

fn merge(a: ControlFlow<()>, b: ControlFlow<()>) -> ControlFlow<()> {
    if a.is_break() || b.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Records every step: the history of a fit.
#[derive(Debug, Default, Clone)]
pub struct Recorder {
    /// How it began.
    pub begin: Option<Begin>,
    /// All steps, in order.
    pub steps: Vec<Step>,
    /// How it ended.
    pub status: Option<Status>,
    /// Stop after this many steps; `None`: never.
    pub stop_after: Option<usize>,
}

impl Observer for Recorder {
    fn begin(&mut self, begin: &Begin) -> ControlFlow<()> {
        self.begin = Some(begin.clone());
        ControlFlow::Continue(())
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.steps.push(step.clone());
        match self.stop_after {
            Some(limit) if self.steps.len() >= limit => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
    fn finish(&mut self, status: Status, _last: &Step) {
        self.status = Some(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_of_two_observers_stops_the_stream() {
        let (mut a, mut b) = (Recorder::default(), Recorder { stop_after: Some(2), ..Recorder::default() });
        let mut both = Both(&mut a, &mut b);
        assert!(both.step(&Step::default()).is_continue());
        assert!(both.step(&Step::default()).is_break());
        assert_eq!((a.steps.len(), b.steps.len()), (2, 2));
    }
}
