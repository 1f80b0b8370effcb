//! The best bias: the minimum of the one-dimensional convex function φ(b) = Σ cᵢℓ(yᵢ, fᵢ + b) + s·b.

use super::Point;
use super::bulk::{LossView, evaluate};
use crate::control::Interrupt;

/// Search limit for the bias, relative to the largest score and target: beyond it φ is assumed to have no minimum.
const FARTHEST: f64 = 1e18;

/// A b at which φ is within `tol` of its minimum over the variables of group `g`, by bisection on φ′.
///
/// Kinks need no special treatment: φ′ is monotone and bisection converges to the point where it changes sign.
/// Convexity bounds the remaining decrease between `near` and `far` by |φ′|·width at either end. Without a sign change
/// (an infeasible constraint) the last point tried is returned.
pub(super) fn best(
    point: &Point<'_, '_>,
    g: usize,
    members: Option<&[u32]>,
    given: Option<f64>,
    tol: f64,
) -> Result<f64, Interrupt> {
    let p = point.problem;
    let s = p.constraint.sum(g);
    let kinds = kinds(point, members);
    let slope = |b: f64| {
        if let Some(kinds) = &kinds {
            let of: Vec<u32> = kinds.iter().map(|&(i, _)| i as u32).collect();
            let z: Vec<f64> = kinds.iter().map(|&(i, _)| point.f(i) + b).collect();
            let slopes = evaluate(p, LossView::Slope, &of, &z);
            return Ok(s + kinds.iter().zip(&slopes).map(|((_, c), slope)| c * slope).sum::<f64>());
        }
        Ok(s + point.sum_slopes(members, |i| point.f(i) + b)?)
    };
    let start = given.filter(|b| b.is_finite()).unwrap_or(0.0);
    let at_start: f64 = slope(start)?;
    if at_start == 0.0 {
        return Ok(start);
    }
    // The solver's own bias is a good start; without it nothing is known.
    let mut step = if given.is_some() { 1e-6 * (1.0 + start.abs()) } else { 1.0 };
    let way = -at_start.signum();
    let size = |i: usize| point.f(i).abs().max(p.targets[i].abs());
    let largest = (0..p.len()).map(size).filter(|v| v.is_finite()).fold(1.0, f64::max);
    let (mut near, mut slope_near) = (start, at_start);
    let (mut far, mut slope_far);
    loop {
        far = start + way * step;
        slope_far = slope(far)?;
        if slope_far * way >= 0.0 {
            break;
        }
        if step > FARTHEST * largest || !far.is_finite() {
            return Ok(if far.is_finite() { far } else { near });
        }
        (near, slope_near) = (far, slope_far);
        step *= 16.0;
    }
    loop {
        let width = (far - near).abs();
        let middle = 0.5 * (near + far);
        if slope_near.abs().min(slope_far.abs()) * width <= tol || middle == near || middle == far {
            break;
        }
        let at = slope(middle)?;
        if at * way >= 0.0 {
            (far, slope_far) = (middle, at);
        } else {
            (near, slope_near) = (middle, at);
        }
    }
    Ok(if slope_near.abs() < slope_far.abs() { near } else { far })
}

/// If all scores are equal (for example β = 0) and there are few distinct targets: one variable for each distinct term
/// of φ, with the total cost of its kind.
fn kinds(point: &Point<'_, '_>, members: Option<&[u32]>) -> Option<Vec<(usize, f64)>> {
    const FEW: usize = 16;
    let p = point.problem;
    let count = members.map_or(p.len(), <[u32]>::len);
    let member = |k: usize| members.map_or(k, |list| list[k] as usize);
    let mut kinds: Vec<(usize, f64)> = Vec::new();
    for i in (0..count).map(member) {
        if point.f(i).to_bits() != point.f(member(0)).to_bits() {
            return None;
        }
        match kinds.iter().position(|&(j, _)| p.targets[j].to_bits() == p.targets[i].to_bits()) {
            Some(at) => kinds[at].1 += p.costs[i],
            None if kinds.len() == FEW => return None,
            None => kinds.push((i, p.costs[i])),
        }
    }
    // A kind with zero cost contributes nothing, and its loss may not be finite.
    kinds.retain(|(_, cost)| *cost > 0.0);
    Some(kinds)
}
