//! Losses by name: `huber:delta=1`, as used on the command line, in Python and in model files.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Absolute, Epsilon, Expectile, Hinge, Huber, HuberHinge, LogCosh, Logistic, Loss, Pinball, Polynomial, Power, Ramp,
    Sigmoid, SmoothHinge, Square, SquaredEpsilon, SquaredHinge,
};
use crate::error::{Error, Result};

/// A built-in loss with its parameters. Parsed from and displayed as `name:key=value,key=value`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum LossSpec {
    /// [`Hinge`]
    Hinge,
    /// [`SmoothHinge`]
    SmoothHinge {
        /// K > 0
        #[serde(rename = "K")]
        k: f64,
    },
    /// [`SquaredHinge`]
    SquaredHinge,
    /// [`Power`]
    Power {
        /// s ≥ 1
        s: f64,
    },
    /// [`Square`], for labels and for real targets
    Square,
    /// [`Logistic`]
    Logistic,
    /// [`HuberHinge`]
    HuberHinge {
        /// δ > 0
        delta: f64,
    },
    /// [`Ramp`]
    Ramp {
        /// > 0
        limit: f64,
    },
    /// [`Sigmoid`]
    Sigmoid {
        /// η > 0
        eta: f64,
    },
    /// [`Polynomial`]
    Polynomial {
        /// s ≥ 1
        s: f64,
        /// κ ≥ 0
        kappa: f64,
    },
    /// [`Epsilon`]
    Epsilon {
        /// ε ≥ 0
        epsilon: f64,
    },
    /// [`SquaredEpsilon`]
    SquaredEpsilon {
        /// ε ≥ 0
        epsilon: f64,
    },
    /// [`Huber`]
    Huber {
        /// δ > 0
        delta: f64,
    },
    /// [`Absolute`]
    Absolute,
    /// [`Pinball`]
    Pinball {
        /// 0 < τ < 1
        tau: f64,
    },
    /// [`Expectile`]
    Expectile {
        /// 0 < τ < 1
        tau: f64,
    },
    /// [`LogCosh`]
    Logcosh,
}

/// One entry of the list of losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossInfo {
    /// The loss with default parameters.
    pub spec: LossSpec,
    /// The formula, on one line.
    pub about: &'static str,
    /// Usable for labels ±1.
    pub classification: bool,
    /// Usable for real targets.
    pub regression: bool,
}

/// The valid range of a parameter.
#[derive(Clone, Copy)]
enum ParameterRange {
    Positive,
    NotNegative,
    Unit,
    AtLeastOne,
}

impl ParameterRange {
    fn holds(self, v: f64) -> bool {
        v.is_finite()
            && match self {
                ParameterRange::Positive => v > 0.0,
                ParameterRange::NotNegative => v >= 0.0,
                ParameterRange::Unit => v > 0.0 && v < 1.0,
                ParameterRange::AtLeastOne => v >= 1.0,
            }
    }

    fn text(self) -> &'static str {
        match self {
            ParameterRange::Positive => "a finite number > 0",
            ParameterRange::NotNegative => "a finite number ≥ 0",
            ParameterRange::Unit => "a number between 0 and 1, both excluded",
            ParameterRange::AtLeastOne => "a finite number ≥ 1",
        }
    }
}

