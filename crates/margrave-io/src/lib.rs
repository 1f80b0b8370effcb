//! Readers and writers of data files.
//!
//! [`load`] reads LIBSVM text, CSV, NPY, NPZ, Parquet and MNIST idx files, each also gzipped, and detects the format by
//! content and name. Errors state the file, the position, the invalid text and what to do. No reader panics or uses
//! memory out of proportion to its file.
//!
//! Features are stored dense if at least a third of them are given, sparse otherwise. Text columns become one feature
//! per distinct text; the [`Schema`] that describes the encoding is stored in the model.

mod array;
mod atomic;
mod blocks;
mod c_number;
mod csv;
mod detect;
mod error;
mod guard;
mod libsvm;
pub mod model;
mod note;
mod number;
mod options;
#[cfg(feature = "parquet")]
mod parquet;
mod schema;
mod source;
mod spill;
mod storage;
mod stream;
mod table;
mod write;

use std::io::Read;
use std::path::Path;

pub use atomic::{check_writable, write_atomic};
pub use c_number::{c_number, c_number_exact};
pub use error::{Malformed, Place, ReadError, Result};
pub use guard::is_guarded;
use margrave_core::data::{Csr, Dataset, Dense, Points};
pub use note::Note;
pub use options::{Column, Dates, Format, Missing, Ordinal, ReadOptions};
pub use schema::{Encoding, ExtraColumn, FeatureColumn, Fill, Schema};
use source::ByteSource;
pub use stream::{Streamed, StreamedRows, stream, streams};
pub use write::{write_csv, write_libsvm};

/// The content of a file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Points, targets, weights and feature names.
    pub data: Dataset,
    /// The format of the file.
    pub format: Format,
    /// How its columns became features.
    pub schema: Schema,
    /// For LIBSVM text with `0:serial` first in every row, the serials: the points are then rows of a precomputed
    /// kernel matrix, row `i` being that of training sample `serials[i]` (from 1).
    pub serials: Option<Vec<u32>>,
    /// Rows of the file, from 0, that were left out because a value is missing, in order.
    pub left_out: Vec<usize>,
    /// What to know about how the file was read.
    pub notes: Vec<Note>,
}

/// Reads the file at `path`, or standard input if that is `-`.
pub fn load(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Loaded> {
    read_source(&ByteSource::open(path.as_ref())?, options)
}

/// Reads all of `reader`; `name` is used in messages and to detect the format.
pub fn read(reader: impl Read, name: &str, options: &ReadOptions) -> Result<Loaded> {
    read_source(&ByteSource::from_reader(reader, name)?, options)
}

/// Reads a file in memory; `name` is used in messages and to detect the format.
pub fn read_bytes(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<Loaded> {
    read_source(&ByteSource::from_bytes(bytes.into(), name)?, options)
}

fn read_source(source: &ByteSource, options: &ReadOptions) -> Result<Loaded> {
    if let Some(schema) = options.schema {
        schema.check().map_err(|e| ReadError::Data { file: source.name().to_owned(), source: e })?;
    }
    blocks::with_threads(options.threads, || {
        if options.single { read_as::<f32>(source, options) } else { read_as::<f64>(source, options) }
    })
}

fn read_as<T: number::Number>(source: &ByteSource, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let format = match options.format {
        Some(format) => format,
        None => detect::detect(source)?,
    };
    if let (Format::Libsvm | Format::Idx, Some(option)) = (format, options.needs_table()) {
        return Err(ReadError::Option {
            file: source.name().to_owned(),
            option,
            problem: format!("{format} files have no columns with missing values or names: leave the option out"),
        });
    }
    match format {
        Format::Libsvm => libsvm::load::<T>(source, options),
        Format::Csv => csv::load::<T>(source, options),
        Format::Npy => array::load_npy::<T>(source, options),
        Format::Npz => array::load_npz::<T>(source, options),
        Format::Idx => array::load_idx::<T>(source, options),
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::load::<T>(source, options),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(error::malformed(
            source.name(),
            "this is a Parquet file, but this program was built without Parquet",
            "build it with the feature `parquet`, or convert the file to CSV or NPY",
        )),
    }
}
