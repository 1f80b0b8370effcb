//! `margrave liblinear-train`: LIBLINEAR's `train`.

use std::fmt::Write as _;
use std::path::Path;

use margrave::engine::data::{Dataset, Label};
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, Scheme};
use margrave::engine::problem::{Penalty, Task};
use margrave::io::c_number;
use margrave::loss::LossSpec;
use margrave::{Control, Kernel, Model, Svm, Targets, Threads};

use super::folds::{classes, split};
use super::shared::{check_weights, fold_count, training_files, warn_of_gap, warn_of_unknown, weighted};
use super::train::{labels_of, regression_quality};
use super::{ToolError, check_files, number, read};
use crate::failure::Exit;
use crate::signal;
use crate::terminal::Terminal;

pub(super) const USAGE: &str = "\
Usage: liblinear-train [options] training_set_file [model_file]
options:
-s type : set type of solver (default 1)
  for multi-class classification
	 0 -- L2-regularized logistic regression (primal)
	 1 -- L2-regularized L2-loss support vector classification (dual)
	 2 -- L2-regularized L2-loss support vector classification (primal)
	 3 -- L2-regularized L1-loss support vector classification (dual)
	 4 -- support vector classification by Crammer and Singer
	 5 -- L1-regularized L2-loss support vector classification
	 6 -- L1-regularized logistic regression
	 7 -- L2-regularized logistic regression (dual)
  for regression
	11 -- L2-regularized L2-loss support vector regression (primal)
	12 -- L2-regularized L2-loss support vector regression (dual)
	13 -- L2-regularized L1-loss support vector regression (dual)
-c cost : set the parameter C (default 1)
-p epsilon : set the epsilon in loss function of SVR (default 0.1)
-e epsilon : stop at this KKT violation (default: the engine's own rule)
-B bias : if bias >= 0, instance x becomes [x; bias]; if < 0, no bias term added (default -1)
-R : not regularize the bias; must with -B 1 to have the bias
-wi weight : weights adjust the parameter C of different classes
-v n: n-fold cross validation mode
-q : quiet mode (no outputs)
";

/// The options of `liblinear-train`.
struct Options {
    kind: u8,
    c: f64,
    tube: f64,
    tol: Option<f64>,
    bias: f64,
    free_bias: bool,
    weights: Vec<(i64, f64)>,
    folds: Option<usize>,
    quiet: bool,
    data: String,
    model: String,
}

fn parse(arguments: &[String]) -> Result<Options, ToolError> {
    let (data, model) = (String::new(), String::new());
    let mut o = Options {
        kind: 1,
        c: 1.0,
        tube: 0.1,
        tol: None,
        bias: -1.0,
        free_bias: false,
        weights: Vec::new(),
        folds: None,
        quiet: false,
        data,
        model,
    };
    let mut at = 0;
    while at < arguments.len() && arguments[at].starts_with('-') {
        let name = arguments[at].as_str();
        let letter = name.chars().nth(1).unwrap_or(' ');
        at += 1;
        match letter {
            'q' => {
                o.quiet = true;
                continue;
            }
            'R' => {
                o.free_bias = true;
                continue;
            }
            'C' => {
                return Err(ToolError::Usage(
                    "-C is not supported: 'margrave tune DATA --kernel linear --grid C=2^-5..2^15*4' searches for C"
                        .into(),
                ));
            }
            _ => {}
        }
        let value = arguments.get(at).ok_or_else(|| ToolError::Usage(String::new()))?;
        at += 1;
        match letter {
            's' => o.kind = number(name, value)?,
            'c' => o.c = number(name, value)?,
            'p' => o.tube = number(name, value)?,
            'e' => o.tol = Some(number(name, value)?),
            'B' => o.bias = number(name, value)?,
            'v' => o.folds = Some(fold_count(value)?),
            'w' => o.weights.push((number(name, &name[2..])?, number(name, value)?)),
            _ => return Err(ToolError::Usage(format!("unknown option: -{letter}"))),
        }
    }
    (o.data, o.model) = training_files(&arguments[at..])?;
    check(&o)?;
    Ok(o)
}

/// Whether these arguments are valid.
pub(super) fn accepts(arguments: &[String]) -> bool {
    parse(arguments).is_ok()
}

fn check(o: &Options) -> Result<(), ToolError> {
    let wrong = |what: &str| Err(ToolError::Failed(format!("ERROR: {what}")));
    match o {
        o if o.kind == 21 => {
            wrong("one-class SVM (-s 21) is not supported here: use 'margrave train --task novelty --kernel linear'")
        }
        o if o.name().is_empty() => wrong("unknown solver type"),
        o if o.tol.is_some_and(|tol| !(tol > 0.0)) => wrong("eps <= 0"),
        o if !(o.c > 0.0 && o.c.is_finite()) => wrong("C <= 0"),
        o if !(o.tube >= 0.0) => wrong("p < 0"),
        o if o.bias.is_nan() => wrong("bias is not a number"),
        o if o.free_bias && o.bias != 1.0 => wrong("-R needs -B 1: the bias that is not regularized"),
        o => check_weights(&o.weights),
    }
}

impl Options {
    /// The name of the solver in model files; empty for unknown numbers.
    fn name(&self) -> &'static str {
        match self.kind {
            0 => "L2R_LR",
            1 => "L2R_L2LOSS_SVC_DUAL",
            2 => "L2R_L2LOSS_SVC",
            3 => "L2R_L1LOSS_SVC_DUAL",
            4 => "MCSVM_CS",
            5 => "L1R_L2LOSS_SVC",
            6 => "L1R_LR",
            7 => "L2R_LR_DUAL",
            11 => "L2R_L2LOSS_SVR",
            12 => "L2R_L2LOSS_SVR_DUAL",
            13 => "L2R_L1LOSS_SVR_DUAL",
            _ => "",
        }
    }

    fn task(&self) -> Task {
        if self.kind >= 11 { Task::Regress } else { Task::Classify }
    }

    fn svm(&self, known: &[i64]) -> Result<Svm, ToolError> {
        let loss = match self.kind {
            0 | 6 | 7 => "logistic".parse()?,
            1 | 2 | 5 => "squared-hinge".parse()?,
            3 | 4 => "hinge".parse()?,
            13 => LossSpec::Epsilon { epsilon: self.tube },
            _ => format!("squared-epsilon:epsilon={}", self.tube).parse()?,
        };
        let mut svm = Svm::of(self.task()).kernel(Kernel::Linear).cost(self.c).loss_spec(loss);
        svm = match self.bias {
            b if !(b > 0.0) => svm.bias(false),
            _ if self.free_bias => svm,
            b => svm.intercept_scaling(Some(b)),
        };
        if matches!(self.kind, 5 | 6) {
            svm = svm.penalty(Penalty::L1);
        }
        if self.kind == 4 {
            svm = svm.multiclass(Scheme::CrammerSinger);
        } else if self.task() == Task::Classify {
            svm = svm.multiclass(Scheme::OneVsRest);
        }
        if let Some(tol) = self.tol {
            svm = svm.tol(tol);
        }
        Ok(weighted(svm, &self.weights, known))
    }
}

