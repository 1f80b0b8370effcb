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
mod order;
mod race;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use margrave_core::backend::cpu::{CpuGram, Statistics, pages};
use margrave_core::compose::{LANES, run};
use margrave_core::data::{Dataset, Points, Scaling};
use margrave_core::gram::{Gram, Pick, Picked, PrecomputedGram, StoredGram};
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::observe::{Begin, Observer, Step};
use margrave_core::problem::Task;
use margrave_core::{Control, Error, Result, Status, Threads};

use self::fold::{Before, Bench, Source};
use self::order::Ordered;
use crate::fit::{Fit, Prepared, formulation_of, loss_of};
use crate::svm::Svm;

/// Kernels from which on a search goes fold by fold and leaves hopeless combinations out.
const ENOUGH: usize = 4;

/// The values to try; an empty list stands for what the machine has already.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// C.
    pub costs: Vec<f64>,
    /// λ, in place of C.
    pub lambdas: Vec<f64>,
    /// γ of kernels that have one.
    pub gammas: Vec<f64>,
    /// ε of losses that have a tube.
    pub epsilons: Vec<f64>,
    /// ν.
    pub nus: Vec<f64>,
    /// Kernels, each with its own γ where the grid has none.
    pub kernels: Vec<Kernel>,
    /// Losses.
    pub losses: Vec<LossSpec>,
}

/// One combination of values; those not searched over are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The kernel, γ included.
    pub kernel: Kernel,
    /// The loss.
    pub loss: Option<LossSpec>,
    /// C.
    pub c: Option<f64>,
    /// λ.
    pub lambda: Option<f64>,
    /// ε.
    pub epsilon: Option<f64>,
    /// ν.
    pub nu: Option<f64>,
}

/// A combination and how it did.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The combination.
    pub params: Params,
    /// Of each fold it has seen, in order: share of right labels, or minus the mean squared error.
    pub folds: Vec<f64>,
    /// How many folds there are.
    pub of: usize,
    /// Whether it was left out by the race, having seen the folds above.
    pub dropped: bool,
    /// Seconds of training, over all folds.
    pub seconds: f64,
}

impl Cell {
    /// Mean over all folds; `None` if it was left out, or there was no time for all of them.
    pub fn score(&self) -> Option<f64> {
        if self.is_finished() { self.seen() } else { None }
    }

    /// Whether it has seen all folds.
    pub fn is_finished(&self) -> bool {
        !self.folds.is_empty() && self.folds.len() == self.of
    }

    /// Mean over the folds seen so far; `None` if there are none.
    pub fn seen(&self) -> Option<f64> {
        (!self.folds.is_empty()).then(|| self.folds.iter().sum::<f64>() / self.folds.len() as f64)
    }

    /// Deviation over the folds seen.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.seen()?;
        Some((self.folds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / self.folds.len() as f64).sqrt())
    }
}

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
    pub svm: Svm,
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

/// A cell under way.
pub(crate) struct Progress {
    cell: Cell,
    /// The losses of the rows of each fold, where it was seen in this search.
    losses: Vec<Option<Vec<f32>>>,
    /// Its machines on the last fold.
    before: Vec<Before>,
}

/// Values, or one stand-in where there are none.
fn or_one<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().cloned().map(Some).collect() }
}

impl Tuner {
    /// A search with five folds and a race.
    pub fn new(svm: Svm, grid: Grid) -> Self {
        Self { svm, grid, folds: 5, groups: None, fold_of: None, counts: None, race: Some(4.0), known: Vec::new() }
    }

    /// The machine of a combination.
    pub fn machine(&self, params: &Params) -> Svm {
        let mut svm = self.svm.clone().kernel(params.kernel);
        if let Some(c) = params.c {
            svm = svm.cost(c);
        }
        if let Some(lambda) = params.lambda {
            svm = svm.lambda(lambda);
        }
        if let Some(loss) = params.loss {
            svm = svm.loss_spec(loss);
        }
        if let Some(epsilon) = params.epsilon {
            svm = svm.epsilon(epsilon);
        }
        if let Some(nu) = params.nu {
            svm = svm.nu(nu);
        }
        svm
    }

