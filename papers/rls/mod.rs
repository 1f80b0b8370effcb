//! Paper 003: regularised least squares; every λ from one decomposition; the linear case; the hinge and the square loss compared.

use std::time::Instant;

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::data::Points;
use margrave::engine::gram::Gram;
use margrave::engine::kernel::Kernel;
use margrave::engine::observe::Silent;
use margrave::engine::solver::ridge::{self, PathOptions, RidgeOptions, Side, Source};
use margrave::loss::Hinge;
use margrave_plot::{Axis, Figure, Mark, Panel, Scale, Series};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::json;

use crate::common::machine::{error_rate, exact, least_squares_of};
use crate::common::{Context, Failure, Mean, Report};
use crate::erm::sets;

/// Number of repeats of a measurement; the minimum counts.
const REPEATS: usize = 5;

/// Points of a smooth function of `d` features with noise.
fn noisy(n: usize, d: usize, seed: u64) -> margrave::Result<(Points, Vec<f64>)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> = (0..n * d).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect();
    let y = (0..n)
        .map(|i| {
            let z: f64 = StandardNormal.sample(&mut rng);
            (3.0 * x[i * d]).sin() + x[i * d + d - 1] + 0.3 * z
        })
        .collect();
    Ok((Points::dense_f64(n, d, x)?, y))
}

/// Seconds of the fastest of a few runs.
fn time<T>(mut work: impl FnMut() -> Result<T, Failure>) -> Result<f64, Failure> {
    let mut least = f64::INFINITY;
    for _ in 0..REPEATS {
        let begun = Instant::now();
        work()?;
        least = least.min(begun.elapsed().as_secs_f64());
    }
    Ok(least)
}

/// The slope of the line through the logarithms: the exponent of a power law.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let (mx, my) = (logs.iter().map(|l| l.0).sum::<f64>() / n, logs.iter().map(|l| l.1).sum::<f64>() / n);
    let (over, under) = logs.iter().fold((0.0, 0.0), |s, l| (s.0 + (l.0 - mx) * (l.1 - my), s.1 + (l.0 - mx).powi(2)));
    over / under
}

fn lambdas(count: usize) -> Vec<f64> {
    (0..count).map(|i| 10f64.powf(-4.0 + 6.0 * i as f64 / (count.max(2) - 1) as f64)).collect()
}

fn path(
    source: Source<'_>,
    y: &[f64],
    lambdas: Vec<f64>,
    side: Side,
    context: &Context,
) -> Result<ridge::Path, Failure> {
    let options = PathOptions { lambdas, bias: false, side, ..PathOptions::default() };
    Ok(ridge::path(source, y, 1, None, &options, &context.alone(), &mut Silent)?)
}

/// One Cholesky factorisation per λ, leave-one-out included.
fn again(gram: &dyn Gram, y: &[f64], lambdas: &[f64], context: &Context) -> Result<Vec<f64>, Failure> {
    let options = RidgeOptions { loo: true, ..RidgeOptions::default() };
    lambdas
        .iter()
        .map(|l| {
            let fit = ridge::fit(Source::Gram(gram), y, 1, &vec![1.0 / l; y.len()], None, &options, &context.alone())?;
            let residuals = fit.loo.unwrap_or_default();
            Ok(residuals.iter().map(|r| r * r).sum::<f64>() / y.len() as f64)
        })
        .collect()
}

pub(crate) fn run(context: &Context) -> Result<Report, Failure> {
    let mut report = Report::new("rls", "Paper 003: regularised least squares", context);
    costs(&mut report, context)?;
    curve(&mut report, context)?;
    crossover(&mut report, context)?;
    machines(&mut report, context)?;
    Ok(report)
}

