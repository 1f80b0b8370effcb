//! K and products with it: stored in memory, or computed on demand.

use super::system::SystemSolver;
use crate::control::{Control, Interrupt};
use crate::gram::{Pick, Precision};
use crate::linalg::{pages, sweep};

/// Scores that a thread accumulates together, so that they stay in its L1 cache.
const PRODUCT_CHUNK: usize = 1024;
/// Rows of K computed together.
const STRIP_ROWS: usize = 256;
/// Fewest entries per task.
const MIN_TASK_ENTRIES: usize = 1 << 15;

impl SystemSolver<'_> {
    /// The precision of products with K during the run. Scores computed in single precision must be recomputed before
    /// they are used to stop.
    pub(super) fn working_precision(&self) -> Precision {
        if self.store.is_none() && self.linear.is_none() { Precision::Single } else { Precision::Double }
    }

    /// Computes and stores K if it fits in memory.
    pub(super) fn store_kernel(&mut self, control: &Control) -> Result<(), Interrupt> {
        let bytes = (self.n as u64).saturating_mul(self.n as u64).saturating_mul(8);
        // A device computes products faster than the memory of the processor is read.
        let elsewhere = self.gram.device_solver().is_some();
        if self.linear.is_some() || bytes > self.memory / 3 || self.n == 0 || elsewhere {
            return Ok(());
        }
        // K is symmetric: compute strips from the diagonal to the right, and copy each to its transpose.
        let n = self.n;
        let mut k = pages::zeros(n * n);
        let mut strip = vec![0.0; STRIP_ROWS.min(n) * n];
        for from in (0..n).step_by(STRIP_ROWS) {
            let (to, width) = ((from + STRIP_ROWS).min(n), n - from);
            let part = &mut strip[..(to - from) * width];
            self.gram.block_f64(Pick::Range(from, to), Pick::Range(from, n), part, control)?;
            for (r, line) in part.chunks(width).enumerate() {
                k[(from + r) * n + from..][..width].copy_from_slice(line);
            }
            let part = &*part;
            control.threads.chunks(&mut k[to * n..], 16 * n, |t, rows| {
                for (r, row) in rows.chunks_mut(n).enumerate() {
                    let column = to + t * 16 + r - from;
                    row[from..to].iter_mut().enumerate().for_each(|(a, v)| *v = part[a * width + column]);
                }
            });
            control.check()?;
        }
        self.store = Some(k);
        Ok(())
    }

    /// K·x for `k` columns (x and the result n × k).
    pub(super) fn product(
        &self,
        precision: Precision,
        x: &[f64],
        k: usize,
        control: &Control,
    ) -> Result<Vec<f64>, Interrupt> {
        self.product_rows(precision, Pick::All, x, k, control)
    }

    /// The same for some rows of K.
    pub(super) fn product_rows(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        x: &[f64],
        k: usize,
        control: &Control,
    ) -> Result<Vec<f64>, Interrupt> {
        let mut out = vec![0.0; rows.len(self.n) * k];
        let Some(store) = &self.store else {
            self.gram.apply(precision, rows, x, k, &mut out, control)?;
            return Ok(out);
        };
        // K is symmetric: K·x is the sum of its rows times the entries of x, and zero entries are skipped.
        let n = self.n;
        let used: Vec<u32> = (0..n as u32).filter(|&i| x[i as usize * k..][..k].iter().any(|v| *v != 0.0)).collect();
        control.spend(used.len() * rows.len(n).min(n) * k);
        if rows.len(n) * 4 < n {
            let picked: Vec<Vec<f64>> =
                (0..k).map(|column| used.iter().map(|&i| x[i as usize * k + column]).collect()).collect();
            // Enough work per task to be worth a thread.
            let rows_per_task = (MIN_TASK_ENTRIES / (k * used.len()).max(1)).max(1);
            control.threads.chunks(&mut out, rows_per_task * k, |t, part| {
                for (r, values) in part.chunks_mut(k).enumerate() {
                    let entries = &store[rows.get(t * rows_per_task + r) * n..][..n];
                    values.iter_mut().zip(&picked).for_each(|(v, x)| *v = gathered_dot(entries, &used, x));
                }
            });
            control.check()?;
            return Ok(out);
        }
        let chunk = PRODUCT_CHUNK.min(n.div_ceil(8)).max(64);
        let mut all_rows = vec![0.0; n * k];
        for (column, out) in all_rows.chunks_mut(n).enumerate() {
            control.threads.chunks(out, chunk, |t, part| {
                let at = t * chunk;
                for i in used.iter().map(|&i| i as usize) {
                    sweep::add_row(part, &store[i * n + at..][..part.len()], x[i * k + column]);
                }
            });
            control.check()?;
        }
        for (r, values) in out.chunks_mut(k).enumerate() {
            let row = rows.get(r);
            values.iter_mut().enumerate().for_each(|(column, value)| *value = all_rows[column * n + row]);
        }
        Ok(out)
    }

    pub(super) fn block(
        &self,
        rows: &[u32],
        cols: &[u32],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let Some(store) = &self.store else {
            return self.gram.block_f64(Pick::List(rows), Pick::List(cols), out, control);
        };
        let (n, width) = (self.n, cols.len());
        control.spend(out.len());
        control.threads.chunks(out, 32 * width.max(1), |t, part| {
            for (r, line) in part.chunks_mut(width.max(1)).enumerate() {
                let entries = &store[rows[t * 32 + r] as usize * n..][..n];
                line.iter_mut().zip(cols).for_each(|(o, &c)| *o = entries[c as usize]);
            }
        });
        control.check()
    }

    /// The lower triangle of K over `set`, row-major; entries above the diagonal are undefined.
    pub(super) fn triangle(&self, set: &[u32], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        let (n, m) = (self.n, set.len());
        if let Some(store) = &self.store {
            control.spend(m * m / 2);
            control.threads.chunks(out, 32 * m.max(1), |t, part| {
                for (r, line) in part.chunks_mut(m.max(1)).enumerate() {
                    let at = t * 32 + r;
                    let entries = &store[set[at] as usize * n..][..n];
                    line.iter_mut().zip(&set[..=at]).for_each(|(o, &c)| *o = entries[c as usize]);
                }
            });
            return control.check();
        }
        let mut strip = vec![0.0; STRIP_ROWS.min(m) * m];
        for from in (0..m).step_by(STRIP_ROWS) {
            let to = (from + STRIP_ROWS).min(m);
            let part = &mut strip[..(to - from) * to];
            self.gram.block_f64(Pick::List(&set[from..to]), Pick::List(&set[..to]), part, control)?;
            for (r, line) in part.chunks(to).enumerate() {
                out[(from + r) * m..][..to].copy_from_slice(line);
            }
        }
        Ok(())
    }
}

