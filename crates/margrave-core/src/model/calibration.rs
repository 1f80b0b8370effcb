//! Probabilities and intervals from scores.
//!
//! A binary machine's score z becomes P(+1 | z) = 1/(1 + exp(a·z + b)). With b = 0, as fitted here, ½ falls on z = 0, so that
//! the more probable class is the predicted one. For several classes the probabilities of all pairs are coupled (Wu, Lin and
//! Weng 2004, second method: minimise Σᵢ Σ_{j≠i} (r_ji·p_i − r_ij·p_j)² over the simplex), or those of all classes
//! against the rest divided by their sum; the result is then changed, as little as possible, so that the predicted class
//! is the most probable one.

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

/// How scores become probabilities, or predicted numbers become intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Calibration {
    /// P(+1 | z) = 1/(1 + exp(a·z + b)), one a and one b per machine.
    Sigmoid {
        /// Below 0 where a larger score means a more probable +1.
        a: Vec<f64>,
        /// 0 where the threshold is kept.
        b: Vec<f64>,
        /// What it was fitted to.
        origin: Origin,
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
    /// The probabilities of the two sides of machine `machine`: P(+1).
    fn positive(a: &[f64], b: &[f64], machine: usize, z: f64) -> f64 {
        sigmoid(z, a[machine], b[machine]).clamp(MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
    }
}

impl Model {
    /// P of every class for every point, n × classes, from its scores; `None` without a calibration. The most probable class
    /// is the one [`decide`](Self::decide) gives.
    pub fn probabilities(&self, scores: &[f64]) -> Option<Vec<f64>> {
        let Some(Calibration::Sigmoid { a, b, .. }) = &self.calibration else { return None };
        let Prediction::Labels(winners) = self.decide(scores) else { return None };
        let (classes, outputs) = (self.labels.len(), self.expansion.outputs());
        let mut all = vec![0.0; winners.len() * classes];
        let mut r = vec![0.0; classes * classes];
        for ((z, p), &winner) in scores.chunks_exact(outputs).zip(all.chunks_exact_mut(classes)).zip(&winners) {
            match self.scheme {
                Scheme::One => {
                    let positive = Calibration::positive(a, b, 0, z[0]);
                    p.copy_from_slice(&[1.0 - positive, positive]);
                }
                Scheme::OneVsOne => {
                    for (machine, (i, j)) in pairs(classes).enumerate() {
                        let second = Calibration::positive(a, b, machine, z[machine]);
                        (r[j * classes + i], r[i * classes + j]) = (second, 1.0 - second);
                    }
                    couple(classes, &r, 1e-9 / classes as f64, p);
                }
                // Not a classifier: rejected above.
                Scheme::Outputs => return None,
                Scheme::OneVsRest | Scheme::CrammerSinger => {
                    for (machine, p) in p.iter_mut().enumerate() {
                        *p = Calibration::positive(a, b, machine, z[machine]);
                    }
                    let total: f64 = p.iter().sum();
                    p.iter_mut().for_each(|p| *p /= total);
                }
            }
            make_largest(p, winner as usize);
        }
        Some(all)
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
