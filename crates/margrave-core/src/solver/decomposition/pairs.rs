//! Pair steps: the worst variable, its best partner, the exact step, the update.
//!
//! A step costs two passes over the active variables. Missing rows are fetched sixteen at a time, together with those
//! of other violators, which will most likely be needed next.

use super::rows::{KernelRows, StoredEntry};
use super::shrinking::Shrunk;
use super::state::DualState;
use super::step;
use super::workspace::Workspace;
use crate::control::{Interrupt, Status};
use crate::gram::Pick;
use crate::linalg::sweep::{self, Extremes};

/// Why pair steps ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StepsEnd {
    /// The violation of the active variables is at most the one to reach.
    Reached,
    /// No pair moves any more, although the violation is larger.
    Stuck,
    /// Many steps lowered the violation by little.
    Slow,
    /// A budget ran out, or the observer stopped the run.
    Stopped(Status),
}

/// Curvature below which a pair counts as flat, relative to its diagonal.
const FLAT_CURVATURE: f64 = 1e-12;
/// Largest |β|: an indefinite kernel and a loss without bounds have no minimum. Products with K stay finite.
const LARGEST_BETA: f64 = 1e100;

/// Multiply–adds of a pair step over `m` variables: selection and update.
pub(super) fn multiply_adds(m: usize) -> usize {
    2 * m + 800
}

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// The row of a variable over the active ones; it must be stored.
    fn row(&self, i: usize) -> &[T] {
        self.store().get(i)
    }

    /// The rows over the active variables.
    fn store(&self) -> &KernelRows<T> {
        self.shrunk.as_ref().map_or(&self.full_rows, |s| &s.rows)
    }

    fn has(&self, i: usize) -> bool {
        self.store().has(i)
    }

    /// Computes the rows of `variables`, which are not stored.
    pub(super) fn fetch(&mut self, variables: &[u32]) -> Result<(), Interrupt> {
        let problem = self.problem;
        let row_of = |v: u32| problem.row(v as usize) as u32;
        match &mut self.shrunk {
            None => {
                let cols = self.columns.as_deref().map_or(Pick::All, Pick::List);
                self.full_rows.fetch(self.gram, variables, row_of, cols, self.control)
            }
            Some(Shrunk { rows, active_gram: Some(gram), place, .. }) => {
                rows.fetch(&**gram, variables, |v| place[v as usize], Pick::All, self.control)
            }
            Some(Shrunk { rows, numbers, .. }) => {
                rows.fetch(self.gram, variables, row_of, Pick::List(numbers), self.control)
            }
        }
    }

    /// Makes sure that the row of the variable at position `a` is stored; if missing, it is fetched with likely
    /// successors.
    fn ensure_row(
        &mut self,
        state: &DualState,
        a: usize,
        also: Option<usize>,
        extremes: &[Extremes],
    ) -> Result<(), Interrupt> {
        let wanted = state.active[a];
        if !self.has(wanted as usize) {
            if let Some(s) = &mut self.shrunk
                && self.full_rows.has(wanted as usize)
            {
                s.rows.gather(wanted, self.full_rows.get(wanted as usize), &s.positions);
            } else {
                let mut batch = vec![wanted];
                let extra = self.store().prefetch().min(self.store().capacity() / 4);
                if extra > 0 {
                    batch.extend(self.likely_next(state, extremes, extra, wanted, also.map(|b| state.active[b])));
                }
                self.fetch(&batch)?;
            }
        }
        match &mut self.shrunk {
            Some(s) => s.rows.touch(wanted as usize),
            None => self.full_rows.touch(wanted as usize),
        }
        Ok(())
    }

    /// The `count` most violating variables without a row.
    fn likely_next(
        &self,
        state: &DualState,
        extremes: &[Extremes],
        count: usize,
        wanted: u32,
        also: Option<u32>,
    ) -> Vec<u32> {
        let mut found: Vec<(f64, u32)> = Vec::with_capacity(4 * count);
        let (mut least, mut room) = (0.0, 2 * count);
        for (&(from, to), e) in state.ranges.iter().zip(extremes) {
            let (up, down) = if state.paired { (e.up, e.down) } else { (e.up.min(0.0), e.down.max(0.0)) };
            if !(up.is_finite() && down.is_finite()) {
                continue;
            }
            let middle = if state.paired { 0.5 * (up + down) } else { 0.0 };
            for a in from..to {
                let violation = (middle - state.g[a] - state.up[a]).max(state.g[a] + state.down[a] - middle);
                if violation <= least {
                    continue;
                }
                let i = state.active[a];
                if i == wanted || Some(i) == also || self.has(i as usize) {
                    continue;
                }
                found.push((violation, i));
                if found.len() >= room {
                    // Keep the worst `count` so far; from now on only worse ones matter.
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

    /// Pair steps until the violation of the active variables is at most `until`.
    pub(super) fn pairs(&mut self, state: &mut DualState, until: f64) -> StepsEnd {
        // The rounding of so many small steps is not bounded.
        self.gradient_error = f64::INFINITY;
        let mut extremes = state.extremes();
        let mut failures = 0u32;
        let slow_after = 4 * state.terms.len() as u64 + 2000;
        let (mut milestone, mut milestone_at) = (f64::INFINITY, self.iterations);
        let mut next_shrink = self.iterations + 1000.min(state.terms.len() as u64).max(100);
        loop {
            let violation = state.violation(&extremes);
            if violation <= until {
                return StepsEnd::Reached;
            }
            if violation < 0.5 * milestone {
                (milestone, milestone_at) = (violation, self.iterations);
            } else if self.iterations - milestone_at > slow_after {
                return StepsEnd::Slow;
            }
            if self.iterations >= self.iteration_limit {
                return StepsEnd::Stopped(Status::IterationLimit);
            }
            if let Err(status) = self.report(state, "smo", violation, false) {
                return StepsEnd::Stopped(status);
            }
            if self.shrinking && self.iterations >= next_shrink {
                next_shrink = self.iterations + 1000.min(state.terms.len() as u64).max(100);
                if self.shrink(state, &extremes) {
                    extremes = state.extremes();
                    continue;
                }
            }
            let moved = if state.paired {
                self.step_pair(state, &mut extremes)
            } else {
                self.step_single(state, &mut extremes)
            };
            match moved {
                Ok(true) => failures = 0,
                Ok(false) => {
                    failures += 1;
                    if failures > 3 {
                        return StepsEnd::Stuck;
                    }
                    extremes = state.extremes();
                }
                Err(why) => return StepsEnd::Stopped(why.into()),
            }
            self.control.spend(multiply_adds(state.active.len()));
            self.iterations += 1;
        }
    }

    /// One step on the pair with the largest second-order gain in the group with the largest violation. `false`:
    /// nothing moved.
    fn step_pair(&mut self, state: &mut DualState, extremes: &mut [Extremes]) -> Result<bool, Interrupt> {
        let group = worst_group(extremes);
        let a = extremes[group].up_at;
        self.ensure_row(state, a, Some(extremes[group].down_at), extremes)?;
        let i = state.active[a] as usize;
        let Some(b) = partner(state, &extremes[group], group, self.row(i)) else { return Ok(false) };
        self.ensure_row(state, b, None, extremes)?;
        if !self.has(i) {
            // A small store may have dropped the first row to make room for the second.
            self.fetch(&[i as u32])?;
        }
        let j = state.active[b] as usize;
        Ok(move_pair(state, extremes, (a, b), self.row(i), self.row(j)))
    }

    /// Without a bias: one step on the steepest single variable.
    fn step_single(&mut self, state: &mut DualState, extremes: &mut [Extremes]) -> Result<bool, Interrupt> {
        let a = steepest(&extremes[0]);
        self.ensure_row(state, a, None, extremes)?;
        let row = self.row(state.active[a] as usize);
        Ok(move_one(state, extremes, row))
    }
}

/// The group with the largest violation.
pub(super) fn worst_group(extremes: &[Extremes]) -> usize {
    (0..extremes.len())
        .max_by(|&x, &y| extremes[x].violation().total_cmp(&extremes[y].violation()).then(y.cmp(&x)))
        .expect("at least one group")
}

/// The position of the best partner, by second order, of the variable that violates most upwards. `row` is that
/// variable's row over the active ones.
pub(super) fn partner<T: StoredEntry>(state: &DualState, e: &Extremes, group: usize, row: &[T]) -> Option<usize> {
    let (from, to) = state.ranges[group];
    let own = state.diag[e.up_at];
    sweep::best_partner(
        &state.g[from..to],
        &state.down[from..to],
        &row[from..to],
        &state.diag[from..to],
        own,
        e.up,
        least_curvature(own),
    )
    .map(|b| b + from)
}

/// The curvature of a pair counts as at least this in the choice of a partner.
pub(super) fn least_curvature(own: f32) -> f32 {
    (f64::from(own).abs() * 1e-6 + f64::from(f32::MIN_POSITIVE)) as f32
}

/// Moves the variable at position a up and the one at b down to the minimum along their line; gradient and extremes
/// follow. `false`: nothing moved.
pub(super) fn move_pair<T: StoredEntry>(
    state: &mut DualState,
    extremes: &mut [Extremes],
    (a, b): (usize, usize),
    row_i: &[T],
    row_j: &[T],
) -> bool {
    let slope = state.g[a] + state.up[a] - (state.g[b] + state.down[b]);
    let Some((di, dj)) = step_along_pair(state, (a, b), slope, row_i[b].wide()) else { return false };
    state.g[a] += state.terms[state.active[a] as usize].d * di;
    state.g[b] += state.terms[state.active[b] as usize].d * dj;
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

/// Moves β of the variable at position a up and of the one at b down to the minimum along their line, of the given slope;
/// `cross` is the entry of K between them. Returns their changes, `None` if nothing moved; gradients are the caller's.
pub(super) fn step_along_pair(
    state: &mut DualState,
    (a, b): (usize, usize),
    slope: f64,
    cross: f64,
) -> Option<(f64, f64)> {
    let (i, j) = (state.active[a] as usize, state.active[b] as usize);
    let (ti, tj) = (state.terms[i], state.terms[j]);
    let scale = state.kernel_diag[i].abs() + state.kernel_diag[j].abs() + ti.d + tj.d;
    let kappa = state.kernel_diag[i] + state.kernel_diag[j] - 2.0 * cross + ti.d + tj.d;
    let kappa = if kappa <= FLAT_CURVATURE * scale { 0.0 } else { kappa };
    let mut t = step::length(slope, kappa, (state.beta[i], &ti), Some((state.beta[j], &tj)));
    if t == f64::INFINITY {
        // Flat and unbounded in this precision: move as if the curvature were the smallest that counts as positive.
        t = -slope / (FLAT_CURVATURE * scale).max(f64::MIN_POSITIVE);
    }
    let (old_i, old_j) = (state.beta[i], state.beta[j]);
    if !(t > 0.0 && (old_i + t).abs() < LARGEST_BETA && (old_j - t).abs() < LARGEST_BETA) {
        return None;
    }
    state.beta[i] = snap(old_i + t, old_i, &ti);
    state.beta[j] = snap(old_j - t, old_j, &tj);
    let (di, dj) = (state.beta[i] - old_i, state.beta[j] - old_j);
    if di == 0.0 && dj == 0.0 {
        return None;
    }
    state.refresh(a);
    state.refresh(b);
    Some((di, dj))
}

/// The position of the variable with the steepest slope.
pub(super) fn steepest(e: &Extremes) -> usize {
    if -e.up >= e.down { e.up_at } else { e.down_at }
}

/// Moves the steepest variable alone to its minimum. `false`: nothing moved.
pub(super) fn move_one<T: StoredEntry>(state: &mut DualState, extremes: &mut [Extremes], row: &[T]) -> bool {
    let e = extremes[0];
    let a = steepest(&e);
    let i = state.active[a] as usize;
    let term = state.terms[i];
    let kappa = state.kernel_diag[i] + term.d;
    let kappa = if kappa <= FLAT_CURVATURE * (state.kernel_diag[i].abs() + term.d) { 0.0 } else { kappa };
    let old = state.beta[i];
    let t = if -e.up >= e.down {
        step::length(e.up, kappa, (old, &term), None)
    } else {
        // A fall of β is a rise of −β.
        let mirror = crate::loss::DualTerm { lo: -term.hi, hi: -term.lo, ..term };
        -step::length(-e.down, kappa, (-old, &mirror), None)
    };
    let t = if (old + t).abs() < LARGEST_BETA { t } else { 0.0 };
    state.beta[i] = snap(old + t, old, &term);
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

/// Rounding must not leave β next to its bound or its kink instead of on it.
fn snap(to: f64, from: f64, term: &crate::loss::DualTerm) -> f64 {
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
