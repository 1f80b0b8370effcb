//! The state of the solver: β, the gradient, and the active variables in compact arrays.

use crate::control::Threads;
use crate::error::{Error, Result};
use crate::linalg::sweep::{self, Extremes};
use crate::loss::DualTerm;
use crate::problem::{Constraint, KernelProblem};
use crate::solver::gap::Gap;

/// β of every variable, and g, up, down, diag of the active ones.
///
/// For an active variable at position a, with h its dual term:
/// - `g[a]` = (Kβ)ᵢ + pᵢ + dᵢβᵢ, the slope of the smooth part;
/// - `g[a] + up[a]` is the slope of the objective as β grows (+∞ at the upper bound), `g[a] + down[a]` as it falls.
pub(super) struct DualState {
    pub(super) terms: Vec<DualTerm>,
    pub(super) beta: Vec<f64>,
    /// The active variables, group by group, ascending in each.
    pub(super) active: Vec<u32>,
    /// Positions of each group in `active`; one range of all variables when there is no bias.
    pub(super) ranges: Vec<(usize, usize)>,
    pub(super) g: Vec<f64>,
    pub(super) up: Vec<f64>,
    pub(super) down: Vec<f64>,
    /// Kᵢᵢ + dᵢ.
    pub(super) diag: Vec<f32>,
    /// Kᵢᵢ of every variable.
    pub(super) kernel_diag: Vec<f64>,
    /// Group of every variable (0 without a bias).
    pub(super) group: Vec<u8>,
    /// Whether sums are fixed, so that pairs move. Otherwise single variables move.
    pub(super) paired: bool,
}

impl DualState {
    /// The dual terms, and a feasible β: `start` clipped and balanced, or zero balanced.
    pub(super) fn new(problem: &KernelProblem<'_>, start: Option<&[f64]>) -> Result<Self> {
        Ok(Self::idle(problem, start)?.activated(problem))
    }

    /// The same without active variables: all that a solver on a device needs.
    pub(super) fn idle(problem: &KernelProblem<'_>, start: Option<&[f64]>) -> Result<Self> {
        let n = problem.len();
        let mut terms = Vec::with_capacity(n);
        for i in 0..n {
            let term = problem.dual_term(i).ok_or_else(|| Error::Unsupported {
                solver: "decomposition",
                what: format!("the loss {}", problem.loss(i).name()),
                instead: crate::conflict::OptionName::Solver.at("irwls").to_string(),
            })?;
            terms.push(term);
        }
        let paired = problem.constraint.groups() > 0;
        let group: Vec<u8> = (0..n).map(|i| problem.constraint.group(i).unwrap_or(0) as u8).collect();
        let mut beta = match start {
            Some(start) => {
                crate::error::check_len("start values", n, start.len())?;
                start.iter().zip(&terms).map(|(b, t)| if b.is_finite() { b.clamp(t.lo, t.hi) } else { 0.0 }).collect()
            }
            None => vec![0.0; n],
        };
        for g in 0..problem.constraint.groups() {
            balance(&mut beta, &terms, &group, g as u8, problem.constraint.sum(g))?;
        }
        Ok(Self {
            terms,
            beta,
            active: Vec::new(),
            ranges: Vec::new(),
            g: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            diag: Vec::new(),
            kernel_diag: Vec::new(),
            group,
            paired,
        })
    }

    /// An idle state with all variables active, at gradients 0.
    pub(super) fn activated(mut self, problem: &KernelProblem<'_>) -> Self {
        let (n, by_row) = (problem.len(), problem.gram.diag());
        self.kernel_diag = (0..n).map(|i| by_row[problem.row(i)]).collect();
        self.activate((0..n as u32).collect(), vec![0.0; n]);
        self
    }

    /// Whether `beta` lies in its boxes and has the sums of the constraint, up to rounding: a start from it is that point.
    pub(super) fn would_be_feasible(&self, beta: &[f64], constraint: &Constraint) -> bool {
        let inside = |(b, t): (&f64, &DualTerm)| *b >= t.lo && *b <= t.hi;
        beta.iter().zip(&self.terms).all(inside)
            && (0..constraint.groups()).all(|g| {
                let members = || beta.iter().zip(&self.group).filter(|(_, of)| usize::from(**of) == g);
                let (total, sum) = (members().map(|(b, _)| *b).sum::<f64>(), constraint.sum(g));
                let scale = members().map(|(b, _)| b.abs()).sum::<f64>() + sum.abs();
                (sum - total).abs() <= ROUNDING_OF_SUMS * scale
            })
    }

