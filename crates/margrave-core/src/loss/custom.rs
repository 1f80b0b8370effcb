//! User-defined losses, given by their value and slope.
//!
//! Nothing else is required: the slope is compared with finite differences, convexity and majorisation are determined
//! by sampling, the conjugate is the supremum found by bisection on the slope, and the IRWLS quadratic is centred on
//! the nearest minimum. Every view costs about sixty evaluations of the slope instead of a formula.

use super::{Loss, Properties, Reweight};
use crate::error::{Error, Result};

type ScoreFunction = Box<dyn Fn(f64, f64) -> f64 + Send + Sync>;

/// The largest score evaluated: slopes beyond it are assumed to have reached their limits.
const FAR: f64 = 1e6;

/// ℓ(y, z) given by two closures.
pub struct CustomLoss {
    name: String,
    value: ScoreFunction,
    slope: ScoreFunction,
    properties: Properties,
}

impl std::fmt::Debug for CustomLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomLoss").field("name", &self.name).field("properties", &self.properties).finish()
    }
}

/// Scores at which a loss is sampled: dense around the margins, sparse far out, and away from the round numbers where
/// kinks are.
fn probes() -> Vec<f64> {
    let near = (-60..=60).map(|i| f64::from(i) * 0.0777 + 0.00313);
    let far = [7.0, 13.0, 29.0, 61.0].into_iter().flat_map(|v| [-v - 0.0171, v + 0.0171]);
    let mut all: Vec<f64> = near.chain(far).collect();
    all.sort_by(f64::total_cmp);
    all
}

impl CustomLoss {
    /// Takes ℓ(y, z) and dℓ/dz, for labels ±1 (`classification`) or real targets. Fails if a value is not finite or the
    /// slope is not the derivative, naming the worst point found.
    pub fn new(
        name: impl Into<String>,
        classification: bool,
        value: impl Fn(f64, f64) -> f64 + Send + Sync + 'static,
        slope: impl Fn(f64, f64) -> f64 + Send + Sync + 'static,
    ) -> Result<Self> {
        let properties =
            Properties { slope_bounded: true, slope_at_zero: false, convex: true, majorised: true, classification };
        let mut loss = Self { name: name.into(), value: Box::new(value), slope: Box::new(slope), properties };
        let targets: &[f64] = if classification { &[-1.0, 1.0] } else { &[-2.5, -1.0, 0.0, 0.3, 4.0] };
        loss.check_slope(targets)?;
        loss.sample_properties(targets);
        Ok(loss)
    }

    fn check_slope(&self, targets: &[f64]) -> Result<()> {
        let mut worst = (0.0, String::new());
        for &y in targets {
            for z in probes() {
                let h = 1e-5 * z.abs().max(1.0);
                let (left, mid, right) = ((self.value)(y, z - h), (self.value)(y, z), (self.value)(y, z + h));
                let claimed = (self.slope)(y, z);
                if ![left, mid, right, claimed].iter().all(|v| v.is_finite()) {
                    return Err(Error::data(format!(
                        "the loss {} has a value or slope that is not finite near y = {y}, z = {z}",
                        self.name
                    )));
                }
                // At a kink any number between the one-sided slopes is valid.
                let (before, after) = ((mid - left) / h, (right - mid) / h);
                let off = (before.min(after) - claimed).max(claimed - before.max(after));
                // Rounding of the values, and the curvature of the slope over h.
                let slack = 1e-9 * mid.abs() / h * 1e-5 + 1e-4 * (1.0 + claimed.abs());
                if off / slack > worst.0 {
                    let measured = 0.5 * (before + after);
                    let text = format!("at y = {y}, z = {z} it is {claimed} but finite differences give {measured}");
                    worst = (off / slack, text);
                }
            }
        }
        if worst.0 > 1.0 {
            return Err(Error::data(format!("the slope of the loss {} is wrong: {}", self.name, worst.1)));
        }
        Ok(())
    }

