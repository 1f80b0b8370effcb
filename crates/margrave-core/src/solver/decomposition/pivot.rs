//! The careful form of the Newton polish: one bound at a time.
//!
//! A primal active-set method on the dual problem, for what pair steps crawl on and the fast polish cannot untangle:
//! singular K (linear kernels, duplicates), huge costs, bad scaling. From a feasible β:
//!
//! 1. solve for the minimum over the free variables, the rest fixed;
//! 2. go there, or as far as the first bound met, which is then fixed; repeat from 1 until the minimum is reached;
//! 3. release the most violating variables; end when none violates.
//!
//! The dual never falls. A singular K_FF is met by a ridge so small that only directions in which the objective is flat
//! feel it: along those the step is long, meets a bound, and leaves the free set regular.
//!
//! Cost a pivot: |F|³/3 to factor (|F| is small here: at most the rank of K plus a few once settled), n·|F| to update.

use super::pairs::Work;
use super::polish::Polished;
use super::rows::Stored;
use super::state::State;
use crate::gram::Pick;
use crate::linalg::factor::{Cholesky, FactorError};
use crate::work_limit::ITERATION;

/// The largest free set this method is used on.
pub(super) const MOST: usize = 1200;
/// Multiply–adds of one run at most: what it has gained by then is looked at in double precision before more is spent.
const WORK: f64 = 2e9;
/// What is added to the diagonal before it is factored, relative to its largest entry.
const RIDGE: f64 = 1e-10;

impl<T: Stored> Work<'_, '_, T> {
    /// Pivots until the violation of the active variables is at most `goal`.
    pub(super) fn pivot(&mut self, state: &mut State, goal: f64) -> Polished {
        let mut free: Vec<u32> = state.active.iter().copied().filter(|&i| state.is_free(i as usize)).collect();
        if free.len() > MOST {
            return Polished::TooLarge;
        }
        let mut position = vec![u32::MAX; state.terms.len()];
        (0..state.active.len()).for_each(|a| position[state.active[a] as usize] = a as u32);
        // Released at zero, a variable with a kink there moves on the side it was released to.
        let mut side = vec![0i8; state.terms.len()];
        let mut release = 8;
        let mut idle = 0;
        let mut again = 0;
        let mut work = 0.0;
        while work < WORK {
            let violation = state.violation(&state.extremes());
            if let Err(status) = self.report(state, "pivot", violation, false) {
                return Polished::Stopped(status);
            }
            if violation <= goal {
                return Polished::Reached;
            }
            self.iterations += 1;
            self.control.spend(ITERATION);
            let m = free.len() as f64;
            work += m * m * (m / 3.0 + self.gram.effort().min(1e6)) + m * state.active.len() as f64 + 1e4;
            let step = match self.towards_minimum(state, &free, &side, &position) {
                Ok(step) => step,
                Err(FactorError::Interrupted(why)) => return Polished::Stopped(why.into()),
                Err(FactorError::NotPositive(_)) => return Polished::Slow,
            };
            free.retain(|&i| !step.blocked.contains(&i));
            if !step.blocked.is_empty() {
                idle = if step.gain > 0.0 { 0 } else { idle + 1 };
                if idle > 3 * release + 10 {
                    if release == 1 {
                        return Polished::Slow;
                    }
                    release = 1;
                    idle = 0;
                }
                continue;
            }
            // A ridge makes the step to the minimum fall short of it: go on while the slopes still even out.
            if step.gain > 0.0 && step.uneven > 0.1 * goal && again < 4 {
                again += 1;
                continue;
            }
            again = 0;
            // The minimum over the free set: release the worst.
            if !self.release(state, &mut free, &mut side, release) {
                return if state.violation(&state.extremes()) <= goal { Polished::Reached } else { Polished::Slow };
            }
            if free.len() > MOST {
                return Polished::TooLarge;
            }
        }
        Polished::Slow
    }

