//! The certificate of a model on few centres, for the exact problem.
//!
//! The model is f = Σⱼ aⱼk(sⱼ, ·) + b, its dual point any β over all rows. With a feasible γ near β, scaled by t,
//!
//! ```text
//! gap = P(f, b) − D(γ) = ½‖f − f_γ‖² + Σᵢ cᵢ·[ ℓ(yᵢ, zᵢ) + ℓ*(yᵢ, −γᵢ/cᵢ) + (γᵢ/cᵢ)·zᵢ ]
//! ‖f − f_γ‖² = ‖f − f_c‖² − 2(a − c)ᵀr + ‖f_γ − f_c‖²,        c ≈ K_SS⁻¹K_Snγ,  r = K_Snγ − K_SS·c
//! ```
//!
//! Everything but the last norm needs products with K_nS only, and is the gap of the problem on the centres: its *own*
//! gap. ½‖f_γ − f_c‖² = ½γᵀ(K − K̂)γ is what the approximation of the kernel adds (`tail.rs`). The identity holds for any
//! c, so no accuracy of the projection is assumed. Scaling γ by t < 1 lowers the tail by t² and raises the other terms;
//! the best t is searched.
//!
//! f need not come from a solver of this program: a dual point can be made from the scores alone ([`dual_from_scores`]).

use serde::{Deserialize, Serialize};

use super::rounding::{UNIT, chain};
use super::tail::Residue;
use super::{Bounded, CHUNK, Certificate, Point, Scores, bias, bulk, is_convex, members, optimality, relative, repair};
use crate::control::{Control, Interrupt};
use crate::gram::{Accuracy, Gram, Pick, Precision};
use crate::linalg::factor::{Cholesky, FactorError};
use crate::problem::KernelProblem;

/// How the distance of a model on few centres from the exact problem is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TailCheck {
    /// Exactly where that takes only seconds, otherwise from drawn rows.
    #[default]
    Auto,
    /// From all pairs of rows with β ≠ 0.
    Exact,
    /// From drawn rows, with probability 1 − [`TAIL_PROBABILITY`](super::TAIL_PROBABILITY).
    Sampled,
    /// Not at all: only the problem on the centres is certified.
    Own,
}

impl TailCheck {
    /// Every check with its name in the interfaces; `auto` is the default and has none.
    pub const ALL: [(&'static str, TailCheck); 3] =
        [("exact", TailCheck::Exact), ("sampled", TailCheck::Sampled), ("own", TailCheck::Own)];
}

impl std::str::FromStr for TailCheck {
    type Err = crate::error::Error;
    fn from_str(text: &str) -> crate::error::Result<Self> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, check)| check).ok_or_else(|| crate::Error::option("certify", text, "exact, sampled or own"))
    }
}

/// How a model on few centres compares with the exact problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approximation {
    /// Number of centres.
    pub centres: usize,
    /// The gap of the problem on the centres.
    pub own_gap: f64,
    /// The same relative to max(|P|, |D|) of that problem.
    pub own_relative_gap: f64,
    /// What the approximation of the kernel adds to the gap; 0 if it was not checked.
    pub kernel_gap: f64,
    /// How that was bounded: `exact`, `sampled`, or `own` if it was not.
    pub check: TailCheck,
    /// Rows drawn, if it was sampled.
    pub rows_drawn: usize,
    /// The bias of the exact machine differs by at most this; ∞ if nothing is known.
    pub bias_distance: f64,
}

/// A problem with the kernel between its rows and the centres of a model.
#[derive(Clone, Copy)]
pub struct OnCentres<'a> {
    /// The exact problem.
    pub problem: &'a KernelProblem<'a>,
    /// K of rows and centres, n × m.
    pub cross: &'a dyn Gram,
    /// The same transposed, m × n.
    pub transposed: &'a dyn Gram,
    /// K over the centres.
    pub centres: &'a dyn Gram,
}

