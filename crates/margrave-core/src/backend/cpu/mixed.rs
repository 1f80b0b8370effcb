//! Entries of tables in which some features take few values and others do not: one-hot columns beside measurements.
//!
//! ‖x − x′‖² is a sum over features. Those that share the step of a grid (indicators, counts, small whole numbers; each may
//! start at another value) contribute step²·Σ(k − k′)², which `bytes.rs` sums exactly, four features per lane and
//! instruction. The others are packed as they are. A table of ten measurements and forty-four indicators costs as much
//! as one of twenty-one measurements, and the norms that decide about rounding are those of the measurements alone.

use std::marker::PhantomData;
use std::ops::Range;

use super::byte_columns::ByteColumns;
use super::bytes::{ByteEngine, BytePoints, ByteRows, NumberJob, Packing};
use super::dense::PackedSource;
use super::finish::{LaneColumns, Refine};
use super::fused::{self, Dots};
use super::grid::{Grid, WIDEST};
#[cfg(target_arch = "x86_64")]
use super::mixed_tiles;
use super::pack::{GROUP, PackedRows, Panels, View};
use super::plan::{ColumnPlan, Item};
use super::restrict::{Restrict, beyond};
use super::simd::Level;
use super::sparse::SparseEngine;
use super::tasks::{EntrySource, Fresh, Tasks};
use super::tile::{PanelRun, TileJob};
use crate::control::{Control, Interrupt};
use crate::data::{Points, Storage};
use crate::gram::Pick;
use crate::kernel::{Kernel, Statistic};

/// Values of a feature that counts as one of few values.
const MOST_VALUES: usize = 16;
/// Rows from which finding the layout pays off.
const LEAST_ROWS: usize = 256;
/// Features from which it may.
const LEAST_FEATURES: usize = 12;
/// Cost of the sums of bytes besides the bytes, in features.
const OVERHEAD: f64 = 6.0;
/// The layout is used where it reduces the cost of an entry to this share.
const WORTH: f64 = 0.75;

/// A feature on the grid: low + step·k.
#[derive(Debug, Clone, Copy)]
struct GridFeature {
    feature: usize,
    low: f64,
}

/// Which features are summed as bytes.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    step: f64,
    /// Largest difference of a value from the grid.
    error: f64,
    packing: Packing,
    on_grid: Vec<GridFeature>,
    others: Vec<usize>,
}

/// The distinct values of a feature, until there are too many.
#[derive(Clone, Default)]
struct FewValues {
    values: Vec<f64>,
    many: bool,
}

impl FewValues {
    #[inline(always)]
    fn insert(&mut self, x: f64) {
        if !self.many && !self.values.contains(&x) {
            self.values.push(x);
            self.many = self.values.len() > MOST_VALUES;
        }
    }
}

impl Layout {
    /// The layout of all these points, where it makes entries cheaper.
    pub(crate) fn find(kernel: &Kernel, sides: &[&Points], level: Level) -> Option<Self> {
        let columns = sides.first()?;
        let (n, d) = (columns.len(), columns.dims());
        let few = n < LEAST_ROWS || !(LEAST_FEATURES..=WIDEST).contains(&d);
        if few || kernel.statistic() != Statistic::SquaredDistance {
            return None;
        }
        let stored = columns.stored() as f64 / n as f64;
        let present = if columns.is_sparse() { (d as f64).min(2.0 * stored + 24.0) } else { d as f64 };
        let worth = |effort: f64| effort + OVERHEAD < WORTH * present;
        if !worth(d as f64 * Packing::LEAST_COST) {
            return None;
        }
        let mut features = vec![FewValues::default(); d];
        for points in sides {
            Self::collect(points, &mut features)?;
        }
        let grids: Vec<Option<(f64, Option<Grid>)>> = features.iter_mut().map(Self::grid_of).collect();
        // The step that most features have.
        let mut steps: Vec<u64> =
            grids.iter().flatten().filter_map(|(_, grid)| Some(grid.as_ref()?.step.to_bits())).collect();
        steps.sort_unstable();
        let longest = steps.chunk_by(|a, b| a == b).max_by_key(|run| run.len())?;
        let step = f64::from_bits(longest[0]);
        let mut layout = Self { step, error: 0.0, packing: Packing::Pairs, on_grid: Vec::new(), others: Vec::new() };
        let mut last = 0;
        for (feature, found) in grids.iter().enumerate() {
            match found {
                // Constant features do not matter, on whichever grid.
                Some((low, None)) => layout.on_grid.push(GridFeature { feature, low: *low }),
                Some((low, Some(grid))) if grid.step == step => {
                    layout.on_grid.push(GridFeature { feature, low: *low });
                    layout.error = layout.error.max(grid.error);
                    last = last.max(grid.last);
                }
                _ => layout.others.push(feature),
            }
        }
        layout.packing = Packing::choose(level, last);
        if layout.others.is_empty() {
            layout.others.extend(layout.on_grid.pop().map(|last| last.feature));
        }
        worth(layout.effort()).then_some(layout)
    }

