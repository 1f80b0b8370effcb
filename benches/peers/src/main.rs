//! Margrave's side of `benches/peers/run`.
//!
//! ```text
//! margrave-bench-peers train   DATA --gamma G -C C [--epsilon E] [--tol T] [--gap R] [--threads N] [--repeats K] [--memory MiB]
//!                              [--beta OUT] [--test DATA]
//! margrave-bench-peers cores   FOLDER [--threads 1,2,4,8,16] [--repeats K]
//! margrave-bench-peers certify DATA --gamma G -C C [--epsilon E] (--beta IN | --libsvm MODEL)
//! ```
//!
//! FOLDER is what `benches/cores/prepare` writes. DATA is anything Margrave reads; γ = 0 is the linear kernel. β files are raw little-endian f64, one per row. Training is that of
//! the library, equal rows merged; times cover it with its certificate, not reading. One JSON object on standard output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod cores;

use std::time::Instant;

use margrave::io::model::libsvm_from_bytes;
use margrave::{Budget, LibsvmTraining, Svm, verify_libsvm};
use margrave_bench_common::{Args, Failure, finish, read, read_numbers, write_numbers};
use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::{Certificate, certify};
use margrave_core::data::{Dataset, Targets};
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::problem::{Constraint, KernelProblem, Task};
use margrave_core::solver::Stop;
use margrave_core::train::SolverName;
use margrave_core::{Control, Threads};
use margrave_io::{ReadOptions, load};
use serde_json::{Value, json};

/// Calls of every prediction; the least time counts, for everybody.
const CALLS: usize = 3;

fn main() {
    finish("margrave-bench-peers", run);
}

fn run() -> Result<Value, Failure> {
    let args = Args::parse()?;
    if args.command == "cores" {
        return cores::run(&args);
    }
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
    let (data, targets, costs, control) = (&data, &targets, &costs, &control);
    let setup = BenchProblem { data, targets, costs, kernel, spec, loss: &*loss, epsilon, control };
    match args.command.as_str() {
        "train" => setup.train(&args),
        "certify" => setup.certify(&args),
        other => Err(format!("unknown command {other}: train, certify or cores").into()),
    }
}

struct BenchProblem<'a> {
    data: &'a Dataset,
    targets: &'a [f64],
    costs: &'a [f64],
    kernel: Kernel,
    spec: LossSpec,
    loss: &'a dyn Loss,
    epsilon: Option<f64>,
    control: &'a Control,
}

impl BenchProblem<'_> {
    fn train(&self, args: &Args) -> Result<Value, Failure> {
        let stop = Stop { tol: args.number("tol")?, gap: args.number("gap")? };
        let repeats = args.number("repeats")?.unwrap_or(1.0).max(1.0) as usize;
        let memory = (args.number("memory")?.unwrap_or(2048.0) * 1048576.0) as u64;
        let task = if self.epsilon.is_some() { Task::Regress } else { Task::Classify };
        let svm = Svm::of(task).kernel(self.kernel).cost(self.costs[0]).loss_spec(self.spec).stop(stop);
        let svm = svm.solver(SolverName::Decomposition).threads(self.control.threads.clone());
        let svm = svm.budget(Budget { memory, ..Budget::default() });
        let targets = Targets::Real(self.targets.to_vec());
        let data = Dataset::new(self.data.points.clone(), targets)?;
        let (mut seconds, mut processor, mut last) = (Vec::new(), Vec::new(), None);
        let before = memory_mb("VmRSS:");
        for _ in 0..repeats {
            let (start, used) = (Instant::now(), processor_seconds());
            last = Some(svm.fit(&data)?);
            seconds.push(start.elapsed().as_secs_f64());
            processor.push(processor_seconds().zip(used).map(|(after, before)| after - before));
        }
        let fit = last.ok_or("no run")?;
        let peak = memory_mb("VmHWM:");
        let expansion = &fit.model().expansion;
        let mut beta = vec![0.0; self.targets.len()];
        expansion.rows().iter().zip(expansion.coefficients()).for_each(|(&row, c)| beta[row as usize] = *c);
        if let Some(path) = args.options.get("beta") {
            write_numbers(path, &beta)?;
        }
        let (totals, vectors) = (fit.totals(), expansion.len());
        let mut report = describe(fit.certificate());
        report["seconds"] = json!(seconds);
        report["processor"] = json!(processor);
        report["peak_mb"] = json!(peak.zip(before).map(|(peak, before)| peak - before));
        report["rss_mb"] = json!(peak);
        report["status"] = json!(fit.status().name());
        report["iterations"] = json!(totals.iterations);
        report["merged"] = json!(fit.merged());
        report["support_vectors"] = json!(vectors);
        let entries = totals.kernel_entries as f64;
        report["entries_per_n_sv"] = json!(entries / (self.targets.len() as f64 * vectors.max(1) as f64));
        report["pass_seconds"] = json!(self.passes(&beta)?);
        if let Some(path) = args.options.get("test") {
            let test = load(path, &ReadOptions::default())?.data.points.widen(self.data.points.dims());
            for (name, precision) in [("predict", Precision::Double), ("predict_single", Precision::Single)] {
                let mut times = Vec::new();
                for _ in 0..CALLS {
                    let start = Instant::now();
                    expansion.scores(&test, precision, self.control)?;
                    times.push(start.elapsed().as_secs_f64());
                }
                report[name] = json!(times);
            }
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
        if let Some(path) = args.options.get("libsvm") {
            let model = libsvm_from_bytes(&std::fs::read(path)?, path)?;
            let data = Dataset::new(self.data.points.clone(), Targets::Real(self.targets.to_vec()))?;
            let said = LibsvmTraining { cost: Some(self.costs[0]), epsilon: self.epsilon, nu: None };
            let verified = verify_libsvm(&model, &data, said, self.control)?;
            return Ok(describe(verified.certificates.first().ok_or("the model has no machine")?));
        }
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

/// Processor seconds of this process so far, user and system, to a hundredth.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name, which may contain blanks: the state is the first field, user and system time are the 12th and 13th.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
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
