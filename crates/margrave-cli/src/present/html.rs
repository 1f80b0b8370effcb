//! A training as one HTML page that needs no other file.

use std::fmt::Write as _;

use margrave::engine::data::{Dataset, Label};
use margrave::engine::gram::Precision;
use margrave::engine::model::{Calibration, Prediction, Scheme};
use margrave::engine::observe::Recorder;
use margrave::engine::problem::Task;
use margrave::{Control, Fit, Model, Result, Targets, Threads};

use super::{Rows, quality};
use crate::format;
use crate::models;
use margrave_plot::{Axis, Figure, HeatMap, Panel, Scale, Series};

const STYLE: &str = "\
body{font:15px/1.5 Helvetica,Arial,'Liberation Sans',sans-serif;color:#222;max-width:860px;margin:2em auto;padding:0 1em}\
h1{font-size:24px}h2{font-size:18px;border-bottom:1px solid #ddd;padding-bottom:4px;margin-top:2em}\
table{border-collapse:collapse;margin:.5em 0}td,th{padding:3px 12px 3px 0;text-align:left;vertical-align:top}\
th{font-weight:normal;color:#666}td.n,th.n{text-align:right}code{background:#f4f4f4;padding:2px 5px;border-radius:3px}\
pre{background:#f4f4f4;padding:10px;overflow-x:auto;border-radius:4px}.good{color:#00734f}.bad{color:#b03a00}svg{max-width:100%;height:auto}";

/// What the page shows.
pub(crate) struct Report<'a> {
    pub(crate) fit: &'a Fit,
    pub(crate) data: &'a Dataset,
    pub(crate) name: &'a str,
    pub(crate) history: &'a Recorder,
    /// The command line.
    pub(crate) command: &'a str,
    /// Rows of the summary, as the terminal shows them.
    pub(crate) summary: Rows,
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(rows: &[(&str, String)]) -> String {
    let mut text = String::from("<table>\n");
    for (name, value) in rows {
        let _ = writeln!(text, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    text + "</table>\n"
}

/// A table with a header; numbers on the right.
fn grid(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = String::from("<table>\n<tr>");
    header.iter().for_each(|h| {
        let _ = write!(text, "<th class=\"n\">{}</th>", escape(h));
    });
    text += "</tr>\n";
    for row in rows {
        text += "<tr>";
        row.iter().for_each(|cell| {
            let _ = write!(text, "<td class=\"n\">{}</td>", escape(cell));
        });
        text += "</tr>\n";
    }
    text + "</table>\n"
}

/// Residuals are drawn of at most this many targets.
const MOST_OUTPUTS: usize = 8;

/// The whole page.
pub(crate) fn page(report: &Report<'_>) -> Result<String> {
    let model = report.fit.model();
    let control = Control::unlimited(Threads::default());
    let scores = model.scores(&report.data.points, Precision::Double, &control)?;
    let mut body = String::new();
    let _ = write!(
        body,
        "<h1>{}</h1>\n<p>A model trained by Margrave {}.</p>\n",
        escape(report.name),
        env!("CARGO_PKG_VERSION")
    );
    let mut section = |title: &str, content: String| {
        if !content.is_empty() {
            let _ = write!(body, "<h2>{}</h2>\n{content}", escape(title));
        }
    };
    section("Summary", table(&report.summary));
    if let Some(quality) = quality::of(model, report.data, &model.decide(&scores), Some(&scores)) {
        section("Figures of merit, training data", table(&quality.rows));
    }
    section("Certificate", certificate(report.fit));
    section("Convergence", convergence(report.history));
    match model.task {
        Task::Classify => {
            let codes = codes(model, report.data)?;
            section("Confusion matrix, training data", confusion(model, &scores, &codes));
            if model.scheme == Scheme::One {
                section("ROC and precision–recall, training data", curves(&scores, &codes));
                section("Calibration, training data", reliability(model, &scores, &codes));
            }
        }
        Task::Regress => {
            // Hundreds of charts would make the page unreadable.
            for own in by_output(model, report.data, &scores)?.iter().take(MOST_OUTPUTS) {
                let title = match &own.name {
                    Some(name) => format!("Residuals of {name}, training data"),
                    None => "Residuals, training data".to_owned(),
                };
                section(&title, residuals(own));
            }
        }
        Task::Novelty => {}
    }
    section("Support vectors", support_vectors(model, report.data)?);
    section("The worst samples", worst(model, &scores, report.data)?);
    section("To reproduce", format!("<pre>{}</pre>\n", escape(report.command)));
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(report.name)
    ))
}

