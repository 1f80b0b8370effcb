//! Entries of points on a grid, from exact integer sums.
//!
//! Pixels, counts, one-hot and binary features take at most 256 evenly spaced values, x = low + step·k. The squared
//! distance of two such points is step²·Σ(k − k′)², a sum of small whole numbers that the processor computes exactly and two
//! to four times as fast as in single precision, four to eight times as fast as in double precision. Both precisions are
//! computed from the same sums; only the exponential differs.
//!
//! Σ(k − k′)² = Σk² + Σk′² − 2 Σk·k′, and terms with k = 0 need not be computed. How numbers are packed into words depends
//! on the instructions and on the largest number: see [`Packing`]. All sums are taken modulo 2³², which is exact because
//! the distance itself is smaller.

use std::ops::Range;

use super::byte_columns::{ByteColumns, ByteRun};
#[cfg(target_arch = "x86_64")]
use super::byte_tiles;
use super::finish::LaneColumns;
use super::fused::{self, Dots, FusedEngine};
use super::grid::Grid;
use super::pack::GROUP;
use super::plan::{ColumnPlan, Item};
use super::simd::Level;
use super::tasks::{EntrySource, Fresh, each_part};
use super::tile::PanelRun;
use crate::control::{Control, Interrupt};
use crate::data::{Points, Real, Storage};
use crate::kernel::Kernel;

/// Columns whose words form a line.
pub(super) const LINE: usize = 16;
/// Words of a row whose columns are kept in the first-level cache together, where rows are lists.
const PART: usize = 48;

/// A word of each of [`LINE`] columns.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; LINE]);

/// Whether the processor has the instructions, and `level` allows them.
pub(crate) fn supported(level: Level) -> bool {
    cfg!(target_arch = "x86_64") && level >= Level::Avx2
}

/// How numbers are packed into words of 32 bits, and multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Four bytes, by AVX-512 VNNI. The instruction multiplies unsigned by signed bytes, so columns are stored as k′ − 128,
    /// and 256·Σk is subtracted from the term of the row.
    Vnni,
    /// Four bytes, by AVX2: products of two are added up in 16 bits, which this many words cannot exceed.
    Bytes { words: usize },
    /// Two numbers of 16 bits, by AVX2.
    Pairs,
}

impl Packing {
    /// The packing for numbers up to `largest`.
    pub(crate) fn choose(level: Level, largest: u8) -> Self {
        /// Words from which adding them up in 16 bits is faster than multiplying 16 bits.
        const LEAST_WORDS: usize = 4;
        #[cfg(target_arch = "x86_64")]
        if level == Level::Avx512 && is_x86_feature_detected!("avx512vnni") {
            return Packing::Vnni;
        }
        let _ = level;
        let words = i16::MAX as usize / (2 * usize::from(largest.max(1)).pow(2));
        if words >= LEAST_WORDS { Packing::Bytes { words } } else { Packing::Pairs }
    }

    /// Numbers in a word.
    fn numbers(self) -> usize {
        if self == Packing::Pairs { 2 } else { 4 }
    }

    /// Words whose products may be added up before they are widened.
    pub(super) fn words_before_overflow(self) -> usize {
        if let Packing::Bytes { words } = self { words } else { usize::MAX }
    }

    /// What the words of columns are changed by.
    fn column_mask(self) -> u32 {
        if self == Packing::Vnni { 0x8080_8080 } else { 0 }
    }

    /// The least that [`Packing::cost`] returns.
    pub(crate) const LEAST_COST: f64 = 0.25;

    /// How many multiply–adds of single precision a number costs.
    pub(crate) fn cost(self) -> f64 {
        if self == Packing::Pairs { 0.5 } else { Self::LEAST_COST }
    }

    /// The same where only this share of the numbers is not zero: lists leave out words of zeros.
    pub(crate) fn cost_where(self, filled: f64) -> f64 {
        match self {
            Packing::Vnni => self.cost(),
            _ => self.cost() * (1.0 - (1.0 - filled.clamp(0.0, 1.0)).powi(self.numbers() as i32)),
        }
    }
}

/// Points as numbers of their grid.
pub(crate) struct BytePoints {
    /// `steps` words a point.
    pub(super) words: Vec<u32>,
    pub(super) steps: usize,
    packing: Packing,
    /// Σk² of every point.
    squares: Vec<i32>,
    /// Σk² of every point, less 256·Σk where columns are offset.
    row_terms: Vec<i32>,
}

