//! Tests on small problems: known solutions, and invariants of every step.

use super::*;
use crate::backend::cpu::CpuGram;
use crate::certificate::certify;
use crate::control::{Budget, Control, Status, Threads};
use crate::data::Points;
use crate::gram::Gram;
use crate::kernel::Kernel;
use crate::loss::{CustomLoss, Hinge, Loss, LossSpec, Square};
use crate::observe::{Recorder, Silent};
use crate::problem::{Constraint, KernelProblem};
use crate::solver::{Stop, decomposition};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const D: usize = 3;

fn data(n: usize, seed: u64) -> (Points, Vec<f64>, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> = (0..n * D).map(|_| rng.random_range(0.0..2.0)).collect();
    let labels = (0..n)
        .map(|i| {
            let clean = x[i * D] + (3.0 * x[i * D + 1]).sin() > 1.0;
            if clean != (rng.random_range(0.0..1.0) < 0.1) { 1.0 } else { -1.0 }
        })
        .collect();
    let reals = (0..n).map(|i| x[i * D] - x[i * D + 2] * x[i * D + 1] + rng.random_range(-0.2..0.2)).collect();
    (Points::dense_f64(n, D, x).unwrap(), labels, reals)
}

fn one() -> Control {
    Control::unlimited(Threads::one())
}

fn tight() -> Stop {
    Stop { tol: Some(1e-5), gap: Some(1e-7) }
}

const CONVEX: [(&str, bool); 16] = [
    ("hinge", true),
    ("smooth-hinge:K=1000000", true),
    ("smooth-hinge:K=20", true),
    ("squared-hinge", true),
    ("power:s=1.5", true),
    ("power:s=3", true),
    ("square", true),
    ("logistic", true),
    ("huber-hinge:delta=0.5", true),
    ("epsilon:epsilon=0.1", false),
    ("squared-epsilon:epsilon=0.1", false),
    ("huber:delta=0.5", false),
    ("absolute", false),
    ("pinball:tau=0.3", false),
    ("expectile:tau=0.2", false),
    ("logcosh", false),
];

