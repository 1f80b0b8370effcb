//! Vectorised exp, tanh, integer powers, and kernels as functions of their statistic.
//!
//! Errors, measured by the tests below against double precision (f32) or the standard library (f64): exp on (−∞, 0]: at
//! most 2 ulp, 1 exactly at 0, subnormal results kept, 0 below. tanh: at most 6 ulp, odd. Powers: one rounding per
//! multiplication, at most `2·degree` ulp.

use super::simd::Simd;
use crate::data::Real;

/// Constants of the exponential for one scalar.
pub(crate) trait ExpTable: super::simd::SimdScalar {
    const LOG2E: Self;
    /// −ln 2 in two parts, the first short enough that n·HIGH is exact.
    const HIGH: Self;
    const LOW: Self;
    /// Below this value e^x rounds to zero.
    const FLOOR: Self;
    /// Below this value tanh(x/2) rounds to −1.
    const FLAT: Self;
    /// (e^r − 1 − r)/r² on |r| ≤ ln 2 / 2, highest power first; Chebyshev interpolation.
    const SERIES: &'static [Self];
    const ONE: Self;
    const TWO: Self;
    const MINUS_TWO: Self;
    const THIRD: Self;
    const ZERO: Self;
    const HALF: Self;
    const TINY: Self;
}

impl ExpTable for f32 {
    const LOG2E: f32 = std::f32::consts::LOG2_E;
    const HIGH: f32 = -0.693_359_4;
    const LOW: f32 = 0.000_212_194_44;
    const FLOOR: f32 = -104.0;
    const FLAT: f32 = -40.0;
    const SERIES: &'static [f32] = &[0.001_392_621_3, 0.008_363_203, 0.041_666_556, 0.166_665_76, 0.5];
    const ONE: f32 = 1.0;
    const TWO: f32 = 2.0;
    const MINUS_TWO: f32 = -2.0;
    const THIRD: f32 = 1.0 / 3.0;
    const ZERO: f32 = 0.0;
    const HALF: f32 = 0.5;
    const TINY: f32 = f32::MIN_POSITIVE;
}

impl ExpTable for f64 {
    const LOG2E: f64 = std::f64::consts::LOG2_E;
    const HIGH: f64 = -0.693_147_180_369_123_8;
    const LOW: f64 = -1.908_214_929_270_587_7e-10;
    const FLOOR: f64 = -746.0;
    const FLAT: f64 = -80.0;
    const SERIES: &'static [f64] = &[
        2.510_042_415_700_506_7e-8,
        2.762_013_871_973_399_4e-7,
        2.755_726_837_868_419_2e-6,
        2.480_152_119_021_773e-5,
        1.984_126_986_310_596_8e-4,
        1.388_888_891_728_179_4e-3,
        8.333_333_333_330_051e-3,
        4.166_666_666_662_399e-2,
        1.666_666_666_666_666_9e-1,
        0.5,
    ];
    const ONE: f64 = 1.0;
    const TWO: f64 = 2.0;
    const MINUS_TWO: f64 = -2.0;
    const THIRD: f64 = 1.0 / 3.0;
    const ZERO: f64 = 0.0;
    const HALF: f64 = 0.5;
    const TINY: f64 = f64::MIN_POSITIVE;
}

/// `(n, e^r − 1)` with x = n·ln 2 + r, for several vectors in step: each is one long chain of operations, and a processor
/// that finds only one of them at hand waits for its end.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn reduce<V: Simd, const K: usize>(x: [V; K]) -> ([V; K], [V; K])
where
    V::T: ExpTable,
{
    // SAFETY: the caller has the instructions of V.
    unsafe {
        let (mut n, mut r) = (x, x);
        for k in 0..K {
            n[k] = x[k].mul(V::splat(V::T::LOG2E)).round();
        }
        for k in 0..K {
            r[k] = n[k].fma(V::splat(V::T::HIGH), x[k]);
        }
        for k in 0..K {
            r[k] = n[k].fma(V::splat(V::T::LOW), r[k]);
        }
        let series = V::T::SERIES;
        let mut q = [V::splat(series[0]); K];
        for c in &series[1..] {
            for k in 0..K {
                q[k] = q[k].fma(r[k], V::splat(*c));
            }
        }
        for k in 0..K {
            q[k] = q[k].fma(r[k].mul(r[k]), r[k]);
        }
        (n, q)
    }
}

