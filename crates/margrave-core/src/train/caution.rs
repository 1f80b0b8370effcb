//! What a user should know before relying on a model, though nothing went wrong.

use std::fmt;

use super::plan::Plan;
use crate::certificate::Certificate;
use crate::conflict::OptionName;
use crate::data::Label;
use crate::problem::{ClassWeight, Formulation, Task};

/// Classes are called imbalanced where the largest has more than this many times the rows of the smallest.
const IMBALANCE: f64 = 4.0;
/// The objective of a machine that is zero up to rounding, relative to that of its coefficients without cancellation.
const ZERO: f64 = 1e-9;

/// A property of the data or of the model that often is not what was wanted.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Caution {
    /// The model predicts one class for every training row.
    OneClass {
        /// That class.
        label: Label,
    },
    /// The best machine is zero: ν is smaller than the overlap of the classes allows, or nothing separates the points from the origin.
    Zero {
        /// The task.
        task: Task,
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
            Caution::Zero { task: Task::Novelty } => write!(
                f,
                "the best machine is zero, and its scores are rounding: nothing separates the points from the origin with this kernel; try {}",
                OptionName::Kernel.at("rbf")
            ),
            Caution::Zero { .. } => write!(
                f,
                "the best machine is zero, and its scores are rounding: the classes overlap more than {} allows; increase it, or give a cost {} instead",
                OptionName::Nu,
                OptionName::Cost
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

/// Whether a machine without a cost is zero up to rounding: its objective is nothing compared with what coefficients of this size
/// can make of it.
fn is_zero(certificate: &Certificate) -> bool {
    certificate.optimality().is_some_and(|o| o.primal().abs() <= ZERO * o.at_zero())
}

/// The cautions of a finished training; `predicted`: how many training rows each class is predicted for.
pub(crate) fn of<'c>(
    plan: &Plan<'_>,
    predicted: &[u64],
    mut certificates: impl Iterator<Item = &'c Certificate>,
) -> Vec<Caution> {
    let Plan { options, prepared, .. } = plan;
    let mut all = Vec::new();
    let without_cost = match plan.formulation {
        Formulation::Nu { .. } => options.task == Task::Classify,
        Formulation::OneClass { .. } => true,
        _ => false,
    };
    if without_cost && certificates.any(is_zero) {
        all.push(Caution::Zero { task: options.task });
    }
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
