//! The roles of the columns of a table.

use margrave_core::conflict::OptionName;
use std::collections::{HashMap, HashSet};

use crate::error::{ReadError, Result, malformed};
use crate::options::{Column, Dates, Missing, ReadOptions};
use crate::schema::{ExtraColumn, Schema};
use crate::spill::Spill;

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
    /// The given order of the texts of each column that has one.
    pub(super) ordinals: Vec<Option<Vec<String>>>,
    /// What happens to missing values.
    pub(super) missing: Missing,
    pub(super) dates: Dates,
    pub(super) ignore_unknown: bool,
    pub(super) schema: Option<&'a Schema>,
    pub(super) file: &'a str,
    /// Where features go instead of memory.
    pub(super) spill: Option<&'a Spill>,
}

/// Whether a cell of a text column means a missing value. Marks that may well be a word of their own do not.
pub(crate) fn is_missing_text(cell: &[u8]) -> bool {
    const MARKS: [&str; 6] = ["", "?", "na", "n/a", "nan", "null"];
    MARKS.iter().any(|m| m.as_bytes().eq_ignore_ascii_case(cell))
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
            None => resolver.by_options(options)?,
        };
        if let Some(both) = order.iter().find(|k| targets.contains(k) || weights == Some(**k)) {
            let option = if targets.contains(both) { OptionName::Target } else { OptionName::Weights };
            return Err(ReadError::Option {
                file: file.to_owned(),
                option,
                problem: format!("{} is a feature of the model: choose another", resolver.label(*both)),
            });
        }
        if let Some(both) = weights.filter(|k| targets.contains(k)) {
            return Err(ReadError::Option {
                file: file.to_owned(),
                option: OptionName::Weights,
                problem: format!("{} is a target too: choose another", resolver.label(both)),
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
                kinds[column] = match &schema.columns {
                    Some(columns) if columns[at].encoding.is_text() => CellKind::Text,
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
            return Err(ReadError::Option {
                file: file.to_owned(),
                option: OptionName::Target,
                problem: format!(
                    "{} holds text, and several targets must be numbers: leave it out",
                    resolver.label(*column)
                ),
            });
        }
        let ordinals = resolver.ordinals(options, &roles)?;
        let mut plan = Self {
            names,
            actions: Vec::new(),
            roles,
            order,
            targets,
            ordinals,
            missing: options.missing_rule(),
            dates: options.dates,
            ignore_unknown: options.ignore_unknown.unwrap_or(options.schema.is_some_and(|s| s.ignore_unknown)),
            schema: options.schema,
            file,
            spill: None,
        };
        plan.set_kinds(&kinds);
        Ok(plan)
    }

    /// Features are to go to `spill` instead of memory. Fails, and says so to `spill`, where that is not possible: texts
    /// are numbered and missing values are filled in only after all rows are known.
    pub(crate) fn spill_to(&mut self, spill: &'a Spill) -> Result<()> {
        if self.texts() > 0 || self.missing != Missing::Refuse || self.schema.is_some() {
            spill.refuse();
            return Err(malformed(self.file, "features that are not all numbers have to be in memory", ""));
        }
        spill.restart()?;
        self.spill = Some(spill);
        Ok(())
    }

    /// The columns that are numeric features, ascending.
    pub(crate) fn number_columns(&self) -> Vec<usize> {
        (0..self.actions.len()).filter(|&column| self.actions[column] == Action::Number).collect()
    }

    /// Sets the cell types. Columns with a given order hold texts even if these are all numbers.
    pub(crate) fn set_kinds(&mut self, kinds: &[CellKind]) {
        let mut texts = 0;
        let forced = |column: usize, kind: CellKind| match self.ordinals[column] {
            Some(_) => CellKind::Text,
            None => kind,
        };
        let kinds: Vec<CellKind> = kinds.iter().enumerate().map(|(column, kind)| forced(column, *kind)).collect();
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
        self.actions = self.roles.iter().zip(&kinds).map(action).collect();
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

    /// A column as messages name it.
    pub(super) fn label(&self, column: usize) -> String {
        column_label(column, self.names.as_ref().map(|names| names[column].as_str()))
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
    fn label(&self, column: usize) -> String {
        column_label(column, self.names.map(|names| names[column].as_str()))
    }

    fn refuse<T>(&self, option: OptionName, problem: String) -> Result<T> {
        Err(ReadError::Option { file: self.file.to_owned(), option, problem })
    }

    /// Targets, weights and features as the options describe them.
    fn by_options(&self, options: &ReadOptions) -> Result<(Vec<usize>, Option<usize>, Vec<usize>)> {
        let weights = options.weights.as_ref().map(|c| self.find(OptionName::Weights, c)).transpose()?;
        let all = |option, columns: &Option<Column>| columns.as_ref().map(|c| self.find_all(option, c)).transpose();
        let (drop, only) = (all(OptionName::Drop, &options.drop)?, all(OptionName::Only, &options.only)?);
        let listed = |list: &Option<Vec<usize>>, k: usize| list.as_ref().is_some_and(|list| list.contains(&k));
        let targets = match &options.target {
            _ if options.no_target => Vec::new(),
            Some(columns) => self.find_all(OptionName::Target, columns)?,
            // The last column that has no other role.
            None => {
                let free = |k: &usize| Some(*k) != weights && !listed(&drop, *k) && !listed(&only, *k);
                (0..self.count).rev().find(free).into_iter().collect()
            }
        };
        for (option, list) in [(OptionName::Drop, &drop), (OptionName::Only, &only)] {
            if let Some(&both) = list.iter().flatten().find(|k| targets.contains(k) || weights == Some(**k)) {
                let role = if targets.contains(&both) { "the target" } else { "the column of weights" };
                return self.refuse(option, format!("{} is {role}: leave it out of the list", self.label(both)));
            }
        }
        let free = |k: &usize| !targets.contains(k) && Some(*k) != weights;
        let wanted = |k: &usize| !listed(&drop, *k) && (only.is_none() || listed(&only, *k));
        let order = (0..self.count).filter(free).filter(wanted).collect();
        Ok((targets, weights, order))
    }

    /// The given order of the texts of each column that has one.
    fn ordinals(&self, options: &ReadOptions, roles: &[ColumnRole]) -> Result<Vec<Option<Vec<String>>>> {
        let mut ordinals = vec![None; self.count];
        if options.schema.is_some() {
            return Ok(ordinals);
        }
        for ordinal in &options.ordinals {
            let column = self.find(OptionName::Ordinal, &ordinal.column)?;
            if roles[column] != ColumnRole::Feature {
                return self.refuse(OptionName::Ordinal, format!("{} is not a feature", self.label(column)));
            }
            if ordinals[column].replace(ordinal.order.clone()).is_some() {
                return self.refuse(OptionName::Ordinal, format!("{} is named twice", self.label(column)));
            }
        }
        Ok(ordinals)
    }

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
                problem: format!(
                    "there is no column {number}: there are {count}, numbered 0 to {}, or −1 for the last",
                    count - 1
                ),
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
        if targets.is_empty()
            && weights.is_none()
            && let Some(found) = self.with_dropped(schema, options)
        {
            return Ok(found);
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

    /// The roles in a file without names that has all columns of the training data, those that were left out included;
    /// its targets may be missing.
    fn with_dropped(&self, schema: &Schema, options: &ReadOptions) -> Option<(Vec<usize>, Option<usize>, Vec<usize>)> {
        if schema.dropped.is_empty() {
            return None;
        }
        let features = schema.columns.as_ref().map_or(schema.features, Vec::len);
        let extra = |c: &ExtraColumn| c.position;
        let targets: Vec<usize> = schema.target.iter().chain(&schema.targets).map(extra).collect();
        let total = features + targets.len() + schema.dropped.len() + usize::from(schema.weights.is_some());
        // Columns after missing targets move up.
        let without = self.count + targets.len() == total;
        let place = |k: usize| if without { k - targets.iter().filter(|t| **t < k).count() } else { k };
        if !without && self.count != total {
            return None;
        }
        let weights = schema.weights.as_ref().map(|c| place(c.position));
        let dropped: Vec<usize> = schema.dropped.iter().map(|c| place(c.position)).collect();
        let present = if without { Vec::new() } else { targets };
        let order: Vec<usize> =
            (0..self.count).filter(|k| !present.contains(k) && !dropped.contains(k) && Some(*k) != weights).collect();
        let targets = if options.no_target { Vec::new() } else { present };
        (order.len() == features).then_some((targets, weights, order))
    }

    fn wrong_count(&self, features: usize) -> ReadError {
        malformed(
            self.file,
            format!("there are {} columns, but the model was trained on {features} (and a target)", self.count),
            "give the columns of the training data, in their order",
        )
    }
}

/// A column as messages name it: counted from 1 like lines, with its name, or with the number that options take.
pub(crate) fn column_label(column: usize, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("column {} ({})", column + 1, crate::error::excerpt(name.as_bytes())),
        None => format!("column {} ({column} in options, which count from 0)", column + 1),
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
