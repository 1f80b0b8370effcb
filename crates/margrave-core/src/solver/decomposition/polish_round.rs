//! One round of the Newton polish: release, solve, pin, step.

use super::cg::{Deviation, Minimum, System};
use super::iterative::Iterative;
use super::newton::{MOST_CG_STEPS, Newton};
use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::linalg::factor::FactorError;
use crate::linalg::sweep;

/// Most solves of a round with variables pinned in between; twice as many in a gradual polish.
const MOST_PINNING_SOLVES: usize = 12;
/// A round that would pin more than one in so many free variables has the wrong active sets: pair steps do better.
const PINNED_SHARE: usize = 4;
/// Marks a variable without a position.
const NONE: u32 = u32::MAX;

/// One round's outcome.
pub(super) struct PolishRound {
    /// Length of the step taken, in [0, 1].
    pub(super) length: f64,
    /// Rise of the dual objective.
    pub(super) gain: f64,
    /// Many variables left their pieces at once.
    pub(super) wrong_sets: bool,
}

impl PolishRound {
    pub(super) const NO_MOVE: Self = Self { length: 0.0, gain: 0.0, wrong_sets: false };
}

/// The variables that move in a round.
pub(super) struct MovingSet {
    /// Free variables and released ones, without those pinned since.
    pub(super) free: Vec<u32>,
    /// The piece on which each variable moves: 1 above zero, −1 below, 0 for fixed ones at zero.
    pub(super) side: Vec<i8>,
    /// Position of each variable among the active ones, or NONE.
    pub(super) position: Vec<u32>,
}

impl MovingSet {
    /// The free variables, and the fixed ones that violate by more than `slack`.
    pub(super) fn new(state: &DualState, multipliers: &[f64], slack: f64) -> Self {
        let mut free: Vec<u32> = Vec::new();
        let mut side = vec![0i8; state.terms.len()];
        for (&(from, to), mu) in state.ranges.iter().zip(multipliers) {
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
        let mut position = vec![NONE; state.terms.len()];
        (0..state.active.len()).for_each(|a| position[state.active[a] as usize] = a as u32);
        Self { free, side, position }
    }

    /// G = g + eps·side.
    pub(super) fn slope(&self, state: &DualState, i: usize) -> f64 {
        state.g[self.position[i] as usize] + state.terms[i].eps * f64::from(self.side[i])
    }

    /// Of the fixed variables that violate by more than `slack`, leaves only the worst `most`.
    pub(super) fn keep_worst_released(&mut self, state: &DualState, multipliers: &[f64], slack: f64, most: usize) {
        let mut violators: Vec<(f64, u32)> = Vec::new();
        for (&(from, to), mu) in state.ranges.iter().zip(multipliers) {
            for a in from..to {
                let i = state.active[a];
                let violation = (mu - state.g[a] - state.up[a]).max(state.g[a] + state.down[a] - mu);
                if !state.is_free(i as usize) && violation > slack {
                    violators.push((violation, i));
                }
            }
        }
        if violators.len() > most {
            violators.sort_unstable_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
            let mut stays_fixed = vec![false; state.terms.len()];
            violators[most..].iter().for_each(|v| stays_fixed[v.1 as usize] = true);
            self.free.retain(|&i| !stays_fixed[i as usize]);
        }
    }
}

/// The moves that a round found.
pub(super) struct RoundMoves {
    /// By variable.
    move_by: Vec<f64>,
    /// Many variables left their pieces at once; their moves are cut at the ends.
    wrong_sets: bool,
}

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// One round; `None` if more than `most_free` variables would be free.
    pub(super) fn polish_round(
        &mut self,
        state: &mut DualState,
        newton: &mut Newton<T>,
        goal: f64,
        most_free: usize,
    ) -> Result<Option<PolishRound>, FactorError> {
        let multipliers = state.multipliers();
        let slack = 0.25 * goal;
        let mut moving = MovingSet::new(state, &multipliers, slack);
        let released = moving.free.iter().filter(|&&i| !state.is_free(i as usize)).count();
        let free = moving.free.len() - released;
        if self.gradual_polish {
            moving.keep_worst_released(state, &multipliers, slack, (free / PINNED_SHARE).max(32));
        } else if released > free.max(64) {
            // Too early: most of so many would be pinned again at once, at the cost of a large factor.
            return Ok(Some(PolishRound { wrong_sets: true, ..PolishRound::NO_MOVE }));
        }
        if moving.free.is_empty() {
            return Ok(Some(PolishRound::NO_MOVE));
        }
        if moving.free.len() > most_free {
            return Ok(None);
        }
        newton.prepare(&moving.free, state, self)?;
        let RoundMoves { move_by, wrong_sets } = self.find_moves(state, newton, &mut moving, &multipliers, goal)?;
        let round = self.advance(state, &moving, &move_by, 1.0, None)?;
        // The step is taken also with the wrong sets: it is what the factorisation can give.
        Ok(Some(PolishRound { wrong_sets: round.wrong_sets || wrong_sets, ..round }))
    }

