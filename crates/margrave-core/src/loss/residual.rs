//! Losses of the residual r = y − z, for real targets.
//!
//! With ℓ(y, z) = ρ(r): slope −ρ′(r); conjugate ℓ*(y, v) = −a·y + ρ*(a) with a = −v = β/c.

use super::{DualTerm, Loss, LossSpec, Properties, Reweight, slack_weight};

/// ρ, ρ′, ρ* of a convex loss.
trait Residual {
    fn at(&self, r: f64) -> f64;
    fn rise(&self, r: f64) -> f64;
    /// ρ*(a) for a in the range.
    fn conj(&self, a: f64) -> f64;
    /// The closure of the slopes: where ρ* is finite.
    fn range(&self) -> (f64, f64);
    /// (e, q) with ρ*(a) = e·|a| + ½·q·a², where it has that form.
    fn form(&self) -> Option<(f64, f64)>;
    fn label(&self) -> String;
    /// The weight, and the residual that minimises the quadratic.
    fn quadratic(&self, r: f64, cap: f64) -> (f64, f64);
    /// Whether that quadratic lies above the loss.
    fn majorised(&self) -> bool {
        true
    }
    /// See [`Loss::sharp`]: the primal of a conjugate without curvature has kinks.
    fn jumps(&self) -> bool {
        matches!(self.form(), Some((_, q)) if q == 0.0)
    }
}

macro_rules! residual_loss {
    ($($name:ty => $spec:expr),* $(,)?) => { $(
        impl Loss for $name {
            fn name(&self) -> String {
                self.label()
            }
            fn spec(&self) -> Option<LossSpec> {
                let spec: fn(Self) -> Option<LossSpec> = $spec;
                spec(*self)
            }
            fn value(&self, y: f64, z: f64) -> f64 {
                self.at(y - z)
            }
            fn slope(&self, y: f64, z: f64) -> f64 {
                -self.rise(y - z)
            }
            fn conjugate(&self, y: f64, v: f64) -> Option<f64> {
                let (a, (lo, hi)) = (-v, self.range());
                Some(if a >= lo && a <= hi { self.conj(a) - a * y } else { f64::INFINITY })
            }
            fn domain(&self, _y: f64) -> (f64, f64) {
                let (lo, hi) = self.range();
                (-hi, -lo)
            }
            fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight {
                let (weight, least) = self.quadratic(y - z, cap);
                Reweight { weight, target: y - least }
            }
            fn dual(&self, y: f64, c: f64) -> Option<DualTerm> {
                let (lo, hi) = self.range();
                self.form().map(|(eps, q)| DualTerm { p: -y, eps, d: q / c, lo: c * lo, hi: c * hi })
            }
            fn sharp(&self) -> bool {
                self.jumps()
            }
            fn excess(&self, y: f64, z: f64, v: f64) -> Option<f64> {
                let (a, r, (lo, hi)) = (-v, y - z, self.range());
                let inside = a >= lo && a <= hi;
                Some(if inside { (self.at(r) + self.conj(a) - a * r).max(0.0) } else { f64::INFINITY })
            }
            fn properties(&self) -> Properties {
                let (lo, hi) = self.range();
                Properties {
                    slope_bounded: lo.is_finite() && hi.is_finite(),
                    // Condition 2 of paper 002: a jump of the slope at the edge of the zero set.
                    slope_at_zero: matches!(self.form(), Some((_, q)) if q == 0.0),
                    convex: true,
                    majorised: self.majorised(),
                    classification: false,
                }
            }
        }
    )* };
}

/// A loss with a name on the command line.
fn named<L: Into<LossSpec>>(loss: L) -> Option<LossSpec> {
    Some(loss.into())
}

residual_loss!(
    Epsilon => named,
    SquaredEpsilon => named,
    Square => named,
    Huber => named,
    Absolute => named,
    Pinball => named,
    Expectile => named,
    LogCosh => named,
    // Parts of the ν formulations.
    Above => |_| None,
    Below => |_| None,
);

/// max(|r| − ε, 0): support vector regression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epsilon {
    /// ε ≥ 0, half the width of the tube.
    pub epsilon: f64,
}

impl Residual for Epsilon {
    fn at(&self, r: f64) -> f64 {
        (r.abs() - self.epsilon).max(0.0)
    }
    fn rise(&self, r: f64) -> f64 {
        if r.abs() > self.epsilon { r.signum() } else { 0.0 }
    }
    fn conj(&self, a: f64) -> f64 {
        self.epsilon * a.abs()
    }
    fn range(&self) -> (f64, f64) {
        (-1.0, 1.0)
    }
    fn form(&self) -> Option<(f64, f64)> {
        Some((self.epsilon, 0.0))
    }
    fn label(&self) -> String {
        format!("epsilon:epsilon={}", self.epsilon)
    }
    fn quadratic(&self, r: f64, cap: f64) -> (f64, f64) {
        // The slack is measured from the near edge of the tube: a quadratic centred on y would lie below the loss
        // somewhere.
        (slack_weight(|_| 1.0, r.abs() - self.epsilon, cap), self.epsilon.copysign(r))
    }
}

