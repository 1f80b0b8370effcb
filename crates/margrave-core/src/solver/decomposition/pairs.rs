//! Pair steps: the worst variable, its best partner, the exact step, the update; and shrinking.
//!
//! A step costs two passes over the active variables. Rows that are missing are fetched sixteen at a time together with
//! those of other violators, which will most likely be wanted next.

use std::ops::ControlFlow;

use super::rows::{Rows, Stored};
use super::state::State;
use super::step;
use crate::control::{Control, Interrupt, Status};
use crate::gram::{Gram, Pick};
use crate::linalg::sweep::{self, Extremes};
use crate::observe::{Observer, Step};
use crate::problem::KernelProblem;

/// Why the pair steps ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum End {
    /// The violation of the active variables is at most what was asked.
    Reached,
    /// No pair moves any more although the violation is larger.
    Stuck,
    /// Many steps brought the violation down by little.
    Crawling,
    /// A budget ran out or somebody asked to stop.
    Stopped(Status),
}

/// What the solver works with: the problem, rows, counters, and whom to tell.
pub(super) struct Work<'a, 'o, T> {
    pub(super) problem: &'a KernelProblem<'a>,
    /// K as the solver works with it: the problem's own, or a rougher and faster one.
    pub(super) gram: &'a dyn Gram,
    pub(super) control: &'a Control,
    pub(super) observer: &'o mut dyn Observer,
    /// Rows over all variables.
    pub(super) full: Rows<T>,
    /// Rows of K of all variables, when they are not simply all rows in order.
    pub(super) columns: Option<Vec<u32>>,
    /// While variables are set aside: rows over the active ones.
    pub(super) shrunk: Option<Shrunk<'a, T>>,
    pub(super) bytes: u64,
    pub(super) iterations: u64,
    pub(super) limit: u64,
    pub(super) shrinking: bool,
    /// Whether the polish goes on where many variables leave their pieces: entries are at hand and factors small.
    pub(super) patient: bool,
    /// The relative gap that is enough by itself, where no violation is asked for.
    pub(super) enough: Option<f64>,
    pub(super) last_report: f64,
    /// How far the gradient may be from that of the exact K, at most.
    pub(super) drift: f64,
    /// The error of an entry of K, at most.
    pub(super) entry_error: f64,
}

/// Rows over the active variables only, and what is needed to come back from there.
pub(super) struct Shrunk<'a, T> {
    rows: Rows<T>,
    /// Positions of the active variables among all.
    pub(super) positions: Vec<u32>,
    /// Rows of K of the active variables.
    numbers: Vec<u32>,
    /// K over the active variables, where the Gram offers it.
    part: Option<Box<dyn Gram + 'a>>,
    /// β and gradient of all variables when the first were set aside, by variable.
    beta: Vec<f64>,
    gradient: Vec<f64>,
    /// Position of each variable among the active ones, or NONE.
    place: Vec<u32>,
}

/// Seconds between two reports to the observer.
const REPORT: f64 = 0.04;
const NONE: u32 = u32::MAX;
/// Curvature below which a pair counts as flat, relative to its diagonal.
const FLAT: f64 = 1e-12;
/// β beyond this is never wanted: an indefinite kernel and a loss without bounds have no minimum. Products with K stay finite.
const HUGE: f64 = 1e100;

/// Multiply–adds of a pair step over `m` variables: choosing, and moving.
pub(super) fn work_of(m: usize) -> usize {
    2 * m + 800
}

impl<T: Stored> Work<'_, '_, T> {
    /// The row of a variable over the active ones; it must be here.
    fn row(&self, i: usize) -> &[T] {
        self.store().get(i)
    }

    fn store(&self) -> &Rows<T> {
        self.shrunk.as_ref().map_or(&self.full, |s| &s.rows)
    }

    fn has(&self, i: usize) -> bool {
        self.store().has(i)
    }

    /// Whether the gap, as far as working precision can tell, is well within what is asked for and nothing else is.
    pub(super) fn is_enough(&self, state: &State) -> bool {
        let Some(wanted) = self.enough else { return false };
        if state.active.len() < self.problem.len() {
            return false;
        }
        let mut score = vec![0.0; self.problem.len()];
        for (a, &i) in state.active.iter().enumerate() {
            let (i, t) = (i as usize, &state.terms[i as usize]);
            score[i] = state.g[a] - t.p - t.d * state.beta[i];
        }
        state.gap(self.problem, |i| score[i]).relative() <= 0.7 * wanted
    }

