//! Searching a grid by cross validation.
//!
//! Rows are put in the order of their folds once. Each kernel of the grid has its Gram matrix computed once, in single
//! precision, for all folds, costs and losses (where n² numbers fit into the memory; rows on demand elsewhere). A fold is
//! walked along ascending C, each machine starting from the one before with β scaled by the ratio of costs. Folds and
//! kernels run side by side. Scaling, if asked for, is learnt from all rows: it does not look at targets.

use std::sync::Arc;
use std::time::Instant;

use margrave_core::backend::cpu::CpuGram;
use margrave_core::compose::cross_validate::{Deal, folds};
use margrave_core::compose::{LANES, Part, run};
use margrave_core::data::{Dataset, Points, Scaling};
use margrave_core::gram::{Gram, Pick, Picked, PrecomputedGram, StoredGram, part};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::model::{Scheme, multi};
use margrave_core::observe::{Begin, Observer, Silent, Step};
use margrave_core::problem::{Formulation, Machine, Setup, Task};
use margrave_core::{Control, Error, Result, Status, Threads};

use crate::fit::{Fit, Prepared, formulation_of, loss_of};
use crate::multi::parts;
use crate::solve::solve_one;
use crate::svm::Svm;

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
    /// Of each fold: share of right labels, or minus the mean squared error. Empty if there was no time for it.
    pub folds: Vec<f64>,
    /// Seconds of training, over all folds.
    pub seconds: f64,
}

impl Cell {
    /// Mean over the folds; `None` if there was no time for all of them.
    pub fn score(&self) -> Option<f64> {
        (!self.folds.is_empty()).then(|| self.folds.iter().sum::<f64>() / self.folds.len() as f64)
    }

    /// Deviation over the folds.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.score()?;
        Some((self.folds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / self.folds.len() as f64).sqrt())
    }
}

/// A finished search.
#[derive(Debug, Clone)]
pub struct Tuned {
    /// All combinations, in the order of the grid: kernel, γ, loss, ε, ν, C.
    pub cells: Vec<Cell>,
    /// The best cell: of equals the one of least C (largest λ), then of least γ. `None` if none was finished.
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
    /// The fold of each row, in place of folds dealt here.
    pub fold_of: Option<Vec<u32>>,
    /// How much each row counts in the score of its fold; `None`: all the same.
    pub counts: Option<Vec<f64>>,
    /// Cells known from an earlier search with the same data, folds and seed.
    pub known: Vec<Cell>,
}

/// Values, or one stand-in where there are none.
fn or_one<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().cloned().map(Some).collect() }
}