impl BytePoints {
    /// Encodes every point.
    pub(crate) fn new(points: &Points, grid: Grid, packing: Packing, control: &Control) -> Result<Self, Interrupt> {
        Self::coded(points.len(), points.dims(), packing, |i, codes| encode(points, i, grid, codes), control)
    }

    /// Points of `d` numbers each, which `encode(i, numbers)` writes.
    pub(crate) fn coded(
        n: usize,
        d: usize,
        packing: Packing,
        encode: impl Fn(usize, &mut [u8]) + Sync,
        control: &Control,
    ) -> Result<Self, Interrupt> {
        /// Points that a task encodes.
        const SHARE: usize = 64;
        let steps = d.div_ceil(packing.numbers());
        let mut words = vec![0u32; n * steps];
        let (mut squares, mut row_terms) = (vec![0i32; n], vec![0i32; n]);
        let parts = words.chunks_mut((SHARE * steps).max(1)).zip(squares.chunks_mut(SHARE));
        let parts = parts.zip(row_terms.chunks_mut(SHARE)).collect();
        each_part(control, parts, |t, ((words, squares), terms)| {
            let mut codes = vec![0u8; packing.numbers() * steps];
            for (i, (square, term)) in squares.iter_mut().zip(&mut **terms).enumerate() {
                encode(t * SHARE + i, &mut codes[..d]);
                let sum = |total: i32, by: i32| total.wrapping_add(by);
                *square = codes.iter().map(|k| i32::from(*k).pow(2)).fold(0, sum);
                let offset = if packing == Packing::Vnni { 256 } else { 0 };
                *term = square.wrapping_sub(codes.iter().map(|k| offset * i32::from(*k)).fold(0, sum));
                let line = &mut words[i * steps..(i + 1) * steps];
                if packing == Packing::Pairs {
                    let pairs = codes.as_chunks::<2>().0;
                    line.iter_mut().zip(pairs).for_each(|(w, k)| *w = u32::from(k[0]) | u32::from(k[1]) << 16);
                } else {
                    line.iter_mut().zip(codes.as_chunks::<4>().0).for_each(|(w, k)| *w = u32::from_le_bytes(*k));
                }
            }
        })?;
        Ok(Self { words, steps, packing, squares, row_terms })
    }

    pub(crate) fn len(&self) -> usize {
        self.squares.len()
    }

    /// Some of the points, in the order of the list.
    pub(crate) fn gather(&self, list: &[u32]) -> Self {
        let (steps, packing) = (self.steps, self.packing);
        let mut words = Vec::with_capacity(list.len() * steps);
        list.iter().for_each(|&i| words.extend_from_slice(&self.words[i as usize * steps..(i as usize + 1) * steps]));
        let of = |terms: &[i32]| list.iter().map(|&i| terms[i as usize]).collect();
        let (squares, row_terms) = (of(&self.squares), of(&self.row_terms));
        Self { words, steps, packing, squares, row_terms }
    }

    /// Packs up to [`LINE`] points of `list` side by side into `lines`, as columns.
    fn pack_columns(&self, list: impl ExactSizeIterator<Item = usize>, lines: &mut [Line], terms: &mut [i32]) {
        let mask = self.packing.column_mask();
        lines.fill(Line([mask; LINE]));
        terms.fill(0);
        for (j, column) in list.enumerate() {
            terms[j] = self.squares[column];
            let words = &self.words[column * self.steps..(column + 1) * self.steps];
            lines.iter_mut().zip(words).for_each(|(line, word)| line.0[j] = word ^ mask);
        }
    }
}

impl BytePoints {
    /// Packs columns `part`·[`LINE`] and those after it, as many as there are.
    pub(super) fn pack_part(&self, part: usize, lines: &mut [Line], terms: &mut [i32]) {
        let (from, to) = ((part * LINE).min(self.len()), ((part + 1) * LINE).min(self.len()));
        self.pack_columns(from..to, lines, terms);
    }

    /// One panel of `width` columns with the points of `list`.
    pub(crate) fn pack_panel<'b>(
        &self,
        list: &[u32],
        width: usize,
        lines: &'b mut Vec<Line>,
        terms: &'b mut Vec<i32>,
    ) -> ByteRun<'b> {
        lines.resize(width / LINE * self.steps, Line([0; LINE]));
        terms.resize(width, 0);
        for (part, terms) in terms.chunks_mut(LINE).enumerate() {
            let own = &list[(part * LINE).min(list.len())..((part + 1) * LINE).min(list.len())];
            let lines = &mut lines[part * self.steps..(part + 1) * self.steps];
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

/// A word of a row that is not zero, and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word {
    pub(super) at: u32,
    pub(super) value: u32,
}

