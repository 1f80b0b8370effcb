//! Every λ from one eigendecomposition (paper 003, §1.2), with leave-one-out errors, biases and weights.
//!
//! Sample i has the weight wᵢ, so that cᵢ = wᵢ/λ. With S = diag(√w), K̃ = SKS, ỹ = Sy and β = Sβ̃ the system becomes
//! (K̃ + λI)β̃ + b·s = ỹ, sᵀβ̃ = 0, s = S·1: (5) and (9) of the paper with a border. The border is eliminated once for
//! all λ: with q = s/‖s‖ and H = I − qqᵀ, β̃ solves (HK̃H + λI)β̃ = Hỹ. We decompose
//!
//! ```text
//! HK̃H + μ·qqᵀ = QΛQᵀ,     μ ≥ its largest eigenvalue
//! ```
//!
//! because q is then an eigenvector of its own, and the inverse of the bordered matrix is
//! Q(Λ + λ)⁻¹Qᵀ − qqᵀ/(μ + λ), a subtraction without cancellation for any λ. Then for every λ
//!
//! * β̃ = Q(Λ + λ)⁻¹Qᵀ·Hỹ, b = ȳ − qᵀK̃β̃/‖s‖, residuals √wᵢ(yᵢ − zᵢ) = λβ̃ᵢ;
//! * leave-one-out residuals √wᵢ(yᵢ − z₍₋ᵢ₎) = β̃ᵢ/mᵢ, mᵢ = Σₖ Qᵢₖ²/(Λₖ + λ) − qᵢ²/(μ + λ);
//! * degrees of freedom, the trace of y ↦ z: Σ Λₖ/(Λₖ + λ), where q contributes 1 (the bias) instead of μ/(μ + λ).
//!
//! On the primal side (linear kernel, n ≥ d) the d × d matrix X̃ᵀX̃ = VΛVᵀ is decomposed, and U = X̃V replaces Q.
//!
//! Cost: one eigendecomposition; for L values of λ and k targets two products of Q with n × Lk and n × L matrices,
//! O(n²) per λ. Memory: three times n² doubles during the decomposition, n² afterwards.
//!
//! Jitter: if λ plus the smallest eigenvalue is below the rounding error (n·2⁻⁵² times the largest), λ is increased to
//! that level, and the path point reports by how much.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use serde::Serialize;

use super::primal::{BLOCK, ScaledPoints};
use super::{Halt, PathOptions, Side, Source, check_memory};
use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick};
use crate::linalg::eigen::{Eigen, eigen};
use crate::linalg::pages;
use crate::linalg::sweep::dot;

/// Errors and degrees of freedom at one λ. Errors are means over rows, weighted by w, and over targets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathPoint {
    /// λ = 1/C.
    pub lambda: f64,
    /// Mean squared leave-one-out residual.
    pub loo_mse: f64,
    /// Mean squared residual.
    pub train_mse: f64,
    /// The trace of the map from targets to scores: that of K(K + λ)⁻¹, plus 1 for the bias.
    pub degrees_of_freedom: f64,
    /// Amount added to λ to keep the system regular in double precision; almost always 0.
    pub jitter: f64,
    /// Mean squared leave-one-out residual for each target.
    pub loo_by_target: Vec<f64>,
}

/// The coefficients of the model at one λ.
#[derive(Debug, Clone)]
pub struct Coefficients {
    /// β, n × k; 0 where the weight is 0.
    pub beta: Vec<f64>,
    /// b of each target, 0 without a bias.
    pub bias: Vec<f64>,
    /// w, d × k, on the primal side.
    pub weights: Option<Vec<f64>>,
}

/// A decomposed problem, which can be evaluated at any λ in O(n²).
pub struct Spectrum<'a> {
    n: usize,
    k: usize,
    rows: &'a [u32],
    /// √w of the rows used.
    roots: Vec<f64>,
    total: f64,
    basis: Basis<'a>,
    eigen: Eigen,
    /// Qᵀ·Hỹ or Vᵀ·X̃ᵀỹ, one row per eigenvalue.
    projected: Mat<f64>,
    target_mean: Vec<f64>,
}

