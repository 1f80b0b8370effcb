//! From sums over features to kernel entries, a tile at a time.

use super::exact;
use super::math::{self, ExpTable};
use super::simd::{Simd, SimdScalar};
use crate::data::{Points, Real};
use crate::kernel::Kernel;

/// Recomputes the entries whose rounding errors are too large from the original points.
#[derive(Clone, Copy)]
pub(crate) struct Refine<'a> {
    pub(crate) again: Again,
    pub(crate) rows: &'a Points,
    pub(crate) cols: &'a Points,
}

/// Which entries are recomputed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Again {
    /// Those greater than this.
    Above(f64),
    /// Those whose product with the sum of the norms of their points is greater than `product`, and all where that sum is
    /// greater than `far`: the error of a distance is proportional to it.
    ByNorms { product: f64, far: f64 },
}

impl Again {
    /// Whether an entry is recomputed, with the operations of [`recompute`]: which other entries are in the same vector
    /// must not matter.
    pub(crate) fn is_needed<T: SimdScalar>(self, entry: T, norms: T) -> bool {
        match self {
            Again::Above(above) => entry > T::from_f64(above),
            Again::ByNorms { product, far } => {
                T::fma::<false>(entry, norms, T::default()) > T::from_f64(product) || norms > T::from_f64(far)
            }
        }
    }
}

/// The columns that the lanes of a run of panels correspond to.
#[derive(Clone, Copy)]
pub(crate) enum LaneColumns<'a> {
    /// `first`, `first + 1`, …: `count` of them.
    From { first: usize, count: usize },
    /// The listed columns.
    List(&'a [u32]),
}

impl LaneColumns<'_> {
    /// The column in `lane`; `None` for padding.
    #[inline(always)]
    pub(crate) fn get(&self, lane: usize) -> Option<usize> {
        match self {
            LaneColumns::From { first, count } => (lane < *count).then_some(first + lane),
            LaneColumns::List(list) => list.get(lane).map(|c| *c as usize),
        }
    }

    /// At most `width` lanes starting at `lane`.
    pub(crate) fn part(&self, lane: usize, width: usize) -> Self {
        match *self {
            LaneColumns::From { first, count } => {
                LaneColumns::From { first: first + lane, count: count.saturating_sub(lane).min(width) }
            }
            LaneColumns::List(list) => LaneColumns::List(&list[lane.min(list.len())..(lane + width).min(list.len())]),
        }
    }
}

/// A tile of sums: `height` lines of `NR`, with the norms of its rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a, T> {
    pub(crate) height: usize,
    pub(crate) sums: *const T,
    /// ‖x‖² of each row, if the kernel needs them (‖x‖₁ if the sum is of common parts).
    pub(crate) row_norms: *const T,
    /// The same for each column, `NR` of them.
    pub(crate) norms: *const T,
    /// Indices of the rows.
    pub(crate) rows: &'a [u32],
    pub(crate) columns: LaneColumns<'a>,
}

/// A function of sums of a row and the norms of the row and columns, for several vectors in step. A trait rather than closures, because methods can be
/// forced to inline, which compiles them with the caller's target features.
trait Map<V: Simd>: Copy {
    /// # Safety
    /// Needs the instructions of `V`.
    unsafe fn map<const K: usize>(self, sums: [V; K], row: V, columns: [V; K]) -> [V; K];
}

/// The sum itself.
#[derive(Clone, Copy)]
struct Plain;
/// (γ·s + c)^degree
#[derive(Clone, Copy)]
struct PowerMap<V> {
    gamma: V,
    coef0: V,
    degree: u32,
}
/// tanh(γ·s + c)
#[derive(Clone, Copy)]
struct Tanh<V> {
    gamma: V,
    coef0: V,
}
/// exp(γ·distance), γ < 0
#[derive(Clone, Copy)]
struct Exponential<V, const COMMON: bool>(V);
/// (1 + t)·exp(−t), t² = scale·distance
#[derive(Clone, Copy)]
struct Matern3<V, const COMMON: bool>(V);
/// (1 + t + t²/3)·exp(−t), t² = scale·distance
#[derive(Clone, Copy)]
struct Matern5<V, const COMMON: bool>(V);

/// The distance, computed from what two points have in common if `COMMON`. The sum of norms is the same in either
/// order.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn distance<V: Simd, const COMMON: bool>(sum: V, row: V, column: V) -> V
where
    V::T: ExpTable,
{
    // SAFETY: the caller has the instructions of V.
    unsafe {
        match COMMON {
            true => sum.fma(V::splat(V::T::MINUS_TWO), row.add(column)).max(V::splat(V::T::ZERO)),
            false => sum,
        }
    }
}

