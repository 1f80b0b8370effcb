//! Vectors of the widths the processor supports, behind one trait, so that every inner loop is written once.
//!
//! Methods are `inline(always)` and have no target feature of their own: they use that of the function they are inlined
//! into. They must therefore only be called from the entry functions in [`super::tile`] and [`super::sparse`], which
//! enable the features of their [`Level`], and never through a closure, which the compiler may compile as a separate
//! function without them.

use crate::data::Real;

/// The instructions a Gram is computed with. Entries may differ in the last bits between levels, never within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What the compilation target guarantees.
    Portable,
    /// 256-bit vectors and fused multiply-add.
    Avx2,
    /// 512-bit vectors.
    Avx512,
}

impl Level {
    /// The best level this processor supports.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") && Self::avx2() {
                return Level::Avx512;
            }
            if Self::avx2() {
                return Level::Avx2;
            }
        }
        Level::Portable
    }

    #[cfg(target_arch = "x86_64")]
    fn avx2() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    /// All levels this processor supports, the portable one first.
    pub fn available() -> Vec<Self> {
        [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|level| *level <= Self::detect()).collect()
    }
}

/// A scalar that entries are computed in.
pub(crate) trait SimdScalar: Real {
    /// Columns in a panel: two 512-bit vectors.
    const NR: usize;
    /// Unit roundoff.
    const ROUND: f64;
    /// Largest finite value.
    const MAX: f64;
    /// `a·b + c`, fused if `FMA`.
    fn fma<const FMA: bool>(a: Self, b: Self, c: Self) -> Self;
    /// `a + b`.
    fn plus(a: Self, b: Self) -> Self;
}

impl SimdScalar for f32 {
    const NR: usize = 32;
    const ROUND: f64 = (f32::EPSILON / 2.0) as f64;
    const MAX: f64 = f32::MAX as f64;
    #[inline(always)]
    fn fma<const FMA: bool>(a: Self, b: Self, c: Self) -> Self {
        if FMA { a.mul_add(b, c) } else { a * b + c }
    }
    #[inline(always)]
    fn plus(a: Self, b: Self) -> Self {
        a + b
    }
}

impl SimdScalar for f64 {
    const NR: usize = 16;
    const ROUND: f64 = f64::EPSILON / 2.0;
    const MAX: f64 = f64::MAX;
    #[inline(always)]
    fn fma<const FMA: bool>(a: Self, b: Self, c: Self) -> Self {
        if FMA { a.mul_add(b, c) } else { a * b + c }
    }
    #[inline(always)]
    fn plus(a: Self, b: Self) -> Self {
        a + b
    }
}

/// Whether `mul_add` is one instruction without any run-time detection.
pub(crate) const PORTABLE_FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// A vector of [`Simd::N`] scalars.
///
/// # Safety
/// Every method needs the instructions of the implementing type; `load` and `store` need `N` valid scalars at the
/// pointer.
pub(crate) trait Simd: Copy {
    type T: SimdScalar;
    /// Number of scalars; divides `T::NR`.
    const N: usize;
    /// Rows of a register tile that is two vectors wide.
    const ROWS: usize;
    unsafe fn splat(value: Self::T) -> Self;
    unsafe fn load(from: *const Self::T) -> Self;
    unsafe fn store(self, to: *mut Self::T);
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn div(self, b: Self) -> Self;
    unsafe fn max(self, b: Self) -> Self;
    unsafe fn min(self, b: Self) -> Self;
    /// Whether any scalar is greater than that of `b`.
    unsafe fn any_above(self, b: Self) -> bool;
    /// `self·b + c`
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    unsafe fn abs(self) -> Self;
    unsafe fn sqrt(self) -> Self;
    /// Nearest whole number, ties to even; |self| < 2²².
    unsafe fn round(self) -> Self;
    /// `self·2ⁿ` rounded once, for whole `n` from −1100 to 0 (f64) or −160 to 0 (f32) and `self` between 1/2 and 2.
    unsafe fn scale(self, n: Self) -> Self;
    /// The same where no `n` is below [`LEAST_NORMAL`](Self::LEAST_NORMAL), so that the result is a normal number.
    #[inline(always)]
    unsafe fn scale_normal(self, n: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { self.scale(n) }
    }
    /// Whether [`scale_normal`](Self::scale_normal) is faster than [`scale`](Self::scale) for `n` from here on.
    const LEAST_NORMAL: Option<f64> = None;
    /// `self` with the sign of `sign`; `self ≥ 0`.
    unsafe fn with_sign(self, sign: Self) -> Self;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Simd;
    use std::arch::x86_64::*;

