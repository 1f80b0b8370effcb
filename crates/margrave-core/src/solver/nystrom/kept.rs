//! The rows of K_nS that a solver returns to, in front of features that are recomputed: steps on few rows, such as those near
//! the margin, then cost no kernel entries, and passes over all rows only those of the others.
//!
//! They are kept in single precision, or as 16-bit integers with a step for each row (`kept_entry.rs`): half the memory, so that
//! twice as many rows stay, and half the traffic, which is what products with kept rows take.
//!
//! Rows are kept as they are asked for. If there is no room for a list that would fit by itself, rows that are not in it
//! make way, in turn. Of a longer list, as many are kept as there is room for, and the others are computed every time.
//! Which rows are kept depends only on the calls, so the results do too; machines that are trained at the same time have
//! one each.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::kept_entry::KeptEntry;
use super::recomputed::{HEIGHT, RecomputedFeatures, SCALED_ROWS, add_single_products};
use crate::control::{Control, Interrupt, Threads};
use crate::gram::{Matrix, Pick, Precision, RowsBehind};
use crate::linalg::{pages, sweep};

/// Rows per task of products with kept rows.
const TASK_ROWS: usize = 256;
/// Rows per task of their combinations, which have a sum of m numbers per task.
const SUM_ROWS: usize = 8 * TASK_ROWS;
/// Rows per task when they are computed.
const NEW_ROWS: usize = 128;
/// Places with their products, and a sum of rows.
type Part = (Vec<(usize, f64)>, Vec<f64>);

/// A row that is not kept.
const NOWHERE: u32 = u32::MAX;

pub(super) struct KeptRows<'a, T: KeptEntry> {
    inner: &'a RecomputedFeatures<'a>,
    most: usize,
    every: Vec<u32>,
    kept: Mutex<Kept<T>>,
}

struct Kept<T> {
    /// Where each row is, or [`NOWHERE`].
    place: Vec<u32>,
    /// The row at each place, or [`NOWHERE`].
    owner: Vec<u32>,
    /// Room for all rows that may be kept; what was never written takes no memory.
    values: Vec<T>,
    /// By which the values of each place are multiplied.
    steps: Vec<f64>,
    /// Free places below the end of `owner`.
    free: Vec<u32>,
    /// Where the search for rows that make way continues.
    turn: usize,
}

impl<T: KeptEntry> Kept<T> {
    /// The values of a row and their step.
    fn row(&self, i: u32, m: usize) -> Option<(&[T], f64)> {
        let at = self.place[i as usize] as usize;
        (at != NOWHERE as usize).then(|| (&self.values[at * m..(at + 1) * m], self.steps[at]))
    }