/// max(|r| − ε, 0)².
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SquaredEpsilon {
    /// ε ≥ 0, half the width of the tube.
    pub epsilon: f64,
}

impl Residual for SquaredEpsilon {
    fn at(&self, r: f64) -> f64 {
        let u = (r.abs() - self.epsilon).max(0.0);
        u * u
    }
    fn rise(&self, r: f64) -> f64 {
        2.0 * (r.abs() - self.epsilon).max(0.0).copysign(r)
    }
    fn conj(&self, a: f64) -> f64 {
        self.epsilon * a.abs() + 0.25 * a * a
    }
    fn range(&self) -> (f64, f64) {
        (f64::NEG_INFINITY, f64::INFINITY)
    }
    fn form(&self) -> Option<(f64, f64)> {
        Some((self.epsilon, 0.5))
    }
    fn label(&self) -> String {
        format!("squared-epsilon:epsilon={}", self.epsilon)
    }
    fn quadratic(&self, r: f64, cap: f64) -> (f64, f64) {
        (slack_weight(|u| 2.0 * u, r.abs() - self.epsilon, cap), self.epsilon.copysign(r))
    }
}

/// ½r²: regularised least squares; for labels ±1, the LS-SVM, since y − z = y·(1 − y·z).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Square;

impl Residual for Square {
    fn at(&self, r: f64) -> f64 {
        0.5 * r * r
    }
    fn rise(&self, r: f64) -> f64 {
        r
    }
    fn conj(&self, a: f64) -> f64 {
        0.5 * a * a
    }
    fn range(&self) -> (f64, f64) {
        (f64::NEG_INFINITY, f64::INFINITY)
    }
    fn form(&self) -> Option<(f64, f64)> {
        Some((0.0, 1.0))
    }
    fn label(&self) -> String {
        "square".into()
    }
    fn quadratic(&self, _r: f64, _cap: f64) -> (f64, f64) {
        (1.0, 0.0)
    }
}

/// ½r² for |r| ≤ δ, δ|r| − ½δ² beyond.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Huber {
    /// δ > 0, where the parabola becomes a line.
    pub delta: f64,
}

impl Residual for Huber {
    fn at(&self, r: f64) -> f64 {
        let r = r.abs();
        if r <= self.delta { 0.5 * r * r } else { self.delta * (r - 0.5 * self.delta) }
    }
    fn rise(&self, r: f64) -> f64 {
        r.clamp(-self.delta, self.delta)
    }
    fn conj(&self, a: f64) -> f64 {
        0.5 * a * a
    }
    fn range(&self) -> (f64, f64) {
        (-self.delta, self.delta)
    }
    fn form(&self) -> Option<(f64, f64)> {
        Some((0.0, 1.0))
    }
    fn label(&self) -> String {
        format!("huber:delta={}", self.delta)
    }
    fn quadratic(&self, r: f64, _cap: f64) -> (f64, f64) {
        (if r.abs() <= self.delta { 1.0 } else { self.delta / r.abs() }, 0.0)
    }
}

/// |r|.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Absolute;

impl Residual for Absolute {
    fn at(&self, r: f64) -> f64 {
        r.abs()
    }
    fn rise(&self, r: f64) -> f64 {
        if r == 0.0 { 0.0 } else { r.signum() }
    }
    fn conj(&self, _a: f64) -> f64 {
        0.0
    }
    fn range(&self) -> (f64, f64) {
        (-1.0, 1.0)
    }
    fn form(&self) -> Option<(f64, f64)> {
        Some((0.0, 0.0))
    }
    fn label(&self) -> String {
        "absolute".into()
    }
    fn quadratic(&self, r: f64, cap: f64) -> (f64, f64) {
        (slack_weight(|_| 1.0, r.abs(), cap), 0.0)
    }
}

/// τ·r for r ≥ 0, (τ − 1)·r below: the τ-quantile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pinball {
    /// 0 < τ < 1.
    pub tau: f64,
}

impl Residual for Pinball {
    fn at(&self, r: f64) -> f64 {
        if r >= 0.0 { self.tau * r } else { (self.tau - 1.0) * r }
    }
    fn rise(&self, r: f64) -> f64 {
        if r > 0.0 {
            self.tau
        } else if r < 0.0 {
            self.tau - 1.0
        } else {
            0.0
        }
    }
    fn conj(&self, _a: f64) -> f64 {
        0.0
    }
    fn range(&self) -> (f64, f64) {
        (self.tau - 1.0, self.tau)
    }
    fn form(&self) -> Option<(f64, f64)> {
        Some((0.0, 0.0))
    }
    fn label(&self) -> String {
        format!("pinball:tau={}", self.tau)
    }
    fn quadratic(&self, r: f64, cap: f64) -> (f64, f64) {
        // (τ − ½)·r + ½|r|: only the even part is replaced, so that the quadratic lies above both branches.
        let weight = slack_weight(|_| 0.5, r.abs(), cap);
        (weight, (0.5 - self.tau) / weight)
    }
}

