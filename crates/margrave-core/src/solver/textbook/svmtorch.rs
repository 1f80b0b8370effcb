//! SVMTorch as printed in paper 001 (Algorithm 1): decomposition on 2l separate variables, worst violating pair.
//!
//! Problem, (6)–(8) of the paper: min ½ηᵀK̃η − ηᵀb subject to Σηᵥ = 0, 0 ≤ δᵥηᵥ ≤ c, with η = (α; −α*), K̃ = [K K; K
//! K], b = (−y − ε; −y + ε), δ = +1 for the first l variables and −1 for the others. The paper calls η β; here β
//! remains the coefficient of f, so βᵢ = −(ηᵢ + ηᵢ₊ₗ).
//!
//! Method: i₀ = argmax of F over the variables that can decrease, i₁ = argmin of F over those that can increase, where
//! Fᵥ = δᵥW′ᵥ = (K̃η − b)ᵥ (9). The two-variable problem is solved analytically. This is repeated until the stop rule
//! holds: rule (10) requires every F to be within tol of −λ̂ᵉᑫ, the average of F over the free variables (11); rule
//! (13) requires the worst pair to differ by at most tol. (13) implies (10), so (10) stops no later.
//!
//! Shrinking, optional, is the heuristic of the paper: a variable that stayed at a bound, on the right side of all
//! others, for many iterations is removed from the active set. The convergence proof does not cover it. Therefore, when
//! the rule holds for the active variables, every F is recomputed and the rule is checked on all variables. After
//! [`MAX_RECHECKS`] failures shrinking is switched off, and the proof applies from then on.
//!
//! Variables: `eta` (2l), `u` = K(η₁…ₗ + ηₗ₊₁…₂ₗ) = −f without bias (l values, since both copies share a row of K).
//! Invariants: Σηᵥ = 0 up to rounding; `u` is exact up to rounding on the rows of active variables; W never rises.
//!
//! Cost per iteration: O(active) for selection and update, and two kernel rows. Memory: O(l) besides the row cache.
//!
//! Departures from the paper:
//! - Bounds, linear part and tube come from the dual term of the loss, so that every loss with d = 0 is covered, not
//!   only the ε-insensitive loss: absolute, pinball and hinge are all instances of the paper's general form (12). A
//!   variable whose box is a single point is left out ((12) requires a < b).
//! - The rule is also verified before the first step: β = 0 may be optimal.
//! - Without a free variable (11) is 0/0; −λ̂ᵉᑫ is then the middle of the feasible interval.
//! - K₀₀ + K₁₁ − 2K₀₁ ≤ 0 (duplicates, both copies of one point, indefinite kernels): the pair moves to the end of its
//!   segment along which the objective falls.
//! - The rule is verified with a recomputed F. A run without progress over 300 iterations per variable (plus 20 000)
//!   counts as stalled: at a large cost, selecting only the worst pair may take hours.

use super::{DoubleRowCache, Record, StallDetector, ThrottledObserver, dual_terms, objectives};
use crate::control::{Control, Interrupt, Status};
use crate::error::{Error, Result};
use crate::gram::{Pick, Precision};
use crate::loss::DualTerm;
use crate::observe::{Begin, Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::Solution;

/// Number of failed rechecks after which shrinking is switched off.
pub const MAX_RECHECKS: u32 = 10;

/// When the algorithm stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopRule {
    /// (10): every F is within tol of the average over the free variables. The rule of the paper.
    #[default]
    Average,
    /// (13): the worst pair differs by at most tol. Stronger; the tolerance of most other solvers.
    Pair,
}

/// Options of Algorithm 1.
#[derive(Debug, Clone, PartialEq)]
pub struct SvmTorchOptions {
    /// τ of the stop rule, in units of the score.
    pub tol: f64,
    /// The stop rule.
    pub rule: StopRule,
    /// Remove a variable from the active set after this many iterations at a bound; `None`: no shrinking.
    pub shrink_after: Option<u64>,
    /// Number of iterations between two records; 0: no records.
    pub record_every: u64,
    /// Largest number of iterations; `None`: no limit.
    pub max_iterations: Option<u64>,
    /// Bytes for cached kernel rows.
    pub memory: u64,
}

