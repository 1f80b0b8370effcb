//! The Newton polish: from roughly right sets to the exact optimum in a handful of factorisations.
//!
//! A dual active-set method. With F the free variables (strictly inside a quadratic piece) and everything else fixed, the
//! optimum over F solves
//!
//! ```text
//! (K_FF + D)Δ − Σ_g μ_g 1_g = −G_F,   Σ_{i∈g} Δᵢ = 0,   G = g + eps·side
//! ```
//!
//! one system of equations. A round releases every fixed variable that wants to move, solves, pins at their bounds the
//! variables that would leave their piece, solves again until none leaves, and steps along the result with an exact line
//! search: the dual never falls. The factor is kept from round to round, grown by released variables and solved with
//! pinned ones held, and refactored when too many have changed. It may be in single precision: conjugate gradients with
//! it as preconditioner solve the system itself.
//!
//! When a round gains little the sets are not right yet, and the pair steps go on.

use super::newton::Newton;
use super::pairs::Work;
use super::rows::{BATCH, Stored};
use super::state::State;
use crate::control::{Interrupt, Status};
use crate::gram::{Pick, Precision};
use crate::linalg::factor::FactorError;
use crate::linalg::sweep;
use crate::work_limit::ITERATION;

/// How a polish ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Polished {
    /// The violation is at most the goal.
    Reached,
    /// It helped until it no longer did: go on with pairs.
    Slow,
    /// Too many free variables for the memory budget.
    TooLarge,
    /// A budget ran out.
    Stopped(Status),
}

/// Effort of an entry from which it is kept rather than computed again.
pub(super) const DEAR: f64 = 192.0;
/// Rounds at most in one polish.
const ROUNDS: usize = 40;
/// Times a round pins variables and solves again.
const PINS: usize = 12;
/// A round that would pin more than one in so many free variables has the wrong sets: the pair steps do better.
const TOO_MANY: usize = 4;
/// Poor rounds in a row, and growth of the violation, that end a patient polish.
const PATIENT: (i32, f64) = (4, 10.0);

const NONE: u32 = u32::MAX;

/// One round's outcome.
struct Round {
    /// Length of the step taken, in [0, 1].
    length: f64,
    /// Rise of the dual objective.
    gain: f64,
    /// Many variables left their pieces at once.
    wrong_sets: bool,
}

impl<T: Stored> Work<'_, '_, T> {
    /// Rounds of the polish until the violation of the active variables is at most `goal`.
    pub(super) fn polish(&mut self, state: &mut State, newton: &mut Newton<T>, goal: f64, most: usize) -> Polished {
        let mut before = f64::INFINITY;
        let mut first = f64::INFINITY;
        let mut slow = 0;
        for _ in 0..ROUNDS {
            let violation = state.violation(&state.extremes());
            if let Err(status) = self.report(state, "polish", violation, true) {
                return Polished::Stopped(status);
            }
            if violation <= goal || self.is_enough(state) {
                return Polished::Reached;
            }
            // A good round cuts the violation. Two poor ones in a row end the polish, and so does a violation that has grown
            // beyond what new sets explain: the same variables are then pinned and released in turn.
            slow = if violation > 0.7 * before { slow + 1 } else { 0 };
            first = first.min(violation);
            let (rounds, growth) = if self.patient { PATIENT } else { (2, 2.0) };
            if slow >= rounds || violation > growth * first {
                return Polished::Slow;
            }
            before = violation;
            self.control.spend(ITERATION);
            match self.round(state, newton, goal, most) {
                Ok(Some(round)) => {
                    self.iterations += 1;
                    if round.wrong_sets || !(round.gain > 0.0) || round.length < 1e-3 {
                        return Polished::Slow;
                    }
                }
                Ok(None) => return Polished::TooLarge,
                Err(FactorError::Interrupted(why)) => return Polished::Stopped(why.into()),
                Err(FactorError::NotPositive(_)) => return Polished::Slow,
            }
        }
        Polished::Slow
    }