impl OnCentres<'_> {
    /// f of every row for the coefficients a, in double precision, as used by [`certify`](Self::certify).
    pub fn scores(&self, coefficients: &[f64], control: &Control) -> Result<Scores, Interrupt> {
        let (rows, centres) = (self.problem.gram.accuracy(), self.centres.accuracy());
        let mut f = vec![0.0; self.cross.shape().0];
        self.cross.apply(Precision::Double, Pick::All, coefficients, 1, &mut f, control)?;
        let reach: f64 = centres.size.iter().zip(coefficients).map(|(s, a)| s * a.abs()).sum();
        let units = UNIT * (rows.relative.max(centres.relative) + chain(coefficients.len())) * reach;
        let error = rows.size.iter().map(|s| units * s).collect();
        Ok(Scores::on_centres(f, error, rows.definite))
    }

    /// The best bias for these scores, or `given` if it is as good.
    pub fn best_bias(&self, scores: &Scores, given: Option<&[f64]>, control: &Control) -> Result<Vec<f64>, Interrupt> {
        super::best_bias(self.problem, scores, given, control)
    }

    /// Certifies the model (a, b) with the dual point β, one entry per row. The given bias is used as it is. `enough`: a
    /// relative size of the kernel's part that needs no better bound. If the time ends before there is a bound on that part, or
    /// the user asks to stop, the problem on the centres alone is certified.
    pub fn certify(
        &self,
        coefficients: &[f64],
        bias: &[f64],
        beta: &[f64],
        scores: &Scores,
        check: TailCheck,
        seed: u64,
        enough: f64,
        control: &Control,
    ) -> Result<Certificate, Interrupt> {
        let samples = self.problem.samples();
        if !is_convex(&samples) {
            return Ok(Certificate::Unknown);
        }
        let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
        let groups = members(&self.problem.constraint);
        let (rows, centres) = (self.problem.gram.accuracy(), self.centres.accuracy());
        let (norm, norm_rounding) = self.quadratic(coefficients, &centres, control)?;
        let factor = self.factor(control)?;
        let repaired = repair::repair(&point, beta, &groups);
        let projected = self.project(&repaired.beta, factor.as_ref(), &rows, &centres, control)?;
        let distance = projected.distance(coefficients, self, &centres, control)?;
        let own = |_: &[f64]| Ok(Bounded { value: distance.value, rounding: distance.rounding + norm_rounding });
        let mut certificate = optimality(&point, norm, beta, bias.to_vec(), &groups, own)?;
        let Certificate::Optimality(o) = &mut certificate else { return Ok(certificate) };
        o.definite = scores.definite;
        // The problem on the centres is certified from here on, whatever ends what follows.
        let improving = control.for_improvement();
        let residue = self.residue(&repaired.beta, &projected, factor.as_ref(), &rows, &centres, &improving);
        let found = residue.bound(check, seed, 2.0 * enough * o.primal.abs()).unwrap_or(None);
        let tail = found.as_ref().map(|found| found.bound);
        let (check, rows_drawn) = found.map_or((TailCheck::Own, 0), |found| (found.check, found.rows_drawn));
        let (own_gap, own_relative_gap) = (o.gap, o.relative_gap);
        let mut kernel_gap = 0.0;
        if let Some(tail) = tail {
            let parts = Parts { point: &point, gamma: &repaired.beta, bias, own: own_gap, tail, projected: &projected };
            // Scaling the dual point only improves the gap.
            let gap = parts.smallest_gap(coefficients, self, &centres, &improving).unwrap_or(own_gap + 0.5 * tail);
            kernel_gap = (gap - own_gap).max(0.0);
            o.gap = own_gap + kernel_gap;
            o.dual = o.primal - o.gap;
            o.relative_gap = relative(o.gap, o.primal, o.dual);
        }
        let bias_distance = match tail {
            Some(_) => bias_distance(&point, bias, o.gap, &self.problem.gram.diag()).unwrap_or(f64::INFINITY),
            None => f64::INFINITY,
        };
        o.approximation = Some(Approximation {
            centres: coefficients.len(),
            own_gap,
            own_relative_gap,
            kernel_gap,
            check,
            rows_drawn,
            bias_distance,
        });
        Ok(certificate)
    }

    /// A bound on βᵀ(K − K̂)β, where K̂ is the approximation of K on the centres; with [`TailCheck::Sampled`] it holds with
    /// probability 1 − [`TAIL_PROBABILITY`](super::TAIL_PROBABILITY). `enough`: a bound below this needs no improvement.
    pub fn tail(
        &self,
        beta: &[f64],
        check: TailCheck,
        seed: u64,
        enough: f64,
        control: &Control,
    ) -> Result<f64, Interrupt> {
        let (rows, centres) = (self.problem.gram.accuracy(), self.centres.accuracy());
        let factor = self.factor(control)?;
        let projected = self.project(beta, factor.as_ref(), &rows, &centres, control)?;
        let residue = self.residue(beta, &projected, factor.as_ref(), &rows, &centres, control);
        Ok(residue.bound(check, seed, enough)?.map_or(f64::INFINITY, |found| found.bound))
    }

    fn residue<'r>(
        &'r self,
        gamma: &'r [f64],
        projected: &'r Projected,
        factor: Option<&'r Cholesky<f64>>,
        rows: &'r Accuracy,
        centres: &'r Accuracy,
        control: &'r Control,
    ) -> Residue<'r> {
        Residue {
            gram: self.problem.gram,
            cross: self.cross,
            accuracy: rows,
            centre_size: &centres.size,
            gamma,
            projection: &projected.c,
            residual: &projected.r,
            residual_error: &projected.r_error,
            factor,
            control,
        }
    }

    /// aᵀK_SS·a and a bound on its rounding error.
    fn quadratic(&self, a: &[f64], accuracy: &Accuracy, control: &Control) -> Result<(f64, f64), Interrupt> {
        let mut product = vec![0.0; a.len()];
        self.centres.apply(Precision::Double, Pick::All, a, 1, &mut product, control)?;
        let value: f64 = a.iter().zip(&product).map(|(a, k)| a * k).sum();
        let reach: f64 = accuracy.size.iter().zip(a).map(|(s, a)| s * a.abs()).sum();
        Ok((value.max(0.0), UNIT * (accuracy.relative + 2.0 * chain(a.len())) * reach * reach))
    }

    /// The factor of K_SS; `None` if the centres are dependent to working precision.
    fn factor(&self, control: &Control) -> Result<Option<Cholesky<f64>>, Interrupt> {
        let m = self.centres.shape().0;
        let mut k = vec![0.0; m * m];
        self.centres.block_f64(Pick::All, Pick::All, &mut k, control)?;
        match Cholesky::new(k, m, m, control) {
            Ok(factor) => Ok(Some(factor)),
            Err(FactorError::Interrupted(why)) => Err(why),
            Err(FactorError::NotPositive(_)) => Ok(None),
        }
    }

    /// The projection of f_γ on the span of the centres.
    fn project(
        &self,
        gamma: &[f64],
        factor: Option<&Cholesky<f64>>,
        rows: &Accuracy,
        centres: &Accuracy,
        control: &Control,
    ) -> Result<Projected, Interrupt> {
        let m = self.centres.shape().0;
        let mut q = vec![0.0; m];
        self.transposed.apply(Precision::Double, Pick::All, gamma, 1, &mut q, control)?;
        let jittered;
        let solver = match factor {
            Some(factor) => factor,
            None => {
                jittered = self.jittered(control)?;
                &jittered
            }
        };
        let mut c = vec![0.0; m];
        let mut r = q.clone();
        let mut product = vec![0.0; m];
        // Two steps of refinement make r as small as rounding allows.
        for _ in 0..3 {
            let mut step = r.clone();
            solver.solve_on(&mut step, &control.threads);
            c.iter_mut().zip(&step).for_each(|(c, s)| *c += s);
            self.centres.apply(Precision::Double, Pick::All, &c, 1, &mut product, control)?;
            r.iter_mut().zip(q.iter().zip(&product)).for_each(|(r, (q, p))| *r = q - p);
        }
        let used = gamma.iter().filter(|g| **g != 0.0).count();
        let reach = |sizes: &[f64], v: &[f64]| sizes.iter().zip(v).map(|(s, v)| s * v.abs()).sum::<f64>();
        let units = UNIT
            * ((rows.relative.max(centres.relative) + chain(used)) * reach(&rows.size, gamma)
                + (centres.relative + chain(m)) * reach(&centres.size, &c));
        let r_error = centres.size.iter().map(|s| units * s).collect();
        Ok(Projected { c, r, r_error })
    }

    fn jittered(&self, control: &Control) -> Result<Cholesky<f64>, Interrupt> {
        let m = self.centres.shape().0;
        let mut jitter = 1e-14 * self.centres.diag().iter().fold(0.0f64, |a, b| a.max(*b)).max(f64::MIN_POSITIVE);
        loop {
            let mut k = vec![0.0; m * m];
            self.centres.block_f64(Pick::All, Pick::All, &mut k, control)?;
            (0..m).for_each(|i| k[i * m + i] += jitter);
            match Cholesky::new(k, m, m, control) {
                Ok(factor) => return Ok(factor),
                Err(FactorError::Interrupted(why)) => return Err(why),
                Err(FactorError::NotPositive(_)) => jitter *= 30.0,
            }
        }
    }
}

