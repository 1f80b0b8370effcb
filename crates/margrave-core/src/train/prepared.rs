//! Data prepared for training: scaled points, targets, weights with class factors.

use std::sync::Arc;

use super::space::Space;
use crate::conflict::OptionName;
use crate::data::{Dataset, Label, Points, Targets};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::loss::Loss;
use crate::model::Model;
use crate::problem::{ClassWeight, Formulation, Setup, Task};

/// Data prepared for training: scaled points, targets ±1 or real, weights with class factors.
pub(crate) struct Prepared {
    pub(crate) points: Points,
    /// ±1 or real; the index of the label for several classes; several numbers per row for several targets.
    pub(crate) targets: Vec<f64>,
    pub(crate) weights: Option<Vec<f64>>,
    /// The weights of the data alone, without class factors: how many samples each row stands for.
    pub(crate) counts: Option<Vec<f64>>,
    pub(crate) labels: Vec<Label>,
    pub(crate) class_weights: Vec<f64>,
    /// See [`TrainOptions::lower_nu`](super::TrainOptions::lower_nu).
    pub(crate) lower_nu: bool,
}

/// Fraction of the largest possible ν that is used where the given ν is larger.
const FRACTION_OF_LARGEST_NU: f64 = 0.99;

impl Prepared {
    /// Targets and weights for a task. `known` are the labels of an earlier model, and its class factors.
    pub(crate) fn new(
        task: Task,
        data: &Dataset,
        points: Points,
        class_weight: &ClassWeight,
        known: Option<(&[Label], &[f64])>,
    ) -> Result<Self> {
        let n = points.len();
        if n == 0 {
            return Err(Error::data("the data has no rows"));
        }
        let mut weights = data.weights.clone();
        let (mut labels, mut class_weights) = (Vec::new(), Vec::new());
        let targets = match task {
            Task::Novelty => vec![0.0; n],
            Task::Regress => data.targets.real()?.to_vec(),
            Task::Classify => {
                let (classes, codes) = data.targets.classes()?;
                let (names, factors) = match known {
                    Some((names, factors)) => (names.to_vec(), factors.to_vec()),
                    None => {
                        check_classes(&classes, &data.targets)?;
                        let factors = match class_weight {
                            ClassWeight::Equal => Vec::new(),
                            other => other.factors(&classes, &codes)?,
                        };
                        (classes.clone(), factors)
                    }
                };
                let place = |label: &Label| names.iter().position(|name| name == label);
                let mut sides = Vec::with_capacity(classes.len());
                for class in &classes {
                    sides.push(place(class).ok_or_else(|| {
                        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                        Error::data(format!("the label {class} is not one the model knows: {}", names.join(", ")))
                    })?);
                }
                if !factors.is_empty() {
                    let all = weights.get_or_insert_with(|| vec![1.0; n]);
                    for (w, code) in all.iter_mut().zip(&codes) {
                        *w *= factors[sides[*code as usize]];
                    }
                }
                (labels, class_weights) = (names, factors);
                let side = |code: &u32| sides[*code as usize];
                match labels.len() {
                    2 => codes.iter().map(|code| if side(code) == 1 { 1.0 } else { -1.0 }).collect(),
                    _ => codes.iter().map(|code| side(code) as f64).collect(),
                }
            }
        };
        let counts = data.weights.clone();
        Ok(Self { points, targets, weights, counts, labels, class_weights, lower_nu: false })
    }

    /// Several targets per row.
    pub(crate) fn outputs(data: &Dataset, points: Points, values: &[f64]) -> Result<Self> {
        if points.is_empty() {
            return Err(Error::data("the data has no rows"));
        }
        let (targets, weights) = (values.to_vec(), data.weights.clone());
        let counts = data.weights.clone();
        Ok(Self { points, targets, weights, counts, labels: vec![], class_weights: vec![], lower_nu: false })
    }

    /// The class of each row, if there are more than two.
    pub(crate) fn codes(&self) -> Vec<u32> {
        self.targets.iter().map(|y| *y as u32).collect()
    }

