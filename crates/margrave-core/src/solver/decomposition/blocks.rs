//! Block steps: many variables at a time, none of their rows kept.
//!
//! A round picks the variables that violate most, computes K over them alone, and takes pair steps among them until they
//! are nearly at rest; the gradient of all variables then follows in one product that stores nothing. A pair step costs a
//! pass over the block instead of one over everybody, which stays in cache, and all cores share block and product. Next to
//! pairs over all variables that costs more steps and more kernel entries, but no memory traffic: a kernel entry is
//! computed in less time than a fresh page of memory is handed out, or a row fetched back from it.
//!
//! Cost a round: q² + n·(variables that moved) kernel entries, q a step. Memory: q² entries.

use super::pairs::{self, End, Work};
use super::polish::DEAR;
use super::rows::Stored;
use super::state::State;
use crate::control::{Interrupt, Status};
use crate::gram::Pick;
use crate::linalg::pages;
use crate::linalg::sweep::Extremes;
use crate::work_limit::ITERATION;

/// Variables of a block in the first rounds, and later: few rounds are the mark of an easy problem, for which small blocks
/// waste less. Half of it where entries are dear.
const SIZE: (usize, usize) = (2048, 4096);
/// Rounds with small blocks.
const EASY: usize = 12;
/// The violation inside a block is brought down to this share of what it was.
const DEPTH: f64 = 0.1;
/// Steps inside a block at most, a variable.
const STEPS: u64 = 10;
/// Rounds between two looks at who may be set aside.
const SHRINK: usize = 3;
/// Steps between two looks at the clock.
const POLL: u64 = 512;

impl<T: Stored> Work<'_, '_, T> {
    /// Rounds until the violation of the active variables is at most `until`. Those far from moving are set aside on the way.
    pub(super) fn blocks(&mut self, state: &mut State, until: f64) -> End {
        let n = state.terms.len();
        // A quarter of the memory is enough to be quick, and leaves room for what comes after.
        let most = ((self.bytes / 4) as f64 / size_of::<T>() as f64).sqrt().max(64.0) as usize;
        let dear = self.gram.effort() >= DEAR;
        let patience = 20 * n as u64 + 2000;
        let (mut milestone, mut milestone_at) = (f64::INFINITY, self.iterations);
        let mut set: Vec<u32> = Vec::new();
        let mut buffer: Vec<T> = Vec::new();
        for round in 0.. {
            let extremes = state.extremes();
            let violation = state.violation(&extremes);
            if violation <= until || self.is_enough(state) {
                return End::Reached;
            }
            if violation < 0.5 * milestone {
                (milestone, milestone_at) = (violation, self.iterations);
            } else if self.iterations - milestone_at > patience {
                return End::Crawling;
            }
            if let Err(status) = self.report(state, "block", violation, false) {
                return End::Stopped(status);
            }
            if round % SHRINK == SHRINK - 1 {
                let before = state.active.len();
                self.narrow(state, 0.0);
                if state.active.len() < before {
                    // Positions have changed.
                    set.clear();
                    continue;
                }
            }
            self.control.spend(ITERATION);
            let size = if round < EASY { SIZE.0 } else { SIZE.1 };
            let size = if dear { size / 2 } else { size }.min(most).min(self.affordable(state));
            if size == 0 {
                return End::Stopped(Status::TimeLimit);
            }
            let next = pick(state, &extremes, size, &set);
            let m = next.len();
            if next != set {
                set = next;
                let rows: Vec<u32> =
                    set.iter().map(|&a| self.problem.row(state.active[a as usize] as usize) as u32).collect();
                if buffer.len() < m * m {
                    // Given back before more is asked for.
                    drop(std::mem::take(&mut buffer));
                    buffer = pages::zeros(m * m);
                }
                let block = &mut buffer[..m * m];
                if let Err(why) = T::block(self.gram, &rows, Pick::List(&rows), block, self.control) {
                    return End::Stopped(why.into());
                }
            }
            let mut part = state.part(&set);
            let ended = self.settle_block(&mut part, &buffer[..m * m], until);
            let moved = match self.take_over(state, &set, &part) {
                Ok(moved) => moved,
                Err(why) => return End::Stopped(why.into()),
            };
            match ended {
                Err(status) => return End::Stopped(status),
                Ok(()) if !moved => return End::Stuck,
                Ok(()) => {}
            }
        }
        unreachable!("the loop has no other end")
    }

