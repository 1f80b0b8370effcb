//! Equal rows with equal targets, merged into one.
//!
//! Samples with the same point and the same target have the same score, hence the same loss: c₁ℓ + c₂ℓ = (c₁ + c₂)ℓ, for every loss
//! and every constraint whose groups they share. So the problem over the distinct samples, with summed costs, has the same
//! optimum, and β of a merged sample is divided among its members, in proportion to their costs (βᵢ/cᵢ = −ℓ′ is the same for
//! all of them) or, where the dual is linear, one after the other up to their bounds. The solution of the original problem is
//! what is saved and certified.

use crate::compose::calibrate::LeftOut;
use crate::control::Threads;
use crate::data::{Dense, Points, Real, RowHash, Storage};
use crate::gram::Gram;
use crate::problem::{Constraint, KernelProblem, Losses};
use crate::solver::Solution;
use crate::train::space::StartPoint;

/// Values of a long dense row that are hashed first.
const SAMPLED: usize = 32;
/// Values that are hashed where many rows agree in those.
const MORE_SAMPLED: usize = 2 * SAMPLED;
/// Fraction of duplicates from which on rows are merged.
const MIN_DUPLICATE_FRACTION: f64 = 0.02;

/// For every row, the first row that is equal to it; `None` if there are few duplicates.
pub(crate) fn equal_rows(points: &Points, threads: &Threads) -> Option<Vec<u32>> {
    let n = points.len();
    if let Some(found) = equal_elsewhere(points) {
        return found;
    }
    let same = |a: usize, b: usize| equal(points, a, b);
    // Long rows that differ do so in a few of their values already; where they do not (pixels at the edge of a picture),
    // in some more, and else all values are hashed.
    let by_some = |count: usize| {
        let of_row: Box<dyn Fn(usize) -> u64 + Sync> = match points.storage() {
            _ if points.dims() < 2 * count => return None,
            Storage::DenseF32(m) => {
                let (values, d) = (m.values(), m.dims());
                Box::new(move |row| hash_some(&values[row * d..(row + 1) * d], count))
            }
            Storage::DenseF64(m) => {
                let (values, d) = (m.values(), m.dims());
                Box::new(move |row| hash_some(&values[row * d..(row + 1) * d], count))
            }
            Storage::SparseF32(_) | Storage::SparseF64(_) => return None,
        };
        first_equal(&hashes(n, threads, of_row), n / 8, same)
    };
    let found = by_some(SAMPLED).or_else(|| by_some(MORE_SAMPLED));
    let (first, copies) = match found {
        Some(found) => found,
        None => first_equal(&hashes(n, threads, |row| hash(points, row)), usize::MAX, same)?,
    };
    enough(copies, n).then_some(first)
}

/// Whether so many copies among n rows are worth merging.
fn enough(copies: usize, n: usize) -> bool {
    copies > 0 && copies as f64 >= MIN_DUPLICATE_FRACTION * n as f64
}

/// The same for points that live elsewhere, by their hashes there. `None` if the points have to be looked at here.
fn equal_elsewhere(points: &Points) -> Option<Option<Vec<u32>>> {
    fn found<T: Real>(m: &Dense<T>) -> Option<Option<Vec<u32>>> {
        let (values, d, n) = (m.remote()?, m.dims(), m.len());
        let whole = RowHash { start: START, column: COLUMN, factor: FACTOR, sampled: 0 };
        let some = (d >= 2 * SAMPLED).then_some(RowHash { sampled: SAMPLED as u64, ..whole });
        for hash in some.into_iter().chain([whole]) {
            let hashes = values.hashes(d, hash)?;
            // Rows of equal hashes are taken for equal, and compared in one go.
            let mut pairs = Vec::new();
            let take = |a: usize, b: usize| {
                pairs.push((a as u32, b as u32));
                true
            };
            let (first, copies) = first_equal(&hashes, usize::MAX, take)?;
            if !enough(copies, n) {
                return Some(None);
            }
            if values.all_equal(d, &pairs)? {
                return Some(Some(first));
            }
        }
        None
    }
    match points.storage() {
        Storage::DenseF32(m) => found(m),
        Storage::DenseF64(m) => found(m),
        Storage::SparseF32(_) | Storage::SparseF64(_) => None,
    }
}

