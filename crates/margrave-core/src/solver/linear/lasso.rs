//! The L1 penalty: coordinate descent on the weights (Yuan, Chang, Hsieh and Lin, JMLR 11, 2010, Algorithm 3, after
//! Chang, Hsieh and Lin, JMLR 9, 2008).
//!
//! ```text
//! minimise over w, b:   ‖w‖₁ + |b|/s + Σᵢ cᵢ·ℓ(yᵢ, wᵀxᵢ + b)       |b|/s only for a penalised bias
//! ```
//!
//! for a smooth convex ℓ. A step on one weight minimises |wⱼ + d| + Gd + ½Hd², where G and H are the first two
//! derivatives of the losses, and is halved until the objective falls enough. Weights at 0 whose |G| is well below 1
//! are shrunk, and checked again before stopping. The gap is that of β = −cℓ′(z), scaled into the feasible set of the
//! dual, ‖Xᵀβ‖∞ ≤ 1.
//!
//! Cost of a step: the stored values of one column. Memory: a copy of the data by columns. With at most 1 500 features,
//! proximal Newton steps (`lasso_newton.rs`) replace epochs as long as they make progress.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::columns::ColumnStore;
use super::envelope::MoreauEnvelope;
use super::smooth_loss::{DualTerms, SmoothLoss, SmoothedDual, UnsmoothedLoss};
use super::solve::{GapProgress, WIDTH_FACTOR, score_unit};
use super::state::{SUM_ROUNDING, compensated_sum, relative_gap};
use super::{LinearSolution, Options};
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::Pick;
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Bias, LinearProblem};
use crate::work_limit::ITERATION;

/// Required decrease of a step, as a fraction of the decrease predicted by the model.
const SUFFICIENT_DECREASE: f64 = 0.01;
/// Most halvings of a step.
const MAX_HALVINGS: usize = 20;
/// Most features for proximal Newton steps.
const MAX_NEWTON_FEATURES: usize = 1500;
/// Most measurements without progress in the gap.
const MAX_IDLE: usize = 20;
/// Relative gap below which more work changes only the rounding of the violation.
const SETTLED_GAP: f64 = 1e-9;
/// Rounding of |xⱼᵀβ|, which must not exceed 1, from which the last dual point is made feasible by accurate sums.
const VISIBLE_ROUNDING: f64 = 1e-9;
/// Most epochs of a round.
const MAX_ROUND_EPOCHS: u64 = 150;
/// Epochs after which a Newton step is tried again.
const NEWTON_RETRY_EPOCHS: u64 = 16;

/// The current point, and the losses.
pub(super) struct LassoState<'a> {
    pub(super) problem: &'a LinearProblem<'a>,
    columns: ColumnStore,
    pub(super) w: Vec<f64>,
    pub(super) b: f64,
    pub(super) z: Vec<f64>,
    /// The losses, smoothed if necessary.
    losses: Box<dyn SmoothLoss + 'a>,
    /// Damping of Newton steps, relative to the largest possible curvature.
    pub(super) damping: f64,
}

