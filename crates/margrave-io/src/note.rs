//! What to know about how a file was read, though nothing was wrong.

use std::fmt;

use margrave_core::conflict::{InRust, Spelling, spell};

/// A remark on how a file was read, such as a column that looks like a name of the row.
///
/// Displayed, options are spelled as in Rust; a front end with a [`Spelling`] of its own uses [`text`](Self::text).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note(pub(crate) String);

impl Note {
    /// The remark, with options spelled as a front end writes them.
    pub fn text(&self, spelling: &dyn Spelling) -> String {
        spell(&self.0, spelling)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&InRust))
    }
}
