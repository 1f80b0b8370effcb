//! The eigendecomposition of a symmetric matrix, A = Q·diag(values)·Qᵀ.
//!
//! Three stages: (1) reduction to a tridiagonal T by Householder reflections, blocked: each column costs one symmetric
//! matrix–vector product, and the remaining work is done as matrix–matrix products at the end of its panel; (2) the
//! library's divide and conquer on T, sequential; (3) the reflections applied to the vectors of T, block by block.
//!
//! The library's own driver writes the whole trailing matrix once per column and takes twice as long, and its bits
//! depend on the number of threads. Here the number of work items depends on n only and sums are taken in a fixed
//! order, so the bits do not depend on the threads. The control is checked at every column and every block; only stage
//! (2) cannot be interrupted.
//!
//! Cost: 2n³/3 multiply–adds for (1), half of them bound by memory, up to 4n³/3 for (2), n³ for (3). Memory: 2n²
//! doubles and the library's n² of scratch.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd_scratch, tridiagonal_self_adjoint_evd};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};

use super::sweep::{add_row, dot};
use crate::control::{Control, Interrupt};

/// Reflections collected before the trailing matrix is updated.
const PANEL: usize = 32;
/// Rows of the trailing matrix updated by one task.
const TILE: usize = 128;
/// Columns of the eigenvectors that one task of stage (3) transforms by all blocks.
const COLUMNS: usize = 128;

/// Why there is no decomposition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EigenError {
    /// An entry is not finite, or the iteration for T did not converge.
    NoConvergence,
    /// The budget ran out.
    Interrupted(Interrupt),
}

impl From<Interrupt> for EigenError {
    fn from(why: Interrupt) -> Self {
        EigenError::Interrupted(why)
    }
}

/// Eigenvalues, ascending, and orthonormal eigenvectors.
#[derive(Debug, Clone)]
pub struct Eigen {
    /// Eigenvalues, ascending.
    pub values: Vec<f64>,
    /// Column k is the eigenvector of value k.
    pub vectors: Mat<f64>,
}

/// Decomposes the symmetric matrix whose upper triangle is in `a`, n × n, row-major. The rest of `a` is ignored.
pub fn eigen(mut a: Vec<f64>, n: usize, control: &Control) -> Result<Eigen, EigenError> {
    assert_eq!(a.len(), n * n, "a square matrix");
    // Squares of entries must neither overflow nor vanish; a power of two scales without rounding.
    let largest = (0..n).flat_map(|i| &a[i * n + i..(i + 1) * n]).fold(0.0f64, |m, v| m.max(v.abs()));
    if !largest.is_finite() || a.iter().any(|v| v.is_nan()) {
        return Err(EigenError::NoConvergence);
    }
    let scale = if largest > 0.0 { 2f64.powi(-(largest.log2().floor() as i32)) } else { 1.0 };
    a.iter_mut().for_each(|v| *v *= scale);

    let reduced = tridiagonalise(&mut a, n, control)?;
    control.check()?;
    let (mut values, mut vectors) = decompose_tridiagonal(&reduced)?;
    control.check()?;
    reflect(&a, n, &reduced.tau, &mut vectors, control)?;
    values.iter_mut().for_each(|v| *v /= scale);
    Ok(Eigen { values, vectors })
}

/// T and the factors τ of the reflections I − τ·v·vᵀ that lead to it.
struct Tridiagonal {
    diag: Vec<f64>,
    off: Vec<f64>,
    tau: Vec<f64>,
}

