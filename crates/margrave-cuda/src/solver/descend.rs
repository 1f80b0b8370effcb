//! The course of Newton's method on the primal objective: how wide losses are smoothed, and when it ends.

use margrave_core::gram::{DeviceProblem, DeviceStep};

use super::{MOST_ROUNDS, Run, TINY_STEP};
use crate::gram::Stop;
use crate::phases::phase;

/// The first width, and the one of every level but the last, relative to the violation of β = 0.
const FIRST_WIDTH: f64 = 2.0;
const LEVEL_WIDTH: f64 = 0.05;
/// The width of the last level, likewise, over the root of the gap that is asked for, and its least value: narrower ones come later.
const GAP_WIDTH: f64 = 1.1;
const LAST_WIDTH: f64 = 0.02;
/// The least width, likewise: sets are found by then.
const LEAST_WIDTH: f64 = 5e-4;
/// Widths shrink by this factor until that of the level is reached.
const NARROWER: f64 = 0.3;
/// A level ends when the objective falls by less than this share of ½αᵀKα with a step.
const SETTLED: f64 = 0.02;
/// Most steps on a level.
const MOST_STEPS: usize = 60;
/// The method does not suit problems with a larger share of the variables between the ends of their boxes, at the width of a level and
/// at a few times that.
const MANY: f64 = 0.5;
const MANY_EARLY: f64 = 0.6;
/// A width is done with when a whole step does not make the gap smaller than this share of it.
const BETTER: f64 = 0.7;
/// Steps that lead nowhere after which it ends.
const MOST_STUCK: usize = 4;
/// Most verdicts.
const MOST_VERDICTS: usize = 4;

/// The scales of a problem.
#[derive(Debug, Clone, Copy)]
pub(super) struct Smoothing {
    /// The violation of β = 0.
    violation: f64,
    /// The mean extent of the boxes.
    across: f64,
}

impl Smoothing {
    /// `None` if there is a variable without bounds and without curvature, or nothing to do.
    pub(super) fn of(problem: &DeviceProblem<'_>) -> Option<Self> {
        let (mut up, mut down, mut across) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        for t in problem.terms {
            let bounded = t.lo.is_finite() && t.hi.is_finite();
            if !bounded && t.d <= 0.0 {
                return None;
            }
            if t.hi > 0.0 {
                up = up.min(t.p + t.eps);
            }
            if t.lo < 0.0 {
                down = down.max(t.p - t.eps);
            }
            across += if bounded { t.hi - t.lo } else { 1.0 / t.d };
        }
        let violation = if problem.keeps_sum { down - up } else { down.max(-up) };
        let across = across / problem.terms.len() as f64;
        (violation > 0.0 && violation.is_finite() && across > 0.0).then_some(Self { violation, across })
    }
}

/// How steps over some of the variables ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ended {
    /// The goal was reached.
    Reached,
    /// It was not.
    Short,
    /// Most variables are between the ends of their boxes: rounds over sets cost less.
    Unsuited,
}

