//! An upper confidence bound on the mean of bounded samples whose bound depends on the mean itself.
//!
//! Samples X₁, X₂, … are independent with mean μ ≤ 𝔼 and X ≤ R(μ) for a known non-decreasing R. If the mean is at least
//! τ, then for 0 ≤ λ ≤ 1/R(τ) every factor 1 − λ(X − τ) is non-negative with an expectation of at most 1, so the product
//! over the samples is a non-negative supermartingale that starts at 1, and so is any mixture over several λ. By Ville's
//! inequality it ever reaches 1/δ with a probability of at most δ: a τ at which it has can be excluded, however many
//! samples were looked at before deciding to stop (Waudby-Smith and Ramdas, *Estimating means of bounded random variables
//! by betting*, J. R. Stat. Soc. B 86, 2024).
//!
//! Whole intervals [τ, τ′] are excluded at once: with λ ≤ 1/R(τ′) the factors only grow with the mean.

/// Shares of the largest possible λ that are mixed, each half of the one before.
const SHARES: i32 = 20;
/// Ratio of successive values of τ that are examined.
const RATIO: f64 = 1.05;

/// The smallest bound on the mean that the samples allow at confidence 1 − δ, `certain` at most: a bound known without
/// samples. `most(τ)` is R(τ).
pub(super) fn upper_bound(samples: &[f64], delta: f64, certain: f64, most: impl Fn(f64) -> f64) -> f64 {
    let n = samples.len();
    if n == 0 || !(certain > 0.0) || !certain.is_finite() {
        return certain;
    }
    let mean = (samples.iter().sum::<f64>() / n as f64).max(0.0);
    let needed = (1.0 / delta).ln() + f64::from(SHARES).ln();
    let mut last_share = 0;
    let mut high = certain;
    // A mixture is at least each of its parts over their number.
    while high > mean {
        let low = (high / RATIO).max(mean);
        let range = most(high);
        let excluded = |share: i32| {
            let lambda = 0.99 * 0.5f64.powi(share) / range;
            let wealth: f64 = samples.iter().map(|x| (-lambda * (x - low)).max(-1.0).ln_1p()).sum();
            wealth >= needed
        };
        let order = (last_share..SHARES).chain(0..last_share);
        match order.into_iter().find(|&share| excluded(share)) {
            Some(share) => last_share = share,
            None => break,
        }
        if low <= f64::MIN_POSITIVE {
            break;
        }
        high = low;
    }
    high
}

#[cfg(test)]
mod tests {
    use super::upper_bound;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn the_bound_covers_the_mean_and_approaches_it() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        // Rare large values: 2 % are 10, the others are near 0; the mean is about 0.2.
        let mut draw = || {
            let rare: f64 = rng.random();
            if rare < 0.02 { 10.0 } else { rng.random_range(-0.5..0.5) }
        };
        let mut last = f64::INFINITY;
        for count in [500, 5000, 50_000] {
            let samples: Vec<f64> = (0..count).map(|_| draw()).collect();
            let bound = upper_bound(&samples, 1e-9, 100.0, |_| 10.0);
            assert!(bound >= 0.2 && bound < last, "{count}: {bound}");
            last = bound;
        }
        assert!(last < 0.26, "{last}");
    }

    #[test]
    fn without_samples_only_what_is_certain_is_known() {
        assert_eq!(upper_bound(&[], 1e-9, 7.0, |_| 1.0), 7.0);
    }

    /// At a confidence low enough to observe, the bound fails no more often than it says.
    #[test]
    fn failures_are_as_rare_as_promised() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let (trials, delta) = (2000, 0.05);
        let mut failures = 0;
        for _ in 0..trials {
            // 1 with probability 0.1, else 0: the bound on a sample is 1.
            let samples: Vec<f64> = (0..60).map(|_| f64::from(u8::from(rng.random::<f64>() < 0.1))).collect();
            failures += usize::from(upper_bound(&samples, delta, 1.0, |_| 1.0) < 0.1);
        }
        assert!(failures as f64 <= delta * f64::from(trials), "{failures}");
    }
}
