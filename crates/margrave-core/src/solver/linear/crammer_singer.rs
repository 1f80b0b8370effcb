//! Several classes at once: the multiclass SVM of Crammer and Singer (JMLR 2, 2001).
//!
//! ```text
//! minimise over W:   ½Σ_m ‖w_m‖² + Σᵢ cᵢ·max_m (e_im + w_mᵀxᵢ − w_yᵢᵀxᵢ),   e_im = 1 if m ≠ yᵢ, else 0
//! dual:   −½Σ_m ‖w_m‖² − Σᵢ Σ_m e_im·α_im,   w_m = Σᵢ α_im·xᵢ,   Σ_m α_im = 0,   α_im ≤ cᵢ if m = yᵢ, else ≤ 0
//! ```
//!
//! The first phase is dual descent, one sample at a time (Keerthi, Sundararajan, Chang, Hsieh and Lin, KDD 2008,
//! section 3): for one sample the dual is ½A‖α‖² + Bᵀα, so α_m = min(bound, (θ − B_m)/A), with the θ for which the sum
//! is 0, found by sorting. A step costs k times the stored values of a row. Samples that satisfy their optimality
//! condition are shrunk until the next measurement over all samples. If the epochs make little progress (large costs,
//! unscaled features), the proximal point method with Newton follows (`crammer_singer_newton.rs`).
//!
//! P, D and the violation are measured over all samples at W and α; only such a measurement ends a run. Memory: n·k
//! numbers for α, d·k for W; twice that and the Newton matrix in the second phase.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::Options;
use super::solve::GapProgress;
use super::state::{SUM_ROUNDING, relative_gap};
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::{Error, Result, check_len};
use crate::observe::{Begin, Observer, Step};
use crate::problem::Bias;
use crate::work_limit::ITERATION;

/// Samples between two checks of the budget.
const CHECK_INTERVAL: usize = 256;
/// Seconds between two reports.
const REPORT_SECONDS: f64 = 0.04;
/// Fewest epochs of dual descent.
const MIN_EPOCHS: u64 = 30;
/// Dual descent continues as long as its current rate predicts at most this many more epochs.
const MAX_EPOCHS_AHEAD: f64 = 60.0;
/// Epochs after which Newton follows in any case.
const MAX_EPOCHS: u64 = 400;

/// The model of Crammer and Singer: the class of x is the one with the largest w_mᵀx + b_m.
#[derive(Debug, Clone)]
pub struct CrammerSinger {
    /// w of each class, `d × k` row-major.
    pub weights: Vec<f64>,
    /// b of each class; zeros without a bias.
    pub bias: Vec<f64>,
    /// α, `n × k` row-major: the dual variables, for the certificate.
    pub alpha: Vec<f64>,
    /// The primal objective.
    pub primal: f64,
    /// The dual objective: a lower bound on the optimum.
    pub dual: f64,
    /// Why the run ended.
    pub status: Status,
    /// Epochs and Newton steps.
    pub iterations: u64,
}

impl CrammerSinger {
    /// (primal − dual) / max(|primal|, |dual|); 0 where both are 0.
    pub fn relative_gap(&self) -> f64 {
        relative_gap(self.primal, self.primal - self.dual, 0.0)
    }
}

/// P, D and the violation at W and α.
#[derive(Debug, Clone, Copy)]
pub(super) struct CrammerSingerMeasure {
    pub(super) primal: f64,
    /// Sum of the contributions of the samples to the gap.
    pub(super) excess: f64,
    /// ½‖W − Σ xα‖²: the rest of the gap.
    pub(super) mismatch: f64,
    pub(super) violation: f64,
    pub(super) rounding: f64,
}

impl CrammerSingerMeasure {
    pub(super) fn gap(&self) -> f64 {
        self.excess + self.mismatch
    }

    pub(super) fn relative(&self) -> f64 {
        relative_gap(self.primal, self.gap(), self.rounding)
    }
}

