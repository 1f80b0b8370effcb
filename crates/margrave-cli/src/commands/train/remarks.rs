//! What to know about the data before relying on a training on it.

use margrave::engine::problem::Task;
use margrave::io::Loaded;
use margrave::{Points, Targets};

use super::Training;
use crate::failure::Flags;
use crate::format;
use crate::options::kernel::KernelName;

/// Whole numbers with more different values than this are rarely names of classes.
const MANY_CLASSES: usize = 20;

/// γ = scale is called misleading where the levels of features are this many times the widest range apart: it follows the
/// variance of all values, and differences within a feature then hardly count.
const APART: f64 = 30.0;

/// Features are called badly scaled where the widest range is this many times the lower quartile of all.
const UNEVEN: f64 = 100.0;

/// Multiply–adds of a core per second, and those of a kernel entry besides its features: rough figures, for a suggestion.
const ENTRIES_PER_SECOND: f64 = 4e10;
const ENTRY_WORK: f64 = 20.0;

impl Training<'_> {
    /// How the file was read, and what about its numbers is often not what was wanted.
    pub(crate) fn remarks(&self, loaded: &Loaded) -> Vec<String> {
        let mut remarks: Vec<String> = loaded.notes.iter().map(|note| note.text(&Flags)).collect();
        remarks.extend(self.many_classes(&loaded.data.targets));
        remarks.extend(self.uneven(loaded));
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

    /// Features on very different scales, where the kernel adds up their differences.
    fn uneven(&self, loaded: &Loaded) -> Option<String> {
        let distances = match self.kernel.kernel {
            KernelName::Rbf | KernelName::Laplacian | KernelName::Matern32 | KernelName::Matern52 => true,
            KernelName::Linear | KernelName::Poly | KernelName::Sigmoid | KernelName::Chi2 => false,
            KernelName::Precomputed => false,
        };
        if !distances
            || self.settings.scale.0.is_some()
            || self.settings.task == Some(Task::Novelty) && self.settings.svdd
        {
            return None;
        }
        let ends = ends(&loaded.data.points);
        let mut ranges: Vec<(f64, usize)> = ends.iter().enumerate().map(|(at, (low, high))| (high - low, at)).collect();
        ranges.retain(|(range, _)| *range > 0.0);
        ranges.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (widest, at) = *ranges.last()?;
        let (usual, _) = ranges[(ranges.len() - 1) / 4];
        let name = |at: usize| match loaded.data.names.as_ref().and_then(|names| names.get(at)) {
            Some(name) => format!("feature {} ({name})", at + 1),
            None => format!("feature {}", at + 1),
        };
        let level = |at: &usize| (ends[*at].0 + ends[*at].1) / 2.0;
        let by_level = |a: &usize, b: &usize| level(a).total_cmp(&level(b));
        let (least, most) = ((0..ends.len()).min_by(by_level)?, (0..ends.len()).max_by(by_level)?);
        if self.kernel.is_scaled_by_variance() && level(&most) - level(&least) > APART * widest {
            let far = if level(&most).abs() > level(&least).abs() { most } else { least };
            return Some(format!(
                "{} lies around {}, far from the others, and the default γ is too small for that: consider --scale standard",
                name(far),
                format::number(level(&far), 3)
            ));
        }
        let name = name(at);
        (widest > UNEVEN * usual).then(|| {
            format!(
                "{name} ranges over {} and a quarter of the features over {} or less, so it decides most distances: consider --scale standard",
                format::number(widest, 3),
                format::number(usual, 3)
            )
        })
    }
}

/// Smallest and largest value of each feature.
fn ends(points: &Points) -> Vec<(f64, f64)> {
    let (n, d) = (points.len(), points.dims());
    let mut seen = vec![(f64::INFINITY, f64::NEG_INFINITY, 0usize); d];
    for row in 0..n {
        points.visit(row, |column, value| {
            let (low, high, count) = &mut seen[column];
            (*low, *high, *count) = (low.min(value), high.max(value), *count + 1);
        });
    }
    let range = |(low, high, count): (f64, f64, usize)| match count {
        0 => (0.0, 0.0),
        // Values that a sparse row does not store are 0.
        count if count < n => (low.min(0.0), high.max(0.0)),
        _ => (low, high),
    };
    seen.into_iter().map(range).collect()
}
