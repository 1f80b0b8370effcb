//! The linear kernel: trained and verified on the data itself.

mod several;
mod together;

use margrave_core::backend::cpu::CpuGram;
use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::certificate::{Certificate, certify_l1, certify_linear};
use margrave_core::compose::calibrate::{LeftOut, leave_one_out};
use margrave_core::compose::cross_validate::{Deal, folds};
use margrave_core::data::Points;
use margrave_core::gram::{Matrix, Pick};
use margrave_core::kernel::Kernel;
use margrave_core::loss::Loss;
use margrave_core::model::{Model, Origin, Scheme};
use margrave_core::observe::{Observer, Silent};
use margrave_core::problem::{Bias, Formulation, LinearProblem, Machine, Penalty, Setup, Task};
use margrave_core::solver::linear::{self, Options, Start};
use margrave_core::solver::{Solution, Stop, decomposition};
use margrave_core::train::{Asked, Proven, prove_linear};
use margrave_core::{Control, Error, Result, Status};
use std::sync::Arc;

use crate::calibrate::for_folds;
use crate::fit::check_same_rows;
use crate::solve::is_better;
use crate::svm::{Probability, SolverName, Svm};

pub(crate) use several::{train as train_several, verify as verify_several};
pub(crate) use together::{train as train_together, verify as verify_together};

/// Folds where there is no closed form of leave-one-out scores.
const FOLDS: usize = 5;

/// A linear machine with its proof.
pub(crate) struct Trained {
    pub(crate) proven: Proven,
    pub(crate) weights: Vec<f64>,
    pub(crate) reason: String,
}

/// Whether the linear solver takes this training.
pub(crate) fn applies(svm: &Svm, kernel: &Kernel, formulation: &Formulation) -> bool {
    *kernel == Kernel::Linear
        && matches!(formulation, Formulation::Cost { .. })
        && svm.compact.is_none()
        && svm.anneal == 0
        && matches!(svm.solver, SolverName::Auto | SolverName::Linear)
}

/// Fails if something is asked for that linear machines alone have, and this is none.
pub(crate) fn check(svm: &Svm, kernel: &Kernel, formulation: &Formulation) -> Result<()> {
    bias_of(svm).check()?;
    if svm.intercept_scaling.is_some() && !svm.bias {
        return Err(Error::data(
            "a bias that is penalised is still a bias: leave out --no-bias, or --intercept-scaling",
        ));
    }
    let special = [
        (svm.penalty == Penalty::L1, "the L1 penalty (--penalty l1)"),
        (svm.intercept_scaling.is_some(), "a penalised bias (--intercept-scaling)"),
        (
            svm.multiclass == Some(Scheme::CrammerSinger),
            "the machine of Crammer and Singer (--multiclass crammer-singer)",
        ),
    ];
    match special.into_iter().find(|(asked, _)| *asked) {
        Some((_, what)) if !applies(svm, kernel, formulation) => Err(Error::Unsupported {
            solver: "linear",
            what: format!("{what} with another kernel, solver or formulation"),
            instead: "--kernel linear with a cost C".into(),
        }),
        _ => Ok(()),
    }
}

/// Fails for what cross-validation, which trains on kernels, cannot score.
pub(crate) fn check_tunable(svm: &Svm) -> Result<()> {
    let plain =
        svm.penalty == Penalty::L2 && svm.intercept_scaling.is_none() && svm.multiclass != Some(Scheme::CrammerSinger);
    if plain {
        return Ok(());
    }
    Err(Error::data(
        "tuning is for machines with the L2 penalty and a free bias, ovo or ovr: leave out --penalty, --intercept-scaling and crammer-singer",
    ))
}

/// What is asked of the bias.
pub(crate) fn bias_of(svm: &Svm) -> Bias {
    match (svm.bias, svm.intercept_scaling) {
        (false, _) => Bias::None,
        (true, None) => Bias::Free,
        (true, Some(scaling)) => Bias::Penalised { scaling },
    }
}

/// The same of a model.
fn bias_of_model(model: &Model) -> Bias {
    match (model.free_bias, model.intercept_scaling) {
        (_, Some(scaling)) => Bias::Penalised { scaling },
        (true, None) => Bias::Free,
        (false, None) => Bias::None,
    }
}

/// Trainings of one problem at most, each with a stricter rule than the last, until the proof holds.
const ATTEMPTS: usize = 4;
/// Rows up to which a machine that falls short of its proof is tried by decomposition as well.
const BY_KERNEL: usize = 5000;

