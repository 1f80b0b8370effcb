//! The slope of a loss at a fixed target as a piecewise polynomial, made from a few evaluations of many points each.
//!
//! Solvers evaluate a loss at one score after the other, millions of times. Where one evaluation is expensive (a
//! function of another language), they use this interpolation instead. Pieces are halved until the polynomial through
//! the Chebyshev points of each agrees with the slope to rounding; at a kink that leads to a piece a few units of
//! rounding wide. The value is the integral of the slope.

/// Points per piece.
const NODES: usize = 16;
/// Points per piece at which the polynomial is compared with the slope.
const CHECKS: [f64; 3] = [-0.9519, 0.0213, 0.8761];
/// Scores up to this size are found by their bucket.
const BUCKET_REACH: f64 = 8.0;
/// Buckets per unit of the score.
const BUCKETS_PER_UNIT: f64 = 32.0;
/// Most pieces: a slope that needs more is not smooth between its kinks.
const MAX_PIECES: usize = 3000;
/// Error of a piece, relative to the largest slope on it.
const RELATIVE_ERROR: f64 = 1e-13;
/// A piece whose slope changes by more than [`JUMP`] is a jump if it is narrower than this, relative to its score.
const NARROW: f64 = 1e-7;
/// Change of the slope on a narrow piece, relative to the slopes around the margin, that counts as a jump.
const JUMP: f64 = 1e-6;

/// The polynomial on one piece.
#[derive(Debug, Clone)]
struct Piece {
    from: f64,
    to: f64,
    /// Value of the loss at `from`.
    base: f64,
    /// Chebyshev coefficients of the slope; those after `terms` are zero.
    slope: [f64; NODES],
    terms: usize,
    /// The slopes were ≥ 0, or ≤ 0, wherever they were sampled: an error of the polynomial must not change their sign.
    sign: Option<f64>,
    /// Chebyshev coefficients of the integral of the slope from `from`, in units of half the width.
    value: [f64; NODES + 1],
}

/// A slope as a piecewise polynomial between −reach and reach, continued by straight lines.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pieces: Vec<Piece>,
    starts: Vec<f64>,
    /// The slope at the right end of each piece.
    ends: Vec<f64>,
    /// The slope at the left end of the first piece.
    bottom: f64,
    /// Number of the piece at the left edge of each bucket of scores around 0.
    buckets: Vec<u16>,
    sharp: bool,
}

impl Piece {
    fn new(from: f64, to: f64, slope: [f64; NODES]) -> Self {
        let largest = slope.iter().fold(0.0f64, |m, c| m.max(c.abs()));
        let terms = slope.iter().rposition(|c| c.abs() > 1e-18 * largest).map_or(0, |at| at + 1);
        let mut value = [0.0; NODES + 1];
        let c = |k: usize| if k < terms { slope[k] } else { 0.0 };
        for (k, v) in value.iter_mut().enumerate().skip(1) {
            let before = if k == 1 { 2.0 * c(0) } else { c(k - 1) };
            *v = (before - c(k + 1)) / (2.0 * k as f64);
        }
        // The integral is zero at the left end, where the polynomial of degree k is (−1)ᵏ.
        value[0] = (1..=NODES).map(|k| if k % 2 == 0 { -value[k] } else { value[k] }).sum();
        Self { from, to, base: 0.0, slope, terms, sign: None, value }
    }

    fn unit(&self, z: f64) -> f64 {
        (2.0 * (z - self.from) / (self.to - self.from) - 1.0).clamp(-1.0, 1.0)
    }

    fn half(&self) -> f64 {
        0.5 * (self.to - self.from)
    }

    /// Slope and its derivative.
    fn slopes(&self, z: f64) -> (f64, f64) {
        if self.terms == 0 {
            return (0.0, 0.0);
        }
        let (s, d) = clenshaw(&self.slope[..self.terms], self.unit(z));
        let s = if self.sign.is_some_and(|sign| s * sign < 0.0) { 0.0 } else { s };
        (s, d / self.half())
    }

    fn value(&self, z: f64) -> f64 {
        self.base + self.half() * clenshaw(&self.value[..self.terms + 1], self.unit(z)).0
    }

    /// The change of the slope over the piece.
    fn rise(&self) -> f64 {
        self.slopes(self.to).0 - self.slopes(self.from).0
    }
}