impl Default for SvmTorchOptions {
    fn default() -> Self {
        Self {
            tol: 1e-3,
            rule: StopRule::Average,
            shrink_after: None,
            record_every: 0,
            max_iterations: None,
            memory: 256 << 20,
        }
    }
}

impl SvmTorchOptions {
    /// Fails if an option is outside its range.
    pub fn check(&self) -> Result<()> {
        if !(self.tol > 0.0 && self.tol.is_finite()) {
            return Err(Error::option("tol", self.tol, "a finite number > 0"));
        }
        if self.shrink_after == Some(0) {
            return Err(Error::option("shrink_after", 0, "a whole number ≥ 1, or none"));
        }
        Ok(())
    }
}

/// The result of a run, with the quantities of the paper at that point.
#[derive(Debug, Clone)]
pub struct SvmTorchSolution {
    /// The point reached; its violation is that of the chosen rule.
    pub solution: Solution,
    /// The records taken during the run.
    pub records: Vec<Record>,
    /// λ̂ᵉᑫ of (11) at the end; the bias is −λ̂ᵉᑫ.
    pub lambda_eq: f64,
    /// Largest distance of an F from −λ̂ᵉᑫ on the wrong side: the quantity bounded by rule (10).
    pub violation_average: f64,
    /// max F − min F over the worst pair: the quantity bounded by rule (13).
    pub violation_pair: f64,
    /// Number of times all variables were rechecked after shrinking.
    pub rechecks: u32,
    /// Smallest size of the active set during the run.
    pub smallest_active: usize,
}

