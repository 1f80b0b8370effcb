//! Tables with numeric and text columns: the roles of the columns, and how they become features. Shared by the CSV and
//! Parquet readers.

mod dates;
mod encode;
mod learn;
mod plan;

use std::collections::HashMap;
use std::sync::Arc;

use margrave_core::conflict::OptionName;
use margrave_core::data::{Csr, Dataset, Dense, Points, Targets};
pub(crate) use plan::{Action, CellKind, TablePlan, column_label, is_missing};
use plan::{ColumnRole, is_missing_text, list};

use crate::Loaded;
use crate::error::{Fault, Place, ReadError, Result, malformed};
use crate::note::Note;
use crate::number::{self, Number};
use crate::options::{Format, Missing};
use crate::schema::{ExtraColumn, Schema};

/// The code of a missing text.
const NO_TEXT: u32 = u32::MAX;

/// A text column in which at least this fraction of the cells are numbers is treated as a numeric column with an error.
const MOSTLY: f64 = 0.9;

/// A text that occurs in a column.
struct TextEntry {
    text: String,
    count: u64,
    line: u64,
}

/// The distinct texts of a column, numbered by first occurrence.
#[derive(Default)]
pub(crate) struct Dictionary {
    codes: HashMap<Vec<u8>, u32>,
    entries: Vec<TextEntry>,
}

impl Dictionary {
    /// The code of `cell`, found on `line`; `None` if it is not UTF-8.
    fn code(&mut self, cell: &[u8], line: u64, count: u64) -> Option<u32> {
        if let Some(&code) = self.codes.get(cell) {
            self.entries[code as usize].count += count;
            return Some(code);
        }
        let text = std::str::from_utf8(cell).ok()?.to_owned();
        let code = u32::try_from(self.entries.len()).ok()?;
        self.codes.insert(cell.to_vec(), code);
        self.entries.push(TextEntry { text, count, line });
        Some(code)
    }

    /// The codes in this dictionary of the entries of `other`, which starts after `before` lines.
    fn merge(&mut self, other: &Dictionary, before: u64) -> Vec<u32> {
        let entry = |e: &TextEntry| self.code(e.text.as_bytes(), e.line + before, e.count).unwrap_or_default();
        other.entries.iter().map(entry).collect()
    }
}

/// Rows of a table, split according to the actions of a [`TablePlan`].
pub(crate) struct TableRows<T> {
    pub(crate) count: usize,
    /// Numeric features, row-major.
    numbers: Vec<T>,
    /// Codes of text features, row-major.
    codes: Vec<u32>,
    dictionaries: Vec<Dictionary>,
    target_numbers: Vec<f64>,
    target_codes: Vec<u32>,
    target_dictionary: Dictionary,
    weights: Vec<f64>,
    missing: Missing,
    /// For a model: whether its columns, not the options, decide what happens to missing values.
    by_model: bool,
}

/// Why a cell does not fit the plan.
pub(crate) enum Unfit {
    /// The cell is invalid.
    Wrong { problem: String, remedy: String },
    /// The cell is text where a number was expected.
    Text,
}

impl<T: Number> TableRows<T> {
    pub(crate) fn new(plan: &TablePlan) -> Self {
        Self {
            count: 0,
            numbers: Vec::new(),
            codes: Vec::new(),
            dictionaries: (0..plan.texts()).map(|_| Dictionary::default()).collect(),
            target_numbers: Vec::new(),
            target_codes: Vec::new(),
            target_dictionary: Dictionary::default(),
            weights: Vec::new(),
            missing: plan.missing,
            by_model: plan.schema.is_some(),
        }
    }

