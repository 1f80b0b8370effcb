//! Entry points of the ridge solvers: a problem, several targets, or a regularisation path.

use super::direct::{DirectSolution, System, larger};
use super::primal::{self, ScaledPoints};
use super::spectral::{PathPoint, Spectrum};
use super::{Halt, PathOptions, RidgeOptions, Side, check_memory};
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::{Error, Result, check_len};
use crate::gram::{Gram, Pick, Precision};
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Constraint, KernelProblem};
use crate::solver::Solution;
use crate::solver::gap::Gap;

/// Most rounds of refinement on the primal side.
const MAX_PRIMAL_ROUNDS: usize = 4;
/// Most rows for which the kernel side is solved if the primal solution is not accurate enough.
const MAX_KERNEL_FALLBACK_ROWS: usize = 4000;

/// The source of K.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Any Gram matrix.
    Gram(&'a dyn Gram),
    /// The linear kernel of these points, with its Gram matrix: solved on the cheaper side.
    Linear(&'a Points, &'a dyn Gram),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Source::Gram(gram) => gram.shape().0,
            Source::Linear(points, _) => points.len(),
        }
    }
}

/// A least-squares model for k targets.
#[derive(Debug, Clone)]
pub struct Fit {
    /// β, n × k.
    pub beta: Vec<f64>,
    /// b of each target, 0 without a bias.
    pub bias: Vec<f64>,
    /// w, d × k, if the primal side was solved.
    pub weights: Option<Vec<f64>>,
    /// K·β of every row, without bias, n × k.
    pub scores: Vec<f64>,
    /// yᵢ − z₍₋ᵢ₎(xᵢ), n × k, if requested; for a row of cost 0, which is not part of the fit, the plain residual.
    pub loo: Option<Vec<f64>>,
    /// The trace of the map from targets to scores over the rows of cost > 0, if leave-one-out was requested.
    pub degrees_of_freedom: Option<f64>,
    /// Jitter added to the diagonal of the system.
    pub jitter: f64,
    /// The side that was solved.
    pub side: Side,
    /// max |yᵢ − zᵢ − βᵢ/cᵢ| over rows and targets.
    pub violation: f64,
}

