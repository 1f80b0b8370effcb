//! Small helpers for property tests.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rand_chacha::ChaCha8Rng;

/// Runs `body(seed, rng)` for `count` seeds; a failure reports its seed.
pub fn for_seeds(count: u64, mut body: impl FnMut(u64, &mut ChaCha8Rng)) {
    for seed in 0..count {
        let mut rng = crate::generate::rng(seed);
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| body(seed, &mut rng))) {
            let text = cause
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| cause.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a message")
                .to_owned();
            resume_unwind(Box::new(format!("seed {seed}: {text}")));
        }
    }
}

/// |a − b| / max(1, |a|, |b|): absolute near zero, relative away from it.
pub fn distance(a: f64, b: f64) -> f64 {
    if a == b {
        return 0.0;
    }
    (a - b).abs() / 1f64.max(a.abs()).max(b.abs())
}

/// Fails unless `distance(a, b) ≤ tolerance`; the message shows all three.
#[track_caller]
pub fn assert_close(what: &str, a: f64, b: f64, tolerance: f64) {
    let off = distance(a, b);
    assert!(off <= tolerance, "{what}: {a} and {b} differ by {off:e}, more than {tolerance:e}");
}

/// Fails unless two slices have equal lengths and every pair is close; the message shows the worst pair.
#[track_caller]
pub fn assert_all_close(what: &str, a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len(), "{what}: lengths differ");
    let worst = (0..a.len()).max_by(|&i, &j| distance(a[i], b[i]).total_cmp(&distance(a[j], b[j])));
    if let Some(i) = worst {
        assert_close(&format!("{what}[{i}]"), a[i], b[i], tolerance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reports_its_seed() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let caught = catch_unwind(|| for_seeds(5, |seed, _| assert!(seed < 3, "too large")));
        std::panic::set_hook(hook);
        let text = caught.unwrap_err().downcast_ref::<String>().cloned().unwrap();
        assert_eq!(text, "seed 3: too large");
    }

    #[test]
    fn closeness_is_relative_away_from_zero_and_catches_nan() {
        assert_close("x", 1e9, 1e9 + 1.0, 1e-8);
        assert!(catch_unwind(|| assert_close("x", 1.0, 1.1, 1e-3)).is_err());
        assert!(catch_unwind(|| assert_close("x", f64::NAN, 1.0, 1e-3)).is_err());
        assert_close("inf", f64::INFINITY, f64::INFINITY, 0.0);
    }
}
