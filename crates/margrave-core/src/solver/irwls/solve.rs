//! The entry point of IRWLS, the state of a run, and its result: the point with the lowest objective.

use super::Options;
use super::direction::IrwlsDirection;
use super::reweight::{LossModel, SampleLosses};
use super::search::LineObjective;
use super::system::SystemSolver;
use crate::certificate::Certificate;
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::Precision;
use crate::linalg::factor::FactorError;
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Constraint, KernelProblem};
use crate::solver::{Solution, pass};
use crate::work_limit::ITERATION;

/// Iterations without progress after which rounding is assumed to prevent it.
pub(super) const MAX_IDLE: usize = 8;

/// The result of [`solve`].
#[derive(Debug, Clone)]
pub struct Irwls {
    /// The point reached.
    pub solution: Solution,
    /// P at that point; +∞ if there was no time to compute it.
    pub objective: f64,
    /// P at the start; +∞ if there was no time to compute it.
    pub start_objective: f64,
    /// Factorisations from scratch.
    pub factorisations: u64,
    /// The certificate of that point, if the run was not cut short.
    pub certificate: Option<Certificate>,
}

/// Coefficients, bias and scores.
#[derive(Clone)]
pub(super) struct IrwlsPoint {
    pub(super) beta: Vec<f64>,
    pub(super) bias: f64,
    /// K·β.
    pub(super) f: Vec<f64>,
    /// Whether f was computed from β in double precision; otherwise it has accumulated updates.
    pub(super) fresh: bool,
}

/// Why the phases ended.
pub(super) enum PhaseEnd {
    Done(Status),
    Failed(Error),
}

impl From<Interrupt> for PhaseEnd {
    fn from(why: Interrupt) -> Self {
        PhaseEnd::Done(why.into())
    }
}

impl From<FactorError> for PhaseEnd {
    fn from(error: FactorError) -> Self {
        match error {
            FactorError::Interrupted(why) => why.into(),
            FactorError::NotPositive(_) => PhaseEnd::Failed(Error::data(
                "the Gram matrix is far from positive semi-definite: IRWLS needs another kernel",
            )),
        }
    }
}

/// The state of a run.
pub(super) struct IrwlsRun<'r, 'p, 'a> {
    pub(super) samples: SampleLosses<'p, 'a>,
    pub(super) options: &'r Options,
    pub(super) control: &'r Control,
    pub(super) observer: &'r mut dyn Observer,
    pub(super) systems: SystemSolver<'p>,
    pub(super) sum: Option<f64>,
    /// Whether every loss is convex.
    pub(super) convex: bool,
    /// Whether every β has a box, so that rounds on the dual variables apply.
    pub(super) use_rounds: bool,
    pub(super) now: IrwlsPoint,
    /// The point with the lowest objective.
    pub(super) best: IrwlsPoint,
    /// Its objective.
    pub(super) lowest: f64,
    /// The larger absolute objective of the start and of the zero model.
    pub(super) initial_objective: f64,
    /// The lowest objective reported. One from single-precision scores may be lower than the final `lowest` by
    /// rounding.
    lowest_reported: f64,
    pub(super) iterations: u64,
    pub(super) certificate: Option<Certificate>,
    /// Compute a certificate when the residual is below this value.
    pub(super) certify_below: f64,
    pub(super) violation: f64,
    /// The relative gap of the last certificate, for a convex loss.
    pub(super) gap: Option<f64>,
}

/// Solves `problem` for any loss. `linear`: the points, if K is their linear kernel.
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
    let cancelled = observer.begin(&begin).is_break();
    let beta = match &options.start {
        Some(start) => start.iter().map(|b| if b.is_finite() { *b } else { 0.0 }).collect(),
        None => vec![0.0; n],
    };
    let now = IrwlsPoint {
        fresh: beta.iter().all(|b| *b == 0.0),
        beta,
        bias: options.start_bias.unwrap_or(0.0),
        f: vec![0.0; n],
    };
    // The steps of the papers are slow and are only used to reproduce the papers, so the work limit does not apply.
    let as_published = options.majorise.is_some() || !options.reuse;
    let control =
        &if as_published { control.clone() } else { control.for_run_with_factors(pass(problem), problem.len() as f64) };
    let mut run = IrwlsRun {
        samples: SampleLosses::new(problem),
        options,
        control,
        observer,
        systems: SystemSolver::new(problem.gram, linear, options.memory, options.reuse),
        sum,
        convex,
        use_rounds: false,
        best: now.clone(),
        now,
        lowest: f64::INFINITY,
        initial_objective: 0.0,
        lowest_reported: f64::INFINITY,
        iterations: 0,
        certificate: None,
        certify_below: 1e-2,
        violation: f64::INFINITY,
        gap: None,
    };
    let mut start_objective = f64::INFINITY;
    let ended = if cancelled { Ok(Status::Interrupted) } else { run.phases(&mut start_objective) };
    let status = match ended {
        Ok(status) | Err(PhaseEnd::Done(status)) => status,
        Err(PhaseEnd::Failed(error)) => return Err(error),
    };
    Ok(run.finish(status, start_objective))
}