/// The state of the solver.
pub(super) struct CrammerSingerState<'a, 'o> {
    pub(super) points: &'a Points,
    pub(super) codes: &'a [u32],
    pub(super) costs: &'a [f64],
    pub(super) k: usize,
    /// Value of the constant feature of the bias; 0 without a bias.
    pub(super) scaling: f64,
    /// (d + 1) × k: W, and the weights of that feature.
    pub(super) w: Vec<f64>,
    pub(super) alpha: Vec<f64>,
    pub(super) options: &'a Options,
    pub(super) control: &'a Control,
    observer: &'o mut dyn Observer,
    pub(super) iterations: u64,
    last: Option<CrammerSingerMeasure>,
    reported: f64,
}

impl CrammerSingerState<'_, '_> {
    pub(super) fn n(&self) -> usize {
        self.codes.len()
    }

    /// Calls `each` with the features of row `i`, including that of the bias.
    #[inline(always)]
    pub(super) fn visit(&self, i: usize, mut each: impl FnMut(usize, f64)) {
        self.points.visit(i, &mut each);
        if self.scaling > 0.0 {
            each(self.points.dims(), self.scaling);
        }
    }

    /// Multiply–adds for the scores of one row.
    pub(super) fn row_cost(&self) -> usize {
        self.k * (self.points.stored() / self.n().max(1) + 20)
    }

    /// w_mᵀx of every class, for any `w` of the shape of W.
    pub(super) fn products(&self, i: usize, w: &[f64], out: &mut [f64]) {
        let k = self.k;
        out.fill(0.0);
        self.visit(i, |j, v| out.iter_mut().zip(&w[j * k..(j + 1) * k]).for_each(|(g, w)| *g += v * w));
    }

    /// e_m + w_mᵀx of every class.
    fn scores(&self, i: usize, out: &mut [f64]) {
        self.products(i, &self.w, out);
        let own_class = self.codes[i] as usize;
        out.iter_mut().enumerate().filter(|(m, _)| *m != own_class).for_each(|(_, g)| *g += 1.0);
    }

    fn bound(&self, i: usize, m: usize) -> f64 {
        if m == self.codes[i] as usize { self.costs[i] } else { 0.0 }
    }

    /// The largest score minus the smallest score of a class whose α can increase: 0 at the optimum of the sample.
    fn violation(&self, i: usize, g: &[f64]) -> f64 {
        let alpha = &self.alpha[i * self.k..(i + 1) * self.k];
        let largest = g.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let at_bound = 1e-12 * self.costs[i];
        let can_rise = (0..self.k).filter(|&m| alpha[m] < self.bound(i, m) - at_bound);
        let smallest = can_rise.map(|m| g[m]).fold(f64::INFINITY, f64::min);
        if smallest.is_finite() { (largest - smallest).max(0.0) } else { 0.0 }
    }

    /// Σ xα over all samples, in the shape of W.
    pub(super) fn combined(&self) -> Result<Vec<f64>, Interrupt> {
        let k = self.k;
        let mut v = vec![0.0; self.w.len()];
        self.control.spend(self.n() * self.row_cost());
        for i in 0..self.n() {
            if i % CHECK_INTERVAL == 0 {
                self.control.check()?;
            }
            let alpha = &self.alpha[i * k..(i + 1) * k];
            if alpha.iter().any(|a| *a != 0.0) {
                self.visit(i, |j, x| v[j * k..(j + 1) * k].iter_mut().zip(alpha).for_each(|(v, a)| *v += x * a));
            }
        }
        Ok(v)
    }

    /// P, D and the violation; `v` is Σ xα.
    pub(super) fn measure(&mut self, v: &[f64]) -> Result<CrammerSingerMeasure, Interrupt> {
        let (k, norm) = (self.k, 0.5 * self.w.iter().map(|w| w * w).sum::<f64>());
        let mismatch = 0.5 * self.w.iter().zip(v).map(|(w, v)| (w - v) * (w - v)).sum::<f64>();
        let (mut loss, mut excess, mut violation, mut terms) = (0.0, 0.0, 0.0f64, 0.0);
        let mut g = vec![0.0; k];
        self.control.spend(self.n() * self.row_cost());
        for i in (0..self.n()).filter(|&i| self.costs[i] > 0.0) {
            if i % CHECK_INTERVAL == 0 {
                self.control.check()?;
            }
            self.scores(i, &mut g);
            let (own_class, c) = (self.codes[i] as usize, self.costs[i]);
            let largest = g.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            loss += c * (largest - g[own_class]);
            terms += c * (largest.abs() + g[own_class].abs());
            let alpha = &self.alpha[i * k..(i + 1) * k];
            excess += (0..k).map(|m| (self.bound(i, m) - alpha[m]).max(0.0) * (largest - g[m])).sum::<f64>();
            violation = violation.max(self.violation(i, &g));
        }
        let m = CrammerSingerMeasure {
            primal: norm + loss,
            excess,
            mismatch,
            violation,
            rounding: SUM_ROUNDING * (terms + norm),
        };
        self.last = Some(m);
        self.control.note(None, Some(m.gap()));
        Ok(m)
    }

