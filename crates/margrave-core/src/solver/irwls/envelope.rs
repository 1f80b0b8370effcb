//! Losses with corners: Newton steps on envelopes around the dual variables, K growing.
//!
//! An augmented Lagrangian: the envelope around μ is minimised, then μ becomes the β found there. The minimum of one envelope is
//! a good start for the next with a larger K, if its first step trusts the sets found and not the scores, which a larger K
//! magnifies.

use super::progress::Progress;
use super::reweight::Model;
use super::sets::At;
use super::solve::{End, PATIENCE, Run};
use crate::control::Status;

/// Newton steps inside one envelope at most.
const INNER: usize = 30;
/// Growth of K from one envelope to the next.
const GROWTH: f64 = 10.0;
/// An envelope is left when what is wrong inside it is this share of what is wrong with it.
const ENOUGH: f64 = 0.3;
/// Times samples that leave their pieces are pinned in the first step of an envelope.
const PINS: usize = 8;

/// Under a loss that is not convex, steps that leave the objective higher than this share above the lowest lead elsewhere.
const ASTRAY: f64 = 1e-5;

/// Which pieces of their envelopes the samples stood on.
struct Pieces {
    /// The score at which the loss has the slope −β.
    zeta: Vec<f64>,
    /// At zero or on a bound.
    settled: Vec<bool>,
}

