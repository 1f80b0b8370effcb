//! The exact minimum along the line on which one variable grows and another falls (004 §SMO; κ ≤ 0 included).

use crate::loss::DualTerm;

/// How far to move `up` by +t and `down` by −t: the minimum over t ≥ 0 of the piecewise quadratic
///
/// slope·t + ½κt² + kinks, with kinks of size 2·eps where a β passes through zero, up to the nearer bound.
///
/// `slope` < 0 is the slope at t = 0⁺, which includes the present sides of the kinks. Returns 0 if nothing is gained,
/// +∞ only if κ ≤ 0 and no bound is in the way. `down: None` moves `up` alone.
pub(super) fn length(slope: f64, kappa: f64, up: (f64, &DualTerm), down: Option<(f64, &DualTerm)>) -> f64 {
    let (bi, ti) = up;
    let mut end = ti.hi - bi;
    // (distance, jump in slope) of the kinks ahead.
    let mut kinks = [(f64::INFINITY, 0.0); 2];
    if bi < 0.0 && ti.eps > 0.0 {
        kinks[0] = (-bi, 2.0 * ti.eps);
    }
    if let Some((bj, tj)) = down {
        end = end.min(bj - tj.lo);
        if bj > 0.0 && tj.eps > 0.0 {
            kinks[1] = (bj, 2.0 * tj.eps);
        }
    }
    if kinks[1].0 < kinks[0].0 {
        kinks.swap(0, 1);
    }
    let (mut at, mut slope) = (0.0, slope);
    for (distance, jump) in kinks.into_iter().chain([(end, f64::INFINITY)]) {
        if slope >= 0.0 {
            return at;
        }
        let stop = distance.min(end);
        if kappa > 0.0 && slope + kappa * (stop - at) >= 0.0 {
            return at - slope / kappa;
        }
        if stop == f64::INFINITY {
            return f64::INFINITY;
        }
        slope += kappa * (stop - at) + jump;
        at = stop;
        if stop >= end {
            return end;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: DualTerm = DualTerm { p: 0.0, eps: 0.0, d: 0.0, lo: -1.0, hi: 1.0 };

    #[test]
    fn the_unconstrained_minimum_is_clipped_to_the_box() {
        assert_eq!(length(-1.0, 4.0, (0.0, &BOX), Some((0.0, &BOX))), 0.25);
        assert_eq!(length(-8.0, 4.0, (0.5, &BOX), Some((0.0, &BOX))), 0.5);
        assert_eq!(length(-8.0, 4.0, (0.0, &BOX), Some((-0.9, &BOX))), 1.0 - 0.9);
        assert_eq!(length(1.0, 4.0, (0.0, &BOX), None), 0.0);
    }

    #[test]
    fn flat_and_concave_pairs_go_to_the_end() {
        assert_eq!(length(-1.0, 0.0, (0.0, &BOX), Some((0.0, &BOX))), 1.0);
        assert_eq!(length(-1.0, -3.0, (0.0, &BOX), Some((0.0, &BOX))), 1.0);
        let open = DualTerm { hi: f64::INFINITY, ..BOX };
        assert_eq!(length(-1.0, 0.0, (0.0, &open), None), f64::INFINITY);
    }

    #[test]
    fn kinks_are_passed_or_stopped_at() {
        let tube = DualTerm { eps: 0.5, ..BOX };
        // From β = −½: slope −1 until 0 (t = ½), then −1 + 1 = 0 with κ = 0: stays at the kink.
        assert_eq!(length(-1.0, 0.0, (-0.5, &tube), None), 0.5);
        // Steeper: passes it and goes on to the bound.
        assert_eq!(length(-2.0, 0.0, (-0.5, &tube), None), 1.5);
        // With curvature: slope −2 + t until ½ is −1.5, +1 = −0.5, reaches 0 half a unit later.
        assert_eq!(length(-2.0, 1.0, (-0.5, &tube), None), 1.0);
    }
}