/// The hashes of all rows.
fn hashes(n: usize, threads: &Threads, of_row: impl Fn(usize) -> u64 + Sync) -> Vec<u64> {
    /// Rows that one task hashes.
    const ROWS: usize = 4096;
    let task = |task: usize| (task * ROWS..((task + 1) * ROWS).min(n)).map(&of_row).collect::<Vec<u64>>();
    threads.map(n.div_ceil(ROWS), task).concat()
}

/// For every row, the first row that is equal to it, and the number of copies. `equal` compares two rows with the same hash. `None` if
/// more than `most` such pairs are different: each takes a comparison.
fn first_equal(hashes: &[u64], most: usize, mut equal: impl FnMut(usize, usize) -> bool) -> Option<(Vec<u32>, usize)> {
    let n = hashes.len();
    let mut first: Vec<u32> = (0..n as u32).collect();
    let (mut copies, mut different) = (0, 0);
    // An open-addressed table of the distinct rows so far, at most half full.
    const EMPTY: u32 = u32::MAX;
    let places = (2 * n).next_power_of_two().max(2);
    let mut table = vec![EMPTY; places];
    for row in 0..n {
        let mut place = (hashes[row] >> (64 - places.trailing_zeros())) as usize;
        loop {
            match table[place] {
                EMPTY => {
                    table[place] = row as u32;
                    break;
                }
                other if hashes[other as usize] == hashes[row] => {
                    if equal(other as usize, row) {
                        first[row] = other;
                        copies += 1;
                        break;
                    }
                    different += 1;
                    if different > most {
                        return None;
                    }
                }
                _ => {}
            }
            place = (place + 1) % places;
        }
    }
    Some((first, copies))
}

/// The same for some of the rows, as indices into `rows`.
pub(crate) fn equal_among(first: &[u32], rows: &[u32]) -> Option<Vec<u32>> {
    let mut place = vec![u32::MAX; first.len()];
    let mut copies = 0;
    let mut own = Vec::with_capacity(rows.len());
    for (at, &row) in rows.iter().enumerate() {
        let slot = &mut place[first[row as usize] as usize];
        if *slot == u32::MAX {
            *slot = at as u32;
        } else {
            copies += 1;
        }
        own.push(*slot);
    }
    enough(copies, rows.len()).then_some(own)
}

/// The hash of no values.
const START: u64 = 0x9E37_79B9_7F4A_7C15;
/// Factor of column numbers.
const COLUMN: u64 = 0xD6E8_FEB8_6659_FD93;
/// Factor after each value.
const FACTOR: u64 = 0x517C_C1B7_2722_0A95;

/// The hash with one more value; zeros of either sign leave it as it is.
#[inline(always)]
fn mix(state: u64, column: usize, value: f64) -> u64 {
    if value == 0.0 {
        return state;
    }
    let word = value.to_bits() ^ (column as u64).wrapping_mul(COLUMN);
    (state.rotate_left(5) ^ word).wrapping_mul(FACTOR)
}

/// Brings all bits to the upper ones, which the table uses.
fn finished(state: u64) -> u64 {
    (state ^ (state >> 29)).wrapping_mul(START)
}

/// A hash of the nonzero values of a row.
pub(crate) fn hash(points: &Points, row: usize) -> u64 {
    let mut state = START;
    points.visit(row, |column, value| state = mix(state, column, value));
    finished(state)
}

/// A hash of `count` values, spread over a dense row.
fn hash_some<T: Real>(row: &[T], count: usize) -> u64 {
    let columns = (0..count).map(|at| at * row.len() / count);
    finished(columns.fold(START, |state, column| mix(state, column, row[column].to_f64())))
}

/// Whether two rows have the same bits, zeros apart.
fn equal(points: &Points, a: usize, b: usize) -> bool {
    match points.storage() {
        Storage::DenseF32(m) => m.row(a) == m.row(b),
        Storage::DenseF64(m) => m.row(a) == m.row(b),
        Storage::SparseF32(_) | Storage::SparseF64(_) => {
            let content = |row: usize| {
                let mut all = Vec::new();
                points.visit(row, |column, value| {
                    if value != 0.0 {
                        all.push((column, value.to_bits()));
                    }
                });
                all
            };
            content(a) == content(b)
        }
    }
}

