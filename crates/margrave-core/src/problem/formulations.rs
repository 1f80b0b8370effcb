//! The common formulations as instances of the general problem.
//!
//! Each is P(f, b) = ½‖f‖² + Σᵢ cᵢℓᵢ(yᵢ, f(xᵢ) + b_g) + Σ_g s_g·b_g with its own losses, costs and sums; w are sample
//! weights, W = Σw.
//!
//! **ν-classification.** min ½‖f‖² − νWρ + Σ wᵢ·max(0, ρ − yᵢ(f + b)) over f, b, ρ. With b₊ = b − ρ for the positive
//! and b₋ = b + ρ for the negative samples, the loss of a positive sample is max(0, −(f + b₊)) (`Above` the target 0),
//! of a negative one max(0, f + b₋) (`Below` 0), and −νWρ = (νW/2)·b₊ − (νW/2)·b₋: two groups with sums ±νW/2. Dividing
//! f and b by ρ gives the C-classifier with C = 1/ρ. The sums are feasible within the boxes only if ν ≤ 2·min(W₊,
//! W₋)/W.
//!
//! **ν-regression.** min ½‖f‖² + CνWε + C·Σ wᵢ·max(0, |yᵢ − f − b| − ε) over f, b, ε. Two variables per row: with b↑ =
//! b + ε and b↓ = b − ε the loss is max(0, y − (f + b↑)) + max(0, (f + b↓) − y) (`Above` and `Below` y; only one is
//! positive as ε ≥ 0), and CνWε = (CνW/2)·(b↑ − b↓): sums ±CνW/2.
//!
//! **One-class.** min ½‖f‖² − νWρ + Σ wᵢ·max(0, ρ − f(xᵢ)): b = −ρ, `Above` 0, sum νW. Inside where f + b ≥ 0.
//!
//! **SVDD**, the smallest ball of centre a = f and radius R around most points: min R² + C·Σ wᵢ·max(0, ‖φ(xᵢ) − f‖² −
//! R²). With b = ½(R² − ‖f‖²), half of it is ½‖f‖² + b + C·Σ wᵢ·max(0, ½k(xᵢ, xᵢ) − (f(xᵢ) + b)): `Above` the target
//! ½k(xᵢ, xᵢ), sum 1. Inside where f(x) + b − ½k(x, x) ≥ 0.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Bias, Constraint, KernelProblem, LinearProblem, Losses};
use crate::error::{Error, Result, check_len};
use crate::gram::{Gram, Matrix};
use crate::loss::{Above, Below, Loss};

/// What a model predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// One of several labels.
    Classify,
    /// A real number.
    Regress,
    /// Whether a point is like the training data.
    Novelty,
}

impl Task {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Task::Classify => "classify",
            Task::Regress => "regress",
            Task::Novelty => "novelty",
        }
    }
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How the trade-off between regularisation and loss is parametrised.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Formulation {
    /// ½‖f‖² + C·Σ weightᵢ·ℓ, any loss.
    Cost {
        /// C > 0.
        c: f64,
    },
    /// ν-SVC or ν-SVR, by the task.
    Nu {
        /// 0 < ν ≤ 1.
        nu: f64,
        /// C > 0, of ν-SVR.
        c: f64,
    },
    /// One-class SVM.
    OneClass {
        /// 0 < ν ≤ 1.
        nu: f64,
    },
    /// The smallest ball (support vector data description).
    Svdd {
        /// 0 < ν ≤ 1.
        nu: f64,
    },
}

/// One of the derivations above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Derivation {
    Classify,
    Regress,
    NuClassify,
    NuRegress,
    OneClass,
    Svdd,
}

/// A problem without its Gram matrix, with the mapping from its solution to a model.
#[derive(Clone)]
pub struct Setup {
    kind: Derivation,
    rows: usize,
    row_of: Option<Vec<u32>>,
    targets: Vec<f64>,
    costs: Vec<f64>,
    losses: Vec<Arc<dyn Loss>>,
    constraint: Constraint,
}

