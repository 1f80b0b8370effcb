//! `margrave predict`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use margrave::engine::data::Label;
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, Scheme};
use margrave::io::model::AnyModel;
use margrave::{Budget, Model};
use margrave_cuda::DeviceName;
use serde_json::{Map, Value, json};

use crate::cli::Common;
use crate::failure::{Exit, Failure, Flags, Outcome};
use crate::format;
use crate::models;
use crate::options::data::DataOptions;
use crate::options::device;
use crate::options::table::UnknownOption;
use crate::outputs::{self, Input};
use crate::present::quality;
use crate::signal;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  margrave predict heart.model new.svm              predictions on stdout, one per line
  margrave predict heart.model new.svm -o out.csv   write a file and report the accuracy
  margrave predict heart.model new.svm --scores     also write the scores f(x) + b
  margrave predict big.model new.svm --bounds       how far the scores of the exact machine can be
  cat new.svm | margrave predict heart.model - --json";

/// Arguments of `predict`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Predict {
    /// Model file of Margrave, LIBSVM or LIBLINEAR
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    unknown: UnknownOption,
    /// Write predictions to this CSV file instead of stdout
    #[arg(long, short, value_name = "OUT.csv", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Also write the scores f(x) + b
    #[arg(long, help_heading = "Output")]
    scores: bool,
    /// Also write calibrated probabilities, or 90 % intervals for regression
    #[arg(long, help_heading = "Output")]
    probability: bool,
    /// Model on few centres (--approx): also write how far each score can be from that of the exact machine
    #[arg(long, help_heading = "Output")]
    bounds: bool,
    /// Where to compute: cpu, cuda or cuda:N, or auto; see 'margrave devices'
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = device::name, help_heading = "Output")]
    device: DeviceName,
}

/// Coverage of the intervals.
const LEVEL: f64 = 0.9;

impl Predict {
    pub(crate) fn run(mut self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        // As for inputs, - is a standard stream; predictions go to stdout by default.
        self.output = self.output.filter(|path| path != Path::new("-"));
        let [data, targets] = self.data.inputs();
        outputs::check(&[Input::new("MODEL", self.model.as_path()), data, targets], &[("-o", self.output.as_deref())])?;
        let stored = margrave::io::model::load_any(&self.model)?;
        let schema = match &stored {
            AnyModel::Native(model) => margrave::io::model::schema(model)?,
            AnyModel::Libsvm(_) => None,
        };
        let threads = common.threads();
        let mut loaded = self.data.load_new(schema.as_ref(), &self.unknown, threads.count())?;
        let model = models::native(stored, Some(loaded.data.points.dims()))?;
        if schema.is_none() {
            loaded.data.points = models::fit_width(loaded.data.points, &model);
        }
        if self.probability && model.calibration.is_none() {
            return Err(Failure::with_hint(
                format!("{} was trained without probabilities", self.model.display()),
                "train with --probability; --scores writes the scores",
            ));
        }
        let bounds = match self.bounds {
            true => Some(model.score_bounds(&loaded.data.points)?.ok_or_else(|| {
                Failure::with_hint(
                    format!(
                        "{} is not on few centres, or was not compared with the exact machine",
                        self.model.display()
                    ),
                    "train with --approx, and without --certify own",
                )
            })?),
            false => None,
        };
        loaded.notes.iter().for_each(|note| terminal.note(&note.text(&Flags)));
        let load_seconds = begun.elapsed().as_secs_f64();
        let chosen = device::choose(self.device, loaded.data.len(), terminal)?;
        let control = signal::start(&Budget::default(), threads)?.with_device(chosen.device);
        let (predictions, scores) = if self.scores || self.probability || quality::wants_scores(&model, &loaded.data) {
            let scores = model.scores(&loaded.data.points, Precision::Double, &control)?;
            (model.decide(&scores), Some(scores))
        } else {
            (model.predict(&loaded.data.points, Precision::Double, &control)?, None)
        };
        let predict_seconds = control.seconds();
        device::report(&chosen, terminal);

        let probabilities = match (&scores, self.probability) {
            (Some(scores), true) => model.probabilities(scores),
            _ => None,
        };
        let radii = if self.probability { model.radii(LEVEL) } else { None };
        let shown = scores.as_deref().filter(|_| self.scores);
        let columns = Columns {
            model: &model,
            predictions: &predictions,
            scores: shown,
            bounds: bounds.as_deref(),
            probabilities: probabilities.as_deref(),
            radii: radii.as_deref(),
            left_out: &loaded.left_out,
        };
        let quality = quality::of(&model, &loaded.data, &predictions, scores.as_deref());
        match &self.output {
            Some(path) => {
                let table = columns.table();
                margrave::io::write_atomic(path, |out| out.write_all(table.as_bytes()))?;
            }
            None if terminal.json => {}
            None => terminal.write(&columns.table())?,
        }
        let n = columns.rows();
        let time = format::duration(predict_seconds);
        let summary = match &quality {
            Some(quality) => format!("{} rows, {}, {time}", format::count(n as u64), quality.text),
            None => format!("{} rows, {time}", format::count(n as u64)),
        };
        match &self.output {
            Some(path) => terminal.say(&format!("{summary}, written to {}", path.display()))?,
            None => terminal.note(&summary),
        }
        let mut object = quality.map(|q| q.keys).unwrap_or_default();
        object.insert("n".into(), json!(n));
        object.insert("task".into(), json!(model.task));
        object.insert("left_out".into(), json!(loaded.left_out.len()));
        if self.output.is_none() && terminal.json {
            object.extend(columns.object());
        }
        object.insert("output".into(), json!(self.output.as_ref().map(|p| p.display().to_string())));
        object.insert(
            "seconds".into(),
            json!({ "load": load_seconds, "predict": predict_seconds, "total": begun.elapsed().as_secs_f64() }),
        );
        terminal.object(&object)?;
        Ok(Exit::Done)
    }
}

