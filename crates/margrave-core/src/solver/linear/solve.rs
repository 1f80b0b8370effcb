//! The outer loop: an approximate solution from a subsample, then the proximal point method on the dual until the
//! required gap is reached.
//!
//! Each proximal step smooths the kinks of the losses over a width in units of the score, and solves the smooth problem
//! by Newton (`newton.rs`). The multipliers then move to the new β and the width shrinks; the excess left by smoothing
//! falls with its square. This is the semismooth Newton augmented Lagrangian method (Li, Sun and Toh, SIAM J. Optim.
//! 28, 2018, for the lasso; here for the hinge and similar losses). The width is relative to the box of each sample,
//! and samples far from a kink are inactive except in checks.

use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

use super::averaged::{CoordinateStep, SmoothSteps};
use super::coordinate::DescentEnd;
use super::envelope::MoreauEnvelope;
use super::newton::{NewtonEnd, NewtonGoal};
use super::smooth_loss::{DualTerms, SmoothLoss, SmoothedDual, SplitLoss, UnsmoothedLoss};
use super::state::{LinearState, Measure};
use super::{LinearSolution, Method, Options};
use crate::control::{Control, Interrupt, Status};
use crate::data::{Csr, Points};
use crate::error::{Error, Result};
use crate::gram::{Matrix, Pick};
use crate::loss::{Hinge, Loss};
use crate::observe::{Begin, Observer, Silent, Step};
use crate::problem::LinearProblem;
use crate::solver::Stop;

/// Factor of the smoothing width from one proximal step to the next.
pub(super) const WIDTH_FACTOR: f64 = 0.3;
/// Fewest samples for which a subsample is solved first.
const MIN_SUBSAMPLED: usize = 8192;
/// Fewest samples for an averaged start: with fewer, Newton's first steps cost as little.
const MIN_AVERAGED: usize = 2000;
/// Samples per feature in an eighth of the data from which a subsample is the better start: its solution is then close
/// to that of all samples.
const ROWS_PER_FEATURE: usize = 200;
/// Largest relative gap of a slow descent whose end is a better start for Newton's method than 0: on badly scaled
/// features w = Xᵀβ can be far worse.
const MAX_START_GAP: f64 = 0.5;
/// Width of the smoothing that gives β at the scores of a start without β, in units of the score.
pub(super) const START_WIDTH: f64 = 0.1;
/// Most proximal steps on a loss that is not convex.
const MAX_ROUNDS: usize = 80;

/// Solves `problem`.
pub fn solve(
    problem: &LinearProblem<'_>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<LinearSolution> {
    options.check()?;
    if let Some((points, columns)) = problem.matrix.points().and_then(compact_columns) {
        return solve_compacted(problem, &points, &columns, options, control, observer);
    }
    solve_all(problem, options, control, observer)
}

fn solve_all(
    problem: &LinearProblem<'_>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<LinearSolution> {
    let begin = Begin { solver: "linear", n: problem.len(), tol: options.stop.tol, gap: options.stop.gap };
    let stop = observer.begin(&begin).is_break();
    let control = &control.for_run(super::pass(problem.matrix, 1));
    let mut run = LinearRun::new(problem, options, control, observer);
    let status = if stop { Status::Interrupted } else { run.run()? };
    Ok(run.finish(status))
}

/// Reads the given rows (ascending) of a matrix that is read in blocks.
fn gather_rows(x: &dyn Matrix, rows: &[u32], control: &Control) -> std::result::Result<Points, LinearHalt> {
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    let all: Vec<u32> = (0..x.blocks() as u32).collect();
    let mut next = 0;
    x.each_block(&all, control, &mut |first, points| {
        while let Some(i) = rows.get(next).map(|&i| i as usize).filter(|i| *i < first + points.len()) {
            points.visit(i - first, |j, v| {
                columns.push(j as u32);
                values.push(v);
            });
            starts.push(columns.len());
            next += 1;
        }
        Ok(())
    })?;
    Ok(Csr::new(x.dims(), starts, columns, values)?.into())
}

