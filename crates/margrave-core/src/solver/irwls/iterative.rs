//! Systems that are not factored: solved on the primal side, or by conjugate gradients on products with K.
//!
//! **Primal**: K = XXᵀ, so (R + XXᵀ)⁻¹ = R⁻¹ − R⁻¹X(I + XᵀR⁻¹X)⁻¹XᵀR⁻¹.
//!
//! **Conjugate gradients** are preconditioned by ZZᵀ + R. The rows of Z are m Nyström features of every sample, whose
//! inner products are those of K projected on m samples; ZZᵀ + R is inverted like the primal system. Memory: n·m
//! single-precision entries.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::system::SystemSolver;
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::gram::{Gram, Pick, Precision};
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::{pages, sweep};

/// Most conjugate-gradient steps.
const MAX_STEPS: usize = 400;
/// Most features of the Nyström preconditioner.
const MAX_FEATURES: usize = 1200;
/// Rows of Z per block.
const BLOCK_ROWS: usize = 1024;

/// Z: features whose inner products approximate K.
pub(super) struct Nystrom {
    m: usize,
    z: Vec<f32>,
}

impl SystemSolver<'_> {
    /// (K_FF + R)·x for several x. `rows`: F as rows of `gram`; `None`: `gram` is K_FF itself.
    pub(super) fn apply_system(
        &self,
        precision: Precision,
        gram: &dyn Gram,
        rows: Option<&[u32]>,
        free: &[u32],
        ridge: &[f64],
        x: &[Vec<f64>],
        control: &Control,
    ) -> Result<Vec<Vec<f64>>, Interrupt> {
        let k = x.len();
        let product = match rows {
            None => {
                let mut v = vec![0.0; free.len() * k];
                (0..free.len()).for_each(|a| (0..k).for_each(|j| v[a * k + j] = x[j][a]));
                let mut out = vec![0.0; free.len() * k];
                gram.apply(precision, Pick::All, &v, k, &mut out, control)?;
                out
            }
            Some(rows) => {
                let mut v = vec![0.0; self.n * k];
                for (a, &i) in free.iter().enumerate() {
                    (0..k).for_each(|j| v[i as usize * k + j] = x[j][a]);
                }
                let pick = if rows.len() == self.n { Pick::All } else { Pick::List(rows) };
                self.product_rows(precision, pick, &v, k, control)?
            }
        };
        Ok((0..k).map(|j| (0..free.len()).map(|a| product[a * k + j] + ridge[a] * x[j][a]).collect()).collect())
    }

    pub(super) fn solve_iteratively(
        &mut self,
        free: &[u32],
        ridge: &[f64],
        right: &[Vec<f64>],
        accuracy: f64,
        control: &Control,
    ) -> Result<Vec<Vec<f64>>, FactorError> {
        if self.nystrom.is_none() {
            let bytes = self.memory / 3;
            let m = (bytes / (4 * self.n.max(1) as u64)).min(MAX_FEATURES as u64).min(self.n as u64 / 4) as usize;
            self.nystrom = Some(Nystrom::new(self.gram, m, control)?);
        }
        let Some(nystrom) = &self.nystrom else { return Err(FactorError::NotPositive(0)) };
        let inverse = Woodbury::new(nystrom.m, free.len(), ridge, |a, row| nystrom.feature(free[a], row), control)?;
        let selected = if free.len() * 10 < self.n * 9 { self.gram.select(free) } else { None };
        let apply = |x: &[Vec<f64>]| match &selected {
            Some(gram) => self.apply_system(Precision::Single, gram.as_ref(), None, free, ridge, x, control),
            None => self.apply_system(Precision::Single, self.gram, Some(free), free, ridge, x, control),
        };
        let precondition = |r: &[f64]| inverse.solve(r, |a, row| nystrom.feature(free[a], row), control);
        let (x, _) = conjugate_gradients(right, accuracy.max(1e-7), MAX_STEPS, apply, precondition, control)?;
        Ok(x)
    }
}

