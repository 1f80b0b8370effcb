//! The best bias: the minimum of the one-dimensional convex function φ(b) = Σ cᵢℓ(yᵢ, fᵢ + b) + s·b.

use super::Point;
use crate::control::Interrupt;

/// The farthest a bias is looked for: beyond it φ is taken to have no minimum.
const FARTHEST: f64 = 1e18;

/// A b at which φ is within `tol` of its minimum over the variables of group `g`, by bisection on φ′.
///
/// A kink needs no care: φ′ is monotone and bisection closes in on the point where it changes sign. Convexity bounds what
/// is left to gain between `near` and `far` by |φ′|·width at either end. With no sign change (a constraint that cannot
/// be met) the last point tried is returned.
pub(super) fn best(
    point: &Point<'_, '_>,
    g: usize,
    members: Option<&[u32]>,
    given: Option<f64>,
    tol: f64,
) -> Result<f64, Interrupt> {
    let p = point.problem;
    let s = p.constraint.sum(g);
    let slope = |b: f64| {
        let sum = point.sum(members, |i| match p.costs[i] {
            0.0 => 0.0,
            c => c * p.loss(i).slope(p.targets[i], point.f(i) + b),
        })?;
        Ok(s + sum)
    };
    let start = given.filter(|b| b.is_finite()).unwrap_or(0.0);
    let at_start: f64 = slope(start)?;
    if at_start == 0.0 {
        return Ok(start);
    }
    // A solver's own bias is close; without one, nothing is known.
    let mut step = if given.is_some() { 1e-6 * (1.0 + start.abs()) } else { 1.0 };
    let way = -at_start.signum();
    let (mut near, mut slope_near) = (start, at_start);
    let (mut far, mut slope_far);
    loop {
        far = start + way * step;
        slope_far = slope(far)?;
        if slope_far * way >= 0.0 {
            break;
        }
        if step > FARTHEST {
            return Ok(far);
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
