use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::backend::cpu::CpuGram;
use crate::certificate::certify;
use crate::control::{Budget, Threads};
use crate::data::Points;
use crate::gram::Gram;
use crate::kernel::Kernel;
use crate::loss::LossSpec;
use crate::problem::Constraint;

struct PlanarData {
    points: Points,
    targets: Vec<f64>,
    costs: Vec<f64>,
}

/// `n` points in the plane with a noisy function of them as label or target; rows from `train` on have no cost.
fn planar_data(n: usize, train: usize, cost: f64, regression: bool, seed: u64) -> PlanarData {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f64> = (0..2 * n).map(|_| rng.random_range(-2.0..2.0)).collect();
    let targets = values
        .chunks(2)
        .map(|x| {
            let s = x[0] * x[1] + rng.random_range(-0.5..0.5);
            if regression { s } else { s.signum() }
        })
        .collect();
    let costs = (0..n).map(|i| if i < train { cost } else { 0.0 }).collect();
    PlanarData { points: Points::dense_f64(n, 2, values).unwrap(), targets, costs }
}

fn matrix(points: &Points) -> StoredGram {
    let gram = CpuGram::square(Kernel::rbf(0.7), points).unwrap();
    StoredGram::new(&gram, &Control::unlimited(Threads::one())).unwrap()
}

fn control() -> Control {
    Control::unlimited(Threads::one())
}

/// The relative gap minus the bound on the rounding of entries that are stored in single precision.
fn without_rounding(proof: &crate::certificate::Certificate) -> f64 {
    let o = proof.optimality().expect("a convex loss");
    (o.gap() - o.rounding()) / o.primal().abs()
}

#[test]
fn answers_are_optimal_for_every_kind_of_term_with_and_without_bias() {
    for (loss, regression) in [("hinge", false), ("squared-hinge", false), ("epsilon:epsilon=0.1", true)] {
        for constraint in [Constraint::free_bias(), Constraint::None] {
            for (train, cost) in [(400, 1.0), (300, 50.0), (150, 0.2)] {
                let PlanarData { points, targets, costs } = planar_data(400, train, cost, regression, 5);
                let stored = matrix(&points);
                let view = stored.without(0, 0);
                let loss = loss.parse::<LossSpec>().unwrap().build().unwrap();
                let problem = KernelProblem::new(&view, &targets, &costs, &*loss, constraint.clone()).unwrap();
                let stop = Stop { tol: Some(1e-3), gap: Some(1e-6) };
                let found =
                    resident(&problem, &stored, stop, &[], 64 << 20, &mut Scratch::default(), &control()).unwrap();
                assert_eq!(found.status, Status::Optimal);
                assert!(found.beta[train..].iter().all(|b| *b == 0.0));
                let proof = certify(&problem, &found.beta, None, None, &control()).unwrap();
                assert!(without_rounding(&proof) <= 2e-6, "{proof}");
                // Scores of all rows, held-out ones included.
                let mut f = vec![0.0; 400];
                let exact = crate::gram::Precision::Double;
                view.apply(exact, crate::gram::Pick::All, &found.beta, 1, &mut f, &control()).unwrap();
                for (a, b) in f.iter().zip(found.scores.as_ref().unwrap()) {
                    assert!((a - b).abs() < 1e-9 * cost.max(1.0), "{a} {b}");
                }
            }
        }
    }
}