    /// All texts, row-major.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> Vec<String> {
        let text = |(at, code): (usize, &u32)| {
            let entries = &self.dictionaries[at % self.dictionaries.len()].entries;
            entries[*code as usize].text.clone()
        };
        self.codes.iter().enumerate().map(text).collect()
    }

    /// Reserves space for `count` numbers.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.numbers.reserve(count);
    }

    /// Adds a numeric feature, known to be finite.
    #[inline(always)]
    pub(crate) fn push_number(&mut self, value: T) {
        self.numbers.push(value);
    }

    /// Adds the cell of the next column with this action. `line` counts from 1.
    pub(crate) fn push(&mut self, action: Action, cell: &[u8], line: u64) -> Result<(), Unfit> {
        match action {
            Action::Number => {
                let value = self.or_missing(action, parse(cell)?, cell)?;
                self.numbers.push(value);
            }
            Action::TargetNumber => {
                let value = self.or_missing(action, parse(cell)?, cell)?;
                self.target_numbers.push(value);
            }
            Action::Weight => {
                let weight: f64 = self.or_missing(action, parse(cell)?, cell)?;
                if weight < 0.0 {
                    return Err(wrong("the weight is negative", "weights must be ≥ 0"));
                }
                self.weights.push(weight);
            }
            Action::Text(slot) => {
                let missing = cell.is_empty() || self.missing != Missing::Refuse && is_missing_text(cell);
                let code = if missing {
                    self.no_text(action, cell)?
                } else {
                    intern(&mut self.dictionaries[slot], cell, line)?
                };
                self.codes.push(code);
            }
            Action::TargetText => {
                let missing = cell.is_empty() || self.missing == Missing::Row && is_missing_text(cell);
                let code = if missing {
                    self.no_text(action, cell)?
                } else {
                    intern(&mut self.target_dictionary, cell, line)?
                };
                self.target_codes.push(code);
            }
            Action::Skip => {}
        }
        Ok(())
    }

    /// The number of a cell; a missing one becomes NaN where that is allowed.
    fn or_missing<V: Number>(&self, action: Action, value: Option<V>, cell: &[u8]) -> Result<V, Unfit> {
        match value {
            Some(value) => Ok(value),
            None if self.may_miss(action) => Ok(V::from_f64(f64::NAN)),
            None => Err(self.no_value(action, cell)),
        }
    }

    fn no_text(&self, action: Action, cell: &[u8]) -> Result<u32, Unfit> {
        if self.may_miss(action) { Ok(NO_TEXT) } else { Err(self.no_value(action, cell)) }
    }

    /// Whether a cell of a column with this action may be missing.
    fn may_miss(&self, action: Action) -> bool {
        match action {
            Action::Number | Action::Text(_) => self.missing != Missing::Refuse,
            _ => self.missing == Missing::Row,
        }
    }

    #[cold]
    fn no_value(&self, action: Action, cell: &[u8]) -> Unfit {
        let problem = if cell.is_empty() { "the cell is empty" } else { "a value is missing" };
        wrong(problem, missing_remedy(matches!(action, Action::Number | Action::Text(_)), self.by_model))
    }

    /// Adds the number of the next column with this action; NaN is a missing value.
    #[cfg(feature = "parquet")]
    pub(crate) fn push_value(&mut self, action: Action, value: f64) -> Result<(), Unfit> {
        if value.is_nan() && action != Action::Skip && !self.may_miss(action) {
            return Err(self.no_value(action, b"null"));
        }
        let stored = T::from_f64(value);
        if value.is_infinite() || (action == Action::Number && stored.to_f64().is_infinite()) {
            return Err(wrong(
                format!("the value {value} is not a finite number in {} precision", T::PRECISION),
                "remove or replace it",
            ));
        }
        match action {
            Action::Number => self.numbers.push(stored),
            Action::TargetNumber => self.target_numbers.push(value),
            Action::Weight if value < 0.0 => return Err(wrong("the weight is negative", "weights must be ≥ 0")),
            Action::Weight => self.weights.push(value),
            Action::Text(_) | Action::TargetText | Action::Skip => {}
        }
        Ok(())
    }

    /// Appends `part`, which starts after `before` lines.
    pub(crate) fn append(&mut self, part: TableRows<T>, before: u64) {
        self.count += part.count;
        self.numbers.extend_from_slice(&part.numbers);
        self.target_numbers.extend_from_slice(&part.target_numbers);
        self.weights.extend_from_slice(&part.weights);
        let targets = self.target_dictionary.merge(&part.target_dictionary, before);
        let moved = |map: &[u32], code: u32| map.get(code as usize).copied().unwrap_or(NO_TEXT);
        self.target_codes.extend(part.target_codes.iter().map(|c| moved(&targets, *c)));
        let merged = self.dictionaries.iter_mut().zip(&part.dictionaries).map(|(a, b)| a.merge(b, before));
        let maps: Vec<Vec<u32>> = merged.collect();
        let width = maps.len().max(1);
        self.codes.extend(part.codes.iter().enumerate().map(|(at, c)| moved(&maps[at % width], *c)));
    }
}