/// Σ cₖTₖ(x) and its derivative.
fn clenshaw(c: &[f64], x: f64) -> (f64, f64) {
    let (mut b1, mut b2, mut d1, mut d2) = (0.0, 0.0, 0.0, 0.0);
    for &ck in c[1..].iter().rev() {
        let b0 = ck + 2.0 * x * b1 - b2;
        let d0 = 2.0 * b1 + 2.0 * x * d1 - d2;
        (b2, b1, d2, d1) = (b1, b0, d1, d0);
    }
    (c[0] + x * b1 - b2, b1 + x * d1 - d2)
}

/// Chebyshev points, and the matrix from values at them to coefficients.
struct Rule {
    nodes: [f64; NODES],
    matrix: [[f64; NODES]; NODES],
}

impl Rule {
    fn new() -> Self {
        let angle = |k: usize| std::f64::consts::PI * (k as f64 + 0.5) / NODES as f64;
        let mut rule = Self { nodes: [0.0; NODES], matrix: [[0.0; NODES]; NODES] };
        for k in 0..NODES {
            rule.nodes[k] = angle(k).cos();
            for (j, row) in rule.matrix.iter_mut().enumerate() {
                let weight = if j == 0 { 1.0 } else { 2.0 };
                row[k] = weight / NODES as f64 * (j as f64 * angle(k)).cos();
            }
        }
        rule
    }

    fn coefficients(&self, values: &[f64]) -> [f64; NODES] {
        // A constant stays exact, above all zero.
        if values.iter().all(|v| *v == values[0]) {
            let mut c = [0.0; NODES];
            c[0] = values[0];
            return c;
        }
        self.matrix.map(|row| row.iter().zip(values).map(|(m, v)| m * v).sum())
    }
}

/// The first pieces: one unit wide around 0, then doubling.
fn first_pieces(reach: f64) -> Vec<(f64, f64)> {
    let mut edges = vec![0.0, 0.5, 1.0, 1.5, 2.0];
    while edges[edges.len() - 1] * 2.0 < reach {
        edges.push(edges[edges.len() - 1] * 2.0);
    }
    edges.push(reach);
    let right: Vec<(f64, f64)> = edges.windows(2).map(|w| (w[0], w[1])).collect();
    right.iter().rev().map(|&(a, b)| (-b, -a)).chain(right.iter().copied()).collect()
}

impl Curve {
    /// Interpolates `slope`, which fills the slopes of many scores, on [−reach, reach]; `at_zero` is the value at 0.
    /// `None` if a slope is not finite or the slope cannot be interpolated.
    pub(super) fn new(slope: &dyn Fn(&[f64], &mut [f64]), at_zero: f64, reach: f64) -> Option<Self> {
        // Slopes that underflow are not accurate, and those that are computed by cancellation are accurate only relative to
        // the slopes around the margin.
        Self::with_error(slope, at_zero, reach, 1e-30).or_else(|| Self::with_error(slope, at_zero, reach, 1e-14))
    }