    /// Frees up to `count` variables on each side of each group, the most violating first. `false`: none violates.
    fn release(&self, state: &State, free: &mut Vec<u32>, side: &mut [i8], count: usize) -> bool {
        let multipliers = state.multipliers();
        let before = free.len();
        for (&(from, to), mu) in state.ranges.iter().zip(&multipliers) {
            let mut growing: Vec<(f64, u32)> = Vec::new();
            let mut falling: Vec<(f64, u32)> = Vec::new();
            let has_free = (from..to).any(|a| state.is_free(state.active[a] as usize));
            let extremes =
                crate::linalg::sweep::extremes(&state.g[from..to], &state.up[from..to], &state.down[from..to]);
            // With nothing free in the group μ is only a guess: the worst pair is released whatever it says.
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
        state: &mut State,
        free: &[u32],
        side: &[i8],
        position: &[u32],
    ) -> Result<Move, FactorError> {
        if free.is_empty() {
            return Ok(Move { gain: 0.0, uneven: 0.0, blocked: Vec::new() });
        }
        let m = free.len();
        let sign = |v: usize| {
            let b = state.beta[v];
            if b != 0.0 { b.signum() } else { f64::from(side[v]) }
        };
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
        let slope: Vec<f64> = free
            .iter()
            .map(|&i| state.g[position[i as usize] as usize] + state.terms[i as usize].eps * sign(i as usize))
            .collect();
        let multipliers = state.multipliers();
        let mut x: Vec<f64> =
            free.iter().zip(&slope).map(|(&i, s)| multipliers[state.group[i as usize] as usize] - s).collect();
        factor.solve(&mut x);
        if state.paired {
            for g in 0..state.ranges.len() {
                let member = |k: usize| f64::from(u8::from(state.group[free[k] as usize] as usize == g));
                let mut unit: Vec<f64> = (0..m).map(member).collect();
                factor.solve(&mut unit);
                let (sum, per) = (0..m).fold((0.0, 0.0), |(s, p), k| (s + member(k) * x[k], p + member(k) * unit[k]));
                if per > 0.0 {
                    (0..m).for_each(|k| x[k] -= sum / per * unit[k]);
                }
            }
        }
        // The largest step inside the pieces, and who ends it.
        let mut most = f64::INFINITY;
        let end = |k: usize| {
            let v = free[k] as usize;
            let t = &state.terms[v];
            let (lo, hi) = match (t.eps > 0.0, sign(v)) {
                (true, s) if s > 0.0 => (0.0, t.hi),
                (true, _) => (t.lo, 0.0),
                _ => (t.lo, t.hi),
            };
            if x[k] > 0.0 { hi } else { lo }
        };
        let ratio = |k: usize| {
            if x[k] == 0.0 { f64::INFINITY } else { ((end(k) - state.beta[free[k] as usize]) / x[k]).max(0.0) }
        };
        (0..m).for_each(|k| most = ratio(k).min(most));
        let mut slope_along = 0.0;
        (0..m).for_each(|k| slope_along += slope[k] * x[k]);
        let mut curve = 0.0;
        for r in 0..m {
            curve += x[r] * crate::linalg::sweep::dot(&block[r * m..(r + 1) * m], &x);
        }
        // At the minimum already, up to what the goal asks for?
        let uneven = free
            .iter()
            .zip(&slope)
            .map(|(&i, s)| (s - multipliers[state.group[i as usize] as usize]).abs())
            .fold(0.0, f64::max);
        if !(slope_along < 0.0) || uneven == 0.0 {
            return Ok(Move { gain: 0.0, uneven: 0.0, blocked: Vec::new() });
        }
        let best = if curve > 0.0 { -slope_along / curve } else { f64::INFINITY };
        let length = most.min(best);
        if !length.is_finite() {
            return Ok(Move { gain: 0.0, uneven: 0.0, blocked: Vec::new() });
        }
        let blocked: Vec<u32> = (0..m).filter(|&k| ratio(k) <= length * (1.0 + 1e-12)).map(|k| free[k]).collect();
        let mut delta = Vec::with_capacity(m);
        for k in 0..m {
            let v = free[k] as usize;
            let old = state.beta[v];
            let to = if blocked.contains(&free[k]) {
                end(k)
            } else {
                (old + length * x[k]).clamp(state.terms[v].lo, state.terms[v].hi)
            };
            delta.push(to - old);
        }
        let product = self.exact_product(state, free, &delta)?;
        for (k, &i) in free.iter().enumerate() {
            let v = i as usize;
            let a = position[v] as usize;
            state.beta[v] = if blocked.contains(&i) {
                end_value(state.beta[v] + delta[k], &state.terms[v])
            } else {
                state.beta[v] + delta[k]
            };
            state.g[a] += state.terms[v].d * delta[k];
        }
        state.g.iter_mut().zip(&product).for_each(|(g, p)| *g += p);
        free.iter().for_each(|&i| state.refresh(position[i as usize] as usize));
        Ok(Move { gain: -(slope_along * length + 0.5 * curve * length * length), uneven, blocked })
    }

    /// K[active, free]·delta in double precision.
    fn exact_product(&self, state: &State, free: &[u32], delta: &[f64]) -> Result<Vec<f64>, FactorError> {
        let mut v = vec![0.0; self.problem.gram.shape().1];
        for (&i, &d) in free.iter().zip(delta) {
            v[self.problem.row(i as usize)] += d;
        }
        let mut out = vec![0.0; state.active.len()];
        let rows = self.columns.as_deref().map_or(Pick::All, Pick::List);
        self.problem.gram.apply(crate::gram::Precision::Double, rows, &v, 1, &mut out, self.control)?;
        Ok(out)
    }
}

/// What one pivot did.
struct Move {
    gain: f64,
    /// How far the slopes of the free variables were from equal beforehand.
    uneven: f64,
    /// Variables that met a bound and are fixed there.
    blocked: Vec<u32>,
}

/// The end of a piece exactly, for a β that should stand there up to rounding.
fn end_value(b: f64, t: &crate::loss::DualTerm) -> f64 {
    let ends = [t.lo, 0.0, t.hi];
    ends.into_iter().filter(|e| e.is_finite()).min_by(|x, y| (x - b).abs().total_cmp(&(y - b).abs())).unwrap_or(b)
}
