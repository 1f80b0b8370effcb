//! The data matrix by columns, for coordinate descent on the weights.

use crate::data::Points;

/// The data matrix in compressed column storage.
#[derive(Default)]
pub(super) struct ColumnStore {
    starts: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f64>,
}

impl ColumnStore {
    pub(super) fn new(points: &Points) -> Self {
        let (n, d) = (points.len(), points.dims());
        let mut starts = vec![0usize; d + 1];
        for i in 0..n {
            points.visit(i, |j, v| starts[j + 1] += usize::from(v != 0.0));
        }
        (0..d).for_each(|j| starts[j + 1] += starts[j]);
        let mut next = starts.clone();
        let (mut rows, mut values) = (vec![0; starts[d]], vec![0.0; starts[d]]);
        for i in 0..n {
            points.visit(i, |j, v| {
                if v != 0.0 {
                    rows[next[j]] = i as u32;
                    values[next[j]] = v;
                    next[j] += 1;
                }
            });
        }
        Self { starts, rows, values }
    }

    /// The rows and values of column `j`.
    pub(super) fn column(&self, j: usize) -> (&[u32], &[f64]) {
        let range = self.starts[j]..self.starts[j + 1];
        (&self.rows[range.clone()], &self.values[range])
    }
}
