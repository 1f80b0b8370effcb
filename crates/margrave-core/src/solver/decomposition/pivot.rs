//! The slower and safer form of the Newton polish: one bound at a time.
//!
//! A primal active-set method on the dual problem, for problems on which pair steps are slow and the polish fails:
//! singular K (linear kernels, duplicates), huge costs, bad scaling. From a feasible β:
//!
//! 1. solve for the minimum over the free variables, with the rest fixed;
//! 2. go there, or to the first bound met, where that variable is fixed; repeat from 1 until the minimum is reached;
//! 3. release the most violating variables; end when none violates.
//!
//! The dual never falls. For a singular K_FF a ridge is added, so small that it only affects directions in which the
//! objective is flat: along those the step is long, meets a bound, and leaves the free set regular.
//!
//! Cost per pivot: |F|³/3 to factor (|F| is small here: at most the rank of K plus a few near the end), n·|F| to
//! update.

use super::polish::PolishEnd;
use super::rows::StoredEntry;
use super::state::DualState;
use super::sums;
use super::workspace::Workspace;
use crate::gram::{Pick, Precision};
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::sweep;
use crate::loss::DualTerm;
use crate::work_limit::ITERATION;

/// The largest free set this method is used on.
const MOST_FREE: usize = 1200;
/// Most multiply–adds of one run: its gain is measured in double precision before more are spent.
const MOST_MULTIPLY_ADDS: f64 = 2e9;
/// What is added to the diagonal before it is factored, relative to its largest entry.
const RIDGE: f64 = 1e-10;

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Pivots until the violation of the active variables is at most `goal`.
    pub(super) fn pivot(&mut self, state: &mut DualState, goal: f64) -> PolishEnd {
        let mut free: Vec<u32> = state.active.iter().copied().filter(|&i| state.is_free(i as usize)).collect();
        if free.len() > MOST_FREE {
            return PolishEnd::TooLarge;
        }
        let mut position = vec![u32::MAX; state.terms.len()];
        (0..state.active.len()).for_each(|a| position[state.active[a] as usize] = a as u32);
        // A variable with a kink at zero that is released there moves on the side it was released to.
        let mut side = vec![0i8; state.terms.len()];
        let mut release = 8;
        let mut without_gain = 0;
        let mut repeats = 0;
        let mut multiply_adds = 0.0;
        while multiply_adds < MOST_MULTIPLY_ADDS {
            let violation = state.violation(&state.extremes());
            if let Err(status) = self.report(state, "pivot", violation, false) {
                return PolishEnd::Stopped(status);
            }
            if violation <= goal {
                return PolishEnd::Reached;
            }
            self.iterations += 1;
            self.control.spend(ITERATION);
            let m = free.len() as f64;
            multiply_adds += m * m * (m / 3.0 + self.gram.effort().min(1e6)) + m * state.active.len() as f64 + 1e4;
            let step = match self.towards_minimum(state, &free, &side, &position) {
                Ok(step) => step,
                Err(FactorError::Interrupted(why)) => return PolishEnd::Stopped(why.into()),
                Err(FactorError::NotPositive(_)) => return PolishEnd::Slow,
            };
            free.retain(|&i| !step.blocked.contains(&i));
            if !step.blocked.is_empty() {
                without_gain = if step.gain > 0.0 { 0 } else { without_gain + 1 };
                if without_gain > 3 * release + 10 {
                    if release == 1 {
                        return PolishEnd::Slow;
                    }
                    release = 1;
                    without_gain = 0;
                }
                continue;
            }
            // The ridge makes steps too short: repeat while slopes still differ.
            if step.gain > 0.0 && step.uneven > 0.1 * goal && repeats < 4 {
                repeats += 1;
                continue;
            }
            repeats = 0;
            // At the minimum over the free set: release the worst violators.
            if !self.release(state, &mut free, &mut side, release) {
                return if state.violation(&state.extremes()) <= goal { PolishEnd::Reached } else { PolishEnd::Slow };
            }
            if free.len() > MOST_FREE {
                return PolishEnd::TooLarge;
            }
        }
        PolishEnd::Slow
    }

    /// Releases up to `count` variables on each side of each group, the most violating first. `false`: none violates.
    fn release(&self, state: &DualState, free: &mut Vec<u32>, side: &mut [i8], count: usize) -> bool {
        let multipliers = state.multipliers();
        let before = free.len();
        for (&(from, to), mu) in state.ranges.iter().zip(&multipliers) {
            let mut growing: Vec<(f64, u32)> = Vec::new();
            let mut falling: Vec<(f64, u32)> = Vec::new();
            let has_free = (from..to).any(|a| state.is_free(state.active[a] as usize));
            let extremes = sweep::extremes(&state.g[from..to], &state.up[from..to], &state.down[from..to]);
            // With no free variable in the group μ is only a guess, and the worst pair is released in any case.
            let (above, below) = if has_free || !state.paired { (*mu, *mu) } else { (extremes.down, extremes.up) };
            for a in from..to {
                let i = state.active[a];
                if state.is_free(i as usize) {
                    continue;
                }
                let (up, down) = (state.g[a] + state.up[a], state.g[a] + state.down[a]);
                if up < above {
                    growing.push((above - up, i));
                }
                if down > below {
                    falling.push((down - below, i));
                }
            }
            for (mut list, sign) in [(growing, 1i8), (falling, -1)] {
                list.sort_unstable_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
                for &(_, i) in list.iter().take(count) {
                    if !free.contains(&i) {
                        free.push(i);
                        let b = state.beta[i as usize];
                        side[i as usize] = if b != 0.0 { b.signum() as i8 } else { sign };
                    }
                }
            }
        }
        free.sort_unstable();
        free.len() > before
    }

    /// Moves from β to the minimum over `free`, or until the first bounds are met.
    fn towards_minimum(
        &mut self,
        state: &mut DualState,
        free: &[u32],
        side: &[i8],
        position: &[u32],
    ) -> Result<PivotStep, FactorError> {
        if free.is_empty() {
            return Ok(PivotStep::default());
        }
        let m = free.len();
        let signs: Vec<f64> = free
            .iter()
            .map(|&i| {
                let b = state.beta[i as usize];
                if b != 0.0 { b.signum() } else { f64::from(side[i as usize]) }
            })
            .collect();
        let slope: Vec<f64> = free
            .iter()
            .zip(&signs)
            .map(|(&i, sign)| state.g[position[i as usize] as usize] + state.terms[i as usize].eps * sign)
            .collect();
        let multipliers = state.multipliers();
        let (block, x) = self.newton_direction(state, free, &slope, &multipliers)?;
        let ends: Vec<f64> = (0..m).map(|k| piece_end(&state.terms[free[k] as usize], signs[k], x[k])).collect();
        // The share of x after which each variable meets the end of its piece.
        let ratios: Vec<f64> =
            (0..m)
                .map(|k| {
                    if x[k] == 0.0 { f64::INFINITY } else { ((ends[k] - state.beta[free[k] as usize]) / x[k]).max(0.0) }
                })
                .collect();
        let longest = ratios.iter().fold(f64::INFINITY, |longest, ratio| ratio.min(longest));
        let mut slope_along = 0.0;
        (0..m).for_each(|k| slope_along += slope[k] * x[k]);
        let mut curve = 0.0;
        for r in 0..m {
            curve += x[r] * sweep::dot(&block[r * m..(r + 1) * m], &x);
        }
        let uneven = free
            .iter()
            .zip(&slope)
            .map(|(&i, s)| (s - multipliers[state.group[i as usize] as usize]).abs())
            .fold(0.0, f64::max);
        // Already at the minimum?
        if !(slope_along < 0.0) || uneven == 0.0 {
            return Ok(PivotStep::default());
        }
        let best = if curve > 0.0 { -slope_along / curve } else { f64::INFINITY };
        let length = longest.min(best);
        if !length.is_finite() {
            return Ok(PivotStep::default());
        }
        let meets_bound: Vec<bool> = ratios.iter().map(|ratio| *ratio <= length * (1.0 + 1e-12)).collect();
        let delta: Vec<f64> = (0..m)
            .map(|k| {
                let v = free[k] as usize;
                let (old, t) = (state.beta[v], &state.terms[v]);
                let to = if meets_bound[k] { ends[k] } else { (old + length * x[k]).clamp(t.lo, t.hi) };
                to - old
            })
            .collect();
        let product = self.exact_product(state, free, &delta)?;
        for (k, &i) in free.iter().enumerate() {
            let v = i as usize;
            let to = state.beta[v] + delta[k];
            state.beta[v] = if meets_bound[k] { snap_to_end(to, &state.terms[v]) } else { to };
            state.g[position[v] as usize] += state.terms[v].d * delta[k];
        }
        state.g.iter_mut().zip(&product).for_each(|(g, p)| *g += p);
        free.iter().for_each(|&i| state.refresh(position[i as usize] as usize));
        let blocked = (0..m).filter(|&k| meets_bound[k]).map(|k| free[k]).collect();
        Ok(PivotStep { gain: -(slope_along * length + 0.5 * curve * length * length), uneven, blocked })
    }

    /// K + D over the free variables, and the move to the minimum over them that keeps every group's sum. A ridge, as
    /// small as possible, makes the matrix positive definite.
    fn newton_direction(
        &self,
        state: &DualState,
        free: &[u32],
        slope: &[f64],
        multipliers: &[f64],
    ) -> Result<(Vec<f64>, Vec<f64>), FactorError> {
        let m = free.len();
        let rows: Vec<u32> = free.iter().map(|&i| self.problem.row(i as usize) as u32).collect();
        let mut block = vec![0.0; m * m];
        self.problem.gram.block_f64(Pick::List(&rows), Pick::List(&rows), &mut block, self.control)?;
        let scale =
            free.iter().map(|&i| (state.kernel_diag[i as usize] + state.terms[i as usize].d).abs()).fold(0.0, f64::max);
        let mut ridge = RIDGE * scale.max(f64::MIN_POSITIVE);
        for (k, &i) in free.iter().enumerate() {
            block[k * m + k] += state.terms[i as usize].d;
        }
        let factor = loop {
            let mut l = block.clone();
            (0..m).for_each(|k| l[k * m + k] += ridge);
            match Cholesky::<f64>::new(l, m, m, self.control) {
                Ok(factor) => break factor,
                Err(FactorError::NotPositive(_)) if ridge < scale => ridge *= 100.0,
                Err(e) => return Err(e),
            }
        };
        let mut x: Vec<f64> =
            free.iter().zip(slope).map(|(&i, s)| multipliers[state.group[i as usize] as usize] - s).collect();
        factor.solve(&mut x);
        if state.paired {
            let groups = state.ranges.len();
            let group = |k: usize| state.group[free[k] as usize] as usize;
            let sums = |v: &[f64]| {
                let mut sums = vec![0.0; groups];
                (0..m).for_each(|k| sums[group(k)] += v[k]);
                sums
            };
            let unit = |g: usize| {
                let mut unit: Vec<f64> = (0..m).map(|k| f64::from(u8::from(group(k) == g))).collect();
                factor.solve(&mut unit);
                unit
            };
            let units: Vec<Vec<f64>> = (0..groups).map(unit).collect();
            let multipliers = sums::multipliers(&units.iter().map(|unit| sums(unit)).collect::<Vec<_>>(), &sums(&x));
            for (unit, by) in units.iter().zip(multipliers) {
                x.iter_mut().zip(unit).for_each(|(x, u)| *x -= by * u);
            }
        }
        Ok((block, x))
    }

    /// K[active, free]·delta in double precision.
    fn exact_product(&self, state: &DualState, free: &[u32], delta: &[f64]) -> Result<Vec<f64>, FactorError> {
        let mut v = vec![0.0; self.problem.gram.shape().1];
        for (&i, &d) in free.iter().zip(delta) {
            v[self.problem.row(i as usize)] += d;
        }
        let mut out = vec![0.0; state.active.len()];
        let rows = self.columns.as_deref().map_or(Pick::All, Pick::List);
        self.problem.gram.apply(Precision::Double, rows, &v, 1, &mut out, self.control)?;
        Ok(out)
    }
}

/// What one pivot did.
#[derive(Default)]
struct PivotStep {
    /// Rise of the dual objective.
    gain: f64,
    /// How far the slopes of the free variables were from equal beforehand.
    uneven: f64,
    /// Variables that met a bound and are fixed there.
    blocked: Vec<u32>,
}

/// The end of a variable's piece in the direction of `x`; `sign` is the side of a kink at zero on which it moves.
fn piece_end(t: &DualTerm, sign: f64, x: f64) -> f64 {
    let (lo, hi) = match t.eps > 0.0 {
        true if sign > 0.0 => (0.0, t.hi),
        true => (t.lo, 0.0),
        false => (t.lo, t.hi),
    };
    if x > 0.0 { hi } else { lo }
}

/// The exact end of a piece, for a β that is there up to rounding.
fn snap_to_end(b: f64, t: &DualTerm) -> f64 {
    let ends = [t.lo, 0.0, t.hi];
    ends.into_iter().filter(|e| e.is_finite()).min_by(|x, y| (x - b).abs().total_cmp(&(y - b).abs())).unwrap_or(b)
}
