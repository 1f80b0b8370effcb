//! Dual coordinate descent (Hsieh, Chang, Lin, Keerthi and Sundararajan, ICML 2008, Algorithms 1 and 3; Ho and Lin, JMLR 13,
//! 2012, for regression), for every loss with a dual term.
//!
//! ```text
//! minimise ½‖Xᵀβ‖² + Σ h(βᵢ),   h(β) = pβ + eps|β| + ½dβ² on [lo, hi]
//! βᵢ ← clip(soft(Qᵢᵢβᵢ − zᵢ − p, eps)/(Qᵢᵢ + d), lo, hi),   Qᵢᵢ = ‖xᵢ‖² + s²
//! ```
//!
//! w = Xᵀβ and b are kept up to date, so a step costs the stored values of one row. A penalised bias is the weight of a feature of value s.
//! A free bias is the multiplier of Σβ = 0: within an epoch it is penalised about where it stood, with s² the mean squared norm of the
//! rows, and after it moves by s²Σβ (method of multipliers). Rows are taken in a new random order each epoch, and asked for from memory
//! before their turn.
//!
//! Most rows are settled early. One that wants no step is looked at again after 2, 4, then every 8 epochs; one whose gradient is beyond
//! every violation of the last epoch is left out until all others agree. The share of a row in the gap is noted whenever it is looked at, so
//! that the sum of the notes tells when a measurement of all rows is worth its pass; nothing is concluded without one. Where epochs gain
//! little, steps over all free β at once help (`face.rs`).
//!
//! Rows that are read in blocks are taken a block at a time, several epochs each (Yu, Hsieh, Chang and Lin, KDD 2010).

use super::piece::{Smoothed, Terms};
use super::state::{Measure, State};
use crate::control::Status;
use crate::data::{Points, Real, Storage};
use crate::linalg::sparse;
use crate::loss::DualTerm;

/// Rows between two looks at the clock.
const LOOK: usize = 4096;
/// Rows a row is asked for ahead of its turn.
const AHEAD: usize = 3;
/// A settled row waits at most 2 to this power epochs.
const PATIENCE: u8 = 3;
/// Epochs the queue of waiting rows reaches.
const QUEUE: usize = 1 << PATIENCE as usize;
/// Steps go this much of the way to the minimum (any factor below 2 converges; Cryer, SIAM J. Control 9, 1971).
const RELAX: f64 = 1.3;
/// Epochs on a block of rows that was read from a file.
const INNER: usize = 3;
/// Epochs between two steps over all free β.
const REST: usize = 3;
/// Share of the gap that must be left after four epochs for such a step to be tried.
const CRAWL: f64 = 0.8;

/// Random orders of rows: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). A step of it costs a tenth of a row's.
struct Order(u64);

impl Order {
    fn shuffle(&mut self, rows: &mut [u32]) {
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

/// Multiply–adds of an epoch over `count` of the rows.
fn work_of(points: &Points, count: usize) -> usize {
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
pub(super) enum Descended {
    /// The gap asked for holds.
    Reached(Measure),
    /// Newton will be faster from here.
    Crawling(Measure),
}

/// All that a step needs of a row besides its features: one line of cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Cell {
    pub(super) beta: f64,
    /// Qᵢᵢ.
    pub(super) q: f64,
    pub(super) p: f64,
    pub(super) lo: f64,
    pub(super) hi: f64,
    /// Loss and share in the gap when it was last looked at.
    value: f32,
    excess: f32,
    start: u64,
    len: u32,
    level: u8,
}

/// The rows as they are stored.
pub(super) trait Rows: Copy {
    fn dot(&self, cell: &Cell, w: &[f64]) -> f64;
    fn add(&self, cell: &Cell, c: f64, w: &mut [f64]);
    fn soon(&self, cell: &Cell);
}

#[derive(Clone, Copy)]
struct Sparse<'a, T> {
    columns: &'a [u32],
    values: &'a [T],
}

impl<T: Real> Rows for Sparse<'_, T> {
    #[inline(always)]
    fn dot(&self, cell: &Cell, w: &[f64]) -> f64 {
        let range = cell.range();
        sparse::dot(&self.columns[range.clone()], &self.values[range], w)
    }
    #[inline(always)]
    fn add(&self, cell: &Cell, c: f64, w: &mut [f64]) {
        let range = cell.range();
        sparse::add(&self.columns[range.clone()], &self.values[range], c, w);
    }
    #[inline(always)]
    fn soon(&self, cell: &Cell) {
        let range = cell.range();
        sparse::prefetch(&self.columns[range.clone()]);
        sparse::prefetch(&self.values[range]);
    }
}