    /// Solves for the minimum over the moving variables, pins those that leave their pieces, and repeats until none
    /// leaves.
    fn find_moves(
        &self,
        state: &DualState,
        newton: &mut Newton<T>,
        moving: &mut MovingSet,
        multipliers: &[f64],
        goal: f64,
    ) -> Result<RoundMoves, FactorError> {
        let mut move_by = vec![0.0; state.terms.len()];
        let mut pinned = 0;
        let mut in_free = vec![false; state.terms.len()];
        moving.free.iter().for_each(|&i| in_free[i as usize] = true);
        let deviation = |&i: &u32| moving.slope(state, i as usize) - multipliers[state.group[i as usize] as usize];
        let worst = moving.free.iter().map(|i| deviation(i).abs()).fold(0.0, f64::max);
        // Far from the goal the active sets are not right yet, and a rough minimum over them is as good as an exact
        // one.
        let accuracy = (0.01 * worst).max(0.2 * goal);
        // Members of S that are shrunk by now are held: their slopes do not matter.
        let slopes: Vec<f64> = newton
            .members()
            .iter()
            .map(|&i| if moving.position[i as usize] == NONE { 0.0 } else { moving.slope(state, i as usize) })
            .collect();
        let most_solves = if self.gradual_polish { 2 * MOST_PINNING_SOLVES } else { MOST_PINNING_SOLVES };
        let mut start: Option<Vec<f64>> = None;
        for attempt in 0.. {
            let fixed: Vec<f64> =
                newton.members().iter().map(|&i| if in_free[i as usize] { 0.0 } else { move_by[i as usize] }).collect();
            let wanted = if start.is_some() { accuracy } else { accuracy.max(0.1 * worst) };
            let free_now: Vec<bool> = newton.members().iter().map(|&i| in_free[i as usize]).collect();
            let system = System {
                free: &free_now,
                slopes: &slopes,
                fixed: &fixed,
                start: start.take(),
                accuracy: Deviation { largest: wanted, rms: 0.0 },
                most_steps: MOST_CG_STEPS,
            };
            let Minimum { x, deviation, .. } = newton.minimum(system, state, self.control)?;
            let spread = deviation.largest;
            let mut leaving = set_moves(state, newton.members(), &moving.side, &in_free, &x, &mut move_by);
            let rough = spread.is_finite() && spread > accuracy && wanted > accuracy;
            if leaving.is_empty() && rough && attempt < MOST_PINNING_SOLVES {
                // The sets are right: now solve to full accuracy.
                start = Some(x);
                continue;
            }
            if leaving.is_empty() || attempt >= most_solves {
                break;
            }
            let free = moving.free.len();
            if self.gradual_polish && leaving.len() <= free / PINNED_SHARE {
                if leaving.len() > (free / 16).max(4) {
                    leaving = first_half_to_leave(&leaving, &move_by, |i| x[newton.place_of(i)]);
                }
            } else if self.gradual_polish || leaving.len() + pinned > free / PINNED_SHARE {
                return Ok(RoundMoves { move_by, wrong_sets: true });
            }
            leaving.iter().for_each(|&i| in_free[i as usize] = false);
            pinned += leaving.len();
            moving.free.retain(|&i| in_free[i as usize]);
            if moving.free.is_empty() {
                break;
            }
            // S stays as it is until the round ends, so that the effect of the pinned members on the rest is included.
            newton.hold_also(&leaving, self.control)?;
        }
        Ok(RoundMoves { move_by, wrong_sets: false })
    }

