//! Machines trained with the engine's functions directly: the papers need internals that the facade hides.

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::data::Points;
use margrave::engine::gram::{Gram, Pick, Precision};
use margrave::engine::kernel::Kernel;
use margrave::engine::observe::{Observer, Silent};
use margrave::engine::problem::{Constraint, KernelProblem};
use margrave::engine::solver::ridge::{RidgeOptions, Source};
use margrave::engine::solver::{Solution, Stop, decomposition, irwls, ridge};
use margrave::loss::Loss;
use margrave::{Control, Result};

use super::Failure;

/// A training set with labels ±1.
pub(crate) struct Sample {
    pub(crate) points: Points,
    pub(crate) y: Vec<f64>,
}

impl Sample {
    pub(crate) fn new(d: usize, x: Vec<f64>, y: Vec<f64>) -> Result<Self> {
        Ok(Self { points: Points::dense_f64(y.len(), d, x)?, y })
    }
}

/// A trained machine.
pub(crate) struct Trained {
    pub(crate) beta: Vec<f64>,
    pub(crate) bias: f64,
    /// f(xᵢ) + b of the training samples.
    pub(crate) scores: Vec<f64>,
}

impl Trained {
    pub(crate) fn new(solution: Solution, gram: &dyn Gram, control: &Control) -> Result<Self, Failure> {
        let bias = solution.bias.first().copied().unwrap_or(0.0);
        let mut scores = match solution.scores {
            Some(scores) => scores,
            None => {
                let mut out = vec![0.0; solution.beta.len()];
                gram.apply(Precision::Double, Pick::All, &solution.beta, 1, &mut out, control)?;
                out
            }
        };
        scores.iter_mut().for_each(|z| *z += bias);
        Ok(Self { beta: solution.beta, bias, scores })
    }

    /// f(x) + b of other points.
    pub(crate) fn scores_of(
        &self,
        kernel: Kernel,
        train: &Points,
        other: &Points,
        control: &Control,
    ) -> Result<Vec<f64>, Failure> {
        let gram = CpuGram::new(kernel, other, train)?;
        let mut out = vec![0.0; other.len()];
        gram.apply(Precision::Double, Pick::All, &self.beta, 1, &mut out, control)?;
        out.iter_mut().for_each(|z| *z += self.bias);
        Ok(out)
    }
}

/// Fraction of samples on the wrong side; a score of 0 counts as +1.
pub(crate) fn error_rate(scores: &[f64], y: &[f64]) -> f64 {
    let wrong = scores.iter().zip(y).filter(|(z, y)| (**z >= 0.0) != (**y > 0.0)).count();
    wrong as f64 / y.len() as f64
}

/// A convex machine by the exact solver.
pub(crate) fn exact(
    gram: &dyn Gram,
    y: &[f64],
    c: f64,
    loss: &dyn Loss,
    tol: f64,
    start: Option<Vec<f64>>,
    control: &Control,
) -> Result<Trained, Failure> {
    let costs = vec![c; y.len()];
    let problem = KernelProblem::new(gram, y, &costs, loss, Constraint::free_bias())?;
    let options = decomposition::Options { stop: Stop { tol: Some(tol), gap: None }, start, ..Default::default() };
    let solution = decomposition::solve(&problem, &options, control, &mut Silent)?;
    Trained::new(solution, gram, control)
}

/// The least-squares machine with a free bias and the linear kernel.
pub(crate) fn least_squares(points: &Points, y: &[f64], c: f64, control: &Control) -> Result<Trained, Failure> {
    let gram = CpuGram::square(Kernel::Linear, points)?;
    squares(Source::Linear(points, &gram), y, c, control)
}

/// The same for any kernel.
pub(crate) fn least_squares_of(gram: &dyn Gram, y: &[f64], c: f64, control: &Control) -> Result<Trained, Failure> {
    squares(Source::Gram(gram), y, c, control)
}

fn squares(source: Source<'_>, y: &[f64], c: f64, control: &Control) -> Result<Trained, Failure> {
    let costs = vec![c; y.len()];
    let fit = ridge::fit(source, y, 1, &costs, Some(0.0), &RidgeOptions::default(), control)?;
    let bias = fit.bias[0];
    let scores = fit.scores.iter().map(|z| z + bias).collect();
    Ok(Trained { beta: fit.beta, bias, scores })
}

/// The steps IRWLS takes for a non-convex loss.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Steps {
    /// The steps of paper 002 alone: weighted least squares, with a line search where the objective would rise.
    Paper,
    /// Those of the engine: the steps of the paper, then steps with curvatures.
    Engine,
}

/// Trains with a non-convex loss from the machine `start` (β, b). Returns the machine and its objective.
pub(crate) fn reweighted(
    gram: &dyn Gram,
    linear: Option<&Points>,
    y: &[f64],
    c: f64,
    loss: &dyn Loss,
    (steps, tol): (Steps, f64),
    start: (Vec<f64>, f64),
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<(Trained, f64), Failure> {
    let costs = vec![c; y.len()];
    let problem = KernelProblem::new(gram, y, &costs, loss, Constraint::free_bias())?;
    let options = irwls::Options {
        stop: Stop { tol: Some(tol), gap: None },
        start: Some(start.0),
        start_bias: Some(start.1),
        majorise: (steps == Steps::Paper).then_some(u64::MAX),
        // The steps of the paper converge slowly at the end; a sigmoid on real data barely changes after about a hundred.
        iterations: Some(if steps == Steps::Paper { 400 } else { 150 }),
        ..irwls::Options::default()
    };
    let end = irwls::solve(&problem, linear, &options, control, observer)?;
    Ok((Trained::new(end.solution, gram, control)?, end.objective))
}
