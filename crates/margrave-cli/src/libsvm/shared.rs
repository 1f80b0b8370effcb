//! What the tools of LIBSVM and LIBLINEAR have in common.

use std::path::Path;

use margrave::engine::data::Label;
use margrave::engine::problem::{ClassWeight, Task};
use margrave::io::c_number;
use margrave::{Fit, Status, Svm};

use super::train::regression_quality;
use super::{ToolError, number};
use crate::terminal::Terminal;

/// The files after the options of a training: data, and the model, named after the data if it is not given.
pub(super) fn training_files(arguments: &[String]) -> Result<(String, String), ToolError> {
    match arguments {
        [data] => {
            let name = Path::new(data).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            Ok((data.clone(), format!("{name}.model")))
        }
        [data, model, ..] => Ok((data.clone(), model.clone())),
        [] => Err(ToolError::Usage(String::new())),
    }
}

/// Fails for a class weight that is negative or no number.
pub(super) fn check_weights(weights: &[(i64, f64)]) -> Result<(), ToolError> {
    match weights.iter().find(|(_, weight)| !(*weight >= 0.0)) {
        Some((class, weight)) => {
            let what = if *weight < 0.0 { "negative" } else { "not a number" };
            Err(ToolError::Failed(format!(
                "ERROR: the weight of class {class} is {what} ({weight}): give -w{class} a number >= 0"
            )))
        }
        None => Ok(()),
    }
}

/// The value of `-v`.
pub(super) fn fold_count(value: &str) -> Result<usize, ToolError> {
    match number("-v", value)? {
        folds if folds >= 2 => Ok(folds),
        _ => Err(ToolError::Usage("n-fold cross validation: n must >= 2".into())),
    }
}

/// Warns of weights for classes that the data does not have.
pub(super) fn warn_of_unknown(weights: &[(i64, f64)], known: &[i64], terminal: &Terminal) {
    for (label, _) in weights.iter().filter(|(label, _)| !known.contains(label)) {
        terminal.plain_error(&format!("WARNING: class label {label} specified in weight is not found"));
    }
}

/// `svm` with the weights of the classes that the data has.
pub(super) fn weighted(svm: Svm, weights: &[(i64, f64)], known: &[i64]) -> Svm {
    let given = weights.iter().filter(|(label, _)| known.contains(label));
    let given: Vec<_> = given.map(|(label, w)| (Label::Number(*label as f64), *w)).collect();
    if given.is_empty() { svm } else { svm.class_weight(ClassWeight::Given(given)) }
}

/// Warns of a model that was not proven optimal.
pub(super) fn warn_of_gap(fit: &Fit, terminal: &Terminal) {
    if !matches!(fit.status(), Status::Optimal | Status::Interrupted) {
        let gap = fit.certificate().relative_gap().map_or_else(|| "not checked".to_owned(), |gap| format!("{gap:.1e}"));
        terminal.note(&format!("WARNING: {}: the model is not optimal, its relative gap is {gap}", fit.status()));
    }
}

/// Options and files of a prediction.
pub(super) struct PredictArguments<'a> {
    pub(super) probability: bool,
    pub(super) quiet: bool,
    pub(super) test: &'a str,
    pub(super) model: &'a str,
    pub(super) output: &'a str,
}

impl<'a> PredictArguments<'a> {
    /// `unknown`: how the tool begins its message on an unknown option.
    pub(super) fn parse(arguments: &'a [String], unknown: &str) -> Result<Self, ToolError> {
        let (mut probability, mut quiet, mut at) = (false, false, 0);
        while at < arguments.len() && arguments[at].starts_with('-') {
            match arguments[at].chars().nth(1) {
                Some('b') => {
                    at += 1;
                    let value = arguments.get(at).ok_or_else(|| ToolError::Usage(String::new()))?;
                    probability = number::<u8>("-b", value)? != 0;
                }
                Some('q') => quiet = true,
                other => return Err(ToolError::Usage(format!("{unknown} option: -{}", other.unwrap_or(' ')))),
            }
            at += 1;
        }
        let [test, model, output, ..] = &arguments[at..] else { return Err(ToolError::Usage(String::new())) };
        super::check_files(&[("test_file", test), ("model_file", model)], ("output_file", output))?;
        Ok(Self { probability, quiet, test, model, output })
    }
}

/// How good predictions are, in the tools' words; `kind` ends the line on classes.
pub(super) fn quality(task: Task, truth: &[f64], predicted: &[f64], kind: &str) -> String {
    if task == Task::Regress {
        let (error, correlation) = regression_quality(truth, predicted);
        return format!(
            "Mean squared error = {} (regression)\nSquared correlation coefficient = {} (regression)\n",
            c_number(error, 6),
            c_number(correlation, 6)
        );
    }
    let right = truth.iter().zip(predicted).filter(|(a, b)| a == b).count();
    let share = c_number(100.0 * right as f64 / truth.len() as f64, 6);
    format!("Accuracy = {share}% ({right}/{}){kind}\n", truth.len())
}

/// One number per line.
pub(super) fn lines(values: &[f64]) -> String {
    values.iter().map(|value| c_number(*value, 17) + "\n").collect()
}
