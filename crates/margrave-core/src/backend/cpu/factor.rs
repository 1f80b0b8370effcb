//! Cholesky factors: K = L·Lᵀ, blocked, over our own tiles.
//!
//! The library's factorisation runs sequentially on tiles of a fixed size and the tiles are shared out among threads, so
//! the factor has the same bits for any thread count. A factor can grow by rows ([`Cholesky::append`]) and solve with
//! some variables held at zero ([`Cholesky::hold`]), which spares refactoring when few variables change.
//!
//! The factor stands on and below the diagonal of a square with room to grow; what is above the diagonal is never touched, so
//! that the matrix itself can be kept there ([`Cholesky::above`]): both together take the memory of one.
//!
//! Cost: n³/3 multiply–adds to factor, n² to solve, n²·m to append or hold m variables. Memory: n² entries.

use faer::Par;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{LltParams, cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::{Accum, MatMut, MatRef, Spec};

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

/// Why there is no factor.
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

/// Columns factored at a time.
const PANEL: usize = 256;
/// Side of the tiles that threads share.
const TILE: usize = 512;

/// Rows solved for at a time.
const STRIP: usize = 512;
/// Rows or columns of a strip that one task takes.
const SHARE: usize = 64;

/// L, lower triangular, row-major with rows of length `ld`. What stands above the diagonal is left alone.
#[derive(Debug, Clone)]
pub struct Cholesky<T: Scalar> {
    n: usize,
    ld: usize,
    l: Vec<T>,
    held: Option<Held<T>>,
}

/// Variables held at zero: W = L⁻¹E, and the factor of WᵀW.
#[derive(Debug, Clone)]
struct Held<T: Scalar> {
    which: Vec<u32>,
    /// Row r is the column L⁻¹e of the r-th held variable, length n.
    w: Vec<T>,
    inner: Box<Cholesky<T>>,
}

/// A raw pointer that threads may share; every use below touches disjoint tiles.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);
// SAFETY: the pointer is only used to form views of disjoint tiles, one thread each, while the owner is borrowed mutably.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    /// The place at an offset.
    fn at(self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
    /// A mutable view of the tile with upper left corner (r, c).
    ///
    /// # Safety
    /// The tile must lie inside the allocation, and no other live view may overlap it.
    unsafe fn tile<'a>(self, ld: usize, r: usize, c: usize, rows: usize, cols: usize) -> MatMut<'a, T> {
        // SAFETY: promised by the caller.
        unsafe { MatMut::from_raw_parts_mut(self.0.add(r * ld + c), rows, cols, ld as isize, 1) }
    }
    /// A shared view of the tile with upper left corner (r, c).
    ///
    /// # Safety
    /// The tile must lie inside the allocation, and no live mutable view may overlap it.
    unsafe fn view<'a>(self, ld: usize, r: usize, c: usize, rows: usize, cols: usize) -> MatRef<'a, T> {
        // SAFETY: promised by the caller.
        unsafe { MatRef::from_raw_parts(self.0.add(r * ld + c).cast_const(), rows, cols, ld as isize, 1) }
    }
}

impl<T: Scalar> Cholesky<T> {
    /// Factors the symmetric matrix whose lower triangle stands in `a`, row-major, rows of length `ld` ≥ n.
    pub fn new(a: Vec<T>, n: usize, ld: usize, control: &Control) -> Result<Self, FactorError> {
        assert!(ld >= n && a.len() >= n * ld, "matrix of {n} rows of length {ld} in {} entries", a.len());
        let mut this = Self { n, ld, l: a, held: None };
        this.factor_from(0, control)?;
        Ok(this)
    }

    /// Factors the matrix that stands above the diagonal of `a`, row-major with rows of length `ld`, its diagonal being
    /// `diag`. On failure the square is given back, the matrix still in it.
    pub fn from_above(
        mut a: Vec<T>,
        n: usize,
        ld: usize,
        diag: &[T],
        control: &Control,
    ) -> Result<Self, (Vec<T>, FactorError)> {
        const SIDE: usize = 64;
        assert!(ld >= n && a.len() >= n * ld && diag.len() == n);
        let to = Shared(a.as_mut_ptr());
        control.threads.each(n.div_ceil(SIDE), |t| {
            let rows = t * SIDE..((t + 1) * SIDE).min(n);
            for first in (0..rows.end).step_by(SIDE) {
                for i in rows.clone() {
                    for j in first..(first + SIDE).min(i) {
                        // SAFETY: places below the diagonal are written by the task of their row alone; those above are
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

    /// What is kept in row `i` right of the diagonal: columns i + 1 to n.
    pub fn above(&self, i: usize) -> &[T] {
        &self.l[i * self.ld + i + 1..i * self.ld + self.n]
    }

    /// The same for writing, all rows: `work(i, row)` for every i < `rows`, `row` being columns i + 1 to n.
    pub fn fill_above(&mut self, rows: usize, threads: &Threads, work: impl Fn(usize, &mut [T]) + Sync) {
        let (n, ld) = (self.n, self.ld);
        threads.chunks(&mut self.l[..rows * ld], ld, |i, row| work(i, &mut row[i + 1..n]));
    }

    /// The square, for another use.
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

    /// Factors rows and columns `from..n`, those before being done.
    fn factor_from(&mut self, from: usize, control: &Control) -> Result<(), FactorError> {
        let (n, ld) = (self.n, self.ld);
        let a = Shared(self.l.as_mut_ptr());
        let mut block: Vec<T> = vec![T::of(0.0); PANEL * PANEL];
        let mut k = from;
        while k < n {
            control.check()?;
            let nb = PANEL.min(n - k);
            // The diagonal block, factored in a column-major copy.
            let mut copy = MatMut::from_column_major_slice_mut(&mut block[..nb * nb], nb, nb);
            for i in 0..nb {
                for j in 0..=i {
                    copy[(i, j)] = self.l[(k + i) * ld + k + j];
                }
            }
            let params = Spec::<LltParams, T>::default();
            let mut memory = MemBuffer::new(cholesky_in_place_scratch::<T>(nb, Par::Seq, params));
            cholesky_in_place(copy.as_mut(), Default::default(), Par::Seq, MemStack::new(&mut memory), params)
                .map_err(|e| match e {
                    faer::linalg::cholesky::llt::factor::LltError::NonPositivePivot { index } => {
                        FactorError::NotPositive(k + index)
                    }
                })?;
            for i in 0..nb {
                for j in 0..=i {
                    self.l[(k + i) * ld + k + j] = copy[(i, j)];
                }
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

    /// Grows by `m` variables: `cross` is K(new, old), m × n row-major, `own` is K(new, new), m × m row-major (lower
    /// triangle used). On failure the factor is as before. Variables held are no longer held.
    pub fn append(&mut self, mut cross: Vec<T>, own: &[T], m: usize, control: &Control) -> Result<(), FactorError> {
        let n = self.n;
        assert!(cross.len() == m * n && own.len() == m * m);
        self.held = None;
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
        let a = Shared(self.l.as_mut_ptr());
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

    /// From now on solves with the listed variables held at zero, in addition to those held already.
    ///
    /// On failure nothing is held any more.
    pub fn hold_also(&mut self, which: &[u32], control: &Control) -> Result<(), FactorError> {
        if which.is_empty() {
            return Ok(());
        }
        let held = self.held.take();
        let (n, m) = (self.n, which.len());
        let first = which.iter().copied().min().unwrap_or(0) as usize;
        let mut fresh = vec![T::of(0.0); m * n];
        for (r, &i) in which.iter().enumerate() {
            fresh[r * n + i as usize] = T::of(1.0);
        }
        solve_rows(&self.l, self.ld, n, first, &mut fresh, m, &control.threads);
        control.check()?;
        let own = products(&fresh, m, &fresh, m, n, first, control);
        let next = match held {
            None => Held { which: which.to_vec(), w: fresh, inner: Box::new(Cholesky::new(own, m, m, control)?) },
            Some(Held { which: mut all, mut w, mut inner }) => {
                let cross = products(&fresh, m, &w, all.len(), n, first, control);
                inner.append(cross, &own, m, control)?;
                all.extend_from_slice(which);
                w.append(&mut fresh);
                Held { which: all, w, inner }
            }
        };
        self.held = Some(next);
        Ok(())
    }

    /// From now on solves with exactly the listed variables held at zero (none: an empty list).
    pub fn hold(&mut self, which: &[u32], control: &Control) -> Result<(), FactorError> {
        self.held = None;
        self.hold_also(which, control)
    }

    /// Solves K·x = r in place, in the factor's precision; held variables of `r` are ignored and come back as 0.
    pub fn solve(&self, r: &mut [f64]) {
        self.solve_on(r, &Threads::one());
    }

    /// The same on several threads, with the same bits.
    pub fn solve_on(&self, r: &mut [f64], threads: &Threads) {
        assert_eq!(r.len(), self.n);
        let Some(held) = &self.held else {
            self.forward(r, threads);
            self.backward(r, threads);
            return;
        };
        held.which.iter().for_each(|&i| r[i as usize] = 0.0);
        self.forward(r, threads);
        // μ = −(WᵀW)⁻¹Wᵀy makes the held part of K⁻¹(r + Eμ) vanish.
        let n = self.n;
        let mut mu = vec![0.0; held.which.len()];
        let y = &*r;
        threads.chunks(&mut mu, SHARE, |t, part| {
            for (k, m) in part.iter_mut().enumerate() {
                let at = (t * SHARE + k) * n;
                *m = -dot(&held.w[at..at + n], y);
            }
        });
        held.inner.solve_on(&mut mu, threads);
        threads.chunks(r, STRIP, |t, part| {
            let from = t * STRIP;
            for (k, m) in mu.iter().enumerate() {
                let at = k * n + from;
                super::sweep::add_row(part, &held.w[at..at + part.len()], *m);
            }
        });
        self.backward(r, threads);
        held.which.iter().for_each(|&i| r[i as usize] = 0.0);
    }

    /// L·x = r: strip by strip, first what the rows above mean to it, shared out, then the strip itself.
    fn forward(&self, r: &mut [f64], threads: &Threads) {
        for from in (0..self.n).step_by(STRIP) {
            let until = (from + STRIP).min(self.n);
            let (done, rest) = r.split_at_mut(from);
            let strip = &mut rest[..until - from];
            if from > 0 {
                threads.chunks(strip, SHARE, |t, part| {
                    for (k, x) in part.iter_mut().enumerate() {
                        let at = (from + t * SHARE + k) * self.ld;
                        *x -= dot(&self.l[at..at + from], done);
                    }
                });
            }
            for i in from..until {
                let row = &self.l[i * self.ld + from..i * self.ld + i + 1];
                let k = i - from;
                strip[k] = (strip[k] - dot(&row[..k], &strip[..k])) / row[k].wide();
            }
        }
    }

    /// Lᵀ·x = r: the last strip first, then what it means to the rows above it, shared out.
    fn backward(&self, r: &mut [f64], threads: &Threads) {
        for from in (0..self.n).step_by(STRIP).rev() {
            let until = (from + STRIP).min(self.n);
            let (above, rest) = r.split_at_mut(from);
            let strip = &mut rest[..until - from];
            for i in (from..until).rev() {
                let row = &self.l[i * self.ld + from..i * self.ld + i + 1];
                let k = i - from;
                let x = strip[k] / row[k].wide();
                strip[k] = x;
                super::sweep::add_row(&mut strip[..k], &row[..k], -x);
            }
            threads.chunks(above, STRIP, |t, part| {
                for (k, x) in strip.iter().enumerate() {
                    let at = (from + k) * self.ld + t * STRIP;
                    super::sweep::add_row(part, &self.l[at..at + part.len()], -x);
                }
            });
        }
    }

    /// B·L⁻ᵀ in place for the `m` rows of `b`, each of the factor's length: features whose inner products are B·K⁻¹·Bᵀ.
    pub fn whiten(&self, b: &mut [T], m: usize, threads: &Threads) {
        assert_eq!(b.len(), m * self.n);
        solve_rows(&self.l, self.ld, self.n, 0, b, m, threads);
    }

    /// (K⁻¹)ᵢᵢ = ‖L⁻¹eᵢ‖² of every variable, in n³/3 multiply–adds. Held variables are not taken into account.
    pub fn inverse_diag(&self, control: &Control) -> Result<Vec<f64>, Interrupt> {
        const COLUMNS: usize = 64;
        let n = self.n;
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

    /// log det K = 2 Σ log Lᵢᵢ.
    pub fn log_det(&self) -> f64 {
        (0..self.n).map(|i| 2.0 * self.l[i * self.ld + i].wide().ln()).sum()
    }
}

/// dst −= lhs·rhsᵀ; of a tile on the diagonal only the lower triangle.
fn subtract<T: Scalar>(dst: MatMut<'_, T>, lhs: MatRef<'_, T>, rhs: MatRef<'_, T>, on_diagonal: bool) {
    if on_diagonal {
        use BlockStructure::{Rectangular, TriangularLower};
        let (lower, all) = (TriangularLower, Rectangular);
        triangular::matmul(dst, lower, Accum::Add, lhs, all, rhs.transpose(), all, T::of(-1.0), Par::Seq);
    } else {
        matmul(dst, Accum::Add, lhs, rhs.transpose(), T::of(-1.0), Par::Seq);
    }
}

/// A·Bᵀ over columns `first..n`, a × b row-major, by tiles.
fn products<T: Scalar>(
    a: &[T],
    rows: usize,
    b: &[T],
    cols: usize,
    n: usize,
    first: usize,
    control: &Control,
) -> Vec<T> {
    let mut out = vec![T::of(0.0); rows * cols];
    let (across, down) = (cols.div_ceil(TILE), rows.div_ceil(TILE));
    let dst = Shared(out.as_mut_ptr());
    control.threads.each(across * down, |t| {
        let (r, c) = (t / across * TILE, t % across * TILE);
        let (height, width) = (TILE.min(rows - r), TILE.min(cols - c));
        let lhs = MatRef::from_row_major_slice(&a[r * n..(r + height) * n], height, n).get(.., first..);
        let rhs = MatRef::from_row_major_slice(&b[c * n..(c + width) * n], width, n).get(.., first..);
        // SAFETY: each task writes its own tile of the output.
        let tile = unsafe { dst.tile(cols, r, c, height, width) };
        matmul(tile, Accum::Replace, lhs, rhs.transpose(), T::of(1.0), Par::Seq);
    });
    out
}

/// L·Xᵀ = Bᵀ for the `m` rows of `b`, columns before `first` being zero and staying so.
fn solve_rows<T: Scalar>(l: &[T], ld: usize, n: usize, first: usize, b: &mut [T], m: usize, threads: &Threads) {
    const ROWS: usize = 64;
    if n == first || m == 0 {
        return;
    }
    debug_assert!(b.len() == m * n);
    // SAFETY: the view covers rows and columns first..n of L, which lie inside the slice.
    let tri = unsafe {
        MatRef::<T>::from_raw_parts(l.as_ptr().add(first * ld + first), n - first, n - first, ld as isize, 1)
    };
    threads.chunks(b, ROWS * n, |_, part| {
        let rows = part.len() / n;
        // SAFETY: `part` is this task's own; the view covers columns first..n of its rows.
        let view =
            unsafe { MatMut::<T>::from_raw_parts_mut(part.as_mut_ptr().add(first), rows, n - first, n as isize, 1) };
        solve_lower_triangular_in_place(tri, view.transpose_mut(), Par::Seq);
    });
}

/// Σ aᵢ·xᵢ, in sixteen partial sums.
fn dot<T: Entry>(a: &[T], x: &[f64]) -> f64 {
    super::sweep::dot(a, x)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn spd(n: usize, seed: u64) -> Vec<f64> {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let x: Vec<f64> = (0..n * 3).map(|_| rng.random_range(-2.0..2.0)).collect();
        let mut k = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..n {
                let d: f64 = (0..3).map(|c| (x[i * 3 + c] - x[j * 3 + c]).powi(2)).sum();
                k[i * n + j] = (-d).exp() + if i == j { 0.1 } else { 0.0 };
            }
        }
        k
    }

    fn residual(k: &[f64], n: usize, x: &[f64], r: &[f64], skip: &[u32]) -> f64 {
        (0..n)
            .filter(|i| !skip.contains(&(*i as u32)))
            .map(|i| ((0..n).map(|j| k[i * n + j] * x[j]).sum::<f64>() - r[i]).abs())
            .fold(0.0, f64::max)
    }

    #[test]
    fn solves_and_is_the_same_on_any_number_of_threads() {
        for n in [1, 2, 100, 700] {
            let k = spd(n, 1);
            let r: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
            let mut answers = Vec::new();
            for threads in [1, 2, 3] {
                let control = Control::unlimited(Threads::new(threads));
                let factor = Cholesky::new(k.clone(), n, n, &control).unwrap();
                let mut x = r.clone();
                factor.solve(&mut x);
                assert!(residual(&k, n, &x, &r, &[]) < 1e-10);
                answers.push(x);
            }
            assert!(answers[0] == answers[1] && answers[1] == answers[2]);
        }
    }

    #[test]
    fn appending_equals_factoring_the_whole() {
        let (n, m) = (300, 290);
        let k = spd(n + m, 2);
        let all = n + m;
        let control = Control::unlimited(Threads::one());
        let pick = |r0: usize, rows: usize, c0: usize, cols: usize| -> Vec<f64> {
            (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))).map(|(i, j)| k[(r0 + i) * all + c0 + j]).collect()
        };
        let mut factor = Cholesky::new(pick(0, n, 0, n), n, n, &control).unwrap();
        factor.append(pick(n, m, 0, n), &pick(n, m, n, m), m, &control).unwrap();
        let r: Vec<f64> = (0..all).map(|i| (i as f64).cos()).collect();
        let mut x = r.clone();
        factor.solve(&mut x);
        assert!(residual(&k, all, &x, &r, &[]) < 1e-10);
    }

    #[test]
    fn what_is_above_the_diagonal_stays_there_while_the_factor_grows() {
        let (n, m) = (700, 90);
        let total = n + m;
        let k = spd(total, 4);
        let control = Control::unlimited(Threads::new(2));
        for ld in [n, total + 5] {
            let mut square = vec![0.0; ld * ld];
            let mut diag = vec![0.0; n];
            for i in 0..n {
                diag[i] = k[i * total + i];
                (i + 1..n).for_each(|j| square[i * ld + j] = k[i * total + j]);
            }
            let mut factor = Cholesky::from_above(square, n, ld, &diag, &control).map_err(|e| e.1).unwrap();
            let cross: Vec<f64> = (n..total).flat_map(|i| k[i * total..i * total + n].to_vec()).collect();
            let own: Vec<f64> = (n..total).flat_map(|i| k[i * total + n..(i + 1) * total].to_vec()).collect();
            factor.append(cross, &own, m, &control).unwrap();
            factor.fill_above(total, &control.threads, |i, row| {
                if i >= n {
                    row.copy_from_slice(&k[i * total + i + 1..(i + 1) * total]);
                } else {
                    row[n - i - 1..].copy_from_slice(&k[i * total + n..(i + 1) * total]);
                }
            });
            for i in 0..total {
                assert_eq!(factor.above(i), &k[i * total + i + 1..(i + 1) * total], "row {i}, rows of {ld}");
            }
            let r: Vec<f64> = (0..total).map(|i| (i as f64).sin()).collect();
            let mut x = r.clone();
            factor.solve_on(&mut x, &control.threads);
            assert!(residual(&k, total, &x, &r, &[]) < 1e-8, "rows of {ld}");
            let mut alone = r.clone();
            factor.solve(&mut alone);
            assert_eq!(alone, x, "the same bits on one thread");
        }
    }

    #[test]
    fn held_variables_stay_zero_and_the_rest_solve_their_own_system() {
        let n = 400;
        let k = spd(n, 3);
        let control = Control::unlimited(Threads::new(2));
        let mut factor = Cholesky::new(k.clone(), n, n, &control).unwrap();
        let which: Vec<u32> = (0..n as u32).filter(|i| i % 7 == 3).collect();
        factor.hold(&which[..20], &control).unwrap();
        factor.hold_also(&which[20..], &control).unwrap();
        let r: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
        let mut x = r.clone();
        factor.solve(&mut x);
        assert!(which.iter().all(|&i| x[i as usize] == 0.0));
        assert!(residual(&k, n, &x, &r, &which) < 1e-10);
        factor.hold(&[], &control).unwrap();
        let mut x = r.clone();
        factor.solve(&mut x);
        assert!(residual(&k, n, &x, &r, &[]) < 1e-10);
    }

    #[test]
    fn the_diagonal_of_the_inverse_is_that_of_solved_unit_vectors() {
        let n = 150;
        let control = Control::unlimited(Threads::new(2));
        let factor = Cholesky::new(spd(n, 4), n, n, &control).unwrap();
        let found = factor.inverse_diag(&control).unwrap();
        for i in 0..n {
            let mut e = vec![0.0; n];
            e[i] = 1.0;
            factor.solve(&mut e);
            assert!((found[i] - e[i]).abs() < 1e-10 * e[i].abs(), "{i}: {} and {}", found[i], e[i]);
        }
    }

    #[test]
    fn a_singular_matrix_is_reported_with_its_pivot() {
        let control = Control::unlimited(Threads::one());
        let error = Cholesky::new(vec![1.0, 0.0, 1.0, 1.0], 2, 2, &control).unwrap_err();
        assert_eq!(error, FactorError::NotPositive(1));
    }
}
