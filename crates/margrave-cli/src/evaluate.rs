//! Left-out predictions: every row is predicted by a model that was trained without it.

use std::path::Path;

use margrave::engine::compose::cross_validate::{Deal, folds};
use margrave::engine::data::{Csr, Dataset, Label, Points};
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, Scheme};
use margrave::engine::problem::Task;
use margrave::io::Schema;
use margrave::{Control, Fit, Kernel, Model, Status, Svm};
use serde_json::{Value, json};

use crate::explain::{self, Explained};
use crate::failure::Failure;
use crate::present::quality::{self, Quality};

/// Number of folds, where every class has that many rows.
const FOLDS: usize = 5;

/// Predictions for all rows of the training data.
pub(crate) struct Predicted {
    pub(crate) labels: Prediction,
    /// Scores n × outputs; `None` where those of different folds have no common meaning.
    pub(crate) scores: Option<Vec<f64>>,
    /// Probabilities n × classes, if the model is calibrated.
    pub(crate) probabilities: Option<Vec<f64>>,
}

/// The model of one fold.
pub(crate) struct FoldModel {
    pub(crate) model: Model,
    /// The rows it predicts.
    pub(crate) held: Vec<u32>,
    /// Their points, missing values filled from the rows it was trained on.
    pub(crate) points: Points,
}

/// Leave-one-out predictions in closed form.
pub(crate) struct Closed {
    /// The rows they are for.
    data: Dataset,
    predicted: Predicted,
    exact: bool,
    /// Rows of the training data.
    n: usize,
    /// Whether the threshold of the model was chosen on the same scores.
    chosen: bool,
}

impl Closed {
    /// How the predictions were made.
    pub(crate) fn how(&self) -> String {
        let rule = match self.exact {
            true => "in closed form and exact for this loss",
            false => {
                "in closed form by the span rule, which holds as long as no other row changes its part in the solution"
            }
        };
        let some =
            if self.data.len() < self.n { format!(", {} of {} rows", self.data.len(), self.n) } else { String::new() };
        let chosen = if self.chosen { "; the threshold was chosen on the same scores" } else { "" };
        format!("{rule}{some}; scaling, γ and values for missing cells are those of all rows{chosen}")
    }

    /// How good the predictions are.
    pub(crate) fn quality(&self, model: &Model) -> Option<Quality> {
        self.predicted.quality(model, &self.data)
    }

    fn json(&self, model: &Model) -> Option<Value> {
        let mut keys = self.quality(model)?.keys;
        keys.insert("rows".into(), json!(self.data.len()));
        keys.insert("exact".into(), json!(self.exact));
        keys.insert("how".into(), json!(self.how()));
        Some(Value::Object(keys))
    }
}

/// Left-out predictions, or why there are none.
pub(crate) enum LeftOut {
    Folds {
        folds: usize,
        seed: u64,
        predicted: Predicted,
        /// The model of each fold, and what it predicts.
        models: Vec<FoldModel>,
    },
    None {
        why: String,
    },
}

impl LeftOut {
    pub(crate) fn predicted(&self) -> Option<&Predicted> {
        match self {
            LeftOut::Folds { predicted, .. } => Some(predicted),
            LeftOut::None { .. } => None,
        }
    }

    /// How the predictions were made, or why there are none.
    pub(crate) fn how(&self) -> String {
        match self {
            LeftOut::Folds { folds, seed, .. } => format!(
                "{folds} folds, seed {seed}: each row is predicted by a model trained on the other folds, values for missing cells, scaling, γ and probabilities included"
            ),
            LeftOut::None { why } => why.clone(),
        }
    }
}

impl Predicted {
    /// How good the predictions are.
    pub(crate) fn quality(&self, model: &Model, data: &Dataset) -> Option<Quality> {
        let (scores, probabilities) = (self.scores.as_deref(), self.probabilities.as_deref());
        quality::with_probabilities(model, data, &self.labels, scores, probabilities)
    }
}