    /// Adds the values of all points; `None` as soon as too few features have few values.
    fn collect(points: &Points, features: &mut [FewValues]) -> Option<()> {
        /// Rows after which features are counted.
        const COUNT_AFTER: usize = 512;
        if points.is_sparse() && !points.is_empty() {
            features.iter_mut().for_each(|feature| feature.insert(0.0));
        }
        for i in 0..points.len() {
            if i == COUNT_AFTER {
                let few = features.iter().filter(|feature| !feature.many).count();
                if few * 4 < features.len() {
                    return None;
                }
            }
            match points.storage() {
                Storage::DenseF32(m) => m.row(i).iter().zip(&mut *features).for_each(|(x, f)| f.insert(f64::from(*x))),
                Storage::DenseF64(m) => m.row(i).iter().zip(&mut *features).for_each(|(x, f)| f.insert(*x)),
                _ => points.visit(i, |k, x| features[k].insert(x)),
            }
        }
        Some(())
    }

    /// The least value of a feature, and its grid unless it is constant; `None` if it has many values or is on no grid.
    fn grid_of(feature: &mut FewValues) -> Option<(f64, Option<Grid>)> {
        let values = &mut feature.values;
        if feature.many || values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        if values.len() == 1 {
            return Some((values[0], None));
        }
        let grid = Grid::through(values)?;
        // x − low = step·k without rounding: the sum of a subtraction and its error, and a product rounded once with it.
        let exact = |x: &f64| {
            let difference = x - grid.low;
            let back = difference + grid.low;
            let lost = (x - back) + (grid.low - (back - difference));
            lost == 0.0 && grid.step.mul_add(f64::from(grid.number(*x)), -difference) == 0.0
        };
        let error = if values.iter().all(exact) { 0.0 } else { grid.error };
        Some((grid.low, Some(Grid { error, ..grid })))
    }

    /// Multiply–adds of an entry.
    pub(crate) fn effort(&self) -> f64 {
        self.others.len() as f64 + self.on_grid.len() as f64 * self.packing.cost()
    }

    /// Bound on the error of an entry that comes from values not being exactly on the grid.
    pub(crate) fn entry_error(&self, kernel: &Kernel) -> f64 {
        if self.error == 0.0 {
            return 0.0;
        }
        let grid = Grid { low: 0.0, step: self.step, last: 0, error: self.error, filled: 1.0 };
        grid.entry_error(kernel, self.on_grid.len()).unwrap_or(f64::INFINITY)
    }

    /// The features that are not on the grid.
    pub(crate) fn measurements(&self, points: &Points) -> Points {
        fn dense<T: Copy>(rows: usize, row: impl Fn(usize) -> T, others: usize) -> Vec<T> {
            (0..rows * others).map(row).collect()
        }
        let (n, m) = (points.len(), self.others.len());
        let made = match points.storage() {
            Storage::DenseF32(x) => Points::dense_f32(n, m, dense(n, |at| x.row(at / m)[self.others[at % m]], m)),
            Storage::DenseF64(x) => Points::dense_f64(n, m, dense(n, |at| x.row(at / m)[self.others[at % m]], m)),
            _ => {
                let mut place = vec![usize::MAX; points.dims()];
                self.others.iter().enumerate().for_each(|(at, &feature)| place[feature] = at);
                let mut values = vec![0.0; n * m];
                for (i, row) in values.chunks_exact_mut(m).enumerate() {
                    points.visit(i, |k, x| {
                        if let Some(value) = row.get_mut(place[k]) {
                            *value = x;
                        }
                    });
                }
                Points::dense_f64(n, m, values)
            }
        };
        made.expect("values of checked points")
    }

