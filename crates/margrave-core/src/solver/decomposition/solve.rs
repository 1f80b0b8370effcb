//! The outer loop: pair steps until the sets are roughly right, the polish, and a double-precision check before stopping.
//!
//! Kernel entries are single precision while the solver works; its gradient is then that of a kernel a few 1e-7 away.
//! Before it may call an answer optimal the gradient is computed anew in double precision over all variables, shrunk ones
//! included. If the stopping rule does not hold there the solver goes on from the corrected gradient: single-precision
//! rows are good enough for what is left, so each such turn gains several digits.

use super::Options;
use super::newton::Newton;
use super::pairs::{End, Work};
use super::polish::Polished;
use super::rows::{Rows, Stored};
use super::state::State;
use crate::control::{Control, Status};
use crate::error::Result;
use crate::gram::{Gram, Pick, Precision};
use crate::observe::{Begin, Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::gap::Gap;
use crate::solver::{Solution, pass};

/// Share of the memory budget that is given out; the rest is for vectors and what allocators round up.
const SHARE: f64 = 0.95;
/// Bytes the polish needs at most, in units of |F|² entries: matrix and factor in one square, with room to grow and twice
/// while it is moved, and held ones.
const POLISH_BLOCKS: f64 = 3.5;
/// A turn of solve and check that does not bring what is measured in double precision below this share of the least so far has
/// made no progress; so many of them in a row are the end.
const PROGRESS: f64 = 0.7;
const POOR_TURNS: usize = 3;
/// Looks at slow progress inside a turn (see [`Progress`]) without any before the turn ends.
const FRUITLESS: usize = 3;

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
    let state = State::new(problem, options.start.as_deref())?;
    let run = control.for_run(pass(problem));
    let wide = !single_precision_suffices(problem, &state);
    let mut solution = if wide {
        Solver::<f64>::new(problem, problem.gram, options, &run, observer, state).run(stop)
    } else {
        // Without time left nothing is made ready.
        let rough = if control.check().is_ok() { problem.gram.rough() } else { None };
        let gram = rough.as_deref().unwrap_or(problem.gram);
        Solver::<f32>::new(problem, gram, options, &run, observer, state).run(stop)
    };
    if solution.status == Status::Stalled && !wide {
        // What stopped it may be the rounding of single-precision rows: on from there in double precision.
        let state = State::new(problem, Some(&solution.beta))?;
        let left = options.iterations.map(|most| most.saturating_sub(solution.iterations));
        let rest = Options { iterations: left, start: None, ..options.clone() };
        let before = solution.iterations;
        let run = control.for_run(pass(problem));
        solution = Solver::<f64>::new(problem, problem.gram, &rest, &run, observer, state).run(false);
        solution.iterations += before;
    }
    let last = Step {
        iteration: solution.iterations,
        seconds: control.seconds(),
        phase: "done",
        violation: Some(solution.violation),
        kernel_entries: Some(problem.gram.entries()),
        ..Step::default()
    };
    observer.finish(solution.status, &last);
    Ok(solution)
}

/// Whether differences of single-precision entries still tell pairs of points apart: the typical pair curvature
/// κ = Kᵢᵢ + Kⱼⱼ − 2Kᵢⱼ is well above the rounding of its terms.
fn single_precision_suffices(problem: &KernelProblem<'_>, state: &State) -> bool {
    const SAMPLE: usize = 24;
    let n = problem.len();
    if n == 0 {
        return true;
    }
    let rows: Vec<u32> = (0..SAMPLE.min(n)).map(|k| problem.row(k * n / SAMPLE.min(n)) as u32).collect();
    let mut block = vec![0.0; rows.len() * rows.len()];
    let control = Control::unlimited(crate::Threads::one());
    // By themselves, so that nothing is made ready for all points.
    let computed = match problem.gram.select(&rows) {
        Some(few) => few.block_f64(Pick::All, Pick::All, &mut block, &control),
        None => problem.gram.block_f64(Pick::List(&rows), Pick::List(&rows), &mut block, &control),
    };
    if computed.is_err() {
        return true;
    }
    let m = rows.len();
    let mut ratios: Vec<f64> = Vec::new();
    for a in 0..m {
        for b in 0..a {
            let (kaa, kbb) = (block[a * m + a], block[b * m + b]);
            let scale = kaa.abs().max(kbb.abs());
            let kappa = kaa + kbb - 2.0 * block[a * m + b];
            if scale > 0.0 {
                ratios.push(kappa / scale);
            }
        }
    }
    let largest = state.kernel_diag.iter().fold(0.0, |w: f64, v| w.max(v.abs()));
    if ratios.is_empty() {
        return largest <= 1e3;
    }
    let middle = ratios.len() / 2;
    let typical = *ratios.select_nth_unstable_by(middle, f64::total_cmp).1;
    typical >= 1e-3 && largest <= 1e6
}

