//! Entries from packed points.

use std::ops::Range;

use super::byte_columns::ByteRun;
use super::finish::{LaneColumns, Refine};
use super::fused::{self, Dots, FusedEngine};
use super::pack::{GROUP, PackedRows, Panels, View};
use super::plan::{ColumnPlan, Item};
use super::simd::Level;
use super::tasks::{EntrySource, Fresh};
use super::tile::{PanelRun, Sum, TileJob};
use crate::kernel::Kernel;

/// Entries of packed columns in one precision.
#[derive(Clone, Copy)]
pub(crate) struct PackedSource<'a, T> {
    pub(crate) kernel: Kernel,
    pub(crate) sum: Sum,
    pub(crate) refine: Option<Refine<'a>>,
    pub(crate) level: Level,
    pub(crate) rows: View<'a>,
    pub(crate) cols: View<'a>,
    pub(crate) panels: &'a Panels<T>,
}

impl<T> PackedSource<'_, T> {
    fn d(&self) -> usize {
        self.cols.points.dims()
    }
}

impl<T: FusedEngine> EntrySource for PackedSource<'_, T> {
    type T = T;
    type Rows = PackedRows<T>;

    fn shape(&self) -> (usize, usize) {
        (self.rows.points.len(), self.cols.points.len())
    }

    fn level(&self) -> Level {
        self.level
    }

    fn work(&self) -> usize {
        self.d().max(16)
    }

    fn panels_at_once(&self) -> usize {
        // Both the panels and a block of rows fit in the second-level cache.
        (192 << 10) / (self.d().max(1) * T::NR * size_of::<T>())
    }

    fn group(&self) -> usize {
        GROUP
    }

    fn groups(&self) -> usize {
        let line = self.d().max(1) * GROUP * size_of::<T>();
        ((256 << 10) / line).clamp(1, 16)
    }

    fn slab(&self) -> usize {
        1024
    }

    fn few(&self, rows: usize) -> Option<usize> {
        // Packing a panel costs about as much as computing this many rows of it.
        const PACK: usize = 20;
        Some((T::NR * rows / (PACK + rows)).max(2))
    }

    fn pack(&self, count: usize, index: impl Fn(usize) -> usize) -> PackedRows<T> {
        PackedRows::new(self.rows, self.level, count, index)
    }

    fn run<'b>(&'b self, plan: &'b ColumnPlan, item: &Item, fresh: &'b mut Fresh<T>) -> PanelRun<'b, T> {
        match *item {
            Item::Run { first, count, .. } => self.panels.run(first, count),
            Item::Part { panel, .. } => self.panels.run(panel, 1),
            Item::Gather { from, until } => {
                fresh.values.resize(self.d() * T::NR, T::default());
                fresh.norms.resize(T::NR, T::default());
                let list = &plan.columns[from..until];
                Panels::gather(self.cols, self.level, list, &mut fresh.values, &mut fresh.norms);
                let (columns, bytes) = (LaneColumns::List(list), ByteRun::default());
                PanelRun { values: &fresh.values, norms: &fresh.norms, count: 1, columns, bytes }
            }
        }
    }

    unsafe fn tiles(
        &self,
        rows: &PackedRows<T>,
        groups: Range<usize>,
        run: PanelRun<'_, T>,
        to: *mut T,
        stride: usize,
        scratch: &mut [T],
    ) {
        let job = TileJob { kernel: self.kernel, sum: self.sum, refine: self.refine, d: self.d(), rows };
        // SAFETY: the processor supports the level; the caller guarantees the rest.
        unsafe { T::tiles(self.level, &job, groups, run, to, stride, scratch) }
    }

    fn dots_at_once(&self) -> Option<usize> {
        fused::fits(&self.kernel, self.sum).then_some(fused::PANELS)
    }

    fn add_dots(&self, rows: &PackedRows<T>, groups: usize, run: PanelRun<'_, T>, dots: Dots<'_, T>) {
        let job = TileJob { kernel: self.kernel, sum: self.sum, refine: self.refine, d: self.d(), rows };
        // SAFETY: the processor supports the level; products are fused only where they fit.
        unsafe { T::dots(self.level, &job, groups, run, dots) }
    }
}
