//! Convex losses of the margin slack u = 1 − y·z, for labels y = ±1.
//!
//! With ℓ(y, z) = L(u): slope −y·L′(u); conjugate ℓ*(y, v) = −a + L*(a) with a = −v·y, so that a = yβ/c is the
//! classical α/c; IRWLS weight L′(u)/u about the target y, where u = 0.

use super::{DualTerm, Loss, LossSpec, Properties, Reweight, slack_weight};

/// L, L′, L* of a convex loss that is zero for u ≤ 0.
trait Slack {
    fn at(&self, u: f64) -> f64;
    fn rise(&self, u: f64) -> f64;
    /// L*(a) for 0 ≤ a ≤ top.
    fn conj(&self, a: f64) -> f64;
    /// The largest slope, possibly +∞.
    fn top(&self) -> f64;
    /// q with L*(a) = ½·q·a², where it has that form.
    fn quadratic(&self) -> Option<f64>;
    fn label(&self) -> String;
    /// (slope at zero > 0, majorised).
    fn traits(&self) -> (bool, bool);
    /// See [`Loss::sharp`].
    fn jumps(&self) -> bool {
        false
    }
}

macro_rules! slack_loss {
    ($($name:ty),*) => { $(
        impl Loss for $name {
            fn name(&self) -> String {
                self.label()
            }
            fn spec(&self) -> Option<LossSpec> {
                Some((*self).into())
            }
            fn value(&self, y: f64, z: f64) -> f64 {
                let u = 1.0 - y * z;
                if u > 0.0 { self.at(u) } else { 0.0 }
            }
            fn slope(&self, y: f64, z: f64) -> f64 {
                let u = 1.0 - y * z;
                if u > 0.0 { -y * self.rise(u) } else { 0.0 }
            }
            fn conjugate(&self, y: f64, v: f64) -> Option<f64> {
                let a = -v * y;
                Some(if a >= 0.0 && a <= self.top() { self.conj(a) - a } else { f64::INFINITY })
            }
            fn domain(&self, y: f64) -> (f64, f64) {
                if y > 0.0 { (-self.top(), 0.0) } else { (0.0, self.top()) }
            }
            fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight {
                Reweight { weight: slack_weight(|u| self.rise(u), 1.0 - y * z, cap), target: y }
            }
            fn dual(&self, y: f64, c: f64) -> Option<DualTerm> {
                let edge = y * c * self.top();
                self.quadratic().map(|q| DualTerm { p: -y, eps: 0.0, d: q / c, lo: edge.min(0.0), hi: edge.max(0.0) })
            }
            fn sharp(&self) -> bool {
                self.jumps()
            }
            fn excess(&self, y: f64, z: f64, v: f64) -> Option<f64> {
                let (a, u) = (-v * y, 1.0 - y * z);
                if !(a >= 0.0 && a <= self.top()) {
                    return Some(f64::INFINITY);
                }
                let value = if u > 0.0 { self.at(u) } else { 0.0 };
                Some((value + self.conj(a) - a * u).max(0.0))
            }
            fn properties(&self) -> Properties {
                let (slope_at_zero, majorised) = self.traits();
                Properties {
                    slope_bounded: self.top().is_finite(),
                    slope_at_zero,
                    convex: true,
                    majorised,
                    classification: true,
                }
            }
        }
    )* };
}

slack_loss!(Hinge, SmoothHinge, SquaredHinge, Power, HuberHinge);

/// max(0, u): the support vector machine.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Hinge;

impl Slack for Hinge {
    fn at(&self, u: f64) -> f64 {
        u
    }
    fn rise(&self, _u: f64) -> f64 {
        1.0
    }
    fn conj(&self, _a: f64) -> f64 {
        0.0
    }
    fn top(&self) -> f64 {
        1.0
    }
    fn quadratic(&self) -> Option<f64> {
        Some(0.0)
    }
    fn label(&self) -> String {
        "hinge".into()
    }
    fn traits(&self) -> (bool, bool) {
        (true, true)
    }
    fn jumps(&self) -> bool {
        true
    }
}

/// The hinge with its corner rounded: K·u²/2 for u < 1/K, u − 1/(2K) beyond (paper 000).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmoothHinge {
    /// K > 0; the hinge as K → ∞.
    pub k: f64,
}

impl Slack for SmoothHinge {
    fn at(&self, u: f64) -> f64 {
        if u < 1.0 / self.k { 0.5 * self.k * u * u } else { u - 0.5 / self.k }
    }
    fn rise(&self, u: f64) -> f64 {
        (self.k * u).min(1.0)
    }
    fn conj(&self, a: f64) -> f64 {
        0.5 * a * a / self.k
    }
    fn top(&self) -> f64 {
        1.0
    }
    fn quadratic(&self) -> Option<f64> {
        Some(1.0 / self.k)
    }
    fn label(&self) -> String {
        format!("smooth-hinge:K={}", self.k)
    }
    fn traits(&self) -> (bool, bool) {
        (false, true)
    }
    fn jumps(&self) -> bool {
        // A corner rounded over a small part of the margin behaves like a kink.
        self.k > 30.0
    }
}

/// max(0, u)².
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SquaredHinge;

