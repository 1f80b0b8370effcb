//! The certificate of a linear model with the L1 penalty.
//!
//! P(w, b) = ‖w‖₁ + |b|/s + Σ cᵢℓ(yᵢ, zᵢ) and D(γ) = −Σ cᵢℓ*(yᵢ, −γᵢ/cᵢ) subject to ‖Xᵀγ‖∞ ≤ 1, and Σγ = 0 for a free
//! bias or s·|Σγ| ≤ 1 for a penalised one. β is repaired as in the other certificates and scaled down until the
//! constraints hold, which is possible because its box contains 0.

use super::linear::{combination, linear_scores, of_sum};
use super::rounding::UNIT;
use super::{CHUNK, Certificate, FEASIBLE, Optimality, Point, bulk, members, relative, repair};
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::linalg::vectorised::{Vectorised, vectorised};
use crate::problem::{Bias, LinearProblem};

/// Error of an entry of Xᵀβ, next to the bound 1 that it has to meet, from which it is computed again more accurately.
const COARSE: f64 = 1e-7;

/// Rows between two looks at the budget.
const POLL_ROWS: usize = 4096;

/// Adds the rows `first ..` of Xᵀγ to sums: for every feature the sum, what its rounding lost, and the magnitudes of its terms.
struct AccurateSums<'a> {
    points: &'a Points,
    first: usize,
    gamma: &'a [f64],
    sums: &'a mut [[f64; 3]],
}

impl Vectorised for AccurateSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (at, g) in self.gamma.iter().enumerate().filter(|(_, g)| **g != 0.0) {
            self.points.visit(self.first + at, |j, x| {
                let [sum, lost, size] = &mut self.sums[j];
                let term = x * g;
                let of_term = x.mul_add(*g, -term);
                let next = *sum + term;
                let of_sum = if sum.abs() >= term.abs() { (*sum - next) + term } else { (term - next) + *sum };
                *lost += of_sum + of_term;
                *size += term.abs();
                *sum = next;
            });
        }
    }
}

/// Xᵀγ and bounds on its errors, by Algorithm 5.3 (Dot2) of Ogita, Rump and Oishi, *Accurate Sum and Dot Product*, SIAM J. Sci.
/// Comput. 26, 2005: as accurate as if computed with twice the digits and rounded at the end.
///
/// Where features or costs are large, the terms of an entry are far larger than the bound 1 that it has to meet, and plain sums
/// leave nothing of the dual point: with features of 10⁶ and C = 10⁴ the rounding of an entry is about 1.
fn accurate_combination(points: &Points, gamma: &[f64], control: &Control) -> Result<(Vec<f64>, Vec<f64>), Interrupt> {
    control.spend(8 * points.stored());
    let mut sums = vec![[0.0f64; 3]; points.dims()];
    for (block, gamma) in gamma.chunks(POLL_ROWS).enumerate() {
        control.check()?;
        vectorised(AccurateSums { points, first: block * POLL_ROWS, gamma, sums: &mut sums });
    }
    // |error| ≤ u·|Xᵀγ| + γₙ²·|X|ᵀ|γ|; twice that covers what is of higher order.
    let units = points.len() as f64 * UNIT;
    let entry = |[sum, lost, size]: [f64; 3]| {
        let v = sum + lost;
        (v, 2.0 * (UNIT * v.abs() + units * units * size))
    };
    Ok(sums.into_iter().map(entry).unzip())
}

/// The largest of some magnitudes, infinite if one is not a number: what overflows proves nothing.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |most, v| if v.is_nan() { f64::INFINITY } else { v.max(most) })
}

