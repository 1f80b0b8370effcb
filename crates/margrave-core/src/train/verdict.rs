//! The verdict: criteria + certificate + how the solver ended → status.

use serde::Serialize;

use crate::certificate::{Certificate, TailCheck};
use crate::control::Status;
use crate::solver::Stop;

/// The relative gap required where only a KKT violation was given: at large costs a small violation proves little.
pub const DEFAULT_GAP: f64 = 1e-2;

/// The relative gap on its centres that is required of an approximate machine.
pub const DEFAULT_OWN_GAP: f64 = 1e-4;

/// The KKT violation required where nothing was given, in units of the score of a classifier or of the spread of the targets.
pub const DEFAULT_TOL: f64 = 1e-3;

/// Factor by which the violation of the saved machine may exceed the tolerance: solvers measure it before the bias is chosen.
const VIOLATION_SLACK: f64 = 2.0;

/// A relative gap above this is attributed to rounding only if the optimality conditions hold.
const MAX_ROUNDING_GAP: f64 = 1e-6;

/// Rounding above this share of the objective of the zero machine leaves nothing proven, whatever the conditions look like: the
/// scores they are computed from are not known either.
const MAX_ROUNDING_SHARE: f64 = 1e-2;

/// The criteria a machine has to meet to count as optimal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Asked {
    /// Largest KKT violation, in units of the score.
    pub tol: Option<f64>,
    /// Largest relative gap.
    pub gap: Option<f64>,
    /// Largest relative gap of the problem on its centres, for an approximate machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<f64>,
}

/// Whether a certificate meets the criteria.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// It does.
    Yes,
    /// The gap is within the bound on its own rounding error: double precision cannot resolve it further.
    WithinRounding,
    /// It does not.
    No,
}

impl From<Stop> for Asked {
    /// A violation alone is not enough: see [`DEFAULT_GAP`].
    fn from(stop: Stop) -> Self {
        Self { tol: stop.tol, gap: stop.gap.or(stop.tol.map(|_| DEFAULT_GAP)), own: None }
    }
}

impl Asked {
    /// Whether the violation is small enough.
    fn violation_met(&self, certificate: &Certificate) -> bool {
        self.tol.is_none_or(|tol| certificate.violation() <= VIOLATION_SLACK * tol)
    }

    /// Whether `certificate` meets the criteria. One that was not checked never does.
    pub fn met(&self, certificate: &Certificate) -> Met {
        match certificate {
            Certificate::Unknown => Met::No,
            Certificate::Stationarity(s) => {
                // There is no gap to require: without a tolerance the default one applies.
                let most = VIOLATION_SLACK * self.tol.unwrap_or(DEFAULT_TOL);
                if s.stationarity() <= most { Met::Yes } else { Met::No }
            }
            Certificate::Optimality(o) => {
                let enough = |gap: f64| o.relative_gap() <= gap;
                // If the optimum is 0, every relative gap is large: then the optimality conditions decide.
                let conditions = o.violation() <= VIOLATION_SLACK * self.tol.unwrap_or(DEFAULT_TOL).min(DEFAULT_TOL);
                let as_good_as_it_gets = o.approximation().is_none()
                    && o.gap() <= 2.0 * o.rounding()
                    && (o.relative_gap() <= MAX_ROUNDING_GAP
                        || (conditions && o.gap() <= MAX_ROUNDING_SHARE * o.at_zero().max(o.primal().abs())));
                let own_met = match (self.own, o.approximation()) {
                    (Some(own), Some(a)) => a.own_relative_gap <= own || a.own_gap <= 2.0 * o.rounding(),
                    // Only a machine on centres has a gap of its own.
                    (Some(own), None) => enough(own),
                    (None, _) => true,
                };
                // What was certified on the centres alone says nothing about the exact problem.
                let exact = o.approximation().is_none_or(|a| a.check != TailCheck::Own);
                let gap_met = self.gap.is_none_or(|gap| exact && enough(gap));
                match (gap_met && own_met, self.violation_met(certificate)) {
                    (true, true) => Met::Yes,
                    // Rounding affects the violation of a machine, too.
                    _ if as_good_as_it_gets => Met::WithinRounding,
                    _ => Met::No,
                }
            }
        }
    }

    /// A stopping rule for another attempt, after one that ended with `certificate` under `stop`: stricter where it was not met.
    pub fn stricter(&self, stop: Stop, certificate: &Certificate) -> Stop {
        let tol = match stop.tol {
            Some(tol) if !self.violation_met(certificate) => Some(0.1 * tol),
            same => same,
        };
        let short = |asked: f64| certificate.relative_gap().is_some_and(|gap| !(gap <= asked));
        let gap = match (stop.gap, self.gap) {
            (None, Some(asked)) => Some(0.5 * asked),
            (Some(gap), Some(asked)) if short(asked) => Some(0.1 * gap),
            (same, _) => same,
        };
        Stop { tol, gap }
    }
}

/// How a training ended. The certificate decides: a machine that meets the criteria is optimal however its solver ended (unless
/// it was interrupted by the user), and one that does not meet them never is.
pub fn verdict(asked: &Asked, certificate: &Certificate, ended: Status) -> Status {
    match (asked.met(certificate), ended) {
        (_, Status::Interrupted) => Status::Interrupted,
        (Met::Yes | Met::WithinRounding, _) => Status::Optimal,
        (Met::No, Status::Optimal) => Status::Inaccurate,
        (Met::No, limit) => limit,
    }
}

