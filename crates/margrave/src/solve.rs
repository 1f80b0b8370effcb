//! From a problem to a solution with its proof: which solver, its options, the certificate.

use margrave_core::compose::calibrate::{LeftOut, leave_one_out};
use margrave_core::data::Points;
use margrave_core::gram::Gram;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::observe::Observer;
use margrave_core::problem::{KernelProblem, Setup};
use margrave_core::solver::choose::{self, Choice, Chosen};
use margrave_core::solver::ridge::RidgeOptions;
use margrave_core::solver::textbook::{smo, svmtorch};
use margrave_core::solver::{Solution, Stop, decomposition, irwls, ridge};
use margrave_core::train::{Asked, Met, Proven, prove};
use margrave_core::{Control, Error, Result, Status};

use crate::svm::{LossChoice, Probability, SolverName, Svm};

/// What was dropped to make a model compact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compacted {
    /// Training rows dropped.
    pub dropped: usize,
    /// No score f(x) has changed by more than this times √k(x, x).
    pub norm: f64,
    /// The largest change of a score on the training rows.
    pub change: f64,
}

/// A solved problem with its proof.
pub(crate) struct Solved {
    pub(crate) proven: Proven,
    /// Leave-one-out scores, if probabilities were asked for and there is a closed form.
    pub(crate) left_out: Option<LeftOut>,
    /// The solver's name.
    pub(crate) solver: &'static str,
    /// Why that one.
    pub(crate) reason: String,
    pub(crate) compact: Option<Compacted>,
}

/// A solver of the library, or one of the textbook's.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    Library(Choice),
    Smo,
    SvmTorch,
}

/// Which solver, its name, and why.
fn pick(svm: &Svm, problem: &KernelProblem<'_>, linear: Option<&Points>) -> Result<(Which, &'static str, String)> {
    let convex = (0..problem.len()).all(|i| problem.loss(i).properties().convex);
    let asked = |which: Which, name: &'static str| Ok((which, name, "asked for".to_owned()));
    match svm.solver {
        SolverName::Auto => {
            let Chosen { choice, reason } = choose::choose(problem, linear, svm.budget.memory);
            Ok((Which::Library(choice), choice.name(), reason))
        }
        SolverName::Decomposition => match (0..problem.len()).find(|&i| problem.dual_term(i).is_none()) {
            None => asked(Which::Library(Choice::Decomposition), "decomposition"),
            Some(i) => Err(Error::Unsupported {
                solver: "decomposition",
                what: format!("the {} loss", problem.loss(i).name()),
                instead: "--solver irwls, which takes any loss".into(),
            }),
        },
        SolverName::Irwls if convex => asked(Which::Library(Choice::Irwls), "irwls"),
        SolverName::Irwls => asked(Which::Library(Choice::TwoStep), "irwls"),
        SolverName::Ridge => asked(Which::Library(Choice::Ridge), "ridge"),
        SolverName::Linear => Err(Error::Unsupported {
            solver: "linear",
            what: "this machine: it is for the linear kernel with a cost C".into(),
            instead: "decomposition".into(),
        }),
        SolverName::Smo => asked(Which::Smo, "smo"),
        SolverName::SvmTorch => asked(Which::SvmTorch, "svmtorch"),
    }
}

/// β and the biases to start from.
pub(crate) type Start = (Vec<f64>, Vec<f64>);

