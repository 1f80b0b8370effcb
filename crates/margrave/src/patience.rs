//! An end to trainings of small problems that no longer get anywhere.
//!
//! Solvers have stall tests of their own, made for what they do. This one needs only what every solver reports, and is for problems
//! so small that seconds without progress mean that arithmetic, not work, is in the way. It goes by the clock, like a time limit, and
//! like that its answer depends on the machine: it comes after the solvers' own tests, which count work.

use std::ops::ControlFlow;
use std::time::Instant;

use margrave_core::Status;
use margrave_core::observe::{Begin, Observer, Step};

/// Variables up to which a training is watched.
const SMALL: usize = 2000;
/// Seconds without progress that are always allowed, and more of them for every variable.
const SECONDS: f64 = 6.0;
const PER_VARIABLE: f64 = 4e-3;
/// Afterwards a training ends when it has taken so many times the seconds it took to make its last progress.
const FACTOR: f64 = 3.0;
/// What the violation or the gap has to fall to, relative to the least so far, to be progress.
const PROGRESS: f64 = 0.95;

/// Passes on what a solver says, and asks it to stop when it has gone too long without progress.
pub(crate) struct Patience<'a> {
    behind: &'a mut dyn Observer,
    begun: Instant,
    allowed: f64,
    violation: f64,
    gap: f64,
    last: f64,
    /// Whether it asked.
    pub(crate) ended: bool,
}

impl<'a> Patience<'a> {
    /// Watches a problem of `n` variables; `behind` hears all of it.
    pub(crate) fn new(n: usize, behind: &'a mut dyn Observer) -> Self {
        let allowed = if n <= SMALL { SECONDS + PER_VARIABLE * n as f64 } else { f64::INFINITY };
        Self {
            behind,
            begun: Instant::now(),
            allowed,
            violation: f64::INFINITY,
            gap: f64::INFINITY,
            last: 0.0,
            ended: false,
        }
    }

    /// How a solver ended that was asked to stop here and by nobody else.
    pub(crate) fn status(&self, status: Status) -> Status {
        if self.ended && status == Status::Interrupted { Status::Stalled } else { status }
    }
}

impl Observer for Patience<'_> {
    fn begin(&mut self, begin: &Begin) -> ControlFlow<()> {
        self.behind.begin(begin)
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let now = self.begun.elapsed().as_secs_f64();
        let mut better = |found: Option<f64>, least: &mut f64| {
            if let Some(found) = found.filter(|found| *found < PROGRESS * *least) {
                *least = found;
                self.last = now;
            }
        };
        better(step.violation, &mut self.violation);
        better(step.primal.zip(step.dual).map(|(p, d)| p - d), &mut self.gap);
        if self.behind.step(step).is_break() {
            return ControlFlow::Break(());
        }
        if now > self.allowed.max(FACTOR * self.last) {
            self.ended = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn finish(&mut self, status: Status, last: &Step) {
        self.behind.finish(self.status(status), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margrave_core::observe::Silent;

    #[test]
    fn time_without_progress_ends_a_small_training_and_progress_does_not() {
        let mut silent = Silent;
        let mut stuck = Patience::new(2, &mut silent);
        stuck.allowed = 0.0;
        let step = |violation: f64| Step { violation: Some(violation), ..Step::default() };
        assert!(stuck.step(&step(1.0)).is_continue());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(stuck.step(&step(0.5)).is_continue());
        std::thread::sleep(std::time::Duration::from_millis(80));
        assert!(stuck.step(&step(0.49)).is_break() && stuck.ended);
        assert_eq!(
            (stuck.status(Status::Interrupted), stuck.status(Status::Optimal)),
            (Status::Stalled, Status::Optimal)
        );
        assert_eq!(Patience::new(SMALL + 1, &mut Silent).allowed, f64::INFINITY);
    }
}