/// The tolerance where none was given: [`DEFAULT_TOL`] times the standard deviation of the targets of a regression.
pub fn default_tol(regression_targets: Option<&[f64]>) -> f64 {
    let Some(targets) = regression_targets.filter(|t| !t.is_empty()) else { return DEFAULT_TOL };
    let n = targets.len() as f64;
    let largest = targets.iter().fold(0.0f64, |m, y| m.max(y.abs()));
    if !(largest > 0.0 && largest.is_finite()) {
        return DEFAULT_TOL;
    }
    // Scaled by the largest, so that squares neither overflow nor underflow.
    let mean = targets.iter().map(|y| y / largest).sum::<f64>() / n;
    let spread = (targets.iter().map(|y| (y / largest - mean).powi(2)).sum::<f64>() / n).sqrt();
    let unit = if spread > 1e-12 { spread } else { 1.0 };
    DEFAULT_TOL * unit * largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::certify;
    use crate::control::{Control, Threads};
    use crate::data::Points;
    use crate::gram::PrecomputedGram;
    use crate::loss::Hinge;
    use crate::problem::{Constraint, KernelProblem};

    /// The certificate of two points at ∓1 with β = (−a, a): optimal at a = ½.
    fn at(a: f64) -> Certificate {
        far(0.0, a)
    }

    /// The same points at a distance of √`far` from the origin along another axis.
    fn far(far: f64, a: f64) -> Certificate {
        let (own, other) = (far + 1.0, far - 1.0);
        let gram = PrecomputedGram::new(Points::dense_f64(2, 2, vec![own, other, other, own]).unwrap());
        let problem = KernelProblem::new(&gram, &[-1.0, 1.0], &[10.0, 10.0], &Hinge, Constraint::free_bias()).unwrap();
        certify(&problem, &[-a, a], Some(&[0.0]), None, &Control::unlimited(Threads::one())).unwrap()
    }

    #[test]
    fn the_certificate_decides() {
        let asked = Asked::from(Stop::default());
        assert_eq!(asked, Asked { tol: Some(1e-3), gap: Some(DEFAULT_GAP), own: None });
        for ended in [Status::Optimal, Status::Stalled, Status::TimeLimit, Status::IterationLimit] {
            assert_eq!(verdict(&asked, &at(0.5), ended), Status::Optimal);
        }
        assert_eq!(verdict(&asked, &at(0.5), Status::Interrupted), Status::Interrupted);
        assert_eq!(verdict(&asked, &at(0.3), Status::Optimal), Status::Inaccurate);
        assert_eq!(verdict(&asked, &at(0.3), Status::TimeLimit), Status::TimeLimit);
        assert_eq!(verdict(&asked, &Certificate::Unknown, Status::Optimal), Status::Inaccurate);
        // A gap alone requires no violation, but a violation alone also requires a gap.
        let loose = Asked::from(Stop { tol: None, gap: Some(0.9) });
        assert_eq!((loose.met(&at(0.45)), asked.met(&at(0.45))), (Met::Yes, Met::No));
    }

    #[test]
    fn a_gap_within_its_rounding_is_met_and_that_is_known() {
        let asked = Asked { tol: None, gap: Some(1e-30), own: None };
        assert_eq!(asked.met(&at(0.5)), Met::WithinRounding);
        assert_eq!(asked.met(&at(0.5 - 1e-9)), Met::No);
    }

    #[test]
    fn rounding_as_large_as_the_problem_proves_nothing() {
        let asked = Asked { tol: None, gap: Some(1e-10), own: None };
        // Rounding of 1e-5 of an objective of 20 at zero is as good as double precision gets; one of its order is no proof.
        for (distance, met) in [(1e10, Met::WithinRounding), (1e14, Met::No)] {
            let certificate = far(distance, 0.5);
            let o = certificate.optimality().unwrap();
            assert!(
                o.gap() <= 2.0 * o.rounding() && o.relative_gap() > MAX_ROUNDING_GAP && o.at_zero() == 20.0,
                "{o:?}"
            );
            assert_eq!(asked.met(&certificate), met, "{o:?}");
        }
    }

    #[test]
    fn another_attempt_is_stricter_where_the_first_fell_short() {
        let asked = Asked::from(Stop::default());
        let next = asked.stricter(Stop::default(), &at(0.3));
        assert_eq!(next, Stop { tol: Some(1e-4), gap: Some(0.5e-2) });
        assert_eq!(asked.stricter(next, &at(0.3)).gap, Some(0.5e-3));
    }

    #[test]
    fn tolerances_follow_the_spread_of_the_targets() {
        assert_eq!(default_tol(None), 1e-3);
        let unit = default_tol(Some(&[-1.0, 1.0]));
        assert!((unit - 1e-3).abs() < 1e-18);
        assert!((default_tol(Some(&[1e-200, 3e-200])) / 1e-203 - 1.0).abs() < 1e-12);
        assert!((default_tol(Some(&[5.0, 5.0])) - 5e-3).abs() < 1e-15);
        assert_eq!(default_tol(Some(&[0.0, 0.0])), 1e-3);
    }
}
