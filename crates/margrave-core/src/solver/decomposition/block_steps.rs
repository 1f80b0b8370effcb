//! Pair steps inside a block, on K over its variables.
//!
//! A step is two passes over the block: with slopes in single precision they take little more than half the time. β is exact
//! all the same, and the slopes of all variables are computed from its change when the block is done. A pass takes one or two
//! microseconds, and threads share it in lockstep.

use super::blocks::POLL_INTERVAL;
use super::pairs;
use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::Status;
use crate::linalg::sweep::Extremes;
use crate::linalg::sweep_single;
use crate::workers::Lockstep;

/// The violation inside a block is reduced to this share.
const BLOCK_REDUCTION: f64 = 0.1;
/// Steps inside a block at most, per variable.
const STEPS_PER_VARIABLE: u64 = 10;
/// Slopes are in single precision if the goal is at least this share of the largest: rounding errors of some ten thousand
/// steps add up to less.
const COARSE_GOAL: f64 = 1e-4;

/// Variables of a stretch, at least: a pass over fewer takes less time than another thread needs to begin it.
const STRETCH: usize = 1024;
/// Most groups of the constraint for which passes are shared: ν-machines have two.
const GROUPS: usize = 2;

/// A pass over the variables of a block.
#[derive(Clone, Copy)]
enum Pass {
    /// The best partner of the variable at `row`, of curvature `own`, which increases at slope `from`.
    Partner { group: u32, row: u32, own: f32, from: f32 },
    /// The slopes after two variables have moved, and their extremes.
    Update([Moved; 2]),
}

/// A variable that has moved.
#[derive(Clone, Copy, Default)]
struct Moved {
    /// Its position.
    at: u32,
    by: f32,
    /// The change of its own slope besides that by K.
    own: f32,
    up: f32,
    down: f32,
}

/// What a pass finds in a stretch: with what threads need besides, one cache line.
#[derive(Clone, Copy)]
struct Found {
    /// Gain, position and slope of a partner; none if the gain is 0.
    gain: f32,
    partner: u32,
    fall: f32,
    /// The slope of the variable that is to move up; not a number if it is elsewhere.
    rise: f32,
    extremes: [SingleExtremes; GROUPS],
}

/// [`Extremes`] of slopes in single precision.
#[derive(Clone, Copy)]
struct SingleExtremes {
    up: f32,
    up_at: u32,
    down: f32,
    down_at: u32,
}

impl Found {
    const NO_EXTREMES: SingleExtremes =
        SingleExtremes { up: f32::INFINITY, up_at: 0, down: f32::NEG_INFINITY, down_at: 0 };
    const NOTHING: Self =
        Self { gain: 0.0, partner: 0, fall: 0.0, rise: f32::NAN, extremes: [Self::NO_EXTREMES; GROUPS] };
}

/// The slopes of some variables of a block, neighbours, in single precision. Threads share a pass by stretches; what they find does not
/// depend on how many there are.
struct Stretch {
    /// Position of the first variable.
    from: usize,
    g: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
    diag: Vec<f32>,
    /// The part of each group's range that lies in the stretch, counted from its first variable.
    ranges: Vec<(usize, usize)>,
}

impl Stretch {
    /// The variables of `part`, shared by up to `threads` threads.
    fn divide(part: &DualState, threads: usize) -> Vec<Self> {
        let m = part.active.len();
        let count = (m / STRETCH).clamp(1, threads.max(1));
        let length = m.div_ceil(count).max(1);
        let single = |values: &[f64]| values.iter().map(|v| *v as f32).collect();
        let stretch = |k: usize| {
            let (from, to) = (k * length, m.min((k + 1) * length));
            let within = |&(first, end): &(usize, usize)| (first.clamp(from, to) - from, end.clamp(from, to) - from);
            Self {
                from,
                g: single(&part.g[from..to]),
                up: single(&part.up[from..to]),
                down: single(&part.down[from..to]),
                diag: part.diag[from..to].to_vec(),
                ranges: part.ranges.iter().map(within).collect(),
            }
        };
        (0..m.div_ceil(length).max(1)).map(stretch).collect()
    }

    /// Does what a pass is to do, with `block` the matrix of all `m` variables.
    fn run<T: StoredEntry>(&mut self, pass: Pass, block: &[T], m: usize) -> Found {
        let (offset, length) = (self.from, self.g.len());
        let row = |a: u32| &block[a as usize * m + offset..a as usize * m + offset + length];
        let place = |a: u32| (a as usize).checked_sub(offset).filter(|k| *k < length);
        let mut found = Found::NOTHING;
        match pass {
            Pass::Partner { group, row: a, own, from: slope } => {
                let (from, to) = self.ranges[group as usize];
                let (g, down, diag) = (&self.g[from..to], &self.down[from..to], &self.diag[from..to]);
                let floor = pairs::least_curvature(own);
                let best = sweep_single::best_partner(g, down, &row(a)[from..to], diag, own, slope, floor);
                if let Some((gain, at)) = best {
                    (found.gain, found.partner, found.fall) = (gain, (offset + from + at) as u32, g[at] + down[at]);
                }
                if let Some(k) = place(a) {
                    found.rise = self.g[k] + self.up[k];
                }
            }
            Pass::Update([i, j]) => {
                for moved in [i, j] {
                    if let Some(k) = place(moved.at) {
                        self.g[k] += moved.own;
                        (self.up[k], self.down[k]) = (moved.up, moved.down);
                    }
                }
                let (ki, kj) = (row(i.at), row(j.at));
                for (&(from, to), found) in self.ranges.iter().zip(&mut found.extremes) {
                    let (up, down) = (&self.up[from..to], &self.down[from..to]);
                    let g = &mut self.g[from..to];
                    let e = sweep_single::update_pair(g, &ki[from..to], i.by, &kj[from..to], j.by, up, down);
                    *found = SingleExtremes {
                        up: e.up as f32,
                        up_at: (e.up_at + offset + from) as u32,
                        down: e.down as f32,
                        down_at: (e.down_at + offset + from) as u32,
                    };
                }
            }
        }
        found
    }
}

