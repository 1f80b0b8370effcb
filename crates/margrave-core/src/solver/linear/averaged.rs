//! Plain epochs of dual coordinate descent: the start of Newton's method, and the method for smooth losses without a
//! dual term on many features.
//!
//! A step sets β of one row to the minimum of the dual over it. For a loss without a dual term that is the root of
//!
//! ```text
//! F(ζ) = ζ − r − q·β(ζ),   β(ζ) = −c·ℓ′(ζ),   r = z − qβ,   q = ‖x‖² + s²
//! ```
//!
//! which rises with slope 1 + q·c·ℓ″ (Yu, Huang and Lin, Machine Learning 85, 2011, treat the logistic loss in the dual
//! variable itself). Newton from the current score needs one evaluation in late epochs.
//!
//! **Start.** One epoch is one pass of stochastic descent with optimal step lengths. Its last w is noisy, the mean of w
//! over the second half of an epoch is not: Newton from that mean needs fewer steps than from the solution of a
//! subsample unless there are hundreds of samples per feature, and the epochs cost less than one Newton step.

use super::bias_pace::BiasPace;
use super::coordinate::{DescentEnd, PrimalPoint, RowShuffler};
use super::rows::{RowAccess, RowState, row_states, with_rows};
use super::smooth_loss::{DualTerms, UnsmoothedLoss, soft_threshold};
use super::state::{LinearState, Measure};
use crate::control::Status;
use crate::data::Points;
use crate::linalg::sparse;
use crate::linalg::vectorised::{Vectorised, vectorised};
use crate::problem::LinearProblem;

/// Epochs of the averaged start.
const START_EPOCHS: usize = 3;
/// Rows between two checks of the budget.
const CHECK_INTERVAL: usize = 4096;
/// Number of rows by which a row is prefetched ahead.
const PREFETCH_DISTANCE: usize = 3;
/// Most evaluations of a loss in one step: bisection from a saturated slope (q·c ≫ 1) takes some thirty.
const MAX_EVALUATIONS: usize = 64;
/// A Newton step this short, in units of the score, needs no second evaluation.
const SHORT_STEP: f64 = 0.1;
/// A step is short if its q·δ² is below this part of the mean of the last epoch: the row then waits.
const SHORT_PART: f64 = 0.01;
/// Rows wait only if the progress of an epoch is more than this part of that of the last.
const SLOW_RATIO: f64 = 0.5;
/// A row waits at most 2 to this power epochs.
const MAX_WAIT_LEVEL: u8 = 3;
/// Descent ends as slow if it needs more further epochs than this at its present rate.
const MAX_REMAINING_EPOCHS: f64 = 100.0;

/// The minimum of the dual over the β of one row.
pub(super) trait CoordinateStep {
    /// β and the dual term of row `i`, as far as the loss has one. They lie beside the position of the row: one cache
    /// line instead of four.
    fn row(&self, i: usize, beta: f64) -> RowState;
    /// The new β of row `i` at its score `z`.
    fn step(&self, i: usize, row: &RowState, z: f64) -> f64;
}

impl CoordinateStep for DualTerms {
    fn row(&self, i: usize, beta: f64) -> RowState {
        let t = self.get(i);
        RowState { beta, p: t.p, lo: t.lo, hi: t.hi, ..RowState::default() }
    }

    #[inline(always)]
    fn step(&self, i: usize, row: &RowState, z: f64) -> f64 {
        let (eps, d) = self.shared(i);
        let numerator = soft_threshold(row.q * row.beta - z - row.p, eps);
        let curvature = row.q + d;
        if curvature > 0.0 {
            (numerator / curvature).max(row.lo).min(row.hi)
        } else if numerator > 0.0 {
            row.hi
        } else if numerator < 0.0 {
            row.lo
        } else {
            row.beta
        }
    }
}

/// Steps on a smooth convex loss without a dual term.
pub(super) struct SmoothSteps<'a> {
    pub(super) problem: &'a LinearProblem<'a>,
    /// Typical size of an error of the score.
    pub(super) unit: f64,
}

