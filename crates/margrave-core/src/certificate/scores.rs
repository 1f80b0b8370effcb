//! Scores K·β in double precision: computed from β alone, and computed once where β is measured several times.
//!
//! A solver measures its last point before it ends, and the certificate would compute the same product again: one of the
//! two largest costs of a training. [`Scores`] can be passed on instead. They know the coefficients and the matrix they
//! belong to, and are used for no others; a change of some coefficients is applied with a bound on its rounding errors.

use super::rounding::{self, UNIT};
use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick, Precision};
use crate::problem::KernelProblem;

/// Scores are updated, rather than computed from scratch, if at most this share of the coefficients has changed.
const FEW_CHANGES: f64 = 0.75;

/// Updates of the same scores: their bounds on rounding errors add up.
const MOST_UPDATES: usize = 8;

/// K·β of every row, in double precision. Only this module can construct it.
#[derive(Debug, Clone)]
pub struct Scores {
    pub(super) f: Vec<f64>,
    /// Bound on the rounding error of each value.
    pub(super) error: Vec<f64>,
    pub(super) definite: bool,
    /// The coefficients by row.
    of: Vec<f64>,
    /// Where the matrix is in memory.
    gram: usize,
    updates: usize,
}

/// Where a matrix is in memory: two that exist at the same time differ.
fn address(gram: &dyn Gram) -> usize {
    std::ptr::from_ref(gram).cast::<()>().addr()
}

/// The sum of β over the variables of each row.
fn sums_by_row(problem: &KernelProblem<'_>, beta: &[f64]) -> Vec<f64> {
    let mut by_row = vec![0.0; problem.gram.shape().0];
    (0..problem.len()).for_each(|i| by_row[problem.row(i)] += beta[i]);
    by_row
}

/// K·β of every row of K in double precision, without bias, as used by [`certify`](super::certify). `beta` has one entry
/// per variable.
pub fn scores(problem: &KernelProblem<'_>, beta: &[f64], control: &Control) -> Result<Scores, Interrupt> {
    scores_by_row(problem, &sums_by_row(problem, beta), control)
}

/// Like [`scores`], from the sum of β over the variables of each row, as stored in a model, where the variables of a
/// row may cancel.
pub fn scores_by_row(problem: &KernelProblem<'_>, by_row: &[f64], control: &Control) -> Result<Scores, Interrupt> {
    let mut f = vec![0.0; problem.gram.shape().0];
    problem.gram.apply(Precision::Double, Pick::All, by_row, 1, &mut f, control)?;
    let accuracy = problem.gram.accuracy();
    let error = rounding::product_errors(&accuracy, by_row);
    let (definite, of, gram) = (accuracy.definite, by_row.to_vec(), address(problem.gram));
    Ok(Scores { f, error, definite, of, gram, updates: 0 })
}

impl Scores {
    /// The scores of a machine on few centres: they serve no coefficients over the rows.
    pub(super) fn on_centres(f: Vec<f64>, error: Vec<f64>, definite: bool) -> Self {
        Self { f, error, definite, of: Vec::new(), gram: 0, updates: 0 }
    }

    /// f(xᵢ) of every row, without bias.
    pub fn values(&self) -> &[f64] {
        &self.f
    }

    /// Roughly what the rounding of these scores adds to the gap of `beta` (one entry per row): an error e of a score changes
    /// ½‖f‖² by ½|β|·e, and the loss and the Fenchel–Young term of its sample by up to |β|·e each, or c·e where β is free. With a
    /// large cost c and most β free it was three times as much.
    pub(crate) fn rounding_of_gap(&self, beta: &[f64]) -> f64 {
        8.0 * beta.iter().zip(&self.error).map(|(b, e)| b.abs() * e).sum::<f64>()
    }

    /// Whether these are the scores of `beta` over the matrix of `problem`, to the bit.
    pub fn are_of(&self, problem: &KernelProblem<'_>, beta: &[f64]) -> bool {
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        self.gram == address(problem.gram)
            && self.of.len() == problem.gram.shape().0
            && sums_by_row(problem, beta).iter().zip(&self.of).all(same)
    }

    /// The scores of `beta`: these, if they are its own, these and the product with what has changed, if that is little,
    /// or new ones.
    pub fn moved(self, problem: &KernelProblem<'_>, beta: &[f64], control: &Control) -> Result<Scores, Interrupt> {
        let by_row = sums_by_row(problem, beta);
        let known = self.gram == address(problem.gram) && self.of.len() == by_row.len();
        let differ = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
        let changed = by_row.iter().zip(&self.of).filter(|pair| differ(*pair)).count();
        let used = by_row.iter().filter(|v| **v != 0.0).count();
        if !known || changed as f64 > FEW_CHANGES * used as f64 || self.updates >= MOST_UPDATES {
            return scores_by_row(problem, &by_row, control);
        }
        if changed == 0 {
            return Ok(self);
        }
        let change: Vec<f64> = by_row.iter().zip(&self.of).map(|(to, from)| to - from).collect();
        let mut by = vec![0.0; by_row.len()];
        problem.gram.apply(Precision::Double, Pick::All, &change, 1, &mut by, control)?;
        let mut accuracy = problem.gram.accuracy();
        // The rounding of the change itself.
        accuracy.relative += 1.0;
        let errors = rounding::product_errors(&accuracy, &change);
        let f: Vec<f64> = self.f.iter().zip(&by).map(|(f, by)| f + by).collect();
        let parts = self.error.iter().zip(&errors).zip(&f);
        let error = parts.map(|((before, product), f)| before + product + UNIT * f.abs()).collect();
        Ok(Scores { f, error, of: by_row, updates: self.updates + 1, ..self })
    }

