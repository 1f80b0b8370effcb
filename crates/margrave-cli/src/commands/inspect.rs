//! `margrave inspect`: the contents of a model file.

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Exit, Outcome};
use crate::models;
use crate::present::{json, prose};
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave inspect heart.model
  margrave inspect heart.model --json";

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inspect {
    /// Model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
}

impl Inspect {
    pub(crate) fn run(self, terminal: &Terminal) -> Outcome {
        let model = models::load(&self.model, None)?;
        let schema = margrave::io::model::schema(&model)?;
        let rows = prose::model(&model, schema.as_ref());
        terminal.say(&terminal.summary(Style::Strong, &self.model.display().to_string(), &rows))?;
        terminal.object(&json::model(&model, schema.as_ref()))?;
        Ok(Exit::Done)
    }
}
