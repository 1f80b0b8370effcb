//! How the columns of a table become features. A model keeps all of it, so these options are for commands that learn.

use clap::Args;
use margrave::io::{Column, Dates, Missing, Ordinal, ReadOptions};

use super::data::column;

/// How the columns of a table become features.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Columns")]
pub(crate) struct TableOptions {
    /// Missing values (empty, NA, ?, NaN): refuse, fill with the mean or median of the column, mean and an indicator, or
    /// leave out the row; kept in the model [default: refuse]
    #[arg(long, value_name = "RULE", value_parser = missing)]
    missing: Option<Missing>,
    /// Leave out these columns, by name or by number as for --target
    #[arg(long, value_name = "COLUMN,…", value_parser = column, allow_hyphen_values = true, conflicts_with = "only")]
    drop: Option<Column>,
    /// Use only these columns as features
    #[arg(long, value_name = "COLUMN,…", value_parser = column, allow_hyphen_values = true)]
    only: Option<Column>,
    /// A column whose words have an order: they become 0, 1, 2, …; repeat for several columns
    #[arg(long, value_name = "COLUMN=LEAST,…,GREATEST", value_parser = ordinal)]
    ordinal: Vec<Ordinal>,
    /// Columns of ISO dates: days since 1970-01-01 (number), year, month, day, weekday and hour (parts), or words (text)
    /// [default: number]
    #[arg(long, value_name = "HOW", value_parser = dates)]
    dates: Option<Dates>,
    #[command(flatten)]
    unknown: UnknownOption,
}

/// What to do with words that the training data did not contain.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Columns")]
pub(crate) struct UnknownOption {
    /// Words that the training data did not contain: refuse, or ignore them [default: refuse, or as in training]
    #[arg(long = "unknown", value_name = "RULE", value_parser = unknown)]
    ignore: Option<Ignore>,
}

/// Whether unknown words are ignored.
#[derive(Debug, Clone, Copy)]
struct Ignore(bool);

impl TableOptions {
    /// Adds these options to those of reading.
    pub(crate) fn apply(&self, options: &mut ReadOptions<'_>) {
        options.missing = self.missing.unwrap_or_default();
        options.drop.clone_from(&self.drop);
        options.only.clone_from(&self.only);
        options.ordinals.clone_from(&self.ordinal);
        options.dates = self.dates.unwrap_or_default();
        self.unknown.apply(options);
    }
}

impl UnknownOption {
    /// Adds this option to those of reading.
    pub(crate) fn apply(&self, options: &mut ReadOptions<'_>) {
        options.ignore_unknown = self.ignore.map(|ignore| ignore.0);
    }
}

fn missing(text: &str) -> Result<Missing, String> {
    text.parse().map_err(|_| format!("expected one of {}", Missing::ALL.map(Missing::name).join(", ")))
}

fn ordinal(text: &str) -> Result<Ordinal, String> {
    text.parse().map_err(|_| "expected COLUMN=LEAST,…,GREATEST with two words or more, each once".to_owned())
}

fn dates(text: &str) -> Result<Dates, String> {
    text.parse().map_err(|_| "expected number, parts or text".to_owned())
}

fn unknown(text: &str) -> Result<Ignore, String> {
    match text {
        "ignore" => Ok(Ignore(true)),
        "refuse" => Ok(Ignore(false)),
        _ => Err("expected ignore or refuse".to_owned()),
    }
}

/// Whether each parser of this file accepts a text.
pub(crate) fn accepts(text: &str) -> [bool; 4] {
    [missing(text).is_ok(), ordinal(text).is_ok(), dates(text).is_ok(), unknown(text).is_ok()]
}
