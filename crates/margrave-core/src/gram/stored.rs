//! A Gram matrix kept in memory in single precision: one matrix serves all folds, costs and losses of a search.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Accuracy, Chain, Gram, Pick, Precision};
use crate::control::{Control, Interrupt};

/// Rows computed at a time.
const CHUNK: usize = 128;

/// K of `n` points, n² single-precision numbers.
pub struct StoredGram {
    n: usize,
    values: Vec<f32>,
    diag: Vec<f64>,
}

impl StoredGram {
    /// Bytes needed for n points.
    pub fn bytes(n: usize) -> u64 {
        (n as u64).saturating_mul(n as u64).saturating_mul(4)
    }

    /// Computes all entries of a square Gram.
    pub fn new(gram: &dyn Gram, control: &Control) -> Result<Self, Interrupt> {
        Self::with_memory(gram, Vec::new(), control)
    }

    /// The same in memory that another one has left, see [`into_values`](Self::into_values).
    pub fn with_memory(gram: &dyn Gram, mut values: Vec<f32>, control: &Control) -> Result<Self, Interrupt> {
        let n = gram.shape().0;
        values.resize(n * n, 0.0);
        for (at, part) in values.chunks_mut(CHUNK * n.max(1)).enumerate() {
            let from = at * CHUNK;
            gram.block_f32(Pick::Range(from, (from + CHUNK).min(n)), Pick::All, part, control)?;
        }
        Ok(Self { n, values, diag: gram.diag() })
    }

    /// From a symmetric matrix of n² entries, row-major.
    pub fn from_values(n: usize, values: Vec<f32>) -> Self {
        assert_eq!(values.len(), n * n, "n² entries");
        let diag = (0..n).map(|i| f64::from(values[i * n + i])).collect();
        Self { n, values, diag }
    }

    /// The entries, so that their memory can be reused.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.n..(i + 1) * self.n]
    }

    /// Whether differences of entries still separate points in single precision: the typical Kᵢᵢ + Kⱼⱼ − 2Kᵢⱼ, over a
    /// fixed sample of pairs, is well above the rounding of its terms.
    pub fn separates(&self) -> bool {
        const SAMPLE: usize = 24;
        let m = SAMPLE.min(self.n);
        let row = |k: usize| k * self.n / m;
        let mut ratios = Vec::new();
        for (a, b) in (0..m).flat_map(|a| (0..a).map(move |b| (row(a), row(b)))) {
            let (own, other) = (self.diag[a], self.diag[b]);
            let scale = own.abs().max(other.abs());
            if scale > 0.0 {
                ratios.push((own + other - 2.0 * f64::from(self.row(a)[b])) / scale);
            }
        }
        let largest = self.diag.iter().fold(0.0f64, |most, k| most.max(k.abs()));
        if ratios.is_empty() || largest > 1e6 {
            return false;
        }
        let middle = ratios.len() / 2;
        *ratios.select_nth_unstable_by(middle, f64::total_cmp).1 >= 1e-3
    }

    /// K over all rows except `from..to`: the training part when that range is held out.
    pub fn without(&self, from: usize, to: usize) -> Without<'_> {
        Without { gram: self, from, to, read: AtomicU64::new(0) }
    }
}

/// All rows and columns of a stored Gram except a range.
pub struct Without<'a> {
    gram: &'a StoredGram,
    from: usize,
    to: usize,
    read: AtomicU64,
}

