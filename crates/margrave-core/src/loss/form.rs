//! What solvers use of a user-defined loss at one target: a dual term in closed form, or an interpolated slope.

use super::DualTerm;
use super::curve::Curve;

/// Fills values or slopes at many scores, for one target.
pub(super) type Fill<'a> = dyn Fn(&[f64], &mut [f64]) + 'a;

/// Largest difference of the slopes of a dual term from those of the loss, relative to the slope.
const SAME_SLOPE: f64 = 1e-9;

/// A loss at one target, as a function of the score.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// ℓ(z) = sup over β of −βz − h(β) with this h for c = 1.
    Term(DualTerm),
    /// The slope as a piecewise polynomial.
    Curve(Curve),
}

/// β of the dual term at z, for c = 1; at a jump the end that is nearer to zero.
fn beta(t: &DualTerm, z: f64) -> f64 {
    let s = -(t.p + z);
    let soft = (s - t.eps).max(0.0) + (s + t.eps).min(0.0);
    if t.d > 0.0 {
        (soft / t.d).clamp(t.lo, t.hi)
    } else if soft > 0.0 {
        t.hi
    } else if soft < 0.0 {
        t.lo
    } else {
        0.0
    }
}

impl Form {
    /// Describes the loss with the given values and slopes on [−reach, reach]; `None` if it cannot be interpolated.
    pub(super) fn new(value: &Fill<'_>, slope: &Fill<'_>, reach: f64) -> Option<Self> {
        let mut at_zero = [0.0];
        value(&[0.0], &mut at_zero);
        let curve = Curve::new(slope, at_zero[0], reach)?;
        Some(match find_term(&curve, value, slope, reach) {
            Some(term) => Form::Term(term),
            None => Form::Curve(curve),
        })
    }

    pub(super) fn value(&self, z: f64) -> f64 {
        match self {
            Form::Term(t) => {
                let b = beta(t, z);
                if b == 0.0 { 0.0 } else { -b * (t.p + z) - t.eps * b.abs() - 0.5 * t.d * b * b }
            }
            Form::Curve(curve) => curve.value(z),
        }
    }

    pub(super) fn slope(&self, z: f64) -> f64 {
        match self {
            Form::Term(t) => match beta(t, z) {
                0.0 => 0.0,
                b => -b,
            },
            Form::Curve(curve) => curve.slopes(z).0,
        }
    }

    pub(super) fn curvature(&self, z: f64) -> f64 {
        match self {
            Form::Term(t) => {
                let b = beta(t, z);
                let inside = t.d > 0.0 && b > t.lo && b < t.hi && (t.eps == 0.0 || b != 0.0);
                if inside { 1.0 / t.d } else { 0.0 }
            }
            Form::Curve(curve) => curve.slopes(z).1,
        }
    }

    /// The limits of the slope.
    pub(super) fn range(&self) -> (f64, f64) {
        match self {
            Form::Term(t) => (-t.hi, -t.lo),
            Form::Curve(curve) => curve.range(),
        }
    }

    /// A score at which the slope is `level`, which lies in the range.
    pub(super) fn inverse(&self, level: f64) -> f64 {
        match self {
            Form::Term(t) => {
                let side = if level == 0.0 { 0.0 } else { t.eps.copysign(level) };
                -t.p + side + t.d * level
            }
            Form::Curve(curve) => curve.inverse(level),
        }
    }

    /// Whether the slope jumps or nearly jumps.
    pub(super) fn sharp(&self) -> bool {
        match self {
            Form::Term(t) => t.d == 0.0,
            Form::Curve(curve) => curve.sharp(),
        }
    }

    /// Whether the slope never falls.
    pub(super) fn rises(&self) -> bool {
        match self {
            Form::Term(_) => true,
            Form::Curve(curve) => curve.rises(),
        }
    }
}

/// The dual term whose loss has these slopes everywhere and the minimum 0; `None` if there is none.
///
/// Such a slope is 0 on an interval, rises from there with the same steepness on both sides (or jumps), and then is
/// constant or rises for ever.
fn find_term(curve: &Curve, value: &Fill<'_>, slope: &Fill<'_>, reach: f64) -> Option<DualTerm> {
    if !curve.rises() {
        return None;
    }
    let s = |z: f64| curve.slopes(z).0;
    let (bottom, top) = (s(-reach), s(reach));
    // The ends of the interval on which the slope is 0.
    let edge = |inside: &dyn Fn(f64) -> bool, mut low: f64, mut high: f64| {
        for _ in 0..1100 {
            let mid = 0.5 * (low + high);
            if mid == low || mid == high {
                break;
            }
            if inside(mid) { low = mid } else { high = mid }
        }
        // Rounded to what an interpolation can resolve: 0.1 rather than 0.1 + 2e-17.
        (0.5 * (low + high) * 1e13).round() / 1e13
    };
    let (falls, rises) = (bottom < 0.0, top > 0.0);
    let left = falls.then(|| edge(&|z| s(z) < 0.0, -reach, reach));
    let right = rises.then(|| edge(&|z| s(z) <= 0.0, -reach, reach));
    let (p, eps) = match (left, right) {
        (Some(left), Some(right)) => (-0.5 * (left + right), (0.5 * (right - left)).max(0.0)),
        (Some(only), None) | (None, Some(only)) => (-only, 0.0),
        (None, None) => return None,
    };
    // 1/steepness beyond an end, and the limit of the slope.
    let ramp = |end: f64, way: f64, limit: f64| -> Option<(f64, f64)> {
        let step = 1e-6 * end.abs().max(1.0);
        let far = s(0.5 * way * reach);
        if (s(end + way * step) - limit).abs() <= SAME_SLOPE * limit.abs() {
            return Some((0.0, limit));
        }
        let d = step / (s(end + 2.0 * way * step) - s(end + way * step)) * way;
        let straight = way * (reach - way * end) / d;
        let bounded = (far - limit).abs() <= SAME_SLOPE * limit.abs();
        let endless = (limit - straight).abs() <= 1e-6 * limit.abs();
        match (d.is_finite() && d > 0.0, bounded, endless) {
            (true, true, _) => Some((d, limit)),
            (true, _, true) => Some((d, way * f64::INFINITY)),
            _ => None,
        }
    };
    let left = left.map(|end| ramp(end, -1.0, bottom));
    let right = right.map(|end| ramp(end, 1.0, top));
    let (d, lo, hi) = match (left, right) {
        (Some(left), None) => left.map(|(d, limit)| (d, 0.0, -limit))?,
        (None, Some(right)) => right.map(|(d, limit)| (d, -limit, 0.0))?,
        (Some(left), Some(right)) => {
            let ((d, bottom), (other, top)) = (left?, right?);
            if (d - other).abs() > 1e-6 * d.max(other) {
                return None;
            }
            (d, -top, -bottom)
        }
        (None, None) => return None,
    };
    // Steepnesses are differences of nearby slopes: keep the digits they determine.
    let d = if d > 0.0 { format!("{d:.9e}").parse().unwrap_or(d) } else { 0.0 };
    let term = DualTerm { p, eps, d, lo, hi };
    agrees(&term, value, slope, reach).then_some(term)
}

