//! The data of a session and where it comes from.

use std::time::Instant;

use margrave::Points;
use margrave::engine::data::{Dataset, Label, Targets};
use margrave::engine::problem::Task;
use margrave::io::{Column, Format, Loaded, Missing, ReadOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::answer::{Names, Refusal};
use crate::examples::Example;
use crate::folder::Folder;

/// Data sets with more rows than this cannot be edited: every edit is a copy.
pub(crate) const EDITABLE_ROWS: usize = 20_000;

/// Nor those with more values.
const EDITABLE_VALUES: usize = 4_000_000;

/// Names and ranges of at most this many features are listed.
const LISTED_FEATURES: usize = 2_000;

/// Names of features are cut to this many characters.
const LONGEST_NAME: usize = 80;

/// Where data comes from.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Source {
    Example(String),
    /// Below the opened folder.
    Path(String),
    Painted(Painted),
    Upload(String),
}

/// Points drawn by hand.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Painted {
    pub(crate) task: String,
    #[serde(default)]
    pub(crate) points: Vec<[f64; 3]>,
}

/// How to read a file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Reading {
    pub(crate) task: Option<String>,
    pub(crate) target: Option<ColumnName>,
    pub(crate) format: Option<String>,
    pub(crate) missing: Option<String>,
    pub(crate) drop: Vec<String>,
    pub(crate) only: Vec<String>,
    pub(crate) weights: Option<ColumnName>,
    pub(crate) no_target: bool,
}

/// A column by name or by number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum ColumnName {
    Number(i64),
    Name(String),
}

impl ColumnName {
    fn column(&self) -> Column {
        match self {
            ColumnName::Number(at) => Column::Number(*at),
            ColumnName::Name(name) => name.parse().unwrap_or_else(|never| match never {}),
        }
    }
}

impl Reading {
    fn options(&self, threads: usize) -> Result<ReadOptions<'static>, Refusal> {
        let list = |names: &[String]| (!names.is_empty()).then(|| Column::Name(names.join(",")));
        Ok(ReadOptions {
            format: self.format.as_deref().map(str::parse::<Format>).transpose()?,
            missing: self.missing.as_deref().map(str::parse::<Missing>).transpose()?.unwrap_or_default(),
            target: self.target.as_ref().map(ColumnName::column),
            weights: self.weights.as_ref().map(ColumnName::column),
            drop: list(&self.drop),
            only: list(&self.only),
            no_target: self.no_target,
            threads,
            ..ReadOptions::default()
        })
    }
}

/// A task by its name.
pub(crate) fn task(name: &str) -> Result<Task, Refusal> {
    match name {
        "classify" => Ok(Task::Classify),
        "regress" => Ok(Task::Regress),
        "novelty" => Ok(Task::Novelty),
        _ => Err(Refusal::settings(format!("task = {name:?}: there are classify, regress and novelty"))),
    }
}

/// A data set without a file behind it.
pub(crate) fn plain(data: Dataset) -> Result<Loaded, Refusal> {
    let (names, d) = (data.names.clone(), data.points.dims());
    let name = |at: usize| names.as_ref().and_then(|n| n.get(at).cloned()).unwrap_or_else(|| format!("x{}", at + 1));
    // Written and read once, so that the schema is the one a file of this data would have.
    let header: Vec<String> = (0..d).map(name).chain(["y".to_owned()]).collect();
    let row = vec!["0.5"; d + 1].join(",");
    let text = format!("{}\n{row}\n{row}\n", header.join(","));
    let options = ReadOptions { header: Some(true), format: Some(Format::Csv), threads: 1, ..ReadOptions::default() };
    let shape = margrave::io::read_bytes(text.as_bytes(), "painted", &options)?;
    Ok(Loaded { data: Dataset { names: shape.data.names, ..data }, ..shape })
}

impl Painted {
    fn load(&self) -> Result<(Loaded, Task), Refusal> {
        let task = task(&self.task)?;
        if self.points.len() > EDITABLE_ROWS {
            return Err(Refusal::data(format!("at most {EDITABLE_ROWS} points can be painted")));
        }
        let values: Vec<f64> = self.points.iter().flat_map(|p| [p[0], p[1]]).collect();
        let targets = self.points.iter().map(|p| p[2]).collect();
        let data = Dataset::new(Points::dense_f64(self.points.len(), 2, values)?, Targets::Real(targets))?;
        Ok((plain(data)?, task))
    }
}

/// A data set with what the page needs to know about it.
#[derive(Debug)]
pub(crate) struct Data {
    /// Grows with every load and edit of the session.
    pub(crate) version: u64,
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) loaded: Loaded,
    pub(crate) task: Task,
    /// The classes, if the targets can be labels.
    pub(crate) classes: Vec<Label>,
    /// The class of each row.
    pub(crate) codes: Vec<u32>,
    /// What the page is told.
    pub(crate) about: Value,
    /// Smallest and largest value of each listed feature.
    pub(crate) ranges: Vec<(f64, f64)>,
    /// The mean of each feature.
    pub(crate) means: Vec<f64>,
}

