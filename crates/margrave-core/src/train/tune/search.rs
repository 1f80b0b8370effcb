//! A search in progress: which cells to train on which folds, in parallel, and the kernel matrices they share.

use std::sync::{Mutex, PoisonError};

use crate::backend::cpu::{CpuGram, Statistics};
use crate::compose::{LANES, run};
use crate::data::{Dataset, Points, ScaleKind, Scaling};
use crate::gram::{ChainPoint, Gram, Pick, Picked, PrecomputedGram, StoredGram};
use crate::kernel::Kernel;
use crate::linalg::pages;
use crate::observe::{Begin, Observer, Step};
use crate::solver::decomposition::Scratch;
use crate::{Control, Error, Result, Threads};

use super::chains::{ChainRequest, Reached};
use super::fold::{self, FoldMachine, FoldTrainer, KernelEntries};
use super::judge::{Comparison, Judge};
use super::order::Ordered;
use super::remote::{self, MachineState, Outcome, Remote, SearchTask};
use super::{Cell, Params, Tuner};
use crate::train::prepared::Prepared;

/// Number of kernels from which on a search goes fold by fold, so that combinations can be dropped in between.
const MIN_KERNELS_FOR_RACE: usize = 4;

/// A cell during the search.
pub(super) struct CellState {
    pub(super) cell: Cell,
    /// The losses of the rows of each fold completed in this search.
    pub(super) losses: Vec<Option<Vec<f32>>>,
    /// What the scores of each fold are computed from, where that is needed later.
    pub(super) kept: Vec<Option<Vec<f64>>>,
    /// The scores of the held-out rows of each fold, if they are to be returned.
    pub(super) scores: Vec<Vec<f64>>,
    /// Its machines on the last fold completed.
    pub(super) machines: Vec<FoldMachine>,
}

/// Reports the progress of a batch as a fraction of the whole search.
struct SearchProgress<'a> {
    observer: &'a mut dyn Observer,
    before: f64,
    part: f64,
    whole: f64,
    stopped: bool,
}

impl Observer for SearchProgress<'_> {
    fn step(&mut self, step: &Step) -> std::ops::ControlFlow<()> {
        let fraction = step.fraction.map(|f| (self.before + f * self.part) / self.whole.max(1.0));
        let flow = self.observer.step(&Step { phase: "tune", fraction, ..step.clone() });
        self.stopped |= flow.is_break();
        if self.stopped { std::ops::ControlFlow::Break(()) } else { flow }
    }
}

/// A search in progress.
pub(super) struct Search<'a> {
    tuner: &'a Tuner,
    prepared: &'a Prepared,
    ordered: &'a Ordered,
    judge: &'a Judge<'a>,
    /// What each fold learns from its own training rows; `None` if all folds have the same points.
    by_fold: Option<ByFold<'a>>,
    kernels: Vec<Kernel>,
    /// First cell of each kernel, then the number of cells.
    firsts: Vec<usize>,
    pub(super) cells: Vec<CellState>,
    /// What the kernels are functions of (inner products or distances), once computed.
    statistics: Option<Statistics>,
    /// Matrices kept from round to round, if all fit; otherwise `spare` has their memory for reuse.
    kept: Vec<Mutex<Option<StoredGram>>>,
    spare: Mutex<Vec<Vec<f32>>>,
    scratch: Mutex<Vec<Scratch>>,
    /// The points that a device has reached, by cell and fold.
    reached: Reached,
}

/// What folds learn from their own training rows: what stands for missing values, and the scaling.
#[derive(Clone, Copy)]
pub(super) struct ByFold<'a> {
    pub(super) data: &'a Dataset,
    pub(super) scale: Option<ScaleKind>,
}

/// A cell on a fold: cell, fold, the result (`None` if time ran out), and the seconds it took.
pub(super) type Tried = (usize, usize, Option<fold::FoldResult>, f64);

