//! Newton systems that are solved by conjugate gradients, and factors of systems.
//!
//! ```text
//! (I + XᵀAX − hhᵀ/bottom)·Δw = r,   h = XᵀA1
//! ```
//!
//! over the rows with curvature. The preconditioner is the diagonal, or the factor of the system of some of the rows, which is
//! kept as long as it serves. Where the rows are x = L⁻¹k (features on few centres, `RowsBehind`), all of this is done with the rows
//! k and G = L·Lᵀ in place of I, for Δa = L⁻ᵀΔw: the same steps, without L in each of them and in the factor.

use super::newton::NewtonDirection;
use super::state::{LinearState, dot};
use crate::control::{Control, Interrupt, Status, Threads};
use crate::gram::{DeviceFactor, Matrix, Pick, RowsBehind};
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::sweep;

/// Conjugate gradient steps above which the preconditioner of the next Newton step is computed anew.
const MAX_REUSED_STEPS: usize = 14;
/// Most conjugate gradient steps.
const MAX_STEPS: usize = 300;
/// Squared reduction of the residual, in the norm of the preconditioner.
const REDUCTION: f64 = 1e-4;
/// The same where the preconditioner is a factor of the system of many rows: a few steps more of Newton's method, whose sets are wrong
/// anyway at first, cost less than directions that are solved for more accurately.
const ROUGH_REDUCTION: f64 = 0.1;
/// Rows of a matrix per task.
const TASK_ROWS: usize = 64;

/// The system of a sample of the rows, and the total weight it stands for.
pub(super) struct Preconditioner {
    factor: SystemFactor,
    total: f64,
}

/// A factor of the system.
enum SystemFactor {
    /// In the memory of the processor.
    Here(ScaledFactor),
    /// Where the rows are computed.
    There(Box<dyn DeviceFactor>),
}

impl SystemFactor {
    fn solve(&self, right: &[f64], threads: &Threads) -> Vec<f64> {
        match self {
            SystemFactor::Here(factor) => factor.solve(right, threads),
            SystemFactor::There(factor) => {
                let mut sides = [right.to_vec()];
                // Without its device the factor is lost: the right-hand side itself is the worst of preconditioners, but one.
                if factor.solve(&mut sides) { std::mem::take(&mut sides[0]) } else { right.to_vec() }
            }
        }
    }
}

/// A factor of a matrix whose diagonal was scaled to 1.
pub(super) struct ScaledFactor {
    factor: Cholesky<f64>,
    roots: Vec<f64>,
}

impl ScaledFactor {
    pub(super) fn solve(&self, right: &[f64], threads: &Threads) -> Vec<f64> {
        let mut s: Vec<f64> = right.iter().zip(&self.roots).map(|(r, root)| r * root).collect();
        self.factor.solve_on(&mut s, threads);
        s.iter_mut().zip(&self.roots).for_each(|(s, root)| *s *= root);
        s
    }
}

/// The rows with curvature and their weights, as they enter the system.
struct CurvedRows<'a> {
    x: &'a dyn Matrix,
    /// The rows behind them, and G.
    behind: Option<(&'a dyn RowsBehind, &'a [f32])>,
    rows: Pick<'a>,
    weights: &'a [f64],
    control: &'a Control,
}

impl CurvedRows<'_> {
    /// h.
    fn sum(&self, out: &mut [f64]) -> Result<(), Interrupt> {
        match self.behind {
            Some((behind, _)) => behind.combine(self.rows, self.weights, out, self.control),
            None => self.x.combine(self.rows, self.weights, out, self.control),
        }
    }

    /// `out` = the system times v; `dots` are the scores of v at the rows, and `mean` is hᵀv/bottom.
    fn multiply(&self, v: &[f64], mean: f64, dots: &mut [f64], out: &mut [f64]) -> Result<(), Interrupt> {
        match self.behind {
            Some((behind, gram)) => {
                let d = v.len();
                self.control.threads.chunks(out, TASK_ROWS, |task, part| {
                    for (row, to) in gram[task * TASK_ROWS * d..].chunks(d).zip(part) {
                        *to = sweep::dot(row, v);
                    }
                });
                behind.curvature_product(self.rows, self.weights, v, mean, dots, out, self.control)
            }
            None => {
                out.copy_from_slice(v);
                self.x.curvature_product(self.rows, self.weights, v, mean, dots, out, self.control)
            }
        }
    }
}

