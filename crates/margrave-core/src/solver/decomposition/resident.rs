//! Pair steps on a Gram matrix that is stored in memory: for searches that train hundreds of models on the same K.
//!
//! No entry is computed, and none copied before variables are shrunk: rows are read in place. Held-out samples are
//! variables of cost 0, fixed at 0; their scores come with the solution, so that a fold is scored without a kernel
//! entry. A model can start from another one whose scores are known, at the best of several guesses by the dual
//! objective.
//!
//! Gradients are sums in double precision over the stored entries: up to the rounding of those sums the answer is exact
//! for the matrix as stored, and nothing has to be computed again before stopping. Once the active sets are roughly
//! right a Newton polish finishes, in double precision because pair steps are slow where K over the free variables is
//! badly conditioned; where the polish does not help either, the general solver (`solve.rs`) takes over.

use super::Options;
use super::newton::Newton;
use super::pairs;
use super::polish::PolishEnd;
use super::rows::KernelRows;
use super::shrinking::unsettled;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::{Control, Status};
use crate::error::Result;
use crate::gram::StoredGram;
use crate::linalg::sweep::{self, Extremes};
use crate::observe::Silent;
use crate::problem::KernelProblem;
use crate::solver::{Solution, Stop};

/// Steps between two polls of the budget.
const POLL_INTERVAL: u64 = 512;
/// Most bytes of short rows; beyond, they are discarded.
const SHORT_ROWS_BYTES: usize = 96 << 20;
/// The general solver takes over after so many steps per sample, plus `EXTRA_STEPS`.
const STEPS_PER_SAMPLE: u64 = 40;
/// See `STEPS_PER_SAMPLE`.
const EXTRA_STEPS: u64 = 40_000;
/// Most free variables that the polish factors: 23 MB.
const MOST_FREE: usize = 1500;
/// What is added to the diagonal of a factor, relative to K's: stored entries are rounded to single precision, and
/// their matrix may be indefinite by so much.
const JITTER: f64 = 1e-7;
/// Where at least one in so many variables is fixed by its bounds, the others get short rows from the start.
const FIXED_SHARE: usize = 3;
/// Marks a variable without a short row.
const NONE: u32 = u32::MAX;

/// A warm start: guesses near a β whose scores are known.
#[derive(Debug, Clone, Default)]
pub struct Warm {
    /// Some β, one per variable.
    pub known: Vec<f64>,
    /// K·known.
    pub scores: Vec<f64>,
    /// Starting points: each is clipped to the box and balanced, and the one of largest dual objective is used. A guess
    /// that differs from `known` in few places costs little.
    pub guesses: Vec<Vec<f64>>,
}

/// Memory that one training leaves to the next: allocating fresh pages costs more than the computations with them.
#[derive(Debug, Default)]
pub struct Scratch {
    rows: Vec<f32>,
}

/// Solves the dual of `problem`, whose Gram is `gram`: one variable per row, and at most one sum fixed. The scores of
/// the solution are those of all rows.
pub fn resident(
    problem: &KernelProblem<'_>,
    gram: &StoredGram,
    stop: Stop,
    warm: &[Warm],
    memory: u64,
    scratch: &mut Scratch,
    control: &Control,
) -> Result<Solution> {
    stop.check()?;
    problem.check()?;
    crate::error::check_len("rows of the stored matrix", problem.len(), gram.len())?;
    let (state, scores) = starting_point(problem, gram, warm)?;
    let largest = state.kernel_diag.iter().fold(0.0f64, |most, k| most.max(k.abs()));
    let mut solver = ResidentSolver {
        problem,
        gram,
        control,
        scratch,
        newton: Newton::with_jitter(problem.len(), JITTER * largest),
        full_gradient: Vec::new(),
        full_beta: Vec::new(),
        short: None,
        steps: 0,
        polish_from_step: problem.len() as u64 / 2,
        polish_below: polish_threshold(&state),
        state,
    };
    solver.full_gradient = solver.gradient(&scores);
    solver.full_beta = solver.state.beta.clone();
    solver.state.activate((0..problem.len() as u32).collect(), solver.full_gradient.clone());
    let mut goal = stop.tol.unwrap_or(1e-3);
    let step_limit = STEPS_PER_SAMPLE * problem.len() as u64 + EXTRA_STEPS;
    loop {
        let status = match solver.run(goal, step_limit) {
            ResidentEnd::Reached => Status::Optimal,
            ResidentEnd::Stopped(status) => status,
            ResidentEnd::Slow => {
                let options = Options { stop, start: Some(solver.state.beta), memory, ..Options::default() };
                return super::solve(problem, &options, control, &mut Silent);
            }
        };
        let scores = solver.scores();
        let violation = solver.state.violation(&solver.state.extremes());
        if status == Status::Optimal
            && let Some(wanted) = stop.gap
            && goal > 1e-12
        {
            let gap = solver.state.gap(problem, |i| scores[i]).relative();
            if gap > wanted {
                goal = (0.5 * goal / (gap / wanted).min(1e3)).min(0.5 * violation.max(1e-13));
                continue;
            }
        }
        let bias = if solver.state.paired { vec![-solver.state.multipliers()[0]] } else { vec![] };
        let ResidentSolver { state, steps, .. } = solver;
        return Ok(Solution {
            beta: state.beta,
            bias,
            exact: None,
            scores: Some(scores),
            status,
            iterations: steps,
            violation,
        });
    }
}

