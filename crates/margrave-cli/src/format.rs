//! Numbers as text.

pub(crate) use margrave_plot::number;

/// A whole number in groups of three: 581 012.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_durations_are_short() {
        assert_eq!(count(581012), "581 012");
        assert_eq!(count(1000), "1000");
        assert_eq!(duration(0.0123), "12 ms");
        assert_eq!(duration(125.0), "2 min 5 s");
    }
}
