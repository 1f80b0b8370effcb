//! A preconditioner for K over a changing set of free variables: M = σI + B·Bᵀ, where B·Bᵀ is the Nyström
//! approximation of K from a few fixed centres.
//!
//! B has a row for every member of the set, computed once; what depends on which members are free is BᵀB alone, a small
//! matrix that is updated as variables are pinned and released. A preconditioner that is left as it was after one
//! variable in 500 was pinned needs five times as many steps: the largest eigenvalues come back.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick};
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::sweep::{self, ROWS};

/// Rows of B per task; the same for any number of threads, so that sums have the same order.
const ROWS_PER_TASK: usize = 512;
/// Added to the diagonal of K over the centres, relative to its largest entry: centres may be close to each other.
const JITTER: f64 = 1e-3;
/// Least σ, relative to the largest diagonal entry of K.
const LEAST_SHIFT: f64 = 1e-4;

/// The preconditioner, for one member after another as the set grows.
pub(super) struct Nystrom {
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
    products: Vec<f32>,
    /// Factor of σI + BᵀB.
    inner: Option<Cholesky<f32>>,
    sigma: f64,
    least_sigma: f64,
}

impl Nystrom {
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
            products: vec![0.0; rank * rank],
            inner: None,
            sigma: 1.0,
            least_sigma: LEAST_SHIFT * largest,
        })
    }

    fn rank(&self) -> usize {
        self.centres.len()
    }

    /// Appends members: rows of K, with the diagonal of K at each.
    pub(super) fn grow(
        &mut self,
        gram: &dyn Gram,
        rows: &[u32],
        diag: impl Fn(usize) -> f64 + Sync,
        control: &Control,
    ) -> Result<(), Interrupt> {
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
                *rest = (diag(k) - explained).max(0.0);
            }
        });
        self.within.resize(self.rest.len(), false);
        Ok(())
    }

    /// Keeps the members at the listed places (ascending).
    pub(super) fn keep(&mut self, at: &[usize]) {
        let rank = self.rank();
        for (i, &p) in at.iter().enumerate() {
            self.b.copy_within(p * rank..(p + 1) * rank, i * rank);
            self.rest[i] = self.rest[p];
        }
        self.b.truncate(at.len() * rank);
        self.rest.truncate(at.len());
        self.within = vec![false; at.len()];
        self.products.fill(0.0);
    }

    /// Makes M that of the free members, with `shift` on K's diagonal, a mean of all.
    pub(super) fn fit(&mut self, free: &[bool], shift: f64, control: &Control) -> Result<(), FactorError> {
        let rank = self.rank();
        let places = |wanted: bool| -> Vec<usize> {
            (0..free.len()).filter(|&p| free[p] == wanted && self.within[p] != wanted).collect()
        };
        let (more, less) = (places(true), places(false));
        let count = free.iter().filter(|free| **free).count();
        if more.len() + less.len() > count {
            self.products.fill(0.0);
            let all: Vec<usize> = (0..free.len()).filter(|&p| free[p]).collect();
            self.add(&all, 1.0, control);
        } else {
            self.add(&more, 1.0, control);
            self.add(&less, -1.0, control);
        }
        self.within.copy_from_slice(free);
        let rest: f64 = self.rest.iter().zip(free).map(|(rest, free)| if *free { *rest } else { 0.0 }).sum();
        self.sigma = (rest / count.max(1) as f64 + shift).max(self.least_sigma);
        let mut a = self.products.clone();
        (0..rank).for_each(|i| a[i * rank + i] += self.sigma as f32);
        control.spend(rank * rank * rank / 3);
        self.inner = Some(Cholesky::new(a, rank, rank, control)?);
        Ok(())
    }

    /// products += sign·Σ b·bᵀ over the members at these places.
    fn add(&mut self, places: &[usize], sign: f32, control: &Control) {
        let rank = self.rank();
        if places.is_empty() {
            return;
        }
        control.spend(places.len() * rank * rank);
        let parts: Vec<&[usize]> = places.chunks(ROWS_PER_TASK).collect();
        let sums = control.threads.map(parts.len(), |t| {
            let mut rows = Vec::with_capacity(parts[t].len() * rank);
            parts[t].iter().for_each(|&p| rows.extend_from_slice(&self.b[p * rank..(p + 1) * rank]));
            let rows = MatRef::from_column_major_slice(&rows, rank, parts[t].len());
            let mut sum = vec![0f32; rank * rank];
            let to = MatMut::from_column_major_slice_mut(&mut sum, rank, rank);
            matmul(to, Accum::Replace, rows, rows.transpose(), 1.0, Par::Seq);
            sum
        });
        const SHARE: usize = 1 << 13;
        control.threads.chunks(&mut self.products, SHARE, |t, totals| {
            for sum in &sums {
                let sum = &sum[t * SHARE..t * SHARE + totals.len()];
                totals.iter_mut().zip(sum).for_each(|(total, sum)| *total += sign * sum);
            }
        });
    }

    /// x = M⁻¹x; members that are not free become zero. By Woodbury's identity `(x − B(σI + BᵀB)⁻¹Bᵀx)/σ`.
    pub(super) fn apply(&self, x: &mut [f64], free: &[bool], control: &Control) {
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
