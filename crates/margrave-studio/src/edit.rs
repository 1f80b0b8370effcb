//! Edits of the data: samples added, moved, labelled and deleted by hand.

use std::time::Instant;

use margrave::Points;
use margrave::engine::data::{Csr, Dataset, Label, Targets};
use margrave::engine::problem::Task;
use margrave::io::Loaded;
use serde::Deserialize;

use crate::answer::Refusal;
use crate::data::{Data, EDITABLE_ROWS, Source};

/// Most classes that can be made by hand.
const MOST_CLASSES: usize = 8;
/// Most operations of one request.
const MOST_OPERATIONS: usize = 20_000;

/// Edits of one request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edits {
    /// The version of the data they are for.
    pub(crate) version: u64,
    #[serde(default)]
    held: Held,
    #[serde(default)]
    x: usize,
    #[serde(default = "second")]
    y: usize,
    ops: Vec<Operation>,
}

fn second() -> usize {
    1
}

/// What the other features of a new sample are.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    #[serde(default)]
    row: Option<usize>,
    #[serde(default, rename = "mean")]
    _mean: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Operation {
    Add { at: [f64; 2], label: Option<usize>, target: Option<f64> },
    Move { row: usize, to: [f64; 2] },
    Label { row: usize, label: usize },
    Value { row: usize, target: f64 },
    Delete { rows: Vec<usize> },
}

/// The data while it is edited: dense rows with their targets.
struct Draft {
    d: usize,
    rows: Vec<Row>,
    labels: Vec<Label>,
    task: Task,
}

struct Row {
    values: Vec<f64>,
    class: usize,
    target: f64,
    weight: f64,
}

impl Draft {
    fn new(data: &Data) -> Self {
        let d = data.points().dims();
        let row = |at: usize| {
            let mut values = vec![0.0; d];
            data.points().copy_row(at, &mut values);
            Row {
                values,
                class: data.codes.get(at).map_or(0, |code| *code as usize),
                target: data.real().map_or(0.0, |y| y[at]),
                weight: data.loaded.data.weights.as_ref().map_or(1.0, |w| w[at]),
            }
        };
        Self { d, rows: (0..data.len()).map(row).collect(), labels: data.classes.clone(), task: data.task }
    }

    fn row(&mut self, at: usize) -> Result<&mut Row, Refusal> {
        let n = self.rows.len();
        self.rows.get_mut(at).ok_or_else(|| Refusal::request(format!("row {at}: the data has {n} rows")))
    }

    /// The class of an index; one beyond the last is a new class.
    fn class(&mut self, at: usize, text: bool) -> Result<usize, Refusal> {
        if at < self.labels.len() {
            return Ok(at);
        }
        if at > self.labels.len() || at >= MOST_CLASSES {
            return Err(Refusal::request(format!("label {at}: there are {} classes", self.labels.len())));
        }
        // Numbers go on from the largest, so that the new class is the last in order.
        let largest = self.labels.iter().filter_map(|label| match label {
            Label::Number(v) => Some(v.floor()),
            Label::Text(_) => None,
        });
        let next = largest.fold(-1.0, f64::max) + 1.0;
        self.labels.push(if text { Label::Text(format!("class {at}")) } else { Label::Number(next) });
        Ok(at)
    }