    /// The violation, the multiplier and the gap at another point of a problem with at most one group, by several threads.
    pub(super) fn measure(
        &self,
        problem: &KernelProblem<'_>,
        beta: &[f64],
        scores: &[f64],
        threads: &Threads,
    ) -> Measured {
        /// Variables of a task: sums do not depend on the number of threads.
        const TASK: usize = 1 << 13;
        let n = beta.len();
        let tasks = |work: &(dyn Fn(usize) -> [f64; 4] + Sync)| -> Vec<[f64; 4]> {
            threads.map(n.div_ceil(TASK), |task| {
                let mut total = [f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0];
                for i in task * TASK..((task + 1) * TASK).min(n) {
                    let one = work(i);
                    total = [total[0].min(one[0]), total[1].max(one[1]), total[2] + one[2], total[3] + one[3]];
                }
                total
            })
        };
        let slopes = tasks(&|i| {
            let (t, b) = (&self.terms[i], beta[i]);
            let g = scores[i] + t.p + t.d * b;
            let up = if b >= t.hi { f64::INFINITY } else { g + if b >= 0.0 { t.eps } else { -t.eps } };
            let down = if b <= t.lo { f64::NEG_INFINITY } else { g + if b > 0.0 { t.eps } else { -t.eps } };
            let free = b > t.lo && b < t.hi && (b != 0.0 || t.eps == 0.0);
            [up, down, if free { up } else { 0.0 }, f64::from(u8::from(free))]
        });
        let up = slopes.iter().fold(f64::INFINITY, |w, part| w.min(part[0]));
        let down = slopes.iter().fold(f64::NEG_INFINITY, |w, part| w.max(part[1]));
        let (sum, count) = slopes.iter().fold((0.0, 0.0), |(s, c), part| (s + part[2], c + part[3]));
        let violation = if self.paired { down - up } else { down.max(-up) }.max(0.0);
        let mu = match (self.paired, count > 0.0, up.is_finite(), down.is_finite()) {
            (false, ..) | (true, false, false, false) => 0.0,
            (true, true, ..) => sum / count,
            (true, false, true, true) => 0.5 * (up + down),
            (true, false, true, false) => up,
            (true, false, false, true) => down,
        };
        let shift = -mu;
        let terms = tasks(&|i| {
            let (b, f, t) = (beta[i], scores[i], &self.terms[i]);
            let own = match problem.costs[i] {
                c if c > 0.0 => c * problem.loss(i).value(problem.targets[i], f + shift),
                _ => 0.0,
            };
            let h = t.p * b + t.eps * b.abs() + 0.5 * t.d * b * b;
            [0.0, 0.0, own + h + b * f + b * shift, h + 0.5 * b * f]
        });
        let (difference, dual) = terms.iter().fold((0.0, 0.0), |(g, d), part| (g + part[2], d - part[3]));
        Measured { violation, mu, gap: Gap { primal: dual + difference, dual, difference, rounding: 0.0 } }
    }

    /// Corrects the sums for rounding. Gradients are then those of the old β and must be computed again.
    pub(super) fn restore_sums(&mut self, constraint: &Constraint) {
        for g in 0..constraint.groups() {
            // Cannot fail: the sums were met before.
            let _ = balance(&mut self.beta, &self.terms, &self.group, g as u8, constraint.sum(g));
        }
    }

    /// Makes exactly the given variables active, with their gradients; sorts them by group first.
    pub(super) fn activate(&mut self, mut active: Vec<u32>, by_variable: Vec<f64>) {
        active.sort_by_key(|&i| (self.group[i as usize], i));
        self.g = active.iter().map(|&i| by_variable[i as usize]).collect();
        self.up = vec![0.0; active.len()];
        self.down = vec![0.0; active.len()];
        self.diag = active.iter().map(|&i| (self.kernel_diag[i as usize] + self.terms[i as usize].d) as f32).collect();
        let groups = self.group.iter().copied().max().unwrap_or(0) as usize + 1;
        self.ranges = (0..groups)
            .map(|g| {
                let from = active.partition_point(|&i| (self.group[i as usize] as usize) < g);
                let to = active.partition_point(|&i| (self.group[i as usize] as usize) <= g);
                (from, to)
            })
            .collect();
        self.active = active;
        (0..self.active.len()).for_each(|a| self.refresh(a));
    }

