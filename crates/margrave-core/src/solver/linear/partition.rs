//! A Newton step on data in partitions: the sums over the rows of one of them.
//!
//! Whoever minimises holds w and b; whoever holds rows answers with sums over them, from which a step and its length follow.
//! Nothing is kept between calls. The centre βₖ of the smoothing (see `smooth_loss.rs`) is one number per row: it is computed
//! where the rows are ([`recentre`]) and given again with the next call.
//!
//! Sums over the rows of a partition do not depend on the number of threads. Sums over partitions must be added in the order of
//! the partitions.

use super::envelope::MoreauEnvelope;
use super::smooth_loss::{DualTerms, SmoothLoss, SmoothedDual, UnsmoothedLoss};
use super::state::{CHUNK, dot, range_sums};
use crate::control::{Control, Interrupt};
use crate::error::{Error, Result, check_len};
use crate::gram::Pick;
use crate::linalg::factor::{Cholesky, FactorError};
use crate::problem::LinearProblem;

/// How the losses of the rows are smoothed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Smoothing<'a> {
    /// The width, in units of the score; 0 for losses that are smooth.
    pub width: f64,
    /// βₖ of every row; `None`: 0.
    pub centre: Option<&'a [f64]>,
}

/// The part of the curvature that a pass returns.
#[derive(Debug, Clone, Copy)]
pub enum Curvature<'a> {
    /// Nothing.
    None,
    /// The second moments about these column means; empty: about the origin.
    Moments(&'a [f64]),
    /// The diagonal only.
    Diagonal,
}

/// A point, and a direction along which derivatives are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    /// w.
    pub weights: &'a [f64],
    /// b.
    pub bias: f64,
    /// The direction (dw, db); `None`: the sums are those at (w, b).
    pub direction: Option<(&'a [f64], f64)>,
    /// Step lengths at which to return the derivative along the direction. The other sums are those at the first.
    pub steps: &'a [f64],
}

/// Sums over the rows of a partition, at z = Xw + b.
#[derive(Debug, Clone, Default)]
pub struct Pass {
    /// Σ c·ℓ(y, z).
    pub loss: f64,
    /// Σ of the Fenchel–Young terms of β(z) under the loss without smoothing.
    pub excess: f64,
    /// Σ |value| + |β|(|z| + |b|): the size of the numbers in the gap, which bounds its rounding.
    pub size: f64,
    /// Σ β.
    pub sum: f64,
    /// Σ |β|.
    pub magnitude: f64,
    /// Xᵀβ.
    pub combination: Vec<f64>,
    /// Σ a, a the curvatures.
    pub curvature: f64,
    /// Σ a·(x − mean).
    pub first: Vec<f64>,
    /// Lower triangle of Σ a·(x − mean)(x − mean)ᵀ, row-major; or Σ a·x².
    pub second: Vec<f64>,
    /// −Σ β(z + t·dz)·dz for each step t.
    pub slopes: Vec<f64>,
}

/// Calls `work` with the smooth losses of the rows.
fn with_losses<R>(
    problem: &LinearProblem<'_>,
    smoothing: Smoothing<'_>,
    work: impl FnOnce(&dyn SmoothLoss) -> R,
) -> Result<R> {
    let properties = problem.loss.properties();
    if !properties.convex {
        return Err(Error::Unsupported {
            solver: "partitions",
            what: format!("the {} loss, which is not convex", problem.loss.name()),
            instead: "linear".into(),
        });
    }
    let zeros;
    let centre = match smoothing.centre {
        Some(centre) => centre,
        None => {
            zeros = vec![0.0; problem.len()];
            &zeros
        }
    };
    check_len("number of dual variables", problem.len(), centre.len())?;
    if let Some(terms) = DualTerms::new(problem) {
        return Ok(work(&SmoothedDual::new(&terms, smoothing.width, centre)));
    }
    if smoothing.width > 0.0 {
        return Ok(work(&MoreauEnvelope::new(problem, smoothing.width, centre)));
    }
    Ok(work(&UnsmoothedLoss::new(problem)))
}

/// The smallest width in z over which β(z) crosses its box without smoothing: 0 for the hinge, ∞ for losses that need none.
pub fn natural_width(problem: &LinearProblem<'_>) -> f64 {
    match DualTerms::new(problem) {
        Some(terms) => terms.min_width(),
        None if problem.loss.sharp() => 0.0,
        None => f64::INFINITY,
    }
}