/// Σ entries[at]·x over the listed positions, in four partial sums.
fn gathered_dot(entries: &[f64], at: &[u32], x: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (at, at_rest) = at.as_chunks::<4>();
    let (x, x_rest) = x.as_chunks::<4>();
    for (at, x) in at.iter().zip(x) {
        (0..4).for_each(|k| sums[k] += entries[at[k] as usize] * x[k]);
    }
    at_rest.iter().zip(x_rest).for_each(|(&at, x)| sums[0] += entries[at as usize] * x);
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::gram::Gram;
    use crate::kernel::Kernel;

    /// Products and triangles, with K stored and not stored, against entries. Few rows take another code path than
    /// many.
    #[test]
    fn products_and_triangles_are_those_of_k() {
        let n = 300;
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let x: Vec<f64> = (0..2 * n).map(|_| rng.random_range(-1.0..1.0)).collect();
        let points = Points::dense_f64(n, 2, x).unwrap();
        let gram = CpuGram::square(Kernel::rbf(0.7), &points).unwrap();
        let control = Control::unlimited(Threads::new(2));
        let mut k = vec![0.0; n * n];
        gram.block_f64(Pick::All, Pick::All, &mut k, &control).unwrap();
        let few_rows: Vec<u32> = (0..n as u32).filter(|i| i % 7 == 2).collect();
        let most_rows: Vec<u32> = (0..n as u32).rev().filter(|i| i % 9 != 0).collect();
        let mut systems = SystemSolver::new(&gram, None, 1 << 30, true);
        for stored in [false, true] {
            if stored {
                systems.store_kernel(&control).unwrap();
            }
            for columns in [1, 2] {
                let v: Vec<f64> =
                    (0..n * columns).map(|i| if i / columns % 3 == 0 { 0.0 } else { (i as f64).sin() }).collect();
                for rows in [Pick::All, Pick::List(&few_rows), Pick::List(&most_rows)] {
                    let found = systems.product_rows(Precision::Double, rows, &v, columns, &control).unwrap();
                    for r in 0..rows.len(n) {
                        for c in 0..columns {
                            let expected: f64 = (0..n).map(|i| k[rows.get(r) * n + i] * v[i * columns + c]).sum();
                            let error = (found[r * columns + c] - expected).abs();
                            assert!(error < 1e-11, "stored {stored}, {columns} columns, row {r}: {error}");
                        }
                    }
                }
            }
            for set in [&few_rows, &most_rows] {
                let m = set.len();
                let mut found = vec![f64::NAN; m * m];
                systems.triangle(set, &mut found, &control).unwrap();
                for r in 0..m {
                    for c in 0..=r {
                        let expected = k[set[r] as usize * n + set[c] as usize];
                        assert!((found[r * m + c] - expected).abs() < 1e-13, "stored {stored}: ({r}, {c})");
                    }
                }
            }
        }
    }
}
