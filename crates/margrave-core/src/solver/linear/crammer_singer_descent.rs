//! Dual descent for the model of Crammer and Singer, one sample at a time (Keerthi, Sundararajan, Chang, Hsieh and Lin,
//! KDD 2008, section 3).
//!
//! With the other samples fixed, the dual of a sample is ½q‖a − a'‖² − gᵀ(a − a') over its simplex, q = ‖x‖². Its optimum
//! is the projection of a' + g/q, found exactly by [`Shifted`](super::class_lanes::Shifted). A step costs k times
//! the stored values of a row.
//!
//! Samples that did not move wait 1, 2, 4, 8, then 16 epochs for their next visit. Within a sample, only lanes of classes
//! that moved are written; with many classes, only lanes near the largest score are read except every eighth visit.
//! Where descent is slow and Newton's method costs too much, steps over all free variables (`crammer_singer_face.rs`)
//! alternate with epochs. Each visit leaves the contribution of the sample to the gap; all samples are measured once
//! the sum of these suggests that it is worthwhile, or after a fixed share of further epochs.

use super::class_lanes::{LANES, Lane, Shifted, at, excess, exchange, largest};
use super::coordinate::RowShuffler;
use super::crammer_singer::{CHECK_INTERVAL, CrammerSingerMeasure, CrammerSingerState};
use super::solve::GapProgress;
use crate::control::Status;
use crate::linalg::vectorised::{Vectorised, vectorised};

/// Fewest epochs before Newton.
const MIN_EPOCHS: u64 = 8;
/// Fewest multiply–adds before Newton, up to four times as many epochs: on small problems epochs cost nothing.
const MIN_WORK: f64 = 1e6;
/// Fewest measurements from which the rate of descent is estimated.
const MIN_MEASUREMENTS: usize = 5;
/// Longest wait of a sample that does not move, as a power of 2.
const MAX_WAIT_LEVEL: u8 = 4;
/// Measurements without progress in the gap after which descent ends.
const MAX_IDLE_MEASUREMENTS: usize = 12;
/// Fewest epochs for that: with large costs the gap rises at first.
const MIN_IDLE_EPOCHS: u64 = 200;
/// Work expected where the gap does not fall, in units of that so far: with large costs it rises at first.
const RISING_FACTOR: f64 = 10.0;
/// Newton steps expected for each power of ten of the relative gap.
const NEWTON_STEPS: f64 = 5.0;
/// Conjugate gradient steps expected for each of them, where the system is too large to factor.
const CG_STEPS: f64 = 50.0;

/// Fewest lanes with which lanes of low scores are left out of most visits.
const MIN_LISTED_LANES: usize = 9;
/// Most lanes for that.
const MAX_LISTED_LANES: usize = 64;
/// Visits from one over all lanes to the next.
const FULL_VISIT_INTERVAL: u8 = 8;
/// A lane whose scores are lower than those of the free classes by more than this is left out, in units of the margin.
const LANE_SLACK: f64 = 0.1;
/// Steps over all free variables begin when descent is expected to need the work of more passes over the data than this.
const FACE_PASSES: f64 = 100.0;
/// Epochs between two of these steps.
const FACE_INTERVAL: u64 = 20;
/// Newton by conjugate gradients follows once descent with these steps is expected to need this many times its work.
const FACE_ADVANTAGE: f64 = 3.0;

/// When each sample is visited next, and what its last visit found.
struct Visits {
    order: Vec<u32>,
    due: Vec<u64>,
    wait_level: Vec<u8>,
    /// Contribution to the gap at the last visit.
    excess: Vec<f64>,
    squares: Vec<f64>,
    /// The lanes to read, as bits, and the visits since all were; empty if all always are.
    listed: Vec<(u64, u8)>,
    /// Multiply–adds so far.
    work: f64,
}