    macro_rules! simd {
        ($v:ty, $t:ty, $n:expr, $rows:expr, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $div:ident,
         $max:ident, $min:ident, $fma:ident, $sqrt:ident,
         above: |$above_a:ident, $above_b:ident| $above:expr, abs: |$abs_a:ident| $abs:expr, round: |$round_a:ident| $round:expr,
         scale: |$scale_a:ident, $scale_n:ident| $scale:expr,
         $(normal from $least:literal: |$normal_a:ident, $normal_n:ident| $normal:expr,)?
         sign: |$sign_a:ident, $sign_s:ident| $sign:expr) => {
            // SAFETY (all methods): the caller guarantees the instructions and valid pointers, as the trait requires.
            #[allow(clippy::undocumented_unsafe_blocks)]
            impl Simd for $v {
                type T = $t;
                const N: usize = $n;
                const ROWS: usize = $rows;
                #[inline(always)]
                unsafe fn splat(value: $t) -> Self {
                    unsafe { $splat(value) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $t) -> Self {
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $t) {
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn add(self, b: Self) -> Self {
                    unsafe { $add(self, b) }
                }
                #[inline(always)]
                unsafe fn sub(self, b: Self) -> Self {
                    unsafe { $sub(self, b) }
                }
                #[inline(always)]
                unsafe fn mul(self, b: Self) -> Self {
                    unsafe { $mul(self, b) }
                }
                #[inline(always)]
                unsafe fn div(self, b: Self) -> Self {
                    unsafe { $div(self, b) }
                }
                #[inline(always)]
                unsafe fn max(self, b: Self) -> Self {
                    unsafe { $max(self, b) }
                }
                #[inline(always)]
                unsafe fn min(self, b: Self) -> Self {
                    unsafe { $min(self, b) }
                }
                #[inline(always)]
                unsafe fn any_above(self, b: Self) -> bool {
                    let ($above_a, $above_b) = (self, b);
                    unsafe { $above }
                }
                #[inline(always)]
                unsafe fn fma(self, b: Self, c: Self) -> Self {
                    unsafe { $fma(self, b, c) }
                }
                #[inline(always)]
                unsafe fn sqrt(self) -> Self {
                    unsafe { $sqrt(self) }
                }
                #[inline(always)]
                unsafe fn abs(self) -> Self {
                    let $abs_a = self;
                    unsafe { $abs }
                }
                #[inline(always)]
                unsafe fn round(self) -> Self {
                    let $round_a = self;
                    unsafe { $round }
                }
                #[inline(always)]
                unsafe fn scale(self, n: Self) -> Self {
                    let ($scale_a, $scale_n) = (self, n);
                    unsafe { $scale }
                }
                $(
                    const LEAST_NORMAL: Option<f64> = Some($least);
                    #[inline(always)]
                    unsafe fn scale_normal(self, n: Self) -> Self {
                        let ($normal_a, $normal_n) = (self, n);
                        unsafe { $normal }
                    }
                )?
                #[inline(always)]
                unsafe fn with_sign(self, sign: Self) -> Self {
                    let ($sign_a, $sign_s) = (self, sign);
                    unsafe { $sign }
                }
            }
        };
    }

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

    simd!(__m512, f32, 16, 8, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, _mm512_sub_ps, _mm512_mul_ps,
        _mm512_div_ps, _mm512_max_ps, _mm512_min_ps, _mm512_fmadd_ps, _mm512_sqrt_ps,
        above: |a, b| _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) != 0,
        abs: |a| _mm512_abs_ps(a),
        round: |a| _mm512_roundscale_ps::<NEAREST>(a),
        scale: |a, n| _mm512_scalef_ps(a, n),
        sign: |a, s| _mm512_or_ps(a, _mm512_and_ps(s, _mm512_set1_ps(-0.0))));

    simd!(__m512d, f64, 8, 8, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_add_pd, _mm512_sub_pd, _mm512_mul_pd,
        _mm512_div_pd, _mm512_max_pd, _mm512_min_pd, _mm512_fmadd_pd, _mm512_sqrt_pd,
        above: |a, b| _mm512_cmp_pd_mask::<_CMP_GT_OQ>(a, b) != 0,
        abs: |a| _mm512_abs_pd(a),
        round: |a| _mm512_roundscale_pd::<NEAREST>(a),
        scale: |a, n| _mm512_scalef_pd(a, n),
        sign: |a, s| _mm512_or_pd(a, _mm512_and_pd(s, _mm512_set1_pd(-0.0))));

    simd!(__m256, f32, 8, 4, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_sub_ps, _mm256_mul_ps,
        _mm256_div_ps, _mm256_max_ps, _mm256_min_ps, _mm256_fmadd_ps, _mm256_sqrt_ps,
        above: |a, b| _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b)) != 0,
        abs: |a| _mm256_andnot_ps(_mm256_set1_ps(-0.0), a),
        round: |a| _mm256_round_ps::<NEAREST>(a),
        scale: |a, n| {
            // 2ⁿ may be below the smallest normal number: multiply by two halves, the first product being exact.
            let low = _mm256_round_ps::<NEAREST>(_mm256_mul_ps(n, _mm256_set1_ps(0.5)));
            let bias = _mm256_set1_epi32(127);
            let first = _mm256_add_epi32(_mm256_cvtps_epi32(low), bias);
            let second = _mm256_add_epi32(_mm256_cvtps_epi32(_mm256_sub_ps(n, low)), bias);
            let first = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(first));
            let second = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(second));
            _mm256_mul_ps(_mm256_mul_ps(a, first), second)
        },
        normal from -125.0: |a, n| {
            // The exponent of the result is that of `a` plus n.
            let exponents = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), exponents))
        },
        sign: |a, s| _mm256_or_ps(a, _mm256_and_ps(s, _mm256_set1_ps(-0.0))));

    simd!(__m256d, f64, 4, 4, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_add_pd, _mm256_sub_pd, _mm256_mul_pd,
        _mm256_div_pd, _mm256_max_pd, _mm256_min_pd, _mm256_fmadd_pd, _mm256_sqrt_pd,
        above: |a, b| _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_GT_OQ>(a, b)) != 0,
        abs: |a| _mm256_andnot_pd(_mm256_set1_pd(-0.0), a),
        round: |a| _mm256_round_pd::<NEAREST>(a),
        scale: |a, n| {
            let low = _mm256_round_pd::<NEAREST>(_mm256_mul_pd(n, _mm256_set1_pd(0.5)));
            let bias = _mm_set1_epi32(1023);
            let first = _mm_add_epi32(_mm256_cvtpd_epi32(low), bias);
            let second = _mm_add_epi32(_mm256_cvtpd_epi32(_mm256_sub_pd(n, low)), bias);
            let first = _mm256_castsi256_pd(_mm256_slli_epi64::<52>(_mm256_cvtepi32_epi64(first)));
            let second = _mm256_castsi256_pd(_mm256_slli_epi64::<52>(_mm256_cvtepi32_epi64(second)));
            _mm256_mul_pd(_mm256_mul_pd(a, first), second)
        },
        normal from -1021.0: |a, n| {
            // As above; the lowest bits of n + 1.5·2⁵² are those of n.
            let whole = _mm256_add_pd(n, _mm256_set1_pd(6_755_399_441_055_744.0));
            let exponents = _mm256_slli_epi64::<52>(_mm256_castpd_si256(whole));
            _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(a), exponents))
        },
        sign: |a, s| _mm256_or_pd(a, _mm256_and_pd(s, _mm256_set1_pd(-0.0))));
}

