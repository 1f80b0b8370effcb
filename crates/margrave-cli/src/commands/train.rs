//! `margrave train`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use margrave::certificate::Certificate;
use margrave::data::Label;
use margrave::io::{Loaded, StreamedRows};
use margrave::model::{Record, Scheme};
use margrave::observe::{Both, Observer, Recorder};
use margrave::problem::{Formulation, Penalty, Task};
use margrave::train::Met;
use margrave::{Cancel, Fit, Model, SolverName, Status, Svm, Targets, Threads};
use serde_json::{Map, Value, json};

use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::memory;
use crate::models;
use crate::options::data::DataOptions;
use crate::options::kernel::{KernelName, KernelOptions, describe};
use crate::options::train::{MachineOptions, SolverOptions};
use crate::outputs::{self, Input};
use crate::progress::Progress;
use crate::report::{self, Material};
use crate::signal;
use crate::terminal::{Style, Terminal};
use crate::trace::Trace;

const EXAMPLES: &str = "\
Examples:
  margrave train heart.svm                                   classify: RBF kernel, hinge loss
  margrave train heart.svm -o heart.model -C 10 --gamma 0.1
  margrave train houses.csv --task regress --scale standard --epsilon 0.05
  margrave train robot.csv --task regress --loss square --target x,y,z   several numbers at once
  margrave train heart.svm --loss logistic                   any loss: 'margrave losses' lists them
  margrave train heart.svm --loss sigmoid:eta=2 --anneal 3   counts errors; not convex, so no gap
  margrave train iris.csv --task novelty --nu 0.1 --no-target
  margrave train news.svm --kernel linear --penalty l1 --loss squared-hinge
  margrave train big.svm.gz --max-seconds 60 -o big.model    exit code 3 if not optimal by then
  margrave train big.svm.gz --resume big.model -o big.model  go on from there

Exit codes: 0 optimal by the proof, 2 bad usage or input, 3 not optimal (stopped early, or the proof fell short) and 130 Ctrl-C, with
the best model so far.";

/// Arguments of `train`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Train {
    #[command(flatten)]
    data: DataOptions,
    /// Model file to write [default: the data's name with .model, in this folder]
    #[arg(long, short, value_name = "MODEL")]
    output: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    kernel: KernelOptions,
    #[command(flatten)]
    solver: SolverOptions,
    /// Start from this model, trained on the same data
    #[arg(long, value_name = "MODEL", help_heading = "Solver")]
    resume: Option<PathBuf>,
    /// Write every report of the solver to this file, one JSON object a line
    #[arg(long, value_name = "FILE.jsonl", help_heading = "Output")]
    trace: Option<PathBuf>,
    /// Write a report of the training
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<PathBuf>,
}

impl Train {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        self.machine.check()?;
        let output = self.output_path()?;
        self.check_files(&output)?;
        let resumed = self.resume.as_ref().map(margrave::io::model::load).transpose()?;
        let threads = common.threads();
        let streamed = self.stream(&output, threads.count())?;
        let (loaded, rows) = match streamed {
            Some((loaded, rows)) => (loaded, Some(rows)),
            None => (self.load(threads.count())?, None),
        };
        let load_seconds = begun.elapsed().as_secs_f64();
        let flag = signal::listen()?;
        let training = Training {
            data: &self.data,
            machine: &self.machine,
            kernel: &self.kernel,
            solver: &self.solver,
            seed: common.seed,
        };
        let mut svm = training.svm(&loaded, threads, flag)?;
        if let Some(model) = resumed {
            svm = svm.start(model);
        }

