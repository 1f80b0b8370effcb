//! The two leading kernel principal components of the data, and a model seen along them.
//!
//! With the centred Gram matrix of m landmark rows, K̃ = UΛUᵀ, the k-th unit direction of the feature space is
//! vₖ = Σ uₗₖ φ̃(xₗ)/√λₖ and a point has the coordinate ⟨φ̃(x), vₖ⟩. For f = Σ βⱼ k(xⱼ, ·) the inner product
//! ⟨f, vₖ⟩ = Σ uₗₖ (f(xₗ) − mean)/√λₖ needs only scores of the landmarks, so that mean + Σₖ ⟨f, vₖ⟩ pₖ is f seen on the plane.

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::gram::{Gram, Pick};
use margrave::engine::linalg::eigen::eigen;
use margrave::{Control, Kernel, Points};

use super::spread_rows;
use crate::answer::Refusal;

/// Most landmark rows.
const LANDMARKS: usize = 300;

/// Coordinates of points, and the directions they are measured along.
pub(crate) struct Components {
    /// The landmark rows.
    pub(crate) landmarks: Vec<u32>,
    /// Two per point.
    pub(crate) coordinates: Vec<[f64; 2]>,
    /// u/√λ of both directions.
    directions: [Vec<f64>; 2],
}

impl Components {
    /// Of all `points` (as the kernel sees them), at the rows to be shown.
    pub(crate) fn new(kernel: Kernel, points: &Points, rows: &[u32], control: &Control) -> Result<Self, Refusal> {
        let landmarks = spread_rows(points.len(), LANDMARKS);
        let m = landmarks.len();
        if m < 3 {
            return Err(Refusal::unsupported("principal components need at least three samples"));
        }
        let marks = points.gather(&landmarks);
        let failed = |_| Refusal::unsupported("the principal components could not be computed");
        let square = CpuGram::square(kernel, &marks)?;
        let mut k = vec![0.0; m * m];
        square.block_f64(Pick::All, Pick::All, &mut k, control).map_err(failed)?;
        let means: Vec<f64> = k.chunks_exact(m).map(|row| row.iter().sum::<f64>() / m as f64).collect();
        let mean = means.iter().sum::<f64>() / m as f64;
        let centred: Vec<f64> = (0..m * m).map(|at| k[at] - means[at / m] - means[at % m] + mean).collect();
        let found = eigen(centred, m, control)
            .map_err(|_| Refusal::unsupported("the principal components could not be computed"))?;
        let mut order: Vec<usize> = (0..m).collect();
        order.sort_by(|a, b| found.values[*b].total_cmp(&found.values[*a]));
        let direction = |rank: usize| {
            let (at, value) = (order[rank], found.values[order[rank]]);
            let scale = if value > 1e-12 * found.values[order[0]].abs() { 1.0 / value.sqrt() } else { 0.0 };
            let column: Vec<f64> = (0..m).map(|row| found.vectors[(row, at)] * scale).collect();
            // Signs are arbitrary: the largest entry is made positive.
            let largest = column.iter().fold(0.0f64, |a, b| if b.abs() > a.abs() { *b } else { a });
            if largest < 0.0 { column.iter().map(|v| -v).collect() } else { column }
        };
        let directions: [Vec<f64>; 2] = [direction(0), direction(1)];
        let shown = points.gather(rows);
        let cross = CpuGram::new(kernel, &shown, &marks)?;
        let mut coordinates = Vec::with_capacity(rows.len());
        let mut block = Vec::new();
        let all: Vec<u32> = (0..rows.len() as u32).collect();
        for part in all.chunks(2048) {
            block.resize(part.len() * m, 0.0);
            cross.block_f64(Pick::List(part), Pick::All, &mut block, control).map_err(failed)?;
            for row in block.chunks_exact(m) {
                let own = row.iter().sum::<f64>() / m as f64;
                let along = |u: &[f64]| row.iter().zip(&means).zip(u).map(|((k, c), u)| (k - own - c + mean) * u).sum();
                coordinates.push([along(&directions[0]), along(&directions[1])]);
            }
        }
        Ok(Self { landmarks, coordinates, directions })
    }

    /// The linear function (constant, along the first, along the second) that f is on the plane, from its scores at the
    /// landmarks, and the sum of the squares of its slopes.
    pub(crate) fn project(&self, scores: &[f64]) -> ([f64; 3], f64) {
        let mean = scores.iter().sum::<f64>() / scores.len().max(1) as f64;
        let along = |u: &[f64]| u.iter().zip(scores).map(|(u, z)| u * (z - mean)).sum::<f64>();
        let (a, b) = (along(&self.directions[0]), along(&self.directions[1]));
        ([mean, a, b], a * a + b * b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margrave::Threads;

    #[test]
    fn linear_components_are_the_principal_axes() {
        // A long thin cloud along (2, 1): the first component orders the points along it.
        let n = 40;
        let along = |i: usize| i as f64 - 19.5;
        let values: Vec<f64> =
            (0..n).flat_map(|i| [2.0 * along(i) + 0.1 * (i % 3) as f64, along(i) - 0.2 * (i % 3) as f64]).collect();
        let points = Points::dense_f64(n, 2, values).unwrap();
        let rows: Vec<u32> = (0..n as u32).collect();
        let control = Control::unlimited(Threads::one());
        let found = Components::new(Kernel::Linear, &points, &rows, &control).unwrap();
        let first: Vec<f64> = found.coordinates.iter().map(|p| p[0]).collect();
        let ascending = first.windows(2).all(|w| w[0] < w[1]);
        assert!(ascending || first.windows(2).all(|w| w[0] > w[1]));
        // In two dimensions two components are everything: distances are kept.
        let norm: f64 = found.coordinates.iter().map(|p| p[0] * p[0] + p[1] * p[1]).sum();
        let mut centre = [0.0; 2];
        let mut row = [0.0; 2];
        (0..n).for_each(|i| {
            points.copy_row(i, &mut row);
            centre = [centre[0] + row[0] / n as f64, centre[1] + row[1] / n as f64];
        });
        let expected: f64 = (0..n)
            .map(|i| {
                points.copy_row(i, &mut row);
                (row[0] - centre[0]).powi(2) + (row[1] - centre[1]).powi(2)
            })
            .sum();
        assert!((norm - expected).abs() < 1e-6 * expected, "{norm} {expected}");
        // A linear function f(x) = 3x₁ − x₂ + 5 has ‖f‖² = 10, all of it in the plane.
        let scores: Vec<f64> = (0..n)
            .map(|i| {
                points.copy_row(i, &mut row);
                3.0 * row[0] - row[1] + 5.0
            })
            .collect();
        let ([c, a, b], squared) = found.project(&scores);
        assert!((squared - 10.0).abs() < 1e-6, "{squared}");
        for (p, z) in found.coordinates.iter().zip(&scores) {
            assert!((c + a * p[0] + b * p[1] - z).abs() < 1e-6);
        }
    }
}