fn wrong(problem: impl Into<String>, remedy: impl Into<String>) -> Unfit {
    Unfit::Wrong { problem: problem.into(), remedy: remedy.into() }
}

/// What to do about a missing value.
fn missing_remedy(feature: bool, by_model: bool) -> String {
    let missing = OptionName::Missing;
    match (feature, by_model) {
        (true, false) => format!("fill it in, or choose what stands for it: {missing} mean, median, indicator or row"),
        (true, true) => format!("fill it in, or train with {missing} mean, median, indicator or row"),
        (false, false) => format!("fill it in, or leave such rows out with {}", missing.at("row")),
        (false, true) => "fill it in, or leave the target out".to_owned(),
    }
}

/// The number in a cell; `None` if it is missing.
fn parse<T: Number>(cell: &[u8]) -> Result<Option<T>, Unfit> {
    match number::whole::<T>(cell) {
        Some(value) if value.to_f64().is_finite() => Ok(Some(value)),
        _ if cell.is_empty() || is_missing(cell) => Ok(None),
        Some(_) => Err(wrong(
            format!("the value is not a finite number in {} precision", T::PRECISION),
            "remove or replace it",
        )),
        None => Err(Unfit::Text),
    }
}

fn intern(dictionary: &mut Dictionary, cell: &[u8], line: u64) -> Result<u32, Unfit> {
    dictionary.code(cell, line, 1).ok_or_else(|| wrong("the text is not UTF-8", "save the file as UTF-8"))
}

impl<T: Number> TableRows<T> {
    /// The rows of a table that has only features.
    pub(crate) fn of_features(count: usize, numbers: Vec<T>, plan: &TablePlan) -> Self {
        Self { count, numbers, ..Self::new(plan) }
    }

    /// Adds the next row of a numeric table.
    pub(crate) fn push_row(&mut self, plan: &TablePlan, row: impl Iterator<Item = f64>) {
        for (action, value) in plan.actions.iter().zip(row) {
            match action {
                Action::Number => self.numbers.push(T::from_f64(value)),
                Action::TargetNumber => self.target_numbers.push(value),
                Action::Weight => self.weights.push(value),
                Action::Text(_) | Action::TargetText | Action::Skip => {}
            }
        }
        self.count += 1;
    }
}

impl<T: Number> TableRows<T> {
    /// Moves the features of all rows so far to where the plan sends them, if not to memory.
    pub(crate) fn spill(&mut self, plan: &TablePlan) -> Result<()> {
        let Some(spill) = plan.spill else { return Ok(()) };
        let numbers = || plan.actions.iter().enumerate().filter(|(_, action)| **action == Action::Number);
        let width = numbers().count();
        if let Some(at) = self.numbers.iter().position(|v| !v.to_f64().is_finite()) {
            let column = numbers().map(|(column, _)| column).nth(at % width.max(1)).unwrap_or_default();
            let row = (spill.rows() + at / width.max(1)) as u64;
            let place = Place::Entry { row, column: Some(column), name: plan.name(column) };
            let value = self.numbers[at].to_f64();
            let (problem, remedy) = match value.is_nan() {
                true => ("a value is missing (NaN)".to_owned(), missing_remedy(true, false)),
                false => (format!("the value is {value}"), "remove or replace it".to_owned()),
            };
            return Err(Fault::new(place, problem, remedy).within(plan.file, 0));
        }
        spill.add_dense(width, self.numbers.drain(..).map(|v| v.to_f64()))
    }
}

