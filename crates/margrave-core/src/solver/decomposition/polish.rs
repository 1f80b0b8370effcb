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

use super::pairs::Work;
use super::rows::{BATCH, Stored};
use super::state::State;
use crate::backend::cpu::factor::{Cholesky, FactorError};
use crate::backend::cpu::sweep;
use crate::control::{Control, Interrupt, Status};
use crate::gram::{Pick, Precision};

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

/// Rounds at most in one polish.
const ROUNDS: usize = 40;
/// Times a round pins variables and solves again.
const PINS: usize = 12;
/// A round that would pin more than one in so many free variables has the wrong sets: the pair steps do better.
const TOO_MANY: usize = 4;
/// Conjugate-gradient steps at most for one solve.
const REFINE: usize = 30;

/// The factor of K_SS + D for a set S of variables, with S's Gram block.
pub(super) struct Newton<T: Stored> {
    /// The variables, in the factor's order.
    set: Vec<u32>,
    /// Position in `set`, or NONE.
    place: Vec<u32>,
    block: Vec<T>,
    factor: Option<Cholesky<T>>,
    jitter: f64,
    /// Factorisations from scratch so far.
    pub(super) factorisations: u64,
}

const NONE: u32 = u32::MAX;

impl<T: Stored> Newton<T> {
    pub(super) fn new(n: usize) -> Self {
        Self { set: Vec::new(), place: vec![NONE; n], block: Vec::new(), factor: None, jitter: 0.0, factorisations: 0 }
    }

    /// Frees the memory.
    pub(super) fn forget(&mut self) {
        self.set.iter().for_each(|&i| self.place[i as usize] = NONE);
        self.set = Vec::new();
        self.block = Vec::new();
        self.factor = None;
    }

    /// Makes S ⊇ `free` with a valid factor; members of S not free are held at zero.
    fn prepare(&mut self, free: &[u32], state: &State, work: &Work<'_, '_, T>) -> Result<(), FactorError> {
        let missing: Vec<u32> = free.iter().copied().filter(|&i| self.place[i as usize] == NONE).collect();
        let held = self.set.len() + missing.len() - free.len();
        let usable = self.factor.is_some() && missing.len() * 3 <= self.set.len() && held * 4 <= free.len();
        if !usable {
            return self.refactor(free, state, work);
        }
        if !missing.is_empty() && self.grow(&missing, state, work).is_err() {
            work.control.check()?;
            return self.refactor(free, state, work);
        }
        self.hold_all_but(free, state, work)
    }

    fn hold_all_but(&mut self, free: &[u32], state: &State, work: &Work<'_, '_, T>) -> Result<(), FactorError> {
        let mut is_free = vec![false; self.set.len()];
        free.iter().for_each(|&i| is_free[self.place[i as usize] as usize] = true);
        let held: Vec<u32> = (0..self.set.len() as u32).filter(|&k| !is_free[k as usize]).collect();
        if held.len() * 3 > self.set.len() {
            return self.refactor(free, state, work);
        }
        let factor = self.factor.as_mut().expect("prepared");
        match factor.hold(&held, work.control) {
            Err(FactorError::NotPositive(_)) => self.refactor(free, state, work),
            other => other,
        }
    }

    /// Holds these members of S too.
    fn hold_also(&mut self, variables: &[u32], control: &Control) -> Result<(), FactorError> {
        let mut places: Vec<u32> = variables.iter().map(|&i| self.place[i as usize]).collect();
        places.sort_unstable();
        self.factor.as_mut().expect("prepared").hold_also(&places, control)
    }

    fn rows_of(set: &[u32], work: &Work<'_, '_, T>) -> Vec<u32> {
        set.iter().map(|&i| work.problem.row(i as usize) as u32).collect()
    }

    fn refactor(&mut self, free: &[u32], state: &State, work: &Work<'_, '_, T>) -> Result<(), FactorError> {
        self.forget();
        let m = free.len();
        let rows = Self::rows_of(free, work);
        let mut block = vec![T::of(0.0); m * m];
        T::block(work.gram, &rows, Pick::List(&rows), &mut block, work.control)?;
        for (k, &i) in free.iter().enumerate() {
            block[k * m + k] = T::of(state.kernel_diag[i as usize] + state.terms[i as usize].d);
            self.place[i as usize] = k as u32;
        }
        self.set = free.to_vec();
        self.block = block;
        let scale = free.iter().map(|&i| state.kernel_diag[i as usize] + state.terms[i as usize].d).fold(0.0, f64::max);
        let unit = if size_of::<T>() == 4 { 1e-6 } else { 1e-14 } * scale;
        self.jitter = self.jitter.max(unit);
        loop {
            let mut l = self.block.clone();
            (0..m).for_each(|k| l[k * m + k] = T::of(l[k * m + k].wide() + self.jitter));
            self.factorisations += 1;
            match Cholesky::new(l, m, m, work.control) {
                Ok(factor) => {
                    self.factor = Some(factor);
                    return Ok(());
                }
                Err(FactorError::NotPositive(_)) if self.jitter < scale => self.jitter *= 10.0,
                Err(e) => {
                    self.forget();
                    return Err(e);
                }
            }
        }
    }

