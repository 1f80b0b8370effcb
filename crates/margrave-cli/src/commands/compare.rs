//! `margrave compare`: two models on the same data, with a paired test.

use std::path::{Path, PathBuf};

use clap::Args;
use margrave::engine::data::{Dataset, Label};
use margrave::engine::gram::Precision;
use margrave::engine::model::Prediction;
use margrave::engine::problem::Task;
use margrave::io::model::AnyModel;
use margrave::{Budget, Control, Model, Targets};
use serde_json::{Map, Value, json};

use crate::cli::Common;
use crate::evaluate::Predicted;
use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::models;
use crate::options::data::DataOptions;
use crate::options::table::UnknownOption;
use crate::outputs::{self, Input};
use crate::paired::{self, mc_nemar, paired_t, sign_test};
use crate::present::comparison::{self, Side};
use crate::present::quality::{self, Quality};
use crate::signal;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  margrave compare rbf.model linear.model test.csv          which is better on these rows, and is it chance?
  margrave compare a.model b.model houses.csv --json        figures of both and the tests
  margrave compare a.model b.model test.csv --report ab.html  curves, confusion and residuals of both

Classes: McNemar's exact test of the rows that one model gets right and the other wrong; of two classes, also
for each alone. Numbers: a paired t test of the squared errors, and the exact sign test of which is nearer. Use
rows that neither model was trained on.";

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compare {
    /// First model, of Margrave, LIBSVM or LIBLINEAR
    #[arg(value_name = "A.model")]
    a: PathBuf,
    /// Second model
    #[arg(value_name = "B.model")]
    b: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    unknown: UnknownOption,
    /// Write both reports side by side, with the tests, as one HTML page
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<PathBuf>,
}

/// A model with its predictions for the data.
struct Judged {
    model: Model,
    data: Dataset,
    predicted: Predicted,
    quality: Quality,
    /// Whether the data are its training rows, if that is known.
    trained_on: Option<bool>,
}

/// A test of the difference.
struct Test {
    name: String,
    text: String,
    p: f64,
    keys: Value,
}

