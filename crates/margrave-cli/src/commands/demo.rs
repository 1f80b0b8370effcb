//! `margrave demo`: training, certificates and model selection on embedded data.

use std::path::{Path, PathBuf};

use clap::Args;
use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::gram::{SpectrumOptions, smallest_eigenvalue};
use margrave::engine::kernel::{Gamma, Kernel};
use margrave::engine::metrics::Metric;
use margrave::engine::observe::{Recorder, Silent};
use margrave::io::{Loaded, ReadOptions};
use margrave::loss::LossSpec;
use margrave::tune::{Grid, Tuned, Tuner};
use margrave::{Budget, Control, Probability, Status, Svm};
use serde_json::{Value, json};

use crate::cli::Common;
use crate::evaluate::Evaluation;
use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::outputs;
use crate::present::html::{self, Report};
use crate::present::{FitContext, chart, prose};
use crate::signal;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave demo           train, certify, compare losses and kernels
  margrave demo -o heart  also write data, model, report and pictures to the folder heart
  margrave demo --json";

const HEART: &[u8] = include_bytes!("../../data/heart_scale.svm");
const NAME: &str = "heart_scale.svm";

/// Losses to compare. The convex ones come with a duality gap, the sigmoid with its distance from stationarity.
const LOSSES: [LossSpec; 5] = [
    LossSpec::Hinge,
    LossSpec::SmoothHinge { k: 4.0 },
    LossSpec::SquaredHinge,
    LossSpec::Square,
    LossSpec::Sigmoid { eta: 2.0 },
];

/// The two features of the picture: largest heart rate and depression of the ST segment.
const DRAWN: (usize, usize) = (7, 9);
const FEATURES: [&str; 13] = [
    "age",
    "sex",
    "chest pain",
    "blood pressure",
    "cholesterol",
    "blood sugar",
    "electrocardiogram",
    "largest heart rate",
    "angina on exercise",
    "ST depression",
    "ST slope",
    "vessels",
    "thallium scan",
];

/// The files that `-o` writes.
const FILES: [&str; 5] = [NAME, "heart.model", "heart.html", "heart.png", "grid.svg"];

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// Write data, model, report and pictures to this folder
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Demo {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        if let Some(folder) = &self.output {
            std::fs::create_dir_all(folder)
                .map_err(|e| Failure::new(format!("{}: cannot create the folder: {e}", folder.display())))?;
            let files = FILES.map(|name| folder.join(name));
            outputs::check(&[], &files.each_ref().map(|file| ("-o", Some(file.as_path()))))?;
        }
        let threads = common.threads();
        let options = ReadOptions { threads: threads.count(), ..ReadOptions::default() };
        let loaded = margrave::io::read_bytes(HEART, NAME, &options)?;
        let flag = signal::listen()?;
        let control = Control::start(&Budget::default(), threads.clone()).with_cancel(flag.clone());
        let title = |text: &str| terminal.say(&terminal.paint(Style::Strong, text));

        title("Heart disease or not: 270 patients, 13 measurements")?;
        let svm = Svm::classifier().gap(1e-6).threads(threads).seed(common.seed).cancel(flag).schema(&loaded.schema)?;
        let fit = svm.fit(&loaded.data)?;
        let path = self.output.as_ref().map(|folder| folder.join("heart.model"));
        let shown =
            path.as_deref().map_or("not written; use 'margrave demo -o DIR'".to_owned(), |p| p.display().to_string());
        let rows = prose::fit(&fit, &FitContext::new(&fit, &loaded, NAME, &shown));
        let style = if fit.status() == Status::Optimal { Style::Good } else { Style::Warn };
        terminal.say(&terminal.summary(style, &prose::outcome(&fit), &rows))?;

        title("The certificate again, from the model and the data alone")?;
        let proof = &margrave::verify(fit.model(), &loaded.data, None, &control)?[0];
        terminal.say(&indented(&proof.to_string()))?;

        title("Other losses, and what is proven for each")?;
        let losses = self.losses(&svm, &loaded, terminal)?;
        title("Which kernels are positive semi-definite here?")?;
        let kernels = self.kernels(&loaded, common.seed, &control, terminal)?;

        title("Which C and γ? Five-fold cross-validation over a grid")?;
        let grid = Grid {
            costs: (-3..=9).step_by(2).map(|e| 2f64.powi(e)).collect(),
            gammas: (-9..=1).step_by(2).map(|e| 2f64.powi(e)).collect(),
            ..Grid::default()
        };
        let tuner = Tuner::new(svm.clone().tol(1e-3), grid);
        let tuned = tuner.search(&loaded.data, &mut Silent)?;
        let best = tuned.best.map(|at| &tuned.cells[at]);
        if let Some(best) = best {
            terminal.say(&format!(
                "  {} combinations in {}: best {}, {}\n\n",
                tuned.cells.len(),
                format::duration(tuned.seconds),
                prose::params(&best.params),
                prose::score(best, Metric::Accuracy)
            ))?;
        }
        let files = match &self.output {
            Some(folder) => write_files(folder, &loaded, &svm, &tuned, &control)?,
            None => Vec::new(),
        };
        if !files.is_empty() {
            title("Files written")?;
            let list: Vec<String> =
                files.iter().map(|(path, what)| format!("  {}  {what}\n", path.display())).collect();
            terminal.say(&list.concat())?;
        }
        title("What to try next")?;
        terminal.say(
            "  margrave train DATA -o MODEL --report REPORT.html   train on your data and write a report\n  \
             margrave tune DATA -o MODEL --plot GRID.svg         the best C and γ\n  \
             margrave losses                                     other losses\n  \
             margrave --help                                     everything else; docs/guide.md is the user guide",
        )?;
        terminal.object(&json!({
            "n": loaded.data.len(),
            "d": loaded.data.points.dims(),
            "status": fit.status(),
            "relative_gap": fit.certificate().relative_gap(),
            "verified_gap": proof.relative_gap(),
            "support_vectors": fit.record().support_vectors,
            "train_error": fit.train_error(),
            "losses": losses,
            "kernels": kernels,
            "best": best.map(|cell| json!({ "params": prose::params(&cell.params), "score": cell.score() })),
            "files": files.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>(),
            "model": path.map(|p| p.display().to_string()),
        }))?;
        Ok(Exit::Done)
    }

    fn losses(&self, svm: &Svm, loaded: &Loaded, terminal: &Terminal) -> Result<Vec<Value>, Failure> {
        let mut list = Vec::new();
        for spec in LOSSES {
            let fit = svm.clone().loss_spec(spec).fit(&loaded.data)?;
            let gap = fit.certificate().relative_gap();
            let proof = match gap {
                Some(gap) => format!("gap {}", format::number(gap, 2)),
                None => format!("stationary to {}", format::number(fit.certificate().violation(), 2)),
            };
            terminal.say(&format!(
                "  {:<18} {proof:<22} {:>3} support vectors   training error {} %",
                spec.to_string(),
                fit.record().support_vectors,
                format::number(100.0 * fit.train_error(), 3)
            ))?;
            list.push(json!({
                "loss": spec.to_string(),
                "relative_gap": gap,
                "support_vectors": fit.record().support_vectors,
                "train_error": fit.train_error(),
            }));
        }
        terminal.say("\n")?;
        Ok(list)
    }

    fn kernels(
        &self,
        loaded: &Loaded,
        seed: u64,
        control: &Control,
        terminal: &Terminal,
    ) -> Result<Vec<Value>, Failure> {
        let points = &loaded.data.points;
        let gamma = Gamma::Scale.resolve(points, seed)?;
        let mut list = Vec::new();
        for kernel in
            [Kernel::Linear, Kernel::rbf(gamma), Kernel::Matern52 { gamma }, Kernel::Sigmoid { gamma, coef0: 0.0 }]
        {
            let gram = CpuGram::square(kernel, points)?;
            let options = SpectrumOptions { seed, ..SpectrumOptions::default() };
            let (found, status) = smallest_eigenvalue(&gram, &options, control, &mut Silent)?;
            let Some(found) = found else {
                return Err(Failure::new(format!("stopped ({status}) without a result")));
            };
            let (style, answer) = if found.is_indefinite() { (Style::Bad, "no ") } else { (Style::Good, "yes") };
            terminal.say(&format!(
                "  {}  {:<34} smallest eigenvalue {}",
                terminal.paint(style, answer),
                prose::kernel(&kernel),
                format::number(found.smallest, 3)
            ))?;
            list.push(
                json!({ "kernel": kernel, "psd": !found.is_indefinite(), "smallest_eigenvalue": found.smallest }),
            );
        }
        terminal.say("\n")?;
        Ok(list)
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect::<String>() + "\n"
}

