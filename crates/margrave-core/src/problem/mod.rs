//! The optimisation problem.
//!
//! ```text
//! P(f, b) = ½‖f‖² + Σᵢ cᵢ·ℓᵢ(yᵢ, f(xᵢ) + b_g(i)) + Σ_g s_g·b_g
//! ```
//!
//! with one bias b_g for each group g of samples. Its dual is
//!
//! ```text
//! D(β) = −½βᵀKβ − Σᵢ cᵢ·ℓᵢ*(yᵢ, −βᵢ/cᵢ)     subject to Σ_{i∈g} βᵢ = s_g for every group g
//! ```
//!
//! One group with s = 0 is the usual model with a free bias; one-class and SVDD have one group and s ≠ 0; the ν
//! formulations have two groups. Without a bias there is no group and no constraint.

mod formulations;
mod linear_problem;
mod weights;

pub use formulations::{Formulation, Machine, Setup, Task};
pub use linear_problem::{Bias, LinearProblem, Penalty};
pub use weights::ClassWeight;

use crate::error::{Error, Result, check_len};
use crate::gram::Gram;
use crate::loss::{DualTerm, Loss};

/// Which sums of β are fixed: equivalently, which samples share a bias.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// No bias: no sum of β is fixed.
    None,
    /// One bias for all: Σβ = s. A free bias has s = 0, one-class and SVDD s > 0.
    Sum(f64),
    /// A bias for each group: Σ_{i∈g} β = s_g.
    Groups {
        /// The group of each variable.
        of: Vec<u8>,
        /// s_g of each group.
        sums: Vec<f64>,
    },
}

impl Constraint {
    /// The usual free bias, Σβ = 0.
    pub fn free_bias() -> Self {
        Constraint::Sum(0.0)
    }

    /// Number of groups, which is the number of biases.
    pub fn groups(&self) -> usize {
        match self {
            Constraint::None => 0,
            Constraint::Sum(_) => 1,
            Constraint::Groups { sums, .. } => sums.len(),
        }
    }

    /// The group of variable `i`; `None` without a bias.
    pub fn group(&self, i: usize) -> Option<usize> {
        match self {
            Constraint::None => None,
            Constraint::Sum(_) => Some(0),
            Constraint::Groups { of, .. } => Some(of[i] as usize),
        }
    }

    /// s_g.
    pub fn sum(&self, group: usize) -> f64 {
        match self {
            Constraint::None => 0.0,
            Constraint::Sum(s) => *s,
            Constraint::Groups { sums, .. } => sums[group],
        }
    }
}

/// Losses of the variables: one for all, or one per group.
#[derive(Clone, Copy)]
pub enum Losses<'a> {
    /// The same for every variable.
    One(&'a dyn Loss),
    /// By the group of the variable.
    ByGroup(&'a [&'a dyn Loss]),
}

/// A problem without its matrix: targets, costs, losses and constraint of the variables. The input of the certificate.
#[derive(Clone, Copy)]
pub struct Samples<'a> {
    /// The row of the matrix that variable i belongs to; `None`: variable i is row i.
    pub row_of: Option<&'a [u32]>,
    /// yᵢ of each variable.
    pub targets: &'a [f64],
    /// cᵢ of each variable.
    pub costs: &'a [f64],
    /// ℓᵢ.
    pub losses: Losses<'a>,
    /// The bias.
    pub constraint: &'a Constraint,
}

