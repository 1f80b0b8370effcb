//! How good predictions are, where the data has targets.

use margrave::engine::data::{Dataset, Label};
use margrave::engine::metrics::{classes, numbers};
use margrave::engine::model::{Prediction, Scheme};
use margrave::loss::LossSpec;
use margrave::{Model, Targets};
use serde_json::{Map, Value, json};

use super::Rows;
use crate::format;
use crate::models;

/// How good predictions are: as JSON, as a phrase, and as lines of text.
pub(crate) struct Quality {
    pub(crate) keys: Map<String, Value>,
    pub(crate) text: String,
    pub(crate) rows: Rows,
}

/// Largest number of scores that are kept in memory to judge by.
const MOST_SCORES: usize = 1 << 23;

/// Whether scores say more about predictions for this data than labels alone.
pub(crate) fn wants_scores(model: &Model, data: &Dataset) -> bool {
    let judged = !matches!(data.targets, Targets::None) && !model.labels.is_empty();
    let used = model.scheme == Scheme::One || model.calibration.is_some();
    judged && used && data.len().saturating_mul(model.expansion.outputs()) <= MOST_SCORES
}

/// The quality of predictions; `None` if the data has no fitting targets. `scores`: those of the model, if they are known.
pub(crate) fn of(model: &Model, data: &Dataset, predictions: &Prediction, scores: Option<&[f64]>) -> Option<Quality> {
    let probabilities = scores.and_then(|scores| model.probabilities(scores));
    with_probabilities(model, data, predictions, scores, probabilities.as_deref())
}

/// The same for predictions whose probabilities are known, as of models trained on folds.
pub(crate) fn with_probabilities(
    model: &Model,
    data: &Dataset,
    predictions: &Prediction,
    scores: Option<&[f64]>,
    probabilities: Option<&[f64]>,
) -> Option<Quality> {
    match predictions {
        Prediction::Labels(codes) => labels(model, data, codes, scores, probabilities),
        Prediction::Values(values) => values_of(model, data, values),
        Prediction::Inside(inside) => {
            let count = inside.iter().filter(|i| **i).count() as f64 / data.len().max(1) as f64;
            let keys = Map::from_iter([("inside".to_owned(), json!(count))]);
            Some(Quality { keys, text: format!("{} % inside", format::number(100.0 * count, 4)), rows: vec![] })
        }
    }
}

/// The true class of each row among the model's labels; `None` for a label it does not know.
fn truth_of(model: &Model, data: &Dataset) -> Option<Vec<Option<u32>>> {
    let place = |known: &dyn Fn(&Label) -> bool| model.labels.iter().position(known).map(|at| at as u32);
    match &data.targets {
        Targets::None | Targets::Several { .. } => None,
        Targets::Real(values) => Some(values.iter().map(|y| place(&|label| *label == Label::Number(*y))).collect()),
        Targets::Text(values) => Some(values.iter().map(|y| place(&|label| label.to_string() == *y)).collect()),
    }
}

fn labels(
    model: &Model,
    data: &Dataset,
    codes: &[u32],
    scores: Option<&[f64]>,
    probabilities: Option<&[f64]>,
) -> Option<Quality> {
    let truth = truth_of(model, data)?;
    let weights = data.weights.as_deref();
    let weight = |row: usize| weights.map_or(1.0, |w| w[row]);
    let right = truth.iter().zip(codes).filter(|(t, p)| **t == Some(**p)).count();
    let (mut good, mut all) = (0.0, 0.0);
    for (row, (t, p)) in truth.iter().zip(codes).enumerate() {
        good += if *t == Some(*p) { weight(row) } else { 0.0 };
        all += weight(row);
    }
    let accuracy = if all > 0.0 { good / all } else { 0.0 };
    let mut keys = Map::new();
    keys.insert("accuracy".into(), json!(accuracy));
    let weighted = if weights.is_some() { ", weighted" } else { "" };
    let percent = |v: f64| format!("{} %", format::number(100.0 * v, 4));
    let mut text = format!("accuracy {} ({right}/{}{weighted})", percent(accuracy), data.len());
    let mut rows: Rows = vec![("accuracy", percent(accuracy))];
    let known: Option<Vec<u32>> = truth.into_iter().collect();
    let Some(truth) = known.filter(|truth| !truth.is_empty()) else { return Some(Quality { keys, text, rows }) };
    let confusion = classes::Confusion::new(model.labels.len(), &truth, codes, weights);
    let (balanced, macro_f1, mcc) = (confusion.balanced_accuracy(), confusion.f1_macro(), confusion.mcc());
    text += &format!(", balanced accuracy {}", percent(balanced));
    keys.insert("balanced_accuracy".into(), json!(balanced));
    keys.insert("f1_macro".into(), json!(macro_f1));
    keys.insert("mcc".into(), json!(mcc));
    rows.push(("balanced accuracy", percent(balanced)));
    rows.push(("F1, mean over classes", format::number(macro_f1, 4)));
    rows.push(("Matthews' correlation", format::number(mcc, 4)));
    let each = model.labels.iter().enumerate().map(|(class, label)| {
        json!({
            "label": label,
            "precision": confusion.precision(class),
            "recall": confusion.recall(class),
            "f1": confusion.f1(class),
        })
    });
    keys.insert("by_class".into(), json!(each.collect::<Vec<_>>()));
    if model.labels.len() == 2 {
        keys.insert("positive".into(), json!(model.labels[1]));
        keys.insert("f1".into(), json!(confusion.f1(1)));
        rows.push((
            "F1 of the positive class",
            format!("{} ({})", format::number(confusion.f1(1), 4), model.labels[1]),
        ));
    }
    if let (Some(scores), Scheme::One) = (scores, model.scheme) {
        let order = classes::descending(scores);
        let auc = Some(classes::roc_auc(&truth, scores, &order, weights)).filter(|auc| auc.is_finite());
        let average = auc.map(|_| classes::average_precision(&truth, scores, &order, weights));
        keys.insert("roc_auc".into(), json!(auc));
        keys.insert("average_precision".into(), json!(average));
        if let (Some(auc), Some(average)) = (auc, average) {
            text += &format!(", ROC-AUC {}", format::number(auc, 4));
            rows.push(("area under ROC", format::number(auc, 4)));
            rows.push(("average precision", format::number(average, 4)));
        }
    }
    if let Some(p) = probabilities {
        let loss = classes::log_loss(&truth, p, model.labels.len(), weights);
        let brier = classes::brier(&truth, p, model.labels.len(), weights);
        text += &format!(", log-loss {}", format::number(loss, 4));
        keys.insert("log_loss".into(), json!(loss));
        keys.insert("brier".into(), json!(brier));
        rows.push(("log-loss", format::number(loss, 4)));
        rows.push(("Brier score", format::number(brier, 4)));
    }
    Some(Quality { keys, text, rows })
}