impl Without<'_> {
    fn len(&self) -> usize {
        self.gram.n - (self.to - self.from)
    }

    /// The row of the full Gram that corresponds to row `i`.
    pub fn there(&self, i: usize) -> usize {
        if i < self.from { i } else { i + self.to - self.from }
    }

    /// The two parts of a row that are not held out.
    fn pieces(&self, i: usize) -> (&[f32], &[f32]) {
        let row = self.gram.row(self.there(i));
        (&row[..self.from], &row[self.to..])
    }

    /// Adds v times row `there` of the full Gram to the kept rows `from..`; `out` holds those rows × k.
    fn add(&self, there: usize, from: usize, v: &[f64], out: &mut [f64]) {
        let (row, k) = (self.gram.row(there), v.len());
        let to = from + out.len() / k;
        let middle = self.from.clamp(from, to);
        let (before, after) = out.split_at_mut((middle - from) * k);
        let pieces =
            [(before, &row[from..middle]), (after, &row[middle + self.to - self.from..to + self.to - self.from])];
        for (out, row) in pieces {
            match v {
                [v] => crate::linalg::sweep::add_row(out, row, *v),
                _ => {
                    for (out, value) in out.chunks_exact_mut(k).zip(row) {
                        out.iter_mut().zip(v).for_each(|(out, v)| *out += f64::from(*value) * v);
                    }
                }
            }
        }
    }

    fn copy<T: From<f32> + Copy>(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [T],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let n = self.len();
        let width = cols.len(n);
        let chosen: Option<Vec<usize>> = match cols {
            Pick::All => None,
            _ => Some((0..width).map(|c| self.there(cols.get(c))).collect()),
        };
        for (r, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
            if r % 64 == 0 {
                control.check()?;
            }
            let i = rows.get(r);
            match &chosen {
                None => {
                    let (before, after) = self.pieces(i);
                    let (first, second) = out.split_at_mut(before.len());
                    first.iter_mut().zip(before).for_each(|(out, v)| *out = T::from(*v));
                    second.iter_mut().zip(after).for_each(|(out, v)| *out = T::from(*v));
                }
                Some(columns) => {
                    let row = self.gram.row(self.there(i));
                    out.iter_mut().zip(columns).for_each(|(out, &c)| *out = T::from(row[c]));
                }
            }
        }
        self.read.fetch_add((rows.len(n) * width) as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Gram for Without<'_> {
    fn shape(&self) -> (usize, usize) {
        (self.len(), self.len())
    }

    fn diag(&self) -> Vec<f64> {
        (0..self.len()).map(|i| self.gram.diag[self.there(i)]).collect()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        self.copy(rows, cols, out, control)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.copy(rows, cols, out, control)
    }

    fn apply(
        &self,
        _precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let active: Vec<(usize, &[f64])> = v
            .chunks_exact(k.max(1))
            .enumerate()
            .filter(|(_, v)| v.iter().any(|x| *x != 0.0))
            .map(|(i, v)| (self.there(i), v))
            .collect();
        out.fill(0.0);
        let height = rows.len(self.len());
        control.spend(height * active.len() * k);
        if 4 * height >= self.len() {
            // K is symmetric: summing whole contiguous rows is much faster than gathering columns.
            let mut all = vec![0.0; if matches!(rows, Pick::All) { 0 } else { self.len() * k }];
            let sums: &mut [f64] = if all.is_empty() { out } else { &mut all };
            control.threads.chunks(sums, 1024 * k.max(1), |task, part| {
                let from = task * 1024;
                for (at, (column, v)) in active.iter().enumerate() {
                    if at % 256 == 0 && control.check().is_err() {
                        return;
                    }
                    self.add(*column, from, v, part);
                }
            });
            if !all.is_empty() {
                for (r, out) in out.chunks_exact_mut(k.max(1)).enumerate() {
                    out.copy_from_slice(&all[rows.get(r) * k..(rows.get(r) + 1) * k]);
                }
            }
        } else {
            control.threads.chunks(out, 64 * k.max(1), |task, part| {
                if control.check().is_err() {
                    return;
                }
                for (r, out) in part.chunks_exact_mut(k).enumerate() {
                    let row = self.gram.row(self.there(rows.get(task * 64 + r)));
                    if let [out] = out {
                        // Four independent sums hide the latency of additions.
                        let mut sums = [0.0; 4];
                        let mut fours = active.chunks_exact(4);
                        for four in &mut fours {
                            for (sum, (column, v)) in sums.iter_mut().zip(four) {
                                *sum += f64::from(row[*column]) * v[0];
                            }
                        }
                        let rest: f64 = fours.remainder().iter().map(|(c, v)| f64::from(row[*c]) * v[0]).sum();
                        *out = sums.iter().sum::<f64>() + rest;
                    } else {
                        for (column, v) in &active {
                            let value = f64::from(row[*column]);
                            out.iter_mut().zip(*v).for_each(|(out, v)| *out += value * v);
                        }
                    }
                }
            });
        }
        self.read.fetch_add((rows.len(self.len()) * active.len()) as u64, Ordering::Relaxed);
        control.check()
    }

    /// Entries are stored in single precision.
    fn accuracy(&self) -> Accuracy {
        const SINGLE: f64 = (1u64 << 30) as f64;
        let size = self.diag().iter().map(|k| k.abs().sqrt()).collect();
        Accuracy { size, relative: SINGLE, definite: false, chain: Chain::default() }
    }

    fn effort(&self) -> f64 {
        1.0
    }

    fn entries(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::gram::PrecomputedGram;

    #[test]
    fn close_points_and_large_entries_need_double_precision() {
        let kept = |apart: f32, scale: f32| {
            let entry = |at: usize| if at / 30 == at % 30 { scale } else { scale * (1.0 - apart) };
            StoredGram::from_values(30, (0..900).map(entry).collect()).separates()
        };
        assert!(kept(0.1, 1.0) && kept(0.1, 1e5));
        assert!(!kept(1e-4, 1.0) && !kept(0.1, 1e7));
    }

    #[test]
    fn memory_of_another_matrix_is_overwritten() {
        let small = PrecomputedGram::new(Points::dense_f64(2, 2, vec![2.0, 1.0, 1.0, 3.0]).unwrap());
        let control = Control::unlimited(Threads::one());
        let stored = StoredGram::with_memory(&small, vec![9.0; 100], &control).unwrap();
        assert_eq!((stored.row(0), stored.row(1)), ([2.0f32, 1.0].as_slice(), [1.0f32, 3.0].as_slice()));
        assert_eq!(stored.into_values().len(), 4);
    }

    #[test]
    fn a_range_is_held_out() {
        let n = 7;
        let values: Vec<f64> = (0..n * n).map(|at| (10 * (at / n).min(at % n) + (at / n).max(at % n)) as f64).collect();
        let full = PrecomputedGram::new(Points::dense_f64(n, n, values).unwrap());
        let control = Control::unlimited(Threads::one());
        let stored = StoredGram::new(&full, &control).unwrap();
        let part = stored.without(2, 4);
        assert_eq!((part.shape(), part.diag()), ((5, 5), vec![0.0, 11.0, 44.0, 55.0, 66.0]));
        let mut row = [0f32; 5];
        part.block_f32(Pick::List(&[2]), Pick::All, &mut row, &control).unwrap();
        assert_eq!(row, [4.0, 14.0, 44.0, 45.0, 46.0]);
        let mut two = [0f64; 2];
        part.block_f64(Pick::Range(1, 2), Pick::List(&[4, 0]), &mut two, &control).unwrap();
        assert_eq!(two, [16.0, 1.0]);
        let mut out = [0.0; 5];
        part.apply(Precision::Double, Pick::All, &[0.0, 1.0, 0.0, 0.0, 2.0], 1, &mut out, &control).unwrap();
        assert_eq!(out, [13.0, 43.0, 106.0, 127.0, 148.0]);
        let few = out;
        part.apply(Precision::Double, Pick::All, &[1.0, 1.0, 0.0, 0.0, 2.0], 1, &mut out, &control).unwrap();
        // One more active column, K[·, 0].
        assert_eq!(out, std::array::from_fn(|i| few[i] + part.there(i) as f64));
    }
}
