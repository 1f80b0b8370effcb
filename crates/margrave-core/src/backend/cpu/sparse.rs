//! Entries from sparse columns.
//!
//! Requested rows are prepared in blocks of up to four groups. A block has a line of values, one for each of its rows, for every
//! feature that any of its rows stores, and a line of zeros for all others; each stored value of a column is then one multiply-add
//! for every vector of the line of its feature. Sums run over stored features in ascending order and features not stored add
//! nothing, so an entry has the same bits whichever side a point is on, and however rows are grouped.
//!
//! A sum is a chain: with one vector of rows every multiply-add would wait for the one before; those of several vectors overlap.
//! With lines for the features that occur only, the lines of many rows fit in the second-level cache.
//!
//! Distances are ‖x‖ + ‖x′‖ − 2·(common part). The common part is x·x′ with the squared Euclidean norm; Σ min(|a|, |b|)
//! over features of equal sign with ‖·‖₁, which gives ‖x − x′‖₁; or Σ 2ab/(a + b), which gives the χ² distance. Each
//! common part equals the norm exactly if x = x′, and is exactly zero if one of two values is zero.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::byte_columns::ByteRun;
use super::finish::{LaneColumns, Refine, Tile, finish};
use super::fused::FusedEngine;
use super::math::ExpTable;
use super::pack::Aligned;
use super::plan::{ColumnPlan, Item};
use super::simd::{Level, PORTABLE_FMA, Simd, SimdScalar, Wide32, Wide64};
use super::tasks::{EntrySource, Fresh};
use super::tile::{PanelRun, Product, Sum, SumStep};
use crate::control::Threads;
use crate::data::{Points, Real, Storage};
use crate::kernel::{Kernel, Statistic};

/// Values of sparse points in the scalar type used for entries, with the norms of the points.
pub(crate) struct SparseValues<T> {
    values: Vec<T>,
    norms: Vec<T>,
    /// Groups of such points in a block.
    groups: usize,
}

impl<T: SimdScalar> SparseValues<T> {
    pub(crate) fn new(points: &Points, sum: Sum, level: Level, threads: &Threads) -> Self {
        /// Points whose norms are computed together.
        const TOGETHER: usize = 256;
        let values: Vec<T> = match points.storage() {
            Storage::SparseF32(m) => m.values().iter().map(|x| T::from_f64(x.to_f64())).collect(),
            Storage::SparseF64(m) => m.values().iter().map(|x| T::from_f64(x.to_f64())).collect(),
            Storage::DenseF32(_) | Storage::DenseF64(_) => unreachable!("only sparse columns are used as stored"),
        };
        let (starts, _) = layout(points);
        let mut norms = vec![T::default(); points.len()];
        threads.chunks(&mut norms, TOGETHER, |part, norms| {
            for (i, out) in norms.iter_mut().enumerate() {
                let i = part * TOGETHER + i;
                *out = norm(level, sum, &values[starts[i]..starts[i + 1]]);
            }
        });
        Self { values, norms, groups: Self::groups_of(points, level) }
    }

    /// The most groups of which the lines of a block stay in the second-level cache.
    fn groups_of(points: &Points, level: Level) -> usize {
        let mut groups = if level == Level::Portable { 1 } else { MOST_GROUPS };
        let mut points_with = vec![0u32; points.dims()];
        let (_, numbers) = layout(points);
        numbers.iter().for_each(|k| points_with[*k as usize] += 1);
        let n = points.len().max(1) as f64;
        // A feature that a share p of the points has occurs among r points with probability 1 − (1 − p)ʳ.
        let features = |r: usize| -> f64 {
            points_with.iter().filter(|c| **c > 0).map(|c| 1.0 - (1.0 - f64::from(*c) / n).powi(r as i32)).sum()
        };
        while groups > 1 {
            let rows = groups * SpreadRows::<T>::LANES;
            if features(rows) * (rows * size_of::<T>()) as f64 <= BLOCK as f64 {
                break;
            }
            groups /= 2;
        }
        groups
    }
}

/// Row pointers and column indices of sparse points.
fn layout(points: &Points) -> (&[usize], &[u32]) {
    match points.storage() {
        Storage::SparseF32(m) => (m.starts(), m.columns()),
        Storage::SparseF64(m) => (m.starts(), m.columns()),
        Storage::DenseF32(_) | Storage::DenseF64(_) => unreachable!("only sparse columns are used as stored"),
    }
}

