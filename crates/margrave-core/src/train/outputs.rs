//! Several regression targets: shared rows and a certificate for every target. Least squares takes one factorisation, other losses
//! are trained one after the other.

use std::time::Instant;

use super::fit::{Fit, LeaveOneOut};
use super::kernel_space::KernelSpace;
use super::one::problem;
use super::options::{LossChoice, Probability, SolverName, TrainOptions};
use super::plan::Plan;
use super::proof::{prove, prove_linear};
use crate::compose::calibrate::residual_scale;
use crate::control::{Control, Interrupt, Status};
use crate::data::{Dataset, Targets};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::loss::LossSpec;
use crate::model::{Calibration, Model, Origin, Record, SHARES};
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Formulation, Penalty, Setup};
use crate::solver::Solution;
use crate::solver::ridge::{self, Halt, RidgeOptions, Source};

/// A training of k targets.
struct Outputs<'a> {
    plan: &'a Plan<'a>,
    k: usize,
    space: KernelSpace<'a>,
    /// The cost of every row.
    costs: Vec<f64>,
    control: &'a Control,
}

impl Outputs<'_> {
    fn column(&self, all: &[f64], at: usize) -> Vec<f64> {
        all.iter().skip(at).step_by(self.k).copied().collect()
    }

    fn rows(&self) -> usize {
        self.plan.prepared.points.len()
    }

    /// All targets, n × k.
    fn targets(&self) -> &[f64] {
        &self.plan.prepared.targets
    }

    /// The problem of one target.
    fn setup(&self, at: usize) -> Result<Setup> {
        let weights = self.plan.prepared.weights.as_deref();
        problem(self.plan, &self.space, &self.column(self.targets(), at), weights)
    }

    /// Mean square over rows and targets.
    fn error(&self, scores: &[f64]) -> f64 {
        let square: f64 = self.targets().iter().zip(scores).map(|(y, z)| (y - z) * (y - z)).sum();
        square / self.targets().len().max(1) as f64
    }
}

/// β = 0 and the means of the targets: the result if there is no time to train.
fn nothing_yet(job: &Outputs<'_>) -> ridge::Fit {
    let (n, k, costs) = (job.rows(), job.k, &job.costs);
    let total: f64 = costs.iter().sum();
    let mean = |at: usize| {
        let sum: f64 = job.column(job.targets(), at).iter().zip(costs).map(|(y, c)| c * y).sum();
        if job.plan.options.bias && total > 0.0 { sum / total } else { 0.0 }
    };
    ridge::Fit {
        beta: vec![0.0; n * k],
        bias: (0..k).map(mean).collect(),
        weights: None,
        scores: vec![0.0; n * k],
        loo: None,
        degrees_of_freedom: None,
        jitter: 0.0,
        side: ridge::Side::Kernel,
        violation: 0.0,
    }
}

/// w = Xᵀβ of every target, d × k.
fn weights_of(job: &Outputs<'_>, fit: &ridge::Fit) -> Vec<f64> {
    if let Some(weights) = &fit.weights {
        return weights.clone();
    }
    let (k, points) = (job.k, &job.plan.prepared.points);
    let mut w = vec![0.0; points.dims() * k];
    for row in 0..points.len() {
        let own = &fit.beta[row * k..(row + 1) * k];
        points.visit(row, |column, x| {
            w[column * k..(column + 1) * k].iter_mut().zip(own).for_each(|(w, b)| *w += b * x);
        });
    }
    w
}

/// Whether one factorisation solves all targets.
pub(crate) fn solved_at_once(plan: &Plan<'_>) -> bool {
    let options = &plan.options;
    matches!(options.loss, LossChoice::Spec(LossSpec::Square))
        && matches!(options.solver, SolverName::Auto | SolverName::Ridge)
        && options.penalty == Penalty::L2
        && options.intercept_scaling.is_none()
        && !matches!(options.probability, Some(Probability::Folds(_)))
        && matches!(plan.formulation, Formulation::Cost { .. })
}

/// Which solver trains the first target, and why, where each is trained by itself.
pub(crate) fn solver(plan: &Plan<'_>, k: usize) -> Result<(&'static str, String)> {
    let (options, data) = single(plan, k, 0)?;
    let (solver, reason) = Plan::new(&options, &data)?.solver()?;
    Ok((solver, format!("{k} targets, one after the other; {reason}")))
}

