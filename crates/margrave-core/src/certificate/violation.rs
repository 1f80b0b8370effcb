//! The KKT violation: by how much scores would have to change for every sample to satisfy its optimality condition.

use super::{CHUNK, Point};
use crate::problem::Samples;

/// A β this close to a bound or to zero, relative to its box, counts as being at it.
const TOUCH: f64 = 1e-12;

/// The largest over the groups of (max F over variables that can decrease) − (min F over variables that can increase),
/// with the one-sided F = f + h′(γ). −b must also lie between the two, and 0 if there is no bias. Samples whose loss
/// has no dual term count with [`slope_distance`].
pub(super) fn violation(point: &Point<'_, '_>, gamma: &[f64], bias: &[f64]) -> f64 {
    let p = point.problem;
    let groups = p.constraint.groups();
    let unbiased = groups == 0;
    // Largest and smallest values do not depend on the order of the parts.
    let parts = point.control.threads.map(p.len().div_ceil(CHUNK), |task| {
        let mut part = Extremes::new(groups);
        (task * CHUNK..((task + 1) * CHUNK).min(p.len())).for_each(|i| part.add(point, i, gamma[i], bias));
        part
    });
    let Extremes { fall, rise, mut worst } = parts.into_iter().fold(Extremes::new(groups), Extremes::merge);
    for (g, (fall, rise)) in fall.into_iter().zip(rise).enumerate() {
        let own = |b: f64| (fall - rise).max(fall + b).max(-b - rise);
        worst = worst.max(if unbiased { fall.max(-rise) } else { own(bias[g]) });
    }
    worst
}

/// The one-sided F by group: the largest of variables that can decrease, the smallest of those that can increase; and
/// the largest violation of samples without a dual term.
struct Extremes {
    fall: Vec<f64>,
    rise: Vec<f64>,
    worst: f64,
}

impl Extremes {
    fn new(groups: usize) -> Self {
        Self { fall: vec![f64::NEG_INFINITY; groups.max(1)], rise: vec![f64::INFINITY; groups.max(1)], worst: 0.0 }
    }

    fn add(&mut self, point: &Point<'_, '_>, i: usize, beta: f64, bias: &[f64]) {
        let p = point.problem;
        if p.costs[i] == 0.0 {
            return;
        }
        let Some(term) = p.dual_term(i) else {
            self.worst = self.worst.max(slope_distance(p, i, beta, point.z(i, bias)));
            return;
        };
        let g = p.constraint.group(i).unwrap_or(0);
        let width = term.hi - term.lo;
        let touch = TOUCH * if width.is_finite() { width } else { beta.abs().max(p.costs[i]) };
        let f = point.f(i) + term.p + term.d * beta;
        if beta - term.lo > touch {
            self.fall[g] = self.fall[g].max(f + if beta > touch { term.eps } else { -term.eps });
        }
        if term.hi - beta > touch {
            self.rise[g] = self.rise[g].min(f + if beta < -touch { -term.eps } else { term.eps });
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.fall.iter_mut().zip(other.fall).for_each(|(a, b)| *a = a.max(b));
        self.rise.iter_mut().zip(other.rise).for_each(|(a, b)| *a = a.min(b));
        self.worst = self.worst.max(other.worst);
        self
    }
}

/// Distance of −β/c from the slopes of the loss near z. At a kink every number between the one-sided slopes is one;
/// kinks are searched within a relative distance of 1e-6 of z, the accuracy that can be expected of a score at a kink.
/// A kink within 1e-2 counts with its distance: the result is the smallest r such that a score within r of z has slopes
/// within r of −β/c.
pub(super) fn slope_distance(p: &Samples<'_>, i: usize, beta: f64, z: f64) -> f64 {
    let (c, y, loss) = (p.costs[i], p.targets[i], p.loss(i));
    if c == 0.0 {
        return 0.0;
    }
    let unit = z.abs().max(1.0);
    let u = -beta / c;
    let off = |slopes: &[f64]| {
        let low = slopes.iter().copied().fold(f64::INFINITY, f64::min);
        let high = slopes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (low - u).max(u - high).max(0.0)
    };
    let h = 1e-6 * unit;
    let here = off(&[loss.slope(y, z - h), loss.slope(y, z), loss.slope(y, z + h)]);
    if !loss.sharp() || here <= h {
        return here;
    }
    // Bisecting to the half in which the slope changes more converges to the kink.
    let (mut low, mut high) = (z - 1e-2 * unit, z + 1e-2 * unit);
    for _ in 0..60 {
        let mid = 0.5 * (low + high);
        let [a, b, c] = [low, mid, high].map(|t| loss.slope(y, t));
        if (b - a).abs() >= (c - b).abs() { high = mid } else { low = mid }
    }
    let kink = off(&[loss.slope(y, low), loss.slope(y, high)]).max((low - z).abs().max((high - z).abs()));
    here.min(kink)
}
