//! The state of a linear solver: w, b, the scores z = Xw + b, β, and v = Xᵀβ.
//!
//! v is updated from the changes of β only, so that the cost of a step is proportional to the samples whose β changes.

use super::bias_search::BiasSearch;
use super::dual_loops::{Differences, Sum};
use super::smooth_loss::SmoothLoss;
use super::system::Preconditioner;
use crate::control::{Control, Interrupt, Status};
use crate::gram::{Matrix, Pick};
use crate::linalg::vectorised::vectorised;
use crate::observe::{Observer, Step};
use crate::problem::LinearProblem;

/// Samples per task of a loop over n-vectors.
pub(super) const CHUNK: usize = 1 << 13;

/// Sums of `term` over `0..count`, in an order that does not depend on the number of threads.
pub(super) fn sums<const K: usize>(
    control: &Control,
    count: usize,
    term: impl Fn(usize) -> [f64; K] + Sync,
) -> [f64; K] {
    range_sums(control, count, |range| {
        let mut sum = [0.0; K];
        for k in range {
            let t = term(k);
            (0..K).for_each(|j| sum[j] += t[j]);
        }
        sum
    })
}

/// The same with `sum` over a range of indices.
pub(super) fn range_sums<const K: usize>(
    control: &Control,
    count: usize,
    sum: impl Fn(std::ops::Range<usize>) -> [f64; K] + Sync,
) -> [f64; K] {
    control.spend(20 * count);
    let parts = control.threads.map(count.div_ceil(CHUNK), |task| sum(task * CHUNK..((task + 1) * CHUNK).min(count)));
    let mut total = [0.0; K];
    parts.into_iter().for_each(|p| (0..K).for_each(|j| total[j] += p[j]));
    total
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The objective and the gap at a point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    /// P.
    pub(super) primal: f64,
    /// Sum of the contributions of the samples to the gap.
    pub(super) excess: f64,
    /// ½‖w − Xᵀβ‖², and the same for a penalised bias: the rest of the gap.
    pub(super) mismatch: f64,
    /// Rounding error of the sums above: a smaller gap counts as zero.
    pub(super) rounding: f64,
}

/// Bound on the rounding error of a sum, relative to the sum of the absolute values of its terms.
pub(super) const SUM_ROUNDING: f64 = 4.0 * f64::EPSILON;

/// gap / max(|P|, |D|); 0 for a gap within `rounding`, ∞ if the gap or P is not finite.
pub(super) fn relative_gap(primal: f64, gap: f64, rounding: f64) -> f64 {
    if !(gap.is_finite() && primal.is_finite()) {
        return f64::INFINITY;
    }
    if gap <= rounding { 0.0 } else { gap / primal.abs().max((primal - gap).abs()) }
}

impl Measure {
    /// max(|P|, |D|): the scale of the relative gap.
    pub(super) fn scale(&self) -> f64 {
        self.primal.abs().max((self.primal - self.gap()).abs())
    }

    pub(super) fn gap(&self) -> f64 {
        self.excess + self.mismatch
    }

    pub(super) fn relative(&self) -> f64 {
        relative_gap(self.primal, self.gap(), self.rounding)
    }
}

/// The state of a linear solver.
pub(super) struct LinearState<'a, 'o> {
    pub(super) problem: &'a LinearProblem<'a>,
    pub(super) x: &'a dyn Matrix,
    pub(super) control: &'a Control,
    pub(super) observer: &'o mut dyn Observer,
    /// Penalty of the bias; `None` without one.
    pub(super) rho: Option<f64>,
    /// Column means, about which second moments are computed; empty: the origin.
    pub(super) centre: Vec<f64>,
    pub(super) w: Vec<f64>,
    pub(super) b: f64,
    pub(super) z: Vec<f64>,
    pub(super) beta: Vec<f64>,
    pub(super) v: Vec<f64>,
    /// Σβ.
    pub(super) sum: f64,
    /// Memory for new β.
    pub(super) spare: Vec<f64>,
    pub(super) iterations: u64,
    pub(super) limit: u64,
    /// Bytes for a d × d matrix and its factor.
    pub(super) memory: u64,
    /// Most features for which the system is formed.
    pub(super) direct: usize,
    /// Rows per feature of the preconditioner, if every system is solved by conjugate gradients.
    pub(super) sampled: Option<usize>,
    /// That of the last Newton step.
    pub(super) precondition: Option<Preconditioner>,
    /// Second moments of the last Newton step, updated with the rows whose weight changed.
    pub(super) moments: Option<Moments>,
}