/// The norm of a point by exactly the chain of operations that gives its common part with itself.
fn norm<T: SimdScalar>(level: Level, sum: Sum, values: &[T]) -> T {
    #[inline(always)]
    fn squares<T: SimdScalar, const FMA: bool>(values: &[T]) -> T {
        values.iter().fold(T::default(), |total, x| T::fma::<FMA>(*x, *x, total))
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn fused<T: SimdScalar>(values: &[T]) -> T {
        squares::<T, true>(values)
    }
    match (sum, level) {
        (Sum::Product, Level::Portable) => squares::<T, PORTABLE_FMA>(values),
        // SAFETY: the processor supports the level.
        #[cfg(target_arch = "x86_64")]
        (Sum::Product, Level::Avx2 | Level::Avx512) => unsafe { fused(values) },
        #[cfg(not(target_arch = "x86_64"))]
        (Sum::Product, _) => squares::<T, PORTABLE_FMA>(values),
        _ => values.iter().fold(T::default(), |total, x| T::plus(total, T::from_f64(x.to_f64().abs()))),
    }
}

/// Σ min(|a|, |b|) over features of equal sign.
struct CommonPart;
/// Σ 2ab/(a + b)
struct HarmonicPart;

impl SumStep for CommonPart {
    #[inline(always)]
    unsafe fn step<V: Simd>(a: V, b: V, sum: V) -> V
    where
        V::T: ExpTable,
    {
        // SAFETY: the caller has the instructions of V. One of the two terms is zero.
        unsafe {
            let zero = V::splat(V::T::ZERO);
            sum.add(a.min(b).max(zero).sub(a.max(b).min(zero)))
        }
    }
}

impl SumStep for HarmonicPart {
    #[inline(always)]
    unsafe fn step<V: Simd>(a: V, b: V, sum: V) -> V
    where
        V::T: ExpTable,
    {
        // SAFETY: the caller has the instructions of V. With m = (a + b)/2 the term is m − (a − b)²/4m, between one and
        // two times the smaller value: exactly a for a = b, exactly 0 for b = 0.
        unsafe {
            let half = V::splat(V::T::HALF);
            let middle = a.add(b).mul(half);
            let apart = a.sub(b).mul(half);
            let term = middle.sub(apart.mul(apart).div(middle.max(V::splat(V::T::TINY))));
            let least = a.min(b);
            sum.add(term.max(least).min(least.add(least)))
        }
    }
}

/// Most groups of rows in a block; 1 and 2 are the others. Four chains hide most of the latency of a multiply-add, and leave registers
/// for the next column; eight need twice the lines and are no faster.
const MOST_GROUPS: usize = 4;
/// Bytes of the lines of a block, which should stay in the second-level cache beside columns.
const BLOCK: usize = 1 << 20;

/// A block of prepared rows, with a line of values for every feature that one of them stores.
pub(crate) struct SpreadRows<T> {
    /// Groups of rows that a line has room for: 1, 2 or 4.
    groups: usize,
    /// The number of the line of every feature; that of zeros is 0.
    places: Vec<u32>,
    lines: Aligned<T>,
    norms: Vec<T>,
    numbers: Vec<u32>,
}

impl<T: SimdScalar> SpreadRows<T> {
    /// Rows in a group: half a panel's width.
    const LANES: usize = T::NR / 2;

    fn new(points: &Points, numbers: Vec<u32>, sum: Sum, level: Level) -> Self {
        let groups = numbers.len().div_ceil(Self::LANES).next_power_of_two();
        let width = groups * Self::LANES;
        let mut places = vec![0u32; points.dims()];
        let mut next = 1;
        for row in &numbers {
            points.visit(*row as usize, |k, _| {
                if places[k] == 0 {
                    places[k] = next;
                    next += 1;
                }
            });
        }
        let mut lines = Aligned::<T>::zeros(next as usize * width);
        let mut norms = vec![T::default(); width];
        let mut stored: Vec<T> = Vec::new();
        for (i, (row, out)) in numbers.iter().zip(&mut norms).enumerate() {
            stored.clear();
            points.visit(*row as usize, |k, x| {
                let x = T::from_f64(x);
                lines[places[k] as usize * width + i] = x;
                stored.push(x);
            });
            *out = norm(level, sum, &stored);
        }
        Self { groups, places, lines, norms, numbers }
    }
}

/// Entries of sparse columns in one precision.
#[derive(Clone, Copy)]
pub(crate) struct SparseSource<'a, T> {
    pub(crate) kernel: Kernel,
    pub(crate) sum: Sum,
    pub(crate) refine: Option<Refine<'a>>,
    pub(crate) level: Level,
    pub(crate) rows: &'a Points,
    pub(crate) cols: &'a Points,
    pub(crate) values: &'a SparseValues<T>,
}

