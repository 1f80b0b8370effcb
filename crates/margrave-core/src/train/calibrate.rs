//! Out-of-sample scores of a machine, and the calibration fitted to them.

use super::fit::LeaveOneOut;
use super::kernel_space::KernelSpace;
use super::linear_space::LinearSpace;
use super::merge::hash;
use super::one::problem;
use super::options::{LossChoice, Probability, TrainOptions};
use super::plan::Plan;
use super::space::{Request, Space, Trained};
use crate::compose::calibrate::{LeftOut, residual_scale};
use crate::compose::cross_validate::{Deal, folds};
use crate::compose::sigmoid::{Labelled, fit_all};
use crate::compose::threshold;
use crate::control::Control;
use crate::error::Result;
use crate::loss::{DualTerm, LossSpec};
use crate::model::{Calibration, Origin, SHARES, Threshold};
use crate::observe::Silent;
use crate::problem::{Formulation, Setup, Task};
use crate::solver::Stop;

/// Number of folds where leave-one-out scores have no closed form, or a coarse one; for few rows twice as many.
const DEFAULT_FOLDS: usize = 5;

/// Number of different rows up to which there are twice as many folds.
const MANY_FOLDS_ROWS: usize = 2000;

/// Number of rows up to which folds replace a coarse closed form.
const MAX_FOLD_ROWS: usize = 5000;

/// Number of rows up to which the machines of folds are as accurate as the model: it costs little, and weights then agree with
/// copies of the rows to many digits.
const EXACT_ROWS: usize = 512;

/// A score moves far if it moves by more than the distance between the margins.
const FAR: f64 = 2.0;

/// Share of a class above which rows that move far make the span rule coarse.
const MAX_FAR_SHARE: f64 = 0.02;

/// A machine whose scores are to be calibrated: the rows it was trained on.
pub(crate) struct Subject<'a> {
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) space: &'a dyn Space,
    /// Its rows in the data; `None`: all.
    pub(crate) rows: Option<&'a [u32]>,
    pub(crate) targets: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
}

/// Scores of rows that a machine was not trained on.
#[derive(Default)]
pub(crate) struct Unseen {
    /// Those that probabilities and thresholds are fitted to, and how they were computed, if one of them was asked for.
    pub(crate) used: Option<(LeftOut, Origin)>,
    /// Those in closed form, if they were asked for and there is one that is not coarse.
    pub(crate) closed: Option<LeftOut>,
}

/// The scores of unseen rows that the options ask for.
pub(crate) fn unseen(subject: &Subject<'_>, setup: &Setup, trained: &Trained, request: Request<'_>) -> Result<Unseen> {
    let options = request.options;
    let used = match options.probability.is_some() || options.threshold.is_some() {
        true => Some(out_of_sample(subject, setup, trained, request)?),
        false => None,
    };
    let closed = match &used {
        _ if !options.leave_one_out || options.task == Task::Novelty => None,
        Some((left, Origin::LeaveOneOut)) => Some(left.clone()),
        _ => {
            let control = request.control.for_calibration();
            subject.space.leave_one_out(trained, setup, Request { control: &control, ..request })?
        }
    };
    let closed = closed.filter(|left| !is_coarse(subject, trained, left));
    Ok(Unseen { used, closed })
}

/// Leave-one-out scores of the only machine of a plan, rows ascending.
pub(crate) fn ascending(plan: &Plan<'_>, left: LeftOut) -> LeaveOneOut {
    let mut all: Vec<(u32, f64)> = left.rows.into_iter().zip(left.scores).collect();
    all.sort_by_key(|one| one.0);
    let (rows, scores) = all.into_iter().unzip();
    LeaveOneOut { rows, scores, exact: is_square(plan) }
}

/// Whether leave-one-out scores in closed form are exact: nothing is at a bound.
pub(crate) fn is_square(plan: &Plan<'_>) -> bool {
    matches!(plan.options.loss, LossChoice::Spec(LossSpec::Square))
        && matches!(plan.formulation, Formulation::Cost { .. })
}

/// Out-of-sample scores of the training rows, and how they were computed.
fn out_of_sample(
    subject: &Subject<'_>,
    setup: &Setup,
    trained: &Trained,
    request: Request<'_>,
) -> Result<(LeftOut, Origin)> {
    let control = request.control.for_calibration();
    let request = Request { control: &control, ..request };
    let n = subject.targets.len();
    if let Some(Probability::Folds(k)) = request.options.probability {
        let codes = subject.codes();
        let deal = if request.options.task == Task::Classify { Deal::Stratified(&codes) } else { Deal::Plain };
        let fold = folds(n, k, deal, request.options.seed)?;
        return Ok((out_of_fold(subject, &fold, request)?, Origin::Folds));
    }
    match subject.space.leave_one_out(trained, setup, request)? {
        Some(left) if n > MAX_FOLD_ROWS || !is_coarse(subject, trained, &left) => Ok((left, Origin::LeaveOneOut)),
        _ => Ok((out_of_fold(subject, &by_content(subject, request.options.seed)?, request)?, Origin::Folds)),
    }
}