/// First and second moments: Σ a·(x − centre) and Σ a·(x − centre)(x − centre)ᵀ.
pub(super) struct Moments {
    /// a of every sample, and memory for the next.
    weights: Vec<f64>,
    spare: Vec<f64>,
    pub(super) first: Vec<f64>,
    /// Lower triangle.
    pub(super) second: Vec<f64>,
    updates: usize,
}

/// Most updates before the moments are recomputed, so that rounding does not accumulate.
const MAX_MOMENT_UPDATES: usize = 40;

impl<'a, 'o> LinearState<'a, 'o> {
    /// w = 0, b = 0 and β = 0, without limits.
    pub(super) fn at_zero(
        problem: &'a LinearProblem<'a>,
        control: &'a Control,
        observer: &'o mut dyn Observer,
    ) -> Self {
        let (n, d) = (problem.len(), problem.matrix.dims());
        Self {
            problem,
            x: problem.matrix,
            control,
            observer,
            rho: problem.bias.penalty(),
            centre: Vec::new(),
            w: vec![0.0; d],
            b: 0.0,
            z: vec![0.0; n],
            beta: vec![0.0; n],
            v: vec![0.0; d],
            sum: 0.0,
            spare: Vec::new(),
            iterations: 0,
            limit: u64::MAX,
            memory: u64::MAX,
            direct: usize::MAX,
            sampled: None,
            precondition: None,
            moments: None,
        }
    }

    pub(super) fn n(&self) -> usize {
        self.z.len()
    }

    /// `Err` if the run must end.
    pub(super) fn check(&self) -> Result<(), Status> {
        if self.iterations >= self.limit {
            return Err(Status::IterationLimit);
        }
        self.control.check().map_err(Status::from)
    }

    /// Reports to the observer; `Err` if it stops the run.
    pub(super) fn report(&mut self, phase: &'static str, measure: &Measure, active: usize) -> Result<(), Status> {
        self.control.note(None, Some(measure.gap()));
        let step = Step {
            iteration: self.iterations,
            seconds: self.control.seconds(),
            phase,
            primal: Some(measure.primal),
            dual: Some(measure.primal - measure.gap()),
            active: Some(active),
            ..Step::default()
        };
        if self.observer.step(&step).is_break() { Err(Status::Interrupted) } else { Ok(()) }
    }

    /// Computes z = Xw + b of all samples.
    pub(super) fn update_scores(&mut self) -> Result<(), Interrupt> {
        self.x.dots(Pick::All, &self.w, &mut self.z, self.control)?;
        let b = self.b;
        self.z.iter_mut().for_each(|z| *z += b);
        Ok(())
    }

    /// Sets w, b and β to 0.
    pub(super) fn reset(&mut self) -> Result<(), Interrupt> {
        self.w.fill(0.0);
        self.b = 0.0;
        self.beta.fill(0.0);
        self.recompute_v()?;
        self.update_scores()
    }

    /// Recomputes v and Σβ.
    pub(super) fn recompute_v(&mut self) -> Result<(), Interrupt> {
        self.v.fill(0.0);
        self.x.combine(Pick::All, &self.beta, &mut self.v, self.control)?;
        let beta = &self.beta;
        self.sum = range_sums(self.control, self.n(), |range| [vectorised(Sum(&beta[range]))])[0];
        Ok(())
    }

