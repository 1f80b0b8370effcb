//! The order of the rows is of no importance: files come sorted by class, by target or by date.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::certify;
use margrave_core::data::Points;
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem};
use margrave_core::solver::{Stop, decomposition};
use margrave_core::{Control, Status, Threads};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// More rows than a block holds.
const N: usize = 4500;
const D: usize = 4;

/// What a training took and found.
struct Ended {
    dual: f64,
    primal: f64,
    iterations: u64,
    entries: u64,
}

fn train(x: &[f64], y: &[f64], order: &[usize], loss: &str, cost: f64) -> Ended {
    let rows: Vec<f64> = order.iter().flat_map(|&i| x[i * D..(i + 1) * D].iter().copied()).collect();
    let targets: Vec<f64> = order.iter().map(|&i| y[i]).collect();
    let points = Points::dense_f64(N, D, rows).unwrap();
    let gram = CpuGram::square(Kernel::rbf(0.5), &points).unwrap();
    let loss = loss.parse::<LossSpec>().unwrap().build().unwrap();
    let costs = vec![cost; N];
    let problem = KernelProblem::new(&gram, &targets, &costs, &*loss, Constraint::free_bias()).unwrap();
    let options =
        decomposition::Options { stop: Stop { tol: Some(1e-3), gap: None }, ..decomposition::Options::default() };
    let control = Control::unlimited(Threads::new(2));
    let solved = decomposition::solve(&problem, &options, &control, &mut Silent).unwrap();
    assert_eq!(solved.status, Status::Optimal);
    let entries = margrave_core::gram::Gram::entries(&gram);
    let proof = certify(&problem, &solved.beta, None, None, &control).unwrap();
    let proof = proof.optimality().expect("a convex loss");
    Ended { dual: proof.dual(), primal: proof.primal(), iterations: solved.iterations, entries }
}

/// Orders by name.
fn orders(y: &[f64], rng: &mut ChaCha8Rng) -> Vec<(&'static str, Vec<usize>)> {
    let mut shuffled: Vec<usize> = (0..N).collect();
    shuffled.shuffle(rng);
    let mut sorted = shuffled.clone();
    sorted.sort_by(|&a, &b| y[a].total_cmp(&y[b]));
    let reversed: Vec<usize> = sorted.iter().rev().copied().collect();
    let half = N / 2;
    let interleaved: Vec<usize> = (0..half).flat_map(|i| [sorted[i], sorted[half + i]]).collect();
    // One of the other class, then everything as it was sorted.
    let mut alone = sorted.clone();
    alone.swap(0, N - 1);
    vec![
        ("shuffled", shuffled),
        ("sorted", sorted),
        ("reversed", reversed),
        ("interleaved", interleaved),
        ("one alone", alone),
    ]
}

#[test]
fn any_order_takes_the_same_work_and_finds_the_same_machine() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let x: Vec<f64> = (0..N * D).map(|_| rng.random_range(-1.0..1.0)).collect();
    for (loss, cost, share) in [("hinge", 1.0, 0.5), ("hinge", 50.0, 0.1), ("epsilon:epsilon=0.1", 10.0, 0.0)] {
        let y: Vec<f64> = (0..N)
            .map(|i| {
                let row = &x[i * D..(i + 1) * D];
                let f = (3.0 * row[0]).sin() + row[1] * row[2] + 0.3 * rng.random_range(-1.0..1.0);
                match share > 0.0 {
                    true if f > 1.2 * (0.5 - share) => 1.0,
                    true => -1.0,
                    false => f,
                }
            })
            .collect();
        let ended: Vec<(&str, Ended)> =
            orders(&y, &mut rng).into_iter().map(|(name, order)| (name, train(&x, &y, &order, loss, cost))).collect();
        let best = ended.iter().map(|(_, e)| e.dual).fold(f64::NEG_INFINITY, f64::max);
        let least = ended.iter().map(|(_, e)| e.iterations).min().unwrap();
        let fewest = ended.iter().map(|(_, e)| e.entries).min().unwrap();
        for (name, e) in &ended {
            // The best value lies between any dual and any primal.
            assert!(e.primal >= best - 1e-9 * best.abs(), "{loss} {name}: {} below {best}", e.primal);
            let (steps, entries) = (e.iterations as f64 / least as f64, e.entries as f64 / fewest as f64);
            assert!(steps <= 2.0, "{loss} {name}: {steps} × the steps of the quickest order");
            assert!(entries <= 1.5, "{loss} {name}: {entries} × the kernel entries of the quickest order");
        }
    }
}
