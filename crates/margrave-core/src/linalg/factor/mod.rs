//! Cholesky factors: K = L·Lᵀ, blocked, over our own tiles.
//!
//! The library's factorisation runs sequentially on tiles of a fixed size and the tiles are distributed among threads,
//! so the factor has the same bits for any thread count. A factor can grow by rows ([`Cholesky::append`]) and solve
//! with some variables held at zero ([`Cholesky::hold`]), which avoids refactoring when few variables change.
//!
//! The factor is stored on and below the diagonal of a square with room to grow. The entries above the diagonal are
//! never touched, so the matrix itself can be kept there ([`Cholesky::above`]): both together use the memory of one.
//!
//! Cost: n³/3 multiply–adds to factor, n² to solve, n²·m to append or hold m variables. Memory: n² entries.

mod solve;
#[cfg(test)]
mod tests;
mod tiles;

use faer::Par;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{LltParams, cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::{MatMut, Spec};

use self::solve::Held;
use self::tiles::{SharedTiles, solve_rows, subtract};
use super::sweep::Entry;
use crate::control::{Control, Interrupt, Threads};

/// A scalar a factor can be stored in: f32 (twice as fast, for refinement in f64) or f64.
pub trait Scalar: Entry + faer::traits::RealField {
    /// Nearest value of this type.
    fn of(value: f64) -> Self;
}

impl Scalar for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Scalar for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

/// Why a factorisation failed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FactorError {
    /// The pivot at this position is not positive: the matrix is singular or indefinite in this precision.
    NotPositive(usize),
    /// The budget ran out.
    Interrupted(Interrupt),
}

impl From<Interrupt> for FactorError {
    fn from(why: Interrupt) -> Self {
        FactorError::Interrupted(why)
    }
}

/// Columns factored together.
const PANEL: usize = 256;
/// Side length of the tiles distributed among threads: small enough that the last panels have tiles for all of them.
const TILE: usize = 256;

/// L, lower triangular, row-major with rows of length `ld`. Entries above the diagonal are left unchanged.
#[derive(Debug, Clone)]
pub struct Cholesky<T: Scalar> {
    n: usize,
    ld: usize,
    l: Vec<T>,
    held: Option<Held<T>>,
}

impl<T: Scalar> Cholesky<T> {
    /// Factors the symmetric matrix whose lower triangle is in `a`, row-major, with rows of length `ld` ≥ n.
    pub fn new(a: Vec<T>, n: usize, ld: usize, control: &Control) -> Result<Self, FactorError> {
        assert!(ld >= n && a.len() >= n * ld, "matrix of {n} rows of length {ld} in {} entries", a.len());
        let mut this = Self { n, ld, l: a, held: None };
        this.factor_from(0, control)?;
        Ok(this)
    }

    /// Factors the matrix stored above the diagonal of `a`, row-major with rows of length `ld`, with diagonal `diag`.
    /// On failure the square is returned with the matrix still in it.
    pub fn from_above(
        mut a: Vec<T>,
        n: usize,
        ld: usize,
        diag: &[T],
        control: &Control,
    ) -> Result<Self, (Vec<T>, FactorError)> {
        const SIDE: usize = 64;
        assert!(ld >= n && a.len() >= n * ld && diag.len() == n);
        let to = SharedTiles(a.as_mut_ptr());
        control.threads.each(n.div_ceil(SIDE), |t| {
            let rows = t * SIDE..((t + 1) * SIDE).min(n);
            for first in (0..rows.end).step_by(SIDE) {
                for i in rows.clone() {
                    for j in first..(first + SIDE).min(i) {
                        // SAFETY: entries below the diagonal are written only by the task of their row; those above are
                        // only read.
                        unsafe { *to.at(i * ld + j) = *to.at(j * ld + i) };
                    }
                }
            }
            for i in rows {
                // SAFETY: the diagonal of a row belongs to its task.
                unsafe { *to.at(i * ld + i) = diag[i] };
            }
        });
        let mut this = Self { n, ld, l: a, held: None };
        match this.factor_from(0, control) {
            Ok(()) => Ok(this),
            Err(why) => Err((this.l, why)),
        }
    }

    /// Row `i` of L, up to its diagonal entry.
    pub fn row(&self, i: usize) -> &[T] {
        &self.l[i * self.ld..i * self.ld + i + 1]
    }

    /// The entries of row `i` right of the diagonal: columns i + 1 to n.
    pub fn above(&self, i: usize) -> &[T] {
        &self.l[i * self.ld + i + 1..i * self.ld + self.n]
    }

