//! The result of a training: the model with its proof.

use serde::{Serialize, Serializer};

use super::caution::Caution;
use super::space::Compacted;
use super::verdict::Asked;
use crate::certificate::Certificate;
use crate::conflict::OptionName;
use crate::control::{Control, Status, Threads};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::Precision;
use crate::model::{Model, Prediction, Record, Totals};
use crate::problem::Task;

/// A trained machine with its proof.
#[derive(Debug, Clone)]
pub struct Fit {
    pub(crate) model: Model,
    pub(crate) reason: String,
    pub(crate) train_error: f64,
    pub(crate) seconds: f64,
    pub(crate) kernel_entries: u64,
    pub(crate) compact: Option<Compacted>,
    pub(crate) asked: Asked,
    pub(crate) device: &'static str,
    pub(crate) merged: usize,
    pub(crate) cautions: Vec<Caution>,
    pub(crate) left_out: Option<LeaveOneOut>,
}

/// Scores of training rows from machines without them, in closed form from the solution. Scaling, γ and what stands for missing
/// values are those of all rows.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaveOneOut {
    /// The rows, ascending: all, or evenly spread ones of many.
    pub rows: Vec<u32>,
    /// Their scores, rows × outputs.
    pub scores: Vec<f64>,
    /// Whether these are the scores that trainings without the row would give, as for least squares. Otherwise they are those of
    /// the span rule: exact unless leaving out the row changes which other rows are support vectors or at a bound.
    pub exact: bool,
}

/// A summary of a fit, without the arrays of its model.
impl Serialize for Fit {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Summary<'a> {
            task: Task,
            solver: &'a str,
            reason: &'a str,
            device: &'a str,
            asked: Asked,
            totals: Totals,
            machines: &'a [Record],
            train_error: f64,
            compacted: Option<Compacted>,
        }
        Summary {
            task: self.model.task,
            solver: &self.model.solver,
            reason: &self.reason,
            device: self.device,
            asked: self.asked,
            totals: self.totals(),
            machines: self.records(),
            train_error: self.train_error,
            compacted: self.compact,
        }
        .serialize(serializer)
    }
}

impl Fit {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model alone.
    pub fn into_model(self) -> Model {
        self.model
    }

    /// The record of the fit: status, iterations, seconds, support vectors. With several machines, that of the worst proof.
    pub fn record(&self) -> &Record {
        // A machine that was not checked ranks below every machine that was.
        let measure = |r: &Record| match &r.certificate {
            Certificate::Unknown => f64::INFINITY,
            known => known.relative_gap().unwrap_or(known.violation()),
        };
        let worse = |a: &&Record, b: &&Record| measure(a).total_cmp(&measure(b));
        self.model.machines.iter().max_by(worse).unwrap_or(&self.model.machines[0])
    }

    /// One record per binary machine.
    pub fn records(&self) -> &[Record] {
        &self.model.machines
    }

    /// The proof: primal, dual and gap, from the independent certificate. With several binary machines, the worst one: see
    /// [`certificates`](Self::certificates) for all and [`totals`](Self::totals) for the sums.
    pub fn certificate(&self) -> &Certificate {
        &self.record().certificate
    }

    /// One certificate per binary machine.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.model.machines.iter().map(|record| &record.certificate)
    }

    /// The criteria a machine had to meet to count as optimal.
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// The device used: `cpu`.
    pub fn device(&self) -> &'static str {
        self.device
    }

    /// What a user should know before relying on the model.
    pub fn cautions(&self) -> &[Caution] {
        &self.cautions
    }

    /// Leave-one-out scores in closed form, if they were asked for and there is such a form.
    pub fn leave_one_out(&self) -> Option<&LeaveOneOut> {
        self.left_out.as_ref()
    }

    /// Training rows that were merged into equal ones with equal targets.
    pub fn merged(&self) -> usize {
        self.merged
    }

    /// Sums over the binary machines.
    pub fn totals(&self) -> Totals {
        Totals { seconds: self.seconds, kernel_entries: self.kernel_entries, ..self.model.totals() }
    }

    /// How the training ended; with several binary machines, the worst status.
    pub fn status(&self) -> Status {
        self.totals().status
    }

    /// Why this solver was chosen.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What was dropped to make the model compact, if that was enabled.
    pub fn compacted(&self) -> Option<Compacted> {
        self.compact
    }

    /// Error on the training data, by task: fraction of wrong labels, mean squared error (over all outputs), or
    /// fraction of outliers.
    pub fn train_error(&self) -> f64 {
        self.train_error
    }

    /// The predictions for points with features as in the training data.
    pub fn predict(&self, points: &Points) -> Result<Prediction> {
        self.model.predict(points, Precision::Double, &Control::unlimited(Threads::default()))
    }

    /// The scores f(x) + b of points with features as in the training data, n × outputs.
    pub fn scores(&self, points: &Points) -> Result<Vec<f64>> {
        self.model.scores(points, Precision::Double, &Control::unlimited(Threads::default()))
    }

    /// The probability of each class, n × classes in the order of the model's labels. Needs a training with
    /// [`probability`](crate::train::TrainOptions::probability).
    pub fn probabilities(&self, points: &Points) -> Result<Vec<f64>> {
        let scores = self.scores(points)?;
        let missing = || Error::data(format!("the model has no probabilities: train with {}", OptionName::Probability));
        self.model.probabilities(&scores).ok_or_else(missing)
    }
}
