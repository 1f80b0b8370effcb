//! Tables with columns of numbers and texts: which column is what, and how columns become features. Shared by the
//! readers of CSV and Parquet.

use std::collections::HashMap;

use margrave_core::data::{Csr, Dataset, Dense, Points, Targets};

use crate::Loaded;
use crate::error::{Fault, Place, ReadError, Result, malformed};
use crate::number::{self, Number};
use crate::options::{Column, Format, ReadOptions};
use crate::schema::{Encoding, ExtraColumn, FeatureColumn, Schema};

/// One-hot features are kept dense while that takes at most this many values for each cell of the table.
const DENSE_EXPANSION: usize = 8;

/// A text column of which at least this share are numbers is taken for a column of numbers with a slip.
const MOSTLY: f64 = 0.9;

/// What a column is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Feature,
    Target,
    Weight,
    Ignored,
}

/// What the cells of a column hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    Text,
}

/// Where the cells of a column go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The next feature number of the row.
    Number,
    /// Text feature, with its place among those.
    Text(usize),
    TargetNumber,
    TargetText,
    Weight,
    Skip,
}

/// What is to be done with every column of a table.
pub(crate) struct Plan<'a> {
    pub(crate) names: Option<Vec<String>>,
    pub(crate) actions: Vec<Action>,
    roles: Vec<Role>,
    /// Columns of the table that hold the features, in the order of the features.
    order: Vec<usize>,
    schema: Option<&'a Schema>,
    file: &'a str,
}

/// The plain sense of `NA`, `?` and the like in a column of numbers.
pub(crate) fn is_missing(cell: &[u8]) -> bool {
    const MARKS: [&str; 8] = ["?", "na", "n/a", "nan", "null", "none", "-", "."];
    MARKS.iter().any(|m| m.as_bytes().eq_ignore_ascii_case(cell))
}

impl<'a> Plan<'a> {
    /// Gives every one of `kinds.len()` columns its role. With a schema, the kinds of its columns are the schema's.
    pub(crate) fn new(
        file: &'a str,
        names: Option<Vec<String>>,
        mut kinds: Vec<Kind>,
        options: &ReadOptions<'a>,
    ) -> Result<Self> {
        let count = kinds.len();
        let mut roles = vec![Role::Ignored; count];
        let resolver = Resolver { file, names: names.as_deref(), count };
        let (target, weights, order) = match options.schema {
            Some(schema) => resolver.by_schema(schema, options)?,
            None => {
                let weights = options.weights.as_ref().map(|c| resolver.find("--weights", c)).transpose()?;
                let target = match &options.target {
                    _ if options.no_target => None,
                    Some(column) => Some(resolver.find("--target", column)?),
                    // The last column that is not the weights.
                    None => (0..count).rev().find(|k| Some(*k) != weights),
                };
                let order = (0..count).filter(|k| Some(*k) != target && Some(*k) != weights).collect();
                (target, weights, order)
            }
        };
        if target.is_some() && target == weights {
            return Err(ReadError::Option {
                file: file.to_owned(),
                option: "--weights",
                problem: format!("column {} is the target too: choose another", target.unwrap_or_default()),
            });
        }
        if order.is_empty() {
            return Err(malformed(
                file,
                format!("there are {count} columns, and none is left for features"),
                "check the separator and the target column",
            ));
        }
        order.iter().for_each(|k| roles[*k] = Role::Feature);
        target.into_iter().for_each(|k| roles[k] = Role::Target);
        weights.into_iter().for_each(|k| roles[k] = Role::Weight);
        if let Some(schema) = options.schema {
            for (at, &column) in order.iter().enumerate() {
                kinds[column] = match schema.columns.as_ref().map(|c| &c[at].encoding) {
                    Some(Encoding::OneHot(_)) => Kind::Text,
                    _ => Kind::Number,
                };
            }
            if let (Some(column), Some(known)) = (target, &schema.target)
                && known.text
            {
                kinds[column] = Kind::Text;
            }
        }
        let mut plan = Self { names, actions: Vec::new(), roles, order, schema: options.schema, file };
        plan.set_kinds(&kinds);
        Ok(plan)
    }

    /// Sets what the cells hold.
    pub(crate) fn set_kinds(&mut self, kinds: &[Kind]) {
        let mut texts = 0;
        let action = |(role, kind): (&Role, &Kind)| match (role, kind) {
            (Role::Feature, Kind::Number) => Action::Number,
            (Role::Feature, Kind::Text) => {
                texts += 1;
                Action::Text(texts - 1)
            }
            (Role::Target, Kind::Number) => Action::TargetNumber,
            (Role::Target, Kind::Text) => Action::TargetText,
            (Role::Weight, _) => Action::Weight,
            (Role::Ignored, _) => Action::Skip,
        };
        self.actions = self.roles.iter().zip(kinds).map(action).collect();
    }

