//! The certificate of data in parts: each part is judged where its rows are, and the sums are put together.
//!
//! ```text
//! gap = ½‖w − Σₚ Xₚᵀγₚ‖² + ½(ρb − Σγ)²/ρ + Σₚ Σᵢ cᵢ·[ ℓ(yᵢ, zᵢ) + ℓ*(yᵢ, −γᵢ/cᵢ) + (γᵢ/cᵢ)·zᵢ ]
//! ```
//!
//! A free bias requires Σγ = 0 over all parts. No part knows the others, so γ is β clipped to its box and multiplied by one
//! factor for positive and another for negative values, at most 1: boxes contain 0, so γ stays inside. The factors follow from
//! two sums ([`Part::balance`]).
//!
//! Parts must be given in a fixed order: the result then does not depend on who computed them.

use super::linear::{combination, linear_scores};
use super::rounding::{UNIT, chain};
use super::violation::{OneSided, one_sided};
use super::{Bounded, CHUNK, Certificate, FEASIBLE, Optimality, Point, WORST, Worst, bulk, relative, repair, worst};
use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick, Precision};
use crate::problem::{Bias, Constraint, LinearProblem, Samples};

/// What the certificate needs to know of the rows of one part.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Number of rows.
    pub rows: usize,
    /// Σ c·ℓ(y, z).
    pub loss: f64,
    /// Σ c·ℓ(y, 0).
    pub at_zero: f64,
    /// Σ of the Fenchel–Young terms.
    pub terms: f64,
    /// Bound on what the rounding of the scores adds to the terms and to P.
    pub rounding: f64,
    /// Σ |γz|, which bounds the rounding of the sums.
    pub sizes: f64,
    /// Σ βf, f = z − b.
    pub norm: f64,
    /// Sum of the positive and of the negative γ.
    pub sums: [f64; 2],
    /// Largest |z| + |y|.
    pub reach: f64,
    /// Largest F of variables that can decrease.
    pub fall: f64,
    /// Smallest F of variables that can increase.
    pub rise: f64,
    /// Largest distance of −γ/c from the slopes of a loss without a dual term.
    pub slope: f64,
    /// Largest excess of β over its box, relative to its cost.
    pub infeasibility: f64,
    /// The largest terms and their rows, counted from the first row of the part.
    pub worst: Vec<(usize, f64)>,
    /// Xᵀγ; empty for kernels.
    pub combination: Vec<f64>,
    /// Bounds on the rounding errors of its entries.
    pub combination_error: Vec<f64>,
}

impl Part {
    /// The factors on positive and negative γ that make Σγ = 0.
    pub fn balance(parts: &[Part]) -> [f64; 2] {
        let sum = |side: usize| parts.iter().map(|part| part.sums[side].abs()).sum::<f64>();
        let (up, down) = (sum(0), sum(1));
        if up > down { [down / up, 1.0] } else { [1.0, if down > 0.0 { up / down } else { 1.0 }] }
    }
}

/// Judges rows with scores `z`, bias included; returns the part and γ. `z_error` bounds the rounding of the scores.
fn judge(
    samples: &Samples<'_>,
    z: &[f64],
    z_error: &[f64],
    b: f64,
    beta: &[f64],
    factors: [f64; 2],
    control: &Control,
) -> Result<(Part, Vec<f64>), Interrupt> {
    let point = Point { problem: samples, f: z, error: z_error, control };
    let repaired = repair::repair(&point, beta, &[]);
    let mut gamma = repaired.beta;
    gamma.iter_mut().for_each(|g| *g *= factors[usize::from(*g < 0.0)]);
    let n = samples.len();
    let terms: Vec<(f64, f64)> = control
        .threads
        .map(n.div_ceil(CHUNK), |task| bulk::terms(&point, task * CHUNK..((task + 1) * CHUNK).min(n), &gamma, &[]))
        .concat();
    let total =
        |of: fn(&(f64, f64)) -> f64| -> f64 { terms.chunks(CHUNK).map(|part| part.iter().map(of).sum::<f64>()).sum() };
    let OneSided { fall, rise, slope } = one_sided(&point, &gamma, &[])?;
    let shares: Vec<f64> = terms.iter().map(|t| t.0).collect();
    let loss = point.sum_values(|i| z[i])?;
    let sizes = point.sum(None, |i| (gamma[i] * z[i]).abs())?;
    let additions = (n.min(CHUNK) + n.div_ceil(CHUNK)) as f64;
    let mut rounding = total(|t| t.1) + UNIT * additions * (0.5 * sizes + loss.abs());
    rounding += point.sum(None, |i| 0.5 * gamma[i].abs() * z_error[i] + 4.0 * UNIT * (gamma[i] * b).abs())?;
    let part = Part {
        rows: n,
        loss,
        at_zero: point.sum_values(|_| 0.0)?,
        terms: total(|t| t.0),
        rounding,
        sizes,
        norm: point.sum(None, |i| beta[i] * (z[i] - b))?,
        sums: [point.sum(None, |i| gamma[i].max(0.0))?, point.sum(None, |i| gamma[i].min(0.0))?],
        reach: (0..n).map(|i| z[i].abs() + samples.targets[i].abs()).fold(0.0, f64::max),
        fall: fall.first().copied().unwrap_or(f64::NEG_INFINITY),
        rise: rise.first().copied().unwrap_or(f64::INFINITY),
        slope,
        infeasibility: repaired.infeasibility,
        worst: worst(samples, &shares, f64::INFINITY).into_iter().map(|worst| (worst.row, worst.gap)).collect(),
        ..Part::default()
    };
    Ok((part, gamma))
}

