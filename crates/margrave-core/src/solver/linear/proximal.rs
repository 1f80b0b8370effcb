//! Losses with a dual term: proximal points of the dual until the gap asked for.
//!
//! A round smooths the losses over a width about the present β, solves the smooth problem by Newton and moves the smoothing to the new β. The
//! gap left by a round falls with its width, so the width shrinks as long as Newton reaches its goal. Where rounding keeps Newton from
//! it the width grows again: the rounds converge for any width, only not as fast.

use super::Method;
use super::coordinate::Descended;
use super::newton::{Ended, Goal};
use super::piece::{Piece, Smoothed, Terms};
use super::solve::{Halt, Progress, Run, SHRINK};
use super::state::{Measure, exact_sum};
use crate::control::Status;

/// Score distance, in widths, from which samples are left out of Newton steps.
const REACH: f64 = 4.0;
/// Rounds without progress in the gap after which another method is tried, or the run ends.
const PATIENCE: usize = 8;
/// Epochs of coordinate descent where Newton makes no progress.
const EPOCHS: usize = 300;

/// The best point so far.
struct Kept {
    w: Vec<f64>,
    b: f64,
    z: Vec<f64>,
    beta: Vec<f64>,
    v: Vec<f64>,
    sum: f64,
    measure: Measure,
}

impl Run<'_, '_> {
    /// Losses with a dual term.
    pub(super) fn proximal(&mut self, terms: &Terms) -> Result<Status, Halt> {
        self.set_centre()?;
        let smooth = terms.least_width() >= 0.5 * self.unit;
        self.reason = match smooth {
            true => "the loss is smooth: Newton's method on the primal".into(),
            false => "Newton's method on smoothed losses, the smoothing moved along with β".into(),
        };
        let resumed = self.resume(Some(terms))?;
        let mut width = if smooth { 0.0 } else { 2.0 * self.unit };
        let mut descended = false;
        if resumed {
            let piece = Smoothed::new(terms, width, &self.state.beta);
            let m = self.state.measure(&piece)?;
            self.last = Some(m);
            if m.relative() <= self.aim() && self.tol_holds(Some(terms)) {
                return Ok(Status::Optimal);
            }
            width = (self.unit * m.relative().min(1.0).sqrt()).clamp(1e-6 * self.unit, width.max(1e-6 * self.unit));
        } else if self.coordinates().is_some() {
            descended = true;
            self.reason = "many features: dual coordinate descent, and Newton's method where it is slow".into();
            let most = if self.options.method == Method::Coordinate { 5000 } else { 600 };
            if self.descend(terms, most)? {
                return Ok(Status::Optimal);
            }
            let relative = self.last.map_or(1.0, |m| m.relative()).min(1.0);
            width = (self.unit * relative.sqrt()).clamp(1e-6 * self.unit, width.max(1e-6 * self.unit));
        } else if self.part()? {
            width *= 0.1;
        }
        let smoothed = |width: f64, beta: &[f64]| Smoothed::new(terms, width, beta);
        let status = self.rounds(smoothed, width, Some(terms))?;
        if status != Status::Stalled || descended || self.state.x.points().is_none() {
            return Ok(status);
        }
        self.reason.push_str(", then dual coordinate descent");
        if self.descend(terms, EPOCHS)? {
            return Ok(Status::Optimal);
        }
        let relative = self.last.map_or(1.0, |m| m.relative()).min(1.0);
        self.rounds(smoothed, self.unit * relative.sqrt(), Some(terms))
    }

    /// Dual coordinate descent from the present β; true if what was asked for holds.
    fn descend(&mut self, terms: &Terms, most: usize) -> Result<bool, Halt> {
        let (aim, seed) = (self.aim(), self.options.seed);
        let descended = match self.state.x.points() {
            Some(points) => self.state.descend_coordinates(terms, points, aim, seed, most)?,
            None => self.state.descend_blocks(terms, aim, seed, 60)?,
        };
        let (Descended::Reached(m) | Descended::Crawling(m)) = descended;
        self.last = Some(m);
        Ok(matches!(descended, Descended::Reached(_)) && self.tol_holds(Some(terms)))
    }

