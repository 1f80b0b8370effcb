//! The proximal point method on the dual of Crammer and Singer, by Newton: `proximal.rs` for several classes.
//!
//! The loss of a sample is the maximum of Σ a_m·(e_m + z_m) − c·z_y over the simplex `a ≥ 0, Σa = c`. Subtracting
//! ½ε‖a − aᵏ‖² makes it smooth: a is then the projection of aᵏ + (e + z)/ε on the simplex, −α is the slope in z, and the
//! curvature is (I − 11ᵀ/|S|)/ε over the classes S with a > 0. `crammer_singer_system.rs` solves Newton's system.
//!
//! Most samples are settled: all of a is in one class, and stays there for all z that change by less than their margin.
//! A step costs them one pass for the change of z, but no projection.

use super::class_lanes::{LANES, Lane, Shifted, add_scaled, at, dot, exchange, largest, smallest, sum_of_others};
use super::crammer_singer::{CHECK_INTERVAL, CrammerSingerMeasure, CrammerSingerState, SampleSums};
use super::crammer_singer_system::{ClassSets, NewtonSystem};
use super::line_search::search_derivative;
use super::solve::{GapProgress, WIDTH_FACTOR};
use crate::control::Status;
use crate::linalg::vectorised::{Vectorised, vectorised};

/// Most Newton steps in a round.
const MAX_STEPS: usize = 60;
/// Rounds without progress in the gap after which the run ends.
const MAX_IDLE_ROUNDS: usize = 30;
/// Largest width of the smoothing, in units of the score, unless a step of one sample changes its scores by more.
const MAX_WIDTH: f64 = 1e6;
/// Factor of the width after a round of several steps. A smaller factor saves rounds, but the sets S then change so much
/// at the start of a round that it needs more steps.
const SLOW_WIDTH_FACTOR: f64 = 0.5;
/// Most steps of a round after which the width shrinks by [`WIDTH_FACTOR`].
const FEW_STEPS: u64 = 2;

/// The smoothed problem at the current W.
struct Smoothed {
    /// Width of the smoothing in units of the score.
    width: f64,
    /// a of the centre.
    centre: Vec<Lane>,
    /// The scores of all samples, without e.
    z: Vec<Lane>,
    /// Σ xα.
    v: Vec<Lane>,
    /// Memory for the change of the scores.
    dz: Vec<Lane>,
    /// The classes with a > 0.
    sets: ClassSets,
    /// The samples with at least two of them.
    curved: Vec<u32>,
    /// For a settled sample by how much the difference of two scores may change without changing a; else −1.
    margins: Vec<f64>,
    /// The class of a settled sample.
    tops: Vec<u32>,
}

/// The change of the scores along a direction.
struct ScoreChange {
    dz: Vec<Lane>,
    /// Largest minus smallest change of a settled sample.
    ranges: Vec<f64>,
}

/// Computes the change of the scores along `direction`.
struct ChangeScores<'s, 'a, 'o> {
    state: &'s CrammerSingerState<'a, 'o>,
    smoothed: &'s Smoothed,
    direction: &'s [Lane],
    change: &'s mut ScoreChange,
}

impl Vectorised for ChangeScores<'_, '_, '_> {
    type Output = Result<(), Status>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { state, smoothed, direction, change } = self;
        for (i, dz) in change.dz.chunks_mut(state.lanes).enumerate() {
            if i % CHECK_INTERVAL == 0 {
                state.control.check().map_err(Status::from)?;
            }
            if state.costs[i] > 0.0 {
                state.products(i, direction, dz);
                if smoothed.margins[i] > 0.0 {
                    // Padding is 0, which may widen the range.
                    change.ranges[i] = largest(dz) - smallest(dz);
                }
            }
        }
        Ok(())
    }
}

/// Sets a to that of the smoothed losses at the scores, and sums over the samples.
struct UpdateDual<'s, 'a, 'o> {
    state: &'s mut CrammerSingerState<'a, 'o>,
    smoothed: &'s mut Smoothed,
}

