//! `margrave check kernel`: is this Gram matrix positive semi-definite?

use std::time::Instant;

use clap::{Args, Subcommand};
use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::control::{Budget, Status};
use margrave::engine::gram::{
    Gram, PrecomputedGram, Spectrum, SpectrumMethod, SpectrumOptions, asymmetry, smallest_eigenvalue,
};
use serde_json::{Value, json};

use crate::cli::Common;
use crate::failure::{Exit, Failure, Flags, Outcome};
use crate::format;
use crate::options::data::DataOptions;
use crate::options::kernel::KernelOptions;
use crate::options::table::TableOptions;
use crate::options::value;
use crate::present::prose;
use crate::progress::Progress;
use crate::signal;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave check kernel heart.svm                              the RBF kernel, γ from the data
  margrave check kernel heart.svm --kernel sigmoid --gamma 0.1
  margrave check kernel gram.npy --kernel precomputed          your own matrix
  margrave check kernel covtype.csv.gz --max-seconds 10        exit code 3 if not decided by then

Exit codes: 0 positive semi-definite, 1 not (a witness proves it), 3 or 130 stopped undecided.";

/// What to check.
#[derive(Debug, Subcommand)]
pub(crate) enum Check {
    /// Check whether a Gram matrix is positive semi-definite, by its smallest eigenvalue
    Kernel(CheckKernel),
}

impl Check {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        match self {
            Check::Kernel(kernel) => kernel.run(common, terminal),
        }
    }
}

/// Arguments of `check kernel`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckKernel {
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    table: TableOptions,
    #[command(flatten)]
    kernel: KernelOptions,
    /// Treat eigenvalues above −TOL·(largest eigenvalue) as zero [default: by double precision]
    #[arg(long, value_name = "TOL", value_parser = value::non_negative, allow_negative_numbers = true, help_heading = "Search")]
    tol: Option<f64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", value_parser = value::non_negative, allow_negative_numbers = true, help_heading = "Search")]
    max_seconds: Option<f64>,
    /// Stop after this many Lanczos steps
    #[arg(long, value_name = "N", default_value_t = 500, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Search")]
    max_iter: u32,
    /// Memory for Lanczos vectors
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = value::bytes, allow_negative_numbers = true, help_heading = "Search")]
    memory: u64,
    /// Number of witness entries to show
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Search")]
    show: usize,
}

/// The result of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Yes,
    No,
    Undecided,
}

impl CheckKernel {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        let threads = common.threads();
        let precomputed = self.kernel.is_precomputed();
        let loaded = if precomputed {
            self.data.load_matrix(&self.table, threads.count())?
        } else {
            self.data.load_table(&self.table, Budget::default().memory, threads.count())?
        };
        loaded.notes.iter().for_each(|note| terminal.note(&note.text(&Flags)));
        let points = &loaded.data.points;
        if points.is_empty() {
            return Err(Failure::new(format!("{} has no rows", self.data.name())));
        }
        if precomputed && points.len() != points.dims() {
            return Err(Failure::with_hint(
                format!("{} is {} × {}: a Gram matrix is square", self.data.name(), points.len(), points.dims()),
                "give a file that holds only the matrix",
            ));
        }
        let kernel = self.kernel.resolve(points, common.seed)?;
        let load_seconds = begun.elapsed().as_secs_f64();

        let budget = Budget { seconds: self.max_seconds, memory: self.memory, ..Budget::default() };
        budget.check()?;
        let control = signal::start(&budget, threads)?;
        let gram: Box<dyn Gram> = if precomputed {
            let gram = PrecomputedGram::new(points.clone());
            if let Some(answer) = self.not_symmetric(&gram, &control, terminal)? {
                return Ok(answer);
            }
            Box::new(gram)
        } else {
            Box::new(CpuGram::square(kernel, points)?)
        };
        let options = SpectrumOptions {
            max_steps: self.max_iter as usize,
            memory: self.memory,
            rounding: self.tol,
            seed: common.seed,
            ..SpectrumOptions::default()
        };
        let mut progress = Progress::new(terminal);
        let (found, status) = smallest_eigenvalue(gram.as_ref(), &options, &control, &mut progress)?;
        drop(progress);
        let check_seconds = control.seconds();

