//! User-defined losses, given by their value and slope.
//!
//! Nothing else is required: the slope is compared with finite differences, convexity and majorisation are determined
//! by sampling, and the conjugate is the supremum, bracketed by slopes on both sides.
//!
//! The functions take many samples at once. Solvers, which ask for one sample at a time, see a description made from a
//! few such calls ([`Form`]): a dual term if the loss has one, and an interpolated slope otherwise. It exists for losses
//! of labels, of y − z, and of few distinct targets; for any other loss the functions are called for each sample. The
//! certificate uses nothing but the functions, so that a description that were wrong could not pass unnoticed.

use super::form::Form;
use super::supremum::SlopeSearch;
use super::{DualTerm, Loss, Properties, Reweight};
use crate::error::{Error, Result};

/// Fills the numbers of many samples: targets, scores (or slopes, for a conjugate), results.
pub type BulkFunction = Box<dyn Fn(&[f64], &[f64], &mut [f64]) + Send + Sync>;

/// The largest score evaluated, relative to the target: slopes beyond it are assumed to have reached their limits.
const FAR: f64 = 1e6;

/// Largest scores of losses that overflow at [`FAR`]: the first at which all slopes are finite.
const LIMITS: [f64; 8] = [f64::INFINITY, 1e6, 1e5, 1e4, 1e3, 700.0, 300.0, 100.0];

/// Most distinct targets with a description each.
const MAX_TARGETS: usize = 32;

/// Most targets at which a loss is compared with a function of y − z.
const MAX_SHIFTED: usize = 40;

/// The functions of a loss.
pub struct BulkFunctions {
    /// ℓ(y, z).
    pub value: BulkFunction,
    /// dℓ/dz; at a kink any number between the two one-sided slopes.
    pub slope: BulkFunction,
    /// d²ℓ/dz², if there is a formula.
    pub curvature: Option<BulkFunction>,
    /// ℓ*(y, u), if there is a formula.
    pub conjugate: Option<BulkFunction>,
}

/// What solvers use in place of the functions.
#[derive(Debug)]
enum Description {
    /// A form for each target, in ascending order.
    Targets(Vec<(f64, Form)>),
    /// ℓ(y, z) = φ(z − y).
    Shifted(Form),
    /// The functions themselves.
    None,
}

/// ℓ(y, z) given by two functions.
pub struct CustomLoss {
    name: String,
    functions: BulkFunctions,
    /// The largest score evaluated for any target.
    limit: f64,
    description: Description,
    sharp: bool,
    properties: Properties,
}

impl std::fmt::Debug for CustomLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomLoss").field("name", &self.name).field("properties", &self.properties).finish()
    }
}