    /// Sets β = β(z) for the given samples, and updates v.
    pub(super) fn update_beta<L: SmoothLoss>(&mut self, losses: &L, rows: Pick<'_>) -> Result<(), Interrupt> {
        let (list, new) = match rows {
            Pick::All => {
                let (n, z, beta) = (self.n(), &self.z, &self.beta);
                self.spare.resize(n, 0.0);
                self.control.threads.chunks(&mut self.spare, CHUNK, |task, new| {
                    let first = task * CHUNK;
                    losses.betas(first, &z[first..first + new.len()], new);
                });
                let new = &self.spare;
                if 3 * vectorised(Differences(new, beta)) > n {
                    std::mem::swap(&mut self.beta, &mut self.spare);
                    return self.recompute_v();
                }
                let changed = (0..n).filter(|&i| new[i] != beta[i]).map(|i| (i as u32, new[i]));
                changed.unzip::<u32, f64, Vec<_>, Vec<_>>()
            }
            _ => self.changed_betas(losses, rows),
        };
        let mut deltas = new;
        for (&i, delta) in list.iter().zip(&mut deltas) {
            let new = *delta;
            *delta -= self.beta[i as usize];
            self.sum += *delta;
            self.beta[i as usize] = new;
        }
        if 3 * list.len() > self.n() {
            return self.recompute_v();
        }
        self.x.combine(Pick::List(&list), &deltas, &mut self.v, self.control)
    }

    /// Those of `rows` whose β(z) differs from β, and their β(z).
    fn changed_betas<L: SmoothLoss>(&self, losses: &L, rows: Pick<'_>) -> (Vec<u32>, Vec<f64>) {
        let (count, z, beta) = (rows.len(self.n()), &self.z, &self.beta);
        let parts = self.control.threads.map(count.div_ceil(CHUNK), |task| {
            let range = task * CHUNK..((task + 1) * CHUNK).min(count);
            let new = range.map(|k| (rows.get(k) as u32, losses.beta(rows.get(k), z[rows.get(k)])));
            new.filter(|(i, new)| *new != beta[*i as usize]).unzip::<u32, f64, Vec<_>, Vec<_>>()
        });
        let (list, new): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        (list.concat(), new.concat())
    }

    /// The moments of the rows `list` with these weights.
    pub(super) fn moments(&mut self, list: &[u32], weights: &[f64]) -> Result<&Moments, Interrupt> {
        let (n, d) = (self.n(), self.x.dims());
        let mut moments = self.moments.take();
        let mut new_weights = moments.as_mut().map_or_else(Vec::new, |m| std::mem::take(&mut m.spare));
        new_weights.clear();
        new_weights.resize(n, 0.0);
        list.iter().zip(weights).for_each(|(&i, a)| new_weights[i as usize] = *a);
        if let Some(m) = &mut moments
            && m.updates < MAX_MOMENT_UPDATES
        {
            // Rows whose weight increased, and rows whose weight decreased.
            let mut changes = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
            for i in 0..n {
                let change = new_weights[i] - m.weights[i];
                if change != 0.0 {
                    let (rows, weights) = &mut changes[usize::from(change < 0.0)];
                    rows.push(i as u32);
                    weights.push(change.abs());
                }
            }
            let changed = changes[0].0.len() + changes[1].0.len();
            if 2 * changed <= list.len() {
                for (sign, (rows, weights)) in [1.0, -1.0].into_iter().zip(&changes) {
                    if rows.is_empty() {
                        continue;
                    }
                    let (mut first, mut second) = (vec![0.0; d], vec![0.0; d * d]);
                    self.x.moments(Pick::List(rows), weights, &self.centre, &mut first, &mut second, self.control)?;
                    m.first.iter_mut().zip(&first).for_each(|(m, f)| *m += sign * f);
                    m.second.iter_mut().zip(&second).for_each(|(m, s)| *m += sign * s);
                }
                m.spare = std::mem::replace(&mut m.weights, new_weights);
                m.updates += 1;
                return Ok(self.moments.insert(moments.expect("checked above")));
            }
        }
        let (mut first, mut second) = (vec![0.0; d], vec![0.0; d * d]);
        self.x.moments(Pick::List(list), weights, &self.centre, &mut first, &mut second, self.control)?;
        let spare = moments.map_or_else(Vec::new, |m| m.weights);
        Ok(self.moments.insert(Moments { weights: new_weights, spare, first, second, updates: 0 }))
    }