    /// Writes the entries above the diagonal: calls `work(i, row)` for every i < `rows`, where `row` is columns i + 1
    /// to n.
    pub fn fill_above(&mut self, rows: usize, threads: &Threads, work: impl Fn(usize, &mut [T]) + Sync) {
        let (n, ld) = (self.n, self.ld);
        threads.chunks(&mut self.l[..rows * ld], ld, |i, row| work(i, &mut row[i + 1..n]));
    }

    /// The square, so that its memory can be reused.
    pub fn into_square(self) -> Vec<T> {
        self.l
    }

    /// Number of variables.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Factors rows and columns `from..n`; those before are already factored.
    fn factor_from(&mut self, from: usize, control: &Control) -> Result<(), FactorError> {
        let (n, ld) = (self.n, self.ld);
        let rest = n.saturating_sub(from);
        // Multiply–adds of blocked products are several times faster than others.
        control.spend(rest * rest * rest / 12 + rest * 100);
        let a = SharedTiles(self.l.as_mut_ptr());
        let side = PANEL.min(n.saturating_sub(from));
        let mut block: Vec<T> = vec![T::of(0.0); side * side];
        let mut k = from;
        while k < n {
            control.check()?;
            let nb = PANEL.min(n - k);
            // The diagonal block, factored in a column-major copy.
            for i in 0..nb {
                let row = &self.l[(k + i) * ld + k..][..=i];
                block[i..].iter_mut().step_by(nb).zip(row).for_each(|(to, v)| *to = *v);
            }
            let copy = MatMut::from_column_major_slice_mut(&mut block[..nb * nb], nb, nb);
            let params = Spec::<LltParams, T>::default();
            let mut memory = MemBuffer::new(cholesky_in_place_scratch::<T>(nb, Par::Seq, params));
            cholesky_in_place(copy, Default::default(), Par::Seq, MemStack::new(&mut memory), params).map_err(|e| {
                match e {
                    faer::linalg::cholesky::llt::factor::LltError::NonPositivePivot { index } => {
                        FactorError::NotPositive(k + index)
                    }
                }
            })?;
            for i in 0..nb {
                let row = &mut self.l[(k + i) * ld + k..][..=i];
                row.iter_mut().zip(block[i..].iter().step_by(nb)).for_each(|(to, v)| *to = *v);
            }
            let below = n - k - nb;
            if below == 0 {
                break;
            }
            let start = k + nb;
            // The panel below it: X·L₁₁ᵀ = A₂₁, by groups of rows.
            control.threads.each(below.div_ceil(PANEL), |t| {
                let r = start + t * PANEL;
                let rows = PANEL.min(n - r);
                // SAFETY: L₁₁ is only read; each task writes its own rows of the panel.
                let (l11, part) = unsafe { (a.view(ld, k, k, nb, nb), a.tile(ld, r, k, rows, nb)) };
                solve_lower_triangular_in_place(l11, part.transpose_mut(), Par::Seq);
            });
            // The rest: A₂₂ −= L₂₁·L₂₁ᵀ, lower tiles only.
            let side = below.div_ceil(TILE);
            let tiles: Vec<(usize, usize)> = (0..side).flat_map(|i| (0..=i).map(move |j| (i, j))).collect();
            control.threads.each(tiles.len(), |t| {
                let (r, c) = (start + tiles[t].0 * TILE, start + tiles[t].1 * TILE);
                let (rows, cols) = (TILE.min(n - r), TILE.min(n - c));
                // SAFETY: the panel is only read; each task writes its own tile of the rest.
                let (dst, lhs, rhs) =
                    unsafe { (a.tile(ld, r, c, rows, cols), a.view(ld, r, k, rows, nb), a.view(ld, c, k, cols, nb)) };
                subtract(dst, lhs, rhs, r == c);
            });
            k += nb;
        }
        Ok(())
    }

