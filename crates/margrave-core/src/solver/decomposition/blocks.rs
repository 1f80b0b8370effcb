//! Block steps: many variables at a time, none of their rows kept.
//!
//! A round picks the variables that violate most, computes K over them alone, and takes pair steps among them until
//! they are nearly optimal; the gradient of all variables is then updated by one product that stores nothing. A pair
//! step is a pass over the block, which stays in cache, instead of one over all variables, and all cores share block
//! and product. Compared with pairs over all variables this takes more steps and more kernel entries, but no memory
//! traffic: computing a kernel entry takes less time than allocating a fresh page of memory for it, or reading a stored
//! row.
//!
//! Cost per round: q² + n·(variables that moved) kernel entries, q per step. Memory: q² entries.

use super::pairs::StepsEnd;
use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::{Interrupt, Status};
use crate::gram::Pick;
use crate::linalg::pages;
use crate::linalg::sweep::Extremes;
use crate::work_limit::ITERATION;

/// Variables of the first block where there are few in all: on easy problems few variables move, and a block costs as many entries
/// as the square of its size.
const FIRST_BLOCK: usize = 1024;
/// Most variables in all that count as few. With more, a block costs little beside the product that follows, and large blocks leave
/// better active sets to the polish.
const FEW: usize = 4 * SMALL_BLOCK;
/// Most variables of a block in the first rounds: easy problems end within them. Half as many where entries are expensive.
const SMALL_BLOCK: usize = 2048;
/// Most variables of a block in later rounds. Half as many where entries are expensive.
const LARGE_BLOCK: usize = 4096;
/// Variables of a block for each that moved in the one before, where there are few in all.
const PER_MOVED: usize = 2;
/// Rounds with small blocks.
const SMALL_BLOCK_ROUNDS: usize = 12;
/// Variables may be shrunk every so many rounds.
const SHRINK_INTERVAL: usize = 3;
/// Steps between two polls of the budget.
pub(super) const POLL_INTERVAL: u64 = 512;

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Rounds until the violation of the active variables is at most `until`. Settled variables are shrunk on the way.
    pub(super) fn blocks(&mut self, state: &mut DualState, until: f64) -> StepsEnd {
        let n = state.terms.len();
        // A quarter of the memory is enough for fast rounds, and leaves room for the phases that follow.
        let most = ((self.bytes / 4) as f64 / size_of::<T>() as f64).sqrt().max(64.0) as usize;
        let expensive = self.gram.worth_keeping();
        let slow_after = 20 * n as u64 + 2000;
        let (mut milestone, mut milestone_at) = (f64::INFINITY, self.iterations);
        let mut set: Vec<u32> = Vec::new();
        let mut buffer: Vec<T> = Vec::new();
        let mut wanted = 0;
        for round in 0.. {
            let extremes = state.extremes();
            let violation = state.violation(&extremes);
            if violation <= until || self.gap_suffices(state) {
                return StepsEnd::Reached;
            }
            if violation < 0.5 * milestone {
                (milestone, milestone_at) = (violation, self.iterations);
            } else if self.iterations - milestone_at > slow_after {
                return StepsEnd::Slow;
            }
            if let Err(status) = self.report(state, "block", violation, false) {
                return StepsEnd::Stopped(status);
            }
            if round % SHRINK_INTERVAL == SHRINK_INTERVAL - 1 {
                let before = state.active.len();
                self.shrink_without_rows(state, 0.0);
                if state.active.len() < before {
                    // Positions have changed.
                    set.clear();
                    continue;
                }
            }
            self.control.spend(ITERATION);
            let largest = if round < SMALL_BLOCK_ROUNDS { SMALL_BLOCK } else { LARGE_BLOCK };
            let largest = if expensive { largest / 2 } else { largest };
            // All at once where they fit.
            let least = if state.active.len() <= largest || n > FEW { largest } else { FIRST_BLOCK.min(largest) };
            let size = wanted.clamp(least, largest).min(most).min(self.affordable(state));
            if size == 0 {
                return StepsEnd::Stopped(Status::TimeLimit);
            }
            let next = select_block(state, &extremes, size, &set);
            let m = next.len();
            if next != set {
                set = next;
                let rows: Vec<u32> =
                    set.iter().map(|&a| self.problem.row(state.active[a as usize] as usize) as u32).collect();
                if buffer.len() < m * m {
                    // Freed before the larger one is allocated.
                    drop(std::mem::take(&mut buffer));
                    // With room for the next ones, within the same share of the memory.
                    let side = m.next_power_of_two().min(largest).min(most);
                    buffer = pages::zeros(side * side);
                }
                let block = &mut buffer[..m * m];
                // Entries of a selection are computed without looking up columns one by one.
                let computed = match self.gram.select(&rows) {
                    Some(part) => T::block(&*part, Pick::All, Pick::All, block, self.control),
                    None => T::block(self.gram, Pick::List(&rows), Pick::List(&rows), block, self.control),
                };
                if let Err(why) = computed {
                    return StepsEnd::Stopped(why.into());
                }
            }
            let mut subproblem = state.subproblem(&set);
            let ended = self.solve_block(&mut subproblem, &buffer[..m * m], until, m < state.active.len());
            let moved = match self.apply_block(state, &set, &subproblem) {
                Ok(moved) => moved,
                Err(why) => return StepsEnd::Stopped(why.into()),
            };
            match ended {
                Err(status) => return StepsEnd::Stopped(status),
                Ok(()) if moved == 0 => return StepsEnd::Stuck,
                Ok(()) => wanted = PER_MOVED * moved,
            }
        }
        unreachable!("the loop has no other end")
    }

    /// Number of variables whose product with all rows, and whose share of the certificate that follows, fit into a
    /// quarter of the time left, on a slow processor; 0 once the certificate of the present support vectors takes all
    /// of it.
    fn affordable(&self, state: &DualState) -> usize {
        /// Seconds per multiply–add.
        const MULTIPLY_ADD: f64 = 4e-11;
        /// Seconds per entry besides its multiply–adds.
        const ENTRY: f64 = 2e-9;
        let Some(left) = self.control.remaining() else { return usize::MAX };
        let effort = self.gram.effort().min(1e6);
        let entry = (MULTIPLY_ADD * effort + ENTRY) / self.control.threads.count() as f64;
        // Double precision takes twice as long.
        let rows = self.problem.gram.shape().0 as f64;
        let support = state.beta.iter().filter(|b| **b != 0.0).count() as f64;
        let left = left - 2.0 * entry * rows * support;
        if left <= 0.0 { 0 } else { ((0.25 * left / (3.0 * entry * rows)) as usize).max(16) }
    }

    /// Applies the moves of a block to all variables; how many moved.
    fn apply_block(&mut self, state: &mut DualState, set: &[u32], part: &DualState) -> Result<usize, Interrupt> {
        let (mut changed, mut delta) = (Vec::new(), Vec::new());
        for (k, &a) in set.iter().enumerate() {
            let (i, a) = (state.active[a as usize], a as usize);
            let d = part.beta[k] - state.beta[i as usize];
            if d != 0.0 {
                changed.push(i);
                delta.push(d);
                state.beta[i as usize] = part.beta[k];
                state.g[a] += state.terms[i as usize].d * d;
                state.refresh(a);
            }
        }
        if set.len() == state.active.len() {
            // The block holds all active variables, so that its gradient is theirs.
            state.g.copy_from_slice(&part.g);
            return Ok(changed.len());
        }
        let product = self.product(state, &changed, &delta)?;
        state.g.iter_mut().zip(&product).for_each(|(g, p)| *g += p);
        Ok(changed.len())
    }
}

