//! IRWLS: any loss, by a sequence of weighted least-squares problems (papers 000 and 002).
//!
//! Problem: min ½‖f‖² + Σᵢ cᵢℓ(yᵢ, f(xᵢ) + b) + s·b, ℓ any loss with a value and a slope. Each iteration puts a parabola in
//! the place of every sample's loss (`reweight.rs`), solves the linear system of the parabolas (`sets.rs`, `system.rs`) and
//! goes towards its solution as far as the objective falls (`search.rs`). From β = 0 with the hinge loss every weight is c: the first iteration
//! *is* the LS-SVM.
//!
//! | file | what |
//! |---|---|
//! | `reweight.rs` | the parabolas: majorising weights, curvatures, envelopes |
//! | `sets.rs` | free samples, and those settled at zero or at a bound; the direction |
//! | `system.rs` | (K_FF + W⁻¹)x = v by Cholesky |
//! | `iterative.rs` | the same on the primal side, or by conjugate gradients |
//! | `store.rs` | K and products with it |
//! | `search.rs` | the step η of paper 000, the line search of paper 002 |
//! | `level.rs` | a beginning from fewer samples |
//! | `envelope.rs` | losses with corners, far from the solution |
//! | `rounds.rs` | losses with corners, near it: free samples, and samples at a bound |
//! | `progress.rs` | what a stall is judged by |
//! | `solve.rs` | the phases, when to stop, what to return |
//! | `two_step.rs` | losses that are not convex: convex start, annealing, compact models (paper 002, §3) |
//!
//! Departures from the papers. 000's weights c·L′(u)/u stall once the sets are right: the weight of a sample at the corner goes to
//! infinity and every other converges linearly. They are used far from the solution only. For smooth losses curvatures take over (Newton). For losses with
//! corners the smoothing of 000, K·c, is centred on the present dual variable, an augmented Lagrangian: exact for any K, so that K
//! may grow slowly and the system stays well conditioned; samples at a bound or at zero leave the system, so β stays in its
//! box. 002's errata (a factor 2, a sign) are put right in the losses.
//!
//! The objective reported never rises. Cost of an iteration: one system over the free samples, one product with K.

mod envelope;
mod iterative;
mod level;
mod options;
mod progress;
mod reweight;
mod rounds;
mod search;
mod sets;
mod solve;
mod store;
mod system;
#[cfg(test)]
mod tests;
mod two_step;

pub use options::{CAP, Options};
pub use solve::{Irwls, solve};
pub use two_step::{Compact, TwoStep, TwoStepEnd, compact, two_step};
