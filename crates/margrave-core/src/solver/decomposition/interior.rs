//! The interior-point method: the way out where pair steps and Newton rounds on active sets stall.
//!
//! ```text
//! minimise ½βᵀKβ + Σᵢ hᵢ(βᵢ),  loᵢ ≤ βᵢ ≤ hiᵢ,  Aβ = s
//! ```
//!
//! Mehrotra's predictor–corrector method on the optimality conditions with complementarity relaxed to (x − l)·z = μ. A step costs
//! one factorisation of K + D over all variables, D ≥ 0 diagonal, and 10 to 30 steps suffice however K is scaled: a singular K
//! (a linear kernel with more samples than features, ν-SVR with its two variables per row) whose optimum active-set methods
//! approach ever more slowly is no special case here. All variables are inside the box on the way, so sets of support vectors
//! come out only at the end, and nothing is gained from a start: the price is n³/3 multiply–adds a step.
//!
//! A term with eps·|β| is split, β = u − v with u, v ≥ 0, and eliminated again: each variable of K keeps one row.

use std::ops::ControlFlow;

use super::sums;
use crate::control::{Control, Interrupt};
use crate::gram::Pick;
use crate::linalg::factor::{Cholesky, FactorError};
use crate::loss::DualTerm;
use crate::observe::{Observer, Step};
use crate::problem::KernelProblem;

/// Largest number of variables: a step takes a second then.
const MAX_VARIABLES: usize = 2500;
/// Most steps.
const MAX_STEPS: u64 = 100;
/// Steps without progress after which rounding has the last word.
const PATIENCE: u64 = 15;
/// Share of the way to the nearest bound that a step takes.
const SHARE: f64 = 0.995;
/// Distance from the optimum to end with, relative to the objective.
const ENOUGH: f64 = 1e-12;
/// Ratio of curvatures from which a bound holds a variable.
const AT_BOUND: f64 = 100.0;
/// Least θ of a split variable.
const TINY: f64 = 1e-300;

/// β, or one of the two parts of a split β, with the multipliers of its bounds.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Position of its variable among those used.
    of: usize,
    /// β is the sum of sign·x over its parts.
    sign: f64,
    /// Slope of its own term at 0.
    cost: f64,
    lower: f64,
    upper: f64,
    /// Kᵢᵢ + dᵢ.
    curvature: f64,
    x: f64,
    lower_multiplier: f64,
    upper_multiplier: f64,
}

/// A change of one part.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    x: f64,
    lower_multiplier: f64,
    upper_multiplier: f64,
}

impl Part {
    fn new(of: usize, sign: f64, cost: f64, lower: f64, upper: f64, [diag, quadratic]: [f64; 2]) -> Self {
        let curvature = diag + quadratic;
        // Without a box to take the middle of: as far as the term's own quadratic lets it go. Too far is better than too near,
        // from where multipliers fall long before β has grown.
        let unit = cost.abs().max(1.0) / if quadratic > 0.0 { quadratic } else { curvature };
        let unit = if unit.is_finite() && unit > 0.0 { unit } else { 1.0 };
        let x = match (lower.is_finite(), upper.is_finite()) {
            (true, true) => 0.5 * (lower + upper),
            (true, false) => lower + unit,
            (false, true) => upper - unit,
            (false, false) => 0.0,
        };
        Self { of, sign, cost, lower, upper, curvature, x, lower_multiplier: 0.0, upper_multiplier: 0.0 }
    }

    /// Distance from the lower bound, if there is one.
    fn above(&self) -> Option<f64> {
        self.lower.is_finite().then_some(self.x - self.lower)
    }

    /// Distance from the upper bound, if there is one.
    fn below(&self) -> Option<f64> {
        self.upper.is_finite().then_some(self.upper - self.x)
    }

    /// θ: the curvature that the bounds add.
    fn theta(&self) -> f64 {
        self.above().map_or(0.0, |d| self.lower_multiplier / d)
            + self.below().map_or(0.0, |d| self.upper_multiplier / d)
    }