/// The training of one of k targets.
fn single(plan: &Plan<'_>, k: usize, at: usize) -> Result<(TrainOptions, Dataset)> {
    let Plan { options, prepared, .. } = plan;
    let targets = Targets::Real(prepared.targets.iter().skip(at).step_by(k).copied().collect());
    // Folds learn scaling, γ and what stands for missing values again; otherwise those of the plan are used as they are.
    Ok(match &plan.raw {
        Some(raw) => {
            let data = Dataset { targets, ..raw.clone() };
            (TrainOptions { schema: None, ..options.clone() }, data)
        }
        None => {
            let mut data = Dataset::new(prepared.points.clone(), targets)?;
            data.weights = prepared.weights.clone();
            (TrainOptions { kernel: plan.kernel, gamma: None, scale: None, schema: None, ..options.clone() }, data)
        }
    })
}

pub(crate) fn train(plan: &Plan<'_>, k: usize, control: &Control, observer: &mut dyn Observer) -> Result<Fit> {
    let begun = Instant::now();
    let Plan { options, prepared, kernel, .. } = plan;
    let space = KernelSpace::new(*kernel, &prepared.points, control)?;
    let space = if solved_at_once(plan) { space.kept(control) } else { space };
    let job = &Outputs { plan, k, space, costs: prepared.costs(plan.formulation), control };
    let (n, linear) = (job.rows(), *kernel == Kernel::Linear);
    if !solved_at_once(plan) {
        return one_by_one(job, observer, None);
    }
    let gram = job.space.gram();
    let loo = options.probability == Some(Probability::LeaveOneOut) || options.leave_one_out;
    let ridge_options = RidgeOptions { loo, memory: options.budget.memory, ..RidgeOptions::default() };
    let source = if linear { Source::Linear(&prepared.points, gram) } else { Source::Gram(gram) };
    let mut last = Step { phase: "factor", ..Step::default() };
    let begin = Begin { solver: "ridge", n, tol: Some(ridge_options.tol), gap: None };
    let stopped = observer.begin(&begin).is_break() || observer.step(&last).is_break();
    let solved = match stopped {
        true => Err(Halt::Interrupted(Interrupt::Cancelled)),
        false => ridge::fit(source, job.targets(), k, &job.costs, options.bias.then_some(0.0), &ridge_options, control),
    };
    let (fit, ended) = match solved {
        Ok(fit) => (fit, None),
        Err(Halt::Interrupted(why)) => (nothing_yet(job), Some(Status::from(why))),
        Err(Halt::Error(Error::Memory { .. })) if options.solver == SolverName::Auto => {
            return one_by_one(job, observer, Some("as a factorisation does not fit in the memory"));
        }
        Err(Halt::Error(error)) => return Err(error),
    };
    let proof = control.for_proof();
    let weights = linear.then(|| weights_of(job, &fit));
    let entries = gram.entries();
    let mut records = Vec::with_capacity(k);
    let mut bias = Vec::with_capacity(k);
    let mut scores = vec![f64::NAN; n * k];
    for at in 0..k {
        let setup = job.setup(at)?;
        let own = if options.bias { vec![fit.bias[at]] } else { vec![] };
        let solution = Solution {
            beta: job.column(&fit.beta, at),
            bias: own,
            exact: None,
            scores: None,
            status: ended.unwrap_or(Status::Optimal),
            iterations: u64::from(ended.is_none()),
            violation: f64::INFINITY,
        };
        let asked = plan.asked();
        let proven = match &weights {
            Some(all) => {
                let matrix = control.backend().matrix(&prepared.points);
                let problem = setup.linear_with(matrix.as_ref(), options.bias_kind())?;
                let own = job.column(all, at);
                prove_linear(&setup, &problem, Penalty::L2, &own, &solution, &asked, &proof)?
            }
            None => prove(&setup, gram, &solution, &asked, &proof)?,
        };
        bias.push(proven.machine.bias);
        for (row, f) in proven.scores.iter().enumerate() {
            scores[row * k + at] = f + proven.machine.bias;
        }
        let seconds = begun.elapsed().as_secs_f64() / k as f64;
        records.push(Record::new(&setup, &proven, seconds, entries / k as u64));
    }
    let short = records.iter().any(|record| record.status == Status::Inaccurate);
    if short && options.solver == SolverName::Auto && control.check().is_ok() {
        // The system is too ill-conditioned to factorise: each target separately, where other solvers can be tried.
        let why = "as the factorisation ended short of the proof";
        return one_by_one(job, observer, Some(why));
    }
    let mut reason = format!("square loss: one factorisation for {k} targets");
    if fit.jitter > 0.0 {
        reason += &format!("; K is singular to working precision: {:.1e} was added to its diagonal", fit.jitter);
    }
    let error = job.error(&scores);
    let mut model =
        Model::outputs(plan.recipe("ridge"), *kernel, &prepared.points, &fit.beta, weights, bias, &job.costs, records)?;
    let left_out = fit.loo.as_ref().filter(|_| options.leave_one_out).map(|residuals| LeaveOneOut {
        rows: (0..n as u32).collect(),
        scores: job.targets().iter().zip(residuals).map(|(y, r)| y - r).collect(),
        exact: true,
    });
    model.calibration = fit.loo.as_ref().filter(|_| options.probability.is_some()).map(|left| {
        let each = (0..k).map(|at| residual_scale(&job.column(left, at), &SHARES));
        let (sigma, radii) = each.unzip();
        Calibration::ResidualsByOutput { sigma, radii, origin: Origin::LeaveOneOut }
    });
    last.iteration = u64::from(ended.is_none());
    last.seconds = control.seconds();
    last.kernel_entries = Some(entries);
    last.fraction = Some(1.0);
    observer.finish(model.totals().status, &last);
    Ok(Fit { left_out, ..finished(plan, model, reason, error, entries) })
}

