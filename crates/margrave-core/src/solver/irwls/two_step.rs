//! Losses that are not convex: a convex start, then the loss itself (paper 002, §3), and compact models.
//!
//! IRWLS ends at a stationary point that depends on the start. The hinge solution is a good start, and the objective
//! never rises from there: under its own loss the result is at least as good as the convex model. More starts help: a
//! path of losses that become steeper step by step (an annealed η) ends at another point, and the best point is kept.
//!
//! Under bounded losses many samples contribute almost nothing to f. [`compact`] drops them and bounds the change of a
//! score: removing a part g of f changes f(x) by at most ‖g‖·√k(x, x).

use super::{Irwls, Options, solve};
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::Result;
use crate::gram::{Pick, Precision};
use crate::loss::{Absolute, Hinge, Loss};
use crate::observe::Observer;
use crate::problem::{KernelProblem, Losses};
use crate::solver::{Stop, decomposition};

/// Options of [`two_step`].
#[derive(Clone, Default)]
pub struct TwoStep<'a> {
    /// Options of every IRWLS run. Its `start`, if given, replaces the convex start.
    pub options: Options,
    /// Sequences of losses to solve before that of the problem. A run without such a sequence is always made.
    pub paths: Vec<Vec<&'a dyn Loss>>,
}

/// The result of [`two_step`].
#[derive(Debug, Clone)]
pub struct TwoStepEnd {
    /// The best result; its `start_objective` is that of the convex start under the loss of the problem.
    pub end: Irwls,
    /// The final objective of each run: the direct run, then one per path.
    pub objectives: Vec<f64>,
}

/// Solves a problem whose loss is not convex: first the hinge (labels) or absolute loss (real targets) by
/// decomposition, then IRWLS on the loss itself, once directly and once along each path.
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
        let convex_problem = KernelProblem { losses: Losses::One(convex), ..problem.clone() };
        let convex_options = decomposition::Options {
            stop: Stop { tol: Some(1e-3), gap: None },
            iterations: options.iterations,
            memory: options.memory,
            ..decomposition::Options::default()
        };
        let start = decomposition::solve(&convex_problem, &convex_options, control, observer)?;
        spent = start.iterations;
        if matches!(start.status, Status::TimeLimit | Status::Interrupted | Status::IterationLimit) {
            // No time for the second step: return the convex model.
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
        let mut path_options = options.clone();
        for loss in path {
            let softer = KernelProblem { losses: Losses::One(*loss), ..problem.clone() };
            // The result is only a start, so it need not be accurate.
            let limit = options.iterations.map_or(MAX_SOFTER_ITERATIONS, |limit| limit.min(MAX_SOFTER_ITERATIONS));
            let softer_options = Options { iterations: Some(limit), ..path_options.clone() };
            let end = solve(&softer, linear, &softer_options, control, observer)?;
            spent += end.solution.iterations;
            path_options.start_bias = end.solution.bias.first().copied();
            path_options.start = Some(end.solution.beta);
        }
        let end = solve(problem, linear, &path_options, control, observer)?;
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

/// Most iterations on a softer loss.
const MAX_SOFTER_ITERATIONS: u64 = 200;

/// A model without its small coefficients.
#[derive(Debug, Clone)]
pub struct Compact {
    /// β of every sample; 0 where dropped.
    pub beta: Vec<f64>,
    /// K·β of every row.
    pub scores: Vec<f64>,
    /// Samples dropped.
    pub dropped: usize,
    /// ‖g‖ of the part dropped: no score f(x) changes by more than this times √k(x, x).
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
    let size: Vec<f64> = (0..beta.len()).map(|i| beta[i].abs() * diagonal[problem.row(i)].max(0.0).sqrt()).collect();
    let total: f64 = size.iter().sum();
    let dropped = |i: usize| beta[i] != 0.0 && size[i] < threshold * total;
    let rows = problem.gram.shape().0;
    let product = |coefficient: &dyn Fn(usize) -> f64| {
        let (mut v, mut out) = (vec![0.0; rows], vec![0.0; rows]);
        (0..beta.len()).for_each(|i| v[problem.row(i)] += coefficient(i));
        problem.gram.apply(Precision::Double, Pick::All, &v, 1, &mut out, control)?;
        Ok(out)
    };
    let change = product(&|i| if dropped(i) { beta[i] } else { 0.0 })?;
    let squared: f64 = (0..beta.len()).filter(|&i| dropped(i)).map(|i| beta[i] * change[problem.row(i)]).sum();
    let kept_beta: Vec<f64> = (0..beta.len()).map(|i| if dropped(i) { 0.0 } else { beta[i] }).collect();
    Ok(Compact {
        scores: product(&|i| kept_beta[i])?,
        dropped: (0..beta.len()).filter(|&i| dropped(i)).count(),
        beta: kept_beta,
        norm: squared.max(0.0).sqrt(),
        change: change.iter().fold(0.0, |m, g| m.max(g.abs())),
    })
}