    /// What the cells hold.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let kind = |action: &Action| match action {
            Action::Text(_) | Action::TargetText => Kind::Text,
            _ => Kind::Number,
        };
        self.actions.iter().map(kind).collect()
    }

    /// Whether a column of numbers may turn out to hold text.
    pub(crate) fn may_be_text(&self, column: usize) -> bool {
        match self.roles[column] {
            Role::Feature => self.schema.is_none(),
            Role::Target => self.schema.is_none_or(|s| s.target.as_ref().is_none_or(|t| t.text)),
            Role::Weight | Role::Ignored => false,
        }
    }

    /// Name of a column, where there are names.
    pub(crate) fn name(&self, column: usize) -> Option<String> {
        self.names.as_ref().map(|names| names[column].clone())
    }

    /// Whether the table is nothing but features that are numbers, in their order.
    pub(crate) fn only_features(&self) -> bool {
        self.actions.iter().all(|a| *a == Action::Number)
    }

    fn texts(&self) -> usize {
        self.actions.iter().filter(|a| matches!(a, Action::Text(_))).count()
    }
}

struct Resolver<'a> {
    file: &'a str,
    names: Option<&'a [String]>,
    count: usize,
}

impl Resolver<'_> {
    fn find(&self, option: &'static str, column: &Column) -> Result<usize> {
        // A name that looks like a number is still a name.
        let text = column.to_string();
        if let Some(at) = self.names.and_then(|names| names.iter().position(|n| *n == text)) {
            return Ok(at);
        }
        let count = self.count as i64;
        match column {
            Column::Number(number) if (-count..count).contains(number) => Ok(number.rem_euclid(count) as usize),
            Column::Number(number) => Err(ReadError::Option {
                file: self.file.to_owned(),
                option,
                problem: format!("there is no column {number}: columns are 0 to {}, or −1 for the last", count - 1),
            }),
            Column::Name(name) => Err(ReadError::Option {
                file: self.file.to_owned(),
                option,
                problem: match self.names {
                    Some(names) => format!("there is no column {name:?}: the columns are {}", list(names)),
                    None => format!("there is no column {name:?}, as the file has no header: give its number from 0"),
                },
            }),
        }
    }

    /// Target, weights and features as in the data the schema was made from, the first two of which may be missing.
    fn by_schema(&self, schema: &Schema, options: &ReadOptions) -> Result<(Option<usize>, Option<usize>, Vec<usize>)> {
        let known = schema.columns.as_deref();
        let wanted: Option<Vec<&str>> = known.and_then(|c| c.iter().map(|c| c.name.as_deref()).collect());
        let mut weights = options.weights.as_ref().map(|c| self.find("--weights", c)).transpose()?;
        let mut target = match &options.target {
            Some(column) if !options.no_target => Some(self.find("--target", column)?),
            _ => None,
        };
        if let (Some(names), Some(wanted)) = (self.names, wanted) {
            let places: HashMap<&str, usize> = names.iter().enumerate().map(|(k, n)| (n.as_str(), k)).collect();
            let missing: Vec<String> =
                wanted.iter().filter(|n| !places.contains_key(*n)).map(|n| (*n).to_owned()).collect();
            if missing.is_empty() {
                let at = |column: &Option<ExtraColumn>| {
                    column.as_ref().and_then(|c| places.get(c.name.as_deref()?).copied())
                };
                if target.is_none() && !options.no_target {
                    target = at(&schema.target);
                }
                weights = weights.or_else(|| at(&schema.weights));
                return Ok((target, weights, wanted.iter().map(|n| places[n]).collect()));
            }
            if missing.len() < wanted.len() || options.header == Some(true) {
                return Err(malformed(
                    self.file,
                    format!("columns the model was trained on are missing: {}", list(&missing)),
                    "give the columns their names in the training data",
                ));
            }
        }
        let features = known.map_or(schema.features, <[_]>::len);
        let given = usize::from(target.is_some()) + usize::from(weights.is_some());
        let spare = self.count.checked_sub(features + given).ok_or_else(|| self.wrong_count(features))?;
        let place = |column: &Option<ExtraColumn>| column.as_ref().map(|c| c.position);
        match spare {
            0 => {}
            1 if target.is_none() && !options.no_target => {
                // Without its weights, a target behind them moves up by one.
                let shift = match (place(&schema.target), place(&schema.weights), weights) {
                    (Some(t), Some(w), None) => usize::from(w < t),
                    _ => 0,
                };
                target = Some(place(&schema.target).map_or(self.count - 1, |t| (t - shift).min(self.count - 1)));
            }
            1 if weights.is_none() && schema.weights.is_some() => weights = place(&schema.weights),
            2 if given == 0 && schema.weights.is_some() && !options.no_target => {
                (target, weights) = (place(&schema.target).or(Some(self.count - 1)), place(&schema.weights));
            }
            _ => return Err(self.wrong_count(features)),
        }
        let order: Vec<usize> = (0..self.count).filter(|k| Some(*k) != target && Some(*k) != weights).collect();
        if order.len() != features {
            return Err(self.wrong_count(features));
        }
        Ok((target, weights, order))
    }

    fn wrong_count(&self, features: usize) -> ReadError {
        malformed(
            self.file,
            format!("there are {} columns, but the model was trained on {features} (and a target)", self.count),
            "give the columns of the training data, in their order",
        )
    }
}

