//! `margrave train`: its arguments and what it does with them.

mod plan;
mod remarks;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use margrave::engine::observe::{Both, Observer, Recorder};
use margrave::io::{Loaded, StreamedRows};
use margrave::{Fit, Plan, SolverName, Status, Svm};
use margrave_cuda::Chosen;
use serde_json::json;

pub(crate) use self::plan::Training;
pub(crate) use self::remarks::learns_nothing;
use crate::cli::Common;
use crate::evaluate::Evaluation;
use crate::explain;
use crate::failure::{Exit, Failure, Outcome};
use crate::memory;
use crate::options::data::DataOptions;
use crate::options::device;
use crate::options::kernel::KernelOptions;
use crate::options::table::TableOptions;
use crate::options::train::{ApproxOptions, ModelOptions, SolverOptions};
use crate::present::html::{self, Report};
use crate::present::{FitContext, json, prose};
use crate::progress::Progress;
use crate::signal;
use crate::terminal::{Style, Terminal};
use crate::trace::Trace;

const EXAMPLES: &str = "\
Examples:
  margrave train heart.svm                                   classify: RBF kernel, hinge loss
  margrave train heart.svm -o heart.model -C 10 --gamma 0.1
  margrave train houses.csv --task regress --scale standard --epsilon 0.05
  margrave train robot.csv --task regress --target x,y,z     several targets
  margrave train heart.svm --loss logistic                   see 'margrave losses'
  margrave train heart.svm --loss sigmoid:eta=2 --anneal 3   not convex, so no gap
  margrave train fraud.csv --class-weight balanced --probability --threshold recall=0.9
  margrave train iris.csv --task novelty --nu 0.1 --no-target
  margrave train news.svm --kernel linear --penalty l1 --loss squared-hinge
  margrave train big.csv --approx 2000                       many rows: few centres, and a proof of the rest
  margrave train big.csv --approx auto --gap 1e-2            as many centres as that takes
  margrave train big.svm.gz --max-seconds 60 -o big.model    exit code 3 if not optimal by then
  margrave train big.svm.gz --resume big.model -o big.model  continue from there

Exit codes: 0 optimal, 2 bad usage or input, 3 not optimal (stopped early, or the certificate falls
short), 130 interrupted. With 3 and 130 the best model so far is written.";

/// Arguments of `train`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Train {
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    table: TableOptions,
    /// Model file to write [default: name of the data with .model, in the current folder]
    #[arg(long, short, value_name = "MODEL")]
    output: Option<PathBuf>,
    #[command(flatten)]
    settings: ModelOptions,
    #[command(flatten)]
    kernel: KernelOptions,
    #[command(flatten)]
    solver: SolverOptions,
    #[command(flatten)]
    approx: ApproxOptions,
    /// Start from this model, trained on the same data
    #[arg(long, value_name = "MODEL", help_heading = "Solver")]
    resume: Option<PathBuf>,
    /// Print every decision (kernel, solver and why, stopping rule, device) without training
    #[arg(long, help_heading = "Output")]
    explain: bool,
    /// Write the progress of the solver to this file, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl", help_heading = "Output")]
    trace: Option<PathBuf>,
    /// Write an HTML report: left-out figures, from five more trainings and by leave-one-out, beside those of the training data
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<PathBuf>,
    /// In the report, show how much left-out predictions rely on each feature, and the effects of the most important
    #[arg(long, requires = "report", help_heading = "Output")]
    explain_features: bool,
}

impl Train {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        self.settings.check()?;
        let output = if self.explain { self.output.clone().unwrap_or_default() } else { self.output_path()? };
        self.check(&output)?;
        let resumed = self.resume.as_ref().map(margrave::io::model::load).transpose()?;
        let threads = common.threads();
        let (loaded, rows) = self.load(&output, threads.count())?;
        if self.explain_features {
            explain::check(loaded.data.points.dims())?;
        }
        let load_seconds = begun.elapsed().as_secs_f64();
        let flag = signal::listen()?;
        let training = Training {
            data: &self.data,
            settings: &self.settings,
            kernel: &self.kernel,
            solver: &self.solver,
            seed: common.seed,
        };
        let chosen = device::choose(self.solver.device, loaded.data.len(), terminal)?;
        let mut svm = training.svm(&loaded, threads, chosen.device, flag)?;
        svm = self.approx.choose(svm);
        let mut remarks = training.remarks(&loaded, None);
        if self.approx.approx.is_none() && self.solver.solver == SolverName::Auto {
            remarks.extend(training.too_many_rows(&loaded, common.threads().count()));
        }
        if let Some(model) = resumed {
            svm = svm.start(model);
        }
        svm = svm.leave_one_out(self.report.is_some());

