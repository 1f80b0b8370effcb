//! Table 1: eight losses on the problem of one dimension.

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::kernel::Kernel;
use margrave::engine::observe::Silent;
use margrave::loss::{Hinge, Loss, Polynomial, Power, Sigmoid};
use serde_json::json;

use super::problem;
use crate::common::machine::{Sample, Steps, Trained, error_rate, exact, least_squares, reweighted};
use crate::common::{Context, Failure, Mean, Report};

/// C of the paper.
const COST: f64 = 4096.0;
const SAMPLES: usize = 400;
/// The machine from which each loss that levels off is started a second time; the result with the lower objective counts.
const SECOND: Sigmoid = Sigmoid { eta: 2.0 };

/// How one row of the table is trained.
enum Way {
    Convex(Box<dyn Loss>),
    LeastSquares,
    TwoStep(Box<dyn Loss>),
}

/// One row, with the paper's figures: mean and deviation of threshold, train error, P_err, support vectors.
struct Row {
    name: &'static str,
    label: &'static str,
    way: Way,
    paper: [(f64, f64); 4],
}

fn rows() -> Vec<Row> {
    let sigmoid = |eta: f64| Way::TwoStep(Box::new(Sigmoid { eta }));
    let polynomial = |s: f64| Way::TwoStep(Box::new(Polynomial { s, kappa: 0.01 }));
    let power = |s: f64| Way::Convex(Box::new(Power { s }));
    let row = |name, label, way, paper| Row { name, label, way, paper };
    vec![
        row(
            "power:s=1",
            "Vapnik s = 1",
            power(1.0),
            [(0.3763, 0.0181), (0.2446, 0.0241), (0.2526, 0.0116), (197.28, 10.02)],
        ),
        row(
            "power:s=2",
            "Vapnik s = 2",
            power(2.0),
            [(0.3272, 0.0234), (0.2779, 0.0305), (0.2832, 0.0150), (292.0, 10.43)],
        ),
        row(
            "ls-svm",
            "LS-SVM",
            Way::LeastSquares,
            [(0.3197, 0.0247), (0.2794, 0.0373), (0.2868, 0.0164), (400.0, 0.0)],
        ),
        row(
            "sigmoid:eta=1",
            "Sigmoid η = 1",
            sigmoid(1.0),
            [(0.4984, 0.0044), (0.1779, 0.0143), (0.1922, 7.98e-4), (13.61, 4.23)],
        ),
        row(
            "sigmoid:eta=2",
            "Sigmoid η = 2",
            sigmoid(2.0),
            [(0.5000, 0.0036), (0.1778, 0.0141), (0.1918, 7.31e-4), (10.00, 1.89)],
        ),
        row(
            "sigmoid:eta=3",
            "Sigmoid η = 3",
            sigmoid(3.0),
            [(0.4999, 0.0036), (0.1774, 0.0146), (0.1918, 8.10e-4), (9.44, 1.83)],
        ),
        row(
            "polynomial:s=2",
            "Polynomial s = 2",
            polynomial(2.0),
            [(0.5004, 0.0047), (0.1778, 0.0180), (0.1919, 0.001), (9.94, 1.68)],
        ),
        row(
            "polynomial:s=4",
            "Polynomial s = 4",
            polynomial(4.0),
            [(0.5000, 0.0047), (0.1772, 0.0185), (0.1918, 9.99e-4), (24.26, 20.82)],
        ),
    ]
}

/// The measurements of one machine: threshold, train error, P_err, support vectors.
type Measured = [f64; 4];

/// Support vectors: samples whose share of Σ|β| is at least this. Losses that level off leave every sample in the margin a
/// slope above zero, even if it is only 1e-300: "support vector" needs a threshold, which the paper does not give.
const SHARE: f64 = 1e-3;

fn measure(sample: &Sample, trained: &Trained, share: f64) -> Measured {
    let mut row = [0.0];
    let w: f64 = (0..sample.y.len())
        .map(|i| {
            sample.points.copy_row(i, &mut row);
            trained.beta[i] * row[0]
        })
        .sum();
    let threshold = -trained.bias / w;
    let error =
        if w >= 0.0 { problem::error_of_threshold(threshold) } else { problem::error_of_reversed_threshold(threshold) };
    let total: f64 = trained.beta.iter().map(|b| b.abs()).sum();
    let vectors = trained.beta.iter().filter(|b| b.abs() > share * total).count();
    [threshold, error_rate(&trained.scores, &sample.y), error, vectors as f64]
}

