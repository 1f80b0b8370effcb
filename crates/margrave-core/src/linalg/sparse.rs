//! Products of one sparse row with a vector.

use crate::data::Real;

/// Maximum number of bytes to prefetch: the hardware prefetcher handles the rest.
#[cfg(target_arch = "x86_64")]
const PREFETCHED: usize = 1024;

/// Prefetches `slice`; a hint without other effects.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = slice.as_ptr().cast::<i8>();
        for offset in (0..size_of_val(slice).min(PREFETCHED)).step_by(64) {
            // SAFETY: the address lies inside the slice, and a prefetch neither reads nor writes.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice;
}

/// wᵀx of one sparse row, whose columns ascend as those of a [`Csr`](crate::data::Csr) do.
#[inline]
pub(crate) fn dot<T: Real>(columns: &[u32], values: &[T], w: &[f64]) -> f64 {
    let Some(&last) = columns.last() else { return 0.0 };
    assert!((last as usize) < w.len());
    // SAFETY: column indices of a row ascend, and the last one was just checked.
    let at = |c: u32| unsafe { *w.get_unchecked(c as usize) };
    let mut sums = [0.0f64; 4];
    let (cs, vs) = (columns.chunks_exact(4), values.chunks_exact(4));
    let (cr, vr) = (cs.remainder(), vs.remainder());
    for (c, v) in cs.zip(vs) {
        for l in 0..4 {
            sums[l] += v[l].to_f64() * at(c[l]);
        }
    }
    for (c, v) in cr.iter().zip(vr) {
        sums[0] += v.to_f64() * at(*c);
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

/// `out += c·x` of one sparse row, whose columns ascend as those of a [`Csr`](crate::data::Csr) do.
#[inline]
pub(crate) fn add<T: Real>(columns: &[u32], values: &[T], c: f64, out: &mut [f64]) {
    let Some(&last) = columns.last() else { return };
    assert!((last as usize) < out.len());
    for (j, v) in columns.iter().zip(values) {
        // SAFETY: column indices of a row ascend, and the last one was just checked.
        unsafe { *out.get_unchecked_mut(*j as usize) += c * v.to_f64() };
    }
}
