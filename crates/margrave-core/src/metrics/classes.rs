//! Metrics of classifiers.

use super::weight;

/// How often each class was predicted for each true class.
#[derive(Debug, Clone, PartialEq)]
pub struct Confusion {
    classes: usize,
    /// classes × classes, row-major: true class, predicted class.
    counts: Vec<f64>,
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl Confusion {
    /// Counts the rows by true and predicted class.
    pub fn new(classes: usize, truth: &[u32], predicted: &[u32], weights: Option<&[f64]>) -> Self {
        let mut counts = vec![0.0; classes * classes];
        for (row, (&t, &p)) in truth.iter().zip(predicted).enumerate() {
            counts[t as usize * classes + p as usize] += weight(weights, row);
        }
        Self { classes, counts }
    }

    /// Weight of the rows of class `truth` that were predicted as `predicted`.
    pub fn count(&self, truth: usize, predicted: usize) -> f64 {
        self.counts[truth * self.classes + predicted]
    }

    fn of_truth(&self, class: usize) -> f64 {
        (0..self.classes).map(|other| self.count(class, other)).sum()
    }

    fn of_predicted(&self, class: usize) -> f64 {
        (0..self.classes).map(|other| self.count(other, class)).sum()
    }

    fn total(&self) -> f64 {
        self.counts.iter().sum()
    }

    fn right(&self) -> f64 {
        (0..self.classes).map(|class| self.count(class, class)).sum()
    }

    /// Share of correct labels.
    pub fn accuracy(&self) -> f64 {
        ratio(self.right(), self.total())
    }

    /// Mean recall of the classes that occur.
    pub fn balanced_accuracy(&self) -> f64 {
        let there: Vec<usize> = (0..self.classes).filter(|&class| self.of_truth(class) > 0.0).collect();
        let sum: f64 = there.iter().map(|&class| self.recall(class)).sum();
        ratio(sum, there.len() as f64)
    }

    /// Share of the rows predicted as a class that are of it; 0 if there are none.
    pub fn precision(&self, class: usize) -> f64 {
        ratio(self.count(class, class), self.of_predicted(class))
    }

    /// Share of the rows of a class that are found; 0 if there are none.
    pub fn recall(&self, class: usize) -> f64 {
        ratio(self.count(class, class), self.of_truth(class))
    }

    /// 2·TP/(2·TP + FP + FN) of a class; 0 if it neither occurs nor is predicted.
    pub fn f1(&self, class: usize) -> f64 {
        ratio(2.0 * self.count(class, class), self.of_truth(class) + self.of_predicted(class))
    }

    /// Mean F1 of the classes that occur or are predicted.
    pub fn f1_macro(&self) -> f64 {
        let there = |class: &usize| self.of_truth(*class) + self.of_predicted(*class) > 0.0;
        let there: Vec<usize> = (0..self.classes).filter(there).collect();
        ratio(there.iter().map(|&class| self.f1(class)).sum(), there.len() as f64)
    }

    /// Matthews' correlation of truth and prediction; 0 where one of them is constant.
    pub fn mcc(&self) -> f64 {
        let (n, right) = (self.total(), self.right());
        let sums: Vec<(f64, f64)> = (0..self.classes).map(|c| (self.of_truth(c), self.of_predicted(c))).collect();
        let both: f64 = sums.iter().map(|(t, p)| t * p).sum();
        let truth: f64 = n * n - sums.iter().map(|(t, _)| t * t).sum::<f64>();
        let predicted: f64 = n * n - sums.iter().map(|(_, p)| p * p).sum::<f64>();
        // Relative to n²: what is left of a constant is rounding.
        if truth <= 1e-14 * n * n || predicted <= 1e-14 * n * n {
            return 0.0;
        }
        (right * n - both) / (truth * predicted).sqrt()
    }
}

/// The rows from the largest score down.
pub fn descending(scores: &[f64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
    order
}

/// Calls `visit` with the weights of positive and negative rows of each distinct score, from the largest score down.
fn steps(
    order: &[u32],
    positive: impl Fn(usize) -> bool,
    scores: &[f64],
    weights: Option<&[f64]>,
    mut visit: impl FnMut(f64, f64),
) {
    let (mut hits, mut misses) = (0.0, 0.0);
    for (at, &row) in order.iter().enumerate() {
        let row = row as usize;
        match positive(row) {
            true => hits += weight(weights, row),
            false => misses += weight(weights, row),
        }
        if order.get(at + 1).is_none_or(|&next| scores[next as usize] != scores[row]) {
            visit(hits, misses);
            (hits, misses) = (0.0, 0.0);
        }
    }
}

/// Area under the ROC curve of scores for the class 1; `order` from [`descending`]. NaN unless both classes occur.
pub fn roc_auc(truth: &[u32], scores: &[f64], order: &[u32], weights: Option<&[f64]>) -> f64 {
    let (mut hits, mut misses, mut area) = (0.0, 0.0, 0.0);
    steps(
        order,
        |row| truth[row] == 1,
        scores,
        weights,
        |h, m| {
            area += m * (hits + 0.5 * h);
            hits += h;
            misses += m;
        },
    );
    if hits > 0.0 && misses > 0.0 { area / (hits * misses) } else { f64::NAN }
}

/// Σ precision · step of the recall for the class 1; `order` from [`descending`]. 0 if the class does not occur.
pub fn average_precision(truth: &[u32], scores: &[f64], order: &[u32], weights: Option<&[f64]>) -> f64 {
    let (mut hits, mut misses, mut sum) = (0.0, 0.0, 0.0);
    steps(
        order,
        |row| truth[row] == 1,
        scores,
        weights,
        |h, m| {
            hits += h;
            misses += m;
            if hits > 0.0 {
                sum += h * hits / (hits + misses);
            }
        },
    );
    ratio(sum, hits)
}

/// Mean −log of the probability of the true class; `p` is n × classes.
pub fn log_loss(truth: &[u32], p: &[f64], classes: usize, weights: Option<&[f64]>) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for (row, (&code, p)) in truth.iter().zip(p.chunks_exact(classes.max(1))).enumerate() {
        let w = weight(weights, row);
        let own = p[code as usize] / p.iter().sum::<f64>();
        sum -= w * own.clamp(f64::EPSILON, 1.0 - f64::EPSILON).ln();
        total += w;
    }
    ratio(sum, total)
}

/// Mean squared error of the probabilities: of the second class where there are two, summed over the classes otherwise.
pub fn brier(truth: &[u32], p: &[f64], classes: usize, weights: Option<&[f64]>) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for (row, (&code, p)) in truth.iter().zip(p.chunks_exact(classes.max(1))).enumerate() {
        let w = weight(weights, row);
        let square = |(class, p): (usize, &f64)| (p - f64::from(u8::from(class == code as usize))).powi(2);
        let all: f64 = p.iter().enumerate().map(square).sum();
        sum += w * if classes == 2 { 0.5 * all } else { all };
        total += w;
    }
    ratio(sum, total)
}