/// What is written for each row.
struct Columns<'a> {
    model: &'a Model,
    predictions: &'a Prediction,
    scores: Option<&'a [f64]>,
    /// Distances from the exact machine, as the scores.
    bounds: Option<&'a [f64]>,
    probabilities: Option<&'a [f64]>,
    radii: Option<&'a [f64]>,
    /// Rows of the file without a prediction, ascending.
    left_out: &'a [usize],
}

impl Columns<'_> {
    /// Rows of the file, those without a prediction included.
    fn rows(&self) -> usize {
        let k = self.model.expansion.outputs();
        let predicted = match self.predictions {
            Prediction::Labels(codes) => codes.len(),
            Prediction::Values(values) => values.len() / k,
            Prediction::Inside(inside) => inside.len(),
        };
        predicted + self.left_out.len()
    }

    /// For each row of the file, its number among the predicted rows.
    fn places(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        let mut next = 0;
        (0..self.rows()).map(move |row| {
            let predicted = self.left_out.binary_search(&row).is_err();
            next += usize::from(predicted);
            predicted.then(|| next - 1)
        })
    }

    /// The predictions as JSON keys, one entry per row; null for rows without a prediction.
    fn object(&self) -> Map<String, Value> {
        let (k, classes) = (self.model.expansion.outputs(), self.model.labels.len());
        let several = self.model.scheme == Scheme::Outputs;
        let each = |one: &dyn Fn(usize) -> Value| {
            self.places().map(|place| place.map_or(Value::Null, one)).collect::<Vec<Value>>()
        };
        let list = |values: &[f64], row: usize, width: usize| match &values[row * width..(row + 1) * width] {
            [one] => json!(one),
            many => json!(many),
        };
        let mut object = Map::new();
        let prediction = |row: usize| match self.predictions {
            Prediction::Labels(codes) => json!(self.model.labels[codes[row] as usize]),
            Prediction::Values(values) if several => json!(&values[row * k..(row + 1) * k]),
            Prediction::Values(values) => json!(values[row]),
            Prediction::Inside(inside) => json!(if inside[row] { 1 } else { -1 }),
        };
        object.insert("predictions".into(), each(&prediction).into());
        if let Some(scores) = self.scores {
            object.insert("scores".into(), each(&|row| list(scores, row, k)).into());
        }
        if let Some(bounds) = self.bounds {
            object.insert("bounds".into(), each(&|row| list(bounds, row, k)).into());
        }
        if let Some(all) = self.probabilities {
            object.insert("classes".into(), json!(self.model.labels));
            object.insert("probabilities".into(), each(&|row| list(all, row, classes)).into());
        }
        if let (Some(radii), Prediction::Values(values)) = (self.radii, self.predictions) {
            let around = |row: usize| {
                let ends = |(z, radius): (&f64, &f64)| json!([z - radius, z + radius]);
                let mut all: Vec<Value> = values[row * k..(row + 1) * k].iter().zip(radii).map(ends).collect();
                if several { json!(all) } else { all.pop().unwrap_or_default() }
            };
            object.insert("intervals".into(), each(&around).into());
        }
        object
    }

    /// The predictions as CSV with a header: one prediction column per target, one score column per binary model. Rows
    /// without a prediction have empty cells.
    fn table(&self) -> String {
        let Columns { model, predictions, scores, bounds, probabilities, radii, .. } = *self;
        let labels: Vec<String> = model.labels.iter().map(cell).collect();
        let several = model.scheme == Scheme::Outputs;
        let names = if several { models::output_names(model) } else { vec![] };
        let named =
            |what: &str| names.iter().map(|name| cell(&Label::Text(format!("{what}{name}")))).collect::<Vec<_>>();
        let mut text = if several { named("prediction ").join(",") } else { "prediction".to_owned() };
        if scores.is_some() {
            score_names(model).iter().for_each(|name| {
                text.push(',');
                text += name;
            });
        }
        if bounds.is_some() {
            score_names(model).iter().for_each(|name| {
                text.push(',');
                text += &name.replacen("score", "bound", 1);
            });
        }
        if probabilities.is_some() {
            model.labels.iter().for_each(|label| {
                text.push(',');
                text += &cell(&Label::Text(format!("probability {label}")));
            });
        }
        if radii.is_some() {
            let level = format::number(100.0 * LEVEL, 4);
            match several {
                false => text += &format!(",lower {level} %,upper {level} %"),
                true => names.iter().for_each(|name| {
                    let edge = |side: &str| cell(&Label::Text(format!("{side} {name} {level} %")));
                    text += &format!(",{},{}", edge("lower"), edge("upper"));
                }),
            }
        }
        text.push('\n');
        let (k, classes) = (model.expansion.outputs(), model.labels.len());
        let names_of_scores = scores.map_or(0, |_| k) + bounds.map_or(0, |_| k);
        let empty = if several { k } else { 1 }
            + names_of_scores
            + probabilities.map_or(0, |_| classes)
            + radii.map_or(0, |_| 2 * if several { k } else { 1 });
        for place in self.places() {
            let Some(row) = place else {
                text += &format!("{}\n", ",".repeat(empty.saturating_sub(1)));
                continue;
            };
            // Writing to a String cannot fail.
            let _ = match predictions {
                Prediction::Labels(codes) => write!(text, "{}", labels[codes[row] as usize]),
                Prediction::Values(values) => {
                    let cells: Vec<String> = values[row * k..(row + 1) * k].iter().map(f64::to_string).collect();
                    write!(text, "{}", cells.join(","))
                }
                Prediction::Inside(inside) => write!(text, "{}", if inside[row] { 1 } else { -1 }),
            };
            for z in scores.map_or(&[][..], |scores| &scores[row * k..(row + 1) * k]) {
                let _ = write!(text, ",{z}");
            }
            for bound in bounds.map_or(&[][..], |bounds| &bounds[row * k..(row + 1) * k]) {
                let _ = write!(text, ",{bound}");
            }
            for p in probabilities.map_or(&[][..], |all| &all[row * classes..(row + 1) * classes]) {
                let _ = write!(text, ",{p}");
            }
            if let (Some(radii), Prediction::Values(values)) = (radii, predictions) {
                for (z, radius) in values[row * k..(row + 1) * k].iter().zip(radii) {
                    let _ = write!(text, ",{},{}", z - radius, z + radius);
                }
            }
            text.push('\n');
        }
        text
    }
}

/// The names of the score columns. The score of a pair is > 0 for the label that is named first.
fn score_names(model: &Model) -> Vec<String> {
    let named = |text: String| cell(&Label::Text(text));
    match model.scheme {
        Scheme::One => vec!["score".to_owned()],
        Scheme::OneVsOne => margrave::engine::model::pairs(model.labels.len())
            .map(|(i, j)| named(format!("score {} over {}", model.labels[j], model.labels[i])))
            .collect(),
        Scheme::Outputs => models::output_names(model).into_iter().map(|name| named(format!("score {name}"))).collect(),
        Scheme::OneVsRest | Scheme::CrammerSinger => {
            model.labels.iter().map(|label| named(format!("score {label}"))).collect()
        }
    }
}

/// A label as a CSV cell.
fn cell(label: &Label) -> String {
    let text = label.to_string();
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}