impl LossSpec {
    /// All built-in losses with their default parameters.
    pub fn all() -> [LossInfo; 17] {
        use LossSpec as S;
        let both = |spec, about| LossInfo { spec, about, classification: true, regression: true };
        let margin = |spec, about| LossInfo { spec, about, classification: true, regression: false };
        let real = |spec, about| LossInfo { spec, about, classification: false, regression: true };
        [
            margin(S::Hinge, "max(0, u), u = 1 − y·z: the support vector machine"),
            margin(S::SmoothHinge { k: 1e6 }, "K·u²/2 for 0 ≤ u < 1/K, u − 1/(2K) beyond"),
            margin(S::SquaredHinge, "max(0, u)²"),
            margin(S::Power { s: 1.5 }, "max(0, u)ˢ, s ≥ 1"),
            both(S::Square, "½(y − z)²: least squares, LS-SVM"),
            margin(S::Logistic, "log(1 + exp(−y·z))"),
            margin(S::HuberHinge { delta: 2.0 }, "u² for 0 ≤ u ≤ δ, 2δu − δ² beyond"),
            margin(S::Ramp { limit: 2.0 }, "min(max(0, u), limit); not convex"),
            margin(S::Sigmoid { eta: 2.0 }, "(tanh(η(ξ − 1)) + 1)/2, ξ = max(0, u); not convex, counts errors"),
            margin(
                S::Polynomial { s: 2.0, kappa: 0.01 },
                "(ξ+κ)ˢ/(2(1+κ)ˢ) up to ξ = 1, then levels off to 1; not convex",
            ),
            real(S::Epsilon { epsilon: 0.1 }, "max(|r| − ε, 0), r = y − z: support vector regression"),
            real(S::SquaredEpsilon { epsilon: 0.1 }, "max(|r| − ε, 0)²"),
            real(S::Huber { delta: 1.0 }, "½r² for |r| ≤ δ, δ|r| − ½δ² beyond"),
            real(S::Absolute, "|r|: the median"),
            real(S::Pinball { tau: 0.5 }, "τ·r for r ≥ 0, (τ − 1)·r below: the τ-quantile"),
            real(S::Expectile { tau: 0.5 }, "τ·r² for r ≥ 0, (1 − τ)·r² below: the τ-expectile"),
            real(S::Logcosh, "log cosh r"),
        ]
    }

    /// The list entry of this loss.
    pub fn info(&self) -> LossInfo {
        let name = self.name();
        let found = Self::all().into_iter().find(|info| info.spec.name() == name);
        found.expect("every variant is listed")
    }