/// The model of a solution: f(x) = Σ coefficientᵢ·k(xᵢ, x) over the rows, z = f + bias.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// One coefficient per row of the data.
    pub coefficients: Vec<f64>,
    /// The bias; 0 without one.
    pub bias: f64,
    /// β = rho · coefficient: the factor by which f and b were divided. 1 except for ν-classification.
    pub rho: f64,
    /// Half the width of the tube found by ν-regression; for ν-classification half the margin if f could not be divided
    /// by it.
    pub tube: Option<f64>,
}

fn weights_or_ones(n: usize, weights: Option<&[f64]>) -> Result<Vec<f64>> {
    let weights = weights.map_or_else(|| vec![1.0; n], <[f64]>::to_vec);
    check_len("number of weights", n, weights.len())?;
    match weights.iter().position(|w| !(*w >= 0.0 && w.is_finite())) {
        Some(row) => Err(Error::data(format!("the weight of row {row} is {}: weights must be ≥ 0", weights[row]))),
        None if weights.iter().sum::<f64>() > 0.0 => Ok(weights),
        None => Err(Error::data("all sample weights are zero: nothing is left to train on")),
    }
}

fn check_cost(c: f64) -> Result<()> {
    if c > 0.0 && c.is_finite() { Ok(()) } else { Err(Error::option("C", c, "a finite number > 0")) }
}

fn check_nu(nu: f64) -> Result<()> {
    if nu > 0.0 && nu <= 1.0 { Ok(()) } else { Err(Error::option("nu", nu, "a number > 0 and ≤ 1")) }
}

fn check_labels(labels: &[f64]) -> Result<()> {
    match labels.iter().position(|y| y.abs() != 1.0) {
        Some(row) => Err(Error::data(format!("the label of row {row} is {}, not −1 or +1", labels[row]))),
        None => Ok(()),
    }
}

/// The largest feasible ν of a ν-classifier with these total weights of the two classes.
fn largest_nu(positive: f64, negative: f64) -> f64 {
    2.0 * positive.min(negative) / (positive + negative)
}

impl Setup {
    fn plain(
        kind: Derivation,
        targets: &[f64],
        weights: Option<&[f64]>,
        c: f64,
        loss: Arc<dyn Loss>,
        bias: bool,
    ) -> Result<Self> {
        check_cost(c)?;
        let costs: Vec<f64> = weights_or_ones(targets.len(), weights)?.into_iter().map(|w| c * w).collect();
        if let Some(row) = costs.iter().position(|c| !c.is_finite()) {
            return Err(Error::data(format!("the cost C·weight of row {row} overflows: lower C or the weights")));
        }
        Ok(Self {
            kind,
            rows: targets.len(),
            row_of: None,
            targets: targets.to_vec(),
            costs,
            losses: vec![loss],
            constraint: if bias { Constraint::free_bias() } else { Constraint::None },
        })
    }

    /// Two classes, labels ±1, with any margin loss or the square.
    pub fn classify(labels: &[f64], weights: Option<&[f64]>, c: f64, loss: Arc<dyn Loss>, bias: bool) -> Result<Self> {
        check_labels(labels)?;
        Self::plain(Derivation::Classify, labels, weights, c, loss, bias)
    }

    /// Real targets with any residual loss.
    pub fn regress(targets: &[f64], weights: Option<&[f64]>, c: f64, loss: Arc<dyn Loss>, bias: bool) -> Result<Self> {
        Self::plain(Derivation::Regress, targets, weights, c, loss, bias)
    }

