//! Losses: one scalar function of the score with four views. A loss states which of them it supports.
//!
//! | view | used by |
//! |---|---|
//! | value, slope | every primal objective, IRWLS, Newton |
//! | conjugate, domain | the certificate |
//! | reweight | IRWLS |
//! | dual | decomposition, coordinate descent |
//!
//! Each view has a form for many samples at once. Solvers use the scalar forms, the certificate only those for many samples: a
//! [`CustomLoss`] answers the former from an interpolation and the latter from the functions of the user.
//!
//! Every convex loss here has infimum 0 for every target, so that ℓ*(y, 0) = 0 and the dual term c·ℓ*(y, −β/c) vanishes
//! at β = 0: [`DualTerm`] omits no constant.

mod curve;
mod custom;
mod form;
mod margin;
mod nonconvex;
mod offset;
mod residual;
mod spec;
mod supremum;
#[cfg(test)]
mod tests;

pub use custom::{BulkFunction, BulkFunctions, CustomLoss};
pub use margin::{Hinge, HuberHinge, Logistic, Power, SmoothHinge, SquaredHinge};
pub use nonconvex::{Polynomial, Ramp, Sigmoid};
pub use offset::Offset;
pub use residual::{Above, Absolute, Below, Epsilon, Expectile, Huber, LogCosh, Pinball, Square, SquaredEpsilon};
pub use spec::{LossInfo, LossSpec};

/// h(β) = p·β + eps·|β| + ½·d·β² on [lo, hi]: the term of one sample in the dual, c·ℓ*(y, −β/c).
///
/// lo ≤ 0 ≤ hi always holds: β = 0 is feasible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DualTerm {
    /// Linear coefficient.
    pub p: f64,
    /// Coefficient of |β|, ≥ 0.
    pub eps: f64,
    /// Quadratic coefficient, ≥ 0.
    pub d: f64,
    /// Smallest β, ≤ 0; may be −∞.
    pub lo: f64,
    /// Largest β, ≥ 0; may be +∞.
    pub hi: f64,
}

/// The quadratic ½·weight·(target − z)² that replaces c·ℓ(y, z) in IRWLS, with the same slope at the current z.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reweight {
    /// Its curvature for c = 1; 0 outside the active set.
    pub weight: f64,
    /// Its minimiser.
    pub target: f64,
}

/// Properties of a loss. The first three are the conditions of paper 002.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// Condition 1: the slope is bounded on all of ℝ.
    pub slope_bounded: bool,
    /// Condition 2: the slope of a margin loss stays > 0 as its slack u falls to 0, so that solutions are sparse.
    pub slope_at_zero: bool,
    /// Condition 3: convex, so that every stationary point is the global optimum.
    pub convex: bool,
    /// L′(u)/u is non-increasing: the IRWLS quadratic lies above the loss and a full step never increases the
    /// objective.
    pub majorised: bool,
    /// For labels ±1 (a function of y·z) rather than real targets (a function of y − z).
    pub classification: bool,
}