    fn sample_properties(&mut self, targets: &[f64]) {
        let probes = probes();
        let mut p = self.properties;
        for &y in targets {
            let slopes: Vec<f64> = probes.iter().map(|&z| (self.slope)(y, z)).collect();
            let scale = slopes.iter().fold(1e-12, |m: f64, s| m.max(s.abs()));
            p.convex &= slopes.windows(2).all(|w| w[1] >= w[0] - 1e-9 * scale);
            let edge = |z: f64| (self.slope)(y, z).abs();
            // A bounded slope is near its limit at 10³: it cannot double between 10³ and 10⁶.
            p.slope_bounded &= [-1.0, 1.0].iter().all(|s| edge(s * FAR) <= 2.0 * edge(s * 1e3) + 1e-9 * scale);
        }
        p.slope_at_zero = if p.classification {
            targets.iter().all(|&y| (self.slope)(y, y * (1.0 - 1e-13)).abs() > 1e-5)
        } else {
            targets.iter().all(|&y| {
                let jump = (self.slope)(y, y + 1e-9) - (self.slope)(y, y - 1e-9);
                jump.abs() > 1e-6
            })
        };
        self.properties = p;
        let mut majorised = true;
        for &y in targets {
            for &z in probes.iter().step_by(3) {
                let quadratic = self.reweight(y, z, 1e12);
                if quadratic.weight == 0.0 {
                    continue;
                }
                let above = |x: f64| 0.5 * quadratic.weight * (quadratic.target - x).powi(2);
                let offset = (self.value)(y, z) - above(z);
                majorised &= probes.iter().all(|&x| {
                    let upper = above(x) + offset;
                    (self.value)(y, x) <= upper + 1e-7 * (1.0 + upper.abs())
                });
            }
        }
        self.properties.majorised = majorised;
    }

    /// The point nearest to `from` where the slope crosses `level`, searching in the direction given by the slope;
    /// `None` if it is beyond [`FAR`]. For a convex loss this is where z ↦ level·z − ℓ(y, z) is largest.
    fn crossing(&self, y: f64, from: f64, level: f64) -> Option<f64> {
        let excess = |z: f64| (self.slope)(y, z) - level;
        let start = excess(from);
        if start == 0.0 {
            return Some(from);
        }
        let way = -start.signum();
        let (mut near, mut step) = (from, 1e-3);
        loop {
            let far = from + way * step;
            if excess(far) * way >= 0.0 {
                let mut far = far;
                for _ in 0..200 {
                    let mid = 0.5 * (near + far);
                    if mid == near || mid == far {
                        break;
                    }
                    if excess(mid) * way >= 0.0 { far = mid } else { near = mid }
                }
                return Some(far);
            }
            if step > FAR * from.abs().max(1.0) {
                return None;
            }
            near = far;
            step *= 4.0;
        }
    }

    /// A score at which the slope is `v`, limited by [`FAR`].
    fn inverse(&self, y: f64, v: f64, from: f64) -> f64 {
        self.crossing(y, from, v).unwrap_or_else(|| {
            let way = -((self.slope)(y, from) - v).signum();
            from + way * FAR * from.abs().max(1.0)
        })
    }
}

