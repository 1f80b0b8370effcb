//! Register tiles of whole numbers.
//!
//! With AVX-512 VNNI one instruction multiplies and adds four bytes per lane. With AVX2 it takes two instructions: rows are
//! lists of their words that are not zero, so that pixels, counts and indicators, most of which are zero, cost what is there.

use std::arch::x86_64::*;
use std::ops::Range;

use super::byte_columns::ByteRun;
use super::bytes::{ByteRows, LINE, Line, NumberJob, Packing, Word};
use super::finish::{LaneColumns, Tile, finish};
use super::fused::{self, Dots, MOST_VECTORS};
use super::math::{self, ExpTable};
use super::pack::GROUP;
use super::simd::{Simd, SimdScalar};
use super::tile::PanelRun;
use crate::data::Real;
use crate::kernel::Kernel;

/// Σ(k − k′)² of rows with panels of columns.
///
/// # Safety
/// Methods need the instructions of the implementation and of `V`, and rows and columns packed for them, as many as named.
pub(super) trait WholeSums<'a, V: Simd> {
    /// Panels that are prepared at once.
    const PANELS: usize;
    /// The sums of one group of rows with one panel.
    type Group;
    fn new(job: &'a NumberJob<'a>) -> Self;
    /// Turns to these groups of rows and panels, of which there are at most [`Self::PANELS`].
    unsafe fn prepare(&mut self, groups: Range<usize>, panels: ByteRun<'_>);
    /// Group `g` with a panel, number `p` of those prepared; `height` of its rows are wanted.
    unsafe fn group(&self, g: usize, height: usize, p: usize, panel: ByteRun<'_>) -> Self::Group;
    /// Vector `at` of row `i`.
    unsafe fn get(group: &Self::Group, i: usize, at: usize) -> V;
}

/// A vector that sixteen whole numbers convert to.
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

/// Sums with AVX-512 VNNI, for panels of `W` lines: all in registers.
pub(super) struct Vnni<'a, const W: usize>(&'a NumberJob<'a>);

impl<'a, V: FromInts, const W: usize> WholeSums<'a, V> for Vnni<'a, W> {
    const PANELS: usize = fused::PANELS;
    type Group = [[__m512i; W]; GROUP];

    fn new(job: &'a NumberJob<'a>) -> Self {
        Self(job)
    }

    #[inline(always)]
    unsafe fn prepare(&mut self, _groups: Range<usize>, _panels: ByteRun<'_>) {}

    #[inline(always)]
    unsafe fn group(&self, g: usize, height: usize, _p: usize, panel: ByteRun<'_>) -> Self::Group {
        let NumberJob { rows, steps, .. } = *self.0;
        let (columns, terms) = (panel.lines.as_ptr(), panel.terms.as_ptr());
        // SAFETY: guaranteed by the caller.
        unsafe {
            let own = rows.words.as_ptr().add(g * GROUP * steps);
            let own_terms = rows.terms.as_ptr().add(g * GROUP);
            if height <= 2 {
                let mut all = [[_mm512_setzero_si512(); W]; GROUP];
                all[..2].copy_from_slice(&distances::<2, W>(steps, own, own_terms, columns, terms));
                all
            } else {
                distances::<GROUP, W>(steps, own, own_terms, columns, terms)
            }
        }
    }

    #[inline(always)]
    unsafe fn get(group: &Self::Group, i: usize, at: usize) -> V {
        let lane = at * V::N;
        // SAFETY: guaranteed by the caller.
        unsafe { V::from_ints(group[i][lane / LINE], lane % LINE / V::N) }
    }
}

/// Σ(k − k′)² of `M` rows of a group with `W` lines of columns.
///
/// # Safety
/// Needs the instruction; `rows` has `steps` lines of `GROUP` words, `columns` `W·steps` lines and `terms` `W` times
/// as many as a line.
#[inline(always)]
unsafe fn distances<const M: usize, const W: usize>(
    steps: usize,
    rows: *const u32,
    row_terms: *const i32,
    columns: *const Line,
    terms: *const i32,
) -> [[__m512i; W]; M] {
    // SAFETY: see the contract above.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); W]; M];
        for q in 0..steps {
            let mut right = [_mm512_setzero_si512(); W];
            for w in 0..W {
                right[w] = _mm512_load_si512(columns.add(w * steps + q).cast());
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

/// A vector that whole numbers in memory convert to.
pub(super) trait FromSums: Simd {
    /// `row + columns[j] − 2·sums[j]`.
    ///
    /// # Safety
    /// Needs the instructions of the vector and `N` numbers at both pointers.
    unsafe fn distance(row: i32, columns: *const i32, sums: *const i32) -> Self;
}

impl FromSums for __m256 {
    #[inline(always)]
    unsafe fn distance(row: i32, columns: *const i32, sums: *const i32) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let norms = _mm256_add_epi32(_mm256_set1_epi32(row), _mm256_loadu_si256(columns.cast()));
            let twice = _mm256_slli_epi32::<1>(_mm256_loadu_si256(sums.cast()));
            _mm256_cvtepi32_ps(_mm256_sub_epi32(norms, twice))
        }
    }
}

impl FromSums for __m256d {
    #[inline(always)]
    unsafe fn distance(row: i32, columns: *const i32, sums: *const i32) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let norms = _mm_add_epi32(_mm_set1_epi32(row), _mm_loadu_si128(columns.cast()));
            let twice = _mm_slli_epi32::<1>(_mm_loadu_si128(sums.cast()));
            _mm256_cvtepi32_pd(_mm_sub_epi32(norms, twice))
        }
    }
}

