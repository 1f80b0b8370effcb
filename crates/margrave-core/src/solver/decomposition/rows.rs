//! Rows of K within a byte budget.
//!
//! Missing rows are computed several at a time, directly in their slots: a Gram computes sixteen rows in little more
//! time than one. The least recently used rows are evicted first. How many rows are prefetched depends on how many of
//! those prefetched before were used.

use crate::control::{Control, Interrupt, Threads};
use crate::gram::{Gram, Pick};
use crate::linalg::factor::Scalar;
use crate::linalg::{pages, sweep};

/// An entry type rows can be stored in.
pub(super) trait StoredEntry: Scalar {
    /// `out = K[rows, cols]`.
    fn block(
        gram: &dyn Gram,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [Self],
        control: &Control,
    ) -> Result<(), Interrupt>;
}

impl StoredEntry for f32 {
    fn block(
        gram: &dyn Gram,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [f32],
        control: &Control,
    ) -> Result<(), Interrupt> {
        gram.block_f32(rows, cols, out, control)
    }
}

impl StoredEntry for f64 {
    fn block(
        gram: &dyn Gram,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        gram.block_f64(rows, cols, out, control)
    }
}

/// Most rows fetched together.
pub(super) const BATCH: usize = 16;
/// Marks an empty slot, or a variable without one.
const NONE: u32 = u32::MAX;
/// Bytes of one allocation, large enough for huge pages.
const SLAB_BYTES: usize = 32 << 20;

/// Rows of K, each over the same columns.
pub(super) struct KernelRows<T> {
    width: usize,
    /// Rows of one slab.
    per_slab: usize,
    capacity: usize,
    slabs: Vec<Vec<T>>,
    /// The variable in each slot used so far, or NONE.
    owner: Vec<u32>,
    /// When each slot was last used, by `clock`.
    used: Vec<u64>,
    /// Whether the row in a slot was needed, not only prefetched.
    needed: Vec<bool>,
    /// Slots that were freed, to be taken from the end.
    free: Vec<u32>,
    /// Slot of each variable, or NONE.
    place: Vec<u32>,
    clock: u64,
    /// How many rows to prefetch.
    prefetch: usize,
}

impl<T: StoredEntry> KernelRows<T> {
    /// Room for rows of `width` entries, of any of `n` variables, within `bytes`; at least two batches.
    pub(super) fn new(n: usize, width: usize, bytes: u64) -> Self {
        let row = width.max(1) * size_of::<T>();
        let capacity = (bytes / row as u64).clamp(2 * BATCH as u64, n.max(2 * BATCH) as u64) as usize;
        Self {
            width,
            per_slab: (SLAB_BYTES / row).clamp(1, capacity),
            capacity,
            slabs: Vec::new(),
            owner: Vec::new(),
            used: Vec::new(),
            needed: Vec::new(),
            free: Vec::new(),
            place: vec![NONE; n],
            clock: 0,
            prefetch: BATCH - 1,
        }
    }

    /// Rows that fit.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Rows that still fit without evicting any.
    pub(super) fn room(&self) -> usize {
        self.capacity - self.owner.len() + self.free.len()
    }

    /// Whether there are slots that were never used.
    pub(super) fn has_unused_slots(&self) -> bool {
        self.owner.len() < self.capacity
    }

    /// How many rows to prefetch with one that is needed.
    pub(super) fn prefetch(&self) -> usize {
        self.prefetch
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        (self.slabs.len() * self.per_slab * self.width * size_of::<T>()) as u64
    }

    /// Whether the row of a variable is stored.
    pub(super) fn has(&self, variable: usize) -> bool {
        self.place[variable] != NONE
    }

    /// The row of a variable, which must be stored.
    pub(super) fn get(&self, variable: usize) -> &[T] {
        let slot = self.place[variable] as usize;
        let at = slot % self.per_slab * self.width;
        &self.slabs[slot / self.per_slab][at..at + self.width]
    }

