//! Options for reading a file.

use std::path::PathBuf;
use std::str::FromStr;

use crate::schema::Schema;

/// A data file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// LIBSVM or svmlight text: `label index:value …`, one sample per line.
    Libsvm,
    /// Text with separated columns.
    Csv,
    /// One NumPy array.
    Npy,
    /// A zip of NumPy arrays, or a SciPy sparse matrix.
    Npz,
    /// Apache Parquet.
    Parquet,
    /// The big-endian arrays of the MNIST files.
    Idx,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 6] = [Format::Libsvm, Format::Csv, Format::Npy, Format::Npz, Format::Parquet, Format::Idx];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Libsvm => "libsvm",
            Format::Csv => "csv",
            Format::Npy => "npy",
            Format::Npz => "npz",
            Format::Parquet => "parquet",
            Format::Idx => "idx",
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = margrave_core::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Format::ALL
            .into_iter()
            .find(|f| f.name().eq_ignore_ascii_case(text))
            .or_else(|| text.eq_ignore_ascii_case("svmlight").then_some(Format::Libsvm))
            .ok_or_else(|| margrave_core::Error::option("format", text, Format::ALL.map(Format::name).join(", ")))
    }
}

/// A column, by its name or by its number from 0 (negative: from the end).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// By name, as in the header.
    Name(String),
    /// By number, −1 being the last.
    Number(i64),
}

impl Column {
    /// The columns of a list `a,b,c`, ignoring blanks around commas; fewer than two if this is not a list.
    pub(crate) fn list(&self) -> Vec<Column> {
        match self {
            Column::Name(text) if text.contains(',') => {
                text.split(',').map(|part| part.trim().parse().unwrap_or_else(|never| match never {})).collect()
            }
            other => vec![other.clone()],
        }
    }
}

impl FromStr for Column {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Column::Name(text.to_owned()), Column::Number))
    }
}

impl std::fmt::Display for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Column::Name(name) => f.write_str(name),
            Column::Number(number) => write!(f, "{number}"),
        }
    }
}

/// How to read a file. By default everything is detected from the file itself.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions<'a> {
    /// The format; `None`: detected by content, then by name.
    pub format: Option<Format>,
    /// The target column, or several as a name `a,b,c` that is not itself a column's; `None`: the last one. LIBSVM text
    /// has a fixed one. In an NPZ file a name refers to an array whose columns are targets.
    pub target: Option<Column>,
    /// Take every column as a feature.
    pub no_target: bool,
    /// The column of sample weights.
    pub weights: Option<Column>,
    /// Whether the first row of a CSV file contains names; `None`: detected by content.
    pub header: Option<bool>,
    /// Separator of a CSV file, where a space means any run of blanks; `None`: detected by content.
    pub separator: Option<u8>,
    /// A separate file of targets (NPY or idx).
    pub target_file: Option<PathBuf>,
    /// Encode columns as described by this schema of an earlier file; the target may then be missing.
    pub schema: Option<&'a Schema>,
    /// Store features in single precision.
    pub single: bool,
    /// Threads to read with; 0: those of the current thread pool. The result does not depend on it.
    pub threads: usize,
}
