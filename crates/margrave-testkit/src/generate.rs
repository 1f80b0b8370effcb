//! Data sets generated from a seed: the same numbers on every computer.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// The random number generator of all data sets.
pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Dense rows with one target each.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Number of rows.
    pub n: usize,
    /// Number of features.
    pub d: usize,
    /// Features, row-major, `n·d` of them.
    pub x: Vec<f64>,
    /// Targets: ±1 or real.
    pub y: Vec<f64>,
}

impl Sample {
    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.x[i * self.d..(i + 1) * self.d]
    }

    /// The rows in the order given, repetitions allowed.
    pub fn take(&self, rows: &[usize]) -> Self {
        Self {
            n: rows.len(),
            d: self.d,
            x: rows.iter().flat_map(|&i| self.row(i).iter().copied()).collect(),
            y: rows.iter().map(|&i| self.y[i]).collect(),
        }
    }
}

/// Sparse rows in compressed sparse row storage, with one target each.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseSample {
    /// Number of features.
    pub d: usize,
    /// Row `i` is `starts[i]..starts[i + 1]` of the two arrays below.
    pub starts: Vec<usize>,
    /// Columns, strictly ascending within a row.
    pub columns: Vec<u32>,
    /// Values, none of them zero.
    pub values: Vec<f64>,
    /// Targets ±1.
    pub y: Vec<f64>,
}

fn normal(rng: &mut impl Rng) -> f64 {
    StandardNormal.sample(rng)
}

fn uniform(rng: &mut impl Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.random::<f64>()
}

/// Two Gaussian clouds of unit deviation whose centres are `distance` apart along the diagonal; labels alternate +1,
/// −1.
///
/// The best possible error is Φ(−distance/2).
pub fn two_gaussians(n: usize, d: usize, distance: f64, seed: u64) -> Sample {
    let mut rng = rng(seed);
    let shift = distance / 2.0 / (d.max(1) as f64).sqrt();
    let y: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let x = y.iter().flat_map(|y| (0..d).map(|_| y * shift + normal(&mut rng)).collect::<Vec<_>>()).collect();
    Sample { n, d, x, y }
}

/// Points uniform on the square [0, cells)², labelled like a chessboard of unit squares.
pub fn checkerboard(n: usize, cells: usize, seed: u64) -> Sample {
    let mut rng = rng(seed);
    let x: Vec<f64> = (0..2 * n).map(|_| uniform(&mut rng, 0.0, cells as f64)).collect();
    let y =
        x.chunks(2).map(|p| if (p[0].floor() as i64 + p[1].floor() as i64) % 2 == 0 { 1.0 } else { -1.0 }).collect();
    Sample { n, d: 2, x, y }
}

/// y = sin(πx)/(πx) + noise, x uniform on [−4, 4].
pub fn sinc(n: usize, noise: f64, seed: u64) -> Sample {
    let mut rng = rng(seed);
    let x: Vec<f64> = (0..n).map(|_| uniform(&mut rng, -4.0, 4.0)).collect();
    let y = x
        .iter()
        .map(|&x| {
            let t = std::f64::consts::PI * x;
            (if t == 0.0 { 1.0 } else { t.sin() / t }) + noise * normal(&mut rng)
        })
        .collect();
    Sample { n, d: 1, x, y }
}

/// Friedman's first problem: y = 10 sin(π x₀x₁) + 20(x₂ − ½)² + 10x₃ + 5x₄ + noise on [0, 1]^d, d ≥ 5; the other
/// features have no effect.
pub fn friedman(n: usize, d: usize, noise: f64, seed: u64) -> Sample {
    assert!(d >= 5, "friedman needs at least 5 features");
    let mut rng = rng(seed);
    let x: Vec<f64> = (0..n * d).map(|_| rng.random::<f64>()).collect();
    let y = x
        .chunks(d)
        .map(|r| {
            10.0 * (std::f64::consts::PI * r[0] * r[1]).sin()
                + 20.0 * (r[2] - 0.5).powi(2)
                + 10.0 * r[3]
                + 5.0 * r[4]
                + noise * normal(&mut rng)
        })
        .collect();
    Sample { n, d, x, y }
}

/// `distinct` points, each occurring `copies` times with labels that disagree: +1, −1, +1, …
pub fn contradicting_duplicates(distinct: usize, copies: usize, d: usize, seed: u64) -> Sample {
    let base = two_gaussians(distinct, d, 1.0, seed);
    let rows: Vec<usize> = (0..distinct).flat_map(|i| std::iter::repeat_n(i, copies)).collect();
    let mut out = base.take(&rows);
    for (i, y) in out.y.iter_mut().enumerate() {
        *y = if (i % copies.max(1)).is_multiple_of(2) { 1.0 } else { -1.0 };
    }
    out
}

/// Sparse rows where each feature is present with probability `density`; the label is the sign of a random linear
/// function (ties +1).
pub fn sparse(n: usize, d: usize, density: f64, seed: u64) -> SparseSample {
    let mut rng = rng(seed);
    let direction: Vec<f64> = (0..d).map(|_| normal(&mut rng)).collect();
    let mut out = SparseSample { d, starts: vec![0], columns: Vec::new(), values: Vec::new(), y: Vec::new() };
    for _ in 0..n {
        let mut score = 0.0;
        for (k, along) in direction.iter().enumerate() {
            if rng.random::<f64>() < density {
                let value = uniform(&mut rng, 0.1, 1.0);
                out.columns.push(k as u32);
                out.values.push(value);
                score += value * along;
            }
        }
        out.starts.push(out.columns.len());
        out.y.push(if score >= 0.0 { 1.0 } else { -1.0 });
    }
    out
}

/// A permutation of `0..n`.
pub fn permutation(n: usize, seed: u64) -> Vec<usize> {
    let mut rng = rng(seed);
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, rng.random_range(0..=i));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_data() {
        assert_eq!(two_gaussians(20, 3, 2.0, 1), two_gaussians(20, 3, 2.0, 1));
        assert_ne!(two_gaussians(20, 3, 2.0, 1), two_gaussians(20, 3, 2.0, 2));
        assert_eq!(sparse(20, 30, 0.2, 5), sparse(20, 30, 0.2, 5));
    }

    #[test]
    fn shapes_and_labels_are_as_documented() {
        let s = checkerboard(100, 4, 0);
        assert_eq!((s.x.len(), s.y.len()), (200, 100));
        assert!(s.y.contains(&1.0) && s.y.contains(&-1.0));
        let s = contradicting_duplicates(3, 4, 2, 0);
        assert_eq!(s.row(0), s.row(3));
        assert_eq!(&s.y[..4], [1.0, -1.0, 1.0, -1.0]);
        let s = sparse(50, 40, 0.1, 3);
        assert_eq!(s.starts.len(), 51);
        for w in s.starts.windows(2) {
            assert!(s.columns[w[0]..w[1]].windows(2).all(|c| c[0] < c[1]));
        }
        // Means of the two clouds differ by `distance` up to 4 standard errors of a difference of means.
        let s = two_gaussians(4000, 1, 3.0, 9);
        let mean = |sign: f64| {
            let picked: Vec<f64> = s.x.iter().zip(&s.y).filter(|(_, y)| **y == sign).map(|(x, _)| *x).collect();
            picked.iter().sum::<f64>() / picked.len() as f64
        };
        assert!((mean(1.0) - mean(-1.0) - 3.0).abs() < 4.0 * (2.0f64 / 2000.0).sqrt());
        let mut p = permutation(10, 0);
        p.sort_unstable();
        assert_eq!(p, (0..10).collect::<Vec<_>>());
    }
}
