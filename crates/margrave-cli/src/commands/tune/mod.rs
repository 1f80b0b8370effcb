//! `margrave tune`: the best combination of a grid by cross-validation, trained on all data.

mod grid;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use margrave::engine::metrics::Metric;
use margrave::engine::observe::Silent;
use margrave::engine::problem::Task;
use margrave::engine::train::caution::imbalance;
use margrave::io::Loaded;
use margrave::tune::{Grid, Tuned, Tuner};
use margrave::{Caution, Status, Svm, Targets};
use serde_json::json;

pub(crate) use self::grid::accepts;
use self::grid::parse_grid;
pub(crate) use self::table::read_table;
use self::table::table;
use super::train::{Training, learns_nothing};
use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::options::data::DataOptions;
use crate::options::device;
use crate::options::kernel::KernelOptions;
use crate::options::table::TableOptions;
use crate::options::train::{ModelOptions, SolverOptions};
use crate::outputs::{self, Input};
use crate::present::{FitContext, chart, json, prose};
use crate::progress::Progress;
use crate::signal;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave tune heart.svm                                     default grid of C and γ, five folds
  margrave tune heart.svm -o heart.model --plot grid.svg      write the best model, draw the scores
  margrave tune heart.svm --grid C=2^-5..2^15*4 --grid gamma=2^-15..2^3*4
  margrave tune houses.csv --task regress --grid C=1,10,100 --grid epsilon=0.01,0.1
  margrave tune fraud.csv --score balanced-accuracy --class-weight balanced
  margrave tune heart.svm --grid loss=hinge,squared-hinge,square --grid kernel=rbf,linear
  margrave tune big.svm --max-seconds 600 --table cells.csv   exit code 3 if not finished by then
  margrave tune big.svm --resume cells.csv --table cells.csv  continue from there

Names in a grid: C, lambda, gamma, epsilon, nu, kernel, loss. Values: from..to*factor,
from..to+step, or a list a,b,c. Larger scores are better: errors count as their negatives.";

/// Arguments of `tune`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tune {
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    table_options: TableOptions,
    /// Values to try, as NAME=VALUES; repeat for several names [default: C and γ as in LIBSVM's grid.py]
    #[arg(long, value_name = "NAME=VALUES", help_heading = "Search")]
    grid: Vec<String>,
    /// Number of cross-validation folds, stratified by class
    #[arg(long, value_name = "K", default_value_t = 5, allow_negative_numbers = true, help_heading = "Search")]
    folds: usize,
    /// File with one group name per row; the rows of a group stay in one fold
    #[arg(long, value_name = "FILE", help_heading = "Search")]
    groups: Option<PathBuf>,
    /// File with the fold of each row, one number per line from 0, instead of random folds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["folds", "groups"], help_heading = "Search")]
    fold_file: Option<PathBuf>,
    /// What to choose by: accuracy, balanced-accuracy, f1, f1-macro, roc-auc, average-precision, log-loss, brier, mcc;
    /// r2, rmse, mae, mse, pinball:TAU, explained-variance [default: accuracy, or mse for regression]
    #[arg(long, value_name = "NAME", value_parser = metric, help_heading = "Search")]
    score: Option<Metric>,
    /// Drop a combination once it is this many deviations behind the best; 0 runs all folds of all
    #[arg(long, value_name = "Z", default_value_t = 4.0, allow_negative_numbers = true, help_heading = "Search")]
    race: f64,
    /// Reuse the combinations in this table of an earlier search on the same data
    #[arg(long, value_name = "FILE.csv", help_heading = "Search")]
    resume: Option<PathBuf>,
    /// Train the best combination on all data and write the model
    #[arg(long, short, value_name = "MODEL", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Write all combinations and their scores to this file
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    table: Option<PathBuf>,
    /// Draw the scores over C and γ: .svg or .png
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    settings: ModelOptions,
    #[command(flatten)]
    kernel: KernelOptions,
    #[command(flatten)]
    solver: SolverOptions,
}