impl Vectorised for UpdateDual<'_, '_, '_> {
    type Output = Result<SampleSums, Status>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { state, smoothed } = self;
        let (mut g, mut u) = (vec![[0.0; LANES]; state.lanes], vec![[0.0; LANES]; state.lanes]);
        let mut sums = SampleSums::default();
        for i in (0..state.n()).filter(|&i| state.costs[i] > 0.0) {
            if i % CHECK_INTERVAL == 0 {
                state.control.check().map_err(Status::from)?;
            }
            let (span, own_class, c) = (state.span(i), state.codes[i] as usize, state.costs[i]);
            if smoothed.margins[i] > 0.0 {
                let z = smoothed.z[span].as_flattened();
                let top = smoothed.tops[i] as usize;
                sums.add_loss(c, z[top] + f64::from(u8::from(top != own_class)), z[own_class]);
                continue;
            }
            g.copy_from_slice(&smoothed.z[span.clone()]);
            let own = state.add_margins(i, &mut g);
            if !state.shift_by_centre(smoothed, i, &g, &mut u).project(c) {
                return Err(Status::Stalled);
            }
            let count = smoothed.sets.assign(i, &u);
            if exchange(&mut state.a[span.clone()], &mut u, at(own_class)) {
                state.row(i).add(&u, &mut smoothed.v);
            }
            if count > 1 {
                smoothed.curved.push(i as u32);
            } else {
                state.settle(smoothed, i, &g);
            }
            sums.add(c, &g, &state.a[span], own);
        }
        Ok(sums)
    }
}

/// First and second derivative of the losses at step `t` along a direction.
struct LossDerivatives<'s, 'a, 'o> {
    state: &'s CrammerSingerState<'a, 'o>,
    smoothed: &'s Smoothed,
    change: &'s ScoreChange,
    t: f64,
}

impl Vectorised for LossDerivatives<'_, '_, '_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { state, smoothed, change, t } = self;
        let (mut g, mut u) = (vec![[0.0; LANES]; state.lanes], vec![[0.0; LANES]; state.lanes]);
        let (mut slope, mut curvature) = (0.0, 0.0);
        for i in (0..state.n()).filter(|&i| state.costs[i] > 0.0) {
            let (dz, c) = (&change.dz[state.span(i)], state.costs[i]);
            if smoothed.margins[i] > t * change.ranges[i] {
                let of_class = |m: usize| dz[at(m).0][at(m).1];
                slope += c * (of_class(smoothed.tops[i] as usize) - of_class(state.codes[i] as usize));
                continue;
            }
            g.copy_from_slice(&smoothed.z[state.span(i)]);
            add_scaled(dz, t, &mut g);
            state.add_margins(i, &mut g);
            let (first, second) = state.shift_by_centre(smoothed, i, &g, &mut u).derivatives(dz);
            slope += c / smoothed.width * first;
            curvature += c / smoothed.width * second;
        }
        (slope, curvature)
    }
}

