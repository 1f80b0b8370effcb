//! Set Newton rounds: the polish that begins early, when most active sets are still wrong.
//!
//! A round releases every variable that violates, finds the minimum over all that are free, pins the half of those that
//! leave their pieces which does so first, and repeats until few leave; then it steps. Many more variables change sides
//! in a round than with pair steps, and all of a round runs on all cores.
//!
//! The inner minima need not be accurate while sets change. Where K_FF is well conditioned they come from a few dozen
//! steps of conjugate gradients (`iterative.rs`). Where it is *stiff*, which shows in the number of steps, the round
//! minimises with a proximal term ρ/2·‖Δ‖² that falls as rounds succeed, with a factor (`newton.rs`) as long as F is
//! small enough for it to pay off.

use super::cg::{Deviation, Minimum, System};
use super::iterative::Iterative;
use super::newton::{MOST_CG_STEPS, Newton};
use super::polish::PolishEnd;
use super::polish_round::{MovingSet, PolishRound, first_half_to_leave, set_moves};
use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::Status;
use crate::gram::Pick;
use crate::linalg::factor::FactorError;
use crate::linalg::triangle::Triangle;
use crate::work_limit::ITERATION;

/// Most rounds of one polish.
const MOST_ROUNDS: usize = 80;
/// Rounds without reducing the least violation to `PROGRESS` of it, after which the polish is given up.
const POOR_ROUNDS: usize = 6;
/// See `POOR_ROUNDS`.
const PROGRESS: f64 = 0.7;
/// Settled variables are left out once the violation has fallen to this share.
const SHRINK_AGAIN: f64 = 0.3;
/// Most minima of a round, with variables pinned in between.
const MOST_PASSES: usize = 40;
/// Where more than one in so many free variables leave in a pass, only the first half of them is pinned, and the minimum
/// need not be accurate.
const FEW_LEAVE: usize = 8;
/// Slopes after a minimum, relative to those before: while many variables leave, when few do, and where the sets look
/// right. A step of conjugate gradients costs a small part of the product with all rows that ends a round.
const ACCURACIES: [f64; 3] = [0.4, 0.1, 0.02];
/// The sets look right if at most this share of the free variables has left in a round.
const RIGHT_SETS: f64 = 0.01;
/// Steps of conjugate gradients after which K_FF counts as stiff.
const STIFF_STEPS: usize = 45;
/// Free variables up to which a stiff K_FF is factored at once. Beyond, when conjugate gradients take long: a factor takes
/// |F|³/3 multiply–adds at the speed of a matrix product, the steps of a round some hundred passes over memory.
const FACTOR_UP_TO: usize = 3500;
/// A step whose best length is at least this is taken whole: variables that were pinned would stop short of their bounds
/// and leave again in the next round.
const WHOLE_STEP: f64 = 0.7;
/// Stored entries serve for the gradient too if their rounding changes it by less than this share of the goal.
const NEGLIGIBLE: f64 = 0.4;
/// Rounds begin once no more than so many variables are released for each free one. Where many more are, nearly all of them
/// end at a bound, and are pinned again by one expensive pass after another.
const RELEASED_PER_FREE: usize = 3;
/// Free variables up to which [`RELEASED_PER_FREE`] counts no fewer than these.
const FEW_FREE: usize = 64;
/// An early polish is given up where a larger share of the free variables leaves at once.
const MANY_LEAVE: f64 = 0.35;
/// Range of the proximal term, relative to K's largest diagonal entry, and its first value.
const PROXIMAL: (f64, f64) = (1e-5, 10.0);
const FIRST_PROXIMAL: f64 = 0.01;
/// The proximal term grows by this factor where the rounding of stored entries shows.
const NOISY: f64 = 10.0;
/// Errors of entries relative to their bound, typically, and twice that again: errors of |F|² entries make K_FF indefinite
/// by 2·√|F| of one.
const TYPICAL_ERROR: f64 = 0.3;
/// The proximal term grows where a round raises the violation by more than this factor.
const RISES: f64 = 2.0;

