//! Dual coordinate descent (Hsieh, Chang, Lin, Keerthi and Sundararajan, ICML 2008, Algorithms 1 and 3; Ho and Lin,
//! JMLR 13, 2012, for regression), for every loss with a dual term.
//!
//! ```text
//! minimise ½‖Xᵀβ‖² + Σ h(βᵢ),   h(β) = pβ + eps|β| + ½dβ² on [lo, hi]
//! βᵢ ← clip(soft(Qᵢᵢβᵢ − zᵢ − p, eps)/(Qᵢᵢ + d), lo, hi),   Qᵢᵢ = ‖xᵢ‖² + τ
//! ```
//!
//! w = Xᵀβ and b are updated in every step, so a step costs the stored values of one row. A penalised bias is the
//! weight of a feature of value s, a free bias the multiplier of Σβ = 0; both move less within an epoch than that says,
//! and more between epochs (`bias_pace.rs`). Rows are visited in a new random order in each epoch, and prefetched.
//!
//! Most β reach their final value early. A row that needs no step is visited again after 2, 4, then every 8 epochs. A
//! row whose gradient is beyond every violation of the last epoch is shrunk until the next measurement. The
//! contribution of a row to the gap is recorded at every visit; the sum of these records shows when a measurement of
//! all rows is worthwhile. Only such a measurement ends the descent. If epochs make little progress, steps over all
//! free β at once help (`face.rs`).
//!
//! Rows that are read in blocks are processed block by block, with several epochs each (Yu, Hsieh, Chang and Lin,
//! KDD 2010).

use super::bias_pace::BiasPace;
use super::rows::{RowAccess, RowState, row_states, with_rows};
use super::smooth_loss::{DualTerms, SmoothedDual, soft_threshold};
use super::state::{LinearState, Measure};
use crate::control::Status;
use crate::data::Points;
use crate::linalg::sparse;
use crate::linalg::vectorised::{Vectorised, vectorised};
use crate::loss::DualTerm;

/// Rows between two checks of the budget.
const CHECK_INTERVAL: usize = 4096;
/// Number of rows by which a row is prefetched ahead.
const PREFETCH_DISTANCE: usize = 3;
/// A row that needs no step waits at most 2 to this power epochs.
const MAX_WAIT_LEVEL: u8 = 3;
/// Number of epochs covered by the queue of waiting rows.
const QUEUE_LENGTH: usize = 1 << MAX_WAIT_LEVEL as usize;
/// Over-relaxation: a step is this multiple of that to the minimum (any factor below 2 converges; Cryer, SIAM J.
/// Control 9, 1971). The first epochs reduce the errors in stiff directions, to which long steps add noise; if there are
/// many, most of them reduce those in soft directions, where long steps help.
const RELAXATION: f64 = 1.15;
/// The same after `SHORT_STEP_EPOCHS`.
const LATE_RELAXATION: f64 = 1.3;
/// Epochs with the smaller of the two.
const SHORT_STEP_EPOCHS: usize = 16;
/// Epochs on a block of rows read from a file.
const EPOCHS_PER_BLOCK: usize = 3;
/// Fewest epochs that the violation is waited for after the gap.
const MIN_PATIENCE: usize = 8;
/// Fewest epochs between two steps over all free β.
const EPOCHS_BETWEEN_FACE_STEPS: usize = 3;
/// Such a step is tried if more than this fraction of the gap is left after four epochs.
const SLOW_RATIO: f64 = 0.8;
/// Least ratio of the gaps of two epochs from which the present gap is predicted.
const MIN_RATIO: f64 = 0.1;

/// Shuffles rows with SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), which costs a tenth of a coordinate step per
/// row.
pub(super) struct RowShuffler(pub(super) u64);

impl RowShuffler {
    pub(super) fn shuffle(&mut self, rows: &mut [u32]) {
        for at in (1..rows.len()).rev() {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            let other = ((z >> 32) * (at as u64 + 1)) >> 32;
            rows.swap(at, other as usize);
        }
    }
}

