//! The losses of the samples for the Newton method: smooth by themselves, or smoothed.
//!
//! A loss with a dual term h is ℓ(z) = sup_β (−βz − h(β)). Adding ½e(β − βₖ)² to h gives a smooth ℓ whose curvature is
//! 1/(d + e) where β is free: the proximal point method on the dual, which is the method of multipliers on the primal.
//! With e > 0 for every sample, the smoothed problem is solved by Newton; βₖ ← β then moves the centre of the
//! smoothing, so that e need not go to 0.

use super::dual_loops::{Along, Betas, Curvatures, DualSlice, Totals, beta_and_curvature};
use crate::linalg::vectorised::vectorised;
use crate::loss::{DualTerm, Loss};
use crate::problem::LinearProblem;

/// The smooth losses of all samples, as the Newton method needs them.
pub(super) trait SmoothLoss: Sync {
    /// β(z): minus the slope of the smooth loss.
    fn beta(&self, i: usize, z: f64) -> f64;
    /// Its curvature at z, ≥ 0.
    fn curvature(&self, i: usize, z: f64) -> f64;
    /// Both.
    fn beta_and_curvature(&self, i: usize, z: f64) -> (f64, f64) {
        (self.beta(i, z), self.curvature(i, z))
    }
    /// The distance that z can move before β changes.
    fn distance(&self, i: usize, z: f64) -> f64;
    /// The original loss, times the cost.
    fn value(&self, i: usize, z: f64) -> f64;
    /// The smooth loss, up to a constant.
    fn smooth_value(&self, i: usize, z: f64) -> f64;
    /// The contribution of the sample to the gap of the original problem: ℓ(z) + h(β) + βz ≥ 0, times the cost.
    fn excess(&self, i: usize, z: f64, beta: f64) -> f64;
    /// Σ value, Σ excess, Σ |value| + |β|(|z| + |b|), the size of the terms of P − D, and Σ |β|, over the samples from
    /// `first`.
    fn totals(&self, first: usize, z: &[f64], beta: &[f64], b: f64) -> [f64; 4] {
        let mut total = [0.0; 4];
        for (k, (&z, &beta)) in z.iter().zip(beta).enumerate() {
            let value = self.value(first + k, z);
            total[0] += value;
            total[1] += self.excess(first + k, z, beta);
            total[2] += value.abs() + beta.abs() * (z.abs() + b.abs());
            total[3] += beta.abs();
        }
        total
    }
    /// β(z) of the samples from `first`, one per score.
    fn betas(&self, first: usize, z: &[f64], out: &mut [f64]) {
        out.iter_mut().zip(z).enumerate().for_each(|(k, (out, z))| *out = self.beta(first + k, *z));
    }
    /// The curvatures of the samples from `first`.
    fn curvatures(&self, first: usize, z: &[f64], out: &mut [f64]) {
        out.iter_mut().zip(z).enumerate().for_each(|(k, (out, z))| *out = self.curvature(first + k, *z));
    }
    /// Σ (β(z + t·dz) − β)·dz and Σ curvature(z + t·dz)·dz² over the samples from `first`.
    fn along(&self, first: usize, z: &[f64], dz: &[f64], t: f64, beta: &[f64]) -> [f64; 2] {
        let mut total = [0.0; 2];
        for k in 0..z.len() {
            let (i, new_z, dz) = (first + k, z[k] + t * dz[k], dz[k]);
            total[0] += (self.beta(i, new_z) - beta[k]) * dz;
            total[1] += self.curvature(i, new_z) * dz * dz;
        }
        total
    }
    /// The interval of β; `None` if the loss is not convex.
    fn bounds(&self, i: usize) -> Option<(f64, f64)>;
}

/// One value for all samples, or one per sample.
#[derive(Debug, Clone)]
enum PerSample {
    All(f64),
    Each(Vec<f64>),
}

impl PerSample {
    /// Adds the value of sample `i`, the next.
    fn push(&mut self, i: usize, value: f64) {
        match self {
            PerSample::All(all) if i == 0 || *all == value => *all = value,
            PerSample::All(all) => {
                let mut values = vec![*all; i];
                values.push(value);
                *self = PerSample::Each(values);
            }
            PerSample::Each(values) => values.push(value),
        }
    }