/// Reduces the upper triangle of `a` to T. On return, row k holds the reflection vₖ from column k + 1 on, vₖ[k + 1] =
/// 1, and zeros before it.
fn tridiagonalise(a: &mut [f64], n: usize, control: &Control) -> Result<Tridiagonal, Interrupt> {
    let mut out = Tridiagonal { diag: vec![0.0; n], off: vec![0.0; n.saturating_sub(1)], tau: vec![0.0; n] };
    let mut w = vec![0.0; PANEL * n];
    let mut partial = Vec::new();
    let mut start = 0;
    while start < n {
        let end = (start + PANEL).min(n);
        for k in start..end {
            control.check()?;
            let (done, rest) = a.split_at_mut(k * n);
            let panel = &done[start * n..];
            let (row, below) = rest.split_at_mut(n);
            // A is still as it was at the start of the panel: update row k, A −= Σ v·wᵀ + w·vᵀ.
            for (v, w) in panel.chunks_exact(n).zip(w.chunks_exact(n)) {
                add_row(&mut row[k..], &w[k..], -v[k]);
                add_row(&mut row[k..], &v[k..], -w[k]);
            }
            out.diag[k] = row[k];
            row[..=k].fill(0.0);
            if k + 1 == n {
                break;
            }
            let (tau, off) = reflection(&mut row[k + 1..]);
            (out.tau[k], out.off[k]) = (tau, off);
            let v = &row[k + 1..];
            let (w_done, w_rest) = w.split_at_mut((k - start) * n);
            let p = &mut w_rest[k + 1..n];
            multiply(below, n, k + 1, v, p, &mut partial, control);
            for (vl, wl) in panel.chunks_exact(n).zip(w_done.chunks_exact(n)) {
                let (vl, wl) = (&vl[k + 1..], &wl[k + 1..]);
                let (along_w, along_v) = (dot(wl, v), dot(vl, v));
                add_row(p, vl, -along_w);
                add_row(p, wl, -along_v);
            }
            p.iter_mut().for_each(|x| *x *= tau);
            let half = -0.5 * tau * dot(v, p);
            add_row(p, v, half);
        }
        update(a, n, start, end, &w, control);
        start = end;
    }
    Ok(out)
}

/// Turns x into v with v[0] = 1 so that (I − τ·v·vᵀ)x = (off, 0, …); returns (τ, off).
fn reflection(x: &mut [f64]) -> (f64, f64) {
    let (first, tail) = (x[0], dot(&x[1..], &x[1..]));
    x[0] = 1.0;
    if tail == 0.0 {
        return (0.0, first);
    }
    let off = -(first * first + tail).sqrt().copysign(first);
    let factor = 1.0 / (first - off);
    x[1..].iter_mut().for_each(|v| *v *= factor);
    ((off - first) / off, off)
}

/// p = B·v, B being the symmetric matrix whose upper triangle is in rows and columns `from..n`; `rows` starts at row
/// `from`.
fn multiply(rows: &[f64], n: usize, from: usize, v: &[f64], p: &mut [f64], partial: &mut Vec<f64>, control: &Control) {
    let m = n - from;
    let pieces = (m / 256).clamp(1, 16);
    // Boundaries that split the triangle into equal areas.
    let bound = |t: usize| {
        let share = 1.0 - (1.0 - t as f64 / pieces as f64).sqrt();
        if t == pieces { m } else { ((share * m as f64) as usize).min(m) }
    };
    partial.clear();
    partial.resize(pieces * m, 0.0);
    control.threads.chunks(partial, m, |t, y| {
        symmetric_rows(&rows[from..], n, bound(t), bound(t + 1), v, y);
    });
    p.copy_from_slice(&partial[..m]);
    for y in partial.chunks_exact(m).skip(1) {
        add_row(p, y, 1.0);
    }
}

/// y += the part of B·v that rows `first..last` of the upper triangle of B contribute, each entry read once and used
/// twice; `b` begins at B's first entry and has rows of length `ld`.
fn symmetric_rows(b: &[f64], ld: usize, first: usize, last: usize, v: &[f64], y: &mut [f64]) {
    let m = v.len();
    assert!(last <= m && y.len() == m && (m == 0 || b.len() >= (m - 1) * ld + m));
    let mut i = first;
    while i + ROWS <= last {
        let from = i + ROWS;
        let rows: [&[f64]; ROWS] = std::array::from_fn(|r| &b[(i + r) * ld + from..(i + r) * ld + m]);
        let by: [f64; ROWS] = std::array::from_fn(|r| v[i + r]);
        let (x, tail) = (&v[from..], &mut y[from..]);
        let sums = four_rows(rows, by, x, tail);
        corner(b, ld, i, from, v, y);
        sums.iter().enumerate().for_each(|(r, sum)| y[i + r] += sum);
        i = from;
    }
    for r in i..last {
        let row = &b[r * ld + last..r * ld + m];
        y[r] += dot(row, &v[last..]);
        add_row(&mut y[last..], row, v[r]);
    }
    corner(b, ld, i, last, v, y);
}

/// The part of the diagonal block of rows `from..to`.
fn corner(b: &[f64], ld: usize, from: usize, to: usize, v: &[f64], y: &mut [f64]) {
    for r in from..to {
        y[r] += b[r * ld + r] * v[r];
        for c in r + 1..to {
            y[r] += b[r * ld + c] * v[c];
            y[c] += b[r * ld + c] * v[r];
        }
    }
}

