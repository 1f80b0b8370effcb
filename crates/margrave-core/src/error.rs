//! Bad input is an [`Error`]; an outcome of a computation is a [`Status`](crate::Status).

use crate::control::Interrupt;

/// What a caller did wrong, with the numbers needed to put it right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is outside its range.
    #[error("{option} = {value} is not allowed: {allowed}")]
    Option {
        /// Name of the option, as the user writes it.
        option: &'static str,
        /// The value given.
        value: String,
        /// What would be allowed.
        allowed: String,
    },
    /// Two lengths that must agree do not.
    #[error("{what}: expected {expected}, found {found}")]
    Shape {
        /// What was measured.
        what: &'static str,
        /// The length expected.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// A value is NaN or infinite.
    #[error("{what} has a value that is not finite ({value}) at row {row}{}: remove or replace it", column.map(|c| format!(", column {c}")).unwrap_or_default())]
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
    /// The data cannot be trained on as asked (no rows, one class, negative features for χ², …).
    #[error("{message}")]
    Data {
        /// What is wrong and what to do.
        message: String,
    },
    /// A solver was asked for something it has no view of.
    #[error("the {solver} solver does not support {what}: use {instead}")]
    Unsupported {
        /// The solver asked.
        solver: &'static str,
        /// What was asked of it.
        what: String,
        /// A solver or option that does.
        instead: String,
    },
    /// The memory budget is too small for the smallest possible working set.
    #[error("{needed} bytes are needed for {what} but the memory budget is {budget} bytes: raise --memory")]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// A computation that has no partial result was stopped by its budget or by the user.
    #[error("stopped {} before there was a result", match .0 { Interrupt::Deadline => "by the time limit", Interrupt::Cancelled => "on request", Interrupt::Stalled => "for lack of progress" })]
    Interrupted(Interrupt),
}

impl From<Interrupt> for Error {
    fn from(why: Interrupt) -> Self {
        Self::Interrupted(why)
    }
}

impl Error {
    /// An [`Error::Data`] from a message.
    pub fn data(message: impl Into<String>) -> Self {
        Self::Data { message: message.into() }
    }

    /// An [`Error::Option`] from its parts.
    pub fn option(option: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self::Option { option, value: value.to_string(), allowed: allowed.into() }
    }
}

/// The result of anything that may be given bad input.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Fails with [`Error::Shape`] unless `found == expected`.
pub(crate) fn check_len(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(Error::Shape { what, expected, found }) }
}