    #[inline(always)]
    fn get(&self, i: usize) -> f64 {
        match self {
            PerSample::All(v) => *v,
            PerSample::Each(values) => values[i],
        }
    }
}

/// Samples between two looks whether there are more than two kinds.
const SAMPLES_AT_ONCE: usize = 1024;

/// The dual terms of all samples.
#[derive(Debug, Clone)]
pub(super) struct DualTerms {
    p: Vec<f64>,
    eps: PerSample,
    d: PerSample,
    lo: Vec<f64>,
    hi: Vec<f64>,
}

impl DualTerms {
    /// `None` if the loss has no dual term.
    pub(super) fn new(problem: &LinearProblem<'_>) -> Option<Self> {
        let (n, samples) = (problem.len(), problem.samples());
        if let Some(second) = second_label(problem) {
            // Without a branch for each sample.
            let (label, one, other) = (problem.targets[0], samples.dual_term(0)?, samples.dual_term(second)?);
            let each = |of: fn(&DualTerm) -> f64| -> Vec<f64> {
                let (one, other) = (of(&one), of(&other));
                problem.targets.iter().map(|y| if *y == label { one } else { other }).collect()
            };
            let shared = |of: fn(&DualTerm) -> f64| match of(&one) == of(&other) {
                true => PerSample::All(of(&one)),
                false => PerSample::Each(each(of)),
            };
            let (p, lo, hi) = (each(|t| t.p), each(|t| t.lo), each(|t| t.hi));
            return Some(Self { p, eps: shared(|t| t.eps), d: shared(|t| t.d), lo, hi });
        }
        let (mut p, mut lo, mut hi) = (Vec::with_capacity(n), Vec::with_capacity(n), Vec::with_capacity(n));
        let (mut eps, mut d) = (PerSample::All(0.0), PerSample::All(0.0));
        for i in 0..n {
            let term = samples.dual_term(i)?;
            p.push(term.p);
            lo.push(term.lo);
            hi.push(term.hi);
            eps.push(i, term.eps);
            d.push(i, term.d);
        }
        Some(Self { p, eps, d, lo, hi })
    }

    pub(super) fn len(&self) -> usize {
        self.p.len()
    }

    /// eps and d of sample `i`.
    #[inline(always)]
    pub(super) fn shared(&self, i: usize) -> (f64, f64) {
        (self.eps.get(i), self.d.get(i))
    }

    #[inline(always)]
    pub(super) fn get(&self, i: usize) -> DualTerm {
        DualTerm { p: self.p[i], eps: self.eps.get(i), d: self.d.get(i), lo: self.lo[i], hi: self.hi[i] }
    }

    /// The smallest width in z over which β(z) crosses its box without smoothing: 0 for the hinge, ∞ for the square
    /// loss.
    pub(super) fn min_width(&self) -> f64 {
        (0..self.len()).filter(|&i| self.hi[i] > self.lo[i]).fold(f64::INFINITY, |smallest, i| {
            let d = self.d.get(i);
            smallest.min(if d > 0.0 { d * (self.hi[i] - self.lo[i]) } else { 0.0 })
        })
    }
}

/// If the targets have at most two values, each with a cost of its own: the first sample whose value is not that of sample 0, or 0.
fn second_label(problem: &LinearProblem<'_>) -> Option<usize> {
    let (targets, costs) = (problem.targets, problem.costs);
    let first = (*targets.first()?, *costs.first()?);
    let second = targets.iter().position(|y| *y != first.0).unwrap_or(0);
    let (other, other_cost) = (targets[second], costs[second]);
    let known = |y: f64, c: f64| (y == first.0) & (c == first.1) | (y == other) & (c == other_cost);
    let few = |(y, c): (&[f64], &[f64])| y.iter().zip(c).fold(true, |all, (y, c)| all & known(*y, *c));
    targets.chunks(SAMPLES_AT_ONCE).zip(costs.chunks(SAMPLES_AT_ONCE)).all(few).then_some(second)
}

/// t moved towards 0 by eps.
#[inline(always)]
pub(super) fn soft_threshold(t: f64, eps: f64) -> f64 {
    (t - eps).max(0.0) + (t + eps).min(0.0)
}

