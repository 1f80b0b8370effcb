use super::*;

const TOL: f64 = 1e-3;
const GOAL: f64 = 0.5 * TOL;
/// The violation from which the polish is tried.
const POLISH: f64 = 0.1;
const BLOCKS: Phase = Phase::Blocks { until: POLISH };
const PAIRS: Phase = Phase::Pairs { until: POLISH };
const REACTIVATE: Phase = Phase::Reactivate { recompute: false, slow: false };
const REACTIVATE_SLOW: Phase = Phase::Reactivate { recompute: false, slow: true };

/// The violation from which set Newton rounds are tried.
const EARLY: f64 = 1.0;
const SETS_EARLY: Phase = Phase::SetNewton { shrink: true, early: true };
const SETS: Phase = Phase::SetNewton { shrink: true, early: false };

/// With set Newton rounds in place of the polish.
fn with_sets() -> History {
    history().with_sets(EARLY)
}

fn history() -> History {
    History::new(true, TOL, POLISH)
}

fn without_newton() -> History {
    History::new(false, TOL, 0.0)
}

fn stuck(times: usize, at: f64) -> History {
    let mut history = history();
    (history.cycle.stuck, history.cycle.stuck_at) = (times, at);
    history
}

fn steps(end: StepsEnd, violation: f64) -> PhaseOutcome {
    PhaseOutcome::Steps { end, violation }
}

fn all_active(violation: f64) -> PhaseOutcome {
    PhaseOutcome::AllActive { violation, gap_suffices: false }
}

fn newton(end: PolishEnd, violation: f64) -> PhaseOutcome {
    PhaseOutcome::Newton { end, violation, gap_suffices: false }
}

fn checked(violation: f64, tol_holds: bool, excess: f64) -> PhaseOutcome {
    PhaseOutcome::Checked(StoppingRule { violation, tol_holds, excess })
}

/// The phase alone.
fn following(history: History, phase: Phase, outcome: PhaseOutcome) -> Phase {
    next(history, phase, outcome).1
}

#[test]
fn every_phase_ends_when_it_is_interrupted() {
    let phases = [
        Phase::Start,
        BLOCKS,
        PAIRS,
        REACTIVATE,
        Phase::MeasureGap,
        Phase::Pivot,
        Phase::PolishAll,
        Phase::Polish { shrink: true },
        Phase::Cascade,
        SETS_EARLY,
        SETS,
        Phase::Check,
    ];
    for phase in phases {
        let outcome = PhaseOutcome::Interrupted(Status::TimeLimit);
        assert_eq!(next(history(), phase, outcome), (history(), Phase::End(Status::TimeLimit)), "{phase:?}");
    }
    for phase in [BLOCKS, PAIRS] {
        let outcome = steps(StepsEnd::Stopped(Status::IterationLimit), 1.0);
        assert_eq!(following(history(), phase, outcome), Phase::End(Status::IterationLimit));
    }
    for phase in [Phase::Pivot, Phase::PolishAll, Phase::Polish { shrink: true }, Phase::Cascade, SETS_EARLY, SETS] {
        let outcome = newton(PolishEnd::Stopped(Status::Interrupted), 1.0);
        assert_eq!(following(history(), phase, outcome), Phase::End(Status::Interrupted));
    }
}

#[test]
fn a_start_that_satisfies_the_rule_ends_at_once() {
    assert_eq!(following(history(), Phase::Start, checked(1e-4, true, 0.1)), Phase::End(Status::Optimal));
    assert_eq!(following(history(), Phase::Start, checked(TOL, true, 1.0)), Phase::End(Status::Optimal));
}

#[test]
fn steps_are_blocks_with_newton_and_pairs_without() {
    assert_eq!(following(history(), Phase::Start, checked(2.0, false, 2e3)), BLOCKS);
    assert_eq!(following(without_newton(), Phase::Start, checked(2.0, false, 2e3)), Phase::Pairs { until: GOAL });
    // Once the polish is given up, steps go on to the goal.
    let history = History { polish_below: 0.0, ..history() };
    assert_eq!(following(history, Phase::Start, checked(2.0, false, 2e3)), Phase::Blocks { until: GOAL });
}

#[test]
fn a_start_never_stalls() {
    let mut history = history();
    for _ in 0..2 * CHECKS_WITHOUT_PROGRESS {
        let phase;
        (history, phase) = next(history, Phase::Start, checked(2.0, false, f64::INFINITY));
        assert_eq!(phase, BLOCKS);
    }
}

