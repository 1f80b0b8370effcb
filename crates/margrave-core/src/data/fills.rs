//! Cells that were missing, so that folds can fill them from their own training rows.

use std::ops::Range;

use super::{Csr, Dense, Points, Real, Storage};
use crate::error::Result;

/// What stands for the missing cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillRule {
    /// The mean of the others.
    Mean,
    /// Their median.
    Median,
    /// Of the features of a text column, 1 for the most frequent text and 0 for the others.
    MostFrequent,
}

impl FillRule {
    /// The value that stands for missing ones, from the others with their weights; `None` without any. Not for
    /// [`MostFrequent`](Self::MostFrequent), which needs all features of its column.
    pub fn of(self, values: Vec<(f64, f64)>) -> Option<f64> {
        if values.is_empty() {
            return None;
        }
        Some(if self == FillRule::Median { median(values) } else { mean(&values) })
    }
}

/// The missing cells of one column.
#[derive(Debug, Clone, PartialEq)]
pub struct FilledColumn {
    /// The features that are filled, which are those of the column without its indicator.
    pub features: Range<usize>,
    /// What they are filled with.
    pub rule: FillRule,
    /// The rows that have no value here, ascending.
    pub rows: Vec<u32>,
}

/// The missing cells of a data set whose points have them filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Fills {
    columns: Vec<FilledColumn>,
}

impl Fills {
    /// The cells of these columns; `None` if there is none.
    pub fn new(columns: Vec<FilledColumn>) -> Option<Self> {
        let columns: Vec<FilledColumn> = columns.into_iter().filter(|column| !column.rows.is_empty()).collect();
        (!columns.is_empty()).then_some(Self { columns })
    }

    /// The columns with missing cells.
    pub fn columns(&self) -> &[FilledColumn] {
        &self.columns
    }

    /// The missing cells among some of the rows, counted among those; `None` if there is none.
    pub fn part(&self, rows: &[u32]) -> Option<Self> {
        let among = |column: &FilledColumn| {
            let missing = |row: &u32| column.rows.binary_search(row).is_ok();
            let rows = (0..rows.len() as u32).filter(|&at| missing(&rows[at as usize])).collect();
            FilledColumn { rows, ..column.clone() }
        };
        Self::new(self.columns.iter().map(among).collect())
    }

    /// The points with every missing cell filled from the rows `kept` alone. Where none of them has a value, the cells stay as
    /// they are.
    pub fn refit(&self, points: &Points, weights: Option<&[f64]>, kept: &[u32]) -> Result<Points> {
        let values: Vec<Option<Vec<f64>>> = self.values(points, weights, kept);
        // For each row the features to replace, ascending.
        let mut changes: Vec<Vec<(usize, f64)>> = vec![Vec::new(); points.len()];
        for (column, values) in self.columns.iter().zip(&values) {
            let Some(values) = values else { continue };
            for &row in &column.rows {
                changes[row as usize].extend(column.features.clone().zip(values.iter().copied()));
            }
        }
        changes.iter_mut().for_each(|row| row.sort_by_key(|change| change.0));
        match points.storage() {
            Storage::DenseF32(m) => dense(m, &changes),
            Storage::DenseF64(m) => dense(m, &changes),
            Storage::SparseF32(m) => sparse(m, &changes),
            Storage::SparseF64(m) => sparse(m, &changes),
        }
    }

    /// What stands for the missing cells of each column; `None` where the rows have no value.
    fn values(&self, points: &Points, weights: Option<&[f64]>, kept: &[u32]) -> Vec<Option<Vec<f64>>> {
        let mut row_values = vec![0.0; points.dims()];
        let mut seen: Vec<Vec<Vec<(f64, f64)>>> =
            self.columns.iter().map(|column| vec![Vec::new(); column.features.len()]).collect();
        for &row in kept {
            points.copy_row(row as usize, &mut row_values);
            let weight = weights.map_or(1.0, |all| all[row as usize]);
            for (column, seen) in self.columns.iter().zip(&mut seen) {
                if column.rows.binary_search(&row).is_err() {
                    let own = &row_values[column.features.clone()];
                    own.iter().zip(seen).for_each(|(value, seen)| seen.push((*value, weight)));
                }
            }
        }
        let typical = |(column, seen): (&FilledColumn, Vec<Vec<(f64, f64)>>)| match column.rule {
            FillRule::MostFrequent if seen.first().is_none_or(Vec::is_empty) => None,
            FillRule::MostFrequent => {
                let total = |all: &Vec<(f64, f64)>| all.iter().map(|(value, weight)| value * weight).sum::<f64>();
                Some(most_frequent(&seen.iter().map(total).collect::<Vec<f64>>()))
            }
            rule => seen.into_iter().map(|all| rule.of(all)).collect(),
        };
        self.columns.iter().zip(seen).map(typical).collect()
    }
}

/// 1 for the largest of some totals, the first of equal ones, and 0 for the others.
pub fn most_frequent(totals: &[f64]) -> Vec<f64> {
    let most = (0..totals.len()).rev().max_by(|a, b| totals[*a].total_cmp(&totals[*b]));
    (0..totals.len()).map(|at| f64::from(Some(at) == most)).collect()
}

fn dense<T: Real>(m: &Dense<T>, changes: &[Vec<(usize, f64)>]) -> Result<Points>
where
    Points: From<Dense<T>>,
{
    let (d, mut values) = (m.dims(), m.values().to_vec());
    for (row, changes) in changes.iter().enumerate() {
        changes.iter().for_each(|(feature, value)| values[row * d + feature] = T::from_f64(*value));
    }
    Ok(Dense::new(m.len(), d, values)?.into())
}

