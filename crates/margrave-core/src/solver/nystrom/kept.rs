//! The rows of K_nS that a solver returns to, in single precision, in front of features that are recomputed: steps on few
//! rows, such as those near the margin, then cost no kernel entries, and passes over all rows only those of the others.
//!
//! Rows are kept as they are asked for. If there is no room for a list that would fit by itself, rows that are not in it
//! make way, in turn. Of a longer list, as many are kept as there is room for, and the others are computed every time.
//! Which rows are kept depends only on the calls, so the results do too; machines that are trained at the same time have
//! one each.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::recomputed::RecomputedFeatures;
use crate::control::{Control, Interrupt, Threads};
use crate::gram::{Matrix, Pick, Precision};
use crate::linalg::sweep;

/// Rows per task of products with kept rows.
const TASK_ROWS: usize = 256;
/// Rows per task of their combinations, which have a sum of m numbers per task.
const SUM_ROWS: usize = 8 * TASK_ROWS;
/// Rows computed at once.
const BLOCK_ROWS: usize = 2048;
/// Places with their products, and a sum of rows.
type Part = (Vec<(usize, f64)>, Vec<f64>);

/// A row that is not kept.
const NOWHERE: u32 = u32::MAX;

pub(super) struct KeptRows<'a> {
    inner: &'a RecomputedFeatures<'a>,
    most: usize,
    every: Vec<u32>,
    kept: Mutex<Kept>,
}

struct Kept {
    /// Where each row is, or [`NOWHERE`].
    place: Vec<u32>,
    /// The row at each place, or [`NOWHERE`].
    owner: Vec<u32>,
    values: Vec<f32>,
    /// Free places below the end of `owner`.
    free: Vec<u32>,
    /// Where the search for rows that make way continues.
    turn: usize,
}

impl Kept {
    fn row(&self, i: u32, m: usize) -> Option<&[f32]> {
        let at = self.place[i as usize];
        (at != NOWHERE).then(|| &self.values[at as usize * m..(at as usize + 1) * m])
    }

    /// Frees `count` places of rows that are not in `list`; there must be so many.
    fn make_way(&mut self, list: &[u32], count: usize) {
        let mut wanted = vec![false; self.place.len()];
        list.iter().for_each(|&i| wanted[i as usize] = true);
        let mut left = count;
        for _ in 0..self.owner.len() {
            if left == 0 {
                break;
            }
            let at = self.turn % self.owner.len();
            self.turn = at + 1;
            let row = self.owner[at];
            if row != NOWHERE && !wanted[row as usize] {
                self.place[row as usize] = NOWHERE;
                self.owner[at] = NOWHERE;
                self.free.push(at as u32);
                left -= 1;
            }
        }
    }

    /// A place for one more row.
    fn next_place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.owner.push(NOWHERE);
            (self.owner.len() - 1) as u32
        })
    }
}

impl<'a> KeptRows<'a> {
    /// `memory`: bytes for rows. `None` if entries must be double precision, or if a device has products without them.
    pub(super) fn new(inner: &'a RecomputedFeatures<'a>, memory: u64) -> Option<Self> {
        if inner.on_device() {
            return None;
        }
        let n = inner.rows.shape().0;
        let most = usize::try_from(memory / (4 * inner.m() as u64)).unwrap_or(usize::MAX).min(n);
        let kept = Kept { place: vec![NOWHERE; n], owner: Vec::new(), values: Vec::new(), free: Vec::new(), turn: 0 };
        let every = (0..n as u32).collect();
        (inner.precision == Precision::Single && most > 0).then(|| Self { inner, most, every, kept: Mutex::new(kept) })
    }

    fn list<'r>(&'r self, rows: Pick<'r>) -> &'r [u32] {
        match rows {
            Pick::List(list) => list,
            Pick::All => &self.every,
            Pick::Range(from, until) => &self.every[from..until],
        }
    }