impl LassoState<'_> {
    /// The smoothed loss.
    pub(super) fn value_at(&self, i: usize, z: f64) -> f64 {
        self.losses.smooth_value(i, z)
    }

    pub(super) fn slope_at(&self, i: usize) -> f64 {
        -self.losses.beta(i, self.z[i])
    }

    pub(super) fn curvature_at(&self, i: usize) -> f64 {
        self.losses.curvature(i, self.z[i])
    }

    /// The step that minimises l1·|w + d| + Gd + ½Hd².
    pub(super) fn weight_step(w: f64, slope: f64, curvature: f64, l1: f64) -> f64 {
        if slope + l1 <= curvature * w {
            -(slope + l1) / curvature
        } else if slope - l1 >= curvature * w {
            -(slope - l1) / curvature
        } else {
            -w
        }
    }

    /// The violation of the optimality condition of a weight.
    pub(super) fn weight_violation(w: f64, slope: f64, l1: f64) -> f64 {
        if w > 0.0 {
            (slope + l1).abs()
        } else if w < 0.0 {
            (slope - l1).abs()
        } else {
            (slope.abs() - l1).max(0.0)
        }
    }

    /// One step on weight `at`, or on the bias if `None`, with penalty `l1`. Returns its violation before the step, and
    /// the slope of the losses.
    fn coordinate_step(&mut self, at: Option<usize>, l1: f64) -> (f64, f64) {
        let (mut slope, mut curvature) = (0.0, 1e-12);
        let columns = std::mem::take(&mut self.columns);
        let all: Vec<u32>;
        let ones: Vec<f64>;
        let (rows, values): (&[u32], &[f64]) = match at {
            Some(j) => columns.column(j),
            None => {
                all = (0..self.z.len() as u32).collect();
                ones = vec![1.0; self.z.len()];
                (&all, &ones)
            }
        };
        for (&i, x) in rows.iter().zip(values) {
            slope += x * self.slope_at(i as usize);
            curvature += x * x * self.curvature_at(i as usize);
        }
        let w = at.map_or(self.b, |j| self.w[j]);
        let violation = Self::weight_violation(w, slope, l1);
        if violation > 0.0 {
            let d = Self::weight_step(w, slope, curvature, l1);
            let predicted = slope * d + l1 * ((w + d).abs() - w.abs());
            let mut t = 1.0;
            for _ in 0..MAX_HALVINGS {
                let (mut change, mut size) = (l1 * ((w + t * d).abs() - w.abs()), 0.0);
                for (&i, x) in rows.iter().zip(values) {
                    let (i, z) = (i as usize, self.z[i as usize]);
                    let old = self.value_at(i, z);
                    change += self.value_at(i, z + t * d * x) - old;
                    size += old.abs();
                }
                // If the predicted decrease is within the rounding of the losses, accept it without a test.
                if change <= SUFFICIENT_DECREASE * t * predicted || predicted.abs() <= 1e-13 * size {
                    let new = if t == 1.0 && d == -w { 0.0 } else { w + t * d };
                    match at {
                        Some(j) => self.w[j] = new,
                        None => self.b = new,
                    }
                    rows.iter().zip(values).for_each(|(&i, x)| self.z[i as usize] += t * d * x);
                    break;
                }
                t *= 0.5;
            }
        }
        self.columns = columns;
        (violation, slope)
    }

    /// Σᵢ xᵢⱼ² for every column.
    pub(super) fn column_squares(&self) -> Vec<f64> {
        (0..self.w.len()).map(|j| self.columns.column(j).1.iter().map(|x| x * x).sum()).collect()
    }

    /// The scores anew from the weights. Steps only add to them, and the rounding of many steps, multiplied by large
    /// features, would hide a violation that the certificate finds.
    fn recompute_scores(&mut self, control: &Control) -> std::result::Result<(), Interrupt> {
        self.problem.matrix.dots(Pick::All, &self.w, &mut self.z, control)?;
        self.z.iter_mut().for_each(|z| *z += self.b);
        Ok(())
    }

    /// The largest violation over all weights and the bias, and what rounding alone may make of it: with large features and
    /// costs the terms of a slope are many orders of magnitude larger than the penalty.
    fn largest_violation(&self, bias: Option<f64>) -> (f64, f64) {
        /// Typical error of a sum, relative to the magnitudes of its terms: their own rounding and that of the scores behind them.
        const TYPICAL_ERROR: f64 = 8.0 * f64::EPSILON;
        let slopes: Vec<f64> = (0..self.z.len()).map(|i| self.slope_at(i)).collect();
        let mut worst = bias.map_or(0.0, |penalty| Self::weight_violation(self.b, slopes.iter().sum(), penalty));
        let mut size = 0.0f64;
        for j in 0..self.w.len() {
            let (rows, values) = self.columns.column(j);
            let (mut slope, mut terms) = (0.0, 0.0);
            for (&i, x) in rows.iter().zip(values) {
                let term = x * slopes[i as usize];
                slope += term;
                terms += term.abs();
            }
            worst = worst.max(Self::weight_violation(self.w[j], slope, 1.0));
            size = size.max(terms);
        }
        (worst, TYPICAL_ERROR * size)
    }

    /// Moves a free bias to the point where the slopes sum to 0: only there the dual point −slope is feasible.
    fn balance_bias(&mut self) {
        if self.problem.bias != Bias::Free {
            return;
        }
        let at = |shift: f64| {
            let (mut sum, mut size, mut curvature) = (0.0, 0.0, 0.0);
            for (i, z) in self.z.iter().enumerate() {
                let beta = self.losses.beta(i, z + shift);
                sum -= beta;
                size += beta.abs();
                curvature += self.losses.curvature(i, z + shift);
            }
            (sum, size, curvature)
        };
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let (mut shift, mut width, mut newton_steps) = (0.0f64, 1e-3, 0);
        let mut best = (f64::INFINITY, 0.0);
        for _ in 0..200 {
            let (sum, size, curvature) = at(shift);
            if sum.abs() < best.0 {
                best = (sum.abs(), shift);
            }
            if sum.abs() <= 1e-15 * size || !sum.is_finite() {
                break;
            }
            if sum < 0.0 {
                low = shift
            } else {
                high = shift
            }
            let bracketed = low.is_finite() && high.is_finite();
            let newton = shift - sum / curvature;
            shift = if curvature > 0.0 && newton > low && newton < high && (newton - shift).abs() < 1e15 {
                // Newton on a piecewise linear slope may advance one piece per step: bisect in every third step.
                newton_steps += 1;
                width *= 2.0;
                match bracketed {
                    true if newton_steps % 3 == 0 => 0.5 * (low + high),
                    // If the slope vanishes only at infinity (one class under the logistic loss), Newton steps have a
                    // constant length: use steps that double.
                    false if newton_steps > 8 => {
                        if sum < 0.0 {
                            newton.max(shift + width)
                        } else {
                            newton.min(shift - width)
                        }
                    }
                    _ => newton,
                }
            } else if bracketed {
                0.5 * (low + high)
            } else {
                width *= 4.0;
                shift - width * sum.signum()
            };
            if width > 1e18 || (bracketed && (shift <= low || shift >= high)) {
                break;
            }
        }
        let shift = best.1;
        self.b += shift;
        self.z.iter_mut().for_each(|z| *z += shift);
    }

    /// Scales β down where ‖Xᵀβ‖∞, summed more accurately than while solving, exceeds 1: with large features or costs the rounding
    /// of plain sums is a visible violation.
    fn make_feasible(&self, beta: &mut [f64]) {
        let mut largest = 1.0f64;
        let mut terms = Vec::new();
        for j in 0..self.w.len() {
            let (rows, values) = self.columns.column(j);
            terms.clear();
            terms.extend(rows.iter().zip(values).map(|(&i, x)| x * beta[i as usize]));
            largest = largest.max(compensated_sum(&terms).abs());
        }
        if let Bias::Penalised { scaling } = self.problem.bias {
            largest = largest.max(scaling * compensated_sum(beta).abs());
        }
        beta.iter_mut().for_each(|b| *b /= largest);
    }

    /// P, D, the rounding of their sums, and β: minus the slopes, scaled into the feasible set. If β does not sum to 0
    /// under a free bias, D is that of β = 0.
    fn duality_bounds(&self) -> DualityBounds {
        let p = self.problem;
        let n = self.z.len();
        let mut beta: Vec<f64> = (0..n).map(|i| -self.slope_at(i)).collect();
        let mut largest = 0.0f64;
        for j in 0..self.w.len() {
            let (rows, values) = self.columns.column(j);
            let v: f64 = rows.iter().zip(values).map(|(&i, x)| x * beta[i as usize]).sum();
            largest = largest.max(v.abs());
        }
        let mut primal: f64 = self.w.iter().map(|w| w.abs()).sum();
        if let Bias::Penalised { scaling } = p.bias {
            largest = largest.max(beta.iter().sum::<f64>().abs() * scaling);
            primal += self.b.abs() / scaling;
        }
        let mut scale = 1.0 / largest.max(1.0);
        let size: f64 = beta.iter().map(|b| b.abs()).sum();
        if p.bias == Bias::Free && beta.iter().sum::<f64>().abs() > 1e-10 * size {
            scale = 0.0;
        }
        beta.iter_mut().for_each(|b| *b *= scale);
        let (mut dual, mut terms) = (0.0, primal);
        for i in (0..n).filter(|&i| p.costs[i] > 0.0) {
            let c = p.costs[i];
            let value = self.losses.value(i, self.z[i]);
            let (lo, hi) = p.loss.domain(p.targets[i]);
            let conjugate = c * p.loss.conjugate(p.targets[i], (-beta[i] / c).clamp(lo, hi)).unwrap_or(f64::INFINITY);
            primal += value;
            dual -= conjugate;
            terms += value.abs() + conjugate.abs();
        }
        DualityBounds { primal, dual, rounding: SUM_ROUNDING * terms, beta }
    }
}

