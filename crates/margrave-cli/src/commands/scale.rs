//! `margrave scale`: a data file with scaled features.

use std::path::{Path, PathBuf};

use clap::Args;
use margrave::engine::data::{ScaleKind, Scaling};
use margrave::io::Format;
use margrave::{Budget, Dataset};
use serde_json::json;

use crate::cli::Common;
use crate::failure::{Exit, Failure, Flags, Outcome};
use crate::format;
use crate::options::data::DataOptions;
use crate::options::table::TableOptions;
use crate::outputs::{self, Input};
use crate::terminal::{Terminal, written};

const EXAMPLES: &str = "\
Examples:
  margrave scale train.csv -o train.scaled.csv --save range.json
  margrave scale test.csv -o test.scaled.csv --restore range.json
  margrave scale train.svm --scale minmax > train.scaled.svm

'margrave train --scale standard' stores the scaling in the model, so it cannot be forgotten.";

/// Arguments of `scale`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Scale {
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    table: TableOptions,
    /// standard (mean 0, deviation 1) or minmax (to [0, 1]); zeros of sparse data stay zeros
    #[arg(long, value_name = "KIND", default_value = "standard", value_parser = ["standard", "minmax"], hide_possible_values = true)]
    scale: String,
    /// File to write: CSV or LIBSVM text by its name, or else by the input [default: stdout]
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Write the scaling to this file
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    save: Option<PathBuf>,
    /// Use the scaling in this file instead of one computed from the data
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["save", "scale"], help_heading = "Output")]
    restore: Option<PathBuf>,
}

impl Scale {
    pub(crate) fn run(mut self, common: &Common, terminal: &Terminal) -> Outcome {
        // As for inputs, - is a standard stream.
        self.output = self.output.filter(|path| path != Path::new("-"));
        let [data, targets] = self.data.inputs();
        let outputs = [("-o", self.output.as_deref()), ("--save", self.save.as_deref())];
        outputs::check(&[data, targets, Input::new("--restore", self.restore.as_deref())], &outputs)?;
        if terminal.json && self.output.is_none() {
            return Err(Failure::new("--json prints to stdout: write the data to a file with -o FILE"));
        }
        let loaded = self.data.load_table(&self.table, Budget::default().memory, common.threads().count())?;
        loaded.notes.iter().for_each(|note| terminal.note(&note.text(&Flags)));
        let data = loaded.data;
        let scaling = match &self.restore {
            Some(path) => read(path)?,
            None => {
                let kind = if self.scale == "minmax" { ScaleKind::MinMax } else { ScaleKind::Standard };
                Scaling::fit(kind, &data.points)
            }
        };
        let points = scaling.apply(&data.points.clone().widen(scaling.factor.len()))?;
        let scaled = Dataset { points, ..data };
        if let Some(path) = &self.save {
            let text = serde_json::to_string_pretty(&scaling).map_err(Failure::new)?;
            margrave::io::write_atomic(path, |out| out.write_all(text.as_bytes()))?;
        }
        let csv = self.as_csv(loaded.format);
        let write = |out: &mut dyn std::io::Write| {
            if csv { margrave::io::write_csv(&scaled, out) } else { margrave::io::write_libsvm(&scaled, out) }
        };
        match &self.output {
            Some(path) => margrave::io::write_atomic(path, write)?,
            None => written(write(&mut std::io::BufWriter::new(std::io::stdout().lock())))?,
        }
        let constant = scaling.factor.iter().filter(|f| **f == 1.0).count();
        if let Some(path) = &self.output {
            terminal.say(&format!(
                "{} rows, {} features scaled, written to {}",
                format::count(scaled.len() as u64),
                format::count((scaling.factor.len() - constant) as u64),
                path.display()
            ))?;
        }
        terminal.object(&json!({
            "n": scaled.len(),
            "d": scaled.points.dims(),
            "kind": scaling.kind,
            "output": self.output.as_ref().map(|p| p.display().to_string()),
        }))?;
        Ok(Exit::Done)
    }

    fn as_csv(&self, input: Format) -> bool {
        let name = self.output.as_ref().map(|p| p.to_string_lossy().to_lowercase()).unwrap_or_default();
        if name.ends_with(".csv") {
            true
        } else if name.ends_with(".svm") || name.ends_with(".libsvm") {
            false
        } else {
            input != Format::Libsvm
        }
    }
}

/// Reads a saved scaling.
fn read(path: &Path) -> Result<Scaling, Failure> {
    let fail = |why: String| Failure::new(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| fail(format!("cannot open it: {e}")))?;
    parse(&text).map_err(fail)
}

/// Parses a saved scaling.
pub(crate) fn parse(text: &str) -> Result<Scaling, String> {
    let scaling: Scaling =
        serde_json::from_str(text).map_err(|e| format!("not a scaling written by 'margrave scale --save': {e}"))?;
    if scaling.shift.len() != scaling.factor.len() {
        return Err(format!("{} shifts but {} factors", scaling.shift.len(), scaling.factor.len()));
    }
    if scaling.shift.iter().chain(&scaling.factor).any(|v| !v.is_finite()) {
        return Err("a number is not finite".to_owned());
    }
    Ok(scaling)
}