impl CoordinateStep for SmoothSteps<'_> {
    fn row(&self, _i: usize, beta: f64) -> RowState {
        RowState { beta, ..RowState::default() }
    }

    fn step(&self, i: usize, row: &RowState, z: f64) -> f64 {
        let (beta, q) = (row.beta, row.q);
        let (c, y, loss) = (self.problem.costs[i], self.problem.targets[i], self.problem.loss);
        if c == 0.0 {
            return 0.0;
        }
        if !(q > 0.0) {
            return -c * loss.slope(y, z);
        }
        let r = z - q * beta;
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let (mut score, mut new) = (z, beta);
        for _ in 0..MAX_EVALUATIONS {
            let (slope, curvature) = loss.slope_and_curvature(y, score, 1e-5);
            let own = -c * slope;
            let steepness = q * c * curvature.max(0.0);
            let f = score - r - q * own;
            // The root lies between β(ζ) and (ζ − r)/q, and Newton's estimate divides the interval.
            new = own + steepness / (1.0 + steepness) * ((score - r) / q - own);
            let step = -f / (1.0 + steepness);
            if !new.is_finite() {
                return beta;
            }
            if step.abs() <= SHORT_STEP * self.unit {
                break;
            }
            if f > 0.0 {
                high = score
            } else {
                low = score
            }
            score += step;
            if !(score > low && score < high) {
                score = 0.5 * (low + high);
            }
        }
        new
    }
}

/// The mean of w and b over the second half of an epoch.
struct Mean {
    w: Vec<f64>,
    b: f64,
    count: usize,
    /// Rows between two contributions.
    stride: usize,
}

impl Mean {
    fn add(&mut self, point: &PrimalPoint<'_>) {
        self.w.iter_mut().zip(point.w.iter()).for_each(|(mean, w)| *mean += w);
        self.b += *point.b;
        self.count += 1;
    }
}

/// Coordinate descent over all rows in every epoch, or over those whose last steps were not short.
struct PlainDescent {
    rows: Vec<RowState>,
    order: Vec<u32>,
    pace: BiasPace,
    epoch: u32,
    /// The epoch of the next visit of each row, if rows whose steps are short may wait; otherwise empty.
    due: Vec<u32>,
    /// q·δ² of a step below which a row waits.
    short: f64,
    /// Σ q·δ² of the last epoch.
    progress: f64,
}

impl PlainDescent {
    fn new<S: CoordinateStep>(steps: &S, points: &Points, beta: &[f64], pace: BiasPace) -> Self {
        let rows = row_states(points, pace.stiffness, |i| steps.row(i, beta[i]));
        let order = (0..rows.len() as u32).collect();
        Self { rows, order, pace, epoch: 0, due: Vec::new(), short: 0.0, progress: f64::INFINITY }
    }

    /// One epoch; returns Σ q·δ² over its steps, which falls like the gap.
    fn epoch<R: RowAccess, S: CoordinateStep>(
        &mut self,
        access: R,
        steps: &S,
        point: &mut PrimalPoint<'_>,
        rng: &mut RowShuffler,
        mean: Option<&mut Mean>,
        check: impl Fn() -> Result<(), Status>,
    ) -> Result<f64, Status> {
        rng.shuffle(&mut self.order);
        vectorised(Epoch { descent: self, access, steps, point, mean, check })
    }

    #[inline(always)]
    fn visit_rows<R: RowAccess, S: CoordinateStep>(
        &mut self,
        access: R,
        steps: &S,
        point: &mut PrimalPoint<'_>,
        mut mean: Option<&mut Mean>,
        check: impl Fn() -> Result<(), Status>,
    ) -> Result<f64, Status> {
        let count = self.order.len();
        let (mut progress, mut visited) = (0.0, 0usize);
        self.epoch += 1;
        for at in 0..count {
            if at % CHECK_INTERVAL == 0 {
                check()?;
            }
            if let Some(mean) = mean.as_deref_mut()
                && 2 * at >= count
                && at % mean.stride == 0
            {
                mean.add(point);
            }
            if at + 2 * PREFETCH_DISTANCE < count {
                let next = self.order[at + 2 * PREFETCH_DISTANCE] as usize;
                sparse::prefetch(&self.rows[next..=next]);
                access.prefetch(&self.rows[self.order[at + PREFETCH_DISTANCE] as usize]);
            }
            let i = self.order[at] as usize;
            if self.due.get(i).is_some_and(|due| *due > self.epoch) {
                continue;
            }
            visited += 1;
            let row = &mut self.rows[i];
            let z = access.dot(row, point.w) + *point.b;
            let new = steps.step(i, row, z);
            let delta = new - row.beta;
            if let Some(due) = self.due.get_mut(i) {
                let waits = row.q * delta * delta < self.short;
                row.wait_level = if waits { (row.wait_level + 1).min(MAX_WAIT_LEVEL) } else { 0 };
                *due = self.epoch + (1 << row.wait_level);
            }
            if delta != 0.0 {
                row.beta = new;
                access.add(row, delta, point.w);
                *point.b += self.pace.stiffness * delta;
                *point.sum += delta;
                progress += row.q * delta * delta;
            }
        }
        // Where epochs gain much, the step of a row that waits is soon no longer short beside those of the others.
        let slow = progress > SLOW_RATIO * self.progress;
        self.short = if slow { SHORT_PART * progress / visited.max(1) as f64 } else { 0.0 };
        self.progress = progress;
        Ok(progress)
    }
}

