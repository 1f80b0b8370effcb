//! Losses with corners: Newton steps on envelopes around the dual variables, with a growing K.
//!
//! This is an augmented Lagrangian method: the envelope around μ is minimised, then μ is set to the resulting β. The
//! minimum of one envelope is a good start for the next with a larger K, provided that the first step uses the sets of
//! free and fixed samples and not the scores, whose errors a larger K magnifies.

use super::direction::DirectionStart;
use super::progress::StallCheck;
use super::reweight::{LossModel, ModelWeights};
use super::solve::{IrwlsRun, MAX_IDLE, PhaseEnd};
use crate::control::{Interrupt, Status};

/// Most Newton steps on one envelope.
const MAX_NEWTON_STEPS: usize = 30;
/// Growth of K from one envelope to the next.
const K_GROWTH: f64 = 10.0;
/// An envelope is solved when its residual is at most this fraction of the distance of its β from μ.
const INNER_TOLERANCE: f64 = 0.3;
/// Most times samples that leave their pieces are pinned in the first step of an envelope.
const MAX_PINNINGS: usize = 8;
/// Under a loss that is not convex, steps whose objective is more than this fraction above the lowest lead to another,
/// higher minimum.
const MAX_RISE: f64 = 1e-5;

/// The pieces of the envelopes on which the samples were.
struct EnvelopePieces {
    /// The score at which the loss has the slope −β.
    zeta: Vec<f64>,
    /// Whether β is at zero or at a bound.
    fixed: Vec<bool>,
}

/// The values of K that envelopes may have.
struct SmoothingRange {
    /// The first K, and the smallest one of rounds.
    first: f64,
    /// The smallest K of an envelope.
    smallest: f64,
    largest: f64,
}

