//! The program `margrave`: parse, dispatch, and turn the outcome into an exit code.
//!
//! A library, so that the Python package can contain the program; [`run`] is what it calls.

mod bug;
mod cli;
mod commands;
mod evaluate;
mod explain;
mod failure;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod libsvm;
mod memory;
mod models;
mod options;
mod outputs;
mod paired;
mod present;
mod progress;
mod signal;
mod terminal;
mod trace;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use crate::cli::Cli;
use crate::failure::{Exit, Failure};
use crate::terminal::Terminal;

/// Runs the program with these arguments, without its own name, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    bug::install();
    // Unwinding removes half-written temporary files.
    std::panic::catch_unwind(|| dispatch(&arguments)).unwrap_or(Exit::Bad).code()
}

/// The command line as clap knows it: the commands, their options and their help.
pub fn command() -> clap::Command {
    Cli::command()
}

fn dispatch(arguments: &[OsString]) -> Exit {
    // LIBSVM's tools have their own one-letter options, which clap must not parse.
    if let Some(tool) = arguments.first().and_then(|name| libsvm::Tool::named(&name.to_string_lossy())) {
        let words: Vec<String> = arguments[1..].iter().map(|a| a.to_string_lossy().into_owned()).collect();
        return libsvm::run(tool, &words);
    }
    let whole = std::iter::once(OsString::from("margrave")).chain(arguments.iter().cloned());
    let cli = match Cli::try_parse_from(whole) {
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
                margrave::Interrupt::Deadline | margrave::Interrupt::Stalled => Exit::Budget,
            }
        }
        Err(Failure::Bad { message, hint }) => {
            terminal.error(&message, hint.as_deref());
            Exit::Bad
        }
    }
}