    /// The features on the grid.
    pub(crate) fn numbers(&self, points: &Points, control: &Control) -> Result<BytePoints, Interrupt> {
        let number = |x: f64, low: f64| ((x - low) / self.step + 0.5) as u8;
        let mut place = vec![usize::MAX; points.dims()];
        self.on_grid.iter().enumerate().for_each(|(at, f)| place[f.feature] = at);
        let zeros: Vec<u8> = self.on_grid.iter().map(|f| number(0.0, f.low)).collect();
        let encode = |i: usize, codes: &mut [u8]| match points.storage() {
            Storage::DenseF32(m) => {
                let row = m.row(i);
                codes.iter_mut().zip(&self.on_grid).for_each(|(k, f)| *k = number(f64::from(row[f.feature]), f.low));
            }
            Storage::DenseF64(m) => {
                let row = m.row(i);
                codes.iter_mut().zip(&self.on_grid).for_each(|(k, f)| *k = number(row[f.feature], f.low));
            }
            _ => {
                codes.copy_from_slice(&zeros);
                points.visit(i, |k, x| {
                    if let Some(code) = codes.get_mut(place[k]) {
                        *code = number(x, self.on_grid[place[k]].low);
                    }
                });
            }
        };
        BytePoints::coded(points.len(), self.on_grid.len(), self.packing, encode, control)
    }

    /// step²
    pub(crate) fn square(&self) -> f64 {
        self.step * self.step
    }
}

/// Prepared rows: measurements and numbers.
pub(crate) struct MixedRows<T> {
    pub(super) measured: PackedRows<T>,
    pub(super) numbers: ByteRows,
}

/// Entries of mixed points in one precision.
#[derive(Clone, Copy)]
pub(crate) struct MixedSource<'a, T> {
    /// Of the measurements; what is recomputed refers to all features.
    pub(crate) measured: PackedSource<'a, T>,
    pub(crate) rows: &'a BytePoints,
    pub(crate) cols: &'a BytePoints,
    /// All of `cols`.
    pub(crate) packed: &'a ByteColumns,
    /// step²
    pub(crate) square: f64,
    pub(crate) scalar: PhantomData<T>,
}

impl<T> MixedSource<'_, T> {
    fn numbers<'b>(&self, rows: &'b MixedRows<T>) -> NumberJob<'b> {
        NumberJob { rows: &rows.numbers, steps: self.cols.steps, square: self.square }
    }
}

impl<T: MixedEngine> MixedSource<'_, T> {
    fn job<'b>(&'b self, rows: &'b MixedRows<T>) -> TileJob<'b, T> {
        let measured = &self.measured;
        let d = measured.cols.points.dims();
        TileJob { kernel: measured.kernel, sum: measured.sum, refine: measured.refine, d, rows: &rows.measured }
    }
}

impl<T: MixedEngine> EntrySource for MixedSource<'_, T> {
    type T = T;
    type Rows = MixedRows<T>;

    fn shape(&self) -> (usize, usize) {
        self.measured.shape()
    }

    fn level(&self) -> Level {
        self.measured.level
    }

    fn work(&self) -> usize {
        self.measured.cols.points.dims() + self.cols.steps + 16
    }

    fn panels_at_once(&self) -> usize {
        let column = self.measured.cols.points.dims() * size_of::<T>() + 4 * self.cols.steps;
        ((192 << 10) / (column.max(1) * T::NR)).max(1)
    }

    fn group(&self) -> usize {
        GROUP
    }

    fn groups(&self) -> usize {
        let row = self.measured.cols.points.dims() * size_of::<T>() + 4 * self.cols.steps;
        ((256 << 10) / (row.max(1) * GROUP)).clamp(1, 16)
    }

    fn slab(&self) -> usize {
        1024
    }

    fn few(&self, rows: usize) -> Option<usize> {
        self.measured.few(rows)
    }

    fn pack(&self, count: usize, index: impl Fn(usize) -> usize) -> MixedRows<T> {
        MixedRows { measured: self.measured.pack(count, &index), numbers: ByteRows::new(self.rows, count, index) }
    }

    fn run<'b>(&'b self, plan: &'b ColumnPlan, item: &Item, fresh: &'b mut Fresh<T>) -> PanelRun<'b, T> {
        let (first, count) = match *item {
            Item::Run { first, count, .. } => (first, count),
            Item::Part { panel, .. } => (panel, 1),
            Item::Gather { from, until } => {
                let list = &plan.columns[from..until];
                let Fresh { values, norms, lines, terms } = fresh;
                values.resize(self.measured.cols.points.dims() * T::NR, T::default());
                norms.resize(T::NR, T::default());
                Panels::gather(self.measured.cols, self.level(), list, values, norms);
                let bytes = self.cols.pack_panel(list, T::NR, lines, terms);
                return PanelRun { values, norms, count: 1, columns: LaneColumns::List(list), bytes };
            }
        };
        let bytes = self.packed.run(self.cols.steps, first * T::NR, (first + count) * T::NR);
        PanelRun { bytes, ..self.measured.panels.run(first, count) }
    }

    unsafe fn tiles(
        &self,
        rows: &MixedRows<T>,
        groups: Range<usize>,
        run: PanelRun<'_, T>,
        to: *mut T,
        stride: usize,
        scratch: &mut [T],
    ) {
        // SAFETY: this source is used only if the processor has the instructions; the caller guarantees the rest.
        unsafe { T::mixed_tiles(&self.job(rows), &self.numbers(rows), groups, run, to, stride, scratch) }
    }

    fn dots_at_once(&self) -> Option<usize> {
        fused::fits(&self.measured.kernel, self.measured.sum).then_some(fused::PANELS)
    }

    fn add_dots(&self, rows: &MixedRows<T>, groups: usize, run: PanelRun<'_, T>, dots: Dots<'_, T>) {
        // SAFETY: this source is used only if the processor has the instructions.
        unsafe { T::mixed_dots(&self.job(rows), &self.numbers(rows), groups, run, dots) }
    }
}

