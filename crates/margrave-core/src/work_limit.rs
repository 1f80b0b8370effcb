//! Counts the work since the last progress, to end a training that no longer progresses.
//!
//! Each solver has its own stall test. This one is a fallback for all of them: matrices and solvers count their
//! multiply–adds, solvers record their violation or gap, and [`Control::check`](crate::Control::check) ends a run that
//! has done too much work without progress. It counts work rather than time, and only at places that do not depend on
//! threads or the clock, so that a run ends at the same point on every computer.

use std::sync::atomic::{AtomicU64, Ordering};

/// Multiply–adds (about a nanosecond each, including all overheads) that are always allowed without progress.
const BASE: f64 = 1.5e9;
/// Additional passes over the whole problem that are allowed without progress.
const PASSES: f64 = 30.0;
/// Additional factorisations of a matrix over all rows that are allowed without progress: the first progress may come
/// after the first of them.
const FACTORISATIONS: f64 = 6.0;
/// Multiply–adds of a pass above which there is no limit: a large problem with large costs may run for long with little
/// progress, and a time limit or Ctrl-C can end it.
const LARGE: f64 = 1e9;
/// Multiply–adds, and passes besides, after which a run ends even if it still makes some progress: a problem of a
/// thousand rows that has taken seconds for a digit will not reach the requested tolerance soon.
const TOTAL: f64 = 1e10;
const TOTAL_PASSES: f64 = 300.0;
/// A run ends when its work is this many times its work at the last progress.
const FACTOR: f64 = 1.6;
/// The violation or the gap must fall below this fraction of its value at the last progress to count as progress.
const PROGRESS: f64 = 0.2;
/// Relative decrease of the objective of a loss that is not convex that counts as progress: a run may leave a saddle
/// point slowly, and there is no gap.
const DECREASE: f64 = 1e-6;

/// A factorisation of n rows counts as n³ over this: it takes n³/3 multiply–adds, which are faster than others.
pub(crate) const FACTORISATION_SHARE: f64 = 12.0;

/// Cost of an iteration besides its counted multiply–adds: on tiny problems this is nearly all of it.
pub(crate) const ITERATION: usize = 10_000;

/// The work of one run of a solver.
#[derive(Debug)]
pub(crate) struct WorkLimit {
    spent: AtomicU64,
    /// The run ends when it has spent this much.
    end: AtomicU64,
    allowed: u64,
    /// The run ends here in any case.
    total: u64,
    violation: AtomicU64,
    gap: AtomicU64,
    objective: AtomicU64,
}

impl WorkLimit {
    /// For a problem of which one pass (all of K, or a Newton matrix over all rows) takes `pass` multiply–adds; `share`
    /// scales the default limit. `factored`: largest number of rows of a matrix that may be factored.
    pub(crate) fn new(share: f64, pass: f64, factored: f64) -> Self {
        let factorisation = factored.powi(3) / FACTORISATION_SHARE;
        let work = share * BASE + PASSES * pass + FACTORISATIONS * factorisation;
        match pass <= LARGE {
            true => Self::allowing(work, work.max(share * TOTAL + TOTAL_PASSES * pass)),
            false => Self::allowing(f64::INFINITY, f64::INFINITY),
        }
    }

    fn allowing(work: f64, total: f64) -> Self {
        let (allowed, total, infinity) = (work as u64, total as u64, f64::INFINITY.to_bits());
        Self {
            spent: AtomicU64::new(0),
            end: AtomicU64::new(allowed),
            allowed,
            total,
            violation: AtomicU64::new(infinity),
            gap: AtomicU64::new(infinity),
            objective: AtomicU64::new(infinity),
        }
    }

    /// Counts work.
    pub(crate) fn spend(&self, work: u64) {
        self.spent.fetch_add(work, Ordering::Relaxed);
    }

