use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::backend::RowSource;
use crate::control::{Control, Status, Threads};
use crate::data::{Csr, Points};
use crate::gram::{Gram, Matrix, Pick, RowsBehind};
use crate::kernel::Kernel;
use crate::loss::Hinge;
use crate::observe::Silent;
use crate::problem::{Bias, LinearProblem};
use crate::solver::{Stop, linear};

fn control() -> Control {
    Control::unlimited(Threads::new(2))
}

fn uniform(n: usize, d: usize, seed: u64) -> Points {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Points::dense_f64(n, d, (0..n * d).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f64>>()).unwrap()
}

fn square(kernel: Kernel, points: &Points) -> Box<dyn Gram> {
    control().backend().square_gram(kernel, points).unwrap()
}

fn full(gram: &dyn Gram) -> Vec<f64> {
    let n = gram.shape().0;
    let mut k = vec![0.0; n * n];
    gram.block_f64(Pick::All, Pick::All, &mut k, &control()).unwrap();
    k
}

/// F·Fᵀ.
fn outer(f: &[f64], n: usize, m: usize) -> Vec<f64> {
    let mut k = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..n {
            k[i * n + j] = (0..m).map(|c| f[i * m + c] * f[j * m + c]).sum();
        }
    }
    k
}

#[test]
fn the_factor_reproduces_k_on_the_centres_and_is_below_it_elsewhere() {
    let (n, m) = (300, 60);
    let points = uniform(n, 3, 1);
    let gram = square(Kernel::rbf(2.0), &points);
    let mut search = CentreSearch::new(gram.diag(), 5);
    search.grow(gram.as_ref(), m, &control()).unwrap();
    let total = search.pivots().len();
    assert!(total >= m);
    let f = search.features(m, &Threads::new(2)).unwrap();
    let (k, approx) = (full(gram.as_ref()), outer(&f, n, m));
    for &s in &search.pivots()[..m] {
        for i in 0..n {
            let at = s as usize * n + i;
            assert!((k[at] - approx[at]).abs() < 1e-9, "row {s}, column {i}");
        }
    }
    let share: f64 = (0..n).map(|i| k[i * n + i] - approx[i * n + i]).sum::<f64>() / n as f64;
    assert!((0.0..0.5).contains(&share), "{share}");
    let mut all: Vec<u32> = search.pivots().to_vec();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), total, "a row was drawn twice");
}

#[test]
fn growing_keeps_the_first_centres() {
    let points = uniform(500, 4, 2);
    let gram = square(Kernel::rbf(1.0), &points);
    let run = |steps: &[usize]| {
        let mut search = CentreSearch::new(gram.diag(), 9);
        steps.iter().for_each(|&m| search.grow(gram.as_ref(), m, &control()).unwrap());
        search.pivots()[..*steps.last().unwrap()].to_vec()
    };
    assert_eq!(run(&[20, 50, 200]), run(&[200]));
    assert_ne!(run(&[200]), {
        let mut other = CentreSearch::new(gram.diag(), 10);
        other.grow(gram.as_ref(), 200, &control()).unwrap();
        other.pivots()[..200].to_vec()
    });
}

#[test]
fn copies_and_a_low_rank_end_the_search() {
    let distinct = uniform(7, 2, 3);
    let rows: Vec<u32> = (0..200).map(|i| i % 7).collect();
    let copies = distinct.gather(&rows);
    let mut features = Features::new(Kernel::rbf(1.0), &RowSource::Memory(copies), 50, 1 << 30, 0, &control()).unwrap();
    assert_eq!(features.on(50, &control()).unwrap().centres.len(), 7);
    // (x·y + 1)² in two dimensions has rank 6.
    let kernel = Kernel::Poly { gamma: 1.0, coef0: 1.0, degree: 2 };
    let mut features =
        Features::new(kernel, &RowSource::Memory(uniform(100, 2, 4)), 40, 1 << 30, 0, &control()).unwrap();
    let set = features.on(40, &control()).unwrap();
    assert_eq!(set.centres.len(), 6);
    assert!(features.residual_share() < 1e-9);
}