#[test]
fn steps_lead_to_reactivation() {
    for phase in [BLOCKS, PAIRS] {
        assert_eq!(next(history(), phase, steps(StepsEnd::Reached, POLISH)), (history(), REACTIVATE));
        assert_eq!(next(history(), phase, steps(StepsEnd::Slow, 1.0)), (history(), REACTIVATE_SLOW));
        let recompute = Phase::Reactivate { recompute: true, slow: false };
        assert_eq!(next(history(), phase, steps(StepsEnd::Stuck, 1.0)), (stuck(1, 1.0), recompute));
    }
    // Slow pair steps after stuck blocks: both hold.
    let both = Phase::Reactivate { recompute: true, slow: true };
    assert_eq!(next(stuck(1, 1.0), PAIRS, steps(StepsEnd::Slow, 0.1)), (stuck(1, 1.0), both));
}

#[test]
fn blocks_are_tried_again_once_pairs_have_halved_the_violation() {
    let recompute = Phase::Reactivate { recompute: true, slow: false };
    assert_eq!(next(stuck(1, 1.0), PAIRS, steps(StepsEnd::Reached, 0.5)), (stuck(1, 1.0), recompute));
    assert_eq!(following(stuck(1, 1.0), recompute, all_active(0.5)), PAIRS);
    assert_eq!(next(stuck(1, 1.0), PAIRS, steps(StepsEnd::Reached, 0.49)), (stuck(0, 1.0), REACTIVATE));
    assert_eq!(following(stuck(0, 1.0), REACTIVATE, all_active(0.49)), BLOCKS);
}

#[test]
fn the_check_follows_where_working_precision_can_do_no_more() {
    assert_eq!(following(history(), REACTIVATE, all_active(GOAL)), Phase::Check);
    assert_eq!(following(history(), REACTIVATE_SLOW, all_active(GOAL)), Phase::Check);
    let gap = PhaseOutcome::AllActive { violation: 1.0, gap_suffices: true };
    assert_eq!(following(history(), REACTIVATE, gap), Phase::Check);
    assert_eq!(following(stuck(MOST_STUCK, 2.0), REACTIVATE, all_active(1.0)), PAIRS);
    assert_eq!(following(stuck(MOST_STUCK + 1, 2.0), REACTIVATE, all_active(1.0)), Phase::Check);
}

#[test]
fn the_polish_follows_once_the_violation_is_small_and_steps_are_not_slow() {
    assert_eq!(following(history(), REACTIVATE, all_active(POLISH)), Phase::Polish { shrink: true });
    assert_eq!(following(history(), REACTIVATE, all_active(1.01 * POLISH)), BLOCKS);
    assert_eq!(following(history(), REACTIVATE_SLOW, all_active(POLISH)), Phase::MeasureGap);
    assert_eq!(following(history(), REACTIVATE_SLOW, all_active(1.0)), Phase::MeasureGap);
    assert_eq!(following(without_newton(), REACTIVATE, all_active(0.1)), Phase::Pairs { until: GOAL });
    let given_up = History { polish_below: 0.0, ..history() };
    assert_eq!(following(given_up, REACTIVATE, all_active(0.01)), Phase::Blocks { until: GOAL });
}

#[test]
fn slow_steps_are_followed_by_pivots_while_the_gap_falls() {
    let gap = |dual, difference| PhaseOutcome::Gap { dual, difference };
    let (mut after, mut phase) = next(history(), Phase::MeasureGap, gap(1.0, 10.0));
    assert_eq!((phase, after.cycle.least_gap, after.cycle.best_dual), (Phase::Pivot, 10.0, 1.0));
    // The gap has fallen by less than a tenth, and the dual risen by less than a twentieth of it: no progress.
    for poor in 1..GAPS_WITHOUT_PROGRESS {
        (after, phase) = next(after, Phase::MeasureGap, gap(1.1, 9.5));
        assert_eq!((phase, after.cycle.poor_gaps), (Phase::Pivot, poor));
    }
    assert_eq!(following(after, Phase::MeasureGap, gap(1.1, 9.5)), Phase::Check);
    assert_eq!(following(after, Phase::MeasureGap, gap(1.1, f64::INFINITY)), Phase::Check);
    // Progress of either kind starts the count again.
    for progress in [gap(1.1, 8.0), gap(2.0, 9.5)] {
        let (after, phase) = next(after, Phase::MeasureGap, progress);
        assert_eq!((phase, after.cycle.poor_gaps), (Phase::Pivot, 0));
    }
    assert_eq!(following(without_newton(), Phase::MeasureGap, gap(1.0, 10.0)), Phase::Pairs { until: GOAL });
}

