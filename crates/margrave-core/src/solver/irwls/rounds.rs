//! Losses whose β lives in a box: rounds on the dual variables themselves, once the sets are roughly right.
//!
//! Only the free part of the system of paper 000 is solved, samples at a bound standing on its right-hand side, and the smoothing of that
//! paper is nothing but a proximal term around the present β:
//!
//! ```text
//! (K_FF + D + ρI)Δ + Δb·1 = −(K·β + b + p + Dβ + ε·side)_F,     ΣΔ = s − Σβ,     ρ = 1/(K·c)
//! ```
//!
//! A round releases the samples that want to leave their bound, the worst first, solves, pins half of those that would leave
//! their box, the ones that get there first (all where they are few), solves again until none leaves, and goes to the best point on the way: the
//! dual objective never falls and β never leaves its box. K grows from round to round as long as most samples stay inside,
//! and falls when they do not; once it stands still the factor is kept, released samples appended, pinned ones held.

use super::reweight::Weights;
use super::sets::At;
use super::solve::{End, PATIENCE, Run};
use crate::control::Status;
use crate::gram::Precision;
use crate::loss::DualTerm;

/// Rounds at most.
const ROUNDS: usize = 60;
/// Times a round pins samples and solves again.
const PINS: usize = 16;
/// Where fewer than one in so many of the free samples leave their boxes they are pinned at once, without asking in which order.
const FEW_LEAVE: usize = 8;
/// Growth of K from one round to the next.
const GROWTH: f64 = 10.0;
/// K is divided by this when a step would take three in five of the free samples out of their boxes, or no end of them.
const SHRINK: f64 = 30.0;
/// Samples released in one round, whatever the number of free ones.
const RELEASE: usize = 64;

/// What a sample wants, with the slope of its dual term on the piece it would move on.
#[derive(Clone, Copy, PartialEq)]
enum Wish {
    Rest,
    /// Inside its box.
    Free,
    /// At an end of a piece, and off it by so much.
    Leave(f64),
}

/// The slopes of one sample's part of the dual objective.
struct Slopes {
    /// As β grows; +∞ at the upper bound.
    up: f64,
    /// As β falls; −∞ at the lower bound.
    down: f64,
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

impl Run<'_, '_, '_> {
    /// Rounds from the present β, clipped, until the certificate says that it is enough. `None`: they no longer gain.
    pub(super) fn rounds(&mut self, from: &[f64], mut k: f64, first_k: f64) -> Result<Option<Status>, End> {
        let Some(terms) = self.samples.all_terms() else { return Ok(None) };
        let n = self.samples.len();
        self.start_at(from)?;
        let mut goal = 0.3 * self.options.stop.tol.unwrap_or(1e-3);
        // Objectives from single-precision scores may be off by more than there is left to gain: then the proof decides alone.
        let rough = self.core.working() == Precision::Single;
        let (mut least, mut poor) = (f64::INFINITY, 0);
        for _ in 0..ROUNDS {
            let violation = self.centre(&terms);
            self.violation = violation;
            if violation <= goal {
                if let Some(status) = self.certified()?
                    && let value = self.objective(&self.now)?
                    && (rough || value <= self.lowest + 1e-9 * self.lowest.abs() || goal < 1e-9)
                {
                    self.lowest = value;
                    self.best.clone_from(&self.now);
                    return Ok(Some(status));
                }
                goal *= 0.1;
                if goal < 1e-13 {
                    return Ok(None);
                }
                continue;
            }
            poor = if violation < 0.9 * least { 0 } else { poor + 1 };
            least = least.min(violation);
            if poor >= PATIENCE {
                return Ok(None);
            }
            let wishes: Vec<Wish> = (0..n)
                .map(|i| {
                    let s = slopes(&terms[i], self.now.f[i] + self.now.bias, self.now.beta[i]);
                    let by = (-s.up).max(s.down);
                    match is_free(&terms[i], self.now.beta[i]) {
                        true => Wish::Free,
                        false if by > 0.25 * goal => Wish::Leave(by),
                        false => Wish::Rest,
                    }
                })
                .collect();
            let Some((eta, free)) = self.round(&terms, &wishes, &mut k, first_k)? else { return Ok(None) };
            self.report("sets", free, eta)?;
        }
        Ok(None)
    }

    /// β := `to`, scores to match.
    fn start_at(&mut self, to: &[f64]) -> Result<(), End> {
        let change: Vec<f64> = to.iter().zip(&self.now.beta).map(|(t, b)| t - b).collect();
        if change.iter().all(|c| *c == 0.0) {
            return Ok(());
        }
        let f = self.core.product(self.core.working(), &change, 1, self.control)?;
        self.now.beta.copy_from_slice(to);
        self.now.f.iter_mut().zip(&f).for_each(|(f, by)| *f += by);
        self.now.fresh = false;
        Ok(())
    }

