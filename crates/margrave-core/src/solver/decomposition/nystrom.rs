//! A preconditioner for K over a changing set of free variables: M = σI + B·Bᵀ, where B·Bᵀ is the Nyström
//! approximation of K from a few fixed centres.
//!
//! B has a row for every member of the set, computed once; what depends on which members are free is BᵀB alone, a small
//! matrix that is updated as variables are pinned and released. A preconditioner that is left as it was after one
//! variable in 500 was pinned needs five times as many steps: the largest eigenvalues come back.
//!
//! Where K_FF is stiff, the largest eigenvalue of BᵀB may be millions of times σ: rounded to single precision, M⁻¹ is not positive
//! definite and conjugate gradients break down (nearly linear kernels). BᵀB and its factor are in double precision there.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick};
use crate::linalg::factor::{Cholesky, FactorError, Scalar};
use crate::linalg::sweep::{self, ROWS};

/// Rows of B per task; the same for any number of threads, so that sums have the same order.
const ROWS_PER_TASK: usize = 512;
/// Added to the diagonal of K over the centres, relative to its largest entry: centres may be close to each other.
const JITTER: f64 = 1e-3;
/// Least σ, relative to the largest diagonal entry of K.
const LEAST_SHIFT: f64 = 1e-4;

/// The preconditioner, for one member after another as the set grows. `S` is the precision of BᵀB.
pub(super) struct Nystrom<S: Scalar> {
    /// Rows of K.
    centres: Vec<u32>,
    /// Factor of K over the centres.
    factor: Cholesky<f32>,
    /// K(member, centres)·L⁻ᵀ, a row per member.
    b: Vec<f32>,
    /// What K's diagonal has beyond that of B·Bᵀ, per member.
    rest: Vec<f64>,
    /// Which members are in `products`.
    within: Vec<bool>,
    /// BᵀB over them.
    products: Vec<S>,
    /// Factor of σI + BᵀB.
    inner: Option<Cholesky<S>>,
    sigma: f64,
    least_sigma: f64,
}

/// A preconditioner in either precision.
pub(super) trait Preconditioner: Send + Sync {
    /// Appends members: rows of K, with the diagonal of K at each.
    fn grow(&mut self, gram: &dyn Gram, rows: &[u32], diag: &[f64], control: &Control) -> Result<(), Interrupt>;
    /// Keeps the members at the listed places (ascending).
    fn keep(&mut self, at: &[usize]);
    /// Makes M that of the free members, with `shift` on K's diagonal, a mean of all.
    fn fit(&mut self, free: &[bool], shift: f64, control: &Control) -> Result<(), FactorError>;
    /// x = M⁻¹x; members that are not free become zero. By Woodbury's identity `(x − B(σI + BᵀB)⁻¹Bᵀx)/σ`.
    fn apply(&self, x: &mut [f64], free: &[bool], control: &Control);
}

impl<S: Scalar> Nystrom<S> {
    /// With the given centres, rows of K.
    pub(super) fn new(
        gram: &dyn Gram,
        centres: Vec<u32>,
        largest: f64,
        control: &Control,
    ) -> Result<Self, FactorError> {
        let rank = centres.len();
        let mut k = vec![0f32; rank * rank];
        gram.block_f32(Pick::List(&centres), Pick::List(&centres), &mut k, control)?;
        (0..rank).for_each(|i| k[i * rank + i] += (JITTER * largest) as f32);
        control.spend(rank * rank * rank / 3);
        let factor = Cholesky::new(k, rank, rank, control)?;
        Ok(Self {
            centres,
            factor,
            b: Vec::new(),
            rest: Vec::new(),
            within: Vec::new(),
            products: vec![S::default(); rank * rank],
            inner: None,
            sigma: 1.0,
            least_sigma: LEAST_SHIFT * largest,
        })
    }

    fn rank(&self) -> usize {
        self.centres.len()
    }

