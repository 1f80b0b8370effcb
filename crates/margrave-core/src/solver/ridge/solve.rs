//! The front of the ridge solvers: one fit of a problem, one fit of several targets, a path of λ.

use super::direct::{Solved, System};
use super::primal::{self, Scaled};
use super::spectral::{PathPoint, Spectrum};
use super::{Halt, PathOptions, RidgeOptions, Side};
use crate::backend::cpu::CpuGram;
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::{Error, Result, check_len};
use crate::gram::{Gram, Pick, Precision};
use crate::kernel::Kernel;
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Constraint, KernelProblem};
use crate::solver::Solution;

/// Where K comes from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Any Gram matrix.
    Gram(&'a dyn Gram),
    /// The linear kernel over these points, which may be solved on the primal side.
    Linear(&'a Points),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Source::Gram(gram) => gram.shape().0,
            Source::Linear(points) => points.len(),
        }
    }
}

/// A solved least-squares machine for k targets.
#[derive(Debug, Clone)]
pub struct Fit {
    /// β, n × k.
    pub beta: Vec<f64>,
    /// b of each target, 0 without a bias.
    pub bias: Vec<f64>,
    /// w, d × k, where the primal side was solved.
    pub weights: Option<Vec<f64>>,
    /// K·β of every row, without bias, n × k.
    pub scores: Vec<f64>,
    /// yᵢ − z₍₋ᵢ₎(xᵢ), n × k, if asked for; a row of cost 0 is left out of its own fit anyway.
    pub loo: Option<Vec<f64>>,
    /// The trace of the map from targets to scores over the rows of cost > 0, if leave-one-out was asked for.
    pub degrees_of_freedom: Option<f64>,
    /// What was added to the diagonal of the system.
    pub jitter: f64,
    /// The side that was solved.
    pub side: Side,
    /// max |yᵢ − zᵢ − βᵢ/cᵢ| over rows and targets.
    pub violation: f64,
}

/// Solves (K + diag(1/c))β + b = y for `k` targets (`targets` is n × k), with Σβ = `sum`, or without a bias.
///
/// Rows of cost 0 take no part. The primal side is open to the linear kernel with sum 0 or no bias.
pub fn fit(
    source: Source<'_>,
    targets: &[f64],
    k: usize,
    costs: &[f64],
    sum: Option<f64>,
    options: &RidgeOptions,
    control: &Control,
) -> Result<Fit, Halt> {
    options.check()?;
    let n = source.len();
    check_inputs(n, targets, k, costs)?;
    let rows: Vec<u32> = (0..n as u32).filter(|&i| costs[i as usize] > 0.0).collect();
    let gather = |values: &[f64], width: usize| -> Vec<f64> {
        rows.iter().flat_map(|&i| &values[i as usize * width..(i as usize + 1) * width]).copied().collect()
    };
    let (active_costs, active_targets) = (gather(costs, 1), gather(targets, k));
    let mut out = Fit {
        beta: vec![0.0; n * k],
        bias: vec![0.0; k],
        weights: None,
        scores: vec![0.0; n * k],
        loo: options.loo.then(|| vec![0.0; n * k]),
        degrees_of_freedom: options.loo.then_some(0.0),
        jitter: 0.0,
        side: Side::Kernel,
        violation: 0.0,
    };
    if rows.is_empty() || k == 0 {
        out.loo = options.loo.then(|| targets.to_vec());
        return Ok(out);
    }
    let linear;
    let gram: &dyn Gram = match source {
        Source::Linear(points)
            if sum.is_none_or(|s| s == 0.0) && options.side.choose(rows.len(), points.dims()) == Side::Primal =>
        {
            let scaled = Scaled::new(points, &rows, &active_costs, &active_targets, k, sum.is_some());
            let solved = primal::solve(&scaled, options.loo, options.memory, control)?;
            fill_primal(&mut out, points, &rows, costs, targets, k, solved);
            return Ok(out);
        }
        Source::Linear(points) => {
            linear = CpuGram::square(Kernel::Linear, points)?;
            &linear
        }
        Source::Gram(gram) => gram,
    };
    let ridge: Vec<f64> = active_costs.iter().map(|c| 1.0 / c).collect();
    let system = System::new(gram, &rows, &ridge, sum.is_some(), options.memory, control)?;
    out.jitter = system.jitter();
    let inverse = if options.loo { Some(system.inverse_diag(control)?) } else { None };
    let Solved { beta, bias, scores, violation } = system.solve(&active_targets, k, sum.unwrap_or(0.0), control)?;
    out.bias = bias;
    out.violation = violation.into_iter().fold(0.0, f64::max);
    for (i, &row) in rows.iter().enumerate() {
        for j in 0..k {
            let (at, from) = (row as usize * k + j, i * k + j);
            (out.beta[at], out.scores[at]) = (beta[from], scores[from]);
            if let (Some(loo), Some(inverse)) = (&mut out.loo, &inverse) {
                loo[at] = beta[from] / inverse[i];
            }
        }
    }
    out.degrees_of_freedom =
        inverse.map(|inverse| inverse.iter().zip(&ridge).map(|(m, r)| 1.0 - (r + out.jitter) * m).sum());
    let idle: Vec<u32> = (0..n as u32).filter(|&i| costs[i as usize] == 0.0).collect();
    if !idle.is_empty() {
        let mut scores = vec![0.0; idle.len() * k];
        gram.apply(Precision::Double, Pick::List(&idle), &out.beta, k, &mut scores, control)?;
        for (i, &row) in idle.iter().enumerate() {
            for j in 0..k {
                let at = row as usize * k + j;
                out.scores[at] = scores[i * k + j];
                if let Some(loo) = &mut out.loo {
                    loo[at] = targets[at] - out.scores[at] - out.bias[j];
                }
            }
        }
    }
    Ok(out)
}

