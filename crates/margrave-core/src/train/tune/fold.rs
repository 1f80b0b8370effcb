//! One combination on one fold: training and scoring.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::compose::Part;
use crate::gram::{ChainLink, ChainPoint, Gram, Pick, StoredGram, part, uniform};
use crate::loss::{DualTerm, Loss};
use crate::model::Scheme;
use crate::observe::Silent;
use crate::problem::{Formulation, Setup, Task};
use crate::solver::decomposition::{Scratch, Warm, at_point, resident};
use crate::{Control, Result, Status, Threads};

use super::grid::{cost_of, same_but_cost};
use super::judge::{Held, Judge};
use super::order::Ordered;
use super::{Params, Tuner};
use crate::train::classes::parts;
use crate::train::kernel_space::KernelSpace;
use crate::train::options::{SolverName, TrainOptions};
use crate::train::plan::{formulation_of, loss_of};
use crate::train::prepared::Prepared;
use crate::train::space::{Request, Space, StartPoint};

/// Where entries of K come from, rows in the order of the folds.
#[derive(Clone, Copy)]
pub(super) enum KernelEntries<'a> {
    /// All of K in memory.
    Stored(&'a StoredGram),
    /// Computed on demand.
    Live(&'a dyn Gram),
}

/// One binary machine of a combination trained on one fold; rows are all rows, in the order of the folds.
#[derive(Debug, Clone)]
pub(super) struct FoldMachine {
    pub(super) beta: Vec<f64>,
    /// K·β.
    pub(super) scores: Vec<f64>,
    pub(super) bias: f64,
}

/// The result of a combination on one fold.
pub(super) struct FoldResult {
    /// Its score and what the race compares.
    pub(super) held: Held,
    /// The scores of the held-out rows, n × outputs, if they are to be returned.
    pub(super) scores: Option<Vec<f64>>,
    /// Its machines, kept where they can warm-start another fold.
    pub(super) machines: Vec<FoldMachine>,
}

/// Trains combinations on folds: everything that all of them have in common.
pub(super) struct FoldTrainer<'a> {
    pub(super) tuner: &'a Tuner,
    pub(super) prepared: &'a Prepared,
    pub(super) ordered: &'a Ordered,
    pub(super) judge: &'a Judge<'a>,
    /// Bytes one training may use.
    pub(super) memory: u64,
    /// Whether all folds have the same K; otherwise each fills and scales its points.
    pub(super) same_points: bool,
    /// Buffers of finished trainings, to be reused.
    pub(super) spare: &'a Mutex<Vec<Scratch>>,
}