    /// products += sign·Σ b·bᵀ over the members at these places.
    fn add(&mut self, places: &[usize], sign: f64, control: &Control) {
        let rank = self.rank();
        if places.is_empty() {
            return;
        }
        control.spend(places.len() * rank * rank);
        let parts: Vec<&[usize]> = places.chunks(ROWS_PER_TASK).collect();
        let sums = control.threads.map(parts.len(), |t| {
            let mut rows: Vec<S> = Vec::with_capacity(parts[t].len() * rank);
            parts[t]
                .iter()
                .for_each(|&p| rows.extend(self.b[p * rank..(p + 1) * rank].iter().map(|b| S::of(f64::from(*b)))));
            let rows = MatRef::from_column_major_slice(&rows, rank, parts[t].len());
            let mut sum = vec![S::default(); rank * rank];
            let to = MatMut::from_column_major_slice_mut(&mut sum, rank, rank);
            matmul(to, Accum::Replace, rows, rows.transpose(), S::of(1.0), Par::Seq);
            sum
        });
        const SHARE: usize = 1 << 13;
        control.threads.chunks(&mut self.products, SHARE, |t, totals| {
            for sum in &sums {
                let sum = &sum[t * SHARE..t * SHARE + totals.len()];
                totals.iter_mut().zip(sum).for_each(|(total, sum)| *total = S::of(total.wide() + sign * sum.wide()));
            }
        });
    }
}

impl<S: Scalar> Preconditioner for Nystrom<S> {
    fn grow(&mut self, gram: &dyn Gram, rows: &[u32], diag: &[f64], control: &Control) -> Result<(), Interrupt> {
        let (rank, old) = (self.rank(), self.rest.len());
        self.b.resize((old + rows.len()) * rank, 0.0);
        let part = &mut self.b[old * rank..];
        gram.block_f32(Pick::List(rows), Pick::List(&self.centres), part, control)?;
        control.spend(rows.len() * rank * rank / 2);
        self.factor.whiten(part, rows.len(), &control.threads);
        let part = &*part;
        self.rest.resize(old + rows.len(), 0.0);
        control.threads.chunks(&mut self.rest[old..], ROWS_PER_TASK, |t, rest| {
            for (k, rest) in rest.iter_mut().enumerate() {
                let k = t * ROWS_PER_TASK + k;
                let explained: f64 = part[k * rank..(k + 1) * rank].iter().map(|v| f64::from(*v).powi(2)).sum();
                *rest = (diag[k] - explained).max(0.0);
            }
        });
        self.within.resize(self.rest.len(), false);
        Ok(())
    }

    fn keep(&mut self, at: &[usize]) {
        let rank = self.rank();
        for (i, &p) in at.iter().enumerate() {
            self.b.copy_within(p * rank..(p + 1) * rank, i * rank);
            self.rest[i] = self.rest[p];
        }
        self.b.truncate(at.len() * rank);
        self.rest.truncate(at.len());
        self.within = vec![false; at.len()];
        self.products.fill(S::default());
    }

    fn fit(&mut self, free: &[bool], shift: f64, control: &Control) -> Result<(), FactorError> {
        let rank = self.rank();
        let places = |wanted: bool| -> Vec<usize> {
            (0..free.len()).filter(|&p| free[p] == wanted && self.within[p] != wanted).collect()
        };
        let (more, less) = (places(true), places(false));
        let count = free.iter().filter(|free| **free).count();
        if more.len() + less.len() > count {
            self.products.fill(S::default());
            let all: Vec<usize> = (0..free.len()).filter(|&p| free[p]).collect();
            self.add(&all, 1.0, control);
        } else {
            self.add(&more, 1.0, control);
            self.add(&less, -1.0, control);
        }
        self.within.copy_from_slice(free);
        let rest: f64 = self.rest.iter().zip(free).map(|(rest, free)| if *free { *rest } else { 0.0 }).sum();
        self.sigma = (rest / count.max(1) as f64 + shift).max(self.least_sigma);
        let (mut a, sigma) = (self.products.clone(), S::of(self.sigma));
        (0..rank).for_each(|i| a[i * rank + i] = S::of(a[i * rank + i].wide() + sigma.wide()));
        control.spend(rank * rank * rank / 3);
        self.inner = Some(Cholesky::new(a, rank, rank, control)?);
        Ok(())
    }

