//! Register tiles: groups of packed rows against packed panels of columns, with the kernel applied while the numbers
//! are still in the first-level cache.
//!
//! Every entry is one chain of additions over the features, split into the same pieces whichever side a point is on, so
//! K is exactly symmetric and ‖x‖², computed by the same chain, cancels exactly on the diagonal.

use super::byte_columns::ByteRun;
use super::finish::{LaneColumns, Refine, Tile, finish};
use super::math::ExpTable;
use super::pack::{GROUP, PackedRows};
use super::simd::{Level, Simd, SimdScalar, Wide32, Wide64};
use crate::kernel::{Kernel, Statistic};

/// What is summed over the features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    /// a·b
    Product,
    /// (a − b)²: twice the work of a product, but accurate for points close together and far from the origin.
    SquaredDifference,
    /// |a − b|
    AbsoluteDifference,
    /// (a − b)² / (a + b)
    ChiSquare,
}

/// Features summed in one chain. A function of `d` alone: part of the definition of an entry's bits. Short chains keep
/// single-precision rounding small and a panel's piece in the first-level cache.
pub(crate) fn chain(d: usize) -> usize {
    const LONGEST: usize = 160;
    let pieces = d.div_ceil(LONGEST).max(1);
    d.div_ceil(pieces).max(1)
}

/// Everything needed to compute tiles.
pub(crate) struct TileJob<'a, T> {
    pub(crate) kernel: Kernel,
    pub(crate) sum: Sum,
    pub(crate) refine: Option<Refine<'a>>,
    pub(crate) d: usize,
    pub(crate) rows: &'a PackedRows<T>,
}

/// A contiguous run of packed panels and their squared norms.
#[derive(Clone, Copy)]
pub(crate) struct PanelRun<'a, T> {
    /// `count` panels of `d × NR` values.
    pub(crate) values: &'a [T],
    /// `count · NR` squared norms.
    pub(crate) norms: &'a [T],
    pub(crate) count: usize,
    pub(crate) columns: LaneColumns<'a>,
    /// Instead of values, for points on a grid.
    pub(crate) bytes: ByteRun<'a>,
}

impl<T: SimdScalar> PanelRun<'_, T> {
    /// Panel `p` alone.
    pub(crate) fn panel(&self, p: usize) -> Self {
        let line = self.values.len() / self.count;
        let norms = self.norms.len() / self.count;
        Self {
            values: &self.values[p * line..(p + 1) * line],
            norms: &self.norms[p * norms..(p + 1) * norms],
            count: 1,
            columns: self.columns.part(p * T::NR, T::NR),
            bytes: self.bytes.panels(p..p + 1, self.count),
        }
    }
}

/// One step of a chain.
pub(crate) trait SumStep {
    /// # Safety
    /// Needs the instructions of `V`.
    unsafe fn step<V: Simd>(a: V, b: V, sum: V) -> V
    where
        V::T: ExpTable;
}

pub(crate) struct Product;
pub(crate) struct SquaredDifference;
struct AbsoluteDifference;
struct ChiSquare;

impl SumStep for Product {
    #[inline(always)]
    unsafe fn step<V: Simd>(a: V, b: V, sum: V) -> V {
        // SAFETY: the caller has the instructions of V.
        unsafe { a.fma(b, sum) }
    }
}
impl SumStep for SquaredDifference {
    #[inline(always)]
    unsafe fn step<V: Simd>(a: V, b: V, sum: V) -> V {
        // SAFETY: the caller has the instructions of V.
        unsafe {
            let difference = a.sub(b);
            difference.fma(difference, sum)
        }
    }
}
impl SumStep for AbsoluteDifference {
    #[inline(always)]
    unsafe fn step<V: Simd>(a: V, b: V, sum: V) -> V {
        // SAFETY: the caller has the instructions of V.
        unsafe { sum.add(a.sub(b).abs()) }
    }
}
impl SumStep for ChiSquare {
    #[inline(always)]
    unsafe fn step<V: Simd>(a: V, b: V, sum: V) -> V
    where
        V::T: ExpTable,
    {
        // SAFETY: the caller has the instructions of V. Features are ≥ 0: a + b = 0 only where a − b = 0.
        unsafe {
            let difference = a.sub(b);
            let total = a.add(b).max(V::splat(V::T::TINY));
            sum.add(difference.mul(difference).div(total))
        }
    }
}