    /// ν-classification, labels ±1. Fails above the largest feasible ν, which the error states.
    pub fn nu_classify(labels: &[f64], weights: Option<&[f64]>, nu: f64) -> Result<Self> {
        check_labels(labels)?;
        check_nu(nu)?;
        let costs = weights_or_ones(labels.len(), weights)?;
        let side = |sign: f64| -> f64 { labels.iter().zip(&costs).filter(|(y, _)| **y == sign).map(|(_, w)| w).sum() };
        let (positive, negative) = (side(1.0), side(-1.0));
        let largest = largest_nu(positive, negative);
        if !(largest > 0.0) {
            return Err(Error::data(
                "all rows are of one class, and ν-classification needs two; so does every part of the data that is held out \
                 for probabilities or scores: give more rows of the smaller class",
            ));
        }
        // Tolerate a rounding error in a ν intended to be the largest.
        if nu > largest * (1.0 + 1e-12) {
            return Err(Error::option("nu", nu, format!("with these classes at most {largest}")));
        }
        let half = (0.5 * nu * (positive + negative)).min(positive).min(negative);
        Ok(Self {
            kind: Derivation::NuClassify,
            rows: labels.len(),
            row_of: None,
            targets: vec![0.0; labels.len()],
            costs,
            losses: vec![Arc::new(Above), Arc::new(Below)],
            constraint: Constraint::Groups {
                of: labels.iter().map(|y| u8::from(*y < 0.0)).collect(),
                sums: vec![half, -half],
            },
        })
    }

    /// ν-regression. Variables 0..n pull the score up, n..2n down.
    pub fn nu_regress(targets: &[f64], weights: Option<&[f64]>, c: f64, nu: f64) -> Result<Self> {
        check_nu(nu)?;
        let n = targets.len();
        let one = Self::plain(Derivation::NuRegress, targets, weights, c, Arc::new(Above), true)?;
        let half = 0.5 * nu * one.costs.iter().sum::<f64>();
        Ok(Self {
            row_of: Some((0..n as u32).chain(0..n as u32).collect()),
            targets: [targets, targets].concat(),
            costs: [one.costs.as_slice(), &one.costs].concat(),
            losses: vec![Arc::new(Above), Arc::new(Below)],
            constraint: Constraint::Groups {
                of: (0..2 * n).map(|i| u8::from(i >= n)).collect(),
                sums: vec![half, -half],
            },
            ..one
        })
    }

    /// One-class SVM over `n` rows.
    pub fn one_class(n: usize, weights: Option<&[f64]>, nu: f64) -> Result<Self> {
        check_nu(nu)?;
        let costs = weights_or_ones(n, weights)?;
        let sum = nu * costs.iter().sum::<f64>();
        Ok(Self {
            kind: Derivation::OneClass,
            rows: n,
            row_of: None,
            targets: vec![0.0; n],
            costs,
            losses: vec![Arc::new(Above)],
            constraint: Constraint::Sum(sum),
        })
    }

    /// SVDD with cost `c` per sample; `diagonal` is k(xᵢ, xᵢ). Fails if the costs cannot add up to 1; the error states
    /// the smallest C.
    pub fn svdd(diagonal: &[f64], weights: Option<&[f64]>, c: f64) -> Result<Self> {
        check_cost(c)?;
        let weights = weights_or_ones(diagonal.len(), weights)?;
        let least = 1.0 / weights.iter().sum::<f64>();
        if c < least * (1.0 - 1e-12) {
            return Err(Error::option("C", c, format!("with this data at least {least}")));
        }
        Ok(Self {
            kind: Derivation::Svdd,
            rows: diagonal.len(),
            row_of: None,
            targets: diagonal.iter().map(|k| 0.5 * k).collect(),
            costs: weights.into_iter().map(|w| c.max(least) * w).collect(),
            losses: vec![Arc::new(Above)],
            constraint: Constraint::Sum(1.0),
        })
    }

    /// SVDD with C = 1/(νW): at most a fraction ν of the points lies outside the ball.
    pub fn svdd_nu(diagonal: &[f64], weights: Option<&[f64]>, nu: f64) -> Result<Self> {
        check_nu(nu)?;
        let total: f64 = weights_or_ones(diagonal.len(), weights)?.iter().sum();
        Self::svdd(diagonal, weights, 1.0 / (nu * total))
    }