/// §1.2: O(n³) once, then O(n²) per λ, against O(n³) per λ.
fn costs(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let (sizes, counts): (&[usize], &[usize]) =
        if context.quick { (&[60, 120], &[2, 20]) } else { (&[200, 400, 800, 1600], &[1, 2, 5, 10, 20, 50, 100]) };
    let (mut by_size, mut by_count) = (Vec::new(), Vec::new());
    for &n in sizes {
        let (points, y) = noisy(n, 5, context.seed)?;
        let gram = CpuGram::square(Kernel::rbf(0.5), &points)?;
        let once = time(|| path(Source::Gram(&gram), &y, lambdas(1), Side::Kernel, context))?;
        let rows: Vec<u32> = (0..n as u32).collect();
        let options = PathOptions { bias: false, side: Side::Kernel, ..PathOptions::default() };
        let control = context.alone();
        let spectrum = ridge::Spectrum::new(Source::Gram(&gram), &rows, &vec![1.0; n], &y, 1, &options, &control)?;
        let many = time(|| Ok(spectrum.evaluate(&lambdas(40), &control)?))?;
        let factor = time(|| again(&gram, &y, &lambdas(1), context))?;
        by_size.push((n as f64, once, many / 40.0, factor));
    }
    let n = sizes[sizes.len() / 2];
    let (points, y) = noisy(n, 5, context.seed)?;
    let gram = CpuGram::square(Kernel::rbf(0.5), &points)?;
    for &count in counts {
        let whole = time(|| path(Source::Gram(&gram), &y, lambdas(count), Side::Kernel, context))?;
        let each = time(|| again(&gram, &y, &lambdas(count), context))?;
        by_count.push((count as f64, whole, each));
    }
    let found = path(Source::Gram(&gram), &y, lambdas(5), Side::Kernel, context)?;
    let direct = again(&gram, &y, &lambdas(5), context)?;
    let apart = found.points.iter().zip(&direct).map(|(p, d)| (p.loo_mse - d).abs() / d).fold(0.0, f64::max);
    report.text("## The cost of many λ\n\nSeconds on one core (least of five): the decomposition, one more λ after it, one Cholesky with leave-one-out.");
    let seconds = |s: f64| format!("{s:.2e}");
    report.table(
        ["n", "decomposition and one λ", "each further λ", "factorising for one λ"],
        by_size.iter().map(|r| vec![format!("{}", r.0), seconds(r.1), seconds(r.2), seconds(r.3)]).collect(),
    );
    report.table(
        [format!("λ (n = {n})"), "one decomposition".into(), "a factorisation each".into()],
        by_count.iter().map(|r| vec![format!("{}", r.0), seconds(r.1), seconds(r.2)]).collect(),
    );
    let power =
        |get: fn(&(f64, f64, f64, f64)) -> f64| exponent(&by_size.iter().map(|r| (r.0, get(r))).collect::<Vec<_>>());
    // Below some 500 samples the eigenvectors fit in the cache and a λ costs less than n² suggests: the two largest n decide.
    let large: Vec<(f64, f64)> = by_size[by_size.len() - 2..].iter().map(|r| (r.0, r.2)).collect();
    let (decomposing, further, factor) = (power(|r| r.1), exponent(&large), power(|r| r.3));
    let in_count = exponent(&by_count.iter().map(|r| (r.0, r.2)).collect::<Vec<_>>());
    report.text(format!(
        "Measured exponents in n: decomposition {decomposing:.1}, each further λ {further:.1} (between the two largest n), a factorisation {factor:.1}; in the number of λ: {in_count:.2} when factorising each."
    ));
    let panel = |label: &str, series: Vec<Series>| Panel {
        x: Axis::new(label, Scale::Log),
        y: Axis::new("seconds", Scale::Log),
        height: 190.0,
        series,
        marks: vec![],
    };
    let line = |name: &str, points: Vec<(f64, f64)>| Series::line(name, points).with_dots();
    let figure = Figure {
        title: "Cost of the λ-path".into(),
        panels: vec![
            panel(
                "samples n",
                vec![
                    line("decomposition", by_size.iter().map(|r| (r.0, r.1)).collect()),
                    line("each further λ", by_size.iter().map(|r| (r.0, r.2)).collect()),
                    line("a factorisation", by_size.iter().map(|r| (r.0, r.3)).collect()),
                ],
            ),
            panel(
                &format!("number of λ (n = {n})"),
                vec![
                    line("one decomposition", by_count.iter().map(|r| (r.0, r.1)).collect()),
                    line("a factorisation each", by_count.iter().map(|r| (r.0, r.2)).collect()),
                ],
            ),
        ],
    };
    report.figure("costs", "Seconds against the number of samples and the number of λ", figure.svg());
    report.value(
        "exponents",
        json!({ "decomposition": decomposing, "further_lambda": further, "factorisation": factor, "count": in_count }),
    );
    report.value("loo_agreement", apart);
    report.check(
        "both ways give the same leave-one-out errors",
        format!("relative difference {apart:.1e}"),
        apart < 1e-6,
    );
    if !context.quick {
        let last = &by_count[by_count.len() - 1];
        report.check(
            "a further λ costs O(n²), a factorisation O(n³)",
            format!("exponents {further:.1} and {factor:.1}"),
            further < 2.6 && factor > 2.2,
        );
        report.check(
            "for 100 λ one decomposition is cheaper",
            format!("{:.0} times", last.2 / last.1),
            last.1 < last.2,
        );
    }
    Ok(())
}

