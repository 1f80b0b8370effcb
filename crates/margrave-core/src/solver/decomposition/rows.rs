//! Rows of K over the active variables, kept within a byte budget.
//!
//! Rows come and go in batches: a Gram computes sixteen rows in little more time than one, and a batch is one allocation
//! that the Gram writes into directly. The least recently used batch goes first.

use crate::backend::cpu::factor::Scalar;
use crate::control::{Control, Interrupt};
use crate::gram::{Gram, Pick};

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

/// Rows fetched together.
pub(super) const BATCH: usize = 16;
const NONE: u32 = u32::MAX;

struct Batch<T> {
    data: Vec<T>,
    /// The variables whose rows stand here, in order.
    variables: Vec<u32>,
    used: u64,
}

/// Rows of K, each over the same columns.
pub(super) struct Rows<T> {
    width: usize,
    capacity: usize,
    batches: Vec<Batch<T>>,
    /// Where the row of a variable stands: batch · BATCH + place.
    place: Vec<u32>,
    clock: u64,
}

impl<T: Stored> Rows<T> {
    /// Room for rows of `width` entries of any of `n` variables within `bytes`, at least two batches.
    pub(super) fn new(n: usize, width: usize, bytes: u64) -> Self {
        let batch = (width.max(1) * BATCH * size_of::<T>()) as u64;
        let capacity = (bytes / batch).clamp(2, (n.div_ceil(BATCH) + 2) as u64) as usize;
        Self { width, capacity, batches: Vec::new(), place: vec![NONE; n], clock: 0 }
    }

    /// Rows that fit.
    pub(super) fn capacity(&self) -> usize {
        self.capacity * BATCH
    }

    pub(super) fn has(&self, variable: usize) -> bool {
        self.place[variable] != NONE
    }

    /// The row of a variable that is here.
    pub(super) fn get(&self, variable: usize) -> &[T] {
        let at = self.place[variable] as usize;
        let (batch, place) = (&self.batches[at / BATCH], at % BATCH);
        &batch.data[place * self.width..(place + 1) * self.width]
    }

    /// Marks a row as used now.
    pub(super) fn touch(&mut self, variable: usize) {
        self.clock += 1;
        self.batches[self.place[variable] as usize / BATCH].used = self.clock;
    }

    /// Computes the rows of up to [`BATCH`] variables that are not here.
    pub(super) fn fetch(
        &mut self,
        gram: &dyn Gram,
        variables: &[u32],
        row_of: impl Fn(u32) -> u32,
        cols: Pick<'_>,
        control: &Control,
    ) -> Result<(), Interrupt> {
        debug_assert!(variables.len() <= BATCH && variables.iter().all(|&v| !self.has(v as usize)));
        self.clock += 1;
        let at = if self.batches.len() < self.capacity {
            self.batches.push(Batch { data: Vec::new(), variables: Vec::new(), used: 0 });
            self.batches.len() - 1
        } else {
            let oldest = (0..self.batches.len()).min_by_key(|&b| self.batches[b].used).expect("at least two batches");
            for v in std::mem::take(&mut self.batches[oldest].variables) {
                self.place[v as usize] = NONE;
            }
            oldest
        };
        let batch = &mut self.batches[at];
        batch.used = self.clock;
        let size = variables.len() * self.width;
        if batch.data.len() < size {
            // Fresh zeroed memory costs nothing until it is written.
            batch.data = vec![T::of(0.0); size.max(if at > 0 { BATCH * self.width } else { size })];
        }
        let numbers: Vec<u32> = variables.iter().map(|&v| row_of(v)).collect();
        T::block(gram, &numbers, cols, &mut batch.data[..size], control)?;
        batch.variables = variables.to_vec();
        for (k, &v) in variables.iter().enumerate() {
            self.place[v as usize] = (at * BATCH + k) as u32;
        }
        Ok(())
    }

    /// Keeps only the given columns (positions in the present rows, ascending).
    pub(super) fn compact(&mut self, keep: &[u32]) {
        let (old, new) = (self.width, keep.len());
        for batch in &mut self.batches {
            for r in 0..batch.variables.len() {
                for (c, &k) in keep.iter().enumerate() {
                    batch.data[r * new + c] = batch.data[r * old + k as usize];
                }
            }
        }
        self.width = new;
    }

    /// Forgets everything; rows are `width` long from now on.
    pub(super) fn reset(&mut self, width: usize) {
        self.width = width;
        self.batches.clear();
        self.place.fill(NONE);
    }
}
