//! The part of the gap that replacing K by its approximation on centres causes: bounds on ‖g‖², g = f_γ − f_c.
//!
//! f_γ = Σ γᵢk(xᵢ, ·) is the function of the dual point and f_c = Σ cⱼk(sⱼ, ·) its projection on the span of the
//! centres, so that ‖g‖² = γᵀEγ with E = K − K_nS·K_SS⁻¹·K_Sn. With g(sⱼ) = rⱼ (0 but for rounding),
//!
//! ```text
//! ‖g‖² = Σᵢ γᵢ·g(xᵢ) − Σⱼ cⱼ·rⱼ
//! ```
//!
//! The sum over i is either computed, over all pairs of rows with γ ≠ 0, or estimated from rows drawn with probabilities
//! pᵢ ∝ |γᵢ|·sᵢ, sᵢ² ≥ Eᵢᵢ: X = γᵢ·g(xᵢ)/pᵢ has the sum as its mean, and by Cauchy and Schwarz |g(xᵢ)| ≤ sᵢ·‖g‖, hence
//! |X| ≤ A·‖g‖ with A = Σ|γᵢ|sᵢ. Any sᵢ with sᵢ² ≥ Eᵢᵢ serves: E of the first few centres is such a bound and cheap.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::approximate::TailCheck;
use super::rounding::{UNIT, chain};
use super::{Bounded, betting};
use crate::control::{Control, Interrupt};
use crate::gram::{Accuracy, Gram, Pick, Precision};
use crate::linalg::factor::Cholesky;

/// The bound on ‖g‖² is exceeded with at most this probability.
pub const TAIL_PROBABILITY: f64 = 1e-9;

/// Multiply–adds of a computed sum that are always accepted: some seconds.
const EXACT_WORK: f64 = 2.5e11;
/// The same for drawn rows.
const SAMPLE_WORK: f64 = 1.2e11;
/// The same while the estimate is below what is asked for and the bound is not: more rows may then prove it.
const DECISIVE_WORK: f64 = 5e11;
/// What is asked for, as a multiple of what is certainly enough.
const ASKED: f64 = 10.0;
/// Multiply–adds to bound the residual of every row.
const RESIDUAL_WORK: f64 = 6e10;
/// Smallest sᵢ², relative to k(xᵢ, xᵢ): rounding of the residual is below it.
const LEAST_RESIDUAL: f64 = 1e-6;
/// Rows drawn first.
const FIRST_DRAW: usize = 1024;
/// Drawing ends when the bound exceeds the estimate by less than this factor.
const CLOSE: f64 = 1.1;
/// Rows whose residuals are bounded at once.
const SIZED_ROWS: usize = 2048;
/// Rows whose products are computed at once, if there is no square of those with γ ≠ 0.
const GATHERED_ROWS: usize = 8192;

/// What the bounds are computed from.
pub(super) struct Residue<'a> {
    /// K over the rows.
    pub(super) gram: &'a dyn Gram,
    /// K of rows and centres, n × m.
    pub(super) cross: &'a dyn Gram,
    pub(super) accuracy: &'a Accuracy,
    /// sizes of the centres, as in [`Accuracy`].
    pub(super) centre_size: &'a [f64],
    /// γ by row.
    pub(super) gamma: &'a [f64],
    /// c.
    pub(super) projection: &'a [f64],
    /// r.
    pub(super) residual: &'a [f64],
    /// Bound on the rounding error of each rⱼ.
    pub(super) residual_error: &'a [f64],
    /// The factor of K_SS, unless the centres are dependent to working precision: then sᵢ² = k(xᵢ, xᵢ).
    pub(super) factor: Option<&'a Cholesky<f64>>,
    pub(super) control: &'a Control,
}

/// A bound on ‖g‖² and how it was found.
pub(super) struct TailBound {
    pub(super) bound: f64,
    pub(super) check: TailCheck,
    pub(super) rows_drawn: usize,
}