/// A solution, and for a loss that is not convex the objective of its convex start. What else is worth knowing is added to
/// `reason`.
fn run(
    svm: &Svm,
    which: Which,
    stop: Stop,
    iterations: Option<u64>,
    problem: &KernelProblem<'_>,
    linear: Option<&Points>,
    start: Option<Start>,
    memory: u64,
    control: &Control,
    observer: &mut dyn Observer,
    reason: &mut String,
) -> Result<(Solution, Option<f64>)> {
    let textbook_tol = || match stop {
        Stop { tol: Some(tol), gap: None } => Ok(tol),
        _ => Err(Error::data("the textbook solvers stop on --tol alone: leave out --gap")),
    };
    if start.is_some() && matches!(which, Which::Smo | Which::SvmTorch) {
        return Err(Error::data("the textbook solvers cannot resume: use --solver decomposition"));
    }
    let (beta, bias) = start.map_or((None, None), |(beta, bias)| (Some(beta), bias.first().copied()));
    let reweighting = |stop: Stop| irwls::Options {
        stop,
        start: beta.clone(),
        start_bias: bias,
        iterations,
        memory,
        ..irwls::Options::default()
    };
    match which {
        Which::Library(Choice::Decomposition) => {
            let options =
                decomposition::Options { stop, start: beta, iterations, memory, ..decomposition::Options::default() };
            Ok((decomposition::solve(problem, &options, control, observer)?, None))
        }
        Which::Library(Choice::Irwls) => {
            let end = irwls::solve(problem, linear, &reweighting(stop), control, observer)?;
            Ok((end.solution, None))
        }
        Which::Library(Choice::TwoStep) => {
            if let Stop { tol: None, gap: Some(gap) } = stop {
                let allowed =
                    "the loss is not convex, so there is no duality gap: use --tol, the stationarity residual";
                return Err(Error::option("gap", gap, allowed));
            }
            let softer = annealed(svm)?;
            let paths: Vec<Vec<&dyn Loss>> =
                if softer.is_empty() { vec![] } else { vec![softer.iter().map(|l| l.as_ref()).collect()] };
            let two_step = irwls::TwoStep { options: reweighting(Stop { gap: None, ..stop }), paths };
            let end = irwls::two_step(problem, linear, &two_step, control, observer)?.end;
            Ok((end.solution, Some(end.start_objective)))
        }
        Which::Library(Choice::Ridge) => {
            let options = RidgeOptions { memory, ..RidgeOptions::default() };
            let end = ridge::solve(problem, linear, &options, control, observer)?;
            if let Some(jitter) = end.fit.map(|fit| fit.jitter).filter(|jitter| *jitter > 0.0) {
                *reason += &format!("; K is singular to working precision: {jitter:.1e} was added to its diagonal");
            }
            Ok((end.solution, None))
        }
        Which::Smo => {
            let options = smo::SmoOptions {
                tol: textbook_tol()?,
                record_every: 0,
                max_iterations: 1000,
                max_pairs: iterations,
                memory,
                seed: svm.seed,
                ..smo::SmoOptions::default()
            };
            Ok((smo::solve(problem, &options, control, observer)?.solution, None))
        }
        Which::SvmTorch => {
            let options = svmtorch::SvmTorchOptions {
                tol: textbook_tol()?,
                max_iterations: iterations,
                memory,
                ..svmtorch::SvmTorchOptions::default()
            };
            Ok((svmtorch::solve(problem, &options, control, observer)?.solution, None))
        }
    }
}

/// The softer losses an annealed start goes through, softest first.
fn annealed(svm: &Svm) -> Result<Vec<std::sync::Arc<dyn Loss>>> {
    let spec: Option<LossSpec> = match &svm.loss {
        LossChoice::Spec(spec) => Some(*spec),
        _ => None,
    };
    if svm.anneal == 0 {
        return Ok(vec![]);
    }
    let softer = spec.map(|spec| spec.softer(svm.anneal)).unwrap_or_default();
    if softer.is_empty() {
        return Err(Error::option(
            "anneal",
            svm.anneal,
            "only the sigmoid, polynomial and ramp losses have softer forms",
        ));
    }
    softer.iter().map(LossSpec::build).collect()
}

/// Trainings of one problem at most, each with a stricter rule than the last, until the proof holds.
const ATTEMPTS: usize = 4;

/// The solver to try when `which` has not met what was asked: another view of the same convex problem.
fn alternative(which: Which, problem: &KernelProblem<'_>) -> Option<Choice> {
    let has_dual = (0..problem.len()).all(|i| problem.dual_term(i).is_some());
    let convex = (0..problem.len()).all(|i| problem.loss(i).properties().convex);
    match which {
        Which::Library(Choice::Decomposition) if convex && problem.constraint.groups() <= 1 => Some(Choice::Irwls),
        Which::Library(Choice::Ridge | Choice::Irwls) if has_dual => Some(Choice::Decomposition),
        _ => None,
    }
}

/// Whether `new` is the better machine: it meets what was asked, or its gap (its residual) is smaller.
pub(crate) fn is_better(new: &Proven, old: &Proven, asked: &Asked) -> bool {
    let met = |p: &Proven| asked.met(&p.certificate) != Met::No;
    let measure = |p: &Proven| p.certificate.gap().unwrap_or(p.certificate.violation());
    match (met(new), met(old)) {
        (true, false) => true,
        (false, true) => false,
        _ => measure(new) < measure(old),
    }
}

/// One training: what it takes besides the solver and its rule.
struct Attempt<'a> {
    svm: &'a Svm,
    setup: &'a Setup,
    gram: &'a dyn Gram,
    linear: Option<&'a Points>,
    memory: u64,
    asked: Asked,
    control: &'a Control,
}