/// What a report says about predictions.
pub(crate) struct Evaluation {
    pub(crate) training: Predicted,
    pub(crate) left_out: LeftOut,
    /// Leave-one-out predictions, where there is a closed form.
    pub(crate) closed: Option<Closed>,
    /// What the model uses, if that was asked for and could be computed.
    pub(crate) explained: Option<Explained>,
    /// The seed of the training and of the folds.
    pub(crate) seed: u64,
}

impl Evaluation {
    /// Predicts the training data with `fit`, and with models trained on parts of it.
    pub(crate) fn new(svm: &Svm, fit: &Fit, data: &Dataset) -> Result<Self, Failure> {
        let control = Control::unlimited(svm.options().threads.clone());
        let training = training(fit.model(), data, &control)?;
        let left_out = match fit.status() {
            Status::TimeLimit | Status::IterationLimit | Status::Interrupted => {
                LeftOut::None { why: "not computed: the training was stopped before its end".to_owned() }
            }
            _ => left_out(svm, fit.model(), data, &control)?,
        };
        let closed = closed(fit, data)?;
        Ok(Self { training, left_out, closed, explained: None, seed: svm.options().seed })
    }

    /// Also explains what the model uses. `schema`: the columns that the features come from.
    pub(crate) fn explain(&mut self, svm: &Svm, fit: &Fit, data: &Dataset, schema: &Schema) -> Result<(), Failure> {
        let mut control = Control::unlimited(svm.options().threads.clone());
        if let Some(flag) = &svm.options().cancel {
            control = control.with_cancel(flag.clone());
        }
        self.explained = explain::explain(fit.model(), &self.left_out, data, schema, self.seed, &control)?;
        Ok(())
    }

    /// The figures of a report as JSON.
    pub(crate) fn json(&self, model: &Model, data: &Dataset, file: &Path) -> Value {
        let keys = |set: &Predicted| set.quality(model, data).map(|quality| quality.keys);
        let folds = match &self.left_out {
            LeftOut::Folds { folds, .. } => Some(*folds),
            LeftOut::None { .. } => None,
        };
        json!({
            "file": file.display().to_string(),
            "fingerprint": data.fingerprint(),
            "version": env!("CARGO_PKG_VERSION"),
            "training": keys(&self.training),
            "left_out": self.left_out.predicted().and_then(keys),
            "leave_one_out": self.closed.as_ref().and_then(|closed| closed.json(model)),
            "folds": folds,
            "how": self.left_out.how(),
            "features": self.explained.as_ref().map(Explained::json),
        })
    }
}

/// The predictions of a model for its training data.
fn training(model: &Model, data: &Dataset, control: &Control) -> Result<Predicted, Failure> {
    let scores = model.scores(&data.points, Precision::Double, control)?;
    let (labels, probabilities) = (model.decide(&scores), model.probabilities(&scores));
    Ok(Predicted { labels, scores: Some(scores), probabilities })
}

/// The leave-one-out predictions of a fit that has such scores.
fn closed(fit: &Fit, data: &Dataset) -> Result<Option<Closed>, Failure> {
    let Some(left) = fit.leave_one_out().filter(|left| !left.rows.is_empty()) else { return Ok(None) };
    let (model, own) = (fit.model(), data.part(&left.rows)?);
    let labels = model.decide(&left.scores);
    let scores = comparable(model).then(|| left.scores.clone());
    let predicted = Predicted { labels, scores, probabilities: None };
    Ok(Some(Closed { data: own, predicted, exact: left.exact, n: data.len(), chosen: model.threshold.is_some() }))
}

/// Whether scores of different models of this kind have a common meaning.
fn comparable(model: &Model) -> bool {
    model.scheme == Scheme::One || model.task == Task::Regress
}