/// Builds the data set from all rows of a table.
pub(crate) fn finish<T: Number>(plan: &TablePlan, mut rows: TableRows<T>, format: Format, lines: bool) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let file = plan.file;
    if rows.count == 0 {
        return Err(malformed(file, "there are no samples", "give at least one row of data"));
    }
    let place = |column: usize, line: u64| match lines {
        true => Place::Cell { line, column, name: plan.name(column) },
        false => Place::Entry { row: line - 1, column: Some(column), name: plan.name(column) },
    };
    for (column, action) in plan.actions.iter().enumerate() {
        let dictionary = match action {
            Action::Text(slot) if plan.schema.is_none() && plan.ordinals[column].is_none() => &rows.dictionaries[*slot],
            Action::TargetText if plan.may_be_text(column) => &rows.target_dictionary,
            _ => continue,
        };
        check_text(dictionary, rows.count, format).map_err(|(entry, problem, remedy)| {
            Fault::new(place(column, entry.line), problem, remedy).found(entry.text.as_bytes()).within(file, 0)
        })?;
    }
    if !lines && plan.missing.is_refuse() {
        refuse_missing(plan, &rows, &place)?;
    }
    let mut notes = Vec::new();
    let all = rows.count;
    let left_out = if plan.missing == Missing::Row { rows.leave_out_missing(plan) } else { Vec::new() };
    if !left_out.is_empty() {
        if rows.count == 0 {
            let remedy =
                format!("choose another {}, or leave columns out with {}", OptionName::Missing, OptionName::Drop);
            return Err(malformed(file, "a value is missing in every row", remedy));
        }
        notes.push(Note(format!("{} of {all} rows have a missing value and are left out", left_out.len())));
    }
    let n = rows.count;
    let columns = learn::columns(plan, &rows, &place, &mut notes)?;
    let fills = learn::fills(plan, &rows, &columns);
    let data_error = |source| ReadError::Data { file: file.to_owned(), source };
    let (encoded, features) = match plan.spill {
        None => {
            let points = encode::points(plan, &mut rows, &columns).map_err(data_error)?;
            let features = points.dims();
            (points, features)
        }
        Some(_) => {
            rows.spill(plan)?;
            (Points::dense_f64(n, 0, vec![]).map_err(data_error)?, columns.len())
        }
    };
    let find = |role: ColumnRole| plan.roles.iter().position(|r| *r == role);
    let (targets, mut target_columns) =
        targets_of(plan, rows.target_numbers, &rows.target_codes, &rows.target_dictionary);
    let target = if target_columns.len() == 1 { target_columns.pop() } else { None };
    let weights = find(ColumnRole::Weight);
    let described = plan.texts() > 0 || plan.names.is_some() || !plan.missing.is_refuse();
    let extra = |position: usize| ExtraColumn { name: plan.name(position), position, text: false };
    let schema = match plan.schema {
        Some(schema) => schema.clone(),
        None => Schema {
            features,
            sparse: encoded.is_sparse(),
            columns: described.then(|| columns.into_iter().map(|c| c.feature).collect()),
            target,
            targets: target_columns,
            weights: weights.map(extra),
            dropped: (0..plan.roles.len()).filter(|k| plan.roles[*k] == ColumnRole::Ignored).map(extra).collect(),
            missing: plan.missing,
            ignore_unknown: plan.ignore_unknown,
        },
    };
    debug_assert_eq!(encoded.len(), n);
    let mut data = Dataset::new(encoded, targets).map_err(data_error)?;
    if weights.is_some() {
        data = data.with_weights(rows.weights).map_err(data_error)?;
    }
    data.names = schema.feature_names();
    data.fills = fills.map(Arc::new);
    Ok(Loaded { data, format, schema, serials: None, left_out, notes })
}

/// Fails for the first NaN among the features of an array.
fn refuse_missing<T: Number>(plan: &TablePlan, rows: &TableRows<T>, place: &dyn Fn(usize, u64) -> Place) -> Result<()> {
    let Some(at) = rows.numbers.iter().position(|v| v.to_f64().is_nan()) else { return Ok(()) };
    let across = rows.numbers.len() / rows.count;
    let numbers = plan.actions.iter().enumerate().filter(|(_, action)| **action == Action::Number);
    let column = numbers.map(|(column, _)| column).nth(at % across).unwrap_or_default();
    let remedy = missing_remedy(true, plan.schema.is_some());
    Err(Fault::new(place(column, (at / across) as u64 + 1), "a value is missing (NaN)", remedy).within(plan.file, 0))
}