    /// The name without parameters.
    pub fn name(&self) -> &'static str {
        match self {
            LossSpec::Hinge => "hinge",
            LossSpec::SmoothHinge { .. } => "smooth-hinge",
            LossSpec::SquaredHinge => "squared-hinge",
            LossSpec::Power { .. } => "power",
            LossSpec::Square => "square",
            LossSpec::Logistic => "logistic",
            LossSpec::HuberHinge { .. } => "huber-hinge",
            LossSpec::Ramp { .. } => "ramp",
            LossSpec::Sigmoid { .. } => "sigmoid",
            LossSpec::Polynomial { .. } => "polynomial",
            LossSpec::Epsilon { .. } => "epsilon",
            LossSpec::SquaredEpsilon { .. } => "squared-epsilon",
            LossSpec::Huber { .. } => "huber",
            LossSpec::Absolute => "absolute",
            LossSpec::Pinball { .. } => "pinball",
            LossSpec::Expectile { .. } => "expectile",
            LossSpec::Logcosh => "logcosh",
        }
    }

    fn keys(&mut self) -> Vec<(&'static str, ParameterRange, &mut f64)> {
        match self {
            LossSpec::SmoothHinge { k } => vec![("K", ParameterRange::Positive, k)],
            LossSpec::Power { s } => vec![("s", ParameterRange::AtLeastOne, s)],
            LossSpec::HuberHinge { delta } | LossSpec::Huber { delta } => {
                vec![("delta", ParameterRange::Positive, delta)]
            }
            LossSpec::Ramp { limit } => vec![("limit", ParameterRange::Positive, limit)],
            LossSpec::Sigmoid { eta } => vec![("eta", ParameterRange::Positive, eta)],
            LossSpec::Polynomial { s, kappa } => {
                vec![("s", ParameterRange::AtLeastOne, s), ("kappa", ParameterRange::NotNegative, kappa)]
            }
            LossSpec::Epsilon { epsilon } | LossSpec::SquaredEpsilon { epsilon } => {
                vec![("epsilon", ParameterRange::NotNegative, epsilon)]
            }
            LossSpec::Pinball { tau } | LossSpec::Expectile { tau } => vec![("tau", ParameterRange::Unit, tau)],
            LossSpec::Hinge
            | LossSpec::SquaredHinge
            | LossSpec::Square
            | LossSpec::Logistic
            | LossSpec::Absolute
            | LossSpec::Logcosh => vec![],
        }
    }

    /// The parameters: name and value.
    pub fn parameters(&self) -> Vec<(&'static str, f64)> {
        let mut copy = *self;
        copy.keys().into_iter().map(|(key, _, value)| (key, *value)).collect()
    }

    /// ε of a loss with a tube.
    pub fn epsilon(&self) -> Option<f64> {
        match *self {
            LossSpec::Epsilon { epsilon } | LossSpec::SquaredEpsilon { epsilon } => Some(epsilon),
            _ => None,
        }
    }

    /// The same loss with tube half-width `epsilon`, if it has a tube; unchanged otherwise.
    pub fn with_epsilon(mut self, value: f64) -> Self {
        if let LossSpec::Epsilon { epsilon } | LossSpec::SquaredEpsilon { epsilon } = &mut self {
            *epsilon = value;
        }
        self
    }

    /// For a non-convex loss, a sequence of `stages` softer forms, softest first: each half as sharp as the next. Empty
    /// for convex losses.
    pub fn softer(&self, stages: usize) -> Vec<Self> {
        let halved = (1..=stages.min(30)).rev().map(|k| 0.5f64.powi(k as i32));
        match *self {
            LossSpec::Sigmoid { eta } => halved.map(|h| LossSpec::Sigmoid { eta: h * eta }).collect(),
            LossSpec::Polynomial { s, kappa } => {
                halved.map(|h| LossSpec::Polynomial { s: 1.0 + h * (s - 1.0), kappa }).collect()
            }
            LossSpec::Ramp { limit } => halved.map(|h| LossSpec::Ramp { limit: limit / h }).collect(),
            _ => Vec::new(),
        }
    }

    /// Fails if a parameter is outside its range, naming loss, key and range.
    pub fn check(&self) -> Result<()> {
        let text = self.to_string();
        let mut copy = *self;
        for (key, range, value) in copy.keys() {
            if range.holds(*value) {
                continue;
            }
            let mut allowed = format!("{key} of the {} loss must be {}", self.name(), range.text());
            if *value < 1.0 && key == "s" {
                allowed += "; with s < 1 the slope is unbounded at u = 0 and solutions may be infinite";
            }
            return Err(Error::option("loss", text, allowed));
        }
        Ok(())
    }

    /// The loss itself; fails if a parameter is outside its range.
    pub fn build(&self) -> Result<Arc<dyn Loss>> {
        self.check()?;
        Ok(match *self {
            LossSpec::Hinge => Arc::new(Hinge),
            LossSpec::SmoothHinge { k } => Arc::new(SmoothHinge { k }),
            LossSpec::SquaredHinge => Arc::new(SquaredHinge),
            LossSpec::Power { s } => Arc::new(Power { s }),
            LossSpec::Square => Arc::new(Square),
            LossSpec::Logistic => Arc::new(Logistic),
            LossSpec::HuberHinge { delta } => Arc::new(HuberHinge { delta }),
            LossSpec::Ramp { limit } => Arc::new(Ramp { limit }),
            LossSpec::Sigmoid { eta } => Arc::new(Sigmoid { eta }),
            LossSpec::Polynomial { s, kappa } => Arc::new(Polynomial { s, kappa }),
            LossSpec::Epsilon { epsilon } => Arc::new(Epsilon { epsilon }),
            LossSpec::SquaredEpsilon { epsilon } => Arc::new(SquaredEpsilon { epsilon }),
            LossSpec::Huber { delta } => Arc::new(Huber { delta }),
            LossSpec::Absolute => Arc::new(Absolute),
            LossSpec::Pinball { tau } => Arc::new(Pinball { tau }),
            LossSpec::Expectile { tau } => Arc::new(Expectile { tau }),
            LossSpec::Logcosh => Arc::new(LogCosh),
        })
    }
}

macro_rules! named {
    ($($loss:ident $({ $($field:ident),* })? => $variant:ident),* $(,)?) => { $(
        impl From<$loss> for LossSpec {
            fn from(loss: $loss) -> Self {
                let _ = &loss;
                LossSpec::$variant $({ $($field: loss.$field),* })?
            }
        }
    )* };
}