fn certificate(fit: &Fit) -> String {
    let totals = fit.totals();
    match (totals.dual, totals.gap, totals.relative_gap) {
        (Some(dual), Some(gap), Some(relative)) => {
            let style = if relative < 1e-2 { "good" } else { "bad" };
            let several = fit.records().len() > 1;
            let what = if several {
                format!(" The numbers are sums over {} binary models.", fit.records().len())
            } else {
                String::new()
            };
            format!(
                "<p>The optimum lies between the dual and the primal objective, so this model is \
                 <b class=\"{style}\">within {} of optimal</b>, relatively.{what}</p>\n{}",
                format::number(relative, 2),
                table(&[
                    ("primal", format::number(totals.primal, 12)),
                    ("dual", format::number(dual, 12)),
                    ("gap", format::number(gap, 3)),
                    ("relative gap", format::number(relative, 3)),
                    ("KKT violation", format::number(totals.violation, 3)),
                ])
            )
        }
        _ if !totals.known => "<p>Not checked: the certificate was not finished.</p>\n".to_owned(),
        _ => format!(
            "<p>The loss is not convex: no bound on the optimum exists. How far the model is from stationary:</p>\n{}",
            table(&[
                ("objective", format::number(totals.primal, 12)),
                ("stationarity", format::number(totals.violation, 3)),
            ])
        ),
    }
}

fn convergence(history: &Recorder) -> String {
    let along = |of: &dyn Fn(&margrave::engine::observe::Step) -> Option<f64>| -> Vec<(f64, f64)> {
        history.steps.iter().filter_map(|s| of(s).map(|v| (1000.0 * s.seconds, v))).collect()
    };
    let violation = along(&|s| s.violation.filter(|v| *v > 0.0));
    if violation.len() < 2 {
        return String::new();
    }
    let panel = Panel {
        x: Axis::new("milliseconds", Scale::Linear),
        y: Axis::new("KKT violation", Scale::Log),
        height: 220.0,
        series: vec![Series::line("violation", violation).with_dots()],
        marks: vec![],
    };
    Figure { title: "KKT violation while training".into(), panels: vec![panel] }.svg()
}

/// The class of each row among the model's labels.
fn codes(model: &Model, data: &Dataset) -> Result<Vec<u32>> {
    let (classes, codes) = data.targets.classes()?;
    let place = |label: &Label| model.labels.iter().position(|known| known == label).unwrap_or(0) as u32;
    let places: Vec<u32> = classes.iter().map(place).collect();
    Ok(codes.iter().map(|&code| places[code as usize]).collect())
}

