//! Training on features: from some of the rows, whose features are stored, to all of them.

use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

use super::features::{FeatureSet, MAX_FORMED};
use super::kept::KeptRows;
use super::options::Options;
use super::recomputed::RecomputedFeatures;
use super::some_rows::SomeRows;
use super::stored::StoredFeatures;
use crate::control::{Control, Status};
use crate::error::Result;
use crate::gram::Matrix;
use crate::observe::{Observer, Silent};
use crate::problem::LinearProblem;
use crate::solver::Stop;
use crate::solver::linear::{self, LinearSolution, Method, Start};

/// Most centres for which the Newton system is formed and factored.
const MAX_DIRECT: usize = 6000;
/// Rows per centre of the system that preconditions conjugate gradients.
const ROWS_PER_FEATURE: usize = 6;
/// Relative gap to which the first sample of the rows is solved: its solution is no closer to that of all rows.
const SAMPLE_GAP: f64 = 3e-2;
/// The same of the larger sample.
const LARGER_SAMPLE_GAP: f64 = 5e-3;
/// Smallest relative gap for which rows are kept in 16 bits: their rounding adds far less than that to it.
const SHORT_GAP: f64 = 2e-5;
/// Memory for kept rows, in sixteenths of all: the search for centres has a sixth, and both must leave room for squares.
const KEPT_SHARE: u64 = 9;
/// Rows per centre of the first sample.
const SAMPLE: usize = 16;
/// The same on a device.
const DEVICE_SAMPLE: usize = 10;
/// All rows over those of the larger sample there.
const DEVICE_SHARE: usize = 8;

/// The point reached on a set of features.
#[derive(Debug, Clone)]
pub struct NystromSolution {
    /// w, in features.
    pub weights: Vec<f64>,
    /// b; 0 without a bias.
    pub bias: f64,
    /// β of every row: feasible, and Fᵀβ close to w.
    pub beta: Vec<f64>,
    /// Why the run ended.
    pub status: Status,
    /// Newton steps on all rows.
    pub iterations: u64,
    /// The method used, and why.
    pub reason: String,
}

/// Features of which at most so many rows are kept.
struct KeptMatrix<'a> {
    matrix: Box<dyn Matrix + 'a>,
    most: usize,
}

/// Solves `problem`, whose matrix is that of `features`.
pub fn solve(
    problem: &LinearProblem<'_>,
    features: &FeatureSet<'_>,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<NystromSolution> {
    options.check()?;
    let m = features.centres.len();
    let sampled = (!features.is_stored() || m > MAX_FORMED).then_some(ROWS_PER_FEATURE);
    let precise = features.recomputed().filter(|_| options.precise).map(RecomputedFeatures::in_double);
    let kept = match &precise {
        Some(_) => None,
        None => {
            features.recomputed().and_then(|inner| kept_rows(inner, options.memory / 16 * KEPT_SHARE, options.stop))
        }
    };
    let start = match &options.start {
        Some(start) => {
            let mut weights = start.weights.clone();
            // Features are nested: more centres add columns.
            weights.resize(m, 0.0);
            Some(Start { weights, ..start.clone() })
        }
        None => start_from_sample(problem, features, kept.as_ref(), options, control)?,
    };
    let solver = linear::Options {
        stop: options.stop,
        start,
        iterations: options.iterations,
        memory: options.memory,
        seed: options.seed,
        method: if m > 500 { Method::Newton } else { Method::Auto },
        direct: MAX_DIRECT,
        sampled,
    };
    let matrix: Option<&dyn Matrix> = match (&kept, &precise) {
        (Some(kept), _) => Some(kept.matrix.as_ref()),
        (None, Some(precise)) => Some(precise),
        (None, None) => None,
    };
    let other;
    let problem = match matrix {
        Some(matrix) => {
            other = LinearProblem::new(matrix, problem.targets, problem.costs, problem.loss, problem.bias)?;
            &other
        }
        None => problem,
    };
    let LinearSolution { weights, bias, beta, status, iterations, reason, .. } =
        linear::solve(problem, &solver, control, observer)?;
    Ok(NystromSolution { weights, bias, beta, status, iterations, reason })
}

