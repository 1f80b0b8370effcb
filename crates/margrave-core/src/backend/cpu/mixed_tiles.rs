//! Register tiles of measurements and bytes together, on processors with AVX-512 VNNI.

use std::ops::Range;

use super::byte_tiles::{FromInts, distances};
use super::bytes::LINE;
use super::finish::{Tile, distance, finish, recompute};
use super::fused::{self, Dots, MOST_VECTORS};
use super::math::{self, ExpTable};
use super::mixed::NumberJob;
use super::pack::GROUP;
use super::simd::SimdScalar;
use super::tile::{PanelRun, Product, SquaredDifference, Sum, SumStep, TileJob, chain, group, sums, sums_in_registers};
use crate::data::Real;
use crate::kernel::Kernel;

/// What Σ(k − k′)² is multiplied with before it is added to a sum over measurements, from which the distance follows as
/// ‖x‖² + ‖x′‖² − 2·sum, or as the sum itself.
fn share<T: Real>(sum: Sum, square: f64) -> T {
    T::from_f64(if sum == Sum::Product { -0.5 * square } else { square })
}

/// See `EntrySource::tiles`.
///
/// # Safety
/// As documented there; also needs the instructions.
#[inline(always)]
pub(super) unsafe fn tiles<V: FromInts, const W: usize>(
    job: &TileJob<'_, V::T>,
    numbers: &NumberJob<'_>,
    groups: Range<usize>,
    run: PanelRun<'_, V::T>,
    to: *mut V::T,
    stride: usize,
    scratch: &mut [V::T],
) where
    V::T: ExpTable,
{
    let (nr, d, quads, rows) = (V::T::NR, job.d, numbers.quads, job.rows);
    assert!(W * LINE == nr && scratch.len() >= groups.len() * GROUP * nr && groups.end <= rows.groups());
    assert!(run.values.len() >= run.count * d * nr && run.norms.len() >= run.count * nr);
    assert!(run.bytes.lines.len() >= run.count * W * quads && run.bytes.terms.len() >= run.count * nr);
    assert!(numbers.rows.words.len() >= groups.end * GROUP * quads && numbers.rows.terms.len() >= groups.end * GROUP);
    // SAFETY: offsets stay inside the slices checked above; the caller guarantees `to`.
    unsafe {
        let share = V::splat(share(job.sum, numbers.square));
        for p in 0..run.count {
            let panel = run.values.as_ptr().add(p * d * nr);
            match job.sum {
                Sum::Product => sums::<V, Product>(job, groups.clone(), panel, scratch),
                Sum::SquaredDifference => sums::<V, SquaredDifference>(job, groups.clone(), panel, scratch),
                _ => unreachable!("squared distances have no other sums"),
            }
            let columns = run.bytes.lines.as_ptr().add(p * W * quads);
            let terms = run.bytes.terms.as_ptr().add(p * nr);
            let first = groups.start * GROUP;
            let height = rows.len().min(groups.end * GROUP) - first;
            for g in groups.clone() {
                let (own, own_terms) =
                    (numbers.rows.words.as_ptr().add(g * GROUP * quads), numbers.rows.terms.as_ptr().add(g * GROUP));
                let tile = scratch.as_mut_ptr().add((g - groups.start) * GROUP * nr);
                let left = GROUP.min(rows.len() - g * GROUP);
                if left <= 2 {
                    let ints = distances::<2, W>(quads, own, own_terms, columns, terms);
                    for i in 0..left {
                        add::<V, W>(&ints[i], share, tile.add(i * nr));
                    }
                } else {
                    let ints = distances::<8, W>(quads, own, own_terms, columns, terms);
                    for i in 0..left {
                        add::<V, W>(&ints[i], share, tile.add(i * nr));
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

/// Adds a line of whole numbers, times `share`, to sums.
///
/// # Safety
/// Needs the instructions; `to` has a line of `NR`.
#[inline(always)]
unsafe fn add<V: FromInts, const W: usize>(ints: &[std::arch::x86_64::__m512i; W], share: V, to: *mut V::T) {
    // SAFETY: see the contract above.
    unsafe {
        for w in 0..W {
            for part in 0..LINE / V::N {
                let to = to.add(w * LINE + part * V::N);
                V::from_ints(ints[w], part).fma(share, V::load(to)).store(to);
            }
        }
    }
}

/// See `EntrySource::add_dots`.
///
/// # Safety
/// Needs the instructions; the job fits (see `fused::fits`).
#[inline(always)]
pub(super) unsafe fn dots<V: FromInts, const W: usize>(
    job: &TileJob<'_, V::T>,
    numbers: &NumberJob<'_>,
    groups: usize,
    run: PanelRun<'_, V::T>,
    dots: Dots<'_, V::T>,
) where
    V::T: ExpTable,
{
    // SAFETY: guaranteed by the caller.
    unsafe {
        match job.sum {
            Sum::Product => add_dots::<V, Product, true, W>(job, numbers, groups, run, dots),
            Sum::SquaredDifference => add_dots::<V, SquaredDifference, false, W>(job, numbers, groups, run, dots),
            _ => unreachable!("other sums are not fused"),
        }
    }
}

/// As in `fused.rs`, with the sums of bytes added.
///
/// # Safety
/// As [`dots`].
#[inline(always)]
unsafe fn add_dots<V: FromInts, S: SumStep, const COMMON: bool, const W: usize>(
    job: &TileJob<'_, V::T>,
    numbers: &NumberJob<'_>,
    groups: usize,
    run: PanelRun<'_, V::T>,
    dots: Dots<'_, V::T>,
) where
    V::T: ExpTable,
{
    let Kernel::Rbf { gamma } = job.kernel else { unreachable!("only RBF kernels are fused") };
    let (nr, d, quads, rows, lanes) = (V::T::NR, job.d, numbers.quads, job.rows, fused::lanes::<V::T>());
    let Dots { weights, sums, mut mirror } = dots;
    assert!(W * LINE == nr && nr == 2 * V::N && 2 <= MOST_VECTORS && V::N <= lanes);
    assert!(run.values.len() >= run.count * d * nr && run.norms.len() >= run.count * nr);
    assert!(run.bytes.lines.len() >= run.count * W * quads && run.bytes.terms.len() >= run.count * nr);
    assert!(numbers.rows.words.len() >= groups * GROUP * quads && numbers.rows.terms.len() >= groups * GROUP);
    assert!(weights.len() >= run.count * nr && sums.len() >= groups * GROUP * lanes && groups * GROUP <= rows.len());
    assert!(mirror.as_ref().is_none_or(|mirror| mirror.row_weights.len() >= groups * GROUP));
    // SAFETY: offsets stay inside the slices checked above.
    unsafe {
        let gamma = V::splat(V::T::from_f64(-gamma));
        let share = V::splat(share(job.sum, numbers.square));
        // All chains but the last one are added up in memory, as in `tile.rs`.
        let last = (d.max(1) - 1) / chain(d) * chain(d);
        let mut before = vec![V::T::ZERO; if last > 0 { groups * GROUP * nr } else { 0 }];
        for p in 0..run.count {
            let panel = run.values.as_ptr().add(p * d * nr);
            for from in (0..last).step_by(chain(d)) {
                for g in 0..groups {
                    let (values, tile) = (rows.group(g).0.as_ptr(), before.as_mut_ptr().add(g * GROUP * nr));
                    let (values, panel) = (values.add(from * GROUP), panel.add(from * nr));
                    group::<V, S>(GROUP, chain(d), values, panel, tile, from > 0);
                }
            }
            let columns = run.bytes.lines.as_ptr().add(p * W * quads);
            let terms = run.bytes.terms.as_ptr().add(p * nr);
            let at = p * nr;
            let norms = [V::load(run.norms.as_ptr().add(at)), V::load(run.norms.as_ptr().add(at + V::N))];
            let v = [V::load(weights.as_ptr().add(at)), V::load(weights.as_ptr().add(at + V::N))];
            let mut mirrored = [V::splat(V::T::ZERO); MOST_VECTORS];
            for g in 0..groups {
                let (own, own_terms) =
                    (numbers.rows.words.as_ptr().add(g * GROUP * quads), numbers.rows.terms.as_ptr().add(g * GROUP));
                let ints = distances::<GROUP, W>(quads, own, own_terms, columns, terms);
                let values = rows.group(g).0.as_ptr().add(last * GROUP);
                let tile = sums_in_registers::<V, S, GROUP, 2>(d - last, values, GROUP, panel.add(last * nr));
                for r in 0..GROUP {
                    let row = g * GROUP + r;
                    let norm = V::splat(*rows.norms().get_unchecked(row));
                    let mut e = [norm; 2];
                    for half in 0..2 {
                        let mut sum = tile[r][half];
                        if last > 0 {
                            sum = V::load(before.as_ptr().add(row * nr + half * V::N)).add(sum);
                        }
                        let lane = half * V::N;
                        sum = V::from_ints(ints[r][lane / LINE], lane % LINE / V::N).fma(share, sum);
                        let far = distance::<V, COMMON>(sum, norm, norms[half]);
                        e[half] = math::exp(far.mul(gamma));
                        if let Some(refine) = job.refine {
                            let columns = run.columns.part(at + lane, V::N);
                            let number = rows.indices()[row] as usize;
                            e[half] = recompute(job.kernel, refine, (number, norm), (columns, norms[half]), e[half]);
                        }
                    }
                    let sum = sums.as_mut_ptr().add(row * lanes);
                    e[1].fma(v[1], e[0].fma(v[0], V::load(sum))).store(sum);
                    if let Some(mirror) = &mirror {
                        let row_weight = V::splat(*mirror.row_weights.get_unchecked(row));
                        for half in 0..2 {
                            mirrored[half] = e[half].fma(row_weight, mirrored[half]);
                        }
                    }
                }
                if let Some(mirror) = &mut mirror {
                    mirror.flush(g, groups, p, &mut mirrored);
                }
            }
        }
    }
}