impl CrammerSingerState<'_, '_> {
    /// Rounds from the current a. `Optimal` once the stopping criteria hold; `Stalled` when the gap stops falling.
    pub(super) fn proximal(&mut self) -> Result<Status, Status> {
        let v = self.combined()?;
        let mut m = self.measure(Some(&v))?;
        // Wide enough relative to a: for a large cost the optimal α may be far below the cost.
        let bias_square = self.scaling * self.scaling;
        let changes = self.points.squared_norms().iter().zip(self.costs).map(|(q, c)| c * (q + bias_square));
        let max_width = changes.fold(MAX_WIDTH, f64::max);
        let width = (m.relative().min(1.0).sqrt() / self.typical_share()).clamp(1e-4, max_width);
        let mut target_gap = self.target_gap();
        let mut progress = GapProgress::default();
        let mut best = (m, self.w.clone(), self.a.clone());
        let mut system = self.new_system();
        let mut smoothed = Smoothed {
            width,
            centre: self.a.clone(),
            z: vec![[0.0; LANES]; self.a.len()],
            v,
            dz: Vec::new(),
            sets: ClassSets::new(self.n(), self.k),
            curved: Vec::new(),
            margins: vec![-1.0; self.n()],
            tops: vec![0; self.n()],
        };
        self.fill_products(&mut smoothed)?;
        loop {
            let before = self.iterations;
            let reached;
            (m, reached) = match self.newton(&mut smoothed, &mut system, target_gap) {
                Ok(ended) => ended,
                Err(early) => {
                    (_, self.w, self.a) = best;
                    // Scores that overflow leave no projection: descent continues from the best point.
                    return if early == Status::Stalled { Ok(early) } else { Err(early) };
                }
            };
            if self.is_optimal(&m) {
                // The measurement used z and Σ xα as the steps left them.
                let v = self.combined()?;
                m = self.measure(Some(&v))?;
                if self.is_optimal(&m) {
                    return Ok(Status::Optimal);
                }
                smoothed.v = v;
                self.fill_products(&mut smoothed)?;
            }
            if m.relative() <= target_gap && target_gap > 1e-16 {
                target_gap = (0.1 * target_gap).min(0.1 * m.relative());
            }
            if m.gap() < best.0.gap() {
                best = (m, self.w.clone(), self.a.clone());
            }
            if progress.has_stalled_with_objective(m.gap(), m.primal, MAX_IDLE_ROUNDS) {
                (_, self.w, self.a) = best;
                return Ok(Status::Stalled);
            }
            if reached {
                let is_fast = self.iterations <= before + FEW_STEPS;
                smoothed.width *= if is_fast { WIDTH_FACTOR } else { SLOW_WIDTH_FACTOR };
            } else {
                // Too little smoothing for Newton: repeat from the best point with more.
                (self.w, self.a) = (best.1.clone(), best.2.clone());
                smoothed.width = (10.0 * smoothed.width).min(max_width);
                smoothed.v = self.combined()?;
                self.fill_products(&mut smoothed)?;
            }
            smoothed.centre.copy_from_slice(&self.a);
        }
    }

    /// Mean of α/c of the own class over the samples with α ≠ 0; 1 if there are none.
    fn typical_share(&self) -> f64 {
        let shares = (0..self.n()).filter(|&i| self.costs[i] > 0.0);
        let shares = shares.map(|i| sum_of_others(&self.a[self.span(i)], at(self.codes[i] as usize)) / self.costs[i]);
        let (sum, count) = shares.filter(|s| *s > 0.0).fold((0.0, 0.0), |(sum, count), s| (sum + s, count + 1.0));
        if sum > 0.0 { sum / count } else { 1.0 }
    }

    /// Recomputes the scores of all samples.
    fn fill_products(&mut self, smoothed: &mut Smoothed) -> Result<(), Status> {
        self.control.spend(self.n() * self.row_cost());
        for i in 0..self.n() {
            if i % CHECK_INTERVAL == 0 {
                self.control.check().map_err(Status::from)?;
            }
            self.products(i, &self.w, &mut smoothed.z[i * self.lanes..(i + 1) * self.lanes]);
        }
        smoothed.margins.fill(-1.0);
        Ok(())
    }

    /// The change of the scores along a direction.
    fn score_change(&self, smoothed: &Smoothed, direction: &[Lane], change: &mut ScoreChange) -> Result<(), Status> {
        self.control.spend(self.n() * self.row_cost());
        vectorised(ChangeScores { state: self, smoothed, direction, change })
    }

