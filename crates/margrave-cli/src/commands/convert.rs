//! `margrave convert`: a model in another format.

use std::path::PathBuf;

use clap::Args;
use margrave::io::model::{AnyModel, LibsvmModel, load_any, to_bytes, to_onnx};
use serde_json::json;

use crate::failure::{Exit, Failure, Flags, Outcome};
use crate::models;
use crate::outputs::{self, Input};
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  margrave convert heart.model --to libsvm -o heart.libsvm   for svm-predict and compatible tools
  margrave convert heart.libsvm --to native -o heart.model   from LIBSVM or LIBLINEAR
  margrave convert heart.model --to onnx -o heart.onnx       for ONNX runtimes";

/// Arguments of `convert`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Convert {
    /// Model file of Margrave, LIBSVM or LIBLINEAR
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Format to write: native, libsvm or onnx
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    to: Format,
    /// File to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

/// A format of model files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Native,
    Libsvm,
    Onnx,
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "native" => Ok(Format::Native),
        "libsvm" => Ok(Format::Libsvm),
        "onnx" => Ok(Format::Onnx),
        _ => Err("expected native, libsvm or onnx".to_owned()),
    }
}

impl Convert {
    pub(crate) fn run(self, terminal: &Terminal) -> Outcome {
        let model = Input::new("MODEL", self.model.as_path());
        outputs::check(&[model], &[("-o", Some(self.output.as_path()))])?;
        let stored = load_any(&self.model)?;
        let refuse = |e: margrave::Error| Failure::new(format!("{}: {}", self.model.display(), e.text(&Flags)));
        let bytes = match (self.to, stored) {
            // LIBSVM to LIBSVM loses nothing.
            (Format::Libsvm, AnyModel::Libsvm(model)) => model.to_text().into_bytes(),
            (Format::Libsvm, stored) => {
                let model = models::native(stored, None)?;
                LibsvmModel::from_model(&model, None).map_err(refuse)?.to_text().into_bytes()
            }
            (Format::Native, stored) => to_bytes(&models::native(stored, None)?).map_err(refuse)?,
            (Format::Onnx, stored) => to_onnx(&models::native(stored, None)?).map_err(refuse)?,
        };
        margrave::io::write_atomic(&self.output, |out| out.write_all(&bytes))?;
        let name = self.output.display().to_string();
        terminal.say(&format!("{} bytes, written to {name}", crate::format::count(bytes.len() as u64)))?;
        terminal.object(&json!({ "bytes": bytes.len(), "output": name }))?;
        Ok(Exit::Done)
    }
}
