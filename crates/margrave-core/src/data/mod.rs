//! Points, targets and weights: dense or sparse, f32 or f64, owned, or shared with another owner without a copy.

mod buffer;
mod csr;
mod dataset;
mod dense;
mod points;
mod scale;
mod targets;

pub use buffer::{Buffer, Real};
pub use csr::Csr;
pub use dataset::Dataset;
pub use dense::Dense;
pub use points::{Points, Storage};
pub use scale::{ScaleKind, Scaling};
pub use targets::{Label, Targets};
