//! Margrave's side of `benches/linear/run`.
//!
//! ```text
//! margrave-bench-linear train   DATA --loss L -C C --bias free|none|SCALING [--gap R] [--tol T] [--threads N] [--repeats K]
//!                               [--method auto|coordinate|newton] [--weights OUT] [--trace 1]
//! margrave-bench-linear l1      DATA --loss L -C C --bias free|none|SCALING [--gap R]
//! margrave-bench-linear classes DATA -C C --bias none|SCALING [--gap R] [--tol T] [--repeats K] [--trace 1]
//! margrave-bench-linear certify DATA --loss L -C C --bias free|none|SCALING --weights IN
//! ```
//!
//! DATA is anything Margrave reads. Weight files are raw little-endian f64: w, then b. Times cover training without reading
//! and without the certificate, whose time is reported separately. `certify` gives P at the
//! weights, and a lower bound on the optimum where the loss is smooth. One JSON object on standard output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::ops::ControlFlow;
use std::time::Instant;

use margrave_bench_common::{Args, Failure, finish, read, read_numbers, write_numbers};
use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::certificate::{Certificate, certify_crammer_singer, certify_l1, certify_linear};
use margrave_core::gram::{Matrix, Pick};
use margrave_core::loss::LossSpec;
use margrave_core::observe::{Observer, Silent, Step};
use margrave_core::problem::{Bias, LinearProblem};
use margrave_core::solver::{Stop, linear};
use margrave_core::{Control, Threads};
use margrave_io::{ReadOptions, load};
use serde_json::{Value, json};

fn main() {
    finish("margrave-bench-linear", run);
}

/// The machine of Crammer and Singer.
fn classes(args: &Args) -> Result<Value, Failure> {
    let data = load(&args.data, &ReadOptions::default())?.data;
    let (names, codes) = data.targets.classes()?;
    let bias = match args.text("bias")? {
        "none" => Bias::None,
        scaling => Bias::Penalised { scaling: scaling.parse()? },
    };
    let costs = vec![args.number("C")?.unwrap_or(1.0); codes.len()];
    let stop = Stop { tol: args.number("tol")?, gap: args.number("gap")? };
    let options = linear::Options {
        stop: if stop.tol.is_none() && stop.gap.is_none() { Stop { tol: None, gap: Some(1e-6) } } else { stop },
        ..linear::Options::default()
    };
    let observer: &mut dyn Observer = if args.options.contains_key("trace") { &mut PrintSteps } else { &mut Silent };
    let mut seconds = Vec::new();
    let mut last = None;
    for _ in 0..args.number("repeats")?.unwrap_or(1.0) as usize {
        let control = Control::unlimited(Threads::one());
        let begun = Instant::now();
        let (points, k) = (&data.points, names.len());
        last = Some(linear::solve_crammer_singer(points, &codes, k, &costs, bias, &options, &control, observer)?);
        seconds.push(begun.elapsed().as_secs_f64());
    }
    let s = last.ok_or("--repeats must be at least 1")?;
    let control = Control::unlimited(Threads::one());
    let certificate =
        certify_crammer_singer(&data.points, &codes, &costs, bias, &s.weights, &s.bias, &s.alpha, &control)
            .map_err(|_| Failure::from("interrupted"))?;
    let Certificate::Optimality(o) = certificate else { return Err("no certificate".into()) };
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(json!({"seconds": least, "epochs": s.iterations, "primal": o.primal(), "dual": o.dual(),
        "relative_gap": o.relative_gap(), "violation": o.violation(), "feasible": o.feasible(), "status": s.status.name()}))
}

/// Prints every step.
struct PrintSteps;

impl Observer for PrintSteps {
    fn step(&mut self, s: &Step) -> ControlFlow<()> {
        let (primal, dual) = (s.primal.unwrap_or(f64::NAN), s.dual.unwrap_or(f64::NAN));
        eprintln!(
            "{:10} {:4} {:8.4} s  P {:.9e}  gap {:.3e}  active {}",
            s.phase,
            s.iteration,
            s.seconds,
            primal,
            (primal - dual) / primal.abs().max(1.0),
            s.active.unwrap_or(0)
        );
        ControlFlow::Continue(())
    }
}

