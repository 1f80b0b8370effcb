//! `margrave man DIR`: the manual pages of a release.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::failure::{Exit, Failure, Outcome};
use crate::terminal::Terminal;

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder for the pages; it must exist
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self, terminal: &Terminal) -> Outcome {
        let mut root = Cli::command();
        root.build();
        let mut pages = vec![root.clone()];
        pages.extend(
            root.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help").cloned(),
        );
        let mut files = Vec::new();
        for page in pages {
            // The display name of a command is `margrave-train`, which `man margrave-train` looks for.
            let name = page.get_display_name().unwrap_or_else(|| page.get_name()).to_owned();
            let path = self.folder.join(format!("{name}.1"));
            let mut text = Vec::new();
            clap_mangen::Man::new(page).title(name).render(&mut text).map_err(Failure::new)?;
            margrave::io::write_atomic(&path, |out| out.write_all(&text))?;
            terminal.say(&path.display().to_string())?;
            files.push(path.display().to_string());
        }
        terminal.object(&serde_json::json!({ "files": files }))?;
        Ok(Exit::Done)
    }
}
