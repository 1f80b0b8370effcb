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

/// The smallest entry.
#[inline(always)]
pub(super) fn smallest(g: &[Lane]) -> f64 {
    let mut least = [f64::INFINITY; LANES];
    for v in g {
        (0..LANES).for_each(|l| least[l] = if v[l] < least[l] { v[l] } else { least[l] });
    }
    least[0].min(least[1]).min(least[2].min(least[3]))
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

/// The sum and the number of the entries above θ.
#[inline(always)]
fn sum_above(u: &[Lane], theta: f64) -> (f64, f64) {
    let (mut above, mut count) = ([0.0; LANES], [0.0; LANES]);
    for u in u {
        for l in 0..LANES {
            let is_above = u[l] > theta;
            above[l] += if is_above { u[l] } else { 0.0 };
            count[l] += if is_above { 1.0 } else { 0.0 };
        }
    }
    (total(above), total(count))
}

/// The θ with Σ max(0, u_m − θ) = `sum`, for `sum` > 0.
///
/// Newton's method on this convex, piecewise linear function of θ, from the left: the classes above θ only become
/// fewer, so it is exact after at most k passes and usually after three.
#[inline(always)]
fn threshold(u: &[Lane], sum: f64) -> f64 {
    let top = largest(u);
    // Where `sum` is lost to rounding, the largest entries share it.
    let below_top = top.next_down();
    let mut theta = (top - sum).min(below_top);
    let mut before = f64::INFINITY;
    loop {
        let (above, count) = sum_above(u, theta);
        let next = ((above - sum) / count).min(below_top);
        if !(count > 0.0 && count < before && next > theta) {
            return theta;
        }
        (theta, before) = (next, count);
    }
}

/// A point `u = ε·a + g` to project on the simplex of a sample, `{a ≥ 0, Σa = c}` with `sum` = ε·c, relative to the
/// vertex of its own class.
///
/// α is often far smaller than c: there `ε·a` of the own class is ε·c up to a part that rounding would destroy. So that
/// class enters as `g − ε·Σ` over the a of the others, which is smaller by `sum`.
pub(super) struct Shifted<'u> {
    /// u of the other classes; −∞ for the own class and for padding.
    pub(super) others: &'u mut [Lane],
    own_class: (usize, usize),
    /// u of the own class, less `sum`.
    own: f64,
    sum: f64,
}

impl<'u> Shifted<'u> {
    /// Writes u to `u`; `scale` is ε, `g` holds the scores.
    #[inline(always)]
    pub(super) fn new(
        g: &[Lane],
        a: &[Lane],
        scale: f64,
        sum: f64,
        own_class: (usize, usize),
        u: &'u mut [Lane],
    ) -> Self {
        let (lane, l) = own_class;
        u.copy_from_slice(g);
        add_scaled(a, scale, u);
        u[lane][l] = f64::NEG_INFINITY;
        Self { others: u, own_class, own: g[lane][l] - scale * sum_of_others(a, own_class), sum }
    }

    /// θ, and whether a of the own class is positive.
    ///
    /// If it is, `sum` cancels: Σ max(0, u_m − θ) over the others is θ less the shifted u of the own class.
    #[inline(always)]
    pub(super) fn threshold(&self) -> (f64, bool) {
        let (mut theta, mut before) = (self.own, f64::INFINITY);
        loop {
            let (above, count) = sum_above(self.others, theta);
            let next = (above + self.own) / (count + 1.0);
            if !(count < before && next > theta) {
                break;
            }
            (theta, before) = (next, count);
        }
        if theta - self.own <= self.sum { (theta, true) } else { (threshold(self.others, self.sum), false) }
    }

    /// Replaces u by the a of its projection. False, with u undefined, if rounding or overflow leaves nothing to scale.
    #[inline(always)]
    pub(super) fn project(self, cost: f64) -> bool {
        let (theta, is_own_positive) = self.threshold();
        let mut rest = [0.0; LANES];
        for u in self.others.iter_mut() {
            for l in 0..LANES {
                let over = u[l] - theta;
                u[l] = if over > 0.0 { over } else { 0.0 };
                rest[l] += u[l];
            }
        }
        // Without the own class the sum of the others is `sum` in exact arithmetic; after rounding the sum of a must
        // still be the cost.
        let rest = total(rest);
        let scale = if is_own_positive && rest <= self.sum { cost / self.sum } else { cost / rest };
        if !(scale.is_finite() && rest.is_finite()) {
            return false;
        }
        self.others.iter_mut().flatten().for_each(|u| *u *= scale);
        let (lane, l) = self.own_class;
        self.others[lane][l] = if is_own_positive { (cost - scale * rest).max(0.0) } else { 0.0 };
        true
    }

    /// First and second derivative of ½Σ max(0, u − θ)² − `sum`·u of the own class, as u changes along `dz`.
    #[inline(always)]
    pub(super) fn derivatives(&self, dz: &[Lane]) -> (f64, f64) {
        let (theta, is_own_positive) = self.threshold();
        let (mut slope, mut first, mut second, mut count) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for (u, dz) in self.others.iter().zip(dz) {
            for l in 0..LANES {
                let over = if u[l] > theta { u[l] - theta } else { 0.0 };
                let d = if u[l] > theta { dz[l] } else { 0.0 };
                slope[l] += over * d;
                first[l] += d;
                second[l] += d * d;
                count[l] += if u[l] > theta { 1.0 } else { 0.0 };
            }
        }
        let own = dz[self.own_class.0][self.own_class.1];
        let (mut first, mut second, mut count) = (total(first), total(second), total(count));
        let of_own = if is_own_positive {
            first += own;
            second += own * own;
            count += 1.0;
            self.own - theta
        } else {
            -self.sum
        };
        let curvature = if count > 0.0 { (second - first * first / count).max(0.0) } else { 0.0 };
        (total(slope) + of_own * own, curvature)
    }
}