#[test]
fn every_convex_loss_is_certified() {
    let (points, labels, reals) = data(90, 11);
    for kernel in [Kernel::Linear, Kernel::rbf(0.8), Kernel::Poly { gamma: 0.5, coef0: 1.0, degree: 3 }] {
        let gram = CpuGram::square(kernel, &points).unwrap();
        for (name, classify) in CONVEX {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            let targets = if classify { &labels } else { &reals };
            for constraint in [Constraint::free_bias(), Constraint::None] {
                for cost in [0.02, 0.5, 50.0] {
                    let costs: Vec<f64> = (0..90).map(|i| cost * [1.0, 0.5, 2.0, 0.0][i % 4]).collect();
                    let problem = KernelProblem::new(&gram, targets, &costs, &*loss, constraint.clone()).unwrap();
                    for linear in [None, Some(&points)] {
                        if linear.is_some() && kernel != Kernel::Linear {
                            continue;
                        }
                        let what = format!("{name} {kernel} {constraint:?} C = {cost} primal {}", linear.is_some());
                        let options = Options { stop: tight(), ..Options::default() };
                        let mut seen = Recorder::default();
                        let end = solve(&problem, linear, &options, &one(), &mut seen).unwrap();
                        let s = &end.solution;
                        let c = certify(&problem, &s.beta, Some(&s.bias), None, &one()).unwrap();
                        let gap = c.relative_gap().expect("convex");
                        assert_eq!(s.status, Status::Optimal, "{what}: gap {gap} violation {}", c.violation());
                        // The certificate adds a bound on rounding, which the solver does not include.
                        let rounding = c.rounding().expect("convex") / c.primal().abs();
                        assert!(gap - rounding <= 1.1e-7, "{what}: relative gap {gap}, rounding {rounding}");
                        let mut before = f64::INFINITY;
                        for step in &seen.steps {
                            let now = step.primal.expect("every step has an objective");
                            assert!(now <= before, "{what}: the objective rose from {before} to {now}");
                            before = now;
                        }
                        // β never leaves its box.
                        for i in 0..90 {
                            if costs[i] == 0.0 {
                                assert_eq!(s.beta[i], 0.0, "{what}");
                                continue;
                            }
                            let (lo, hi) = loss.domain(targets[i]);
                            let room = 1e-12 * costs[i];
                            assert!(s.beta[i] >= -costs[i] * hi - room && s.beta[i] <= -costs[i] * lo + room, "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_first_iteration_is_the_ls_svm() {
    let (points, labels, _) = data(40, 5);
    let gram = CpuGram::square(Kernel::rbf(0.7), &points).unwrap();
    let costs = vec![3.0; 40];
    for constraint in [Constraint::free_bias(), Constraint::None] {
        let hinge = KernelProblem::new(&gram, &labels, &costs, &Hinge, constraint.clone()).unwrap();
        let options = Options { iterations: Some(1), ..Options::default() };
        let first = solve(&hinge, None, &options, &one(), &mut Silent).unwrap();
        assert_eq!(first.solution.status, Status::IterationLimit);
        let square = KernelProblem::new(&gram, &labels, &costs, &Square, constraint).unwrap();
        let ridge = crate::solver::ridge::RidgeOptions::default();
        let ls = crate::solver::ridge::solve(&square, None, &ridge, &one(), &mut Silent).unwrap().solution;
        for (a, b) in first.solution.beta.iter().zip(&ls.beta) {
            assert!((a - b).abs() < 1e-9, "{a} {b}");
        }
        for (a, b) in first.solution.bias.iter().zip(&ls.bias) {
            assert!((a - b).abs() < 1e-9, "{a} {b}");
        }
    }
}

#[test]
fn scores_agree_with_decomposition() {
    let (points, labels, reals) = data(150, 3);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    for (name, classify) in
        [("hinge", true), ("epsilon:epsilon=0.1", false), ("squared-hinge", true), ("huber:delta=0.5", false)]
    {
        let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
        let targets = if classify { &labels } else { &reals };
        let costs = vec![2.0; 150];
        let problem = KernelProblem::new(&gram, targets, &costs, &*loss, Constraint::free_bias()).unwrap();
        let a = solve(&problem, None, &Options { stop: tight(), ..Options::default() }, &one(), &mut Silent).unwrap();
        let stop = decomposition::Options { stop: tight(), ..decomposition::Options::default() };
        let b = decomposition::solve(&problem, &stop, &one(), &mut Silent).unwrap();
        let z = |beta: &[f64], bias: f64| {
            let mut f = vec![0.0; 150];
            gram.apply(crate::gram::Precision::Double, crate::gram::Pick::All, beta, 1, &mut f, &one()).unwrap();
            f.into_iter().map(|f| f + bias).collect::<Vec<_>>()
        };
        let (za, zb) = (z(&a.solution.beta, a.solution.bias[0]), z(&b.beta, b.bias[0]));
        for (a, b) in za.iter().zip(&zb) {
            assert!((a - b).abs() < 1e-4, "{name}: {a} {b}");
        }
    }
}

#[test]
fn a_custom_hinge_gives_the_solution_of_the_built_in_hinge() {
    let (points, labels, _) = data(80, 9);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let custom =
        CustomLoss::new("custom", true, |y, z| (1.0 - y * z).max(0.0), |y, z| if y * z < 1.0 { -y } else { 0.0 });
    let custom = custom.unwrap();
    let costs = vec![1.0; 80];
    let mut objectives = Vec::new();
    for loss in [&Hinge as &dyn Loss, &custom] {
        let problem = KernelProblem::new(&gram, &labels, &costs, loss, Constraint::free_bias()).unwrap();
        let options = Options { stop: Stop { tol: None, gap: Some(1e-6) }, ..Options::default() };
        let end = solve(&problem, None, &options, &one(), &mut Silent).unwrap();
        assert_eq!(end.solution.status, Status::Optimal, "{}", loss.name());
        objectives.push(end.objective);
    }
    assert!((objectives[0] - objectives[1]).abs() <= 2e-6 * objectives[0], "{objectives:?}");
}

#[test]
fn a_non_convex_loss_ends_at_a_stationary_point_below_its_start() {
    let (points, labels, _) = data(120, 21);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![2.0; 120];
    let hinge = KernelProblem::new(&gram, &labels, &costs, &Hinge, Constraint::free_bias()).unwrap();
    let start = solve(&hinge, None, &Options::default(), &one(), &mut Silent).unwrap().solution;
    for name in
        ["sigmoid:eta=2", "sigmoid:eta=6", "polynomial:s=2,kappa=0.01", "polynomial:s=4,kappa=0.01", "ramp:limit=2"]
    {
        let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
        let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).unwrap();
        let options = Options {
            start: Some(start.beta.clone()),
            start_bias: Some(start.bias[0]),
            stop: Stop { tol: Some(1e-4), gap: None },
            ..Options::default()
        };
        let mut seen = Recorder::default();
        let end = solve(&problem, None, &options, &one(), &mut seen).unwrap();
        let c = certify(&problem, &end.solution.beta, Some(&end.solution.bias), None, &one()).unwrap();
        assert_eq!(end.solution.status, Status::Optimal, "{name}: {}", c.violation());
        assert!(c.gap().is_none() && c.violation() <= 1e-4, "{name}: {}", c.violation());
        assert!(c.primal() <= end.start_objective + 1e-9, "{name}: {} > {}", c.primal(), end.start_objective);
        assert!(seen.steps.windows(2).all(|w| w[1].primal <= w[0].primal), "{name}");
    }
}

/// One feature, a bounded loss and a large cost: a local minimum between any two samples. The result must be the point
/// whose objective is reported, even if the run ends without reaching its tolerance.
#[test]
fn the_returned_point_has_the_reported_objective() {
    for (seed, loss) in [(1, "polynomial:s=2,kappa=0.01"), (2, "sigmoid:eta=3"), (3, "sigmoid:eta=1")] {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let y: Vec<f64> = (0..120).map(|i| if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
        let place = |rng: &mut ChaCha8Rng, i: usize| match i % 12 {
            0 | 3 | 6 | 9 => rng.random_range(0.0..0.5),
            1 | 5 => rng.random_range(0.17..0.23),
            _ => rng.random_range(0.4..1.1),
        };
        let x: Vec<f64> = (0..120).map(|i| place(&mut rng, i)).collect();
        let points = Points::dense_f64(120, 1, x).unwrap();
        let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
        let costs = vec![4096.0; 120];
        let loss = loss.parse::<LossSpec>().unwrap().build().unwrap();
        let problem = KernelProblem::new(&gram, &y, &costs, loss.as_ref(), Constraint::free_bias()).unwrap();
        let options =
            Options { stop: Stop { tol: Some(1e-9), gap: None }, iterations: Some(300), ..Options::default() };
        let two = TwoStep { options, paths: vec![] };
        let end = two_step(&problem, Some(&points), &two, &one(), &mut Silent).unwrap().end;
        let found = certify(&problem, &end.solution.beta, Some(&end.solution.bias), None, &one()).unwrap().primal();
        let slack = 1e-8 * end.objective.abs();
        assert!((found - end.objective).abs() <= slack, "{}: {found} is not {}", loss.name(), end.objective);
        assert!(found <= end.start_objective + slack);
    }
}

/// One binary feature with one mislabelled row, and a bounded loss: the stationary point found lies above the convex
/// start, so the start must be returned.
#[test]
fn no_result_lies_above_its_convex_start() {
    let classes = "221212212222212212112212122222222112122211211112122222222222222222112222122222\
                   212212122112211221222222211111122212222222222212222212122121221121121222";
    let y: Vec<f64> = classes.bytes().map(|class| if class == b'1' { -1.0 } else { 1.0 }).collect();
    let x: Vec<f64> = (0..150).map(|i| if y[i] < 0.0 && i != 135 { 1.0 } else { 0.0 }).collect();
    let points = Points::dense_f64(150, 1, x).unwrap();
    let gram = CpuGram::square(Kernel::Chi2 { gamma: 1.0 }, &points).unwrap();
    let costs = vec![185.3; 150];
    let loss = "polynomial:s=2,kappa=0.01".parse::<LossSpec>().unwrap().build().unwrap();
    let problem = KernelProblem::new(&gram, &y, &costs, loss.as_ref(), Constraint::free_bias()).unwrap();
    let two = TwoStep { options: Options::default(), paths: vec![] };
    let end = two_step(&problem, None, &two, &one(), &mut Silent).unwrap().end;
    let found = certify(&problem, &end.solution.beta, Some(&end.solution.bias), None, &one()).unwrap().primal();
    assert!(found <= end.start_objective * (1.0 + 1e-9), "{found} above {}", end.start_objective);
}

/// Every sample is given twice, at a minimum. Shifting β from one copy to the other does not change the model, but
/// clipping the shifted β to its box would change it for the worse.
#[test]
fn clipping_to_the_box_does_not_degrade_an_accepted_point() {
    let (once, labels, _) = data(40, 31);
    let mut x = vec![0.0; 80 * D];
    (0..80).for_each(|i| once.copy_row(i % 40, &mut x[i * D..(i + 1) * D]));
    let points = Points::dense_f64(80, D, x).unwrap();
    let labels: Vec<f64> = (0..80).map(|i| labels[i % 40]).collect();
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    // Slopes of this sigmoid are ½ at most.
    let (c, edge, shift) = (5.0, 2.5, 2.0);
    let costs = vec![c; 80];
    let loss = "sigmoid:eta=1".parse::<LossSpec>().unwrap().build().unwrap();
    let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).unwrap();
    let two =
        TwoStep { options: Options { stop: Stop { tol: Some(1e-4), gap: None }, ..Options::default() }, paths: vec![] };
    let minimum = two_step(&problem, None, &two, &one(), &mut Silent).unwrap().end.solution;
    assert_eq!(minimum.status, Status::Optimal);
    let uneven: Vec<f64> = (0..80)
        .map(|i| {
            0.5 * (minimum.beta[i] + minimum.beta[(i + 40) % 80]) + labels[i] * if i < 40 { shift } else { -shift }
        })
        .collect();
    let options = Options {
        start: Some(uneven.clone()),
        start_bias: Some(minimum.bias[0]),
        stop: Stop { tol: Some(0.5), gap: None },
        ..Options::default()
    };
    let end = solve(&problem, None, &options, &one(), &mut Silent).unwrap();
    assert_eq!((end.solution.status, end.solution.iterations), (Status::Optimal, 0));
    let primal = |beta: &[f64]| certify(&problem, beta, Some(&minimum.bias), None, &one()).unwrap().primal();
    let (found, slack) = (primal(&end.solution.beta), 1e-9 * end.objective.abs());
    assert!((found - end.objective).abs() <= slack && found <= end.start_objective + slack, "{found}");
    let clipped: Vec<f64> = uneven.iter().map(|b| b.clamp(-edge, edge)).collect();
    assert!(primal(&clipped) > found + 1e-3, "clipping would not have changed the objective");
}

/// Beyond 2 000 samples with cheap entries K is not stored: scores are in single precision during the run, and
/// recomputed for the certificate.
#[test]
fn a_large_problem_is_solved_without_storing_k() {
    let n = 2400;
    let (points, labels, reals) = data(n, 41);
    for (name, targets, cost) in [("hinge", &labels, 1.0), ("epsilon:epsilon=0.3", &reals, 2.0)] {
        let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
        let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
        let costs = vec![cost; n];
        let problem = KernelProblem::new(&gram, targets, &costs, &*loss, Constraint::free_bias()).unwrap();
        // Too little memory for K (46 MB), enough for the systems.
        let options =
            Options { stop: Stop { tol: Some(1e-3), gap: Some(1e-6) }, memory: 60 << 20, ..Options::default() };
        let mut seen = Recorder::default();
        let end = solve(&problem, None, &options, &one(), &mut seen).unwrap();
        let passes = gram.entries() as f64 / (n * n) as f64;
        assert_eq!(end.solution.status, Status::Optimal, "{name}");
        assert!(passes < 5.0, "{name}: {passes} passes over K");
        assert!(seen.steps.windows(2).all(|w| w[1].primal <= w[0].primal), "{name}");
        let (systems, new) = (end.solution.iterations, end.factorisations);
        assert!(systems <= 40 && new <= 6 * systems, "{name}: {systems} systems, {new} new factors");
        let c = certify(&problem, &end.solution.beta, Some(&end.solution.bias), None, &one()).unwrap();
        assert!(c.relative_gap().unwrap() <= 1.1e-6 && (c.primal() - end.objective).abs() < 1e-6 * end.objective);
        let control = Control::unlimited(Threads::new(2));
        let again = solve(&problem, None, &options, &control, &mut Silent).unwrap();
        assert!(again.solution.beta == end.solution.beta, "{name}: results depend on the number of threads");
    }
}

#[test]
fn a_warm_start_from_the_optimum_takes_no_iterations() {
    let (points, labels, _) = data(100, 2);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![1.0; 100];
    for name in ["hinge", "logistic"] {
        let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
        let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).unwrap();
        let stop = Stop { tol: Some(1e-4), gap: Some(1e-6) };
        let first =
            solve(&problem, None, &Options { stop, ..Options::default() }, &one(), &mut Silent).unwrap().solution;
        let options =
            Options { stop, start: Some(first.beta.clone()), start_bias: Some(first.bias[0]), ..Options::default() };
        let again = solve(&problem, None, &options, &one(), &mut Silent).unwrap().solution;
        assert_eq!((again.status, again.iterations), (Status::Optimal, 0), "{name}");
    }
}

#[test]
fn an_exhausted_budget_returns_the_best_point_so_far() {
    let (points, labels, _) = data(100, 2);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![1.0; 100];
    let problem = KernelProblem::new(&gram, &labels, &costs, &Hinge, Constraint::free_bias()).unwrap();
    let late = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::one());
    let end = solve(&problem, None, &Options::default(), &late, &mut Silent).unwrap();
    assert_eq!((end.solution.status, end.solution.beta.len()), (Status::TimeLimit, 100));
    let mut stop = Recorder { stop_after: Some(2), ..Recorder::default() };
    let end = solve(&problem, None, &Options::default(), &one(), &mut stop).unwrap();
    assert_eq!(end.solution.status, Status::Interrupted);
    let c = certify(&problem, &end.solution.beta, Some(&end.solution.bias), None, &one()).unwrap();
    assert!((c.primal() - end.objective).abs() <= 1e-9 * end.objective || c.primal() < end.objective);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (points, labels, _) = data(200, 4);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![1.0; 200];
    for (name, memory) in [("hinge", 2 << 30), ("logistic", 200 * 200)] {
        let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
        let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).unwrap();
        let options = Options { memory, ..Options::default() };
        let beta = |threads: usize| {
            let control = Control::unlimited(Threads::new(threads));
            solve(&problem, None, &options, &control, &mut Silent).unwrap().solution.beta
        };
        assert_eq!(beta(1), beta(3), "{name}");
    }
}

#[test]
fn problems_are_solved_with_too_little_memory_to_factor() {
    let (points, labels, reals) = data(300, 8);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![1.0; 300];
    for (name, classify) in [("logistic", true), ("hinge", true), ("logcosh", false), ("squared-hinge", true)] {
        let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
        let targets = if classify { &labels } else { &reals };
        let problem = KernelProblem::new(&gram, targets, &costs, &*loss, Constraint::free_bias()).unwrap();
        // Memory for 60 × 60 doubles and a few features.
        let options =
            Options { stop: Stop { tol: Some(1e-3), gap: Some(1e-6) }, memory: 8 * 60 * 60, ..Options::default() };
        let end = solve(&problem, None, &options, &one(), &mut Silent).unwrap();
        assert_eq!(end.solution.status, Status::Optimal, "{name}: {}", end.solution.violation);
    }
}

/// Enough samples for a start from a subsample; a wide and a narrow kernel, losses with and without a box.
#[test]
fn many_samples_agree_with_decomposition_for_a_large_k() {
    const N: usize = 700;
    let (points, labels, reals) = data(N, 17);
    let stop = Stop { tol: Some(1e-5), gap: Some(1e-6) };
    for gamma in [0.02, 3.0] {
        let gram = CpuGram::square(Kernel::rbf(gamma), &points).unwrap();
        for (name, classify) in [("hinge", true), ("epsilon:epsilon=0.1", false), ("squared-hinge", true)] {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            let targets = if classify { &labels } else { &reals };
            for constraint in [Constraint::free_bias(), Constraint::None] {
                let costs: Vec<f64> = (0..N).map(|i| [3.0, 1.0, 0.0][i % 3]).collect();
                let problem = KernelProblem::new(&gram, targets, &costs, &*loss, constraint.clone()).unwrap();
                let options = Options { stop, cap: 1e8, ..Options::default() };
                let mut seen = Recorder::default();
                let irwls = solve(&problem, None, &options, &one(), &mut seen).unwrap();
                let options = decomposition::Options { stop, ..decomposition::Options::default() };
                let reference = decomposition::solve(&problem, &options, &one(), &mut Silent).unwrap();
                assert_eq!(irwls.solution.status, Status::Optimal, "{name} {gamma} {constraint:?}");
                assert!(seen.steps.iter().any(|s| s.phase == "subsample"), "{name}");
                assert!(seen.steps.windows(2).all(|w| w[1].primal <= w[0].primal), "{name}");
                let z = |beta: &[f64], bias: &[f64]| {
                    let mut f = vec![0.0; N];
                    gram.apply(crate::gram::Precision::Double, crate::gram::Pick::All, beta, 1, &mut f, &one())
                        .unwrap();
                    f.into_iter().map(|f| f + bias.first().unwrap_or(&0.0)).collect::<Vec<_>>()
                };
                let a = z(&irwls.solution.beta, &irwls.solution.bias);
                let b = z(&reference.beta, &reference.bias);
                let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst < 1e-4, "{name} {gamma} {constraint:?}: {worst}");
            }
        }
    }
}

/// A run under a loss that is not convex returns its lowest point for any iteration limit.
#[test]
fn a_run_that_is_cut_short_returns_its_lowest_point() {
    let (points, labels, _) = data(200, 6);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![20.0; 200];
    let loss = "sigmoid:eta=2".parse::<LossSpec>().unwrap().build().unwrap();
    let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).unwrap();
    let hinge = KernelProblem::new(&gram, &labels, &costs, &Hinge, Constraint::free_bias()).unwrap();
    let start = solve(&hinge, None, &Options::default(), &one(), &mut Silent).unwrap().solution;
    let mut before = f64::INFINITY;
    for limit in 0..60 {
        let options = Options {
            start: Some(start.beta.clone()),
            start_bias: Some(start.bias[0]),
            stop: Stop { tol: Some(1e-9), gap: None },
            iterations: Some(limit),
            ..Options::default()
        };
        let end = solve(&problem, None, &options, &one(), &mut Silent).unwrap();
        let c = certify(&problem, &end.solution.beta, Some(&end.solution.bias), None, &one()).unwrap();
        let difference = (c.primal() - end.objective).abs();
        assert!(difference <= 1e-9 * end.objective, "{limit}: {} {}", c.primal(), end.objective);
        assert!(end.objective <= before.min(end.start_objective), "{limit}: {} {before}", end.objective);
        before = end.objective;
    }
}

#[test]
fn unsupported_problems_are_rejected_with_a_reason() {
    let (points, labels, _) = data(10, 1);
    let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
    let costs = vec![1.0; 10];
    let groups = Constraint::Groups { of: vec![0; 10], sums: vec![0.0] };
    let problem = KernelProblem::new(&gram, &labels, &costs, &Hinge, groups).unwrap();
    let error = solve(&problem, None, &Options::default(), &one(), &mut Silent).unwrap_err().to_string();
    assert!(error.contains("several biases") && error.contains("decomposition"), "{error}");
    assert!(Options { cap: 1.0, ..Options::default() }.check().unwrap_err().to_string().contains("1e4"));
}

#[test]
fn two_steps_improve_on_the_convex_model_and_annealing_does_not_raise_the_objective() {
    let (points, labels, _) = data(120, 33);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![3.0; 120];
    for name in ["sigmoid:eta=4", "polynomial:s=3,kappa=0.01", "ramp:limit=1"] {
        let spec = name.parse::<LossSpec>().unwrap();
        let loss = spec.build().unwrap();
        let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).unwrap();
        let plain = two_step(&problem, None, &TwoStep::default(), &one(), &mut Silent).unwrap();
        // The objective of the convex model under the loss.
        let hinge = KernelProblem::new(&gram, &labels, &costs, &Hinge, Constraint::free_bias()).unwrap();
        let start = decomposition::solve(&hinge, &decomposition::Options::default(), &one(), &mut Silent).unwrap();
        let convex = certify(&problem, &start.beta, Some(&start.bias), None, &one()).unwrap().primal();
        assert!((convex - plain.end.start_objective).abs() < 1e-9 * convex, "{name}");
        assert!(plain.end.objective <= plain.end.start_objective, "{name}");
        let softer: Vec<_> = spec.softer(3).iter().map(|s| s.build().unwrap()).collect();
        let path: Vec<&dyn Loss> = softer.iter().map(|l| l.as_ref()).collect();
        let with_path = TwoStep { paths: vec![path], ..TwoStep::default() };
        let annealed = two_step(&problem, None, &with_path, &one(), &mut Silent).unwrap();
        assert_eq!(annealed.objectives.len(), 2, "{name}");
        assert!(annealed.end.objective <= plain.end.objective, "{name}");
        let least = annealed.objectives.iter().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(annealed.end.objective, least, "{name}");
    }
}

#[test]
fn a_compact_model_changes_scores_by_no_more_than_its_bound() {
    let (points, labels, _) = data(120, 33);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![1.0; 120];
    let loss = "logistic".parse::<LossSpec>().unwrap().build().unwrap();
    let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).unwrap();
    let end = solve(&problem, None, &Options::default(), &one(), &mut Silent).unwrap();
    let small = compact(&problem, &end.solution.beta, 5e-3, &one()).unwrap();
    assert!(small.dropped > 5 && small.dropped < 115, "{}", small.dropped);
    let scores = |beta: &[f64]| {
        let mut f = vec![0.0; 120];
        gram.apply(crate::gram::Precision::Double, crate::gram::Pick::All, beta, 1, &mut f, &one()).unwrap();
        f
    };
    let (before, after) = (scores(&end.solution.beta), scores(&small.beta));
    let worst = before.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!((worst - small.change).abs() < 1e-12 && worst <= small.norm + 1e-12, "{worst} {small:?}");
    let unchanged = compact(&problem, &end.solution.beta, 0.0, &one()).unwrap();
    assert_eq!((unchanged.dropped, unchanged.norm), (0, 0.0));
}
