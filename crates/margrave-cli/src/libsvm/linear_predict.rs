//! `margrave liblinear-predict`: LIBLINEAR's `predict`.

use std::fmt::Write as _;
use std::path::Path;

use margrave::engine::gram::Precision;
use margrave::io::model::{AnyModel, any_from_bytes};
use margrave::io::{c_number, write_atomic};
use margrave::{Budget, Control, Model, Targets, Threads};

use super::predict::{value_of, values};
use super::shared::{PredictArguments, lines, quality};
use super::{ToolError, read};
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
    let PredictArguments { probability, quiet, test, model: file, output } =
        PredictArguments::parse(arguments, "unknown")?;
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
    let text = if probability { with_probabilities(&model, &scores, &predicted) } else { lines(&predicted) };
    write_atomic(Path::new(output), |out| out.write_all(text.as_bytes()))?;
    if let (Targets::Real(truth), false) = (&data.targets, quiet) {
        terminal.write(&quality(model.task, truth, &predicted, ""))?;
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