    /// The problem of a task: `targets` are labels ±1, real numbers, or (novelty) unused; `diagonal` gives k(xᵢ, xᵢ) if
    /// it is needed. The loss and the bias are used by [`Formulation::Cost`] only. Fails if the formulation does not
    /// support the task.
    pub fn new(
        task: Task,
        formulation: Formulation,
        targets: &[f64],
        weights: Option<&[f64]>,
        loss: Arc<dyn Loss>,
        bias: bool,
        diagonal: impl FnOnce() -> Vec<f64>,
    ) -> Result<Self> {
        match (task, formulation) {
            (Task::Classify, Formulation::Cost { c }) => Self::classify(targets, weights, c, loss, bias),
            (Task::Regress, Formulation::Cost { c }) => Self::regress(targets, weights, c, loss, bias),
            (Task::Classify, Formulation::Nu { nu, .. }) => Self::nu_classify(targets, weights, nu),
            (Task::Regress, Formulation::Nu { nu, c }) => Self::nu_regress(targets, weights, c, nu),
            (Task::Novelty, Formulation::OneClass { nu }) => Self::one_class(targets.len(), weights, nu),
            (Task::Novelty, Formulation::Svdd { nu }) => Self::svdd_nu(&diagonal(), weights, nu),
            (Task::Novelty, _) => Err(Error::option("task", task, "novelty is one-class or SVDD, with ν")),
            (_, _) => Err(Error::option("task", task, "one-class and SVDD are for novelty")),
        }
    }

    /// The task.
    pub fn task(&self) -> Task {
        match self.kind {
            Derivation::Classify | Derivation::NuClassify => Task::Classify,
            Derivation::Regress | Derivation::NuRegress => Task::Regress,
            Derivation::OneClass | Derivation::Svdd => Task::Novelty,
        }
    }

    /// Whether the solution includes the width of a tube: ν-regression.
    pub fn finds_tube(&self) -> bool {
        self.kind == Derivation::NuRegress
    }

    /// Number of rows of the data.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of variables.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Target of each variable.
    pub fn targets(&self) -> &[f64] {
        &self.targets
    }

    /// Cost of each variable.
    pub fn costs(&self) -> &[f64] {
        &self.costs
    }

    /// The row of the data that variable `i` belongs to.
    pub fn row(&self, i: usize) -> usize {
        self.row_of.as_ref().map_or(i, |rows| rows[i] as usize)
    }

    /// The box of variable `i`.
    pub fn bounds(&self, i: usize) -> (f64, f64) {
        let c = self.costs[i];
        if c == 0.0 {
            return (0.0, 0.0);
        }
        let loss = if self.losses.len() == 1 { 0 } else { self.constraint.group(i).unwrap_or(0) };
        let (lo, hi) = self.losses[loss].domain(self.targets[i]);
        (-c * hi, -c * lo)
    }

    /// The constraint.
    pub fn constraint(&self) -> &Constraint {
        &self.constraint
    }

    /// The same problem as a linear model on the rows of `matrix`. Fails for the ν formulations, one-class and SVDD.
    pub fn linear<'a>(&'a self, matrix: &'a dyn Matrix) -> Result<LinearProblem<'a>> {
        let bias = if self.constraint == Constraint::None { Bias::None } else { Bias::Free };
        self.linear_with(matrix, bias)
    }

    /// Like [`linear`](Self::linear), with the given bias, which may be penalised.
    pub fn linear_with<'a>(&'a self, matrix: &'a dyn Matrix, bias: Bias) -> Result<LinearProblem<'a>> {
        if !matches!(self.kind, Derivation::Classify | Derivation::Regress) {
            return Err(Error::Unsupported {
                solver: "linear",
                what: "ν-machines and novelty detection".into(),
                instead: "decomposition".into(),
            });
        }
        LinearProblem::new(matrix, &self.targets, &self.costs, &*self.losses[0], bias)
    }

