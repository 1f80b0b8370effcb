//! Whether the current point meets the stopping criteria, by the certificate.

use super::progress::relative_gap;
use super::reweight::LossModel;
use super::solve::IrwlsRun;
use crate::certificate::estimate;
use crate::control::{Interrupt, Status};

/// A gap below this fraction of the initial objective counts as zero: if the optimal value is 0, the relative gap never
/// becomes small.
const NEGLIGIBLE_GAP: f64 = 1e-22;
/// Where the loss is flat, a β up to this fraction of the cost is rounding.
const NEGLIGIBLE_BETA: f64 = 1e-9;

impl IrwlsRun<'_, '_, '_> {
    /// `Optimal` if the certificate of the current point meets the stopping criteria.
    pub(super) fn check_optimality(&mut self) -> Result<Option<Status>, Interrupt> {
        let holds = self.certificate_holds()?;
        // A solution has every β in its box. If clipping changes β, the certificate is computed again.
        let holds = if holds && self.clip_to_box()? { self.certificate_holds()? } else { holds };
        Ok(holds.then_some(Status::Optimal))
    }

    /// Whether the certificate of the current point meets the stopping criteria.
    fn certificate_holds(&mut self) -> Result<bool, Interrupt> {
        if !self.now.fresh {
            self.refresh()?;
        }
        if self.convex && self.sum.is_some() {
            // Use the optimal bias for the scores.
            let (old_bias, value) = (self.now.bias, self.objective(&self.now)?);
            self.now.bias = self.best_bias(LossModel::Newton { cap: self.options.cap })?;
            let better = self.objective(&self.now)?;
            if better <= value + 1e-12 * value.abs() {
                self.record_if_lowest(better);
            } else {
                self.now.bias = old_bias;
            }
        }
        let bias: Vec<f64> = self.sum.iter().map(|_| self.now.bias).collect();
        let problem = self.samples.problem;
        let certificate = estimate(problem, &self.now.beta, &bias, &self.now.f, self.control)?;
        let stop = self.options.stop;
        self.violation = certificate.violation();
        let tol_holds = stop.tol.is_none_or(|tol| certificate.violation() <= tol);
        self.gap = relative_gap(&certificate);
        let gap_holds = match (stop.gap, self.gap) {
            (Some(limit), Some(gap)) => {
                gap <= limit || certificate.gap().is_some_and(|gap| gap <= NEGLIGIBLE_GAP * self.initial_objective)
            }
            _ => true,
        };
        self.certificate = Some(certificate);
        Ok(tol_holds && gap_holds)
    }

    /// Clips β to its box. False if β does not change, or if clipping would raise the objective of a loss that is not
    /// convex: without a dual the box is not a constraint.
    fn clip_to_box(&mut self) -> Result<bool, Interrupt> {
        let before = self.now.clone();
        for i in 0..self.now.beta.len() {
            let (lo, hi) = self.samples.bounds(i);
            let beta = self.now.beta[i];
            self.now.beta[i] = if beta.is_finite() { beta } else { 0.0 }.clamp(lo, hi);
            // Where the loss is flat β is 0 up to rounding.
            let (p, z) = (self.samples.problem, self.now.f[i] + self.now.bias);
            if self.now.beta[i].abs() <= NEGLIGIBLE_BETA * p.costs[i] && p.loss(i).slope(p.targets[i], z) == 0.0 {
                self.now.beta[i] = 0.0;
            }
        }
        if self.now.beta == before.beta {
            return Ok(false);
        }
        if self.convex {
            self.now.fresh = false;
            return Ok(true);
        }
        self.refresh()?;
        let value = self.objective(&self.now)?;
        if value > self.lowest {
            self.now = before;
            return Ok(false);
        }
        self.record_if_lowest(value);
        Ok(true)
    }

    /// The b with ΣM′(f + b) + s = 0 for a convex loss, by bisection.
    pub(super) fn best_bias(&self, model: LossModel<'_>) -> Result<f64, Interrupt> {
        let s = self.sum.unwrap_or(0.0);
        let (samples, f) = (&self.samples, &self.now.f);
        let slope = |b: f64| Ok(s + samples.sum(self.control, |i| samples.value_slope(i, f[i] + b, model).1)?);
        let start = self.now.bias;
        let first: f64 = slope(start)?;
        if first == 0.0 {
            return Ok(start);
        }
        let sign = -first.signum();
        let (mut near, mut step) = (start, 1.0);
        let mut far = start + sign;
        while slope(far)? * sign < 0.0 {
            if step > 1e12 {
                return Ok(start);
            }
            near = far;
            step *= 4.0;
            far = start + sign * step;
        }
        for _ in 0..60 {
            let mid = 0.5 * (near + far);
            if slope(mid)? * sign >= 0.0 { far = mid } else { near = mid }
        }
        Ok(0.5 * (near + far))
    }
}