/// Multiply–adds of an epoch over `count` rows.
fn epoch_cost(points: &Points, count: usize) -> usize {
    count * (2 * points.stored() / points.len().max(1) + 40)
}

/// ‖w‖².
fn squared_norm(w: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let parts = w.chunks_exact(8);
    let rest: f64 = parts.remainder().iter().map(|w| w * w).sum();
    parts.for_each(|part| (0..8).for_each(|l| sums[l] += part[l] * part[l]));
    sums.iter().sum::<f64>() + rest
}

/// How coordinate descent ended.
pub(super) enum DescentEnd {
    /// The required gap is reached.
    Reached(Measure),
    /// Progress is slow: Newton will be faster.
    Slow(Measure),
}

/// Where coordinate descent is to end.
#[derive(Clone, Copy)]
pub(super) struct DescentTarget {
    /// The relative gap.
    pub(super) gap: f64,
    /// The violation, if there is a tolerance: it is waited for as long as it costs little.
    pub(super) tol: Option<f64>,
    pub(super) max_epochs: usize,
}

/// The variables that a step updates: w, b and Σβ.
pub(super) struct PrimalPoint<'a> {
    pub(super) w: &'a mut [f64],
    pub(super) b: &'a mut f64,
    pub(super) sum: &'a mut f64,
}

/// Coordinate descent over a block of rows, or over all rows.
pub(super) struct CoordinateDescent<'t> {
    pub(super) terms: &'t DualTerms,
    /// Index of its first row among all rows.
    pub(super) first: usize,
    pub(super) row_states: Vec<RowState>,
    /// τ: the change of b for a change of Σβ.
    pub(super) square: f64,
    pub(super) active: Vec<u32>,
    /// Rows that need no step, by the epoch of their next visit.
    queue: Vec<Vec<u32>>,
    queued: usize,
    epoch: usize,
    /// The largest violation of the last epoch: rows whose gradient is further than this on the right side are shrunk.
    shrink_threshold: f64,
    /// Sums over all rows of the loss and of the contribution to the gap, each at its last visit.
    loss: f64,
    excess: f64,
    /// Number of rows that became free or bounded in the last epoch.
    pub(super) changed: usize,
}

/// The violation of the optimality condition of β, in units of the score; negative if the condition holds strictly.
#[inline(always)]
fn violation(t: &DualTerm, beta: f64, slope: f64) -> f64 {
    let up = if beta < t.hi { -(slope + if beta < 0.0 { -t.eps } else { t.eps }) } else { f64::NEG_INFINITY };
    let down = if beta > t.lo { slope + if beta > 0.0 { t.eps } else { -t.eps } } else { f64::NEG_INFINITY };
    up.max(down)
}

/// The loss at score z, and the contribution of the sample to the gap: ℓ(z) + h(β) + βz.
#[inline(always)]
fn loss_and_excess(t: &DualTerm, beta: f64, z: f64) -> (f64, f64) {
    let s = -(t.p + z);
    let thresholded = soft_threshold(s, t.eps);
    let best = if t.d > 0.0 {
        (thresholded / t.d).max(t.lo).min(t.hi)
    } else if thresholded > 0.0 {
        t.hi
    } else if thresholded < 0.0 {
        t.lo
    } else {
        0.0
    };
    let dual_value = |b: f64| b * s - t.eps * b.abs() - 0.5 * t.d * b * b;
    let value = dual_value(best);
    (value, (value - dual_value(beta)).max(0.0))
}

impl<'t> CoordinateDescent<'t> {
    fn new(terms: &'t DualTerms, points: &Points, first: usize, beta: &[f64], square: f64) -> Self {
        let row_states = row_states(points, square, |i| {
            let t = terms.get(first + i);
            RowState { beta: beta[i], p: t.p, lo: t.lo, hi: t.hi, ..RowState::default() }
        });
        let active =
            (0..row_states.len() as u32).filter(|&i| row_states[i as usize].hi > row_states[i as usize].lo).collect();
        let queue = vec![Vec::new(); QUEUE_LENGTH];
        Self {
            terms,
            first,
            row_states,
            square,
            active,
            queue,
            queued: 0,
            epoch: 0,
            shrink_threshold: f64::INFINITY,
            loss: 0.0,
            excess: 0.0,
            changed: 0,
        }
    }