    /// The problem of a task over the rows of a space.
    pub(crate) fn setup(
        &self,
        task: Task,
        formulation: Formulation,
        loss: &Arc<dyn Loss>,
        free_bias: bool,
        space: &dyn Space,
        targets: &[f64],
        weights: Option<&[f64]>,
    ) -> Result<Setup> {
        let formulation = self.possible(task, formulation, targets, weights);
        Setup::new(task, formulation, targets, weights, loss.clone(), free_bias, || space.diag())
    }

    /// The weights of some of the rows.
    pub(crate) fn weights_of(&self, rows: &[u32]) -> Option<Vec<f64>> {
        self.weights.as_ref().map(|all| rows.iter().map(|&row| all[row as usize]).collect())
    }

    /// Whether costs differ by class.
    pub(crate) fn weighs_classes(&self) -> bool {
        self.class_weights.windows(2).any(|w| w[0] != w[1])
    }

    /// How much some of the rows count.
    pub(crate) fn counts_of(&self, rows: &[u32]) -> Option<Vec<f64>> {
        self.counts.as_ref().map(|all| rows.iter().map(|&row| all[row as usize]).collect())
    }

    /// The cost of each row, the same in every machine trained on it.
    pub(crate) fn costs(&self, formulation: Formulation) -> Vec<f64> {
        let c = match formulation {
            Formulation::Cost { c } => c,
            _ => 1.0,
        };
        let n = self.points.len();
        self.weights.as_ref().map_or_else(|| vec![c; n], |w| w.iter().map(|w| c * w).collect())
    }

    /// The formulation, with ν lowered to what the two classes allow if that is enabled.
    fn possible(&self, task: Task, formulation: Formulation, targets: &[f64], weights: Option<&[f64]>) -> Formulation {
        let (Task::Classify, Formulation::Nu { nu, c }, true) = (task, formulation, self.lower_nu) else {
            return formulation;
        };
        let weight = |row: usize| weights.map_or(1.0, |w| w[row]);
        let side = |sign: f64| (0..targets.len()).filter(|&i| targets[i] == sign).map(weight).sum::<f64>();
        let (positive, negative) = (side(1.0), side(-1.0));
        let largest = 2.0 * positive.min(negative) / (positive + negative);
        Formulation::Nu { nu: if nu > largest { FRACTION_OF_LARGEST_NU * largest } else { nu }, c }
    }
}

fn check_classes(classes: &[Label], targets: &Targets) -> Result<()> {
    if !targets.looks_like_classes() {
        return Err(Error::data(format!(
            "the target has fractions, so it does not look like classes: use {}, or choose another column with {}",
            OptionName::Task.at("regress"),
            OptionName::Target
        )));
    }
    match classes {
        [] | [_] => Err(Error::data(format!(
            "all samples have the label {}: there is nothing to tell apart (novelty detection needs no second class)",
            classes.first().map(ToString::to_string).unwrap_or_default()
        ))),
        _ => Ok(()),
    }
}

/// Fails unless the centres of `model` equal the rows of `points` that it names.
pub(crate) fn check_same_rows(model: &Model, points: &Points) -> Result<()> {
    if model.n != points.len() {
        return Err(Error::data(format!(
            "the model was trained on {} rows, but the data has {}: give the training data",
            model.n,
            points.len()
        )));
    }
    let centres = model.expansion.centres();
    if *model.expansion.kernel() == Kernel::Precomputed || model.expansion.is_weights() {
        return Ok(());
    }
    let d = points.dims().max(centres.dims());
    let (mut a, mut b) = (vec![0.0; d], vec![0.0; d]);
    for (at, &row) in model.expansion.rows().iter().enumerate() {
        centres.copy_row(at, &mut a);
        points.copy_row(row as usize, &mut b);
        if a != b {
            return Err(Error::data(format!(
                "row {row} of the data is not what the model was trained on: give the training data, in its order"
            )));
        }
    }
    Ok(())
}