        let mut trace = self.trace.as_deref().map(Trace::create).transpose()?;
        let mut progress = Progress::new(terminal);
        let mut history = Recorder::default();
        let mut shown = Both(&mut progress, &mut history);
        let mut both;
        let observer: &mut dyn Observer = match &mut trace {
            Some(trace) => {
                both = Both(&mut shown, trace);
                &mut both
            }
            None => &mut shown,
        };
        let fit = match &rows {
            Some(rows) => svm.fit_streamed(&loaded.data, rows, observer)?,
            None => svm.fit_observed(&loaded.data, observer)?,
        };
        drop(progress);
        let lost = trace.and_then(Trace::close);
        fit.save(&output)?;
        if let Some(path) = &self.report {
            let rows =
                summary_rows(&fit, &self.data.name(), &output.display().to_string(), begun.elapsed().as_secs_f64());
            let material = Material {
                fit: &fit,
                data: &loaded.data,
                name: &self.data.name(),
                history: &history,
                command: &command_line(),
                summary: rows,
            };
            let page = report::page(&material)?;
            margrave::io::write_atomic(path, |out| out.write_all(page.as_bytes()))?;
            terminal.note(&format!("report written to {}", path.display()));
        }
        if let Some(problem) = lost {
            return Err(Failure::new(format!("{problem}; the model was written to {}", output.display())));
        }
        let total = begun.elapsed().as_secs_f64();
        terminal.say(&summary(terminal, &fit, &self.data.name(), &output.display().to_string(), total))?;
        terminal.object(&object(&fit, &loaded, &output.display().to_string(), load_seconds, total))?;
        Ok(Exit::from(fit.status()))
    }

    fn check_files(&self, output: &Path) -> Result<(), Failure> {
        if self.machine.svdd && self.kernel.is_precomputed() {
            return Err(Failure::with_hint(
                "--svdd with a precomputed kernel cannot predict: the distance to the centre needs k(x, x) of new points",
                "leave --svdd out: the one-class machine needs rows of the matrix only",
            ));
        }
        let [data, targets] = self.data.inputs();
        let resume = Input::new("--resume", self.resume.as_deref()).in_place("-o");
        let outputs = [("-o", Some(output)), ("--trace", self.trace.as_deref()), ("--report", self.report.as_deref())];
        outputs::check(&[data, targets, resume], &outputs)
    }

    fn load(&self, threads: usize) -> Result<Loaded, Failure> {
        if self.kernel.is_precomputed() && self.machine.task == Some(Task::Novelty) {
            self.data.load_matrix(threads)
        } else {
            self.data.load_within(self.solver.memory(), threads)
        }
    }

    /// Rows read in blocks, where a linear machine is trained on a file larger than the memory it may take.
    fn stream(&self, output: &Path, threads: usize) -> Result<Option<(Loaded, StreamedRows)>, Failure> {
        let linear = self.kernel.kernel == KernelName::Linear
            && matches!(self.solver.solver, SolverName::Auto | SolverName::Linear)
            && self.machine.nu.is_none()
            && self.machine.task != Some(Task::Novelty)
            && self.machine.scale.0.is_none()
            && self.machine.probability.is_none()
            && self.machine.penalty == Penalty::L2
            && self.machine.multiclass.is_none()
            && self.resume.is_none()
            && self.report.is_none();
        if !linear {
            return Ok(None);
        }
        let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.data.stream(self.solver.memory(), folder, threads)
    }

    /// `heart.svm.gz` becomes `heart.model`, here.
    fn output_path(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = &self.output {
            return Ok(path.clone());
        }
        if self.data.name() == "-" {
            return Err(Failure::new("the data comes from stdin: name the model with -o MODEL"));
        }
        let name = self.data.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
        Ok(PathBuf::from(format!("{stem}.model")))
    }
}

/// The options that say what to train: those of `train` and `tune`.
pub(crate) struct Training<'a> {
    pub(crate) data: &'a DataOptions,
    pub(crate) machine: &'a MachineOptions,
    pub(crate) kernel: &'a KernelOptions,
    pub(crate) solver: &'a SolverOptions,
    pub(crate) seed: u64,
}

