//! `margrave svm-predict`.

use std::fmt::Write as _;
use std::path::Path;

use margrave::engine::data::Label;
use margrave::engine::gram::Precision;
use margrave::engine::model::calibration::{couple, sigmoid};
use margrave::engine::model::{Calibration, Prediction, Scheme, pairs};
use margrave::engine::problem::Task;
use margrave::io::model::libsvm_from_bytes;
use margrave::io::{c_number, write_atomic};
use margrave::{Budget, Control, Model, Targets, Threads};

use super::shared::{PredictArguments, lines, quality};
use super::{ToolError, read};
use crate::failure::Exit;
use crate::models::fit_width;
use crate::options::data::check_width;
use crate::terminal::Terminal;

pub(super) const USAGE: &str = "\
Usage: svm-predict [options] test_file model_file output_file
options:
-b probability_estimates: whether to predict probability estimates, 0 or 1 (default 0); for one-class SVM only 0 is supported
-q : quiet mode (no outputs)
";

pub(super) fn run(arguments: &[String], terminal: &Terminal) -> Result<Exit, ToolError> {
    let PredictArguments { probability, quiet, test, model: file, output } =
        PredictArguments::parse(arguments, "Unknown")?;
    let (data, _) = read(test)?;
    let bytes = std::fs::read(file).map_err(|_| ToolError::Failed(format!("can't open model file {file}")))?;
    let libsvm = libsvm_from_bytes(&bytes, file)?;
    check_width(file, libsvm.centres.dims(), Budget::default().memory)?;
    let model = libsvm.to_model(libsvm.training(Some(data.points.dims())))?;
    if probability && (model.calibration.is_none() || model.task == Task::Novelty) {
        return Err(ToolError::Failed("Model does not support probabiliy estimates".into()));
    }
    let mut log = String::new();
    if !probability && model.calibration.is_some() {
        log += "Model supports probability estimates, but disabled in prediction.\n";
    }
    let points = fit_width(data.points.clone(), &model);
    let control = Control::unlimited(Threads::default());
    let scores = model.scores(&points, Precision::Double, &control)?;
    let (mut text, predicted) = match (probability, model.task) {
        (true, Task::Classify) => with_probabilities(&model, &libsvm.labels, &scores),
        (true, _) => {
            if let Some(Calibration::Residuals { sigma, .. }) = &model.calibration {
                let _ = write!(
                    log,
                    "Prob. model for test data: target value = predicted value + z,\nz: Laplace distribution e^(-|z|/sigma)/(2sigma),sigma={}\n",
                    c_number(*sigma, 6)
                );
            }
            (String::new(), values(&model, &scores))
        }
        (false, _) => (String::new(), values(&model, &scores)),
    };
    if text.is_empty() {
        text = lines(&predicted);
    }
    write_atomic(Path::new(output), |out| out.write_all(text.as_bytes()))?;
    if let Targets::Real(truth) = &data.targets {
        log += &quality(model.task, truth, &predicted, " (classification)");
    }
    if !quiet {
        terminal.write(&log)?;
    }
    Ok(Exit::Done)
}

pub(super) fn value_of(label: &Label) -> f64 {
    if let Label::Number(v) = label { *v } else { f64::NAN }
}

/// One number per row: the label, the value, or 1 and −1.
pub(super) fn values(model: &Model, scores: &[f64]) -> Vec<f64> {
    match model.decide(scores) {
        Prediction::Labels(codes) => codes.iter().map(|&code| value_of(&model.labels[code as usize])).collect(),
        Prediction::Values(values) => values,
        Prediction::Inside(inside) => inside.iter().map(|i| if *i { 1.0 } else { -1.0 }).collect(),
    }
}

/// The table of probabilities, labels in the file's order, and the most probable label of each row.
fn with_probabilities(model: &Model, order: &[Label], scores: &[f64]) -> (String, Vec<f64>) {
    let (classes, outputs) = (order.len(), model.expansion.outputs());
    let (a, b) = match &model.calibration {
        Some(Calibration::Sigmoid { a, b, .. }) => (a.clone(), b.clone()),
        _ => (vec![-1.0; outputs], vec![0.0; outputs]),
    };
    let positive = |machine: usize, z: f64| sigmoid(z, a[machine], b[machine]).clamp(1e-7, 1.0 - 1e-7);
    let mut text = String::from("labels");
    order.iter().for_each(|label| {
        let _ = write!(text, " {}", c_number(value_of(label), 17));
    });
    text.push('\n');
    let (mut p, mut r) = (vec![0.0; classes], vec![0.0; classes * classes]);
    let mut predicted = Vec::new();
    for z in scores.chunks_exact(outputs) {
        if model.scheme == Scheme::One {
            // Our score is that of the file's first label.
            let first = positive(0, z[0]);
            p.copy_from_slice(&[first, 1.0 - first]);
        } else {
            for (machine, (i, j)) in pairs(classes).enumerate() {
                let second = positive(machine, z[machine]);
                (r[j * classes + i], r[i * classes + j]) = (second, 1.0 - second);
            }
            couple(classes, &r, 0.005 / classes as f64, &mut p);
        }
        let mut best = 0;
        (1..classes).for_each(|class| {
            if p[class] > p[best] {
                best = class;
            }
        });
        let label = value_of(&order[best]);
        predicted.push(label);
        text += &c_number(label, 6);
        p.iter().for_each(|p| {
            let _ = write!(text, " {}", c_number(*p, 6));
        });
        text.push('\n');
    }
    (text, predicted)
}