    /// Whether the stopping criteria hold.
    pub(super) fn is_optimal(&self, m: &CrammerSingerMeasure) -> bool {
        let stop = &self.options.stop;
        stop.tol.is_none_or(|tol| m.violation <= tol) && stop.gap.is_none_or(|gap| m.relative() <= gap)
    }

    /// The relative gap to reach.
    pub(super) fn target_gap(&self) -> f64 {
        self.options.stop.gap.unwrap_or(1e-4)
    }

    /// Checks the budget, and reports if a report is due; `Err` if the run must end.
    pub(super) fn poll(&mut self, phase: &'static str, active: usize) -> Result<(), Status> {
        self.control.check().map_err(Status::from)?;
        if self.control.seconds() < self.reported + REPORT_SECONDS {
            return Ok(());
        }
        self.report(phase, active)
    }

    /// Reports the last measurement.
    pub(super) fn report(&mut self, phase: &'static str, active: usize) -> Result<(), Status> {
        self.reported = self.control.seconds();
        let step = Step {
            iteration: self.iterations,
            seconds: self.reported,
            phase,
            violation: self.last.map(|m| m.violation),
            primal: self.last.map(|m| m.primal),
            dual: self.last.map(|m| m.primal - m.gap()),
            active: Some(active),
            ..Step::default()
        };
        if self.observer.step(&step).is_break() { Err(Status::Interrupted) } else { Ok(()) }
    }

    /// Counts a new iteration; `Err` if the limit is reached.
    pub(super) fn count_iteration(&mut self) -> Result<(), Status> {
        if self.options.iterations.is_some_and(|limit| self.iterations >= limit) {
            return Err(Status::IterationLimit);
        }
        self.iterations += 1;
        self.control.spend(ITERATION);
        Ok(())
    }

    /// Sets α of sample `i` to its optimum, given its scores.
    fn optimise_sample(&mut self, i: usize, g: &[f64], square: f64, order: &mut Vec<(f64, usize)>, delta: &mut [f64]) {
        let k = self.k;
        let old = &self.alpha[i * k..(i + 1) * k];
        let target = |m: usize| g[m] - square * old[m];
        order.clear();
        order.extend((0..k).map(|m| (target(m) + square * self.bound(i, m), m)));
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // Classes at their bound come first; θ must lie between the edge of the last of them and that of the next
        // class.
        let mut rest: f64 = (0..k).map(target).sum();
        let (mut capped, mut theta) = (0.0, rest / k as f64);
        for (r, &(edge, m)) in order.iter().enumerate() {
            theta = (rest - square * capped) / (k - r) as f64;
            if theta <= edge {
                break;
            }
            rest -= target(m);
            capped += self.bound(i, m);
        }
        let own_class = self.codes[i] as usize;
        let mut other_sum = 0.0;
        for m in (0..k).filter(|&m| m != own_class) {
            let new = ((theta - target(m)) / square).min(0.0);
            delta[m] = new - old[m];
            other_sum += new;
        }
        // α of the own class makes the sum 0; this is the value of the formula up to rounding. It is at most the cost.
        let c = self.costs[i];
        if -other_sum > c {
            let shrink = c / -other_sum;
            (0..k).filter(|&m| m != own_class).for_each(|m| delta[m] = shrink * (old[m] + delta[m]) - old[m]);
            other_sum = -c;
        }
        delta[own_class] = -other_sum - old[own_class];
        let moved: Vec<(usize, f64)> = (0..k).filter(|&m| delta[m] != 0.0).map(|m| (m, delta[m])).collect();
        if moved.is_empty() {
            return;
        }
        moved.iter().for_each(|&(m, d)| self.alpha[i * k + m] += d);
        let (w, points, scaling) = (&mut self.w, self.points, self.scaling);
        let mut add = |j: usize, v: f64| moved.iter().for_each(|&(m, d)| w[j * k + m] += v * d);
        points.visit(i, &mut add);
        if scaling > 0.0 {
            add(points.dims(), scaling);
        }
    }

