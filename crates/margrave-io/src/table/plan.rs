//! The roles of the columns of a table.

use margrave_core::conflict::OptionName;
use std::collections::{HashMap, HashSet};

use crate::error::{ReadError, Result, malformed};
use crate::options::{Column, ReadOptions};
use crate::schema::{Encoding, ExtraColumn, Schema};

/// The role of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnRole {
    Feature,
    Target,
    Weight,
    Ignored,
}

/// The type of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellKind {
    Number,
    Text,
}

/// What to do with the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Numeric feature.
    Number,
    /// Text feature, with its index among the text features.
    Text(usize),
    TargetNumber,
    TargetText,
    Weight,
    Skip,
}

/// What to do with every column of a table.
pub(crate) struct TablePlan<'a> {
    pub(crate) names: Option<Vec<String>>,
    pub(crate) actions: Vec<Action>,
    pub(super) roles: Vec<ColumnRole>,
    /// Feature columns of the table, in the order of the features.
    pub(super) order: Vec<usize>,
    /// Target columns of the table, in the requested order.
    pub(super) targets: Vec<usize>,
    pub(super) schema: Option<&'a Schema>,
    pub(super) file: &'a str,
}

/// Whether a cell of a numeric column means a missing value: `NA`, `?` and similar.
pub(crate) fn is_missing(cell: &[u8]) -> bool {
    const MARKS: [&str; 8] = ["?", "na", "n/a", "nan", "null", "none", "-", "."];
    MARKS.iter().any(|m| m.as_bytes().eq_ignore_ascii_case(cell))
}

impl<'a> TablePlan<'a> {
    /// Assigns a role to each of the `kinds.len()` columns. With a schema, the types of its columns are taken from the
    /// schema.
    pub(crate) fn new(
        file: &'a str,
        names: Option<Vec<String>>,
        mut kinds: Vec<CellKind>,
        options: &ReadOptions<'a>,
    ) -> Result<Self> {
        let names = names.map(distinct);
        let count = kinds.len();
        let mut roles = vec![ColumnRole::Ignored; count];
        let resolver = Resolver { file, names: names.as_deref(), count };
        let (targets, weights, order) = match options.schema {
            Some(schema) => resolver.by_schema(schema, options)?,
            None => {
                let weights = options.weights.as_ref().map(|c| resolver.find(OptionName::Weights, c)).transpose()?;
                let targets = match &options.target {
                    _ if options.no_target => Vec::new(),
                    Some(columns) => resolver.find_all(OptionName::Target, columns)?,
                    // The last column that is not the weight column.
                    None => (0..count).rev().find(|k| Some(*k) != weights).into_iter().collect(),
                };
                let order = (0..count).filter(|k| !targets.contains(k) && Some(*k) != weights).collect();
                (targets, weights, order)
            }
        };
        if let Some(both) = order.iter().find(|k| targets.contains(k) || weights == Some(**k)) {
            let option = if targets.contains(both) { OptionName::Target } else { OptionName::Weights };
            return Err(ReadError::Option {
                file: file.to_owned(),
                option,
                problem: format!("column {both} is a feature of the model: choose another"),
            });
        }
        if let Some(both) = weights.filter(|k| targets.contains(k)) {
            return Err(ReadError::Option {
                file: file.to_owned(),
                option: OptionName::Weights,
                problem: format!("column {both} is a target too: choose another"),
            });
        }
        if order.is_empty() {
            return Err(malformed(
                file,
                format!("there are {count} columns, and none is left for features"),
                "check the separator and the target column",
            ));
        }
        order.iter().for_each(|k| roles[*k] = ColumnRole::Feature);
        targets.iter().for_each(|k| roles[*k] = ColumnRole::Target);
        weights.into_iter().for_each(|k| roles[k] = ColumnRole::Weight);
        if let Some(schema) = options.schema {
            for (at, &column) in order.iter().enumerate() {
                kinds[column] = match schema.columns.as_ref().map(|c| &c[at].encoding) {
                    Some(Encoding::OneHot(_)) => CellKind::Text,
                    _ => CellKind::Number,
                };
            }
            if let ([column], Some(known)) = (targets.as_slice(), &schema.target)
                && known.text
            {
                kinds[*column] = CellKind::Text;
            }
        }
        if let Some(column) = targets.iter().find(|k| targets.len() > 1 && kinds[**k] == CellKind::Text) {
            let named = names.as_ref().map_or_else(|| column.to_string(), |names| format!("{:?}", names[*column]));
            return Err(ReadError::Option {
                file: file.to_owned(),
                option: OptionName::Target,
                problem: format!("column {named} holds text, and several targets must be numbers: leave it out"),
            });
        }
        let mut plan = Self { names, actions: Vec::new(), roles, order, targets, schema: options.schema, file };
        plan.set_kinds(&kinds);
        Ok(plan)
    }