/// Scores at which a loss is sampled: dense around the margins, sparse far out, and away from the round numbers where
/// kinks are.
fn probes() -> Vec<f64> {
    let near = (-60..=60).map(|i| f64::from(i) * 0.0777 + 0.00313);
    let far = [7.0, 13.0, 29.0, 61.0].into_iter().flat_map(|v| [-v - 0.0171, v + 0.0171]);
    let mut all: Vec<f64> = near.chain(far).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// A function of one sample as one of many.
fn each(function: impl Fn(f64, f64) -> f64 + Send + Sync + 'static) -> BulkFunction {
    Box::new(move |y, z, out| y.iter().zip(z).zip(out).for_each(|((y, z), out)| *out = function(*y, *z)))
}

/// At most `most` of the sorted values, evenly spread, with both ends.
fn spread(values: &[f64], most: usize) -> Vec<f64> {
    if values.len() <= most {
        return values.to_vec();
    }
    (0..most).map(|k| values[k * (values.len() - 1) / (most - 1)]).collect()
}

impl CustomLoss {
    /// Takes ℓ(y, z) and dℓ/dz, for labels ±1 (`classification`) or real targets. Fails if a value is not finite or the
    /// slope is not the derivative, naming the worst point found.
    pub fn new(
        name: impl Into<String>,
        classification: bool,
        value: impl Fn(f64, f64) -> f64 + Send + Sync + 'static,
        slope: impl Fn(f64, f64) -> f64 + Send + Sync + 'static,
    ) -> Result<Self> {
        let functions = BulkFunctions { value: each(value), slope: each(slope), curvature: None, conjugate: None };
        Self::from_bulk(name, classification, functions, &[])
    }

    /// Like [`new`](Self::new), with functions of many samples. `targets`: the targets of a regression, at which the
    /// loss is checked; if it is empty, a few small numbers.
    pub fn from_bulk(
        name: impl Into<String>,
        classification: bool,
        functions: BulkFunctions,
        targets: &[f64],
    ) -> Result<Self> {
        let properties =
            Properties { slope_bounded: true, slope_at_zero: false, convex: true, majorised: true, classification };
        let description = Description::None;
        let mut loss =
            Self { name: name.into(), functions, limit: f64::INFINITY, description, sharp: true, properties };
        let mut distinct: Vec<f64> = match (classification, targets) {
            (true, _) => vec![-1.0, 1.0],
            (false, []) => vec![-2.5, -1.0, 0.0, 0.3, 4.0],
            (false, given) => given.iter().copied().filter(|y| y.is_finite()).collect(),
        };
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let checked = spread(&distinct, 5);
        loss.check_slope(&checked)?;
        loss.find_limit(&checked)?;
        loss.check_formulas(&checked)?;
        loss.describe(&distinct);
        loss.sample_properties(&checked);
        Ok(loss)
    }

    fn bulk_values(&self, y: &[f64], z: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; z.len()];
        (self.functions.value)(y, z, &mut out);
        out
    }

    fn bulk_slopes(&self, y: &[f64], z: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; z.len()];
        (self.functions.slope)(y, z, &mut out);
        out
    }

    fn check_slope(&self, targets: &[f64]) -> Result<()> {
        let probes = probes();
        let pairs = || targets.iter().flat_map(|&y| probes.iter().map(move |&z| (y, z)));
        let y: Vec<f64> = pairs().map(|(y, _)| y).collect();
        let at = |way: f64| -> Vec<f64> { pairs().map(|(_, z)| z + way * 1e-5 * z.abs().max(1.0)).collect() };
        let [left, mid, right] = [-1.0, 0.0, 1.0].map(|way| self.bulk_values(&y, &at(way)));
        let claimed = self.bulk_slopes(&y, &at(0.0));
        let mut worst = (0.0, String::new());
        for (k, (y, z)) in pairs().enumerate() {
            let h = 1e-5 * z.abs().max(1.0);
            let (left, mid, right, claimed) = (left[k], mid[k], right[k], claimed[k]);
            if ![left, mid, right, claimed].iter().all(|v| v.is_finite()) {
                return Err(Error::data(format!(
                    "the loss {} has a value or slope that is not finite near y = {y}, z = {z}",
                    self.name
                )));
            }
            // At a kink any number between the one-sided slopes is valid.
            let (before, after) = ((mid - left) / h, (right - mid) / h);
            let off = (before.min(after) - claimed).max(claimed - before.max(after));
            // Rounding of the values, and the curvature of the slope over h.
            let slack = 1e-9 * mid.abs() / h * 1e-5 + 1e-4 * (1.0 + claimed.abs());
            if off / slack > worst.0 {
                let measured = 0.5 * (before + after);
                let text = format!("at y = {y}, z = {z} it is {claimed} but finite differences give {measured}");
                worst = (off / slack, text);
            }
        }
        if worst.0 > 1.0 {
            return Err(Error::data(format!("the slope of the loss {} is wrong: {}", self.name, worst.1)));
        }
        Ok(())
    }

    /// Sets `limit` to the largest at which all slopes are finite.
    fn find_limit(&mut self, targets: &[f64]) -> Result<()> {
        let finite = |limit: &f64| {
            let y: Vec<f64> = targets.iter().flat_map(|y| [*y, *y]).collect();
            let z: Vec<f64> = targets.iter().flat_map(|y| [-1.0, 1.0].map(|way| way * far(*limit, *y))).collect();
            self.bulk_slopes(&y, &z).iter().all(|s| s.is_finite())
        };
        self.limit = *LIMITS.iter().find(|limit| finite(limit)).ok_or_else(|| {
            Error::data(format!("the slope of the loss {} is not finite at scores of ±100", self.name))
        })?;
        Ok(())
    }

    /// The largest score evaluated for a target of size 1.
    fn reach(&self) -> f64 {
        far(self.limit, 1.0)
    }

    /// Compares the formulas of the curvature and of the conjugate, if any, with the value and the slope.
    fn check_formulas(&self, targets: &[f64]) -> Result<()> {
        let probes = probes();
        let pairs = || targets.iter().flat_map(|&y| probes.iter().map(move |&z| (y, z)));
        let (y, z): (Vec<f64>, Vec<f64>) = pairs().unzip();
        let mut out = vec![0.0; z.len()];
        let wrong = |what: &str, k: usize, given: f64, expected: f64| {
            let (y, z) = (y[k], z[k]);
            Err(Error::data(format!(
                "the {what} of the loss {} is wrong: at y = {y}, z = {z} it is {given}, not {expected}",
                self.name
            )))
        };
        if let Some(curvature) = &self.functions.curvature {
            curvature(&y, &z, &mut out);
            let at = |way: f64| -> Vec<f64> { z.iter().map(|z| z + way * 1e-5 * z.abs().max(1.0)).collect() };
            let [left, mid, right] = [-1.0, 0.0, 1.0].map(|way| self.bulk_slopes(&y, &at(way)));
            for k in 0..z.len() {
                let h = 1e-5 * z[k].abs().max(1.0);
                let (before, after) = ((mid[k] - left[k]) / h, (right[k] - mid[k]) / h);
                let off = (before.min(after) - out[k]).max(out[k] - before.max(after));
                // Not a number is wrong as well.
                if !(off <= 1e-3 * (1.0 + out[k].abs())) {
                    return wrong("curvature", k, out[k], 0.5 * (before + after));
                }
            }
        }
        if let Some(conjugate) = &self.functions.conjugate {
            // Young's equality: ℓ*(s) = s·z − ℓ(z) at the slope s of z.
            let (slopes, values) = (self.bulk_slopes(&y, &z), self.bulk_values(&y, &z));
            conjugate(&y, &slopes, &mut out);
            for k in 0..z.len() {
                let expected = slopes[k] * z[k] - values[k];
                let size = (slopes[k] * z[k]).abs() + values[k].abs() + 1e-3;
                if !((out[k] - expected).abs() <= 1e-7 * size) {
                    return wrong("conjugate at the slope", k, out[k], expected);
                }
            }
        }
        Ok(())
    }

    /// Finds what solvers use in place of the functions.
    fn describe(&mut self, targets: &[f64]) {
        let form = |y: f64| {
            let value = |z: &[f64], out: &mut [f64]| (self.functions.value)(&vec![y; z.len()], z, out);
            let slope = |z: &[f64], out: &mut [f64]| (self.functions.slope)(&vec![y; z.len()], z, out);
            Form::new(&value, &slope, far(self.limit, y))
        };
        let description = if !self.properties.classification && self.depends_on_difference(targets) {
            let middle = targets[targets.len() / 2];
            let moved = |z: &[f64]| -> Vec<f64> { z.iter().map(|z| z + middle).collect() };
            let value = |r: &[f64], out: &mut [f64]| (self.functions.value)(&vec![middle; r.len()], &moved(r), out);
            let slope = |r: &[f64], out: &mut [f64]| (self.functions.slope)(&vec![middle; r.len()], &moved(r), out);
            let exact = self.has_target_zero(&value, &slope);
            if exact { form(0.0) } else { Form::new(&value, &slope, self.reach()) }.map(Description::Shifted)
        } else if targets.len() <= MAX_TARGETS {
            let forms: Option<Vec<(f64, Form)>> = targets.iter().map(|&y| form(y).map(|form| (y, form))).collect();
            forms.map(Description::Targets)
        } else {
            None
        };
        self.description = description.unwrap_or(Description::None);
        self.sharp = match &self.description {
            Description::Targets(forms) => forms.iter().any(|(_, form)| form.sharp()),
            Description::Shifted(form) => form.sharp(),
            Description::None => true,
        };
    }

    /// Whether the loss at the target 0 is the same function of the difference: differences from 0 are exact.
    fn has_target_zero(&self, value: &super::form::Fill<'_>, slope: &super::form::Fill<'_>) -> bool {
        let r = probes();
        let (mut values, mut slopes) = (vec![0.0; r.len()], vec![0.0; r.len()]);
        value(&r, &mut values);
        slope(&r, &mut slopes);
        let zero = vec![0.0; r.len()];
        let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9 * (a.abs() + 1.0));
        same(&values, &self.bulk_values(&zero, &r)) && same(&slopes, &self.bulk_slopes(&zero, &r))
    }

    /// Whether values and slopes are functions of y − z, as far as samples at `targets` tell.
    fn depends_on_difference(&self, targets: &[f64]) -> bool {
        let targets = spread(targets, MAX_SHIFTED);
        let middle = targets[targets.len() / 2];
        let widest = targets.iter().fold(0.0f64, |m, y| m.max(y.abs()));
        let probes = probes();
        let pairs = || targets.iter().flat_map(|&y| probes.iter().map(move |&r| (y, r)));
        let y: Vec<f64> = pairs().map(|(y, _)| y).collect();
        let z: Vec<f64> = pairs().map(|(y, r)| y + r).collect();
        let (middles, at_middle): (Vec<f64>, Vec<f64>) = probes.iter().map(|r| (middle, middle + r)).unzip();
        let same = |all: &[f64], one: &[f64]| {
            // The rounding of the differences, and of what the functions add and subtract.
            let allowed = |v: f64| (1e-9 + 1e-13 * widest) * (1.0 + v.abs());
            all.chunks(one.len()).all(|part| part.iter().zip(one).all(|(a, b)| (a - b).abs() <= allowed(*b)))
        };
        same(&self.bulk_values(&y, &z), &self.bulk_values(&middles, &at_middle))
            && same(&self.bulk_slopes(&y, &z), &self.bulk_slopes(&middles, &at_middle))
    }

    /// The form for target y and the offset of its scores.
    fn form(&self, y: f64) -> Option<(&Form, f64)> {
        match &self.description {
            Description::Targets(forms) => {
                let at = forms.partition_point(|(target, _)| *target < y);
                forms.get(at).filter(|(target, _)| *target == y).map(|(_, form)| (form, 0.0))
            }
            Description::Shifted(form) => Some((form, y)),
            Description::None => None,
        }
    }

    fn sample_properties(&mut self, targets: &[f64]) {
        let probes = probes();
        let mut p = self.properties;
        for &y in targets {
            let slopes = self.bulk_slopes(&vec![y; probes.len()], &probes);
            let scale = slopes.iter().fold(1e-12, |m: f64, s| m.max(s.abs()));
            p.convex &= slopes.windows(2).all(|w| w[1] >= w[0] - 1e-9 * scale);
            p.convex &= self.form(y).is_none_or(|(form, _)| form.rises());
            let nearer = if self.reach() > 1e3 { 1e3 } else { 0.5 * self.reach() };
            let edges = self.bulk_slopes(&[y; 4], &[-self.reach(), -nearer, self.reach(), nearer]);
            // A bounded slope is near its limit at 10³: it cannot double between 10³ and 10⁶.
            p.slope_bounded &= edges.chunks(2).all(|e| e[0].abs() <= 2.0 * e[1].abs() + 1e-9 * scale);
        }
        let around = |offset: f64| -> Vec<f64> {
            let z: Vec<f64> = if p.classification {
                targets.iter().map(|y| y * (1.0 + offset)).collect()
            } else {
                targets.iter().map(|y| y + offset).collect()
            };
            self.bulk_slopes(targets, &z)
        };
        p.slope_at_zero = if p.classification {
            around(-1e-13).iter().all(|slope| slope.abs() > 1e-5)
        } else {
            around(1e-9).iter().zip(around(-1e-9)).all(|(after, before)| (after - before).abs() > 1e-6)
        };
        self.properties = p;
        let mut majorised = true;
        for &y in targets {
            let values = self.bulk_values(&vec![y; probes.len()], &probes);
            for (k, &z) in probes.iter().enumerate().step_by(3) {
                let quadratic = self.reweight(y, z, 1e12);
                if quadratic.weight == 0.0 {
                    continue;
                }
                let above = |x: f64| 0.5 * quadratic.weight * (quadratic.target - x).powi(2);
                let offset = values[k] - above(z);
                majorised &= probes.iter().zip(&values).all(|(&x, value)| {
                    let upper = above(x) + offset;
                    *value <= upper + 1e-7 * (1.0 + upper.abs())
                });
            }
        }
        self.properties.majorised = majorised;
    }

    /// The point nearest to `from` where the slope crosses `level`, searching in the direction given by the slope;
    /// `None` if it is beyond the reach. For a convex loss this is where z ↦ level·z − ℓ(y, z) is largest.
    fn crossing(&self, y: f64, from: f64, level: f64) -> Option<f64> {
        let excess = |z: f64| self.slope(y, z) - level;
        let start = excess(from);
        if start == 0.0 {
            return Some(from);
        }
        let way = -start.signum();
        let (mut near, mut step) = (from, 1e-3);
        loop {
            let far = from + way * step;
            if excess(far) * way >= 0.0 {
                let mut far = far;
                for _ in 0..200 {
                    let mid = 0.5 * (near + far);
                    if mid == near || mid == far {
                        break;
                    }
                    if excess(mid) * way >= 0.0 { far = mid } else { near = mid }
                }
                return Some(far);
            }
            if step > self.reach() * from.abs().max(1.0) {
                return None;
            }
            near = far;
            step *= 4.0;
        }
    }

    /// A score at which the slope is `v`, limited by the reach.
    fn inverse(&self, y: f64, v: f64, from: f64) -> f64 {
        if let (Some((form, shift)), true) = (self.form(y), self.properties.convex) {
            return form.inverse(v) + shift;
        }
        self.crossing(y, from, v).unwrap_or_else(|| {
            let way = -(self.slope(y, from) - v).signum();
            from + way * self.reach() * from.abs().max(1.0)
        })
    }

    /// One number of one of the functions.
    fn one(&self, function: &BulkFunction, y: f64, z: f64) -> f64 {
        let mut out = [0.0];
        function(&[y], &[z], &mut out);
        out[0]
    }

    /// The bound on ℓ* from the tangents, at least the formula if there is one.
    fn bounds_of_conjugates(&self, y: &[f64], u: &[f64]) -> Vec<Supremum> {
        let ends: Vec<f64> = y.iter().map(|y| far(self.limit, *y)).collect();
        let guess = |(y, u): (&f64, &f64)| self.form(*y).map_or(*y, |(form, shift)| form.inverse(*u) + shift);
        let start = y.iter().zip(u).map(guess).zip(&ends).map(|(z, end)| z.clamp(-end, *end)).collect();
        let slopes = |y: &[f64], z: &[f64]| self.bulk_slopes(y, z);
        let (at, extra) = SlopeSearch { y, ends: &ends, start, slopes: &slopes }.suprema(u);
        let values = self.bulk_values(y, &at);
        let mut low = vec![0.0; y.len()];
        let mut high = vec![0.0; y.len()];
        self.domains(y, &mut low, &mut high);
        let mut found: Vec<Supremum> = (0..y.len())
            .map(|k| match u[k] >= low[k] && u[k] <= high[k] {
                true => Supremum { at: at[k], value: values[k], extra: extra[k] },
                false => Supremum { at: at[k], value: values[k], extra: f64::INFINITY },
            })
            .collect();
        if let Some(conjugate) = &self.functions.conjugate {
            let mut formula = vec![0.0; y.len()];
            conjugate(y, u, &mut formula);
            for (k, found) in found.iter_mut().enumerate() {
                found.extra = found.extra.max(formula[k] - (u[k] * found.at - found.value));
            }
        }
        found
    }
}