/// Requested rows, padded to groups of [`GROUP`] with k = 0.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "read by the instructions of this architecture"))]
pub(crate) struct ByteRows {
    pub(super) packing: Packing,
    /// With AVX-512 VNNI: groups of lines of [`GROUP`] words.
    pub(super) words: Vec<u32>,
    /// Otherwise the words that are not zero, row by row.
    listed: Vec<Word>,
    /// Where each of the `parts` parts of each row's list begins, and where the last one ends.
    starts: Vec<u32>,
    pub(super) parts: usize,
    pub(super) terms: Vec<i32>,
    pub(super) count: usize,
}

impl ByteRows {
    /// The points `index(0 .. count)`.
    pub(crate) fn new(points: &BytePoints, count: usize, index: impl Fn(usize) -> usize) -> Self {
        let (steps, padded, packing) = (points.steps, count.div_ceil(GROUP) * GROUP, points.packing);
        let mut terms = vec![0; padded];
        terms.iter_mut().take(count).enumerate().for_each(|(i, term)| *term = points.row_terms[index(i)]);
        let mut rows =
            Self { packing, words: Vec::new(), listed: Vec::new(), starts: Vec::new(), parts: 0, terms, count };
        let own = |i: usize| &points.words[index(i) * steps..(index(i) + 1) * steps];
        if packing == Packing::Vnni {
            rows.words = vec![0; padded * steps];
            for i in 0..count {
                let group = &mut rows.words[i / GROUP * GROUP * steps..];
                group.chunks_exact_mut(GROUP).zip(own(i)).for_each(|(line, word)| line[i % GROUP] = *word);
            }
            return rows;
        }
        rows.parts = steps.div_ceil(PART);
        rows.starts.reserve(padded * rows.parts + 1);
        // Without a branch for each word, which no processor could predict.
        let mut present = [Word { at: 0, value: 0 }; PART];
        for i in 0..count {
            for (part, words) in own(i).chunks(PART).enumerate() {
                rows.starts.push(rows.listed.len() as u32);
                let mut found = 0;
                for (at, &value) in ((part * PART) as u32..).zip(words) {
                    present[found.min(PART - 1)] = Word { at, value };
                    found += usize::from(value != 0);
                }
                rows.listed.extend_from_slice(&present[..found]);
            }
        }
        rows.starts.resize(padded * rows.parts + 1, rows.listed.len() as u32);
        rows
    }

    /// Part `part` of the list of a row.
    #[inline(always)]
    pub(super) fn list(&self, row: usize, part: usize) -> &[Word] {
        let at = row * self.parts + part;
        &self.listed[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// What a register tile of whole numbers needs.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "read by the instructions of this architecture"))]
pub(crate) struct NumberJob<'a> {
    pub(super) rows: &'a ByteRows,
    /// Words of a row.
    pub(super) steps: usize,
    /// step² of the grid.
    pub(super) square: f64,
}

impl NumberJob<'_> {
    /// Panics unless there are so many groups of rows, and columns in the run.
    pub(super) fn check(&self, groups: usize, run: ByteRun<'_>, columns: usize) {
        let (rows, steps) = (self.rows, self.steps);
        assert!(groups * GROUP <= rows.terms.len() && run.terms.len() >= columns);
        assert!(run.lines.len() >= columns / LINE * steps);
        if rows.packing == Packing::Vnni {
            assert!(rows.words.len() >= groups * GROUP * steps);
        } else {
            assert!(rows.starts.len() > groups * GROUP * rows.parts && rows.parts <= steps.div_ceil(PART));
        }
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
        self.cols.steps.max(16)
    }

    fn panels_at_once(&self) -> usize {
        // As many as are prepared at once, or a multiple.
        ((192 << 10) / (self.cols.steps.max(1) * 4 * T::NR)).max(1).next_multiple_of(64 / T::NR)
    }

    fn group(&self) -> usize {
        GROUP
    }

    fn groups(&self) -> usize {
        ((128 << 10) / (self.cols.steps.max(1) * 4 * GROUP)).clamp(8, 16)
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
                let bytes = self.packed.run(self.cols.steps, from, to);
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
        unsafe { T::byte_tiles(self.kernel, &self.job(rows), groups, run, to, stride, scratch) }
    }

    fn dots_at_once(&self) -> Option<usize> {
        matches!(self.kernel, Kernel::Rbf { .. }).then_some(fused::PANELS)
    }

    fn add_dots(&self, rows: &ByteRows, groups: usize, run: PanelRun<'_, T>, dots: Dots<'_, T>) {
        // SAFETY: this source is used only if the processor has the instructions.
        unsafe { T::byte_dots(self.kernel, &self.job(rows), groups, run, dots) }
    }
}

impl<T> ByteSource<'_, T> {
    fn job<'b>(&self, rows: &'b ByteRows) -> NumberJob<'b> {
        NumberJob { rows, steps: self.cols.steps, square: 1.0 }
    }
}