#[test]
fn pivots_end_with_the_check_the_polish_or_steps() {
    assert_eq!(next(history(), Phase::Pivot, newton(PolishEnd::Reached, 0.0)), (history(), Phase::Check));
    assert_eq!(next(history(), Phase::Pivot, newton(PolishEnd::TooLarge, 1.0)), (history(), Phase::PolishAll));
    assert_eq!(next(history(), Phase::Pivot, newton(PolishEnd::Slow, 1.0)), (history(), BLOCKS));
    assert_eq!(following(stuck(1, 1.0), Phase::Pivot, newton(PolishEnd::Slow, 1.0)), PAIRS);
    assert_eq!(next(history(), Phase::PolishAll, newton(PolishEnd::Reached, 0.0)), (history(), Phase::Check));
    assert_eq!(next(history(), Phase::PolishAll, newton(PolishEnd::TooLarge, 1.0)), (history(), BLOCKS));
    assert_eq!(next(history(), Phase::PolishAll, newton(PolishEnd::Slow, 1.0)), (history(), BLOCKS));
}

#[test]
fn a_polish_that_reaches_the_goal_leads_to_the_check() {
    let polish = Phase::Polish { shrink: true };
    assert_eq!(next(history(), polish, newton(PolishEnd::Reached, GOAL)), (history(), Phase::Check));
    let gap = PhaseOutcome::Newton { end: PolishEnd::Reached, violation: 1.0, gap_suffices: true };
    assert_eq!(next(history(), polish, gap), (history(), Phase::Check));
    // A variable that was left out violates: the next polish leaves none out.
    let (after, phase) = next(history(), polish, newton(PolishEnd::Reached, 2.0 * GOAL));
    assert_eq!((phase, after.polish_below), (BLOCKS, POLISH));
    assert_eq!(following(after, REACTIVATE, all_active(2.0 * GOAL)), Phase::Polish { shrink: false });
}

#[test]
fn a_polish_that_fails_is_tried_again_at_a_smaller_violation() {
    let polish = Phase::Polish { shrink: true };
    let until = |history, outcome| match next(history, polish, outcome) {
        (history, Phase::Blocks { until }) => (history.polish_below, until),
        (_, phase) => panic!("{phase:?}"),
    };
    assert_eq!(until(history(), newton(PolishEnd::Slow, 1.0)), (0.5 * POLISH, 0.5 * POLISH));
    assert_eq!(until(history(), newton(PolishEnd::Slow, 0.1)), (0.3 * 0.1, 0.3 * 0.1));
    assert_eq!(until(history(), newton(PolishEnd::TooLarge, 1.0)), (POLISH * 0.3, POLISH * 0.3));
    // Below the goal it ends with the steps, far below it is given up.
    let near = History { polish_below: GOAL, ..history() };
    assert_eq!(until(near, newton(PolishEnd::Slow, 1.0)), (0.5 * GOAL, GOAL));
    let far = History { polish_below: 0.019 * GOAL, ..history() };
    assert_eq!(until(far, newton(PolishEnd::Slow, 1.0)), (0.0, GOAL));
}

#[test]
fn a_check_that_passes_is_the_end() {
    assert_eq!(following(history(), Phase::Check, checked(TOL, true, 1.0)), Phase::End(Status::Optimal));
    assert_eq!(following(history(), Phase::Check, checked(2.0 * TOL, false, 2.0)), BLOCKS);
}

#[test]
fn a_check_that_fails_forgets_the_cycle_but_not_the_polish() {
    let mut before = stuck(2, 1.0);
    before.polish_below = 0.01;
    before.cycle.polish_shrinks = false;
    before.cycle.poor_gaps = 2;
    let (after, phase) = next(before, Phase::Check, checked(2.0 * TOL, false, 2.0));
    assert_eq!((phase, after.cycle), (Phase::Blocks { until: 0.01 }, Cycle::NEW));
    assert_eq!((after.polish_below, after.tolerance), (0.01, TOL));
}

#[test]
fn a_gap_that_is_too_large_tightens_the_goal() {
    let tolerance = |violation, excess| next(history(), Phase::Check, checked(violation, true, excess)).0.tolerance;
    // By the excess, at most a thousandfold, and at least to half the violation.
    assert_eq!(tolerance(TOL, 10.0), 0.5 * TOL / 10.0);
    assert_eq!(tolerance(TOL, 1e9), 0.5 * TOL / 1e3);
    assert_eq!(tolerance(1e-6, 10.0), 0.5e-6);
    // A violation that is too large does not.
    assert_eq!(next(history(), Phase::Check, checked(2.0 * TOL, false, 2.0)).0.tolerance, TOL);
}