    fn apply(&mut self, edits: &Edits, base: &[f64], text: bool) -> Result<(), Refusal> {
        let (x, y) = (edits.x, edits.y);
        let finite = |at: &[f64; 2]| at.iter().all(|v| v.is_finite());
        for operation in &edits.ops {
            match operation {
                Operation::Add { at, label, target } if finite(at) => {
                    if self.rows.len() >= EDITABLE_ROWS {
                        return Err(Refusal::data(format!("at most {EDITABLE_ROWS} samples can be edited")));
                    }
                    let class = match self.task {
                        Task::Classify => self.class(label.unwrap_or(0), text)?,
                        _ => 0,
                    };
                    let mut values = base.to_vec();
                    (values[x], values[y]) = (at[0], at[1]);
                    self.rows.push(Row { values, class, target: target.unwrap_or(0.0), weight: 1.0 });
                }
                Operation::Move { row, to } if finite(to) => {
                    let own = self.row(*row)?;
                    (own.values[x], own.values[y]) = (to[0], to[1]);
                }
                Operation::Add { .. } | Operation::Move { .. } => {
                    return Err(Refusal::request("coordinates must be finite"));
                }
                Operation::Label { row, label } => {
                    let class = self.class(*label, text)?;
                    self.row(*row)?.class = class;
                }
                Operation::Value { row, target } => self.row(*row)?.target = *target,
                Operation::Delete { rows } => {
                    let mut gone: Vec<usize> = rows.clone();
                    gone.sort_unstable();
                    gone.dedup();
                    if gone.last().is_some_and(|last| *last >= self.rows.len()) {
                        return Err(Refusal::request("a row to delete does not exist"));
                    }
                    let mut at = 0;
                    self.rows.retain(|_| {
                        at += 1;
                        gone.binary_search(&(at - 1)).is_err()
                    });
                }
            }
        }
        Ok(())
    }

