//! Entries of points on a grid, from exact integer sums.
//!
//! Pixels, counts, one-hot and binary features take at most 256 evenly spaced values, x = low + step·k. The squared
//! distance of two such points is step²·Σ(k − k′)², a sum of bytes that the processor computes exactly, four products per
//! lane and instruction: four times as fast as single and eight times as fast as double precision, and without rounding.
//! Both precisions are therefore computed from the same sums; only the exponential differs.
//!
//! Σ(k − k′)² = Σk² + Σk′² − 2 Σk·k′. The instruction multiplies unsigned by signed bytes, so columns are stored as
//! k′ − 128, and 256·Σk is subtracted from the term of the row. All sums are taken modulo 2³², which is exact because the
//! distance itself is smaller.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::byte_tiles;
use super::finish::LaneColumns;
use super::fused::{self, Dots, FusedEngine};
use super::grid::Grid;
use super::pack::GROUP;
use super::plan::{ColumnPlan, Item};
use super::simd::{Level, SimdScalar};
use super::tasks::{EntrySource, Fresh};
use super::tile::PanelRun;
use crate::control::{Control, Interrupt};
use crate::data::{Points, Real, Storage};
use crate::kernel::Kernel;

/// Columns whose words form a line.
pub(super) const LINE: usize = 16;
/// Four features of a column that are all k = 0.
const ZERO_COLUMN: u32 = 0x8080_8080;

/// Four features of [`LINE`] columns, a byte each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; LINE]);

/// Whether the processor has the instruction, and `level` allows it.
pub(crate) fn supported(level: Level) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        level == Level::Avx512 && is_x86_feature_detected!("avx512vnni")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = level;
        false
    }
}

/// Points as numbers of their grid.
pub(crate) struct BytePoints {
    /// Four features each, `quads` words a point.
    words: Vec<u32>,
    pub(super) quads: usize,
    /// Σk² of every point.
    squares: Vec<i32>,
    /// Σk² − 256·Σk of every point.
    row_terms: Vec<i32>,
}

impl BytePoints {
    /// Encodes every point.
    pub(crate) fn new(points: &Points, grid: Grid, control: &Control) -> Result<Self, Interrupt> {
        Self::coded(points.len(), points.dims(), |i, codes| encode(points, i, grid, codes), control)
    }

