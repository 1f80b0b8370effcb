//! The L1 penalty: coordinate descent on the weights (Yuan, Chang, Hsieh and Lin, JMLR 11, 2010, Algorithm 3, after Chang, Hsieh
//! and Lin, JMLR 9, 2008).
//!
//! ```text
//! minimise over w, b:   ‖w‖₁ + |b|/s + Σᵢ cᵢ·ℓ(yᵢ, wᵀxᵢ + b)       |b|/s only for a penalised bias
//! ```
//!
//! for a smooth convex ℓ. A step on one weight minimises |wⱼ + d| + Gd + ½Hd², G and H being the first two derivatives of the
//! losses, and is halved until the objective falls enough. Weights at 0 whose |G| is well below 1 are set aside and looked
//! at again before stopping. The gap comes from β = −cℓ′(z) scaled into the dual's feasible set ‖Xᵀβ‖∞ ≤ 1.
//!
//! Cost of a step: the stored values of one column. Memory: a copy of the data by columns. Up to 1 500 features proximal Newton steps
//! (`lasso_newton.rs`) come in place of epochs as long as they gain.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{LinearSolution, Options};
use crate::control::{Control, Status};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Bias, LinearProblem};

/// Decrease asked of a step, as a share of what the model promises.
const SUFFICIENT: f64 = 0.01;
/// Halvings of a step at most.
const HALVINGS: usize = 20;
/// Most features of proximal Newton steps.
const DIRECT: usize = 1500;

/// X by columns.
struct Columns {
    starts: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f64>,
}

impl Columns {
    fn new(points: &Points) -> Self {
        let (n, d) = (points.len(), points.dims());
        let mut starts = vec![0usize; d + 1];
        for i in 0..n {
            points.visit(i, |j, v| starts[j + 1] += usize::from(v != 0.0));
        }
        (0..d).for_each(|j| starts[j + 1] += starts[j]);
        let mut next = starts.clone();
        let (mut rows, mut values) = (vec![0; starts[d]], vec![0.0; starts[d]]);
        for i in 0..n {
            points.visit(i, |j, v| {
                if v != 0.0 {
                    rows[next[j]] = i as u32;
                    values[next[j]] = v;
                    next[j] += 1;
                }
            });
        }
        Self { starts, rows, values }
    }

    fn column(&self, j: usize) -> (&[u32], &[f64]) {
        let range = self.starts[j]..self.starts[j + 1];
        (&self.rows[range.clone()], &self.values[range])
    }
}

pub(super) struct Descent<'a> {
    pub(super) problem: &'a LinearProblem<'a>,
    columns: Columns,
    pub(super) w: Vec<f64>,
    pub(super) b: f64,
    pub(super) z: Vec<f64>,
}

