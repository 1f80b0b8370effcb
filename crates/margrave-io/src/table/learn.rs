//! How the columns of a table become features: learnt from training data, or taken from a schema.

use std::collections::HashMap;

use margrave_core::conflict::OptionName;
use margrave_core::data::{FillRule, FilledColumn, Fills, most_frequent};

use super::dates::IsoDate;
use super::{Action, NO_TEXT, TablePlan, TableRows, TextEntry, list};
use crate::error::{Fault, Place, Result, malformed};
use crate::note::Note;
use crate::number::Number;
use crate::options::{Dates, Missing};
use crate::schema::{Encoding, FeatureColumn, Fill};

/// A text column is reported as a probable name of the row if at least this share of its texts occurs once.
const MOSTLY_DISTINCT: f64 = 0.9;

/// … in at least this many rows.
const DISTINCT_ROWS: usize = 20;

/// The values of one text: features, counted from the first of the column, and what they are. `None`: as if missing.
pub(super) type Values = Option<Vec<(usize, f64)>>;

/// One feature column and how its cells become features.
pub(super) struct Column {
    pub(super) feature: FeatureColumn,
    /// For a text column, its slot and the values of each of its texts.
    pub(super) texts: Option<(usize, Vec<Values>)>,
    /// For a numeric column, its place in a row of numbers.
    pub(super) place: usize,
}

/// The feature columns in order.
pub(super) fn columns<T: Number>(
    plan: &TablePlan,
    rows: &TableRows<T>,
    place: &dyn Fn(usize, u64) -> Place,
    notes: &mut Vec<Note>,
) -> Result<Vec<Column>> {
    let known = plan.schema.and_then(|s| s.columns.as_ref());
    let mut columns = Vec::with_capacity(plan.order.len());
    let mut places = HashMap::new();
    for (column, action) in plan.actions.iter().enumerate() {
        if *action == Action::Number {
            let next = places.len();
            places.insert(column, next);
        }
    }
    for (at, &column) in plan.order.iter().enumerate() {
        let known = known.map(|columns| &columns[at]);
        let mut built = match plan.actions[column] {
            Action::Text(slot) => {
                let entries = &rows.dictionaries[slot].entries;
                let encoding = match known {
                    Some(known) => known.encoding.clone(),
                    None => {
                        let encoding = encoding_of(plan, column, entries);
                        notes.extend(note_on(plan, column, &encoding, entries, rows.count));
                        encoding
                    }
                };
                let cells = Cells { plan, column, fill: known.and_then(|k| k.fill.as_ref()), place };
                let values = cells.values(&encoding, entries, notes)?;
                let feature = FeatureColumn { name: plan.name(column), encoding, fill: None };
                Column { feature, texts: Some((slot, values)), place: 0 }
            }
            _ => {
                let place = places.get(&column).copied().unwrap_or_default();
                let feature = FeatureColumn { name: plan.name(column), encoding: Encoding::Number, fill: None };
                Column { feature, texts: None, place }
            }
        };
        built.feature.fill = match (plan.schema, plan.missing) {
            (Some(_), _) => known.and_then(|known| known.fill.clone()),
            (None, Missing::Refuse | Missing::Row) => None,
            (None, rule) => Some(learn_fill(plan, rows, column, &built, rule, notes)?),
        };
        columns.push(built);
    }
    Ok(columns)
}

/// How the texts of a column are encoded.
fn encoding_of(plan: &TablePlan, column: usize, entries: &[TextEntry]) -> Encoding {
    if let Some(order) = &plan.ordinals[column] {
        return Encoding::Ordinal(order.clone());
    }
    let dates = if plan.dates == Dates::Text || entries.is_empty() {
        None
    } else {
        entries.iter().map(|e| IsoDate::parse(&e.text)).collect::<Option<Vec<_>>>()
    };
    match (dates, plan.dates) {
        (Some(dates), Dates::Parts) => Encoding::DateParts { time: dates.iter().any(|d| d.has_time) },
        (Some(_), _) => Encoding::Date,
        (None, _) => {
            let mut all: Vec<String> = entries.iter().map(|e| e.text.clone()).collect();
            all.sort_unstable();
            Encoding::OneHot(all)
        }
    }
}

/// What the texts of a column are if all are dates of another kind than ISO's, or numbers with a sign beside them, and how to
/// have them read as that.
fn alike(entries: &[TextEntry]) -> Option<(&'static str, &'static str)> {
    let digits = |part: &str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
    // A year has four digits: three short numbers may be a version.
    let date = |text: &str| {
        let by = |by: char| text.split(by).count() == 3 && text.split(by).all(digits);
        let year = text.split(['/', '.', '-']).any(|part| part.len() == 4);
        year && ['/', '.', '-'].into_iter().any(by) && IsoDate::parse(text).is_none()
    };
    let number = |text: &str| {
        let bare = text.trim_matches(|c: char| "%$€£ ".contains(c));
        bare.len() < text.trim().len() && bare.parse::<f64>().is_ok()
    };
    let all = |holds: &dyn Fn(&str) -> bool| entries.len() > 1 && entries.iter().all(|entry| holds(&entry.text));
    if all(&date) {
        return Some(("dates", "write them as 2024-05-17 to have them read as dates"));
    }
    all(&number).then_some(("numbers with a sign beside them", "leave the sign out to have them read as numbers"))
}