/// ℓ(y, z), a function of the score z for a fixed target y.
pub trait Loss: Send + Sync {
    /// The name with parameters, as on the command line: `huber:delta=1`.
    fn name(&self) -> String;
    /// The built-in loss that this is; `None`, the default, for any other. Model files can hold built-in losses only,
    /// and solvers identify them by this value, never by name.
    fn spec(&self) -> Option<LossSpec> {
        None
    }
    /// ℓ(y, z).
    fn value(&self, y: f64, z: f64) -> f64;
    /// dℓ/dz; at a kink any number between the two one-sided slopes.
    fn slope(&self, y: f64, z: f64) -> f64;
    /// ℓ*(y, u) = sup_z (u·z − ℓ(y, z)); `None` when the loss is not convex or the conjugate is not known.
    /// +∞ outside [`domain`](Loss::domain).
    fn conjugate(&self, y: f64, u: f64) -> Option<f64>;
    /// The interval of u on which the conjugate is finite; −β/c is clipped to it before certifying.
    fn domain(&self, y: f64) -> (f64, f64);
    /// The IRWLS quadratic at z; weights are capped at `cap` (K-smoothing of paper 000).
    fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight;
    /// d²ℓ/dz²; a large number at a kink. The default is a central difference of the slope over ±`step`·max(1, |z|); a
    /// loss with a formula ignores `step`.
    fn curvature(&self, y: f64, z: f64, step: f64) -> f64 {
        let h = step * z.abs().max(1.0);
        (self.slope(y, z + h) - self.slope(y, z - h)) / (2.0 * h)
    }
    /// [`slope`](Loss::slope) and [`curvature`](Loss::curvature) at the same score: a loss that computes both from one
    /// exponential overrides it.
    fn slope_and_curvature(&self, y: f64, z: f64, step: f64) -> (f64, f64) {
        (self.slope(y, z), self.curvature(y, z, step))
    }
    /// Whether the slope jumps or nearly jumps, so that the curvature at one score says little about nearby scores:
    /// IRWLS then uses a smoothed loss.
    fn sharp(&self) -> bool {
        true
    }
    /// The dual term for cost c; `None`: the conjugate is not of that form.
    fn dual(&self, _y: f64, _c: f64) -> Option<DualTerm> {
        None
    }
    /// The Fenchel–Young excess ℓ(y, z) + ℓ*(y, u) − u·z ≥ 0, the contribution of one sample to the duality gap for c =
    /// 1; 0 exactly when u is a slope at z. Losses override it to avoid cancellation with large targets.
    fn excess(&self, y: f64, z: f64, u: f64) -> Option<f64> {
        self.conjugate(y, u).map(|conjugate| (self.value(y, z) + conjugate - u * z).max(0.0))
    }
    /// Properties of the loss.
    fn properties(&self) -> Properties;
    /// [`value`](Loss::value) of many samples. All slices have the same length.
    fn values(&self, y: &[f64], z: &[f64], out: &mut [f64]) {
        y.iter().zip(z).zip(out).for_each(|((y, z), out)| *out = self.value(*y, *z));
    }
    /// [`slope`](Loss::slope) of many samples.
    fn slopes(&self, y: &[f64], z: &[f64], out: &mut [f64]) {
        y.iter().zip(z).zip(out).for_each(|((y, z), out)| *out = self.slope(*y, *z));
    }
    /// [`domain`](Loss::domain) of many samples.
    fn domains(&self, y: &[f64], low: &mut [f64], high: &mut [f64]) {
        y.iter().zip(low.iter_mut().zip(high)).for_each(|(y, (low, high))| (*low, *high) = self.domain(*y));
    }
    /// [`conjugate`](Loss::conjugate) of many samples; +∞ where it is not known.
    fn conjugates(&self, y: &[f64], u: &[f64], out: &mut [f64]) {
        let one = |(y, u): (&f64, &f64)| self.conjugate(*y, *u).unwrap_or(f64::INFINITY);
        y.iter().zip(u).zip(out).for_each(|(pair, out)| *out = one(pair));
    }
    /// [`excess`](Loss::excess) of many samples; +∞ where the conjugate is not known.
    fn excesses(&self, y: &[f64], z: &[f64], u: &[f64], out: &mut [f64]) {
        let one = |((y, z), u): ((&f64, &f64), &f64)| self.excess(*y, *z, *u).unwrap_or(f64::INFINITY);
        y.iter().zip(z).zip(u).zip(out).for_each(|(sample, out)| *out = one(sample));
    }
}

impl DualTerm {
    /// h(β); +∞ outside the box.
    pub fn value(&self, beta: f64) -> f64 {
        if beta < self.lo || beta > self.hi {
            return f64::INFINITY;
        }
        self.p * beta + self.eps * beta.abs() + 0.5 * self.d * beta * beta
    }
}

/// L′(u)/u for a slack u ≥ 0, 0 for u < 0, and constant, equal to its value at u = 1/cap, in between: the IRWLS weight
/// of paper 000, that is, of the loss smoothed to a parabola on [0, 1/cap].
fn slack_weight(rise: impl Fn(f64) -> f64, u: f64, cap: f64) -> f64 {
    let edge = 1.0 / cap;
    if u < 0.0 {
        0.0
    } else if u >= edge {
        rise(u) / u
    } else {
        let held = cap * rise(edge);
        if u > 0.0 { held.min(rise(u) / u) } else { held }
    }
}
