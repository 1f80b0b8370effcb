//! Stored features, with second moments over tiles that threads share.
//!
//! The rows of a data matrix are multiplied with each other in groups, one sum per group: with thousands of features those
//! sums take more memory traffic than multiplications.

use super::recomputed::{add_products, scale_rows};
use crate::control::{Control, Interrupt};
use crate::data::{Points, Storage};
use crate::gram::{Matrix, Pick};

/// Rows multiplied together.
const HEIGHT: usize = 1024;
/// Rows per task.
const TASK_ROWS: usize = 64;

pub(super) struct StoredFeatures {
    points: Points,
    inner: Box<dyn Matrix>,
}

impl StoredFeatures {
    pub(super) fn new(points: Points, control: &Control) -> Self {
        Self { inner: control.backend().matrix(&points), points }
    }
}

impl Matrix for StoredFeatures {
    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn dims(&self) -> usize {
        self.inner.dims()
    }

    fn stored(&self) -> usize {
        self.inner.stored()
    }

    fn points(&self) -> Option<&Points> {
        Some(&self.points)
    }

    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.inner.dots(rows, w, out, control)
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.inner.combine(rows, coefficients, out, control)
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
        let (m, count) = (self.dims(), weights.len());
        let mut block = vec![0.0; HEIGHT.min(count) * m];
        for from in (0..count).step_by(HEIGHT) {
            let block = &mut block[..((from + HEIGHT).min(count) - from) * m];
            control.threads.chunks(block, TASK_ROWS * m, |task, part| {
                for (k, row) in part.chunks_mut(m).enumerate() {
                    let i = rows.get(from + task * TASK_ROWS + k);
                    match self.points.storage() {
                        Storage::DenseF32(x) => row.iter_mut().zip(x.row(i)).for_each(|(to, x)| *to = f64::from(*x)),
                        Storage::DenseF64(x) => row.copy_from_slice(x.row(i)),
                        Storage::SparseF32(_) | Storage::SparseF64(_) => self.points.copy_row(i, row),
                    }
                    if !centre.is_empty() {
                        row.iter_mut().zip(centre).for_each(|(x, c)| *x -= c);
                    }
                }
            });
            scale_rows(block, &weights[from..], first, &control.threads);
            add_products(block, m, second, &control.threads);
            control.spend(block.len() * m / 2);
            control.check()?;
        }
        Ok(())
    }

    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.inner.squares(rows, weights, out, control)
    }
}