/// P and D, which bound the optimum.
struct DualityBounds {
    primal: f64,
    dual: f64,
    rounding: f64,
    beta: Vec<f64>,
}

/// The points of a supported problem; fails for a loss with a kink, or for rows that are not in memory.
fn supported_points<'a>(problem: &LinearProblem<'a>) -> Result<&'a Points> {
    let unsupported =
        |what: String, instead: &str| Error::Unsupported { solver: "linear", what, instead: instead.into() };
    let properties = problem.loss.properties();
    let kinked = (0..problem.len()).any(|i| problem.dual_term(i).is_some_and(|t| t.d == 0.0 && t.hi > t.lo));
    if !properties.convex || kinked {
        let what = format!("the {} loss with the L1 penalty", problem.loss.name());
        return Err(unsupported(what, "squared-hinge or logistic"));
    }
    let in_blocks = || unsupported("the L1 penalty on rows read in blocks".into(), "data that fits in memory");
    problem.matrix.points().ok_or_else(in_blocks)
}

/// The point with the least relative gap that was measured.
struct Best {
    relative: f64,
    violation: f64,
    weights: Vec<f64>,
    bias: f64,
    beta: Vec<f64>,
}

impl Best {
    fn none() -> Self {
        Self { relative: f64::INFINITY, violation: f64::INFINITY, weights: Vec::new(), bias: 0.0, beta: Vec::new() }
    }
}

