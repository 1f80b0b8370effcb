//! The first phases of the linear solver: averaged starts of Newton's method, and dual coordinate descent on losses without a dual
//! term. Rows in any order, any number of threads, and counts of iterations.

use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::certificate::{Optimality, certify_linear};
use margrave_core::data::{Csr, Points};
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::observe::{Recorder, Silent};
use margrave_core::problem::{Bias, LinearProblem};
use margrave_core::solver::Stop;
use margrave_core::solver::linear::{LinearSolution, Method, Options, solve};
use margrave_core::{Control, Status, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

type Row = (Vec<u32>, f64);

/// Rows of a bag of words: frequent words have low numbers, and a rare positive class prefers some of them.
fn bag_of_words(n: usize, d: usize, width: usize, seed: u64) -> Vec<Row> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n)
        .map(|_| {
            let label = if rng.random_range(0..10) == 0 { 1.0 } else { -1.0 };
            let mut words: Vec<u32> = (0..width)
                .map(|_| {
                    let rare: f64 = rng.random_range(0.0..1.0);
                    let word = ((d as f64).powf(rare) - 1.0) as u32;
                    let own = (word % 7 == 3) == (label > 0.0);
                    if own || rng.random_range(0..3) == 0 { word } else { (word + 1).min(d as u32 - 1) }
                })
                .collect();
            words.sort_unstable();
            words.dedup();
            (words, label)
        })
        .collect()
}

fn points(rows: &[Row], d: usize) -> (Points, Vec<f64>) {
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for (words, _) in rows {
        columns.extend_from_slice(words);
        values.extend(words.iter().map(|_| 1.0 / (words.len() as f64).sqrt()));
        starts.push(columns.len());
    }
    (Csr::new(d, starts, columns, values).unwrap().into(), rows.iter().map(|r| r.1).collect())
}

fn loss(name: &str) -> std::sync::Arc<dyn Loss> {
    name.parse::<LossSpec>().unwrap().build().unwrap()
}

struct Run {
    solution: LinearSolution,
    proof: Optimality,
}

fn run(rows: &[Row], d: usize, loss_name: &str, cost: f64, bias: Bias, method: Method, threads: usize) -> Run {
    let (points, targets) = points(rows, d);
    let costs = vec![cost; targets.len()];
    let (matrix, loss) = (RowMatrix::new(&points), loss(loss_name));
    let problem = LinearProblem::new(&matrix, &targets, &costs, &*loss, bias).unwrap();
    let options = Options { stop: Stop { tol: None, gap: Some(1e-6) }, method, ..Options::default() };
    let control = Control::unlimited(Threads::new(threads));
    let solution = solve(&problem, &options, &control, &mut Silent).unwrap();
    let certificate = certify_linear(&problem, &solution.weights, solution.bias, &solution.beta, &control).unwrap();
    let proof = certificate.optimality().expect("convex").clone();
    assert_eq!(solution.status, Status::Optimal, "{loss_name} C {cost} {bias:?}: {proof}");
    assert!(proof.relative_gap() <= 2e-6, "{loss_name} C {cost} {bias:?}: {proof}");
    Run { solution, proof }
}

#[test]
fn the_order_of_rows_hardly_changes_the_work() {
    for (d, name) in [(200, "squared-hinge"), (200, "logistic"), (3000, "logistic"), (3000, "squared-hinge")] {
        let rows = bag_of_words(6000, d, 12, 5);
        let mut sorted = rows.clone();
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
        let reversed: Vec<Row> = sorted.iter().rev().cloned().collect();
        let twice: Vec<Row> = rows.iter().flat_map(|row| [row.clone(), row.clone()]).collect();
        let plain = run(&rows, d, name, 1.0, Bias::Penalised { scaling: 1.0 }, Method::Auto, 2);
        for (what, order, cost) in [("sorted", &sorted, 1.0), ("reversed", &reversed, 1.0), ("twice", &twice, 0.5)] {
            let other = run(order, d, name, cost, Bias::Penalised { scaling: 1.0 }, Method::Auto, 2);
            let (a, b) = (plain.proof.primal(), other.proof.primal());
            assert!((a - b).abs() <= 4e-6 * a.abs(), "{d} {name} {what}: {a} and {b}");
            let (a, b) = (plain.solution.iterations as f64, other.solution.iterations as f64);
            assert!(b <= 1.5 * a + 2.0, "{d} {name} {what}: {b} iterations, {a} in the given order");
        }
    }
}

