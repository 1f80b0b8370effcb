//! The linear algebra of the polish: K over a set of variables, its factor, and minima over the free ones among them.
//!
//! The factor is kept from round to round: released variables are appended, pinned ones are held at zero in solves. It
//! may be in single precision, because it is the preconditioner of conjugate gradients on the matrix itself, projected
//! so that every group keeps its sum.
//!
//! Matrix and factor share one square, with the matrix above the diagonal: m² entries for m variables, and room to
//! grow.

use super::cg::{Minimum, System};
use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::Control;
use crate::gram::Pick;
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::{pages, sweep};

/// Most conjugate-gradient steps for one minimum.
pub(super) const MOST_CG_STEPS: usize = 30;
/// Rows of K computed at a time.
const ROWS_PER_SLAB: usize = 256;
/// Most tasks of a product; the same for any number of threads, so that sums have the same order.
const MOST_TASKS: usize = 16;
/// Marks a variable outside the set, or a member without a group.
const NONE: u32 = u32::MAX;

/// The factor of K_SS + D for a set S of variables, with the matrix itself.
pub(super) struct Newton<T: StoredEntry> {
    /// The variables, in the factor's order.
    set: Vec<u32>,
    /// Position in `set`, or NONE.
    place: Vec<u32>,
    /// Kᵢᵢ + dᵢ of the set.
    diag: Vec<f64>,
    factor: Option<Cholesky<T>>,
    /// The memory of the square while there is no factor.
    spare: Vec<T>,
    /// What is added to the diagonal before it is factored.
    jitter: f64,
    /// A proximal term: what is added to the diagonal of the matrix itself.
    proximal: f64,
    /// The proximal term in the factor.
    factored_with: f64,
}

/// Whether a new factor of `free` variables costs less than appending the `missing` ones to a factor of `old` and holding
/// the others of it, in multiply–adds and what takes as long.
fn anew_is_cheaper(old: usize, free: usize, missing: usize) -> bool {
    /// Triangular solves run at this share of the speed of a factorisation.
    const SOLVE_SPEED: f64 = 0.7;
    /// Conjugate gradients read matrix and factor some ten times in a round, at the speed of memory.
    const READ: f64 = 200.0;
    /// An entry of K.
    const ENTRY: f64 = 100.0;
    /// Members below which neither takes long. A factor that was updated is then kept while most of it is used: its
    /// rounding errors do not change from round to round.
    const SMALL: usize = 512;
    if old + missing < SMALL {
        return missing * 3 > old || (old + missing - free) * 4 > free;
    }
    let members = (old + missing) as f64;
    let (held, free, missing) = ((old + missing - free) as f64, free as f64, missing as f64);
    let solves = 0.5 * (held + missing) * members * members / SOLVE_SPEED;
    let update = solves + 0.5 * held * held * members + READ * (members * members - free * free);
    let anew = free * free * free / 6.0 + ENTRY * free * free;
    anew < update
}

impl<T: StoredEntry> Newton<T> {
    pub(super) fn new(n: usize) -> Self {
        Self {
            set: Vec::new(),
            place: vec![NONE; n],
            diag: Vec::new(),
            factor: None,
            spare: Vec::new(),
            jitter: 0.0,
            proximal: 0.0,
            factored_with: 0.0,
        }
    }

    /// The same, with at least `jitter` added to the diagonal before it is factored.
    pub(super) fn with_jitter(n: usize, jitter: f64) -> Self {
        Self { jitter, ..Self::new(n) }
    }

    /// Sets the proximal term. A factor with another one stays a good preconditioner unless they differ widely.
    pub(super) fn set_proximal(&mut self, proximal: f64) {
        /// Ratio of proximal terms from which the factor is computed anew.
        const WIDELY: f64 = 30.0;
        self.proximal = proximal;
        let (low, high) = (proximal.min(self.factored_with), proximal.max(self.factored_with));
        if high > WIDELY * low {
            self.clear_set();
        }
    }

    /// The set S, in the order of vectors over it.
    pub(super) fn members(&self) -> &[u32] {
        &self.set
    }

    /// The position of a member of S.
    pub(super) fn place_of(&self, i: u32) -> usize {
        self.place[i as usize] as usize
    }

    /// Frees the memory.
    pub(super) fn free_memory(&mut self) {
        self.clear_set();
        self.spare = Vec::new();
    }

