//! Blocks and products: splits a request into tasks, and tasks into calls for tiles of entries.

use std::any::TypeId;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, OnceLock};

use super::bytes::Line;
use super::fused::{self, Dots, Mirror};
use super::plan::{ColumnPlan, Item};
use super::product::{self, EntryBlock};
use super::simd::{Level, SimdScalar};
use super::tile::{Engine, PanelRun};
use crate::control::{Control, Interrupt};
use crate::data::Real;
use crate::gram::Pick;
use crate::workers::lock;

/// Smallest number of multiply-adds worth a task of its own: about 30 µs.
const TASK: usize = 1 << 20;
/// Tasks of a block of K, if it is large enough, whatever the number of threads.
const ENOUGH: usize = 32;

/// A source of entries: packed or sparse columns.
pub(crate) trait EntrySource: Sync {
    /// Scalar type of the entries.
    type T: Engine;
    /// Prepared rows.
    type Rows: Send + Sync;
    /// Rows and columns.
    fn shape(&self) -> (usize, usize);
    /// The instructions used.
    fn level(&self) -> Level;
    /// Approximate multiply-adds per entry.
    fn work(&self) -> usize;
    /// Number of panels of columns to process with one block of rows before the next.
    fn panels_at_once(&self) -> usize;
    /// Rows in a group.
    fn group(&self) -> usize;
    /// Number of groups that fit in the second-level cache together.
    fn groups(&self) -> usize;
    /// Rows prepared at a time for a block.
    fn slab(&self) -> usize;
    /// Number of requested columns of one panel from which computing the whole panel for `rows` rows is cheaper than
    /// packing them with others; `None`: columns are never packed.
    fn few(&self, rows: usize) -> Option<usize>;
    /// Prepares the rows `index(0 .. count)`, at most [`EntrySource::groups`] groups of them.
    fn pack(&self, count: usize, index: impl Fn(usize) -> usize) -> Self::Rows;
    /// The panels of an item; gathered columns may be packed into `fresh`.
    fn run<'b>(&'b self, plan: &'b ColumnPlan, item: &Item, fresh: &'b mut Fresh<Self::T>) -> PanelRun<'b, Self::T>;
    /// Entries of the row groups `groups` against a run of panels: entry (i, j) of that block goes to `to[i·stride +
    /// j]`.
    ///
    /// # Safety
    /// `to` must have room for `NR·run.count` entries in each line of `stride`, for every row of the groups.
    unsafe fn tiles(
        &self,
        rows: &Self::Rows,
        groups: Range<usize>,
        run: PanelRun<'_, Self::T>,
        to: *mut Self::T,
        stride: usize,
        scratch: &mut [Self::T],
    );
    /// Panels of which products can be computed without writing entries, at once; `None`: not at all.
    fn dots_at_once(&self) -> Option<usize> {
        None
    }
    /// Adds the products of the first `groups` groups, all of full height, with a run; see `fused.rs`.
    fn add_dots(&self, _rows: &Self::Rows, _groups: usize, _run: PanelRun<'_, Self::T>, _dots: Dots<'_, Self::T>) {}
}

/// Room for columns packed on demand.
pub(crate) struct Fresh<T> {
    pub(crate) values: Vec<T>,
    pub(crate) norms: Vec<T>,
    pub(crate) lines: Vec<Line>,
    pub(crate) terms: Vec<i32>,
}

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self { values: Vec::new(), norms: Vec::new(), lines: Vec::new(), terms: Vec::new() }
    }
}

/// An output of which tasks write disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct SharedOutput<O>(pub(crate) *mut O);
// SAFETY: used only to write disjoint parts of a slice that the request borrows mutably.
unsafe impl<O: Send> Sync for SharedOutput<O> {}
// SAFETY: as above.
unsafe impl<O: Send> Send for SharedOutput<O> {}

impl<O> SharedOutput<O> {
    pub(crate) fn at(&self, offset: usize) -> *mut O {
        self.0.wrapping_add(offset)
    }
}

/// Calls `work` for every task until one is interrupted; only on the caller's thread if `alone`.
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
            // If another task was interrupted first, its reason is kept.
            let _ = stopped.set(why);
        }
    });
    stopped.into_inner().map_or(Ok(()), Err)
}

