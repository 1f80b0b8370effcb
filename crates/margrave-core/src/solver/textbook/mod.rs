//! Solvers as two papers print them: for teaching, for reproducing the papers, and as slow, independent witnesses of
//! the fast ones. [`smo`] is Algorithm 1 of paper 004, [`svmtorch`] Algorithm 1 of paper 001.

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

/// The state of a run at one moment: objectives and every parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The count at which it was taken, in the unit asked for.
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

/// The dual terms of a problem with one variable a row and a free bias; an error that names another solver otherwise.
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

/// Rows of K in double precision, the oldest dropped first. The fast solvers' cache holds single precision; a textbook
/// solver is a witness and affords the double.
struct Rows<'a> {
    gram: &'a dyn Gram,
    capacity: usize,
    rows: HashMap<u32, Arc<[f64]>>,
    order: VecDeque<u32>,
}

impl<'a> Rows<'a> {
    /// Keeps as many rows as fit in `bytes`, at least two.
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

/// Ends a run that goes on without getting anywhere: within every [`Stall::window`] of iterations the gap between the lowest P
/// and D must fall by a tenth, or D rise by a twentieth.
struct Stall {
    primal: f64,
    dual: f64,
    since: u64,
}

impl Stall {
    fn new() -> Self {
        Self { primal: f64::INFINITY, dual: f64::NEG_INFINITY, since: 0 }
    }

    /// Iterations between two looks, for so many variables.
    fn window(variables: usize) -> u64 {
        300 * variables as u64 + 20_000
    }

    /// Whether the objectives should be looked at now.
    fn due(&self, iterations: u64, variables: usize) -> bool {
        iterations - self.since >= Self::window(variables)
    }

    /// Notes the objectives at a look, computed in double precision from β; false without progress since the last.
    fn goes_on(&mut self, iterations: u64, (primal, dual): (f64, f64)) -> bool {
        let before = (self.primal, self.dual);
        self.since = iterations;
        (self.primal, self.dual) = (self.primal.min(primal), self.dual.max(dual));
        let first = before.1 == f64::NEG_INFINITY;
        first || self.primal - self.dual <= 0.9 * (before.0 - before.1) || self.dual - before.1 >= 0.05 * before.1.abs()
    }
}

/// Speaks to the observer at most every 20 ms, so that small problems are not slowed and large ones stay watched.
struct Pulse<'a> {
    observer: &'a mut dyn Observer,
    last: Instant,
}

impl<'a> Pulse<'a> {
    const PERIOD: Duration = Duration::from_millis(20);

    fn begin(observer: &'a mut dyn Observer, begin: &Begin) -> (Self, ControlFlow<()>) {
        let flow = observer.begin(begin);
        (Self { observer, last: Instant::now() }, flow)
    }

    fn due(&self) -> bool {
        self.last.elapsed() >= Self::PERIOD
    }

    fn step(&mut self, step: &Step) -> Result<(), Status> {
        self.last = Instant::now();
        match self.observer.step(step) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Status::Interrupted),
        }
    }
}
