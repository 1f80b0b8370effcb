//! Small products of a block of entries with vectors, summed in double precision.

use super::simd::{Level, PORTABLE_FMA, SimdScalar};

/// A row-major block of entries, lines of `stride`.
#[derive(Clone, Copy)]
pub(crate) struct EntryBlock<'a, T> {
    pub(crate) values: &'a [T],
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    pub(crate) width: usize,
}

impl<'a, T> EntryBlock<'a, T> {
    fn row(&self, r: usize) -> &'a [T] {
        &self.values[r * self.stride..r * self.stride + self.width]
    }
}

/// `out += B·V`, V being `width × k`, `out` `rows × k`, with the instructions of `level`.
pub(crate) fn times<T: SimdScalar>(level: Level, block: EntryBlock<'_, T>, v: &[f64], k: usize, out: &mut [f64]) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
    fn avx512<T: SimdScalar>(block: EntryBlock<'_, T>, v: &[f64], k: usize, out: &mut [f64]) {
        times_body::<T, true>(block, v, k, out);
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn avx2<T: SimdScalar>(block: EntryBlock<'_, T>, v: &[f64], k: usize, out: &mut [f64]) {
        times_body::<T, true>(block, v, k, out);
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a level is only used if the processor supports it.
        Level::Avx512 => unsafe { avx512(block, v, k, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2(block, v, k, out) },
        _ => times_body::<T, PORTABLE_FMA>(block, v, k, out),
    }
}

#[inline(always)]
fn times_body<T: SimdScalar, const FMA: bool>(block: EntryBlock<'_, T>, v: &[f64], k: usize, out: &mut [f64]) {
    if k == 1 {
        const LANES: usize = 16;
        let (v_lanes, v_rest) = v[..block.width].as_chunks::<LANES>();
        for r in 0..block.rows {
            let (lanes, rest) = block.row(r).as_chunks::<LANES>();
            let mut sums = [0.0; LANES];
            for (x, v) in lanes.iter().zip(v_lanes) {
                for l in 0..LANES {
                    sums[l] = f64::fma::<FMA>(x[l].to_f64(), v[l], sums[l]);
                }
            }
            let mut sum = 0.0;
            for (x, v) in rest.iter().zip(v_rest) {
                sum = f64::fma::<FMA>(x.to_f64(), *v, sum);
            }
            let mut half = LANES / 2;
            while half > 0 {
                for l in 0..half {
                    sums[l] += sums[l + half];
                }
                half /= 2;
            }
            out[r] += sum + sums[0];
        }
        return;
    }
    let mut c = 0;
    while c < k {
        c += match k - c {
            8.. => times_part::<T, FMA, 8>(block, v, k, c, out),
            4..8 => times_part::<T, FMA, 4>(block, v, k, c, out),
            2..4 => times_part::<T, FMA, 2>(block, v, k, c, out),
            _ => times_part::<T, FMA, 1>(block, v, k, c, out),
        };
    }
}

/// Columns `c..c + C` of the product, four rows at a time; returns `C`.
#[inline(always)]
fn times_part<T: SimdScalar, const FMA: bool, const C: usize>(
    block: EntryBlock<'_, T>,
    v: &[f64],
    k: usize,
    c: usize,
    out: &mut [f64],
) -> usize {
    const ROWS: usize = 4;
    for first in (0..block.rows).step_by(ROWS) {
        // The last row is repeated if fewer than four are left; only the sums of real rows are used.
        let rows: [&[T]; ROWS] = std::array::from_fn(|i| block.row((first + i).min(block.rows - 1)));
        let mut sums = [[0.0; C]; ROWS];
        for j in 0..block.width {
            let line: &[f64; C] = v[j * k + c..j * k + c + C].try_into().expect("a slice of C numbers");
            for i in 0..ROWS {
                let x = rows[i][j].to_f64();
                for l in 0..C {
                    sums[i][l] = f64::fma::<FMA>(x, line[l], sums[i][l]);
                }
            }
        }
        for i in 0..ROWS.min(block.rows - first) {
            for l in 0..C {
                out[(first + i) * k + c + l] += sums[i][l];
            }
        }
    }
    C
}
