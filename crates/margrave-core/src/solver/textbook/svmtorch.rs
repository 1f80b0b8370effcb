//! SVMTorch as paper 001 prints it (Algorithm 1): decomposition on 2l separate variables, worst violating pair.
//!
//! Problem, (6)–(8) of the paper: min ½ηᵀK̃η − ηᵀb subject to Σηᵥ = 0, 0 ≤ δᵥηᵥ ≤ c, with η = (α; −α*), K̃ = [K K; K K],
//! b = (−y − ε; −y + ε), δ = +1 for the first l variables and −1 for the others. The paper calls η β; here β stays the
//! coefficient of f, so βᵢ = −(ηᵢ + ηᵢ₊ₗ).
//!
//! Method: i₀ = argmax of F over those that can move down, i₁ = argmin of F over those that can move up, where
//! Fᵥ = δᵥW′ᵥ = (K̃η − b)ᵥ (9); the two-variable problem is solved analytically; repeat until the stop rule holds. Rule
//! (10) compares every F with −λ̂ᵉᑫ, the average of F over the free variables (11), within tol; rule (13) asks that the
//! worst pair differ by no more than tol. (13) implies (10), so (10) stops no later.
//!
//! Shrinking, optional, is the paper's heuristic: a variable that stayed at a bound, on the right side of all others,
//! for many iterations is left out. The proof of convergence does not cover it, so when the rule holds for the rest,
//! every F is computed afresh and the rule is asked of all variables again; after [`MAX_RECHECKS`] failures shrinking is
//! switched off and the proof holds from there.
//!
//! Variables: `eta` (2l), `u` = K(η₁…ₗ + ηₗ₊₁…₂ₗ) = −f without bias (l of them, since both copies share a row of K).
//! Invariants: Σηᵥ = 0 up to rounding; `u` is exact up to rounding on the rows of active variables; W never rises.
//!
//! Cost: O(active) an iteration to select and to update, two kernel rows, O(l) memory besides the rows kept.
//!
//! Departures from the paper:
//! - Bounds, linear part and tube come from the loss's dual term, so that every loss with d = 0 is covered, not only the
//!   ε-insensitive one: absolute, pinball, and the hinge, all instances of the paper's general form (12). A variable
//!   whose box is a point is left out (12 asks for a < b).
//! - The rule is verified before the first step too: β = 0 may be optimal.
//! - With no free variable (11) is 0/0; −λ̂ᵉᑫ is then the middle of the feasible interval.
//! - K₀₀ + K₁₁ − 2K₀₁ ≤ 0 (duplicates, both copies of one point, indefinite kernels): the pair goes to the end of its
//!   segment, the better one because F falls along it.
//! - F are computed anew before the rule is believed, and a run that gains nothing within 300 iterations per variable (and 20 000
//!   more) has stalled: at a large cost the worst pair alone may take hours.

use super::{Pulse, Record, Rows, Stall, dual_terms, objectives};
use crate::control::{Control, Interrupt, Status};
use crate::error::{Error, Result};
use crate::gram::{Pick, Precision};
use crate::loss::DualTerm;
use crate::observe::{Begin, Observer, Step};
use crate::problem::KernelProblem;
use crate::solver::Solution;

/// Failed re-checks after which shrinking is switched off.
pub const MAX_RECHECKS: u32 = 10;

/// When the algorithm stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopRule {
    /// (10): every F within tol of the average over the free variables. The paper's own.
    #[default]
    Average,
    /// (13): the worst pair within tol. Stronger; what other solvers call their tolerance.
    Pair,
}