/// What was measured against the stopping rule.
struct Measured {
    violation: f64,
    /// Whether the violation is within its tolerance, or none is asked for.
    tol_holds: bool,
    /// The largest ratio of what was measured to what is asked for: at most 1 where the rule holds.
    excess: f64,
}

/// A point that was measured.
struct Best {
    beta: Vec<f64>,
    f: Vec<f64>,
    /// P − D there: relative to P or D a point with a huge objective would look no worse than β = 0.
    gap: f64,
}

/// Progress of slow phases, by the gap measured in double precision: the gap has fallen by a tenth, or the dual objective, which
/// never falls, has come nearer by a twentieth of the gap.
struct Progress {
    least: f64,
    dual: f64,
    fruitless: usize,
}

impl Progress {
    fn new() -> Self {
        Self { least: f64::INFINITY, dual: f64::NEG_INFINITY, fruitless: 0 }
    }

    /// Notes a measurement; false after too many in a row without progress.
    fn goes_on(&mut self, gap: &Gap) -> bool {
        let gains = gap.difference < 0.9 * self.least || gap.dual - self.dual > 0.05 * gap.difference;
        self.fruitless = if gains && gap.difference.is_finite() { 0 } else { self.fruitless + 1 };
        self.least = self.least.min(gap.difference);
        self.dual = self.dual.max(gap.dual);
        self.fruitless < FRUITLESS
    }
}

struct Solver<'a, 'o, T> {
    options: &'a Options,
    work: Work<'a, 'o, T>,
    state: State,
    /// The point with the least gap, as measured in double precision.
    best: Option<Best>,
    /// The last scores in double precision.
    exact: Option<Exact>,
}

/// K·v in double precision, where it is known.
struct Exact {
    v: Vec<f64>,
    f: Vec<f64>,
    known: Vec<bool>,
}

impl<'a, 'o, T: Stored> Solver<'a, 'o, T> {
    fn new(
        problem: &'a KernelProblem<'a>,
        gram: &'a dyn Gram,
        options: &'a Options,
        control: &'a Control,
        observer: &'o mut dyn Observer,
        state: State,
    ) -> Self {
        let n = problem.len();
        // What Grams promise: 2e-6 in single precision, ten times that where rough, 1e-13 in double; relative to √(KᵢᵢKⱼⱼ).
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
        let bytes = (options.memory as f64 * SHARE) as u64;
        let work = Work {
            problem,
            gram,
            control,
            observer,
            full: Rows::new(n, n, bytes),
            columns: None,
            shrunk: None,
            bytes,
            iterations: 0,
            limit: options.iterations.unwrap_or(u64::MAX),
            shrinking: options.shrinking,
            patient: false,
            enough: options.stop.gap.filter(|_| options.stop.tol.is_none()),
            last_report: 0.0,
            drift: f64::INFINITY,
            entry_error,
        };
        Self { options, work, state, best: None, exact: None }
    }

    /// Largest number of free variables the polish may factor within the memory budget. Rows make room for it if need be:
    /// they can be computed again, and after a polish few are wanted.
    fn most_free(&mut self) -> usize {
        let bytes = self.work.bytes as f64;
        let unit = POLISH_BLOCKS * size_of::<T>() as f64;
        let most = (bytes / unit).sqrt();
        let free = self.state.active.iter().filter(|&&i| self.state.is_free(i as usize)).count() as f64;
        // Released variables come on top of those free now.
        let wanted = unit * (1.15 * free + 200.0).powi(2).min(most * most);
        if wanted > bytes - self.work.full.bytes() as f64 {
            let n = self.work.problem.len();
            self.work.full = Rows::new(n, n, (bytes - wanted) as u64);
        }
        let left = (bytes - self.work.full.bytes() as f64).max(wanted);
        (left / unit).sqrt().min(most) as usize
    }

