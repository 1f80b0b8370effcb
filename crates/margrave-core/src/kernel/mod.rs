//! Kernels: a closed list, so that the compiler checks that backends, model files and front ends cover all of them.
//!
//! User-defined kernels implement [`Gram`](crate::gram::Gram) instead.

mod gamma;

pub use gamma::Gamma;
use serde::{Deserialize, Serialize};

use crate::data::Points;
use crate::error::{Error, Result};

/// k(x, x′).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "name")]
pub enum Kernel {
    /// x·x′
    Linear,
    /// (γ x·x′ + coef0)^degree
    Poly {
        /// γ > 0
        gamma: f64,
        /// The constant added.
        coef0: f64,
        /// A whole number ≥ 1.
        degree: u32,
    },
    /// exp(−γ ‖x − x′‖²)
    Rbf {
        /// γ > 0
        gamma: f64,
    },
    /// tanh(γ x·x′ + coef0). Not positive semi-definite in general.
    Sigmoid {
        /// γ > 0
        gamma: f64,
        /// The constant added.
        coef0: f64,
    },
    /// exp(−γ ‖x − x′‖₁)
    Laplacian {
        /// γ > 0
        gamma: f64,
    },
    /// (1 + √3 r) exp(−√3 r) with r = √(2γ) ‖x − x′‖: the length scale is that of the RBF kernel of the same γ.
    Matern32 {
        /// γ > 0
        gamma: f64,
    },
    /// (1 + √5 r + 5r²/3) exp(−√5 r) with r = √(2γ) ‖x − x′‖.
    Matern52 {
        /// γ > 0
        gamma: f64,
    },
    /// exp(−γ Σₖ (xₖ − x′ₖ)² / (xₖ + x′ₖ)), features ≥ 0, a term with xₖ + x′ₖ = 0 counting as 0.
    Chi2 {
        /// γ > 0
        gamma: f64,
    },
    /// The data *is* the Gram matrix.
    Precomputed,
}

/// The statistic of two points that a kernel is a function of. It determines the inner loop that computes the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// x·x′
    Dot,
    /// ‖x − x′‖²
    SquaredDistance,
    /// ‖x − x′‖₁
    AbsoluteDistance,
    /// Σₖ (xₖ − x′ₖ)² / (xₖ + x′ₖ)
    ChiSquare,
    /// None: entries are looked up.
    Lookup,
}

impl Kernel {
    /// The RBF kernel exp(−γ ‖x − x′‖²).
    pub fn rbf(gamma: f64) -> Self {
        Kernel::Rbf { gamma }
    }