    /// The scores of `beta` in `problem`, whose row i is a copy of row `of[i]` of the matrix these belong to. The
    /// coefficients of copies add up to that of their original except for rounding, which the bounds on errors cover.
    /// `None` if they do not.
    pub fn of_copies(&self, problem: &KernelProblem<'_>, beta: &[f64], of: &[u32]) -> Option<Scores> {
        let by_row = sums_by_row(problem, beta);
        if by_row.len() != of.len() || of.iter().any(|&at| at as usize >= self.of.len()) {
            return None;
        }
        let (mut sums, mut sizes) = (vec![0.0f64; self.of.len()], vec![0.0f64; self.of.len()]);
        let mut copies = vec![0.0f64; self.of.len()];
        for (&at, v) in of.iter().zip(&by_row) {
            let at = at as usize;
            sums[at] += v;
            sizes[at] += v.abs();
            copies[at] += 1.0;
        }
        let accuracy = problem.gram.accuracy();
        let mut reach = vec![0.0f64; self.of.len()];
        of.iter().zip(&accuracy.size).for_each(|(&at, size)| reach[at as usize] = size.max(reach[at as usize]));
        let (mut missing, mut total) = (0.0, 0.0);
        for at in 0..self.of.len() {
            missing += reach[at] * ((sums[at] - self.of[at]).abs() + copies[at] * UNIT * sizes[at]);
            total += reach[at] * self.of[at].abs();
        }
        // More than rounding: coefficients of something else. NaN is refused as well.
        if !(missing <= 1e-10 * total) {
            return None;
        }
        let f: Vec<f64> = of.iter().map(|&at| self.f[at as usize]).collect();
        let error = of.iter().zip(&accuracy.size).map(|(&at, size)| self.error[at as usize] + size * missing).collect();
        let definite = self.definite && accuracy.definite;
        Some(Scores { f, error, definite, of: by_row, gram: address(problem.gram), updates: self.updates })
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::kernel::Kernel;
    use crate::loss::Hinge;
    use crate::problem::Constraint;

    fn points(n: usize) -> Vec<f64> {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(11);
        (0..3 * n).map(|_| rng.random_range(-2.0..2.0)).collect()
    }

    fn gram(n: usize, values: Vec<f64>) -> CpuGram {
        CpuGram::square(Kernel::rbf(0.5), &Points::dense_f64(n, 3, values).unwrap()).unwrap()
    }

    /// The same scores within the bounds of both.
    fn agree(a: &Scores, b: &Scores) {
        for i in 0..a.f.len() {
            assert!((a.f[i] - b.f[i]).abs() <= a.error[i] + b.error[i], "{i}: {} {}", a.f[i], b.f[i]);
            assert!(a.error[i] < 1e-10);
        }
    }

    #[test]
    fn scores_follow_a_change_and_serve_no_other_coefficients() {
        let n = 120;
        let (gram, other) = (gram(n, points(n)), gram(n, points(n)));
        let targets: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let costs = vec![5.0; n];
        let problem = KernelProblem::new(&gram, &targets, &costs, &Hinge, Constraint::free_bias()).unwrap();
        let elsewhere = KernelProblem::new(&other, &targets, &costs, &Hinge, Constraint::free_bias()).unwrap();
        let control = Control::unlimited(Threads::one());
        let beta: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
        let first = scores(&problem, &beta, &control).unwrap();
        assert!(first.are_of(&problem, &beta) && !first.are_of(&elsewhere, &beta));
        let mut next = beta.clone();
        (0..20).for_each(|i| next[3 * i] += 0.01 * (i as f64 + 1.0));
        assert!(!first.are_of(&problem, &next));
        let before = gram.entries();
        let moved = first.clone().moved(&problem, &next, &control).unwrap();
        assert!(gram.entries() - before < (n * n / 2) as u64);
        assert!(moved.are_of(&problem, &next));
        agree(&moved, &scores(&problem, &next, &control).unwrap());
        // Nothing has changed: nothing is computed. Another matrix: everything is.
        let before = gram.entries();
        assert!(moved.clone().moved(&problem, &next, &control).unwrap().are_of(&problem, &next));
        assert_eq!(gram.entries(), before);
        assert!(moved.moved(&elsewhere, &next, &control).unwrap().are_of(&elsewhere, &next));
        assert!(other.entries() >= (n * n / 2) as u64);
    }

    #[test]
    fn copies_have_the_scores_of_their_original() {
        let n = 60;
        let single = points(n);
        let of: Vec<u32> = (0..2 * n as u32).map(|i| i / 2).collect();
        let double: Vec<f64> = of.iter().flat_map(|&i| single[3 * i as usize..3 * i as usize + 3].to_vec()).collect();
        let (small, large) = (gram(n, single), gram(2 * n, double));
        let (costs, targets) = (vec![1.0; 2 * n], vec![1.0; 2 * n]);
        let merged = KernelProblem::new(&small, &targets[..n], &costs[..n], &Hinge, Constraint::None).unwrap();
        let all = KernelProblem::new(&large, &targets, &costs, &Hinge, Constraint::None).unwrap();
        let control = Control::unlimited(Threads::one());
        let beta: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
        let mut spread: Vec<f64> = of.iter().enumerate().map(|(k, &i)| [0.3, 0.7][k % 2] * beta[i as usize]).collect();
        let known = scores(&merged, &beta, &control).unwrap();
        let copied = known.of_copies(&all, &spread, &of).unwrap();
        assert!(copied.are_of(&all, &spread));
        agree(&copied, &scores(&all, &spread, &control).unwrap());
        spread[7] += 1e-6;
        assert!(known.of_copies(&all, &spread, &of).is_none());
    }
}
