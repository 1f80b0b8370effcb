//! The tables, figures and claims of five papers, computed again. One command each; see `papers/README.md`.

mod common;
mod erm;
mod irwls;
mod rls;
mod smo;
mod svmtorch;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use common::{Context, Failure, Report};
use erm::uci::Kind;

/// Computes a table, a figure or a claim of a paper again and puts it beside what the paper says.
#[derive(Parser)]
#[command(name = "margrave-papers", version)]
struct Arguments {
    /// What to compute.
    name: Name,
    /// A small part of it, in seconds: for tests.
    #[arg(long)]
    quick: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Random splits of each UCI set [default: 20, as in the paper].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    splits: Option<u16>,
    /// Print JSON instead of Markdown.
    #[arg(long)]
    json: bool,
    /// Where the Markdown page and the figures go.
    #[arg(long, value_name = "DIR", default_value = "target/papers")]
    out: PathBuf,
    /// Where the data sets are; those in the repository need none.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Name {
    /// Paper 002, Table 1: eight losses on a problem of one dimension.
    ErmTable1,
    /// Paper 002, Figures 1 to 3: densities, non-linear kernels, convergence.
    ErmFigures,
    /// Paper 002, Table 2: seven UCI sets, linear kernel.
    ErmUciLinear,
    /// Paper 002, Table 3: seven UCI sets, RBF kernel.
    ErmUciRbf,
    /// Paper 000, Figure 2: IRWLS step by step, and the claims around it.
    IrwlsFigure2,
    /// Paper 001: stop rules, shrinking, 2l variables, selection.
    Svmtorch,
    /// Paper 003: many λ, leave-one-out, primal and kernel side, hinge and square.
    Rls,
    /// Paper 004: margins, KKT cases, kernels, SMO.
    Smo,
    /// All of them.
    All,
}

const EACH: [Name; 8] = [
    Name::ErmTable1,
    Name::ErmFigures,
    Name::ErmUciLinear,
    Name::ErmUciRbf,
    Name::IrwlsFigure2,
    Name::Svmtorch,
    Name::Rls,
    Name::Smo,
];

fn run(name: Name, context: &Context) -> Result<Report, Failure> {
    match name {
        Name::ErmTable1 => erm::table1::run(context),
        Name::ErmFigures => erm::figures::run(context),
        Name::ErmUciLinear => erm::uci::run(Kind::Linear, context),
        Name::ErmUciRbf => erm::uci::run(Kind::Rbf, context),
        Name::IrwlsFigure2 => irwls::run(context),
        Name::Svmtorch => svmtorch::run(context),
        Name::Rls => rls::run(context),
        Name::Smo => smo::run(context),
        Name::All => Err(Failure::new("all is not one of the papers")),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match work(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The one line on stderr that says what went wrong.
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            ExitCode::from(2)
        }
    }
}

fn work(arguments: &Arguments) -> Result<(), Failure> {
    let names = if arguments.name == Name::All { EACH.to_vec() } else { vec![arguments.name] };
    let mut values = Vec::new();
    for name in names {
        let context = Context {
            splits: arguments.splits.map(usize::from),
            ..Context::new(arguments.quick, arguments.seed, arguments.data.clone())
        };
        let report = run(name, &context)?;
        report.save(&arguments.out)?;
        if arguments.json {
            values.push(report.json());
        } else {
            writeln!(std::io::stdout(), "{}", report.markdown())?;
        }
    }
    if arguments.json {
        let whole = if arguments.name == Name::All { values.into() } else { values.swap_remove(0) };
        writeln!(std::io::stdout(), "{whole:#}")?;
    }
    Ok(())
}
