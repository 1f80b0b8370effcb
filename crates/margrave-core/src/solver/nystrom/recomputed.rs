//! Features that are not stored: products with F = K_nS·L⁻ᵀ from blocks of K_nS.
//!
//! Fw = K_nS(L⁻ᵀw) and Fᵀβ = L⁻¹(K_Snβ), so a product costs n·m kernel entries and two triangular solves. The second
//! moments of r rows cost r·m² multiply–adds: Σ a·k·kᵀ over rows k of K_nS, then L⁻¹(·)L⁻ᵀ.
//!
//! Entries are single precision unless the centres are nearly dependent: L⁻¹ then amplifies their rounding.

use std::sync::{Arc, OnceLock};

use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use faer::{Accum, MatMut, MatRef, Par};

use super::features::Centres;
use crate::backend::RowSource;
use crate::control::{Control, Interrupt, Threads};
use crate::error::Result;
use crate::gram::{DeviceEnd, DeviceFactor, DeviceFeatures, Gram, Matrix, Pick, Precision};
use crate::kernel::Kernel;
use crate::linalg::factor::Cholesky;
use crate::linalg::sweep;

/// Rows whose kernel entries are held at once.
pub(super) const HEIGHT: usize = 1024;
/// Side of the tiles of second moments that threads share.
const TILE: usize = 128;
/// Columns per task of sums over rows.
const SUM_COLUMNS: usize = 256;
/// Rows per task when they are scaled.
pub(super) const SCALED_ROWS: usize = 64;
/// Smallest relative pivot of the centres for which single-precision entries suffice.
const SINGLE_PIVOT: f64 = 1e-3;

pub(super) struct RecomputedFeatures<'a> {
    /// n × m.
    pub(super) rows: Arc<dyn Gram + 'a>,
    /// m × n.
    columns: Arc<dyn Gram + 'a>,
    pub(super) factor: Cholesky<f64>,
    pub(super) precision: Precision,
    /// The same products where the entries are computed.
    device: Option<Box<dyn DeviceFeatures>>,
    /// m × m.
    centres: Arc<dyn Gram>,
    /// Its entries, computed when they are needed.
    centre_gram: OnceLock<Vec<f32>>,
}

impl<'a> RecomputedFeatures<'a> {
    pub(super) fn new(kernel: Kernel, source: &RowSource<'a>, centres: &Centres, control: &Control) -> Result<Self> {
        let precision = if centres.least_pivot >= SINGLE_PIVOT { Precision::Single } else { Precision::Double };
        let rows: Arc<dyn Gram + 'a> = Arc::from(source.gram(kernel, &centres.points, control)?);
        Ok(Self {
            device: rows.features(&centres.factor, precision),
            rows,
            columns: Arc::from(source.transposed_gram(kernel, &centres.points, control)?),
            factor: centres.factor.clone(),
            precision,
            centres: Arc::from(control.backend().square_gram(kernel, &centres.points)?),
            centre_gram: OnceLock::new(),
        })
    }

    /// K_SS in single precision, rounded from double.
    pub(super) fn centre_gram(&self, control: &Control) -> Result<&[f32], Interrupt> {
        if let Some(known) = self.centre_gram.get() {
            return Ok(known);
        }
        let mut entries = vec![0.0; self.m() * self.m()];
        self.centres.block_f64(Pick::All, Pick::All, &mut entries, control)?;
        Ok(self.centre_gram.get_or_init(|| entries.iter().map(|k| *k as f32).collect()))
    }

    /// The same with entries in double precision: sums over very many rows show the rounding of single precision.
    pub(super) fn in_double(&self) -> Self {
        let (rows, columns, precision) = (self.rows.clone(), self.columns.clone(), Precision::Double);
        let device = rows.features(&self.factor, precision);
        let (centres, centre_gram) = (self.centres.clone(), OnceLock::new());
        Self { rows, columns, factor: self.factor.clone(), precision, device, centres, centre_gram }
    }