impl Run<'_> {
    /// Steps over the first m variables; on the last level until the point is good enough. Whether that was reached. Where the
    /// method does not suit the problem it is given up for good.
    pub(super) fn descend(&mut self, m: usize, last: bool) -> Result<bool, Stop> {
        let Some(scales) = self.smoothing else { return Ok(false) };
        let (now, new) = (self.rounds.violation(m)?, self.rounds.primal.is_none());
        let first = FIRST_WIDTH * now.min(scales.violation);
        self.rounds.begin_primal(m, first, scales.across)?;
        let ended = self.steps(m, last, new, scales)?;
        if ended == Ended::Unsuited {
            self.rounds.finish_primal(m)?;
            (self.rounds.primal, self.rounds.smoothable) = (None, false);
        } else if last && self.rounds.infeasible {
            self.rounds.finish_primal(m)?;
        } else if !last {
            self.rounds.end_primal(m)?;
        }
        Ok(ended == Ended::Reached)
    }

    fn steps(&mut self, m: usize, last: bool, new: bool, scales: Smoothing) -> Result<Ended, Stop> {
        let least = LEAST_WIDTH * scales.violation;
        let by_gap = self.gap.filter(|_| last).map_or(LEVEL_WIDTH, |gap| (GAP_WIDTH * gap.sqrt()).max(LAST_WIDTH));
        let level = scales.violation * LEVEL_WIDTH.min(by_gap);
        if self.rounds.width() <= 1.01 * LEVEL_WIDTH * scales.violation {
            self.rounds.set_width(level.min(self.rounds.width()));
        }
        let (mut stuck, mut least_gap) = (0, f64::INFINITY);
        for count in 0..MOST_STEPS {
            let accurate = self.rounds.is_accurate();
            // Begun from a point that is nearly right, the first step tells.
            let early = new && count == 0 && self.rounds.width() <= level;
            let limit = if early { (MANY * m as f64) as usize } else { usize::MAX };
            let Some(step) = self.rounds.primal_newton(m, limit)? else {
                return Ok(if early { Ended::Unsuited } else { Ended::Short });
            };
            self.count += 1;
            let width = self.rounds.width();
            self.report.step(DeviceStep { rounds: self.count, violation: width, rows: m })?;
            if step.size == 0 {
                self.rounds.scale_width(2.0);
                continue;
            }
            let settled = step.decrease <= SETTLED * step.energy;
            // What is left may be due to systems that were not solved accurately.
            let stalled = step.length < TINY_STEP && accurate;
            stuck += usize::from(stalled);
            if stuck >= MOST_STUCK {
                return Ok(Ended::Short);
            }
            self.rounds.set_accurate(step.length < TINY_STEP || (last && settled));
            let most = if width > level { MANY_EARLY } else { MANY };
            if new && settled && width <= 4.0 * level && step.size as f64 > most * m as f64 {
                return Ok(Ended::Unsuited);
            }
            if width > level {
                if settled {
                    self.rounds.scale_width(NARROWER.max(level / width));
                }
                continue;
            }
            match (last, settled) {
                (false, true) => return Ok(Ended::Reached),
                (true, true) if step.length == 1.0 || stalled => {}
                _ => continue,
            }
            self.rounds.finish_primal(m)?;
            let (violation, gap) = self.rounds.quality()?;
            if self.looks_good()? {
                return Ok(Ended::Reached);
            }
            // Variables that have left their boxes are a part of the point until the last whole step has put them right.
            self.rounds.undo_finish(m)?;
            // While whole steps still make it better, they go on.
            let better = gap < BETTER * least_gap;
            least_gap = least_gap.min(gap);
            if stalled || !better {
                least_gap = f64::INFINITY;
                let by_gap = self.gap.map_or(1.0, |wanted| (0.5 * wanted / gap).sqrt());
                let by_violation = self.problem.tol.map_or(1.0, |wanted| 0.5 * wanted / violation);
                self.rounds.scale_width(by_gap.min(by_violation).clamp(0.1, 0.7));
                if self.rounds.width() < least {
                    return Ok(Ended::Short);
                }
            }
        }
        Ok(Ended::Short)
    }

    /// Double precision and verdict; what is missing is left to rounds over sets.
    pub(super) fn settle_primal(&mut self, n: usize) -> Result<Option<Vec<f64>>, Stop> {
        for _ in 0..MOST_VERDICTS {
            let (beta, found) = phase("refresh", 0.0, None, || self.rounds.refresh(self.report))?;
            if !self.looks_good()? {
                break;
            }
            if phase("verdict", 0.0, None, || self.report.verdict(&beta, &found)) {
                return Ok(Some(found));
            }
            let (_, gap) = self.rounds.quality()?;
            self.gap = self.gap.map(|_| 0.5 * gap);
            self.rounds.scale_width(0.7);
            if !self.descend(n, true)? {
                break;
            }
        }
        let across = self.smoothing.map_or(1.0, |scales| scales.across);
        self.rounds.proximal = 0.1 * self.rounds.width() / across;
        self.level(n, self.problem.violation, MOST_ROUNDS, false)?;
        self.settle(n)
    }
}
