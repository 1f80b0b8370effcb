//! The score of a combination from its held-out predictions, and what the race compares.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::order::Ordered;
use super::search::CellState;
use super::{Tuner, race};
use crate::compose::sigmoid::{Labelled, fit_all};
use crate::metrics::classes::{self, Confusion, descending};
use crate::metrics::{Metric, Needs, numbers};
use crate::model::calibration::{class_probabilities, make_largest};
use crate::model::{Rule, Scheme, multi, pairs};
use crate::problem::Task;
use crate::train::prepared::Prepared;
use crate::{Control, Error, Result};

/// Resamples of the paired bootstrap: its deviation is known to 7 %.
const RESAMPLES: usize = 100;

/// How the race decides for a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The score is a mean of losses of rows, which are compared row by row.
    Losses,
    /// The score is not a mean over rows: its deviation comes from paired resamples of the rows.
    Bootstrap,
    /// No race: the score is known only after the last fold.
    None,
}

impl Comparison {
    /// How the race decides for a metric.
    pub fn of(metric: Metric) -> Self {
        use Metric::{Accuracy, BalancedAccuracy, Brier, LogLoss, Mae, Mse, Pinball};
        match metric {
            Accuracy | BalancedAccuracy | Mse | Mae | Pinball(_) => Comparison::Losses,
            LogLoss | Brier => Comparison::None,
            _ => Comparison::Bootstrap,
        }
    }
}

/// Scores held-out rows by one metric.
pub(super) struct Judge<'a> {
    pub(super) metric: Metric,
    tuner: &'a Tuner,
    prepared: &'a Prepared,
    ordered: &'a Ordered,
}

/// What is known about the held-out rows of a fold.
pub(super) struct Held {
    /// The score; NaN where it needs all folds.
    pub(super) score: f64,
    /// Losses of the rows, where the score is a mean of them.
    pub(super) losses: Vec<f32>,
    /// What the score is computed from, where that is needed later: labels or numbers, one per row, or all scores.
    pub(super) kept: Vec<f64>,
}

impl<'a> Judge<'a> {
    /// Fails for a metric that does not fit the task, the number of classes or the folds.
    pub(super) fn new(tuner: &'a Tuner, prepared: &'a Prepared, ordered: &'a Ordered) -> Result<Self> {
        let task = tuner.options.task;
        let metric = tuner.score.unwrap_or(Metric::usual(task));
        metric.check(task, prepared.labels.len())?;
        let judge = Self { metric, tuner, prepared, ordered };
        if metric.needs() == Needs::Scores {
            for fold in 0..ordered.folds() {
                let (from, to) = ordered.held_out(fold);
                let positive = ordered.targets[from..to].iter().filter(|y| **y > 0.0).count();
                if positive == 0 || positive == to - from {
                    let allowed =
                        format!("fold {fold} has rows of one class only, where it is not defined: use fewer folds");
                    return Err(Error::option("score", metric, allowed));
                }
            }
        }
        Ok(judge)
    }

    pub(super) fn comparison(&self) -> Comparison {
        Comparison::of(self.metric)
    }

    /// The class of each row of `from..to`.
    fn codes(&self, from: usize, to: usize) -> Vec<u32> {
        let code = |y: &f64| if self.prepared.labels.len() == 2 { u32::from(*y > 0.0) } else { *y as u32 };
        self.ordered.targets[from..to].iter().map(code).collect()
    }

    /// The predicted class of each row, from scores n × outputs.
    fn predicted(&self, scheme: Scheme, z: &[f64], rows: usize) -> Vec<u32> {
        let classes = self.prepared.labels.len();
        let mut scratch = vec![0; classes];
        let mut winner = |z: &[f64]| match scheme {
            Scheme::One => u32::from(z[0] > 0.0),
            Scheme::OneVsRest => multi::by_score(z),
            _ => multi::by_votes(classes, z, &mut scratch),
        };
        let outputs = (z.len() / rows.max(1)).max(1);
        z.chunks_exact(outputs).map(&mut winner).collect()
    }