/// Whether the span rule misses much: it keeps other rows at their bounds, so rows at a bound seem to move further than they
/// would. Rows count by their weights, so that a weight of 2 is the same as two copies.
fn is_coarse(subject: &Subject<'_>, trained: &Trained, left: &LeftOut) -> bool {
    let boxed = |term: DualTerm| term.lo.is_finite() && term.hi.is_finite();
    if subject.plan.options.task != Task::Classify || !subject.plan.loss.dual(1.0, 1.0).is_some_and(boxed) {
        return false;
    }
    let z = trained.scores(subject.targets.len());
    let counts = subject.counts();
    // By class: how much all rows count, and those that move far.
    let (mut all, mut far) = ([0.0; 2], [0.0; 2]);
    for (&row, score) in left.rows.iter().zip(&left.scores) {
        let row = row as usize;
        let class = usize::from(subject.targets[row] > 0.0);
        let count = counts.as_ref().map_or(1.0, |counts| counts[row]);
        all[class] += count;
        far[class] += if (score - z[row]).abs() > FAR { count } else { 0.0 };
    }
    (0..2).any(|class| far[class] > MAX_FAR_SHARE * all[class])
}

/// The options of the machines of folds: those of the training, but for many rows with a tolerance no tighter than calibration
/// needs.
fn for_folds(options: &TrainOptions, rows: usize) -> TrainOptions {
    let same =
        TrainOptions { probability: None, threshold: None, start: None, leave_one_out: false, ..options.clone() };
    if rows <= EXACT_ROWS {
        return same;
    }
    let stop = Stop { tol: options.stop.tol.map(|tol| tol.max(1e-3)), gap: options.stop.gap.map(|gap| gap.max(1e-3)) };
    TrainOptions { stop, aim: None, aim_gap: None, ..same }
}

/// Folds dealt by the content of the rows: copies stay together, and a weight of 2 deals as two copies do. Each class is spread
/// evenly.
fn by_content(subject: &Subject<'_>, seed: u64) -> Result<Vec<u32>> {
    let points = &subject.plan.prepared.points;
    let n = subject.targets.len();
    let place = |at: usize| subject.rows.map_or(at, |rows| rows[at] as usize);
    let classify = subject.plan.options.task == Task::Classify;
    let class = |at: usize| u64::from(classify && subject.targets[at] > 0.0);
    let mut keys: Vec<(u64, u64, u32)> = (0..n).map(|at| (class(at), hash(points, place(at)), at as u32)).collect();
    keys.sort_unstable();
    let mut groups = keys.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).collect::<Vec<_>>();
    // Classes in turn, the first rows of each in the order of their hashes.
    groups.sort_by_key(|group| (group[0].0, group[0].1));
    let k = if groups.len() <= MANY_FOLDS_ROWS { 2 * DEFAULT_FOLDS } else { DEFAULT_FOLDS };
    if groups.len() < 2 {
        return folds(n, DEFAULT_FOLDS.min(n), Deal::Plain, seed);
    }
    let k = k.min(groups.len());
    let mut fold = vec![0u32; n];
    for (at, group) in groups.into_iter().enumerate() {
        group.iter().for_each(|key| fold[key.2 as usize] = (at % k) as u32);
    }
    Ok(fold)
}

/// The scores of each fold, from a machine trained on the other folds: missing values, scaling and γ included. `fold`: that of
/// each row.
fn out_of_fold(subject: &Subject<'_>, fold: &[u32], request: Request<'_>) -> Result<LeftOut> {
    let n = subject.targets.len();
    let options = for_folds(request.options, n);
    let classify = options.task == Task::Classify;
    let k = fold.iter().max().map_or(0, |last| last + 1);
    let mut out = LeftOut { rows: (0..n as u32).collect(), scores: vec![0.0; n] };
    let scoring: Control = request.control.without_deadline();
    for f in 0..k {
        let (kept, held): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|&row| fold[row as usize] != f);
        let targets: Vec<f64> = kept.iter().map(|&row| subject.targets[row as usize]).collect();
        if classify && targets.iter().all(|y| *y == targets[0]) {
            // All rows of the other class are held out: without them everything is on the margin of this one.
            held.iter().for_each(|&row| out.scores[row as usize] = targets[0]);
            continue;
        }
        let weights: Option<Vec<f64>> = subject.weights.map(|w| kept.iter().map(|&row| w[row as usize]).collect());
        let own = subject.space_without(&held, request.control)?;
        let space = own.as_deref().unwrap_or(subject.space);
        let part = space.restrict(&kept, request.control);
        let setup = problem(subject.plan, part.as_ref(), &targets, weights.as_deref())?;
        let trained = part.solve(&setup, None, Request { options: &options, ..request }, &mut Silent)?;
        let scores = space.score(&trained, &kept, &held, &scoring)?;
        held.iter().zip(scores).for_each(|(&row, z)| out.scores[row as usize] = z);
    }
    Ok(out)
}

impl Subject<'_> {
    /// The class of each row of two.
    fn codes(&self) -> Vec<u32> {
        self.targets.iter().map(|y| u32::from(*y > 0.0)).collect()
    }

    /// How much each row counts.
    fn counts(&self) -> Option<Vec<f64>> {
        let prepared = &self.plan.prepared;
        self.rows.map_or_else(|| prepared.counts.clone(), |rows| prepared.counts_of(rows))
    }

    /// The space of the machine's rows as a training without `held` of them has it; `None` if it is the same.
    fn space_without(&self, held: &[u32], control: &Control) -> Result<Option<Box<dyn Space>>> {
        let held: Vec<u32> = match self.rows {
            Some(rows) => held.iter().map(|&at| rows[at as usize]).collect(),
            None => held.to_vec(),
        };
        let Some((points, kernel)) = self.plan.without(&held)? else { return Ok(None) };
        let points = self.rows.map_or_else(|| points.clone(), |rows| points.gather(rows));
        Ok(Some(match self.plan.linear {
            true => Box::new(LinearSpace::new(&points, None, control)),
            false => Box::new(KernelSpace::with_distinct(kernel, &points, control)?.kept(control)),
        }))
    }
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
