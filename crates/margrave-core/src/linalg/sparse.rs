//! Products of one sparse row with a vector, and products of rows together with sums of the magnitudes of their terms.

use super::vectorised::Vectorised;
use crate::data::Real;

/// Maximum number of bytes to prefetch: the hardware prefetcher handles the rest. Where rows are in the second-level cache
/// anyway, requests for more of them take a tenth of a coordinate step.
#[cfg(target_arch = "x86_64")]
const PREFETCHED: usize = 256;

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
#[inline(always)]
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
#[inline(always)]
pub(crate) fn add<T: Real>(columns: &[u32], values: &[T], c: f64, out: &mut [f64]) {
    let Some(&last) = columns.last() else { return };
    assert!((last as usize) < out.len());
    for (j, v) in columns.iter().zip(values) {
        // SAFETY: column indices of a row ascend, and the last one was just checked.
        unsafe { *out.get_unchecked_mut(*j as usize) += c * v.to_f64() };
    }
}

/// wᵀx and Σ|w·x| of one sparse row, whose columns ascend as those of a [`Csr`](crate::data::Csr) do.
#[inline]
pub(crate) fn dot_and_size<T: Real>(columns: &[u32], values: &[T], w: &[f64]) -> (f64, f64) {
    let Some(&last) = columns.last() else { return (0.0, 0.0) };
    assert!((last as usize) < w.len());
    // SAFETY: column indices of a row ascend, and the last one was just checked.
    let at = |c: u32| unsafe { *w.get_unchecked(c as usize) };
    let (mut sums, mut sizes) = ([0.0f64; 4], [0.0f64; 4]);
    let (cs, vs) = (columns.chunks_exact(4), values.chunks_exact(4));
    let (cr, vr) = (cs.remainder(), vs.remainder());
    for (c, v) in cs.zip(vs) {
        for l in 0..4 {
            let term = v[l].to_f64() * at(c[l]);
            sums[l] += term;
            sizes[l] += term.abs();
        }
    }
    for (c, v) in cr.iter().zip(vr) {
        let term = v.to_f64() * at(*c);
        sums[0] += term;
        sizes[0] += term.abs();
    }
    ((sums[0] + sums[2]) + (sums[1] + sums[3]), (sizes[0] + sizes[2]) + (sizes[1] + sizes[3]))
}

/// `out += (c·x, |c·x|)` of one sparse row, whose columns ascend as those of a [`Csr`](crate::data::Csr) do.
#[inline]
pub(crate) fn add_with_size<T: Real>(columns: &[u32], values: &[T], c: f64, out: &mut [[f64; 2]]) {
    let Some(&last) = columns.last() else { return };
    assert!((last as usize) < out.len());
    for (j, v) in columns.iter().zip(values) {
        let term = c * v.to_f64();
        // SAFETY: column indices of a row ascend, and the last one was just checked.
        let out = unsafe { out.get_unchecked_mut(*j as usize) };
        out[0] += term;
        out[1] += term.abs();
    }
}

/// wᵀx and Σ|w·x| of one dense row.
#[inline(always)]
fn dense_dot_and_size<T: Real>(x: &[T], w: &[f64]) -> (f64, f64) {
    const LANES: usize = 8;
    let (mut sums, mut sizes) = ([0.0f64; LANES], [0.0f64; LANES]);
    let (xs, ws) = (x.chunks_exact(LANES), w.chunks_exact(LANES));
    let (xr, wr) = (xs.remainder(), ws.remainder());
    for (x, w) in xs.zip(ws) {
        for l in 0..LANES {
            let term = x[l].to_f64() * w[l];
            sums[l] += term;
            sizes[l] += term.abs();
        }
    }
    for (l, (x, w)) in xr.iter().zip(wr).enumerate() {
        let term = x.to_f64() * w;
        sums[l] += term;
        sizes[l] += term.abs();
    }
    (sums.iter().sum(), sizes.iter().sum())
}

/// wᵀx and Σ|w·x| of some dense rows: `out(row within them, sum, sum of magnitudes)`.
pub(crate) struct DenseDots<'a, T, F> {
    /// The rows, one after the other.
    pub(crate) values: &'a [T],
    /// w.
    pub(crate) w: &'a [f64],
    /// What is done with the sums.
    pub(crate) out: F,
}

impl<T: Real, F: FnMut(usize, f64, f64)> Vectorised for DenseDots<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        for (at, x) in self.values.chunks_exact(self.w.len().max(1)).enumerate() {
            let (sum, size) = dense_dot_and_size(x, self.w);
            (self.out)(at, sum, size);
        }
    }
}

/// `out += (c·x, |c·x|)` over some dense rows with the coefficients `c`.
pub(crate) struct DenseSums<'a, T> {
    /// The rows, one after the other.
    pub(crate) values: &'a [T],
    /// A coefficient for each row.
    pub(crate) c: &'a [f64],
    /// The sums.
    pub(crate) out: &'a mut [[f64; 2]],
}

impl<T: Real> Vectorised for DenseSums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (x, c) in self.values.chunks_exact(self.out.len().max(1)).zip(self.c) {
            if *c != 0.0 {
                for (out, x) in self.out.iter_mut().zip(x) {
                    let term = c * x.to_f64();
                    out[0] += term;
                    out[1] += term.abs();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::vectorised::vectorised;

    /// Multiples of powers of two, so that sums are exact in any order.
    fn values(count: usize, seed: usize) -> Vec<f64> {
        (0..count).map(|at| ((at * 23 + 7 * seed) % 31) as f64 / 4.0 - 3.0).collect()
    }

    #[test]
    fn sums_come_with_those_of_the_magnitudes() {
        for d in [1, 3, 8, 21] {
            let (x, w, c) = (values(4 * d, 1), values(d, 2), [1.0, 0.0, -0.5, 2.0]);
            let single: Vec<f32> = x.iter().map(|x| *x as f32).collect();
            let mut found = [(f64::NAN, f64::NAN); 4];
            vectorised(DenseDots { values: &single, w: &w, out: |at, sum, size| found[at] = (sum, size) });
            let (mut sums, mut of_rows) = (vec![[0.0; 2]; d], vec![[0.0; 2]; d]);
            vectorised(DenseSums { values: &x, c: &c, out: &mut sums });
            for i in 0..4 {
                let row = &x[i * d..(i + 1) * d];
                let terms = || row.iter().zip(&w).map(|(x, w)| x * w);
                let expected = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                assert_eq!(found[i], expected, "{d} features, row {i}");
                let columns: Vec<u32> = (0..d as u32).filter(|&j| row[j as usize] != 0.0).collect();
                let stored: Vec<f64> = columns.iter().map(|&j| row[j as usize]).collect();
                assert_eq!(dot_and_size(&columns, &stored, &w), expected, "{d} features, row {i}");
                add_with_size(&columns, &stored, c[i], &mut of_rows);
            }
            assert_eq!(sums, of_rows, "{d} features");
            for j in 0..d {
                let terms = || (0..4).map(|i| c[i] * x[i * d + j]);
                assert_eq!(sums[j], [terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>()]);
            }
        }
        assert_eq!(dot_and_size::<f64>(&[], &[], &[]), (0.0, 0.0));
    }
}
