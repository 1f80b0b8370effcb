//! The phases of IRWLS.
//!
//! 1. *subsample* or *majorise*: a start from a subsample, or steps with the weights of papers 000 and 002; for a loss
//!    that is not convex until their gain is small.
//! 2. *newton*, for smooth losses: steps with curvatures, each with a line search on the objective.
//! 3. *envelope*, for losses with corners: the envelope around μ is minimised by Newton steps, then μ is set to the
//!    resulting β and K grows. The free samples are those whose β lies inside its box.

use super::direction::{DirectionStart, IrwlsDirection};
use super::progress::StallCheck;
use super::reweight::LossModel;
use super::search::{LinePoint, first_crossing};
use super::solve::{IrwlsPoint, IrwlsRun, MAX_IDLE, PhaseEnd};
use crate::control::Status;

/// Majorising steps end when a step lowers the objective by less than this fraction.
const MIN_MAJORISE_GAIN: f64 = 1e-3;
/// The same for losses that are not convex. For these the majorising steps select the local minimum: the score of every
/// sample is pulled towards its margin, so that the model cannot become steeper before it has moved. Newton steps go to
/// the nearest minimum, and there may be one between any two samples.
const MIN_MAJORISE_GAIN_NON_CONVEX: f64 = 1e-6;
/// Largest K of those steps: a sample of the convex start that lies on its margin up to rounding would otherwise never
/// leave it.
const MAX_CAP_NON_CONVEX: f64 = 1e4;
/// Samples up to which K is always stored, and a factor may replace the primal side.
const SMALL_SAMPLES: usize = 2000;
/// Largest cost of a kernel entry, in multiply–adds, for which rounds recompute entries instead of storing K.
const CHEAP_ENTRY: f64 = 64.0;