impl Run<'_, '_, '_> {
    /// Newton steps on envelopes around the dual variables, K growing.
    pub(super) fn envelopes(&mut self, warm: bool) -> Result<Status, End> {
        let (p, convex) = (self.samples.problem, self.convex);
        let n = self.samples.len();
        let (count, total) = (p.costs.iter().filter(|c| **c > 0.0).count(), p.costs.iter().sum::<f64>());
        if count == 0 {
            return Ok(self.certified()?.unwrap_or(Status::Stalled));
        }
        let cost = total / count as f64;
        // σ = K·c: from a ridge the size of K's diagonal down to rounding.
        let unit = 1.0 / (cost * self.core.scale());
        let first_k = unit.clamp(1.0, 1e4);
        // A loss that is not convex has other valleys, which a wide envelope leads to.
        let floor = if convex { first_k } else { 100.0 * first_k };
        let mut k = floor;
        let largest_k = self.options.cap.min(1e10 * unit).max(k);
        let (mut mu, free) = if warm {
            let mu = self.clipped();
            let inside = |i: &usize| {
                let (lo, hi) = self.samples.bounds(*i);
                mu[*i] > lo && mu[*i] < hi
            };
            let free = (0..n).filter(inside).count();
            (mu, free)
        } else {
            // The β of weighted least squares leave their boxes: take those that the scores ask for.
            let zero = vec![0.0; n];
            let model = Model::Envelope { mu: &zero, k };
            let weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
            let free = weights.weight.iter().filter(|w| **w > 0.0).count();
            (weights.gamma, free)
        };
        let mut asked = f64::INFINITY;
        let (mut best, mut before, mut idle) = (f64::INFINITY, f64::INFINITY, 0);
        let mut progress = Progress::new();
        let mut pieces: Option<Pieces> = None;
        // With scores worth something rounds begin at once, if their first system can be factored.
        let mut rounds_at = 1.0;
        let boxed = self.boxed;
        if boxed && self.core.factors(free) {
            if let Some(status) = self.rounds(&mu, k, first_k)? {
                return Ok(status);
            }
            mu.copy_from_slice(&self.now.beta);
        }
        self.whole()?;
        loop {
            let (outer, inner) = self.envelope(&mu, k, pieces.take())?;
            if !convex && self.lowest < asked {
                // The lowest point on the way may be stationary, wherever the way has led since.
                asked = self.lowest;
                let here = std::mem::replace(&mut self.now, self.best.clone());
                if let Some(status) = self.certified()? {
                    return Ok(status);
                }
                self.now = here;
            }
            if inner > ENOUGH * outer && inner > 1e-12 {
                // K was too large for these sets: the same μ again, more gently.
                if !convex {
                    self.now = self.best.clone();
                    mu = self.clipped();
                }
                idle += 1;
                if idle >= PATIENCE {
                    if let Some(status) = self.settled(&mut progress)? {
                        return Ok(status);
                    }
                    idle = 0;
                }
                let gentler = (k / (3.0 * GROWTH)).max(floor);
                k = if convex || k > floor { gentler } else { 3.0 * k };
                continue;
            }
            if !convex && self.objective(&self.now)? > self.lowest + 1e-9 * self.lowest.abs() {
                // Another valley, and a higher one: back, and closer to the loss itself.
                self.now = self.best.clone();
                mu = self.clipped();
                idle += 1;
                if idle >= PATIENCE {
                    if let Some(status) = self.settled(&mut progress)? {
                        return Ok(status);
                    }
                    idle = 0;
                }
                k = (GROWTH * GROWTH * k).min(largest_k);
                continue;
            }
            let model = Model::Envelope { mu: &mu, k };
            let weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
            let settled: Vec<bool> = weights.weight.iter().map(|w| *w == 0.0).collect();
            let zeta = |i: usize| match p.costs[i] {
                0.0 => 0.0,
                c => self.now.f[i] + self.now.bias + (weights.gamma[i] - mu[i]) / (k * c),
            };
            pieces = convex.then(|| Pieces { zeta: (0..n).map(zeta).collect(), settled: settled.clone() });
            mu = weights.gamma;
            // How far scores are from where β would be their slope.
            let distance = outer.max(inner);
            self.violation = distance;
            if distance < self.ask_at {
                self.snap(&mu, &settled);
                if let Some(status) = self.certified()? {
                    let value = self.objective(&self.now)?;
                    if value <= self.lowest + 1e-9 * self.lowest.abs() || convex && idle >= 3 {
                        self.record(value);
                        return Ok(status);
                    }
                }
                self.ask_at = (0.5 * distance).max(1e-13);
            }
            if boxed && distance < rounds_at && self.core.factors(settled.iter().filter(|s| !**s).count()) {
                if let Some(status) = self.rounds(&mu, GROWTH * k, first_k)? {
                    return Ok(status);
                }
                rounds_at = 0.1 * distance;
                mu.copy_from_slice(&self.now.beta);
                pieces = None;
            }
            idle = if distance < 0.7 * best { 0 } else { idle + 1 };
            best = best.min(distance);
            if idle >= PATIENCE && (k >= largest_k || idle >= 2 * PATIENCE) {
                if let Some(status) = self.settled(&mut progress)? {
                    return Ok(status);
                }
                idle = 0;
            }
            // Falling by itself, the distance needs no larger K.
            if distance > 0.03 * before || idle > 0 {
                k = (GROWTH * k).min(largest_k);
            }
            before = distance;
        }
    }

    /// After a while without getting nearer: how it ends, or `None` where the run still gains. A loss that is not convex may
    /// leave a saddle point slowly, its objective falling all the while.
    fn settled(&mut self, progress: &mut Progress) -> Result<Option<Status>, End> {
        if let Some(status) = self.certified()? {
            return Ok(Some(status));
        }
        Ok((!progress.goes_on(self.gap, self.lowest)).then_some(Status::Stalled))
    }

    /// β, each in its box.
    fn clipped(&self) -> Vec<f64> {
        let inside = |i: usize| {
            let (lo, hi) = self.samples.bounds(i);
            self.now.beta[i].clamp(lo, hi)
        };
        (0..self.samples.len()).map(inside).collect()
    }

    /// Minimises ½‖f‖² + ΣM by Newton steps. Returns how far the envelope's β is from μ, and from the present β, in scores.
    ///
    /// The first step keeps the free samples of the last envelope, `pieces`, free: with a larger K the same scores lie off the end of
    /// their pieces, although the sets are right.
    fn envelope(&mut self, mu: &[f64], k: f64, mut pieces: Option<Pieces>) -> Result<(f64, f64), End> {
        let model = Model::Envelope { mu, k };
        let costs = self.samples.problem.costs;
        // How far two β are apart, in scores.
        let scores = |a: &[f64], b: &[f64]| {
            let each = (0..a.len()).filter(|&i| costs[i] > 0.0).map(|i| (a[i] - b[i]).abs() / (k * costs[i]));
            each.fold(0.0, f64::max)
        };
        let mut last = f64::INFINITY;
        let mut astray = 0;
        for step in 0..INNER {
            let mut weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
            if self.sum.is_some() && pieces.is_none() && weights.weight.iter().all(|w| *w == 0.0) {
                // Nothing in the system says where the bias should be: at the corner of some sample.
                self.now.bias = self.best_bias(model)?;
                weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
            }
            let (outer, mut inner) = (scores(&weights.gamma, mu), scores(&weights.gamma, &self.now.beta));
            if let Some(s) = self.sum {
                let total: f64 = costs.iter().sum();
                inner = inner.max((self.now.beta.iter().sum::<f64>() - s).abs() / (k * total));
            }
            if step > 0 && (inner <= ENOUGH * outer || inner < 1e-13) {
                return Ok((outer, inner));
            }
            let kept = pieces.take();
            if let Some(kept) = &kept {
                for i in (0..mu.len()).filter(|&i| !kept.settled[i]) {
                    let z = self.now.f[i] + self.now.bias;
                    (weights.gamma[i], weights.weight[i]) = self.samples.continued(i, z, mu[i], k, kept.zeta[i]);
                }
            }
            self.count()?;
            let at = At { beta: &self.now.beta, sum: self.sum };
            let accuracy = (0.02 * inner / (1.0 + inner)).clamp(1e-7, 1e-3);
            let mut d = self.core.unknowns(&at, &weights, accuracy, self.control)?;
            if let Some(kept) = &kept {
                for _ in 0..PINS {
                    let mut pinned = false;
                    for i in (0..mu.len()).filter(|&i| !kept.settled[i]) {
                        if weights.weight[i] == 0.0 {
                            continue;
                        }
                        let to = self.now.beta[i] + d.beta[i];
                        if let Some(end) = self.samples.left_piece(i, to, mu[i]) {
                            (weights.gamma[i], weights.weight[i]) = (end, 0.0);
                            pinned = true;
                        }
                    }
                    if !pinned {
                        break;
                    }
                    d = self.core.unknowns(&at, &weights, accuracy, self.control)?;
                }
            }
            self.core.scores(&mut d, self.control)?;
            let segment = self.segment(model, &d)?;
            let start = segment.at(0.0)?;
            let eta = match segment.search(start)? {
                Some(to) => to.eta,
                None => {
                    let full = segment.at(1.0)?;
                    if full.value <= start.value + 1e-11 * start.value.abs() { 1.0 } else { 0.0 }
                }
            };
            if eta > 0.0 {
                self.go(&d, eta);
                let value = self.objective(&self.now)?;
                self.record(value);
                astray = if value > self.lowest + ASTRAY * self.lowest.abs() { astray + 1 } else { 0 };
            }
            self.violation = outer.max(inner);
            self.report("envelope", d.free, eta)?;
            if !self.convex && astray > 3 {
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
        Ok((scores(&weights.gamma, mu), scores(&weights.gamma, &self.now.beta)))
    }

    /// Puts the β of settled samples exactly where the envelope has them: at zero or on a bound.
    fn snap(&mut self, gamma: &[f64], settled: &[bool]) {
        for i in 0..gamma.len() {
            if settled[i] && self.now.beta[i] != gamma[i] {
                self.now.beta[i] = gamma[i];
                self.now.fresh = false;
            }
        }
    }
}
