//! The start on a device: a solver that keeps the problem there brings β to the optimum or near it.
//!
//! Its result is a starting point like any other. Whether it is optimal is decided here, from scores in double
//! precision, and what is missing is done by the phases on the processor.

use std::ops::ControlFlow;

use super::state::DualState;
use crate::control::{Control, Interrupt};
use crate::gram::{DeviceProblem, DeviceReport, DeviceStep};
use crate::observe::{Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::Stop;

/// The violation to reach where only a gap is asked for.
const VIOLATION: f64 = 1e-3;

/// What a run on a device has found.
pub(super) struct Found {
    pub(super) state: DualState,
    /// K·β by row in double precision.
    pub(super) scores: Option<Vec<f64>>,
    pub(super) rounds: u64,
}

/// Runs the solver of the Gram's device, if there is one that takes the problem; otherwise returns `state` unchanged.
pub(super) fn run(
    problem: &KernelProblem<'_>,
    state: DualState,
    stop: Stop,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Found, crate::error::Error> {
    let unchanged = |state| Found { state, scores: None, rounds: 0 };
    let simple = problem.row_of.is_none() && problem.constraint.groups() <= 1 && control.check().is_ok();
    let Some(solver) = problem.gram.device_solver().filter(|_| simple) else { return Ok(unchanged(state)) };
    let violation = stop.tol.unwrap_or(VIOLATION);
    let start = state.beta.clone();
    let terms = state.terms.clone();
    let request = DeviceProblem { terms: &terms, start: &start, keeps_sum: state.paired, violation: 0.9 * violation };
    let mut judge = Judge { problem, stop, state, control, observer, rounds: 0 };
    let Some(point) = solver.solve(&request, &mut judge, control) else {
        let state = DualState::new(problem, Some(&start))?;
        return Ok(unchanged(state));
    };
    let state = DualState::new(problem, Some(&point.beta))?;
    // Scores are those of the point itself: it must have been feasible as it was.
    let scores = point.scores.filter(|_| state.beta == point.beta);
    Ok(Found { state, scores, rounds: point.rounds })
}

struct Judge<'a, 'o> {
    problem: &'a KernelProblem<'a>,
    stop: Stop,
    state: DualState,
    control: &'a Control,
    observer: &'o mut dyn Observer,
    rounds: u64,
}

impl DeviceReport for Judge<'_, '_> {
    fn step(&mut self, step: DeviceStep) -> Result<(), Interrupt> {
        self.rounds = step.rounds;
        self.control.check()?;
        let shown = Step {
            iteration: step.rounds,
            seconds: self.control.seconds(),
            phase: "device",
            violation: Some(step.violation),
            active: Some(step.rows),
            kernel_entries: Some(self.problem.gram.entries()),
            ..Step::default()
        };
        match self.observer.step(&shown) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Interrupt::Cancelled),
        }
    }

    fn verdict(&mut self, beta: &[f64], scores: &[f64]) -> bool {
        self.state.beta.copy_from_slice(beta);
        let g = (0..beta.len()).map(|i| scores[i] + self.state.terms[i].p + self.state.terms[i].d * beta[i]).collect();
        self.state.activate((0..beta.len() as u32).collect(), g);
        let violation = self.state.violation(&self.state.extremes());
        let within = self.stop.tol.is_none_or(|tol| violation <= tol);
        within && self.stop.gap.is_none_or(|gap| self.state.gap(self.problem, |i| scores[i]).relative() <= gap)
    }
}
