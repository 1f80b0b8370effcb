//! Out-of-sample scores of a machine, and the calibration fitted to them.

use super::options::{Probability, TrainOptions};
use super::plan::Plan;
use super::space::{Request, Space, Trained};
use crate::compose::calibrate::{LeftOut, residual_scale};
use crate::compose::cross_validate::{Deal, folds};
use crate::compose::sigmoid::{Labelled, fit_all};
use crate::compose::threshold;
use crate::control::Control;
use crate::error::Result;
use crate::model::{Calibration, Origin, SHARES, Threshold};
use crate::observe::Silent;
use crate::problem::{Setup, Task};
use crate::solver::Stop;

/// Number of folds where leave-one-out scores have no closed form.
const DEFAULT_FOLDS: usize = 5;

/// A machine whose scores are to be calibrated: the rows it was trained on, and how its problem follows from targets and weights.
pub(crate) struct Subject<'a> {
    pub(crate) space: &'a dyn Space,
    pub(crate) targets: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
    /// The problem of some of the rows, from their targets and weights.
    pub(crate) problem: &'a dyn Fn(&dyn Space, &[f64], Option<&[f64]>) -> Result<Setup>,
}

/// Out-of-sample scores of the training rows, and how they were computed.
pub(crate) fn out_of_sample(
    subject: &Subject<'_>,
    setup: &Setup,
    trained: &Trained,
    request: Request<'_>,
) -> Result<(LeftOut, Origin)> {
    let control = request.control.for_calibration();
    let request = Request { control: &control, ..request };
    let n = subject.targets.len();
    if let Some(Probability::Folds(k)) = request.options.probability {
        return Ok((out_of_fold(subject, k, request)?, Origin::Folds));
    }
    match subject.space.leave_one_out(trained, setup, request)? {
        Some(left) => Ok((left, Origin::LeaveOneOut)),
        None => Ok((out_of_fold(subject, DEFAULT_FOLDS.min(n), request)?, Origin::Folds)),
    }
}

/// The options of the machines of folds: those of the training, but with a tolerance no tighter than calibration needs.
fn for_folds(options: &TrainOptions) -> TrainOptions {
    let stop = Stop { tol: options.stop.tol.map(|tol| tol.max(1e-3)), gap: options.stop.gap.map(|gap| gap.max(1e-3)) };
    TrainOptions { probability: None, threshold: None, start: None, stop, aim: None, aim_gap: None, ..options.clone() }
}

/// The scores of each fold, from a machine trained on the other folds.
fn out_of_fold(subject: &Subject<'_>, k: usize, request: Request<'_>) -> Result<LeftOut> {
    let n = subject.targets.len();
    let codes: Vec<u32> = subject.targets.iter().map(|y| u32::from(*y > 0.0)).collect();
    let options = for_folds(request.options);
    let deal = if options.task == Task::Classify { Deal::Stratified(&codes) } else { Deal::Plain };
    let fold = folds(n, k, deal, options.seed)?;
    let mut out = LeftOut { rows: (0..n as u32).collect(), scores: vec![0.0; n] };
    let scoring: Control = request.control.without_deadline();
    for f in 0..k as u32 {
        let (kept, held): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|&row| fold[row as usize] != f);
        let targets: Vec<f64> = kept.iter().map(|&row| subject.targets[row as usize]).collect();
        let weights: Option<Vec<f64>> = subject.weights.map(|w| kept.iter().map(|&row| w[row as usize]).collect());
        let part = subject.space.restrict(&kept, request.control);
        let setup = (subject.problem)(part.as_ref(), &targets, weights.as_deref())?;
        let trained = part.solve(&setup, None, Request { options: &options, ..request }, &mut Silent)?;
        let scores = subject.space.score(&trained, &kept, &held, &scoring)?;
        held.iter().zip(scores).for_each(|(&row, z)| out.scores[row as usize] = z);
    }
    Ok(out)
}

/// Left-out scores with the labels of their rows; `counts`: how much each row of the machine counts.
pub(crate) fn labelled(left: &LeftOut, targets: &[f64], counts: Option<&[f64]>) -> Labelled {
    Labelled {
        labels: left.rows.iter().map(|&row| targets[row as usize]).collect(),
        counts: counts.map_or_else(Vec::new, |all| left.rows.iter().map(|&row| all[row as usize]).collect()),
        scores: left.scores.clone(),
    }
}

/// What left-out scores of the only machine of a plan decide: its calibration and its threshold, as far as they are asked for.
pub(crate) fn settle(
    plan: &Plan<'_>,
    left: &LeftOut,
    targets: &[f64],
    origin: Origin,
) -> (Option<Calibration>, Option<Threshold>) {
    let Plan { options, prepared, .. } = plan;
    if options.task == Task::Regress {
        let residuals: Vec<f64> =
            left.rows.iter().zip(&left.scores).map(|(&row, z)| targets[row as usize] - z).collect();
        let (sigma, radii) = residual_scale(&residuals, &SHARES);
        return (Some(Calibration::Residuals { sigma, radii, origin }), None);
    }
    let data = labelled(left, targets, prepared.counts.as_deref());
    let cut = options.threshold.map(|rule| threshold::choose(&data, rule, origin));
    let calibration = options.probability.map(|_| {
        let weighted = prepared.weighs_classes();
        let (sigmoids, rule, reason) = fit_all(&[data], options.probability_rule, weighted, false);
        Calibration::of_sigmoids(&sigmoids, origin, rule, reason)
    });
    (calibration, cut)
}
