//! Several classes by linear machines: one a pair, or one a class.

use std::sync::Arc;
use std::time::Instant;

use margrave_core::certificate::Certificate;
use margrave_core::compose::{LANES, Part, run};
use margrave_core::data::Points;
use margrave_core::loss::Loss;
use margrave_core::model::{Calibration, Column, Model, Origin, Prediction, Recipe, Record, Scheme};
use margrave_core::observe::{Begin, Observer, Silent};
use margrave_core::problem::{Bias, Formulation, Setup, Task};
use margrave_core::{Control, Error, Result};

use super::{Subject, Trained, bias_of, solve_one, start_of, told, unseen, verify_one};
use crate::calibrate::sigmoid_of;
use crate::fit::{Prepared, check_same_rows};
use crate::multi::{Job, Several, name, parts, row_costs};
use margrave_core::backend::cpu::rows::RowMatrix;

/// One trained machine.
struct One {
    column: Column,
    weights: Vec<f64>,
    sigmoid: Option<(f64, f64, Origin)>,
    reason: String,
}

/// The rows of a part, shared where it has all of them.
fn part_points(points: &Points, part: &Part) -> Points {
    if part.rows.len() == points.len() { points.clone() } else { points.gather(&part.rows) }
}

fn part_setup(
    prepared: &Prepared,
    part: &Part,
    formulation: Formulation,
    loss: &Arc<dyn Loss>,
    free: bool,
) -> Result<(Setup, Option<Vec<f64>>)> {
    let weights: Option<Vec<f64>> =
        prepared.weights.as_ref().map(|all| part.rows.iter().map(|&row| all[row as usize]).collect());
    let setup =
        Setup::new(Task::Classify, formulation, &part.targets, weights.as_deref(), loss.clone(), free, Vec::new)?;
    Ok((setup, weights))
}

/// Work of a part: its stored values.
fn sizes(parts: &[Part], points: &Points) -> Vec<u64> {
    let width = (points.stored() / points.len().max(1)).max(1);
    parts.iter().map(|part| (part.rows.len() * width) as u64).collect()
}