    /// ½‖w − v‖², plus the contribution of a penalised bias.
    pub(super) fn mismatch(&self) -> f64 {
        let mut total: f64 = self.w.iter().zip(&self.v).map(|(w, v)| (w - v) * (w - v)).sum();
        if let Some(rho) = self.rho
            && rho > 0.0
        {
            total += (rho * self.b - self.sum).powi(2) / rho;
        }
        0.5 * total
    }

    /// P and the parts of the gap. If a free bias requires Σβ = 0 and β does not satisfy it, the gap is that of a
    /// nearby β that does.
    pub(super) fn measure<L: SmoothLoss>(&self, losses: &L) -> Result<Measure, Interrupt> {
        let (z, beta, b) = (&self.z, &self.beta, self.b);
        let parts =
            |beta: &[f64]| range_sums(self.control, self.n(), |r| losses.totals(r.start, &z[r.clone()], &beta[r], b));
        let [loss, mut excess, terms, size] = parts(beta);
        let mut mismatch = self.mismatch();
        if self.rho == Some(0.0)
            && self.sum.abs() > BALANCED_SUM * size
            && let Some(balanced) = self.balanced_beta(losses)
        {
            excess = parts(&balanced)[1];
            let (mut rows, mut deltas) = (Vec::new(), Vec::new());
            for i in (0..balanced.len()).filter(|&i| balanced[i] != beta[i]) {
                rows.push(i as u32);
                deltas.push(balanced[i] - beta[i]);
            }
            let mut v = self.v.clone();
            self.x.combine(Pick::List(&rows), &deltas, &mut v, self.control)?;
            mismatch = 0.5 * self.w.iter().zip(&v).map(|(w, v)| (w - v) * (w - v)).sum::<f64>();
        }
        let norm = 0.5 * dot(&self.w, &self.w) + self.rho.map_or(0.0, |rho| 0.5 * rho * b * b);
        let rounding = SUM_ROUNDING * (terms + norm);
        Ok(Measure { primal: norm + loss, excess, mismatch, rounding })
    }

    /// β shifted to Σβ = 0: an equal shift of the nonzero β, as far as their boxes allow, or else of all. `None` if β
    /// has no box, or if no such point exists.
    pub(super) fn balanced_beta<L: SmoothLoss>(&self, losses: &L) -> Option<Vec<f64>> {
        let mut beta = self.beta.clone();
        for _ in 0..3 {
            let excess_sum = compensated_sum(&beta);
            let mut amount = excess_sum.abs();
            if amount == 0.0 {
                break;
            }
            let mut rooms: Vec<(f64, u32)> = Vec::new();
            for only_nonzero in [true, false] {
                rooms.clear();
                for (i, &b) in beta.iter().enumerate() {
                    let (lo, hi) = losses.bounds(i)?;
                    let room = if excess_sum > 0.0 { b - lo } else { hi - b };
                    if room > 0.0 && (b != 0.0 || !only_nonzero) {
                        rooms.push((room, i as u32));
                    }
                }
                if rooms.iter().map(|(room, _)| room).sum::<f64>() >= amount {
                    break;
                }
            }
            rooms.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let count = rooms.len();
            for (at, (room, i)) in rooms.into_iter().enumerate() {
                let shift = room.min(amount / (count - at) as f64);
                beta[i as usize] -= excess_sum.signum() * shift;
                amount -= shift;
            }
            if amount > 1e-9 * excess_sum.abs() {
                return None;
            }
        }
        Some(beta)
    }

    /// Makes β feasible, sets w = Xᵀβ, and moves a free bias to its optimum for that w.
    pub(super) fn make_feasible<L: SmoothLoss>(&mut self, losses: &L) -> Result<(), Interrupt> {
        if self.rho == Some(0.0)
            && let Some(beta) = self.balanced_beta(losses)
        {
            self.beta = beta;
            self.recompute_v()?;
            self.w.copy_from_slice(&self.v);
        }
        self.v.copy_from_slice(&self.w);
        self.update_scores()?;
        if self.rho == Some(0.0) {
            self.shift_bias(losses)?;
        }
        Ok(())
    }

    /// Moves the bias to its optimum for the current w.
    pub(super) fn shift_bias<L: SmoothLoss>(&mut self, losses: &L) -> Result<(), Interrupt> {
        let shift = self.best_bias_shift(losses)?;
        self.b += shift;
        self.z.iter_mut().for_each(|z| *z += shift);
        Ok(())
    }