#[test]
fn checks_without_progress_are_a_stall() {
    let (mut history, _) = next(history(), Phase::Start, checked(1.0, false, 10.0));
    for poor in 1..CHECKS_WITHOUT_PROGRESS {
        let phase;
        (history, phase) = next(history, Phase::Check, checked(1.0, false, 8.0));
        assert_eq!((phase, history.poor_checks, history.least_excess), (BLOCKS, poor, 8.0));
    }
    assert_eq!(following(history, Phase::Check, checked(1.0, false, 8.0)), Phase::End(Status::Stalled));
    // Progress starts the count again.
    let (history, phase) = next(history, Phase::Check, checked(1.0, false, 5.0));
    assert_eq!((phase, history.poor_checks), (BLOCKS, 0));
}

#[test]
#[should_panic(expected = "does not end with")]
fn an_outcome_of_another_phase_is_a_mistake() {
    next(history(), Phase::Check, all_active(1.0));
}

#[test]
fn a_cascade_comes_first_and_leads_to_set_newton_or_steps() {
    assert_eq!(following(with_sets(), Phase::Start, checked(2.0, false, 2e3)), Phase::Cascade);
    assert_eq!(following(with_sets(), Phase::Cascade, newton(PolishEnd::Reached, 5.0)), SETS_EARLY);
    let steps = Phase::Blocks { until: EARLY };
    for end in [PolishEnd::Slow, PolishEnd::TooEarly, PolishEnd::TooLarge] {
        assert_eq!(next(with_sets(), Phase::Cascade, newton(end, 2.0)), (with_sets(), steps));
    }
    // Only at the start, and not where rounds are switched off.
    assert_eq!(following(with_sets(), Phase::Check, checked(2.0, false, 2e3)), steps);
    assert_eq!(
        following(without_newton().with_sets(EARLY), Phase::Start, checked(2.0, false, 2e3)),
        Phase::Pairs { until: GOAL }
    );
}

#[test]
fn set_newton_begins_early_and_then_where_the_polish_would() {
    assert_eq!(following(with_sets(), REACTIVATE, all_active(EARLY)), SETS_EARLY);
    assert_eq!(following(with_sets(), REACTIVATE, all_active(1.01 * EARLY)), Phase::Blocks { until: EARLY });
    for end in [PolishEnd::Slow, PolishEnd::TooLarge] {
        let (later, phase) = next(with_sets(), SETS_EARLY, newton(end, 0.9));
        assert_eq!(phase, BLOCKS);
        assert_eq!(following(later, REACTIVATE, all_active(POLISH)), SETS);
        // If it does not help there either, the polish takes over.
        let (last, phase) = next(later, SETS, newton(end, 0.8 * POLISH));
        let until = 0.8 * POLISH;
        assert_eq!(phase, Phase::Blocks { until });
        assert_eq!(following(last, REACTIVATE, all_active(until)), Phase::Polish { shrink: true });
    }
}

#[test]
fn set_newton_that_would_release_too_much_waits_for_pair_steps() {
    let (later, phase) = next(with_sets(), SETS_EARLY, newton(PolishEnd::TooEarly, 0.9));
    assert_eq!(phase, BLOCKS);
    // It stays set Newton, from a smaller violation on.
    let (later, phase) = next(later, SETS, newton(PolishEnd::TooEarly, 0.8 * POLISH));
    let until = 0.3 * (0.8 * POLISH);
    assert_eq!(phase, Phase::Blocks { until });
    assert_eq!(following(later, REACTIVATE, all_active(until)), SETS);
}

#[test]
fn set_newton_leads_to_the_check_or_takes_all_variables_in() {
    for phase in [SETS_EARLY, SETS] {
        assert_eq!(following(with_sets(), phase, newton(PolishEnd::Reached, GOAL)), Phase::Check);
        let suffices = PhaseOutcome::Newton { end: PolishEnd::Reached, violation: 1.0, gap_suffices: true };
        assert_eq!(following(with_sets(), phase, suffices), Phase::Check);
        // A variable that was left out violates.
        let (again, _) = next(with_sets(), phase, newton(PolishEnd::Reached, 2.0 * GOAL));
        assert!(matches!(following(again, REACTIVATE, all_active(2.0 * GOAL)), Phase::SetNewton { shrink: false, .. }));
    }
}
