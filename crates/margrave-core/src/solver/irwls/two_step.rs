//! Losses that are not convex: a convex start, then the loss itself (paper 002, §3), and models made compact.
//!
//! IRWLS ends at a stationary point that depends on where it began. The hinge solution is a good beginning, and the objective
//! never rises from there: the answer is at least as good, under its own loss, as the convex machine. More beginnings help:
//! a path of losses that sharpen step by step (an annealed η) ends elsewhere, and the best end is kept.
//!
//! Losses that level off leave many samples with a share of f next to nothing. [`compact`] drops them and says how much a
//! score can have changed: a part g of f changes f(x) by at most ‖g‖·√k(x, x).

use super::{Irwls, Options, solve};
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::Result;
use crate::gram::{Pick, Precision};
use crate::loss::{Absolute, Hinge, Loss};
use crate::observe::Observer;
use crate::problem::{KernelProblem, Losses};
use crate::solver::{Stop, decomposition};

/// How to go from the convex start to the loss.
#[derive(Clone, Default)]
pub struct TwoStep<'a> {
    /// Options of every IRWLS run. Its `start`, where given, takes the place of the convex start.
    pub options: Options,
    /// Sequences of losses to go through before the problem's own; the plain way, without any, is always tried.
    pub paths: Vec<Vec<&'a dyn Loss>>,
}

/// The end of [`two_step`].
#[derive(Debug, Clone)]
pub struct TwoStepEnd {
    /// The best end; its `start_objective` is that of the convex start under the problem's own loss.
    pub end: Irwls,
    /// The objective at the end of each way: the plain one, then one a path.
    pub objectives: Vec<f64>,
}

/// Solves a problem whose loss is not convex: hinge (labels) or absolute loss (real targets) first, by decomposition, then
/// IRWLS on the loss itself, once plainly and once along each path.
pub fn two_step(
    problem: &KernelProblem<'_>,
    linear: Option<&Points>,
    two_step: &TwoStep<'_>,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<TwoStepEnd> {
    two_step.options.check()?;
    problem.check()?;
    let mut options = two_step.options.clone();
    let mut spent = 0;
    if options.start.is_none() && !problem.is_empty() {
        let classify = problem.loss(0).properties().classification;
        let convex: &dyn Loss = if classify { &Hinge } else { &Absolute };
        let beginning = KernelProblem { losses: Losses::One(convex), ..problem.clone() };
        let first = decomposition::Options {
            stop: Stop { tol: Some(1e-3), gap: None },
            iterations: options.iterations,
            memory: options.memory,
            ..decomposition::Options::default()
        };
        let start = decomposition::solve(&beginning, &first, control, observer)?;
        spent = start.iterations;
        if matches!(start.status, Status::TimeLimit | Status::Interrupted | Status::IterationLimit) {
            // No time for the second step: the convex machine, as an answer to the problem asked.
            options.iterations = Some(0);
        }
        options.start_bias = start.bias.first().copied();
        options.start = Some(start.beta);
    }
    let mut best = solve(problem, linear, &options, control, observer)?;
    let start_objective = best.start_objective;
    let mut objectives = vec![best.objective];
    for path in &two_step.paths {
        if best.solution.status != Status::Optimal && best.solution.status != Status::Stalled {
            break;
        }
        let mut leg = options.clone();
        for loss in path {
            let softer = KernelProblem { losses: Losses::One(*loss), ..problem.clone() };
            // What follows begins there: it need not be exact.
            let most = options.iterations.map_or(SOFTER, |most| most.min(SOFTER));
            let rough = Options { iterations: Some(most), ..leg.clone() };
            let end = solve(&softer, linear, &rough, control, observer)?;
            spent += end.solution.iterations;
            leg.start_bias = end.solution.bias.first().copied();
            leg.start = Some(end.solution.beta);
        }
        let end = solve(problem, linear, &leg, control, observer)?;
        spent += end.solution.iterations;
        objectives.push(end.objective);
        if end.objective < best.objective {
            best = end;
        }
    }
    best.solution.iterations += spent;
    best.start_objective = start_objective;
    Ok(TwoStepEnd { end: best, objectives })
}

/// Iterations on a softer loss at most.
const SOFTER: u64 = 200;

/// A machine with its small parts dropped.
#[derive(Debug, Clone)]
pub struct Compact {
    /// β of every sample; 0 where dropped.
    pub beta: Vec<f64>,
    /// K·β of every row.
    pub scores: Vec<f64>,
    /// Samples dropped.
    pub dropped: usize,
    /// ‖g‖ of the part dropped: no score f(x) has changed by more than this times √k(x, x).
    pub norm: f64,
    /// The largest change of a score on the training rows.
    pub change: f64,
}

/// Drops the samples whose share |βᵢ|√Kᵢᵢ of Σ|β|√K is below `threshold`.
pub fn compact(
    problem: &KernelProblem<'_>,
    beta: &[f64],
    threshold: f64,
    control: &Control,
) -> Result<Compact, Interrupt> {
    let diagonal = problem.gram.diag();
    let share: Vec<f64> = (0..beta.len()).map(|i| beta[i].abs() * diagonal[problem.row(i)].max(0.0).sqrt()).collect();
    let total: f64 = share.iter().sum();
    let dropped = |i: usize| beta[i] != 0.0 && share[i] < threshold * total;
    let rows = problem.gram.shape().0;
    let product = |take: &dyn Fn(usize) -> f64| {
        let (mut v, mut out) = (vec![0.0; rows], vec![0.0; rows]);
        (0..beta.len()).for_each(|i| v[problem.row(i)] += take(i));
        problem.gram.apply(Precision::Double, Pick::All, &v, 1, &mut out, control)?;
        Ok(out)
    };
    let gone = product(&|i| if dropped(i) { beta[i] } else { 0.0 })?;
    let squared: f64 = (0..beta.len()).filter(|&i| dropped(i)).map(|i| beta[i] * gone[problem.row(i)]).sum();
    let kept: Vec<f64> = (0..beta.len()).map(|i| if dropped(i) { 0.0 } else { beta[i] }).collect();
    Ok(Compact {
        scores: product(&|i| kept[i])?,
        dropped: (0..beta.len()).filter(|&i| dropped(i)).count(),
        beta: kept,
        norm: squared.max(0.0).sqrt(),
        change: gone.iter().fold(0.0, |m, g| m.max(g.abs())),
    })
}
