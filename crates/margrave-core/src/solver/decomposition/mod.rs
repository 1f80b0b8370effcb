//! Decomposition: the fast exact solver for every loss with a [`DualTerm`](crate::loss::DualTerm).
//!
//! ```text
//! minimise ½βᵀKβ + Σᵢ hᵢ(βᵢ),  hᵢ(β) = pᵢβ + epsᵢ|β| + ½dᵢβ²,  loᵢ ≤ βᵢ ≤ hiᵢ,  Σ_{i∈g} βᵢ = s_g
//! ```
//!
//! Papers 001 (decomposition, worst pair, shrinking) and 004 (the two-variable step). Differences: β is signed, so that
//! one variable per sample serves regression too; the partner of the worst variable is chosen by second order; pair
//! steps only find the active sets roughly, then Newton rounds on the free variables finish exactly (`set_newton.rs`).
//!
//! | file | what |
//! |---|---|
//! | `phases.rs` | the phases and the transitions between them |
//! | `solve.rs` | the outer loop, which runs the phases |
//! | `on_device.rs` | the start on a device whose Gram has a solver of its own |
//! | `scores.rs` | K·β and the gradient, the double-precision check |
//! | `blocks.rs` | pair steps inside blocks of variables: how the active sets are found |
//! | `block_steps.rs` | the steps inside one block |
//! | `pairs.rs` | selection and two-variable steps over all active variables |
//! | `step.rs` | the exact minimum along a pair |
//! | `set_newton.rs` | Newton rounds that change many sides at once: how most trainings end |
//! | `cascade.rs` | the same on ever more variables, in place of pair steps where that pays off |
//! | `iterative.rs` | K over the free variables as a triangle, minima by conjugate gradients |
//! | `nystrom.rs` | their preconditioner |
//! | `polish.rs` | the active-set Newton method with a factor, where set Newton is slow |
//! | `polish_round.rs` | one round of it |
//! | `newton.rs` | K over the free variables, its factor, minima |
//! | `cg.rs` | conjugate gradients that keep the sums |
//! | `pivot.rs` | the same one bound at a time, for singular and badly scaled K |
//! | `interior.rs` | the interior-point method, where active sets stall |
//! | `sums.rs` | multipliers of the sums of several groups |
//! | `workspace.rs` | what the phases share: rows, counters, reports, products |
//! | `shrinking.rs` | leaving settled variables out |
//! | `state.rs` | β, gradient, active variables |
//! | `rows.rs` | kernel rows within the memory budget |
//! | `resident.rs` | pair steps on a K that is stored in memory, for searches |
//! | `chain.rs` | chains of such problems as a device solves them |

mod block_steps;
mod blocks;
mod cascade;
mod cg;
mod chain;
mod interior;
mod iterative;
mod newton;
mod nystrom;
mod on_device;
mod options;
mod pairs;
pub mod partition;
mod phases;
mod pivot;
mod polish;
mod polish_round;
mod resident;
mod rows;
mod scores;
mod set_newton;
mod shrinking;
mod solve;
mod state;
mod step;
mod sums;
mod workspace;

pub use chain::ProcessorChains;
pub use options::Options;
pub use resident::{Scratch, Warm, at_point, resident};
pub use solve::solve;