/// Whether the loss of `term` has the values and slopes of the loss.
fn agrees(term: &DualTerm, value: &Fill<'_>, slope: &Fill<'_>, reach: f64) -> bool {
    let form = Form::Term(*term);
    let spread = (-400..=400).map(|k| -term.p + f64::from(k) * 0.021_13);
    let ends = [-term.p - term.eps, -term.p + term.eps, form.inverse(-term.hi), form.inverse(-term.lo)];
    let near = ends.into_iter().filter(|end| end.is_finite()).flat_map(|end| {
        (1..12).flat_map(move |k| [-1.0, 1.0].map(|way| end + way * 10f64.powi(-k) * 1.037 * end.abs().max(1.0)))
    });
    let far = (1..40).flat_map(|k| [-1.0, 1.0].map(|way| -term.p + way * 1.618f64.powi(k)));
    let z: Vec<f64> = spread.chain(near).chain(far).filter(|z| z.abs() <= reach).collect();
    let (mut slopes, mut values) = (vec![0.0; z.len()], vec![0.0; z.len()]);
    slope(&z, &mut slopes);
    value(&z, &mut values);
    z.iter().zip(slopes.iter().zip(&values)).all(|(&z, (&s, &v))| {
        // Within rounding of a jump the slope may be that of either side.
        let h = 1e-11 * z.abs().max(1.0);
        let (low, high) = (form.slope(z - h), form.slope(z + h));
        let allowed = SAME_SLOPE * s.abs().max(low.abs()).max(high.abs()).max(1e-3);
        let expected = form.value(z);
        s >= low - allowed && s <= high + allowed && (v - expected).abs() <= 1e-9 * (expected.abs() + 1e-3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{Loss, LossSpec};

    fn form(name: &str, y: f64) -> (Form, std::sync::Arc<dyn Loss>) {
        let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
        let value = |z: &[f64], out: &mut [f64]| out.iter_mut().zip(z).for_each(|(o, z)| *o = loss.value(y, *z));
        let slope = |z: &[f64], out: &mut [f64]| out.iter_mut().zip(z).for_each(|(o, z)| *o = loss.slope(y, *z));
        (Form::new(&value, &slope, 1e6).unwrap(), loss)
    }

    #[test]
    fn the_dual_term_is_found_from_values_and_slopes() {
        let names = [
            ("hinge", 1.0),
            ("hinge", -1.0),
            ("squared-hinge", 1.0),
            ("huber-hinge", -1.0),
            ("square", 0.7),
            ("epsilon:epsilon=0.1", 0.0),
            ("epsilon:epsilon=0.3", -2.5),
            ("squared-epsilon", 1.3),
            ("huber:delta=1.35", 0.0),
            ("absolute", 0.2),
            ("pinball:tau=0.9", 0.0),
        ];
        for (name, y) in names {
            let (form, loss) = form(name, y);
            let Form::Term(found) = form else { panic!("{name} has a dual term") };
            let known = loss.dual(y, 1.0).unwrap();
            for (a, b) in [(found.p, known.p), (found.eps, known.eps), (found.d, known.d), (found.lo, known.lo)] {
                assert!(a == b || (a - b).abs() < 1e-9, "{name}: {found:?} {known:?}");
            }
            assert!(found.hi == known.hi || (found.hi - known.hi).abs() < 1e-9, "{name}: {found:?} {known:?}");
            for k in -90..90 {
                let z = f64::from(k) * 0.0613;
                assert!((Form::Term(found).value(z) - loss.value(y, z)).abs() < 1e-9, "{name} {z}");
            }
        }
        for name in ["logistic", "logcosh", "expectile:tau=0.3", "power:s=1.5", "sigmoid"] {
            assert!(matches!(form(name, 1.0).0, Form::Curve(_)), "{name}");
        }
    }

    #[test]
    fn a_loss_whose_minimum_is_not_zero_has_no_dual_term() {
        let value = |z: &[f64], out: &mut [f64]| out.iter_mut().zip(z).for_each(|(o, z)| *o = 0.5 * z * z + 3.0);
        let slope = |z: &[f64], out: &mut [f64]| out.copy_from_slice(z);
        assert!(matches!(Form::new(&value, &slope, 1e6), Some(Form::Curve(_))));
    }
}