fn fill_primal(
    out: &mut Fit,
    points: &Points,
    rows: &[u32],
    costs: &[f64],
    targets: &[f64],
    k: usize,
    solved: primal::Weights,
) {
    out.side = Side::Primal;
    out.jitter = solved.jitter;
    out.bias.clone_from(&solved.bias);
    let mut position = vec![None; points.len()];
    rows.iter().enumerate().for_each(|(i, &row)| position[row as usize] = Some(i));
    for (row, position) in position.iter().enumerate() {
        for j in 0..k {
            let at = row * k + j;
            match position {
                Some(i) => out.scores[at] = solved.scores[i * k + j],
                None => points.visit(row, |column, x| out.scores[at] += x * solved.weights[column * k + j]),
            }
            let residual = targets[at] - out.scores[at] - solved.bias[j];
            out.beta[at] = costs[row] * residual;
            if let (Some(loo), Some(leverage)) = (&mut out.loo, &solved.leverage) {
                let h = position.map_or(0.0, |i| leverage[i]);
                loo[at] = residual / (1.0 - h).max(f64::EPSILON);
            }
        }
    }
    out.degrees_of_freedom = solved.leverage.map(|h| h.iter().sum());
    // β = c·(y − z) satisfies every equation by construction; what is left is ‖w − Xᵀβ‖, seen by the certificate.
    out.weights = Some(solved.weights);
}

fn check_inputs(n: usize, targets: &[f64], k: usize, costs: &[f64]) -> Result<()> {
    check_len("number of targets", n * k, targets.len())?;
    check_len("number of costs", n, costs.len())?;
    for (what, values, width) in [("the targets", targets, k.max(1)), ("the costs", costs, 1)] {
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(Error::NotFinite { what, row: at / width, column: None, value: values[at] });
        }
    }
    match costs.iter().position(|c| *c < 0.0) {
        Some(i) => Err(Error::data(format!("the cost of row {i} is {}: costs must be ≥ 0", costs[i]))),
        None => Ok(()),
    }
}

/// The end of [`solve`].
#[derive(Debug, Clone)]
pub struct RidgeSolution {
    /// The point reached. After an interruption: β = 0 and the best bias for it.
    pub solution: Solution,
    /// The fit behind it; `None` after an interruption.
    pub fit: Option<Fit>,
}

