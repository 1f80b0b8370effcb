//! The phases of IRWLS, when to stop, and what to return.
//!
//! 1. *majorise*: steps with the weights of papers 000 and 002, for a loss that is not convex until they gain little.
//! 2. *newton*, for smooth losses: steps with curvatures, each with a line search on the objective.
//! 3. *envelope*, for losses with corners: the envelope around μ is minimised by Newton steps, then μ becomes the β found
//!    there and K grows. The free samples are those whose β lies inside its box.
//!
//! The point kept is the one with the lowest objective; the answer is called optimal when the independent certificate says so.

use super::Options;
use super::progress::{Progress, relative_gap};
use super::reweight::{Model, Samples};
use super::search::{Segment, Value, first_crossing};
use super::sets::{At, Direction};
use super::system::Core;
use crate::certificate::{Certificate, estimate};
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::Precision;
use crate::linalg::factor::FactorError;
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Constraint, KernelProblem};
use crate::solver::{Solution, pass};
use crate::work_limit::ITERATION;

/// Majorising steps end when one lowers the objective by less than this share.
const GAIN: f64 = 1e-3;
/// The same for losses that are not convex. There these steps choose the valley: the score of every sample is pulled
/// towards its margin, so that the machine cannot steepen before it has moved, while Newton steps run into the next
/// minimum, of which there may be one between any two samples.
const GAIN_NOT_CONVEX: f64 = 1e-6;
/// K of those steps at most: a sample of the convex start that lies on its margin to rounding would otherwise be held
/// there for good.
const BLUNT: f64 = 1e4;
/// Samples up to which K is computed whole in any case.
const FEW: usize = 2000;
/// Multiply–adds of an entry up to which rounds compute entries again rather than keep all of them.
const CHEAP: f64 = 64.0;
/// A gap below this share of the objective at the start is nothing: where the best value is 0 no relative gap gets there.
const NOTHING: f64 = 1e-22;
/// β up to this share of the cost is rounding where the loss is flat.
const FLAT: f64 = 1e-9;
/// Iterations without progress before the arithmetic is blamed.
pub(super) const PATIENCE: usize = 8;

/// The end of [`solve`].
#[derive(Debug, Clone)]
pub struct Irwls {
    /// The point reached.
    pub solution: Solution,
    /// P there; +∞ if there was no time to compute it.
    pub objective: f64,
    /// P at the start; +∞ if there was no time to compute it.
    pub start_objective: f64,
    /// Factorisations from scratch.
    pub factorisations: u64,
    /// Its proof, where the run was not cut short.
    pub certificate: Option<Certificate>,
}

/// A machine and its scores.
#[derive(Clone)]
pub(super) struct State {
    pub(super) beta: Vec<f64>,
    pub(super) bias: f64,
    /// K·β.
    pub(super) f: Vec<f64>,
    /// Whether f was computed from β in double precision, or is a sum of changes.
    pub(super) fresh: bool,
}

/// Why the phases end.
pub(super) enum End {
    Done(Status),
    Failed(Error),
}

impl From<Interrupt> for End {
    fn from(why: Interrupt) -> Self {
        End::Done(why.into())
    }
}

impl From<FactorError> for End {
    fn from(error: FactorError) -> Self {
        match error {
            FactorError::Interrupted(why) => why.into(),
            FactorError::NotPositive(_) => End::Failed(Error::data(
                "the Gram matrix is far from positive semi-definite: IRWLS needs another kernel",
            )),
        }
    }
}

pub(super) struct Run<'r, 'p, 'a> {
    pub(super) samples: Samples<'p, 'a>,
    pub(super) options: &'r Options,
    pub(super) control: &'r Control,
    pub(super) observer: &'r mut dyn Observer,
    pub(super) core: Core<'p>,
    pub(super) sum: Option<f64>,
    /// Whether every loss is convex.
    pub(super) convex: bool,
    /// Whether every β lives in a box of its own, and rounds are wanted.
    pub(super) boxed: bool,
    pub(super) now: State,
    /// The point with the lowest objective.
    pub(super) best: State,
    /// Its objective.
    pub(super) lowest: f64,
    /// The objective at the start.
    first: f64,
    /// The lowest objective told: one from single-precision scores may be below what `lowest` turns out to be by their rounding.
    told: f64,
    pub(super) iterations: u64,
    pub(super) certificate: Option<Certificate>,
    /// Ask for a certificate when the residual is below this.
    pub(super) ask_at: f64,
    pub(super) violation: f64,
    /// The relative gap of the last certificate, for a convex loss.
    pub(super) gap: Option<f64>,
}

