//! Chains of problems that a device solves side by side, by their transcription for the processor.

use margrave_core::backend::{Backend, Device};
use margrave_core::data::{Dataset, Points, Targets};
use margrave_core::gram::{ChainLink, ChainPoint, ChainSolver, Gram, Matrix, Pick, Precision, ProblemChain, uniform};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{DualTerm, LossSpec};
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem, Task};
use margrave_core::solver::Stop;
use margrave_core::solver::decomposition::{ProcessorChains, at_point};
use margrave_core::train::TrainOptions;
use margrave_core::train::tune::{Grid, Tuned, Tuner};
use margrave_core::{Control, Result, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The processor with a solver of chains. `lossy`: it claims less than it reaches, as a device that runs out of steps.
#[derive(Debug)]
struct Chained {
    lossy: bool,
}

impl ChainSolver for Chained {
    fn solve(
        &self,
        points: &Points,
        kernels: &[Kernel],
        chains: &[ProblemChain],
        control: &Control,
    ) -> Option<Vec<Vec<ChainPoint>>> {
        let mut found = ProcessorChains.solve(points, kernels, chains, control)?;
        if self.lossy {
            for (at, point) in found.iter_mut().flatten().enumerate().filter(|(at, _)| at % 3 != 0) {
                point.reached = false;
                point.beta.iter_mut().for_each(|b| *b *= if at % 2 == 0 { 0.9 } else { 0.0 });
            }
        }
        Some(found)
    }
}

impl Backend for Chained {
    fn name(&self) -> &'static str {
        "chained"
    }
    fn gram(&self, kernel: Kernel, rows: &Points, cols: &Points) -> Result<Box<dyn Gram>> {
        Device::Cpu.backend().gram(kernel, rows, cols)
    }
    fn square_gram(&self, kernel: Kernel, points: &Points) -> Result<Box<dyn Gram>> {
        Device::Cpu.backend().square_gram(kernel, points)
    }
    fn matrix(&self, points: &Points) -> Box<dyn Matrix> {
        Device::Cpu.backend().matrix(points)
    }
    fn chains(&self) -> Option<&dyn ChainSolver> {
        Some(self)
    }
}

static CHAINED: Chained = Chained { lossy: false };
static LOSSY: Chained = Chained { lossy: true };

fn control() -> Control {
    Control::unlimited(Threads::one())
}

/// Points in the plane, and a noisy function of them as label or target.
fn planar(n: usize, classes: u32, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> = (0..2 * n).map(|_| rng.random_range(-2.0..2.0)).collect();
    let y = x.chunks(2).map(|x| {
        let s = x[0] * x[1] + rng.random_range(-0.7..0.7);
        match classes {
            0 => s,
            2 => f64::from(u8::from(s > 0.0)),
            _ => f64::from(u8::from(s > -1.0) + u8::from(s > 1.0)),
        }
    });
    let y = y.collect();
    (x, y)
}

