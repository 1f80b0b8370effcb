//! One file a command.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod losses;

use crate::cli::{Cli, Command};
use crate::failure::Outcome;
use crate::terminal::Terminal;

/// Runs the command asked for.
pub(crate) fn run(cli: Cli, terminal: &Terminal) -> Outcome {
    match cli.command {
        Command::Check(check) => check.run(&cli.common, terminal),
        Command::Demo(demo) => demo.run(&cli.common, terminal),
        Command::Losses(losses) => losses.run(terminal),
        Command::Completions(completions) => completions.run(terminal),
    }
}