/// The first few of `names`.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut text = names.iter().take(SHOWN).map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}

/// A text that occurs in a column.
struct Entry {
    text: String,
    count: u64,
    line: u64,
}

/// The texts of a column, numbered as they first occur.
#[derive(Default)]
pub(crate) struct Dictionary {
    codes: HashMap<Vec<u8>, u32>,
    entries: Vec<Entry>,
}

impl Dictionary {
    /// The code of `cell`, which stands on `line`; `None` if it is not UTF-8.
    fn code(&mut self, cell: &[u8], line: u64, count: u64) -> Option<u32> {
        if let Some(&code) = self.codes.get(cell) {
            self.entries[code as usize].count += count;
            return Some(code);
        }
        let text = std::str::from_utf8(cell).ok()?.to_owned();
        let code = u32::try_from(self.entries.len()).ok()?;
        self.codes.insert(cell.to_vec(), code);
        self.entries.push(Entry { text, count, line });
        Some(code)
    }

    /// The codes here of the entries of `other`, which `before` lines precede.
    fn merge(&mut self, other: &Dictionary, before: u64) -> Vec<u32> {
        let entry = |e: &Entry| self.code(e.text.as_bytes(), e.line + before, e.count).unwrap_or_default();
        other.entries.iter().map(entry).collect()
    }
}

/// Rows of a table, taken apart by the actions of a [`Plan`].
pub(crate) struct Rows<T> {
    pub(crate) count: usize,
    /// Feature numbers, row-major.
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
    /// It is wrong in any case.
    Wrong { problem: String, remedy: &'static str },
    /// It is text where numbers were expected.
    Text,
}

impl<T: Number> Rows<T> {
    pub(crate) fn new(plan: &Plan) -> Self {
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

    /// Makes room for `count` numbers.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.numbers.reserve(count);
    }

    /// A feature number, known to be finite.
    #[inline(always)]
    pub(crate) fn push_number(&mut self, value: T) {
        self.numbers.push(value);
    }

    /// The cell of the next column with this action. `line` counts from 1.
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

    /// The number of the next column with this action.
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

    /// Puts `part`, which `before` lines precede, behind these rows.
    pub(crate) fn append(&mut self, part: Rows<T>, before: u64) {
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

impl<T: Number> Rows<T> {
    /// The rows of a table of nothing but features.
    pub(crate) fn of_features(count: usize, numbers: Vec<T>, plan: &Plan) -> Self {
        Self { count, numbers, ..Self::new(plan) }
    }

    /// The next row of a table of numbers.
    pub(crate) fn push_row(&mut self, plan: &Plan, row: impl Iterator<Item = f64>) {
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

/// Makes the data set of all rows of a table.
pub(crate) fn finish<T: Number>(plan: &Plan, rows: Rows<T>, format: Format, lines: bool) -> Result<Loaded>
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
    // Features in their order, each with the codes of its texts mapped to its categories.
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
                        let problem = format!("the training data had no such text here, only {}", list(&categories));
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
    let find = |role: Role| plan.roles.iter().position(|r| *r == role);
    let mut targets = Targets::None;
    let mut target = None;
    if let Some(position) = find(Role::Target) {
        let text = plan.actions[position] == Action::TargetText;
        targets = if text {
            let entries = &rows.target_dictionary.entries;
            Targets::Text(rows.target_codes.iter().map(|c| entries[*c as usize].text.clone()).collect())
        } else {
            Targets::Real(rows.target_numbers)
        };
        target = Some(ExtraColumn { name: plan.name(position), position, text });
    }
    let weights = find(Role::Weight);
    let schema = match plan.schema {
        Some(schema) => schema.clone(),
        None => Schema {
            features: d,
            sparse: !dense,
            columns: (texts || plan.names.is_some()).then_some(columns),
            target,
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

/// Features from numbers and category codes.
fn expand<T: Number>(
    plan: &Plan,
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
    // Where in a row of `numbers` or `codes` each feature column finds its cell.
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

/// Refuses a text column that is rather a column of numbers with something wrong in it.
fn check_text(dictionary: &Dictionary, n: usize, format: Format) -> Result<(), (&Entry, String, &'static str)> {
    if format != Format::Csv {
        return Ok(());
    }
    let is_number = |e: &&Entry| number::whole::<f64>(e.text.as_bytes()).is_some();
    let numbers: u64 = dictionary.entries.iter().filter(is_number).map(|e| e.count).sum();
    let odd = || dictionary.entries.iter().filter(|e| !is_number(e));
    let Some(first) = odd().min_by_key(|e| e.line) else { return Ok(()) };
    if numbers > 0 && odd().all(|e| is_missing(e.text.as_bytes())) {
        return Err((first, "a value is missing".to_owned(), FILL));
    }
    let comma = |e: &Entry| {
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
            "the column holds numbers nearly everywhere, but not here".to_owned(),
            "correct the cell, or, if its numbers are names of categories, give them a letter",
        ));
    }
    Ok(())
}