impl FoldTrainer<'_> {
    /// Trains and scores cells on one fold, in order. Returns the result of each (`None` if time ran out) and its seconds.
    /// `earlier`: the machines of each cell on an earlier fold, if any. `reached`: the points that a device reached for the
    /// machines of each cell on this fold.
    pub(super) fn train_cells(
        &self,
        cells: &[&Params],
        earlier: &[&[FoldMachine]],
        reached: &[&[ChainPoint]],
        source: KernelEntries<'_>,
        fold: usize,
        control: &Control,
    ) -> Result<Vec<(Option<FoldResult>, f64)>> {
        let mut out = Vec::with_capacity(cells.len());
        let mut scratch = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let mut last: Option<(Params, Vec<FoldMachine>)> = None;
        let mut chain: Option<(Params, Vec<Vec<f64>>)> = None;
        for ((params, earlier), reached) in cells.iter().zip(earlier).zip(reached) {
            let start_time = Instant::now();
            if control.check().is_err() {
                out.push((None, 0.0));
                continue;
            }
            let plain = self.tuner.machine(params);
            let machine = TrainOptions { threads: Threads::one(), start: None, probability: None, ..plain };
            let (loss, _) = loss_of(&machine)?;
            let (from, to) = self.ordered.held_out(fold);
            let kept = self.ordered.rows.len() - (to - from);
            let formulation = formulation_of(&machine, kept)?;
            let neighbour = last.take().filter(|(last, _)| same_but_cost(last, params));
            let resident = match source {
                KernelEntries::Stored(stored) if in_memory(&machine, params, formulation, loss.as_ref()) => {
                    Some(stored)
                }
                _ => None,
            };
            let cell = CellSetup { machine: &machine, loss: loss.as_ref(), formulation, fold, control };
            // Scores of a device are those of its own entries: no training here starts from them.
            let there = self.at_points(&cell, source, reached, &loss)?.map(|z| (z, Vec::new()));
            let found = match resident {
                _ if there.is_some() => there,
                Some(stored) => {
                    let ratio = neighbour.as_ref().map(|(last, _)| cost_of(params, kept) / cost_of(last, kept));
                    let near = neighbour.as_ref().zip(ratio).map(|((_, machines), ratio)| (machines.as_slice(), ratio));
                    self.train_in_memory(&cell, stored, near, earlier, reached, &mut scratch, &loss)?
                }
                None => {
                    let start = chain.take().filter(|(last, _)| same_but_cost(last, params)).map(|(last, betas)| {
                        let ratio = cost_of(params, kept) / cost_of(&last, kept);
                        let scaled = |beta: Vec<f64>| beta.into_iter().map(|b| b * ratio).collect::<Vec<f64>>();
                        betas.into_iter().map(scaled).collect::<Vec<_>>()
                    });
                    match self.train_on_kept(&cell, source, start, &loss)? {
                        Some((z, betas)) => {
                            chain = Some(((*params).clone(), betas));
                            Some((z, Vec::new()))
                        }
                        None => None,
                    }
                }
            };
            let result = found.map(|(z, machines)| {
                if !machines.is_empty() {
                    last = Some(((*params).clone(), machines.clone()));
                }
                let held = self.judge.held(self.scheme(&machine), &z, from, to);
                FoldResult { held, scores: self.tuner.keep_scores.then_some(z), machines }
            });
            out.push((result, start_time.elapsed().as_secs_f64()));
        }
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        Ok(out)
    }

    /// Trains the machines of a cell with all of K in memory. Returns the scores of the held-out rows (row-major) and the
    /// machines. `near`: the machines of a neighbouring cell on the same fold, and the ratio of the costs.
    fn train_in_memory(
        &self,
        cell: &CellSetup<'_>,
        stored: &StoredGram,
        near: Option<(&[FoldMachine], f64)>,
        earlier: &[FoldMachine],
        reached: &[ChainPoint],
        scratch: &mut Scratch,
        loss: &std::sync::Arc<dyn Loss>,
    ) -> Result<Option<(Vec<f64>, Vec<FoldMachine>)>> {
        let (from, to) = self.ordered.held_out(cell.fold);
        let list = self.parts(cell.machine, None);
        let view = stored.without(0, 0);
        let n = self.ordered.rows.len();
        let mut z = vec![0.0; (to - from) * list.len()];
        let mut machines = Vec::with_capacity(list.len());
        for (at, one) in list.iter().enumerate() {
            let WholeProblem { targets, weights } = self.whole(one, cell.fold);
            let (task, formulation) = (cell.machine.task, cell.formulation);
            let setup =
                Setup::new(task, formulation, &targets, Some(&weights), loss.clone(), cell.machine.bias, Vec::new)?;
            let Formulation::Cost { c } = formulation else { return Ok(None) };
            let costs: Vec<f64> = weights.iter().map(|w| c * w).collect();
            let mut warm = Vec::new();
            if let Some(point) = reached.get(at) {
                // Its scores are those of the device's entries: only β = 0 has the same ones here.
                let zero = vec![0.0; n];
                warm.push(Warm { known: zero.clone(), scores: zero, guesses: vec![point.beta.clone()] });
            }
            if let Some((machines, ratio)) = near {
                warm.push(along_cost(&machines[at], ratio, &costs, cell.machine.bias));
            }
            if let Some(machine) = earlier.get(at) {
                let mut start = across_folds(machine, &targets, &costs, cell.loss, cell.machine.bias);
                if !self.same_points {
                    // Its scores are those of another K: only β = 0 has known ones.
                    start.known.fill(0.0);
                    start.scores.fill(0.0);
                }
                warm.push(start);
            }
            let found = setup.with(&view, |problem| {
                resident(problem, stored, cell.machine.stop, &warm, self.memory, scratch, cell.control)
            })?;
            if matches!(found.status, Status::TimeLimit | Status::Interrupted) {
                return Ok(None);
            }
            let scores = match found.scores {
                Some(scores) => scores,
                None => {
                    let mut f = vec![0.0; n];
                    view.apply(crate::gram::Precision::Double, Pick::All, &found.beta, 1, &mut f, cell.control)?;
                    f
                }
            };
            let bias = found.bias.first().copied().unwrap_or(0.0);
            for row in from..to {
                z[(row - from) * list.len() + at] = scores[row] + bias;
            }
            machines.push(FoldMachine { beta: found.beta, scores, bias });
        }
        Ok(Some((z, machines)))
    }

    /// A binary problem over all rows on a fold: held-out rows, and those of other classes, have no weight.
    pub(super) fn whole(&self, one: &Part, fold: usize) -> WholeProblem {
        let ((from, to), n) = (self.ordered.held_out(fold), self.ordered.rows.len());
        let (mut targets, mut weights) = (vec![1.0; n], vec![0.0; n]);
        for (&row, y) in one.rows.iter().zip(&one.targets) {
            let row = row as usize;
            targets[row] = *y;
            if row < from || row >= to {
                weights[row] = self.ordered.weights.as_ref().map_or(1.0, |w| w[row]);
            }
        }
        WholeProblem { targets, weights }
    }

    /// The scores of the held-out rows by the machines at the points that a device has reached, if all of them are good enough.
    fn at_points(
        &self,
        cell: &CellSetup<'_>,
        source: KernelEntries<'_>,
        reached: &[ChainPoint],
        loss: &std::sync::Arc<dyn Loss>,
    ) -> Result<Option<Vec<f64>>> {
        if reached.is_empty() || reached.iter().any(|point| !point.reached) {
            return Ok(None);
        }
        let (from, to) = self.ordered.held_out(cell.fold);
        let view;
        let gram: &dyn Gram = match source {
            KernelEntries::Stored(stored) => {
                view = stored.without(0, 0);
                &view
            }
            KernelEntries::Live(gram) => gram,
        };
        let list = self.parts(cell.machine, None);
        let mut z = vec![0.0; (to - from) * list.len()];
        for ((at, one), point) in list.iter().enumerate().zip(reached) {
            let WholeProblem { targets, weights } = self.whole(one, cell.fold);
            let (task, formulation, bias) = (cell.machine.task, cell.formulation, cell.machine.bias);
            let setup = Setup::new(task, formulation, &targets, Some(&weights), loss.clone(), bias, Vec::new)?;
            let found = setup.with(gram, |problem| at_point(problem, &point.beta, &point.scores, cell.machine.stop))?;
            let Some(found) = found else { return Ok(None) };
            let bias = found.bias.first().copied().unwrap_or(0.0);
            for row in from..to {
                z[(row - from) * list.len() + at] = point.scores[row] + bias;
            }
        }
        Ok(Some(z))
    }

    /// The problems of a cell on a fold as links of chains, one per machine; `None` if no device solves them. `ratio`: its costs
    /// divided by those of the cell before it, which differs in nothing else.
    pub(super) fn links(&self, params: &Params, fold: usize, ratio: f64) -> Result<Option<Vec<ChainLink>>> {
        let plain = self.tuner.machine(params);
        let machine = TrainOptions { threads: Threads::one(), start: None, probability: None, ..plain };
        let (loss, _) = loss_of(&machine)?;
        let (from, to) = self.ordered.held_out(fold);
        let formulation = formulation_of(&machine, self.ordered.rows.len() - (to - from))?;
        let Formulation::Cost { c } = formulation else { return Ok(None) };
        if !in_memory(&machine, params, formulation, loss.as_ref()) || !machine.bias {
            return Ok(None);
        }
        let tol = machine.stop.tol.unwrap_or(1e-3);
        let mut links = Vec::new();
        for one in &self.parts(&machine, None) {
            let WholeProblem { targets, weights } = self.whole(one, fold);
            let fixed = DualTerm { p: 0.0, eps: 0.0, d: 0.0, lo: 0.0, hi: 0.0 };
            let term = |(y, w): (&f64, &f64)| if *w == 0.0 { Some(fixed) } else { loss.dual(*y, c * w) };
            let Some(terms) = targets.iter().zip(&weights).map(term).collect::<Option<Vec<_>>>() else {
                return Ok(None);
            };
            if uniform(&terms).is_none() {
                return Ok(None);
            }
            // A little more than asked for: the verdict is made here, in double precision.
            links.push(ChainLink { terms, ratio, tol: 0.95 * tol });
        }
        Ok(Some(links))
    }

    /// Trains the machines of a cell on the rows not held out, cold or from a start. Returns the scores of the held-out rows
    /// and β of each machine.
    fn train_on_kept(
        &self,
        cell: &CellSetup<'_>,
        source: KernelEntries<'_>,
        start: Option<Vec<Vec<f64>>>,
        loss: &std::sync::Arc<dyn Loss>,
    ) -> Result<Option<(Vec<f64>, Vec<Vec<f64>>)>> {
        let (from, to) = self.ordered.held_out(cell.fold);
        let n = self.ordered.rows.len();
        let kept: Vec<u32> = (0..from as u32).chain(to as u32..n as u32).collect();
        let without;
        let live;
        let gram: &dyn Gram = match source {
            KernelEntries::Stored(stored) => {
                without = stored.without(from, to);
                &without
            }
            KernelEntries::Live(gram) => {
                live = part(gram, &kept);
                live.as_ref()
            }
        };
        let list = self.parts(cell.machine, Some(&kept));
        let outputs = list.len();
        let mut z = vec![0.0; (to - from) * outputs];
        let mut betas = Vec::with_capacity(outputs);
        for (at, one) in list.iter().enumerate() {
            let own = (one.rows.len() != kept.len()).then(|| part(gram, &one.rows));
            let gram = own.as_deref().unwrap_or(gram);
            let weights: Option<Vec<f64>> = self
                .ordered
                .weights
                .as_ref()
                .map(|w| one.rows.iter().map(|&row| w[kept[row as usize] as usize]).collect());
            let (task, bias) = (cell.machine.task, cell.machine.bias);
            let setup =
                Setup::new(task, cell.formulation, &one.targets, weights.as_deref(), loss.clone(), bias, || {
                    gram.diag()
                })?;
            let start = start.as_ref().and_then(|betas| betas.get(at).cloned()).filter(|b| b.len() == setup.len());
            // The bias of the last cell is not kept: the best one for its β is computed again.
            let start = start.map(|beta| StartPoint { beta, ..StartPoint::default() });
            let request = Request { options: cell.machine, memory: self.memory, control: cell.control };
            let solved = KernelSpace::over(gram).solve(&setup, start, request, &mut Silent)?;
            if matches!(solved.proven.status, Status::TimeLimit | Status::Interrupted) {
                return Ok(None);
            }
            let machine = &solved.proven.machine;
            let used: Vec<(u32, f64)> = one
                .rows
                .iter()
                .zip(&machine.coefficients)
                .filter(|(_, c)| **c != 0.0)
                .map(|(&row, c)| (kept[row as usize], *c))
                .collect();
            let columns: Vec<u32> = used.iter().map(|u| u.0).collect();
            let mut block = vec![0.0; columns.len()];
            for row in from..to {
                let f: f64 = match source {
                    KernelEntries::Stored(stored) => {
                        let entries = stored.row(row);
                        used.iter().map(|&(column, c)| f64::from(entries[column as usize]) * c).sum()
                    }
                    KernelEntries::Live(gram) => {
                        gram.block_f64(Pick::Range(row, row + 1), Pick::List(&columns), &mut block, cell.control)?;
                        block.iter().zip(&used).map(|(k, (_, c))| k * c).sum()
                    }
                };
                z[(row - from) * outputs + at] = f + machine.bias;
            }
            betas.push(solved.proven.beta);
        }
        Ok(Some((z, betas)))
    }

    /// The binary problems of a machine, over all rows or over those of `kept`; row numbers are then indices into `kept`.
    fn parts(&self, machine: &TrainOptions, kept: Option<&[u32]>) -> Vec<Part> {
        let targets: Vec<f64> = match kept {
            None => self.ordered.targets.clone(),
            Some(kept) => kept.iter().map(|&row| self.ordered.targets[row as usize]).collect(),
        };
        match self.scheme(machine) {
            Scheme::One => vec![Part { rows: (0..targets.len() as u32).collect(), targets }],
            scheme => {
                let codes: Vec<u32> = targets.iter().map(|y| *y as u32).collect();
                parts(scheme, self.prepared.labels.len(), &codes)
            }
        }
    }

    fn scheme(&self, machine: &TrainOptions) -> Scheme {
        scheme_of(machine, self.prepared)
    }
}