    /// Recomputes W = Σ xα, and measures.
    fn recompute_weights(&mut self) -> Result<CrammerSingerMeasure, Interrupt> {
        let v = self.combined()?;
        self.w.copy_from_slice(&v);
        self.measure(&v)
    }

    /// Epochs of dual descent from the current α. `Optimal` once the stopping criteria hold; `Stalled` without progress
    /// in the gap or, if Newton follows, when progress is slow.
    fn descend_by_sample(&mut self, rng: &mut ChaCha8Rng, newton_follows: bool) -> Result<Status, Status> {
        let (n, k) = (self.n(), self.k);
        let bias_square = self.scaling * self.scaling;
        let squares: Vec<f64> = self.points.squared_norms().iter().map(|q| q + bias_square).collect();
        let all: Vec<u32> = (0..n as u32).filter(|&i| self.costs[i as usize] > 0.0).collect();
        for &i in &all {
            // The loss of an empty row is 1 for any W; its α must match that.
            let (i, own_class) = (i as usize, self.codes[i as usize] as usize);
            if squares[i] == 0.0 {
                self.alpha[i * k + own_class] = self.costs[i];
                self.alpha[i * k + usize::from(own_class == 0)] = -self.costs[i];
            }
        }
        let mut m = self.recompute_weights()?;
        self.report("coordinate", all.len())?;
        let mut active = all.clone();
        let (mut g, mut delta, mut order) = (vec![0.0; k], vec![0.0; k], Vec::with_capacity(k));
        let (mut epoch, mut next, mut shrink_threshold) = (0, 1, 0.0);
        let mut progress = GapProgress::default();
        let mut history: Vec<(u64, f64)> = Vec::new();
        loop {
            if self.is_optimal(&m) {
                return Ok(Status::Optimal);
            }
            history.push((epoch, m.gap()));
            let slow = epoch >= MAX_EPOCHS || (epoch >= MIN_EPOCHS && self.is_slow(&history, &m));
            if progress.has_stalled(m.gap(), 12) || (newton_follows && slow) {
                return Ok(Status::Stalled);
            }
            let before = m.violation;
            while epoch < next {
                self.count_iteration()?;
                epoch += 1;
                active.shuffle(rng);
                self.control.spend(3 * active.len() * self.row_cost());
                let (mut worst, mut kept) = (0.0f64, 0);
                for at in 0..active.len() {
                    if at % CHECK_INTERVAL == 0 {
                        self.poll("coordinate", active.len())?;
                    }
                    let i = active[at] as usize;
                    if squares[i] == 0.0 {
                        continue;
                    }
                    self.scores(i, &mut g);
                    let violation = self.violation(i, &g);
                    if violation <= shrink_threshold {
                        continue;
                    }
                    active[kept] = active[at];
                    kept += 1;
                    worst = worst.max(violation);
                    self.optimise_sample(i, &g, squares[i], &mut order, &mut delta);
                }
                active.truncate(kept);
                shrink_threshold = 0.01 * worst;
                // A few samples far from their optimum must not delay all others.
                if active.is_empty() || worst <= 0.1 * before {
                    break;
                }
            }
            m = self.recompute_weights()?;
            self.report("coordinate", active.len())?;
            next = epoch + 1 + (epoch / 6).min(20);
            active.clone_from(&all);
            shrink_threshold = 0.0;
        }
    }

    /// Whether descent would need many more epochs at the rate of their second half.
    fn is_slow(&self, history: &[(u64, f64)], m: &CrammerSingerMeasure) -> bool {
        let ahead = if self.can_factor_newton() { MAX_EPOCHS_AHEAD } else { 10.0 * MAX_EPOCHS_AHEAD };
        let Some(&(now, gap)) = history.last() else { return false };
        let Some(&(then, before)) = history.iter().rev().find(|(epoch, _)| 2 * epoch <= now) else { return false };
        let rate = (before / gap).ln() / (now - then).max(1) as f64;
        let left = (gap / (self.target_gap() * m.primal.abs())).ln();
        !(rate > 0.0) || left > ahead * rate
    }

