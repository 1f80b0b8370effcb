//! Class weights.

use serde::{Deserialize, Serialize};

use crate::data::Label;
use crate::error::{Error, Result};

/// Factors applied to the costs of each class.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassWeight {
    /// 1 for every class.
    #[default]
    Equal,
    /// n / (classes · samples of the class): every class has the same total weight.
    Balanced,
    /// As given; classes that are not listed have 1.
    Given(Vec<(Label, f64)>),
}

impl ClassWeight {
    /// The factor of each class; `codes` holds the class of each sample. Fails for a factor that is negative or not
    /// finite, or a class that does not occur.
    pub fn factors(&self, classes: &[Label], codes: &[u32]) -> Result<Vec<f64>> {
        match self {
            ClassWeight::Equal => Ok(vec![1.0; classes.len()]),
            ClassWeight::Balanced => {
                let mut count = vec![0usize; classes.len()];
                codes.iter().for_each(|&c| count[c as usize] += 1);
                let factor = |n: usize| if n == 0 { 1.0 } else { codes.len() as f64 / (classes.len() * n) as f64 };
                Ok(count.into_iter().map(factor).collect())
            }
            ClassWeight::Given(pairs) => {
                let mut factors = vec![1.0; classes.len()];
                for (label, factor) in pairs {
                    if !(*factor >= 0.0 && factor.is_finite()) {
                        let what = if *factor < 0.0 { "negative" } else { "not finite" };
                        let why = format!("the weight of class {label} is {what}: weights are factors of C, ≥ 0");
                        return Err(Error::option("class-weight", format!("{label}={factor}"), why));
                    }
                    let Some(at) = classes.iter().position(|c| c == label) else {
                        let known: Vec<String> = classes.iter().map(Label::to_string).collect();
                        let allowed = format!("one of the classes {}", known.join(", "));
                        return Err(Error::option("class-weight", label, allowed));
                    };
                    factors[at] = *factor;
                }
                Ok(factors)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_follow_the_class_weights() {
        let classes = [Label::Number(1.0), Label::Number(2.0)];
        let codes = [0, 0, 0, 1];
        assert_eq!(ClassWeight::Balanced.factors(&classes, &codes).unwrap(), [4.0 / 6.0, 2.0]);
        let given = ClassWeight::Given(vec![(Label::Number(2.0), 5.0)]);
        assert_eq!(given.factors(&classes, &codes).unwrap(), [1.0, 5.0]);
        let unknown = ClassWeight::Given(vec![(Label::Number(3.0), 5.0)]);
        assert!(unknown.factors(&classes, &codes).unwrap_err().to_string().contains("1, 2"));
        let negative = ClassWeight::Given(vec![(Label::Number(1.0), -1.0)]);
        assert!(negative.factors(&classes, &codes).is_err());
    }
}
