//! What a model uses: permutation importance on left-out rows, and partial effects.

use std::ops::Range;

use margrave::engine::data::{Dataset, Points};
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, Scheme};
use margrave::engine::problem::Task;
use margrave::io::{Encoding, Schema};
use margrave::{Control, Error, Model, Targets};
use serde_json::{Value, json};

use crate::evaluate::{self, FoldModel, LeftOut};
use crate::failure::Failure;

/// More features than this are not explained: each takes several predictions of all rows.
pub(crate) const MOST_FEATURES: usize = 500;

/// How often each column is shuffled.
const SHUFFLES: usize = 5;

/// Columns whose partial effect is shown, most important first.
const EFFECTS: usize = 6;

/// Values of a column at which its effect is computed.
const STEPS: usize = 24;

/// Rows over which an effect is averaged, at most.
const ROWS: usize = 500;

/// The features of one column: a column of words has one per word, and they change together.
struct Column {
    name: String,
    /// Its features.
    features: Range<usize>,
    /// Whether one more feature marks missing values.
    indicator: bool,
    kind: Kind,
}

/// What the values of a column are.
enum Kind {
    Number,
    Date,
    /// Texts in their order, as 0, 1, 2, ….
    Ordinal(Vec<String>),
    /// One feature per text.
    Words(Vec<String>),
    /// Parts of a date, which are not set one by one.
    Parts,
}

/// The columns that the features come from; without names every feature is one.
fn columns(schema: &Schema, d: usize) -> Vec<Column> {
    let Some(columns) = schema.columns.as_ref().filter(|columns| columns.iter().map(|c| c.width()).sum::<usize>() == d)
    else {
        let alone = |at: usize| Column {
            name: format!("feature {}", at + 1),
            features: at..at + 1,
            indicator: false,
            kind: Kind::Number,
        };
        return (0..d).map(alone).collect();
    };
    let mut from = 0;
    let mut all = Vec::with_capacity(columns.len());
    for (at, column) in columns.iter().enumerate() {
        let kind = match &column.encoding {
            Encoding::Number => Kind::Number,
            Encoding::Date => Kind::Date,
            Encoding::Ordinal(words) => Kind::Ordinal(words.clone()),
            Encoding::OneHot(words) => Kind::Words(words.clone()),
            Encoding::DateParts { .. } => Kind::Parts,
        };
        let name = column.name.clone().unwrap_or_else(|| format!("column {}", at + 1));
        let to = from + column.encoding.width();
        let indicator = column.width() > column.encoding.width();
        all.push(Column { name, features: from..to, indicator, kind });
        from += column.width();
    }
    all
}

impl Column {
    /// All its features, that for missing values included.
    fn all(&self) -> Range<usize> {
        self.features.start..self.features.end + usize::from(self.indicator)
    }

    /// Its name, with what its numbers stand for.
    fn axis(&self) -> String {
        match &self.kind {
            Kind::Date => format!("{}, days since 1970-01-01", self.name),
            Kind::Ordinal(words) => {
                let list = words.iter().enumerate().map(|(at, word)| format!("{at} = {word}"));
                let text = format!("{}: {}", self.name, list.collect::<Vec<_>>().join(", "));
                if text.chars().count() <= 80 { text } else { self.name.clone() }
            }
            _ => self.name.clone(),
        }
    }
}

/// How much worse left-out predictions become when one column is shuffled.
pub(crate) struct Importance {
    pub(crate) feature: String,
    /// Mean over the shuffles: accuracy lost, or mean squared error gained.
    pub(crate) mean: f64,
    /// Standard deviation over the shuffles.
    pub(crate) deviation: f64,
}

/// The mean prediction over the rows, as a function of one column.
pub(crate) struct Effect {
    pub(crate) feature: String,
    /// The name with what its numbers stand for.
    pub(crate) axis: String,
    /// For numbers: values and mean predictions.
    pub(crate) points: Vec<(f64, f64)>,
    /// For words: words and mean predictions.
    pub(crate) words: Vec<(String, f64)>,
}

