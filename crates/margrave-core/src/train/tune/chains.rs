//! The trainings of a search on a device that does many side by side.
//!
//! All combinations are trained on all folds at once: those that a race would drop cost no time, as they run beside the
//! others. A point that the device reached is judged like any other (`FoldTrainer::at_points`); where it fell short,
//! its β is the start of a training here.

use std::collections::HashMap;

use crate::Result;
use crate::control::Control;
use crate::data::Points;
use crate::gram::{ChainLink, ChainPoint, ChainSolver, ProblemChain};
use crate::kernel::Kernel;

use super::Params;
use super::fold::FoldTrainer;
use super::grid::{cost_of, same_but_cost};

/// The points that a device has reached for the machines of a cell on a fold.
#[derive(Debug, Default)]
pub(super) struct Reached(HashMap<(usize, usize), Vec<ChainPoint>>);

impl Reached {
    /// Whether no device has trained anything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The points of a cell on a fold, one per machine; empty if there are none.
    pub(super) fn of(&self, cell: usize, fold: usize) -> &[ChainPoint] {
        self.0.get(&(cell, fold)).map_or(&[], Vec::as_slice)
    }

    /// Whether all machines of a cell on a fold reached what was asked.
    pub(super) fn all(&self, cell: usize, fold: usize) -> bool {
        self.0.get(&(cell, fold)).is_some_and(|points| points.iter().all(|point| point.reached))
    }
}

/// What is to be trained on a device.
pub(super) struct ChainRequest<'a> {
    pub(super) trainer: &'a FoldTrainer<'a>,
    /// The parameters of a cell.
    pub(super) params: &'a dyn Fn(usize) -> &'a Params,
    /// The number of folds a cell has completed.
    pub(super) done: &'a dyn Fn(usize) -> usize,
    /// The cells of each kernel that are not complete.
    pub(super) pending: &'a [Vec<usize>],
    /// Bytes that the points may take.
    pub(super) memory: u64,
}

/// A chain: its fold, the machine of each cell that it trains, and its cells.
struct Place {
    fold: usize,
    machine: usize,
    cells: Vec<usize>,
}

impl ChainRequest<'_> {
    /// Trains everything that the device can train.
    pub(super) fn solve(
        &self,
        device: &dyn ChainSolver,
        points: &Points,
        kernels: &[Kernel],
        control: &Control,
    ) -> Result<Reached> {
        let (mut chains, mut places) = (Vec::new(), Vec::new());
        let (n, mut links) = (points.len(), 0u64);
        for (kernel, cells) in self.pending.iter().enumerate() {
            for fold in 0..self.trainer.ordered.folds() {
                let open: Vec<usize> = cells.iter().copied().filter(|&cell| (self.done)(cell) <= fold).collect();
                for run in open.chunk_by(|&a, &b| same_but_cost((self.params)(a), (self.params)(b))) {
                    let Some(made) = self.run(run, fold)? else { continue };
                    for (machine, own) in made.into_iter().enumerate() {
                        links += own.len() as u64;
                        chains.push(ProblemChain {
                            kernel,
                            links: own,
                            steps: 2 * n as u64 + 2000,
                            more: 12 * n as u64,
                        });
                        places.push(Place { fold, machine, cells: run.to_vec() });
                    }
                    // β and scores of every link.
                    if links * 16 * n as u64 > self.memory {
                        return Ok(Reached::default());
                    }
                }
            }
        }
        if chains.is_empty() {
            return Ok(Reached::default());
        }
        let Some(found) = device.solve(points, kernels, &chains, control) else { return Ok(Reached::default()) };
        let mut reached = Reached::default();
        // Machines come in order, so that each is appended to those before it.
        for (place, found) in places.iter().zip(found) {
            for (&cell, point) in place.cells.iter().zip(found) {
                let own = reached.0.entry((cell, place.fold)).or_default();
                debug_assert_eq!(own.len(), place.machine);
                own.push(point);
            }
        }
        Ok(reached)
    }

    /// The links of each machine of cells that differ in their costs only.
    fn run(&self, cells: &[usize], fold: usize) -> Result<Option<Vec<Vec<ChainLink>>>> {
        let (from, to) = self.trainer.ordered.held_out(fold);
        let kept = self.trainer.ordered.rows.len() - (to - from);
        let mut machines: Vec<Vec<ChainLink>> = Vec::new();
        let mut before: Option<f64> = None;
        for &cell in cells {
            let params = (self.params)(cell);
            let cost = cost_of(params, kept);
            let ratio = before.map_or(1.0, |last| cost / last);
            before = Some(cost);
            let Some(links) = self.trainer.links(params, fold, ratio)? else { return Ok(None) };
            machines.resize_with(links.len(), Vec::new);
            machines.iter_mut().zip(links).for_each(|(own, link)| own.push(link));
        }
        Ok(Some(machines))
    }
}
