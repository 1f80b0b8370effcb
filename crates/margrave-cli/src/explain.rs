//! What a model uses: permutation importance on left-out rows, and partial effects.

use margrave::engine::data::{Dataset, Points};
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, Scheme};
use margrave::engine::problem::Task;
use margrave::{Control, Error, Model, Targets};
use serde_json::{Value, json};

use crate::evaluate::{self, FoldModel, LeftOut};
use crate::failure::Failure;

/// More features than this are not explained: each takes several predictions of all rows.
pub(crate) const MOST_FEATURES: usize = 500;

/// How often each feature is shuffled.
const SHUFFLES: usize = 5;

/// Features whose partial effect is shown, most important first.
const EFFECTS: usize = 6;

/// Values of a feature at which its effect is computed.
const STEPS: usize = 24;

/// Rows over which an effect is averaged, at most.
const ROWS: usize = 500;

/// How much worse left-out predictions become when one feature is shuffled.
pub(crate) struct Importance {
    pub(crate) feature: String,
    /// Mean over the shuffles: accuracy lost, or mean squared error gained.
    pub(crate) mean: f64,
    /// Standard deviation over the shuffles.
    pub(crate) deviation: f64,
}

/// The mean prediction over the rows, as a function of one feature.
pub(crate) struct Effect {
    pub(crate) feature: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// What a model uses.
pub(crate) struct Explained {
    /// What importance is measured in.
    pub(crate) measure: &'static str,
    /// What an effect is measured in.
    pub(crate) effect: String,
    /// Most important first.
    pub(crate) importance: Vec<Importance>,
    pub(crate) effects: Vec<Effect>,
}

impl Explained {
    pub(crate) fn json(&self) -> Value {
        let importance: Vec<Value> = self
            .importance
            .iter()
            .map(|one| json!({ "feature": one.feature, "mean": one.mean, "std": one.deviation }))
            .collect();
        let effects: Vec<Value> =
            self.effects.iter().map(|one| json!({ "feature": one.feature, "points": one.points })).collect();
        json!({ "measure": self.measure, "importance": importance, "effect_of": self.effect, "effects": effects })
    }
}

/// Fails for data with too many features.
pub(crate) fn check(features: usize) -> Result<(), Failure> {
    if features <= MOST_FEATURES {
        return Ok(());
    }
    Err(Failure::with_hint(
        format!("--explain-features: the data has {features} features, and at most {MOST_FEATURES} are explained"),
        "leave --explain-features out, or train on fewer columns",
    ))
}

/// Explains a model by its left-out predictions; `None` without those, or if it was interrupted.
pub(crate) fn explain(
    model: &Model,
    left_out: &LeftOut,
    data: &Dataset,
    names: Option<Vec<String>>,
    seed: u64,
    control: &Control,
) -> Result<Option<Explained>, Failure> {
    let LeftOut::Folds { models, predicted, .. } = left_out else { return Ok(None) };
    let d = data.points.dims();
    let names = names.unwrap_or_else(|| (1..=d).map(|at| format!("feature {at}")).collect());
    let measure = if model.task == Task::Classify { "accuracy lost" } else { "mean squared error gained" };
    let truth = Truth::new(model, data)?;
    let before = truth.badness(&predicted.labels);
    let mut importance = Vec::with_capacity(d);
    for (feature, name) in names.iter().enumerate().take(d) {
        let found = importance_of(models, &truth, feature, seed, control);
        let rises: Vec<f64> = match found {
            Ok(badness) => badness.iter().map(|after| after - before).collect(),
            Err(Error::Interrupted(_)) => return Ok(None),
            Err(other) => return Err(other.into()),
        };
        let mean = rises.iter().sum::<f64>() / rises.len() as f64;
        let deviation = (rises.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / rises.len() as f64).sqrt();
        importance.push((feature, Importance { feature: name.clone(), mean, deviation }));
    }
    importance.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean).then(a.0.cmp(&b.0)));
    let mut effects = Vec::new();
    if model.scheme == Scheme::One {
        for (feature, one) in importance.iter().take(EFFECTS) {
            match effect_of(model, data, *feature, control) {
                Ok(points) => effects.push(Effect { feature: one.feature.clone(), points }),
                Err(Error::Interrupted(_)) => return Ok(None),
                Err(other) => return Err(other.into()),
            }
        }
    }
    let effect = match (model.task, &model.calibration) {
        (Task::Classify, Some(_)) => format!("mean probability of {}", model.labels[1.min(model.labels.len() - 1)]),
        (Task::Classify, None) => "mean score".to_owned(),
        _ => "mean prediction".to_owned(),
    };
    let importance = importance.into_iter().map(|(_, one)| one).collect();
    Ok(Some(Explained { measure, effect, importance, effects }))
}

/// The targets in the terms of predictions.
enum Truth {
    Codes(Vec<u32>),
    Values(Vec<f64>),
}

