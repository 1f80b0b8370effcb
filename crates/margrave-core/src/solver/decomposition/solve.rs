//! The outer loop: runs the phases of `phases.rs` until they end.
//!
//! Kernel entries are single precision while the solver works; its gradient is then that of a kernel a few 1e-7 away.
//! Before an answer counts as optimal, the gradient is computed from scratch in double precision over all variables,
//! shrunk ones included. If the stopping rule does not hold there, the solver goes on from the corrected gradient:
//! single-precision rows are good enough for what is left, so each such cycle gains several digits.

use super::Options;
use super::interior::{self, Approached};
use super::newton::Newton;
use super::on_device::{self, Found};
use super::phases::{self, History, Phase, PhaseOutcome, StoppingRule};
use super::polish::PolishEnd;
use super::rows::{KernelRows, StoredEntry};
use super::scores::single_precision_suffices;
use super::set_newton::{SetGoal, SetNewton};
use super::state::DualState;
use super::workspace::Workspace;
use crate::certificate::Scores;
use crate::control::{Control, Status};
use crate::error::Result;
use crate::gram::{Gram, Precision};
use crate::observe::{Begin, Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::{Solution, pass};

/// Share of the memory budget that is used; the rest is for vectors and for what allocators round up.
const USED_MEMORY: f64 = 0.95;
/// Bytes the polish needs at most, in units of |F|² entries: matrix and factor in one square, with room to grow, twice
/// while it is moved, and the variables that are held.
const POLISH_SQUARES: f64 = 3.5;

/// A rough start whose measurements exceed the stopping rule by less than this factor is measured in double precision.
const CLEARLY_SHORT: f64 = 30.0;

/// Solves the dual of `problem`.
pub fn solve(
    problem: &KernelProblem<'_>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Solution> {
    options.check()?;
    problem.check()?;
    let begin = Begin { solver: "decomposition", n: problem.len(), tol: options.stop.tol, gap: options.stop.gap };
    let stop = observer.begin(&begin).is_break();
    let state = DualState::idle(problem, options.start.as_deref())?;
    let (state, scores, rounds) = match options.iterations {
        None if !stop => match on_device::run(problem, state, options.stop, control, observer)? {
            Found::Solution(solution) => {
                finish(problem, &solution, control, observer);
                return Ok(solution);
            }
            Found::Start { state, scores, rounds } => (state, scores, rounds),
        },
        _ => (state.activated(problem), None, 0),
    };
    let run = control.for_run_with_factors(pass(problem), problem.len() as f64);
    let double = problem.gram.in_memory() || !single_precision_suffices(problem, &state);
    let mut solution = if double {
        Decomposition::<f64>::new(problem, problem.gram, options, &run, observer, state).run(stop, scores)
    } else {
        // Without time left nothing is prepared.
        let rough = if control.check().is_ok() { problem.gram.rough() } else { None };
        let gram = rough.as_deref().unwrap_or(problem.gram);
        Decomposition::<f32>::new(problem, gram, options, &run, observer, state).run(stop, scores)
    };
    solution.iterations += rounds;
    if solution.status == Status::Stalled && !double {
        // The rounding of single-precision rows may be the cause: go on from there in double precision.
        let state = DualState::new(problem, Some(&solution.beta))?;
        let left = options.iterations.map(|limit| limit.saturating_sub(solution.iterations));
        let rest = Options { iterations: left, start: None, ..options.clone() };
        let before = solution.iterations;
        let run = control.for_run_with_factors(pass(problem), problem.len() as f64);
        solution = Decomposition::<f64>::new(problem, problem.gram, &rest, &run, observer, state).run(false, None);
        solution.iterations += before;
    }
    if solution.status == Status::Stalled && options.iterations.is_none() && interior::fits(problem, options.memory) {
        solution = from_inside(problem, options, control, observer, solution)?;
    }
    finish(problem, &solution, control, observer);
    Ok(solution)
}

/// Goes on from the point of the interior-point method; `stalled` if that is no better.
fn from_inside(
    problem: &KernelProblem<'_>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
    stalled: Solution,
) -> Result<Solution> {
    let Approached { on_bounds, inside } = match interior::approach(problem, stalled.iterations, control, observer) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(stalled),
        Err(why) => return Ok(Solution { status: why.into(), ..stalled }),
    };
    let mut best = stalled;
    // The right active sets are worth more than the last digits: Newton rounds find those. Where they do not, the point counts.
    for start in [on_bounds, inside] {
        let state = DualState::new(problem, Some(&start))?;
        let run = control.for_run_with_factors(pass(problem), problem.len() as f64);
        let rest = Options { start: None, ..options.clone() };
        let mut next = Decomposition::<f64>::new(problem, problem.gram, &rest, &run, observer, state).run(false, None);
        next.iterations += best.iterations;
        if next.status != Status::Stalled {
            return Ok(next);
        }
        let better = gap_of(problem, &next)? < gap_of(problem, &best)?;
        best = if better { next } else { Solution { iterations: next.iterations, ..best } };
    }
    Ok(best)
}

