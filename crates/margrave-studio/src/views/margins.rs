//! The histogram of margins, and the samples with the largest shares of the gap.

use margrave::engine::problem::Task;
use serde_json::{Value, json};

use super::{Query, margin, scores_of, spread_rows};
use crate::answer::{Outcome, ok};
use crate::data::extent;
use crate::session::{App, Trained};

const USUAL_BINS: usize = 60;
const MOST_BINS: usize = 400;
/// Rows whose margins are computed.
const MOST_ROWS: usize = 50_000;
/// Rows with the smallest margins that are listed.
const LISTED: usize = 10;

/// The view.
pub(crate) fn view(app: &App, trained: &Trained, query: &Query) -> Outcome {
    let bins = query.number::<usize>("bins")?.unwrap_or(USUAL_BINS).clamp(4, MOST_BINS);
    let (model, data) = (trained.fit.model(), &trained.data);
    let all = super::all_scores(app, trained).is_some();
    // Without stored scores each row costs as many kernel entries as there are support vectors.
    let most = if all { data.len() } else { (2_000_000_000 / model.expansion.len().max(1)).clamp(500, MOST_ROWS) };
    let rows = spread_rows(data.len(), most.min(MOST_ROWS * 20));
    let k = model.expansion.outputs();
    let scores = scores_of(app, trained, &rows)?;
    let own: Vec<f64> =
        rows.iter().zip(scores.chunks_exact(k)).map(|(&row, z)| margin(model, data, row as usize, z)).collect();
    let (low, high) = extent(own.iter().copied().filter(|v| v.is_finite()));
    let (low, high) = if high > low { (low, high) } else { (low - 0.5, low + 0.5) };
    let wide = (high - low) / bins as f64;
    let bin = |v: f64| (((v - low) / wide) as usize).min(bins - 1);
    let labels: Vec<String> = match model.task {
        Task::Classify => data.classes.iter().map(ToString::to_string).collect(),
        _ => vec!["all".to_owned()],
    };
    let mut counts = vec![vec![0u64; bins]; labels.len().max(1)];
    for (&row, v) in rows.iter().zip(&own).filter(|(_, v)| v.is_finite()) {
        let class = data.codes.get(row as usize).map_or(0, |code| *code as usize);
        counts[class.min(labels.len() - 1)][bin(*v)] += 1;
    }
    let series: Vec<Value> =
        labels.iter().zip(&counts).map(|(label, counts)| json!({ "label": label, "counts": counts })).collect();
    let epsilon = model.machines.first().and_then(|record| record.tube).or(model.loss.and_then(|loss| loss.epsilon()));
    let (kind, marks) = match model.task {
        Task::Classify => ("margin", vec![0.0, 1.0]),
        Task::Regress => ("residual", epsilon.map_or(vec![0.0], |e| vec![-e, e])),
        Task::Novelty => ("score", vec![0.0]),
    };
    let mut order: Vec<usize> = (0..rows.len()).collect();
    match model.task {
        Task::Regress => order.sort_by(|a, b| own[*b].abs().total_cmp(&own[*a].abs())),
        _ => order.sort_by(|a, b| own[*a].total_cmp(&own[*b])),
    }
    let below: Vec<Value> =
        order.iter().take(LISTED).map(|&at| json!({ "row": rows[at], "margin": own[at] })).collect();
    ok(json!({
        "run": trained.run,
        "model_version": trained.version,
        "kind": kind,
        "edges": (0..=bins).map(|at| low + wide * at as f64).collect::<Vec<_>>(),
        "series": series,
        "marks": marks,
        "worst": worst(app, trained)?,
        "below": below,
        "n": data.len(),
        "counted": rows.len(),
    }))
}

/// The samples with the largest shares of the gap, as the certificate names them.
fn worst(app: &App, trained: &Trained) -> Result<Vec<Value>, crate::answer::Refusal> {
    let (model, data) = (trained.fit.model(), &trained.data);
    let Some(proof) = trained.fit.certificate().optimality() else { return Ok(vec![]) };
    let rows: Vec<u32> = proof.worst().iter().map(|w| w.row as u32).collect();
    let scores = scores_of(app, trained, &rows)?;
    let k = model.expansion.outputs();
    let entry = |(w, z): (&margrave::engine::certificate::Worst, &[f64])| {
        json!({
            "row": w.row, "gap": w.gap, "share": w.share,
            "margin": margin(model, data, w.row, z),
            "class": data.codes.get(w.row),
            "target": data.target_text(w.row),
        })
    };
    Ok(proof.worst().iter().zip(scores.chunks_exact(k)).map(entry).collect())
}
