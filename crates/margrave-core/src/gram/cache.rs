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
            let fresh = self.compute(&missing, control)?;
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

    fn compute(&self, missing: &[u32], control: &Control) -> Result<Vec<Row>, Interrupt> {
        let width = self.gram.shape().1;
        // One row, the usual request of a pairwise solver, is computed where it will stay.
        let mut single: Row = std::iter::repeat_n(0.0, if missing.len() == 1 { width } else { 0 }).collect();
        if let (1, Some(row)) = (missing.len(), Arc::get_mut(&mut single)) {
            self.gram.block_f32(Pick::List(missing), Pick::All, row, control)?;
            return Ok(vec![single]);
        }
        let mut block = vec![0f32; missing.len() * width];
        self.gram.block_f32(Pick::List(missing), Pick::All, &mut block, control)?;
        Ok((0..missing.len()).map(|i| Row::from(&block[i * width..(i + 1) * width])).collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Budget, Threads};
    use crate::data::Points;
    use crate::gram::PrecomputedGram;

    const N: usize = 40;

    /// K[i][j] = 100 i + j.
    fn gram() -> PrecomputedGram {
        let values: Vec<f64> = (0..N * N).map(|at| (100 * (at / N) + at % N) as f64).collect();
        PrecomputedGram::new(Points::dense_f64(N, N, values).unwrap())
    }

    fn bytes(rows: usize) -> u64 {
        (rows * N * size_of::<f32>()) as u64
    }

    fn control() -> Control {
        Control::unlimited(Threads::one())
    }

    #[test]
    fn the_byte_budget_is_kept() {
        let gram = gram();
        for (budget, capacity) in [(0, 2), (bytes(5) - 1, 4), (bytes(5), 5), (u64::MAX, N)] {
            let cache = RowCache::new(&gram, budget);
            assert_eq!(cache.capacity(), capacity);
            for i in 0..3 * N as u32 {
                let wanted: Vec<u32> = (0..1 + i % 7).map(|r| (i * 11 + r * 5) % N as u32).collect();
                let rows = cache.rows(&wanted, &control()).unwrap();
                for (row, i) in rows.iter().zip(&wanted) {
                    assert_eq!(row.len(), N);
                    assert_eq!((row[0], row[N - 1]), ((100 * i) as f32, (100 * i + N as u32 - 1) as f32));
                }
                assert!(cache.lock().rows.len() <= capacity);
            }
        }
    }

    #[test]
    fn the_least_recently_used_row_goes_first() {
        let gram = gram();
        let cache = RowCache::new(&gram, bytes(4));
        for i in [0, 1, 2, 3, 0] {
            cache.rows(&[i], &control()).unwrap();
        }
        assert_eq!(cache.counts(), (1, 4));
        // One too many: rows 1 and 2 are the oldest, and a quarter of the capacity goes beyond the excess.
        cache.rows(&[4], &control()).unwrap();
        cache.rows(&[0, 3, 4], &control()).unwrap();
        assert_eq!(cache.counts(), (4, 5));
        cache.rows(&[1], &control()).unwrap();
        assert_eq!(cache.counts(), (4, 6));
        assert_eq!(gram.entries(), 6 * N as u64);
    }

    #[test]
    fn repeated_rows_are_computed_once() {
        let gram = gram();
        let cache = RowCache::new(&gram, bytes(8));
        let rows = cache.rows(&[7, 7, 3, 7], &control()).unwrap();
        assert_eq!(gram.entries(), 2 * N as u64);
        assert!(Arc::ptr_eq(&rows[0], &rows[3]));
        assert_eq!(rows[2][1], 301.0);
    }

    #[test]
    fn threads_share_rows() {
        let gram = gram();
        let cache = RowCache::new(&gram, bytes(6));
        std::thread::scope(|scope| {
            for t in 0..4u32 {
                let cache = &cache;
                scope.spawn(move || {
                    for i in 0..200 {
                        let wanted = [(i * 7 + t) % N as u32, (i * 3) % N as u32];
                        let rows = cache.rows(&wanted, &control()).unwrap();
                        for (row, i) in rows.iter().zip(wanted) {
                            assert_eq!(row[5], (100 * i + 5) as f32);
                        }
                    }
                });
            }
        });
        assert!(cache.lock().rows.len() <= 6);
    }

    #[test]
    fn an_interrupt_leaves_the_cache_usable() {
        let gram = gram();
        let cache = RowCache::new(&gram, bytes(6));
        let late = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::one());
        assert_eq!(cache.rows(&[1, 2], &late).unwrap_err(), Interrupt::Deadline);
        assert_eq!(cache.rows(&[2], &control()).unwrap()[0][0], 200.0);
    }
}
