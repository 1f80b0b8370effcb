//! The phases of the solver and the transitions between them; `docs/solver-notes.md` has the same names in a diagram.
//!
//! | phase | what it does | next |
//! |---|---|---|
//! | `Start` | measures the starting point in double precision | `End`, `Cascade`, steps |
//! | `Cascade` | Newton rounds on ever more variables, where one round on a few says that it pays off | `SetNewton`, steps |
//! | `Blocks` | pair steps inside blocks of variables | `Reactivate` |
//! | `Pairs` | pair steps over all variables | `Reactivate` |
//! | `Reactivate` | takes shrunk variables back | `Check`, `MeasureGap`, `SetNewton`, `Polish`, steps |
//! | `MeasureGap` | after slow steps: the gap in double precision | `Pivot`, `Check`, steps |
//! | `Pivot` | Newton method on the free variables, one bound at a time | `Check`, `PolishAll`, steps |
//! | `PolishAll` | Newton polish over all variables, where `Pivot` has too many free ones | `Check`, steps |
//! | `SetNewton` | Newton rounds that change many sides at once, from a larger violation on | `Check`, steps |
//! | `Polish` | Newton polish once the violation is small, where `SetNewton` was slow | `Check`, steps |
//! | `Check` | measures the stopping rule in double precision | `End`, steps |
//! | `End` | holds the status of the solution | |
//!
//! "Steps" are `Blocks`, or `Pairs` where blocks are stuck or the polish is switched off. Every phase may be
//! interrupted: a budget ran out or the observer stopped the run; `End` follows.
//!
//! [`next`] is the only place that decides; the phases themselves are run by `solve.rs`.

use super::pairs::StepsEnd;
use super::polish::PolishEnd;
use crate::control::Status;

/// Times that steps may get stuck between two checks.
const MOST_STUCK: usize = 2;
/// Blocks are tried again once pair steps have brought the violation below this share of where blocks got stuck.
const UNSTUCK: f64 = 0.5;
/// Gap measurements in a row without progress before the check follows.
const GAPS_WITHOUT_PROGRESS: usize = 3;
/// A check makes progress if the excess over the stopping rule falls below this share of the least so far.
const CHECK_PROGRESS: f64 = 0.7;
/// Checks in a row without progress after which rounding must be the limit: the solver has stalled.
const CHECKS_WITHOUT_PROGRESS: usize = 3;

/// What the solver does at the moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// The gradient of the starting point, and a first measurement of the stopping rule.
    Start,
    /// Newton rounds on ever more variables, where they take the place of pair steps.
    Cascade,
    /// Pair steps inside blocks until the violation of the active variables is at most `until`.
    Blocks { until: f64 },
    /// Pair steps over all variables until the violation of the active ones is at most `until`.
    Pairs { until: f64 },
    /// All variables active again. `recompute`: with a new gradient in working precision, because steps were stuck.
    /// `slow`: the steps before were slow.
    Reactivate { recompute: bool, slow: bool },
    /// After slow steps: gradient and gap in double precision.
    MeasureGap,
    /// Newton method over all variables, one bound at a time: for K that is singular or badly scaled.
    Pivot,
    /// Newton polish over all variables: `Pivot` had too many free ones.
    PolishAll,
    /// Newton rounds that change many sides at once. `shrink`: variables that look settled are left out. `early`: while
    /// the violation is large, and only if K over the free variables is well conditioned.
    SetNewton { shrink: bool, early: bool },
    /// Newton polish. `shrink`: variables that look settled are left out.
    Polish { shrink: bool },
    /// Gradient in double precision, and the stopping rule measured with it.
    Check,
    /// The solver has ended.
    End(Status),
}

/// How a phase ended and what was measured afterwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PhaseOutcome {
    /// `Blocks`, `Pairs`: with the violation of the active variables.
    Steps { end: StepsEnd, violation: f64 },
    /// `Reactivate`: the violation of all variables, and whether the gap alone satisfies the stopping rule.
    AllActive { violation: f64, gap_suffices: bool },
    /// `MeasureGap`: D, and P − D.
    Gap { dual: f64, difference: f64 },
    /// `Cascade`, `Pivot`, `PolishAll`, `SetNewton`, `Polish`: as `AllActive`.
    Newton { end: PolishEnd, violation: f64, gap_suffices: bool },
    /// `Start`, `Check`.
    Checked(StoppingRule),
    /// Any phase: a budget ran out, or the observer stopped the run.
    Interrupted(Status),
}

/// The stopping rule, measured in double precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StoppingRule {
    /// The KKT violation of all variables.
    pub(super) violation: f64,
    /// Whether the violation is within its tolerance, or has none.
    pub(super) tol_holds: bool,
    /// The largest ratio of a measurement to its tolerance: at most 1 where the rule holds.
    pub(super) excess: f64,
}

