//! The linear solver against the decomposition solver with the linear kernel, for every convex loss, bias, storage and weighting;
//! and what must hold of any solver. Nothing a solver says of itself is trusted: the certificate decides.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::certificate::{Optimality, certify, certify_l1, certify_linear};
use margrave_core::data::{Csr, Points, Storage};
use margrave_core::gram::{Matrix, Pick};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::observe::{Recorder, Silent};
use margrave_core::problem::{Bias, Constraint, KernelProblem, LinearProblem};
use margrave_core::solver::linear::{LinearSolution, Method, Options, Start, solve, solve_crammer_singer, solve_l1};
use margrave_core::solver::{Stop, decomposition};
use margrave_core::{Budget, Control, Interrupt, Status, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CONVEX: [(&str, bool); 15] = [
    ("hinge", true),
    ("squared-hinge", true),
    ("smooth-hinge:K=50", true),
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
    ("smooth-hinge:K=1000000", true),
];

struct Data {
    dense: Points,
    sparse: Points,
    labels: Vec<f64>,
    reals: Vec<f64>,
}

fn data(seed: u64, n: usize, d: usize) -> Data {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> =
        (0..n * d).map(|_| if rng.random_range(0..3) == 0 { 0.0 } else { rng.random_range(-1.0..2.0) }).collect();
    let truth: Vec<f64> = (0..d).map(|_| rng.random_range(-1.0..1.0)).collect();
    let reals: Vec<f64> =
        (0..n).map(|i| (0..d).map(|j| x[i * d + j] * truth[j]).sum::<f64>() + rng.random_range(-0.5..0.5)).collect();
    let labels = reals.iter().map(|z| if *z > 0.3 { 1.0 } else { -1.0 }).collect();
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in x.chunks(d) {
        for (j, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
            columns.push(j as u32);
            values.push(*v);
        }
        starts.push(columns.len());
    }
    let sparse = Csr::new(d, starts, columns, values).unwrap().into();
    Data { dense: Points::dense_f64(n, d, x).unwrap(), sparse, labels, reals }
}

fn control() -> Control {
    Control::unlimited(Threads::one())
}

fn tight() -> Options {
    Options { stop: Stop { tol: None, gap: Some(1e-8) }, ..Options::default() }
}

fn certified(problem: &LinearProblem<'_>, s: &LinearSolution) -> Optimality {
    certify_linear(problem, &s.weights, s.bias, &s.beta, &control()).unwrap().optimality().expect("convex").clone()
}

fn loss(name: &str) -> std::sync::Arc<dyn Loss> {
    name.parse::<LossSpec>().unwrap().build().unwrap()
}

#[test]
fn every_convex_loss_agrees_with_the_kernel_machine() {
    let (n, d) = (120, 6);
    let data = data(3, n, d);
    let gram = CpuGram::square(Kernel::Linear, &data.dense).unwrap();
    let even = vec![2.0; n];
    let uneven: Vec<f64> = (0..n).map(|i| 5.0 * [1.0, 0.5, 2.0, 0.0][i % 4]).collect();
    for (name, classify) in CONVEX {
        let loss = loss(name);
        let targets = if classify { &data.labels } else { &data.reals };
        for costs in [&even, &uneven] {
            for (bias, constraint) in [(Bias::Free, Constraint::free_bias()), (Bias::None, Constraint::None)] {
                for points in [&data.dense, &data.sparse] {
                    for method in [Method::Newton, Method::Coordinate] {
                        let what = format!("{name} {bias:?} {method:?} sparse {}", points.is_sparse());
                        let matrix = RowMatrix::new(points);
                        let problem = LinearProblem::new(&matrix, targets, costs, &*loss, bias).unwrap();
                        let s = solve(&problem, &Options { method, ..tight() }, &control(), &mut Silent).unwrap();
                        assert_eq!(s.status, Status::Optimal, "{what}: gap {}", s.relative_gap);
                        let o = certified(&problem, &s);
                        assert!(o.relative_gap() <= 1e-7 && o.feasible(), "{what}: {o}");
                        // The kernel certificate of the same β, where w = Xᵀβ to within the gap.
                        let kernel = KernelProblem::new(&gram, targets, costs, &*loss, constraint.clone()).unwrap();
                        if kernel.dual_term(0).is_some() {
                            let options = decomposition::Options {
                                stop: Stop { tol: Some(1e-6), gap: Some(1e-8) },
                                ..decomposition::Options::default()
                            };
                            let other = decomposition::solve(&kernel, &options, &control(), &mut Silent).unwrap();
                            let c = certify(&kernel, &other.beta, None, None, &control()).unwrap();
                            // Either objective lies above the other's lower bound.
                            let (p, q) = (o.primal(), c.primal());
                            assert!((p - q).abs() <= 2e-7 * p.abs().max(1.0), "{what}: {p} and {q}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_penalised_bias_is_one_more_feature() {
    let (n, d) = (90, 4);
    let data = data(5, n, d);
    let scaling = 3.0;
    let mut wide = Vec::new();
    let mut row = vec![0.0; d];
    for i in 0..n {
        data.dense.copy_row(i, &mut row);
        wide.extend_from_slice(&row);
        wide.push(scaling);
    }
    let wide = Points::dense_f64(n, d + 1, wide).unwrap();
    let (narrow, wide) = (RowMatrix::new(&data.dense), RowMatrix::new(&wide));
    let costs = vec![1.5; n];
    for (name, classify) in CONVEX {
        let loss = loss(name);
        let targets = if classify { &data.labels } else { &data.reals };
        for method in [Method::Newton, Method::Coordinate] {
            let options = Options { method, ..tight() };
            let a = LinearProblem::new(&narrow, targets, &costs, &*loss, Bias::Penalised { scaling }).unwrap();
            let b = LinearProblem::new(&wide, targets, &costs, &*loss, Bias::None).unwrap();
            let s = solve(&a, &options, &control(), &mut Silent).unwrap();
            let t = solve(&b, &options, &control(), &mut Silent).unwrap();
            let (p, q) = (certified(&a, &s), certified(&b, &t));
            assert!(p.relative_gap() <= 1e-7 && q.relative_gap() <= 1e-7, "{name}: {p} {q}");
            assert!((p.primal() - q.primal()).abs() <= 2e-7 * p.primal().max(1.0), "{name}: {p} {q}");
            // Strong convexity: ½‖Δw‖² is at most the sum of the gaps.
            let off = (s.bias / scaling - t.weights[d]).abs();
            assert!(off <= 2.0 * (p.gap() + q.gap()).sqrt() + 1e-9, "{name}: off by {off}");
        }
    }
}

#[test]
fn a_sample_twice_is_a_sample_of_double_cost_and_cost_zero_is_none() {
    let (n, d) = (80, 3);
    let data = data(8, n, d);
    let twice: Vec<u32> = (0..n as u32).chain([0, 1]).collect();
    let (once, more) = (RowMatrix::new(&data.dense), RowMatrix::new(&data.dense.gather(&twice)));
    let fewer_rows: Vec<u32> = (2..n as u32).collect();
    let fewer = RowMatrix::new(&data.dense.gather(&fewer_rows));
    for (name, classify) in CONVEX {
        let loss = loss(name);
        let y = if classify { &data.labels } else { &data.reals };
        let y_more: Vec<f64> = twice.iter().map(|&i| y[i as usize]).collect();
        let double: Vec<f64> = (0..n).map(|i| if i < 2 { 2.0 } else { 1.0 }).collect();
        let none: Vec<f64> = (0..n).map(|i| if i < 2 { 0.0 } else { 1.0 }).collect();
        let ones = vec![1.0; n + 2];
        let run = |x: &RowMatrix, y: &[f64], c: &[f64]| {
            let problem = LinearProblem::new(x, y, c, &*loss, Bias::Free).unwrap();
            let s = solve(&problem, &tight(), &control(), &mut Silent).unwrap();
            let o = certified(&problem, &s);
            assert!(o.relative_gap() <= 1e-7, "{name}: {o}");
            o.primal()
        };
        let (a, b) = (run(&once, y, &double), run(&more, &y_more, &ones));
        assert!((a - b).abs() <= 2e-7 * a.max(1.0), "{name}: {a} {b}");
        let (a, b) = (run(&once, y, &none), run(&fewer, &y[2..], &ones[..n - 2]));
        assert!((a - b).abs() <= 2e-7 * a.max(1.0), "{name}: {a} {b}");
    }
}

#[test]
fn a_restart_from_the_optimum_stops_at_once() {
    let data = data(9, 200, 5);
    let matrix = RowMatrix::new(&data.sparse);
    let costs = vec![1.0; 200];
    for (name, classify) in CONVEX {
        let loss = loss(name);
        let y = if classify { &data.labels } else { &data.reals };
        let problem = LinearProblem::new(&matrix, y, &costs, &*loss, Bias::Free).unwrap();
        let s = solve(&problem, &tight(), &control(), &mut Silent).unwrap();
        let start = Some(Start { weights: s.weights.clone(), bias: s.bias, beta: s.beta.clone() });
        let stop = Stop { tol: None, gap: Some(1e-6) };
        let again = solve(&problem, &Options { start, stop, ..tight() }, &control(), &mut Silent).unwrap();
        assert!(again.iterations <= 1, "{name}: {} steps", again.iterations);
        assert_eq!(again.status, Status::Optimal, "{name}");
    }
}

#[test]
fn the_bits_do_not_depend_on_the_threads() {
    let n = 30_000;
    let data = data(10, n, 12);
    let costs = vec![0.7; n];
    for (name, classify) in [("hinge", true), ("squared-hinge", true), ("epsilon", false), ("logistic", true)] {
        let loss = loss(name);
        let y = if classify { &data.labels } else { &data.reals };
        for (points, method) in
            [(&data.dense, Method::Newton), (&data.sparse, Method::Newton), (&data.sparse, Method::Coordinate)]
        {
            let matrix = RowMatrix::new(points);
            let problem = LinearProblem::new(&matrix, y, &costs, &*loss, Bias::Free).unwrap();
            let options = Options { method, stop: Stop { tol: None, gap: Some(1e-6) }, ..Options::default() };
            let run = |threads: usize| {
                let s = solve(&problem, &options, &Control::unlimited(Threads::new(threads)), &mut Silent).unwrap();
                assert_eq!(s.status, Status::Optimal, "{name} {method:?}");
                (s.weights, s.bias, s.beta, s.iterations)
            };
            let one = run(1);
            assert!(one == run(2) && one == run(3), "{name} {method:?}: threads change the answer");
        }
    }
}

#[test]
fn badly_scaled_features_do_no_harm() {
    // Columns from 1e-3 to 1e5, far from the origin, and a large cost: the kernel machine crawls on these.
    let (n, d) = (400, 8);
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let x: Vec<f64> =
        (0..n * d).map(|k| 10f64.powi((k % d) as i32 - 3) * (5.0 + rng.random_range(-1.0..1.0))).collect();
    let y: Vec<f64> = (0..n)
        .map(|i| (x[i * d + 3] - 5.0) + (x[i * d + 5] - 500.0) / 100.0 + rng.random_range(-0.3..0.3))
        .map(|s| if s > 0.0 { 1.0 } else { -1.0 })
        .collect();
    let matrix = RowMatrix::new(&Points::dense_f64(n, d, x).unwrap());
    let costs = vec![1e4; n];
    for name in ["hinge", "squared-hinge", "logistic"] {
        let loss = loss(name);
        let problem = LinearProblem::new(&matrix, &y, &costs, &*loss, Bias::Free).unwrap();
        let options = Options { stop: Stop { tol: None, gap: Some(1e-6) }, ..Options::default() };
        let s = solve(&problem, &options, &control(), &mut Silent).unwrap();
        assert_eq!(s.status, Status::Optimal, "{name}");
        assert!(certified(&problem, &s).relative_gap() <= 1e-6, "{name}");
    }
}

#[test]
fn non_convex_losses_never_end_above_their_start() {
    let data = data(12, 150, 4);
    let matrix = RowMatrix::new(&data.dense);
    let costs = vec![1.0; 150];
    for name in ["sigmoid:eta=2", "ramp", "polynomial:s=2,kappa=0.01"] {
        let loss = loss(name);
        let problem = LinearProblem::new(&matrix, &data.labels, &costs, &*loss, Bias::Free).unwrap();
        let s = solve(&problem, &Options::default(), &control(), &mut Silent).unwrap();
        assert_eq!(s.status, Status::Optimal, "{name}: {}", s.violation);
        let c = certify_linear(&problem, &s.weights, s.bias, &s.beta, &control()).unwrap();
        let start = s.start_objective.expect("there is a convex start");
        assert!(c.primal() <= start * (1.0 + 1e-12), "{name}: {} above {start}", c.primal());
        assert!(c.gap().is_none() && c.violation() <= 1e-2, "{name}: {c}");
    }
}

#[test]
fn budgets_and_observers_end_it_with_a_usable_point() {
    let data = data(13, 3000, 10);
    let matrix = RowMatrix::new(&data.dense);
    let costs = vec![1.0; 3000];
    let hinge = loss("hinge");
    let problem = LinearProblem::new(&matrix, &data.labels, &costs, &*hinge, Bias::Free).unwrap();
    let zero = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::one());
    assert_eq!(solve(&problem, &tight(), &zero, &mut Silent).unwrap().status, Status::TimeLimit);
    for method in [Method::Newton, Method::Coordinate] {
        let options = Options { iterations: Some(2), method, ..tight() };
        let s = solve(&problem, &options, &control(), &mut Silent).unwrap();
        assert_eq!((s.status, s.iterations), (Status::IterationLimit, 2));
        assert!(certified(&problem, &s).gap().is_finite());
        let mut recorder = Recorder { stop_after: Some(1), ..Recorder::default() };
        let s = solve(&problem, &Options { method, ..tight() }, &control(), &mut recorder).unwrap();
        assert_eq!(s.status, Status::Interrupted);
    }
    assert!(LinearProblem::new(&matrix, &data.labels, &costs, &*hinge, Bias::Penalised { scaling: 0.0 }).is_err());
}

#[test]
fn the_l1_penalty_is_certified_by_a_scaled_dual_point() {
    let (n, d) = (150, 20);
    let data = data(30, n, d);
    let costs: Vec<f64> = (0..n).map(|i| 0.2 * [1.0, 0.5, 2.0][i % 3]).collect();
    for name in ["squared-hinge", "logistic", "huber-hinge", "square"] {
        let loss = loss(name);
        let y = if name == "square" { &data.reals } else { &data.labels };
        for bias in [Bias::None, Bias::Free, Bias::Penalised { scaling: 2.0 }] {
            for points in [&data.dense, &data.sparse] {
                let matrix = RowMatrix::new(points);
                let problem = LinearProblem::new(&matrix, y, &costs, &*loss, bias).unwrap();
                let options = Options { stop: Stop { tol: None, gap: Some(1e-7) }, ..Options::default() };
                let s = solve_l1(&problem, &options, &control(), &mut Silent).unwrap();
                assert_eq!(s.status, Status::Optimal, "{name} {bias:?}: {}", s.relative_gap);
                let c = certify_l1(&problem, &s.weights, s.bias, &s.beta, &control()).unwrap();
                let o = c.optimality().unwrap();
                assert!(o.relative_gap() <= 2e-7, "{name} {bias:?}: {o}");
                let zeros = s.weights.iter().filter(|w| **w == 0.0).count();
                assert!(zeros > 0 && zeros < d, "{name} {bias:?}: {zeros} of {d} weights are 0");
                // The optimum of another penalty is not one of this.
                let mut wrong = s.weights.clone();
                wrong.iter_mut().for_each(|w| *w *= 0.9);
                let c = certify_l1(&problem, &wrong, s.bias, &s.beta, &control()).unwrap();
                assert!(c.relative_gap().unwrap() > 1e-5, "{name} {bias:?}");
            }
        }
    }
    let (matrix, hinge) = (RowMatrix::new(&data.dense), loss("hinge"));
    let problem = LinearProblem::new(&matrix, &data.labels, &costs, &*hinge, Bias::None).unwrap();
    let refused = solve_l1(&problem, &tight(), &control(), &mut Silent).unwrap_err().to_string();
    assert!(refused.contains("squared-hinge"), "{refused}");
}

#[test]
fn crammer_and_singer_prove_their_machine() {
    let (n, d) = (120, 5);
    let data = data(31, n, d);
    // Two classes: half of the hinge machine at twice the cost, since w₁ = −w₂ at the optimum.
    let codes: Vec<u32> = data.labels.iter().map(|y| u32::from(*y > 0.0)).collect();
    let costs: Vec<f64> = (0..n).map(|i| [1.0, 0.0, 2.0][i % 3]).collect();
    let double: Vec<f64> = costs.iter().map(|c| 2.0 * c).collect();
    let (matrix, hinge) = (RowMatrix::new(&data.dense), loss("hinge"));
    for bias in [Bias::None, Bias::Penalised { scaling: 1.5 }] {
        let two =
            solve_crammer_singer(&data.sparse, &codes, 2, &costs, bias, &tight(), &control(), &mut Silent).unwrap();
        let problem = LinearProblem::new(&matrix, &data.labels, &double, &*hinge, bias).unwrap();
        let one = certified(&problem, &solve(&problem, &tight(), &control(), &mut Silent).unwrap());
        assert!((two.primal - 0.5 * one.primal()).abs() <= 2e-7 * one.primal(), "{} {}", two.primal, one.primal());
    }
    // Four classes: the objectives by their definition, from W and α alone.
    let k = 4;
    let codes: Vec<u32> = data.reals.iter().map(|z| ((z + 2.0).clamp(0.0, 3.9)) as u32).collect();
    let s =
        solve_crammer_singer(&data.dense, &codes, k, &costs, Bias::None, &tight(), &control(), &mut Silent).unwrap();
    assert!(s.status == Status::Optimal && s.relative_gap() <= 1e-8);
    let (mut loss, mut linear, mut w) = (0.0, 0.0, vec![0.0; d * k]);
    let mut row = vec![0.0; d];
    for i in 0..n {
        data.dense.copy_row(i, &mut row);
        let alpha = &s.alpha[i * k..(i + 1) * k];
        assert!(alpha.iter().sum::<f64>().abs() <= 1e-12 * costs[i].max(1.0));
        let own = codes[i] as usize;
        let score = |m: usize| (0..d).map(|j| row[j] * s.weights[j * k + m]).sum::<f64>();
        let excess = |m: usize| score(m) - score(own) + f64::from(u8::from(m != own));
        loss += costs[i] * (0..k).map(excess).fold(0.0, f64::max);
        for m in 0..k {
            assert!(alpha[m] <= if m == own { costs[i] } else { 0.0 });
            linear += if m == own { 0.0 } else { alpha[m] };
            (0..d).for_each(|j| w[j * k + m] += alpha[m] * row[j]);
        }
    }
    let norm = |w: &[f64]| 0.5 * w.iter().map(|w| w * w).sum::<f64>();
    let (primal, dual) = (norm(&s.weights) + loss, -norm(&w) - linear);
    assert!(primal - dual <= 2e-8 * primal.max(1.0) && primal >= dual - 1e-9, "{primal} {dual}");
    let free = solve_crammer_singer(&data.dense, &codes, k, &costs, Bias::Free, &tight(), &control(), &mut Silent);
    assert!(free.is_err());
}

/// Rows in blocks, as from a file: nothing but products and blocks.
struct Blocked {
    whole: RowMatrix,
    blocks: Vec<Points>,
    size: usize,
}

impl Blocked {
    fn new(points: &Points, size: usize) -> Self {
        let all: Vec<u32> = (0..points.len() as u32).collect();
        Self { whole: RowMatrix::new(points), blocks: all.chunks(size).map(|rows| points.gather(rows)).collect(), size }
    }
}

impl Matrix for Blocked {
    fn rows(&self) -> usize {
        self.whole.rows()
    }
    fn dims(&self) -> usize {
        self.whole.dims()
    }
    fn stored(&self) -> usize {
        self.whole.stored()
    }
    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.whole.dots(rows, w, out, control)
    }
    fn combine(&self, rows: Pick<'_>, c: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.whole.combine(rows, c, out, control)
    }
    fn moments(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        centre: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.whole.moments(rows, weights, centre, first, second, control)
    }
    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.whole.squares(rows, weights, out, control)
    }
    fn blocks(&self) -> usize {
        self.blocks.len()
    }
    fn each_block(
        &self,
        order: &[u32],
        control: &Control,
        work: &mut dyn FnMut(usize, &Points) -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        for &k in order {
            control.check()?;
            work(k as usize * self.size, &self.blocks[k as usize])?;
        }
        Ok(())
    }
}

#[test]
fn rows_in_blocks_reach_the_same_optimum() {
    let data = data(8, 400, 80);
    let costs = vec![0.3; 400];
    for (name, classify) in [("hinge", true), ("squared-hinge", true), ("epsilon:epsilon=0.1", false)] {
        let loss = loss(name);
        let targets = if classify { &data.labels } else { &data.reals };
        for bias in [Bias::Free, Bias::None, Bias::Penalised { scaling: 0.5 }] {
            let method = Method::Coordinate;
            let options = Options { stop: Stop { tol: None, gap: Some(1e-4) }, method, ..Options::default() };
            let blocked = Blocked::new(&data.sparse, 90);
            let problem = LinearProblem::new(&blocked, targets, &costs, &*loss, bias).unwrap();
            let mut recorder = Recorder::default();
            let s = solve(&problem, &options, &control(), &mut recorder).unwrap();
            assert!(s.reason.contains("coordinate"), "{}", s.reason);
            assert!(recorder.steps.iter().any(|step| step.phase == "coordinate"));
            let o = certified(&problem, &s);
            assert!(s.status == Status::Optimal && o.relative_gap() <= 2e-4, "{name} {bias:?}: {o}");
            let matrix = RowMatrix::new(&data.sparse);
            let whole = LinearProblem::new(&matrix, targets, &costs, &*loss, bias).unwrap();
            let exact = certified(&whole, &solve(&whole, &tight(), &control(), &mut Silent).unwrap());
            // Both lie above the optimum, by no more than their gaps.
            assert!(
                (o.primal() - exact.primal()).abs() <= 3e-4 * o.primal(),
                "{name} {bias:?}: {} {}",
                o.primal(),
                exact.primal()
            );
        }
    }
}

#[test]
fn rows_in_blocks_are_sampled_first() {
    let (n, d) = (14_000, 12);
    let data = data(12, n, d);
    let costs = vec![1.0; n];
    let loss = loss("hinge");
    let blocked = Blocked::new(&data.sparse, 700);
    let problem = LinearProblem::new(&blocked, &data.labels, &costs, &*loss, Bias::Free).unwrap();
    let run = |memory: u64| {
        let options = Options { stop: Stop { tol: None, gap: Some(1e-6) }, memory, ..Options::default() };
        let mut recorder = Recorder::default();
        let s = solve(&problem, &options, &control(), &mut recorder).unwrap();
        let o = certified(&problem, &s);
        assert!(s.status == Status::Optimal && o.relative_gap() <= 2e-6, "{memory}: {o}");
        recorder.steps[0].primal.unwrap() / o.primal()
    };
    // With the sample the first look at all rows is near the optimum; 10 kB hold no sample worth having.
    let (sampled, unsampled) = (run(1 << 30), run(10_000));
    assert!(sampled < 1.2 && unsampled > 1.5, "{sampled} and {unsampled}");
}

#[test]
fn columns_nobody_uses_have_weight_zero_and_cost_nothing() {
    let small = data(9, 150, 40);
    let Storage::SparseF64(m) = small.sparse.storage() else { panic!("sparse") };
    let spread: Vec<u32> = m.columns().iter().map(|j| 211 * j + 7).collect();
    let wide: Points = Csr::new(9000, m.starts().to_vec(), spread, m.values().to_vec()).unwrap().into();
    let costs = vec![1.0; 150];
    let loss = loss("hinge");
    let (a, b) = (RowMatrix::new(&small.sparse), RowMatrix::new(&wide));
    let near = LinearProblem::new(&a, &small.labels, &costs, &*loss, Bias::Free).unwrap();
    let far = LinearProblem::new(&b, &small.labels, &costs, &*loss, Bias::Free).unwrap();
    let s = solve(&near, &tight(), &control(), &mut Silent).unwrap();
    let t = solve(&far, &tight(), &control(), &mut Silent).unwrap();
    assert_eq!(t.weights.len(), 9000);
    // The same problem with the same method: the same numbers, in other places.
    (0..40).for_each(|j| assert_eq!(s.weights[j], t.weights[211 * j + 7]));
    assert_eq!(t.weights.iter().filter(|w| **w != 0.0).count(), s.weights.iter().filter(|w| **w != 0.0).count());
    assert!(certified(&far, &t).relative_gap() <= 1e-7);
    let start = Start { weights: t.weights.clone(), bias: t.bias, beta: t.beta.clone() };
    let again = solve(&far, &Options { start: Some(start), ..tight() }, &control(), &mut Silent).unwrap();
    assert!(again.iterations <= 1, "{}", again.iterations);
}
