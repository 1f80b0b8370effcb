//! Points, targets and weights: dense or sparse, f32 or f64, owned, or shared with another owner without a copy.

mod buffer;
mod csr;
mod dataset;
mod dense;
mod fills;
mod points;
mod scale;
mod targets;

pub use buffer::{Buffer, Real, Remote, RowHash};
pub use csr::Csr;
pub use dataset::Dataset;
pub use dense::Dense;
pub use fills::{FillRule, FilledColumn, Fills, most_frequent};
pub use points::{Points, Storage};
pub use scale::{ColumnRanges, ScaleKind, Scaling};
pub use targets::{Label, Targets};