    /// Σ distance·multiplier.
    fn complementarity(&self) -> f64 {
        self.above().map_or(0.0, |d| self.lower_multiplier * d)
            + self.below().map_or(0.0, |d| self.upper_multiplier * d)
    }

    fn bounds(&self) -> f64 {
        f64::from(u8::from(self.lower.is_finite()) + u8::from(self.upper.is_finite()))
    }

    fn moved(&self, change: &Change, by: f64) -> Self {
        Self {
            x: self.x + by * change.x,
            lower_multiplier: self.lower_multiplier + by * change.lower_multiplier,
            upper_multiplier: self.upper_multiplier + by * change.upper_multiplier,
            ..*self
        }
    }

    /// How far `change` can be followed, at most 1.
    fn longest(&self, change: &Change) -> f64 {
        let until = |left: f64, rate: f64| if rate < 0.0 { -left / rate } else { f64::INFINITY };
        let mut longest = 1.0f64;
        if let Some(d) = self.above() {
            longest = longest.min(until(d, change.x)).min(until(self.lower_multiplier, change.lower_multiplier));
        }
        if let Some(d) = self.below() {
            longest = longest.min(until(d, -change.x)).min(until(self.upper_multiplier, change.upper_multiplier));
        }
        longest
    }

    /// x, on a bound if that bound adds far more curvature than the problem has: of a variable that stays inside it adds less and
    /// less. Distances alone do not tell: they may be tiny compared with the box.
    fn rounded(&self) -> f64 {
        let holds = |multiplier: f64, distance: f64| multiplier > AT_BOUND * self.curvature * distance;
        match (self.above(), self.below()) {
            (Some(d), _) if holds(self.lower_multiplier, d) => self.lower,
            (_, Some(d)) if holds(self.upper_multiplier, d) => self.upper,
            _ => self.x,
        }
    }
}

/// Whether `problem` is small enough for it.
pub(super) fn fits(problem: &KernelProblem<'_>, memory: u64) -> bool {
    let n = problem.len();
    n <= MAX_VARIABLES && (n as u64).pow(2) * 8 <= memory
}

/// What the method found: with variables on the bounds that hold them, which changes the scores a little, and as it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Approached {
    pub(super) on_bounds: Vec<f64>,
    pub(super) inside: Vec<f64>,
}