/// e^x for x ≤ 0.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn exp<V: Simd, const K: usize>(x: [V; K]) -> [V; K]
where
    V::T: ExpTable,
{
    // SAFETY: the caller has the instructions of V.
    unsafe {
        let mut x = x;
        for k in 0..K {
            x[k] = x[k].max(V::splat(V::T::FLOOR));
        }
        let (n, mut p) = reduce(x);
        for k in 0..K {
            p[k] = p[k].add(V::splat(V::T::ONE));
        }
        let mut normal = false;
        if let Some(least) = V::LEAST_NORMAL {
            let mut lowest = n[0];
            for n in &n[1..] {
                lowest = lowest.min(*n);
            }
            normal = !V::splat(V::T::from_f64(least)).any_above(lowest);
        }
        for k in 0..K {
            p[k] = if normal { p[k].scale_normal(n[k]) } else { p[k].scale(n[k]) };
        }
        p
    }
}

/// tanh x = −E/(2 + E) with E = e^{−2|x|} − 1, which keeps full relative accuracy near 0.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn tanh<V: Simd>(x: V) -> V
where
    V::T: ExpTable,
{
    // SAFETY: the caller has the instructions of V.
    unsafe {
        let ([n], [p]) = reduce([x.abs().mul(V::splat(V::T::MINUS_TWO)).max(V::splat(V::T::FLAT))]);
        let one = V::splat(V::T::ONE);
        let power = one.scale(n);
        let e = power.fma(p, power.sub(one));
        e.abs().div(e.add(V::splat(V::T::TWO))).with_sign(x)
    }
}

