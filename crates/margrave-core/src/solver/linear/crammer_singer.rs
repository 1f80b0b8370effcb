//! Several classes at once: the multiclass SVM of Crammer and Singer (JMLR 2, 2001).
//!
//! ```text
//! minimise over W:   ½Σ_m ‖w_m‖² + Σᵢ cᵢ·max_m (e_im + w_mᵀxᵢ − w_yᵢᵀxᵢ),   e_im = 1 if m ≠ yᵢ, else 0
//! dual:   −½Σ_m ‖w_m‖² − Σᵢ Σ_m e_im·α_im,   w_m = Σᵢ α_im·xᵢ,   Σ_m α_im = 0,   α_im ≤ cᵢ if m = yᵢ, else ≤ 0
//! ```
//!
//! The solver works with a_m = c − α_m for the own class and a_m = −α_m for the others: for each sample a point of the
//! simplex `a ≥ 0, Σa = c`. The gap is then Σᵢ Σ_m a_im·(max g_i − g_im) with the scores g = e + Wᵀx.
//!
//! The first phase is dual descent, one sample at a time (`crammer_singer_descent.rs`). It identifies most classes with
//! a = 0 within a few epochs, but converges slowly where samples outnumber the weights or features are correlated. When
//! its rate predicts more work than Newton's method needs, the proximal point method with Newton follows
//! (`crammer_singer_newton.rs`).
//!
//! P, D and the violation are measured over all samples at W and α; only such a measurement ends a run. Memory: n·k
//! numbers for a, d·k for W; four times that and the Newton matrix in the second phase. k is padded to a multiple of 4.

use super::Options;
use super::class_lanes::{LANES, Lane, add_scaled, at, dot, excess, largest, smallest_where, squared_distance};
use super::class_rows::{ClassRow, ClassRows};
use super::coordinate::RowShuffler;
use super::crammer_singer_system::MAX_DIRECT_UNKNOWNS;
use super::state::{SUM_ROUNDING, relative_gap};
use crate::control::{Control, Interrupt, Status};
use crate::data::Points;
use crate::error::{Error, Result, check_len};
use crate::linalg::vectorised::{Vectorised, vectorised};
use crate::observe::{Begin, Observer, Step};
use crate::problem::Bias;
use crate::work_limit::ITERATION;

/// Samples between two checks of the budget.
pub(super) const CHECK_INTERVAL: usize = 256;
/// Most times that Newton and descent follow each other, each from where the other stopped making progress.
const MAX_CYCLES: usize = 8;
/// They follow each other again as long as both together lower the gap to this fraction.
const CYCLE_PROGRESS: f64 = 0.5;
/// Seconds between two reports.
const REPORT_SECONDS: f64 = 0.04;

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

/// P, D and the violation at W and a.
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

/// Sums over the samples, from which a measurement is made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SampleSums {
    loss: f64,
    excess: f64,
    violation: f64,
    /// Σ|terms| of the loss, for the bound on its rounding error.
    terms: f64,
}

impl SampleSums {
    /// Adds a sample of cost `c` with scores `g`, of which `own` is that of its class.
    #[inline(always)]
    pub(super) fn add(&mut self, c: f64, g: &[Lane], a: &[Lane], own: f64) {
        let top = largest(g);
        self.add_loss(c, top, own);
        let of_sample = excess(g, a, top);
        self.excess += of_sample;
        if of_sample > 0.0 {
            self.violation = self.violation.max(top - smallest_where(g, a, 1e-12 * c));
        }
    }

    /// Adds a sample of cost `c` that is optimal: its largest score is `top`.
    #[inline(always)]
    pub(super) fn add_loss(&mut self, c: f64, top: f64, own: f64) {
        self.loss += c * (top - own);
        self.terms += c * (top.abs() + own.abs());
    }
}

/// The state of the solver.
pub(super) struct CrammerSingerState<'a, 'o> {
    pub(super) points: &'a Points,
    rows: ClassRows<'a>,
    pub(super) codes: &'a [u32],
    pub(super) costs: &'a [f64],
    pub(super) k: usize,
    /// Lanes of the classes.
    pub(super) lanes: usize,
    /// Value of the constant feature of the bias; 0 without a bias.
    pub(super) scaling: f64,
    /// (d + 1) × k: W, and the weights of that feature.
    pub(super) w: Vec<Lane>,
    /// The dual variables, n × k.
    pub(super) a: Vec<Lane>,
    /// 1 for a class, −∞ for padding.
    pub(super) margins: Vec<Lane>,
    pub(super) options: &'a Options,
    pub(super) control: &'a Control,
    observer: &'o mut dyn Observer,
    pub(super) iterations: u64,
    pub(super) last: Option<CrammerSingerMeasure>,
    reported: f64,
}