fn sparse<T: Real>(m: &Csr<T>, changes: &[Vec<(usize, f64)>]) -> Result<Points>
where
    Points: From<Csr<T>>,
{
    let (mut starts, mut columns, mut values) = (vec![0usize], Vec::new(), Vec::new());
    let mut row: Vec<(u32, T)> = Vec::new();
    for (at, changes) in changes.iter().enumerate() {
        let (own, stored) = m.row(at);
        row.clear();
        let replaced = |column: &u32| changes.iter().any(|(feature, _)| *feature == *column as usize);
        row.extend(own.iter().copied().zip(stored.iter().copied()).filter(|(column, _)| !replaced(column)));
        let nonzero = changes.iter().filter(|(_, value)| *value != 0.0);
        row.extend(nonzero.map(|(feature, value)| (*feature as u32, T::from_f64(*value))));
        row.sort_by_key(|entry| entry.0);
        row.iter().for_each(|(column, value)| {
            columns.push(*column);
            values.push(*value);
        });
        starts.push(columns.len());
    }
    Ok(Csr::new(m.dims(), starts, columns, values)?.into())
}

fn mean(values: &[(f64, f64)]) -> f64 {
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    if total > 0.0 {
        // Around the first value, so that a constant column keeps its value exactly.
        let first = values[0].0;
        return first + values.iter().map(|(value, weight)| (value - first) * (weight / total)).sum::<f64>();
    }
    values.iter().map(|(value, _)| value / values.len() as f64).sum()
}

fn median(mut values: Vec<(f64, f64)>) -> f64 {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    for (at, (value, weight)) in values.iter().enumerate() {
        below += weight;
        if below > half || at + 1 == values.len() {
            return *value;
        }
        if below == half {
            // Between this value and the next one that has weight.
            let next = values[at + 1..].iter().find(|(_, weight)| *weight > 0.0).map_or(*value, |(next, _)| *next);
            return value + (next - value) / 2.0;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_count_weights_as_copies() {
        let ones = |v: &[f64]| v.iter().map(|v| (*v, 1.0)).collect::<Vec<_>>();
        assert_eq!(median(ones(&[3.0, 1.0, 2.0])), 2.0);
        assert_eq!(median(ones(&[4.0, 1.0, 2.0, 3.0])), 2.5);
        assert_eq!(median(vec![(1.0, 3.0), (5.0, 1.0)]), median(ones(&[1.0, 1.0, 1.0, 5.0])));
        assert_eq!(median(vec![(1.0, 1.0), (2.0, 0.0), (3.0, 1.0)]), 2.0);
        assert_eq!(mean(&[(1.0, 3.0), (5.0, 1.0)]), 2.0);
    }

    /// Column 0 is numeric with row 1 missing, features 1 and 2 are those of a text column with row 3 missing.
    fn sample() -> (Vec<f64>, Fills) {
        let x = vec![1.0, 1.0, 0.0, 9.0, 0.0, 1.0, 3.0, 0.0, 1.0, 8.0, 9.0, 9.0];
        let number = FilledColumn { features: 0..1, rule: FillRule::Mean, rows: vec![1] };
        let text = FilledColumn { features: 1..3, rule: FillRule::MostFrequent, rows: vec![3] };
        (x, Fills::new(vec![number, text]).unwrap())
    }

    fn row(points: &Points, at: usize) -> Vec<f64> {
        let mut out = vec![0.0; points.dims()];
        points.copy_row(at, &mut out);
        out
    }

    #[test]
    fn cells_are_filled_from_the_rows_kept() {
        let (x, fills) = sample();
        let dense = Points::dense_f64(4, 3, x.clone()).unwrap();
        let (mut starts, mut columns, mut values) = (vec![0], vec![], vec![]);
        for row in x.chunks(3) {
            for (at, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
                columns.push(at as u32);
                values.push(*v);
            }
            starts.push(columns.len());
        }
        let sparse: Points = Csr::new(3, starts, columns, values).unwrap().into();
        for points in [dense, sparse] {
            // Of rows 0 and 2: mean (1 + 3)/2, and both texts once, of which the first is taken.
            let filled = fills.refit(&points, None, &[0, 2]).unwrap();
            assert_eq!(row(&filled, 1), [2.0, 0.0, 1.0]);
            assert_eq!(row(&filled, 3), [8.0, 1.0, 0.0]);
            // Row 3 alone has a number, and no text: those cells stay.
            let filled = fills.refit(&points, None, &[3]).unwrap();
            assert_eq!((row(&filled, 1)[0], row(&filled, 3)), (8.0, vec![8.0, 9.0, 9.0]));
            // Weights are copies.
            let filled = fills.refit(&points, Some(&[1.0, 1.0, 3.0, 1.0]), &[0, 2]).unwrap();
            assert_eq!((row(&filled, 1)[0], row(&filled, 3)), (2.5, vec![8.0, 0.0, 1.0]));
            assert_eq!(row(&filled, 0), [1.0, 1.0, 0.0]);
        }
    }

    #[test]
    fn a_part_counts_its_own_rows() {
        let (_, fills) = sample();
        let part = fills.part(&[3, 0, 1]).unwrap();
        assert_eq!(part.columns()[0].rows, [2]);
        assert_eq!(part.columns()[1].rows, [0]);
        assert_eq!(fills.part(&[0, 2]), None);
    }
}