    #[inline(always)]
    pub(super) fn term(&self, i: usize) -> DualTerm {
        let row = &self.row_states[i];
        let (eps, d) = self.terms.shared(self.first + i);
        DualTerm { p: row.p, eps, d, lo: row.lo, hi: row.hi }
    }

    /// One epoch over the active rows and those due in the queue; returns the largest violation found.
    fn epoch<R: RowAccess>(
        &mut self,
        rows: R,
        point: &mut PrimalPoint<'_>,
        rng: &mut RowShuffler,
        check: impl Fn() -> Result<(), Status>,
    ) -> Result<f64, Status> {
        self.epoch += 1;
        let due = std::mem::take(&mut self.queue[self.epoch % QUEUE_LENGTH]);
        self.queued -= due.len();
        self.active.extend(due);
        rng.shuffle(&mut self.active);
        vectorised(Epoch { descent: self, rows, point, check })
    }

    #[inline(always)]
    fn visit_rows<R: RowAccess>(
        &mut self,
        rows: R,
        point: &mut PrimalPoint<'_>,
        check: impl Fn() -> Result<(), Status>,
    ) -> Result<f64, Status> {
        let count = self.active.len();
        let shrink_threshold = self.shrink_threshold;
        let relaxation = if self.epoch <= SHORT_STEP_EPOCHS { RELAXATION } else { LATE_RELAXATION };
        let (mut worst, mut kept) = (0.0f64, 0);
        self.changed = 0;
        for at in 0..count {
            if at % CHECK_INTERVAL == 0 {
                check()?;
            }
            if at + 2 * PREFETCH_DISTANCE < count {
                let next = self.active[at + 2 * PREFETCH_DISTANCE] as usize;
                sparse::prefetch(&self.row_states[next..=next]);
                rows.prefetch(&self.row_states[self.active[at + PREFETCH_DISTANCE] as usize]);
            }
            let index = self.active[at];
            let i = index as usize;
            let t = self.term(i);
            let row = &mut self.row_states[i];
            let (beta, q) = (row.beta, row.q);
            let z = rows.dot(row, point.w) + *point.b;
            let violation = violation(&t, beta, z + t.p + t.d * beta);
            let (value, excess) = loss_and_excess(&t, beta, z);
            let (value, excess) = (value as f32, excess as f32);
            self.loss += f64::from(value) - f64::from(row.value);
            self.excess += f64::from(excess) - f64::from(row.excess);
            (row.value, row.excess) = (value, excess);
            if violation < -shrink_threshold {
                continue;
            }
            if violation < 0.0 {
                row.wait_level = (row.wait_level + 1).min(MAX_WAIT_LEVEL);
                self.queue[(self.epoch + (1 << row.wait_level)) % QUEUE_LENGTH].push(index);
                self.queued += 1;
                continue;
            }
            row.wait_level = 0;
            self.active[kept] = index;
            kept += 1;
            worst = worst.max(violation);
            // An over-relaxed step; a row without features and curvature goes to its bound.
            let numerator = soft_threshold(q * beta - z - t.p, t.eps);
            let curvature = q + t.d;
            let new = if curvature > 0.0 {
                let best = numerator / curvature;
                let relaxed = beta + relaxation * (best - beta);
                // Not across the kink at 0, where the slope jumps.
                let kink = t.eps > 0.0 && relaxed * best <= 0.0;
                if kink { best } else { relaxed }.max(t.lo).min(t.hi)
            } else if numerator > 0.0 {
                t.hi
            } else if numerator < 0.0 {
                t.lo
            } else {
                beta
            };
            let delta = new - beta;
            if delta != 0.0 {
                self.changed += usize::from((beta > t.lo && beta < t.hi) != (new > t.lo && new < t.hi));
                row.beta = new;
                rows.add(row, delta, point.w);
                *point.b += self.square * delta;
                *point.sum += delta;
            }
        }
        self.active.truncate(kept);
        self.shrink_threshold = if worst > 0.0 { worst } else { f64::INFINITY };
        Ok(worst)
    }