    /// Makes sure the rows of `variables`, which are not here, are.
    pub(super) fn fetch(&mut self, variables: &[u32]) -> Result<(), Interrupt> {
        let problem = self.problem;
        let row_of = |v: u32| problem.row(v as usize) as u32;
        match &mut self.shrunk {
            None => {
                let cols = self.columns.as_deref().map_or(Pick::All, Pick::List);
                self.full.fetch(self.gram, variables, row_of, cols, self.control)
            }
            Some(Shrunk { rows, part: Some(part), place, .. }) => {
                rows.fetch(&**part, variables, |v| place[v as usize], Pick::All, self.control)
            }
            Some(Shrunk { rows, numbers, .. }) => {
                rows.fetch(self.gram, variables, row_of, Pick::List(numbers), self.control)
            }
        }
    }

    /// The row of the variable at position `a`, fetched with likely successors if missing.
    fn need(&mut self, state: &State, a: usize, also: Option<usize>, extremes: &[Extremes]) -> Result<(), Interrupt> {
        let wanted = state.active[a];
        if !self.has(wanted as usize) {
            if let Some(s) = &mut self.shrunk
                && self.full.has(wanted as usize)
            {
                s.rows.gather(wanted, self.full.get(wanted as usize), &s.positions);
            } else {
                let mut batch = vec![wanted];
                let extra = self.store().ahead().min(self.store().capacity() / 4);
                if extra > 0 {
                    batch.extend(self.likely(state, extremes, extra, wanted, also.map(|b| state.active[b])));
                }
                self.fetch(&batch)?;
            }
        }
        match &mut self.shrunk {
            Some(s) => s.rows.touch(wanted as usize),
            None => self.full.touch(wanted as usize),
        }
        Ok(())
    }

