//! Decomposition: the fast exact solver for every loss with a [`DualTerm`](crate::loss::DualTerm).
//!
//! ```text
//! minimise ½βᵀKβ + Σᵢ hᵢ(βᵢ),  hᵢ(β) = pᵢβ + epsᵢ|β| + ½dᵢβ²,  loᵢ ≤ βᵢ ≤ hiᵢ,  Σ_{i∈g} βᵢ = s_g
//! ```
//!
//! Papers 001 (decomposition, worst pair, shrinking) and 004 (the two-variable step). Departures: β is signed, so one
//! variable a sample serves regression too; the partner of the worst variable is chosen by second order; pair steps only
//! bring the sets roughly into place, then a Newton method on the free variables ends it exactly (`polish.rs`).
//!
//! | file | what |
//! |---|---|
//! | `solve.rs` | the outer loop: pairs, polish, the double-precision check before stopping |
//! | `blocks.rs` | pair steps inside blocks of variables: how the sets are found |
//! | `pairs.rs` | selection, two-variable steps, shrinking |
//! | `step.rs` | the exact minimum along a pair |
//! | `polish.rs` | the active-set Newton method, all violators at once |
//! | `newton.rs` | K over the free variables, its factor, minima |
//! | `pivot.rs` | the same one bound at a time, for singular and badly scaled K |
//! | `state.rs` | β, gradient, active variables |
//! | `rows.rs` | kernel rows within the memory budget |
//! | `resident.rs` | pair steps where all of K lies in memory: searches |

mod blocks;
mod newton;
mod options;
mod pairs;
mod pivot;
mod polish;
mod resident;
mod rows;
mod solve;
mod state;
mod step;

pub use options::Options;
pub use resident::{Scratch, Warm, resident};
pub use solve::solve;