impl<T: Number> TableRows<T> {
    /// Leaves out the rows with a missing value, and returns their numbers.
    fn leave_out_missing(&mut self, plan: &TablePlan) -> Vec<usize> {
        let n = self.count;
        let mut missing = vec![false; n];
        let mark = |missing: &mut [bool], width: usize, is_missing: &dyn Fn(usize) -> bool| {
            (0..n * width).filter(|at| is_missing(*at)).for_each(|at| missing[at / width] = true);
        };
        let texts = plan.texts();
        let numbers = self.numbers.len() / n;
        mark(&mut missing, numbers, &|at| self.numbers[at].to_f64().is_nan());
        mark(&mut missing, texts, &|at| self.codes[at] == NO_TEXT);
        mark(&mut missing, self.target_numbers.len() / n, &|at| self.target_numbers[at].is_nan());
        mark(&mut missing, self.target_codes.len() / n, &|at| self.target_codes[at] == NO_TEXT);
        mark(&mut missing, self.weights.len() / n, &|at| self.weights[at].is_nan());
        fn keep<V: Copy>(values: &mut Vec<V>, missing: &[bool]) {
            let width = values.len() / missing.len();
            let mut at = 0;
            values.retain(|_| {
                at += 1;
                !missing[(at - 1) / width.max(1)]
            });
        }
        keep(&mut self.numbers, &missing);
        keep(&mut self.codes, &missing);
        keep(&mut self.target_numbers, &missing);
        keep(&mut self.target_codes, &missing);
        keep(&mut self.weights, &missing);
        let left_out: Vec<usize> = (0..n).filter(|row| missing[*row]).collect();
        self.count -= left_out.len();
        left_out
    }
}

/// The targets of all rows, and the columns they come from.
fn targets_of(
    plan: &TablePlan,
    numbers: Vec<f64>,
    codes: &[u32],
    dictionary: &Dictionary,
) -> (Targets, Vec<ExtraColumn>) {
    let column = |position: usize, text: bool| ExtraColumn { name: plan.name(position), position, text };
    match plan.targets[..] {
        [] => (Targets::None, Vec::new()),
        [position] if plan.actions[position] == Action::TargetText => {
            let texts = codes.iter().map(|c| dictionary.entries[*c as usize].text.clone()).collect();
            (Targets::Text(texts), vec![column(position, true)])
        }
        [position] => (Targets::Real(numbers), vec![column(position, false)]),
        ref several => {
            let outputs = several.len();
            // Rows store them in column order; return them in the requested order.
            let mut sorted = several.to_vec();
            sorted.sort_unstable();
            let from: Vec<usize> =
                several.iter().filter_map(|column| sorted.iter().position(|other| other == column)).collect();
            let values = numbers.chunks_exact(outputs).flat_map(|row| from.iter().map(|&at| row[at])).collect();
            (Targets::Several { outputs, values }, several.iter().map(|&position| column(position, false)).collect())
        }
    }
}

/// Rejects a text column that is more likely a numeric column with an invalid cell.
fn check_text(dictionary: &Dictionary, n: usize, format: Format) -> Result<(), (&TextEntry, String, String)> {
    if format != Format::Csv {
        return Ok(());
    }
    let is_number = |e: &&TextEntry| number::whole::<f64>(e.text.as_bytes()).is_some();
    let numbers: u64 = dictionary.entries.iter().filter(is_number).map(|e| e.count).sum();
    let odd = || dictionary.entries.iter().filter(|e| !is_number(e));
    let Some(first) = odd().min_by_key(|e| e.line) else { return Ok(()) };
    if numbers > 0 && odd().all(|e| is_missing(e.text.as_bytes())) {
        return Err((first, "a value is missing".to_owned(), missing_remedy(true, false)));
    }
    let comma = |e: &TextEntry| {
        let mut parts = e.text.splitn(2, ',');
        let digits = |p: Option<&str>| p.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        let whole = parts.next().map(|p| p.trim_start_matches(['-', '+']));
        digits(whole) && digits(parts.next())
    };
    if odd().all(comma) {
        return Err((first, "the number has a decimal comma".to_owned(), "write decimal points".to_owned()));
    }
    if numbers as f64 >= MOSTLY * n as f64 {
        return Err((
            first,
            "nearly all cells of the column are numbers, but this one is not".to_owned(),
            "correct the cell, or, if its numbers are names of categories, give them a letter".to_owned(),
        ));
    }
    Ok(())
}