/// Stored features, those stored in single precision and recomputed ones offer the same products.
#[test]
fn every_storage_gives_the_same_products() {
    let (n, m) = (700, 40);
    let dense = uniform(n, 5, 6);
    let sparse: Points = {
        let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in 0..n {
            dense.visit(i, |j, v| {
                if v > -0.2 {
                    columns.push(j as u32);
                    values.push(v);
                }
            });
            starts.push(columns.len());
        }
        Csr::new(5, starts, columns, values).unwrap().into()
    };
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for points in [dense, sparse] {
        let mut random = |len: usize| -> Vec<f64> { (0..len).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let (w, c, weights) = (random(m), random(n), random(n).iter().map(|a: &f64| a.abs()).collect::<Vec<_>>());
        let mut features =
            Features::new(Kernel::rbf(0.7), &RowSource::Memory(points.clone()), m, 1 << 30, 3, &control()).unwrap();
        let set = features.on(m, &control()).unwrap();
        assert!(set.is_stored() && set.centres.len() == m);
        let recomputed = recomputed::RecomputedFeatures::new(
            Kernel::rbf(0.7),
            &RowSource::Memory(points.clone()),
            &set.centres,
            &control(),
        )
        .unwrap();
        let rows: Vec<u32> = (0..n as u32).filter(|i| i % 3 != 1).collect();
        let part: Vec<f64> = rows.iter().map(|&i| weights[i as usize]).collect();
        let products = |x: &dyn Matrix| {
            let mut z = vec![0.0; n];
            x.dots(Pick::All, &w, &mut z, &control()).unwrap();
            let mut v = vec![0.5; m];
            x.combine(Pick::All, &c, &mut v, &control()).unwrap();
            let mut some = vec![0.0; m];
            x.combine(Pick::List(&rows), &part, &mut some, &control()).unwrap();
            let (mut first, mut second) = (vec![0.0; m], vec![0.0; m * m]);
            x.moments(Pick::List(&rows), &part, &w, &mut first, &mut second, &control()).unwrap();
            let lower = (0..m * m).filter(|at| at % m <= at / m).map(|at| second[at]).collect::<Vec<f64>>();
            let mut squares = vec![0.0; m];
            x.squares(Pick::List(&rows), &part, &mut squares, &control()).unwrap();
            let (mut dots, mut normal) = (vec![0.0; rows.len()], vec![0.25; m]);
            x.curvature_product(Pick::List(&rows), &part, &w, 0.3, &mut dots, &mut normal, &control()).unwrap();
            [z, v, some, first, lower, squares, dots, normal].concat()
        };
        let expected = products(set.matrix());
        // All rows kept, some, and too few for any list.
        let sizes = [2 * n * m, 500 * m, 3 * m];
        let kept = sizes.map(|values| kept::KeptRows::<f32>::new(&recomputed, 4 * values as u64));
        let kept = kept.iter().map(|k| (k.as_ref().unwrap() as &dyn Matrix, 2e-4));
        let short = sizes.map(|values| kept::KeptRows::<i16>::new(&recomputed, 2 * values as u64));
        // Half a step of 16 bits, which nearly dependent centres amplify: seen are 2e-4 for least pivots of 0.13, 1.3e-3 for 0.009.
        let coarse = 4.0 / 65_534.0 / set.centres.least_pivot;
        let short = short.iter().map(|k| (k.as_ref().unwrap() as &dyn Matrix, coarse));
        for (other, most) in kept.chain(short).chain([(&recomputed as &dyn Matrix, 2e-4)]) {
            // Once while rows are first kept, and once more after others made way.
            let found = [products(other), products(other)].concat();
            let expected = expected.repeat(2);
            let worst = expected.iter().zip(&found).map(|(a, b)| (a - b).abs() / (1.0 + a.abs())).fold(0.0, f64::max);
            assert!(worst < most, "{worst} {most}");
            if let Some(behind) = other.behind() {
                check_rows_behind(behind, set.matrix(), &set.centres, &rows, &part, &w);
            }
        }
    }
}

/// What is computed from the rows behind `x` is L times what is computed from `x` itself.
fn check_rows_behind(
    behind: &dyn RowsBehind,
    x: &dyn Matrix,
    centres: &Centres,
    rows: &[u32],
    weights: &[f64],
    w: &[f64],
) {
    let (m, control, pick) = (w.len(), control(), Pick::List(rows));
    let l = |i: usize, j: usize| if j <= i { centres.factor.row(i)[j] } else { 0.0 };
    let times = |v: &[f64]| -> Vec<f64> { (0..m).map(|i| (0..m).map(|j| l(i, j) * v[j]).sum()).collect() };
    let transposed = |v: &[f64]| -> Vec<f64> { (0..m).map(|j| (0..m).map(|i| l(i, j) * v[i]).sum()).collect() };
    let close = |found: &[f64], expected: &[f64], most: f64, what: &str| {
        let size = expected.iter().fold(1.0f64, |size, e| size.max(e.abs()));
        let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs() / size).fold(0.0, f64::max);
        assert!(worst < most, "{what}: {worst}");
    };
    close(&behind.lower(w, &control), &times(w), 1e-12, "L");
    close(&behind.lower_transposed(w), &transposed(w), 1e-12, "transpose of L");
    let gram: Vec<f64> = behind.gram(&control).unwrap().iter().map(|k| f64::from(*k)).collect();
    let outer: Vec<f64> = (0..m * m).map(|at| (0..m).map(|k| l(at / m, k) * l(at % m, k)).sum()).collect();
    close(&gram, &outer, 1e-6, "G");

    // Entries are rounded to 16 bits, by half a step of 1/65 534 of the largest.
    const ROUNDED: f64 = 1e-4;
    let (mut found, mut expected) = (vec![0.0; m], vec![0.0; m]);
    behind.combine(pick, weights, &mut found, &control).unwrap();
    x.combine(pick, weights, &mut expected, &control).unwrap();
    close(&found, &times(&expected), ROUNDED, "sums");

    let mut a = w.to_vec();
    centres.factor.solve_upper(&mut a, &Threads::one());
    let size = a.iter().map(|a| a.abs()).sum::<f64>();
    let (mut dots, mut scores) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
    let (mut found, mut expected) = (vec![0.0; m], vec![0.0; m]);
    behind.curvature_product(pick, weights, &a, 0.3, &mut dots, &mut found, &control).unwrap();
    x.curvature_product(pick, weights, w, 0.3, &mut scores, &mut expected, &control).unwrap();
    close(&dots, &scores, ROUNDED * (1.0 + size), "scores");
    close(&found, &times(&expected), ROUNDED * (1.0 + size), "products");

    let (mut first, mut second) = (vec![0.0; m], vec![0.0; m * m]);
    behind.moments(pick, weights, &mut first, &mut second, &control).unwrap();
    let (mut of_x, mut square) = (vec![0.0; m], vec![0.0; m * m]);
    x.moments(pick, weights, &[], &mut of_x, &mut square, &control).unwrap();
    close(&first, &times(&of_x), ROUNDED, "first moments");
    let entry = |i: usize, j: usize| square[i.max(j) * m + i.min(j)];
    for i in 0..m {
        let row: Vec<f64> = (0..m).map(|k| (0..m).map(|j| l(i, j) * entry(j, k)).sum()).collect();
        close(&second[i * m..=i * m + i], &times(&row)[..=i], ROUNDED, "second moments");
    }
}