#[derive(Clone, Copy)]
struct Dense<'a, T> {
    values: &'a [T],
}

impl<T: Real> Rows for Dense<'_, T> {
    #[inline(always)]
    fn dot(&self, cell: &Cell, w: &[f64]) -> f64 {
        let x = &self.values[cell.range()];
        let mut sums = [0.0; 8];
        let (xs, ws) = (x.chunks_exact(8), w.chunks_exact(8));
        let rest: f64 = xs.remainder().iter().zip(ws.remainder()).map(|(x, w)| x.to_f64() * w).sum();
        for (x, w) in xs.zip(ws) {
            (0..8).for_each(|l| sums[l] += x[l].to_f64() * w[l]);
        }
        sums.iter().sum::<f64>() + rest
    }
    #[inline(always)]
    fn add(&self, cell: &Cell, c: f64, w: &mut [f64]) {
        w.iter_mut().zip(&self.values[cell.range()]).for_each(|(w, x)| *w += c * x.to_f64());
    }
    #[inline(always)]
    fn soon(&self, cell: &Cell) {
        sparse::prefetch(&self.values[cell.range()]);
    }
}

impl Cell {
    /// Stored values of the row.
    pub(super) fn stored(&self) -> usize {
        self.len as usize
    }

    #[inline(always)]
    fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// Does `$body` with `$rows` bound to the rows of `$points`, whatever their storage.
macro_rules! with_rows {
    ($points:expr, $rows:ident => $body:expr) => {
        match $points.storage() {
            Storage::SparseF32(m) => {
                let $rows = Sparse { columns: m.columns(), values: m.values() };
                $body
            }
            Storage::SparseF64(m) => {
                let $rows = Sparse { columns: m.columns(), values: m.values() };
                $body
            }
            Storage::DenseF32(m) => {
                let $rows = Dense { values: m.values() };
                $body
            }
            Storage::DenseF64(m) => {
                let $rows = Dense { values: m.values() };
                $body
            }
        }
    };
}

/// What moves: w, b and Σβ.
pub(super) struct Moving<'a> {
    pub(super) w: &'a mut [f64],
    pub(super) b: &'a mut f64,
    pub(super) sum: &'a mut f64,
}

/// Coordinate descent over some rows.
pub(super) struct Sweep<'t> {
    pub(super) terms: &'t Terms,
    /// The first of its rows among all.
    pub(super) first: usize,
    pub(super) cells: Vec<Cell>,
    /// s² of the bias.
    pub(super) square: f64,
    pub(super) active: Vec<u32>,
    /// Settled rows, by the epoch in which they are looked at again.
    queue: Vec<Vec<u32>>,
    waiting: usize,
    epoch: usize,
    /// Violations above this were seen in the last epoch.
    bar: f64,
    /// Sums of the notes of all rows.
    loss: f64,
    excess: f64,
    /// Rows that became free, or ceased to be, in the last epoch.
    pub(super) changed: usize,
}

/// By how much β wants to rise, and to fall, in units of the score; −∞ where it cannot.
#[inline(always)]
fn pull(t: &DualTerm, beta: f64, slope: f64) -> f64 {
    let up = if beta < t.hi { -(slope + if beta < 0.0 { -t.eps } else { t.eps }) } else { f64::NEG_INFINITY };
    let down = if beta > t.lo { slope + if beta > 0.0 { t.eps } else { -t.eps } } else { f64::NEG_INFINITY };
    up.max(down)
}

#[inline(always)]
fn soft(s: f64, eps: f64) -> f64 {
    (s - eps).max(0.0) + (s + eps).min(0.0)
}

/// The loss at score z, and what β lacks to it: ℓ(z) + h(β) + βz.
#[inline(always)]
fn shares(t: &DualTerm, beta: f64, z: f64) -> (f64, f64) {
    let s = -(t.p + z);
    let reach = soft(s, t.eps);
    let best = if t.d > 0.0 {
        (reach / t.d).max(t.lo).min(t.hi)
    } else if reach > 0.0 {
        t.hi
    } else if reach < 0.0 {
        t.lo
    } else {
        0.0
    };
    let part = |b: f64| b * s - t.eps * b.abs() - 0.5 * t.d * b * b;
    let value = part(best);
    (value, (value - part(beta)).max(0.0))
}

