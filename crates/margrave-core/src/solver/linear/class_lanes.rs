//! Vectors over the classes of a Crammer–Singer model, in groups of four.
//!
//! W and the dual variables are stored feature by feature (sample by sample) with the classes side by side and padded
//! to a multiple of four, so that every loop over classes has a fixed inner length the compiler can vectorise.

/// Four neighbouring classes.
pub(super) type Lane = [f64; LANES];
/// Classes in a lane.
pub(super) const LANES: usize = 4;

/// Where class `m` is stored: lane and position.
#[inline(always)]
pub(super) fn at(m: usize) -> (usize, usize) {
    (m / LANES, m % LANES)
}

#[inline(always)]
fn total(v: Lane) -> f64 {
    (v[0] + v[1]) + (v[2] + v[3])
}

/// `out += x·w`.
#[inline(always)]
pub(super) fn add_scaled(w: &[Lane], x: f64, out: &mut [Lane]) {
    for (o, w) in out.iter_mut().zip(w) {
        (0..LANES).for_each(|l| o[l] += x * w[l]);
    }
}

/// The largest entry.
#[inline(always)]
pub(super) fn largest(g: &[Lane]) -> f64 {
    let mut top = [f64::NEG_INFINITY; LANES];
    for v in g {
        (0..LANES).for_each(|l| top[l] = if v[l] > top[l] { v[l] } else { top[l] });
    }
    top[0].max(top[1]).max(top[2].max(top[3]))
}

/// The smallest entry of `g` among those with `a > above`; ∞ if there are none.
#[inline(always)]
pub(super) fn smallest_where(g: &[Lane], a: &[Lane], above: f64) -> f64 {
    let mut least = [f64::INFINITY; LANES];
    for (g, a) in g.iter().zip(a) {
        (0..LANES).for_each(|l| least[l] = if a[l] > above && g[l] < least[l] { g[l] } else { least[l] });
    }
    least[0].min(least[1]).min(least[2].min(least[3]))
}

/// Σ a·(top − g) over the classes with a > 0. Padding has g = −∞ and a = 0.
#[inline(always)]
pub(super) fn excess(g: &[Lane], a: &[Lane], top: f64) -> f64 {
    let mut sum = [0.0; LANES];
    for (g, a) in g.iter().zip(a) {
        (0..LANES).for_each(|l| sum[l] += if a[l] > 0.0 { a[l] * (top - g[l]) } else { 0.0 });
    }
    total(sum)
}

/// The θ with Σ max(0, u_m − θ) = `sum`, for `sum` > 0.
///
/// Newton's method on this convex, piecewise linear function of θ, from the left: the classes above θ only become
/// fewer, so it is exact after at most k passes and usually after three.
#[inline(always)]
pub(super) fn threshold(u: &[Lane], sum: f64) -> f64 {
    let top = largest(u);
    // Where `sum` is lost to rounding, the largest entries share it.
    let below_top = top.next_down();
    let mut theta = (top - sum).min(below_top);
    let mut before = f64::INFINITY;
    loop {
        let (mut above, mut count) = ([0.0; LANES], [0.0; LANES]);
        for u in u {
            for l in 0..LANES {
                let is_above = u[l] > theta;
                above[l] += if is_above { u[l] } else { 0.0 };
                count[l] += if is_above { 1.0 } else { 0.0 };
            }
        }
        let count = total(count);
        let next = ((total(above) - sum) / count).min(below_top);
        if !(count > 0.0 && count < before && next > theta) {
            return theta;
        }
        (theta, before) = (next, count);
    }
}

/// Replaces u by its projection on the simplex `{a ≥ 0, Σa = cost}` after division by `sum / cost`, and returns θ.
/// `None`, with u undefined, if rounding or overflow leaves nothing to scale.
#[inline(always)]
pub(super) fn project(u: &mut [Lane], sum: f64, cost: f64) -> Option<f64> {
    let theta = threshold(u, sum);
    let mut rest = [0.0; LANES];
    for u in u.iter_mut() {
        for l in 0..LANES {
            let over = u[l] - theta;
            u[l] = if over > 0.0 { over } else { 0.0 };
            rest[l] += u[l];
        }
    }
    // The sum is `sum` in exact arithmetic; after rounding the sum of a must still be the cost.
    let scale = cost / total(rest);
    if !scale.is_finite() {
        return None;
    }
    u.iter_mut().flatten().for_each(|u| *u *= scale);
    Some(theta)
}

/// Replaces `new` by the change `a − new` and stores the new values in `a`; true if any differs.
#[inline(always)]
pub(super) fn exchange(a: &mut [Lane], new: &mut [Lane]) -> bool {
    let mut moved = 0.0;
    for (a, new) in a.iter_mut().zip(new) {
        for l in 0..LANES {
            let change = a[l] - new[l];
            a[l] = new[l];
            new[l] = change;
            moved += change.abs();
        }
    }
    moved > 0.0
}

/// Σ over all entries of x·y.
pub(super) fn dot(x: &[Lane], y: &[Lane]) -> f64 {
    let mut sum = [0.0; LANES];
    for (x, y) in x.iter().zip(y) {
        (0..LANES).for_each(|l| sum[l] += x[l] * y[l]);
    }
    total(sum)
}

/// ‖x − y‖².
pub(super) fn squared_distance(x: &[Lane], y: &[Lane]) -> f64 {
    let mut sum = [0.0; LANES];
    for (x, y) in x.iter().zip(y) {
        (0..LANES).for_each(|l| sum[l] += (x[l] - y[l]) * (x[l] - y[l]));
    }
    total(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(values: &[f64]) -> Vec<Lane> {
        let mut out = vec![[f64::NEG_INFINITY; LANES]; values.len().div_ceil(LANES)];
        out.as_flattened_mut()[..values.len()].copy_from_slice(values);
        out
    }

    /// The threshold by sorting: the largest θ over the sets of the r largest entries.
    fn by_sorting(values: &[f64], sum: f64) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let mut above = 0.0;
        sorted.iter().enumerate().fold(f64::NEG_INFINITY, |theta, (at, v)| {
            above += v;
            theta.max((above - sum) / (at + 1) as f64)
        })
    }

    #[test]
    fn the_threshold_is_that_found_by_sorting() {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f64 / (1 << 24) as f64
        };
        for k in 2..40 {
            for sum in [1e-3, 0.1, 1.0, 30.0] {
                let values: Vec<f64> = (0..k).map(|m| if m % 5 == 4 { 0.5 } else { 4.0 * next() - 2.0 }).collect();
                let (found, right) = (threshold(&lanes(&values), sum), by_sorting(&values, sum));
                assert!((found - right).abs() <= 1e-12 * (1.0 + right.abs()), "k = {k}, sum = {sum}: {found} {right}");
                let mut u = lanes(&values);
                assert!(project(&mut u, sum, 3.0).is_some());
                let total: f64 = u.iter().flatten().sum();
                assert!((total - 3.0).abs() <= 1e-12 && u.iter().flatten().all(|a| *a >= 0.0), "{total}");
            }
        }
    }

    #[test]
    fn a_sum_lost_to_rounding_goes_to_the_largest() {
        let mut u = lanes(&[1e20, 3.0, 1e20, -1e20, 0.0]);
        assert!(project(&mut u, 1.0, 4.0).is_some());
        assert_eq!(u.as_flattened()[..5], [2.0, 0.0, 2.0, 0.0, 0.0]);
        for count in 2..12 {
            let mut ties = lanes(&vec![0.1e10 / 3.0; count]);
            assert!(project(&mut ties, 1e-9, 1.0).is_some(), "{count} ties");
        }
    }
}