/// The points without their empty columns, and the indices of the remaining columns. Only if there are far more
/// features than the stored values can fill: w then becomes short enough to stay in cache.
fn compact_columns(points: &Points) -> Option<(Points, Vec<u32>)> {
    if points.dims() < 4096 || points.stored() >= 4 * points.dims() {
        return None;
    }
    points.without_empty_columns()
}

/// Solves the problem over the non-empty columns; the others have weight 0.
fn solve_compacted(
    problem: &LinearProblem<'_>,
    points: &Points,
    columns: &[u32],
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<LinearSolution> {
    let d = problem.matrix.dims();
    let matrix = control.backend().matrix(points);
    let small = LinearProblem::new(matrix.as_ref(), problem.targets, problem.costs, problem.loss, problem.bias)?;
    let mut options = options.clone();
    if let Some(start) = &mut options.start
        && start.weights.len() == d
    {
        start.weights = columns.iter().map(|&j| start.weights[j as usize]).collect();
    }
    let solved = solve_all(&small, &options, control, observer)?;
    let mut weights = vec![0.0; d];
    columns.iter().zip(&solved.weights).for_each(|(&j, w)| weights[j as usize] = *w);
    Ok(LinearSolution { weights, ..solved })
}

/// One run of the linear solver.
pub(super) struct LinearRun<'a, 'o> {
    pub(super) options: &'a Options,
    pub(super) state: LinearState<'a, 'o>,
    terms: Option<DualTerms>,
    /// Typical size of an error of the score: the unit of widths.
    pub(super) unit: f64,
    pub(super) reason: String,
    pub(super) last: Option<Measure>,
    pub(super) violation: f64,
    start_objective: Option<f64>,
    /// w and b of the start, for a loss that is not convex.
    start: Option<(Vec<f64>, f64)>,
}

impl<'a, 'o> LinearRun<'a, 'o> {
    fn new(
        problem: &'a LinearProblem<'a>,
        options: &'a Options,
        control: &'a Control,
        observer: &'o mut dyn Observer,
    ) -> Self {
        let state = LinearState {
            limit: options.iterations.unwrap_or(u64::MAX),
            memory: options.memory,
            direct: options.direct,
            sampled: options.sampled,
            ..LinearState::at_zero(problem, control, observer)
        };
        Self {
            options,
            state,
            terms: DualTerms::new(problem),
            unit: score_unit(problem),
            reason: String::new(),
            last: None,
            violation: f64::NAN,
            start_objective: None,
            start: None,
        }
    }

    /// P at the current w and b, with the original loss.
    fn objective(&self) -> std::result::Result<f64, Interrupt> {
        let (state, problem) = (&self.state, self.state.problem);
        let mut z = vec![0.0; problem.matrix.rows()];
        problem.matrix.dots(Pick::All, &state.w, &mut z, state.control)?;
        let penalty = problem.bias.penalty().unwrap_or(0.0);
        let loss: f64 = (0..z.len())
            .filter(|&i| problem.costs[i] > 0.0)
            .map(|i| problem.costs[i] * problem.loss.value(problem.targets[i], z[i] + state.b))
            .sum();
        Ok(0.5 * (state.w.iter().map(|w| w * w).sum::<f64>() + penalty * state.b * state.b) + loss)
    }

    /// For a loss that is not convex the run minimises smoothed losses. If its end is not better than the start,
    /// restore the start.
    fn keep_better_of_start_and_end(&mut self) {
        let Some((w, b)) = self.start.take() else { return };
        let better = self.objective().is_ok_and(|end| self.start_objective.is_none_or(|start| end <= start));
        if !better {
            (self.state.w, self.state.b) = (w, b);
            let problem = self.state.problem;
            let mut z = vec![0.0; problem.matrix.rows()];
            let unlimited = Control::unlimited(self.state.control.threads.clone());
            if problem.matrix.dots(Pick::All, &self.state.w, &mut z, &unlimited).is_ok() {
                for (i, z) in z.iter().enumerate() {
                    self.state.beta[i] = -problem.costs[i] * problem.loss.slope(problem.targets[i], z + b);
                }
            }
        }
    }

    fn finish(mut self, status: Status) -> LinearSolution {
        if let Some(terms) = self.terms.take() {
            self.balance_beta(&terms);
        }
        self.keep_better_of_start_and_end();
        let state = self.state;
        let last = Step { iteration: state.iterations, seconds: state.control.seconds(), ..Step::default() };
        state.observer.finish(status, &last);
        LinearSolution {
            weights: state.w,
            bias: state.b,
            beta: state.beta,
            status,
            iterations: state.iterations,
            violation: self.violation,
            relative_gap: self.last.map_or(f64::INFINITY, |m| m.relative()),
            start_objective: self.start_objective,
            reason: self.reason,
        }
    }

    fn run(&mut self) -> Result<Status> {
        let properties = self.state.problem.loss.properties();
        let has_stalled = match self.terms.take() {
            Some(terms) => {
                let has_stalled = self.solve_with_dual_terms(&terms);
                self.terms = Some(terms);
                has_stalled
            }
            None if properties.convex => self.solve_smooth(),
            None => self.solve_non_convex(),
        };
        match has_stalled {
            Ok(status) => Ok(status),
            Err(LinearHalt::Status(status)) => Ok(status),
            Err(LinearHalt::Error(error)) => Err(error),
        }
    }

    /// The relative gap to reach. Without a required gap it is a first guess, reduced until the violation is small
    /// enough.
    pub(super) fn target_gap(&self) -> f64 {
        self.options.stop.gap.unwrap_or(1e-4)
    }

    /// Sets the centre of the second moments to the column means of dense data, which avoids cancellation.
    pub(super) fn set_centre(&mut self) -> std::result::Result<(), Status> {
        let state = &mut self.state;
        let dense = state.x.stored() == state.x.rows().saturating_mul(state.x.dims());
        if state.rho.is_none() || !dense || state.n() == 0 || state.sampled.is_some() {
            return Ok(());
        }
        let weights = vec![1.0 / state.n() as f64; state.n()];
        let mut centre = vec![0.0; state.x.dims()];
        state.x.combine(Pick::All, &weights, &mut centre, state.control)?;
        state.centre = centre;
        Ok(())
    }

    /// Sets the state to the warm start; false if there is none.
    pub(super) fn apply_start(&mut self, terms: Option<&DualTerms>) -> std::result::Result<bool, Status> {
        let Some(start) = &self.options.start else { return Ok(false) };
        let state = &mut self.state;
        if start.beta.len() == state.n() {
            for i in 0..state.n() {
                let (lo, hi) = terms.map_or((f64::NEG_INFINITY, f64::INFINITY), |t| {
                    let t = t.get(i);
                    (t.lo, t.hi)
                });
                state.beta[i] = if start.beta[i].is_finite() { start.beta[i].clamp(lo, hi) } else { 0.0 };
            }
            state.recompute_v()?;
        }
        state.w = if start.weights.len() == state.w.len() { start.weights.clone() } else { state.v.clone() };
        state.b = if state.rho.is_some() && start.bias.is_finite() { start.bias } else { 0.0 };
        state.update_scores()?;
        if let (true, Some(terms)) = (start.beta.is_empty(), terms) {
            let losses = SmoothedDual::new(terms, START_WIDTH * self.unit, &vec![0.0; state.n()]);
            state.update_beta(&losses, Pick::All)?;
            state.balance_bias(&losses)?;
        }
        Ok(true)
    }

    /// Solves a subsample, with costs scaled up accordingly, and uses its w and b as the start. False if there are too
    /// few samples.
    pub(super) fn start_from_subsample(&mut self) -> std::result::Result<bool, LinearHalt> {
        let state = &mut self.state;
        let (n, problem) = (state.n(), state.problem);
        let mut size = (n / 8).max(20 * state.x.dims()).max(MIN_SUBSAMPLED / 2);
        let known = state.x.points();
        if known.is_none() {
            // As many as fit in a quarter of the memory; a small subsample is useless.
            let width = (state.x.stored() / n.max(1)).max(1) as u64;
            size = size.min(usize::try_from(self.options.memory / (4 * 12 * width)).unwrap_or(usize::MAX));
            if state.x.blocks() == 0 || size < 4 * state.x.dims() {
                return Ok(false);
            }
        }
        if n < MIN_SUBSAMPLED || 3 * size > n {
            return Ok(false);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.options.seed);
        let mut rows: Vec<u32> = index::sample(&mut rng, n, size).iter().map(|i| i as u32).collect();
        rows.sort_unstable();
        let total_cost: f64 = problem.costs.iter().sum();
        let subsample_cost: f64 = rows.iter().map(|&i| problem.costs[i as usize]).sum();
        if !(subsample_cost > 0.0) {
            return Ok(false);
        }
        let factor = total_cost / subsample_cost;
        let points = match known {
            Some(points) => points.gather(&rows),
            None => gather_rows(state.x, &rows, state.control)?,
        };
        let matrix = state.control.backend().matrix(&points);
        let targets: Vec<f64> = rows.iter().map(|&i| problem.targets[i as usize]).collect();
        let costs: Vec<f64> = rows.iter().map(|&i| factor * problem.costs[i as usize]).collect();
        let subsample = LinearProblem::new(matrix.as_ref(), &targets, &costs, problem.loss, problem.bias)?;
        let stop = Stop { tol: None, gap: Some(self.options.stop.gap.unwrap_or(0.0).max(1e-2)) };
        let options =
            Options { stop, start: None, iterations: Some(state.limit - state.iterations), ..self.options.clone() };
        let mut silent = Silent;
        let control = state.control.for_run(super::pass(subsample.matrix, 1));
        let mut run = LinearRun::new(&subsample, &options, &control, &mut silent);
        let status = run.run()?;
        state.iterations += run.state.iterations;
        state.w = run.state.w;
        state.b = run.state.b;
        match status {
            Status::Optimal | Status::Stalled => {
                state.update_scores()?;
                Ok(true)
            }
            early => Err(early.into()),
        }
    }

    /// Starts from the mean of w over an epoch of coordinate descent. False if a subsample is better, or rows are not in
    /// memory.
    pub(super) fn start_from_average<S: CoordinateStep>(&mut self, steps: &S) -> std::result::Result<bool, LinearHalt> {
        let (n, d) = (self.state.n(), self.state.x.dims());
        let Some(points) = self.state.x.points().filter(|_| n >= MIN_AVERAGED && n / 8 < ROWS_PER_FEATURE * d) else {
            return Ok(false);
        };
        self.state.averaged_start(steps, points, self.options.seed)?;
        Ok(true)
    }

    /// Dual coordinate descent for a smooth loss without a dual term; true if the stopping criteria hold.
    fn smooth_descent(&mut self) -> std::result::Result<bool, LinearHalt> {
        let Some(points) = self.state.x.points() else { return Ok(false) };
        let steps = SmoothSteps { problem: self.state.problem, unit: self.unit };
        let max_epochs = if self.options.method == Method::Coordinate { 5000 } else { 600 };
        let end = self.state.descend_smooth(&steps, points, self.target_gap(), self.options.seed, max_epochs)?;
        let (DescentEnd::Reached(m) | DescentEnd::Slow(m)) = end;
        self.last = Some(m);
        if matches!(end, DescentEnd::Reached(_)) {
            return Ok(self.tolerance_holds(None));
        }
        if !(m.relative() <= MAX_START_GAP) {
            self.state.reset()?;
            self.start_from_subsample()?;
        }
        Ok(false)
    }

    /// Whether coordinate descent comes first.
    pub(super) fn starts_with_coordinate_descent(&self) -> bool {
        let x = self.state.x;
        let preferred = match self.options.method {
            Method::Coordinate => true,
            Method::Newton => false,
            Method::Auto => x.dims() > 1500,
        };
        preferred && (x.points().is_some() || x.blocks() > 0)
    }

    /// Solves a problem with a convex loss without a dual term.
    fn solve_smooth(&mut self) -> std::result::Result<Status, LinearHalt> {
        self.set_centre()?;
        self.reason = "the loss is smooth: Newton's method on the primal".into();
        let problem = self.state.problem;
        let warm = self.apply_start(None)?;
        if !warm && !problem.loss.sharp() && self.starts_with_coordinate_descent() && self.state.x.points().is_some() {
            self.reason = "many features: dual coordinate descent, then Newton's method if it is slow".into();
            if self.smooth_descent()? {
                return Ok(Status::Optimal);
            }
        } else if !warm {
            let steps = SmoothSteps { problem, unit: self.unit };
            if problem.loss.sharp() || !self.start_from_average(&steps)? {
                self.start_from_subsample()?;
            }
        }
        if !problem.loss.sharp() {
            let losses = UnsmoothedLoss::new(problem);
            let target_gap = self.target_gap();
            let goal =
                NewtonGoal { of_excess: 0.0, of_objective: 0.5 * target_gap, active_distance: None, convex: true };
            let mut progress = GapProgress::default();
            // β is −c times the slope at the scores, so the violation is 0.
            self.violation = 0.0;
            loop {
                let (NewtonEnd::Reached(m) | NewtonEnd::Stuck(m)) = self.state.newton(&losses, goal)?;
                self.last = Some(m);
                if m.relative() <= target_gap {
                    return Ok(Status::Optimal);
                }
                if progress.has_stalled(m.relative(), 2) {
                    break;
                }
            }
        }
        self.reason = "the loss is steep: Newton's method on smoothed losses (proximal point method)".into();
        let width = 2.0 * self.unit * self.last.map_or(1.0, |m| m.relative()).min(1.0).sqrt();
        self.rounds(|width, beta| MoreauEnvelope::new(problem, width, beta), width, None)
    }

    /// Solves a problem with a non-convex loss of the margin, starting from the hinge solution.
    fn solve_non_convex(&mut self) -> std::result::Result<Status, LinearHalt> {
        self.set_centre()?;
        self.reason = "the loss is not convex: Newton's method from the hinge solution".into();
        let problem = self.state.problem;
        if !problem.loss.properties().classification {
            return Err(LinearHalt::Error(Error::Unsupported {
                solver: "linear",
                what: format!("the {} loss", problem.loss.name()),
                instead: "irwls".into(),
            }));
        }
        let hinge: &dyn Loss = &Hinge;
        if !self.apply_start(None)? {
            let convex = LinearProblem::new(problem.matrix, problem.targets, problem.costs, hinge, problem.bias)?;
            let options = Options { stop: Stop { tol: None, gap: Some(1e-4) }, start: None, ..self.options.clone() };
            let mut silent = Silent;
            let control = self.state.control.for_run(super::pass(convex.matrix, 1));
            let mut run = LinearRun::new(&convex, &options, &control, &mut silent);
            let status = run.run()?;
            self.state.iterations += run.state.iterations;
            (self.state.w, self.state.b) = (run.state.w, run.state.b);
            if !matches!(status, Status::Optimal | Status::Stalled) {
                return Err(status.into());
            }
            self.state.update_scores()?;
        }
        // L′(0⁺): the slope just inside the margin.
        let rise = -problem.loss.slope(1.0, 1.0 - 1e-9);
        let costs: Vec<f64> = problem.costs.iter().map(|c| rise * c).collect();
        let hinge_part = LinearProblem::new(problem.matrix, problem.targets, &costs, hinge, problem.bias)?;
        let Some(terms) = DualTerms::new(&hinge_part) else { return Ok(Status::Stalled) };
        let tol = self.options.stop.tol.unwrap_or(1e-3);
        let total: f64 = problem.costs.iter().sum();
        let mut centre = vec![0.0; self.state.n()];
        let mut width = 0.2;
        for round in 0..MAX_ROUNDS {
            let losses = SplitLoss::new(problem, SmoothedDual::new(&terms, width, &centre), rise);
            self.state.update_beta(&losses, Pick::All)?;
            if round == 0 {
                let objective = self.objective()?;
                self.start_objective = Some(objective);
                self.start = Some((self.state.w.clone(), self.state.b));
            }
            let goal = NewtonGoal { of_excess: 0.3, of_objective: 1e-9, active_distance: None, convex: false };
            let (m, stuck) = match self.state.newton(&losses, goal)? {
                NewtonEnd::Reached(m) => (m, false),
                NewtonEnd::Stuck(m) => (m, true),
            };
            self.last = Some(m);
            let largest = self.state.w.iter().fold(0.0f64, |m, w| m.max(w.abs()));
            let sum_error = if self.state.rho == Some(0.0) { self.state.sum.abs() / total } else { 0.0 };
            self.violation = ((2.0 * m.mismatch).sqrt() / largest.max(1.0)).max(sum_error).max(width);
            if self.violation <= tol && m.excess <= 1e-6 * m.scale() {
                return Ok(Status::Optimal);
            }
            if stuck && width < 1e-7 {
                return Ok(Status::Stalled);
            }
            let z = &self.state.z;
            let smoothed = SmoothedDual::new(&terms, width, &centre);
            centre = (0..z.len()).map(|i| smoothed.beta(i, z[i])).collect();
            width *= WIDTH_FACTOR;
        }
        Ok(Status::Stalled)
    }
}

/// The mean absolute deviation of the targets from their mean; 1 for labels.
pub(super) fn score_unit(problem: &LinearProblem<'_>) -> f64 {
    if problem.loss.properties().classification {
        return 1.0;
    }
    let total: f64 = problem.costs.iter().sum();
    if !(total > 0.0) {
        return 1.0;
    }
    let pairs = || problem.targets.iter().zip(problem.costs);
    let mean = pairs().map(|(y, c)| c * y).sum::<f64>() / total;
    let mean = if problem.bias.penalty() == Some(0.0) { mean } else { 0.0 };
    let unit = pairs().map(|(y, c)| c * (y - mean).abs()).sum::<f64>() / total;
    if unit > 0.0 && unit.is_finite() { unit } else { 1.0 }
}

/// Detects a gap that stops falling.
pub(super) struct GapProgress {
    best: f64,
    /// The last objective that was clearly lower than before, if objectives are considered.
    primal: f64,
    idle: usize,
}

impl Default for GapProgress {
    fn default() -> Self {
        Self { best: f64::INFINITY, primal: f64::INFINITY, idle: 0 }
    }
}

impl GapProgress {
    /// True after `max_idle` consecutive rounds that did not lower the gap by 10 %.
    pub(super) fn has_stalled(&mut self, gap: f64, max_idle: usize) -> bool {
        self.idle = if gap < 0.9 * self.best { 0 } else { self.idle + 1 };
        self.best = self.best.min(gap);
        self.idle >= max_idle
    }

    /// The same for methods whose dual point improves late: a decrease of the objective by 0.1 % is progress too.
    pub(super) fn has_stalled_with_objective(&mut self, gap: f64, primal: f64, max_idle: usize) -> bool {
        if primal < self.primal - 1e-3 * self.primal.abs() || self.primal.is_infinite() {
            self.primal = primal;
            self.idle = 0;
            self.best = self.best.min(gap);
            return false;
        }
        self.has_stalled(gap, max_idle)
    }
}

/// Why a run ended early.
pub(super) enum LinearHalt {
    Status(Status),
    Error(crate::Error),
}

impl From<Status> for LinearHalt {
    fn from(status: Status) -> Self {
        LinearHalt::Status(status)
    }
}

impl From<crate::control::Interrupt> for LinearHalt {
    fn from(why: crate::control::Interrupt) -> Self {
        LinearHalt::Status(why.into())
    }
}

impl From<crate::Error> for LinearHalt {
    fn from(error: crate::Error) -> Self {
        LinearHalt::Error(error)
    }
}