/// The leave-one-out curve, in closed form and by actual refits.
fn curve(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let n = if context.quick { 40 } else { 200 };
    let (points, y) = noisy(n, 2, context.seed.wrapping_add(1))?;
    let kernel = Kernel::rbf(2.0);
    let gram = CpuGram::square(kernel, &points)?;
    let all = lambdas(25);
    let found = path(Source::Gram(&gram), &y, all, Side::Kernel, context)?;
    let some: Vec<f64> = found.points.iter().step_by(6).map(|p| p.lambda).collect();
    let control = context.alone();
    // Refits: each sample is scored by a machine trained on all others.
    let left: Vec<f64> = context.each("leaving out", some.len(), |at| {
        let mut sum = 0.0;
        for i in 0..n {
            let mut weights = vec![1.0 / some[at]; n];
            weights[i] = 0.0;
            let fit = ridge::fit(Source::Gram(&gram), &y, 1, &weights, None, &RidgeOptions::default(), &control)?;
            sum += (y[i] - fit.scores[i]).powi(2);
        }
        Ok(sum / n as f64)
    })?;
    let apart = found.points.iter().step_by(6).zip(&left).map(|(p, l)| (p.loo_mse - l).abs() / l).fold(0.0, f64::max);
    let best = found.best.map(|at| found.points[at].lambda).unwrap_or(f64::NAN);
    let line = |get: fn(&ridge::PathPoint) -> f64| found.points.iter().map(|p| (p.lambda, get(p))).collect::<Vec<_>>();
    let figure = Figure {
        title: "Leave-one-out error along λ".into(),
        panels: vec![Panel {
            x: Axis::new("λ", Scale::Log),
            y: Axis::new("mean squared error", Scale::Log),
            height: 260.0,
            series: vec![
                Series::line("leave-one-out, closed form", line(|p| p.loo_mse)),
                Series::line("training", line(|p| p.train_mse)),
                Series::dots("left out one by one", some.iter().copied().zip(left.iter().copied()).collect())
                    .style(6, 0),
            ],
            marks: vec![Mark { x: best, note: format!("least at λ = {best:.2}") }],
        }],
    };
    report.text(format!(
        "## Leave-one-out\n\n{n} samples of a noisy function of two features, RBF kernel. The noise has variance 0.09."
    ));
    report.figure("loo", "Training and leave-one-out error along λ; dots: refitted without each sample", figure.svg());
    report.value("best_lambda", best);
    report.value("loo_refit", apart);
    report.check(
        "the closed form is what refitting without each sample gives",
        format!("relative difference {apart:.1e}"),
        apart < 1e-6,
    );
    Ok(())
}

