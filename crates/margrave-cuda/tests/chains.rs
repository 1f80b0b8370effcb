//! Chains of problems on a card beside their transcription for the processor.

use margrave_core::control::{Control, Threads};
use margrave_core::data::Points;
use margrave_core::gram::{ChainLink, ChainSolver, ProblemChain};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{DualTerm, LossSpec};
use margrave_core::solver::decomposition::ProcessorChains;
use margrave_testkit::points;

/// A chain of costs for a loss; every fifth row is held out.
fn chain(points: &Points, loss: &str, kernel: usize, costs: &[f64], steps: u64) -> ProblemChain {
    let loss = loss.parse::<LossSpec>().expect("a loss").build().expect("a loss");
    let fixed = DualTerm { p: 0.0, eps: 0.0, d: 0.0, lo: 0.0, hi: 0.0 };
    let mut row = vec![0.0; points.dims()];
    let mut target = |i: usize| {
        points.copy_row(i, &mut row);
        if row[0] * row[1] + 0.3 * row[2] + 0.2 * ((i % 7) as f64 - 3.0) > 0.0 { 1.0 } else { -1.0 }
    };
    let targets: Vec<f64> = (0..points.len()).map(&mut target).collect();
    let term =
        |i: usize, c: f64| if i.is_multiple_of(5) { fixed } else { loss.dual(targets[i], c).expect("a dual term") };
    let link = |at: usize| ChainLink {
        terms: (0..points.len()).map(|i| term(i, costs[at])).collect(),
        ratio: if at == 0 { 1.0 } else { costs[at] / costs[at - 1] },
        tol: 1e-3,
    };
    ProblemChain { kernel, links: (0..costs.len()).map(link).collect(), steps, more: 30_000 }
}

#[test]
fn chains_end_where_their_transcription_ends() {
    let Some(backend) = crate::card() else { return };
    let control = Control::unlimited(Threads::new(4));
    let kernels = [Kernel::rbf(0.2), Kernel::Laplacian { gamma: 0.1 }];
    // One, four and six rows a thread; most links end before they reach their violation, and go on later.
    for (n, costs) in [(700, vec![0.1, 1.0, 8.0]), (3100, vec![0.5, 2.0]), (6000, vec![0.5])] {
        let points = points::dense(n, 5, 9);
        let mut chains = Vec::new();
        for loss in ["hinge", "squared-hinge", "epsilon:epsilon=0.1"] {
            chains.extend((0..2).map(|kernel| chain(&points, loss, kernel, &costs, 500)));
        }
        let there = backend.solve(&points, &kernels, &chains, &control).expect("chains that the card solves");
        let again = backend.solve(&points, &kernels, &chains, &control).expect("chains that the card solves");
        let here = ProcessorChains.solve(&points, &kernels, &chains, &control).expect("chains");
        for (((chain, there), here), again) in chains.iter().zip(&there).zip(&here).zip(&again) {
            for (((link, a), b), c) in chain.links.iter().zip(there).zip(here).zip(again) {
                assert!(a.reached && b.reached, "{n} rows: {} and {} steps", a.steps, b.steps);
                assert_eq!((&a.beta, &a.scores, a.steps), (&c.beta, &c.scores, c.steps), "repeated runs differ");
                let objective = |p: &margrave_core::gram::ChainPoint| -> f64 {
                    let one = |i: usize| {
                        let (t, b) = (&link.terms[i], p.beta[i]);
                        0.5 * b * p.scores[i] + t.p * b + t.eps * b.abs() + 0.5 * t.d * b * b
                    };
                    (0..n).map(one).sum()
                };
                let (p, q) = (objective(a), objective(b));
                assert!((p - q).abs() <= 1e-3 * p.abs().max(1.0), "{n} rows: objectives {p} and {q}");
                let sum: f64 = a.beta.iter().sum();
                assert!(sum.abs() < 1e-7, "Σβ = {sum}");
                let inside = a.beta.iter().zip(&link.terms).all(|(b, t)| *b >= t.lo && *b <= t.hi);
                assert!(inside, "β leaves its box");
            }
        }
    }
    assert_eq!(backend.failure(), None);
}