/// clip(soft(t, eps)·gain, lo, hi), with the soft threshold of t.
#[inline(always)]
fn clipped_beta(t: f64, eps: f64, gain: f64, lo: f64, hi: f64) -> f64 {
    (soft_threshold(t, eps) * gain).max(lo).min(hi)
}

/// Losses with a dual term, smoothed to a minimum width.
pub(super) struct SmoothedDual<'a> {
    terms: &'a DualTerms,
    /// βₖ·e − p.
    shift: Vec<f64>,
    /// 1/(d + e).
    gain: Vec<f64>,
}

impl<'a> SmoothedDual<'a> {
    /// e is chosen so that β(z) crosses its box over at least `width`; `centre` is βₖ.
    pub(super) fn new(terms: &'a DualTerms, width: f64, centre: &[f64]) -> Self {
        let n = terms.len();
        let (mut shift, mut gain) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for i in 0..n {
            let (d, span) = (terms.d.get(i), terms.hi[i] - terms.lo[i]);
            if span == 0.0 {
                shift.push(0.0);
                gain.push(0.0);
                continue;
            }
            // An unbounded box has d > 0.
            let e = if span.is_finite() { (width / span - d).max(0.0) } else { 0.0 };
            shift.push(centre[i] * e - terms.p[i]);
            gain.push(1.0 / (d + e).max(f64::MIN_POSITIVE));
        }
        Self { terms, shift, gain }
    }
}

impl SmoothedDual<'_> {
    /// The samples from `first`, if they have a common eps.
    #[inline(always)]
    fn slice(&self, first: usize, count: usize) -> Option<DualSlice<'_>> {
        let (t, range) = (self.terms, first..first + count);
        let PerSample::All(eps) = t.eps else { return None };
        let (shift, gain) = (&self.shift[range.clone()], &self.gain[range.clone()]);
        Some(DualSlice { eps, shift, gain, lo: &t.lo[range.clone()], hi: &t.hi[range] })
    }
}