/// Certifies the model (w, b) of a convex loss with the L1 penalty, using the dual point β. The given bias is used as
/// it is. The violation is the largest excess of |Xᵀβ| over 1 as computed; its rounding is part of the gap.
pub fn certify_l1(
    problem: &LinearProblem<'_>,
    weights: &[f64],
    bias: f64,
    beta: &[f64],
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let samples = problem.samples();
    let x = problem.matrix;
    let scaling = match problem.bias {
        Bias::Penalised { scaling } => Some(scaling),
        Bias::None | Bias::Free => None,
    };
    let fixed = if scaling.is_some() { bias } else { 0.0 };
    let scores = linear_scores(x, weights, control)?.shifted(fixed);
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    let groups = members(samples.constraint);
    let repaired = repair::repair(&point, beta, &groups);
    let mut gamma = repaired.beta;
    let (mut v, mut errors) = combination(x, &gamma, control)?.into_vectors();
    if let Some(points) = x.points()
        && errors.iter().any(|e| *e > COARSE)
    {
        (v, errors) = accurate_combination(points, &gamma, control)?;
    }
    let mut most = largest(v.iter().zip(&errors).map(|(v, e)| v.abs() + e));
    let mut computed = largest(v.iter().map(|v| v.abs()));
    if let Some(s) = scaling {
        // A compensated sum is as accurate as one with twice the digits.
        let (sum, units) = (repair::exact_sum(gamma.iter().copied()).abs(), samples.len() as f64 * UNIT);
        let error = 2.0 * (UNIT * sum + units * units * gamma.iter().map(|g| g.abs()).sum::<f64>());
        (most, computed) = (most.max(s * (sum + error)), computed.max(s * sum));
    }
    // Scale slightly more than needed, so that rounding cannot leave the point infeasible.
    let scale = if most > 1.0 { (1.0 - 4.0 * f64::EPSILON) / most } else { 1.0 };
    gamma.iter_mut().for_each(|g| *g *= scale);
    let own = if problem.bias == Bias::Free { vec![bias] } else { vec![] };
    let norm: f64 = weights.iter().map(|w| w.abs()).sum::<f64>() + scaling.map_or(0.0, |s| bias.abs() / s);
    let primal = norm + point.primal(0.0, &own)?;
    let n = samples.len();
    let tasks = |task: usize| task * CHUNK..((task + 1) * CHUNK).min(n);
    let count = n.div_ceil(CHUNK);
    let conjugates = control.threads.map(count, |task| bulk::conjugates(&samples, tasks(task), &gamma)).concat();
    let value = -point.sum(None, |i| conjugates[i])?;
    let sizes = point.sum(None, |i| conjugates[i].abs())? + primal.abs();
    let terms = control.threads.map(count, |task| bulk::terms(&point, tasks(task), &gamma, &own)).concat();
    let of_scores = point.sum(None, |i| terms[i].1)?;
    let of_bias =
        own.first().map_or(0.0, |b| 4.0 * f64::EPSILON * b.abs() * gamma.iter().map(|g| g.abs()).sum::<f64>());
    let rounding = of_scores + of_sum(samples.len(), sizes) + of_bias;
    let mut gap = (primal - value).max(0.0) + rounding;
    if !repaired.exists || gap.is_nan() || !primal.is_finite() {
        gap = f64::INFINITY;
    }
    let dual = primal - gap;
    Ok(Certificate::Optimality(Optimality {
        primal,
        dual,
        gap,
        rounding,
        at_zero: point.sum_values(|_| 0.0)?,
        relative_gap: relative(gap, primal, dual),
        violation: (computed - 1.0).max(0.0),
        feasible: repaired.exists && repaired.infeasibility.max(most - 1.0) <= FEASIBLE,
        infeasibility: repaired.infeasibility.max(most - 1.0).max(0.0),
        bias: if scaling.is_some() { vec![bias] } else { own },
        squared_norm: weights.iter().map(|w| w * w).sum(),
        definite: true,
        worst: Vec::new(),
        approximation: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn a_combination_that_overflows_is_infinite() {
        let points = Points::dense_f64(2, 1, vec![1e300, -1e300]).unwrap();
        let control = Control::unlimited(crate::control::Threads::one());
        let (v, errors) = accurate_combination(&points, &[1e300, 1e300], &control).unwrap();
        assert_eq!(largest(v.iter().zip(&errors).map(|(v, e)| v.abs() + e)), f64::INFINITY, "{v:?} {errors:?}");
    }

    #[test]
    fn accurate_sums_and_their_bounds_hold_in_exact_arithmetic() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let (n, d) = (400, 3);
        for _ in 0..20 {
            // The second half nearly cancels the first: sums are 10⁻¹⁰ of their terms and less, and known exactly as i128.
            let mut values: Vec<i64> = (0..n * d).map(|_| rng.random_range(-(1i64 << 50)..1 << 50)).collect();
            let mut gamma: Vec<i64> = (0..n).map(|_| rng.random_range(1i64 << 40..1 << 50)).collect();
            for k in 0..n * d / 2 {
                values[n * d / 2 + k] = -values[k] + rng.random_range(-8..8);
                gamma[n / 2 + k / d] = gamma[k / d];
            }
            let points = Points::dense_f64(n, d, values.iter().map(|v| *v as f64).collect::<Vec<f64>>()).unwrap();
            let given: Vec<f64> = gamma.iter().map(|g| *g as f64).collect();
            let control = Control::unlimited(crate::control::Threads::one());
            let (sums, errors) = accurate_combination(&points, &given, &control).unwrap();
            for j in 0..d {
                let exact: i128 = (0..n).map(|i| i128::from(values[i * d + j]) * i128::from(gamma[i])).sum();
                let off = (sums[j] - exact as f64).abs();
                assert!(off <= errors[j], "{off:e} > {:e}", errors[j]);
                assert!(errors[j] <= 1e-9 * exact.abs() as f64 + 1e6, "{:e} of {exact:e}", errors[j]);
            }
        }
    }
}