/// What to know about how a text column was read.
fn note_on(plan: &TablePlan, column: usize, encoding: &Encoding, entries: &[TextEntry], n: usize) -> Option<Note> {
    let label = plan.label(column);
    let named = plan.name(column).unwrap_or_else(|| column.to_string());
    match encoding {
        Encoding::OneHot(_) if alike(entries).is_some() => alike(entries).map(|(kind, remedy)| {
            let text = entries.first().map_or("", |entry| entry.text.as_str());
            Note(format!("{label} holds {kind} such as `{text}`, read as words: {remedy}"))
        }),
        Encoding::OneHot(categories) => {
            let once = entries.iter().filter(|e| e.count == 1).count();
            let distinct = once as f64 >= MOSTLY_DISTINCT * n as f64 && n >= DISTINCT_ROWS;
            distinct.then(|| {
                Note(format!(
                    "{label} has {} different texts in {n} rows, like a name or number of the row, and became as many features: \
                     consider {} {named}",
                    categories.len(),
                    OptionName::Drop
                ))
            })
        }
        Encoding::Date => Some(Note(format!(
            "{label} holds dates, read as days since 1970-01-01; {} or text reads them otherwise",
            OptionName::Dates.at("parts")
        ))),
        _ => None,
    }
}

/// The cells of one text column.
struct Cells<'a> {
    plan: &'a TablePlan<'a>,
    column: usize,
    fill: Option<&'a Fill>,
    place: &'a dyn Fn(usize, u64) -> Place,
}

impl Cells<'_> {
    /// The values of each text.
    fn values(&self, encoding: &Encoding, entries: &[TextEntry], notes: &mut Vec<Note>) -> Result<Vec<Values>> {
        let places: HashMap<&str, usize> = match encoding {
            Encoding::OneHot(texts) | Encoding::Ordinal(texts) => {
                texts.iter().enumerate().map(|(at, text)| (text.as_str(), at)).collect()
            }
            _ => HashMap::new(),
        };
        let mut ignored = 0;
        let mut values = Vec::with_capacity(entries.len());
        for entry in entries {
            let found = match encoding {
                Encoding::OneHot(_) => places.get(entry.text.as_str()).map(|at| vec![(*at, 1.0)]),
                Encoding::Ordinal(_) => places.get(entry.text.as_str()).map(|at| vec![(0, *at as f64)]),
                Encoding::Date => IsoDate::parse(&entry.text).map(|date| vec![(0, date.number())]),
                Encoding::DateParts { .. } => IsoDate::parse(&entry.text)
                    .map(|date| date.parts().into_iter().take(encoding.width()).enumerate().collect()),
                Encoding::Number => Some(Vec::new()),
            };
            values.push(match found {
                Some(found) => Some(found),
                None if self.ignores(encoding) => {
                    ignored += entry.count;
                    // None of the known texts: every feature of the column is 0.
                    matches!(encoding, Encoding::OneHot(_)).then(Vec::new)
                }
                None => return Err(self.unknown(encoding, entry)),
            });
        }
        if ignored > 0 {
            notes.push(Note(format!(
                "{} has {ignored} cells with texts that the training data did not contain; they are ignored",
                self.plan.label(self.column)
            )));
        }
        Ok(values)
    }

    /// Whether an unknown text may be ignored: as none of the known ones, or as a missing value.
    fn ignores(&self, encoding: &Encoding) -> bool {
        let replaced = matches!(encoding, Encoding::OneHot(_)) || self.fill.is_some();
        self.plan.ignore_unknown && self.plan.schema.is_some() && replaced
    }

    fn unknown(&self, encoding: &Encoding, entry: &TextEntry) -> crate::ReadError {
        let (problem, remedy) = match (encoding, self.plan.schema) {
            (Encoding::OneHot(texts), _) => (
                format!("the training data did not contain this text here, only {}", list(texts)),
                format!("use one of those, train with this one, or add {}", OptionName::Unknown.at("ignore")),
            ),
            (Encoding::Ordinal(texts), None) => (
                format!("the text is not in the order that was given for its column: {}", list(texts)),
                format!("add it to {}, or correct the cell", OptionName::Ordinal),
            ),
            (Encoding::Ordinal(texts), Some(_)) => (
                format!("the text is not in the order of the model for its column: {}", list(texts)),
                "use one of those, or train with this one".to_owned(),
            ),
            _ => (
                "the text is not an ISO date, and the training data had dates here".to_owned(),
                "write it as 2024-05-17 or 2024-05-17T08:30:00".to_owned(),
            ),
        };
        Fault::new((self.place)(self.column, entry.line), problem, remedy)
            .found(entry.text.as_bytes())
            .within(self.plan.file, 0)
    }
}