    /// Judges the scores z of the rows `from..to`, n × outputs.
    pub(super) fn held(&self, scheme: Scheme, z: &[f64], from: usize, to: usize) -> Held {
        let comparison = self.comparison();
        if comparison == Comparison::None {
            return Held { score: f64::NAN, losses: vec![], kept: z.to_vec() };
        }
        let kept: Vec<f64> = match self.metric.needs() {
            Needs::Labels => self.predicted(scheme, z, to - from).into_iter().map(f64::from).collect(),
            _ => z.to_vec(),
        };
        if comparison == Comparison::Bootstrap {
            let order = self.order(&kept);
            let counts = self.ordered.counts.as_ref().map(|counts| &counts[from..to]);
            return Held { score: self.score(&kept, &order, from, to, counts), losses: vec![], kept };
        }
        let (score, losses) = self.losses(&kept, from, to);
        Held { score, losses, kept: vec![] }
    }

    /// Rows by score, where the metric needs that.
    fn order(&self, kept: &[f64]) -> Vec<u32> {
        if self.metric.needs() == Needs::Scores { descending(kept) } else { vec![] }
    }

    /// The mean of losses, as a score, and the losses.
    fn losses(&self, kept: &[f64], from: usize, to: usize) -> (f64, Vec<f32>) {
        let truth = &self.ordered.targets[from..to];
        let share = |at: usize| self.ordered.counts.as_ref().map_or(1.0, |counts| counts[from + at]);
        let classify = self.tuner.options.task == Task::Classify;
        let codes = if classify { self.codes(from, to) } else { vec![] };
        let wrong = |at: usize| f64::from(u8::from(f64::from(codes[at]) != kept[at]));
        let all: Vec<f64> = (0..truth.len())
            .map(|at| match self.metric {
                Metric::Mse => (truth[at] - kept[at]) * (truth[at] - kept[at]),
                Metric::Mae => (truth[at] - kept[at]).abs(),
                Metric::Pinball(tau) => numbers::pinball_loss(tau, truth[at], kept[at]),
                _ => wrong(at),
            })
            .collect();
        if self.metric == Metric::BalancedAccuracy {
            let mut total = vec![0.0; self.prepared.labels.len()];
            codes.iter().enumerate().for_each(|(at, &code)| total[code as usize] += share(at));
            let present = total.iter().filter(|total| **total > 0.0).count().max(1) as f64;
            let own = |at: usize| share(at) / (present * total[codes[at] as usize]).max(f64::MIN_POSITIVE);
            let counts: Option<Vec<f64>> = self.ordered.counts.as_ref().map(|counts| counts[from..to].to_vec());
            let labels: Vec<u32> = kept.iter().map(|code| *code as u32).collect();
            let score = Confusion::new(total.len(), &codes, &labels, counts.as_deref()).balanced_accuracy();
            return (score, all.iter().enumerate().map(|(at, loss)| (own(at) * loss) as f32).collect());
        }
        let count = (0..truth.len()).map(share).sum::<f64>().max(f64::MIN_POSITIVE);
        let losses: Vec<f64> = all.iter().enumerate().map(|(at, loss)| share(at) * loss).collect();
        let total = losses.iter().sum::<f64>();
        // For labels the correct ones are counted, so that equal counts give equal scores to the bit.
        let score = if classify { (count - total) / count } else { -total / count };
        (score, losses.iter().map(|l| *l as f32).collect())
    }