/// How the classes of a search become machines.
pub(super) fn scheme_of(machine: &TrainOptions, prepared: &Prepared) -> Scheme {
    match (machine.task, prepared.labels.len()) {
        (Task::Classify, 3..) => machine.scheme(&machine.kernel, &Formulation::Cost { c: 1.0 }),
        _ => Scheme::One,
    }
}

/// A binary problem over all rows, in the order of the folds.
pub(super) struct WholeProblem {
    targets: Vec<f64>,
    weights: Vec<f64>,
}

/// The options of one cell on one fold.
struct CellSetup<'a> {
    machine: &'a TrainOptions,
    loss: &'a dyn Loss,
    formulation: Formulation,
    fold: usize,
    control: &'a Control,
}

/// Whether the solver that works on K in memory can train this machine. It needs a loss with a box-quadratic dual that is not
/// just a linear system, and a kernel whose entries are accurate enough in single precision.
fn in_memory(machine: &TrainOptions, params: &Params, formulation: Formulation, loss: &dyn Loss) -> bool {
    use crate::kernel::Statistic;
    let bounded = matches!(
        params.kernel.statistic(),
        Statistic::SquaredDistance | Statistic::AbsoluteDistance | Statistic::ChiSquare
    );
    let suits = loss.dual(1.0, 1.0).is_some_and(|t| t.eps > 0.0 || t.d == 0.0 || t.lo.is_finite() || t.hi.is_finite());
    let solver = matches!(machine.solver, SolverName::Auto | SolverName::Decomposition);
    bounded && suits && solver && matches!(formulation, Formulation::Cost { .. }) && machine.budget.iterations.is_none()
}

