//! Register tiles of bytes, on processors with AVX-512 VNNI.

use std::arch::x86_64::*;
use std::ops::Range;

use super::bytes::{ByteRows, ByteSource, LINE, Line};
use super::finish::{Tile, finish};
use super::fused::{self, Dots, MOST_VECTORS};
use super::math::{self, ExpTable};
use super::pack::GROUP;
use super::simd::{Simd, SimdScalar};
use super::tile::PanelRun;
use crate::data::Real;
use crate::kernel::Kernel;

/// A vector that whole numbers convert to.
pub(super) trait FromInts: Simd {
    /// Numbers `part·N ..` of sixteen.
    ///
    /// # Safety
    /// Needs the instructions of the vector.
    unsafe fn from_ints(ints: __m512i, part: usize) -> Self;
}

impl FromInts for __m512 {
    #[inline(always)]
    unsafe fn from_ints(ints: __m512i, _part: usize) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm512_cvtepi32_ps(ints) }
    }
}

impl FromInts for __m512d {
    #[inline(always)]
    unsafe fn from_ints(ints: __m512i, part: usize) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe {
            match part {
                0 => _mm512_cvtepi32_pd(_mm512_castsi512_si256(ints)),
                _ => _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64::<1>(ints)),
            }
        }
    }
}

/// Σ(k − k′)² of `M` rows of a group with `W` lines of columns.
///
/// # Safety
/// Needs the instruction; `rows` has `quads` lines of `GROUP` words, `columns` `W·quads` lines and `terms` `W` times
/// as many as a line.
#[inline(always)]
pub(super) unsafe fn distances<const M: usize, const W: usize>(
    quads: usize,
    rows: *const u32,
    row_terms: *const i32,
    columns: *const Line,
    terms: *const i32,
) -> [[__m512i; W]; M] {
    // SAFETY: see the contract above.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); W]; M];
        for q in 0..quads {
            let mut right = [_mm512_setzero_si512(); W];
            for w in 0..W {
                right[w] = _mm512_load_si512(columns.add(w * quads + q).cast());
            }
            for i in 0..M {
                let left = _mm512_set1_epi32(rows.add(q * GROUP + i).read() as i32);
                for w in 0..W {
                    sums[i][w] = _mm512_dpbusd_epi32(sums[i][w], left, right[w]);
                }
            }
        }
        for i in 0..M {
            for w in 0..W {
                let own = _mm512_add_epi32(
                    _mm512_set1_epi32(*row_terms.add(i)),
                    _mm512_loadu_si512(terms.add(w * LINE).cast()),
                );
                sums[i][w] = _mm512_sub_epi32(own, _mm512_slli_epi32::<1>(sums[i][w]));
            }
        }
        sums
    }
}

/// See `EntrySource::tiles`.
///
/// # Safety
/// As documented there; also needs the instructions.
#[inline(always)]
pub(super) unsafe fn tiles<V: FromInts, const W: usize>(
    source: &ByteSource<'_, V::T>,
    rows: &ByteRows,
    groups: Range<usize>,
    run: PanelRun<'_, V::T>,
    to: *mut V::T,
    stride: usize,
    scratch: &mut [V::T],
) where
    V::T: ExpTable,
{
    let (nr, quads) = (V::T::NR, source.cols.quads);
    let none = [V::T::ZERO; 32];
    assert!(W * LINE == nr && scratch.len() >= GROUP * nr && groups.end * GROUP <= rows.terms.len());
    assert!(run.bytes.lines.len() >= run.count * W * quads && run.bytes.terms.len() >= run.count * nr);
    assert!(rows.words.len() >= groups.end * GROUP * quads);
    // SAFETY: offsets stay inside the slices checked above; the caller guarantees `to`.
    unsafe {
        for p in 0..run.count {
            let columns = run.bytes.lines.as_ptr().add(p * W * quads);
            let terms = run.bytes.terms.as_ptr().add(p * nr);
            for g in groups.clone() {
                let first = g * GROUP;
                let height = GROUP.min(rows.count - first);
                let (own, own_terms) = (rows.words.as_ptr().add(first * quads), rows.terms.as_ptr().add(first));
                let at = scratch.as_mut_ptr();
                if height <= 2 {
                    put::<V, 2, W>(distances::<2, W>(quads, own, own_terms, columns, terms), at);
                } else {
                    put::<V, 8, W>(distances::<8, W>(quads, own, own_terms, columns, terms), at);
                }
                let tile = Tile {
                    height,
                    sums: scratch.as_ptr(),
                    row_norms: none.as_ptr(),
                    norms: none.as_ptr(),
                    rows: &[],
                    columns: run.columns,
                };
                let to = to.add((g - groups.start) * GROUP * stride + p * nr);
                finish::<V>(source.kernel, false, None, tile, to, stride);
            }
        }
    }
}