/// What transitions depend on besides the phase that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct History {
    /// Whether blocks and Newton phases are used at all.
    newton: bool,
    /// The violation that should pass the check: the tolerance, or less where the gap turned out too large.
    tolerance: f64,
    /// The violation from which the polish is tried; 0: no more.
    polish_below: f64,
    /// The violation from which set Newton rounds are tried first; 0: not before `polish_below`.
    early_below: f64,
    /// Whether set Newton rounds take the place of the polish; no more once they were slow.
    sets: bool,
    /// The least excess at any check, and the checks since without progress.
    least_excess: f64,
    poor_checks: usize,
    cycle: Cycle,
}

/// What is forgotten at every check.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cycle {
    /// How often steps got stuck since blocks last made progress, and the violation at the last time.
    stuck: usize,
    stuck_at: f64,
    /// Whether the polish may leave out variables that look settled.
    polish_shrinks: bool,
    /// The least gap and the largest dual objective measured, and the measurements since without progress.
    least_gap: f64,
    best_dual: f64,
    poor_gaps: usize,
}

impl Cycle {
    const NEW: Self = Self {
        stuck: 0,
        stuck_at: f64::INFINITY,
        polish_shrinks: true,
        least_gap: f64::INFINITY,
        best_dual: f64::NEG_INFINITY,
        poor_gaps: 0,
    };

    /// Notes a gap; whether it, or one of the last few, was progress: the gap has fallen by a tenth, or the dual
    /// objective, which never falls, has risen by a twentieth of the gap.
    fn gap_falls(&mut self, dual: f64, difference: f64) -> bool {
        let gains = difference < 0.9 * self.least_gap || dual - self.best_dual > 0.05 * difference;
        self.poor_gaps = if gains && difference.is_finite() { 0 } else { self.poor_gaps + 1 };
        self.least_gap = self.least_gap.min(difference);
        self.best_dual = self.best_dual.max(dual);
        self.poor_gaps < GAPS_WITHOUT_PROGRESS
    }
}

impl History {
    /// `newton`: whether blocks and Newton phases are used. The polish is tried from a violation of `polish_below` on.
    pub(super) fn new(newton: bool, tolerance: f64, polish_below: f64) -> Self {
        Self {
            newton,
            tolerance,
            polish_below,
            early_below: 0.0,
            sets: false,
            least_excess: f64::INFINITY,
            poor_checks: 0,
            cycle: Cycle::NEW,
        }
    }

    /// The same with set Newton rounds in place of the polish, first tried from a violation of `early_below` on.
    pub(super) fn with_sets(self, early_below: f64) -> Self {
        Self { sets: self.newton && self.polish_below > 0.0, early_below, ..self }
    }

    /// The violation to reach in working precision before a check: half the tolerance, because the violation measured
    /// in double precision may be larger.
    pub(super) fn goal(&self) -> f64 {
        0.5 * self.tolerance
    }

    /// Whether the polish is still to be tried.
    fn polish_pending(&self) -> bool {
        self.newton && self.polish_below > 0.0
    }

    /// The violation at which steps end.
    fn until(&self) -> f64 {
        if self.polish_pending() { self.goal().max(self.polish_below).max(self.early_below) } else { self.goal() }
    }

    /// `Blocks`, or `Pairs` where blocks do not help.
    fn steps(&self) -> Phase {
        let until = self.until();
        if self.newton && self.cycle.stuck == 0 { Phase::Blocks { until } } else { Phase::Pairs { until } }
    }

    fn after_steps(&mut self, end: StepsEnd, violation: f64) -> Phase {
        match end {
            StepsEnd::Stopped(status) => return Phase::End(status),
            StepsEnd::Stuck => {
                self.cycle.stuck += 1;
                self.cycle.stuck_at = violation;
            }
            StepsEnd::Reached if violation < UNSTUCK * self.cycle.stuck_at => self.cycle.stuck = 0,
            StepsEnd::Reached | StepsEnd::Slow => {}
        }
        Phase::Reactivate { recompute: self.cycle.stuck > 0, slow: end == StepsEnd::Slow }
    }

    fn after_reactivation(&self, slow: bool, violation: f64, gap_suffices: bool) -> Phase {
        if violation <= self.goal() || self.cycle.stuck > MOST_STUCK || gap_suffices {
            Phase::Check
        } else if slow {
            Phase::MeasureGap
        } else if self.polish_pending() && !(violation > self.until()) {
            let shrink = self.cycle.polish_shrinks;
            if self.sets {
                Phase::SetNewton { shrink, early: self.early_below > 0.0 }
            } else {
                Phase::Polish { shrink }
            }
        } else {
            self.steps()
        }
    }