    fn round(
        &mut self,
        state: &mut State,
        newton: &mut Newton<T>,
        goal: f64,
        most: usize,
    ) -> Result<Option<Round>, FactorError> {
        let multipliers = state.multipliers();
        let slack = 0.25 * goal;
        let count = state.active.len();
        // The free variables, and the fixed ones that want to move; `side` is the piece each will move on.
        let mut free: Vec<u32> = Vec::new();
        let mut side = vec![0i8; state.terms.len()];
        for (&(from, to), mu) in state.ranges.iter().zip(&multipliers) {
            for a in from..to {
                let i = state.active[a] as usize;
                let grows = state.g[a] + state.up[a] < mu - slack;
                let falls = state.g[a] + state.down[a] > mu + slack;
                let b = state.beta[i];
                side[i] = match b {
                    b if b > 0.0 => 1,
                    b if b < 0.0 => -1,
                    _ if grows => 1,
                    _ if falls => -1,
                    _ => 0,
                };
                if state.is_free(i) || grows || falls {
                    free.push(i as u32);
                }
            }
        }
        let released = free.iter().filter(|&&i| !state.is_free(i as usize)).count();
        if self.patient {
            self.release_worst(state, &multipliers, slack, ((free.len() - released) / TOO_MANY).max(32), &mut free);
        } else if released > (free.len() - released).max(64) {
            // Most of so many would be pinned again at once, at the price of a large factor: too early.
            return Ok(Some(Round { length: 0.0, gain: 0.0, wrong_sets: true }));
        }
        if free.is_empty() {
            return Ok(Some(Round { length: 0.0, gain: 0.0, wrong_sets: false }));
        }
        if free.len() > most {
            return Ok(None);
        }
        let piece = |i: usize| {
            let t = &state.terms[i];
            match (t.eps > 0.0, side[i]) {
                (true, 1) => (0.0, t.hi),
                (true, -1) => (t.lo, 0.0),
                _ => (t.lo, t.hi),
            }
        };
        let mut position = vec![NONE; state.terms.len()];
        (0..count).for_each(|a| position[state.active[a] as usize] = a as u32);
        // G = g + eps·side.
        let slope = |i: usize| state.g[position[i] as usize] + state.terms[i].eps * f64::from(side[i]);
        newton.prepare(&free, state, self)?;
        let mut move_by = vec![0.0; state.terms.len()];
        let mut pinned: Vec<u32> = Vec::new();
        let mut in_free = vec![false; state.terms.len()];
        free.iter().for_each(|&i| in_free[i as usize] = true);
        let worst = free
            .iter()
            .map(|&i| (slope(i as usize) - multipliers[state.group[i as usize] as usize]).abs())
            .fold(0.0, f64::max);
        // Far from the goal the sets are not yet right, and a rough minimum over them is as good as an exact one.
        let accuracy = (0.01 * worst).max(0.2 * goal);
        // Members of S that are set aside by now are held: their slopes do not matter.
        let slopes: Vec<f64> = newton
            .members()
            .iter()
            .map(|&i| if position[i as usize] == NONE { 0.0 } else { slope(i as usize) })
            .collect();
        let mut start: Option<Vec<f64>> = None;
        for attempt in 0.. {
            let fixed: Vec<f64> =
                newton.members().iter().map(|&i| if in_free[i as usize] { 0.0 } else { move_by[i as usize] }).collect();
            let wanted = if start.is_some() { accuracy } else { accuracy.max(0.1 * worst) };
            let free_now = |k: usize| in_free[newton.members()[k] as usize];
            let (x, spread) = newton.minimum(&slopes, &fixed, start.take(), free_now, wanted, state, self.control)?;
            let mut leaving: Vec<u32> = Vec::new();
            for (k, &i) in newton.members().iter().enumerate() {
                let v = i as usize;
                if !in_free[v] {
                    continue;
                }
                let (lo, hi) = piece(v);
                let to = state.beta[v] + x[k];
                let tiny = 1e-12 * state.beta[v].abs().max(1e-300);
                if to < lo - tiny || to > hi + tiny {
                    leaving.push(i);
                    move_by[v] = to.clamp(lo, hi) - state.beta[v];
                } else {
                    move_by[v] = to.clamp(lo, hi) - state.beta[v];
                }
            }
            if leaving.is_empty() && spread.is_finite() && spread > accuracy && wanted > accuracy && attempt < PINS {
                // The sets stand: now the minimum itself.
                start = Some(x);
                continue;
            }
            if leaving.is_empty() || attempt >= if self.patient { 2 * PINS } else { PINS } {
                break;
            }
            if self.patient && leaving.len() <= free.len() / TOO_MANY {
                if leaving.len() > (free.len() / 16).max(4) {
                    // Those that meet their bounds first: with them held, the others may well stay inside.
                    let mut by_time: Vec<(f64, u32)> = leaving
                        .iter()
                        .map(|&i| {
                            let at = newton.place_of(i);
                            (move_by[i as usize] / x[at], i)
                        })
                        .collect();
                    by_time.sort_unstable_by(|x, y| x.0.total_cmp(&y.0).then(x.1.cmp(&y.1)));
                    by_time.truncate(leaving.len().div_ceil(2));
                    leaving = by_time.into_iter().map(|t| t.1).collect();
                }
            } else if self.patient || leaving.len() + pinned.len() > free.len() / TOO_MANY {
                // Take what this direction gives, cut at the ends of the pieces, and leave it at that.
                let round = self.advance(state, &position, &side, &move_by)?;
                return Ok(round.map(|r| Round { wrong_sets: true, ..r }));
            }
            leaving.iter().for_each(|&i| in_free[i as usize] = false);
            pinned.extend_from_slice(&leaving);
            free.retain(|&i| in_free[i as usize]);
            if free.is_empty() {
                break;
            }
            // S stays as it is until the round ends, so that the pinned ones' effect on the rest is at hand.
            newton.hold_also(&leaving, self.control)?;
        }
        self.advance(state, &position, &side, &move_by)
    }

