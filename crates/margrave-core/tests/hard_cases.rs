//! Problems on which other programs run for ever or stop silently. Each must end optimal, well inside its budget.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::certify;
use margrave_core::data::Points;
use margrave_core::gram::KeptGram;
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem, Setup};
use margrave_core::solver::{Solution, Stop, decomposition};
use margrave_core::{Budget, Control, Status, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Trains with a budget far above what is needed, and far below for ever.
fn train(kernel: Kernel, d: usize, x: Vec<f64>, y: &[f64], c: f64, loss: &str) -> Solution {
    train_with(kernel, d, x, y, c, loss, Constraint::free_bias())
}

fn train_with(
    kernel: Kernel,
    d: usize,
    x: Vec<f64>,
    y: &[f64],
    c: f64,
    loss: &str,
    constraint: Constraint,
) -> Solution {
    let points = Points::dense_f64(y.len(), d, x).unwrap();
    let gram = CpuGram::square(kernel, &points).unwrap();
    let costs = vec![c; y.len()];
    let loss = loss.parse::<LossSpec>().unwrap().build().unwrap();
    let problem = KernelProblem::new(&gram, y, &costs, &*loss, constraint).unwrap();
    let budget = Budget { seconds: Some(60.0), ..Budget::default() };
    let control = Control::start(&budget, Threads::one());
    let solution = decomposition::solve(&problem, &decomposition::Options::default(), &control, &mut Silent).unwrap();
    assert!(solution.beta.iter().all(|b| b.is_finite()), "{:?}", solution.beta);
    for (i, b) in solution.beta.iter().enumerate() {
        let t = problem.dual_term(i).unwrap();
        assert!(*b >= t.lo && *b <= t.hi, "β[{i}] = {b} outside [{}, {}]", t.lo, t.hi);
    }
    solution
}

fn optimal(solution: &Solution) {
    assert_eq!(
        solution.status,
        Status::Optimal,
        "violation {} after {} steps",
        solution.violation,
        solution.iterations
    );
    assert!(solution.violation <= 1e-3);
}

fn noisy(n: usize, d: usize, scale: f64, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> = (0..n * d).map(|_| scale * rng.random_range(-1.0..1.0)).collect();
    let y = (0..n)
        .map(|i| {
            let clean = x[i * d] + 0.5 * x[i * d + 1 % d] > 0.0;
            if clean != (rng.random_range(0.0..1.0) < 0.1) { 1.0 } else { -1.0 }
        })
        .collect();
    (x, y)
}

#[test]
fn huge_nearly_equal_features_under_a_polynomial() {
    for c in [1.0, 100.0] {
        let kernel = Kernel::Poly { gamma: 1.0, coef0: 0.0, degree: 2 };
        optimal(&train(kernel, 2, vec![1.0, 99999.0, 2.0, 99999.0], &[-1.0, 1.0], c, "hinge"));
    }
}

#[test]
fn unscaled_linear_at_large_cost() {
    let (mut x, y) = noisy(200, 5, 1.0, 1);
    for (k, v) in x.iter_mut().enumerate() {
        *v *= [1.0, 10.0, 100.0, 1e3, 1e4][k % 5];
    }
    optimal(&train(Kernel::Linear, 5, x.clone(), &y, 1e4, "hinge"));
    // Far from the origin the kernel matrix itself is rounded to worthless differences (trainers centre such data
    // first): the solver must say so, and soon.
    x.iter_mut().for_each(|v| *v += 1e7);
    let solution = train(Kernel::Linear, 5, x, &y, 1e4, "hinge");
    assert!(matches!(solution.status, Status::Optimal | Status::Stalled), "{}", solution.status);
}

#[test]
fn duplicates_with_flipped_labels() {
    let (x, _) = noisy(10, 3, 1.0, 2);
    let all: Vec<f64> = x.iter().copied().cycle().take(1000 * 3).collect();
    let y: Vec<f64> = (0..1000).map(|i| if (i / 10) % 2 == 0 { 1.0 } else { -1.0 }).collect();
    optimal(&train(Kernel::rbf(1.0), 3, all.clone(), &y, 1.0, "hinge"));
    optimal(&train(Kernel::Linear, 3, all, &y, 100.0, "hinge"));
}

#[test]
fn all_points_identical() {
    let y: Vec<f64> = (0..50).map(|i| if i % 3 == 0 { 1.0 } else { -1.0 }).collect();
    for kernel in [Kernel::rbf(1.0), Kernel::Linear] {
        optimal(&train(kernel, 2, [1.0, 2.0].repeat(50), &y, 1.0, "hinge"));
        optimal(&train(kernel, 2, [1.0, 2.0].repeat(50), &y, 1.0, "epsilon:epsilon=0.1"));
    }
}

#[test]
fn two_points_by_hand() {
    // Linear, x = ±1, y = ±1: w = 1, β = ±½, b = 0.
    let solution = train(Kernel::Linear, 1, vec![-1.0, 1.0], &[-1.0, 1.0], 10.0, "hinge");
    optimal(&solution);
    assert!((solution.beta[1] - 0.5).abs() < 1e-9 && (solution.beta[0] + 0.5).abs() < 1e-9, "{:?}", solution.beta);
    assert!(solution.bias[0].abs() < 1e-9);
}

#[test]
fn constant_features() {
    let y: Vec<f64> = (0..30).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let x: Vec<f64> = (0..30).flat_map(|i| [7.0, f64::from(i)]).collect();
    optimal(&train(Kernel::rbf(0.5), 2, x.clone(), &y, 1.0, "hinge"));
    optimal(&train(Kernel::Linear, 2, x, &y, 1.0, "hinge"));
}

#[test]
fn extreme_costs_and_widths() {
    let (x, y) = noisy(150, 4, 1.0, 3);
    for c in [1e-8, 1.0, 1e8] {
        for gamma in [1e-8, 1.0, 1e8] {
            let solution = train(Kernel::rbf(gamma), 4, x.clone(), &y, c, "hinge");
            assert_eq!(solution.status, Status::Optimal, "C = {c}, γ = {gamma}, violation {}", solution.violation);
        }
        optimal(&train(Kernel::Linear, 4, x.clone(), &y, c, "hinge"));
    }
}

#[test]
fn an_indefinite_kernel() {
    let (x, y) = noisy(150, 4, 1.0, 4);
    for c in [1.0, 100.0] {
        optimal(&train(Kernel::Sigmoid { gamma: 1.0, coef0: -1.0 }, 4, x.clone(), &y, c, "hinge"));
    }
}

#[test]
fn every_dual_loss_with_and_without_bias() {
    let (x, y) = noisy(120, 3, 1.0, 5);
    let real: Vec<f64> = (0..120).map(|i| x[i * 3] + 0.3 * x[i * 3 + 1].sin()).collect();
    let losses = [
        ("hinge", &y),
        ("squared-hinge", &y),
        ("smooth-hinge:K=100", &y),
        ("epsilon:epsilon=0.1", &real),
        ("squared-epsilon:epsilon=0.1", &real),
        ("square", &real),
        ("huber:delta=0.5", &real),
        ("absolute", &real),
        ("pinball:tau=0.3", &real),
    ];
    for (loss, target) in losses {
        for kernel in [Kernel::rbf(0.7), Kernel::Linear, Kernel::Poly { gamma: 1.0, coef0: 1.0, degree: 3 }] {
            for constraint in [Constraint::free_bias(), Constraint::None] {
                for c in [0.1, 10.0] {
                    let solution = train_with(kernel, 3, x.clone(), target, c, loss, constraint.clone());
                    assert_eq!(
                        solution.status,
                        Status::Optimal,
                        "{loss} {kernel} {constraint:?} C = {c}: violation {}, {} steps",
                        solution.violation,
                        solution.iterations
                    );
                }
            }
        }
    }
}

#[test]
fn a_restart_from_the_optimum_stops_at_once() {
    let (x, y) = noisy(200, 4, 1.0, 6);
    let points = Points::dense_f64(200, 4, x).unwrap();
    let gram = CpuGram::square(Kernel::rbf(0.5), &points).unwrap();
    let costs = vec![10.0; 200];
    let loss = "hinge".parse::<LossSpec>().unwrap().build().unwrap();
    let problem = KernelProblem::new(&gram, &y, &costs, &*loss, Constraint::free_bias()).unwrap();
    let control = Control::unlimited(Threads::one());
    let first = decomposition::solve(&problem, &decomposition::Options::default(), &control, &mut Silent).unwrap();
    let options = decomposition::Options { start: Some(first.beta.clone()), ..decomposition::Options::default() };
    let second = decomposition::solve(&problem, &options, &control, &mut Silent).unwrap();
    assert_eq!(second.iterations, 0);
    assert_eq!(second.beta, first.beta);
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let (x, y) = noisy(600, 6, 1.0, 7);
    let points = Points::dense_f64(600, 6, x).unwrap();
    let costs = vec![5.0; 600];
    let loss = "hinge".parse::<LossSpec>().unwrap().build().unwrap();
    let mut answers = Vec::new();
    for threads in [1, 2, 3] {
        let gram = CpuGram::square(Kernel::rbf(0.5), &points).unwrap();
        let problem = KernelProblem::new(&gram, &y, &costs, &*loss, Constraint::free_bias()).unwrap();
        let control = Control::unlimited(Threads::new(threads));
        let options = decomposition::Options::default();
        answers.push(decomposition::solve(&problem, &options, &control, &mut Silent).unwrap().beta);
    }
    assert!(answers[0] == answers[1] && answers[1] == answers[2]);
}

/// Threads share the pair steps of blocks of at least 2 048 variables by stretches.
#[test]
fn shared_pair_steps_have_the_same_bits_on_any_number_of_threads() {
    let n = 4500;
    let (x, y) = noisy(n, 3, 1.0, 11);
    let points = Points::dense_f64(n, 3, x).unwrap();
    let wave: Vec<f64> = (0..n).map(|i| (0.01 * i as f64).sin() + 0.2 * y[i]).collect();
    let cost = |loss: &str, targets: &[f64]| {
        let loss = loss.parse::<LossSpec>().unwrap().build().unwrap();
        Setup::regress(targets, None, 0.3, loss, true).unwrap()
    };
    let nu = Setup::nu_classify(&y, None, 0.4).unwrap();
    for setup in [cost("hinge", &y), cost("huber:delta=0.05", &wave), cost("epsilon:epsilon=0.1", &wave), nu] {
        let answers = [1, 2, 4].map(|threads| {
            let gram = CpuGram::square(Kernel::rbf(1.0), &points).unwrap();
            let control = Control::unlimited(Threads::new(threads));
            let options = decomposition::Options::default();
            let solve = |problem: &KernelProblem<'_>| decomposition::solve(problem, &options, &control, &mut Silent);
            let solution = setup.with(&gram, solve).unwrap();
            (solution.beta, solution.iterations, solution.status)
        });
        assert_eq!(answers[0].2, Status::Optimal);
        assert!(answers[0].1 > 100, "{} steps", answers[0].1);
        assert!(answers[0] == answers[1] && answers[1] == answers[2]);
    }
}

/// Solves a ν-problem with a linear kernel of fewer features than samples to a relative gap of 1e-6. Small matrices are kept in
/// memory, as in a training; the limit on steps switches the interior-point method off, which would hide a fault of the others.
fn singular(setup: &Setup, d: usize, x: Vec<f64>) {
    let points = Points::dense_f64(x.len() / d, d, x).unwrap();
    let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
    let control = Control::start(&Budget { seconds: Some(60.0), ..Budget::default() }, Threads::one());
    let gram = KeptGram::new(&gram, &control).unwrap().expect("a small matrix");
    let stop = Stop { tol: Some(1e-5), gap: Some(1e-6) };
    let options = decomposition::Options { stop, iterations: Some(10_000_000), ..decomposition::Options::default() };
    setup
        .with(&gram, |problem| {
            let solution = decomposition::solve(problem, &options, &control, &mut Silent)?;
            let certificate = certify(problem, &solution.beta, None, None, &control)?;
            let gap = certificate.relative_gap().unwrap();
            assert!(gap <= 1e-6, "{:?}, {certificate:?}", solution.status);
            Ok(())
        })
        .unwrap();
}

#[test]
fn nu_regression_with_a_singular_kernel() {
    // Pair steps approach these optima ever more slowly; the Newton rounds meet a K over the free variables of rank d.
    for (n, d, scale, c, nu) in [(126, 19, 0.4, 709.0, 0.77), (130, 14, 60.0, 0.066, 0.39), (204, 12, 12.0, 0.9, 0.57)]
    {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let x: Vec<f64> = (0..n * d).map(|_| scale * normal(&mut rng)).collect();
        let y: Vec<f64> = (0..n).map(|i| x[i * d] / scale + 0.3 * normal(&mut rng)).collect();
        singular(&Setup::nu_regress(&y, None, c, nu).unwrap(), d, x);
    }
}

#[test]
fn nu_regression_of_features_of_different_size() {
    let (n, d) = (160, 8);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let sizes: Vec<f64> = (0..d).map(|_| 10f64.powf(rng.random_range(-2.0..2.0))).collect();
    let x: Vec<f64> = (0..n * d).map(|k| sizes[k % d] * normal(&mut rng)).collect();
    let y: Vec<f64> = (0..n).map(|i| x[i * d] / sizes[0] + 0.3 * normal(&mut rng)).collect();
    singular(&Setup::nu_regress(&y, None, 0.0745, 0.57).unwrap(), d, x);
}

/// A standard normal number, by the sum of twelve uniform ones.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0
}