/// c, r and the rounding of r.
struct Projected {
    c: Vec<f64>,
    r: Vec<f64>,
    r_error: Vec<f64>,
}

impl Projected {
    /// ½‖f − f_c‖² − (a − c)ᵀr.
    fn distance(
        &self,
        a: &[f64],
        on: &OnCentres<'_>,
        accuracy: &Accuracy,
        control: &Control,
    ) -> Result<Bounded, Interrupt> {
        let d: Vec<f64> = a.iter().zip(&self.c).map(|(a, c)| a - c).collect();
        let (square, rounding) = on.quadratic(&d, accuracy, control)?;
        let cross: f64 = d.iter().zip(&self.r).map(|(d, r)| d * r).sum();
        let sums = UNIT * chain(d.len());
        let cross_rounding: f64 =
            d.iter().zip(self.r.iter().zip(&self.r_error)).map(|(d, (r, e))| d.abs() * (e + sums * r.abs())).sum();
        Ok(Bounded { value: 0.5 * square - cross, rounding: 0.5 * rounding + cross_rounding })
    }

    fn scaled(&self, t: f64) -> Projected {
        let times = |v: &[f64]| v.iter().map(|v| t * v).collect();
        Projected { c: times(&self.c), r: times(&self.r), r_error: times(&self.r_error) }
    }
}