#[test]
fn links_end_at_points_that_the_engine_accepts() {
    let n = 240;
    for (name, classes) in [("hinge", 2), ("squared-hinge", 2), ("epsilon:epsilon=0.1", 0)] {
        let (x, mut y) = planar(n, classes, 3);
        if classes == 2 {
            y.iter_mut().for_each(|y| *y = 2.0 * *y - 1.0);
        }
        let points = Points::dense_f64(n, 2, x).unwrap();
        let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
        let kernels = [Kernel::rbf(0.5), Kernel::Laplacian { gamma: 0.3 }];
        let costs = |c: f64| -> Vec<f64> { (0..n).map(|i| if i % 5 == 0 { 0.0 } else { c }).collect() };
        let fixed = DualTerm { p: 0.0, eps: 0.0, d: 0.0, lo: 0.0, hi: 0.0 };
        let link = |c: f64, ratio: f64| {
            let own = costs(c);
            let term = |i: usize| if own[i] == 0.0 { fixed } else { loss.dual(y[i], own[i]).unwrap() };
            let terms: Vec<DualTerm> = (0..n).map(term).collect();
            assert!(uniform(&terms).is_some());
            ChainLink { terms, ratio, tol: 0.95e-3 }
        };
        let values = [0.1, 1.0, 4.0];
        let chain = |kernel| {
            let links =
                values.iter().enumerate().map(|(at, &c)| link(c, if at == 0 { 1.0 } else { c / values[at - 1] }));
            ProblemChain { kernel, links: links.collect(), steps: 60, more: 20_000 }
        };
        let chains = [chain(0), chain(1)];
        let found = ProcessorChains.solve(&points, &kernels, &chains, &control()).unwrap();
        for (chain, found) in chains.iter().zip(&found) {
            let gram = Device::Cpu.backend().square_gram(kernels[chain.kernel], &points).unwrap();
            for (c, point) in values.iter().zip(found) {
                let what = format!("{name}, {}, C = {c}", kernels[chain.kernel]);
                assert!(point.reached, "{what}: {} steps", point.steps);
                let mut scores = vec![0.0; n];
                gram.apply(Precision::Double, Pick::All, &point.beta, 1, &mut scores, &control()).unwrap();
                let off = scores.iter().zip(&point.scores).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(off < 1e-4, "{what}: scores off by {off}");
                let own = costs(*c);
                let problem = KernelProblem::new(gram.as_ref(), &y, &own, &*loss, Constraint::free_bias()).unwrap();
                let stop = Stop { tol: Some(1e-3), gap: None };
                let solution = at_point(&problem, &point.beta, &point.scores, stop).unwrap();
                assert!(solution.is_some_and(|s| s.violation <= 1e-3), "{what}");
                // Anything else is refused.
                let wrong: Vec<f64> = point.beta.iter().map(|b| 0.5 * b).collect();
                assert!(at_point(&problem, &wrong, &point.scores, stop).unwrap().is_none_or(|s| s.violation <= 1e-3));
                let half: Vec<f64> = point.scores.iter().map(|f| 0.5 * f).collect();
                assert!(at_point(&problem, &wrong, &half, stop).unwrap().is_none(), "{what}");
            }
        }
    }
}

#[test]
fn terms_that_differ_from_row_to_row_are_left_to_the_engine() {
    let term = |eps: f64, d: f64| DualTerm { p: 1.0, eps, d, lo: -1.0, hi: 1.0 };
    assert_eq!(uniform(&[term(0.1, 2.0), term(0.1, 2.0)]), Some((0.1, 2.0)));
    assert_eq!(uniform(&[term(0.1, 2.0), term(0.2, 2.0)]), None);
    assert_eq!(uniform(&[term(0.1, 2.0), term(0.1, 3.0)]), None);
    assert_eq!(uniform(&[]), None);
}

fn search(device: Device, task: Task, classes: u32, race: Option<f64>) -> Tuned {
    let n = 200;
    let (x, y) = planar(n, classes, 8);
    let data = Dataset::new(Points::dense_f64(n, 2, x).unwrap(), Targets::Real(y)).unwrap();
    let mut options = TrainOptions::new(task);
    (options.device, options.threads) = (device, Threads::new(2));
    let gammas = vec![0.01, 0.1, 0.5, 2.0, 8.0];
    let grid = Grid { gammas, costs: vec![0.1, 1.0, 10.0, 200.0], ..Grid::default() };
    let tuner = Tuner { race, ..Tuner::new(options, grid) };
    tuner.search(&data, &mut Silent).unwrap()
}

#[test]
fn a_search_on_a_device_finds_what_a_search_here_finds() {
    for (task, classes) in [(Task::Classify, 2), (Task::Classify, 3), (Task::Regress, 0)] {
        let here = search(Device::Cpu, task, classes, None);
        for device in [Device::Backend(&CHAINED), Device::Backend(&LOSSY)] {
            let there = search(device, task, classes, None);
            let what = format!("{task:?}, {classes} classes, {device}");
            assert_eq!((here.cells.len(), here.status), (there.cells.len(), there.status), "{what}");
            for (a, b) in here.cells.iter().zip(&there.cells) {
                assert_eq!((&a.params, a.folds.len()), (&b.params, b.folds.len()), "{what}");
                for (p, q) in a.folds.iter().zip(&b.folds) {
                    // A held-out row of 40 may lie on a boundary that two solutions within the tolerance draw differently.
                    let most = if classes == 0 { 0.02 * p.abs().max(0.05) } else { 0.0251 };
                    assert!((p - q).abs() <= most, "{what}: {:?} {p} {q}", a.params);
                }
            }
        }
        // All trainings are done at once there: nothing is dropped.
        let raced = search(Device::Backend(&CHAINED), task, classes, Some(4.0));
        assert!(raced.best.is_some() && here.best.is_some());
        assert!(raced.cells.iter().all(|cell| !cell.dropped && cell.folds.len() == 5), "{task:?}, {classes} classes");
    }
}