impl Tune {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        self.settings.check()?;
        if let Some(file) = &self.plot
            && file.extension().is_none_or(|e| !e.eq_ignore_ascii_case("svg") && !e.eq_ignore_ascii_case("png"))
        {
            return Err(Failure::new(format!("--plot {}: the name must end in .svg or .png", file.display())));
        }
        self.check_files()?;
        let grid = parse_grid(&self.grid, &self.kernel)?;
        if self.plot.is_some() && (grid.costs.len().max(grid.lambdas.len()) < 2 || grid.gammas.len() < 2) {
            return Err(no_map());
        }
        let threads = common.threads();
        let loaded = self.data.load_table(&self.table_options, self.solver.memory(), threads.count())?;
        let flag = signal::listen()?;
        let training = Training {
            data: &self.data,
            settings: &self.settings,
            kernel: &self.kernel,
            solver: &self.solver,
            seed: common.seed,
        };
        let chosen = device::choose(self.solver.device, loaded.data.len(), terminal)?;
        let svm = training.svm(&loaded, threads, chosen.device, flag)?;
        if let Targets::Several { outputs, .. } = &loaded.data.targets {
            return Err(Failure::with_hint(
                format!("{} has {outputs} targets, and a search needs one", self.data.name()),
                "choose one with --target; 'margrave path' finds the λ of several by leave-one-out",
            ));
        }
        let metric = self.score.unwrap_or(Metric::usual(svm.task()));
        let mut cautions = training.remarks(&loaded, Some(&grid));
        cautions.extend(self.cautions(&svm, &loaded));
        cautions.iter().for_each(|caution| terminal.note(caution));
        let (tuner, key) = self.tuner(svm, grid, &loaded, common.seed)?;
        let folds = tuner.folds;
        let mut progress = Progress::new(terminal);
        let tuned = tuner.search(&loaded.data, &mut progress)?;
        drop(progress);
        // If the table cannot be written, the model still is.
        let mut failed = None;
        if let Some(path) = &self.table {
            let text = table(&tuned, folds, &key);
            failed = margrave::io::write_atomic(path, |out| out.write_all(text.as_bytes())).err().map(Failure::from);
        }
        let Some(best) = tuned.best.map(|at| &tuned.cells[at]) else {
            return Err(Failure::Stopped {
                why: if tuned.status == Status::Interrupted {
                    margrave::Interrupt::Cancelled
                } else {
                    margrave::Interrupt::Deadline
                },
                message: "stopped before any combination was finished: allow more time with --max-seconds".into(),
            });
        };
        if let Some(path) = &self.plot {
            failed = failed.or(draw(path, &tuned, metric).err());
        }
        let mut object = json::tuned(&tuned, best, metric, folds);
        let mut rows = prose::tuned(&tuned, best, metric, folds, self.race != 0.0);
        let mut trained = Status::Optimal;
        if let Some(path) = &self.output {
            let fit = margrave::Fit::from(tuner.refit(&best.params, &loaded.data, &mut Silent)?);
            fit.save(path)?;
            // What the data says was said above.
            let own = |caution: &&Caution| matches!(caution, Caution::OneClass { .. } | Caution::Zero { .. });
            fit.cautions().iter().filter(own).for_each(|caution| terminal.note(&prose::caution(caution)));
            if let Some(caution) = learns_nothing(&fit, &loaded.data) {
                terminal.note(&caution);
                cautions.push(caution);
            }
            trained = fit.status();
            let (data, model) = (self.data.name(), path.display().to_string());
            rows.push(("gap", prose::gap(fit.certificate())));
            let how = if trained == Status::Optimal { String::new() } else { format!(", {trained}") };
            rows.push(("model", format!("{model}, trained on all rows{how}")));
            let context = FitContext::new(&fit, &loaded, &data, &model);
            object.insert("fit".into(), json::fit(&fit, &context));
            object.insert("model".into(), json!(model));
        }
        device::report(&chosen, terminal);
        if let Some(failure) = failed {
            return Err(failure);
        }
        object.insert("cautions".into(), json!(cautions));
        object.insert("seconds".into(), json!(begun.elapsed().as_secs_f64()));
        let style = if tuned.status == Status::Optimal { Style::Good } else { Style::Warn };
        terminal.say(&terminal.summary(style, &prose::search_outcome(&tuned), &rows))?;
        terminal.object(&object)?;
        Ok(match tuned.status {
            Status::Optimal => Exit::from(trained),
            stopped => Exit::from(stopped),
        })
    }

    /// What to know about the classes, where neither weights nor a score nor a threshold was given.
    fn cautions(&self, svm: &Svm, loaded: &Loaded) -> Vec<String> {
        let said = self.score.is_some()
            || self.settings.class_weight.is_some()
            || self.settings.threshold.is_some()
            || loaded.data.weights.is_some();
        match loaded.data.targets.classes() {
            Ok((labels, codes)) if !said && svm.task() == Task::Classify => {
                imbalance(&labels, &codes, None).iter().map(prose::caution).collect()
            }
            _ => vec![],
        }
    }

    /// The search these options describe, and the key of its table: data, folds and seed.
    fn tuner(&self, svm: Svm, grid: Grid, loaded: &Loaded, seed: u64) -> Result<(Tuner, String), Failure> {
        let data = &loaded.data;
        let mut tuner = Tuner::new(svm, grid);
        tuner.folds = self.folds;
        tuner.groups = self.read_groups(loaded)?;
        tuner.fold_of = self.read_folds(loaded)?;
        tuner.race = (self.race != 0.0).then_some(self.race);
        tuner.score = self.score;
        // A weight of 2 counts as two rows, in scores as in training.
        tuner.counts = data.weights.clone();
        let given = tuner.fold_of.as_deref().map(fingerprint);
        let folds = match &tuner.fold_of {
            Some(fold) => fold.iter().max().map_or(0, |f| *f as usize + 1),
            None => self.folds,
        };
        tuner.folds = folds;
        let mut key =
            format!("{}x{}/{folds}/{}", data.len(), data.points.dims(), given.unwrap_or_else(|| seed.to_string()));
        if let Some(metric) = self.score {
            key += &format!("/{metric}");
        }
        if let Some(kind) = self.settings.scale.0 {
            key += &format!("/{}-by-fold", kind.name());
        }
        if data.fills.is_some() {
            key += "/filled-by-fold";
        }
        if let Some(path) = &self.resume {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::new(format!("{}: could not be read: {e}", path.display())))?;
            tuner.known = read_table(&text, &key, &path.display().to_string())?;
        }
        Ok((tuner, key))
    }

    fn check_files(&self) -> Result<(), Failure> {
        let [data, targets] = self.data.inputs();
        let inputs = [
            data,
            targets,
            Input::new("--groups", self.groups.as_deref()),
            Input::new("--fold-file", self.fold_file.as_deref()),
            Input::new("--resume", self.resume.as_deref()).in_place("--table"),
        ];
        let outputs =
            [("-o", self.output.as_deref()), ("--table", self.table.as_deref()), ("--plot", self.plot.as_deref())];
        outputs::check(&inputs, &outputs)
    }

    /// The fold of each row that is not left out; the file has a line for every row.
    fn read_folds(&self, loaded: &Loaded) -> Result<Option<Vec<u32>>, Failure> {
        let Some(path) = &self.fold_file else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::new(format!("--fold-file {}: could not be read: {e}", path.display())))?;
        let number = |(at, line): (usize, &str)| {
            line.trim().parse().map_err(|_| {
                Failure::with_hint(
                    format!("--fold-file {}: line {} is not the number of a fold", path.display(), at + 1),
                    "give one of 0, 1, 2, … for each row",
                )
            })
        };
        let all = text.lines().enumerate().map(number).collect::<Result<Vec<u32>, Failure>>()?;
        // A file of another length is refused by the search, which knows the rows.
        let whole = all.len() == loaded.data.len() + loaded.left_out.len();
        Ok(Some(if whole { kept(all, &loaded.left_out) } else { all }))
    }

    /// The group of each row that is not left out; the file has a line for every row.
    fn read_groups(&self, loaded: &Loaded) -> Result<Option<Vec<u32>>, Failure> {
        let Some(path) = &self.groups else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::new(format!("--groups {}: could not be read: {e}", path.display())))?;
        let n = loaded.data.len() + loaded.left_out.len();
        let names: Vec<&str> = text.lines().map(str::trim).collect();
        if names.len() != n {
            return Err(Failure::new(format!(
                "--groups {}: {} lines for {n} rows: give one name per row",
                path.display(),
                names.len()
            )));
        }
        let names = kept(names, &loaded.left_out);
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        Ok(Some(names.iter().map(|name| sorted.binary_search(name).unwrap_or(0) as u32).collect()))
    }
}