    fn grow(&mut self, missing: &[u32], state: &State, work: &Work<'_, '_, T>) -> Result<(), FactorError> {
        let (n, m) = (self.set.len(), missing.len());
        let old_rows = Self::rows_of(&self.set, work);
        let new_rows = Self::rows_of(missing, work);
        let mut cross = vec![T::of(0.0); m * n];
        T::block(work.gram, &new_rows, Pick::List(&old_rows), &mut cross, work.control)?;
        let mut own = vec![T::of(0.0); m * m];
        T::block(work.gram, &new_rows, Pick::List(&new_rows), &mut own, work.control)?;
        for (k, &i) in missing.iter().enumerate() {
            own[k * m + k] = T::of(state.kernel_diag[i as usize] + state.terms[i as usize].d);
        }
        let total = n + m;
        let mut block = vec![T::of(0.0); total * total];
        for r in 0..n {
            block[r * total..r * total + n].copy_from_slice(&self.block[r * n..(r + 1) * n]);
            for c in 0..m {
                block[r * total + n + c] = cross[c * n + r];
            }
        }
        for r in 0..m {
            block[(n + r) * total..(n + r) * total + n].copy_from_slice(&cross[r * n..(r + 1) * n]);
            block[(n + r) * total + n..(n + r + 1) * total].copy_from_slice(&own[r * m..(r + 1) * m]);
        }
        (0..m).for_each(|k| own[k * m + k] = T::of(own[k * m + k].wide() + self.jitter));
        self.factor.as_mut().expect("a factor to grow").append(cross, &own, m, work.control)?;
        self.block = block;
        for (k, &i) in missing.iter().enumerate() {
            self.place[i as usize] = (n + k) as u32;
        }
        self.set.extend_from_slice(missing);
        Ok(())
    }

    /// (K_SS + D)·x.
    fn multiply(&self, x: &[f64], control: &Control) -> Vec<f64> {
        let m = self.set.len();
        let mut out = vec![0.0; m];
        control.threads.chunks(&mut out, 64, |k, part| {
            for (r, value) in part.iter_mut().enumerate() {
                let at = (k * 64 + r) * m;
                *value = sweep::dot(&self.block[at..at + m], x);
            }
        });
        out
    }

