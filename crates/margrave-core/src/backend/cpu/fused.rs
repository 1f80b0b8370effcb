//! Products with an RBF kernel whose entries are used while they are in registers, and never written.
//!
//! With few features, applying the kernel and reading entries back to multiply them costs as much as the sums over
//! features. An entry has the same bits as one from `tile.rs`: sum, distance and exponential are the same operations.
//! In single precision products are added up in single precision over at most [`PANELS`] panels, in double precision
//! beyond.

use super::byte_columns::ByteRun;
use super::finish::{distance, recompute};
use super::math::{self, ExpTable};
use super::pack::GROUP;
use super::simd::{Level, Simd, SimdScalar, Wide32, Wide64};
use super::tile::{
    Engine, PanelRun, Product, SquaredDifference, Sum, SumStep, TileJob, chain, group, sums_in_registers,
};
use crate::data::Real;
use crate::kernel::Kernel;

/// Panels whose products are added up in lanes before the lanes are: a bound on the length of chains in single
/// precision, and on those of the certificate's products (see `Chain`) with vectors of four.
pub(crate) const PANELS: usize = 8;

/// Lanes in which the products of a row are added up: at least those of the widest vector.
pub(crate) const fn lanes<T: SimdScalar>() -> usize {
    T::NR / 2
}

/// Whether products of this job can be computed here.
pub(crate) fn fits(kernel: &Kernel, sum: Sum) -> bool {
    matches!(kernel, Kernel::Rbf { .. }) && matches!(sum, Sum::Product | Sum::SquaredDifference)
}

/// Vectors of a panel at most.
pub(crate) const MOST_VECTORS: usize = 4;
/// Row groups after which the sums of columns are passed on: they are chains in the scalar of the entries.
const MIRRORED_GROUPS: usize = 4;

/// What products of row groups of full height with a run of panels are added to.
pub(crate) struct Dots<'a, T> {
    /// What the columns are multiplied with.
    pub(crate) weights: &'a [T],
    /// `sums[r·lanes + l] += Σ entry(r, j)·weights[j]`, each column j in some lane l.
    pub(crate) sums: &'a mut [T],
    pub(crate) mirror: Option<Mirror<'a, T>>,
}

/// The same entries as those of their columns' rows, for a symmetric matrix.
pub(crate) struct Mirror<'a, T> {
    /// What the rows are multiplied with.
    pub(crate) row_weights: &'a [T],
    /// `columns[j] += Σ entry(r, j)·row_weights[r]`
    pub(crate) columns: &'a mut [f64],
}

impl<T: SimdScalar> Mirror<'_, T> {
    /// After group `g` of `groups`: adds the sums of panel `p`'s columns to the output from time to time.
    ///
    /// # Safety
    /// Needs the instructions of `V`.
    #[inline(always)]
    pub(crate) unsafe fn flush<V: Simd<T = T>>(
        &mut self,
        g: usize,
        groups: usize,
        p: usize,
        sums: &mut [V; MOST_VECTORS],
    ) {
        if g % MIRRORED_GROUPS != MIRRORED_GROUPS - 1 && g + 1 != groups {
            return;
        }
        let mut lanes = [T::default(); 32];
        let columns = &mut self.columns[p * T::NR..(p + 1) * T::NR];
        for (w, sum) in sums.iter_mut().take(T::NR / V::N).enumerate() {
            // SAFETY: the caller has the instructions; a panel has at most 32 lanes.
            unsafe {
                sum.store(lanes.as_mut_ptr().add(w * V::N));
                *sum = V::splat(T::default());
            }
        }
        columns.iter_mut().zip(&lanes).for_each(|(column, sum)| *column += sum.to_f64());
    }
}

