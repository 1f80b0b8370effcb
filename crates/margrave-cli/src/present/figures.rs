//! The charts of a report: each shows left-out predictions beside those for the training data.

use std::fmt::Write as _;

use margrave::engine::data::Dataset;
use margrave::engine::metrics::classes::Confusion;
use margrave::engine::model::{Calibration, Prediction};
use margrave::{Model, Targets};
use margrave_plot::{Axis, Figure, HeatMap, Mark, Panel, Scale, Series};

use super::html::{chart, escape, grid, table};
use crate::evaluate::Predicted;
use crate::explain::{Effect, Explained, Importance};
use crate::failure::Failure;
use crate::{format, models};

/// Named predictions for the same rows.
type Sets<'a> = [(&'static str, &'a Predicted)];

/// Number of bins of probabilities.
const BINS: usize = 10;

/// Number of bins of scores.
const BARS: usize = 30;

pub(super) fn confusions(model: &Model, sets: &Sets<'_>, codes: &[u32], weights: Option<&[f64]>) -> String {
    let mut text = String::from("<p>Rows are true labels, columns are predictions.</p>\n");
    for (name, set) in sets {
        let Prediction::Labels(found) = &set.labels else { continue };
        text += &confusion(model, name, found, codes, weights);
    }
    text
}

/// Precision, recall and F1 of each class.
fn by_class(names: &[String], found: &[u32], codes: &[u32], weights: Option<&[f64]>) -> String {
    let all = Confusion::new(names.len(), codes, found, weights);
    let line = |(class, name): (usize, &String)| {
        let rows = codes.iter().filter(|&&code| code as usize == class).count();
        // A class that is never predicted has no precision.
        let predicted = found.iter().any(|&code| code as usize == class);
        let precision = if predicted { format!("{:.3}", all.precision(class)) } else { "–".to_owned() };
        let (recall, f1) = (all.recall(class), all.f1(class));
        vec![name.clone(), rows.to_string(), precision, format!("{recall:.3}"), format!("{f1:.3}")]
    };
    let rows: Vec<Vec<String>> = names.iter().enumerate().map(line).collect();
    grid(&["class", "rows", "precision", "recall", "F1"], &rows)
}

