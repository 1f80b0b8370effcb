//! The machine that will be saved, and its proof.

use super::Status;
use super::verdict::{Asked, verdict};
use crate::certificate::{self, Certificate, best_bias_linear, certify, certify_l1, certify_linear};
use crate::control::{Control, Interrupt};
use crate::error::Result;
use crate::gram::Gram;
use crate::problem::{LinearProblem, Machine, Penalty, Setup};
use crate::solver::Solution;

/// A machine as it is saved, with its certificate.
#[derive(Debug, Clone)]
pub struct Proven {
    /// Coefficients by row, bias and scale.
    pub machine: Machine,
    /// Its dual point, one entry per variable.
    pub beta: Vec<f64>,
    /// The bias of each group.
    pub bias: Vec<f64>,
    /// f of every row, without bias; of a linear machine, w·x. Empty if the proof was interrupted.
    pub scores: Vec<f64>,
    /// The certificate of exactly this machine.
    pub certificate: Certificate,
    /// The status that follows from it.
    pub status: Status,
    /// Iterations of the solver.
    pub iterations: u64,
}

/// The machine of a solution and its proof: scores are computed by the certificate, unless it has computed them for exactly these
/// coefficients before; the best bias is chosen for them, and the certificate is that of the machine exactly as it will be read
/// back. If the proof is interrupted, the certificate is unknown.
pub fn prove(setup: &Setup, gram: &dyn Gram, solution: &Solution, asked: &Asked, control: &Control) -> Result<Proven> {
    setup.with(gram, |problem| {
        let beta: Vec<f64> = solution.beta.iter().map(|b| if b.is_finite() { *b } else { 0.0 }).collect();
        let attempt = || -> std::result::Result<_, Interrupt> {
            let known = solution.exact.as_ref().filter(|scores| scores.are_of(problem, &beta));
            let scores = match known {
                Some(scores) => scores.clone(),
                None => certificate::scores(problem, &beta, control)?,
            };
            let bias = certificate::best_bias(problem, &scores, Some(&solution.bias), control)?;
            let machine = setup.machine(&beta, &bias);
            let (beta, bias) = setup.solution(&machine);
            let certificate = certify(problem, &beta, Some(&bias), Some(&scores), control)?;
            Ok((machine, beta, bias, scores.values().to_vec(), certificate))
        };
        let (machine, beta, bias, scores, certificate) = attempt().unwrap_or_else(|_| {
            let machine = setup.machine(&beta, &solution.bias);
            let (beta, bias) = setup.solution(&machine);
            (machine, beta, bias, Vec::new(), Certificate::Unknown)
        });
        let status = verdict(asked, &certificate, solution.status);
        Ok(Proven { machine, beta, bias, scores, certificate, status, iterations: solution.iterations })
    })
}

/// The certificate of a machine as it was saved: its scores are recomputed in double precision.
pub fn certify_machine(setup: &Setup, gram: &dyn Gram, machine: &Machine, control: &Control) -> Result<Certificate> {
    let (beta, mut bias) = setup.solution(machine);
    setup.with(gram, |problem| {
        let by_row: Vec<f64> = machine.coefficients.iter().map(|c| c * machine.rho).collect();
        let scores = certificate::scores_by_row(problem, &by_row, control)?;
        if setup.finds_tube() && machine.tube.is_none() {
            let half = certificate::best_half_width(problem, &scores, machine.bias, control)?;
            bias = vec![machine.bias + half, machine.bias - half];
        }
        Ok(certify(problem, &beta, Some(&bias), Some(&scores), control)?)
    })
}

/// The same for the linear machine (w, b) of a solution; `solution.bias` is empty without a bias.
pub fn prove_linear(
    setup: &Setup,
    problem: &LinearProblem<'_>,
    penalty: Penalty,
    weights: &[f64],
    solution: &Solution,
    asked: &Asked,
    control: &Control,
) -> Result<Proven> {
    let given = solution.bias.first().copied().unwrap_or(0.0);
    let beta = &solution.beta;
    let attempt = || -> std::result::Result<_, Interrupt> {
        let bias = best_bias_linear(problem, weights, given, control)?;
        let certificate = match penalty {
            Penalty::L2 => certify_linear(problem, weights, bias, beta, control)?,
            Penalty::L1 => certify_l1(problem, weights, bias, beta, control)?,
        };
        let mut scores = vec![0.0; problem.matrix.rows()];
        problem.matrix.dots(crate::gram::Pick::All, weights, &mut scores, control)?;
        Ok((bias, certificate, scores))
    };
    let (bias, certificate, scores) = attempt().unwrap_or((given, Certificate::Unknown, Vec::new()));
    let bias = if solution.bias.is_empty() { vec![] } else { vec![bias] };
    let machine = setup.machine(beta, &bias);
    let status = verdict(asked, &certificate, solution.status);
    let iterations = solution.iterations;
    Ok(Proven { machine, beta: beta.clone(), bias, scores, certificate, status, iterations })
}