named! {
    Hinge => Hinge,
    SmoothHinge { k } => SmoothHinge,
    SquaredHinge => SquaredHinge,
    Power { s } => Power,
    Square => Square,
    Logistic => Logistic,
    HuberHinge { delta } => HuberHinge,
    Ramp { limit } => Ramp,
    Sigmoid { eta } => Sigmoid,
    Polynomial { s, kappa } => Polynomial,
    Epsilon { epsilon } => Epsilon,
    SquaredEpsilon { epsilon } => SquaredEpsilon,
    Huber { delta } => Huber,
    Absolute => Absolute,
    Pinball { tau } => Pinball,
    Expectile { tau } => Expectile,
    LogCosh => Logcosh,
}

impl fmt::Display for LossSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        for (at, (key, value)) in self.parameters().into_iter().enumerate() {
            write!(f, "{}{key}={value}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for LossSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let Some(info) = Self::all().into_iter().find(|info| info.spec.name() == name) else {
            let names: Vec<_> = Self::all().iter().map(|info| info.spec.name()).collect();
            return Err(Error::option("loss", text, format!("one of {}", names.join(", "))));
        };
        let mut spec = info.spec;
        for part in rest.iter().flat_map(|rest| rest.split(',')) {
            let mut keys = spec.keys();
            let known: Vec<_> = keys.iter().map(|(key, _, _)| *key).collect();
            let known = if known.is_empty() { "no parameters".into() } else { known.join(", ") };
            let refuse = |why: String| Err(Error::option("loss", text, why));
            let Some((key, value)) = part.split_once('=') else {
                return refuse(format!("{part:?} is not key=value; the {name} loss has {known}"));
            };
            let Some((_, _, slot)) = keys.iter_mut().find(|(known, _, _)| *known == key.trim()) else {
                return refuse(format!("the {name} loss has {known}, not {:?}", key.trim()));
            };
            match value.trim().parse::<f64>() {
                Ok(number) => **slot = number,
                Err(_) => return refuse(format!("{key} of the {name} loss must be a number, not {value:?}")),
            }
        }
        spec.check()?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_agree_with_the_built_loss() {
        for info in LossSpec::all() {
            let text = info.spec.to_string();
            assert_eq!(text.parse::<LossSpec>().unwrap(), info.spec);
            assert_eq!(info.spec.build().unwrap().name(), text);
            assert_eq!(info.spec.name().parse::<LossSpec>().unwrap(), info.spec, "defaults of {text}");
            let classification = info.spec.build().unwrap().properties().classification;
            assert!(if classification { info.classification } else { info.regression }, "{text}");
        }
        let spec: LossSpec = "polynomial:kappa=0.5, s=3".parse().unwrap();
        assert_eq!(spec, LossSpec::Polynomial { s: 3.0, kappa: 0.5 });
        assert_eq!(LossSpec::from(Huber { delta: 2.0 }), LossSpec::Huber { delta: 2.0 });
        assert_eq!("epsilon".parse::<LossSpec>().unwrap().with_epsilon(0.3), LossSpec::Epsilon { epsilon: 0.3 });
    }

    #[test]
    fn softer_losses_approach_the_loss() {
        let list = LossSpec::Sigmoid { eta: 4.0 }.softer(2);
        assert_eq!(list, [LossSpec::Sigmoid { eta: 1.0 }, LossSpec::Sigmoid { eta: 2.0 }]);
        assert_eq!(LossSpec::Ramp { limit: 2.0 }.softer(1), [LossSpec::Ramp { limit: 4.0 }]);
        for info in LossSpec::all() {
            for softer in info.spec.softer(5) {
                softer.check().unwrap();
            }
            assert_eq!(info.spec.softer(1).is_empty(), info.spec.build().unwrap().properties().convex);
        }
    }

    #[test]
    fn errors_name_loss_key_and_range() {
        let message = |text: &str| text.parse::<LossSpec>().unwrap_err().to_string();
        assert!(message("hinges").contains("squared-hinge"));
        assert!(message("power:s=0.5").contains("unbounded"));
        assert!(message("huber:delta=0").contains("delta of the huber loss must be a finite number > 0"));
        assert!(message("huber:tau=1").contains("has delta, not \"tau\""));
        assert!(message("hinge:K=1").contains("no parameters"));
        assert!(message("pinball:tau=1").contains("between 0 and 1"));
        assert!(message("pinball:tau=x").contains("must be a number"));
        assert!(message("huber:delta=nan").contains("finite"));
        assert!(message("huber:").contains("key=value"));
    }
}