/// One target of a regression: truth and values.
struct Target {
    truth: Vec<f64>,
    values: Vec<f64>,
}

fn values_of(model: &Model, data: &Dataset, values: &[f64]) -> Option<Quality> {
    let k = model.expansion.outputs();
    let truth = match &data.targets {
        Targets::Real(y) if k == 1 => y,
        Targets::Several { outputs, values } if *outputs == k => values,
        _ => return None,
    };
    let weights = data.weights.as_deref();
    let column = |all: &[f64], at: usize| all.iter().skip(at).step_by(k).copied().collect::<Vec<f64>>();
    let targets: Vec<Target> =
        (0..k).map(|at| Target { truth: column(truth, at), values: column(values, at) }).collect();
    // A constant target has no R².
    let spread = targets.iter().all(|t| numbers::variance(&t.truth, weights) > 0.0);
    let mean = |of: &dyn Fn(&Target) -> f64| targets.iter().map(of).sum::<f64>() / k as f64;
    let mse = mean(&|t| numbers::mse(&t.truth, &t.values, weights));
    let r2 = spread.then(|| mean(&|t| numbers::r2(&t.truth, &t.values, weights)));
    let rmse = mean(&|t| numbers::rmse(&t.truth, &t.values, weights));
    let mae = mean(&|t| numbers::mae(&t.truth, &t.values, weights));
    let explained = spread.then(|| mean(&|t| numbers::explained_variance(&t.truth, &t.values, weights)));
    let mut keys = Map::new();
    for (name, value) in [("mse", Some(mse)), ("rmse", Some(rmse)), ("mae", Some(mae)), ("r2", r2)] {
        keys.insert(name.into(), json!(value));
    }
    keys.insert("explained_variance".into(), json!(explained));
    let mut rows: Rows = vec![
        ("mean squared error", format::number(mse, 6)),
        ("its root", format::number(rmse, 6)),
        ("mean absolute error", format::number(mae, 6)),
    ];
    if let (Some(r2), Some(explained)) = (r2, explained) {
        rows.push(("R²", format::number(r2, 5)));
        rows.push(("explained variance", format::number(explained, 5)));
    }
    if let Some(LossSpec::Pinball { tau }) = model.loss {
        let loss = mean(&|t| numbers::pinball(tau, &t.truth, &t.values, weights));
        keys.insert("pinball".into(), json!(loss));
        rows.push(("pinball loss", format!("{} at τ = {}", format::number(loss, 6), format::number(tau, 4))));
    }
    if model.scheme == Scheme::Outputs {
        let each = models::output_names(model).into_iter().zip(&targets).map(|(name, t)| {
            let spread = numbers::variance(&t.truth, weights) > 0.0;
            let r2 = spread.then(|| numbers::r2(&t.truth, &t.values, weights));
            json!({ "target": name, "mse": numbers::mse(&t.truth, &t.values, weights), "r2": r2 })
        });
        keys.insert("targets".into(), json!(each.collect::<Vec<_>>()));
    }
    let explained = r2.map(|r| format!(", R² {}", format::number(r, 4))).unwrap_or_default();
    let over = if k > 1 { format!(" over {k} targets") } else { String::new() };
    let text = format!("mean squared error {}{explained}{over}", format::number(mse, 5));
    Some(Quality { keys, text, rows })
}