impl Compare {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        if self.data.name() == "-" {
            return Err(Failure::new("compare reads the data once for each model: give a file, not stdin"));
        }
        let [data, targets] = self.data.inputs();
        let (a, b) = (Input::new("A.model", self.a.as_path()), Input::new("B.model", self.b.as_path()));
        outputs::check(&[a, b, data, targets], &[("--report", self.report.as_deref())])?;
        let threads = common.threads();
        let control = signal::start(&Budget::default(), threads.clone())?;
        let [a, b] = [&self.a, &self.b].map(|path| self.judge(path, threads.count(), &control));
        let (a, b) = (a?, b?);
        if a.model.task != b.model.task {
            return Err(Failure::with_hint(
                format!("{} is for {} and {} for {}", self.a.display(), a.model.task, self.b.display(), b.model.task),
                "compare two models of the same task",
            ));
        }
        if a.data.len() != b.data.len() {
            return Err(Failure::with_hint(
                format!(
                    "{} leaves out other rows with missing values than {}: {} and {} rows are left",
                    self.a.display(),
                    self.b.display(),
                    a.data.len(),
                    b.data.len()
                ),
                "compare on rows without missing values",
            ));
        }
        let tests = tests(&a, &b)?;
        let mut notes = Vec::new();
        for (path, judged) in [(&self.a, &a), (&self.b, &b)] {
            let suspicion = match judged.trained_on {
                Some(true) => "was trained on these rows: its figures flatter it",
                None => {
                    "has as many training rows as these, and does not keep them: if they are the same, its figures flatter it"
                }
                Some(false) => continue,
            };
            notes.push(format!("{} {suspicion}; compare on rows neither model has seen", path.display()));
        }
        notes.iter().for_each(|note| terminal.note(note));
        let n = a.data.len();
        let (than, of) = match a.model.task {
            Task::Classify => ("better", "accuracy"),
            _ => ("smaller", "squared errors"),
        };
        // One test decides; the best of several would find differences too often.
        let verdict = match tests.first().filter(|test| test.p < paired::LEVEL) {
            Some(_) => {
                format!("{} has the {than} {of}, and chance alone is no good explanation", better(&a, &b, &self))
            }
            None => format!("no difference in {of} beyond chance"),
        };
        if let Some(path) = &self.report {
            let side = |path: &Path, judged| Judged::side(judged, path.display().to_string());
            let lines: Vec<String> = tests.iter().map(Test::line).collect();
            let sides = [side(&self.a, &a), side(&self.b, &b)];
            let page = comparison::page(&self.data.name(), &sides, &verdict, &lines, &notes)?;
            margrave::io::write_atomic(path, |out| out.write_all(page.as_bytes()))?;
            terminal.note(&format!("report written to {}", path.display()));
        }
        terminal.say(&self.text(&a, &b, &tests, n, &verdict))?;
        let of = |path: &Path, judged: &Judged| {
            let mut keys = judged.quality.keys.clone();
            keys.insert("model".into(), json!(path.display().to_string()));
            keys.insert("trained_on_these_rows".into(), json!(judged.trained_on));
            keys
        };
        let all: Vec<Value> = tests.iter().map(Test::json).collect();
        let object = Map::from_iter([
            ("n".to_owned(), json!(n)),
            ("task".to_owned(), json!(a.model.task)),
            ("a".to_owned(), json!(of(&self.a, &a))),
            ("b".to_owned(), json!(of(&self.b, &b))),
            ("tests".to_owned(), json!(all)),
            ("verdict".to_owned(), json!(verdict)),
            ("report".to_owned(), json!(self.report.as_ref().map(|path| path.display().to_string()))),
        ]);
        terminal.object(&object)?;
        Ok(Exit::Done)
    }

    /// Reads the data as a model needs it, and predicts.
    fn judge(&self, path: &Path, threads: usize, control: &Control) -> Result<Judged, Failure> {
        let stored = margrave::io::model::load_any(path)?;
        let schema = match &stored {
            AnyModel::Native(model) => margrave::io::model::schema(model)?,
            AnyModel::Libsvm(_) => None,
        };
        let mut loaded = self.data.load_new(schema.as_ref(), &self.unknown, threads)?;
        let model = models::native(stored, Some(loaded.data.points.dims()))?;
        if schema.is_none() {
            loaded.data.points = models::fit_width(loaded.data.points, &model);
        }
        let (file, data) = (path.display(), self.data.name());
        if model.task == Task::Novelty {
            return Err(Failure::with_hint(
                format!("{file} detects novelties: there are no targets to compare by"),
                "compare models for classes or numbers",
            ));
        }
        if matches!(loaded.data.targets, Targets::None) {
            return Err(Failure::with_hint(
                format!("{data} has no target to compare with"),
                "name its column with --target",
            ));
        }
        if model.task == Task::Classify {
            let known = |label: &Label| model.labels.iter().any(|own| own.to_string() == label.to_string());
            if let Some(label) = loaded.data.targets.classes()?.0.iter().find(|label| !known(label)) {
                return Err(Failure::with_hint(
                    format!("{data} has the label {label}, which {file} does not know"),
                    "compare models of the same classes, on data with these classes",
                ));
            }
        }
        let scores = model
            .scores(&loaded.data.points, Precision::Double, control)
            .map_err(|error| Failure::new(format!("{file} does not fit {data}: {error}")))?;
        let predictions = model.decide(&scores);
        let quality = quality::of(&model, &loaded.data, &predictions, Some(&scores)).ok_or_else(|| {
            Failure::with_hint(
                format!("{data} has other targets than {file} predicts"),
                "choose the column that both models predict with --target",
            )
        })?;
        let trained_on = trained_on(&model, &loaded.data);
        let probabilities = model.probabilities(&scores);
        let predicted = Predicted { labels: predictions, scores: Some(scores), probabilities };
        Ok(Judged { model, data: loaded.data, predicted, quality, trained_on })
    }

    /// Both models side by side, and the tests.
    fn text(&self, a: &Judged, b: &Judged, tests: &[Test], n: usize, verdict: &str) -> String {
        let (left, right) = (self.a.display().to_string(), self.b.display().to_string());
        let mut lines = vec![[String::new(), left, right]];
        for (name, value) in &a.quality.rows {
            let other = b.quality.rows.iter().find(|row| row.0 == *name).map_or("–".to_owned(), |row| row.1.clone());
            lines.push([(*name).to_owned(), value.clone(), other]);
        }
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let (first, second) = (width(0), width(1));
        let mut text = format!("{} rows of {}: {verdict}\n", format::count(n as u64), self.data.name());
        for [name, one, other] in &lines {
            text += format!("  {name:first$}  {one:second$}  {other}").trim_end();
            text.push('\n');
        }
        for test in tests {
            text += &format!("  {}\n", test.line());
        }
        text
    }
}

impl Judged {
    fn side(&self, file: String) -> Side<'_> {
        Side { file, model: &self.model, data: &self.data, predicted: &self.predicted, quality: &self.quality }
    }
}

impl Test {
    fn line(&self) -> String {
        format!("{}: {}, p = {}", self.name, self.text, format::number(self.p, 3))
    }

    fn json(&self) -> Value {
        let mut object = self.keys.clone();
        if let Some(object) = object.as_object_mut() {
            object.insert("name".into(), json!(self.name));
            object.insert("p_value".into(), json!(self.p));
        }
        object
    }
}

