//! Passes over all active variables: the inner loops of decomposition.
//!
//! Each pass is one body of plain lane-wise Rust, compiled three times (AVX-512, AVX2 + FMA, baseline) and chosen at
//! run time. Lanes are independent and ties go to the lowest index, so a pass gives the same answer at every level
//! except for the rounding of fused multiply–adds.

/// A stored kernel entry.
pub trait Entry: Copy + Send + Sync + Default + 'static {
    /// Exact in double precision.
    fn wide(self) -> f64;
    /// Rounded to single precision.
    fn narrow(self) -> f32;
}

impl Entry for f32 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn narrow(self) -> f32 {
        self
    }
}

impl Entry for f64 {
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    fn narrow(self) -> f32 {
        self as f32
    }
}

/// A multiple of a step that is known elsewhere.
impl Entry for i16 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn narrow(self) -> f32 {
        f32::from(self)
    }
}

/// The most violating variables of a range: the one to increase and the one to decrease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extremes {
    /// min (g + up), +∞ if no variable can increase.
    pub up: f64,
    /// Its index; meaningless if `up` is +∞.
    pub up_at: usize,
    /// max (g + down), −∞ if no variable can decrease.
    pub down: f64,
    /// Its index; meaningless if `down` is −∞.
    pub down_at: usize,
}

impl Extremes {
    /// max down − min up: the KKT violation of the range; ≤ 0 at an optimum.
    pub fn violation(&self) -> f64 {
        self.down - self.up
    }
}

const LANES: usize = 16;

