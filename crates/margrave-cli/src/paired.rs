//! Tests of paired differences.

/// Below this probability a difference is called one.
pub(crate) const LEVEL: f64 = 0.05;

/// ln Γ(x) for x > 0: Stirling's series, after raising x to where it is exact to rounding.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut below) = (x, 0.0);
    while x < 15.0 {
        below += x.ln();
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    let series = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - below
}

/// The regularised incomplete beta function, by its continued fraction (modified Lentz).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // The fraction converges fast on this side only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    let safe = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / safe(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for m in 1..10_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / safe(1.0 + term * d);
            c = safe(1.0 + term / c);
            change = d * c;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    (front * value).min(1.0)
}

/// The probability that fair coins split at least as unevenly as this.
pub(crate) fn mc_nemar(first: u64, second: u64) -> f64 {
    let (low, n) = (first.min(second), first + second);
    if 2 * low == n {
        return 1.0;
    }
    // P(X ≤ low) for n fair coins.
    (2.0 * incomplete_beta((n - low) as f64, low as f64 + 1.0, 0.5)).min(1.0)
}

/// How often the differences are below and above 0, and the exact probability of so uneven a split; ties do not count.
pub(crate) fn sign_test(differences: &[f64]) -> (u64, u64, f64) {
    let below = differences.iter().filter(|d| **d < 0.0).count() as u64;
    let above = differences.iter().filter(|d| **d > 0.0).count() as u64;
    (below, above, mc_nemar(below, above))
}

/// A paired t test.
pub(crate) struct Student {
    pub(crate) mean: f64,
    pub(crate) t: f64,
    pub(crate) freedom: usize,
    /// Two-sided.
    pub(crate) p: f64,
}

/// Whether the mean of the differences is 0; `None` for fewer than two, or if all are equal.
pub(crate) fn paired_t(differences: &[f64]) -> Option<Student> {
    let n = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / n;
    let spread = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    if !(n >= 2.0 && spread > 0.0) {
        return None;
    }
    let (t, freedom) = (mean / (spread / n).sqrt(), n - 1.0);
    let p = incomplete_beta(0.5 * freedom, 0.5, freedom / (freedom + t * t));
    Some(Student { mean, t, freedom: differences.len() - 1, p })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_binomial_probabilities() {
        // 2·(1 + 10 + 45)/2¹⁰, by hand; also its mirror image and the ends.
        assert!((mc_nemar(2, 8) - 112.0 / 1024.0).abs() < 1e-13);
        assert!((mc_nemar(8, 2) - 112.0 / 1024.0).abs() < 1e-13);
        assert!((mc_nemar(0, 6) - 2.0 / 64.0).abs() < 1e-14);
        assert_eq!((mc_nemar(0, 0), mc_nemar(7, 7)), (1.0, 1.0));
        assert!((mc_nemar(3, 4) - 1.0).abs() < 1e-13);
        assert!(mc_nemar(4000, 6000) < 1e-80);
    }

    #[test]
    fn probabilities_of_student() {
        // One degree of freedom is Cauchy's: P(|t| > 1) = ½. Differences 0 and 2 have t = 1.
        let t = paired_t(&[0.0, 2.0]).expect("a spread");
        assert!((t.t - 1.0).abs() < 1e-15 && (t.p - 0.5).abs() < 1e-12, "{} {}", t.t, t.p);
        // Two degrees of freedom: P(|t| > x) = 1 − x/√(2 + x²).
        let t = paired_t(&[1.0, 2.0, 6.0]).expect("a spread");
        assert!((t.p - (1.0 - t.t / (2.0 + t.t * t.t).sqrt())).abs() < 1e-12, "{}", t.p);
        assert!(paired_t(&[1.0, 1.0]).is_none() && paired_t(&[1.0]).is_none() && paired_t(&[]).is_none());
        assert_eq!(sign_test(&[1.0, -1.0, 0.0, 2.0]).0, 1);
    }
}