/// z = Xw + b.
fn scores(problem: &LinearProblem<'_>, w: &[f64], b: f64, control: &Control) -> Result<Vec<f64>> {
    check_len("number of weights", problem.matrix.dims(), w.len())?;
    let mut z = vec![0.0; problem.len()];
    problem.matrix.dots(Pick::All, w, &mut z, control)?;
    z.iter_mut().for_each(|z| *z += b);
    Ok(z)
}

/// One number per row by `fill(first row, z, out)`, in tasks.
fn by_row(
    z: &[f64],
    control: &Control,
    fill: impl Fn(usize, &[f64], &mut [f64]) + Sync,
) -> Result<Vec<f64>, Interrupt> {
    let mut out = vec![0.0; z.len()];
    control.threads.chunks(&mut out, CHUNK, |task, part| {
        let first = task * CHUNK;
        fill(first, &z[first..first + part.len()], part);
    });
    control.check()?;
    Ok(out)
}

/// β(z) of every row at (w, b): the centre of the next smoothing, and the dual point of the certificate.
pub fn recentre(
    problem: &LinearProblem<'_>,
    smoothing: Smoothing<'_>,
    w: &[f64],
    b: f64,
    control: &Control,
) -> Result<Vec<f64>> {
    let z = scores(problem, w, b, control)?;
    let beta =
        with_losses(problem, smoothing, |losses| by_row(&z, control, |first, z, out| losses.betas(first, z, out)))??;
    Ok(beta)
}

/// The sums over the rows.
pub fn pass(
    problem: &LinearProblem<'_>,
    smoothing: Smoothing<'_>,
    probe: Probe<'_>,
    wanted: Curvature<'_>,
    control: &Control,
) -> Result<Pass> {
    let mut z = scores(problem, probe.weights, probe.bias, control)?;
    let dz = match probe.direction {
        Some((dw, db)) => Some(scores(problem, dw, db, control)?),
        None => None,
    };
    let mut out = with_losses(problem, smoothing, |losses| -> Result<Pass> {
        let mut out = Pass::default();
        let mut b = probe.bias;
        if let (Some(dz), Some((_, db))) = (&dz, probe.direction) {
            let zeros = vec![0.0; CHUNK];
            for &t in probe.steps {
                control.check()?;
                let [sum, _] = range_sums(control, z.len(), |r| {
                    losses.along(r.start, &z[r.clone()], &dz[r.clone()], t, &zeros[..r.len()])
                });
                out.slopes.push(-sum);
            }
            let t = probe.steps.first().copied().unwrap_or(0.0);
            z.iter_mut().zip(dz).for_each(|(z, dz)| *z += t * dz);
            b += t * db;
        }
        let beta = by_row(&z, control, |first, z, out| losses.betas(first, z, out))?;
        [out.loss, out.excess, out.size, out.magnitude] =
            range_sums(control, z.len(), |r| losses.totals(r.start, &z[r.clone()], &beta[r], b));
        out.sum = range_sums(control, z.len(), |r| [beta[r].iter().sum()])[0];
        out.combination = vec![0.0; problem.matrix.dims()];
        problem.matrix.combine(Pick::All, &beta, &mut out.combination, control)?;
        if !matches!(wanted, Curvature::None) {
            let a = by_row(&z, control, |first, z, out| losses.curvatures(first, z, out))?;
            add_curvature(problem, &a, wanted, &mut out, control)?;
        }
        Ok(out)
    })??;
    out.slopes.shrink_to_fit();
    Ok(out)
}

fn add_curvature(
    problem: &LinearProblem<'_>,
    a: &[f64],
    wanted: Curvature<'_>,
    out: &mut Pass,
    control: &Control,
) -> Result<(), Interrupt> {
    let d = problem.matrix.dims();
    out.curvature = range_sums(control, a.len(), |r| [a[r].iter().sum()])[0];
    let curved: Vec<u32> = (0..a.len() as u32).filter(|&i| a[i as usize] > 0.0).collect();
    let weights: Vec<f64> = curved.iter().map(|&i| a[i as usize]).collect();
    let rows = if curved.len() == a.len() { Pick::All } else { Pick::List(&curved) };
    out.first = vec![0.0; d];
    match wanted {
        Curvature::None => Ok(()),
        Curvature::Moments(means) => {
            out.second = vec![0.0; d * d];
            problem.matrix.moments(rows, &weights, means, &mut out.first, &mut out.second, control)
        }
        Curvature::Diagonal => {
            out.second = vec![0.0; d];
            problem.matrix.combine(rows, &weights, &mut out.first, control)?;
            problem.matrix.squares(rows, &weights, &mut out.second, control)
        }
    }
}

