//! Tables with numeric and text columns: the roles of the columns, and how they become features. Shared by the CSV and
//! Parquet readers.

mod plan;

use std::collections::HashMap;

use margrave_core::data::{Csr, Dataset, Dense, Points, Targets};
pub(crate) use plan::{Action, CellKind, TablePlan, is_missing};
use plan::{ColumnRole, list};

use crate::Loaded;
use crate::error::{Fault, Place, ReadError, Result, malformed};
use crate::number::{self, Number};
use crate::options::Format;
use crate::schema::{Encoding, ExtraColumn, FeatureColumn, Schema};

/// One-hot features are stored dense if that takes at most this many values per cell of the table.
const DENSE_EXPANSION: usize = 8;

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
}

/// Why a cell does not fit the plan.
pub(crate) enum Unfit {
    /// The cell is invalid.
    Wrong { problem: String, remedy: &'static str },
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
            Action::Number => self.numbers.push(parse(cell)?),
            Action::TargetNumber => self.target_numbers.push(parse(cell)?),
            Action::Weight => {
                let weight: f64 = parse(cell)?;
                if weight < 0.0 {
                    return Err(wrong("the weight is negative", "weights must be ≥ 0"));
                }
                self.weights.push(weight);
            }
            Action::Text(slot) => {
                let code = intern(&mut self.dictionaries[slot], cell, line)?;
                self.codes.push(code);
            }
            Action::TargetText => {
                let code = intern(&mut self.target_dictionary, cell, line)?;
                self.target_codes.push(code);
            }
            Action::Skip => {}
        }
        Ok(())
    }

    /// Adds the number of the next column with this action.
    #[cfg(feature = "parquet")]
    pub(crate) fn push_value(&mut self, action: Action, value: f64) -> Result<(), Unfit> {
        let stored = T::from_f64(value);
        if !value.is_finite() || (action == Action::Number && !stored.to_f64().is_finite()) {
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
        self.target_codes.extend(part.target_codes.iter().map(|c| targets[*c as usize]));
        let merged = self.dictionaries.iter_mut().zip(&part.dictionaries).map(|(a, b)| a.merge(b, before));
        let maps: Vec<Vec<u32>> = merged.collect();
        let width = maps.len().max(1);
        self.codes.extend(part.codes.iter().enumerate().map(|(at, c)| maps[at % width][*c as usize]));
    }
}

fn wrong(problem: impl Into<String>, remedy: &'static str) -> Unfit {
    Unfit::Wrong { problem: problem.into(), remedy }
}

const FILL: &str = "missing values are not supported; fill them in, or remove the row or the column";

fn parse<T: Number>(cell: &[u8]) -> Result<T, Unfit> {
    match number::whole::<T>(cell) {
        Some(value) if value.to_f64().is_finite() => Ok(value),
        None if cell.is_empty() => Err(wrong("the cell is empty", FILL)),
        _ if is_missing(cell) => Err(wrong("a value is missing", FILL)),
        Some(_) => Err(wrong(
            format!("the value is not a finite number in {} precision", T::PRECISION),
            "remove or replace it",
        )),
        None => Err(Unfit::Text),
    }
}

