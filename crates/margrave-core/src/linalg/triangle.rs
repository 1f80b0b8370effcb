//! A symmetric matrix that grows and shrinks: the entries below its diagonal, in 32 or 16 bits each.
//!
//! Rows are kept in slabs that never move, so that growing copies nothing and pages are first written by the threads
//! that fill them: clearing fresh pages on one core costs more than computing a kernel entry for each.

use super::pages;
use super::sweep::versions;
use crate::control::{Interrupt, Threads};

/// How an entry is stored.
pub trait PackedEntry: Copy + Default + Send + Sync + 'static {
    /// The entry is [`value`](Self::value) times this.
    const UNIT: f32;
    /// The nearest representable entry.
    fn pack(entry: f32) -> Self;
    /// The stored number.
    fn value(self) -> f32;
}

impl PackedEntry for f32 {
    const UNIT: f32 = 1.0;
    fn pack(entry: f32) -> Self {
        entry
    }
    #[inline(always)]
    fn value(self) -> f32 {
        self
    }
}

/// Entries in [0, 1], with an error of at most 7.6e-6.
impl PackedEntry for u16 {
    const UNIT: f32 = 1.0 / 65535.0;
    fn pack(entry: f32) -> Self {
        // Out of range and NaN saturate.
        (entry * 65535.0 + 0.5) as u16
    }
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from(self)
    }
}

/// Rows of a slab. All rows of a slab have the same room, that of its last.
const SLAB: usize = 256;
/// Rows of a slab that a task writes.
const LINES_PER_TASK: usize = 16;
/// Rows that a product reads at a time.
const QUAD: usize = 4;
/// Most tasks of a product; the same for any number of threads, so that sums have the same order.
const MOST_TASKS: usize = 16;
/// Rows of a task at least.
const ROWS_PER_TASK: usize = 64;

/// The entries below the diagonal of a symmetric matrix. The diagonal is the caller's.
#[derive(Debug, Default)]
pub struct Triangle<E> {
    rows: usize,
    /// Slab s has rows `s·SLAB` to `(s + 1)·SLAB − 1`. More than needed are kept for growing again.
    slabs: Vec<Vec<E>>,
    /// Room for entries as they are computed, kept because clearing fresh pages takes longer than filling it.
    computed: Vec<f32>,
}

