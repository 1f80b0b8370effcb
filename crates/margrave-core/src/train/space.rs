//! The space of the machines of a training: that of a kernel, accessed through K, or of linear machines, accessed through X.
//!
//! Everything built from binary machines or regressions (several classes, calibration, folds, verification) is written once,
//! for any [`Space`].

use super::options::TrainOptions;
use super::proof::Proven;
use super::verdict::{Asked, Met};
use crate::certificate::Certificate;
use crate::compose::calibrate::LeftOut;
use crate::control::{Control, Status};
use crate::error::Result;
use crate::model::{DualPoint, Model};
use crate::observe::Observer;
use crate::problem::{Machine, Setup};
use crate::solver::Stop;

/// What was dropped to make a model compact.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Compacted {
    /// Training rows dropped.
    pub dropped: usize,
    /// Bound: no score f(x) has changed by more than this times √k(x, x).
    pub norm: f64,
    /// The largest change of a score on the training rows.
    pub change: f64,
}

/// One trained machine with its proof.
pub(crate) struct Trained {
    pub(crate) proven: Proven,
    /// w, if the machine is stored as weights.
    pub(crate) weights: Option<Vec<f64>>,
    /// Name of the solver.
    pub(crate) solver: &'static str,
    /// Why this solver was chosen.
    pub(crate) reason: String,
    pub(crate) compact: Option<Compacted>,
    /// Samples that were merged into equal ones.
    pub(crate) merged: usize,
}

impl Trained {
    /// The dual point of a machine on few centres, which its coefficients do not contain.
    pub(crate) fn dual(&self) -> Option<DualPoint> {
        self.proven.certificate.approximation().map(|_| DualPoint::new(&self.proven.beta))
    }

    /// z = f + b of the training rows; NaN if the proof, which computes them, was interrupted.
    pub(crate) fn scores(&self, rows: usize) -> Vec<f64> {
        let machine = &self.proven.machine;
        let mut z: Vec<f64> = self.proven.scores.iter().map(|f| f / machine.rho + machine.bias).collect();
        z.resize(rows, f64::NAN);
        z
    }
}

/// The start of a solver: β, the biases, and w if it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartPoint {
    pub(crate) beta: Vec<f64>,
    pub(crate) bias: Vec<f64>,
    pub(crate) weights: Vec<f64>,
}

/// Working memory that a machine may always use, in bytes. A program takes more than this by itself, and without it the
/// entries of K of a thousand rows would be computed again for every product.
pub(crate) const LEAST_MEMORY: u64 = 16 << 20;

/// The options and resources of a training.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) options: &'a TrainOptions,
    /// Bytes.
    pub(crate) memory: u64,
    pub(crate) control: &'a Control,
}

/// The rows of a training in the form its machines use.
pub(crate) trait Space: Send + Sync {
    /// Number of rows.
    fn len(&self) -> usize;

    /// k(x, x) of every row.
    fn diag(&self) -> Vec<f64>;

    /// Kernel entries computed so far.
    fn entries(&self) -> u64;

    /// Estimated work of training on this many rows: of several machines the largest is trained first.
    fn work(&self, rows: usize) -> u64;

    /// The same over some of the rows.
    fn restrict<'s>(&'s self, rows: &[u32], control: &Control) -> Box<dyn Space + 's>;

    /// The start given by machine `at` of a model that was trained on these rows.
    fn start(&self, model: &Model, at: usize, machine: &Machine, setup: &Setup) -> StartPoint;

    /// Solves one problem over the rows and proves it.
    fn solve(
        &self,
        setup: &Setup,
        start: Option<StartPoint>,
        request: Request<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Trained>;

    /// The certificate of machine `at` of a model over these rows.
    fn certify(
        &self,
        model: &Model,
        at: usize,
        machine: &Machine,
        setup: &Setup,
        control: &Control,
    ) -> Result<Certificate>;

    /// f + b of `rows`, from a machine that was trained on the rows `trained_on`.
    fn score(&self, trained: &Trained, trained_on: &[u32], rows: &[u32], control: &Control) -> Result<Vec<f64>>;

    /// Leave-one-out scores of a machine trained on all rows, where there is a closed form.
    fn leave_one_out(&self, trained: &Trained, setup: &Setup, request: Request<'_>) -> Result<Option<LeftOut>>;
}

/// Attempts at one problem, each with a stricter stopping rule than the last, until the proof holds.
const ATTEMPTS: usize = 4;

/// Trains by `attempt(stop, best so far)` until the proof holds, the solver gives up, or an attempt gains nothing.
pub(crate) fn until_proven(
    mut stop: Stop,
    asked: &Asked,
    control: &Control,
    mut attempt: impl FnMut(Stop, Option<&Trained>) -> Result<Trained>,
) -> Result<Trained> {
    let mut best = attempt(stop, None)?;
    for _ in 1..ATTEMPTS {
        if best.proven.status != Status::Inaccurate || control.check().is_err() {
            break;
        }
        stop = asked.stricter(stop, &best.proven.certificate);
        let next = attempt(stop, Some(&best))?;
        let gained = is_better(&next.proven, &best.proven, asked);
        let enough = next.proven.status != Status::Inaccurate;
        if gained {
            best = Trained { reason: best.reason, ..next };
        }
        if !gained || enough {
            break;
        }
    }
    Ok(best)
}

/// Whether `new` is the better machine: it meets the criteria, or its gap (its residual) is smaller.
pub(crate) fn is_better(new: &Proven, old: &Proven, asked: &Asked) -> bool {
    let met = |p: &Proven| asked.met(&p.certificate) != Met::No;
    let measure = |p: &Proven| p.certificate.gap().unwrap_or(p.certificate.violation());
    match (met(new), met(old)) {
        (true, false) => true,
        (false, true) => false,
        _ => measure(new) < measure(old),
    }
}
