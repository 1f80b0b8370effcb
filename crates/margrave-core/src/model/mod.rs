//! Fitted machines.
//!
//! An [`Expansion`] is the function f(x) + b alone; a [`Model`] adds what is needed to predict, to verify and to go on
//! training: the task, labels, scaling, loss, costs, certificate. For two classes a score > 0 means the *second* in sorted
//! order, `labels[1]`, whose samples have y = +1.

mod expansion;
mod margins;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::expansion::Expansion;
pub use self::margins::{Case, Margins, cases, margins};
use crate::certificate::{Certificate, certify};
use crate::control::{Control, Status};
use crate::data::{Label, Points, Scaling};
use crate::error::{Error, Result, check_len};
use crate::gram::{Gram, Precision};
use crate::loss::LossSpec;
use crate::problem::{Formulation, Machine, Setup, Task};

/// How one binary machine of a model came to be, and its proof.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its proof.
    pub certificate: Certificate,
    /// How the solver ended.
    pub status: Status,
    /// Iterations, of the solver's own kind.
    pub iterations: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Kernel entries computed.
    pub kernel_entries: u64,
    /// Support vectors: rows with a coefficient ≠ 0.
    pub support_vectors: usize,
    /// Those whose β is at its bound.
    pub bounded: usize,
    /// β = rho · coefficient; 1 except for ν-classification.
    pub rho: f64,
    /// Half the width of the tube that ν-regression found.
    pub tube: Option<f64>,
}

/// What a model predicts for every point.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// Index of the label (classification), into [`Model::labels`].
    Labels(Vec<u32>),
    /// Real numbers (regression).
    Values(Vec<f64>),
    /// Whether the point is like the training data (novelty).
    Inside(Vec<bool>),
}

/// A trained machine and all that belongs to it.
#[derive(Debug, Clone)]
pub struct Model {
    /// What it predicts.
    pub task: Task,
    /// How costs were stated.
    pub formulation: Formulation,
    /// The loss; `None` where the formulation brings its own, or it was a user's.
    pub loss: Option<LossSpec>,
    /// Whether the machine has a free bias.
    pub free_bias: bool,
    /// The labels, sorted; empty unless classifying.
    pub labels: Vec<Label>,
    /// Cost factor of each label; empty if all are 1.
    pub class_weights: Vec<f64>,
    /// Features are scaled so before they meet the kernel.
    pub scaling: Option<Scaling>,
    /// How columns of the training file became features, as JSON text that only its reader understands.
    pub schema: Option<String>,
    /// f(x) + b, over scaled features.
    pub expansion: Expansion,
    /// Cost of each centre.
    pub costs: Vec<f64>,
    /// One a binary machine.
    pub machines: Vec<Record>,
    /// The solver.
    pub solver: String,
    /// Rows of the training data.
    pub n: usize,
}

/// The parameters of a fit, apart from the data: what a model remembers of them.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// What to predict.
    pub task: Task,
    /// How costs are stated.
    pub formulation: Formulation,
    /// The loss, unless the formulation brings its own.
    pub loss: Option<LossSpec>,
    /// Whether there is a bias.
    pub free_bias: bool,
    /// The labels, sorted; empty unless classifying.
    pub labels: Vec<Label>,
    /// Cost factor of each label; empty if all are 1.
    pub class_weights: Vec<f64>,
    /// The scaling already applied to the points.
    pub scaling: Option<Scaling>,
    /// See [`Model::schema`].
    pub schema: Option<String>,
    /// The solver.
    pub solver: String,
}

