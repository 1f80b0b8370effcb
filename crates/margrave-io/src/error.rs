//! Errors in files: what is wrong, where, and what to do about it.

use std::fmt;

use margrave_core::conflict::{InRust, OptionName, Spelling, spell};

use crate::table::column_label;

/// Longest excerpt of a file in a message, in characters.
const EXCERPT: usize = 40;

/// The position of an error in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The file as a whole, or its head.
    File,
    /// A line, counted from 1.
    Line(u64),
    /// A byte of a line, both counted from 1.
    Text {
        /// Line, from 1.
        line: u64,
        /// Byte position in the line, from 1.
        column: u64,
    },
    /// A cell of a text table.
    Cell {
        /// Line on which the record begins, from 1.
        line: u64,
        /// Column number, from 0 as in options; messages count from 1.
        column: usize,
        /// Name of the column, where there is a header.
        name: Option<String>,
    },
    /// An entry of a binary table or array.
    Entry {
        /// Row, from 0; messages count from 1.
        row: u64,
        /// Column number, from 0; messages count from 1.
        column: Option<usize>,
        /// Name of the column or array, where it has one.
        name: Option<String>,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File => Ok(()),
            Place::Line(line) => write!(f, ", line {line}"),
            Place::Text { line, column } => write!(f, ", line {line}, byte {column}"),
            Place::Cell { line, column, name } => {
                write!(f, ", line {line}, {}", column_label(*column, name.as_deref()))
            }
            Place::Entry { row, column, name } => {
                write!(f, ", row {}", row + 1)?;
                match (column, name) {
                    (Some(column), name) => write!(f, ", {}", column_label(*column, name.as_deref())),
                    (None, Some(name)) => write!(f, " of {}", excerpt(name.as_bytes())),
                    (None, None) => Ok(()),
                }
            }
        }
    }
}

/// Content that does not conform to its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Name of the file, `-` for standard input.
    pub file: String,
    /// The position.
    pub place: Place,
    /// What is wrong.
    pub problem: String,
    /// The invalid text, quoted and truncated to a readable length.
    pub text: Option<String>,
    /// What to do about it.
    pub remedy: String,
}

impl Malformed {
    fn text(&self, spelling: &dyn Spelling) -> String {
        let found =
            self.text.as_ref().filter(|text| *text != "``").map(|text| format!(", found {text}")).unwrap_or_default();
        let (problem, remedy) = (spell(&self.problem, spelling), spell(&self.remedy, spelling));
        format!("{}{}: {problem}{found}: {remedy}", self.file, self.place)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&InRust))
    }
}

impl std::error::Error for Malformed {}

/// Why a file could not be read or written.
///
/// Displayed, options are spelled as in Rust; a front end with a [`Spelling`] of its own uses [`text`](Self::text).
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system reported an error, or compressed data is damaged.
    Io {
        /// Name of the file, `-` for standard input.
        file: String,
        /// What was attempted.
        doing: &'static str,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The content does not conform to its format.
    Malformed(Box<Malformed>),
    /// An option does not fit the file.
    Option {
        /// Name of the file, `-` for standard input.
        file: String,
        /// The option.
        option: OptionName,
        /// Why it does not fit, and what is possible.
        problem: String,
    },
    /// The values were read but do not form a valid data set.
    Data {
        /// Name of the file, `-` for standard input.
        file: String,
        /// The error of the engine.
        source: margrave_core::Error,
    },
}

impl ReadError {
    /// The message, with options spelled as a front end writes them.
    pub fn text(&self, spelling: &dyn Spelling) -> String {
        match self {
            ReadError::Io { file, doing, source } => format!("{file}: cannot {doing}: {source}"),
            ReadError::Malformed(malformed) => malformed.text(spelling),
            ReadError::Option { file, option, problem } => {
                format!("{file}: {}: {}", spelling.option(*option, None), spell(problem, spelling))
            }
            ReadError::Data { file, source } => format!("{file}: {}", source.text(spelling)),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&InRust))
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io { source, .. } => Some(source),
            ReadError::Data { source, .. } => Some(source),
            ReadError::Malformed(_) | ReadError::Option { .. } => None,
        }
    }
}

/// The result of reading.
pub type Result<T, E = ReadError> = std::result::Result<T, E>;

/// An error in one block, without the name of the file. Lines count from 1 within the block.
#[derive(Debug, Clone)]
pub(crate) struct Fault(Box<Malformed>);

impl Fault {
    pub(crate) fn new(place: Place, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (problem, remedy) = (problem.into(), remedy.into());
        Self(Box::new(Malformed { file: String::new(), place, problem, text: None, remedy }))
    }

    /// Adds the invalid bytes.
    pub(crate) fn found(mut self, text: &[u8]) -> Self {
        self.0.text = Some(excerpt(text));
        self
    }

    /// Adds the number of lines before the block.
    pub(crate) fn after(mut self, lines: u64) -> Self {
        match &mut self.0.place {
            Place::Line(line) | Place::Text { line, .. } | Place::Cell { line, .. } => *line += lines,
            Place::File | Place::Entry { .. } => {}
        }
        self
    }

    /// The error in `file`, with `lines` lines before the block.
    pub(crate) fn within(self, file: &str, lines: u64) -> ReadError {
        let mut this = self.after(lines).0;
        this.file = file.to_owned();
        ReadError::Malformed(this)
    }
}

/// A whole-file problem.
pub(crate) fn malformed(file: &str, problem: impl Into<String>, remedy: impl Into<String>) -> ReadError {
    Fault::new(Place::File, problem, remedy).within(file, 0)
}

/// `bytes` in quotes, escaped, cut after [`EXCERPT`] characters.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // A character takes at most 4 bytes; the rest of a long line is not read.
    let head = &bytes[..bytes.len().min(4 * EXCERPT + 4)];
    let text = String::from_utf8_lossy(head);
    let mut out = String::from("`");
    for (count, c) in text.chars().enumerate() {
        if count == EXCERPT {
            out.push('…');
            break;
        }
        match c {
            '\u{FFFD}' => out.push('\u{FFFD}'),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('`');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_printable() {
        assert_eq!(excerpt(b"a\tb\x00"), "`a\\tb\\u{0}`");
        assert_eq!(excerpt(&[b'x'; 1000]).chars().count(), EXCERPT + 3);
        assert_eq!(excerpt(&[0xff, b'a']), "`\u{FFFD}a`");
    }

    #[test]
    fn messages_name_file_place_text_and_remedy() {
        let place = Place::Cell { line: 2, column: 3, name: Some("age".into()) };
        let e = Fault::new(place, "a cell is empty", "fill it").found(b"").within("t.csv", 5);
        assert_eq!(e.to_string(), "t.csv, line 7, column 4 (`age`): a cell is empty: fill it");
    }
}
