//! The certificate of optimality: how far a point can be from the optimum, whoever computed it.
//!
//! For the problem of [`crate::problem`], any f and b give an upper bound P on the optimal value and any feasible γ a
//! lower bound D. The certificate takes P at the machine that was given, f = Σβᵢk(xᵢ,·), with the best b, and D at the
//! nearest feasible γ that is cheap to find (γ = β if β is feasible). Then
//!
//! ```text
//! gap = P − D = ½‖f_β − f_γ‖² + Σᵢ cᵢ·[ ℓᵢ(yᵢ, zᵢ) + ℓᵢ*(yᵢ, −γᵢ/cᵢ) + (γᵢ/cᵢ)·zᵢ ],   zᵢ = f(xᵢ) + b
//! ```
//!
//! a sum of non-negative Fenchel–Young terms: it does not suffer from the cancellation of P − D, and names the samples
//! that are furthest from their optimality condition. For an indefinite kernel P is not convex and the gap proves
//! nothing global; it still vanishes at stationary points only.
//!
//! No code is shared with any solver. Cost: one product K·β unless the scores are given, then O(n) with some sixty
//! passes over the samples for each bias, and one product restricted to the samples that had to be repaired.

mod bias;
mod crammer_singer;
mod l1;
mod linear;
mod repair;
#[cfg(test)]
mod tests;
mod violation;

pub use crammer_singer::certify_crammer_singer;
pub use l1::certify_l1;
pub use linear::certify_linear;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::control::{Control, Interrupt};
use crate::gram::{Pick, Precision};
use crate::problem::{Constraint, KernelProblem, Losses, Samples};

/// How many of the worst samples are named.
const WORST: usize = 10;

/// Samples of one task of a parallel sum. Sums are taken task by task in order: the same for any number of threads.
const CHUNK: usize = 1 << 13;

/// Infeasibility, relative to the costs, below which β counts as feasible: rounding of a sum of many terms.
const FEASIBLE: f64 = 1e-9;

/// A sample and what it contributes to the gap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// Row of the data, counted from 0.
    pub row: usize,
    /// Its Fenchel–Young term.
    pub gap: f64,
    /// The same as a share of the whole gap.
    pub share: f64,
}

/// Bounds on the optimal value of a convex problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Optimality {
    /// P at the machine given, with the bias [`bias`](Self::bias).
    pub primal: f64,
    /// D at β, repaired where it is not feasible; −∞ if the constraint cannot be met at all.
    pub dual: f64,
    /// P − D ≥ 0: the optimal value lies between the two.
    pub gap: f64,
    /// gap / max(1, |P|, |D|).
    pub relative_gap: f64,
    /// Largest violation of the KKT conditions, in units of the score: max over what can fall of F − min over what can
    /// rise of F. For losses without a dual term, the distance of −β/c from the slopes of the loss at z.
    pub violation: f64,
    /// Whether β was feasible, up to rounding, before it was repaired.
    pub feasible: bool,
    /// How far β was from feasible: largest excess over its box relative to the cost, or error of a sum relative to Σ|β|.
    pub infeasibility: f64,
    /// The bias of each group at which P was taken: the better of the one given and the best one.
    pub bias: Vec<f64>,
    /// How much P is lower there than at the bias given; `None` if none was given.
    pub bias_excess: Option<f64>,
    /// ‖f‖² = βᵀKβ.
    pub squared_norm: f64,
    /// The samples with the largest share of the gap, worst first.
    pub worst: Vec<Worst>,
}

/// What can be said about a point of a non-convex problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stationarity {
    /// P.
    pub objective: f64,
    /// max |βᵢ + cᵢℓ′(zᵢ)|/cᵢ, the slope at a kink being the one that fits best; and |Σβ − s|/Σc.
    pub stationarity: f64,
    /// P of the convex start under the same loss, where there was one.
    pub start_objective: Option<f64>,
    /// The bias of each group.
    pub bias: Vec<f64>,
    /// ‖f‖² = βᵀKβ.
    pub squared_norm: f64,
}

/// The proof that comes with every machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Certificate {
    /// Convex losses: a bound on the distance to the optimum.
    Optimality(Optimality),
    /// Non-convex losses: how nearly stationary the point is.
    Stationarity(Stationarity),
}

impl Certificate {
    /// The bounds, for a convex problem.
    pub fn optimality(&self) -> Option<&Optimality> {
        match self {
            Certificate::Optimality(o) => Some(o),
            Certificate::Stationarity(_) => None,
        }
    }

