//! Rows of K within a byte budget.
//!
//! Missing rows are computed several at a time, straight into their slots: a Gram computes sixteen rows in little more
//! time than one. The least recently used rows go first. How many rows are fetched ahead follows from how many of those
//! fetched ahead before were used.

use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick};
use crate::linalg::factor::Scalar;
use crate::linalg::pages;

/// An entry type rows can be stored in.
pub(super) trait Stored: Scalar {
    /// `out = K[rows, cols]`.
    fn block(
        gram: &dyn Gram,
        rows: &[u32],
        cols: Pick<'_>,
        out: &mut [Self],
        control: &Control,
    ) -> Result<(), Interrupt>;
}

impl Stored for f32 {
    fn block(
        gram: &dyn Gram,
        rows: &[u32],
        cols: Pick<'_>,
        out: &mut [f32],
        control: &Control,
    ) -> Result<(), Interrupt> {
        gram.block_f32(Pick::List(rows), cols, out, control)
    }
}

impl Stored for f64 {
    fn block(
        gram: &dyn Gram,
        rows: &[u32],
        cols: Pick<'_>,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        gram.block_f64(Pick::List(rows), cols, out, control)
    }
}

/// Rows fetched together at most.
pub(super) const BATCH: usize = 16;
const NONE: u32 = u32::MAX;
/// Bytes of one allocation, large enough for huge pages.
const SLAB: usize = 32 << 20;

/// Rows of K, each over the same columns.
pub(super) struct Rows<T> {
    width: usize,
    /// Rows of one slab.
    per_slab: usize,
    capacity: usize,
    slabs: Vec<Vec<T>>,
    /// The variable in each slot used so far, or NONE.
    owner: Vec<u32>,
    used: Vec<u64>,
    /// Whether the row in a slot was asked for, not only fetched ahead.
    hot: Vec<bool>,
    /// Slots given back, to be taken from the end.
    free: Vec<u32>,
    /// Slot of each variable, or NONE.
    place: Vec<u32>,
    clock: u64,
    ahead: usize,
}

impl<T: Stored> Rows<T> {
    /// Room for rows of `width` entries of any of `n` variables within `bytes`, at least two batches.
    pub(super) fn new(n: usize, width: usize, bytes: u64) -> Self {
        let row = width.max(1) * size_of::<T>();
        let capacity = (bytes / row as u64).clamp(2 * BATCH as u64, n.max(2 * BATCH) as u64) as usize;
        Self {
            width,
            per_slab: (SLAB / row).clamp(1, capacity),
            capacity,
            slabs: Vec::new(),
            owner: Vec::new(),
            used: Vec::new(),
            hot: Vec::new(),
            free: Vec::new(),
            place: vec![NONE; n],
            clock: 0,
            ahead: BATCH - 1,
        }
    }

    /// Rows that fit.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Rows that still fit without dropping any.
    pub(super) fn room(&self) -> usize {
        self.capacity - self.owner.len() + self.free.len()
    }

    /// Whether more rows fit without dropping any.
    pub(super) fn has_room(&self) -> bool {
        self.owner.len() < self.capacity
    }

    /// How many rows it has paid to fetch ahead of need.
    pub(super) fn ahead(&self) -> usize {
        self.ahead
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        (self.slabs.len() * self.per_slab * self.width * size_of::<T>()) as u64
    }

    pub(super) fn has(&self, variable: usize) -> bool {
        self.place[variable] != NONE
    }

    /// The row of a variable that is here.
    pub(super) fn get(&self, variable: usize) -> &[T] {
        let slot = self.place[variable] as usize;
        let at = slot % self.per_slab * self.width;
        &self.slabs[slot / self.per_slab][at..at + self.width]
    }

    /// Marks a row as used now.
    pub(super) fn touch(&mut self, variable: usize) {
        self.clock += 1;
        let slot = self.place[variable] as usize;
        self.used[slot] = self.clock;
        self.hot[slot] = true;
    }

    /// A slot for a row, dropping old rows if need be; marked as used now, so that no later call takes it away again.
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
            self.hot.push(false);
            return slot;
        }
        self.evict();
        self.free.pop().expect("slots were given back") as usize
    }

    /// Gives back the least recently used slots, an eighth of all.
    fn evict(&mut self) {
        let mut order: Vec<u32> = (0..self.owner.len() as u32).collect();
        let count = (self.owner.len() / 8).max(BATCH).min(order.len());
        order.select_nth_unstable_by_key(count - 1, |&s| (self.used[s as usize], s));
        order.truncate(count);
        // Taken from the end: neighbours in memory come out next to each other.
        order.sort_unstable_by(|a, b| b.cmp(a));
        let hot = order.iter().filter(|&&s| self.hot[s as usize]).count();
        if hot * 2 < count {
            self.ahead /= 2;
        } else if hot * 5 > count * 4 {
            self.ahead = (2 * self.ahead + 1).min(BATCH - 1);
        }
        for &s in &order {
            let owner = std::mem::replace(&mut self.owner[s as usize], NONE);
            if owner != NONE {
                self.place[owner as usize] = NONE;
            }
        }
        self.free = order;
    }

    fn settle(&mut self, slot: usize, variable: u32) {
        self.owner[slot] = variable;
        self.used[slot] = self.clock;
        self.hot[slot] = false;
        self.place[variable as usize] = slot as u32;
    }

    /// Computes the rows of variables that are not here: row `row_of(v)` of `gram` over `cols`.
    pub(super) fn fetch(
        &mut self,
        gram: &dyn Gram,
        variables: &[u32],
        row_of: impl Fn(u32) -> u32,
        cols: Pick<'_>,
        control: &Control,
    ) -> Result<(), Interrupt> {
        debug_assert!(variables.len() <= 2 * BATCH && variables.iter().all(|&v| !self.has(v as usize)));
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
            if let Err(why) = T::block(gram, &numbers, cols, out, control) {
                self.free.extend(slots[from..].iter().map(|&s| s as u32));
                return Err(why);
            }
            (from..to).for_each(|k| self.settle(slots[k], variables[k]));
            from = to;
        }
        Ok(())
    }

    /// Takes in a row that is the given positions of another.
    pub(super) fn gather(&mut self, variable: u32, source: &[T], positions: &[u32]) {
        self.clock += 1;
        let slot = self.slot();
        let at = slot % self.per_slab * self.width;
        let out = &mut self.slabs[slot / self.per_slab][at..at + self.width];
        for (out, &p) in out.iter_mut().zip(positions) {
            *out = source[p as usize];
        }
        self.settle(slot, variable);
    }
}
