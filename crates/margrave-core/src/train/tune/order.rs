//! Rows in the order of their folds.

use crate::compose::cross_validate::{Deal, folds};
use crate::problem::Task;
use crate::{Error, Result};

use super::Tuner;
use crate::train::prepared::Prepared;

/// Rows in the order of their folds, so that the held-out rows are one contiguous range.
pub(super) struct Ordered {
    pub(super) rows: Vec<u32>,
    /// First position of each fold, then the number of rows.
    pub(super) starts: Vec<usize>,
    pub(super) targets: Vec<f64>,
    pub(super) weights: Option<Vec<f64>>,
    /// How much each row counts in a score.
    pub(super) counts: Option<Vec<f64>>,
}

impl Ordered {
    pub(super) fn new(tuner: &Tuner, prepared: &Prepared) -> Result<Self> {
        let n = prepared.points.len();
        let fold = match &tuner.fold_of {
            Some(fold) => given(fold, n, tuner.folds)?,
            None => {
                let codes: Vec<u32> = match prepared.labels.len() {
                    2 => prepared.targets.iter().map(|y| u32::from(*y > 0.0)).collect(),
                    _ => prepared.codes(),
                };
                let deal = match &tuner.groups {
                    Some(groups) => Deal::Grouped(groups),
                    None if tuner.options.task == Task::Classify => Deal::Stratified(&codes),
                    None => Deal::Plain,
                };
                folds(n, tuner.folds, deal, tuner.options.seed)?
            }
        };
        let k = tuner.folds;
        let mut rows: Vec<u32> = (0..n as u32).collect();
        rows.sort_by_key(|&row| fold[row as usize]);
        let starts = (0..=k).map(|f| fold.iter().filter(|&&g| (g as usize) < f).count()).collect();
        let targets = rows.iter().map(|&row| prepared.targets[row as usize]).collect();
        let weights = prepared.weights.as_ref().map(|w| rows.iter().map(|&row| w[row as usize]).collect());
        let counts = match &tuner.counts {
            Some(given) if given.len() != n => {
                return Err(Error::Shape { what: "counts of the rows", expected: n, found: given.len() });
            }
            given => given.as_ref().map(|all| rows.iter().map(|&row| all[row as usize]).collect()),
        };
        Ok(Self { rows, starts, targets, weights, counts })
    }

    /// Number of folds.
    pub(super) fn folds(&self) -> usize {
        self.starts.len() - 1
    }

    /// The range held out in a fold.
    pub(super) fn held_out(&self, fold: usize) -> (usize, usize) {
        (self.starts[fold], self.starts[fold + 1])
    }
}

/// Folds given by the caller; fails unless there is one for each row and none is empty.
fn given(fold: &[u32], n: usize, folds: usize) -> Result<Vec<u32>> {
    if fold.len() != n || fold.iter().any(|&f| f as usize >= folds) {
        return Err(Error::data(format!("the folds given are not {n} numbers below {folds}")));
    }
    if folds < 2 {
        return Err(Error::data("all rows are in fold 0: give at least two folds"));
    }
    let mut sizes = vec![0usize; folds];
    fold.iter().for_each(|&f| sizes[f as usize] += 1);
    match sizes.iter().position(|&size| size == 0) {
        Some(empty) => Err(Error::data(format!("fold {empty} has no rows: number the folds 0, 1, 2, …"))),
        None => Ok(fold.to_vec()),
    }
}