    /// Appends `m` variables: `cross` is K(new, old), m × n row-major, `own` is K(new, new), m × m row-major (lower
    /// triangle used). On failure the factor is unchanged. Held variables are released.
    pub fn append(&mut self, mut cross: Vec<T>, own: &[T], m: usize, control: &Control) -> Result<(), FactorError> {
        let n = self.n;
        assert!(cross.len() == m * n && own.len() == m * m);
        self.held = None;
        control.spend(m * n * (n + 2 * m) / 4);
        solve_rows(&self.l, self.ld, n, 0, &mut cross, m, &control.threads);
        control.check()?;
        let total = n + m;
        if total > self.ld || self.l.len() < total * self.ld {
            let ld = total + total / 8 + 64;
            let mut grown = super::pages::zeros(ld * ld);
            for i in 0..n {
                grown[i * ld..i * ld + n].copy_from_slice(&self.l[i * self.ld..i * self.ld + n]);
            }
            (self.l, self.ld) = (grown, ld);
        }
        let ld = self.ld;
        for i in 0..m {
            let row = &mut self.l[(n + i) * ld..(n + i) * ld + n + i + 1];
            row[..n].copy_from_slice(&cross[i * n..(i + 1) * n]);
            row[n..].copy_from_slice(&own[i * m..i * m + i + 1]);
        }
        // The Schur complement of the new block, tile by tile.
        let a = SharedTiles(self.l.as_mut_ptr());
        let side = m.div_ceil(TILE);
        let tiles: Vec<(usize, usize)> = (0..side).flat_map(|i| (0..=i).map(move |j| (i, j))).collect();
        control.threads.each(tiles.len(), |t| {
            let (r, c) = (n + tiles[t].0 * TILE, n + tiles[t].1 * TILE);
            let (rows, cols) = (TILE.min(total - r), TILE.min(total - c));
            // SAFETY: columns before n are only read; each task writes its own tile of the columns from n on.
            let (dst, lhs, rhs) =
                unsafe { (a.tile(ld, r, c, rows, cols), a.view(ld, r, 0, rows, n), a.view(ld, c, 0, cols, n)) };
            subtract(dst, lhs, rhs, r == c);
        });
        self.n = total;
        if let Err(why) = self.factor_from(n, control) {
            self.n = n;
            return Err(why);
        }
        Ok(())
    }

    /// The diagonal of L.
    pub fn diagonal(&self) -> Vec<f64> {
        (0..self.n).map(|i| self.l[i * self.ld + i].wide()).collect()
    }

    /// L·v. Held variables are ignored.
    pub fn multiply_lower(&self, v: &[f64], threads: &Threads) -> Vec<f64> {
        /// Rows per task.
        const ROWS: usize = 64;
        assert_eq!(v.len(), self.n);
        let mut out = vec![0.0; self.n];
        threads.chunks(&mut out, ROWS, |task, part| {
            for (k, to) in part.iter_mut().enumerate() {
                let i = task * ROWS + k;
                *to = super::sweep::dot(self.row(i), &v[..=i]);
            }
        });
        out
    }

    /// Lᵀ·v. Held variables are ignored.
    pub fn multiply_lower_transposed(&self, v: &[f64]) -> Vec<f64> {
        assert_eq!(v.len(), self.n);
        let mut out = vec![0.0; self.n];
        v.iter().enumerate().for_each(|(i, v)| super::sweep::add_row(&mut out[..=i], self.row(i), *v));
        out
    }

    /// The factor of the leading `k` × `k` block of the matrix. Held variables are ignored.
    pub fn leading(&self, k: usize) -> Self {
        assert!(k <= self.n);
        let l = (0..k).flat_map(|i| &self.l[i * self.ld..i * self.ld + k]).copied().collect();
        Self { n: k, ld: k, l, held: None }
    }

    /// B·L⁻ᵀ in place for the `m` rows of `b`, each of the factor's length: features whose inner products are B·K⁻¹·Bᵀ.
    pub fn whiten(&self, b: &mut [T], m: usize, threads: &Threads) {
        assert_eq!(b.len(), m * self.n);
        solve_rows(&self.l, self.ld, self.n, 0, b, m, threads);
    }

    /// (K⁻¹)ᵢᵢ = ‖L⁻¹eᵢ‖² of every variable, in n³/3 multiply–adds. Held variables are ignored.
    pub fn inverse_diag(&self, control: &Control) -> Result<Vec<f64>, Interrupt> {
        const COLUMNS: usize = 64;
        let n = self.n;
        control.spend(n * n * n / 6);
        let one = Threads::one();
        let parts = control.threads.map(n.div_ceil(COLUMNS), |t| {
            control.check()?;
            let first = t * COLUMNS;
            let m = COLUMNS.min(n - first);
            let mut w = vec![T::of(0.0); m * n];
            (0..m).for_each(|r| w[r * n + first + r] = T::of(1.0));
            solve_rows(&self.l, self.ld, n, first, &mut w, m, &one);
            Ok(w.chunks(n).map(|row| row[first..].iter().map(|v| v.wide() * v.wide()).sum()).collect())
        });
        let mut diag = Vec::with_capacity(n);
        for part in parts {
            let part: Vec<f64> = part?;
            diag.extend(part);
        }
        Ok(diag)
    }
}
