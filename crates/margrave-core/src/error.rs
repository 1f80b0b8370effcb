//! Invalid input is an [`Error`]; how a computation ended is a [`Status`](crate::Status).

use std::fmt;

use crate::conflict::{InRust, OptionName, Remedy, Setting, Spelling, With, spell};
use crate::control::Interrupt;

/// Invalid input, with the numbers needed to correct it.
///
/// `Display` spells options as in Rust; a front end with its own [`Spelling`] uses [`text`](Self::text).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// An option cannot be combined with another, or with the data.
    Conflict {
        /// The option.
        option: Setting,
        /// What it cannot be combined with.
        with: With,
        /// Why, where that is not obvious; empty otherwise.
        why: &'static str,
        /// What to do.
        remedy: Remedy,
    },
    /// An option is outside its range.
    Option {
        /// Name of the option, as the user writes it.
        option: &'static str,
        /// The value given.
        value: String,
        /// What would be allowed.
        allowed: String,
    },
    /// Two lengths that must agree do not.
    Shape {
        /// What was measured.
        what: &'static str,
        /// The length expected.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// A value is NaN or infinite.
    NotFinite {
        /// Which array.
        what: &'static str,
        /// Row, counted from 0.
        row: usize,
        /// Column, counted from 0.
        column: Option<usize>,
        /// The value.
        value: f64,
    },
    /// The data does not allow this training (no rows, one class, negative features for χ², …).
    Data {
        /// What is wrong and what to do.
        message: String,
    },
    /// A solver does not support what the training needs.
    Unsupported {
        /// The solver.
        solver: &'static str,
        /// What it does not support.
        what: String,
        /// A solver or option to use instead.
        instead: String,
    },
    /// The memory budget is too small for the smallest possible working set.
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// A device cannot be used.
    Device {
        /// Why, and what to do.
        message: String,
    },
    /// A computation that has no partial result was stopped by its budget or by the user.
    Interrupted(Interrupt),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&InRust))
    }
}

impl From<Interrupt> for Error {
    fn from(why: Interrupt) -> Self {
        Self::Interrupted(why)
    }
}

impl Error {
    /// The message, with options spelled as a front end writes them.
    pub fn text(&self, spelling: &dyn Spelling) -> String {
        spell(&self.marked(), spelling)
    }

    /// The message, with placeholders for options.
    pub(crate) fn marked(&self) -> String {
        match self {
            Error::Conflict { option, with, why, remedy } => {
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                format!("{option} cannot be combined with {with}{why}: {remedy}")
            }
            Error::Option { option, value, allowed } => format!("{option} = {value} is not allowed: {allowed}"),
            Error::Shape { what, expected, found } => format!("{what}: expected {expected}, found {found}"),
            Error::NotFinite { what, row, column, value } => {
                let column = column.map(|c| format!(", column {c}")).unwrap_or_default();
                format!("{what} has a value that is not finite ({value}) at row {row}{column}: remove or replace it")
            }
            Error::Data { message } | Error::Device { message } => message.clone(),
            Error::Unsupported { solver, what, instead } => {
                format!("the {solver} solver does not support {what}: use {instead}")
            }
            Error::Memory { what, needed, budget } => format!(
                "{needed} bytes are needed for {what} but the memory budget is {budget} bytes: raise {}",
                OptionName::Memory
            ),
            Error::Interrupted(why) => {
                let by = match why {
                    Interrupt::Deadline => "by the time limit",
                    Interrupt::Cancelled => "on request",
                    Interrupt::Stalled => "for lack of progress",
                };
                format!("stopped {by} before there was a result")
            }
        }
    }

    /// An [`Error::Conflict`] from its parts.
    pub fn conflict(option: impl Into<Setting>, with: With, why: &'static str, remedy: Remedy) -> Self {
        Self::Conflict { option: option.into(), with, why, remedy }
    }

    /// An [`Error::Data`] from a message.
    pub fn data(message: impl Into<String>) -> Self {
        Self::Data { message: message.into() }
    }

    /// An [`Error::Option`] from its parts.
    pub fn option(option: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self::Option { option, value: value.to_string(), allowed: allowed.into() }
    }
}

/// The result of a function that may get invalid input.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Fails with [`Error::Shape`] unless `found == expected`.
pub(crate) fn check_len(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(Error::Shape { what, expected, found }) }
}
