//! The Moreau envelope of a convex loss without a dual term, for losses with a steep slope (uˢ with s < 2).
//!
//! With h the conjugate of the loss of a sample, ½e(β − βₖ)² is added to h(β) as in `smooth_loss.rs`. Then β = −cℓ′(s),
//! where s solves
//!
//! ```text
//! s + e·c·ℓ′(s) = z − e·βₖ
//! ```
//!
//! and the curvature is cℓ″(s)/(1 + e·cℓ″(s)), at most 1/e.

use super::smooth_loss::{SmoothLoss, UnsmoothedLoss};
use crate::problem::LinearProblem;

/// Most steps to the root; bisection alone would need one per bit.
const MAX_STEPS: usize = 80;

/// The Moreau envelopes of all samples.
pub(super) struct MoreauEnvelope<'a> {
    problem: &'a LinearProblem<'a>,
    direct: UnsmoothedLoss<'a>,
    /// e·c, in units of the score per unit of slope.
    width: f64,
    centre: Vec<f64>,
}

impl<'a> MoreauEnvelope<'a> {
    /// `centre` is βₖ.
    pub(super) fn new(problem: &'a LinearProblem<'a>, width: f64, centre: &[f64]) -> Self {
        let min_width = 1e-14 * (1.0 + problem.targets.iter().fold(0.0f64, |m, y| m.max(y.abs())));
        Self { problem, direct: UnsmoothedLoss::new(problem), width: width.max(min_width), centre: centre.to_vec() }
    }

    fn slope(&self, i: usize, z: f64) -> f64 {
        self.problem.loss.slope(self.problem.targets[i], z)
    }

    /// ℓ″ by a difference over a distance much smaller than the smoothing.
    fn second(&self, i: usize, z: f64) -> f64 {
        let h = (1e-5 * self.width).max(1e-9 * z.abs());
        ((self.slope(i, z + h) - self.slope(i, z - h)) / (2.0 * h)).max(0.0)
    }

    /// s: the root of a function whose slope is at least 1.
    fn shifted(&self, i: usize, z: f64) -> f64 {
        let goal = z - self.width / self.problem.costs[i] * self.centre[i];
        let error = |s: f64| s + self.width * self.slope(i, s) - goal;
        let mut s = z;
        let mut at = error(s);
        let (mut low, mut high) = (s - at.abs(), s + at.abs());
        for _ in 0..MAX_STEPS {
            if at == 0.0 {
                break;
            }
            if at > 0.0 {
                high = s
            } else {
                low = s
            }
            let newton = s - at / (1.0 + self.width * self.second(i, s));
            let next = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
            if next == s || next <= low || next >= high {
                break;
            }
            let before = at.abs();
            s = next;
            at = error(s);
            if at.abs() > 0.5 * before {
                // Newton's steps converge slowly: bisect.
                if at > 0.0 {
                    high = s
                } else {
                    low = s
                }
                s = 0.5 * (low + high);
                at = error(s);
            }
        }
        s
    }
}

impl SmoothLoss for MoreauEnvelope<'_> {
    fn beta(&self, i: usize, z: f64) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => {
                let (lo, hi) = self.problem.loss.domain(self.problem.targets[i]);
                // Computed from the equation of s, because the slope may be steep there.
                let s = self.shifted(i, z);
                (self.centre[i] + c * (s - z) / self.width).clamp(-c * hi, -c * lo)
            }
        }
    }

    fn curvature(&self, i: usize, z: f64) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => {
                let second = self.second(i, self.shifted(i, z));
                c * second / (1.0 + self.width * second)
            }
        }
    }

    fn distance(&self, _i: usize, _z: f64) -> f64 {
        0.0
    }

    fn value(&self, i: usize, z: f64) -> f64 {
        self.direct.value(i, z)
    }

    fn smooth_value(&self, i: usize, z: f64) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => {
                let s = self.shifted(i, z);
                let error = s - z + self.width / c * self.centre[i];
                self.direct.value(i, s) + 0.5 * c * error * error / self.width
            }
        }
    }

    fn excess(&self, i: usize, z: f64, beta: f64) -> f64 {
        self.direct.excess(i, z, beta)
    }

    fn bounds(&self, i: usize) -> Option<(f64, f64)> {
        self.direct.bounds(i)
    }
}