/// The samples of a problem without its constraint: the bias is part of the scores.
fn unconstrained<'a>(samples: &Samples<'a>) -> Samples<'a> {
    Samples { constraint: &Constraint::None, ..*samples }
}

/// Judges the rows of `problem` at (w, b) with the dual point β, scaled by `factors`.
pub fn linear_part(
    problem: &LinearProblem<'_>,
    weights: &[f64],
    bias: f64,
    beta: &[f64],
    factors: [f64; 2],
    control: &Control,
) -> Result<Part, Interrupt> {
    let bias = if problem.bias == Bias::None { 0.0 } else { bias };
    let scores = linear_scores(problem.matrix, weights, control)?.shifted(bias);
    let samples = problem.samples();
    let (mut part, gamma) = judge(&unconstrained(&samples), &scores.f, &scores.error, bias, beta, factors, control)?;
    (part.combination, part.combination_error) = combination(problem.matrix, &gamma, control)?.into_vectors();
    Ok(part)
}

/// Judges rows of a kernel model f = Σ coefficient·k(centre, ·) + b: `gram` is the kernel between these rows and the centres,
/// `centre_sizes` bounds the kernel like [`Accuracy::size`](crate::gram::Accuracy::size), `beta` are the coefficients of the rows
/// themselves.
pub fn kernel_part(
    gram: &dyn Gram,
    centre_sizes: &[f64],
    coefficients: &[f64],
    samples: &Samples<'_>,
    bias: f64,
    beta: &[f64],
    control: &Control,
) -> Result<Part, Interrupt> {
    let (n, _) = gram.shape();
    let mut z = vec![0.0; n];
    gram.apply(Precision::Double, Pick::All, coefficients, 1, &mut z, control)?;
    let accuracy = gram.accuracy();
    let used = coefficients.iter().filter(|c| **c != 0.0).count();
    let reach: f64 = centre_sizes.iter().zip(coefficients).map(|(s, c)| s * c.abs()).sum();
    let units = UNIT * (accuracy.relative + chain(used)) * reach;
    let error: Vec<f64> = accuracy.size.iter().map(|s| units * s + 2.0 * UNIT * bias.abs()).collect();
    z.iter_mut().for_each(|z| *z += bias);
    Ok(judge(&unconstrained(samples), &z, &error, bias, beta, [1.0, 1.0], control)?.0)
}

/// Judges rows as if `z`, bias included, were their exact scores: for solvers, which decide by it whether to continue. It is no
/// part of a proof.
pub fn estimated_part(
    samples: &Samples<'_>,
    z: &[f64],
    bias: f64,
    beta: &[f64],
    control: &Control,
) -> Result<Part, Interrupt> {
    let exact = vec![0.0; z.len()];
    Ok(judge(&unconstrained(samples), z, &exact, bias, beta, [1.0, 1.0], control)?.0)
}