    fn finish(self, old: &Data) -> Result<Dataset, Refusal> {
        let n = self.rows.len();
        let values = || self.rows.iter().flat_map(|row| row.values.iter().copied());
        let points: Points = match old.points().is_sparse() {
            false => Points::dense_f64(n, self.d, values().collect::<Vec<_>>())?,
            true => {
                let (mut starts, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
                for row in &self.rows {
                    for (k, v) in row.values.iter().enumerate().filter(|(_, v)| **v != 0.0) {
                        columns.push(k as u32);
                        kept.push(*v);
                    }
                    starts.push(columns.len());
                }
                Csr::new(self.d, starts, columns, kept)?.into()
            }
        };
        let label = |row: &Row| &self.labels[row.class];
        let targets = match (&old.loaded.data.targets, self.task) {
            (Targets::Text(_), Task::Classify) => {
                Targets::Text(self.rows.iter().map(|r| label(r).to_string()).collect())
            }
            (_, Task::Classify) => Targets::Real(
                self.rows
                    .iter()
                    .map(|row| match label(row) {
                        Label::Number(v) => *v,
                        Label::Text(_) => row.class as f64,
                    })
                    .collect(),
            ),
            _ => Targets::Real(self.rows.iter().map(|row| row.target).collect()),
        };
        let mut data = Dataset::new(points, targets)?;
        if old.loaded.data.weights.is_some() {
            data = data.with_weights(self.rows.iter().map(|row| row.weight).collect())?;
        }
        data.names = old.loaded.data.names.clone();
        Ok(data)
    }
}

/// The data after the edits, as version `version`.
pub(crate) fn apply(old: &Data, edits: &Edits, version: u64) -> Result<Data, Refusal> {
    let begun = Instant::now();
    if !old.is_editable() {
        return Err(Refusal::new(400, "not_editable", "this data is too large or has no single target")
            .hint(format!("data of up to {EDITABLE_ROWS} samples with one target can be edited")));
    }
    if edits.ops.len() > MOST_OPERATIONS {
        return Err(Refusal::request(format!("at most {MOST_OPERATIONS} edits at once")));
    }
    let d = old.points().dims();
    if edits.x >= d || edits.y >= d || edits.x == edits.y && d > 1 {
        return Err(Refusal::request(format!("x and y must be two of the {d} features")));
    }
    let base = match edits.held.row {
        Some(row) if row >= old.len() => {
            return Err(Refusal::request(format!("held: row {row} of {} rows", old.len())));
        }
        Some(row) => {
            let mut base = vec![0.0; d];
            old.points().copy_row(row, &mut base);
            base
        }
        None => old.means.clone(),
    };
    let mut draft = Draft::new(old);
    draft.apply(edits, &base, matches!(old.loaded.data.targets, Targets::Text(_)))?;
    let data = draft.finish(old)?;
    let loaded = Loaded { data, ..old.loaded.clone() };
    let source = match &old.source {
        Source::Painted(painted) => Source::Painted(painted.clone()),
        other => other.clone(),
    };
    let mut data = Data::new(old.name.clone(), source, loaded, old.task, version, begun)?;
    data.about["edited"] = serde_json::json!(true);
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Reading;

    fn open(text: &str) -> Data {
        Data::open(serde_json::from_str(text).unwrap(), &Reading::default(), None, None, 1, 1).unwrap()
    }

    fn edit(data: &Data, text: &str) -> Result<Data, Refusal> {
        apply(data, &serde_json::from_str(text).unwrap(), 2)
    }

    #[test]
    fn samples_are_added_moved_labelled_and_deleted() {
        let data = open(r#"{"painted":{"task":"classify","points":[[0,0,-1],[1,1,1],[2,2,1]]}}"#);
        let ops = r#"[{"op":"add","at":[5,6],"label":0},{"op":"move","row":0,"to":[9,8]},
            {"op":"label","row":1,"label":0},{"op":"delete","rows":[2]}]"#;
        let data = edit(&data, &format!(r#"{{"version":1,"ops":{ops}}}"#)).unwrap();
        assert_eq!((data.len(), data.version), (3, 2));
        assert_eq!(data.real().unwrap(), [-1.0, -1.0, -1.0]);
        let mut row = [0.0; 2];
        data.points().copy_row(2, &mut row);
        assert_eq!(row, [5.0, 6.0]);
        data.points().copy_row(0, &mut row);
        assert_eq!(row, [9.0, 8.0]);
        // A new class follows the largest number.
        let data = edit(&data, r#"{"version":1,"ops":[{"op":"add","at":[0,0],"label":1}]}"#).unwrap();
        assert_eq!(data.classes, [Label::Number(-1.0), Label::Number(0.0)]);
        // The source of the data is unchanged by an edit, but the page is told.
        assert_eq!(data.about["edited"], true);
    }

    #[test]
    fn an_empty_canvas_can_be_painted_on() {
        let data = open(r#"{"painted":{"task":"classify"}}"#);
        let ops = r#"[{"op":"add","at":[0,0],"label":0},{"op":"add","at":[1,0],"label":1}]"#;
        let data = edit(&data, &format!(r#"{{"version":1,"ops":{ops}}}"#)).unwrap();
        assert_eq!(data.classes, [Label::Number(0.0), Label::Number(1.0)]);
    }

    #[test]
    fn sparse_data_and_words_survive_edits() {
        let heart = open(r#"{"example":"heart"}"#);
        let edited = edit(
            &heart,
            r#"{"version":1,"held":{"row":3},"x":2,"y":4,"ops":[{"op":"add","at":[0.5,0.25],"label":1}]}"#,
        )
        .unwrap();
        assert_eq!((edited.len(), edited.points().is_sparse()), (271, heart.points().is_sparse()));
        let (mut old, mut new) = ([0.0; 13], [0.0; 13]);
        heart.points().copy_row(3, &mut old);
        edited.points().copy_row(270, &mut new);
        (old[2], old[4]) = (0.5, 0.25);
        assert_eq!(old, new);
        let iris = open(r#"{"example":"iris"}"#);
        let edited = edit(&iris, r#"{"version":1,"ops":[{"op":"label","row":0,"label":3}]}"#).unwrap();
        assert_eq!(edited.classes.len(), 4);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let data = open(r#"{"painted":{"task":"classify","points":[[0,0,-1],[1,1,1]]}}"#);
        for ops in [
            r#"[{"op":"move","row":2,"to":[0,0]}]"#,
            r#"[{"op":"delete","rows":[7]}]"#,
            r#"[{"op":"label","row":0,"label":5}]"#,
        ] {
            assert!(edit(&data, &format!(r#"{{"version":1,"ops":{ops}}}"#)).is_err(), "{ops}");
        }
        assert!(edit(&data, r#"{"version":1,"x":0,"y":0,"ops":[]}"#).is_err());
        assert!(edit(&data, r#"{"version":1,"x":0,"y":9,"ops":[]}"#).is_err());
        let infinite = Operation::Move { row: 0, to: [f64::INFINITY, 0.0] };
        let edits = Edits { version: 1, held: Held::default(), x: 0, y: 1, ops: vec![infinite] };
        assert!(apply(&data, &edits, 2).is_err());
    }
}