impl<'a> CrammerSingerState<'a, '_> {
    pub(super) fn n(&self) -> usize {
        self.codes.len()
    }

    /// Calls `each` with the features of row `i`, including that of the bias.
    #[inline(always)]
    pub(super) fn visit(&self, i: usize, each: impl FnMut(usize, f64)) {
        self.row(i).visit(each);
    }

    /// Multiply–adds for the scores of one row.
    pub(super) fn row_cost(&self) -> usize {
        LANES * self.lanes * (self.points.stored() / self.n().max(1) + 20)
    }

    /// The entries of sample `i` in a vector of n × k.
    #[inline(always)]
    pub(super) fn span(&self, i: usize) -> std::ops::Range<usize> {
        i * self.lanes..(i + 1) * self.lanes
    }

    /// Row `i`, with the feature of the bias.
    #[inline(always)]
    pub(super) fn row(&self, i: usize) -> ClassRow<'a> {
        ClassRow { rows: self.rows, row: i, dims: self.points.dims(), scaling: self.scaling }
    }

    /// w_mᵀx of every class, for any `w` of the shape of W.
    #[inline(always)]
    pub(super) fn products(&self, i: usize, w: &[Lane], out: &mut [Lane]) {
        self.row(i).products(w, out);
    }

    /// Adds e to the products of sample `i` with W, which makes them scores. Returns the score of the own class.
    #[inline(always)]
    pub(super) fn add_margins(&self, i: usize, g: &mut [Lane]) -> f64 {
        let (lane, l) = at(self.codes[i] as usize);
        let own = g[lane][l];
        add_scaled(&self.margins, 1.0, g);
        g[lane][l] = own;
        own
    }

    /// Σ xα over all samples, in the shape of W.
    pub(super) fn combined(&self) -> Result<Vec<Lane>, Interrupt> {
        let mut v = vec![[0.0; LANES]; self.w.len()];
        let mut alpha = vec![[0.0; LANES]; self.lanes];
        self.control.spend(self.n() * self.row_cost());
        for i in 0..self.n() {
            if i % CHECK_INTERVAL == 0 {
                self.control.check()?;
            }
            if self.fill_alpha(i, &mut alpha) {
                self.row(i).add(&alpha, &mut v);
            }
        }
        Ok(v)
    }

    /// α of sample `i`; false if it is zero. α of the own class makes the sum zero.
    fn fill_alpha(&self, i: usize, alpha: &mut [Lane]) -> bool {
        let (lane, l) = at(self.codes[i] as usize);
        let mut others = 0.0;
        for (alpha, a) in alpha.iter_mut().zip(&self.a[self.span(i)]) {
            (0..LANES).for_each(|l| alpha[l] = -a[l]);
        }
        alpha[lane][l] = 0.0;
        alpha.iter().flatten().for_each(|a| others -= a);
        alpha[lane][l] = others.min(self.costs[i]);
        others > 0.0
    }

    /// P, D and the violation; `v` is Σ xα, by default W.
    pub(super) fn measure(&mut self, v: Option<&[Lane]>) -> Result<CrammerSingerMeasure, Interrupt> {
        self.control.spend(self.n() * self.row_cost());
        let sums = vectorised(MeasureSamples { state: self })?;
        Ok(self.note_measure(sums, v))
    }

    /// The measurement from the sums over the samples.
    pub(super) fn note_measure(&mut self, sums: SampleSums, v: Option<&[Lane]>) -> CrammerSingerMeasure {
        let norm = 0.5 * dot(&self.w, &self.w);
        let m = CrammerSingerMeasure {
            primal: norm + sums.loss,
            excess: sums.excess,
            mismatch: v.map_or(0.0, |v| 0.5 * squared_distance(&self.w, v)),
            violation: sums.violation,
            rounding: SUM_ROUNDING * (sums.terms + norm),
        };
        self.last = Some(m);
        self.control.note(None, Some(m.gap()));
        m
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

    /// Recomputes W = Σ xα, and measures.
    pub(super) fn recompute_weights(&mut self) -> Result<CrammerSingerMeasure, Interrupt> {
        let v = self.combined()?;
        self.w = v;
        self.measure(None)
    }

    fn run(&mut self) -> Result<Status, Status> {
        let mut rng = RowShuffler(self.options.seed);
        if self.descend_by_sample(&mut rng, true)? == Status::Optimal {
            return Ok(Status::Optimal);
        }
        let mut before = f64::INFINITY;
        for _ in 0..MAX_CYCLES {
            if self.proximal()? == Status::Optimal {
                return Ok(Status::Optimal);
            }
            let v = self.combined()?;
            let newton = (self.measure(Some(&v))?.gap(), self.w.clone(), self.a.clone());
            let ended = self.descend_by_sample(&mut rng, false);
            if ended == Ok(Status::Optimal) {
                return ended;
            }
            let mut gap = self.last.map_or(f64::INFINITY, |m| m.gap());
            if gap > newton.0 {
                (gap, self.w, self.a) = newton;
            }
            ended?;
            if !(gap < CYCLE_PROGRESS * before) {
                break;
            }
            before = gap;
        }
        Ok(Status::Stalled)
    }

    /// The values of the classes in every row of `lanes`, without padding.
    fn unpadded(&self, lanes: &[Lane]) -> Vec<f64> {
        lanes.chunks(self.lanes).flat_map(|row| row.iter().flatten().take(self.k)).copied().collect()
    }
}