    fn run(&mut self) -> Result<Status, Status> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.options.seed);
        if self.descend_by_sample(&mut rng, true)? == Status::Optimal || self.proximal()? == Status::Optimal {
            return Ok(Status::Optimal);
        }
        let v = self.combined()?;
        let newton = (self.measure(&v)?, self.w.clone(), self.alpha.clone());
        let status = self.descend_by_sample(&mut rng, false)?;
        if status != Status::Optimal && self.last.is_none_or(|m| m.gap() > newton.0.gap()) {
            (_, self.w, self.alpha) = newton;
        }
        Ok(status)
    }
}

/// Trains the model of Crammer and Singer. `codes` holds the class of each row, less than `classes`; the bias is absent
/// or penalised.
pub fn solve_crammer_singer(
    points: &Points,
    codes: &[u32],
    classes: usize,
    costs: &[f64],
    bias: Bias,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<CrammerSinger> {
    options.check()?;
    let (n, d, k) = (points.len(), points.dims(), classes);
    let unknowns = (d * k).clamp(1, 500) as f64;
    let control = &control.for_run((points.stored() + n) as f64 * k as f64 * unknowns);
    check_len("classes of the rows", n, codes.len())?;
    check_len("number of costs", n, costs.len())?;
    if k < 2 || codes.iter().any(|&c| c as usize >= k) {
        return Err(Error::data(format!(
            "every row must belong to one of {k} classes, and at least 2 classes are needed"
        )));
    }
    if let Some(row) = costs.iter().position(|c| !(*c >= 0.0 && c.is_finite())) {
        return Err(Error::data(format!("the cost of row {row} is {}: costs must be ≥ 0", costs[row])));
    }
    let scaling = match bias {
        Bias::None => 0.0,
        Bias::Penalised { scaling } => scaling,
        Bias::Free => {
            return Err(Error::Unsupported {
                solver: "crammer-singer",
                what: "a free bias".into(),
                instead: "a penalised bias, or none".into(),
            });
        }
    };
    let fits = |rows: usize| rows.checked_mul(k).filter(|size| size.checked_mul(8).is_some());
    let (Some(alphas), Some(weights)) = (fits(n), d.checked_add(1).and_then(fits)) else {
        return Err(Error::data("n·k or d·k is too large"));
    };
    let begin = Begin { solver: "crammer-singer", n, tol: options.stop.tol, gap: options.stop.gap };
    let stopped = observer.begin(&begin).is_break();
    let (w, alpha) = (vec![0.0; weights], vec![0.0; alphas]);
    let (iterations, last, reported) = (0, None, f64::NEG_INFINITY);
    let mut state = CrammerSingerState {
        points,
        codes,
        costs,
        k,
        scaling,
        w,
        alpha,
        options,
        control,
        observer,
        iterations,
        last,
        reported,
    };
    let status = if stopped { Status::Interrupted } else { state.run().unwrap_or_else(|early| early) };
    // The last measurement is known to be that of the returned point only if the run ended with `Optimal`.
    let unlimited = control.without_deadline();
    state.control = &unlimited;
    let measured = match (status, state.last) {
        (Status::Optimal, Some(m)) => m,
        _ => state.combined().and_then(|v| state.measure(&v)).unwrap_or(CrammerSingerMeasure {
            primal: f64::INFINITY,
            excess: f64::INFINITY,
            mismatch: 0.0,
            violation: f64::INFINITY,
            rounding: 0.0,
        }),
    };
    let end = Step { iteration: state.iterations, seconds: control.seconds(), ..Step::default() };
    state.observer.finish(status, &end);
    let bias = state.w.split_off(d * k).iter().map(|w| scaling * w).collect();
    let (primal, dual) = (measured.primal, measured.primal - measured.gap());
    Ok(CrammerSinger { weights: state.w, bias, alpha: state.alpha, primal, dual, status, iterations: state.iterations })
}