/// Rows of `inner` in at most so many bytes of memory, as accurate as `stop` requires.
fn kept_rows<'a>(inner: &'a RecomputedFeatures<'a>, memory: u64, stop: Stop) -> Option<KeptMatrix<'a>> {
    if stop.gap.is_some_and(|gap| gap >= SHORT_GAP) {
        let rows = KeptRows::<i16>::new(inner, memory)?;
        return Some(KeptMatrix { most: rows.most(), matrix: Box::new(rows) });
    }
    let rows = KeptRows::<f32>::new(inner, memory)?;
    Some(KeptMatrix { most: rows.most(), matrix: Box::new(rows) })
}

/// A start from some of the rows, each standing for its share of all: first a few per centre, then a third of all if more accuracy is
/// asked for. Both are among the rows that are `kept`, which later steps use again; on a device they are computed there.
fn start_from_sample(
    problem: &LinearProblem<'_>,
    features: &FeatureSet<'_>,
    kept: Option<&KeptMatrix<'_>>,
    options: &Options,
    control: &Control,
) -> Result<Option<Start>> {
    let (n, m) = (problem.len(), features.centres.len());
    let Some(recomputed) = features.recomputed() else { return Ok(None) };
    let (mut start, mut before) = (None, 0);
    if let Some((rows, points)) = &features.sample {
        let matrix = StoredFeatures::new(points.clone(), control);
        start = on_rows(problem, rows, &matrix, None, SAMPLE_GAP, m > MAX_FORMED, options, control)?;
        if start.is_none() {
            return Ok(None);
        }
        before = rows.len();
    }
    let sizes = match recomputed.on_device() {
        true => vec![(DEVICE_SAMPLE * m, SAMPLE_GAP), (n / DEVICE_SHARE, LARGER_SAMPLE_GAP)],
        false => {
            let most = kept.map_or(0, |kept| kept.most);
            vec![((SAMPLE * m).min(most), SAMPLE_GAP), (most.min(n / 3), LARGER_SAMPLE_GAP)]
        }
    };
    for (size, gap) in sizes {
        let is_finer = options.stop.gap.is_none_or(|wanted| wanted < gap);
        if size < 2 * before.max(m) || 2 * size > n || before > 0 && !is_finer || control.check().is_err() {
            continue;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed ^ 0x006d_6964);
        let mut rows: Vec<u32> = index::sample(&mut rng, n, size).iter().map(|i| i as u32).collect();
        rows.sort_unstable();
        start = match kept {
            Some(kept) => {
                let matrix = SomeRows::new(kept.matrix.as_ref(), &rows);
                on_rows(problem, &rows, &matrix, start, gap, true, options, control)?
            }
            None if recomputed.on_device() => {
                let part = features.of_rows(&rows, control)?;
                on_rows(problem, &rows, &part, start, gap, true, options, control)?
            }
            None => continue,
        };
        before = size;
    }
    Ok(start)
}

/// The solution of some of the rows, whose features are `matrix`; `None` if they have no cost.
fn on_rows(
    problem: &LinearProblem<'_>,
    rows: &[u32],
    matrix: &dyn Matrix,
    start: Option<Start>,
    gap: f64,
    sampled: bool,
    options: &Options,
    control: &Control,
) -> Result<Option<Start>> {
    let total: f64 = problem.costs.iter().sum();
    let own: f64 = rows.iter().map(|&i| problem.costs[i as usize]).sum();
    if !(own > 0.0) {
        return Ok(None);
    }
    let targets: Vec<f64> = rows.iter().map(|&i| problem.targets[i as usize]).collect();
    let costs: Vec<f64> = rows.iter().map(|&i| problem.costs[i as usize] * total / own).collect();
    let part = LinearProblem::new(matrix, &targets, &costs, problem.loss, problem.bias)?;
    let solver = linear::Options {
        stop: Stop { tol: None, gap: Some(gap) },
        start,
        iterations: options.iterations,
        memory: options.memory,
        seed: options.seed,
        method: Method::Newton,
        direct: MAX_DIRECT,
        sampled: sampled.then_some(ROWS_PER_FEATURE),
    };
    let found = linear::solve(&part, &solver, control, &mut Silent)?;
    Ok(Some(Start { weights: found.weights, bias: found.bias, beta: Vec::new() }))
}