impl Training<'_> {
    /// The machine they make for the data.
    pub(crate) fn svm(&self, loaded: &Loaded, threads: Threads, flag: Cancel) -> Result<Svm, Failure> {
        let task = self.task(loaded)?;
        let mut svm = Svm::of(task)
            .bias(!self.machine.no_bias)
            .svdd(self.machine.svdd)
            .penalty(self.machine.penalty)
            .intercept_scaling(self.machine.intercept_scaling)
            .scale(self.machine.scale.0)
            .solver(self.solver.solver)
            .anneal(self.solver.anneal)
            .compact(self.solver.compact)
            .budget(self.solver.budget())
            .threads(threads)
            .seed(self.seed)
            .cancel(flag)
            .schema(&loaded.schema)?;
        if let Some(stop) = self.solver.stop() {
            svm = svm.stop(stop);
        }
        svm = self.kernel.choose(svm);
        if let Some(scheme) = self.machine.multiclass {
            svm = svm.multiclass(scheme);
        }
        svm = match self.machine.lambda {
            Some(lambda) => svm.lambda(lambda),
            None => svm.cost(self.machine.cost),
        };
        if let Some(loss) = self.machine.loss {
            svm = svm.loss_spec(loss);
        }
        if let Some(epsilon) = self.machine.epsilon {
            svm = svm.epsilon(epsilon);
        }
        if let Some(nu) = self.machine.nu {
            svm = svm.nu(nu);
        }
        if let Some(from) = self.machine.probability {
            svm = svm.probability(from);
        }
        if let Some(weight) = &self.machine.class_weight {
            if task != Task::Classify {
                return Err(Failure::new(format!("--class-weight is for classification, and the task is {task}")));
            }
            svm = svm.class_weight(weight.clone());
        }
        Ok(svm)
    }

    /// The task asked for, or the one the target tells.
    fn task(&self, loaded: &Loaded) -> Result<Task, Failure> {
        if let Some(task) = self.machine.task {
            return Ok(task);
        }
        match &loaded.data.targets {
            Targets::None => Err(Failure::with_hint(
                format!("{} has no target", self.data.name()),
                "name a column with --target, or use --task novelty, which needs none",
            )),
            Targets::Several { outputs, .. } => Err(Failure::with_hint(
                format!("{} has {outputs} targets, and classes are one", self.data.name()),
                "add --task regress --loss square, or choose one column with --target",
            )),
            targets if !targets.looks_like_classes() => Err(Failure::with_hint(
                format!("the target of {} has fractions, so it is not classes", self.data.name()),
                "add --task regress, or choose another column with --target",
            )),
            _ => Ok(Task::Classify),
        }
    }
}

/// The machine in a few words.
pub(crate) fn machine_name(task: Task, formulation: &Formulation, loss: Option<String>) -> String {
    let number = |v: f64| format::number(v, 4);
    match (task, *formulation) {
        (_, Formulation::Cost { c }) => {
            format!("{task}, {} loss, C = {}", loss.unwrap_or_else(|| "own".into()), number(c))
        }
        (Task::Regress, Formulation::Nu { nu, c }) => format!("ν-regression, ν = {}, C = {}", number(nu), number(c)),
        (_, Formulation::Nu { nu, .. }) => format!("ν-classification, ν = {}", number(nu)),
        (_, Formulation::OneClass { nu }) => format!("one-class, ν = {}", number(nu)),
        (_, Formulation::Svdd { nu }) => format!("smallest ball, ν = {}", number(nu)),
    }
}

/// How a training ended, for people.
fn ended(fit: &Fit) -> String {
    let (totals, asked) = (fit.totals(), fit.asked());
    let short = || match (totals.known, totals.relative_gap, asked.gap, asked.tol) {
        (false, ..) => "its proof was not finished".to_owned(),
        (_, Some(gap), Some(most), _) if !(gap <= most) => {
            format!("a relative gap of {}, asked for {}", format::number(gap, 2), format::number(most, 2))
        }
        (_, _, _, Some(tol)) => {
            format!("a violation of {}, asked for {}", format::number(totals.violation, 2), format::number(tol, 2))
        }
        _ => "short of what was asked".to_owned(),
    };
    match fit.status() {
        Status::Optimal if totals.dual.is_none() => "stationary".to_owned(),
        Status::Optimal if asked.met(fit.certificate()) == Met::WithinRounding => {
            "optimal, as far as double precision can tell".to_owned()
        }
        Status::Optimal => "optimal".to_owned(),
        Status::Inaccurate => format!("inaccurate: the solver was done, but the proof shows {}", short()),
        Status::TimeLimit => format!("stopped by the time limit at {}", short()),
        Status::IterationLimit => format!("stopped by the iteration limit at {}", short()),
        Status::Stalled => format!("stalled: no further progress in double precision; {}", short()),
        Status::Interrupted => "interrupted".to_owned(),
    }
}