enum Basis<'a> {
    /// q, K̃q and μ, with a bias.
    Kernel(Option<Border>),
    Primal(ScaledPoints<'a>, bool),
}

struct Border {
    q: Vec<f64>,
    kq: Vec<f64>,
    mu: f64,
}

impl<'a> Spectrum<'a> {
    /// Decomposes K over `rows`, which have these `weights` and `targets` (k per row).
    pub fn new(
        source: Source<'a>,
        rows: &'a [u32],
        weights: &[f64],
        targets: &[f64],
        k: usize,
        options: &PathOptions,
        control: &Control,
    ) -> Result<Self, Halt> {
        let roots: Vec<f64> = weights.iter().map(|w| w.sqrt()).collect();
        let total: f64 = weights.iter().sum();
        let (gram, n): (&dyn Gram, usize) = match source {
            Source::Linear(points, _) if options.side.choose(rows.len(), points.dims()) == Side::Primal => {
                let scaled = ScaledPoints::new(points, rows, weights, targets, k, options.bias);
                let d = points.dims();
                check_memory("the eigendecomposition of the normal equations", 4 * d * d, options.memory)?;
                let (normal, right) = scaled.normal(0.0, options.memory, control)?;
                let eigen = eigen(normal, d, control)?;
                let right = MatRef::from_row_major_slice(&right, d, k);
                let mut projected = Mat::zeros(d, k);
                matmul(projected.as_mut(), Accum::Replace, eigen.vectors.transpose(), right, 1.0, Par::Seq);
                let target_mean = scaled.target_mean.clone();
                let basis = Basis::Primal(scaled, options.bias);
                let n = points.len();
                return Ok(Self { n, k, rows, roots, total, basis, eigen, projected, target_mean });
            }
            Source::Linear(_, gram) | Source::Gram(gram) => (gram, gram.shape().0),
        };
        let m = rows.len();
        check_memory("the eigendecomposition of the Gram matrix", 3 * m * m, options.memory)?;
        let mut a = pages::zeros(m * m);
        gram.block_f64(Pick::List(rows), Pick::List(rows), &mut a, control)?;
        for (i, row) in a.chunks_mut(m.max(1)).enumerate() {
            row.iter_mut().zip(&roots).for_each(|(v, r)| *v *= roots[i] * r);
        }
        let border = (options.bias && total > 0.0).then(|| centre(&mut a, &roots, total));
        control.check()?;
        let eigen = eigen(a, m, control)?;
        let mut target_mean = vec![0.0; k];
        if border.is_some() {
            (0..m * k).for_each(|at| target_mean[at % k] += weights[at / k] / total * targets[at]);
        }
        let scaled: Vec<f64> = (0..m * k).map(|at| roots[at / k] * (targets[at] - target_mean[at % k])).collect();
        let mut projected = Mat::zeros(m, k);
        let right = MatRef::from_row_major_slice(&scaled, m, k);
        matmul(projected.as_mut(), Accum::Replace, eigen.vectors.transpose(), right, 1.0, Par::Seq);
        let basis = Basis::Kernel(border);
        Ok(Self { n, k, rows, roots, total, basis, eigen, projected, target_mean })
    }

    /// Which side was decomposed.
    pub fn side(&self) -> Side {
        match self.basis {
            Basis::Kernel(_) => Side::Kernel,
            Basis::Primal(..) => Side::Primal,
        }
    }

    /// Eigenvalues, ascending: of HK̃H + μqqᵀ, or of X̃ᵀX̃.
    pub fn eigenvalues(&self) -> &[f64] {
        &self.eigen.values
    }

    /// The amount to add to `lambda`.
    fn jitter(&self, lambda: f64) -> f64 {
        let values = &self.eigen.values;
        let (Some(smallest), Some(largest)) = (values.first(), values.last()) else { return 0.0 };
        let rounding = values.len() as f64 * f64::EPSILON * largest.abs().max(smallest.abs());
        (rounding - smallest - lambda).max(0.0)
    }

