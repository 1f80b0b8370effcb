//! The linear solver on a family of small problems: every convex loss × cost × scaling × bias × data set. Whatever the solver reports, the
//! certificate must find a relative gap, gap / max(|P|, |D|), of at most what was asked for; and no objective may lie below the
//! bound of the decomposition solver.
//!
//! A seeded sample runs by default; `MARGRAVE_FAMILY=full` runs the whole product.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::certificate::{Optimality, certify, certify_l1, certify_linear};
use margrave_core::data::{Csr, Points};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::observe::Silent;
use margrave_core::problem::{Bias, Constraint, KernelProblem, LinearProblem};
use margrave_core::solver::linear::{Method, Options, solve, solve_l1};
use margrave_core::solver::{Stop, decomposition};
use margrave_core::{Budget, Control, Status, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const LOSSES: [(&str, bool); 15] = [
    ("hinge", true),
    ("squared-hinge", true),
    ("smooth-hinge:K=50", true),
    ("smooth-hinge:K=1000000", true),
    ("huber-hinge", true),
    ("power:s=1.5", true),
    ("logistic", true),
    ("square", false),
    ("epsilon:epsilon=0.1", false),
    ("squared-epsilon:epsilon=0.1", false),
    ("huber:delta=0.5", false),
    ("absolute", false),
    ("pinball:tau=0.3", false),
    ("expectile:tau=0.2", false),
    ("logcosh", false),
];
const COSTS: [f64; 5] = [1e-4, 1e-2, 1.0, 1e2, 1e4];
const SCALINGS: [&str; 3] = ["raw", "centred", "standardised"];
const BIASES: [Bias; 4] = [Bias::Free, Bias::None, Bias::Penalised { scaling: 1.0 }, Bias::Penalised { scaling: 30.0 }];
const GAP: f64 = 1e-4;

struct Set {
    name: &'static str,
    n: usize,
    d: usize,
    x: Vec<f64>,
    reals: Vec<f64>,
    labels: Vec<f64>,
    weights: Vec<f64>,
}

fn set(name: &'static str, n: usize, d: usize, mut feature: impl FnMut(usize, usize, &mut ChaCha8Rng) -> f64) -> Set {
    let mut rng = ChaCha8Rng::seed_from_u64(name.len() as u64 * 1000 + n as u64);
    let x: Vec<f64> = (0..n * d).map(|k| feature(k / d, k % d, &mut rng)).collect();
    let truth: Vec<f64> = (0..d).map(|_| rng.random_range(-1.0..1.0)).collect();
    let signal: Vec<f64> = (0..n).map(|i| (0..d).map(|j| x[i * d + j] * truth[j]).sum()).collect();
    let mean = signal.iter().sum::<f64>() / n as f64;
    let spread = (signal.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / n as f64).sqrt().max(1e-3);
    let reals: Vec<f64> =
        signal.iter().map(|s| 2.0 * (s - mean) / spread + rng.random_range(-1.0..1.0) + 3.0).collect();
    let labels = reals.iter().map(|r| if *r > 3.0 { 1.0 } else { -1.0 }).collect();
    Set { name, n, d, x, reals, labels, weights: vec![1.0; n] }
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0
}

fn sets() -> Vec<Set> {
    let mut all = vec![
        set("plain", 60, 5, |_, _, rng| normal(rng)),
        set("constant columns", 50, 4, |_, j, rng| [7.0, 0.0, normal(rng), normal(rng)][j]),
        set("far from the origin", 50, 3, |_, _, rng| 1e4 + normal(rng)),
        set("tiny", 3, 2, |_, _, rng| normal(rng)),
        set("wide", 20, 40, |_, _, rng| normal(rng)),
        set("scales from 1e-3 to 1e4", 60, 8, |_, j, rng| 10f64.powi(j as i32 - 3) * (2.0 + normal(rng))),
        set("binary", 60, 12, |_, _, rng| f64::from(u8::from(rng.random_range(0..5) == 0))),
        set("one feature", 40, 1, |_, _, rng| normal(rng)),
    ];
    // Two columns that differ by rounding, one that is a sum of others.
    let mut alike = set("collinear", 50, 5, |_, _, rng| normal(rng));
    for row in alike.x.chunks_mut(5) {
        row[1] = row[0] * (1.0 + 1e-9);
        row[4] = row[2] + row[3];
    }
    all.push(alike);
    let mut twice = set("duplicated rows", 60, 4, |_, _, rng| normal(rng));
    for i in 20..60 {
        let from = i % 20;
        let row = twice.x[from * 4..(from + 1) * 4].to_vec();
        twice.x[i * 4..(i + 1) * 4].copy_from_slice(&row);
        twice.reals[i] = twice.reals[from];
        // Some copies contradict each other.
        twice.labels[i] = if i % 7 == 0 { -twice.labels[from] } else { twice.labels[from] };
    }
    all.push(twice);
    let mut sorted = set("sorted by class", 60, 3, |_, _, rng| normal(rng));
    let mut order: Vec<usize> = (0..60).collect();
    order.sort_by(|a, b| sorted.reals[*a].total_cmp(&sorted.reals[*b]));
    sorted.x = order.iter().flat_map(|&i| sorted.x[i * 3..(i + 1) * 3].to_vec()).collect();
    sorted.reals = order.iter().map(|&i| sorted.reals[i]).collect();
    sorted.labels = order.iter().map(|&i| sorted.labels[i]).collect();
    all.push(sorted);
    let mut imbalanced = set("imbalanced", 80, 4, |_, _, rng| normal(rng));
    imbalanced.labels = (0..80).map(|i| if i % 20 == 7 { 1.0 } else { -1.0 }).collect();
    all.push(imbalanced);
    let mut weighted = set("weights", 60, 5, |_, _, rng| normal(rng));
    weighted.weights = (0..60).map(|i| [1.0, 0.0, 0.01, 30.0, 2.5][i % 5]).collect();
    all.push(weighted);
    let mut outliers = set("outliers and large targets", 50, 3, |_, _, rng| normal(rng));
    outliers.reals.iter_mut().enumerate().for_each(|(i, r)| *r = 300.0 * *r + if i % 11 == 0 { 1e5 } else { 0.0 });
    all.push(outliers);
    let mut one = set("one class", 20, 3, |_, _, rng| normal(rng));
    one.labels = vec![1.0; 20];
    all.push(one);
    all
}

fn scaled(set: &Set, scaling: &str) -> Points {
    let (n, d) = (set.n, set.d);
    let mut x = set.x.clone();
    for j in 0..d {
        let column = |i: usize| set.x[i * d + j];
        let mean = if scaling == "raw" { 0.0 } else { (0..n).map(column).sum::<f64>() / n as f64 };
        let variance = (0..n).map(|i| (column(i) - mean) * (column(i) - mean)).sum::<f64>() / n as f64;
        let unit = if scaling == "standardised" && variance > 0.0 { variance.sqrt() } else { 1.0 };
        (0..n).for_each(|i| x[i * d + j] = (column(i) - mean) / unit);
    }
    Points::dense_f64(n, d, x).unwrap()
}

fn loss(name: &str) -> std::sync::Arc<dyn Loss> {
    name.parse::<LossSpec>().unwrap().build().unwrap()
}

fn full() -> bool {
    std::env::var("MARGRAVE_FAMILY").is_ok_and(|v| v == "full")
}

fn limited(seconds: f64) -> Control {
    Control::start(&Budget { seconds: Some(seconds), ..Budget::default() }, Threads::one())
}

/// gap / max(|P|, |D|), 0 where all of it is within rounding.
fn relative(o: &Optimality) -> f64 {
    let (scale, gap) = (o.primal().abs().max(o.dual().abs()), o.gap() - o.rounding());
    if gap <= 1e-300 { 0.0 } else { gap / scale }
}

/// Every problem of the family, or about one in `of`.
fn each(of: u32, losses: &[(&str, bool)], mut work: impl FnMut(&str, &LinearProblem<'_>, &Points, f64)) {
    let sets = sets();
    let mut rng = ChaCha8Rng::seed_from_u64(77);
    for set in &sets {
        for scaling in SCALINGS {
            let points = scaled(set, scaling);
            let matrix = RowMatrix::new(&points);
            for (name, classify) in losses {
                let loss = loss(name);
                let targets = if *classify { &set.labels } else { &set.reals };
                for c in COSTS {
                    let costs: Vec<f64> = set.weights.iter().map(|w| c * w).collect();
                    for bias in BIASES {
                        if !full() && rng.random_range(0..of) > 0 {
                            continue;
                        }
                        let problem = LinearProblem::new(&matrix, targets, &costs, &*loss, bias).unwrap();
                        work(&format!("{}, {scaling}, {name}, C = {c}, {bias:?}", set.name), &problem, &points, c);
                    }
                }
            }
        }
    }
}

fn summary(failures: &[String], count: usize) {
    assert!(count > 100, "only {count} problems");
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_problem_is_solved_to_the_gap_asked_for() {
    let (mut failures, mut count) = (Vec::new(), 0);
    each(5, &LOSSES, |what, problem, _, _| {
        for method in [Method::Auto, Method::Coordinate] {
            // Coordinate descent with Newton after it: a part of them.
            if method == Method::Coordinate && count % 3 != 0 {
                continue;
            }
            count += 1;
            let options = Options { stop: Stop { tol: None, gap: Some(GAP) }, method, ..Options::default() };
            let started = std::time::Instant::now();
            let s = solve(problem, &options, &limited(20.0), &mut Silent).unwrap();
            let spent = started.elapsed().as_secs_f64();
            let control = Control::unlimited(Threads::one());
            let c = certify_linear(problem, &s.weights, s.bias, &s.beta, &control).unwrap();
            let gap = relative(c.optimality().expect("convex"));
            if s.status != Status::Optimal || gap > 1.01 * GAP {
                failures.push(format!(
                    "{what} {method:?}: {} gap {gap:.1e} own {:.1e}, {} steps {spent:.2} s",
                    s.status, s.relative_gap, s.iterations
                ));
            }
        }
    });
    summary(&failures, count);
}

#[test]
fn no_objective_lies_below_the_bound_of_decomposition() {
    let (mut failures, mut count, mut close) = (Vec::new(), 0, 0);
    each(20, &LOSSES, |what, problem, points, _| {
        let constraint = match problem.bias {
            Bias::Free => Constraint::free_bias(),
            Bias::None => Constraint::None,
            Bias::Penalised { .. } => return,
        };
        if problem.dual_term(0).is_none() {
            return;
        }
        count += 1;
        let control = Control::unlimited(Threads::one());
        let options = Options { stop: Stop { tol: None, gap: Some(1e-6) }, ..Options::default() };
        let s = solve(problem, &options, &limited(20.0), &mut Silent).unwrap();
        let linear = certify_linear(problem, &s.weights, s.bias, &s.beta, &control).unwrap();
        let gram = CpuGram::square(Kernel::Linear, points).unwrap();
        let kernel = KernelProblem::new(&gram, problem.targets, problem.costs, problem.loss, constraint).unwrap();
        let options =
            decomposition::Options { stop: Stop { tol: None, gap: Some(1e-6) }, ..decomposition::Options::default() };
        // Decomposition may be slow on raw data: its bounds hold wherever it ends.
        let other = decomposition::solve(&kernel, &options, &limited(0.5), &mut Silent).unwrap();
        let size: f64 = other.beta.iter().map(|b| b.abs()).sum();
        let other = certify(&kernel, &other.beta, None, None, &control).unwrap();
        let (a, b) = (linear.optimality().unwrap(), other.optimality().unwrap());
        // Rounding of the entries of K, which are as large as the squared distance from the origin.
        let rounding = f64::EPSILON * points.squared_norms().iter().fold(0.0f64, |m, q| m.max(*q)) * size * size;
        let slack = 1e-7 * a.primal().abs().max(b.primal().abs()) + rounding;
        if a.primal() < b.dual() - slack || b.primal() < a.dual() - slack {
            failures.push(format!("{what}: {} ≥ {} and {} ≥ {}", a.primal(), a.dual(), b.primal(), b.dual()));
        }
        close += usize::from((a.primal() - b.primal()).abs() <= 1e-3 * a.primal().abs());
    });
    // Most must agree closely, or the comparison compares nothing.
    assert!(3 * close > 2 * count, "{close} of {count} agree");
    summary(&failures, count);
}

#[test]
fn the_l1_penalty_is_solved_to_the_gap_asked_for() {
    let (mut failures, mut count) = (Vec::new(), 0);
    let losses: Vec<(&str, bool)> = LOSSES
        .into_iter()
        .filter(|(name, _)| !["hinge", "epsilon:epsilon=0.1", "absolute", "pinball:tau=0.3"].contains(name))
        .collect();
    each(20, &losses, |what, problem, _, _| {
        count += 1;
        let options = Options { stop: Stop { tol: None, gap: Some(GAP) }, ..Options::default() };
        let started = std::time::Instant::now();
        let s = solve_l1(problem, &options, &limited(20.0), &mut Silent).unwrap();
        let spent = started.elapsed().as_secs_f64();
        let control = Control::unlimited(Threads::one());
        let c = certify_l1(problem, &s.weights, s.bias, &s.beta, &control).unwrap();
        let gap = relative(c.optimality().expect("convex"));
        if s.status != Status::Optimal || gap > 1.01 * GAP {
            failures.push(format!(
                "{what}: {} gap {gap:.1e} own {:.1e}, {} steps {spent:.2} s",
                s.status, s.relative_gap, s.iterations
            ));
        }
    });
    summary(&failures, count);
}

/// Solves with the stop given and returns the certified bounds, which must meet the gap asked for.
fn solved(problem: &LinearProblem<'_>, stop: Stop, what: &str) -> Optimality {
    let options = Options { stop, ..Options::default() };
    let s = solve(problem, &options, &limited(60.0), &mut Silent).unwrap();
    let control = Control::unlimited(Threads::one());
    let c = certify_linear(problem, &s.weights, s.bias, &s.beta, &control).unwrap();
    let o = c.optimality().unwrap().clone();
    assert_eq!(s.status, Status::Optimal, "{what}: {o}");
    assert!(stop.gap.is_none_or(|gap| relative(&o) <= 1.01 * gap), "{what}: {o}");
    assert!(stop.tol.is_none_or(|tol| o.violation() <= 2.0 * tol), "{what}: {o}");
    o
}

#[test]
fn a_bias_far_above_the_start_is_found() {
    // Prices with a mean of 22 (or 22 000) on standardised features: the bias must rise from 0, and w = 0 is no answer.
    let mut rng = ChaCha8Rng::seed_from_u64(41);
    let (n, d) = (300, 13);
    let x: Vec<f64> = (0..n * d).map(|_| normal(&mut rng)).collect();
    let points = Points::dense_f64(n, d, x.clone()).unwrap();
    let (matrix, epsilon) = (RowMatrix::new(&points), loss("epsilon:epsilon=0.1"));
    for scale in [1.0, 1000.0] {
        let signal = |i: usize| 22.0 + 3.0 * x[i * d] - 2.0 * x[i * d + 1];
        let targets: Vec<f64> = (0..n).map(|i| scale * (signal(i) + normal(&mut rng))).collect();
        let costs = vec![scale; n];
        let problem = LinearProblem::new(&matrix, &targets, &costs, &*epsilon, Bias::Free).unwrap();
        let o = solved(&problem, Stop { tol: Some(1e-3 * scale), gap: Some(1e-2) }, "prices");
        let mut sorted = targets.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[n / 2];
        let constant: f64 = targets.iter().map(|y| scale * ((y - median).abs() - 0.1).max(0.0)).sum();
        assert!(o.primal() < 0.5 * constant, "{} against {constant} of w = 0", o.primal());
        assert!((o.bias()[0] - 22.0 * scale).abs() < scale, "bias {}", o.bias()[0]);
    }
}

#[test]
fn a_tiny_cost_does_not_give_the_zero_machine() {
    let sets = sets();
    let set = &sets[0];
    let points = scaled(set, "standardised");
    let (matrix, costs) = (RowMatrix::new(&points), vec![1e-6; set.n]);
    for (name, classify) in LOSSES {
        let loss = loss(name);
        let targets = if classify { &set.labels } else { &set.reals };
        for bias in BIASES {
            let problem = LinearProblem::new(&matrix, targets, &costs, &*loss, bias).unwrap();
            let o = solved(&problem, Stop { tol: None, gap: Some(1e-6) }, &format!("{name} {bias:?}"));
            assert!(o.squared_norm() > 0.0 && o.primal() < 1e-2, "{name} {bias:?}: {o}");
        }
    }
}

#[test]
fn few_positives_in_sparse_rows_at_a_large_cost() {
    // 3 % of one class, binary features, C = 100, more rows than are solved at once: the part of the samples comes first.
    let mut rng = ChaCha8Rng::seed_from_u64(43);
    let (n, d) = (9000, 60);
    let x: Vec<f64> = (0..n * d).map(|_| f64::from(u8::from(rng.random_range(0..12) == 0))).collect();
    let labels: Vec<f64> = (0..n)
        .map(|i| x[i * d] + x[i * d + 1] + x[i * d + 2] + 0.3 * normal(&mut rng))
        .map(|s| if s > 1.5 { 1.0 } else { -1.0 })
        .collect();
    let points = Points::dense_f64(n, d, x).unwrap();
    let (matrix, costs, hinge) = (RowMatrix::new(&points), vec![100.0; n], loss("hinge"));
    let problem = LinearProblem::new(&matrix, &labels, &costs, &*hinge, Bias::Free).unwrap();
    let o = solved(&problem, Stop { tol: None, gap: Some(1e-4) }, "sparse");
    assert!(o.bias()[0].abs() < 100.0, "{}", o.bias()[0]);
}

#[test]
fn almost_constant_features_at_a_huge_cost() {
    // 64 rows of 41 features about 9, nearly separable, with weights: gaps of 1e-6 and 1e-10.
    let mut rng = ChaCha8Rng::seed_from_u64(44);
    let (n, d) = (64, 41);
    let x: Vec<f64> = (0..n * d).map(|_| 9.0 + 0.4 * normal(&mut rng)).collect();
    let labels: Vec<f64> = (0..n).map(|i| if i % 4 == 0 { 1.0 } else { -1.0 }).collect();
    let points = Points::dense_f64(n, d, x).unwrap();
    let matrix = RowMatrix::new(&points);
    for (name, c, gap) in [("huber-hinge", 78488.8, 1e-6), ("hinge", 0.1144, 1e-10), ("hinge", 8.976, 1e-2)] {
        let loss = loss(name);
        let costs: Vec<f64> = (0..n).map(|i| c * [1.0, 0.2, 3.0][i % 3]).collect();
        let problem = LinearProblem::new(&matrix, &labels, &costs, &*loss, Bias::Free).unwrap();
        solved(&problem, Stop { tol: None, gap: Some(gap) }, name);
    }
}

#[test]
fn wide_sparse_rows_are_not_given_up_early() {
    // Text: thousands of features, about 50 in each row. Work is counted by what rows store, not by n·d.
    let sample = margrave_testkit::generate::sparse(2000, 5000, 0.01, 45);
    let costs = vec![10.0; sample.y.len()];
    let points: Points = Csr::new(sample.d, sample.starts, sample.columns, sample.values).unwrap().into();
    let matrix = RowMatrix::new(&points);
    for name in ["squared-hinge", "logistic"] {
        let loss = loss(name);
        let problem = LinearProblem::new(&matrix, &sample.y, &costs, &*loss, Bias::Free).unwrap();
        let stop = Stop { tol: None, gap: Some(1e-2) };
        solved(&problem, stop, name);
        let options = Options { stop, ..Options::default() };
        let s = solve_l1(&problem, &options, &limited(60.0), &mut Silent).unwrap();
        let c = certify_l1(&problem, &s.weights, s.bias, &s.beta, &Control::unlimited(Threads::one())).unwrap();
        let gap = relative(c.optimality().expect("convex"));
        assert!(s.status == Status::Optimal && gap <= 1.01e-2, "{name}: {} at a gap of {gap:.1e}", s.status);
    }
}

#[test]
fn a_violation_below_its_rounding_ends_the_l1_penalty_soon() {
    // Features from 1e-7 to 1e5: rounding alone moves the slopes by more than the requested violation.
    let mut rng = ChaCha8Rng::seed_from_u64(46);
    let (n, d) = (950, 13);
    let scales: Vec<f64> = (0..d).map(|j| 10f64.powi(j as i32 - 7)).collect();
    let x: Vec<f64> = (0..n * d).map(|k| scales[k % d] * (1.0 + normal(&mut rng))).collect();
    let labels: Vec<f64> =
        (0..n).map(|i| if x[i * d + 8] + 0.5 > 20.0 * normal(&mut rng) { 1.0 } else { -1.0 }).collect();
    let points = Points::dense_f64(n, d, x).unwrap();
    let (matrix, costs, loss) = (RowMatrix::new(&points), vec![6.0; n], loss("squared-hinge"));
    let problem = LinearProblem::new(&matrix, &labels, &costs, &*loss, Bias::Free).unwrap();
    for tol in [1e-7, 1e-9, 1e-12] {
        let options = Options { stop: Stop { tol: Some(tol), gap: None }, ..Options::default() };
        let control = Control::unlimited(Threads::one());
        let s = solve_l1(&problem, &options, &control, &mut Silent).unwrap();
        assert!(s.iterations < 300, "tol {tol:e}: {} epochs", s.iterations);
        let c = certify_l1(&problem, &s.weights, s.bias, &s.beta, &control).unwrap();
        let o = c.optimality().expect("convex");
        assert!(relative(o) <= 1e-6, "tol {tol:e}: a gap of {:.1e}", relative(o));
        // What the solver measured is what the certificate finds.
        assert!(o.violation() <= 2.0 * s.violation + 1e-6, "{:e} after {:e}", o.violation(), s.violation);
    }
}

#[test]
fn large_features_and_costs_end_soon_and_are_proven() {
    // A table with its raw scales. The terms of a slope add up to 10¹² and must cancel to at most 1: plain sums prove nothing, and
    // what is left of the violation is rounding.
    let mut rng = ChaCha8Rng::seed_from_u64(47);
    let (n, d) = (700, 8);
    let scales = [3e6, 1e5, 0.7, 1e-2, 1.5e5, 1e3, 1e-3, 4e3];
    let x: Vec<f64> = (0..n * d).map(|k| scales[k % d] * rng.random_range(0..6) as f64).collect();
    let labels: Vec<f64> =
        (0..n).map(|i| if x[i * d] / 3e6 - x[i * d + 4] / 1e5 > 2.0 * normal(&mut rng) { 1.0 } else { -1.0 }).collect();
    let points = Points::dense_f64(n, d, x).unwrap();
    let (matrix, loss) = (RowMatrix::new(&points), loss("logistic"));
    for (c, gap) in [(1e2, 1e-4), (1e4, 1e-3), (1e5, 2e-2)] {
        let costs = vec![c; n];
        let problem = LinearProblem::new(&matrix, &labels, &costs, &*loss, Bias::None).unwrap();
        for tol in [1e-3, 1e-6] {
            let options = Options { stop: Stop { tol: Some(tol), gap: Some(gap) }, ..Options::default() };
            let s = solve_l1(&problem, &options, &limited(60.0), &mut Silent).unwrap();
            assert!(s.iterations < 300 && s.status == Status::Optimal, "C {c}, tol {tol}: {} epochs", s.iterations);
            let proof = certify_l1(&problem, &s.weights, s.bias, &s.beta, &limited(60.0)).unwrap();
            let o = proof.optimality().expect("convex");
            assert!(relative(o) <= gap, "C {c}, tol {tol}: a gap of {:.1e}", relative(o));
        }
    }
}
