//! Numbers formatted as by the C library, for files and output that other programs compare or parse.

/// `value` as `%.{digits}g` prints it: `digits` significant digits, no trailing zeros, and an exponent of at least two
/// digits if it is below −4 or at least `digits`.
pub fn c_number(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf".into() } else { "inf".into() };
    }
    let digits = digits.max(1);
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let rounded = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let places = (digits as i32 - 1 - exponent).max(0) as usize;
    trim(&format!("{value:.places$}")).to_owned()
}

fn trim(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The shortest of `%.8g`, `%.9g`, … that reads back to the same number: the same text as LIBSVM's if eight digits are
/// enough, and lossless otherwise.
pub fn c_number_exact(value: f64) -> String {
    (8..17)
        .map(|digits| c_number(value, digits))
        .find(|text| text.parse() == Ok(value))
        .unwrap_or_else(|| c_number(value, 17))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_like_printf() {
        for (value, digits, text) in [
            (0.0, 6, "0"),
            (-0.0, 6, "-0"),
            (1.0, 17, "1"),
            (0.1, 17, "0.10000000000000001"),
            (0.1, 6, "0.1"),
            (1e-5, 6, "1e-05"),
            (-1.5e-10, 8, "-1.5e-10"),
            (0.0001, 6, "0.0001"),
            (123456.0, 6, "123456"),
            (1234567.0, 6, "1.23457e+06"),
            (999999.5, 6, "1e+06"),
            (1e100, 6, "1e+100"),
            (100.0, 17, "100"),
            (1.0 / 3.0, 8, "0.33333333"),
            (96.6666666, 6, "96.6667"),
            (f64::INFINITY, 6, "inf"),
        ] {
            assert_eq!(c_number(value, digits), text);
        }
        assert_eq!(c_number_exact(0.708333), "0.708333");
        assert_eq!(c_number_exact(-2e-5), "-2e-05");
        for value in [1.0 / 3.0, 0.1 + 0.2, 1e-300 / 7.0, 12345678.9] {
            assert_eq!(c_number_exact(value).parse(), Ok(value));
        }
    }
}
