//! The space of machines on few centres of a kernel: trained on features, certified against the exact problem.

use std::sync::{Arc, Mutex, PoisonError};

use super::kernel_space::KernelSpace;
use super::options::{Approx, SolverName, TrainOptions};
use super::proof::{ProofOnCentres, Proven};
use super::space::{Request, Space, StartPoint, Trained, is_better};
use super::verdict::{Asked, Met};
use crate::backend::RowSource;
use crate::certificate::{Certificate, TailCheck};
use crate::compose::calibrate::LeftOut;
use crate::control::{Control, Status};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::Gram;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::observe::Observer;
use crate::problem::{Machine, Setup};
use crate::solver::linear::Start;
use crate::solver::nystrom::{self, FeatureSet, Features};
use crate::solver::{Solution, Stop};

/// Centres of the first attempt if their number is chosen by the gap.
const FIRST_CENTRES: usize = 256;
/// Share of a required gap that the gap on the centres may take.
const OWN_SHARE: f64 = 0.1;
/// Share of the gap on the centres that the solver aims at: the certificate adds a bound on rounding.
const LESS: f64 = 0.97;
/// Relative gap on the centres from which an exact solver goes on: what the centres leave out is much more.
const POLISH_GAP: f64 = 1e-2;
/// Centres of a machine from which an exact solver goes on, at most, in units of √n: more would cost as much as the exact
/// solver saves.
const POLISH_CENTRES: f64 = 2.0;
/// … and at least.
const FEW_POLISH_CENTRES: usize = 128;

/// Bytes per row of the vectors of solver and certificate, as measured.
const ROW_BYTES: u64 = 180;
/// Kernel entries that bound the tail, at most; rough.
const SAMPLED_ENTRIES: f64 = 7e9;
/// Multiply–adds of a core per second; rough.
const MULTIPLY_ADDS_PER_SECOND: f64 = 2e10;

/// Rows of a kernel, accessed through features on centres among them.
pub(crate) struct ApproximateSpace<'a> {
    shared: Arc<Shared<'a>>,
}

struct Shared<'a> {
    kernel: Kernel,
    source: RowSource<'a>,
    gram: Box<dyn Gram + 'a>,
    approx: Approx,
    memory: u64,
    seed: u64,
    built: Mutex<Built<'a>>,
}

/// The search for centres, and the last features made from it: machines over the same rows share them.
#[derive(Default)]
struct Built<'a> {
    features: Option<Features<'a>>,
    last: Option<(usize, Arc<FeatureSet<'a>>)>,
    /// Kernel entries of the exact solvers that went on from there.
    polish_entries: u64,
}

