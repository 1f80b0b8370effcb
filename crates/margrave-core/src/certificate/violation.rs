//! The KKT violation: by how much scores would have to change for every sample to satisfy its optimality condition.

use super::bulk::{LossView, evaluate};
use super::{CHUNK, Point};
use crate::control::Interrupt;
use crate::problem::{Losses, Samples};

/// A β this close to a bound or to zero, relative to its box, counts as being at it.
const TOUCH: f64 = 1e-12;

/// The largest over the groups of (max F over variables that can decrease) − (min F over variables that can increase),
/// with the one-sided F = f + h′(γ). −b must also lie between the two, and 0 if there is no bias. Samples whose loss
/// has no dual term count with [`slope_distances`], and so do those of a user-defined loss whose slope is not that of its
/// dual term, which was found by sampling.
pub(super) fn violation(point: &Point<'_, '_>, gamma: &[f64], bias: &[f64]) -> Result<f64, Interrupt> {
    let unbiased = point.problem.constraint.groups() == 0;
    let OneSided { fall, rise, slope: mut worst } = one_sided(point, gamma, bias)?;
    for (g, (fall, rise)) in fall.into_iter().zip(rise).enumerate() {
        let own = |b: f64| (fall - rise).max(fall + b).max(-b - rise);
        worst = worst.max(if unbiased { fall.max(-rise) } else { own(bias[g]) });
    }
    Ok(worst)
}

/// What the violation is made of.
pub(super) struct OneSided {
    /// Largest F of variables that can decrease, by group.
    pub(super) fall: Vec<f64>,
    /// Smallest F of variables that can increase, by group.
    pub(super) rise: Vec<f64>,
    /// Largest of the [`slope_distances`].
    pub(super) slope: f64,
}

/// The parts of the violation.
pub(super) fn one_sided(point: &Point<'_, '_>, gamma: &[f64], bias: &[f64]) -> Result<OneSided, Interrupt> {
    let p = point.problem;
    let groups = p.constraint.groups();
    let sampled = match p.losses {
        Losses::One(loss) => loss.spec().is_none(),
        Losses::ByGroup(_) => false,
    };
    let trusted = if sampled { Some(terms_that_agree(point, bias)?) } else { None };
    // Largest and smallest values do not depend on the order of the parts.
    let parts = point.control.threads.map(p.len().div_ceil(CHUNK), |task| {
        let mut part = Extremes::new(groups);
        for i in task * CHUNK..((task + 1) * CHUNK).min(p.len()) {
            part.add(point, i, gamma[i], trusted.as_ref().is_none_or(|trusted| trusted[i]));
        }
        part
    });
    let Extremes { fall, rise, by_slope } = parts.into_iter().fold(Extremes::new(groups), Extremes::merge);
    let z: Vec<f64> = by_slope.iter().map(|&i| point.z(i as usize, bias)).collect();
    let beta: Vec<f64> = by_slope.iter().map(|&i| gamma[i as usize]).collect();
    let slope = slope_distances(point, &by_slope, &beta, &z)?.into_iter().fold(0.0f64, f64::max);
    Ok(OneSided { fall, rise, slope })
}

/// The one-sided F by group: the largest of variables that can decrease, the smallest of those that can increase; and
/// the samples that are judged by the slopes of their loss instead.
struct Extremes {
    fall: Vec<f64>,
    rise: Vec<f64>,
    by_slope: Vec<u32>,
}

impl Extremes {
    fn new(groups: usize) -> Self {
        Self {
            fall: vec![f64::NEG_INFINITY; groups.max(1)],
            rise: vec![f64::INFINITY; groups.max(1)],
            by_slope: Vec::new(),
        }
    }