        let verdict = match &found {
            Some(s) if s.is_indefinite() => Verdict::No,
            Some(_) if status == Status::Optimal => Verdict::Yes,
            _ => Verdict::Undecided,
        };
        terminal.say(&self.report(terminal, verdict, status, found.as_ref(), &prose::kernel(&kernel), points.len()))?;
        terminal.object(&json!({
            "psd": match verdict { Verdict::Yes => Value::Bool(true), Verdict::No => Value::Bool(false), Verdict::Undecided => Value::Null },
            "n": points.len(),
            "d": points.dims(),
            "kernel": kernel,
            "status": status,
            "method": found.as_ref().map(|s| s.method),
            "smallest_eigenvalue": found.as_ref().map(|s| s.smallest),
            "largest_eigenvalue": found.as_ref().map(|s| s.largest),
            "residual": found.as_ref().map(|s| s.residual),
            "tolerance": found.as_ref().map(|s| s.tolerance),
            "iterations": found.as_ref().map(|s| s.steps),
            "witness": found.as_ref().map(|s| largest_entries(&s.witness, self.show)
                .into_iter().map(|(row, value)| json!({ "row": row, "value": value })).collect::<Vec<_>>()),
            "kernel_entries": gram.entries(),
            "seconds": { "load": load_seconds, "check": check_seconds, "total": begun.elapsed().as_secs_f64() },
        }))?;
        Ok(match (verdict, status) {
            (Verdict::Yes, _) => Exit::Done,
            (Verdict::No, _) => Exit::No,
            (Verdict::Undecided, Status::Interrupted) => Exit::Interrupted,
            (Verdict::Undecided, _) => Exit::Budget,
        })
    }

    /// Reports a matrix that is not symmetric, and so no Gram matrix; returns the exit code.
    fn not_symmetric(
        &self,
        gram: &PrecomputedGram,
        control: &margrave::Control,
        terminal: &Terminal,
    ) -> Result<Option<Exit>, Failure> {
        let (i, j, difference) = match asymmetry(gram, control) {
            Ok(worst) => worst,
            Err(why) => {
                let status = Status::from(why);
                terminal.say(&format!("undecided: {}", ended(status)))?;
                terminal.object(&json!({ "psd": null, "status": status }))?;
                return Ok(Some(if status == Status::Interrupted { Exit::Interrupted } else { Exit::Budget }));
            }
        };
        let scale = gram.diag().iter().fold(0.0f64, |a, v| a.max(v.abs()));
        if difference <= self.tol.unwrap_or(1e-12) * scale {
            return Ok(None);
        }
        terminal.say(&format!(
            "{}: entries ({i}, {j}) and ({j}, {i}) differ by {}",
            terminal.paint(Style::Bad, "not symmetric, so not a Gram matrix"),
            format::number(difference, 4)
        ))?;
        terminal.object(&json!({
            "psd": false,
            "n": gram.shape().0,
            "kernel": { "name": "precomputed" },
            "asymmetry": { "row": i, "column": j, "difference": difference },
        }))?;
        Ok(Some(Exit::No))
    }

    fn report(
        &self,
        terminal: &Terminal,
        verdict: Verdict,
        status: Status,
        found: Option<&Spectrum>,
        kernel: &str,
        n: usize,
    ) -> String {
        let head = match verdict {
            Verdict::Yes => terminal.paint(Style::Good, "positive semi-definite"),
            Verdict::No => terminal.paint(Style::Bad, "not positive semi-definite"),
            Verdict::Undecided => format!("{}: {}", terminal.paint(Style::Warn, "undecided"), ended(status)),
        };
        let mut rows = vec![
            ("data", format!("{}, {} rows", self.data.name(), format::count(n as u64))),
            ("kernel", kernel.into()),
        ];
        if let Some(s) = found {
            let method = match s.method {
                SpectrumMethod::Exact => "full decomposition".to_owned(),
                SpectrumMethod::Lanczos => format!("{} Lanczos steps", s.steps),
            };
            rows.push(("smallest eigenvalue", format!("{} by {method}", format::number(s.smallest, 5))));
            rows.push(("largest eigenvalue", format::number(s.largest, 5)));
            rows.push(("counts as zero", format!("above -{}", format::number(s.tolerance, 2))));
            rows.push(("residual ‖Kv − λv‖", format::number(s.residual, 2)));
            if verdict == Verdict::No {
                rows.push((
                    "witness",
                    format!("‖v‖ = 1, vᵀKv = {}; its largest entries:", format::number(s.smallest, 5)),
                ));
            }
        }
        let mut text = format!("{head}\n{}", terminal.table(&rows));
        if let (Verdict::No, Some(s)) = (verdict, found) {
            for (row, value) in largest_entries(&s.witness, self.show) {
                text += &format!("    row {row:<8} {value:+.6}\n");
            }
        }
        text
    }
}

fn ended(status: Status) -> &'static str {
    match status {
        Status::TimeLimit => "time limit reached; raise --max-seconds",
        Status::IterationLimit => "step limit reached; raise --max-iter (or --memory)",
        Status::Interrupted => "interrupted",
        Status::Stalled | Status::Inaccurate => "the decomposition did not converge",
        Status::Optimal => "",
    }
}

/// The entries of largest magnitude, largest first, with their rows.
fn largest_entries(v: &[f64], count: usize) -> Vec<(usize, f64)> {
    let mut order: Vec<(usize, f64)> = v.iter().copied().enumerate().collect();
    order.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
    order.truncate(count);
    order
}