    /// Empties S, but keeps the memory of its square for the next.
    fn clear_set(&mut self) {
        self.set.iter().for_each(|&i| self.place[i as usize] = NONE);
        self.set.clear();
        self.diag.clear();
        if let Some(factor) = self.factor.take() {
            self.spare = factor.into_square();
        }
    }

    /// Makes S ⊇ `free` with a valid factor; members of S that are not free are held at zero.
    pub(super) fn prepare(
        &mut self,
        free: &[u32],
        state: &DualState,
        work: &Workspace<'_, '_, T>,
    ) -> Result<(), FactorError> {
        let missing: Vec<u32> = free.iter().copied().filter(|&i| self.place[i as usize] == NONE).collect();
        if self.factor.is_none() || anew_is_cheaper(self.set.len(), free.len(), missing.len()) {
            return self.refactor(free, state, work);
        }
        if !missing.is_empty() && self.grow(&missing, state, work).is_err() {
            work.control.check()?;
            return self.refactor(free, state, work);
        }
        self.hold_all_but(free, state, work)
    }

    /// Holds the members of S that are not in `free` at zero, or factors anew where that is cheaper.
    fn hold_all_but(
        &mut self,
        free: &[u32],
        state: &DualState,
        work: &Workspace<'_, '_, T>,
    ) -> Result<(), FactorError> {
        let mut is_free = vec![false; self.set.len()];
        free.iter().for_each(|&i| is_free[self.place[i as usize] as usize] = true);
        let held: Vec<u32> = (0..self.set.len() as u32).filter(|&k| !is_free[k as usize]).collect();
        if held.len() * 3 > self.set.len() {
            return self.refactor(free, state, work);
        }
        let factor = self.factor.as_mut().expect("prepared");
        match factor.hold(&held, work.control) {
            Err(FactorError::NotPositive(_)) => self.refactor(free, state, work),
            other => other,
        }
    }

    /// Holds these members of S as well.
    pub(super) fn hold_also(&mut self, variables: &[u32], control: &Control) -> Result<(), FactorError> {
        let mut places: Vec<u32> = variables.iter().map(|&i| self.place[i as usize]).collect();
        places.sort_unstable();
        self.factor.as_mut().expect("prepared").hold_also(&places, control)
    }

    /// Rows of K of the given variables.
    fn rows_of(set: &[u32], work: &Workspace<'_, '_, T>) -> Vec<u32> {
        set.iter().map(|&i| work.problem.row(i as usize) as u32).collect()
    }

    /// Makes S = `free` and factors K_SS + D from scratch.
    fn refactor(&mut self, free: &[u32], state: &DualState, work: &Workspace<'_, '_, T>) -> Result<(), FactorError> {
        self.clear_set();
        let m = free.len();
        let mut square = std::mem::take(&mut self.spare);
        let mut side = square.len().isqrt();
        if side < m {
            side = m + m / 8 + 64;
            drop(square);
            square = pages::zeros(side * side);
        }
        let rows = Self::rows_of(free, work);
        // Entries of a selection are computed without looking up columns one by one.
        let selected = work.gram.select(&rows);
        let mut slab: Vec<T> = pages::zeros(ROWS_PER_SLAB.min(m) * m);
        for first in (0..m).step_by(ROWS_PER_SLAB) {
            let (count, width) = (ROWS_PER_SLAB.min(m - first), m - first);
            let part = &mut slab[..count * width];
            let computed = match &selected {
                Some(selected) => {
                    let (own, from) = (Pick::Range(first, first + count), Pick::Range(first, m));
                    T::block(&**selected, own, from, part, work.control)
                }
                None => {
                    let (own, from) = (Pick::List(&rows[first..first + count]), Pick::List(&rows[first..]));
                    T::block(work.gram, own, from, part, work.control)
                }
            };
            if let Err(why) = computed {
                self.spare = square;
                return Err(why.into());
            }
            // In parallel, because this first access to the square's memory is slow.
            work.control.threads.chunks(&mut square[first * side..(first + count) * side], 16 * side, |t, lines| {
                for (r, line) in lines.chunks_mut(side).enumerate() {
                    let k = 16 * t + r;
                    line[first + k + 1..m].copy_from_slice(&part[k * width + k + 1..(k + 1) * width]);
                }
            });
        }
        self.set.extend_from_slice(free);
        for (k, &i) in free.iter().enumerate() {
            self.place[i as usize] = k as u32;
            self.diag.push(state.kernel_diag[i as usize] + state.terms[i as usize].d);
        }
        let scale = self.diag.iter().copied().fold(0.0, f64::max);
        let unit = if size_of::<T>() == 4 { 1e-6 } else { 1e-14 } * scale;
        self.jitter = self.jitter.max(unit);
        loop {
            let diag: Vec<T> = self.diag.iter().map(|d| T::of(d + self.proximal + self.jitter)).collect();
            match Cholesky::from_above(square, m, side, &diag, work.control) {
                Ok(factor) => {
                    self.factor = Some(factor);
                    self.factored_with = self.proximal;
                    return Ok(());
                }
                Err((back, FactorError::NotPositive(_))) if self.jitter < scale => {
                    square = back;
                    self.jitter *= 10.0;
                }
                Err((back, why)) => {
                    self.spare = back;
                    self.clear_set();
                    return Err(why);
                }
            }
        }
    }

