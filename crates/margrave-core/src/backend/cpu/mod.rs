//! Kernel entries on the processor.
//!
//! Points on the column side are packed once, in each precision on first use; rows asked for are packed on demand. See
//! [`dense`] for how a request is cut into tasks, [`tile`] for the inner loops and [`accuracy`] for which arithmetic is used.

mod accuracy;
mod dense;
mod math;
mod pack;
mod plan;
mod product;
mod simd;
mod tile;

pub mod eigen;
pub mod factor;
pub mod pages;
pub mod sweep;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

pub use simd::Level;

use self::accuracy::Arithmetic;
use self::dense::Tiled;
use self::pack::{Panels, View};
use self::tile::Engine;
use crate::control::{Control, Interrupt};
use crate::data::{Points, Real};
use crate::error::{Error, Result};
use crate::gram::{Gram, Pick, Precision};
use crate::kernel::{Kernel, Statistic};

/// A value made on first use, by one thread, unless it is interrupted.
struct Lazy<P> {
    value: OnceLock<P>,
    making: Mutex<()>,
}

impl<P> Default for Lazy<P> {
    fn default() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<P> Lazy<P> {
    fn get(&self, make: impl FnOnce() -> Result<P, Interrupt>) -> Result<&P, Interrupt> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.value.get().is_none() {
            let made = make()?;
            return Ok(self.value.get_or_init(|| made));
        }
        Ok(self.value.get_or_init(|| unreachable!("made by whoever had the turn before")))
    }
}

/// The Gram of a kernel over points, rows × columns.
pub struct CpuGram {
    kernel: Kernel,
    rows: Points,
    cols: Points,
    /// Whether rows and columns are the same points.
    square: bool,
    level: Level,
    arithmetic: Arithmetic,
    single: Lazy<Panels<f32>>,
    double: Lazy<Panels<f64>>,
    entries: AtomicU64,
}

impl std::fmt::Debug for CpuGram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (n, m) = self.shape();
        write!(f, "CpuGram({}, {n} × {m}, {:?})", self.kernel, self.level)
    }
}

/// Evaluates `$body` with `$gram` the packed Gram that entries of `$precision` come from.
macro_rules! in_precision {
    ($self:ident, $precision:expr, $control:expr, $gram:ident => $body:expr) => {
        match ($precision, $self.arithmetic.single) {
            (Precision::Single, Some(sum)) => {
                let $gram = $self.tiled(&$self.single, sum, $control)?;
                $body
            }
            _ => {
                let $gram = $self.tiled(&$self.double, $self.arithmetic.double, $control)?;
                $body
            }
        }
    };
}

impl CpuGram {
    /// K(xᵢ, xⱼ) over one set of points.
    pub fn square(kernel: Kernel, points: &Points) -> Result<Self> {
        Self::build(kernel, points, points, true)
    }

    /// K(xᵢ, x′ⱼ): rows against columns.
    pub fn new(kernel: Kernel, rows: &Points, cols: &Points) -> Result<Self> {
        Self::build(kernel, rows, cols, false)
    }

    fn build(kernel: Kernel, rows: &Points, cols: &Points, square: bool) -> Result<Self> {
        kernel.check()?;
        if kernel.statistic() == Statistic::Lookup {
            return Err(Error::data("a precomputed kernel has no entries to compute: use PrecomputedGram"));
        }
        if rows.dims() != cols.dims() {
            return Err(Error::Shape { what: "number of features", expected: cols.dims(), found: rows.dims() });
        }
        kernel.check_points(rows)?;
        if !square {
            kernel.check_points(cols)?;
        }
        Ok(Self {
            kernel,
            rows: rows.clone(),
            cols: cols.clone(),
            square,
            level: Level::detect(),
            arithmetic: Arithmetic::choose(&kernel, rows, cols),
            single: Lazy::default(),
            double: Lazy::default(),
            entries: AtomicU64::new(0),
        })
    }

    /// The same with other instructions, at most those the processor has: for tests and comparisons.
    pub fn with_level(mut self, level: Level) -> Self {
        self.level = level.min(Level::detect());
        self.single = Lazy::default();
        self.double = Lazy::default();
        self
    }

    fn view<'a>(&'a self, points: &'a Points) -> View<'a> {
        View { points, centre: self.arithmetic.centre.as_deref() }
    }

    fn tiled<'a, T: Engine>(
        &'a self,
        panels: &'a Lazy<Panels<T>>,
        sum: tile::Sum,
        control: &'a Control,
    ) -> Result<Tiled<'a, T>, Interrupt> {
        let (rows, cols) = (self.view(&self.rows), self.view(&self.cols));
        let panels = panels.get(|| Panels::new(cols, self.level, control))?;
        Ok(Tiled { kernel: self.kernel, sum, level: self.level, rows, cols, panels, control })
    }

    fn block<O: Real>(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [O],
        control: &Control,
    ) -> Result<(), Interrupt> {
        in_precision!(self, precision, control, gram => gram.block(rows, cols, out)?);
        self.count(out.len() as u64);
        Ok(())
    }

    fn count(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
    }

    fn transposed(
        &self,
        precision: Precision,
        weights: Option<&[f64]>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let entries = in_precision!(self, precision, control, gram => gram.transposed(weights, v, k, out)?);
        self.count(entries);
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
        self.block(Precision::Single, rows, cols, out, control)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.block(Precision::Double, rows, cols, out, control)
    }

    fn apply(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let entries = in_precision!(self, precision, control, gram => gram.apply(rows, v, k, out)?);
        self.count(entries);
        Ok(())
    }

    fn apply_t(
        &self,
        precision: Precision,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        // K of one set of points is its own transpose, to the bit.
        if self.square {
            return self.apply(precision, Pick::All, v, k, out, control);
        }
        self.transposed(precision, None, v, k, out, control)
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
        self.transposed(precision, Some(w), v, k, out, control)
    }

    fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }
}