    /// Sets the cell types.
    pub(crate) fn set_kinds(&mut self, kinds: &[CellKind]) {
        let mut texts = 0;
        let action = |(role, kind): (&ColumnRole, &CellKind)| match (role, kind) {
            (ColumnRole::Feature, CellKind::Number) => Action::Number,
            (ColumnRole::Feature, CellKind::Text) => {
                texts += 1;
                Action::Text(texts - 1)
            }
            (ColumnRole::Target, CellKind::Number) => Action::TargetNumber,
            (ColumnRole::Target, CellKind::Text) => Action::TargetText,
            (ColumnRole::Weight, _) => Action::Weight,
            (ColumnRole::Ignored, _) => Action::Skip,
        };
        self.actions = self.roles.iter().zip(kinds).map(action).collect();
    }

    /// The cell types.
    pub(crate) fn kinds(&self) -> Vec<CellKind> {
        let kind = |action: &Action| match action {
            Action::Text(_) | Action::TargetText => CellKind::Text,
            _ => CellKind::Number,
        };
        self.actions.iter().map(kind).collect()
    }

    /// Whether a numeric column may turn out to contain text.
    pub(crate) fn may_be_text(&self, column: usize) -> bool {
        match self.roles[column] {
            ColumnRole::Feature => self.schema.is_none(),
            ColumnRole::Target if self.targets.len() > 1 => false,
            ColumnRole::Target => self.schema.is_none_or(|s| s.target.as_ref().is_none_or(|t| t.text)),
            ColumnRole::Weight | ColumnRole::Ignored => false,
        }
    }

    /// Name of a column, if there are names.
    pub(crate) fn name(&self, column: usize) -> Option<String> {
        self.names.as_ref().map(|names| names[column].clone())
    }

    pub(super) fn texts(&self) -> usize {
        self.actions.iter().filter(|a| matches!(a, Action::Text(_))).count()
    }
}

/// The names, with a number appended to repeated ones: a model finds its columns by name, so names must be unique.
fn distinct(mut names: Vec<String>) -> Vec<String> {
    let mut taken: HashSet<String> = names.iter().cloned().collect();
    // The number that was tried last for each name.
    let mut seen: HashMap<String, u64> = HashMap::new();
    for name in &mut names {
        let Some(last) = seen.get_mut(name.as_str()) else {
            seen.insert(name.clone(), 0);
            continue;
        };
        let other = loop {
            *last += 1;
            let other = format!("{name}.{last}");
            if taken.insert(other.clone()) {
                break other;
            }
        };
        *name = other;
    }
    names
}

struct Resolver<'a> {
    file: &'a str,
    names: Option<&'a [String]>,
    count: usize,
}

