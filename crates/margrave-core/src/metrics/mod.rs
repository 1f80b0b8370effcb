//! How good predictions are: one number from truth and prediction.
//!
//! Every function takes the weight of each row, or `None` where all count the same; a weight of 2 is the same as two copies.
//! Definitions are those of scikit-learn's functions of the same names, including what they return in degenerate cases.

pub mod classes;
pub mod numbers;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::problem::Task;

/// A number that says how good predictions are.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Metric {
    /// Share of correct labels.
    Accuracy,
    /// Mean over the classes of the share of their rows that are found.
    BalancedAccuracy,
    /// F1 of the second of two classes.
    F1,
    /// Mean over the classes of their F1.
    F1Macro,
    /// Area under the ROC curve, two classes.
    RocAuc,
    /// Mean precision over the recall, two classes.
    AveragePrecision,
    /// Mean −log of the probability of the true class.
    LogLoss,
    /// Mean squared error of the probabilities.
    Brier,
    /// Matthews' correlation coefficient.
    Mcc,
    /// Share of the variance that is explained, R².
    R2,
    /// Root of the mean squared error.
    Rmse,
    /// Mean absolute error.
    Mae,
    /// Mean squared error.
    Mse,
    /// Mean pinball loss of the quantile τ.
    Pinball(f64),
    /// As R², without the mean of the residuals.
    ExplainedVariance,
}

/// What a metric is computed from, besides the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Predicted labels.
    Labels,
    /// The score of the second of two classes.
    Scores,
    /// The probability of every class.
    Probabilities,
    /// Predicted numbers.
    Values,
}

/// The metrics of classifiers by name.
const CLASSES: [(&str, Metric); 9] = [
    ("accuracy", Metric::Accuracy),
    ("balanced-accuracy", Metric::BalancedAccuracy),
    ("f1", Metric::F1),
    ("f1-macro", Metric::F1Macro),
    ("roc-auc", Metric::RocAuc),
    ("average-precision", Metric::AveragePrecision),
    ("log-loss", Metric::LogLoss),
    ("brier", Metric::Brier),
    ("mcc", Metric::Mcc),
];

/// The metrics of regressions by name.
const NUMBERS: [(&str, Metric); 6] = [
    ("r2", Metric::R2),
    ("rmse", Metric::Rmse),
    ("mae", Metric::Mae),
    ("mse", Metric::Mse),
    ("pinball", Metric::Pinball(0.5)),
    ("explained-variance", Metric::ExplainedVariance),
];

fn names(list: &[(&str, Metric)]) -> String {
    list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl Metric {
    /// The default of a task.
    pub fn usual(task: Task) -> Self {
        if task == Task::Regress { Metric::Mse } else { Metric::Accuracy }
    }

    /// Whether a larger value is better.
    pub fn greater_is_better(self) -> bool {
        use Metric::{Brier, LogLoss, Mae, Mse, Pinball, Rmse};
        !matches!(self, LogLoss | Brier | Rmse | Mae | Mse | Pinball(_))
    }

    /// The value as a score: larger is better.
    pub fn as_score(self, value: f64) -> f64 {
        if self.greater_is_better() { value } else { -value }
    }

    /// The name of the score: with `neg_` where a smaller value of the metric is better.
    pub fn score_name(self) -> String {
        let name = self.to_string().replace('-', "_");
        if self.greater_is_better() { name } else { format!("neg_{name}") }
    }

    /// What it is computed from.
    pub fn needs(self) -> Needs {
        use Metric::{Accuracy, AveragePrecision, BalancedAccuracy, Brier, F1, F1Macro, LogLoss, Mcc, RocAuc};
        match self {
            Accuracy | BalancedAccuracy | F1 | F1Macro | Mcc => Needs::Labels,
            RocAuc | AveragePrecision => Needs::Scores,
            LogLoss | Brier => Needs::Probabilities,
            _ => Needs::Values,
        }
    }

    /// Fails unless it fits the task and the number of classes.
    pub fn check(self, task: Task, classes: usize) -> Result<()> {
        let value = self.to_string();
        match (task, self.needs()) {
            (Task::Novelty, _) => Err(Error::option("score", value, "novelty detection has no targets to score by")),
            (Task::Regress, Needs::Values) => Ok(()),
            (Task::Regress, _) => Err(Error::option(
                "score",
                value,
                format!("it is for classes; for numbers there are {}", names(&NUMBERS)),
            )),
            (Task::Classify, Needs::Values) => Err(Error::option(
                "score",
                value,
                format!("it is for numbers; for classes there are {}", names(&CLASSES)),
            )),
            (Task::Classify, _) if classes > 2 && (self.needs() == Needs::Scores || self == Metric::F1) => {
                Err(Error::option(
                    "score",
                    value,
                    format!(
                        "it is for two classes, and there are {classes}: balanced-accuracy, f1-macro, log-loss or mcc take any number"
                    ),
                ))
            }
            (Task::Classify, _) => Ok(()),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metric::Pinball(tau) if *tau != 0.5 => write!(f, "pinball:{tau}"),
            Metric::Pinball(_) => f.write_str("pinball"),
            other => {
                let all = CLASSES.iter().chain(&NUMBERS);
                f.write_str(all.into_iter().find(|(_, metric)| metric == other).map_or("", |(name, _)| name))
            }
        }
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let plain = text.replace('_', "-");
        if let Some(tau) = plain.strip_prefix("pinball:") {
            let tau = tau.strip_prefix("tau=").unwrap_or(tau).parse::<f64>().ok().filter(|t| *t > 0.0 && *t < 1.0);
            return tau
                .map(Metric::Pinball)
                .ok_or_else(|| Error::option("score", text, "pinball:TAU with 0 < TAU < 1"));
        }
        let found = CLASSES.iter().chain(&NUMBERS).find(|(name, _)| *name == plain);
        found.map(|(_, metric)| *metric).ok_or_else(|| {
            let allowed = format!("for classes {}; for numbers {}", names(&CLASSES), names(&NUMBERS));
            Error::option("score", text, allowed)
        })
    }
}

/// The weight of a row.
fn weight(weights: Option<&[f64]>, row: usize) -> f64 {
    weights.map_or(1.0, |w| w[row])
}