impl SmoothLoss for SmoothedDual<'_> {
    #[inline(always)]
    fn beta(&self, i: usize, z: f64) -> f64 {
        let t = self.terms;
        clipped_beta(self.shift[i] - z, t.eps.get(i), self.gain[i], t.lo[i], t.hi[i])
    }

    #[inline(always)]
    fn curvature(&self, i: usize, z: f64) -> f64 {
        let (t, s) = (self.terms, self.shift[i] - z);
        let eps = t.eps.get(i);
        let beta = ((s - eps).max(0.0) + (s + eps).min(0.0)) * self.gain[i];
        // Both ends belong to the curved piece: at z = 0 every sample may be at an end.
        if s.abs() >= eps && beta >= t.lo[i] && beta <= t.hi[i] { self.gain[i] } else { 0.0 }
    }

    #[inline(always)]
    fn beta_and_curvature(&self, i: usize, z: f64) -> (f64, f64) {
        let t = self.terms;
        beta_and_curvature(t.eps.get(i), self.shift[i], self.gain[i], t.lo[i], t.hi[i], z)
    }

    #[inline(always)]
    fn distance(&self, i: usize, z: f64) -> f64 {
        let (t, s) = (self.terms, self.shift[i] - z);
        let (eps, gain) = (t.eps.get(i), self.gain[i]);
        if gain == 0.0 {
            return f64::INFINITY;
        }
        // β rises with s from lo to 0 on [lo/gain − eps, −eps], and from 0 to hi on [eps, eps + hi/gain].
        let (bottom, top) = (t.lo[i] / gain - eps, t.hi[i] / gain + eps);
        let below = if t.lo[i] < 0.0 { (bottom - s).max(s + eps) } else { f64::INFINITY };
        let above = if t.hi[i] > 0.0 { (s - top).max(eps - s) } else { f64::INFINITY };
        below.min(above).max(0.0)
    }

    #[inline(always)]
    fn value(&self, i: usize, z: f64) -> f64 {
        let t = self.terms.get(i);
        let s = -(t.p + z);
        let soft = (s - t.eps).max(0.0) + (s + t.eps).min(0.0);
        let beta = if t.d > 0.0 {
            (soft / t.d).max(t.lo).min(t.hi)
        } else if soft > 0.0 {
            t.hi
        } else if soft < 0.0 {
            t.lo
        } else {
            0.0
        };
        beta * s - t.eps * beta.abs() - 0.5 * t.d * beta * beta
    }

    #[inline(always)]
    fn smooth_value(&self, i: usize, z: f64) -> f64 {
        if self.gain[i] == 0.0 {
            return 0.0;
        }
        let beta = self.beta(i, z);
        beta * (self.shift[i] - z) - self.terms.eps.get(i) * beta.abs() - 0.5 * beta * beta / self.gain[i]
    }

    #[inline(always)]
    fn excess(&self, i: usize, z: f64, beta: f64) -> f64 {
        let t = self.terms.get(i);
        let s = -(t.p + z);
        (self.value(i, z) - (beta * s - t.eps * beta.abs() - 0.5 * t.d * beta * beta)).max(0.0)
    }

    fn totals(&self, first: usize, z: &[f64], beta: &[f64], b: f64) -> [f64; 4] {
        let (t, range, b) = (self.terms, first..first + z.len(), b.abs());
        if let (PerSample::All(eps), PerSample::All(d)) = (&t.eps, &t.d) {
            let (p, lo, hi) = (&t.p[range.clone()], &t.lo[range.clone()], &t.hi[range]);
            return vectorised(Totals { eps: *eps, d: *d, p, lo, hi, z, beta, b });
        }
        let mut total = [0.0; 4];
        for (k, (&z, &beta)) in z.iter().zip(beta).enumerate() {
            let value = self.value(first + k, z);
            total[0] += value;
            total[1] += self.excess(first + k, z, beta);
            total[2] += value.abs() + beta.abs() * (z.abs() + b);
            total[3] += beta.abs();
        }
        total
    }

    fn betas(&self, first: usize, z: &[f64], out: &mut [f64]) {
        match self.slice(first, z.len()) {
            Some(slice) => vectorised(Betas { slice, z, out }),
            None => out.iter_mut().zip(z).enumerate().for_each(|(k, (out, z))| *out = self.beta(first + k, *z)),
        }
    }

    fn curvatures(&self, first: usize, z: &[f64], out: &mut [f64]) {
        match self.slice(first, z.len()) {
            Some(slice) => vectorised(Curvatures { slice, z, out }),
            None => out.iter_mut().zip(z).enumerate().for_each(|(k, (out, z))| *out = self.curvature(first + k, *z)),
        }
    }

    fn along(&self, first: usize, z: &[f64], dz: &[f64], t: f64, beta: &[f64]) -> [f64; 2] {
        if let Some(slice) = self.slice(first, z.len()) {
            return vectorised(Along { slice, z, dz, t, beta });
        }
        let mut total = [0.0; 2];
        for k in 0..z.len() {
            let (i, new_z, dz) = (first + k, z[k] + t * dz[k], dz[k]);
            total[0] += (self.beta(i, new_z) - beta[k]) * dz;
            total[1] += self.curvature(i, new_z) * dz * dz;
        }
        total
    }

    fn bounds(&self, i: usize) -> Option<(f64, f64)> {
        Some((self.terms.lo[i], self.terms.hi[i]))
    }
}

/// A smooth convex loss without additional smoothing.
pub(super) struct UnsmoothedLoss<'a> {
    problem: &'a LinearProblem<'a>,
}

/// Larger curvatures are reduced to this.
const MAX_CURVATURE: f64 = 1e8;

impl<'a> UnsmoothedLoss<'a> {
    pub(super) fn new(problem: &'a LinearProblem<'a>) -> Self {
        Self { problem }
    }

    fn loss(&self) -> &'a dyn Loss {
        self.problem.loss
    }
}