    /// Points of `d` numbers each, which `encode(i, numbers)` writes, on threads of its own: see `Panels::new`.
    pub(crate) fn coded(
        n: usize,
        d: usize,
        encode: impl Fn(usize, &mut [u8]) + Sync,
        control: &Control,
    ) -> Result<Self, Interrupt> {
        let quads = d.div_ceil(4);
        let mut words = vec![0u32; n * quads];
        let (mut squares, mut row_terms) = (vec![0i32; n], vec![0i32; n]);
        let threads = if n * d < 1 << 20 { 1 } else { control.threads.count().max(1) };
        let share = n.div_ceil(threads).max(1);
        let fill = |first: usize, words: &mut [u32], squares: &mut [i32], terms: &mut [i32]| {
            let mut codes = vec![0u8; 4 * quads];
            for (i, (square, term)) in squares.iter_mut().zip(terms).enumerate() {
                if i % 1024 == 0 {
                    control.check()?;
                }
                encode(first + i, &mut codes[..d]);
                let sum = |total: i32, by: i32| total.wrapping_add(by);
                *square = codes.iter().map(|k| i32::from(*k).pow(2)).fold(0, sum);
                *term = square.wrapping_sub(codes.iter().map(|k| 256 * i32::from(*k)).fold(0, sum));
                let line = &mut words[i * quads..(i + 1) * quads];
                line.iter_mut().zip(codes.as_chunks::<4>().0).for_each(|(w, k)| *w = u32::from_le_bytes(*k));
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let parts = words.chunks_mut((share * quads).max(1)).zip(squares.chunks_mut(share));
            let parts = parts.zip(row_terms.chunks_mut(share)).enumerate();
            let fill = &fill;
            let workers: Vec<_> = parts
                .map(|(t, ((words, squares), terms))| scope.spawn(move || fill(t * share, words, squares, terms)))
                .collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        Ok(Self { words, quads, squares, row_terms })
    }

    pub(crate) fn len(&self) -> usize {
        self.squares.len()
    }

    /// Some of the points, in the order of the list.
    pub(crate) fn gather(&self, list: &[u32]) -> Self {
        let quads = self.quads;
        let words = list.iter().flat_map(|&i| &self.words[i as usize * quads..(i as usize + 1) * quads]);
        let of = |terms: &[i32]| list.iter().map(|&i| terms[i as usize]).collect();
        Self { words: words.copied().collect(), quads, squares: of(&self.squares), row_terms: of(&self.row_terms) }
    }

    /// Packs up to [`LINE`] points of `list` side by side into `lines`, as columns.
    fn pack_columns(&self, list: impl ExactSizeIterator<Item = usize>, lines: &mut [Line], terms: &mut [i32]) {
        lines.fill(Line([ZERO_COLUMN; LINE]));
        terms.fill(0);
        for (j, column) in list.enumerate() {
            terms[j] = self.squares[column];
            let words = &self.words[column * self.quads..(column + 1) * self.quads];
            lines.iter_mut().zip(words).for_each(|(line, word)| line.0[j] = word ^ ZERO_COLUMN);
        }
    }
}

impl BytePoints {
    /// One panel of `width` columns with the points of `list`.
    pub(crate) fn pack_panel<'b>(
        &self,
        list: &[u32],
        width: usize,
        lines: &'b mut Vec<Line>,
        terms: &'b mut Vec<i32>,
    ) -> ByteRun<'b> {
        lines.resize(width / LINE * self.quads, Line([0; LINE]));
        terms.resize(width, 0);
        for (part, terms) in terms.chunks_mut(LINE).enumerate() {
            let own = &list[(part * LINE).min(list.len())..((part + 1) * LINE).min(list.len())];
            let lines = &mut lines[part * self.quads..(part + 1) * self.quads];
            self.pack_columns(own.iter().map(|&j| j as usize), lines, terms);
        }
        ByteRun { lines, terms }
    }
}

/// The numbers of one point.
fn encode(points: &Points, i: usize, grid: Grid, out: &mut [u8]) {
    fn dense<T: Real>(row: &[T], grid: Grid, out: &mut [u8]) {
        out.iter_mut().zip(row).for_each(|(k, x)| *k = grid.number(x.to_f64()));
    }
    match points.storage() {
        Storage::DenseF32(m) => dense(m.row(i), grid, out),
        Storage::DenseF64(m) => dense(m.row(i), grid, out),
        _ => {
            out.fill(grid.number(0.0));
            points.visit(i, |k, x| out[k] = grid.number(x));
        }
    }
}

/// Columns packed in lines: `quads` lines for every [`LINE`] of them.
pub(crate) struct ByteColumns {
    lines: Vec<Line>,
    terms: Vec<i32>,
}

impl ByteColumns {
    /// Packs all points, padded to a whole number of the widest panels.
    pub(crate) fn new(points: &BytePoints) -> Self {
        let (count, widest) = (points.len(), <f32 as SimdScalar>::NR);
        let padded = count.div_ceil(widest) * widest;
        let quads = points.quads;
        let mut lines = vec![Line([0; LINE]); padded / LINE * quads];
        let mut terms = vec![0; padded];
        for (part, terms) in terms.chunks_mut(LINE).enumerate() {
            let (from, to) = ((part * LINE).min(count), ((part + 1) * LINE).min(count));
            points.pack_columns(from..to, &mut lines[part * quads..(part + 1) * quads], terms);
        }
        Self { lines, terms }
    }

    /// Columns `from` up to `to`, multiples of [`LINE`].
    pub(crate) fn run(&self, quads: usize, from: usize, to: usize) -> ByteRun<'_> {
        ByteRun { lines: &self.lines[from / LINE * quads..to / LINE * quads], terms: &self.terms[from..to] }
    }
}