fn confusion(model: &Model, scores: &[f64], codes: &[u32]) -> String {
    let k = model.labels.len();
    let Prediction::Labels(found) = model.decide(scores) else { return String::new() };
    let mut counts = vec![vec![0usize; k]; k];
    found.iter().zip(codes).for_each(|(f, t)| counts[*t as usize][*f as usize] += 1);
    let right: usize = (0..k).map(|c| counts[c][c]).sum();
    let names: Vec<String> = model.labels.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "<p>{right} of {} correct: {} %. Rows are true labels, columns are predictions.</p>\n",
        codes.len(),
        format::number(100.0 * right as f64 / codes.len().max(1) as f64, 4)
    );
    if k <= 12 {
        let header: Vec<&str> = std::iter::once("").chain(names.iter().map(String::as_str)).collect();
        let rows: Vec<Vec<String>> = counts
            .iter()
            .enumerate()
            .map(|(at, row)| std::iter::once(names[at].clone()).chain(row.iter().map(ToString::to_string)).collect())
            .collect();
        text += &grid(&header, &rows);
    }
    let share = |row: &Vec<usize>| {
        let sum = row.iter().sum::<usize>().max(1) as f64;
        row.iter().map(|c| Some(*c as f64 / sum)).collect::<Vec<_>>()
    };
    let mut values: Vec<Vec<Option<f64>>> = counts.iter().map(share).collect();
    let mut upwards = names.clone();
    // The heat map starts at the bottom; a matrix starts at the top.
    values.reverse();
    upwards.reverse();
    let map = HeatMap {
        title: "Share of each true label, %".into(),
        x: ("predicted".into(), names),
        y: ("true".into(), upwards),
        values,
        mark: None,
        format: |v| format::number(100.0 * v, 3),
    };
    text + &map.to_svg()
}

/// The numbers of true and false positives for each threshold, from the largest score down.
fn sweep(scores: &[f64], codes: &[u32]) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let (mut hit, mut miss) = (0.0, 0.0);
    let mut out = vec![(0.0, 0.0)];
    for (at, &row) in order.iter().enumerate() {
        if codes[row] == 1 {
            hit += 1.0
        } else {
            miss += 1.0
        }
        // Equal scores share one threshold.
        if order.get(at + 1).is_none_or(|&next| scores[next] != scores[row]) {
            out.push((hit, miss));
        }
    }
    out
}

fn curves(scores: &[f64], codes: &[u32]) -> String {
    let points = sweep(scores, codes);
    let Some(&(positive, negative)) = points.last() else { return String::new() };
    if positive == 0.0 || negative == 0.0 {
        return String::new();
    }
    let roc: Vec<(f64, f64)> = points.iter().map(|(h, m)| (m / negative, h / positive)).collect();
    let area: f64 = roc.windows(2).map(|w| (w[1].0 - w[0].0) * (w[1].1 + w[0].1) / 2.0).sum();
    let precision: Vec<(f64, f64)> = points.iter().skip(1).map(|(h, m)| (h / positive, h / (h + m))).collect();
    let average: f64 = points.windows(2).map(|w| (w[1].0 - w[0].0) / positive * w[1].0 / (w[1].0 + w[1].1)).sum();
    let unit = |label: &str| Axis::new(label, Scale::Linear).within(0.0, 1.0);
    let panel = |x: &str, y: &str, name: &str, line: Vec<(f64, f64)>, other: Vec<(f64, f64)>, guess: &str| Panel {
        x: unit(x),
        y: unit(y),
        height: 260.0,
        series: vec![Series::line(name, line), Series::line(guess, other)],
        marks: vec![],
    };
    let base = positive / (positive + negative);
    let figure = Figure {
        title: format!("Area under ROC {}, average precision {}", format::number(area, 4), format::number(average, 4)),
        panels: vec![
            panel("false positive rate", "true positive rate", "model", roc, vec![(0.0, 0.0), (1.0, 1.0)], "chance"),
            panel("recall", "precision", "model", precision, vec![(0.0, base), (1.0, base)], "chance"),
        ],
    };
    figure.svg()
}

fn reliability(model: &Model, scores: &[f64], codes: &[u32]) -> String {
    if !matches!(model.calibration, Some(Calibration::Sigmoid { .. })) {
        return String::new();
    }
    let Some(p) = model.probabilities(scores) else { return String::new() };
    let mut bins = vec![(0.0, 0.0, 0.0); 10];
    for (pair, code) in p.chunks_exact(2).zip(codes) {
        let bin = &mut bins[((pair[1] * 10.0) as usize).min(9)];
        bin.0 += pair[1];
        bin.1 += f64::from(*code);
        bin.2 += 1.0;
    }
    let n = codes.len().max(1) as f64;
    let error: f64 = bins.iter().map(|(p, y, _)| (p - y).abs() / n).sum();
    let line = bins.iter().filter(|b| b.2 > 0.0).map(|(p, y, count)| (p / count, y / count)).collect();
    let unit = |label: &str| Axis::new(label, Scale::Linear).within(0.0, 1.0);
    let panel = Panel {
        x: unit("predicted probability"),
        y: unit("observed share"),
        height: 260.0,
        series: vec![Series::line("model", line).with_dots(), Series::line("perfect", vec![(0.0, 0.0), (1.0, 1.0)])],
        marks: vec![],
    };
    Figure { title: format!("Expected calibration error {}", format::number(error, 3)), panels: vec![panel] }.svg()
}

