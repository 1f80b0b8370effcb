//! γ as given by the user: a number, or a rule that depends on the data.

use std::str::FromStr;

use rand::RngExt;
use rand::SeedableRng;

use crate::data::Points;
use crate::error::{Error, Result};

/// How γ is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Gamma {
    /// 1 / (d · variance of all entries of X): the default.
    #[default]
    Scale,
    /// 1 / d.
    Auto,
    /// 1 / median squared distance between two points (exact up to about 1 400 points, over 10⁶ seeded pairs beyond).
    Median,
    /// A number.
    Value(f64),
}

/// Number of pairs used by [`Gamma::Median`].
const PAIRS: usize = 1_000_000;

impl Gamma {
    /// The name of the rule; `None` for a number.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Gamma::Scale => Some("scale"),
            Gamma::Auto => Some("auto"),
            Gamma::Median => Some("median"),
            Gamma::Value(_) => None,
        }
    }

    /// The value of γ for these points. For constant data, where every rule divides by zero, it is 1.
    pub fn resolve(self, points: &Points, seed: u64) -> Result<f64> {
        let value = match self {
            Gamma::Value(v) => v,
            Gamma::Auto => 1.0 / points.dims().max(1) as f64,
            Gamma::Scale => {
                let total = points.len() as f64 * points.dims() as f64;
                // Two passes: the mean first, then the spread about it. Absent sparse entries are zeros.
                let mut sum = 0.0;
                (0..points.len()).for_each(|i| points.visit(i, |_, v| sum += v));
                let mean = sum / total;
                let absent = total - points.stored() as f64;
                let (mut square, mut rest) = (absent * mean * mean, -absent * mean);
                (0..points.len()).for_each(|i| {
                    points.visit(i, |_, v| {
                        square += (v - mean) * (v - mean);
                        rest += v - mean;
                    });
                });
                // The mean is rounded; far from the origin the rounding error may exceed the spread.
                let spread = (square - rest * rest / total) / total * points.dims() as f64;
                if spread > 0.0 { 1.0 / spread } else { 1.0 }
            }
            Gamma::Median => {
                let median = median_squared_distance(points, seed);
                if median > 0.0 { 1.0 / median } else { 1.0 }
            }
        };
        if value > 0.0 && value.is_finite() {
            Ok(value)
        } else {
            Err(Error::option("gamma", value, "a finite number > 0, or scale, auto, median"))
        }
    }
}

fn median_squared_distance(points: &Points, seed: u64) -> f64 {
    let n = points.len();
    if n < 2 {
        return 0.0;
    }
    let mut dense = vec![0.0; points.dims()];
    let norms = points.squared_norms();
    // dense must hold row i.
    let distance = |i: usize, j: usize, dense: &[f64]| {
        let mut dot = 0.0;
        points.visit(j, |k, v| dot += v * dense[k]);
        (norms[i] + norms[j] - 2.0 * dot).max(0.0)
    };
    let mut distances = Vec::new();
    if n * (n - 1) / 2 <= PAIRS {
        for i in 1..n {
            points.copy_row(i, &mut dense);
            distances.extend((0..i).map(|j| distance(i, j, &dense)));
        }
    } else {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..1000 {
            let i = rng.random_range(0..n);
            points.copy_row(i, &mut dense);
            for _ in 0..PAIRS / 1000 {
                let j = (i + rng.random_range(1..n)) % n;
                distances.push(distance(i, j, &dense));
            }
        }
    }
    let middle = distances.len() / 2;
    *distances.select_nth_unstable_by(middle, f64::total_cmp).1
}

impl FromStr for Gamma {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "scale" => Ok(Gamma::Scale),
            "auto" => Ok(Gamma::Auto),
            "median" => Ok(Gamma::Median),
            _ => match text.parse::<f64>() {
                Ok(v) if v > 0.0 && v.is_finite() => Ok(Gamma::Value(v)),
                _ => Err(Error::option("gamma", text, "a finite number > 0, or scale, auto, median")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_match_hand_computed_values() {
        let x = Points::dense_f64(2, 2, vec![0.0, 0.0, 2.0, 2.0]).unwrap();
        assert_eq!(Gamma::Auto.resolve(&x, 0).unwrap(), 0.5);
        // Four entries 0, 0, 2, 2: variance 1, d = 2.
        assert_eq!(Gamma::Scale.resolve(&x, 0).unwrap(), 0.5);
        assert_eq!(Gamma::Median.resolve(&x, 0).unwrap(), 0.125);
        let same = Points::dense_f64(2, 1, vec![3.0, 3.0]).unwrap();
        assert_eq!(Gamma::Scale.resolve(&same, 0).unwrap(), 1.0);
        assert_eq!(Gamma::Median.resolve(&same, 0).unwrap(), 1.0);
        assert!("-1".parse::<Gamma>().is_err());
        assert!("nan".parse::<Gamma>().is_err());
    }
}