/// Packed columns of a run of panels.
#[derive(Clone, Copy, Default)]
pub(crate) struct ByteRun<'a> {
    pub(super) lines: &'a [Line],
    pub(super) terms: &'a [i32],
}

impl ByteRun<'_> {
    /// Part `p` of `count`.
    pub(crate) fn part(&self, p: usize, count: usize) -> Self {
        let (lines, terms) = (self.lines.len() / count, self.terms.len() / count);
        Self { lines: &self.lines[p * lines..(p + 1) * lines], terms: &self.terms[p * terms..(p + 1) * terms] }
    }
}

/// Requested rows in groups of [`GROUP`], padded with k = 0.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "read by the instructions of this architecture"))]
pub(crate) struct ByteRows {
    pub(super) words: Vec<u32>,
    pub(super) terms: Vec<i32>,
    pub(super) count: usize,
}

impl ByteRows {
    /// The points `index(0 .. count)`.
    pub(crate) fn new(points: &BytePoints, count: usize, index: impl Fn(usize) -> usize) -> Self {
        let (quads, padded) = (points.quads, count.div_ceil(GROUP) * GROUP);
        let mut words = vec![0; padded * quads];
        let mut terms = vec![0; padded];
        for i in 0..count {
            let (at, group) = (index(i), &mut words[i / GROUP * GROUP * quads..]);
            terms[i] = points.row_terms[at];
            let own = &points.words[at * quads..(at + 1) * quads];
            group.chunks_exact_mut(GROUP).zip(own).for_each(|(line, word)| line[i % GROUP] = *word);
        }
        Self { words, terms, count }
    }
}

/// Entries of points on a grid in one precision.
#[derive(Clone, Copy)]
pub(crate) struct ByteSource<'a, T> {
    /// As a function of Σ(k − k′)².
    pub(crate) kernel: Kernel,
    pub(crate) level: Level,
    pub(crate) rows: &'a BytePoints,
    pub(crate) cols: &'a BytePoints,
    /// All of `cols`.
    pub(crate) packed: &'a ByteColumns,
    pub(crate) scalar: std::marker::PhantomData<T>,
}

impl<T: ByteEngine> EntrySource for ByteSource<'_, T> {
    type T = T;
    type Rows = ByteRows;

    fn shape(&self) -> (usize, usize) {
        (self.rows.len(), self.cols.len())
    }

    fn level(&self) -> Level {
        self.level
    }

    fn work(&self) -> usize {
        self.cols.quads.max(16)
    }

    fn panels_at_once(&self) -> usize {
        ((192 << 10) / (self.cols.quads.max(1) * 4 * T::NR)).max(1)
    }

    fn group(&self) -> usize {
        GROUP
    }

    fn groups(&self) -> usize {
        ((128 << 10) / (self.cols.quads.max(1) * 4 * GROUP)).clamp(1, 16)
    }

    fn slab(&self) -> usize {
        1024
    }

    fn few(&self, _rows: usize) -> Option<usize> {
        None
    }

    fn pack(&self, count: usize, index: impl Fn(usize) -> usize) -> ByteRows {
        ByteRows::new(self.rows, count, index)
    }

    fn run<'b>(&'b self, plan: &'b ColumnPlan, item: &Item, fresh: &'b mut Fresh<T>) -> PanelRun<'b, T> {
        let (count, columns, bytes) = match *item {
            Item::Run { first, count, .. } => {
                let (from, to) = (first * T::NR, (first + count) * T::NR);
                let bytes = self.packed.run(self.cols.quads, from, to);
                (count, LaneColumns::From { first: from, count: count * T::NR }, bytes)
            }
            Item::Part { from, until, .. } | Item::Gather { from, until } => {
                let list = &plan.columns[from..until];
                (1, LaneColumns::List(list), self.cols.pack_panel(list, T::NR, &mut fresh.lines, &mut fresh.terms))
            }
        };
        PanelRun { values: &[], norms: &[], count, columns, bytes }
    }

    unsafe fn tiles(
        &self,
        rows: &ByteRows,
        groups: Range<usize>,
        run: PanelRun<'_, T>,
        to: *mut T,
        stride: usize,
        scratch: &mut [T],
    ) {
        // SAFETY: this source is used only if the processor has the instructions; the caller guarantees the rest.
        unsafe { T::byte_tiles(self, rows, groups, run, to, stride, scratch) }
    }

    fn dots_at_once(&self) -> Option<usize> {
        matches!(self.kernel, Kernel::Rbf { .. }).then_some(fused::PANELS)
    }

    fn add_dots(&self, rows: &ByteRows, groups: usize, run: PanelRun<'_, T>, dots: Dots<'_, T>) {
        // SAFETY: this source is used only if the processor has the instructions.
        unsafe { T::byte_dots(self, rows, groups, run, dots) }
    }
}

