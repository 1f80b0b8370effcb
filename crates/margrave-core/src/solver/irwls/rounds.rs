//! Losses whose β has a box: rounds on the dual variables themselves, once the sets of free and bounded samples are
//! roughly right.
//!
//! Only the free part of the system of paper 000 is solved, with the samples at a bound on the right-hand side. The
//! smoothing of that paper is a proximal term around the current β:
//!
//! ```text
//! (K_FF + D + ρI)Δ + Δb·1 = −(K·β + b + p + Dβ + ε·side)_F,     ΣΔ = s − Σβ,     ρ = 1/(K·c)
//! ```
//!
//! A round releases the samples that violate the optimality condition of their bound, largest violation first, and
//! solves. Of the samples that would leave their box it pins half, those that reach their bound first (all of them if
//! there are few), and solves again until none leaves. Then it moves to the best point along the direction: the dual
//! objective never falls, and β never leaves its box. K grows from round to round as long as most samples stay inside,
//! and is reduced otherwise. Once K is constant the factor is kept, released samples are appended, and pinned ones
//! held.

use super::direction::{DirectionStart, IrwlsDirection};
use super::reweight::ModelWeights;
use super::solve::{IrwlsRun, MAX_IDLE, PhaseEnd};
use crate::control::Status;
use crate::gram::Precision;
use crate::loss::DualTerm;

/// Most rounds.
const MAX_ROUNDS: usize = 60;
/// Most times a round pins samples and solves again.
const MAX_PINNINGS: usize = 16;
/// If at most the free samples divided by this number leave their boxes, all of them are pinned at once.
const PIN_ALL_DIVISOR: usize = 8;
/// Growth of K from one round to the next.
const K_GROWTH: f64 = 10.0;
/// K is divided by this if a step would take more than three fifths of the free samples out of their boxes, or if
/// pinning does not end.
const K_REDUCTION: f64 = 30.0;
/// Samples that may be released in one round, for any number of free samples.
const MIN_RELEASED: usize = 64;

/// The role of a sample in a round.
#[derive(Clone, Copy, PartialEq)]
enum RoundRole {
    /// At the end of a piece, where its optimality condition holds.
    Fixed,
    /// Inside its box.
    Free,
    /// At the end of a piece, with this violation of its optimality condition.
    Release(f64),
}

/// The slopes of the dual objective in one β.
struct Slopes {
    /// As β increases; +∞ at the upper bound.
    up: f64,
    /// As β decreases; −∞ at the lower bound.
    down: f64,
}

/// The samples that move in a round.
struct MovingSet {
    moving: Vec<bool>,
    /// Their number.
    size: usize,
    /// β of all samples at the start of the round.
    beta: Vec<f64>,
    /// Slope of the dual objective on the piece on which the sample moves; 0 for samples that do not move.
    slope: Vec<f64>,
    /// The ends of that piece; (β, β) for samples that do not move.
    pieces: Vec<(f64, f64)>,
}

impl MovingSet {
    /// Whether β = `to` lies outside the piece of sample `i` by more than rounding.
    fn leaves_box(&self, i: usize, to: f64) -> bool {
        let ((lo, hi), rounding) = (self.pieces[i], 1e-12 * self.beta[i].abs());
        to < lo - rounding || to > hi + rounding
    }
}

fn slopes(t: &DualTerm, z: f64, beta: f64) -> Slopes {
    let g = z + t.p + t.d * beta;
    Slopes {
        up: if beta < t.hi { g + if beta < 0.0 { -t.eps } else { t.eps } } else { f64::INFINITY },
        down: if beta > t.lo { g + if beta > 0.0 { t.eps } else { -t.eps } } else { f64::NEG_INFINITY },
    }
}

fn is_free(t: &DualTerm, beta: f64) -> bool {
    beta > t.lo && beta < t.hi && (t.eps == 0.0 || beta != 0.0)
}