    fn run(mut self, stop: bool) -> Solution {
        self.lay_out_columns();
        let mut status = if stop { Status::Interrupted } else { Status::Optimal };
        let mut scores: Option<Vec<f64>> = None;
        if status == Status::Optimal
            && self.state.beta.iter().any(|b| *b != 0.0)
            && let Err(why) = self.regrade(Precision::Double).map(|f| scores = Some(f))
        {
            status = why;
        }
        if self.state.beta.iter().all(|b| *b == 0.0) {
            let zero = vec![0.0; self.work.problem.gram.shape().0];
            self.work.drift = 0.0;
            self.set_gradient(&zero);
            scores = Some(zero);
        }
        let mut newton = Newton::new(self.work.problem.len());
        let mut goal = self.options.stop.tol.unwrap_or(1e-3);
        let first = self.state.violation(&self.state.extremes());
        let mut try_at = self.first_try(first);
        let (mut least, mut poor) = (f64::INFINITY, 0);
        for turn in 0.. {
            if status != Status::Optimal {
                break;
            }
            if turn > 0 || scores.is_none() {
                scores = None;
                if let Some(early) = self.approach(&mut newton, 0.5 * goal, &mut try_at) {
                    status = early;
                    break;
                }
                match self.regrade(Precision::Double) {
                    Ok(f) => scores = Some(f),
                    Err(why) => {
                        status = why;
                        break;
                    }
                }
            }
            let Some(f) = &scores else { break };
            let measured = self.measure(f);
            let reported =
                if turn > 0 { self.work.report(&self.state, "certify", measured.violation, true) } else { Ok(()) };
            if measured.excess <= 1.0 {
                break;
            }
            if let Err(why) = reported {
                status = why;
                break;
            }
            if measured.tol_holds {
                goal = (0.5 * goal / measured.excess.clamp(1.0, 1e3)).min(0.5 * measured.violation.max(1e-300));
            }
            // Rounding sets a floor: turns without progress, each as much work as `approach` says, and we are on it.
            poor = if measured.excess < PROGRESS * least { 0 } else { poor + 1 };
            least = least.min(measured.excess);
            if turn > 0 && poor >= POOR_TURNS {
                status = Status::Stalled;
                break;
            }
        }
        newton.forget();
        self.finish(status, scores)
    }