    /// All combinations for data whose scaled points are given: γ of a rule is resolved there.
    fn params(&self, points: &Points) -> Result<Vec<Vec<Params>>> {
        let g = &self.grid;
        if !g.costs.is_empty() && !g.lambdas.is_empty() {
            return Err(Error::data("the grid has both C and lambda, which say the same: leave one out"));
        }
        let mut kernels = Vec::new();
        for kernel in or_one(&g.kernels) {
            let kernel = kernel.unwrap_or(self.svm.kernel);
            let gammas = if kernel.gamma().is_some() { or_one(&g.gammas) } else { vec![None] };
            for gamma in gammas {
                kernels.push(match (gamma, self.svm.gamma) {
                    (Some(gamma), _) => kernel.with_gamma(gamma),
                    (None, Some(rule)) if kernel.gamma().is_some() => {
                        kernel.with_gamma(rule.resolve(points, self.svm.seed)?)
                    }
                    (None, _) => kernel,
                });
            }
        }
        // Along C upwards, and so along λ downwards: each machine starts from a smoother one.
        let (mut costs, mut lambdas) = (g.costs.clone(), g.lambdas.clone());
        costs.sort_by(f64::total_cmp);
        lambdas.sort_by(|a, b| b.total_cmp(a));
        let tubed = |loss: &Option<LossSpec>| loss.is_none_or(|l| l.epsilon().is_some());
        let mut all = Vec::new();
        for kernel in kernels {
            kernel.check()?;
            let mut cells = Vec::new();
            for loss in or_one(&g.losses) {
                let epsilons = if tubed(&loss) { or_one(&g.epsilons) } else { vec![None] };
                for epsilon in epsilons {
                    for nu in or_one(&g.nus) {
                        for c in or_one(&costs) {
                            for lambda in or_one(&lambdas) {
                                cells.push(Params { kernel, loss, c, lambda, epsilon, nu });
                            }
                        }
                    }
                }
            }
            all.push(cells);
        }
        Ok(all)
    }

    /// Searches.
    pub fn search(&self, data: &Dataset, observer: &mut dyn Observer) -> Result<Tuned> {
        let begun = Instant::now();
        let svm = &self.svm;
        svm.budget.check()?;
        svm.stop.check()?;
        if svm.task == Task::Novelty {
            return Err(Error::data("novelty detection has no targets to score by: there is nothing to tune"));
        }
        crate::linear::check_tunable(&self.svm)?;
        let mut control = Control::start(&svm.budget, svm.threads.clone());
        if let Some(flag) = &svm.cancel {
            control = control.with_cancel(flag.clone());
        }
        let points = match svm.scale {
            Some(kind) => Scaling::fit(kind, &data.points).apply(&data.points)?,
            None => data.points.clone(),
        };
        let prepared = Prepared::new(svm.task, data, points, &svm.class_weight, None)?;
        let by_kernel = self.params(&prepared.points)?;
        // Every combination is looked at before anything is computed.
        for params in by_kernel.iter().flatten() {
            let machine = self.machine(params);
            loss_of(&machine)?;
            formulation_of(&machine, data.len())?;
        }
        if let Some(z) = self.race
            && !(z > 0.0)
        {
            return Err(Error::option("race", z, "a number of deviations > 0"));
        }
        let ordered = Ordered::new(self, &prepared)?;
        let n = prepared.points.len();
        let flow = observer.begin(&Begin { solver: "tune", n, tol: svm.stop.tol, gap: svm.stop.gap });
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
        self.machine(params).fit_observed(data, observer)
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

/// Passes progress on as a share of the whole search.
struct Share<'a> {
    observer: &'a mut dyn Observer,
    before: f64,
    part: f64,
    whole: f64,
    stopped: bool,
}

impl Observer for Share<'_> {
    fn step(&mut self, step: &Step) -> std::ops::ControlFlow<()> {
        let fraction = step.fraction.map(|f| (self.before + f * self.part) / self.whole.max(1.0));
        let flow = self.observer.step(&Step { phase: "tune", fraction, ..step.clone() });
        self.stopped |= flow.is_break();
        if self.stopped { std::ops::ControlFlow::Break(()) } else { flow }
    }
}

/// A search under way.
struct Search<'a> {
    tuner: &'a Tuner,
    prepared: &'a Prepared,
    ordered: &'a Ordered,
    kernels: Vec<Kernel>,
    /// Where the cells of each kernel begin, and the end.
    firsts: Vec<usize>,
    cells: Vec<Progress>,
    /// What the kernels are functions of, once it is computed.
    statistics: Option<Statistics>,
    /// Matrices kept from round to round where all fit, and memory of those that were not.
    kept: Vec<Mutex<Option<StoredGram>>>,
    spare: Mutex<Vec<Vec<f32>>>,
}