impl<T: SparseEngine> EntrySource for SparseSource<'_, T> {
    type T = T;
    type Rows = SpreadRows<T>;

    fn shape(&self) -> (usize, usize) {
        (self.rows.len(), self.cols.len())
    }

    fn level(&self) -> Level {
        self.level
    }

    fn work(&self) -> usize {
        self.cols.stored() / self.cols.len().max(1) + 8
    }

    fn panels_at_once(&self) -> usize {
        // Enough columns to amortise loading the expanded rows, which may be large, into the cache.
        let panel = self.work() * T::NR * (size_of::<T>() + size_of::<u32>());
        4 * BLOCK / panel
    }

    fn group(&self) -> usize {
        SpreadRows::<T>::LANES
    }

    fn groups(&self) -> usize {
        self.values.groups
    }

    fn slab(&self) -> usize {
        let block = BLOCK + self.cols.dims() * size_of::<u32>();
        let tall = self.groups() * SpreadRows::<T>::LANES;
        ((8 << 20) / block * tall).clamp(tall, 1024)
    }

    fn few(&self, _rows: usize) -> Option<usize> {
        None
    }

    fn pack(&self, count: usize, index: impl Fn(usize) -> usize) -> SpreadRows<T> {
        SpreadRows::new(self.rows, (0..count).map(|i| index(i) as u32).collect(), self.sum, self.level)
    }

    fn run<'b>(&'b self, plan: &'b ColumnPlan, item: &Item, _fresh: &'b mut Fresh<T>) -> PanelRun<'b, T> {
        let (count, columns) = match *item {
            Item::Run { first, count, .. } => (count, LaneColumns::From { first: first * T::NR, count: count * T::NR }),
            Item::Part { from, until, .. } | Item::Gather { from, until } => {
                (1, LaneColumns::List(&plan.columns[from..until]))
            }
        };
        PanelRun { values: &[], norms: &[], count, columns, bytes: ByteRun::default() }
    }

    unsafe fn tiles(
        &self,
        rows: &SpreadRows<T>,
        groups: Range<usize>,
        run: PanelRun<'_, T>,
        to: *mut T,
        stride: usize,
        scratch: &mut [T],
    ) {
        // SAFETY: the processor supports the level; the caller guarantees the rest.
        unsafe { T::sparse_tiles(self, rows, groups, run, to, stride, scratch) }
    }
}

/// The sums of a block of `G` groups with up to `NR` columns: a line of the block's width for every column.
///
/// # Safety
/// Needs the instructions of `V`; `W·V::N` lanes are half a panel's width; the block must have `G` groups and `sums` room for `NR` lines.
#[inline(always)]
unsafe fn panel<V: Simd, S: SumStep, const W: usize, const G: usize>(
    source: &SparseSource<'_, V::T>,
    rows: &SpreadRows<V::T>,
    columns: LaneColumns<'_>,
    sums: *mut V::T,
) where
    V::T: SparseEngine,
{
    let nr = V::T::NR;
    let (starts, numbers) = layout(source.cols);
    let values = &source.values.values;
    let lines = rows.lines.as_ptr();
    // SAFETY: column indices are below d and row pointers inside the arrays, which `Csr` has checked; places are those of lines of the
    // block; `sums` as required above.
    unsafe {
        for j in 0..nr {
            let mut total = [[V::splat(V::T::ZERO); W]; G];
            if let Some(column) = columns.get(j) {
                for at in starts[column]..starts[column + 1] {
                    let left = V::splat(*values.get_unchecked(at));
                    let place = *rows.places.get_unchecked(*numbers.get_unchecked(at) as usize);
                    let line = lines.add(place as usize * (G * W * V::N));
                    for g in 0..G {
                        for w in 0..W {
                            total[g][w] = S::step(left, V::load(line.add((g * W + w) * V::N)), total[g][w]);
                        }
                    }
                }
            }
            for g in 0..G {
                for w in 0..W {
                    total[g][w].store(sums.add(((j * G + g) * W + w) * V::N));
                }
            }
        }
    }
}

/// [`panel`] for the number of groups that the block has.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn any_panel<V: Simd, S: SumStep, const W: usize>(
    source: &SparseSource<'_, V::T>,
    rows: &SpreadRows<V::T>,
    columns: LaneColumns<'_>,
    sums: *mut V::T,
) where
    V::T: SparseEngine,
{
    // SAFETY: as required above.
    unsafe {
        match rows.groups {
            1 => panel::<V, S, W, 1>(source, rows, columns, sums),
            2 => panel::<V, S, W, 2>(source, rows, columns, sums),
            _ => panel::<V, S, W, MOST_GROUPS>(source, rows, columns, sums),
        }
    }
}

