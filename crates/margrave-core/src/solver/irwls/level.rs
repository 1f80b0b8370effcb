//! A beginning from fewer samples: the same problem over one in eight of them, each at eight times its cost, solved roughly; its machine scores all
//! samples. Those scores say which samples will be free, at a bound or at zero, so that the first system over all samples
//! is not the largest but nearly the last.

use std::ops::ControlFlow;

use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

use super::Options;
use super::solve::{End, Run, solve};
use crate::control::Status;
use crate::observe::{Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::Stop;

/// One sample in so many.
const SHARE: usize = 8;
/// The least number of samples worth it.
const LEAST: usize = 200;
/// The relative gap at which the smaller problem is left: its samples are a guess at the whole anyway.
const ROUGHLY: f64 = 1e-2;
const SEED: u64 = 0x1e7e1;

/// Passes on that there is progress, and that somebody wants to stop, but no figures of another problem.
struct Muted<'o> {
    inner: &'o mut dyn Observer,
    /// The lowest objective of the whole problem so far.
    lowest: f64,
}

impl Observer for Muted<'_> {
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let (seconds, active, kernel_entries) = (step.seconds, step.active, step.kernel_entries);
        let primal = Some(self.lowest);
        self.inner.step(&Step { seconds, phase: "level", primal, active, kernel_entries, ..Step::default() })
    }
}

impl Run<'_, '_, '_> {
    /// Scores of all samples by the machine of some; false if that is not worth it or the Gram cannot be had in part.
    pub(super) fn level(&mut self) -> Result<bool, End> {
        let problem = self.samples.problem;
        let n = self.samples.len();
        // A system on the primal side costs little however many samples there are.
        if n < LEAST || self.core.is_primal(n) {
            return Ok(false);
        }
        let m = n / SHARE;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let mut rows: Vec<u32> = index::sample(&mut rng, n, m).into_iter().map(|i| i as u32).collect();
        rows.sort_unstable();
        let Some(gram) = problem.gram.select(&rows) else { return Ok(false) };
        let take = |from: &[f64], by: f64| rows.iter().map(|&i| by * from[i as usize]).collect::<Vec<f64>>();
        let costs = take(problem.costs, n as f64 / m as f64);
        let targets = take(problem.targets, 1.0);
        let part = KernelProblem { gram: gram.as_ref(), targets: &targets, costs: &costs, ..problem.clone() };
        let options = Options {
            stop: Stop { tol: None, gap: Some(ROUGHLY) },
            start: None,
            start_bias: None,
            iterations: None,
            ..self.options.clone()
        };
        let mut muted = Muted { inner: self.observer, lowest: self.lowest };
        let end = match solve(&part, None, &options, self.control, &mut muted) {
            Ok(end) => end,
            // Without a usable part (one class, no cost) the whole begins from nothing.
            Err(_) => return Ok(false),
        };
        if end.solution.status == Status::Interrupted {
            return Err(End::Done(Status::Interrupted));
        }
        self.control.check()?;
        let mut beta = vec![0.0; n];
        rows.iter().zip(&end.solution.beta).for_each(|(&i, b)| beta[i as usize] = *b);
        self.now.f = self.core.product(self.core.working(), &beta, 1, self.control)?;
        self.now.beta = beta;
        self.now.bias = end.solution.bias.first().copied().unwrap_or(0.0);
        self.now.fresh = false;
        self.record(self.objective(&self.now)?);
        Ok(true)
    }
}