/// The state of a run.
struct LassoRun<'a, 'o> {
    options: &'a Options,
    control: &'a Control,
    observer: &'o mut dyn Observer,
    /// Penalty on |b|; `None` without a bias.
    bias_penalty: Option<f64>,
    rng: ChaCha8Rng,
    /// Active weights.
    active: Vec<u32>,
    /// Weights at 0 whose slope is below 1 by more than this are shrunk.
    shrink_margin: f64,
    epoch: u64,
    violation: f64,
    relative: f64,
    primal: f64,
    /// A round ends when the violation is at most this fraction of the relative gap.
    violation_of_gap: f64,
    best: Best,
    /// What rounding may make of the violation at the last point measured.
    rounding: f64,
    /// Whether a point was found that rounding alone keeps from being optimal.
    settled: bool,
}

impl LassoRun<'_, '_> {
    /// Measures P, D and the violation over all weights; true if the stopping criteria hold.
    fn measure(&mut self, state: &mut LassoState<'_>) -> std::result::Result<bool, Status> {
        state.recompute_scores(self.control).map_err(Status::from)?;
        state.balance_bias();
        let DualityBounds { primal, dual, rounding, beta } = state.duality_bounds();
        self.relative = relative_gap(primal, primal - dual, rounding);
        self.primal = primal;
        let (violation, rounding) = state.largest_violation(self.bias_penalty);
        (self.violation, self.rounding) = (violation, rounding);
        self.settled |= violation <= rounding;
        if self.relative < self.best.relative {
            let (relative, weights) = (self.relative, state.w.clone());
            self.best = Best { relative, violation, weights, bias: state.b, beta };
        }
        self.control.spend(2 * state.problem.matrix.stored() + 60 * state.z.len());
        self.control.note(Some(self.violation), Some(self.relative));
        let step = Step {
            iteration: self.epoch,
            seconds: self.control.seconds(),
            phase: "coordinate",
            primal: Some(primal),
            dual: Some(dual),
            violation: Some(self.violation),
            active: Some(self.active.len()),
            ..Step::default()
        };
        if self.observer.step(&step).is_break() {
            return Err(Status::Interrupted);
        }
        let stop = &self.options.stop;
        let tol_holds = stop.tol.is_none_or(|tol| self.violation <= tol.max(rounding) && self.relative <= 1e-3);
        Ok(tol_holds && stop.gap.is_none_or(|gap| self.relative <= gap))
    }

