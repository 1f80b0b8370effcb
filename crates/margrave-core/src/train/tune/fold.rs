//! One combination on one fold: training and scoring.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::compose::Part;
use crate::gram::{Gram, Pick, StoredGram, part};
use crate::loss::Loss;
use crate::model::{Scheme, multi};
use crate::observe::Silent;
use crate::problem::{Formulation, Setup, Task};
use crate::solver::decomposition::{Scratch, Warm, resident};
use crate::{Control, Result, Status, Threads};

use super::grid::{cost_of, same_but_cost};
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
pub(super) enum Source<'a> {
    /// All of K in memory.
    Stored(&'a StoredGram),
    /// Computed on demand.
    Live(&'a dyn Gram),
}

/// One binary machine of a combination, over all rows in the order of the folds.
#[derive(Debug, Clone)]
pub(super) struct Before {
    beta: Vec<f64>,
    /// K·β.
    scores: Vec<f64>,
    bias: f64,
}

/// What came of a combination on a fold.
pub(super) struct Outcome {
    /// Share of right labels, or minus the mean squared error.
    pub(super) score: f64,
    /// Of each held-out row: 1 if the label is wrong, or the squared error.
    pub(super) losses: Vec<f32>,
    /// Its machines, where they may help another fold.
    pub(super) machines: Vec<Before>,
}

/// What all combinations have in common.
pub(super) struct Bench<'a> {
    pub(super) tuner: &'a Tuner,
    pub(super) prepared: &'a Prepared,
    pub(super) ordered: &'a Ordered,
    /// Bytes a training may use.
    pub(super) memory: u64,
    /// Memory of trainings that are done.
    pub(super) spare: &'a Mutex<Vec<Scratch>>,
}

