//! Access to the rows of dense and sparse data in coordinate descent.

use crate::data::{Points, Real, Storage};
use crate::linalg::sparse;

/// The data of a row that a step needs besides its features. It fills one cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct RowState {
    pub(super) beta: f64,
    /// Qᵢᵢ.
    pub(super) q: f64,
    pub(super) p: f64,
    pub(super) lo: f64,
    pub(super) hi: f64,
    /// Loss and contribution to the gap at the last visit.
    pub(super) value: f32,
    pub(super) excess: f32,
    /// Position and number of the stored values of the row.
    pub(super) start: u64,
    pub(super) len: u32,
    /// The row waits 2 to this power epochs.
    pub(super) wait_level: u8,
}

/// Access to the features of a row, for any storage.
pub(super) trait RowAccess: Copy {
    /// xᵀw.
    fn dot(&self, row: &RowState, w: &[f64]) -> f64;
    /// w += c·x.
    fn add(&self, row: &RowState, c: f64, w: &mut [f64]);
    /// Requests the row from memory before it is used.
    fn prefetch(&self, row: &RowState);
}

/// Rows in compressed sparse storage.
#[derive(Clone, Copy)]
pub(super) struct SparseRows<'a, T> {
    pub(super) columns: &'a [u32],
    pub(super) values: &'a [T],
}

impl<T: Real> RowAccess for SparseRows<'_, T> {
    #[inline(always)]
    fn dot(&self, row: &RowState, w: &[f64]) -> f64 {
        let range = row.range();
        sparse::dot(&self.columns[range.clone()], &self.values[range], w)
    }
    #[inline(always)]
    fn add(&self, row: &RowState, c: f64, w: &mut [f64]) {
        let range = row.range();
        sparse::add(&self.columns[range.clone()], &self.values[range], c, w);
    }
    #[inline(always)]
    fn prefetch(&self, row: &RowState) {
        let range = row.range();
        sparse::prefetch(&self.columns[range.clone()]);
        sparse::prefetch(&self.values[range]);
    }
}

/// Rows in dense storage.
#[derive(Clone, Copy)]
pub(super) struct DenseRows<'a, T> {
    pub(super) values: &'a [T],
}

impl<T: Real> RowAccess for DenseRows<'_, T> {
    #[inline(always)]
    fn dot(&self, row: &RowState, w: &[f64]) -> f64 {
        let x = &self.values[row.range()];
        let mut sums = [0.0; 8];
        let (xs, ws) = (x.chunks_exact(8), w.chunks_exact(8));
        let rest: f64 = xs.remainder().iter().zip(ws.remainder()).map(|(x, w)| x.to_f64() * w).sum();
        for (x, w) in xs.zip(ws) {
            (0..8).for_each(|l| sums[l] += x[l].to_f64() * w[l]);
        }
        sums.iter().sum::<f64>() + rest
    }
    #[inline(always)]
    fn add(&self, row: &RowState, c: f64, w: &mut [f64]) {
        w.iter_mut().zip(&self.values[row.range()]).for_each(|(w, x)| *w += c * x.to_f64());
    }
    #[inline(always)]
    fn prefetch(&self, row: &RowState) {
        sparse::prefetch(&self.values[row.range()]);
    }
}

impl RowState {
    /// Stored values of the row.
    pub(super) fn stored(&self) -> usize {
        self.len as usize
    }

    #[inline(always)]
    fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// The states of all rows: `new` gives β and the terms of a row, the rest is filled in here. `square` is s² of the bias.
pub(super) fn row_states(points: &Points, square: f64, new: impl Fn(usize) -> RowState) -> Vec<RowState> {
    let norms = points.squared_norms();
    let starts = match points.storage() {
        Storage::SparseF32(m) => Some(m.starts()),
        Storage::SparseF64(m) => Some(m.starts()),
        Storage::DenseF32(_) | Storage::DenseF64(_) => None,
    };
    let d = points.dims();
    let row = |i: usize| {
        let (start, len) = starts.map_or((i * d, d), |s| (s[i], s[i + 1] - s[i]));
        RowState { q: norms[i] + square, start: start as u64, len: len as u32, ..new(i) }
    };
    (0..points.len()).map(row).collect()
}

/// Evaluates `$body` with `$rows` bound to the rows of `$points`, for any storage.
macro_rules! with_rows {
    ($points:expr, $rows:ident => $body:expr) => {{
        use $crate::data::Storage;
        use $crate::solver::linear::rows::{DenseRows, SparseRows};
        match $points.storage() {
            Storage::SparseF32(m) => {
                let $rows = SparseRows { columns: m.columns(), values: m.values() };
                $body
            }
            Storage::SparseF64(m) => {
                let $rows = SparseRows { columns: m.columns(), values: m.values() };
                $body
            }
            Storage::DenseF32(m) => {
                let $rows = DenseRows { values: m.values() };
                $body
            }
            Storage::DenseF64(m) => {
                let $rows = DenseRows { values: m.values() };
                $body
            }
        }
    }};
}
pub(super) use with_rows;