impl Descent<'_> {
    pub(super) fn value(&self, i: usize, z: f64) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => c * self.problem.loss.value(self.problem.targets[i], z),
        }
    }

    pub(super) fn slope(&self, i: usize) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => c * self.problem.loss.slope(self.problem.targets[i], self.z[i]),
        }
    }

    pub(super) fn bend(&self, i: usize) -> f64 {
        match self.problem.costs[i] {
            0.0 => 0.0,
            c => c * self.problem.loss.second(self.problem.targets[i], self.z[i]).max(0.0),
        }
    }

    /// The step that minimises l1·|w + d| + Gd + ½Hd².
    pub(super) fn newton(w: f64, slope: f64, bend: f64, l1: f64) -> f64 {
        if slope + l1 <= bend * w {
            -(slope + l1) / bend
        } else if slope - l1 >= bend * w {
            -(slope - l1) / bend
        } else {
            -w
        }
    }

    /// By how much the slope breaks its optimality condition.
    pub(super) fn violation(w: f64, slope: f64, l1: f64) -> f64 {
        if w > 0.0 {
            (slope + l1).abs()
        } else if w < 0.0 {
            (slope - l1).abs()
        } else {
            (slope.abs() - l1).max(0.0)
        }
    }

    /// One step on a weight whose samples are `entries`; its violation before. `l1` is its penalty.
    fn step(&mut self, at: Option<usize>, l1: f64) -> (f64, f64) {
        let (mut slope, mut bend) = (0.0, 1e-12);
        let columns = std::mem::replace(&mut self.columns, Columns { starts: vec![], rows: vec![], values: vec![] });
        let all: Vec<u32>;
        let ones: Vec<f64>;
        let (rows, values): (&[u32], &[f64]) = match at {
            Some(j) => columns.column(j),
            None => {
                all = (0..self.z.len() as u32).collect();
                ones = vec![1.0; self.z.len()];
                (&all, &ones)
            }
        };
        for (&i, x) in rows.iter().zip(values) {
            slope += x * self.slope(i as usize);
            bend += x * x * self.bend(i as usize);
        }
        let w = at.map_or(self.b, |j| self.w[j]);
        let violation = Self::violation(w, slope, l1);
        if violation > 0.0 {
            let d = Self::newton(w, slope, bend, l1);
            let promised = slope * d + l1 * ((w + d).abs() - w.abs());
            let mut t = 1.0;
            for _ in 0..HALVINGS {
                let (mut change, mut size) = (l1 * ((w + t * d).abs() - w.abs()), 0.0);
                for (&i, x) in rows.iter().zip(values) {
                    let (i, z) = (i as usize, self.z[i as usize]);
                    let old = self.value(i, z);
                    change += self.value(i, z + t * d * x) - old;
                    size += old;
                }
                // Below the rounding of the losses the promise is all there is to go by.
                if change <= SUFFICIENT * t * promised || promised.abs() <= 1e-13 * size {
                    let new = if t == 1.0 && d == -w { 0.0 } else { w + t * d };
                    match at {
                        Some(j) => self.w[j] = new,
                        None => self.b = new,
                    }
                    rows.iter().zip(values).for_each(|(&i, x)| self.z[i as usize] += t * d * x);
                    break;
                }
                t *= 0.5;
            }
        }
        self.columns = columns;
        (violation, slope)
    }

    /// The largest violation of all weights and the bias.
    fn worst(&self, bias: Option<f64>) -> f64 {
        let slopes: Vec<f64> = (0..self.z.len()).map(|i| self.slope(i)).collect();
        let mut worst = bias.map_or(0.0, |penalty| Self::violation(self.b, slopes.iter().sum(), penalty));
        for j in 0..self.w.len() {
            let (rows, values) = self.columns.column(j);
            let slope = rows.iter().zip(values).map(|(&i, x)| x * slopes[i as usize]).sum();
            worst = worst.max(Self::violation(self.w[j], slope, 1.0));
        }
        worst
    }

    /// P, D and β: minus the slopes, scaled into the feasible set.
    fn bounds(&self) -> (f64, f64, Vec<f64>) {
        let p = self.problem;
        let n = self.z.len();
        let mut beta: Vec<f64> = (0..n).map(|i| -self.slope(i)).collect();
        let mut most = 0.0f64;
        for j in 0..self.w.len() {
            let (rows, values) = self.columns.column(j);
            let v: f64 = rows.iter().zip(values).map(|(&i, x)| x * beta[i as usize]).sum();
            most = most.max(v.abs());
        }
        let mut primal: f64 = self.w.iter().map(|w| w.abs()).sum();
        if let Bias::Penalised { scaling } = p.bias {
            most = most.max(beta.iter().sum::<f64>().abs() * scaling);
            primal += self.b.abs() / scaling;
        }
        let scale = 1.0 / most.max(1.0);
        beta.iter_mut().for_each(|b| *b *= scale);
        let mut dual = 0.0;
        for i in 0..n {
            let c = p.costs[i];
            if c > 0.0 {
                primal += self.value(i, self.z[i]);
                let (lo, hi) = p.loss.domain(p.targets[i]);
                dual -= c * p.loss.conjugate(p.targets[i], (-beta[i] / c).clamp(lo, hi)).unwrap_or(f64::INFINITY);
            }
        }
        (primal, dual, beta)
    }
}