impl<'t> Sweep<'t> {
    fn new(terms: &'t Terms, points: &Points, first: usize, beta: &[f64], square: f64) -> Self {
        let norms = points.squared_norms();
        let starts = match points.storage() {
            Storage::SparseF32(m) => Some(m.starts()),
            Storage::SparseF64(m) => Some(m.starts()),
            Storage::DenseF32(_) | Storage::DenseF64(_) => None,
        };
        let d = points.dims();
        let cell = |i: usize| {
            let t = terms.get(first + i);
            let (start, len) = starts.map_or((i * d, d), |s| (s[i], s[i + 1] - s[i]));
            Cell {
                beta: beta[i],
                q: norms[i] + square,
                p: t.p,
                lo: t.lo,
                hi: t.hi,
                value: 0.0,
                excess: 0.0,
                start: start as u64,
                len: len as u32,
                level: 0,
            }
        };
        let cells: Vec<Cell> = (0..points.len()).map(cell).collect();
        let active = (0..cells.len() as u32).filter(|&i| cells[i as usize].hi > cells[i as usize].lo).collect();
        let queue = vec![Vec::new(); QUEUE];
        Self {
            terms,
            first,
            cells,
            square,
            active,
            queue,
            waiting: 0,
            epoch: 0,
            bar: f64::INFINITY,
            loss: 0.0,
            excess: 0.0,
            changed: 0,
        }
    }

    #[inline(always)]
    pub(super) fn term(&self, i: usize) -> DualTerm {
        let cell = &self.cells[i];
        let (eps, d) = self.terms.shared(self.first + i);
        DualTerm { p: cell.p, eps, d, lo: cell.lo, hi: cell.hi }
    }

    /// One epoch over the rows whose turn it is: the largest violation met.
    fn epoch<R: Rows>(
        &mut self,
        rows: R,
        moving: &mut Moving<'_>,
        rng: &mut Order,
        check: impl Fn() -> Result<(), Status>,
    ) -> Result<f64, Status> {
        self.epoch += 1;
        let due = std::mem::take(&mut self.queue[self.epoch % QUEUE]);
        self.waiting -= due.len();
        self.active.extend(due);
        rng.shuffle(&mut self.active);
        let count = self.active.len();
        let bar = self.bar;
        let (mut worst, mut kept) = (0.0f64, 0);
        self.changed = 0;
        for at in 0..count {
            if at % LOOK == 0 {
                check()?;
            }
            if at + 2 * AHEAD < count {
                let next = self.active[at + 2 * AHEAD] as usize;
                sparse::prefetch(&self.cells[next..=next]);
                rows.soon(&self.cells[self.active[at + AHEAD] as usize]);
            }
            let index = self.active[at];
            let i = index as usize;
            let t = self.term(i);
            let cell = &mut self.cells[i];
            let (beta, q) = (cell.beta, cell.q);
            let z = rows.dot(cell, moving.w) + *moving.b;
            let pull = pull(&t, beta, z + t.p + t.d * beta);
            let (value, excess) = shares(&t, beta, z);
            let (value, excess) = (value as f32, excess as f32);
            self.loss += f64::from(value) - f64::from(cell.value);
            self.excess += f64::from(excess) - f64::from(cell.excess);
            (cell.value, cell.excess) = (value, excess);
            if pull < -bar {
                continue;
            }
            if pull < 0.0 {
                cell.level = (cell.level + 1).min(PATIENCE);
                self.queue[(self.epoch + (1 << cell.level)) % QUEUE].push(index);
                self.waiting += 1;
                continue;
            }
            cell.level = 0;
            self.active[kept] = index;
            kept += 1;
            worst = worst.max(pull);
            // Over-relaxed; a row without features and curvature goes to its bound.
            let want = soft(q * beta - z - t.p, t.eps);
            let bottom = q + t.d;
            let new = if bottom > 0.0 {
                let best = want / bottom;
                let beyond = beta + RELAX * (best - beta);
                // Not beyond the kink at 0, where the slope jumps.
                let kink = t.eps > 0.0 && beyond * best <= 0.0;
                if kink { best } else { beyond }.max(t.lo).min(t.hi)
            } else if want > 0.0 {
                t.hi
            } else if want < 0.0 {
                t.lo
            } else {
                beta
            };
            let delta = new - beta;
            if delta != 0.0 {
                self.changed += usize::from((beta > t.lo && beta < t.hi) != (new > t.lo && new < t.hi));
                cell.beta = new;
                rows.add(cell, delta, moving.w);
                *moving.b += self.square * delta;
                *moving.sum += delta;
            }
        }
        self.active.truncate(kept);
        self.bar = if worst > 0.0 { worst } else { f64::INFINITY };
        Ok(worst)
    }