/// Preconditioned conjugate gradients for several right-hand sides at once, so that they share passes over K. Ends when
/// every residual is at most `accuracy` times its right-hand side; false if that takes more than `max_steps` steps.
pub(super) fn conjugate_gradients(
    right: &[Vec<f64>],
    accuracy: f64,
    max_steps: usize,
    apply: impl Fn(&[Vec<f64>]) -> Result<Vec<Vec<f64>>, Interrupt>,
    precondition: impl Fn(&[f64]) -> Result<Vec<f64>, Interrupt>,
    control: &Control,
) -> Result<(Vec<Vec<f64>>, bool), Interrupt> {
    let k = right.len();
    let norm = |v: &[f64]| sweep::dot(v, v).sqrt();
    let goal: Vec<f64> = right.iter().map(|r| accuracy * norm(r)).collect();
    let mut x: Vec<Vec<f64>> = right.iter().map(|r| vec![0.0; r.len()]).collect();
    let mut residual = right.to_vec();
    let mut direction: Vec<Vec<f64>> = Vec::with_capacity(k);
    for r in &residual {
        direction.push(precondition(r)?);
    }
    let mut rz: Vec<f64> = (0..k).map(|j| sweep::dot(&residual[j], &direction[j])).collect();
    let mut open: Vec<usize> = (0..k).filter(|&j| norm(&residual[j]) > goal[j]).collect();
    for _ in 0..max_steps {
        if open.is_empty() {
            return Ok((x, true));
        }
        control.check()?;
        let open_directions: Vec<Vec<f64>> = open.iter().map(|&j| direction[j].clone()).collect();
        let products = apply(&open_directions)?;
        let mut still_open = Vec::with_capacity(open.len());
        for (&j, product) in open.iter().zip(&products) {
            let curvature = sweep::dot(&direction[j], product);
            if !(curvature > 0.0 && rz[j] > 0.0) {
                continue;
            }
            let t = rz[j] / curvature;
            sweep::add_row(&mut x[j], &direction[j], t);
            sweep::add_row(&mut residual[j], product, -t);
            if norm(&residual[j]) <= goal[j] {
                continue;
            }
            let z = precondition(&residual[j])?;
            let next = sweep::dot(&residual[j], &z);
            let ratio = next / rz[j];
            rz[j] = next;
            direction[j].iter_mut().zip(&z).for_each(|(d, z)| *d = z + ratio * *d);
            still_open.push(j);
        }
        open = still_open;
    }
    Ok((x, open.is_empty()))
}

/// (ZZᵀ + R)⁻¹ for features Z given row by row: R⁻¹ − R⁻¹Z(I + ZᵀR⁻¹Z)⁻¹ZᵀR⁻¹.
struct Woodbury {
    m: usize,
    inverse_ridge: Vec<f64>,
    factor: Cholesky<f64>,
}

impl Woodbury {
    fn new(
        m: usize,
        rows: usize,
        ridge: &[f64],
        feature: impl Fn(usize, &mut [f64]) + Sync,
        control: &Control,
    ) -> Result<Self, FactorError> {
        let inverse_ridge: Vec<f64> = ridge.iter().map(|r| 1.0 / r).collect();
        // A fixed number of partial sums, so that the result does not depend on the number of threads.
        control.spend(rows * m * m / 4);
        let blocks = rows.div_ceil(BLOCK_ROWS);
        let groups = blocks.clamp(1, 4);
        let blocks_per_group = blocks.div_ceil(groups);
        let parts = control.threads.map(groups, |g| -> Result<Vec<f64>, Interrupt> {
            let mut sum = vec![0.0; m * m];
            let mut scaled = vec![0.0; BLOCK_ROWS * m];
            for t in g * blocks_per_group..((g + 1) * blocks_per_group).min(blocks) {
                control.check()?;
                let range = t * BLOCK_ROWS..((t + 1) * BLOCK_ROWS).min(rows);
                let height = range.len();
                for (r, a) in range.enumerate() {
                    let row = &mut scaled[r * m..(r + 1) * m];
                    feature(a, row);
                    let root = inverse_ridge[a].sqrt();
                    row.iter_mut().for_each(|v| *v *= root);
                }
                let block = MatRef::from_row_major_slice(&scaled[..height * m], height, m);
                let out = MatMut::from_row_major_slice_mut(&mut sum, m, m);
                matmul(out, Accum::Add, block.transpose(), block, 1.0, Par::Seq);
            }
            Ok(sum)
        });
        let mut total = vec![0.0; m * m];
        for part in parts {
            total.iter_mut().zip(part?).for_each(|(t, p)| *t += p);
        }
        (0..m).for_each(|i| total[i * m + i] += 1.0);
        Ok(Self { m, inverse_ridge, factor: Cholesky::new(total, m, m, control)? })
    }