/// P − D; ∞ if scores are not known in double precision.
fn gap_of(problem: &KernelProblem<'_>, solution: &Solution) -> Result<f64> {
    let Some(f) = &solution.scores else { return Ok(f64::INFINITY) };
    let mut state = DualState::new(problem, Some(&solution.beta))?;
    state.activate_all(problem, f);
    let gap = state.gap(problem, |i| f[problem.row(i)]).difference;
    Ok(if gap.is_nan() { f64::INFINITY } else { gap })
}

/// Tells the observer how the run ended.
fn finish(problem: &KernelProblem<'_>, solution: &Solution, control: &Control, observer: &mut dyn Observer) {
    let last = Step {
        iteration: solution.iterations,
        seconds: control.seconds(),
        phase: "done",
        violation: Some(solution.violation),
        kernel_entries: Some(problem.gram.entries()),
        ..Step::default()
    };
    observer.finish(solution.status, &last);
}

/// A point that was measured.
struct BestPoint {
    beta: Vec<f64>,
    f: Vec<f64>,
    /// P − D there: relative to P or D a point with a huge objective would look no worse than β = 0.
    gap: f64,
}

pub(super) struct Decomposition<'a, 'o, T: StoredEntry> {
    options: &'a Options,
    pub(super) work: Workspace<'a, 'o, T>,
    pub(super) state: DualState,
    newton: Newton<T>,
    sets: SetNewton,
    /// Largest number of free variables the Newton phases may factor.
    most_free: usize,
    /// K·β in double precision at the last check, as long as β has not changed since.
    scores: Option<Vec<f64>>,
    /// The point with the least gap, as measured in double precision.
    best: Option<BestPoint>,
    /// The last scores in double precision, for updates and for the proof.
    pub(super) exact: Option<Scores>,
    /// Whether the check may follow set Newton directly while variables are shrunk: no more once one of them had to move.
    trusts_shrinking: bool,
}

impl<'a, 'o, T: StoredEntry> Decomposition<'a, 'o, T> {
    fn new(
        problem: &'a KernelProblem<'a>,
        gram: &'a dyn Gram,
        options: &'a Options,
        control: &'a Control,
        observer: &'o mut dyn Observer,
        state: DualState,
    ) -> Self {
        let n = problem.len();
        // Errors that Grams guarantee, relative to √(KᵢᵢKⱼⱼ): 2e-6 in single precision, ten times that for a rough
        // Gram, 1e-13 in double.
        let rough = !std::ptr::addr_eq(gram, problem.gram);
        let largest = state.kernel_diag.iter().fold(0.0f64, |w, k| w.max(k.abs()));
        let entry_error = largest
            * if size_of::<T>() == 8 {
                1e-12
            } else if rough {
                3e-5
            } else {
                3e-6
            };
        let bytes = (options.memory as f64 * USED_MEMORY) as u64;
        let work = Workspace {
            problem,
            gram,
            control,
            observer,
            full_rows: KernelRows::new(n, n, bytes),
            columns: None,
            shrunk: None,
            bytes,
            iterations: 0,
            iteration_limit: options.iterations.unwrap_or(u64::MAX),
            shrinking: options.shrinking,
            gradual_polish: false,
            sufficient_gap: options.stop.gap.filter(|_| options.stop.tol.is_none()),
            last_report: 0.0,
            gradient_error: f64::INFINITY,
            entry_error,
        };
        let newton = Newton::new(n);
        let sets = SetNewton::new(&state, work.entries_in_unit_interval(&state));
        Self {
            options,
            work,
            state,
            newton,
            sets,
            most_free: 0,
            scores: None,
            best: None,
            exact: None,
            trusts_shrinking: true,
        }
    }

