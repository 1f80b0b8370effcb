//! A search under way: which cells on which folds, side by side, and the matrices they share.

use std::sync::{Mutex, PoisonError};

use crate::backend::cpu::{CpuGram, Statistics};
use crate::compose::{LANES, run};
use crate::data::Points;
use crate::gram::{Gram, Pick, Picked, PrecomputedGram, StoredGram};
use crate::kernel::Kernel;
use crate::linalg::pages;
use crate::observe::{Begin, Observer, Step};
use crate::solver::decomposition::Scratch;
use crate::{Control, Error, Result, Threads};

use super::fold::{self, Before, Bench, Source};
use super::order::Ordered;
use super::{Cell, Params, Tuner, race};
use crate::train::prepared::Prepared;

/// Kernels from which on a search goes fold by fold and leaves hopeless combinations out.
const ENOUGH: usize = 4;

/// A cell under way.
pub(super) struct Progress {
    pub(super) cell: Cell,
    /// The losses of the rows of each fold, where it was seen in this search.
    pub(super) losses: Vec<Option<Vec<f32>>>,
    /// Its machines on the last fold.
    pub(super) before: Vec<Before>,
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
pub(super) struct Search<'a> {
    tuner: &'a Tuner,
    prepared: &'a Prepared,
    ordered: &'a Ordered,
    kernels: Vec<Kernel>,
    /// Where the cells of each kernel begin, and the end.
    firsts: Vec<usize>,
    pub(super) cells: Vec<Progress>,
    /// What the kernels are functions of, once it is computed.
    statistics: Option<Statistics>,
    /// Matrices kept from round to round where all fit, and memory of those that were not.
    kept: Vec<Mutex<Option<StoredGram>>>,
    spare: Mutex<Vec<Vec<f32>>>,
    scratch: Mutex<Vec<Scratch>>,
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
    pub(super) fn new(
        tuner: &'a Tuner,
        prepared: &'a Prepared,
        ordered: &'a Ordered,
        by_kernel: Vec<Vec<Params>>,
    ) -> Self {
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
        Self {
            tuner,
            prepared,
            ordered,
            kernels,
            firsts,
            cells,
            statistics: None,
            kept,
            spare: Mutex::default(),
            scratch: Mutex::default(),
        }
    }

    fn room(&self) -> Room {
        let (memory, n) = (self.tuner.options.budget.memory, self.ordered.rows.len());
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
    pub(super) fn run(&mut self, control: &Control, observer: &mut dyn Observer, mut stopped: bool) -> Result<bool> {
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
        let mut tasks: Vec<(usize, usize, Vec<usize>)> = Vec::new();
        for (at, &fold) in (0..batch.len()).flat_map(|at| folds.iter().map(move |fold| (at, fold))) {
            let cells = self.cells_of(batch[at], folds, fold);
            tasks.push((at, fold, cells));
        }
        let sizes: Vec<u64> = tasks.iter().map(|task| self.spent(&task.2)).collect();
        let begin = Begin { solver: "tune", n: self.ordered.rows.len(), tol: None, gap: None };
        let found = run(&sizes, &begin, control, observer, |task, control, _| {
            let (at, fold, cells) = &tasks[task];
            let before = |cell: usize| self.cells[cell].before.clone();
            self.walk(cells, before, matrices[*at].source(), *fold, room, control)
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
        let wanted = |&at: &usize| self.wanted(at, folds).iter().map(|w| w.0).collect::<Vec<_>>();
        let sizes: Vec<u64> = batch.iter().map(|at| self.spent(&wanted(at))).collect();
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

    /// How large a task of these cells is: what took longest so far goes first.
    fn spent(&self, cells: &[usize]) -> u64 {
        cells.iter().map(|&cell| 1000 + (1e6 * self.cells[cell].cell.seconds) as u64).sum()
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
        let bench = Bench {
            tuner: self.tuner,
            prepared: self.prepared,
            ordered: self.ordered,
            memory: room.training,
            spare: &self.scratch,
        };
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
