//! The L1 penalty: coordinate descent on the weights (Yuan, Chang, Hsieh and Lin, JMLR 11, 2010, Algorithm 3, after Chang, Hsieh
//! and Lin, JMLR 9, 2008).
//!
//! ```text
//! minimise over w, b:   ‖w‖₁ + |b|/s + Σᵢ cᵢ·ℓ(yᵢ, wᵀxᵢ + b)       |b|/s only for a penalised bias
//! ```
//!
//! for a smooth convex ℓ. A step on one weight minimises |wⱼ + d| + Gd + ½Hd², G and H being the first two derivatives of the
//! losses, and is halved until the objective falls enough. Weights at 0 whose |G| is well below 1 are set aside and looked
//! at again before stopping. The gap comes from β = −cℓ′(z) scaled into the dual's feasible set ‖Xᵀβ‖∞ ≤ 1.
//!
//! Cost of a step: the stored values of one column. Memory: a copy of the data by columns. Up to 1 500 features proximal Newton steps
//! (`lasso_newton.rs`) come in place of epochs as long as they gain.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::envelope::Envelope;
use super::piece::{Direct, Piece, Smoothed, Terms};
use super::solve::{Progress, SHRINK, unit};
use super::state::{ROUNDING, relative_gap};
use super::{LinearSolution, Options};
use crate::control::{Control, Status};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Bias, LinearProblem};
use crate::work_limit::ITERATION;

/// Decrease asked of a step, as a share of what the model promises.
const SUFFICIENT: f64 = 0.01;
/// Halvings of a step at most.
const HALVINGS: usize = 20;
/// Most features of proximal Newton steps.
const DIRECT: usize = 1500;
/// Measurements without progress in the gap after which the run ends.
const PATIENCE: usize = 20;
/// Epochs of a round at most.
const ROUND: u64 = 150;
/// Epochs after which a Newton step is tried again.
const RETRY: u64 = 16;

/// X by columns.
struct Columns {
    starts: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f64>,
}

impl Columns {
    fn new(points: &Points) -> Self {
        let (n, d) = (points.len(), points.dims());
        let mut starts = vec![0usize; d + 1];
        for i in 0..n {
            points.visit(i, |j, v| starts[j + 1] += usize::from(v != 0.0));
        }
        (0..d).for_each(|j| starts[j + 1] += starts[j]);
        let mut next = starts.clone();
        let (mut rows, mut values) = (vec![0; starts[d]], vec![0.0; starts[d]]);
        for i in 0..n {
            points.visit(i, |j, v| {
                if v != 0.0 {
                    rows[next[j]] = i as u32;
                    values[next[j]] = v;
                    next[j] += 1;
                }
            });
        }
        Self { starts, rows, values }
    }

    fn column(&self, j: usize) -> (&[u32], &[f64]) {
        let range = self.starts[j]..self.starts[j + 1];
        (&self.rows[range.clone()], &self.values[range])
    }
}

pub(super) struct Descent<'a> {
    pub(super) problem: &'a LinearProblem<'a>,
    columns: Columns,
    pub(super) w: Vec<f64>,
    pub(super) b: f64,
    pub(super) z: Vec<f64>,
    /// The losses, smoothed where they have to be.
    piece: Box<dyn Piece + 'a>,
    /// Damping of Newton steps, relative to the largest curvature there can be.
    pub(super) damping: f64,
}

