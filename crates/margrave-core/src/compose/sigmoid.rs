//! Sigmoids fitted to left-out scores, and which of two rules they follow.
//!
//! Platt's P(+1 | z) = 1/(1 + exp(a·z + b)) is fitted by maximum likelihood with his smoothed targets (n₊ + 1)/(n₊ + 2) and
//! 1/(n₋ + 2), by Newton's method with a line search (Lin, Lin and Weng 2007). Rows count by their weights, so that a weight
//! of 2 is the same as two copies. Two forms:
//!
//! - *free*: a and b as they are. The probabilities estimate frequencies, and ½ falls where it falls.
//! - *agreeing*: b = 0 and a slope of its own on each side of the boundary, so that ½ is on the boundary and the more probable
//!   class is the predicted one. Costs that differ by class move the boundary away from ½, and then this form cannot fit.

use crate::model::calibration::{Reason, Rule, Sigmoid};
use crate::train::ProbabilityRule;

/// The free form is used where its log-loss is below this share of that of the agreeing one.
const CLEARLY_BETTER: f64 = 0.99;

/// Scores of rows that a machine was not trained on, with their labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Labelled {
    /// The scores.
    pub scores: Vec<f64>,
    /// −1 or +1.
    pub labels: Vec<f64>,
    /// How much each row counts; empty: all the same.
    pub counts: Vec<f64>,
}

/// A row of a fit: score, smoothed target, count.
type Sample = (f64, f64, f64);

impl Labelled {
    fn count(&self, row: usize) -> f64 {
        self.counts.get(row).copied().unwrap_or(1.0)
    }

    fn total(&self, sign: f64) -> f64 {
        (0..self.labels.len()).filter(|&row| self.labels[row] * sign > 0.0).map(|row| self.count(row)).sum()
    }

    /// The rows that count, with Platt's targets.
    fn samples(&self) -> Vec<Sample> {
        let (positive, negative) = (self.total(1.0), self.total(-1.0));
        let (high, low) = ((positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0));
        let sample = |row: usize| {
            let target = if self.labels[row] > 0.0 { high } else { low };
            (self.scores[row], target, self.count(row))
        };
        (0..self.labels.len()).map(sample).filter(|s| s.2 > 0.0 && s.0.is_finite()).collect()
    }

    /// Mean −log of the probability that a sigmoid gives to the label, over the rows by their counts.
    pub fn log_loss(&self, sigmoid: &Sigmoid) -> f64 {
        let (mut sum, mut total) = (0.0, 0.0);
        for row in 0..self.labels.len() {
            let (p, count) = (sigmoid.positive(self.scores[row]), self.count(row));
            if count > 0.0 && p.is_finite() {
                sum -= count * if self.labels[row] > 0.0 { p.ln() } else { (1.0 - p).ln() };
                total += count;
            }
        }
        if total > 0.0 { sum / total } else { 0.0 }
    }
}

/// −log-likelihood, written so that nothing overflows.
fn deviance(samples: &[Sample], a: f64, b: f64) -> f64 {
    let one = |&(z, t, w): &Sample| {
        let u = a * z + b;
        w * if u >= 0.0 { t * u + (-u).exp().ln_1p() } else { (t - 1.0) * u + u.exp().ln_1p() }
    };
    samples.iter().map(one).sum()
}