impl Bench<'_> {
    /// Cells on one fold, in order; `None` where there was no time, and the seconds each took. `before`: the machines of each on
    /// an earlier fold, if any.
    pub(super) fn walk(
        &self,
        cells: &[&Params],
        before: &[&[Before]],
        source: Source<'_>,
        fold: usize,
        control: &Control,
    ) -> Result<Vec<(Option<Outcome>, f64)>> {
        let mut out = Vec::with_capacity(cells.len());
        let mut scratch = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let mut last: Option<(Params, Vec<Before>)> = None;
        let mut chain: Option<(Params, Vec<Vec<f64>>)> = None;
        for (params, before) in cells.iter().zip(before) {
            let begun = Instant::now();
            if control.check().is_err() {
                out.push((None, 0.0));
                continue;
            }
            let plain = self.tuner.machine(params);
            let machine = TrainOptions { threads: Threads::one(), start: None, probability: None, ..plain };
            let (loss, _) = loss_of(&machine)?;
            let (from, to) = self.ordered.held(fold);
            let kept = self.ordered.rows.len() - (to - from);
            let formulation = formulation_of(&machine, kept)?;
            let neighbour = last.take().filter(|(last, _)| same_but_cost(last, params));
            let resident = match source {
                Source::Stored(stored) if in_memory(&machine, params, formulation, loss.as_ref()) => Some(stored),
                _ => None,
            };
            let job = Job { machine: &machine, loss: loss.as_ref(), formulation, fold, control };
            let found = match resident {
                Some(stored) => {
                    let ratio = neighbour.as_ref().map(|(last, _)| cost_of(params, kept) / cost_of(last, kept));
                    let near = neighbour.as_ref().zip(ratio).map(|((_, machines), ratio)| (machines.as_slice(), ratio));
                    self.resident(&job, stored, near, before, &mut scratch, &loss)?
                }
                None => {
                    let start = chain.take().filter(|(last, _)| same_but_cost(last, params)).map(|(last, betas)| {
                        let ratio = cost_of(params, kept) / cost_of(&last, kept);
                        let scaled = |beta: Vec<f64>| beta.into_iter().map(|b| b * ratio).collect::<Vec<f64>>();
                        betas.into_iter().map(scaled).collect::<Vec<_>>()
                    });
                    match self.anew(&job, source, start, &loss)? {
                        Some((z, betas)) => {
                            chain = Some(((*params).clone(), betas));
                            Some((z, Vec::new()))
                        }
                        None => None,
                    }
                }
            };
            let outcome = found.map(|(z, machines)| {
                if !machines.is_empty() {
                    last = Some(((*params).clone(), machines.clone()));
                }
                let (score, losses) = self.score(&machine, &z, from, to);
                Outcome { score, losses, machines }
            });
            out.push((outcome, begun.elapsed().as_secs_f64()));
        }
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        Ok(out)
    }

    /// The machines of a cell where all of K lies in memory: the scores of the held-out rows, one row after the other, and the
    /// machines. `near`: those of a neighbour on the same fold and the ratio of the costs.
    fn resident(
        &self,
        job: &Job<'_>,
        stored: &StoredGram,
        near: Option<(&[Before], f64)>,
        before: &[Before],
        scratch: &mut Scratch,
        loss: &std::sync::Arc<dyn Loss>,
    ) -> Result<Option<(Vec<f64>, Vec<Before>)>> {
        let (from, to) = self.ordered.held(job.fold);
        let list = self.parts(job.machine, None);
        let view = stored.without(0, 0);
        let mut z = vec![0.0; (to - from) * list.len()];
        let mut machines = Vec::with_capacity(list.len());
        for (at, one) in list.iter().enumerate() {
            let n = self.ordered.rows.len();
            let (mut targets, mut weights) = (vec![1.0; n], vec![0.0; n]);
            for (&row, y) in one.rows.iter().zip(&one.targets) {
                let row = row as usize;
                targets[row] = *y;
                if row < from || row >= to {
                    weights[row] = self.ordered.weights.as_ref().map_or(1.0, |w| w[row]);
                }
            }
            let (task, formulation) = (job.machine.task, job.formulation);
            let setup =
                Setup::new(task, formulation, &targets, Some(&weights), loss.clone(), job.machine.bias, Vec::new)?;
            let Formulation::Cost { c } = formulation else { return Ok(None) };
            let costs: Vec<f64> = weights.iter().map(|w| c * w).collect();
            let mut warm = Vec::new();
            if let Some((machines, ratio)) = near {
                warm.push(along_cost(&machines[at], ratio, &costs, job.machine.bias));
            }
            if let Some(machine) = before.get(at) {
                warm.push(across_folds(machine, &targets, &costs, job.loss, job.machine.bias));
            }
            let found = setup.with(&view, |problem| {
                resident(problem, stored, job.machine.stop, &warm, self.memory, scratch, job.control)
            })?;
            if matches!(found.status, Status::TimeLimit | Status::Interrupted) {
                return Ok(None);
            }
            let scores = match found.scores {
                Some(scores) => scores,
                None => {
                    let mut f = vec![0.0; n];
                    view.apply(crate::gram::Precision::Double, Pick::All, &found.beta, 1, &mut f, job.control)?;
                    f
                }
            };
            let bias = found.bias.first().copied().unwrap_or(0.0);
            for row in from..to {
                z[(row - from) * list.len() + at] = scores[row] + bias;
            }
            machines.push(Before { beta: found.beta, scores, bias });
        }
        Ok(Some((z, machines)))
    }

    /// The machines of a cell from scratch or a start: the scores of the held-out rows, and β of each machine.
    fn anew(
        &self,
        job: &Job<'_>,
        source: Source<'_>,
        start: Option<Vec<Vec<f64>>>,
        loss: &std::sync::Arc<dyn Loss>,
    ) -> Result<Option<(Vec<f64>, Vec<Vec<f64>>)>> {
        let (from, to) = self.ordered.held(job.fold);
        let n = self.ordered.rows.len();
        let kept: Vec<u32> = (0..from as u32).chain(to as u32..n as u32).collect();
        let without;
        let live;
        let gram: &dyn Gram = match source {
            Source::Stored(stored) => {
                without = stored.without(from, to);
                &without
            }
            Source::Live(gram) => {
                live = part(gram, &kept);
                live.as_ref()
            }
        };
        let list = self.parts(job.machine, Some(&kept));
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
            let (task, bias) = (job.machine.task, job.machine.bias);
            let setup =
                Setup::new(task, job.formulation, &one.targets, weights.as_deref(), loss.clone(), bias, || {
                    gram.diag()
                })?;
            let start = start.as_ref().and_then(|betas| betas.get(at).cloned()).filter(|b| b.len() == setup.len());
            // The bias of the last cell is not kept: the best one for its β is found anew.
            let start = start.map(|beta| StartPoint { beta, ..StartPoint::default() });
            let request = Request { options: job.machine, memory: self.memory, control: job.control };
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
                    Source::Stored(stored) => {
                        let entries = stored.row(row);
                        used.iter().map(|&(column, c)| f64::from(entries[column as usize]) * c).sum()
                    }
                    Source::Live(gram) => {
                        gram.block_f64(Pick::Range(row, row + 1), Pick::List(&columns), &mut block, job.control)?;
                        block.iter().zip(&used).map(|(k, (_, c))| k * c).sum()
                    }
                };
                z[(row - from) * outputs + at] = f + machine.bias;
            }
            betas.push(solved.proven.beta);
        }
        Ok(Some((z, betas)))
    }

    /// The binary problems of a machine: over all rows, or over those of `kept`, which they are then numbered by.
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
        match (machine.task, self.prepared.labels.len()) {
            (Task::Classify, 3..) => machine.scheme(&machine.kernel, &Formulation::Cost { c: 1.0 }),
            _ => Scheme::One,
        }
    }

    /// The score of the held-out rows `from..to`, and the loss of each.
    fn score(&self, machine: &TrainOptions, z: &[f64], from: usize, to: usize) -> (f64, Vec<f32>) {
        let truth = &self.ordered.targets[from..to];
        let share = |at: usize| self.ordered.counts.as_ref().map_or(1.0, |counts| counts[from + at]);
        let count = (0..truth.len()).map(share).sum::<f64>().max(f64::MIN_POSITIVE);
        let classes = self.prepared.labels.len();
        let outputs = z.len() / truth.len().max(1);
        let mut scratch = vec![0; classes];
        let losses: Vec<f64> = match (machine.task, self.scheme(machine)) {
            (Task::Classify, Scheme::One) => {
                truth.iter().zip(z).map(|(y, z)| f64::from(u8::from((*z > 0.0) != (*y > 0.0)))).collect()
            }
            (Task::Classify, scheme) => {
                let mut winner = |z: &[f64]| match scheme {
                    Scheme::OneVsRest => multi::by_score(z),
                    _ => multi::by_votes(classes, z, &mut scratch),
                };
                let wrong = |(z, y): (&[f64], &f64)| f64::from(u8::from(f64::from(winner(z)) != *y));
                z.chunks_exact(outputs.max(1)).zip(truth).map(wrong).collect()
            }
            _ => truth.iter().zip(z).map(|(y, z)| (y - z) * (y - z)).collect(),
        };
        let losses: Vec<f64> = losses.iter().enumerate().map(|(at, loss)| share(at) * loss).collect();
        let total = losses.iter().sum::<f64>();
        // Of labels those right are counted, so that equal counts are equal scores to the bit.
        let score = if machine.task == Task::Classify { (count - total) / count } else { -total / count };
        (score, losses.iter().map(|l| *l as f32).collect())
    }
}

