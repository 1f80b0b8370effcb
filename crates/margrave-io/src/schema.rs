//! How the columns of a file became features. A schema is stored in the model, so that data for prediction is encoded
//! like the training data.

use margrave_core::Error;
use serde::{Deserialize, Serialize};

use crate::options::Missing;

/// How one source column became features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// One feature, the number itself.
    Number,
    /// One feature for each of these texts (sorted), 1 if the cell is that text and 0 otherwise.
    OneHot(Vec<String>),
    /// One feature: the place of the text in this list, from 0.
    Ordinal(Vec<String>),
    /// One feature: days since 1970-01-01, with the time of day as a fraction.
    Date,
    /// Year, month, day, weekday (1 is Monday) and, if `time`, the hour with its fraction.
    DateParts {
        /// Whether the training data had times of day.
        time: bool,
    },
}

/// The names of the parts of a date, in the order of their features.
const PARTS: [&str; 5] = ["year", "month", "day", "weekday", "hour"];

impl Encoding {
    /// Number of resulting features.
    pub fn width(&self) -> usize {
        match self {
            Encoding::Number | Encoding::Ordinal(_) | Encoding::Date => 1,
            Encoding::OneHot(categories) => categories.len(),
            Encoding::DateParts { time } => PARTS.len() - usize::from(!time),
        }
    }

    /// Whether the cells are read as text.
    pub(crate) fn is_text(&self) -> bool {
        *self != Encoding::Number
    }
}

/// What stands for a missing value of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// The values of the features of the column.
    pub values: Vec<f64>,
    /// Whether one more feature, after those of the column, is 1 where the value is missing and 0 elsewhere.
    #[serde(default)]
    pub indicator: bool,
}

/// One source column that holds features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeatureColumn {
    /// Its name, if the source has names.
    pub name: Option<String>,
    /// How it was encoded.
    pub encoding: Encoding,
    /// What stands for missing values; `None`: they are refused, or their rows left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
}

impl FeatureColumn {
    /// Number of resulting features.
    pub fn width(&self) -> usize {
        self.encoding.width() + usize::from(self.has_indicator())
    }

    fn has_indicator(&self) -> bool {
        self.fill.as_ref().is_some_and(|fill| fill.indicator)
    }
}

/// A column that does not hold features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraColumn {
    /// Its name, if the source has names.
    pub name: Option<String>,
    /// Its number among all columns of the source, from 0.
    pub position: usize,
    /// Whether it holds text.
    pub text: bool,
}

/// How a file became a data set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Schema {
    /// Number of features.
    pub features: usize,
    /// Whether the features were stored sparse.
    pub sparse: bool,
    /// The feature columns of the source in order, if it has names, text columns or values for missing cells; otherwise
    /// every feature is an unnamed number.
    pub columns: Option<Vec<FeatureColumn>>,
    /// The target column. `None` for sources with separate targets (LIBSVM text, idx, NPZ) or have none.
    pub target: Option<ExtraColumn>,
    /// The target columns if there are several, in the requested order; `target` is then `None`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<ExtraColumn>,
    /// The column of sample weights.
    pub weights: Option<ExtraColumn>,
    /// Columns that were left out, in the order of the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<ExtraColumn>,
    /// What happens to missing values.
    #[serde(default, skip_serializing_if = "Missing::is_refuse")]
    pub missing: Missing,
    /// Whether texts that the training data did not contain are ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_unknown: bool,
}

impl Schema {
    /// One name per target if the source had several: the name of its column, or its number.
    pub fn target_names(&self, outputs: usize) -> Vec<String> {
        let known = |at: usize| self.targets.get(at).and_then(|column| column.name.clone());
        (0..outputs).map(|at| known(at).unwrap_or_else(|| at.to_string())).collect()
    }

    /// The schema of `features` unnamed numbers.
    pub fn plain(features: usize, sparse: bool) -> Self {
        Self { features, sparse, ..Self::default() }
    }

    /// Whether a reader of model files of version 1 would read data in another way.
    pub(crate) fn is_recent(&self) -> bool {
        let recent =
            |c: &FeatureColumn| c.fill.is_some() || !matches!(c.encoding, Encoding::Number | Encoding::OneHot(_));
        self.ignore_unknown
            || !self.dropped.is_empty()
            || self.missing != Missing::Refuse
            || self.columns.iter().flatten().any(recent)
    }