impl IrwlsRun<'_, '_, '_> {
    /// Runs all phases, and sets `start_objective` to the objective at the start.
    pub(super) fn phases(&mut self, start_objective: &mut f64) -> Result<Status, PhaseEnd> {
        let (problem, convex) = (self.samples.problem, self.convex);
        let warm = self.now.beta.iter().any(|b| *b != 0.0);
        if warm {
            self.refresh()?;
            if self.sum.is_some() && self.options.start_bias.is_none() {
                self.now.bias = self.best_bias(LossModel::Newton { cap: self.options.cap })?;
            }
        }
        *start_objective = self.objective(&self.now)?;
        self.record_if_lowest(*start_objective);
        let zero = IrwlsPoint { beta: vec![0.0; problem.len()], bias: 0.0, f: vec![0.0; problem.len()], fresh: true };
        self.initial_objective = self.objective(&zero)?.abs().max(start_objective.abs());
        if warm && let Some(status) = self.check_optimality()? {
            return Ok(status);
        }
        let sharp = (0..problem.len()).any(|i| problem.costs[i] > 0.0 && problem.loss(i).sharp());
        self.use_rounds = sharp
            && convex
            && self.options.reuse
            && self.options.majorise.is_none()
            && self.samples.all_terms().is_some();
        // Rounds only need the rows of a few samples; all other steps use the whole of K repeatedly.
        if !self.use_rounds || problem.len() < SMALL_SAMPLES || problem.gram.effort() > CHEAP_ENTRY {
            self.systems.store_kernel(self.control)?;
        }
        let steps = match self.options.majorise {
            Some(steps) => steps,
            None if !self.options.reuse => u64::MAX,
            None if !convex => 500,
            None => u64::from(!warm),
        };
        if convex && !warm && self.options.majorise.is_none() && self.options.reuse && self.start_from_subsample()? {
            // The next phase starts from the scores of the subsample.
        } else if let Some(status) = self.majorise(steps)? {
            return Ok(status);
        }
        if sharp { self.envelopes(warm || !convex) } else { self.newton() }
    }

    /// The direction of `model`, the weights of the samples, and the residual at the current point.
    fn direction(&mut self, model: LossModel<'_>, accuracy: f64) -> Result<(IrwlsDirection, Vec<f64>, f64), PhaseEnd> {
        let weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
        let residual = self.residual(&weights.gamma);
        let at = DirectionStart { beta: &self.now.beta, sum: self.sum };
        let d = self.systems.direction(&at, &weights, accuracy, self.control)?;
        Ok((d, weights.weight, residual))
    }

    /// max |γ − β|/c, or the error of the sum if it is larger.
    fn residual(&self, gamma: &[f64]) -> f64 {
        let costs = self.samples.problem.costs;
        let each = (0..gamma.len()).filter(|&i| costs[i] > 0.0).map(|i| (gamma[i] - self.now.beta[i]).abs() / costs[i]);
        let worst = each.fold(0.0, f64::max);
        match self.sum {
            Some(s) => {
                let total: f64 = costs.iter().sum();
                worst.max((self.now.beta.iter().sum::<f64>() - s).abs() / total.max(f64::MIN_POSITIVE))
            }
            None => worst,
        }
    }

    /// At most `max_steps` steps with the weights of paper 000. `Some`: the run ends with this status.
    fn majorise(&mut self, max_steps: u64) -> Result<Option<Status>, PhaseEnd> {
        let cap = if self.convex { self.options.cap } else { self.options.cap.min(MAX_CAP_NON_CONVEX) };
        let min_gain = if self.convex { MIN_MAJORISE_GAIN } else { MIN_MAJORISE_GAIN_NON_CONVEX };
        let model = LossModel::Majorise { cap };
        let majorised = {
            let p = self.samples.problem;
            (0..p.len()).all(|i| p.loss(i).properties().majorised)
        };
        let mut idle = 0;
        for step in 0..max_steps {
            self.count_iteration()?;
            let (d, weight, residual) = self.direction(model, 1e-3)?;
            let line = self.line(model, &d)?;
            let start = line.at(0.0)?;
            let mut taken: Option<LinePoint> = None;
            if majorised {
                let crossing = first_crossing(&self.samples, &self.now.f, self.now.bias, &d, &weight);
                let (full, first) = (line.at(1.0)?, line.at(crossing)?);
                let better = if full.value <= first.value { full } else { first };
                taken = (better.value < start.value).then_some(better);
            }
            if taken.is_none() {
                taken = line.search(start)?;
            }
            let Some(taken) = taken else {
                self.report("majorise", d.free, 0.0)?;
                return Ok(None);
            };
            debug_assert!(taken.value <= start.value, "the objective rose from {} to {}", start.value, taken.value);
            self.advance(&d, taken.eta);
            self.record_if_lowest(taken.value);
            self.violation = residual;
            self.report("majorise", d.free, taken.eta)?;
            let gain = (start.value - taken.value) / taken.value.abs().max(f64::MIN_POSITIVE);
            // If no Newton steps follow, these steps must meet the stopping criteria themselves.
            let only_phase = self.options.majorise == Some(u64::MAX) || !self.options.reuse;
            idle = if gain < 1e-9 { idle + 1 } else { 0 };
            if only_phase && (residual < self.certify_below || gain < 1e-5 || step % 10 == 9) {
                if let Some(status) = self.check_optimality()? {
                    return Ok(Some(status));
                }
                self.certify_below = 0.5 * residual;
            }
            if only_phase && idle >= MAX_IDLE {
                return Ok(Some(Status::Stalled));
            }
            if !only_phase && gain < min_gain {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Newton steps on the objective itself.
    fn newton(&mut self) -> Result<Status, PhaseEnd> {
        let model = LossModel::Newton { cap: self.options.cap };
        let (mut lowest_residual, mut idle) = (f64::INFINITY, 0);
        let mut progress = StallCheck::new();
        // Systems are solved to an accuracy relative to the residual. A direction without progress lowers its limit.
        let mut loosest_accuracy: f64 = 1e-3;
        let mut accuracy = loosest_accuracy;
        loop {
            self.count_iteration()?;
            let (d, _, residual) = self.direction(model, accuracy)?;
            self.violation = residual;
            let line = self.line(model, &d)?;
            let start = line.at(0.0)?;
            let taken = line.search(start)?;
            let eta = match taken {
                Some(to) => {
                    debug_assert!(to.value <= start.value, "the objective rose from {} to {}", start.value, to.value);
                    self.advance(&d, to.eta);
                    self.record_if_lowest(to.value);
                    to.eta
                }
                // At the level of rounding a full step may still improve β.
                None if idle < MAX_IDLE / 2 => {
                    let full = line.at(1.0)?;
                    let slack = 1e-11 * start.value.abs();
                    if full.value <= start.value + slack {
                        self.advance(&d, 1.0);
                        1.0
                    } else {
                        0.0
                    }
                }
                None => 0.0,
            };
            if eta < 0.1 {
                loosest_accuracy = (0.03 * loosest_accuracy).max(1e-7);
            }
            accuracy = (0.1 * residual).clamp(1e-7, loosest_accuracy);
            if d.free == 0 && self.sum.is_some() {
                // Without free samples the system does not determine the bias.
                self.now.bias = self.best_bias(model)?;
                self.record_if_lowest(self.objective(&self.now)?);
            }
            self.report("newton", d.free, eta)?;
            if residual < self.certify_below || eta == 0.0 || d.free == 0 {
                if let Some(status) = self.check_optimality()? {
                    return Ok(status);
                }
                self.certify_below = 0.5 * residual;
            }
            idle = if residual < 0.9 * lowest_residual { 0 } else { idle + 1 };
            lowest_residual = lowest_residual.min(residual);
            if idle >= MAX_IDLE {
                if let Some(status) = self.check_optimality()? {
                    return Ok(status);
                }
                if !progress.has_progress(self.gap, self.lowest) && !self.leave_primal(d.free) {
                    return Ok(Status::Stalled);
                }
                idle = 0;
            }
        }
    }

    /// Replaces the primal side by a factor of K, whose rounding errors differ. False if the primal side was not in use
    /// or K cannot be factored.
    fn leave_primal(&mut self, free: usize) -> bool {
        if !self.systems.is_primal(free) || !self.systems.can_factor(free) || free > SMALL_SAMPLES {
            return false;
        }
        self.systems.linear = None;
        true
    }
}
