//! Searching a grid by cross validation.
//!
//! Rows are put in the order of their folds once. What the kernels are functions of, inner products or squared distances,
//! is computed once for all γ, and the Gram matrix of each γ follows in one pass, in single precision, for all folds,
//! costs and losses (where n² numbers fit into the memory; rows on demand elsewhere). Machines with a box-quadratic dual are
//! trained on that matrix where it lies, and the scores of the held-out rows come with the solution. A fold is walked along
//! ascending C, each machine starting from the one before or from its own on another fold. Kernels and folds run side by side.
//! Hopeless combinations are left out after some folds (see [`Tuner::race`]). Scaling, if asked for, is learnt from
//! all rows: it does not look at targets. Nothing depends on the number of threads.

mod fold;
mod grid;
mod order;
mod race;
mod search;

use std::time::Instant;

use crate::data::{Dataset, Scaling};
use crate::observe::{Begin, Observer, Step};
use crate::problem::Task;
use crate::{Control, Error, Result, Status};

use self::order::Ordered;
use self::search::Search;
use crate::train::options::{Tradeoff, TrainOptions};
use crate::train::plan::{check, check_tunable, formulation_of, loss_of};
use crate::train::prepared::Prepared;
use crate::train::{Fit, LossChoice, Plan};

pub use self::grid::{Cell, Grid, Params};

/// A finished search.
#[derive(Debug, Clone)]
pub struct Tuned {
    /// All combinations, in the order of the grid: kernel, γ, loss, ε, ν, C.
    pub cells: Vec<Cell>,
    /// The best of those that have seen most folds: of equals the one of least C (largest λ), then of least γ. `None` if
    /// there was no time for a single fold of one.
    pub best: Option<usize>,
    /// How it ended.
    pub status: Status,
    /// Seconds in all.
    pub seconds: f64,
}

/// A search: a machine, a grid, folds.
#[derive(Debug, Clone)]
pub struct Tuner {
    /// What is common to all cells.
    pub options: TrainOptions,
    /// What is tried.
    pub grid: Grid,
    /// Folds, at least 2.
    pub folds: usize,
    /// Rows of one group stay together: the group of each row.
    pub groups: Option<Vec<u32>>,
    /// The fold of each row, a number below `folds`, in place of dealing them: `groups` and the seed then count for nothing.
    pub fold_of: Option<Vec<u32>>,
    /// How much each row counts in the score of its fold; `None`: all the same.
    pub counts: Option<Vec<f64>>,
    /// Leave a combination out once its losses on the held-out rows exceed those of the best so far by this many deviations of
    /// the difference; looked at after each fold, in grids of four kernels (values of γ) or more. `None`:
    /// every combination sees every fold. With 4, the default, the chance that the combination that would have won is left
    /// out is about 3·10⁻⁵ for each look and each rival that could have led, if rows are independent.
    pub race: Option<f64>,
    /// Cells known from an earlier search with the same data, folds and seed: finished, left out, or with some folds done.
    pub known: Vec<Cell>,
}

impl Tuner {
    /// A search with five folds and a race.
    pub fn new(options: impl Into<TrainOptions>, grid: Grid) -> Self {
        let options = options.into();
        Self { options, grid, folds: 5, groups: None, fold_of: None, counts: None, race: Some(4.0), known: Vec::new() }
    }

    /// The machine of a combination.
    pub fn machine(&self, params: &Params) -> TrainOptions {
        let mut options = TrainOptions { kernel: params.kernel, gamma: None, ..self.options.clone() };
        if let Some(c) = params.c {
            options.tradeoff = Tradeoff::Cost(c);
        }
        if let Some(lambda) = params.lambda {
            options.tradeoff = Tradeoff::Lambda(lambda);
        }
        if let Some(loss) = params.loss {
            options.loss = LossChoice::Spec(loss);
        }
        options.epsilon = params.epsilon.or(options.epsilon);
        options.nu = params.nu.or(options.nu);
        options
    }

    /// Searches.
    pub fn search(&self, data: &Dataset, observer: &mut dyn Observer) -> Result<Tuned> {
        let begun = Instant::now();
        let options = &self.options;
        options.budget.check()?;
        options.stop.check()?;
        if options.task == Task::Novelty {
            return Err(Error::data("novelty detection has no targets to score by: there is nothing to tune"));
        }
        check_tunable(options)?;
        let mut control = Control::start(&options.budget, options.threads.clone()).with_device(options.device);
        if let Some(flag) = &options.cancel {
            control = control.with_cancel(flag.clone());
        }
        let points = match options.scale {
            Some(kind) => Scaling::fit(kind, &data.points).apply(&data.points)?,
            None => data.points.clone(),
        };
        let prepared = Prepared::new(options.task, data, points, &options.class_weight, None)?;
        let by_kernel = self.params(&prepared.points)?;
        // Every combination is looked at before anything is computed.
        for params in by_kernel.iter().flatten() {
            let machine = self.machine(params);
            let (loss, _) = loss_of(&machine)?;
            let formulation = formulation_of(&machine, data.len())?;
            check(&machine, &machine.kernel, &formulation, loss.as_ref())?;
        }
        if let Some(z) = self.race
            && !(z > 0.0)
        {
            return Err(Error::option("race", z, "a number of deviations > 0"));
        }
        let ordered = Ordered::new(self, &prepared)?;
        let n = prepared.points.len();
        let flow = observer.begin(&Begin { solver: "tune", n, tol: options.stop.tol, gap: options.stop.gap });
        let mut search = Search::new(self, &prepared, &ordered, by_kernel);
        let stopped = search.run(&control, observer, flow.is_break())?;
        let cells: Vec<Cell> = search.cells.into_iter().map(|p| p.cell).collect();
        let best = choose(&cells);
        let status = match control.check() {
            Err(why) => why.into(),
            Ok(()) if stopped => Status::Interrupted,
            Ok(()) => Status::Optimal,
        };
        let seconds = begun.elapsed().as_secs_f64();
        observer.finish(status, &Step { seconds, phase: "done", fraction: Some(1.0), ..Step::default() });
        Ok(Tuned { cells, best, status, seconds })
    }

    /// Trains the machine of a combination on all rows.
    pub fn refit(&self, params: &Params, data: &Dataset, observer: &mut dyn Observer) -> Result<Fit> {
        Plan::new(&self.machine(params), data)?.train(observer)
    }
}

/// The best cell of those that have seen most folds.
fn choose(cells: &[Cell]) -> Option<usize> {
    let key = |at: usize| {
        let p = &cells[at].params;
        // A larger λ is a smaller C.
        (p.c.or(p.lambda.map(|l| 1.0 / l)).unwrap_or(0.0), p.kernel.gamma().unwrap_or(0.0))
    };
    let mut best: Option<(usize, f64)> = None;
    let most = cells.iter().filter(|cell| !cell.dropped).map(|cell| cell.folds.len()).max().unwrap_or(0);
    for (at, cell) in cells.iter().enumerate().filter(|(_, cell)| !cell.dropped && cell.folds.len() == most) {
        let Some(score) = cell.seen() else { continue };
        let better = best.is_none_or(|(other, top)| score > top || score == top && key(at) < key(other));
        if better {
            best = Some((at, score));
        }
    }
    best.map(|(at, _)| at)
}