impl<E: PackedEntry> Triangle<E> {
    /// A matrix of no rows.
    pub fn new() -> Self {
        Self { rows: 0, slabs: Vec::new(), computed: Vec::new() }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes that a matrix of so many rows takes.
    pub fn bytes(rows: usize) -> usize {
        let slabs = rows.div_ceil(SLAB);
        slabs * (slabs + 1) / 2 * SLAB * SLAB * size_of::<E>()
    }

    /// Row `i` up to the diagonal.
    pub fn row(&self, i: usize) -> &[E] {
        let (slab, at) = (i / SLAB, i % SLAB * (i / SLAB + 1) * SLAB);
        &self.slabs[slab][at..at + i]
    }

    /// Entry of row `i` and column `j`, which differ.
    pub fn entry(&self, i: usize, j: usize) -> f32 {
        let (i, j) = if i > j { (i, j) } else { (j, i) };
        self.row(i)[j].value() * E::UNIT
    }

    /// Grows to `rows` rows. `compute(from, to, out)` writes rows `from..to`, columns `0..to`, row-major.
    pub fn grow(
        &mut self,
        rows: usize,
        threads: &Threads,
        mut compute: impl FnMut(usize, usize, &mut [f32]) -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        let most = SLAB.min(rows.saturating_sub(self.rows)) * rows;
        if self.computed.len() < most {
            // Freed before the larger one is allocated.
            drop(std::mem::take(&mut self.computed));
            self.computed = pages::zeros(most);
        }
        while self.rows < rows {
            let slab = self.rows / SLAB;
            let (from, to) = (self.rows, rows.min((slab + 1) * SLAB));
            let stride = (slab + 1) * SLAB;
            if self.slabs.len() == slab {
                self.slabs.push(pages::zeros(SLAB * stride));
            }
            let buffer = &mut self.computed[..(to - from) * to];
            compute(from, to, buffer)?;
            let buffer = &*buffer;
            let lines = &mut self.slabs[slab][(from % SLAB) * stride..(from % SLAB + to - from) * stride];
            threads.chunks(lines, LINES_PER_TASK * stride, |t, lines| {
                for (r, line) in lines.chunks_mut(stride).enumerate() {
                    let k = LINES_PER_TASK * t + r;
                    let computed = &buffer[k * to..k * to + from + k];
                    line.iter_mut().zip(computed).for_each(|(stored, entry)| *stored = E::pack(*entry));
                }
            });
            self.rows = to;
        }
        Ok(())
    }

    /// Keeps the listed rows and columns (ascending).
    pub fn keep(&mut self, at: &[usize], threads: &Threads) {
        let mut lines: Vec<E> = pages::zeros(SLAB.min(at.len()) * at.len().next_multiple_of(SLAB));
        for slab in 0..at.len().div_ceil(SLAB) {
            // A row moves up or stays: what this slab becomes overwrites no row that a later one needs.
            let lines = self.copy_slab(at, slab, &mut lines, threads);
            let to = &mut self.slabs[slab][..lines.len()];
            let task = LINES_PER_TASK * (slab + 1) * SLAB;
            threads.chunks(to, task, |t, part| part.copy_from_slice(&lines[t * task..t * task + part.len()]));
        }
        self.rows = at.len();
    }

    /// The listed rows and columns (ascending) as a matrix of its own.
    pub fn part(&self, at: &[usize], threads: &Threads) -> Self {
        let mut part = Self { rows: at.len(), ..Self::new() };
        for slab in 0..at.len().div_ceil(SLAB) {
            let mut lines: Vec<E> = pages::zeros(SLAB * (slab + 1) * SLAB);
            self.copy_slab(at, slab, &mut lines, threads);
            part.slabs.push(lines);
        }
        part
    }

    /// Writes the lines of one slab of the matrix that has the listed rows and columns, and returns them.
    fn copy_slab<'l>(&self, at: &[usize], slab: usize, lines: &'l mut [E], threads: &Threads) -> &'l [E] {
        let rows = &at[slab * SLAB..at.len().min((slab + 1) * SLAB)];
        let stride = (slab + 1) * SLAB;
        let lines = &mut lines[..rows.len() * stride];
        threads.chunks(lines, LINES_PER_TASK * stride, |t, lines| {
            for (r, line) in lines.chunks_mut(stride).enumerate() {
                let r = LINES_PER_TASK * t + r;
                let from = self.row(rows[r]);
                line.iter_mut().zip(&at[..slab * SLAB + r]).for_each(|(stored, &q)| *stored = from[q]);
            }
        });
        lines
    }

    /// (A + diag)·x, with x and sums over rows in single precision.
    pub fn multiply(&self, diag: &[f64], x: &[f64], threads: &Threads) -> Vec<f64> {
        let n = self.rows;
        let single: Vec<f32> = x.iter().map(|v| *v as f32).collect();
        let tasks = MOST_TASKS.min(n / ROWS_PER_TASK).max(1);
        // Tasks of equal area, whole groups of rows each.
        let bound = |t: usize| match t {
            t if t == tasks => n,
            t => (n as f64 * (t as f64 / tasks as f64).sqrt()) as usize / QUAD * QUAD,
        };
        let sums = threads.map(tasks, |t| {
            let mut sum = vec![0f32; bound(t + 1)];
            let mut i = bound(t);
            while i < bound(t + 1) {
                let count = QUAD.min(bound(t + 1) - i);
                if count == QUAD {
                    let rows = [self.row(i), self.row(i + 1), self.row(i + 2), self.row(i + 3)].map(|row| &row[..i]);
                    add_quad(rows, &single, i, &mut sum);
                }
                for r in i..i + count {
                    let row = self.row(r);
                    for j in if count == QUAD { i } else { 0 }..r {
                        sum[r] += row[j].value() * single[j];
                        sum[j] += row[j].value() * single[r];
                    }
                }
                i += count;
            }
            sum
        });
        let mut out: Vec<f64> = vec![0.0; n];
        for sum in &sums {
            out.iter_mut().zip(sum).for_each(|(out, sum)| *out += f64::from(*sum));
        }
        let unit = f64::from(E::UNIT);
        out.iter_mut().zip(diag).zip(x).for_each(|((out, d), x)| *out = *out * unit + d * x);
        out
    }

    /// Whether all entries of a sample are in [0, 1].
    pub fn fits_unit_interval(block: &[f32]) -> bool {
        block.iter().all(|v| (-1e-5..=1.00001).contains(v))
    }
}

versions! {
    /// Adds four rows, of columns before `at`, to the sums: their products with x to sums `at..at + 4`, and their
    /// multiples by x of `at..at + 4` to the sums of the columns.
    fn add_quad<E: PackedEntry>(rows: [&[E]; QUAD], x: &[f32], at: usize, sum: &mut [f32]) -> () = add_quad_body
}