    /// Makes all variables active, with their gradients at the scores `f` = K·β of each row.
    pub(super) fn activate_all(&mut self, problem: &KernelProblem<'_>, f: &[f64]) {
        let slope = |i: usize| f[problem.row(i)] + self.terms[i].p + self.terms[i].d * self.beta[i];
        let g = (0..problem.len()).map(slope).collect();
        self.activate((0..problem.len() as u32).collect(), g);
    }

    /// Keeps only the given positions (ascending) active.
    pub(super) fn keep(&mut self, positions: &[u32]) {
        let mut by_variable = vec![0.0; self.terms.len()];
        let active: Vec<u32> = positions.iter().map(|&a| self.active[a as usize]).collect();
        for &a in positions {
            by_variable[self.active[a as usize] as usize] = self.g[a as usize];
        }
        self.activate(active, by_variable);
    }

    /// The variables at the given positions (ascending) as a problem of their own, all others fixed.
    pub(super) fn subproblem(&self, positions: &[u32]) -> Self {
        let variables: Vec<usize> = positions.iter().map(|&a| self.active[a as usize] as usize).collect();
        let mut part = Self {
            terms: variables.iter().map(|&i| self.terms[i]).collect(),
            beta: variables.iter().map(|&i| self.beta[i]).collect(),
            active: Vec::new(),
            ranges: Vec::new(),
            g: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            diag: Vec::new(),
            kernel_diag: variables.iter().map(|&i| self.kernel_diag[i]).collect(),
            group: variables.iter().map(|&i| self.group[i]).collect(),
            paired: self.paired,
        };
        let g = positions.iter().map(|&a| self.g[a as usize]).collect();
        part.activate((0..positions.len() as u32).collect(), g);
        part
    }

    /// Recomputes `up` and `down` of a position after its β has changed.
    pub(super) fn refresh(&mut self, a: usize) {
        let i = self.active[a] as usize;
        let (t, b) = (&self.terms[i], self.beta[i]);
        self.up[a] = if b >= t.hi {
            f64::INFINITY
        } else if b >= 0.0 {
            t.eps
        } else {
            -t.eps
        };
        self.down[a] = if b <= t.lo {
            f64::NEG_INFINITY
        } else if b > 0.0 {
            t.eps
        } else {
            -t.eps
        };
    }

    /// Extremes of every group's range, positions counted in the whole array.
    pub(super) fn extremes(&self) -> Vec<Extremes> {
        self.ranges
            .iter()
            .map(|&(from, to)| {
                let mut e = sweep::extremes(&self.g[from..to], &self.up[from..to], &self.down[from..to]);
                e.up_at += from;
                e.down_at += from;
                e
            })
            .collect()
    }

    /// The KKT violation that follows from these extremes: the largest over the groups; without a bias the steepest
    /// slope.
    pub(super) fn violation(&self, extremes: &[Extremes]) -> f64 {
        let each = extremes.iter().map(|e| if self.paired { e.violation() } else { e.down.max(-e.up) });
        each.fold(0.0, f64::max)
    }

    /// P, D and their difference, given (Kβ)ᵢ, with the biases that follow from the free variables. The difference is a
    /// sum of non-negative terms, one per variable, without the cancellation of P − D.
    pub(super) fn gap(&self, problem: &KernelProblem<'_>, score: impl Fn(usize) -> f64) -> Gap {
        let bias: Vec<f64> = self.multipliers().iter().map(|mu| -mu).collect();
        let (mut quad, mut loss, mut dual, mut difference, mut size) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for i in 0..problem.len() {
            let (b, f) = (self.beta[i], score(i));
            let shift = if self.paired { bias[self.group[i] as usize] } else { 0.0 };
            let own = match problem.costs[i] {
                c if c > 0.0 => c * problem.loss(i).value(problem.targets[i], f + shift),
                _ => 0.0,
            };
            let t = &self.terms[i];
            let h = t.p * b + t.eps * b.abs() + 0.5 * t.d * b * b;
            quad += b * f;
            loss += own;
            dual -= h;
            difference += own + h + b * f + b * shift;
            size += own.abs() + (t.p * b).abs() + t.eps * b.abs() + t.d * b * b + (b * f).abs() + (b * shift).abs();
        }
        let linear: f64 = (0..problem.constraint.groups()).map(|g| problem.constraint.sum(g) * bias[g]).sum();
        Gap {
            primal: 0.5 * quad + loss + linear,
            dual: dual - 0.5 * quad,
            difference,
            rounding: 2.0 * f64::EPSILON * size,
        }
    }