/// The certificate of a linear model from its parts.
pub fn combine_linear(parts: &[Part], kind: Bias, weights: &[f64], bias: f64) -> Certificate {
    let bias = if kind == Bias::None { 0.0 } else { bias };
    let d = weights.len();
    let (mut v, mut error, mut size) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
    for part in parts {
        for j in 0..d.min(part.combination.len()) {
            v[j] += part.combination[j];
            size[j] += part.combination[j].abs();
            error[j] += part.combination_error[j];
        }
    }
    let additions = parts.len() as f64;
    let each = || weights.iter().zip(&v).zip(error.iter().zip(&size));
    let mut distance: f64 = each().map(|((w, v), _)| (w - v) * (w - v)).sum();
    let bound = |((w, v), (e, s)): ((&f64, &f64), (&f64, &f64))| ((w - v).abs() + e + UNIT * additions * s).powi(2);
    let mut upper: f64 = each().map(bound).sum();
    let mut squared_norm: f64 = weights.iter().map(|w| w * w).sum();
    if let (Bias::Penalised { .. }, Some(p)) = (kind, kind.penalty()) {
        let (sum, size) = sums(parts);
        let rows: usize = parts.iter().map(|part| part.rows).sum();
        let off = (p * bias - sum).abs();
        distance += off * off / p;
        upper += (off + UNIT * (rows as f64 + additions + 8.0) * size).powi(2) / p;
        squared_norm += p * bias * bias;
    }
    let distance = Bounded { value: 0.5 * distance, rounding: 0.5 * (upper - distance).max(0.0) };
    assemble(parts, squared_norm, distance, kind == Bias::Free, bias, true)
}

/// The certificate of a kernel model from its parts. `free`: the bias is free, and Σβ = 0. `definite`: the kernel is known to be
/// positive semi-definite.
pub fn combine_kernel(parts: &[Part], free: bool, bias: f64, definite: bool) -> Certificate {
    let squared_norm = parts.iter().map(|part| part.norm).sum();
    assemble(parts, squared_norm, Bounded::default(), free, bias, definite)
}

/// Σγ and Σ|γ|.
fn sums(parts: &[Part]) -> (f64, f64) {
    let side = |at: usize| parts.iter().map(|part| part.sums[at]).sum::<f64>();
    (side(0) + side(1), side(0) - side(1))
}

fn assemble(
    parts: &[Part],
    squared_norm: f64,
    distance: Bounded,
    free: bool,
    bias: f64,
    definite: bool,
) -> Certificate {
    let total = |of: fn(&Part) -> f64| parts.iter().map(of).sum::<f64>();
    let primal = 0.5 * squared_norm + total(|part| part.loss);
    let mut rounding = total(|part| part.rounding) + distance.rounding;
    rounding += UNIT * parts.len() as f64 * (0.5 * total(|part| part.sizes) + total(|part| part.loss).abs());
    let mut infeasibility = parts.iter().fold(0.0f64, |worst, part| worst.max(part.infeasibility));
    let mut exists = true;
    if free {
        // What is left of Σγ is rounding: correcting it on one variable changes its term by at most its reach.
        let (sum, size) = sums(parts);
        let reach = parts.iter().fold(1.0f64, |reach, part| reach.max(part.reach));
        rounding += sum.abs() * (bias.abs() + reach);
        infeasibility = infeasibility.max(if size > 0.0 { sum.abs() / size } else { 0.0 });
        exists = sum.abs() <= FEASIBLE * size;
    }
    let mut gap = total(|part| part.terms) + distance.value + rounding;
    if !exists || gap.is_nan() || !primal.is_finite() {
        gap = f64::INFINITY;
    }
    let dual = primal - gap;
    let fall = parts.iter().fold(f64::NEG_INFINITY, |worst, part| worst.max(part.fall));
    let rise = parts.iter().fold(f64::INFINITY, |worst, part| worst.min(part.rise));
    let slope = parts.iter().fold(0.0f64, |worst, part| worst.max(part.slope));
    let violation = slope.max(fall).max(-rise).max(if free { fall - rise } else { 0.0 });
    Certificate::Optimality(Optimality {
        primal,
        dual,
        gap,
        rounding,
        at_zero: total(|part| part.at_zero),
        relative_gap: relative(gap, primal, dual),
        violation,
        feasible: exists && infeasibility <= FEASIBLE,
        infeasibility,
        bias: vec![bias],
        squared_norm,
        definite,
        worst: worst_of(parts, gap),
        approximation: None,
    })
}

/// The largest terms of all parts; rows counted from the first row of the first part.
fn worst_of(parts: &[Part], gap: f64) -> Vec<Worst> {
    let mut first = 0;
    let mut all: Vec<Worst> = Vec::new();
    for part in parts {
        let share = |term: f64| if gap.is_finite() { term / gap } else { 0.0 };
        all.extend(part.worst.iter().map(|&(row, term)| Worst { row: first + row, gap: term, share: share(term) }));
        first += part.rows;
    }
    all.sort_by(|a, b| b.gap.total_cmp(&a.gap).then(a.row.cmp(&b.row)));
    all.truncate(WORST);
    all
}