/// The values of the rows that are not left out.
fn kept<T>(values: Vec<T>, left_out: &[usize]) -> Vec<T> {
    let kept = |(row, value)| left_out.binary_search(&row).is_err().then_some(value);
    values.into_iter().enumerate().filter_map(kept).collect()
}

/// Draws the scores of a search.
fn draw(path: &Path, tuned: &Tuned, metric: Metric) -> Result<(), Failure> {
    let map = chart::heat_map(tuned, metric).ok_or_else(no_map)?;
    let png = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("png"));
    let bytes = if png {
        map.to_image().to_png().map_err(|e| Failure::new(format!("{}: {e}", path.display())))?
    } else {
        map.to_svg().into_bytes()
    };
    Ok(margrave::io::write_atomic(path, |out| out.write_all(&bytes))?)
}

fn metric(text: &str) -> Result<Metric, String> {
    text.parse().map_err(|error| match error {
        margrave::Error::Option { allowed, .. } => allowed,
        other => other.to_string(),
    })
}

fn no_map() -> Failure {
    Failure::with_hint("--plot draws C against γ", "give several values of both with --grid")
}

/// A short name for given folds.
fn fingerprint(fold: &[u32]) -> String {
    // FNV-1a.
    let hash = fold.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, f| (h ^ u64::from(*f)).wrapping_mul(0x100_0000_01b3));
    format!("given-{hash:016x}")
}