    /// Whether no row is left to visit.
    fn is_done(&self) -> bool {
        self.active.is_empty() && self.queued == 0
    }

    /// Recomputes the records from the scores of all rows, and activates all rows except those far from a violation.
    fn reset_active(&mut self, z: &[f64]) {
        self.queue.iter_mut().for_each(Vec::clear);
        self.queued = 0;
        self.active.clear();
        (self.loss, self.excess) = (0.0, 0.0);
        let shrink_threshold = 2.0 * self.shrink_threshold;
        for i in 0..self.row_states.len() {
            let t = self.term(i);
            if t.hi <= t.lo {
                continue;
            }
            let row = &mut self.row_states[i];
            let (value, excess) = loss_and_excess(&t, row.beta, z[i]);
            (row.value, row.excess, row.wait_level) = (value as f32, excess as f32, 0);
            self.loss += f64::from(row.value);
            self.excess += f64::from(row.excess);
            if violation(&t, row.beta, z[i] + t.p + t.d * row.beta) >= -shrink_threshold {
                self.active.push(i as u32);
            }
        }
    }
}

/// One epoch, compiled for the widest vectors.
struct Epoch<'e, 'd, 'p, R, F> {
    descent: &'e mut CoordinateDescent<'d>,
    rows: R,
    point: &'e mut PrimalPoint<'p>,
    check: F,
}

impl<R: RowAccess, F: Fn() -> Result<(), Status>> Vectorised for Epoch<'_, '_, '_, R, F> {
    type Output = Result<f64, Status>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        self.descent.visit_rows(self.rows, self.point, self.check)
    }
}

impl LinearState<'_, '_> {
    /// Rough cost of Σβ ≠ 0 under a free bias: its product with a score. Only used to decide when to measure.
    fn sum_penalty(&self) -> f64 {
        if self.rho == Some(0.0) { self.sum.abs() * (1.0 + self.b.abs()) } else { 0.0 }
    }

    /// The relative gap estimated from the records of the rows.
    fn estimated_gap(&self, pace: &BiasPace, loss: f64, excess: f64) -> f64 {
        let norm = squared_norm(&self.w);
        let bias = self.rho.map_or(0.0, |rho| 0.5 * rho * self.b * self.b);
        (excess + self.sum_penalty() + pace.mismatch(self.b, self.sum))
            / (0.5 * norm + bias + loss).max(f64::MIN_POSITIVE)
    }

    /// Measures all rows at w = Xᵀβ. Under a free bias β is first moved to Σβ = 0, and b to its optimum; a penalised bias
    /// moves to its optimum if the gap is not reached without.
    fn measure_all(&mut self, terms: &DualTerms, target_gap: f64, active: usize) -> Result<Measure, Status> {
        let losses = SmoothedDual::new(terms, 0.0, &self.beta);
        self.make_feasible(&losses)?;
        let mut m = self.measure(&losses)?;
        if self.rho.is_some_and(|rho| rho > 0.0) && m.relative() > target_gap {
            self.shift_bias(&losses)?;
            m = self.measure(&losses)?;
        }
        self.report("coordinate", &m, active)?;
        Ok(m)
    }

    /// The KKT violation of β at the scores z.
    pub(super) fn box_violation(&self, terms: &DualTerms) -> f64 {
        // Bounds on the slope from the β that can fall, and from those that can rise.
        let (mut fall, mut rise) = (f64::NEG_INFINITY, f64::INFINITY);
        for i in 0..self.n() {
            let (t, beta) = (terms.get(i), self.beta[i]);
            let width = t.hi - t.lo;
            let at_bound = 1e-12 * if width.is_finite() { width } else { beta.abs().max(1.0) };
            let slope = self.z[i] + t.p + t.d * beta;
            if beta - t.lo > at_bound {
                fall = fall.max(slope + if beta > at_bound { t.eps } else { -t.eps });
            }
            if t.hi - beta > at_bound {
                rise = rise.min(slope + if beta < -at_bound { -t.eps } else { t.eps });
            }
        }
        if self.rho == Some(0.0) { fall - rise } else { fall.max(-rise) }.max(0.0)
    }