/// `Σₖ step(a[k][i], b[k][j])` over `length` features, `M` rows by `W` vectors.
///
/// # Safety
/// Needs the instructions of `V`; `a` has `length` lines of `a_stride ≥ M`, `b` of `T::NR`.
#[inline(always)]
pub(crate) unsafe fn sums_in_registers<V: Simd, S: SumStep, const M: usize, const W: usize>(
    length: usize,
    a: *const V::T,
    a_stride: usize,
    b: *const V::T,
) -> [[V; W]; M]
where
    V::T: ExpTable,
{
    // SAFETY: see the contract above; all offsets stay inside the lines named there.
    unsafe {
        let mut sums = [[V::splat(V::T::ZERO); W]; M];
        let (mut a, mut b) = (a, b);
        for _ in 0..length {
            let mut right = [V::splat(V::T::ZERO); W];
            for w in 0..W {
                right[w] = V::load(b.add(w * V::N));
            }
            for i in 0..M {
                let left = V::splat(*a.add(i));
                for w in 0..W {
                    sums[i][w] = S::step(left, right[w], sums[i][w]);
                }
            }
            a = a.add(a_stride);
            b = b.add(V::T::NR);
        }
        sums
    }
}

/// `tile[i][j] (+)=` the sums of [`sums_in_registers`].
///
/// # Safety
/// As there; `tile` has `M` lines of `T::NR`.
#[inline(always)]
unsafe fn micro<V: Simd, S: SumStep, const M: usize, const W: usize>(
    length: usize,
    a: *const V::T,
    a_stride: usize,
    b: *const V::T,
    tile: *mut V::T,
    add: bool,
) where
    V::T: ExpTable,
{
    // SAFETY: see the contract above; all offsets stay inside the lines named there.
    unsafe {
        let sums = sums_in_registers::<V, S, M, W>(length, a, a_stride, b);
        for i in 0..M {
            for w in 0..W {
                let to = tile.add(i * V::T::NR + w * V::N);
                let sum = if add { V::load(to).add(sums[i][w]) } else { sums[i][w] };
                sum.store(to);
            }
        }
    }
}

/// A group of `height` rows with a whole panel, in as many register tiles as needed.
///
/// # Safety
/// As [`micro`], for `height` rows.
#[inline(always)]
pub(crate) unsafe fn group<V: Simd, S: SumStep>(
    height: usize,
    length: usize,
    a: *const V::T,
    b: *const V::T,
    tile: *mut V::T,
    add: bool,
) where
    V::T: ExpTable,
{
    let vectors = V::T::NR / V::N;
    let stride = height;
    // SAFETY: the parts below are inside the group, the panel and the tile.
    unsafe {
        match height {
            1 => {
                for w in (0..vectors).step_by(2) {
                    micro::<V, S, 1, 2>(length, a, stride, b.add(w * V::N), tile.add(w * V::N), add);
                }
            }
            2 => {
                for w in (0..vectors).step_by(2) {
                    micro::<V, S, 2, 2>(length, a, stride, b.add(w * V::N), tile.add(w * V::N), add);
                }
            }
            _ => {
                let mut i = 0;
                while i < height {
                    for w in (0..vectors).step_by(2) {
                        let (a, b, tile) = (a.add(i), b.add(w * V::N), tile.add(i * V::T::NR + w * V::N));
                        if V::ROWS == 8 && height == 8 {
                            micro::<V, S, 8, 2>(length, a, stride, b, tile, add);
                        } else if V::ROWS >= 4 {
                            micro::<V, S, 4, 2>(length, a, stride, b, tile, add);
                        } else {
                            micro::<V, S, 2, 2>(length, a, stride, b, tile, add);
                        }
                    }
                    i += V::ROWS.min(height);
                }
            }
        }
    }
}

/// The sums of the row groups `groups` with one panel, into `scratch`: a tile of `GROUP` lines for every group.
///
/// # Safety
/// Needs the instructions of `V`; `panel` has `d` lines of `NR`; `scratch` room for all the groups.
#[inline(always)]
pub(crate) unsafe fn sums<V: Simd, S: SumStep>(
    job: &TileJob<'_, V::T>,
    groups: std::ops::Range<usize>,
    panel: *const V::T,
    scratch: &mut [V::T],
) where
    V::T: ExpTable,
{
    let nr = V::T::NR;
    let d = job.d;
    let step = chain(d);
    let mut from = 0;
    loop {
        let until = (from + step).min(d);
        for g in groups.clone() {
            let (values, height) = job.rows.group(g);
            // SAFETY: offsets stay inside the group, the panel and the scratch, whose sizes the caller has checked.
            unsafe {
                let tile = scratch.as_mut_ptr().add((g - groups.start) * GROUP * nr);
                let (values, panel) = (values.as_ptr().add(from * height), panel.add(from * nr));
                group::<V, S>(height, until - from, values, panel, tile, from > 0);
            }
        }
        from = until;
        if from >= d {
            break;
        }
    }
}

