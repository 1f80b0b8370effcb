//! The step length along a direction.
//!
//! Paper 000 stops where the first sample without a loss starts to have one, and takes the full step if that lowers the
//! objective more: [`first_crossing`]. If the model does not majorise the loss, paper 002 searches [0, 1]:
//! [`LineObjective::search`] brackets the minimum and bisects on the slope.

use super::direction::IrwlsDirection;
use super::reweight::{LossModel, SampleLosses};
use crate::control::{Control, Interrupt};

/// The objective along a direction: ½‖f‖² + Σ M(z) + s·b at β + ηΔβ.
pub(super) struct LineObjective<'s, 'p, 'a> {
    pub(super) samples: &'s SampleLosses<'p, 'a>,
    pub(super) model: LossModel<'s>,
    pub(super) f: &'s [f64],
    pub(super) bias: f64,
    pub(super) direction: &'s IrwlsDirection,
    /// βᵀKβ, ΔβᵀKβ, ΔβᵀKΔβ.
    pub(super) norm: [f64; 3],
    /// s.
    pub(super) sum: f64,
    pub(super) control: &'s Control,
}

/// The objective and its slope at one η.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinePoint {
    pub(super) eta: f64,
    pub(super) value: f64,
    pub(super) slope: f64,
}

impl LineObjective<'_, '_, '_> {
    pub(super) fn at(&self, eta: f64) -> Result<LinePoint, Interrupt> {
        let d = self.direction;
        let n = self.f.len();
        let chunk = super::reweight::CHUNK;
        self.control.spend(40 * n);
        let parts = self.control.threads.map(n.div_ceil(chunk), |t| {
            self.control.check()?;
            let (mut value, mut slope) = (0.0, 0.0);
            for i in t * chunk..((t + 1) * chunk).min(n) {
                let dz = d.f[i] + d.bias;
                let (v, s) = self.samples.value_slope(i, self.f[i] + self.bias + eta * dz, self.model);
                value += v;
                slope += s * dz;
            }
            Ok((value, slope))
        });
        let [q0, q1, q2] = self.norm;
        let mut value = 0.5 * (q0 + 2.0 * eta * q1 + eta * eta * q2) + self.sum * (self.bias + eta * d.bias);
        let mut slope = q1 + eta * q2 + self.sum * d.bias;
        for part in parts {
            let (v, s): (f64, f64) = part?;
            value += v;
            slope += s;
        }
        Ok(LinePoint { eta, value, slope })
    }

    /// A point of (0, 1] with a lower objective than `start`, close to the minimum; `None` if double precision finds
    /// none.
    pub(super) fn search(&self, start: LinePoint) -> Result<Option<LinePoint>, Interrupt> {
        if !(start.slope < 0.0) {
            return Ok(None);
        }
        let full = self.at(1.0)?;
        if full.value < start.value && full.slope <= 0.0 {
            return Ok(Some(full));
        }
        let (mut low, mut high) = (start, full);
        let mut best = if full.value < start.value { Some(full) } else { None };
        for _ in 0..40 {
            let mid = self.at(0.5 * (low.eta + high.eta))?;
            if mid.value < best.map_or(start.value, |b: LinePoint| b.value) {
                best = Some(mid);
            }
            if mid.slope < 0.0 && mid.value <= start.value {
                low = mid
            } else {
                high = mid
            }
            if high.eta - low.eta < 1e-3 * high.eta && best.is_some() {
                break;
            }
        }
        Ok(best)
    }
}

/// The η of paper 000: the first point at which a sample with a flat loss at the start (weight 0) gets a slope.
pub(super) fn first_crossing(
    samples: &SampleLosses<'_, '_>,
    f: &[f64],
    bias: f64,
    d: &IrwlsDirection,
    weights: &[f64],
) -> f64 {
    let mut eta = 1.0;
    for i in 0..f.len() {
        let (z, dz) = (f[i] + bias, d.f[i] + d.bias);
        if weights[i] != 0.0 || samples.slope(i, z + eta * dz) == 0.0 {
            continue;
        }
        let (mut low, mut high) = (0.0, eta);
        for _ in 0..50 {
            let mid = 0.5 * (low + high);
            if samples.slope(i, z + mid * dz) == 0.0 { low = mid } else { high = mid }
        }
        eta = high;
    }
    eta
}
