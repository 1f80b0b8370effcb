//! A data set: points with their targets, weights and names.

use std::sync::Arc;

use super::{Fills, Points, Targets};
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
    /// Cells of the points that were missing and are filled in: folds fill them from their own training rows.
    pub fills: Option<Arc<Fills>>,
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
        Ok(Self { points, targets, weights: None, names: None, fills: None })
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

    /// Some of the rows.
    pub fn part(&self, rows: &[u32]) -> Result<Self> {
        let own = Self::new(self.points.gather(rows), self.targets.gather(rows))?;
        let own = match &self.weights {
            Some(weights) => own.with_weights(rows.iter().map(|&row| weights[row as usize]).collect())?,
            None => own,
        };
        let fills = self.fills.as_ref().and_then(|fills| fills.part(rows)).map(Arc::new);
        Ok(Self { names: self.names.clone(), fills, ..own })
    }

    /// The points as a training on the rows `kept` sees them: missing cells are filled from those rows alone.
    pub fn points_for(&self, kept: &[u32]) -> Result<Points> {
        match &self.fills {
            Some(fills) => fills.refit(&self.points, self.weights.as_deref(), kept),
            None => Ok(self.points.clone()),
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// A fingerprint of the data as it was read: features, targets and weights, in the order of the rows.
    pub fn fingerprint(&self) -> String {
        // FNV-1a over the bytes.
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |bytes: &[u8]| {
            bytes.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
        };
        add(&(self.len() as u64).to_le_bytes());
        for row in 0..self.len() {
            self.points.visit(row, |feature, value| {
                // Zeros may be stored or not.
                if value != 0.0 {
                    add(&(feature as u64).to_le_bytes());
                    add(&value.to_le_bytes());
                }
            });
            add(&[0xff]);
        }
        match &self.targets {
            Targets::Real(values) | Targets::Several { values, .. } => {
                values.iter().for_each(|v| add(&v.to_le_bytes()))
            }
            Targets::Text(names) => names.iter().for_each(|name| {
                add(name.as_bytes());
                add(&[0]);
            }),
            Targets::None => {}
        }
        self.weights.iter().flatten().for_each(|w| add(&w.to_le_bytes()));
        format!("{hash:016x}")
    }
}
