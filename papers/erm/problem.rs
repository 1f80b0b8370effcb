//! The problem of section 4.1: class +1 is ¾N(0.75, 0.15) + ¼N(0.2, 0.02), class −1 is U(0, 0.5), P(+1) = ⅔.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::common::machine::Sample;

/// P(y = +1).
pub(crate) const PRIOR: f64 = 2.0 / 3.0;

/// Weight, mean and standard deviation of the parts of class +1.
const PARTS: [(f64, f64, f64); 2] = [(0.75, 0.75, 0.15), (0.25, 0.2, 0.02)];

/// p(x | +1).
pub(crate) fn density_plus(x: f64) -> f64 {
    let bell = |m: f64, s: f64| (-0.5 * ((x - m) / s).powi(2)).exp() / (s * (2.0 * std::f64::consts::PI).sqrt());
    PARTS.iter().map(|(weight, m, s)| weight * bell(*m, *s)).sum()
}

/// p(x | −1).
pub(crate) fn density_minus(x: f64) -> f64 {
    if (0.0..=0.5).contains(&x) { 2.0 } else { 0.0 }
}

/// (33) with the priors: the probability that "+1 above the threshold" is wrong.
pub(crate) fn error_of_threshold(threshold: f64) -> f64 {
    let below: f64 = PARTS.iter().map(|(weight, m, s)| weight * normal_below((threshold - m) / s)).sum();
    let above = 1.0 - (threshold / 0.5).clamp(0.0, 1.0);
    PRIOR * below + (1.0 - PRIOR) * above
}

/// The probability that "−1 above the threshold" is wrong: a machine whose w came out negative.
pub(crate) fn error_of_reversed_threshold(threshold: f64) -> f64 {
    1.0 - error_of_threshold(threshold)
}

/// ∫ min(⅔p(x|+1), ⅓p(x|−1)) dx. Only 0 ≤ x ≤ ½ counts: elsewhere class −1 has no density.
pub(crate) fn bayes_error() -> f64 {
    // The integrand has four corners and is smooth between: midpoints of a fine grid are good to 1e-9.
    let steps = 1_000_000;
    let h = 0.5 / f64::from(steps);
    let least = |x: f64| (PRIOR * density_plus(x)).min((1.0 - PRIOR) * density_minus(x));
    (0..steps).map(|i| least((f64::from(i) + 0.5) * h)).sum::<f64>() * h
}

/// Φ(x): a Taylor series about 0, which converges for all x, and 0 or 1 (within 1e-9) for |x| > 6.
fn normal_below(x: f64) -> f64 {
    if x.abs() > 6.0 {
        // Φ(−6) is 1e-9.
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    // Φ(x) = ½ + φ(x)·(x + x³/3 + x⁵/(3·5) + …).
    let (mut term, mut sum, mut k) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        k += 2.0;
        term *= x * x / k;
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// `n` samples, seeded.
pub(crate) fn draw(n: usize, seed: u64) -> margrave::Result<Sample> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut x, mut y) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for _ in 0..n {
        if rng.random::<f64>() < PRIOR {
            let (_, m, s) = PARTS[usize::from(rng.random::<f64>() >= PARTS[0].0)];
            let z: f64 = StandardNormal.sample(&mut rng);
            x.push(m + s * z);
            y.push(1.0);
        } else {
            x.push(0.5 * rng.random::<f64>());
            y.push(-1.0);
        }
    }
    Sample::new(1, x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_of_the_paper() {
        assert!((error_of_threshold(0.5) - 0.1906).abs() < 5e-5, "{}", error_of_threshold(0.5));
        assert!((bayes_error() - 0.0837).abs() < 5e-5, "{}", bayes_error());
        assert!((error_of_threshold(-1.0) - 1.0 / 3.0).abs() < 1e-9);
        assert!((error_of_threshold(3.0) - 2.0 / 3.0).abs() < 1e-9);
        // Table of the normal distribution.
        assert!((normal_below(1.0) - 0.841_344_746_068_543).abs() < 1e-14);
        assert!((normal_below(-3.0) - 0.001_349_898_031_630).abs() < 1e-14);
    }

    #[test]
    fn samples_follow_the_densities() {
        let sample = draw(20_000, 7).expect("a sample");
        let plus = sample.y.iter().filter(|y| **y > 0.0).count() as f64 / 20_000.0;
        // Five standard deviations of a share: 5·√(2/9/20000) = 0.017.
        assert!((plus - PRIOR).abs() < 0.017, "{plus}");
        let mut row = [0.0];
        let wrong = (0..20_000)
            .filter(|&i| {
                sample.points.copy_row(i, &mut row);
                (row[0] > 0.5) != (sample.y[i] > 0.0)
            })
            .count();
        assert!((wrong as f64 / 20_000.0 - error_of_threshold(0.5)).abs() < 0.014);
    }
}
