//! Options for reading a file.

use std::path::PathBuf;
use std::str::FromStr;

use margrave_core::Error;
use margrave_core::conflict::OptionName;
use serde::{Deserialize, Serialize};

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
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Format::ALL
            .into_iter()
            .find(|f| f.name().eq_ignore_ascii_case(text))
            .or_else(|| text.eq_ignore_ascii_case("svmlight").then_some(Format::Libsvm))
            .ok_or_else(|| Error::option("format", text, Format::ALL.map(Format::name).join(", ")))
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

/// What happens to missing values: empty cells, `NA`, `?`, `NaN`, null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// The file is refused.
    #[default]
    Refuse,
    /// The mean of the column, or its most frequent text.
    Mean,
    /// The median of the column, or its most frequent text.
    Median,
    /// The mean of the column, or none of its texts, and one more feature that is 1 where the value is missing.
    Indicator,
    /// The row is left out.
    Row,
}

impl Missing {
    /// All rules.
    pub const ALL: [Missing; 5] = [Missing::Refuse, Missing::Mean, Missing::Median, Missing::Indicator, Missing::Row];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Missing::Refuse => "refuse",
            Missing::Mean => "mean",
            Missing::Median => "median",
            Missing::Indicator => "indicator",
            Missing::Row => "row",
        }
    }

    pub(crate) fn is_refuse(&self) -> bool {
        *self == Missing::Refuse
    }
}

impl FromStr for Missing {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Missing::ALL.into_iter().find(|rule| rule.name() == text);
        found.ok_or_else(|| Error::option("missing", text, Missing::ALL.map(Missing::name).join(", ")))
    }
}

/// How text columns of ISO dates (`2024-05-17`, also with a time of day) become features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dates {
    /// Days since 1970-01-01.
    #[default]
    Number,
    /// Year, month, day, weekday and hour.
    Parts,
    /// One feature per date, like any text.
    Text,
}

impl FromStr for Dates {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "number" => Ok(Dates::Number),
            "parts" => Ok(Dates::Parts),
            "text" => Ok(Dates::Text),
            _ => Err(Error::option("dates", text, "number, parts, text")),
        }
    }
}

/// A column whose texts have an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordinal {
    /// The column.
    pub column: Column,
    /// Its texts, from the least to the greatest; they become 0, 1, 2, ….
    pub order: Vec<String>,
}

impl FromStr for Ordinal {
    type Err = Error;
    /// Reads `COLUMN=least,…,greatest`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || Error::option("ordinal", text, "COLUMN=least,…,greatest, each text once");
        let (column, order) = text.split_once('=').ok_or_else(wrong)?;
        let order: Vec<String> = order.split(',').map(|part| part.trim().to_owned()).collect();
        let twice = (1..order.len()).any(|at| order[..at].contains(&order[at]));
        if column.is_empty() || order.len() < 2 || twice || order.iter().any(String::is_empty) {
            return Err(wrong());
        }
        let column = column.trim().parse().unwrap_or_else(|never| match never {});
        Ok(Self { column, order })
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
    /// Columns to leave out, as a name `a,b,c` or a number. Not used with a schema, which knows them.
    pub drop: Option<Column>,
    /// The only columns to take as features, as a name `a,b,c` or a number. Not used with a schema.
    pub only: Option<Column>,
    /// What happens to missing values. Not used with a schema, which knows it.
    pub missing: Missing,
    /// How dates become features. Not used with a schema.
    pub dates: Dates,
    /// Columns whose texts have an order. Not used with a schema.
    pub ordinals: Vec<Ordinal>,
    /// Whether texts that the training data did not contain are ignored; `None`: as the schema says, otherwise no.
    pub ignore_unknown: Option<bool>,
    /// Store features in single precision.
    pub single: bool,
    /// Threads to read with; 0: those of the current thread pool. The result does not depend on it.
    pub threads: usize,
}

impl ReadOptions<'_> {
    /// The first option that needs a table with columns, if one is given.
    pub(crate) fn needs_table(&self) -> Option<OptionName> {
        let asked = [
            (OptionName::Drop, self.drop.is_some()),
            (OptionName::Only, self.only.is_some()),
            (OptionName::Missing, self.missing != Missing::Refuse),
            (OptionName::Ordinal, !self.ordinals.is_empty()),
        ];
        asked.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// What happens to missing values.
    pub(crate) fn missing_rule(&self) -> Missing {
        self.schema.map_or(self.missing, |schema| schema.missing)
    }
}
