//! What the page shows of data and models, thinned out so that no answer exceeds 2 MB.

pub(crate) mod evaluation;
mod kernel_components;
pub(crate) mod margins;
pub(crate) mod plane;
mod rows;
pub(crate) mod sample;

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use margrave::engine::gram::Precision;
use margrave::engine::loss::Loss;
use margrave::engine::model::Scheme;
use margrave::engine::problem::Task;
use margrave::{Control, Model};

use crate::answer::Refusal;
use crate::data::Data;
use crate::session::{App, Trained};

pub(crate) use rows::{Kinds, spread_rows};

/// Scores of all training rows are computed and kept up to this many kernel entries.
const KEPT_SCORES: f64 = 2e8;

/// IRWLS weights are capped here, as in the solver.
const WEIGHT_CAP: f64 = 1e6;

/// The query of a request.
pub(crate) struct Query(pub(crate) HashMap<String, String>);

impl Query {
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A number; `Err` if there is something else.
    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, Refusal> {
        let parse = |text: &str| {
            text.parse().map_err(|_| Refusal::request(format!("{key} = {text:?} in the address is not a number")))
        };
        self.text(key).map(parse).transpose()
    }
}

/// The scores of all training rows, n × outputs; `None` if there are too many to compute for a view.
pub(crate) fn all_scores(app: &App, trained: &Trained) -> Option<Arc<Vec<f64>>> {
    let compute = || {
        let (model, data) = (trained.fit.model(), &trained.data);
        let per_row = if model.expansion.weights().is_some() { 1.0 } else { model.expansion.len() as f64 };
        if data.len() as f64 * per_row.max(1.0) > KEPT_SCORES {
            return None;
        }
        let control = Control::unlimited(app.view_threads.clone());
        model.scores(data.points(), Precision::Double, &control).ok().map(Arc::new)
    };
    trained.scores.get_or_init(compute).clone()
}

/// The scores of some training rows, rows × outputs.
pub(crate) fn scores_of(app: &App, trained: &Trained, rows: &[u32]) -> Result<Vec<f64>, Refusal> {
    let model = trained.fit.model();
    let k = model.expansion.outputs();
    if let Some(all) = all_scores(app, trained) {
        return Ok(rows.iter().flat_map(|&row| &all[row as usize * k..(row as usize + 1) * k]).copied().collect());
    }
    let control = Control::unlimited(app.view_threads.clone());
    Ok(model.scores(&trained.data.points().gather(rows), Precision::Double, &control)?)
}

/// The scores of one row as a margin: y·z for two classes, the lead of the true class over the best other one for several,
/// y − z for numbers, z itself for novelty.
pub(crate) fn margin(model: &Model, data: &Data, row: usize, scores: &[f64]) -> f64 {
    match (model.task, model.scheme) {
        (Task::Classify, Scheme::One) => match data.codes.get(row) {
            Some(1) => scores[0],
            _ => -scores[0],
        },
        (Task::Classify, scheme) => {
            let votes = class_scores(scheme, model.labels.len(), scores);
            let own = data.codes.get(row).map_or(0, |code| *code as usize);
            let other = votes.iter().enumerate().filter(|(at, _)| *at != own).map(|(_, v)| *v);
            votes.get(own).copied().unwrap_or(f64::NAN) - other.fold(f64::NEG_INFINITY, f64::max)
        }
        (Task::Regress, _) => data.real().map_or(f64::NAN, |y| y[row] - scores[0]),
        (Task::Novelty, _) => scores[0],
    }
}

/// One number per class. Of pairs: the votes, and the bounded sum of the scores to break ties.
pub(crate) fn class_scores(scheme: Scheme, classes: usize, scores: &[f64]) -> Vec<f64> {
    if scheme != Scheme::OneVsOne {
        return scores.to_vec();
    }
    let (mut votes, mut sums) = (vec![0.0; classes], vec![0.0; classes]);
    for ((i, j), z) in margrave::engine::model::pairs(classes).zip(scores) {
        // As in the decision of the model, a score > 0 is a vote for the second class of the pair.
        votes[if *z > 0.0 { j } else { i }] += 1.0;
        sums[j] += z;
        sums[i] -= z;
    }
    votes.iter().zip(sums).map(|(votes, sum): (&f64, f64)| votes + sum / (3.0 * (1.0 + sum.abs()))).collect()
}

/// The loss a model was trained with; `None` for formulations that have their own.
pub(crate) fn loss_of(trained: &Trained) -> Option<Arc<dyn Loss>> {
    use margrave::engine::train::LossChoice;
    if let Some(spec) = trained.fit.model().loss {
        return spec.build().ok();
    }
    match &trained.svm.options().loss {
        LossChoice::Own(loss) => Some(loss.clone()),
        _ => None,
    }
}

/// The target of a row as the loss sees it: ±1, or a number.
pub(crate) fn loss_target(data: &Data, task: Task, row: usize) -> f64 {
    match task {
        Task::Classify => data.codes.get(row).map_or(f64::NAN, |code| if *code == 1 { 1.0 } else { -1.0 }),
        _ => data.real().map_or(0.0, |y| y[row]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_vote_and_scores_break_ties() {
        // Pairs (0,1), (0,2), (1,2).
        let votes = class_scores(Scheme::OneVsOne, 3, &[-2.0, -1.0, 1.0]);
        assert!(votes[0] > votes[2] && votes[2] > votes[1]);
        // One vote each: (0,1) → 0, (0,2) → 2, (1,2) → 1.
        let tie = class_scores(Scheme::OneVsOne, 3, &[-0.1, 3.0, -0.2]);
        assert!(tie[2] > tie[0] && tie[2] > tie[1]);
        assert_eq!(class_scores(Scheme::OneVsRest, 2, &[0.5, -0.5]), [0.5, -0.5]);
    }
}