/// Points near the optimum; `None` if there is none better than the start. `begun`: steps of the run so far.
pub(super) fn approach(
    problem: &KernelProblem<'_>,
    begun: u64,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Option<Approached>, Interrupt> {
    let terms: Vec<DualTerm> = (0..problem.len()).filter_map(|i| problem.dual_term(i)).collect();
    if terms.len() < problem.len() {
        return Ok(None);
    }
    let used: Vec<usize> = (0..terms.len()).filter(|&i| terms[i].lo < terms[i].hi).collect();
    let Some(mut interior) = Interior::new(problem, &terms, used, control)? else { return Ok(None) };
    let (mut least, mut best, mut waited) = (f64::INFINITY, None, 0);
    for step in 1..=MAX_STEPS {
        let (distance, size) = interior.measure();
        if !distance.is_finite() {
            break;
        }
        waited += 1;
        if distance < least {
            // Slow progress is none: rounding has taken over.
            if distance < 0.9 * least {
                waited = 0;
            }
            (least, best) = (distance, Some(interior.parts.clone()));
        }
        if distance <= ENOUGH * size || waited >= PATIENCE {
            break;
        }
        let report = Step {
            iteration: begun + step,
            seconds: control.seconds(),
            phase: "interior",
            kernel_entries: Some(problem.gram.entries()),
            ..Step::default()
        };
        if let ControlFlow::Break(()) = observer.step(&report) {
            return Err(Interrupt::Cancelled);
        }
        if !interior.step(control)? {
            break;
        }
    }
    let Some(parts) = best else { return Ok(None) };
    let all = |x: fn(&Part) -> f64| {
        let mut beta = vec![0.0; problem.len()];
        parts.iter().for_each(|part| beta[interior.used[part.of]] += part.sign * x(part));
        beta
    };
    Ok(Some(Approached { on_bounds: all(Part::rounded), inside: all(|part| part.x) }))
}

struct Interior {
    used: Vec<usize>,
    /// Quadratic coefficient of each variable's own term.
    quadratic: Vec<f64>,
    /// The group of each variable; all 0 without a constraint.
    group: Vec<usize>,
    sums: Vec<f64>,
    parts: Vec<Part>,
    /// Where the parts of each variable begin.
    first: Vec<usize>,
    multipliers: Vec<f64>,
    /// K above the diagonal, row-major; the factor is below.
    square: Vec<f64>,
    diag: Vec<f64>,
    /// The size of slopes and multipliers at the start.
    scale: f64,
    /// What is left of the conditions at the point that was measured: of each part, and of each sum.
    slopes: Vec<f64>,
    short: Vec<f64>,
    mu: f64,
}

impl Interior {
    fn new(
        problem: &KernelProblem<'_>,
        terms: &[DualTerm],
        used: Vec<usize>,
        control: &Control,
    ) -> Result<Option<Self>, Interrupt> {
        let n = used.len();
        let rows: Vec<u32> = used.iter().map(|&i| problem.row(i) as u32).collect();
        let mut square = vec![0.0; n * n];
        problem.gram.block_f64(Pick::List(&rows), Pick::List(&rows), &mut square, control)?;
        let diag: Vec<f64> = (0..n).map(|i| square[i * n + i]).collect();
        let (mut parts, mut first) = (Vec::with_capacity(2 * n), Vec::with_capacity(n + 1));
        for (at, &i) in used.iter().enumerate() {
            let t = terms[i];
            let curvature = [diag[at], t.d];
            first.push(parts.len());
            if t.eps > 0.0 && t.lo < 0.0 && t.hi > 0.0 {
                parts.push(Part::new(at, 1.0, t.p + t.eps, 0.0, t.hi, curvature));
                parts.push(Part::new(at, -1.0, t.eps - t.p, 0.0, -t.lo, curvature));
            } else {
                let eps = if t.hi > 0.0 { t.eps } else { -t.eps };
                parts.push(Part::new(at, 1.0, t.p + eps, t.lo, t.hi, curvature));
            }
        }
        first.push(parts.len());
        let groups = problem.constraint.groups();
        let mut this = Self {
            quadratic: used.iter().map(|&i| terms[i].d).collect(),
            group: used.iter().map(|&i| problem.constraint.group(i).unwrap_or(0)).collect(),
            sums: (0..groups).map(|g| problem.constraint.sum(g)).collect(),
            parts,
            first,
            multipliers: vec![0.0; groups],
            square,
            diag,
            scale: 0.0,
            slopes: Vec::new(),
            short: Vec::new(),
            mu: 0.0,
            used,
        };
        let f = this.product(&this.beta());
        let slope = this.parts.iter().fold(0.0f64, |most, part| most.max(part.cost.abs()));
        this.scale = f.iter().fold(slope, |most, f| most.max(f.abs()));
        if n == 0 || !(this.scale > 0.0 && this.scale.is_finite()) {
            return Ok(None);
        }
        for part in &mut this.parts {
            part.lower_multiplier = if part.lower.is_finite() { this.scale } else { 0.0 };
            part.upper_multiplier = if part.upper.is_finite() { this.scale } else { 0.0 };
        }
        Ok(Some(this))
    }

    fn beta(&self) -> Vec<f64> {
        let mut beta = vec![0.0; self.used.len()];
        self.parts.iter().for_each(|part| beta[part.of] += part.sign * part.x);
        beta
    }

    /// K·v.
    fn product(&self, v: &[f64]) -> Vec<f64> {
        let n = v.len();
        let mut out: Vec<f64> = self.diag.iter().zip(v).map(|(k, v)| k * v).collect();
        for i in 0..n {
            let row = &self.square[i * n + i + 1..(i + 1) * n];
            let mut sum = 0.0;
            for ((k, v_j), out_j) in row.iter().zip(&v[i + 1..]).zip(&mut out[i + 1..]) {
                sum += k * v_j;
                *out_j += k * v[i];
            }
            out[i] += sum;
        }
        out
    }

    /// The sum of `v` over each group.
    fn sums_of(&self, v: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.sums.len()];
        if !sums.is_empty() {
            v.iter().zip(&self.group).for_each(|(v, &g)| sums[g] += v);
        }
        sums
    }

    /// The multiplier of the sum that a variable is in.
    fn multiplier(&self, of: &[f64], i: usize) -> f64 {
        of.get(self.group[i]).copied().unwrap_or(0.0)
    }

    /// The residuals of the conditions. Returns an estimate of the distance of the objective from its optimum, and its size: the
    /// distance alone is what falls from step to step.
    fn measure(&mut self) -> (f64, f64) {
        let beta = self.beta();
        let f = self.product(&beta);
        let slope = |i: usize| f[i] + self.quadratic[i] * beta[i] + self.multiplier(&self.multipliers, i);
        let left =
            |part: &Part| -(part.sign * slope(part.of) + part.cost - part.lower_multiplier + part.upper_multiplier);
        let slopes: Vec<f64> = self.parts.iter().map(left).collect();
        let sums = self.sums_of(&beta);
        self.short = self.sums.iter().zip(&sums).map(|(s, sum)| s - sum).collect();
        let total: f64 = self.parts.iter().map(Part::complementarity).sum();
        let bounds: f64 = self.parts.iter().map(Part::bounds).sum();
        self.mu = if bounds > 0.0 { total / bounds } else { 0.0 };
        let own: f64 = self.parts.iter().map(|part| part.cost * part.x).sum();
        let quadratic = |i: usize| beta[i] * (f[i] + self.quadratic[i] * beta[i]);
        let objective = own + 0.5 * (0..beta.len()).map(quadratic).sum::<f64>();
        let size = objective.abs().max((objective - total).abs());
        let residual: f64 = self.parts.iter().zip(&slopes).map(|(part, r)| (part.x * r).abs()).sum();
        let unmet: f64 = self.short.iter().zip(&self.multipliers).map(|(s, m)| (s * m).abs()).sum();
        self.slopes = slopes;
        (total + residual + unmet, size)
    }

    /// One step from the point that was measured; `false` if rounding allows none.
    fn step(&mut self, control: &Control) -> Result<bool, Interrupt> {
        let theta: Vec<f64> = self.parts.iter().map(|part| part.theta().max(TINY)).collect();
        let curvature: Vec<f64> = (0..self.used.len())
            .map(|i| match &theta[self.first[i]..self.first[i + 1]] {
                [one] => *one,
                parts => 1.0 / parts.iter().map(|t| 1.0 / t).sum::<f64>(),
            })
            .collect();
        let Some(factor) = self.factor(&curvature, control)? else { return Ok(false) };
        let system = System { theta, curvature, factor, by_group: Vec::new() }.with_groups(self, control);
        let affine = |part: &Part, _: &Change| {
            [
                part.above().map_or(0.0, |d| -part.lower_multiplier * d),
                part.below().map_or(0.0, |d| -part.upper_multiplier * d),
            ]
        };
        let none = vec![Change::default(); self.parts.len()];
        let (predicted, _) = system.direction(self, affine, &none, control);
        let by = self.longest(&predicted);
        let bounds: f64 = self.parts.iter().map(Part::bounds).sum();
        let total: f64 = self.parts.iter().zip(&predicted).map(|(p, c)| p.moved(c, by).complementarity()).sum();
        let centre = if bounds > 0.0 && self.mu > 0.0 { (total / bounds / self.mu).powi(3) * self.mu } else { 0.0 };
        let corrected = |part: &Part, c: &Change| {
            [
                part.above().map_or(0.0, |d| centre - part.lower_multiplier * d - c.x * c.lower_multiplier),
                part.below().map_or(0.0, |d| centre - part.upper_multiplier * d + c.x * c.upper_multiplier),
            ]
        };
        let (changes, multipliers) = system.direction(self, corrected, &predicted, control);
        self.square = system.factor.into_square();
        let by = (SHARE * self.longest(&changes)).min(1.0);
        let finite = changes.iter().all(|c| c.x.is_finite()) && multipliers.iter().all(|m| m.is_finite());
        if !(finite && by > 1e-12) {
            return Ok(false);
        }
        for (part, change) in self.parts.iter_mut().zip(&changes) {
            *part = part.moved(change, by);
        }
        self.multipliers.iter_mut().zip(&multipliers).for_each(|(m, change)| *m += by * change);
        // A distance that rounding has made 0 would divide by it.
        Ok(self.parts.iter().all(|part| part.above().is_none_or(|d| d > 0.0) && part.below().is_none_or(|d| d > 0.0)))
    }

    fn longest(&self, changes: &[Change]) -> f64 {
        self.parts.iter().zip(changes).fold(1.0, |longest, (part, change)| part.longest(change).min(longest))
    }

    /// The factor of K + D, with the least multiple of the identity that makes it positive definite.
    fn factor(&mut self, curvature: &[f64], control: &Control) -> Result<Option<Cholesky<f64>>, Interrupt> {
        let n = self.used.len();
        let largest = self.diag.iter().fold(0.0f64, |most, k| most.max(k.abs()));
        let mut lift = 4.0 * f64::EPSILON * largest;
        for _ in 0..6 {
            let lifted = |i: usize| self.diag[i] + self.quadratic[i] + curvature[i] + lift;
            let diag: Vec<f64> = (0..n).map(lifted).collect();
            match Cholesky::from_above(std::mem::take(&mut self.square), n, n, &diag, control) {
                Ok(factor) => return Ok(Some(factor)),
                Err((_, FactorError::Interrupted(why))) => return Err(why),
                Err((square, FactorError::NotPositive(_))) => self.square = square,
            }
            lift *= 100.0;
        }
        Ok(None)
    }
}