/// Options of Algorithm 1.
#[derive(Debug, Clone, PartialEq)]
pub struct SvmTorchOptions {
    /// τ of the stop rule, in units of the score.
    pub tol: f64,
    /// The stop rule.
    pub rule: StopRule,
    /// Leave out a variable after so many iterations stuck at a bound; `None`: no shrinking.
    pub shrink_after: Option<u64>,
    /// A record every so many iterations; 0: none.
    pub record_every: u64,
    /// Largest number of iterations; `None`: no limit.
    pub max_iterations: Option<u64>,
    /// Bytes for kernel rows.
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

/// The end of a run and what the paper's quantities were there.
#[derive(Debug, Clone)]
pub struct SvmTorchSolution {
    /// The point reached; its violation is that of the rule chosen.
    pub solution: Solution,
    /// What was recorded on the way.
    pub records: Vec<Record>,
    /// λ̂ᵉᑫ of (11) at the end; the bias is −λ̂ᵉᑫ.
    pub lambda_eq: f64,
    /// Largest distance of an F from −λ̂ᵉᑫ on its wrong side: what rule (10) bounds.
    pub violation_average: f64,
    /// max F − min F over the worst pair: what rule (13) bounds.
    pub violation_pair: f64,
    /// Times all variables were re-checked after shrinking.
    pub rechecks: u32,
    /// Fewest variables worked on at any time.
    pub smallest_active: usize,
}

/// Solves a machine with a free bias and a loss without quadratic dual part by Algorithm 1 of paper 001.
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
    let (pulse, flow) = Pulse::begin(observer, &begin);
    let bounds: Vec<(f64, f64)> =
        terms.iter().map(|t| (0.0, -t.lo)).chain(terms.iter().map(|t| (-t.hi, 0.0))).collect();
    let all: Vec<u32> = (0..2 * n as u32).filter(|&v| bounds[v as usize].0 < bounds[v as usize].1).collect();
    let mut run = Run {
        problem,
        options,
        control,
        pulse,
        diag: problem.gram.diag(),
        rows: Rows::new(problem.gram, options.memory),
        eta: vec![0.0; 2 * n],
        u: vec![0.0; n],
        stuck_since: vec![0; 2 * n],
        active_rows: rows_of(&all, n),
        smallest_active: all.len(),
        active: all.clone(),
        all,
        bounds,
        terms,
        pick: Choice::default(),
        shrinking: options.shrink_after.is_some(),
        rechecks: 0,
        iterations: 0,
        objective: 0.0,
        records: Vec::new(),
    };
    run.pick = run.select();
    let status = if flow.is_break() { Status::Interrupted } else { run.iterate().unwrap_or_else(|status| status) };
    Ok(run.finish(status))
}

/// The rows of K that some variable of the list lives on, ascending.
fn rows_of(variables: &[u32], n: usize) -> Vec<u32> {
    let mut rows: Vec<u32> = variables.iter().map(|v| v % n as u32).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// The worst pair and the averages of one scan.
#[derive(Debug, Clone, Copy, Default)]
struct Choice {
    /// i₀ and its F, the largest among those that can move down.
    down: Option<(usize, f64)>,
    /// i₁ and its F, the least among those that can move up.
    up: Option<(usize, f64)>,
    /// −λ̂ᵉᑫ.
    level: f64,
}

impl Choice {
    fn violation(&self, rule: StopRule) -> f64 {
        match (self.down, self.up, rule) {
            (Some((_, high)), Some((_, low)), StopRule::Pair) => (high - low).max(0.0),
            (Some((_, high)), Some((_, low)), StopRule::Average) => (high - self.level).max(self.level - low).max(0.0),
            _ => 0.0,
        }
    }
}

struct Run<'a> {
    problem: &'a KernelProblem<'a>,
    options: &'a SvmTorchOptions,
    control: &'a Control,
    pulse: Pulse<'a>,
    diag: Vec<f64>,
    rows: Rows<'a>,
    terms: Vec<DualTerm>,
    bounds: Vec<(f64, f64)>,
    eta: Vec<f64>,
    u: Vec<f64>,
    /// Variables with a box that is not a point.
    all: Vec<u32>,
    active: Vec<u32>,
    active_rows: Vec<u32>,
    /// The iteration since which a variable has been at a bound with no active partner to violate with.
    stuck_since: Vec<u64>,
    pick: Choice,
    shrinking: bool,
    rechecks: u32,
    smallest_active: usize,
    iterations: u64,
    /// W of (6).
    objective: f64,
    records: Vec<Record>,
}