    fn apply(&self, x: &mut [f64], free: &[bool], control: &Control) {
        let Some(inner) = &self.inner else { return };
        let rank = self.rank();
        control.spend(2 * x.len() * rank);
        x.iter_mut().zip(free).filter(|(_, free)| !**free).for_each(|(x, _)| *x = 0.0);
        let y = &*x;
        let sums = control.threads.map(x.len().div_ceil(ROWS_PER_TASK), |t| {
            let mut sum = vec![0f64; rank];
            let places = t * ROWS_PER_TASK..((t + 1) * ROWS_PER_TASK).min(y.len());
            let row = |p: usize| &self.b[p * rank..(p + 1) * rank];
            let (fours, rest) = y[places.clone()].as_chunks::<ROWS>();
            for (q, y) in fours.iter().enumerate() {
                sweep::add_rows(&mut sum, std::array::from_fn(|r| row(places.start + ROWS * q + r)), *y);
            }
            for (p, y) in (places.end - rest.len()..).zip(rest) {
                sweep::add_row(&mut sum, row(p), *y);
            }
            sum
        });
        let mut s = vec![0f64; rank];
        sums.iter().for_each(|sum| sum.iter().zip(&mut s).for_each(|(sum, s)| *s += sum));
        inner.solve(&mut s);
        let scale = 1.0 / self.sigma;
        control.threads.chunks(x, ROWS_PER_TASK, |t, part| {
            let row = |k: usize| &self.b[(t * ROWS_PER_TASK + k) * rank..][..rank];
            let free = |k: usize| free[t * ROWS_PER_TASK + k];
            let (pairs, rest) = part.as_chunks_mut::<2>();
            let whole = 2 * pairs.len();
            for (q, pair) in pairs.iter_mut().enumerate() {
                let dots = sweep::two_dots([row(2 * q), row(2 * q + 1)], &s);
                for (r, x) in pair.iter_mut().enumerate().filter(|(r, _)| free(2 * q + r)) {
                    *x = (*x - dots[r]) * scale;
                }
            }
            for (k, x) in (whole..).zip(rest).filter(|(k, _)| free(*k)) {
                *x = (*x - sweep::dot(row(k), &s)) * scale;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::kernel::Kernel;

    /// How far M·(M⁻¹x) is from x, relative to x, with M from B and σ.
    fn error<S: Scalar>(nystrom: &Nystrom<S>, x: &[f64], free: &[bool], control: &Control) -> f64 {
        let (rank, mut z) = (nystrom.rank(), x.to_vec());
        nystrom.apply(&mut z, free, control);
        let rows: Vec<&[f32]> = nystrom.b.chunks(rank).collect();
        let mut products = vec![0.0; rank];
        for (row, z) in rows.iter().zip(&z) {
            products.iter_mut().zip(*row).for_each(|(p, b)| *p += f64::from(*b) * z);
        }
        let back = |i: usize| {
            nystrom.sigma * z[i] + rows[i].iter().zip(&products).map(|(b, p)| f64::from(*b) * p).sum::<f64>()
        };
        let off: f64 = (0..x.len()).filter(|&i| free[i]).map(|i| (back(i) - x[i]).powi(2)).sum();
        let size: f64 = (0..x.len()).filter(|&i| free[i]).map(|i| x[i].powi(2)).sum();
        (off / size).sqrt()
    }

    /// A kernel that is nearly constant: the largest eigenvalue is about 10⁷ times σ.
    #[test]
    fn in_double_precision_the_inverse_is_one_for_nearly_constant_kernels() {
        let (n, d) = (1300, 4);
        let values: Vec<f64> =
            (0..n * d).map(|k| ((k * k % 8191) as f64 / 8191.0 + k as f64 * 0.618).fract()).collect();
        let gram = CpuGram::square(Kernel::rbf(1e-3), &Points::dense_f64(n, d, values).unwrap()).unwrap();
        let control = Control::unlimited(Threads::new(2));
        let all: Vec<u32> = (0..n as u32).collect();
        let x: Vec<f64> = (0..n).map(|k| (k as f64 * 1.7).sin()).collect();
        let mut nystrom = Nystrom::<f64>::new(&gram, all[..256].to_vec(), 1.0, &control).unwrap();
        nystrom.grow(&gram, &all, &vec![1.0; n], &control).unwrap();
        for every in [n, 7, 3] {
            let free: Vec<bool> = (0..n).map(|i| i % every != 1).collect();
            nystrom.fit(&free, 0.0, &control).unwrap();
            let off = error(&nystrom, &x, &free, &control);
            assert!(off < 1e-5, "every {every}: {off:e}, σ = {:e}", nystrom.sigma);
        }
    }
}