    /// Calls `work` with the problem over this Gram matrix; fails if the shapes differ.
    pub fn with<T>(&self, gram: &dyn Gram, work: impl FnOnce(&KernelProblem<'_>) -> Result<T>) -> Result<T> {
        check_len("rows of the Gram matrix", self.rows, gram.shape().0)?;
        let losses: Vec<&dyn Loss> = self.losses.iter().map(|loss| &**loss).collect();
        let problem = KernelProblem {
            gram,
            row_of: self.row_of.as_deref(),
            targets: &self.targets,
            costs: &self.costs,
            losses: match losses.as_slice() {
                [one] => Losses::One(*one),
                several => Losses::ByGroup(several),
            },
            constraint: self.constraint.clone(),
        };
        problem.check()?;
        work(&problem)
    }

    /// The model of a solution: `beta` has one entry per variable, `bias` one per group.
    pub fn machine(&self, beta: &[f64], bias: &[f64]) -> Machine {
        let mut machine = Machine { coefficients: vec![0.0; self.rows], bias: 0.0, rho: 1.0, tube: None };
        for (i, b) in beta.iter().enumerate() {
            machine.coefficients[self.row(i)] += b;
        }
        match (self.kind, bias) {
            (Derivation::NuClassify, &[positive, negative]) => {
                machine.bias = 0.5 * (positive + negative);
                let rho = 0.5 * (negative - positive);
                let scalable = |v: f64| (v / rho).is_finite();
                if rho > 0.0 && scalable(machine.bias) && machine.coefficients.iter().all(|v| scalable(*v)) {
                    machine.rho = rho;
                    machine.bias /= rho;
                    machine.coefficients.iter_mut().for_each(|v| *v /= rho);
                } else {
                    // Not optimal, or f = 0: there is no margin to scale to 1, so half its width is stored instead.
                    machine.tube = Some(rho);
                }
            }
            (Derivation::NuRegress, &[up, down]) => {
                machine.bias = 0.5 * (up + down);
                machine.tube = Some(0.5 * (up - down));
            }
            (_, &[b, ..]) => machine.bias = b,
            (_, []) => {}
        }
        machine
    }

    /// Increases both variables of rows until the sums hold: the changes cancel in f.
    fn fill_both_sums(&self, up: &mut [f64], down: &mut [f64]) {
        let Constraint::Groups { sums, .. } = &self.constraint else { return };
        let lacking = (sums[0] - up.iter().sum::<f64>()).min(down.iter().sum::<f64>() - sums[1]);
        // A sum of many terms has rounding errors.
        if !(lacking > 1e-12 * sums[0]) {
            return;
        }
        let room: Vec<f64> =
            (0..self.rows).map(|i| (self.costs[i] - up[i]).min(self.costs[i] + down[i]).max(0.0)).collect();
        let share = (lacking / room.iter().sum::<f64>().max(f64::MIN_POSITIVE)).min(1.0);
        for (i, room) in room.into_iter().enumerate() {
            up[i] += share * room;
            down[i] -= share * room;
        }
    }

    /// Recovers β and the bias of each group from a model: to certify or resume a stored one. In ν-regression one of
    /// the two variables of a row is zero if the sums allow it. If ν is so large that the tube has zero width, both
    /// variables of rows that are not at bound are non-zero, all at the same fraction of their range.
    pub fn solution(&self, machine: &Machine) -> (Vec<f64>, Vec<f64>) {
        let rho = machine.rho;
        let coefficients = machine.coefficients.iter().map(|v| v * rho);
        match self.kind {
            Derivation::NuClassify => {
                let b = machine.bias * rho;
                let half = machine.tube.unwrap_or(rho);
                (coefficients.collect(), vec![b - half, b + half])
            }
            Derivation::NuRegress => {
                let mut up: Vec<f64> = machine.coefficients.iter().map(|v| v.max(0.0)).collect();
                let mut down: Vec<f64> = machine.coefficients.iter().map(|v| v.min(0.0)).collect();
                self.fill_both_sums(&mut up, &mut down);
                let tube = machine.tube.unwrap_or(0.0);
                (up.into_iter().chain(down).collect(), vec![machine.bias + tube, machine.bias - tube])
            }
            _ => {
                let bias = if self.constraint.groups() == 0 { vec![] } else { vec![machine.bias] };
                (coefficients.collect(), bias)
            }
        }
    }
}

#[cfg(test)]
#[path = "formulation_tests.rs"]
mod tests;
