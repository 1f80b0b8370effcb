//! Two models side by side as one HTML page.

use margrave::engine::data::Dataset;
use margrave::engine::model::Scheme;
use margrave::engine::problem::Task;
use margrave::{Model, Targets};

use super::html::{document, escape, grid};
use super::quality::Quality;
use super::{figures, prose};
use crate::evaluate::{self, Predicted};
use crate::failure::Failure;

/// The names of the two in figures; files may have long ones.
const NAMES: [&str; 2] = ["first", "second"];

/// One of two models, with its predictions for the data.
pub(crate) struct Side<'a> {
    /// Its file.
    pub(crate) file: String,
    pub(crate) model: &'a Model,
    /// The data as it reads them.
    pub(crate) data: &'a Dataset,
    pub(crate) predicted: &'a Predicted,
    pub(crate) quality: &'a Quality,
}

/// The whole page. `data`: the name of the data; `tests`: one line each; `notes`: what to know before relying on it.
pub(crate) fn page(
    data: &str,
    sides: &[Side<'_>; 2],
    verdict: &str,
    tests: &[String],
    notes: &[String],
) -> Result<String, Failure> {
    let title = format!("{} and {} on {data}", sides[0].file, sides[1].file);
    let mut body =
        format!("<h1>{}</h1>\n<p>{} rows: <b>{}</b>.</p>\n", escape(&title), sides[0].data.len(), escape(verdict));
    notes.iter().for_each(|note| body += &format!("<p>Note: {}.</p>\n", escape(note)));
    let mut section = |title: &str, content: String| {
        if !content.is_empty() {
            body += &format!("<h2>{}</h2>\n{content}", escape(title));
        }
    };
    section("Figures of merit", figures_of_merit(sides));
    let lines: Vec<String> = tests.iter().map(|test| format!("<p>{}</p>\n", escape(test))).collect();
    section("Paired tests", lines.concat());
    section("Models", models(sides));
    match sides[0].model.task {
        Task::Classify => {
            let codes = [codes(&sides[0])?, codes(&sides[1])?];
            let each = |at: usize| [(NAMES[at], sides[at].predicted)];
            let confusion = |at: usize| {
                let side = &sides[at];
                figures::confusions(side.model, &each(at), &codes[at], side.data.weights.as_deref())
            };
            section("Confusion matrix", confusion(0) + &confusion(1));
            let both = sides.iter().all(|side| side.model.scheme == Scheme::One && side.model.labels.len() == 2);
            if both && sides[0].model.labels == sides[1].model.labels {
                let sets = [each(0)[0], each(1)[0]];
                section("ROC and precision–recall", figures::curves(sides[0].model, &sets, &codes[0]));
                let calibrated = sides.iter().find(|side| side.model.calibration.is_some());
                let reliability = calibrated.map(|side| figures::reliability(side.model, &sets, &codes[0]));
                section("Calibration", reliability.unwrap_or_default());
                let histogram = |at: usize| figures::histogram(sides[at].model, &each(at), &codes[at]);
                section("Scores", histogram(0) + &histogram(1));
            }
        }
        Task::Regress => {
            let sets = [(NAMES[0], sides[0].predicted), (NAMES[1], sides[1].predicted)];
            let outputs = sides[0].model.expansion.outputs();
            for at in 0..outputs.min(super::html::MOST_OUTPUTS) {
                let (title, content) = figures::residuals(sides[0].model, sides[0].data, &sets, at)?;
                section(&title, content);
            }
        }
        Task::Novelty => {}
    }
    Ok(document(&title, &body))
}

/// The class of each row among the labels of a model.
fn codes(side: &Side<'_>) -> Result<Vec<u32>, Failure> {
    // Labels of LIBSVM's files are numbers where those of a table may be texts.
    let texts: Vec<String> = match &side.data.targets {
        Targets::Text(texts) => texts.clone(),
        Targets::Real(_) => return evaluate::codes(side.model, side.data),
        _ => return Ok(vec![0; side.data.len()]),
    };
    let place = |text: &String| side.model.labels.iter().position(|label| label.to_string() == *text).unwrap_or(0);
    Ok(texts.iter().map(|text| place(text) as u32).collect())
}

fn header(sides: &[Side<'_>; 2]) -> [String; 3] {
    let name = |at: usize| format!("{}: {}", NAMES[at], sides[at].file);
    [String::new(), name(0), name(1)]
}

fn figures_of_merit(sides: &[Side<'_>; 2]) -> String {
    let [a, b] = [&sides[0].quality.rows, &sides[1].quality.rows];
    let of = |name: &str| b.iter().find(|row| row.0 == name).map_or("–".to_owned(), |row| row.1.clone());
    let mut rows: Vec<Vec<String>> =
        a.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone(), of(name)]).collect();
    let alone = b.iter().filter(|row| !a.iter().any(|other| other.0 == row.0));
    rows.extend(alone.map(|(name, value)| vec![(*name).to_owned(), "–".to_owned(), value.clone()]));
    grid(&header(sides).each_ref().map(String::as_str), &rows)
}

/// The factors of the cost of each class, where they differ.
fn weights(model: &Model) -> String {
    let one = |(label, weight): (&margrave::Label, &f64)| format!("{label} × {}", crate::format::number(*weight, 4));
    match model.class_weights.is_empty() {
        true => "none".to_owned(),
        false => model.labels.iter().zip(&model.class_weights).map(one).collect::<Vec<_>>().join(", "),
    }
}

/// What the two models are.
fn models(sides: &[Side<'_>; 2]) -> String {
    let of = |side: &Side<'_>| {
        let model = side.model;
        let known = model.machines.iter().all(|record| record.certificate.is_known());
        let gap = model.totals().relative_gap.filter(|_| known);
        [
            prose::problem(model),
            prose::kernel(model.expansion.kernel()),
            model.scaling.as_ref().map_or("none", |scaling| scaling.kind.name()).to_owned(),
            weights(model),
            model.threshold.as_ref().map_or("none".to_owned(), |threshold| threshold.rule.to_string()),
            format!("{} rows", crate::format::count(model.n as u64)),
            gap.map_or("not checked".to_owned(), |gap| crate::format::number(gap, 2)),
        ]
    };
    let [a, b] = [of(&sides[0]), of(&sides[1])];
    let names = ["problem", "kernel", "scaling", "class weights", "threshold", "trained on", "relative gap"];
    let rows: Vec<Vec<String>> =
        names.iter().zip(a).zip(b).map(|((name, a), b)| vec![(*name).to_owned(), a, b]).collect();
    grid(&header(sides).each_ref().map(String::as_str), &rows)
}
