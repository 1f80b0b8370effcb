//! Figures 1, 2 and 3.

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::kernel::Kernel;
use margrave::engine::observe::{Recorder, Silent};
use margrave::engine::problem::{Constraint, KernelProblem};
use margrave::engine::solver::{Stop, irwls};
use margrave::loss::{Hinge, Sigmoid};
use margrave_plot::{Axis, Figure, Mark, Panel, Scale, Series};
use serde_json::json;

use super::{problem, sets};
use crate::common::machine::{Steps, error_rate, exact, reweighted};
use crate::common::{Context, Failure, Mean, Report};

/// The C of Table 1 and larger ones: kernels that must follow a bump 0.06 wide need a large norm.
const COSTS: [f64; 5] = [4096.0, 65536.0, 1_048_576.0, 16_777_216.0, 268_435_456.0];
const ETA: Sigmoid = Sigmoid { eta: 2.0 };

fn panel(x: Axis, y: Axis, height: f64, series: Vec<Series>, marks: Vec<Mark>) -> Panel {
    Panel { x, y, height, series, marks }
}

pub(crate) fn run(context: &Context) -> Result<Report, Failure> {
    let mut report = Report::new("erm-figures", "Paper 002, Figures 1, 2 and 3", context);
    figure1(&mut report);
    figure2(&mut report, context)?;
    figure3(&mut report, context)?;
    Ok(report)
}

/// Densities, and the error of every threshold.
fn figure1(report: &mut Report) {
    let grid = |from: f64, to: f64, n: usize| (0..=n).map(move |i| from + (to - from) * i as f64 / n as f64);
    let plus = grid(-0.1, 1.3, 1400).map(|x| (x, problem::density_plus(x))).collect();
    // The edges of the uniform density are drawn vertically.
    let minus = vec![(-0.1, 0.0), (0.0, 0.0), (0.0, 2.0), (0.5, 2.0), (0.5, 0.0), (1.3, 0.0)];
    let errors: Vec<(f64, f64)> = grid(-0.1, 1.3, 1400).map(|t| (t, 100.0 * problem::error_of_threshold(t))).collect();
    let (best, least) = errors.iter().fold((0.0, f64::INFINITY), |b, e| if e.1 < b.1 { *e } else { b });
    let bayes = 100.0 * problem::bayes_error();
    let axis = |label: &str| Axis::new(label, Scale::Linear);
    let figure = Figure {
        title: "A problem of one dimension".into(),
        panels: vec![
            panel(
                axis("x"),
                axis("density p(x | y)"),
                230.0,
                vec![Series::line("class +1", plus), Series::line("class −1", minus).style(1, 3)],
                vec![],
            ),
            panel(
                axis("threshold"),
                axis("probability of error, %").within(0.0, 70.0),
                230.0,
                vec![
                    Series::line("every threshold", errors).style(0, 0),
                    Series::line("Bayes error", vec![(-0.1, bayes), (1.3, bayes)]).style(6, 1),
                ],
                vec![Mark { x: best, note: format!("best threshold {best:.2}: {least:.2} %") }],
            ),
        ],
    };
    report.text("## Figure 1");
    report.figure(
        "figure1",
        "Figure 1: the densities of both classes; the probability of error of every threshold, by (33) with priors",
        figure.svg(),
    );
    report.value("bayes_error", bayes / 100.0);
    report.check("Bayes error 8.37 %", format!("{bayes:.2} %"), (bayes - 8.37).abs() < 5e-3);
    report.check("the best threshold is 0.5", format!("{best:.3}"), (best - 0.5).abs() < 2e-3);
}

