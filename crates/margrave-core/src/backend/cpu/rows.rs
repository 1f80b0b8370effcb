//! Products with the rows of the data: the [`Matrix`] of points in memory.
//!
//! Dense rows run with the widest vectors the processor has; sparse rows one value at a time, which is limited by the
//! loads of w anyway. Work is split by the number of stored values only and partial sums are added in order.

use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use faer::{Accum, MatMut, MatRef, Par};

use super::simd::{Level, PORTABLE_FMA, SimdScalar};
use crate::control::{Control, Interrupt};
use crate::data::{Csr, Dense, Points, Real, Storage};
use crate::gram::{Matrix, Pick};
use crate::linalg::sparse;

/// Multiply–adds per task.
const TASK: usize = 1 << 15;
/// Stored values up to which the whole matrix is one task: waking other threads would take longer.
const SMALL: usize = 1 << 17;
/// Maximum number of partial sums of length d.
const GROUPS: usize = 16;
/// Memory limit of all d × d partial sums, in bytes.
const MOMENT_BYTES: usize = 256 << 20;
/// Rows multiplied together in [`Matrix::moments`].
const HEIGHT: usize = 128;

/// X over points in memory.
#[derive(Debug, Clone)]
pub struct RowMatrix {
    points: Points,
    level: Level,
}

impl RowMatrix {
    /// The points as they are stored; nothing is copied.
    pub fn new(points: &Points) -> Self {
        Self { points: points.clone(), level: Level::detect() }
    }

    /// Uses the given instructions.
    pub fn with_level(points: &Points, level: Level) -> Self {
        Self { points: points.clone(), level: level.min(Level::detect()) }
    }

    /// Average number of stored values per row, at least 1.
    fn width(&self) -> usize {
        (self.points.stored() / self.points.len().max(1)).max(1)
    }

    /// Multiply–adds per task for this matrix.
    fn task(&self) -> usize {
        if self.points.stored() <= SMALL { SMALL } else { TASK }
    }

    /// Rows per task for operations that touch each row once.
    fn rows_per_task(&self) -> usize {
        (self.task() / self.width()).clamp(16, 1 << 16)
    }

    /// Splits `count` rows into at most `most` groups of whole tasks and runs `work(range, sum)` on each with its own
    /// sum; the sums are added to `out` in order.
    fn grouped(
        &self,
        count: usize,
        most: usize,
        out: &mut [f64],
        control: &Control,
        work: impl Fn(std::ops::Range<usize>, &mut [f64]) + Sync,
    ) -> Result<(), Interrupt> {
        let task = self.rows_per_task();
        // A separate sum must be worth the cost of clearing and adding it.
        let worth = (count * self.width()) / (4 * out.len() + self.task());
        let groups = worth.clamp(1, most.max(1));
        let each = count.div_ceil(groups).max(1);
        let run = |g: usize, sum: &mut [f64]| {
            let end = ((g + 1) * each).min(count);
            let mut from = g * each;
            while from < end && control.check().is_ok() {
                let to = (from + task).min(end);
                work(from..to, sum);
                from = to;
            }
        };
        if groups == 1 {
            run(0, out);
            return control.check();
        }
        let parts = control.threads.map(groups, |g| {
            let mut sum = vec![0.0; out.len()];
            run(g, &mut sum);
            sum
        });
        control.check()?;
        control.threads.chunks(out, 1 << 14, |c, part| {
            let from = c << 14;
            for p in &parts {
                part.iter_mut().zip(&p[from..]).for_each(|(o, v)| *o += v);
            }
        });
        Ok(())
    }
}

/// A part of a selection of rows.
fn part<'a>(rows: Pick<'a>, range: std::ops::Range<usize>) -> Pick<'a> {
    match rows {
        Pick::All => Pick::Range(range.start, range.end),
        Pick::Range(from, _) => Pick::Range(from + range.start, from + range.end),
        Pick::List(list) => Pick::List(&list[range]),
    }
}