/// Writes data, model, report and pictures; returns the path and the description of each.
fn write_files(
    folder: &Path,
    loaded: &Loaded,
    svm: &Svm,
    tuned: &Tuned,
    control: &Control,
) -> Result<Vec<(PathBuf, &'static str)>, Failure> {
    let mut files = Vec::new();
    let mut put = |name: &str, what: &'static str, bytes: &[u8]| -> Result<(), Failure> {
        let path = folder.join(name);
        margrave::io::write_atomic(&path, |out| out.write_all(bytes))?;
        files.push((path, what));
        Ok(())
    };
    put(NAME, "the data, as LIBSVM text", HEART)?;
    let mut history = Recorder::default();
    let svm = svm.clone().probability(Probability::LeaveOneOut).leave_one_out(true);
    let fit = svm.fit_observed(&loaded.data, &mut history)?;
    let bytes = margrave::io::model::to_bytes(fit.model())?;
    put("heart.model", "the model, with certificate and probabilities", &bytes)?;
    let command = "margrave train heart_scale.svm -o heart.model --gap 1e-6 --probability --report heart.html";
    let report = Report {
        fit: &fit,
        data: &loaded.data,
        name: "Heart disease",
        history: &history,
        command,
        summary: prose::fit(&fit, &FitContext::new(&fit, loaded, NAME, "heart.model")),
        evaluation: &Evaluation::new(&svm, &fit, &loaded.data)?,
        left_out: &loaded.left_out,
    };
    put("heart.html", "a report, to open in a browser", html::page(&report)?.as_bytes())?;
    let names: Vec<String> = FEATURES.iter().map(ToString::to_string).collect();
    let title = "Heart disease over two of thirteen features".to_owned();
    let plane = chart::plane(fit.model(), &loaded.data, DRAWN, Some(&names), title, control)?;
    let picture = plane.to_image().to_png().map_err(|e| Failure::new(format!("heart.png: {e}")))?;
    put("heart.png", "boundary, margins and support vectors", &picture)?;
    if let Some(map) = chart::heat_map(tuned, Metric::Accuracy) {
        put("grid.svg", "cross-validation over C and γ", map.to_svg().as_bytes())?;
    }
    Ok(files)
}