/// Entries of the row groups `groups` against a run of panels: entry (i, j) of that block goes to `to[i·stride + j]`.
///
/// # Safety
/// Needs the instructions of `V`; `to` must have room for `NR·run.count` entries in each line of `stride`, for every
/// row of the groups; `scratch` for a panel-wide tile of all the groups.
#[inline(always)]
unsafe fn tiles<V: Simd>(
    job: &TileJob<'_, V::T>,
    groups: std::ops::Range<usize>,
    run: PanelRun<'_, V::T>,
    to: *mut V::T,
    stride: usize,
    scratch: &mut [V::T],
) where
    V::T: ExpTable,
{
    let nr = V::T::NR;
    let d = job.d;
    let rows = job.rows;
    assert!(run.values.len() >= run.count * d * nr && run.norms.len() >= run.count * nr);
    assert!(scratch.len() >= groups.len() * GROUP * nr && groups.end <= rows.groups());
    let common = job.sum == Sum::Product && job.kernel.statistic() == Statistic::SquaredDistance;
    // SAFETY: offsets stay inside the slices checked above; the caller guarantees `to`.
    unsafe {
        for p in 0..run.count {
            let panel = run.values.as_ptr().add(p * d * nr);
            match job.sum {
                Sum::Product => sums::<V, Product>(job, groups.clone(), panel, scratch),
                Sum::SquaredDifference => sums::<V, SquaredDifference>(job, groups.clone(), panel, scratch),
                Sum::AbsoluteDifference => sums::<V, AbsoluteDifference>(job, groups.clone(), panel, scratch),
                Sum::ChiSquare => sums::<V, ChiSquare>(job, groups.clone(), panel, scratch),
            }
            let first = groups.start * GROUP;
            let height = rows.len().min(groups.end * GROUP) - first;
            let tile = Tile {
                height,
                sums: scratch.as_ptr(),
                row_norms: rows.norms().as_ptr().add(first),
                norms: run.norms.as_ptr().add(p * nr),
                rows: &rows.indices()[first..first + height],
                columns: run.columns.part(p * nr, nr),
            };
            finish::<V>(job.kernel, common, job.refine, tile, to.add(p * nr), stride);
        }
    }
}

/// A scalar with entry points for every level.
pub(crate) trait Engine: ExpTable {
    /// See [`tiles`].
    ///
    /// # Safety
    /// The processor must support `level`; `to` must have room as described in [`tiles`].
    unsafe fn tiles(
        level: Level,
        job: &TileJob<'_, Self>,
        groups: std::ops::Range<usize>,
        run: PanelRun<'_, Self>,
        to: *mut Self,
        stride: usize,
        scratch: &mut [Self],
    );
}

macro_rules! engine {
    ($t:ty, $portable:ty, $avx2:ident, $avx512:ident) => {
        impl Engine for $t {
            unsafe fn tiles(
                level: Level,
                job: &TileJob<'_, $t>,
                groups: std::ops::Range<usize>,
                run: PanelRun<'_, $t>,
                to: *mut $t,
                stride: usize,
                scratch: &mut [$t],
            ) {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
                unsafe fn avx512(
                    job: &TileJob<'_, $t>,
                    groups: std::ops::Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { tiles::<std::arch::x86_64::$avx512>(job, groups, run, to, stride, scratch) }
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(
                    job: &TileJob<'_, $t>,
                    groups: std::ops::Range<usize>,
                    run: PanelRun<'_, $t>,
                    to: *mut $t,
                    stride: usize,
                    scratch: &mut [$t],
                ) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { tiles::<std::arch::x86_64::$avx2>(job, groups, run, to, stride, scratch) }
                }
                // SAFETY: the caller has checked that the processor supports `level`.
                unsafe {
                    match level {
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => avx512(job, groups, run, to, stride, scratch),
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 => avx2(job, groups, run, to, stride, scratch),
                        _ => tiles::<$portable>(job, groups, run, to, stride, scratch),
                    }
                }
            }
        }
    };
}

engine!(f32, Wide32, __m256, __m512);
engine!(f64, Wide64, __m256d, __m512d);