impl LinearState<'_, '_> {
    /// By conjugate gradients, preconditioned by the diagonal.
    pub(super) fn diagonal_direction(
        &self,
        curved: &[u32],
        weights: &[f64],
        gradient: &[f64],
    ) -> Result<NewtonDirection, Status> {
        let mut diagonal = vec![1.0; gradient.len()];
        self.x.squares(Pick::List(curved), weights, &mut diagonal, self.control)?;
        let precondition = |r: &[f64]| r.iter().zip(&diagonal).map(|(r, d)| r / d).collect();
        let curved = CurvedRows { x: self.x, behind: None, rows: Pick::List(curved), weights, control: self.control };
        Ok(self.iterated_direction(&curved, gradient, REDUCTION, precondition)?.0)
    }

    /// By conjugate gradients, preconditioned by the system of at most `most` of the rows, evenly spaced.
    pub(super) fn sampled_direction(
        &mut self,
        curved: &[u32],
        weights: &[f64],
        gradient: &[f64],
        most: usize,
    ) -> Result<NewtonDirection, Status> {
        let d = gradient.len();
        let total = weights.iter().sum::<f64>();
        let (_, bottom) = self.bias_derivatives(total);
        let behind = match self.x.behind() {
            Some(behind) => Some((behind, behind.gram(self.control)?)),
            None => None,
        };
        // Conjugate gradients make up for a system that has changed a little.
        let kept = self.precondition.take().filter(|kept| (0.5..2.0).contains(&(total / kept.total)));
        let rows = CurvedRows { x: self.x, behind, rows: Pick::List(curved), weights, control: self.control };
        let kept = match kept {
            Some(kept) => kept,
            None => Preconditioner { factor: self.sampled_factor(&rows, curved, total, bottom, most, d)?, total },
        };
        let precondition = |r: &[f64]| kept.factor.solve(r, &self.control.threads);
        let (direction, steps) = self.iterated_direction(&rows, gradient, ROUGH_REDUCTION, precondition)?;
        if steps <= MAX_REUSED_STEPS {
            self.precondition = Some(kept);
        }
        Ok(direction)
    }

    /// The factor of the system of at most `most` of the rows.
    fn sampled_factor(
        &self,
        system: &CurvedRows<'_>,
        curved: &[u32],
        total: f64,
        bottom: f64,
        most: usize,
        d: usize,
    ) -> Result<SystemFactor, Status> {
        let step = curved.len().div_ceil(most.max(1)).max(1);
        let rows: Vec<u32> = curved.iter().copied().step_by(step).collect();
        let mut own: Vec<f64> = system.weights.iter().copied().step_by(step).collect();
        let sampled = own.iter().sum::<f64>();
        if sampled > 0.0 {
            own.iter_mut().for_each(|a| *a *= total / sampled);
        }
        let rows = Pick::List(&rows);
        if let Some(factor) = self.x.curvature_factor(rows, &own, bottom, self.control) {
            return Ok(SystemFactor::There(factor));
        }
        self.control.check()?;
        let (mut first, mut second) = (vec![0.0; d], vec![0.0; d * d]);
        match system.behind {
            Some((behind, _)) => behind.moments(rows, &own, &mut first, &mut second, self.control)?,
            None => self.x.moments(rows, &own, &[], &mut first, &mut second, self.control)?,
        }
        let gram = system.behind.map(|(_, gram)| gram);
        let assemble = || {
            let mut matrix = second.clone();
            self.control.threads.chunks(&mut matrix, (TASK_ROWS * d).max(1), |task, part| {
                for (k, row) in part.chunks_mut(d).enumerate() {
                    let i = task * TASK_ROWS + k;
                    let own = first[i] / bottom;
                    row[..=i].iter_mut().zip(&first).for_each(|(m, f)| *m -= own * f);
                    match gram {
                        Some(gram) => row[..=i].iter_mut().zip(&gram[i * d..]).for_each(|(m, g)| *m += f64::from(*g)),
                        None => row[i] += 1.0,
                    }
                }
            });
            matrix
        };
        let least = |i: usize| gram.map_or(1.0, |gram| f64::from(gram[i * d + i]));
        self.factor_scaled(assemble, least, d).map(SystemFactor::Here)
    }