/// A problem over the distinct samples of another.
pub(crate) struct Merged {
    /// Rows of the original problem that remain.
    pub(crate) rows: Vec<u32>,
    /// The merged variable of each original one.
    variable_of: Vec<u32>,
    /// Its share of that variable's cost.
    share: Vec<f64>,
    targets: Vec<f64>,
    costs: Vec<f64>,
    row_of: Option<Vec<u32>>,
    constraint: Constraint,
}

impl Merged {
    /// Merges the samples of `problem`; `first` has the first equal row of every row. `None` if too few are equal.
    pub(crate) fn new(problem: &KernelProblem<'_>, first: &[u32]) -> Option<Self> {
        let group_of = |i: usize| match &problem.constraint {
            Constraint::Groups { of, .. } => of[i],
            _ => 0,
        };
        let key = |i: usize| (first[problem.row(i)], problem.targets[i].to_bits(), group_of(i));
        let mut order: Vec<u32> = (0..problem.len() as u32).collect();
        order.sort_unstable_by_key(|&i| (key(i as usize), i));
        // Merged samples in the order of their first member.
        let mut leader = vec![0u32; problem.len()];
        for group in order.chunk_by(|&a, &b| key(a as usize) == key(b as usize)) {
            group.iter().for_each(|&i| leader[i as usize] = group[0]);
        }
        let leaders: Vec<u32> = (0..problem.len() as u32).filter(|&i| leader[i as usize] == i).collect();
        if problem.len() - leaders.len() < (MIN_DUPLICATE_FRACTION * problem.len() as f64).ceil() as usize {
            return None;
        }
        let mut place = vec![0u32; problem.len()];
        leaders.iter().enumerate().for_each(|(at, &i)| place[i as usize] = at as u32);
        let variable_of: Vec<u32> = leader.iter().map(|&i| place[i as usize]).collect();
        let mut costs = vec![0.0; leaders.len()];
        variable_of.iter().zip(problem.costs).for_each(|(&at, c)| costs[at as usize] += c);
        let share = variable_of.iter().zip(problem.costs);
        let share = share.map(|(&at, c)| if costs[at as usize] > 0.0 { c / costs[at as usize] } else { 0.0 }).collect();
        // Rows of K: those of the leaders, each once.
        let mut rows: Vec<u32> = leaders.iter().map(|&i| problem.row(i as usize) as u32).collect();
        let row_of = problem.row_of.is_some().then(|| {
            let wanted: Vec<u32> = rows.iter().map(|&row| first[row as usize]).collect();
            rows.clone_from(&wanted);
            rows.sort_unstable();
            rows.dedup();
            wanted.iter().map(|row| rows.binary_search(row).unwrap_or(0) as u32).collect()
        });
        let constraint = match &problem.constraint {
            Constraint::Groups { of, sums } => {
                Constraint::Groups { of: leaders.iter().map(|&i| of[i as usize]).collect(), sums: sums.clone() }
            }
            other => other.clone(),
        };
        let targets = leaders.iter().map(|&i| problem.targets[i as usize]).collect();
        Some(Self { rows, variable_of, share, targets, costs, row_of, constraint })
    }

    /// Number of rows that were merged into others; ν-SVR has two variables per row.
    pub(crate) fn copies(&self) -> usize {
        let per_row = if self.row_of.is_some() { 2 } else { 1 };
        (self.variable_of.len() - self.targets.len()) / per_row
    }

