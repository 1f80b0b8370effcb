//! `margrave svm-train`.

use std::fmt::Write as _;
use std::path::Path;

use margrave::engine::data::{Dataset, Label};
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, pair_output};
use margrave::engine::problem::Task;
use margrave::io::c_number;
use margrave::io::model::LibsvmModel;
use margrave::loss::LossSpec;
use margrave::{Budget, Control, Fit, Kernel, Probability, ProbabilityRule, SolverName, Svm, Targets, Threads};

use super::folds::{classes, split};
use super::shared::{check_weights, fold_count, training_files, warn_of_gap, warn_of_unknown, weighted};
use super::{ToolError, check_files, number, read, square};
use crate::failure::Exit;
use crate::signal;
use crate::terminal::Terminal;

pub(super) const USAGE: &str = "\
Usage: svm-train [options] training_set_file [model_file]
options:
-s svm_type : set type of SVM (default 0)
	0 -- C-SVC		(multi-class classification)
	1 -- nu-SVC		(multi-class classification)
	2 -- one-class SVM
	3 -- epsilon-SVR	(regression)
	4 -- nu-SVR		(regression)
-t kernel_type : set type of kernel function (default 2)
	0 -- linear: u'*v
	1 -- polynomial: (gamma*u'*v + coef0)^degree
	2 -- radial basis function: exp(-gamma*|u-v|^2)
	3 -- sigmoid: tanh(gamma*u'*v + coef0)
	4 -- precomputed kernel (kernel values in training_set_file)
-d degree : set degree in kernel function (default 3)
-g gamma : set gamma in kernel function (default 1/num_features)
-r coef0 : set coef0 in kernel function (default 0)
-c cost : set the parameter C of C-SVC, epsilon-SVR, and nu-SVR (default 1)
-n nu : set the parameter nu of nu-SVC, one-class SVM, and nu-SVR (default 0.5)
-p epsilon : set the epsilon in loss function of epsilon-SVR (default 0.1)
-m cachesize : set cache memory size in MB (default 100)
-e epsilon : set tolerance of termination criterion (default 0.001)
-h shrinking : whether to use the shrinking heuristics, 0 or 1 (default 1)
-b probability_estimates : whether to train a model for probability estimates, 0 or 1 (default 0)
-wi weight : set the parameter C of class i to weight*C, for C-SVC (default 1)
-v n: n-fold cross validation mode
-q : quiet mode (no outputs)
";

/// The options of `svm-train`.
struct Options {
    kind: u8,
    kernel: u8,
    degree: u32,
    gamma: f64,
    coef0: f64,
    c: f64,
    nu: f64,
    tube: f64,
    tol: f64,
    memory: f64,
    probability: bool,
    weights: Vec<(i64, f64)>,
    folds: Option<usize>,
    quiet: bool,
    data: String,
    model: String,
}

fn parse(arguments: &[String]) -> Result<Options, ToolError> {
    let mut o = Options {
        kind: 0,
        kernel: 2,
        degree: 3,
        gamma: 0.0,
        coef0: 0.0,
        c: 1.0,
        nu: 0.5,
        tube: 0.1,
        tol: 1e-3,
        memory: 100.0,
        probability: false,
        weights: Vec::new(),
        folds: None,
        quiet: false,
        data: String::new(),
        model: String::new(),
    };
    let mut at = 0;
    while at < arguments.len() && arguments[at].starts_with('-') {
        let name = arguments[at].as_str();
        let letter = name.chars().nth(1).unwrap_or(' ');
        at += 1;
        if letter == 'q' {
            o.quiet = true;
            continue;
        }
        let value = arguments.get(at).ok_or_else(|| ToolError::Usage(String::new()))?;
        at += 1;
        match letter {
            's' => o.kind = number(name, value)?,
            't' => o.kernel = number(name, value)?,
            'd' => o.degree = number(name, value)?,
            'g' => o.gamma = number(name, value)?,
            'r' => o.coef0 = number(name, value)?,
            'n' => o.nu = number(name, value)?,
            'm' => o.memory = number(name, value)?,
            'c' => o.c = number(name, value)?,
            'e' => o.tol = number(name, value)?,
            'p' => o.tube = number(name, value)?,
            'h' => {
                number::<u8>(name, value)?;
            }
            'b' => o.probability = number::<u8>(name, value)? != 0,
            'v' => o.folds = Some(fold_count(value)?),
            'w' => o.weights.push((number(name, &name[2..])?, number(name, value)?)),
            _ => return Err(ToolError::Usage(format!("Unknown option: -{letter}"))),
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
        o if o.kind > 4 => wrong("unknown svm type"),
        o if o.kernel > 4 => wrong("unknown kernel type"),
        o if matches!(o.kernel, 1..=3) && o.gamma < 0.0 => wrong("gamma < 0"),
        o if o.memory <= 0.0 => wrong("cache_size <= 0"),
        o if o.tol <= 0.0 => wrong("eps <= 0"),
        o if matches!(o.kind, 0 | 3 | 4) && o.c <= 0.0 => wrong("C <= 0"),
        o if matches!(o.kind, 1 | 2 | 4) && !(o.nu > 0.0 && o.nu <= 1.0) => wrong("nu <= 0 or nu > 1"),
        o if o.kind == 3 && o.tube < 0.0 => wrong("p < 0"),
        o => check_weights(&o.weights),
    }
}

impl Options {
    fn task(&self) -> Task {
        match self.kind {
            0 | 1 => Task::Classify,
            2 => Task::Novelty,
            _ => Task::Regress,
        }
    }

    fn kernel(&self, features: usize) -> Kernel {
        let gamma = if self.gamma > 0.0 { self.gamma } else { 1.0 / features.max(1) as f64 };
        match self.kernel {
            0 => Kernel::Linear,
            1 => Kernel::Poly { gamma, coef0: self.coef0, degree: self.degree },
            2 => Kernel::Rbf { gamma },
            3 => Kernel::Sigmoid { gamma, coef0: self.coef0 },
            _ => Kernel::Precomputed,
        }
    }

    fn svm(&self, features: usize, known: &[i64]) -> Svm {
        // The model file needs support vectors, which the linear solver does not keep.
        let exact = SolverName::Decomposition;
        let mut svm = Svm::of(self.task()).kernel(self.kernel(features)).cost(self.c).tol(self.tol).solver(exact);
        // LIBSVM's default of 100 MB is small today; memory that is not needed is not used.
        let memory = ((self.memory * 1e6) as u64).max(1 << 30);
        svm = svm.budget(Budget { memory, ..Budget::default() });
        match self.kind {
            1 | 2 | 4 => svm = svm.nu(self.nu),
            3 => svm = svm.loss_spec(LossSpec::Epsilon { epsilon: self.tube }),
            _ => svm = weighted(svm, &self.weights, known),
        }
        if self.probability && self.kind != 2 {
            // LIBSVM's sigmoid has a free offset and one slope.
            svm = svm.probability(Probability::LeaveOneOut).probability_rule(ProbabilityRule::Free);
        }
        svm
    }
}

/// The labels as numbers, as LIBSVM reads them.
pub(super) fn labels_of(data: &Dataset) -> Result<Vec<f64>, ToolError> {
    match &data.targets {
        Targets::Real(values) => Ok(values.clone()),
        _ => Err(ToolError::Failed("Wrong input format: the labels are not numbers".into())),
    }
}

pub(super) fn run(arguments: &[String], terminal: &Terminal) -> Result<Exit, ToolError> {
    let o = parse(arguments)?;
    if o.folds.is_none() {
        check_files(&[("training_set_file", &o.data)], ("model_file", &o.model))?;
    }
    let (mut data, serials) = read(&o.data)?;
    let mut labels = labels_of(&data)?;
    if o.task() == Task::Classify {
        labels.iter_mut().for_each(|label| *label = label.trunc());
        data.targets = Targets::Real(labels.clone());
    }
    if (o.kernel == 4) != serials.is_some() {
        return Err(ToolError::Failed(match serials {
            None => "Wrong input format: first column must be 0:sample_serial_number".into(),
            Some(_) => "the data is a precomputed kernel: use -t 4".into(),
        }));
    }
    let whole: Vec<i64> = labels.iter().map(|label| *label as i64).collect();
    let (order, codes) = classes(&whole);
    warn_of_unknown(&o.weights, &order, terminal);
    let features = data.points.dims();
    let svm = o.svm(features, &order).cancel(signal::listen()?);
    if let Some(folds) = o.folds {
        return cross_validate(&o, &svm, &data, serials.as_deref(), &labels, &codes, folds, terminal);
    }
    if o.task() == Task::Classify && order.len() == 1 {
        return Err(ToolError::Failed(
            "WARNING: training data in only one class. See README for details.\none class cannot be separated: no model written"
                .into(),
        ));
    }
    if let Some(serials) = &serials {
        let all: Vec<u32> = (0..data.len() as u32).collect();
        data.points = square(&data.points, serials, &all)?;
    }
    let fit = svm.fit(&data)?;
    let names: Vec<Label> = order.iter().map(|label| Label::Number(*label as f64)).collect();
    let mut model = LibsvmModel::from_model(fit.model(), (o.task() == Task::Classify).then_some(names.as_slice()))?;
    if let Some(serials) = &serials {
        model.serials.iter_mut().for_each(|serial| *serial = serials[*serial as usize - 1]);
    }
    if !o.quiet {
        terminal.write(&training_log(&o, &fit, &model, &codes))?;
    }
    let text = model.to_text();
    margrave::io::write_atomic(Path::new(&o.model), |out| out.write_all(text.as_bytes()))?;
    warn_of_gap(&fit, terminal);
    Ok(Exit::from(fit.status()))
}

/// What LIBSVM prints while it trains, one block per binary model.
fn training_log(o: &Options, fit: &Fit, model: &LibsvmModel, codes: &[usize]) -> String {
    let mut text = String::new();
    let classes = model.labels.len();
    let of_class = |class: usize| codes.iter().filter(|&&code| code == class).count();
    let machines: Vec<(usize, usize, f64)> = match classes {
        0 => vec![(0, codes.len(), model.rho[0])],
        2 => vec![(0, codes.len(), model.rho[0])],
        _ => {
            let ours = |label: &Label| fit.model().labels.iter().position(|known| known == label).unwrap_or(0);
            margrave::engine::model::pairs(classes)
                .zip(&model.rho)
                .map(|((i, j), rho)| {
                    let (a, b) = (ours(&model.labels[i]), ours(&model.labels[j]));
                    (pair_output(classes, a.min(b), a.max(b)), of_class(i) + of_class(j), *rho)
                })
                .collect()
        }
    };
    for (machine, rows, rho) in machines {
        let record = &fit.records()[machine];
        let alpha: f64 = fit.model().expansion.column(machine).iter().map(|c| c.abs()).sum();
        let dual = record.certificate.dual().unwrap_or(0.0);
        let mut objective = -dual;
        let _ = writeln!(text, "*\noptimization finished, #iter = {}", record.iterations);
        let _ = match (o.kind, record.tube) {
            (0, _) if o.weights.is_empty() => writeln!(text, "nu = {:.6}", alpha / (o.c * rows as f64)),
            (1, _) => {
                objective /= record.rho * record.rho;
                writeln!(text, "C = {:.6}", 1.0 / record.rho)
            }
            (3, _) => writeln!(text, "nu = {:.6}", alpha / (o.c * rows as f64)),
            (4, Some(tube)) => writeln!(text, "epsilon = {tube:.6}"),
            _ => Ok(()),
        };
        let _ = writeln!(text, "obj = {objective:.6}, rho = {rho:.6}");
        let _ = writeln!(text, "nSV = {}, nBSV = {}", record.support_vectors, record.bounded);
    }
    if o.task() == Task::Classify {
        let _ = writeln!(text, "Total nSV = {}", model.centres.len());
    }
    text
}

fn cross_validate(
    o: &Options,
    svm: &Svm,
    data: &Dataset,
    serials: Option<&[u32]>,
    labels: &[f64],
    codes: &[usize],
    folds: usize,
    terminal: &Terminal,
) -> Result<Exit, ToolError> {
    let n = data.len();
    let folds = if folds > n {
        terminal.plain_error(
            "WARNING: # folds > # data. Will use # folds = # data instead (i.e., leave-one-out cross validation)",
        );
        n
    } else {
        folds
    };
    let (rows, starts) = split(n, folds, (o.task() == Task::Classify).then_some(codes));
    let mut predicted = vec![0.0; n];
    let control = Control::unlimited(Threads::default());
    for fold in 0..folds {
        let (from, to) = (starts[fold], starts[fold + 1]);
        if from == to {
            continue;
        }
        let kept: Vec<u32> = rows[..from].iter().chain(&rows[to..]).copied().collect();
        let held = &rows[from..to];
        let (points, test) = match serials {
            None => (data.points.gather(&kept), data.points.gather(held)),
            Some(serials) => {
                let both: Vec<u32> = kept.iter().chain(held).copied().collect();
                let all = square(&data.points, serials, &both)?;
                let part = square(&data.points, serials, &kept)?;
                // Rows of the held-out samples, columns of the training samples.
                let mut values = Vec::with_capacity(held.len() * kept.len());
                let mut row = vec![0.0; both.len()];
                for at in kept.len()..both.len() {
                    all.copy_row(at, &mut row);
                    values.extend_from_slice(&row[..kept.len()]);
                }
                (part, margrave::Points::dense_f64(held.len(), kept.len(), values)?)
            }
        };
        let targets = Targets::Real(kept.iter().map(|&row| labels[row as usize]).collect());
        let first = labels[kept[0] as usize];
        let one_class = kept.iter().all(|&row| labels[row as usize] == first);
        if o.task() == Task::Classify && one_class {
            held.iter().for_each(|&row| predicted[row as usize] = first);
            continue;
        }
        let fit = svm.fit(&Dataset::new(points, targets)?)?;
        let model = reordered(&fit, &kept, labels)?;
        match model.predict(&test, Precision::Double, &control)? {
            Prediction::Labels(found) => {
                for (&row, code) in held.iter().zip(found) {
                    if let Label::Number(v) = model.labels[code as usize] {
                        predicted[row as usize] = v;
                    }
                }
            }
            Prediction::Values(values) => held.iter().zip(values).for_each(|(&row, v)| predicted[row as usize] = v),
            Prediction::Inside(inside) => {
                held.iter().zip(inside).for_each(|(&row, i)| predicted[row as usize] = if i { 1.0 } else { -1.0 });
            }
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

/// The model with its labels in LIBSVM's order, so that ties between votes end the same way.
fn reordered(fit: &Fit, rows: &[u32], labels: &[f64]) -> Result<margrave::Model, ToolError> {
    let model = fit.model();
    if model.task != Task::Classify || model.labels.len() == 2 {
        return Ok(model.clone());
    }
    let whole: Vec<i64> = rows.iter().map(|&row| labels[row as usize] as i64).collect();
    let names: Vec<Label> = classes(&whole).0.iter().map(|label| Label::Number(*label as f64)).collect();
    let libsvm = LibsvmModel::from_model(model, Some(&names))?;
    let width = model.expansion.width();
    let mut training = libsvm.training(Some(width));
    training.width = width;
    Ok(libsvm.to_model(training)?)
}

/// Mean squared error and squared correlation, as LIBSVM computes them.
pub(super) fn regression_quality(truth: &[f64], predicted: &[f64]) -> (f64, f64) {
    let n = truth.len() as f64;
    let (mut error, mut sy, mut sp, mut syy, mut spp, mut syp) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for (y, p) in truth.iter().zip(predicted) {
        error += (p - y) * (p - y);
        sy += y;
        sp += p;
        syy += y * y;
        spp += p * p;
        syp += y * p;
    }
    let both = n * syp - sp * sy;
    (error / n, both * both / ((n * spp - sp * sp) * (n * syy - sy * sy)))
}