impl Slack for SquaredHinge {
    fn at(&self, u: f64) -> f64 {
        u * u
    }
    fn rise(&self, u: f64) -> f64 {
        2.0 * u
    }
    fn conj(&self, a: f64) -> f64 {
        0.25 * a * a
    }
    fn top(&self) -> f64 {
        f64::INFINITY
    }
    fn quadratic(&self) -> Option<f64> {
        Some(0.5)
    }
    fn label(&self) -> String {
        "squared-hinge".into()
    }
    fn traits(&self) -> (bool, bool) {
        (false, true)
    }
}

/// max(0, u)ˢ, s ≥ 1 (paper 002's "Vapnik" loss).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Power {
    /// s ≥ 1.
    pub s: f64,
}

impl Slack for Power {
    fn at(&self, u: f64) -> f64 {
        u.powf(self.s)
    }
    fn rise(&self, u: f64) -> f64 {
        self.s * u.powf(self.s - 1.0)
    }
    fn conj(&self, a: f64) -> f64 {
        // sup_u a·u − uˢ is attained at u = (a/s)^(1/(s−1)).
        if self.s == 1.0 { 0.0 } else { (self.s - 1.0) * (a / self.s).powf(self.s / (self.s - 1.0)) }
    }
    fn top(&self) -> f64 {
        if self.s == 1.0 { 1.0 } else { f64::INFINITY }
    }
    fn quadratic(&self) -> Option<f64> {
        if self.s == 1.0 {
            Some(0.0)
        } else if self.s == 2.0 {
            Some(0.5)
        } else {
            None
        }
    }
    fn label(&self) -> String {
        format!("power:s={}", self.s)
    }
    fn traits(&self) -> (bool, bool) {
        (self.s == 1.0, self.s <= 2.0)
    }
    fn jumps(&self) -> bool {
        // Below 2 the curvature is unbounded at u = 0.
        self.s < 2.0
    }
}

/// The Huberised squared hinge: u² for 0 ≤ u ≤ δ, 2δu − δ² beyond. δ = 2 is the "modified Huber" loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HuberHinge {
    /// δ > 0.
    pub delta: f64,
}

impl Slack for HuberHinge {
    fn at(&self, u: f64) -> f64 {
        if u < self.delta { u * u } else { self.delta * (2.0 * u - self.delta) }
    }
    fn rise(&self, u: f64) -> f64 {
        2.0 * u.min(self.delta)
    }
    fn conj(&self, a: f64) -> f64 {
        0.25 * a * a
    }
    fn top(&self) -> f64 {
        2.0 * self.delta
    }
    fn quadratic(&self) -> Option<f64> {
        Some(0.5)
    }
    fn label(&self) -> String {
        format!("huber-hinge:delta={}", self.delta)
    }
    fn traits(&self) -> (bool, bool) {
        (false, true)
    }
}

/// log(1 + exp(−y·z)): logistic regression.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Logistic;

/// a·ln a, 0 at a = 0.
fn x_ln_x(a: f64) -> f64 {
    if a > 0.0 { a * a.ln() } else { 0.0 }
}

/// (1 − a)·ln(1 − a), also for an a that rounds away in 1 − a; 0 at a = 1.
fn complement(a: f64) -> f64 {
    if a < 1.0 { (1.0 - a) * (-a).ln_1p() } else { 0.0 }
}

impl Loss for Logistic {
    fn name(&self) -> String {
        "logistic".into()
    }
    fn spec(&self) -> Option<LossSpec> {
        Some(LossSpec::Logistic)
    }
    fn value(&self, y: f64, z: f64) -> f64 {
        let m = y * z;
        (-m.abs()).exp().ln_1p() + (-m).max(0.0)
    }
    fn slope(&self, y: f64, z: f64) -> f64 {
        let m = y * z;
        let e = (-m.abs()).exp();
        -y * if m > 0.0 { e } else { 1.0 } / (1.0 + e)
    }
    fn conjugate(&self, y: f64, v: f64) -> Option<f64> {
        let a = -v * y;
        Some(if (0.0..=1.0).contains(&a) { x_ln_x(a) + complement(a) } else { f64::INFINITY })
    }
    fn domain(&self, y: f64) -> (f64, f64) {
        if y > 0.0 { (-1.0, 0.0) } else { (0.0, 1.0) }
    }
    fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight {
        // log(1 + e⁻ᵐ) = −m/2 + log(2 cosh(m/2)); the even part has L′(m)/m = tanh(m/2)/(2m), which never rises.
        let m = (y * z).abs();
        let weight = if m < 1e-4 { 0.25 - m * m / 48.0 } else { (0.5 * m).tanh() / (2.0 * m) };
        let weight = weight.min(cap);
        Reweight { weight, target: 0.5 * y / weight }
    }
    fn curvature(&self, y: f64, z: f64, _step: f64) -> f64 {
        let e = (-(y * z).abs()).exp();
        e / ((1.0 + e) * (1.0 + e))
    }
    fn slope_and_curvature(&self, y: f64, z: f64, _step: f64) -> (f64, f64) {
        let m = y * z;
        let e = (-m.abs()).exp();
        (-y * if m > 0.0 { e } else { 1.0 } / (1.0 + e), e / ((1.0 + e) * (1.0 + e)))
    }
    fn sharp(&self) -> bool {
        false
    }
    fn properties(&self) -> Properties {
        Properties { slope_bounded: true, slope_at_zero: true, convex: true, majorised: true, classification: true }
    }
}