    /// What the stopping rule asks for, measured at the present β, whose scores in double precision are `f`. The best point so far
    /// is kept.
    fn measure(&mut self, f: &[f64]) -> Measured {
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
                self.best = Some(Best { beta: self.state.beta.clone(), f: f.to_vec(), gap: gap.difference });
            }
        }
        Measured { violation, tol_holds, excess }
    }

    /// The violation at which the polish is tried first.
    fn first_try(&self, first: f64) -> f64 {
        if !self.options.polish {
            return 0.0;
        }
        let tube = self.state.terms.iter().map(|t| t.eps).fold(0.0, f64::max);
        if tube > 0.0 { (0.15 * first).min(0.3 * tube) } else { 0.15 * first }
    }

    /// Brings the violation of all variables to `goal` in working precision; `Some`: ended early.
    fn approach(&mut self, newton: &mut Newton<T>, goal: f64, try_at: &mut f64) -> Option<Status> {
        let (mut stuck, mut stuck_at) = (0, f64::INFINITY);
        let mut crawling = 0;
        let mut narrow = true;
        let mut progress = Progress::new();
        loop {
            let polish = self.options.polish && *try_at > 0.0;
            let until = if polish { goal.max(*try_at) } else { goal };
            // Where block steps no longer help, pairs over all variables may.
            let ended = if self.options.polish && stuck == 0 {
                self.work.blocks(&mut self.state, until)
            } else {
                self.work.pairs(&mut self.state, until)
            };
            match ended {
                End::Stopped(status) => return Some(status),
                End::Stuck => stuck += 1,
                End::Crawling => crawling += 1,
                End::Reached => {}
            }
            let here = self.state.violation(&self.state.extremes());
            match ended {
                End::Stuck => stuck_at = here,
                // Whatever held the blocks up has been overcome.
                End::Reached if here < 0.5 * stuck_at => stuck = 0,
                _ => {}
            }
            // Look at everything again before believing it.
            if let Err(why) = self.work.take_back(&mut self.state) {
                return Some(why.into());
            }
            if stuck > 0
                && let Err(status) = self.regrade(Precision::Single)
            {
                return Some(status);
            }
            let violation = self.state.violation(&self.state.extremes());
            if violation <= goal || stuck > 2 || self.work.is_enough(&self.state) {
                return None;
            }
            if crawling > 0 {
                crawling = 0;
                let f = match self.regrade(Precision::Double) {
                    Ok(f) => f,
                    Err(status) => return Some(status),
                };
                let problem = self.work.problem;
                let gap = self.state.gap(problem, |i| f[problem.row(i)]);
                self.work.control.note(None, Some(gap.difference));
                if !progress.goes_on(&gap) {
                    return None;
                }
                if !self.options.polish {
                    continue;
                }
                let most = self.most_free();
                let mut ended = self.work.pivot(&mut self.state, goal);
                if ended == Polished::TooLarge {
                    ended = self.work.polish(&mut self.state, newton, goal, most);
                }
                match ended {
                    Polished::Reached => return None,
                    Polished::Stopped(status) => return Some(status),
                    Polished::Slow | Polished::TooLarge => continue,
                }
            }
            if violation > until {
                continue;
            }
            if polish {
                let most = self.most_free();
                if narrow {
                    self.work.narrow(&mut self.state, violation);
                }
                let ended = self.work.polish(&mut self.state, newton, goal, most);
                if let Err(why) = self.work.take_back(&mut self.state) {
                    return Some(why.into());
                }
                match ended {
                    Polished::Reached => {
                        let violation = self.state.violation(&self.state.extremes());
                        if violation <= goal || self.work.is_enough(&self.state) {
                            return None;
                        }
                        // Somebody set aside had a reason to move after all: from now on everybody is looked at.
                        narrow = false;
                    }
                    Polished::Stopped(status) => return Some(status),
                    Polished::Slow => *try_at = (0.3 * self.state.violation(&self.state.extremes())).min(0.5 * *try_at),
                    Polished::TooLarge => *try_at *= 0.3,
                }
                if *try_at < 0.01 * goal {
                    *try_at = 0.0;
                }
            }
        }
    }

    /// Takes all variables into work again with a gradient computed anew; returns K·β by row.
    fn regrade(&mut self, precision: Precision) -> std::result::Result<Vec<f64>, Status> {
        let problem = self.work.problem;
        self.state.restore_sums(&problem.constraint);
        let (n, m) = problem.gram.shape();
        let mut v = vec![0.0; m];
        for (i, b) in self.state.beta.iter().enumerate() {
            v[problem.row(i)] += b;
        }
        let precision = if size_of::<T>() == 8 { Precision::Double } else { precision };
        if precision == Precision::Single {
            let mut f = vec![0.0; n];
            self.work.gram.apply(precision, Pick::All, &v, 1, &mut f, self.work.control).map_err(Status::from)?;
            self.work.drift = self.work.entry_error * v.iter().map(|b| b.abs()).sum::<f64>();
            self.set_gradient(&f);
            return Ok(f);
        }
        let f = self.exact_scores(v)?;
        self.work.drift = 0.0;
        self.set_gradient(&f);
        Ok(f)
    }

    /// K·v in double precision, v being β by column: from scratch, or from what it was before by the change in v where
    /// that touches fewer columns. Rows whose sample has β = 0 and, within the error of the score the solver has, certainly no
    /// loss keep that score: nothing in objective or violation depends on its last digits.
    fn exact_scores(&mut self, v: Vec<f64>) -> std::result::Result<Vec<f64>, Status> {
        let (problem, control) = (self.work.problem, self.work.control);
        let n = problem.gram.shape().0;
        let (mut f, needed) = self.scores_at_hand();
        let apply = |rows: &[u32], v: &[f64]| {
            let mut out = vec![0.0; rows.len()];
            let pick = if rows.len() == n { Pick::All } else { Pick::List(rows) };
            problem.gram.apply(Precision::Double, pick, v, 1, &mut out, control).map_err(Status::from).map(|()| out)
        };
        let count = |v: &[f64]| v.iter().filter(|x| **x != 0.0).count();
        let rows: Vec<u32> = (0..n as u32).filter(|&r| needed[r as usize]).collect();
        let mut anew = rows.clone();
        let mut known = needed;
        if let Some(Exact { v: before, f: old, known: was_known }) = self.exact.take() {
            let change: Vec<f64> = v.iter().zip(&before).map(|(v, b)| v - b).collect();
            if 4 * count(&change) <= 3 * count(&v) {
                let again: Vec<u32> = rows.iter().copied().filter(|&r| was_known[r as usize]).collect();
                anew.retain(|&r| !was_known[r as usize]);
                for (&r, by) in again.iter().zip(apply(&again, &change)?) {
                    f[r as usize] = old[r as usize] + by;
                }
                if change.iter().all(|c| *c == 0.0) {
                    // Nothing moved: what was known still is.
                    for r in (0..n).filter(|&r| was_known[r]) {
                        (f[r], known[r]) = (old[r], true);
                    }
                }
            }
        }
        for (&r, score) in anew.iter().zip(apply(&anew, &v)?) {
            f[r as usize] = score;
        }
        self.exact = Some(Exact { v, f: f.clone(), known });
        Ok(f)
    }

    /// The score of every row as far as the gradient tells it, and whether a more exact one is needed.
    fn scores_at_hand(&self) -> (Vec<f64>, Vec<bool>) {
        let problem = self.work.problem;
        let (state, n) = (&self.state, problem.gram.shape().0);
        let mut f = vec![0.0; n];
        let mut needed = vec![true; n];
        if problem.row_of.is_some() || state.active.len() < n || !self.work.drift.is_finite() {
            return (f, needed);
        }
        let error = self.work.drift + 1e-9;
        let multipliers = state.multipliers();
        for (a, &i) in state.active.iter().enumerate() {
            let i = i as usize;
            let t = &state.terms[i];
            f[i] = state.g[a] - t.p - t.d * state.beta[i];
            let bias = if state.paired { -multipliers[state.group[i] as usize] } else { 0.0 };
            let loss = |z: f64| problem.costs[i] * problem.loss(i).value(problem.targets[i], z);
            let z = f[i] + bias;
            // Twice the error, and some: the bias that the certificate finds best may differ by as much.
            let reach = 2.0 * error + 1e-3;
            needed[i] = state.beta[i] != 0.0 || [z - reach, z, z + reach].into_iter().any(|z| loss(z) != 0.0);
        }
        (f, needed)
    }

    /// g = Kβ + p + dβ for all variables, all of them active.
    fn set_gradient(&mut self, f: &[f64]) {
        let problem = self.work.problem;
        let g: Vec<f64> = (0..problem.len())
            .map(|i| f[problem.row(i)] + self.state.terms[i].p + self.state.terms[i].d * self.state.beta[i])
            .collect();
        self.work.shrunk = None;
        self.state.activate((0..problem.len() as u32).collect(), g);
    }

    /// Notes which columns of K the variables are, where they are not simply all in order.
    fn lay_out_columns(&mut self) {
        let problem = self.work.problem;
        let rows: Vec<u32> = self.state.active.iter().map(|&i| problem.row(i as usize) as u32).collect();
        let plain = rows.len() == problem.gram.shape().0 && rows.iter().enumerate().all(|(a, &r)| a == r as usize);
        self.work.columns = (!plain).then_some(rows);
    }

    /// The present point, or the best one measured where the solver has gone nowhere better since.
    fn finish(mut self, mut status: Status, mut scores: Option<Vec<f64>>) -> Solution {
        let lost = self.state.beta.iter().chain(&self.state.g).any(|v| !v.is_finite());
        if status == Status::Stalled || lost {
            match self.best.take() {
                Some(best) => {
                    self.state.beta = best.beta;
                    self.set_gradient(&best.f);
                    scores = Some(best.f);
                }
                None => {
                    self.state.beta.iter_mut().filter(|b| !b.is_finite()).for_each(|b| *b = 0.0);
                    scores = None;
                }
            }
            if status == Status::Optimal {
                status = Status::Stalled;
            }
        }
        let violation = self.state.violation(&self.state.extremes());
        let mu = self.state.multipliers();
        let finite = |b: f64| if b.is_finite() { b } else { 0.0 };
        let bias = (0..self.work.problem.constraint.groups()).map(|g| finite(-mu[g])).collect();
        Solution { beta: self.state.beta, bias, scores, status, iterations: self.work.iterations, violation }
    }
}
