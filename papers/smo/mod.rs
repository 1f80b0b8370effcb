//! Paper 004: margins, KKT cases, kernels, and SMO.

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::certificate::certify;
use margrave::engine::data::Points;
use margrave::engine::gram::{Gram, Pick};
use margrave::engine::kernel::Kernel;
use margrave::engine::observe::Silent;
use margrave::engine::problem::{Constraint, KernelProblem};
use margrave::engine::solver::textbook::Record;
use margrave::engine::solver::textbook::smo::{self, RecordUnit, SmoOptions};
use margrave::loss::Hinge;
use margrave_plot::{Axis, Dot, Field, Figure, Panel, Plane, Scale, Series, tile};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::json;

use crate::common::machine::{Sample, Trained, error_rate, exact};
use crate::common::{Context, Failure, Report};

/// Tolerance of a KKT case, in units of the score, of machines solved to a hundredth of it.
const KKT: f64 = 1e-4;

/// Number of sweeps without a change that end an outer iteration. A random partner rarely helps where few samples matter: with
/// 5 sweeps the first set ends with a gap of two thirds.
const PASSES: u32 = 100;

/// A set in the plane and the machine for it.
struct PlaneSet {
    name: &'static str,
    sample: Sample,
    kernel: Kernel,
    cost: f64,
}

fn cases(seed: u64) -> margrave::Result<Vec<PlaneSet>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
    let labels: Vec<f64> = (0..80).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let mut clouds = |apart: f64| -> Vec<f64> {
        labels.iter().flat_map(|y| [apart * y + normal(), 0.5 * apart * y + normal()]).collect()
    };
    let (far, near) = (clouds(2.6), clouds(0.9));
    let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_add(1));
    let rings: Vec<f64> = labels
        .iter()
        .flat_map(|y| {
            let (angle, radius) = (std::f64::consts::TAU * rng.random::<f64>(), if *y > 0.0 { 1.0 } else { 2.6 });
            let radius = radius + 0.5 * (rng.random::<f64>() - 0.5);
            [radius * angle.cos(), radius * angle.sin()]
        })
        .collect();
    Ok(vec![
        PlaneSet {
            name: "separable clouds, linear, C = 100",
            sample: Sample::new(2, far, labels.clone())?,
            kernel: Kernel::Linear,
            cost: 100.0,
        },
        PlaneSet {
            name: "overlapping clouds, linear, C = 1",
            sample: Sample::new(2, near, labels.clone())?,
            kernel: Kernel::Linear,
            cost: 1.0,
        },
        PlaneSet {
            name: "rings, RBF σ = 1, C = 1",
            sample: Sample::new(2, rings, labels)?,
            kernel: Kernel::rbf(0.5),
            cost: 1.0,
        },
    ])
}

pub(crate) fn run(context: &Context) -> Result<Report, Failure> {
    let mut report = Report::new("smo", "Paper 004: margins, KKT cases, kernels and SMO", context);
    let cases = cases(context.seed)?;
    census(&mut report, &cases, context)?;
    examples(&mut report, context)?;
    objectives(&mut report, &cases, context)?;
    Ok(report)
}

fn picture(case: &PlaneSet, machine: &Trained, context: &Context) -> Result<String, Failure> {
    let (w, h) = (44, 33);
    let span = (-5.0, 5.0);
    let place = |i: usize, n: usize| span.0 + (span.1 - span.0) * (i as f64 + 0.5) / n as f64;
    let grid: Vec<f64> = (0..w * h).flat_map(|at| [place(at % w, w), place(at / w, h)]).collect();
    let points = Points::dense_f64(w * h, 2, grid)?;
    let field = machine.scores_of(case.kernel, &case.sample.points, &points, &context.control())?;
    let mut row = [0.0; 2];
    let mut dots: Vec<Dot> = (0..case.sample.y.len())
        .map(|i| {
            case.sample.points.copy_row(i, &mut row);
            Dot {
                at: (row[0], row[1]),
                class: Some(usize::from(case.sample.y[i] > 0.0)),
                support: machine.beta[i] != 0.0,
            }
        })
        .collect();
    dots.sort_by_key(|dot| dot.support);
    let plane = Plane {
        title: case.name.into(),
        names: ("x₁".into(), "x₂".into()),
        x: span,
        y: span,
        size: (w, h),
        field: Field::Score(field, [0, 1]),
        dots,
        classes: vec!["class −1".into(), "class +1".into()],
        ring: "support vector".into(),
    };
    Ok(plane.to_svg())
}

