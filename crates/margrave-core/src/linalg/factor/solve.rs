//! Solving with a factor while some variables are held at zero.

use super::tiles::{dot, products, solve_rows};
use super::{Cholesky, FactorError, Scalar};
use crate::control::{Control, Threads};
use crate::linalg::sweep::{self, ROWS};

/// Rows solved for at a time, on one thread; the contribution of the others is computed on all.
const STRIP: usize = 256;
/// Rows of a strip per task.
const SHARE: usize = 32;

/// Variables held at zero: W = L⁻¹E, and the factor of WᵀW.
#[derive(Debug, Clone)]
pub(super) struct Held<T: Scalar> {
    which: Vec<u32>,
    /// Row r is the column L⁻¹e of the r-th held variable, length n.
    w: Vec<T>,
    inner: Box<Cholesky<T>>,
}

impl<T: Scalar> Cholesky<T> {
    /// Holds the listed variables at zero in all following solves, in addition to those already held.
    ///
    /// On failure no variable is held.
    pub fn hold_also(&mut self, which: &[u32], control: &Control) -> Result<(), FactorError> {
        if which.is_empty() {
            return Ok(());
        }
        let held = self.held.take();
        let (n, m) = (self.n, which.len());
        let first = which.iter().copied().min().unwrap_or(0) as usize;
        control.spend(m * n * (n + 2 * m) / 4);
        let mut fresh = vec![T::of(0.0); m * n];
        for (r, &i) in which.iter().enumerate() {
            fresh[r * n + i as usize] = T::of(1.0);
        }
        solve_rows(&self.l, self.ld, n, first, &mut fresh, m, &control.threads);
        control.check()?;
        let own = products(&fresh, m, &fresh, m, n, first, true, control);
        let next = match held {
            None => Held { which: which.to_vec(), w: fresh, inner: Box::new(Cholesky::new(own, m, m, control)?) },
            Some(Held { which: mut all, mut w, mut inner }) => {
                let cross = products(&fresh, m, &w, all.len(), n, first, false, control);
                inner.append(cross, &own, m, control)?;
                all.extend_from_slice(which);
                w.append(&mut fresh);
                Held { which: all, w, inner }
            }
        };
        self.held = Some(next);
        Ok(())
    }

    /// Holds exactly the listed variables at zero in all following solves (an empty list releases all). If all
    /// variables already held are listed, only the new ones cost work.
    pub fn hold(&mut self, which: &[u32], control: &Control) -> Result<(), FactorError> {
        let before = self.held.as_ref().map_or(&[][..], |held| &held.which);
        let mut listed = vec![false; self.n];
        which.iter().for_each(|&i| listed[i as usize] = true);
        if before.iter().all(|&i| listed[i as usize]) {
            before.iter().for_each(|&i| listed[i as usize] = false);
            let more: Vec<u32> = which.iter().copied().filter(|&i| listed[i as usize]).collect();
            return self.hold_also(&more, control);
        }
        self.held = None;
        self.hold_also(which, control)
    }

    /// Solves K·x = r in place, in the factor's precision; held variables of `r` are ignored and come back as 0.
    pub fn solve(&self, r: &mut [f64]) {
        self.solve_on(r, &Threads::one());
    }