/// What is added to the sums over packed features of a row with the columns of a panel.
///
/// # Safety
/// Methods need the instructions of `V`, and as many rows and columns as named.
pub(crate) trait Addend<V: Simd> {
    /// Panels that are prepared at once.
    const PANELS: usize;
    /// What is added for one group of rows and one panel.
    type Group;
    /// Turns to these groups of rows and panels.
    unsafe fn prepare(&mut self, groups: usize, panels: ByteRun<'_>);
    /// Group `g` with a panel, number `p` of those prepared.
    unsafe fn group(&self, g: usize, p: usize, panel: ByteRun<'_>) -> Self::Group;
    /// `sum` with what belongs to vector `at` of row `i`.
    unsafe fn add(&self, group: &Self::Group, i: usize, at: usize, sum: V) -> V;
}

/// Nothing to add.
struct Nothing;

impl<V: Simd> Addend<V> for Nothing {
    const PANELS: usize = PANELS;
    type Group = ();
    #[inline(always)]
    unsafe fn prepare(&mut self, _groups: usize, _panels: ByteRun<'_>) {}
    #[inline(always)]
    unsafe fn group(&self, _g: usize, _p: usize, _panel: ByteRun<'_>) -> Self::Group {}
    #[inline(always)]
    unsafe fn add(&self, (): &(), _i: usize, _at: usize, sum: V) -> V {
        sum
    }
}

/// Adds the products of the first `groups` row groups with a run: see [`Dots`].
///
/// # Safety
/// Needs the instructions of `V`; `M` is even and divides `GROUP`; the addend has as many rows and columns.
#[inline(always)]
unsafe fn add_dots<V: Simd, S: SumStep, A: Addend<V>, const COMMON: bool, const M: usize>(
    job: &TileJob<'_, V::T>,
    mut addend: A,
    groups: usize,
    run: PanelRun<'_, V::T>,
    dots: Dots<'_, V::T>,
) where
    V::T: ExpTable,
{
    let Kernel::Rbf { gamma } = job.kernel else { unreachable!("only RBF kernels are fused") };
    let (nr, d, rows) = (V::T::NR, job.d, job.rows);
    let Dots { weights, sums, mut mirror } = dots;
    assert!(run.values.len() >= run.count * d * nr && run.norms.len() >= run.count * nr);
    assert!(weights.len() >= run.count * nr && sums.len() >= groups * GROUP * lanes::<V::T>());
    assert!(groups * GROUP <= rows.len() && V::N <= lanes::<V::T>() && nr / V::N <= MOST_VECTORS);
    assert!(mirror.as_ref().is_none_or(|mirror| mirror.row_weights.len() >= groups * GROUP));
    // SAFETY: offsets stay inside the slices checked above.
    unsafe {
        let gamma = V::splat(V::T::from_f64(-gamma));
        // All chains but the last one are added up in memory, as in `tile.rs`.
        let last = (d.max(1) - 1) / chain(d) * chain(d);
        let mut before = vec![V::T::ZERO; if last > 0 { groups * GROUP * nr } else { 0 }];
        for p in 0..run.count {
            if p % A::PANELS == 0 {
                addend.prepare(groups, run.bytes.panels(p..(p + A::PANELS).min(run.count), run.count));
            }
            let bytes = run.bytes.panels(p..p + 1, run.count);
            let panel = run.values.as_ptr().add(p * d * nr);
            for from in (0..last).step_by(chain(d)) {
                for g in 0..groups {
                    let (values, tile) = (rows.group(g).0.as_ptr(), before.as_mut_ptr().add(g * GROUP * nr));
                    let (values, panel) = (values.add(from * GROUP), panel.add(from * nr));
                    group::<V, S>(GROUP, chain(d), values, panel, tile, from > 0);
                }
            }
            let mut mirrored = [V::splat(V::T::ZERO); MOST_VECTORS];
            for g in 0..groups {
                let values = rows.group(g).0.as_ptr().add(last * GROUP);
                let added = addend.group(g, p % A::PANELS, bytes);
                for w in (0..nr / V::N).step_by(2) {
                    let at = p * nr + w * V::N;
                    let norms = [V::load(run.norms.as_ptr().add(at)), V::load(run.norms.as_ptr().add(at + V::N))];
                    let v = [V::load(weights.as_ptr().add(at)), V::load(weights.as_ptr().add(at + V::N))];
                    for i in (0..GROUP).step_by(M) {
                        let panel = panel.add(last * nr + w * V::N);
                        let tile = sums_in_registers::<V, S, M, 2>(d - last, values.add(i), GROUP, panel);
                        // Two rows at a time: four exponentials in step.
                        for r in (0..M).step_by(2) {
                            let row = g * GROUP + i + r;
                            let mut e = [gamma; 4];
                            for k in 0..4 {
                                let (r, half) = (r + k / 2, k % 2);
                                let mut sum = tile[r][half];
                                if last > 0 {
                                    let at = before.as_ptr().add((row + k / 2) * nr + (w + half) * V::N);
                                    sum = V::load(at).add(sum);
                                }
                                let sum = addend.add(&added, i + r, w + half, sum);
                                let norm = V::splat(*rows.norms().get_unchecked(row + k / 2));
                                e[k] = distance::<V, COMMON>(sum, norm, norms[half]).mul(gamma);
                            }
                            let mut e = math::exp(e);
                            if let Some(refine) = job.refine {
                                for k in 0..4 {
                                    let (row, half) = (row + k / 2, k % 2);
                                    let norm = V::splat(*rows.norms().get_unchecked(row));
                                    let columns = (run.columns.part(at + half * V::N, V::N), norms[half]);
                                    let number = rows.indices()[row] as usize;
                                    e[k] = recompute(job.kernel, refine, (number, norm), columns, e[k]);
                                }
                            }
                            for k in 0..2 {
                                let sum = sums.as_mut_ptr().add((row + k) * lanes::<V::T>());
                                e[2 * k + 1].fma(v[1], e[2 * k].fma(v[0], V::load(sum))).store(sum);
                                if let Some(mirror) = &mirror {
                                    let row_weight = V::splat(*mirror.row_weights.get_unchecked(row + k));
                                    for half in 0..2 {
                                        mirrored[w + half] = e[2 * k + half].fma(row_weight, mirrored[w + half]);
                                    }
                                }
                            }
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

/// [`add_dots`] for the sum of the job and as many rows at a time as there are registers for.
///
/// # Safety
/// Needs the instructions of `V`; the addend has as many rows and columns.
#[inline(always)]
pub(crate) unsafe fn add_dots_of_job<V: Simd, A: Addend<V>>(
    job: &TileJob<'_, V::T>,
    addend: A,
    groups: usize,
    run: PanelRun<'_, V::T>,
    dots: Dots<'_, V::T>,
) where
    V::T: ExpTable,
{
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (job.sum, V::ROWS) {
            (Sum::Product, 8) => add_dots::<V, Product, A, true, 8>(job, addend, groups, run, dots),
            (Sum::Product, 4) => add_dots::<V, Product, A, true, 4>(job, addend, groups, run, dots),
            (Sum::Product, _) => add_dots::<V, Product, A, true, 2>(job, addend, groups, run, dots),
            (Sum::SquaredDifference, 8) => {
                add_dots::<V, SquaredDifference, A, false, 8>(job, addend, groups, run, dots)
            }
            (Sum::SquaredDifference, 4) => {
                add_dots::<V, SquaredDifference, A, false, 4>(job, addend, groups, run, dots)
            }
            (Sum::SquaredDifference, _) => {
                add_dots::<V, SquaredDifference, A, false, 2>(job, addend, groups, run, dots)
            }
            _ => unreachable!("other sums are not fused"),
        }
    }
}

/// A scalar with entry points for every level.
pub(crate) trait FusedEngine: Engine {
    /// See [`Dots`].
    ///
    /// # Safety
    /// The processor must support `level`, and the job must fit (see [`fits`]).
    unsafe fn dots(level: Level, job: &TileJob<'_, Self>, groups: usize, run: PanelRun<'_, Self>, dots: Dots<'_, Self>);
}

macro_rules! fused_engine {
    ($t:ty, $portable:ty, $avx2:ident, $avx512:ident) => {
        impl FusedEngine for $t {
            unsafe fn dots(
                level: Level,
                job: &TileJob<'_, $t>,
                groups: usize,
                run: PanelRun<'_, $t>,
                dots: Dots<'_, $t>,
            ) {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
                unsafe fn avx512(job: &TileJob<'_, $t>, groups: usize, run: PanelRun<'_, $t>, dots: Dots<'_, $t>) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { add_dots_of_job::<std::arch::x86_64::$avx512, Nothing>(job, Nothing, groups, run, dots) }
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(job: &TileJob<'_, $t>, groups: usize, run: PanelRun<'_, $t>, dots: Dots<'_, $t>) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { add_dots_of_job::<std::arch::x86_64::$avx2, Nothing>(job, Nothing, groups, run, dots) }
                }
                // SAFETY: the caller has checked that the processor supports `level`.
                unsafe {
                    match level {
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => avx512(job, groups, run, dots),
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 => avx2(job, groups, run, dots),
                        _ => add_dots_of_job::<$portable, Nothing>(job, Nothing, groups, run, dots),
                    }
                }
            }
        }
    };
}

fused_engine!(f32, Wide32, __m256, __m512);
fused_engine!(f64, Wide64, __m256d, __m512d);

/// The coefficients of a product in the scalar of its entries, scaled by a power of two so that none overflows, and the
/// scale.
pub(crate) fn narrow<T: SimdScalar>(v: &[f64]) -> (Vec<T>, f64) {
    let largest = v.iter().fold(0.0f64, |w, x| w.max(x.abs()));
    // The exponent alone. Double precision needs no scale.
    let power = f64::from_bits(largest.to_bits() & (0x7ff << 52));
    let scale = if T::ROUND < 1e-10 || power == 0.0 || !power.is_finite() { 1.0 } else { power };
    (v.iter().map(|x| T::from_f64(x / scale)).collect(), scale)
}

/// Adds up the lanes of every row: `out[r] += scale·Σ sums[r·lanes ..]`.
pub(crate) fn add_lanes<T: SimdScalar>(sums: &[T], scale: f64, out: &mut [f64]) {
    for (out, lanes) in out.iter_mut().zip(sums.chunks_exact(lanes::<T>())) {
        let mut part = [0.0; 8];
        for chunk in lanes.as_chunks::<8>().0 {
            (0..8).for_each(|l| part[l] += chunk[l].to_f64());
        }
        let part = [part[0] + part[4], part[1] + part[5], part[2] + part[6], part[3] + part[7]];
        *out += scale * ((part[0] + part[2]) + (part[1] + part[3]));
    }
}
