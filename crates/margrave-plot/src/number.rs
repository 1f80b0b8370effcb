//! Numbers as short text.

/// A number to `digits` significant digits, plain where that is short, with an exponent where it is not.
pub fn number(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = digits.max(1);
    // Round first: 9.9996 to four digits has the exponent of 10.00.
    let rounded = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..digits.max(6) as i32).contains(&exponent) {
        let places = (digits as i32 - 1 - exponent).max(0) as usize;
        trim(&format!("{value:.places$}")).to_owned()
    } else {
        format!("{}e{exponent}", trim(mantissa))
    }
}

fn trim(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_right() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.25, "0.25"),
            (-0.012345, "-0.01235"),
            (1234567.0, "1.235e6"),
            (123456.0, "123456"),
            (9.9996, "10"),
            (1e-9, "1e-9"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number(value, 4), text);
        }
    }
}