    /// Records the progress of the run.
    pub(crate) fn note(&self, violation: Option<f64>, gap: Option<f64>) {
        for (found, least) in [(violation, &self.violation), (gap, &self.gap)] {
            // Rounding makes gaps of zero negative: a second one is no progress.
            let found = found.map(|found| found.max(0.0));
            if let Some(found) = found.filter(|found| *found < PROGRESS * f64::from_bits(least.load(Ordering::Relaxed)))
            {
                least.store(found.to_bits(), Ordering::Relaxed);
                self.go_on();
            }
        }
    }

    /// Records the objective of a loss that is not convex.
    pub(crate) fn note_objective(&self, objective: f64) {
        let least = f64::from_bits(self.objective.load(Ordering::Relaxed));
        if objective < least - DECREASE * least.abs() || least.is_infinite() && objective.is_finite() {
            self.objective.store(objective.to_bits(), Ordering::Relaxed);
            self.go_on();
        }
    }

    /// After progress: more work is allowed, up to the total.
    fn go_on(&self) {
        let spent = self.spent.load(Ordering::Relaxed);
        self.end.store(((FACTOR * spent as f64) as u64).max(self.allowed).min(self.total), Ordering::Relaxed);
    }

    /// Whether too much work was done without progress.
    pub(crate) fn is_over(&self) -> bool {
        self.spent.load(Ordering::Relaxed) > self.end.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_progress_ends_a_run_and_progress_does_not() {
        let limit = WorkLimit::allowing(100.0, 1e9);
        limit.note(Some(1.0), None);
        limit.spend(100);
        assert!(!limit.is_over());
        // After a fall to a fifth, the run may take 1.6 times the work it has done; a smaller fall is not enough.
        limit.note(Some(0.19), None);
        limit.spend(59);
        limit.note(Some(0.1), Some(f64::INFINITY));
        assert!(!limit.is_over());
        limit.spend(2);
        assert!(limit.is_over());
        // The gap counts as well as the violation.
        limit.note(Some(0.1), Some(7.0));
        assert!(!limit.is_over());
    }

    #[test]
    fn gaps_that_rounding_makes_negative_are_progress_once() {
        let limit = WorkLimit::allowing(100.0, 1e9);
        for _ in 0..10 {
            limit.note(None, Some(-1e-9));
            limit.spend(30);
        }
        assert!(limit.is_over());
    }

    #[test]
    fn a_falling_objective_is_progress() {
        let limit = WorkLimit::allowing(100.0, 1e9);
        for round in 0..10 {
            limit.note_objective(5.0 - 1e-4 * f64::from(round));
            limit.spend(40);
        }
        assert!(!limit.is_over());
        for _ in 0..10 {
            limit.note_objective(5.0 - 1e-3);
            limit.spend(40);
        }
        assert!(limit.is_over());
    }

    #[test]
    fn slow_progress_does_not_go_on_for_ever() {
        let limit = WorkLimit::allowing(100.0, 1000.0);
        let mut violation = 1.0;
        while !limit.is_over() {
            limit.note(Some(violation), None);
            violation *= 0.1;
            limit.spend(50);
        }
        assert_eq!(limit.spent.load(Ordering::Relaxed), 1050);
        let small = WorkLimit::new(1.0, 1e6, 0.0);
        assert!(small.total > small.allowed && small.total < 10 * small.allowed);
    }

    #[test]
    fn larger_problems_may_take_longer() {
        assert!(WorkLimit::new(1.0, 1e3, 0.0).allowed < WorkLimit::new(1.0, 1e8, 0.0).allowed);
        assert_eq!(WorkLimit::new(1.0, 1e10, 0.0).allowed, u64::MAX);
        assert!(WorkLimit::new(0.1, 1e3, 0.0).allowed < WorkLimit::new(1.0, 1e3, 0.0).allowed);
        // A factorisation of all rows may be more than thirty passes.
        let n = 8000f64;
        assert!(WorkLimit::new(1.0, 10.0 * n * n, n).allowed as f64 > 2.0 * n.powi(3) / FACTORISATION_SHARE);
    }
}