/// Train and test error of the hinge and the sigmoid on one set, in per cent.
fn both(kernel: Kernel, costs: [f64; 2], seed: u64, context: &Context) -> Result<[f64; 4], Failure> {
    let control = context.alone();
    let (train, test) = (problem::draw(400, seed)?, problem::draw(4000, seed.wrapping_add(500))?);
    let gram = CpuGram::square(kernel, &train.points)?;
    let hinge = |cost: f64| exact(&gram, &train.y, cost, &Hinge, 1e-3, None, &control);
    let (first, start) = (hinge(costs[0])?, hinge(costs[1])?);
    let start = (start.beta, start.bias);
    let how = (Steps::Paper, 1e-3);
    let level = reweighted(&gram, None, &train.y, costs[1], &ETA, how, start, &control, &mut Silent)?.0;
    let mut out = [0.0; 4];
    for (m, machine) in [&first, &level].into_iter().enumerate() {
        out[2 * m] = 100.0 * error_rate(&machine.scores, &train.y);
        let scores = machine.scores_of(kernel, &train.points, &test.points, &control)?;
        out[2 * m + 1] = 100.0 * error_rate(&scores, &test.y);
    }
    Ok(out)
}

/// Train and test error with kernels that can represent three thresholds.
fn figure2(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let sets = if context.quick { 2 } else { 20 };
    // σ = ½: γ = 1/(2σ²) = 2.
    let kernels = [
        ("RBF kernel, σ = 0.5", Kernel::rbf(2.0)),
        ("polynomial kernel, degree 3", Kernel::Poly { gamma: 1.0, coef0: 1.0, degree: 3 }),
    ];
    // C of hinge and sigmoid for each kernel, by the error on three sets that are not used afterwards.
    let costs: &[f64] = if context.quick { &COSTS[..1] } else { &COSTS };
    let mut chosen = Vec::new();
    for (_, kernel) in kernels {
        let errors = context.each("choosing C", 3 * costs.len(), |task| {
            let cost = costs[task / 3];
            both(kernel, [cost, cost], context.seed.wrapping_mul(1000).wrapping_add(900 + task as u64 % 3), context)
        })?;
        chosen.push([1, 3].map(|q| {
            let of = |c: usize| errors[3 * c..3 * c + 3].iter().map(|e| e[q]).sum::<f64>();
            (0..costs.len()).min_by(|&a, &b| of(a).total_cmp(&of(b))).map_or(costs[0], |at| costs[at])
        }));
    }
    let found = context.each("sets", 2 * sets, |task| {
        let seed = context.seed.wrapping_mul(1000).wrapping_add((task % sets) as u64);
        both(kernels[task / sets].1, chosen[task / sets], seed, context)
    })?;
    let bayes = 100.0 * problem::bayes_error();
    let names = ["hinge train", "hinge test", "sigmoid train", "sigmoid test"];
    let (mut panels, mut lines, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (k, (name, _)) in kernels.iter().enumerate() {
        let of = |q: usize| -> Vec<f64> { found[k * sets..(k + 1) * sets].iter().map(|f| f[q]).collect() };
        let dots = |q: usize, colour: usize, hollow: bool| {
            let points = of(q).iter().enumerate().map(|(set, e)| (set as f64 + 1.0, *e)).collect();
            let series = Series::line(names[q], points).with_dots().style(colour, if hollow { 1 } else { 0 });
            if hollow { series.hollow() } else { series }
        };
        let series = vec![
            dots(0, 1, true),
            dots(1, 1, false),
            dots(2, 0, true),
            dots(3, 0, false),
            Series::line("Bayes", vec![(0.5, bayes), (sets as f64 + 0.5, bayes)]).style(6, 2),
        ];
        let x = Axis::new(format!("set of 400 samples ({name})"), Scale::Linear).within(0.5, sets as f64 + 0.5);
        panels.push(panel(x, Axis::new("error, %", Scale::Linear), 230.0, series, vec![]));
        let means: Vec<Mean> = (0..4).map(|q| Mean::of(&of(q))).collect();
        let mut line = vec![(*name).to_owned(), format!("{} and {}", chosen[k][0], chosen[k][1])];
        line.extend(means.iter().map(|m| m.show(2)));
        lines.push(line);
        values.push(
            json!({ "kernel": name, "costs": chosen[k], "hinge": { "train": means[0].json(), "test": means[1].json() },
            "sigmoid": { "train": means[2].json(), "test": means[3].json() } }),
        );
        report.check(
            format!("{name}: the sigmoid's test error is below the hinge's"),
            format!("{:.2} %, hinge {:.2} %", means[3].mean, means[1].mean),
            means[3].mean <= means[1].mean,
        );
        report.check(
            format!(
                "{name}: the sigmoid's train error is below the Bayes error, its test error above and within 1.5 points"
            ),
            format!("{:.2} %, {:.2} %", means[2].mean, means[3].mean),
            context.quick || means[2].mean <= bayes && means[3].mean >= bayes && means[3].mean <= bayes + 1.5,
        );
    }
    report.text(format!(
        "## Figure 2\n\nErrors in per cent, mean (standard deviation) over {sets} sets; Bayes error {bayes:.2} %."
    ));
    report.table(["kernel", "C", names[0], names[1], names[2], names[3]], lines);
    let figure = Figure { title: "Train and test error with non-linear kernels".into(), panels };
    report.figure("figure2", "Figure 2: train and test error of each set, RBF and polynomial kernel", figure.svg());
    report.value("figure2", values);
    Ok(())
}

/// The objective of every iteration on Liver, with both kinds of steps.
fn figure3(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let set = sets::load("Liver")?;
    let (n, d) = (set.len(), set.d);
    let all: Vec<usize> = (0..n).collect();
    let points = set.standardised(&all, &all)?.points;
    // σ = 2√d.
    let gram = CpuGram::square(Kernel::rbf(1.0 / (8.0 * d as f64)), &points)?;
    let costs = vec![10.0; n];
    let control = context.control();
    let options = irwls::Options {
        stop: Stop { tol: Some(1e-3), gap: None },
        majorise: Some(u64::MAX),
        cap: 3e4,
        iterations: Some(100),
        ..irwls::Options::default()
    };
    let mut first = Recorder::default();
    let hinge = KernelProblem::new(&gram, &set.y, &costs, &Hinge, Constraint::free_bias())?;
    let start = irwls::solve(&hinge, None, &options, &control, &mut first)?;
    let mut second = Recorder::default();
    let level = KernelProblem::new(&gram, &set.y, &costs, &ETA, Constraint::free_bias())?;
    let options = irwls::Options {
        start: Some(start.solution.beta),
        start_bias: start.solution.bias.first().copied(),
        ..options
    };
    let end = irwls::solve(&level, None, &options, &control, &mut second)?;
    let objectives = |recorder: &Recorder| -> Vec<f64> { recorder.steps.iter().filter_map(|s| s.primal).collect() };
    let (a, b) = (objectives(&first), objectives(&second));
    let falls = |v: &[f64]| v.windows(2).all(|w| w[1] <= w[0]);
    let series =
        |v: &[f64], from: usize| v.iter().enumerate().map(|(i, p)| ((from + i) as f64, *p)).collect::<Vec<_>>();
    let mut later = vec![(a.len() as f64, end.start_objective)];
    later.extend(series(&b, a.len() + 1));
    let figure = Figure {
        title: "IRWLS in two steps: Liver, RBF kernel, C = 10, σ = 2√d".into(),
        panels: vec![
            panel(
                Axis::new("iteration", Scale::Linear),
                Axis::new("P, hinge", Scale::Log),
                210.0,
                vec![Series::line("hinge", series(&a, 1)).with_dots()],
                vec![],
            ),
            panel(
                Axis::new("iteration", Scale::Linear),
                Axis::new("P, sigmoid η = 2", Scale::Linear),
                210.0,
                vec![Series::line("sigmoid", later).with_dots()],
                vec![],
            ),
        ],
    };
    report.text("## Figure 3");
    report.figure(
        "figure3",
        "Figure 3: the objective (4) in each iteration, first with the hinge, then with the sigmoid",
        figure.svg(),
    );
    report.table(
        ["step", "iterations", "paper", "objective at the start", "at the end"],
        vec![
            vec![
                "hinge".into(),
                a.len().to_string(),
                "31".into(),
                format!("{:.1}", start.start_objective),
                format!("{:.1}", start.objective),
            ],
            vec![
                "sigmoid η = 2".into(),
                b.len().to_string(),
                "16".into(),
                format!("{:.1}", end.start_objective),
                format!("{:.1}", end.objective),
            ],
        ],
    );
    report.value("figure3", json!({ "hinge": a, "sigmoid": b }));
    report.check("the objective falls in every iteration of both steps", "", falls(&a) && falls(&b));
    Ok(())
}
