//! A data set: points with their targets, weights and names.

use super::{Points, Targets};
use crate::error::{Error, Result, check_len};

/// Points with their targets, and optional weights and feature names.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The features.
    pub points: Points,
    /// The targets.
    pub targets: Targets,
    /// Per-sample weights, ≥ 0; the cost of sample i is `C · weightᵢ`.
    pub weights: Option<Vec<f64>>,
    /// Names of the features, if the source has them.
    pub names: Option<Vec<String>>,
}

impl Dataset {
    /// Points with targets; fails if their numbers differ or a target is not finite.
    pub fn new(points: Points, targets: Targets) -> Result<Self> {
        if !matches!(targets, Targets::None) {
            check_len("number of targets", points.len(), targets.len())?;
        }
        let (values, outputs): (&[f64], usize) = match &targets {
            Targets::Real(values) => (values, 1),
            Targets::Several { outputs, values } => {
                if *outputs < 2 {
                    return Err(Error::data(format!("several targets are at least two, and there are {outputs}")));
                }
                check_len("number of targets", points.len().saturating_mul(*outputs), values.len())?;
                (values, *outputs)
            }
            Targets::Text(_) | Targets::None => (&[], 1),
        };
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            let column = (outputs > 1).then_some(at % outputs);
            return Err(Error::NotFinite { what: "the target", row: at / outputs, column, value: values[at] });
        }
        Ok(Self { points, targets, weights: None, names: None })
    }

    /// The same with per-sample weights; fails if one is negative or not finite, or all are zero.
    pub fn with_weights(mut self, weights: Vec<f64>) -> Result<Self> {
        check_len("number of weights", self.points.len(), weights.len())?;
        if let Some(row) = weights.iter().position(|w| !w.is_finite()) {
            return Err(Error::NotFinite { what: "the weights", row, column: None, value: weights[row] });
        }
        if let Some(row) = weights.iter().position(|w| *w < 0.0) {
            return Err(Error::data(format!("the weight of row {row} is {}: weights must be ≥ 0", weights[row])));
        }
        if !weights.is_empty() && weights.iter().all(|w| *w == 0.0) {
            return Err(Error::data("all sample weights are zero: nothing is left to train on"));
        }
        self.weights = Some(weights);
        Ok(self)
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}
