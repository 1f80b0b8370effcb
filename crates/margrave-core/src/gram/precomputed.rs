//! A Gram matrix given as values.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Accuracy, Chain, Gram, Pick, Precision};
use crate::control::{Control, Interrupt};
use crate::data::Points;

/// A Gram whose entries are the values of a matrix: a precomputed or user-defined kernel.
#[derive(Debug)]
pub struct PrecomputedGram {
    values: Points,
    read: AtomicU64,
}

impl PrecomputedGram {
    /// Row i of `values` is row i of K.
    pub fn new(values: Points) -> Self {
        Self { values, read: AtomicU64::new(0) }
    }

    fn rows(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        control: &Control,
        mut put: impl FnMut(usize, f64),
    ) -> Result<(), Interrupt> {
        let (n, m) = self.shape();
        let width = cols.len(m);
        control.spend(2 * rows.len(n) * width);
        let mut row = vec![0.0; m];
        for r in 0..rows.len(n) {
            control.check()?;
            self.values.copy_row(rows.get(r), &mut row);
            for c in 0..width {
                put(r * width + c, row[cols.get(c)]);
            }
        }
        self.read.fetch_add((rows.len(n) * width) as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Gram for PrecomputedGram {
    fn shape(&self) -> (usize, usize) {
        (self.values.len(), self.values.dims())
    }

    fn diag(&self) -> Vec<f64> {
        let mut row = vec![0.0; self.values.dims()];
        (0..self.values.len())
            .map(|i| {
                self.values.copy_row(i, &mut row);
                row[i]
            })
            .collect()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        self.rows(rows, cols, control, |at, v| out[at] = v as f32)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.rows(rows, cols, control, |at, v| out[at] = v)
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
        out.fill(0.0);
        let width = self.shape().1;
        self.rows(rows, Pick::All, control, |at, value| {
            let (r, c) = (at / width, at % width);
            for j in 0..k {
                out[r * k + j] += value * v[c * k + j];
            }
        })
    }

    fn effort(&self) -> f64 {
        1.0
    }

    /// Entries are exact; the size of a row is the square root of the largest entry in its row and column.
    fn accuracy(&self) -> Accuracy {
        let mut largest = vec![0.0f64; self.values.len().max(self.values.dims())];
        for row in 0..self.values.len() {
            let mut own = 0.0f64;
            self.values.visit(row, |column, value| {
                own = own.max(value.abs());
                largest[column] = largest[column].max(value.abs());
            });
            largest[row] = largest[row].max(own);
        }
        let size = largest.into_iter().map(f64::sqrt).collect();
        Accuracy { size, relative: 0.0, definite: false, chain: Chain::default() }
    }

    fn entries(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}