/// The linear system of one step.
struct System {
    theta: Vec<f64>,
    /// θ of each variable, of its parts together.
    curvature: Vec<f64>,
    factor: Cholesky<f64>,
    /// (K + D)⁻¹·1 over each group.
    by_group: Vec<Vec<f64>>,
}

impl System {
    fn with_groups(mut self, of: &Interior, control: &Control) -> Self {
        for g in 0..of.sums.len() {
            let mut column: Vec<f64> = of.group.iter().map(|&own| f64::from(u8::from(own == g))).collect();
            self.factor.solve_on(&mut column, &control.threads);
            self.by_group.push(column);
        }
        self
    }

    /// The changes of the parts and of the multipliers of the sums. `complement`: what distance·multiplier has to change by,
    /// at the lower and at the upper bound.
    fn direction(
        &self,
        of: &Interior,
        complement: impl Fn(&Part, &Change) -> [f64; 2],
        before: &[Change],
        control: &Control,
    ) -> (Vec<Change>, Vec<f64>) {
        let wanted: Vec<[f64; 2]> =
            of.parts.iter().zip(before).map(|(part, change)| complement(part, change)).collect();
        let right: Vec<f64> = (0..of.parts.len())
            .map(|k| {
                let part = &of.parts[k];
                let lower = part.above().map_or(0.0, |d| wanted[k][0] / d);
                let upper = part.below().map_or(0.0, |d| wanted[k][1] / d);
                of.slopes[k] + lower - upper
            })
            .collect();
        let by_variable: Vec<f64> = (0..of.used.len())
            .map(|i| match of.first[i]..of.first[i + 1] {
                one if one.len() == 1 => right[one.start],
                parts => self.curvature[i] * parts.map(|k| of.parts[k].sign * right[k] / self.theta[k]).sum::<f64>(),
            })
            .collect();
        let mut change = by_variable.clone();
        self.factor.solve_on(&mut change, &control.threads);
        let multipliers = self.multipliers(of, &change);
        for (column, m) in self.by_group.iter().zip(&multipliers) {
            change.iter_mut().zip(column).for_each(|(change, v)| *change -= m * v);
        }
        let of_part = |k: usize| {
            let part = &of.parts[k];
            let i = part.of;
            let x = match of.first[i + 1] - of.first[i] {
                1 => change[i],
                // From the slope that the system gives: computed with K it would carry the rounding of K·Δβ into β.
                _ => (right[k] - part.sign * (by_variable[i] - self.curvature[i] * change[i])) / self.theta[k],
            };
            Change {
                x,
                lower_multiplier: part.above().map_or(0.0, |d| (wanted[k][0] - part.lower_multiplier * x) / d),
                upper_multiplier: part.below().map_or(0.0, |d| (wanted[k][1] + part.upper_multiplier * x) / d),
            }
        };
        ((0..of.parts.len()).map(of_part).collect(), multipliers)
    }