/// The steps of one epoch, with `B` lanes or any number if `B` is 0. Returns how many samples were visited.
struct Epoch<'s, 'a, 'o, const B: usize> {
    state: &'s mut CrammerSingerState<'a, 'o>,
    epoch: u64,
    visits: &'s mut Visits,
}

impl<const B: usize> Vectorised for Epoch<'_, '_, '_, B> {
    type Output = Result<usize, Status>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { state, epoch, visits } = self;
        let (mut g, mut u) = (vec![[0.0; LANES]; state.lanes], vec![[0.0; LANES]; state.lanes]);
        let mut visited = 0;
        for at in 0..visits.order.len() {
            let i = visits.order[at] as usize;
            if visits.due[i] > epoch {
                continue;
            }
            if visited % CHECK_INTERVAL == 0 {
                state.poll("coordinate", visits.order.len())?;
            }
            visited += 1;
            let square = visits.squares[i];
            let visit = match visits.listed.get_mut(i) {
                Some(listed) if B == 0 => state.optimise_listed(i, square, listed, &mut g, &mut u),
                _ => state.optimise_sample::<B>(i, square, &mut g, &mut u),
            };
            visits.excess[i] = visit.excess;
            if visit.moved {
                visits.wait_level[i] = 0;
            } else {
                visits.due[i] = epoch + (1 << visits.wait_level[i]);
                visits.wait_level[i] = (visits.wait_level[i] + 1).min(MAX_WAIT_LEVEL);
            }
        }
        Ok(visited)
    }
}

/// What a visit found.
struct Visit {
    excess: f64,
    moved: bool,
}

impl CrammerSingerState<'_, '_> {
    /// Sets a of sample `i` to its optimum.
    #[inline(always)]
    fn optimise_sample<const B: usize>(&mut self, i: usize, square: f64, g: &mut [Lane], u: &mut [Lane]) -> Visit {
        // With a constant number of lanes the loops over classes are unrolled.
        let lanes = if B > 0 { B } else { self.lanes };
        let (g, u) = (&mut g[..lanes], &mut u[..lanes]);
        self.products(i, &self.w, g);
        self.add_margins(i, g);
        let (span, c, own) = (self.span(i), self.costs[i], at(self.codes[i] as usize));
        let a = &mut self.a[span];
        let excess = excess(g, a, largest(g));
        if !(excess > 0.0) {
            return Visit { excess: 0.0, moved: false };
        }
        if !Shifted::new(g, a, square, square * c, own, u).project(c) || !exchange(a, u, own) {
            return Visit { excess, moved: false };
        }
        self.row(i).add(u, &mut self.w);
        Visit { excess, moved: true }
    }