    /// Leaves in `free`, of the fixed variables that want to move by more than `slack`, the worst `most`.
    fn release_worst(&self, state: &State, multipliers: &[f64], slack: f64, most: usize, free: &mut Vec<u32>) {
        let mut wanting: Vec<(f64, u32)> = Vec::new();
        for (&(from, to), mu) in state.ranges.iter().zip(multipliers) {
            for a in from..to {
                let i = state.active[a];
                let pull = (mu - state.g[a] - state.up[a]).max(state.g[a] + state.down[a] - mu);
                if !state.is_free(i as usize) && pull > slack {
                    wanting.push((pull, i));
                }
            }
        }
        if wanting.len() > most {
            wanting.sort_unstable_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
            let mut stays = vec![false; state.terms.len()];
            wanting[most..].iter().for_each(|w| stays[w.1 as usize] = true);
            free.retain(|&i| !stays[i as usize]);
        }
    }

    /// Steps along `move_by` as far as the dual rises, at most the whole way.
    fn advance(
        &mut self,
        state: &mut State,
        position: &[u32],
        side: &[i8],
        move_by: &[f64],
    ) -> Result<Option<Round>, FactorError> {
        let changed: Vec<u32> = (0..move_by.len() as u32).filter(|&i| move_by[i as usize] != 0.0).collect();
        // Rounding and the cut after too many pins may have upset the sums: spread the rest over variables with room.
        let mut delta: Vec<f64> = changed.iter().map(|&i| move_by[i as usize]).collect();
        if state.paired {
            for g in 0..state.ranges.len() {
                self.rebalance(state, side, &changed, &mut delta, g);
                // A move that would upset the sum for good is no move.
                let members = || (0..changed.len()).filter(|&k| state.group[changed[k] as usize] as usize == g);
                let (left, size) = members().fold((0.0f64, 0.0), |(l, s), k| (l + delta[k], s + delta[k].abs()));
                if left.abs() > 1e-12 * size {
                    return Ok(Some(Round { length: 0.0, gain: 0.0, wrong_sets: false }));
                }
            }
        }
        let product = self.product(state, &changed, &delta)?;
        let (mut slope, mut curve) = (0.0, 0.0);
        for (&i, &d) in changed.iter().zip(&delta) {
            let v = i as usize;
            let a = position[v] as usize;
            slope += d * (state.g[a] + state.terms[v].eps * f64::from(side[v]));
            curve += d * (product[a] + state.terms[v].d * d);
        }
        if !(slope < 0.0) {
            return Ok(Some(Round { length: 0.0, gain: 0.0, wrong_sets: false }));
        }
        let length = if curve > 0.0 { (-slope / curve).min(1.0) } else { 1.0 };
        for (&i, &d) in changed.iter().zip(&delta) {
            let v = i as usize;
            let t = state.terms[v];
            let old = state.beta[v];
            let mut to = (old + length * d).clamp(t.lo, t.hi);
            if length == 1.0 {
                // The end of a piece is met exactly.
                for end in [t.lo, 0.0, t.hi] {
                    if (to - end).abs() <= 1e-12 * old.abs().max(d.abs()) {
                        to = end;
                    }
                }
            }
            let a = position[v] as usize;
            state.g[a] += t.d * (to - old);
            state.beta[v] = to;
        }
        sweep::add_row(&mut state.g, &product, length);
        (0..state.active.len()).for_each(|a| state.refresh(a));
        Ok(Some(Round { wrong_sets: false, length, gain: -(slope * length + 0.5 * curve * length * length) }))
    }

