//! The grid: values to try, their combinations, and the scores of those.

use crate::data::Points;
use crate::kernel::Kernel;
use crate::loss::LossSpec;
use crate::{Error, Result};

use super::Tuner;

/// The values to try; where a list is empty, the value set in the options is used.
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

/// A combination and its scores.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The combination.
    pub params: Params,
    /// Score on each fold completed so far, in order; larger is better.
    pub folds: Vec<f64>,
    /// Total number of folds.
    pub of: usize,
    /// Whether the race dropped it after the folds above.
    pub dropped: bool,
    /// Seconds of training, over all folds.
    pub seconds: f64,
}

impl Cell {
    /// Mean over all folds; `None` if it was dropped, or time ran out before the last fold.
    pub fn score(&self) -> Option<f64> {
        if self.is_finished() { self.seen() } else { None }
    }

    /// Whether all folds are completed.
    pub fn is_finished(&self) -> bool {
        !self.folds.is_empty() && self.folds.len() == self.of
    }

    /// Mean over the folds completed so far; `None` if there are none.
    pub fn seen(&self) -> Option<f64> {
        (!self.folds.is_empty()).then(|| self.folds.iter().sum::<f64>() / self.folds.len() as f64)
    }

    /// Standard deviation over the folds completed.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.seen()?;
        Some((self.folds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / self.folds.len() as f64).sqrt())
    }
}

/// The values, or a single `None` if the list is empty.
fn or_one<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().cloned().map(Some).collect() }
}

impl Tuner {
    /// All combinations by kernel. `points` are the scaled points, from which a rule for γ is resolved.
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
        // C ascending, hence λ descending: each machine starts from a smoother one.
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

/// Whether two combinations differ in C or λ alone.
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
