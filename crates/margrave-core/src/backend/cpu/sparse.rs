//! Entries from sparse columns.
//!
//! Requested rows are expanded over all features, with a vector of adjacent rows for every feature; each stored value
//! of a column is then one multiply-add for the whole vector. Sums run over stored features in ascending order and
//! features not stored add nothing, so an entry has the same bits whichever side a point is on.
//!
//! Distances are ‖x‖ + ‖x′‖ − 2·(common part). The common part is x·x′ with the squared Euclidean norm; Σ min(|a|, |b|)
//! over features of equal sign with ‖·‖₁, which gives ‖x − x′‖₁; or Σ 2ab/(a + b), which gives the χ² distance. Each
//! common part equals the norm exactly if x = x′, and is exactly zero if one of two values is zero.

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
use crate::data::{Points, Real, Storage};
use crate::kernel::{Kernel, Statistic};

/// Values of sparse points in the scalar type used for entries, with the norms of the points.
pub(crate) struct SparseValues<T> {
    values: Vec<T>,
    norms: Vec<T>,
}

impl<T: SimdScalar> SparseValues<T> {
    pub(crate) fn new(points: &Points, sum: Sum, level: Level) -> Self {
        let values: Vec<T> = match points.storage() {
            Storage::SparseF32(m) => m.values().iter().map(|x| T::from_f64(x.to_f64())).collect(),
            Storage::SparseF64(m) => m.values().iter().map(|x| T::from_f64(x.to_f64())).collect(),
            Storage::DenseF32(_) | Storage::DenseF64(_) => unreachable!("only sparse columns are used as stored"),
        };
        let (starts, _) = layout(points);
        let norms = starts.windows(2).map(|w| norm(level, sum, &values[w[0]..w[1]])).collect();
        Self { values, norms }
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
    let squares = sum == Sum::Product;
    let fused = level != Level::Portable || PORTABLE_FMA;
    values.iter().fold(T::default(), |total, x| match (squares, fused) {
        (true, true) => T::fma::<true>(*x, *x, total),
        (true, false) => T::fma::<false>(*x, *x, total),
        (false, _) => T::plus(total, T::from_f64(x.to_f64().abs())),
    })
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

/// Rows expanded over all features.
pub(crate) struct SpreadRows<T> {
    /// `d` lines of `lanes` values for every group.
    values: Aligned<T>,
    norms: Vec<T>,
    numbers: Vec<u32>,
    /// Number of adjacent rows: half a panel's width, or 1 for very few rows.
    lanes: usize,
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

impl<T: SparseEngine> SparseSource<'_, T> {
    const LANES: usize = T::NR / 2;
    /// Up to this many rows are processed one by one.
    const SINGLE: usize = 2;
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
        let rows = self.cols.dims() * Self::LANES * size_of::<T>();
        let panel = self.work() * T::NR * (size_of::<T>() + size_of::<u32>());
        (192 << 10).max(4 * rows) / panel
    }

    fn group(&self) -> usize {
        Self::LANES
    }

    fn groups(&self) -> usize {
        let line = self.cols.dims().max(1) * Self::LANES * size_of::<T>();
        ((256 << 10) / line).clamp(1, 8)
    }

    fn slab(&self) -> usize {
        let fit = (8 << 20) / (self.cols.dims().max(1) * size_of::<T>());
        fit.clamp(Self::LANES, 1024) / Self::LANES * Self::LANES
    }

    fn few(&self, _rows: usize) -> Option<usize> {
        None
    }

    fn pack(&self, count: usize, index: impl Fn(usize) -> usize) -> SpreadRows<T> {
        let d = self.cols.dims();
        let one_by_one = count <= Self::SINGLE && self.sum == Sum::Product;
        let lanes = if one_by_one { 1 } else { Self::LANES };
        let padded = count.div_ceil(lanes) * lanes;
        let numbers: Vec<u32> = (0..count).map(|i| index(i) as u32).collect();
        let mut values = Aligned::<T>::zeros(padded * d);
        let mut norms = vec![T::default(); padded];
        let mut stored: Vec<T> = Vec::new();
        for (i, row) in numbers.iter().enumerate() {
            let group = &mut values[i / lanes * lanes * d..];
            stored.clear();
            self.rows.visit(*row as usize, |k, x| {
                let x = T::from_f64(x);
                group[k * lanes + i % lanes] = x;
                stored.push(x);
            });
            norms[i] = norm(self.level, self.sum, &stored);
        }
        SpreadRows { values, norms, numbers, lanes }
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

/// The sums of one group of expanded rows with up to `NR` columns, transposed into `tile`.
///
/// # Safety
/// Needs the instructions of `V`; `W·V::N` lanes are half a panel's width; `spread` must have that many values for
/// every feature, `tile` as many lines of `NR`.
#[inline(always)]
unsafe fn panel<V: Simd, S: SumStep, const W: usize>(
    source: &SparseSource<'_, V::T>,
    spread: *const V::T,
    columns: LaneColumns<'_>,
    tile: *mut V::T,
) where
    V::T: SparseEngine,
{
    let lanes = W * V::N;
    let nr = V::T::NR;
    let (starts, numbers) = layout(source.cols);
    let values = &source.values.values;
    // SAFETY: column indices are below d and row pointers inside the arrays, which `Csr` has checked; `tile` as
    // required above.
    unsafe {
        let mut turned = [V::T::ZERO; 512];
        for j in 0..nr {
            let mut sums = [V::splat(V::T::ZERO); W];
            if let Some(column) = columns.get(j) {
                for at in starts[column]..starts[column + 1] {
                    let left = V::splat(*values.get_unchecked(at));
                    let line = spread.add(*numbers.get_unchecked(at) as usize * lanes);
                    for w in 0..W {
                        sums[w] = S::step(left, V::load(line.add(w * V::N)), sums[w]);
                    }
                }
            }
            for w in 0..W {
                sums[w].store(turned.as_mut_ptr().add(j * lanes + w * V::N));
            }
        }
        for i in 0..lanes {
            for j in 0..nr {
                *tile.add(i * nr + j) = turned[j * lanes + i];
            }
        }
    }
}

/// The sums of one row with up to `NR` columns.
#[inline(always)]
fn single<T: SparseEngine, const FMA: bool>(
    source: &SparseSource<'_, T>,
    spread: &[T],
    columns: LaneColumns<'_>,
    tile: &mut [T],
) {
    let (starts, numbers) = layout(source.cols);
    for (j, sum) in tile.iter_mut().enumerate().take(T::NR) {
        *sum = T::default();
        if let Some(column) = columns.get(j) {
            let range = starts[column]..starts[column + 1];
            let stored = numbers[range.clone()].iter().zip(&source.values.values[range]);
            *sum = stored.fold(T::default(), |sum, (k, x)| T::fma::<FMA>(*x, spread[*k as usize], sum));
        }
    }
}

/// See [`EntrySource::tiles`].
///
/// # Safety
/// As documented there; also needs the instructions of `V`.
#[inline(always)]
unsafe fn tiles<V: Simd, const W: usize, const FMA: bool>(
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
    let nr = V::T::NR;
    let lanes = V::T::NR / 2;
    let d = source.cols.dims();
    let statistic = source.kernel.statistic();
    let common = !matches!(statistic, Statistic::Dot | Statistic::Lookup);
    let mut norms = [V::T::ZERO; 32];
    assert!(lanes == W * V::N && scratch.len() >= lanes * nr);
    for p in 0..run.count {
        let columns = run.columns.part(p * nr, nr);
        for (j, norm) in norms[..nr].iter_mut().enumerate() {
            *norm = columns.get(j).map_or(V::T::ZERO, |column| source.values.norms[column]);
        }
        for g in groups.clone() {
            let first = g * lanes;
            let height = lanes.min(rows.numbers.len() - first);
            if rows.lanes == 1 {
                for i in 0..height {
                    let spread = &rows.values[(first + i) * d..(first + i + 1) * d];
                    single::<V::T, FMA>(source, spread, columns, &mut scratch[i * nr..(i + 1) * nr]);
                }
            } else {
                let spread = rows.values[first * d..(first + lanes) * d].as_ptr();
                let to = scratch.as_mut_ptr();
                // SAFETY: `spread` has `lanes` values per feature, `scratch` `lanes` lines of NR.
                unsafe {
                    match statistic {
                        Statistic::SquaredDistance | Statistic::Dot | Statistic::Lookup => {
                            panel::<V, Product, W>(source, spread, columns, to);
                        }
                        Statistic::AbsoluteDistance => panel::<V, CommonPart, W>(source, spread, columns, to),
                        Statistic::ChiSquare => panel::<V, HarmonicPart, W>(source, spread, columns, to),
                    }
                }
            }
            let tile = Tile {
                height,
                sums: scratch.as_ptr(),
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
                    unsafe {
                        tiles::<std::arch::x86_64::$avx512, 1, true>(source, rows, groups, run, to, stride, scratch)
                    }
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
                    unsafe {
                        tiles::<std::arch::x86_64::$avx2, 2, true>(source, rows, groups, run, to, stride, scratch)
                    }
                }
                // SAFETY: the caller has checked that the processor supports the level.
                unsafe {
                    match source.level {
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => avx512(source, rows, groups, run, to, stride, scratch),
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 => avx2(source, rows, groups, run, to, stride, scratch),
                        _ => tiles::<$portable, 2, PORTABLE_FMA>(source, rows, groups, run, to, stride, scratch),
                    }
                }
            }
        }
    };
}

sparse_engine!(f32, Wide32, __m256, __m512);
sparse_engine!(f64, Wide64, __m256d, __m512d);
