//! Paper 000: convergence of IRWLS to the support vector machine.
//!
//! Figure 2 shows one small problem; the claims around it are measured over many.

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::certificate::certify;
use margrave::engine::data::Points;
use margrave::engine::gram::{Gram, Pick};
use margrave::engine::kernel::Kernel;
use margrave::engine::observe::Recorder;
use margrave::engine::problem::{Constraint, KernelProblem};
use margrave::engine::solver::{Stop, irwls};
use margrave::loss::{Hinge, SmoothHinge};
use margrave_plot::{Axis, Dot, Field, Figure, Panel, Plane, Scale, Series, tile};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::json;

use crate::common::machine::{Sample, Trained, exact, least_squares_of};
use crate::common::{Context, Failure, Mean, Report, eigen};

const COST: f64 = 1.0;
/// K of the steps: the lower end of the paper's range.
const CAP: f64 = 1e4;

/// Two overlapping clouds of `n` points in the plane, `distance` apart.
fn clouds(n: usize, distance: f64, seed: u64) -> margrave::Result<Sample> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let y: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let mut x = Vec::with_capacity(2 * n);
    for y in &y {
        for along in [0.6, 0.8] {
            let z: f64 = StandardNormal.sample(&mut rng);
            x.push(0.5 * distance * along * y + z);
        }
    }
    Sample::new(2, x, y)
}

/// The algorithm of section 3 for at most this many iterations.
fn iterate(
    gram: &dyn Gram,
    sample: &Sample,
    iterations: u64,
    context: &Context,
) -> Result<(Trained, Recorder, f64), Failure> {
    let costs = vec![COST; sample.y.len()];
    let problem = KernelProblem::new(gram, &sample.y, &costs, &Hinge, Constraint::free_bias())?;
    let options = irwls::Options {
        stop: Stop { tol: Some(1e-3), gap: None },
        majorise: Some(u64::MAX),
        cap: CAP,
        iterations: Some(iterations),
        ..irwls::Options::default()
    };
    let mut recorder = Recorder::default();
    let control = context.alone();
    let end = irwls::solve(&problem, None, &options, &control, &mut recorder)?;
    let gap = certify(&problem, &end.solution.beta, Some(&end.solution.bias), None, &control)?;
    Ok((Trained::new(end.solution, gram, &control)?, recorder, gap.relative_gap().unwrap_or(f64::INFINITY)))
}

/// Samples with a nonzero loss: u > 0.
fn active(sample: &Sample, machine: &Trained) -> Vec<bool> {
    sample.y.iter().zip(&machine.scores).map(|(y, z)| 1.0 - y * z > 0.0).collect()
}

pub(crate) fn run(context: &Context) -> Result<Report, Failure> {
    let mut report = Report::new("irwls-figure2", "Paper 000, Figure 2 and the claims around it", context);
    pictures(&mut report, context)?;
    claims(&mut report, context)?;
    smoothing(&mut report, context)?;
    Ok(report)
}

fn plane(
    sample: &Sample,
    kernel: Kernel,
    machine: &Trained,
    title: String,
    context: &Context,
) -> Result<String, Failure> {
    let (w, h) = (44, 33);
    let span = (-4.0, 4.0);
    let place = |i: usize, n: usize| span.0 + (span.1 - span.0) * (i as f64 + 0.5) / n as f64;
    let grid: Vec<f64> = (0..w * h).flat_map(|at| [place(at % w, w), place(at / w, h)]).collect();
    let field = machine.scores_of(kernel, &sample.points, &Points::dense_f64(w * h, 2, grid)?, &context.control())?;
    let mut row = [0.0; 2];
    let inside = active(sample, machine);
    let mut dots: Vec<Dot> = (0..sample.y.len())
        .map(|i| {
            sample.points.copy_row(i, &mut row);
            Dot { at: (row[0], row[1]), class: Some(usize::from(sample.y[i] > 0.0)), support: inside[i] }
        })
        .collect();
    dots.sort_by_key(|dot| dot.support);
    let plane = Plane {
        title,
        names: ("x₁".into(), "x₂".into()),
        x: span,
        y: span,
        size: (w, h),
        field: Field::Score(field, [0, 1]),
        dots,
        classes: vec!["class −1".into(), "class +1".into()],
        ring: "active, u > 0".into(),
    };
    Ok(plane.to_svg())
}

