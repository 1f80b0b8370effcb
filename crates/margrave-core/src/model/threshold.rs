//! A decision threshold other than 0.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Origin;
use crate::error::{Error, Result};

/// By what a threshold is chosen; the second of the two labels counts as positive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThresholdRule {
    /// The largest F1.
    MaxF1,
    /// The largest precision among thresholds with at least this recall.
    Recall(f64),
    /// The least total cost of errors.
    Cost {
        /// Cost of a false positive.
        fp: f64,
        /// Cost of a false negative.
        fneg: f64,
    },
}

/// What values of a rule look like.
const ALLOWED: &str = "max-f1, recall=R with 0 < R ≤ 1, or cost=FP:A,FN:B with costs ≥ 0 that are not both 0";

impl fmt::Display for ThresholdRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThresholdRule::MaxF1 => f.write_str("max-f1"),
            ThresholdRule::Recall(share) => write!(f, "recall={share}"),
            ThresholdRule::Cost { fp, fneg } => write!(f, "cost=FP:{fp},FN:{fneg}"),
        }
    }
}

impl FromStr for ThresholdRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::option("threshold", text, ALLOWED);
        if text == "max-f1" {
            return Ok(ThresholdRule::MaxF1);
        }
        if let Some(share) = text.strip_prefix("recall=") {
            let share: f64 = share.parse().map_err(|_| wrong())?;
            return if share > 0.0 && share <= 1.0 { Ok(ThresholdRule::Recall(share)) } else { Err(wrong()) };
        }
        let costs = text.strip_prefix("cost=").ok_or_else(wrong)?;
        let (mut fp, mut fneg) = (None, None);
        for part in costs.split(',') {
            let (name, value) = part.split_once(':').ok_or_else(wrong)?;
            let value = value.parse::<f64>().ok().filter(|v| *v >= 0.0 && v.is_finite()).ok_or_else(wrong)?;
            let slot = match name.to_ascii_uppercase().as_str() {
                "FP" => &mut fp,
                "FN" => &mut fneg,
                _ => return Err(wrong()),
            };
            if slot.replace(value).is_some() {
                return Err(wrong());
            }
        }
        match (fp, fneg) {
            (Some(fp), Some(fneg)) if fp + fneg > 0.0 => Ok(ThresholdRule::Cost { fp, fneg }),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for ThresholdRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ThresholdRule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom(format!("{text:?} is not the rule of a threshold")))
    }
}

/// A score above which the second class is predicted, and how it was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// The score.
    pub score: f64,
    /// By what it was chosen.
    pub rule: ThresholdRule,
    /// The left-out scores it was chosen on.
    pub origin: Origin,
    /// Precision at the threshold, on those scores.
    pub precision: f64,
    /// Recall at the threshold, on those scores.
    pub recall: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in ["max-f1", "recall=0.9", "recall=1", "cost=FP:1,FN:10", "cost=FP:0,FN:2.5"] {
            assert_eq!(text.parse::<ThresholdRule>().unwrap().to_string(), text);
        }
        assert_eq!("cost=fn:2,fp:1".parse(), Ok(ThresholdRule::Cost { fp: 1.0, fneg: 2.0 }));
        for bad in ["", "f1", "recall", "recall=0", "recall=1.1", "recall=x", "cost=", "cost=FP:1", "cost=FP:1,FN:-1"] {
            assert!(bad.parse::<ThresholdRule>().is_err(), "{bad}");
        }
        for bad in ["cost=FP:0,FN:0", "cost=FP:1,FP:1,FN:2", "cost=FP:1,FN:inf", "cost=FP:1,TN:1", "recall=NaN"] {
            assert!(bad.parse::<ThresholdRule>().is_err(), "{bad}");
        }
    }
}