/// One cell on one fold.
struct Job<'a> {
    machine: &'a TrainOptions,
    loss: &'a dyn Loss,
    formulation: Formulation,
    fold: usize,
    control: &'a Control,
}

/// Whether a machine is for the solver that works on K in memory: a loss with a box-quadratic dual that is no linear system,
/// and a kernel whose entries single precision tells apart.
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

/// Spreads what a β lacks to a sum of zero over those strictly inside their boxes.
fn balance(beta: &mut [f64], costs: &[f64]) {
    let inside: Vec<usize> = (0..beta.len()).filter(|&i| beta[i] != 0.0 && beta[i].abs() < costs[i]).collect();
    if inside.is_empty() {
        return;
    }
    let share = -beta.iter().sum::<f64>() / inside.len() as f64;
    for i in inside {
        // Labels of 0 do not occur among those inside; a β keeps its sign.
        let moved = beta[i] + share;
        beta[i] = if beta[i] > 0.0 { moved.clamp(0.0, costs[i]) } else { moved.clamp(-costs[i], 0.0) };
    }
}

/// From the machine of another C: all of β scaled, or only what was at its bound.
fn along_cost(machine: &Before, ratio: f64, costs: &[f64], bias: bool) -> Warm {
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

/// From the machine of another fold: rows held out now drop out, and those that were get the β their score calls for.
fn across_folds(machine: &Before, targets: &[f64], costs: &[f64], loss: &dyn Loss, bias: bool) -> Warm {
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