/// The sums over all samples at the current W and a.
struct MeasureSamples<'s, 'a, 'o> {
    state: &'s CrammerSingerState<'a, 'o>,
}

impl Vectorised for MeasureSamples<'_, '_, '_> {
    type Output = Result<SampleSums, Interrupt>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let state = self.state;
        let mut sums = SampleSums::default();
        let mut g = vec![[0.0; LANES]; state.lanes];
        for i in (0..state.n()).filter(|&i| state.costs[i] > 0.0) {
            if i % CHECK_INTERVAL == 0 {
                state.control.check()?;
            }
            state.products(i, &state.w, &mut g);
            let own = state.add_margins(i, &mut g);
            sums.add(state.costs[i], &g, &state.a[state.span(i)], own);
        }
        Ok(sums)
    }
}

/// Fails if the problem is not well formed; returns the value of the constant feature of the bias.
fn check_problem(points: &Points, codes: &[u32], k: usize, costs: &[f64], bias: Bias) -> Result<f64> {
    check_len("classes of the rows", points.len(), codes.len())?;
    check_len("number of costs", points.len(), costs.len())?;
    if k < 2 || codes.iter().any(|&c| c as usize >= k) {
        return Err(Error::data(format!(
            "every row must belong to one of {k} classes, and at least 2 classes are needed"
        )));
    }
    if let Some(row) = costs.iter().position(|c| !(*c >= 0.0 && c.is_finite())) {
        return Err(Error::data(format!("the cost of row {row} is {}: costs must be ≥ 0", costs[row])));
    }
    match bias {
        Bias::None => Ok(0.0),
        Bias::Penalised { scaling } => Ok(scaling),
        Bias::Free => Err(Error::Unsupported {
            solver: "crammer-singer",
            what: "a free bias".into(),
            instead: "a penalised bias, or none".into(),
        }),
    }
}

/// Multiply–adds of a Newton step with all rows in its matrix: with many classes most of it is the factorisation.
fn newton_pass(points: &Points, k: usize) -> f64 {
    let rows = (points.stored() + points.len()) as f64 * k as f64;
    let unknowns = points.dims() as f64 * k as f64;
    if unknowns <= MAX_DIRECT_UNKNOWNS as f64 {
        rows * unknowns.max(1.0) + unknowns.powi(3) / 6.0
    } else {
        rows * 500.0
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
    let scaling = check_problem(points, codes, k, costs, bias)?;
    let control = &control.for_run(newton_pass(points, k));
    let lanes = k.div_ceil(LANES);
    let fits = |rows: usize| rows.checked_mul(lanes).filter(|size| size.checked_mul(8 * LANES).is_some());
    let (Some(alphas), Some(weights)) = (fits(n), d.checked_add(1).and_then(fits)) else {
        return Err(Error::data("n·k or d·k is too large"));
    };
    let begin = Begin { solver: "crammer-singer", n, tol: options.stop.tol, gap: options.stop.gap };
    let stopped = observer.begin(&begin).is_break();
    let mut a = vec![[0.0; LANES]; alphas];
    for (i, &code) in codes.iter().enumerate() {
        let (lane, l) = at(code as usize);
        a[i * lanes + lane][l] = costs[i];
    }
    let mut margins = vec![[f64::NEG_INFINITY; LANES]; lanes];
    margins.iter_mut().flatten().take(k).for_each(|e| *e = 1.0);
    let (w, iterations, last, reported) = (vec![[0.0; LANES]; weights], 0, None, f64::NEG_INFINITY);
    let mut state = CrammerSingerState {
        points,
        rows: ClassRows::new(points),
        codes,
        costs,
        k,
        lanes,
        scaling,
        w,
        a,
        margins,
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
        _ => state.combined().and_then(|v| state.measure(Some(&v))).unwrap_or(CrammerSingerMeasure {
            primal: f64::INFINITY,
            excess: f64::INFINITY,
            mismatch: 0.0,
            violation: f64::INFINITY,
            rounding: 0.0,
        }),
    };
    let end = Step { iteration: state.iterations, seconds: control.seconds(), ..Step::default() };
    state.observer.finish(status, &end);
    let mut weights = state.unpadded(&state.w);
    let bias = weights.split_off(d * k).iter().map(|w| scaling * w).collect();
    for i in 0..n {
        let mut alpha = state.a[state.span(i)].to_vec();
        state.fill_alpha(i, &mut alpha);
        let span = state.span(i);
        state.a[span].copy_from_slice(&alpha);
    }
    let alpha = state.unpadded(&state.a);
    let (primal, dual) = (measured.primal, measured.primal - measured.gap());
    Ok(CrammerSinger { weights, bias, alpha, primal, dual, status, iterations: state.iterations })
}
