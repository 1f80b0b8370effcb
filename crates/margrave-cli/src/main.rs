//! The program `margrave`; see the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(margrave_cli::run(std::env::args_os().skip(1)))
}
