//! The choice of centres: accelerated randomly pivoted Cholesky.
//!
//! Randomly pivoted Cholesky (Chen, Epperly, Tropp and Webber, *Comm. Pure Appl. Math.* 2024) draws the next pivot with a
//! probability proportional to the diagonal of the residual E = K − FFᵀ. Drawn one by one that is memory-bound; the
//! accelerated form (Epperly, Tropp and Webber, *Embrace rejection*, 2024, algorithm 3) proposes a block of rows from the
//! diagonal as it is, and accepts each with the probability (its diagonal now)/(its diagonal when it was proposed): the
//! pivots have the same distribution, and the work is products of matrices.
//!
//! Pivots are drawn among *candidates*, all rows or a random part of them. The search can be continued: the first m
//! pivots do not depend on how many follow. Copies of a centre have a residual of 0 and are never drawn, so the search
//! ends by itself once K is exhausted.
//!
//! F is kept in memory, or where the entries of K are computed (`PivotedFactor`). If such a device fails, the search begins anew.
//!
//! Invariants: `residual[i]` = k(xᵢ, xᵢ) − ‖Fᵢ‖² ≥ 0; the blocks hold one column of F per pivot, in order.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::control::{Control, Interrupt, Threads};
use crate::gram::{DeviceEnd, Gram, Pick, PivotedFactor};
use crate::linalg::factor::{Cholesky, FactorError};

/// Rows proposed at once.
const PROPOSALS: usize = 192;
/// A pivot must leave at least this share of the largest diagonal entry: below it, K is exhausted to working precision.
const LEAST_PIVOT: f64 = 1e-9;
/// Rows per task.
const TASK_ROWS: usize = 512;
/// Blocks without an accepted row after which the search ends.
const MAX_IDLE: usize = 8;

/// A block of columns of F, row-major.
struct FactorBlock {
    columns: usize,
    values: Vec<f64>,
}

impl FactorBlock {
    fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.columns..(i + 1) * self.columns]
    }
}

/// Where F is kept.
enum Store {
    Here(Vec<FactorBlock>),
    There(Box<dyn PivotedFactor>),
}

/// A search for centres among the rows of a square Gram, which can be continued.
pub struct CentreSearch {
    residual: Vec<f64>,
    pivots: Vec<u32>,
    store: Store,
    seed: u64,
    rng: ChaCha8Rng,
    trace: f64,
    least: f64,
    exhausted: bool,
}