fn intern(dictionary: &mut Dictionary, cell: &[u8], line: u64) -> Result<u32, Unfit> {
    if cell.is_empty() {
        return Err(wrong("the cell is empty", FILL));
    }
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

/// Builds the data set from all rows of a table.
pub(crate) fn finish<T: Number>(plan: &TablePlan, rows: TableRows<T>, format: Format, lines: bool) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let n = rows.count;
    let file = plan.file;
    if n == 0 {
        return Err(malformed(file, "there are no samples", "give at least one row of data"));
    }
    let place = |column: usize, line: u64| match lines {
        true => Place::Cell { line, column, name: plan.name(column) },
        false => Place::Entry { row: line - 1, column: Some(column), name: plan.name(column) },
    };
    for (column, action) in plan.actions.iter().enumerate() {
        let dictionary = match action {
            Action::Text(slot) if plan.schema.is_none() => &rows.dictionaries[*slot],
            Action::TargetText if plan.may_be_text(column) => &rows.target_dictionary,
            _ => continue,
        };
        check_text(dictionary, n, format).map_err(|(entry, problem, remedy)| {
            Fault::new(place(column, entry.line), problem, remedy).found(entry.text.as_bytes()).within(file, 0)
        })?;
    }
    // Features in order, each with the codes of its texts mapped to its categories.
    let mut columns = Vec::with_capacity(plan.order.len());
    let mut maps: Vec<Vec<u32>> = vec![Vec::new(); rows.dictionaries.len()];
    for (at, &column) in plan.order.iter().enumerate() {
        let encoding = match plan.actions[column] {
            Action::Text(slot) => {
                let entries = &rows.dictionaries[slot].entries;
                let known = plan.schema.and_then(|s| s.columns.as_ref()).map(|c| &c[at].encoding);
                let categories = match known {
                    Some(Encoding::OneHot(known)) => known.clone(),
                    _ => {
                        let mut all: Vec<String> = entries.iter().map(|e| e.text.clone()).collect();
                        all.sort_unstable();
                        all
                    }
                };
                for entry in entries {
                    let code = categories.binary_search(&entry.text).map_err(|_| {
                        let problem =
                            format!("the training data did not contain this text here, only {}", list(&categories));
                        Fault::new(place(column, entry.line), problem, "use one of those, or train with this one")
                            .found(entry.text.as_bytes())
                            .within(file, 0)
                    })?;
                    maps[slot].push(code as u32);
                }
                Encoding::OneHot(categories)
            }
            _ => Encoding::Number,
        };
        columns.push(FeatureColumn { name: plan.name(column), encoding });
    }
    let data_error = |source| ReadError::Data { file: file.to_owned(), source };
    let texts = !rows.dictionaries.is_empty();
    let d = columns.iter().map(|c| c.encoding.width()).sum::<usize>();
    let straight = !texts && plan.order.is_sorted();
    let dense = straight || d <= DENSE_EXPANSION * columns.len();
    let points: Points = if straight {
        Dense::new(n, d, rows.numbers).map_err(data_error)?.into()
    } else {
        expand(plan, n, d, &columns, &rows.numbers, &rows.codes, &maps, dense).map_err(data_error)?
    };
    let find = |role: ColumnRole| plan.roles.iter().position(|r| *r == role);
    let (targets, mut target_columns) =
        targets_of(plan, rows.target_numbers, &rows.target_codes, &rows.target_dictionary);
    let target = if target_columns.len() == 1 { target_columns.pop() } else { None };
    let weights = find(ColumnRole::Weight);
    let schema = match plan.schema {
        Some(schema) => schema.clone(),
        None => Schema {
            features: d,
            sparse: !dense,
            columns: (texts || plan.names.is_some()).then_some(columns),
            target,
            targets: target_columns,
            weights: weights.map(|position| ExtraColumn { name: plan.name(position), position, text: false }),
        },
    };
    let mut data = Dataset::new(points, targets).map_err(data_error)?;
    if weights.is_some() {
        data = data.with_weights(rows.weights).map_err(data_error)?;
    }
    data.names = schema.feature_names();
    Ok(Loaded { data, format, schema, serials: None })
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

/// Features from numbers and category codes.
fn expand<T: Number>(
    plan: &TablePlan,
    n: usize,
    d: usize,
    columns: &[FeatureColumn],
    numbers: &[T],
    codes: &[u32],
    maps: &[Vec<u32>],
    dense: bool,
) -> margrave_core::Result<Points>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    enum Take {
        Number(usize),
        Code(usize),
    }
    let one = T::from_f64(1.0);
    // The position of each feature column in a row of `numbers` or `codes`.
    let mut seen = 0;
    let among: Vec<Option<usize>> = plan
        .actions
        .iter()
        .map(|a| {
            (*a == Action::Number).then(|| {
                seen += 1;
                seen - 1
            })
        })
        .collect();
    let takes: Vec<(Take, usize)> = plan
        .order
        .iter()
        .zip(columns)
        .scan(0, |offset, (&column, feature)| {
            let at = *offset;
            *offset += feature.encoding.width();
            Some(match (plan.actions[column], among[column]) {
                (Action::Text(slot), _) => (Take::Code(slot), at),
                (_, place) => (Take::Number(place.unwrap_or_default()), at),
            })
        })
        .collect();
    let cell = |row: usize, take: &Take| match take {
        Take::Number(place) => (0, numbers[row * seen + place]),
        Take::Code(slot) => (maps[*slot][codes[row * maps.len() + slot] as usize] as usize, one),
    };
    if dense {
        let mut values = vec![T::default(); n * d];
        for row in 0..n {
            for (take, offset) in &takes {
                let (shift, value) = cell(row, take);
                values[row * d + offset + shift] = value;
            }
        }
        return Ok(Dense::new(n, d, values)?.into());
    }
    let (mut starts, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        for (take, offset) in &takes {
            let (shift, value) = cell(row, take);
            if value != T::default() {
                indices.push((offset + shift) as u32);
                values.push(value);
            }
        }
        starts.push(values.len());
    }
    Ok(Csr::new(d, starts, indices, values)?.into())
}

/// Rejects a text column that is more likely a numeric column with an invalid cell.
fn check_text(dictionary: &Dictionary, n: usize, format: Format) -> Result<(), (&TextEntry, String, &'static str)> {
    if format != Format::Csv {
        return Ok(());
    }
    let is_number = |e: &&TextEntry| number::whole::<f64>(e.text.as_bytes()).is_some();
    let numbers: u64 = dictionary.entries.iter().filter(is_number).map(|e| e.count).sum();
    let odd = || dictionary.entries.iter().filter(|e| !is_number(e));
    let Some(first) = odd().min_by_key(|e| e.line) else { return Ok(()) };
    if numbers > 0 && odd().all(|e| is_missing(e.text.as_bytes())) {
        return Err((first, "a value is missing".to_owned(), FILL));
    }
    let comma = |e: &TextEntry| {
        let mut parts = e.text.splitn(2, ',');
        let digits = |p: Option<&str>| p.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        let whole = parts.next().map(|p| p.trim_start_matches(['-', '+']));
        digits(whole) && digits(parts.next())
    };
    if odd().all(comma) {
        return Err((first, "the number has a decimal comma".to_owned(), "write decimal points"));
    }
    if numbers as f64 >= MOSTLY * n as f64 {
        return Err((
            first,
            "nearly all cells of the column are numbers, but this one is not".to_owned(),
            "correct the cell, or, if its numbers are names of categories, give them a letter",
        ));
    }
    Ok(())
}
