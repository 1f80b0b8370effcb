//! `margrave path`: regularised least squares for many values of λ, with leave-one-out errors.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::control::{Budget, Status};
use margrave::engine::data::Targets;
use margrave::engine::gram::{Gram, PrecomputedGram};
use margrave::engine::kernel::Kernel;
use margrave::engine::solver::ridge::{self, PathOptions, PathPoint, Side, Source};
use serde_json::{Value, json};

use crate::cli::Common;
use crate::failure::{Exit, Failure, Flags, Outcome};
use crate::format;
use crate::options::data::DataOptions;
use crate::options::kernel::KernelOptions;
use crate::options::table::TableOptions;
use crate::options::{range, value};
use crate::outputs;
use crate::present::prose;
use crate::progress::Progress;
use crate::signal;
use crate::terminal::{Style, Terminal};
use margrave_plot::{Axis, Figure, Mark, Panel, Scale, Series};

const EXAMPLES: &str = "\
Examples:
  margrave path housing.csv                                  ten values of λ
  margrave path housing.csv --lambdas 1e-6..1e3*2 --plot path.svg
  margrave path housing.csv --kernel linear --no-bias        plain ridge regression
  margrave path robot.csv --target x,y,z                     the mean over several targets
  margrave path iris.csv                                     labels become ±1, one per class

λ as in ½Σ(y − f)² + ½λ‖f‖², so C = 1/λ. Leave-one-out errors are exact, not estimates.";

/// Arguments of `path`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Path {
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    table: TableOptions,
    #[command(flatten)]
    kernel: KernelOptions,
    /// Values of λ: from..to*factor, from..to+step, or a list a,b,c
    #[arg(
        long,
        value_name = "RANGE",
        default_value = "1e-6..1e3*10",
        allow_hyphen_values = true,
        help_heading = "Path"
    )]
    lambdas: String,
    /// Train without a bias b: regularised least squares instead of the LS-SVM
    #[arg(long, help_heading = "Path")]
    no_bias: bool,
    /// Linear kernel: solve for w (primal), for β (kernel), or for what is cheaper (auto)
    #[arg(long, value_name = "SIDE", default_value = "auto", value_parser = side, help_heading = "Path")]
    side: Side,
    /// Draw errors and degrees of freedom over λ
    #[arg(long, value_name = "FILE.svg", help_heading = "Path")]
    plot: Option<PathBuf>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", value_parser = value::non_negative, allow_negative_numbers = true, help_heading = "Path")]
    max_seconds: Option<f64>,
    /// Memory for matrices
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = value::bytes, allow_negative_numbers = true, help_heading = "Path")]
    memory: u64,
}

fn side(text: &str) -> Result<Side, String> {
    text.parse().map_err(|_| "expected auto, primal or kernel".to_owned())
}

/// Targets as columns of numbers, and the classes they stand for.
struct CodedTargets {
    values: Vec<f64>,
    k: usize,
    classes: Option<Vec<String>>,
}

/// Numbers stay as they are; text labels become ±1, in one column for two classes, in one column per class for more.
fn code(targets: &Targets) -> Result<CodedTargets, Failure> {
    match targets {
        Targets::Real(values) => return Ok(CodedTargets { values: values.clone(), k: 1, classes: None }),
        Targets::Several { outputs, values } => {
            return Ok(CodedTargets { values: values.clone(), k: *outputs, classes: None });
        }
        Targets::Text(_) | Targets::None => {}
    }
    let (classes, codes) = targets.classes()?;
    let k = if classes.len() == 2 { 1 } else { classes.len() };
    let sign = |yes: bool| if yes { 1.0 } else { -1.0 };
    let values =
        codes.iter().flat_map(|&c| (0..k).map(move |j| sign(if k == 1 { c == 1 } else { c as usize == j }))).collect();
    Ok(CodedTargets { values, k, classes: Some(classes.iter().map(ToString::to_string).collect()) })
}

