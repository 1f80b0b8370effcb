//! A start from a subsample: the same problem over one in eight samples, each with eight times its cost, is solved to a
//! low accuracy, and its model scores all samples. These scores predict which samples will be free, at a bound or at
//! zero, so that the first system over all samples is close to the final one instead of the largest.

use std::ops::ControlFlow;

use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

use super::Options;
use super::solve::{IrwlsRun, PhaseEnd, solve};
use crate::control::Status;
use crate::observe::{Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::Stop;

/// The subsample has n divided by this number of samples.
const SUBSAMPLE_RATIO: usize = 8;
/// Fewest samples for which a subsample is solved first.
const MIN_SAMPLES: usize = 200;
/// The relative gap for the subsample: its solution only approximates that of the whole problem anyway.
const SUBSAMPLE_GAP: f64 = 1e-2;
const SEED: u64 = 0x1e7e1;

/// Forwards progress and interruption of the subsample run, but not its objectives, which belong to another problem.
struct SubsampleObserver<'o> {
    inner: &'o mut dyn Observer,
    /// The lowest objective of the whole problem so far.
    lowest: f64,
}

impl Observer for SubsampleObserver<'_> {
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let (seconds, active, kernel_entries) = (step.seconds, step.active, step.kernel_entries);
        let primal = Some(self.lowest);
        self.inner.step(&Step { seconds, phase: "subsample", primal, active, kernel_entries, ..Step::default() })
    }
}

impl IrwlsRun<'_, '_, '_> {
    /// Starts from the scores of all samples under the model of a subsample. False if the problem is too small or the
    /// Gram matrix cannot select rows.
    pub(super) fn start_from_subsample(&mut self) -> Result<bool, PhaseEnd> {
        let problem = self.samples.problem;
        let n = self.samples.len();
        // A system on the primal side is cheap for any number of samples.
        if n < MIN_SAMPLES || self.systems.is_primal(n) {
            return Ok(false);
        }
        let m = n / SUBSAMPLE_RATIO;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let mut rows: Vec<u32> = index::sample(&mut rng, n, m).into_iter().map(|i| i as u32).collect();
        rows.sort_unstable();
        let Some(gram) = problem.gram.select(&rows) else { return Ok(false) };
        let select = |from: &[f64], factor: f64| rows.iter().map(|&i| factor * from[i as usize]).collect::<Vec<f64>>();
        let costs = select(problem.costs, n as f64 / m as f64);
        let targets = select(problem.targets, 1.0);
        let subsample = KernelProblem { gram: gram.as_ref(), targets: &targets, costs: &costs, ..problem.clone() };
        let options = Options {
            stop: Stop { tol: None, gap: Some(SUBSAMPLE_GAP) },
            start: None,
            start_bias: None,
            iterations: None,
            ..self.options.clone()
        };
        let mut observer = SubsampleObserver { inner: self.observer, lowest: self.lowest };
        let end = match solve(&subsample, None, &options, self.control, &mut observer) {
            Ok(end) => end,
            // Without a usable subsample (one class, no cost) the run makes a cold start.
            Err(_) => return Ok(false),
        };
        if end.solution.status == Status::Interrupted {
            return Err(PhaseEnd::Done(Status::Interrupted));
        }
        self.control.check()?;
        let mut beta = vec![0.0; n];
        rows.iter().zip(&end.solution.beta).for_each(|(&i, b)| beta[i as usize] = *b);
        self.now.f = self.systems.product(self.systems.working_precision(), &beta, 1, self.control)?;
        self.now.beta = beta;
        self.now.bias = end.solution.bias.first().copied().unwrap_or(0.0);
        self.now.fresh = false;
        self.record_if_lowest(self.objective(&self.now)?);
        Ok(true)
    }
}