/// Solves `problem` with the L1 penalty in place of ½‖w‖². Fails for a loss with a kink, or rows that are not in memory.
pub fn solve_l1(
    problem: &LinearProblem<'_>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<LinearSolution> {
    options.check()?;
    let unsupported =
        |what: String, instead: &str| Error::Unsupported { solver: "linear", what, instead: instead.into() };
    let properties = problem.loss.properties();
    let kinked = (0..problem.len().min(64)).any(|i| problem.dual_term(i).is_some_and(|t| t.d == 0.0 && t.hi > t.lo));
    if !properties.convex || kinked {
        let what = format!("the {} loss with the L1 penalty", problem.loss.name());
        return Err(unsupported(what, "squared-hinge or logistic"));
    }
    let Some(points) = problem.matrix.points() else {
        return Err(unsupported("the L1 penalty on rows read in blocks".into(), "data that fits in memory"));
    };
    let (n, d) = (points.len(), points.dims());
    let begin = Begin { solver: "linear-l1", n, tol: options.stop.tol, gap: options.stop.gap };
    let mut status = if observer.begin(&begin).is_break() { Status::Interrupted } else { Status::Optimal };
    let mut descent = Descent { problem, columns: Columns::new(points), w: vec![0.0; d], b: 0.0, z: vec![0.0; n] };
    if let Some(start) = &options.start
        && start.weights.len() == d
    {
        descent.w.clone_from(&start.weights);
        descent.b = if problem.bias == Bias::None { 0.0 } else { start.bias };
        for i in 0..n {
            let mut z = descent.b;
            points.visit(i, |j, v| z += v * descent.w[j]);
            descent.z[i] = z;
        }
    }
    let bias_penalty = match problem.bias {
        Bias::None => None,
        Bias::Free => Some(0.0),
        Bias::Penalised { scaling } => Some(1.0 / scaling),
    };
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let mut active: Vec<u32> = (0..d as u32).collect();
    let mut bar = f64::INFINITY;
    let (mut epoch, mut check_at) = (0u64, 0u64);
    let (mut violation, mut relative) = (f64::INFINITY, f64::INFINITY);
    let (mut poor, mut best) = (0, f64::INFINITY);
    let mut newton = d <= DIRECT && d <= n && 40 * (d * d) as u64 <= options.memory;
    while status == Status::Optimal {
        if epoch >= check_at || active.is_empty() {
            let (primal, dual, _) = descent.bounds();
            relative = (primal - dual).max(0.0) / primal.abs().max(dual.abs()).max(1.0);
            let step = Step {
                iteration: epoch,
                seconds: control.seconds(),
                phase: "coordinate",
                primal: Some(primal),
                dual: Some(dual),
                active: Some(active.len()),
                ..Step::default()
            };
            if observer.step(&step).is_break() {
                status = Status::Interrupted;
                break;
            }
            let tol_holds = options.stop.tol.is_none_or(|tol| violation <= tol && relative <= 1e-3);
            if tol_holds && options.stop.gap.is_none_or(|gap| relative <= gap) {
                break;
            }
            poor = if relative < 0.9 * best { 0 } else { poor + 1 };
            best = best.min(relative);
            if poor > 20 {
                status = Status::Stalled;
                break;
            }
            check_at = epoch + 1 + epoch / 8;
            active = (0..d as u32).collect();
            bar = f64::INFINITY;
        }
        if options.iterations.is_some_and(|most| epoch >= most) {
            status = Status::IterationLimit;
            break;
        }
        epoch += 1;
        let mut worst = 0.0f64;
        if newton {
            match descent.newton_step(bias_penalty, control) {
                Ok(gained) => newton = gained,
                Err(why) => {
                    status = why.into();
                    break;
                }
            }
            active.clear();
            check_at = epoch;
        }
        active.shuffle(&mut rng);
        let mut kept = 0;
        for at in 0..active.len() {
            if at % 64 == 0
                && let Err(why) = control.check()
            {
                status = why.into();
                break;
            }
            let j = active[at];
            let (violation, slope) = descent.step(Some(j as usize), 1.0);
            worst = worst.max(violation);
            if descent.w[j as usize] == 0.0 && slope.abs() < 1.0 - bar {
                continue;
            }
            active[kept] = j;
            kept += 1;
        }
        if status != Status::Optimal {
            break;
        }
        active.truncate(kept);
        if let Some(penalty) = bias_penalty {
            // A free bias must leave Σβ = 0 behind: the dual point is feasible only then.
            for _ in 0..if penalty == 0.0 { 8 } else { 1 } {
                let (violation, _) = descent.step(None, penalty);
                worst = worst.max(violation);
                if violation <= 1e-13 * n as f64 {
                    break;
                }
            }
        }
        bar = worst / n.max(1) as f64;
        // A Newton step has looked at no weight by itself.
        violation = if newton { descent.worst(bias_penalty) } else { worst };
    }
    let (_, _, beta) = descent.bounds();
    observer.finish(status, &Step { iteration: epoch, seconds: control.seconds(), ..Step::default() });
    Ok(LinearSolution {
        weights: descent.w,
        bias: descent.b,
        beta,
        status,
        iterations: epoch,
        violation,
        relative_gap: relative,
        start_objective: None,
        reason: "L1 penalty: coordinate descent on the weights".into(),
    })
}
