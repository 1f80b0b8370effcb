//! Kernel entries on the processor.

pub mod factor;
pub mod sweep;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::{Gram, Pick, Precision};
use crate::kernel::{Kernel, Statistic};

/// The Gram of a kernel over points, rows × columns.
#[derive(Debug)]
pub struct CpuGram {
    kernel: Kernel,
    rows: Points,
    cols: Points,
    entries: AtomicU64,
}

impl CpuGram {
    /// K(xᵢ, xⱼ) over one set of points.
    pub fn square(kernel: Kernel, points: &Points) -> Result<Self> {
        Self::new(kernel, points, points)
    }

    /// K(xᵢ, x′ⱼ): rows against columns.
    pub fn new(kernel: Kernel, rows: &Points, cols: &Points) -> Result<Self> {
        kernel.check()?;
        if kernel.statistic() == Statistic::Lookup {
            return Err(Error::data("a precomputed kernel has no entries to compute: use PrecomputedGram"));
        }
        if rows.dims() != cols.dims() {
            return Err(Error::Shape { what: "number of features", expected: cols.dims(), found: rows.dims() });
        }
        kernel.check_points(rows)?;
        kernel.check_points(cols)?;
        Ok(Self { kernel, rows: rows.clone(), cols: cols.clone(), entries: AtomicU64::new(0) })
    }

    fn each(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        control: &Control,
        mut put: impl FnMut(usize, usize, f64),
    ) -> Result<(), Interrupt> {
        let (n, m) = self.shape();
        let mut x = vec![0.0; self.rows.dims()];
        let mut y = x.clone();
        for r in 0..rows.len(n) {
            control.check()?;
            self.rows.copy_row(rows.get(r), &mut x);
            for c in 0..cols.len(m) {
                self.cols.copy_row(cols.get(c), &mut y);
                let pairs = x.iter().zip(&y);
                let s = match self.kernel.statistic() {
                    Statistic::Dot => pairs.map(|(a, b)| a * b).sum(),
                    Statistic::SquaredDistance => pairs.map(|(a, b)| (a - b) * (a - b)).sum(),
                    Statistic::AbsoluteDistance => pairs.map(|(a, b)| (a - b).abs()).sum(),
                    Statistic::ChiSquare => {
                        pairs.map(|(a, b)| if a + b > 0.0 { (a - b) * (a - b) / (a + b) } else { 0.0 }).sum()
                    }
                    Statistic::Lookup => 0.0,
                };
                put(r, c, self.kernel.of_statistic(s));
            }
        }
        self.entries.fetch_add((rows.len(n) * cols.len(m)) as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Gram for CpuGram {
    fn shape(&self) -> (usize, usize) {
        (self.rows.len(), self.cols.len())
    }
    fn diag(&self) -> Vec<f64> {
        if self.kernel.unit_diagonal() {
            return vec![1.0; self.rows.len()];
        }
        self.rows.squared_norms().iter().map(|s| self.kernel.of_statistic(*s)).collect()
    }
    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        let width = cols.len(self.shape().1);
        self.each(rows, cols, control, |r, c, v| out[r * width + c] = v as f32)
    }
    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        let width = cols.len(self.shape().1);
        self.each(rows, cols, control, |r, c, v| out[r * width + c] = v)
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
        self.each(rows, Pick::All, control, |r, c, value| (0..k).for_each(|j| out[r * k + j] += value * v[c * k + j]))
    }
    fn apply_t(
        &self,
        _precision: Precision,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        out.fill(0.0);
        self.each(Pick::All, Pick::All, control, |r, c, value| {
            (0..k).for_each(|j| out[c * k + j] += value * v[r * k + j])
        })
    }
    fn normal(
        &self,
        precision: Precision,
        w: &[f64],
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let mut kv = vec![0.0; self.shape().0 * k];
        self.apply(precision, Pick::All, v, k, &mut kv, control)?;
        kv.iter_mut().enumerate().for_each(|(at, value)| *value *= w[at / k]);
        self.apply_t(precision, &kv, k, out, control)
    }
    fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }
}
