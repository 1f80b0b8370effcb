//! The threshold on scores that suits a rule best, on left-out scores.

use super::sigmoid::Labelled;
use crate::model::{Origin, Threshold, ThresholdRule};

/// The counts above a possible threshold: true positives, false positives.
#[derive(Debug, Clone, Copy)]
struct Above {
    hits: f64,
    misses: f64,
}

/// Chooses the threshold: halfway between two neighbouring scores, or beyond the first or the last. Among equally good ones
/// the largest score is taken.
pub fn choose(data: &Labelled, rule: ThresholdRule, origin: Origin) -> Threshold {
    let count = |row: usize| data.counts.get(row).copied().unwrap_or(1.0);
    let mut order: Vec<usize> = (0..data.scores.len()).filter(|&row| data.scores[row].is_finite()).collect();
    order.sort_by(|&a, &b| data.scores[b].total_cmp(&data.scores[a]));
    let total: f64 = order.iter().filter(|&&row| data.labels[row] > 0.0).map(|&row| count(row)).sum();
    let mut now = Above { hits: 0.0, misses: 0.0 };
    // Nothing is predicted positive above the largest score.
    let first = order.first().map_or(0.0, |&row| data.scores[row]);
    let mut best: Option<(f64, f64, Above)> = None;
    let mut consider = |cut: f64, at: Above| {
        let value = value(rule, at, total);
        if value.is_finite() && best.is_none_or(|(top, _, _)| value > top) {
            best = Some((value, cut, at));
        }
    };
    consider(first, now);
    for (at, &row) in order.iter().enumerate() {
        match data.labels[row] > 0.0 {
            true => now.hits += count(row),
            false => now.misses += count(row),
        }
        let z = data.scores[row];
        match order.get(at + 1).map(|&next| data.scores[next]) {
            // Equal scores share one threshold.
            Some(next) if next == z => {}
            Some(next) => {
                let middle = next + 0.5 * (z - next);
                consider(if middle < z { middle } else { next }, now);
            }
            None => consider(z - 1.0, now),
        }
    }
    let (_, score, at) = best.unwrap_or((0.0, 0.0, now));
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    Threshold { score, rule, origin, precision: share(at.hits, at.hits + at.misses), recall: share(at.hits, total) }
}

/// How good a threshold is; larger is better.
fn value(rule: ThresholdRule, at: Above, total: f64) -> f64 {
    let (hits, misses) = (at.hits, at.misses);
    match rule {
        ThresholdRule::MaxF1 if hits + misses + total > 0.0 => 2.0 * hits / (hits + misses + total),
        ThresholdRule::MaxF1 => 0.0,
        // A relative slack of rounding: weights are summed in another order than their total.
        ThresholdRule::Recall(share) if hits < share * total * (1.0 - 1e-12) => f64::NEG_INFINITY,
        ThresholdRule::Recall(_) if hits + misses > 0.0 => hits / (hits + misses),
        ThresholdRule::Recall(_) => 0.0,
        ThresholdRule::Cost { fp, fneg } => -(fp * misses + fneg * (total - hits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Labelled {
        Labelled {
            scores: vec![2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -3.0],
            labels: vec![1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0],
            counts: vec![],
        }
    }

    #[test]
    fn thresholds_by_hand() {
        // F1 after 1, 2, … rows: 2/5, 4/6, 4/7, 6/8, 6/9, 8/10, …: the sixth.
        let t = choose(&data(), ThresholdRule::MaxF1, Origin::Folds);
        assert_eq!((t.score, t.recall, t.precision), (-1.5, 1.0, 4.0 / 6.0));
        // Recall ½: after the second row, without an error.
        let t = choose(&data(), ThresholdRule::Recall(0.5), Origin::Folds);
        assert_eq!((t.score, t.recall, t.precision), (0.75, 0.5, 1.0));
        let t = choose(&data(), ThresholdRule::Recall(0.75), Origin::Folds);
        assert_eq!((t.score, t.recall), (-0.25, 0.75));
        // False positives cost nothing: everything is positive only where that catches another.
        let t = choose(&data(), ThresholdRule::Cost { fp: 0.0, fneg: 1.0 }, Origin::Folds);
        assert_eq!((t.score, t.recall), (-1.5, 1.0));
        let t = choose(&data(), ThresholdRule::Cost { fp: 1.0, fneg: 0.0 }, Origin::Folds);
        assert_eq!((t.score, t.recall), (2.0, 0.0));
    }

    #[test]
    fn counts_are_copies_and_equal_scores_stay_together() {
        let mut heavy = data();
        heavy.counts = vec![1.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        // The negative at 0.5 counts five times.
        let t = choose(&heavy, ThresholdRule::MaxF1, Origin::Folds);
        assert_eq!(t.score, 0.75);
        let tied = Labelled { scores: vec![1.0, 1.0, 0.0], labels: vec![1.0, -1.0, -1.0], counts: vec![] };
        let t = choose(&tied, ThresholdRule::MaxF1, Origin::Folds);
        assert_eq!((t.score, t.precision), (0.5, 0.5));
    }
}
