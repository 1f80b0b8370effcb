//! Trainings on a card: `margrave-bench-gpu [--device NAME] [--data FOLDER] [--most ROWS] [--only TEXT] [--reps N]
//! [--seconds S] [--stop tol|gap] [--phases yes] [--again yes]`.
//!
//! Trains each problem to a KKT violation of 1e-3 and to a certified relative gap, and prints the wall-clock seconds of whole
//! trainings (points copied to the card, certificate included): the first run in the process, and the least of the others. Most data
//! is drawn here; lines with data of others need a folder with `covtype.csv.gz`, the four files of MNIST and `letter_scale`, and are
//! left out without it. Files `gauss16.N.x` and `.y`, `s1.N.x` and `.y` in it take the place of what is drawn here. The program needs no Rust: build it elsewhere, strip it, and copy it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod data;

use std::path::PathBuf;
use std::time::Instant;

use margrave::engine::control::Status;
use margrave::engine::gram::Precision;
use margrave::engine::observe::{Begin, Observer, Step};
use margrave::engine::solver::Stop;
use margrave::{Approx, Budget, Control, Dataset, Device, Kernel, Label, Prediction, Svm, Targets, Threads};
use margrave_cuda::DeviceName;

type Failure = Box<dyn std::error::Error>;

/// Data and parameters of one line of the table.
struct Cell {
    data: &'static str,
    n: usize,
    gamma: f64,
    cost: f64,
    /// The gap to certify; 0: only the violation is asked for.
    gap: f64,
    /// Centres of a machine on few of them; 0: the exact machine.
    centres: usize,
}

const fn cell(data: &'static str, n: usize, gamma: f64, cost: f64, gap: f64) -> Cell {
    Cell { data, n, gamma, cost, gap, centres: 0 }
}

/// A machine on few centres, of which only the problem on the centres has to be solved.
const fn few(data: &'static str, n: usize, gamma: f64, centres: usize) -> Cell {
    Cell { data, n, gamma, cost: 1.0, gap: 0.0, centres }
}

const CELLS: &[Cell] = &[
    cell("gauss16", 20_000, 0.02, 1.0, 1e-6),
    cell("gauss16", 20_000, 0.02, 100.0, 1e-6),
    cell("gauss16", 100_000, 0.02, 1.0, 1e-6),
    cell("gauss16", 100_000, 0.02, 100.0, 1e-6),
    cell("s1", 20_000, 0.02, 1.0, 1e-6),
    cell("s1", 20_000, 0.02, 100.0, 1e-6),
    cell("s1", 100_000, 0.02, 1.0, 1e-6),
    cell("s1", 100_000, 0.02, 100.0, 1e-6),
    cell("checker", 50_000, 2.0, 10.0, 1e-6),
    cell("sine", 20_000, 0.05, 10.0, 1e-6),
    cell("gauss16", 20_000, 0.001, 1000.0, 1e-6),
    cell("letter", 15_000, 0.5, 10.0, 0.0),
    cell("mnist", 60_000, 0.02, 10.0, 0.0),
    cell("covtype", 50_000, 1.0, 3.0, 1e-3),
    cell("covtype", 581_012, 1.0, 3.0, 1e-3),
    cell("gauss16", 400_000, 0.02, 1.0, 1e-6),
    cell("gauss16", 400_000, 0.02, 100.0, 1e-6),
    cell("s1", 400_000, 0.02, 1.0, 1e-6),
    cell("s1", 400_000, 0.02, 100.0, 1e-6),
    cell("gauss16", 1_000_000, 0.02, 1.0, 1e-6),
    cell("gauss16", 1_000_000, 0.02, 100.0, 1e-6),
    cell("s1", 1_000_000, 0.02, 1.0, 1e-6),
    few("checker", 1_000_000, 2.0, 2_000),
    few("checker", 10_000_000, 2.0, 2_000),
    few("checker", 10_000_000, 2.0, 10_000),
];

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
    data: Option<PathBuf>,
    most: usize,
    only: String,
    reps: usize,
    seconds: f64,
    phases: bool,
    stop: String,
    again: bool,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        device: DeviceName::Cuda(0),
        data: None,
        most: usize::MAX,
        only: String::new(),
        reps: 3,
        seconds: 300.0,
        phases: false,
        stop: String::new(),
        again: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--device" => options.device = value.parse()?,
            "--data" => options.data = Some(value.into()),
            "--most" => options.most = value.parse()?,
            "--only" => options.only = value,
            "--reps" => options.reps = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--phases" => options.phases = value == "yes",
            "--stop" => options.stop = value,
            "--again" => options.again = value == "yes",
            _ => {
                let known = "--device, --data, --most, --only, --reps, --seconds, --phases, --stop or --again";
                return Err(format!("{name}: expected {known}").into());
            }
        }
    }
    Ok(options)
}

/// The phases of the last run.
fn show_phases(seconds: f64, rounds: &Rounds) {
    println!("    {:8.1} ms in all; {}", 1e3 * seconds, {
        let heard: Vec<String> = rounds.3.iter().take(20).map(|(name, at)| format!("{name} {:.1}", 1e3 * at)).collect();
        heard.join(", ")
    });
    for phase in margrave_cuda::phases::take() {
        println!("    {:8.1} ms {:6} × {:30} {:.3e}", 1e3 * phase.seconds, phase.times, phase.name, phase.units);
    }
}