    /// Marks a row as needed and used now.
    pub(super) fn touch(&mut self, variable: usize) {
        self.clock += 1;
        let slot = self.place[variable] as usize;
        self.used[slot] = self.clock;
        self.needed[slot] = true;
    }

    /// A slot for a row, evicting old rows if need be. It is marked as used now, so that the next calls do not evict
    /// it.
    fn slot(&mut self) -> usize {
        let slot = self.find_slot();
        self.used[slot] = self.clock;
        slot
    }

    fn find_slot(&mut self) -> usize {
        if let Some(slot) = self.free.pop() {
            return slot as usize;
        }
        let slot = self.owner.len();
        if slot < self.capacity {
            if slot / self.per_slab >= self.slabs.len() {
                let rows = self.per_slab.min(self.capacity - slot);
                self.slabs.push(pages::zeros(rows * self.width));
            }
            self.owner.push(NONE);
            self.used.push(0);
            self.needed.push(false);
            return slot;
        }
        self.evict();
        self.free.pop().expect("slots were freed") as usize
    }

    /// Frees the least recently used slots, an eighth of all.
    fn evict(&mut self) {
        let mut order: Vec<u32> = (0..self.owner.len() as u32).collect();
        let count = (self.owner.len() / 8).max(BATCH).min(order.len());
        order.select_nth_unstable_by_key(count - 1, |&s| (self.used[s as usize], s));
        order.truncate(count);
        // Slots are taken from the end: in this order neighbours in memory follow each other.
        order.sort_unstable_by(|a, b| b.cmp(a));
        let needed = order.iter().filter(|&&s| self.needed[s as usize]).count();
        if needed * 2 < count {
            self.prefetch /= 2;
        } else if needed * 5 > count * 4 {
            self.prefetch = (2 * self.prefetch + 1).min(BATCH - 1);
        }
        for &s in &order {
            let owner = std::mem::replace(&mut self.owner[s as usize], NONE);
            if owner != NONE {
                self.place[owner as usize] = NONE;
            }
        }
        self.free = order;
    }

    fn assign(&mut self, slot: usize, variable: u32) {
        self.owner[slot] = variable;
        self.used[slot] = self.clock;
        self.needed[slot] = false;
        self.place[variable as usize] = slot as u32;
    }

    /// Computes the rows of variables that are not stored: row `row_of(v)` of `gram` over `cols`.
    pub(super) fn fetch(
        &mut self,
        gram: &dyn Gram,
        variables: &[u32],
        row_of: impl Fn(u32) -> u32,
        cols: Pick<'_>,
        control: &Control,
    ) -> Result<(), Interrupt> {
        debug_assert!(variables.len() <= self.room().max(2 * BATCH));
        debug_assert!(variables.iter().all(|&v| !self.has(v as usize)));
        self.clock += 1;
        let slots: Vec<usize> = variables.iter().map(|_| self.slot()).collect();
        let mut from = 0;
        while from < slots.len() {
            let mut to = from + 1;
            while to < slots.len() && slots[to] == slots[to - 1] + 1 && !slots[to].is_multiple_of(self.per_slab) {
                to += 1;
            }
            let numbers: Vec<u32> = variables[from..to].iter().map(|&v| row_of(v)).collect();
            let at = slots[from] % self.per_slab * self.width;
            let out = &mut self.slabs[slots[from] / self.per_slab][at..at + (to - from) * self.width];
            if let Err(why) = T::block(gram, Pick::List(&numbers), cols, out, control) {
                self.free.extend(slots[from..].iter().map(|&s| s as u32));
                return Err(why);
            }
            (from..to).for_each(|k| self.assign(slots[k], variables[k]));
            from = to;
        }
        Ok(())
    }

    /// Stores a row that consists of the given positions of another.
    pub(super) fn gather(&mut self, variable: u32, source: &[T], positions: &[u32]) {
        self.clock += 1;
        let slot = self.slot();
        let at = slot % self.per_slab * self.width;
        let out = &mut self.slabs[slot / self.per_slab][at..at + self.width];
        for (out, &p) in out.iter_mut().zip(positions) {
            *out = source[p as usize];
        }
        self.assign(slot, variable);
    }