/// What the gap at tγ is computed from.
struct Parts<'p, 'a> {
    point: &'p Point<'p, 'a>,
    gamma: &'p [f64],
    bias: &'p [f64],
    /// The gap without the tail, at t = 1.
    own: f64,
    /// Bound on ‖f_γ − f_c‖².
    tail: f64,
    projected: &'p Projected,
}

impl Parts<'_, '_> {
    /// The smallest gap over t ≤ 1; at t = 1 it is own + ½·tail.
    fn smallest_gap(
        &self,
        a: &[f64],
        on: &OnCentres<'_>,
        accuracy: &Accuracy,
        control: &Control,
    ) -> Result<f64, Interrupt> {
        let p = self.point.problem;
        let whole = self.own + 0.5 * self.tail;
        let zero_allowed = p.constraint.groups() == 0 || (0..p.constraint.groups()).all(|g| p.constraint.sum(g) == 0.0);
        if !zero_allowed || !(self.tail > 1e-3 * self.own) {
            return Ok(whole);
        }
        let n = p.len();
        let fenchel = |t: f64| -> Result<f64, Interrupt> {
            control.check()?;
            let scaled: Vec<f64> = self.gamma.iter().map(|g| t * g).collect();
            let parts = control.threads.map(n.div_ceil(CHUNK), |task| {
                let range = task * CHUNK..((task + 1) * CHUNK).min(n);
                bulk::terms(self.point, range, &scaled, self.bias).iter().map(|term| term.0 + term.1).sum::<f64>()
            });
            Ok(parts.into_iter().sum())
        };
        let distance = |t: f64| -> Result<f64, Interrupt> {
            let d = self.projected.scaled(t).distance(a, on, accuracy, control)?;
            Ok(d.value + d.rounding)
        };
        // Terms that do not depend on t, the rounding of the sums in P among them.
        let fixed = self.own - fenchel(1.0)? - distance(1.0)?;
        let gap =
            |t: f64| -> Result<f64, Interrupt> { Ok(fixed + fenchel(t)? + distance(t)? + 0.5 * t * t * self.tail) };
        // The gap is convex in t: golden-section search.
        let ratio = 0.5 * (5f64.sqrt() - 1.0);
        let (mut low, mut high) = (0.0, 1.0);
        let (mut left, mut right) = (high - ratio * (high - low), low + ratio * (high - low));
        let (mut at_left, mut at_right) = (gap(left)?, gap(right)?);
        let mut best = whole.min(at_left).min(at_right);
        for _ in 0..14 {
            if at_left < at_right {
                (high, right, at_right) = (right, left, at_left);
                left = high - ratio * (high - low);
                at_left = gap(left)?;
                best = best.min(at_left);
            } else {
                (low, left, at_left) = (left, right, at_right);
                right = low + ratio * (high - low);
                at_right = gap(right)?;
                best = best.min(at_right);
            }
        }
        Ok(best)
    }
}