/// Σ a over the classes other than the own one.
#[inline(always)]
pub(super) fn sum_of_others(a: &[Lane], own_class: (usize, usize)) -> f64 {
    let mut sum = a[own_class.0];
    sum[own_class.1] = 0.0;
    for a in a[..own_class.0].iter().chain(&a[own_class.0 + 1..]) {
        (0..LANES).for_each(|l| sum[l] += a[l]);
    }
    total(sum)
}

/// Replaces `new` by the change `a − new` and stores the new values in `a`; true if any differs. The changes sum to 0,
/// and that of the own class is not computed from its a, of which it may be a tiny part.
#[inline(always)]
pub(super) fn exchange(a: &mut [Lane], new: &mut [Lane], own_class: (usize, usize)) -> bool {
    let (lane, l) = own_class;
    a[lane][l] = new[lane][l];
    let (mut moved, mut sum) = ([0.0; LANES], [0.0; LANES]);
    for (a, new) in a.iter_mut().zip(&mut *new) {
        for l in 0..LANES {
            let change = a[l] - new[l];
            a[l] = new[l];
            new[l] = change;
            moved[l] += change.abs();
            sum[l] += change;
        }
    }
    new[lane][l] = -total(sum);
    total(moved) > 0.0
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

    fn padded(values: &[f64], padding: f64) -> Vec<Lane> {
        let mut out = vec![[padding; LANES]; values.len().div_ceil(LANES)];
        out.as_flattened_mut()[..values.len()].copy_from_slice(values);
        out
    }

    /// Scores.
    fn lanes(values: &[f64]) -> Vec<Lane> {
        padded(values, f64::NEG_INFINITY)
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
                let (own, scale) = (k / 2, sum / 3.0);
                let (mut a, mut u) = (padded(&vec![0.0; k], 0.0), lanes(&values));
                a.as_flattened_mut()[own] = 3.0;
                let mut g = lanes(&values);
                g.as_flattened_mut()[own] -= sum;
                let shifted = Shifted::new(&g, &a, scale, sum, at(own), &mut u);
                assert!((shifted.threshold().0 - right).abs() <= 1e-12 * (1.0 + right.abs()), "k = {k}, sum = {sum}");
                assert!(shifted.project(3.0));
                for (u, value) in u.iter().flatten().zip(&values) {
                    let expected = (value - right).max(0.0) / scale;
                    assert!((u - expected).abs() <= 1e-9, "k = {k}, sum = {sum}: {u} {expected}");
                }
                let total: f64 = u.iter().flatten().sum();
                assert!((total - 3.0).abs() <= 1e-12 && u.iter().flatten().all(|a| *a >= 0.0), "{total}");
            }
        }
    }

    #[test]
    fn a_sum_lost_to_rounding_goes_to_the_largest() {
        let (g, a) = (lanes(&[1e20, 3.0, 1e20, -1e20, 0.0]), padded(&[0.0, 0.0, 0.0, 4.0, 0.0], 0.0));
        let mut u = lanes(&[0.0; 5]);
        assert!(Shifted::new(&g, &a, 0.25, 1.0, at(3), &mut u).project(4.0));
        assert_eq!(u.as_flattened()[..5], [2.0, 0.0, 2.0, 0.0, 0.0]);
        for count in 2..12 {
            let ties = lanes(&vec![0.1e10 / 3.0; count]);
            let (zeros, mut u) = (vec![[0.0; LANES]; ties.len()], ties.clone());
            assert!(Shifted::new(&ties, &zeros, 1e-9, 1e-9, at(1), &mut u).project(1.0), "{count} ties");
        }
    }

    #[test]
    fn dual_variables_far_below_their_cost_are_exact() {
        // The optimum of one sample with a large cost and a large row: α = 1 / (2q), a part in 1e17 of the cost.
        let (c, q) = (1e6, 1e11);
        let (g, mut a) = (lanes(&[0.0, 1.0, -5.0]), padded(&[c, 0.0, 0.0], 0.0));
        let mut u = lanes(&[0.0; 3]);
        assert!(Shifted::new(&g, &a, q, q * c, at(0), &mut u).project(c));
        assert!((2.0 * q * u[0][1] - 1.0).abs() <= 1e-15 && u[0][2] == 0.0, "{u:?}");
        assert!(exchange(&mut a, &mut u, at(0)));
        assert!(u[0][0] == -u[0][1] && a[0][1] == -u[0][1], "{u:?}");
        // From there nothing is left to do.
        let g = lanes(&[0.5, 0.5, -5.0]);
        assert!(Shifted::new(&g, &a, q, q * c, at(0), &mut u).project(c));
        assert!((2.0 * q * u[0][1] - 1.0).abs() <= 1e-15, "{u:?}");
    }
}