    fn with_error(slope: &dyn Fn(&[f64], &mut [f64]), at_zero: f64, reach: f64, absolute: f64) -> Option<Self> {
        let rule = Rule::new();
        let mut pending = first_pieces(reach);
        let mut done: Vec<Piece> = Vec::new();
        let (mut scale, mut first) = (0.0f64, true);
        let count = NODES + CHECKS.len();
        while !pending.is_empty() {
            if pending.len() + done.len() > MAX_PIECES {
                return None;
            }
            let place = |(a, b): (f64, f64), x: f64| (0.5 * (a + b) + 0.5 * (b - a) * x).clamp(a, b);
            let z: Vec<f64> = pending
                .iter()
                .flat_map(|&piece| rule.nodes.iter().chain(&CHECKS).map(move |&x| place(piece, x)))
                .collect();
            let mut s = vec![0.0; z.len()];
            slope(&z, &mut s);
            if s.iter().any(|s| !s.is_finite()) {
                return None;
            }
            if first {
                let near = |k: usize| z[k].abs() <= 4.0;
                scale = (0..z.len()).filter(|&k| near(k)).fold(0.0, |m, k| m.max(s[k].abs()));
                first = false;
            }
            let mut next = Vec::new();
            for (&(a, b), s) in pending.iter().zip(s.chunks(count)) {
                let (low, high) = s.iter().fold((s[0], s[0]), |(l, h), v| (l.min(*v), h.max(*v)));
                let size = low.abs().max(high.abs());
                let reach = a.abs().max(b.abs());
                let sign = (low >= 0.0).then_some(1.0).or((high <= 0.0).then_some(-1.0));
                let piece = Piece { sign, ..Piece::new(a, b, rule.coefficients(&s[..NODES])) };
                // The rounding of the score, seen through the slope.
                let rounding = 8.0 * f64::EPSILON * (high - low) / (b - a) * reach;
                let allowed = RELATIVE_ERROR * size + rounding + absolute * scale;
                let fits = CHECKS.iter().zip(&s[NODES..]).all(|(x, v)| {
                    let z = place((a, b), *x);
                    (piece.slopes(z).0 - v).abs() <= allowed
                });
                let tail = piece.slope[NODES - 2].abs() + piece.slope[NODES - 1].abs();
                if fits && tail <= allowed {
                    done.push(piece);
                } else if b - a <= 8.0 * f64::EPSILON * reach || b - a < 1e-18 {
                    // A jump: a straight line from the slope on its left to that on its right.
                    let (left, right) = (s[NODES - 1], s[0]);
                    let mut line = [0.0; NODES];
                    (line[0], line[1]) = (0.5 * (left + right), 0.5 * (right - left));
                    done.push(Piece::new(a, b, line));
                } else {
                    let mid = 0.5 * (a + b);
                    next.extend([(a, mid), (mid, b)]);
                }
            }
            pending = next;
        }
        done.sort_by(|p, q| p.from.total_cmp(&q.from));
        let zero = done.partition_point(|p| p.from < 0.0);
        let mut at = at_zero;
        for piece in &mut done[zero..] {
            piece.base = at;
            at = piece.value(piece.to);
        }
        at = at_zero;
        for piece in done[..zero].iter_mut().rev() {
            piece.base = 0.0;
            piece.base = at - piece.value(piece.to);
            at = piece.base;
        }
        let sharp = done.iter().any(|p| {
            let narrow = p.to - p.from <= NARROW * p.from.abs().max(p.to.abs()).max(1.0);
            narrow && p.rise().abs() > JUMP * scale
        });
        let starts: Vec<f64> = done.iter().map(|p| p.from).collect();
        let ends = done.iter().map(|p| p.slopes(p.to).0).collect();
        let edge = |k: usize| k as f64 / BUCKETS_PER_UNIT - BUCKET_REACH;
        let count = (2.0 * BUCKET_REACH * BUCKETS_PER_UNIT) as usize;
        let at = |z: f64| starts.partition_point(|s| *s <= z).saturating_sub(1) as u16;
        let buckets = (0..=count).map(|k| at(edge(k))).collect();
        let bottom = done[0].slopes(done[0].from).0;
        Some(Self { pieces: done, starts, ends, bottom, buckets, sharp })
    }

    /// Whether the slope jumps or nearly jumps.
    pub(super) fn sharp(&self) -> bool {
        self.sharp
    }

    /// Whether the slope never falls by more than rounding.
    pub(super) fn rises(&self) -> bool {
        self.pieces.iter().all(|p| {
            let ends = [p.slopes(p.from).0, p.slopes(p.to).0];
            ends[1] >= ends[0] - 1e-11 * ends[0].abs().max(ends[1].abs()).max(1e-3)
        })
    }

    fn piece(&self, z: f64) -> &Piece {
        let (mut first, mut last) = (0, self.starts.len() - 1);
        if z.abs() < BUCKET_REACH {
            let bucket = (((z + BUCKET_REACH) * BUCKETS_PER_UNIT) as usize).min(self.buckets.len() - 2);
            (first, last) = (self.buckets[bucket] as usize, self.buckets[bucket + 1] as usize);
        }
        let after = if first == last { 0 } else { self.starts[first + 1..=last].partition_point(|s| *s <= z) };
        &self.pieces[first + after]
    }

    /// Slope and curvature at z.
    pub(super) fn slopes(&self, z: f64) -> (f64, f64) {
        let piece = self.piece(z);
        let at = z.clamp(piece.from, piece.to);
        let (s, d) = piece.slopes(at);
        (s + d * (z - at), d)
    }

    /// The value at z.
    pub(super) fn value(&self, z: f64) -> f64 {
        let piece = self.piece(z);
        let at = z.clamp(piece.from, piece.to);
        let value = piece.value(at);
        if at == z {
            return value;
        }
        let ((s, d), beyond) = (piece.slopes(at), z - at);
        value + beyond * (s + 0.5 * d * beyond)
    }

    /// The slopes at both ends.
    pub(super) fn range(&self) -> (f64, f64) {
        (self.bottom, self.ends[self.ends.len() - 1])
    }

