//! Linear machines: f(x) = wᵀx + b, from the data matrix itself, for every loss, in time proportional to the data.
//!
//! ```text
//! minimise over w, b:   ½‖w‖² + ½ρb² + Σᵢ cᵢ·ℓ(yᵢ, wᵀxᵢ + b)
//! ```
//!
//! | losses | method |
//! |---|---|
//! | with a dual term and a kink (hinge, ε-insensitive, pinball, …) | proximal points of the dual, each a smooth primal problem solved by Newton; many features: dual coordinate descent first |
//! | with a dual term, smooth (squared hinge, square, Huber, …) | Newton |
//! | smooth and convex without one (logistic, log-cosh, …) | Newton; steep ones (uˢ, s < 2) by proximal points of the dual |
//! | not convex | the same from the solution of the hinge: the kink smoothed, the rest by its curvature where that is positive |
//!
//! [`solve_l1`] has the L1 penalty in place of ½‖w‖², [`solve_crammer_singer`] several classes at once.
//!
//! Every method measures P, D and the violation itself before it reports `Optimal`: the gap is relative to max(|P|, |D|), counts as zero
//! within the rounding of its own sums, and includes what a free bias asks of β. `Stalled` means that this gap fell no more.
//!
//! See `newton.rs`, `proximal.rs`, `coordinate.rs` and `piece.rs` for the algorithms and their papers.

mod coordinate;
mod crammer_singer;
mod crammer_singer_newton;
mod envelope;
mod face;
mod lasso;
mod lasso_model;
mod lasso_newton;
mod newton;
mod options;
mod piece;
mod proximal;
mod solve;
mod state;

pub use crammer_singer::{CrammerSinger, solve_crammer_singer};
pub use lasso::solve_l1;
pub use options::{LinearSolution, Method, Options, Start};
pub use solve::solve;

use crate::gram::Matrix;

/// Multiply–adds of one Newton matrix over all rows, `classes` weights for each feature.
fn pass(matrix: &dyn Matrix, classes: usize) -> f64 {
    let unknowns = (matrix.dims() * classes).clamp(1, 500) as f64;
    (matrix.stored() + matrix.rows()) as f64 * classes as f64 * unknowns
}