    /// Rounds with the smoothed losses that `smoothed(width, β)` gives.
    pub(super) fn rounds<P: Piece>(
        &mut self,
        smoothed: impl Fn(f64, &[f64]) -> P,
        mut width: f64,
        terms: Option<&Terms>,
    ) -> Result<Status, Halt> {
        let widest = 1e6 * self.unit;
        let mut aim = self.aim();
        let mut reach = None;
        let mut progress = Progress::default();
        let mut kept: Option<Kept> = None;
        loop {
            let piece = smoothed(width, &self.state.beta);
            let goal = Goal { share: 1.0, relative: 0.3 * aim, reach, convex: true };
            let ended = match self.state.newton(&piece, goal) {
                Ok(ended) => ended,
                Err(status) => {
                    self.restore(kept);
                    return if status == Status::Stalled { Ok(status) } else { Err(status.into()) };
                }
            };
            let (Ended::Reached(m) | Ended::Stuck(m)) = ended;
            self.last = Some(m);
            while m.relative() <= aim {
                if self.tol_holds(terms) {
                    return Ok(Status::Optimal);
                }
                aim *= 0.1;
                if aim < 1e-16 {
                    break;
                }
            }
            if kept.as_ref().is_none_or(|kept| m.gap() < kept.measure.gap()) {
                kept = Some(self.keep(m));
            }
            if progress.ended(m.relative(), PATIENCE) {
                self.restore(kept);
                return Ok(Status::Stalled);
            }
            if matches!(ended, Ended::Stuck(_)) {
                width = (3.0 * width).min(widest);
                reach = None;
            } else {
                reach = Some(REACH * width);
                width *= SHRINK;
            }
        }
    }

    fn keep(&self, measure: Measure) -> Kept {
        let s = &self.state;
        let (w, z, beta, v) = (s.w.clone(), s.z.clone(), s.beta.clone(), s.v.clone());
        Kept { w, b: s.b, z, beta, v, sum: s.sum, measure }
    }

    fn restore(&mut self, kept: Option<Kept>) {
        let Some(kept) = kept else { return };
        let s = &mut self.state;
        (s.w, s.b, s.z, s.beta, s.v, s.sum) = (kept.w, kept.b, kept.z, kept.beta, kept.v, kept.sum);
        self.last = Some(kept.measure);
    }

    /// Moves β to Σβ = 0 where a free bias asks for it: what rounding left goes to samples with room on both sides, where no condition is
    /// upset by it.
    pub(super) fn settle(&mut self, terms: &Terms) {
        if self.state.rho != Some(0.0) {
            return;
        }
        let size: f64 = self.state.beta.iter().map(|b| b.abs()).sum();
        if exact_sum(&self.state.beta).abs() > 1e-9 * size {
            let piece = Smoothed::new(terms, 0.0, &self.state.beta);
            if let Some(beta) = self.state.balanced_beta(&piece) {
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
        let most = rooms.iter().copied().fold(0.0, f64::max);
        let roomy: Vec<usize> = (0..rooms.len()).filter(|&i| rooms[i] > 0.0 && rooms[i] >= 0.5 * most).collect();
        for round in 0..4 {
            let off = exact_sum(beta);
            // The last rounds carry the rounding of the first.
            let takers = if round == 0 { roomy.as_slice() } else { &roomy[..roomy.len().min(1)] };
            if off == 0.0 || off.abs() > 0.25 * most * takers.len() as f64 {
                break;
            }
            takers.iter().for_each(|&i| beta[i] -= off / takers.len() as f64);
        }
    }

    /// Whether the KKT violation of β at the scores is as asked for.
    fn tol_holds(&mut self, terms: Option<&Terms>) -> bool {
        let Some(tol) = self.options.stop.tol else { return true };
        let state = &self.state;
        let Some(terms) = terms else {
            self.violation = state.slope_violation();
            return self.violation <= tol;
        };
        let (mut fall, mut rise) = (f64::NEG_INFINITY, f64::INFINITY);
        for i in 0..state.n() {
            let (t, beta) = (terms.get(i), state.beta[i]);
            let width = t.hi - t.lo;
            let touch = 1e-12 * if width.is_finite() { width } else { beta.abs().max(1.0) };
            let slope = state.z[i] + t.p + t.d * beta;
            if beta - t.lo > touch {
                fall = fall.max(slope + if beta > touch { t.eps } else { -t.eps });
            }
            if t.hi - beta > touch {
                rise = rise.min(slope + if beta < -touch { -t.eps } else { t.eps });
            }
        }
        self.violation = if state.rho == Some(0.0) { fall - rise } else { fall.max(-rise) }.max(0.0);
        self.violation <= tol
    }
}