/// One of the numbers a model predicts.
struct Output {
    /// Its name, if there are several.
    name: Option<String>,
    truth: Vec<f64>,
    scores: Vec<f64>,
    /// Mean absolute out-of-sample residual, if the model is calibrated.
    sigma: Option<f64>,
    /// Half-width of an interval that holds 90 % of them.
    radius: Option<f64>,
}

fn by_output(model: &Model, data: &Dataset, scores: &[f64]) -> Result<Vec<Output>> {
    let k = model.expansion.outputs();
    let truth = match &data.targets {
        Targets::Several { outputs, values } if *outputs == k => values,
        targets => targets.real()?,
    };
    let sigmas = match &model.calibration {
        Some(Calibration::Residuals { sigma, .. }) => vec![*sigma],
        Some(Calibration::ResidualsByOutput { sigma, .. }) => sigma.clone(),
        _ => vec![],
    };
    let (radii, names) = (model.radii(0.9).unwrap_or_default(), models::output_names(model));
    let column = |all: &[f64], at: usize| all.iter().skip(at).step_by(k).copied().collect::<Vec<f64>>();
    let output = |at: usize| Output {
        name: (k > 1).then(|| names[at].clone()),
        truth: column(truth, at),
        scores: column(scores, at),
        sigma: sigmas.get(at).copied(),
        radius: radii.get(at).copied(),
    };
    Ok((0..k).map(output).collect())
}

fn residuals(output: &Output) -> String {
    let (truth, scores) = (&output.truth, &output.scores);
    let n = truth.len().max(1) as f64;
    let mean = truth.iter().sum::<f64>() / n;
    let error: f64 = truth.iter().zip(scores).map(|(y, z)| (y - z).powi(2)).sum::<f64>() / n;
    let spread: f64 = truth.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
    let mut rows = vec![("mean squared error", format::number(error, 6))];
    if spread > 0.0 {
        rows.push(("R²", format::number(1.0 - error / spread, 5)));
    }
    if let Some(sigma) = output.sigma {
        rows.push(("mean absolute residual, out-of-sample", format::number(sigma, 4)));
        if let Some(radius) = output.radius {
            rows.push(("90 % lie within", format!("±{}", format::number(radius, 4))));
        }
    }
    // A few thousand dots are enough.
    let step = truth.len().div_ceil(3000).max(1);
    let pairs = || truth.iter().zip(scores).step_by(step);
    let (low, high) = truth.iter().chain(scores).fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
    let panel = |y: &str, dots: Vec<(f64, f64)>, line: Vec<(f64, f64)>, name: &str| Panel {
        x: Axis::new("predicted", Scale::Linear),
        y: Axis::new(y, Scale::Linear),
        height: 260.0,
        series: vec![Series::dots("samples", dots), Series::line(name, line)],
        marks: vec![],
    };
    let figure = Figure {
        title: "Predictions and residuals".into(),
        panels: vec![
            panel("target", pairs().map(|(y, z)| (*z, *y)).collect(), vec![(low, low), (high, high)], "equal"),
            panel(
                "target − predicted",
                pairs().map(|(y, z)| (*z, y - z)).collect(),
                vec![(low, 0.0), (high, 0.0)],
                "zero",
            ),
        ],
    };
    table(&rows) + &figure.svg()
}