    fn after_set_newton(&mut self, early: bool, end: PolishEnd, violation: f64, gap_suffices: bool) -> Phase {
        match end {
            PolishEnd::Stopped(status) => return Phase::End(status),
            PolishEnd::Reached if violation <= self.goal() || gap_suffices => {
                self.early_below = 0.0;
                return Phase::Check;
            }
            PolishEnd::Reached => self.cycle.polish_shrinks = false,
            // Pair steps go on to where the polish begins.
            PolishEnd::Slow | PolishEnd::TooEarly | PolishEnd::TooLarge if early => self.early_below = 0.0,
            PolishEnd::TooEarly => self.polish_below = (0.3 * violation).min(0.5 * self.polish_below),
            PolishEnd::Slow | PolishEnd::TooLarge => {
                self.sets = false;
                self.polish_below = self.polish_below.min(violation);
            }
        }
        self.steps()
    }

    fn after_polish(&mut self, end: PolishEnd, violation: f64, gap_suffices: bool) -> Phase {
        match end {
            PolishEnd::Stopped(status) => return Phase::End(status),
            PolishEnd::Reached if violation <= self.goal() || gap_suffices => return Phase::Check,
            // A variable that was left out has to move after all.
            PolishEnd::Reached => self.cycle.polish_shrinks = false,
            PolishEnd::Slow | PolishEnd::TooEarly => {
                self.polish_below = (0.3 * violation).min(0.5 * self.polish_below);
            }
            PolishEnd::TooLarge => self.polish_below *= 0.3,
        }
        if self.polish_below < 0.01 * self.goal() {
            self.polish_below = 0.0;
        }
        self.steps()
    }

    fn after_check(&mut self, rule: &StoppingRule, start: bool) -> Phase {
        if rule.excess <= 1.0 {
            return Phase::End(Status::Optimal);
        }
        if rule.tol_holds {
            let factor = rule.excess.clamp(1.0, 1e3);
            self.tolerance = (0.5 * self.tolerance / factor).min(0.5 * rule.violation.max(1e-300));
        }
        let gains = rule.excess < CHECK_PROGRESS * self.least_excess;
        self.poor_checks = if gains { 0 } else { self.poor_checks + 1 };
        self.least_excess = self.least_excess.min(rule.excess);
        if !start && self.poor_checks >= CHECKS_WITHOUT_PROGRESS {
            return Phase::End(Status::Stalled);
        }
        self.cycle = Cycle::NEW;
        if start && self.sets { Phase::Cascade } else { self.steps() }
    }

    fn after_cascade(&self, end: PolishEnd) -> Phase {
        match end {
            PolishEnd::Stopped(status) => Phase::End(status),
            PolishEnd::Reached => Phase::SetNewton { shrink: self.cycle.polish_shrinks, early: true },
            PolishEnd::Slow | PolishEnd::TooEarly | PolishEnd::TooLarge => self.steps(),
        }
    }
}

/// The phase that follows `phase`, which ended with `outcome`, and the history to go on with.
pub(super) fn next(mut history: History, phase: Phase, outcome: PhaseOutcome) -> (History, Phase) {
    use PhaseOutcome::*;
    let following = match (phase, outcome) {
        (_, Interrupted(status)) => Phase::End(status),
        (Phase::Start, Checked(rule)) => history.after_check(&rule, true),
        (Phase::Check, Checked(rule)) => history.after_check(&rule, false),
        (Phase::Blocks { .. } | Phase::Pairs { .. }, Steps { end, violation }) => history.after_steps(end, violation),
        (Phase::Reactivate { slow, .. }, AllActive { violation, gap_suffices }) => {
            history.after_reactivation(slow, violation, gap_suffices)
        }
        (Phase::MeasureGap, Gap { dual, difference }) => match history.cycle.gap_falls(dual, difference) {
            false => Phase::Check,
            true if history.newton => Phase::Pivot,
            true => history.steps(),
        },
        (Phase::Pivot, Newton { end: PolishEnd::TooLarge, .. }) => Phase::PolishAll,
        (Phase::Pivot | Phase::PolishAll, Newton { end, .. }) => match end {
            PolishEnd::Stopped(status) => Phase::End(status),
            PolishEnd::Reached => Phase::Check,
            PolishEnd::Slow | PolishEnd::TooEarly | PolishEnd::TooLarge => history.steps(),
        },
        (Phase::Cascade, Newton { end, .. }) => history.after_cascade(end),
        (Phase::SetNewton { early, .. }, Newton { end, violation, gap_suffices }) => {
            history.after_set_newton(early, end, violation, gap_suffices)
        }
        (Phase::Polish { .. }, Newton { end, violation, gap_suffices }) => {
            history.after_polish(end, violation, gap_suffices)
        }
        (phase, outcome) => unreachable!("{phase:?} does not end with {outcome:?}"),
    };
    (history, following)
}

#[cfg(test)]
#[path = "phases_tests.rs"]
mod tests;