fn confusion(model: &Model, name: &str, found: &[u32], codes: &[u32], weights: Option<&[f64]>) -> String {
    let k = model.labels.len();
    let mut counts = vec![vec![0usize; k]; k];
    found.iter().zip(codes).for_each(|(f, t)| counts[*t as usize][*f as usize] += 1);
    let right: usize = (0..k).map(|c| counts[c][c]).sum();
    let names: Vec<String> = model.labels.iter().map(ToString::to_string).collect();
    let share = 100.0 * right as f64 / codes.len().max(1) as f64;
    let mut text = format!("<h3>{name}: {right} of {} correct, {} %</h3>\n", codes.len(), format::number(share, 4));
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
    let (classes, mut upwards) = (names.clone(), names.clone());
    // The heat map starts at the bottom; a matrix starts at the top.
    values.reverse();
    upwards.reverse();
    let map = HeatMap {
        title: "Share of each true label, %".into(),
        x: ("predicted".into(), names),
        y: ("true".into(), upwards),
        values,
        mark: None,
        range: Some((0.0, 1.0)),
        format: |v| format::number(100.0 * v, 3),
    };
    text + &by_class(&classes, found, codes, weights) + &chart(&map.to_svg())
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

fn unit(label: impl Into<String>) -> Axis {
    Axis::new(label, Scale::Linear).within(0.0, 1.0)
}

pub(super) fn curves(model: &Model, sets: &Sets<'_>, codes: &[u32]) -> String {
    let positive = codes.iter().filter(|code| **code == 1).count() as f64;
    let negative = codes.len() as f64 - positive;
    if positive == 0.0 || negative == 0.0 {
        return String::new();
    }
    let (mut roc, mut precision, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (name, set)) in sets.iter().enumerate() {
        let Some(scores) = &set.scores else { continue };
        let points = sweep(scores, codes);
        let line: Vec<(f64, f64)> = points.iter().map(|(h, m)| (m / negative, h / positive)).collect();
        let area: f64 = line.windows(2).map(|w| (w[1].0 - w[0].0) * (w[1].1 + w[0].1) / 2.0).sum();
        let average: f64 = points.windows(2).map(|w| (w[1].0 - w[0].0) / positive * w[1].0 / (w[1].0 + w[1].1)).sum();
        roc.push(Series::line(*name, line).style(at, at));
        let along = points.iter().skip(1).map(|(h, m)| (h / positive, h / (h + m))).collect();
        precision.push(Series::line(*name, along).style(at, at));
        rows.push(vec![(*name).to_owned(), format::number(area, 4), format::number(average, 4)]);
    }
    let base = positive / (positive + negative);
    roc.push(Series::line("chance", vec![(0.0, 0.0), (1.0, 1.0)]).style(3, 2));
    precision.push(Series::line("chance", vec![(0.0, base), (1.0, base)]).style(3, 2));
    let panel = |x: &str, y: &str, series| Panel { x: unit(x), y: unit(y), height: 260.0, series, marks: vec![] };
    let figure = Figure {
        title: "ROC, and precision against recall".into(),
        panels: vec![panel("false positive rate", "true positive rate", roc), panel("recall", "precision", precision)],
    };
    format!("<p>The positive class is <b>{}</b>.</p>\n", escape(&model.labels[1].to_string()))
        + &grid(&["", "area under ROC", "average precision"], &rows)
        + &chart(&figure.svg())
}

/// Sum of probabilities, of positives, and number of rows, for each bin.
fn bins(p: &[f64], codes: &[u32]) -> Vec<(f64, f64, f64)> {
    let mut bins = vec![(0.0, 0.0, 0.0); BINS];
    for (pair, code) in p.chunks_exact(2).zip(codes) {
        let bin = &mut bins[((pair[1] * BINS as f64) as usize).min(BINS - 1)];
        bin.0 += pair[1];
        bin.1 += f64::from(*code);
        bin.2 += 1.0;
    }
    bins
}

pub(super) fn reliability(model: &Model, sets: &Sets<'_>, codes: &[u32]) -> String {
    if !matches!(model.calibration, Some(Calibration::Sigmoid { .. })) {
        return String::new();
    }
    let (mut series, mut errors, mut first) = (Vec::new(), Vec::new(), None);
    for (at, (name, set)) in sets.iter().enumerate() {
        let Some(p) = &set.probabilities else { continue };
        let bins = bins(p, codes);
        let error: f64 = bins.iter().map(|(p, y, _)| (p - y).abs() / codes.len().max(1) as f64).sum();
        let line = bins.iter().filter(|b| b.2 > 0.0).map(|(p, y, count)| (p / count, y / count)).collect();
        series.push(Series::line(*name, line).with_dots().style(at, at));
        errors.push(format!("{name} {}", format::number(error, 3)));
        first.get_or_insert((*name, bins));
    }
    let Some((name, bins)) = first else { return String::new() };
    series.push(Series::line("perfect", vec![(0.0, 0.0), (1.0, 1.0)]).style(3, 2));
    // Labels may be long: they are in the text, where they wrap.
    let (x, y) = (unit("predicted probability"), unit("observed share"));
    let panel = Panel { x, y, height: 260.0, series, marks: vec![] };
    let title = format!("Expected calibration error: {}", errors.join(", "));
    let figure = Figure { title, panels: vec![panel] };
    let edge = |at: usize| format::number(at as f64 / BINS as f64, 2);
    let line = |(at, (p, y, count)): (usize, &(f64, f64, f64))| {
        let mean = |sum: f64| if *count > 0.0 { format!("{:.3}", sum / count) } else { "–".to_owned() };
        vec![format!("{}–{}", edge(at), edge(at + 1)), count.to_string(), mean(*p), mean(*y)]
    };
    let rows: Vec<Vec<String>> = bins.iter().enumerate().map(line).collect();
    format!("<p>The probability of <b>{}</b> and how often it is observed.</p>\n", escape(&model.labels[1].to_string()))
        + &chart(&figure.svg())
        + &format!("<h3>Bins, {name}</h3>\n")
        + &grid(&["probability", "rows", "mean probability", "observed share"], &rows)
}

/// The outline of a histogram: shares of rows per bin.
fn outline(values: &[f64], low: f64, high: f64) -> Vec<(f64, f64)> {
    let wide = (high - low) / BARS as f64;
    let mut counts = vec![0usize; BARS];
    values.iter().for_each(|v| counts[(((v - low) / wide) as usize).min(BARS - 1)] += 1);
    let mut line = vec![(low, 0.0)];
    for (at, count) in counts.iter().enumerate() {
        line.push((low + wide * at as f64, *count as f64));
        line.push((low + wide * (at + 1) as f64, *count as f64));
    }
    line.push((high, 0.0));
    line
}

/// The scores of the rows of each class.
pub(super) fn histogram(model: &Model, sets: &Sets<'_>, codes: &[u32]) -> String {
    let Some((name, scores)) = sets.iter().find_map(|(name, set)| Some((*name, set.scores.as_ref()?))) else {
        return String::new();
    };
    let (low, high) = scores.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
    if !(high > low && (high - low).is_finite()) {
        return String::new();
    }
    let of = |class: u32| -> Vec<f64> {
        scores.iter().zip(codes).filter(|(_, code)| **code == class).map(|(z, _)| *z).collect()
    };
    let series =
        (0..2).map(|class| Series::line(model.labels[class].to_string(), outline(&of(class as u32), low, high)));
    let cut = model.threshold.as_ref().map_or(0.0, |threshold| threshold.score);
    let note = format!("threshold {}", format::number(cut, 3));
    let panel = Panel {
        x: Axis::new("score", Scale::Linear),
        y: Axis::new("rows", Scale::Linear),
        height: 240.0,
        series: series.collect(),
        marks: vec![Mark { x: cut, note }],
    };
    format!("<p>Above the threshold <b>{}</b> is predicted.</p>\n", escape(&model.labels[1].to_string()))
        + &chart(&Figure { title: format!("Scores by true class, {name}"), panels: vec![panel] }.svg())
}

/// One of the numbers a model predicts.
pub(super) struct Output {
    /// Its name, if there are several.
    pub(super) name: Option<String>,
    pub(super) truth: Vec<f64>,
    pub(super) scores: Vec<f64>,
    /// Mean absolute out-of-sample residual, if the model is calibrated.
    sigma: Option<f64>,
    /// Half-width of an interval that holds 90 % of them.
    radius: Option<f64>,
}

pub(super) fn by_output(model: &Model, data: &Dataset, scores: &[f64]) -> Result<Vec<Output>, Failure> {
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

/// Predictions and residuals of one target: the title of the section, and its content.
pub(super) fn residuals(
    model: &Model,
    data: &Dataset,
    sets: &Sets<'_>,
    at: usize,
) -> Result<(String, String), Failure> {
    let (mut title, mut text) = ("Residuals".to_owned(), String::new());
    for (name, set) in sets {
        let Some(scores) = &set.scores else { continue };
        let mut outputs = by_output(model, data, scores)?;
        let own = outputs.swap_remove(at);
        if let Some(output) = &own.name {
            title = format!("Residuals of {output}");
        }
        let _ = write!(text, "<h3>{name}</h3>\n{}", residual_charts(&own));
    }
    Ok((title, text))
}

fn residual_charts(output: &Output) -> String {
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
    table(&rows) + &chart(&figure.svg())
}

/// Importance of each column as a table, and the effects of the most important as charts and tables.
pub(super) fn features(explained: &Explained) -> String {
    let line = |one: &Importance| {
        vec![one.feature.clone(), format::number(one.mean, 3), format!("± {}", format::number(one.deviation, 2))]
    };
    let rows: Vec<Vec<String>> = explained.importance.iter().map(line).collect();
    let mut text = format!(
        "<p>Each column is shuffled among left-out rows: {} by the predictions for them, mean and deviation over several \
         shuffles. About 0 means that the model does without it. Columns that say the same share their importance.</p>\n{}",
        explained.measure,
        grid(&["column", explained.measure, ""], &rows)
    );
    let panel = |one: &Effect| Panel {
        x: Axis::new(one.axis.as_str(), Scale::Linear),
        y: Axis::new(explained.unit, Scale::Linear),
        height: 170.0,
        series: vec![Series::line(one.feature.as_str(), one.points.clone()).with_dots().style(0, 0)],
        marks: vec![],
    };
    let panels: Vec<Panel> = explained.effects.iter().filter(|one| one.points.len() > 1).map(panel).collect();
    let words: Vec<&Effect> = explained.effects.iter().filter(|one| one.words.len() > 1).collect();
    if panels.is_empty() && words.is_empty() {
        return text;
    }
    text += &format!(
        "<p>Partial effects: the {} where one column is set to a value in all rows and the others stay as they are.</p>\n",
        escape(&explained.effect)
    );
    if !panels.is_empty() {
        text += &chart(&Figure { title: "Partial effects".into(), panels }.svg());
    }
    for one in words {
        let line = |(word, mean): &(String, f64)| vec![word.clone(), format::number(*mean, 4)];
        let rows: Vec<Vec<String>> = one.words.iter().map(line).collect();
        text += &grid(&[one.feature.as_str(), explained.unit], &rows);
    }
    text
}
