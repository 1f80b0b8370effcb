//! Blocks and products over packed points: how a request becomes tasks, and tasks become calls of the register tiles.

use std::any::TypeId;
use std::ops::Range;
use std::sync::OnceLock;

use super::pack::{GROUP, PackedRows, Panels, View};
use super::plan::{Item, Plan};
use super::product::{self, Block};
use super::simd::Level;
use super::tile::{Engine, Job, PanelRun, Sum};
use crate::control::{Control, Interrupt};
use crate::data::Real;
use crate::gram::Pick;
use crate::kernel::Kernel;

/// Rows packed at a time for a block.
const SLAB: usize = 1024;
/// Multiply-adds worth handing to another thread: some 30 µs.
const TASK: usize = 1 << 20;

/// A packed Gram in one precision, for the time of one request.
pub(crate) struct Tiled<'a, T> {
    pub(crate) kernel: Kernel,
    pub(crate) sum: Sum,
    pub(crate) level: Level,
    pub(crate) rows: View<'a>,
    pub(crate) cols: View<'a>,
    pub(crate) panels: &'a Panels<T>,
    pub(crate) control: &'a Control,
}

/// An output that tasks write disjoint parts of.
#[derive(Clone, Copy)]
pub(crate) struct Shared<O>(pub(crate) *mut O);
// SAFETY: used only to write disjoint parts of a slice that the request borrows mutably.
unsafe impl<O: Send> Sync for Shared<O> {}
// SAFETY: as above.
unsafe impl<O: Send> Send for Shared<O> {}

impl<O> Shared<O> {
    pub(crate) fn at(&self, offset: usize) -> *mut O {
        self.0.wrapping_add(offset)
    }
}

/// Calls `work` for every task until one is interrupted; on the caller's thread alone where `alone`.
pub(crate) fn each_task(
    control: &Control,
    tasks: usize,
    alone: bool,
    work: impl Fn(usize) -> Result<(), Interrupt> + Sync,
) -> Result<(), Interrupt> {
    if alone {
        return (0..tasks).try_for_each(work);
    }
    let stopped = OnceLock::new();
    control.threads.each(tasks, |task| {
        if stopped.get().is_none()
            && let Err(why) = work(task)
        {
            // Another task may have been first: its reason is as good.
            let _ = stopped.set(why);
        }
    });
    stopped.into_inner().map_or(Ok(()), Err)
}

