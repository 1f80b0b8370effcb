//! The linear kernel with n ≥ d: (X̃ᵀX̃ + λI)w = X̃ᵀỹ, (12) of paper 003, in O(nd²) instead of O(n³).
//!
//! X̃ has rows √cᵢ·(xᵢ − x̄) and ỹ entries √cᵢ·(yᵢ − ȳ), where x̄ and ȳ are means weighted by c: centring eliminates
//! the bias, b = ȳ − wᵀx̄; without a bias nothing is centred. The signed dual variables are βᵢ = cᵢ(yᵢ − zᵢ).
//!
//! Leave-one-out: (yᵢ − zᵢ)/(1 − hᵢ) with the leverage hᵢ = x̃ᵢᵀ(X̃ᵀX̃ + λI)⁻¹x̃ᵢ + cᵢ/Σc.
//!
//! Cost: nd² + d³/3, and n·d² more for leave-one-out. Memory: a few d × d matrices. Rows are read in blocks, and the
//! order of the sums over them depends only on n and d.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::{Halt, check_memory, not_semidefinite};
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::linalg::factor::{Cholesky, FactorError};

/// Rows per block.
pub(super) const BLOCK: usize = 256;

/// Points and targets centred and scaled by √c.
pub struct ScaledPoints<'a> {
    points: &'a Points,
    /// The rows used.
    rows: &'a [u32],
    /// √cᵢ of each row used.
    roots: Vec<f64>,
    /// x̄; zeros without a bias.
    pub mean: Vec<f64>,
    /// ȳ of each target; zeros without a bias.
    pub target_mean: Vec<f64>,
    /// cᵢ/Σc of each row: the contribution of the bias to its leverage; zeros without a bias.
    pub bias_leverage: Vec<f64>,
    /// ỹ, rows × k.
    pub targets: Vec<f64>,
    k: usize,
}

impl<'a> ScaledPoints<'a> {
    /// `costs` and `targets` (k per row) belong to `rows`.
    pub fn new(points: &'a Points, rows: &'a [u32], costs: &[f64], targets: &[f64], k: usize, bias: bool) -> Self {
        let total: f64 = costs.iter().sum();
        let (mut mean, mut target_mean) = (vec![0.0; points.dims()], vec![0.0; k]);
        let mut bias_leverage = vec![0.0; rows.len()];
        if bias && total > 0.0 {
            for (i, (&row, c)) in rows.iter().zip(costs).enumerate() {
                let share = c / total;
                points.visit(row as usize, |column, v| mean[column] += share * v);
                (0..k).for_each(|j| target_mean[j] += share * targets[i * k + j]);
                bias_leverage[i] = share;
            }
        }
        let roots: Vec<f64> = costs.iter().map(|c| c.sqrt()).collect();
        let scaled = (0..rows.len() * k).map(|at| roots[at / k] * (targets[at] - target_mean[at % k])).collect();
        Self { points, rows, roots, mean, target_mean, bias_leverage, targets: scaled, k }
    }

    /// Number of blocks of rows.
    pub fn blocks(&self) -> usize {
        self.rows.len().div_ceil(BLOCK)
    }

    /// The rows of block `t`, as positions in the list of rows.
    pub fn range(&self, t: usize) -> std::ops::Range<usize> {
        t * BLOCK..((t + 1) * BLOCK).min(self.rows.len())
    }

    /// X̃ of block `t`, row-major.
    pub fn block(&self, t: usize) -> Vec<f64> {
        let d = self.points.dims();
        let range = self.range(t);
        let mut out = vec![0.0; range.len() * d];
        for (r, at) in range.enumerate() {
            let row = &mut out[r * d..(r + 1) * d];
            self.points.copy_row(self.rows[at] as usize, row);
            row.iter_mut().zip(&self.mean).for_each(|(x, m)| *x = self.roots[at] * (*x - m));
        }
        out
    }

    /// X̃ᵀX̃ (d × d) and X̃ᵀỹ (d × k), row-major, with `ridge` added to the diagonal of the first.
    pub fn normal(&self, ridge: f64, memory: u64, control: &Control) -> Result<(Vec<f64>, Vec<f64>), Halt> {
        let (d, k) = (self.points.dims(), self.k);
        check_memory("the normal equations", 2 * d * d, memory)?;
        // As many partial sums as fit in a quarter of the memory, independent of the number of threads.
        let max_groups = (memory / 4 / (8 * (d * (d + k)).max(1) as u64)).clamp(1, 16) as usize;
        let groups = self.blocks().clamp(1, max_groups);
        let blocks_per_group = self.blocks().div_ceil(groups);
        let parts = control.threads.map(groups, |g| -> Result<Vec<f64>, Interrupt> {
            let mut sum = vec![0.0; d * (d + k)];
            for t in g * blocks_per_group..((g + 1) * blocks_per_group).min(self.blocks()) {
                control.check()?;
                let (x, range) = (self.block(t), self.range(t));
                let height = range.len();
                let x = MatRef::from_row_major_slice(&x, height, d);
                let y = MatRef::from_row_major_slice(&self.targets[range.start * k..range.end * k], height, k);
                let (xx, xy) = sum.split_at_mut(d * d);
                let xx = MatMut::from_row_major_slice_mut(xx, d, d);
                matmul(xx, Accum::Add, x.transpose(), x, 1.0, Par::Seq);
                let xy = MatMut::from_row_major_slice_mut(xy, d, k);
                matmul(xy, Accum::Add, x.transpose(), y, 1.0, Par::Seq);
            }
            Ok(sum)
        });
        let mut total = vec![0.0; d * (d + k)];
        for part in parts {
            total.iter_mut().zip(part?).for_each(|(t, p)| *t += p);
        }
        let right = total.split_off(d * d);
        (0..d).for_each(|i| total[i * d + i] += ridge);
        Ok((total, right))
    }
}

