//! Every dual loss × kernel × bias: the decomposition solver's answer is optimal by a certificate that shares no code with
//! it, and other solvers agree on the objective and the scores.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::{certify, scores};
use margrave_core::data::Points;
use margrave_core::gram::Gram;
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem};
use margrave_core::solver::{Stop, decomposition, irwls};
use margrave_core::{Control, Status, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const N: usize = 90;
const D: usize = 3;

fn points(seed: u64) -> (Points, Vec<f64>, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> = (0..N * D).map(|_| rng.random_range(0.0..2.0)).collect();
    let labels = (0..N)
        .map(|i| {
            let clean = x[i * D] + (3.0 * x[i * D + 1]).sin() > 1.0;
            if clean != (rng.random_range(0.0..1.0) < 0.1) { 1.0 } else { -1.0 }
        })
        .collect();
    let reals = (0..N).map(|i| x[i * D] - x[i * D + 2] * x[i * D + 1] + rng.random_range(-0.2..0.2)).collect();
    (Points::dense_f64(N, D, x).unwrap(), labels, reals)
}

const LOSSES: [(&str, bool); 9] = [
    ("hinge", true),
    ("squared-hinge", true),
    ("smooth-hinge:K=50", true),
    ("epsilon:epsilon=0.1", false),
    ("squared-epsilon:epsilon=0.1", false),
    ("square", false),
    ("huber:delta=0.5", false),
    ("absolute", false),
    ("pinball:tau=0.3", false),
];

fn kernels() -> Vec<Kernel> {
    vec![
        Kernel::Linear,
        Kernel::rbf(0.8),
        Kernel::Poly { gamma: 0.5, coef0: 1.0, degree: 3 },
        Kernel::Laplacian { gamma: 0.5 },
        Kernel::Matern32 { gamma: 0.4 },
        Kernel::Matern52 { gamma: 0.4 },
        Kernel::Chi2 { gamma: 0.6 },
    ]
}

#[test]
fn every_loss_kernel_and_bias_is_certified() {
    let (points, labels, reals) = points(11);
    let control = Control::unlimited(Threads::one());
    for kernel in kernels() {
        let gram = CpuGram::square(kernel, &points).unwrap();
        for (name, classify) in LOSSES {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            let targets = if classify { &labels } else { &reals };
            for constraint in [Constraint::free_bias(), Constraint::None] {
                for cost in [0.2, 20.0] {
                    let costs: Vec<f64> = (0..N).map(|i| cost * [1.0, 0.5, 2.0, 0.0][i % 4]).collect();
                    let problem = KernelProblem::new(&gram, targets, &costs, &*loss, constraint.clone()).unwrap();
                    let options = decomposition::Options {
                        stop: Stop { tol: Some(1e-6), gap: Some(1e-8) },
                        ..decomposition::Options::default()
                    };
                    let what = format!("{name} {kernel} {constraint:?} C = {cost}");
                    let s = decomposition::solve(&problem, &options, &control, &mut Silent).unwrap();
                    assert_eq!(s.status, Status::Optimal, "{what}: violation {}", s.violation);
                    // Nothing of the solver's is trusted but β.
                    let c = certify(&problem, &s.beta, None, None, &control).unwrap();
                    let c = c.optimality().expect("convex").clone();
                    assert!(c.relative_gap() <= 1e-7, "{what}: relative gap {}", c.relative_gap());
                    assert!(c.feasible(), "{what}: infeasible by {}", c.infeasibility());
                    assert!(c.violation() <= 1e-5, "{what}: violation {}", c.violation());
                    let options =
                        irwls::Options { stop: Stop { tol: None, gap: Some(1e-7) }, ..irwls::Options::default() };
                    let other = irwls::solve(&problem, None, &options, &control, &mut Silent).unwrap();
                    assert_eq!(other.solution.status, Status::Optimal, "{what}: IRWLS");
                    let off = (other.objective - c.primal()).abs() / c.primal().abs().max(1.0);
                    assert!(off <= 3e-7, "{what}: IRWLS is off by {off}");
                    // A perturbed answer must be caught.
                    let mut broken = s.beta.clone();
                    let k = (0..N).max_by(|&a, &b| broken[a].abs().total_cmp(&broken[b].abs())).unwrap();
                    broken[k] *= 0.5;
                    let b = certify(&problem, &broken, None, None, &control).unwrap();
                    let caught = b.optimality().unwrap().gap();
                    assert!(
                        caught > 10.0 * c.gap().max(1e-12),
                        "{what}: gap {caught} after breaking β[{k}], {} before",
                        c.gap()
                    );
                }
            }
        }
    }
}

#[test]
fn a_duplicated_sample_is_a_doubled_cost_and_zero_cost_is_removal() {
    let (all, labels, _) = points(12);
    let control = Control::unlimited(Threads::one());
    let loss = "hinge".parse::<LossSpec>().unwrap().build().unwrap();
    let scores = |rows: &[u32], costs: &[f64]| {
        let part = all.gather(rows);
        let targets: Vec<f64> = rows.iter().map(|&i| labels[i as usize]).collect();
        let gram = CpuGram::square(Kernel::rbf(0.8), &part).unwrap();
        let problem = KernelProblem::new(&gram, &targets, costs, &*loss, Constraint::free_bias()).unwrap();
        let options =
            decomposition::Options { stop: Stop { tol: Some(1e-8), gap: None }, ..decomposition::Options::default() };
        let s = decomposition::solve(&problem, &options, &control, &mut Silent).unwrap();
        let model = margrave_core::model::Expansion::of_training(Kernel::rbf(0.8), &part, &s.beta, s.bias).unwrap();
        model.scores(&all, margrave_core::gram::Precision::Double, &control).unwrap()
    };
    let once: Vec<u32> = (0..N as u32).collect();
    let twice: Vec<u32> = once.iter().copied().chain([3, 7, 7]).collect();
    let mut costs = vec![1.0; N];
    costs[3] = 2.0;
    costs[7] = 3.0;
    let (a, b) = (scores(&once, &costs), scores(&twice, &vec![1.0; N + 3]));
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6));
    costs[5] = 0.0;
    let without: Vec<u32> = (0..N as u32).filter(|&i| i != 5).collect();
    let rest: Vec<f64> = without.iter().map(|&i| costs[i as usize]).collect();
    let (a, b) = (scores(&once, &costs), scores(&without, &rest));
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6));
}