fn pictures(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let kernel = Kernel::Linear;
    let sample = clouds(100, 4.0, context.seed)?;
    let gram = CpuGram::square(kernel, &sample.points)?;
    let (_, whole, _) = iterate(&gram, &sample, 200, context)?;
    let last = whole.steps.len() as u64;
    let mut panels = Vec::new();
    for (letter, at) in ["a", "b", "c", "d", "e"].into_iter().zip([1, 2, 3, 8, last]) {
        let (machine, _, _) = iterate(&gram, &sample, at.min(last), context)?;
        let inside = active(&sample, &machine).iter().filter(|a| **a).count();
        let title = format!("({letter}) iteration {}: {inside} of {} active", at.min(last), sample.y.len());
        panels.push(plane(&sample, kernel, &machine, title, context)?);
    }
    let objectives: Vec<f64> = whole.steps.iter().filter_map(|s| s.primal).collect();
    let chart = Figure {
        title: "(f) the objective".into(),
        panels: vec![Panel {
            x: Axis::new("iteration", Scale::Linear),
            y: Axis::new("L_P", Scale::Linear),
            height: 450.0,
            series: vec![
                Series::line("L_P", objectives.iter().enumerate().map(|(i, p)| (i as f64 + 1.0, *p)).collect())
                    .with_dots(),
            ],
            marks: vec![],
        }],
    };
    panels.push(chart.svg());
    report.text(format!("## Figure 2\n\nTwo clouds of 50 points each, linear kernel, C = {COST}, K = {CAP:.0e}; {last} iterations (the paper's problem: 18)."));
    report.figure(
        "steps",
        "Figure 2: boundary (solid), margins (thin) and active samples (ringed) at iterations 1, 2, 3, 8 and the last; L_P of every iteration",
        tile("IRWLS on a problem in the plane", &panels, 2, 520.0),
    );
    report.value("objectives", objectives);
    Ok(())
}

/// Distances of the clouds: from classes that overlap to classes that do not.
const APART: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 6.0];

/// The measurements of one problem for the claims.
struct ClaimMeasurements {
    /// Largest difference of β between the first iteration and the LS-SVM, relative to the largest.
    first: f64,
    /// Fraction of steps with η = 1.
    full: f64,
    /// Fraction of samples with u < 0 after the first step.
    left: f64,
    rises: bool,
    iterations: f64,
    gap: f64,
}

fn try_claims(at: usize, context: &Context) -> Result<ClaimMeasurements, Failure> {
    // Linear and RBF kernels alternate.
    let kernel = if (at / APART.len()).is_multiple_of(2) { Kernel::Linear } else { Kernel::rbf(0.1) };
    let seed = context.seed.wrapping_mul(1000).wrapping_add(at as u64);
    let sample = clouds(100, APART[at % APART.len()], seed)?;
    let gram = CpuGram::square(kernel, &sample.points)?;
    let (one, _, _) = iterate(&gram, &sample, 1, context)?;
    let squares = least_squares_of(&gram, &sample.y, COST, &context.alone())?;
    let scale = squares.beta.iter().fold(0.0f64, |m, b| m.max(b.abs()));
    let apart = one.beta.iter().zip(&squares.beta).fold(0.0f64, |m, (a, b)| m.max((a - b).abs())) / scale;
    let (_, recorder, gap) = iterate(&gram, &sample, 200, context)?;
    let lengths: Vec<f64> = recorder.steps.iter().filter_map(|s| s.step_length).collect();
    let objectives: Vec<f64> = recorder.steps.iter().filter_map(|s| s.primal).collect();
    let inside = active(&sample, &one).iter().filter(|a| **a).count();
    Ok(ClaimMeasurements {
        first: apart,
        full: lengths.iter().filter(|l| **l == 1.0).count() as f64 / lengths.len().max(1) as f64,
        left: 1.0 - inside as f64 / sample.y.len() as f64,
        rises: objectives.windows(2).any(|w| w[1] > w[0] * (1.0 + 1e-12)),
        iterations: recorder.steps.len() as f64,
        gap,
    })
}