/// Writes whole numbers as scalars, lines of `NR`.
///
/// # Safety
/// Needs the instructions; `to` has `M` lines.
#[inline(always)]
unsafe fn put<V: FromInts, const M: usize, const W: usize>(ints: [[__m512i; W]; M], to: *mut V::T) {
    // SAFETY: see the contract above.
    unsafe {
        for i in 0..M {
            for w in 0..W {
                for part in 0..LINE / V::N {
                    let to = to.add(i * V::T::NR + w * LINE + part * V::N);
                    V::from_ints(ints[i][w], part).store(to);
                }
            }
        }
    }
}

/// See `EntrySource::add_dots`.
///
/// # Safety
/// Needs the instructions.
#[inline(always)]
pub(super) unsafe fn dots<V: FromInts, const W: usize>(
    source: &ByteSource<'_, V::T>,
    rows: &ByteRows,
    groups: usize,
    run: PanelRun<'_, V::T>,
    dots: Dots<'_, V::T>,
) where
    V::T: ExpTable,
{
    let Kernel::Rbf { gamma } = source.kernel else { unreachable!("only RBF kernels are fused") };
    let (nr, quads, lanes) = (V::T::NR, source.cols.quads, fused::lanes::<V::T>());
    let Dots { weights, sums, mut mirror } = dots;
    assert!(W * LINE == nr && groups * GROUP <= rows.terms.len() && V::N <= lanes);
    assert!(run.bytes.lines.len() >= run.count * W * quads && run.bytes.terms.len() >= run.count * nr);
    assert!(rows.words.len() >= groups * GROUP * quads && weights.len() >= run.count * nr);
    assert!(sums.len() >= groups * GROUP * lanes);
    assert!(mirror.as_ref().is_none_or(|mirror| mirror.row_weights.len() >= groups * GROUP));
    // SAFETY: offsets stay inside the slices checked above.
    unsafe {
        let gamma = V::splat(V::T::from_f64(-gamma));
        for p in 0..run.count {
            let columns = run.bytes.lines.as_ptr().add(p * W * quads);
            let terms = run.bytes.terms.as_ptr().add(p * nr);
            let weights = weights.as_ptr().add(p * nr);
            let mut mirrored = [V::splat(V::T::ZERO); MOST_VECTORS];
            for g in 0..groups {
                let first = g * GROUP;
                let (own, own_terms) = (rows.words.as_ptr().add(first * quads), rows.terms.as_ptr().add(first));
                let ints = distances::<8, W>(quads, own, own_terms, columns, terms);
                for i in 0..GROUP {
                    let sum = sums.as_mut_ptr().add((first + i) * lanes);
                    let mut total = V::load(sum);
                    let row_weight = mirror.as_ref().map(|mirror| V::splat(mirror.row_weights[first + i]));
                    for w in 0..W {
                        for part in 0..LINE / V::N {
                            let e = math::exp(V::from_ints(ints[i][w], part).mul(gamma));
                            let at = w * LINE / V::N + part;
                            total = e.fma(V::load(weights.add(at * V::N)), total);
                            if let Some(row_weight) = row_weight {
                                mirrored[at] = e.fma(row_weight, mirrored[at]);
                            }
                        }
                    }
                    total.store(sum);
                }
                if let Some(mirror) = &mut mirror {
                    mirror.flush(g, groups, p, &mut mirrored);
                }
            }
        }
    }
}
