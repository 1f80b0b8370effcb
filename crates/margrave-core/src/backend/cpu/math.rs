//! Vectorised exp, tanh, integer powers, and kernels as functions of their statistic.
//!
//! Errors, measured by the tests below against double precision (f32) or the standard library (f64):
//! exp on (−∞, 0]: at most 2 ulp, 1 exactly at 0, subnormal results kept, 0 below. tanh: at most 6 ulp, odd. Powers: each
//! multiplication rounds once, at most `2·degree` roundings' worth.

use super::simd::Simd;

/// Constants of the exponential for one scalar.
pub(crate) trait ExpTable: super::simd::Scalar {
    const LOG2E: Self;
    /// −ln 2 in two parts, the first short enough that n·HIGH is exact.
    const HIGH: Self;
    const LOW: Self;
    /// Below this e^x rounds to zero.
    const FLOOR: Self;
    /// Below −this, tanh(x/2) is −1.
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

/// `(n, e^r − 1)` with x = n·ln 2 + r.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn reduce<V: Simd>(x: V) -> (V, V)
where
    V::T: ExpTable,
{
    // SAFETY: the caller has the instructions of V.
    unsafe {
        let n = x.mul(V::splat(V::T::LOG2E)).round();
        let r = n.fma(V::splat(V::T::HIGH), x);
        let r = n.fma(V::splat(V::T::LOW), r);
        let series = V::T::SERIES;
        let mut q = V::splat(series[0]);
        for c in &series[1..] {
            q = q.fma(r, V::splat(*c));
        }
        (n, q.fma(r.mul(r), r))
    }
}

/// e^x for x ≤ 0.
///
/// # Safety
/// Needs the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn exp<V: Simd>(x: V) -> V
where
    V::T: ExpTable,
{
    // SAFETY: the caller has the instructions of V.
    unsafe {
        let (n, p) = reduce(x.max(V::splat(V::T::FLOOR)));
        p.add(V::splat(V::T::ONE)).scale(n)
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
        let (n, p) = reduce(x.abs().mul(V::splat(V::T::MINUS_TWO)).max(V::splat(V::T::FLAT)));
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