impl Data {
    /// Reads what a source names.
    pub(crate) fn open(
        source: Source,
        reading: &Reading,
        upload: Option<&[u8]>,
        folder: Option<&Folder>,
        version: u64,
        threads: usize,
    ) -> Result<Self, Refusal> {
        let begun = Instant::now();
        let asked = reading.task.as_deref().map(task).transpose()?;
        let (name, loaded, known) = match (&source, upload) {
            (Source::Example(id), _) => {
                let example = Example::find(id)?;
                (example.file.to_owned(), example.load(threads)?, Some(example.task))
            }
            (Source::Path(path), _) => {
                let folder = folder.ok_or_else(|| {
                    Refusal::new(400, "bad_path", "no folder is open").hint("start with --folder DIR, or drop the file")
                })?;
                let file = folder.resolve(path)?;
                (path.clone(), margrave::io::load(file, &reading.options(threads)?)?, None)
            }
            (Source::Upload(name), Some(bytes)) => {
                (name.clone(), margrave::io::read_bytes(bytes, name, &reading.options(threads)?)?, None)
            }
            (Source::Upload(_), None) => return Err(Refusal::request("an upload is sent to its own route, as bytes")),
            (Source::Painted(painted), _) => {
                let (loaded, task) = painted.load()?;
                ("painted".to_owned(), loaded, Some(task))
            }
        };
        let guess = || match &loaded.data.targets {
            Targets::None => Task::Novelty,
            targets if targets.looks_like_classes() && few_classes(targets) => Task::Classify,
            _ => Task::Regress,
        };
        let task = asked.or(known).unwrap_or_else(guess);
        if loaded.data.is_empty() && !matches!(source, Source::Painted(_)) {
            return Err(Refusal::data(format!("{name} has no rows")));
        }
        Self::new(name, source, loaded, task, version, begun)
    }

    /// A data set in memory.
    pub(crate) fn new(
        name: String,
        source: Source,
        loaded: Loaded,
        task: Task,
        version: u64,
        begun: Instant,
    ) -> Result<Self, Refusal> {
        let (classes, codes) = match task {
            Task::Classify => loaded.data.targets.classes()?,
            _ => (vec![], vec![]),
        };
        if classes.len() > 250 {
            return Err(Refusal::data(format!("the target has {} distinct values", classes.len()))
                .hint("choose regression, or another target column"));
        }
        let (ranges, means) = spread(&loaded.data.points);
        let mut data = Self { version, name, source, loaded, task, classes, codes, about: Value::Null, ranges, means };
        data.about = data.describe(begun);
        Ok(data)
    }

    pub(crate) fn points(&self) -> &Points {
        &self.loaded.data.points
    }

    pub(crate) fn len(&self) -> usize {
        self.loaded.data.len()
    }

    /// Real targets, where the target is one number.
    pub(crate) fn real(&self) -> Option<&[f64]> {
        match &self.loaded.data.targets {
            Targets::Real(values) => Some(values),
            _ => None,
        }
    }