impl Run<'_> {
    fn f(&self, v: usize) -> f64 {
        let n = self.u.len();
        let (row, sign) = if v < n { (v, 1.0) } else { (v - n, -1.0) };
        self.u[row] - self.terms[row].p + sign * self.terms[row].eps
    }

    fn iterate(&mut self) -> Result<Status, Status> {
        let mut idle = 0;
        let mut stall = Stall::new();
        loop {
            if self.pick.violation(self.options.rule) <= self.options.tol {
                if self.active.len() < self.all.len() {
                    self.unshrink()?;
                    continue;
                }
                // F at hand are sums of as many changes as there were iterations.
                self.refresh()?;
                if self.pick.violation(self.options.rule) <= self.options.tol {
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
                let now = objectives(self.problem, &self.terms, &beta, &scores, self.pick.level);
                if !stall.goes_on(self.iterations, now) {
                    return Err(Status::Stalled);
                }
                continue;
            }
            self.control.note(Some(self.pick.violation(self.options.rule)), None);
            self.control.spend(12 * self.active.len() + 200);
            let before = self.objective;
            self.step()?;
            // The worst pair of a problem solved to the last bit still differs by rounding: give up, do not spin.
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
            self.pick = self.select();
            if self.pulse.due() {
                let step = self.report();
                self.pulse.step(&step)?;
            }
        }
    }

    /// (9) and (11) over the active variables.
    fn select(&mut self) -> Choice {
        let before = self.pick;
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
        Choice { down, up, level }
    }

    /// Minimises (6) over the worst pair.
    fn step(&mut self) -> Result<(), Status> {
        let (Some((v0, f0)), Some((v1, f1))) = (self.pick.down, self.pick.up) else {
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
        // A bound is reached exactly, so that "at the bound" stays a comparison.
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

    /// u = K(η₁…ₗ + ηₗ₊₁…₂ₗ) of the rows given, afresh.
    fn products(&self, rows: &[u32], out: &mut [f64]) -> Result<(), Interrupt> {
        let n = self.u.len();
        let sums: Vec<f64> = (0..n).map(|i| self.eta[i] + self.eta[i + n]).collect();
        self.problem.gram.apply(Precision::Double, Pick::List(rows), &sums, 1, out, self.control)
    }

    /// Brings every variable back with a fresh F.
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
        self.pick = self.select();
        Ok(())
    }

    /// F of all variables anew, everybody being active, and the worst pair by them.
    fn refresh(&mut self) -> Result<(), Interrupt> {
        let rows: Vec<u32> = (0..self.u.len() as u32).collect();
        let mut fresh = vec![0.0; rows.len()];
        self.products(&rows, &mut fresh)?;
        self.u = fresh;
        self.pick = self.select();
        Ok(())
    }

    fn stale_rows(&self) -> Vec<u32> {
        let mut fresh = vec![false; self.u.len()];
        self.active_rows.iter().for_each(|&r| fresh[r as usize] = true);
        // A row none of whose variables can move is never updated, but its score is part of the answer.
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
        // The level of the last scan belongs to the point before the step.
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
            violation: Some(self.pick.violation(self.options.rule)),
            dual: Some(-self.objective),
            active: Some(self.active.len()),
            kernel_entries: Some(self.problem.gram.entries()),
            ..Step::default()
        }
    }

    fn finish(self, status: Status) -> SvmTorchSolution {
        let last = self.report();
        // A run out of time hands over the scores only if that costs no kernel row.
        let scores = match status {
            Status::Optimal => self.scores().ok(),
            _ if self.stale_rows().is_empty() => self.scores().ok(),
            _ => None,
        };
        self.pulse.observer.finish(status, &last);
        SvmTorchSolution {
            solution: Solution {
                beta: self.beta(),
                bias: vec![self.pick.level],
                scores,
                status,
                iterations: self.iterations,
                violation: self.pick.violation(self.options.rule),
            },
            records: self.records,
            lambda_eq: -self.pick.level,
            violation_average: self.pick.violation(StopRule::Average),
            violation_pair: self.pick.violation(StopRule::Pair),
            rechecks: self.rechecks,
            smallest_active: self.smallest_active,
        }
    }
}
