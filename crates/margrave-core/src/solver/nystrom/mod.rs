//! Kernel models on few centres for many rows: K is replaced by K̂ = FFᵀ with F = K_nS·L⁻ᵀ, K_SS = L·Lᵀ.
//!
//! ```text
//! minimise over w, b:   ½‖w‖² + Σᵢ cᵢ·ℓ(yᵢ, Fᵢw + b),        f = Σⱼ aⱼ·k(sⱼ, ·),  a = L⁻ᵀw,  ‖f‖² = ‖w‖²
//! ```
//!
//! This is the exact problem restricted to the span of the centres S, and a linear problem on the features F: the linear
//! solver trains it for every loss. What the restriction costs is not known here: `certificate/` bounds it.
//!
//! Centres are drawn by accelerated randomly pivoted Cholesky (`centres.rs`). F is stored if it fits into memory and there are not
//! too many centres; otherwise products with it are computed from blocks of K_nS (`recomputed.rs`), of which as many rows are kept as
//! fit (`kept.rs`). A solution for some of the rows is the start for all of them (`solve.rs`). A device that computes entries may keep the partial
//! factor of the search and compute products with F itself (`Gram::pivoted`, `Gram::features`).
//!
//! Cost of m centres for n rows of d features: q·m² multiply–adds to choose them among q rows, n·m² for stored features,
//! n·m·d for each product with features that are not stored. Memory: m² + q·m, and n·m for stored features.

mod centres;
#[cfg(test)]
mod device_tests;
mod features;
mod kept;
mod kept_entry;
mod options;
mod recomputed;
mod solve;
mod some_rows;
mod stored;
#[cfg(test)]
mod tests;

pub use centres::CentreSearch;
pub use features::{Centres, FeatureSet, Features};
pub use options::Options;
pub use solve::{NystromSolution, solve};