/// Lines of columns that are processed with a row together: two vectors each, half of the registers.
const LINES: usize = 4;
/// Sums of a row in the buffer.
const STRIDE: usize = LINES * LINE;

/// Sums with AVX2: products Σk·k′ of some rows and panels in memory.
pub(super) struct Listed<'a> {
    job: &'a NumberJob<'a>,
    products: Vec<i32>,
    first: usize,
}

/// Where the sums of a group are.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    products: *const i32,
    row_terms: *const i32,
    terms: *const i32,
}

impl<'a, V: FromSums> WholeSums<'a, V> for Listed<'a> {
    const PANELS: usize = STRIDE / V::T::NR;
    type Group = Placed;

    fn new(job: &'a NumberJob<'a>) -> Self {
        Self { job, products: Vec::new(), first: 0 }
    }

    #[inline(always)]
    unsafe fn prepare(&mut self, groups: Range<usize>, panels: ByteRun<'_>) {
        let NumberJob { rows, steps, .. } = *self.job;
        let lines = panels.terms.len() / LINE;
        assert!(lines <= LINES && panels.lines.len() >= lines * steps && groups.end * GROUP <= rows.terms.len());
        self.first = groups.start * GROUP;
        self.products.clear();
        self.products.resize(groups.len() * GROUP * STRIDE, 0);
        let to = self.products.as_mut_ptr();
        // SAFETY: the sizes were checked above; words of a list lie below `steps`.
        unsafe {
            match (lines, rows.packing) {
                (4, Packing::Pairs) => listed::<4, false>(rows, steps, groups, panels.lines.as_ptr(), to),
                (3, Packing::Pairs) => listed::<3, false>(rows, steps, groups, panels.lines.as_ptr(), to),
                (2, Packing::Pairs) => listed::<2, false>(rows, steps, groups, panels.lines.as_ptr(), to),
                (_, Packing::Pairs) => listed::<1, false>(rows, steps, groups, panels.lines.as_ptr(), to),
                (4, _) => listed::<4, true>(rows, steps, groups, panels.lines.as_ptr(), to),
                (3, _) => listed::<3, true>(rows, steps, groups, panels.lines.as_ptr(), to),
                (2, _) => listed::<2, true>(rows, steps, groups, panels.lines.as_ptr(), to),
                _ => listed::<1, true>(rows, steps, groups, panels.lines.as_ptr(), to),
            }
        }
    }

    #[inline(always)]
    unsafe fn group(&self, g: usize, _height: usize, p: usize, panel: ByteRun<'_>) -> Placed {
        // SAFETY: the group and the panel are among those prepared.
        unsafe {
            Placed {
                products: self.products.as_ptr().add((g * GROUP - self.first) * STRIDE + p * V::T::NR),
                row_terms: self.job.rows.terms.as_ptr().add(g * GROUP),
                terms: panel.terms.as_ptr(),
            }
        }
    }

    #[inline(always)]
    unsafe fn get(group: &Placed, i: usize, at: usize) -> V {
        // SAFETY: as above.
        unsafe {
            V::distance(*group.row_terms.add(i), group.terms.add(at * V::N), group.products.add(i * STRIDE + at * V::N))
        }
    }
}