/// Rows of the symmetric product handled together: each element of y is loaded once for all of them.
const ROWS: usize = 4;

/// y += Σᵣ byᵣ·rowᵣ, and the products rowᵣ·x. All lengths are equal.
fn four_rows(rows: [&[f64]; ROWS], by: [f64; ROWS], x: &[f64], y: &mut [f64]) -> [f64; ROWS] {
    let n = y.len();
    assert!(x.len() == n && rows.iter().all(|r| r.len() == n));
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F; all slices have length n.
            return unsafe { four_rows_avx512(rows, by, x, y) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX2 and FMA; all slices have length n.
            return unsafe { four_rows_avx2(rows, by, x, y) };
        }
    }
    four_rows_tail(rows, by, x, y, 0)
}

fn four_rows_tail(rows: [&[f64]; ROWS], by: [f64; ROWS], x: &[f64], y: &mut [f64], from: usize) -> [f64; ROWS] {
    let mut sums = [0.0; ROWS];
    for c in from..y.len() {
        for r in 0..ROWS {
            sums[r] += rows[r][c] * x[c];
            y[c] += rows[r][c] * by[r];
        }
    }
    sums
}

/// `four_rows` with the vectors of one instruction set.
macro_rules! four_rows_simd {
    ($name:ident, $features:literal, $lanes:literal, $zero:ident, $set:ident, $load:ident, $store:ident, $fma:ident) => {
        /// # Safety
        /// All slices have the same length.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $name(rows: [&[f64]; ROWS], by: [f64; ROWS], x: &[f64], y: &mut [f64]) -> [f64; ROWS] {
            use std::arch::x86_64::{$fma, $load, $set, $store, $zero};
            let whole = y.len() / $lanes * $lanes;
            let factors = [$set(by[0]), $set(by[1]), $set(by[2]), $set(by[3])];
            let mut sums = [$zero(); ROWS];
            let mut c = 0;
            while c < whole {
                // SAFETY: c + lanes ≤ the common length of all slices.
                unsafe {
                    let at = $load(x.as_ptr().add(c));
                    let mut t = $load(y.as_ptr().add(c));
                    for r in 0..ROWS {
                        let a = $load(rows[r].as_ptr().add(c));
                        sums[r] = $fma(a, at, sums[r]);
                        t = $fma(a, factors[r], t);
                    }
                    $store(y.as_mut_ptr().add(c), t);
                }
                c += $lanes;
            }
            let mut totals = four_rows_tail(rows, by, x, y, whole);
            for r in 0..ROWS {
                let mut lanes = [0.0; $lanes];
                // SAFETY: the array has as many elements as the vector.
                unsafe { $store(lanes.as_mut_ptr(), sums[r]) };
                totals[r] += lanes.iter().sum::<f64>();
            }
            totals
        }
    };
}

four_rows_simd!(
    four_rows_avx512,
    "avx512f",
    8,
    _mm512_setzero_pd,
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_fmadd_pd
);
four_rows_simd!(
    four_rows_avx2,
    "avx2,fma",
    4,
    _mm256_setzero_pd,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_fmadd_pd
);

/// A −= Vᵀ·W + Wᵀ·V on the upper triangle of rows and columns `end..n`, V and W being rows `start..end`.
fn update(a: &mut [f64], n: usize, start: usize, end: usize, w: &[f64], control: &Control) {
    let m = n - end;
    if m == 0 {
        return;
    }
    let (done, rest) = a.split_at_mut(end * n);
    let height = end - start;
    // One product of stacked panels, (V; W)ᵀ·(W; V), reads and writes A once instead of twice.
    let stack = |first: &[f64], second: &[f64]| -> Vec<f64> {
        let mut out = Vec::with_capacity(2 * height * m);
        first.chunks_exact(n).chain(second.chunks_exact(n)).for_each(|row| out.extend_from_slice(&row[end..]));
        out
    };
    let (v, w) = (&done[start * n..], &w[..height * n]);
    let (left, right) = (stack(v, w), stack(w, v));
    let left = MatRef::from_row_major_slice(&left, 2 * height, m);
    let right = MatRef::from_row_major_slice(&right, 2 * height, m);
    control.threads.chunks(rest, TILE * n, |t, rows| {
        let (first, count) = (t * TILE, rows.len() / n);
        // From the diagonal on; the entries of the first tile below the diagonal are never read.
        let tile = MatMut::from_row_major_slice_mut(rows, count, n).subcols_mut(end + first, m - first);
        let (left, right) = (left.subcols(first, count), right.subcols(first, m - first));
        matmul(tile, Accum::Add, left.transpose(), right, -1.0, Par::Seq);
    });
}