/// τ·r² for r ≥ 0, (1 − τ)·r² below: the τ-expectile; τ = ½ is the square loss ½r².
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expectile {
    /// 0 < τ < 1.
    pub tau: f64,
}

impl Expectile {
    fn side(&self, sign: f64) -> f64 {
        if sign >= 0.0 { self.tau } else { 1.0 - self.tau }
    }
}

impl Residual for Expectile {
    fn at(&self, r: f64) -> f64 {
        self.side(r) * r * r
    }
    fn rise(&self, r: f64) -> f64 {
        2.0 * self.side(r) * r
    }
    fn conj(&self, a: f64) -> f64 {
        0.25 * a * a / self.side(a)
    }
    fn range(&self) -> (f64, f64) {
        (f64::NEG_INFINITY, f64::INFINITY)
    }
    fn form(&self) -> Option<(f64, f64)> {
        (self.tau == 0.5).then_some((0.0, 1.0))
    }
    fn label(&self) -> String {
        format!("expectile:tau={}", self.tau)
    }
    fn quadratic(&self, r: f64, _cap: f64) -> (f64, f64) {
        (2.0 * self.side(r), 0.0)
    }
    fn majorised(&self) -> bool {
        self.tau == 0.5
    }
}

/// log cosh r.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogCosh;

/// (1 + a)·ln(1 + a), 0 at a = −1.
fn entropy(a: f64) -> f64 {
    if a > -1.0 { (1.0 + a) * a.ln_1p() } else { 0.0 }
}

impl Residual for LogCosh {
    fn at(&self, r: f64) -> f64 {
        let r = r.abs();
        // Beyond 20, e^(−2r) is below half an ulp of r.
        if r < 20.0 { 0.5 * (r.sinh() * r.sinh()).ln_1p() } else { r - std::f64::consts::LN_2 }
    }
    fn rise(&self, r: f64) -> f64 {
        r.tanh()
    }
    fn conj(&self, a: f64) -> f64 {
        if a.abs() < 1e-2 {
            // The two parts cancel: use the series, accurate to a⁸/56.
            let square = a * a;
            return square * (0.5 + square * (1.0 / 12.0 + square / 30.0));
        }
        0.5 * (entropy(a) + entropy(-a))
    }
    fn range(&self) -> (f64, f64) {
        (-1.0, 1.0)
    }
    fn form(&self) -> Option<(f64, f64)> {
        None
    }
    fn label(&self) -> String {
        "logcosh".into()
    }
    fn quadratic(&self, r: f64, _cap: f64) -> (f64, f64) {
        (if r.abs() < 1e-4 { 1.0 - r * r / 3.0 } else { r.tanh() / r }, 0.0)
    }
}

/// max(0, r): penalises scores below the target. Used by one-class SVM, SVDD and one side of the ν formulations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Above;

impl Residual for Above {
    fn at(&self, r: f64) -> f64 {
        r.max(0.0)
    }
    fn rise(&self, r: f64) -> f64 {
        if r > 0.0 { 1.0 } else { 0.0 }
    }
    fn conj(&self, _a: f64) -> f64 {
        0.0
    }
    fn range(&self) -> (f64, f64) {
        (0.0, 1.0)
    }
    fn form(&self) -> Option<(f64, f64)> {
        Some((0.0, 0.0))
    }
    fn label(&self) -> String {
        "above".into()
    }
    fn quadratic(&self, r: f64, cap: f64) -> (f64, f64) {
        (slack_weight(|_| 1.0, r, cap), 0.0)
    }
}

/// max(0, −r): penalises scores above the target. Used by the other side of the ν formulations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Below;

impl Residual for Below {
    fn at(&self, r: f64) -> f64 {
        (-r).max(0.0)
    }
    fn rise(&self, r: f64) -> f64 {
        if r < 0.0 { -1.0 } else { 0.0 }
    }
    fn conj(&self, _a: f64) -> f64 {
        0.0
    }
    fn range(&self) -> (f64, f64) {
        (-1.0, 0.0)
    }
    fn form(&self) -> Option<(f64, f64)> {
        Some((0.0, 0.0))
    }
    fn label(&self) -> String {
        "below".into()
    }
    fn quadratic(&self, r: f64, cap: f64) -> (f64, f64) {
        (slack_weight(|_| 1.0, -r, cap), 0.0)
    }
}