pub(super) fn run(arguments: &[String], terminal: &Terminal) -> Result<Exit, ToolError> {
    let o = parse(arguments)?;
    if o.folds.is_none() {
        check_files(&[("training_set_file", &o.data)], ("model_file", &o.model))?;
    }
    let (mut data, serials) = read(&o.data)?;
    if serials.is_some() {
        return Err(ToolError::Failed("the data is a precomputed kernel, and this tool trains on features".into()));
    }
    let mut labels = labels_of(&data)?;
    if o.task() == Task::Classify {
        labels.iter_mut().for_each(|label| *label = label.trunc());
        data.targets = Targets::Real(labels.clone());
    }
    let whole: Vec<i64> = labels.iter().map(|label| *label as i64).collect();
    let order = classes(&whole).0;
    warn_of_unknown(&o.weights, &order, terminal);
    let svm = o.svm(&order)?.cancel(signal::listen()?);
    if let Some(folds) = o.folds {
        return cross_validate(&o, &svm, &data, &labels, folds, terminal);
    }
    if o.task() == Task::Classify && order.len() == 1 {
        return Err(ToolError::Failed("the training data has only one class: no model written".into()));
    }
    let fit = svm.fit(&data)?;
    let text = model_text(&o, fit.model(), &order)?;
    margrave::io::write_atomic(Path::new(&o.model), |out| out.write_all(text.as_bytes()))?;
    if !o.quiet {
        let (iterations, primal) = (fit.totals().iterations, fit.totals().primal);
        terminal.write(&format!("optimization finished, #iter = {iterations}\nObjective value = {primal:.6}\n"))?;
    }
    warn_of_gap(&fit, terminal);
    Ok(Exit::from(fit.status()))
}