impl CentreSearch {
    /// A search that has drawn nothing yet, over rows with this diagonal of K.
    pub fn new(diag: Vec<f64>, seed: u64) -> Self {
        let residual: Vec<f64> = diag.into_iter().map(|k| if k.is_finite() { k.max(0.0) } else { 0.0 }).collect();
        let largest = residual.iter().fold(0.0f64, |m, k| m.max(*k));
        Self {
            trace: residual.iter().sum(),
            least: LEAST_PIVOT * largest,
            exhausted: residual.is_empty() || largest == 0.0,
            residual,
            pivots: Vec::new(),
            store: Store::Here(Vec::new()),
            seed,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// The same search with F where entries are computed, if it is possible there. To be called before the first pivot is drawn.
    pub fn on_device(mut self, device: Option<Box<dyn PivotedFactor>>) -> Self {
        if let (Some(device), true) = (device, self.pivots.is_empty()) {
            self.store = Store::There(device);
        }
        self
    }

    /// The rows drawn so far, in order; there may be more of them than asked for.
    pub fn pivots(&self) -> &[u32] {
        &self.pivots
    }

    /// Whether no row is left that the centres do not represent to working precision.
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// tr(K − FFᵀ)/tr(K) after all pivots.
    pub fn residual_share(&self) -> f64 {
        if self.trace > 0.0 { self.residual.iter().sum::<f64>() / self.trace } else { 0.0 }
    }

    /// Draws until there are at least `m` pivots or K is exhausted.
    pub fn grow(&mut self, gram: &dyn Gram, m: usize, control: &Control) -> Result<(), Interrupt> {
        let mut idle = 0;
        while self.pivots.len() < m && !self.exhausted {
            control.check()?;
            let before = self.pivots.len();
            match self.draw_block(gram, control) {
                Ok(()) => {}
                Err(DeviceEnd::Interrupted(why)) => return Err(why),
                Err(DeviceEnd::Failed) => *self = Self::new(gram.diag(), self.seed),
            }
            idle = if self.pivots.len() != before { 0 } else { idle + 1 };
            self.exhausted |= idle >= MAX_IDLE || self.residual.iter().all(|r| *r <= self.least);
        }
        Ok(())
    }

    /// The first `m` columns of F, one row per candidate; `None` if they are not in memory.
    pub fn features(&self, m: usize, threads: &Threads) -> Option<Vec<f64>> {
        let Store::Here(blocks) = &self.store else { return None };
        let n = self.residual.len();
        let (mut out, m) = (vec![0.0; n * m], m.max(1));
        threads.chunks(&mut out, TASK_ROWS * m, |task, part| {
            for (k, row) in part.chunks_mut(m).enumerate() {
                let (mut at, i) = (0, task * TASK_ROWS + k);
                for block in blocks {
                    let take = block.columns.min(m - at);
                    row[at..at + take].copy_from_slice(&block.row(i)[..take]);
                    at += take;
                    if at == m {
                        break;
                    }
                }
            }
        });
        Some(out)
    }

    /// Candidates drawn with probabilities proportional to the residual, each once.
    fn propose(&mut self) -> Vec<u32> {
        let mut sums = Vec::with_capacity(self.residual.len());
        let mut total = 0.0;
        for r in &self.residual {
            total += if *r > self.least { *r } else { 0.0 };
            sums.push(total);
        }
        let mut chosen: Vec<u32> = Vec::with_capacity(PROPOSALS);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..PROPOSALS {
            let at = self.rng.random::<f64>() * total;
            let row = sums.partition_point(|s| *s <= at).min(sums.len() - 1) as u32;
            if self.residual[row as usize] > self.least && seen.insert(row) {
                chosen.push(row);
            }
        }
        chosen
    }

    fn draw_block(&mut self, gram: &dyn Gram, control: &Control) -> Result<(), DeviceEnd> {
        let proposed = self.propose();
        let p = proposed.len();
        if p == 0 {
            return Ok(());
        }
        let mut h = vec![0.0; p * p];
        self.residual_over(gram, &proposed, &mut h, control)?;
        let accepted = self.accept(&proposed, &mut h);
        if accepted.is_empty() {
            return Ok(());
        }
        let t = accepted.len();
        let chosen: Vec<u32> = accepted.iter().map(|&at| proposed[at]).collect();
        let mut own = vec![0.0; t * t];
        self.residual_over(gram, &chosen, &mut own, control)?;
        let factor = match Cholesky::new(own, t, t, control) {
            Ok(factor) => factor,
            Err(FactorError::Interrupted(why)) => return Err(why.into()),
            // The rows are dependent to working precision: their residual is noise.
            Err(FactorError::NotPositive(at)) => {
                self.residual[chosen[at] as usize] = 0.0;
                return Ok(());
            }
        };
        let squares = match &mut self.store {
            Store::There(device) => device.extend(&chosen, &inverse(&factor), control)?,
            Store::Here(blocks) => {
                let block = new_columns(blocks, gram, &chosen, &factor, control)?;
                let squares = block.values.chunks(t).map(|row| row.iter().map(|v| v * v).sum()).collect();
                blocks.push(block);
                squares
            }
        };
        for (residual, square) in self.residual.iter_mut().zip(squares) {
            *residual = (*residual - square).max(0.0);
        }
        chosen.iter().for_each(|&row| self.residual[row as usize] = 0.0);
        self.pivots.extend(chosen);
        Ok(())
    }

    /// `out = (K − FFᵀ)[rows, rows]`, row-major.
    fn residual_over(
        &mut self,
        gram: &dyn Gram,
        rows: &[u32],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), DeviceEnd> {
        match &mut self.store {
            Store::There(device) => device.residual(rows, out, control),
            Store::Here(blocks) => {
                gram.block_f64(Pick::List(rows), Pick::List(rows), out, control)?;
                subtract(blocks, &of_rows(blocks, rows), rows, out);
                Ok(())
            }
        }
    }

    /// Places of the accepted proposals: `h` is their residual matrix, overwritten by its partial Cholesky factor.
    fn accept(&mut self, proposed: &[u32], h: &mut [f64]) -> Vec<usize> {
        let p = proposed.len();
        let mut accepted = Vec::new();
        for j in 0..p {
            let (now, when_proposed) = (h[j * p + j], self.residual[proposed[j] as usize]);
            let draw: f64 = self.rng.random();
            if !(now > self.least && draw * when_proposed < now) {
                continue;
            }
            accepted.push(j);
            let root = now.sqrt();
            for i in j + 1..p {
                h[i * p + j] /= root;
            }
            for i in j + 1..p {
                let own = h[i * p + j];
                for k in j + 1..=i {
                    h[i * p + k] -= own * h[k * p + j];
                }
            }
        }
        accepted
    }
}

/// The columns of F that `chosen` add, `factor` being that of the residual over them.
fn new_columns(
    blocks: &[FactorBlock],
    gram: &dyn Gram,
    chosen: &[u32],
    factor: &Cholesky<f64>,
    control: &Control,
) -> Result<FactorBlock, Interrupt> {
    let (n, t) = (gram.shape().0, chosen.len());
    let mut values = vec![0.0; n * t];
    gram.block_f64(Pick::All, Pick::List(chosen), &mut values, control)?;
    let (one, right) = (Threads::one(), of_rows(blocks, chosen));
    control.threads.chunks(&mut values, TASK_ROWS * t, |task, part| {
        if control.check().is_ok() {
            let rows: Vec<u32> = (task * TASK_ROWS..task * TASK_ROWS + part.len() / t).map(|i| i as u32).collect();
            subtract(blocks, &right, &rows, part);
            factor.whiten(part, rows.len(), &one);
        }
    });
    control.check()?;
    Ok(FactorBlock { columns: t, values })
}

/// F[rows], block by block.
fn of_rows(blocks: &[FactorBlock], rows: &[u32]) -> Vec<Vec<f64>> {
    blocks.iter().map(|block| gather(block, rows)).collect()
}

fn gather(block: &FactorBlock, rows: &[u32]) -> Vec<f64> {
    let mut values = Vec::with_capacity(rows.len() * block.columns);
    rows.iter().for_each(|&i| values.extend_from_slice(block.row(i as usize)));
    values
}

/// `out -= F[rows]·rightᵀ`, row-major; `right` is F of the columns, block by block.
fn subtract(blocks: &[FactorBlock], right: &[Vec<f64>], rows: &[u32], out: &mut [f64]) {
    if rows.is_empty() {
        return;
    }
    let columns = out.len() / rows.len();
    for (block, right) in blocks.iter().zip(right) {
        let consecutive = rows.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let gathered;
        let left: &[f64] = if consecutive {
            let from = rows[0] as usize * block.columns;
            &block.values[from..from + rows.len() * block.columns]
        } else {
            gathered = gather(block, rows);
            &gathered
        };
        let left = MatRef::from_row_major_slice(left, rows.len(), block.columns);
        let right = MatRef::from_row_major_slice(right, columns, block.columns);
        let to = MatMut::from_row_major_slice_mut(out, rows.len(), columns);
        matmul(to, Accum::Add, left, right.transpose(), -1.0, Par::Seq);
    }
}

/// T⁻¹ of a small factor T, row-major.
fn inverse(factor: &Cholesky<f64>) -> Vec<f64> {
    let t = factor.len();
    let mut out = vec![0.0; t * t];
    (0..t).for_each(|i| out[i * t + i] = 1.0);
    // The rows of I·T⁻ᵀ are the columns of T⁻¹.
    factor.whiten(&mut out, t, &Threads::one());
    for i in 0..t {
        for j in 0..i {
            out.swap(i * t + j, j * t + i);
        }
    }
    out
}
