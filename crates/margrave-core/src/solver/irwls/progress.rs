//! Detection of runs without progress.

use crate::certificate::Certificate;
use crate::solver::gap::Gap;

/// The relative gap of a certificate; `None` for a loss that is not convex.
pub(super) fn relative_gap(certificate: &Certificate) -> Option<f64> {
    let (primal, dual, difference) = (certificate.primal(), certificate.dual()?, certificate.gap()?);
    let rounding = 2.0 * f64::EPSILON * primal.abs().max(dual.abs());
    Some(Gap { primal, dual, difference, rounding }.relative())
}

/// Decides whether a run still makes progress, by the gap of its certificates or, without a gap, by the lowest
/// objective. Called once per [`MAX_IDLE`](super::solve::MAX_IDLE) systems whose residual did not fall.
pub(super) struct StallCheck {
    gap: f64,
    lowest: f64,
}

impl StallCheck {
    pub(super) fn new() -> Self {
        Self { gap: f64::INFINITY, lowest: f64::INFINITY }
    }

    /// Records the gap and the lowest objective. False if neither the gap has fallen by 10 % nor the objective by a
    /// relative 1e-7 (for a convex loss: by the smaller of 1 % of the gap and 1e-4).
    pub(super) fn has_progress(&mut self, gap: Option<f64>, lowest: f64) -> bool {
        let min_decrease = gap.map_or(1e-7, |gap| (0.01 * gap).min(1e-4)).max(1e-12);
        let improved = gap.is_some_and(|gap| gap < 0.9 * self.gap)
            || lowest.is_finite() && !(lowest > self.lowest - min_decrease * self.lowest.abs());
        self.gap = gap.map_or(self.gap, |gap| gap.min(self.gap));
        self.lowest = lowest.min(self.lowest);
        improved
    }
}