    /// Coordinate descent from the current β to the target. Sets w = Xᵀβ.
    ///
    /// The gap is often reached before the violation: with a smooth loss it falls with the square of the violation. A few
    /// more epochs then cost far less than Newton's method, which otherwise follows.
    pub(super) fn descend_coordinates(
        &mut self,
        terms: &DualTerms,
        points: &Points,
        target: DescentTarget,
        seed: u64,
    ) -> Result<DescentEnd, Status> {
        let DescentTarget { gap: target_gap, tol, max_epochs } = target;
        // Epochs to wait for the violation, once the gap is reached.
        let mut patience: Option<usize> = None;
        let pace = BiasPace::new(self.rho, points);
        self.w.copy_from_slice(&self.v);
        self.b = pace.next(self.b, self.sum);
        let mut descent = CoordinateDescent::new(terms, points, 0, &self.beta, pace.stiffness);
        let mut rng = RowShuffler(seed);
        let (mut next, mut last_face_step) = (16, 0);
        let mut history: Vec<f64> = Vec::new();
        // Of the estimates, by the last measurement.
        let mut correction = 1.0f64;
        for epoch in 1.. {
            let early = self.check().err();
            if early.is_none() {
                self.iterations += 1;
            }
            let control = self.control;
            control.spend(epoch_cost(points, descent.active.len()));
            let mut point = PrimalPoint { w: &mut self.w, b: &mut self.b, sum: &mut self.sum };
            let ran = match early {
                Some(why) => Err(why),
                None => {
                    let check = || control.check().map_err(Status::from);
                    with_rows!(points, rows => descent.epoch(rows, &mut point, &mut rng, check))
                }
            };
            let worst = match ran {
                Ok(worst) => worst,
                Err(why) => {
                    // Keep the current point: w = Xᵀβ holds at any time.
                    self.beta.iter_mut().zip(&descent.row_states).for_each(|(b, row)| *b = row.beta);
                    self.v.copy_from_slice(&self.w);
                    return Err(why);
                }
            };
            self.b = pace.next(self.b, self.sum);
            let recorded = self.estimated_gap(&pace, descent.loss, descent.excess);
            // A row is recorded before its step, so the records are those of the epoch before, about.
            let ratio = history.last().map_or(1.0, |last| (recorded / last).clamp(MIN_RATIO, 1.0));
            let estimate = correction * ratio * recorded;
            history.push(recorded);
            if estimate <= target_gap && patience.is_none() {
                patience = Some(epoch + (epoch / 2).max(MIN_PATIENCE));
            }
            let waits = tol.is_some_and(|tol| worst > tol) && patience.is_some_and(|until| epoch < until);
            if (estimate > target_gap || waits) && epoch < next && epoch < max_epochs && !descent.is_done() {
                let before = history.len().checked_sub(4).map(|at| history[at]);
                if epoch >= last_face_step + EPOCHS_BETWEEN_FACE_STEPS
                    && before.is_some_and(|before| recorded > SLOW_RATIO * before)
                {
                    last_face_step = epoch;
                    let mut point = PrimalPoint { w: &mut self.w, b: &mut self.b, sum: &mut self.sum };
                    with_rows!(points, rows => descent.face_step(rows, &mut point));
                }
                continue;
            }
            self.beta.iter_mut().zip(&descent.row_states).for_each(|(b, row)| *b = row.beta);
            let m = self.measure_all(terms, target_gap, descent.active.len())?;
            let waits = patience.is_some_and(|until| epoch < until)
                && tol.is_some_and(|tol| self.box_violation(terms) > tol)
                && !descent.is_done();
            if m.relative() <= target_gap && (!waits || epoch >= max_epochs) {
                return Ok(DescentEnd::Reached(m));
            }
            if epoch >= max_epochs {
                return Ok(DescentEnd::Slow(m));
            }
            descent.row_states.iter_mut().zip(&self.beta).for_each(|(row, b)| row.beta = *b);
            let off = correction * m.relative() / estimate;
            correction = if off.is_finite() { off.clamp(1.0, 1.0 / MIN_RATIO) } else { 1.0 };
            next = epoch + (epoch / 2).max(16);
            descent.reset_active(&self.z);
        }
        Err(Status::IterationLimit)
    }