    /// The `count` most violating variables without a row.
    fn likely(&self, state: &State, extremes: &[Extremes], count: usize, wanted: u32, also: Option<u32>) -> Vec<u32> {
        let mut found: Vec<(f64, u32)> = Vec::with_capacity(4 * count);
        let (mut least, mut room) = (0.0, 2 * count);
        for (&(from, to), e) in state.ranges.iter().zip(extremes) {
            let (up, down) = if state.paired { (e.up, e.down) } else { (e.up.min(0.0), e.down.max(0.0)) };
            if !(up.is_finite() && down.is_finite()) {
                continue;
            }
            let middle = if state.paired { 0.5 * (up + down) } else { 0.0 };
            for a in from..to {
                let pull = (middle - state.g[a] - state.up[a]).max(state.g[a] + state.down[a] - middle);
                if pull <= least {
                    continue;
                }
                let i = state.active[a];
                if i == wanted || Some(i) == also || self.has(i as usize) {
                    continue;
                }
                found.push((pull, i));
                if found.len() >= room {
                    // Keep the best `count` so far; from now on only better ones are of interest.
                    found.select_nth_unstable_by(count - 1, |x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
                    found.truncate(count);
                    least = found[count - 1].0;
                    room = 4 * count;
                }
            }
        }
        found.sort_unstable_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
        let mut chosen: Vec<u32> = found.into_iter().take(count).map(|f| f.1).collect();
        if let Some(i) = also
            && !self.has(i as usize)
            && i != wanted
        {
            chosen.truncate(count - 1);
            chosen.push(i);
        }
        chosen
    }

    /// Tells the observer where we are, at most every [`REPORT`] seconds; `Err` when somebody wants to stop.
    pub(super) fn report(
        &mut self,
        state: &State,
        phase: &'static str,
        violation: f64,
        now: bool,
    ) -> Result<(), Status> {
        self.control.note(Some(violation), None);
        self.control.check().map_err(Status::from)?;
        let seconds = self.control.seconds();
        if !now && seconds - self.last_report < REPORT {
            return Ok(());
        }
        self.last_report = seconds;
        let step = Step {
            iteration: self.iterations,
            seconds,
            phase,
            violation: Some(violation),
            active: Some(state.active.len()),
            kernel_entries: Some(self.problem.gram.entries()),
            ..Step::default()
        };
        match self.observer.step(&step) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Status::Interrupted),
        }
    }

    /// Pair steps until the violation of the active variables is at most `until`.
    pub(super) fn pairs(&mut self, state: &mut State, until: f64) -> End {
        // The rounding of so many small steps is not followed.
        self.drift = f64::INFINITY;
        let mut extremes = state.extremes();
        let mut still = 0u32;
        let patience = 4 * state.terms.len() as u64 + 2000;
        let (mut milestone, mut milestone_at) = (f64::INFINITY, self.iterations);
        let mut next_shrink = self.iterations + 1000.min(state.terms.len() as u64).max(100);
        loop {
            let violation = state.violation(&extremes);
            if violation <= until {
                return End::Reached;
            }
            if violation < 0.5 * milestone {
                (milestone, milestone_at) = (violation, self.iterations);
            } else if self.iterations - milestone_at > patience {
                return End::Crawling;
            }
            if self.iterations >= self.limit {
                return End::Stopped(Status::IterationLimit);
            }
            if let Err(status) = self.report(state, "smo", violation, false) {
                return End::Stopped(status);
            }
            if self.shrinking && self.iterations >= next_shrink {
                next_shrink = self.iterations + 1000.min(state.terms.len() as u64).max(100);
                if self.shrink(state, &extremes) {
                    extremes = state.extremes();
                    continue;
                }
            }
            let moved = if state.paired { self.pair(state, &mut extremes) } else { self.single(state, &mut extremes) };
            match moved {
                Ok(true) => still = 0,
                Ok(false) => {
                    still += 1;
                    if still > 3 {
                        return End::Stuck;
                    }
                    extremes = state.extremes();
                }
                Err(why) => return End::Stopped(why.into()),
            }
            self.control.spend(work_of(state.active.len()));
            self.iterations += 1;
        }
    }

    /// One step on the pair that promises most in the group with the largest violation. `false`: nothing moved.
    fn pair(&mut self, state: &mut State, extremes: &mut [Extremes]) -> Result<bool, Interrupt> {
        let group = worst_group(extremes);
        let a = extremes[group].up_at;
        self.need(state, a, Some(extremes[group].down_at), extremes)?;
        let i = state.active[a] as usize;
        let Some(b) = partner(state, &extremes[group], group, self.row(i)) else { return Ok(false) };
        self.need(state, b, None, extremes)?;
        if !self.has(i) {
            // A small store may have dropped the first row to make room for the second.
            self.fetch(&[i as u32])?;
        }
        let j = state.active[b] as usize;
        Ok(move_pair(state, extremes, (a, b), self.row(i), self.row(j)))
    }

    /// Without a bias: one step on the steepest single variable.
    fn single(&mut self, state: &mut State, extremes: &mut [Extremes]) -> Result<bool, Interrupt> {
        let a = steepest(&extremes[0]);
        self.need(state, a, None, extremes)?;
        let row = self.row(state.active[a] as usize);
        Ok(move_one(state, extremes, row))
    }

    /// Sets variables aside that are at a bound (or at zero inside the tube) and would stay there whichever of the present
    /// violators moved. `true` if any were. Only when a fifth or more go: compacting rows costs time.
    fn shrink(&mut self, state: &mut State, extremes: &[Extremes]) -> bool {
        let keep = restless(state, extremes, 0.0);
        if keep.len() * 5 > state.active.len() * 4 {
            return false;
        }
        self.set_aside(state, &keep, true);
        true
    }

    /// Sets aside, without rows of their own for the others, what is farther than `margin` from having a reason to move.
    pub(super) fn narrow(&mut self, state: &mut State, margin: f64) {
        if !self.shrinking {
            return;
        }
        let keep = restless(state, &state.extremes(), margin);
        if keep.len() * 5 <= state.active.len() * 4 {
            self.set_aside(state, &keep, false);
        }
    }

    /// Leaves only the given positions active. `rows`: pair steps follow, which keep rows over the active ones.
    fn set_aside(&mut self, state: &mut State, keep: &[u32], rows: bool) {
        let n = state.terms.len();
        let active: Vec<u32> = keep.iter().map(|&a| state.active[a as usize]).collect();
        let before = self.shrunk.take();
        let (beta, gradient, all) = match before {
            // The first shrinking remembers where everything stood.
            None => {
                let mut gradient = vec![0.0; n];
                let mut all = vec![NONE; n];
                for (a, &i) in state.active.iter().enumerate() {
                    gradient[i as usize] = state.g[a];
                    all[i as usize] = a as u32;
                }
                (state.beta.clone(), gradient, all)
            }
            Some(Shrunk { beta, gradient, positions, place, .. }) => {
                let all = place.iter().map(|&p| if p == NONE { NONE } else { positions[p as usize] }).collect();
                (beta, gradient, all)
            }
        };
        state.keep(keep);
        let positions: Vec<u32> = state.active.iter().map(|&i| all[i as usize]).collect();
        let numbers: Vec<u32> = state.active.iter().map(|&i| self.problem.row(i as usize) as u32).collect();
        let mut place = vec![NONE; n];
        state.active.iter().enumerate().for_each(|(a, &i)| place[i as usize] = a as u32);
        let distinct = self.problem.row_of.is_none();
        let part = if distinct && rows { self.gram.select(&numbers) } else { None };
        if !rows {
            self.shrunk = Some(Shrunk { rows: Rows::new(n, 1, 0), positions, numbers, part, beta, gradient, place });
            return;
        }
        // A full store that had to drop rows, or takes half the memory, makes way for the shorter rows.
        if !self.full.has_room() || self.full.bytes() > self.bytes / 2 {
            self.full = Rows::new(n, n, self.bytes);
        }
        let rows = Rows::new(n, active.len(), self.bytes - self.full.bytes());
        self.shrunk = Some(Shrunk { rows, positions, numbers, part, beta, gradient, place });
    }

    /// Takes all variables into work again: those set aside get the gradient they had, plus what moved since.
    pub(super) fn take_back(&mut self, state: &mut State) -> Result<(), Interrupt> {
        let Some(shrunk) = self.shrunk.take() else { return Ok(()) };
        let n = state.terms.len();
        let mut changed: Vec<u32> = Vec::new();
        let mut delta: Vec<f64> = Vec::new();
        for i in 0..n {
            if state.beta[i] != shrunk.beta[i] {
                changed.push(i as u32);
                delta.push(state.beta[i] - shrunk.beta[i]);
            }
        }
        let mut gradient = shrunk.gradient;
        for (&i, &d) in changed.iter().zip(&delta) {
            gradient[i as usize] += state.terms[i as usize].d * d;
        }
        state.activate((0..n as u32).collect(), gradient);
        let moved = self.product(state, &changed, &delta)?;
        sweep::add_row(&mut state.g, &moved, 1.0);
        Ok(())
    }
}