/// Left-out predictions from folds, by models with the options of `svm`. `model`: the one trained on all rows.
fn left_out(svm: &Svm, model: &Model, data: &Dataset, control: &Control) -> Result<LeftOut, Failure> {
    let none = |why: &str| Ok(LeftOut::None { why: why.to_owned() });
    if model.task == Task::Novelty {
        return none("novelty detection has no targets to judge predictions by");
    }
    if *model.expansion.kernel() == Kernel::Precomputed {
        return none("not computed: a precomputed kernel has no rows to leave out");
    }
    let n = data.len();
    let codes = match model.task {
        Task::Classify => data.targets.classes()?.1,
        _ => vec![],
    };
    let mut k = FOLDS.min(n);
    for class in 0..model.labels.len() as u32 {
        k = k.min(codes.iter().filter(|&&code| code == class).count());
    }
    if k < 2 {
        return none("not computed: a class has a single row, and without it there is nothing to learn it from");
    }
    let mut options = svm.options().clone();
    // A model of all rows must not help those of the folds.
    options.start = None;
    options.leave_one_out = false;
    let (seed, svm) = (options.seed, Svm::from(options));
    let deal = if codes.is_empty() { Deal::Plain } else { Deal::Stratified(&codes) };
    let fold = folds(n, k, deal, seed)?;
    let (outputs, classes) = (model.expansion.outputs(), model.labels.len());
    let mut found = match model.task {
        Task::Classify => Prediction::Labels(vec![0; n]),
        _ => Prediction::Values(vec![0.0; n * outputs]),
    };
    let mut scores = vec![0.0; n * outputs];
    let mut probabilities = (model.calibration.is_some() && classes > 0).then(|| vec![0.0; n * classes]);
    let mut models = Vec::with_capacity(k);
    for f in 0..k as u32 {
        let (kept, held): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|&row| fold[row as usize] != f);
        let points = data.points_for(&kept)?;
        let fit = svm.fit(&Dataset { points: points.gather(&kept), ..data.part(&kept)? })?;
        if matches!(fit.status(), Status::TimeLimit | Status::IterationLimit | Status::Interrupted) {
            return none("not computed: the training of a fold was stopped by its limits");
        }
        let own = fit.model();
        let points = points.gather(&held);
        let z = own.scores(&points, Precision::Double, control)?;
        match (&mut found, own.decide(&z)) {
            (Prediction::Labels(all), Prediction::Labels(part)) => {
                held.iter().zip(part).for_each(|(&row, code)| all[row as usize] = code);
            }
            (Prediction::Values(all), Prediction::Values(part)) => {
                for (&row, part) in held.iter().zip(part.chunks_exact(outputs)) {
                    all[row as usize * outputs..][..outputs].copy_from_slice(part);
                }
            }
            _ => return none("not computed: the models of the folds predict something else"),
        }
        for (&row, z) in held.iter().zip(z.chunks_exact(outputs)) {
            scores[row as usize * outputs..][..outputs].copy_from_slice(z);
        }
        match (&mut probabilities, own.probabilities(&z)) {
            (Some(all), Some(part)) => {
                for (&row, p) in held.iter().zip(part.chunks_exact(classes)) {
                    all[row as usize * classes..][..classes].copy_from_slice(p);
                }
            }
            _ => probabilities = None,
        }
        models.push(FoldModel { model: fit.into_model(), held, points });
    }
    let scores = comparable(model).then_some(scores);
    Ok(LeftOut::Folds { folds: k, seed, predicted: Predicted { labels: found, scores, probabilities }, models })
}

/// The class of each row among the model's labels, 0 for labels it does not know.
pub(crate) fn codes(model: &Model, data: &Dataset) -> Result<Vec<u32>, Failure> {
    let (classes, codes) = data.targets.classes()?;
    let place = |label: &Label| model.labels.iter().position(|known| known == label).unwrap_or(0) as u32;
    let places: Vec<u32> = classes.iter().map(place).collect();
    Ok(codes.iter().map(|&code| places[code as usize]).collect())
}

/// Dense numbers in the storage of other points: models are given what they were trained on.
pub(crate) fn like(other: &Points, n: usize, values: Vec<f64>) -> Result<Points, margrave::Error> {
    let d = other.dims();
    if !other.is_sparse() {
        return Points::dense_f64(n, d, values);
    }
    let (mut starts, mut columns, mut kept) = (vec![0usize], Vec::new(), Vec::new());
    for row in values.chunks_exact(d.max(1)) {
        for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as u32);
            kept.push(*value);
        }
        starts.push(columns.len());
    }
    Ok(Csr::new(d, starts, columns, kept)?.into())
}
