//! What to know about the data before relying on a training on it.

use margrave::engine::problem::Task;
use margrave::io::Loaded;
use margrave::loss::LossSpec;
use margrave::tune::Grid;
use margrave::{Dataset, Fit, Kernel, Points, Targets};

use super::Training;
use crate::failure::Flags;
use crate::format;
use crate::options::kernel::KernelName;

/// Whole numbers with more different values than this are rarely names of classes.
const MANY_CLASSES: usize = 20;

/// γ = scale is called misleading where the variance within features is less than this share of the variance of all values:
/// it follows the latter, so that γ times a squared distance is about twice this share, and the kernel nearly constant.
const WITHIN: f64 = 0.01;

/// Features are called badly scaled where the widest range is this many times the lower quartile of all. Sparse data, which
/// scaling would fill, may differ more.
const UNEVEN: f64 = 30.0;
const UNEVEN_SPARSE: f64 = 100.0;

/// A regression that explains less than this share of the variance of its own training targets has hardly learnt them.
const LEARNT: f64 = 0.1;

/// Multiply–adds of a core per second, and those of a kernel entry besides its features: rough figures, for a suggestion.
const ENTRIES_PER_SECOND: f64 = 4e10;
const ENTRY_WORK: f64 = 20.0;

impl Training<'_> {
    /// How the file was read, and what about its numbers is often not what was wanted.
    /// `grid`: what is searched over.
    pub(crate) fn remarks(&self, loaded: &Loaded, grid: Option<&Grid>) -> Vec<String> {
        let mut remarks: Vec<String> = loaded.notes.iter().map(|note| note.text(&Flags)).collect();
        remarks.extend(self.many_classes(&loaded.data.targets));
        remarks.extend(self.uneven(loaded, grid));
        remarks
    }

    /// A training on all rows that would not end within its time.
    pub(crate) fn too_many_rows(&self, loaded: &Loaded, threads: usize) -> Option<String> {
        let seconds = self.solver.budget().seconds?;
        let (n, d) = (loaded.data.len() as f64, loaded.data.points.stored() as f64 / loaded.data.len().max(1) as f64);
        let kernel = !matches!(self.kernel.kernel, KernelName::Linear | KernelName::Precomputed | KernelName::Sigmoid);
        let task = self.settings.task != Some(Task::Novelty) && self.settings.nu.is_none();
        let least = n * n * (d + ENTRY_WORK) / (ENTRIES_PER_SECOND * threads as f64);
        (kernel && task && least > seconds).then(|| {
            format!(
                "one pass over the kernel matrix of {} rows takes about {}: consider --approx 2000, which proves how far the exact machine is, and --polish to go on to it",
                format::count(n as u64),
                format::duration(least)
            )
        })
    }

    /// Whole numbers that were read as many classes.
    fn many_classes(&self, targets: &Targets) -> Option<String> {
        let Targets::Real(values) = targets else { return None };
        if self.settings.task.is_some() || !targets.looks_like_classes() {
            return None;
        }
        let mut distinct = values.clone();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        (distinct.len() > MANY_CLASSES).then(|| {
            format!(
                "the target has {} different whole numbers, read as that many classes: add --task regress to predict them as numbers",
                format::count(distinct.len() as u64)
            )
        })
    }

    /// Whether a kernel adds up the differences of features.
    fn is_of_distances(&self, grid: Option<&Grid>) -> bool {
        let own = match self.kernel.kernel {
            KernelName::Rbf | KernelName::Laplacian | KernelName::Matern32 | KernelName::Matern52 => true,
            KernelName::Linear | KernelName::Poly | KernelName::Sigmoid | KernelName::Chi2 => false,
            KernelName::Precomputed => false,
        };
        let distances = |kernel: &Kernel| matches!(kernel.name(), "rbf" | "laplacian" | "matern32" | "matern52");
        match grid.map(|grid| grid.kernels.as_slice()) {
            Some(kernels) if !kernels.is_empty() => kernels.iter().any(distances),
            _ => own,
        }
    }

    /// Features on very different scales, where the kernel adds up their differences.
    fn uneven(&self, loaded: &Loaded, grid: Option<&Grid>) -> Option<String> {
        if !self.is_of_distances(grid)
            || self.settings.scale.0.is_some()
            || self.settings.task == Some(Task::Novelty) && self.settings.svdd
        {
            return None;
        }
        let points = &loaded.data.points;
        let spans = spans(points);
        let mut ranges: Vec<(f64, usize)> = spans.iter().enumerate().map(|(at, s)| (s.high - s.low, at)).collect();
        ranges.retain(|(range, _)| *range > 0.0);
        ranges.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (widest, at) = *ranges.last()?;
        let (usual, _) = ranges[(ranges.len() - 1) / 4];
        let name = |at: usize| match loaded.data.names.as_ref().and_then(|names| names.get(at)) {
            Some(name) => format!("feature {} ({name})", at + 1),
            None => format!("feature {}", at + 1),
        };
        // A search over γ finds one that suits features far from 0.
        let by_rule = self.kernel.is_scaled_by_variance() && grid.is_none_or(|grid| grid.gammas.is_empty());
        if by_rule && let Some(far) = misleading(&spans) {
            return Some(format!(
                "{} lies around {}, far from the others, and the default γ is too small for that: consider --scale standard",
                name(far),
                format::number(spans[far].mean, 3)
            ));
        }
        let name = name(at);
        let limit = if points.is_sparse() { UNEVEN_SPARSE } else { UNEVEN };
        (widest > limit * usual).then(|| {
            format!(
                "{name} ranges over {} and a quarter of the features over {} or less, so it decides most distances: consider --scale standard",
                format::number(widest, 3),
                format::number(usual, 3)
            )
        })
    }
}