/// One epoch, compiled for the widest vectors.
struct Epoch<'e, 'p, R, S, F> {
    descent: &'e mut PlainDescent,
    access: R,
    steps: &'e S,
    point: &'e mut PrimalPoint<'p>,
    mean: Option<&'e mut Mean>,
    check: F,
}

impl<R: RowAccess, S: CoordinateStep, F: Fn() -> Result<(), Status>> Vectorised for Epoch<'_, '_, R, S, F> {
    type Output = Result<f64, Status>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        self.descent.visit_rows(self.access, self.steps, self.point, self.mean, self.check)
    }
}

impl LinearState<'_, '_> {
    /// One epoch from the current point. After an early end β and v are those of the point reached.
    fn plain_epoch<S: CoordinateStep>(
        &mut self,
        descent: &mut PlainDescent,
        steps: &S,
        points: &Points,
        rng: &mut RowShuffler,
        mean: Option<&mut Mean>,
    ) -> Result<f64, Status> {
        let ran = self.check().and_then(|()| {
            self.iterations += 1;
            let control = self.control;
            control.spend(2 * points.stored() + 60 * points.len());
            let check = || control.check().map_err(Status::from);
            let mut point = PrimalPoint { w: &mut self.w, b: &mut self.b, sum: &mut self.sum };
            with_rows!(points, rows => descent.epoch(rows, steps, &mut point, rng, mean, check))
        });
        if ran.is_err() {
            self.take_descent(descent);
        } else {
            self.b = descent.pace.next(self.b, self.sum);
        }
        ran
    }

    fn take_descent(&mut self, descent: &PlainDescent) {
        self.beta.iter_mut().zip(&descent.rows).for_each(|(b, row)| *b = row.beta);
        self.v.copy_from_slice(&self.w);
    }

    fn start_plain_descent<S: CoordinateStep>(&mut self, steps: &S, points: &Points, pace: BiasPace) -> PlainDescent {
        self.w.copy_from_slice(&self.v);
        self.b = pace.next(self.b, self.sum);
        PlainDescent::new(steps, points, &self.beta, pace)
    }

    /// Sets w and b to their mean over the second half of the last of a few epochs, and computes the scores.
    pub(super) fn averaged_start<S: CoordinateStep>(
        &mut self,
        steps: &S,
        points: &Points,
        seed: u64,
    ) -> Result<(), Status> {
        // A few epochs: the bias follows without delay.
        let norm = points.squared_norms().iter().sum::<f64>() / self.n().max(1) as f64;
        let mut descent = self.start_plain_descent(steps, points, BiasPace::immediate(self.rho, norm));
        let mut rng = RowShuffler(seed);
        let d = self.w.len();
        // A contribution costs d additions: a small part of the steps between two of them.
        let stride = (4 * d * self.n() / points.stored().max(1)).clamp(16, (self.n() / 64).max(16));
        let mut mean = Mean { w: vec![0.0; d], b: 0.0, count: 0, stride };
        for epoch in 1..=START_EPOCHS {
            let averaged = (epoch == START_EPOCHS).then_some(&mut mean);
            self.plain_epoch(&mut descent, steps, points, &mut rng, averaged)?;
        }
        self.take_descent(&descent);
        if mean.count > 0 {
            let scale = 1.0 / mean.count as f64;
            self.w = mean.w.iter().map(|w| scale * w).collect();
            self.b = scale * mean.b;
        }
        Ok(self.update_scores()?)
    }