    /// The factor of a matrix given by its lower triangle, with its diagonal, of which `least` are lower bounds, scaled to 1.
    pub(super) fn factor_scaled(
        &self,
        assemble: impl Fn() -> Vec<f64>,
        least: impl Fn(usize) -> f64,
        d: usize,
    ) -> Result<ScaledFactor, Status> {
        self.control.spend(4 * d * d);
        let mut jitter = 0.0;
        loop {
            let mut matrix = assemble();
            let roots: Vec<f64> =
                (0..d).map(|i| 1.0 / matrix[i * d + i].max(least(i)).max(f64::MIN_POSITIVE).sqrt()).collect();
            self.control.threads.chunks(&mut matrix, (TASK_ROWS * d).max(1), |task, part| {
                for (k, row) in part.chunks_mut(d).enumerate() {
                    let i = task * TASK_ROWS + k;
                    row[..=i].iter_mut().zip(&roots).for_each(|(m, root)| *m *= roots[i] * root);
                    row[i] += jitter;
                }
            });
            match Cholesky::new(matrix, d, d, self.control) {
                Ok(factor) => return Ok(ScaledFactor { factor, roots }),
                Err(FactorError::Interrupted(why)) => return Err(why.into()),
                Err(FactorError::NotPositive(_)) if jitter > 1.0 => return Err(Status::Stalled),
                // The matrix is I, or G, plus a semidefinite one; the factorisation can fail only by rounding.
                Err(FactorError::NotPositive(_)) => jitter = if jitter == 0.0 { 1e-14 } else { 30.0 * jitter },
            }
        }
    }

    /// By conjugate gradients; the number of their steps.
    fn iterated_direction(
        &self,
        rows: &CurvedRows<'_>,
        gradient: &[f64],
        reduction: f64,
        precondition: impl Fn(&[f64]) -> Vec<f64>,
    ) -> Result<(NewtonDirection, usize), Status> {
        let d = gradient.len();
        let total: f64 = rows.weights.iter().sum();
        let (slope, bottom) = self.bias_derivatives(total);
        let mut h = vec![0.0; d];
        if self.rho.is_some() {
            rows.sum(&mut h)?;
        }
        let mut s = vec![0.0; d];
        let mut r = match rows.behind {
            Some((behind, _)) => behind.lower(gradient, self.control),
            None => gradient.to_vec(),
        };
        r.iter_mut().zip(&h).for_each(|(r, h)| *r = slope * h / bottom - *r);
        let mut y = precondition(&r);
        let mut p = y.clone();
        let mut ry = dot(&r, &y);
        let goal = ry * reduction;
        let count = rows.weights.len();
        let (mut u, mut xs) = (vec![0.0; count], vec![0.0; count]);
        let mut q = vec![0.0; d];
        let mut steps = 0;
        while steps < MAX_STEPS && ry > goal && ry > 0.0 {
            rows.multiply(&p, dot(&h, &p) / bottom, &mut u, &mut q)?;
            let curvature = dot(&p, &q);
            if !(curvature > 0.0) {
                break;
            }
            steps += 1;
            let t = ry / curvature;
            for j in 0..d {
                s[j] += t * p[j];
                r[j] -= t * q[j];
            }
            xs.iter_mut().zip(&u).for_each(|(xs, u)| *xs += t * u);
            y = precondition(&r);
            let next = dot(&r, &y);
            let ratio = next / ry;
            ry = next;
            p.iter_mut().zip(&y).for_each(|(p, y)| *p = y + ratio * *p);
        }
        let b = if self.rho.is_some() { -(slope + dot(&h, &s)) / bottom } else { 0.0 };
        let w = match rows.behind {
            Some((behind, _)) => behind.lower_transposed(&s),
            None => s,
        };
        Ok((NewtonDirection { w, b, dots: Some(xs) }, steps))
    }
}