/// The solution of the primal system for each target.
#[derive(Debug, Clone)]
pub struct PrimalSolution {
    /// w, d × k.
    pub weights: Vec<f64>,
    /// b of each target, 0 without a bias.
    pub bias: Vec<f64>,
    /// β = c·(y − z) of the rows used, rows × k.
    pub beta: Vec<f64>,
    /// Leverages hᵢ, if requested.
    pub leverage: Option<Vec<f64>>,
    /// Jitter added to the diagonal.
    pub jitter: f64,
}

/// Solves for cost c, i.e. λ = 1 in units of 1/c.
pub fn solve(
    scaled: &ScaledPoints<'_>,
    leverage: bool,
    memory: u64,
    control: &Control,
) -> Result<PrimalSolution, Halt> {
    let (d, k) = (scaled.points.dims(), scaled.k);
    let mut jitter = 0.0;
    let (factor, right) = loop {
        let (normal, right) = scaled.normal(1.0 + jitter, memory, control)?;
        let largest = (0..d).map(|i| normal[i * d + i].abs()).fold(1.0, f64::max);
        match Cholesky::new(normal, d, d, control) {
            Ok(factor) => break (factor, right),
            Err(FactorError::Interrupted(why)) => return Err(why.into()),
            // X̃ᵀX̃ + I is positive definite; the factorisation can fail only by rounding.
            Err(FactorError::NotPositive(_)) => {
                jitter = if jitter == 0.0 { d as f64 * f64::EPSILON * largest } else { 10.0 * jitter };
                if !jitter.is_finite() || jitter > largest {
                    return Err(not_semidefinite().into());
                }
            }
        }
    };
    let columns = control.threads.map(k, |j| {
        let mut w: Vec<f64> = (0..d).map(|i| right[i * k + j]).collect();
        factor.solve(&mut w);
        w
    });
    control.check()?;
    let weights: Vec<f64> = (0..d * k).map(|at| columns[at % k][at / k]).collect();
    let bias: Vec<f64> = (0..k)
        .map(|j| scaled.target_mean[j] - (0..d).map(|i| scaled.mean[i] * weights[i * k + j]).sum::<f64>())
        .collect();
    let parts = control.threads.map(scaled.blocks(), |t| -> Result<(Vec<f64>, Vec<f64>), Interrupt> {
        control.check()?;
        let range = scaled.range(t);
        let x = scaled.block(t);
        let mut beta = vec![0.0; range.len() * k];
        let mut leverages = Vec::new();
        for (r, at) in range.enumerate() {
            let row = &x[r * d..(r + 1) * d];
            // Centred scores avoid a cancellation with b.
            for j in 0..k {
                let score: f64 = row.iter().enumerate().map(|(i, x)| x * weights[i * k + j]).sum();
                beta[r * k + j] = scaled.roots[at] * (scaled.targets[at * k + j] - score);
            }
            if leverage {
                let mut solved = row.to_vec();
                factor.solve(&mut solved);
                leverages.push(row.iter().zip(&solved).map(|(a, b)| a * b).sum::<f64>() + scaled.bias_leverage[at]);
            }
        }
        Ok((beta, leverages))
    });
    let (mut beta, mut leverages) = (Vec::new(), Vec::new());
    for part in parts {
        let (b, l) = part?;
        beta.extend(b);
        leverages.extend(l);
    }
    Ok(PrimalSolution { weights, bias, beta, leverage: leverage.then_some(leverages), jitter })
}

/// Xᵀβ, d × k, for β of every row, n × k.
pub(super) fn expand(points: &Points, beta: &[f64], k: usize) -> Vec<f64> {
    let mut w = vec![0.0; points.dims() * k];
    for row in 0..points.len() {
        let row_beta = &beta[row * k..(row + 1) * k];
        if row_beta.iter().any(|b| *b != 0.0) {
            points.visit(row, |i, x| (0..k).for_each(|j| w[i * k + j] += x * row_beta[j]));
        }
    }
    w
}

/// X·w for every point, n × k.
pub(super) fn scores(points: &Points, weights: &[f64], k: usize) -> Vec<f64> {
    let mut out = vec![0.0; points.len() * k];
    for (row, out) in out.chunks_mut(k.max(1)).enumerate() {
        points.visit(row, |i, x| (0..k).for_each(|j| out[j] += x * weights[i * k + j]));
    }
    out
}
