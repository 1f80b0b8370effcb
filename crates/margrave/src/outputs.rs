//! Several numbers to predict: least squares from one factorisation, a right-hand side a number.

use std::sync::Arc;
use std::time::Instant;

use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::certificate::{Certificate, certify, certify_linear};
use margrave_core::compose::calibrate::residual_scale;
use margrave_core::data::{Dataset, Points, Targets};
use margrave_core::gram::Gram;
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::model::{Calibration, Model, Origin, Recipe, Record};
use margrave_core::observe::{Begin, Observer, Step};
use margrave_core::problem::{Bias, Formulation, Penalty, Setup, Task};
use margrave_core::solver::ridge::{self, Fit, Halt, RidgeOptions, Source};
use margrave_core::solver::{Solution, Stop};
use margrave_core::train::verdict::default_tol;
use margrave_core::train::{Asked, prove, prove_linear};
use margrave_core::{Control, Error, Result, Status};
use margrave_io::model::SHARES;

use crate::fit::square_gram;
use crate::multi::Several;
use crate::svm::{LossChoice, Probability, SolverName, Svm};

/// What is to be trained.
pub(crate) struct Job<'a> {
    pub(crate) svm: &'a Svm,
    /// Scaled.
    pub(crate) points: &'a Points,
    /// n × k, row-major.
    pub(crate) targets: &'a [f64],
    pub(crate) k: usize,
    pub(crate) weights: Option<&'a [f64]>,
    pub(crate) kernel: Kernel,
    pub(crate) formulation: Formulation,
    pub(crate) loss: Arc<dyn Loss>,
    pub(crate) control: &'a Control,
}

/// The number of targets, where there are several.
pub(crate) fn several(targets: &Targets) -> Option<(usize, &[f64])> {
    match targets {
        Targets::Several { outputs, values } => Some((*outputs, values)),
        _ => None,
    }
}

/// Fails for what is not least squares of several numbers, and says what to do.
pub(crate) fn check(svm: &Svm, k: usize) -> Result<()> {
    let refuse = |what: &str, remedy: &str| {
        Err(Error::data(format!("there are {k} targets, and {what}: {remedy}, or choose one target with --target")))
    };
    if svm.task != Task::Regress {
        return refuse(&format!("the task is to {}", svm.task), "several are for --task regress with --loss square");
    }
    if svm.nu.is_some() {
        return refuse("ν-machines take one", "leave out --nu and add --loss square");
    }
    match &svm.loss {
        LossChoice::Spec(LossSpec::Square) => {}
        LossChoice::Usual => return refuse("the epsilon loss takes one", "add --loss square"),
        LossChoice::Spec(other) => return refuse(&format!("the {} loss takes one", other.name()), "use --loss square"),
        LossChoice::Own(_) => return refuse("a loss of one's own takes one", "use --loss square"),
    }
    let special = [
        (!matches!(svm.solver, SolverName::Auto | SolverName::Ridge), "--solver", "leave it out, or use ridge"),
        (svm.penalty == Penalty::L1, "--penalty l1", "leave it out"),
        (svm.intercept_scaling.is_some(), "--intercept-scaling", "leave it out"),
        (svm.compact.is_some(), "--compact", "leave it out"),
        (svm.anneal > 0, "--anneal", "leave it out"),
        (svm.multiclass.is_some(), "--multiclass", "leave it out"),
        (svm.start.is_some(), "--resume", "leave it out, as least squares is solved in one step"),
        (
            matches!(svm.probability, Some(Probability::Folds(_))),
            "--probability=K",
            "use --probability, which is exact here",
        ),
    ];
    match special.into_iter().find(|(asked, _, _)| *asked) {
        Some((_, what, remedy)) => refuse(&format!("{what} is for one"), remedy),
        None => Ok(()),
    }
}

impl Job<'_> {
    fn column(&self, all: &[f64], at: usize) -> Vec<f64> {
        all.iter().skip(at).step_by(self.k).copied().collect()
    }

    /// The problem of one target.
    fn setup(&self, at: usize) -> Result<Setup> {
        let targets = self.column(self.targets, at);
        let (loss, bias) = (self.loss.clone(), self.svm.bias);
        Setup::new(Task::Regress, self.formulation, &targets, self.weights, loss, bias, Vec::new)
    }

    fn costs(&self) -> Vec<f64> {
        let c = match self.formulation {
            Formulation::Cost { c } => c,
            _ => 1.0,
        };
        self.weights.map_or_else(|| vec![c; self.points.len()], |w| w.iter().map(|w| c * w).collect())
    }

    /// Mean square over rows and targets.
    fn error(&self, scores: &[f64]) -> f64 {
        let square: f64 = self.targets.iter().zip(scores).map(|(y, z)| (y - z) * (y - z)).sum();
        square / self.targets.len().max(1) as f64
    }
}