/// Compiles `$body` for three instruction sets and picks one at run time.
macro_rules! versions {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$t:ident: $bound:ident>($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $body:ident) => {
        $(#[$doc])*
        $vis fn $name<$t: $bound>($($arg: $ty),*) -> $ret {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::linalg::sweep::{InstructionSet, level};
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,fma")]
                fn wide<$t: $bound>($($arg: $ty),*) -> $ret {
                    $body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn middle<$t: $bound>($($arg: $ty),*) -> $ret {
                    $body($($arg),*)
                }
                match level() {
                    // SAFETY: `level` has checked that this processor has the features the function is compiled for.
                    InstructionSet::Wide => return unsafe { wide($($arg),*) },
                    // SAFETY: as above.
                    InstructionSet::Middle => return unsafe { middle($($arg),*) },
                    InstructionSet::Base => {}
                }
            }
            $body($($arg),*)
        }
    };
}

pub(super) use versions;

/// The instruction sets that passes are compiled for.
#[derive(Clone, Copy, PartialEq)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there is nothing to choose from elsewhere"))]
pub(super) enum InstructionSet {
    Wide,
    Middle,
    Base,
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn level() -> InstructionSet {
    // The standard library caches the answers.
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
    {
        InstructionSet::Wide
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        InstructionSet::Middle
    } else {
        InstructionSet::Base
    }
}

versions! {
    /// g += ti·ki + tj·kj, and the extremes of the result.
    pub fn update_pair<T: Entry>(g: &mut [f64], ki: &[T], ti: f64, kj: &[T], tj: f64, up: &[f64], down: &[f64]) -> Extremes = update_pair_body
}

versions! {
    /// g += t·k.
    pub fn add_row<T: Entry>(g: &mut [f64], k: &[T], t: f64) -> () = add_row_body
}

versions! {
    /// The partner j of a variable that increases at slope `from`: j can decrease, has a higher slope, and maximises
    /// (slopeⱼ − from)² / κᵢⱼ, where κᵢⱼ = own + diagⱼ − 2·rowⱼ is the curvature of the pair (at least `floor`). `None`
    /// if no variable with a higher slope can decrease.
    pub fn best_partner<T: Entry>(g: &[f64], down: &[f64], row: &[T], diag: &[f32], own: f32, from: f64, floor: f32) -> Option<usize> = best_partner_body
}

versions! {
    /// g += Σ tᵢ·kᵢ over four rows: g is read and written once.
    pub fn add_four<T: Entry>(g: &mut [f64], k: [&[T]; 4], t: [f64; 4]) -> () = add_four_body
}

versions! {
    /// Σ aᵢ·xᵢ of four rows a.
    pub fn dot_four<T: Entry>(a: [&[T]; 4], x: &[f64]) -> [f64; 4] = dot_four_body
}

versions! {
    /// Σ aᵢ·xᵢ.
    pub fn dot<T: Entry>(a: &[T], x: &[f64]) -> f64 = dot_body
}

/// Rows that [`add_rows`] reads together.
pub const ROWS: usize = 4;

versions! {
    /// g += Σ tᵣ·kᵣ over the rows, with the bits of one [`add_row`] after the other; g is read and written once.
    pub fn add_rows<T: Entry>(g: &mut [f64], k: [&[T]; ROWS], t: [f64; ROWS]) -> () = add_rows_body
}

versions! {
    /// Σ aᵢ·xᵢ of two rows, with the bits of [`dot`]; x is read once.
    pub fn two_dots<T: Entry>(a: [&[T]; 2], x: &[f64]) -> [f64; 2] = two_dots_body
}

versions! {
    /// A row of a symmetric matrix, which stands for a column too: g += t·k, and Σ kᵢ·xᵢ, with the bits of [`add_row`] and
    /// [`dot`]; k is read once.
    pub fn both_sides<T: Entry>(g: &mut [f64], k: &[T], t: f64, x: &[f64]) -> f64 = both_sides_body
}

/// The extremes of a range without an update.
pub fn extremes(g: &[f64], up: &[f64], down: &[f64]) -> Extremes {
    let mut best = Extremes { up: f64::INFINITY, up_at: 0, down: f64::NEG_INFINITY, down_at: 0 };
    for a in 0..g.len() {
        if g[a] + up[a] < best.up {
            (best.up, best.up_at) = (g[a] + up[a], a);
        }
        if g[a] + down[a] > best.down {
            (best.down, best.down_at) = (g[a] + down[a], a);
        }
    }
    best
}

#[inline(always)]
fn update_pair_body<T: Entry>(
    g: &mut [f64],
    ki: &[T],
    ti: f64,
    kj: &[T],
    tj: f64,
    up: &[f64],
    down: &[f64],
) -> Extremes {
    let n = g.len();
    let (ki, kj, up, down) = (&ki[..n], &kj[..n], &up[..n], &down[..n]);
    let mut least = [f64::INFINITY; LANES];
    let mut least_at = [0i64; LANES];
    let mut most = [f64::NEG_INFINITY; LANES];
    let mut most_at = [0i64; LANES];
    let whole = n / LANES * LANES;
    let mut base = 0;
    while base < whole {
        let g: &mut [f64; LANES] = (&mut g[base..base + LANES]).try_into().expect("LANES elements");
        let ki: &[T; LANES] = ki[base..base + LANES].try_into().expect("LANES elements");
        let kj: &[T; LANES] = kj[base..base + LANES].try_into().expect("LANES elements");
        let up: &[f64; LANES] = up[base..base + LANES].try_into().expect("LANES elements");
        let down: &[f64; LANES] = down[base..base + LANES].try_into().expect("LANES elements");
        let at = base as i64;
        for l in 0..LANES {
            g[l] += ti * ki[l].wide() + tj * kj[l].wide();
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
        let at = least_at[l] as usize + l;
        if least[l] < best.up || (least[l] == best.up && at < best.up_at) {
            (best.up, best.up_at) = (least[l], at);
        }
        let at = most_at[l] as usize + l;
        if most[l] > best.down || (most[l] == best.down && at < best.down_at) {
            (best.down, best.down_at) = (most[l], at);
        }
    }
    for a in whole..n {
        g[a] += ti * ki[a].wide() + tj * kj[a].wide();
        if g[a] + up[a] < best.up {
            (best.up, best.up_at) = (g[a] + up[a], a);
        }
        if g[a] + down[a] > best.down {
            (best.down, best.down_at) = (g[a] + down[a], a);
        }
    }
    best
}

#[inline(always)]
fn add_row_body<T: Entry>(g: &mut [f64], k: &[T], t: f64) {
    for (g, k) in g.iter_mut().zip(k) {
        *g += t * k.wide();
    }
}

#[inline(always)]
fn add_four_body<T: Entry>(g: &mut [f64], k: [&[T]; 4], t: [f64; 4]) {
    let n = g.len();
    let [a, b, c, d] = k.map(|k| &k[..n]);
    for i in 0..n {
        g[i] += (t[0] * a[i].wide() + t[1] * b[i].wide()) + (t[2] * c[i].wide() + t[3] * d[i].wide());
    }
}

/// The sum over the lanes of a row. A call, not inlined: where the sums of several rows are added up side by side, the compiler makes
/// vectors of the same lane of all rows, and then gathers the entries of each from different places in the loop before.
#[inline(never)]
fn total<const N: usize>(lanes: [f64; N]) -> f64 {
    lanes.iter().sum()
}

#[inline(always)]
fn dot_four_body<T: Entry>(a: [&[T]; 4], x: &[f64]) -> [f64; 4] {
    const WIDTH: usize = 8;
    let n = x.len();
    let [a, b, c, d] = a.map(|a| &a[..n]);
    let (mut sa, mut sb, mut sc, mut sd) = ([0f64; WIDTH], [0f64; WIDTH], [0f64; WIDTH], [0f64; WIDTH]);
    let add = |sums: &mut [f64; WIDTH], row: &[T; WIDTH], x: &[f64; WIDTH]| {
        for l in 0..WIDTH {
            sums[l] += row[l].wide() * x[l];
        }
    };
    let pairs = |a, b| <[T]>::as_chunks::<WIDTH>(a).0.iter().zip(<[T]>::as_chunks::<WIDTH>(b).0);
    for (((a, b), (c, d)), x) in pairs(a, b).zip(pairs(c, d)).zip(x.as_chunks::<WIDTH>().0) {
        add(&mut sa, a, x);
        add(&mut sb, b, x);
        add(&mut sc, c, x);
        add(&mut sd, d, x);
    }
    let whole = n / WIDTH * WIDTH;
    let tail = |a: &[T]| -> f64 { (whole..n).map(|i| a[i].wide() * x[i]).sum() };
    [total(sa) + tail(a), total(sb) + tail(b), total(sc) + tail(c), total(sd) + tail(d)]
}

#[inline(always)]
fn dot_body<T: Entry>(a: &[T], x: &[f64]) -> f64 {
    let n = a.len();
    let x = &x[..n];
    let mut sums = [0f64; LANES];
    let whole = n / LANES * LANES;
    let mut base = 0;
    while base < whole {
        let a: &[T; LANES] = a[base..base + LANES].try_into().expect("LANES elements");
        let x: &[f64; LANES] = x[base..base + LANES].try_into().expect("LANES elements");
        for l in 0..LANES {
            sums[l] += a[l].wide() * x[l];
        }
        base += LANES;
    }
    let tail: f64 = (whole..n).map(|i| a[i].wide() * x[i]).sum();
    sums.iter().sum::<f64>() + tail
}

#[inline(always)]
fn add_rows_body<T: Entry>(g: &mut [f64], k: [&[T]; ROWS], t: [f64; ROWS]) {
    let n = g.len();
    let [a, b, c, d] = k.map(|k| &k[..n]);
    for i in 0..n {
        g[i] = (((g[i] + t[0] * a[i].wide()) + t[1] * b[i].wide()) + t[2] * c[i].wide()) + t[3] * d[i].wide();
    }
}

#[inline(always)]
fn two_dots_body<T: Entry>([a, b]: [&[T]; 2], x: &[f64]) -> [f64; 2] {
    let n = x.len();
    let (a, b) = (&a[..n], &b[..n]);
    let (mut sa, mut sb) = ([0f64; LANES], [0f64; LANES]);
    let rows = a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0);
    for ((a, b), x) in rows.zip(x.as_chunks::<LANES>().0) {
        for l in 0..LANES {
            sa[l] += a[l].wide() * x[l];
        }
        for l in 0..LANES {
            sb[l] += b[l].wide() * x[l];
        }
    }
    let whole = n / LANES * LANES;
    let tail = |a: &[T]| -> f64 { (whole..n).map(|i| a[i].wide() * x[i]).sum() };
    [total(sa) + tail(a), total(sb) + tail(b)]
}

#[inline(always)]
fn both_sides_body<T: Entry>(g: &mut [f64], k: &[T], t: f64, x: &[f64]) -> f64 {
    let n = g.len();
    let (k, x) = (&k[..n], &x[..n]);
    let mut sums = [0f64; LANES];
    let (chunks, columns) = (k.as_chunks::<LANES>().0, x.as_chunks::<LANES>().0);
    for ((g, k), x) in g.as_chunks_mut::<LANES>().0.iter_mut().zip(chunks).zip(columns) {
        for l in 0..LANES {
            let k = k[l].wide();
            sums[l] += k * x[l];
            g[l] += t * k;
        }
    }
    let whole = n / LANES * LANES;
    let mut tail = 0.0;
    for i in whole..n {
        let k = k[i].wide();
        tail += k * x[i];
        g[i] += t * k;
    }
    sums.iter().sum::<f64>() + tail
}

#[inline(always)]
fn best_partner_body<T: Entry>(
    g: &[f64],
    down: &[f64],
    row: &[T],
    diag: &[f32],
    own: f32,
    from: f64,
    floor: f32,
) -> Option<usize> {
    let n = g.len();
    let (down, row, diag) = (&down[..n], &row[..n], &diag[..n]);
    let gain = |a: usize| {
        let ahead = (g[a] + down[a] - from) as f32;
        let curve = own + diag[a] - 2.0 * row[a].narrow();
        let curve = if curve > floor { curve } else { floor };
        if ahead > 0.0 { ahead * ahead / curve } else { 0.0 }
    };
    let mut most = [0f32; LANES];
    let mut most_at = [0i32; LANES];
    let whole = n / LANES * LANES;
    let mut base = 0;
    while base < whole {
        let g: &[f64; LANES] = g[base..base + LANES].try_into().expect("LANES elements");
        let down: &[f64; LANES] = down[base..base + LANES].try_into().expect("LANES elements");
        let row: &[T; LANES] = row[base..base + LANES].try_into().expect("LANES elements");
        let diag: &[f32; LANES] = diag[base..base + LANES].try_into().expect("LANES elements");
        let mut ahead = [0f32; LANES];
        for l in 0..LANES {
            ahead[l] = (g[l] + down[l] - from) as f32;
        }
        for l in 0..LANES {
            let curve = own + diag[l] - 2.0 * row[l].narrow();
            let curve = if curve > floor { curve } else { floor };
            let pull = if ahead[l] > 0.0 { ahead[l] } else { 0.0 };
            let v = pull * pull / curve;
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
        let v = gain(a);
        if v > best {
            (best, best_at) = (v, a);
        }
    }
    (best_at != usize::MAX).then_some(best_at)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn passes_over_several_rows_have_the_bits_of_those_over_one() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(8);
        for n in [0, 1, 7, 8, 9, 16, 100, 1003] {
            let mut draw = |_| rng.random_range(-1.0..1.0);
            let (g0, x): (Vec<f64>, Vec<f64>) = ((0..n).map(&mut draw).collect(), (0..n).map(&mut draw).collect());
            let rows: Vec<Vec<f32>> =
                (0..ROWS).map(|_| (0..n).map(&mut draw).map(|v: f64| v as f32).collect()).collect();
            let k: [&[f32]; ROWS] = std::array::from_fn(|r| rows[r].as_slice());
            let t = [0.3, -0.7, 0.0, 1.1];
            let mut want = g0.clone();
            k.iter().zip(t).for_each(|(k, t)| add_row(&mut want, k, t));
            let mut added = g0.clone();
            add_rows(&mut added, k, t);
            assert_eq!(added, want, "n = {n}");
            assert_eq!(two_dots([k[0], k[1]], &x), [dot(k[0], &x), dot(k[1], &x)]);
            let mut want = g0.clone();
            add_row(&mut want, k[1], t[1]);
            let mut both = g0;
            assert_eq!((both_sides(&mut both, k[1], t[1], &x), both), (dot(k[1], &x), want), "n = {n}");
        }
    }

    #[test]
    fn passes_agree_with_plain_loops() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        for n in [0, 1, 15, 16, 17, 100, 1003] {
            let mut draw = |_| rng.random_range(-1.0..1.0);
            let g0: Vec<f64> = (0..n).map(&mut draw).collect();
            let ki: Vec<f32> = (0..n).map(&mut draw).map(|v: f64| v as f32).collect();
            let kj: Vec<f32> = (0..n).map(&mut draw).map(|v: f64| v as f32).collect();
            let up: Vec<f64> = (0..n).map(|a| if a % 3 == 0 { f64::INFINITY } else { 0.1 }).collect();
            let down: Vec<f64> = (0..n).map(|a| if a % 4 == 1 { f64::NEG_INFINITY } else { -0.1 }).collect();
            let mut g = g0.clone();
            let got = update_pair(&mut g, &ki, 0.3, &kj, -0.7, &up, &down);
            let mut want_g = g0.clone();
            for a in 0..n {
                want_g[a] += 0.3 * f64::from(ki[a]) - 0.7 * f64::from(kj[a]);
                assert!((g[a] - want_g[a]).abs() < 1e-15);
            }
            let want = extremes(&g, &up, &down);
            assert_eq!(got, want, "n = {n}");
            let diag = vec![1f32; n];
            let from = -0.2;
            let got = best_partner(&g, &down, &ki, &diag, 1.0, from, 1e-6);
            let gain = |a: usize| {
                let ahead = (g[a] + down[a] - from) as f32;
                let curve = (2.0 - 2.0 * ki[a]).max(1e-6);
                if ahead > 0.0 { ahead * ahead / curve } else { 0.0 }
            };
            let want = (0..n).map(gain).fold(0f32, f32::max);
            match got {
                Some(a) => assert!((gain(a) - want).abs() <= 1e-5 * want, "n = {n}"),
                None => assert_eq!(want, 0.0, "n = {n}"),
            }
        }
    }

    #[test]
    fn four_rows_at_once_are_four_rows() {
        for n in [0, 3, 8, 29] {
            let row = |r: usize| (0..n).map(|i| ((i * 7 + r * 13) % 31) as i16 - 15).collect::<Vec<i16>>();
            let rows: Vec<Vec<i16>> = (0..4).map(row).collect();
            let four = [0, 1, 2, 3].map(|r| rows[r].as_slice());
            let x: Vec<f64> = (0..n).map(|i| (i as f64).cos()).collect();
            let (t, mut g) = ([0.5, -1.0, 2.0, 0.25], x.clone());
            add_four(&mut g, four, t);
            let mut want = x.clone();
            four.iter().zip(t).for_each(|(row, t)| add_row(&mut want, row, t));
            assert!(g.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-12));
            assert!((0..4).all(|r| (dot_four(four, &x)[r] - dot(four[r], &x)).abs() < 1e-12));
        }
    }

    #[test]
    fn ties_go_to_the_lowest_index() {
        let mut g = vec![0.0; 40];
        let zero = vec![0f32; 40];
        let flat = vec![0.0; 40];
        let e = update_pair(&mut g, &zero, 1.0, &zero, 1.0, &flat, &flat);
        assert_eq!((e.up_at, e.down_at), (0, 0));
    }
}