/// Solves one problem over the rows of `matrix` and proves it. `setup` has a free bias if one is asked for.
fn solve_one(
    svm: &Svm,
    setup: &Setup,
    matrix: &dyn Matrix,
    start: Option<Start>,
    memory: u64,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Trained> {
    let problem = setup.linear_with(matrix, bias_of(svm))?;
    let mut stop = svm.aim_for(setup);
    let asked = Asked::from(svm.stop_for(setup));
    let attempt = |stop: Stop, start: Option<Start>, used: u64, observer: &mut dyn Observer| -> Result<Trained> {
        let iterations = svm.budget.iterations.map(|all| all.saturating_sub(used));
        let options = Options { stop, start, iterations, memory, seed: svm.seed, ..Options::default() };
        let solved = match svm.penalty {
            Penalty::L2 => linear::solve(&problem, &options, control, observer)?,
            Penalty::L1 => linear::solve_l1(&problem, &options, control, observer)?,
        };
        let solution = Solution {
            beta: solved.beta,
            bias: if svm.bias { vec![solved.bias] } else { vec![] },
            scores: None,
            status: solved.status,
            iterations: used + solved.iterations,
            violation: f64::INFINITY,
        };
        let proof = control.for_proof();
        let mut proven = prove_linear(setup, &problem, svm.penalty, &solved.weights, &solution, &asked, &proof)?;
        proven.certificate = proven.certificate.with_start(solved.start_objective);
        Ok(Trained { proven, weights: solved.weights, reason: solved.reason })
    };
    let mut best = attempt(stop, start, 0, observer)?;
    for _ in 1..ATTEMPTS {
        if best.proven.status != Status::Inaccurate || control.check().is_err() {
            break;
        }
        stop = asked.stricter(stop, &best.proven.certificate);
        let (weights, beta) = (best.weights.clone(), best.proven.beta.clone());
        let from = Start { weights, bias: best.proven.machine.bias, beta };
        let next = attempt(stop, Some(from), best.proven.iterations, observer)?;
        let gained = is_better(&next.proven, &best.proven, &asked);
        let enough = next.proven.status != Status::Inaccurate;
        if gained {
            best = Trained { reason: best.reason, ..next };
        }
        if !gained || enough {
            break;
        }
    }
    if matches!(best.proven.status, Status::Inaccurate | Status::Stalled)
        && svm.solver == SolverName::Auto
        && control.check().is_ok()
        && let Some(other) = by_decomposition(svm, setup, &problem, &best, stop, &asked, memory, control, observer)?
        && is_better(&other.proven, &best.proven, &asked)
    {
        best = other;
    }
    Ok(best)
}

/// The same machine by decomposition, where it has a dual that decomposition can take and is small enough.
fn by_decomposition(
    svm: &Svm,
    setup: &Setup,
    problem: &LinearProblem<'_>,
    best: &Trained,
    stop: Stop,
    asked: &Asked,
    memory: u64,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Option<Trained>> {
    let Some(points) = problem.matrix.points().filter(|points| points.len() <= BY_KERNEL) else { return Ok(None) };
    if svm.penalty != Penalty::L2 || svm.intercept_scaling.is_some() {
        return Ok(None);
    }
    let gram = CpuGram::square(Kernel::Linear, points)?;
    let solved = setup.with(&gram, |problem| {
        if (0..problem.len()).any(|i| problem.dual_term(i).is_none()) {
            return Ok(None);
        }
        let start = Some(best.proven.beta.clone());
        let iterations = svm.budget.iterations.map(|all| all.saturating_sub(best.proven.iterations));
        let options = decomposition::Options { stop, start, iterations, memory, ..decomposition::Options::default() };
        Ok(Some(decomposition::solve(problem, &options, control, observer)?))
    })?;
    let Some(mut solution) = solved else { return Ok(None) };
    solution.iterations += best.proven.iterations;
    let proof = control.for_proof();
    let mut weights = vec![0.0; problem.matrix.dims()];
    if problem.matrix.combine(Pick::All, &solution.beta, &mut weights, &proof).is_err() {
        return Ok(None);
    }
    let proven = prove_linear(setup, problem, svm.penalty, &weights, &solution, asked, &proof)?;
    let reason = format!("{}; finished by decomposition, as it ended short of the proof", best.reason);
    Ok(Some(Trained { proven, weights, reason }))
}

/// Why the linear solver.
fn told(svm: &Svm, reason: &str) -> String {
    match svm.solver {
        SolverName::Linear => format!("asked for; {reason}"),
        _ => format!("the kernel is linear; {reason}"),
    }
}

pub(crate) fn train(
    svm: &Svm,
    setup: &Setup,
    points: &Points,
    streamed: Option<&dyn Matrix>,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Trained> {
    let in_memory = RowMatrix::new(points);
    let matrix = streamed.unwrap_or(&in_memory);
    let start = match &svm.start {
        None => None,
        Some(model) => {
            check_same_rows(model, points)?;
            if model.scheme != Scheme::One {
                return Err(Error::data("the model to resume from has several machines, and this training has one"));
            }
            Some(start_of(model, 0, model.machine(0), setup, points.dims()))
        }
    };
    let mut trained = solve_one(svm, setup, matrix, start, svm.budget.memory, control, observer)?;
    let place = if streamed.is_some() { "rows are read in blocks; " } else { "" };
    trained.reason = told(svm, &format!("{place}{}", trained.reason));
    Ok(trained)
}

/// Where machine `at` of a model left off; `machine` is its part over the rows of `setup`.
fn start_of(model: &Model, at: usize, machine: Machine, setup: &Setup, dims: usize) -> Start {
    let bias = machine.bias;
    let (beta, _) = setup.solution(&machine);
    let weights = match model.expansion.weights() {
        Some(w) if *model.expansion.kernel() == Kernel::Linear && model.expansion.width() == dims => {
            w.iter().skip(at).step_by(model.expansion.outputs()).copied().collect()
        }
        _ => Vec::new(),
    };
    Start { weights, bias, beta }
}

/// Certifies machine `at` of a model that is given by its weights, over the rows of `setup`; `machine` is its dual point there.
fn verify_one(
    model: &Model,
    at: usize,
    machine: Machine,
    setup: &Setup,
    points: &Points,
    control: &Control,
) -> Result<Certificate> {
    let matrix = RowMatrix::new(points);
    let problem = setup.linear_with(&matrix, bias_of_model(model))?;
    let bias = machine.bias;
    let (beta, _) = setup.solution(&machine);
    let all = model.expansion.weights().unwrap_or_default();
    let mut weights: Vec<f64> = all.iter().skip(at).step_by(model.expansion.outputs()).copied().collect();
    weights.resize(points.dims(), 0.0);
    Ok(match model.penalty {
        Penalty::L2 => certify_linear(&problem, &weights, bias, &beta, control)?,
        Penalty::L1 => certify_l1(&problem, &weights, bias, &beta, control)?,
    })
}

/// Certifies a model of one machine that is given by its weights.
pub(crate) fn verify(model: &Model, setup: &Setup, points: &Points, control: &Control) -> Result<Certificate> {
    verify_one(model, 0, model.machine(0), setup, points, control)
}

/// A linear machine whose scores are to be calibrated.
pub(crate) struct Subject<'a> {
    pub(crate) svm: &'a Svm,
    pub(crate) task: Task,
    pub(crate) formulation: Formulation,
    pub(crate) loss: &'a Arc<dyn Loss>,
    /// Its rows.
    pub(crate) points: &'a Points,
    pub(crate) targets: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
    pub(crate) memory: u64,
}

impl Subject<'_> {
    fn setup(&self, targets: &[f64], weights: Option<&[f64]>) -> Result<Setup> {
        let free = bias_of(self.svm) == Bias::Free;
        Setup::new(self.task, self.formulation, targets, weights, self.loss.clone(), free, Vec::new)
    }
}

/// Scores of rows that did not take part in their training, and where they are from.
pub(crate) fn unseen(subject: &Subject<'_>, trained: &Trained, control: &Control) -> Result<(LeftOut, Origin)> {
    let svm = subject.svm;
    let closed = svm.penalty == Penalty::L2 && svm.intercept_scaling.is_none();
    let k = match svm.probability {
        Some(Probability::Folds(k)) => k,
        _ if closed => {
            let gram = CpuGram::square(Kernel::Linear, subject.points)?;
            let Proven { beta, bias, scores, .. } = &trained.proven;
            let setup = subject.setup(subject.targets, subject.weights)?;
            let left = match scores.len() == subject.targets.len() {
                // Without the time for it, folds have to do.
                true => setup.with(&gram, |problem| {
                    Ok(leave_one_out(problem, beta, bias, scores, subject.memory, control).unwrap_or(None))
                })?,
                false => None,
            };
            match left {
                Some(left) => return Ok((left, Origin::LeaveOneOut)),
                None => FOLDS.min(subject.points.len()),
            }
        }
        _ => FOLDS.min(subject.points.len()),
    };
    Ok((held_out(subject, k, control)?, Origin::Folds))
}

/// The scores of each fold by a machine trained on the others.
fn held_out(subject: &Subject<'_>, k: usize, control: &Control) -> Result<LeftOut> {
    let n = subject.points.len();
    let codes: Vec<u32> = subject.targets.iter().map(|y| u32::from(*y > 0.0)).collect();
    let deal = if subject.task == Task::Classify { Deal::Stratified(&codes) } else { Deal::Plain };
    let fold = folds(n, k, deal, subject.svm.seed)?;
    let mut out = LeftOut { rows: (0..n as u32).collect(), scores: vec![0.0; n] };
    let plain = for_folds(subject.svm);
    let scoring = control.without_deadline();
    for f in 0..k as u32 {
        let (kept, held): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|&row| fold[row as usize] != f);
        let targets: Vec<f64> = kept.iter().map(|&row| subject.targets[row as usize]).collect();
        let weights: Option<Vec<f64>> = subject.weights.map(|w| kept.iter().map(|&row| w[row as usize]).collect());
        let setup = subject.setup(&targets, weights.as_deref())?;
        let matrix = RowMatrix::new(&subject.points.gather(&kept));
        let trained = solve_one(&plain, &setup, &matrix, None, subject.memory, control, &mut Silent)?;
        let bias = trained.proven.machine.bias;
        let mut scores = vec![0.0; held.len()];
        RowMatrix::new(subject.points).dots(Pick::List(&held), &trained.weights, &mut scores, &scoring)?;
        held.iter().zip(&scores).for_each(|(&row, z)| out.scores[row as usize] = z + bias);
    }
    Ok(out)
}
