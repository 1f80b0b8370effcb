//! Training on features: from some of the rows, whose features are stored, to all of them.

use super::features::FeatureSet;
use super::options::Options;
use crate::control::{Control, Status};
use crate::error::Result;
use crate::observe::{Observer, Silent};
use crate::problem::LinearProblem;
use crate::solver::Stop;
use crate::solver::linear::{self, LinearSolution, Method, Start};

/// Most centres for which the Newton system is formed and factored.
const MAX_DIRECT: usize = 6000;
/// Relative gap to which a sample of the rows is solved: its solution is no closer to that of all rows.
const SAMPLE_GAP: f64 = 3e-3;

/// The point reached on a set of features.
#[derive(Debug, Clone)]
pub struct NystromSolution {
    /// w, in features.
    pub weights: Vec<f64>,
    /// b; 0 without a bias.
    pub bias: f64,
    /// β of every row: feasible, and Fᵀβ close to w.
    pub beta: Vec<f64>,
    /// Why the run ended.
    pub status: Status,
    /// Newton steps on all rows.
    pub iterations: u64,
    /// The method used, and why.
    pub reason: String,
}

/// Solves `problem`, whose matrix is that of `features`.
pub fn solve(
    problem: &LinearProblem<'_>,
    features: &FeatureSet,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<NystromSolution> {
    options.check()?;
    let m = features.centres.len();
    let start = match &options.start {
        Some(start) => {
            let mut weights = start.weights.clone();
            // Features are nested: more centres add columns.
            weights.resize(m, 0.0);
            Some(Start { weights, ..start.clone() })
        }
        None => start_from_sample(problem, features, options, control)?,
    };
    let solver = linear::Options {
        stop: options.stop,
        start,
        iterations: options.iterations,
        memory: options.memory,
        seed: options.seed,
        method: if m > 500 { Method::Newton } else { Method::Auto },
        direct: MAX_DIRECT,
    };
    let LinearSolution { weights, bias, beta, status, iterations, reason, .. } =
        linear::solve(problem, &solver, control, observer)?;
    Ok(NystromSolution { weights, bias, beta, status, iterations, reason })
}

/// The solution of the rows with stored features, each standing for its share of all rows.
fn start_from_sample(
    problem: &LinearProblem<'_>,
    features: &FeatureSet,
    options: &Options,
    control: &Control,
) -> Result<Option<Start>> {
    let Some((rows, points)) = &features.sample else { return Ok(None) };
    let total: f64 = problem.costs.iter().sum();
    let own: f64 = rows.iter().map(|&i| problem.costs[i as usize]).sum();
    if !(own > 0.0) {
        return Ok(None);
    }
    let targets: Vec<f64> = rows.iter().map(|&i| problem.targets[i as usize]).collect();
    let costs: Vec<f64> = rows.iter().map(|&i| problem.costs[i as usize] * total / own).collect();
    let matrix = control.backend().matrix(points);
    let sample = LinearProblem::new(matrix.as_ref(), &targets, &costs, problem.loss, problem.bias)?;
    let solver = linear::Options {
        stop: Stop { tol: None, gap: Some(SAMPLE_GAP) },
        iterations: options.iterations,
        memory: options.memory,
        seed: options.seed,
        method: Method::Newton,
        direct: MAX_DIRECT,
        ..linear::Options::default()
    };
    let found = linear::solve(&sample, &solver, control, &mut Silent)?;
    Ok(Some(Start { weights: found.weights, bias: found.bias, beta: Vec::new() }))
}