    /// The same for a sample of which only the lanes in `listed` are read; brings the list up to date.
    #[inline(always)]
    fn optimise_listed(
        &mut self,
        i: usize,
        square: f64,
        listed: &mut (u64, u8),
        g: &mut [Lane],
        u: &mut [Lane],
    ) -> Visit {
        let (lanes, c, own) = (self.lanes, self.costs[i], at(self.codes[i] as usize));
        let is_full = listed.1 == 0;
        listed.1 = (listed.1 + 1) % FULL_VISIT_INTERVAL;
        let all = u64::MAX >> (64 - lanes);
        let mut list = [0usize; MAX_LISTED_LANES];
        let mut count = 0;
        let mut bits = if is_full { all } else { listed.0 };
        while bits != 0 {
            list[count] = bits.trailing_zeros() as usize;
            count += 1;
            bits &= bits - 1;
        }
        let list = &list[..count];
        let (g, u) = (&mut g[..count], &mut u[..count]);
        if is_full {
            self.products(i, &self.w, g);
        } else {
            g.fill([0.0; LANES]);
            self.visit(i, |j, x| {
                let row = &self.w[j * lanes..(j + 1) * lanes];
                g.iter_mut().zip(list).for_each(|(g, &lane)| (0..LANES).for_each(|l| g[l] += x * row[lane][l]));
            });
        }
        let mut a = [[0.0; LANES]; MAX_LISTED_LANES];
        let a = &mut a[..count];
        let first = i * lanes;
        for ((&lane, g), a) in list.iter().zip(&mut *g).zip(&mut *a) {
            (0..LANES).for_each(|l| g[l] += self.margins[lane][l] - f64::from(u8::from((lane, l) == own)));
            *a = self.a[first + lane];
        }
        let top = largest(g);
        let excess = excess(g, a, top);
        // Every lane with a > 0 is listed, that of the own class always.
        let own_listed = (list.iter().position(|&lane| lane == own.0).unwrap_or(0), own.1);
        let shifted = Shifted::new(g, a, square, square * c, own_listed, u);
        if is_full {
            let level = if excess > 0.0 { shifted.threshold().0 } else { top };
            listed.0 = 1 << own.0;
            for (&lane, u) in list.iter().zip(&*shifted.others) {
                listed.0 |= u64::from(u.iter().any(|u| *u > level - LANE_SLACK)) << lane;
            }
        }
        if !(excess > 0.0) {
            return Visit { excess: 0.0, moved: false };
        }
        if !shifted.project(c) || !exchange(a, u, own_listed) {
            return Visit { excess, moved: false };
        }
        list.iter().zip(&*a).for_each(|(&lane, a)| self.a[first + lane] = *a);
        let (row, w) = (self.row(i), &mut self.w);
        for (&lane, u) in list.iter().zip(&*u).filter(|(_, u)| **u != [0.0; LANES]) {
            row.visit(|j, x| (0..LANES).for_each(|l| w[j * lanes + lane][l] += x * u[l]));
        }
        Visit { excess, moved: true }
    }

    /// One epoch over the samples that are due, in a new order. Returns how many were visited.
    fn epoch(&mut self, epoch: u64, visits: &mut Visits, rng: &mut RowShuffler) -> Result<usize, Status> {
        rng.shuffle(&mut visits.order);
        let visited = match self.lanes {
            1 => vectorised(Epoch::<1> { state: self, epoch, visits })?,
            2 => vectorised(Epoch::<2> { state: self, epoch, visits })?,
            _ => vectorised(Epoch::<0> { state: self, epoch, visits })?,
        };
        self.control.spend(2 * visited * self.row_cost());
        visits.work += (2 * visited * self.row_cost() + visits.order.len()) as f64;
        Ok(visited)
    }

    /// The samples to visit. The loss of an empty row is 1 for any W; its a is set to match that.
    fn start_visits(&mut self) -> Visits {
        let bias_square = self.scaling * self.scaling;
        let squares: Vec<f64> = self.points.squared_norms().iter().map(|q| q + bias_square).collect();
        let n = self.n();
        for i in (0..n).filter(|&i| squares[i] == 0.0) {
            let own = self.codes[i] as usize;
            let span = self.span(i);
            let a = self.a[span].as_flattened_mut();
            a[own] = 0.0;
            a[usize::from(own == 0)] = self.costs[i];
        }
        let order = (0..n as u32).filter(|&i| self.costs[i as usize] > 0.0 && squares[i as usize] > 0.0).collect();
        let listed = if (MIN_LISTED_LANES..=MAX_LISTED_LANES).contains(&self.lanes) { vec![(0, 0); n] } else { vec![] };
        Visits { order, due: vec![0; n], wait_level: vec![0; n], excess: vec![0.0; n], squares, listed, work: 0.0 }
    }