fn support_vectors(model: &Model, data: &Dataset) -> Result<String> {
    let totals = model.totals();
    let f = &model.expansion;
    let lead = format!(
        "<p>{} of {} rows are support vectors; removing the others does not change the model.</p>\n",
        format::count(f.len() as u64),
        format::count(model.n as u64)
    );
    if model.task != Task::Classify {
        return Ok(lead + &table(&[("at bound", format::count(totals.bounded as u64))]));
    }
    let codes = codes(model, data)?;
    let mut rows = Vec::new();
    for (class, label) in model.labels.iter().enumerate() {
        let own = codes.iter().filter(|&&code| code as usize == class).count();
        let vectors = f.rows().iter().filter(|&&row| codes.get(row as usize) == Some(&(class as u32))).count();
        let share = 100.0 * vectors as f64 / own.max(1) as f64;
        rows.push(vec![
            label.to_string(),
            own.to_string(),
            vectors.to_string(),
            format!("{} %", format::number(share, 3)),
        ]);
    }
    let mut text = lead + &grid(&["label", "rows", "support vectors", "share"], &rows);
    if model.scheme == Scheme::One {
        let _ = writeln!(text, "<p>{} are at bound: inside the margin or on the wrong side.</p>", totals.bounded);
    }
    Ok(text)
}

fn worst(model: &Model, scores: &[f64], data: &Dataset) -> Result<String> {
    let k = model.expansion.outputs();
    let mut rows: Vec<(f64, Vec<String>)> = Vec::new();
    let header: &[&str] = match model.task {
        Task::Classify => {
            let codes = codes(model, data)?;
            let Prediction::Labels(found) = model.decide(scores) else { return Ok(String::new()) };
            for (row, (found, truth)) in found.iter().zip(&codes).enumerate() {
                let z = &scores[row * k..(row + 1) * k];
                // The margin that decides about the sample; negative on the wrong side.
                let margin = match model.scheme {
                    Scheme::One => {
                        if *truth == 1 {
                            z[0]
                        } else {
                            -z[0]
                        }
                    }
                    Scheme::OneVsRest | Scheme::Outputs => z[*truth as usize],
                    Scheme::CrammerSinger => {
                        let others = z.iter().enumerate().filter(|(class, _)| *class != *truth as usize);
                        z[*truth as usize] - others.map(|(_, z)| *z).fold(f64::NEG_INFINITY, f64::max)
                    }
                    Scheme::OneVsOne => margrave::engine::model::pairs(model.labels.len())
                        .zip(z)
                        .filter(|((i, j), _)| *i == *truth as usize || *j == *truth as usize)
                        .map(|((_, j), z)| if j == *truth as usize { *z } else { -z })
                        .fold(f64::INFINITY, f64::min),
                };
                let names = (model.labels[*truth as usize].to_string(), model.labels[*found as usize].to_string());
                rows.push((margin, vec![row.to_string(), names.0, names.1, format::number(margin, 4)]));
            }
            &["row", "true", "predicted", "margin"]
        }
        Task::Regress => {
            for own in by_output(model, data, scores)? {
                for (row, (y, z)) in own.truth.iter().zip(&own.scores).enumerate() {
                    let numbers = [format::number(*y, 6), format::number(*z, 6), format::number(y - z, 4)];
                    let cells = std::iter::once(row.to_string()).chain(own.name.clone()).chain(numbers).collect();
                    rows.push((-(y - z).abs(), cells));
                }
            }
            match k {
                1 => &["row", "target", "predicted", "residual"],
                _ => &["row", "output", "target", "predicted", "residual"],
            }
        }
        Task::Novelty => {
            scores
                .iter()
                .enumerate()
                .for_each(|(row, z)| rows.push((*z, vec![row.to_string(), format::number(*z, 4)])));
            &["row", "score"]
        }
    };
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let cells: Vec<Vec<String>> = rows.into_iter().take(10).map(|(_, cells)| cells).collect();
    Ok(format!(
        "<p>Rows are counted from 0. Check these first: wrong labels and outliers end up here.</p>\n{}",
        grid(header, &cells)
    ))
}