    /// What can be said of a machine that nobody has checked: nothing. Its gap is infinite.
    pub fn unknown(bias: Vec<f64>) -> Self {
        Certificate::Optimality(Optimality {
            primal: f64::INFINITY,
            dual: f64::NEG_INFINITY,
            gap: f64::INFINITY,
            relative_gap: f64::INFINITY,
            violation: f64::INFINITY,
            feasible: false,
            infeasibility: f64::INFINITY,
            bias,
            bias_excess: None,
            squared_norm: 0.0,
            worst: Vec::new(),
        })
    }

    /// Whether it says anything at all: see [`unknown`](Self::unknown).
    pub fn is_known(&self) -> bool {
        // A file keeps an infinite gap as the largest number.
        self.gap().is_none_or(|gap| gap < f64::MAX)
    }

    /// P.
    pub fn primal(&self) -> f64 {
        match self {
            Certificate::Optimality(o) => o.primal,
            Certificate::Stationarity(s) => s.objective,
        }
    }

    /// D, for a convex problem.
    pub fn dual(&self) -> Option<f64> {
        self.optimality().map(|o| o.dual)
    }

    /// P − D, for a convex problem.
    pub fn gap(&self) -> Option<f64> {
        self.optimality().map(|o| o.gap)
    }

    /// The relative gap, for a convex problem.
    pub fn relative_gap(&self) -> Option<f64> {
        self.optimality().map(|o| o.relative_gap)
    }

    /// KKT violation, or the stationarity residual of a non-convex problem.
    pub fn violation(&self) -> f64 {
        match self {
            Certificate::Optimality(o) => o.violation,
            Certificate::Stationarity(s) => s.stationarity,
        }
    }

    /// The bias of each group.
    pub fn bias(&self) -> &[f64] {
        match self {
            Certificate::Optimality(o) => &o.bias,
            Certificate::Stationarity(s) => &s.bias,
        }
    }

    /// ‖f‖².
    pub fn squared_norm(&self) -> f64 {
        match self {
            Certificate::Optimality(o) => o.squared_norm,
            Certificate::Stationarity(s) => s.squared_norm,
        }
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Certificate::Optimality(o) => o.fmt(f),
            Certificate::Stationarity(s) => s.fmt(f),
        }
    }
}

impl fmt::Display for Optimality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "primal    {:.10e}", self.primal)?;
        writeln!(f, "dual      {:.10e}", self.dual)?;
        writeln!(f, "gap       {:.3e}  (relative {:.3e})", self.gap, self.relative_gap)?;
        write!(f, "violation {:.3e}", self.violation)?;
        if !self.feasible {
            write!(f, "\nthe dual point was {:.1e} from feasible and was repaired", self.infeasibility)?;
        }
        for (at, worst) in self.worst.iter().take(3).enumerate() {
            let lead = if at == 0 { "\nworst     " } else { ", " };
            write!(f, "{lead}row {} ({:.1} % of the gap)", worst.row, 100.0 * worst.share)?;
        }
        Ok(())
    }
}

impl fmt::Display for Stationarity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "objective    {:.10e}  (the loss is not convex: no bound on the optimum)", self.objective)?;
        write!(f, "stationarity {:.3e}", self.stationarity)?;
        match self.start_objective {
            Some(start) => write!(f, "\nconvex start {start:.10e}"),
            None => Ok(()),
        }
    }
}

/// One machine with its scores: what every part of the certificate looks at.
pub(crate) struct Point<'p, 'a> {
    problem: &'p Samples<'a>,
    /// f of every row, without bias.
    f: &'p [f64],
    control: &'p Control,
}

impl Point<'_, '_> {
    /// Σ over the variables of a group (`None`: of all) of `term(i)`, in an order that does not depend on the threads.
    fn sum(&self, members: Option<&[u32]>, term: impl Fn(usize) -> f64 + Sync) -> Result<f64, Interrupt> {
        self.control.check()?;
        let n = members.map_or(self.problem.len(), <[u32]>::len);
        let parts = self.control.threads.map(n.div_ceil(CHUNK), |task| {
            let range = task * CHUNK..((task + 1) * CHUNK).min(n);
            match members {
                None => range.map(&term).sum::<f64>(),
                Some(list) => list[range].iter().map(|&i| term(i as usize)).sum(),
            }
        });
        Ok(parts.into_iter().sum())
    }

    /// f(xᵢ) of variable `i`, without bias.
    fn f(&self, i: usize) -> f64 {
        self.f[self.problem.row(i)]
    }

    /// zᵢ.
    fn z(&self, i: usize, bias: &[f64]) -> f64 {
        self.f(i) + self.problem.constraint.group(i).map_or(0.0, |g| bias[g])
    }