#[test]
fn newton_needs_few_steps_from_an_averaged_epoch() {
    let rows = bag_of_words(20_000, 300, 12, 6);
    for (name, most) in [("squared-hinge", 12), ("logistic", 10)] {
        let run = run(&rows, 300, name, 1.0, Bias::Penalised { scaling: 1.0 }, Method::Auto, 2);
        assert!(run.solution.iterations <= most, "{name}: {} iterations", run.solution.iterations);
    }
}

#[test]
fn losses_without_a_dual_term_descend_on_many_features() {
    let rows = bag_of_words(1500, 3000, 40, 7);
    for cost in [0.01, 1.0, 100.0] {
        for bias in [Bias::Penalised { scaling: 1.0 }, Bias::Free, Bias::None] {
            let descent = run(&rows, 3000, "logistic", cost, bias, Method::Auto, 2);
            let reason = &descent.solution.reason;
            assert!(reason.contains("coordinate descent"), "{reason}");
            let newton = run(&rows, 3000, "logistic", cost, bias, Method::Newton, 2);
            let (a, b) = (descent.proof.primal(), newton.proof.primal());
            assert!((a - b).abs() <= 4e-6 * a.abs(), "C {cost} {bias:?}: {a}, by Newton {b}");
        }
    }
}

#[test]
fn starts_have_the_same_bits_for_any_number_of_threads() {
    for (n, d, name) in [(9000, 150, "squared-hinge"), (9000, 150, "logistic"), (3000, 2500, "logistic")] {
        let rows = bag_of_words(n, d, 15, 8);
        let one = run(&rows, d, name, 1.0, Bias::Free, Method::Auto, 1);
        for threads in [2, 3] {
            let other = run(&rows, d, name, 1.0, Bias::Free, Method::Auto, threads);
            assert_eq!(one.solution.weights, other.solution.weights, "{d} {name}, {threads} threads");
            assert_eq!(one.solution.beta, other.solution.beta, "{d} {name}, {threads} threads");
            assert_eq!(one.solution.iterations, other.solution.iterations);
            let bounds = |o: &Optimality| (o.primal(), o.dual(), o.violation());
            assert_eq!(bounds(&one.proof), bounds(&other.proof), "{d} {name}, {threads} threads");
        }
    }
}

#[test]
fn descent_reaches_the_violation_of_a_smooth_loss_by_itself() {
    // The gap asked for holds long before the violation, which falls with its square root.
    let rows = bag_of_words(1200, 3000, 30, 11);
    let mut sorted = rows.clone();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let twice: Vec<Row> = rows.iter().flat_map(|row| [row.clone(), row.clone()]).collect();
    for (name, rows) in [("mixed", &rows), ("sorted", &sorted), ("twice", &twice)] {
        for bias in [Bias::Penalised { scaling: 1.0 }, Bias::None] {
            let (points, targets) = points(rows, 3000);
            let costs = vec![1.0; targets.len()];
            let (matrix, loss) = (RowMatrix::new(&points), loss("squared-hinge"));
            let problem = LinearProblem::new(&matrix, &targets, &costs, &*loss, bias).unwrap();
            let options = Options { stop: Stop { tol: Some(1e-4), gap: Some(1e-6) }, ..Options::default() };
            let (control, mut recorder) = (Control::unlimited(Threads::one()), Recorder::default());
            let s = solve(&problem, &options, &control, &mut recorder).unwrap();
            let certificate = certify_linear(&problem, &s.weights, s.bias, &s.beta, &control).unwrap();
            let proof = certificate.optimality().expect("convex").clone();
            assert!(s.status == Status::Optimal && proof.violation() <= 1.01e-4, "{name} {bias:?}: {proof}");
            assert!(proof.relative_gap() <= 1e-6, "{name} {bias:?}: {proof}");
            assert!(
                recorder.steps.iter().all(|step| step.phase != "newton"),
                "{name} {bias:?}: {} steps",
                s.iterations
            );
        }
    }
}
