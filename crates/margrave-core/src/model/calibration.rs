//! Probabilities and intervals from scores.
//!
//! A binary machine's score z becomes P(+1 | z) = 1/(1 + exp(a·z + b)). Under [`Rule::Agree`] b = 0 and each side of the
//! boundary has a slope of its own: ½ falls on z = 0, so that the more probable class is the predicted one. Under
//! [`Rule::Free`] the offset is fitted as well, and the probabilities estimate frequencies even where costs differ by class. For
//! several classes the probabilities of all pairs are coupled (Wu, Lin and Weng 2004, second method: minimise
//! Σᵢ Σ_{j≠i} (r_ji·p_i − r_ij·p_j)² over the simplex), or those of all classes against the rest divided by their sum; under
//! [`Rule::Agree`] the result is then changed, as little as possible, so that the predicted class is the most probable one.

use serde::{Deserialize, Serialize};

use super::expansion::pairs;
use super::{Model, Prediction, Scheme};
use crate::problem::Task;

/// Fractions of the residuals for which a model keeps the radius.
pub const SHARES: [f64; 5] = [0.5, 0.8, 0.9, 0.95, 0.99];

/// The kind of scores a calibration was fitted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Leave-one-out scores from the final solution.
    LeaveOneOut,
    /// Scores of held-out folds.
    Folds,
    /// Read from a file that does not say.
    Unknown,
}

impl Origin {
    /// The name in model files and interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Origin::LeaveOneOut => "leave-one-out",
            Origin::Folds => "folds",
            Origin::Unknown => "unknown",
        }
    }
}

/// Whether probabilities agree with predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The predicted class is the most probable one.
    #[default]
    Agree,
    /// Probabilities estimate frequencies, whatever is predicted.
    Free,
}

impl Rule {
    /// The name in the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Agree => "agree",
            Rule::Free => "free",
        }
    }
}

/// Why a calibration follows its rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It was asked for.
    Asked,
    /// Costs differ by class, which moves the boundary away from ½.
    Weighted,
    /// The free rule has a clearly lower log-loss on left-out scores.
    Better,
    /// Nothing spoke against agreement.
    Usual,
    /// Read from a file that does not say.
    #[default]
    Unknown,
}

impl Reason {
    /// The name in the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Asked => "asked",
            Reason::Weighted => "weighted",
            Reason::Better => "better",
            Reason::Usual => "usual",
            Reason::Unknown => "unknown",
        }
    }
}

/// The sigmoid of one machine: P(+1 | z) = 1/(1 + exp(a·z + b)), with another slope where z ≤ 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sigmoid {
    /// Slope where z > 0; below 0 where a larger score means a more probable +1.
    pub a: f64,
    /// Slope where z ≤ 0.
    pub below: f64,
    /// Offset.
    pub b: f64,
}

impl Sigmoid {
    /// P(+1 | z).
    pub fn at(&self, z: f64) -> f64 {
        sigmoid(z, if z > 0.0 { self.a } else { self.below }, self.b)
    }

    /// The same, not nearer to 0 or 1 than 1e-7.
    pub fn positive(&self, z: f64) -> f64 {
        self.at(z).clamp(MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
    }
}

/// How scores become probabilities, or predicted numbers become intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Calibration {
    /// P(+1 | z) = 1/(1 + exp(a·z + b)), one a and one b per machine.
    Sigmoid {
        /// Below 0 where a larger score means a more probable +1.
        a: Vec<f64>,
        /// The slopes where z ≤ 0, one per machine; empty: the same as `a`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        below: Vec<f64>,
        /// 0 where ½ is kept on the boundary.
        b: Vec<f64>,
        /// What it was fitted to.
        origin: Origin,
        /// Whether probabilities agree with predictions.
        #[serde(default)]
        rule: Rule,
        /// Why.
        #[serde(default)]
        reason: Reason,
    },
    /// Residuals of regression.
    Residuals {
        /// Mean absolute residual: the scale of a Laplace distribution.
        sigma: f64,
        /// Fractions of the residuals and the radius that contains each, ascending.
        radii: Vec<(f64, f64)>,
        /// What it was measured on.
        origin: Origin,
    },
    /// Residuals of a regression with several targets.
    ResidualsByOutput {
        /// One per output, as in [`Residuals`](Calibration::Residuals).
        sigma: Vec<f64>,
        /// The same.
        radii: Vec<Vec<(f64, f64)>>,
        /// What they were measured on.
        origin: Origin,
    },
}

/// Smallest distance of probabilities from 0 and 1.
const MIN_PROBABILITY: f64 = 1e-7;

/// 1/(1 + exp(a·z + b)), without overflow.
pub fn sigmoid(z: f64, a: f64, b: f64) -> f64 {
    let t = a * z + b;
    if t >= 0.0 { (-t).exp() / (1.0 + (-t).exp()) } else { 1.0 / (1.0 + t.exp()) }
}

