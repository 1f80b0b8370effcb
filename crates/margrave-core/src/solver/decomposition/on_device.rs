//! The start on a device: a solver that keeps the problem there brings β to the optimum or near it.
//!
//! Its result is a starting point like any other. Whether it is optimal is decided here, from scores in double
//! precision, and what is missing is done by the phases on the processor.

use std::ops::ControlFlow;

use super::state::{DualState, Measured};
use crate::certificate::{self, Certificate, Scores};
use crate::control::{Control, Interrupt, Status};
use crate::gram::{DevicePoint, DeviceProblem, DeviceReport, DeviceStep};
use crate::observe::{Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::{Solution, Stop};

/// The violation to reach where only a gap is asked for.
const VIOLATION: f64 = 1e-3;

/// The rounding that a certificate finds may be this many times the estimate of it.
const MARGIN: f64 = 4.0;
/// Rounding that takes more than this share of the gap leaves no room for the rest of it.
const HOPELESS: f64 = 0.95;

/// What a run on a device has found.
pub(super) enum Found {
    /// A feasible point that was accepted.
    Solution(Solution),
    /// A point to go on from, after so many rounds.
    Start {
        state: DualState,
        /// K·β by row in double precision.
        scores: Option<Vec<f64>>,
        rounds: u64,
    },
}

/// Runs the solver of the Gram's device, if there is one that takes the problem; otherwise returns `state`, made active.
pub(super) fn run(
    problem: &KernelProblem<'_>,
    state: DualState,
    stop: Stop,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Found, crate::error::Error> {
    let unchanged = |state: DualState| Ok(Found::Start { state: state.activated(problem), scores: None, rounds: 0 });
    let simple = problem.row_of.is_none() && problem.constraint.groups() <= 1 && control.check().is_ok();
    let Some(solver) = problem.gram.device_solver().filter(|_| simple) else { return unchanged(state) };
    let violation = stop.tol.unwrap_or(VIOLATION);
    let request = DeviceProblem {
        terms: &state.terms,
        start: &state.beta,
        keeps_sum: state.paired,
        violation: 0.9 * violation,
        tol: stop.tol,
        gap: stop.gap,
    };
    let mut judge = Judge { problem, stop, state: &state, control, observer, rounds: 0, accepted: None, exact: None };
    let Some(point) = solver.solve(&request, &mut judge, control) else { return unchanged(state) };
    if let Some(solution) = judge.solution(&point) {
        return Ok(Found::Solution(solution));
    }
    let state = DualState::new(problem, Some(&point.beta))?;
    // Scores are those of the point itself: it must have been feasible as it was.
    let scores = point.scores.filter(|_| state.beta == point.beta);
    Ok(Found::Start { state, scores, rounds: point.rounds })
}

/// Whether a proven relative gap, of which `rounding` is due to rounding, is within `most`, or more rounds could not bring it there.
fn is_enough(gap: f64, rounding: f64, most: f64) -> bool {
    gap <= most || (rounding > HOPELESS * most && gap <= 2.0 * rounding)
}

struct Judge<'a, 'o> {
    problem: &'a KernelProblem<'a>,
    stop: Stop,
    state: &'a DualState,
    control: &'a Control,
    observer: &'o mut dyn Observer,
    rounds: u64,
    /// The last point that was good enough.
    accepted: Option<Accepted>,
    /// The certificate's scores of the last point that was asked for: if it is accepted, its proof needs no further product.
    exact: Option<Scores>,
}

struct Accepted {
    beta: Vec<f64>,
    violation: f64,
    /// The multiplier of the sum constraint.
    mu: f64,
}

impl Judge<'_, '_> {
    /// Whether the proof will find a measured gap within `most`: it adds the rounding of scores. Where that might be too much, the
    /// certificate is asked; where rounding alone is too much, more rounds would not help.
    fn provable(&self, beta: &[f64], measured: &Measured, most: f64) -> bool {
        let Some(exact) = &self.exact else { return true };
        let scale = measured.gap.primal.abs().max(measured.gap.dual.abs());
        if measured.gap.difference + MARGIN * exact.rounding_of_gap(beta) <= most * scale {
            return true;
        }
        match certificate::certify(self.problem, beta, None, Some(exact), self.control) {
            Ok(Certificate::Optimality(o)) => is_enough(o.relative_gap(), o.rounding() / scale, most),
            _ => true,
        }
    }

    /// The solution at `point`, if it is the one that was last accepted and is feasible as it is.
    fn solution(&mut self, point: &DevicePoint) -> Option<Solution> {
        let (accepted, scores) = (self.accepted.as_ref()?, point.scores.as_ref()?);
        let constraint = &self.problem.constraint;
        if accepted.beta != point.beta || !self.state.would_be_feasible(&point.beta, constraint) {
            return None;
        }
        let bias = if accepted.mu.is_finite() { -accepted.mu } else { 0.0 };
        Some(Solution {
            exact: self.exact.take(),
            beta: point.beta.clone(),
            bias: vec![bias; constraint.groups()],
            scores: Some(scores.clone()),
            status: Status::Optimal,
            iterations: point.rounds,
            violation: accepted.violation,
        })
    }
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

    fn scores(&mut self, beta: &[f64]) -> Result<Vec<f64>, Interrupt> {
        let scores = match self.exact.take() {
            Some(scores) => scores.moved(self.problem, beta, self.control)?,
            None => certificate::scores(self.problem, beta, self.control)?,
        };
        Ok(self.exact.insert(scores).values().to_vec())
    }

    fn verdict(&mut self, beta: &[f64], scores: &[f64]) -> bool {
        let measured = self.state.measure(self.problem, beta, scores, &self.control.threads);
        let finite = scores.iter().chain(beta).all(|v| v.is_finite());
        let good = finite
            && self.stop.tol.is_none_or(|tol| measured.violation <= tol)
            && self.stop.gap.is_none_or(|gap| measured.gap.relative() <= gap && self.provable(beta, &measured, gap));
        let (violation, mu) = (measured.violation, measured.mu);
        self.accepted = good.then(|| Accepted { beta: beta.to_vec(), violation, mu });
        good
    }
}

#[cfg(test)]
mod tests {
    use super::is_enough;

    #[test]
    fn a_gap_that_more_rounds_can_close_is_not_enough() {
        assert!(is_enough(9e-7, 7e-7, 1e-6));
        // Without its rounding this gap is 7e-7: the solver thinks it is done, and another round would make it so.
        assert!(!is_enough(1.5e-6, 8e-7, 1e-6));
        // Rounding alone is too much here, and most of the gap there.
        assert!(is_enough(2e-6, 1.2e-6, 1e-6));
        assert!(!is_enough(3e-6, 1.2e-6, 1e-6));
    }
}
