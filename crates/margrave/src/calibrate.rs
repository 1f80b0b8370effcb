//! Scores a machine has not been trained on, and the calibration fitted to them.

use std::sync::Arc;

use margrave_core::compose::Part;
use margrave_core::compose::calibrate::{LeftOut, fit_sigmoid, residual_scale};
use margrave_core::compose::cross_validate::{Deal, folds};
use margrave_core::gram::{Gram, Pick, part};
use margrave_core::loss::Loss;
use margrave_core::model::{Calibration, Origin};
use margrave_core::observe::Silent;
use margrave_core::problem::{Formulation, Setup, Task};
use margrave_core::solver::Stop;
use margrave_core::{Control, Result};
use margrave_io::model::SHARES;

use crate::solve::solve_one;
use crate::svm::{Probability, Svm};

/// Folds where there is no closed form.
const FOLDS: usize = 5;

/// A machine whose scores are to be calibrated.
pub(crate) struct Subject<'a> {
    pub(crate) svm: &'a Svm,
    pub(crate) task: Task,
    pub(crate) formulation: Formulation,
    pub(crate) loss: Arc<dyn Loss>,
    /// Over the rows of the part.
    pub(crate) gram: &'a dyn Gram,
    pub(crate) part: &'a Part,
    pub(crate) weights: Option<&'a [f64]>,
    pub(crate) memory: u64,
}

/// Scores of rows that did not take part in their training, and where they are from. `closed` are those of the closed form.
pub(crate) fn unseen(subject: &Subject<'_>, closed: Option<LeftOut>, control: &Control) -> Result<(LeftOut, Origin)> {
    match (subject.svm.probability, closed) {
        (Some(Probability::Folds(k)), _) => Ok((held_out(subject, k, control)?, Origin::Folds)),
        (_, Some(left)) => Ok((left, Origin::LeaveOneOut)),
        (_, None) => Ok((held_out(subject, FOLDS.min(subject.part.rows.len()), control)?, Origin::Folds)),
    }
}

/// The machine that scores what it has not seen: as asked, but trained no further than calibration can notice.
pub(crate) fn for_folds(svm: &Svm) -> Svm {
    let stop = Stop { tol: svm.stop.tol.map(|tol| tol.max(1e-3)), gap: svm.stop.gap.map(|gap| gap.max(1e-3)) };
    Svm { probability: None, start: None, stop, aim: None, ..svm.clone() }
}

/// The scores of each fold by a machine trained on the others.
fn held_out(subject: &Subject<'_>, k: usize, control: &Control) -> Result<LeftOut> {
    let Subject { svm, part: whole, gram, .. } = subject;
    let n = whole.rows.len();
    let codes: Vec<u32> = whole.targets.iter().map(|y| u32::from(*y > 0.0)).collect();
    let deal = if subject.task == Task::Classify { Deal::Stratified(&codes) } else { Deal::Plain };
    let fold = folds(n, k, deal, svm.seed)?;
    let mut out = LeftOut { rows: (0..n as u32).collect(), scores: vec![0.0; n] };
    let plain = for_folds(svm);
    let scoring = control.without_deadline();
    for f in 0..k as u32 {
        let (kept, held): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|&row| fold[row as usize] != f);
        let targets: Vec<f64> = kept.iter().map(|&row| whole.targets[row as usize]).collect();
        let weights: Option<Vec<f64>> = subject.weights.map(|w| kept.iter().map(|&row| w[row as usize]).collect());
        let own = part(*gram, &kept);
        let (task, formulation, loss) = (subject.task, subject.formulation, subject.loss.clone());
        let setup = Setup::new(task, formulation, &targets, weights.as_deref(), loss, svm.bias, || own.diag())?;
        let solved = solve_one(&plain, &setup, own.as_ref(), None, None, subject.memory, control, &mut Silent)?;
        let machine = &solved.proven.machine;
        let used: Vec<usize> = (0..kept.len()).filter(|&at| machine.coefficients[at] != 0.0).collect();
        let centres: Vec<u32> = used.iter().map(|&at| kept[at]).collect();
        for rows in held.chunks(256) {
            let mut block = vec![0.0; rows.len() * centres.len()];
            gram.block_f64(Pick::List(rows), Pick::List(&centres), &mut block, &scoring)?;
            for (at, &row) in rows.iter().enumerate() {
                let entries = &block[at * centres.len()..(at + 1) * centres.len()];
                let f: f64 = entries.iter().zip(&used).map(|(k, &at)| k * machine.coefficients[at]).sum();
                out.scores[row as usize] = f + machine.bias;
            }
        }
    }
    Ok(out)
}

/// a and b of one machine from unseen scores.
pub(crate) fn sigmoid_of(left: &LeftOut, targets: &[f64], keep_threshold: bool) -> (f64, f64) {
    let labels: Vec<f64> = left.rows.iter().map(|&row| targets[row as usize]).collect();
    fit_sigmoid(&left.scores, &labels, keep_threshold)
}

/// The calibration of one binary machine or one regression.
pub(crate) fn calibration_of(task: Task, left: &LeftOut, targets: &[f64], origin: Origin) -> Calibration {
    if task == Task::Regress {
        let residuals: Vec<f64> =
            left.rows.iter().zip(&left.scores).map(|(&row, z)| targets[row as usize] - z).collect();
        let (sigma, radii) = residual_scale(&residuals, &SHARES);
        return Calibration::Residuals { sigma, radii, origin };
    }
    let (a, b) = sigmoid_of(left, targets, true);
    Calibration::Sigmoid { a: vec![a], b: vec![b], origin }
}
