//! SMO as printed in paper 004 (§3.5, Algorithm 1): a teaching solver.
//!
//! Problem, (70) of the paper: max Σαᵢ − ½ΣΣ αᵢαⱼyᵢyⱼKᵢⱼ subject to Σαᵢyᵢ = 0, 0 ≤ αᵢ ≤ cᵢ: the dual of the soft-margin
//! SVM with the hinge loss and a free bias.
//!
//! Method: sweep over i; for every i that violates a KKT condition draw a random partner j ≠ i, minimise over (αᵢ, αⱼ)
//! alone by (96)–(98), and commit the step if αⱼ moved. `max_passes` consecutive sweeps without a change end one of the
//! T outer iterations.
//!
//! Variables: `alpha` (αᵢ ∈ [0, cᵢ]), `scores` (fᵢ = Σⱼ αⱼyⱼKᵢⱼ, without bias), `bias`. Invariants: Σαᵢyᵢ = 0 and
//! `scores` = K·(αy) up to rounding; the dual objective rises with every committed pair.
//!
//! Cost: O(n) per committed pair (two updates of the scores and the bias), O(1) for every other point visited, two
//! kernel rows per pair, O(n) memory besides the row cache.
//!
//! Departures from the paper:
//! - ρ = y₁α₁ + y₂α₂ and b = yᵢ − Σⱼ αⱼyⱼKᵢⱼ: the printed formulas lack a factor y.
//! - "Update the bias" has no formula in the algorithm. We average (77) over all 0 < α < c, as the text advises, and
//!   take the middle of the feasible interval if there is no such α.
//! - A pair with K₁₁ + K₂₂ − 2K₁₂ ≤ 0 (duplicates, indefinite kernels) moves to the better end of its segment; (96)
//!   would divide by zero.
//! - αⱼ counts as changed if it moved by more than tol·min(1, cⱼ), or far enough to change the scores of the pair by
//!   more than tol. With the plain test |Δα| > tol nothing moves for C < tol or for large kernel values.
//! - The outer loop ends early once no KKT condition is violated, because the remaining iterations would change
//!   nothing. This is verified with recomputed scores.
//! - A run without progress over 300 committed pairs per point (plus 20 000) counts as stalled. Random selection finds
//!   a useful pair less and less often, and the printed algorithm would run for hours at a large C.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{DoubleRowCache, Record, StallDetector, ThrottledObserver, dual_terms, objectives};
use crate::control::{Control, Status};
use crate::error::{Error, Result};
use crate::gram::{Pick, Precision};
use crate::loss::DualTerm;
use crate::observe::{Begin, Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::Solution;

/// What `record_every` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordUnit {
    /// Outer iterations t = 1 … T, as printed.
    #[default]
    Outer,
    /// Sweeps over all points. They show how the objectives approach each other within an outer iteration.
    Sweep,
    /// Committed pairs.
    Pair,
}

/// Options of Algorithm 1, with the paper's names.
#[derive(Debug, Clone, PartialEq)]
pub struct SmoOptions {
    /// Largest violation of a KKT condition, in units of the score, and smallest change of an α.
    pub tol: f64,
    /// T: outer iterations.
    pub max_iterations: u64,
    /// Consecutive sweeps without a change that end an outer iteration.
    pub max_passes: u32,
    /// τ: the number of units between two records; 0: no records.
    pub record_every: u64,
    /// The unit of τ.
    pub record_unit: RecordUnit,
    /// Seed of the random partner selection.
    pub seed: u64,
    /// Largest number of committed pairs; `None`: no limit.
    pub max_pairs: Option<u64>,
    /// Bytes for cached kernel rows.
    pub memory: u64,
}

impl Default for SmoOptions {
    fn default() -> Self {
        Self {
            tol: 1e-3,
            max_iterations: 10,
            max_passes: 5,
            record_every: 1,
            record_unit: RecordUnit::Outer,
            seed: 0,
            max_pairs: None,
            memory: 256 << 20,
        }
    }
}