    /// Whether any row is left to look at.
    fn idle(&self) -> bool {
        self.active.is_empty() && self.waiting == 0
    }

    /// Notes anew from the scores of all rows; those firmly settled stay out.
    fn restart(&mut self, z: &[f64]) {
        self.queue.iter_mut().for_each(Vec::clear);
        self.waiting = 0;
        self.active.clear();
        (self.loss, self.excess) = (0.0, 0.0);
        let bar = 2.0 * self.bar;
        for i in 0..self.cells.len() {
            let t = self.term(i);
            if t.hi <= t.lo {
                continue;
            }
            let cell = &mut self.cells[i];
            let (value, excess) = shares(&t, cell.beta, z[i]);
            (cell.value, cell.excess, cell.level) = (value as f32, excess as f32, 0);
            self.loss += f64::from(cell.value);
            self.excess += f64::from(cell.excess);
            if pull(&t, cell.beta, z[i] + t.p + t.d * cell.beta) >= -bar {
                self.active.push(i as u32);
            }
        }
    }
}

impl State<'_, '_> {
    /// s² of the bias; `typical` is the mean squared norm of the rows.
    fn bias_square(&self, typical: f64) -> f64 {
        match self.rho {
            None => 0.0,
            Some(rho) if rho > 0.0 => 1.0 / rho,
            Some(_) => typical,
        }
    }

    /// What Σβ ≠ 0 costs under a free bias, roughly: its product with a score. Decides when to measure, nothing else.
    fn slack(&self) -> f64 {
        if self.rho == Some(0.0) { self.sum.abs() * (1.0 + self.b.abs()) } else { 0.0 }
    }

    /// The relative gap by the notes of the rows.
    fn estimate(&self, loss: f64, excess: f64) -> f64 {
        let norm = squared_norm(&self.w);
        let bias = self.rho.map_or(0.0, |rho| 0.5 * rho * self.b * self.b);
        (excess + self.slack()) / (0.5 * norm + bias + loss).max(f64::MIN_POSITIVE)
    }

    /// A measurement of all rows at w = Xᵀβ. Under a free bias β is moved to Σβ = 0 first and b to its best place.
    fn measured(&mut self, terms: &Terms, active: usize) -> Result<Measure, Status> {
        let piece = Smoothed::new(terms, 0.0, &self.beta);
        self.make_feasible(&piece)?;
        let m = self.measure(&piece)?;
        self.report("coordinate", &m, active)?;
        Ok(m)
    }

    /// Coordinate descent from the current β until the relative gap is `aim`, or Newton promises more. w becomes Xᵀβ.
    pub(super) fn descend_coordinates(
        &mut self,
        terms: &Terms,
        points: &Points,
        aim: f64,
        seed: u64,
        most: usize,
    ) -> Result<Descended, Status> {
        let square = self.bias_square(points.squared_norms().iter().sum::<f64>() / self.n().max(1) as f64);
        self.w.copy_from_slice(&self.v);
        if self.rho.is_some_and(|rho| rho > 0.0) {
            self.b = square * self.sum;
        }
        let free = self.rho == Some(0.0);
        let mut sweep = Sweep::new(terms, points, 0, &self.beta, square);
        let mut rng = Order(seed);
        let (mut next, mut rested) = (16, 0);
        let mut history: Vec<f64> = Vec::new();
        for epoch in 1.. {
            let early = self.check().err();
            if early.is_none() {
                self.iterations += 1;
            }
            let control = self.control;
            control.spend(work_of(points, sweep.active.len()));
            let mut moving = Moving { w: &mut self.w, b: &mut self.b, sum: &mut self.sum };
            let ran = match early {
                Some(why) => Err(why),
                None => {
                    with_rows!(points, rows => sweep.epoch(rows, &mut moving, &mut rng, || control.check().map_err(Status::from)))
                }
            };
            if let Err(why) = ran {
                // What was reached is kept: w = Xᵀβ holds at any time.
                self.beta.iter_mut().zip(&sweep.cells).for_each(|(b, cell)| *b = cell.beta);
                self.v.copy_from_slice(&self.w);
                return Err(why);
            }
            if free {
                self.b += square * self.sum;
            }
            let estimate = self.estimate(sweep.loss, sweep.excess);
            history.push(estimate);
            if estimate > aim && epoch < next && epoch < most && !sweep.idle() {
                let before = history.len().checked_sub(4).map(|at| history[at]);
                if epoch >= rested + REST && before.is_some_and(|before| estimate > CRAWL * before) {
                    rested = epoch;
                    let mut moving = Moving { w: &mut self.w, b: &mut self.b, sum: &mut self.sum };
                    with_rows!(points, rows => sweep.face(rows, &mut moving));
                }
                continue;
            }
            self.beta.iter_mut().zip(&sweep.cells).for_each(|(b, cell)| *b = cell.beta);
            let m = self.measured(terms, sweep.active.len())?;
            if m.relative() <= aim {
                return Ok(Descended::Reached(m));
            }
            if epoch >= most {
                return Ok(Descended::Crawling(m));
            }
            sweep.cells.iter_mut().zip(&self.beta).for_each(|(cell, b)| cell.beta = *b);
            next = epoch + (epoch / 2).max(16);
            sweep.restart(&self.z);
        }
        Err(Status::IterationLimit)
    }

