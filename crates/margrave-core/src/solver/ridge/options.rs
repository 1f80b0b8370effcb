//! Options of the ridge solvers.

use std::str::FromStr;

use crate::error::{Error, Result};

/// The system to solve for the linear kernel. Other kernels only have the kernel side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// The cheaper side, by operation count.
    #[default]
    Auto,
    /// d × d: for n ≥ d.
    Primal,
    /// n × n: for d > n.
    Kernel,
}

impl Side {
    /// The side for n points of d features with the linear kernel. Forming an s × s matrix from vectors of length l
    /// costs s²·l, and decomposing it a multiple of s³.
    pub fn choose(self, n: usize, d: usize) -> Side {
        let cost = |side: usize, length: usize| {
            let (s, l) = (side as f64, length as f64);
            s * s * (l + s)
        };
        match self {
            Side::Auto if cost(d, n) <= cost(n, d) => Side::Primal,
            Side::Auto => Side::Kernel,
            chosen => chosen,
        }
    }

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Side::Auto => "auto",
            Side::Primal => "primal",
            Side::Kernel => "kernel",
        }
    }
}

impl FromStr for Side {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Side::Auto, Side::Primal, Side::Kernel]
            .into_iter()
            .find(|side| side.name() == text)
            .ok_or_else(|| Error::option("side", text, "auto, primal or kernel"))
    }
}

/// Options of one fit.
#[derive(Debug, Clone, PartialEq)]
pub struct RidgeOptions {
    /// Whether to compute leave-one-out residuals and degrees of freedom.
    pub loo: bool,
    /// Primal or kernel side, where both exist.
    pub side: Side,
    /// Largest violation of an equation that counts as solved, relative to the range of the targets.
    pub tol: f64,
    /// Largest relative duality gap that counts as solved.
    pub gap: f64,
    /// Bytes for matrices.
    pub memory: u64,
}

impl Default for RidgeOptions {
    fn default() -> Self {
        Self { loo: false, side: Side::Auto, tol: 1e-6, gap: 1e-6, memory: 2 << 30 }
    }
}

impl RidgeOptions {
    /// Fails if an option is outside its range.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [("tol", self.tol), ("gap", self.gap)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::option(name, value, "a finite number > 0"));
            }
        }
        Ok(())
    }
}

/// Options of a regularisation path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathOptions {
    /// The values of λ = 1/C, in any order, all > 0.
    pub lambdas: Vec<f64>,
    /// Whether there is a free bias (LS-SVM) or none (RLS).
    pub bias: bool,
    /// Primal or kernel side, where both exist.
    pub side: Side,
    /// Bytes for matrices.
    pub memory: u64,
}

impl Default for PathOptions {
    /// Ten values, 1e-6, 1e-5, … 1e3.
    fn default() -> Self {
        let lambdas = (-6..=3).map(|e| 10f64.powi(e)).collect();
        Self { lambdas, bias: true, side: Side::Auto, memory: 2 << 30 }
    }
}

impl PathOptions {
    /// Fails if there is no λ, or one is not a positive number.
    pub fn check(&self) -> Result<()> {
        if self.lambdas.is_empty() {
            return Err(Error::option("lambdas", "none", "at least one number > 0"));
        }
        match self.lambdas.iter().find(|l| !(**l > 0.0 && l.is_finite())) {
            Some(l) => Err(Error::option("lambdas", l, "finite numbers > 0")),
            None => Ok(()),
        }
    }
}
