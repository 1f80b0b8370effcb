//! The linear kernel: trained and verified on the data itself.

use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::certificate::{Certificate, certify_linear};
use margrave_core::data::Points;
use margrave_core::gram::{Matrix, Pick};
use margrave_core::kernel::Kernel;
use margrave_core::model::{Model, Scheme};
use margrave_core::observe::Observer;
use margrave_core::problem::{Formulation, Setup};
use margrave_core::solver::Solution;
use margrave_core::solver::linear::{self, Options, Start};
use margrave_core::{Control, Error, Result};

use crate::fit::check_same_rows;
use crate::svm::{SolverName, Svm};

/// A linear machine with its proof.
pub(crate) struct Trained {
    pub(crate) solution: Solution,
    pub(crate) weights: Vec<f64>,
    pub(crate) certificate: Certificate,
    /// z of every row.
    pub(crate) scores: Vec<f64>,
    pub(crate) reason: String,
}

/// Whether the linear solver takes this training of two classes, or regression.
pub(crate) fn applies(svm: &Svm, kernel: &Kernel, formulation: &Formulation) -> bool {
    *kernel == Kernel::Linear
        && matches!(formulation, Formulation::Cost { .. })
        && svm.probability.is_none()
        && svm.compact.is_none()
        && svm.anneal == 0
        && matches!(svm.solver, SolverName::Auto | SolverName::Linear)
}

pub(crate) fn train(
    svm: &Svm,
    setup: &Setup,
    points: &Points,
    streamed: Option<&dyn Matrix>,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Trained> {
    let in_memory = RowMatrix::new(points);
    let matrix = streamed.unwrap_or(&in_memory);
    let problem = setup.linear(matrix)?;
    let start = svm.start.as_ref().map(|model| start_of(model, setup, points)).transpose()?;
    let options = Options {
        stop: svm.stop,
        start,
        iterations: svm.budget.iterations,
        memory: svm.budget.memory,
        seed: svm.seed,
        ..Options::default()
    };
    let solved = linear::solve(&problem, &options, control, observer)?;
    // The proof of a run that was stopped must not be stopped for the same reason.
    let calm = Control::unlimited(control.threads.clone());
    let mut certificate = certify_linear(&problem, &solved.weights, solved.bias, &solved.beta, &calm)?;
    if let Certificate::Stationarity(s) = &mut certificate {
        s.start_objective = solved.start_objective;
    }
    let bias = certificate.bias().first().copied().unwrap_or(0.0);
    let mut scores = vec![0.0; points.len()];
    matrix.dots(Pick::All, &solved.weights, &mut scores, &calm)?;
    scores.iter_mut().for_each(|z| *z += bias);
    let place = if streamed.is_some() { "rows are read in blocks; " } else { "" };
    let reason = match svm.solver {
        SolverName::Linear => format!("asked for; {place}{}", solved.reason),
        _ => format!("the kernel is linear; {place}{}", solved.reason),
    };
    let solution = Solution {
        beta: solved.beta,
        bias: if svm.bias { vec![bias] } else { vec![] },
        scores: None,
        status: solved.status,
        iterations: solved.iterations,
        violation: certificate.violation(),
    };
    Ok(Trained { solution, weights: solved.weights, certificate, scores, reason })
}

/// Where a model left off.
fn start_of(model: &Model, setup: &Setup, points: &Points) -> Result<Start> {
    check_same_rows(model, points)?;
    if model.scheme != Scheme::One {
        return Err(Error::data("the model to resume from has several machines, and this training has one"));
    }
    let (beta, bias) = model.solution(setup)?;
    let weights = match model.expansion.weights() {
        Some(w) if *model.expansion.kernel() == Kernel::Linear && w.len() == points.dims() => w.to_vec(),
        _ => Vec::new(),
    };
    Ok(Start { weights, bias: bias.first().copied().unwrap_or(0.0), beta })
}

/// Certifies a model that is given by its weights.
pub(crate) fn verify(model: &Model, setup: &Setup, points: &Points, control: &Control) -> Result<Certificate> {
    let matrix = RowMatrix::new(points);
    let problem = setup.linear(&matrix)?;
    let (beta, bias) = model.solution(setup)?;
    let mut weights = model.expansion.weights().unwrap_or_default().to_vec();
    weights.resize(points.dims(), 0.0);
    Ok(certify_linear(&problem, &weights, bias.first().copied().unwrap_or(0.0), &beta, control)?)
}