    /// The same for rows that are read in blocks: several epochs on each block while it is in memory.
    pub(super) fn descend_blocks(
        &mut self,
        terms: &DualTerms,
        target_gap: f64,
        seed: u64,
        max_rounds: usize,
    ) -> Result<DescentEnd, Status> {
        let x = self.x;
        let mut order: Vec<u32> = (0..x.blocks() as u32).collect();
        let mut rng = RowShuffler(seed);
        self.w.copy_from_slice(&self.v);
        let free = self.rho == Some(0.0);
        let mut pace = BiasPace::immediate(self.rho, 0.0);
        if !free {
            self.b = pace.next(self.b, self.sum);
        }
        let mut typical = None;
        let mut sums = vec![(0.0, 0.0); order.len()];
        let (mut last, mut slow_rounds) = (f64::INFINITY, 0);
        for round in 1.. {
            self.check()?;
            self.iterations += 1;
            rng.shuffle(&mut order);
            let control = self.control;
            let mut failed = None;
            let mut turn = order.iter();
            x.each_block(&order, control, &mut |first, points| {
                let block = turn.next().map_or(0, |&k| k as usize);
                if typical.is_none() {
                    let norm = points.squared_norms().iter().sum::<f64>() / points.len().max(1) as f64;
                    (typical, pace) = (Some(norm), BiasPace::immediate(self.rho, norm));
                }
                let range = first..first + points.len();
                let mut descent =
                    CoordinateDescent::new(terms, points, first, &self.beta[range.clone()], pace.stiffness);
                let mut point = PrimalPoint { w: &mut self.w, b: &mut self.b, sum: &mut self.sum };
                for _ in 0..EPOCHS_PER_BLOCK {
                    control.spend(epoch_cost(points, descent.active.len()));
                    let check = || control.check().map_err(Status::from);
                    if let Err(why) = with_rows!(points, rows => descent.epoch(rows, &mut point, &mut rng, check)) {
                        failed = Some(why);
                        break;
                    }
                }
                sums[block] = (descent.loss, descent.excess);
                self.beta[range].iter_mut().zip(&descent.row_states).for_each(|(b, row)| *b = row.beta);
                if failed.is_some() { Err(crate::control::Interrupt::Cancelled) } else { Ok(()) }
            })
            .map_err(|why| failed.unwrap_or(why.into()))?;
            if free {
                self.b = pace.next(self.b, self.sum);
            }
            let (loss, excess) = sums.iter().fold((0.0, 0.0), |sum, note| (sum.0 + note.0, sum.1 + note.1));
            let estimate = self.estimated_gap(&pace, loss, excess);
            slow_rounds = if estimate < 0.8 * last { 0 } else { slow_rounds + 1 };
            last = last.min(estimate);
            // The records of a block were made before later blocks changed w, so they underestimate the gap.
            if estimate > 2.0 * target_gap && round < max_rounds && slow_rounds < 4 {
                let m = Measure { primal: loss, excess, mismatch: 0.0, rounding: 0.0 };
                self.report("coordinate", &m, self.n())?;
                continue;
            }
            let m = self.measure_all(terms, target_gap, self.n())?;
            if m.relative() <= target_gap {
                return Ok(DescentEnd::Reached(m));
            }
            if round >= max_rounds || slow_rounds >= 4 {
                return Ok(DescentEnd::Slow(m));
            }
        }
        Err(Status::IterationLimit)
    }
}