/// Solves (K + diag(1/c))β + b = y for `k` targets (`targets` is n × k), with Σβ = `sum`, or without a bias.
///
/// Rows of cost 0 are left out. The primal side requires the linear kernel, and sum 0 or no bias.
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
    let gram: &dyn Gram = match source {
        Source::Linear(points, _)
            if sum.is_none_or(|s| s == 0.0) && options.side.choose(rows.len(), points.dims()) == Side::Primal =>
        {
            refined_primal(&mut out, points, &rows, &active_costs, targets, k, costs, sum.is_some(), options, control)?;
            let kernel_fits =
                rows.len() <= MAX_KERNEL_FALLBACK_ROWS && check_memory("", rows.len().pow(2), options.memory).is_ok();
            if out.violation <= options.tol * target_range(targets, costs, k)
                || options.side == Side::Primal
                || !kernel_fits
            {
                return Ok(out);
            }
            // β from the primal side is c times a small difference of large numbers; the kernel side computes β
            // directly.
            let kernel_options = RidgeOptions { side: Side::Kernel, ..options.clone() };
            let kernel_fit = fit(source, targets, k, costs, sum, &kernel_options, control)?;
            return Ok(if kernel_fit.violation < out.violation { kernel_fit } else { out });
        }
        Source::Linear(_, gram) | Source::Gram(gram) => gram,
    };
    let ridge: Vec<f64> = active_costs.iter().map(|c| 1.0 / c).collect();
    let system = System::new(gram, &rows, &ridge, sum.is_some(), options.memory, control)?;
    out.jitter = system.jitter();
    let inverse = if options.loo { Some(system.inverse_diag(control)?) } else { None };
    let DirectSolution { beta, bias, scores, violation } =
        system.solve(&active_targets, k, sum.unwrap_or(0.0), control)?;
    out.bias = bias;
    out.violation = violation.into_iter().fold(0.0, larger);
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
    let unused: Vec<u32> = (0..n as u32).filter(|&i| costs[i as usize] == 0.0).collect();
    if !unused.is_empty() {
        let mut scores = vec![0.0; unused.len() * k];
        gram.apply(Precision::Double, Pick::List(&unused), &out.beta, k, &mut scores, control)?;
        for (i, &row) in unused.iter().enumerate() {
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

/// Solves on the primal side and refines against the equations of the kernel side as long as that helps.
fn refined_primal(
    out: &mut Fit,
    points: &Points,
    rows: &[u32],
    active_costs: &[f64],
    targets: &[f64],
    k: usize,
    costs: &[f64],
    bias: bool,
    options: &RidgeOptions,
    control: &Control,
) -> Result<(), Halt> {
    let mut residual: Vec<f64> =
        rows.iter().flat_map(|&i| &targets[i as usize * k..(i as usize + 1) * k]).copied().collect();
    for round in 0..MAX_PRIMAL_ROUNDS {
        let before = out.clone();
        let scaled = ScaledPoints::new(points, rows, active_costs, &residual, k, bias);
        let solved = primal::solve(&scaled, options.loo && round == 0, options.memory, control)?;
        add_primal(out, points, rows, costs, targets, k, bias, solved);
        if round > 0 && !(out.violation < 0.5 * before.violation) {
            if !(out.violation < before.violation) {
                *out = before;
            }
            break;
        }
        if out.violation <= 1e-3 * options.tol * target_range(targets, costs, k) {
            break;
        }
        residual = kernel_residuals(out, rows, costs, targets, k);
    }
    Ok(())
}

/// Adds a primal solution for the remaining residuals to the fit. Scores are recomputed from β, b is optimal for them,
/// and the violation is that of the equations with both.
fn add_primal(
    out: &mut Fit,
    points: &Points,
    rows: &[u32],
    costs: &[f64],
    targets: &[f64],
    k: usize,
    bias: bool,
    solved: primal::PrimalSolution,
) {
    out.side = Side::Primal;
    out.jitter = solved.jitter;
    for (i, &row) in rows.iter().enumerate() {
        (0..k).for_each(|j| out.beta[row as usize * k + j] += solved.beta[i * k + j]);
    }
    let total: f64 = rows.iter().map(|&row| costs[row as usize]).sum();
    if bias {
        // Σβ = 0 up to rounding, which K would magnify: distribute the difference in proportion to the costs.
        for j in 0..k {
            let sum: f64 = rows.iter().map(|&row| out.beta[row as usize * k + j]).sum();
            rows.iter().for_each(|&row| out.beta[row as usize * k + j] -= sum * costs[row as usize] / total);
        }
    }
    let weights = primal::expand(points, &out.beta, k);
    out.scores = primal::scores(points, &weights, k);
    for j in (0..k).filter(|_| bias) {
        let at = |row: u32| costs[row as usize] * (targets[row as usize * k + j] - out.scores[row as usize * k + j]);
        out.bias[j] = rows.iter().map(|&row| at(row)).sum::<f64>() / total;
    }
    out.violation = kernel_residuals(out, rows, costs, targets, k).iter().fold(0.0, |worst, r| larger(worst, r.abs()));
    if let (Some(loo), Some(leverage)) = (&mut out.loo, &solved.leverage) {
        let mut row_leverage = vec![0.0; points.len()];
        rows.iter().zip(leverage).for_each(|(&row, h)| row_leverage[row as usize] = *h);
        for at in 0..loo.len() {
            let residual = targets[at] - out.scores[at] - out.bias[at % k];
            loo[at] = residual / (1.0 - row_leverage[at / k]).max(f64::EPSILON);
        }
        out.degrees_of_freedom = Some(leverage.iter().sum());
    }
    out.weights = Some(weights);
}

/// The residuals y − K·β − b − β/c of the rows used.
fn kernel_residuals(fit: &Fit, rows: &[u32], costs: &[f64], targets: &[f64], k: usize) -> Vec<f64> {
    let each = rows.iter().flat_map(|&row| (0..k).map(move |j| (row as usize, j)));
    each.map(|(row, j)| {
        let at = row * k + j;
        targets[at] - fit.scores[at] - fit.bias[j] - fit.beta[at] / costs[row]
    })
    .collect()
}

/// The range of the target values over rows of cost > 0, the largest over all targets: the unit of a tolerance on
/// scores. It is at least 1e-9 of the largest absolute value, the level of the rounding of the targets.
fn target_range(targets: &[f64], costs: &[f64], k: usize) -> f64 {
    let mut widest = 0.0f64;
    for j in 0..k {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for at in (j..targets.len()).step_by(k).filter(|at| costs[at / k] > 0.0) {
            (low, high) = (low.min(targets[at]), high.max(targets[at]));
        }
        if low <= high {
            widest = widest.max(high - low).max(1e-9 * low.abs().max(high.abs()));
        }
    }
    widest
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

/// The result of [`solve`].
#[derive(Debug, Clone)]
pub struct RidgeSolution {
    /// The point reached. After an interruption: β = 0 and the optimal bias for it.
    pub solution: Solution,
    /// The underlying fit; `None` after an interruption.
    pub fit: Option<Fit>,
}

/// Solves a problem with the square loss. `linear`: the points, if K is their linear kernel.
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
    let source = linear.map_or(Source::Gram(problem.gram), |points| Source::Linear(points, problem.gram));
    let outcome = if flow.is_break() || observer.step(&last).is_break() {
        Err(Halt::Interrupted(Interrupt::Cancelled))
    } else {
        fit(source, &targets, 1, &costs, sum, options, control)
    };
    let groups = problem.constraint.groups();
    let (solution, fit) = match outcome {
        Ok(fit) => {
            let finite = fit.beta.iter().chain(&fit.bias).chain(&fit.scores).all(|v| v.is_finite());
            if !finite {
                // The system has no solution in double precision, and the fit is unusable.
                (without_solving(&targets, &costs, groups, Status::Stalled), None)
            } else {
                (self::solution(&fit, &targets, &costs, groups, options), Some(fit))
            }
        }
        Err(Halt::Error(error)) => return Err(error),
        Err(Halt::Interrupted(why)) => (without_solving(&targets, &costs, groups, why.into()), None),
    };
    last.iteration = solution.iterations;
    last.seconds = control.seconds();
    last.violation = Some(solution.violation);
    last.kernel_entries = Some(problem.gram.entries());
    last.fraction = Some(1.0);
    observer.finish(solution.status, &last);
    Ok(RidgeSolution { solution, fit })
}

/// Converts a fit to a solution, which is optimal if all equations and the gap meet the tolerances in double precision.
fn solution(fit: &Fit, targets: &[f64], costs: &[f64], groups: usize, options: &RidgeOptions) -> Solution {
    let bias = if groups > 0 { fit.bias[0] } else { 0.0 };
    let (mut primal, mut difference) = (0.0, 0.0);
    for i in (0..targets.len()).filter(|&i| costs[i] > 0.0) {
        let error = targets[i] - fit.scores[i] - bias;
        primal += 0.5 * fit.beta[i] * fit.scores[i] + 0.5 * costs[i] * error * error;
        // The term of one sample in P − D: ½c·(y − z − β/c)².
        difference += 0.5 * costs[i] * (error - fit.beta[i] / costs[i]).powi(2);
    }
    let rounding = 2.0 * f64::EPSILON * primal.abs();
    let gap = Gap { primal, dual: primal - difference, difference, rounding }.relative();
    let solved = fit.violation <= options.tol * target_range(targets, costs, 1) && gap <= options.gap;
    Solution {
        beta: fit.beta.clone(),
        bias: fit.bias[..groups].to_vec(),
        scores: Some(fit.scores.clone()),
        exact: None,
        status: if solved { Status::Optimal } else { Status::Stalled },
        iterations: 1,
        violation: fit.violation,
    }
}

/// β = 0 with the optimal bias for it: the result of a run without time or without a solution.
fn without_solving(targets: &[f64], costs: &[f64], groups: usize, status: Status) -> Solution {
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
        exact: None,
        status,
        iterations: 0,
        violation: targets.iter().zip(costs).filter(|(_, c)| **c > 0.0).fold(0.0, |m, (y, _)| m.max((y - mean).abs())),
    }
}

/// Leave-one-out errors along a regularisation path.
#[derive(Debug, Clone)]
pub struct Path {
    /// One point per λ, in the order of the options; empty after an interruption.
    pub points: Vec<PathPoint>,
    /// The position of the smallest leave-one-out error, the largest λ among equals; `None` without points.
    pub best: Option<usize>,
    /// The side that was decomposed.
    pub side: Side,
    /// Why the run ended.
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