impl Truth {
    fn new(model: &Model, data: &Dataset) -> Result<Self, Failure> {
        Ok(match (model.task, &data.targets) {
            (Task::Classify, _) => Truth::Codes(evaluate::codes(model, data)?),
            (_, Targets::Several { values, .. }) => Truth::Values(values.clone()),
            (_, targets) => Truth::Values(targets.real()?.to_vec()),
        })
    }

    /// The share of wrong labels, or the mean squared error.
    fn badness(&self, predictions: &Prediction) -> f64 {
        match (self, predictions) {
            (Truth::Codes(truth), Prediction::Labels(found)) => {
                truth.iter().zip(found).filter(|(t, f)| t != f).count() as f64 / truth.len().max(1) as f64
            }
            (Truth::Values(truth), Prediction::Values(found)) => {
                truth.iter().zip(found).map(|(t, f)| (t - f).powi(2)).sum::<f64>() / truth.len().max(1) as f64
            }
            _ => f64::NAN,
        }
    }
}

/// Some rows as dense numbers.
fn dense(points: &Points, rows: &[u32]) -> Vec<f64> {
    let d = points.dims();
    let mut values = vec![0.0; rows.len() * d];
    for (row, out) in rows.iter().zip(values.chunks_exact_mut(d.max(1))) {
        points.visit(*row as usize, |feature, value| out[feature] = value);
    }
    values
}

/// The badness of left-out predictions with one feature shuffled among the rows of each fold, for each shuffle.
fn importance_of(
    models: &[FoldModel],
    truth: &Truth,
    feature: usize,
    seed: u64,
    control: &Control,
) -> Result<Vec<f64>, Error> {
    let mut out = Vec::with_capacity(SHUFFLES);
    for shuffle in 0..SHUFFLES {
        let mut all = match truth {
            Truth::Codes(codes) => Prediction::Labels(vec![0; codes.len()]),
            Truth::Values(values) => Prediction::Values(vec![0.0; values.len()]),
        };
        for (fold, FoldModel { model, held, points }) in models.iter().enumerate() {
            control.check().map_err(Error::Interrupted)?;
            let d = points.dims();
            let mut values = dense(points, &(0..held.len() as u32).collect::<Vec<u32>>());
            // The same order for every feature, so that their differences are not those of the draws.
            let mut random = Random(seed ^ ((shuffle as u64) << 32 | fold as u64));
            for at in (1..held.len()).rev() {
                let other = random.below(at as u64 + 1) as usize;
                values.swap(at * d + feature, other * d + feature);
            }
            let points = evaluate::like(points, held.len(), values)?;
            match (&mut all, model.predict(&points, Precision::Double, control)?) {
                (Prediction::Labels(all), Prediction::Labels(found)) => {
                    held.iter().zip(found).for_each(|(&row, code)| all[row as usize] = code);
                }
                (Prediction::Values(all), Prediction::Values(found)) => {
                    let k = found.len() / held.len().max(1);
                    for (&row, found) in held.iter().zip(found.chunks_exact(k.max(1))) {
                        all[row as usize * k..][..k].copy_from_slice(found);
                    }
                }
                _ => {}
            }
        }
        out.push(truth.badness(&all));
    }
    Ok(out)
}

/// The mean prediction with one feature set to each of some values, the other features as they are.
fn effect_of(model: &Model, data: &Dataset, feature: usize, control: &Control) -> Result<Vec<(f64, f64)>, Error> {
    let (n, d) = (data.len(), data.points.dims());
    let all: Vec<u32> = (0..n as u32).collect();
    let mut column: Vec<f64> = dense(&data.points, &all).into_iter().skip(feature).step_by(d.max(1)).collect();
    column.sort_by(f64::total_cmp);
    // From the 2nd to the 98th of a hundred: beyond them a model guesses.
    let place = |share: f64| column[((n - 1) as f64 * share).round() as usize];
    let (low, high) = (place(0.02), place(0.98));
    let mut steps: Vec<f64> = column.clone();
    steps.dedup();
    if steps.len() > STEPS {
        steps = (0..STEPS).map(|at| low + (high - low) * at as f64 / (STEPS - 1) as f64).collect();
    }
    let rows: Vec<u32> = all.iter().copied().step_by(n.div_ceil(ROWS).max(1)).collect();
    let mut values = dense(&data.points, &rows);
    let mut out = Vec::with_capacity(steps.len());
    for step in steps {
        control.check().map_err(Error::Interrupted)?;
        values.iter_mut().skip(feature).step_by(d.max(1)).for_each(|value| *value = step);
        let points = evaluate::like(&data.points, rows.len(), values.clone())?;
        let scores = model.scores(&points, Precision::Double, control)?;
        let sum: f64 = match model.probabilities(&scores) {
            Some(p) => p.iter().skip(1).step_by(2).sum(),
            None => scores.iter().sum(),
        };
        out.push((step, sum / rows.len().max(1) as f64));
    }
    Ok(out)
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; the bias of 2⁻⁶⁴·end does not matter here.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}