    /// [`solve`](Self::solve) on several threads, with the same bits.
    pub fn solve_on(&self, r: &mut [f64], threads: &Threads) {
        assert_eq!(r.len(), self.n);
        let Some(held) = &self.held else {
            self.forward(r, threads);
            self.backward(r, threads);
            return;
        };
        held.which.iter().for_each(|&i| r[i as usize] = 0.0);
        self.forward(r, threads);
        // μ = −(WᵀW)⁻¹Wᵀy makes the held part of K⁻¹(r + Eμ) vanish.
        let n = self.n;
        let mut mu = vec![0.0; held.which.len()];
        let y = &*r;
        threads.chunks(&mut mu, SHARE, |t, part| {
            for (k, m) in part.iter_mut().enumerate() {
                let at = (t * SHARE + k) * n;
                *m = -dot(&held.w[at..at + n], y);
            }
        });
        held.inner.solve_on(&mut mu, threads);
        threads.chunks(r, STRIP, |t, part| {
            let len = part.len();
            let row = |k: usize| &held.w[k * n + t * STRIP..][..len];
            let (fours, rest) = mu.as_chunks::<ROWS>();
            for (q, m) in fours.iter().enumerate() {
                sweep::add_rows(part, std::array::from_fn(|r| row(ROWS * q + r)), *m);
            }
            for (k, m) in (ROWS * fours.len()..).zip(rest) {
                sweep::add_row(part, row(k), *m);
            }
        });
        self.backward(r, threads);
        held.which.iter().for_each(|&i| r[i as usize] = 0.0);
    }

    /// L⁻¹·r in place. Held variables are ignored.
    pub fn solve_lower(&self, r: &mut [f64], threads: &Threads) {
        assert_eq!(r.len(), self.n);
        self.forward(r, threads);
    }

    /// L⁻ᵀ·r in place. Held variables are ignored.
    pub fn solve_upper(&self, r: &mut [f64], threads: &Threads) {
        assert_eq!(r.len(), self.n);
        self.backward(r, threads);
    }

    /// L·x = r: strip by strip: first the contribution of the rows above, in parallel, then the strip itself.
    fn forward(&self, r: &mut [f64], threads: &Threads) {
        for from in (0..self.n).step_by(STRIP) {
            let until = (from + STRIP).min(self.n);
            let (done, rest) = r.split_at_mut(from);
            let strip = &mut rest[..until - from];
            if from > 0 {
                threads.chunks(strip, SHARE, |t, part| {
                    let row = |k: usize| &self.l[(from + t * SHARE + k) * self.ld..][..from];
                    let (pairs, rest) = part.as_chunks_mut::<2>();
                    for (p, pair) in pairs.iter_mut().enumerate() {
                        let dots = sweep::two_dots([row(2 * p), row(2 * p + 1)], done);
                        pair.iter_mut().zip(dots).for_each(|(x, dot)| *x -= dot);
                    }
                    for (k, x) in (2 * pairs.len()..).zip(rest) {
                        *x -= dot(row(k), done);
                    }
                });
            }
            for i in from..until {
                let row = &self.l[i * self.ld + from..i * self.ld + i + 1];
                let k = i - from;
                strip[k] = (strip[k] - dot(&row[..k], &strip[..k])) / row[k].wide();
            }
        }
    }

    /// Lᵀ·x = r: the last strip first, then its contribution to the rows above, in parallel.
    fn backward(&self, r: &mut [f64], threads: &Threads) {
        for from in (0..self.n).step_by(STRIP).rev() {
            let until = (from + STRIP).min(self.n);
            let (above, rest) = r.split_at_mut(from);
            let strip = &mut rest[..until - from];
            for i in (from..until).rev() {
                let row = &self.l[i * self.ld + from..i * self.ld + i + 1];
                let k = i - from;
                let x = strip[k] / row[k].wide();
                strip[k] = x;
                sweep::add_row(&mut strip[..k], &row[..k], -x);
            }
            threads.chunks(above, STRIP, |t, part| {
                let len = part.len();
                let row = |k: usize| &self.l[(from + k) * self.ld + t * STRIP..][..len];
                let (fours, rest) = strip.as_chunks::<ROWS>();
                for (q, x) in fours.iter().enumerate() {
                    sweep::add_rows(part, std::array::from_fn(|r| row(ROWS * q + r)), x.map(|x| -x));
                }
                for (k, x) in (ROWS * fours.len()..).zip(rest) {
                    sweep::add_row(part, row(k), -x);
                }
            });
        }
    }
}
