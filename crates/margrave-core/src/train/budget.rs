//! The best machine on at most a given number of vectors, from a trained one: small models predict fast.

use super::plan::Plan;
use super::proof::ProofOnCentres;
use super::space::{Compacted, Request, Trained};
use super::verdict::{Asked, DEFAULT_OWN_GAP, verdict};
use crate::backend::RowSource;
use crate::certificate::TailCheck;
use crate::control::Status;
use crate::error::Result;
use crate::observe::Observer;
use crate::problem::Setup;
use crate::solver::nystrom::{self, Features};
use crate::solver::{Solution, Stop};

/// Replaces `trained` by the best machine on at most `most` of its vectors: they are drawn by pivoted Cholesky, and their
/// coefficients are trained on all rows. The dual point of the larger machine certifies the smaller one, whose gap is
/// therefore that of the exact problem (unless [`TailCheck::Own`] leaves it out). Says how much scores changed.
pub(crate) fn reduce(
    plan: &Plan<'_>,
    setup: &Setup,
    trained: Trained,
    most: usize,
    request: Request<'_>,
    observer: &mut dyn Observer,
) -> Result<Trained> {
    let Request { options, memory, control } = request;
    let machine = &trained.proven.machine;
    let used: Vec<u32> = (0..setup.rows() as u32).filter(|&row| machine.coefficients[row as usize] != 0.0).collect();
    if used.len() <= most || control.check().is_err() {
        return Ok(trained);
    }
    let points = &plan.prepared.points;
    let source = RowSource::Memory(points.clone());
    let mut features = Features::among(plan.kernel, &source, used.clone(), memory / 2, options.seed, control)?;
    let set = features.on(most, control)?;
    let problem = setup.linear(set.matrix())?;
    let stop = Stop { tol: None, gap: Some(0.9 * DEFAULT_OWN_GAP) };
    let solver = nystrom::Options { stop, start: None, iterations: None, memory, seed: options.seed, precise: false };
    let found = nystrom::solve(&problem, &set, &solver, control, observer)?;
    let coefficients = set.centres.coefficients(&found.weights, &control.threads);
    let bias = if options.bias { vec![found.bias] } else { vec![] };
    let gram = control.backend().square_gram(plan.kernel, points)?;
    let proof = |check: TailCheck| ProofOnCentres {
        kernel: plan.kernel,
        source: &source,
        gram: gram.as_ref(),
        rows: &set.centres.rows,
        centres: &set.centres.points,
        check,
        seed: options.seed,
        enough: 1e-3,
    };
    let iterations = trained.proven.iterations + found.iterations;
    let solution = |beta: Vec<f64>| Solution {
        exact: None,
        beta,
        bias: bias.clone(),
        scores: None,
        status: found.status,
        iterations,
        violation: f64::INFINITY,
    };
    // Its own dual point proves that it is the best machine on these vectors; that of the larger machine bounds the optimum.
    let asked = Asked { tol: None, gap: None, own: Some(DEFAULT_OWN_GAP) };
    let own = proof(TailCheck::Own).prove(
        setup,
        &coefficients,
        &solution(found.beta.clone()),
        &asked,
        &control.for_proof(),
    )?;
    let best_on_them = verdict(&asked, &own.certificate, found.status);
    let mut small = if options.certify == TailCheck::Own {
        own
    } else {
        // The same closeness to the exact problem as is required of the larger machine.
        let exact = Asked { tol: None, gap: options.asked_for(setup).gap, own: None };
        let beta = trained.proven.beta.clone();
        proof(options.certify).prove(setup, &coefficients, &solution(beta), &exact, &control.for_proof())?
    };
    small.status = match (trained.proven.status, best_on_them) {
        (Status::Optimal, Status::Optimal) => small.status,
        (Status::Optimal, short) => short,
        (early, _) => early,
    };
    let compact = change(&trained, &small.machine.coefficients, &small.scores, used.len() - set.centres.len());
    let reason =
        format!("{}; then the best machine on {} of its {} vectors", trained.reason, set.centres.len(), used.len());
    Ok(Trained { proven: small, weights: None, reason, compact, ..trained })
}

/// ‖f_small − f‖ and the largest change of a score without bias on the training rows; `None` if a proof was interrupted.
fn change(trained: &Trained, small: &[f64], scores: &[f64], dropped: usize) -> Option<Compacted> {
    let full = &trained.proven;
    if scores.len() != full.scores.len() || scores.is_empty() {
        return None;
    }
    // ⟨f, g⟩ = Σ coefficients of one, times the scores of the other.
    let inner = |coefficients: &[f64], scores: &[f64]| coefficients.iter().zip(scores).map(|(c, f)| c * f).sum::<f64>();
    let (own, cross) = (inner(small, scores), inner(&full.machine.coefficients, scores));
    let whole = inner(&full.machine.coefficients, &full.scores);
    let norm = (own - 2.0 * cross + whole).max(0.0).sqrt();
    let change = scores.iter().zip(&full.scores).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
    Some(Compacted { dropped, norm, change })
}
