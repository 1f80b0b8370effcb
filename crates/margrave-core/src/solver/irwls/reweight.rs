//! The quadratic model of c·ℓ(y, z) in one iteration: a slope and a curvature at the current score.
//!
//! With γ = −slope and w = curvature, the model of sample i is the parabola whose slope at ẑ is −γ + w(ẑ − z), so that
//! the solution of the system has β = γ − w(ẑ − z). There are three models:
//!
//! | model | slope and curvature of | used for |
//! |---|---|---|
//! | [`LossModel::Majorise`] | ½w(t − z)² above the loss (paper 000, (9); paper 002, (16)) | far from the solution |
//! | [`LossModel::Newton`] | the loss itself | smooth losses, near the solution |
//! | [`LossModel::Envelope`] | the loss smoothed around the current dual variable μ | losses with corners |
//!
//! With majorising weights the objective cannot rise.
//!
//! The envelope is M(z) = min over ζ of c·ℓ(ζ) + μ·(ζ − z) + ½σ(ζ − z)², up to a constant: the smoothing of paper 000
//! with K = σ/c, shifted by μ so that it is exact at the solution for any K. If the loss has a dual term h, there is a
//! closed form: β(z) = argmin h(β) + βz + (β − μ)²/(2σ), a straight line clipped to the box. Otherwise ζ is found by
//! false position and bisection on the slope.

use crate::control::{Control, Interrupt};
use crate::loss::{DualTerm, Loss};
use crate::problem::KernelProblem;

/// Samples per task. Sums over tasks are taken in order.
pub(super) const CHUNK: usize = 1 << 12;

/// The quadratic model of the loss.
#[derive(Clone, Copy)]
pub(super) enum LossModel<'a> {
    /// The weights of paper 000, capped.
    Majorise { cap: f64 },
    /// The curvature of the loss, capped.
    Newton { cap: f64 },
    /// The envelope around μ with σ = k·c.
    Envelope { mu: &'a [f64], k: f64 },
}

/// The losses of the samples, with their dual terms.
pub(super) struct SampleLosses<'p, 'a> {
    pub(super) problem: &'p KernelProblem<'a>,
    terms: Vec<Option<DualTerm>>,
}

/// γ = −slope and w = curvature of every sample.
pub(super) struct ModelWeights {
    pub(super) gamma: Vec<f64>,
    pub(super) weight: Vec<f64>,
}

impl<'p, 'a> SampleLosses<'p, 'a> {
    pub(super) fn new(problem: &'p KernelProblem<'a>) -> Self {
        let terms = (0..problem.len()).map(|i| problem.dual_term(i)).collect();
        Self { problem, terms }
    }

    pub(super) fn len(&self) -> usize {
        self.terms.len()
    }

    /// The dual term of every sample; `None` if some sample has none.
    pub(super) fn all_terms(&self) -> Option<Vec<DualTerm>> {
        self.terms.iter().copied().collect()
    }

    /// The box of β: −c times the range of the slope of the loss.
    pub(super) fn bounds(&self, i: usize) -> (f64, f64) {
        let c = self.problem.costs[i];
        if c == 0.0 {
            return (0.0, 0.0);
        }
        let (lo, hi) = self.problem.loss(i).domain(self.problem.targets[i]);
        (-c * hi, -c * lo)
    }

    /// c·ℓ at z.
    pub(super) fn loss(&self, i: usize, z: f64) -> f64 {
        let p = self.problem;
        if p.costs[i] == 0.0 { 0.0 } else { p.costs[i] * p.loss(i).value(p.targets[i], z) }
    }

    /// c·ℓ′ at z.
    pub(super) fn slope(&self, i: usize, z: f64) -> f64 {
        let p = self.problem;
        if p.costs[i] == 0.0 { 0.0 } else { p.costs[i] * p.loss(i).slope(p.targets[i], z) }
    }