/// Adds Σk·k′ of the rows of `groups` with `L` lines of columns to `to`, [`STRIDE`] numbers a row: a part of the features at
/// a time, so that the columns stay in the first-level cache for all the rows.
///
/// # Safety
/// Needs AVX2; `columns` has `L·steps` lines; `to` room for every row.
#[inline(always)]
unsafe fn listed<const L: usize, const BYTES: bool>(
    rows: &ByteRows,
    steps: usize,
    groups: Range<usize>,
    columns: *const Line,
    to: *mut i32,
) {
    let run = rows.packing.words_before_overflow();
    for part in 0..rows.parts {
        for (at, row) in (groups.start * GROUP..groups.end * GROUP).enumerate() {
            let list = rows.list(row, part);
            if !list.is_empty() {
                // SAFETY: guaranteed by the caller.
                unsafe { add_products::<L, BYTES>(list, run, steps, columns, to.add(at * STRIDE)) };
            }
        }
    }
}

/// Adds Σk·k′ of one row with `L` lines of columns to `to`. Bytes are multiplied to sums of 16 bits, at most `run` of them;
/// otherwise a word is two numbers of 16 bits.
///
/// # Safety
/// As [`listed`].
#[inline(always)]
unsafe fn add_products<const L: usize, const BYTES: bool>(
    list: &[Word],
    run: usize,
    steps: usize,
    columns: *const Line,
    to: *mut i32,
) {
    // SAFETY: see the contract above.
    unsafe {
        for words in list.chunks(run) {
            let mut sums = [[_mm256_setzero_si256(); 2]; L];
            for word in words {
                let left = _mm256_set1_epi32(word.value as i32);
                let line = columns.add(word.at as usize);
                for w in 0..L {
                    for half in 0..2 {
                        let right = _mm256_load_si256(line.add(w * steps).cast::<__m256i>().add(half));
                        sums[w][half] = if BYTES {
                            _mm256_add_epi16(sums[w][half], _mm256_maddubs_epi16(left, right))
                        } else {
                            _mm256_add_epi32(sums[w][half], _mm256_madd_epi16(left, right))
                        };
                    }
                }
            }
            for w in 0..L {
                for half in 0..2 {
                    let own =
                        if BYTES { _mm256_madd_epi16(sums[w][half], _mm256_set1_epi16(1)) } else { sums[w][half] };
                    let to = to.add(w * LINE + half * 8).cast::<__m256i>();
                    _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), own));
                }
            }
        }
    }
}