fn decompose_tridiagonal(t: &Tridiagonal) -> Result<(Vec<f64>, Mat<f64>), EigenError> {
    let n = t.diag.len();
    if n < 2 {
        return Ok((t.diag.clone(), Mat::identity(n, n)));
    }
    let (mut diag, mut off, mut values) = (Diag::zeros(n), Diag::zeros(n - 1), Diag::<f64>::zeros(n));
    t.diag.iter().enumerate().for_each(|(i, v)| diag[i] = *v);
    t.off.iter().enumerate().for_each(|(i, v)| off[i] = *v);
    let mut vectors = Mat::zeros(n, n);
    let params = Default::default();
    let mut memory = MemBuffer::new(self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, params));
    tridiagonal_self_adjoint_evd(
        diag.as_ref(),
        off.as_ref(),
        values.as_mut(),
        Some(vectors.as_mut()),
        Par::Seq,
        MemStack::new(&mut memory),
        params,
    )
    .map_err(|_| EigenError::NoConvergence)?;
    Ok(((0..n).map(|i| values[i]).collect(), vectors))
}

/// Z ← H₁·H₂·…·Z, the last block first: each block is I − VᵀTV, T upper triangular.
fn reflect(a: &[f64], n: usize, tau: &[f64], z: &mut Mat<f64>, control: &Control) -> Result<(), Interrupt> {
    const BLOCK: usize = 96;
    let starts: Vec<usize> = (0..n.saturating_sub(1)).step_by(BLOCK).collect();
    let triangles: Vec<Mat<f64>> = control.threads.map(starts.len(), |s| {
        let (start, end) = (starts[s], (starts[s] + BLOCK).min(n - 1));
        let height = end - start;
        let v = MatRef::from_row_major_slice(&a[start * n..end * n], height, n).subcols(start + 1, n - start - 1);
        let mut products = Mat::<f64>::zeros(height, height);
        matmul(products.as_mut(), Accum::Replace, v, v.transpose(), 1.0, Par::Seq);
        let mut t = Mat::<f64>::zeros(height, height);
        for j in 0..height {
            for i in 0..j {
                let sum: f64 = (i..j).map(|l| t[(i, l)] * products[(l, j)]).sum();
                t[(i, j)] = -tau[start + j] * sum;
            }
            t[(j, j)] = tau[start + j];
        }
        t
    });
    control.check()?;
    let tasks = n.div_ceil(COLUMNS);
    let parts: Vec<MatMut<'_, f64>> = split_columns(z.as_mut(), COLUMNS);
    let parts: Vec<std::sync::Mutex<MatMut<'_, f64>>> = parts.into_iter().map(std::sync::Mutex::new).collect();
    let outcomes = control.threads.map(tasks, |task| {
        let mut part = parts[task].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (s, t) in triangles.iter().enumerate().rev() {
            control.check()?;
            let (start, height) = (starts[s], t.nrows());
            let v = MatRef::from_row_major_slice(&a[start * n..(start + height) * n], height, n)
                .subcols(start + 1, n - start - 1);
            let mut z = part.as_mut().subrows_mut(start + 1, n - start - 1);
            let mut vz = Mat::<f64>::zeros(height, z.ncols());
            matmul(vz.as_mut(), Accum::Replace, v, z.as_ref(), 1.0, Par::Seq);
            let mut tvz = Mat::<f64>::zeros(height, z.ncols());
            matmul(tvz.as_mut(), Accum::Replace, t.as_ref(), vz.as_ref(), 1.0, Par::Seq);
            matmul(z.as_mut(), Accum::Add, v.transpose(), tvz.as_ref(), -1.0, Par::Seq);
        }
        Ok(())
    });
    outcomes.into_iter().collect()
}

