//! Margrave's side of `benches/peers/run`.
//!
//! ```text
//! margrave-bench-peers train   DATA --gamma G -C C [--epsilon E] [--tol T] [--gap R] [--threads N] [--repeats K] [--memory MiB]
//!                              [--beta OUT] [--test DATA]
//! margrave-bench-peers certify DATA --gamma G -C C [--epsilon E] --beta IN
//! ```
//!
//! DATA is anything Margrave reads; γ = 0 is the linear kernel. β files are raw little-endian f64, one per row. Times cover
//! training with its certificate, not reading. One JSON object on standard output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::time::Instant;

use margrave_bench_common::{Args, Failure, finish, read, read_numbers, write_numbers};
use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::{Certificate, certify};
use margrave_core::data::Dataset;
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::model::Expansion;
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem};
use margrave_core::solver::{Stop, decomposition};
use margrave_core::{Control, Threads};
use margrave_io::{ReadOptions, load};
use serde_json::{Value, json};

fn main() {
    finish("margrave-bench-peers", run);
}

fn run() -> Result<Value, Failure> {
    let args = Args::parse()?;
    let epsilon = args.number("epsilon")?;
    let (data, targets) = read(&args.data, epsilon.is_none())?;
    let gamma = args.number("gamma")?.ok_or("--gamma is missing")?;
    let kernel = if gamma > 0.0 { Kernel::rbf(gamma) } else { Kernel::Linear };
    let cost = args.number("C")?.ok_or("-C is missing")?;
    let spec: LossSpec = match epsilon {
        Some(e) => format!("epsilon:epsilon={e}").parse()?,
        None => "hinge".parse()?,
    };
    let loss = spec.build()?;
    let costs = vec![cost; targets.len()];
    let threads = Threads::new(args.number("threads")?.unwrap_or(0.0) as usize);
    let control = Control::unlimited(threads);
    let setup = BenchProblem { data: &data, targets: &targets, costs: &costs, kernel, loss: &*loss, control: &control };
    match args.command.as_str() {
        "train" => setup.train(&args),
        "certify" => setup.certify(&args),
        other => Err(format!("unknown command {other}: train or certify").into()),
    }
}

struct BenchProblem<'a> {
    data: &'a Dataset,
    targets: &'a [f64],
    costs: &'a [f64],
    kernel: Kernel,
    loss: &'a dyn Loss,
    control: &'a Control,
}

impl BenchProblem<'_> {
    fn train(&self, args: &Args) -> Result<Value, Failure> {
        let stop = Stop { tol: args.number("tol")?, gap: args.number("gap")? };
        let repeats = args.number("repeats")?.unwrap_or(1.0).max(1.0) as usize;
        let memory = (args.number("memory")?.unwrap_or(2048.0) * 1048576.0) as u64;
        let (mut seconds, mut last) = (Vec::new(), None);
        let before = memory_mb("VmRSS:");
        for _ in 0..repeats {
            let start = Instant::now();
            let gram = CpuGram::square(self.kernel, &self.data.points)?;
            let problem = KernelProblem::new(&gram, self.targets, self.costs, self.loss, Constraint::free_bias())?;
            let options = decomposition::Options { stop, memory, ..decomposition::Options::default() };
            let control = Control::unlimited(self.control.threads.clone());
            let solution = decomposition::solve(&problem, &options, &control, &mut Silent)?;
            let certificate = certify(&problem, &solution.beta, Some(&solution.bias), None, self.control)
                .map_err(|_| "interrupted")?;
            seconds.push(start.elapsed().as_secs_f64());
            last = Some((solution, certificate, gram.entries()));
        }
        let (solution, certificate, entries) = last.ok_or("no run")?;
        let peak = memory_mb("VmHWM:").zip(before).map(|(peak, before)| peak - before);
        if let Some(path) = args.options.get("beta") {
            write_numbers(path, &solution.beta)?;
        }
        let vectors = solution.beta.iter().filter(|b| **b != 0.0).count();
        let mut report = describe(&certificate);
        report["seconds"] = json!(seconds);
        report["peak_mb"] = json!(peak);
        report["status"] = json!(solution.status.name());
        report["iterations"] = json!(solution.iterations);
        report["support_vectors"] = json!(vectors);
        report["entries_per_n_sv"] = json!(entries as f64 / (self.targets.len() as f64 * vectors.max(1) as f64));
        report["pass_seconds"] = json!(self.passes(&solution.beta)?);
        if let Some(path) = args.options.get("test") {
            let test = load(path, &ReadOptions::default())?.data.points.widen(self.data.points.dims());
            let bias = certificate.optimality().map_or(solution.bias.clone(), |o| o.bias().to_vec());
            let expansion = Expansion::of_training(self.kernel, &self.data.points, &solution.beta, bias)?;
            let mut times = Vec::new();
            for _ in 0..repeats.max(3) {
                let start = Instant::now();
                expansion.scores(&test, Precision::Single, self.control)?;
                times.push(start.elapsed().as_secs_f64());
            }
            report["predict_seconds"] = json!(times);
        }
        Ok(report)
    }

    /// One pass K(train, SV)·β in single and in double precision, which every certificate needs.
    fn passes(&self, beta: &[f64]) -> Result<Vec<f64>, Failure> {
        let gram = CpuGram::square(self.kernel, &self.data.points)?;
        let mut out = vec![0.0; beta.len()];
        let mut times = Vec::new();
        for precision in [Precision::Single, Precision::Double] {
            let mut best = f64::INFINITY;
            for _ in 0..2 {
                let start = Instant::now();
                gram.apply(precision, Pick::All, beta, 1, &mut out, self.control).map_err(|_| "interrupted")?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            times.push(best);
        }
        Ok(times)
    }

    fn certify(&self, args: &Args) -> Result<Value, Failure> {
        let path = args.text("beta")?;
        let beta = read_numbers(path)?;
        let gram = CpuGram::square(self.kernel, &self.data.points)?;
        let problem = KernelProblem::new(&gram, self.targets, self.costs, self.loss, Constraint::free_bias())?;
        if beta.len() != problem.len() {
            return Err(format!("{path} has {} values, {} are needed", beta.len(), problem.len()).into());
        }
        let certificate = certify(&problem, &beta, None, None, self.control).map_err(|_| "interrupted")?;
        Ok(describe(&certificate))
    }
}

/// A line of /proc/self/status about the memory of this process, in MiB.
fn memory_mb(field: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().trim_end_matches("kB").trim().parse::<f64>().ok().map(|kib| kib / 1024.0)
}

fn describe(certificate: &Certificate) -> Value {
    match certificate.optimality() {
        Some(o) => json!({
            "primal": o.primal(), "dual": o.dual(), "gap": o.gap(), "relative_gap": o.relative_gap(),
            "violation": o.violation(), "infeasibility": o.infeasibility(), "bias": o.bias(),
        }),
        None => json!({ "objective": certificate.primal() }),
    }
}