    /// Appends the missing variables to S and its factor.
    fn grow(&mut self, missing: &[u32], state: &DualState, work: &Workspace<'_, '_, T>) -> Result<(), FactorError> {
        let (n, m) = (self.set.len(), missing.len());
        let old_rows = Self::rows_of(&self.set, work);
        let new_rows = Self::rows_of(missing, work);
        let mut cross = vec![T::of(0.0); m * n];
        T::block(work.gram, Pick::List(&new_rows), Pick::List(&old_rows), &mut cross, work.control)?;
        let mut own = vec![T::of(0.0); m * m];
        T::block(work.gram, Pick::List(&new_rows), Pick::List(&new_rows), &mut own, work.control)?;
        let diag: Vec<f64> =
            missing.iter().map(|&i| state.kernel_diag[i as usize] + state.terms[i as usize].d).collect();
        (0..m).for_each(|k| own[k * m + k] = T::of(diag[k] + self.factored_with + self.jitter));
        let factor = self.factor.as_mut().expect("a factor to grow");
        factor.append(cross.clone(), &own, m, work.control)?;
        factor.fill_above(n + m, &work.control.threads, |i, row| {
            if i < n {
                (0..m).for_each(|c| row[n - i - 1 + c] = cross[c * n + i]);
            } else {
                let k = i - n;
                row.copy_from_slice(&own[k * m + k + 1..(k + 1) * m]);
            }
        });
        for (k, &i) in missing.iter().enumerate() {
            self.place[i as usize] = (n + k) as u32;
        }
        self.set.extend_from_slice(missing);
        self.diag.extend(diag);
        Ok(())
    }

    /// (K_SS + D)·x, from the half above the diagonal.
    fn multiply(&self, x: &[f64], control: &Control) -> Vec<f64> {
        let m = self.set.len();
        let factor = self.factor.as_ref().expect("prepared");
        // Rows are divided so that each task has the same number of entries.
        let parts = MOST_TASKS.min(m / 64).max(1);
        let bound = |p: usize| (m as f64 * (1.0 - (1.0 - p as f64 / parts as f64).sqrt())).round() as usize;
        let sums = control.threads.map(parts, |p| {
            let (from, until) = (bound(p), bound(p + 1));
            let mut out = vec![0.0; m - from];
            for i in from..until {
                let row = factor.above(i);
                let dot = sweep::both_sides(&mut out[i + 1 - from..], row, x[i], &x[i + 1..]);
                out[i - from] += (self.diag[i] + self.proximal) * x[i] + dot;
            }
            out
        });
        let mut out = vec![0.0; m];
        for (p, sum) in sums.iter().enumerate() {
            out[bound(p)..].iter_mut().zip(sum).for_each(|(o, s)| *o += s);
        }
        out
    }

    /// The minimum over the free members, with the factor as preconditioner.
    pub(super) fn minimum(
        &self,
        system: System<'_>,
        state: &DualState,
        control: &Control,
    ) -> Result<Minimum, FactorError> {
        let factor = self.factor.as_ref().expect("prepared");
        let m = self.set.len();
        let precondition = |x: &mut [f64]| {
            control.spend(2 * m * m);
            factor.solve_on(x, &control.threads);
        };
        let multiply = |x: &[f64]| {
            control.spend(m * m);
            self.multiply(x, control)
        };
        Ok(system.solve(&self.set, multiply, multiply, precondition, state, control)?)
    }
}