/// Solves a problem with the square loss. `linear`: the points, if K is the linear kernel over them.
pub fn solve(
    problem: &KernelProblem<'_>,
    linear: Option<&Points>,
    options: &RidgeOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<RidgeSolution> {
    problem.check()?;
    options.check()?;
    let unsupported =
        |what: String| Error::Unsupported { solver: "ridge", what, instead: "the decomposition solver".into() };
    let sum = match problem.constraint {
        Constraint::None => None,
        Constraint::Sum(s) => Some(s),
        Constraint::Groups { .. } => return Err(unsupported("several biases".into())),
    };
    if problem.row_of.is_some() {
        return Err(unsupported("several variables on one row".into()));
    }
    let n = problem.len();
    let (mut targets, mut costs) = (vec![0.0; n], vec![0.0; n]);
    for i in (0..n).filter(|&i| problem.costs[i] > 0.0) {
        match problem.dual_term(i) {
            Some(t) if t.eps == 0.0 && t.d > 0.0 && t.lo == f64::NEG_INFINITY && t.hi == f64::INFINITY => {
                (targets[i], costs[i]) = (-t.p, 1.0 / t.d);
            }
            _ => return Err(unsupported(format!("the {} loss: only the square loss", problem.loss(i).name()))),
        }
    }
    let flow = observer.begin(&Begin { solver: "ridge", n, tol: Some(options.tol), gap: None });
    let mut last = Step { phase: "factor", ..Step::default() };
    let source = linear.map_or(Source::Gram(problem.gram), Source::Linear);
    let outcome = if flow.is_break() || observer.step(&last).is_break() {
        Err(Halt::Interrupted(Interrupt::Cancelled))
    } else {
        fit(source, &targets, 1, &costs, sum, options, control)
    };
    let groups = problem.constraint.groups();
    let (solution, fit) = match outcome {
        Ok(fit) => {
            let scale = 1.0 + targets.iter().fold(0.0f64, |m, y| m.max(y.abs()));
            let solved = fit.violation <= options.tol * scale;
            let solution = Solution {
                beta: fit.beta.clone(),
                bias: fit.bias[..groups].to_vec(),
                scores: Some(fit.scores.clone()),
                status: if solved { Status::Optimal } else { Status::Stalled },
                iterations: 1,
                violation: fit.violation,
            };
            (solution, Some(fit))
        }
        Err(Halt::Error(error)) => return Err(error),
        Err(Halt::Interrupted(why)) => (nothing_yet(&targets, &costs, groups, why), None),
    };
    last.iteration = solution.iterations;
    last.seconds = control.seconds();
    last.violation = Some(solution.violation);
    last.kernel_entries = Some(problem.gram.entries());
    last.fraction = Some(1.0);
    observer.finish(solution.status, &last);
    Ok(RidgeSolution { solution, fit })
}

/// β = 0 with the bias that is best for it: what a run without time can still answer.
fn nothing_yet(targets: &[f64], costs: &[f64], groups: usize, why: Interrupt) -> Solution {
    let total: f64 = costs.iter().sum();
    let mean = if groups > 0 && total > 0.0 {
        targets.iter().zip(costs).map(|(y, c)| c * y).sum::<f64>() / total
    } else {
        0.0
    };
    Solution {
        beta: vec![0.0; targets.len()],
        bias: vec![mean; groups],
        scores: Some(vec![0.0; targets.len()]),
        status: why.into(),
        iterations: 0,
        violation: targets.iter().zip(costs).filter(|(_, c)| **c > 0.0).fold(0.0, |m, (y, _)| m.max((y - mean).abs())),
    }
}

/// Leave-one-out errors along λ.
#[derive(Debug, Clone)]
pub struct Path {
    /// One point a λ, in the order asked for; empty after an interruption.
    pub points: Vec<PathPoint>,
    /// The position of the least leave-one-out error, the largest λ among equals; `None` without points.
    pub best: Option<usize>,
    /// The side that was decomposed.
    pub side: Side,
    /// How it ended.
    pub status: Status,
}

/// Evaluates every λ from one eigendecomposition. `weights` are sample weights (`None`: all 1): c = weight/λ.
pub fn path(
    source: Source<'_>,
    targets: &[f64],
    k: usize,
    weights: Option<&[f64]>,
    options: &PathOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Path> {
    options.check()?;
    let n = source.len();
    let ones;
    let weights = match weights {
        Some(weights) => weights,
        None => {
            ones = vec![1.0; n];
            &ones
        }
    };
    check_inputs(n, targets, k, weights)?;
    if k == 0 {
        return Err(Error::data("there is no target to fit"));
    }
    let rows: Vec<u32> = (0..n as u32).filter(|&i| weights[i as usize] > 0.0).collect();
    if rows.len() < 2 {
        return Err(Error::data(format!("leave-one-out needs at least 2 rows of weight > 0, found {}", rows.len())));
    }
    let active_weights: Vec<f64> = rows.iter().map(|&i| weights[i as usize]).collect();
    let active: Vec<f64> = rows.iter().flat_map(|&i| &targets[i as usize * k..(i as usize + 1) * k]).copied().collect();
    let flow = observer.begin(&Begin { solver: "ridge path", n, tol: None, gap: None });
    let mut step = Step { phase: "decompose", seconds: control.seconds(), ..Step::default() };
    let outcome = (|| {
        if flow.is_break() || observer.step(&step).is_break() {
            return Err(Halt::Interrupted(Interrupt::Cancelled));
        }
        let spectrum = Spectrum::new(source, &rows, &active_weights, &active, k, options, control)?;
        step = Step { phase: "evaluate", seconds: control.seconds(), fraction: Some(0.9), ..Step::default() };
        if observer.step(&step).is_break() {
            return Err(Halt::Interrupted(Interrupt::Cancelled));
        }
        Ok((spectrum.side(), spectrum.evaluate(&options.lambdas, control)?))
    })();
    let path = match outcome {
        Ok((side, points)) => {
            let best = (0..points.len()).min_by(|&a, &b| {
                let (a, b) = (&points[a], &points[b]);
                a.loo_mse.total_cmp(&b.loo_mse).then(b.lambda.total_cmp(&a.lambda))
            });
            Path { points, best, side, status: Status::Optimal }
        }
        Err(Halt::Error(error)) => return Err(error),
        Err(Halt::Interrupted(why)) => Path { points: Vec::new(), best: None, side: options.side, status: why.into() },
    };
    step.seconds = control.seconds();
    step.fraction = Some(1.0);
    observer.finish(path.status, &step);
    Ok(path)
}