impl Model {
    /// The model of one binary machine: `points` are the (scaled) training points, β and the bias of each group its solution.
    pub fn binary(
        recipe: Recipe,
        kernel: crate::kernel::Kernel,
        points: &Points,
        setup: &Setup,
        solution: &crate::solver::Solution,
        certificate: Certificate,
        seconds: f64,
        kernel_entries: u64,
    ) -> Result<Self> {
        check_len("number of training points", setup.rows(), points.len())?;
        let bias = if certificate.bias().is_empty() { &solution.bias } else { certificate.bias() };
        let machine = setup.machine(&solution.beta, bias);
        let expansion = Expansion::of_training(kernel, points, &machine.coefficients, vec![machine.bias])?;
        let costs = expansion.rows().iter().map(|&row| setup.costs()[row as usize]).collect();
        let bounded = cases(setup, &solution.beta).iter().filter(|case| **case == Case::Bound).count();
        let record = Record {
            certificate,
            status: solution.status,
            iterations: solution.iterations,
            seconds,
            kernel_entries,
            support_vectors: expansion.len(),
            bounded,
            rho: machine.rho,
            tube: machine.tube,
        };
        let Recipe { task, formulation, loss, free_bias, labels, class_weights, scaling, schema, solver } = recipe;
        Ok(Self {
            task,
            formulation,
            loss,
            free_bias,
            labels,
            class_weights,
            scaling,
            schema,
            expansion,
            costs,
            machines: vec![record],
            solver,
            n: points.len(),
        })
    }

    /// The scores of every point, `n × k` row-major: f(x) + b, for SVDD half of R² − ‖φ(x) − a‖². Features as in the training
    /// file; scaling is applied here.
    pub fn scores(&self, points: &Points, precision: Precision, control: &Control) -> Result<Vec<f64>> {
        let scaled;
        let points = match &self.scaling {
            Some(scaling) => {
                scaled = scaling.apply(&points.clone().widen(scaling.factor.len()))?;
                &scaled
            }
            None => points,
        };
        let mut scores = self.expansion.scores(points, precision, control)?;
        if matches!(self.formulation, Formulation::Svdd { .. }) {
            let diagonal = self.expansion.diagonal(points)?;
            scores.iter_mut().zip(diagonal).for_each(|(z, k)| *z -= 0.5 * k);
        }
        Ok(scores)
    }

    /// The predictions that follow from the scores of a model with one output.
    pub fn decide(&self, scores: &[f64]) -> Prediction {
        match self.task {
            Task::Classify => Prediction::Labels(scores.iter().map(|z| u32::from(*z > 0.0)).collect()),
            Task::Regress => Prediction::Values(scores.to_vec()),
            Task::Novelty => Prediction::Inside(scores.iter().map(|z| *z >= 0.0).collect()),
        }
    }

    /// Scores and decides. Fails for a model of several machines, which is combined elsewhere.
    pub fn predict(&self, points: &Points, precision: Precision, control: &Control) -> Result<Prediction> {
        if self.expansion.outputs() != 1 {
            return Err(Error::data(format!("the model has {} outputs, not one", self.expansion.outputs())));
        }
        Ok(self.decide(&self.scores(points, precision, control)?))
    }

    /// The machine of one output over all training rows.
    pub fn machine(&self, output: usize) -> Machine {
        let (rho, tube) = self.machines.get(output).map_or((1.0, None), |record| (record.rho, record.tube));
        let mut coefficients = vec![0.0; self.n];
        let k = self.expansion.outputs();
        for (at, &row) in self.expansion.rows().iter().enumerate() {
            coefficients[row as usize] = self.expansion.coefficients()[at * k + output];
        }
        Machine { coefficients, bias: self.expansion.bias()[output], rho, tube }
    }

    /// β and biases of a binary model as the solution of `setup`: to resume from it.
    pub fn solution(&self, setup: &Setup) -> Result<(Vec<f64>, Vec<f64>)> {
        check_len("number of training rows", self.n, setup.rows())?;
        Ok(setup.solution(&self.machine(0)))
    }

    /// An independent certificate of a binary model: K·β is computed anew in double precision.
    pub fn certify(&self, setup: &Setup, gram: &dyn Gram, control: &Control) -> Result<Certificate> {
        let (beta, bias) = self.solution(setup)?;
        setup.with(gram, |problem| Ok(certify(problem, &beta, Some(&bias), None, control)?))
    }
}
