//! What a user should know before relying on a model, though nothing went wrong.

use std::fmt;

use super::plan::Plan;
use crate::conflict::OptionName;
use crate::data::Label;
use crate::problem::{ClassWeight, Task};

/// Classes are called imbalanced where the largest has more than this many times the rows of the smallest.
const IMBALANCE: f64 = 4.0;

/// A property of the data or of the model that often is not what was wanted.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Caution {
    /// The model predicts one class for every training row.
    OneClass {
        /// That class.
        label: Label,
    },
    /// The classes are of very different size, and neither weights nor a threshold nor a score says what that should mean.
    Imbalanced {
        /// The largest class.
        most: Label,
        /// The smallest class.
        least: Label,
        /// Rows of the largest class, by weight.
        of_most: f64,
        /// Rows of the smallest class, by weight.
        of_least: f64,
        /// Number of classes.
        classes: usize,
    },
}

impl fmt::Display for Caution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caution::OneClass { label } => write!(
                f,
                "every training row is predicted as {label}: try another {}, other kernel parameters, or {}",
                OptionName::Cost,
                OptionName::ClassWeight.at("balanced")
            ),
            Caution::Imbalanced { most, least, of_most, of_least, classes } => {
                let weights = OptionName::ClassWeight.at("balanced");
                // A threshold is for two classes.
                let threshold = if *classes == 2 { format!(" or {}", OptionName::Threshold) } else { String::new() };
                write!(
                    f,
                    "the largest class, {most}, has {of_most} rows and the smallest, {least}, has {of_least}: accuracy hardly counts the rare class; consider {weights}{threshold}, or a search with {}",
                    OptionName::Score
                )
            }
        }
    }
}

/// The imbalance of classes, if it is large: `codes` has the class of each row.
pub fn imbalance(labels: &[Label], codes: &[u32], counts: Option<&[f64]>) -> Option<Caution> {
    let mut total = vec![0.0; labels.len()];
    for (row, &code) in codes.iter().enumerate() {
        total[code as usize] += counts.map_or(1.0, |counts| counts[row]);
    }
    let by = |a: &usize, b: &usize| total[*a].total_cmp(&total[*b]);
    let (most, least) = ((0..labels.len()).rev().max_by(by)?, (0..labels.len()).min_by(by)?);
    (total[most] > IMBALANCE * total[least]).then(|| Caution::Imbalanced {
        most: labels[most].clone(),
        least: labels[least].clone(),
        of_most: total[most],
        of_least: total[least],
        classes: labels.len(),
    })
}

/// The cautions of a finished training; `predicted`: how many training rows each class is predicted for.
pub(crate) fn of(plan: &Plan<'_>, predicted: &[u64]) -> Vec<Caution> {
    let Plan { options, prepared, .. } = plan;
    let mut all = Vec::new();
    if options.task != Task::Classify {
        return all;
    }
    let taken: Vec<usize> = (0..predicted.len()).filter(|&class| predicted[class] > 0).collect();
    if let [only] = taken[..] {
        all.push(Caution::OneClass { label: prepared.labels[only].clone() });
    }
    let silent = options.class_weight == ClassWeight::Equal && prepared.counts.is_none() && options.threshold.is_none();
    if silent {
        let codes: Vec<u32> = match prepared.labels.len() {
            2 => prepared.targets.iter().map(|y| u32::from(*y > 0.0)).collect(),
            _ => prepared.codes(),
        };
        all.extend(imbalance(&prepared.labels, &codes, None));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_imbalance_counts() {
        let labels = [Label::Number(0.0), Label::Number(1.0)];
        let codes = |many: usize| [vec![0; many], vec![1; 10]].concat();
        assert_eq!(imbalance(&labels, &codes(40), None), None);
        let Some(Caution::Imbalanced { most, of_most, .. }) = imbalance(&labels, &codes(41), None) else {
            panic!("41 to 10 is beyond 4 to 1")
        };
        assert_eq!((most, of_most), (labels[0].clone(), 41.0));
        let heavy = [vec![1.0; 41], vec![2.0; 10]].concat();
        assert_eq!(imbalance(&labels, &codes(41), Some(&heavy)), None);
    }
}
