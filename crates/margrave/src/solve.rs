//! From a problem to a solution with its proof: which solver, its options, the certificate.

use margrave_core::certificate::{Certificate, certify};
use margrave_core::compose::calibrate::{LeftOut, leave_one_out};
use margrave_core::data::Points;
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::observe::Observer;
use margrave_core::problem::{KernelProblem, Setup};
use margrave_core::solver::choose::{self, Choice, Chosen};
use margrave_core::solver::ridge::RidgeOptions;
use margrave_core::solver::textbook::{smo, svmtorch};
use margrave_core::solver::{Solution, Stop, decomposition, irwls, ridge};
use margrave_core::{Control, Error, Result};

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
    pub(crate) solution: Solution,
    /// K·β of every row.
    pub(crate) scores: Vec<f64>,
    pub(crate) certificate: Certificate,
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
    problem: &KernelProblem<'_>,
    linear: Option<&Points>,
    start: Option<Start>,
    memory: u64,
    control: &Control,
    observer: &mut dyn Observer,
    reason: &mut String,
) -> Result<(Solution, Option<f64>)> {
    let textbook_tol = || match svm.stop {
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
        iterations: svm.budget.iterations,
        memory,
        ..irwls::Options::default()
    };
    match which {
        Which::Library(Choice::Decomposition) => {
            let options = decomposition::Options {
                stop: svm.stop,
                start: beta,
                iterations: svm.budget.iterations,
                memory,
                ..decomposition::Options::default()
            };
            Ok((decomposition::solve(problem, &options, control, observer)?, None))
        }
        Which::Library(Choice::Irwls) => {
            let end = irwls::solve(problem, linear, &reweighting(svm.stop), control, observer)?;
            Ok((end.solution, None))
        }
        Which::Library(Choice::TwoStep) => {
            if let Stop { tol: None, gap: Some(gap) } = svm.stop {
                let allowed =
                    "the loss is not convex, so there is no duality gap: use --tol, the stationarity residual";
                return Err(Error::option("gap", gap, allowed));
            }
            let softer = annealed(svm)?;
            let paths: Vec<Vec<&dyn Loss>> =
                if softer.is_empty() { vec![] } else { vec![softer.iter().map(|l| l.as_ref()).collect()] };
            let two_step = irwls::TwoStep { options: reweighting(Stop { gap: None, ..svm.stop }), paths };
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
                max_pairs: svm.budget.iterations,
                memory,
                seed: svm.seed,
                ..smo::SmoOptions::default()
            };
            Ok((smo::solve(problem, &options, control, observer)?.solution, None))
        }
        Which::SvmTorch => {
            let options = svmtorch::SvmTorchOptions {
                tol: textbook_tol()?,
                max_iterations: svm.budget.iterations,
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
    // The proof of a run that was stopped must not be stopped for the same reason.
    let calm = Control::unlimited(control.threads.clone());
    setup.with(gram, |problem| {
        let (which, solver, mut reason) = pick(svm, problem, linear)?;
        if svm.anneal > 0 && which != Which::Library(Choice::TwoStep) {
            return Err(Error::option("anneal", svm.anneal, "it is for losses that are not convex, by --solver irwls"));
        }
        let (mut solution, started) = run(svm, which, problem, linear, start, memory, control, observer, &mut reason)?;
        let mut compact = None;
        if let Some(threshold) = svm.compact {
            let small = irwls::compact(problem, &solution.beta, threshold, &calm)?;
            compact = Some(Compacted { dropped: small.dropped, norm: small.norm, change: small.change });
            solution.beta = small.beta;
            solution.scores = Some(small.scores);
        }
        let scores = match &solution.scores {
            Some(scores) => scores.clone(),
            None => {
                let mut by_row = vec![0.0; setup.rows()];
                solution.beta.iter().enumerate().for_each(|(i, b)| by_row[problem.row(i)] += b);
                let mut out = vec![0.0; setup.rows()];
                gram.apply(Precision::Double, Pick::All, &by_row, 1, &mut out, &calm)?;
                out
            }
        };
        let mut certificate = certify(problem, &solution.beta, Some(&solution.bias), Some(&scores), &calm)?;
        if let Certificate::Stationarity(s) = &mut certificate {
            // A run without time for a single step returns its start.
            s.start_objective = started.map(|p| if p.is_finite() { p } else { s.objective });
        }
        let left_out = match svm.probability {
            Some(Probability::LeaveOneOut) => {
                let bias = if certificate.bias().is_empty() { &solution.bias } else { certificate.bias() };
                leave_one_out(problem, &solution.beta, bias, &scores, memory, &calm)?
            }
            _ => None,
        };
        Ok(Solved { solution, scores, certificate, left_out, solver, reason, compact })
    })
}