impl SmoOptions {
    /// Fails if an option is outside its range.
    pub fn check(&self) -> Result<()> {
        if !(self.tol > 0.0 && self.tol.is_finite()) {
            return Err(Error::option("tol", self.tol, "a finite number > 0"));
        }
        if self.max_iterations == 0 {
            return Err(Error::option("max_iterations", self.max_iterations, "a whole number ≥ 1"));
        }
        if self.max_passes == 0 {
            return Err(Error::option("max_passes", self.max_passes, "a whole number ≥ 1"));
        }
        Ok(())
    }
}

/// The result of a run and its history.
#[derive(Debug, Clone)]
pub struct SmoSolution {
    /// The point reached; its iterations are committed pairs.
    pub solution: Solution,
    /// The records taken during the run.
    pub records: Vec<Record>,
    /// Outer iterations started.
    pub outer_iterations: u64,
    /// Sweeps over all points started.
    pub sweeps: u64,
}

/// Trains the hinge-loss SVM with a free bias by Algorithm 1 of paper 004.
pub fn solve(
    problem: &KernelProblem<'_>,
    options: &SmoOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<SmoSolution> {
    options.check()?;
    let terms = dual_terms(problem, "smo")?;
    for (i, term) in terms.iter().enumerate() {
        let (y, c) = (problem.targets[i], problem.costs[i]);
        let hinge = DualTerm { p: -y, eps: 0.0, d: 0.0, lo: (y * c).min(0.0), hi: (y * c).max(0.0) };
        if c > 0.0 && (y.abs() != 1.0 || *term != hinge) {
            return Err(Error::Unsupported {
                solver: "smo",
                what: format!("the {} loss with target {y}: only the hinge with labels ±1", problem.loss(i).name()),
                instead: "the decomposition solver".into(),
            });
        }
    }
    let begin = Begin { solver: "smo", n: problem.len(), tol: Some(options.tol), gap: None };
    let (observer, flow) = ThrottledObserver::begin(observer, &begin);
    let n = problem.len();
    let control = &control.for_run(crate::solver::pass(problem));
    let mut run = SmoRun {
        problem,
        options,
        control,
        observer,
        diag: problem.gram.diag(),
        rows: DoubleRowCache::new(problem.gram, options.memory),
        rng: ChaCha8Rng::seed_from_u64(options.seed),
        terms,
        alpha: vec![0.0; n],
        scores: vec![0.0; n],
        bias: 0.0,
        pairs: 0,
        sweeps: 0,
        outer: 0,
        records: Vec::new(),
        stall: StallDetector::new(),
    };
    let status = if flow.is_break() { Status::Interrupted } else { run.iterate().unwrap_or_else(|status| status) };
    Ok(run.finish(status))
}

struct SmoRun<'a> {
    problem: &'a KernelProblem<'a>,
    options: &'a SmoOptions,
    control: &'a Control,
    observer: ThrottledObserver<'a>,
    diag: Vec<f64>,
    rows: DoubleRowCache<'a>,
    rng: ChaCha8Rng,
    terms: Vec<DualTerm>,
    alpha: Vec<f64>,
    scores: Vec<f64>,
    bias: f64,
    pairs: u64,
    sweeps: u64,
    outer: u64,
    records: Vec<Record>,
    stall: StallDetector,
}