    /// 1/(Λ + λ), one column per λ, and its product with the projected targets, k columns per λ.
    fn factors(&self, ridges: &[f64]) -> (Mat<f64>, Mat<f64>) {
        let (m, k) = (self.eigen.values.len(), self.k);
        let inverse = Mat::from_fn(m, ridges.len(), |i, l| 1.0 / (self.eigen.values[i] + ridges[l]));
        let products = Mat::from_fn(m, ridges.len() * k, |i, at| inverse[(i, at / k)] * self.projected[(i, at % k)]);
        (inverse, products)
    }

    /// Errors and degrees of freedom at every λ, in the order given.
    pub fn evaluate(&self, lambdas: &[f64], control: &Control) -> Result<Vec<PathPoint>, Interrupt> {
        let (k, count) = (self.k, lambdas.len());
        let jitters: Vec<f64> = lambdas.iter().map(|l| self.jitter(*l)).collect();
        let ridges: Vec<f64> = lambdas.iter().zip(&jitters).map(|(l, j)| l + j).collect();
        let (inverse, products) = self.factors(&ridges);
        let blocks = self.rows.len().div_ceil(BLOCK);
        // Sums over the rows of a block: k leave-one-out sums and one training sum per λ.
        let parts = control.threads.map(blocks, |t| -> Result<Vec<f64>, Interrupt> {
            control.check()?;
            let range = t * BLOCK..((t + 1) * BLOCK).min(self.rows.len());
            let basis = self.basis_rows(range.clone(), t);
            let squares = Mat::from_fn(basis.nrows(), basis.ncols(), |i, j| basis[(i, j)] * basis[(i, j)]);
            let mut fitted = Mat::zeros(range.len(), count * k);
            matmul(fitted.as_mut(), Accum::Replace, basis.as_ref(), products.as_ref(), 1.0, Par::Seq);
            let mut diag = Mat::zeros(range.len(), count);
            matmul(diag.as_mut(), Accum::Replace, squares.as_ref(), inverse.as_ref(), 1.0, Par::Seq);
            let mut sums = vec![0.0; count * (k + 1)];
            for (r, i) in range.enumerate() {
                for l in 0..count {
                    for j in 0..k {
                        let (residual, left_out) =
                            self.residuals(i, j, fitted[(r, l * k + j)], diag[(r, l)], ridges[l]);
                        sums[l * (k + 1) + j] += left_out * left_out;
                        sums[l * (k + 1) + k] += residual * residual;
                    }
                }
            }
            Ok(sums)
        });
        let mut sums = vec![0.0; count * (k + 1)];
        for part in parts {
            sums.iter_mut().zip(part?).for_each(|(s, p)| *s += p);
        }
        Ok((0..count)
            .map(|l| {
                let of = &sums[l * (k + 1)..(l + 1) * (k + 1)];
                let loo_by_target: Vec<f64> = of[..k].iter().map(|s| s / self.total).collect();
                PathPoint {
                    lambda: lambdas[l],
                    loo_mse: loo_by_target.iter().sum::<f64>() / k as f64,
                    train_mse: of[k] / self.total / k as f64,
                    degrees_of_freedom: self.degrees_of_freedom(ridges[l]),
                    jitter: jitters[l],
                    loo_by_target,
                }
            })
            .collect())
    }

    /// Rows of Q, or of U = X̃V.
    fn basis_rows(&self, range: std::ops::Range<usize>, block: usize) -> Mat<f64> {
        match &self.basis {
            Basis::Kernel(_) => self.eigen.vectors.subrows(range.start, range.len()).to_owned(),
            Basis::Primal(scaled, _) => {
                let x = scaled.block(block);
                let d = self.eigen.values.len();
                let mut u = Mat::zeros(range.len(), d);
                let x = MatRef::from_row_major_slice(&x, range.len(), d);
                matmul(u.as_mut(), Accum::Replace, x, self.eigen.vectors.as_ref(), 1.0, Par::Seq);
                u
            }
        }
    }