/// What the rounds keep from one to the next.
pub(super) struct SetNewton {
    iterative: Iterative,
    /// Whether K_FF is badly conditioned.
    pub(super) stiff: bool,
    /// The proximal term, used if stiff.
    proximal: f64,
    /// The least proximal term: smaller ones are lost in the rounding of stored entries.
    least_proximal: f64,
    /// Free variables up to which a stiff K_FF is factored.
    factor_up_to: usize,
    /// K's largest diagonal entry.
    scale: f64,
}

/// How a round ended.
enum RoundEnd {
    Moved(PolishRound, Passes),
    /// K_FF is worse conditioned than assumed: nothing was moved, and the round is to be repeated.
    Repeat,
    /// The free variables do not fit into memory.
    TooLarge,
}

/// What the passes of a round were like.
#[derive(Clone, Copy)]
struct Passes {
    count: usize,
    /// Share of the free variables that left in the first.
    first_share: f64,
}

/// The linear algebra of a round.
enum Inner<'i, T: StoredEntry> {
    Iterative(&'i mut Iterative),
    Factor(&'i mut Newton<T>),
}

impl<T: StoredEntry> Inner<'_, T> {
    fn members(&self) -> &[u32] {
        match self {
            Self::Iterative(inner) => inner.members(),
            Self::Factor(inner) => inner.members(),
        }
    }

    fn place_of(&self, i: u32) -> usize {
        match self {
            Self::Iterative(inner) => inner.place_of(i),
            Self::Factor(inner) => inner.place_of(i),
        }
    }

    fn prepare(&mut self, free: &[u32], state: &DualState, work: &Workspace<'_, '_, T>) -> Result<(), FactorError> {
        match self {
            Self::Iterative(inner) => inner.prepare(free, state, work),
            Self::Factor(inner) => inner.prepare(free, state, work),
        }
    }
}

impl SetNewton {
    /// `half`: entries of K are in [0, 1].
    pub(super) fn new(state: &DualState, half: bool) -> Self {
        let scale = state.kernel_diag.iter().fold(0.0f64, |w, k| w.max(k.abs())).max(f64::MIN_POSITIVE);
        let iterative = Iterative::new(state.terms.len(), half);
        let (proximal, least_proximal) = (FIRST_PROXIMAL * scale, PROXIMAL.0 * scale);
        Self { iterative, stiff: false, proximal, least_proximal, factor_up_to: FACTOR_UP_TO, scale }
    }

    /// Frees the memory.
    pub(super) fn free_memory(&mut self) {
        self.iterative.free_memory();
    }

    fn scale_proximal(&mut self, by: f64) {
        self.proximal = (self.proximal * by).clamp(self.least_proximal, PROXIMAL.1 * self.scale);
    }

    /// Adjusts to conjugate gradients that did not reach their accuracy over `free` variables; `false` if nothing is
    /// left to adjust.
    fn stiffer(&mut self, free: usize, most_factored: usize) -> bool {
        if !self.stiff {
            self.stiff = true;
            if self.iterative.is_half() {
                self.iterative.restart_in_single();
            }
        } else if free <= most_factored && free > self.factor_up_to {
            self.factor_up_to = free + free / 8;
        } else if self.proximal < PROXIMAL.1 * self.scale {
            self.scale_proximal(5.0);
        } else {
            return false;
        }
        true
    }
}

