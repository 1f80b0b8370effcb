//! The certificate of optimality: a bound on how far any point is from the optimum, however it was computed.
//!
//! For the problem of [`crate::problem`], any f and b give an upper bound P on the optimal value and any feasible γ a
//! lower bound D. The certificate evaluates P at the given model, f = Σβᵢk(xᵢ,·) with its own bias b, and D at a
//! feasible γ near β that is cheap to find (γ = β if β is feasible). Then
//!
//! ```text
//! gap = P − D = ½‖f_β − f_γ‖² + Σᵢ cᵢ·[ ℓᵢ(yᵢ, zᵢ) + ℓᵢ*(yᵢ, −γᵢ/cᵢ) + (γᵢ/cᵢ)·zᵢ ],   zᵢ = f(xᵢ) + b
//! ```
//!
//! a sum of non-negative Fenchel–Young terms: it does not suffer from the cancellation in P − D, and identifies the
//! samples that are farthest from their optimality condition. The effect of rounding errors is bounded in [`rounding`]
//! and added to the gap. For an indefinite kernel P is not convex and the gap proves nothing global; it still vanishes
//! only at stationary points ([`Optimality::definite`]).
//!
//! No code is shared with any solver, and only β and b are taken from it: scores are computed here ([`scores`]), though
//! they may be computed when the solver measures its last point, and are then used again if β is still the same to the
//! bit. Only this module can construct [`Scores`], an [`Optimality`] or a [`Stationarity`]. Cost: one product K·β, then
//! O(n), and one product restricted to the samples that had to be repaired.

mod approximate;
mod betting;
mod bias;
mod bulk;
mod crammer_singer;
mod l1;
mod linear;
mod parts;
mod repair;
mod report;
mod rounding;
mod scores;
mod tail;
#[cfg(test)]
mod tests;
mod violation;

pub use approximate::{Approximation, OnCentres, TailCheck, dual_from_scores};
pub use crammer_singer::certify_crammer_singer;
pub use l1::certify_l1;
pub use linear::{LinearScores, best_bias_linear, best_bias_of_scores, certify_linear, certify_scores, linear_scores};
pub use parts::{Part, combine_kernel, combine_linear, estimated_part, kernel_part, linear_part};
pub(crate) use report::relative;
pub use report::{Certificate, Optimality, Stationarity, Worst};
pub use scores::{Scores, scores, scores_by_row};
pub use tail::TAIL_PROBABILITY;

use crate::control::{Control, Interrupt};
use crate::gram::{Pick, Precision};
use crate::problem::{Constraint, KernelProblem, Losses, Samples};

/// Number of worst samples to report.
const WORST: usize = 10;

/// Samples per task of a parallel sum. The sums of tasks are added in order: the same result for any number of threads.
const CHUNK: usize = 1 << 13;

/// Infeasibility, relative to the costs, below which β counts as feasible: the rounding of a sum of many terms.
const FEASIBLE: f64 = 1e-9;

/// A model with its scores: the input of every part of the certificate.
pub(crate) struct Point<'p, 'a> {
    problem: &'p Samples<'a>,
    /// f of every row, without bias.
    f: &'p [f64],
    /// Bound on the rounding error of f, by row; empty: f is assumed to be exact.
    error: &'p [f64],
    control: &'p Control,
}

impl Point<'_, '_> {
    /// Σ over the variables of a group (`None`: of all) of `term(i)`, in an order that does not depend on the number of
    /// threads.
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

    /// Bound on |computed zᵢ − zᵢ|, including rounding when a loss is evaluated at zᵢ.
    fn error(&self, i: usize, z: f64) -> f64 {
        match self.error.get(self.problem.row(i)) {
            None => 0.0,
            Some(error) => error + rounding::sum_error(z, self.f(i), self.problem.targets[i]),
        }
    }

    /// zᵢ.
    fn z(&self, i: usize, bias: &[f64]) -> f64 {
        self.f(i) + self.problem.constraint.group(i).map_or(0.0, |g| bias[g])
    }

    /// P at `bias`, given ‖f‖².
    fn primal(&self, squared_norm: f64, bias: &[f64]) -> Result<f64, Interrupt> {
        let p = self.problem;
        let loss = self.sum_values(|i| self.z(i, bias))?;
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

/// The best bias of each group for these scores: the minimiser of P over b. If the minimum is flat and `given` is as
/// good up to rounding, or if the loss is not convex, `given` is returned.
pub fn best_bias(
    problem: &KernelProblem<'_>,
    scores: &Scores,
    given: Option<&[f64]>,
    control: &Control,
) -> Result<Vec<f64>, Interrupt> {
    let samples = problem.samples();
    if let Some(given) = given.filter(|b| !is_convex(&samples) && b.len() == problem.constraint.groups()) {
        // P may have several minima over b: keep the one the solver chose.
        return Ok(given.to_vec());
    }
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    choose_bias(&point, given, &members(&problem.constraint))
}

/// The best half width t of the tube of a ν-regression with bias `b`: the minimiser of P(b + t, b − t). The width is
/// part of the problem, not of the learnt function, and model files of other programs do not store it.
pub fn best_half_width(
    problem: &KernelProblem<'_>,
    scores: &Scores,
    b: f64,
    control: &Control,
) -> Result<f64, Interrupt> {
    let samples = problem.samples();
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    let groups = members(&problem.constraint);
    let slope = |g: usize, bias: f64| -> Result<f64, Interrupt> {
        let sum = point.sum_slopes(groups[g].as_deref(), |i| point.f(i) + bias)?;
        Ok(samples.constraint.sum(g) + sum)
    };
    let rises = |t: f64| Ok::<bool, Interrupt>(slope(0, b + t)? - slope(1, b - t)? > 0.0);
    let farthest = (0..samples.len()).map(|i| (samples.targets[i] - point.f(i) - b).abs()).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, 2.0 * farthest);
    if rises(low)? {
        return Ok(0.0);
    }
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle == low || middle == high {
            break;
        }
        if rises(middle)? { high = middle } else { low = middle }
    }
    Ok(low)
}

