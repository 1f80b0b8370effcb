//! `margrave demo`: the main job on data the program carries with it.

use std::path::{Path, PathBuf};

use clap::Args;
use margrave::backend::cpu::CpuGram;
use margrave::gram::{SpectrumOptions, smallest_eigenvalue};
use margrave::io::{Loaded, ReadOptions};
use margrave::kernel::{Gamma, Kernel};
use margrave::loss::LossSpec;
use margrave::observe::Silent;
use margrave::{Budget, Control, Fit, Svm};
use serde_json::{Value, json};

use super::train::summary;
use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::options::kernel::describe;
use crate::signal;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave demo           train, certify, compare losses and kernels on embedded data
  margrave demo -o heart  the same, and keep data and model in the folder heart
  margrave demo --json";

const HEART: &[u8] = include_bytes!("../../data/heart_scale.svm");
const NAME: &str = "heart_scale.svm";

/// Losses to compare: all with a box-quadratic dual, so that each comes with a proof.
const LOSSES: [LossSpec; 4] =
    [LossSpec::Hinge, LossSpec::SmoothHinge { k: 4.0 }, LossSpec::SquaredHinge, LossSpec::Square];

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// Write the data and the model into this folder
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Demo {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
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
            path.as_deref().map_or("not kept; 'margrave demo -o DIR' keeps it".to_owned(), |p| p.display().to_string());
        terminal.say(&summary(terminal, &fit, NAME, &shown, fit.record().seconds))?;

        title("The same proof again, from the model and the data alone")?;
        let proof = &margrave::verify(fit.model(), &loaded.data, None, &control)?[0];
        terminal.say(&indented(&proof.to_string()))?;

        title("Other losses, each with its proof")?;
        let losses = self.losses(&svm, &loaded, terminal)?;
        title("Which kernels are positive semi-definite here?")?;
        let kernels = self.kernels(&loaded, common.seed, &control, terminal)?;

        if let (Some(folder), Some(model)) = (&self.output, &path) {
            keep(folder, model, &fit)?;
        }
        terminal.say("Now on your own data: margrave train DATA -o MODEL")?;
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
            "model": path.map(|p| p.display().to_string()),
        }))?;
        Ok(Exit::Done)
    }

    fn losses(&self, svm: &Svm, loaded: &Loaded, terminal: &Terminal) -> Result<Vec<Value>, Failure> {
        let mut list = Vec::new();
        for spec in LOSSES {
            let fit = svm.clone().loss_spec(spec).fit(&loaded.data)?;
            let gap = fit.certificate().relative_gap();
            terminal.say(&format!(
                "  {:<18} gap {:<9} {:>3} support vectors   training error {} %",
                spec.to_string(),
                gap.map(|g| format::number(g, 2)).unwrap_or_default(),
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
                return Err(Failure::new(format!("stopped ({status}) before there was a result")));
            };
            let (style, answer) = if found.is_indefinite() { (Style::Bad, "no ") } else { (Style::Good, "yes") };
            terminal.say(&format!(
                "  {}  {:<34} smallest eigenvalue {}",
                terminal.paint(style, answer),
                describe(&kernel),
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

fn keep(folder: &Path, model: &Path, fit: &Fit) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure::new(format!("{}: cannot make the folder: {e}", folder.display())))?;
    margrave::io::write_atomic(folder.join(NAME), |out| out.write_all(HEART))?;
    fit.save(model)?;
    Ok(())
}
