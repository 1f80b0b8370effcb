//! What the embedding program adds: how results are presented, and left-out predictions.

use margrave::engine::observe::Recorder;
use margrave::io::Loaded;
use margrave::{Certificate, Dataset, Fit, Prediction, Svm};
use serde_json::Value;

/// Something the user has to change, in words.
#[derive(Debug, Clone)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// What to do about it, where the message does not say so.
    pub hint: Option<String>,
}

/// Predictions for every row of the training data.
#[derive(Debug)]
pub struct PredictedSet {
    /// `left out` or `training`.
    pub name: &'static str,
    /// Figures of merit, as a report has them.
    pub quality: Value,
    /// The predictions.
    pub predictions: Prediction,
    /// Scores n × outputs, where those of different folds have a common meaning.
    pub scores: Option<Vec<f64>>,
    /// Probabilities n × classes, if the model is calibrated.
    pub probabilities: Option<Vec<f64>>,
}

/// How well a model predicts.
#[derive(Debug)]
pub struct Evaluated {
    /// How the left-out predictions were made, or why there are none.
    pub how: String,
    /// Number of folds; `None` if there are no left-out predictions.
    pub folds: Option<usize>,
    /// Left-out predictions first, where there are any.
    pub sets: Vec<PredictedSet>,
}

/// What a report shows.
#[derive(Debug)]
pub struct ReportRequest<'a> {
    /// The options of the training.
    pub svm: &'a Svm,
    /// Its result.
    pub fit: &'a Fit,
    /// The data and its name.
    pub loaded: &'a Loaded,
    /// Name of the data.
    pub name: &'a str,
    /// The steps of the training.
    pub history: &'a Recorder,
    /// The command line that trains the same model.
    pub command: &'a str,
}

/// How the embedding program presents results. Everything here may take long and is called from engine threads.
pub trait Presenter: Send + Sync {
    /// A fit as `train --json` prints it. `name`: of the data.
    fn fit(&self, fit: &Fit, loaded: &Loaded, name: &str) -> Value;
    /// Certificates as `verify --json` prints them.
    fn certificates(&self, certificates: &[Certificate]) -> Value;
    /// Certificates as `verify` prints them for people: names and values.
    fn certificate_rows(&self, certificates: &[Certificate]) -> Vec<(String, String)>;
    /// Left-out predictions and those for the training data.
    fn evaluate(&self, svm: &Svm, fit: &Fit, data: &Dataset) -> Result<Evaluated, Problem>;
    /// A self-contained HTML page.
    fn report(&self, request: &ReportRequest<'_>) -> Result<String, Problem>;
}