/// What a model uses.
pub(crate) struct Explained {
    /// What importance is measured in.
    pub(crate) measure: &'static str,
    /// What an effect is measured in.
    pub(crate) effect: String,
    /// The same in one word.
    pub(crate) unit: &'static str,
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
        let effect = |one: &Effect| match one.words.is_empty() {
            true => json!({ "feature": one.feature, "points": one.points }),
            false => json!({ "feature": one.feature, "words": one.words }),
        };
        let effects: Vec<Value> = self.effects.iter().map(effect).collect();
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
    schema: &Schema,
    seed: u64,
    control: &Control,
) -> Result<Option<Explained>, Failure> {
    let LeftOut::Folds { models, predicted, .. } = left_out else { return Ok(None) };
    let columns = columns(schema, data.points.dims());
    let measure = if model.task == Task::Classify { "accuracy lost" } else { "mean squared error gained" };
    let truth = Truth::new(model, data)?;
    let before = truth.badness(&predicted.labels);
    let mut importance = Vec::with_capacity(columns.len());
    for (at, column) in columns.iter().enumerate() {
        let found = importance_of(models, &truth, column.all(), seed, control);
        let rises: Vec<f64> = match found {
            Ok(badness) => badness.iter().map(|after| after - before).collect(),
            Err(Error::Interrupted(_)) => return Ok(None),
            Err(other) => return Err(other.into()),
        };
        let mean = rises.iter().sum::<f64>() / rises.len() as f64;
        let deviation = (rises.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / rises.len() as f64).sqrt();
        importance.push((at, Importance { feature: column.name.clone(), mean, deviation }));
    }
    importance.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean).then(a.0.cmp(&b.0)));
    let mut effects = Vec::new();
    if model.scheme == Scheme::One {
        for (at, _) in importance.iter().take(EFFECTS) {
            match effect_of(model, data, &columns[*at], control) {
                Ok(effect) => effects.push(effect),
                Err(Error::Interrupted(_)) => return Ok(None),
                Err(other) => return Err(other.into()),
            }
        }
    }
    let (effect, unit) = match (model.task, &model.calibration) {
        (Task::Classify, Some(_)) => {
            (format!("mean probability of {}", model.labels[1.min(model.labels.len() - 1)]), "probability")
        }
        (Task::Classify, None) => ("mean score".to_owned(), "score"),
        _ => ("mean prediction".to_owned(), "prediction"),
    };
    let importance = importance.into_iter().map(|(_, one)| one).collect();
    Ok(Some(Explained { measure, effect, unit, importance, effects }))
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

/// The badness of left-out predictions with the features of a column shuffled among the rows of each fold, for each shuffle.
fn importance_of(
    models: &[FoldModel],
    truth: &Truth,
    features: Range<usize>,
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
            // The same order for every column, so that their differences are not those of the draws.
            let mut random = Random(seed ^ ((shuffle as u64) << 32 | fold as u64));
            for at in (1..held.len()).rev() {
                let other = random.below(at as u64 + 1) as usize;
                features.clone().for_each(|feature| values.swap(at * d + feature, other * d + feature));
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

/// The values that the features of a column take together, each with the number or text that it stands for.
fn settings(data: &Dataset, column: &Column) -> Vec<(f64, Vec<f64>)> {
    let n = data.len();
    if let Kind::Words(words) = &column.kind {
        let one = |at: usize| (0..words.len()).map(|own| f64::from(u8::from(own == at))).collect();
        return (0..words.len().min(STEPS)).map(|at| (at as f64, one(at))).collect();
    }
    if matches!(column.kind, Kind::Parts) || column.features.len() != 1 {
        return vec![];
    }
    let (d, feature) = (data.points.dims(), column.features.start);
    let all: Vec<u32> = (0..n as u32).collect();
    let mut values: Vec<f64> = dense(&data.points, &all).into_iter().skip(feature).step_by(d.max(1)).collect();
    values.sort_by(f64::total_cmp);
    // From the 2nd to the 98th of a hundred: beyond them a model guesses.
    let place = |share: f64| values[((n - 1) as f64 * share).round() as usize];
    let (low, high) = (place(0.02), place(0.98));
    let mut steps: Vec<f64> = values.clone();
    steps.dedup();
    if steps.len() > STEPS {
        steps = (0..STEPS).map(|at| low + (high - low) * at as f64 / (STEPS - 1) as f64).collect();
    }
    steps.into_iter().map(|step| (step, vec![step])).collect()
}

/// The mean prediction with one column set to each of some values, the other columns as they are.
fn effect_of(model: &Model, data: &Dataset, column: &Column, control: &Control) -> Result<Effect, Error> {
    let (n, d) = (data.len(), data.points.dims());
    let rows: Vec<u32> = (0..n as u32).step_by(n.div_ceil(ROWS).max(1)).collect();
    let mut values = dense(&data.points, &rows);
    let mut points = Vec::new();
    for (at, setting) in settings(data, column) {
        control.check().map_err(Error::Interrupted)?;
        for row in values.chunks_exact_mut(d.max(1)) {
            row[column.features.clone()].copy_from_slice(&setting);
            if column.indicator {
                row[column.features.end] = 0.0;
            }
        }
        let changed = evaluate::like(&data.points, rows.len(), values.clone())?;
        let scores = model.scores(&changed, Precision::Double, control)?;
        let sum: f64 = match model.probabilities(&scores) {
            Some(p) => p.iter().skip(1).step_by(2).sum(),
            None => scores.iter().sum(),
        };
        points.push((at, sum / rows.len().max(1) as f64));
    }
    let (feature, axis) = (column.name.clone(), column.axis());
    Ok(match &column.kind {
        Kind::Words(words) => {
            let words = points.into_iter().map(|(at, mean)| (words[at as usize].clone(), mean)).collect();
            Effect { feature, axis, points: vec![], words }
        }
        _ => Effect { feature, axis, points, words: vec![] },
    })
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