    /// Four rows at once, if there are four and all are kept.
    fn four(&self, rows: &[u32], m: usize) -> Option<([&[T]; 4], [f64; 4])> {
        let &[a, b, c, d] = rows else { return None };
        let four = [self.row(a, m)?, self.row(b, m)?, self.row(c, m)?, self.row(d, m)?];
        Some((four.map(|(row, _)| row), four.map(|(_, step)| step)))
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

impl<'a, T: KeptEntry> KeptRows<'a, T> {
    /// `memory`: bytes for rows. `None` if entries must be double precision, or if a device has products without them.
    pub(super) fn new(inner: &'a RecomputedFeatures<'a>, memory: u64) -> Option<Self> {
        if inner.on_device() || inner.precision != Precision::Single {
            return None;
        }
        let (n, m) = (inner.rows.shape().0, inner.m());
        let most = usize::try_from(memory / (size_of::<T>() * m) as u64).unwrap_or(usize::MAX).min(n);
        let kept = Kept {
            place: vec![NOWHERE; n],
            owner: Vec::new(),
            values: pages::zeros(most * m),
            steps: vec![0.0; most],
            free: Vec::new(),
            turn: 0,
        };
        let every = (0..n as u32).collect();
        (most > 0).then(|| Self { inner, most, every, kept: Mutex::new(kept) })
    }

    /// How many rows may be kept.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    fn list<'r>(&'r self, rows: Pick<'r>) -> &'r [u32] {
        match rows {
            Pick::List(list) => list,
            Pick::All => &self.every,
            Pick::Range(from, until) => &self.every[from..until],
        }
    }

    /// The kept rows, with as many of `list` among them as there is room for, and the places in `list` of the others.
    fn with(&self, list: &[u32], control: &Control) -> Result<(MutexGuard<'_, Kept<T>>, Vec<u32>), Interrupt> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |kept: &Kept<T>| -> Vec<u32> {
            (0..list.len() as u32).filter(|&k| kept.place[list[k as usize] as usize] == NOWHERE).collect()
        };
        let mut absent = missing(&kept);
        let room = |kept: &Kept<T>| self.most - (kept.owner.len() - kept.free.len());
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

    /// Σ c·k over those rows of `list` that are kept.
    fn sum(&self, kept: &Kept<T>, list: &[u32], coefficients: &[f64], control: &Control) -> Vec<f64> {
        let m = self.inner.m();
        let parts = control.threads.map(list.len().div_ceil(SUM_ROWS), |task| {
            let mut sum = vec![0.0; m];
            let range = task * SUM_ROWS..((task + 1) * SUM_ROWS).min(list.len());
            for (rows, c) in list[range.clone()].chunks(4).zip(coefficients[range].chunks(4)) {
                if let Some((four, steps)) = kept.four(rows, m) {
                    sweep::add_four(&mut sum, four, [0, 1, 2, 3].map(|r| steps[r] * c[r]));
                    continue;
                }
                for (&i, c) in rows.iter().zip(c) {
                    if let Some((row, step)) = kept.row(i, m) {
                        sweep::add_row(&mut sum, row, step * c);
                    }
                }
            }
            sum
        });
        let mut total = vec![0.0; m];
        parts.iter().for_each(|part| total.iter_mut().zip(part).for_each(|(t, p)| *t += p));
        total
    }

    /// Computes and keeps rows for which there is room.
    fn add(&self, kept: &mut Kept<T>, rows: &[u32], control: &Control) -> Result<(), Interrupt> {
        let m = self.inner.m();
        let mut places: Vec<u32> = rows.iter().map(|_| kept.next_place()).collect();
        places.sort_unstable();
        let new: Vec<(u32, u32)> = places.into_iter().zip(rows.iter().copied()).collect();
        let mut next = new.iter().peekable();
        let places = kept.values.chunks_exact_mut(m).zip(&mut kept.steps).enumerate();
        let mut to = places.filter_map(|(at, (values, step))| {
            next.next_if(|(place, _)| *place as usize == at).map(|(_, row)| (*row, values, step))
        });
        let tasks: Vec<Vec<_>> =
            (0..new.len().div_ceil(NEW_ROWS)).map(|_| to.by_ref().take(NEW_ROWS).collect()).collect();
        let (one, stopped) = (control.with_threads(Threads::one()), OnceLock::new());
        control.threads.each_of(tasks, |_, task| {
            let rows: Vec<u32> = task.iter().map(|(row, ..)| *row).collect();
            let mut block = vec![0f32; rows.len() * m];
            match self.inner.rows.block_f32(Pick::List(&rows), Pick::All, &mut block, &one) {
                Ok(()) => {
                    for ((_, values, step), block) in task.iter_mut().zip(block.chunks_exact(m)) {
                        **step = T::keep(block, values);
                    }
                }
                // If another task was interrupted first, its reason is kept.
                Err(why) => drop(stopped.set(why)),
            }
        });
        if let Some(why) = stopped.into_inner().or(control.check().err()) {
            kept.free.extend(new.iter().map(|(place, _)| place));
            return Err(why);
        }
        for (place, row) in new {
            kept.place[row as usize] = place;
            kept.owner[place as usize] = row;
        }
        Ok(())
    }
}

impl<T: KeptEntry> Matrix for KeptRows<'_, T> {
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
            let rows = &list[task * TASK_ROWS..task * TASK_ROWS + part.len()];
            for (out, rows) in part.chunks_mut(4).zip(rows.chunks(4)) {
                if let Some((four, steps)) = kept.four(rows, m) {
                    let dots = sweep::dot_four(four, &a);
                    (0..4).for_each(|r| out[r] = steps[r] * dots[r]);
                    continue;
                }
                for (o, &i) in out.iter_mut().zip(rows) {
                    if let Some((row, step)) = kept.row(i, m) {
                        *o = step * sweep::dot(row, &a);
                    }
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
        let mut q = vec![0.0; self.inner.m()];
        RowsBehind::combine(self, Pick::List(&list), &coefficients, &mut q, control)?;
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
        let mut a = w.to_vec();
        self.inner.factor.solve_upper(&mut a, &control.threads);
        let mut q = vec![0.0; self.inner.m()];
        RowsBehind::curvature_product(self, rows, weights, &a, shift, dots, &mut q, control)?;
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
                    let Some((values, step)) = kept.row(i, m) else { continue };
                    row.iter_mut().zip(values).for_each(|(to, k)| *to = step * k.wide());
                }
            });
            Ok(())
        };
        self.inner.moments_of(list.len(), block, weights, centre, first, second, control)
    }

    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.inner.squares(rows, weights, out, control)
    }

    fn behind(&self) -> Option<&dyn RowsBehind> {
        Some(self)
    }
}