    /// The kept rows, with as many of `list` among them as there is room for, and the places in `list` of the others.
    fn with(&self, list: &[u32], control: &Control) -> Result<(MutexGuard<'_, Kept>, Vec<u32>), Interrupt> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |kept: &Kept| -> Vec<u32> {
            (0..list.len() as u32).filter(|&k| kept.place[list[k as usize] as usize] == NOWHERE).collect()
        };
        let mut absent = missing(&kept);
        let room = |kept: &Kept| self.most - (kept.owner.len() - kept.free.len());
        if absent.len() > room(&kept) && list.len() <= self.most {
            let short = absent.len() - room(&kept);
            kept.make_way(list, short);
        }
        let added: Vec<u32> = absent.iter().take(room(&kept)).map(|&k| list[k as usize]).collect();
        if !added.is_empty() {
            self.add(&mut kept, &added, control)?;
            absent = missing(&kept);
        }
        Ok((kept, absent))
    }

    /// Computes and keeps rows for which there is room.
    fn add(&self, kept: &mut Kept, rows: &[u32], control: &Control) -> Result<(), Interrupt> {
        let m = self.inner.m();
        let mut block = vec![0f32; BLOCK_ROWS.min(rows.len()) * m];
        for rows in rows.chunks(BLOCK_ROWS) {
            let block = &mut block[..rows.len() * m];
            self.inner.rows.block_f32(Pick::List(rows), Pick::All, block, control)?;
            let places: Vec<u32> = rows.iter().map(|_| kept.next_place()).collect();
            let end = kept.owner.len() * m;
            if kept.values.len() < end {
                // Growing by doubling would take more than the memory that was given.
                let more = (end - kept.values.len()).max((self.most * m / 16).min(self.most * m - kept.values.len()));
                kept.values.reserve_exact(more);
                kept.values.resize(end, 0.0);
            }
            for ((&place, &row), values) in places.iter().zip(rows).zip(block.chunks(m)) {
                kept.values[place as usize * m..(place as usize + 1) * m].copy_from_slice(values);
                kept.place[row as usize] = place;
                kept.owner[place as usize] = row;
            }
        }
        Ok(())
    }
}