    /// One name per feature, if the source has names: the name of its column, with `=category` for one-hot features and
    /// `.part` for parts of dates.
    pub fn feature_names(&self) -> Option<Vec<String>> {
        let columns = self.columns.as_ref()?;
        let mut names = Vec::with_capacity(self.features);
        for (at, column) in columns.iter().enumerate() {
            let name = column.name.clone().unwrap_or_else(|| format!("column {at}"));
            let missing = column.has_indicator().then(|| format!("{name} is missing"));
            match &column.encoding {
                Encoding::Number | Encoding::Ordinal(_) | Encoding::Date => names.push(name),
                Encoding::OneHot(categories) => names.extend(categories.iter().map(|c| format!("{name}={c}"))),
                Encoding::DateParts { .. } => {
                    names.extend(PARTS.iter().take(column.encoding.width()).map(|part| format!("{name}.{part}")));
                }
            }
            names.extend(missing);
        }
        Some(names)
    }

    /// Fails unless the parts are consistent: for schemas from untrusted files.
    pub fn check(&self) -> Result<(), Error> {
        let features = self.columns.iter().flatten().map(|c| &c.name);
        let extras = self.target.iter().chain(&self.targets).chain(&self.weights).chain(&self.dropped).map(|c| &c.name);
        let mut names: Vec<&String> = features.chain(extras).flatten().collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            return Err(Error::data(format!("the schema has two columns named {:?}", twice[0])));
        }
        let Some(columns) = &self.columns else { return Ok(()) };
        let width = columns.iter().try_fold(0usize, |sum, c| sum.checked_add(c.width()));
        if width != Some(self.features) {
            return Err(Error::data(format!(
                "the schema declares {} features but its columns have {}",
                self.features,
                width.map_or("too many".into(), |w| w.to_string())
            )));
        }
        columns.iter().try_for_each(check_column)
    }
}

fn check_column(column: &FeatureColumn) -> Result<(), Error> {
    match &column.encoding {
        Encoding::OneHot(categories) if categories.windows(2).any(|w| w[0] >= w[1]) => {
            return Err(Error::data("the categories of a schema column are not sorted"));
        }
        Encoding::Ordinal(order) => {
            let mut sorted: Vec<&String> = order.iter().collect();
            sorted.sort_unstable();
            if sorted.windows(2).any(|w| w[0] == w[1]) {
                return Err(Error::data("the order of a schema column has a text twice"));
            }
        }
        _ => {}
    }
    match &column.fill {
        Some(fill) if fill.values.len() != column.encoding.width() || fill.values.iter().any(|v| !v.is_finite()) => {
            Err(Error::data("the values for missing cells of a schema column do not fit it"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_of_older_models_are_read_and_written_as_they_were() {
        let text = r#"{"features":3,"sparse":false,"columns":[{"name":"a","encoding":"number"},{"name":"b","encoding":{"onehot":["x","y"]}}],"target":{"name":"t","position":2,"text":true},"weights":null}"#;
        let schema: Schema = serde_json::from_str(text).unwrap();
        schema.check().unwrap();
        assert!(!schema.is_recent() && schema.missing == Missing::Refuse && !schema.ignore_unknown);
        assert_eq!(serde_json::to_string(&schema).unwrap(), text);
    }

    #[test]
    fn damaged_schemas_are_refused() {
        let column = |encoding, fill| FeatureColumn { name: None, encoding, fill };
        let schema = |features, column| Schema { features, columns: Some(vec![column]), ..Schema::default() };
        let filled = |values: Vec<f64>, indicator| Some(Fill { values, indicator });
        assert!(schema(2, column(Encoding::Number, filled(vec![1.0], true))).check().is_ok());
        assert!(schema(5, column(Encoding::DateParts { time: true }, None)).check().is_ok());
        for bad in [
            schema(1, column(Encoding::Number, filled(vec![1.0], true))),
            schema(1, column(Encoding::Number, filled(vec![1.0, 2.0], false))),
            schema(1, column(Encoding::Number, filled(vec![f64::NAN], false))),
            schema(1, column(Encoding::Ordinal(vec!["a".into(), "a".into()]), None)),
            schema(5, column(Encoding::DateParts { time: false }, None)),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