/// ℓ*(y, u) ≤ u·at − value + extra.
struct Supremum {
    at: f64,
    value: f64,
    extra: f64,
}

/// The slopes at both ends; (0, 0) if a function that misbehaves makes them no interval. The certificate then evaluates the
/// loss at 0, where nothing is assumed.
fn ordered(low: f64, high: f64) -> (f64, f64) {
    if low <= high { (low, high) } else { (0.0, 0.0) }
}

/// The largest score evaluated for target y.
fn far(limit: f64, y: f64) -> f64 {
    (FAR * y.abs().max(1.0)).min(limit)
}

impl Loss for CustomLoss {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn value(&self, y: f64, z: f64) -> f64 {
        match self.form(y) {
            Some((form, shift)) => form.value(z - shift),
            None => self.one(&self.functions.value, y, z),
        }
    }
    fn slope(&self, y: f64, z: f64) -> f64 {
        match self.form(y) {
            Some((form, shift)) => form.slope(z - shift),
            None => self.one(&self.functions.slope, y, z),
        }
    }
    fn conjugate(&self, y: f64, v: f64) -> Option<f64> {
        let (lo, hi) = self.domain(y);
        if !self.properties.convex {
            return None;
        }
        if v < lo || v > hi {
            return Some(f64::INFINITY);
        }
        let z = self.inverse(y, v, y);
        Some(v * z - self.value(y, z))
    }
    fn domain(&self, y: f64) -> (f64, f64) {
        let far = far(self.limit, y);
        match self.form(y) {
            Some((form, _)) => form.range(),
            None => ordered(self.slope(y, -far), self.slope(y, far)),
        }
    }
    fn excess(&self, y: f64, z: f64, v: f64) -> Option<f64> {
        let (lo, hi) = self.domain(y);
        if !self.properties.convex {
            return None;
        }
        if v < lo || v > hi {
            return Some(f64::INFINITY);
        }
        if self.slope(y, z) == v {
            return Some(0.0);
        }
        let at = self.inverse(y, v, z);
        Some((self.value(y, z) - self.value(y, at) - v * (z - at)).max(0.0))
    }
    fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight {
        let slope = self.slope(y, z);
        if slope == 0.0 {
            return Reweight { weight: 0.0, target: z };
        }
        match self.crossing(y, z, 0.0) {
            Some(target) if target != z => {
                let weight = slope / (z - target);
                if weight <= cap {
                    return Reweight { weight, target };
                }
                Reweight { weight: cap, target }
            }
            // Without a minimum to centre on: the local curvature, bounded away from zero, and the target that keeps
            // the slope.
            _ => {
                let h = 1e-4 * z.abs().max(1.0);
                let curvature = (self.slope(y, z + h) - self.slope(y, z - h)) / (2.0 * h);
                let weight = curvature.max(slope.abs() / (1.0 + z.abs() + y.abs())).min(cap);
                Reweight { weight, target: z - slope / weight }
            }
        }
    }
    fn curvature(&self, y: f64, z: f64, step: f64) -> f64 {
        match (self.form(y), &self.functions.curvature) {
            (Some((form, shift)), _) => form.curvature(z - shift),
            (None, Some(curvature)) => self.one(curvature, y, z),
            (None, None) => {
                let h = step * z.abs().max(1.0);
                (self.slope(y, z + h) - self.slope(y, z - h)) / (2.0 * h)
            }
        }
    }
    fn sharp(&self) -> bool {
        self.sharp
    }
    fn dual(&self, y: f64, c: f64) -> Option<DualTerm> {
        match self.form(y)? {
            (Form::Term(t), shift) => {
                Some(DualTerm { p: t.p - shift, eps: t.eps, d: t.d / c, lo: c * t.lo, hi: c * t.hi })
            }
            (Form::Curve(_), _) => None,
        }
    }
    fn properties(&self) -> Properties {
        self.properties
    }
    fn values(&self, y: &[f64], z: &[f64], out: &mut [f64]) {
        (self.functions.value)(y, z, out);
    }
    fn slopes(&self, y: &[f64], z: &[f64], out: &mut [f64]) {
        (self.functions.slope)(y, z, out);
    }
    fn domains(&self, y: &[f64], low: &mut [f64], high: &mut [f64]) {
        let ends = |way: f64| -> Vec<f64> { y.iter().map(|y| way * far(self.limit, *y)).collect() };
        (self.functions.slope)(y, &ends(-1.0), low);
        (self.functions.slope)(y, &ends(1.0), high);
        low.iter_mut().zip(high).for_each(|(low, high)| (*low, *high) = ordered(*low, *high));
    }
    fn conjugates(&self, y: &[f64], u: &[f64], out: &mut [f64]) {
        if !self.properties.convex {
            return out.fill(f64::INFINITY);
        }
        let found = self.bounds_of_conjugates(y, u);
        out.iter_mut().zip(found.iter().zip(u)).for_each(|(out, (f, u))| *out = u * f.at - f.value + f.extra);
    }
    fn excesses(&self, y: &[f64], z: &[f64], u: &[f64], out: &mut [f64]) {
        if !self.properties.convex {
            return out.fill(f64::INFINITY);
        }
        let found = self.bounds_of_conjugates(y, u);
        (self.functions.value)(y, z, out);
        for (k, (out, f)) in out.iter_mut().zip(&found).enumerate() {
            let excess = *out - f.value - u[k] * (z[k] - f.at);
            // `max` would turn NaN into 0.
            *out = if excess.is_nan() { f64::INFINITY } else { excess.max(0.0) + f.extra };
        }
    }
}

#[cfg(test)]
#[path = "custom_tests.rs"]
mod tests;