impl Resolver<'_> {
    fn find(&self, option: OptionName, column: &Column) -> Result<usize> {
        // A number may also be the name of a column.
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

    /// One column, or those of a list without duplicates.
    fn find_all(&self, option: OptionName, column: &Column) -> Result<Vec<usize>> {
        let whole = self.find(option, column);
        let list = column.list();
        if whole.is_ok() || list.len() < 2 {
            return Ok(vec![whole?]);
        }
        let found: Vec<usize> = list.iter().map(|column| self.find(option, column)).collect::<Result<_>>()?;
        match (1..found.len()).find(|&at| found[..at].contains(&found[at])) {
            Some(at) => Err(ReadError::Option {
                file: self.file.to_owned(),
                option,
                problem: format!("column {} is named twice", list[at]),
            }),
            None => Ok(found),
        }
    }

    /// Targets, weights and features as in the data the schema was created from; targets and weights may be missing.
    fn by_schema(&self, schema: &Schema, options: &ReadOptions) -> Result<(Vec<usize>, Option<usize>, Vec<usize>)> {
        let known = schema.columns.as_deref();
        let wanted: Option<Vec<&str>> = known.and_then(|c| c.iter().map(|c| c.name.as_deref()).collect());
        let mut weights = options.weights.as_ref().map(|c| self.find(OptionName::Weights, c)).transpose()?;
        let mut targets = match &options.target {
            Some(column) if !options.no_target => self.find_all(OptionName::Target, column)?,
            _ => Vec::new(),
        };
        // The column of the training data, where it is expected.
        let known_targets: Vec<&ExtraColumn> = match options.no_target || !targets.is_empty() {
            true => Vec::new(),
            false => schema.target.iter().chain(&schema.targets).collect(),
        };
        if let (Some(names), Some(wanted)) = (self.names, wanted) {
            let places: HashMap<&str, usize> = names.iter().enumerate().map(|(k, n)| (n.as_str(), k)).collect();
            let missing: Vec<String> =
                wanted.iter().filter(|n| !places.contains_key(*n)).map(|n| (*n).to_owned()).collect();
            if missing.is_empty() {
                let at = |column: &ExtraColumn| places.get(column.name.as_deref()?).copied();
                if !known_targets.is_empty() {
                    // If only some of several targets are present, treat them as missing.
                    targets = known_targets.into_iter().map(at).collect::<Option<_>>().unwrap_or_default();
                }
                weights = weights.or_else(|| schema.weights.as_ref().and_then(at));
                return Ok((targets, weights, wanted.iter().map(|n| places[n]).collect()));
            }
            return Err(malformed(
                self.file,
                format!("columns the model was trained on are missing: {}", list(&missing)),
                "give the columns their names in the training data",
            ));
        }
        let features = known.map_or(schema.features, <[_]>::len);
        let given = targets.len() + usize::from(weights.is_some());
        let spare = self.count.checked_sub(features.saturating_add(given)).ok_or_else(|| self.wrong_count(features))?;
        let last = self.count.saturating_sub(1);
        let weight_place = schema.weights.as_ref().map(|c| c.position);
        // As many targets as the training data had; one, the last column, if its targets were separate.
        let open = targets.is_empty() && !options.no_target;
        let places: Vec<usize> = match known_targets.as_slice() {
            [] => vec![last],
            known => known.iter().map(|c| c.position).collect(),
        };
        if spare == 0 {
        } else if spare == places.len() && open {
            // Without the weight column, a target after it moves up by one.
            let shift = |t: usize| match (weight_place, weights) {
                (Some(w), None) if !known_targets.is_empty() => usize::from(w < t),
                _ => 0,
            };
            targets = places.iter().map(|&t| (t - shift(t)).min(last)).collect();
        } else if spare == 1 && weights.is_none() && weight_place.is_some() {
            weights = weight_place;
        } else if spare == places.len() + 1 && open && given == 0 && weight_place.is_some() {
            (targets, weights) = (places, weight_place);
        } else {
            return Err(self.wrong_count(features));
        }
        let order: Vec<usize> = (0..self.count).filter(|k| !targets.contains(k) && Some(*k) != weights).collect();
        if order.len() != features {
            return Err(self.wrong_count(features));
        }
        Ok((targets, weights, order))
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
pub(super) fn list(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut text = names.iter().take(SHOWN).map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}
