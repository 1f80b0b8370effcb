//! The kernel.

use clap::{Args, ValueEnum};
use margrave::Svm;
use margrave::engine::data::Points;
use margrave::engine::kernel::{Gamma, Kernel};

use super::value;
use crate::failure::Failure;

/// Names of kernels on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelName {
    /// x·x′
    Linear,
    /// (γ x·x′ + coef0)^degree
    Poly,
    /// exp(−γ‖x − x′‖²)
    Rbf,
    /// tanh(γ x·x′ + coef0); not positive semi-definite in general
    Sigmoid,
    /// exp(−γ‖x − x′‖₁)
    Laplacian,
    /// Matérn, once differentiable
    Matern32,
    /// Matérn, twice differentiable
    Matern52,
    /// exp(−γ Σ(x − x′)²/(x + x′)), features ≥ 0
    Chi2,
    /// The data is the Gram matrix
    Precomputed,
}

/// The kernel and its parameters.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kernel")]
pub(crate) struct KernelOptions {
    /// linear, poly, rbf, sigmoid, laplacian, matern32, matern52, chi2, or precomputed: the data is the Gram matrix
    #[arg(long, short, value_enum, default_value_t = KernelName::Rbf, value_name = "NAME", hide_possible_values = true)]
    pub(crate) kernel: KernelName,
    /// γ: a number, or scale = 1/(d·variance of X), auto = 1/d, median = 1/median squared distance
    #[arg(long, short, value_parser = gamma, default_value = "scale", allow_negative_numbers = true, value_name = "G")]
    gamma: Gamma,
    /// Degree of the polynomial kernel
    #[arg(long, default_value_t = 3, allow_negative_numbers = true, value_name = "N")]
    degree: u32,
    /// Constant of the polynomial and the sigmoid kernel
    #[arg(long, default_value = "0", value_parser = value::number, allow_hyphen_values = true, value_name = "X")]
    coef0: f64,
}

fn gamma(text: &str) -> Result<Gamma, String> {
    match text.parse() {
        Ok(gamma) => Ok(gamma),
        Err(error) => value::positive(text).map(Gamma::Value).map_err(|_| match error {
            margrave::Error::Option { allowed, .. } => format!("expected {allowed}"),
            other => other.to_string(),
        }),
    }
}

/// Whether each parser of this file accepts a text.
pub(crate) fn accepts(text: &str) -> [bool; 2] {
    [gamma(text).is_ok(), KernelName::from_str(text, true).is_ok()]
}

impl KernelOptions {
    pub(crate) fn is_precomputed(&self) -> bool {
        self.kernel == KernelName::Precomputed
    }

    /// Whether the kernel has a γ.
    /// Whether γ follows from the variance of all values.
    pub(crate) fn is_scaled_by_variance(&self) -> bool {
        self.gamma == Gamma::Scale
    }

    pub(crate) fn has_gamma(&self) -> bool {
        self.plain().gamma().is_some()
    }

    /// The kernel of this name with the other parameters as given and a placeholder γ = 1.
    pub(crate) fn named(&self, name: &str) -> Result<Kernel, String> {
        let known = KernelName::from_str(name.trim(), true);
        known.map(|kernel| self.with(kernel)).map_err(|_| format!("unknown kernel {name:?}"))
    }

    /// The kernel with a placeholder γ = 1.
    fn plain(&self) -> Kernel {
        self.with(self.kernel)
    }

    fn with(&self, name: KernelName) -> Kernel {
        let (gamma, coef0, degree) = (1.0, self.coef0, self.degree);
        match name {
            KernelName::Linear => Kernel::Linear,
            KernelName::Poly => Kernel::Poly { gamma, coef0, degree },
            KernelName::Rbf => Kernel::Rbf { gamma },
            KernelName::Sigmoid => Kernel::Sigmoid { gamma, coef0 },
            KernelName::Laplacian => Kernel::Laplacian { gamma },
            KernelName::Matern32 => Kernel::Matern32 { gamma },
            KernelName::Matern52 => Kernel::Matern52 { gamma },
            KernelName::Chi2 => Kernel::Chi2 { gamma },
            KernelName::Precomputed => Kernel::Precomputed,
        }
    }

    /// The kernel, its γ resolved for these points.
    pub(crate) fn resolve(&self, points: &Points, seed: u64) -> Result<Kernel, Failure> {
        let mut kernel = self.plain();
        if kernel.gamma().is_some() {
            kernel = kernel.with_gamma(self.gamma.resolve(points, seed)?);
        }
        kernel.check()?;
        Ok(kernel)
    }

    /// Sets the kernel of a builder; γ is resolved once the data is known.
    pub(crate) fn choose(&self, svm: Svm) -> Svm {
        svm.kernel(self.plain()).gamma(self.gamma)
    }
}
