//! Grid search by cross-validation.
//!
//! Rows are sorted by fold once. The statistics that kernels are functions of (inner products or squared distances) are
//! computed once for all γ. The Gram matrix of each γ then takes one pass, in single precision, and serves all folds, costs
//! and losses (if n² numbers fit in memory; otherwise rows are computed on demand). Machines with a box-quadratic dual are
//! trained on that matrix in place, and the scores of the held-out rows come with the solution. On each fold C ascends: every
//! machine is warm-started from the one for the previous C, or from its own on another fold. Kernels and folds run in
//! parallel. Combinations that fall too far behind are dropped after some folds (see [`Tuner::race`]). Scaling
//! and what stands for missing values are fitted on the training rows of each fold, so that held-out rows have no part in what
//! they are judged by; statistics and matrices are then computed once per fold. A rule for γ is resolved once, from all rows: a combination is a number. The
//! result does not depend on the number of threads.

mod chains;
mod fold;
mod grid;
mod judge;
mod order;
mod race;
mod remote;
mod search;

use std::time::Instant;

use crate::conflict::{OptionName, Remedy, With};
use crate::data::{Dataset, Scaling};
use crate::metrics::Metric;
use crate::observe::{Begin, Observer, Step};
use crate::problem::Task;
use crate::{Control, Error, Result, Status};

use self::judge::Judge;
use self::order::Ordered;
use self::search::{ByFold, Search};
use crate::train::options::{Tradeoff, TrainOptions};
use crate::train::plan::{check, check_tunable, formulation_of, loss_of};
use crate::train::prepared::Prepared;
use crate::train::{Fit, LossChoice, Plan};

pub use self::grid::{Cell, Grid, Params};
pub use self::judge::Comparison;
pub use self::remote::{Found, MachineState, Outcome, Remote, SearchTask};

/// A finished search.
#[derive(Debug, Clone)]
pub struct Tuned {
    /// All combinations, in the order of the grid: kernel, γ, loss, ε, ν, C.
    pub cells: Vec<Cell>,
    /// The best of those with the most folds completed; ties go to the smallest C (largest λ), then to the smallest γ. `None`
    /// if time ran out before any combination completed a fold.
    pub best: Option<usize>,
    /// How it ended.
    pub status: Status,
    /// Total seconds.
    pub seconds: f64,
    /// The scores of the held-out rows of each cell and fold, n × outputs, rows ascending; empty unless
    /// [`Tuner::keep_scores`].
    pub scores: Vec<Vec<Vec<f64>>>,
}

/// A grid search: options, a grid, folds.
#[derive(Debug, Clone)]
pub struct Tuner {
    /// The options that all cells share.
    pub options: TrainOptions,
    /// The values to try.
    pub grid: Grid,
    /// Folds, at least 2.
    pub folds: usize,
    /// Rows of one group stay together: the group of each row.
    pub groups: Option<Vec<u32>>,
    /// The fold of each row, a number below `folds`, instead of a random assignment: `groups` and the seed are then ignored.
    pub fold_of: Option<Vec<u32>>,
    /// How much each row counts in the score of its fold; `None`: all equally.
    pub counts: Option<Vec<f64>>,
    /// Drop a combination once its losses on the held-out rows exceed those of the best so far by this many standard deviations
    /// of the difference. Checked after each fold, in grids of at least four kernels (values of γ). `None`: every combination
    /// is trained on every fold. With 4, the default, the probability that the combination that would have won is dropped is
    /// about 3·10⁻⁵ per check and per rival that could have led, if rows are independent. A device that trains combinations side by
    /// side trains them all.
    pub race: Option<f64>,
    /// What to choose by; `None`: accuracy, or the mean squared error. A race compares combinations as [`Comparison::of`] says.
    pub score: Option<Metric>,
    /// Return the scores of the held-out rows.
    pub keep_scores: bool,
    /// Cells from an earlier search with the same data, folds and seed: finished, dropped, or with some folds completed.
    pub known: Vec<Cell>,
}

impl Tuner {
    /// A search with five folds and a race.
    pub fn new(options: impl Into<TrainOptions>, grid: Grid) -> Self {
        let options = options.into();
        Self {
            options,
            grid,
            folds: 5,
            groups: None,
            fold_of: None,
            counts: None,
            race: Some(4.0),
            score: None,
            keep_scores: false,
            known: Vec::new(),
        }
    }

