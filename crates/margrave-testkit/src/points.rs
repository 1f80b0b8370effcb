//! Seeded points for kernel tests.

use margrave_core::data::{Csr, Points};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// `n · d` standard normal numbers times `scale` plus `shift`.
pub fn normal(n: usize, d: usize, scale: f64, shift: f64, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n * d)
        .map(|_| {
            let x: f64 = StandardNormal.sample(&mut rng);
            scale * x + shift
        })
        .collect()
}

/// Normal points, dense, in double precision.
pub fn dense(n: usize, d: usize, seed: u64) -> Points {
    Points::dense_f64(n, d, normal(n, d, 1.0, 0.0, seed)).expect("finite values")
}

/// Points with about `density` of their features stored, values in (0, 1].
pub fn sparse(n: usize, d: usize, density: f64, seed: u64) -> Points {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut starts, mut columns, mut values) = (vec![0usize], Vec::new(), Vec::new());
    for _ in 0..n {
        for k in 0..d as u32 {
            if rng.random::<f64>() < density {
                columns.push(k);
                values.push(1.0 - rng.random::<f64>());
            }
        }
        starts.push(columns.len());
    }
    Csr::<f64>::new(d, starts, columns, values).expect("sorted columns").into()
}

/// The same points stored dense, in double precision.
pub fn densified(points: &Points) -> Points {
    let values = (0..points.len()).flat_map(|i| crate::naive::row(points, i)).collect::<Vec<_>>();
    Points::dense_f64(points.len(), points.dims(), values).expect("finite values")
}