/// What a polish is to reach, and within which limits.
pub(super) struct SetGoal {
    /// The violation of the active variables to reach.
    pub(super) violation: f64,
    /// Most variables of a factor.
    pub(super) most_factored: usize,
    /// Whether variables that look settled are left out.
    pub(super) shrink: bool,
    /// Whether to end as slow where K_FF turns out stiff.
    pub(super) unless_stiff: bool,
    /// Share of the free variables that may leave in the first pass of a round: where more do, the round ends there.
    pub(super) most_leave: f64,
}

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Whether entries of K are in [0, 1], by its diagonal and a sample.
    pub(super) fn entries_in_unit_interval(&self, state: &DualState) -> bool {
        const SAMPLE: usize = 48;
        let n = state.terms.len();
        if n < 2 * SAMPLE || state.kernel_diag.iter().any(|k| *k != 1.0) {
            return false;
        }
        let rows: Vec<u32> = (0..SAMPLE).map(|k| self.problem.row(k * (n / SAMPLE)) as u32).collect();
        let mut sample = vec![0f32; SAMPLE * SAMPLE];
        let computed = self.gram.block_f32(Pick::List(&rows), Pick::List(&rows), &mut sample, self.control);
        computed.is_ok() && Triangle::<u16>::fits_unit_interval(&sample)
    }

    /// One round; the share of the free variables that left in its first pass, 1 where K_FF is stiff or nothing moved.
    pub(super) fn probe(
        &mut self,
        state: &mut DualState,
        sets: &mut SetNewton,
        newton: &mut Newton<T>,
        goal: &SetGoal,
    ) -> Result<f64, Status> {
        match self.set_round(state, sets, newton, goal) {
            Ok(RoundEnd::Moved(round, passes)) if round.gain > 0.0 => Ok(passes.first_share),
            Err(FactorError::Interrupted(why)) => Err(why.into()),
            Ok(_) | Err(FactorError::NotPositive(_)) => Ok(1.0),
        }
    }

    /// Rounds until the violation of the active variables is at most that of the goal.
    pub(super) fn set_newton(
        &mut self,
        state: &mut DualState,
        sets: &mut SetNewton,
        newton: &mut Newton<T>,
        goal: &SetGoal,
    ) -> PolishEnd {
        let (mut least, mut poor_rounds) = (f64::INFINITY, 0);
        let mut repeats = 0;
        let mut shrunk_at = f64::INFINITY;
        let mut violation = state.violation(&state.extremes());
        if goal.unless_stiff && sets.stiff {
            return PolishEnd::Slow;
        }
        if violation > goal.violation && releases_too_many(state, 0.25 * goal.violation) {
            return PolishEnd::TooEarly;
        }
        for _ in 0..MOST_ROUNDS {
            if let Err(status) = self.report(state, "polish", violation, true) {
                return PolishEnd::Stopped(status);
            }
            if violation <= goal.violation || self.gap_suffices(state) {
                return PolishEnd::Reached;
            }
            poor_rounds = if violation < PROGRESS * least { 0 } else { poor_rounds + 1 };
            least = least.min(violation);
            if poor_rounds > POOR_ROUNDS {
                return PolishEnd::Slow;
            }
            if goal.shrink && violation < SHRINK_AGAIN * shrunk_at {
                self.shrink_without_rows(state, 2.0 * violation);
                shrunk_at = violation;
            }
            self.control.spend(ITERATION);
            match self.set_round(state, sets, newton, goal) {
                Ok(RoundEnd::Moved(round, passes)) => {
                    self.iterations += 1;
                    let before = violation;
                    violation = state.violation(&state.extremes());
                    if sets.stiff && round.length < 1.0 {
                        // The minimum over stored entries lies beyond that of computed ones: directions in which K_FF
                        // is no larger than its rounding decide the step. Less of a proximal term never helps again.
                        let free = state.active.iter().filter(|&&i| state.is_free(i as usize)).count();
                        let rounding = TYPICAL_ERROR * self.entry_error * (free as f64).sqrt();
                        sets.least_proximal = (NOISY * sets.proximal).min(rounding).max(sets.least_proximal);
                    }
                    sets.scale_proximal(match () {
                        () if round.length < 1.0 => NOISY,
                        () if violation > RISES * before => 4.0,
                        () if passes.count <= 4 && passes.first_share < 0.5 => 0.2,
                        () if violation < before => 0.5,
                        () => 4.0,
                    });
                    if goal.unless_stiff && passes.first_share > MANY_LEAVE {
                        return PolishEnd::Slow;
                    }
                    if !(round.gain > 0.0) && (sets.stiff || !sets.stiffer(usize::MAX, 0)) {
                        return PolishEnd::Slow;
                    }
                    repeats = 0;
                }
                Ok(RoundEnd::Repeat) => {
                    repeats += 1;
                    if repeats > 8 || goal.unless_stiff {
                        return PolishEnd::Slow;
                    }
                }
                Ok(RoundEnd::TooLarge) => return PolishEnd::TooLarge,
                Err(FactorError::Interrupted(why)) => return PolishEnd::Stopped(why.into()),
                Err(FactorError::NotPositive(_)) => return PolishEnd::Slow,
            }
        }
        PolishEnd::Slow
    }

    fn set_round(
        &mut self,
        state: &mut DualState,
        sets: &mut SetNewton,
        newton: &mut Newton<T>,
        goal: &SetGoal,
    ) -> Result<RoundEnd, FactorError> {
        let most_factored = goal.most_factored;
        let multipliers = median_slopes(state);
        let slack = 0.25 * goal.violation;
        let mut moving = MovingSet::new(state, &multipliers, slack);
        let free = moving.free.iter().filter(|&&i| state.is_free(i as usize)).count();
        let most = sets.iterative.most_members(self.bytes);
        if free + 64 > most {
            return Ok(RoundEnd::TooLarge);
        }
        if moving.free.len() > most {
            moving.keep_worst_released(state, &multipliers, slack, most - free);
        }
        if moving.free.is_empty() {
            return Ok(RoundEnd::Moved(PolishRound::NO_MOVE, Passes { count: 0, first_share: 0.0 }));
        }
        let factored = sets.stiff && moving.free.len() <= sets.factor_up_to.min(most_factored);
        let proximal = if sets.stiff { sets.proximal } else { 0.0 };
        let mut inner: Inner<'_, T> = if factored {
            newton.set_proximal(proximal);
            Inner::Factor(newton)
        } else {
            sets.iterative.proximal = proximal;
            Inner::Iterative(&mut sets.iterative)
        };
        inner.prepare(&moving.free, state, self)?;
        // Before variables are pinned: the next attempt has as many again.
        let size = moving.free.len();
        let found = self.find_set_moves(state, &mut inner, &mut moving, &multipliers, goal)?;
        let Some((move_by, passes)) = found else {
            let more = sets.stiffer(size, most_factored);
            return Ok(if more { RoundEnd::Repeat } else { RoundEnd::TooLarge });
        };
        let stored = match &inner {
            Inner::Iterative(stored) if stored.rounding(move_by.iter().copied()) < NEGLIGIBLE * goal.violation => {
                Some(&**stored)
            }
            _ => None,
        };
        // Expensive entries are kept as rows over all variables.
        let moved = move_by.iter().filter(|d| **d != 0.0).count();
        let worth =
            !self.keeps_rows(moved) && stored.is_some_and(|stored| stored.members().len() * 8 > state.active.len());
        let round = self.advance(state, &moving, &move_by, WHOLE_STEP, stored.filter(|_| worth))?;
        Ok(RoundEnd::Moved(round, passes))
    }

    /// Moves of all variables to the minimum over the moving ones, with those that leave their pieces pinned at the
    /// ends. `None` if conjugate gradients take too many steps.
    fn find_set_moves(
        &self,
        state: &DualState,
        inner: &mut Inner<'_, T>,
        moving: &mut MovingSet,
        multipliers: &[f64],
        goal: &SetGoal,
    ) -> Result<Option<(Vec<f64>, Passes)>, FactorError> {
        let mut move_by = vec![0.0; state.terms.len()];
        let mut in_free = vec![false; state.terms.len()];
        moving.free.iter().for_each(|&i| in_free[i as usize] = true);
        let off = |i: &u32| moving.slope(state, *i as usize) - multipliers[state.group[*i as usize] as usize];
        let squares: f64 = moving.free.iter().map(|i| off(i).powi(2)).sum();
        let rms = (squares / moving.free.len() as f64).sqrt();
        // Members that are shrunk by now are not free: their slopes do not matter.
        let slope =
            |&i: &u32| if moving.position[i as usize] == u32::MAX { 0.0 } else { moving.slope(state, i as usize) };
        let slopes: Vec<f64> = inner.members().iter().map(slope).collect();
        let factored = matches!(inner, Inner::Factor(_));
        // With a factor accuracy costs nothing.
        let mut stage = if factored { ACCURACIES.len() - 1 } else { 0 };
        let (all, mut left) = (moving.free.len() as f64, 0);
        let mut start: Option<Vec<f64>> = None;
        let mut passes = Passes { count: 0, first_share: 0.0 };
        while passes.count < MOST_PASSES {
            let free: Vec<bool> = inner.members().iter().map(|&i| in_free[i as usize]).collect();
            let fixed: Vec<f64> =
                inner.members().iter().map(|&i| if in_free[i as usize] { 0.0 } else { move_by[i as usize] }).collect();
            let system = System {
                free: &free,
                slopes: &slopes,
                fixed: &fixed,
                start: start.take(),
                accuracy: Deviation { largest: 0.2 * goal.violation, rms: ACCURACIES[stage] * rms },
                most_steps: if factored { MOST_CG_STEPS } else { STIFF_STEPS + moving.free.len() / 1000 },
            };
            let Minimum { x, reached, .. } = match inner {
                Inner::Iterative(inner) => inner.minimum(system, state, self.control)?,
                Inner::Factor(inner) => inner.minimum(system, state, self.control)?,
            };
            if !reached && !factored {
                return Ok(None);
            }
            passes.count += 1;
            let mut leaving = set_moves(state, inner.members(), &moving.side, &in_free, &x, &mut move_by);
            if passes.count == 1 {
                passes.first_share = leaving.len() as f64 / moving.free.len() as f64;
                if passes.first_share > goal.most_leave {
                    move_by.fill(0.0);
                    break;
                }
            }
            left += leaving.len();
            if leaving.is_empty() {
                let right = left as f64 <= RIGHT_SETS * all;
                if stage + 1 == ACCURACIES.len() || (stage > 0 && !right) {
                    break;
                }
                stage += 1;
                start = Some(x);
                continue;
            }
            if leaving.len() * FEW_LEAVE > moving.free.len() {
                leaving = first_half_to_leave(&leaving, &move_by, |i| x[inner.place_of(i)]);
            } else {
                stage = stage.max(1);
            }
            leaving.iter().for_each(|&i| in_free[i as usize] = false);
            moving.free.retain(|&i| in_free[i as usize]);
            if moving.free.is_empty() {
                break;
            }
            if let Inner::Factor(newton) = inner {
                newton.hold_also(&leaving, self.control)?;
            }
            start = Some(x);
        }
        Ok(Some((move_by, passes)))
    }
}

/// Whether far more variables would be released than are free.
fn releases_too_many(state: &DualState, slack: f64) -> bool {
    let moving = MovingSet::new(state, &median_slopes(state), slack);
    let free = moving.free.iter().filter(|&&i| state.is_free(i as usize)).count();
    moving.free.len() - free > RELEASED_PER_FREE * free.max(FEW_FREE)
}

/// The median slope of the free variables of each group: a few that are far off do not shift it. Where few are free,
/// the multipliers.
fn median_slopes(state: &DualState) -> Vec<f64> {
    let mut multipliers = state.multipliers();
    if state.paired {
        for (&(from, to), mu) in state.ranges.iter().zip(&mut multipliers) {
            let free = (from..to).filter(|&a| state.is_free(state.active[a] as usize));
            let mut slopes: Vec<f64> = free.map(|a| state.g[a] + state.up[a]).collect();
            if slopes.len() > 4 {
                let middle = slopes.len() / 2;
                *mu = *slopes.select_nth_unstable_by(middle, f64::total_cmp).1;
            }
        }
    }
    multipliers
}