impl Loss for CustomLoss {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn value(&self, y: f64, z: f64) -> f64 {
        (self.value)(y, z)
    }
    fn slope(&self, y: f64, z: f64) -> f64 {
        (self.slope)(y, z)
    }
    fn conjugate(&self, y: f64, v: f64) -> Option<f64> {
        let (lo, hi) = self.domain(y);
        if !self.properties.convex {
            return None;
        }
        if v < lo || v > hi {
            return Some(f64::INFINITY);
        }
        let z = self.inverse(y, v, y);
        Some(v * z - (self.value)(y, z))
    }
    fn domain(&self, y: f64) -> (f64, f64) {
        let far = FAR * y.abs().max(1.0);
        ((self.slope)(y, -far), (self.slope)(y, far))
    }
    fn excess(&self, y: f64, z: f64, v: f64) -> Option<f64> {
        let (lo, hi) = self.domain(y);
        if !self.properties.convex {
            return None;
        }
        if v < lo || v > hi {
            return Some(f64::INFINITY);
        }
        let at = self.inverse(y, v, z);
        Some(((self.value)(y, z) - (self.value)(y, at) - v * (z - at)).max(0.0))
    }
    fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight {
        let slope = (self.slope)(y, z);
        if slope == 0.0 {
            return Reweight { weight: 0.0, target: z };
        }
        match self.crossing(y, z, 0.0) {
            Some(target) if target != z => {
                let weight = slope / (z - target);
                if weight <= cap {
                    return Reweight { weight, target };
                }
                Reweight { weight: cap, target }
            }
            // Without a minimum to centre on: the local curvature, bounded away from zero, and the target that keeps
            // the slope.
            _ => {
                let h = 1e-4 * z.abs().max(1.0);
                let curvature = ((self.slope)(y, z + h) - (self.slope)(y, z - h)) / (2.0 * h);
                let weight = curvature.max(slope.abs() / (1.0 + z.abs() + y.abs())).min(cap);
                Reweight { weight, target: z - slope / weight }
            }
        }
    }
    fn properties(&self) -> Properties {
        self.properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{Hinge, Huber};

    fn hinge() -> CustomLoss {
        let value = |y: f64, z: f64| (1.0 - y * z).max(0.0);
        CustomLoss::new("mine", true, value, |y, z| if y * z < 1.0 { -y } else { 0.0 }).unwrap()
    }

    #[test]
    fn a_custom_hinge_equals_the_hinge() {
        let mine = hinge();
        assert_eq!(mine.properties(), Hinge.properties());
        for y in [-1.0, 1.0] {
            let (lo, hi) = Hinge.domain(y);
            assert_eq!(mine.domain(y), (lo, hi));
            for z in [-3.0, -0.5, 0.99, 1.2] {
                let (a, b) = (mine.reweight(y, z, 1e8), Hinge.reweight(y, z, 1e8));
                assert!((a.weight - b.weight).abs() < 1e-9 * b.weight.max(1.0), "{z}: {a:?} {b:?}");
                for t in 0..=10 {
                    let v = lo + (hi - lo) * f64::from(t) / 10.0;
                    assert!((mine.conjugate(y, v).unwrap() - Hinge.conjugate(y, v).unwrap()).abs() < 1e-12);
                    assert!((mine.excess(y, z, v).unwrap() - Hinge.excess(y, z, v).unwrap()).abs() < 1e-12);
                }
            }
        }
        assert_eq!(mine.conjugate(1.0, 0.1), Some(f64::INFINITY));
    }

    #[test]
    fn smooth_and_unbounded_losses_get_their_conjugate() {
        let huber = Huber { delta: 0.7 };
        let mine = CustomLoss::new("h", false, move |y, z| huber.value(y, z), move |y, z| huber.slope(y, z)).unwrap();
        assert!(mine.properties().convex && mine.properties().majorised && mine.properties().slope_bounded);
        let square = CustomLoss::new("s", false, |y, z| 0.5 * (y - z) * (y - z), |y, z| z - y).unwrap();
        assert!(!square.properties().slope_bounded && square.properties().majorised);
        for v in [-0.69, -0.2, 0.0, 0.7] {
            assert!((mine.conjugate(3.0, v).unwrap() - huber.conjugate(3.0, v).unwrap()).abs() < 1e-12);
            assert!((square.conjugate(3.0, v).unwrap() - (0.5 * v * v + 3.0 * v)).abs() < 1e-12);
        }
    }

    #[test]
    fn a_wrong_slope_is_rejected_with_the_worst_point() {
        let error = CustomLoss::new("bad", false, |y, z| (y - z) * (y - z), |y, z| z - y).unwrap_err().to_string();
        // The error is |z − y|: relative to the tolerance it is largest at the far end.
        assert!(error.contains("at y = 4, z = -61.0171") || error.contains("z = 61.0171"), "{error}");
        assert!(CustomLoss::new("nan", true, |_, z| z.ln(), |_, z| 1.0 / z).is_err());
    }

    #[test]
    fn a_saturating_loss_is_found_to_be_non_convex() {
        let value = |y: f64, z: f64| 1.0 - (-(y - z) * (y - z)).exp();
        let slope = |y: f64, z: f64| -2.0 * (y - z) * (-(y - z) * (y - z)).exp();
        let welsch = CustomLoss::new("welsch", false, value, slope).unwrap();
        let found = welsch.properties();
        assert!(!found.convex && found.slope_bounded && found.majorised);
        assert_eq!(welsch.conjugate(0.0, 0.1), None);
        let quadratic = welsch.reweight(1.0, 0.3, 1e9);
        assert!((-quadratic.weight * (quadratic.target - 0.3) - slope(1.0, 0.3)).abs() < 1e-12);
        let logistic = |y: f64, z: f64| (-y * z).exp().ln_1p();
        let loss = CustomLoss::new("l", true, logistic, |y, z| -y / (1.0 + (y * z).exp())).unwrap();
        assert!(loss.properties().convex && loss.properties().slope_bounded);
    }
}