/// See `EntrySource::tiles`.
///
/// # Safety
/// As documented there; also needs the instructions of `N` and `V`, and rows and columns packed for them.
#[inline(always)]
pub(super) unsafe fn tiles<'a, V: Simd, N: WholeSums<'a, V>>(
    kernel: Kernel,
    job: &'a NumberJob<'a>,
    groups: Range<usize>,
    run: PanelRun<'_, V::T>,
    to: *mut V::T,
    stride: usize,
    scratch: &mut [V::T],
) where
    V::T: ExpTable,
{
    let (nr, rows) = (V::T::NR, job.rows);
    let none = [V::T::ZERO; 32];
    assert!(scratch.len() >= GROUP * nr);
    job.check(groups.end, run.bytes, run.count * nr);
    let mut sums = N::new(job);
    // SAFETY: offsets stay inside the slices checked above; the caller guarantees `to`.
    unsafe {
        for from in (0..run.count).step_by(N::PANELS) {
            let until = (from + N::PANELS).min(run.count);
            sums.prepare(groups.clone(), run.bytes.panels(from..until, run.count));
            for p in from..until {
                let panel = run.bytes.panels(p..p + 1, run.count);
                for g in groups.clone() {
                    let height = GROUP.min(rows.count - g * GROUP);
                    let group = sums.group(g, height, p - from, panel);
                    for i in 0..GROUP {
                        for at in 0..nr / V::N {
                            N::get(&group, i, at).store(scratch.as_mut_ptr().add(i * nr + at * V::N));
                        }
                    }
                    let tile = Tile {
                        height,
                        sums: scratch.as_ptr(),
                        row_norms: none.as_ptr(),
                        norms: none.as_ptr(),
                        rows: &[],
                        columns: LaneColumns::List(&[]),
                    };
                    let to = to.add((g - groups.start) * GROUP * stride + p * nr);
                    finish::<V>(kernel, false, None, tile, to, stride);
                }
            }
        }
    }
}

/// See `EntrySource::add_dots`.
///
/// # Safety
/// As [`tiles`].
#[inline(always)]
pub(super) unsafe fn dots<'a, V: Simd, N: WholeSums<'a, V>>(
    kernel: Kernel,
    job: &'a NumberJob<'a>,
    groups: usize,
    run: PanelRun<'_, V::T>,
    dots: Dots<'_, V::T>,
) where
    V::T: ExpTable,
{
    let Kernel::Rbf { gamma } = kernel else { unreachable!("only RBF kernels are fused") };
    let (nr, lanes) = (V::T::NR, fused::lanes::<V::T>());
    let Dots { weights, sums, mut mirror } = dots;
    job.check(groups, run.bytes, run.count * nr);
    assert!(weights.len() >= run.count * nr && sums.len() >= groups * GROUP * lanes && V::N <= lanes);
    assert!(mirror.as_ref().is_none_or(|mirror| mirror.row_weights.len() >= groups * GROUP));
    let mut whole = N::new(job);
    // SAFETY: offsets stay inside the slices checked above.
    unsafe {
        let gamma = V::splat(V::T::from_f64(-gamma));
        for from in (0..run.count).step_by(N::PANELS) {
            let until = (from + N::PANELS).min(run.count);
            whole.prepare(0..groups, run.bytes.panels(from..until, run.count));
            for p in from..until {
                let panel = run.bytes.panels(p..p + 1, run.count);
                let weights = weights.as_ptr().add(p * nr);
                let mut mirrored = [V::splat(V::T::ZERO); MOST_VECTORS];
                for g in 0..groups {
                    let first = g * GROUP;
                    let group = whole.group(g, GROUP, p - from, panel);
                    // Four exponentials in step: of one row or of two.
                    let wide = nr / V::N;
                    for from in (0..GROUP * wide).step_by(4) {
                        let mut e = [gamma; 4];
                        for k in 0..4 {
                            e[k] = N::get(&group, (from + k) / wide, (from + k) % wide).mul(gamma);
                        }
                        let e = math::exp(e);
                        for k in 0..4 {
                            let (row, at) = (first + (from + k) / wide, (from + k) % wide);
                            let sum = sums.as_mut_ptr().add(row * lanes);
                            e[k].fma(V::load(weights.add(at * V::N)), V::load(sum)).store(sum);
                            if let Some(mirror) = &mirror {
                                mirrored[at] = e[k].fma(V::splat(mirror.row_weights[row]), mirrored[at]);
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
}
