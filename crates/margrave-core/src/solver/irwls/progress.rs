//! Whether a run still gets anywhere: what a stall is judged by.

use crate::certificate::Certificate;
use crate::solver::gap::Gap;

/// The relative gap of a proof; `None` for a loss that is not convex.
pub(super) fn relative_gap(certificate: &Certificate) -> Option<f64> {
    let (primal, dual, difference) = (certificate.primal(), certificate.dual()?, certificate.gap()?);
    let rounding = 2.0 * f64::EPSILON * primal.abs().max(dual.abs());
    Some(Gap { primal, dual, difference, rounding }.relative())
}

/// Whether a run still gains, by the gap its certificates find or, without one, by the lowest objective. Asked once per
/// [`PATIENCE`](super::solve::PATIENCE) systems whose residual did not fall.
pub(super) struct Progress {
    gap: f64,
    lowest: f64,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { gap: f64::INFINITY, lowest: f64::INFINITY }
    }

    /// Notes where the run stands; false if neither the gap has fallen by a tenth nor the objective by 1e-7 of itself (for a convex
    /// loss: by a hundredth of the gap, or 1e-4 of itself).
    pub(super) fn goes_on(&mut self, gap: Option<f64>, lowest: f64) -> bool {
        let step = gap.map_or(1e-7, |gap| (0.01 * gap).min(1e-4)).max(1e-12);
        let gains = gap.is_some_and(|gap| gap < 0.9 * self.gap)
            || lowest.is_finite() && !(lowest > self.lowest - step * self.lowest.abs());
        self.gap = gap.map_or(self.gap, |gap| gap.min(self.gap));
        self.lowest = lowest.min(self.lowest);
        gains
    }
}