impl SmoothLoss for UnsmoothedLoss<'_> {
    fn beta(&self, i: usize, z: f64) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => -c * self.loss().slope(self.problem.targets[i], z),
        }
    }

    fn curvature(&self, i: usize, z: f64) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => c * self.loss().curvature(self.problem.targets[i], z, 1e-5).clamp(0.0, MAX_CURVATURE),
        }
    }

    fn distance(&self, _i: usize, _z: f64) -> f64 {
        0.0
    }

    fn value(&self, i: usize, z: f64) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => c * self.loss().value(self.problem.targets[i], z),
        }
    }

    fn smooth_value(&self, i: usize, z: f64) -> f64 {
        self.value(i, z)
    }

    fn excess(&self, i: usize, z: f64, beta: f64) -> f64 {
        let (c, y) = (self.problem.costs[i], self.problem.targets[i]);
        if c == 0.0 {
            return 0.0;
        }
        let (lo, hi) = self.loss().domain(y);
        c * self.loss().excess(y, z, (-beta / c).clamp(lo, hi)).unwrap_or(0.0)
    }

    fn bounds(&self, i: usize) -> Option<(f64, f64)> {
        match self.problem.costs[i] {
            0.0 => Some((0.0, 0.0)),
            c => {
                let (lo, hi) = self.loss().domain(self.problem.targets[i]);
                Some((-c * hi, -c * lo))
            }
        }
    }
}

/// A non-convex loss of the margin slack: L(u) = L′(0)·u + r(u) for u > 0, 0 below. The first part is a hinge and is
/// smoothed like one; r has slope 0 at 0 and enters with its slope, and with its curvature where that is positive.
pub(super) struct SplitLoss<'a> {
    problem: &'a LinearProblem<'a>,
    hinge: SmoothedDual<'a>,
    /// L′(0).
    rise: f64,
}

impl<'a> SplitLoss<'a> {
    /// `hinge` has costs c·L′(0).
    pub(super) fn new(problem: &'a LinearProblem<'a>, hinge: SmoothedDual<'a>, rise: f64) -> Self {
        Self { problem, hinge, rise }
    }

    /// c·y·r′(u), the contribution of r to β.
    fn rest(&self, i: usize, z: f64) -> f64 {
        let (c, y) = (self.problem.costs[i], self.problem.targets[i]);
        if c == 0.0 || y * z >= 1.0 { 0.0 } else { -c * self.problem.loss.slope(y, z) - c * y * self.rise }
    }
}

