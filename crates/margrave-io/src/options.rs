//! What a caller may say about a file.

use std::path::PathBuf;
use std::str::FromStr;

use crate::schema::Schema;

/// A form of data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// LIBSVM or svmlight text: `label index:value …`, one sample a line.
    Libsvm,
    /// Text with separated columns.
    Csv,
    /// One NumPy array.
    Npy,
    /// A zip of NumPy arrays, or a SciPy sparse matrix.
    Npz,
    /// Apache Parquet.
    Parquet,
    /// The big-endian byte arrays MNIST is published in.
    Idx,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 6] = [Format::Libsvm, Format::Csv, Format::Npy, Format::Npz, Format::Parquet, Format::Idx];

    /// The name users write.
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
    /// The columns of a list `a,b,c`, blanks around commas left out; fewer than two if this is no list.
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

/// How to read a file. The default tells everything from the file itself.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions<'a> {
    /// The format; `None`: told by content, then by name.
    pub format: Option<Format>,
    /// The target column, or several as a name `a,b,c` that is not itself a column's; `None`: the last one. LIBSVM text has its
    /// own. In an NPZ file a name is that of an array, whose columns are targets.
    pub target: Option<Column>,
    /// Take every column as a feature.
    pub no_target: bool,
    /// The column of sample weights.
    pub weights: Option<Column>,
    /// Whether the first row of a CSV file holds names; `None`: told by content.
    pub header: Option<bool>,
    /// Separator of a CSV file, a space meaning any run of blanks; `None`: told by content.
    pub separator: Option<u8>,
    /// Targets in a file of their own (NPY or idx).
    pub target_file: Option<PathBuf>,
    /// Encode as this earlier file was encoded; the target may then be missing.
    pub schema: Option<&'a Schema>,
    /// Store features in single precision.
    pub single: bool,
    /// Threads to read with; 0: those of the current thread pool. The result does not depend on it.
    pub threads: usize,
}