impl<T: Engine> Tiled<'_, T> {
    /// Row groups whose values fit half of a second-level cache of half a megabyte, at most 16.
    fn groups(&self) -> usize {
        let line = self.d().max(1) * GROUP * size_of::<T>();
        ((256 << 10) / line).clamp(1, 16)
    }

    fn d(&self) -> usize {
        self.cols.points.dims()
    }

    fn job<'b>(&self, rows: &'b PackedRows<T>) -> Job<'b, T> {
        Job { kernel: self.kernel, sum: self.sum, d: self.d(), rows }
    }

    /// `out[r·len(cols) + c] = K[rows[r], cols[c]]`, rounded to `O`.
    pub(crate) fn block<O: Real>(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [O]) -> Result<(), Interrupt> {
        let (n, m, d) = (self.rows.points.len(), self.cols.points.len(), self.d());
        let (height, width) = (rows.len(n), cols.len(m));
        assert_eq!(out.len(), height * width, "the output of a block must have one place an entry");
        if out.is_empty() {
            return self.control.check();
        }
        let panel_work = d.max(16) * T::NR;
        let fit = (192 << 10) / (panel_work * size_of::<T>());
        let longest = fit.max(TASK / (height.min(SLAB) * panel_work)).max(1);
        let plan = Plan::new(cols, m, height, T::NR, longest);
        let chunks = plan.chunks(longest);
        let alone = height * width * d.max(16) < 2 * TASK;
        let to = Shared(out.as_mut_ptr());
        for first in (0..height).step_by(SLAB) {
            let count = SLAB.min(height - first);
            let packed = PackedRows::new(self.rows, self.level, count, |i| rows.get(first + i));
            let groups = packed.groups();
            let blocks = groups.div_ceil(self.groups());
            // Few columns: share out the rows as well.
            let split = if chunks.len() >= 16 { 1 } else { blocks.min(16usize.div_ceil(chunks.len())) };
            let share = blocks.div_ceil(split) * self.groups();
            each_task(self.control, chunks.len() * split, alone, |task| {
                let from = (task % split) * share;
                let groups = from.min(groups)..(from + share).min(groups);
                let items = &plan.items[chunks[task / split].clone()];
                let lines = Shared(to.at(first * width));
                self.fill(&self.job(&packed), groups, &plan, items, lines, width)
            })?;
        }
        Ok(())
    }

    /// One task of [`Tiled::block`]: `items` of the plan for some row groups; `to` is the line of row 0 of the job.
    fn fill<O: Real>(
        &self,
        job: &Job<'_, T>,
        groups: Range<usize>,
        plan: &Plan,
        items: &[Item],
        to: Shared<O>,
        width: usize,
    ) -> Result<(), Interrupt> {
        let same = TypeId::of::<T>() == TypeId::of::<O>();
        let tall = self.groups().min(groups.len()) * GROUP;
        let mut scratch = vec![T::default(); tall * T::NR];
        let mut entries = Vec::new();
        let mut fresh = Fresh::default();
        for item in items {
            let run = self.run(plan, item, &mut fresh);
            for from in groups.clone().step_by(self.groups()) {
                self.control.check()?;
                let block = from..(from + self.groups()).min(groups.end);
                let first = block.start * GROUP;
                let height = job.rows.len().min(block.end * GROUP) - first;
                if let (Item::Run { at, .. }, true) = (item, same) {
                    let to = to.at(first * width + at).cast::<T>();
                    // SAFETY: `self.level` is one the processor has; the run's columns lie inside each output line, lines `first..`
                    // of which belong to this task alone; O is T.
                    unsafe { T::tiles(self.level, job, block, run, to, width, &mut scratch) };
                    continue;
                }
                entries.resize(tall * T::NR, T::default());
                for p in 0..run.count {
                    let one = PanelRun {
                        values: &run.values[p * job.d * T::NR..(p + 1) * job.d * T::NR],
                        norms: &run.norms[p * T::NR..(p + 1) * T::NR],
                        count: 1,
                    };
                    // SAFETY: `entries` has `tall` lines of NR; the processor has the level.
                    unsafe {
                        T::tiles(self.level, job, block.clone(), one, entries.as_mut_ptr(), T::NR, &mut scratch);
                    }
                    for r in 0..height {
                        let line = &entries[r * T::NR..(r + 1) * T::NR];
                        let put = |at: usize, value: T| {
                            // SAFETY: `at` is a position of the request, inside the line of a row of this task.
                            unsafe { to.at((first + r) * width + at).write(O::from_f64(value.to_f64())) };
                        };
                        match *item {
                            Item::Run { at, .. } => {
                                line.iter().enumerate().for_each(|(j, value)| put(at + p * T::NR + j, *value));
                            }
                            Item::Part { panel, from, until } => {
                                for i in from..until {
                                    put(plan.at[i] as usize, line[plan.columns[i] as usize - panel * T::NR]);
                                }
                            }
                            Item::Gather { from, until } => {
                                (from..until).zip(line).for_each(|(i, value)| put(plan.at[i] as usize, *value));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The panels of an item; columns to be gathered are packed into `fresh`.
    fn run<'b>(&'b self, plan: &Plan, item: &Item, fresh: &'b mut Fresh<T>) -> PanelRun<'b, T> {
        match *item {
            Item::Run { first, count, .. } => self.panels.run(first, count),
            Item::Part { panel, .. } => self.panels.run(panel, 1),
            Item::Gather { from, until } => {
                fresh.values.resize(self.d() * T::NR, T::default());
                fresh.norms.resize(T::NR, T::default());
                let list = &plan.columns[from..until];
                Panels::gather(self.cols, self.level, list, &mut fresh.values, &mut fresh.norms);
                PanelRun { values: &fresh.values, norms: &fresh.norms, count: 1 }
            }
        }
    }

    /// `out = K[rows, :]·V`; returns how many entries that took.
    pub(crate) fn apply(&self, rows: Pick<'_>, v: &[f64], k: usize, out: &mut [f64]) -> Result<u64, Interrupt> {
        /// Rows from which it pays to pack the columns in use once more.
        const MANY: usize = 64;
        let (n, m) = (self.rows.points.len(), self.cols.points.len());
        let height = rows.len(n);
        assert_eq!((v.len(), out.len()), (m * k, height * k), "V must be m × k and the output rows × k");
        let active: Vec<u32> =
            (0..m as u32).filter(|&j| v[j as usize * k..(j as usize + 1) * k].iter().any(|x| *x != 0.0)).collect();
        if active.is_empty() || height == 0 {
            out.fill(0.0);
            return self.control.check().map(|()| 0);
        }
        let entries = (height * active.len()) as u64;
        if active.len() * 4 >= 3 * m {
            self.multiply(rows, Pick::All, m, v, k, out)?;
        } else if height <= MANY {
            self.multiply(rows, Pick::List(&active), m, v, k, out)?;
        } else {
            let chosen = self.cols.points.gather(&active);
            let view = View { points: &chosen, centre: self.cols.centre };
            let panels = Panels::new(view, self.level, self.control)?;
            let part = Tiled { cols: view, panels: &panels, ..*self };
            let mut compact = Vec::with_capacity(active.len() * k);
            active.iter().for_each(|&j| compact.extend_from_slice(&v[j as usize * k..(j as usize + 1) * k]));
            part.multiply(rows, Pick::All, active.len(), &compact, k, out)?;
        }
        Ok(entries)
    }

    /// Panels whose entries for `tall` rows fill half a first-level cache or so.
    fn strip(tall: usize) -> usize {
        ((32 << 10) / (tall * T::NR * size_of::<T>())).max(1)
    }

    fn multiply(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        m: usize,
        v: &[f64],
        k: usize,
        out: &mut [f64],
    ) -> Result<(), Interrupt> {
        let height = out.len() / k;
        let tall = (self.groups() * GROUP).min(height.div_ceil(GROUP) * GROUP);
        let longest = Self::strip(tall);
        let plan = Plan::new(cols, m, height, T::NR, longest);
        let blocks = height.div_ceil(tall);
        // Few rows: share out the columns as well. The parts depend on the shape alone, so sums do too.
        let parts = if blocks >= 8 { 1 } else { plan.items.len().clamp(1, 8 / blocks) };
        let share = plan.items.len().div_ceil(parts);
        let alone = height * cols.len(m) * self.d().max(16) < 2 * TASK;
        let mut sums = vec![0.0; parts * height * k];
        let to = Shared(sums.as_mut_ptr());
        each_task(self.control, blocks * parts, alone, |task| {
            let (block, part) = (task / parts, task % parts);
            let first = block * tall;
            let count = tall.min(height - first);
            let packed = PackedRows::new(self.rows, self.level, count, |i| rows.get(first + i));
            let items = (part * share).min(plan.items.len())..((part + 1) * share).min(plan.items.len());
            // SAFETY: each task has its own lines of its own part.
            let sums = unsafe { std::slice::from_raw_parts_mut(to.at((part * height + first) * k), count * k) };
            self.strips(&packed, &plan, &plan.items[items], |block, item| {
                let lanes = lanes(&plan, item, v, k, T::NR);
                product::times(self.level, block, &lanes, k, sums);
            })
        })?;
        out.fill(0.0);
        for part in sums.chunks(height * k) {
            out.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
        }
        Ok(())
    }

    /// Computes the entries of all packed rows against each item in turn and hands them to `use_strip`.
    fn strips<'p>(
        &self,
        packed: &PackedRows<T>,
        plan: &Plan,
        items: &'p [Item],
        mut use_strip: impl FnMut(Block<'_, T>, &'p Item),
    ) -> Result<(), Interrupt> {
        let job = self.job(packed);
        let groups = packed.groups();
        let mut scratch = vec![T::default(); groups * GROUP * T::NR];
        let mut strip = Vec::new();
        let mut fresh = Fresh::default();
        for item in items {
            self.control.check()?;
            let run = self.run(plan, item, &mut fresh);
            let width = run.count * T::NR;
            strip.resize((groups * GROUP * width).max(strip.len()), T::default());
            // SAFETY: `strip` has a line of `width` for every row; the processor has the level.
            unsafe { T::tiles(self.level, &job, 0..groups, run, strip.as_mut_ptr(), width, &mut scratch) };
            use_strip(Block { values: &strip, stride: width, rows: packed.len(), width }, item);
        }
        Ok(())
    }

    /// `out = Kᵀ·V`, or `Kᵀ·diag(w)·K·V` where `weights` are given; returns how many entries that took.
    pub(crate) fn transposed(
        &self,
        weights: Option<&[f64]>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
    ) -> Result<u64, Interrupt> {
        let (n, m) = (self.rows.points.len(), self.cols.points.len());
        assert_eq!(out.len(), m * k, "the output must be m × k");
        assert_eq!(v.len(), if weights.is_some() { m } else { n } * k, "V must have a line a row");
        let used: Vec<u32> = (0..n as u32)
            .filter(|&i| match weights {
                Some(w) => w[i as usize] != 0.0,
                None => v[i as usize * k..(i as usize + 1) * k].iter().any(|x| *x != 0.0),
            })
            .collect();
        out.fill(0.0);
        if used.is_empty() || out.is_empty() {
            return self.control.check().map(|()| 0);
        }
        // Whole lines of K are kept for the second product, so their height is limited by the cache they should stay in.
        let line = m.div_ceil(T::NR) * T::NR;
        let fit = ((4 << 20) / (line * size_of::<T>())).clamp(GROUP, 64) / GROUP * GROUP;
        let tall = if weights.is_some() { fit } else { self.groups() * GROUP };
        let plan = Plan::new(Pick::All, m, n, T::NR, Self::strip(tall));
        // The parts depend on the shape alone; their memory is at most 16 outputs.
        let blocks = used.len().div_ceil(tall);
        let share = blocks.div_ceil(blocks.min(16));
        let parts = blocks.div_ceil(share);
        let mut sums = vec![0.0; parts * line * k];
        let to = Shared(sums.as_mut_ptr());
        let alone = used.len() * m * self.d().max(16) < 2 * TASK;
        each_task(self.control, parts, alone, |part| {
            // SAFETY: each task has its own part.
            let sums = unsafe { std::slice::from_raw_parts_mut(to.at(part * line * k), line * k) };
            let mut kept = vec![T::default(); if weights.is_some() { tall * line } else { 0 }];
            for block in part * share..((part + 1) * share).min(blocks) {
                let first = block * tall;
                let count = tall.min(used.len() - first);
                let chosen = &used[first..first + count];
                let packed = PackedRows::new(self.rows, self.level, count, |i| chosen[i] as usize);
                let mut scores = vec![0.0; count * k];
                let Some(w) = weights else {
                    for (i, row) in chosen.iter().enumerate() {
                        scores[i * k..(i + 1) * k].copy_from_slice(&v[*row as usize * k..(*row as usize + 1) * k]);
                    }
                    self.strips(&packed, &plan, &plan.items, |block, item| {
                        let at = start(item, T::NR);
                        product::times_transposed(self.level, block, &scores, k, &mut sums[at * k..]);
                    })?;
                    continue;
                };
                self.strips(&packed, &plan, &plan.items, |block, item| {
                    let lanes = lanes(&plan, item, v, k, T::NR);
                    product::times(self.level, block, &lanes, k, &mut scores);
                    let at = start(item, T::NR);
                    for r in 0..block.rows {
                        let from = &block.values[r * block.stride..r * block.stride + block.width];
                        kept[r * line + at..r * line + at + block.width].copy_from_slice(from);
                    }
                })?;
                for (i, row) in chosen.iter().enumerate() {
                    scores[i * k..(i + 1) * k].iter_mut().for_each(|z| *z *= w[*row as usize]);
                }
                for item in &plan.items {
                    let at = start(item, T::NR);
                    let width = item.panels() * T::NR;
                    let block = Block { values: &kept[at..], stride: line, rows: count, width };
                    product::times_transposed(self.level, block, &scores, k, &mut sums[at * k..]);
                }
            }
            Ok(())
        })?;
        for part in sums.chunks(line * k) {
            out.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
        }
        Ok((used.len() * m) as u64)
    }
}

/// First column of an item of a plan over all columns.
fn start(item: &Item, nr: usize) -> usize {
    match *item {
        Item::Run { first, .. } => first * nr,
        Item::Part { panel, .. } => panel * nr,
        Item::Gather { .. } => unreachable!("a plan over all columns gathers none"),
    }
}

/// The lines of V that belong to the lanes of an item, zero for lanes nobody asked for.
fn lanes<'v>(plan: &Plan, item: &Item, v: &'v [f64], k: usize, nr: usize) -> std::borrow::Cow<'v, [f64]> {
    let (first, from, until) = match *item {
        Item::Run { first, count, .. } => return v[first * nr * k..(first + count) * nr * k].into(),
        Item::Part { panel, from, until } => (Some(panel * nr), from, until),
        Item::Gather { from, until } => (None, from, until),
    };
    let mut lines = vec![0.0; nr * k];
    for i in from..until {
        let column = plan.columns[i] as usize;
        let lane = first.map_or(i - from, |first| column - first);
        lines[lane * k..(lane + 1) * k].copy_from_slice(&v[column * k..(column + 1) * k]);
    }
    lines.into()
}

/// Room for columns packed on demand.
#[derive(Default)]
struct Fresh<T> {
    values: Vec<T>,
    norms: Vec<T>,
}
