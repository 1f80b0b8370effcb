//! What the machines of pairs of classes share: entries of K within a class, and memory.
//!
//! With k classes every class takes part in k − 1 machines, and three quarters of the entries of a machine are between two samples
//! of one class and the same in every other machine of that class. A machine has a few hundred to a few thousand rows: its
//! matrix is assembled from the blocks of its two classes and the block between them, and pair steps read rows of it in place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::control::Control;
use crate::error::Result;
use crate::gram::{Gram, Pick, StoredGram, part};
use crate::problem::{Constraint, KernelProblem, Losses};
use crate::solver::decomposition::{Scratch, resident};
use crate::solver::{Solution, Stop};

/// Most rows of a machine whose matrix is stored, in single precision: 36 MB. With more rows too few entries are needed.
const MOST_ROWS: usize = 3000;
/// Most bytes of blocks that are kept for other machines, in single precision.
const MOST_KEPT: u64 = 64 << 20;

/// Blocks of K within a class, and the memory of machines that have ended.
#[derive(Default)]
pub(crate) struct Shared {
    blocks: Mutex<Blocks>,
    spare: Mutex<Vec<Spare>>,
}

#[derive(Default)]
struct Blocks {
    /// By first and number of rows.
    known: HashMap<(u32, usize), Arc<Block>>,
    bytes: u64,
}

/// K over some rows, row-major.
struct Block {
    rows: Vec<u32>,
    values: Vec<f32>,
}

/// The space of all machines, and the rows of it that a problem is over.
pub(crate) struct Whole<'a> {
    pub(crate) gram: &'a dyn Gram,
    pub(crate) rows: Vec<u32>,
}

/// The memory of a machine.
#[derive(Default)]
struct Spare {
    values: Vec<f32>,
    between: Vec<f32>,
    scratch: Scratch,
}