impl Matrix for KeptRows<'_> {
    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn dims(&self) -> usize {
        self.inner.dims()
    }

    fn stored(&self) -> usize {
        self.inner.stored()
    }

    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        let list = self.list(rows);
        let (kept, absent) = self.with(list, control)?;
        let m = self.inner.m();
        let mut a = w.to_vec();
        self.inner.factor.solve_upper(&mut a, &control.threads);
        let kept = &*kept;
        control.threads.chunks(out, TASK_ROWS, |task, part| {
            for (o, &i) in part.iter_mut().zip(&list[task * TASK_ROWS..]) {
                if let Some(row) = kept.row(i, m) {
                    *o = sweep::dot(row, &a);
                }
            }
        });
        control.check()?;
        if !absent.is_empty() {
            let others: Vec<u32> = absent.iter().map(|&k| list[k as usize]).collect();
            let mut values = vec![0.0; others.len()];
            self.inner.rows.apply(Precision::Single, Pick::List(&others), &a, 1, &mut values, control)?;
            absent.iter().zip(&values).for_each(|(&k, v)| out[k as usize] = *v);
        }
        Ok(())
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        // Rows without a coefficient are not needed, and need not be kept.
        let list = self.list(rows);
        let used: Vec<usize> = (0..list.len()).filter(|&k| coefficients[k] != 0.0).collect();
        let list: Vec<u32> = used.iter().map(|&k| list[k]).collect();
        let coefficients: Vec<f64> = used.iter().map(|&k| coefficients[k]).collect();
        let (kept, absent) = self.with(&list, control)?;
        let m = self.inner.m();
        let kept = &*kept;
        let parts = control.threads.map(list.len().div_ceil(SUM_ROWS), |task| {
            let mut sum = vec![0.0; m];
            let range = task * SUM_ROWS..((task + 1) * SUM_ROWS).min(list.len());
            for (&i, c) in list[range.clone()].iter().zip(&coefficients[range]) {
                if let Some(row) = kept.row(i, m) {
                    sweep::add_row(&mut sum, row, *c);
                }
            }
            sum
        });
        let mut q = vec![0.0; m];
        if !absent.is_empty() {
            let others: Vec<u32> = absent.iter().map(|&k| list[k as usize]).collect();
            let own: Vec<f64> = absent.iter().map(|&k| coefficients[k as usize]).collect();
            self.inner.raw_combine(Pick::List(&others), &own, &mut q, control)?;
        }
        parts.iter().for_each(|part| q.iter_mut().zip(part).for_each(|(q, p)| *q += p));
        self.inner.factor.solve_lower(&mut q, &control.threads);
        out.iter_mut().zip(&q).for_each(|(o, v)| *o += v);
        control.check()
    }

    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        w: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let list = self.list(rows);
        let (kept, absent) = self.with(list, control)?;
        let (m, kept) = (self.inner.m(), &*kept);
        let mut a = w.to_vec();
        self.inner.factor.solve_upper(&mut a, &control.threads);
        let mut q = vec![0.0; m];
        let mut add = |parts: Vec<Part>| {
            for (found, sum) in parts {
                found.iter().for_each(|(k, dot)| dots[*k] = *dot);
                q.iter_mut().zip(&sum).for_each(|(q, s)| *q += s);
            }
        };
        let use_row = |part: &mut Part, k: usize, row: &[f32]| {
            let dot = sweep::dot(row, &a);
            part.0.push((k, dot));
            sweep::add_row(&mut part.1, row, weights[k] * (dot - shift));
        };
        add(control.threads.map(list.len().div_ceil(SUM_ROWS), |task| {
            let mut part = (Vec::with_capacity(SUM_ROWS), vec![0.0; m]);
            for k in task * SUM_ROWS..((task + 1) * SUM_ROWS).min(list.len()) {
                if let Some(row) = kept.row(list[k], m) {
                    use_row(&mut part, k, row);
                }
            }
            part
        }));
        control.check()?;
        let one = control.with_threads(Threads::one());
        add(control.threads.map(absent.len().div_ceil(SUM_ROWS), |task| {
            let mut part = (Vec::with_capacity(SUM_ROWS), vec![0.0; m]);
            let mut block = vec![0f32; TASK_ROWS * m];
            for places in absent[task * SUM_ROWS..((task + 1) * SUM_ROWS).min(absent.len())].chunks(TASK_ROWS) {
                let others: Vec<u32> = places.iter().map(|&k| list[k as usize]).collect();
                let block = &mut block[..others.len() * m];
                // An interruption is found below.
                if self.inner.rows.block_f32(Pick::List(&others), Pick::All, block, &one).is_ok() {
                    places.iter().zip(block.chunks(m)).for_each(|(&k, row)| use_row(&mut part, k as usize, row));
                }
            }
            part
        }));
        control.check()?;
        self.inner.factor.solve_lower(&mut q, &control.threads);
        out.iter_mut().zip(&q).for_each(|(o, v)| *o += v);
        Ok(())
    }

    fn moments(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        centre: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let list = self.list(rows);
        let (kept, absent) = self.with(list, control)?;
        if !absent.is_empty() {
            drop(kept);
            return self.inner.moments(rows, weights, centre, first, second, control);
        }
        let (m, kept) = (self.inner.m(), &*kept);
        let block = |from: usize, block: &mut [f64]| {
            control.threads.chunks(block, m * TASK_ROWS, |task, part| {
                for (row, &i) in part.chunks_mut(m).zip(&list[from + task * TASK_ROWS..]) {
                    let Some(values) = kept.row(i, m) else { continue };
                    row.iter_mut().zip(values).for_each(|(to, k)| *to = f64::from(*k));
                }
            });
            Ok(())
        };
        self.inner.moments_of(list.len(), block, weights, centre, first, second, control)
    }

    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.inner.squares(rows, weights, out, control)
    }
}
