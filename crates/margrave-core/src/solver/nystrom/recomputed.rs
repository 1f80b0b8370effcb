//! Features that are not stored: products with F = K_nS·L⁻ᵀ from blocks of K_nS.
//!
//! Fw = K_nS(L⁻ᵀw) and Fᵀβ = L⁻¹(K_Snβ), so a product costs n·m kernel entries and two triangular solves. The second
//! moments of r rows cost r·m² multiply–adds: Σ a·k·kᵀ over rows k of K_nS, then L⁻¹(·)L⁻ᵀ.
//!
//! Entries are single precision unless the centres are nearly dependent: L⁻¹ then amplifies their rounding.

use std::sync::{Mutex, MutexGuard, PoisonError};

use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use faer::{Accum, MatMut, MatRef, Par};

use super::features::Centres;
use crate::control::{Control, Interrupt, Threads};
use crate::data::Points;
use crate::error::Result;
use crate::gram::{Gram, Matrix, Pick, Precision};
use crate::kernel::Kernel;
use crate::linalg::factor::Cholesky;
use crate::linalg::sweep;

/// Rows whose kernel entries are held at once.
const HEIGHT: usize = 1024;
/// Rows per task of products with kept rows.
const TASK_ROWS: usize = 256;
/// Side of the tiles of second moments that threads share.
const TILE: usize = 256;
/// Smallest relative pivot of the centres for which single-precision entries suffice.
const SINGLE_PIVOT: f64 = 1e-3;

pub(super) struct RecomputedFeatures {
    /// n × m.
    rows: Box<dyn Gram>,
    /// m × n.
    columns: Box<dyn Gram>,
    factor: Cholesky<f64>,
    precision: Precision,
}

impl RecomputedFeatures {
    pub(super) fn new(kernel: Kernel, points: &Points, centres: &Centres, control: &Control) -> Result<Self> {
        let precision = if centres.least_pivot >= SINGLE_PIVOT { Precision::Single } else { Precision::Double };
        Ok(Self {
            rows: control.backend().gram(kernel, points, &centres.points)?,
            columns: control.backend().gram(kernel, &centres.points, points)?,
            factor: centres.factor.clone(),
            precision,
        })
    }

    fn m(&self) -> usize {
        self.factor.len()
    }

    /// The second moments of `count` rows; `fill(first place, block)` gives their kernel entries.
    fn moments_of(
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
        let total: f64 = weights.iter().sum();
        let mut block = vec![0.0; HEIGHT.min(count) * m];
        for from in (0..count).step_by(HEIGHT) {
            let block = &mut block[..((from + HEIGHT).min(count) - from) * m];
            fill(from, block)?;
            for (k, row) in block.chunks_mut(m).enumerate() {
                let (a, root) = (weights[from + k], weights[from + k].sqrt());
                for (s, x) in sum.iter_mut().zip(row) {
                    *s += a * *x;
                    *x *= root;
                }
            }
            add_products(block, m, &mut products, &control.threads);
            control.spend(block.len() * m / 2);
            control.check()?;
        }
        // About the centre in features, which is L·centre among the rows of K.
        let raw_centre = lower_product(&self.factor, centre);
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
        mirror(&mut products, m);
        // L⁻¹ from the right, then, by symmetry, from the right again.
        self.factor.whiten(&mut products, m, &control.threads);
        transpose(&mut products, m);
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

impl Matrix for RecomputedFeatures {
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
        let n = self.rows();
        let mut spread;
        let by_row = match rows {
            Pick::All => coefficients,
            _ => {
                spread = vec![0.0; n];
                coefficients.iter().enumerate().for_each(|(k, c)| spread[rows.get(k)] += c);
                &spread
            }
        };
        let mut q = vec![0.0; self.m()];
        self.columns.apply(self.precision, Pick::All, by_row, 1, &mut q, control)?;
        self.factor.solve_lower(&mut q, &control.threads);
        out.iter_mut().zip(&q).for_each(|(o, v)| *o += v);
        Ok(())
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

/// The rows of K_nS that a solver returns to, in single precision, in front of features that are recomputed: steps on few
/// rows, such as those near the margin, then cost no kernel entries.
///
/// Which rows are kept depends only on the calls, so the results do too; machines that are trained at the same time have
/// one each.
pub(super) struct KeptRows<'a> {
    inner: &'a RecomputedFeatures,
    most: usize,
    /// Every row, if all can be kept.
    all: Option<Vec<u32>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Where the row is; `u32::MAX`: it is not.
    place: Vec<u32>,
    count: usize,
    values: Vec<f32>,
}

impl<'a> KeptRows<'a> {
    /// `memory`: bytes for rows. `None` if entries must be double precision.
    pub(super) fn new(inner: &'a RecomputedFeatures, memory: u64) -> Option<Self> {
        let most = usize::try_from(memory / (4 * inner.m() as u64)).unwrap_or(usize::MAX).min(inner.rows());
        let kept = Kept { place: vec![u32::MAX; inner.rows()], ..Kept::default() };
        let all = (most == inner.rows()).then(|| (0..most as u32).collect());
        (inner.precision == Precision::Single && most > 0).then(|| Self { inner, most, all, kept: Mutex::new(kept) })
    }

    /// The chosen rows as a list; all of them only if all can be kept.
    fn list<'r>(&'r self, rows: Pick<'r>) -> Option<&'r [u32]> {
        match rows {
            Pick::List(list) => Some(list),
            Pick::All => self.all.as_deref(),
            Pick::Range(from, until) => self.all.as_deref().map(|all| &all[from..until]),
        }
    }

    /// The kept rows, with all of `list` among them; `None` if there are too many.
    fn with(&self, list: Option<&[u32]>, control: &Control) -> Result<Option<MutexGuard<'_, Kept>>, Interrupt> {
        let Some(list) = list else { return Ok(None) };
        let m = self.inner.m();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: Vec<u32> = list.iter().copied().filter(|&i| kept.place[i as usize] == u32::MAX).collect();
        if kept.count + missing.len() > self.most {
            if list.len() > self.most {
                return Ok(None);
            }
            kept.place.fill(u32::MAX);
            kept.count = 0;
            missing = list.to_vec();
        }
        let from = kept.count;
        if kept.values.len() < (from + missing.len()) * m {
            kept.values.resize((from + missing.len()) * m, 0.0);
        }
        let new = &mut kept.values[from * m..(from + missing.len()) * m];
        self.inner.rows.block_f32(Pick::List(&missing), Pick::All, new, control)?;
        missing.iter().enumerate().for_each(|(k, &i)| kept.place[i as usize] = (from + k) as u32);
        kept.count += missing.len();
        Ok(Some(kept))
    }
}

impl Kept {
    fn row(&self, i: u32, m: usize) -> &[f32] {
        let at = self.place[i as usize] as usize * m;
        &self.values[at..at + m]
    }
}

impl Matrix for KeptRows<'_> {
    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn dims(&self) -> usize {
        self.inner.dims()
    }