    /// Runs one phase after another. `stop`: the observer has already stopped the run; `scores`: K·β in double precision
    /// at the starting point, if known.
    fn run(mut self, stop: bool, scores: Option<Vec<f64>>) -> Solution {
        self.lay_out_columns();
        let mut phase = match self.set_start_gradient(stop, scores) {
            Ok(()) => Phase::Start,
            Err(status) => Phase::End(status),
        };
        let tolerance = self.options.stop.tol.unwrap_or(1e-3);
        let mut history = History::new(self.options.polish, tolerance, self.polish_threshold());
        if size_of::<T>() == 4 {
            history = history.with_sets(self.early_threshold());
        }
        let status = loop {
            if let Phase::End(status) = phase {
                break status;
            }
            let outcome = self.perform(phase, history.goal()).unwrap_or_else(PhaseOutcome::Interrupted);
            (history, phase) = phases::next(history, phase, outcome);
        };
        self.newton.free_memory();
        self.sets.free_memory();
        self.finish(status)
    }

    /// Runs a phase; `goal` is the violation to reach before a check.
    fn perform(&mut self, phase: Phase, goal: f64) -> std::result::Result<PhaseOutcome, Status> {
        match phase {
            Phase::Start => {
                let mut rule = self.measure();
                if self.options.rough_start && self.state.beta.iter().any(|b| *b != 0.0) {
                    // What was measured in working precision is no point to return to, and decides only what is clear.
                    (self.best, self.scores) = (None, None);
                    if !(rule.excess > CLEARLY_SHORT) {
                        self.scores = Some(self.recompute_gradient(Precision::Double)?);
                        rule = self.measure();
                    }
                }
                Ok(PhaseOutcome::Checked(rule))
            }
            Phase::Cascade => {
                if self.state.beta.iter().any(|b| *b != 0.0) {
                    return Ok(self.newton_outcome(PolishEnd::Slow));
                }
                self.scores = None;
                self.make_room_for_factor();
                let end = self.work.cascade(&mut self.state, &mut self.sets, &mut self.newton, self.most_free)?;
                Ok(self.newton_outcome(end))
            }
            Phase::Blocks { until } => {
                self.scores = None;
                let end = self.work.blocks(&mut self.state, until);
                Ok(PhaseOutcome::Steps { end, violation: self.violation() })
            }
            Phase::Pairs { until } => {
                self.scores = None;
                let end = self.work.pairs(&mut self.state, until);
                Ok(PhaseOutcome::Steps { end, violation: self.violation() })
            }
            Phase::Reactivate { recompute, .. } => {
                self.work.reactivate_all(&mut self.state)?;
                if recompute {
                    self.recompute_gradient(Precision::Single)?;
                }
                let gap_suffices = self.work.gap_suffices(&self.state);
                Ok(PhaseOutcome::AllActive { violation: self.violation(), gap_suffices })
            }
            Phase::MeasureGap => {
                let f = self.recompute_gradient(Precision::Double)?;
                let problem = self.work.problem;
                let gap = self.state.gap(problem, |i| f[problem.row(i)]);
                self.work.control.note(None, Some(gap.difference));
                Ok(PhaseOutcome::Gap { dual: gap.dual, difference: gap.difference })
            }
            Phase::Pivot => {
                self.make_room_for_factor();
                let end = self.work.pivot(&mut self.state, goal);
                Ok(self.newton_outcome(end))
            }
            Phase::PolishAll => {
                self.newton.set_proximal(0.0);
                let end = self.work.polish(&mut self.state, &mut self.newton, goal, self.most_free);
                Ok(self.newton_outcome(end))
            }
            Phase::SetNewton { shrink, early } => {
                self.make_room_for_factor();
                let end = self.work.set_newton(
                    &mut self.state,
                    &mut self.sets,
                    &mut self.newton,
                    &SetGoal {
                        violation: goal,
                        most_factored: self.most_free,
                        shrink,
                        unless_stiff: early,
                        most_leave: 1.0,
                    },
                );
                // The check computes the slopes of all variables anyway.
                if end != PolishEnd::Reached || !self.trusts_shrinking {
                    self.work.reactivate_all(&mut self.state)?;
                }
                Ok(self.newton_outcome(end))
            }
            Phase::Polish { shrink } => {
                self.sets.free_memory();
                self.make_room_for_factor();
                if shrink {
                    let margin = self.violation();
                    self.work.shrink_without_rows(&mut self.state, margin);
                }
                self.newton.set_proximal(0.0);
                let end = self.work.polish(&mut self.state, &mut self.newton, goal, self.most_free);
                self.work.reactivate_all(&mut self.state)?;
                Ok(self.newton_outcome(end))
            }
            Phase::Check => {
                let shrunk = self.work.shrunk.is_some();
                self.scores = Some(self.recompute_gradient(Precision::Double)?);
                let rule = self.measure();
                if shrunk && !rule.tol_holds {
                    self.trusts_shrinking = false;
                }
                let reported = self.work.report(&self.state, "certify", rule.violation, true);
                // An answer that passes the check is optimal, even if the run is stopped at this point.
                if !(rule.excess <= 1.0) {
                    reported?;
                }
                Ok(PhaseOutcome::Checked(rule))
            }
            Phase::End(status) => Err(status),
        }
    }