    /// Epochs of dual descent from the current a. `Optimal` once the stopping criteria hold; `Stalled` without progress
    /// in the gap or, if Newton follows, when Newton is expected to need less work.
    pub(super) fn descend_by_sample(&mut self, rng: &mut RowShuffler, newton_follows: bool) -> Result<Status, Status> {
        let mut visits = self.start_visits();
        let mut m = self.recompute_weights()?;
        self.report("coordinate", visits.order.len())?;
        let (mut epoch, mut next) = (0, 2);
        let mut progress = GapProgress::default();
        let mut history: Vec<(f64, f64)> = Vec::new();
        let (newton_work, can_factor) = (self.newton_work(), self.can_factor_newton());
        let (mut uses_faces, pass) = (false, (self.n() * self.row_cost()) as f64);
        loop {
            if self.is_optimal(&m) {
                // The measurement used W as the steps left it.
                m = self.recompute_weights()?;
                if self.is_optimal(&m) {
                    return Ok(Status::Optimal);
                }
            }
            history.push((visits.work, m.gap()));
            let left = if newton_follows && epoch >= MIN_EPOCHS && (visits.work > MIN_WORK || epoch >= 4 * MIN_EPOCHS) {
                self.work_left(&history, &m)
            } else {
                0.0
            };
            let newton =
                if can_factor { left > newton_work } else { uses_faces && left > FACE_ADVANTAGE * newton_work };
            let is_idle = progress.has_stalled(m.gap(), MAX_IDLE_MEASUREMENTS);
            if (is_idle && epoch >= MIN_IDLE_EPOCHS) || newton {
                return Ok(Status::Stalled);
            }
            if !uses_faces && left > FACE_PASSES * pass {
                uses_faces = true;
                history.clear();
            }
            if uses_faces {
                visits.work += self.face_step()?;
                next = epoch + FACE_INTERVAL;
            }
            let mut visited = 0;
            while epoch < next {
                self.count_iteration()?;
                epoch += 1;
                visited = self.epoch(epoch, &mut visits, rng)?;
                if visited == 0 || self.looks_optimal(&visits, &m) {
                    break;
                }
            }
            m = self.measure(None)?;
            visits.work += (self.n() * self.row_cost()) as f64;
            self.report("coordinate", visited)?;
            if visited == 0 || self.looks_optimal(&visits, &m) {
                // Samples that wait and lanes that are not read are what is left.
                visits.due.fill(0);
                visits.listed.iter_mut().for_each(|listed| listed.1 = 0);
            }
            next = epoch + 1 + epoch / 4;
        }
    }

    /// Whether the contributions to the gap at the last visits suggest that the gap is reached.
    fn looks_optimal(&self, visits: &Visits, m: &CrammerSingerMeasure) -> bool {
        self.options.stop.gap.is_some_and(|gap| visits.excess.iter().sum::<f64>() <= gap * m.primal.abs())
    }

    /// Multiply–adds that descent would still need at the rate of the second half of its work; a multiple of its work
    /// so far if the gap does not fall.
    fn work_left(&self, history: &[(f64, f64)], m: &CrammerSingerMeasure) -> f64 {
        let Some(&(now, gap)) = history.last() else { return 0.0 };
        let half = 0.5 * (now + history[0].0);
        let Some(&(then, before)) = history.iter().rev().find(|(work, _)| *work <= half) else { return 0.0 };
        if history.len() < MIN_MEASUREMENTS {
            return 0.0;
        }
        let rate = (before / gap).ln() / (now - then);
        let left = (gap / (self.target_gap() * m.primal.abs())).ln();
        if rate > 0.0 { left / rate } else { RISING_FACTOR * now }
    }

    /// Multiply–adds of the proximal Newton method, roughly.
    fn newton_work(&self) -> f64 {
        let (n, size) = (self.n() as f64, self.unknowns() as f64);
        let stored = (self.points.stored() as f64 / n.max(1.0)) + 1.0;
        // Most samples are settled: of several passes over the samples one reads their rows.
        let passes = n * self.row_cost() as f64;
        let step = if self.can_factor_newton() {
            // A factorisation runs several times as fast as the other loops. A quarter of the samples is curved.
            size * size * size / 24.0 + size * size + 0.5 * n * stored * stored
        } else {
            CG_STEPS * n * self.row_cost() as f64 / 2.0
        };
        let powers = (-self.target_gap().log10()).clamp(1.0, 10.0);
        NEWTON_STEPS * powers * (passes + step)
    }
}