fn finished(plan: &Plan<'_>, model: Model, reason: String, train_error: f64, kernel_entries: u64) -> Fit {
    Fit {
        model,
        reason,
        train_error,
        seconds: 0.0,
        kernel_entries,
        compact: None,
        asked: plan.asked(),
        merged: 0,
        cautions: vec![],
        left_out: None,
        device: plan.options.device.backend().name(),
    }
}

/// Trains each target separately; `why`: the reason there is no shared factorisation, where there could be one.
fn one_by_one(job: &Outputs<'_>, observer: &mut dyn Observer, why: Option<&str>) -> Result<Fit> {
    let Plan { options, prepared, kernel, .. } = job.plan;
    let (k, n) = (job.k, job.rows());
    let by_weights = *kernel == Kernel::Linear;
    let mut beta = vec![0.0; n * k];
    let mut weights = vec![0.0; if by_weights { prepared.points.dims() * k } else { 0 }];
    let (mut bias, mut records, mut calibrations) = (Vec::new(), Vec::new(), Vec::new());
    let (mut solver, mut reason, mut error, mut entries) = (String::new(), String::new(), 0.0, 0);
    let mut closed: Vec<LeaveOneOut> = Vec::new();
    for at in 0..k {
        let (mut single, data) = single(job.plan, k, at)?;
        single.budget.seconds = options.budget.seconds.map(|all| (all - job.control.seconds()).max(0.0));
        let fit = Plan::new(&single, &data)?.train(observer)?;
        closed.extend(fit.leave_one_out().cloned());
        if at == 0 {
            (solver, reason) = (fit.model().solver.clone(), fit.reason().to_owned());
        }
        error += fit.train_error() / k as f64;
        entries += fit.totals().kernel_entries;
        let model = fit.into_model();
        let machine = model.machine(0);
        machine.coefficients.iter().enumerate().for_each(|(row, c)| beta[row * k + at] = *c);
        if let Some(w) = model.expansion.weights().filter(|_| by_weights) {
            w.iter().enumerate().for_each(|(column, w)| weights[column * k + at] = *w);
        }
        bias.push(machine.bias);
        records.extend(model.machines);
        calibrations.extend(model.calibration);
    }
    let weights = by_weights.then_some(weights);
    let recipe = job.plan.recipe(&solver);
    let mut model = Model::outputs(recipe, *kernel, &prepared.points, &beta, weights, bias, &job.costs, records)?;
    let (mut sigmas, mut all) = (Vec::new(), Vec::new());
    let mut from = Origin::LeaveOneOut;
    for calibration in calibrations {
        if let Calibration::Residuals { sigma, radii, origin } = calibration {
            sigmas.push(sigma);
            all.push(radii);
            from = origin;
        }
    }
    if sigmas.len() == k {
        model.calibration = Some(Calibration::ResidualsByOutput { sigma: sigmas, radii: all, origin: from });
    }
    let why = why.map_or_else(String::new, |why| format!(", {why}"));
    let reason = format!("{k} targets, one after the other{why}; {reason}");
    let left_out = side_by_side(&closed, k);
    Ok(Fit { left_out, ..finished(job.plan, model, reason, error, entries) })
}

/// The leave-one-out scores of k targets side by side, for the rows that all of them have.
fn side_by_side(each: &[LeaveOneOut], k: usize) -> Option<LeaveOneOut> {
    let first = each.first().filter(|_| each.len() == k)?;
    let places = |row: &u32| each.iter().map(|one| one.rows.binary_search(row).ok()).collect::<Option<Vec<usize>>>();
    let (mut rows, mut scores) = (Vec::new(), Vec::new());
    for row in &first.rows {
        if let Some(places) = places(row) {
            rows.push(*row);
            scores.extend(each.iter().zip(places).map(|(one, place)| one.scores[place]));
        }
    }
    Some(LeaveOneOut { rows, scores, exact: each.iter().all(|one| one.exact) })
}
