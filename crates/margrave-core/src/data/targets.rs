//! Prediction targets: real numbers or labels.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The name of a class: a number or a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Label {
    /// A numeric label, as in LIBSVM files.
    Number(f64),
    /// A textual label.
    Text(String),
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::Number(v) => write!(f, "{v}"),
            Label::Text(s) => f.write_str(s),
        }
    }
}

impl Label {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Label::Number(a), Label::Number(b)) => a.total_cmp(b),
            (Label::Text(a), Label::Text(b)) => a.cmp(b),
            (Label::Number(_), Label::Text(_)) => std::cmp::Ordering::Less,
            (Label::Text(_), Label::Number(_)) => std::cmp::Ordering::Greater,
        }
    }
}

/// One or several targets per sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// Real numbers: regression targets or numeric labels.
    Real(Vec<f64>),
    /// Text labels, one per sample.
    Text(Vec<String>),
    /// Several real numbers per sample.
    Several {
        /// Number of targets per sample, ≥ 2.
        outputs: usize,
        /// n × outputs, row-major.
        values: Vec<f64>,
    },
    /// There is no target column (novelty detection, unlabelled prediction).
    None,
}

impl Targets {
    /// Number of samples with targets (0 without a target column).
    pub fn len(&self) -> usize {
        match self {
            Targets::Real(v) => v.len(),
            Targets::Text(v) => v.len(),
            Targets::Several { outputs, values } => values.len() / (*outputs).max(1),
            Targets::None => 0,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The real targets, one per sample; fails for text labels and for several targets.
    pub fn real(&self) -> Result<&[f64]> {
        match self {
            Targets::Real(v) => Ok(v),
            Targets::Text(v) => Err(Error::data(format!(
                "the target is text (first value {:?}) where numbers are needed: choose another column with {}",
                v.first().map_or("", String::as_str),
                crate::conflict::OptionName::Target
            ))),
            Targets::Several { outputs, .. } => Err(one_expected(*outputs)),
            Targets::None => Err(Error::data("the data has no target column")),
        }
    }

    /// Whether every target is an integer or text, which suggests classification.
    pub fn looks_like_classes(&self) -> bool {
        match self {
            Targets::Real(v) => v.iter().all(|y| y.fract() == 0.0),
            Targets::Text(_) => true,
            Targets::Several { .. } | Targets::None => false,
        }
    }

    /// The distinct labels, sorted, and for every sample the index of its label.
    pub fn classes(&self) -> Result<(Vec<Label>, Vec<u32>)> {
        if let Targets::Real(v) = self
            && let Some(found) = few_classes(v)
        {
            return Ok(found);
        }
        let labels: Vec<Label> = match self {
            Targets::Real(v) => v.iter().map(|&y| Label::Number(if y == 0.0 { 0.0 } else { y })).collect(),
            Targets::Text(v) => v.iter().cloned().map(Label::Text).collect(),
            Targets::Several { outputs, .. } => return Err(one_expected(*outputs)),
            Targets::None => return Err(Error::data("the data has no target column")),
        };
        let mut classes = labels.clone();
        classes.sort_by(Label::order);
        classes.dedup();
        let code =
            |l: &Label| classes.binary_search_by(|c| c.order(l)).expect("every label is among the classes") as u32;
        let codes = labels.iter().map(code).collect();
        Ok((classes, codes))
    }

    /// The targets of the chosen rows.
    pub fn gather(&self, rows: &[u32]) -> Self {
        match self {
            Targets::Real(v) => Targets::Real(rows.iter().map(|&i| v[i as usize]).collect()),
            Targets::Text(v) => Targets::Text(rows.iter().map(|&i| v[i as usize].clone()).collect()),
            Targets::Several { outputs, values } => {
                let row = |&i: &u32| &values[i as usize * outputs..(i as usize + 1) * outputs];
                Targets::Several { outputs: *outputs, values: rows.iter().flat_map(row).copied().collect() }
            }
            Targets::None => Targets::None,
        }
    }
}

/// The classes of numbers of which few are distinct, and the class of each.
fn few_classes(values: &[f64]) -> Option<(Vec<Label>, Vec<u32>)> {
    const FEW: usize = 32;
    let mut distinct: Vec<f64> = Vec::with_capacity(FEW);
    let mut codes = Vec::with_capacity(values.len());
    for value in values {
        let value = if *value == 0.0 { 0.0 } else { *value };
        let code = distinct.iter().position(|other| *other == value).unwrap_or(distinct.len());
        if code == distinct.len() {
            if code == FEW || value.is_nan() {
                return None;
            }
            distinct.push(value);
        }
        codes.push(code as u32);
    }
    let mut order: Vec<u32> = (0..distinct.len() as u32).collect();
    order.sort_by(|a, b| distinct[*a as usize].total_cmp(&distinct[*b as usize]));
    let mut place = vec![0u32; order.len()];
    order.iter().enumerate().for_each(|(at, &code)| place[code as usize] = at as u32);
    codes.iter_mut().for_each(|code| *code = place[*code as usize]);
    Some((order.iter().map(|&code| Label::Number(distinct[code as usize])).collect(), codes))
}

fn one_expected(outputs: usize) -> Error {
    Error::data(format!(
        "there are {outputs} targets where one is needed: several are for regression with the square loss; otherwise choose one with {}",
        crate::conflict::OptionName::Target
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_sorted_and_coded() {
        let (classes, codes) = Targets::Real(vec![3.0, -1.0, 3.0, -0.0, 0.0]).classes().unwrap();
        assert_eq!(classes, [Label::Number(-1.0), Label::Number(0.0), Label::Number(3.0)]);
        assert_eq!(codes, [2, 0, 2, 1, 1]);
        let (classes, codes) = Targets::Text(vec!["b".into(), "a".into()]).classes().unwrap();
        assert_eq!(classes, [Label::Text("a".into()), Label::Text("b".into())]);
        assert_eq!(codes, [1, 0]);
        assert!(Targets::None.classes().is_err());
    }

    #[test]
    fn several_targets_are_gathered_by_row() {
        let two = Targets::Several { outputs: 2, values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
        assert_eq!(two.len(), 3);
        assert_eq!(two.gather(&[2, 0]), Targets::Several { outputs: 2, values: vec![5.0, 6.0, 1.0, 2.0] });
        assert!(two.real().is_err() && two.classes().is_err() && !two.looks_like_classes());
    }
}
