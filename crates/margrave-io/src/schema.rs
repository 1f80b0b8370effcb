//! How the columns of a file became features. A schema is stored in the model, so that data for prediction is encoded
//! like the training data.

use serde::{Deserialize, Serialize};

/// How one source column became features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// One feature, the number itself.
    Number,
    /// One feature for each of these texts (sorted), 1 if the cell is that text and 0 otherwise.
    OneHot(Vec<String>),
}

impl Encoding {
    /// Number of resulting features.
    pub fn width(&self) -> usize {
        match self {
            Encoding::Number => 1,
            Encoding::OneHot(categories) => categories.len(),
        }
    }
}

/// One source column that holds features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureColumn {
    /// Its name, if the source has names.
    pub name: Option<String>,
    /// How it was encoded.
    pub encoding: Encoding,
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schema {
    /// Number of features.
    pub features: usize,
    /// Whether the features were stored sparse.
    pub sparse: bool,
    /// The feature columns of the source in order, if it has names or text columns; otherwise every feature is an
    /// unnamed number.
    pub columns: Option<Vec<FeatureColumn>>,
    /// The target column. `None` for sources with separate targets (LIBSVM text, idx, NPZ) or have none.
    pub target: Option<ExtraColumn>,
    /// The target columns if there are several, in the requested order; `target` is then `None`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<ExtraColumn>,
    /// The column of sample weights.
    pub weights: Option<ExtraColumn>,
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

    /// One name per feature, if the source has names: the name of its column, with `=category` for one-hot features.
    pub fn feature_names(&self) -> Option<Vec<String>> {
        let columns = self.columns.as_ref()?;
        let mut names = Vec::with_capacity(self.features);
        for (at, column) in columns.iter().enumerate() {
            let name = column.name.clone().unwrap_or_else(|| format!("column {at}"));
            match &column.encoding {
                Encoding::Number => names.push(name),
                Encoding::OneHot(categories) => names.extend(categories.iter().map(|c| format!("{name}={c}"))),
            }
        }
        Some(names)
    }

    /// Fails unless the parts are consistent: for schemas from untrusted files.
    pub fn check(&self) -> Result<(), margrave_core::Error> {
        let features = self.columns.iter().flatten().map(|c| &c.name);
        let extras = self.target.iter().chain(&self.targets).chain(&self.weights).map(|c| &c.name);
        let mut names: Vec<&String> = features.chain(extras).flatten().collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            return Err(margrave_core::Error::data(format!("the schema has two columns named {:?}", twice[0])));
        }
        if let Some(columns) = &self.columns {
            let width = columns.iter().try_fold(0usize, |sum, c| sum.checked_add(c.encoding.width()));
            if width != Some(self.features) {
                return Err(margrave_core::Error::data(format!(
                    "the schema declares {} features but its columns have {}",
                    self.features,
                    width.map_or("too many".into(), |w| w.to_string())
                )));
            }
            for column in columns {
                if let Encoding::OneHot(categories) = &column.encoding
                    && categories.windows(2).any(|w| w[0] >= w[1])
                {
                    return Err(margrave_core::Error::data("the categories of a schema column are not sorted"));
                }
            }
        }
        Ok(())
    }
}