#[test]
fn a_start_from_another_cost_saves_steps_and_changes_nothing() {
    let PlanarData { points, targets, costs } = planar_data(500, 400, 1.0, false, 9);
    let stored = matrix(&points);
    let view = stored.without(0, 0);
    let loss = LossSpec::Hinge.build().unwrap();
    let stop = Stop { tol: Some(1e-4), gap: None };
    let first = KernelProblem::new(&view, &targets, &costs, &*loss, Constraint::free_bias()).unwrap();
    let first = resident(&first, &stored, stop, &[], 64 << 20, &mut Scratch::default(), &control()).unwrap();
    let larger: Vec<f64> = costs.iter().map(|c| 4.0 * c).collect();
    let problem = KernelProblem::new(&view, &targets, &larger, &*loss, Constraint::free_bias()).unwrap();
    let cold = resident(&problem, &stored, stop, &[], 64 << 20, &mut Scratch::default(), &control()).unwrap();
    let known: Vec<f64> = first.beta.iter().map(|b| 4.0 * b).collect();
    let scores = first.scores.unwrap().iter().map(|f| 4.0 * f).collect();
    let warm = Warm { guesses: vec![known.clone(), first.beta.clone()], known, scores };
    let warm = resident(&problem, &stored, stop, &[warm], 64 << 20, &mut Scratch::default(), &control()).unwrap();
    assert!(warm.iterations < cold.iterations, "{} {}", warm.iterations, cold.iterations);
    for (a, b) in cold.scores.unwrap().iter().zip(&warm.scores.unwrap()) {
        assert!((a - b).abs() < 0.05, "{a} {b}");
    }
    // From the solution itself nothing is left to do.
    let again = Warm { known: cold.beta.clone(), scores: vec![], guesses: vec![cold.beta.clone()] };
    let mut f = vec![0.0; 500];
    view.apply(crate::gram::Precision::Double, crate::gram::Pick::All, &cold.beta, 1, &mut f, &control()).unwrap();
    let again = resident(
        &problem,
        &stored,
        stop,
        &[Warm { scores: f, ..again }],
        64 << 20,
        &mut Scratch::default(),
        &control(),
    )
    .unwrap();
    assert!(again.iterations <= 2, "{}", again.iterations);
}

#[test]
fn a_deadline_ends_it_with_the_current_point() {
    let PlanarData { points, targets, costs } = planar_data(2000, 2000, 1e4, false, 3);
    let stored = matrix(&points);
    let view = stored.without(0, 0);
    let loss = LossSpec::Hinge.build().unwrap();
    let problem = KernelProblem::new(&view, &targets, &costs, &*loss, Constraint::free_bias()).unwrap();
    let late = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::one());
    let found =
        resident(&problem, &stored, Stop { tol: Some(1e-9), gap: None }, &[], 64 << 20, &mut Scratch::default(), &late)
            .unwrap();
    assert_eq!(found.status, Status::TimeLimit);
    assert_eq!(found.scores.unwrap().len(), 2000);
}

#[test]
fn the_polish_saves_steps_where_pairs_are_slow() {
    // Smooth kernels and large costs: K over the free variables is badly conditioned. Rounding decides the steps of a single
    // problem, so several are added up and compared with second-order pairs alone.
    for (gamma, cost) in [(0.05, 1e3), (0.1, 1e4)] {
        let (mut with, mut without) = (0, 0);
        for seed in 11..17 {
            let PlanarData { points, targets, costs } = planar_data(400, 400, cost, false, seed);
            let gram = CpuGram::square(Kernel::rbf(gamma), &points).unwrap();
            let stored = StoredGram::new(&gram, &control()).unwrap();
            let view = stored.without(0, 0);
            let loss = LossSpec::Hinge.build().unwrap();
            let problem = KernelProblem::new(&view, &targets, &costs, &*loss, Constraint::free_bias()).unwrap();
            let stop = Stop { tol: Some(1e-3), gap: None };
            let found = resident(&problem, &stored, stop, &[], 64 << 20, &mut Scratch::default(), &control()).unwrap();
            assert_eq!(found.status, Status::Optimal);
            let proof = certify(&problem, &found.beta, None, None, &control()).unwrap();
            assert!(without_rounding(&proof) <= 1e-3, "{proof}");
            let pairs = Options { stop, polish: false, ..Options::default() };
            let pairs = crate::solver::decomposition::solve(&problem, &pairs, &control(), &mut Silent).unwrap();
            (with, without) = (with + found.iterations, without + pairs.iterations);
        }
        assert!(4 * with <= 3 * without, "{with} steps with the polish, {without} without");
    }
}
