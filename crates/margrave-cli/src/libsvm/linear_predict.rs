//! `margrave liblinear-predict`: LIBLINEAR's `predict`.

use std::fmt::Write as _;
use std::path::Path;

use margrave::engine::gram::Precision;
use margrave::engine::problem::Task;
use margrave::io::model::{AnyModel, any_from_bytes};
use margrave::io::{c_number, write_atomic};
use margrave::{Budget, Control, Model, Targets, Threads};

use super::predict::{value_of, values};
use super::train::regression_quality;
use super::{ToolError, check_files, number, read};
use crate::failure::Exit;
use crate::models::fit_width;
use crate::options::data::check_width;
use crate::terminal::Terminal;

pub(super) const USAGE: &str = "\
Usage: liblinear-predict [options] test_file model_file output_file
options:
-b probability_estimates: whether to output probability estimates, 0 or 1 (default 0); currently for logistic regression only
-q : quiet mode (no outputs)
";

pub(super) fn run(arguments: &[String], terminal: &Terminal) -> Result<Exit, ToolError> {
    let (mut probability, mut quiet, mut at) = (false, false, 0);
    while at < arguments.len() && arguments[at].starts_with('-') {
        match arguments[at].chars().nth(1) {
            Some('b') => {
                at += 1;
                let value = arguments.get(at).ok_or_else(|| ToolError::Usage(String::new()))?;
                probability = number::<u8>("-b", value)? != 0;
            }
            Some('q') => quiet = true,
            other => return Err(ToolError::Usage(format!("unknown option: -{}", other.unwrap_or(' ')))),
        }
        at += 1;
    }
    let [test, file, output, ..] = &arguments[at..] else { return Err(ToolError::Usage(String::new())) };
    check_files(&[("test_file", test), ("model_file", file)], ("output_file", output))?;
    let (data, _) = read(test)?;
    let bytes = std::fs::read(file).map_err(|_| ToolError::Failed(format!("can't open model file {file}")))?;
    let AnyModel::Native(model) = any_from_bytes(&bytes, file)? else {
        return Err(ToolError::Failed(format!("{file} is a LIBSVM model: use svm-predict")));
    };
    check_width(file, model.expansion.width(), Budget::default().memory)?;
    if probability && model.calibration.is_none() {
        return Err(ToolError::Failed("probability output is only supported for logistic regression".into()));
    }
    let points = fit_width(data.points.clone(), &model);
    let control = Control::unlimited(Threads::default());
    let scores = model.scores(&points, Precision::Double, &control)?;
    let predicted = values(&model, &scores);
    let mut text = String::new();
    if probability {
        text = with_probabilities(&model, &scores, &predicted);
    } else {
        predicted.iter().for_each(|value| {
            let _ = writeln!(text, "{}", c_number(*value, 17));
        });
    }
    write_atomic(Path::new(output), |out| out.write_all(text.as_bytes()))?;
    if let (Targets::Real(truth), false) = (&data.targets, quiet) {
        let log = if model.task == Task::Regress {
            let (error, correlation) = regression_quality(truth, &predicted);
            format!(
                "Mean squared error = {} (regression)\nSquared correlation coefficient = {} (regression)\n",
                c_number(error, 6),
                c_number(correlation, 6)
            )
        } else {
            let right = truth.iter().zip(&predicted).filter(|(a, b)| a == b).count();
            let share = c_number(100.0 * right as f64 / truth.len() as f64, 6);
            format!("Accuracy = {share}% ({right}/{})\n", truth.len())
        };
        terminal.write(&log)?;
    }
    Ok(Exit::Done)
}

/// The table of logistic probabilities, in the order of the file's labels: of two classes each other's complement, of
/// several normalised to a sum of 1.
fn with_probabilities(model: &Model, scores: &[f64], predicted: &[f64]) -> String {
    let logistic = |z: f64| 1.0 / (1.0 + (-z).exp());
    let outputs = model.expansion.outputs();
    // The labels of two classes are kept in reverse, so that a score is > 0 for the second.
    let mut order: Vec<f64> = model.labels.iter().map(value_of).collect();
    if outputs == 1 {
        order.reverse();
    }
    let mut text = String::from("labels");
    order.iter().for_each(|label| {
        let _ = write!(text, " {}", c_number(*label, 17));
    });
    text.push('\n');
    for (z, label) in scores.chunks_exact(outputs).zip(predicted) {
        let mut p: Vec<f64> = z.iter().map(|z| logistic(*z)).collect();
        if outputs == 1 {
            p.push(1.0 - p[0]);
        } else {
            let sum: f64 = p.iter().sum();
            p.iter_mut().for_each(|p| *p /= sum);
        }
        text += &c_number(*label, 6);
        p.iter().for_each(|p| {
            let _ = write!(text, " {}", c_number(*p, 6));
        });
        text.push('\n');
    }
    text
}