    /// Writes u = ε·aᵏ + g of sample `i`, given its scores g, to `u`.
    #[inline(always)]
    fn shift_by_centre<'u>(&self, smoothed: &Smoothed, i: usize, g: &[Lane], u: &'u mut [Lane]) -> Shifted<'u> {
        let (centre, own_class) = (&smoothed.centre[self.span(i)], at(self.codes[i] as usize));
        Shifted::new(g, centre, smoothed.width / self.costs[i], smoothed.width, own_class, u)
    }

    /// Sets a to that of the smoothed losses at the scores, and measures.
    fn update_dual(&mut self, smoothed: &mut Smoothed) -> Result<CrammerSingerMeasure, Status> {
        smoothed.curved.clear();
        let sums = vectorised(UpdateDual { state: self, smoothed })?;
        self.control.spend(10 * LANES * self.a.len());
        Ok(self.note_measure(sums, Some(&smoothed.v)))
    }

    /// Notes the margin of a sample whose a is in one class, if that of the centre is in the same.
    fn settle(&self, smoothed: &mut Smoothed, i: usize, g: &[Lane]) {
        let (a, centre) = (self.a[self.span(i)].as_flattened(), &smoothed.centre[self.span(i)]);
        let Some(top) = a.iter().position(|a| *a > 0.0) else { return };
        let own_class = self.codes[i] as usize;
        let is_same = if top == own_class {
            sum_of_others(centre, at(own_class)) == 0.0
        } else {
            centre.as_flattened()[top] >= self.costs[i] * (1.0 - 1e-15)
        };
        if !is_same {
            return;
        }
        let g = g.as_flattened();
        let others = g.iter().enumerate().filter(|(m, _)| *m != top).fold(f64::NEG_INFINITY, |t, (_, g)| t.max(*g));
        smoothed.margins[i] = g[top] - others;
        smoothed.tops[i] = top as u32;
    }

    /// Newton's method on the smoothed problem from the current W; true if the mismatch is at most the gap left by
    /// smoothing, or the gap asked for is reached.
    fn newton(
        &mut self,
        smoothed: &mut Smoothed,
        system: &mut NewtonSystem,
        target_gap: f64,
    ) -> Result<(CrammerSingerMeasure, bool), Status> {
        let mut progress = GapProgress::default();
        let mut change = ScoreChange { dz: std::mem::take(&mut smoothed.dz), ranges: vec![0.0; self.n()] };
        change.dz.resize(self.a.len(), [0.0; LANES]);
        let ended = self.newton_steps(smoothed, system, target_gap, &mut progress, &mut change);
        smoothed.dz = change.dz;
        ended
    }

    fn newton_steps(
        &mut self,
        smoothed: &mut Smoothed,
        system: &mut NewtonSystem,
        target_gap: f64,
        progress: &mut GapProgress,
        change: &mut ScoreChange,
    ) -> Result<(CrammerSingerMeasure, bool), Status> {
        for step in 0.. {
            let m = self.update_dual(smoothed)?;
            self.report("newton", smoothed.curved.len())?;
            let scale = m.primal.abs().max((m.primal - m.gap()).abs());
            let gap_suffices = self.options.stop.gap.is_some() && self.is_optimal(&m);
            if gap_suffices || m.mismatch <= m.excess.max(0.3 * target_gap * scale).max(m.rounding) {
                return Ok((m, true));
            }
            if step >= MAX_STEPS || progress.has_stalled(m.mismatch, 12) {
                return Ok((m, false));
            }
            self.count_iteration()?;
            let mut right = smoothed.v.clone();
            add_scaled(&self.w, -1.0, &mut right);
            let solved = self.newton_direction(system, &smoothed.sets, &smoothed.curved, smoothed.width, &right);
            let direction = match solved {
                Err(Status::Stalled) => return Ok((m, false)),
                other => other?,
            };
            self.score_change(smoothed, &direction, change)?;
            let t = self.line_search(smoothed, change, &direction, &right)?;
            if t == 0.0 {
                return Ok((m, false));
            }
            add_scaled(&direction, t, &mut self.w);
            add_scaled(&change.dz, t, &mut smoothed.z);
            smoothed.margins.iter_mut().zip(&change.ranges).for_each(|(margin, range)| *margin -= t * range);
        }
        Err(Status::Stalled)
    }

    /// The step at which the derivative along the direction has fallen to a tenth; 0 if the direction does not descend.
    fn line_search(
        &self,
        smoothed: &Smoothed,
        change: &ScoreChange,
        direction: &[Lane],
        right: &[Lane],
    ) -> Result<f64, Status> {
        let start = -dot(right, direction);
        if !(start < 0.0) {
            return Ok(0.0);
        }
        let (norm_curvature, norm_slope) = (dot(direction, direction), dot(&self.w, direction));
        let derivatives = |t: f64| {
            self.control.spend(10 * LANES * self.a.len());
            let (slope, curvature) = vectorised(LossDerivatives { state: self, smoothed, change, t });
            (norm_slope + t * norm_curvature + slope, norm_curvature + curvature)
        };
        search_derivative(start, self.control, derivatives).map_err(Status::from)
    }
}