impl Residue<'_> {
    /// A bound on ‖g‖²; `None` if none is wanted.
    pub(super) fn bound(&self, check: TailCheck, seed: u64, enough: f64) -> Result<Option<TailBound>, Interrupt> {
        let check = match check {
            TailCheck::Auto if self.is_affordable() => TailCheck::Exact,
            TailCheck::Auto => TailCheck::Sampled,
            given => given,
        };
        let (bound, rows_drawn) = match check {
            TailCheck::Own => return Ok(None),
            TailCheck::Sampled => self.sampled(seed, enough)?,
            TailCheck::Exact | TailCheck::Auto => {
                let found = self.computed()?;
                (found.value + found.rounding, 0)
            }
        };
        Ok(Some(TailBound { bound, check, rows_drawn }))
    }

    fn support(&self) -> Vec<u32> {
        (0..self.gamma.len() as u32).filter(|&i| self.gamma[i as usize] != 0.0).collect()
    }

    /// Multiply–adds of one row of K over so many columns.
    fn row_work(&self, columns: usize) -> f64 {
        columns as f64 * (self.gram.effort().clamp(1.0, 1e4) + 16.0)
    }

    /// Whether computing the sum takes only seconds.
    fn is_affordable(&self) -> bool {
        let s = self.gamma.iter().filter(|g| **g != 0.0).count();
        s as f64 * self.row_work(s) <= EXACT_WORK
    }

    /// g at the given rows, and bounds on the rounding errors.
    fn values(&self, rows: &[u32]) -> Result<(Vec<f64>, Vec<f64>), Interrupt> {
        let mut g = vec![0.0; rows.len()];
        self.gram.apply(Precision::Double, Pick::List(rows), self.gamma, 1, &mut g, self.control)?;
        self.residuals(rows, g)
    }

    /// The same at all rows with γ ≠ 0.
    fn values_on_support(&self, support: &[u32]) -> Result<(Vec<f64>, Vec<f64>), Interrupt> {
        // A square product needs every pair of rows once only. Rows that are not in memory are gathered a few at a time.
        let Some(square) = self.gram.select(support) else {
            let (mut g, mut errors) = (Vec::with_capacity(support.len()), Vec::with_capacity(support.len()));
            for rows in support.chunks(GATHERED_ROWS) {
                let part = self.values(rows)?;
                g.extend(part.0);
                errors.extend(part.1);
            }
            return Ok((g, errors));
        };
        let gamma: Vec<f64> = support.iter().map(|&i| self.gamma[i as usize]).collect();
        let mut g = vec![0.0; support.len()];
        square.apply(Precision::Double, Pick::All, &gamma, 1, &mut g, self.control)?;
        self.residuals(support, g)
    }

    /// g from f_γ at the given rows, and bounds on the rounding errors.
    fn residuals(&self, rows: &[u32], mut g: Vec<f64>) -> Result<(Vec<f64>, Vec<f64>), Interrupt> {
        let mut explained = vec![0.0; rows.len()];
        self.cross.apply(Precision::Double, Pick::List(rows), self.projection, 1, &mut explained, self.control)?;
        g.iter_mut().zip(&explained).for_each(|(g, e)| *g -= e);
        let size = &self.accuracy.size;
        let reach = |sizes: &[f64], v: &[f64]| sizes.iter().zip(v).map(|(s, v)| s * v.abs()).sum::<f64>();
        let used = self.gamma.iter().filter(|g| **g != 0.0).count();
        let relative = self.accuracy.relative;
        let units = UNIT
            * ((relative + chain(used)) * reach(size, self.gamma)
                + (relative + chain(self.projection.len())) * reach(self.centre_size, self.projection));
        Ok((g, rows.iter().map(|&i| units * size[i as usize]).collect()))
    }

    /// Σ cⱼrⱼ and a bound on its rounding error.
    fn correction(&self) -> Bounded {
        let value = self.projection.iter().zip(self.residual).map(|(c, r)| c * r).sum();
        let rounding = self.projection.iter().zip(self.residual_error).map(|(c, e)| c.abs() * e).sum();
        Bounded { value, rounding }
    }

    /// ‖g‖² from all pairs of rows with γ ≠ 0.
    fn computed(&self) -> Result<Bounded, Interrupt> {
        let support = self.support();
        let (mut total, mut rounding) = (0.0, 0.0);
        let (g, errors) = self.values_on_support(&support)?;
        for ((&i, g), e) in support.iter().zip(&g).zip(&errors) {
            total += self.gamma[i as usize] * g;
            rounding += self.gamma[i as usize].abs() * e;
        }
        let correction = self.correction();
        Ok(Bounded { value: (total - correction.value).max(0.0), rounding: rounding + correction.rounding })
    }

    /// A bound on ‖g‖² that holds with probability 1 − [`TAIL_PROBABILITY`], and the number of rows drawn. `enough`: a
    /// bound below this needs no improvement.
    fn sampled(&self, seed: u64, enough: f64) -> Result<(f64, usize), Interrupt> {
        let support = self.support();
        let correction = self.correction();
        let slack = correction.value.abs() + correction.rounding;
        let (sizes, spread) = self.sizes(&support)?;
        let mut sums = Vec::with_capacity(support.len());
        let mut area = 0.0;
        for (&i, s) in support.iter().zip(&sizes) {
            area += self.gamma[i as usize].abs() * s;
            sums.push(area);
        }
        if area == 0.0 {
            return Ok((slack, 0));
        }
        // What is left of g in the span of the centres, by rounding.
        let within = match self.factor {
            None => 0.0,
            Some(factor) => {
                let mut h = self.residual.to_vec();
                factor.solve(&mut h);
                let size: f64 = h
                    .iter()
                    .zip(self.residual)
                    .zip(self.residual_error)
                    .map(|((h, r), e)| h.abs() * (r.abs() + e))
                    .sum();
                (2.0 * size).sqrt() * spread
            }
        };
        let certain = (area + within * area).powi(2).min(area * area * 4.0) + slack;
        let most = |tau: f64| area * ((tau + slack).sqrt() + within);
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x7461_696c);
        let mut samples: Vec<f64> = Vec::new();
        let rows_for = |work: f64| {
            ((work / self.row_work(support.len())) as usize).clamp(FIRST_DRAW, 4 * support.len().max(FIRST_DRAW))
        };
        // A proof may take as long as two products with all centres, which a training has many of.
        let product = self.gamma.len() as f64 * self.row_work(self.projection.len());
        let (usual, most_rows) = (rows_for(SAMPLE_WORK.max(2.0 * product)), rows_for(DECISIVE_WORK.max(4.0 * product)));
        let mut bound = certain;
        let mut limit = usual;
        while samples.len() < limit {
            let count = samples.len().max(FIRST_DRAW).min(limit - samples.len());
            let mut drawn: Vec<usize> = (0..count)
                .map(|_| {
                    let at = rng.random::<f64>() * area;
                    sums.partition_point(|s| *s <= at).min(sums.len() - 1)
                })
                .collect();
            drawn.sort_unstable();
            let mut places = drawn.clone();
            places.dedup();
            let rows: Vec<u32> = places.iter().map(|&at| support[at]).collect();
            let (g, errors) = self.values(&rows)?;
            let mut at = 0;
            for place in drawn {
                while places[at] != place {
                    at += 1;
                }
                let sign = self.gamma[support[place] as usize].signum();
                samples.push(area * (sign * g[at] + errors[at]) / sizes[place]);
            }
            bound = bound.min(betting::upper_bound(&samples, TAIL_PROBABILITY, certain, most));
            let mean = samples.iter().sum::<f64>() / samples.len() as f64;
            if bound <= CLOSE * mean || bound <= enough {
                break;
            }
            limit = if mean <= ASKED * enough && bound > ASKED * enough { most_rows } else { usual };
        }
        Ok((bound + slack, samples.len()))
    }

    /// sᵢ of the given rows, and max √k(xᵢ, xᵢ)/sᵢ.
    fn sizes(&self, rows: &[u32]) -> Result<(Vec<f64>, f64), Interrupt> {
        let diag = self.gram.diag();
        let mut sizes: Vec<f64> = rows.iter().map(|&i| diag[i as usize]).collect();
        if let Some(factor) = self.factor {
            let m = self.projection.len();
            let few = ((RESIDUAL_WORK / rows.len().max(1) as f64).sqrt() as usize).clamp(1, m);
            let first: Vec<u32> = (0..few as u32).collect();
            let part = factor.leading(few);
            // Rows in order, a few at a time: those that are read in blocks are then read once.
            let mut block = vec![0.0; SIZED_ROWS.min(rows.len()) * few];
            for (rows, sizes) in rows.chunks(SIZED_ROWS).zip(sizes.chunks_mut(SIZED_ROWS)) {
                let block = &mut block[..rows.len() * few];
                self.cross.block_f64(Pick::List(rows), Pick::List(&first), block, self.control)?;
                part.whiten(block, rows.len(), &self.control.threads);
                for (size, row) in sizes.iter_mut().zip(block.chunks(few)) {
                    *size -= row.iter().map(|v| v * v).sum::<f64>();
                }
                self.control.check()?;
            }
        }
        let mut spread = 1.0f64;
        for (s, &i) in sizes.iter_mut().zip(rows) {
            let k = diag[i as usize];
            *s = (s.max(0.0) + LEAST_RESIDUAL * k).sqrt();
            if *s > 0.0 {
                spread = spread.max(k.sqrt() / *s);
            }
        }
        Ok((sizes, spread))
    }
}
