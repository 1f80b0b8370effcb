//! The space of a kernel: machines are expansions over rows, accessed through the Gram matrix.
//!
//! Chooses the solver, runs it with stricter stopping rules until the proof holds, and tries another solver if it does not.

use std::sync::Arc;

use super::merge::{Merged, equal_among, equal_rows};
use super::options::{LossChoice, SolverName, TrainOptions};
use super::proof::{Proven, certify_machine, prove};
use super::shared::{Shared, Whole};
use super::space::{Compacted, Request, Space, StartPoint, Trained, is_better, until_proven};
use super::verdict::Asked;
use crate::certificate::Certificate;
use crate::compose::calibrate::{LeftOut, leave_one_out};
use crate::conflict::{OptionName, Remedy, With};
use crate::control::{Control, Status};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::{Gram, KeptGram, Pick, Picked, part};
use crate::kernel::Kernel;
use crate::loss::{Loss, LossSpec};
use crate::model::Model;
use crate::observe::Observer;
use crate::problem::{KernelProblem, Machine, Setup};
use crate::solver::choose::{self, Choice, Chosen};
use crate::solver::ridge::RidgeOptions;
use crate::solver::textbook::{smo, svmtorch};
use crate::solver::{Solution, Stop, decomposition, irwls, ridge};

/// Rows of a kernel matrix.
pub(crate) struct KernelSpace<'a> {
    gram: GramOf<'a>,
    /// The points, if K is the linear kernel over them: some solvers work on them directly.
    linear: Option<Points>,
    /// The first row equal to each row, if there are many duplicates.
    equal: Option<Vec<u32>>,
    /// What machines on parts of the rows share.
    shared: Arc<Shared>,
    /// The larger space that these are rows of: one of several machines is trained on them.
    part_of: Option<Whole<'a>>,
}