/// Certifies the model (β, b). The given bias is used as it is, and a bad bias increases the gap.
///
/// `beta` has one entry per variable, `bias` one per group; without it the best bias is used. `scores` are those of β,
/// computed if absent.
pub fn certify(
    problem: &KernelProblem<'_>,
    beta: &[f64],
    bias: Option<&[f64]>,
    scores: Option<&Scores>,
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let computed;
    let scores = match scores {
        Some(scores) => scores,
        None => {
            computed = self::scores(problem, beta, control)?;
            &computed
        }
    };
    let samples = problem.samples();
    let point = Point { problem: &samples, f: &scores.f, error: &scores.error, control };
    judge(problem, &point, beta, bias, scores.definite)
}

/// The certificate that the point would have if `f` were its exact scores, with the best bias: used by solvers to
/// decide whether to continue.
pub(crate) fn estimate(
    problem: &KernelProblem<'_>,
    beta: &[f64],
    bias: &[f64],
    f: &[f64],
    control: &Control,
) -> Result<Certificate, Interrupt> {
    let samples = problem.samples();
    let point = Point { problem: &samples, f, error: &[], control };
    let best = if is_convex(&samples) {
        choose_bias(&point, Some(bias), &members(&problem.constraint))?
    } else {
        bias.to_vec()
    };
    judge(problem, &point, beta, Some(&best), false)
}

fn judge(
    problem: &KernelProblem<'_>,
    point: &Point<'_, '_>,
    beta: &[f64],
    bias: Option<&[f64]>,
    definite: bool,
) -> Result<Certificate, Interrupt> {
    let groups = members(&problem.constraint);
    let control = point.control;
    let own = match bias.filter(|b| b.len() == groups.len()) {
        Some(bias) => bias.to_vec(),
        None => choose_bias(point, None, &groups)?,
    };
    let squared_norm = point.sum(None, |i| beta[i] * point.f(i))?;
    if !is_convex(point.problem) {
        return stationarity(point, squared_norm, beta, own, &groups);
    }
    let distance = |gamma: &[f64]| repaired_distance(problem, beta, gamma, control);
    let mut certificate = optimality(point, squared_norm, beta, own, &groups, distance)?;
    if let Certificate::Optimality(o) = &mut certificate {
        o.definite = definite;
        if o.at_zero == 0.0 {
            let size = problem.gram.accuracy().size;
            let reach: f64 =
                beta.iter().enumerate().map(|(i, b)| size.get(problem.row(i)).map_or(0.0, |s| s * b.abs())).sum();
            o.at_zero = 0.5 * reach * reach;
        }
    }
    Ok(certificate)
}

/// The bias of each group that minimises P, or `given` if it is as good.
fn choose_bias(
    point: &Point<'_, '_>,
    given: Option<&[f64]>,
    groups: &[Option<Vec<u32>>],
) -> Result<Vec<f64>, Interrupt> {
    let given = given.filter(|b| b.len() == groups.len() && b.iter().all(|b| b.is_finite()));
    let scale = point.sum(None, |i| {
        let p = point.problem;
        (p.costs[i] * point.f(i)).abs().min(f64::MAX)
    })?;
    let mut best = Vec::with_capacity(groups.len());
    for (g, list) in groups.iter().enumerate() {
        best.push(bias::best(point, g, list.as_deref(), given.map(|b| b[g]), 1e-16 * scale)?);
    }
    if let Some(given) = given {
        let (at_given, at_best) = (point.primal(0.0, given)?, point.primal(0.0, &best)?);
        // A flat minimum has many best biases: keep the given one if it is among them.
        if at_given <= at_best + 1e-14 * at_best.abs() || !at_best.is_finite() {
            return Ok(given.to_vec());
        }
    }
    Ok(best)
}

/// Whether every loss is convex with a known conjugate.
fn is_convex(problem: &Samples<'_>) -> bool {
    let known = |loss: &dyn crate::loss::Loss| loss.properties().convex && loss.conjugate(1.0, 0.0).is_some();
    match problem.losses {
        Losses::One(loss) => known(loss),
        Losses::ByGroup(losses) => losses.iter().all(|loss| known(*loss)),
    }
}