    /// P at `bias`, ‖f‖² being known.
    fn primal(&self, squared_norm: f64, bias: &[f64]) -> Result<f64, Interrupt> {
        let p = self.problem;
        let loss = self.sum(None, |i| match p.costs[i] {
            0.0 => 0.0,
            c => c * p.loss(i).value(p.targets[i], self.z(i, bias)),
        })?;
        let linear: f64 = bias.iter().enumerate().map(|(g, b)| p.constraint.sum(g) * b).sum();
        Ok(0.5 * squared_norm + loss + linear)
    }
}

/// The variables of each group; `None` stands for all of them.
fn members(constraint: &Constraint) -> Vec<Option<Vec<u32>>> {
    match constraint {
        Constraint::None => vec![],
        Constraint::Sum(_) => vec![None],
        Constraint::Groups { of, sums } => {
            let mut lists = vec![Vec::new(); sums.len()];
            of.iter().enumerate().for_each(|(i, &g)| lists[g as usize].push(i as u32));
            lists.into_iter().map(Some).collect()
        }
    }
}

/// K·v over the chosen rows, v given by variable.
fn kernel_product(
    problem: &KernelProblem<'_>,
    by_variable: impl Fn(usize) -> f64,
    rows: Pick<'_>,
    control: &Control,
) -> Result<Vec<f64>, Interrupt> {
    let n = problem.gram.shape().0;
    let mut v = vec![0.0; n];
    (0..problem.len()).for_each(|i| v[problem.row(i)] += by_variable(i));
    let mut out = vec![0.0; rows.len(n)];
    problem.gram.apply(Precision::Double, rows, &v, 1, &mut out, control)?;
    Ok(out)
}

/// Certifies the machine (β, b).
///
/// `beta` has one entry a variable, `bias` one a group. `scores` are (K·β) of every *row* of K in double precision, without
/// bias; they are computed if absent, and otherwise trusted. A bias that was not given, or is worse than the best
/// one by more than rounding, is replaced by the best one.
pub fn certify(
    problem: &KernelProblem<'_>,
    beta: &[f64],
    bias: Option<&[f64]>,
    scores: Option<&[f64]>,
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let computed;
    let f = match scores {
        Some(scores) => scores,
        None => {
            computed = kernel_product(problem, |i| beta[i], Pick::All, control)?;
            &computed
        }
    };
    let samples = problem.samples();
    let point = Point { problem: &samples, f, control };
    let given = bias.filter(|b| b.len() == problem.constraint.groups());
    let groups = members(&problem.constraint);
    let squared_norm = point.sum(None, |i| beta[i] * point.f(i))?;
    if is_convex(&samples) {
        optimality(&point, squared_norm, beta, given, &groups, |gamma| repaired_distance(problem, beta, gamma, control))
    } else {
        stationarity(&point, squared_norm, beta, given, &groups)
    }
}

/// Whether every loss is convex with a known conjugate.
fn is_convex(problem: &Samples<'_>) -> bool {
    let known = |loss: &dyn crate::loss::Loss| loss.properties().convex && loss.conjugate(1.0, 0.0).is_some();
    match problem.losses {
        Losses::One(loss) => known(loss),
        Losses::ByGroup(losses) => losses.iter().all(|loss| known(*loss)),
    }
}

/// `distance` is ½‖f − f_γ‖², f being the machine that was given.
fn optimality(
    point: &Point<'_, '_>,
    squared_norm: f64,
    beta: &[f64],
    given: Option<&[f64]>,
    groups: &[Option<Vec<u32>>],
    distance: impl Fn(&[f64]) -> Result<f64, Interrupt>,
) -> Result<Certificate, Interrupt> {
    let (p, control) = (point.problem, point.control);
    let repaired = repair::repair(p, beta, groups);
    let gamma = &repaired.beta;

    let scale = point.sum(None, |i| (gamma[i] * point.f(i)).abs())?.max(1.0);
    let mut best = Vec::with_capacity(groups.len());
    for (g, list) in groups.iter().enumerate() {
        best.push(bias::best(point, g, list.as_deref(), given.map(|b| b[g]), 1e-14 * scale)?);
    }
    let mut primal = point.primal(squared_norm, &best)?;
    let mut bias_excess = None;
    if let Some(given) = given {
        let at_given = point.primal(squared_norm, given)?;
        bias_excess = Some((at_given - primal).max(0.0));
        // A flat minimum has many best biases: the solver's choice among them stands.
        if at_given <= primal + 1e-12 * primal.abs().max(1.0) {
            primal = at_given;
            best = given.to_vec();
        }
    }

    control.check()?;
    let n = p.len();
    let terms: Vec<f64> = control
        .threads
        .map(n.div_ceil(CHUNK), |task| {
            let range = task * CHUNK..((task + 1) * CHUNK).min(n);
            range.map(|i| excess(p, i, gamma[i], point.z(i, &best))).collect::<Vec<_>>()
        })
        .concat();
    let mut gap: f64 = terms.chunks(CHUNK).map(|part| part.iter().sum::<f64>()).sum();
    gap += distance(gamma)?;
    if !repaired.exists {
        gap = f64::INFINITY;
    }
    let dual = primal - gap;
    Ok(Certificate::Optimality(Optimality {
        primal,
        dual,
        gap,
        relative_gap: if gap.is_finite() { gap / primal.abs().max(dual.abs()).max(1.0) } else { gap },
        violation: violation::violation(point, gamma, &best),
        feasible: repaired.exists && repaired.infeasibility <= FEASIBLE,
        infeasibility: repaired.infeasibility,
        bias: best,
        bias_excess,
        squared_norm,
        worst: worst(p, &terms, gap),
    }))
}