/// The data of a line, and rows to try its model on; `None` without the folder that it is read from.
fn data_of(cell: &Cell, options: &Options) -> Result<Option<(Dataset, Option<Dataset>)>, Failure> {
    if let Some(folder) = options.data.as_ref().filter(|_| matches!(cell.data, "gauss16" | "s1"))
        && let Some(given) = data::given(folder, cell.data, cell.n)?
    {
        return Ok(Some((given, None)));
    }
    let folder = match (&options.data, cell.data) {
        (_, "gauss16" | "checker" | "s1" | "sine") => return Ok(Some((data::drawn(cell.data, cell.n)?, None))),
        (None, _) => return Ok(None),
        (Some(folder), _) => folder,
    };
    Ok(Some(match cell.data {
        "covtype" => (data::covtype(folder, cell.n)?, None),
        "mnist" => (data::mnist(folder, "train")?, Some(data::mnist(folder, "t10k")?)),
        _ => (data::letter(folder, "")?, Some(data::letter(folder, ".t")?)),
    }))
}

/// Rows of `test` whose class the model misses.
fn errors(fit: &margrave::Fit, test: &Dataset) -> Result<usize, Failure> {
    let control = Control::unlimited(Threads::new(0));
    let Prediction::Labels(found) = fit.model().predict(&test.points, Precision::Single, &control)? else {
        return Err("labels were expected".into());
    };
    let Targets::Real(classes) = &test.targets else { return Err("classes are numbers".into()) };
    let labels = &fit.model().labels;
    let number = |label: &Label| label.to_string().parse::<f64>().unwrap_or(f64::NAN);
    Ok(found.iter().zip(classes).filter(|(found, class)| number(&labels[**found as usize]) != **class).count())
}

/// Trains one problem to one goal, `options.reps` times.
fn measure(
    cell: &Cell,
    device: Device,
    (data, test): (&Dataset, Option<&Dataset>),
    (what, stop): (&str, Stop),
    options: &Options,
) -> Result<(), Failure> {
    let svm = if cell.data == "sine" { Svm::regressor().epsilon(0.1) } else { Svm::classifier() };
    let memory = if cell.centres > 0 { 32 << 30 } else { Budget::default().memory };
    let budget = Budget { seconds: Some(options.seconds), memory, ..Budget::default() };
    let approx = (cell.centres > 0).then_some(Approx::Centres(cell.centres));
    let svm = svm.approx(approx);
    let svm = svm.kernel(Kernel::rbf(cell.gamma)).cost(cell.cost).stop(stop).device(device).budget(budget);
    let (mut first, mut least, reps) = (None, f64::INFINITY, options.reps.max(1));
    let mut before: Option<String> = None;
    for rep in 0..reps {
        let mut rounds = Rounds::new();
        // The last run is the one that is looked into: waiting for each phase makes it slower.
        let look = options.phases && rep + 1 == reps;
        margrave_cuda::phases::record(look || (options.phases && rep == 0));
        let begun = Instant::now();
        let fit = svm.fit_observed(data, &mut rounds)?;
        let seconds = begun.elapsed().as_secs_f64();
        first.get_or_insert(seconds);
        if options.phases && (look || rep == 0) {
            show_phases(seconds, &rounds);
        }
        if rep > 0 && !look {
            least = least.min(seconds);
        }
        let totals = fit.totals();
        if options.again {
            let now = format!("{:?} {:?} {}", totals.primal, totals.dual, totals.support_vectors);
            if before.as_ref().is_some_and(|before| *before != now) {
                println!("    another result: {now}, before {}", before.as_deref().unwrap_or(""));
            }
            before = Some(now);
        }
        // A slow line is not repeated.
        let slow = seconds > 20.0;
        if rep + 1 == reps || slow {
            let missed = test.map(|test| errors(&fit, test)).transpose()?;
            println!(
                "{:8} {:7} {:6} {:5}  {what}  {:9.3} {least:7.3}  {:7.1e}  {:10} {:6} {:6} {:6}{}",
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
                missed.map_or(String::new(), |missed| format!("  {missed} errors")),
            );
        }
        if slow {
            break;
        }
    }
    Ok(())
}

fn run() -> Result<(), Failure> {
    let options = options()?;
    let chosen = margrave_cuda::choose(options.device, usize::MAX)?;
    if let Some(card) = chosen.card {
        println!("{}", card.card().name);
    }
    println!("data        n  gamma     C  stop        first s  warm s      gap  status      SVs  rounds  other steps");
    for cell in CELLS.iter().filter(|c| c.n <= options.most) {
        let centres = if cell.centres > 0 { format!(" centres {}", cell.centres) } else { String::new() };
        let name = format!("{} {} {} {}{centres}", cell.data, cell.n, cell.gamma, cell.cost);
        if !options.only.split(',').any(|only| name.contains(only)) {
            continue;
        }
        let Some((data, test)) = data_of(cell, &options)? else {
            println!("{:8} {:7}  left out: no --data", cell.data, cell.n);
            continue;
        };
        let tight = format!("gap {:.0e}", cell.gap);
        let goals = [
            ("tol 1e-3", Stop { tol: Some(1e-3), gap: None }, cell.data != "covtype" && cell.centres == 0),
            (tight.as_str(), Stop { tol: None, gap: Some(cell.gap) }, cell.gap > 0.0),
            ("centres ", Stop { tol: None, gap: Some(1e-2) }, cell.centres > 0),
        ];
        for (what, stop, asked) in goals {
            if asked && what.contains(&options.stop) {
                measure(cell, chosen.device, (&data, test.as_ref()), (what, stop), &options)?;
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
