//! A feasible dual point near the given one.
//!
//! First every β is clipped to its box, −β/c to the domain of the conjugate. Then the sum of each group is corrected.
//! An error of rounding size is corrected on the variable farthest from its bounds (so that it stays free); a larger
//! error by an equal shift of the non-zero variables, clipped to their boxes (their Euclidean projection), so that the
//! change touches few columns of K. Variables at zero are changed only if the others have no room left.

use super::{CHUNK, Point, bulk};

/// Errors of a sum below this fraction of Σ|β| are corrected on one variable.
const SMALL: f64 = 1e-9;

pub(super) struct Repaired {
    pub(super) beta: Vec<f64>,
    /// Infeasibility of the given point.
    pub(super) infeasibility: f64,
    /// Whether a feasible point exists.
    pub(super) exists: bool,
}

/// Σ values, with compensated rounding errors (Neumaier).
pub(super) fn exact_sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for v in values {
        let next = sum + v;
        lost += if sum.abs() >= v.abs() { (sum - next) + v } else { (v - next) + sum };
        sum = next;
    }
    sum + lost
}

pub(super) fn repair(point: &Point<'_, '_>, given: &[f64], groups: &[Option<Vec<u32>>]) -> Repaired {
    let p = point.problem;
    let boxes = bulk::boxes(point);
    let largest_cost = p.costs.iter().fold(0.0f64, |m, c| m.max(*c));
    // β clipped to its box, and the largest distance moved.
    let parts = point.control.threads.map(p.len().div_ceil(CHUNK), |task| {
        let mut infeasibility = 0.0f64;
        let clip = |i: usize| {
            let (lo, hi) = boxes[i];
            if !given[i].is_finite() {
                infeasibility = f64::INFINITY;
                return 0.0f64.clamp(lo, hi);
            }
            let clipped = given[i].clamp(lo, hi);
            let unit = if p.costs[i] > 0.0 { p.costs[i] } else { largest_cost };
            if clipped != given[i] {
                infeasibility = infeasibility.max((given[i] - clipped).abs() / unit.max(f64::MIN_POSITIVE));
            }
            clipped
        };
        let part: Vec<f64> = (task * CHUNK..((task + 1) * CHUNK).min(p.len())).map(clip).collect();
        (part, infeasibility)
    });
    let mut infeasibility = parts.iter().fold(0.0f64, |worst, part| worst.max(part.1));
    let mut beta: Vec<f64> = parts.into_iter().flat_map(|part| part.0).collect();
    let mut exists = true;
    for (g, list) in groups.iter().enumerate() {
        let all: Vec<u32>;
        let list = match list {
            Some(list) => list.as_slice(),
            None => {
                all = (0..p.len() as u32).collect();
                &all
            }
        };
        let s = p.constraint.sum(g);
        let finite = |i: &u32| Some(given[*i as usize]).filter(|b| b.is_finite()).unwrap_or(0.0);
        let size = list.iter().map(|i| finite(i).abs()).sum::<f64>().max(s.abs());
        let off = (s - exact_sum(list.iter().map(finite))).abs();
        if off > 0.0 {
            infeasibility = infeasibility.max(off / size.max(f64::MIN_POSITIVE));
        }
        exists &= balance(&boxes, &mut beta, list, s);
    }
    if !exists {
        infeasibility = f64::INFINITY;
    }
    Repaired { beta, infeasibility, exists }
}

/// Shifts the variables of `list` within their boxes until their sum is `s`; false if the boxes do not allow it.
fn balance(boxes: &[(f64, f64)], beta: &mut [f64], list: &[u32], s: f64) -> bool {
    let size = list.iter().map(|&i| beta[i as usize].abs()).sum::<f64>().max(s.abs());
    let room = |beta: &[f64], i: u32, way: f64| {
        let (lo, hi) = boxes[i as usize];
        if way > 0.0 { hi - beta[i as usize] } else { beta[i as usize] - lo }
    };
    // The last rounds only correct the rounding of the earlier shifts.
    for round in 0..4 {
        let missing = s - exact_sum(list.iter().map(|&i| beta[i as usize]));
        let (way, mut amount) = (missing.signum(), missing.abs());
        if amount <= 1e-16 * size {
            return true;
        }
        if amount <= SMALL * size || round > 0 {
            let inside = |i: u32| room(beta, i, 1.0).min(room(beta, i, -1.0));
            let free = list.iter().copied().filter(|&i| beta[i as usize] != 0.0 && inside(i) >= amount);
            let most = free
                .max_by(|a, b| inside(*a).total_cmp(&inside(*b)))
                .or_else(|| list.iter().copied().max_by(|a, b| room(beta, *a, way).total_cmp(&room(beta, *b, way))));
            if let Some(i) = most
                && room(beta, i, way) >= amount
            {
                beta[i as usize] += way * amount;
                continue;
            }
        }
        let rooms = |only_nonzero: bool, beta: &[f64]| -> Vec<(f64, u32)> {
            let usable = |i: &&u32| !only_nonzero || beta[**i as usize] != 0.0;
            let pairs = list.iter().filter(usable).map(|&i| (room(beta, i, way), i));
            pairs.filter(|(room, _)| *room > 0.0).collect()
        };
        let mut chosen = rooms(true, beta);
        if chosen.iter().map(|(room, _)| room).sum::<f64>() < amount {
            chosen = rooms(false, beta);
        }
        chosen.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let count = chosen.len();
        for (at, (room, i)) in chosen.into_iter().enumerate() {
            let share = room.min(amount / (count - at) as f64);
            beta[i as usize] += way * share;
            amount -= share;
        }
        if amount > 1e-12 * size {
            return false;
        }
    }
    true
}
