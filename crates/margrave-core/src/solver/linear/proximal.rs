//! Losses with a dual term: the proximal point method on the dual, until the required gap is reached.
//!
//! A round smooths the losses over a width around the current β, solves the smooth problem by Newton, and moves the
//! centre of the smoothing to the new β. The gap left by a round falls with its width, so the width shrinks as long as
//! Newton reaches its goal. If rounding prevents that, the width grows again: the rounds converge for any width, but
//! more slowly.

use super::Method;
use super::coordinate::{DescentEnd, DescentTarget};
use super::newton::{NewtonEnd, NewtonGoal};
use super::smooth_loss::{DualTerms, SmoothLoss, SmoothedDual};
use super::solve::{GapProgress, LinearHalt, LinearRun, START_WIDTH, WIDTH_FACTOR};
use super::state::{Measure, compensated_sum};
use crate::control::Status;

/// Distance of the score from a change of β, in widths, beyond which samples are inactive in Newton steps.
const ACTIVE_WIDTHS: f64 = 4.0;
/// The part of the required gap at which a round aims, and the largest factor of the width from one round to the next.
const SAFE_SHARE: f64 = 0.4;
const MAX_WIDTH_FACTOR: f64 = 0.7;
/// Rounds without progress in the gap after which another method is tried or the run ends.
const MAX_IDLE_ROUNDS: usize = 8;
/// Most epochs of coordinate descent if Newton makes no progress.
const MAX_FALLBACK_EPOCHS: usize = 300;

/// A saved point of the state, with its measurement.
struct SavedPoint {
    w: Vec<f64>,
    b: f64,
    z: Vec<f64>,
    beta: Vec<f64>,
    v: Vec<f64>,
    sum: f64,
    measure: Measure,
}

impl LinearRun<'_, '_> {
    /// Solves a problem whose loss has a dual term.
    pub(super) fn solve_with_dual_terms(&mut self, terms: &DualTerms) -> Result<Status, LinearHalt> {
        self.set_centre()?;
        let smooth = terms.min_width() >= 0.5 * self.unit;
        self.reason = match smooth {
            true => "the loss is smooth: Newton's method on the primal".into(),
            false => "the loss has kinks: Newton's method on smoothed losses (proximal point method)".into(),
        };
        let warm = self.apply_start(Some(terms))?;
        let mut width = if smooth { 0.0 } else { 2.0 * self.unit };
        let mut descended = false;
        if warm {
            let losses = SmoothedDual::new(terms, width, &self.state.beta);
            let m = self.state.measure(&losses)?;
            self.last = Some(m);
            if m.relative() <= self.target_gap() && self.tolerance_holds(Some(terms)) {
                return Ok(Status::Optimal);
            }
            // Without β in the start, the gap says little about w.
            let given = self.options.start.as_ref().is_some_and(|start| !start.beta.is_empty());
            let most = if given { width } else { START_WIDTH * self.unit };
            width = (self.unit * m.relative().min(1.0).sqrt()).clamp(1e-6 * self.unit, most.max(1e-6 * self.unit));
        } else if self.starts_with_coordinate_descent() {
            descended = true;
            self.reason = "many features: dual coordinate descent, then Newton's method if it is slow".into();
            let max_epochs = if self.options.method == Method::Coordinate { 5000 } else { 600 };
            if self.coordinate_descent(terms, max_epochs)? {
                return Ok(Status::Optimal);
            }
            let relative = self.last.map_or(1.0, |m| m.relative()).min(1.0);
            width = (self.unit * relative.sqrt()).clamp(1e-6 * self.unit, width.max(1e-6 * self.unit));
        } else if smooth && self.start_from_average(terms)? {
            // Newton works on the loss itself.
        } else if self.start_from_subsample()? {
            width *= 0.1;
        }
        let smoothed = |width: f64, beta: &[f64]| SmoothedDual::new(terms, width, beta);
        let status = self.rounds(smoothed, width, Some(terms))?;
        if status != Status::Stalled || descended || self.state.x.points().is_none() {
            return Ok(status);
        }
        self.reason.push_str(", then dual coordinate descent");
        if self.coordinate_descent(terms, MAX_FALLBACK_EPOCHS)? {
            return Ok(Status::Optimal);
        }
        let relative = self.last.map_or(1.0, |m| m.relative()).min(1.0);
        self.rounds(smoothed, self.unit * relative.sqrt(), Some(terms))
    }

    /// Dual coordinate descent from the current β; true if the stopping criteria hold.
    fn coordinate_descent(&mut self, terms: &DualTerms, max_epochs: usize) -> Result<bool, LinearHalt> {
        let (target_gap, seed) = (self.target_gap(), self.options.seed);
        let descended = match self.state.x.points() {
            Some(points) => {
                let target = DescentTarget { gap: target_gap, tol: self.options.stop.tol, max_epochs };
                self.state.descend_coordinates(terms, points, target, seed)?
            }
            None => self.state.descend_blocks(terms, target_gap, seed, 60)?,
        };
        let (DescentEnd::Reached(m) | DescentEnd::Slow(m)) = descended;
        self.last = Some(m);
        Ok(matches!(descended, DescentEnd::Reached(_)) && self.tolerance_holds(Some(terms)))
    }

