//! The Newton polish: from roughly right active sets to the exact optimum in a few factorisations.
//!
//! A dual active-set method. With F the free variables (strictly inside a quadratic piece) and everything else fixed,
//! the optimum over F solves
//!
//! ```text
//! (K_FF + D)Δ − Σ_g μ_g 1_g = −G_F,   Σ_{i∈g} Δᵢ = 0,   G = g + eps·side
//! ```
//!
//! one system of equations. A round (`polish_round.rs`) releases every fixed variable that violates, solves, pins the
//! variables that would leave their piece at its end, solves again until none leaves, and steps along the result with
//! an exact line search: the dual never falls. The factor is kept from round to round: released variables are appended,
//! pinned ones held, and it is computed anew when too many have changed. It may be in single precision: conjugate
//! gradients with it as preconditioner solve the system itself.
//!
//! When a round gains little, the active sets are not right yet, and pair steps go on.

use super::newton::Newton;
use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::Status;
use crate::linalg::factor::FactorError;
use crate::work_limit::ITERATION;

/// How a polish ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PolishEnd {
    /// The violation is at most the goal.
    Reached,
    /// It helps no longer: pair steps go on.
    Slow,
    /// Nothing was tried: most variables that would move are at the wrong bound, which pair steps find out faster.
    TooEarly,
    /// Too many free variables for the memory budget.
    TooLarge,
    /// A budget ran out, or the observer stopped the run.
    Stopped(Status),
}

/// Most rounds of one polish.
const MOST_ROUNDS: usize = 40;

/// When a polish counts as slow.
struct SlowPolish {
    /// Rounds in a row that hardly reduce the violation.
    poor_rounds: usize,
    /// Growth of the violation over the least so far.
    growth: f64,
}

/// Two poor rounds in a row end the polish, and so does a violation that has grown beyond what new active sets explain:
/// the same variables are then pinned and released in turn.
const SLOW: SlowPolish = SlowPolish { poor_rounds: 2, growth: 2.0 };
/// The same for a gradual polish.
const SLOW_GRADUAL: SlowPolish = SlowPolish { poor_rounds: 4, growth: 10.0 };

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Rounds of the polish until the violation of the active variables is at most `goal`. At most `most_free`
    /// variables may be free.
    pub(super) fn polish(
        &mut self,
        state: &mut DualState,
        newton: &mut Newton<T>,
        goal: f64,
        most_free: usize,
    ) -> PolishEnd {
        let limits = if self.gradual_polish { SLOW_GRADUAL } else { SLOW };
        let mut before = f64::INFINITY;
        let mut least = f64::INFINITY;
        let mut poor_rounds = 0;
        for _ in 0..MOST_ROUNDS {
            let violation = state.violation(&state.extremes());
            if let Err(status) = self.report(state, "polish", violation, true) {
                return PolishEnd::Stopped(status);
            }
            if violation <= goal || self.gap_suffices(state) {
                return PolishEnd::Reached;
            }
            poor_rounds = if violation > 0.7 * before { poor_rounds + 1 } else { 0 };
            least = least.min(violation);
            if poor_rounds >= limits.poor_rounds || violation > limits.growth * least {
                return PolishEnd::Slow;
            }
            before = violation;
            self.control.spend(ITERATION);
            match self.polish_round(state, newton, goal, most_free) {
                Ok(Some(round)) => {
                    self.iterations += 1;
                    if round.wrong_sets || !(round.gain > 0.0) || round.length < 1e-3 {
                        return PolishEnd::Slow;
                    }
                }
                Ok(None) => return PolishEnd::TooLarge,
                Err(FactorError::Interrupted(why)) => return PolishEnd::Stopped(why.into()),
                Err(FactorError::NotPositive(_)) => return PolishEnd::Slow,
            }
        }
        PolishEnd::Slow
    }
}