    /// The KKT violation of the active variables.
    fn violation(&self) -> f64 {
        self.state.violation(&self.state.extremes())
    }

    fn newton_outcome(&self, end: PolishEnd) -> PhaseOutcome {
        PhaseOutcome::Newton { end, violation: self.violation(), gap_suffices: self.work.gap_suffices(&self.state) }
    }

    /// Sets [`most_free`](Self::most_free) by the memory budget. Rows make room for the factor if need be: they can be
    /// computed again, and few are needed after a polish.
    fn make_room_for_factor(&mut self) {
        let bytes = self.work.bytes as f64;
        let unit = POLISH_SQUARES * size_of::<T>() as f64;
        let most = (bytes / unit).sqrt();
        let free = self.state.active.iter().filter(|&&i| self.state.is_free(i as usize)).count() as f64;
        // Released variables come on top of those free now.
        let wanted = unit * (1.15 * free + 200.0).powi(2).min(most * most);
        if wanted > bytes - self.work.full_rows.bytes() as f64 {
            let n = self.work.problem.len();
            self.work.full_rows = KernelRows::new(n, n, (bytes - wanted) as u64);
        }
        let left = (bytes - self.work.full_rows.bytes() as f64).max(wanted);
        self.most_free = (left / unit).sqrt().min(most) as usize;
    }

    /// The gradient at the starting point, and the scores there; computed unless β = 0 or the run is stopped already.
    fn set_start_gradient(&mut self, stop: bool, scores: Option<Vec<f64>>) -> std::result::Result<(), Status> {
        let mut outcome = if stop { Err(Status::Interrupted) } else { Ok(()) };
        if let Some(f) = scores.filter(|_| !stop) {
            self.work.gradient_error = 0.0;
            self.set_gradient(&f);
            self.scores = Some(f);
            return outcome;
        }
        if !stop && self.state.beta.iter().any(|b| *b != 0.0) {
            let precision = if self.options.rough_start { Precision::Single } else { Precision::Double };
            outcome = self.recompute_gradient(precision).map(|f| self.scores = Some(f));
        }
        if self.state.beta.iter().all(|b| *b == 0.0) {
            let zero = vec![0.0; self.work.problem.gram.shape().0];
            self.work.gradient_error = 0.0;
            self.set_gradient(&zero);
            self.scores = Some(zero);
        }
        outcome
    }

