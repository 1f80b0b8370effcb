//! Linear models: f(x) = wᵀx, with X in place of K.
//!
//! ```text
//! P(w, b) = ½‖w‖² + ½ρ·b² + Σᵢ cᵢ·ℓ(yᵢ, wᵀxᵢ + b)
//! D(β)    = −½‖Xᵀβ‖² − (Σβ)²/(2ρ) − Σᵢ cᵢ·ℓ*(yᵢ, −βᵢ/cᵢ)
//! ```
//!
//! ρ = 0 is the free bias (D then requires Σβ = 0), ρ → ∞ means no bias, and ρ = 1/s² is a bias that is the weight of
//! an additional feature of value s, penalised like the others.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Constraint, Losses, Samples};
use crate::error::{Error, Result, check_len};
use crate::gram::Matrix;
use crate::loss::{DualTerm, Loss};

/// The penalty on the weights of a linear model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Penalty {
    /// ½‖w‖².
    #[default]
    L2,
    /// ‖w‖₁: many weights are exactly 0.
    L1,
}

impl Penalty {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Penalty::L2 => "l2",
            Penalty::L1 => "l1",
        }
    }
}

impl FromStr for Penalty {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "l2" => Ok(Penalty::L2),
            "l1" => Ok(Penalty::L1),
            _ => Err(Error::option("penalty", text, "l2 or l1")),
        }
    }
}

/// How the bias of a linear model is treated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bias {
    /// No bias.
    None,
    /// Unpenalised, as in kernel models.
    Free,
    /// The weight of a feature that is `scaling` for every sample: ½(b/scaling)² is added to the penalty.
    Penalised {
        /// Value of that feature, > 0.
        scaling: f64,
    },
}

impl Bias {
    /// ρ; `None` without a bias.
    pub fn penalty(self) -> Option<f64> {
        match self {
            Bias::None => None,
            Bias::Free => Some(0.0),
            Bias::Penalised { scaling } => Some(1.0 / (scaling * scaling)),
        }
    }

    /// Fails for a scaling that is not a finite number > 0.
    pub fn check(self) -> Result<()> {
        match (self, self.penalty()) {
            (Bias::Penalised { scaling }, Some(p))
                if !(scaling > 0.0 && scaling.is_finite() && p > 0.0 && p.is_finite()) =>
            {
                Err(Error::option("intercept-scaling", scaling, "a finite number > 0"))
            }
            _ => Ok(()),
        }
    }
}

/// The training problem of a linear model: X, targets, costs, loss, bias.
#[derive(Clone)]
pub struct LinearProblem<'a> {
    /// X, one row per sample.
    pub matrix: &'a dyn Matrix,
    /// yᵢ.
    pub targets: &'a [f64],
    /// cᵢ ≥ 0; a sample with cost 0 is ignored.
    pub costs: &'a [f64],
    /// ℓ.
    pub loss: &'a dyn Loss,
    /// The bias.
    pub bias: Bias,
    constraint: Constraint,
}

impl<'a> LinearProblem<'a> {
    /// Fails if lengths differ, or a cost, a target or the scaling of the bias is invalid.
    pub fn new(
        matrix: &'a dyn Matrix,
        targets: &'a [f64],
        costs: &'a [f64],
        loss: &'a dyn Loss,
        bias: Bias,
    ) -> Result<Self> {
        check_len("number of targets", matrix.rows(), targets.len())?;
        bias.check()?;
        let constraint = if bias == Bias::Free { Constraint::free_bias() } else { Constraint::None };
        let problem = Self { matrix, targets, costs, loss, bias, constraint };
        problem.samples().check()?;
        Ok(problem)
    }

    /// The samples without their features.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            row_of: None,
            targets: self.targets,
            costs: self.costs,
            losses: Losses::One(self.loss),
            constraint: &self.constraint,
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The dual term of sample `i`; `None` if the loss has none. A sample with cost 0 is fixed at 0.
    pub fn dual_term(&self, i: usize) -> Option<DualTerm> {
        self.samples().dual_term(i)
    }
}