/// The distances of a row and columns.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn distances<V: Simd, const COMMON: bool, const K: usize>(sums: [V; K], row: V, columns: [V; K]) -> [V; K]
where
    V::T: ExpTable,
{
    let mut all = sums;
    for k in 0..K {
        // SAFETY: the caller has the instructions of V.
        all[k] = unsafe { distance::<V, COMMON>(sums[k], row, columns[k]) };
    }
    all
}

impl<V: Simd> Map<V> for Plain {
    #[inline(always)]
    unsafe fn map<const K: usize>(self, sums: [V; K], _row: V, _columns: [V; K]) -> [V; K] {
        sums
    }
}

impl<V: Simd> Map<V> for PowerMap<V> {
    #[inline(always)]
    unsafe fn map<const K: usize>(self, mut sums: [V; K], _row: V, _columns: [V; K]) -> [V; K] {
        for sum in &mut sums {
            // SAFETY: the caller has the instructions of V.
            *sum = unsafe { math::powi(sum.fma(self.gamma, self.coef0), self.degree) };
        }
        sums
    }
}

impl<V: Simd> Map<V> for Tanh<V>
where
    V::T: ExpTable,
{
    #[inline(always)]
    unsafe fn map<const K: usize>(self, mut sums: [V; K], _row: V, _columns: [V; K]) -> [V; K] {
        for sum in &mut sums {
            // SAFETY: the caller has the instructions of V.
            *sum = unsafe { math::tanh(sum.fma(self.gamma, self.coef0)) };
        }
        sums
    }
}

impl<V: Simd, const COMMON: bool> Map<V> for Exponential<V, COMMON>
where
    V::T: ExpTable,
{
    #[inline(always)]
    unsafe fn map<const K: usize>(self, sums: [V; K], row: V, columns: [V; K]) -> [V; K] {
        // SAFETY: the caller has the instructions of V.
        unsafe {
            let mut far = distances::<V, COMMON, K>(sums, row, columns);
            for far in &mut far {
                *far = far.mul(self.0);
            }
            math::exp(far)
        }
    }
}

impl<V: Simd, const COMMON: bool> Map<V> for Matern3<V, COMMON>
where
    V::T: ExpTable,
{
    #[inline(always)]
    unsafe fn map<const K: usize>(self, sums: [V; K], row: V, columns: [V; K]) -> [V; K] {
        // SAFETY: the caller has the instructions of V.
        unsafe {
            let mut t = distances::<V, COMMON, K>(sums, row, columns);
            let mut e = t;
            for k in 0..K {
                t[k] = t[k].mul(self.0).sqrt();
                e[k] = V::splat(V::T::ZERO).sub(t[k]);
            }
            let mut e = math::exp(e);
            for k in 0..K {
                e[k] = t[k].fma(e[k], e[k]);
            }
            e
        }
    }
}

impl<V: Simd, const COMMON: bool> Map<V> for Matern5<V, COMMON>
where
    V::T: ExpTable,
{
    #[inline(always)]
    unsafe fn map<const K: usize>(self, sums: [V; K], row: V, columns: [V; K]) -> [V; K] {
        // SAFETY: the caller has the instructions of V.
        unsafe {
            let mut t = distances::<V, COMMON, K>(sums, row, columns);
            let mut e = t;
            for k in 0..K {
                t[k] = t[k].mul(self.0).sqrt();
                e[k] = V::splat(V::T::ZERO).sub(t[k]);
            }
            let mut e = math::exp(e);
            for k in 0..K {
                let sum = t[k].fma(t[k].mul(V::splat(V::T::THIRD)), t[k].add(V::splat(V::T::ONE)));
                e[k] = sum.mul(e[k]);
            }
            e
        }
    }
}

/// Applies a function to a tile and writes it to `to`.
///
/// # Safety
/// Needs the instructions of `V`; the tile's pointers must be valid as its fields describe, and `to` must have `height`
/// lines of `stride` with room for `NR`.
#[inline(always)]
unsafe fn each<V: Simd>(tile: Tile<'_, V::T>, to: *mut V::T, stride: usize, f: impl Map<V>) {
    // SAFETY: see the contract above.
    unsafe {
        // A panel is two vectors wide, or four.
        for i in 0..tile.height {
            let row = V::splat(*tile.row_norms.add(i));
            for w in (0..V::T::NR / V::N).step_by(2) {
                let (from, at) = (tile.sums.add(i * V::T::NR + w * V::N), tile.norms.add(w * V::N));
                let sums = [V::load(from), V::load(from.add(V::N))];
                let [first, second] = f.map(sums, row, [V::load(at), V::load(at.add(V::N))]);
                let to = to.add(i * stride + w * V::N);
                first.store(to);
                second.store(to.add(V::N));
            }
        }
    }
}