    /// Solves (K_FF + D)x = r over the free members of S (`held[k]`: not free) by preconditioned conjugate gradients, to
    /// `accuracy` in the largest residual.
    fn solve(&self, r: &[f64], held: &[bool], accuracy: f64, control: &Control) -> Result<Vec<f64>, FactorError> {
        let factor = self.factor.as_ref().expect("prepared");
        let m = r.len();
        let mut residual: Vec<f64> = (0..m).map(|k| if held[k] { 0.0 } else { r[k] }).collect();
        let mut x = vec![0.0; m];
        let mut z = residual.clone();
        factor.solve(&mut z);
        let mut direction = z.clone();
        let mut rz = sweep::dot(&residual, &z);
        for _ in 0..REFINE {
            control.check()?;
            let mut kd = self.multiply(&direction, control);
            (0..m).filter(|&k| held[k]).for_each(|k| kd[k] = 0.0);
            let curve = sweep::dot(&direction, &kd);
            if !(curve > 0.0 && rz > 0.0) {
                break;
            }
            let t = rz / curve;
            sweep::add_row(&mut x, &direction, t);
            sweep::add_row(&mut residual, &kd, -t);
            if residual.iter().fold(0.0, |w: f64, v| w.max(v.abs())) <= accuracy {
                break;
            }
            z.copy_from_slice(&residual);
            factor.solve(&mut z);
            let next = sweep::dot(&residual, &z);
            let scale = next / rz;
            rz = next;
            for (d, z) in direction.iter_mut().zip(&z) {
                *d = z + scale * *d;
            }
        }
        Ok(x)
    }
}

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
        let mut slow = 0;
        for _ in 0..ROUNDS {
            let violation = state.violation(&state.extremes());
            if let Err(status) = self.report(state, "polish", violation, true) {
                return Polished::Stopped(status);
            }
            if violation <= goal {
                return Polished::Reached;
            }
            // A good round cuts the violation or gains with a long step; two poor ones in a row end the polish.
            slow = if violation > 0.7 * before { slow + 1 } else { 0 };
            if slow >= 3 {
                return Polished::Slow;
            }
            before = violation;
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
        let accuracy = (0.01 * worst).min(0.2 * goal).max(1e-13 * worst);
        for attempt in 0.. {
            let held: Vec<bool> = newton.set.iter().map(|&i| !in_free[i as usize]).collect();
            let mut r: Vec<f64> =
                newton.set.iter().map(|&i| if in_free[i as usize] { -slope(i as usize) } else { 0.0 }).collect();
            if !pinned.is_empty() {
                // What the pinned ones do to the rest.
                let shift: Vec<f64> =
                    newton.set.iter().map(|&i| if in_free[i as usize] { 0.0 } else { move_by[i as usize] }).collect();
                let effect = newton.multiply(&shift, self.control);
                r.iter_mut().zip(&effect).for_each(|(r, e)| *r -= e);
            }
            let mut x = newton.solve(&r, &held, accuracy, self.control)?;
            if state.paired {
                for (g, &mu) in multipliers.iter().enumerate() {
                    // One multiplier a group restores its sum. r already contains −G, so start from the present μ.
                    let ones: Vec<f64> = newton
                        .set
                        .iter()
                        .map(|&i| f64::from(u8::from(in_free[i as usize] && state.group[i as usize] as usize == g)))
                        .collect();
                    let unit = newton.solve(&ones, &held, 1e-6, self.control)?;
                    let _ = mu;
                    let in_group = |k: usize| state.group[newton.set[k] as usize] as usize == g;
                    let moved: f64 = (0..x.len()).filter(|&k| in_group(k)).map(|k| x[k]).sum();
                    let fixed: f64 = pinned
                        .iter()
                        .filter(|&&i| state.group[i as usize] as usize == g)
                        .map(|&i| move_by[i as usize])
                        .sum();
                    let per: f64 = (0..x.len()).filter(|&k| in_group(k)).map(|k| unit[k]).sum();
                    if per > 0.0 {
                        sweep::add_row(&mut x, &unit, -(moved + fixed) / per);
                    }
                }
            }
            let mut leaving: Vec<u32> = Vec::new();
            for (k, &i) in newton.set.iter().enumerate() {
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
            if leaving.is_empty() || attempt >= PINS {
                break;
            }
            if leaving.len() + pinned.len() > free.len() / TOO_MANY {
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

    /// K[all, changed]·delta, nothing being set aside: from rows at hand if most are there and the rest fit, else by a
    /// product that stores nothing.
    pub(super) fn product(&mut self, state: &State, changed: &[u32], delta: &[f64]) -> Result<Vec<f64>, Interrupt> {
        let missing: Vec<u32> = changed.iter().copied().filter(|&i| !self.full.has(i as usize)).collect();
        let mut out = vec![0.0; state.active.len()];
        if changed.len() + 2 * BATCH <= self.full.capacity() && missing.len() * 4 <= changed.len().max(64) {
            for &i in changed {
                if self.full.has(i as usize) {
                    self.full.touch(i as usize);
                }
            }
            for batch in missing.chunks(BATCH) {
                self.fetch(batch)?;
            }
            // A later batch may have displaced an earlier one.
            if changed.iter().all(|&i| self.full.has(i as usize)) {
                let rows = &self.full;
                const WIDTH: usize = 2048;
                self.control.threads.chunks(&mut out, WIDTH, |k, part| {
                    let from = k * WIDTH;
                    for (&i, &d) in changed.iter().zip(delta) {
                        sweep::add_row(part, &rows.get(i as usize)[from..from + part.len()], d);
                    }
                });
                return Ok(out);
            }
        }
        let mut v = vec![0.0; self.problem.gram.shape().1];
        for (&i, &d) in changed.iter().zip(delta) {
            v[self.problem.row(i as usize)] += d;
        }
        let rows = self.columns.as_deref().map_or(Pick::All, Pick::List);
        let precision = if size_of::<T>() == 4 { Precision::Single } else { Precision::Double };
        self.gram.apply(precision, rows, &v, 1, &mut out, self.control)?;
        Ok(out)
    }
}