    /// Steps along `move_by` as far as the dual rises, at most the whole way; the whole way also where the dual is
    /// largest at `whole_from` of it or beyond. Entries of K that are `stored` are not computed again.
    pub(super) fn advance(
        &mut self,
        state: &mut DualState,
        moving: &MovingSet,
        move_by: &[f64],
        whole_from: f64,
        stored: Option<&Iterative>,
    ) -> Result<PolishRound, FactorError> {
        let changed: Vec<u32> = (0..move_by.len() as u32).filter(|&i| move_by[i as usize] != 0.0).collect();
        // Rounding, and moves cut at the ends of pieces, may have changed the sums: spread the rest over variables with
        // room.
        let mut delta: Vec<f64> = changed.iter().map(|&i| move_by[i as usize]).collect();
        if state.paired {
            for g in 0..state.ranges.len() {
                rebalance(state, &moving.side, &changed, &mut delta, g);
                // Moves whose sum is still not zero are not made.
                let members = || (0..changed.len()).filter(|&k| state.group[changed[k] as usize] as usize == g);
                let (left, size) = members().fold((0.0f64, 0.0), |(l, s), k| (l + delta[k], s + delta[k].abs()));
                if left.abs() > 1e-12 * size {
                    return Ok(PolishRound::NO_MOVE);
                }
            }
        }
        let product = match stored {
            Some(stored) => self.product_with(state, stored, &changed, &delta)?,
            None => self.product(state, &changed, &delta)?,
        };
        let (mut slope, mut curve) = (0.0, 0.0);
        for (&i, &d) in changed.iter().zip(&delta) {
            let v = i as usize;
            let a = moving.position[v] as usize;
            slope += d * (state.g[a] + state.terms[v].eps * f64::from(moving.side[v]));
            curve += d * (product[a] + state.terms[v].d * d);
        }
        if !(slope < 0.0) {
            return Ok(PolishRound::NO_MOVE);
        }
        let length = if curve > 0.0 { (-slope / curve).min(1.0) } else { 1.0 };
        let length = if length >= whole_from { 1.0 } else { length };
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
            let a = moving.position[v] as usize;
            state.g[a] += t.d * (to - old);
            state.beta[v] = to;
        }
        sweep::add_row(&mut state.g, &product, length);
        (0..state.active.len()).for_each(|a| state.refresh(a));
        Ok(PolishRound { wrong_sets: false, length, gain: -(slope * length + 0.5 * curve * length * length) })
    }
}

/// Sets the moves of the free members to `x`, cut at the ends of their pieces; returns those that would leave them.
pub(super) fn set_moves(
    state: &DualState,
    members: &[u32],
    side: &[i8],
    in_free: &[bool],
    x: &[f64],
    move_by: &mut [f64],
) -> Vec<u32> {
    let mut leaving: Vec<u32> = Vec::new();
    for (k, &i) in members.iter().enumerate() {
        let v = i as usize;
        if !in_free[v] {
            continue;
        }
        let (lo, hi) = state.piece(v, side[v]);
        let to = state.beta[v] + x[k];
        let tiny = 1e-12 * state.beta[v].abs().max(1e-300);
        if to < lo - tiny || to > hi + tiny {
            leaving.push(i);
        }
        move_by[v] = to.clamp(lo, hi) - state.beta[v];
    }
    leaving
}

/// The half of `leaving` that meets its bounds first: with them held, the others may stay inside.
pub(super) fn first_half_to_leave(leaving: &[u32], move_by: &[f64], wanted: impl Fn(u32) -> f64) -> Vec<u32> {
    let mut by_time: Vec<(f64, u32)> = leaving.iter().map(|&i| (move_by[i as usize] / wanted(i), i)).collect();
    by_time.sort_unstable_by(|x, y| x.0.total_cmp(&y.0).then(x.1.cmp(&y.1)));
    by_time.truncate(leaving.len().div_ceil(2));
    by_time.into_iter().map(|t| t.1).collect()
}

/// Makes the moves of one group sum to zero, within the pieces.
fn rebalance(state: &DualState, side: &[i8], changed: &[u32], delta: &mut [f64], g: usize) {
    let members: Vec<usize> = (0..changed.len()).filter(|&k| state.group[changed[k] as usize] as usize == g).collect();
    let mut rest: f64 = -members.iter().map(|&k| delta[k]).sum::<f64>();
    let scale: f64 = members.iter().map(|&k| delta[k].abs()).sum();
    if rest.abs() <= 1e-15 * scale {
        return;
    }
    for _ in 0..3 {
        let room = |k: usize, delta: &[f64]| {
            let v = changed[k] as usize;
            let (lo, hi) = state.piece(v, side[v]);
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
            // No variable has room: shorten the moves in the direction of the surplus.
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