impl Matrix for RowMatrix {
    fn rows(&self) -> usize {
        self.points.len()
    }

    fn dims(&self) -> usize {
        self.points.dims()
    }

    fn stored(&self) -> usize {
        self.points.stored()
    }

    fn points(&self) -> Option<&Points> {
        Some(&self.points)
    }

    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        assert_eq!(w.len(), self.dims());
        let task = self.rows_per_task();
        control.spend(out.len() * (self.width() + 8));
        control.threads.chunks(out, task, |t, out| {
            if control.check().is_err() {
                return;
            }
            let rows = part(rows, t * task..t * task + out.len());
            match self.points.storage() {
                Storage::DenseF32(m) => dense_dots(self.level, m, rows, w, out),
                Storage::DenseF64(m) => dense_dots(self.level, m, rows, w, out),
                Storage::SparseF32(m) => sparse_dots(m, rows, w, out),
                Storage::SparseF64(m) => sparse_dots(m, rows, w, out),
            }
        });
        control.check()
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        assert_eq!(out.len(), self.dims());
        control.spend(coefficients.len() * (self.width() + 8));
        self.grouped(coefficients.len(), GROUPS, out, control, |range, sum| {
            let (rows, c) = (part(rows, range.clone()), &coefficients[range]);
            match self.points.storage() {
                Storage::DenseF32(m) => dense_combine(self.level, m, rows, c, sum),
                Storage::DenseF64(m) => dense_combine(self.level, m, rows, c, sum),
                Storage::SparseF32(m) => sparse_combine(m, rows, c, sum),
                Storage::SparseF64(m) => sparse_combine(m, rows, c, sum),
            }
        })
    }

    fn moments(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        centre: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let d = self.dims();
        assert!(first.len() == d && second.len() == d * d && (centre.is_empty() || centre.len() == d));
        // A sparse row costs the square of its stored values; blocked products are several times faster per operation.
        let sparse = matches!(self.points.storage(), Storage::SparseF32(_) | Storage::SparseF64(_));
        let by_rows = sparse && centre.is_empty() && thin(self.width(), d);
        control.spend(if by_rows { weights.len() * self.width() * self.width() } else { weights.len() * d * d / 4 });
        let fit = (MOMENT_BYTES / (8 * d * (d + 1)).max(1)).clamp(1, GROUPS);
        let mut both = vec![0.0; d * (d + 1)];
        self.grouped(weights.len(), fit, &mut both, control, |range, sum| {
            let (rows, a) = (part(rows, range.clone()), &weights[range]);
            let (h, m) = sum.split_at_mut(d);
            match self.points.storage() {
                Storage::SparseF32(x) if centre.is_empty() && thin(self.width(), d) => sparse_moments(x, rows, a, h, m),
                Storage::SparseF64(x) if centre.is_empty() && thin(self.width(), d) => sparse_moments(x, rows, a, h, m),
                _ => blocked_moments(&self.points, rows, a, centre, h, m),
            }
        })?;
        first.iter_mut().zip(&both).for_each(|(o, v)| *o += v);
        second.iter_mut().zip(&both[d..]).for_each(|(o, v)| *o += v);
        Ok(())
    }

    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        control.spend(weights.len() * (self.width() + 8));
        self.grouped(weights.len(), GROUPS, out, control, |range, sum| {
            let (rows, a) = (part(rows, range.clone()), &weights[range]);
            for (k, a) in a.iter().enumerate() {
                if *a != 0.0 {
                    self.points.visit(rows.get(k), |j, v| sum[j] += a * v * v);
                }
            }
        })
    }
}

/// Whether outer products of sparse rows cost less than products of the same rows stored dense.
fn thin(width: usize, d: usize) -> bool {
    8 * width * width < d * d
}

