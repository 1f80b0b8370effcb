//! A training as one HTML page that needs no other file.

use std::fmt::Write as _;

use margrave::engine::data::Dataset;
use margrave::engine::model::{Prediction, Scheme};
use margrave::engine::observe::Recorder;
use margrave::engine::problem::Task;
use margrave::{Fit, Model};
use margrave_plot::{Axis, Figure, Panel, Scale, Series};

use super::{Rows, figures, prose, row_in_file};
use crate::evaluate::{self, Evaluation, Predicted};
use crate::failure::Failure;
use crate::format;

/// Colours come from variables, so that dark screens and paper need a few lines. Charts have their own styles, which the last
/// rules override on dark screens.
const STYLE: &str = "\
:root{--ink:#222;--dim:#666;--line:#ddd;--paper:#fff;--code:#f4f4f4;--good:#00734f;--bad:#b03a00;--edge:#0003}\
body{font:15px/1.5 Helvetica,Arial,'Liberation Sans',sans-serif;color:var(--ink);background:var(--paper);max-width:860px;margin:2em auto;padding:0 1em}\
h1{font-size:24px;overflow-wrap:anywhere}h2{font-size:18px;border-bottom:1px solid var(--line);padding-bottom:4px;margin-top:2em}h3{font-size:15px}\
table{border-collapse:collapse;margin:.5em 0}td,th{padding:3px 14px 3px 0;text-align:left;vertical-align:top}\
th{font-weight:normal;color:var(--dim)}table:not(.grid) th{white-space:nowrap}td.n,th.n{text-align:right}td.first,th.first{text-align:left}td{overflow-wrap:anywhere}\
td.n{overflow-wrap:normal;white-space:nowrap}td.first{white-space:normal;overflow-wrap:anywhere;min-width:3em}\
.wide{overflow-x:auto;background:linear-gradient(to right,var(--paper) 40%,transparent) 0 0/3em 100% no-repeat local,\
linear-gradient(to left,var(--paper) 40%,transparent) 100% 0/3em 100% no-repeat local,\
linear-gradient(to right,var(--edge),transparent) 0 0/1em 100% no-repeat scroll,\
linear-gradient(to left,var(--edge),transparent) 100% 0/1em 100% no-repeat scroll}.wide svg>rect[fill='#fff']{fill:none}.wide svg{max-width:max(100%,520px)}\
pre{background:var(--code);padding:10px;border-radius:4px;white-space:pre-wrap;overflow-wrap:anywhere}.good{color:var(--good)}.bad{color:var(--bad)}svg{max-width:100%;height:auto}\
@media screen and (prefers-color-scheme:dark){:root{--ink:#e4e4e4;--dim:#a0a0a0;--line:#444;--paper:#16181c;--code:#24272d;--good:#4cc79a;--bad:#ff9a66;--edge:#fff4;color-scheme:dark}\
.wide svg text{fill:#e4e4e4}.wide svg .grid{stroke:#3a3d44}.wide svg .fine{stroke:#26292f}\
.wide svg .frame,.wide svg .mark{stroke:#999}.wide svg polyline[stroke='#0072b2']{stroke:#4aa8e0}.wide svg circle[fill='#0072b2']{fill:#4aa8e0}}\
@media (max-width:500px){td.n{white-space:normal}table:not(.grid) th{white-space:normal}td,th{padding-right:9px}}\
@media print{body{max-width:none;margin:0;font-size:11pt}h2,h3,p{break-after:avoid}svg,table,pre,.wide{break-inside:avoid}\
.wide{overflow:visible;background:none}.wide svg{max-width:100%;max-height:23cm}}";

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
    /// Predictions for the training data, left out and not.
    pub(crate) evaluation: &'a Evaluation,
    /// Rows of the file, from 0, that are not part of the data, in order.
    pub(crate) left_out: &'a [usize],
}