    /// (γ, w) of sample `i` at z.
    pub(super) fn model(&self, i: usize, z: f64, model: LossModel<'_>) -> (f64, f64) {
        let p = self.problem;
        let (c, y, loss) = (p.costs[i], p.targets[i], p.loss(i));
        if c == 0.0 {
            return (0.0, 0.0);
        }
        match model {
            LossModel::Majorise { cap } => {
                let q = loss.reweight(y, z, cap);
                (c * q.weight * (q.target - z), c * q.weight)
            }
            LossModel::Newton { cap } => (-c * loss.slope(y, z), c * loss.curvature(y, z, 1e-6).clamp(0.0, cap)),
            LossModel::Envelope { mu, k } => {
                let e = self.envelope(i, z, mu[i], k * c);
                (e.beta, e.weight)
            }
        }
    }

    /// (M, M′) of sample `i` at z: for the envelope model those of the envelope, otherwise those of the loss.
    pub(super) fn value_slope(&self, i: usize, z: f64, model: LossModel<'_>) -> (f64, f64) {
        match model {
            LossModel::Envelope { mu, k } if self.problem.costs[i] > 0.0 => {
                let e = self.envelope(i, z, mu[i], k * self.problem.costs[i]);
                (e.value, -e.beta)
            }
            _ => (self.loss(i, z), self.slope(i, z)),
        }
    }

    /// (γ, w) of the straight piece of the envelope that contains β = μ, continued beyond its ends. `zeta` is the score
    /// at which the loss has the slope −μ.
    pub(super) fn continued_piece(&self, i: usize, z: f64, mu: f64, k: f64, zeta: f64) -> (f64, f64) {
        let sigma = k * self.problem.costs[i];
        match &self.terms[i] {
            Some(t) => {
                let weight = 1.0 / (t.d + 1.0 / sigma);
                let side = if t.eps == 0.0 { 0.0 } else { t.eps.copysign(mu) };
                (weight * (mu / sigma - z - t.p - side), weight)
            }
            None => (mu + sigma * (zeta - z), sigma),
        }
    }

    /// The end of the piece that contains β = μ, if `to` lies beyond it.
    pub(super) fn crossed_piece_end(&self, i: usize, to: f64, mu: f64) -> Option<f64> {
        let (mut lo, mut hi) = self.bounds(i);
        if self.terms[i].is_some_and(|t| t.eps > 0.0) {
            if mu > 0.0 { lo = lo.max(0.0) } else { hi = hi.min(0.0) }
        }
        if to < lo {
            Some(lo)
        } else if to > hi {
            Some(hi)
        } else {
            None
        }
    }

    fn envelope(&self, i: usize, z: f64, mu: f64, sigma: f64) -> EnvelopePoint {
        match &self.terms[i] {
            Some(term) => envelope_closed_form(term, z, mu, sigma),
            None => {
                let p = self.problem;
                envelope_by_search(p.loss(i), p.targets[i], p.costs[i], z, mu, sigma)
            }
        }
    }

    /// γ and w of all samples at the scores `f + b`.
    pub(super) fn weights(
        &self,
        f: &[f64],
        b: f64,
        model: LossModel<'_>,
        control: &Control,
    ) -> Result<ModelWeights, Interrupt> {
        let n = self.len();
        control.spend(60 * n);
        let parts = control.threads.map(n.div_ceil(CHUNK), |t| {
            control.check()?;
            Ok((t * CHUNK..((t + 1) * CHUNK).min(n)).map(|i| self.model(i, f[i] + b, model)).collect::<Vec<_>>())
        });
        let (mut gamma, mut weight) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for part in parts {
            for (g, w) in part? {
                gamma.push(g);
                weight.push(w);
            }
        }
        Ok(ModelWeights { gamma, weight })
    }

    /// Σ of `term(i)` in an order that does not depend on the number of threads.
    pub(super) fn sum(&self, control: &Control, term: impl Fn(usize) -> f64 + Sync) -> Result<f64, Interrupt> {
        let n = self.len();
        control.spend(20 * n);
        let parts = control.threads.map(n.div_ceil(CHUNK), |t| {
            control.check()?;
            Ok((t * CHUNK..((t + 1) * CHUNK).min(n)).map(&term).sum::<f64>())
        });
        parts.into_iter().sum()
    }
}