    /// Whether products are computed where the entries are.
    pub(super) fn on_device(&self) -> bool {
        self.device.is_some()
    }

    /// What the device returns; `None` if there is none or if it has failed.
    fn ask<R>(&self, work: impl FnOnce(&dyn DeviceFeatures) -> Result<R, DeviceEnd>) -> Option<Result<R, Interrupt>> {
        match work(self.device.as_deref()?) {
            Ok(done) => Some(Ok(done)),
            Err(DeviceEnd::Interrupted(why)) => Some(Err(why)),
            Err(DeviceEnd::Failed) => None,
        }
    }

    pub(super) fn m(&self) -> usize {
        self.factor.len()
    }

    /// q = K_Snc, without L⁻¹.
    pub(super) fn raw_combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        q: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let mut spread;
        let by_row = match rows {
            Pick::All => coefficients,
            _ => {
                spread = vec![0.0; self.rows.shape().0];
                coefficients.iter().enumerate().for_each(|(k, c)| spread[rows.get(k)] += c);
                &spread
            }
        };
        self.columns.apply(self.precision, Pick::All, by_row, 1, q, control)
    }

    /// Adds Σ a·k and Σ a·k·kᵀ (lower triangle) of `count` rows k of K_nS; `fill(first place, block)` gives them.
    pub(super) fn raw_moments_of(
        &self,
        count: usize,
        fill: impl Fn(usize, &mut [f64]) -> Result<(), Interrupt>,
        weights: &[f64],
        sum: &mut [f64],
        products: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let m = self.m();
        let mut block = vec![0.0; HEIGHT.min(count) * m];
        for from in (0..count).step_by(HEIGHT) {
            let block = &mut block[..((from + HEIGHT).min(count) - from) * m];
            fill(from, block)?;
            scale_rows(block, &weights[from..], sum, &control.threads);
            add_products(block, m, products, &control.threads);
            control.spend(block.len() * m / 2);
            control.check()?;
        }
        Ok(())
    }

    /// The second moments of `count` rows; `fill(first place, block)` gives their kernel entries.
    pub(super) fn moments_of(
        &self,
        count: usize,
        fill: impl Fn(usize, &mut [f64]) -> Result<(), Interrupt>,
        weights: &[f64],
        centre: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let m = self.m();
        let (mut sum, mut products) = (vec![0.0; m], vec![0.0; m * m]);
        self.raw_moments_of(count, fill, weights, &mut sum, &mut products, control)?;
        self.whitened_moments(sum, products, weights.iter().sum(), centre, first, second, control)
    }

    /// Adds L⁻¹ times the moments Σ a·k and Σ a·k·kᵀ (lower triangle) of rows k of K_nS with weights of sum `total`, about `centre`.
    fn whitened_moments(
        &self,
        mut sum: Vec<f64>,
        mut products: Vec<f64>,
        total: f64,
        centre: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let m = self.m();
        // About the centre in features, which is L·centre among the rows of K.
        let raw_centre = lower_product(&self.factor, centre, &control.threads);
        for i in 0..m {
            for j in 0..=i {
                let at = &mut products[i * m + j];
                if let (Some(ci), Some(cj)) = (raw_centre.get(i), raw_centre.get(j)) {
                    *at += total * ci * cj - sum[i] * cj - ci * sum[j];
                }
            }
        }
        if !raw_centre.is_empty() {
            sum.iter_mut().zip(&raw_centre).for_each(|(s, c)| *s -= total * c);
        }
        let mut spare = vec![0.0; m * m];
        // L⁻¹ from the right, then, by symmetry, from the right again.
        rearrange(&products, m, &mut spare, &control.threads, |i, j| if j <= i { (i, j) } else { (j, i) });
        self.factor.whiten(&mut spare, m, &control.threads);
        rearrange(&spare, m, &mut products, &control.threads, |i, j| (j, i));
        self.factor.whiten(&mut products, m, &control.threads);
        control.check()?;
        self.factor.solve_lower(&mut sum, &control.threads);
        first.iter_mut().zip(&sum).for_each(|(f, s)| *f += s);
        second.iter_mut().zip(&products).for_each(|(f, s)| *f += s);
        Ok(())
    }

    /// Calls `work(first place, K of those rows)` for blocks of the chosen rows.
    fn each_block(
        &self,
        rows: Pick<'_>,
        control: &Control,
        mut work: impl FnMut(usize, &mut [f64]),
    ) -> Result<(), Interrupt> {
        let (count, m) = (rows.len(self.rows()), self.m());
        let mut block = vec![0.0; HEIGHT.min(count) * m];
        for from in (0..count).step_by(HEIGHT) {
            let until = (from + HEIGHT).min(count);
            let part = part_of(rows, from, until - from);
            let block = &mut block[..(until - from) * m];
            self.rows.block_f64(part, Pick::All, block, control)?;
            work(from, block);
            control.check()?;
        }
        Ok(())
    }
}