/// What the memory budget allows.
struct MemoryPlan {
    /// Number of Gram matrices at a time; 0: entries are computed on demand.
    matrices: usize,
    /// Whether the statistics of the kernels are stored.
    statistics: bool,
    /// Bytes for each training.
    training: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        tuner: &'a Tuner,
        prepared: &'a Prepared,
        ordered: &'a Ordered,
        judge: &'a Judge<'a>,
        by_fold: Option<ByFold<'a>>,
        by_kernel: Vec<Vec<Params>>,
    ) -> Self {
        let k = ordered.folds();
        let mut firsts = vec![0];
        by_kernel.iter().for_each(|cells| firsts.push(firsts[firsts.len() - 1] + cells.len()));
        let kernels: Vec<Kernel> = by_kernel.iter().filter_map(|cells| cells.first()).map(|p| p.kernel).collect();
        let start = |params: Params| {
            // A score that needs all folds cannot be continued from some of them.
            let whole = judge.comparison() == Comparison::None || tuner.keep_scores;
            let fits = |folds: usize| if whole { folds == k && !tuner.keep_scores } else { folds <= k };
            let known = tuner.known.iter().find(|cell| cell.params == params && cell.of == k && fits(cell.folds.len()));
            let fresh = || Cell { params: params.clone(), folds: vec![], of: k, dropped: false, seconds: 0.0 };
            let cell = known.cloned().unwrap_or_else(fresh);
            CellState { cell, losses: vec![None; k], kept: vec![None; k], scores: vec![], machines: vec![] }
        };
        let cells = by_kernel.into_iter().flatten().map(start).collect();
        let kept = kernels.iter().map(|_| Mutex::new(None)).collect();
        Self {
            tuner,
            prepared,
            ordered,
            judge,
            by_fold,
            kernels,
            firsts,
            cells,
            statistics: None,
            kept,
            spare: Mutex::default(),
            scratch: Mutex::default(),
            reached: Reached::default(),
        }
    }

    fn memory_plan(&self) -> MemoryPlan {
        let (memory, n) = (self.tuner.options.budget.memory, self.ordered.rows.len());
        let training = (memory / 10 / LANES as u64).max(32 << 20);
        let left = memory - memory / 10;
        let one = StoredGram::bytes(n).max(1);
        let served = self
            .kernels
            .iter()
            .all(|kernel| Statistics::serves(kernel.statistic()) && kernel.statistic() == self.kernels[0].statistic());
        // Few kernels with points of each fold: folds run in parallel, each with matrices of its own.
        let by_fold = self.by_fold.is_some() && self.few();
        let statistics = served && self.kernels.len() > 1 && Statistics::bytes(n) + one <= left && !by_fold;
        let left = if statistics { left - Statistics::bytes(n) } else { left };
        let most = if by_fold { self.kernels.len() * self.ordered.folds() } else { self.kernels.len() };
        let matrices = ((left / one) as usize).min(most);
        MemoryPlan { matrices, statistics, training }
    }

    /// Whether folds run in parallel rather than kernels, without a race.
    fn few(&self) -> bool {
        self.kernels.len() < MIN_KERNELS_FOR_RACE
    }

    /// The number of deviations at which combinations are dropped, if there is a race. A device has done its part of all
    /// trainings at once: to finish them fold by fold would leave threads waiting, and save little.
    fn race(&self) -> Option<f64> {
        let pays = !self.few() && self.reached.is_empty();
        self.tuner.race.filter(|_| pays && self.judge.comparison() != Comparison::None)
    }

    /// The folds of each round: all at once; one per round in a race; where each fold has matrices of its own, as many as fit.
    fn rounds(&self, plan: &MemoryPlan) -> Vec<Vec<usize>> {
        let k = self.ordered.folds();
        let at_once = match (self.race(), self.by_fold.is_some(), self.few()) {
            (Some(_), ..) | (None, true, false) => 1,
            (None, true, true) if plan.matrices > 0 => plan.matrices.min(k),
            _ => k,
        };
        let all: Vec<usize> = (0..k).collect();
        all.chunks(at_once).map(<[usize]>::to_vec).collect()
    }

    /// The points in the order of the folds, filled and scaled for a fold: its held-out rows have no part in either.
    fn points(&self, fold: usize) -> Result<Points> {
        let rows = &self.ordered.rows;
        let Some(ByFold { data, scale }) = self.by_fold else { return Ok(self.prepared.points.gather(rows)) };
        let (from, to) = self.ordered.held_out(fold);
        let kept: Vec<u32> = rows[..from].iter().chain(&rows[to..]).copied().collect();
        let points = data.points_for(&kept)?;
        match scale {
            Some(kind) => Scaling::fit(kind, &points.gather(&kept)).apply(&points.gather(rows)),
            None => Ok(points.gather(rows)),
        }
    }

    /// Runs all rounds, their trainings here or on `elsewhere`. Returns whether the observer requested a stop.
    pub(super) fn run(
        &mut self,
        control: &Control,
        observer: &mut dyn Observer,
        mut stopped: bool,
        mut elsewhere: Option<&mut dyn Remote>,
    ) -> Result<bool> {
        let k = self.ordered.folds();
        let whole = (self.cells.len() * k) as f64;
        let plan = self.memory_plan();
        // With few kernels, folds run in parallel; otherwise kernels do, each task with its own matrix.
        let few = self.few();
        if elsewhere.is_none() && self.by_fold.is_none() && plan.matrices > 0 {
            self.reached = self.on_device(&plan, control)?;
        }
        for folds in self.rounds(&plan) {
            if elsewhere.is_none() {
                match self.compute_statistics(folds[0], &plan, control) {
                    Ok(()) => {}
                    Err(Error::Interrupted(_)) => return Ok(stopped),
                    Err(other) => return Err(other),
                }
            }
            let pending: Vec<usize> =
                (0..self.kernels.len()).filter(|&at| !self.pending(at, &folds).is_empty()).collect();
            let batches: Vec<&[usize]> = if few && elsewhere.is_none() {
                pending.chunks(self.kernels_at_once(&plan, &folds)).collect()
            } else {
                vec![&pending]
            };
            for batch in batches {
                let done: usize = self.cells.iter().map(|p| if p.cell.dropped { k } else { p.cell.folds.len() }).sum();
                let part: usize = batch.iter().flat_map(|&at| self.pending(at, &folds)).map(|(_, f)| f.len()).sum();
                let mut share = SearchProgress { observer, before: done as f64, part: part as f64, whole, stopped };
                if stopped || control.check().is_err() {
                    return Ok(stopped);
                }
                let tried = if let Some(remote) = elsewhere.as_deref_mut() {
                    self.remote_tasks(batch, &folds, remote, &mut share)
                } else if !self.reached.is_empty() && batch.len() <= plan.matrices {
                    self.one_task_per_cell(batch, &folds, &plan, control, &mut share)
                } else if few {
                    self.one_task_per_kernel_and_fold(batch, &folds, &plan, control, &mut share)
                } else {
                    self.one_task_per_kernel(batch, &folds, &plan, control, &mut share)
                };
                stopped = share.stopped;
                match tried {
                    Ok(tried) => self.record(tried),
                    Err(Error::Interrupted(_)) => return Ok(stopped),
                    Err(other) => return Err(other),
                }
            }
            if let Some(z) = self.race()
                && folds.last().is_some_and(|&last| last + 1 < k)
            {
                self.judge.leave_out(z, &mut self.cells, control);
            }
        }
        Ok(stopped)
    }

    /// Computes what the kernels are functions of, if the plan keeps it. Filled and scaled points differ from fold to fold, and
    /// so do their distances.
    fn compute_statistics(&mut self, fold: usize, plan: &MemoryPlan, control: &Control) -> Result<()> {
        if plan.matrices > 0 && plan.statistics && (self.statistics.is_none() || self.by_fold.is_some()) {
            self.statistics = None;
            self.statistics = Some(Statistics::new(&self.points(fold)?, self.kernels[0].statistic(), control)?);
        }
        Ok(())
    }

    /// The tasks of a batch of kernels, carried out elsewhere: one per kernel, or per kernel and fold where folds do not
    /// start from each other.
    fn remote_tasks(
        &self,
        batch: &[usize],
        folds: &[usize],
        remote: &mut dyn Remote,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tried>> {
        let keep_machines = self.race().is_some() && folds.last().is_some_and(|&last| last + 1 < self.ordered.folds());
        let rounds: Vec<&[usize]> = if self.few() { folds.chunks(1).collect() } else { vec![folds] };
        let mut tasks = Vec::new();
        for (&kernel, &folds) in batch.iter().flat_map(|kernel| rounds.iter().map(move |folds| (kernel, folds))) {
            let cells: Vec<usize> = self.pending(kernel, folds).into_iter().map(|(cell, _)| cell).collect();
            tasks.push(SearchTask { kernel, folds: folds.to_vec(), cells, keep_machines });
        }
        tasks.retain(|task| !task.cells.is_empty());
        let found = remote.run(&tasks)?;
        // The observer may stop the search between rounds; the flow is remembered by `SearchProgress`.
        let _ = observer.step(&Step { phase: "tune", fraction: Some(1.0), ..Step::default() });
        Ok(found.into_iter().map(remote::tried).collect())
    }

    /// Carries out one task as the search would. `earlier`: machines of combinations on an earlier fold.
    pub(super) fn run_task(
        &mut self,
        task: &SearchTask,
        earlier: &[(usize, Vec<MachineState>)],
        control: &Control,
    ) -> Result<Vec<Outcome>> {
        let (cells, kernels) = (self.cells.len(), self.kernels.len());
        if task.kernel >= kernels || task.cells.iter().any(|&c| c >= cells) || task.folds.is_empty() {
            return Err(Error::data("a task of a search does not fit its grid"));
        }
        if task.folds.iter().any(|&fold| fold >= self.ordered.folds()) {
            return Err(Error::data("a task of a search names a fold that does not exist"));
        }
        let plan = self.memory_plan();
        self.compute_statistics(task.folds[0], &plan, control)?;
        let matrix = self.matrix(task.kernel, task.folds[0], &plan, control)?;
        let mut tried: Vec<Tried> = Vec::new();
        for &fold in &task.folds {
            let before = |cell: usize| {
                let previous = tried.iter().rev().find(|t| t.0 == cell).and_then(|t| t.2.as_ref());
                let given = || earlier.iter().find(|e| e.0 == cell).map(|e| e.1.iter().map(Into::into).collect());
                previous.map_or_else(|| given().unwrap_or_default(), |result| result.machines.clone())
            };
            let found = self.train(&task.cells, before, matrix.source(), fold, &plan, control)?;
            tried.extend(found);
        }
        // Only the last fold of a combination can start a later task.
        let last = task.folds[task.folds.len() - 1];
        Ok(tried
            .into_iter()
            .map(|t| {
                let keep = task.keep_machines && t.1 == last;
                remote::outcome(t, keep)
            })
            .collect())
    }

    /// Number of kernels whose matrices fit in memory together.
    fn kernels_at_once(&self, plan: &MemoryPlan, folds: &[usize]) -> usize {
        let each = if self.by_fold.is_some() { folds.len().max(1) } else { 1 };
        (plan.matrices / each).max(1)
    }

    /// The cells of a kernel still to be trained on some of the folds, and those folds.
    fn pending(&self, at: usize, folds: &[usize]) -> Vec<(usize, Vec<usize>)> {
        (self.firsts[at]..self.firsts[at + 1])
            .filter(|&cell| !self.cells[cell].cell.dropped)
            .map(|cell| (cell, folds.iter().copied().filter(|&f| f >= self.cells[cell].cell.folds.len()).collect()))
            .filter(|(_, folds): &(usize, Vec<usize>)| !folds.is_empty())
            .collect()
    }

    /// One task per kernel and fold; all matrices are computed first.
    fn one_task_per_kernel_and_fold(
        &self,
        batch: &[usize],
        folds: &[usize],
        plan: &MemoryPlan,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tried>> {
        // One matrix for all folds, or one for each where each has points of its own.
        let own = if self.by_fold.is_some() { folds } else { &folds[..1] };
        let of_kernel = |&at: &usize| own.iter().map(move |&fold| self.matrix(at, fold, plan, control));
        let matrices: Vec<KernelMatrix> = batch.iter().flat_map(of_kernel).collect::<Result<_>>()?;
        let place = |at: usize, fold: usize| at * own.len() + own.iter().position(|f| *f == fold).unwrap_or(0);
        let mut tasks: Vec<(usize, usize, Vec<usize>)> = Vec::new();
        for (at, &fold) in (0..batch.len()).flat_map(|at| folds.iter().map(move |fold| (at, fold))) {
            let cells = self.pending_on_fold(batch[at], folds, fold);
            tasks.push((at, fold, cells));
        }
        let sizes: Vec<u64> = tasks.iter().map(|task| self.task_size(&task.2)).collect();
        let begin = Begin { solver: "tune", n: self.ordered.rows.len(), tol: None, gap: None };
        let found = run(&sizes, &begin, control, observer, |task, control, _| {
            let (at, fold, cells) = &tasks[task];
            let earlier = |cell: usize| self.cells[cell].machines.clone();
            self.train(cells, earlier, matrices[place(*at, *fold)].source(), *fold, plan, control)
        });
        let kernels = batch.iter().flat_map(|&at| std::iter::repeat_n(at, own.len()));
        kernels.zip(matrices).for_each(|(at, matrix)| self.put_back(at, matrix, plan));
        Ok(found?.into_iter().flatten().collect())
    }

    /// One task per cell and fold: what a device has trained is judged, the rest starts from where it ended. All matrices are
    /// computed first.
    fn one_task_per_cell(
        &self,
        batch: &[usize],
        folds: &[usize],
        plan: &MemoryPlan,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tried>> {
        let matrices = batch.iter().map(|&at| self.matrix(at, folds[0], plan, control));
        let matrices: Vec<KernelMatrix> = matrices.collect::<Result<_>>()?;
        let mut tasks: Vec<(usize, usize, usize)> = Vec::new();
        for (place, fold) in (0..batch.len()).flat_map(|place| folds.iter().map(move |&fold| (place, fold))) {
            let cells = self.pending_on_fold(batch[place], folds, fold);
            tasks.extend(cells.into_iter().map(|cell| (place, fold, cell)));
        }
        // What is left to train starts first.
        let size = |&(_, fold, cell): &(usize, usize, usize)| match self.reached.all(cell, fold) {
            true => 1,
            false => 1_000_000 + self.task_size(&[cell]),
        };
        let sizes: Vec<u64> = tasks.iter().map(size).collect();
        let begin = Begin { solver: "tune", n: self.ordered.rows.len(), tol: None, gap: None };
        let found = run(&sizes, &begin, control, observer, |task, control, _| {
            let (place, fold, cell) = tasks[task];
            let earlier = |cell: usize| self.cells[cell].machines.clone();
            self.train(&[cell], earlier, matrices[place].source(), fold, plan, control)
        });
        batch.iter().zip(matrices).for_each(|(&at, matrix)| self.put_back(at, matrix, plan));
        Ok(found?.into_iter().flatten().collect())
    }

    /// One task per kernel, which computes the matrix and goes through the folds in order.
    fn one_task_per_kernel(
        &self,
        batch: &[usize],
        folds: &[usize],
        plan: &MemoryPlan,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tried>> {
        // As many lanes as matrices fit in memory; if none fits, all lanes compute entries on demand.
        let lanes =
            if plan.matrices > 0 { control.threads.count().min(plan.matrices) } else { control.threads.count() };
        let control =
            if lanes < control.threads.count() { control.with_threads(Threads::new(lanes)) } else { control.clone() };
        let pending = |&at: &usize| self.pending(at, folds).iter().map(|w| w.0).collect::<Vec<_>>();
        let sizes: Vec<u64> = batch.iter().map(|at| self.task_size(&pending(at))).collect();
        let begin = Begin { solver: "tune", n: self.ordered.rows.len(), tol: None, gap: None };
        let found = run(&sizes, &begin, &control, observer, |task, control, _| {
            let at = batch[task];
            // With points of each fold a round has one fold.
            let matrix = match self.matrix(at, folds[0], plan, control) {
                Ok(matrix) => matrix,
                Err(Error::Interrupted(_)) => return Ok(vec![]),
                Err(other) => return Err(other),
            };
            let mut tried: Vec<Tried> = Vec::new();
            for &fold in folds {
                let list = self.pending_on_fold(at, folds, fold);
                let earlier = |cell: usize| {
                    let previous = tried.iter().rev().find(|t| t.0 == cell).and_then(|t| t.2.as_ref());
                    previous.map_or_else(|| self.cells[cell].machines.clone(), |result| result.machines.clone())
                };
                let found = self.train(&list, earlier, matrix.source(), fold, plan, control)?;
                tried.extend(found);
            }
            self.put_back(at, matrix, plan);
            Ok(tried)
        });
        Ok(found?.into_iter().flatten().collect())
    }

    /// Size of a task with these cells, from the time they took so far: the largest tasks start first.
    fn task_size(&self, cells: &[usize]) -> u64 {
        cells.iter().map(|&cell| 1000 + (1e6 * self.cells[cell].cell.seconds) as u64).sum()
    }

    /// The cells of a kernel still to be trained on one fold of a round.
    fn pending_on_fold(&self, at: usize, folds: &[usize], fold: usize) -> Vec<usize> {
        self.pending(at, folds).into_iter().filter(|(_, folds)| folds.contains(&fold)).map(|(cell, _)| cell).collect()
    }

    /// What trains cells on folds.
    fn trainer(&self, plan: &MemoryPlan) -> FoldTrainer<'_> {
        FoldTrainer {
            tuner: self.tuner,
            prepared: self.prepared,
            ordered: self.ordered,
            judge: self.judge,
            memory: plan.training,
            same_points: self.by_fold.is_none(),
            spare: &self.scratch,
        }
    }

    /// The trainings that are still to be done, by a device that does them side by side: empty if there is none.
    fn on_device(&self, plan: &MemoryPlan, control: &Control) -> Result<Reached> {
        let (Some(device), folds) = (control.backend().chains(), 0..self.ordered.folds()) else {
            return Ok(Reached::default());
        };
        let folds: Vec<usize> = folds.collect();
        let pending: Vec<Vec<usize>> = (0..self.kernels.len())
            .map(|at| self.pending(at, &folds).into_iter().map(|(cell, _)| cell).collect())
            .collect();
        let request = ChainRequest {
            trainer: &self.trainer(plan),
            params: &|cell| &self.cells[cell].cell.params,
            done: &|cell| self.cells[cell].cell.folds.len(),
            pending: &pending,
            memory: self.tuner.options.budget.memory / 4,
        };
        request.solve(device, &self.points(0)?, &self.kernels, control)
    }

    fn train(
        &self,
        list: &[usize],
        earlier: impl Fn(usize) -> Vec<FoldMachine>,
        source: KernelEntries<'_>,
        fold: usize,
        plan: &MemoryPlan,
        control: &Control,
    ) -> Result<Vec<Tried>> {
        let trainer = self.trainer(plan);
        let params: Vec<&Params> = list.iter().map(|&cell| &self.cells[cell].cell.params).collect();
        let machines: Vec<Vec<FoldMachine>> = list.iter().map(|&cell| earlier(cell)).collect();
        let machines: Vec<&[FoldMachine]> = machines.iter().map(Vec::as_slice).collect();
        let reached: Vec<&[ChainPoint]> = list.iter().map(|&cell| self.reached.of(cell, fold)).collect();
        let found = trainer.train_cells(&params, &machines, &reached, source, fold, control)?;
        Ok(list.iter().zip(found).map(|(&cell, (result, seconds))| (cell, fold, result, seconds)).collect())
    }

    /// Records the results of cells on folds.
    fn record(&mut self, mut tried: Vec<Tried>) {
        tried.sort_by_key(|t| (t.1, t.0));
        for (cell, fold, result, seconds) in tried {
            let state = &mut self.cells[cell];
            state.cell.seconds += seconds;
            if let Some(result) = result
                && state.cell.folds.len() == fold
            {
                state.cell.folds.push(result.held.score);
                state.losses[fold] = Some(result.held.losses).filter(|losses| !losses.is_empty());
                state.kept[fold] = Some(result.held.kept).filter(|kept| !kept.is_empty());
                state.scores.extend(result.scores);
                state.machines = result.machines;
            }
        }
    }

    /// K of a kernel, stored or computed on demand; `fold` matters where each fold has points of its own.
    fn matrix(&self, at: usize, fold: usize, plan: &MemoryPlan, control: &Control) -> Result<KernelMatrix> {
        if let Some(kept) = self.kept[at].lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(KernelMatrix::Stored(kept));
        }
        let kernel = self.kernels[at];
        // Where a device has trained everything, no entry is needed.
        let folds = fold..self.ordered.folds();
        if (self.firsts[at]..self.firsts[at + 1]).all(|cell| folds.clone().all(|fold| self.reached.all(cell, fold))) {
            return Ok(KernelMatrix::Live(Box::new(CpuGram::square(kernel, &self.points(fold)?)?)));
        }
        if let Some(statistics) = &self.statistics {
            let n = statistics.len();
            let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut values = spare.unwrap_or_else(|| pages::zeros(n * n));
            statistics.fill(kernel, &mut values, control)?;
            return Ok(KernelMatrix::Stored(StoredGram::from_values(n, values)));
        }
        let gram: Box<dyn Gram> = match kernel {
            Kernel::Precomputed => Box::new(permuted(&self.prepared.points, &self.ordered.rows)?),
            _ => Box::new(CpuGram::square(kernel, &self.points(fold)?)?),
        };
        if plan.matrices > 0 {
            return Ok(KernelMatrix::Stored(StoredGram::new(gram.as_ref(), control)?));
        }
        Ok(KernelMatrix::Live(gram))
    }

    /// Keeps a matrix for the next round, or its memory for reuse.
    fn put_back(&self, at: usize, matrix: KernelMatrix, plan: &MemoryPlan) {
        let KernelMatrix::Stored(stored) = matrix else { return };
        if plan.matrices >= self.kernels.len() && self.by_fold.is_none() {
            *self.kept[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(stored);
        } else if self.statistics.is_some() {
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(stored.into_values());
        }
    }
}

/// K of one kernel.
enum KernelMatrix {
    Stored(StoredGram),
    Live(Box<dyn Gram>),
}

impl KernelMatrix {
    fn source(&self) -> KernelEntries<'_> {
        match self {
            KernelMatrix::Stored(stored) => KernelEntries::Stored(stored),
            KernelMatrix::Live(gram) => KernelEntries::Live(gram.as_ref()),
        }
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
