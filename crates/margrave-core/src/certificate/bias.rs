//! The best bias: the minimum of the one-dimensional convex function φ(b) = Σ cᵢℓ(yᵢ, fᵢ + b) + s·b.

use super::Point;
use super::bulk::{LossView, evaluate};
use crate::control::Interrupt;

/// Search limit for the bias, relative to the largest score and target: beyond it φ is assumed to have no minimum.
const FARTHEST: f64 = 1e18;

/// A bracket becomes narrower by this factor before variables that are constant within it are looked for again.
const NARROWER: f64 = 1.0 / 16.0;

/// A b at which φ is within `tol` of its minimum over the variables of group `g`, by bisection on φ′ and interpolation.
///
/// Kinks need no special treatment: φ′ is monotone and bisection converges to the point where it changes sign.
/// Convexity bounds the remaining decrease between `near` and `far` by |φ′|·width at either end. Without a sign change
/// (an infeasible constraint) the last point tried is returned.
pub(super) fn best(
    point: &Point<'_, '_>,
    g: usize,
    members: Option<&[u32]>,
    given: Option<f64>,
    tol: f64,
) -> Result<f64, Interrupt> {
    let p = point.problem;
    let mut slope = match kinds(point, members) {
        Some(kinds) => Slope::Kinds { sum: p.constraint.sum(g), kinds },
        None => Slope::Rest(Rest { point, constant: p.constraint.sum(g), members, varying: None }),
    };
    let start = given.filter(|b| b.is_finite()).unwrap_or(0.0);
    let at_start: f64 = slope.at(point, start)?;
    if at_start == 0.0 {
        return Ok(start);
    }
    // The solver's own bias is a good start; without it nothing is known.
    let mut step = if given.is_some() { 1e-6 * (1.0 + start.abs()) } else { 1.0 };
    let way = -at_start.signum();
    let (mut near, mut slope_near) = (start, at_start);
    let (mut far, mut slope_far);
    loop {
        far = start + way * step;
        slope_far = slope.at(point, far)?;
        if slope_far * way >= 0.0 {
            break;
        }
        if !far.is_finite() {
            return Ok(near);
        }
        if step > FARTHEST && step > FARTHEST * largest(point) {
            return Ok(far);
        }
        (near, slope_near) = (far, slope_far);
        step *= 16.0;
    }
    // The width below which constant variables are looked for, and whether the next point is interpolated: where φ′ is
    // smooth that converges in a few steps, and where it jumps every other step halves the bracket all the same.
    let (mut narrower, mut ratio, mut interpolate) = (f64::INFINITY, NARROWER, true);
    loop {
        let width = (far - near).abs();
        let mut middle = 0.5 * (near + far);
        if slope_near.abs().min(slope_far.abs()) * width <= tol || middle == near || middle == far {
            break;
        }
        if width <= narrower {
            if !slope.narrow(near, far)? {
                ratio *= ratio;
            }
            narrower = ratio * width;
        }
        if interpolate {
            let between = near + (far - near) * (slope_near / (slope_near - slope_far));
            if (between - near) * way > 0.0 && (far - between) * way > 0.0 {
                middle = between;
            }
        }
        interpolate = !interpolate;
        let at = slope.at(point, middle)?;
        if at * way >= 0.0 {
            (far, slope_far) = (middle, at);
        } else {
            (near, slope_near) = (middle, at);
        }
    }
    Ok(if slope_near.abs() < slope_far.abs() { near } else { far })
}

/// The largest score or target, at least 1.
fn largest(point: &Point<'_, '_>) -> f64 {
    let size = |i: usize| point.f(i).abs().max(point.problem.targets[i].abs());
    (0..point.problem.len()).map(size).filter(|v| v.is_finite()).fold(1.0, f64::max)
}

/// φ′.
enum Slope<'p, 'q, 'a> {
    /// One variable for each distinct term, with its cost, and the sum of the constraint.
    Kinds {
        sum: f64,
        kinds: Vec<(usize, f64)>,
    },
    Rest(Rest<'p, 'q, 'a>),
}

/// φ′ within a bracket: each cᵢℓ′(yᵢ, fᵢ + b) is monotone in b, so a variable for which it is equal at both ends of a
/// bracket is constant within it. With losses made of straight pieces nearly all variables are.
struct Rest<'p, 'q, 'a> {
    point: &'p Point<'q, 'a>,
    /// The sum of the constraint and of the variables that are constant.
    constant: f64,
    members: Option<&'p [u32]>,
    /// The other variables; `None`: all members.
    varying: Option<Vec<u32>>,
}