/// The probabilities of classes from those of pairs: `r[i·k + j]` is P(i | i or j). Wu, Lin and Weng's second method, by its
/// fixed-point iteration, to an error of `tolerance` in the optimality condition.
pub fn couple(k: usize, r: &[f64], tolerance: f64, p: &mut [f64]) {
    let at = |i: usize, j: usize| r[i * k + j];
    let mut q = vec![0.0; k * k];
    for t in 0..k {
        for j in (0..k).filter(|&j| j != t) {
            q[t * k + t] += at(j, t) * at(j, t);
            q[t * k + j] = -at(j, t) * at(t, j);
        }
    }
    p.fill(1.0 / k as f64);
    let mut qp = vec![0.0; k];
    for _ in 0..k.max(100) {
        // Recomputed in each iteration: incremental updates would accumulate rounding errors.
        for t in 0..k {
            qp[t] = (0..k).map(|j| q[t * k + j] * p[j]).sum();
        }
        let mut pqp: f64 = p.iter().zip(&qp).map(|(p, qp)| p * qp).sum();
        if qp.iter().map(|v| (v - pqp).abs()).fold(0.0, f64::max) < tolerance {
            break;
        }
        for t in 0..k {
            let step = (pqp - qp[t]) / q[t * k + t];
            p[t] += step;
            pqp = (pqp + step * (step * q[t * k + t] + 2.0 * qp[t])) / ((1.0 + step) * (1.0 + step));
            for j in 0..k {
                qp[j] = (qp[j] + step * q[t * k + j]) / (1.0 + step);
                p[j] /= 1.0 + step;
            }
        }
    }
}

/// Moves `p`, a point of the simplex, the least (in the sum of squares) that makes entry `winner` the largest.
pub fn make_largest(p: &mut [f64], winner: usize) {
    let mut above: Vec<usize> = (0..p.len()).filter(|&c| c != winner && p[c] >= p[winner]).collect();
    if above.is_empty() {
        return;
    }
    above.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    // The winner and the largest others get one value, their mean, over all entries that still exceed it.
    let (mut sum, mut count) = (p[winner], 1.0);
    for &c in &above {
        if p[c] <= sum / count {
            break;
        }
        sum += p[c];
        count += 1.0;
    }
    let level = sum / count;
    // Equal values would leave the choice to the order of the classes.
    let edge = 1e-9 * level.max(MIN_PROBABILITY);
    for &c in &above {
        p[c] = p[c].min(level - edge);
    }
    p[winner] = 0.0;
    p[winner] = 1.0 - p.iter().sum::<f64>();
}

impl Calibration {
    /// The calibration of a model with these sigmoids, one per machine.
    pub fn of_sigmoids(sigmoids: &[Sigmoid], origin: Origin, rule: Rule, reason: Reason) -> Self {
        let list = |of: fn(&Sigmoid) -> f64| sigmoids.iter().map(of).collect::<Vec<f64>>();
        let (a, below, b) = (list(|s| s.a), list(|s| s.below), list(|s| s.b));
        let below = if below == a { Vec::new() } else { below };
        Calibration::Sigmoid { a, below, b, origin, rule, reason }
    }

    /// The sigmoid of each machine; `None` for a regression.
    pub fn sigmoids(&self) -> Option<Vec<Sigmoid>> {
        let Calibration::Sigmoid { a, below, b, .. } = self else { return None };
        let one = |at: usize| Sigmoid { a: a[at], below: below.get(at).copied().unwrap_or(a[at]), b: b[at] };
        Some((0..a.len().min(b.len())).map(one).collect())
    }
}

/// P of every class for one point, from its scores. Not for [`Scheme::Outputs`].
pub fn class_probabilities(scheme: Scheme, sigmoids: &[Sigmoid], z: &[f64], p: &mut [f64]) {
    let classes = p.len();
    match scheme {
        Scheme::One => {
            let positive = sigmoids[0].positive(z[0]);
            p.copy_from_slice(&[1.0 - positive, positive]);
        }
        Scheme::OneVsOne => {
            let mut r = vec![0.0; classes * classes];
            for (machine, (i, j)) in pairs(classes).enumerate() {
                let second = sigmoids[machine].positive(z[machine]);
                (r[j * classes + i], r[i * classes + j]) = (second, 1.0 - second);
            }
            couple(classes, &r, 1e-9 / classes as f64, p);
        }
        Scheme::OneVsRest | Scheme::CrammerSinger | Scheme::Outputs => {
            for (machine, p) in p.iter_mut().enumerate() {
                *p = sigmoids[machine].positive(z[machine]);
            }
            let total: f64 = p.iter().sum();
            p.iter_mut().for_each(|p| *p /= total);
        }
    }
}