/// Some of the columns, prepared.
struct Chosen<T> {
    measured: Points,
    panels: Panels<T>,
    numbers: BytePoints,
    packed: ByteColumns,
    /// All features, for entries that are recomputed.
    whole: Option<Points>,
}

impl<T: MixedEngine> MixedSource<'_, T> {
    fn choose(&self, columns: &[u32], control: &Control) -> Result<Chosen<T>, Interrupt> {
        let measured = self.measured.cols.points.gather(columns);
        let view = View { points: &measured, centre: self.measured.cols.centre };
        let panels = Panels::new(view, self.level(), control)?;
        let numbers = self.cols.gather(columns);
        let packed = ByteColumns::new(&numbers, control)?;
        let whole = self.measured.refine.map(|refine| refine.cols.gather(columns));
        Ok(Chosen { measured, panels, numbers, packed, whole })
    }

    /// This source with the chosen columns; with them as rows too if `square`.
    fn with<'b>(&'b self, chosen: &'b Chosen<T>, square: bool) -> MixedSource<'b, T> {
        let cols = View { points: &chosen.measured, centre: self.measured.cols.centre };
        let refine = self.measured.refine.zip(chosen.whole.as_ref()).map(|(refine, whole)| Refine {
            rows: if square { whole } else { refine.rows },
            cols: whole,
            ..refine
        });
        let rows = if square { cols } else { self.measured.rows };
        MixedSource {
            measured: PackedSource { refine, rows, cols, panels: &chosen.panels, ..self.measured },
            rows: if square { &chosen.numbers } else { self.rows },
            cols: &chosen.numbers,
            packed: &chosen.packed,
            ..*self
        }
    }
}

impl<T: MixedEngine> Restrict for MixedSource<'_, T> {
    fn multiply_some(
        &self,
        rows: Pick<'_>,
        columns: &[u32],
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        /// Number of rows above which repacking the used columns pays off.
        const MANY: usize = 64;
        let (n, m) = self.shape();
        if columns.len() * 4 >= 3 * m {
            return Tasks { source: self, control }.multiply(rows, Pick::All, v, k, out);
        }
        if rows.len(n) <= MANY {
            return Tasks { source: self, control }.multiply(rows, Pick::List(columns), v, k, out);
        }
        let chosen = self.choose(columns, control)?;
        let mut compact = Vec::with_capacity(columns.len() * k);
        columns.iter().for_each(|&j| compact.extend_from_slice(&v[j as usize * k..(j as usize + 1) * k]));
        Tasks { source: &self.with(&chosen, false), control }.multiply(rows, Pick::All, &compact, k, out)
    }

    fn multiply_mirrored(
        &self,
        columns: &[u32],
        v: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let chosen = self.choose(columns, control)?;
        let compact: Vec<f64> = columns.iter().map(|&j| v[j as usize]).collect();
        let mut own = vec![0.0; columns.len()];
        Tasks { source: &self.with(&chosen, true), control }.multiply_mirrored(&compact, &mut own)?;
        let part = self.with(&chosen, false);
        beyond(columns, &own, out, |rest, others| {
            Tasks { source: &part, control }.multiply(Pick::List(rest), Pick::All, &compact, 1, others)
        })
    }
}