impl<'a> ApproximateSpace<'a> {
    pub(crate) fn new(
        kernel: Kernel,
        source: RowSource<'a>,
        approx: Approx,
        options: &TrainOptions,
        control: &Control,
    ) -> Result<Self> {
        let gram = source.square_gram(kernel, control)?;
        let (memory, seed) = (options.budget.memory, options.seed);
        let shared = Shared { kernel, source, gram, approx, memory, seed, built: Mutex::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The most centres that may be used.
    fn most(&self) -> usize {
        let n = self.shared.source.len();
        match self.shared.approx {
            Approx::Centres(m) => m.min(n),
            // Three squares of this size fit into half of the memory.
            Approx::Auto => (((self.shared.memory / 48) as f64).sqrt() as usize).clamp(FIRST_CENTRES, 20_000).min(n),
        }
    }

    /// What is left of `memory` besides the vectors over all rows that a training needs.
    fn working_memory(&self, memory: u64) -> u64 {
        memory.saturating_sub(ROW_BYTES * self.len() as u64).max(memory / 8)
    }

    /// The features on the first `m` centres, of `most` that may be drawn in the end.
    fn features(&self, m: usize, most: usize, control: &Control) -> Result<Arc<FeatureSet<'a>>> {
        let mut built = self.shared.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, set)) = &built.last
            && *of == m
        {
            return Ok(set.clone());
        }
        // Stored features of fewer centres are not needed any more.
        built.last = None;
        if built.features.is_none() {
            let Shared { kernel, source, memory, seed, .. } = &*self.shared;
            let memory = self.working_memory(*memory);
            built.features = Some(Features::new(*kernel, source, most, memory / 2, *seed, control)?);
        }
        let Some(features) = &mut built.features else { return Err(Error::data("no features")) };
        let set = Arc::new(features.on(m, control)?);
        built.last = Some((m, set.clone()));
        Ok(set)
    }

    fn proof<'s>(&'s self, rows: &'s [u32], centres: &'s Points, check: TailCheck, enough: f64) -> ProofOnCentres<'s> {
        let Shared { kernel, source, gram, seed, .. } = &*self.shared;
        ProofOnCentres { kernel: *kernel, source, gram: gram.as_ref(), rows, centres, check, seed: *seed, enough }
    }

    /// One machine on the first `m` centres, and its w.
    fn attempt(
        &self,
        m: usize,
        setup: &Setup,
        start: Option<Start>,
        used: u64,
        request: Request<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(Trained, Vec<f64>)> {
        let Request { options, memory, control } = request;
        let asked = options.asked_for(setup);
        let check = options.certify;
        // The proof takes passes over all rows in double precision: leave time for it.
        let solving = &control.leaving(self.proof_seconds(m, control));
        let set = match self.features(m, self.most(), solving) {
            Ok(set) => set,
            Err(Error::Interrupted(why)) => return Ok((self.nothing(setup, why.into(), &asked, control)?, Vec::new())),
            Err(other) => return Err(other),
        };
        let problem = setup.linear(set.matrix())?;
        let proof = self.proof(&set.centres.rows, &set.centres.points, check, 0.1 * asked.gap.unwrap_or(1e-3));
        let mut solver = nystrom::Options {
            stop: own_stop(options, setup),
            start,
            iterations: options.budget.iterations.map(|all| all.saturating_sub(used)),
            memory: self.working_memory(memory),
            seed: options.seed,
            precise: false,
        };
        let mut before = used;
        let mut attempt = |solver: &nystrom::Options, before: u64| -> Result<_> {
            let found = nystrom::solve(&problem, &set, solver, solving, observer)?;
            let coefficients = set.centres.coefficients(&found.weights, &control.threads);
            let solution = Solution {
                exact: None,
                beta: found.beta.clone(),
                bias: if options.bias { vec![found.bias] } else { vec![] },
                scores: None,
                status: found.status,
                iterations: before + found.iterations,
                violation: f64::INFINITY,
            };
            let proven = proof.prove(setup, &coefficients, &solution, &asked, &control.for_proof())?;
            Ok((found, proven))
        };
        let (mut found, mut proven) = attempt(&solver, before)?;
        // The solver works on kernel entries of single precision, and may be short of what it claims: sums over many rows
        // show their rounding.
        let is_short = |proven: &Proven| {
            proven.certificate.approximation().is_some_and(|a| asked.own.is_some_and(|own| a.own_relative_gap > own))
        };
        if is_short(&proven) && found.status == Status::Optimal && solving.check().is_ok() {
            before = proven.iterations;
            solver.stop.gap = solver.stop.gap.map(|gap| 0.2 * gap);
            solver.precise = true;
            solver.start = Some(Start { weights: found.weights.clone(), bias: found.bias, beta: found.beta.clone() });
            let (next, better) = attempt(&solver, before)?;
            // A sampled bound on what the centres leave out varies by more than the two machines differ.
            let ends_well = !is_short(&better) && asked.met(&proven.certificate) == Met::No;
            if ends_well || is_better(&better, &proven, &asked) {
                (found, proven) = (next, better);
            }
        }
        let count = set.centres.len();
        let fewer = if count < m {
            format!(" of {m} asked for: the others depend on them to working precision")
        } else {
            String::new()
        };
        let how = if set.is_stored() { "features in memory" } else { "features recomputed in blocks" };
        let reason = format!("{count} centres{fewer}, {how}; {}", found.reason);
        let trained = Trained { proven, weights: None, solver: "nystrom", reason, compact: None, merged: 0 };
        Ok((trained, found.weights))
    }

    /// The exact machine, from one on few centres that nobody sees and nothing is proven of.
    fn polish(
        &self,
        setup: &Setup,
        points: &Points,
        request: Request<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Trained> {
        let Request { options, memory, control } = request;
        let enough = (POLISH_CENTRES * (self.len() as f64).sqrt()) as usize;
        let m = self.most().min(enough.max(FEW_POLISH_CENTRES));
        let mut start = None;
        match self.features(m, m, control) {
            Ok(set) => {
                let problem = setup.linear(set.matrix())?;
                let solver = nystrom::Options {
                    stop: Stop { tol: None, gap: Some(POLISH_GAP) },
                    start: None,
                    iterations: options.budget.iterations,
                    memory: self.working_memory(memory),
                    seed: options.seed,
                    precise: false,
                };
                let found = nystrom::solve(&problem, &set, &solver, control, observer)?;
                let bias = if options.bias { vec![found.bias] } else { vec![] };
                start = Some(StartPoint { beta: found.beta, bias, weights: Vec::new() });
            }
            // The exact solver says that there was no time.
            Err(Error::Interrupted(_)) => {}
            Err(other) => return Err(other),
        }
        let Shared { kernel, built, .. } = &*self.shared;
        let space = match options.merge_equal {
            true => KernelSpace::with_distinct(*kernel, points, control)?.kept(control),
            false => KernelSpace::new(*kernel, points, control)?.kept(control),
        };
        // Without centres, but still as the continuation of a machine on few.
        let exact = TrainOptions { approx: None, solver: SolverName::Auto, ..options.clone() };
        let polished = space.solve(setup, start, Request { options: &exact, ..request }, observer)?;
        built.lock().unwrap_or_else(PoisonError::into_inner).polish_entries += space.entries();
        let reason = format!("{}; from a machine on {m} centres", polished.reason);
        Ok(Trained { reason, ..polished })
    }

    /// Roughly how long the proof of a machine on `m` centres takes: two products with K_nS, and the rows of K that bound the
    /// tail. Only trainings with a time limit use it.
    fn proof_seconds(&self, m: usize, control: &Control) -> f64 {
        let n = self.len() as f64;
        let entry = 2.0 * (self.shared.gram.effort().clamp(1.0, 1e4) + 16.0);
        let entries = 2.0 * n * m as f64 + (n * n).min(SAMPLED_ENTRIES);
        entries * entry / (MULTIPLY_ADDS_PER_SECOND * control.threads.count() as f64)
    }

    /// The machine f = 0, where time ran out before there was another.
    fn nothing(&self, setup: &Setup, status: Status, asked: &Asked, control: &Control) -> Result<Trained> {
        let bias = if setup.constraint().groups() > 0 { vec![0.0] } else { vec![] };
        let solution = Solution {
            exact: None,
            beta: vec![0.0; setup.len()],
            bias,
            scores: None,
            status,
            iterations: 0,
            violation: f64::INFINITY,
        };
        let rows = [0];
        let centre = self.shared.source.gather(&rows, &control.for_proof())?;
        let proof = self.proof(&rows, &centre, TailCheck::Exact, 0.0);
        let proven = proof.prove(setup, &[0.0], &solution, asked, &control.for_proof())?;
        let reason = "the time ended before centres were chosen".to_owned();
        Ok(Trained { proven, weights: None, solver: "nystrom", reason, compact: None, merged: 0 })
    }

    /// More and more centres until the criteria are met.
    fn grow(&self, setup: &Setup, request: Request<'_>, observer: &mut dyn Observer) -> Result<Trained> {
        let asked = request.options.asked_for(setup);
        let (most, mut m) = (self.most(), FIRST_CENTRES.min(self.most()));
        let (mut best, mut weights) = self.attempt(m, setup, None, 0, request, observer)?;
        while m < most && asked.met(&best.proven.certificate) == Met::No && request.control.check().is_ok() {
            let exhausted = best.proven.machine.coefficients.iter().filter(|a| **a != 0.0).count() + 1 < m;
            if exhausted || matches!(best.proven.status, Status::Interrupted | Status::IterationLimit) {
                break;
            }
            m = (2 * m).min(most);
            let start = Start { weights, bias: best.proven.machine.bias, beta: best.proven.beta.clone() };
            let (next, w) = self.attempt(m, setup, Some(start), best.proven.iterations, request, observer)?;
            weights = w;
            let gap = |t: &Trained| t.proven.certificate.gap().unwrap_or(f64::INFINITY);
            if gap(&next) < gap(&best) {
                best = next;
            }
        }
        Ok(best)
    }
}

/// When the problem on the centres counts as solved.
fn own_stop(options: &TrainOptions, setup: &Setup) -> Stop {
    let asked = options.asked_for(setup);
    let own = asked.own.unwrap_or(super::verdict::DEFAULT_OWN_GAP);
    let gap = LESS * asked.gap.map_or(own, |gap| own.min(OWN_SHARE * gap));
    Stop { tol: asked.tol, gap: Some(gap) }
}

impl Space for ApproximateSpace<'_> {
    fn len(&self) -> usize {
        self.shared.source.len()
    }

    fn diag(&self) -> Vec<f64> {
        self.shared.gram.diag()
    }

    fn entries(&self) -> u64 {
        let built = self.shared.built.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.gram.entries() + built.features.as_ref().map_or(0, Features::entries) + built.polish_entries
    }

    fn work(&self, rows: usize) -> u64 {
        (rows as u64).saturating_mul(self.most() as u64)
    }

    fn restrict<'s>(&'s self, rows: &[u32], control: &Control) -> Box<dyn Space + 's> {
        if rows.len() == self.len() {
            return Box::new(ApproximateSpace { shared: self.shared.clone() });
        }
        let Shared { kernel, source, approx, memory, seed, .. } = &*self.shared;
        let source = match source.points() {
            Some(points) => RowSource::Memory(points.gather(rows)),
            None => unreachable!("parts of rows that are read in blocks are not trained on"),
        };
        let gram = source.square_gram(*kernel, control).expect("the kernel fits some of the points if it fits all");
        let shared = Shared {
            kernel: *kernel,
            source,
            gram,
            approx: *approx,
            memory: *memory,
            seed: *seed,
            built: Mutex::default(),
        };
        Box::new(ApproximateSpace { shared: Arc::new(shared) })
    }

    fn start(&self, _: &Model, _: usize, machine: &Machine, setup: &Setup) -> StartPoint {
        let (beta, bias) = setup.solution(machine);
        StartPoint { beta, bias, weights: Vec::new() }
    }

    fn solve(
        &self,
        setup: &Setup,
        _: Option<StartPoint>,
        request: Request<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Trained> {
        match (request.options.polish, self.shared.source.points()) {
            (true, Some(points)) => self.polish(setup, points, request, observer),
            _ => match self.shared.approx {
                Approx::Centres(m) => Ok(self.attempt(m.min(self.len()), setup, None, 0, request, observer)?.0),
                Approx::Auto => self.grow(setup, request, observer),
            },
        }
    }

    fn certify(
        &self,
        model: &Model,
        at: usize,
        machine: &Machine,
        setup: &Setup,
        control: &Control,
    ) -> Result<Certificate> {
        let rows: Vec<u32> = (0..self.len() as u32).filter(|&row| machine.coefficients[row as usize] != 0.0).collect();
        let rows = if rows.is_empty() { vec![0] } else { rows };
        let centres = self.shared.source.gather(&rows, control)?;
        let coefficients: Vec<f64> = rows.iter().map(|&row| machine.coefficients[row as usize]).collect();
        let bias = if setup.constraint().groups() > 0 { vec![machine.bias] } else { vec![] };
        let dual = model.dual.get(at).map(|dual| dual.over(self.len()));
        let proof = self.proof(&rows, &centres, TailCheck::Auto, 1e-4);
        proof.certify(setup, &coefficients, &bias, dual.as_deref(), control)
    }

    fn score(&self, trained: &Trained, trained_on: &[u32], rows: &[u32], control: &Control) -> Result<Vec<f64>> {
        KernelSpace::over(self.shared.gram.as_ref()).score(trained, trained_on, rows, control)
    }

    fn leave_one_out(&self, _: &Trained, _: &Setup, _: Request<'_>) -> Result<Option<LeftOut>> {
        // There is no closed form for models on centres: folds.
        Ok(None)
    }
}
