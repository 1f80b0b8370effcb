//! Register tiles of measurements and whole numbers together.

use std::ops::Range;

use super::byte_columns::ByteRun;
use super::byte_tiles::WholeSums;
use super::bytes::NumberJob;
use super::finish::{Tile, finish};
use super::fused::{self, Addend, Dots};
use super::math::ExpTable;
use super::pack::GROUP;
use super::simd::{Simd, SimdScalar};
use super::tile::{PanelRun, Product, SquaredDifference, Sum, TileJob, sums};
use crate::data::Real;

/// What Σ(k − k′)² is multiplied with before it is added to a sum over measurements, from which the distance follows as
/// ‖x‖² + ‖x′‖² − 2·sum, or as the sum itself.
fn share<T: Real>(sum: Sum, square: f64) -> T {
    T::from_f64(if sum == Sum::Product { -0.5 * square } else { square })
}

/// The part of whole numbers in the sums of measurements.
struct Shared<'a, V, N> {
    whole: N,
    share: V,
    job: std::marker::PhantomData<&'a NumberJob<'a>>,
}

impl<'a, V: Simd, N: WholeSums<'a, V>> Addend<V> for Shared<'a, V, N> {
    const PANELS: usize = N::PANELS;
    type Group = N::Group;
    #[inline(always)]
    unsafe fn prepare(&mut self, groups: usize, panels: ByteRun<'_>) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.whole.prepare(0..groups, panels) }
    }
    #[inline(always)]
    unsafe fn group(&self, g: usize, p: usize, panel: ByteRun<'_>) -> Self::Group {
        // SAFETY: guaranteed by the caller.
        unsafe { self.whole.group(g, GROUP, p, panel) }
    }
    #[inline(always)]
    unsafe fn add(&self, group: &Self::Group, i: usize, at: usize, sum: V) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { N::get(group, i, at).fma(self.share, sum) }
    }
}

/// See `EntrySource::tiles`.
///
/// # Safety
/// As documented there; also needs the instructions of `N` and `V`, and numbers packed for them.
#[inline(always)]
pub(super) unsafe fn tiles<'a, V: Simd, N: WholeSums<'a, V>>(
    job: &TileJob<'_, V::T>,
    numbers: &'a NumberJob<'a>,
    groups: Range<usize>,
    run: PanelRun<'_, V::T>,
    to: *mut V::T,
    stride: usize,
    scratch: &mut [V::T],
) where
    V::T: ExpTable,
{
    let (nr, d, rows) = (V::T::NR, job.d, job.rows);
    assert!(scratch.len() >= groups.len() * GROUP * nr && groups.end <= rows.groups());
    assert!(run.values.len() >= run.count * d * nr && run.norms.len() >= run.count * nr);
    numbers.check(groups.end, run.bytes, run.count * nr);
    let mut whole = N::new(numbers);
    // SAFETY: offsets stay inside the slices checked above; the caller guarantees `to`.
    unsafe {
        let share = V::splat(share(job.sum, numbers.square));
        for p in 0..run.count {
            if p % N::PANELS == 0 {
                whole.prepare(groups.clone(), run.bytes.panels(p..(p + N::PANELS).min(run.count), run.count));
            }
            let panel = run.values.as_ptr().add(p * d * nr);
            match job.sum {
                Sum::Product => sums::<V, Product>(job, groups.clone(), panel, scratch),
                Sum::SquaredDifference => sums::<V, SquaredDifference>(job, groups.clone(), panel, scratch),
                _ => unreachable!("squared distances have no other sums"),
            }
            let bytes = run.bytes.panels(p..p + 1, run.count);
            let first = groups.start * GROUP;
            let height = rows.len().min(groups.end * GROUP) - first;
            for g in groups.clone() {
                let left = GROUP.min(rows.len() - g * GROUP);
                let group = whole.group(g, left, p % N::PANELS, bytes);
                let tile = scratch.as_mut_ptr().add((g - groups.start) * GROUP * nr);
                for i in 0..left {
                    for at in 0..nr / V::N {
                        let to = tile.add(i * nr + at * V::N);
                        N::get(&group, i, at).fma(share, V::load(to)).store(to);
                    }
                }
            }
            let tile = Tile {
                height,
                sums: scratch.as_ptr(),
                row_norms: rows.norms().as_ptr().add(first),
                norms: run.norms.as_ptr().add(p * nr),
                rows: &rows.indices()[first..first + height],
                columns: run.columns.part(p * nr, nr),
            };
            finish::<V>(job.kernel, job.sum == Sum::Product, job.refine, tile, to.add(p * nr), stride);
        }
    }
}

/// See `EntrySource::add_dots`.
///
/// # Safety
/// As [`tiles`]; the job fits (see `fused::fits`).
#[inline(always)]
pub(super) unsafe fn dots<'a, V: Simd, N: WholeSums<'a, V>>(
    job: &TileJob<'_, V::T>,
    numbers: &'a NumberJob<'a>,
    groups: usize,
    run: PanelRun<'_, V::T>,
    dots: Dots<'_, V::T>,
) where
    V::T: ExpTable,
{
    numbers.check(groups, run.bytes, run.count * V::T::NR);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let share = V::splat(share(job.sum, numbers.square));
        let addend = Shared { whole: N::new(numbers), share, job: std::marker::PhantomData };
        fused::add_dots_of_job::<V, _>(job, addend, groups, run, dots);
    }
}