/// More centres than those for which F is stored: systems are solved with the rows of K_nS.
#[test]
fn a_training_with_kept_rows_ends_where_one_on_stored_features_does() {
    let (n, m) = (2500, 320);
    let points = uniform(n, 6, 11);
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let targets: Vec<f64> = (0..n)
        .map(|i| {
            let mut x = [0.0; 6];
            points.copy_row(i, &mut x);
            let clean = (3.0 * x[0]).sin() + x[1] * x[2];
            if clean + 0.3 * rng.random_range(-1.0..1.0) > 0.0 { 1.0 } else { -1.0 }
        })
        .collect();
    let costs = vec![1.0; n];
    let source = RowSource::Memory(points);
    // Too little memory to draw centres among all rows, whose features would then be known.
    let mut features = Features::new(Kernel::rbf(3.0), &source, m, 6 << 20, 3, &control()).unwrap();
    let set = features.on(m, &control()).unwrap();
    assert!(!set.is_stored(), "{}", set.centres.least_pivot);
    let mut block = vec![0.0; n * m];
    let gram = source.gram(Kernel::rbf(3.0), &set.centres.points, &control()).unwrap();
    gram.block_f64(Pick::All, Pick::All, &mut block, &control()).unwrap();
    set.centres.factor.whiten(&mut block, n, &Threads::new(2));
    let whitened = stored::StoredFeatures::new(Points::dense_f64(n, m, block).unwrap(), &control());
    for bias in [Bias::Free, Bias::None] {
        let stop = Stop { tol: None, gap: Some(1e-5) };
        let problem = LinearProblem::new(set.matrix(), &targets, &costs, &Hinge, bias).unwrap();
        let options = Options { stop, start: None, iterations: None, memory: 1 << 30, seed: 0, precise: false };
        let found = solve(&problem, &set, &options, &control(), &mut Silent).unwrap();
        assert_eq!(found.status, Status::Optimal);
        // Each step is solved for accurately enough that there are few.
        assert!(found.iterations <= 80, "{}", found.iterations);
        let other = LinearProblem::new(&whitened, &targets, &costs, &Hinge, bias).unwrap();
        let linear = linear::Options { stop, ..linear::Options::default() };
        let expected = linear::solve(&other, &linear, &control(), &mut Silent).unwrap();
        let objective = |w: &[f64], b: f64| -> f64 {
            let mut z = vec![0.0; n];
            whitened.dots(Pick::All, w, &mut z, &control()).unwrap();
            let loss = z.iter().zip(&targets).map(|(z, y)| (1.0 - y * (z + b)).max(0.0)).sum::<f64>();
            0.5 * w.iter().map(|w| w * w).sum::<f64>() + loss
        };
        let (found, expected) = (objective(&found.weights, found.bias), objective(&expected.weights, expected.bias));
        assert!((found / expected - 1.0).abs() < 4e-5, "{found} {expected}");
    }
}