/// One step on the pair that violates most; `false` if nothing moved.
fn step_in_single<T: StoredEntry>(
    stretches: &mut Lockstep<'_, Stretch, Pass, Found>,
    part: &mut DualState,
    e: &mut [Extremes],
    block: &[T],
) -> bool {
    let group = pairs::worst_group(e);
    let a = e[group].up_at;
    let search = Pass::Partner { group: group as u32, row: a as u32, own: part.diag[a], from: e[group].up as f32 };
    let (mut best, mut rise) = (Found::NOTHING, f32::NAN);
    for found in stretches.pass(search) {
        // The first of equal ones.
        best = if found.gain > best.gain { *found } else { best };
        rise = if found.rise.is_nan() { rise } else { found.rise };
    }
    if !(best.gain > 0.0) {
        return false;
    }
    let (b, slope) = (best.partner as usize, f64::from(rise) - f64::from(best.fall));
    let cross = block[a * part.active.len() + b].wide();
    let Some((di, dj)) = pairs::step_along_pair(part, (a, b), slope, cross) else { return false };
    let moved = |at: usize, by: f64| Moved {
        at: at as u32,
        by: by as f32,
        own: (part.terms[part.active[at] as usize].d * by) as f32,
        up: part.up[at] as f32,
        down: part.down[at] as f32,
    };
    let mut extremes = [Found::NO_EXTREMES; GROUPS];
    for found in stretches.pass(Pass::Update([moved(a, di), moved(b, dj)])) {
        for (e, own) in extremes.iter_mut().zip(&found.extremes) {
            if own.up < e.up {
                (e.up, e.up_at) = (own.up, own.up_at);
            }
            if own.down > e.down {
                (e.down, e.down_at) = (own.down, own.down_at);
            }
        }
    }
    for (e, SingleExtremes { up, up_at, down, down_at }) in e.iter_mut().zip(extremes) {
        *e = Extremes { up: up.into(), up_at: up_at as usize, down: down.into(), down_at: down_at as usize };
    }
    true
}

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Pair steps among the variables of a block. `rough`: the slopes afterwards do not matter.
    pub(super) fn solve_block(
        &mut self,
        part: &mut DualState,
        block: &[T],
        until: f64,
        rough: bool,
    ) -> Result<(), Status> {
        let m = part.active.len();
        let violation = part.violation(&part.extremes());
        let goal = (BLOCK_REDUCTION * violation).max(0.5 * until);
        let largest = part.g.iter().fold(0.0f64, |w, g| w.max(g.abs()));
        let coarse = rough && goal >= COARSE_GOAL * largest && largest < 1e30;
        if coarse && part.paired && part.ranges.len() <= GROUPS && size_of::<T>() == 4 {
            let threads = self.control.threads.clone();
            let (stretches, idle) = (Stretch::divide(part, threads.count()), Pass::Update([Moved::default(); 2]));
            let mut ended = Ok(());
            threads.lockstep(stretches, (idle, Found::NOTHING), &|s, pass| s.run(pass, block, m), &mut |stretches| {
                ended = self.steps_in_block(part, goal, |part, e| step_in_single(stretches, part, e, block));
            });
            return ended;
        }
        let row = |a: usize| &block[a * m..(a + 1) * m];
        self.steps_in_block(part, goal, |part, e| {
            if part.paired {
                let group = pairs::worst_group(e);
                let a = e[group].up_at;
                pairs::partner(part, &e[group], group, row(a))
                    .is_some_and(|b| pairs::move_pair(part, e, (a, b), row(a), row(b)))
            } else {
                let a = pairs::steepest(&e[0]);
                pairs::move_one(part, e, row(a))
            }
        })
    }

    /// Takes steps until the violation is at most `goal`, none moves anything, or there have been many.
    fn steps_in_block(
        &mut self,
        part: &mut DualState,
        goal: f64,
        mut take_step: impl FnMut(&mut DualState, &mut [Extremes]) -> bool,
    ) -> Result<(), Status> {
        let m = part.active.len();
        let mut e = part.extremes();
        for step in 0..STEPS_PER_VARIABLE * m as u64 {
            if part.violation(&e) <= goal {
                break;
            }
            if self.iterations >= self.iteration_limit {
                return Err(Status::IterationLimit);
            }
            if step % POLL_INTERVAL == POLL_INTERVAL - 1 {
                self.control.check().map_err(Status::from)?;
            }
            if !take_step(part, &mut e) {
                break;
            }
            self.control.spend(pairs::multiply_adds(m));
            self.iterations += 1;
        }
        Ok(())
    }
}
