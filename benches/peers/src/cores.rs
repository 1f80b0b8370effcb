//! How trainings gain from cores, beside the plain product K·β that they are made of: `margrave-bench-peers cores FOLDER`.

use std::fs::read_to_string;
use std::path::Path;
use std::time::Instant;

use margrave::{Budget, Svm};
use margrave_bench_common::{Args, Failure, read};
use margrave_core::backend::cpu::CpuGram;
use margrave_core::data::{Dataset, Targets};
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_core::problem::Task;
use margrave_core::solver::Stop;
use margrave_core::train::SolverName;
use margrave_core::{Control, Threads};
use serde_json::{Value, json};

/// One line of `cells.txt`: a name, a file beside it, γ, C, and ε for a regression.
struct Cell {
    name: String,
    file: String,
    gamma: f64,
    cost: f64,
    epsilon: Option<f64>,
}

impl Cell {
    fn parse(line: &str) -> Result<Self, Failure> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, file, gamma, cost, rest @ ..] = words.as_slice() else {
            return Err(format!("not a cell (name file γ C [ε]): {line}").into());
        };
        let epsilon = rest.first().map(|e| e.parse()).transpose()?;
        let (gamma, cost) = (gamma.parse()?, cost.parse()?);
        Ok(Self { name: (*name).to_owned(), file: (*file).to_owned(), gamma, cost, epsilon })
    }
}

/// Least seconds of `repeats` trainings, of the product K·β of its model in single and in double precision; and β.
fn measure(
    cell: &Cell,
    data: &Dataset,
    threads: usize,
    repeats: usize,
) -> Result<([f64; 3], Vec<(u32, f64)>), Failure> {
    let task = if cell.epsilon.is_some() { Task::Regress } else { Task::Classify };
    let kernel = Kernel::rbf(cell.gamma);
    let loss = match cell.epsilon {
        Some(e) => format!("epsilon:epsilon={e}").parse()?,
        None => "hinge".parse()?,
    };
    let threads = Threads::new(threads);
    let svm = Svm::of(task).kernel(kernel).cost(cell.cost).loss_spec(loss);
    let svm = svm.stop(Stop { tol: Some(1e-3), gap: None }).solver(SolverName::Decomposition).threads(threads.clone());
    let svm = svm.budget(Budget { memory: 2 << 30, ..Budget::default() });
    let (mut training, mut last) = (f64::INFINITY, None);
    for _ in 0..repeats {
        let start = Instant::now();
        last = Some(svm.fit(data)?);
        training = training.min(start.elapsed().as_secs_f64());
    }
    let fit = last.ok_or("no run")?;
    let expansion = &fit.model().expansion;
    let model: Vec<(u32, f64)> =
        expansion.rows().iter().copied().zip(expansion.coefficients().iter().copied()).collect();
    let mut beta = vec![0.0; data.points.len()];
    model.iter().for_each(|(row, c)| beta[*row as usize] = *c);
    let gram = CpuGram::square(kernel, &data.points)?;
    let (control, mut out) = (Control::unlimited(threads), vec![0.0; beta.len()]);
    let mut product = |precision: Precision| -> Result<f64, Failure> {
        let mut best = f64::INFINITY;
        // The first also prepares the points.
        for _ in 0..3 {
            let start = Instant::now();
            gram.apply(precision, Pick::All, &beta, 1, &mut out, &control).map_err(|_| "interrupted")?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(best)
    };
    let times = [training, product(Precision::Single)?, product(Precision::Double)?];
    Ok((times, model))
}

/// Prints the table and returns the same numbers.
pub(crate) fn run(args: &Args) -> Result<Value, Failure> {
    let folder = Path::new(&args.data);
    let counts = args.options.get("threads").map_or("1,2,4,8,16", String::as_str);
    let counts: Vec<usize> = counts.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let repeats = args.number("repeats")?.unwrap_or(1.0).max(1.0) as usize;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} processors; seconds, and in brackets how often faster than with {} thread(s)\n", counts[0]);
    println!("| cell | threads | training | K·β, single | K·β, double | gain of training / of K·β | same model |");
    println!("|---|---|---|---|---|---|---|");
    let mut all = Vec::new();
    for line in read_to_string(folder.join("cells.txt"))?.lines().filter(|line| !line.trim().is_empty()) {
        let cell = Cell::parse(line)?;
        let path = folder.join(&cell.file);
        let (data, targets) = read(path.to_str().ok_or("a path that is not text")?, cell.epsilon.is_none())?;
        let data = Dataset::new(data.points, Targets::Real(targets))?;
        let mut first: Option<([f64; 3], Vec<(u32, f64)>)> = None;
        for &threads in counts.iter().filter(|t| cores == 0 || **t <= cores) {
            let (times, model) = measure(&cell, &data, threads, repeats)?;
            let (alone, reference) = first.get_or_insert_with(|| (times, model.clone()));
            let gain: Vec<f64> = (0..3).map(|k| alone[k] / times[k]).collect();
            // Most products of a training are in single precision, its proof is in double.
            let share = gain[0] / (gain[1] * gain[2]).sqrt();
            let same = *reference == model;
            println!(
                "| {} | {threads} | {:.3} ({:.1}) | {:.3} ({:.1}) | {:.3} ({:.1}) | {share:.2} | {} |",
                cell.name,
                times[0],
                gain[0],
                times[1],
                gain[1],
                times[2],
                gain[2],
                if same { "yes" } else { "NO" }
            );
            all.push(json!({ "cell": cell.name, "threads": threads, "seconds": times, "share": share, "same": same }));
        }
    }
    println!();
    Ok(json!(all))
}
