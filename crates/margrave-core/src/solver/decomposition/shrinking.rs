//! Shrinking (paper 001): variables that look settled at a bound take no part for a while.

use super::rows::{KernelRows, StoredEntry};
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::Interrupt;
use crate::gram::{Gram, Pick, Precision};
use crate::linalg::sweep::{self, Extremes};

/// Marks a variable without a position.
const NONE: u32 = u32::MAX;

/// Rows over the active variables only, and what is needed to make all variables active again.
pub(super) struct Shrunk<'a, T> {
    pub(super) rows: KernelRows<T>,
    /// Positions of the active variables among all.
    pub(super) positions: Vec<u32>,
    /// Rows of K of the active variables.
    pub(super) numbers: Vec<u32>,
    /// K over the active variables, where the Gram offers it.
    pub(super) active_gram: Option<Box<dyn Gram + 'a>>,
    /// β and gradient of all variables when the first were shrunk, by variable.
    beta: Vec<f64>,
    gradient: Vec<f64>,
    /// Position of each variable among the active ones, or NONE.
    pub(super) place: Vec<u32>,
}

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Deactivates variables that are at a bound (or at zero inside the tube) and would stay there whichever of the
    /// present violators moved. `true` if any were. Only when a fifth or more go: compacting rows costs time.
    pub(super) fn shrink(&mut self, state: &mut DualState, extremes: &[Extremes]) -> bool {
        let keep = unsettled(state, extremes, 0.0);
        if keep.len() * 5 > state.active.len() * 4 {
            return false;
        }
        self.restrict_to(state, &keep, true);
        true
    }

    /// Deactivates variables that are farther than `margin` from a reason to move, without storing shorter rows for the
    /// others. Only when a fifth or more go.
    pub(super) fn shrink_without_rows(&mut self, state: &mut DualState, margin: f64) {
        if !self.shrinking {
            return;
        }
        let keep = unsettled(state, &state.extremes(), margin);
        if keep.len() * 5 <= state.active.len() * 4 {
            self.restrict_to(state, &keep, false);
        }
    }

    /// Leaves only the given positions active. `store_rows`: pair steps follow, which need rows over the active
    /// variables.
    pub(super) fn restrict_to(&mut self, state: &mut DualState, keep: &[u32], store_rows: bool) {
        let n = state.terms.len();
        let active: Vec<u32> = keep.iter().map(|&a| state.active[a as usize]).collect();
        let before = self.shrunk.take();
        let (beta, gradient, all) = match before {
            // The first shrinking remembers β and gradient of all variables.
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
        let active_gram = if distinct && store_rows { self.gram.select(&numbers) } else { None };
        let rows = if store_rows {
            // If the store of full rows had to drop some, or takes half the memory, it makes way for the shorter rows.
            if !self.full_rows.has_unused_slots() || self.full_rows.bytes() > self.bytes / 2 {
                self.full_rows = KernelRows::new(n, n, self.bytes);
            }
            KernelRows::new(n, active.len(), self.bytes - self.full_rows.bytes())
        } else {
            KernelRows::new(n, 1, 0)
        };
        self.shrunk = Some(Shrunk { rows, positions, numbers, active_gram, beta, gradient, place });
    }

    /// Activates more variables: after it exactly the `wanted` ones, which include those active now, are active.
    pub(super) fn expand_to(&mut self, state: &mut DualState, mut wanted: Vec<u32>) -> Result<(), Interrupt> {
        let Some(shrunk) = self.shrunk.take() else { return Ok(()) };
        let n = state.terms.len();
        let new: Vec<u32> = wanted.iter().copied().filter(|&i| shrunk.place[i as usize] == NONE).collect();
        let mut gradient = shrunk.gradient.clone();
        state.active.iter().zip(&state.g).for_each(|(&i, g)| gradient[i as usize] = *g);
        // Only active variables have moved.
        let mut v = vec![0.0; self.problem.gram.shape().1];
        for &i in &state.active {
            let by = state.beta[i as usize] - shrunk.beta[i as usize];
            v[self.problem.row(i as usize)] += by;
            self.gradient_error += self.entry_error * by.abs();
        }
        let rows: Vec<u32> = new.iter().map(|&i| self.problem.row(i as usize) as u32).collect();
        let mut moved = vec![0.0; new.len()];
        let changed = |i: &&u32| state.beta[**i as usize] != shrunk.beta[**i as usize];
        let changed: Vec<u32> = state.active.iter().filter(changed).copied().collect();
        let applied = if self.columns.is_none() && changed.iter().all(|&i| self.full_rows.has(i as usize)) {
            let by = |&i: &u32| state.beta[i as usize] - shrunk.beta[i as usize];
            let delta: Vec<f64> = changed.iter().map(by).collect();
            self.full_rows.add_to(&changed, &delta, Some(&rows), &mut moved, &self.control.threads);
            Ok(())
        } else {
            let precision = if size_of::<T>() == 4 { Precision::Single } else { Precision::Double };
            self.gram.apply(precision, Pick::List(&rows), &v, 1, &mut moved, self.control)
        };
        new.iter().zip(&moved).for_each(|(&i, moved)| gradient[i as usize] += moved);
        if applied.is_err() {
            self.shrunk = Some(shrunk);
            return applied;
        }
        let mut all: Vec<u32> = (0..n as u32).collect();
        all.sort_by_key(|&i| (state.group[i as usize], i));
        let mut position = vec![NONE; n];
        all.iter().enumerate().for_each(|(a, &i)| position[i as usize] = a as u32);
        wanted.sort_unstable();
        state.activate(wanted, gradient);
        let mut place = vec![NONE; n];
        state.active.iter().enumerate().for_each(|(a, &i)| place[i as usize] = a as u32);
        self.shrunk = Some(Shrunk {
            positions: state.active.iter().map(|&i| position[i as usize]).collect(),
            numbers: state.active.iter().map(|&i| self.problem.row(i as usize) as u32).collect(),
            place,
            ..shrunk
        });
        Ok(())
    }

    /// Undoes all moves since the first variables were shrunk, and makes all active.
    pub(super) fn return_to_start(&mut self, state: &mut DualState) {
        let Some(shrunk) = self.shrunk.take() else { return };
        state.beta = shrunk.beta;
        state.activate((0..state.terms.len() as u32).collect(), shrunk.gradient);
    }

    /// Makes all variables active again: shrunk ones get the gradient they had, plus the effect of what moved since.
    pub(super) fn reactivate_all(&mut self, state: &mut DualState) -> Result<(), Interrupt> {
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

/// Positions of the variables that are free, or come within `margin` of a reason to move.
pub(super) fn unsettled(state: &DualState, extremes: &[Extremes], margin: f64) -> Vec<u32> {
    let mut keep: Vec<u32> = Vec::with_capacity(state.active.len());
    for (&(from, to), e) in state.ranges.iter().zip(extremes) {
        let (least, most) = if state.paired { (e.up - margin, e.down + margin) } else { (-margin, margin) };
        for a in from..to {
            // Slopes on both sides point away from moving, beyond every present violator.
            let settled = state.g[a] + state.up[a] > most && state.g[a] + state.down[a] < least;
            if !settled || state.is_free(state.active[a] as usize) {
                keep.push(a as u32);
            }
        }
    }
    keep
}