/// The most likely a and b, from a = 0 and the given b; without `free`, b stays 0.
fn newton(samples: &[Sample], free: bool, start: f64) -> (f64, f64) {
    let (mut a, mut b) = (0.0, if free { start } else { 0.0 });
    let mut now = deviance(samples, a, b);
    let size: f64 = samples.iter().map(|(z, _, w)| w * (1.0 + z.abs())).sum();
    for _ in 0..100 {
        let (mut h11, mut h22, mut h21, mut g1, mut g2) = (1e-12, 1e-12, 0.0, 0.0, 0.0);
        for &(z, t, w) in samples {
            let p = Sigmoid { a, below: a, b }.at(z);
            let (d1, d2) = (w * (t - p), w * p * (1.0 - p));
            h11 += z * z * d2;
            h22 += d2;
            h21 += z * d2;
            g1 += z * d1;
            g2 += d1;
        }
        if g1.abs() <= 1e-12 * size && (!free || g2.abs() <= 1e-12 * size) {
            break;
        }
        let (da, db) = if free {
            let det = h11 * h22 - h21 * h21;
            (-(h22 * g1 - h21 * g2) / det, -(h11 * g2 - h21 * g1) / det)
        } else {
            (-g1 / h11, 0.0)
        };
        let slope = g1 * da + if free { g2 * db } else { 0.0 };
        let mut step = 1.0;
        let mut moved = false;
        while step >= 1e-10 {
            let next = deviance(samples, a + step * da, b + step * db);
            if next < now + 1e-4 * step * slope {
                (a, b, now, moved) = (a + step * da, b + step * db, next, true);
                break;
            }
            step *= 0.5;
        }
        if !moved {
            break;
        }
    }
    (a, b)
}

/// The most likely sigmoid with a free offset. Where scores and labels are unrelated or opposed, a = 0 and P is the share of +1.
pub fn fit_free(data: &Labelled) -> Sigmoid {
    let samples = data.samples();
    let (positive, negative) = (data.total(1.0), data.total(-1.0));
    let (a, b) = newton(&samples, true, ((negative + 1.0) / (positive + 1.0)).ln());
    if a < 0.0 {
        return Sigmoid { a, below: a, b };
    }
    let total: f64 = samples.iter().map(|s| s.2).sum();
    let share = samples.iter().map(|s| s.1 * s.2).sum::<f64>() / total.max(f64::MIN_POSITIVE);
    let b = if share > 0.0 && share < 1.0 { ((1.0 - share) / share).ln() } else { 0.0 };
    Sigmoid { a: 0.0, below: 0.0, b }
}

/// The most likely sigmoid with ½ at z = 0 and a slope of its own on each side. A side without rows has the slope of all rows.
/// Slopes never have the wrong sign: where scores and labels are opposed they are 0.
pub fn fit_agreeing(data: &Labelled) -> Sigmoid {
    let samples = data.samples();
    let slope = |keep: &dyn Fn(f64) -> bool| {
        let own: Vec<Sample> = samples.iter().copied().filter(|s| keep(s.0)).collect();
        let own = if own.is_empty() { &samples } else { &own };
        newton(own, false, 0.0).0.min(0.0)
    };
    Sigmoid { a: slope(&|z| z > 0.0), below: slope(&|z| z <= 0.0), b: 0.0 }
}

