//! Trainings on a card: `margrave-bench-gpu [--device NAME] [--most ROWS] [--only TEXT] [--reps N]
//! [--seconds S] [--stop tol|gap] [--phases yes]`.
//!
//! Draws its own data, trains each problem to a KKT violation of 1e-3 and to a certified relative gap of 1e-6, and prints the
//! wall-clock seconds of whole trainings (points copied to the card, certificate included): the first run in the process,
//! and the least of the others. The program needs no files and no Rust: build it elsewhere, strip it, and copy it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::time::Instant;

use margrave::engine::control::Status;
use margrave::engine::observe::{Begin, Observer, Step};
use margrave::engine::solver::Stop;
use margrave::{Budget, Dataset, Kernel, Points, Svm, Targets};
use margrave_cuda::DeviceName;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

type Failure = Box<dyn std::error::Error>;

/// Data and parameters of one line of the table.
struct Cell {
    data: &'static str,
    n: usize,
    gamma: f64,
    cost: f64,
}

const fn cell(data: &'static str, n: usize, gamma: f64, cost: f64) -> Cell {
    Cell { data, n, gamma, cost }
}

const CELLS: &[Cell] = &[
    cell("gauss16", 20_000, 0.02, 1.0),
    cell("gauss16", 20_000, 0.02, 100.0),
    cell("gauss16", 100_000, 0.02, 1.0),
    cell("gauss16", 100_000, 0.02, 100.0),
    cell("checker", 50_000, 2.0, 10.0),
    cell("sine", 20_000, 0.05, 10.0),
    cell("gauss16", 20_000, 0.001, 1000.0),
    cell("gauss16", 400_000, 0.02, 1.0),
    cell("gauss16", 400_000, 0.02, 100.0),
    cell("gauss16", 1_000_000, 0.02, 1.0),
    cell("gauss16", 1_000_000, 0.02, 100.0),
];

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Every column to mean 0 and variance 1.
fn standardise(x: &mut [f64], d: usize) {
    let n = (x.len() / d) as f64;
    for k in 0..d {
        let mean = x.iter().skip(k).step_by(d).sum::<f64>() / n;
        let square = x.iter().skip(k).step_by(d).map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        x.iter_mut().skip(k).step_by(d).for_each(|v| *v = (*v - mean) / square.sqrt());
    }
}

/// Sixteen clouds in 50 dimensions, alternating classes, 3 % of the labels turned.
fn gauss16(n: usize) -> (Vec<f64>, Vec<f64>, usize) {
    let (d, mut rng) = (50, ChaCha8Rng::seed_from_u64(1));
    let centres: Vec<f64> = (0..16 * d).map(|_| normal(&mut rng)).collect();
    let (mut x, mut y) = (Vec::with_capacity(n * d), Vec::with_capacity(n));
    for _ in 0..n {
        let k = rng.random_range(0..16usize);
        x.extend((0..d).map(|j| centres[k * d + j] + normal(&mut rng)));
        let label = if k % 2 == 0 { 1.0 } else { -1.0 };
        y.push(if rng.random_bool(0.03) { -label } else { label });
    }
    standardise(&mut x, d);
    (x, y, d)
}