/// `distance` is a bound on ½‖f − f_γ‖² for the given f, together with its rounding part.
fn optimality(
    point: &Point<'_, '_>,
    squared_norm: f64,
    beta: &[f64],
    bias: Vec<f64>,
    groups: &[Option<Vec<u32>>],
    distance: impl Fn(&[f64]) -> Result<Bounded, Interrupt>,
) -> Result<Certificate, Interrupt> {
    let (p, control) = (point.problem, point.control);
    let repaired = repair::repair(point, beta, groups);
    let gamma = &repaired.beta;
    let primal = point.primal(squared_norm, &bias)?;
    control.check()?;
    let n = p.len();
    // The term of each sample, and what the rounding of its score may add to it and to P.
    let terms: Vec<(f64, f64)> = control
        .threads
        .map(n.div_ceil(CHUNK), |task| bulk::terms(point, task * CHUNK..((task + 1) * CHUNK).min(n), gamma, &bias))
        .concat();
    let distance = distance(gamma)?;
    let total =
        |of: fn(&(f64, f64)) -> f64| -> f64 { terms.chunks(CHUNK).map(|part| part.iter().map(of).sum::<f64>()).sum() };
    let mut rounding = total(|t| t.1) + distance.rounding;
    if !point.error.is_empty() {
        // ½‖f‖² = ½Σβf and the sums of a group, Σβ = s, which b multiplies.
        rounding += point.sum(None, |i| 0.5 * beta[i].abs() * point.error[p.row(i)])?;
        rounding += rounding::of_sums(point, squared_norm, primal, gamma, &bias)?;
    }
    let mut gap = total(|t| t.0) + distance.value + rounding;
    if !repaired.exists || gap.is_nan() || !primal.is_finite() {
        gap = f64::INFINITY;
    }
    let dual = primal - gap;
    let shares: Vec<f64> = terms.iter().map(|t| t.0).collect();
    Ok(Certificate::Optimality(Optimality {
        primal,
        dual,
        gap,
        rounding,
        at_zero: point.sum_values(|_| 0.0)?,
        relative_gap: relative(gap, primal, dual),
        violation: violation::violation(point, gamma, &bias)?,
        feasible: repaired.exists && repaired.infeasibility <= FEASIBLE,
        infeasibility: repaired.infeasibility,
        bias,
        squared_norm,
        definite: true,
        worst: worst(p, &shares, gap),
        approximation: None,
    }))
}

/// A number with a bound on its rounding error; the exact value is at most the sum of the two.
#[derive(Debug, Clone, Copy, Default)]
struct Bounded {
    value: f64,
    rounding: f64,
}

/// ½‖f_β − f_γ‖², over the samples where β was changed by more than rounding.
fn repaired_distance(
    p: &KernelProblem<'_>,
    beta: &[f64],
    gamma: &[f64],
    control: &Control,
) -> Result<Bounded, Interrupt> {
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
        return Ok(Bounded::default());
    }
    let product = kernel_product(p, difference, Pick::List(&rows), control)?;
    let mut at_row = vec![0.0; p.gram.shape().0];
    rows.iter().zip(&product).for_each(|(&row, v)| at_row[row as usize] = *v);
    let total: f64 = (0..p.len()).map(|i| difference(i) * at_row[p.row(i)]).sum();
    let mut by_row = vec![0.0; p.gram.shape().0];
    (0..p.len()).for_each(|i| by_row[p.row(i)] += difference(i));
    let errors = rounding::product_errors(&p.gram.accuracy(), &by_row);
    let rounding = rows.iter().map(|&row| (by_row[row as usize] * errors[row as usize]).abs()).sum::<f64>();
    Ok(Bounded { value: 0.5 * total.max(0.0), rounding: 0.5 * rounding })
}

fn worst(p: &Samples<'_>, terms: &[f64], gap: f64) -> Vec<Worst> {
    let mut order: Vec<u32> = (0..terms.len() as u32).filter(|&i| terms[i as usize] > 0.0).collect();
    // Ties are broken by index, so that the list does not depend on the selection algorithm.
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
    bias: Vec<f64>,
    groups: &[Option<Vec<u32>>],
) -> Result<Certificate, Interrupt> {
    let p = point.problem;
    let objective = point.primal(squared_norm, &bias)?;
    let total: f64 = p.costs.iter().sum();
    let mut residual = 0.0f64;
    let mut worse = |found: f64| residual = if found.is_nan() { f64::INFINITY } else { residual.max(found) };
    for (g, list) in groups.iter().enumerate() {
        let sum = point.sum(list.as_deref(), |i| beta[i])?;
        worse((sum - p.constraint.sum(g)).abs() / total.max(f64::MIN_POSITIVE));
    }
    let z: Vec<f64> = (0..p.len()).map(|i| point.z(i, &bias)).collect();
    violation::slope_distances(point, &(0..p.len() as u32).collect::<Vec<_>>(), beta, &z)?.into_iter().for_each(worse);
    Ok(Certificate::Stationarity(Stationarity {
        objective,
        stationarity: residual,
        start_objective: None,
        bias,
        squared_norm,
    }))
}