    /// The merged problem over K of the kept rows.
    pub(crate) fn problem<'a>(&'a self, gram: &'a dyn Gram, losses: Losses<'a>) -> KernelProblem<'a> {
        let (targets, costs) = (self.targets.as_slice(), self.costs.as_slice());
        KernelProblem {
            gram,
            row_of: self.row_of.as_deref(),
            targets,
            costs,
            losses,
            constraint: self.constraint.clone(),
        }
    }

    /// Left-out scores of the merged samples as those of all their members.
    pub(crate) fn for_all(&self, left: &LeftOut) -> LeftOut {
        let mut score = vec![None; self.targets.len()];
        left.rows.iter().zip(&left.scores).for_each(|(&at, z)| score[at as usize] = Some(*z));
        let found = |i: usize| score[self.variable_of[i] as usize].map(|z| (i as u32, z));
        let (rows, scores) = (0..self.variable_of.len()).filter_map(found).unzip();
        LeftOut { rows, scores }
    }

    /// A start for the merged problem.
    pub(crate) fn start(&self, start: StartPoint) -> StartPoint {
        let mut beta = vec![0.0; self.targets.len()];
        if start.beta.len() == self.variable_of.len() {
            self.variable_of.iter().zip(&start.beta).for_each(|(&at, b)| beta[at as usize] += b);
        }
        StartPoint { beta, ..start }
    }

    /// The solution of `problem`, the original one. Where the dual of the loss is linear within its bounds (hinge, ε-insensitive)
    /// every split of β within them is optimal: the first duplicates are filled up to their bounds, so that there are few
    /// support vectors. Otherwise each gets β in proportion to its cost.
    pub(crate) fn spread(&self, solution: Solution, problem: &KernelProblem<'_>) -> Solution {
        let merged = &solution.beta;
        let mut left = merged.clone();
        let share = |i: usize| {
            let at = self.variable_of[i] as usize;
            match problem.dual_term(i) {
                Some(term) if term.d == 0.0 => {
                    let own = left[at].clamp(term.lo, term.hi);
                    left[at] -= own;
                    own
                }
                // A bound of the merged sample is the bound of each of its members, to the bit.
                _ if merged[at] == self.costs[at] => problem.costs[i],
                _ if merged[at] == -self.costs[at] => -problem.costs[i],
                _ => merged[at] * self.share[i],
            }
        };
        let beta: Vec<f64> = (0..self.variable_of.len()).map(share).collect();
        // Without a list of rows, variables are rows.
        let exact = solution.exact.filter(|_| self.row_of.is_none() && problem.row_of.is_none());
        let exact = exact.and_then(|exact| exact.of_copies(problem, &beta, &self.variable_of));
        Solution { beta, scores: None, exact, ..solution }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Csr;

    #[test]
    fn equal_rows_are_found_whatever_their_storage() {
        let dense = Points::dense_f64(5, 2, vec![1.0, 0.0, 2.0, 3.0, 1.0, -0.0, 2.0, 3.0, 3.0, 2.0]).unwrap();
        assert_eq!(equal_rows(&dense, &Threads::one()), Some(vec![0, 1, 0, 1, 4]));
        // The same point with and without a stored zero.
        let starts = vec![0, 2, 3, 4];
        let sparse: Points = Csr::new(3, starts, vec![0, 1, 0, 2], vec![1.0, 0.0, 1.0, 1.0]).unwrap().into();
        assert_eq!(equal_rows(&sparse, &Threads::one()), Some(vec![0, 0, 2]));
        let distinct = Points::dense_f64(3, 1, vec![1.0, 2.0, 3.0]).unwrap();
        assert_eq!(equal_rows(&distinct, &Threads::one()), None);
        assert_eq!(equal_among(&[0, 1, 0, 1, 4], &[2, 4, 0]), Some(vec![0, 1, 0]));
        assert_eq!(equal_among(&[0, 1, 0, 1, 4], &[1, 4]), None);
    }

    #[test]
    fn long_rows_are_told_apart_by_any_of_their_values() {
        // Rows differ in one column only, which is among the sampled ones or not; every third row is a copy.
        for (d, column) in [(64, 0), (64, 1), (100, 99), (257, 128), (257, 130)] {
            let value = |row: usize, j: usize| if j == column { (row - row % 3 / 2) as f64 } else { (j % 7) as f64 };
            let values: Vec<f64> = (0..60).flat_map(|row| (0..d).map(move |j| value(row, j))).collect();
            let expected: Vec<u32> = (0..60u32).map(|row| row - row % 3 / 2).collect();
            let single = values.iter().map(|v| *v as f32).collect::<Vec<f32>>();
            for points in [Points::dense_f64(60, d, values).unwrap(), Points::dense_f32(60, d, single).unwrap()] {
                assert_eq!(equal_rows(&points, &Threads::one()), Some(expected.clone()), "{d} columns, {column}");
            }
        }
    }
}