    /// The violation from which the polish is tried: a share of the violation at the start, and for regression near the
    /// tube's width.
    fn polish_threshold(&self) -> f64 {
        if !self.options.polish {
            return 0.0;
        }
        let first = self.first_violation();
        let tube = self.state.terms.iter().map(|t| t.eps).fold(0.0, f64::max);
        if tube > 0.0 { (0.15 * first).min(tube) } else { 0.15 * first }
    }

    /// The violation from which set Newton rounds are tried where K over the free variables is well conditioned.
    /// Not for regression: nearly all targets are outside the tube at the start, and most are free in the end.
    fn early_threshold(&self) -> f64 {
        if self.state.terms.iter().any(|t| t.eps > 0.0) { 0.0 } else { 0.5 * self.first_violation() }
    }

    /// The violation at the start, or at β = 0 if that is less: a start may be close to the optimum and violate much at a few
    /// variables, and Newton rounds from there would release far too many.
    fn first_violation(&self) -> f64 {
        let own = self.violation();
        if !self.options.rough_start {
            return own;
        }
        let problem = self.work.problem;
        let Ok(mut zero) = DualState::new(problem, None) else { return own };
        zero.activate_all(problem, &vec![0.0; problem.gram.shape().0]);
        own.min(zero.violation(&zero.extremes()))
    }

    /// Measures the stopping rule at the current β, whose scores in double precision are known. The best point so far
    /// is kept.
    fn measure(&mut self) -> StoppingRule {
        let f = self.scores.as_deref().expect("scores in double precision");
        let problem = self.work.problem;
        let stop = self.options.stop;
        let violation = self.state.violation(&self.state.extremes());
        let finite = f.iter().chain(&self.state.beta).all(|v| v.is_finite()) && violation.is_finite();
        let mut excess = if finite { stop.tol.map_or(0.0, |tol| violation / tol) } else { f64::INFINITY };
        let tol_holds = excess <= 1.0;
        if finite {
            let gap = self.state.gap(problem, |i| f[problem.row(i)]);
            if let Some(wanted) = stop.gap {
                excess = excess.max(gap.relative() / wanted);
            }
            if gap.difference.is_finite() && self.best.as_ref().is_none_or(|best| gap.difference < best.gap) {
                self.best = Some(BestPoint { beta: self.state.beta.clone(), f: f.to_vec(), gap: gap.difference });
            }
        }
        StoppingRule { violation, tol_holds, excess }
    }

    /// Notes which columns of K the variables are, unless they are all in order.
    fn lay_out_columns(&mut self) {
        let problem = self.work.problem;
        let rows: Vec<u32> = self.state.active.iter().map(|&i| problem.row(i as usize) as u32).collect();
        let in_order = rows.len() == problem.gram.shape().0 && rows.iter().enumerate().all(|(a, &r)| a == r as usize);
        self.work.columns = (!in_order).then_some(rows);
    }

    /// The current point; or the best one measured, where the solver has stalled or overflowed since.
    fn finish(mut self, mut status: Status) -> Solution {
        let overflow = self.state.beta.iter().chain(&self.state.g).any(|v| !v.is_finite());
        if status == Status::Stalled || overflow {
            match self.best.take() {
                Some(best) => {
                    self.state.beta = best.beta;
                    self.set_gradient(&best.f);
                    self.scores = Some(best.f);
                }
                None => {
                    self.state.beta.iter_mut().filter(|b| !b.is_finite()).for_each(|b| *b = 0.0);
                    self.scores = None;
                }
            }
            if status == Status::Optimal {
                status = Status::Stalled;
            }
        }
        let violation = self.violation();
        let mu = self.state.multipliers();
        let finite = |b: f64| if b.is_finite() { b } else { 0.0 };
        let bias = (0..self.work.problem.constraint.groups()).map(|g| finite(-mu[g])).collect();
        let (beta, scores, iterations) = (self.state.beta, self.scores, self.work.iterations);
        let exact = self.exact.filter(|exact| exact.are_of(self.work.problem, &beta));
        Solution { beta, bias, scores, exact, status, iterations, violation }
    }
}
