//! The relative duality gap of the stopping criteria: (P − D) / max(|P|, |D|). It has no absolute term, which would
//! make small problems look solved.

/// P, D and their difference at one point, each known up to `rounding`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gap {
    /// P.
    pub(crate) primal: f64,
    /// D.
    pub(crate) dual: f64,
    /// P − D, summed sample by sample where that avoids cancellation.
    pub(crate) difference: f64,
    /// Bound on the rounding error of the sums behind `difference`.
    pub(crate) rounding: f64,
}

impl Gap {
    /// The relative gap. A difference within its rounding error counts as zero; NaN counts as infinite.
    pub(crate) fn relative(&self) -> f64 {
        if !(self.primal.is_finite() && self.dual.is_finite() && self.difference.is_finite()) {
            return f64::INFINITY;
        }
        if self.difference <= self.rounding {
            return 0.0;
        }
        self.difference / self.primal.abs().max(self.dual.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_relative_to_the_size_of_the_problem() {
        let gap = |primal: f64, dual: f64| Gap { primal, dual, difference: primal - dual, rounding: 1e-20 }.relative();
        assert_eq!(gap(2.4e-4, 0.0), 1.0);
        assert_eq!(gap(0.0, 0.0), 0.0);
        assert!((gap(3e-12, 2e-12) - 1.0 / 3.0).abs() < 1e-15);
        assert_eq!(gap(f64::NAN, 0.0), f64::INFINITY);
        assert_eq!(gap(f64::INFINITY, 0.0), f64::INFINITY);
        let noise = Gap { primal: 5.0, dual: 5.0, difference: 1e-15, rounding: 4e-15 };
        assert_eq!(noise.relative(), 0.0);
    }
}
