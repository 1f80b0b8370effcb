//! Bounded losses of the margin slack: a sample far on the wrong side costs no more than one moderately wrong.
//!
//! They approximate the number of errors (paper 002). None is convex: there is no dual and no global certificate. All
//! are functions of ξ = max(0, u), u = 1 − y·z, hence constant for u ≤ 0 and continuous there.

use super::{Loss, LossSpec, Properties, Reweight, slack_weight};

/// L(ξ) and L′(ξ) for ξ ≥ 0.
trait SaturatingLoss {
    fn at(&self, xi: f64) -> f64;
    fn rise(&self, xi: f64) -> f64;
    /// The largest slope.
    fn steepest(&self) -> f64;
    fn label(&self) -> String;
    /// (slope at zero > 0, majorised).
    fn traits(&self) -> (bool, bool);
}

macro_rules! level_loss {
    ($($name:ty),*) => { $(
        impl Loss for $name {
            fn name(&self) -> String {
                self.label()
            }
            fn spec(&self) -> Option<LossSpec> {
                Some((*self).into())
            }
            fn value(&self, y: f64, z: f64) -> f64 {
                self.at((1.0 - y * z).max(0.0))
            }
            fn slope(&self, y: f64, z: f64) -> f64 {
                let u = 1.0 - y * z;
                if u > 0.0 { -y * self.rise(u) } else { 0.0 }
            }
            fn conjugate(&self, _y: f64, _v: f64) -> Option<f64> {
                None
            }
            fn domain(&self, y: f64) -> (f64, f64) {
                let edge = -y * self.steepest();
                (edge.min(0.0), edge.max(0.0))
            }
            fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight {
                Reweight { weight: slack_weight(|u| self.rise(u), 1.0 - y * z, cap), target: y }
            }
            fn properties(&self) -> Properties {
                let (slope_at_zero, majorised) = self.traits();
                Properties { slope_bounded: true, slope_at_zero, convex: false, majorised, classification: true }
            }
        }
    )* };
}

level_loss!(Ramp, Sigmoid, Polynomial);

/// min(max(0, u), limit): the truncated hinge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ramp {
    /// The largest value, > 0.
    pub limit: f64,
}

impl SaturatingLoss for Ramp {
    fn at(&self, xi: f64) -> f64 {
        xi.min(self.limit)
    }
    fn rise(&self, xi: f64) -> f64 {
        if xi < self.limit { 1.0 } else { 0.0 }
    }
    fn steepest(&self) -> f64 {
        1.0
    }
    fn label(&self) -> String {
        format!("ramp:limit={}", self.limit)
    }
    fn traits(&self) -> (bool, bool) {
        (true, true)
    }
}

/// (tanh(η(ξ − 1)) + 1)/2 (paper 002, eq. 31).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sigmoid {
    /// η > 0: how sharp the step is.
    pub eta: f64,
}

impl SaturatingLoss for Sigmoid {
    fn at(&self, xi: f64) -> f64 {
        // (tanh t + 1)/2 = 1/(1 + e^(−2t)), without cancellation for t ≪ 0.
        1.0 / (1.0 + (-2.0 * self.eta * (xi - 1.0)).exp())
    }
    fn rise(&self, xi: f64) -> f64 {
        // ½·η·sech²t with t = η(ξ − 1).
        let e = (-2.0 * (self.eta * (xi - 1.0)).abs()).exp();
        2.0 * self.eta * e / ((1.0 + e) * (1.0 + e))
    }
    fn steepest(&self) -> f64 {
        0.5 * self.eta
    }
    fn label(&self) -> String {
        format!("sigmoid:eta={}", self.eta)
    }
    fn traits(&self) -> (bool, bool) {
        // L′(ξ)/ξ falls where 2ηξ·tanh(η(1 − ξ)) ≤ 1; its largest value is below 1 only for small η.
        let worst = (1..1000)
            .map(|i| f64::from(i) / 1000.0)
            .map(|xi| 2.0 * self.eta * xi * (self.eta * (1.0 - xi)).tanh())
            .fold(0.0, f64::max);
        (true, worst < 0.999)
    }
}

/// (ξ+κ)ˢ/(2(1+κ)ˢ) for ξ < 1, 1 − (1+κ)ˢ/(2(ξ+κ)ˢ) beyond (paper 002, eq. 32 with its shift corrected).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polynomial {
    /// s ≥ 1: how sharp the step is.
    pub s: f64,
    /// κ ≥ 0: keeps the slope positive at ξ = 0.
    pub kappa: f64,
}

impl SaturatingLoss for Polynomial {
    fn at(&self, xi: f64) -> f64 {
        let ratio = (xi + self.kappa) / (1.0 + self.kappa);
        if xi < 1.0 { 0.5 * ratio.powf(self.s) } else { 1.0 - 0.5 * ratio.powf(-self.s) }
    }
    fn rise(&self, xi: f64) -> f64 {
        let ratio = (xi + self.kappa) / (1.0 + self.kappa);
        let power = if xi < 1.0 { self.s - 1.0 } else { -self.s - 1.0 };
        0.5 * self.s / (1.0 + self.kappa) * ratio.powf(power)
    }
    fn steepest(&self) -> f64 {
        0.5 * self.s / (1.0 + self.kappa)
    }
    fn label(&self) -> String {
        format!("polynomial:s={},kappa={}", self.s, self.kappa)
    }
    fn traits(&self) -> (bool, bool) {
        // (ξ+κ)^(s−1)/ξ falls on (0, 1) where (s − 2)ξ ≤ κ.
        (self.kappa > 0.0 || self.s == 1.0, self.s <= 2.0 + self.kappa)
    }
}
