//! The data matrix X: linear solvers work on it instead of K.

use super::{DeviceFactor, Pick};
use crate::control::{Control, Interrupt};
use crate::data::Points;

/// X with one row per sample. Only products are offered, so X may be in memory or be read in blocks.
///
/// Every method gives the same bits for any number of threads, and returns `Err` soon (≤ 50 ms) after `control` is
/// interrupted; the output is then unspecified but initialised. Values may be single precision; sums are double.
pub trait Matrix: Send + Sync {
    /// Number of rows, n.
    fn rows(&self) -> usize;

    /// Number of columns, d.
    fn dims(&self) -> usize;

    /// Number of stored values: `n·d` if dense.
    fn stored(&self) -> usize;

    /// `out[r] = wᵀx` of the chosen rows.
    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt>;

    /// `out += Σ coefficient·x` over the chosen rows. Rows with coefficient 0 are skipped.
    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt>;

    /// `dots[r] = wᵀx` and `out += Σ a·(wᵀx − shift)·x` over the chosen rows with weights a: one product with the curvature
    /// of a Newton system. Rows that are expensive to get are needed once for both.
    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        w: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.dots(rows, w, dots, control)?;
        let coefficients: Vec<f64> = dots.iter().zip(weights).map(|(u, a)| a * (u - shift)).collect();
        self.combine(rows, &coefficients, out, control)
    }

    /// The second moments of the chosen rows about `centre` (length d, or empty for the origin), weighted: adds Σ a·(x
    /// − centre)(x − centre)ᵀ to the lower triangle of `second` (d × d, row-major) and Σ a·(x − centre) to `first`.
    /// Weights are ≥ 0; rows with weight 0 are skipped.
    fn moments(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        centre: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt>;

    /// `out[j] += Σ a·xⱼ²` over the chosen rows.
    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt>;

    /// The factor of I + Σ a·xxᵀ − hhᵀ/bottom, h = Σ a·x, over the chosen rows with weights a, where rows are computed. `None` if there
    /// is nothing to gain, or if it could not be computed.
    fn curvature_factor(
        &self,
        _rows: Pick<'_>,
        _weights: &[f64],
        _bottom: f64,
        _control: &Control,
    ) -> Option<Box<dyn DeviceFactor>> {
        None
    }

    /// The rows that these rows are computed from, if Newton systems are better solved with those.
    fn behind(&self) -> Option<&dyn RowsBehind> {
        None
    }

    /// Number of blocks the rows are read in, if they are not in memory.
    fn blocks(&self) -> usize {
        0
    }

    /// The first row of a block.
    fn block_start(&self, _block: usize) -> usize {
        0
    }

    /// Calls `work(first row, rows)` for the blocks in `order`, one after the other, while the next block is being
    /// read. Stops at the first `Err` of `work`.
    fn each_block(
        &self,
        _order: &[u32],
        control: &Control,
        _work: &mut dyn FnMut(usize, &Points) -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        control.check()
    }

    /// The rows themselves, if they are in memory.
    fn points(&self) -> Option<&Points> {
        None
    }
}

/// Rows k of which those of a matrix are x = L⁻¹k, where G = L·Lᵀ. A Newton system of the matrix is
///
/// ```text
/// I + Σ a·xxᵀ − hhᵀ/bottom = L⁻¹·(G + Σ a·kkᵀ − (Lh)(Lh)ᵀ/bottom)·L⁻ᵀ,   h = Σ a·x
/// ```
///
/// so that it can be formed, factored and multiplied with without L.
pub trait RowsBehind: Send + Sync {
    /// G in single precision, d × d: an approximation is enough for the direction of a step.
    fn gram(&self, control: &Control) -> Result<&[f32], Interrupt>;

    /// L·v.
    fn lower(&self, v: &[f64], control: &Control) -> Vec<f64>;

    /// Lᵀ·v.
    fn lower_transposed(&self, v: &[f64]) -> Vec<f64>;

    /// `out += Σ coefficient·k` over the chosen rows.
    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt>;

    /// `dots[r] = kᵀv` and `out += Σ a·(kᵀv − shift)·k` over the chosen rows with weights a.
    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        v: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt>;

    /// Adds Σ a·k to `first` and Σ a·kkᵀ to the lower triangle of `second`, to precondition: products may be single precision.
    fn moments(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt>;
}
