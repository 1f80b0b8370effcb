//! `margrave completions SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::{Exit, Failure, Outcome};
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  margrave completions bash > ~/.local/share/bash-completion/completions/margrave
  margrave completions zsh > ~/.zfunc/_margrave
  margrave completions fish > ~/.config/fish/completions/margrave.fish";

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Shell to print completions for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, terminal: &Terminal) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "margrave", &mut script);
        let script = String::from_utf8(script).map_err(Failure::new)?;
        if terminal.json {
            terminal.object(&serde_json::json!({ "shell": self.shell.to_string(), "script": script }))?;
        } else {
            terminal.write(&script)?;
        }
        Ok(Exit::Done)
    }
}