impl Path {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        let lambdas = range::range(&self.lambdas)
            .and_then(|l| if l.iter().all(|v| *v > 0.0) { Ok(l) } else { Err("every λ must be > 0".to_owned()) })
            .map_err(|e| Failure::new(format!("--lambdas {}: {e}", self.lambdas)))?;
        if let Some(file) = &self.plot
            && file.extension().is_none_or(|e| !e.eq_ignore_ascii_case("svg"))
        {
            return Err(Failure::new(format!("--plot {}: the name must end in .svg", file.display())));
        }
        outputs::check(&self.data.inputs(), &[("--plot", self.plot.as_deref())])?;
        let threads = common.threads();
        let loaded = self.data.load_table(&self.table, self.memory, threads.count())?;
        loaded.notes.iter().for_each(|note| terminal.note(&note.text(&Flags)));
        let points = &loaded.data.points;
        if points.is_empty() {
            return Err(Failure::new(format!("{} has no rows", self.data.name())));
        }
        let coded = code(&loaded.data.targets)?;
        let kernel = self.kernel.resolve(points, common.seed)?;
        if kernel == Kernel::Precomputed && points.len() != points.dims() {
            return Err(Failure::with_hint(
                format!(
                    "{} holds a {} × {} matrix: a Gram matrix is square",
                    self.data.name(),
                    points.len(),
                    points.dims()
                ),
                "give the matrix and one target column",
            ));
        }
        let budget = Budget { seconds: self.max_seconds, memory: self.memory, ..Budget::default() };
        budget.check()?;
        let control = signal::start(&budget, threads)?;
        let gram: Box<dyn Gram>;
        let source = match kernel {
            Kernel::Linear => {
                gram = Box::new(CpuGram::square(kernel, points)?);
                Source::Linear(points, gram.as_ref())
            }
            Kernel::Precomputed => {
                gram = Box::new(PrecomputedGram::new(points.clone()));
                Source::Gram(gram.as_ref())
            }
            _ => {
                gram = Box::new(CpuGram::square(kernel, points)?);
                Source::Gram(gram.as_ref())
            }
        };
        let options = PathOptions { lambdas, bias: !self.no_bias, side: self.side, memory: self.memory };
        let mut progress = Progress::new(terminal);
        let weights = loaded.data.weights.as_deref();
        let found = ridge::path(source, &coded.values, coded.k, weights, &options, &control, &mut progress)?;
        drop(progress);
        let best = found.best.map(|at| &found.points[at]);
        if let (Some(file), Some(best)) = (&self.plot, best) {
            let picture = figure(&self.title(&prose::kernel(&kernel)), &found.points, best).svg();
            margrave::io::write_atomic(file, |w: &mut dyn Write| w.write_all(picture.as_bytes()))?;
        }
        terminal.say(&self.report(terminal, &found, &prose::kernel(&kernel), points.len(), &coded))?;
        terminal.object(&json!({
            "n": points.len(),
            "d": points.dims(),
            "targets": coded.k,
            "classes": coded.classes,
            "kernel": kernel,
            "bias": !self.no_bias,
            "side": found.side.name(),
            "status": found.status,
            "path": found.points.iter().map(object).collect::<Vec<_>>(),
            "best": best.map(object),
            "plot": self.plot.as_ref().filter(|_| best.is_some()).map(|f| f.display().to_string()),
            "seconds": begun.elapsed().as_secs_f64(),
        }))?;
        Ok(match found.status {
            Status::Stalled => Exit::Done,
            status => Exit::from(status),
        })
    }

    fn title(&self, kernel: &str) -> String {
        let name = self.data.path.file_name().map_or_else(|| self.data.name(), |n| n.to_string_lossy().into_owned());
        format!("{name}: {kernel}")
    }

    fn report(&self, terminal: &Terminal, found: &ridge::Path, kernel: &str, n: usize, coded: &CodedTargets) -> String {
        let mut text = terminal.table(&[
            ("data", format!("{}, {} rows", self.data.name(), format::count(n as u64))),
            (
                "targets",
                coded
                    .classes
                    .as_ref()
                    .map_or_else(|| format!("{}, as numbers", coded.k), |c| format!("{} classes, as ±1", c.len())),
            ),
            ("kernel", format!("{kernel}, {}", if self.no_bias { "no bias" } else { "free bias" })),
        ]);
        let Some(best) = found.best else {
            let why = if found.status == Status::Interrupted { "interrupted" } else { "time limit reached" };
            return text
                + &format!(
                    "{}: {why} before the decomposition was finished\n",
                    terminal.paint(Style::Warn, "no result")
                );
        };
        let columns = ["lambda", "C", "leave-one-out MSE", "training MSE", "degrees of freedom"];
        let head: Vec<String> = columns.iter().map(|c| format!("{c:>19}")).collect();
        text += &format!("\n{}\n", terminal.paint(Style::Strong, &head.concat()));
        for (i, p) in found.points.iter().enumerate() {
            let cells = [p.lambda, 1.0 / p.lambda, p.loo_mse, p.train_mse, p.degrees_of_freedom];
            let row: String = cells.iter().map(|v| format!("{:>19}", format::number(*v, 5))).collect();
            let row = if i == best { terminal.paint(Style::Good, &format!("{row}  best")) } else { row };
            text += &format!("{row}\n");
        }
        let jitter = found.points.iter().map(|p| p.jitter).fold(0.0, f64::max);
        if jitter > 0.0 {
            text += &format!(
                "\n{} the matrix is singular to rounding: λ was raised by up to {}\n",
                terminal.paint(Style::Warn, "note:"),
                format::number(jitter, 2)
            );
        }
        if let Some(file) = &self.plot {
            text += &format!("\nplot written to {}\n", file.display());
        }
        text
    }
}