/// cᵢ·[ℓ(y, z) + ℓ*(y, −γ/c) + (γ/c)·z].
fn excess(p: &Samples<'_>, i: usize, gamma: f64, z: f64) -> f64 {
    let (c, y) = (p.costs[i], p.targets[i]);
    if c == 0.0 {
        return 0.0;
    }
    let loss = p.loss(i);
    let (lo, hi) = loss.domain(y);
    // γ lies in its box; clamping again only undoes the rounding of −c·u and back.
    let u = (-gamma / c).clamp(lo, hi);
    c * loss.excess(y, z, u).unwrap_or(f64::INFINITY)
}

/// ½‖f_β − f_γ‖², over the samples where β was changed by more than its last digits.
fn repaired_distance(p: &KernelProblem<'_>, beta: &[f64], gamma: &[f64], control: &Control) -> Result<f64, Interrupt> {
    let largest = gamma.iter().fold(0.0, |m: f64, g| m.max(g.abs()));
    let finite = |b: f64| if b.is_finite() { b } else { 0.0 };
    let difference = |i: usize| {
        let delta = finite(beta[i]) - gamma[i];
        if delta.abs() > 1e-15 * largest { delta } else { 0.0 }
    };
    let mut rows: Vec<u32> = (0..p.len()).filter(|&i| difference(i) != 0.0).map(|i| p.row(i) as u32).collect();
    rows.sort_unstable();
    rows.dedup();
    if rows.is_empty() {
        return Ok(0.0);
    }
    let product = kernel_product(p, difference, Pick::List(&rows), control)?;
    let mut at_row = vec![0.0; p.gram.shape().0];
    rows.iter().zip(&product).for_each(|(&row, v)| at_row[row as usize] = *v);
    let total: f64 = (0..p.len()).map(|i| difference(i) * at_row[p.row(i)]).sum();
    Ok(0.5 * total.max(0.0))
}

fn worst(p: &Samples<'_>, terms: &[f64], gap: f64) -> Vec<Worst> {
    let mut order: Vec<u32> = (0..terms.len() as u32).filter(|&i| terms[i as usize] > 0.0).collect();
    // Ties by number, so that the list does not depend on the selection algorithm.
    let by_term = |a: &u32, b: &u32| terms[*b as usize].total_cmp(&terms[*a as usize]).then(a.cmp(b));
    if order.len() > WORST {
        order.select_nth_unstable_by(WORST - 1, by_term);
        order.truncate(WORST);
    }
    order.sort_unstable_by(by_term);
    let entry = |&i: &u32| {
        let term = terms[i as usize];
        Worst { row: p.row(i as usize), gap: term, share: if gap.is_finite() { term / gap } else { 0.0 } }
    };
    order.iter().map(entry).collect()
}

fn stationarity(
    point: &Point<'_, '_>,
    squared_norm: f64,
    beta: &[f64],
    given: Option<&[f64]>,
    groups: &[Option<Vec<u32>>],
) -> Result<Certificate, Interrupt> {
    let p = point.problem;
    let bias = match given {
        Some(b) => b.to_vec(),
        None => {
            let each = groups.iter().enumerate();
            each.map(|(g, list)| bias::best(point, g, list.as_deref(), None, 1e-14)).collect::<Result<_, _>>()?
        }
    };
    let objective = point.primal(squared_norm, &bias)?;
    let total: f64 = p.costs.iter().sum();
    let mut residual = 0.0f64;
    for (g, list) in groups.iter().enumerate() {
        let sum = point.sum(list.as_deref(), |i| beta[i])?;
        residual = residual.max((sum - p.constraint.sum(g)).abs() / total.max(f64::MIN_POSITIVE));
    }
    for i in 0..p.len() {
        residual = residual.max(violation::slope_distance(p, i, beta[i], point.z(i, &bias)));
    }
    Ok(Certificate::Stationarity(Stationarity {
        objective,
        stationarity: residual,
        start_objective: None,
        bias,
        squared_norm,
    }))
}
