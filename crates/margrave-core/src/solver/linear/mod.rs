//! Linear models f(x) = wᵀx + b for every loss, trained on the data matrix itself in time proportional to its size.
//!
//! ```text
//! minimise over w, b:   ½‖w‖² + ½ρb² + Σᵢ cᵢ·ℓ(yᵢ, wᵀxᵢ + b)
//! ```
//!
//! | losses | method |
//! |---|---|
//! | with a dual term and a kink (hinge, ε-insensitive, pinball, …) | the proximal point method on the dual |
//! | with a dual term, smooth (squared hinge, square, Huber, …) | Newton |
//! | smooth and convex without a dual term (logistic, log-cosh, …) | Newton |
//! | the same with a steep slope (uˢ, s < 2) | the proximal point method on the dual |
//! | not convex | Newton from the hinge solution |
//!
//! Each step of the proximal point method is a smooth primal problem, solved by Newton. With many features dual
//! coordinate descent comes first; otherwise Newton on a smooth loss starts from an averaged epoch of it. For losses that are not convex the kink is smoothed, and the rest enters with its
//! curvature where that is positive.
//!
//! [`solve_l1`] replaces ½‖w‖² by the L1 penalty; [`solve_crammer_singer`] trains several classes jointly.
//!
//! Every method measures P, D and the violation before it reports `Optimal`. The gap is relative to max(|P|, |D|),
//! counts as zero within the rounding of its sums, and includes the constraint Σβ = 0 of a free bias. `Stalled` means
//! that the gap stopped falling.
//!
//! See `newton.rs`, `proximal.rs`, `coordinate.rs`, `bias_pace.rs`, `averaged.rs` and `smooth_loss.rs` for the algorithms and their papers.

mod averaged;
mod bias_pace;
mod bias_search;
mod class_lanes;
mod class_rows;
mod columns;
mod coordinate;
mod crammer_singer;
mod crammer_singer_descent;
mod crammer_singer_face;
mod crammer_singer_newton;
mod crammer_singer_system;
mod dual_loops;
mod envelope;
mod face;
mod lasso;
mod lasso_model;
mod lasso_newton;
mod line_search;
mod newton;
mod options;
pub mod partition;
mod proximal;
mod retreat;
mod rows;
mod smooth_loss;
mod solve;
mod state;
mod system;

pub use crammer_singer::{CrammerSinger, solve_crammer_singer};
pub use lasso::solve_l1;
pub use options::{LinearSolution, Method, Options, Start};
pub use solve::solve;

use crate::gram::Matrix;

/// Multiply–adds to form one Newton matrix from all rows, with `classes` weights per feature.
fn pass(matrix: &dyn Matrix, classes: usize) -> f64 {
    let unknowns = (matrix.dims() * classes).clamp(1, 500) as f64;
    (matrix.stored() + matrix.rows()) as f64 * classes as f64 * unknowns
}