fn object(p: &PathPoint) -> Value {
    let mut object = json!({
        "lambda": p.lambda,
        "C": 1.0 / p.lambda,
        "loo_mse": p.loo_mse,
        "train_mse": p.train_mse,
        "degrees_of_freedom": p.degrees_of_freedom,
        "jitter": p.jitter,
    });
    if p.loo_by_target.len() > 1 {
        object["loo_mse_by_target"] = json!(p.loo_by_target);
    }
    object
}

fn figure(title: &str, points: &[PathPoint], best: &PathPoint) -> Figure {
    let mut points: Vec<&PathPoint> = points.iter().collect();
    points.sort_by(|a, b| a.lambda.total_cmp(&b.lambda));
    let along = |value: fn(&PathPoint) -> f64| points.iter().map(|p| (p.lambda, value(p))).collect::<Vec<_>>();
    let axis = || Axis::new("λ", Scale::Log);
    // The training error falls to 0 and would flatten the leave-one-out curve.
    let worst = points.iter().map(|p| p.loo_mse.max(p.train_mse)).fold(0.0, f64::max).min(1e4 * best.loo_mse) * 1.2;
    let errors = Panel {
        x: axis(),
        y: Axis::new("mean squared error", Scale::Log).within(best.loo_mse / 10.0, worst),
        height: 260.0,
        series: vec![
            Series::line("leave-one-out", along(|p| p.loo_mse)).with_dots(),
            Series::line("training", along(|p| p.train_mse)).with_dots(),
        ],
        marks: vec![Mark {
            x: best.lambda,
            note: format!("best: λ = {}, error {}", format::number(best.lambda, 3), format::number(best.loo_mse, 4)),
        }],
    };
    let freedom = Panel {
        x: axis(),
        y: Axis::new("degrees of freedom", Scale::Linear),
        height: 140.0,
        series: vec![Series::line("degrees of freedom", along(|p| p.degrees_of_freedom)).with_dots()],
        marks: vec![],
    };
    Figure { title: title.to_owned(), panels: vec![errors, freedom] }
}