/// The envelope of one sample at one score.
struct EnvelopePoint {
    beta: f64,
    weight: f64,
    value: f64,
}

fn envelope_closed_form(t: &DualTerm, z: f64, mu: f64, sigma: f64) -> EnvelopePoint {
    let ridge = t.d + 1.0 / sigma;
    let v = mu / sigma - z - t.p;
    let raw = if v > t.eps {
        (v - t.eps) / ridge
    } else if v < -t.eps {
        (v + t.eps) / ridge
    } else {
        0.0
    };
    let beta = raw.clamp(t.lo, t.hi);
    let inside = beta > t.lo && beta < t.hi && (t.eps == 0.0 || beta != 0.0);
    let h = t.p * beta + t.eps * beta.abs() + 0.5 * t.d * beta * beta;
    let value = -(h + beta * z + (beta - mu) * (beta - mu) / (2.0 * sigma));
    EnvelopePoint { beta, weight: if inside { 1.0 / ridge } else { 0.0 }, value }
}

fn envelope_by_search(loss: &dyn Loss, y: f64, c: f64, z: f64, mu: f64, sigma: f64) -> EnvelopePoint {
    // ζ minimises c·ℓ(ζ) + ½σ(ζ − a)², whose slope rises through zero there.
    let a = z - mu / sigma;
    let slope = |zeta: f64| c * loss.slope(y, zeta) + sigma * (zeta - a);
    let first = slope(a);
    let zeta = if first == 0.0 { a } else { find_crossing(slope, a, first, first / sigma) };
    let curvature = c * loss.curvature(y, zeta, 1e-6);
    let weight = if curvature > 0.0 { sigma * curvature / (sigma + curvature) } else { 0.0 };
    let shift = zeta - a;
    let value = c * loss.value(y, zeta) + 0.5 * sigma * shift * shift;
    EnvelopePoint { beta: sigma * shift, weight, value }
}

/// Most steps of false position that may fail to halve the bracket.
const MAX_SLOW_STEPS: u32 = 6;

