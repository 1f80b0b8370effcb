//! What is tried: values, combinations of them, and how those did.

use crate::data::Points;
use crate::kernel::Kernel;
use crate::loss::LossSpec;
use crate::{Error, Result};

use super::Tuner;

/// The values to try; an empty list stands for what the machine has already.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// C.
    pub costs: Vec<f64>,
    /// λ, in place of C.
    pub lambdas: Vec<f64>,
    /// γ of kernels that have one.
    pub gammas: Vec<f64>,
    /// ε of losses that have a tube.
    pub epsilons: Vec<f64>,
    /// ν.
    pub nus: Vec<f64>,
    /// Kernels, each with its own γ where the grid has none.
    pub kernels: Vec<Kernel>,
    /// Losses.
    pub losses: Vec<LossSpec>,
}

/// One combination of values; those not searched over are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The kernel, γ included.
    pub kernel: Kernel,
    /// The loss.
    pub loss: Option<LossSpec>,
    /// C.
    pub c: Option<f64>,
    /// λ.
    pub lambda: Option<f64>,
    /// ε.
    pub epsilon: Option<f64>,
    /// ν.
    pub nu: Option<f64>,
}

/// A combination and how it did.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The combination.
    pub params: Params,
    /// Of each fold it has seen, in order: share of right labels, or minus the mean squared error.
    pub folds: Vec<f64>,
    /// How many folds there are.
    pub of: usize,
    /// Whether it was left out by the race, having seen the folds above.
    pub dropped: bool,
    /// Seconds of training, over all folds.
    pub seconds: f64,
}

impl Cell {
    /// Mean over all folds; `None` if it was left out, or there was no time for all of them.
    pub fn score(&self) -> Option<f64> {
        if self.is_finished() { self.seen() } else { None }
    }

    /// Whether it has seen all folds.
    pub fn is_finished(&self) -> bool {
        !self.folds.is_empty() && self.folds.len() == self.of
    }

    /// Mean over the folds seen so far; `None` if there are none.
    pub fn seen(&self) -> Option<f64> {
        (!self.folds.is_empty()).then(|| self.folds.iter().sum::<f64>() / self.folds.len() as f64)
    }

    /// Deviation over the folds seen.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.seen()?;
        Some((self.folds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / self.folds.len() as f64).sqrt())
    }
}

/// Values, or one stand-in where there are none.
fn or_one<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().cloned().map(Some).collect() }
}

impl Tuner {
    /// All combinations for data whose scaled points are given: γ of a rule is resolved there.
    pub(super) fn params(&self, points: &Points) -> Result<Vec<Vec<Params>>> {
        let g = &self.grid;
        if !g.costs.is_empty() && !g.lambdas.is_empty() {
            return Err(Error::data("the grid has both C and lambda, which say the same: leave one out"));
        }
        let mut kernels = Vec::new();
        for kernel in or_one(&g.kernels) {
            let kernel = kernel.unwrap_or(self.options.kernel);
            let gammas = if kernel.gamma().is_some() { or_one(&g.gammas) } else { vec![None] };
            for gamma in gammas {
                kernels.push(match (gamma, self.options.gamma) {
                    (Some(gamma), _) => kernel.with_gamma(gamma),
                    (None, Some(rule)) if kernel.gamma().is_some() => {
                        kernel.with_gamma(rule.resolve(points, self.options.seed)?)
                    }
                    (None, _) => kernel,
                });
            }
        }
        // Along C upwards, and so along λ downwards: each machine starts from a smoother one.
        let (mut costs, mut lambdas) = (g.costs.clone(), g.lambdas.clone());
        costs.sort_by(f64::total_cmp);
        lambdas.sort_by(|a, b| b.total_cmp(a));
        let tubed = |loss: &Option<LossSpec>| loss.is_none_or(|l| l.epsilon().is_some());
        let mut all = Vec::new();
        for kernel in kernels {
            kernel.check()?;
            let mut cells = Vec::new();
            for loss in or_one(&g.losses) {
                let epsilons = if tubed(&loss) { or_one(&g.epsilons) } else { vec![None] };
                for epsilon in epsilons {
                    for nu in or_one(&g.nus) {
                        for c in or_one(&costs) {
                            for lambda in or_one(&lambdas) {
                                cells.push(Params { kernel, loss, c, lambda, epsilon, nu });
                            }
                        }
                    }
                }
            }
            all.push(cells);
        }
        Ok(all)
    }
}

/// Whether two neighbours differ in C or λ alone.
pub(super) fn same_but_cost(a: &Params, b: &Params) -> bool {
    let strip = |p: &Params| Params { c: None, lambda: None, ..p.clone() };
    strip(a) == strip(b)
}

pub(super) fn cost_of(params: &Params, n: usize) -> f64 {
    match (params.c, params.lambda) {
        (Some(c), _) => c,
        (None, Some(lambda)) => 1.0 / (2.0 * lambda * n as f64),
        (None, None) => 1.0,
    }
}

impl Params {
    /// C of the combination for n rows, from C or λ; `None` if neither was searched over.
    pub fn cost(&self, n: usize) -> Option<f64> {
        (self.c.is_some() || self.lambda.is_some()).then(|| cost_of(self, n))
    }
}