fn run() -> Result<Value, Failure> {
    let args = Args::parse()?;
    if args.command == "classes" {
        return classes(&args);
    }
    let loss = args.text("loss")?.parse::<LossSpec>()?.build()?;
    let cost = args.number("C")?.unwrap_or(1.0);
    let bias = match args.text("bias")? {
        "free" => Bias::Free,
        "none" => Bias::None,
        scaling => Bias::Penalised { scaling: scaling.parse()? },
    };
    let (data, targets) = read(&args.data, loss.properties().classification)?;
    let costs = vec![cost; targets.len()];
    let matrix = RowMatrix::new(&data.points);
    let problem = LinearProblem::new(&matrix, &targets, &costs, &*loss, bias)?;
    let threads = Threads::new(args.number("threads")?.unwrap_or(2.0) as usize);
    let control = Control::unlimited(threads);
    let interrupted = |_| Failure::from("interrupted");
    if args.command == "certify" {
        let mut w = read_numbers(args.text("weights")?)?;
        let b = w.pop().ok_or("the weight file is empty")?;
        let mut z = vec![0.0; targets.len()];
        matrix.dots(Pick::All, &w, &mut z, &control).map_err(interrupted)?;
        let beta: Vec<f64> = z.iter().zip(&targets).map(|(f, y)| -cost * loss.slope(*y, f + b)).collect();
        let certificate = certify_linear(&problem, &w, b, &beta, &control).map_err(interrupted)?;
        let Certificate::Optimality(o) = certificate else { return Err("the loss is not convex".into()) };
        return Ok(json!({"primal": o.primal(), "dual": o.dual(), "relative_gap": o.relative_gap()}));
    }
    if args.command == "l1" {
        let options = linear::Options {
            stop: Stop { tol: None, gap: Some(args.number("gap")?.unwrap_or(1e-6)) },
            ..linear::Options::default()
        };
        let begun = Instant::now();
        let s = linear::solve_l1(&problem, &options, &control, &mut Silent)?;
        let seconds = begun.elapsed().as_secs_f64();
        let certificate = certify_l1(&problem, &s.weights, s.bias, &s.beta, &control).map_err(interrupted)?;
        let nonzero = s.weights.iter().filter(|w| **w != 0.0).count();
        return Ok(json!({"seconds": seconds, "epochs": s.iterations, "primal": certificate.primal(),
            "relative_gap": certificate.relative_gap(), "nonzero": nonzero, "status": s.status.name()}));
    }
    let stop = Stop { tol: args.number("tol")?, gap: args.number("gap")? };
    let options = linear::Options {
        stop: if stop.tol.is_none() && stop.gap.is_none() { Stop { tol: None, gap: Some(1e-6) } } else { stop },
        method: args.options.get("method").map_or(Ok(linear::Method::Auto), |m| m.parse())?,
        ..linear::Options::default()
    };
    let mut seconds = Vec::new();
    let mut last = None;
    for _ in 0..args.number("repeats")?.unwrap_or(1.0) as usize {
        let control = Control::unlimited(control.threads.clone());
        let begun = Instant::now();
        let solution = if args.options.contains_key("trace") {
            linear::solve(&problem, &options, &control, &mut PrintSteps)?
        } else {
            linear::solve(&problem, &options, &control, &mut Silent)?
        };
        seconds.push(begun.elapsed().as_secs_f64());
        last = Some(solution);
    }
    let solution = last.ok_or("--repeats must be at least 1")?;
    let begun = Instant::now();
    let certificate =
        certify_linear(&problem, &solution.weights, solution.bias, &solution.beta, &control).map_err(interrupted)?;
    let certify_seconds = begun.elapsed().as_secs_f64();
    if let Some(path) = args.options.get("weights") {
        write_numbers(path, solution.weights.iter().chain([&solution.bias]))?;
    }
    let mut out = json!({
        "seconds": seconds,
        "least": seconds.iter().copied().fold(f64::INFINITY, f64::min),
        "certify_seconds": certify_seconds,
        "iterations": solution.iterations,
        "status": solution.status.name(),
        "own_gap": solution.relative_gap,
        "own_violation": if solution.violation.is_nan() { Value::Null } else { json!(solution.violation) },
        "reason": solution.reason,
        "violation": certificate.violation(),
        "primal": certificate.primal(),
    });
    if let Certificate::Optimality(o) = certificate {
        out["dual"] = json!(o.dual());
        out["relative_gap"] = json!(o.relative_gap());
        out["feasible"] = json!(o.feasible());
    }
    Ok(out)
}