/// See [`EntrySource::tiles`].
///
/// # Safety
/// As documented there; also needs the instructions of `V`.
#[inline(always)]
unsafe fn tiles<V: Simd, const W: usize>(
    source: &SparseSource<'_, V::T>,
    rows: &SpreadRows<V::T>,
    groups: Range<usize>,
    run: PanelRun<'_, V::T>,
    to: *mut V::T,
    stride: usize,
    scratch: &mut [V::T],
) where
    V::T: SparseEngine,
{
    /// Room for the sums of the largest block with a panel of single-precision columns.
    const ROOM: usize = 32 * 16 * MOST_GROUPS;
    let (nr, lanes) = (V::T::NR, SpreadRows::<V::T>::LANES);
    let statistic = source.kernel.statistic();
    let common = !matches!(statistic, Statistic::Dot | Statistic::Lookup);
    let width = rows.groups * lanes;
    let mut norms = [V::T::ZERO; 32];
    let mut sums = MaybeUninit::<[V::T; ROOM]>::uninit();
    let sums: *mut V::T = sums.as_mut_ptr().cast();
    assert!(lanes == W * V::N && nr * width <= ROOM && scratch.len() >= lanes * nr);
    for p in 0..run.count {
        let columns = run.columns.part(p * nr, nr);
        for (j, norm) in norms[..nr].iter_mut().enumerate() {
            *norm = columns.get(j).map_or(V::T::ZERO, |column| source.values.norms[column]);
        }
        // SAFETY: `sums` has room for NR lines of the block's width.
        unsafe {
            match statistic {
                Statistic::SquaredDistance | Statistic::Dot | Statistic::Lookup => {
                    any_panel::<V, Product, W>(source, rows, columns, sums);
                }
                Statistic::AbsoluteDistance => any_panel::<V, CommonPart, W>(source, rows, columns, sums),
                Statistic::ChiSquare => any_panel::<V, HarmonicPart, W>(source, rows, columns, sums),
            }
        }
        for g in groups.clone() {
            let first = g * lanes;
            let height = lanes.min(rows.numbers.len() - first);
            let turned = scratch.as_mut_ptr();
            for i in 0..lanes {
                for j in 0..nr {
                    // SAFETY: `any_panel` has written NR lines of the block's width; `scratch` has `lanes` lines of NR.
                    unsafe { *turned.add(i * nr + j) = *sums.add(j * width + first + i) };
                }
            }
            let tile = Tile {
                height,
                sums: turned,
                row_norms: rows.norms[first..].as_ptr(),
                norms: norms.as_ptr(),
                rows: &rows.numbers[first..first + height],
                columns,
            };
            // SAFETY: the tile's pointers have `height` lines and NR norms; the caller guarantees `to`.
            unsafe {
                let to = to.add((g - groups.start) * lanes * stride + p * nr);
                finish::<V>(source.kernel, common, source.refine, tile, to, stride);
            }
        }
    }
}

/// A scalar with entry points for every level.
pub(crate) trait SparseEngine: FusedEngine {
    /// See [`EntrySource::tiles`].
    ///
    /// # Safety
    /// As documented there; the processor must also support the level of the source.
    unsafe fn sparse_tiles(
        source: &SparseSource<'_, Self>,
        rows: &SpreadRows<Self>,
        groups: Range<usize>,
        run: PanelRun<'_, Self>,
        to: *mut Self,
        stride: usize,
        scratch: &mut [Self],
    );
}

macro_rules! sparse_engine {
    ($t:ty, $portable:ty, $avx2:ident, $avx512:ident) => {
        impl SparseEngine for $t {
            unsafe fn sparse_tiles(
                source: &SparseSource<'_, $t>,
                rows: &SpreadRows<$t>,
                groups: Range<usize>,
                run: PanelRun<'_, $t>,
                to: *mut $t,
                stride: usize,
                scratch: &mut [$t],
            ) {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
                unsafe fn avx512(
                    source: &SparseSource<'_, $t>,
                    rows: &SpreadRows<$t>,
                    groups: Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { tiles::<std::arch::x86_64::$avx512, 1>(source, rows, groups, run, to, stride, scratch) }
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(
                    source: &SparseSource<'_, $t>,
                    rows: &SpreadRows<$t>,
                    groups: Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { tiles::<std::arch::x86_64::$avx2, 2>(source, rows, groups, run, to, stride, scratch) }
                }
                // SAFETY: the caller has checked that the processor supports the level.
                unsafe {
                    match source.level {
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => avx512(source, rows, groups, run, to, stride, scratch),
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 => avx2(source, rows, groups, run, to, stride, scratch),
                        _ => tiles::<$portable, 2>(source, rows, groups, run, to, stride, scratch),
                    }
                }
            }
        }
    };
}

sparse_engine!(f32, Wide32, __m256, __m512);
sparse_engine!(f64, Wide64, __m256d, __m512d);
