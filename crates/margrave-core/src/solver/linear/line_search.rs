//! A line search by the derivative along a convex direction, shared by the Newton methods.

use crate::control::{Control, Interrupt};

/// Most evaluations of a search.
const MAX_EVALUATIONS: usize = 60;
/// The search ends when the derivative is at most this fraction of that at the start.
const SLOPE_FRACTION: f64 = 0.1;

/// The step t > 0 at which the derivative along a direction has fallen to [`SLOPE_FRACTION`] of `start`, its value at
/// 0, which must be negative. If the search does not get there, the largest step known to lie before the minimum; 0 if
/// there is none. `derivatives` returns the first and second derivative at t.
///
/// Newton steps on the derivative, safeguarded by a bracket.
pub(super) fn search_derivative(
    start: f64,
    control: &Control,
    mut derivatives: impl FnMut(f64) -> (f64, f64),
) -> Result<f64, Interrupt> {
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut t = 1.0;
    for _ in 0..MAX_EVALUATIONS {
        control.check()?;
        let (slope, curvature) = derivatives(t);
        if slope.abs() <= SLOPE_FRACTION * start.abs() {
            return Ok(t);
        }
        if slope < 0.0 {
            low = t
        } else {
            high = t
        }
        let newton = t - slope / curvature;
        let inside = newton > low && (high.is_infinite() || newton < high);
        t = match (inside, high.is_finite()) {
            // Far from the root, Newton on a piecewise linear slope advances only one piece per step.
            (true, true) => newton.clamp(low + 0.05 * (high - low), high - 0.05 * (high - low)),
            (false, true) => 0.5 * (low + high),
            (true, false) => newton.min(4.0 * t),
            (false, false) => 2.0 * t,
        };
        if high.is_finite() && high - low <= 1e-14 * high {
            break;
        }
    }
    Ok(low)
}
