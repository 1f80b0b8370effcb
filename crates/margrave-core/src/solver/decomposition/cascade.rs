//! A start without pair steps: set Newton rounds on ever more variables.
//!
//! The first level has a small part of the variables, in pseudorandom order; each further level twice as many, and starts
//! from the solution of the one before. Where most support vectors end up free, nearly all of the work is products of
//! K_FF that all cores share, and no gradient of variables outside the level is computed on the way.
//!
//! It does not pay off where many variables end up at their bounds, because every level then releases thousands that
//! all go to the bound, or where K_FF is badly conditioned. One round on the first level tells.

use super::blocks::hash;
use super::newton::Newton;
use super::polish::PolishEnd;
use super::rows::StoredEntry;
use super::set_newton::{SetGoal, SetNewton};
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::Status;

/// Variables of the first level.
const FIRST_LEVEL: usize = 1500;
/// The next level is the last if it would have at least this share of all variables.
const LAST_LEVEL: f64 = 0.77;
/// The cascade goes on if a smaller share of the free variables leaves in the first round.
const FEW_LEAVE: f64 = 0.3;
/// A level ends at this share of the first violation.
const LEVEL_GOAL: f64 = 0.25;

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Levels up to all variables, which are active afterwards. `Slow` if the cascade does not pay off: the state is
    /// then what it was, or, from the second level on, better. `Reached` if all levels were done.
    pub(super) fn cascade(
        &mut self,
        state: &mut DualState,
        sets: &mut SetNewton,
        newton: &mut Newton<T>,
        most_factored: usize,
    ) -> Result<PolishEnd, Status> {
        let n = state.terms.len();
        if n < 2 * FIRST_LEVEL || state.active.len() < n {
            return Ok(PolishEnd::Slow);
        }
        let first = state.violation(&state.extremes());
        let goal = SetGoal {
            violation: LEVEL_GOAL * first,
            most_factored,
            shrink: false,
            unless_stiff: true,
            most_leave: FEW_LEAVE,
        };
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_unstable_by_key(|&i| (hash(i), i));
        let mut size = FIRST_LEVEL;
        let mut positions: Vec<u32> = {
            let mut place = vec![0u32; n];
            state.active.iter().enumerate().for_each(|(a, &i)| place[i as usize] = a as u32);
            order[..size].iter().map(|&i| place[i as usize]).collect()
        };
        positions.sort_unstable();
        self.restrict_to(state, &positions, false);
        let probe = self.probe(state, sets, newton, &goal);
        if !matches!(probe, Ok(share) if share < FEW_LEAVE) {
            self.return_to_start(state);
            return probe.map(|_| PolishEnd::Slow);
        }
        loop {
            let end = self.set_newton(state, sets, newton, &SetGoal { most_leave: 1.0, ..goal });
            if end != PolishEnd::Reached || size == n {
                self.reactivate_all(state)?;
                return Ok(end);
            }
            size = if (2 * size) as f64 >= LAST_LEVEL * n as f64 { n } else { 2 * size };
            if size == n {
                self.reactivate_all(state)?;
                return Ok(PolishEnd::Reached);
            }
            self.expand_to(state, order[..size].to_vec())?;
        }
    }
}
