//! Pair steps inside a block, on K over its variables.
//!
//! The one part of a training that runs on one core. A step is two passes over the block: with slopes in single
//! precision they take little more than half the time. β is exact all the same, and the slopes of all variables are
//! computed from its change when the block is done.

use super::blocks::POLL_INTERVAL;
use super::pairs;
use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::Status;
use crate::linalg::sweep::Extremes;
use crate::linalg::sweep_single;

/// The violation inside a block is reduced to this share.
const BLOCK_REDUCTION: f64 = 0.1;
/// Steps inside a block at most, per variable.
const STEPS_PER_VARIABLE: u64 = 10;
/// Slopes are in single precision if the goal is at least this share of the largest: rounding errors of some ten thousand
/// steps add up to less.
const COARSE_GOAL: f64 = 1e-4;

/// The slopes of a block in single precision.
struct SingleSlopes {
    g: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
}

impl SingleSlopes {
    fn new(part: &DualState) -> Self {
        let single = |values: &[f64]| values.iter().map(|v| *v as f32).collect();
        Self { g: single(&part.g), up: single(&part.up), down: single(&part.down) }
    }

    /// One step on the pair that violates most; `false` if nothing moved.
    fn step<T: StoredEntry>(&mut self, part: &mut DualState, e: &mut [Extremes], block: &[T], m: usize) -> bool {
        let row = |a: usize| &block[a * m..(a + 1) * m];
        let group = pairs::worst_group(e);
        let a = e[group].up_at;
        let ((from, to), own) = (part.ranges[group], part.diag[a]);
        let found = sweep_single::best_partner(
            &self.g[from..to],
            &self.down[from..to],
            &row(a)[from..to],
            &part.diag[from..to],
            own,
            e[group].up as f32,
            pairs::least_curvature(own),
        );
        let Some(b) = found.map(|b| b + from) else { return false };
        let slope = f64::from(self.g[a] + self.up[a]) - f64::from(self.g[b] + self.down[b]);
        let Some((di, dj)) = pairs::step_along_pair(part, (a, b), slope, row(a)[b].wide()) else { return false };
        for (at, by) in [(a, di), (b, dj)] {
            self.g[at] += (part.terms[part.active[at] as usize].d * by) as f32;
            (self.up[at], self.down[at]) = (part.up[at] as f32, part.down[at] as f32);
        }
        for (k, &(from, to)) in part.ranges.iter().enumerate() {
            let (up, down) = (&self.up[from..to], &self.down[from..to]);
            let (ki, kj) = (&row(a)[from..to], &row(b)[from..to]);
            e[k] = sweep_single::update_pair(&mut self.g[from..to], ki, di as f32, kj, dj as f32, up, down);
            e[k].up_at += from;
            e[k].down_at += from;
        }
        true
    }
}

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Pair steps among the variables of a block. `rough`: the slopes afterwards do not matter.
    pub(super) fn solve_block(
        &mut self,
        part: &mut DualState,
        block: &[T],
        until: f64,
        rough: bool,
    ) -> Result<(), Status> {
        let m = part.active.len();
        let mut e = part.extremes();
        let goal = (BLOCK_REDUCTION * part.violation(&e)).max(0.5 * until);
        let largest = part.g.iter().fold(0.0f64, |w, g| w.max(g.abs()));
        let single = rough && part.paired && size_of::<T>() == 4 && goal >= COARSE_GOAL * largest && largest < 1e30;
        let mut slopes = single.then(|| SingleSlopes::new(part));
        for step in 0..STEPS_PER_VARIABLE * m as u64 {
            if part.violation(&e) <= goal {
                break;
            }
            if self.iterations >= self.iteration_limit {
                return Err(Status::IterationLimit);
            }
            if step % POLL_INTERVAL == POLL_INTERVAL - 1 {
                self.control.check().map_err(Status::from)?;
            }
            let row = |a: usize| &block[a * m..(a + 1) * m];
            let moved = if let Some(slopes) = &mut slopes {
                slopes.step(part, &mut e, block, m)
            } else if part.paired {
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
            self.control.spend(pairs::multiply_adds(m));
            self.iterations += 1;
        }
        Ok(())
    }
}