/// `count` of the chosen rows, from place `from` on.
fn part_of<'r>(rows: Pick<'r>, from: usize, count: usize) -> Pick<'r> {
    match rows {
        Pick::All => Pick::Range(from, from + count),
        Pick::Range(first, _) => Pick::Range(first + from, first + from + count),
        Pick::List(list) => Pick::List(&list[from..from + count]),
    }
}

impl Matrix for RecomputedFeatures<'_> {
    fn rows(&self) -> usize {
        self.rows.shape().0
    }

    fn dims(&self) -> usize {
        self.m()
    }

    fn stored(&self) -> usize {
        self.rows().saturating_mul(self.m())
    }

    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        if let Some(done) = self.ask(|device| device.dots(rows, w, out, control)) {
            return done;
        }
        let mut a = w.to_vec();
        self.factor.solve_upper(&mut a, &control.threads);
        self.rows.apply(self.precision, rows, &a, 1, out, control)
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let mut sum = vec![0.0; self.m()];
        if let Some(done) = self.ask(|device| device.combine(rows, coefficients, &mut sum, control)) {
            out.iter_mut().zip(&sum).for_each(|(o, v)| *o += v);
            return done;
        }
        let mut q = vec![0.0; self.m()];
        self.raw_combine(rows, coefficients, &mut q, control)?;
        self.factor.solve_lower(&mut q, &control.threads);
        out.iter_mut().zip(&q).for_each(|(o, v)| *o += v);
        Ok(())
    }

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
        let mut sum = vec![0.0; self.m()];
        let asked = self.ask(|device| device.curvature_product(rows, weights, w, shift, dots, &mut sum, control));
        if let Some(done) = asked {
            out.iter_mut().zip(&sum).for_each(|(o, v)| *o += v);
            return done;
        }
        self.dots(rows, w, dots, control)?;
        let coefficients: Vec<f64> = dots.iter().zip(weights).map(|(u, a)| a * (u - shift)).collect();
        self.combine(rows, &coefficients, out, control)
    }

    fn curvature_factor(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        bottom: f64,
        control: &Control,
    ) -> Option<Box<dyn DeviceFactor>> {
        self.ask(|device| device.curvature_factor(rows, weights, bottom, control))?.ok()
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
        let block = |from: usize, block: &mut [f64]| {
            let part = part_of(rows, from, block.len() / self.m());
            self.rows.block_f64(part, Pick::All, block, control)
        };
        self.moments_of(rows.len(self.rows()), block, weights, centre, first, second, control)
    }

    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        let m = self.m();
        self.each_block(rows, control, |from, block| {
            self.factor.whiten(block, block.len() / m, &control.threads);
            for (k, row) in block.chunks(m).enumerate() {
                out.iter_mut().zip(row).for_each(|(o, x)| *o += weights[from + k] * x * x);
            }
        })
    }
}