    /// One epoch of coordinate descent over the active weights and the bias.
    fn sweep(&mut self, state: &mut LassoState<'_>) -> std::result::Result<(), Status> {
        // A step reads its column a few times.
        let column = state.problem.matrix.stored() / state.w.len().max(1);
        self.control.spend(self.active.len() * (4 * column + 100));
        self.active.shuffle(&mut self.rng);
        let (mut worst, mut kept) = (0.0f64, 0);
        for at in 0..self.active.len() {
            if at % 64 == 0 {
                self.control.check().map_err(Status::from)?;
            }
            let j = self.active[at];
            let (violation, slope) = state.coordinate_step(Some(j as usize), 1.0);
            worst = worst.max(violation);
            if state.w[j as usize] != 0.0 || slope.abs() >= 1.0 - self.shrink_margin {
                self.active[kept] = j;
                kept += 1;
            }
        }
        self.active.truncate(kept);
        if let Some(penalty) = self.bias_penalty {
            worst = worst.max(state.coordinate_step(None, penalty).0);
        }
        self.shrink_margin = worst / state.z.len().max(1) as f64;
        Ok(())
    }

    /// Solves the smoothed problem: proximal Newton steps as long as they make progress, then epochs.
    fn round(&mut self, state: &mut LassoState<'_>, smoothed: bool) -> std::result::Result<RoundEnd, Status> {
        let d = state.w.len();
        let fits = d <= MAX_NEWTON_FEATURES && 40 * (d * d) as u64 <= self.options.memory;
        let mut newton = fits;
        let first = self.epoch;
        let mut next = 0;
        let mut progress = GapProgress::default();
        loop {
            if newton || self.epoch >= next || self.active.is_empty() {
                if self.measure(state)? {
                    return Ok(RoundEnd::Over(Status::Optimal));
                }
                let solved = self.violation <= self.violation_of_gap * self.relative.min(1.0);
                if smoothed && solved {
                    return Ok(RoundEnd::Solved);
                }
                if smoothed && self.epoch >= first + MAX_ROUND_EPOCHS {
                    return Ok(RoundEnd::NotSolved);
                }
                if progress.has_stalled_with_objective(self.relative, self.primal, MAX_IDLE) {
                    return Ok(if smoothed { RoundEnd::NotSolved } else { RoundEnd::Over(Status::Stalled) });
                }
                next = self.epoch + 1 + (self.epoch - first) / 8;
                self.active = (0..d as u32).collect();
                self.shrink_margin = f64::INFINITY;
            }
            if self.options.iterations.is_some_and(|limit| self.epoch >= limit) {
                return Err(Status::IterationLimit);
            }
            self.epoch += 1;
            self.control.spend(ITERATION);
            if newton {
                newton = state.newton_step(self.bias_penalty, self.control).map_err(Status::from)?;
            }
            if !newton {
                self.sweep(state)?;
                // After some epochs Newton may make progress again.
                newton = fits && (self.epoch - first).is_multiple_of(NEWTON_RETRY_EPOCHS);
            }
        }
    }

    /// Rounds of smoothed problems if the losses have flat or steep parts, or if the original losses make no progress.
    fn run<'p>(
        &mut self,
        state: &mut LassoState<'p>,
        problem: &'p LinearProblem<'p>,
        terms: Option<&'p DualTerms>,
    ) -> std::result::Result<Status, Status> {
        let smoothed = terms.map_or(problem.loss.sharp(), |terms| terms.min_width().is_finite());
        let status = self.smoothing_rounds(state, problem, terms, smoothed)?;
        // Smoothing starts far from the point found: where only rounding is left it would find the same point again.
        if status == Status::Stalled && !smoothed && self.best.relative > SETTLED_GAP && !self.settled {
            return self.smoothing_rounds(state, problem, None, true);
        }
        Ok(status)
    }

    /// Rounds of smoothed problems, with the smoothing centred at β; one round of the original losses unless
    /// `smoothed`.
    fn smoothing_rounds<'p>(
        &mut self,
        state: &mut LassoState<'p>,
        problem: &'p LinearProblem<'p>,
        terms: Option<&'p DualTerms>,
        smoothed: bool,
    ) -> std::result::Result<Status, Status> {
        let unit = score_unit(problem);
        let mut width = if smoothed { 2.0 * unit } else { 0.0 };
        let mut progress = GapProgress::default();
        let mut centre = vec![0.0; state.z.len()];
        let mut best = (f64::INFINITY, state.w.clone(), state.b, state.z.clone(), centre.clone());
        loop {
            state.losses = match terms {
                Some(terms) => Box::new(SmoothedDual::new(terms, width, &centre)),
                None if smoothed => Box::new(MoreauEnvelope::new(problem, width, &centre)),
                None => Box::new(UnsmoothedLoss::new(problem)),
            };
            let solved = match self.round(state, smoothed)? {
                RoundEnd::Over(status) => return Ok(status),
                RoundEnd::Solved => true,
                RoundEnd::NotSolved => false,
            };
            centre = (0..state.z.len()).map(|i| state.losses.beta(i, state.z[i])).collect();
            if self.relative < best.0 {
                best = (self.relative, state.w.clone(), state.b, state.z.clone(), centre.clone());
            }
            if progress.has_stalled_with_objective(self.relative, self.primal, MAX_IDLE) {
                return Ok(Status::Stalled);
            }
            if solved {
                self.violation_of_gap = (WIDTH_FACTOR * self.violation_of_gap).max(1e-4);
                width = (WIDTH_FACTOR * width).max(1e-10 * unit);
            } else {
                // Too little smoothing: repeat from the best point with more.
                (_, state.w, state.b, state.z, centre) = best.clone();
                width = (10.0 * width).min(1e6 * unit);
            }
        }
    }
}