    /// Whether β is strictly inside a piece on which the objective is quadratic.
    pub(super) fn is_free(&self, i: usize) -> bool {
        let (t, b) = (&self.terms[i], self.beta[i]);
        b > t.lo && b < t.hi && (b != 0.0 || t.eps == 0.0)
    }

    /// The ends of the piece on which a variable moves: with a kink at zero, above it for `side` 1, below it for −1.
    pub(super) fn piece(&self, i: usize, side: i8) -> (f64, f64) {
        let t = &self.terms[i];
        match (t.eps > 0.0, side) {
            (true, 1) => (0.0, t.hi),
            (true, -1) => (t.lo, 0.0),
            _ => (t.lo, t.hi),
        }
    }

    /// The common slope of the free variables of each group, μ = −b; where none is free, the middle of the feasible
    /// interval.
    pub(super) fn multipliers(&self) -> Vec<f64> {
        if !self.paired {
            return vec![0.0];
        }
        let extremes = self.extremes();
        self.ranges
            .iter()
            .zip(&extremes)
            .map(|(&(from, to), e)| {
                let (mut sum, mut count) = (0.0, 0u64);
                for a in from..to {
                    if self.is_free(self.active[a] as usize) {
                        sum += self.g[a] + self.up[a];
                        count += 1;
                    }
                }
                match (count, e.up.is_finite(), e.down.is_finite()) {
                    (0, true, true) => 0.5 * (e.up + e.down),
                    (0, true, false) => e.up,
                    (0, false, true) => e.down,
                    (0, false, false) => 0.0,
                    _ => sum / count as f64,
                }
            })
            .collect()
    }
}

/// How good a point is.
pub(super) struct Measured {
    /// The KKT violation.
    pub(super) violation: f64,
    /// The multiplier of the sum constraint.
    pub(super) mu: f64,
    pub(super) gap: Gap,
}

/// Rounding of a sum, relative to the sum of the sizes of its terms.
const ROUNDING_OF_SUMS: f64 = 1e-13;

/// Moves β of one group within its box until it sums to `sum`: one variable after another, as far as needed.
fn balance(beta: &mut [f64], terms: &[DualTerm], group: &[u8], g: u8, sum: f64) -> Result<()> {
    let members: Vec<usize> = (0..beta.len()).filter(|&i| group[i] == g).collect();
    let total: f64 = members.iter().map(|&i| beta[i]).sum();
    let mut rest = sum - total;
    let scale = members.iter().map(|&i| beta[i].abs()).sum::<f64>() + sum.abs();
    // A sum that is right up to rounding is left alone, so that a restart from a solution is that solution.
    if rest.abs() <= ROUNDING_OF_SUMS * scale {
        return Ok(());
    }
    // Free variables first, then those at a bound, then zeros: a warm start keeps its active sets where possible.
    let rank = |b: f64, t: &DualTerm| if b == 0.0 { 2 } else { usize::from(b <= t.lo || b >= t.hi) };
    let ranks: Vec<usize> = members.iter().map(|&i| rank(beta[i], &terms[i])).collect();
    for pass in 0..3 {
        for (&i, &rank) in members.iter().zip(&ranks) {
            if rest == 0.0 || rank != pass {
                continue;
            }
            let to = (beta[i] + rest).clamp(terms[i].lo, terms[i].hi);
            rest -= to - beta[i];
            beta[i] = to;
        }
    }
    if rest.abs() > 1e-9 * scale.max(f64::MIN_POSITIVE) {
        return Err(Error::data(format!(
            "no feasible point: the dual variables of group {g} must sum to {sum} but their bounds allow {} at most",
            sum - rest
        )));
    }
    Ok(())
}