    /// Elimination of the sums: S·m = A·(K + D)⁻¹r − what they are short of, S = A(K + D)⁻¹Aᵀ.
    fn multipliers(&self, of: &Interior, change: &[f64]) -> Vec<f64> {
        let right: Vec<f64> = of.sums_of(change).iter().zip(&of.short).map(|(sum, short)| sum - short).collect();
        sums::multipliers(&self.by_group.iter().map(|column| of.sums_of(column)).collect::<Vec<_>>(), &right)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::certificate::certify;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::kernel::Kernel;
    use crate::loss::{Epsilon, Hinge, SquaredHinge};
    use crate::observe::Silent;
    use crate::problem::Setup;

    /// 60 samples of three features, of which the first is of size `scale`; the sum of two features with noise.
    fn data(scale: f64) -> (Points, Vec<f64>) {
        let noise = |k: usize| (k as f64 * 12.9898).sin() * 43758.5453 % 1.0;
        let x: Vec<f64> = (0..180).map(|k| noise(k + 1) * if k % 3 == 0 { scale } else { 1.0 }).collect();
        let y = (0..60).map(|i| x[3 * i] / scale + x[3 * i + 1] + 0.4 * noise(1000 + i)).collect();
        (Points::dense_f64(60, 3, x).unwrap(), y)
    }

    #[test]
    fn every_kind_of_term_and_constraint_is_solved() {
        let (points, y) = data(300.0);
        let labels: Vec<f64> = y.iter().map(|y| y.signum()).collect();
        let setups = [
            Setup::classify(&labels, None, 1e5, Arc::new(Hinge), true).unwrap(),
            Setup::classify(&labels, None, 0.01, Arc::new(Hinge), false).unwrap(),
            Setup::classify(&labels, None, 10.0, Arc::new(SquaredHinge), true).unwrap(),
            Setup::regress(&y, None, 100.0, Arc::new(Epsilon { epsilon: 0.2 }), true).unwrap(),
            Setup::nu_classify(&labels, None, 0.5).unwrap(),
            Setup::nu_regress(&y, None, 50.0, 0.6).unwrap(),
            Setup::one_class(60, None, 0.3).unwrap(),
        ];
        for kernel in [Kernel::Linear, Kernel::Rbf { gamma: 1e-4 }] {
            let gram = CpuGram::square(kernel, &points).unwrap();
            for (k, setup) in setups.iter().enumerate() {
                let control = Control::unlimited(Threads::one());
                // Without what rounding makes of scores at such a cost.
                let gap = setup.with(&gram, |problem| {
                    let beta = approach(problem, 0, &control, &mut Silent)?.expect("a point").inside;
                    let certificate = certify(problem, &beta, None, None, &control)?;
                    let o = certificate.optimality().unwrap();
                    Ok((o.gap() - o.rounding()) / o.primal().abs())
                });
                let gap = gap.unwrap();
                // The zero machine is the best one-class machine of points around the origin: its relative gap is rounding.
                assert!(gap <= 1e-6 || (k == 6 && kernel == Kernel::Linear), "setup {k}, {kernel:?}: {gap}");
            }
        }
    }

    #[test]
    fn it_ends_with_the_budget_and_with_the_observer() {
        let (points, y) = data(1.0);
        let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
        let setup = Setup::nu_regress(&y, None, 1.0, 0.5).unwrap();
        struct Stop;
        impl Observer for Stop {
            fn step(&mut self, _: &Step) -> ControlFlow<()> {
                ControlFlow::Break(())
            }
        }
        let control = Control::unlimited(Threads::one());
        let ended = setup.with(&gram, |problem| Ok(approach(problem, 0, &control, &mut Stop)));
        assert_eq!(ended.unwrap(), Err(Interrupt::Cancelled));
    }
}