/// A scalar with entry points for points on a grid.
pub(crate) trait ByteEngine: FusedEngine {
    /// See [`EntrySource::tiles`].
    ///
    /// # Safety
    /// As documented there; the processor must be [`supported`].
    unsafe fn byte_tiles(
        source: &ByteSource<'_, Self>,
        rows: &ByteRows,
        groups: Range<usize>,
        run: PanelRun<'_, Self>,
        to: *mut Self,
        stride: usize,
        scratch: &mut [Self],
    );

    /// See [`EntrySource::add_dots`].
    ///
    /// # Safety
    /// The processor must be [`supported`].
    unsafe fn byte_dots(
        source: &ByteSource<'_, Self>,
        rows: &ByteRows,
        groups: usize,
        run: PanelRun<'_, Self>,
        dots: Dots<'_, Self>,
    );
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! byte_engine {
    ($t:ty, $v:ident, $w:expr) => {
        impl ByteEngine for $t {
            unsafe fn byte_tiles(
                _source: &ByteSource<'_, $t>,
                _rows: &ByteRows,
                _groups: Range<usize>,
                _run: PanelRun<'_, $t>,
                _to: *mut $t,
                _stride: usize,
                _scratch: &mut [$t],
            ) {
                unreachable!("no other processor is supported")
            }
            unsafe fn byte_dots(
                _source: &ByteSource<'_, $t>,
                _rows: &ByteRows,
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
macro_rules! byte_engine {
    ($t:ty, $v:ident, $w:expr) => {
        impl ByteEngine for $t {
            unsafe fn byte_tiles(
                source: &ByteSource<'_, $t>,
                rows: &ByteRows,
                groups: Range<usize>,
                run: PanelRun<'_, $t>,
                to: *mut $t,
                stride: usize,
                scratch: &mut [$t],
            ) {
                #[target_feature(enable = "avx512f,avx512dq,avx512vnni,avx2,fma")]
                unsafe fn enabled(
                    source: &ByteSource<'_, $t>,
                    rows: &ByteRows,
                    groups: Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        byte_tiles::tiles::<std::arch::x86_64::$v, $w>(source, rows, groups, run, to, stride, scratch)
                    }
                }
                // SAFETY: the caller has checked that the processor is supported.
                unsafe { enabled(source, rows, groups, run, to, stride, scratch) }
            }
            unsafe fn byte_dots(
                source: &ByteSource<'_, $t>,
                rows: &ByteRows,
                groups: usize,
                run: PanelRun<'_, $t>,
                dots: Dots<'_, $t>,
            ) {
                #[target_feature(enable = "avx512f,avx512dq,avx512vnni,avx2,fma")]
                unsafe fn enabled(
                    source: &ByteSource<'_, $t>,
                    rows: &ByteRows,
                    groups: usize,
                    run: PanelRun<'_, $t>,
                    dots: Dots<'_, $t>,
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { byte_tiles::dots::<std::arch::x86_64::$v, $w>(source, rows, groups, run, dots) }
                }
                // SAFETY: the caller has checked that the processor is supported.
                unsafe { enabled(source, rows, groups, run, dots) }
            }
        }
    };
}

byte_engine!(f32, __m512, 2);
byte_engine!(f64, __m512d, 1);