/// A scalar with entry points for mixed points.
pub(crate) trait MixedEngine: ByteEngine + SparseEngine {
    /// See [`EntrySource::tiles`].
    ///
    /// # Safety
    /// As documented there; the processor must have the instructions of `bytes.rs`.
    unsafe fn mixed_tiles(
        job: &TileJob<'_, Self>,
        numbers: &NumberJob<'_>,
        groups: Range<usize>,
        run: PanelRun<'_, Self>,
        to: *mut Self,
        stride: usize,
        scratch: &mut [Self],
    );

    /// See [`EntrySource::add_dots`].
    ///
    /// # Safety
    /// The processor must have the instructions of `bytes.rs`, and the job must fit (see [`fused::fits`]).
    unsafe fn mixed_dots(
        job: &TileJob<'_, Self>,
        numbers: &NumberJob<'_>,
        groups: usize,
        run: PanelRun<'_, Self>,
        dots: Dots<'_, Self>,
    );
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! mixed_engine {
    ($t:ty, $narrow:ident, $wide:ident, $w:expr) => {
        impl MixedEngine for $t {
            unsafe fn mixed_tiles(
                _job: &TileJob<'_, $t>,
                _numbers: &NumberJob<'_>,
                _groups: Range<usize>,
                _run: PanelRun<'_, $t>,
                _to: *mut $t,
                _stride: usize,
                _scratch: &mut [$t],
            ) {
                unreachable!("no other processor is supported")
            }
            unsafe fn mixed_dots(
                _job: &TileJob<'_, $t>,
                _numbers: &NumberJob<'_>,
                _groups: usize,
                _run: PanelRun<'_, $t>,
                _dots: Dots<'_, $t>,
            ) {
                unreachable!("no other processor is supported")
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! mixed_engine {
    ($t:ty, $narrow:ident, $wide:ident, $w:expr) => {
        impl MixedEngine for $t {
            unsafe fn mixed_tiles(
                job: &TileJob<'_, $t>,
                numbers: &NumberJob<'_>,
                groups: Range<usize>,
                run: PanelRun<'_, $t>,
                to: *mut $t,
                stride: usize,
                scratch: &mut [$t],
            ) {
                use super::byte_tiles::{Listed, Vnni};
                use mixed_tiles::tiles;
                use std::arch::x86_64::{$narrow, $wide};
                #[target_feature(enable = "avx512f,avx512dq,avx512vnni,avx2,fma")]
                unsafe fn vnni(
                    job: &TileJob<'_, $t>,
                    numbers: &NumberJob<'_>,
                    groups: Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { tiles::<$wide, Vnni<'_, $w>>(job, numbers, groups, run, to, stride, scratch) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(
                    job: &TileJob<'_, $t>,
                    numbers: &NumberJob<'_>,
                    groups: Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { tiles::<$narrow, Listed<'_>>(job, numbers, groups, run, to, stride, scratch) }
                }
                // SAFETY: the packing was chosen for this processor.
                unsafe {
                    match numbers.rows.packing {
                        Packing::Vnni => vnni(job, numbers, groups, run, to, stride, scratch),
                        _ => avx2(job, numbers, groups, run, to, stride, scratch),
                    }
                }
            }
            unsafe fn mixed_dots(
                job: &TileJob<'_, $t>,
                numbers: &NumberJob<'_>,
                groups: usize,
                run: PanelRun<'_, $t>,
                sums: Dots<'_, $t>,
            ) {
                use super::byte_tiles::{Listed, Vnni};
                use mixed_tiles::dots;
                use std::arch::x86_64::{$narrow, $wide};
                #[target_feature(enable = "avx512f,avx512dq,avx512vnni,avx2,fma")]
                unsafe fn vnni(
                    job: &TileJob<'_, $t>,
                    numbers: &NumberJob<'_>,
                    groups: usize,
                    run: PanelRun<'_, $t>,
                    sums: Dots<'_, $t>,
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { dots::<$wide, Vnni<'_, $w>>(job, numbers, groups, run, sums) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(
                    job: &TileJob<'_, $t>,
                    numbers: &NumberJob<'_>,
                    groups: usize,
                    run: PanelRun<'_, $t>,
                    sums: Dots<'_, $t>,
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { dots::<$narrow, Listed<'_>>(job, numbers, groups, run, sums) }
                }
                // SAFETY: the packing was chosen for this processor.
                unsafe {
                    match numbers.rows.packing {
                        Packing::Vnni => vnni(job, numbers, groups, run, sums),
                        _ => avx2(job, numbers, groups, run, sums),
                    }
                }
            }
        }
    };
}

mixed_engine!(f32, __m256, __m512, 2);
mixed_engine!(f64, __m256d, __m512d, 1);

#[cfg(test)]
#[path = "mixed_tests.rs"]
mod tests;