    /// `out += Σ tᵢ·rowᵢ` over variables whose rows are stored: all entries of a row, or those at `places`. Each sum runs over the
    /// variables in order, whatever the number of threads.
    pub(super) fn add_to(
        &self,
        variables: &[u32],
        t: &[f64],
        places: Option<&[u32]>,
        out: &mut [f64],
        threads: &Threads,
    ) {
        /// Entries of a task.
        const WIDTH: usize = 512;
        /// Entries in order that take as long as one from the middle of a row.
        const SCATTERED: usize = 5;
        let in_order = |out: &mut [f64]| {
            threads.chunks(out, WIDTH, |k, part| {
                let columns = k * WIDTH..k * WIDTH + part.len();
                let row = |i: u32| &self.get(i as usize)[columns.clone()];
                let (fours, t_fours) = (variables.chunks_exact(sweep::ROWS), t.chunks_exact(sweep::ROWS));
                let (rest, t_rest) = (fours.remainder(), t_fours.remainder());
                for (four, t) in fours.zip(t_fours) {
                    let rows = std::array::from_fn(|r| row(four[r]));
                    sweep::add_rows(part, rows, std::array::from_fn(|r| t[r]));
                }
                rest.iter().zip(t_rest).for_each(|(&i, &t)| sweep::add_row(part, row(i), t));
            });
        };
        let Some(places) = places else { return in_order(out) };
        if places.len() * SCATTERED > self.width {
            let mut all = vec![0.0; self.width];
            in_order(&mut all);
            out.iter_mut().zip(places).for_each(|(out, &p)| *out += all[p as usize]);
            return;
        }
        threads.chunks(out, WIDTH, |k, part| {
            for (&i, &t) in variables.iter().zip(t) {
                let row = self.get(i as usize);
                part.iter_mut().zip(&places[k * WIDTH..]).for_each(|(out, &p)| *out += t * row[p as usize].wide());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::data::Points;
    use crate::kernel::Kernel;

    #[test]
    fn stored_rows_add_up_to_the_product() {
        // Entries and factors are small integers, so that sums are exact in any order.
        let n = 1300;
        let x: Vec<f64> = (0..2 * n).map(|k| (k * k % 11) as f64 - 5.0).collect();
        let entry = |i: usize, j: usize| x[2 * i] * x[2 * j] + x[2 * i + 1] * x[2 * j + 1];
        let points = Points::dense_f64(n, 2, x.clone()).unwrap();
        let gram = CpuGram::new(Kernel::Linear, &points, &points).unwrap();
        let control = Control::unlimited(Threads::new(3));
        let mut rows = KernelRows::<f32>::new(n, n, 1 << 20);
        // One, a few, and more than two batches of four variables.
        for count in [1, 3, 4, 11] {
            let variables: Vec<u32> = (0..count).map(|k| (k * 97 + 5) % n as u32).collect();
            let missing: Vec<u32> = variables.iter().copied().filter(|&i| !rows.has(i as usize)).collect();
            rows.fetch(&gram, &missing, |v| v, Pick::All, &control).unwrap();
            let t: Vec<f64> = (0..count).map(|k| f64::from(k) - 2.0).collect();
            let sum = |j: usize| -> f64 { variables.iter().zip(&t).map(|(&i, t)| t * entry(i as usize, j)).sum() };
            // None, many and few places.
            let many: Vec<u32> = (0..n as u32).rev().step_by(2).collect();
            let few: Vec<u32> = vec![1299, 0, 640];
            for places in [None, Some(many), Some(few)] {
                let wanted: Vec<f64> = match &places {
                    None => (0..n).map(|j| 1.0 + sum(j)).collect(),
                    Some(places) => places.iter().map(|&j| 1.0 + sum(j as usize)).collect(),
                };
                let mut out = vec![1.0; wanted.len()];
                rows.add_to(&variables, &t, places.as_deref(), &mut out, &control.threads);
                assert_eq!(out, wanted, "{count} variables");
            }
        }
    }
}