/// The point just beyond the sign change of `function`, which lies `step` or more below `from`, where the value is
/// `first`. False position with halved weights (the Illinois rule). After [`MAX_SLOW_STEPS`] steps that did not halve
/// the bracket every other step is a bisection, and after twice as many every step: the function then jumps.
fn find_crossing(function: impl Fn(f64) -> f64, from: f64, first: f64, mut step: f64) -> f64 {
    let (mut near, mut at_near) = (from, first);
    let mut far = from - step;
    let mut at_far = function(far);
    // A convex loss is bracketed by the first step; a loss that becomes steeper below is not.
    for _ in 0..60 {
        if at_far * first <= 0.0 {
            break;
        }
        (near, at_near) = (far, at_far);
        step *= 2.0;
        far -= step;
        at_far = function(far);
    }
    let (mut bisect, mut slow_steps, mut moved_far) = (false, 0, None);
    for _ in 0..130 {
        let (mid, width) = (0.5 * (near + far), (far - near).abs());
        let min_width = 4.0 * f64::EPSILON * near.abs().max(far.abs());
        if at_far == 0.0 || width <= min_width || mid == near || mid == far {
            break;
        }
        let (low, high) = (near.min(far) + 0.5 * min_width, near.max(far) - 0.5 * min_width);
        let guess = (far - at_far * ((far - near) / (at_far - at_near))).max(low).min(high);
        let at = if bisect || !(low < high) || guess.is_nan() { mid } else { guess };
        let value = function(at);
        let beyond = value * first <= 0.0;
        if beyond {
            (far, at_far) = (at, value);
            at_near *= if moved_far == Some(true) { 0.5 } else { 1.0 };
        } else {
            (near, at_near) = (at, value);
            at_far *= if moved_far == Some(false) { 0.5 } else { 1.0 };
        }
        moved_far = Some(beyond);
        slow_steps += u32::from(!bisect && (far - near).abs() > 0.5 * width);
        bisect = slow_steps > MAX_SLOW_STEPS && (!bisect || slow_steps > 2 * MAX_SLOW_STEPS);
    }
    far
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{Epsilon, Hinge, HuberHinge, Sigmoid};

    /// Slope and curvature of the envelope against finite differences, and agreement of both ways to compute it.
    #[test]
    fn the_slope_and_curvature_of_the_envelope_match_finite_differences() {
        let losses: [(&dyn Loss, f64); 4] = [
            (&Hinge, 1.0),
            (&Epsilon { epsilon: 0.1 }, 0.3),
            (&HuberHinge { delta: 2.0 }, -1.0),
            (&Sigmoid { eta: 2.0 }, 1.0),
        ];
        for (loss, y) in losses {
            for (mu, sigma) in [(0.0, 3.0), (0.2 * y, 40.0)] {
                for step in -40..40 {
                    let z = f64::from(step) * 0.0973;
                    let at = |z: f64| match loss.dual(y, 1.5) {
                        Some(term) => envelope_closed_form(&term, z, mu, sigma),
                        None => envelope_by_search(loss, y, 1.5, z, mu, sigma),
                    };
                    let (h, here) = (1e-5, at(z));
                    let (left, right) = (at(z - h), at(z + h));
                    let slope = (right.value - left.value) / (2.0 * h);
                    assert!(
                        (slope + here.beta).abs() < 1e-4 * (1.0 + sigma),
                        "{} {z}: {slope} {}",
                        loss.name(),
                        here.beta
                    );
                    let curve = -(right.beta - left.beta) / (2.0 * h);
                    // Within h of the end of a piece the difference mixes both sides.
                    let same = (left.weight - right.weight).abs() < 1e-3 * sigma;
                    assert!(!same || (curve.max(0.0) - here.weight).abs() < 1e-3 * sigma, "{} {z}", loss.name());
                    if loss.properties().convex {
                        let other = envelope_by_search(loss, y, 1.5, z, mu, sigma);
                        assert!((other.beta - here.beta).abs() < 1e-9 * sigma, "{} {z}", loss.name());
                    }
                }
            }
        }
    }

    #[test]
    fn a_crossing_is_found_to_full_precision_in_few_evaluations() {
        let count = std::cell::Cell::new(0);
        let smooth = |z: f64| z - 3.0 * (-z * z).exp();
        let jump = |z: f64| if z < -0.3 { z - 1.0 } else { z + 2.0 };
        let (cases, max_evaluations): ([&dyn Fn(f64) -> f64; 2], [usize; 2]) = ([&smooth, &jump], [24, 70]);
        for (f, max_evaluations) in cases.into_iter().zip(max_evaluations) {
            count.set(0);
            let counted = |z: f64| {
                count.set(count.get() + 1);
                f(z)
            };
            let at = find_crossing(counted, 2.0, f(2.0), 0.5);
            assert!(f(at) <= 1e-15 && f(at + 8.0 * f64::EPSILON) >= 0.0, "{at}: {}", f(at));
            assert!(count.get() <= max_evaluations, "{} evaluations", count.get());
        }
    }

    #[test]
    fn at_the_solution_the_envelope_is_exact_for_any_smoothing() {
        // A hinge sample on the margin with β = 0.7: the envelope around μ = 0.7 has that slope at that score.
        for sigma in [0.1, 10.0, 1e6] {
            let e = envelope_closed_form(&Hinge.dual(1.0, 2.0).unwrap(), 1.0, 0.7, sigma);
            // z and p = −1 cancel up to a rounding, which σ magnifies.
            assert!((e.beta - 0.7).abs() < 1e-15 * (10.0 + sigma) && (e.weight - sigma).abs() < 1e-9 * sigma);
        }
    }
}
