//! Pair steps on a Gram matrix that lies in memory: for searches that train hundreds of machines on the same K.
//!
//! No entry is computed, and none copied before variables are set aside: rows are read where they are. Samples held out are
//! variables of cost 0, pinned to 0; their scores come with the solution, so that a fold is scored without a kernel entry.
//! A machine starts from another one whose scores are known, at the best of several guesses by the dual objective.
//!
//! Gradients are sums in double precision over the stored entries: up to the rounding of those sums the answer is exact
//! for the matrix as stored, and nothing has to be computed again before stopping. Once the sets have settled a
//! Newton polish ends it, in double precision because pairs crawl where K over the free variables is badly conditioned; where
//! even that does not help the ordinary solver takes over.

use super::Options;
use super::newton::Newton;
use super::pairs::{self, Work, restless};
use super::polish::Polished;
use super::rows::Rows;
use super::state::State;
use crate::control::{Control, Status};
use crate::error::Result;
use crate::gram::StoredGram;
use crate::linalg::sweep::{self, Extremes};
use crate::observe::Silent;
use crate::problem::KernelProblem;
use crate::solver::{Solution, Stop};

/// Steps between two looks at the clock.
const POLL: u64 = 512;
/// Bytes of shortened rows at most; beyond, they are made anew.
const SHORT: usize = 96 << 20;
/// Steps, in units of the samples, after which the ordinary solver takes over.
const PATIENCE: (u64, u64) = (40, 40_000);
/// The most free variables the polish factors: 23 MB.
const MOST_FREE: usize = 1500;
/// What is added to the diagonal of a factor, relative to K's: stored entries are rounded to single precision, and their
/// matrix may be indefinite by so much.
const JITTER: f64 = 1e-7;
/// Where more than one in so many variables cannot move, the others get rows of their own from the start.
const PINNED: usize = 3;
const NONE: u32 = u32::MAX;

/// Where to begin: guesses near a β whose scores are known.
#[derive(Debug, Clone, Default)]
pub struct Warm {
    /// Some β, one a variable.
    pub known: Vec<f64>,
    /// K·known.
    pub scores: Vec<f64>,
    /// Where to begin: each is clipped to the box and balanced, and the one of largest dual objective taken. A guess that differs
    /// from `known` in few places costs little.
    pub guesses: Vec<Vec<f64>>,
}

/// Memory that one training leaves to the next: fresh pages cost more than what is done with them.
#[derive(Debug, Default)]
pub struct Scratch {
    rows: Vec<f32>,
}