/// §3.4.1: α = 0, 0 < α < C, α = C, and where the samples of each case must lie.
fn census(report: &mut Report, cases: &[PlaneSet], context: &Context) -> Result<(), Failure> {
    let control = context.alone();
    let (mut lines, mut pictures, mut broken, mut values) = (Vec::new(), Vec::new(), 0, Vec::new());
    for case in cases {
        let gram = CpuGram::square(case.kernel, &case.sample.points)?;
        let machine = exact(&gram, &case.sample.y, case.cost, &Hinge, 0.01 * KKT, None, &control)?;
        let mut counts = [0usize; 3];
        for (i, y) in case.sample.y.iter().enumerate() {
            let (alpha, margin) = (y * machine.beta[i], y * machine.scores[i]);
            let (kind, right) = if alpha <= 1e-9 * case.cost {
                (0, margin >= 1.0 - KKT)
            } else if alpha < (1.0 - 1e-9) * case.cost {
                (1, (margin - 1.0).abs() <= KKT)
            } else {
                (2, margin <= 1.0 + KKT)
            };
            counts[kind] += 1;
            broken += usize::from(!right);
        }
        let norm: f64 = (0..case.sample.y.len()).map(|i| machine.beta[i] * (machine.scores[i] - machine.bias)).sum();
        // The geometric margin of a separable set is 1/‖w‖.
        let geometric = 1.0 / norm.sqrt();
        let error = error_rate(&machine.scores, &case.sample.y);
        lines.push(vec![
            case.name.into(),
            counts[0].to_string(),
            counts[1].to_string(),
            counts[2].to_string(),
            format!("{geometric:.4}"),
            format!("{:.1} %", 100.0 * error),
        ]);
        values.push(json!({ "set": case.name, "zero": counts[0], "free": counts[1], "bound": counts[2], "margin": geometric, "error": error }));
        pictures.push(picture(case, &machine, context)?);
    }
    report.text("## Margins and KKT cases\n\n80 samples each. α = 0: margin ≥ 1; 0 < α < C: on the margin; α = C: inside it or beyond (§3.4.1).");
    report.table(["set", "α = 0", "0 < α < C", "α = C", "margin 1/‖w‖", "train error"], lines);
    report.figure(
        "margins",
        "Boundaries, margins and support vectors of three sets",
        tile("Three sets in the plane", &pictures, 2, 520.0),
    );
    report.value("census", values);
    report.check("every sample lies where its α says", format!("{broken} do not"), broken == 0);
    Ok(())
}