    /// Makes the moves of one group sum to zero, within the pieces.
    fn rebalance(&self, state: &State, side: &[i8], changed: &[u32], delta: &mut [f64], g: usize) {
        let members: Vec<usize> =
            (0..changed.len()).filter(|&k| state.group[changed[k] as usize] as usize == g).collect();
        let mut rest: f64 = -members.iter().map(|&k| delta[k]).sum::<f64>();
        let scale: f64 = members.iter().map(|&k| delta[k].abs()).sum();
        if rest.abs() <= 1e-15 * scale {
            return;
        }
        for _ in 0..3 {
            let room = |k: usize, delta: &[f64]| {
                let v = changed[k] as usize;
                let t = &state.terms[v];
                let (lo, hi) = match (t.eps > 0.0, side[v]) {
                    (true, 1) => (0.0, t.hi),
                    (true, -1) => (t.lo, 0.0),
                    _ => (t.lo, t.hi),
                };
                let at = state.beta[v] + delta[k];
                // Variables at an end stay there.
                if at <= lo || at >= hi {
                    0.0
                } else if rest > 0.0 {
                    hi - at
                } else {
                    at - lo
                }
            };
            let free: Vec<(usize, f64)> = members.iter().map(|&k| (k, room(k, delta))).filter(|x| x.1 > 0.0).collect();
            if free.is_empty() {
                // Nothing inside: shorten the moves that go the way of the surplus.
                let with: f64 = members.iter().map(|&k| delta[k]).filter(|d| d * rest < 0.0).sum();
                if with != 0.0 {
                    let keep = 1.0 - (rest / -with).clamp(0.0, 1.0);
                    for &k in &members {
                        if delta[k] * rest < 0.0 {
                            delta[k] *= keep;
                        }
                    }
                }
                return;
            }
            let share = rest / free.len() as f64;
            for (k, room) in free {
                let by = share.abs().min(0.5 * room).copysign(share);
                delta[k] += by;
                rest -= by;
            }
            if rest.abs() <= 1e-15 * scale {
                return;
            }
        }
        if let Some(&k) = members.iter().find(|&&k| {
            let v = changed[k] as usize;
            let to = state.beta[v] + delta[k] + rest;
            to >= state.terms[v].lo && to <= state.terms[v].hi && rest.abs() < 1e-9 * scale
        }) {
            delta[k] += rest;
        }
    }

    /// K[active, changed]·delta: from rows at hand if most are there and the rest fit, else by a product that stores
    /// nothing. Entries that are dear are kept from the first time on.
    pub(super) fn product(&mut self, state: &State, changed: &[u32], delta: &[f64]) -> Result<Vec<f64>, Interrupt> {
        self.drift += self.entry_error * delta.iter().map(|d| d.abs()).sum::<f64>();
        let mut out = vec![0.0; state.active.len()];
        if self.by_rows(changed, delta, &mut out)? {
            return Ok(out);
        }
        let mut v = vec![0.0; self.problem.gram.shape().1];
        for (&i, &d) in changed.iter().zip(delta) {
            v[self.problem.row(i as usize)] += d;
        }
        let numbers: Option<Vec<u32>> = if self.shrunk.is_some() {
            Some(state.active.iter().map(|&i| self.problem.row(i as usize) as u32).collect())
        } else {
            None
        };
        let rows = numbers.as_deref().or(self.columns.as_deref()).map_or(Pick::All, Pick::List);
        let precision = if size_of::<T>() == 4 { Precision::Single } else { Precision::Double };
        self.gram.apply(precision, rows, &v, 1, &mut out, self.control)?;
        Ok(out)
    }

    /// The product from stored rows over all variables; `false` if they are not at hand and not worth fetching.
    fn by_rows(&mut self, changed: &[u32], delta: &[f64], out: &mut [f64]) -> Result<bool, Interrupt> {
        let missing: Vec<u32> = changed.iter().copied().filter(|&i| !self.full.has(i as usize)).collect();
        let few = missing.len() * 4 <= changed.len().max(64);
        let dear = self.gram.effort() >= DEAR && self.full.room() >= missing.len();
        if changed.len() + 2 * BATCH > self.full.capacity() || !(few || dear) {
            return Ok(false);
        }
        for &i in changed {
            if self.full.has(i as usize) {
                self.full.touch(i as usize);
            }
        }
        let (row_of, cols) = (self.problem, self.columns.as_deref().map_or(Pick::All, Pick::List));
        for batch in missing.chunks(2 * BATCH) {
            self.full.fetch(self.gram, batch, |v| row_of.row(v as usize) as u32, cols, self.control)?;
        }
        // A later batch may have displaced an earlier one.
        if !changed.iter().all(|&i| self.full.has(i as usize)) {
            return Ok(false);
        }
        let rows = &self.full;
        let places = self.shrunk.as_ref().map(|s| s.positions.as_slice());
        const WIDTH: usize = 2048;
        self.control.threads.chunks(out, WIDTH, |k, part| {
            let from = k * WIDTH;
            for (&i, &d) in changed.iter().zip(delta) {
                let row = rows.get(i as usize);
                match places {
                    None => sweep::add_row(part, &row[from..from + part.len()], d),
                    Some(places) => {
                        part.iter_mut().zip(&places[from..]).for_each(|(out, &p)| *out += d * row[p as usize].wide())
                    }
                }
            }
        });
        Ok(true)
    }
}