/// A scalar with entry points for points on a grid.
pub(crate) trait ByteEngine: FusedEngine {
    /// See [`EntrySource::tiles`].
    ///
    /// # Safety
    /// As documented there; the processor must have the instructions of the packing.
    unsafe fn byte_tiles(
        kernel: Kernel,
        job: &NumberJob<'_>,
        groups: Range<usize>,
        run: PanelRun<'_, Self>,
        to: *mut Self,
        stride: usize,
        scratch: &mut [Self],
    );

    /// See [`EntrySource::add_dots`].
    ///
    /// # Safety
    /// The processor must have the instructions of the packing.
    unsafe fn byte_dots(
        kernel: Kernel,
        job: &NumberJob<'_>,
        groups: usize,
        run: PanelRun<'_, Self>,
        dots: Dots<'_, Self>,
    );
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! byte_engine {
    ($t:ty, $narrow:ident, $wide:ident, $w:expr) => {
        impl ByteEngine for $t {
            unsafe fn byte_tiles(
                _kernel: Kernel,
                _job: &NumberJob<'_>,
                _groups: Range<usize>,
                _run: PanelRun<'_, $t>,
                _to: *mut $t,
                _stride: usize,
                _scratch: &mut [$t],
            ) {
                unreachable!("no other processor is supported")
            }
            unsafe fn byte_dots(
                _kernel: Kernel,
                _job: &NumberJob<'_>,
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
    ($t:ty, $narrow:ident, $wide:ident, $w:expr) => {
        impl ByteEngine for $t {
            unsafe fn byte_tiles(
                kernel: Kernel,
                job: &NumberJob<'_>,
                groups: Range<usize>,
                run: PanelRun<'_, $t>,
                to: *mut $t,
                stride: usize,
                scratch: &mut [$t],
            ) {
                use byte_tiles::{Listed, Vnni, tiles};
                use std::arch::x86_64::{$narrow, $wide};
                #[target_feature(enable = "avx512f,avx512dq,avx512vnni,avx2,fma")]
                unsafe fn vnni(
                    kernel: Kernel,
                    job: &NumberJob<'_>,
                    groups: Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { tiles::<$wide, Vnni<'_, $w>>(kernel, job, groups, run, to, stride, scratch) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(
                    kernel: Kernel,
                    job: &NumberJob<'_>,
                    groups: Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { tiles::<$narrow, Listed<'_>>(kernel, job, groups, run, to, stride, scratch) }
                }
                // SAFETY: the packing was chosen for this processor.
                unsafe {
                    match job.rows.packing {
                        Packing::Vnni => vnni(kernel, job, groups, run, to, stride, scratch),
                        _ => avx2(kernel, job, groups, run, to, stride, scratch),
                    }
                }
            }
            unsafe fn byte_dots(
                kernel: Kernel,
                job: &NumberJob<'_>,
                groups: usize,
                run: PanelRun<'_, $t>,
                sums: Dots<'_, $t>,
            ) {
                use byte_tiles::{Listed, Vnni, dots};
                use std::arch::x86_64::{$narrow, $wide};
                #[target_feature(enable = "avx512f,avx512dq,avx512vnni,avx2,fma")]
                unsafe fn vnni(
                    kernel: Kernel,
                    job: &NumberJob<'_>,
                    groups: usize,
                    run: PanelRun<'_, $t>,
                    sums: Dots<'_, $t>,
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { dots::<$wide, Vnni<'_, $w>>(kernel, job, groups, run, sums) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(
                    kernel: Kernel,
                    job: &NumberJob<'_>,
                    groups: usize,
                    run: PanelRun<'_, $t>,
                    sums: Dots<'_, $t>,
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { dots::<$narrow, Listed<'_>>(kernel, job, groups, run, sums) }
                }
                // SAFETY: the packing was chosen for this processor.
                unsafe {
                    match job.rows.packing {
                        Packing::Vnni => vnni(kernel, job, groups, run, sums),
                        _ => avx2(kernel, job, groups, run, sums),
                    }
                }
            }
        }
    };
}

byte_engine!(f32, __m256, __m512, 2);
byte_engine!(f64, __m256d, __m512d, 1);