/// A board of 4 × 4 squares, turned into 20 dimensions, 5 % of the labels turned.
fn checker(n: usize) -> (Vec<f64>, Vec<f64>, usize) {
    let (d, mut rng) = (20, ChaCha8Rng::seed_from_u64(2));
    let mut axes: Vec<Vec<f64>> = (0..2).map(|_| (0..d).map(|_| normal(&mut rng)).collect()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let along = dot(&axes[0], &axes[1]) / dot(&axes[0], &axes[0]);
    for k in 0..d {
        axes[1][k] -= along * axes[0][k];
    }
    let lengths: Vec<f64> = axes.iter().map(|a| dot(a, a).sqrt()).collect();
    let (mut x, mut y) = (Vec::with_capacity(n * d), Vec::with_capacity(n));
    for _ in 0..n {
        let (u, v) = (rng.random_range(0.0..4.0f64), rng.random_range(0.0..4.0f64));
        for k in 0..d {
            let plane = (u - 2.0) * axes[0][k] / lengths[0] + (v - 2.0) * axes[1][k] / lengths[1];
            x.push(plane + 0.03 * normal(&mut rng));
        }
        let label = if (u.floor() + v.floor()) % 2.0 == 0.0 { 1.0 } else { -1.0 };
        y.push(if rng.random_bool(0.05) { -label } else { label });
    }
    (x, y, d)
}

/// Regression: waves in 20 dimensions with noise.
fn sine(n: usize) -> (Vec<f64>, Vec<f64>, usize) {
    let (d, mut rng) = (20, ChaCha8Rng::seed_from_u64(3));
    let (mut x, mut y) = (Vec::with_capacity(n * d), Vec::with_capacity(n));
    for _ in 0..n {
        let row: Vec<f64> = (0..d).map(|_| normal(&mut rng)).collect();
        y.push((2.0 * row[0]).sin() + row[1] * row[2] + 0.1 * normal(&mut rng));
        x.extend(row);
    }
    (x, y, d)
}

/// Counts rounds on the card and other steps, and when they were.
struct Rounds(usize, usize, Instant, Vec<(&'static str, f64)>);

impl Rounds {
    fn new() -> Self {
        Self(0, 0, Instant::now(), Vec::new())
    }

    /// Notes when a phase was first and last heard of.
    fn hear(&mut self, phase: &'static str) {
        let now = self.2.elapsed().as_secs_f64();
        match self.3.iter_mut().rev().take(1).find(|(name, _)| *name == phase) {
            Some((_, at)) => *at = now,
            None => self.3.push((phase, now)),
        }
    }
}

impl Observer for Rounds {
    fn begin(&mut self, _: &Begin) -> std::ops::ControlFlow<()> {
        self.hear("begin");
        std::ops::ControlFlow::Continue(())
    }

    fn finish(&mut self, _: Status, _: &Step) {
        self.hear("finish");
    }

    fn step(&mut self, step: &Step) -> std::ops::ControlFlow<()> {
        self.hear(step.phase);
        match step.phase {
            "device" => self.0 += 1,
            "certify" | "done" => {}
            _ => self.1 += 1,
        }
        std::ops::ControlFlow::Continue(())
    }
}

struct Options {
    device: DeviceName,
    most: usize,
    only: String,
    reps: usize,
    seconds: f64,
    phases: bool,
    stop: String,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        device: DeviceName::Cuda(0),
        most: usize::MAX,
        only: String::new(),
        reps: 3,
        seconds: 300.0,
        phases: false,
        stop: String::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--device" => options.device = value.parse()?,
            "--most" => options.most = value.parse()?,
            "--only" => options.only = value,
            "--reps" => options.reps = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--phases" => options.phases = value == "yes",
            "--stop" => options.stop = value,
            _ => {
                let known = "--device, --most, --only, --reps, --seconds, --phases or --stop";
                return Err(format!("{name}: expected {known}").into());
            }
        }
    }
    Ok(options)
}

/// The phases of the last run.
fn show_phases(seconds: f64, rounds: &Rounds) {
    println!("    {:8.1} ms in all; {}", 1e3 * seconds, {
        let heard: Vec<String> = rounds.3.iter().map(|(name, at)| format!("{name} {:.1}", 1e3 * at)).collect();
        heard.join(", ")
    });
    for phase in margrave_cuda::phases::take() {
        println!("    {:8.1} ms {:6} × {:30} {:.3e}", 1e3 * phase.seconds, phase.times, phase.name, phase.units);
    }
}

fn run() -> Result<(), Failure> {
    let options = options()?;
    let chosen = margrave_cuda::choose(options.device, usize::MAX)?;
    if let Some(card) = chosen.card {
        println!("{}", card.card().name);
    }
    println!("data        n  gamma     C  stop        first s  warm s      gap  status      SVs  rounds  other steps");
    for cell in CELLS.iter().filter(|c| c.n <= options.most) {
        let name = format!("{} {} {} {}", cell.data, cell.n, cell.gamma, cell.cost);
        if !name.contains(&options.only) {
            continue;
        }
        let (x, y, d) = match cell.data {
            "gauss16" => gauss16(cell.n),
            "checker" => checker(cell.n),
            _ => sine(cell.n),
        };
        let x: Vec<f32> = x.iter().map(|v| *v as f32).collect();
        let data = Dataset::new(Points::dense_f32(cell.n, d, x)?, Targets::Real(y))?;
        for (what, stop) in
            [("tol 1e-3", Stop { tol: Some(1e-3), gap: None }), ("gap 1e-6", Stop { tol: None, gap: Some(1e-6) })]
        {
            if !what.contains(&options.stop) {
                continue;
            }
            let svm = if cell.data == "sine" { Svm::regressor().epsilon(0.1) } else { Svm::classifier() };
            let budget = Budget { seconds: Some(options.seconds), ..Budget::default() };
            let svm =
                svm.kernel(Kernel::rbf(cell.gamma)).cost(cell.cost).stop(stop).device(chosen.device).budget(budget);
            let (mut first, mut least) = (None, f64::INFINITY);
            for rep in 0..options.reps.max(1) {
                let mut rounds = Rounds::new();
                // The last run is the one that is looked into: waiting for each phase makes it slower.
                let look = options.phases && rep + 1 == options.reps.max(1);
                margrave_cuda::phases::record(look || (options.phases && rep == 0));
                let begun = Instant::now();
                let fit = svm.fit_observed(&data, &mut rounds)?;
                let seconds = begun.elapsed().as_secs_f64();
                first.get_or_insert(seconds);
                if options.phases && (look || rep == 0) {
                    show_phases(seconds, &rounds);
                }
                if rep > 0 && !look {
                    least = least.min(seconds);
                }
                if rep + 1 == options.reps.max(1) {
                    let totals = fit.totals();
                    println!(
                        "{:8} {:7} {:6} {:5}  {what}  {:9.3} {least:7.3}  {:7.1e}  {:10} {:6} {:6} {:6}",
                        cell.data,
                        cell.n,
                        cell.gamma,
                        cell.cost,
                        first.unwrap_or(seconds),
                        totals.relative_gap.unwrap_or(f64::NAN),
                        fit.status().name(),
                        totals.support_vectors,
                        rounds.0,
                        rounds.1,
                    );
                } else if seconds > 30.0 {
                    // A slow line is not repeated.
                    println!(
                        "{:8} {:7} {:6} {:5}  {what}  {seconds:9.3} (once) {}",
                        cell.data,
                        cell.n,
                        cell.gamma,
                        cell.cost,
                        fit.status().name()
                    );
                    break;
                }
            }
        }
        if let Some(error) = chosen.card.and_then(|card| card.failure()) {
            return Err(error.clone().into());
        }
    }
    Ok(())
}

fn main() {
    if let Err(why) = run() {
        eprintln!("margrave-bench-gpu: {why}");
        std::process::exit(2);
    }
}
