//! The data file and how to read it.

use std::path::{Path, PathBuf};

use clap::Args;
use margrave::Budget;
use margrave::engine::gram::Matrix;
use margrave::io::{Column, Format, Loaded, ReadOptions, Schema, Streamed, StreamedRows};

use super::table::{TableOptions, UnknownOption};
use crate::failure::Failure;
use crate::outputs::Input;

/// A data file and how to read it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataOptions {
    /// Data file: LIBSVM text, CSV, NPY, NPZ, Parquet or MNIST idx, plain or gzipped; - for stdin
    #[arg(value_name = "DATA", help_heading = None)]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    reading: ReadingOptions,
}

/// How to read a data file.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct ReadingOptions {
    /// Format of the data: libsvm, csv, npy, npz, parquet or idx [default: from content and name]
    #[arg(long, value_name = "NAME", value_parser = format)]
    format: Option<Format>,
    /// Target column, by name or by number from 0 (negative: from the end); a,b,c for several targets of a
    /// regression [default: the last column]
    #[arg(long, value_name = "COLUMN", value_parser = column, allow_hyphen_values = true)]
    pub(crate) target: Option<Column>,
    /// Read the targets from this file (NPY, idx)
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    target_file: Option<PathBuf>,
    /// Use every column as a feature
    #[arg(long, conflicts_with_all = ["target", "target_file"])]
    no_target: bool,
    /// Column of sample weights
    #[arg(long, value_name = "COLUMN", value_parser = column, allow_hyphen_values = true)]
    weights: Option<Column>,
    /// Whether the first row of a CSV file holds column names [default: from content]
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no)]
    header: Option<bool>,
    /// Separator of a CSV file: one character, or tab, space, comma, semicolon [default: from content]
    #[arg(long, value_name = "CHAR", value_parser = separator)]
    separator: Option<u8>,
}

fn format(text: &str) -> Result<Format, String> {
    text.parse().map_err(|_| format!("expected one of {}", Format::ALL.map(Format::name).join(", ")))
}

pub(crate) fn column(text: &str) -> Result<Column, std::convert::Infallible> {
    text.parse()
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err("expected yes or no".to_owned()),
    }
}

fn separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        b"space" => Ok(b' '),
        b"comma" => Ok(b','),
        b"semicolon" => Ok(b';'),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("expected one ASCII character, or tab, space, comma, semicolon".to_owned()),
    }
}

/// Whether each parser of this file accepts a text.
pub(crate) fn accepts(text: &str) -> [bool; 4] {
    [format(text).is_ok(), column(text).is_ok(), yes_or_no(text).is_ok(), separator(text).is_ok()]
}

impl DataOptions {
    /// The name of the file, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The files that are read, for the check of outputs.
    pub(crate) fn inputs(&self) -> [Input<'_>; 2] {
        [Input::new("DATA", self.path.as_path()), Input::new("--target-file", self.reading.target_file.as_deref())]
    }

    /// Reads the file to learn from, with a limit of `memory` bytes.
    pub(crate) fn load_table(&self, table: &TableOptions, memory: u64, threads: usize) -> Result<Loaded, Failure> {
        let mut options = self.reading.options(None, threads);
        table.apply(&mut options);
        let loaded = margrave::io::load(&self.path, &options)?;
        check_width(&self.name(), loaded.data.points.dims(), memory)?;
        Ok(loaded)
    }

    /// Copies the rows to a temporary file in `folder`, if the data is a file larger than `limit` bytes whose rows can be
    /// read in blocks.
    pub(crate) fn stream(
        &self,
        table: &TableOptions,
        limit: u64,
        memory: u64,
        folder: &Path,
        threads: usize,
    ) -> Result<Option<(Loaded, StreamedRows)>, Failure> {
        let mut options = self.reading.options(None, threads);
        table.apply(&mut options);
        match margrave::io::streams(&self.path, &options)? {
            Some(size) if size > limit => {}
            _ => return Ok(None),
        }
        let Some(Streamed { matrix, rest }) = margrave::io::stream(&self.path, folder, &options)? else {
            return Ok(None);
        };
        check_width(&self.name(), matrix.dims(), memory.max(Budget::default().memory))?;
        Ok(Some((rest, matrix)))
    }

    /// Reads the file with the schema of an earlier one; its target may be missing. `unknown` says what to do with words
    /// that the earlier one did not contain.
    pub(crate) fn load_new(
        &self,
        schema: Option<&Schema>,
        unknown: &UnknownOption,
        threads: usize,
    ) -> Result<Loaded, Failure> {
        let mut options = self.reading.options(schema, threads);
        unknown.apply(&mut options);
        let loaded = margrave::io::load(&self.path, &options)?;
        check_width(&self.name(), loaded.data.points.dims(), Budget::default().memory)?;
        Ok(loaded)
    }

    /// Reads the file with all columns as features, unless a target is named.
    pub(crate) fn load_matrix(&self, table: &TableOptions, threads: usize) -> Result<Loaded, Failure> {
        let mut options = self.reading.options(None, threads);
        table.apply(&mut options);
        options.no_target = options.target.is_none() && options.target_file.is_none();
        let loaded = margrave::io::load(&self.path, &options)?;
        check_width(&self.name(), loaded.data.points.dims(), Budget::default().memory)?;
        Ok(loaded)
    }
}

/// Bytes per feature in training and prediction: eight rows are unpacked side by side.
const BYTES_PER_FEATURE: u64 = 64;

/// Fails if sparse rows are so wide that unpacking a few of them takes more than `memory` bytes.
pub(crate) fn check_width(file: &str, features: usize, memory: u64) -> Result<(), Failure> {
    let needed = (features as u64).saturating_mul(BYTES_PER_FEATURE);
    if needed <= memory {
        return Ok(());
    }
    Err(Failure::with_hint(
        format!(
            "{file}: the largest feature index is {features}; that many features need {:.1} GiB and the limit is {:.1} GiB",
            needed as f64 / (1u64 << 30) as f64,
            memory as f64 / (1u64 << 30) as f64
        ),
        "number the features from 1 without gaps, or raise --memory of 'train' and 'tune'",
    ))
}

impl ReadingOptions {
    fn options<'a>(&self, schema: Option<&'a Schema>, threads: usize) -> ReadOptions<'a> {
        ReadOptions {
            format: self.format,
            target: self.target.clone(),
            no_target: self.no_target,
            weights: self.weights.clone(),
            header: self.header,
            separator: self.separator,
            target_file: self.target_file.clone(),
            schema,
            threads,
            ..ReadOptions::default()
        }
    }
}