enum GramOf<'a> {
    Own(Box<dyn Gram + 'a>),
    Shared(&'a dyn Gram),
}

impl<'a> GramOf<'a> {
    fn get(&self) -> &(dyn Gram + 'a) {
        match self {
            GramOf::Own(gram) => gram.as_ref(),
            GramOf::Shared(gram) => *gram,
        }
    }

    /// All of K in memory, if it is small and there is time.
    fn kept(self, control: &Control) -> Self {
        if self.get().in_memory() || control.check().is_err() {
            return self;
        }
        match KeptGram::new(self.get(), control) {
            Ok(Some(kept)) => GramOf::Own(Box::new(kept)),
            _ => self,
        }
    }
}

impl<'a> KernelSpace<'a> {
    /// K of a kernel over points.
    pub(crate) fn new(kernel: Kernel, points: &Points, control: &Control) -> Result<Self> {
        let gram = GramOf::Own(control.backend().square_gram(kernel, points)?);
        Ok(Self::of(gram, (kernel == Kernel::Linear).then(|| points.clone()), None))
    }

    /// The same for solvers that train on distinct samples: equal points share their rows and columns of K.
    pub(crate) fn with_distinct(kernel: Kernel, points: &Points, control: &Control) -> Result<Self> {
        let first = if kernel == Kernel::Precomputed { None } else { equal_rows(points, &control.threads) };
        let Some(first) = first else { return Self::new(kernel, points, control) };
        let distinct: Vec<u32> = (0..first.len() as u32).filter(|&row| first[row as usize] == row).collect();
        let mut place = vec![0u32; first.len()];
        distinct.iter().enumerate().for_each(|(at, &row)| place[row as usize] = at as u32);
        let of = first.iter().map(|&row| place[row as usize]).collect();
        let gram = control.backend().square_gram(kernel, &points.gather(&distinct))?;
        let gram = GramOf::Own(Box::new(Picked::of(gram, of)));
        Ok(Self::of(gram, (kernel == Kernel::Linear).then(|| points.clone()), Some(first)))
    }

    /// The same with all of K in memory, if it is small: for a training, which needs its entries many times.
    pub(crate) fn kept(self, control: &Control) -> Self {
        Self { gram: self.gram.kept(control), ..self }
    }

    /// A borrowed Gram matrix.
    pub(crate) fn over(gram: &'a dyn Gram) -> Self {
        Self::of(GramOf::Shared(gram), None, None)
    }

    fn of(gram: GramOf<'a>, linear: Option<Points>, equal: Option<Vec<u32>>) -> Self {
        Self { gram, linear, equal, shared: Arc::default(), part_of: None }
    }

    pub(crate) fn gram(&self) -> &dyn Gram {
        self.gram.get()
    }

    /// Which solver trains a problem over these rows, and why.
    pub(crate) fn solver_for(&self, setup: &Setup, options: &TrainOptions) -> Result<(&'static str, String)> {
        let picked = setup.with(self.gram(), |problem| pick(options, problem, self.linear.as_ref()))?;
        Ok((picked.1, picked.2))
    }
}

impl Space for KernelSpace<'_> {
    fn len(&self) -> usize {
        self.gram().shape().0
    }

    fn diag(&self) -> Vec<f64> {
        self.gram().diag()
    }

    fn entries(&self) -> u64 {
        self.gram().entries()
    }

    fn work(&self, rows: usize) -> u64 {
        (rows as u64).pow(2)
    }

    fn restrict<'s>(&'s self, rows: &[u32], control: &Control) -> Box<dyn Space + 's> {
        let gram: GramOf<'s> = if rows.len() == self.len() {
            GramOf::Shared(self.gram())
        } else if control.check().is_err() {
            // Out of time: a view that needs no preparation.
            GramOf::Own(Box::new(Picked::new(self.gram(), rows.to_vec())))
        } else {
            GramOf::Own(part(self.gram(), rows)).kept(control)
        };
        let equal = self.equal.as_ref().and_then(|first| equal_among(first, rows));
        let linear = self.linear.as_ref().map(|points| points.gather(rows));
        let part_of = (rows.len() < self.len()).then(|| Whole { gram: self.gram(), rows: rows.to_vec() });
        Box::new(KernelSpace { gram, linear, equal, shared: self.shared.clone(), part_of })
    }

    fn start(&self, model: &Model, at: usize, machine: &Machine, setup: &Setup) -> StartPoint {
        let (beta, bias) = setup.solution(machine);
        // The coefficients of few centres are no dual point.
        let dual = model.dual.get(at).filter(|_| self.len() == model.n && setup.len() == model.n);
        StartPoint { beta: dual.map_or(beta, |dual| dual.over(self.len())), bias, weights: Vec::new() }
    }

    fn solve(
        &self,
        setup: &Setup,
        start: Option<StartPoint>,
        request: Request<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Trained> {
        let Request { options, control, .. } = request;
        let (gram, linear) = (self.gram(), self.linear.as_ref());
        let (which, solver, reason) = setup.with(gram, |problem| pick(options, problem, linear))?;
        let asked = Asked::from(options.stop_for(setup));
        let merged = match &self.equal {
            Some(first) if control.check().is_ok() => setup.with(gram, |problem| Ok(Merged::new(problem, first)))?,
            _ => None,
        };
        let merged = merged.map(|merged| {
            let gram = part(gram, &merged.rows);
            let linear = linear.map(|points| points.gather(&merged.rows));
            Distinct { merged, gram, linear }
        });
        // Equal points with different targets: nothing to merge, and solvers prefer a matrix of their own to a view.
        let expanded = match (&self.equal, &merged) {
            (Some(_), None) => Some(part(gram, &(0..self.len() as u32).collect::<Vec<u32>>())),
            _ => None,
        };
        let gram = expanded.as_deref().unwrap_or(gram);
        let attempt = Attempt { setup, gram, linear, merged, asked, request };
        let mut start = start;
        if let (Some(whole), Which::Library(Choice::Decomposition), None) = (&self.part_of, which, &start) {
            match attempt.stored(whole, &self.shared, solver, &reason)? {
                Some(trained) if trained.proven.status == Status::Optimal || control.check().is_err() => {
                    return Ok(trained);
                }
                Some(Trained { proven: Proven { beta, bias, .. }, .. }) => {
                    start = Some(StartPoint { beta, bias, weights: vec![] });
                }
                None => {}
            }
        }
        let mut best = attempt.train(which, solver, start, reason, observer)?;
        if options.solver == SolverName::Auto
            && matches!(best.proven.status, Status::Inaccurate | Status::Stalled)
            && control.check().is_ok()
            && let Some(other) = setup.with(gram, |problem| Ok(alternative(which, problem)))?
        {
            let from = StartPoint { beta: best.proven.beta.clone(), bias: best.proven.bias.clone(), weights: vec![] };
            let reason = format!("{}; finished by {}, as {solver} ended short of the proof", best.reason, other.name());
            // If the other solver fails, the solution found so far is kept.
            if let Ok(next) = attempt.train(Which::Library(other), other.name(), Some(from), reason, observer)
                && is_better(&next.proven, &best.proven, &asked)
            {
                best = next;
            }
        }
        if let Some(threshold) = options.compact {
            attempt.compact(threshold, &mut best)?;
        }
        Ok(best)
    }

    fn certify(&self, _: &Model, _: usize, machine: &Machine, setup: &Setup, control: &Control) -> Result<Certificate> {
        certify_machine(setup, self.gram(), machine, control)
    }

    fn score(&self, trained: &Trained, trained_on: &[u32], rows: &[u32], control: &Control) -> Result<Vec<f64>> {
        let machine = &trained.proven.machine;
        let used: Vec<usize> = (0..trained_on.len()).filter(|&at| machine.coefficients[at] != 0.0).collect();
        let centres: Vec<u32> = used.iter().map(|&at| trained_on[at]).collect();
        let mut scores = Vec::with_capacity(rows.len());
        for rows in rows.chunks(256) {
            let mut block = vec![0.0; rows.len() * centres.len()];
            self.gram().block_f64(Pick::List(rows), Pick::List(&centres), &mut block, control)?;
            for at in 0..rows.len() {
                let entries = &block[at * centres.len()..(at + 1) * centres.len()];
                let f: f64 = entries.iter().zip(&used).map(|(k, &at)| k * machine.coefficients[at]).sum();
                scores.push(f + machine.bias);
            }
        }
        Ok(scores)
    }

    fn leave_one_out(&self, trained: &Trained, setup: &Setup, request: Request<'_>) -> Result<Option<LeftOut>> {
        let Proven { beta, bias, scores, .. } = &trained.proven;
        if scores.is_empty() {
            return Ok(None);
        }
        // If time runs out here, folds are used instead.
        setup.with(self.gram(), |problem| {
            let merged = self.equal.as_ref().and_then(|first| Merged::new(problem, first));
            let Some(merged) = merged.filter(|_| problem.row_of.is_none()) else {
                return Ok(leave_one_out(problem, beta, bias, scores, request.memory, request.control).unwrap_or(None));
            };
            // Copies are left out together: a score from the other copies would not be out-of-sample, and K of the
            // free variables would be singular.
            let gram = part(self.gram(), &merged.rows);
            let start = merged.start(StartPoint { beta: beta.clone(), ..StartPoint::default() });
            let f: Vec<f64> = merged.rows.iter().map(|&row| scores[row as usize]).collect();
            let distinct = merged.problem(gram.as_ref(), problem.losses);
            let left = leave_one_out(&distinct, &start.beta, bias, &f, request.memory, request.control).unwrap_or(None);
            Ok(left.map(|left| merged.for_all(&left)))
        })
    }
}