/// Solves the dual of `problem`, whose Gram is `gram`: one variable a row, and at most one sum fixed. The scores of the
/// solution are those of all rows.
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
    let (state, scores) = begin(problem, gram, warm)?;
    let largest = state.kernel_diag.iter().fold(0.0f64, |most, k| most.max(k.abs()));
    let mut solver = Solver {
        problem,
        gram,
        control,
        scratch,
        newton: Newton::with_jitter(problem.len(), JITTER * largest),
        all: Vec::new(),
        at: Vec::new(),
        short: None,
        steps: 0,
        polish_at: problem.len() as u64 / 2,
        polish_below: first_try(&state),
        state,
    };
    solver.all = solver.gradient(&scores);
    solver.at = solver.state.beta.clone();
    solver.state.activate((0..problem.len() as u32).collect(), solver.all.clone());
    let mut goal = stop.tol.unwrap_or(1e-3);
    let limit = PATIENCE.0 * problem.len() as u64 + PATIENCE.1;
    loop {
        let status = match solver.run(goal, limit) {
            End::Reached => Status::Optimal,
            End::Stopped(status) => status,
            End::Crawling => {
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
        let Solver { state, steps, .. } = solver;
        return Ok(Solution { beta: state.beta, bias, scores: Some(scores), status, iterations: steps, violation });
    }
}

/// The best of the guesses, or zero, and K·β there.
fn begin(problem: &KernelProblem<'_>, gram: &StoredGram, warm: &[Warm]) -> Result<(State, Vec<f64>)> {
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
    let mut best: Option<(f64, State, Vec<f64>)> = None;
    for warm in warm.iter().filter(|w| w.known.len() == n && w.scores.len() == n) {
        for guess in &warm.guesses {
            let state = State::new(problem, Some(guess))?;
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
    let state = State::new(problem, None)?;
    let zero = vec![0.0; n];
    let f = from(&zero, &zero, &state.beta);
    Ok((state, f))
}

/// The violation at which the polish is tried first, from that of β = 0; for regression it must come near the tube, too.
fn first_try(state: &State) -> f64 {
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

enum End {
    Reached,
    Crawling,
    Stopped(Status),
}

/// Rows over the active variables alone.
struct Short {
    /// Rows of K of the active variables.
    columns: Vec<u32>,
    /// Where the row of a variable is, or NONE.
    place: Vec<u32>,
    rows: Vec<f32>,
}

impl Short {
    fn room(&mut self, wanted: &[usize], gram: &StoredGram) {
        let width = self.columns.len();
        if (self.rows.len() + 2 * width) * size_of::<f32>() > SHORT.max(8 * width) {
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

struct Solver<'a> {
    problem: &'a KernelProblem<'a>,
    gram: &'a StoredGram,
    control: &'a Control,
    scratch: &'a mut Scratch,
    state: State,
    /// The gradient of all variables at the β of `at`.
    all: Vec<f64>,
    at: Vec<f64>,
    /// While variables are set aside.
    short: Option<Short>,
    steps: u64,
    newton: Newton<f64>,
    /// The polish is tried from so many steps on, where the violation is at most `polish_below`.
    polish_at: u64,
    polish_below: f64,
}

impl Solver<'_> {
    fn gradient(&self, scores: &[f64]) -> Vec<f64> {
        let state = &self.state;
        (0..scores.len()).map(|i| scores[i] + state.terms[i].p + state.terms[i].d * state.beta[i]).collect()
    }

    /// K·β of all rows; everybody must be active.
    fn scores(&self) -> Vec<f64> {
        let mut f = vec![0.0; self.problem.len()];
        for (a, &i) in self.state.active.iter().enumerate() {
            let (i, t) = (i as usize, &self.state.terms[i as usize]);
            f[i] = self.state.g[a] - t.p - t.d * self.state.beta[i];
        }
        f
    }

    /// Pair steps until the violation of all variables is at most `goal`; all are active afterwards.
    fn run(&mut self, goal: f64, limit: u64) -> End {
        let every = 1000.min(self.problem.len() as u64).max(100);
        let mut next = self.steps + every;
        let mut near = false;
        let mut extremes = self.state.extremes();
        let pinned = self.state.terms.iter().filter(|t| t.lo == t.hi).count();
        if PINNED * pinned >= self.problem.len() {
            self.set_aside(&mut extremes);
        }
        loop {
            let violation = self.state.violation(&extremes);
            let aside = self.short.is_some();
            // Near the end, those set aside are looked at once before the last digits are computed.
            if violation <= if aside && !near { 10.0 * goal } else { goal } {
                if !aside {
                    return End::Reached;
                }
                near = true;
                self.take_back();
                extremes = self.state.extremes();
                if self.state.violation(&extremes) <= goal {
                    return End::Reached;
                }
                self.set_aside(&mut extremes);
                next = self.steps + every;
                continue;
            }
            if self.steps >= self.polish_at && violation <= self.polish_below {
                self.take_back();
                if let Some(end) = self.polish(goal) {
                    return end;
                }
                extremes = self.state.extremes();
                self.set_aside(&mut extremes);
                next = self.steps + every;
                continue;
            }
            if self.steps >= limit {
                self.take_back();
                return End::Crawling;
            }
            if self.steps % POLL == POLL - 1
                && let Err(why) = self.control.check()
            {
                self.take_back();
                return End::Stopped(why.into());
            }
            if self.steps >= next {
                next = self.steps + every;
                self.set_aside(&mut extremes);
            }
            self.steps += 1;
            if !self.step(&mut extremes) {
                if self.short.is_none() {
                    // Nothing moves in this arithmetic.
                    return if violation <= 10.0 * goal { End::Stopped(Status::Stalled) } else { End::Crawling };
                }
                self.take_back();
                extremes = self.state.extremes();
            }
        }
    }

    /// Rounds of the Newton polish; everybody must be active. `Some`: that was the end.
    fn polish(&mut self, goal: f64) -> Option<End> {
        let (n, state) = (self.problem.len(), &mut self.state);
        let before = state.violation(&state.extremes());
        let free = state.active.iter().filter(|&&i| state.is_free(i as usize)).count();
        let mut silent = Silent;
        let mut work = Work {
            problem: self.problem,
            gram: self.problem.gram,
            control: self.control,
            observer: &mut silent,
            full: Rows::new(n, n, 0),
            columns: None,
            shrunk: None,
            bytes: 0,
            iterations: 0,
            limit: u64::MAX,
            shrinking: false,
            patient: true,
            enough: None,
            last_report: 0.0,
            drift: 0.0,
            entry_error: 0.0,
        };
        let ended = match free > MOST_FREE {
            true => Polished::TooLarge,
            false => work.polish(state, &mut self.newton, goal, MOST_FREE),
        };
        // After a failure the sets must have settled further, and a factorisation must not cost more than the steps between.
        self.polish_at = self.steps + (self.steps / 2).max(n as u64 / 2);
        match ended {
            Polished::Reached => Some(End::Reached),
            Polished::Stopped(status) => Some(End::Stopped(status)),
            Polished::TooLarge => {
                self.polish_below = 0.3 * before;
                None
            }
            Polished::Slow => {
                let now = state.violation(&state.extremes());
                self.polish_below = 0.5 * self.polish_below.min(before).min(now);
                None
            }
        }
    }

    fn step(&mut self, extremes: &mut [Extremes]) -> bool {
        let state = &mut self.state;
        let a = if state.paired { extremes[0].up_at } else { pairs::steepest(&extremes[0]) };
        let i = state.active[a] as usize;
        if let Some(short) = &mut self.short {
            short.room(&[i], self.gram);
        }
        if !state.paired {
            let row = self.short.as_ref().map_or_else(|| self.gram.row(i), |s| s.row(i));
            return pairs::move_one(state, extremes, row);
        }
        let own = self.short.as_ref().map_or_else(|| self.gram.row(i), |s| s.row(i));
        let Some(b) = pairs::partner(state, &extremes[0], 0, own) else { return false };
        let j = state.active[b] as usize;
        if let Some(short) = &mut self.short {
            short.room(&[j, i], self.gram);
        }
        let (own, other) = match &self.short {
            Some(short) => (short.row(i), short.row(j)),
            None => (self.gram.row(i), self.gram.row(j)),
        };
        pairs::move_pair(state, extremes, (a, b), own, other)
    }

    /// Sets variables aside that would stay where they are whichever of the present violators moved, if they are many.
    fn set_aside(&mut self, extremes: &mut Vec<Extremes>) {
        let keep = restless(&self.state, extremes, 0.0);
        let now = self.state.active.len();
        if keep.len() * 5 > now * 4 || keep.is_empty() {
            return;
        }
        if self.short.is_none() {
            for (a, &i) in self.state.active.iter().enumerate() {
                self.all[i as usize] = self.state.g[a];
            }
            self.at.clone_from(&self.state.beta);
        }
        self.state.keep(&keep);
        let mut rows = self.short.take().map_or_else(|| std::mem::take(&mut self.scratch.rows), |short| short.rows);
        rows.clear();
        self.short = Some(Short { columns: self.state.active.clone(), place: vec![NONE; self.problem.len()], rows });
        *extremes = self.state.extremes();
    }

    /// Takes all variables into work again.
    fn take_back(&mut self) {
        let Some(short) = self.short.take() else { return };
        self.scratch.rows = short.rows;
        for i in 0..self.at.len() {
            let by = self.state.beta[i] - self.at[i];
            if by != 0.0 {
                sweep::add_row(&mut self.all, self.gram.row(i), by);
                self.all[i] += self.state.terms[i].d * by;
            }
        }
        self.at.clone_from(&self.state.beta);
        self.state.activate((0..self.at.len() as u32).collect(), self.all.clone());
    }
}

#[cfg(test)]
#[path = "resident_tests.rs"]
mod tests;