impl IrwlsRun<'_, '_, '_> {
    /// Newton steps on envelopes around the dual variables, with a growing K.
    pub(super) fn envelopes(&mut self, warm: bool) -> Result<Status, PhaseEnd> {
        let convex = self.convex;
        let Some(range) = self.smoothing_range() else {
            return Ok(self.check_optimality()?.unwrap_or(Status::Stalled));
        };
        let mut k = range.smallest;
        let (mut mu, free) = self.initial_mu(warm, k)?;
        let mut lowest_checked = f64::INFINITY;
        let (mut best, mut before, mut idle) = (f64::INFINITY, f64::INFINITY, 0);
        let mut progress = StallCheck::new();
        let mut pieces: Option<EnvelopePieces> = None;
        let mut rounds_below = 1.0;
        let use_rounds = self.use_rounds;
        // If the first system can be factored, the scores are good enough to start with rounds.
        if use_rounds && self.systems.can_factor(free) {
            if let Some(status) = self.rounds(&mu, k, range.first)? {
                return Ok(status);
            }
            mu.copy_from_slice(&self.now.beta);
        }
        self.ensure_stored_kernel()?;
        loop {
            let (outer, inner) = self.envelope(&mu, k, pieces.take())?;
            if !convex && let Some(status) = self.check_lowest(&mut lowest_checked)? {
                return Ok(status);
            }
            if inner > INNER_TOLERANCE * outer && inner > 1e-12 {
                // K was too large for these sets: repeat from the same μ with a smaller K.
                if !convex {
                    self.now = self.best.clone();
                    mu = self.clipped_beta();
                }
                if let Some(status) = self.count_idle(&mut idle, &mut progress)? {
                    return Ok(status);
                }
                let smaller = (k / (3.0 * K_GROWTH)).max(range.smallest);
                k = if convex || k > range.smallest { smaller } else { 3.0 * k };
                continue;
            }
            if !convex && self.objective(&self.now)? > self.lowest + 1e-9 * self.lowest.abs() {
                // A higher local minimum: return to the best point, with an envelope closer to the loss.
                self.now = self.best.clone();
                mu = self.clipped_beta();
                if let Some(status) = self.count_idle(&mut idle, &mut progress)? {
                    return Ok(status);
                }
                k = (K_GROWTH * K_GROWTH * k).min(range.largest);
                continue;
            }
            let model = LossModel::Envelope { mu: &mu, k };
            let weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
            let fixed: Vec<bool> = weights.weight.iter().map(|w| *w == 0.0).collect();
            pieces = convex.then(|| self.pieces(&weights, &mu, k, fixed.clone()));
            mu = weights.gamma;
            // The distance of the scores from those at which β would be their slope.
            let distance = outer.max(inner);
            self.violation = distance;
            if distance < self.certify_below {
                if let Some(status) = self.check_snapped(&mu, &fixed, convex && idle >= 3)? {
                    return Ok(status);
                }
                self.certify_below = (0.5 * distance).max(1e-13);
            }
            let can_factor = || self.systems.can_factor(fixed.iter().filter(|s| !**s).count());
            if use_rounds && distance < rounds_below && can_factor() {
                if let Some(status) = self.rounds(&mu, K_GROWTH * k, range.first)? {
                    return Ok(status);
                }
                rounds_below = 0.1 * distance;
                mu.copy_from_slice(&self.now.beta);
                pieces = None;
            }
            idle = if distance < 0.7 * best { 0 } else { idle + 1 };
            best = best.min(distance);
            if idle >= MAX_IDLE && (k >= range.largest || idle >= 2 * MAX_IDLE) {
                if let Some(status) = self.end_if_stalled(&mut progress)? {
                    return Ok(status);
                }
                idle = 0;
            }
            // If the distance falls by itself, K need not grow.
            if distance > 0.03 * before || idle > 0 {
                k = (K_GROWTH * k).min(range.largest);
            }
            before = distance;
        }
    }

    /// The range of K; `None` if no sample has a cost.
    fn smoothing_range(&self) -> Option<SmoothingRange> {
        let costs = self.samples.problem.costs;
        let (count, total) = (costs.iter().filter(|c| **c > 0.0).count(), costs.iter().sum::<f64>());
        if count == 0 {
            return None;
        }
        let mean_cost = total / count as f64;
        // σ = K·c: from a ridge the size of the diagonal of the Gram matrix down to the level of rounding.
        let unit = 1.0 / (mean_cost * self.systems.scale());
        let first = unit.clamp(1.0, 1e4);
        // A loss that is not convex has other local minima, and a wide envelope leads to them.
        let smallest = if self.convex { first } else { 100.0 * first };
        let largest = self.options.cap.min(1e10 * unit).max(smallest);
        Some(SmoothingRange { first, smallest, largest })
    }

    /// The first μ, and the number of free samples.
    fn initial_mu(&self, warm: bool, k: f64) -> Result<(Vec<f64>, usize), Interrupt> {
        let n = self.samples.len();
        if warm {
            let mu = self.clipped_beta();
            let inside = |i: &usize| {
                let (lo, hi) = self.samples.bounds(*i);
                mu[*i] > lo && mu[*i] < hi
            };
            let free = (0..n).filter(inside).count();
            return Ok((mu, free));
        }
        // The β of weighted least squares leave their boxes: use the slopes of the envelope at the scores instead.
        let zero = vec![0.0; n];
        let model = LossModel::Envelope { mu: &zero, k };
        let weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
        let free = weights.weight.iter().filter(|w| **w > 0.0).count();
        Ok((weights.gamma, free))
    }

    /// Checks the lowest point so far if it is new: it may be stationary, even if the run has left it since.
    fn check_lowest(&mut self, lowest_checked: &mut f64) -> Result<Option<Status>, Interrupt> {
        if !(self.lowest < *lowest_checked) {
            return Ok(None);
        }
        *lowest_checked = self.lowest;
        let current = std::mem::replace(&mut self.now, self.best.clone());
        if let Some(status) = self.check_optimality()? {
            return Ok(Some(status));
        }
        self.now = current;
        Ok(None)
    }

    /// Snaps fixed samples to their values and checks the stopping criteria. The point must not lie above the lowest
    /// one, unless `any_value`.
    fn check_snapped(&mut self, gamma: &[f64], fixed: &[bool], any_value: bool) -> Result<Option<Status>, Interrupt> {
        self.snap_fixed(gamma, fixed);
        let Some(status) = self.check_optimality()? else { return Ok(None) };
        let value = self.objective(&self.now)?;
        if value <= self.lowest + 1e-9 * self.lowest.abs() || any_value {
            self.record_if_lowest(value);
            return Ok(Some(status));
        }
        Ok(None)
    }

    /// The pieces on which the samples are, from the weights of the envelope around `mu`.
    fn pieces(&self, weights: &ModelWeights, mu: &[f64], k: f64, fixed: Vec<bool>) -> EnvelopePieces {
        let costs = self.samples.problem.costs;
        let zeta = |i: usize| match costs[i] {
            0.0 => 0.0,
            c => self.now.f[i] + self.now.bias + (weights.gamma[i] - mu[i]) / (k * c),
        };
        EnvelopePieces { zeta: (0..mu.len()).map(zeta).collect(), fixed }
    }

    /// Counts an envelope without progress. After [`MAX_IDLE`] of them: the status with which the run ends, if it does.
    fn count_idle(&mut self, idle: &mut usize, progress: &mut StallCheck) -> Result<Option<Status>, PhaseEnd> {
        *idle += 1;
        if *idle >= MAX_IDLE {
            if let Some(status) = self.end_if_stalled(progress)? {
                return Ok(Some(status));
            }
            *idle = 0;
        }
        Ok(None)
    }

    /// The status with which a run without progress ends; `None` if the run still makes progress. Under a loss that is
    /// not convex a run may leave a saddle point slowly while its objective falls.
    fn end_if_stalled(&mut self, progress: &mut StallCheck) -> Result<Option<Status>, PhaseEnd> {
        if let Some(status) = self.check_optimality()? {
            return Ok(Some(status));
        }
        Ok((!progress.has_progress(self.gap, self.lowest)).then_some(Status::Stalled))
    }

    /// β clipped to its box.
    fn clipped_beta(&self) -> Vec<f64> {
        let clipped = |i: usize| {
            let (lo, hi) = self.samples.bounds(i);
            self.now.beta[i].clamp(lo, hi)
        };
        (0..self.samples.len()).map(clipped).collect()
    }

    /// Minimises ½‖f‖² + ΣM by Newton steps. Returns the distances of the β of the envelope from μ and from the current
    /// β, in units of the score.
    ///
    /// In the first step the free samples of the last envelope (`pieces`) stay free: with a larger K the same scores
    /// lie beyond the ends of their pieces, although the sets are right.
    fn envelope(&mut self, mu: &[f64], k: f64, mut pieces: Option<EnvelopePieces>) -> Result<(f64, f64), PhaseEnd> {
        let model = LossModel::Envelope { mu, k };
        let costs = self.samples.problem.costs;
        // The distance of two β, in units of the score.
        let distance = |a: &[f64], b: &[f64]| {
            let each = (0..a.len()).filter(|&i| costs[i] > 0.0).map(|i| (a[i] - b[i]).abs() / (k * costs[i]));
            each.fold(0.0, f64::max)
        };
        let mut last = f64::INFINITY;
        let mut raised = 0;
        for step in 0..MAX_NEWTON_STEPS {
            let mut weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
            if self.sum.is_some() && pieces.is_none() && weights.weight.iter().all(|w| *w == 0.0) {
                // Without free samples the system does not determine the bias: move it to the corner of a sample.
                self.now.bias = self.best_bias(model)?;
                weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
            }
            let (outer, mut inner) = (distance(&weights.gamma, mu), distance(&weights.gamma, &self.now.beta));
            if let Some(s) = self.sum {
                let total: f64 = costs.iter().sum();
                inner = inner.max((self.now.beta.iter().sum::<f64>() - s).abs() / (k * total));
            }
            if step > 0 && (inner <= INNER_TOLERANCE * outer || inner < 1e-13) {
                return Ok((outer, inner));
            }
            let kept = pieces.take();
            if let Some(kept) = &kept {
                for i in (0..mu.len()).filter(|&i| !kept.fixed[i]) {
                    let z = self.now.f[i] + self.now.bias;
                    (weights.gamma[i], weights.weight[i]) = self.samples.continued_piece(i, z, mu[i], k, kept.zeta[i]);
                }
            }
            self.count_iteration()?;
            let at = DirectionStart { beta: &self.now.beta, sum: self.sum };
            let accuracy = (0.02 * inner / (1.0 + inner)).clamp(1e-7, 1e-3);
            let mut d = self.systems.direction_without_scores(&at, &weights, accuracy, self.control)?;
            if let Some(kept) = &kept {
                for _ in 0..MAX_PINNINGS {
                    let mut pinned = false;
                    for i in (0..mu.len()).filter(|&i| !kept.fixed[i]) {
                        if weights.weight[i] == 0.0 {
                            continue;
                        }
                        let to = self.now.beta[i] + d.beta[i];
                        if let Some(end) = self.samples.crossed_piece_end(i, to, mu[i]) {
                            (weights.gamma[i], weights.weight[i]) = (end, 0.0);
                            pinned = true;
                        }
                    }
                    if !pinned {
                        break;
                    }
                    d = self.systems.direction_without_scores(&at, &weights, accuracy, self.control)?;
                }
            }
            self.systems.add_scores(&mut d, self.control)?;
            let line = self.line(model, &d)?;
            let start = line.at(0.0)?;
            let eta = match line.search(start)? {
                Some(to) => to.eta,
                None => {
                    let full = line.at(1.0)?;
                    if full.value <= start.value + 1e-11 * start.value.abs() { 1.0 } else { 0.0 }
                }
            };
            if eta > 0.0 {
                self.advance(&d, eta);
                let value = self.objective(&self.now)?;
                self.record_if_lowest(value);
                raised = if value > self.lowest + MAX_RISE * self.lowest.abs() { raised + 1 } else { 0 };
            }
            self.violation = outer.max(inner);
            self.report("envelope", d.free, eta)?;
            if !self.convex && raised > 3 {
                return Ok((outer, f64::INFINITY));
            }
            if kept.is_some() {
                continue;
            }
            if eta == 0.0 || inner > 0.99 * last && eta == 1.0 && step > 3 {
                return Ok((outer, inner));
            }
            last = inner;
        }
        let weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
        Ok((distance(&weights.gamma, mu), distance(&weights.gamma, &self.now.beta)))
    }

    /// Sets the β of fixed samples exactly to the value of the envelope: zero or a bound.
    fn snap_fixed(&mut self, gamma: &[f64], fixed: &[bool]) {
        for i in 0..gamma.len() {
            if fixed[i] && self.now.beta[i] != gamma[i] {
                self.now.beta[i] = gamma[i];
                self.now.fresh = false;
            }
        }
    }
}