/// Positions of the variables that are free, or come within `margin` of having a reason to move.
pub(super) fn restless(state: &State, extremes: &[Extremes], margin: f64) -> Vec<u32> {
    let mut keep: Vec<u32> = Vec::with_capacity(state.active.len());
    for (&(from, to), e) in state.ranges.iter().zip(extremes) {
        let (least, most) = if state.paired { (e.up - margin, e.down + margin) } else { (-margin, margin) };
        for a in from..to {
            // Slopes on both sides point away from moving, beyond every present violator.
            let rests = state.g[a] + state.up[a] > most && state.g[a] + state.down[a] < least;
            if !rests || state.is_free(state.active[a] as usize) {
                keep.push(a as u32);
            }
        }
    }
    keep
}

/// The group with the largest violation.
pub(super) fn worst_group(extremes: &[Extremes]) -> usize {
    (0..extremes.len())
        .max_by(|&x, &y| extremes[x].violation().total_cmp(&extremes[y].violation()).then(y.cmp(&x)))
        .expect("at least one group")
}

/// The position of the partner with which the variable that most wants to grow gains most, by second order. `row` is the
/// grower's, over the active variables.
pub(super) fn partner<T: Stored>(state: &State, e: &Extremes, group: usize, row: &[T]) -> Option<usize> {
    let (from, to) = state.ranges[group];
    let own = state.diag[e.up_at];
    sweep::best_partner(
        &state.g[from..to],
        &state.down[from..to],
        &row[from..to],
        &state.diag[from..to],
        own,
        e.up,
        (f64::from(own).abs() * 1e-6 + f64::from(f32::MIN_POSITIVE)) as f32,
    )
    .map(|b| b + from)
}

