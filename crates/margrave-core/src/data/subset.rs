//! Rows of one data set, without copies of features.

use std::sync::Arc;

use super::{Dataset, Points};
use crate::error::{Error, Result};

/// Some rows of a data set, in an order of their own. Folds, pairs of classes and bootstraps are subsets.
#[derive(Debug, Clone)]
pub struct Subset<'a> {
    data: &'a Dataset,
    rows: Arc<[u32]>,
}

impl<'a> Subset<'a> {
    /// All rows.
    pub fn all(data: &'a Dataset) -> Self {
        Self { data, rows: (0..data.len() as u32).collect() }
    }

    /// The given rows; fails if one does not exist.
    pub fn new(data: &'a Dataset, rows: impl Into<Arc<[u32]>>) -> Result<Self> {
        let rows = rows.into();
        match rows.iter().find(|&&i| i as usize >= data.len()) {
            Some(i) => Err(Error::data(format!("row {i} was asked for but the data has {} rows", data.len()))),
            None => Ok(Self { data, rows }),
        }
    }

    /// The data set these are rows of.
    pub fn data(&self) -> &'a Dataset {
        self.data
    }
    /// The points of the whole data set; row `i` of the subset is point `rows()[i]` there.
    pub fn points(&self) -> &'a Points {
        &self.data.points
    }
    /// Row numbers in the data set.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Weight of row `i` of the subset (1 where the data has none).
    pub fn weight(&self, i: usize) -> f64 {
        self.data.weights.as_ref().map_or(1.0, |w| w[self.rows[i] as usize])
    }
    /// The rows of this subset for which `keep(i)` holds, `i` counting in the subset.
    pub fn filter(&self, keep: impl Fn(usize) -> bool) -> Self {
        let rows = (0..self.len()).filter(|&i| keep(i)).map(|i| self.rows[i]).collect();
        Self { data: self.data, rows }
    }
}