impl SmoothLoss for SplitLoss<'_> {
    fn beta(&self, i: usize, z: f64) -> f64 {
        self.hinge.beta(i, z) + self.rest(i, z)
    }

    fn curvature(&self, i: usize, z: f64) -> f64 {
        let (c, y) = (self.problem.costs[i], self.problem.targets[i]);
        let h = 1e-5;
        let rest_curvature = if c == 0.0 || y * z >= 1.0 - 2.0 * h {
            0.0
        } else {
            c * self.problem.loss.curvature(y, z, h).clamp(0.0, MAX_CURVATURE)
        };
        self.hinge.curvature(i, z) + rest_curvature
    }

    fn distance(&self, _i: usize, _z: f64) -> f64 {
        0.0
    }

    fn value(&self, i: usize, z: f64) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => c * self.problem.loss.value(self.problem.targets[i], z),
        }
    }

    fn smooth_value(&self, i: usize, z: f64) -> f64 {
        let (c, y) = (self.problem.costs[i], self.problem.targets[i]);
        let u = (1.0 - y * z).max(0.0);
        self.hinge.smooth_value(i, z) + self.value(i, z) - c * self.rise * u
    }

    fn excess(&self, i: usize, z: f64, beta: f64) -> f64 {
        // That of the hinge part: the gap left by smoothing.
        self.hinge.excess(i, z, (beta - self.rest(i, z)).clamp(self.hinge.terms.lo[i], self.hinge.terms.hi[i]))
    }

    fn bounds(&self, _i: usize) -> Option<(f64, f64)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::rows::RowMatrix;
    use crate::data::Points;
    use crate::loss::LossSpec;
    use crate::problem::Bias;

    /// Terms that labels share are those of every sample.
    #[test]
    fn terms_of_labels_are_those_of_their_samples() {
        let n = 2500;
        let points = Points::dense_f64(n, 1, vec![1.0; n]).unwrap();
        let matrix = RowMatrix::new(&points);
        let labels: Vec<f64> = (0..n).map(|i| if i % 3 == 0 { 1.0 } else { -1.0 }).collect();
        let mut three = labels.clone();
        three[n - 1] = 2.0;
        let (equal, by_label): (Vec<f64>, _) = (vec![2.0; n], labels.iter().map(|y| 2.0 + 0.5 * y).collect::<Vec<_>>());
        let (mut one_differs, mut first_differs) = (by_label.clone(), by_label.clone());
        (one_differs[n - 2], first_differs[0]) = (7.0, 7.0);
        let same_label = vec![1.0; n];
        for name in ["hinge", "squared-hinge", "epsilon:epsilon=0.1", "pinball:tau=0.3"] {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            for targets in [&labels, &three, &same_label] {
                if name.contains("hinge") && targets == &three {
                    continue;
                }
                for (k, costs) in [&equal, &by_label, &one_differs, &first_differs].into_iter().enumerate() {
                    let problem = LinearProblem::new(&matrix, targets, costs, &*loss, Bias::None).unwrap();
                    let terms = DualTerms::new(&problem).unwrap();
                    for i in 0..n {
                        assert_eq!(Some(terms.get(i)), problem.dual_term(i), "{name}, costs {k}, sample {i}");
                    }
                }
            }
        }
    }

    /// The vector loops must give exactly what the functions of one sample give.
    #[test]
    fn loops_over_samples_agree_with_single_samples() {
        let n = 1003;
        let points = Points::dense_f64(n, 1, vec![1.0; n]).unwrap();
        let matrix = RowMatrix::new(&points);
        let targets: Vec<f64> = (0..n).map(|i| if i % 3 == 0 { 1.0 } else { -1.0 }).collect();
        let costs: Vec<f64> = (0..n).map(|i| (i % 4) as f64).collect();
        for (name, width) in
            [("hinge", 0.5), ("squared-hinge", 0.0), ("epsilon:epsilon=0.1", 0.2), ("huber:delta=0.5", 0.0)]
        {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            let problem = LinearProblem::new(&matrix, &targets, &costs, &*loss, Bias::None).unwrap();
            let terms = DualTerms::new(&problem).unwrap();
            let centre: Vec<f64> = (0..n).map(|i| 0.5 * (terms.lo[i].max(-1.0) + terms.hi[i].min(1.0))).collect();
            let losses = SmoothedDual::new(&terms, width, &centre);
            let z: Vec<f64> = (0..n).map(|i| 3.0 * (0.7 * i as f64).sin()).collect();
            let dz: Vec<f64> = (0..n).map(|i| (1.3 * i as f64).cos()).collect();
            let (mut betas, mut curvatures) = (vec![0.0; n - 2], vec![0.0; n - 2]);
            losses.betas(2, &z[2..], &mut betas);
            losses.curvatures(2, &z[2..], &mut curvatures);
            for i in 2..n {
                assert_eq!(betas[i - 2], losses.beta(i, z[i]), "{name} {i}");
                assert_eq!(curvatures[i - 2], losses.curvature(i, z[i]), "{name} {i}");
            }
            let totals = losses.totals(2, &z[2..], &centre[2..], 0.5);
            let mut own = [0.0; 4];
            for i in 2..n {
                let (value, size) = (losses.value(i, z[i]), centre[i].abs());
                own[0] += value;
                own[1] += losses.excess(i, z[i], centre[i]);
                own[2] += value.abs() + size * (z[i].abs() + 0.5);
                own[3] += size;
            }
            for (a, b) in totals.iter().zip(&own) {
                assert!((a - b).abs() <= 1e-12 * b.max(1.0), "{name}: {totals:?} {own:?}");
            }
            let [change, bend] = losses.along(2, &z[2..], &dz[2..], 0.4, &centre[2..]);
            let (mut own_change, mut own_bend) = (0.0, 0.0);
            for i in 2..n {
                let new_z = z[i] + 0.4 * dz[i];
                own_change += (losses.beta(i, new_z) - centre[i]) * dz[i];
                own_bend += losses.curvature(i, new_z) * dz[i] * dz[i];
            }
            assert!((change - own_change).abs() <= 1e-11 * n as f64, "{name}: {change} {own_change}");
            assert!((bend - own_bend).abs() <= 1e-11 * own_bend.max(1.0) * n as f64, "{name}: {bend} {own_bend}");
        }
    }
}