impl Model {
    /// P of every class for every point, n × classes, from its scores; `None` without a calibration. Under [`Rule::Agree`], and
    /// unless a [threshold](Self::threshold) was chosen, the most probable class is the one [`decide`](Self::decide) gives.
    pub fn probabilities(&self, scores: &[f64]) -> Option<Vec<f64>> {
        let calibration = self.calibration.as_ref()?;
        let sigmoids = calibration.sigmoids()?;
        let agrees = matches!(calibration, Calibration::Sigmoid { rule: Rule::Agree, .. }) && self.threshold.is_none();
        let Prediction::Labels(winners) = self.decide(scores) else { return None };
        let (classes, outputs) = (self.labels.len(), self.expansion.outputs());
        let mut all = vec![0.0; winners.len() * classes];
        for ((z, p), &winner) in scores.chunks_exact(outputs).zip(all.chunks_exact_mut(classes)).zip(&winners) {
            class_probabilities(self.scheme, &sigmoids, z, p);
            if agrees {
                make_largest(p, winner as usize);
            }
        }
        Some(all)
    }

    /// Two classes: the second is predicted where its probability exceeds this. `None` without probabilities, for several
    /// classes, or where the probability does not depend on the score.
    pub fn probability_threshold(&self) -> Option<f64> {
        if self.scheme != Scheme::One {
            return None;
        }
        let Some(Calibration::Sigmoid { rule, .. }) = &self.calibration else { return None };
        let sigmoid = *self.calibration.as_ref()?.sigmoids()?.first()?;
        match (rule, &self.threshold) {
            (Rule::Agree, None) => Some(0.5),
            (_, threshold) if sigmoid.a < 0.0 && sigmoid.below < 0.0 => {
                Some(sigmoid.positive(threshold.as_ref().map_or(0.0, |t| t.score)))
            }
            _ => None,
        }
    }

    /// The radius around each predicted number that contains a fraction `level` of its residuals; `None` unless it was measured.
    pub fn radii(&self, level: f64) -> Option<Vec<f64>> {
        let own = |radii: &Vec<(f64, f64)>| {
            radii.iter().find(|(share, _)| (share - level).abs() < 1e-12).map(|(_, radius)| *radius)
        };
        match &self.calibration {
            Some(Calibration::Residuals { radii, .. }) if self.task == Task::Regress => Some(vec![own(radii)?]),
            Some(Calibration::ResidualsByOutput { radii, .. }) if self.task == Task::Regress => {
                radii.iter().map(own).collect()
            }
            _ => None,
        }
    }

    /// The same for a model with one target.
    pub fn radius(&self, level: f64) -> Option<f64> {
        match self.radii(level)?.as_slice() {
            &[one] => Some(one),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigmoids_do_not_overflow() {
        assert_eq!(sigmoid(0.0, -3.0, 0.0), 0.5);
        assert!(sigmoid(1e6, -3.0, 0.0) == 1.0 && sigmoid(-1e6, -3.0, 0.0) == 0.0);
        assert!((sigmoid(1.0, -1.0, 0.5) - 1.0 / (1.0 + (-0.5f64).exp())).abs() < 1e-15);
    }

    #[test]
    fn each_side_has_its_slope() {
        let s = Sigmoid { a: -1.0, below: -3.0, b: 0.0 };
        assert_eq!((s.at(0.0), s.at(1.0), s.at(-1.0)), (0.5, sigmoid(1.0, -1.0, 0.0), sigmoid(-1.0, -3.0, 0.0)));
        let kept = Calibration::of_sigmoids(&[s], Origin::Folds, Rule::Agree, Reason::Usual);
        assert_eq!(kept.sigmoids(), Some(vec![s]));
    }

    #[test]
    fn consistent_pairs_are_recovered() {
        // r_ij = p_i/(p_i + p_j) has the minimum 0 at p.
        let truth = [0.1, 0.25, 0.6, 0.05];
        let r: Vec<f64> = (0..16).map(|at| truth[at / 4] / (truth[at / 4] + truth[at % 4])).collect();
        let mut p = [0.0; 4];
        couple(4, &r, 1e-12, &mut p);
        for (p, truth) in p.iter().zip(truth) {
            assert!((p - truth).abs() < 1e-9, "{p} {truth}");
        }
    }

    #[test]
    fn the_winner_is_made_largest_and_little_else_changes() {
        let mut p = [0.5, 0.3, 0.2];
        make_largest(&mut p, 0);
        assert_eq!(p, [0.5, 0.3, 0.2]);
        make_largest(&mut p, 2);
        // Pooling 0.2 with 0.5 gives 0.35, above 0.3.
        assert!(p[2] > p[0] && p[2] > p[1] && (p[0] - 0.35).abs() < 1e-6 && (p[1] - 0.3).abs() < 1e-6, "{p:?}");
        let mut p = [0.45, 0.44, 0.11];
        make_largest(&mut p, 2);
        assert!(p[2] > p[0] && p[2] > p[1] && (p.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{p:?}");
        assert!((p[0] - 1.0 / 3.0).abs() < 1e-6);
    }
}
