//! `margrave svm-train`, `svm-predict` and `svm-scale`: LIBSVM's options, files and output, so that scripts written for
//! its tools work unchanged. Errors end with exit code 1, as in LIBSVM. `liblinear-train` and `liblinear-predict` are
//! LIBLINEAR's `train` and `predict` in the same way.

mod folds;
mod linear_predict;
mod linear_train;
mod predict;
mod scale;
mod shared;
mod train;

use std::path::Path;

use margrave::Budget;
use margrave::engine::data::{Dataset, Points};
use margrave::io::{Format, ReadOptions};

use crate::failure::{Exit, Failure};
use crate::options::data::check_width;
use crate::outputs::{self, Input};
use crate::terminal::Terminal;

/// One of the tools of LIBSVM or LIBLINEAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Train,
    Predict,
    Scale,
    LinearTrain,
    LinearPredict,
}

impl Tool {
    /// The tool of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "svm-train" => Some(Tool::Train),
            "svm-predict" => Some(Tool::Predict),
            "svm-scale" => Some(Tool::Scale),
            "liblinear-train" => Some(Tool::LinearTrain),
            "liblinear-predict" => Some(Tool::LinearPredict),
            _ => None,
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Tool::Train => train::USAGE,
            Tool::Predict => predict::USAGE,
            Tool::Scale => scale::USAGE,
            Tool::LinearTrain => linear_train::USAGE,
            Tool::LinearPredict => linear_predict::USAGE,
        }
    }
}

/// An error of a tool.
pub(super) enum ToolError {
    /// Wrong arguments: the usage follows the message.
    Usage(String),
    /// Anything else that failed.
    Failed(String),
    /// An output that must not be written; nothing was written, and the exit code is that of our own commands.
    Refused(String),
    /// The reader of our output has stopped reading: success.
    ClosedPipe,
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Bad { message, .. } | Failure::Stopped { message, .. } => ToolError::Failed(message),
            Failure::ClosedPipe => ToolError::ClosedPipe,
        }
    }
}

impl From<margrave::Error> for ToolError {
    fn from(error: margrave::Error) -> Self {
        ToolError::Failed(format!("ERROR: {error}"))
    }
}

impl From<margrave::io::ReadError> for ToolError {
    fn from(error: margrave::io::ReadError) -> Self {
        ToolError::Failed(error.to_string())
    }
}

/// Runs a tool with its own arguments.
pub(crate) fn run(tool: Tool, arguments: &[String]) -> Exit {
    let terminal = Terminal::new(false, false);
    if arguments.iter().any(|argument| argument == "--help") {
        let _ = terminal.write(tool.usage());
        return Exit::Done;
    }
    let outcome = match tool {
        Tool::Train => train::run(arguments, &terminal),
        Tool::Predict => predict::run(arguments, &terminal),
        Tool::Scale => scale::run(arguments, &terminal),
        Tool::LinearTrain => linear_train::run(arguments, &terminal),
        Tool::LinearPredict => linear_predict::run(arguments, &terminal),
    };
    match outcome {
        Ok(exit) => exit,
        Err(ToolError::ClosedPipe) => Exit::Done,
        Err(ToolError::Failed(message)) => {
            terminal.plain_error(&message);
            Exit::No
        }
        Err(ToolError::Refused(message)) => {
            terminal.plain_error(&message);
            Exit::Bad
        }
        Err(ToolError::Usage(message)) => {
            if !message.is_empty() {
                terminal.plain_error(&message);
            }
            let _ = terminal.write(tool.usage());
            Exit::No
        }
    }
}

/// Whether a tool understands these arguments.
pub(crate) fn accepts(tool: Tool, arguments: &[String]) -> bool {
    match tool {
        Tool::Train => train::accepts(arguments),
        Tool::LinearTrain => linear_train::accepts(arguments),
        Tool::Predict | Tool::Scale | Tool::LinearPredict => true,
    }
}

/// Reads a text as data and as parameters of `svm-scale`, and scales the one by the other.
pub(crate) fn scale_text(text: &str) -> Result<(), String> {
    scale::both(text).map_err(|error| match error {
        ToolError::Usage(message) | ToolError::Failed(message) | ToolError::Refused(message) => message,
        ToolError::ClosedPipe => String::new(),
    })
}

/// Fails if an output is an input, or cannot be written.
pub(super) fn check_files(inputs: &[(&str, &str)], output: (&str, &str)) -> Result<(), ToolError> {
    let inputs: Vec<Input<'_>> = inputs.iter().map(|(name, path)| Input::new(name, Path::new(*path))).collect();
    outputs::check(&inputs, &[(output.0, Some(Path::new(output.1)))]).map_err(|failure| match failure {
        Failure::Bad { message, hint } => ToolError::Refused(match hint {
            Some(hint) => format!("{message}: {hint}"),
            None => message,
        }),
        other => other.into(),
    })
}

/// A data file in LIBSVM's format, with the serials of a precomputed kernel.
pub(super) fn read(path: &str) -> Result<(Dataset, Option<Vec<u32>>), ToolError> {
    if !Path::new(path).exists() {
        return Err(ToolError::Failed(format!("can't open input file {path}")));
    }
    let options = ReadOptions { format: Some(Format::Libsvm), ..ReadOptions::default() };
    let loaded = margrave::io::load(path, &options)?;
    check_width(path, loaded.data.points.dims(), Budget::default().memory)?;
    Ok((loaded.data, loaded.serials))
}

/// The number of an option's value.
pub(super) fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, ToolError> {
    text.parse().map_err(|_| ToolError::Usage(format!("{option} needs a number, not {text:?}")))
}

/// The square matrix of a precomputed kernel: rows as given, columns by serial. Fails if a serial has no column.
pub(super) fn square(points: &Points, serials: &[u32], rows: &[u32]) -> Result<Points, ToolError> {
    let mut values = Vec::with_capacity(rows.len() * rows.len());
    let mut row = vec![0.0; points.dims()];
    for &i in rows {
        points.copy_row(i as usize, &mut row);
        for &j in rows {
            let serial = serials[j as usize] as usize;
            let value = serial.checked_sub(1).and_then(|column| row.get(column));
            values.push(*value.ok_or_else(|| {
                ToolError::Failed(format!("Wrong kernel matrix or sample_serial_number out of range: {serial}"))
            })?);
        }
    }
    Ok(Points::dense_f64(rows.len(), rows.len(), values)?)
}
