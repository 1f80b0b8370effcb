//! The machine that will be saved, and its proof.

use super::Status;
use super::verdict::{Asked, default_tol, verdict};
use crate::backend::RowSource;
use crate::certificate::{
    self, Certificate, OnCentres, Scores, TailCheck, best_bias_of_scores, certify, certify_l1, certify_scores,
    dual_from_scores, linear_scores,
};
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::error::Result;
use crate::gram::Gram;
use crate::kernel::Kernel;
use crate::problem::{LinearProblem, Machine, Penalty, Setup, Task};
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

/// How machines on few centres are certified: the kernel over rows and centres, and how closely the exact problem is
/// approached.
pub(crate) struct ProofOnCentres<'a> {
    pub(crate) kernel: Kernel,
    pub(crate) source: &'a RowSource<'a>,
    /// K over its rows.
    pub(crate) gram: &'a dyn Gram,
    /// The centres: rows of the source.
    pub(crate) rows: &'a [u32],
    pub(crate) centres: &'a Points,
    pub(crate) check: TailCheck,
    pub(crate) seed: u64,
    /// A relative size of the kernel's part of the gap that needs no better bound.
    pub(crate) enough: f64,
}

impl ProofOnCentres<'_> {
    /// Calls `work` with the problem and the kernels of its centres.
    fn with<T>(&self, setup: &Setup, control: &Control, work: impl FnOnce(&OnCentres<'_>) -> Result<T>) -> Result<T> {
        let backend = control.backend();
        let cross = self.source.gram(self.kernel, self.centres, control)?;
        let transposed = self.source.transposed_gram(self.kernel, self.centres, control)?;
        let centres = backend.square_gram(self.kernel, self.centres)?;
        setup.with(self.gram, |problem| {
            let on = OnCentres {
                problem,
                cross: cross.as_ref(),
                transposed: transposed.as_ref(),
                centres: centres.as_ref(),
            };
            work(&on)
        })
    }

    /// The machine with these coefficients of the centres, and its proof. The solution has its dual point and bias. If
    /// there is no time for the whole proof, the problem on the centres alone is certified; if not even for that, the
    /// certificate is unknown.
    pub(crate) fn prove(
        &self,
        setup: &Setup,
        coefficients: &[f64],
        solution: &Solution,
        asked: &Asked,
        control: &Control,
    ) -> Result<Proven> {
        let beta: Vec<f64> = solution.beta.iter().map(|b| if b.is_finite() { *b } else { 0.0 }).collect();
        self.with(setup, control, |on| {
            let scored = || -> std::result::Result<_, Interrupt> {
                let scores = on.scores(coefficients, control)?;
                let bias = on.best_bias(&scores, Some(&solution.bias), control)?;
                Ok((scores, bias))
            };
            let certified = |scores: &Scores, bias: &[f64]| {
                let found = on.certify(coefficients, bias, &beta, scores, self.check, self.seed, self.enough, control);
                found.unwrap_or(Certificate::Unknown)
            };
            let (bias, scores, certificate) = match scored() {
                Ok((scores, bias)) => {
                    let certificate = certified(&scores, &bias);
                    (bias, scores.values().to_vec(), certificate)
                }
                Err(_) => (solution.bias.clone(), Vec::new(), Certificate::Unknown),
            };
            let machine = self.machine(setup, coefficients, &bias);
            let status = verdict(asked, &certificate, solution.status);
            let iterations = solution.iterations;
            Ok(Proven { machine, beta: beta.clone(), bias, scores, certificate, status, iterations })
        })
    }

    /// The machine with these coefficients of the centres.
    fn machine(&self, setup: &Setup, coefficients: &[f64], bias: &[f64]) -> Machine {
        let mut by_row = vec![0.0; setup.rows()];
        self.rows.iter().zip(coefficients).for_each(|(&row, a)| by_row[row as usize] += a);
        setup.machine(&by_row, bias)
    }

    /// The certificate of a stored machine. Without its dual point one is made from its scores, at the best of several
    /// widths.
    pub(crate) fn certify(
        &self,
        setup: &Setup,
        coefficients: &[f64],
        bias: &[f64],
        dual: Option<&[f64]>,
        control: &Control,
    ) -> Result<Certificate> {
        self.with(setup, control, |on| {
            let scores = on.scores(coefficients, control)?;
            let certify = |beta: &[f64], check: TailCheck| {
                let found = on.certify(coefficients, bias, beta, &scores, check, self.seed, self.enough, control)?;
                // Who asks for the exact problem gets an answer about it, or none.
                let short = found.approximation().is_some_and(|a| a.check == TailCheck::Own && check != TailCheck::Own);
                if short { control.check().map(|()| found) } else { Ok(found) }
            };
            if let Some(beta) = dual {
                return Ok(certify(beta, self.check)?);
            }
            let unit = if setup.task() == Task::Classify { 1.0 } else { 1e3 * default_tol(Some(setup.targets())) };
            let mut best: Option<(f64, Vec<f64>)> = None;
            for width in [1.0, 0.3, 0.1, 0.03, 0.01] {
                let beta = dual_from_scores(on.problem, &scores, bias, width * unit, control)?;
                let gap = certify(&beta, TailCheck::Own)?.gap().unwrap_or(f64::INFINITY);
                if best.as_ref().is_none_or(|(least, _)| gap < *least) {
                    best = Some((gap, beta));
                }
            }
            let beta = best.map_or_else(|| vec![0.0; setup.len()], |(_, beta)| beta);
            Ok(certify(&beta, self.check)?)
        })
    }
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
        let scores = linear_scores(problem.matrix, weights, control)?;
        let bias = best_bias_of_scores(problem, &scores, given, control)?;
        let f = scores.values().to_vec();
        let certificate = match penalty {
            Penalty::L2 => certify_scores(problem, scores, bias, beta, control)?,
            Penalty::L1 => certify_l1(problem, weights, bias, beta, control)?,
        };
        Ok((bias, certificate, f))
    };
    let (bias, certificate, scores) = attempt().unwrap_or((given, Certificate::Unknown, Vec::new()));
    let bias = if solution.bias.is_empty() { vec![] } else { vec![bias] };
    let machine = setup.machine(beta, &bias);
    let status = verdict(asked, &certificate, solution.status);
    let iterations = solution.iterations;
    Ok(Proven { machine, beta: beta.clone(), bias, scores, certificate, status, iterations })
}