fn lock<T>(place: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Solves a classification over some rows of the whole. `None`: the problem is not of that kind, too large, or needs
    /// double precision.
    pub(crate) fn solve(
        &self,
        problem: &KernelProblem<'_>,
        whole: &Whole<'_>,
        stop: Stop,
        memory: u64,
        control: &Control,
    ) -> Result<Option<Solution>> {
        let n = problem.len();
        let plain = problem.row_of.is_none()
            && matches!(problem.constraint, Constraint::None | Constraint::Sum(_))
            && matches!(problem.losses, Losses::One(_));
        let fits = n <= MOST_ROWS && 4 * StoredGram::bytes(n) <= memory;
        let two_classes = problem.targets.iter().all(|y| y.abs() == 1.0);
        if !plain || !fits || !two_classes || problem.gram.in_memory() || control.check().is_err() {
            return Ok(None);
        }
        let mut spare = lock(&self.spare).pop().unwrap_or_default();
        // The first class, then the second: blocks are copied row by row.
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_by_key(|&i| problem.targets[i as usize] > 0.0);
        let first = problem.targets.iter().filter(|y| **y < 0.0).count();
        let values = std::mem::take(&mut spare.values);
        let Ok(values) = self.assemble(problem.gram, whole, &order, first, values, &mut spare.between, control) else {
            return Ok(None);
        };
        let stored = StoredGram::from_values(n, values);
        let mut solution = None;
        if stored.separates() {
            let by = |all: &[f64]| order.iter().map(|&i| all[i as usize]).collect::<Vec<f64>>();
            let (targets, costs) = (by(problem.targets), by(problem.costs));
            let view = stored.without(0, 0);
            let (losses, constraint) = (problem.losses, problem.constraint.clone());
            let ordered =
                KernelProblem { gram: &view, row_of: None, targets: &targets, costs: &costs, losses, constraint };
            let found = resident(&ordered, &stored, stop, &[], memory, &mut spare.scratch, control)?;
            let mut beta = vec![0.0; n];
            order.iter().zip(&found.beta).for_each(|(&i, b)| beta[i as usize] = *b);
            solution = Some(Solution { beta, scores: None, exact: None, ..found });
        }
        spare.values = stored.into_values();
        lock(&self.spare).push(spare);
        Ok(solution)
    }

    /// K in the given order, of which the `first` rows are of one class and the others of another.
    fn assemble(
        &self,
        gram: &dyn Gram,
        whole: &Whole<'_>,
        order: &[u32],
        first: usize,
        mut values: Vec<f32>,
        between: &mut Vec<f32>,
        control: &Control,
    ) -> Result<Vec<f32>> {
        let n = order.len();
        values.resize(n * n, 0.0);
        let (own, other) = order.split_at(first);
        for (from, side) in [(0, own), (first, other)] {
            let block = self.block(whole, side, control)?;
            for (r, block) in block.values.chunks_exact(side.len().max(1)).enumerate() {
                values[(from + r) * n + from..][..side.len()].copy_from_slice(block);
            }
        }
        between.resize(first * (n - first), 0.0);
        // In this order the block is a range of columns, which is faster than a list.
        part(gram, order).block_f32(Pick::Range(0, first), Pick::Range(first, n), between, control)?;
        for (r, between) in between.chunks_exact((n - first).max(1)).enumerate() {
            values[r * n + first..(r + 1) * n].copy_from_slice(between);
        }
        // The lower part is the upper one transposed, in tiles that stay in cache.
        const TILE: usize = 32;
        for r0 in (0..first).step_by(TILE) {
            for c in 0..n - first {
                let to = &mut values[(first + c) * n + r0..(first + c) * n + (r0 + TILE).min(first)];
                to.iter_mut().enumerate().for_each(|(r, v)| *v = between[(r0 + r) * (n - first) + c]);
            }
        }
        Ok(values)
    }

    /// K over one class, computed by the first machine that needs it: from the whole, so that its bits do not depend on which
    /// one that is.
    fn block(&self, whole: &Whole<'_>, side: &[u32], control: &Control) -> Result<Arc<Block>> {
        let there: Vec<u32> = side.iter().map(|&i| whole.rows[i as usize]).collect();
        let key = (there.first().copied().unwrap_or(0), there.len());
        let known = lock(&self.blocks).known.get(&key).cloned();
        if let Some(block) = known.filter(|block| block.rows == there) {
            return Ok(block);
        }
        let mut values = vec![0.0; there.len() * there.len()];
        part(whole.gram, &there).block_f32(Pick::All, Pick::All, &mut values, control)?;
        let block = Arc::new(Block { rows: there, values });
        let bytes = 4 * block.values.len() as u64;
        let mut blocks = lock(&self.blocks);
        if blocks.bytes + bytes <= MOST_KEPT && blocks.known.insert(key, block.clone()).is_none() {
            blocks.bytes += bytes;
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::kernel::Kernel;
    use crate::loss::Hinge;

    fn control() -> Control {
        Control::unlimited(Threads::one())
    }

    fn gram(n: usize) -> CpuGram {
        let x = (0..2 * n).map(|i| (i as f64 * 1.3).sin() + (i % 7) as f64 * 0.2).collect::<Vec<f64>>();
        CpuGram::square(Kernel::rbf(0.7), &Points::dense_f64(n, 2, x).unwrap()).unwrap()
    }

    #[test]
    fn a_matrix_is_assembled_from_blocks_that_are_computed_once() {
        let (whole, shared) = (gram(90), Shared::default());
        // Three classes by turns; the machines of (0, 1) and (0, 2) share the block of class 0.
        for other in [1, 2] {
            let rows: Vec<u32> = (0..90).filter(|row| row % 3 == 0 || row % 3 == other).collect();
            let mut order: Vec<u32> = (0..60).collect();
            order.sort_by_key(|&i| rows[i as usize] % 3);
            let own = part(&whole, &rows);
            let before = whole.entries();
            let there = Whole { gram: &whole, rows };
            let values = shared.assemble(&*own, &there, &order, 30, vec![7.0; 9], &mut vec![], &control()).unwrap();
            // One block is known to the second machine.
            assert_eq!(whole.entries() - before, if other == 1 { 2700 } else { 1800 });
            let mut expected = vec![0f32; 3600];
            own.block_f32(Pick::List(&order), Pick::List(&order), &mut expected, &control()).unwrap();
            let off = values.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 4e-6, "{off}");
        }
    }

    #[test]
    fn a_machine_is_solved_in_its_own_order() {
        let (whole, shared) = (gram(90), Shared::default());
        let rows: Vec<u32> = (0..90).collect();
        let there = Whole { gram: &whole, rows: rows.clone() };
        let targets: Vec<f64> = rows.iter().map(|row| if row % 3 == 0 { 1.0 } else { -1.0 }).collect();
        let costs = vec![2.0; 90];
        let problem = KernelProblem::new(&whole, &targets, &costs, &Hinge, Constraint::free_bias()).unwrap();
        let stop = Stop { tol: Some(1e-5), gap: None };
        let found = shared.solve(&problem, &there, stop, 1 << 30, &control()).unwrap().unwrap();
        let certificate =
            crate::certificate::certify(&problem, &found.beta, Some(&found.bias), None, &control()).unwrap();
        assert!(certificate.violation() < 1e-4, "{}", certificate.violation());
        // No room, or targets that are not classes.
        assert!(shared.solve(&problem, &there, stop, 1000, &control()).unwrap().is_none());
        let real: Vec<f64> = rows.iter().map(|&row| f64::from(row)).collect();
        let other = KernelProblem::new(&whole, &real, &costs, &Hinge, Constraint::free_bias()).unwrap();
        assert!(shared.solve(&other, &there, stop, 1 << 30, &control()).unwrap().is_none());
    }
}
