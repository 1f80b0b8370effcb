//! Paper 001: convergence of SVMTorch, decomposition for regression on 2l separate variables.

mod pairs;

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::data::Points;
use margrave::engine::gram::{Gram, Pick};
use margrave::engine::kernel::Kernel;
use margrave::engine::observe::Silent;
use margrave::engine::problem::{Constraint, KernelProblem};
use margrave::engine::solver::textbook::svmtorch::{self, StopRule, SvmTorchOptions, SvmTorchSolution};
use margrave::loss::Epsilon;
use margrave_plot::{Axis, Figure, Panel, Scale, Series};
use serde_json::json;

use self::pairs::{Partner, Regression};
use crate::common::{Context, Failure, Report};

const COST: f64 = 10.0;
const EPSILON: f64 = 0.1;
const TOL: f64 = 1e-3;
/// Number of iterations at a bound before a variable is shrunk.
const SHRINK_AFTER: u64 = 200;

/// Rows of numbers and targets, all standardised.
struct Table {
    name: &'static str,
    d: usize,
    x: Vec<f64>,
    y: Vec<f64>,
}

fn standardise(values: &mut [f64], width: usize) {
    let n = values.len() / width;
    for k in 0..width {
        let mean = (0..n).map(|i| values[i * width + k]).sum::<f64>() / n as f64;
        let spread = ((0..n).map(|i| (values[i * width + k] - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        for i in 0..n {
            values[i * width + k] = if spread > 0.0 { (values[i * width + k] - mean) / spread } else { 0.0 };
        }
    }
}

impl Table {
    fn new(name: &'static str, d: usize, mut x: Vec<f64>, mut y: Vec<f64>) -> Self {
        standardise(&mut x, d);
        standardise(&mut y, 1);
        Self { name, d, x, y }
    }
}

/// Abalone, `n` rows: sex as 1, 2, 3 for M, F, I.
fn abalone(n: usize) -> Result<Table, Failure> {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for line in include_str!("../data/abalone_1000.csv").lines().skip(1).take(n) {
        let mut row = line
            .split(',')
            .map(|cell| match cell {
                "M" => Ok(1.0),
                "F" => Ok(2.0),
                "I" => Ok(3.0),
                other => other.parse::<f64>().map_err(|_| Failure::new(format!("abalone: {other} is no number"))),
            })
            .collect::<Result<Vec<_>, _>>()?;
        y.extend(row.pop());
        x.extend(row);
    }
    Ok(Table::new("abalone", 8, x, y))
}

/// The Mackey–Glass series ẋ = 0.2x(t−17)/(1 + x(t−17)¹⁰) − 0.1x: x(t+6) from x(t), x(t−6), …, x(t−30).
fn mackey_glass(n: usize) -> Table {
    let (step, delay) = (0.1, 170);
    let mut series: Vec<f64> = vec![1.2; delay + 1];
    // Euler steps of 0.1, after a transient of 300.
    for t in delay..delay + (300 + n + 60) * 10 {
        let (now, then) = (series[t], series[t - delay]);
        series.push(now + step * (0.2 * then / (1.0 + then.powi(10)) - 0.1 * now));
    }
    let at = |t: usize| series[delay + (300 + t) * 10];
    let x = (0..n).flat_map(|i| (0..6).map(move |lag| at(30 + i - 6 * lag))).collect();
    Table::new("Mackey–Glass", 6, x, (0..n).map(|i| at(36 + i)).collect())
}

/// California housing, if the file exists: `n` rows at equal distances.
fn cadata(n: usize, context: &Context) -> Result<Option<Table>, Failure> {
    let Some(path) = context.data.as_ref().map(|folder| folder.join("cadata.csv.gz")).filter(|path| path.exists())
    else {
        return Ok(None);
    };
    let data = margrave::load(path)?;
    let targets = data.targets.real()?;
    let every = (data.points.len() / n).max(1);
    let d = data.points.dims();
    let mut x = vec![0.0; n * d];
    for (r, row) in x.chunks_mut(d).enumerate() {
        data.points.copy_row(r * every, row);
    }
    Ok(Some(Table::new("cadata", d, x, (0..n).map(|r| targets[r * every]).collect())))
}

/// The convergence curve of one method.
struct Curve {
    name: &'static str,
    iterations: u64,
    seconds: f64,
    dual: f64,
    violation: f64,
    /// Iteration, dual, violation.
    points: Vec<(f64, f64, f64)>,
    note: String,
}

pub(crate) fn run(context: &Context) -> Result<Report, Failure> {
    let n = if context.quick { 120 } else { 1000 };
    let mut report = Report::new("svmtorch", "Paper 001: convergence of SVMTorch", context);
    report.text(format!(
        "ε-insensitive regression, {n} samples a set, features and targets standardised, RBF kernel with σ = √d, C = {COST}, ε = {EPSILON}, τ = {TOL}. \
         2l: the paper's separate variables α, α*; n: one variable β = α* − α a sample, what selecting pairs (α, α*) amounts to."
    ));
    let mut tables = vec![abalone(n)?, mackey_glass(n)];
    match cadata(n, context)? {
        Some(table) => tables.push(table),
        None => report.text(
            "cadata is left out: give the folder that holds `cadata.csv.gz` (header, target last) with `--data`.",
        ),
    }
    let mut values = Vec::new();
    for table in &tables {
        let found = one(table, context)?;
        let best = found.iter().map(|c| c.dual).fold(f64::NEG_INFINITY, f64::max);
        report.text(format!("## {}", table.name));
        let line = |c: &Curve| {
            vec![
                c.name.into(),
                c.iterations.to_string(),
                format!("{:.2}", c.seconds),
                format!("{:.4}", c.dual),
                format!("{:.1e}", (best - c.dual) / best.abs()),
                format!("{:.1e}", c.violation),
                c.note.clone(),
            ]
        };
        report.table(
            ["way", "iterations", "seconds", "dual objective", "below the best", "violation (13)", ""],
            found.iter().map(line).collect(),
        );
        let chart = |label: &str, get: &dyn Fn(&(f64, f64, f64)) -> f64| Panel {
            x: Axis::new("iteration", Scale::Log),
            y: Axis::new(label, Scale::Log),
            height: 220.0,
            series: [1, 2, 3, 4]
                .map(|at| {
                    let c = &found[at];
                    Series::line(c.name, c.points.iter().filter(|p| p.0 > 0.0).map(|p| (p.0, get(p))).collect())
                })
                .to_vec(),
            marks: vec![],
        };
        let figure = Figure {
            title: format!("Decomposition on {}", table.name),
            panels: vec![
                chart("relative distance of D from its best", &|p| (best - p.1) / best.abs()),
                chart("violation of (13)", &|p| p.2),
            ],
        };
        let file = table.name.to_lowercase().replace('–', "-");
        report.figure(&file, format!("Objective and violation per iteration on {}", table.name), figure.svg());
        checks(&mut report, table.name, &found, best);
        let entry =
            |c: &Curve| json!({ "way": c.name, "iterations": c.iterations, "dual": c.dual, "violation": c.violation });
        values.push(json!({ "set": table.name, "ways": found.iter().map(entry).collect::<Vec<_>>() }));
    }
    report.value("sets", values);
    Ok(report)
}

fn one(table: &Table, context: &Context) -> Result<Vec<Curve>, Failure> {
    let n = table.y.len();
    let control = context.alone();
    let points = Points::dense_f64(n, table.d, table.x.clone())?;
    let gram = CpuGram::square(Kernel::rbf(1.0 / (2.0 * table.d as f64)), &points)?;
    let mut k = vec![0.0; n * n];
    gram.block_f64(Pick::All, Pick::All, &mut k, &control)?;
    let problem = Regression { k: &k, y: &table.y, c: COST, epsilon: EPSILON };
    let costs = vec![COST; n];
    let loss = Epsilon { epsilon: EPSILON };
    let formal = KernelProblem::new(&gram, &table.y, &costs, &loss, Constraint::free_bias())?;
    let torch = |name: &'static str, rule: StopRule, shrink: Option<u64>| -> Result<Curve, Failure> {
        let options = SvmTorchOptions {
            tol: TOL,
            rule,
            shrink_after: shrink,
            max_iterations: Some(2_000_000),
            ..Default::default()
        };
        let begun = std::time::Instant::now();
        let timed = svmtorch::solve(&formal, &options, &control, &mut Silent)?;
        let seconds = begun.elapsed().as_secs_f64();
        // A second run with about a hundred records: taking them would count in the time.
        let every = (timed.solution.iterations / 100).max(1);
        let end = svmtorch::solve(&formal, &SvmTorchOptions { record_every: every, ..options }, &control, &mut Silent)?;
        Ok(curve(name, &problem, &end, seconds))
    };
    let own = |name: &'static str, partner: Partner| {
        let begun = std::time::Instant::now();
        let moments = problem.descend(partner, TOL, 2_000_000, 20);
        let seconds = begun.elapsed().as_secs_f64();
        let last = moments.last().map_or((0, 0.0, 0.0), |m| (m.iteration, m.dual, m.violation));
        let points = moments.iter().map(|m| (m.iteration as f64, m.dual, m.violation)).collect();
        Curve { name, iterations: last.0, seconds, dual: last.1, violation: last.2, points, note: String::new() }
    };
    Ok(vec![
        torch("2l, rule (10)", StopRule::Average, None)?,
        torch("2l, rule (13)", StopRule::Pair, None)?,
        torch("2l, (13), shrinking", StopRule::Pair, Some(SHRINK_AFTER))?,
        own("n, worst pair", Partner::Worst),
        own("n, second order", Partner::SecondOrder),
    ])
}

fn curve(name: &'static str, problem: &Regression<'_>, end: &SvmTorchSolution, seconds: f64) -> Curve {
    let n = problem.y.len();
    let product = |beta: &[f64]| -> Vec<f64> {
        (0..n).map(|i| problem.k[i * n..(i + 1) * n].iter().zip(beta).map(|(k, b)| k * b).sum()).collect()
    };
    let state = |beta: &[f64]| {
        let f = product(beta);
        (problem.dual(beta, &f), problem.violation(beta, &f))
    };
    let points = end
        .records
        .iter()
        .map(|r| {
            let (dual, violation) = state(&r.beta);
            (r.iteration as f64, dual, violation)
        })
        .collect();
    let (dual, violation) = state(&end.solution.beta);
    let note = if end.rechecks > 0 || end.smallest_active < 2 * n {
        format!("{} of {} variables left at the least, {} re-checks", end.smallest_active, 2 * n, end.rechecks)
    } else {
        String::new()
    };
    Curve { name, iterations: end.solution.iterations, seconds, dual, violation, points, note }
}

fn checks(report: &mut Report, name: &str, found: &[Curve], best: f64) {
    let [average, pair, shrunk, worst, second] = [0, 1, 2, 3, 4].map(|at| &found[at]);
    report.check(
        format!("{name}: rule (10) is weaker than (13): it stops no later"),
        format!(
            "{} and {} iterations, violation {:.1e} and {:.1e}",
            average.iterations, pair.iterations, average.violation, pair.violation
        ),
        average.iterations <= pair.iterations && average.violation <= 2.0 * TOL * 1.01,
    );
    // A violation τ leaves D below its best by τ‖β − β*‖₁/2 at most, and ‖β‖₁ is of the size of D where the tube holds many samples.
    let near = |c: &Curve| (best - c.dual) / best.abs() < TOL;
    report.check(
        format!("{name}: every way ends at the same objective"),
        format!("within {:.1e}", found.iter().map(|c| (best - c.dual) / best.abs()).fold(0.0, f64::max)),
        found.iter().all(near),
    );
    report.check(
        format!("{name}: shrinking ends at a point that satisfies (13) for all variables"),
        format!("{:.1e}", shrunk.violation),
        shrunk.violation <= TOL * 1.01,
    );
    report.check(
        format!("{name}: second order needs fewer iterations than the worst pair"),
        format!("{} and {}", second.iterations, worst.iterations),
        second.iterations < worst.iterations,
    );
}