    /// √w times the residual and the leave-one-out residual of row i and target j.
    fn residuals(&self, i: usize, j: usize, fitted: f64, diag: f64, ridge: f64) -> (f64, f64) {
        match &self.basis {
            Basis::Kernel(border) => {
                let bias_part = border.as_ref().map_or(0.0, |b| b.q[i] * b.q[i] / (b.mu + ridge));
                (ridge * fitted, fitted / (diag - bias_part))
            }
            Basis::Primal(scaled, _) => {
                let residual = scaled.targets[i * self.k + j] - fitted;
                (residual, residual / (1.0 - diag - scaled.bias_leverage[i]).max(f64::EPSILON))
            }
        }
    }

    fn degrees_of_freedom(&self, ridge: f64) -> f64 {
        let all: f64 = self.eigen.values.iter().map(|v| v / (v + ridge)).sum();
        match &self.basis {
            Basis::Kernel(Some(border)) => all - border.mu / (border.mu + ridge) + 1.0,
            Basis::Primal(_, true) => all + 1.0,
            _ => all,
        }
    }

    /// The coefficients of the model at one λ.
    pub fn coefficients(&self, lambda: f64, control: &Control) -> Result<Coefficients, Interrupt> {
        let k = self.k;
        let ridge = lambda + self.jitter(lambda);
        let (_, products) = self.factors(&[ridge]);
        let mut solved = Mat::zeros(self.eigen.vectors.nrows(), k);
        matmul(solved.as_mut(), Accum::Replace, self.eigen.vectors.as_ref(), products.as_ref(), 1.0, Par::Seq);
        control.check()?;
        let mut beta = vec![0.0; self.n * k];
        let mut bias = self.target_mean.clone();
        let weights = match &self.basis {
            Basis::Kernel(border) => {
                for (i, &row) in self.rows.iter().enumerate() {
                    (0..k).for_each(|j| beta[row as usize * k + j] = self.roots[i] * solved[(i, j)]);
                }
                if let Some(border) = border {
                    for (j, b) in bias.iter_mut().enumerate() {
                        let column: Vec<f64> = (0..self.rows.len()).map(|i| solved[(i, j)]).collect();
                        *b -= dot(&border.kq, &column) / self.total.sqrt();
                    }
                }
                None
            }
            Basis::Primal(scaled, _) => {
                let d = solved.nrows();
                for (j, b) in bias.iter_mut().enumerate() {
                    *b -= (0..d).map(|i| scaled.mean[i] * solved[(i, j)]).sum::<f64>();
                }
                for t in 0..scaled.blocks() {
                    control.check()?;
                    let (x, range) = (scaled.block(t), scaled.range(t));
                    let x = MatRef::from_row_major_slice(&x, range.len(), d);
                    let mut fitted = Mat::zeros(range.len(), k);
                    matmul(fitted.as_mut(), Accum::Replace, x, solved.as_ref(), 1.0, Par::Seq);
                    for (r, i) in range.enumerate() {
                        for j in 0..k {
                            let residual = scaled.targets[i * k + j] - fitted[(r, j)];
                            beta[self.rows[i] as usize * k + j] = self.roots[i] * residual / ridge;
                        }
                    }
                }
                Some((0..d * k).map(|at| solved[(at / k, at % k)]).collect())
            }
        };
        Ok(Coefficients { beta, bias, weights })
    }
}

/// Replaces the matrix K̃ in `a` by HK̃H + μqqᵀ.
fn centre(a: &mut [f64], roots: &[f64], total: f64) -> Border {
    let m = roots.len();
    let q: Vec<f64> = roots.iter().map(|r| r / total.sqrt()).collect();
    let kq: Vec<f64> = a.chunks(m).map(|row| dot(row, &q)).collect();
    let qkq = dot(&q, &kq);
    // The largest absolute row sum of K̃ bounds its eigenvalues, hence those of HK̃H, and is the scale of the rounding
    // below. For a zero matrix the eigenvalue of q must still differ from the others.
    let largest = a.chunks(m).map(|row| row.iter().map(|v| v.abs()).sum()).fold(0.0, f64::max);
    let mu = if largest > 0.0 { largest } else { 1.0 };
    for (i, row) in a.chunks_mut(m).enumerate() {
        for j in 0..m {
            row[j] += (qkq + mu) * q[i] * q[j] - q[i] * kq[j] - kq[i] * q[j];
        }
    }
    Border { q, kq, mu }
}