/// The file of the model with the better figure.
fn better<'a>(a: &Judged, b: &Judged, files: &'a Compare) -> std::path::Display<'a> {
    let of = |judged: &Judged, key: &str| judged.quality.keys.get(key).and_then(Value::as_f64);
    let first = match (of(a, "accuracy"), of(b, "accuracy"), of(a, "mse"), of(b, "mse")) {
        (Some(a), Some(b), ..) => a >= b,
        (_, _, Some(a), Some(b)) => a <= b,
        _ => true,
    };
    if first { files.a.display() } else { files.b.display() }
}

/// The tests that suit the task.
fn tests(a: &Judged, b: &Judged) -> Result<Vec<Test>, Failure> {
    match (&a.predicted.labels, &b.predicted.labels) {
        (Prediction::Labels(found), Prediction::Labels(other)) => {
            let (labels, codes) = a.data.targets.classes()?;
            let right = |judged: &Judged, found: &[u32]| -> Vec<bool> {
                let name = |code: &u32| judged.model.labels[*code as usize].to_string();
                found.iter().zip(&codes).map(|(f, t)| name(f) == labels[*t as usize].to_string()).collect()
            };
            let (one, two) = (right(a, found), right(b, other));
            let test = |class: Option<usize>| {
                let (mut first, mut second) = (0u64, 0u64);
                let own = |row: &usize| class.is_none_or(|class| codes[*row] as usize == class);
                for row in (0..codes.len()).filter(own) {
                    first += u64::from(one[row] && !two[row]);
                    second += u64::from(two[row] && !one[row]);
                }
                let label = class.map(|class| labels[class].to_string());
                let name = "McNemar's exact test".to_owned();
                Test {
                    name: label.as_ref().map_or(name.clone(), |label| format!("{name}, rows of {label} alone")),
                    text: format!("{first} rows only the first gets right, {second} only the second"),
                    p: mc_nemar(first, second),
                    keys: json!({ "only_a_right": first, "only_b_right": second, "class": label }),
                }
            };
            let mut all = vec![test(None)];
            // Where one class is rare, accuracy says little about it.
            if labels.len() == 2 {
                all.extend((0..2).map(|class| test(Some(class))));
            }
            Ok(all)
        }
        (Prediction::Values(found), Prediction::Values(other)) if found.len() == other.len() => {
            let truth = match &a.data.targets {
                Targets::Several { values, .. } => values,
                targets => targets.real()?,
            };
            let k = found.len() / a.data.len().max(1);
            // Several targets of a row are one observation.
            let error = |found: &[f64]| -> Vec<f64> {
                let all: Vec<f64> = found.iter().zip(truth).map(|(z, y)| (z - y).powi(2)).collect();
                all.chunks_exact(k.max(1)).map(|row| row.iter().sum::<f64>() / k as f64).collect()
            };
            let difference: Vec<f64> = error(found).iter().zip(error(other)).map(|(a, b)| a - b).collect();
            let student = paired_t(&difference);
            let (first, second, p) = sign_test(&difference);
            let mut tests = Vec::new();
            if let Some(t) = student {
                tests.push(Test {
                    name: "paired t test of the squared errors".to_owned(),
                    text: format!("mean difference {}, t = {}", format::number(t.mean, 4), format::number(t.t, 4)),
                    p: t.p,
                    keys: json!({ "mean_difference": t.mean, "t": t.t, "degrees_of_freedom": t.freedom }),
                });
            }
            tests.push(Test {
                name: "exact sign test".to_owned(),
                text: format!("the first is nearer on {first} rows, the second on {second}"),
                p,
                keys: json!({ "a_nearer": first, "b_nearer": second }),
            });
            Ok(tests)
        }
        _ => Err(Failure::new("the models predict different numbers of targets: compare models of the same targets")),
    }
}

/// Whether the data is what a model was trained on: as many rows, and its support vectors are the rows it names. `None` where
/// that cannot be said: linear models keep weights, and no rows.
fn trained_on(model: &Model, data: &Dataset) -> Option<bool> {
    let f = &model.expansion;
    if model.n != data.len() {
        return Some(false);
    }
    if f.is_weights() || f.rows().len() != f.len() || f.is_empty() {
        return None;
    }
    let scaled = match &model.scaling {
        Some(scaling) => scaling.apply(&data.points),
        None => Ok(data.points.clone()),
    };
    let Ok(points) = scaled else { return Some(false) };
    let d = points.dims().max(f.centres().dims());
    let (mut a, mut b) = (vec![0.0; d], vec![0.0; d]);
    Some(f.rows().iter().enumerate().all(|(at, &row)| {
        a.fill(0.0);
        b.fill(0.0);
        f.centres().copy_row(at, &mut a);
        points.copy_row(row as usize, &mut b);
        a == b
    }))
}
