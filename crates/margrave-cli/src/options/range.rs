//! Ranges of numbers: 1e-6..1e3*10, 0..1+0.25, 1,2,5.

use super::value::number;

/// More values than this are taken for a typing error.
const MOST_VALUES: usize = 100_000;

/// The values of `from..to*factor`, `from..to+step` or a list `a,b,c`, in that order. Ends are included.
pub(crate) fn range(text: &str) -> Result<Vec<f64>, String> {
    let Some((from, rest)) = text.split_once("..") else {
        return text.split(',').map(|part| number(part.trim())).collect();
    };
    let from = number(from)?;
    // The operator is the last * or + that is no exponent's sign: 1e+3*10.
    let at = rest
        .char_indices()
        .filter(|(i, c)| *c == '*' || *c == '+' && !rest[..*i].ends_with(['e', 'E', '^']) && *i > 0)
        .map(|(i, _)| i)
        .next_back()
        .ok_or("expected from..to*factor, from..to+step or a list a,b,c")?;
    let (to, by) = (number(&rest[..at])?, number(&rest[at + 1..])?);
    if rest[at..].starts_with('*') { geometric(from, to, by) } else { arithmetic(from, to, by) }
}

fn geometric(from: f64, to: f64, factor: f64) -> Result<Vec<f64>, String> {
    if !(from > 0.0 && to > 0.0 && factor > 0.0) || factor == 1.0 {
        return Err("from..to*factor needs numbers > 0 and a factor other than 1".to_owned());
    }
    count((to / from).ln() / factor.ln()).map(|count| (0..count).map(|i| from * factor.powi(i as i32)).collect())
}

fn arithmetic(from: f64, to: f64, step: f64) -> Result<Vec<f64>, String> {
    if step == 0.0 {
        return Err("from..to+step needs a step other than 0".to_owned());
    }
    count((to - from) / step).map(|count| (0..count).map(|i| from + i as f64 * step).collect())
}

/// The number of values in a range of that many steps: the first one, and the last one despite rounding.
fn count(steps: f64) -> Result<usize, String> {
    if steps < -1e-9 {
        return Err("the range never reaches its end: check the sign of the step, or the factor".to_owned());
    }
    let whole = (steps * (1.0 + 1e-12) + 1e-9).floor();
    if whole < MOST_VALUES as f64 {
        Ok(whole as usize + 1)
    } else {
        Err(format!("the range has more than {MOST_VALUES} values"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists() {
        let close = |text: &str, expected: &[f64]| {
            let found = range(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
            assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() <= 1e-12 * e.abs()), "{text}: {found:?}");
        };
        close("1e-6..1e3*10", &[1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3]);
        close("2^-5..2^3*4", &[2f64.powi(-5), 2f64.powi(-3), 0.5, 2.0, 8.0]);
        close("8..1*0.5", &[8.0, 4.0, 2.0, 1.0]);
        close("0..1+0.25", &[0.0, 0.25, 0.5, 0.75, 1.0]);
        close("1e+1..3e+1+1e+1", &[10.0, 20.0, 30.0]);
        close("3..-1+-2", &[3.0, 1.0, -1.0]);
        close("1..10*3", &[1.0, 3.0, 9.0]);
        close("0.1, 2^3,5", &[0.1, 8.0, 5.0]);
        close("7", &[7.0]);
        close("1..1*2", &[1.0]);
        for bad in ["", "1..2", "1..2*1", "1..2*0", "0..1*2", "1..0*2", "1..0+1", "0..1+0", "x", "1,,2", "1..1e9+1"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