/// A cell on a fold: which, what came of it if there was time, and the seconds it took.
type Tried = (usize, usize, Option<fold::Outcome>, f64);

/// How much is kept.
struct Room {
    /// Gram matrices at a time; 0: none, entries are computed on demand.
    matrices: usize,
    statistics: bool,
    /// Bytes for each training.
    training: u64,
}

impl<'a> Search<'a> {
    fn new(tuner: &'a Tuner, prepared: &'a Prepared, ordered: &'a Ordered, by_kernel: Vec<Vec<Params>>) -> Self {
        let k = ordered.folds();
        let mut firsts = vec![0];
        by_kernel.iter().for_each(|cells| firsts.push(firsts[firsts.len() - 1] + cells.len()));
        let kernels: Vec<Kernel> = by_kernel.iter().filter_map(|cells| cells.first()).map(|p| p.kernel).collect();
        let start = |params: Params| {
            let known = tuner.known.iter().find(|cell| cell.params == params && cell.of == k && cell.folds.len() <= k);
            let fresh = || Cell { params: params.clone(), folds: vec![], of: k, dropped: false, seconds: 0.0 };
            Progress { cell: known.cloned().unwrap_or_else(fresh), losses: vec![None; k], before: vec![] }
        };
        let cells = by_kernel.into_iter().flatten().map(start).collect();
        let kept = kernels.iter().map(|_| Mutex::new(None)).collect();
        Self { tuner, prepared, ordered, kernels, firsts, cells, statistics: None, kept, spare: Mutex::default() }
    }

    fn room(&self) -> Room {
        let (memory, n) = (self.tuner.svm.budget.memory, self.ordered.rows.len());
        let training = (memory / 10 / LANES as u64).max(32 << 20);
        let left = memory - memory / 10;
        let one = StoredGram::bytes(n).max(1);
        let served = self
            .kernels
            .iter()
            .all(|kernel| Statistics::serves(kernel.statistic()) && kernel.statistic() == self.kernels[0].statistic());
        let statistics = served && self.kernels.len() > 1 && Statistics::bytes(n) + one <= left;
        let left = if statistics { left - Statistics::bytes(n) } else { left };
        let matrices = ((left / one) as usize).min(self.kernels.len());
        Room { matrices, statistics, training }
    }

    /// Folds that are done together: one after the other in a race.
    fn rounds(&self) -> Vec<Vec<usize>> {
        let k = self.ordered.folds();
        if self.tuner.race.is_none() || self.kernels.len() < ENOUGH {
            return vec![(0..k).collect()];
        }
        (0..k).map(|fold| vec![fold]).collect()
    }

    /// All rounds; whether somebody asked to stop.
    fn run(&mut self, control: &Control, observer: &mut dyn Observer, mut stopped: bool) -> Result<bool> {
        let k = self.ordered.folds();
        let whole = (self.cells.len() * k) as f64;
        let room = self.room();
        if room.matrices > 0 && room.statistics {
            let ordered = self.prepared.points.gather(&self.ordered.rows);
            match Statistics::new(&ordered, self.kernels[0].statistic(), control) {
                Ok(made) => self.statistics = Some(made),
                Err(Error::Interrupted(_)) => return Ok(stopped),
                Err(other) => return Err(other),
            }
        }
        // Where kernels are few, folds run side by side; each task has a kernel's matrix to itself elsewhere.
        let few = self.kernels.len() < ENOUGH;
        for folds in self.rounds() {
            let wanted: Vec<usize> =
                (0..self.kernels.len()).filter(|&at| !self.wanted(at, &folds).is_empty()).collect();
            let batches: Vec<&[usize]> =
                if few { wanted.chunks(room.matrices.max(1)).collect() } else { vec![&wanted] };
            for batch in batches {
                let done: usize = self.cells.iter().map(|p| if p.cell.dropped { k } else { p.cell.folds.len() }).sum();
                let part: usize = batch.iter().flat_map(|&at| self.wanted(at, &folds)).map(|(_, f)| f.len()).sum();
                let mut share = Share { observer, before: done as f64, part: part as f64, whole, stopped };
                if stopped || control.check().is_err() {
                    return Ok(stopped);
                }
                let tried = if few {
                    self.side_by_side(batch, &folds, &room, control, &mut share)
                } else {
                    self.each_its_own(batch, &folds, &room, control, &mut share)
                };
                stopped = share.stopped;
                match tried {
                    Ok(tried) => self.take(tried),
                    Err(Error::Interrupted(_)) => return Ok(stopped),
                    Err(other) => return Err(other),
                }
            }
            if let Some(z) = self.tuner.race
                && folds.last().is_some_and(|&last| last + 1 < k)
            {
                race::leave_out(z, &mut self.cells);
            }
        }
        Ok(stopped)
    }