/// Calls `work` for every part, and its number, until one task finds that the computation must end.
pub(crate) fn each_part<P: Send>(
    control: &Control,
    parts: Vec<P>,
    work: impl Fn(usize, &mut P) + Sync,
) -> Result<(), Interrupt> {
    let parts: Vec<Mutex<P>> = parts.into_iter().map(Mutex::new).collect();
    each_task(control, parts.len(), false, |task| {
        control.check()?;
        work(task, &mut lock(&parts[task]));
        Ok(())
    })
}

/// Lines of an output that a task fills.
struct Lines<'a, R, O> {
    /// Prepared rows, in blocks, and how many there are.
    packed: &'a [R],
    count: usize,
    /// The output line of the first of them.
    to: SharedOutput<O>,
    /// Entries from one line to the next.
    stride: usize,
}

/// Splits requests into tasks.
pub(crate) struct Tasks<'a, S> {
    pub(crate) source: &'a S,
    pub(crate) control: &'a Control,
}

impl<S: EntrySource> Tasks<'_, S> {
    const NR: usize = <S::T as SimdScalar>::NR;

    /// `out[r·len(cols) + c] = K[rows[r], cols[c]]`, rounded to `O`.
    pub(crate) fn block<O: Real>(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [O]) -> Result<(), Interrupt> {
        let source = self.source;
        let (n, m) = source.shape();
        let (height, width) = (rows.len(n), cols.len(m));
        assert_eq!(out.len(), height * width, "the output of a block must have one element per entry");
        if out.is_empty() {
            return self.control.check();
        }
        // SAFETY: the output has `height` lines of `width` entries.
        unsafe { self.lines(rows, cols, SharedOutput(out.as_mut_ptr()), width) }
    }

    /// The whole of a symmetric matrix, row-major: entries above the diagonal and copies of them below. Returns how many
    /// entries were computed.
    pub(crate) fn symmetric_block<O: Real>(&self, out: &mut [O]) -> Result<usize, Interrupt> {
        /// Rows computed together, with the columns from the first of them on.
        const SLAB: usize = 256;
        /// Rows and columns copied together: both stay in the first-level cache.
        const SQUARE: usize = 32;
        let n = self.source.shape().0;
        assert_eq!(out.len(), n * n, "the output of a block must have one element per entry");
        let to = SharedOutput(out.as_mut_ptr());
        let mut computed = 0;
        for first in (0..n).step_by(SLAB) {
            let end = (first + SLAB).min(n);
            let from_here = SharedOutput(to.at(first * n + first));
            // SAFETY: the lines of these rows from column `first` on lie inside the output.
            unsafe { self.lines(Pick::Range(first, end), Pick::Range(first, n), from_here, n)? };
            computed += (end - first) * (n - first);
        }
        each_task(self.control, n.div_ceil(SQUARE), n < 2 * SLAB, |task| {
            let rows = task * SQUARE..((task + 1) * SQUARE).min(n);
            // Columns of the slab itself were computed.
            let below = rows.start / SLAB * SLAB;
            // Through a buffer: columns of the output itself lie in few lines of the cache.
            let mut buffer = [[O::default(); SQUARE]; SQUARE];
            for from in (0..below).step_by(SQUARE) {
                for (j, line) in buffer.iter_mut().enumerate() {
                    // SAFETY: inside the output, above the diagonal, where nothing is written any more.
                    let above = unsafe { std::slice::from_raw_parts(to.at((from + j) * n + rows.start), rows.len()) };
                    line[..rows.len()].copy_from_slice(above);
                }
                for i in rows.clone() {
                    // SAFETY: inside the output, below the diagonal, in a row of this task.
                    let below = unsafe { std::slice::from_raw_parts_mut(to.at(i * n + from), SQUARE) };
                    below.iter_mut().zip(&buffer).for_each(|(entry, line)| *entry = line[i - rows.start]);
                }
            }
            Ok(())
        })?;
        Ok(computed)
    }

    /// Entry (r, c) of a block to `to[r·stride + c]`.
    ///
    /// # Safety
    /// `to` must have room for the columns in a line of `stride` for every row, which nobody else uses.
    unsafe fn lines<O: Real>(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        to: SharedOutput<O>,
        stride: usize,
    ) -> Result<(), Interrupt> {
        let source = self.source;
        let (n, m) = source.shape();
        let (height, width) = (rows.len(n), cols.len(m));
        let tall = source.groups() * source.group();
        let slab = (source.slab() / tall).max(1) * tall;
        // Tasks of the rows prepared at a time; where these are few, columns are split into more parts.
        let tall_blocks = height.min(slab).div_ceil(tall);
        let parts = m.div_ceil(Self::NR).div_ceil(ENOUGH.div_ceil(tall_blocks));
        let smallest = TASK / (height.min(slab) * source.work() * Self::NR);
        let longest = source.panels_at_once().min(parts).max(smallest).max(1);
        let plan = ColumnPlan::new(cols, m, Self::NR, longest, source.few(height));
        let chunks = plan.chunks(longest);
        let alone = height * width * source.work() < 2 * TASK;
        for first in (0..height).step_by(slab) {
            let end = (first + slab).min(height);
            let blocks = (end - first).div_ceil(tall);
            let pack = |block: usize| {
                let from = first + block * tall;
                source.pack(tall.min(end - from), |i| rows.get(from + i))
            };
            let packed: Vec<S::Rows> =
                if alone { (0..blocks).map(pack).collect() } else { self.control.threads.map(blocks, pack) };
            // Few columns: split the rows as well.
            let split = blocks.min(ENOUGH.div_ceil(chunks.len()));
            let share = blocks.div_ceil(split);
            each_task(self.control, chunks.len() * split, alone, |task| {
                let from = (task % split * share).min(blocks);
                let until = (from + share).min(blocks);
                let top = first + from * tall;
                let lines = Lines {
                    packed: &packed[from..until],
                    count: (until * tall).min(end - first).saturating_sub(from * tall),
                    to: SharedOutput(to.at(top * stride)),
                    stride,
                };
                self.fill(lines, &plan, &plan.items[chunks[task / split].clone()])
            })?;
        }
        Ok(())
    }

    /// One task of [`Tasks::lines`].
    fn fill<O: Real>(&self, lines: Lines<'_, S::Rows, O>, plan: &ColumnPlan, items: &[Item]) -> Result<(), Interrupt> {
        let (group, nr) = (self.source.group(), Self::NR);
        let tall = self.source.groups() * group;
        let Lines { packed, count, to, stride } = lines;
        let same = TypeId::of::<S::T>() == TypeId::of::<O>();
        let room = tall.min(count.next_multiple_of(group)) * nr;
        let mut scratch = vec![S::T::default(); room];
        let mut entries = Vec::new();
        let mut fresh = Fresh::default();
        for item in items {
            let run = self.source.run(plan, item, &mut fresh);
            for (block, packed) in packed.iter().enumerate() {
                self.control.check()?;
                let first = block * tall;
                let height = tall.min(count - first);
                let groups = 0..height.div_ceil(group);
                if let (Item::Run { at, .. }, true) = (item, same) {
                    let to = to.at(first * stride + at).cast::<S::T>();
                    // SAFETY: the run's columns lie inside each output line, and these lines and columns belong to this
                    // task alone; O is T.
                    unsafe { self.source.tiles(packed, groups, run, to, stride, &mut scratch) };
                    continue;
                }
                entries.resize(room, S::T::default());
                for p in 0..run.count {
                    let to_entries = entries.as_mut_ptr();
                    // SAFETY: `entries` has a line of NR for every row of the block.
                    unsafe { self.source.tiles(packed, groups.clone(), run.panel(p), to_entries, nr, &mut scratch) };
                    for r in 0..height {
                        let line = &entries[r * nr..(r + 1) * nr];
                        let put = |at: usize, value: S::T| {
                            // SAFETY: `at` is a position in the request, inside the line of a row of this task.
                            unsafe { to.at((first + r) * stride + at).write(O::from_f64(value.to_f64())) };
                        };
                        match *item {
                            Item::Run { at, .. } => {
                                line.iter().enumerate().for_each(|(j, value)| put(at + p * nr + j, *value));
                            }
                            Item::Part { panel, from, until } => {
                                for i in from..until {
                                    put(plan.at[i] as usize, line[plan.columns[i] as usize - panel * nr]);
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

    /// Number of panels whose entries for `tall` rows fill about half of the first-level cache.
    fn strip(tall: usize) -> usize {
        ((32 << 10) / (tall * Self::NR * size_of::<S::T>())).max(1)
    }

    /// `out = K[rows, cols]·V[cols]`, where V has one line per column of K and `out` one line per selected row.
    pub(crate) fn multiply(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
    ) -> Result<(), Interrupt> {
        let source = self.source;
        let (group, nr) = (source.group(), Self::NR);
        let (height, m) = (out.len() / k, source.shape().1);
        let tall = (source.groups() * group).min(height.div_ceil(group) * group);
        let fused = source.dots_at_once().filter(|_| k == 1);
        let longest = fused.unwrap_or_else(|| Self::strip(tall));
        let plan = ColumnPlan::new(cols, m, nr, longest, source.few(height));
        let blocks = height.div_ceil(tall);
        // Few rows: split the columns as well. The parts depend on the shape only, so the sums do too.
        let parts = if blocks >= 8 { 1 } else { plan.items.len().clamp(1, 8 / blocks) };
        let share = plan.items.len().div_ceil(parts);
        let alone = height * cols.len(m) * source.work() < 2 * TASK;
        let weights = fused.map(|_| fused::narrow::<S::T>(v));
        let mut sums = vec![0.0; parts * height * k];
        let to = SharedOutput(sums.as_mut_ptr());
        each_task(self.control, blocks * parts, alone, |task| {
            let (block, part) = (task / parts, task % parts);
            let first = block * tall;
            let count = tall.min(height - first);
            let packed = source.pack(count, |i| rows.get(first + i));
            let items = (part * share).min(plan.items.len())..((part + 1) * share).min(plan.items.len());
            // SAFETY: each task writes its own lines of its own part.
            let sums = unsafe { std::slice::from_raw_parts_mut(to.at((part * height + first) * k), count * k) };
            let job = Product { plan: &plan, items: &plan.items[items], v, k, weights: weights.as_ref() };
            self.product(&packed, count, job, sums)
        })?;
        out.fill(0.0);
        for part in sums.chunks(height * k) {
            out.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
        }
        Ok(())
    }

    /// One task of [`Tasks::multiply`]: adds the products of all packed rows with each item in turn.
    fn product(
        &self,
        packed: &S::Rows,
        count: usize,
        job: Product<'_, S::T>,
        sums: &mut [f64],
    ) -> Result<(), Interrupt> {
        let (group, nr, k) = (self.source.group(), Self::NR, job.k);
        let groups = count.div_ceil(group);
        // Fused products take groups of full height.
        let whole = if job.weights.is_some() { count / group } else { 0 };
        let lines = (groups - whole) * group;
        let mut scratch = vec![S::T::default(); lines * nr];
        let mut lanes = vec![S::T::default(); whole * group * fused::lanes::<S::T>()];
        let mut strip = Vec::new();
        let mut fresh = Fresh::default();
        for item in job.items {
            self.control.check()?;
            let run = self.source.run(job.plan, item, &mut fresh);
            if let Some((weights, scale)) = job.weights
                && whole > 0
            {
                lanes.fill(S::T::default());
                let weights = lines_of(job.plan, item, weights, 1, nr);
                let dots = Dots { weights: &weights, sums: &mut lanes, mirror: None };
                self.source.add_dots(packed, whole, run, dots);
                fused::add_lanes(&lanes, *scale, sums);
            }
            if whole < groups {
                let width = run.count * nr;
                strip.resize((lines * width).max(strip.len()), S::T::default());
                // SAFETY: `strip` has a line of `width` for every row.
                unsafe { self.source.tiles(packed, whole..groups, run, strip.as_mut_ptr(), width, &mut scratch) };
                let rows = count - whole * group;
                let block = EntryBlock { values: &strip, stride: width, rows, width };
                let v = lines_of(job.plan, item, job.v, k, nr);
                product::times(self.source.level(), block, &v, k, &mut sums[whole * group * k..]);
            }
        }
        Ok(())
    }
}

impl<S: EntrySource> Tasks<'_, S> {
    /// `out = K·v` of a symmetric source whose rows are its columns: every entry off the diagonal blocks serves both its
    /// row and its column.
    pub(crate) fn multiply_mirrored(&self, v: &[f64], out: &mut [f64]) -> Result<(), Interrupt> {
        /// Tasks, whatever the number of threads; each has sums of its own for all columns.
        const TASKS: usize = 32;
        /// Sums that a task adds up.
        const SHARE: usize = 1024;
        let (source, nr) = (self.source, Self::NR);
        let m = out.len();
        // Groups of rows have full height; the few rows that are left are computed on their own.
        let whole = m / source.group() * source.group();
        let tall = (source.groups() * source.group() / nr * nr).max(nr);
        let panels = m.div_ceil(nr);
        let (mut weights, scale) = fused::narrow::<S::T>(v);
        weights.resize(panels * nr, S::T::default());
        let mut mirrored = vec![0.0; TASKS * panels * nr];
        let (rows_to, columns_to) = (SharedOutput(out.as_mut_ptr()), SharedOutput(mirrored.as_mut_ptr()));
        each_task(self.control, TASKS, false, |task| {
            // SAFETY: each task has its own line, and blocks of rows of its own.
            let columns = unsafe { std::slice::from_raw_parts_mut(columns_to.at(task * panels * nr), panels * nr) };
            // Blocks are dealt out in turn: those at the beginning have more columns.
            for first in (task * tall..whole).step_by(TASKS * tall) {
                let count = tall.min(whole - first);
                // SAFETY: as above.
                let sums = unsafe { std::slice::from_raw_parts_mut(rows_to.at(first), count) };
                self.mirrored_rows(first, &weights, sums, columns)?;
                sums.iter_mut().for_each(|sum| *sum *= scale);
            }
            Ok(())
        })?;
        self.control.threads.chunks(&mut out[..whole], SHARE, |t, sums| {
            for part in mirrored.chunks(panels * nr) {
                sums.iter_mut().zip(&part[t * SHARE..]).for_each(|(sum, x)| *sum += scale * x);
            }
        });
        if whole < m {
            self.multiply(Pick::Range(whole, m), Pick::All, v, 1, &mut out[whole..])?;
        }
        Ok(())
    }

    /// The rows `first ..` of [`Tasks::multiply_mirrored`], as many as there are `sums`, with all columns from there on;
    /// beyond the rows themselves, entries are added to `columns` too.
    fn mirrored_rows(
        &self,
        first: usize,
        weights: &[S::T],
        sums: &mut [f64],
        columns: &mut [f64],
    ) -> Result<(), Interrupt> {
        let (source, nr) = (self.source, Self::NR);
        let (count, panels) = (sums.len(), weights.len() / nr);
        let packed = source.pack(count, |i| first + i);
        let groups = count / source.group();
        let mut lanes = vec![S::T::default(); count * fused::lanes::<S::T>()];
        let mut fresh = Fresh::default();
        let plan = ColumnPlan::default();
        sums.fill(0.0);
        let beyond = (first + count).div_ceil(nr);
        let mut panel = first / nr;
        while panel < panels {
            self.control.check()?;
            let end = if panel < beyond { beyond } else { panels };
            let until = (panel + fused::PANELS).min(end).min(panels);
            let run = source.run(&plan, &Item::Run { first: panel, count: until - panel, at: 0 }, &mut fresh);
            let at = panel * nr..until * nr;
            let row_weights = &weights[first..first + count];
            let mirror = (panel >= beyond).then(|| Mirror { row_weights, columns: &mut columns[at.clone()] });
            lanes.fill(S::T::default());
            source.add_dots(&packed, groups, run, Dots { weights: &weights[at], sums: &mut lanes, mirror });
            fused::add_lanes(&lanes, 1.0, sums);
            panel = until;
        }
        Ok(())
    }
}

/// The items of a product and what they are multiplied with.
struct Product<'a, T> {
    plan: &'a ColumnPlan,
    items: &'a [Item],
    v: &'a [f64],
    k: usize,
    /// V in the scalar of the entries, and its scale, if the product is fused.
    weights: Option<&'a (Vec<T>, f64)>,
}

/// The lines of V for the lanes of an item; zero for lanes that were not requested.
fn lines_of<'v, T: Real>(plan: &ColumnPlan, item: &Item, v: &'v [T], k: usize, nr: usize) -> Cow<'v, [T]> {
    let (first, from, until) = match *item {
        Item::Run { first, count, .. } => return v[first * nr * k..(first + count) * nr * k].into(),
        Item::Part { panel, from, until } => (Some(panel * nr), from, until),
        Item::Gather { from, until } => (None, from, until),
    };
    let mut lines = vec![T::default(); nr * k];
    for i in from..until {
        let column = plan.columns[i] as usize;
        let lane = first.map_or(i - from, |first| column - first);
        lines[lane * k..(lane + 1) * k].copy_from_slice(&v[column * k..(column + 1) * k]);
    }
    lines.into()
}