/// The solution at a point with known scores, if it is feasible and as good as `stop` asks.
pub fn at_point(problem: &KernelProblem<'_>, beta: &[f64], scores: &[f64], stop: Stop) -> Result<Option<Solution>> {
    stop.check()?;
    problem.check()?;
    let mut state = DualState::new(problem, Some(beta))?;
    // Clipping and balancing may move β by rounding errors; more than that, and the scores are not those of the point.
    if !state.would_be_feasible(beta, &problem.constraint) || scores.len() != beta.len() {
        return Ok(None);
    }
    state.beta.copy_from_slice(beta);
    let gradient = (0..beta.len()).map(|i| match beta[i] {
        0.0 => scores[i] + state.terms[i].p,
        b => scores[i] + state.terms[i].p + state.terms[i].d * b,
    });
    let gradient: Vec<f64> = gradient.collect();
    state.activate((0..beta.len() as u32).collect(), gradient);
    let violation = state.violation(&state.extremes());
    let close = violation <= stop.tol.unwrap_or(1e-3)
        && stop.gap.is_none_or(|gap| state.gap(problem, |i| scores[i]).relative() <= gap);
    if !close {
        return Ok(None);
    }
    let bias = if state.paired { vec![-state.multipliers()[0]] } else { vec![] };
    Ok(Some(Solution {
        beta: state.beta,
        bias,
        exact: None,
        scores: Some(scores.to_vec()),
        status: Status::Optimal,
        iterations: 0,
        violation,
    }))
}

/// The best of the guesses, or zero, and K·β there.
fn starting_point(problem: &KernelProblem<'_>, gram: &StoredGram, warm: &[Warm]) -> Result<(DualState, Vec<f64>)> {
    let n = problem.len();
    let from = |known: &[f64], scores: &[f64], beta: &[f64]| {
        let mut f = scores.to_vec();
        for i in 0..n {
            let by = beta[i] - known[i];
            if by != 0.0 {
                sweep::add_row(&mut f, gram.row(i), by);
            }
        }
        f
    };
    let mut best: Option<(f64, DualState, Vec<f64>)> = None;
    for warm in warm.iter().filter(|w| w.known.len() == n && w.scores.len() == n) {
        for guess in &warm.guesses {
            let state = DualState::new(problem, Some(guess))?;
            let f = from(&warm.known, &warm.scores, &state.beta);
            let dual: f64 = state
                .terms
                .iter()
                .zip(&state.beta)
                .zip(&f)
                .map(|((t, b), f)| -(0.5 * b * f + t.p * b + t.eps * b.abs() + 0.5 * t.d * b * b))
                .sum();
            if best.as_ref().is_none_or(|(most, ..)| dual > *most) {
                best = Some((dual, state, f));
            }
        }
    }
    // β = 0 has dual objective 0 where it is feasible.
    if let Some((dual, state, f)) = best
        && dual >= 0.0
    {
        return Ok((state, f));
    }
    let state = DualState::new(problem, None)?;
    let zero = vec![0.0; n];
    let f = from(&zero, &zero, &state.beta);
    Ok((state, f))
}

/// The violation from which the polish is tried: a share of that of β = 0, and for regression near the tube's width.
fn polish_threshold(state: &DualState) -> f64 {
    let (mut up, mut down, mut tube) = (f64::INFINITY, f64::NEG_INFINITY, 0.0f64);
    for t in &state.terms {
        if t.hi > 0.0 {
            up = up.min(t.p + t.eps);
        }
        if t.lo < 0.0 {
            down = down.max(t.p - t.eps);
        }
        tube = tube.max(t.eps);
    }
    let first = if state.paired { down - up } else { down.max(-up) };
    match (first.is_finite() && first > 0.0, tube > 0.0) {
        (false, _) => 0.0,
        (true, false) => 0.15 * first,
        (true, true) => (0.15 * first).min(0.3 * tube),
    }
}

