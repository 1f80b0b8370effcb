//! Values of options: 2^-5, 1e-3, 2GiB.

/// A number: `0.5`, `1e-3`, `2^-5`.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let parse = |part: &str| part.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    let value = match text.split_once('^') {
        Some((base, exponent)) => match (parse(base), parse(exponent)) {
            (Some(base), Some(exponent)) => Some(base.powf(exponent)).filter(|v| v.is_finite()),
            _ => None,
        },
        None => parse(text),
    };
    value.ok_or_else(|| "expected a finite number such as 0.5, 1e-3 or 2^-5".to_owned())
}

/// A number > 0.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value > 0.0 { Ok(value) } else { Err("expected a number > 0".to_owned()) }
}

/// A number ≥ 0.
pub(crate) fn non_negative(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value >= 0.0 { Ok(value) } else { Err("expected a number ≥ 0".to_owned()) }
}

/// A number of bytes: `500MB`, `2GiB`, `1.5 GB`, `4096`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0f64.powi(4),
        _ => return Err(format!("unknown unit {unit:?}: use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")),
    };
    match digits.trim().parse::<f64>() {
        Ok(v) if v > 0.0 && v * scale < 1e18 => Ok((v * scale) as u64),
        _ => Err("expected a size such as 500MB or 2GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_sizes_and_errors() {
        assert_eq!(number("2^-5"), Ok(0.03125));
        assert_eq!(number("1e-3"), Ok(1e-3));
        for bad in ["", "x", "nan", "inf", "2^", "^2", "1e999", "10^400"] {
            assert!(number(bad).is_err(), "{bad}");
        }
        assert!(positive("0").is_err() && positive("-1").is_err());
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert_eq!(bytes("500MB"), Ok(500_000_000));
        assert_eq!(bytes("1.5 kb"), Ok(1500));
        assert_eq!(bytes("4096"), Ok(4096));
        for bad in ["", "GiB", "-1MB", "2 parsecs", "nanGB", "1e30GB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