/// What stands for the missing values of a column.
fn learn_fill<T: Number>(
    plan: &TablePlan,
    rows: &TableRows<T>,
    column: usize,
    built: &Column,
    rule: Missing,
    notes: &mut Vec<Note>,
) -> Result<Fill> {
    let n = rows.count;
    let weight = |row: usize| rows.weights.get(row).copied().unwrap_or(1.0);
    let width = built.feature.encoding.width();
    let mut missing = 0usize;
    // Values with their weights, for each feature of the column.
    let mut seen: Vec<Vec<(f64, f64)>> = vec![Vec::new(); width];
    match &built.texts {
        None => {
            let across = rows.numbers.len() / n;
            for row in 0..n {
                match rows.numbers[row * across + built.place].to_f64() {
                    value if value.is_nan() => missing += 1,
                    value => seen[0].push((value, weight(row))),
                }
            }
        }
        Some((slot, values)) => {
            let across = rows.dictionaries.len();
            let one_hot = matches!(built.feature.encoding, Encoding::OneHot(_));
            for row in 0..n {
                match rows.codes[row * across + slot] {
                    NO_TEXT => missing += 1,
                    code => {
                        for (feature, value) in values[code as usize].iter().flatten() {
                            seen[*feature].push((*value, weight(row)));
                        }
                    }
                }
            }
            if one_hot && missing < n {
                let fill = fill_texts(&seen, rule == Missing::Indicator && missing > 0);
                note_filled(plan, (column, &built.feature.encoding), (missing, n), rule, &fill, notes);
                return Ok(fill);
            }
        }
    }
    if missing == n || seen.iter().any(Vec::is_empty) {
        return Err(malformed(
            plan.file,
            format!("every value of {} is missing", plan.label(column)),
            format!("leave the column out with {}", OptionName::Drop),
        ));
    }
    let typical = if rule == Missing::Median { FillRule::Median } else { FillRule::Mean };
    let values = seen.into_iter().filter_map(|all| typical.of(all)).collect();
    let fill = Fill { values, indicator: rule == Missing::Indicator && missing > 0 };
    note_filled(plan, (column, &built.feature.encoding), (missing, n), rule, &fill, notes);
    Ok(fill)
}

/// Says how many values of a column, of those in all rows, are missing and what stands for them.
fn note_filled(
    plan: &TablePlan,
    (column, encoding): (usize, &Encoding),
    (missing, n): (usize, usize),
    rule: Missing,
    fill: &Fill,
    notes: &mut Vec<Note>,
) {
    if missing == 0 {
        return;
    }
    let mean = if rule == Missing::Median { "median" } else { "mean" };
    let filled = match encoding {
        Encoding::OneHot(words) => {
            fill.values.iter().position(|v| *v == 1.0).map(|at| format!("its most frequent text, `{}`", words[at]))
        }
        Encoding::Number | Encoding::Ordinal(_) => Some(format!("its {mean}, {}", short(fill.values[0]))),
        Encoding::Date | Encoding::DateParts { .. } => Some(format!("its {mean}")),
    };
    let how = match (filled, fill.indicator) {
        (Some(filled), false) => format!("filled with {filled}"),
        (Some(filled), true) => format!("filled with {filled}, and marked by a feature of their own"),
        (None, _) => "marked by a feature of their own".to_owned(),
    };
    notes.push(Note(format!("{missing} of {n} values of {} are missing: {how}", plan.label(column))));
}

/// A number to six digits, as far as they are not 0.
fn short(value: f64) -> String {
    let digits = (5 - value.abs().max(1e-300).log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The most frequent text, or none of them with an indicator.
fn fill_texts(seen: &[Vec<(f64, f64)>], indicator: bool) -> Fill {
    let total: Vec<f64> = seen.iter().map(|all| all.iter().map(|(_, weight)| weight).sum()).collect();
    let values = if indicator { vec![0.0; total.len()] } else { most_frequent(&total) };
    Fill { values, indicator }
}

/// The cells that are filled, by feature, for folds that fill them again.
pub(super) fn fills<T: Number>(plan: &TablePlan, rows: &TableRows<T>, columns: &[Column]) -> Option<Fills> {
    if plan.schema.is_some() || matches!(plan.missing, Missing::Refuse | Missing::Row) {
        return None;
    }
    let mut from = 0;
    let mut found = Vec::new();
    for column in columns {
        let features = from..from + column.feature.encoding.width();
        from += column.feature.width();
        let text = matches!(column.feature.encoding, Encoding::OneHot(_));
        let indicator = column.feature.fill.as_ref().is_some_and(|fill| fill.indicator);
        // A text column with an indicator has zeros where it is missing: nothing is learnt.
        if text && indicator {
            continue;
        }
        let rule = match plan.missing {
            _ if text => FillRule::MostFrequent,
            Missing::Median => FillRule::Median,
            _ => FillRule::Mean,
        };
        let missing = |row: usize| match &column.texts {
            None => rows.numbers[row * (rows.numbers.len() / rows.count) + column.place].to_f64().is_nan(),
            Some((slot, _)) => rows.codes[row * rows.dictionaries.len() + slot] == NO_TEXT,
        };
        let rows = (0..rows.count).filter(|row| missing(*row)).map(|row| row as u32).collect();
        found.push(FilledColumn { features, rule, rows });
    }
    Fills::new(found)
}