/// How the steps ended.
enum ResidentEnd {
    /// The violation is at most the goal.
    Reached,
    /// Too many steps: the general solver takes over.
    Slow,
    /// A budget ran out, or nothing moves any more.
    Stopped(Status),
}

/// Rows over the active variables only.
struct ShortRows {
    /// Rows of K of the active variables.
    columns: Vec<u32>,
    /// Where the row of a variable is, or NONE.
    place: Vec<u32>,
    rows: Vec<f32>,
}

impl ShortRows {
    /// Makes sure that the rows of the given variables are stored.
    fn ensure(&mut self, wanted: &[usize], gram: &StoredGram) {
        let width = self.columns.len();
        if (self.rows.len() + 2 * width) * size_of::<f32>() > SHORT_ROWS_BYTES.max(8 * width) {
            self.rows.clear();
            self.place.fill(NONE);
        }
        for &i in wanted {
            if self.place[i] == NONE {
                self.place[i] = (self.rows.len() / width.max(1)) as u32;
                let row = gram.row(i);
                self.rows.extend(self.columns.iter().map(|&c| row[c as usize]));
            }
        }
    }

    fn row(&self, i: usize) -> &[f32] {
        let width = self.columns.len();
        &self.rows[self.place[i] as usize * width..][..width]
    }
}

/// The solver on a stored matrix.
struct ResidentSolver<'a> {
    problem: &'a KernelProblem<'a>,
    gram: &'a StoredGram,
    control: &'a Control,
    scratch: &'a mut Scratch,
    state: DualState,
    /// β when all variables were last active, and the gradient of all variables there.
    full_beta: Vec<f64>,
    full_gradient: Vec<f64>,
    /// While variables are shrunk.
    short: Option<ShortRows>,
    steps: u64,
    newton: Newton<f64>,
    /// The polish is tried from this step on, where the violation is at most `polish_below`.
    polish_from_step: u64,
    polish_below: f64,
}

