//! One sample: its row, and what a model says about it.

use margrave::engine::model::{Prediction, Scheme};
use serde_json::{Value, json};

use super::{Kinds, Query, WEIGHT_CAP, loss_of, loss_target, margin, scores_of};
use crate::answer::{Outcome, Refusal, ok};
use crate::data::Data;
use crate::session::{App, Session, Trained};

/// Most features of a row that are listed.
const LISTED: usize = 500;

/// The view.
pub(crate) fn view(app: &App, session: &Session, row: &str, query: &Query) -> Outcome {
    let trained = match query.text("run") {
        None | Some("current" | "") => session.model("current").ok(),
        Some(run) => Some(session.model(run)?),
    };
    let explicit = query.text("run").is_some_and(|run| run != "current" && !run.is_empty());
    let data = match (&trained, explicit) {
        (Some(trained), true) => trained.data.clone(),
        _ => session.data()?,
    };
    let row: usize = row.parse().map_err(|_| Refusal::request(format!("{row:?} is not the number of a row")))?;
    if row >= data.len() {
        return Err(Refusal::not_found(format!("row {row}: the data has {} rows", data.len())));
    }
    let mut features: Vec<(usize, f64)> = Vec::new();
    data.points().visit(row, |k, v| features.push((k, v)));
    if features.len() > LISTED {
        features.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        features.truncate(LISTED);
        features.sort_by_key(|(k, _)| *k);
    }
    let feature = |(k, v): &(usize, f64)| json!({ "index": k, "name": data.feature(*k), "value": v });
    let model = match trained.filter(|trained| trained.data.version == data.version) {
        Some(trained) => model(app, &trained, &data, row)?,
        None => Value::Null,
    };
    ok(json!({
        "row": row,
        "data_version": data.version,
        "features": features.iter().map(feature).collect::<Vec<_>>(),
        "d": data.points().dims(),
        "target": data.target_text(row),
        "class": data.codes.get(row),
        "weight": data.loaded.data.weights.as_ref().map_or(1.0, |w| w[row]),
        "model": model,
    }))
}

/// What a model says about a sample.
fn model(app: &App, trained: &Trained, data: &Data, row: usize) -> Result<Value, Refusal> {
    let model = trained.fit.model();
    let scores = scores_of(app, trained, &[row as u32])?;
    let prediction = match model.decide(&scores) {
        Prediction::Labels(labels) => labels.first().map(|at| model.labels[*at as usize].to_string()),
        Prediction::Values(values) => values.first().map(ToString::to_string),
        Prediction::Inside(inside) => inside.first().map(|yes| if *yes { "inside" } else { "outside" }.to_owned()),
    };
    let outputs = model.expansion.outputs().min(100);
    let kinds = Kinds::new(trained, 0);
    let betas: Vec<f64> = match outputs {
        1 => vec![kinds.of(row as u32).0],
        _ => (0..outputs).map(|output| Kinds::new(trained, output).of(row as u32).0).collect(),
    };
    let kind = match kinds.of(row as u32).1 {
        0 if betas.iter().all(|beta| *beta == 0.0) => "none",
        2 => "bounded",
        _ => "free",
    };
    let loss = loss_of(trained).filter(|_| model.scheme == Scheme::One);
    let y = loss_target(data, model.task, row);
    let value = loss.as_ref().map(|loss| loss.value(y, scores[0]));
    let weight = loss.as_ref().map(|loss| loss.reweight(y, scores[0], WEIGHT_CAP).weight);
    let centre = model.expansion.rows().iter().position(|at| *at as usize == row);
    let proof = trained.fit.certificate().optimality();
    let share = proof.and_then(|p| p.worst().iter().find(|w| w.row == row)).map(|w| w.share);
    Ok(json!({
        "run": trained.run,
        "model_version": trained.version,
        "score": scores,
        "prediction": prediction,
        "margin": margin(model, data, row, &scores),
        "loss": value,
        "beta": betas,
        "kind": kind,
        "irwls_weight": weight,
        "gap_share": share,
        "cost": centre.and_then(|at| model.costs.get(at)),
    }))
}