impl IrwlsRun<'_, '_, '_> {
    /// Rounds from the clipped β in `from` until the certificate meets the stopping criteria. `None`: no more progress.
    pub(super) fn rounds(&mut self, from: &[f64], mut k: f64, first_k: f64) -> Result<Option<Status>, PhaseEnd> {
        let Some(terms) = self.samples.all_terms() else { return Ok(None) };
        let n = self.samples.len();
        self.move_beta_to(from)?;
        let mut max_violation = 0.3 * self.options.stop.tol.unwrap_or(1e-3);
        // The error of objectives from single-precision scores may exceed the remaining progress: then only the
        // certificate decides.
        let single = self.systems.working_precision() == Precision::Single;
        let (mut lowest_violation, mut idle) = (f64::INFINITY, 0);
        for _ in 0..MAX_ROUNDS {
            let violation = self.centre_bias(&terms);
            self.violation = violation;
            if violation <= max_violation {
                if let Some(status) = self.check_optimality()?
                    && let value = self.objective(&self.now)?
                    && (single || value <= self.lowest + 1e-9 * self.lowest.abs() || max_violation < 1e-9)
                {
                    self.lowest = value;
                    self.best.clone_from(&self.now);
                    return Ok(Some(status));
                }
                max_violation *= 0.1;
                if max_violation < 1e-13 {
                    return Ok(None);
                }
                continue;
            }
            idle = if violation < 0.9 * lowest_violation { 0 } else { idle + 1 };
            lowest_violation = lowest_violation.min(violation);
            if idle >= MAX_IDLE {
                return Ok(None);
            }
            let roles: Vec<RoundRole> = (0..n)
                .map(|i| {
                    let s = slopes(&terms[i], self.now.f[i] + self.now.bias, self.now.beta[i]);
                    let violation = (-s.up).max(s.down);
                    match is_free(&terms[i], self.now.beta[i]) {
                        true => RoundRole::Free,
                        false if violation > 0.25 * max_violation => RoundRole::Release(violation),
                        false => RoundRole::Fixed,
                    }
                })
                .collect();
            let Some((eta, free)) = self.round(&terms, &roles, &mut k, first_k)? else { return Ok(None) };
            self.report("active set", free, eta)?;
        }
        Ok(None)
    }

    /// Sets β to `to` and updates the scores.
    fn move_beta_to(&mut self, to: &[f64]) -> Result<(), PhaseEnd> {
        let change: Vec<f64> = to.iter().zip(&self.now.beta).map(|(t, b)| t - b).collect();
        if change.iter().all(|c| *c == 0.0) {
            return Ok(());
        }
        let f = self.systems.product(self.systems.working_precision(), &change, 1, self.control)?;
        self.now.beta.copy_from_slice(to);
        self.now.f.iter_mut().zip(&f).for_each(|(f, change)| *f += change);
        self.now.fresh = false;
        Ok(())
    }

    /// The violation. Moves the bias to the mean over the free samples, or to the middle of its feasible interval.
    fn centre_bias(&mut self, terms: &[DualTerm]) -> f64 {
        let (mut up, mut down) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut sum, mut free) = (0.0, 0usize);
        for (i, t) in terms.iter().enumerate() {
            let s = slopes(t, self.now.f[i] + self.now.bias, self.now.beta[i]);
            (up, down) = (up.min(s.up), down.max(s.down));
            if is_free(t, self.now.beta[i]) {
                sum += s.up;
                free += 1;
            }
        }
        if self.sum.is_none() {
            return (-up).max(down).max(0.0);
        }
        let violation = (down - up).max(0.0);
        if free > 0 {
            self.now.bias -= sum / free as f64;
        } else if up.is_finite() && down.is_finite() {
            self.now.bias -= 0.5 * (up + down);
        }
        violation
    }

    /// One round; returns the length of its step and the number of free samples. `None`: it makes no progress.
    fn round(
        &mut self,
        terms: &[DualTerm],
        roles: &[RoundRole],
        k: &mut f64,
        first_k: f64,
    ) -> Result<Option<(f64, usize)>, PhaseEnd> {
        self.count_iteration()?;
        let set = self.moving_set(terms, roles);
        if set.size == 0 {
            return Ok(None);
        }
        let (d, inside) = self.solve_and_pin(terms, &set, k, first_k)?;
        self.step_in_boxes(terms, &set, d, inside)
    }

    /// The samples that move in this round: the free ones, and those at a bound with the largest violations.
    fn moving_set(&self, terms: &[DualTerm], roles: &[RoundRole]) -> MovingSet {
        let n = terms.len();
        let free = roles.iter().filter(|role| **role == RoundRole::Free).count();
        let mut released: Vec<(f64, usize)> = (0..n)
            .filter_map(|i| match roles[i] {
                RoundRole::Release(violation) => Some((violation, i)),
                _ => None,
            })
            .collect();
        released.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        released.truncate(MIN_RELEASED.max(free / 2));
        let mut moving: Vec<bool> = roles.iter().map(|role| *role == RoundRole::Free).collect();
        released.iter().for_each(|&(_, i)| moving[i] = true);
        let z = |i: usize| self.now.f[i] + self.now.bias;
        let beta = self.now.beta.clone();
        // The sign of β on the piece on which the sample moves.
        let side = |i: usize| match beta[i] {
            b if b > 0.0 => 1.0,
            b if b < 0.0 => -1.0,
            _ if slopes(&terms[i], z(i), beta[i]).up < 0.0 => 1.0,
            _ => -1.0,
        };
        let slope: Vec<f64> = (0..n)
            .map(|i| if moving[i] { z(i) + terms[i].p + terms[i].d * beta[i] + terms[i].eps * side(i) } else { 0.0 })
            .collect();
        let piece = |i: usize| {
            let t = &terms[i];
            match t.eps > 0.0 {
                true if side(i) > 0.0 => (0.0, t.hi),
                true => (t.lo, 0.0),
                false => (t.lo, t.hi),
            }
        };
        let pieces: Vec<(f64, f64)> = (0..n).map(|i| if moving[i] { piece(i) } else { (beta[i], beta[i]) }).collect();
        let size = moving.iter().filter(|m| **m).count();
        MovingSet { moving, size, beta, slope, pieces }
    }

    /// Solves the system, pins samples that would leave their boxes, and solves again until none does. If too many
    /// would leave, or pinning does not end, K is reduced. Returns the direction and whether it ends inside all boxes.
    fn solve_and_pin(
        &mut self,
        terms: &[DualTerm],
        set: &MovingSet,
        k: &mut f64,
        first_k: f64,
    ) -> Result<(IrwlsDirection, bool), PhaseEnd> {
        let MovingSet { moving, size, beta, slope, pieces } = set;
        let n = terms.len();
        let min_proximal = 1e-12 * self.systems.scale();
        let at = DirectionStart { beta, sum: self.sum };
        loop {
            let mut weights = ModelWeights { gamma: beta.clone(), weight: vec![0.0; n] };
            for i in (0..n).filter(|&i| moving[i]) {
                let proximal = (1.0 / (*k * self.samples.problem.costs[i])).max(min_proximal);
                weights.weight[i] = 1.0 / (terms[i].d + proximal);
                weights.gamma[i] = beta[i] - slope[i] * weights.weight[i];
            }
            let mut d = self.systems.direction_without_scores(&at, &weights, 1e-6, self.control)?;
            let (mut inside, mut many) = (false, false);
            for attempt in 0..=MAX_PINNINGS {
                let leaving: Vec<usize> = (0..n)
                    .filter(|&i| moving[i] && weights.weight[i] != 0.0 && set.leaves_box(i, beta[i] + d.beta[i]))
                    .collect();
                inside = leaving.is_empty();
                many = attempt == 0 && leaving.len() > 8 && 5 * leaving.len() > 3 * size;
                if inside || attempt == MAX_PINNINGS || many && *k > first_k {
                    break;
                }
                // Pin those that reach their bound first; the others may then stay inside.
                let bound_fraction = |i: usize| {
                    let (lo, hi) = pieces[i];
                    ((beta[i] + d.beta[i]).clamp(lo, hi) - beta[i]) / d.beta[i]
                };
                let mut leaving: Vec<(f64, usize)> = leaving.into_iter().map(|i| (bound_fraction(i), i)).collect();
                leaving.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                if attempt + 3 < MAX_PINNINGS && leaving.len() * PIN_ALL_DIVISOR > *size {
                    leaving.truncate((leaving.len() / 2).max(8));
                }
                for (_, i) in leaving {
                    let (lo, hi) = pieces[i];
                    (weights.gamma[i], weights.weight[i]) = ((beta[i] + d.beta[i]).clamp(lo, hi), 0.0);
                }
                d = self.systems.direction_without_scores(&at, &weights, 1e-6, self.control)?;
            }
            if inside || *k <= first_k {
                if inside && !many {
                    *k = (K_GROWTH * *k).min(self.options.cap);
                }
                return Ok((d, inside));
            }
            *k = (*k / K_REDUCTION).max(first_k);
        }
    }

    /// Moves to the best point along the direction that keeps every β in its box; `inside`: the full step does. Returns
    /// the length of the step and the number of free samples, or `None` if the step makes no progress.
    fn step_in_boxes(
        &mut self,
        terms: &[DualTerm],
        set: &MovingSet,
        mut d: IrwlsDirection,
        inside: bool,
    ) -> Result<Option<(f64, usize)>, PhaseEnd> {
        let MovingSet { moving, beta, slope, pieces, .. } = set;
        let n = terms.len();
        let mut longest: f64 = 1.0;
        for i in (0..n).filter(|&i| moving[i]) {
            let (to, (lo, hi)) = (beta[i] + d.beta[i], pieces[i]);
            if !inside && (to < lo || to > hi) {
                longest = longest.min((to.clamp(lo, hi) - beta[i]) / d.beta[i]);
            } else {
                d.beta[i] = to.clamp(lo, hi) - beta[i];
            }
        }
        self.systems.add_scores(&mut d, self.control)?;
        let norm = self.quadratic_terms(&d)?;
        let descent: f64 = (0..n).map(|i| slope[i] * d.beta[i]).sum();
        let curvature = norm[2] + (0..n).map(|i| terms[i].d * d.beta[i] * d.beta[i]).sum::<f64>();
        let sum_error = self.sum.map_or(0.0, |s| (beta.iter().sum::<f64>() - s).abs());
        let total: f64 = beta.iter().map(|b| b.abs()).sum();
        // A step that corrects the sum is taken in full; any other step ends where the dual objective is largest.
        let eta =
            if sum_error > 1e-12 * total { longest } else { longest.min(-descent / curvature.max(f64::MIN_POSITIVE)) };
        if !(eta > 1e-6) || !eta.is_finite() {
            return Ok(None);
        }
        self.advance(&d, eta);
        for i in (0..n).filter(|&i| moving[i]) {
            let (lo, hi) = pieces[i];
            self.now.beta[i] = self.now.beta[i].clamp(lo, hi);
        }
        self.record_if_lowest(self.objective(&self.now)?);
        Ok(Some((eta, d.free)))
    }
}