/// Examples 3.7 to 3.9 and the Gram matrices of Theorem 3.11.
fn examples(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let control = context.alone();
    let y = [1.0, -1.0, 1.0];
    let line = Sample::new(1, vec![-1.0, 0.0, 1.0], y.to_vec())?;
    let lifted = Sample::new(2, vec![-1.0, 1.0, 0.0, 0.0, 1.0, 1.0], y.to_vec())?;
    let train = |sample: &Sample| -> Result<Trained, Failure> {
        exact(&CpuGram::square(Kernel::Linear, &sample.points)?, &y, 1e3, &Hinge, 1e-8, None, &control)
    };
    let (flat, high) = (train(&line)?, train(&lifted)?);
    let errors = |m: &Trained| m.scores.iter().zip(&y).filter(|(z, y)| **z * **y <= 1e-6).count();
    let w: Vec<f64> =
        (0..2).map(|k| (0..3).map(|i| high.beta[i] * [[-1.0, 1.0], [0.0, 0.0], [1.0, 1.0]][i][k]).sum()).collect();
    let entry = |kernel: Kernel, a: [f64; 2], b: [f64; 2]| -> Result<f64, Failure> {
        let (a, b) = (Points::dense_f64(1, 2, a.to_vec())?, Points::dense_f64(1, 2, b.to_vec())?);
        let mut out = [0.0];
        CpuGram::new(kernel, &a, &b)?.block_f64(Pick::All, Pick::All, &mut out, &control)?;
        Ok(out[0])
    };
    let gauss = entry(Kernel::rbf(0.5), [1.0, 1.0], [2.0, -3.0])?;
    let square = entry(Kernel::Poly { gamma: 1.0, coef0: 0.0, degree: 2 }, [1.0, 2.0], [3.0, -1.0])?;
    let psi = |x: [f64; 2]| [x[0] * x[0], x[0] * x[1], x[1] * x[0], x[1] * x[1]];
    let mapped: f64 = psi([1.0, 2.0]).iter().zip(psi([3.0, -1.0])).map(|(a, b)| a * b).sum();
    report.text(format!(
        "## Small examples\n\n- Three points −1, 0, 1 with labels +, −, + (Example 3.7): in x the best machine leaves {} of them on the wrong side or \
         on the boundary; in (x, x²) none: w = ({:.3}, {:.3}), b = {:.3}. The largest margin has w = (0, 2), b = −1, the paper's plane (0, 1), −½ scaled to margin 1.\n\
         - k((1, 1), (2, −3)) with σ = 1 (Example 3.9): {gauss:.6e}; exp(−17/2) = {:.6e}.\n\
         - (xᵀz)² at x = (1, 2), z = (3, −1): {square}; ⟨ψ(x), ψ(z)⟩ = {mapped} (59).",
        errors(&flat), w[0], w[1], high.bias, (-8.5f64).exp()
    ));
    let right = w[0].abs() < 1e-4 && (w[1] - 2.0).abs() < 1e-4 && (high.bias + 1.0).abs() < 1e-4;
    report.check(
        "not separable in x, separable in (x, x²) with the plane (0, 1), −½",
        format!("{} and {} errors", errors(&flat), errors(&high)),
        errors(&flat) > 0 && errors(&high) == 0 && right,
    );
    report.check("k = exp(−17/2)", format!("{gauss:.6e}"), (gauss - (-8.5f64).exp()).abs() < 1e-15);
    report.check("(xᵀz)² = ⟨ψ(x), ψ(z)⟩", square.to_string(), (square - mapped).abs() < 1e-12);

    let mut rng = ChaCha8Rng::seed_from_u64(context.seed);
    let points = Points::dense_f64(40, 2, (0..80).map(|_| 4.0 * rng.random::<f64>() - 2.0).collect::<Vec<_>>())?;
    let kernels = [
        ("linear", Kernel::Linear, true),
        ("(xᵀz)²", Kernel::Poly { gamma: 1.0, coef0: 0.0, degree: 2 }, true),
        ("Gaussian, σ = 1", Kernel::rbf(0.5), true),
        ("tanh(xᵀz − 1)", Kernel::Sigmoid { gamma: 1.0, coef0: -1.0 }, false),
    ];
    let mut lines = Vec::new();
    for (name, kernel, valid) in kernels {
        let mut values = vec![0.0; 1600];
        CpuGram::square(kernel, &points)?.block_f64(Pick::All, Pick::All, &mut values, &control)?;
        let (low, high) = crate::common::eigen::extremes(values, 40);
        let psd = low >= -1e-10 * high;
        lines.push(vec![
            name.into(),
            format!("{low:.2e}"),
            format!("{high:.2e}"),
            if psd { "yes" } else { "no" }.into(),
        ]);
        report.check(
            format!("the Gram matrix of {name} is {}positive semi-definite", if valid { "" } else { "not " }),
            format!("least eigenvalue {low:.1e}"),
            psd == valid,
        );
    }
    report.text("Gram matrices over 40 random points of [−2, 2]² (Theorem 3.11):");
    report.table(["kernel", "least eigenvalue", "largest", "positive semi-definite"], lines);
    Ok(())
}

