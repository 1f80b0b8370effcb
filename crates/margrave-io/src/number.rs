//! Parsing numbers.

use margrave_core::data::Real;

/// A scalar that text can be parsed into.
pub(crate) trait Number: Real + fast_float2::FastFloat {
    /// Name of the precision, for messages.
    const PRECISION: &'static str;
    /// `mantissa / 10^places`, if that is the correctly rounded value; otherwise `None`.
    fn small(mantissa: u64, places: usize) -> Option<Self>;
}

const POWERS_F64: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
const POWERS_F32: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

// Both operands are exact, so that the one division rounds correctly (Clinger 1990).
impl Number for f64 {
    const PRECISION: &'static str = "double";
    #[inline(always)]
    fn small(mantissa: u64, places: usize) -> Option<Self> {
        (mantissa <= 1 << 53 && places < POWERS_F64.len()).then(|| mantissa as f64 / POWERS_F64[places])
    }
}

impl Number for f32 {
    const PRECISION: &'static str = "single";
    #[inline(always)]
    fn small(mantissa: u64, places: usize) -> Option<Self> {
        (mantissa <= 1 << 24 && places < POWERS_F32.len()).then(|| mantissa as f32 / POWERS_F32[places])
    }
}

/// The number at the start of `text` and its length in bytes; `None` if there is none. May be infinite or NaN.
#[inline(always)]
pub(crate) fn prefix<T: Number>(text: &[u8]) -> Option<(T, usize)> {
    let (negative, start) = match text.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let mut at = start;
    let mut mantissa = 0u64;
    while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    let mut digits = at - start;
    let mut places = 0;
    if text.get(at) == Some(&b'.') {
        at += 1;
        let point = at;
        while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        places = at - point;
        digits += places;
    }
    // 19 digits cannot overflow 64 bits.
    if digits > 0
        && digits <= 19
        && !matches!(text.get(at), Some(b'e' | b'E'))
        && let Some(value) = T::small(mantissa, places)
    {
        return Some((if negative { T::from_f64(-value.to_f64()) } else { value }, at));
    }
    general(text)
}

#[cold]
#[inline(never)]
fn general<T: Number>(text: &[u8]) -> Option<(T, usize)> {
    fast_float2::parse_partial(text).ok()
}

/// The number that `text` consists of; `None` if it is not a number.
#[inline]
pub(crate) fn whole<T: Number>(text: &[u8]) -> Option<T> {
    prefix(text).filter(|(_, len)| *len == text.len()).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_spellings() {
        assert_eq!(whole::<f64>(b"+1"), Some(1.0));
        assert_eq!(whole::<f64>(b"-.5"), Some(-0.5));
        assert_eq!(whole::<f64>(b"5."), Some(5.0));
        assert_eq!(whole::<f64>(b"1e-3"), Some(1e-3));
        assert!(whole::<f64>(b"-0").is_some_and(|z| z == 0.0 && z.is_sign_negative()));
        for not in ["", ".", "-", "+", "e5", "1e", "1 ", "0x10", "1,5", "--1", "1_0"] {
            assert_eq!(whole::<f64>(not.as_bytes()), None, "{not}");
        }
        assert_eq!(prefix::<f64>(b"12:3"), Some((12.0, 2)));
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(value in any::<f64>(), places in 0usize..20) {
            for text in [format!("{value}"), format!("{value:e}"), format!("{:.*}", places, value % 1e6)] {
                let bits = text.parse::<f64>().unwrap();
                if bits.is_finite() {
                    prop_assert_eq!(whole::<f64>(text.as_bytes()).map(f64::to_bits), Some(bits.to_bits()), "{}", text);
                    let single = text.parse::<f32>().unwrap();
                    prop_assert_eq!(whole::<f32>(text.as_bytes()).map(f32::to_bits), Some(single.to_bits()), "{}", text);
                }
            }
        }
    }
}