impl<'a> Samples<'a> {
    /// Fails if lengths differ, or a cost or target is invalid.
    pub fn check(&self) -> Result<()> {
        check_len("number of costs", self.len(), self.costs.len())?;
        if let Constraint::Groups { of, sums } = self.constraint {
            check_len("number of groups", self.len(), of.len())?;
            if of.iter().any(|&g| g as usize >= sums.len()) {
                return Err(Error::data("a variable belongs to a group that has no sum"));
            }
        }
        for (what, values) in [("the targets", self.targets), ("the costs", self.costs)] {
            if let Some(row) = values.iter().position(|v| !v.is_finite()) {
                return Err(Error::NotFinite { what, row, column: None, value: values[row] });
            }
        }
        match self.costs.iter().position(|c| *c < 0.0) {
            Some(i) => Err(Error::data(format!("the cost of row {i} is {}: costs must be ≥ 0", self.costs[i]))),
            None => Ok(()),
        }
    }

    /// Number of variables.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The row of the matrix of variable `i`.
    pub fn row(&self, i: usize) -> usize {
        self.row_of.map_or(i, |rows| rows[i] as usize)
    }

    /// ℓᵢ.
    pub fn loss(&self, i: usize) -> &'a dyn Loss {
        match self.losses {
            Losses::One(loss) => loss,
            Losses::ByGroup(losses) => losses[self.constraint.group(i).unwrap_or(0)],
        }
    }

    /// The dual term of variable `i`; `None` if its loss has none. A variable with cost 0 is fixed at 0.
    pub fn dual_term(&self, i: usize) -> Option<DualTerm> {
        if self.costs[i] == 0.0 {
            return Some(DualTerm { p: 0.0, eps: 0.0, d: 0.0, lo: 0.0, hi: 0.0 });
        }
        self.loss(i).dual(self.targets[i], self.costs[i])
    }
}

/// The training problem of a kernel model: K, targets, costs, losses, constraint.
#[derive(Clone)]
pub struct KernelProblem<'a> {
    /// K over the samples, square.
    pub gram: &'a dyn Gram,
    /// The row of K that variable i belongs to; `None`: variable i is row i. ν-SVR has two variables per row.
    pub row_of: Option<&'a [u32]>,
    /// yᵢ of each variable.
    pub targets: &'a [f64],
    /// cᵢ of each variable, ≥ 0; a variable with cost 0 is ignored.
    pub costs: &'a [f64],
    /// ℓᵢ.
    pub losses: Losses<'a>,
    /// The bias.
    pub constraint: Constraint,
}

impl<'a> KernelProblem<'a> {
    /// A problem with one loss and one variable per row of K; fails if lengths differ or a cost is negative.
    pub fn new(
        gram: &'a dyn Gram,
        targets: &'a [f64],
        costs: &'a [f64],
        loss: &'a dyn Loss,
        constraint: Constraint,
    ) -> Result<Self> {
        let problem = Self { gram, row_of: None, targets, costs, losses: Losses::One(loss), constraint };
        problem.check()?;
        Ok(problem)
    }

    /// Fails if lengths differ, or a cost or target is invalid.
    pub fn check(&self) -> Result<()> {
        let (n, m) = self.gram.shape();
        check_len("columns of the Gram matrix", n, m)?;
        match self.row_of {
            None => check_len("number of targets", n, self.len())?,
            Some(rows) => check_len("number of row numbers", self.len(), rows.len())?,
        }
        self.samples().check()
    }

    /// The problem without its Gram matrix.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            row_of: self.row_of,
            targets: self.targets,
            costs: self.costs,
            losses: self.losses,
            constraint: &self.constraint,
        }
    }

    /// Number of variables.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The row of K of variable `i`.
    pub fn row(&self, i: usize) -> usize {
        self.row_of.map_or(i, |rows| rows[i] as usize)
    }

    /// ℓᵢ.
    pub fn loss(&self, i: usize) -> &'a dyn Loss {
        match self.losses {
            Losses::One(loss) => loss,
            Losses::ByGroup(losses) => losses[self.constraint.group(i).unwrap_or(0)],
        }
    }

    /// The dual term of variable `i`; `None` if its loss has none. A variable with cost 0 is fixed at 0.
    pub fn dual_term(&self, i: usize) -> Option<DualTerm> {
        self.samples().dual_term(i)
    }
}
