//! Several classes at once: the machine of Crammer and Singer.

use std::time::Instant;

use crate::certificate::{Certificate, certify_crammer_singer};
use crate::model::{Model, Record};
use crate::observe::Observer;
use crate::problem::{Bias, Formulation};
use crate::solver::linear::{Options, solve_crammer_singer};
use crate::train::Asked;
use crate::train::verdict::verdict;
use crate::{Control, Error, Result};

use super::caution;
use super::fit::Fit;
use super::linear_space::{bias_of_model, reason_for};
use super::plan::Plan;
use super::prepared::Prepared;
use crate::data::Points;
use crate::gram::Precision;
use crate::model::Prediction;

/// The class of each row; two classes are kept as ±1.
fn codes_of(prepared: &Prepared) -> Vec<u32> {
    match prepared.labels.len() {
        2 => prepared.targets.iter().map(|y| u32::from(*y > 0.0)).collect(),
        _ => prepared.codes(),
    }
}

pub(crate) fn train(plan: &Plan<'_>, control: &Control, observer: &mut dyn Observer) -> Result<Fit> {
    let Plan { options, prepared, .. } = plan;
    let begun = Instant::now();
    let codes = codes_of(prepared);
    let costs = prepared.costs(plan.formulation);
    let (bias, note) = match options.bias_kind() {
        // Its dual has no equality constraint, so there is no free bias.
        Bias::Free => (Bias::Penalised { scaling: 1.0 }, "; the bias is penalised as the weight of a feature 1"),
        given => (given, ""),
    };
    let solver_options = Options {
        stop: options.stop,
        iterations: options.budget.iterations,
        memory: options.budget.memory,
        seed: options.seed,
        ..Options::default()
    };
    let points = &prepared.points;
    let classes = prepared.labels.len();
    let solved = solve_crammer_singer(points, &codes, classes, &costs, bias, &solver_options, control, observer)?;
    let proof = control.for_proof();
    let certificate =
        certify_crammer_singer(points, &codes, &costs, bias, &solved.weights, &solved.bias, &solved.alpha, &proof)
            .unwrap_or(Certificate::Unknown);
    let status = verdict(&Asked::from(options.stop), &certificate, solved.status);
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
    let mut recipe = plan.recipe("linear");
    if let Bias::Penalised { scaling } = bias {
        (recipe.free_bias, recipe.intercept_scaling) = (false, Some(scaling));
    }
    let model =
        Model::crammer_singer(recipe, solved.weights, points.dims(), &solved.alpha, &costs, solved.bias, record)?;
    let (train_error, predicted) = error(&model, points, &codes, &proof)?;
    let cautions = caution::of(plan, &predicted, std::iter::empty());
    let reason = reason_for(options, &format!("one machine for all classes: dual descent a sample at a time{note}"));
    let asked = Asked::from(options.stop);
    Ok(Fit {
        model,
        reason,
        train_error,
        seconds: 0.0,
        kernel_entries: 0,
        compact: None,
        asked,
        device: control.backend().name(),
        merged: 0,
        cautions,
        left_out: None,
    })
}

/// Fraction of the (scaled) training rows that are misclassified, and how many rows each class is predicted for.
fn error(model: &Model, points: &Points, codes: &[u32], control: &Control) -> Result<(f64, Vec<u64>)> {
    let mut predicted = vec![0u64; model.labels.len()];
    let at_once = ((1 << 22) / model.expansion.outputs()).max(1);
    let mut wrong = 0;
    for from in (0..points.len()).step_by(at_once) {
        let rows: Vec<u32> = (from as u32..(from + at_once).min(points.len()) as u32).collect();
        let part = if rows.len() == points.len() { points.clone() } else { points.gather(&rows) };
        let scores = model.expansion.scores(&part, Precision::Double, control)?;
        if let Prediction::Labels(found) = model.decide(&scores) {
            found.iter().for_each(|&code| predicted[code as usize] += 1);
            wrong += found.iter().zip(&rows).filter(|(found, row)| **found != codes[**row as usize]).count();
        }
    }
    Ok((wrong as f64 / codes.len().max(1) as f64, predicted))
}

/// Certifies a machine of Crammer and Singer independently of its training.
pub(crate) fn verify(
    model: &Model,
    prepared: &Prepared,
    formulation: Formulation,
    control: &Control,
) -> Result<Certificate> {
    let codes = codes_of(prepared);
    let (n, k) = (codes.len(), model.expansion.outputs());
    if !matches!(formulation, Formulation::Cost { .. }) {
        return Err(Error::data("the machine of Crammer and Singer has a cost C"));
    }
    let costs = prepared.costs(formulation);
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