/// The same number in every lane.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn splat<V: Simd>(value: f64) -> V {
    // SAFETY: the caller has the instructions of V.
    unsafe { V::splat(V::T::from_f64(value)) }
}

/// The kernel as a function of the sum over features; `common` means that the sum is over what two points have in
/// common, so that a distance is ‖x‖ + ‖x′‖ − 2·sum. It is a value rather than a type parameter: this function is
/// inlined once per instruction set and scalar; inlining it once per kind of sum as well made tiles more than a fifth
/// of the engine's machine code.
///
/// # Safety
/// As [`each`].
#[inline(always)]
pub(crate) unsafe fn finish<V: Simd>(
    kernel: Kernel,
    common: bool,
    refine: Option<Refine<'_>>,
    tile: Tile<'_, V::T>,
    to: *mut V::T,
    stride: usize,
) where
    V::T: ExpTable,
{
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (kernel, common) {
            (Kernel::Linear | Kernel::Precomputed, _) => each::<V>(tile, to, stride, Plain),
            (Kernel::Poly { gamma, coef0, degree }, _) => {
                each(tile, to, stride, PowerMap::<V> { gamma: splat(gamma), coef0: splat(coef0), degree });
            }
            (Kernel::Sigmoid { gamma, coef0 }, _) => {
                each(tile, to, stride, Tanh::<V> { gamma: splat(gamma), coef0: splat(coef0) });
            }
            (Kernel::Rbf { gamma } | Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma }, true) => {
                each(tile, to, stride, Exponential::<V, true>(splat(-gamma)));
            }
            (Kernel::Rbf { gamma } | Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma }, false) => {
                each(tile, to, stride, Exponential::<V, false>(splat(-gamma)));
            }
            (Kernel::Matern32 { gamma }, true) => each(tile, to, stride, Matern3::<V, true>(splat(6.0 * gamma))),
            (Kernel::Matern32 { gamma }, false) => each(tile, to, stride, Matern3::<V, false>(splat(6.0 * gamma))),
            (Kernel::Matern52 { gamma }, true) => each(tile, to, stride, Matern5::<V, true>(splat(10.0 * gamma))),
            (Kernel::Matern52 { gamma }, false) => each(tile, to, stride, Matern5::<V, false>(splat(10.0 * gamma))),
        }
        if let Some(refine) = refine {
            for i in 0..tile.height {
                let row = (tile.rows[i] as usize, V::splat(*tile.row_norms.add(i)));
                for w in 0..V::T::NR / V::N {
                    let at = to.add(i * stride + w * V::N);
                    let columns = (tile.columns.part(w * V::N, V::N), V::load(tile.norms.add(w * V::N)));
                    recompute(kernel, refine, row, columns, V::load(at)).store(at);
                }
            }
        }
    }
}

/// A vector of entries of one row, given with its norm, and of columns with theirs; those that need it are recomputed.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn recompute<V: Simd>(
    kernel: Kernel,
    refine: Refine<'_>,
    (row, row_norm): (usize, V),
    (columns, norms): (LaneColumns<'_>, V),
    entries: V,
) -> V {
    /// Scalars of the widest vector.
    const WIDEST: usize = 16;
    // SAFETY: the caller has the instructions of V; the arrays are at least a vector long.
    unsafe {
        let norms = row_norm.add(norms);
        let needed = match refine.again {
            Again::Above(above) => entries.any_above(V::splat(V::T::from_f64(above))),
            Again::ByNorms { product, far } => {
                entries.mul(norms).any_above(V::splat(V::T::from_f64(product)))
                    || norms.any_above(V::splat(V::T::from_f64(far)))
            }
        };
        if !needed {
            return entries;
        }
        let (mut values, mut sizes) = ([V::T::default(); WIDEST], [V::T::default(); WIDEST]);
        entries.store(values.as_mut_ptr());
        norms.store(sizes.as_mut_ptr());
        recompute_lanes(kernel, refine, row, columns, &mut values[..V::N], &sizes[..V::N]);
        V::load(values.as_ptr())
    }
}

#[inline(never)]
fn recompute_lanes<T: SimdScalar>(
    kernel: Kernel,
    refine: Refine<'_>,
    row: usize,
    columns: LaneColumns<'_>,
    entries: &mut [T],
    norms: &[T],
) {
    for (lane, (entry, norms)) in entries.iter_mut().zip(norms).enumerate() {
        if refine.again.is_needed(*entry, *norms)
            && let Some(column) = columns.get(lane)
        {
            let statistic = exact::statistic(kernel.statistic(), refine.rows, row, refine.cols, column);
            *entry = T::from_f64(kernel.of_statistic(statistic));
        }
    }
}