    /// The violation; the bias goes to the middle of what the samples ask for.
    fn centre(&mut self, terms: &[DualTerm]) -> f64 {
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

    /// One round; the length of its step and the number of free samples. `None`: it gains nothing.
    fn round(
        &mut self,
        terms: &[DualTerm],
        wishes: &[Wish],
        k: &mut f64,
        first_k: f64,
    ) -> Result<Option<(f64, usize)>, End> {
        let n = terms.len();
        self.count()?;
        let inside = wishes.iter().filter(|w| **w == Wish::Free).count();
        let mut leaving: Vec<(f64, usize)> = (0..n)
            .filter_map(|i| match wishes[i] {
                Wish::Leave(by) => Some((by, i)),
                _ => None,
            })
            .collect();
        leaving.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        leaving.truncate(RELEASE.max(inside / 2));
        let mut moving: Vec<bool> = wishes.iter().map(|w| *w == Wish::Free).collect();
        leaving.iter().for_each(|&(_, i)| moving[i] = true);
        let z = |i: usize| self.now.f[i] + self.now.bias;
        let beta = self.now.beta.clone();
        // The piece each moves on, and the slope of its dual term there.
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
        if !moving.iter().any(|m| *m) {
            return Ok(None);
        }
        let floor = 1e-12 * self.core.scale();
        let at = At { beta: &beta, sum: self.sum };
        let leaves = |i: usize, to: f64| {
            let ((lo, hi), tiny) = (pieces[i], 1e-12 * beta[i].abs());
            to < lo - tiny || to > hi + tiny
        };
        let free = moving.iter().filter(|m| **m).count();
        // Solved, and solved again with those pinned that would leave their boxes. Too many of them, or no end of it: a nearer goal.
        let (mut d, settled) = loop {
            let mut weights = Weights { gamma: beta.clone(), weight: vec![0.0; n] };
            for i in (0..n).filter(|&i| moving[i]) {
                let proximal = (1.0 / (*k * self.samples.problem.costs[i])).max(floor);
                weights.weight[i] = 1.0 / (terms[i].d + proximal);
                weights.gamma[i] = beta[i] - slope[i] * weights.weight[i];
            }
            let mut d = self.core.unknowns(&at, &weights, 1e-6, self.control)?;
            let (mut settled, mut many) = (false, false);
            for attempt in 0..=PINS {
                let gone: Vec<usize> = (0..n)
                    .filter(|&i| moving[i] && weights.weight[i] != 0.0 && leaves(i, beta[i] + d.beta[i]))
                    .collect();
                settled = gone.is_empty();
                many = attempt == 0 && gone.len() > 8 && 5 * gone.len() > 3 * free;
                if settled || attempt == PINS || many && *k > first_k {
                    break;
                }
                // Those that reach their bound first; what they held up may let the others stay.
                let reach = |i: usize| {
                    let (lo, hi) = pieces[i];
                    ((beta[i] + d.beta[i]).clamp(lo, hi) - beta[i]) / d.beta[i]
                };
                let mut gone: Vec<(f64, usize)> = gone.into_iter().map(|i| (reach(i), i)).collect();
                gone.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                if attempt + 3 < PINS && gone.len() * FEW_LEAVE > free {
                    gone.truncate((gone.len() / 2).max(8));
                }
                for (_, i) in gone {
                    let (lo, hi) = pieces[i];
                    (weights.gamma[i], weights.weight[i]) = ((beta[i] + d.beta[i]).clamp(lo, hi), 0.0);
                }
                d = self.core.unknowns(&at, &weights, 1e-6, self.control)?;
            }
            if settled || *k <= first_k {
                if settled && !many {
                    *k = (GROWTH * *k).min(self.options.cap);
                }
                break (d, settled);
            }
            *k = (*k / SHRINK).max(first_k);
        };
        let mut most: f64 = 1.0;
        for i in (0..n).filter(|&i| moving[i]) {
            let (to, (lo, hi)) = (beta[i] + d.beta[i], pieces[i]);
            if !settled && (to < lo || to > hi) {
                most = most.min((to.clamp(lo, hi) - beta[i]) / d.beta[i]);
            } else {
                d.beta[i] = to.clamp(lo, hi) - beta[i];
            }
        }
        self.core.scores(&mut d, self.control)?;
        let norm = self.norms(&d)?;
        let down: f64 = (0..n).map(|i| slope[i] * d.beta[i]).sum();
        let curve = norm[2] + (0..n).map(|i| terms[i].d * d.beta[i] * d.beta[i]).sum::<f64>();
        let off = self.sum.map_or(0.0, |s| (beta.iter().sum::<f64>() - s).abs());
        let total: f64 = beta.iter().map(|b| b.abs()).sum();
        // A step that puts the sum right is taken whole; the others where the dual is best.
        let eta = if off > 1e-12 * total { most } else { most.min(-down / curve.max(f64::MIN_POSITIVE)) };
        if !(eta > 1e-6) || !eta.is_finite() {
            return Ok(None);
        }
        self.go(&d, eta);
        for i in (0..n).filter(|&i| moving[i]) {
            let (lo, hi) = pieces[i];
            self.now.beta[i] = self.now.beta[i].clamp(lo, hi);
        }
        self.record(self.objective(&self.now)?);
        Ok(Some((eta, d.free)))
    }
}
