//! Points that live elsewhere: what is asked there, and that nothing is copied without need.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use margrave_core::data::{Buffer, Dataset, Points, Remote, RowHash, Targets};
use margrave_core::kernel::Kernel;
use margrave_core::observe::Silent;
use margrave_core::problem::Task;
use margrave_core::train::{Plan, TrainOptions};
use margrave_core::{Error, Threads};

/// Values that count how often they are copied.
struct Away {
    values: Vec<f64>,
    copies: Arc<AtomicUsize>,
}

impl Remote<f64> for Away {
    fn count(&self) -> usize {
        self.values.len()
    }
    fn values(&self) -> &[f64] {
        self.copies.fetch_add(1, Ordering::Relaxed);
        &self.values
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn first_not_finite(&self) -> Option<Option<(usize, f64)>> {
        Some(self.values.iter().position(|v| !v.is_finite()).map(|at| (at, self.values[at])))
    }
    fn squared_norms(&self, dims: usize) -> Option<Vec<f64>> {
        Some(self.values.chunks(dims).map(|row| row.iter().map(|v| v * v).sum()).collect())
    }
    fn gather(&self, dims: usize, rows: &[u32]) -> Option<Buffer<f64>> {
        let row = |&row: &u32| self.values[row as usize * dims..][..dims].to_vec();
        let values = rows.iter().flat_map(row).collect();
        Some(Buffer::from_remote(Arc::new(Away { values, copies: Arc::clone(&self.copies) })))
    }
    fn hashes(&self, dims: usize, hash: RowHash) -> Option<Vec<u64>> {
        let columns: Vec<usize> = match hash.sampled as usize {
            0 => (0..dims).collect(),
            some => (0..some).map(|at| at * dims / some).collect(),
        };
        let of = |row: &[f64]| {
            let state = columns.iter().filter(|&&j| row[j] != 0.0).fold(hash.start, |state, &j| {
                let word = row[j].to_bits() ^ (j as u64).wrapping_mul(hash.column);
                (state.rotate_left(5) ^ word).wrapping_mul(hash.factor)
            });
            (state ^ (state >> 29)).wrapping_mul(hash.start)
        };
        Some(self.values.chunks(dims).map(of).collect())
    }
    fn all_equal(&self, dims: usize, pairs: &[(u32, u32)]) -> Option<bool> {
        let row = |row: u32| &self.values[row as usize * dims..][..dims];
        Some(pairs.iter().all(|&(a, b)| row(a) == row(b)))
    }
}

fn away(d: usize, values: Vec<f64>) -> (Result<Points, Error>, Arc<AtomicUsize>) {
    let copies = Arc::new(AtomicUsize::new(0));
    let n = values.len() / d;
    let values = Buffer::from_remote(Arc::new(Away { values, copies: Arc::clone(&copies) }));
    (Points::dense_f64(n, d, values), copies)
}

/// Rows in the plane or in a space of 70 features, a fifth of them copies of others.
fn rows(n: usize, d: usize) -> Vec<f64> {
    let row =
        |i: usize| (0..d).map(move |j| ((i * 37 + j * 11) as f64 * 0.61).sin() * if j % 3 == 2 { 0.0 } else { 1.0 });
    (0..n).flat_map(|i| row(if i % 5 == 4 { i / 5 } else { i })).collect()
}

#[test]
fn values_are_checked_and_chosen_where_they_are() {
    let (points, copies) = away(2, vec![1.0, 2.0, 3.0, f64::NAN]);
    let error = points.unwrap_err().to_string();
    assert!(error.contains("row 1") && error.contains("column 1"), "{error}");
    let (points, also) = away(2, rows(50, 2));
    let points = points.unwrap();
    assert_eq!((points.len(), points.dims(), points.stored()), (50, 2, 100));
    let some = points.gather(&[7, 3, 3]);
    assert_eq!((some.len(), some.squared_norms().len(), points.squared_norms().len()), (3, 3, 50));
    assert_eq!((copies.load(Ordering::Relaxed), also.load(Ordering::Relaxed)), (0, 0));
    let here = Points::dense_f64(50, 2, rows(50, 2)).unwrap().gather(&[7, 3, 3]);
    let mut pair = [[0.0; 2]; 2];
    for row in 0..3 {
        some.copy_row(row, &mut pair[0]);
        here.copy_row(row, &mut pair[1]);
        assert_eq!(pair[0], pair[1]);
    }
    assert!(also.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_model_does_not_depend_on_where_its_points_live() {
    for d in [2, 70] {
        let n = 120;
        let y: Vec<f64> = (0..n).map(|i| f64::from(u8::from((i % 5 + i / 5) % 2 == 0))).collect();
        let train = |points: Points| {
            let data = Dataset::new(points, Targets::Real(y.clone())).unwrap();
            let mut options = TrainOptions::new(Task::Classify);
            (options.kernel, options.gamma, options.threads) = (Kernel::rbf(0.5), None, Threads::one());
            let fit = Plan::new(&options, &data).unwrap().train(&mut Silent).unwrap();
            let expansion = &fit.model().expansion;
            (expansion.rows().to_vec(), expansion.coefficients().to_vec(), expansion.bias().to_vec())
        };
        let there = train(away(d, rows(n, d)).0.unwrap());
        assert_eq!(there, train(Points::dense_f64(n, d, rows(n, d)).unwrap()), "{d} features");
    }
}