/// The model file of LIBLINEAR: one line of weights per feature, one column per class, or one for two classes.
fn model_text(o: &Options, model: &Model, order: &[i64]) -> Result<String, ToolError> {
    let f = &model.expansion;
    let weights = f.weights().ok_or_else(|| ToolError::Failed("ERROR: the model has no weights".into()))?;
    let k = f.outputs();
    // For each column of the file, a column of the model and a sign. A score is > 0 for our second label, and in the
    // file for the first.
    let place = |label: &i64| model.labels.iter().position(|known| *known == Label::Number(*label as f64)).unwrap_or(0);
    let columns: Vec<(usize, f64)> = match (o.task(), k) {
        (Task::Classify, 1) => {
            let sign = if place(&order[0]) == 1 { 1.0 } else { -1.0 };
            // Crammer and Singer's file has a column per class even for two.
            if o.kind == 4 { vec![(0, 0.5 * sign), (0, -0.5 * sign)] } else { vec![(0, sign)] }
        }
        (Task::Classify, _) => order.iter().map(|label| (place(label), 1.0)).collect(),
        _ => vec![(0, 1.0)],
    };
    let mut text = format!("solver_type {}\nnr_class {}\n", o.name(), order.len().max(2));
    if o.task() == Task::Classify {
        text += "label";
        order.iter().for_each(|label| {
            let _ = write!(text, " {label}");
        });
        text.push('\n');
    } else {
        text = format!("solver_type {}\nnr_class 2\n", o.name());
    }
    let _ = write!(text, "nr_feature {}\nbias {}\nw\n", f.width(), c_number(o.bias, 17));
    let mut line = |at: &dyn Fn(usize) -> f64| {
        columns.iter().for_each(|(column, sign)| {
            let _ = write!(text, "{} ", c_number(sign * at(*column), 17));
        });
        text.push('\n');
    };
    (0..f.width()).for_each(|feature| line(&|column| weights[feature * k + column]));
    if o.bias >= 0.0 {
        // The weight of a constant feature with the value of -B; a constant 0 has none.
        line(&|column| if o.bias > 0.0 { f.bias()[column] / o.bias } else { 0.0 });
    }
    Ok(text)
}

fn cross_validate(
    o: &Options,
    svm: &Svm,
    data: &Dataset,
    labels: &[f64],
    folds: usize,
    terminal: &Terminal,
) -> Result<Exit, ToolError> {
    let n = data.len();
    if folds > n {
        terminal.plain_error("WARNING: # folds > # data. Will use # folds = # data instead");
    }
    let folds = folds.min(n);
    // LIBLINEAR's folds are not stratified.
    let (rows, starts) = split(n, folds, None);
    let mut predicted = vec![0.0; n];
    let control = Control::unlimited(Threads::default());
    for fold in 0..folds {
        let held = &rows[starts[fold]..starts[fold + 1]];
        let kept: Vec<u32> = rows[..starts[fold]].iter().chain(&rows[starts[fold + 1]..]).copied().collect();
        if held.is_empty() || kept.is_empty() {
            continue;
        }
        let first = labels[kept[0] as usize];
        if o.task() == Task::Classify && kept.iter().all(|&row| labels[row as usize] == first) {
            held.iter().for_each(|&row| predicted[row as usize] = first);
            continue;
        }
        let targets = Targets::Real(kept.iter().map(|&row| labels[row as usize]).collect());
        let fit = svm.fit(&Dataset::new(data.points.gather(&kept), targets)?)?;
        match fit.model().predict(&data.points.gather(held), Precision::Double, &control)? {
            Prediction::Labels(found) => {
                for (&row, code) in held.iter().zip(found) {
                    if let Label::Number(v) = fit.model().labels[code as usize] {
                        predicted[row as usize] = v;
                    }
                }
            }
            Prediction::Values(values) => held.iter().zip(values).for_each(|(&row, v)| predicted[row as usize] = v),
            Prediction::Inside(_) => {}
        }
    }
    if o.task() == Task::Regress {
        let (error, correlation) = regression_quality(labels, &predicted);
        terminal.write(&format!(
            "Cross Validation Mean squared error = {}\nCross Validation Squared correlation coefficient = {}\n",
            c_number(error, 6),
            c_number(correlation, 6)
        ))?;
    } else {
        let right = labels.iter().zip(&predicted).filter(|(a, b)| a == b).count();
        terminal.write(&format!("Cross Validation Accuracy = {}%\n", c_number(100.0 * right as f64 / n as f64, 6)))?;
    }
    Ok(Exit::Done)
}
