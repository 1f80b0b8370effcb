//! The linear algebra of the polish: K over a set of variables, its factor, and minima over the free ones among them.
//!
//! The factor is kept from round to round: released variables are appended, pinned ones are held at zero in solves. It
//! may be in single precision, because it is the preconditioner of conjugate gradients on the matrix itself, projected
//! so that every group keeps its sum.
//!
//! Matrix and factor share one square, with the matrix above the diagonal: m² entries for m variables, and room to
//! grow.

use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::Control;
use crate::gram::Pick;
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::{pages, sweep};

/// Most conjugate-gradient steps for one minimum.
const MOST_CG_STEPS: usize = 30;
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
}

impl<T: StoredEntry> Newton<T> {
    pub(super) fn new(n: usize) -> Self {
        Self { set: Vec::new(), place: vec![NONE; n], diag: Vec::new(), factor: None, spare: Vec::new(), jitter: 0.0 }
    }

    /// The same, with at least `jitter` added to the diagonal before it is factored.
    pub(super) fn with_jitter(n: usize, jitter: f64) -> Self {
        Self { jitter, ..Self::new(n) }
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
        let held = self.set.len() + missing.len() - free.len();
        let usable = self.factor.is_some() && missing.len() * 3 <= self.set.len() && held * 4 <= free.len();
        if !usable {
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
        let mut slab: Vec<T> = pages::zeros(ROWS_PER_SLAB.min(m) * m);
        for first in (0..m).step_by(ROWS_PER_SLAB) {
            let (count, width) = (ROWS_PER_SLAB.min(m - first), m - first);
            let part = &mut slab[..count * width];
            if let Err(why) =
                T::block(work.gram, &rows[first..first + count], Pick::List(&rows[first..]), part, work.control)
            {
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
            let diag: Vec<T> = self.diag.iter().map(|d| T::of(d + self.jitter)).collect();
            match Cholesky::from_above(square, m, side, &diag, work.control) {
                Ok(factor) => {
                    self.factor = Some(factor);
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
        T::block(work.gram, &new_rows, Pick::List(&old_rows), &mut cross, work.control)?;
        let mut own = vec![T::of(0.0); m * m];
        T::block(work.gram, &new_rows, Pick::List(&new_rows), &mut own, work.control)?;
        let diag: Vec<f64> =
            missing.iter().map(|&i| state.kernel_diag[i as usize] + state.terms[i as usize].d).collect();
        (0..m).for_each(|k| own[k * m + k] = T::of(diag[k] + self.jitter));
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
                out[i - from] += self.diag[i] * x[i] + sweep::dot(row, &x[i + 1..]);
                sweep::add_row(&mut out[i + 1 - from..], row, x[i]);
            }
            out
        });
        let mut out = vec![0.0; m];
        for (p, sum) in sums.iter().enumerate() {
            out[bound(p)..].iter_mut().zip(sum).for_each(|(o, s)| *o += s);
        }
        out
    }

    /// The move x of the free members that minimises ½(x + fixed)ᵀK(x + fixed) + slopesᵀx such that x + fixed sums
    /// to zero in every group: projected conjugate gradients, until slopes after the move differ by at most `accuracy`
    /// in a group. Returns x and by how much they differ.
    pub(super) fn minimum(
        &self,
        slopes: &[f64],
        fixed: &[f64],
        start: Option<Vec<f64>>,
        is_free: impl Fn(usize) -> bool,
        accuracy: f64,
        state: &DualState,
        control: &Control,
    ) -> Result<(Vec<f64>, f64), FactorError> {
        let factor = self.factor.as_ref().expect("prepared");
        let m = self.set.len();
        let free: Vec<bool> = (0..m).map(is_free).collect();
        let groups = GroupSums::new(self, &free, state, control);
        let mut x = start.unwrap_or_else(|| groups.with_sums(fixed));
        let all: Vec<f64> = x.iter().zip(fixed).map(|(x, f)| x + f).collect();
        let mut residual = self.multiply(&all, control);
        for k in 0..m {
            residual[k] = if free[k] { -slopes[k] - residual[k] } else { 0.0 };
        }
        let mut direction = vec![0.0; m];
        let mut before = f64::INFINITY;
        let mut spread = f64::INFINITY;
        for step in 0..MOST_CG_STEPS {
            control.check()?;
            control.spend(3 * m * m);
            let mut z = residual.clone();
            factor.solve_on(&mut z, &control.threads);
            groups.project(&mut z);
            let rz = sweep::dot(&residual, &z);
            let keep = if step == 0 { 0.0 } else { rz / before };
            before = rz;
            direction.iter_mut().zip(&z).for_each(|(d, z)| *d = z + keep * *d);
            let mut kd = self.multiply(&direction, control);
            (0..m).filter(|&k| !free[k]).for_each(|k| kd[k] = 0.0);
            let curve = sweep::dot(&direction, &kd);
            if !(curve > 0.0 && rz > 0.0) {
                break;
            }
            let t = rz / curve;
            sweep::add_row(&mut x, &direction, t);
            sweep::add_row(&mut residual, &kd, -t);
            spread = groups.spread(&residual);
            if spread <= accuracy {
                break;
            }
        }
        Ok((x, spread))
    }
}

/// The group sums that moves must keep, and the projection onto them along uᵍ = M⁻¹1_g, M being the factor's matrix.
struct GroupSums {
    /// The group of each member; NONE without fixed sums.
    of: Vec<u32>,
    free: Vec<bool>,
    unit: Vec<Vec<f64>>,
    /// Inverse of Σ_{k∈g} uʰₖ, row-major; a group without free members has zeros.
    inverse: Vec<f64>,
}

impl GroupSums {
    fn new<T: StoredEntry>(newton: &Newton<T>, free: &[bool], state: &DualState, control: &Control) -> Self {
        let m = newton.set.len();
        let of: Vec<u32> =
            (0..m).map(|k| if state.paired { u32::from(state.group[newton.set[k] as usize]) } else { NONE }).collect();
        let count = if state.paired { state.ranges.len() } else { 0 };
        let factor = newton.factor.as_ref().expect("prepared");
        control.spend(2 * m * m * count);
        let unit: Vec<Vec<f64>> = (0..count as u32)
            .map(|g| {
                let mut u: Vec<f64> = (0..m).map(|k| f64::from(u8::from(free[k] && of[k] == g))).collect();
                factor.solve_on(&mut u, &control.threads);
                u
            })
            .collect();
        let mut groups = Self { of, free: free.to_vec(), unit, inverse: Vec::new() };
        let rows: Vec<Vec<f64>> = groups.unit.iter().map(|u| groups.sums(u)).collect();
        groups.inverse = inverse(&rows);
        groups
    }

    /// The sum over each group.
    fn sums(&self, v: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.unit.len()];
        for (&g, v) in self.of.iter().zip(v) {
            if g != NONE {
                sums[g as usize] += v;
            }
        }
        sums
    }

    /// v −= Σ_g λ_g·uᵍ, with λ such that every group's sum falls by `by`.
    fn lower(&self, v: &mut [f64], by: &[f64]) {
        let count = self.unit.len();
        for g in 0..count {
            let lambda: f64 = (0..count).map(|h| self.inverse[h * count + g] * by[h]).sum();
            sweep::add_row(v, &self.unit[g], -lambda);
        }
    }

    /// Projects v so that every group's sum is zero.
    fn project(&self, v: &mut [f64]) {
        let sums = self.sums(v);
        self.lower(v, &sums);
    }

    /// The smallest vector, in the norm of M, whose group sums cancel those of the fixed members' moves.
    fn with_sums(&self, fixed: &[f64]) -> Vec<f64> {
        let mut x = vec![0.0; self.of.len()];
        self.lower(&mut x, &self.sums(fixed));
        x
    }

    /// The largest distance of a residual from the mean of its group.
    fn spread(&self, residual: &[f64]) -> f64 {
        let sums = self.sums(residual);
        let mut counts = vec![0.0f64; self.unit.len()];
        let members = || (0..residual.len()).filter(|&k| self.free[k]);
        members().filter(|&k| self.of[k] != NONE).for_each(|k| counts[self.of[k] as usize] += 1.0);
        members()
            .map(|k| {
                let g = self.of[k];
                let mean = if g == NONE { 0.0 } else { sums[g as usize] / counts[g as usize] };
                (residual[k] - mean).abs()
            })
            .fold(0.0, f64::max)
    }
}

/// The inverse of a small symmetric positive matrix by elimination; rows without a positive pivot become zero.
fn inverse(rows: &[Vec<f64>]) -> Vec<f64> {
    let n = rows.len();
    let mut a: Vec<f64> = rows.iter().flatten().copied().collect();
    let mut inv = vec![0.0; n * n];
    (0..n).for_each(|i| inv[i * n + i] = 1.0);
    let scale = (0..n).map(|i| a[i * n + i]).fold(0.0, f64::max);
    let mut without_pivot = vec![false; n];
    for p in 0..n {
        let pivot = a[p * n + p];
        if !(pivot > 1e-14 * scale) {
            without_pivot[p] = true;
            continue;
        }
        for j in 0..n {
            a[p * n + j] /= pivot;
            inv[p * n + j] /= pivot;
        }
        for i in (0..n).filter(|&i| i != p) {
            let by = a[i * n + p];
            for j in 0..n {
                a[i * n + j] -= by * a[p * n + j];
                inv[i * n + j] -= by * inv[p * n + j];
            }
        }
    }
    for p in (0..n).filter(|&p| without_pivot[p]) {
        (0..n).for_each(|j| {
            inv[p * n + j] = 0.0;
            inv[j * n + p] = 0.0;
        });
    }
    inv
}
