//! Left-out predictions as curves and tables.

use margrave::Prediction;
use margrave::engine::metrics::classes;
use margrave::engine::model::Scheme;
use margrave::engine::problem::Task;
use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::presenter::{Evaluated, PredictedSet};
use crate::session::Trained;

/// Most points of a curve.
const MOST_POINTS: usize = 500;
/// Most residuals.
const MOST_RESIDUALS: usize = 2000;
/// Bins of probabilities.
const BINS: usize = 10;

/// At most `most` of the points, both ends included.
fn thin<T: Clone>(points: &[T], most: usize) -> Vec<T> {
    if points.len() <= most {
        return points.to_vec();
    }
    (0..most).map(|k| points[k * (points.len() - 1) / (most - 1)].clone()).collect()
}

/// Numbers of true and false positives for each threshold, from the largest score down.
fn sweep(scores: &[f64], codes: &[u32]) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let (mut hit, mut miss) = (0.0, 0.0);
    let mut out = vec![(0.0, 0.0)];
    for (at, &row) in order.iter().enumerate() {
        if codes[row] == 1 {
            hit += 1.0
        } else {
            miss += 1.0
        }
        // Equal scores share one threshold.
        if order.get(at + 1).is_none_or(|&next| scores[next] != scores[row]) {
            out.push((hit, miss));
        }
    }
    out
}

/// How often the second class is observed where it is predicted with a probability, by bins of the probability.
fn calibration(probabilities: &[f64], codes: &[u32]) -> Value {
    let mut bins = [(0.0, 0.0, 0u64); BINS];
    for (p, code) in probabilities.chunks_exact(2).zip(codes) {
        let bin = &mut bins[((p[1] * BINS as f64) as usize).min(BINS - 1)];
        *bin = (bin.0 + p[1], bin.1 + f64::from(*code), bin.2 + 1);
    }
    let error: f64 = bins.iter().map(|(p, y, _)| (p - y).abs()).sum::<f64>() / codes.len().max(1) as f64;
    let one = |(at, (p, y, rows)): (usize, &(f64, f64, u64))| {
        let mean = |sum: f64| (*rows > 0).then(|| sum / *rows as f64);
        json!({
            "from": at as f64 / BINS as f64, "to": (at + 1) as f64 / BINS as f64,
            "mean": mean(*p), "observed": mean(*y), "rows": rows,
        })
    };
    json!({ "error": error, "bins": bins.iter().enumerate().map(one).collect::<Vec<_>>() })
}

fn set_json(trained: &Trained, set: &PredictedSet) -> Value {
    let (model, data) = (trained.fit.model(), &trained.data);
    let codes = &data.codes;
    let mut view = json!({
        "name": set.name, "quality": set.quality, "confusion": null, "roc": null, "roc_auc": null, "pr": null,
        "calibration": null, "residuals": null,
    });
    if let (Prediction::Labels(found), Task::Classify) = (&set.predictions, model.task) {
        let k = model.labels.len();
        let mut counts = vec![vec![0u64; k]; k];
        found.iter().zip(codes).for_each(|(f, t)| counts[*t as usize][*f as usize] += 1);
        view["confusion"] = json!(counts);
    }
    let two = model.task == Task::Classify && model.scheme == Scheme::One;
    if let (Some(scores), true) = (&set.scores, two) {
        let positive = codes.iter().filter(|code| **code == 1).count() as f64;
        let negative = codes.len() as f64 - positive;
        if positive > 0.0 && negative > 0.0 {
            let points = sweep(scores, codes);
            let roc: Vec<[f64; 2]> = points.iter().map(|(h, m)| [m / negative, h / positive]).collect();
            let pr: Vec<[f64; 2]> = points.iter().skip(1).map(|(h, m)| [h / positive, h / (h + m)]).collect();
            view["roc"] = json!(thin(&roc, MOST_POINTS));
            view["pr"] = json!(thin(&pr, MOST_POINTS));
            let weights = data.loaded.data.weights.as_deref();
            view["roc_auc"] = json!(classes::roc_auc(codes, scores, &classes::descending(scores), weights));
        }
    }
    if let (Some(p), true) = (&set.probabilities, two) {
        view["calibration"] = calibration(p, codes);
    }
    if let (Prediction::Values(values), Task::Regress, Some(y)) = (&set.predictions, model.task, data.real()) {
        let pairs: Vec<(f64, f64)> = values.iter().copied().zip(y.iter().copied()).collect();
        let pairs = thin(&pairs, MOST_RESIDUALS);
        view["residuals"] = json!({
            "predicted": pairs.iter().map(|p| p.0).collect::<Vec<_>>(),
            "target": pairs.iter().map(|p| p.1).collect::<Vec<_>>(),
        });
    }
    view
}

/// The view.
pub(crate) fn view(trained: &Trained, found: &Evaluated) -> Result<Value, Refusal> {
    let model = trained.fit.model();
    let labels: Vec<String> = model.labels.iter().map(ToString::to_string).collect();
    Ok(json!({
        "run": trained.run,
        "model_version": trained.version,
        "how": found.how,
        "folds": found.folds,
        "sets": found.sets.iter().map(|set| set_json(trained, set)).collect::<Vec<_>>(),
        "positive": if labels.len() == 2 { json!(labels[1]) } else { Value::Null },
        "labels": labels,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_by_hand() {
        let points = sweep(&[0.9, 0.8, 0.8, 0.1], &[1, 0, 1, 0]);
        assert_eq!(points, [(0.0, 0.0), (1.0, 0.0), (2.0, 1.0), (2.0, 2.0)]);
        let bins = calibration(&[0.95, 0.05, 0.02, 0.98], &[0, 1]);
        assert_eq!(bins["bins"][0]["rows"], 1);
        assert_eq!(bins["bins"][9]["observed"], 1.0);
        assert!(bins["bins"][5]["mean"].is_null());
        assert!((bins["error"].as_f64().unwrap() - 0.035).abs() < 1e-12);
        assert_eq!(thin(&[1, 2, 3, 4, 5], 3), [1, 3, 5]);
    }
}
