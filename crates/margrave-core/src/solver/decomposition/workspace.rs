//! What all phases share: the problem, kernel rows, counters, reports, and products of K with a change in β.

use std::ops::ControlFlow;

use super::iterative::Iterative;
use super::rows::{BATCH, KernelRows, StoredEntry};
use super::shrinking::Shrunk;
use super::state::DualState;
use crate::control::{Control, Interrupt, Status};
use crate::gram::{Gram, Pick, Precision};
use crate::observe::{Observer, Step};
use crate::problem::KernelProblem;

/// Rows computed together where there is room for all.
const MANY_ROWS: usize = 256;
/// Seconds between two reports to the observer.
const REPORT_INTERVAL: f64 = 0.04;

/// The problem, kernel rows and counters.
pub(super) struct Workspace<'a, 'o, T> {
    pub(super) problem: &'a KernelProblem<'a>,
    /// K as the phases use it: the problem's own, or a rougher and faster one.
    pub(super) gram: &'a dyn Gram,
    pub(super) control: &'a Control,
    pub(super) observer: &'o mut dyn Observer,
    /// Rows over all variables.
    pub(super) full_rows: KernelRows<T>,
    /// Rows of K of all variables, unless they are all rows in order.
    pub(super) columns: Option<Vec<u32>>,
    /// While variables are shrunk: rows over the active ones.
    pub(super) shrunk: Option<Shrunk<'a, T>>,
    /// Bytes for kernel rows and factors.
    pub(super) bytes: u64,
    pub(super) iterations: u64,
    pub(super) iteration_limit: u64,
    pub(super) shrinking: bool,
    /// Whether the polish releases and pins variables a few at a time, and goes on where many leave their pieces: for
    /// entries in memory and small factors.
    pub(super) gradual_polish: bool,
    /// The relative gap that suffices by itself, where the stopping rule has no violation.
    pub(super) sufficient_gap: Option<f64>,
    pub(super) last_report: f64,
    /// Bound on the difference between the gradient and that of the exact K.
    pub(super) gradient_error: f64,
    /// Bound on the error of an entry of K.
    pub(super) entry_error: f64,
}

impl<T: StoredEntry> Workspace<'_, '_, T> {
    /// Whether the stopping rule is a gap alone, and that gap, in working precision, is well within its tolerance.
    pub(super) fn gap_suffices(&self, state: &DualState) -> bool {
        let Some(wanted) = self.sufficient_gap else { return false };
        if state.active.len() < self.problem.len() {
            return false;
        }
        let mut score = vec![0.0; self.problem.len()];
        for (a, &i) in state.active.iter().enumerate() {
            let (i, t) = (i as usize, &state.terms[i as usize]);
            score[i] = state.g[a] - t.p - t.d * state.beta[i];
        }
        state.gap(self.problem, |i| score[i]).relative() <= 0.7 * wanted
    }