    fn solve(
        &self,
        v: &[f64],
        feature: impl Fn(usize, &mut [f64]) + Sync,
        control: &Control,
    ) -> Result<Vec<f64>, Interrupt> {
        let (m, rows) = (self.m, v.len());
        control.spend(2 * m * (rows + m));
        let blocks = rows.div_ceil(BLOCK_ROWS);
        let parts = control.threads.map(blocks, |t| {
            let (mut sum, mut row) = (vec![0.0; m], vec![0.0; m]);
            for a in t * BLOCK_ROWS..((t + 1) * BLOCK_ROWS).min(rows) {
                feature(a, &mut row);
                sweep::add_row(&mut sum, &row, self.inverse_ridge[a] * v[a]);
            }
            sum
        });
        control.check()?;
        let mut inner = vec![0.0; m];
        for part in parts {
            inner.iter_mut().zip(part).for_each(|(t, p)| *t += p);
        }
        self.factor.solve(&mut inner);
        let mut out = vec![0.0; rows];
        control.threads.chunks(&mut out, BLOCK_ROWS, |t, part| {
            let mut row = vec![0.0; m];
            for (r, value) in part.iter_mut().enumerate() {
                let a = t * BLOCK_ROWS + r;
                feature(a, &mut row);
                *value = self.inverse_ridge[a] * (v[a] - sweep::dot(&row, &inner));
            }
        });
        control.check()?;
        Ok(out)
    }
}

/// Solves the system of the linear kernel on the primal side.
pub(super) fn primal(
    points: &Points,
    free: &[u32],
    ridge: &[f64],
    right: &[Vec<f64>],
    control: &Control,
) -> Result<Vec<Vec<f64>>, FactorError> {
    let feature = |a: usize, row: &mut [f64]| points.copy_row(free[a] as usize, row);
    let inverse = Woodbury::new(points.dims(), free.len(), ridge, feature, control)?;
    let mut out = Vec::with_capacity(right.len());
    for r in right {
        out.push(inverse.solve(r, feature, control)?);
    }
    Ok(out)
}

impl Nystrom {
    /// Features from `m` samples spread over the data: Z = K_nm·L⁻ᵀ with K_mm = LLᵀ.
    fn new(gram: &dyn Gram, m: usize, control: &Control) -> Result<Self, FactorError> {
        let n = gram.shape().0;
        // A stride coprime to n visits all residues, so the samples are spread, distinct, and the same in every run.
        let mut stride = (n as f64 * 0.618_034) as usize | 1;
        while m > 0 && gcd(stride, n) != 1 {
            stride += 2;
        }
        let mut chosen: Vec<u32> = (0..m).map(|k| (k * stride % n.max(1)) as u32).collect();
        chosen.sort_unstable();
        let mut jitter = 1e-10;
        let factor = loop {
            let mut kmm = vec![0.0; m * m];
            gram.block_f64(Pick::List(&chosen), Pick::List(&chosen), &mut kmm, control)?;
            let scale = (0..m).map(|i| kmm[i * m + i]).fold(0.0, f64::max);
            (0..m).for_each(|i| kmm[i * m + i] += jitter * scale);
            match Cholesky::new(kmm, m, m, control) {
                Ok(factor) => break factor,
                Err(FactorError::NotPositive(_)) if jitter < 1.0 => jitter *= 100.0,
                Err(why) => return Err(why),
            }
        };
        let mut z: Vec<f32> = pages::zeros(n * m);
        let mut block = vec![0.0; BLOCK_ROWS * m];
        for from in (0..n).step_by(BLOCK_ROWS) {
            let to = (from + BLOCK_ROWS).min(n);
            let part = &mut block[..(to - from) * m];
            gram.block_f64(Pick::Range(from, to), Pick::List(&chosen), part, control)?;
            control.spend((to - from) * m * m / 4);
            factor.whiten(part, to - from, &control.threads);
            z[from * m..to * m].iter_mut().zip(part.iter()).for_each(|(z, v)| *z = *v as f32);
        }
        Ok(Self { m, z })
    }

    fn feature(&self, i: u32, row: &mut [f64]) {
        let at = i as usize * self.m;
        row.iter_mut().zip(&self.z[at..at + self.m]).for_each(|(r, z)| *r = f64::from(*z));
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