    /// Rounds with the smoothed losses returned by `smoothed(width, β)`.
    pub(super) fn rounds<L: SmoothLoss>(
        &mut self,
        smoothed: impl Fn(f64, &[f64]) -> L,
        mut width: f64,
        terms: Option<&DualTerms>,
    ) -> Result<Status, LinearHalt> {
        let max_width = 1e6 * self.unit;
        let mut target_gap = self.target_gap();
        let mut active_distance = None;
        let mut progress = GapProgress::default();
        let mut saved: Option<SavedPoint> = None;
        loop {
            let losses = smoothed(width, &self.state.beta);
            let goal = NewtonGoal { of_excess: 1.0, of_objective: 0.3 * target_gap, active_distance, convex: true };
            let has_stalled = match self.state.newton(&losses, goal) {
                Ok(has_stalled) => has_stalled,
                Err(status) => {
                    self.restore_point(saved);
                    return if status == Status::Stalled { Ok(status) } else { Err(status.into()) };
                }
            };
            let (NewtonEnd::Reached(m) | NewtonEnd::Stuck(m)) = has_stalled;
            self.last = Some(m);
            while m.relative() <= target_gap {
                if self.tolerance_holds(terms) {
                    return Ok(Status::Optimal);
                }
                target_gap *= 0.1;
                if target_gap < 1e-16 {
                    break;
                }
            }
            if saved.as_ref().is_none_or(|saved| m.gap() < saved.measure.gap()) {
                saved = Some(self.save_point(m));
            }
            if progress.has_stalled(m.relative(), MAX_IDLE_ROUNDS) {
                self.restore_point(saved);
                return Ok(Status::Stalled);
            }
            if matches!(has_stalled, NewtonEnd::Stuck(_)) {
                width = (3.0 * width).min(max_width);
                active_distance = None;
            } else {
                active_distance = Some(ACTIVE_WIDTHS * width);
                // The gap falls with the square of the width: no further than to some of what is required.
                let needed = (SAFE_SHARE * target_gap / m.relative().max(f64::MIN_POSITIVE)).sqrt();
                width *= needed.clamp(WIDTH_FACTOR, MAX_WIDTH_FACTOR);
            }
        }
    }

    fn save_point(&self, measure: Measure) -> SavedPoint {
        let s = &self.state;
        let (w, z, beta, v) = (s.w.clone(), s.z.clone(), s.beta.clone(), s.v.clone());
        SavedPoint { w, b: s.b, z, beta, v, sum: s.sum, measure }
    }

    fn restore_point(&mut self, saved: Option<SavedPoint>) {
        let Some(saved) = saved else { return };
        let s = &mut self.state;
        (s.w, s.b, s.z, s.beta, s.v, s.sum) = (saved.w, saved.b, saved.z, saved.beta, saved.v, saved.sum);
        self.last = Some(saved.measure);
    }

    /// Moves β to Σβ = 0 for a free bias. A remainder due to rounding goes to samples far from both bounds, where it
    /// violates no optimality condition.
    pub(super) fn balance_beta(&mut self, terms: &DualTerms) {
        if self.state.rho != Some(0.0) {
            return;
        }
        let size: f64 = self.state.beta.iter().map(|b| b.abs()).sum();
        if compensated_sum(&self.state.beta).abs() > 1e-9 * size {
            let losses = SmoothedDual::new(terms, 0.0, &self.state.beta);
            if let Some(beta) = self.state.balanced_beta(&losses) {
                self.state.beta = beta;
            }
        }
        let beta = &mut self.state.beta;
        let rooms: Vec<f64> = (0..beta.len())
            .map(|i| {
                let (t, b) = (terms.get(i), beta[i]);
                if b == 0.0 && t.eps > 0.0 { 0.0 } else { (b - t.lo).min(t.hi - b) }
            })
            .collect();
        let largest = rooms.iter().copied().fold(0.0, f64::max);
        let inner: Vec<usize> = (0..rooms.len()).filter(|&i| rooms[i] > 0.0 && rooms[i] >= 0.5 * largest).collect();
        for round in 0..4 {
            let sum = compensated_sum(beta);
            // The later rounds correct the rounding of the first.
            let chosen = if round == 0 { inner.as_slice() } else { &inner[..inner.len().min(1)] };
            if sum == 0.0 || sum.abs() > 0.25 * largest * chosen.len() as f64 {
                break;
            }
            chosen.iter().for_each(|&i| beta[i] -= sum / chosen.len() as f64);
        }
    }

    /// Whether the KKT violation of β at the scores is within the tolerance.
    pub(super) fn tolerance_holds(&mut self, terms: Option<&DualTerms>) -> bool {
        let Some(tol) = self.options.stop.tol else { return true };
        let state = &self.state;
        let Some(terms) = terms else {
            self.violation = state.slope_violation();
            return self.violation <= tol;
        };
        self.violation = state.box_violation(terms);
        self.violation <= tol
    }
}