    /// The same on rows that are read in blocks: several epochs on each block while it is in memory.
    pub(super) fn descend_blocks(
        &mut self,
        terms: &Terms,
        aim: f64,
        seed: u64,
        most: usize,
    ) -> Result<Descended, Status> {
        let x = self.x;
        let mut order: Vec<u32> = (0..x.blocks() as u32).collect();
        let mut rng = Order(seed);
        self.w.copy_from_slice(&self.v);
        let free = self.rho == Some(0.0);
        let mut square = self.bias_square(0.0);
        if self.rho.is_some_and(|rho| rho > 0.0) {
            self.b = square * self.sum;
        }
        let mut notes = vec![(0.0, 0.0); order.len()];
        let (mut last, mut poor) = (f64::INFINITY, 0);
        for round in 1.. {
            self.check()?;
            self.iterations += 1;
            rng.shuffle(&mut order);
            let control = self.control;
            let mut failed = None;
            let mut turn = order.iter();
            x.each_block(&order, control, &mut |first, points| {
                let block = turn.next().map_or(0, |&k| k as usize);
                if free && square == 0.0 {
                    square = points.squared_norms().iter().sum::<f64>() / points.len().max(1) as f64;
                }
                let range = first..first + points.len();
                let mut sweep = Sweep::new(terms, points, first, &self.beta[range.clone()], square);
                let mut moving = Moving { w: &mut self.w, b: &mut self.b, sum: &mut self.sum };
                for _ in 0..INNER {
                    control.spend(work_of(points, sweep.active.len()));
                    let check = || control.check().map_err(Status::from);
                    if let Err(why) = with_rows!(points, rows => sweep.epoch(rows, &mut moving, &mut rng, check)) {
                        failed = Some(why);
                        break;
                    }
                }
                notes[block] = (sweep.loss, sweep.excess);
                self.beta[range].iter_mut().zip(&sweep.cells).for_each(|(b, cell)| *b = cell.beta);
                if failed.is_some() { Err(crate::control::Interrupt::Cancelled) } else { Ok(()) }
            })
            .map_err(|why| failed.unwrap_or(why.into()))?;
            if free {
                self.b += square * self.sum;
            }
            let (loss, excess) = notes.iter().fold((0.0, 0.0), |sum, note| (sum.0 + note.0, sum.1 + note.1));
            let estimate = self.estimate(loss, excess);
            poor = if estimate < 0.8 * last { 0 } else { poor + 1 };
            last = last.min(estimate);
            // Notes of a block are from before the blocks after it moved w: they tell too little, not too much.
            if estimate > 2.0 * aim && round < most && poor < 4 {
                let m = Measure { primal: loss, excess, mismatch: 0.0, rounding: 0.0 };
                self.report("coordinate", &m, self.n())?;
                continue;
            }
            let m = self.measured(terms, self.n())?;
            if m.relative() <= aim {
                return Ok(Descended::Reached(m));
            }
            if round >= most || poor >= 4 {
                return Ok(Descended::Crawling(m));
            }
        }
        Err(Status::IterationLimit)
    }
}