    /// Reports the violation to the observer, at most every [`REPORT_INTERVAL`] seconds unless `now`; `Err` when the
    /// run is to stop.
    pub(super) fn report(
        &mut self,
        state: &DualState,
        phase: &'static str,
        violation: f64,
        now: bool,
    ) -> Result<(), Status> {
        self.control.note(Some(violation), None);
        self.control.check().map_err(Status::from)?;
        let seconds = self.control.seconds();
        if !now && seconds - self.last_report < REPORT_INTERVAL {
            return Ok(());
        }
        self.last_report = seconds;
        let step = Step {
            iteration: self.iterations,
            seconds,
            phase,
            violation: Some(violation),
            active: Some(state.active.len()),
            kernel_entries: Some(self.problem.gram.entries()),
            ..Step::default()
        };
        match self.observer.step(&step) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Status::Interrupted),
        }
    }

    /// K[active, changed]·delta: from stored rows if most are there and the rest fit, else by a product that stores
    /// nothing. Expensive entries are kept from the first time on.
    pub(super) fn product(&mut self, state: &DualState, changed: &[u32], delta: &[f64]) -> Result<Vec<f64>, Interrupt> {
        self.gradient_error += self.entry_error * delta.iter().map(|d| d.abs()).sum::<f64>();
        let mut out = vec![0.0; state.active.len()];
        if self.product_from_rows(changed, delta, &mut out)? {
            return Ok(out);
        }
        let mut v = vec![0.0; self.problem.gram.shape().1];
        for (&i, &d) in changed.iter().zip(delta) {
            v[self.problem.row(i as usize)] += d;
        }
        let numbers: Option<Vec<u32>> = if self.shrunk.is_some() {
            Some(state.active.iter().map(|&i| self.problem.row(i as usize) as u32).collect())
        } else {
            None
        };
        let rows = numbers.as_deref().or(self.columns.as_deref()).map_or(Pick::All, Pick::List);
        let precision = if size_of::<T>() == 4 { Precision::Single } else { Precision::Double };
        self.gram.apply(precision, rows, &v, 1, &mut out, self.control)?;
        Ok(out)
    }

    /// Whether the rows of so many more variables are kept once they are computed.
    pub(super) fn keeps_rows(&self, count: usize) -> bool {
        self.gram.worth_keeping() && self.full_rows.room() >= count
    }

    /// The same where K over the changed variables and others is stored: rows of the rest are computed.
    pub(super) fn product_with(
        &mut self,
        state: &DualState,
        stored: &Iterative,
        changed: &[u32],
        delta: &[f64],
    ) -> Result<Vec<f64>, Interrupt> {
        let mut within = vec![0.0; stored.members().len()];
        changed.iter().zip(delta).for_each(|(&i, d)| within[stored.place_of(i)] = *d);
        let rest: Vec<usize> = (0..state.active.len()).filter(|&a| !stored.has(state.active[a])).collect();
        self.gradient_error += self.entry_error * delta.iter().map(|d| d.abs()).sum::<f64>();
        let mut v = vec![0.0; self.problem.gram.shape().1];
        changed.iter().zip(delta).for_each(|(&i, d)| v[self.problem.row(i as usize)] += d);
        let rows: Vec<u32> = rest.iter().map(|&a| self.problem.row(state.active[a] as usize) as u32).collect();
        let mut computed = vec![0.0; rest.len()];
        self.gram.apply(Precision::Single, Pick::List(&rows), &v, 1, &mut computed, self.control)?;
        let known = stored.kernel_product(&within, state, self.control);
        let mut out = vec![0.0; state.active.len()];
        for (a, &i) in state.active.iter().enumerate().filter(|(_, i)| stored.has(**i)) {
            out[a] = known[stored.place_of(i)];
        }
        rest.iter().zip(computed).for_each(|(&a, value)| out[a] = value);
        Ok(out)
    }

    /// The product from stored rows over all variables; `false` if they are not stored and not worth fetching.
    fn product_from_rows(&mut self, changed: &[u32], delta: &[f64], out: &mut [f64]) -> Result<bool, Interrupt> {
        let missing: Vec<u32> = changed.iter().copied().filter(|&i| !self.full_rows.has(i as usize)).collect();
        let few = missing.len() * 4 <= changed.len().max(64);
        if changed.len() + 2 * BATCH > self.full_rows.capacity() || !(few || self.keeps_rows(missing.len())) {
            return Ok(false);
        }
        for &i in changed {
            if self.full_rows.has(i as usize) {
                self.full_rows.touch(i as usize);
            }
        }
        let (problem, cols) = (self.problem, self.columns.as_deref().map_or(Pick::All, Pick::List));
        // Every batch reads all points once: many rows at a time where none has to make way.
        let batch = if self.full_rows.room() >= missing.len() { MANY_ROWS } else { 2 * BATCH };
        for batch in missing.chunks(batch) {
            self.full_rows.fetch(self.gram, batch, |v| problem.row(v as usize) as u32, cols, self.control)?;
        }
        // A later batch may have displaced an earlier one.
        if !changed.iter().all(|&i| self.full_rows.has(i as usize)) {
            return Ok(false);
        }
        let places = self.shrunk.as_ref().map(|s| s.positions.as_slice());
        self.full_rows.add_to(changed, delta, places, out, &self.control.threads);
        Ok(true)
    }
}