/// Adds BᵀB to the lower triangle of `to`, B being row-major with rows of length m.
pub(super) fn add_products(block: &[f64], m: usize, to: &mut [f64], threads: &Threads) {
    let b = MatRef::from_row_major_slice(block, block.len() / m, m);
    // One strip of rows of the result per task, each a job of its own: the last ones take longest, and are taken over by threads
    // that have done the first.
    threads.each_of(to.chunks_mut(TILE * m).collect(), |strip, part| {
        let from = strip * TILE;
        let height = part.len() / m;
        let left = b.subcols(from, height);
        let out = MatMut::from_row_major_slice_mut(part, height, m);
        let full = BlockStructure::Rectangular;
        let (beside, rest) = out.split_at_col_mut(from);
        if from > 0 {
            matmul(beside, full, Accum::Add, left.transpose(), full, b.subcols(0, from), full, 1.0, Par::Seq);
        }
        let own = rest.subcols_mut(0, height);
        let lower = BlockStructure::TriangularLower;
        matmul(own, lower, Accum::Add, left.transpose(), full, left, full, 1.0, Par::Seq);
    });
}

/// The same for B in single precision; sums of blocks are double.
pub(super) fn add_single_products(block: &[f32], m: usize, to: &mut [f64], threads: &Threads) {
    let b = MatRef::from_row_major_slice(block, block.len() / m, m);
    threads.each_of(to.chunks_mut(TILE * m).collect(), |strip, part| {
        let from = strip * TILE;
        let height = part.len() / m;
        let width = from + height;
        let mut own = vec![0f32; height * width];
        let out = MatMut::from_row_major_slice_mut(&mut own, height, width);
        let (left, full) = (b.subcols(from, height).transpose(), BlockStructure::Rectangular);
        matmul(out, full, Accum::Replace, left, full, b.subcols(0, width), full, 1.0, Par::Seq);
        for (to, own) in part.chunks_mut(m).zip(own.chunks(width)) {
            to.iter_mut().zip(own).for_each(|(to, v)| *to += f64::from(*v));
        }
    });
}

/// L·v; empty for an empty v.
fn lower_product(factor: &Cholesky<f64>, v: &[f64], threads: &Threads) -> Vec<f64> {
    if v.is_empty() {
        return Vec::new();
    }
    factor.multiply_lower(v, threads)
}

/// Adds Σ aᵢxᵢ over the rows xᵢ of `block` to `sum`, and multiplies each row by √aᵢ.
pub(super) fn scale_rows(block: &mut [f64], weights: &[f64], sum: &mut [f64], threads: &Threads) {
    let m = sum.len();
    threads.chunks(sum, SUM_COLUMNS, |task, part| {
        let from = task * SUM_COLUMNS;
        for (row, a) in block.chunks(m).zip(weights) {
            sweep::add_row(part, &row[from..from + part.len()], *a);
        }
    });
    threads.chunks(block, SCALED_ROWS * m, |task, part| {
        for (row, a) in part.chunks_mut(m).zip(&weights[task * SCALED_ROWS..]) {
            let root = a.sqrt();
            row.iter_mut().for_each(|x| *x *= root);
        }
    });
}

/// `to[i, j] = from[at(i, j)]`, both m × m, by squares that fit the first-level cache.
fn rearrange(
    from: &[f64],
    m: usize,
    to: &mut [f64],
    threads: &Threads,
    at: impl Fn(usize, usize) -> (usize, usize) + Sync,
) {
    const SIDE: usize = 32;
    threads.chunks(to, SIDE * m, |task, part| {
        for first in (0..m).step_by(SIDE) {
            for (k, row) in part.chunks_mut(m).enumerate() {
                for j in first..(first + SIDE).min(m) {
                    let (r, c) = at(task * SIDE + k, j);
                    row[j] = from[r * m + c];
                }
            }
        }
    });
}
