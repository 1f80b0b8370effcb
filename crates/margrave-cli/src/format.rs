//! Numbers and tables for people.

use crate::terminal::{Style, Terminal};

/// A number to `digits` significant digits, plain where that is short, with an exponent where it is not.
pub(crate) fn number(value: f64, digits: usize) -> String {
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

/// A whole number with thin groups: 581 012.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digits.len() > 4 {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// A duration: 12 ms, 3.4 s, 2 min 5 s, 1 h 20 min.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else if seconds < 3600.0 {
        format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    } else {
        format!("{:.0} h {:.0} min", (seconds / 3600.0).floor(), (seconds % 3600.0) / 60.0)
    }
}

/// Aligned lines of a name and what it is.
pub(crate) fn table(terminal: &Terminal, rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter()
        .map(|(name, value)| {
            let pad = " ".repeat(width - name.chars().count());
            format!("  {}{pad}  {value}\n", terminal.paint(Style::Faint, name))
        })
        .collect()
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
        assert_eq!(count(581012), "581 012");
        assert_eq!(count(1000), "1000");
        assert_eq!(duration(0.0123), "12 ms");
        assert_eq!(duration(125.0), "2 min 5 s");
    }
}
