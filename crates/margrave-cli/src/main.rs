//! The program `margrave`: parse, dispatch, and turn the outcome into an exit code.

mod bug;
mod cli;
mod commands;
mod failure;
mod format;
mod libsvm;
mod memory;
mod models;
mod options;
mod progress;
mod report;
mod signal;
mod terminal;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::failure::{Exit, Failure};
use crate::terminal::Terminal;

fn main() -> ExitCode {
    bug::install();
    // Unwinding, not aborting: half-written temporary files are removed on the way out.
    let exit = std::panic::catch_unwind(run).unwrap_or(Exit::Bad);
    ExitCode::from(exit.code())
}

fn run() -> Exit {
    // LIBSVM's tools have letters of their own, which ours must not take for theirs.
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(tool) = arguments.first().and_then(|name| libsvm::Tool::named(name)) {
        return libsvm::run(tool, &arguments[1..]);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help into a closed pipe is not a failure either.
            let _ = error.print();
            return if error.use_stderr() { Exit::Bad } else { Exit::Done };
        }
    };
    let terminal = Terminal::new(cli.common.json, cli.common.quiet);
    match commands::run(cli, &terminal) {
        Ok(exit) => exit,
        Err(Failure::ClosedPipe) => Exit::Done,
        Err(Failure::Stopped { why, message }) => {
            terminal.error(&message, None);
            match why {
                margrave::Interrupt::Cancelled => Exit::Interrupted,
                margrave::Interrupt::Deadline => Exit::Budget,
            }
        }
        Err(Failure::Bad { message, hint }) => {
            terminal.error(&message, hint.as_deref());
            Exit::Bad
        }
    }
}