    /// The target of a row in words.
    pub(crate) fn target_text(&self, row: usize) -> Option<String> {
        match &self.loaded.data.targets {
            Targets::Real(values) => values.get(row).map(|v| Label::Number(*v).to_string()),
            Targets::Text(values) => values.get(row).cloned(),
            Targets::Several { outputs, values } => values
                .get(row * outputs..(row + 1) * outputs)
                .map(|part| part.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            Targets::None => None,
        }
    }

    pub(crate) fn is_editable(&self) -> bool {
        self.len() <= EDITABLE_ROWS
            && self.len().max(1) * self.points().dims() <= EDITABLE_VALUES
            && self.loaded.serials.is_none()
            && matches!(self.loaded.data.targets, Targets::Real(_) | Targets::Text(_))
    }

    /// The name of a feature.
    pub(crate) fn feature(&self, at: usize) -> String {
        let named = self.loaded.data.names.as_ref().and_then(|names| names.get(at).cloned());
        named.map_or_else(|| (at + 1).to_string(), |name| name.chars().take(LONGEST_NAME).collect())
    }

    fn describe(&self, begun: Instant) -> Value {
        let (data, points) = (&self.loaded.data, self.points());
        let mut counts = vec![0u64; self.classes.len()];
        self.codes.iter().for_each(|code| counts[*code as usize] += 1);
        let class = |(label, count): (&Label, &u64)| json!({ "label": label.to_string(), "count": count });
        let classes: Vec<Value> = self.classes.iter().zip(&counts).map(class).collect();
        let target = self.real().filter(|y| self.task == Task::Regress && !y.is_empty()).map(|y| {
            let n = y.len() as f64;
            let mean = y.iter().sum::<f64>() / n;
            let deviation = (y.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
            let (low, high) = extent(y.iter().copied());
            json!({ "min": low, "max": high, "mean": mean, "deviation": deviation })
        });
        let listed = points.dims().min(LISTED_FEATURES);
        json!({
            "version": self.version,
            "name": self.name,
            "source": match &self.source {
                // The points of a painted canvas are in the views.
                Source::Painted(painted) => json!({ "painted": { "task": painted.task } }),
                source => json!(source),
            },
            "format": self.loaded.format.name(),
            "task": self.task,
            "n": self.len(),
            "d": points.dims(),
            "sparse": points.is_sparse(),
            "bytes": points.stored() * 8,
            "editable": self.is_editable(),
            "weighted": data.weights.is_some(),
            "features": (0..listed).map(|at| self.feature(at)).collect::<Vec<_>>(),
            "classes": if self.task == Task::Classify { json!(classes) } else { Value::Null },
            "target": target,
            "ranges": self.ranges.iter().take(listed).map(|(low, high)| [low, high]).collect::<Vec<_>>(),
            "notes": self.loaded.notes.iter().map(|note| note.text(&Names)).collect::<Vec<_>>(),
            "seconds": begun.elapsed().as_secs_f64(),
        })
    }
}

/// Numbers that are labels rather than measurements: few different ones.
fn few_classes(targets: &Targets) -> bool {
    match targets {
        Targets::Real(values) => {
            let mut seen: Vec<f64> = Vec::new();
            for value in values {
                if !seen.contains(value) {
                    seen.push(*value);
                }
                if seen.len() > 50 {
                    return false;
                }
            }
            true
        }
        _ => true,
    }
}

/// The smallest and the largest value; (0, 1) if there is none.
pub(crate) fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

/// Ranges of the listed features, and the means of all.
fn spread(points: &Points) -> (Vec<(f64, f64)>, Vec<f64>) {
    let (n, d) = (points.len(), points.dims());
    let listed = d.min(LISTED_FEATURES);
    let mut ranges = vec![(f64::INFINITY, f64::NEG_INFINITY); listed];
    let mut sums = vec![0.0; d];
    let mut stored = vec![0usize; listed];
    for row in 0..n {
        points.visit(row, |k, v| {
            sums[k] += v;
            if k < listed {
                ranges[k] = (ranges[k].0.min(v), ranges[k].1.max(v));
                stored[k] += 1;
            }
        });
    }
    for (range, stored) in ranges.iter_mut().zip(stored) {
        // What is not stored is zero.
        if stored < n {
            *range = (range.0.min(0.0), range.1.max(0.0));
        }
        if !(range.0 <= range.1) {
            *range = (0.0, 1.0);
        }
    }
    sums.iter_mut().for_each(|sum| *sum /= n.max(1) as f64);
    (ranges, sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn painted_points_and_examples_are_described() {
        let painted: Source =
            serde_json::from_str(r#"{"painted":{"task":"classify","points":[[0,1,1],[2,3,-1],[4,5,1]]}}"#).unwrap();
        let data = Data::open(painted, &Reading::default(), None, None, 5, 1).unwrap();
        assert_eq!((data.len(), data.points().dims(), data.version), (3, 2, 5));
        assert_eq!(data.about["classes"], json!([{ "label": "-1", "count": 1 }, { "label": "1", "count": 2 }]));
        assert_eq!(data.about["ranges"], json!([[0.0, 4.0], [1.0, 5.0]]));
        assert_eq!(data.feature(0), "x1");
        let housing = Source::Example("housing".into());
        let data = Data::open(housing, &Reading::default(), None, None, 1, 1).unwrap();
        assert_eq!((data.task, data.about["target"]["max"].as_f64()), (Task::Regress, Some(50.0)));
    }

    #[test]
    fn what_cannot_be_opened_is_refused() {
        let open = |source: Source| Data::open(source, &Reading::default(), None, None, 1, 1).map_err(|r| r.code);
        assert_eq!(open(Source::Path("a.csv".into())).err(), Some("bad_path"));
        assert_eq!(open(Source::Upload("a.csv".into())).err(), Some("bad_request"));
        assert_eq!(open(Source::Example("none".into())).err(), Some("not_found"));
        let nan = Painted { task: "classify".into(), points: vec![[f64::NAN, 0.0, 1.0]] };
        assert!(open(Source::Painted(nan)).is_err());
        let task = Painted { task: "dance".into(), points: vec![] };
        assert_eq!(open(Source::Painted(task)).err(), Some("bad_settings"));
    }
}