    /// The score of what was kept of the rows `from..to`, with these weights.
    fn score(&self, kept: &[f64], order: &[u32], from: usize, to: usize, weights: Option<&[f64]>) -> f64 {
        let truth = &self.ordered.targets[from..to];
        let confusion = || {
            let labels: Vec<u32> = kept.iter().map(|code| *code as u32).collect();
            Confusion::new(self.prepared.labels.len(), &self.codes(from, to), &labels, weights)
        };
        let value = match self.metric {
            Metric::F1 => confusion().f1(1),
            Metric::F1Macro => confusion().f1_macro(),
            Metric::Mcc => confusion().mcc(),
            Metric::RocAuc => classes::roc_auc(&self.codes(from, to), kept, order, weights),
            Metric::AveragePrecision => classes::average_precision(&self.codes(from, to), kept, order, weights),
            Metric::R2 => numbers::r2(truth, kept, weights),
            Metric::Rmse => numbers::rmse(truth, kept, weights),
            Metric::ExplainedVariance => numbers::explained_variance(truth, kept, weights),
            // Means of losses and probabilities have functions of their own.
            _ => f64::NAN,
        };
        self.metric.as_score(value)
    }

    /// The scores of all folds from the scores z of all held-out rows: probabilities of a fold come from sigmoids fitted to
    /// the other folds, so that they are out-of-sample too.
    fn by_probabilities(&self, scheme: Scheme, kept: &[Option<Vec<f64>>]) -> Option<Vec<f64>> {
        let folds = self.ordered.folds();
        let kept: Vec<&Vec<f64>> = kept.iter().map(Option::as_ref).collect::<Option<_>>()?;
        let classes = self.prepared.labels.len();
        let counts = |from: usize, to: usize| self.ordered.counts.as_ref().map(|counts| &counts[from..to]);
        let score = |fold: usize| {
            let others: Vec<usize> = (0..folds).filter(|&f| f != fold).collect();
            let machines = self.machines(scheme, &others, &kept);
            let (asked, weighted) = (self.tuner.options.probability_rule, self.prepared.weighs_classes());
            let (sigmoids, rule, _) = fit_all(&machines, asked, weighted, scheme == Scheme::OneVsRest);
            let (from, to) = self.ordered.held_out(fold);
            let winners = self.predicted(scheme, kept[fold], to - from);
            let mut p = vec![0.0; (to - from) * classes];
            let outputs = sigmoids.len();
            for ((z, p), &winner) in kept[fold].chunks_exact(outputs).zip(p.chunks_exact_mut(classes)).zip(&winners) {
                class_probabilities(scheme, &sigmoids, z, p);
                if rule == Rule::Agree {
                    make_largest(p, winner as usize);
                }
            }
            let truth = self.codes(from, to);
            let value = match self.metric {
                Metric::LogLoss => classes::log_loss(&truth, &p, classes, counts(from, to)),
                _ => classes::brier(&truth, &p, classes, counts(from, to)),
            };
            self.metric.as_score(value)
        };
        Some((0..folds).map(score).collect())
    }

    /// The held-out scores of each machine over some folds, with their labels.
    fn machines(&self, scheme: Scheme, folds: &[usize], kept: &[&Vec<f64>]) -> Vec<Labelled> {
        let classes = self.prepared.labels.len();
        let sides: Vec<(Option<u32>, u32)> = match scheme {
            Scheme::One => vec![(Some(0), 1)],
            Scheme::OneVsOne => pairs(classes).map(|(i, j)| (Some(i as u32), j as u32)).collect(),
            _ => (0..classes as u32).map(|class| (None, class)).collect(),
        };
        let mut machines = vec![Labelled::default(); sides.len()];
        for &fold in folds {
            let (from, to) = self.ordered.held_out(fold);
            for ((row, code), z) in self.codes(from, to).iter().enumerate().zip(kept[fold].chunks_exact(sides.len())) {
                for (at, (negative, positive)) in sides.iter().enumerate() {
                    if code != positive && negative.is_some_and(|negative| negative != *code) {
                        continue;
                    }
                    machines[at].scores.push(z[at]);
                    machines[at].labels.push(if code == positive { 1.0 } else { -1.0 });
                    if let Some(counts) = &self.ordered.counts {
                        machines[at].counts.push(counts[from + row]);
                    }
                }
            }
        }
        machines
    }