impl IrwlsRun<'_, '_, '_> {
    /// Records the current point and its objective, unless another point was lower.
    pub(super) fn record_if_lowest(&mut self, value: f64) {
        if value <= self.lowest {
            self.lowest = value;
            self.best.clone_from(&self.now);
            if !self.convex {
                self.control.note_objective(value);
            }
        }
    }

    pub(super) fn objective(&self, at: &IrwlsPoint) -> Result<f64, Interrupt> {
        let samples = &self.samples;
        let loss = samples.sum(self.control, |i| samples.loss(i, at.f[i] + at.bias))?;
        let norm = samples.sum(self.control, |i| at.beta[i] * at.f[i])?;
        Ok(0.5 * norm + loss + self.sum.unwrap_or(0.0) * at.bias)
    }

    /// Recomputes f = K·β in double precision.
    pub(super) fn refresh(&mut self) -> Result<(), Interrupt> {
        self.now.f = self.systems.product(Precision::Double, &self.now.beta, 1, self.control)?;
        self.now.fresh = true;
        Ok(())
    }

    /// Stores K if it fits and is not stored yet, and recomputes scores and objectives with it.
    pub(super) fn ensure_stored_kernel(&mut self) -> Result<(), Interrupt> {
        if self.systems.working_precision() == Precision::Double {
            return Ok(());
        }
        self.systems.store_kernel(self.control)?;
        if self.systems.working_precision() == Precision::Double && self.lowest.is_finite() {
            let current = self.now.clone();
            self.now = self.best.clone();
            self.refresh()?;
            self.lowest = self.objective(&self.now)?;
            self.best = std::mem::replace(&mut self.now, current);
            self.refresh()?;
            self.record_if_lowest(self.objective(&self.now)?);
        }
        Ok(())
    }

    /// Reports to the observer; `Err` if it stops the run or the budget is exhausted.
    pub(super) fn report(&mut self, phase: &'static str, free: usize, eta: f64) -> Result<(), PhaseEnd> {
        self.lowest_reported = self.lowest_reported.min(self.lowest);
        self.control.note(Some(self.violation), self.gap);
        let step = Step {
            iteration: self.iterations,
            seconds: self.control.seconds(),
            phase,
            violation: self.violation.is_finite().then_some(self.violation),
            primal: Some(self.lowest_reported),
            active: Some(free),
            step_length: Some(eta),
            kernel_entries: Some(self.samples.problem.gram.entries()),
            ..Step::default()
        };
        if self.observer.step(&step).is_break() {
            return Err(PhaseEnd::Done(Status::Interrupted));
        }
        self.control.check()?;
        Ok(())
    }

    /// Counts a new iteration; `Err` if the limit is reached.
    pub(super) fn count_iteration(&mut self) -> Result<(), PhaseEnd> {
        if self.options.iterations.is_some_and(|limit| self.iterations >= limit) {
            return Err(PhaseEnd::Done(Status::IterationLimit));
        }
        self.iterations += 1;
        self.control.spend(ITERATION);
        Ok(())
    }

    /// βᵀKβ, ΔβᵀKβ and ΔβᵀKΔβ.
    pub(super) fn quadratic_terms(&self, d: &IrwlsDirection) -> Result<[f64; 3], Interrupt> {
        let sum = |a: &[f64], b: &[f64]| self.samples.sum(self.control, |i| a[i] * b[i]);
        Ok([sum(&self.now.beta, &self.now.f)?, sum(&d.beta, &self.now.f)?, sum(&d.beta, &d.f)?])
    }

    /// The objective of `model` along `d` from the current point.
    pub(super) fn line<'s>(
        &'s self,
        model: LossModel<'s>,
        d: &'s IrwlsDirection,
    ) -> Result<LineObjective<'s, 's, 's>, Interrupt> {
        Ok(LineObjective {
            samples: &self.samples,
            model,
            f: &self.now.f,
            bias: self.now.bias,
            direction: d,
            norm: self.quadratic_terms(d)?,
            sum: self.sum.unwrap_or(0.0),
            control: self.control,
        })
    }

    /// Moves by `eta` times the direction.
    pub(super) fn advance(&mut self, d: &IrwlsDirection, eta: f64) {
        let add = |to: &mut [f64], change: &[f64]| to.iter_mut().zip(change).for_each(|(t, c)| *t += eta * c);
        add(&mut self.now.beta, &d.beta);
        add(&mut self.now.f, &d.f);
        self.now.bias += eta * d.bias;
        self.now.fresh = false;
    }

    fn finish(mut self, mut status: Status, start_objective: f64) -> Irwls {
        // A stationary point of a loss that is not convex may lie above the start of the search: keep the lowest point.
        let limit = start_objective + 1e-9 * start_objective.abs();
        if status == Status::Optimal && !self.convex && self.objective(&self.now).is_ok_and(|value| value > limit) {
            status = Status::Stalled;
        }
        if status != Status::Optimal && self.lowest.is_finite() {
            self.now = self.best.clone();
            self.certificate = None;
        }
        if !self.now.bias.is_finite() || self.now.beta.iter().any(|b| !b.is_finite()) {
            // No point of the run was finite: return the zero model.
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
        let IrwlsPoint { beta, bias, f, fresh } = self.now;
        Irwls {
            solution: Solution {
                beta,
                bias: self.sum.iter().map(|_| bias).collect(),
                exact: None,
                scores: fresh.then_some(f),
                status,
                iterations: self.iterations,
                violation: self.violation,
            },
            objective: self.lowest,
            start_objective,
            factorisations: self.systems.factorisations,
            certificate: self.certificate,
        }
    }
}