impl Descent<'_> {
    /// The smoothed loss.
    pub(super) fn value(&self, i: usize, z: f64) -> f64 {
        self.piece.smooth_value(i, z)
    }

    pub(super) fn slope(&self, i: usize) -> f64 {
        -self.piece.beta(i, self.z[i])
    }

    pub(super) fn bend(&self, i: usize) -> f64 {
        self.piece.curvature(i, self.z[i])
    }

    /// The step that minimises l1·|w + d| + Gd + ½Hd².
    pub(super) fn newton(w: f64, slope: f64, bend: f64, l1: f64) -> f64 {
        if slope + l1 <= bend * w {
            -(slope + l1) / bend
        } else if slope - l1 >= bend * w {
            -(slope - l1) / bend
        } else {
            -w
        }
    }

    /// By how much the slope breaks its optimality condition.
    pub(super) fn violation(w: f64, slope: f64, l1: f64) -> f64 {
        if w > 0.0 {
            (slope + l1).abs()
        } else if w < 0.0 {
            (slope - l1).abs()
        } else {
            (slope.abs() - l1).max(0.0)
        }
    }

    /// One step on a weight whose samples are `entries`; its violation before. `l1` is its penalty.
    fn step(&mut self, at: Option<usize>, l1: f64) -> (f64, f64) {
        let (mut slope, mut bend) = (0.0, 1e-12);
        let columns = std::mem::replace(&mut self.columns, Columns { starts: vec![], rows: vec![], values: vec![] });
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
            slope += x * self.slope(i as usize);
            bend += x * x * self.bend(i as usize);
        }
        let w = at.map_or(self.b, |j| self.w[j]);
        let violation = Self::violation(w, slope, l1);
        if violation > 0.0 {
            let d = Self::newton(w, slope, bend, l1);
            let promised = slope * d + l1 * ((w + d).abs() - w.abs());
            let mut t = 1.0;
            for _ in 0..HALVINGS {
                let (mut change, mut size) = (l1 * ((w + t * d).abs() - w.abs()), 0.0);
                for (&i, x) in rows.iter().zip(values) {
                    let (i, z) = (i as usize, self.z[i as usize]);
                    let old = self.value(i, z);
                    change += self.value(i, z + t * d * x) - old;
                    size += old.abs();
                }
                // Below the rounding of the losses the promise is all there is to go by.
                if change <= SUFFICIENT * t * promised || promised.abs() <= 1e-13 * size {
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

    /// Σᵢ xᵢⱼ² of every column.
    pub(super) fn column_squares(&self) -> Vec<f64> {
        (0..self.w.len()).map(|j| self.columns.column(j).1.iter().map(|x| x * x).sum()).collect()
    }

    /// The largest violation of all weights and the bias.
    fn worst(&self, bias: Option<f64>) -> f64 {
        let slopes: Vec<f64> = (0..self.z.len()).map(|i| self.slope(i)).collect();
        let mut worst = bias.map_or(0.0, |penalty| Self::violation(self.b, slopes.iter().sum(), penalty));
        for j in 0..self.w.len() {
            let (rows, values) = self.columns.column(j);
            let slope = rows.iter().zip(values).map(|(&i, x)| x * slopes[i as usize]).sum();
            worst = worst.max(Self::violation(self.w[j], slope, 1.0));
        }
        worst
    }

    /// Moves a free bias to where the slopes sum to 0: the dual point −slope is feasible only there.
    fn balance(&mut self) {
        if self.problem.bias != Bias::Free {
            return;
        }
        let at = |shift: f64| {
            let (mut sum, mut size, mut bend) = (0.0, 0.0, 0.0);
            for (i, z) in self.z.iter().enumerate() {
                let beta = self.piece.beta(i, z + shift);
                sum -= beta;
                size += beta.abs();
                bend += self.piece.curvature(i, z + shift);
            }
            (sum, size, bend)
        };
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let (mut shift, mut width, mut newtons) = (0.0f64, 1e-3, 0);
        let mut least = (f64::INFINITY, 0.0);
        for _ in 0..200 {
            let (sum, size, bend) = at(shift);
            if sum.abs() < least.0 {
                least = (sum.abs(), shift);
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
            let newton = shift - sum / bend;
            shift = if bend > 0.0 && newton > low && newton < high && (newton - shift).abs() < 1e15 {
                // Newton on a piecewise linear slope may creep from piece to piece: every third step bisects.
                newtons += 1;
                width *= 2.0;
                match bracketed {
                    true if newtons % 3 == 0 => 0.5 * (low + high),
                    // A slope that vanishes only at infinity (one class under the logistic loss) must not cost a step per unit.
                    false if newtons > 8 => {
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
        let shift = least.1;
        self.b += shift;
        self.z.iter_mut().for_each(|z| *z += shift);
    }

    /// P, D, the rounding of their sums, and β: minus the slopes, scaled into the feasible set. D is that of β = 0 where β does not
    /// sum to 0 under a free bias.
    fn bounds(&self) -> Bounds {
        let p = self.problem;
        let n = self.z.len();
        let mut beta: Vec<f64> = (0..n).map(|i| -self.slope(i)).collect();
        let mut most = 0.0f64;
        for j in 0..self.w.len() {
            let (rows, values) = self.columns.column(j);
            let v: f64 = rows.iter().zip(values).map(|(&i, x)| x * beta[i as usize]).sum();
            most = most.max(v.abs());
        }
        let mut primal: f64 = self.w.iter().map(|w| w.abs()).sum();
        if let Bias::Penalised { scaling } = p.bias {
            most = most.max(beta.iter().sum::<f64>().abs() * scaling);
            primal += self.b.abs() / scaling;
        }
        let mut scale = 1.0 / most.max(1.0);
        let size: f64 = beta.iter().map(|b| b.abs()).sum();
        if p.bias == Bias::Free && beta.iter().sum::<f64>().abs() > 1e-10 * size {
            scale = 0.0;
        }
        beta.iter_mut().for_each(|b| *b *= scale);
        let (mut dual, mut terms) = (0.0, primal);
        for i in (0..n).filter(|&i| p.costs[i] > 0.0) {
            let c = p.costs[i];
            let value = self.piece.value(i, self.z[i]);
            let (lo, hi) = p.loss.domain(p.targets[i]);
            let conjugate = c * p.loss.conjugate(p.targets[i], (-beta[i] / c).clamp(lo, hi)).unwrap_or(f64::INFINITY);
            primal += value;
            dual -= conjugate;
            terms += value.abs() + conjugate.abs();
        }
        Bounds { primal, dual, rounding: ROUNDING * terms, beta }
    }
}

/// What is known of the optimum.
struct Bounds {
    primal: f64,
    dual: f64,
    rounding: f64,
    beta: Vec<f64>,
}

/// The points of a problem this solver takes; fails for a loss with a kink, or rows that are not in memory.
fn supported<'a>(problem: &LinearProblem<'a>) -> Result<&'a Points> {
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

/// How a run goes on.
struct Epochs<'a, 'o> {
    options: &'a Options,
    control: &'a Control,
    observer: &'o mut dyn Observer,
    /// Penalty on |b|; `None` without a bias.
    bias_penalty: Option<f64>,
    rng: ChaCha8Rng,
    /// Weights that are not set aside.
    active: Vec<u32>,
    /// Weights at 0 whose slope is below 1 by more than this are set aside.
    bar: f64,
    epoch: u64,
    violation: f64,
    relative: f64,
    primal: f64,
    /// A round is over when the violation is this share of the relative gap.
    share: f64,
}

impl Epochs<'_, '_> {
    /// Measures P, D and the violation over all weights; true if all that was asked for holds.
    fn measure(&mut self, descent: &mut Descent<'_>) -> std::result::Result<bool, Status> {
        descent.balance();
        let Bounds { primal, dual, rounding, .. } = descent.bounds();
        self.relative = relative_gap(primal, primal - dual, rounding);
        self.primal = primal;
        self.violation = descent.worst(self.bias_penalty);
        self.control.spend(2 * descent.problem.matrix.stored() + 60 * descent.z.len());
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
        let tol_holds = stop.tol.is_none_or(|tol| self.violation <= tol && self.relative <= 1e-3);
        Ok(tol_holds && stop.gap.is_none_or(|gap| self.relative <= gap))
    }

    /// One epoch of coordinate descent over the active weights and the bias.
    fn sweep(&mut self, descent: &mut Descent<'_>) -> std::result::Result<(), Status> {
        // A step reads its column a few times.
        let column = descent.problem.matrix.stored() / descent.w.len().max(1);
        self.control.spend(self.active.len() * (4 * column + 100));
        self.active.shuffle(&mut self.rng);
        let (mut worst, mut kept) = (0.0f64, 0);
        for at in 0..self.active.len() {
            if at % 64 == 0 {
                self.control.check().map_err(Status::from)?;
            }
            let j = self.active[at];
            let (violation, slope) = descent.step(Some(j as usize), 1.0);
            worst = worst.max(violation);
            if descent.w[j as usize] != 0.0 || slope.abs() >= 1.0 - self.bar {
                self.active[kept] = j;
                kept += 1;
            }
        }
        self.active.truncate(kept);
        if let Some(penalty) = self.bias_penalty {
            worst = worst.max(descent.step(None, penalty).0);
        }
        self.bar = worst / descent.z.len().max(1) as f64;
        Ok(())
    }

    /// Solves the smoothed problem: proximal Newton steps as long as they gain, then epochs.
    fn round(&mut self, descent: &mut Descent<'_>, smoothed: bool) -> std::result::Result<Round, Status> {
        let d = descent.w.len();
        let fits = d <= DIRECT && 40 * (d * d) as u64 <= self.options.memory;
        let mut newton = fits;
        let first = self.epoch;
        let mut next = 0;
        let mut progress = Progress::default();
        loop {
            if newton || self.epoch >= next || self.active.is_empty() {
                if self.measure(descent)? {
                    return Ok(Round::Over(Status::Optimal));
                }
                let settled = self.violation <= self.share * self.relative.min(1.0);
                if smoothed && settled {
                    return Ok(Round::Settled);
                }
                if smoothed && self.epoch >= first + ROUND {
                    return Ok(Round::Unsettled);
                }
                if progress.ended_with(self.relative, self.primal, PATIENCE) {
                    return Ok(if smoothed { Round::Unsettled } else { Round::Over(Status::Stalled) });
                }
                next = self.epoch + 1 + (self.epoch - first) / 8;
                self.active = (0..d as u32).collect();
                self.bar = f64::INFINITY;
            }
            if self.options.iterations.is_some_and(|most| self.epoch >= most) {
                return Err(Status::IterationLimit);
            }
            self.epoch += 1;
            self.control.spend(ITERATION);
            if newton {
                newton = descent.newton_step(self.bias_penalty, self.control).map_err(Status::from)?;
            }
            if !newton {
                self.sweep(descent)?;
                // Epochs may have led to where Newton gains again.
                newton = fits && (self.epoch - first).is_multiple_of(RETRY);
            }
        }
    }

    /// Rounds of smoothed problems where the losses have flat or steep parts, or where the losses as they are make no progress.
    fn run<'p>(
        &mut self,
        descent: &mut Descent<'p>,
        problem: &'p LinearProblem<'p>,
        terms: Option<&'p Terms>,
    ) -> std::result::Result<Status, Status> {
        let smoothed = terms.map_or(problem.loss.sharp(), |terms| terms.least_width().is_finite());
        let status = self.smoothing(descent, problem, terms, smoothed)?;
        if status == Status::Stalled && !smoothed {
            return self.smoothing(descent, problem, None, true);
        }
        Ok(status)
    }

    /// Rounds of smoothed problems, the smoothing moved along with β; one round of the losses as they are unless `smoothed`.
    fn smoothing<'p>(
        &mut self,
        descent: &mut Descent<'p>,
        problem: &'p LinearProblem<'p>,
        terms: Option<&'p Terms>,
        smoothed: bool,
    ) -> std::result::Result<Status, Status> {
        let unit = unit(problem);
        let mut width = if smoothed { 2.0 * unit } else { 0.0 };
        let mut progress = Progress::default();
        let mut centre = vec![0.0; descent.z.len()];
        let mut best = (f64::INFINITY, descent.w.clone(), descent.b, descent.z.clone(), centre.clone());
        loop {
            descent.piece = match terms {
                Some(terms) => Box::new(Smoothed::new(terms, width, &centre)),
                None if smoothed => Box::new(Envelope::new(problem, width, &centre)),
                None => Box::new(Direct::new(problem)),
            };
            let settled = match self.round(descent, smoothed)? {
                Round::Over(status) => return Ok(status),
                Round::Settled => true,
                Round::Unsettled => false,
            };
            centre = (0..descent.z.len()).map(|i| descent.piece.beta(i, descent.z[i])).collect();
            if self.relative < best.0 {
                best = (self.relative, descent.w.clone(), descent.b, descent.z.clone(), centre.clone());
            }
            if progress.ended_with(self.relative, self.primal, PATIENCE) {
                return Ok(Status::Stalled);
            }
            if settled {
                self.share = (SHRINK * self.share).max(1e-4);
                width = (SHRINK * width).max(1e-10 * unit);
            } else {
                // Too sharp: again from the best point, with more smoothing.
                (_, descent.w, descent.b, descent.z, centre) = best.clone();
                width = (10.0 * width).min(1e6 * unit);
            }
        }
    }
}

/// How a round of smoothing ended.
enum Round {
    /// The run is over.
    Over(Status),
    /// The gap left is that of the smoothing.
    Settled,
    /// The smoothed problem was not solved.
    Unsettled,
}

/// Solves `problem` with the L1 penalty in place of ½‖w‖². Fails for a loss with a kink, or rows that are not in memory.
pub fn solve_l1(
    problem: &LinearProblem<'_>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<LinearSolution> {
    options.check()?;
    let points = supported(problem)?;
    let (n, d) = (points.len(), points.dims());
    let control = &control.for_run(super::pass(problem.matrix, 1));
    let begin = Begin { solver: "linear-l1", n, tol: options.stop.tol, gap: options.stop.gap };
    let stopped = observer.begin(&begin).is_break();
    let terms = Terms::new(problem);
    let piece = Box::new(Direct::new(problem));
    let mut descent = Descent {
        problem,
        columns: Columns::new(points),
        w: vec![0.0; d],
        b: 0.0,
        z: vec![0.0; n],
        piece,
        damping: 0.0,
    };
    if let Some(start) = &options.start
        && start.weights.len() == d
    {
        descent.w.clone_from(&start.weights);
        descent.b = if problem.bias == Bias::None { 0.0 } else { start.bias };
        for i in 0..n {
            let mut z = descent.b;
            points.visit(i, |j, v| z += v * descent.w[j]);
            descent.z[i] = z;
        }
    }
    let bias_penalty = match problem.bias {
        Bias::None => None,
        Bias::Free => Some(0.0),
        Bias::Penalised { scaling } => Some(1.0 / scaling),
    };
    let mut epochs = Epochs {
        options,
        control,
        observer,
        bias_penalty,
        rng: ChaCha8Rng::seed_from_u64(options.seed),
        active: (0..d as u32).collect(),
        bar: f64::INFINITY,
        epoch: 0,
        violation: f64::INFINITY,
        relative: f64::INFINITY,
        primal: f64::INFINITY,
        share: 0.1,
    };
    let status = if stopped {
        Status::Interrupted
    } else {
        epochs.run(&mut descent, problem, terms.as_ref()).unwrap_or_else(|early| early)
    };
    let beta = descent.bounds().beta;
    let last = Step { iteration: epochs.epoch, seconds: control.seconds(), ..Step::default() };
    epochs.observer.finish(status, &last);
    Ok(LinearSolution {
        weights: descent.w,
        bias: descent.b,
        beta,
        status,
        iterations: epochs.epoch,
        violation: epochs.violation,
        relative_gap: epochs.relative,
        start_objective: None,
        reason: "L1 penalty: proximal Newton steps and coordinate descent on the weights".into(),
    })
}