impl ResidentSolver<'_> {
    /// The gradient of all variables, given K·β.
    fn gradient(&self, scores: &[f64]) -> Vec<f64> {
        let state = &self.state;
        (0..scores.len()).map(|i| scores[i] + state.terms[i].p + state.terms[i].d * state.beta[i]).collect()
    }

    /// K·β of all rows; all variables must be active.
    fn scores(&self) -> Vec<f64> {
        let mut f = vec![0.0; self.problem.len()];
        for (a, &i) in self.state.active.iter().enumerate() {
            let (i, t) = (i as usize, &self.state.terms[i as usize]);
            f[i] = self.state.g[a] - t.p - t.d * self.state.beta[i];
        }
        f
    }

    /// Pair steps until the violation of all variables is at most `goal`; all are active afterwards.
    fn run(&mut self, goal: f64, step_limit: u64) -> ResidentEnd {
        let shrink_interval = 1000.min(self.problem.len() as u64).max(100);
        let mut next_shrink = self.steps + shrink_interval;
        let mut all_checked = false;
        let mut extremes = self.state.extremes();
        let fixed = self.state.terms.iter().filter(|t| t.lo == t.hi).count();
        if FIXED_SHARE * fixed >= self.problem.len() {
            self.shrink(&mut extremes);
        }
        loop {
            let violation = self.state.violation(&extremes);
            let shrunk = self.short.is_some();
            // Near the end, shrunk variables are checked once before the last digits are computed.
            if violation <= if shrunk && !all_checked { 10.0 * goal } else { goal } {
                if !shrunk {
                    return ResidentEnd::Reached;
                }
                all_checked = true;
                self.reactivate_all();
                extremes = self.state.extremes();
                if self.state.violation(&extremes) <= goal {
                    return ResidentEnd::Reached;
                }
                self.shrink(&mut extremes);
                next_shrink = self.steps + shrink_interval;
                continue;
            }
            if self.steps >= self.polish_from_step && violation <= self.polish_below {
                self.reactivate_all();
                if let Some(end) = self.polish(goal) {
                    return end;
                }
                extremes = self.state.extremes();
                self.shrink(&mut extremes);
                next_shrink = self.steps + shrink_interval;
                continue;
            }
            if self.steps >= step_limit {
                self.reactivate_all();
                return ResidentEnd::Slow;
            }
            if self.steps % POLL_INTERVAL == POLL_INTERVAL - 1
                && let Err(why) = self.control.check()
            {
                self.reactivate_all();
                return ResidentEnd::Stopped(why.into());
            }
            if self.steps >= next_shrink {
                next_shrink = self.steps + shrink_interval;
                self.shrink(&mut extremes);
            }
            self.steps += 1;
            if !self.step(&mut extremes) {
                if self.short.is_none() {
                    // Nothing moves in this arithmetic.
                    return if violation <= 10.0 * goal {
                        ResidentEnd::Stopped(Status::Stalled)
                    } else {
                        ResidentEnd::Slow
                    };
                }
                self.reactivate_all();
                extremes = self.state.extremes();
            }
        }
    }

    /// Rounds of the Newton polish; all variables must be active. `Some`: the run has ended.
    fn polish(&mut self, goal: f64) -> Option<ResidentEnd> {
        let (n, state) = (self.problem.len(), &mut self.state);
        let before = state.violation(&state.extremes());
        let free = state.active.iter().filter(|&&i| state.is_free(i as usize)).count();
        let mut silent = Silent;
        let mut work = Workspace {
            problem: self.problem,
            gram: self.problem.gram,
            control: self.control,
            observer: &mut silent,
            full_rows: KernelRows::new(n, n, 0),
            columns: None,
            shrunk: None,
            bytes: 0,
            iterations: 0,
            iteration_limit: u64::MAX,
            shrinking: false,
            gradual_polish: true,
            sufficient_gap: None,
            last_report: 0.0,
            gradient_error: 0.0,
            entry_error: 0.0,
        };
        let ended = match free > MOST_FREE {
            true => PolishEnd::TooLarge,
            false => work.polish(state, &mut self.newton, goal, MOST_FREE),
        };
        // After a failure the active sets must improve first, and a factorisation must not cost more than the steps
        // between.
        self.polish_from_step = self.steps + (self.steps / 2).max(n as u64 / 2);
        match ended {
            PolishEnd::Reached => Some(ResidentEnd::Reached),
            PolishEnd::Stopped(status) => Some(ResidentEnd::Stopped(status)),
            PolishEnd::TooLarge => {
                self.polish_below = 0.3 * before;
                None
            }
            PolishEnd::Slow | PolishEnd::TooEarly => {
                let now = state.violation(&state.extremes());
                self.polish_below = 0.5 * self.polish_below.min(before).min(now);
                None
            }
        }
    }

    /// One step on the best pair, or on the steepest variable. `false`: nothing moved.
    fn step(&mut self, extremes: &mut [Extremes]) -> bool {
        let state = &mut self.state;
        let a = if state.paired { extremes[0].up_at } else { pairs::steepest(&extremes[0]) };
        let i = state.active[a] as usize;
        if let Some(short) = &mut self.short {
            short.ensure(&[i], self.gram);
        }
        if !state.paired {
            let row = self.short.as_ref().map_or_else(|| self.gram.row(i), |s| s.row(i));
            return pairs::move_one(state, extremes, row);
        }
        let own = self.short.as_ref().map_or_else(|| self.gram.row(i), |s| s.row(i));
        let Some(b) = pairs::partner(state, &extremes[0], 0, own) else { return false };
        let j = state.active[b] as usize;
        if let Some(short) = &mut self.short {
            short.ensure(&[j, i], self.gram);
        }
        let (own, other) = match &self.short {
            Some(short) => (short.row(i), short.row(j)),
            None => (self.gram.row(i), self.gram.row(j)),
        };
        pairs::move_pair(state, extremes, (a, b), own, other)
    }

    /// Deactivates variables that would stay where they are whichever of the present violators moved, if they are many.
    fn shrink(&mut self, extremes: &mut Vec<Extremes>) {
        let keep = unsettled(&self.state, extremes, 0.0);
        let now = self.state.active.len();
        if keep.len() * 5 > now * 4 || keep.is_empty() {
            return;
        }
        if self.short.is_none() {
            for (a, &i) in self.state.active.iter().enumerate() {
                self.full_gradient[i as usize] = self.state.g[a];
            }
            self.full_beta.clone_from(&self.state.beta);
        }
        self.state.keep(&keep);
        let mut rows = self.short.take().map_or_else(|| std::mem::take(&mut self.scratch.rows), |short| short.rows);
        rows.clear();
        self.short =
            Some(ShortRows { columns: self.state.active.clone(), place: vec![NONE; self.problem.len()], rows });
        *extremes = self.state.extremes();
    }

    /// Makes all variables active again.
    fn reactivate_all(&mut self) {
        let Some(short) = self.short.take() else { return };
        self.scratch.rows = short.rows;
        for i in 0..self.full_beta.len() {
            let by = self.state.beta[i] - self.full_beta[i];
            if by != 0.0 {
                sweep::add_row(&mut self.full_gradient, self.gram.row(i), by);
                self.full_gradient[i] += self.state.terms[i].d * by;
            }
        }
        self.full_beta.clone_from(&self.state.beta);
        self.state.activate((0..self.full_beta.len() as u32).collect(), self.full_gradient.clone());
    }
}

#[cfg(test)]
#[path = "resident_tests.rs"]
mod tests;
