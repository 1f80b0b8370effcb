//! Kernel entries on the processor.
//!
//! Points on the column side are packed once per precision on first use, or used as stored if they are sparse enough;
//! requested rows are packed on demand. Points on a grid are packed as bytes (`bytes.rs`), tables of
//! which only some features are on a grid as both (`mixed.rs`). See `tasks.rs` for how a request is split into tasks, `tile.rs` and `sparse.rs`
//! for the inner loops and `accuracy.rs` for the choice of arithmetic.

mod accuracy;
mod byte_columns;
#[cfg(target_arch = "x86_64")]
mod byte_tiles;
mod bytes;
mod dense;
mod direct;
mod exact;
mod finish;
mod fused;
mod grid;
mod math;
mod mixed;
#[cfg(target_arch = "x86_64")]
mod mixed_tiles;
mod pack;
mod plan;
mod product;
mod restrict;
mod simd;
mod sparse;
mod tasks;
mod tile;

pub mod rows;
mod side;
mod statistics;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use accuracy::{largest_double_error, size_of};
pub use simd::Level;
pub use statistics::Statistics;

use self::accuracy::{Arithmetic, EntryRecipe};
use self::byte_columns::ByteColumns;
use self::bytes::{ByteEngine, BytePoints, ByteSource, Packing};
use self::dense::PackedSource;
use self::finish::Refine;
use self::grid::Grid;
use self::mixed::{Layout, MixedEngine, MixedSource};
use self::pack::{Panels, View};
use self::restrict::Restrict;
use self::side::Side;
use self::sparse::{SparseEngine, SparseSource, SparseValues};
use self::tasks::Tasks;
use crate::control::{Control, Interrupt};
use crate::data::{Points, Real};
use crate::error::{Error, Result};
use crate::gram::{Accuracy, Chain, EXPENSIVE_ENTRY, Gram, Pick, Precision};
use crate::kernel::{Kernel, Statistic};

/// Multiply–adds of an entry from which copying it to the other side of the diagonal takes less time than computing it there:
/// large blocks are written and read at the speed of memory, and wider vectors compute faster.
fn worth_copying(level: Level) -> f64 {
    if level == Level::Avx512 { 96.0 } else { 40.0 }
}

/// Multiply–adds of an entry from which it is kept rather than computed again: memory is no faster where vectors are wider.
fn expensive_entry(level: Level) -> f64 {
    if level == Level::Avx512 { 1.5 * EXPENSIVE_ENTRY } else { EXPENSIVE_ENTRY }
}

/// A value computed on first use by one thread, unless interrupted.
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
        Ok(self.value.get_or_init(|| unreachable!("computed by the thread that held the lock before")))
    }
}

/// The column side prepared in one precision: packed, or sparse as stored.
struct PreparedColumns<T> {
    panels: Lazy<Panels<T>>,
    values: Lazy<SparseValues<T>>,
}

impl<T> Default for PreparedColumns<T> {
    fn default() -> Self {
        Self { panels: Lazy::default(), values: Lazy::default() }
    }
}

/// Points on a grid as bytes.
#[derive(Default)]
struct PreparedBytes {
    rows: Lazy<BytePoints>,
    cols: Lazy<BytePoints>,
    packed: Lazy<ByteColumns>,
}

/// Points of which some features are on a grid: how they are divided, and the others.
#[derive(Clone)]
struct MixedPoints {
    layout: Arc<Layout>,
    rows: Points,
    cols: Points,
}

/// The Gram of a kernel over points, rows × columns.
pub struct CpuGram {
    kernel: Kernel,
    rows: Side,
    cols: Side,
    /// Whether rows and columns are the same points.
    square: bool,
    level: Level,
    arithmetic: Arithmetic,
    /// Where some features are summed as bytes; the arithmetic is then that of the others.
    mixed: Option<MixedPoints>,
    single: PreparedColumns<f32>,
    double: PreparedColumns<f64>,
    bytes: PreparedBytes,
    entries: Arc<AtomicU64>,
    /// The counters of the Grams this one was selected from.
    above: Vec<Arc<AtomicU64>>,
}

impl std::fmt::Debug for CpuGram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (n, m) = self.shape();
        write!(f, "CpuGram({}, {n} × {m}, {:?})", self.kernel, self.level)
    }
}