/// Makes β sum to zero: the missing amount is spread evenly over the free variables.
fn balance(beta: &mut [f64], costs: &[f64]) {
    let inside: Vec<usize> = (0..beta.len()).filter(|&i| beta[i] != 0.0 && beta[i].abs() < costs[i]).collect();
    if inside.is_empty() {
        return;
    }
    let share = -beta.iter().sum::<f64>() / inside.len() as f64;
    for i in inside {
        // A free β is not 0; it keeps its sign.
        let moved = beta[i] + share;
        beta[i] = if beta[i] > 0.0 { moved.clamp(0.0, costs[i]) } else { moved.clamp(-costs[i], 0.0) };
    }
}

/// A warm start from the machine for another C: β scaled as a whole, or only where it was at its bound.
fn along_cost(machine: &FoldMachine, ratio: f64, costs: &[f64], bias: bool) -> Warm {
    let known: Vec<f64> = machine.beta.iter().map(|b| ratio * b).collect();
    let scores = machine.scores.iter().map(|f| ratio * f).collect();
    let mut kept: Vec<f64> = known
        .iter()
        .zip(&machine.beta)
        .zip(costs)
        .map(|((scaled, b), cost)| if scaled.abs() >= (1.0 - 1e-9) * cost { *scaled } else { *b })
        .collect();
    let any_inside = kept.iter().zip(&known).any(|(a, b)| a != b);
    if bias {
        balance(&mut kept, costs);
    }
    let guesses = if any_inside { vec![known.clone(), kept] } else { vec![known.clone()] };
    Warm { known, scores, guesses }
}

/// A warm start from the machine of another fold: rows held out now get β = 0, and rows held out then get β from the slope of
/// the loss at their score.
fn across_folds(machine: &FoldMachine, targets: &[f64], costs: &[f64], loss: &dyn Loss, bias: bool) -> Warm {
    let mut guess: Vec<f64> = (0..costs.len())
        .map(|i| match (costs[i] > 0.0, machine.beta[i]) {
            (false, _) => 0.0,
            (true, b) if b != 0.0 => b,
            (true, _) => -costs[i] * loss.slope(targets[i], machine.scores[i] + machine.bias),
        })
        .collect();
    if bias {
        balance(&mut guess, costs);
    }
    Warm { known: machine.beta.clone(), scores: machine.scores.clone(), guesses: vec![guess] }
}