    /// Fills in the scores that need all folds. Cells without all of them have none.
    pub(super) fn finish(&self, scheme: impl Fn(&CellState) -> Scheme, cells: &mut [CellState]) {
        if self.comparison() != Comparison::None {
            return;
        }
        for state in cells.iter_mut().filter(|state| state.kept.iter().any(Option::is_some)) {
            state.cell.folds = self.by_probabilities(scheme(state), &state.kept).unwrap_or_default();
        }
    }

    /// Marks the cells that fall too far behind the best: by `z` deviations of the difference.
    pub(super) fn leave_out(&self, z: f64, cells: &mut [CellState], control: &Control) {
        match self.comparison() {
            Comparison::None => {}
            Comparison::Losses => {
                let Some((leader, most)) = race::leader(cells, |p| p.losses.iter().any(Option::is_some)) else {
                    return;
                };
                let best = cells[leader].losses.clone();
                race::leave_out(leader, most, cells, |p| race::worse(z, &best, &p.losses));
            }
            Comparison::Bootstrap => {
                let Some((leader, most)) = race::leader(cells, |p| p.kept.iter().any(Option::is_some)) else { return };
                let Some(behind) = self.behind(leader, most, cells, control) else { return };
                race::leave_out(leader, most, cells, |p| {
                    behind.iter().any(|(params, ratio)| *params == p.cell.params && *ratio > z)
                });
            }
        }
    }

    /// How far each cell is behind the leader, in deviations of the difference over resamples of the rows that both share:
    /// every resample gives each row an exponential weight, the same for all cells. `None` if time ran out.
    fn behind(
        &self,
        leader: usize,
        most: usize,
        cells: &[CellState],
        control: &Control,
    ) -> Option<Vec<(super::Params, f64)>> {
        let folds: Vec<usize> = (0..most).filter(|&f| cells[leader].kept[f].is_some()).collect();
        let complete = |p: &CellState| folds.iter().all(|&f| p.kept[f].is_some());
        let live: Vec<usize> =
            (0..cells.len()).filter(|&at| race::in_race(&cells[at], most) && complete(&cells[at])).collect();
        let kept = |cell: usize, fold: usize| cells[cell].kept[fold].as_deref().unwrap_or_default();
        let orders: Vec<Vec<Vec<u32>>> =
            live.iter().map(|&cell| folds.iter().map(|&fold| self.order(kept(cell, fold))).collect()).collect();
        let mut sums = vec![(0.0, 0.0); live.len()];
        let mut rng = ChaCha8Rng::seed_from_u64(self.tuner.options.seed ^ ((most as u64) << 32));
        let place = live.iter().position(|&cell| cell == leader)?;
        for _ in 0..RESAMPLES {
            let mut score = vec![0.0; live.len()];
            for (at_fold, &fold) in folds.iter().enumerate() {
                let (from, to) = self.ordered.held_out(fold);
                let count = |row: usize| self.ordered.counts.as_ref().map_or(1.0, |counts| counts[row]);
                let weights: Vec<f64> = (from..to).map(|row| -count(row) * (1.0 - rng.random::<f64>()).ln()).collect();
                for (at, &cell) in live.iter().enumerate() {
                    control.check().ok()?;
                    let order = &orders[at][at_fold];
                    score[at] += self.score(kept(cell, fold), order, from, to, Some(&weights)) / folds.len() as f64;
                }
            }
            for (at, sum) in sums.iter_mut().enumerate() {
                let difference = score[place] - score[at];
                *sum = (sum.0 + difference, sum.1 + difference * difference);
            }
        }
        let mean = |cell: usize| cells[cell].cell.seen().unwrap_or(f64::NAN);
        let ratio = |(at, &cell): (usize, &usize)| {
            let n = RESAMPLES as f64;
            let deviation = ((sums[at].1 - sums[at].0 * sums[at].0 / n) / (n - 1.0)).max(0.0).sqrt();
            // Without any deviation nothing can be said.
            let ratio = if deviation > 1e-12 { (mean(leader) - mean(cell)) / deviation } else { 0.0 };
            (cells[cell].cell.params.clone(), ratio)
        };
        Some(live.iter().enumerate().map(ratio).collect())
    }
}