/// Defines `$name(level, …)` that runs `$body::<T, FMA>` with the instructions of the level.
macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident => $body:ident, $in:ident: $it:ty, $out:ident: $ot:ty) => {
        $(#[$doc])*
        fn $name<T: SimdScalar>(level: Level, m: &Dense<T>, rows: Pick<'_>, $in: $it, $out: $ot) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
            fn avx512<T: SimdScalar>(m: &Dense<T>, rows: Pick<'_>, $in: $it, $out: $ot) {
                $body::<T, true>(m, rows, $in, $out);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<T: SimdScalar>(m: &Dense<T>, rows: Pick<'_>, $in: $it, $out: $ot) {
                $body::<T, true>(m, rows, $in, $out);
            }
            match level {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a level is only used if the processor supports it.
                Level::Avx512 => unsafe { avx512(m, rows, $in, $out) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Level::Avx2 => unsafe { avx2(m, rows, $in, $out) },
                _ => $body::<T, PORTABLE_FMA>(m, rows, $in, $out),
            }
        }
    };
}

dispatched!(
    /// `out[r] = wᵀx`.
    dense_dots => dense_dots_body, w: &[f64], out: &mut [f64]
);
dispatched!(
    /// `out += Σ c·x`.
    dense_combine => dense_combine_body, c: &[f64], out: &mut [f64]
);

const LANES: usize = 16;

#[inline(always)]
fn dense_dot<T: SimdScalar, const FMA: bool>(x: &[T], w: &[f64]) -> f64 {
    let mut sums = [0.0f64; LANES];
    let (xs, ws) = (x.chunks_exact(LANES), w.chunks_exact(LANES));
    let (xr, wr) = (xs.remainder(), ws.remainder());
    for (x, w) in xs.zip(ws) {
        for l in 0..LANES {
            sums[l] = f64::fma::<FMA>(x[l].to_f64(), w[l], sums[l]);
        }
    }
    let (xs, ws) = (xr.chunks_exact(4), wr.chunks_exact(4));
    let (xr, wr) = (xs.remainder(), ws.remainder());
    for (x, w) in xs.zip(ws) {
        for l in 0..4 {
            sums[l] = f64::fma::<FMA>(x[l].to_f64(), w[l], sums[l]);
        }
    }
    for (l, (x, w)) in xr.iter().zip(wr).enumerate() {
        sums[4 + l] = f64::fma::<FMA>(x.to_f64(), *w, sums[4 + l]);
    }
    let mut half = [0.0f64; 8];
    for l in 0..8 {
        half[l] = sums[l] + sums[l + 8];
    }
    let quarter = [half[0] + half[4], half[1] + half[5], half[2] + half[6], half[3] + half[7]];
    (quarter[0] + quarter[2]) + (quarter[1] + quarter[3])
}

#[inline(always)]
fn dense_dots_body<T: SimdScalar, const FMA: bool>(m: &Dense<T>, rows: Pick<'_>, w: &[f64], out: &mut [f64]) {
    let (d, values) = (m.dims(), m.values());
    for (k, out) in out.iter_mut().enumerate() {
        let i = rows.get(k);
        *out = dense_dot::<T, FMA>(&values[i * d..(i + 1) * d], w);
    }
}

#[inline(always)]
fn dense_combine_body<T: SimdScalar, const FMA: bool>(m: &Dense<T>, rows: Pick<'_>, c: &[f64], out: &mut [f64]) {
    let (d, values) = (m.dims(), m.values());
    for (k, c) in c.iter().enumerate() {
        if *c != 0.0 {
            let i = rows.get(k);
            for (o, x) in out.iter_mut().zip(&values[i * d..(i + 1) * d]) {
                *o = f64::fma::<FMA>(x.to_f64(), *c, *o);
            }
        }
    }
}

/// The arrays of sparse rows. Each access through a [`Csr`] is a virtual call, which short rows would notice.
struct SparseArrays<'a, T> {
    starts: &'a [usize],
    columns: &'a [u32],
    values: &'a [T],
}

impl<'a, T: Real> SparseArrays<'a, T> {
    fn new(m: &'a Csr<T>) -> Self {
        Self { starts: m.starts(), columns: m.columns(), values: m.values() }
    }

    #[inline(always)]
    fn row(&self, i: usize) -> (&'a [u32], &'a [T]) {
        let range = self.starts[i]..self.starts[i + 1];
        (&self.columns[range.clone()], &self.values[range])
    }
}

fn sparse_dots<T: Real>(m: &Csr<T>, rows: Pick<'_>, w: &[f64], out: &mut [f64]) {
    let m = SparseArrays::new(m);
    for (k, out) in out.iter_mut().enumerate() {
        let (columns, values) = m.row(rows.get(k));
        *out = sparse::dot(columns, values, w);
    }
}

fn sparse_combine<T: Real>(m: &Csr<T>, rows: Pick<'_>, c: &[f64], out: &mut [f64]) {
    let m = SparseArrays::new(m);
    for (k, c) in c.iter().enumerate() {
        if *c != 0.0 {
            let (columns, values) = m.row(rows.get(k));
            sparse::add(columns, values, *c, out);
        }
    }
}

fn sparse_moments<T: Real>(m: &Csr<T>, rows: Pick<'_>, a: &[f64], first: &mut [f64], second: &mut [f64]) {
    let d = first.len();
    let m = SparseArrays::new(m);
    for (k, a) in a.iter().enumerate() {
        if *a == 0.0 {
            continue;
        }
        let (columns, values) = m.row(rows.get(k));
        for (at, (j, v)) in columns.iter().zip(values).enumerate() {
            let (j, v) = (*j as usize, a * v.to_f64());
            first[j] += v;
            // Columns are sorted: those up to j form the lower triangle.
            sparse::add(&columns[..=at], &values[..=at], v, &mut second[j * d..(j + 1) * d]);
        }
    }
}

/// Rows written densely in blocks as √a·(x − centre), multiplied by the library.
fn blocked_moments(points: &Points, rows: Pick<'_>, a: &[f64], centre: &[f64], first: &mut [f64], second: &mut [f64]) {
    let d = first.len();
    let mut block = vec![0.0; HEIGHT * d];
    let mut height = 0;
    let mut flush = |block: &mut [f64], height: usize| {
        let b = MatRef::from_row_major_slice(&block[..height * d], height, d);
        let to = MatMut::from_row_major_slice_mut(second, d, d);
        let (lower, full) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
        matmul(to, lower, Accum::Add, b.transpose(), full, b, full, 1.0, Par::Seq);
    };
    for (k, &a) in a.iter().enumerate() {
        if a == 0.0 {
            continue;
        }
        let row = &mut block[height * d..(height + 1) * d];
        match points.storage() {
            Storage::DenseF32(m) => row.iter_mut().zip(m.row(rows.get(k))).for_each(|(to, x)| *to = f64::from(*x)),
            Storage::DenseF64(m) => row.copy_from_slice(m.row(rows.get(k))),
            Storage::SparseF32(_) | Storage::SparseF64(_) => points.copy_row(rows.get(k), row),
        }
        if !centre.is_empty() {
            row.iter_mut().zip(centre).for_each(|(x, c)| *x -= c);
        }
        let root = a.sqrt();
        for (h, x) in first.iter_mut().zip(row) {
            *h += a * *x;
            *x *= root;
        }
        height += 1;
        if height == HEIGHT {
            flush(&mut block, height);
            height = 0;
        }
    }
    if height > 0 {
        flush(&mut block, height);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Threads;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn both(rng: &mut ChaCha8Rng, n: usize, d: usize) -> Vec<Points> {
        let values: Vec<f32> =
            (0..n * d).map(|_| if rng.random_range(0..3) == 0 { rng.random_range(-1.0..1.0) } else { 0.0 }).collect();
        let (mut starts, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
        for row in values.chunks(d) {
            for (j, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
                columns.push(j as u32);
                kept.push(*v);
            }
            starts.push(columns.len());
        }
        let double: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
        let wide: Vec<f64> = kept.iter().map(|v| f64::from(*v)).collect();
        vec![
            Points::dense_f32(n, d, values).unwrap(),
            Points::dense_f64(n, d, double).unwrap(),
            Csr::new(d, starts.clone(), columns.clone(), kept).unwrap().into(),
            Csr::new(d, starts, columns, wide).unwrap().into(),
        ]
    }

    #[test]
    fn every_storage_and_level_gives_the_sums_by_definition() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for (n, d) in [(7, 3), (300, 37), (40_000, 19)] {
            let (w, a): (Vec<f64>, Vec<f64>) = (
                (0..d).map(|_| rng.random_range(-1.0..1.0)).collect(),
                (0..n).map(|i| if i % 4 == 0 { 0.0 } else { rng.random_range(0.0..1.0) }).collect(),
            );
            let centre: Vec<f64> = (0..d).map(|_| rng.random_range(-1.0..1.0)).collect();
            let list: Vec<u32> = (0..n as u32).rev().step_by(2).collect();
            for points in both(&mut rng, n, d) {
                for level in Level::available() {
                    let x = RowMatrix::with_level(&points, level);
                    let mut bits = None;
                    for threads in [1, 2, 3] {
                        let control = Control::unlimited(Threads::new(threads));
                        let mut row = vec![0.0; d];
                        let mut dots = vec![0.0; list.len()];
                        x.dots(Pick::List(&list), &w, &mut dots, &control).unwrap();
                        let (mut sum, mut first) = (vec![0.0; d], vec![0.0; d]);
                        let (mut second, mut squares) = (vec![0.0; d * d], vec![0.0; d]);
                        x.combine(Pick::All, &a, &mut sum, &control).unwrap();
                        let some = &a[..list.len()];
                        x.moments(Pick::List(&list), some, &centre, &mut first, &mut second, &control).unwrap();
                        let (mut f0, mut s0) = (vec![0.0; d], vec![0.0; d * d]);
                        x.moments(Pick::All, &a, &[], &mut f0, &mut s0, &control).unwrap();
                        x.squares(Pick::All, &a, &mut squares, &control).unwrap();
                        // Sums of n terms of size at most 4: rounding of n·d additions.
                        let tol = 1e-15 * (n * d) as f64;
                        let (mut sum1, mut first1, mut second1) = (vec![0.0; d], vec![0.0; d], vec![0.0; d * d]);
                        let mut second2 = vec![0.0; d * d];
                        for (k, &i) in list.iter().enumerate() {
                            points.copy_row(i as usize, &mut row);
                            let dot: f64 = row.iter().zip(&w).map(|(x, w)| x * w).sum();
                            assert!((dot - dots[k]).abs() <= tol);
                            for p in 0..d {
                                first1[p] += a[k] * (row[p] - centre[p]);
                                for q in 0..=p {
                                    second1[p * d + q] += a[k] * (row[p] - centre[p]) * (row[q] - centre[q]);
                                }
                            }
                        }
                        for i in 0..n {
                            points.copy_row(i, &mut row);
                            for p in 0..d {
                                sum1[p] += a[i] * row[p];
                                for q in 0..=p {
                                    second2[p * d + q] += a[i] * row[p] * row[q];
                                }
                            }
                        }
                        for p in 0..d {
                            assert!((sum[p] - sum1[p]).abs() <= tol && (f0[p] - sum1[p]).abs() <= tol);
                            assert!((first[p] - first1[p]).abs() <= tol);
                            assert!((squares[p] - second2[p * d + p]).abs() <= tol);
                            for q in 0..=p {
                                assert!((second[p * d + q] - second1[p * d + q]).abs() <= tol);
                                assert!((s0[p * d + q] - second2[p * d + q]).abs() <= tol);
                            }
                        }
                        let all = (dots, sum, first, second, squares);
                        assert!(bits.get_or_insert(all.clone()) == &all, "{threads} threads differ");
                    }
                }
            }
        }
    }
}