impl Slope<'_, '_, '_> {
    fn at(&self, point: &Point<'_, '_>, b: f64) -> Result<f64, Interrupt> {
        match self {
            Self::Kinds { sum, kinds } => {
                let of: Vec<u32> = kinds.iter().map(|&(i, _)| i as u32).collect();
                let z: Vec<f64> = kinds.iter().map(|&(i, _)| point.f(i) + b).collect();
                let slopes = evaluate(point.problem, LossView::Slope, &of, &z);
                Ok(sum + kinds.iter().zip(&slopes).map(|((_, c), slope)| c * slope).sum::<f64>())
            }
            Self::Rest(rest) => {
                let varying = rest.varying.as_deref().or(rest.members);
                Ok(rest.constant + point.sum_slopes(varying, |i| point.f(i) + b)?)
            }
        }
    }

    /// Adds up the variables that are constant between `near` and `far`, once for all later points between them; false if
    /// they are too few.
    fn narrow(&mut self, near: f64, far: f64) -> Result<bool, Interrupt> {
        let Self::Rest(rest) = self else { return Ok(false) };
        let f = |i: usize, b: f64| rest.point.f(i) + b;
        let members = rest.varying.as_deref().or(rest.members);
        let count = members.map_or(rest.point.problem.len(), <[u32]>::len);
        let Some((constant, varying)) = rest.point.split_slopes(members, |i| (f(i, near), f(i, far)), count / 2)?
        else {
            return Ok(false);
        };
        rest.constant += constant;
        rest.varying = Some(varying);
        Ok(true)
    }
}

/// If all scores are equal (for example β = 0) and there are few distinct targets: one variable for each distinct term
/// of φ, with the total cost of its kind.
fn kinds(point: &Point<'_, '_>, members: Option<&[u32]>) -> Option<Vec<(usize, f64)>> {
    const FEW: usize = 16;
    let p = point.problem;
    let count = members.map_or(p.len(), <[u32]>::len);
    let member = |k: usize| members.map_or(k, |list| list[k] as usize);
    let mut kinds: Vec<(usize, f64)> = Vec::new();
    for i in (0..count).map(member) {
        if point.f(i).to_bits() != point.f(member(0)).to_bits() {
            return None;
        }
        match kinds.iter().position(|&(j, _)| p.targets[j].to_bits() == p.targets[i].to_bits()) {
            Some(at) => kinds[at].1 += p.costs[i],
            None if kinds.len() == FEW => return None,
            None => kinds.push((i, p.costs[i])),
        }
    }
    // A kind with zero cost contributes nothing, and its loss may not be finite.
    kinds.retain(|(_, cost)| *cost > 0.0);
    Some(kinds)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::control::{Control, Threads};
    use crate::data::Points;
    use crate::kernel::Kernel;
    use crate::loss::{Loss, LossSpec, Properties, Reweight};
    use crate::problem::{Constraint, KernelProblem};

    /// A loss that counts the slopes it is asked for.
    struct Counted(Arc<dyn Loss>, AtomicUsize);

    impl Loss for Counted {
        fn name(&self) -> String {
            self.0.name()
        }
        fn value(&self, y: f64, z: f64) -> f64 {
            self.0.value(y, z)
        }
        fn slope(&self, y: f64, z: f64) -> f64 {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.slope(y, z)
        }
        fn conjugate(&self, y: f64, u: f64) -> Option<f64> {
            self.0.conjugate(y, u)
        }
        fn domain(&self, y: f64) -> (f64, f64) {
            self.0.domain(y)
        }
        fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight {
            self.0.reweight(y, z, cap)
        }
        fn properties(&self) -> Properties {
            self.0.properties()
        }
    }

    #[test]
    fn a_search_over_many_rows_finds_the_minimum_in_a_few_passes() {
        let n = 20_000;
        let mut rng = ChaCha8Rng::seed_from_u64(61);
        let gram = CpuGram::square(Kernel::Linear, &Points::dense_f64(n, 1, vec![0.0; n]).unwrap()).unwrap();
        let costs: Vec<f64> = (0..n).map(|i| [0.0, 0.5, 1.0, 3.0][i % 4]).collect();
        let f: Vec<f64> = (0..n).map(|_| rng.random_range(-2.0..2.0)).collect();
        let control = Control::unlimited(Threads::new(2));
        for (name, passes) in
            [("hinge", 9), ("pinball:tau=0.9", 9), ("epsilon:epsilon=0.1", 9), ("squared-hinge", 20), ("logistic", 20)]
        {
            let loss = Counted(name.parse::<LossSpec>().unwrap().build().unwrap(), AtomicUsize::new(0));
            let label = loss.properties().classification;
            let targets: Vec<f64> = (0..n)
                .map(|i| if label { [1.0, 1.0, -1.0][i % 3] } else { f[i] + rng.random_range(-1.0..2.0) })
                .collect();
            let problem = KernelProblem::new(&gram, &targets, &costs, &loss, Constraint::free_bias()).unwrap();
            let samples = problem.samples();
            let point = Point { problem: &samples, f: &f, error: &[], control: &control };
            for given in [None, Some(0.3)] {
                loss.1.store(0, Ordering::Relaxed);
                let b = best(&point, 0, None, given, 1e-12).unwrap();
                let asked = loss.1.load(Ordering::Relaxed);
                assert!(asked <= passes * n, "{name}: {:.1} passes", asked as f64 / n as f64);
                let at = point.primal(0.0, &[b]).unwrap();
                for step in [1e-9, 1e-6, 1e-3, 1.0] {
                    for other in [b - step, b + step] {
                        let there = point.primal(0.0, &[other]).unwrap();
                        assert!(at <= there * (1.0 + 1e-13), "{name}: {at} at {b}, {there} at {other}");
                    }
                }
            }
        }
    }
}