    /// The options of a combination.
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

    /// Runs the search.
    pub fn search(&self, data: &Dataset, observer: &mut dyn Observer) -> Result<Tuned> {
        self.search_on(data, None, observer)
    }

    /// Runs the search with its trainings on `elsewhere`, if given: the same result, bit for bit.
    pub fn search_on(
        &self,
        data: &Dataset,
        elsewhere: Option<&mut dyn Remote>,
        observer: &mut dyn Observer,
    ) -> Result<Tuned> {
        let start_time = Instant::now();
        let control = self.control();
        self.within_search(data, |prepared, judge, mut search| {
            let options = &self.options;
            let n = prepared.points.len();
            let flow = observer.begin(&Begin { solver: "tune", n, tol: options.stop.tol, gap: options.stop.gap });
            let stopped = search.run(&control, observer, flow.is_break(), elsewhere)?;
            let mut found = search.cells;
            judge.finish(|state| fold::scheme_of(&self.machine(&state.cell.params), prepared), &mut found);
            let keep = self.keep_scores;
            let scores = if keep { found.iter_mut().map(|p| std::mem::take(&mut p.scores)).collect() } else { vec![] };
            let cells: Vec<Cell> = found.into_iter().map(|p| p.cell).collect();
            let best = choose(&cells);
            let status = match control.check() {
                Err(why) => why.into(),
                Ok(()) if stopped => Status::Interrupted,
                Ok(()) => Status::Optimal,
            };
            let seconds = start_time.elapsed().as_secs_f64();
            observer.finish(status, &Step { seconds, phase: "done", fraction: Some(1.0), ..Step::default() });
            Ok(Tuned { cells, best, status, seconds, scores })
        })
    }

    /// Carries out a task of [`search_on`](Self::search_on). `earlier`: machines of combinations, from a task on an earlier
    /// fold that returned them.
    pub fn run_task(
        &self,
        data: &Dataset,
        task: &SearchTask,
        earlier: &[(usize, Vec<MachineState>)],
    ) -> Result<Vec<Outcome>> {
        let control = self.control();
        self.within_search(data, |_, _, mut search| search.run_task(task, earlier, &control))
    }

    fn control(&self) -> Control {
        let options = &self.options;
        let control = Control::start(&options.budget, options.threads.clone()).with_device(options.device);
        match &options.cancel {
            Some(flag) => control.with_cancel(flag.clone()),
            None => control,
        }
    }

    /// Checks everything, and calls `work` with a search that has not begun.
    fn within_search<R>(
        &self,
        data: &Dataset,
        work: impl FnOnce(&Prepared, &Judge<'_>, Search<'_>) -> Result<R>,
    ) -> Result<R> {
        let options = &self.options;
        options.budget.check()?;
        options.stop.check()?;
        if options.task == Task::Novelty {
            return Err(Error::data("novelty detection has no targets to score by: there is nothing to tune"));
        }
        check_tunable(options)?;
        let points = match options.scale {
            Some(kind) => Scaling::fit(kind, &data.points).apply(&data.points)?,
            None => data.points.clone(),
        };
        let prepared = Prepared::new(options.task, data, points, &options.class_weight, None)?;
        if options.threshold.is_some() && prepared.labels.len() > 2 {
            let (threshold, several) = (OptionName::Threshold, With::SeveralClasses);
            return Err(Error::conflict(threshold, several, "it is for two", Remedy::LeaveOut(threshold)));
        }
        let by_kernel = self.params(&prepared.points)?;
        // Every combination is checked before anything is computed.
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
        let judge = Judge::new(self, &prepared, &ordered)?;
        let learns = options.scale.is_some() || data.fills.is_some();
        let by_fold = learns.then_some(ByFold { data, scale: options.scale });
        let search = Search::new(self, &prepared, &ordered, &judge, by_fold, by_kernel);
        work(&prepared, &judge, search)
    }

    /// Trains the machine of a combination on all rows.
    pub fn refit(&self, params: &Params, data: &Dataset, observer: &mut dyn Observer) -> Result<Fit> {
        Plan::new(&self.machine(params), data)?.train(observer)
    }
}

/// The best of the cells with the most folds completed.
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