    fn add(&mut self, point: &Point<'_, '_>, i: usize, beta: f64, by_term: bool) {
        let p = point.problem;
        if p.costs[i] == 0.0 {
            return;
        }
        let Some(term) = p.dual_term(i).filter(|_| by_term) else {
            self.by_slope.push(i as u32);
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
        self.by_slope.extend(other.by_slope);
        self
    }
}

/// Whether the slope at the score of each sample is one of its dual term, up to rounding.
fn terms_that_agree(point: &Point<'_, '_>, bias: &[f64]) -> Result<Vec<bool>, Interrupt> {
    let p = point.problem;
    let of: Vec<u32> = (0..p.len() as u32).filter(|&i| p.costs[i as usize] > 0.0).collect();
    let z: Vec<f64> = of.iter().map(|&i| point.z(i as usize, bias)).collect();
    let slopes = evaluate(p, LossView::Slope, &of, &z);
    point.control.check()?;
    let mut agree = vec![true; p.len()];
    for (k, &i) in of.iter().enumerate() {
        let (i, c) = (i as usize, p.costs[i as usize]);
        let Some(term) = p.dual_term(i) else { continue };
        // The interval of β at scores within rounding of z.
        let beta = |z: f64| {
            let s = -(term.p + z);
            let soft = (s - term.eps).max(0.0) + (s + term.eps).min(0.0);
            let ramp = if term.d > 0.0 { soft / term.d } else { soft * f64::INFINITY };
            if ramp.is_nan() { 0.0 } else { ramp.clamp(term.lo, term.hi) }
        };
        let h = 1e-9 * z[k].abs().max(p.targets[i].abs()).max(1.0);
        let (low, high) = (beta(z[k] + h), beta(z[k] - h));
        let (given, allowed) = (-c * slopes[k], 1e-6 * c * (1.0 + slopes[k].abs()));
        agree[i] = given >= low - allowed && given <= high + allowed;
    }
    Ok(agree)
}

/// Distance of −β/c from the slopes of the loss near z, for each of the variables `of`. At a kink every number between
/// the one-sided slopes is one; kinks are searched within a relative distance of 1e-6 of z, the accuracy that can be
/// expected of a score at a kink. A kink within 1e-2 counts with its distance: the result is the smallest r such that a
/// score within r of z has slopes within r of −β/c.
pub(super) fn slope_distances(
    point: &Point<'_, '_>,
    of: &[u32],
    beta: &[f64],
    z: &[f64],
) -> Result<Vec<f64>, Interrupt> {
    let p = point.problem;
    let parts = point.control.threads.map(of.len().div_ceil(CHUNK), |task| {
        let range = task * CHUNK..((task + 1) * CHUNK).min(of.len());
        chunk_of_distances(p, &of[range.clone()], &beta[range.clone()], &z[range])
    });
    point.control.check()?;
    Ok(parts.concat())
}

fn chunk_of_distances(p: &Samples<'_>, of: &[u32], beta: &[f64], z: &[f64]) -> Vec<f64> {
    let slopes = |of: &[u32], z: &[f64]| evaluate(p, LossView::Slope, of, z);
    let unit = |k: usize| z[k].abs().max(1.0);
    let off = |k: usize, slopes: &[f64]| {
        let u = -beta[k] / p.costs[of[k] as usize];
        let low = slopes.iter().copied().fold(f64::INFINITY, f64::min);
        let high = slopes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (low - u).max(u - high).max(0.0)
    };
    let moved = |way: f64| -> Vec<f64> { (0..of.len()).map(|k| z[k] + way * unit(k)).collect() };
    let around = [-1e-6, 0.0, 1e-6].map(|way| slopes(of, &moved(way)));
    let mut distances: Vec<f64> = (0..of.len())
        .map(|k| match p.costs[of[k] as usize] {
            0.0 => 0.0,
            _ => off(k, &[around[0][k], around[1][k], around[2][k]]),
        })
        .collect();
    let kinked: Vec<usize> =
        (0..of.len()).filter(|&k| p.loss(of[k] as usize).sharp() && distances[k] > 1e-6 * unit(k)).collect();
    if kinked.is_empty() {
        return distances;
    }
    // Bisecting to the half in which the slope changes more converges to the kink.
    let members: Vec<u32> = kinked.iter().map(|&k| of[k]).collect();
    let mut low: Vec<f64> = kinked.iter().map(|&k| z[k] - 1e-2 * unit(k)).collect();
    let mut high: Vec<f64> = kinked.iter().map(|&k| z[k] + 1e-2 * unit(k)).collect();
    let (mut at_low, mut at_high) = (slopes(&members, &low), slopes(&members, &high));
    for _ in 0..60 {
        let mid: Vec<f64> = low.iter().zip(&high).map(|(l, h)| 0.5 * (l + h)).collect();
        let at_mid = slopes(&members, &mid);
        for j in 0..members.len() {
            if (at_mid[j] - at_low[j]).abs() >= (at_high[j] - at_mid[j]).abs() {
                (high[j], at_high[j]) = (mid[j], at_mid[j]);
            } else {
                (low[j], at_low[j]) = (mid[j], at_mid[j]);
            }
        }
    }
    for (j, &k) in kinked.iter().enumerate() {
        let shift = (low[j] - z[k]).abs().max((high[j] - z[k]).abs());
        distances[k] = distances[k].min(off(k, &[at_low[j], at_high[j]]).max(shift));
    }
    distances
}