fn split_columns(mut rest: MatMut<'_, f64>, width: usize) -> Vec<MatMut<'_, f64>> {
    let mut parts = Vec::new();
    while rest.ncols() > width {
        let (left, right) = rest.split_at_col_mut(width);
        parts.push(left);
        rest = right;
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::control::{Budget, Threads};

    fn symmetric(n: usize, seed: u64) -> Vec<f64> {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut a = vec![0.0; n * n];
        for i in 0..n {
            for j in i..n {
                a[i * n + j] = rng.random_range(-1.0..1.0);
                a[j * n + i] = a[i * n + j];
            }
        }
        a
    }

    /// max |A·q − value·q| and max |QᵀQ − I|, by plain loops.
    fn errors(a: &[f64], n: usize, found: &Eigen) -> (f64, f64) {
        let (mut residual, mut skew) = (0.0f64, 0.0f64);
        for k in 0..n {
            let q: Vec<f64> = (0..n).map(|i| found.vectors[(i, k)]).collect();
            for i in 0..n {
                let aq: f64 = (0..n).map(|j| a[i * n + j] * q[j]).sum();
                residual = residual.max((aq - found.values[k] * q[i]).abs());
            }
            for l in 0..=k {
                let inner: f64 = (0..n).map(|i| q[i] * found.vectors[(i, l)]).sum();
                skew = skew.max((inner - f64::from(u8::from(k == l))).abs());
            }
        }
        (residual, skew)
    }

    #[test]
    fn decomposes_matrices_of_many_sizes() {
        let control = Control::unlimited(Threads::one());
        for n in [0, 1, 2, 3, 5, 31, 32, 33, 64, 65, 130, 300] {
            let a = symmetric(n, n as u64);
            let found = eigen(a.clone(), n, &control).unwrap();
            let (residual, skew) = errors(&a, n, &found);
            // n·ε·‖A‖ with ‖A‖ ≤ √(n·n): far below these.
            assert!(residual < 1e-11 && skew < 1e-11, "n = {n}: {residual}, {skew}");
            assert!(found.values.windows(2).all(|p| p[0] <= p[1]));
        }
    }

    #[test]
    fn known_spectra() {
        let control = Control::unlimited(Threads::one());
        // The second difference matrix: 2 − 2cos(kπ/(n+1)).
        let n = 50;
        let mut a = vec![0.0; n * n];
        for i in 0..n {
            a[i * n + i] = 2.0;
            if i + 1 < n {
                a[i * n + i + 1] = -1.0;
            }
        }
        let found = eigen(a, n, &control).unwrap();
        for (k, v) in found.values.iter().enumerate() {
            let expected = 2.0 - 2.0 * ((k + 1) as f64 * std::f64::consts::PI / (n + 1) as f64).cos();
            assert!((v - expected).abs() < 1e-13, "{v} and {expected}");
        }
        // All ones: rank one. Zero: nothing to do. Both have repeated eigenvalues.
        let found = eigen(vec![1.0; 40 * 40], 40, &control).unwrap();
        assert!((found.values[39] - 40.0).abs() < 1e-12 && found.values[..39].iter().all(|v| v.abs() < 1e-13));
        assert!(eigen(vec![0.0; 9], 3, &control).unwrap().values == [0.0; 3]);
    }

    #[test]
    fn huge_and_tiny_entries_keep_their_digits() {
        let control = Control::unlimited(Threads::one());
        let base = eigen(symmetric(20, 5), 20, &control).unwrap();
        for exponent in [-900, 900] {
            let factor = 2f64.powi(exponent);
            let scaled = symmetric(20, 5).iter().map(|v| v * factor).collect();
            let found = eigen(scaled, 20, &control).unwrap();
            assert!(found.values.iter().zip(&base.values).all(|(f, b)| *f == b * factor));
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_the_threads() {
        let n = 700;
        let a = symmetric(n, 7);
        let runs: Vec<Eigen> =
            [1, 2, 3].map(|threads| eigen(a.clone(), n, &Control::unlimited(Threads::new(threads))).unwrap()).into();
        assert!(runs.iter().all(|r| r.values == runs[0].values && r.vectors == runs[0].vectors));
        let (residual, skew) = errors(&a, n, &runs[0]);
        assert!(residual < 1e-11 && skew < 1e-11, "{residual}, {skew}");
    }

    #[test]
    fn nan_and_an_expired_deadline_are_reported() {
        let control = Control::unlimited(Threads::one());
        assert_eq!(eigen(vec![1.0, f64::NAN, 0.0, 1.0], 2, &control).unwrap_err(), EigenError::NoConvergence);
        let late = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::one());
        assert!(matches!(eigen(symmetric(3, 1), 3, &late).unwrap_err(), EigenError::Interrupted(_)));
    }
}