impl<T: KeptEntry> RowsBehind for KeptRows<'_, T> {
    fn gram(&self, control: &Control) -> Result<&[f32], Interrupt> {
        self.inner.centre_gram(control)
    }

    fn lower(&self, v: &[f64], control: &Control) -> Vec<f64> {
        self.inner.factor.multiply_lower(v, &control.threads)
    }

    fn lower_transposed(&self, v: &[f64]) -> Vec<f64> {
        self.inner.factor.multiply_lower_transposed(v)
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let list = self.list(rows);
        let (kept, absent) = self.with(list, control)?;
        let sum = self.sum(&kept, list, coefficients, control);
        out.iter_mut().zip(&sum).for_each(|(o, v)| *o += v);
        if !absent.is_empty() {
            let others: Vec<u32> = absent.iter().map(|&k| list[k as usize]).collect();
            let own: Vec<f64> = absent.iter().map(|&k| coefficients[k as usize]).collect();
            let mut rest = vec![0.0; self.inner.m()];
            self.inner.raw_combine(Pick::List(&others), &own, &mut rest, control)?;
            out.iter_mut().zip(&rest).for_each(|(o, v)| *o += v);
        }
        control.check()
    }

    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        v: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let list = self.list(rows);
        let (kept, absent) = self.with(list, control)?;
        let (m, kept) = (self.inner.m(), &*kept);
        let mut add = |parts: Vec<Part>| {
            for (found, sum) in parts {
                found.iter().for_each(|(k, dot)| dots[*k] = *dot);
                out.iter_mut().zip(&sum).for_each(|(q, s)| *q += s);
            }
        };
        let coefficient = |k: usize, dot: f64| weights[k] * (dot - shift);
        add(control.threads.map(list.len().div_ceil(SUM_ROWS), |task| {
            let mut part = (Vec::with_capacity(SUM_ROWS), vec![0.0; m]);
            let until = ((task + 1) * SUM_ROWS).min(list.len());
            for first in (task * SUM_ROWS..until).step_by(4) {
                let rows = &list[first..(first + 4).min(until)];
                if let Some((four, steps)) = kept.four(rows, m) {
                    let mut c = sweep::dot_four(four, v);
                    for r in 0..4 {
                        let dot = steps[r] * c[r];
                        part.0.push((first + r, dot));
                        c[r] = steps[r] * coefficient(first + r, dot);
                    }
                    sweep::add_four(&mut part.1, four, c);
                    continue;
                }
                for (k, &i) in (first..).zip(rows) {
                    if let Some((row, step)) = kept.row(i, m) {
                        let dot = step * sweep::dot(row, v);
                        part.0.push((k, dot));
                        sweep::add_row(&mut part.1, row, step * coefficient(k, dot));
                    }
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
                    for (&k, row) in places.iter().zip(block.chunks(m)) {
                        let dot = sweep::dot(row, v);
                        part.0.push((k as usize, dot));
                        sweep::add_row(&mut part.1, row, coefficient(k as usize, dot));
                    }
                }
            }
            part
        }));
        control.check()
    }

    /// Products of kept rows are single precision, sums of blocks of them double.
    fn moments(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let list = self.list(rows);
        let (kept, absent) = self.with(list, control)?;
        if !absent.is_empty() {
            drop(kept);
            let block = |from: usize, block: &mut [f64]| {
                let part = &list[from..from + block.len() / self.inner.m()];
                self.inner.rows.block_f64(Pick::List(part), Pick::All, block, control)
            };
            return self.inner.raw_moments_of(list.len(), block, weights, first, second, control);
        }
        let (m, kept) = (self.inner.m(), &*kept);
        let mut block = vec![0f32; HEIGHT.min(list.len()) * m];
        for from in (0..list.len()).step_by(HEIGHT) {
            let rows = &list[from..(from + HEIGHT).min(list.len())];
            let block = &mut block[..rows.len() * m];
            control.threads.chunks(block, m * SCALED_ROWS, |task, part| {
                let places = task * SCALED_ROWS..rows.len();
                for (row, k) in part.chunks_mut(m).zip(places) {
                    let Some((values, step)) = kept.row(rows[k], m) else { continue };
                    let scale = (step * weights[from + k].sqrt()) as f32;
                    row.iter_mut().zip(values).for_each(|(to, v)| *to = scale * v.narrow());
                }
            });
            add_single_products(block, m, second, &control.threads);
            control.spend(block.len() * m / 4);
            control.check()?;
        }
        let sum = self.sum(kept, list, weights, control);
        first.iter_mut().zip(&sum).for_each(|(f, s)| *f += s);
        control.check()
    }
}