/// Solves `problem` for any loss. `linear`: the points, if K is the linear kernel over them.
pub fn solve(
    problem: &KernelProblem<'_>,
    linear: Option<&Points>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Irwls> {
    options.check()?;
    problem.check()?;
    let unsupported = |what: &str| Error::Unsupported {
        solver: "irwls",
        what: what.into(),
        instead: crate::conflict::OptionName::Solver.at("decomposition").to_string(),
    };
    let sum = match problem.constraint {
        Constraint::None => None,
        Constraint::Sum(s) => Some(s),
        Constraint::Groups { .. } => return Err(unsupported("several biases")),
    };
    if problem.row_of.is_some() {
        return Err(unsupported("several variables on one row"));
    }
    let n = problem.len();
    if let Some(start) = &options.start {
        crate::error::check_len("start values", n, start.len())?;
    }
    let convex = (0..n).all(|i| problem.loss(i).properties().convex);
    if !convex && options.stop.tol.is_none() {
        return Err(Error::option("gap", "given", "a loss that is not convex has no gap: give a tolerance instead"));
    }
    let begin = Begin { solver: "irwls", n, tol: options.stop.tol, gap: options.stop.gap };
    let broken = observer.begin(&begin).is_break();
    let beta = match &options.start {
        Some(start) => start.iter().map(|b| if b.is_finite() { *b } else { 0.0 }).collect(),
        None => vec![0.0; n],
    };
    let now =
        State { fresh: beta.iter().all(|b| *b == 0.0), beta, bias: options.start_bias.unwrap_or(0.0), f: vec![0.0; n] };
    // The papers' own steps are slow, and are taken to be watched.
    let as_published = options.majorise.is_some() || !options.reuse;
    let control = &if as_published { control.clone() } else { control.for_run(pass(problem)) };
    let mut run = Run {
        samples: Samples::new(problem),
        options,
        control,
        observer,
        core: Core::new(problem.gram, linear, options.memory, options.reuse),
        sum,
        convex,
        boxed: false,
        best: now.clone(),
        now,
        lowest: f64::INFINITY,
        first: 0.0,
        told: f64::INFINITY,
        iterations: 0,
        certificate: None,
        ask_at: 1e-2,
        violation: f64::INFINITY,
        gap: None,
    };
    let mut start_objective = f64::INFINITY;
    let ended = if broken { End::Done(Status::Interrupted) } else { run.phases(&mut start_objective) };
    let status = match ended {
        End::Done(status) => status,
        End::Failed(error) => return Err(error),
    };
    Ok(run.finish(status, start_objective))
}

impl Run<'_, '_, '_> {
    fn phases(&mut self, start_objective: &mut f64) -> End {
        let ended = self.all_phases(start_objective);
        match ended {
            Ok(status) => End::Done(status),
            Err(end) => end,
        }
    }

    fn all_phases(&mut self, start_objective: &mut f64) -> Result<Status, End> {
        let (problem, convex) = (self.samples.problem, self.convex);
        let warm = self.now.beta.iter().any(|b| *b != 0.0);
        if warm {
            self.refresh()?;
            if self.sum.is_some() && self.options.start_bias.is_none() {
                self.now.bias = self.best_bias(Model::Newton { cap: self.options.cap })?;
            }
        }
        *start_objective = self.objective(&self.now)?;
        self.record(*start_objective);
        let zero = State { beta: vec![0.0; problem.len()], bias: 0.0, f: vec![0.0; problem.len()], fresh: true };
        self.first = self.objective(&zero)?.abs().max(start_objective.abs());
        if warm && let Some(status) = self.certified()? {
            return Ok(status);
        }
        let sharp = (0..problem.len()).any(|i| problem.costs[i] > 0.0 && problem.loss(i).sharp());
        self.boxed = sharp
            && convex
            && self.options.reuse
            && self.options.majorise.is_none()
            && self.samples.all_terms().is_some();
        // Rounds look at the rows of few samples; everything else at all of K, again and again.
        if !self.boxed || problem.len() < FEW || problem.gram.effort() > CHEAP {
            self.core.prepare(self.control)?;
        }
        let steps = match self.options.majorise {
            Some(steps) => steps,
            None if !self.options.reuse => u64::MAX,
            None if !convex => 500,
            None => u64::from(!warm),
        };
        if convex && !warm && self.options.majorise.is_none() && self.options.reuse && self.level()? {
            // The next step begins from the scores of a part.
        } else if let Some(status) = self.majorise(steps)? {
            return Ok(status);
        }
        if sharp { self.envelopes(warm || !convex) } else { self.newton() }
    }

    /// Notes the objective of the present point, and the point if none was lower.
    pub(super) fn record(&mut self, value: f64) {
        if value <= self.lowest {
            self.lowest = value;
            self.best.clone_from(&self.now);
        }
    }

    pub(super) fn objective(&self, at: &State) -> Result<f64, Interrupt> {
        let samples = &self.samples;
        let loss = samples.sum(self.control, |i| samples.loss(i, at.f[i] + at.bias))?;
        let norm = samples.sum(self.control, |i| at.beta[i] * at.f[i])?;
        Ok(0.5 * norm + loss + self.sum.unwrap_or(0.0) * at.bias)
    }

    /// f = K·β anew, in double precision.
    fn refresh(&mut self) -> Result<(), Interrupt> {
        self.now.f = self.core.product(Precision::Double, &self.now.beta, 1, self.control)?;
        self.now.fresh = true;
        Ok(())
    }

    /// K whole, if it fits and is not there yet; the scores and objectives at hand become those it gives.
    pub(super) fn whole(&mut self) -> Result<(), Interrupt> {
        if self.core.working() == Precision::Double {
            return Ok(());
        }
        self.core.prepare(self.control)?;
        if self.core.working() == Precision::Double && self.lowest.is_finite() {
            let here = self.now.clone();
            self.now = self.best.clone();
            self.refresh()?;
            self.lowest = self.objective(&self.now)?;
            self.best = std::mem::replace(&mut self.now, here);
            self.refresh()?;
            self.record(self.objective(&self.now)?);
        }
        Ok(())
    }

    /// The b with ΣM′(f + b) + s = 0, for a convex loss: bisection.
    pub(super) fn best_bias(&self, model: Model<'_>) -> Result<f64, Interrupt> {
        let s = self.sum.unwrap_or(0.0);
        let (samples, f) = (&self.samples, &self.now.f);
        let slope = |b: f64| Ok(s + samples.sum(self.control, |i| samples.value_slope(i, f[i] + b, model).1)?);
        let start = self.now.bias;
        let first: f64 = slope(start)?;
        if first == 0.0 {
            return Ok(start);
        }
        let way = -first.signum();
        let (mut near, mut step) = (start, 1.0);
        let mut far = start + way;
        while slope(far)? * way < 0.0 {
            if step > 1e12 {
                return Ok(start);
            }
            near = far;
            step *= 4.0;
            far = start + way * step;
        }
        for _ in 0..60 {
            let mid = 0.5 * (near + far);
            if slope(mid)? * way >= 0.0 { far = mid } else { near = mid }
        }
        Ok(0.5 * (near + far))
    }

    /// Tells the observer; says so if the iterations are used up or it wants to stop.
    pub(super) fn report(&mut self, phase: &'static str, free: usize, eta: f64) -> Result<(), End> {
        self.told = self.told.min(self.lowest);
        self.control.note(Some(self.violation), self.gap);
        let step = Step {
            iteration: self.iterations,
            seconds: self.control.seconds(),
            phase,
            violation: self.violation.is_finite().then_some(self.violation),
            primal: Some(self.told),
            active: Some(free),
            step_length: Some(eta),
            kernel_entries: Some(self.samples.problem.gram.entries()),
            ..Step::default()
        };
        if self.observer.step(&step).is_break() {
            return Err(End::Done(Status::Interrupted));
        }
        self.control.check()?;
        Ok(())
    }

    /// Counts an iteration that is about to begin.
    pub(super) fn count(&mut self) -> Result<(), End> {
        if self.options.iterations.is_some_and(|most| self.iterations >= most) {
            return Err(End::Done(Status::IterationLimit));
        }
        self.iterations += 1;
        self.control.spend(ITERATION);
        Ok(())
    }

    fn direction(&mut self, model: Model<'_>, accuracy: f64) -> Result<(Direction, Vec<f64>, f64), End> {
        let weights = self.samples.weights(&self.now.f, self.now.bias, model, self.control)?;
        let residual = self.residual(&weights.gamma);
        let at = At { beta: &self.now.beta, sum: self.sum };
        let d = self.core.direction(&at, &weights, accuracy, self.control)?;
        Ok((d, weights.weight, residual))
    }

    /// max |γ − β|/c, and the error of the sum.
    fn residual(&self, gamma: &[f64]) -> f64 {
        let costs = self.samples.problem.costs;
        let each = (0..gamma.len()).filter(|&i| costs[i] > 0.0).map(|i| (gamma[i] - self.now.beta[i]).abs() / costs[i]);
        let worst = each.fold(0.0, f64::max);
        match self.sum {
            Some(s) => {
                let total: f64 = costs.iter().sum();
                worst.max((self.now.beta.iter().sum::<f64>() - s).abs() / total.max(f64::MIN_POSITIVE))
            }
            None => worst,
        }
    }

    pub(super) fn norms(&self, d: &Direction) -> Result<[f64; 3], Interrupt> {
        let sum = |a: &[f64], b: &[f64]| self.samples.sum(self.control, |i| a[i] * b[i]);
        Ok([sum(&self.now.beta, &self.now.f)?, sum(&d.beta, &self.now.f)?, sum(&d.beta, &d.f)?])
    }

    /// The objective of `model` along `d` from the present point.
    pub(super) fn segment<'s>(&'s self, model: Model<'s>, d: &'s Direction) -> Result<Segment<'s, 's, 's>, Interrupt> {
        Ok(Segment {
            samples: &self.samples,
            model,
            f: &self.now.f,
            bias: self.now.bias,
            direction: d,
            norm: self.norms(d)?,
            sum: self.sum.unwrap_or(0.0),
            control: self.control,
        })
    }

    pub(super) fn go(&mut self, d: &Direction, eta: f64) {
        let add = |to: &mut [f64], by: &[f64]| to.iter_mut().zip(by).for_each(|(t, b)| *t += eta * b);
        add(&mut self.now.beta, &d.beta);
        add(&mut self.now.f, &d.f);
        self.now.bias += eta * d.bias;
        self.now.fresh = false;
    }

    /// `Some`: the independent certificate says the present point is what was asked for.
    pub(super) fn certified(&mut self) -> Result<Option<Status>, Interrupt> {
        let holds = self.measured()?;
        // An answer has its β in their boxes; what rounding or a last step left outside is put right, and proven again.
        let holds = if holds && self.clip()? { self.measured()? } else { holds };
        Ok(holds.then_some(Status::Optimal))
    }

    /// Whether the present point is what was asked for.
    fn measured(&mut self) -> Result<bool, Interrupt> {
        if !self.now.fresh {
            self.refresh()?;
        }
        if self.convex && self.sum.is_some() {
            // The machine is saved with the best bias for its scores.
            let (given, value) = (self.now.bias, self.objective(&self.now)?);
            self.now.bias = self.best_bias(Model::Newton { cap: self.options.cap })?;
            let better = self.objective(&self.now)?;
            if better <= value + 1e-12 * value.abs() {
                self.record(better);
            } else {
                self.now.bias = given;
            }
        }
        let bias: Vec<f64> = self.sum.iter().map(|_| self.now.bias).collect();
        let problem = self.samples.problem;
        let certificate = estimate(problem, &self.now.beta, &bias, &self.now.f, self.control)?;
        let stop = self.options.stop;
        self.violation = certificate.violation();
        let tol_holds = stop.tol.is_none_or(|tol| certificate.violation() <= tol);
        self.gap = relative_gap(&certificate);
        let gap_holds = match (stop.gap, self.gap) {
            (Some(wanted), Some(gap)) => {
                gap <= wanted || certificate.gap().is_some_and(|gap| gap <= NOTHING * self.first)
            }
            _ => true,
        };
        self.certificate = Some(certificate);
        Ok(tol_holds && gap_holds)
    }

    /// Clips β to its box; false if all of it is there, or if that would raise the objective of a loss that is not convex: without a
    /// dual the box is no part of the answer.
    fn clip(&mut self) -> Result<bool, Interrupt> {
        let before = self.now.clone();
        for i in 0..self.now.beta.len() {
            let (lo, hi) = self.samples.bounds(i);
            let beta = self.now.beta[i];
            self.now.beta[i] = if beta.is_finite() { beta } else { 0.0 }.clamp(lo, hi);
            // Where the loss is flat β is 0, and what is left of it rounding.
            let (p, z) = (self.samples.problem, self.now.f[i] + self.now.bias);
            if self.now.beta[i].abs() <= FLAT * p.costs[i] && p.loss(i).slope(p.targets[i], z) == 0.0 {
                self.now.beta[i] = 0.0;
            }
        }
        if self.now.beta == before.beta {
            return Ok(false);
        }
        if self.convex {
            self.now.fresh = false;
            return Ok(true);
        }
        self.refresh()?;
        let value = self.objective(&self.now)?;
        if value > self.lowest {
            self.now = before;
            return Ok(false);
        }
        self.record(value);
        Ok(true)
    }

    /// Steps with the weights of paper 000; `Some`: that was enough.
    fn majorise(&mut self, most: u64) -> Result<Option<Status>, End> {
        let cap = if self.convex { self.options.cap } else { self.options.cap.min(BLUNT) };
        let enough = if self.convex { GAIN } else { GAIN_NOT_CONVEX };
        let model = Model::Majorise { cap };
        let majorised = {
            let p = self.samples.problem;
            (0..p.len()).all(|i| p.loss(i).properties().majorised)
        };
        let mut idle = 0;
        for step in 0..most {
            self.count()?;
            let (d, weight, residual) = self.direction(model, 1e-3)?;
            let segment = self.segment(model, &d)?;
            let start = segment.at(0.0)?;
            let mut taken: Option<Value> = None;
            if majorised {
                let crossing = first_crossing(&self.samples, &self.now.f, self.now.bias, &d, &weight);
                let (full, first) = (segment.at(1.0)?, segment.at(crossing)?);
                let better = if full.value <= first.value { full } else { first };
                taken = (better.value < start.value).then_some(better);
            }
            if taken.is_none() {
                taken = segment.search(start)?;
            }
            let Some(taken) = taken else {
                self.report("majorise", d.free, 0.0)?;
                return Ok(None);
            };
            debug_assert!(taken.value <= start.value, "the objective rose from {} to {}", start.value, taken.value);
            self.go(&d, taken.eta);
            self.record(taken.value);
            self.violation = residual;
            self.report("majorise", d.free, taken.eta)?;
            let gain = (start.value - taken.value) / taken.value.abs().max(f64::MIN_POSITIVE);
            // Without curvatures to take over, these steps must reach the goal themselves.
            let alone = self.options.majorise == Some(u64::MAX) || !self.options.reuse;
            idle = if gain < 1e-9 { idle + 1 } else { 0 };
            if alone && (residual < self.ask_at || gain < 1e-5 || step % 10 == 9) {
                if let Some(status) = self.certified()? {
                    return Ok(Some(status));
                }
                self.ask_at = 0.5 * residual;
            }
            if alone && idle >= PATIENCE {
                return Ok(Some(Status::Stalled));
            }
            if !alone && gain < enough {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Newton steps on the objective itself.
    fn newton(&mut self) -> Result<Status, End> {
        let model = Model::Newton { cap: self.options.cap };
        let (mut least, mut idle) = (f64::INFINITY, 0);
        let mut progress = Progress::new();
        // Systems are solved as exactly as the residual deserves; a direction that leads nowhere deserved better.
        let mut roughest: f64 = 1e-3;
        let mut accuracy = roughest;
        loop {
            self.count()?;
            let (d, _, residual) = self.direction(model, accuracy)?;
            self.violation = residual;
            let segment = self.segment(model, &d)?;
            let start = segment.at(0.0)?;
            let taken = segment.search(start)?;
            let eta = match taken {
                Some(to) => {
                    debug_assert!(to.value <= start.value, "the objective rose from {} to {}", start.value, to.value);
                    self.go(&d, to.eta);
                    self.record(to.value);
                    to.eta
                }
                // At the floor of rounding the step may still put β right.
                None if idle < PATIENCE / 2 => {
                    let full = segment.at(1.0)?;
                    let slack = 1e-11 * start.value.abs();
                    if full.value <= start.value + slack {
                        self.go(&d, 1.0);
                        1.0
                    } else {
                        0.0
                    }
                }
                None => 0.0,
            };
            if eta < 0.1 {
                roughest = (0.03 * roughest).max(1e-7);
            }
            accuracy = (0.1 * residual).clamp(1e-7, roughest);
            if d.free == 0 && self.sum.is_some() {
                // Nothing in the system says where the bias should be.
                self.now.bias = self.best_bias(model)?;
                self.record(self.objective(&self.now)?);
            }
            self.report("newton", d.free, eta)?;
            if residual < self.ask_at || eta == 0.0 || d.free == 0 {
                if let Some(status) = self.certified()? {
                    return Ok(status);
                }
                self.ask_at = 0.5 * residual;
            }
            idle = if residual < 0.9 * least { 0 } else { idle + 1 };
            least = least.min(residual);
            if idle >= PATIENCE {
                if let Some(status) = self.certified()? {
                    return Ok(status);
                }
                if !progress.goes_on(self.gap, self.lowest) && !self.leave_primal(d.free) {
                    return Ok(Status::Stalled);
                }
                idle = 0;
            }
        }
    }

    /// Gives up the primal side for a factor of K, whose rounding is another; false if that was not the way, or is not possible.
    fn leave_primal(&mut self, free: usize) -> bool {
        if !self.core.is_primal(free) || !self.core.factors(free) || free > FEW {
            return false;
        }
        self.core.linear = None;
        true
    }

    fn finish(mut self, mut status: Status, start_objective: f64) -> Irwls {
        // A stationary point of a loss that is not convex may lie above where it was sought from: what was lower is kept.
        let above = start_objective + 1e-9 * start_objective.abs();
        if status == Status::Optimal && !self.convex && self.objective(&self.now).is_ok_and(|value| value > above) {
            status = Status::Stalled;
        }
        if status != Status::Optimal && self.lowest.is_finite() {
            self.now = self.best.clone();
            self.certificate = None;
        }
        if !self.now.bias.is_finite() || self.now.beta.iter().any(|b| !b.is_finite()) {
            // No point of the run was finite: the machine that is zero everywhere is.
            self.now.beta.fill(0.0);
            self.now.f.fill(0.0);
            (self.now.bias, self.now.fresh) = (0.0, true);
            self.certificate = None;
        }
        let last = Step {
            iteration: self.iterations,
            seconds: self.control.seconds(),
            phase: "done",
            violation: self.violation.is_finite().then_some(self.violation),
            primal: self.lowest.is_finite().then_some(self.lowest),
            kernel_entries: Some(self.samples.problem.gram.entries()),
            ..Step::default()
        };
        self.observer.finish(status, &last);
        let State { beta, bias, f, fresh } = self.now;
        Irwls {
            solution: Solution {
                beta,
                bias: self.sum.iter().map(|_| bias).collect(),
                scores: fresh.then_some(f),
                status,
                iterations: self.iterations,
                violation: self.violation,
            },
            objective: self.lowest,
            start_objective,
            factorisations: self.core.factorisations,
            certificate: self.certificate,
        }
    }
}