/// A regression whose predictions for its own training rows are hardly better than one number: a trap where C is small for the
/// spread of the targets. Quantiles and expectiles are not judged by squared errors.
pub(crate) fn learns_nothing(fit: &Fit, data: &Dataset) -> Option<String> {
    let model = fit.model();
    let Targets::Real(targets) = &data.targets else { return None };
    let quantile = matches!(model.loss, Some(LossSpec::Pinball { .. } | LossSpec::Expectile { .. }));
    if model.task != Task::Regress || data.weights.is_some() || quantile {
        return None;
    }
    let n = targets.len().max(1) as f64;
    let mean = targets.iter().sum::<f64>() / n;
    let variance = targets.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
    let share = 1.0 - fit.train_error() / variance;
    (variance > 0.0 && share < LEARNT).then(|| {
        format!(
            "the predictions explain {} % of the variance of the training targets, whose deviation is {}: try a larger -C, or another --gamma",
            format::number(100.0 * share.max(0.0), 2),
            format::number(variance.sqrt(), 3)
        )
    })
}

/// The feature that makes the variance of all values far larger than that within features.
fn misleading(spans: &[Span]) -> Option<usize> {
    let d = spans.len() as f64;
    let mean = spans.iter().map(|s| s.mean).sum::<f64>() / d;
    let within = spans.iter().map(|s| s.variance).sum::<f64>() / d;
    let all = within + spans.iter().map(|s| (s.mean - mean).powi(2)).sum::<f64>() / d;
    let far = |a: &usize, b: &usize| (spans[*a].mean - mean).abs().total_cmp(&(spans[*b].mean - mean).abs());
    if within > 0.0 && within < WITHIN * all { (0..spans.len()).max_by(far) } else { None }
}

/// The values of a feature.
#[derive(Clone, Copy)]
struct Span {
    low: f64,
    high: f64,
    mean: f64,
    variance: f64,
}

/// The span of each feature; values that a sparse row does not store are 0.
fn spans(points: &Points) -> Vec<Span> {
    let (n, d) = (points.len(), points.dims());
    let mut ends = vec![(f64::INFINITY, f64::NEG_INFINITY, 0usize, 0.0); d];
    for row in 0..n {
        points.visit(row, |column, value| {
            let (low, high, count, sum) = &mut ends[column];
            (*low, *high, *count, *sum) = (low.min(value), high.max(value), *count + 1, *sum + value);
        });
    }
    let mean = |sum: f64| sum / n.max(1) as f64;
    // Around the mean, in a pass of its own: features far from 0 would lose their variance to rounding.
    let mut squares = vec![0.0; d];
    for row in 0..n {
        points.visit(row, |column, value| squares[column] += (value - mean(ends[column].3)).powi(2));
    }
    let span = |((low, high, count, sum), square): ((f64, f64, usize, f64), f64)| {
        let (low, high) = match count {
            0 => (0.0, 0.0),
            count if count < n => (low.min(0.0), high.max(0.0)),
            _ => (low, high),
        };
        let absent = (n - count) as f64 * mean(sum).powi(2);
        Span { low, high, mean: mean(sum), variance: mean(square + absent) }
    };
    ends.into_iter().zip(squares).map(span).collect()
}
