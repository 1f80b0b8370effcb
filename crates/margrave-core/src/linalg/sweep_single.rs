//! The passes of `sweep.rs` with slopes in single precision: half the memory and twice the lanes.
//!
//! For pair steps inside a block, which only has to become roughly optimal: β is in double precision, and the slopes of
//! all variables are computed anew from its change.

use super::sweep::{Entry, Extremes, versions};

const LANES: usize = 16;

versions! {
    /// g += ti·ki + tj·kj, and the extremes of the result.
    pub fn update_pair<T: Entry>(g: &mut [f32], ki: &[T], ti: f32, kj: &[T], tj: f32, up: &[f32], down: &[f32]) -> Extremes = update_pair_body
}

versions! {
    /// As [`sweep::best_partner`](super::sweep::best_partner), with its gain.
    pub fn best_partner<T: Entry>(g: &[f32], down: &[f32], row: &[T], diag: &[f32], own: f32, from: f32, floor: f32) -> Option<(f32, usize)> = best_partner_body
}

#[inline(always)]
fn update_pair_body<T: Entry>(
    g: &mut [f32],
    ki: &[T],
    ti: f32,
    kj: &[T],
    tj: f32,
    up: &[f32],
    down: &[f32],
) -> Extremes {
    let n = g.len();
    let (ki, kj, up, down) = (&ki[..n], &kj[..n], &up[..n], &down[..n]);
    let mut least = [f32::INFINITY; LANES];
    let mut least_at = [0i32; LANES];
    let mut most = [f32::NEG_INFINITY; LANES];
    let mut most_at = [0i32; LANES];
    let whole = n / LANES * LANES;
    let mut base = 0;
    while base < whole {
        let g: &mut [f32; LANES] = (&mut g[base..base + LANES]).try_into().expect("LANES elements");
        let ki: &[T; LANES] = ki[base..base + LANES].try_into().expect("LANES elements");
        let kj: &[T; LANES] = kj[base..base + LANES].try_into().expect("LANES elements");
        let up: &[f32; LANES] = up[base..base + LANES].try_into().expect("LANES elements");
        let down: &[f32; LANES] = down[base..base + LANES].try_into().expect("LANES elements");
        let at = base as i32;
        for l in 0..LANES {
            g[l] += ti * ki[l].narrow() + tj * kj[l].narrow();
        }
        for l in 0..LANES {
            let v = g[l] + up[l];
            let better = v < least[l];
            least[l] = if better { v } else { least[l] };
            least_at[l] = if better { at } else { least_at[l] };
        }
        for l in 0..LANES {
            let v = g[l] + down[l];
            let better = v > most[l];
            most[l] = if better { v } else { most[l] };
            most_at[l] = if better { at } else { most_at[l] };
        }
        base += LANES;
    }
    let mut best = Extremes { up: f64::INFINITY, up_at: 0, down: f64::NEG_INFINITY, down_at: 0 };
    for l in 0..LANES {
        let (v, at) = (f64::from(least[l]), least_at[l] as usize + l);
        if v < best.up || (v == best.up && at < best.up_at) {
            (best.up, best.up_at) = (v, at);
        }
        let (v, at) = (f64::from(most[l]), most_at[l] as usize + l);
        if v > best.down || (v == best.down && at < best.down_at) {
            (best.down, best.down_at) = (v, at);
        }
    }
    for a in whole..n {
        g[a] += ti * ki[a].narrow() + tj * kj[a].narrow();
        let (rise, fall) = (f64::from(g[a] + up[a]), f64::from(g[a] + down[a]));
        if rise < best.up {
            (best.up, best.up_at) = (rise, a);
        }
        if fall > best.down {
            (best.down, best.down_at) = (fall, a);
        }
    }
    best
}

#[inline(always)]
fn best_partner_body<T: Entry>(
    g: &[f32],
    down: &[f32],
    row: &[T],
    diag: &[f32],
    own: f32,
    from: f32,
    floor: f32,
) -> Option<(f32, usize)> {
    let n = g.len();
    let (down, row, diag) = (&down[..n], &row[..n], &diag[..n]);
    let gain = |g: f32, down: f32, row: f32, diag: f32| {
        let ahead = g + down - from;
        let curve = own + diag - 2.0 * row;
        let curve = if curve > floor { curve } else { floor };
        let pull = if ahead > 0.0 { ahead } else { 0.0 };
        pull * pull / curve
    };
    let mut most = [0f32; LANES];
    let mut most_at = [0i32; LANES];
    let whole = n / LANES * LANES;
    let mut base = 0;
    while base < whole {
        let g: &[f32; LANES] = g[base..base + LANES].try_into().expect("LANES elements");
        let down: &[f32; LANES] = down[base..base + LANES].try_into().expect("LANES elements");
        let row: &[T; LANES] = row[base..base + LANES].try_into().expect("LANES elements");
        let diag: &[f32; LANES] = diag[base..base + LANES].try_into().expect("LANES elements");
        for l in 0..LANES {
            let v = gain(g[l], down[l], row[l].narrow(), diag[l]);
            let better = v > most[l];
            most[l] = if better { v } else { most[l] };
            most_at[l] = if better { base as i32 } else { most_at[l] };
        }
        base += LANES;
    }
    let (mut best, mut best_at) = (0f32, usize::MAX);
    for l in 0..LANES {
        let at = most_at[l] as usize + l;
        if most[l] > best || (most[l] == best && best > 0.0 && at < best_at) {
            (best, best_at) = (most[l], at);
        }
    }
    for a in whole..n {
        let v = gain(g[a], down[a], row[a].narrow(), diag[a]);
        if v > best {
            (best, best_at) = (v, a);
        }
    }
    (best_at != usize::MAX).then_some((best, best_at))
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::linalg::sweep;

    #[test]
    fn passes_agree_with_those_in_double_precision() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(8);
        for n in [0, 1, 15, 16, 17, 100, 1003] {
            // Multiples of 2⁻⁸: all sums and products are exact in both precisions.
            let mut draw = |_| f64::from(rng.random_range(-256i32..256)) / 256.0;
            let wide: Vec<f64> = (0..n).map(&mut draw).collect();
            let ki: Vec<f32> = (0..n).map(&mut draw).map(|v| v as f32).collect();
            let kj: Vec<f32> = (0..n).map(&mut draw).map(|v| v as f32).collect();
            let up: Vec<f64> = (0..n).map(|a| if a % 3 == 0 { f64::INFINITY } else { 0.125 }).collect();
            let down: Vec<f64> = (0..n).map(|a| if a % 4 == 1 { f64::NEG_INFINITY } else { -0.125 }).collect();
            let single = |v: &[f64]| v.iter().map(|v| *v as f32).collect::<Vec<f32>>();
            let (mut g, mut g32) = (wide.clone(), single(&wide));
            let want = sweep::update_pair(&mut g, &ki, 0.25, &kj, -0.75, &up, &down);
            let got = update_pair(&mut g32, &ki, 0.25, &kj, -0.75, &single(&up), &single(&down));
            assert_eq!(got, want, "n = {n}");
            assert_eq!(g32, single(&g));
            let diag = vec![1f32; n];
            let want = sweep::best_partner(&g, &down, &ki, &diag, 1.0, -0.25, 1e-6);
            let got = best_partner(&g32, &single(&down), &ki, &diag, 1.0, -0.25, 1e-6);
            assert_eq!(got.map(|(_, at)| at), want, "n = {n}");
        }
    }
}