/// A solver of the library, or one of the papers' solvers.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    Library(Choice),
    Smo,
    SvmTorch,
}

/// Which solver, its name, and why.
fn pick(
    options: &TrainOptions,
    problem: &KernelProblem<'_>,
    linear: Option<&Points>,
) -> Result<(Which, &'static str, String)> {
    let convex = (0..problem.len()).all(|i| problem.loss(i).properties().convex);
    let asked = |which: Which, name: &'static str| Ok((which, name, "asked for".to_owned()));
    match options.solver {
        SolverName::Auto => {
            let Chosen { choice, reason } = choose::choose(problem, linear, options.budget.memory);
            Ok((Which::Library(choice), choice.name(), reason))
        }
        SolverName::Decomposition => match (0..problem.len()).find(|&i| problem.dual_term(i).is_none()) {
            None => asked(Which::Library(Choice::Decomposition), "decomposition"),
            Some(i) => Err(Error::Unsupported {
                solver: "decomposition",
                what: format!("the {} loss", problem.loss(i).name()),
                instead: format!("{}, which takes any loss", OptionName::Solver.at("irwls")),
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
        SolverName::Nystrom => Err(Error::Unsupported {
            solver: "nystrom",
            what: "a machine on all rows".into(),
            instead: "decomposition".into(),
        }),
        SolverName::Smo => asked(Which::Smo, "smo"),
        SolverName::SvmTorch => asked(Which::SvmTorch, "svmtorch"),
    }
}

/// A solution, and for a non-convex loss the objective of its convex start. Further remarks are appended to `reason`.
fn run(
    request: Request<'_>,
    which: Which,
    stop: Stop,
    iterations: Option<u64>,
    problem: &KernelProblem<'_>,
    linear: Option<&Points>,
    start: Option<StartPoint>,
    observer: &mut dyn Observer,
    reason: &mut String,
) -> Result<(Solution, Option<f64>)> {
    let Request { options: settings, memory, control } = request;
    let textbook_tol = || match stop {
        Stop { tol: Some(tol), gap: None } => Ok(tol),
        _ => Err(Error::conflict(OptionName::Gap, With::Textbook, "", Remedy::Use(vec![OptionName::Tol.into()]))),
    };
    let (beta, bias) = start.map_or((None, None), |from| (Some(from.beta), from.bias.first().copied()));
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
            // A machine on few centres, from which this one goes on, is far from it.
            let rough_start = settings.polish;
            let options = decomposition::Options {
                stop,
                start: beta,
                rough_start,
                iterations,
                memory,
                ..decomposition::Options::default()
            };
            Ok((decomposition::solve(problem, &options, control, observer)?, None))
        }
        Which::Library(Choice::Irwls) => {
            let end = irwls::solve(problem, linear, &reweighting(stop), control, observer)?;
            Ok((end.solution, None))
        }
        Which::Library(Choice::TwoStep) => {
            let softer = annealed(settings)?;
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
                seed: settings.seed,
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

/// The softer losses of an annealed start, softest first.
fn annealed(options: &TrainOptions) -> Result<Vec<std::sync::Arc<dyn Loss>>> {
    let spec: Option<LossSpec> = match &options.loss {
        LossChoice::Spec(spec) => Some(*spec),
        _ => None,
    };
    if options.anneal == 0 {
        return Ok(vec![]);
    }
    let softer = spec.map(|spec| spec.softer(options.anneal)).unwrap_or_default();
    if softer.is_empty() {
        return Err(Error::option(
            "anneal",
            options.anneal,
            "only the sigmoid, polynomial and ramp losses have softer forms",
        ));
    }
    softer.iter().map(LossSpec::build).collect()
}

/// The solver to try when `which` has not met the criteria: another view of the same convex problem.
fn alternative(which: Which, problem: &KernelProblem<'_>) -> Option<Choice> {
    let has_dual = (0..problem.len()).all(|i| problem.dual_term(i).is_some());
    let convex = (0..problem.len()).all(|i| problem.loss(i).properties().convex);
    match which {
        Which::Library(Choice::Decomposition) if convex && problem.constraint.groups() <= 1 => Some(Choice::Irwls),
        Which::Library(Choice::Ridge | Choice::Irwls) if has_dual => Some(Choice::Decomposition),
        _ => None,
    }
}

/// The problem over the distinct samples, and K over their rows.
struct Distinct<'a> {
    merged: Merged,
    gram: Box<dyn Gram + 'a>,
    linear: Option<Points>,
}

/// One training: its problem and its resources.
struct Attempt<'a> {
    setup: &'a Setup,
    gram: &'a dyn Gram,
    linear: Option<&'a Points>,
    merged: Option<Distinct<'a>>,
    asked: Asked,
    request: Request<'a>,
}

impl Attempt<'_> {
    /// One run of a solver and the proof of its solution. `used`: iterations of earlier runs.
    fn run(
        &self,
        which: Which,
        stop: Stop,
        used: u64,
        start: Option<StartPoint>,
        observer: &mut dyn Observer,
        reason: &mut String,
    ) -> Result<Proven> {
        let Request { options, control, .. } = self.request;
        let iterations = options.budget.iterations.map(|all| all.saturating_sub(used));
        let (solution, started) = self.setup.with(self.gram, |problem| match &self.merged {
            None => run(self.request, which, stop, iterations, problem, self.linear, start, observer, reason),
            Some(Distinct { merged, gram, linear }) => {
                let small = merged.problem(gram.as_ref(), problem.losses);
                let start = start.map(|start| merged.start(start));
                let found =
                    run(self.request, which, stop, iterations, &small, linear.as_ref(), start, observer, reason)?;
                Ok((merged.spread(found.0, problem), found.1))
            }
        })?;
        let mut proven = prove(self.setup, self.gram, &solution, &self.asked, &control.for_proof())?;
        proven.iterations += used;
        // A run that has no time for a single step returns its start.
        let objective = proven.certificate.primal();
        proven.certificate = proven.certificate.with_start(started.map(|p| if p.is_finite() { p } else { objective }));
        Ok(proven)
    }

    /// One of many small machines: its matrix is stored, and pair steps read its rows in place. The rounding of stored entries
    /// may leave a solution short of the proof: the solver goes on from there. `None`: not the place for it.
    fn stored(
        &self,
        whole: &Whole<'_>,
        shared: &Shared,
        solver: &'static str,
        reason: &str,
    ) -> Result<Option<Trained>> {
        let Request { options, memory, control } = self.request;
        if options.compact.is_some() || options.budget.iterations.is_some() {
            return Ok(None);
        }
        let stop = options.aim_for(self.setup);
        // Half of the tolerance, because the violation in double precision may be larger.
        let stop = Stop { tol: stop.tol.map(|tol| 0.5 * tol), ..stop };
        let solution = self.setup.with(self.gram, |problem| match &self.merged {
            None => shared.solve(problem, whole, stop, memory, control),
            Some(Distinct { merged, gram, .. }) => {
                let rows = merged.rows.iter().map(|&row| whole.rows[row as usize]).collect();
                let small = merged.problem(gram.as_ref(), problem.losses);
                let found = shared.solve(&small, &Whole { rows, ..*whole }, stop, memory, control)?;
                Ok(found.map(|found| merged.spread(found, problem)))
            }
        })?;
        let Some(solution) = solution else { return Ok(None) };
        let proven = prove(self.setup, self.gram, &solution, &self.asked, &control.for_proof())?;
        let (reason, merged) = (reason.to_owned(), self.copies());
        Ok(Some(Trained { proven, weights: None, solver, reason, compact: None, merged }))
    }

    /// Samples that were merged into equal ones.
    fn copies(&self) -> usize {
        self.merged.as_ref().map_or(0, |distinct| distinct.merged.copies())
    }

    /// Trains until the proof holds, the solver gives up, or another attempt gains nothing.
    fn train(
        &self,
        which: Which,
        solver: &'static str,
        mut start: Option<StartPoint>,
        mut reason: String,
        observer: &mut dyn Observer,
    ) -> Result<Trained> {
        let stop = self.request.options.aim_for(self.setup);
        let mut attempt = |stop: Stop, best: Option<&Trained>| {
            let from = match best {
                None => start.take(),
                Some(best) => {
                    let Proven { beta, bias, .. } = &best.proven;
                    Some(StartPoint { beta: beta.clone(), bias: bias.clone(), weights: Vec::new() })
                }
            };
            let used = best.map_or(0, |best| best.proven.iterations);
            let proven = self.run(which, stop, used, from, observer, &mut reason)?;
            Ok(Trained { proven, weights: None, solver, reason: reason.clone(), compact: None, merged: self.copies() })
        };
        if matches!(which, Which::Smo | Which::SvmTorch) {
            return attempt(stop, None);
        }
        until_proven(stop, &self.asked, self.request.control, attempt)
    }

    /// Drops the rows whose share of f is below `threshold`, and certifies the remaining machine.
    fn compact(&self, threshold: f64, trained: &mut Trained) -> Result<()> {
        let (setup, gram, proof) = (self.setup, self.gram, self.request.control.for_proof());
        let proven = &trained.proven;
        let small = setup.with(gram, |problem| Ok(irwls::compact(problem, &proven.beta, threshold, &proof)?))?;
        trained.compact = Some(Compacted { dropped: small.dropped, norm: small.norm, change: small.change });
        let solution = Solution {
            beta: small.beta,
            bias: proven.bias.clone(),
            exact: None,
            scores: None,
            status: proven.status,
            iterations: proven.iterations,
            violation: f64::INFINITY,
        };
        let start_objective = proven.certificate.stationarity().and_then(|s| s.start_objective());
        trained.proven = prove(setup, gram, &solution, &self.asked, &proof)?;
        let certificate = std::mem::replace(&mut trained.proven.certificate, Certificate::Unknown);
        trained.proven.certificate = certificate.with_start(start_objective);
        Ok(())
    }
}
