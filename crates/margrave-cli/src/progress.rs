//! Progress on stderr: an observer that draws on a terminal, for computations of more than a second.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use margrave::engine::control::Status;
use margrave::engine::observe::{Begin, Observer, Step};

use crate::format;
use crate::terminal::Terminal;

/// Nothing is shown before this much time has passed.
const DELAY: Duration = Duration::from_secs(1);

/// Shows phase, iteration, progress and an estimate of the time left.
pub(crate) struct Progress {
    shown: bool,
    begun: Instant,
    bar: Option<ProgressBar>,
    target: Option<f64>,
    /// Seconds and log violation when the violation was first seen: the line to extrapolate.
    first: Option<(f64, f64)>,
}

impl Progress {
    pub(crate) fn new(terminal: &Terminal) -> Self {
        Self { shown: terminal.shows_progress(), begun: Instant::now(), bar: None, target: None, first: None }
    }

    fn text(&mut self, step: &Step) -> String {
        let mut parts = vec![step.phase.to_owned()];
        if step.iteration > 0 {
            parts.push(format!("step {}", format::count(step.iteration)));
        }
        if let Some(active) = step.active {
            parts.push(format!("{} active", format::count(active as u64)));
        }
        let mut left = None;
        if let Some(done) = step.fraction {
            parts.push(format!("{:.0} %", 100.0 * done));
            if done > 0.02 {
                left = Some(step.seconds * (1.0 - done) / done);
            }
        } else if let Some(violation) = step.violation {
            let goal = self.target.map(|t| format!(" → {}", format::number(t, 2))).unwrap_or_default();
            parts.push(format!("violation {}{goal}", format::number(violation, 2)));
            left = self.time_left(step.seconds, violation);
        } else if let Some(entries) = step.kernel_entries {
            parts.push(format!("{} kernel entries", format::count(entries)));
        }
        if let Some(seconds) = left {
            parts.push(format!("about {} left", format::duration(seconds)));
        }
        parts.join(" · ")
    }

    /// Violations fall roughly geometrically: extend the line through the first and the present one, on a log scale.
    fn time_left(&mut self, seconds: f64, violation: f64) -> Option<f64> {
        let goal = self.target?.ln();
        if !(violation > 0.0) {
            return None;
        }
        let now = violation.ln();
        let (since, from) = *self.first.get_or_insert((seconds, now));
        let (run, fall) = (seconds - since, from - now);
        (run > 0.5 && fall > 0.2 && now > goal).then(|| run * (now - goal) / fall)
    }
}

impl Observer for Progress {
    fn begin(&mut self, begin: &Begin) -> ControlFlow<()> {
        self.begun = Instant::now();
        self.target = begin.tol;
        self.first = None;
        ControlFlow::Continue(())
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        if self.shown && self.begun.elapsed() >= DELAY {
            let text = self.text(step);
            let bar = self.bar.get_or_insert_with(|| {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
                let style = ProgressStyle::with_template("{spinner} {elapsed} · {msg}");
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                bar
            });
            bar.set_message(text);
            bar.tick();
        }
        ControlFlow::Continue(())
    }

    fn finish(&mut self, _status: Status, _last: &Step) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_extends_a_geometric_fall() {
        let mut p = Progress { shown: false, begun: Instant::now(), bar: None, target: Some(1e-3), first: None };
        assert_eq!(p.time_left(0.0, 1.0), None);
        // A decade in one second: two more decades, two more seconds.
        let left = p.time_left(1.0, 0.1).unwrap();
        assert!((left - 2.0).abs() < 1e-9, "{left}");
        assert_eq!(p.time_left(3.0, 1e-4), None);
    }
}
