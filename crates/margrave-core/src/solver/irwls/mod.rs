//! IRWLS: solves problems with any loss as a sequence of weighted least-squares problems (papers 000 and 002).
//!
//! Problem: min ½‖f‖² + Σᵢ cᵢℓ(yᵢ, f(xᵢ) + b) + s·b, where ℓ is any loss with a value and a slope. Each iteration
//! replaces the loss of every sample by a parabola (`reweight.rs`), solves the resulting linear system (`direction.rs`,
//! `system.rs`) and moves towards its solution with a line search on the objective (`search.rs`). From β = 0 with the
//! hinge loss every weight is c, so the first iteration *is* the LS-SVM.
//!
//! | file | contents |
//! |---|---|
//! | `reweight.rs` | the parabolas: majorising weights, curvatures, envelopes |
//! | `direction.rs` | free samples, samples fixed at zero or at a bound, and the direction |
//! | `system.rs` | (K_FF + W⁻¹)x = v by Cholesky |
//! | `iterative.rs` | the same on the primal side, or by conjugate gradients |
//! | `store.rs` | K and products with it |
//! | `search.rs` | the step η of paper 000, the line search of paper 002 |
//! | `subsample.rs` | a start from a subsample |
//! | `phases.rs` | the sequence of phases; majorising and Newton steps |
//! | `envelope.rs` | losses with corners, far from the solution |
//! | `rounds.rs` | losses with corners, near the solution: free samples, and samples at a bound |
//! | `certify.rs` | whether the current point meets the stopping criteria |
//! | `progress.rs` | detection of stalled runs |
//! | `solve.rs` | the entry point, the state of a run, the result |
//! | `two_step.rs` | losses that are not convex: convex start, annealing, compact models (paper 002, §3) |
//!
//! Departures from the papers. The weights c·L′(u)/u of paper 000 stall once the sets of free and fixed samples are
//! right: the weight of a sample at the corner goes to infinity, and all others converge linearly. They are only used
//! far from the solution. For smooth losses, curvatures replace them (Newton). For losses with corners, the smoothing
//! K·c of paper 000 is centred on the current dual variable. This augmented Lagrangian is exact for any K, so that K
//! may grow slowly and the system stays well conditioned. Samples at a bound or at zero leave the system, so β stays in
//! its box. The errata of paper 002 (a factor 2, a sign) are corrected in the losses.
//!
//! The reported objective never rises. Cost of an iteration: one system over the free samples, one product with K.

mod certify;
mod direction;
mod envelope;
mod iterative;
mod options;
mod phases;
mod progress;
mod reweight;
mod rounds;
mod search;
mod solve;
mod store;
mod subsample;
mod system;
#[cfg(test)]
mod tests;
mod two_step;

pub use options::{DEFAULT_CAP, Options};
pub use solve::{Irwls, solve};
pub use two_step::{Compact, TwoStep, TwoStepEnd, compact, two_step};