/// Solves a problem with a free bias and a loss whose dual has no quadratic part by Algorithm 1 of paper 001.
pub fn solve(
    problem: &KernelProblem<'_>,
    options: &SvmTorchOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<SvmTorchSolution> {
    options.check()?;
    let terms = dual_terms(problem, "svmtorch")?;
    if let Some(i) = terms.iter().position(|t| t.d != 0.0 || !t.lo.is_finite() || !t.hi.is_finite()) {
        return Err(Error::Unsupported {
            solver: "svmtorch",
            what: format!("the {} loss, whose dual has a quadratic part or no box", problem.loss(i).name()),
            instead: "the decomposition solver".into(),
        });
    }
    let n = problem.len();
    let control = &control.for_run(crate::solver::pass(problem));
    let begin = Begin { solver: "svmtorch", n, tol: Some(options.tol), gap: None };
    let (observer, flow) = ThrottledObserver::begin(observer, &begin);
    let bounds: Vec<(f64, f64)> =
        terms.iter().map(|t| (0.0, -t.lo)).chain(terms.iter().map(|t| (-t.hi, 0.0))).collect();
    let all: Vec<u32> = (0..2 * n as u32).filter(|&v| bounds[v as usize].0 < bounds[v as usize].1).collect();
    let mut run = SvmTorchRun {
        problem,
        options,
        control,
        observer,
        diag: problem.gram.diag(),
        rows: DoubleRowCache::new(problem.gram, options.memory),
        eta: vec![0.0; 2 * n],
        u: vec![0.0; n],
        stuck_since: vec![0; 2 * n],
        active_rows: rows_of(&all, n),
        smallest_active: all.len(),
        active: all.clone(),
        all,
        bounds,
        terms,
        worst: WorstPair::default(),
        shrinking: options.shrink_after.is_some(),
        rechecks: 0,
        iterations: 0,
        objective: 0.0,
        records: Vec::new(),
    };
    run.worst = run.select();
    let status = if flow.is_break() { Status::Interrupted } else { run.iterate().unwrap_or_else(|status| status) };
    Ok(run.finish(status))
}

/// The rows of K that belong to the variables of the list, ascending.
fn rows_of(variables: &[u32], n: usize) -> Vec<u32> {
    let mut rows: Vec<u32> = variables.iter().map(|v| v % n as u32).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// The worst pair found by a scan, and the average of F over the free variables.
#[derive(Debug, Clone, Copy, Default)]
struct WorstPair {
    /// i₀ and its F, the largest among the variables that can decrease.
    down: Option<(usize, f64)>,
    /// i₁ and its F, the smallest among the variables that can increase.
    up: Option<(usize, f64)>,
    /// −λ̂ᵉᑫ.
    level: f64,
}

impl WorstPair {
    fn violation(&self, rule: StopRule) -> f64 {
        match (self.down, self.up, rule) {
            (Some((_, high)), Some((_, low)), StopRule::Pair) => (high - low).max(0.0),
            (Some((_, high)), Some((_, low)), StopRule::Average) => (high - self.level).max(self.level - low).max(0.0),
            _ => 0.0,
        }
    }
}

struct SvmTorchRun<'a> {
    problem: &'a KernelProblem<'a>,
    options: &'a SvmTorchOptions,
    control: &'a Control,
    observer: ThrottledObserver<'a>,
    diag: Vec<f64>,
    rows: DoubleRowCache<'a>,
    terms: Vec<DualTerm>,
    bounds: Vec<(f64, f64)>,
    eta: Vec<f64>,
    u: Vec<f64>,
    /// Variables whose box is not a single point.
    all: Vec<u32>,
    active: Vec<u32>,
    active_rows: Vec<u32>,
    /// The iteration since which a variable has been at a bound and part of no violating pair.
    stuck_since: Vec<u64>,
    worst: WorstPair,
    shrinking: bool,
    rechecks: u32,
    smallest_active: usize,
    iterations: u64,
    /// W of (6).
    objective: f64,
    records: Vec<Record>,
}

impl SvmTorchRun<'_> {
    fn f(&self, v: usize) -> f64 {
        let n = self.u.len();
        let (row, sign) = if v < n { (v, 1.0) } else { (v - n, -1.0) };
        self.u[row] - self.terms[row].p + sign * self.terms[row].eps
    }

    fn iterate(&mut self) -> Result<Status, Status> {
        let mut idle = 0;
        let mut stall = StallDetector::new();
        loop {
            if self.worst.violation(self.options.rule) <= self.options.tol {
                if self.active.len() < self.all.len() {
                    self.unshrink()?;
                    continue;
                }
                // The current F have accumulated the rounding of all updates.
                self.refresh()?;
                if self.worst.violation(self.options.rule) <= self.options.tol {
                    return Ok(Status::Optimal);
                }
            }
            if self.options.max_iterations.is_some_and(|limit| self.iterations >= limit) {
                return Err(Status::IterationLimit);
            }
            self.control.check()?;
            if stall.due(self.iterations, self.all.len()) {
                if self.active.len() < self.all.len() {
                    self.unshrink()?;
                }
                self.refresh()?;
                let (beta, scores) = (self.beta(), self.scores()?);
                let now = objectives(self.problem, &self.terms, &beta, &scores, self.worst.level);
                if !stall.has_progress(self.iterations, now) {
                    return Err(Status::Stalled);
                }
                continue;
            }
            self.control.note(Some(self.worst.violation(self.options.rule)), None);
            self.control.spend(12 * self.active.len() + 200);
            let before = self.objective;
            self.step()?;
            // At full precision the worst pair still differs by rounding: end the run instead of looping forever.
            idle = if self.objective < before { 0 } else { idle + 1 };
            if idle > 1000 + self.all.len() {
                return Err(Status::Stalled);
            }
            self.iterations += 1;
            if self.options.record_every > 0 && self.iterations.is_multiple_of(self.options.record_every) {
                self.record()?;
            }
            if let Some(after) = self.options.shrink_after
                && self.shrinking
                && self.iterations.is_multiple_of(after)
            {
                self.shrink(after);
            }
            self.worst = self.select();
            if self.observer.due() {
                let step = self.report();
                self.observer.step(&step)?;
            }
        }
    }

    /// (9) and (11) over the active variables.
    fn select(&mut self) -> WorstPair {
        let before = self.worst;
        let (mut down, mut up): (Option<(usize, f64)>, Option<(usize, f64)>) = (None, None);
        let (mut sum, mut free) = (0.0, 0u64);
        for at in 0..self.active.len() {
            let v = self.active[at] as usize;
            let f = self.f(v);
            let (low, high) = self.bounds[v];
            let (can_fall, can_rise) = (self.eta[v] > low, self.eta[v] < high);
            if can_fall && down.is_none_or(|(_, best)| f > best) {
                down = Some((v, f));
            }
            if can_rise && up.is_none_or(|(_, best)| f < best) {
                up = Some((v, f));
            }
            let stuck = match (can_fall, can_rise) {
                (true, true) => {
                    sum += f;
                    free += 1;
                    false
                }
                (true, false) => before.up.is_some_and(|(_, least)| f < least),
                (false, _) => before.down.is_some_and(|(_, most)| f > most),
            };
            if !stuck {
                self.stuck_since[v] = self.iterations;
            }
        }
        let level = match (free, down, up) {
            (1.., _, _) => sum / free as f64,
            (_, Some((_, high)), Some((_, low))) => 0.5 * (high + low),
            (_, Some((_, end)), None) | (_, None, Some((_, end))) => end,
            (_, None, None) => 0.0,
        };
        WorstPair { down, up, level }
    }

    /// Minimises (6) over the worst pair.
    fn step(&mut self) -> Result<(), Status> {
        let (Some((v0, f0)), Some((v1, f1))) = (self.worst.down, self.worst.up) else {
            return Err(Status::Stalled);
        };
        let n = self.u.len();
        let (r0, r1) = (v0 % n, v1 % n);
        let row0 = self.rows.get(r0, self.control)?;
        let row1 = self.rows.get(r1, self.control)?;
        let kappa = self.diag[r0] + self.diag[r1] - 2.0 * row0[r1];
        let (room0, room1) = (self.eta[v0] - self.bounds[v0].0, self.bounds[v1].1 - self.eta[v1]);
        let room = room0.min(room1);
        let flat = kappa <= 1e-14 * (self.diag[r0].abs() + self.diag[r1].abs());
        let t = if flat { room } else { ((f0 - f1) / kappa).min(room) };
        // A bound is reached exactly, so that "at the bound" remains an exact comparison.
        self.eta[v0] = if t >= room0 { self.bounds[v0].0 } else { self.eta[v0] - t };
        self.eta[v1] = if t >= room1 { self.bounds[v1].1 } else { self.eta[v1] + t };
        self.objective += t * (f1 - f0) + 0.5 * kappa * t * t;
        if r0 != r1 {
            for &r in &self.active_rows {
                let r = r as usize;
                self.u[r] += t * (row1[r] - row0[r]);
            }
        }
        Ok(())
    }

    fn shrink(&mut self, after: u64) {
        let (now, since) = (self.iterations, &self.stuck_since);
        self.active.retain(|&v| now - since[v as usize] < after);
        self.active_rows = rows_of(&self.active, self.u.len());
        self.smallest_active = self.smallest_active.min(self.active.len());
    }

    /// Computes u = K(η₁…ₗ + ηₗ₊₁…₂ₗ) of the given rows.
    fn products(&self, rows: &[u32], out: &mut [f64]) -> Result<(), Interrupt> {
        let n = self.u.len();
        let sums: Vec<f64> = (0..n).map(|i| self.eta[i] + self.eta[i + n]).collect();
        self.problem.gram.apply(Precision::Double, Pick::List(rows), &sums, 1, out, self.control)
    }

    /// Makes every variable active again, with a recomputed F.
    fn unshrink(&mut self) -> Result<(), Status> {
        let stale = self.stale_rows();
        let mut fresh = vec![0.0; stale.len()];
        self.products(&stale, &mut fresh)?;
        stale.iter().zip(&fresh).for_each(|(&r, &u)| self.u[r as usize] = u);
        self.active.clone_from(&self.all);
        self.active_rows = rows_of(&self.all, self.u.len());
        self.stuck_since.fill(self.iterations);
        self.rechecks += 1;
        self.shrinking = self.rechecks < MAX_RECHECKS;
        self.worst = self.select();
        Ok(())
    }

    /// Recomputes F of all variables, which must all be active, and selects the worst pair.
    fn refresh(&mut self) -> Result<(), Interrupt> {
        let rows: Vec<u32> = (0..self.u.len() as u32).collect();
        let mut fresh = vec![0.0; rows.len()];
        self.products(&rows, &mut fresh)?;
        self.u = fresh;
        self.worst = self.select();
        Ok(())
    }

    fn stale_rows(&self) -> Vec<u32> {
        let mut fresh = vec![false; self.u.len()];
        self.active_rows.iter().for_each(|&r| fresh[r as usize] = true);
        // A row without a movable variable is never updated, but its score is part of the solution.
        (0..self.u.len() as u32).filter(|&r| !fresh[r as usize]).collect()
    }

    /// K·β of every row, exact up to rounding.
    fn scores(&self) -> Result<Vec<f64>, Interrupt> {
        let stale = self.stale_rows();
        let mut scores: Vec<f64> = self.u.iter().map(|u| -u).collect();
        if !stale.is_empty() {
            let mut fresh = vec![0.0; stale.len()];
            self.products(&stale, &mut fresh)?;
            stale.iter().zip(&fresh).for_each(|(&r, &u)| scores[r as usize] = -u);
        }
        Ok(scores)
    }

    fn beta(&self) -> Vec<f64> {
        let n = self.u.len();
        (0..n).map(|i| 0.0 - (self.eta[i] + self.eta[i + n])).collect()
    }

    fn record(&mut self) -> Result<(), Status> {
        // The level of the last scan is that of the point before the step.
        let bias = self.select().level;
        let (beta, scores) = (self.beta(), self.scores()?);
        let (primal, dual) = objectives(self.problem, &self.terms, &beta, &scores, bias);
        self.records.push(Record { iteration: self.iterations, primal, dual, beta, bias });
        Ok(())
    }

    fn report(&self) -> Step {
        Step {
            iteration: self.iterations,
            seconds: self.control.seconds(),
            phase: "svmtorch",
            violation: Some(self.worst.violation(self.options.rule)),
            dual: Some(-self.objective),
            active: Some(self.active.len()),
            kernel_entries: Some(self.problem.gram.entries()),
            ..Step::default()
        }
    }

    fn finish(self, status: Status) -> SvmTorchSolution {
        let last = self.report();
        // A run that ended early returns scores only if that needs no kernel row.
        let scores = match status {
            Status::Optimal => self.scores().ok(),
            _ if self.stale_rows().is_empty() => self.scores().ok(),
            _ => None,
        };
        self.observer.inner.finish(status, &last);
        SvmTorchSolution {
            solution: Solution {
                beta: self.beta(),
                bias: vec![self.worst.level],
                exact: None,
                scores,
                status,
                iterations: self.iterations,
                violation: self.worst.violation(self.options.rule),
            },
            records: self.records,
            lambda_eq: -self.worst.level,
            violation_average: self.worst.violation(StopRule::Average),
            violation_pair: self.worst.violation(StopRule::Pair),
            rechecks: self.rechecks,
            smallest_active: self.smallest_active,
        }
    }
}