#[inline(always)]
fn add_quad_body<E: PackedEntry>(rows: [&[E]; QUAD], x: &[f32], at: usize, sum: &mut [f32]) {
    const LANES: usize = 16;
    let own = [x[at], x[at + 1], x[at + 2], x[at + 3]];
    let mut dots = [[0f32; LANES]; QUAD];
    let whole = at / LANES * LANES;
    let chunks = rows.map(|row| row[..whole].as_chunks::<LANES>().0);
    let columns = sum[..whole].as_chunks_mut::<LANES>().0;
    for (c, (column, x)) in columns.iter_mut().zip(x[..whole].as_chunks::<LANES>().0).enumerate() {
        let [a, b, c, d] = [&chunks[0][c], &chunks[1][c], &chunks[2][c], &chunks[3][c]];
        for l in 0..LANES {
            let (a, b, c, d) = (a[l].value(), b[l].value(), c[l].value(), d[l].value());
            dots[0][l] += a * x[l];
            dots[1][l] += b * x[l];
            dots[2][l] += c * x[l];
            dots[3][l] += d * x[l];
            column[l] += (a * own[0] + b * own[1]) + (c * own[2] + d * own[3]);
        }
    }
    for j in whole..at {
        for r in 0..QUAD {
            dots[r][0] += rows[r][j].value() * x[j];
            sum[j] += rows[r][j].value() * own[r];
        }
    }
    for r in 0..QUAD {
        sum[at + r] += dots[r].iter().sum::<f32>();
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn entry(i: usize, j: usize) -> f32 {
        ((i * 31 + j * 17) % 101) as f32 / 101.0
    }

    fn grown<E: PackedEntry>(steps: &[usize], threads: &Threads) -> Triangle<E> {
        let mut triangle = Triangle::new();
        for &rows in steps {
            triangle
                .grow(rows, threads, |from, to, out| {
                    for (at, value) in out.iter_mut().enumerate() {
                        let (i, j) = (from + at / to, at % to);
                        *value = if i > j { entry(i, j) } else { f32::NAN };
                    }
                    Ok(())
                })
                .unwrap();
        }
        triangle
    }

    fn check<E: PackedEntry>(triangle: &Triangle<E>, of: &[usize], tolerance: f64) {
        let n = of.len();
        assert_eq!(triangle.len(), n);
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let x: Vec<f64> = (0..n).map(|_| rng.random_range(-1.0..1.0)).collect();
        let diag: Vec<f64> = (0..n).map(|_| rng.random_range(1.0..2.0)).collect();
        let product = triangle.multiply(&diag, &x, &Threads::new(2));
        assert_eq!(product, triangle.multiply(&diag, &x, &Threads::one()));
        for i in 0..n {
            let other = |j: usize| f64::from(entry(of[i].max(of[j]), of[i].min(of[j])));
            let want: f64 = (0..n).map(|j| if i == j { diag[i] } else { other(j) } * x[j]).sum();
            assert!((product[i] - want).abs() <= tolerance * (n as f64).sqrt(), "{i} of {n}: {} {want}", product[i]);
        }
    }

    #[test]
    fn products_are_those_of_the_symmetric_matrix() {
        let threads = Threads::new(2);
        for steps in [&[1usize][..], &[3], &[70], &[5, 255, 257, 600], &[256, 512], &[1000, 1001]] {
            let all: Vec<usize> = (0..*steps.last().unwrap()).collect();
            check(&grown::<f32>(steps, &threads), &all, 1e-5);
            check(&grown::<u16>(steps, &threads), &all, 4e-5);
        }
    }

    #[test]
    fn kept_rows_and_copies_are_the_listed_ones() {
        let threads = Threads::new(2);
        for keep in [vec![0usize], (0..700).step_by(3).collect(), (5..700).collect(), (0..700).collect()] {
            let mut triangle = grown::<f32>(&[700], &threads);
            let part = triangle.part(&keep, &threads);
            check(&part, &keep, 1e-5);
            triangle.keep(&keep, &threads);
            check(&triangle, &keep, 1e-5);
        }
    }

    #[test]
    fn kept_rows_and_copies_can_grow_again() {
        let threads = Threads::new(2);
        let keep: Vec<usize> = (0..700).filter(|i| i % 3 != 1).collect();
        let mut kept = grown::<f32>(&[700], &threads);
        let part = kept.part(&keep, &threads);
        kept.keep(&keep, &threads);
        // Rows 700 and later of the same matrix come after those that were kept.
        let of: Vec<usize> = keep.iter().copied().chain(700..1000).collect();
        for mut triangle in [kept, part] {
            let compute = |from: usize, to: usize, out: &mut [f32]| {
                for (at, value) in out.iter_mut().enumerate() {
                    let (i, j) = (from + at / to, at % to);
                    *value = if i > j { entry(of[i], of[j]) } else { f32::NAN };
                }
                Ok(())
            };
            triangle.grow(of.len(), &threads, compute).unwrap();
            check(&triangle, &of, 1e-5);
        }
    }
}