    fn stored(&self) -> usize {
        self.inner.stored()
    }

    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        let (Some(kept), Some(list)) = (self.with(self.list(rows), control)?, self.list(rows)) else {
            return self.inner.dots(rows, w, out, control);
        };
        let m = self.inner.m();
        let mut a = w.to_vec();
        self.inner.factor.solve_upper(&mut a, &control.threads);
        let kept = &*kept;
        control.threads.chunks(out, TASK_ROWS, |task, part| {
            for (o, &i) in part.iter_mut().zip(&list[task * TASK_ROWS..]) {
                *o = sweep::dot(kept.row(i, m), &a);
            }
        });
        control.check()
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let (Some(kept), Some(list)) = (self.with(self.list(rows), control)?, self.list(rows)) else {
            return self.inner.combine(rows, coefficients, out, control);
        };
        let m = self.inner.m();
        let kept = &*kept;
        let parts = control.threads.map(list.len().div_ceil(8 * TASK_ROWS), |task| {
            let mut sum = vec![0.0; m];
            let range = task * 8 * TASK_ROWS..((task + 1) * 8 * TASK_ROWS).min(list.len());
            for (&i, c) in list[range.clone()].iter().zip(&coefficients[range]) {
                if *c != 0.0 {
                    sweep::add_row(&mut sum, kept.row(i, m), *c);
                }
            }
            sum
        });
        let mut q = vec![0.0; m];
        parts.iter().for_each(|part| q.iter_mut().zip(part).for_each(|(q, p)| *q += p));
        self.inner.factor.solve_lower(&mut q, &control.threads);
        out.iter_mut().zip(&q).for_each(|(o, v)| *o += v);
        control.check()
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
        let (Some(kept), Some(list)) = (self.with(self.list(rows), control)?, self.list(rows)) else {
            return self.inner.moments(rows, weights, centre, first, second, control);
        };
        let (m, kept) = (self.inner.m(), &*kept);
        let block = |from: usize, block: &mut [f64]| {
            control.threads.chunks(block, m * TASK_ROWS, |task, part| {
                for (row, &i) in part.chunks_mut(m).zip(&list[from + task * TASK_ROWS..]) {
                    row.iter_mut().zip(kept.row(i, m)).for_each(|(to, k)| *to = f64::from(*k));
                }
            });
            Ok(())
        };
        self.inner.moments_of(list.len(), block, weights, centre, first, second, control)
    }

    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.inner.squares(rows, weights, out, control)
    }
}

/// Adds BᵀB to the lower triangle of `to`, B being row-major with rows of length m.
pub(super) fn add_products(block: &[f64], m: usize, to: &mut [f64], threads: &Threads) {
    let b = MatRef::from_row_major_slice(block, block.len() / m, m);
    // One strip of rows of the result per task.
    threads.chunks(to, TILE * m, |strip, part| {
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

/// L·v; empty for an empty v.
fn lower_product(factor: &Cholesky<f64>, v: &[f64]) -> Vec<f64> {
    if v.is_empty() {
        return Vec::new();
    }
    factor.multiply_lower(v)
}

/// Copies the lower triangle to the upper one.
fn mirror(a: &mut [f64], m: usize) {
    for i in 0..m {
        for j in 0..i {
            a[j * m + i] = a[i * m + j];
        }
    }
}

fn transpose(a: &mut [f64], m: usize) {
    for i in 0..m {
        for j in 0..i {
            a.swap(i * m + j, j * m + i);
        }
    }
}