    /// The largest distance of −β/c from the slope of the loss at the score, for losses without a dual term.
    pub(super) fn slope_violation(&self) -> f64 {
        let p = self.problem;
        (0..self.n()).filter(|&i| p.costs[i] > 0.0).fold(0.0f64, |worst, i| {
            worst.max((self.beta[i] / p.costs[i] + p.loss.slope(p.targets[i], self.z[i])).abs())
        })
    }

    /// The change of the bias that gives Σβ(z) = ρb, the minimum of the objective over b alone; 0 without a bias. If
    /// β(z) jumps, the point where the difference changes sign.
    pub(super) fn best_bias_shift<L: SmoothLoss>(&self, losses: &L) -> Result<f64, Interrupt> {
        let Some(rho) = self.rho else { return Ok(0.0) };
        let b = self.b;
        let mut search = BiasSearch::new(losses, &self.z, self.control);
        let mut inside = 0;
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let (mut shift, mut step) = (0.0f64, 1e-3);
        let (mut best, mut newton_steps) = ((f64::INFINITY, 0.0), 0);
        for _ in 0..200 {
            self.control.check()?;
            let [sum, size, curvature] = search.sums(shift);
            let own = rho * (b + shift);
            let (sum, size) = (sum - own, size + own.abs());
            // Between jumps of β(z) Newton's step says nothing about the next one.
            let curvature = if curvature > 0.0 { curvature + rho } else { 0.0 };
            if sum.abs() < best.0 {
                best = (sum.abs(), shift);
            }
            if sum.abs() <= 1e-13 * size || !sum.is_finite() {
                break;
            }
            // Σβ falls as the bias rises.
            if sum > 0.0 {
                low = shift
            } else {
                high = shift
            }
            let bracketed = low.is_finite() && high.is_finite();
            inside += usize::from(bracketed);
            // On smooth losses Newton's method ends before this pays.
            if inside % NARROWING_INTERVAL == 2 {
                search.narrow(low, high);
            }
            let newton = shift + sum / curvature;
            shift = if curvature > 0.0 && newton > low && newton < high && (newton - shift).abs() <= 1e15 {
                // Newton on a piecewise linear sum may advance one piece per step: bisect in every third step.
                newton_steps += 1;
                step *= 2.0;
                match bracketed {
                    true if newton_steps % 3 == 0 => 0.5 * (low + high),
                    // If the sum vanishes only at infinity (one class under the logistic loss), Newton steps have a
                    // constant length: use steps that double.
                    false if newton_steps > 8 => {
                        if sum > 0.0 {
                            newton.max(shift + step)
                        } else {
                            newton.min(shift - step)
                        }
                    }
                    _ => newton,
                }
            } else if bracketed {
                0.5 * (low + high)
            } else {
                step *= 4.0;
                if step > 1e18 {
                    break;
                }
                shift + step * sum.signum()
            };
            if bracketed && (shift <= low || shift >= high || high - low <= 1e-16 * (low.abs() + high.abs())) {
                break;
            }
        }
        Ok(best.1)
    }

    /// Moves a free bias to Σβ(z) = 0, and updates β.
    pub(super) fn balance_bias<L: SmoothLoss>(&mut self, losses: &L) -> Result<(), Interrupt> {
        let shift = if self.rho == Some(0.0) { self.best_bias_shift(losses)? } else { 0.0 };
        if shift != 0.0 {
            self.b += shift;
            self.z.iter_mut().for_each(|z| *z += shift);
            self.update_beta(losses, Pick::All)?;
        }
        Ok(())
    }
}

/// Evaluations within a bracket from one reduction of its rows to the next.
const NARROWING_INTERVAL: usize = 3;

/// Largest |Σβ| / Σ|β| that counts as rounding.
const BALANCED_SUM: f64 = 1e-12;

/// The sum of the values by compensated summation (Neumaier).
pub(super) fn compensated_sum(values: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for &v in values {
        let next = sum + v;
        lost += if sum.abs() >= v.abs() { (sum - next) + v } else { (v - next) + sum };
        sum = next;
    }
    sum + lost
}