    /// The name used on the command line and in model files.
    pub fn name(&self) -> &'static str {
        match self {
            Kernel::Linear => "linear",
            Kernel::Poly { .. } => "poly",
            Kernel::Rbf { .. } => "rbf",
            Kernel::Sigmoid { .. } => "sigmoid",
            Kernel::Laplacian { .. } => "laplacian",
            Kernel::Matern32 { .. } => "matern32",
            Kernel::Matern52 { .. } => "matern52",
            Kernel::Chi2 { .. } => "chi2",
            Kernel::Precomputed => "precomputed",
        }
    }

    /// γ, if the kernel has one.
    pub fn gamma(&self) -> Option<f64> {
        match *self {
            Kernel::Poly { gamma, .. }
            | Kernel::Rbf { gamma }
            | Kernel::Sigmoid { gamma, .. }
            | Kernel::Laplacian { gamma }
            | Kernel::Matern32 { gamma }
            | Kernel::Matern52 { gamma }
            | Kernel::Chi2 { gamma } => Some(gamma),
            Kernel::Linear | Kernel::Precomputed => None,
        }
    }

    /// The same kernel with another γ; unchanged if it has none.
    pub fn with_gamma(mut self, value: f64) -> Self {
        match &mut self {
            Kernel::Poly { gamma, .. }
            | Kernel::Rbf { gamma }
            | Kernel::Sigmoid { gamma, .. }
            | Kernel::Laplacian { gamma }
            | Kernel::Matern32 { gamma }
            | Kernel::Matern52 { gamma }
            | Kernel::Chi2 { gamma } => *gamma = value,
            Kernel::Linear | Kernel::Precomputed => {}
        }
        self
    }

    /// The statistic that the kernel is a function of.
    pub fn statistic(&self) -> Statistic {
        match self {
            Kernel::Linear | Kernel::Poly { .. } | Kernel::Sigmoid { .. } => Statistic::Dot,
            Kernel::Rbf { .. } | Kernel::Matern32 { .. } | Kernel::Matern52 { .. } => Statistic::SquaredDistance,
            Kernel::Laplacian { .. } => Statistic::AbsoluteDistance,
            Kernel::Chi2 { .. } => Statistic::ChiSquare,
            Kernel::Precomputed => Statistic::Lookup,
        }
    }

    /// Whether K(x, x) = 1 for every x.
    pub fn unit_diagonal(&self) -> bool {
        matches!(self.statistic(), Statistic::SquaredDistance | Statistic::AbsoluteDistance | Statistic::ChiSquare)
    }

    /// The kernel as a function of its statistic `s` (x·x′, a distance, …), in double precision.
    pub fn of_statistic(&self, s: f64) -> f64 {
        match *self {
            Kernel::Linear | Kernel::Precomputed => s,
            Kernel::Poly { gamma, coef0, degree } => (gamma * s + coef0).powi(degree as i32),
            Kernel::Rbf { gamma } | Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma } => (-gamma * s).exp(),
            Kernel::Sigmoid { gamma, coef0 } => (gamma * s + coef0).tanh(),
            Kernel::Matern32 { gamma } => {
                let t = (6.0 * gamma * s).sqrt();
                (1.0 + t) * (-t).exp()
            }
            Kernel::Matern52 { gamma } => {
                let t = (10.0 * gamma * s).sqrt();
                (1.0 + t + t * t / 3.0) * (-t).exp()
            }
        }
    }

    /// Whether the kernel is positive semi-definite for all points.
    pub fn is_definite(&self) -> bool {
        match *self {
            Kernel::Poly { coef0, .. } => coef0 >= 0.0,
            Kernel::Sigmoid { .. } | Kernel::Precomputed => false,
            _ => true,
        }
    }

    /// Fails if a parameter is outside its range.
    pub fn check(&self) -> Result<()> {
        if let Some(gamma) = self.gamma()
            && !(gamma > 0.0 && gamma.is_finite())
        {
            return Err(Error::option("gamma", gamma, "a finite number > 0, or scale, auto, median"));
        }
        match *self {
            Kernel::Poly { degree, .. } if degree == 0 || degree > 1000 => {
                Err(Error::option("degree", degree, "a whole number from 1 to 1000"))
            }
            Kernel::Poly { coef0, .. } | Kernel::Sigmoid { coef0, .. } if !coef0.is_finite() => {
                Err(Error::option("coef0", coef0, "a finite number"))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the kernel is not defined on these points (χ² needs features ≥ 0).
    pub fn check_points(&self, points: &Points) -> Result<()> {
        if !matches!(self, Kernel::Chi2 { .. }) {
            return Ok(());
        }
        for i in 0..points.len() {
            let mut bad = None;
            points.visit(i, |k, v| {
                if v < 0.0 {
                    bad = Some((k, v));
                }
            });
            if let Some((k, v)) = bad {
                return Err(Error::data(format!(
                    "the chi2 kernel needs features ≥ 0 but row {i}, column {k} is {v}: use {} or another kernel",
                    crate::conflict::OptionName::Scale.at("minmax")
                )));
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name())?;
        match self {
            Kernel::Poly { gamma, coef0, degree } => write!(f, "(gamma={gamma}, coef0={coef0}, degree={degree})"),
            Kernel::Sigmoid { gamma, coef0 } => write!(f, "(gamma={gamma}, coef0={coef0})"),
            _ => self.gamma().map_or(Ok(()), |gamma| write!(f, "(gamma={gamma})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gaussian_example_of_paper_004() {
        // x − z = (4, 1), γ = ½: exp(−17/2).
        assert!((Kernel::rbf(0.5).of_statistic(17.0) - (-8.5f64).exp()).abs() < 1e-18);
    }

    #[test]
    fn parameters_out_of_range_are_rejected() {
        assert!(Kernel::rbf(0.0).check().is_err());
        assert!(Kernel::rbf(f64::NAN).check().is_err());
        assert!(Kernel::Poly { gamma: 1.0, coef0: 0.0, degree: 0 }.check().is_err());
        assert!(Kernel::Sigmoid { gamma: 1.0, coef0: f64::INFINITY }.check().is_err());
        assert!(Kernel::rbf(1e-8).check().is_ok());
    }
}
