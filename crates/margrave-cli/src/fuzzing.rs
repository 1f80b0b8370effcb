//! The parsers of option values, arguments and auxiliary files, for `fuzz/`. Nothing here runs a command.

use clap::Parser;

use crate::cli::Cli;
use crate::commands::{scale, tune};
use crate::failure::Failure;
use crate::libsvm;
use crate::options::range::range;
use crate::options::{data, kernel, table, train, value};

fn message(failure: Failure) -> String {
    match failure {
        Failure::Bad { message, .. } | Failure::Stopped { message, .. } => message,
        Failure::ClosedPipe => String::new(),
    }
}

/// Whether each parser of an option's value accepts a text.
pub fn options(text: &str) -> Vec<bool> {
    let mut answers = vec![
        value::number(text).is_ok(),
        value::positive(text).is_ok(),
        value::non_negative(text).is_ok(),
        value::bytes(text).is_ok(),
        range(text).is_ok(),
    ];
    answers.extend(data::accepts(text));
    answers.extend(table::accepts(text));
    answers.extend(kernel::accepts(text));
    answers.extend(train::accepts(text));
    answers.extend(tune::accepts(text));
    answers
}

/// Parses arguments, one per line, of our commands and of LIBSVM's tools.
pub fn arguments(text: &str) -> Result<(), String> {
    let words: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some(first) = words.first()
        && let Some(tool) = libsvm::Tool::named(first)
    {
        return if libsvm::accepts(tool, &words[1..]) { Ok(()) } else { Err("libsvm".to_owned()) };
    }
    let whole = std::iter::once("margrave".to_owned()).chain(words);
    Cli::try_parse_from(whole).map(drop).map_err(|e| e.kind().to_string())
}

/// Reads a table of an earlier search.
pub fn tune_table(text: &str) -> Result<(), String> {
    // The table names the data it belongs to; any name is accepted here.
    let key = text.lines().nth(1).and_then(|line| line.split(',').nth(13)).unwrap_or("").to_owned();
    tune::read_table(text, &key, "input").map(drop).map_err(message)
}

/// Reads the data and parameter files of `svm-scale`.
pub fn svm_scale(text: &str) -> Result<(), String> {
    libsvm::scale_text(text)
}

/// Reads a scaling that `scale --save` wrote.
pub fn scaling(text: &str) -> Result<(), String> {
    scale::parse(text).map(drop)
}
