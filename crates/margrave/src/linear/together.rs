//! Several classes at once: the machine of Crammer and Singer.

use std::time::Instant;

use margrave_core::certificate::{Certificate, certify_crammer_singer};
use margrave_core::model::{Model, Recipe, Record};
use margrave_core::observe::Observer;
use margrave_core::problem::{Bias, Formulation, Penalty};
use margrave_core::solver::linear::{Options, solve_crammer_singer};
use margrave_core::train::Asked;
use margrave_core::train::verdict::verdict;
use margrave_core::{Control, Error, Result};

use super::{bias_of, bias_of_model, several, told};
use crate::fit::Prepared;
use crate::multi::{Job, Several, row_costs};
use crate::svm::LossChoice;
use margrave_core::loss::LossSpec;

/// The class of each row; two classes are kept as ±1.
fn codes_of(prepared: &Prepared) -> Vec<u32> {
    match prepared.labels.len() {
        2 => prepared.targets.iter().map(|y| u32::from(*y > 0.0)).collect(),
        _ => prepared.codes(),
    }
}

pub(crate) fn train(job: &Job<'_>, recipe: impl Fn(&str) -> Recipe, observer: &mut dyn Observer) -> Result<Several> {
    let (svm, prepared) = (job.svm, job.prepared);
    let begun = Instant::now();
    let refused = |what: &str, instead: &str| {
        Err(Error::Unsupported { solver: "crammer-singer", what: what.into(), instead: instead.into() })
    };
    if !matches!(svm.loss, LossChoice::Usual | LossChoice::Spec(LossSpec::Hinge)) {
        return refused("a loss of one's choice: it has a hinge over all classes", "--multiclass ovr");
    }
    if svm.penalty != Penalty::L2 {
        return refused("the L1 penalty", "--multiclass ovr");
    }
    if svm.probability.is_some() {
        return refused("probabilities", "--multiclass ovr or ovo");
    }
    if svm.start.is_some() {
        return refused("resuming", "a training from the start");
    }
    let codes = codes_of(prepared);
    let costs = row_costs(job);
    let (bias, note) = match bias_of(svm) {
        // Its dual has no equality a free bias could come from.
        Bias::Free => (Bias::Penalised { scaling: 1.0 }, "; the bias is penalised as the weight of a feature 1"),
        given => (given, ""),
    };
    let options = Options {
        stop: svm.stop,
        iterations: svm.budget.iterations,
        memory: svm.budget.memory,
        seed: svm.seed,
        ..Options::default()
    };
    let points = &prepared.points;
    let classes = prepared.labels.len();
    let solved = solve_crammer_singer(points, &codes, classes, &costs, bias, &options, job.control, observer)?;
    let proof = job.control.for_proof();
    let certificate =
        certify_crammer_singer(points, &codes, &costs, bias, &solved.weights, &solved.bias, &solved.alpha, &proof)
            .unwrap_or(Certificate::Unknown);
    let status = verdict(&Asked::from(svm.stop), &certificate, solved.status);
    let own = |row: usize| solved.alpha[row * classes + codes[row] as usize];
    let count = |keep: &dyn Fn(usize) -> bool| (0..codes.len()).filter(|&row| keep(row)).count();
    let record = Record {
        certificate,
        status,
        iterations: solved.iterations,
        seconds: begun.elapsed().as_secs_f64(),
        kernel_entries: 0,
        support_vectors: count(&|row| own(row) != 0.0),
        bounded: count(&|row| own(row) > 0.0 && own(row) >= costs[row] * (1.0 - 1e-12)),
        rho: 1.0,
        tube: None,
    };
    let mut recipe = recipe("linear");
    if let Bias::Penalised { scaling } = bias {
        (recipe.free_bias, recipe.intercept_scaling) = (false, Some(scaling));
    }
    let model =
        Model::crammer_singer(recipe, solved.weights, points.dims(), &solved.alpha, &costs, solved.bias, record)?;
    let train_error = several::error(&model, points, &codes, &proof)?;
    let reason = told(svm, &format!("one machine for all classes: dual descent a sample at a time{note}"));
    Ok(Several { model, reason, train_error, kernel_entries: 0 })
}

/// Certifies a machine of Crammer and Singer anew.
pub(crate) fn verify(
    model: &Model,
    prepared: &Prepared,
    formulation: Formulation,
    control: &Control,
) -> Result<Certificate> {
    let codes = codes_of(prepared);
    let (n, k) = (codes.len(), model.expansion.outputs());
    let c = match formulation {
        Formulation::Cost { c } => c,
        _ => return Err(Error::data("the machine of Crammer and Singer has a cost C")),
    };
    let costs: Vec<f64> = match &prepared.weights {
        Some(weights) => weights.iter().map(|w| c * w).collect(),
        None => vec![c; n],
    };
    let mut alpha = vec![0.0; n * k];
    for (at, &row) in model.expansion.rows().iter().enumerate() {
        let own = &model.expansion.coefficients()[at * k..(at + 1) * k];
        alpha[row as usize * k..(row as usize + 1) * k].copy_from_slice(own);
    }
    let mut weights = model.expansion.weights().unwrap_or_default().to_vec();
    weights.resize(prepared.points.dims() * k, 0.0);
    let biases = model.expansion.bias();
    let bias = bias_of_model(model);
    Ok(certify_crammer_singer(&prepared.points, &codes, &costs, bias, &weights, biases, &alpha, control)?)
}
