//! The certificate of Crammer and Singer's multi-class SVM.
//!
//! ```text
//! P(W) = ½Σ_m (‖w_m‖² + (b_m/s)²) + Σᵢ cᵢ·max_m (e_im + z_im − z_iyᵢ),   z_im = w_mᵀxᵢ + b_m,   e_im = 1 if m ≠ yᵢ, else 0
//! D(γ) = −½Σ_m (‖Σᵢ γ_im xᵢ‖² + (s·Σᵢ γ_im)²) − Σᵢ Σ_{m≠yᵢ} γ_im,   Σ_m γ_im = 0,   γ_im ≤ cᵢ if m = yᵢ, else ≤ 0
//! ```
//!
//! α is repaired sample by sample: positive values of classes other than the sample's own are set to zero, the rest is
//! scaled down to satisfy the cost bound, and the own class gets minus the sum.

use super::rounding::UNIT;
use super::{Certificate, FEASIBLE, Optimality, relative};
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::problem::Bias;

/// Samples between two checks of the clock.
const CHECK_EVERY: usize = 256;

/// Sets γ to a feasible point near the given α of one sample of class `own` and cost `c`; returns the infeasibility of
/// α.
fn repair_sample(given: &[f64], own: usize, c: f64, gamma: &mut [f64]) -> f64 {
    gamma.iter_mut().zip(given).for_each(|(g, a)| *g = a.min(0.0));
    gamma[own] = 0.0;
    let total = -gamma.iter().sum::<f64>();
    if total > c {
        gamma.iter_mut().for_each(|g| *g *= c / total);
    }
    gamma[own] = -gamma.iter().sum::<f64>();
    let off = gamma.iter().zip(given).fold(0.0f64, |m, (g, a)| m.max((g - a).abs()));
    if c > 0.0 { off / c } else { off }
}

/// Certifies the model with weights W (d × k row-major) and biases b, using the dual point α (n × k). `codes` holds the
/// class of each row, below k. P is evaluated at W and D at α, neither derived from the other. The violation is the
/// largest, over the samples, of the highest score minus the lowest score among classes whose α can increase.
///
/// # Panics
/// If the lengths do not agree.
pub fn certify_crammer_singer(
    points: &Points,
    codes: &[u32],
    costs: &[f64],
    bias: Bias,
    weights: &[f64],
    biases: &[f64],
    alpha: &[f64],
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let (n, d, k) = (points.len(), points.dims(), biases.len());
    assert!(codes.len() == n && costs.len() == n && weights.len() == d * k && alpha.len() == n * k);
    let scaling = match bias {
        Bias::Penalised { scaling } => scaling,
        Bias::None | Bias::Free => 0.0,
    };
    let mut primal = 0.5 * weights.iter().map(|w| w * w).sum::<f64>();
    if scaling > 0.0 {
        primal += 0.5 * biases.iter().map(|b| (b / scaling) * (b / scaling)).sum::<f64>();
    }
    let squared_norm = 2.0 * primal;
    let (mut v, mut sums) = (vec![0.0; d * k], vec![0.0; k]);
    // Σ|terms| of each entry of v, to bound its rounding error.
    let mut size = vec![0.0; d * k];
    let (mut z, mut reach, mut gamma) = (vec![0.0; k], vec![0.0; k], vec![0.0; k]);
    let (mut loss, mut linear, mut violation, mut infeasibility) = (0.0, 0.0, 0.0f64, 0.0f64);
    let (mut of_scores, mut used) = (0.0, 0usize);
    for i in 0..n {
        if i % CHECK_EVERY == 0 {
            control.check()?;
        }
        let (own, c) = (codes[i] as usize, costs[i]);
        for (m, (z, reach)) in z.iter_mut().zip(&mut reach).enumerate() {
            *z = biases[m] + f64::from(u8::from(m != own));
            *reach = biases[m].abs() + 1.0;
        }
        let mut stored = 8.0;
        points.visit(i, |j, x| {
            let line = &weights[j * k..(j + 1) * k];
            stored += 1.0;
            for ((z, reach), w) in z.iter_mut().zip(&mut reach).zip(line) {
                *z += x * w;
                *reach += (x * w).abs();
            }
        });
        let most = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        loss += c * (most - z[own]);
        // Both the largest score and the score of the own class may have this error; once for P and once for the gap.
        of_scores += 4.0 * c * UNIT * stored * reach.iter().copied().fold(0.0, f64::max);
        let given = &alpha[i * k..(i + 1) * k];
        infeasibility = infeasibility.max(repair_sample(given, own, c, &mut gamma));
        linear += gamma.iter().enumerate().filter(|(m, _)| *m != own).map(|(_, g)| g).sum::<f64>();
        let touch = 1e-12 * c;
        let rising = |m: usize| gamma[m] < if m == own { c - touch } else { -touch };
        let least = (0..k).filter(|&m| rising(m)).map(|m| z[m]).fold(f64::INFINITY, f64::min);
        if c > 0.0 && least.is_finite() {
            violation = violation.max(most - least);
        }
        if gamma.iter().any(|g| *g != 0.0) {
            used += 1;
            points.visit(i, |j, x| {
                let places = v[j * k..(j + 1) * k].iter_mut().zip(&mut size[j * k..(j + 1) * k]);
                for ((v, size), g) in places.zip(&gamma) {
                    *v += x * g;
                    *size += (x * g).abs();
                }
            });
        }
        sums.iter_mut().zip(&gamma).for_each(|(s, g)| *s += scaling * g);
    }
    primal += loss;
    let additions = UNIT * (used as f64 + 8.0);
    let of_norm: f64 = v.iter().zip(&size).map(|(v, s)| additions * s * (v.abs() + additions * s)).sum();
    let of_sums = UNIT * (n as f64 + 8.0) * (primal.abs() + linear.abs() + sums.iter().map(|s| s * s).sum::<f64>());
    let rounding = of_scores + of_norm + of_sums;
    let value = -0.5 * v.iter().chain(&sums).map(|v| v * v).sum::<f64>() - linear;
    let mut gap = (primal - value).max(0.0) + rounding;
    if gap.is_nan() || !primal.is_finite() {
        gap = f64::INFINITY;
    }
    let dual = primal - gap;
    Ok(Certificate::Optimality(Optimality {
        primal,
        dual,
        gap,
        rounding,
        // Every class scores 0, so the margin of 1 is missed by 1.
        at_zero: costs.iter().sum(),
        relative_gap: relative(gap, primal, dual),
        violation,
        feasible: infeasibility <= FEASIBLE,
        infeasibility,
        bias: biases.to_vec(),
        squared_norm,
        definite: true,
        worst: Vec::new(),
        approximation: None,
    }))
}