        if self.explain {
            return explain(&svm, &loaded, rows.as_ref(), &chosen, terminal);
        }
        // Before the training, which may take long: whoever reads them may want to stop it.
        remarks.iter().for_each(|remark| terminal.note(remark));
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
        device::report(&chosen, terminal);
        let trace_error = trace.and_then(Trace::close);
        fit.save(&output)?;
        let (data, model) = (self.data.name(), output.display().to_string());
        let context = || FitContext {
            data: &data,
            format: loaded.format.name(),
            model: &model,
            load_seconds,
            total_seconds: begun.elapsed().as_secs_f64(),
            peak_memory: memory::peak_bytes(),
        };
        let mut judged = None;
        if let Some(path) = &self.report {
            let mut evaluation = Evaluation::new(&svm, &fit, &loaded.data)?;
            if self.explain_features {
                evaluation.explain(&svm, &fit, &loaded.data, &loaded.schema)?;
            }
            write_report(path, &fit, &loaded, &history, &evaluation, &context())?;
            terminal.note(&format!("report written to {}", path.display()));
            judged = Some(evaluation.json(fit.model(), &loaded.data, path));
        }
        if let Some(problem) = trace_error {
            return Err(Failure::new(format!("{problem}; the model was written to {model}")));
        }
        let context = context();
        let mut found: Vec<String> = fit.cautions().iter().map(prose::caution).collect();
        found.extend(learns_nothing(&fit, &loaded.data));
        found.iter().for_each(|caution| terminal.note(caution));
        let cautions: Vec<String> = remarks.into_iter().chain(found).collect();
        let style = if fit.status() == Status::Optimal { Style::Good } else { Style::Warn };
        terminal.say(&terminal.summary(style, &prose::outcome(&fit), &prose::fit(&fit, &context)))?;
        let mut object = json::fit(&fit, &context);
        if let (Some(judged), Some(object)) = (judged, object.as_object_mut()) {
            object.insert("report".into(), judged);
        }
        object["cautions"] = json!(cautions);
        terminal.object(&object)?;
        Ok(Exit::from(fit.status()))
    }
}

/// Prints the plan of a training.
fn explain(svm: &Svm, loaded: &Loaded, rows: Option<&StreamedRows>, chosen: &Chosen, terminal: &Terminal) -> Outcome {
    let plan = match rows {
        Some(rows) => Plan::streamed(svm.options(), &loaded.data, rows)?,
        None => svm.plan(&loaded.data)?,
    };
    let mut lines = plan.explain()?;
    if let Some(why) = &chosen.why_not {
        lines.push(("no card", why.to_string()));
    } else if let Some(card) = chosen.card {
        lines.push(("card", format!("{}, number {}", card.card().name, card.card().number)));
    }
    let object: serde_json::Map<String, serde_json::Value> =
        lines.iter().map(|(name, text)| (name.replace(' ', "_"), text.as_str().into())).collect();
    let rows: Vec<(&str, String)> = lines;
    terminal.say(&terminal.summary(Style::Good, "plan, nothing was trained", &rows))?;
    terminal.object(&object)?;
    Ok(Exit::Done)
}

/// Writes the HTML report of a training.
fn write_report(
    path: &Path,
    fit: &Fit,
    loaded: &Loaded,
    history: &Recorder,
    evaluation: &Evaluation,
    context: &FitContext<'_>,
) -> Result<(), Failure> {
    let report = Report {
        fit,
        data: &loaded.data,
        name: context.data,
        history,
        command: &command_line(),
        summary: prose::fit(fit, context),
        evaluation,
        left_out: &loaded.left_out,
    };
    let page = html::page(&report)?;
    margrave::io::write_atomic(path, |out| out.write_all(page.as_bytes()))?;
    Ok(())
}

/// The command line, quoted where a shell would need it.
fn command_line() -> String {
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_=.,:/+^*".contains(c));
    let quote = |word: String| if plain(&word) { word } else { format!("'{}'", word.replace('\'', "'\\''")) };
    let words = std::env::args_os().skip(1).map(|word| quote(word.to_string_lossy().into_owned()));
    std::iter::once("margrave".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