/// Algorithm 1: the recorded objectives converge to each other; how far from the optimum it stops.
fn objectives(report: &mut Report, cases: &[PlaneSet], context: &Context) -> Result<(), Failure> {
    let control = context.alone();
    let (mut lines, mut panels, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ordered, mut worst, mut best) = (true, 0.0f64, 0.0f64);
    for case in cases {
        let gram = CpuGram::square(case.kernel, &case.sample.points)?;
        let costs = vec![case.cost; case.sample.y.len()];
        let problem = KernelProblem::new(&gram, &case.sample.y, &costs, &Hinge, Constraint::free_bias())?;
        let options = SmoOptions {
            max_passes: PASSES,
            record_unit: RecordUnit::Sweep,
            seed: context.seed,
            max_pairs: Some(200_000),
            ..SmoOptions::default()
        };
        let end = smo::solve(&problem, &options, &control, &mut Silent)?;
        let fast = exact(&gram, &case.sample.y, case.cost, &Hinge, 1e-8, None, &control)?;
        let gap = |beta: &[f64], bias: &[f64]| -> Result<f64, Failure> {
            Ok(certify(&problem, beta, Some(bias), None, &control)?.relative_gap().unwrap_or(f64::INFINITY))
        };
        let (ours, quick) = (gap(&end.solution.beta, &end.solution.bias)?, gap(&fast.beta, &[fast.bias])?);
        ordered &= end.records.iter().all(|r| r.primal >= r.dual - 1e-9 * r.primal.abs());
        (worst, best) = (worst.max(ours), best.max(quick));
        let series =
            |get: fn(&Record) -> f64| end.records.iter().map(|r| (r.iteration as f64, get(r))).collect::<Vec<_>>();
        panels.push(Panel {
            x: Axis::new(format!("sweep over all samples ({})", case.name), Scale::Log),
            y: Axis::new("objective", Scale::Log),
            height: 170.0,
            series: vec![Series::line("primal", series(|r| r.primal)), Series::line("dual", series(|r| r.dual))],
            marks: vec![],
        });
        lines.push(vec![
            case.name.into(),
            end.sweeps.to_string(),
            end.solution.iterations.to_string(),
            format!("{ours:.1e}"),
            format!("{quick:.1e}"),
        ]);
        values.push(json!({ "set": case.name, "sweeps": end.sweeps, "pairs": end.solution.iterations, "gap": ours, "gap_fast": quick }));
    }
    report.text("## SMO\n\nAlgorithm 1 (random partner, tol 1e-3, 100 sweeps without a change end it), its primal and dual objectives after every sweep, and the relative gap at its end beside that of the fast solver at tol 1e-8.");
    report.table(["set", "sweeps", "pairs changed", "gap of SMO", "gap of the fast solver"], lines);
    report.figure(
        "smo",
        "Primal and dual objective of SMO, sweep by sweep",
        Figure { title: "SMO: the objectives meet".into(), panels }.svg(),
    );
    report.value("smo", values);
    report.check("the dual never exceeds the primal", "", ordered);
    // A KKT violation of tol costs up to C·tol per sample: 0.1 for C = 100, where P is 1.6.
    report.check(
        "at SMO's end they have met, to its tolerance",
        format!("relative gap {worst:.1e} at most"),
        worst < 5e-2,
    );
    report.check("the fast solver's gap is a hundredth of that or less", format!("{best:.1e}"), best <= 0.01 * worst);
    Ok(())
}