    /// Coordinate descent on a smooth loss without a dual term from the current β, until the relative gap is
    /// `target_gap`. Sets w = Xᵀβ.
    pub(super) fn descend_smooth(
        &mut self,
        steps: &SmoothSteps<'_>,
        points: &Points,
        target_gap: f64,
        seed: u64,
        max_epochs: usize,
    ) -> Result<DescentEnd, Status> {
        let losses = UnsmoothedLoss::new(steps.problem);
        let mut descent = self.start_plain_descent(steps, points, BiasPace::new(self.rho, points));
        descent.due = vec![0; self.n()];
        let mut rng = RowShuffler(seed);
        let problem = steps.problem;
        let start: f64 = (0..self.n()).map(|i| problem.costs[i] * problem.loss.value(problem.targets[i], 0.0)).sum();
        // The progress of an epoch below which a measurement is worthwhile.
        let mut threshold = target_gap * start;
        let mut history: Vec<f64> = Vec::new();
        for epoch in 1.. {
            let progress = self.plain_epoch(&mut descent, steps, points, &mut rng, None)?;
            history.push(progress);
            let rate = match history.len() {
                count @ 5.. => (progress / history[count - 5]).powf(0.25).clamp(0.0, 0.999),
                _ => 0.5,
            };
            let remaining = (threshold / progress).ln() / rate.ln();
            let slow = epoch >= max_epochs || (epoch >= 8 && !(remaining <= MAX_REMAINING_EPOCHS));
            if progress > threshold && !slow {
                continue;
            }
            self.take_descent(&descent);
            self.make_feasible(&losses)?;
            let m: Measure = self.measure(&losses)?;
            self.report("coordinate", &m, self.n())?;
            if m.relative() <= target_gap {
                return Ok(DescentEnd::Reached(m));
            }
            if slow || progress == 0.0 {
                return Ok(DescentEnd::Slow(m));
            }
            descent.rows.iter_mut().zip(&self.beta).for_each(|(row, b)| row.beta = *b);
            descent.due.fill(0);
            threshold = 0.7 * progress * (target_gap * m.scale() / m.gap()).min(1.0);
        }
        Err(Status::IterationLimit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::rows::RowMatrix;
    use crate::loss::LossSpec;
    use crate::problem::Bias;

    /// A step must reach the minimum of the dual over its variable, up to the accuracy of a short Newton step, also
    /// where the loss is stiff (q·c ≫ 1) and from a β at the end of its domain.
    #[test]
    fn a_step_minimises_the_dual_over_its_variable() {
        let points = Points::dense_f64(1, 1, vec![1.0]).unwrap();
        let matrix = RowMatrix::new(&points);
        for name in ["logistic", "logcosh"] {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            for (c, q) in [(1.0, 1.0), (100.0, 1.0), (1e-2, 1e-3), (100.0, 1e4), (1.0, 1e6)] {
                for (rest, share) in [(0.0, 0.0), (3.0, 0.0), (-20.0, 0.0), (500.0, 0.9), (-500.0, 0.5), (0.3, 0.2)] {
                    let (targets, costs) = ([1.0], [c]);
                    let problem = LinearProblem::new(&matrix, &targets, &costs, &*loss, Bias::None).unwrap();
                    let steps = SmoothSteps { problem: &problem, unit: 1.0 };
                    let dual =
                        |beta: f64| c * loss.conjugate(1.0, -beta / c).unwrap() + 0.5 * q * beta * beta + rest * beta;
                    let beta = share * c;
                    let row = RowState { beta, q, ..RowState::default() };
                    let new = steps.step(0, &row, rest + q * beta);
                    // The minimum by ternary search over the domain.
                    let (lo, hi) = loss.domain(1.0);
                    let (mut low, mut high) = (-c * hi, -c * lo);
                    for _ in 0..300 {
                        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
                        if dual(a) < dual(b) { high = b } else { low = a }
                    }
                    let (best, before) = (dual(0.5 * (low + high)), dual(beta));
                    let what = format!("{name} c {c} q {q} rest {rest} β {beta}: {new}");
                    assert!(dual(new) - best <= 0.02 * (before - best) + 1e-9 * best.abs().max(1e-6), "{what}");
                }
            }
        }
    }
}