    /// The cells of a kernel that are still to be tried on some of the folds, and on which.
    fn wanted(&self, at: usize, folds: &[usize]) -> Vec<(usize, Vec<usize>)> {
        (self.firsts[at]..self.firsts[at + 1])
            .filter(|&cell| !self.cells[cell].cell.dropped)
            .map(|cell| (cell, folds.iter().copied().filter(|&f| f >= self.cells[cell].cell.folds.len()).collect()))
            .filter(|(_, folds): &(usize, Vec<usize>)| !folds.is_empty())
            .collect()
    }

    /// Every kernel on every fold a task of its own, all matrices made first.
    fn side_by_side(
        &self,
        batch: &[usize],
        folds: &[usize],
        room: &Room,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tried>> {
        let matrices: Vec<Matrix> = batch.iter().map(|&at| self.matrix(at, room, control)).collect::<Result<_>>()?;
        let tasks: Vec<(usize, usize)> = (0..batch.len()).flat_map(|at| folds.iter().map(move |&f| (at, f))).collect();
        let list = |&(at, fold): &(usize, usize)| self.cells_of(batch[at], folds, fold);
        let sizes: Vec<u64> = tasks.iter().map(|task| list(task).len() as u64).collect();
        let begin = Begin { solver: "tune", n: self.ordered.rows.len(), tol: None, gap: None };
        let found = run(&sizes, &begin, control, observer, |task, control, _| {
            let (at, fold) = tasks[task];
            let before = |cell: usize| self.cells[cell].before.clone();
            self.walk(&list(&tasks[task]), before, matrices[at].source(), fold, room, control)
        });
        batch.iter().zip(matrices).for_each(|(&at, matrix)| self.put_back(at, matrix, room));
        Ok(found?.into_iter().flatten().collect())
    }

    /// Every kernel a task of its own, which makes the matrix and walks the folds one after the other.
    fn each_its_own(
        &self,
        batch: &[usize],
        folds: &[usize],
        room: &Room,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tried>> {
        // As many lanes as matrices fit; without any, entries are computed on demand by all.
        let lanes =
            if room.matrices > 0 { control.threads.count().min(room.matrices) } else { control.threads.count() };
        let control =
            if lanes < control.threads.count() { control.with_threads(Threads::new(lanes)) } else { control.clone() };
        // What took longest so far goes first; a guess before anything is known.
        let spent = |&at: &usize| -> u64 {
            let cells = self.wanted(at, folds);
            cells.iter().map(|&(cell, _)| 1000 + (1e6 * self.cells[cell].cell.seconds) as u64).sum()
        };
        let sizes: Vec<u64> = batch.iter().map(spent).collect();
        let begin = Begin { solver: "tune", n: self.ordered.rows.len(), tol: None, gap: None };
        let found = run(&sizes, &begin, &control, observer, |task, control, _| {
            let at = batch[task];
            let matrix = match self.matrix(at, room, control) {
                Ok(matrix) => matrix,
                Err(Error::Interrupted(_)) => return Ok(vec![]),
                Err(other) => return Err(other),
            };
            let mut tried: Vec<Tried> = Vec::new();
            for &fold in folds {
                let list = self.cells_of(at, folds, fold);
                let before = |cell: usize| {
                    let mine = tried.iter().rev().find(|t| t.0 == cell).and_then(|t| t.2.as_ref());
                    mine.map_or_else(|| self.cells[cell].before.clone(), |outcome| outcome.machines.clone())
                };
                let found = self.walk(&list, before, matrix.source(), fold, room, control)?;
                tried.extend(found);
            }
            self.put_back(at, matrix, room);
            Ok(tried)
        });
        Ok(found?.into_iter().flatten().collect())
    }

    /// The cells of a kernel still to be tried on a fold of a round.
    fn cells_of(&self, at: usize, folds: &[usize], fold: usize) -> Vec<usize> {
        self.wanted(at, folds).into_iter().filter(|(_, folds)| folds.contains(&fold)).map(|(cell, _)| cell).collect()
    }

    fn walk(
        &self,
        list: &[usize],
        before: impl Fn(usize) -> Vec<Before>,
        source: Source<'_>,
        fold: usize,
        room: &Room,
        control: &Control,
    ) -> Result<Vec<Tried>> {
        let bench = Bench { tuner: self.tuner, prepared: self.prepared, ordered: self.ordered, memory: room.training };
        let params: Vec<&Params> = list.iter().map(|&cell| &self.cells[cell].cell.params).collect();
        let machines: Vec<Vec<Before>> = list.iter().map(|&cell| before(cell)).collect();
        let machines: Vec<&[Before]> = machines.iter().map(Vec::as_slice).collect();
        let found = bench.walk(&params, &machines, source, fold, control)?;
        Ok(list.iter().zip(found).map(|(&cell, (outcome, seconds))| (cell, fold, outcome, seconds)).collect())
    }

    /// Notes what came of cells on folds.
    fn take(&mut self, mut tried: Vec<Tried>) {
        tried.sort_by_key(|t| (t.1, t.0));
        for (cell, fold, outcome, seconds) in tried {
            let progress = &mut self.cells[cell];
            progress.cell.seconds += seconds;
            if let Some(outcome) = outcome
                && progress.cell.folds.len() == fold
            {
                progress.cell.folds.push(outcome.score);
                progress.losses[fold] = Some(outcome.losses);
                progress.before = outcome.machines;
            }
        }
    }

    /// K of a kernel, whole or on demand.
    fn matrix(&self, at: usize, room: &Room, control: &Control) -> Result<Matrix> {
        if let Some(kept) = self.kept[at].lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(Matrix::Stored(kept));
        }
        let kernel = self.kernels[at];
        if let Some(statistics) = &self.statistics {
            let n = statistics.len();
            let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut values = spare.unwrap_or_else(|| pages::zeros(n * n));
            statistics.fill(kernel, &mut values, control)?;
            return Ok(Matrix::Stored(StoredGram::from_values(n, values)));
        }
        let points = &self.prepared.points;
        let gram: Box<dyn Gram> = match kernel {
            Kernel::Precomputed => Box::new(permuted(points, &self.ordered.rows)?),
            _ => Box::new(CpuGram::square(kernel, &points.gather(&self.ordered.rows))?),
        };
        if room.matrices > 0 {
            return Ok(Matrix::Stored(StoredGram::new(gram.as_ref(), control)?));
        }
        Ok(Matrix::Live(gram))
    }

    /// Keeps a matrix, or its memory.
    fn put_back(&self, at: usize, matrix: Matrix, room: &Room) {
        let Matrix::Stored(stored) = matrix else { return };
        if room.matrices >= self.kernels.len() {
            *self.kept[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(stored);
        } else if self.statistics.is_some() {
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(stored.into_values());
        }
    }
}

/// K of one kernel.
enum Matrix {
    Stored(StoredGram),
    Live(Box<dyn Gram>),
}

impl Matrix {
    fn source(&self) -> Source<'_> {
        match self {
            Matrix::Stored(stored) => Source::Stored(stored),
            Matrix::Live(gram) => Source::Live(gram.as_ref()),
        }
    }
}

/// Whether two neighbours differ in C or λ alone.
fn same_but_cost(a: &Params, b: &Params) -> bool {
    let strip = |p: &Params| Params { c: None, lambda: None, ..p.clone() };
    strip(a) == strip(b)
}

fn cost_of(params: &Params, n: usize) -> f64 {
    match (params.c, params.lambda) {
        (Some(c), _) => c,
        (None, Some(lambda)) => 1.0 / (2.0 * lambda * n as f64),
        (None, None) => 1.0,
    }
}

/// A precomputed Gram with rows and columns in another order.
fn permuted(points: &Points, rows: &[u32]) -> Result<PrecomputedGram> {
    let n = points.len();
    if n != points.dims() {
        return Err(Error::data(format!(
            "a precomputed kernel needs a square matrix, but the data is {n} × {}",
            points.dims()
        )));
    }
    let whole = PrecomputedGram::new(points.clone());
    let view = Picked::new(&whole, rows.to_vec());
    let mut values = vec![0.0; n * n];
    view.block_f64(Pick::All, Pick::All, &mut values, &Control::unlimited(Threads::one()))?;
    Ok(PrecomputedGram::new(Points::dense_f64(n, n, values)?))
}

impl Params {
    /// C of the combination for n rows, from C or λ; `None` if neither was searched over.
    pub fn cost(&self, n: usize) -> Option<f64> {
        (self.c.is_some() || self.lambda.is_some()).then(|| cost_of(self, n))
    }
}