/// Positions of up to `size` variables, ascending: half of them those that violate most, the rest from the block
/// before, free ones first, so that the new variables do not undo what was optimised there.
///
/// Under a constraint a variable can only move against another: each group contributes as many variables that violate
/// upwards as downwards. Ties, which all variables are at the start, are broken by a hash: files are often sorted by
/// class.
fn select_block(state: &DualState, extremes: &[Extremes], size: usize, before: &[u32]) -> Vec<u32> {
    let n = state.active.len();
    if n <= size {
        return (0..n as u32).collect();
    }
    let fresh = if before.is_empty() { size } else { size - size / 2 };
    let mut chosen = vec![false; n];
    let mut count = 0;
    let mut left: Vec<Violator> = Vec::new();
    let share = fresh / (2 * state.ranges.len().max(1));
    for (&(from, to), e) in state.ranges.iter().zip(extremes) {
        let middle = if state.paired { 0.5 * (e.up + e.down) } else { 0.0 };
        let (mut upwards, mut downwards): (Vec<Violator>, Vec<Violator>) = (Vec::new(), Vec::new());
        for a in from..to {
            let (up, down) = (middle - state.g[a] - state.up[a], state.g[a] + state.down[a] - middle);
            let violation = up.max(down);
            if violation > 0.0 {
                let violator = Violator { violation, hash: hash(state.active[a]), position: a as u32 };
                if up >= down { upwards.push(violator) } else { downwards.push(violator) }
            }
        }
        if !state.paired {
            left.append(&mut upwards);
            left.append(&mut downwards);
            continue;
        }
        for mut side in [upwards, downwards] {
            let most = worst_first(&mut side, share);
            let rest = side.split_off(most);
            side.iter().for_each(|v| chosen[v.position as usize] = true);
            count += side.len();
            left.extend(rest);
        }
    }
    let most = worst_first(&mut left, fresh - count);
    left[..most].iter().for_each(|v| chosen[v.position as usize] = true);
    count += most;
    for want_free in [true, false] {
        for &a in before {
            if count < size && !chosen[a as usize] && state.is_free(state.active[a as usize] as usize) == want_free {
                chosen[a as usize] = true;
                count += 1;
            }
        }
    }
    (0..n as u32).filter(|&a| chosen[a as usize]).collect()
}

/// By how much the variable at a position violates.
struct Violator {
    violation: f64,
    hash: u32,
    position: u32,
}

/// Moves the worst `count` violators to the front, or all if there are fewer; returns how many.
fn worst_first(list: &mut [Violator], count: usize) -> usize {
    if list.len() > count && count > 0 {
        list.select_nth_unstable_by(count - 1, |x, y| y.violation.total_cmp(&x.violation).then(x.hash.cmp(&y.hash)));
    }
    count.min(list.len())
}

/// A pseudorandom permutation of the 32-bit numbers.
pub(super) fn hash(i: u32) -> u32 {
    let i = (i ^ (i >> 16)).wrapping_mul(0x7feb_352d);
    let i = (i ^ (i >> 15)).wrapping_mul(0x846c_a68b);
    i ^ (i >> 16)
}