/// A bound on the distance of the bias from that of the exact machine.
///
/// ½‖f − f*‖² ≤ gap bounds every score without bias, and slopes of convex losses only grow with the score: the best bias
/// of the highest possible scores is a lower bound on the exact one, that of the lowest an upper bound.
fn bias_distance(point: &Point<'_, '_>, own: &[f64], gap: f64, diag: &[f64]) -> Result<f64, Interrupt> {
    let p = point.problem;
    if own.is_empty() {
        return Ok(0.0);
    }
    let radius = (2.0 * gap).sqrt();
    if !radius.is_finite() || own.len() != 1 || p.row_of.is_some() {
        return Ok(f64::INFINITY);
    }
    let mut farthest = 0.0f64;
    for way in [1.0, -1.0] {
        let moved: Vec<f64> = point.f.iter().zip(diag).map(|(f, k)| f + way * radius * k.max(0.0).sqrt()).collect();
        let shifted = Point { problem: p, f: &moved, error: point.error, control: point.control };
        let found = bias::best(&shifted, 0, None, Some(own[0] - way * radius), 0.0)?;
        farthest = farthest.max((found - own[0]).abs());
    }
    Ok(farthest)
}

/// A dual point made from scores alone, for a model of another program: the mean slope of each loss over scores within
/// `width`, which is feasible but for the sums of groups, and those are repaired by the certificate.
pub fn dual_from_scores(
    problem: &KernelProblem<'_>,
    scores: &Scores,
    bias: &[f64],
    width: f64,
    control: &Control,
) -> Result<Vec<f64>, Interrupt> {
    let samples = problem.samples();
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    let n = problem.len();
    let parts = control.threads.map(n.div_ceil(CHUNK), |task| {
        let range = task * CHUNK..((task + 1) * CHUNK).min(n);
        range
            .map(|i| {
                let (z, y, c) = (point.z(i, bias), samples.targets[i], samples.costs[i]);
                let loss = samples.loss(i);
                -c * (loss.value(y, z + width) - loss.value(y, z - width)) / (2.0 * width)
            })
            .collect::<Vec<f64>>()
    });
    control.check()?;
    Ok(parts.concat())
}