    /// Variables whose product with everybody, and whose part in the certificate to follow, fit into a quarter of the time
    /// that is left, on a slow processor; 0 once the certificate of those in the expansion already takes all of it.
    fn affordable(&self, state: &State) -> usize {
        /// Seconds a multiply–add takes, and what an entry takes besides.
        const SECONDS: (f64, f64) = (4e-11, 2e-9);
        let Some(left) = self.control.remaining() else { return usize::MAX };
        let effort = self.gram.effort().min(1e6);
        let entry = (SECONDS.0 * effort + SECONDS.1) / self.control.threads.count() as f64;
        // Double precision takes twice as long.
        let rows = self.problem.gram.shape().0 as f64;
        let support = state.beta.iter().filter(|b| **b != 0.0).count() as f64;
        let left = left - 2.0 * entry * rows * support;
        if left <= 0.0 { 0 } else { ((0.25 * left / (3.0 * entry * rows)) as usize).max(16) }
    }

    /// Pair steps among the variables of a block.
    fn settle_block(&mut self, part: &mut State, block: &[T], until: f64) -> Result<(), Status> {
        let m = part.active.len();
        let mut e = part.extremes();
        let aim = (DEPTH * part.violation(&e)).max(0.5 * until);
        for step in 0..STEPS * m as u64 {
            if part.violation(&e) <= aim {
                break;
            }
            if self.iterations >= self.limit {
                return Err(Status::IterationLimit);
            }
            if step % POLL == POLL - 1 {
                self.control.check().map_err(Status::from)?;
            }
            let row = |a: usize| &block[a * m..(a + 1) * m];
            let moved = if part.paired {
                let group = pairs::worst_group(&e);
                let a = e[group].up_at;
                pairs::partner(part, &e[group], group, row(a))
                    .is_some_and(|b| pairs::move_pair(part, &mut e, (a, b), row(a), row(b)))
            } else {
                let a = pairs::steepest(&e[0]);
                pairs::move_one(part, &mut e, row(a))
            };
            if !moved {
                break;
            }
            self.control.spend(pairs::work_of(m));
            self.iterations += 1;
        }
        Ok(())
    }

    /// Brings what moved in a block to all variables; whether anything did.
    fn take_over(&mut self, state: &mut State, set: &[u32], part: &State) -> Result<bool, Interrupt> {
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
            // The block is everybody.
            state.g.copy_from_slice(&part.g);
            return Ok(!changed.is_empty());
        }
        let product = self.product(state, &changed, &delta)?;
        state.g.iter_mut().zip(&product).for_each(|(g, p)| *g += p);
        Ok(!changed.is_empty())
    }
}

/// Positions of up to `size` variables, ascending: half of them those that violate most, the rest from the block before,
/// free ones first, so that what was settled there is not upset by what comes in.
///
/// Under a constraint a variable can only move against another: as many that want to grow are taken as that want to fall, in every
/// group. Equal violations, which all are at the start, are told apart by a hash: files are often sorted by class.
fn pick(state: &State, extremes: &[Extremes], size: usize, before: &[u32]) -> Vec<u32> {
    let n = state.active.len();
    if n <= size {
        return (0..n as u32).collect();
    }
    let fresh = if before.is_empty() { size } else { size - size / 2 };
    let mut chosen = vec![false; n];
    let mut count = 0;
    let mut left: Vec<Wish> = Vec::new();
    let share = fresh / (2 * state.ranges.len().max(1));
    for (&(from, to), e) in state.ranges.iter().zip(extremes) {
        let middle = if state.paired { 0.5 * (e.up + e.down) } else { 0.0 };
        let (mut grow, mut fall): (Vec<Wish>, Vec<Wish>) = (Vec::new(), Vec::new());
        for a in from..to {
            let (up, down) = (middle - state.g[a] - state.up[a], state.g[a] + state.down[a] - middle);
            let pull = up.max(down);
            if pull > 0.0 {
                let wish = Wish { pull, hash: hash(state.active[a]), at: a as u32 };
                if up >= down { grow.push(wish) } else { fall.push(wish) }
            }
        }
        if !state.paired {
            left.append(&mut grow);
            left.append(&mut fall);
            continue;
        }
        for mut side in [grow, fall] {
            let most = worst_first(&mut side, share);
            let rest = side.split_off(most);
            side.iter().for_each(|wish| chosen[wish.at as usize] = true);
            count += side.len();
            left.extend(rest);
        }
    }
    let most = worst_first(&mut left, fresh - count);
    left[..most].iter().for_each(|wish| chosen[wish.at as usize] = true);
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
struct Wish {
    pull: f64,
    hash: u32,
    at: u32,
}

/// Moves up to `count` of those that violate most to the front: how many there are.
fn worst_first(list: &mut [Wish], count: usize) -> usize {
    if list.len() > count && count > 0 {
        list.select_nth_unstable_by(count - 1, |x, y| y.pull.total_cmp(&x.pull).then(x.hash.cmp(&y.hash)));
    }
    count.min(list.len())
}

/// A permutation of all numbers without order in it.
fn hash(i: u32) -> u32 {
    let i = (i ^ (i >> 16)).wrapping_mul(0x7feb_352d);
    let i = (i ^ (i >> 15)).wrapping_mul(0x846c_a68b);
    i ^ (i >> 16)
}