impl Tuner {
    /// A search with five folds.
    pub fn new(svm: Svm, grid: Grid) -> Self {
        Self { svm, grid, folds: 5, groups: None, fold_of: None, counts: None, known: Vec::new() }
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
        let ordered = Ordered::new(self, &prepared)?;
        let mut cells = Vec::new();
        let n = prepared.points.len();
        let room = svm.budget.memory / 5 * 3;
        let at_once = (room / StoredGram::bytes(n).max(1)).min(LANES as u64) as usize;
        let total: usize = by_kernel.iter().map(Vec::len).sum();
        let mut done = 0;
        let flow = observer.begin(&Begin { solver: "tune", n, tol: svm.stop.tol, gap: svm.stop.gap });
        let mut stopped = flow.is_break();
        for batch in by_kernel.chunks(at_once.max(1)) {
            let count: usize = batch.iter().map(Vec::len).sum();
            let mut share = Share { observer, before: done as f64, part: count as f64, whole: total as f64, stopped };
            let found = ordered.batch(self, &prepared, batch, at_once > 0, &control, &mut share)?;
            stopped = share.stopped;
            cells.extend(found);
            done += count;
        }
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

/// The best finished cell.
fn choose(cells: &[Cell]) -> Option<usize> {
    let key = |at: usize| {
        let p = &cells[at].params;
        // A larger λ is a smaller C.
        (p.c.or(p.lambda.map(|l| 1.0 / l)).unwrap_or(0.0), p.kernel.gamma().unwrap_or(0.0))
    };
    let mut best: Option<(usize, f64)> = None;
    for (at, cell) in cells.iter().enumerate() {
        let Some(score) = cell.score() else { continue };
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

/// Rows in the order of their folds.
struct Ordered {
    rows: Vec<u32>,
    /// Where each fold begins, and the end.
    starts: Vec<usize>,
    targets: Vec<f64>,
    weights: Option<Vec<f64>>,
    counts: Option<Vec<f64>>,
}

/// Where entries of K come from, rows in the order of the folds.
enum Source<'a> {
    Stored(&'a StoredGram),
    Live(&'a dyn Gram),
}

impl Ordered {
    fn new(tuner: &Tuner, prepared: &Prepared) -> Result<Self> {
        let n = prepared.points.len();
        let codes: Vec<u32> = match prepared.labels.len() {
            2 => prepared.targets.iter().map(|y| u32::from(*y > 0.0)).collect(),
            _ => prepared.codes(),
        };
        let deal = match &tuner.groups {
            Some(groups) => Deal::Grouped(groups),
            None if tuner.svm.task == Task::Classify => Deal::Stratified(&codes),
            None => Deal::Plain,
        };
        let fold = match &tuner.fold_of {
            Some(given) if given.len() != n || given.iter().any(|&f| f as usize >= tuner.folds) => {
                return Err(Error::data(format!("the folds given are not {n} numbers below {}", tuner.folds)));
            }
            Some(given) => given.clone(),
            None => folds(n, tuner.folds, deal, tuner.svm.seed)?,
        };
        let mut rows: Vec<u32> = (0..n as u32).collect();
        rows.sort_by_key(|&row| fold[row as usize]);
        let starts = (0..=tuner.folds).map(|f| fold.iter().filter(|&&g| (g as usize) < f).count()).collect();
        let targets = rows.iter().map(|&row| prepared.targets[row as usize]).collect();
        let weights = prepared.weights.as_ref().map(|w| rows.iter().map(|&row| w[row as usize]).collect());
        let counts = match &tuner.counts {
            Some(given) if given.len() != n => {
                return Err(Error::Shape { what: "counts of the rows", expected: n, found: given.len() });
            }
            given => given.as_ref().map(|all| rows.iter().map(|&row| all[row as usize]).collect()),
        };
        Ok(Self { rows, starts, targets, weights, counts })
    }

    /// All cells of some kernels.
    fn batch(
        &self,
        tuner: &Tuner,
        prepared: &Prepared,
        kernels: &[Vec<Params>],
        store: bool,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Cell>> {
        let k = self.starts.len() - 1;
        let mut results: Vec<Cell> = kernels
            .iter()
            .flatten()
            .map(|params| {
                let known = tuner.known.iter().find(|cell| cell.params == *params && cell.folds.len() == k);
                known.cloned().unwrap_or_else(|| Cell { params: params.clone(), folds: vec![], seconds: 0.0 })
            })
            .collect();
        let mut firsts = vec![0];
        kernels.iter().for_each(|cells| firsts.push(firsts[firsts.len() - 1] + cells.len()));
        let wanted: Vec<usize> = (0..kernels.len())
            .filter(|&at| results[firsts[at]..firsts[at + 1]].iter().any(|c| c.folds.is_empty()))
            .collect();
        let mut grams: Vec<Option<(Box<dyn Gram>, Option<StoredGram>)>> = (0..kernels.len()).map(|_| None).collect();
        for &at in &wanted {
            let Some(kernel) = kernels[at].first().map(|params| params.kernel) else { continue };
            let gram: Box<dyn Gram> = match kernel {
                Kernel::Precomputed => Box::new(permuted(&prepared.points, &self.rows)?),
                _ => Box::new(CpuGram::square(kernel, &prepared.points.gather(&self.rows))?),
            };
            let stored = match store.then(|| StoredGram::new(gram.as_ref(), control)) {
                Some(Ok(stored)) => Some(stored),
                // Out of time: nothing of this batch can be finished.
                Some(Err(_)) => return Ok(results),
                None => None,
            };
            grams[at] = Some((gram, stored));
        }
        let tasks: Vec<(usize, usize)> = wanted.iter().flat_map(|&at| (0..k).map(move |f| (at, f))).collect();
        let sizes: Vec<u64> = tasks.iter().map(|&(at, _)| kernels[at].len() as u64).collect();
        let n = self.rows.len();
        let stored_bytes = if store { StoredGram::bytes(n) * wanted.len() as u64 } else { 0 };
        let memory = (tuner.svm.budget.memory.saturating_sub(stored_bytes) / LANES as u64).max(32 << 20);
        let begin = Begin { solver: "tune", n, tol: None, gap: None };
        let scored = run(&sizes, &begin, control, observer, |task, control, _| {
            let (at, fold) = tasks[task];
            let Some((gram, stored)) = &grams[at] else { return Ok(vec![]) };
            let source = match stored {
                Some(stored) => Source::Stored(stored),
                None => Source::Live(gram.as_ref()),
            };
            self.walk(tuner, prepared, &kernels[at], &source, fold, memory, control)
        })?;
        for (&(at, fold), list) in tasks.iter().zip(scored) {
            for (cell, (score, seconds)) in results[firsts[at]..firsts[at + 1]].iter_mut().zip(list) {
                if fold == 0 && cell.folds.len() == k {
                    // Known before.
                    continue;
                }
                cell.seconds += seconds;
                if let (Some(score), true) = (score, cell.folds.len() == fold) {
                    cell.folds.push(score);
                }
            }
        }
        results.iter_mut().filter(|cell| cell.folds.len() != k).for_each(|cell| cell.folds.clear());
        Ok(results)
    }

    /// Every cell of one kernel on one fold, in order: the score (if there was time) and the seconds it took.
    fn walk(
        &self,
        tuner: &Tuner,
        prepared: &Prepared,
        cells: &[Params],
        source: &Source<'_>,
        fold: usize,
        memory: u64,
        control: &Control,
    ) -> Result<Vec<(Option<f64>, f64)>> {
        let (from, to, n) = (self.starts[fold], self.starts[fold + 1], self.rows.len());
        let kept: Vec<u32> = (0..from as u32).chain(to as u32..n as u32).collect();
        let without;
        let live;
        let gram: &dyn Gram = match source {
            Source::Stored(stored) => {
                without = stored.without(from, to);
                &without
            }
            Source::Live(gram) => {
                live = part(*gram, &kept);
                live.as_ref()
            }
        };
        let mut out = Vec::with_capacity(cells.len());
        let mut before: Option<(Params, Vec<Vec<f64>>)> = None;
        for params in cells {
            let begun = Instant::now();
            if control.check().is_err() {
                out.push((None, 0.0));
                continue;
            }
            let machine = Svm { threads: Threads::one(), start: None, probability: None, ..tuner.machine(params) };
            let (loss, _) = loss_of(&machine)?;
            let formulation = formulation_of(&machine, kept.len())?;
            let start = before.take().filter(|(last, _)| same_but_cost(last, params)).map(|(last, betas)| {
                let ratio = cost_of(params, kept.len()) / cost_of(&last, kept.len());
                betas.into_iter().map(|beta| beta.into_iter().map(|b| b * ratio).collect()).collect::<Vec<Vec<f64>>>()
            });
            let job = FoldJob { machine: &machine, loss, formulation, gram, kept: &kept, memory, control };
            let trained = self.train(&job, prepared, start)?;
            let Some(trained) = trained else {
                out.push((None, begun.elapsed().as_secs_f64()));
                continue;
            };
            let score = self.score(&trained, prepared, &machine, source, &kept, from, to, control)?;
            before = Some((params.clone(), trained.into_iter().map(|t| t.beta).collect()));
            out.push((Some(score), begun.elapsed().as_secs_f64()));
        }
        Ok(out)
    }

    /// The machines of one cell on one fold; `None` if there was no time.
    fn train(
        &self,
        job: &FoldJob<'_>,
        prepared: &Prepared,
        start: Option<Vec<Vec<f64>>>,
    ) -> Result<Option<Vec<Trained>>> {
        let FoldJob { machine, kept, .. } = job;
        let task = machine.task;
        let scheme = scheme_of(machine, prepared);
        let list: Vec<Part> = match scheme {
            Scheme::One => vec![Part {
                rows: (0..kept.len() as u32).collect(),
                targets: kept.iter().map(|&row| self.targets[row as usize]).collect(),
            }],
            _ => {
                let codes: Vec<u32> = kept.iter().map(|&row| self.targets[row as usize] as u32).collect();
                parts(scheme, prepared.labels.len(), &codes)
            }
        };
        let mut out = Vec::with_capacity(list.len());
        for (at, one) in list.iter().enumerate() {
            let own = (one.rows.len() != kept.len()).then(|| part(job.gram, &one.rows));
            let gram = own.as_deref().unwrap_or(job.gram);
            let weights: Option<Vec<f64>> =
                self.weights.as_ref().map(|w| one.rows.iter().map(|&row| w[kept[row as usize] as usize]).collect());
            let setup = Setup::new(
                task,
                job.formulation,
                &one.targets,
                weights.as_deref(),
                job.loss.clone(),
                machine.bias,
                || gram.diag(),
            )?;
            let start = start.as_ref().and_then(|betas| betas.get(at).cloned()).filter(|b| b.len() == setup.len());
            // The bias of the last cell is not kept: the best one for its β is found anew.
            let start = start.map(|beta| (beta, Vec::new()));
            let solved = solve_one(machine, &setup, gram, None, start, job.memory, job.control, &mut Silent)?;
            if matches!(solved.solution.status, Status::TimeLimit | Status::Interrupted) {
                return Ok(None);
            }
            let bias = match solved.certificate.bias() {
                [] => solved.solution.bias.clone(),
                bias => bias.to_vec(),
            };
            let machine = setup.machine(&solved.solution.beta, &bias);
            out.push(Trained { machine, rows: one.rows.clone(), beta: solved.solution.beta });
        }
        Ok(Some(out))
    }

    /// The score of the held-out rows `from..to`.
    fn score(
        &self,
        trained: &[Trained],
        prepared: &Prepared,
        machine: &Svm,
        source: &Source<'_>,
        kept: &[u32],
        from: usize,
        to: usize,
        control: &Control,
    ) -> Result<f64> {
        let outputs = trained.len();
        let mut z = vec![0.0; (to - from) * outputs];
        for (output, one) in trained.iter().enumerate() {
            let used: Vec<(u32, f64)> = one
                .rows
                .iter()
                .zip(&one.machine.coefficients)
                .filter(|(_, c)| **c != 0.0)
                .map(|(&row, c)| (kept[row as usize], *c))
                .collect();
            match source {
                Source::Stored(stored) => {
                    for row in from..to {
                        let entries = stored.row(row);
                        let f: f64 = used.iter().map(|&(column, c)| f64::from(entries[column as usize]) * c).sum();
                        z[(row - from) * outputs + output] = f + one.machine.bias;
                    }
                }
                Source::Live(gram) => {
                    let columns: Vec<u32> = used.iter().map(|u| u.0).collect();
                    let mut block = vec![0.0; columns.len()];
                    for row in from..to {
                        gram.block_f64(Pick::Range(row, row + 1), Pick::List(&columns), &mut block, control)?;
                        let f: f64 = block.iter().zip(&used).map(|(k, (_, c))| k * c).sum();
                        z[(row - from) * outputs + output] = f + one.machine.bias;
                    }
                }
            }
        }
        let truth = &self.targets[from..to];
        let share = |at: usize| self.counts.as_ref().map_or(1.0, |counts| counts[from + at]);
        let count = (0..truth.len()).map(share).sum::<f64>().max(f64::MIN_POSITIVE);
        let right = |at: usize, is: bool| if is { share(at) } else { 0.0 };
        let classes = prepared.labels.len();
        let mut scratch = vec![0; classes];
        Ok(match (machine.task, scheme_of(machine, prepared)) {
            (Task::Classify, Scheme::One) => {
                let each = truth.iter().zip(&z).enumerate();
                each.map(|(at, (y, z))| right(at, (*z > 0.0) == (*y > 0.0))).sum::<f64>() / count
            }
            (Task::Classify, scheme) => {
                let mut winner = |z: &[f64]| match scheme {
                    Scheme::OneVsRest => multi::by_score(z),
                    _ => multi::by_votes(classes, z, &mut scratch),
                };
                let each = z.chunks_exact(outputs).zip(truth).enumerate();
                each.map(|(at, (z, y))| right(at, f64::from(winner(z)) == *y)).sum::<f64>() / count
            }
            _ => {
                let each = truth.iter().zip(&z).enumerate();
                -each.map(|(at, (y, z))| share(at) * (y - z) * (y - z)).sum::<f64>() / count
            }
        })
    }
}

/// One cell on one fold.
struct FoldJob<'a> {
    machine: &'a Svm,
    loss: Arc<dyn Loss>,
    formulation: Formulation,
    gram: &'a dyn Gram,
    kept: &'a [u32],
    memory: u64,
    control: &'a Control,
}

/// One binary machine of a cell.
struct Trained {
    machine: Machine,
    /// Its rows, among those kept.
    rows: Vec<u32>,
    beta: Vec<f64>,
}

fn scheme_of(machine: &Svm, prepared: &Prepared) -> Scheme {
    match (machine.task, prepared.labels.len()) {
        (Task::Classify, 3..) => machine.scheme(&machine.kernel, &Formulation::Cost { c: 1.0 }),
        _ => Scheme::One,
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