/// The sigmoids of all machines of a model, the rule they follow, and why. `weighted`: the costs differ by class. `rest`: the
/// machines are one per class against the rest, where ½ is on no boundary: they are always free, and the rule only says
/// whether the predicted class is made the most probable one.
pub fn fit_all(
    machines: &[Labelled],
    asked: ProbabilityRule,
    weighted: bool,
    rest: bool,
) -> (Vec<Sigmoid>, Rule, Reason) {
    let free = || machines.iter().map(fit_free).collect::<Vec<_>>();
    let agreeing = || machines.iter().map(if rest { fit_free } else { fit_agreeing }).collect::<Vec<_>>();
    match asked {
        ProbabilityRule::Agree => return (agreeing(), Rule::Agree, Reason::Asked),
        ProbabilityRule::Free => return (free(), Rule::Free, Reason::Asked),
        ProbabilityRule::Auto if weighted => return (free(), Rule::Free, Reason::Weighted),
        ProbabilityRule::Auto if rest => return (free(), Rule::Agree, Reason::Usual),
        ProbabilityRule::Auto => {}
    }
    let (free, agreeing) = (free(), agreeing());
    let total = |all: &[Sigmoid]| {
        let one =
            |(data, sigmoid): (&Labelled, &Sigmoid)| data.log_loss(sigmoid) * (data.total(1.0) + data.total(-1.0));
        machines.iter().zip(all).map(one).sum::<f64>()
    };
    if total(&free) < CLEARLY_BETTER * total(&agreeing) {
        (free, Rule::Free, Reason::Better)
    } else {
        (agreeing, Rule::Agree, Reason::Usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores on a grid, labels in the proportions given by a sigmoid.
    fn drawn(p: impl Fn(f64) -> f64) -> Labelled {
        let mut data = Labelled::default();
        for step in -20..=20 {
            let z = f64::from(step) * 0.1;
            for i in 0..200 {
                data.scores.push(z);
                data.labels.push(if (f64::from(i) + 0.5) / 200.0 < p(z) { 1.0 } else { -1.0 });
            }
        }
        data
    }

    #[test]
    fn sigmoids_are_recovered() {
        let one = drawn(|z| 1.0 / (1.0 + (-2.0 * z).exp()));
        let s = fit_free(&one);
        assert!((s.a + 2.0).abs() < 0.05 && s.b.abs() < 0.02, "{s:?}");
        let two = drawn(|z| 1.0 / (1.0 + (if z > 0.0 { -1.0 } else { -3.0 } * z).exp()));
        let s = fit_agreeing(&two);
        assert!((s.a + 1.0).abs() < 0.05 && (s.below + 3.0).abs() < 0.08 && s.b == 0.0, "{s:?}");
        // Labels opposed to the scores: the slopes are 0, never of the wrong sign.
        let turned = Labelled { labels: one.labels.iter().map(|y| -y).collect(), ..one };
        assert_eq!(fit_agreeing(&turned), Sigmoid { a: 0.0, below: 0.0, b: 0.0 });
        assert_eq!(fit_free(&turned).a, 0.0);
    }

    #[test]
    fn a_count_is_a_number_of_copies() {
        let few = Labelled {
            scores: vec![-1.5, -0.4, 0.3, 0.9, -0.2, 1.4],
            labels: vec![-1.0, -1.0, -1.0, 1.0, 1.0, 1.0],
            counts: vec![2.0, 0.0, 1.0, 3.0, 1.0, 2.0],
        };
        let mut copies = Labelled::default();
        for row in 0..6 {
            for _ in 0..few.counts[row] as usize {
                copies.scores.push(few.scores[row]);
                copies.labels.push(few.labels[row]);
            }
        }
        for fit in [fit_free, fit_agreeing] {
            let (a, b) = (fit(&few), fit(&copies));
            assert!((a.a - b.a).abs() < 1e-9 && (a.below - b.below).abs() < 1e-9 && (a.b - b.b).abs() < 1e-9);
            assert!((few.log_loss(&a) - copies.log_loss(&a)).abs() < 1e-12);
        }
    }

    #[test]
    fn the_free_rule_is_taken_where_it_is_clearly_better() {
        let auto = ProbabilityRule::Auto;
        let fits = vec![drawn(|z| 1.0 / (1.0 + (-2.0 * z).exp()))];
        assert_eq!(
            (fit_all(&fits, auto, false, false).1, fit_all(&fits, auto, false, false).2),
            (Rule::Agree, Reason::Usual)
        );
        let shifted = vec![drawn(|z| 1.0 / (1.0 + (1.5 - 2.0 * z).exp()))];
        let (sigmoids, rule, reason) = fit_all(&shifted, auto, false, false);
        assert_eq!((rule, reason), (Rule::Free, Reason::Better));
        assert!((sigmoids[0].b - 1.5).abs() < 0.05, "{sigmoids:?}");
        assert_eq!(fit_all(&shifted, ProbabilityRule::Agree, true, false).1, Rule::Agree);
        assert_eq!(fit_all(&fits, auto, true, false).2, Reason::Weighted);
        assert_eq!(fit_all(&fits, ProbabilityRule::Free, false, false).2, Reason::Asked);
    }

    #[test]
    fn an_empty_side_has_the_slope_of_the_other() {
        let data = Labelled { scores: vec![-1.0, -2.0, -0.1], labels: vec![-1.0, -1.0, 1.0], counts: vec![] };
        let s = fit_agreeing(&data);
        assert_eq!(s.a, s.below);
        assert_eq!(fit_agreeing(&Labelled::default()), Sigmoid { a: 0.0, below: 0.0, b: 0.0 });
    }
}