#[test]
fn budgets_end_it_with_a_usable_answer() {
    let (points, labels, _) = points(13);
    let gram = CpuGram::square(Kernel::rbf(0.8), &points).unwrap();
    let costs = vec![100.0; N];
    let loss = "hinge".parse::<LossSpec>().unwrap().build().unwrap();
    let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).unwrap();
    let control = Control::unlimited(Threads::one());
    let options = decomposition::Options { iterations: Some(5), polish: false, ..decomposition::Options::default() };
    let s = decomposition::solve(&problem, &options, &control, &mut Silent).unwrap();
    assert_eq!((s.status, s.iterations), (Status::IterationLimit, 5));
    let c = certify(&problem, &s.beta, Some(&s.bias), None, &control).unwrap();
    assert!(c.optimality().unwrap().feasible());
    // Resumed without a limit it ends where an uninterrupted run does.
    let resumed = decomposition::Options { start: Some(s.beta), ..decomposition::Options::default() };
    let s = decomposition::solve(&problem, &resumed, &control, &mut Silent).unwrap();
    assert_eq!(s.status, Status::Optimal);
    assert!(gram.entries() > 0);
}

/// More variables than a block holds, so that rounds, shrinking, narrowing and rows kept or computed again all take part; with
/// little memory blocks are small and rounds many.
#[test]
fn many_rounds_of_blocks_end_certified_and_do_not_depend_on_threads() {
    const MANY: usize = 3000;
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    // Wide points make entries dear enough to be kept, narrow ones do not.
    for (dims, gamma) in [(4usize, 0.7), (200, 0.01)] {
        let x: Vec<f64> = (0..MANY * dims).map(|_| rng.random_range(-1.0..1.0)).collect();
        let clean = |i: usize| (2.0 * x[i * dims]).sin() + x[i * dims + 1] * x[i * dims + 2];
        let reals: Vec<f64> = (0..MANY).map(|i| clean(i) + rng.random_range(-0.3..0.3)).collect();
        let labels: Vec<f64> = reals.iter().map(|r| if *r > 0.0 { 1.0 } else { -1.0 }).collect();
        let points = Points::dense_f64(MANY, dims, x.clone()).unwrap();
        let costs = vec![3.0; MANY];
        for (name, targets, constraint, memory) in [
            ("hinge", &labels, Constraint::free_bias(), 2u64 << 30),
            ("hinge", &labels, Constraint::free_bias(), 12 << 20),
            ("hinge", &labels, Constraint::None, 12 << 20),
            ("epsilon:epsilon=0.2", &reals, Constraint::free_bias(), 12 << 20),
            ("squared-hinge", &labels, Constraint::free_bias(), 2 << 30),
        ] {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            let mut first: Option<Vec<f64>> = None;
            for threads in [2, 1] {
                let gram = CpuGram::square(Kernel::rbf(gamma), &points).unwrap();
                let problem = KernelProblem::new(&gram, targets, &costs, &*loss, constraint.clone()).unwrap();
                let options = decomposition::Options {
                    stop: Stop { tol: Some(1e-3), gap: None },
                    memory,
                    ..decomposition::Options::default()
                };
                let control = Control::unlimited(Threads::new(threads));
                let s = decomposition::solve(&problem, &options, &control, &mut Silent).unwrap();
                let what = format!("{name} {constraint:?} {dims} features, {memory} bytes, {threads} threads");
                assert_eq!(s.status, Status::Optimal, "{what}: violation {}", s.violation);
                let fresh = certify(&problem, &s.beta, None, None, &control).unwrap();
                let fresh = fresh.optimality().unwrap();
                assert!(fresh.violation() <= 1.01e-3, "{what}: violation {}", fresh.violation());
                assert!(fresh.relative_gap() <= 1e-3 * 3.0, "{what}: gap {}", fresh.relative_gap());
                // The solver's own scores are those of its β; where β = 0 and the loss is certainly zero, to single precision.
                let exact = scores(&problem, &s.beta, &control).unwrap();
                let size = exact.values().iter().fold(1.0f64, |m, f| m.max(f.abs()));
                for (own, f) in s.scores.as_deref().unwrap_or(exact.values()).iter().zip(exact.values()) {
                    assert!((own - f).abs() <= 1e-4 * size, "{what}: {own} for {f}");
                }
                match &first {
                    None => first = Some(s.beta),
                    Some(beta) => assert!(beta == &s.beta, "{what}: other bits than with two"),
                }
            }
        }
    }
}
