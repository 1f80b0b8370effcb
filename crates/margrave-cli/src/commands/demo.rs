//! `margrave demo`: what the program does, on data it carries with it.

use clap::Args;
use margrave::backend::cpu::CpuGram;
use margrave::gram::{SpectrumOptions, smallest_eigenvalue};
use margrave::io::ReadOptions;
use margrave::kernel::{Gamma, Kernel};
use margrave::observe::Silent;
use margrave::{Budget, Dataset};
use serde_json::json;

use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::options::kernel::describe;
use crate::signal;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave demo
  margrave demo --json";

const HEART: &[u8] = include_bytes!("../../data/heart_scale.svm");

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {}

/// The embedded data.
pub(crate) fn heart(threads: usize) -> Result<Dataset, Failure> {
    let options = ReadOptions { threads, ..ReadOptions::default() };
    Ok(margrave::io::read_bytes(HEART, "heart_scale.svm", &options)?.data)
}

impl Demo {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let threads = common.threads();
        let data = heart(threads.count())?;
        let (classes, _) = data.targets.classes()?;
        let names: Vec<String> = classes.iter().map(ToString::to_string).collect();
        terminal.say(&terminal.paint(Style::Strong, "Heart disease: 270 patients, 13 measurements, embedded"))?;
        terminal.say(&format::table(
            terminal,
            &[
                ("rows", data.len().to_string()),
                (
                    "features",
                    format!("{}, {} values stored", data.points.dims(), format::count(data.points.stored() as u64)),
                ),
                ("classes", names.join(", ")),
            ],
        ))?;

        let gamma = |rule: Gamma| rule.resolve(&data.points, common.seed);
        let (scale, auto, median) = (gamma(Gamma::Scale)?, gamma(Gamma::Auto)?, gamma(Gamma::Median)?);
        terminal.say(&terminal.paint(Style::Strong, "γ by the three rules"))?;
        terminal.say(&format::table(
            terminal,
            &[
                ("scale", format!("{}  1/(d·variance)", format::number(scale, 4))),
                ("auto", format!("{}  1/d", format::number(auto, 4))),
                ("median", format!("{}  1/median squared distance", format::number(median, 4))),
            ],
        ))?;

        terminal.say(&terminal.paint(Style::Strong, "Are these Gram matrices positive semi-definite?"))?;
        let control = signal::start(&Budget::default(), threads)?;
        let mut checks = Vec::new();
        for kernel in [
            Kernel::Linear,
            Kernel::rbf(scale),
            Kernel::Laplacian { gamma: auto },
            Kernel::Matern52 { gamma: scale },
            Kernel::Sigmoid { gamma: scale, coef0: 0.0 },
        ] {
            let gram = CpuGram::square(kernel, &data.points)?;
            let options = SpectrumOptions { seed: common.seed, ..SpectrumOptions::default() };
            let (found, _) = smallest_eigenvalue(&gram, &options, &control, &mut Silent)?;
            let Some(found) = found else { return Ok(Exit::Interrupted) };
            let (style, answer) = if found.is_indefinite() { (Style::Bad, "no ") } else { (Style::Good, "yes") };
            terminal.say(&format!(
                "  {}  {:<36} smallest eigenvalue {}",
                terminal.paint(style, answer),
                describe(&kernel),
                format::number(found.smallest, 3)
            ))?;
            checks.push(
                json!({ "kernel": kernel, "psd": !found.is_indefinite(), "smallest_eigenvalue": found.smallest }),
            );
        }
        terminal.object(&json!({
            "n": data.len(),
            "d": data.points.dims(),
            "classes": names,
            "gamma": { "scale": scale, "auto": auto, "median": median },
            "checks": checks,
        }))?;
        terminal.say("\nTry one on your own data: margrave check kernel DATA --kernel rbf")?;
        Ok(Exit::Done)
    }
}