/// x^degree by squaring, degree ≥ 1.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn powi<V: Simd>(x: V, degree: u32) -> V {
    // SAFETY: the caller has the instructions of V.
    unsafe {
        let mut base = x;
        let mut left = degree;
        while left & 1 == 0 {
            base = base.mul(base);
            left >>= 1;
        }
        let mut result = base;
        left >>= 1;
        while left > 0 {
            base = base.mul(base);
            if left & 1 == 1 {
                result = result.mul(base);
            }
            left >>= 1;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::{Level, SimdScalar, Wide32, Wide64};
    use super::*;

    #[derive(Clone, Copy)]
    enum Function {
        Exp,
        Tanh,
        Power(u32),
    }

    #[inline(always)]
    unsafe fn map<V: Simd>(function: Function, values: &mut [V::T])
    where
        V::T: ExpTable,
    {
        for part in values.chunks_exact_mut(V::N) {
            // SAFETY: the part is one vector long; the caller has the instructions.
            unsafe {
                let x = V::load(part.as_ptr());
                let y = match function {
                    Function::Exp => exp([x])[0],
                    Function::Tanh => tanh(x),
                    Function::Power(degree) => powi(x, degree),
                };
                y.store(part.as_mut_ptr());
            }
        }
    }

    /// `function` of every value at every level this processor supports.
    macro_rules! at_every_level {
        ($name:ident, $t:ty, $portable:ty, $avx2:ident, $avx512:ident) => {
            fn $name(function: Function, values: &[$t]) -> Vec<(Level, Vec<$t>)> {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
                unsafe fn avx512(function: Function, values: &mut [$t]) {
                    // SAFETY: the features are enabled here.
                    unsafe { map::<std::arch::x86_64::$avx512>(function, values) }
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(function: Function, values: &mut [$t]) {
                    // SAFETY: the features are enabled here.
                    unsafe { map::<std::arch::x86_64::$avx2>(function, values) }
                }
                assert_eq!(values.len() % 16, 0);
                Level::available()
                    .into_iter()
                    .map(|level| {
                        let mut values = values.to_vec();
                        // SAFETY: only levels this processor supports are listed.
                        unsafe {
                            match level {
                                #[cfg(target_arch = "x86_64")]
                                Level::Avx512 => avx512(function, &mut values),
                                #[cfg(target_arch = "x86_64")]
                                Level::Avx2 => avx2(function, &mut values),
                                _ => map::<$portable>(function, &mut values),
                            }
                        }
                        (level, values)
                    })
                    .collect()
            }
        };
    }

    at_every_level!(single, f32, Wide32, __m256, __m512);
    at_every_level!(double, f64, Wide64, __m256d, __m512d);

    /// The error |got − want| in units in the last place of `want` at the precision of `T`; subnormals use the unit of
    /// the smallest normal number.
    fn ulps<T: SimdScalar + ExpTable>(got: T, want: f64) -> f64 {
        let size = want.abs().max(T::TINY.to_f64());
        let unit = 2.0 * T::ROUND * 2f64.powi(size.log2().floor() as i32);
        (got.to_f64() - want).abs() / unit
    }

    fn grid(from: f64, to: f64, n: usize) -> Vec<f64> {
        (0..n).map(|i| from + (to - from) * i as f64 / (n - 1) as f64).collect()
    }

    #[test]
    fn exp_is_within_two_ulp() {
        let mut inputs = grid(-110.0, 0.0, 1 << 16);
        inputs.extend(grid(-1.0, 0.0, 1 << 16));
        let x32: Vec<f32> = inputs.iter().map(|x| *x as f32).collect();
        for (level, y) in single(Function::Exp, &x32) {
            for (x, y) in x32.iter().zip(y) {
                assert!(ulps(y, f64::from(*x).exp()) <= 2.0, "{level:?} {x} {y}");
            }
        }
        inputs.extend(grid(-760.0, 0.0, 1 << 16));
        for (level, y) in double(Function::Exp, &inputs) {
            for (x, y) in inputs.iter().zip(y) {
                assert!(ulps(y, x.exp()) <= 2.0, "{level:?} {x} {y}");
            }
        }
    }

    #[test]
    fn exp_at_its_ends() {
        let mut x = [0.0f64; 16];
        x[1] = -745.0;
        x[2] = -746.0;
        x[3] = -1e300;
        x[4] = f64::NEG_INFINITY;
        for (level, y) in double(Function::Exp, &x) {
            assert_eq!(y[0], 1.0, "{level:?}");
            assert_eq!(y[1], 5e-324, "{level:?}");
            assert_eq!(&y[2..5], &[0.0; 3], "{level:?}");
        }
        let x = x.map(|x| (x / 7.2) as f32);
        for (level, y) in single(Function::Exp, &x) {
            assert_eq!(y[0], 1.0, "{level:?}");
            assert!(y[1] > 0.0 && y[1] < f32::MIN_POSITIVE, "{level:?} {}", y[1]);
            assert_eq!(&y[3..5], &[0.0; 2], "{level:?}");
        }
    }

    #[test]
    fn tanh_is_within_six_ulp_and_odd() {
        let mut inputs = grid(-30.0, 30.0, 1 << 16);
        inputs.extend(grid(-0.6, 0.6, 1 << 16));
        inputs.extend(grid(-1e-6, 1e-6, 1 << 12));
        let x32: Vec<f32> = inputs.iter().map(|x| *x as f32).collect();
        for (level, y) in single(Function::Tanh, &x32) {
            for (x, y) in x32.iter().zip(y) {
                assert!(ulps(y, f64::from(*x).tanh()) <= 6.0, "{level:?} {x} {y}");
            }
        }
        let minus: Vec<f64> = inputs.iter().map(|x| -x).collect();
        for ((level, y), (_, z)) in double(Function::Tanh, &inputs).into_iter().zip(double(Function::Tanh, &minus)) {
            for ((x, y), z) in inputs.iter().zip(y).zip(z) {
                assert!(ulps(y, x.tanh()) <= 6.0, "{level:?} {x} {y}");
                assert_eq!(y, -z);
            }
        }
    }

    #[test]
    fn powers_round_once_per_multiplication() {
        let inputs = grid(-2.0, 2.0, 1 << 10);
        let x32: Vec<f32> = inputs.iter().map(|x| *x as f32).collect();
        for degree in [1u32, 2, 3, 7, 10, 64] {
            for (level, y) in single(Function::Power(degree), &x32) {
                for (x, y) in x32.iter().zip(y) {
                    let want = f64::from(*x).powi(degree as i32);
                    assert!(ulps(y, want) <= 2.0 * f64::from(degree), "{level:?} {x}^{degree} {y}");
                }
            }
        }
    }
}
