//! The steps of a training, in bounded memory, and thinned out for a chart.

use margrave::Step;
use margrave::engine::observe::Recorder;
use serde_json::{Value, json};

use crate::arrays::Arrays;

/// Most steps that are kept; beyond, every other one is dropped.
const MOST: usize = 1 << 16;

/// One step; NaN where a solver has no value.
#[derive(Debug, Clone, Copy)]
struct Point {
    seconds: f64,
    iteration: f64,
    primal: f64,
    dual: f64,
    violation: f64,
    active: f64,
    step_length: f64,
    entries: f64,
    phase: u8,
}

/// The steps of a training.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    kept: Vec<Point>,
    /// Every so many steps are kept.
    stride: u64,
    seen: u64,
    phases: Vec<&'static str>,
}

impl Trace {
    /// Records a step.
    pub(crate) fn push(&mut self, step: &Step) {
        self.stride = self.stride.max(1);
        self.seen += 1;
        let phase = self.phases.iter().position(|name| *name == step.phase).unwrap_or_else(|| {
            self.phases.push(step.phase);
            self.phases.len() - 1
        });
        if !(self.seen - 1).is_multiple_of(self.stride) {
            return;
        }
        if self.kept.len() == MOST {
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.stride *= 2;
        }
        let or = |v: Option<f64>| v.unwrap_or(f64::NAN);
        self.kept.push(Point {
            seconds: step.seconds,
            iteration: step.iteration as f64,
            primal: or(step.primal),
            dual: or(step.dual),
            violation: or(step.violation),
            active: or(step.active.map(|n| n as f64)),
            step_length: or(step.step_length),
            entries: or(step.kernel_entries.map(|n| n as f64)),
            phase: phase.min(255) as u8,
        });
    }

    /// Number of steps seen.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// At most `most` of the kept steps: of each part of the trace the first, the last, and the extremes of primal, dual and
    /// violation.
    fn thinned(&self, most: usize) -> Vec<Point> {
        if self.kept.len() <= most {
            return self.kept.clone();
        }
        let parts = (most / 5).max(1);
        let mut out = Vec::with_capacity(most);
        for part in 0..parts {
            let (from, to) = (part * self.kept.len() / parts, (part + 1) * self.kept.len() / parts);
            let slice = &self.kept[from..to];
            let extreme = |of: fn(&Point) -> f64| {
                let known = slice.iter().enumerate().filter(|(_, p)| of(p).is_finite());
                known.max_by(|a, b| of(a.1).total_cmp(&of(b.1))).map(|(at, _)| at)
            };
            let ends = [Some(0), slice.len().checked_sub(1)];
            let peaks = [extreme(|p| p.primal), extreme(|p| -p.dual), extreme(|p| p.violation)];
            let mut chosen: Vec<usize> = ends.into_iter().chain(peaks).flatten().collect();
            chosen.sort_unstable();
            chosen.dedup();
            out.extend(chosen.into_iter().map(|at| slice[at]));
        }
        out
    }

    /// The trace as arrays; `header` gains what belongs to it.
    pub(crate) fn arrays(&self, most: usize, mut header: Value) -> Vec<u8> {
        let points = self.thinned(most);
        let mut arrays = Arrays::default();
        let doubles: [(&str, fn(&Point) -> f64); 6] = [
            ("seconds", |p| p.seconds),
            ("iteration", |p| p.iteration),
            ("primal", |p| p.primal),
            ("dual", |p| p.dual),
            ("violation", |p| p.violation),
            ("entries", |p| p.entries),
        ];
        for (name, of) in doubles {
            arrays.f64(name, points.iter().map(of));
        }
        arrays.f32("active", points.iter().map(|p| p.active));
        arrays.f32("step_length", points.iter().map(|p| p.step_length));
        arrays.u8("phase", points.iter().map(|p| p.phase));
        header["total"] = json!(self.seen);
        header["phases"] = json!(self.phases);
        arrays.finish(header)
    }

    /// The trace as a history, for a report.
    pub(crate) fn recorder(&self) -> Recorder {
        let some = |v: f64| Some(v).filter(|v| v.is_finite());
        let step = |p: &Point| Step {
            iteration: p.iteration as u64,
            seconds: p.seconds,
            phase: self.phases.get(usize::from(p.phase)).copied().unwrap_or(""),
            violation: some(p.violation),
            primal: some(p.primal),
            dual: some(p.dual),
            active: some(p.active).map(|n| n as usize),
            step_length: some(p.step_length),
            kernel_entries: some(p.entries).map(|n| n as u64),
            fraction: None,
        };
        Recorder { steps: self.kept.iter().map(step).collect(), ..Recorder::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_extremes_survive() {
        let mut trace = Trace::default();
        let n = 3 * MOST as u64;
        for k in 0..n {
            // A spike that any picture must show; at an index that survives halving.
            let primal = if k == 4096 { 1e9 } else { 1.0 + 1.0 / (k + 1) as f64 };
            trace.push(&Step { iteration: k, phase: "smo", primal: Some(primal), dual: Some(0.5), ..Step::default() });
        }
        assert!(trace.kept.len() <= MOST && trace.seen() == n);
        let thin = trace.thinned(1000);
        assert!(thin.len() <= 1000);
        assert!(thin.iter().any(|p| p.primal == 1e9));
        assert!(thin.windows(2).all(|w| w[0].iteration < w[1].iteration));
        assert_eq!(thin[0].iteration, 0.0);
        assert!(trace.arrays(1000, json!({})).len() < 100_000);
    }

    #[test]
    fn a_history_has_the_steps_again() {
        let mut trace = Trace::default();
        trace.push(&Step { iteration: 3, phase: "newton", dual: Some(2.0), active: Some(7), ..Step::default() });
        let history = trace.recorder();
        let step = &history.steps[0];
        assert_eq!((step.iteration, step.phase, step.dual, step.active), (3, "newton", Some(2.0), Some(7)));
        assert_eq!((step.primal, step.violation), (None, None));
    }
}
