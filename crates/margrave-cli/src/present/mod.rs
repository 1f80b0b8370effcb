//! How results are shown: as JSON, as lines of text, as charts and as an HTML report.
//!
//! The functions here turn a fit, a model, a certificate or a search into a value. They write nothing, so that the
//! terminal and a web page can show the same result in the same words.

pub(crate) mod chart;
pub(crate) mod comparison;
mod figures;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod prose;
pub(crate) mod quality;

use margrave::Fit;
use margrave::io::Loaded;

use crate::memory;

/// Lines of text, each a name and a value.
pub(crate) type Rows = Vec<(&'static str, String)>;

/// The row of the file, from 1, that a row of the data is. `left_out`: rows of the file, from 0, that are not part of the data, in
/// order.
pub(crate) fn row_in_file(row: usize, left_out: &[usize]) -> usize {
    1 + left_out.iter().fold(row, |row, &gap| if gap <= row { row + 1 } else { row })
}

/// What a fit does not know about its training: where the data came from, where the model went, how long it all took.
pub(crate) struct FitContext<'a> {
    /// Name of the data.
    pub(crate) data: &'a str,
    /// Format of the data.
    pub(crate) format: &'static str,
    /// Path of the model, or why there is none.
    pub(crate) model: &'a str,
    /// Seconds to read the data.
    pub(crate) load_seconds: f64,
    /// Seconds for everything.
    pub(crate) total_seconds: f64,
    /// Peak memory of the process.
    pub(crate) peak_memory: Option<u64>,
}

impl<'a> FitContext<'a> {
    /// The context of a fit in memory: no time but its own.
    pub(crate) fn new(fit: &Fit, loaded: &Loaded, data: &'a str, model: &'a str) -> Self {
        Self {
            data,
            format: loaded.format.name(),
            model,
            load_seconds: 0.0,
            total_seconds: fit.totals().seconds,
            peak_memory: memory::peak_bytes(),
        }
    }
}