/// The relative gap with what is to be known about it.
pub(crate) fn gap_words(certificate: &Certificate) -> String {
    let Some(o) = certificate.optimality() else { return "not checked".to_owned() };
    let size = o.primal().abs().max(o.dual().abs());
    let mut words = format::number(o.relative_gap(), 2);
    if o.rounding() > 0.1 * o.gap() && size > 0.0 {
        words += &format!(" (rounding {})", format::number(o.rounding() / size, 2));
    }
    words += " relative, proven";
    if !o.definite() {
        words += " if the kernel matrix is positive semi-definite";
    }
    words
}

/// What was typed, quoted where a shell would need it.
pub(crate) fn command_line() -> String {
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_=.,:/+^*".contains(c));
    let quote = |word: String| if plain(&word) { word } else { format!("'{}'", word.replace('\'', "'\\''")) };
    let words = std::env::args_os().skip(1).map(|word| quote(word.to_string_lossy().into_owned()));
    std::iter::once("margrave".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

pub(crate) fn summary(terminal: &Terminal, fit: &Fit, data: &str, path: &str, total: f64) -> String {
    let style = if fit.status() == Status::Optimal { Style::Good } else { Style::Warn };
    let rows = summary_rows(fit, data, path, total);
    format!("{}\n{}", terminal.paint(style, &ended(fit)), format::table(terminal, &rows))
}

/// The lines of the summary.
pub(crate) fn summary_rows(fit: &Fit, data: &str, path: &str, total: f64) -> Vec<(&'static str, String)> {
    let (model, totals) = (fit.model(), fit.totals());
    let features = if model.expansion.width() == 1 { "feature" } else { "features" };
    let mut rows = vec![
        (
            "data",
            format!(
                "{data}, {} rows, {} {features}",
                format::count(model.n as u64),
                format::count(model.expansion.width() as u64)
            ),
        ),
        ("machine", machine_name(model.task, &model.formulation, model.loss.map(|l| l.to_string()))),
        ("kernel", describe(model.expansion.kernel())),
        ("solver", format!("{} ({})", model.solver, fit.reason())),
    ];
    if model.task == Task::Classify && model.scheme != Scheme::One {
        rows.insert(1, ("classes", format!("{}: {}", model.labels.len(), some_labels(&model.labels))));
    }
    if model.scheme == Scheme::Outputs {
        let names = models::output_names(model);
        let labels: Vec<Label> = names.into_iter().map(Label::Text).collect();
        rows.insert(1, ("targets", format!("{}: {}", labels.len(), some_labels(&labels))));
    }
    let several = if fit.records().len() > 1 { ", the worst machine" } else { "" };
    match (totals.dual, totals.relative_gap) {
        _ if !totals.known => rows.push(("gap", "not checked: the proof was not finished".to_owned())),
        (Some(dual), Some(_)) => {
            rows.push(("gap", format!("{}{several}", gap_words(fit.certificate()))));
            rows.push(("violation", format::number(totals.violation, 2)));
            rows.push((
                "objective",
                format!("{} ≥ best ≥ {}", format::number(totals.primal, 7), format::number(dual, 7)),
            ));
        }
        _ => {
            rows.push(("objective", format!("{}; not convex, so no gap", format::number(totals.primal, 7))));
            rows.push(("stationarity", format::number(totals.violation, 2)));
            if let [Record { certificate: Certificate::Stationarity(s), .. }] = fit.records()
                && let Some(start) = s.start_objective()
            {
                rows.push(("convex start", format!("{} under the same loss", format::number(start, 7))));
            }
        }
    }
    if let Some(compact) = fit.compacted() {
        rows.push((
            "compact",
            format!(
                "{} rows dropped: no score has changed by more than {}·√k(x, x), on the training data by {}",
                format::count(compact.dropped as u64),
                format::number(compact.norm, 3),
                format::number(compact.change, 3)
            ),
        ));
    }
    if model.penalty == Penalty::L1 {
        let all = model.expansion.width() * model.expansion.outputs();
        let kept = nonzero_weights(model).unwrap_or(all);
        rows.push(("weights", format!("{} of {} are not 0", format::count(kept as u64), format::count(all as u64))));
    }
    let bounded = match model.scheme {
        Scheme::One => format!(", {} at their bound", format::count(totals.bounded as u64)),
        _ => String::new(),
    };
    rows.push((
        "support vectors",
        format!("{} of {}{bounded}", format::count(totals.support_vectors as u64), format::count(model.n as u64)),
    ));
    rows.push(match model.task {
        Task::Classify => ("training error", format!("{} %", format::number(100.0 * fit.train_error(), 3))),
        Task::Regress => ("training error", format!("{} mean square", format::number(fit.train_error(), 4))),
        Task::Novelty => {
            ("outside", format!("{} % of the training data", format::number(100.0 * fit.train_error(), 3)))
        }
    });
    rows.push(("time", format!("{} training, {} in all", format::duration(totals.seconds), format::duration(total))));
    rows.push(("model", path.to_owned()));
    rows
}

/// The keys of a certificate as `train` and `verify` print them.
pub(crate) fn certificate_keys(certificate: &Certificate, into: &mut Map<String, Value>) {
    match certificate {
        Certificate::Optimality(o) => {
            into.insert("primal".into(), json!(o.primal()));
            into.insert("dual".into(), json!(o.dual()));
            into.insert("gap".into(), json!(o.gap()));
            into.insert("rounding".into(), json!(o.rounding()));
            into.insert("relative_gap".into(), json!(o.relative_gap()));
            into.insert("violation".into(), json!(o.violation()));
            into.insert("kernel_is_psd".into(), if o.definite() { json!(true) } else { Value::Null });
        }
        Certificate::Stationarity(s) => {
            into.insert("objective".into(), json!(s.objective()));
            into.insert("stationarity".into(), json!(s.stationarity()));
            into.insert("start_objective".into(), json!(s.start_objective()));
        }
        Certificate::Unknown => {
            for key in ["primal", "dual", "gap", "rounding", "relative_gap", "violation"] {
                into.insert(key.into(), Value::Null);
            }
        }
    }
}

/// The first labels, as many as fit on a line.
pub(crate) fn some_labels(labels: &[Label]) -> String {
    let mut text = String::new();
    for (at, label) in labels.iter().enumerate() {
        let next = label.to_string();
        if text.chars().count() + next.chars().count() > 60 {
            return text + ", …";
        }
        text += if at == 0 { "" } else { ", " };
        text += &next;
    }
    text
}

/// What one binary machine of several says for itself.
fn machine_object(model: &Model, at: usize) -> Value {
    let record = &model.machines[at];
    let mut object = Map::new();
    let classes = match model.scheme {
        Scheme::OneVsOne => margrave::model::pairs(model.labels.len())
            .nth(at)
            .map_or(Value::Null, |(i, j)| json!([model.labels[i], model.labels[j]])),
        Scheme::CrammerSinger => json!(model.labels),
        Scheme::One | Scheme::OneVsRest => json!([model.labels[at]]),
        Scheme::Outputs => Value::Null,
    };
    let bias = match model.scheme {
        Scheme::CrammerSinger => json!(model.expansion.bias()),
        _ => json!(model.expansion.bias()[at]),
    };
    match model.scheme {
        Scheme::Outputs => object.insert("target".into(), json!(models::output_names(model)[at])),
        _ => object.insert("classes".into(), classes),
    };
    certificate_keys(&record.certificate, &mut object);
    let rest = json!({
        "status": record.status,
        "iterations": record.iterations,
        "kernel_entries": record.kernel_entries,
        "seconds": record.seconds,
        "support_vectors": record.support_vectors,
        "bounded": record.bounded,
        "bias": bias,
    });
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    Value::Object(object)
}

/// The certificate of one machine, or the sums over several.
fn proof_keys(fit: &Fit, into: &mut Map<String, Value>) {
    if let [one] = fit.records() {
        return certificate_keys(&one.certificate, into);
    }
    let totals = fit.totals();
    match (totals.dual, totals.gap, totals.relative_gap) {
        (Some(dual), Some(gap), Some(relative)) => {
            into.insert("primal".into(), json!(totals.primal));
            into.insert("dual".into(), json!(dual));
            into.insert("gap".into(), json!(gap));
            into.insert("rounding".into(), json!(totals.rounding));
            into.insert("relative_gap".into(), json!(relative));
            into.insert("violation".into(), json!(totals.violation));
        }
        _ if !totals.known => certificate_keys(&Certificate::Unknown, into),
        _ => {
            into.insert("objective".into(), json!(totals.primal));
            into.insert("stationarity".into(), json!(totals.violation));
        }
    }
}

/// The object of a training that is part of something else.
pub(crate) fn train_object(fit: &Fit, loaded: &Loaded, path: &str) -> Value {
    object(fit, loaded, path, 0.0, fit.totals().seconds)
}

/// Weights of a linear machine that are not 0, over all its outputs.
fn nonzero_weights(model: &Model) -> Option<usize> {
    let f = &model.expansion;
    f.weights().filter(|_| f.is_weights()).map(|w| w.iter().filter(|w| **w != 0.0).count())
}

fn object(fit: &Fit, loaded: &Loaded, path: &str, load: f64, total: f64) -> Value {
    let (model, totals) = (fit.model(), fit.totals());
    let mut object = Map::new();
    proof_keys(fit, &mut object);
    let single = model.scheme == Scheme::One;
    let rest = json!({
        "task": model.task,
        "n": model.n,
        "d": model.expansion.width(),
        "format": loaded.format.name(),
        "classes": if model.task == Task::Classify { json!(model.labels) } else { Value::Null },
        "kernel": model.expansion.kernel(),
        "formulation": model.formulation,
        "loss": model.loss.map(|l| l.to_string()),
        "solver": model.solver,
        "reason": fit.reason(),
        "device": "cpu",
        "status": totals.status,
        "asked": fit.asked(),
        "iterations": totals.iterations,
        "kernel_entries": totals.kernel_entries,
        "seconds": { "load": load, "train": totals.seconds, "total": total },
        "peak_memory_bytes": memory::peak_bytes(),
        "support_vectors": totals.support_vectors,
        "bounded": totals.bounded,
        "bias": if single { json!(model.expansion.bias()[0]) } else { json!(model.expansion.bias()) },
        "penalty": model.penalty,
        "intercept_scaling": model.intercept_scaling,
        "nonzero_weights": nonzero_weights(model),
        "tube": if single { fit.record().tube } else { None },
        "calibration": model.calibration,
        "multiclass": if single || model.scheme == Scheme::Outputs { Value::Null } else { json!(model.scheme.name()) },
        "train_error": Some(fit.train_error()).filter(|e| e.is_finite()),
        "model": path,
    });
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    if let Some(compact) = fit.compacted() {
        let change = json!({ "dropped": compact.dropped, "norm": compact.norm, "score_change": compact.change });
        object.insert("compact".into(), change);
    }
    if model.scheme == Scheme::Outputs {
        object.insert("targets".into(), json!(models::output_names(model)));
    }
    if !single {
        let machines: Vec<Value> = (0..model.machines.len()).map(|at| machine_object(model, at)).collect();
        object.insert("machines".into(), json!(machines));
    }
    Value::Object(object)
}