/// β = 0 and the means of the targets: what a run without time can still answer.
fn nothing_yet(job: &Job<'_>, costs: &[f64]) -> Fit {
    let (n, k) = (job.points.len(), job.k);
    let total: f64 = costs.iter().sum();
    let mean = |at: usize| {
        let sum: f64 = job.column(job.targets, at).iter().zip(costs).map(|(y, c)| c * y).sum();
        if job.svm.bias && total > 0.0 { sum / total } else { 0.0 }
    };
    Fit {
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
fn weights_of(job: &Job<'_>, fit: &Fit) -> Vec<f64> {
    if let Some(weights) = &fit.weights {
        return weights.clone();
    }
    let k = job.k;
    let mut w = vec![0.0; job.points.dims() * k];
    for row in 0..job.points.len() {
        let own = &fit.beta[row * k..(row + 1) * k];
        job.points.visit(row, |column, x| {
            w[column * k..(column + 1) * k].iter_mut().zip(own).for_each(|(w, b)| *w += b * x);
        });
    }
    w
}

/// The stopping rule of all targets together.
pub(crate) fn stop_of(svm: &Svm, targets: &[f64]) -> Stop {
    match svm.default_tol {
        true => Stop { tol: svm.stop.tol.map(|_| default_tol(Some(targets))), ..svm.stop },
        false => svm.stop,
    }
}

pub(crate) fn train(job: &Job<'_>, recipe: impl Fn(&str) -> Recipe, observer: &mut dyn Observer) -> Result<Several> {
    let begun = Instant::now();
    let (svm, k, n) = (job.svm, job.k, job.points.len());
    let gram = square_gram(job.kernel, job.points)?;
    let linear = job.kernel == Kernel::Linear;
    let costs = job.costs();
    let loo = svm.probability == Some(Probability::LeaveOneOut);
    let options = RidgeOptions { loo, memory: svm.budget.memory, ..RidgeOptions::default() };
    let source = if linear { Source::Linear(job.points, gram.as_ref()) } else { Source::Gram(gram.as_ref()) };
    let mut last = Step { phase: "factor", ..Step::default() };
    let begin = Begin { solver: "ridge", n, tol: Some(options.tol), gap: None };
    let stopped = observer.begin(&begin).is_break() || observer.step(&last).is_break();
    let solved = match stopped {
        true => Err(Halt::Interrupted(margrave_core::Interrupt::Cancelled)),
        false => ridge::fit(source, job.targets, k, &costs, svm.bias.then_some(0.0), &options, job.control),
    };
    let (fit, ended) = match solved {
        Ok(fit) => (fit, None),
        Err(Halt::Interrupted(why)) => (nothing_yet(job, &costs), Some(Status::from(why))),
        Err(Halt::Error(Error::Memory { .. })) if svm.solver == SolverName::Auto => {
            return one_by_one(job, recipe, observer, "as a factorisation does not fit in the memory");
        }
        Err(Halt::Error(error)) => return Err(error),
    };
    let proof = job.control.for_proof();
    let weights = linear.then(|| weights_of(job, &fit));
    let entries = gram.entries();
    let mut records = Vec::with_capacity(k);
    let mut bias = Vec::with_capacity(k);
    let mut scores = vec![f64::NAN; n * k];
    for at in 0..k {
        let setup = job.setup(at)?;
        let own = if svm.bias { vec![fit.bias[at]] } else { vec![] };
        let solution = Solution {
            beta: job.column(&fit.beta, at),
            bias: own,
            scores: None,
            status: ended.unwrap_or(Status::Optimal),
            iterations: u64::from(ended.is_none()),
            violation: f64::INFINITY,
        };
        let asked = Asked::from(stop_of(svm, job.targets));
        let proven = match &weights {
            Some(all) => {
                let matrix = RowMatrix::new(job.points);
                let problem = setup.linear_with(&matrix, if svm.bias { Bias::Free } else { Bias::None })?;
                let own = job.column(all, at);
                prove_linear(&setup, &problem, Penalty::L2, &own, &solution, &asked, &proof)?
            }
            None => prove(&setup, gram.as_ref(), &solution, &asked, &proof)?,
        };
        bias.push(proven.machine.bias);
        for (row, f) in proven.scores.iter().enumerate() {
            scores[row * k + at] = f + proven.machine.bias;
        }
        let seconds = begun.elapsed().as_secs_f64() / k as f64;
        records.push(Record::new(&setup, &proven, seconds, entries / k as u64));
    }
    let short = records.iter().any(|record| record.status == Status::Inaccurate);
    if short && svm.solver == SolverName::Auto && job.control.check().is_ok() {
        // The system is too ill-conditioned for its factorisation: each target by itself, with other solvers to turn to.
        let why = "as the factorisation ended short of the proof";
        return one_by_one(job, recipe, observer, why);
    }
    let mut reason = format!("square loss: one factorisation for {k} targets");
    if fit.jitter > 0.0 {
        reason += &format!("; K is singular to working precision: {:.1e} was added to its diagonal", fit.jitter);
    }
    let error = job.error(&scores);
    let mut model = Model::outputs(recipe("ridge"), job.kernel, job.points, &fit.beta, weights, bias, &costs, records)?;
    model.calibration = fit.loo.as_ref().map(|left| {
        let each = (0..k).map(|at| residual_scale(&job.column(left, at), &SHARES));
        let (sigma, radii) = each.unzip();
        Calibration::ResidualsByOutput { sigma, radii, origin: Origin::LeaveOneOut }
    });
    last.iteration = u64::from(ended.is_none());
    last.seconds = job.control.seconds();
    last.kernel_entries = Some(entries);
    last.fraction = Some(1.0);
    observer.finish(model.totals().status, &last);
    Ok(Several { model, reason, train_error: error, kernel_entries: entries })
}

/// The certificate of (w, b) with the dual point β, on the data itself.
fn certify_weights(
    setup: &Setup,
    points: &Points,
    free: bool,
    weights: &[f64],
    bias: f64,
    beta: &[f64],
    control: &Control,
) -> Result<Certificate> {
    let matrix = RowMatrix::new(points);
    let problem = setup.linear_with(&matrix, if free { Bias::Free } else { Bias::None })?;
    Ok(certify_linear(&problem, weights, bias, beta, control)?)
}

/// Each target by itself; `why` there is no factorisation for all.
fn one_by_one(
    job: &Job<'_>,
    recipe: impl Fn(&str) -> Recipe,
    observer: &mut dyn Observer,
    why: &str,
) -> Result<Several> {
    let (k, n) = (job.k, job.points.len());
    let by_weights = job.kernel == Kernel::Linear;
    let mut beta = vec![0.0; n * k];
    let mut weights = vec![0.0; if by_weights { job.points.dims() * k } else { 0 }];
    let (mut bias, mut records, mut calibrations) = (Vec::new(), Vec::new(), Vec::new());
    let (mut solver, mut reason, mut error, mut entries) = (String::new(), String::new(), 0.0, 0);
    for at in 0..k {
        let mut svm = Svm { kernel: job.kernel, gamma: None, scale: None, schema: None, ..job.svm.clone() };
        (svm.stop, svm.default_tol) = (stop_of(job.svm, job.targets), false);
        svm.budget.seconds = svm.budget.seconds.map(|all| (all - job.control.seconds()).max(0.0));
        let mut data = Dataset::new(job.points.clone(), Targets::Real(job.column(job.targets, at)))?;
        data.weights = job.weights.map(<[f64]>::to_vec);
        let fit = svm.fit_observed(&data, observer)?;
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
    let recipe = recipe(&solver);
    let mut model = Model::outputs(recipe, job.kernel, job.points, &beta, weights, bias, &job.costs(), records)?;
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
    let reason = format!("{k} targets, one after the other, {why}; {reason}");
    Ok(Several { model, reason, train_error: error, kernel_entries: entries })
}

/// Certifies every output of a model anew; `targets` are n × k.
pub(crate) fn verify(
    model: &Model,
    points: &Points,
    targets: &[f64],
    weights: Option<&[f64]>,
    formulation: Formulation,
    loss: Arc<dyn Loss>,
    control: &Control,
) -> Result<Vec<Certificate>> {
    let k = model.expansion.outputs();
    let column = |all: &[f64], at: usize| all.iter().skip(at).step_by(k).copied().collect::<Vec<f64>>();
    let gram: Option<Box<dyn Gram>> = match model.expansion.is_weights() {
        true => None,
        false => Some(square_gram(*model.expansion.kernel(), points)?),
    };
    let mut out = Vec::with_capacity(k);
    for at in 0..k {
        let own = column(targets, at);
        let setup = Setup::new(Task::Regress, formulation, &own, weights, loss.clone(), model.free_bias, Vec::new)?;
        let machine = model.machine(at);
        let b = machine.bias;
        let (beta, bias) = setup.solution(&machine);
        out.push(match &gram {
            Some(gram) => {
                setup.with(gram.as_ref(), |problem| Ok(certify(problem, &beta, Some(&bias), None, control)?))?
            }
            None => {
                let mut w = column(model.expansion.weights().unwrap_or_default(), at);
                w.resize(points.dims(), 0.0);
                certify_weights(&setup, points, model.free_bias, &w, b, &beta, control)?
            }
        });
    }
    Ok(out)
}