fn claims(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let problems = if context.quick { 10 } else { 50 };
    let found = context.each("problems", problems, |at| try_claims(at, context))?;
    let mean = |of: &[&ClaimMeasurements], get: fn(&ClaimMeasurements) -> f64| {
        Mean::of(&of.iter().map(|f| get(f)).collect::<Vec<_>>())
    };
    let all: Vec<&ClaimMeasurements> = found.iter().collect();
    let (mut lines, mut left) = (Vec::new(), Vec::new());
    for (at, apart) in APART.iter().enumerate() {
        let these: Vec<&ClaimMeasurements> = found.iter().skip(at).step_by(APART.len()).collect();
        let leaving = mean(&these, |f| 100.0 * f.left);
        lines.push(vec![
            format!("{apart}"),
            leaving.show(0),
            mean(&these, |f| 100.0 * f.full).show(0),
            mean(&these, |f| f.iterations).show(0),
            format!("{:.1e}", mean(&these, |f| f.gap).mean),
        ]);
        left.push(leaving.mean);
    }
    report.text(format!(
        "## Claims\n\nOver {problems} problems (two clouds of 50 points, linear and RBF kernels, C = {COST}), mean (standard deviation) by the distance of the \
         clouds in standard deviations:"
    ));
    report.table(
        [
            "distance",
            "% of samples with u < 0 after one step",
            "% of steps with η = 1",
            "iterations",
            "relative gap at the end",
        ],
        lines,
    );
    let first = found.iter().fold(0.0f64, |m, f| m.max(f.first));
    let full = mean(&all, |f| f.full);
    let rising = found.iter().filter(|f| f.rises).count();
    report.value(
        "claims",
        json!({ "problems": problems, "first_iteration_is_ls_svm": first, "full_steps": full.json(),
            "percent_left_by_distance": left, "rising": rising, "iterations": mean(&all, |f| f.iterations).json(),
            "relative_gap": mean(&all, |f| f.gap).json() }),
    );
    report.check(
        "the first iteration is the LS-SVM",
        format!("β differ by {first:.1e} of the largest at most"),
        first < 1e-6,
    );
    report.check("η = 1 in most iterations", format!("in {:.0} % of them", 100.0 * full.mean), full.mean > 0.5);
    report.check(
        "almost half of the samples leave the active set in the first step (classes that hardly overlap)",
        format!("{:.0} % and {:.0} % at the largest distances, {:.0} % at the smallest", left[3], left[4], left[0]),
        (30.0..=60.0).contains(&left[4]),
    );
    report.check("the objective never rises", format!("it rose in {rising} problems"), rising == 0);
    Ok(())
}

/// The effect of K on the solution and on the matrix.
fn smoothing(report: &mut Report, context: &Context) -> Result<(), Failure> {
    let sample = clouds(100, 2.6, context.seed)?;
    let gram = CpuGram::square(Kernel::Linear, &sample.points)?;
    let n = sample.y.len();
    let control = context.alone();
    let costs = vec![COST; n];
    let hinge = KernelProblem::new(&gram, &sample.y, &costs, &Hinge, Constraint::free_bias())?;
    let mut entries = vec![0.0; n * n];
    gram.block_f64(Pick::All, Pick::All, &mut entries, &control)?;
    let (mut lines, mut gaps, mut conditions) = (Vec::new(), Vec::new(), Vec::new());
    for exponent in (2..=12).step_by(2) {
        let k = 10f64.powi(exponent);
        let machine = exact(&gram, &sample.y, COST, &SmoothHinge { k }, 1e-10, None, &control)?;
        let gap = certify(&hinge, &machine.beta, Some(&[machine.bias]), None, &control)?;
        let relative = gap.relative_gap().unwrap_or(f64::INFINITY);
        // The system of the last iteration: samples with u > 0 and weights C·L′(u)/u, at most K·C.
        let rows: Vec<usize> = (0..n).filter(|&i| 1.0 - sample.y[i] * machine.scores[i] > 0.0).collect();
        let mut matrix: Vec<f64> =
            rows.iter().flat_map(|&i| rows.iter().map(move |&j| (i, j))).map(|(i, j)| entries[i * n + j]).collect();
        for (r, &i) in rows.iter().enumerate() {
            let u = 1.0 - sample.y[i] * machine.scores[i];
            matrix[r * rows.len() + r] += u.max(1.0 / k) / COST;
        }
        let (low, high) = eigen::extremes(matrix, rows.len());
        lines.push(vec![
            format!("1e{exponent}"),
            format!("{relative:.1e}"),
            rows.len().to_string(),
            format!("{:.1e}", high / low),
        ]);
        gaps.push((k, relative));
        conditions.push((k, high / low));
    }
    report.text("## K\n\nThe machine of the loss smoothed over 1/K, certified with the hinge itself; the condition number of K_SS + D_a⁻¹ in its last iteration (two clouds 2.6 apart, linear kernel). At K = 1e12 the slack of samples on the margin is below rounding: some count as u < 0 and leave the system.");
    report.table(["K", "relative gap of the hinge", "samples in the system", "condition number"], lines);
    let panel = |label: &str, points: Vec<(f64, f64)>| Panel {
        x: Axis::new("K", Scale::Log),
        y: Axis::new(label, Scale::Log),
        height: 170.0,
        series: vec![Series::line(label, points).with_dots()],
        marks: vec![],
    };
    let figure = Figure {
        title: "What K does".into(),
        panels: vec![panel("relative gap", gaps.clone()), panel("condition number", conditions)],
    };
    report.figure(
        "smoothing",
        "Gap of the smoothed machine and condition number of its system against K",
        figure.svg(),
    );
    let within = gaps.iter().filter(|(k, _)| (1e4..=1e10).contains(k)).fold(0.0f64, |m, g| m.max(g.1));
    report.check(
        "between K = 1e4 and 1e10 the solution does not vary significantly",
        format!("relative gap {within:.1e} at most"),
        within < 1e-3,
    );
    Ok(())
}