/// The eight machines of one set.
fn machines(context: &Context, rows: &[Row], set: usize) -> Result<Vec<Measured>, Failure> {
    let control = context.alone();
    let sample = problem::draw(SAMPLES, context.seed.wrapping_mul(1000).wrapping_add(set as u64))?;
    let gram = CpuGram::square(Kernel::Linear, &sample.points)?;
    let convex = |loss: &dyn Loss| exact(&gram, &sample.y, COST, loss, 1e-6, None, &control);
    let level = |loss: &dyn Loss, start: &Trained| {
        let start = (start.beta.clone(), start.bias);
        let how = (Steps::Paper, 1e-6);
        reweighted(&gram, Some(&sample.points), &sample.y, COST, loss, how, start, &control, &mut Silent)
    };
    let hinge = convex(&Hinge)?;
    let second = level(&SECOND, &hinge)?.0;
    rows.iter()
        .map(|row| {
            Ok(match &row.way {
                Way::Convex(loss) => measure(&sample, &convex(loss.as_ref())?, 0.0),
                Way::LeastSquares => measure(&sample, &least_squares(&sample.points, &sample.y, COST, &control)?, 0.0),
                Way::TwoStep(loss) => {
                    let ends = [level(loss.as_ref(), &hinge)?, level(loss.as_ref(), &second)?];
                    let best = if ends[1].1 < ends[0].1 { &ends[1].0 } else { &ends[0].0 };
                    measure(&sample, best, SHARE)
                }
            })
        })
        .collect()
}

pub(crate) fn run(context: &Context) -> Result<Report, Failure> {
    let sets = if context.quick { 4 } else { 20 };
    let rows = rows();
    let measured = context.each("sets", sets, |set| machines(context, &rows, set))?;
    let title = "Paper 002, Table 1: eight losses on a problem of one dimension";
    let mut report = Report::new("erm-table1", title, context);
    let found: Vec<[Mean; 4]> = (0..rows.len())
        .map(|r| [0, 1, 2, 3].map(|q| Mean::of(&measured.iter().map(|set| set[r][q]).collect::<Vec<_>>())))
        .collect();
    report.text(format!(
        "{sets} sets of {SAMPLES} samples, C = {COST}, linear kernel. Mean (standard deviation) over the sets, ours and the paper's."
    ));
    let places = [4, 4, 4, 2];
    let line = |(row, found): (&Row, &[Mean; 4])| {
        let mut line = vec![row.label.to_owned()];
        for q in 0..4 {
            line.push(found[q].show(places[q]));
            line.push(Mean { mean: row.paper[q].0, std: row.paper[q].1 }.show(places[q]));
        }
        line
    };
    let head = ["loss", "threshold", "paper", "train error", "paper", "P_err", "paper", "support vectors", "paper"];
    report.table(head, rows.iter().zip(&found).map(line).collect());
    let entry = |(row, found): (&Row, &[Mean; 4])| {
        json!({ "loss": row.name, "threshold": found[0].json(), "train_error": found[1].json(),
                "p_err": found[2].json(), "support_vectors": found[3].json() })
    };
    report.value("rows", rows.iter().zip(&found).map(entry).collect::<Vec<_>>());
    let (half, bayes) = (problem::error_of_threshold(0.5), problem::bayes_error());
    report.value("optimal_linear", json!({ "threshold": 0.5, "p_err": half }));
    report.value("bayes_error", bayes);
    checks(&mut report, &rows, &found, half, bayes);
    Ok(report)
}

fn checks(report: &mut Report, rows: &[Row], found: &[[Mean; 4]], half: f64, bayes: f64) {
    for (q, what) in [(0, "threshold"), (2, "P_err")] {
        for (row, found) in rows.iter().zip(found) {
            let (paper, deviation) = row.paper[q];
            let allowed = (2.0 * deviation).max(0.02);
            let off = (found[q].mean - paper).abs();
            report.check(
                format!("{}: {what} {paper:.4} ± {allowed:.4}", row.label),
                format!("{:.4}", found[q].mean),
                off <= allowed,
            );
        }
    }
    let errors: Vec<f64> = found.iter().map(|f| f[2].mean).collect();
    let level = &errors[3..];
    let worst = level.iter().fold(0.0f64, |m, e| m.max(*e));
    // Squares with and without the samples beyond the margin differ by less than the sets do: 0.0036 in the paper, 0.2 of a deviation.
    let ordered = worst < errors[0] && errors[0] < errors[1].min(errors[2]);
    report.check(
        "P_err: sigmoid and polynomial below Vapnik s = 1, that below s = 2 and LS-SVM",
        format!("{worst:.4} < {:.4} < {:.4}", errors[0], errors[1].min(errors[2])),
        ordered,
    );
    let most = found[3..].iter().map(|f| f[3].mean).fold(0.0, f64::max);
    let share = most / found[0][3].mean;
    report.check(
        "sigmoid and polynomial with less than 15 % of the support vectors of Vapnik s = 1",
        format!("at most {:.1} %", 100.0 * share),
        share < 0.15,
    );
    report.check("P_err(0.5) = 0.1906", format!("{half:.4}"), (half - 0.1906).abs() < 5e-5);
    report.check("Bayes error 8.37 %", format!("{:.2} %", 100.0 * bayes), (bayes - 0.0837).abs() < 5e-5);
}