/// Evaluates `$body` with `$source` bound to the source of entries in `$precision`.
macro_rules! in_precision {
    ($self:ident, $precision:expr, $control:expr, $source:ident => $body:expr) => {
        if let Some(mixed) = &$self.mixed {
            match ($precision, $self.arithmetic.single) {
                (Precision::Single, Some(recipe)) => {
                    let $source = $self.mixed(mixed, &$self.single, recipe, $control)?;
                    $body
                }
                _ => {
                    let $source = $self.mixed(mixed, &$self.double, $self.arithmetic.double, $control)?;
                    $body
                }
            }
        } else {
            in_precision!(@alike $self, $precision, $control, $source => $body)
        }
    };
    (@alike $self:ident, $precision:expr, $control:expr, $source:ident => $body:expr) => {
        match ($precision, $self.arithmetic.single, $self.arithmetic.grid_for($precision)) {
            (Precision::Single, _, Some(grid)) => {
                let $source = $self.on_grid::<f32>(grid, $control)?;
                $body
            }
            (Precision::Double, _, Some(grid)) => {
                let $source = $self.on_grid::<f64>(grid, $control)?;
                $body
            }
            (Precision::Single, Some(recipe), None) => {
                in_precision!(@storage $self, &$self.single, recipe, $control, $source => $body)
            }
            _ => in_precision!(@storage $self, &$self.double, $self.arithmetic.double, $control, $source => $body),
        }
    };
    (@storage $self:ident, $ready:expr, $recipe:expr, $control:expr, $source:ident => $body:expr) => {
        if $self.arithmetic.sparse {
            let $source = $self.sparse($ready, $recipe, $control)?;
            $body
        } else {
            let $source = $self.dense($ready, $recipe, $control)?;
            $body
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

    /// The same for predictions: a few rows are evaluated one by one, without preparing the columns.
    pub(crate) fn for_rows(kernel: Kernel, rows: &Points, cols: &Points) -> Result<Box<dyn Gram>> {
        if rows.len() > direct::FEW_ROWS {
            return Ok(Box::new(Self::new(kernel, rows, cols)?));
        }
        Self::check(kernel, rows, cols, false)?;
        Ok(Box::new(direct::DirectGram::new(kernel, rows, cols)))
    }

    fn check(kernel: Kernel, rows: &Points, cols: &Points, square: bool) -> Result<()> {
        kernel.check()?;
        if kernel.statistic() == Statistic::Lookup {
            return Err(Error::data("a precomputed kernel has no entries to compute: use PrecomputedGram"));
        }
        if rows.dims() != cols.dims() {
            return Err(Error::Shape { what: "number of features", expected: cols.dims(), found: rows.dims() });
        }
        kernel.check_points(rows)?;
        if square { Ok(()) } else { kernel.check_points(cols) }
    }

    fn build(kernel: Kernel, rows: &Points, cols: &Points, square: bool) -> Result<Self> {
        Self::check(kernel, rows, cols, square)?;
        let level = Level::detect();
        let (arithmetic, mixed) = Self::arrange(&kernel, rows, cols, square, level);
        Ok(Self {
            kernel,
            rows: Side::Own(rows.clone()),
            cols: Side::Own(cols.clone()),
            square,
            level,
            arithmetic,
            mixed,
            single: PreparedColumns::default(),
            double: PreparedColumns::default(),
            bytes: PreparedBytes::default(),
            entries: Arc::new(AtomicU64::new(0)),
            above: Vec::new(),
        })
    }

    /// Uses other instructions, at most those the processor supports: for tests and comparisons.
    pub fn with_level(mut self, level: Level) -> Self {
        self.level = level.min(Level::detect());
        let arranged = Self::arrange(&self.kernel, &self.rows, &self.cols, self.square, self.level);
        (self.arithmetic, self.mixed) = arranged;
        self.single = PreparedColumns::default();
        self.double = PreparedColumns::default();
        self.bytes = PreparedBytes::default();
        self
    }

    /// How entries of these points are computed.
    fn arrange(
        kernel: &Kernel,
        rows: &Points,
        cols: &Points,
        square: bool,
        level: Level,
    ) -> (Arithmetic, Option<MixedPoints>) {
        let grid = Self::grid(kernel, rows, cols, square, level);
        let layout = match grid {
            None if bytes::supported(level) && square => Layout::find(kernel, &[cols], level),
            None if bytes::supported(level) => Layout::find(kernel, &[cols, rows], level),
            _ => None,
        };
        if let Some(layout) = layout {
            let measured = layout.measurements(cols);
            let mixed = MixedPoints {
                rows: if square { measured.clone() } else { layout.measurements(rows) },
                cols: measured,
                layout: Arc::new(layout),
            };
            let arithmetic = Arithmetic::choose(kernel, &mixed.rows, &mixed.cols, square, None);
            if let Some(arithmetic) = arithmetic.beside_bytes(mixed.layout.entry_error(kernel)) {
                return (arithmetic, Some(mixed));
            }
        }
        (Arithmetic::choose(kernel, rows, cols, square, grid), None)
    }

    /// The grid of all points, where sums of bytes are faster.
    fn grid(kernel: &Kernel, rows: &Points, cols: &Points, square: bool, level: Level) -> Option<Grid> {
        // A stored value of a sparse column costs as much as sixteen bytes, and a column as much as ten of them.
        let slower = |p: &Points| p.is_sparse() && p.len() * p.dims() > 16 * (p.stored() + 10 * p.len());
        if !bytes::supported(level) || slower(cols) {
            return None;
        }
        if square { Grid::find(kernel, &[cols]) } else { Grid::find(kernel, &[cols, rows]) }
    }

    fn on_grid<T: ByteEngine>(&self, grid: Grid, control: &Control) -> Result<ByteSource<'_, T>, Interrupt> {
        let packing = Packing::choose(self.level, grid.last);
        let points = |points: &Points| BytePoints::new(points, grid, packing, control);
        let cols = self.bytes.cols.get(|| points(&self.cols))?;
        let rows = if self.square { cols } else { self.bytes.rows.get(|| points(&self.rows))? };
        let packed = self.bytes.packed.get(|| ByteColumns::new(cols, control))?;
        let (kernel, level, scalar) = (grid.scaled(self.kernel), self.level, std::marker::PhantomData);
        Ok(ByteSource { kernel, level, rows, cols, packed, scalar })
    }

    fn view<'a>(&'a self, points: &'a Points) -> View<'a> {
        View { points, centre: self.arithmetic.centre.as_deref() }
    }

    fn dense<'a, T: SparseEngine>(
        &'a self,
        ready: &'a PreparedColumns<T>,
        recipe: EntryRecipe,
        control: &Control,
    ) -> Result<PackedSource<'a, T>, Interrupt> {
        let (rows, cols) = (self.view(&self.rows), self.view(&self.cols));
        let panels = ready.panels.get(|| Panels::new(cols, self.level, control))?;
        let refine = self.refine(recipe);
        Ok(PackedSource { kernel: self.kernel, sum: recipe.sum, refine, level: self.level, rows, cols, panels })
    }

    fn mixed<'a, T: MixedEngine>(
        &'a self,
        mixed: &'a MixedPoints,
        ready: &'a PreparedColumns<T>,
        recipe: EntryRecipe,
        control: &Control,
    ) -> Result<MixedSource<'a, T>, Interrupt> {
        let layout = &mixed.layout;
        let cols = self.bytes.cols.get(|| layout.numbers(&self.cols, control))?;
        let rows = if self.square { cols } else { self.bytes.rows.get(|| layout.numbers(&self.rows, control))? };
        let packed = self.bytes.packed.get(|| ByteColumns::new(cols, control))?;
        let (measured_rows, measured_cols) = (self.view(&mixed.rows), self.view(&mixed.cols));
        let panels = ready.panels.get(|| Panels::new(measured_cols, self.level, control))?;
        let measured = PackedSource {
            kernel: self.kernel,
            sum: recipe.sum,
            refine: self.refine(recipe),
            level: self.level,
            rows: measured_rows,
            cols: measured_cols,
            panels,
        };
        Ok(MixedSource { measured, rows, cols, packed, square: layout.square(), scalar: std::marker::PhantomData })
    }

    fn sparse<'a, T: SparseEngine>(
        &'a self,
        ready: &'a PreparedColumns<T>,
        recipe: EntryRecipe,
        control: &Control,
    ) -> Result<SparseSource<'a, T>, Interrupt> {
        let values = ready.values.get(|| {
            control.check()?;
            Ok(SparseValues::new(&self.cols, recipe.sum, self.level, &control.threads))
        })?;
        Ok(SparseSource {
            kernel: self.kernel,
            sum: recipe.sum,
            refine: self.refine(recipe),
            level: self.level,
            rows: &self.rows,
            cols: &self.cols,
            values,
        })
    }

    fn refine(&self, recipe: EntryRecipe) -> Option<Refine<'_>> {
        recipe.again.map(|again| Refine { again, rows: &self.rows, cols: &self.cols })
    }

    fn block<O: Real>(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [O],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let mut computed = out.len();
        if self.square && matches!((rows, cols), (Pick::All, Pick::All)) && self.effort() >= worth_copying(self.level) {
            self.spend(precision, computed / 2, control);
            in_precision!(self, precision, control, source => {
                computed = Tasks { source: &source, control }.symmetric_block(out)?;
            });
        } else {
            self.spend(precision, computed, control);
            in_precision!(self, precision, control, source => Tasks { source: &source, control }.block(rows, cols, out)?);
        }
        self.count(computed as u64);
        Ok(())
    }

    /// Counts the work of computing `entries` entries.
    fn spend(&self, precision: Precision, entries: usize, control: &Control) {
        let single = self.effort() + 4.0;
        let each = if precision == Precision::Double { 2.0 * single } else { single };
        // Every call has a fixed cost, however few its entries are.
        control.spend((entries as f64 * each / 4.0) as usize + 1000);
    }

    fn count(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.above.iter().for_each(|counter| {
            counter.fetch_add(entries, Ordering::Relaxed);
        });
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
        let (n, m) = self.shape();
        let height = rows.len(n);
        assert_eq!((v.len(), out.len()), (m * k, height * k), "V must be m × k and the output rows × k");
        let active: Vec<u32> =
            (0..m as u32).filter(|&j| v[j as usize * k..(j as usize + 1) * k].iter().any(|x| *x != 0.0)).collect();
        if active.is_empty() || height == 0 {
            out.fill(0.0);
            return control.check();
        }
        self.spend(precision, height * active.len(), control);
        let mut entries = height * active.len();
        in_precision!(self, precision, control, source => {
            if self.square && k == 1 && matches!(rows, Pick::All) && source.mirrors(active.len()) {
                source.multiply_mirrored(&active, v, out, control)?;
                entries -= active.len() * (active.len() - 1) / 2;
            } else {
                source.multiply_some(rows, &active, v, k, out, control)?;
            }
        });
        self.count(entries as u64);
        Ok(())
    }

    fn select(&self, rows: &[u32]) -> Option<Box<dyn Gram + '_>> {
        if !self.square {
            return None;
        }
        let points = self.rows.select(rows);
        let mixed = self.mixed.as_ref().map(|mixed| {
            let measured = mixed.rows.gather(rows);
            MixedPoints { layout: mixed.layout.clone(), rows: measured.clone(), cols: measured }
        });
        let bytes = PreparedBytes::default();
        if let Some(numbers) = self.bytes.cols.value.get() {
            let _ = bytes.cols.value.set(numbers.gather(rows));
        }
        // The same arithmetic, so that an entry has the same bits in both: a solver may use the two for one matrix.
        Some(Box::new(Self {
            kernel: self.kernel,
            rows: points.clone(),
            cols: points,
            square: true,
            level: self.level,
            arithmetic: self.arithmetic.clone(),
            mixed,
            single: PreparedColumns::default(),
            double: PreparedColumns::default(),
            bytes,
            entries: Arc::new(AtomicU64::new(0)),
            above: self.above.iter().chain([&self.entries]).cloned().collect(),
        }))
    }

    fn effort(&self) -> f64 {
        if let Some(mixed) = &self.mixed {
            mixed.layout.effort()
        } else if let Some(grid) = self.arithmetic.grid_for(Precision::Single) {
            self.cols.dims() as f64 * Packing::choose(self.level, grid.last).cost_where(grid.filled)
        } else if self.arithmetic.sparse {
            // Values of sparse rows are processed one by one, packed ones at least eight at a time.
            8.0 * self.cols.stored() as f64 / self.cols.len().max(1) as f64
        } else {
            self.cols.dims() as f64
        }
    }

    fn worth_keeping(&self) -> bool {
        self.effort() >= expensive_entry(self.level)
    }

    fn accuracy(&self) -> Accuracy {
        let size = self.rows.squared_norms().iter().map(|s| accuracy::size_of(&self.kernel, *s)).collect();
        let definite = self.kernel.is_definite();
        Accuracy { size, relative: self.arithmetic.double_error, definite, chain: Chain::default() }
    }

    fn rough(&self) -> Option<Box<dyn Gram + '_>> {
        if self.arithmetic.at_full_speed() {
            return None;
        }
        let arithmetic = match &self.mixed {
            Some(mixed) => Arithmetic::rough(&self.kernel, &mixed.rows, &mixed.cols, self.square, None),
            None => Arithmetic::rough(&self.kernel, &self.rows, &self.cols, self.square, self.arithmetic.grid),
        };
        if arithmetic.cost_of_single() >= self.arithmetic.cost_of_single() {
            return None;
        }
        Some(Box::new(CpuGram {
            kernel: self.kernel,
            rows: self.rows.clone(),
            cols: self.cols.clone(),
            square: self.square,
            level: self.level,
            arithmetic,
            mixed: self.mixed.clone(),
            single: PreparedColumns::default(),
            double: PreparedColumns::default(),
            bytes: PreparedBytes::default(),
            entries: Arc::clone(&self.entries),
            above: self.above.clone(),
        }))
    }

    fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }
}
