//! Solvers as printed in two papers: for teaching, for reproducing the papers, and as slow, independent references for
//! the fast solvers. [`smo`] is Algorithm 1 of paper 004, [`svmtorch`] Algorithm 1 of paper 001.

pub mod smo;
pub mod svmtorch;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::{Control, Interrupt, Status};
use crate::error::{Error, Result};
use crate::gram::{Gram, Pick};
use crate::loss::DualTerm;
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Constraint, KernelProblem};

/// A snapshot of a run: the objectives and all parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The count at which the snapshot was taken, in the unit of the options.
    pub iteration: u64,
    /// P at (β, b).
    pub primal: f64,
    /// D at β.
    pub dual: f64,
    /// Signed dual variables, β = yα.
    pub beta: Vec<f64>,
    /// The bias.
    pub bias: f64,
}

/// P and D at a feasible β, from `scores` = K·β.
fn objectives(problem: &KernelProblem<'_>, terms: &[DualTerm], beta: &[f64], scores: &[f64], bias: f64) -> (f64, f64) {
    let (mut half_norm, mut losses, mut conjugates) = (0.0, 0.0, 0.0);
    for (i, term) in terms.iter().enumerate() {
        half_norm += 0.5 * beta[i] * scores[i];
        conjugates += term.p * beta[i] + term.eps * beta[i].abs() + 0.5 * term.d * beta[i] * beta[i];
        if problem.costs[i] > 0.0 {
            losses += problem.costs[i] * problem.loss(i).value(problem.targets[i], scores[i] + bias);
        }
    }
    (half_norm + losses, -half_norm - conjugates)
}

/// The dual terms of a problem with one variable per row and a free bias. The error for any other problem names a
/// solver that supports it.
fn dual_terms(problem: &KernelProblem<'_>, solver: &'static str) -> Result<Vec<DualTerm>> {
    problem.check()?;
    let unsupported =
        |what: String, instead: &str| Err(Error::Unsupported { solver, what, instead: instead.to_string() });
    if problem.constraint != Constraint::free_bias() {
        return unsupported("any constraint but a free bias (Σβ = 0)".into(), "the decomposition solver");
    }
    if problem.row_of.is_some() {
        return unsupported("several variables on one row".into(), "the decomposition solver");
    }
    let mut terms = Vec::with_capacity(problem.len());
    for i in 0..problem.len() {
        match problem.dual_term(i) {
            Some(term) => terms.push(term),
            None => return unsupported(format!("the {} loss", problem.loss(i).name()), "the irwls solver"),
        }
    }
    Ok(terms)
}

/// A cache of rows of K in double precision that evicts the oldest row first. The fast solvers cache single precision;
/// a reference solver can afford double precision.
struct DoubleRowCache<'a> {
    gram: &'a dyn Gram,
    capacity: usize,
    rows: HashMap<u32, Arc<[f64]>>,
    order: VecDeque<u32>,
}

impl<'a> DoubleRowCache<'a> {
    /// A cache of as many rows as fit in `bytes`, at least two.
    fn new(gram: &'a dyn Gram, bytes: u64) -> Self {
        let row = (gram.shape().1.max(1) * size_of::<f64>()) as u64;
        let capacity = usize::try_from(bytes / row).unwrap_or(usize::MAX).max(2);
        Self { gram, capacity, rows: HashMap::new(), order: VecDeque::new() }
    }

    fn get(&mut self, i: usize, control: &Control) -> Result<Arc<[f64]>, Interrupt> {
        let number = i as u32;
        if let Some(row) = self.rows.get(&number) {
            return Ok(row.clone());
        }
        let mut values = vec![0.0; self.gram.shape().1];
        self.gram.block_f64(Pick::List(&[number]), Pick::All, &mut values, control)?;
        if self.order.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.rows.remove(&oldest);
        }
        let row: Arc<[f64]> = values.into();
        self.rows.insert(number, row.clone());
        self.order.push_back(number);
        Ok(row)
    }
}

/// Detects a run without progress: within every [`StallDetector::window`] of iterations the gap between the lowest P
/// and the highest D must fall by 10 %, or D must rise by 5 %.
struct StallDetector {
    primal: f64,
    dual: f64,
    since: u64,
}

impl StallDetector {
    fn new() -> Self {
        Self { primal: f64::INFINITY, dual: f64::NEG_INFINITY, since: 0 }
    }

    /// Iterations between two checks.
    fn window(variables: usize) -> u64 {
        300 * variables as u64 + 20_000
    }

    /// Whether a check is due.
    fn due(&self, iterations: u64, variables: usize) -> bool {
        iterations - self.since >= Self::window(variables)
    }

    /// Records the objectives, computed in double precision from β; false without progress since the last check.
    fn has_progress(&mut self, iterations: u64, (primal, dual): (f64, f64)) -> bool {
        let before = (self.primal, self.dual);
        self.since = iterations;
        (self.primal, self.dual) = (self.primal.min(primal), self.dual.max(dual));
        let first = before.1 == f64::NEG_INFINITY;
        first || self.primal - self.dual <= 0.9 * (before.0 - before.1) || self.dual - before.1 >= 0.05 * before.1.abs()
    }
}

/// Reports to the observer at most every 20 ms, so that small problems are not slowed down.
struct ThrottledObserver<'a> {
    inner: &'a mut dyn Observer,
    last: Instant,
}

impl<'a> ThrottledObserver<'a> {
    const PERIOD: Duration = Duration::from_millis(20);

    fn begin(observer: &'a mut dyn Observer, begin: &Begin) -> (Self, ControlFlow<()>) {
        let flow = observer.begin(begin);
        (Self { inner: observer, last: Instant::now() }, flow)
    }

    fn due(&self) -> bool {
        self.last.elapsed() >= Self::PERIOD
    }

    fn step(&mut self, step: &Step) -> Result<(), Status> {
        self.last = Instant::now();
        match self.inner.step(step) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Status::Interrupted),
        }
    }
}