impl SmoRun<'_> {
    fn iterate(&mut self) -> Result<Status, Status> {
        let mut changed_in_last = 0;
        for t in 1..=self.options.max_iterations {
            self.outer = t;
            changed_in_last = 0;
            let mut passes = 0;
            while passes < self.options.max_passes {
                let changes = self.sweep()?;
                changed_in_last += changes;
                passes = if changes == 0 { passes + 1 } else { 0 };
            }
            // If no point could move (one class, zero costs), the bias has not been set yet.
            self.update_bias();
            self.record(RecordUnit::Outer, t);
            if self.violation() <= self.options.tol {
                self.refresh()?;
                if self.violation() <= self.options.tol {
                    return Ok(Status::Optimal);
                }
            }
        }
        Ok(if changed_in_last > 0 { Status::IterationLimit } else { Status::Stalled })
    }

    /// Recomputes scores and bias from α. The current ones have accumulated the rounding of all updates.
    fn refresh(&mut self) -> Result<(), Status> {
        let beta = self.beta();
        self.problem.gram.apply(Precision::Double, Pick::All, &beta, 1, &mut self.scores, self.control)?;
        self.update_bias();
        Ok(())
    }

    /// One pass over all points; returns the number of pairs changed.
    fn sweep(&mut self) -> Result<u64, Status> {
        let n = self.alpha.len();
        self.sweeps += 1;
        self.control.spend(20 * n);
        self.control.note(Some(self.violation()), None);
        let mut changes = 0;
        for i in 0..n {
            if i % 1024 == 0 {
                self.poll()?;
            }
            if n < 2 || self.violation_of(i) <= self.options.tol {
                continue;
            }
            let draw = self.rng.random_range(0..n - 1);
            let j = if draw >= i { draw + 1 } else { draw };
            if self.optimise_pair(i, j)? {
                changes += 1;
                self.pairs += 1;
                self.control.spend(4 * n + 200);
                self.record(RecordUnit::Pair, self.pairs);
                self.poll()?;
                if self.options.max_pairs.is_some_and(|limit| self.pairs >= limit) {
                    return Err(Status::IterationLimit);
                }
                if self.stall.due(self.pairs, n) {
                    self.refresh()?;
                    let now = objectives(self.problem, &self.terms, &self.beta(), &self.scores, self.bias);
                    if !self.stall.has_progress(self.pairs, now) {
                        return Err(if self.violation() <= self.options.tol {
                            Status::Optimal
                        } else {
                            Status::Stalled
                        });
                    }
                }
            }
        }
        self.record(RecordUnit::Sweep, self.sweeps);
        Ok(changes)
    }

    /// How far point i is from its KKT condition: α = 0 ⇒ yg ≥ 1, 0 < α < c ⇒ yg = 1, α = c ⇒ yg ≤ 1.
    fn violation_of(&self, i: usize) -> f64 {
        let slack = self.problem.targets[i] * (self.scores[i] + self.bias) - 1.0;
        let mut worst = 0.0f64;
        if self.alpha[i] < self.problem.costs[i] {
            worst = worst.max(-slack);
        }
        if self.alpha[i] > 0.0 {
            worst = worst.max(slack);
        }
        worst
    }

    fn violation(&self) -> f64 {
        (0..self.alpha.len()).map(|i| self.violation_of(i)).fold(0.0, f64::max)
    }

    /// Minimises (79) over (αᵢ, αⱼ); returns whether they moved.
    fn optimise_pair(&mut self, i: usize, j: usize) -> Result<bool, Status> {
        let (y, c) = (self.problem.targets, self.problem.costs);
        let (ai, aj) = (self.alpha[i], self.alpha[j]);
        let (low, high) = if y[i] == y[j] {
            ((ai + aj - c[i]).max(0.0), (ai + aj).min(c[j]))
        } else {
            ((aj - ai).max(0.0), (c[i] + aj - ai).min(c[j]))
        };
        if low >= high {
            return Ok(false);
        }
        let row_i = self.rows.get(i, self.control)?;
        let kappa = self.diag[i] + self.diag[j] - 2.0 * row_i[j];
        let (ei, ej) = (self.scores[i] - y[i], self.scores[j] - y[j]);
        // Errors that are equal up to rounding give no direction.
        if (ei - ej).abs() <= 1e-13 * (1.0 + ei.abs() + ej.abs()) {
            return Ok(false);
        }
        let flat = kappa <= 1e-14 * (self.diag[i].abs() + self.diag[j].abs());
        let moved = if flat {
            let change = |a: f64| y[j] * (ej - ei) * (a - aj) + 0.5 * kappa * (a - aj) * (a - aj);
            if change(low) < change(high) { low } else { high }
        } else {
            (aj + y[j] * (ei - ej) / kappa).clamp(low, high)
        };
        let step = (moved - aj).abs();
        let tol = self.options.tol;
        if step <= tol * c[j].min(1.0) && step * kappa <= tol {
            return Ok(false);
        }
        let row_j = self.rows.get(j, self.control)?;
        let partner = ai + y[i] * y[j] * (aj - moved);
        self.alpha[i] = snap_to_bound(partner, c[i]);
        self.alpha[j] = snap_to_bound(moved, c[j]);
        let (di, dj) = (y[i] * (self.alpha[i] - ai), y[j] * (self.alpha[j] - aj));
        for (k, score) in self.scores.iter_mut().enumerate() {
            *score += di * row_i[k] + dj * row_j[k];
        }
        self.update_bias();
        Ok(true)
    }

    /// (77) averaged over the free points; the middle of the feasible interval if there are none.
    fn update_bias(&mut self) {
        let (mut sum, mut free) = (0.0, 0u64);
        let (mut lower, mut upper) = (f64::NEG_INFINITY, f64::INFINITY);
        for (i, &a) in self.alpha.iter().enumerate() {
            let (y, c) = (self.problem.targets[i], self.problem.costs[i]);
            let b = y - self.scores[i];
            if c == 0.0 {
                continue;
            }
            if a > 0.0 && a < c {
                sum += b;
                free += 1;
            } else if (a == 0.0) == (y > 0.0) {
                lower = lower.max(b);
            } else {
                upper = upper.min(b);
            }
        }
        self.bias = match (free, lower.is_finite(), upper.is_finite()) {
            (1.., _, _) => sum / free as f64,
            (0, true, true) => 0.5 * (lower + upper),
            (0, true, false) => lower,
            (0, false, true) => upper,
            (0, false, false) => 0.0,
        };
    }

    fn beta(&self) -> Vec<f64> {
        // + 0.0 turns the −0 of α = 0 with a negative label into 0.
        self.alpha.iter().zip(self.problem.targets).map(|(a, y)| a * y + 0.0).collect()
    }

    fn record(&mut self, unit: RecordUnit, count: u64) {
        let every = self.options.record_every;
        if unit != self.options.record_unit || every == 0 || !count.is_multiple_of(every) {
            return;
        }
        let beta = self.beta();
        let (primal, dual) = objectives(self.problem, &self.terms, &beta, &self.scores, self.bias);
        self.records.push(Record { iteration: count, primal, dual, beta, bias: self.bias });
    }

    fn poll(&mut self) -> Result<(), Status> {
        self.control.check()?;
        if self.observer.due() {
            let step = self.report();
            self.observer.step(&step)?;
        }
        Ok(())
    }

    fn report(&self) -> Step {
        let (primal, dual) = objectives(self.problem, &self.terms, &self.beta(), &self.scores, self.bias);
        Step {
            iteration: self.pairs,
            seconds: self.control.seconds(),
            phase: "smo",
            violation: Some(self.violation()),
            primal: Some(primal),
            dual: Some(dual),
            kernel_entries: Some(self.problem.gram.entries()),
            ..Step::default()
        }
    }

    fn finish(self, status: Status) -> SmoSolution {
        let last = self.report();
        self.observer.inner.finish(status, &last);
        SmoSolution {
            solution: Solution {
                beta: self.beta(),
                bias: vec![self.bias],
                violation: self.violation(),
                exact: None,
                scores: Some(self.scores),
                status,
                iterations: self.pairs,
            },
            records: self.records,
            outer_iterations: self.outer,
            sweeps: self.sweeps,
        }
    }
}

/// Moves an α that is at a bound up to rounding exactly onto it, so that "at the bound" is an exact comparison.
fn snap_to_bound(a: f64, c: f64) -> f64 {
    let rounding = 1e-14 * c;
    if a <= rounding {
        0.0
    } else if a >= c - rounding {
        c
    } else {
        a
    }
}