/// The curvature times a direction: Xᵀ(a∘(Xp + p_b)) and Σ a∘(Xp + p_b), with the curvatures a at (w, b).
pub fn product(
    problem: &LinearProblem<'_>,
    smoothing: Smoothing<'_>,
    (w, b): (&[f64], f64),
    (p, p_b): (&[f64], f64),
    control: &Control,
) -> Result<(Vec<f64>, f64)> {
    let z = scores(problem, w, b, control)?;
    let mut u = scores(problem, p, p_b, control)?;
    let a = with_losses(problem, smoothing, |losses| {
        by_row(&z, control, |first, z, out| losses.curvatures(first, z, out))
    })??;
    u.iter_mut().zip(&a).for_each(|(u, a)| *u *= a);
    let mut out = vec![0.0; p.len()];
    problem.matrix.combine(Pick::All, &u, &mut out, control)?;
    let sum = range_sums(control, u.len(), |r| [u[r].iter().sum()])[0];
    Ok((out, sum))
}

/// The sums of all partitions that a Newton direction follows from.
#[derive(Debug, Clone, Copy)]
pub struct System<'a> {
    /// Lower triangle of Σ a·(x − mean)(x − mean)ᵀ, row after row without the entries above the diagonal.
    pub packed: &'a [f64],
    /// Σ a·(x − mean).
    pub first: &'a [f64],
    /// The means; empty for the origin.
    pub means: &'a [f64],
    /// Σ a.
    pub total: f64,
    /// w − Xᵀβ.
    pub gradient: &'a [f64],
    /// ρb − Σβ and ρ + Σa; (0, ∞) without a bias.
    pub bias: (f64, f64),
}

/// The Newton direction (dw, db), b eliminated. `None` if rounding makes the system singular.
pub fn direction(system: &System<'_>, control: &Control) -> Result<Option<(Vec<f64>, f64)>> {
    let System { packed, first, means, total, gradient, bias: (slope, bottom) } = *system;
    let d = gradient.len();
    check_len("entries of the Newton system", d * (d + 1) / 2, packed.len())?;
    check_len("first moments", d, first.len())?;
    let mean = |i: usize| means.get(i).copied().unwrap_or(0.0);
    // About the origin the matrix is S + fmᵀ + mfᵀ + total·mmᵀ; eliminating b subtracts hhᵀ/bottom with h = f + total·m.
    let left = 1.0 - total / bottom;
    let entry = |i: usize, j: usize| {
        let about_means = packed[i * (i + 1) / 2 + j] - first[i] * first[j] / bottom;
        let shift = left * (first[i] * mean(j) + mean(i) * first[j] + total * mean(i) * mean(j));
        about_means + shift + if i == j { 1.0 } else { 0.0 }
    };
    let h: Vec<f64> = (0..d).map(|i| first[i] + total * mean(i)).collect();
    let roots: Vec<f64> = (0..d).map(|i| 1.0 / entry(i, i).max(1.0).sqrt()).collect();
    let mut jitter = 0.0;
    let factor = loop {
        let mut matrix = vec![0.0; d * d];
        for i in 0..d {
            (0..=i).for_each(|j| matrix[i * d + j] = entry(i, j) * roots[i] * roots[j]);
            matrix[i * d + i] += jitter;
        }
        match Cholesky::new(matrix, d, d, control) {
            Ok(factor) => break factor,
            Err(FactorError::Interrupted(why)) => return Err(why.into()),
            Err(FactorError::NotPositive(_)) if jitter > 1.0 => return Ok(None),
            // The matrix is I plus a semidefinite one; the factorisation can fail only by rounding.
            Err(FactorError::NotPositive(_)) => jitter = if jitter == 0.0 { 1e-14 } else { 30.0 * jitter },
        }
    };
    let mut dw: Vec<f64> = (0..d).map(|i| (slope * h[i] / bottom - gradient[i]) * roots[i]).collect();
    factor.solve(&mut dw);
    dw.iter_mut().zip(&roots).for_each(|(dw, root)| *dw *= root);
    let db = if bottom.is_finite() { -(slope + dot(&h, &dw)) / bottom } else { 0.0 };
    Ok(Some((dw, db)))
}