pub(crate) fn train(
    job: &Job<'_>,
    scheme: Scheme,
    recipe: impl Fn(&str) -> Recipe,
    observer: &mut dyn Observer,
) -> Result<Several> {
    let (svm, prepared) = (job.svm, job.prepared);
    let codes = prepared.codes();
    let parts = parts(scheme, prepared.labels.len(), &codes);
    if let Some(model) = &svm.start {
        check_same_rows(model, &prepared.points)?;
        if model.scheme != scheme || model.labels != prepared.labels {
            return Err(Error::data("the model to resume from is not of the same classes and the same --multiclass"));
        }
    }
    // A share that does not depend on the threads: see `LANES`.
    let memory = svm.budget.memory / parts.len().clamp(1, LANES) as u64;
    let begin = Begin {
        solver: if scheme == Scheme::OneVsRest { "one-vs-rest" } else { "one-vs-one" },
        n: prepared.points.len(),
        tol: svm.stop.tol,
        gap: svm.stop.gap,
    };
    let free = bias_of(svm) == Bias::Free;
    let dims = prepared.points.dims();
    let machines = run(&sizes(&parts, &prepared.points), &begin, job.control, observer, |at, control, observer| {
        let begun = Instant::now();
        let part = &parts[at];
        let told = |e: Error| match e {
            Error::Interrupted(why) => Error::Interrupted(why),
            other => Error::data(format!("{}: {other}", name(job, scheme, at))),
        };
        let points = part_points(&prepared.points, part);
        let (setup, weights) = part_setup(prepared, part, job.formulation, &job.loss, free).map_err(told)?;
        let start =
            svm.start.as_ref().map(|model| start_of(model, at, model.machine_over(at, &part.rows), &setup, dims));
        let matrix = RowMatrix::new(&points);
        let trained = solve_one(svm, &setup, &matrix, start, memory, control, observer).map_err(told)?;
        let sigmoid = match svm.probability {
            None => None,
            Some(_) => {
                let subject = Subject {
                    svm,
                    task: Task::Classify,
                    formulation: job.formulation,
                    loss: &job.loss,
                    points: &points,
                    targets: &part.targets,
                    weights: weights.as_deref(),
                    memory,
                };
                let (left, origin) = unseen(&subject, &trained, &control.for_calibration())?;
                // The class against the rest wins by score, not by its side of 0.
                let (a, b) = sigmoid_of(&left, &part.targets, scheme != Scheme::OneVsRest);
                Some((a, b, origin))
            }
        };
        let Trained { mut proven, weights, reason } = trained;
        proven.certificate = proven.certificate.with_rows(&part.rows);
        let record = Record::new(&setup, &proven, begun.elapsed().as_secs_f64(), 0);
        Ok(One { column: Column::new(&proven.machine, &part.rows, record), weights, sigmoid, reason })
    })?;
    let outputs = machines.len();
    let reason = machines.first().map_or_else(String::new, |m| told(svm, &m.reason));
    let way = if scheme == Scheme::OneVsRest { "one a class" } else { "one a pair of classes" };
    let reason = format!("{outputs} machines, {way}; {reason}");
    let mut weights = vec![0.0; dims * outputs];
    for (at, machine) in machines.iter().enumerate() {
        machine.weights.iter().enumerate().for_each(|(j, w)| weights[j * outputs + at] = *w);
    }
    let sigmoids: Option<Vec<_>> = machines.iter().map(|machine| machine.sigmoid).collect();
    let columns = machines.into_iter().map(|machine| machine.column).collect();
    let mut model = Model::several_linear(recipe("linear"), weights, dims, scheme, &codes, &row_costs(job), columns)?;
    model.calibration = sigmoids.filter(|list| !list.is_empty()).map(|list| Calibration::Sigmoid {
        a: list.iter().map(|s| s.0).collect(),
        b: list.iter().map(|s| s.1).collect(),
        origin: list[0].2,
    });
    let train_error = error(&model, &prepared.points, &codes, &job.control.for_proof())?;
    Ok(Several { model, reason, train_error, kernel_entries: 0 })
}

/// Share of the (scaled) training rows that are not given their own class.
pub(super) fn error(model: &Model, points: &Points, codes: &[u32], control: &Control) -> Result<f64> {
    let at_once = ((1 << 22) / model.expansion.outputs()).max(1);
    let mut wrong = 0;
    for from in (0..points.len()).step_by(at_once) {
        let rows: Vec<u32> = (from as u32..(from + at_once).min(points.len()) as u32).collect();
        let part = if rows.len() == points.len() { points.clone() } else { points.gather(&rows) };
        let scores = model.expansion.scores(&part, margrave_core::gram::Precision::Double, control)?;
        if let Prediction::Labels(found) = model.decide(&scores) {
            wrong += found.iter().zip(&rows).filter(|(found, row)| **found != codes[**row as usize]).count();
        }
    }
    Ok(wrong as f64 / codes.len().max(1) as f64)
}

/// Certifies every machine of a model of several classes anew.
pub(crate) fn verify(
    model: &Model,
    prepared: &Prepared,
    formulation: Formulation,
    loss: &Arc<dyn Loss>,
    control: &Control,
) -> Result<Vec<Certificate>> {
    let codes = prepared.codes();
    let parts = parts(model.scheme, prepared.labels.len(), &codes);
    let begin = Begin { solver: "certify", n: codes.len(), tol: None, gap: None };
    run(&sizes(&parts, &prepared.points), &begin, control, &mut Silent, |at, control, _| {
        let part = &parts[at];
        let (setup, _) = part_setup(prepared, part, formulation, loss, model.free_bias)?;
        let points = part_points(&prepared.points, part);
        let machine = model.machine_over(at, &part.rows);
        Ok(verify_one(model, at, machine, &setup, &points, control)?.with_rows(&part.rows))
    })
}