impl Attempt<'_> {
    fn run(
        &self,
        which: Which,
        stop: Stop,
        used: u64,
        start: Option<Start>,
        observer: &mut dyn Observer,
        reason: &mut String,
    ) -> Result<Proven> {
        let Attempt { svm, setup, gram, linear, memory, asked, control } = *self;
        let iterations = svm.budget.iterations.map(|all| all.saturating_sub(used));
        let (solution, started) = setup.with(gram, |problem| {
            run(svm, which, stop, iterations, problem, linear, start, memory, control, observer, reason)
        })?;
        let mut proven = prove(setup, gram, &solution, &asked, &control.for_proof())?;
        proven.iterations += used;
        // A run without time for a single step returns its start.
        let objective = proven.certificate.primal();
        proven.certificate = proven.certificate.with_start(started.map(|p| if p.is_finite() { p } else { objective }));
        Ok(proven)
    }

    /// Trains until the proof holds, the solver gives up or nothing is gained any more.
    fn train(
        &self,
        which: Which,
        start: Option<Start>,
        observer: &mut dyn Observer,
        reason: &mut String,
    ) -> Result<Proven> {
        let mut stop = self.svm.aim_for(self.setup);
        let mut best = self.run(which, stop, 0, start, observer, reason)?;
        if matches!(which, Which::Smo | Which::SvmTorch) {
            return Ok(best);
        }
        for _ in 1..ATTEMPTS {
            if best.status != Status::Inaccurate || self.control.check().is_err() {
                break;
            }
            stop = self.asked.stricter(stop, &best.certificate);
            let from = Some((best.beta.clone(), best.bias.clone()));
            let next = self.run(which, stop, best.iterations, from, observer, reason)?;
            let gained = is_better(&next, &best, &self.asked);
            let enough = next.status != Status::Inaccurate;
            if gained {
                best = next;
            }
            if !gained || enough {
                break;
            }
        }
        Ok(best)
    }
}

/// Solves one problem and proves it, within `memory` bytes. `linear`: the points, if K is the linear kernel over them.
pub(crate) fn solve_one(
    svm: &Svm,
    setup: &Setup,
    gram: &dyn Gram,
    linear: Option<&Points>,
    start: Option<Start>,
    memory: u64,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Solved> {
    let (which, mut solver, mut reason) = setup.with(gram, |problem| pick(svm, problem, linear))?;
    if svm.anneal > 0 && which != Which::Library(Choice::TwoStep) {
        return Err(Error::option("anneal", svm.anneal, "it is for losses that are not convex, by --solver irwls"));
    }
    let asked = Asked::from(svm.stop_for(setup));
    let attempt = Attempt { svm, setup, gram, linear, memory, asked, control };
    let mut proven = attempt.train(which, start, observer, &mut reason)?;
    if svm.solver == SolverName::Auto
        && matches!(proven.status, Status::Inaccurate | Status::Stalled)
        && control.check().is_ok()
        && let Some(other) = setup.with(gram, |problem| Ok(alternative(which, problem)))?
    {
        let from = Some((proven.beta.clone(), proven.bias.clone()));
        let mut more = String::new();
        // What the other solver cannot do is no reason to lose what there is.
        if let Ok(next) = attempt.train(Which::Library(other), from, observer, &mut more)
            && is_better(&next, &proven, &asked)
        {
            reason += &format!("; finished by {}, as {solver} ended short of the proof{more}", other.name());
            (proven, solver) = (next, other.name());
        }
    }
    let proof = control.for_proof();
    let mut compact = None;
    if let Some(threshold) = svm.compact {
        let small = setup.with(gram, |problem| Ok(irwls::compact(problem, &proven.beta, threshold, &proof)?))?;
        compact = Some(Compacted { dropped: small.dropped, norm: small.norm, change: small.change });
        let solution = Solution {
            beta: small.beta,
            bias: proven.bias.clone(),
            scores: None,
            status: proven.status,
            iterations: proven.iterations,
            violation: f64::INFINITY,
        };
        let start_objective = proven.certificate.stationarity().and_then(|s| s.start_objective());
        proven = prove(setup, gram, &solution, &asked, &proof)?;
        proven.certificate = proven.certificate.with_start(start_objective);
    }
    let left_out = match svm.probability {
        Some(Probability::LeaveOneOut) if !proven.scores.is_empty() => setup.with(gram, |problem| {
            // Without the time for it, folds have to do.
            Ok(leave_one_out(problem, &proven.beta, &proven.bias, &proven.scores, memory, &proof).unwrap_or(None))
        })?,
        _ => None,
    };
    Ok(Solved { proven, left_out, solver, reason, compact })
}
