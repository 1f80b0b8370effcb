//! Kernel machines on data in partitions: which rows to work on, and the block of them.
//!
//! Whoever holds rows holds their scores z = f + b, and names the rows that violate their optimality conditions most
//! ([`one_sided`], [`largest`]). Whoever minimises solves the problem over some rows with all others fixed ([`solve_block`]), as in
//! Joachims' and Platt's decomposition with a working set of thousands, and sends the changes of β; the scores of all
//! rows follow from them.

use super::{Options, solve};
use crate::control::Control;
use crate::error::{Error, Result, check_len};
use crate::gram::Gram;
use crate::loss::{Loss, Offset};
use crate::observe::Silent;
use crate::problem::{Constraint, KernelProblem, Samples};
use crate::solver::{Solution, Stop};

/// A β this close to a bound or to zero, relative to its box, counts as being at it.
const TOUCH: f64 = 1e-12;

/// F of each row at the scores `z`, if β can decrease (−∞ if it cannot), and if it can increase (∞ if it cannot). At the optimum
/// no row of the first kind has a larger F than any of the second. A bias in `z` shifts all of them alike.
pub fn one_sided(samples: &Samples<'_>, z: &[f64], beta: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
    check_len("number of scores", samples.len(), z.len())?;
    check_len("number of dual variables", samples.len(), beta.len())?;
    let (mut fall, mut rise) = (Vec::with_capacity(z.len()), Vec::with_capacity(z.len()));
    for i in 0..z.len() {
        let Some(term) = samples.dual_term(i) else { return Err(unsupported(samples.loss(i))) };
        let width = term.hi - term.lo;
        let touch = TOUCH * if width.is_finite() { width } else { beta[i].abs().max(samples.costs[i]) };
        let slope = z[i] + term.p + term.d * beta[i];
        let down = slope + if beta[i] > touch { term.eps } else { -term.eps };
        let up = slope + if beta[i] < -touch { -term.eps } else { term.eps };
        fall.push(if beta[i] - term.lo > touch { down } else { f64::NEG_INFINITY });
        rise.push(if term.hi - beta[i] > touch { up } else { f64::INFINITY });
    }
    Ok((fall, rise))
}

/// The `count` rows of the largest finite values, largest first; equal ones in the order of a hash of (`seed`, row), so that the
/// order of the data does not matter.
pub fn largest(values: &[f64], count: usize, seed: u64) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..values.len() as u32).filter(|&i| values[i as usize].is_finite()).collect();
    let mixed = |row: u32| {
        // The finaliser of SplitMix64.
        let mut x = (seed ^ u64::from(row)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let order = |a: &u32, b: &u32| {
        values[*b as usize].total_cmp(&values[*a as usize]).then(mixed(*a).cmp(&mixed(*b))).then(a.cmp(b))
    };
    if rows.len() > count {
        rows.select_nth_unstable_by(count.saturating_sub(1), order);
        rows.truncate(count);
    }
    rows.sort_unstable_by(order);
    rows
}

/// A block of rows: their β is free to move, what all others contribute to their scores is fixed.
pub struct Block<'a> {
    /// K between the rows of the block.
    pub gram: &'a dyn Gram,
    /// yᵢ.
    pub targets: &'a [f64],
    /// cᵢ.
    pub costs: &'a [f64],
    /// What the rows outside contribute to the score of each row, without bias.
    pub offsets: &'a [f64],
    /// β at the start.
    pub beta: &'a [f64],
    /// Σβ over the block, which stays as it is; `None` without a bias.
    pub sum: Option<f64>,
}

/// Minimises over a block. The solution has β of its rows and the bias.
pub fn solve_block(block: &Block<'_>, loss: &dyn Loss, stop: Stop, memory: u64, control: &Control) -> Result<Solution> {
    for (what, found) in [("number of offsets", block.offsets.len()), ("number of dual variables", block.beta.len())] {
        check_len(what, block.targets.len(), found)?;
    }
    let shifted = Offset::new(loss, block.targets, block.offsets);
    let numbers = shifted.numbers();
    let constraint = block.sum.map_or(Constraint::None, Constraint::Sum);
    let problem = KernelProblem::new(block.gram, &numbers, block.costs, &shifted, constraint)?;
    if (0..problem.len()).any(|i| problem.dual_term(i).is_none()) {
        return Err(unsupported(loss));
    }
    let options = Options { stop, start: Some(block.beta.to_vec()), memory, ..Options::default() };
    solve(&problem, &options, control, &mut Silent)
}

fn unsupported(loss: &dyn Loss) -> Error {
    Error::Unsupported {
        solver: "decomposition on partitions",
        what: format!("the {} loss, which has no dual term", loss.name()),
        instead: "approx".into(),
    }
}
