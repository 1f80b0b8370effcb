//! How far to go along a direction.
//!
//! Paper 000 stops where the first sample that cost nothing begins to cost something, and takes the full step if that lowers
//! the objective more: [`first_crossing`]. Where the model does not lie above the loss paper 002 searches
//! [0, 1]: [`Segment::search`] brackets the minimum and bisects on the slope.

use super::reweight::{Model, Samples};
use super::sets::Direction;
use crate::control::{Control, Interrupt};

/// The objective along a direction: ½‖f‖² + Σ M(z) + s·b at β + ηΔβ.
pub(super) struct Segment<'s, 'p, 'a> {
    pub(super) samples: &'s Samples<'p, 'a>,
    pub(super) model: Model<'s>,
    pub(super) f: &'s [f64],
    pub(super) bias: f64,
    pub(super) direction: &'s Direction,
    /// βᵀKβ, ΔβᵀKβ, ΔβᵀKΔβ.
    pub(super) norm: [f64; 3],
    /// s.
    pub(super) sum: f64,
    pub(super) control: &'s Control,
}

/// Values at an η.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value {
    pub(super) eta: f64,
    pub(super) value: f64,
    pub(super) slope: f64,
}

impl Segment<'_, '_, '_> {
    pub(super) fn at(&self, eta: f64) -> Result<Value, Interrupt> {
        let d = self.direction;
        let n = self.f.len();
        let chunk = super::reweight::CHUNK;
        self.control.spend(40 * n);
        let parts = self.control.threads.map(n.div_ceil(chunk), |t| {
            self.control.check()?;
            let (mut value, mut slope) = (0.0, 0.0);
            for i in t * chunk..((t + 1) * chunk).min(n) {
                let move_by = d.f[i] + d.bias;
                let (v, s) = self.samples.value_slope(i, self.f[i] + self.bias + eta * move_by, self.model);
                value += v;
                slope += s * move_by;
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
        Ok(Value { eta, value, slope })
    }

    /// A point of (0, 1] with a lower objective than `start`, near the least on the way; `None`: there is none to be found in this
    /// arithmetic.
    pub(super) fn search(&self, start: Value) -> Result<Option<Value>, Interrupt> {
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
            if mid.value < best.map_or(start.value, |b: Value| b.value) {
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

/// The η of paper 000: the first point at which a sample whose loss is flat at the start begins to have a slope.
pub(super) fn first_crossing(samples: &Samples<'_, '_>, f: &[f64], bias: f64, d: &Direction, flat: &[f64]) -> f64 {
    let mut eta = 1.0;
    for i in 0..f.len() {
        let (z, by) = (f[i] + bias, d.f[i] + d.bias);
        if flat[i] != 0.0 || samples.slope(i, z + eta * by) == 0.0 {
            continue;
        }
        let (mut low, mut high) = (0.0, eta);
        for _ in 0..50 {
            let mid = 0.5 * (low + high);
            if samples.slope(i, z + mid * by) == 0.0 { low = mid } else { high = mid }
        }
        eta = high;
    }
    eta
}