/// §1.3: the d × d side for many samples, the n × n side for many features.
fn crossover(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let (d, sizes): (usize, &[usize]) =
        if context.quick { (20, &[10, 40]) } else { (200, &[25, 50, 100, 150, 200, 300, 400, 800, 1600]) };
    let mut rows = Vec::new();
    let mut apart = 0.0f64;
    for &n in sizes {
        let (points, y) = noisy(n, d, context.seed)?;
        let costs = vec![1.0; n];
        let gram = CpuGram::square(Kernel::Linear, &points)?;
        let solve = |side: Side| {
            let options = RidgeOptions { side, ..RidgeOptions::default() };
            Ok::<_, Failure>(ridge::fit(
                Source::Linear(&points, &gram),
                &y,
                1,
                &costs,
                None,
                &options,
                &context.alone(),
            )?)
        };
        let (primal, kernel) = (time(|| solve(Side::Primal))?, time(|| solve(Side::Kernel))?);
        let (a, b) = (solve(Side::Primal)?, solve(Side::Kernel)?);
        apart = a.scores.iter().zip(&b.scores).map(|(a, b)| (a - b).abs()).fold(apart, f64::max);
        rows.push((n as f64 / d as f64, primal, kernel, Side::Auto.choose(n, d)));
    }
    let crossing = rows.windows(2).find(|w| (w[0].1 < w[0].2) != (w[1].1 < w[1].2)).map(|w| (w[0].0 * w[1].0).sqrt());
    report.text(format!("## Primal and kernel side\n\nThe linear kernel with d = {d} features: (XᵀX + λI)w = Xᵀy or (XXᵀ + λI)β = y. Seconds, least of five, and the side taken by counting operations."));
    report.table(
        ["n/d", "primal", "kernel", "taken"],
        rows.iter()
            .map(|r| vec![format!("{}", r.0), format!("{:.2e}", r.1), format!("{:.2e}", r.2), r.3.name().into()])
            .collect(),
    );
    let figure = Figure {
        title: "Which side is cheaper".into(),
        panels: vec![Panel {
            x: Axis::new(format!("n/d (d = {d})"), Scale::Log),
            y: Axis::new("seconds", Scale::Log),
            height: 230.0,
            series: vec![
                Series::line("primal, d × d", rows.iter().map(|r| (r.0, r.1)).collect()).with_dots(),
                Series::line("kernel, n × n", rows.iter().map(|r| (r.0, r.2)).collect()).with_dots(),
            ],
            marks: crossing.map(|x| Mark { x, note: format!("crossing near n/d = {x:.2}") }).into_iter().collect(),
        }],
    };
    report.figure("sides", "Seconds of both sides against n/d", figure.svg());
    report.value("crossover", crossing);
    report.check("both sides give the same scores", format!("to {apart:.1e}"), apart < 1e-6);
    if !context.quick {
        let (first, last) = (&rows[0], &rows[rows.len() - 1]);
        report.check(
            "the primal side is cheaper for n ≫ d, the kernel side for d ≫ n",
            "",
            last.1 < last.2 && first.2 < first.1,
        );
    }
    Ok(())
}

/// §2: the hinge and the square loss on the same data.
fn machines(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let names: &[&str] =
        if context.quick { &["Haberman"] } else { &["Balance", "Ecoli", "Haberman", "Liver", "Tic-Tac-Toe"] };
    let splits = if context.quick { 2 } else { 20 };
    let costs = [0.1, 1.0, 10.0, 100.0];
    let (mut lines, mut values) = (Vec::new(), Vec::new());
    for name in names {
        let set = sets::load(name)?;
        let kernel = Kernel::rbf(1.0 / (2.0 * set.d as f64));
        // Errors of hinge and square, and the fraction of support vectors, for every cost and split.
        let found = context.each("splits", splits, |number| {
            let control = context.alone();
            let mut rows: Vec<usize> = (0..set.len()).collect();
            rows.shuffle(&mut ChaCha8Rng::seed_from_u64(context.seed.wrapping_mul(1000).wrapping_add(number as u64)));
            let (train, test) = rows.split_at(set.len() * 4 / 5);
            let (train, test) = (set.standardised(train, train)?, set.standardised(train, test)?);
            let gram = CpuGram::square(kernel, &train.points)?;
            costs
                .iter()
                .map(|&c| {
                    let hinge = exact(&gram, &train.y, c, &Hinge, 1e-3, None, &control)?;
                    let square = least_squares_of(&gram, &train.y, c, &control)?;
                    let mut errors = [0.0; 3];
                    for (at, machine) in [&hinge, &square].into_iter().enumerate() {
                        let scores = machine.scores_of(kernel, &train.points, &test.points, &control)?;
                        errors[at] = 100.0 * error_rate(&scores, &test.y);
                    }
                    errors[2] = 100.0 * hinge.beta.iter().filter(|b| **b != 0.0).count() as f64 / train.y.len() as f64;
                    Ok(errors)
                })
                .collect::<Result<Vec<_>, Failure>>()
        })?;
        for (at, c) in costs.iter().enumerate() {
            let [hinge, square, vectors] =
                [0, 1, 2].map(|q| Mean::of(&found.iter().map(|f| f[at][q]).collect::<Vec<_>>()));
            lines.push(vec![
                (*name).into(),
                c.to_string(),
                hinge.show(2),
                square.show(2),
                vectors.show(0),
                "100".into(),
            ]);
            values.push(json!({ "set": name, "cost": c, "hinge": hinge.json(), "square": square.json(), "support": vectors.json() }));
        }
    }
    report.text(format!(
        "## Hinge and square\n\nTest error in per cent over {splits} splits (80 % to train), RBF kernel with σ = √d, C = 1/λ, and the share of training samples with β ≠ 0 in per cent: \
         the square keeps every sample, the hinge some."
    ));
    report.table(["set", "C", "hinge", "square", "support vectors, hinge", "square"], lines);
    report.value("machines", values);
    Ok(())
}