/// Moves the variable at position a up and the one at b down to the minimum along their line; gradient and extremes
/// follow. `false`: nothing moved.
pub(super) fn move_pair<T: Stored>(
    state: &mut State,
    extremes: &mut [Extremes],
    (a, b): (usize, usize),
    row_i: &[T],
    row_j: &[T],
) -> bool {
    let (i, j) = (state.active[a] as usize, state.active[b] as usize);
    let (ti, tj) = (state.terms[i], state.terms[j]);
    let cross = row_i[b].wide();
    let scale = state.kernel_diag[i].abs() + state.kernel_diag[j].abs() + ti.d + tj.d;
    let kappa = state.kernel_diag[i] + state.kernel_diag[j] - 2.0 * cross + ti.d + tj.d;
    let slope = state.g[a] + state.up[a] - (state.g[b] + state.down[b]);
    let kappa = if kappa <= FLAT * scale { 0.0 } else { kappa };
    let mut t = step::length(slope, kappa, (state.beta[i], &ti), Some((state.beta[j], &tj)));
    if t == f64::INFINITY {
        // Flat and unbounded in this precision: move as if the curvature were the smallest we can tell from zero.
        t = -slope / (FLAT * scale).max(f64::MIN_POSITIVE);
    }
    let (old_i, old_j) = (state.beta[i], state.beta[j]);
    if !(t > 0.0 && (old_i + t).abs() < HUGE && (old_j - t).abs() < HUGE) {
        return false;
    }
    state.beta[i] = settle(old_i + t, old_i, &ti);
    state.beta[j] = settle(old_j - t, old_j, &tj);
    let (di, dj) = (state.beta[i] - old_i, state.beta[j] - old_j);
    if di == 0.0 && dj == 0.0 {
        return false;
    }
    state.refresh(a);
    state.refresh(b);
    state.g[a] += ti.d * di;
    state.g[b] += tj.d * dj;
    for (k, &(from, to)) in state.ranges.iter().enumerate() {
        let mut e = sweep::update_pair(
            &mut state.g[from..to],
            &row_i[from..to],
            di,
            &row_j[from..to],
            dj,
            &state.up[from..to],
            &state.down[from..to],
        );
        e.up_at += from;
        e.down_at += from;
        extremes[k] = e;
    }
    true
}

/// The position of the variable with the steepest slope of its own.
pub(super) fn steepest(e: &Extremes) -> usize {
    if -e.up >= e.down { e.up_at } else { e.down_at }
}

/// Moves the steepest variable alone to its minimum. `false`: nothing moved.
pub(super) fn move_one<T: Stored>(state: &mut State, extremes: &mut [Extremes], row: &[T]) -> bool {
    let e = extremes[0];
    let a = steepest(&e);
    let i = state.active[a] as usize;
    let term = state.terms[i];
    let kappa = state.kernel_diag[i] + term.d;
    let kappa = if kappa <= FLAT * (state.kernel_diag[i].abs() + term.d) { 0.0 } else { kappa };
    let old = state.beta[i];
    let t = if -e.up >= e.down {
        step::length(e.up, kappa, (old, &term), None)
    } else {
        // Falling is growing in the mirror.
        let mirror = crate::loss::DualTerm { lo: -term.hi, hi: -term.lo, ..term };
        -step::length(-e.down, kappa, (-old, &mirror), None)
    };
    let t = if (old + t).abs() < HUGE { t } else { 0.0 };
    state.beta[i] = settle(old + t, old, &term);
    let delta = state.beta[i] - old;
    if delta == 0.0 {
        return false;
    }
    state.refresh(a);
    state.g[a] += term.d * delta;
    let (from, to) = state.ranges[0];
    let mut e = sweep::update_pair(
        &mut state.g[from..to],
        &row[from..to],
        delta,
        &row[from..to],
        0.0,
        &state.up[from..to],
        &state.down[from..to],
    );
    e.up_at += from;
    e.down_at += from;
    extremes[0] = e;
    true
}

/// Rounding must not leave a β a hair from its bound or its kink.
fn settle(to: f64, from: f64, term: &crate::loss::DualTerm) -> f64 {
    let near = |x: f64| (to - x).abs() <= 4.0 * f64::EPSILON * from.abs().max(to.abs()).max(x.abs());
    if term.hi.is_finite() && (to >= term.hi || near(term.hi)) {
        term.hi
    } else if term.lo.is_finite() && (to <= term.lo || near(term.lo)) {
        term.lo
    } else if near(0.0) {
        0.0
    } else {
        to
    }
}