/// Eight single-precision numbers on any processor, vectorised by the compiler.
#[derive(Clone, Copy)]
pub(crate) struct Wide32([f32; 8]);
/// Four double-precision numbers on any processor.
#[derive(Clone, Copy)]
pub(crate) struct Wide64([f64; 4]);

macro_rules! portable {
    ($v:ident, $t:ty, $n:expr, $bits:ty, $int:ty, $bias:expr, $mantissa:expr) => {
        impl $v {
            #[inline(always)]
            fn each(mut self, f: impl Fn($t) -> $t) -> Self {
                self.0.iter_mut().for_each(|a| *a = f(*a));
                self
            }
            #[inline(always)]
            fn both(mut self, b: Self, f: impl Fn($t, $t) -> $t) -> Self {
                self.0.iter_mut().zip(b.0).for_each(|(a, b)| *a = f(*a, b));
                self
            }
        }
        impl Simd for $v {
            type T = $t;
            const N: usize = $n;
            const ROWS: usize = 2;
            #[inline(always)]
            unsafe fn splat(value: $t) -> Self {
                Self([value; $n])
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                // SAFETY: the caller guarantees N valid scalars.
                Self(unsafe { from.cast::<[$t; $n]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                // SAFETY: the caller guarantees room for N scalars.
                unsafe { to.cast::<[$t; $n]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                self.both(b, |a, b| a + b)
            }
            #[inline(always)]
            unsafe fn sub(self, b: Self) -> Self {
                self.both(b, |a, b| a - b)
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                self.both(b, |a, b| a * b)
            }
            #[inline(always)]
            unsafe fn div(self, b: Self) -> Self {
                self.both(b, |a, b| a / b)
            }
            #[inline(always)]
            unsafe fn max(self, b: Self) -> Self {
                self.both(b, |a, b| if a > b { a } else { b })
            }
            #[inline(always)]
            unsafe fn min(self, b: Self) -> Self {
                self.both(b, |a, b| if a < b { a } else { b })
            }
            #[inline(always)]
            unsafe fn any_above(self, b: Self) -> bool {
                self.0.iter().zip(b.0).any(|(a, b)| *a > b)
            }
            #[inline(always)]
            unsafe fn fma(mut self, b: Self, c: Self) -> Self {
                for ((a, b), c) in self.0.iter_mut().zip(b.0).zip(c.0) {
                    *a = <$t as SimdScalar>::fma::<PORTABLE_FMA>(*a, b, c);
                }
                self
            }
            #[inline(always)]
            unsafe fn abs(self) -> Self {
                self.each(|a| a.abs())
            }
            #[inline(always)]
            unsafe fn sqrt(self) -> Self {
                self.each(|a| a.sqrt())
            }
            #[inline(always)]
            unsafe fn round(self) -> Self {
                // Adding 1.5·2^mantissa shifts the fraction out of the significand.
                const MAGIC: $t = (3u64 << ($mantissa - 1)) as $t;
                self.each(|a| (a + MAGIC) - MAGIC)
            }
            #[inline(always)]
            unsafe fn scale(self, n: Self) -> Self {
                let power = |m: $t| <$t>::from_bits((((m as $int) + $bias) as $bits) << $mantissa);
                self.both(n, |a, n| {
                    let low = (0.5 * n) as $int as $t;
                    a * power(low) * power(n - low)
                })
            }
            #[inline(always)]
            unsafe fn with_sign(self, sign: Self) -> Self {
                self.both(sign, |a, s| a.copysign(s))
            }
        }
    };
}

portable!(Wide32, f32, 8, u32, i32, 127, 23);
portable!(Wide64, f64, 4, u64, i64, 1023, 52);
