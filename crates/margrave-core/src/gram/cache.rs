//! A row cache with a byte budget, shared between the sub-problems of one data set.
//!
//! Rows are handed out as shared pointers: a row in use survives its eviction. Missing rows of one request are computed
//! together, outside the lock, because a Gram computes eight rows almost as fast as one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{Gram, Pick};
use crate::control::{Control, Interrupt};

/// A row of K in single precision.
pub(crate) type Row = Arc<[f32]>;

#[derive(Default)]
struct Slots {
    /// Row number → (row, time of last use).
    rows: HashMap<u32, (Row, u64)>,
    clock: u64,
    hits: u64,
    misses: u64,
}

/// Rows of a Gram, least recently used ones evicted first.
pub struct RowCache<'a> {
    gram: &'a dyn Gram,
    capacity: usize,
    slots: Mutex<Slots>,
}

impl<'a> RowCache<'a> {
    /// Keeps as many rows as fit in `bytes`, at least two.
    pub fn new(gram: &'a dyn Gram, bytes: u64) -> Self {
        let row = (gram.shape().1.max(1) * size_of::<f32>()) as u64;
        let capacity = (bytes / row).clamp(2, gram.shape().0.max(2) as u64) as usize;
        Self { gram, capacity, slots: Mutex::new(Slots::default()) }
    }

    /// The Gram behind it.
    pub fn gram(&self) -> &'a dyn Gram {
        self.gram
    }

    /// Number of rows that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Requests answered from the cache, and rows computed.
    pub fn counts(&self) -> (u64, u64) {
        let slots = self.lock();
        (slots.hits, slots.misses)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slots> {
        // A panic while holding the lock leaves the map whole: every change to it is a single insert or remove.
        self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The rows asked for, in that order; those missing are computed in one block.
    pub fn rows(&self, wanted: &[u32], control: &Control) -> Result<Vec<Row>, Interrupt> {
        let mut found: Vec<Option<Row>> = Vec::with_capacity(wanted.len());
        let mut missing: Vec<u32> = Vec::new();
        {
            let mut slots = self.lock();
            slots.clock += 1;
            let now = slots.clock;
            for &i in wanted {
                let row = slots.rows.get_mut(&i).map(|(row, used)| {
                    *used = now;
                    row.clone()
                });
                if row.is_none() && !missing.contains(&i) {
                    missing.push(i);
                }
                found.push(row);
            }
            slots.hits += (wanted.len() - missing.len()) as u64;
            slots.misses += missing.len() as u64;
        }
        if !missing.is_empty() {
            let width = self.gram.shape().1;
            let mut block = vec![0f32; missing.len() * width];
            self.gram.block_f32(Pick::List(&missing), Pick::All, &mut block, control)?;
            let fresh: Vec<Row> = block.chunks(width.max(1)).map(Row::from).collect();
            for (slot, i) in found.iter_mut().zip(wanted) {
                if slot.is_none() {
                    let at = missing.iter().position(|m| m == i).expect("a row not found is missing");
                    *slot = Some(fresh[at].clone());
                }
            }
            self.insert(&missing, &fresh);
        }
        Ok(found.into_iter().map(|row| row.expect("found or computed")).collect())
    }

    fn insert(&self, numbers: &[u32], rows: &[Row]) {
        let mut slots = self.lock();
        let now = slots.clock;
        for (i, row) in numbers.iter().zip(rows).take(self.capacity) {
            slots.rows.insert(*i, (row.clone(), now));
        }
        let excess = slots.rows.len().saturating_sub(self.capacity);
        if excess > 0 {
            // Evict a quarter of the capacity at once so that the sort is paid rarely; ties broken by row number.
            let mut order: Vec<(u64, u32)> = slots.rows.iter().map(|(i, (_, used))| (*used, *i)).collect();
            order.sort_unstable();
            let drop = (excess + self.capacity / 4).min(order.len().saturating_sub(2));
            for (_, i) in &order[..drop.max(excess)] {
                slots.rows.remove(i);
            }
        }
    }
}