/// What is judged side by side: left-out predictions first, where there are any.
type Sets<'a> = Vec<(&'static str, &'a Predicted)>;

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(super) fn table(rows: &[(&str, String)]) -> String {
    let mut text = String::from("<table>\n");
    for (name, value) in rows {
        let _ = writeln!(text, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    text + "</table>\n"
}

/// A table with a header: names on the left, numbers on the right.
pub(super) fn grid(header: &[&str], rows: &[Vec<String>]) -> String {
    let class = |at: usize| if at == 0 { "n first" } else { "n" };
    let mut text = String::from("<div class=\"wide\"><table class=\"grid\">\n<tr>");
    header.iter().enumerate().for_each(|(at, h)| {
        let _ = write!(text, "<th class=\"{}\">{}</th>", class(at), escape(h));
    });
    text += "</tr>\n";
    for row in rows {
        text += "<tr>";
        row.iter().enumerate().for_each(|(at, cell)| {
            let _ = write!(text, "<td class=\"{}\">{}</td>", class(at), escape(cell));
        });
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// A chart that scrolls on narrow screens, so that its letters stay legible.
pub(super) fn chart(svg: &str) -> String {
    format!("<div class=\"wide\">{svg}</div>\n")
}

/// Residuals are drawn of at most this many targets.
pub(super) const MOST_OUTPUTS: usize = 8;

/// The whole page.
pub(crate) fn page(report: &Report<'_>) -> Result<String, Failure> {
    let model = report.fit.model();
    let mut sets: Sets<'_> = Vec::new();
    sets.extend(report.evaluation.left_out.predicted().map(|predicted| ("left out", predicted)));
    sets.push(("training", &report.evaluation.training));
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
    section("Summary", table(&whole_summary(report)));
    section("Figures of merit", figures_of_merit(report, &sets));
    match model.task {
        Task::Classify => {
            let codes = evaluate::codes(model, report.data)?;
            let weights = report.data.weights.as_deref();
            section("Confusion matrix", figures::confusions(model, &sets, &codes, weights));
            if model.scheme == Scheme::One {
                section("ROC and precision–recall", figures::curves(model, &sets, &codes));
                section("Calibration", figures::reliability(model, &sets, &codes));
                section("Scores", figures::histogram(model, &sets, &codes));
            }
        }
        Task::Regress => {
            for at in 0..model.expansion.outputs().min(MOST_OUTPUTS) {
                let (title, content) = figures::residuals(model, report.data, &sets, at)?;
                section(&title, content);
            }
        }
        Task::Novelty => {}
    }
    if let Some(explained) = &report.evaluation.explained {
        section("Features", figures::features(explained));
    }
    section("Certificate", certificate(report.fit));
    section("Convergence", convergence(report.history));
    section("Support vectors", support_vectors(model, report.data)?);
    if let Some((name, scores)) = sets.iter().find_map(|(name, set)| Some((*name, set.scores.as_deref()?))) {
        section(&format!("The worst samples, {name}"), worst(report, scores)?);
    }
    section("Model card", table(&card(report)));
    section("To reproduce", format!("<pre>{}</pre>\n", escape(report.command)));
    Ok(document(report.name, &body))
}

/// A page with the style of reports.
pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// The summary; the terminal shortens long lists of classes, a page has room for them.
fn whole_summary(report: &Report<'_>) -> Rows {
    let labels = &report.fit.model().labels;
    let names = || labels.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let whole = |(name, value): &(&'static str, String)| match *name {
        "classes" => (*name, format!("{}: {}", labels.len(), names())),
        _ => (*name, value.clone()),
    };
    report.summary.iter().map(whole).collect()
}

/// The metrics of left-out and training predictions side by side, and how the former were made.
fn figures_of_merit(report: &Report<'_>, sets: &Sets<'_>) -> String {
    let model = report.fit.model();
    let mut judged: Vec<(&str, Rows)> =
        sets.iter().filter_map(|(name, set)| Some((*name, set.quality(model, report.data)?.rows))).collect();
    let closed = report.evaluation.closed.as_ref();
    if let Some(quality) = closed.and_then(|closed| closed.quality(model)) {
        judged.insert(judged.len().saturating_sub(1), ("leave one out", quality.rows));
    }
    let Some((_, first)) = judged.last().filter(|(_, rows)| !rows.is_empty()) else { return String::new() };
    let header: Vec<&str> = std::iter::once("").chain(judged.iter().map(|(name, _)| *name)).collect();
    let of = |rows: &Rows, key: &str| rows.iter().find(|r| r.0 == key).map_or("–".to_owned(), |r| r.1.clone());
    let line = |(key, _): &(&'static str, String)| {
        std::iter::once((*key).to_owned()).chain(judged.iter().map(|(_, rows)| of(rows, key))).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = first.iter().map(line).collect();
    let mut text = format!("<p>Left out: {}.", escape(&report.evaluation.left_out.how()));
    if report.evaluation.left_out.predicted().is_some() {
        text += " Training figures flatter every model; expect those of left-out rows on new data.";
    }
    if let Some(closed) = closed {
        let _ = write!(text, " Leave one out: {}.", escape(&closed.how()));
    }
    if let [negative, positive] = model.labels.as_slice() {
        let _ = write!(
            text,
            " The positive class is <b>{}</b>, the negative <b>{}</b>.",
            escape(&positive.to_string()),
            escape(&negative.to_string())
        );
    }
    text + "</p>\n" + &grid(&header, &rows)
}

/// Parameters, data and versions: what is needed to know which model this is.
fn card(report: &Report<'_>) -> Rows {
    let (model, data) = (report.fit.model(), report.data);
    let mut rows: Rows = vec![
        ("kernel", prose::kernel(model.expansion.kernel())),
        ("problem", prose::problem(model)),
        ("scaling", model.scaling.as_ref().map_or("none", |scaling| scaling.kind.name()).to_owned()),
        ("solver", model.solver.clone()),
        ("seed", report.evaluation.seed.to_string()),
    ];
    if !model.labels.is_empty() {
        let count = |at: usize| {
            model.class_weights.get(at).map_or(String::new(), |w| format!(" (cost × {})", format::number(*w, 4)))
        };
        let names = model.labels.iter().enumerate().map(|(at, label)| format!("{label}{}", count(at)));
        rows.push(("classes", names.collect::<Vec<_>>().join(", ")));
    }
    rows.extend(prose::decisions(model));
    rows.push(("data", format!("{}: {} rows, {} features", report.name, data.len(), data.points.dims())));
    rows.extend(prose::table(model));
    rows.push(("data fingerprint", data.fingerprint()));
    rows.push(("version", format!("Margrave {}", env!("CARGO_PKG_VERSION"))));
    rows
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
    chart(&Figure { title: "KKT violation while training".into(), panels: vec![panel] }.svg())
}

fn support_vectors(model: &Model, data: &Dataset) -> Result<String, Failure> {
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
    let codes = evaluate::codes(model, data)?;
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

fn worst(report: &Report<'_>, scores: &[f64]) -> Result<String, Failure> {
    let (model, data) = (report.fit.model(), report.data);
    let number = |row: usize| row_in_file(row, report.left_out).to_string();
    let k = model.expansion.outputs();
    let mut rows: Vec<(f64, Vec<String>)> = Vec::new();
    let header: &[&str] = match model.task {
        Task::Classify => {
            let codes = evaluate::codes(model, data)?;
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
                rows.push((margin, vec![number(row), names.0, names.1, format::number(margin, 4)]));
            }
            &["row", "true", "predicted", "margin"]
        }
        Task::Regress => {
            for own in figures::by_output(model, data, scores)? {
                for (row, (y, z)) in own.truth.iter().zip(&own.scores).enumerate() {
                    let numbers = [format::number(*y, 6), format::number(*z, 6), format::number(y - z, 4)];
                    let cells = std::iter::once(number(row)).chain(own.name.clone()).chain(numbers).collect();
                    rows.push((-(y - z).abs(), cells));
                }
            }
            match k {
                1 => &["row", "target", "predicted", "residual"],
                _ => &["row", "output", "target", "predicted", "residual"],
            }
        }
        Task::Novelty => {
            scores.iter().enumerate().for_each(|(row, z)| rows.push((*z, vec![number(row), format::number(*z, 4)])));
            &["row", "score"]
        }
    };
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let cells: Vec<Vec<String>> = rows.into_iter().take(10).map(|(_, cells)| cells).collect();
    Ok(format!(
        "<p>Rows are counted from 1. Check these first: wrong labels and outliers end up here.</p>\n{}",
        grid(header, &cells)
    ))
}
