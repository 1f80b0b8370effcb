//! Sparse rows: compressed sparse row storage with 64-bit row pointers.

use super::buffer::{Buffer, Real, first_not_finite};
use crate::error::{Error, Result, check_len};

/// `n` sparse rows over `d` features. Column indices of a row ascend strictly; all values are finite.
#[derive(Debug, Clone)]
pub struct Csr<T: Real> {
    d: usize,
    starts: Buffer<usize>,
    columns: Buffer<u32>,
    values: Buffer<T>,
}

impl<T: Real> Csr<T> {
    /// Takes the three arrays of CSR storage and checks all their invariants.
    pub fn new(
        d: usize,
        starts: impl Into<Buffer<usize>>,
        columns: impl Into<Buffer<u32>>,
        values: impl Into<Buffer<T>>,
    ) -> Result<Self> {
        let (starts, columns, values) = (starts.into(), columns.into(), values.into());
        if starts.first() != Some(&0) {
            return Err(Error::data("the row pointers of a sparse matrix must begin with 0"));
        }
        check_len("values of a sparse matrix", columns.len(), values.len())?;
        check_len("last row pointer of a sparse matrix", columns.len(), starts[starts.len() - 1])?;
        if let Some(row) = starts.windows(2).position(|w| w[0] > w[1]) {
            return Err(Error::data(format!("row pointers of a sparse matrix fall at row {row}")));
        }
        let (pointers, all_columns, all_values): (&[usize], &[u32], &[T]) = (&starts, &columns, &values);
        for row in 0..pointers.len() - 1 {
            let range = pointers[row]..pointers[row + 1];
            let (part, own) = (&all_columns[range.clone()], &all_values[range]);
            if part.windows(2).fold(false, |falls, w| falls | (w[0] >= w[1])) {
                return Err(Error::data(format!(
                    "column indices of row {row} do not ascend strictly: sort them and add duplicates"
                )));
            }
            if part.last().is_some_and(|&c| c as usize >= d) {
                return Err(Error::data(format!(
                    "row {row} has column {} but there are only {d} features",
                    part[part.len() - 1]
                )));
            }
            if let Some(at) = first_not_finite(own) {
                return Err(Error::NotFinite {
                    what: "the feature matrix",
                    row,
                    column: Some(part[at] as usize),
                    value: own[at].to_f64(),
                });
            }
        }
        Ok(Self { d, starts, columns, values })
    }

    /// The same rows over `d` other features, with `columns` in place of theirs, which must ascend in each row as they
    /// do; the values are shared.
    pub(crate) fn with_columns(&self, d: usize, columns: Vec<u32>) -> Self {
        debug_assert_eq!(columns.len(), self.columns.len());
        debug_assert!(columns.iter().all(|&c| (c as usize) < d));
        Self { d, starts: self.starts.clone(), columns: columns.into(), values: self.values.clone() }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Number of features.
    pub fn dims(&self) -> usize {
        self.d
    }
    /// Number of stored values.
    pub fn stored(&self) -> usize {
        self.values.len()
    }
    /// Row pointers, `n + 1` of them.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }
    /// Column indices of all rows.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }
    /// Values of all rows.
    pub fn values(&self) -> &[T] {
        &self.values
    }
    /// Columns and values of row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> (&[u32], &[T]) {
        let range = self.starts[i]..self.starts[i + 1];
        (&self.columns[range.clone()], &self.values[range])
    }
    /// The same rows with more features (those present in the training data but not in this file).
    pub fn widen(mut self, d: usize) -> Self {
        self.d = self.d.max(d);
        self
    }
}