/// How a round of smoothing ended.
enum RoundEnd {
    /// The run is over.
    Over(Status),
    /// The smoothed problem was solved: the remaining gap is due to the smoothing.
    Solved,
    /// The smoothed problem was not solved.
    NotSolved,
}

/// Solves `problem` with the L1 penalty instead of ½‖w‖². Fails for a loss with a kink, or for rows that are not in
/// memory.
pub fn solve_l1(
    problem: &LinearProblem<'_>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<LinearSolution> {
    options.check()?;
    let points = supported_points(problem)?;
    let (n, d) = (points.len(), points.dims());
    let control = &control.for_run(super::pass(problem.matrix, 1));
    let begin = Begin { solver: "linear-l1", n, tol: options.stop.tol, gap: options.stop.gap };
    let stopped = observer.begin(&begin).is_break();
    let terms = DualTerms::new(problem);
    let losses = Box::new(UnsmoothedLoss::new(problem));
    let mut state = LassoState {
        problem,
        columns: ColumnStore::new(points),
        w: vec![0.0; d],
        b: 0.0,
        z: vec![0.0; n],
        losses,
        damping: 0.0,
    };
    if let Some(start) = &options.start
        && start.weights.len() == d
    {
        state.w.clone_from(&start.weights);
        state.b = if problem.bias == Bias::None { 0.0 } else { start.bias };
        for i in 0..n {
            let mut z = state.b;
            points.visit(i, |j, v| z += v * state.w[j]);
            state.z[i] = z;
        }
    }
    let bias_penalty = match problem.bias {
        Bias::None => None,
        Bias::Free => Some(0.0),
        Bias::Penalised { scaling } => Some(1.0 / scaling),
    };
    let mut run = LassoRun {
        options,
        control,
        observer,
        bias_penalty,
        rng: ChaCha8Rng::seed_from_u64(options.seed),
        active: (0..d as u32).collect(),
        shrink_margin: f64::INFINITY,
        epoch: 0,
        violation: f64::INFINITY,
        relative: f64::INFINITY,
        primal: f64::INFINITY,
        violation_of_gap: 0.1,
        best: Best::none(),
        rounding: 0.0,
        settled: false,
    };
    let status = if stopped {
        Status::Interrupted
    } else {
        run.run(&mut state, problem, terms.as_ref()).unwrap_or_else(|early| early)
    };
    let mut beta = state.duality_bounds().beta;
    if status != Status::Optimal && run.best.relative < run.relative {
        // Where rounding decides, and in rounds of smoothing, the last point need not be the best.
        let best = std::mem::replace(&mut run.best, Best::none());
        (run.relative, run.violation) = (best.relative, best.violation);
        (state.w, state.b, beta) = (best.weights, best.bias, best.beta);
    }
    if run.rounding > VISIBLE_ROUNDING {
        state.make_feasible(&mut beta);
    }
    let last = Step { iteration: run.epoch, seconds: control.seconds(), ..Step::default() };
    run.observer.finish(status, &last);
    Ok(LinearSolution {
        weights: state.w,
        bias: state.b,
        beta,
        status,
        iterations: run.epoch,
        violation: run.violation,
        relative_gap: run.relative,
        start_objective: None,
        reason: "L1 penalty: proximal Newton steps and coordinate state on the weights".into(),
    })
}