    /// A score at which a rising slope is `level`; an end if there is none.
    pub(super) fn inverse(&self, level: f64) -> f64 {
        let at = self.ends.partition_point(|end| *end < level);
        let Some(piece) = self.pieces.get(at) else { return self.pieces[self.pieces.len() - 1].to };
        let (mut low, mut high) = (piece.from, piece.to);
        if piece.slopes(low).0 >= level {
            return low;
        }
        let mut z = 0.5 * (low + high);
        for _ in 0..60 {
            let (s, d) = piece.slopes(z);
            let newton = z - (s - level) / d;
            if (newton - z).abs() <= 2.0 * f64::EPSILON * z.abs() {
                break;
            }
            if s >= level {
                high = z
            } else {
                low = z
            }
            let next = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
            if next == z || next <= low || next >= high {
                break;
            }
            z = next;
        }
        z
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn curve(f: impl Fn(f64) -> f64, at_zero: f64, calls: &Cell<usize>) -> Curve {
        let fill = |z: &[f64], out: &mut [f64]| {
            calls.set(calls.get() + 1);
            out.iter_mut().zip(z).for_each(|(out, z)| *out = f(*z));
        };
        Curve::new(&fill, at_zero, 1e6).unwrap()
    }

    #[test]
    fn a_smooth_slope_is_interpolated_to_rounding_in_few_calls() {
        let calls = Cell::new(0);
        let logistic = curve(|z| -1.0 / (1.0 + z.exp()), std::f64::consts::LN_2, &calls);
        assert!(calls.get() <= 12 && !logistic.sharp() && logistic.rises(), "{} calls", calls.get());
        for k in -400..400 {
            let z = f64::from(k) * 0.1237;
            let s = -1.0 / (1.0 + z.exp());
            let (slope, curvature) = logistic.slopes(z);
            assert!((slope - s).abs() <= 1e-12 * s.abs(), "{z}: {slope} {s}");
            assert!((curvature + s * (1.0 + s)).abs() <= 1e-9 * s.abs(), "{z}: {curvature}");
            let value = (-z).exp().ln_1p();
            let value = if z < -30.0 { -z } else { value };
            assert!((logistic.value(z) - value).abs() <= 1e-13 * (1.0 + value), "{z}: {} {value}", logistic.value(z));
            // At large scores the slope hardly changes.
            assert!(z.abs() > 9.0 || (logistic.inverse(s) - z).abs() <= 1e-10, "{z}");
        }
        // Just below the last bucket, and far beyond.
        for z in [8.0 - 1e-15, -8.0 + 1e-15, 8.0, 1e5, -1e5] {
            assert!((logistic.slopes(z).0 + 1.0 / (1.0 + z.exp())).abs() < 1e-13, "{z}");
        }
        // Where the slope underflows it keeps its sign.
        assert!((30..90).all(|k| logistic.slopes(f64::from(k) * 10.37).0 <= 0.0));
    }

    #[test]
    fn kinks_and_jumps_are_resolved_to_rounding() {
        let calls = Cell::new(0);
        let tube = curve(|r| if r.abs() <= 0.1 { 0.0 } else { r.signum() }, 0.0, &calls);
        assert!(tube.sharp() && calls.get() <= 70, "{} calls", calls.get());
        for (r, slope, value) in
            [(0.0999999999, 0.0, 0.0), (0.1000000001, 1.0, 1e-10), (-3.1, -1.0, 3.0), (2e7, 1.0, 2e7 - 0.1)]
        {
            assert_eq!(tube.slopes(r).0, slope, "{r}");
            assert!((tube.value(r) - value).abs() <= 1e-14 * (1.0 + value), "{r}: {}", tube.value(r));
        }
        assert!((tube.inverse(0.3) - 0.1).abs() < 1e-15);
        let huber = curve(|r| r.clamp(-1.3, 1.3), 0.0, &calls);
        assert!(!huber.sharp() && huber.rises());
        assert!((huber.value(4.0) - (1.3 * 4.0 - 0.845)).abs() < 1e-14);
        // A square hinge, continued beyond the reach.
        let squared = curve(|z| 2.0 * (z - 1.0).min(0.0), 1.0, &calls);
        assert!((squared.slopes(-3e6).0 + 2.0 * (3e6 + 1.0)).abs() < 1e-3);
        assert_eq!(squared.slopes(1.0001), (0.0, 0.0));
    }

    #[test]
    fn what_is_not_smooth_is_refused() {
        let noise = |z: &[f64], out: &mut [f64]| {
            out.iter_mut().zip(z).for_each(|(out, z)| *out = (z.to_bits().wrapping_mul(0x9E37_79B9) % 1000) as f64);
        };
        assert!(Curve::new(&noise, 0.0, 1e6).is_none());
        assert!(Curve::new(&|_: &[f64], out: &mut [f64]| out.fill(f64::NAN), 0.0, 1e6).is_none());
    }
}
