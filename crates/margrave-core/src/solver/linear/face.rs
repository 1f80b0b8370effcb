//! Steps over all free β at once, where coordinate descent crawls.
//!
//! Coordinate descent soon finds which β are at a bound, and then solves a linear system over the others by Gauss–Seidel, which is slow
//! where rows are alike. Conjugate gradients on that system, cut off where a bound is met, take it on from there; the next epochs
//! mend the set. This is the scheme of Moré and Toraldo (SIAM J. Optim. 1, 1991) with epochs for projected gradients.

use super::coordinate::{Moving, Rows, Sweep};

/// Conjugate gradient steps at most.
const STEPS: usize = 10;
/// Residual, squared and relative, that is enough.
const ENOUGH: f64 = 1e-3;
/// Stored values of the free rows at most: beyond, epochs are as fast.
const LARGEST: usize = 1 << 18;

impl Sweep<'_> {
    /// One such step, if few rows have changed their state lately.
    pub(super) fn face<R: Rows>(&mut self, rows: R, moving: &mut Moving<'_>) {
        let free = |&i: &u32| {
            let (cell, t) = (&self.cells[i as usize], self.term(i as usize));
            cell.beta > t.lo && cell.beta < t.hi && (t.eps == 0.0 || cell.beta != 0.0)
        };
        let face: Vec<u32> = self.active.iter().copied().filter(free).collect();
        let n = face.len();
        let stored: usize = face.iter().map(|&i| self.cells[i as usize].stored()).sum();
        if n == 0 || 10 * self.changed > n || stored > LARGEST {
            return;
        }
        let cell = |k: usize| &self.cells[face[k] as usize];
        let term = |k: usize| self.term(face[k] as usize);
        let ridge: Vec<f64> = (0..n).map(|k| term(k).d).collect();
        let mut r: Vec<f64> = (0..n)
            .map(|k| {
                let (cell, t) = (cell(k), term(k));
                let z = rows.dot(cell, moving.w) + *moving.b;
                -(z + t.p + t.d * cell.beta + t.eps * cell.beta.signum() * f64::from(u8::from(t.eps > 0.0)))
            })
            .collect();
        let diagonal: Vec<f64> = (0..n).map(|k| (cell(k).q + ridge[k]).max(f64::MIN_POSITIVE)).collect();
        let mut y: Vec<f64> = r.iter().zip(&diagonal).map(|(r, d)| r / d).collect();
        let mut p = y.clone();
        let mut ry: f64 = r.iter().zip(&y).map(|(r, y)| r * y).sum();
        let goal = ENOUGH * ry;
        let d = moving.w.len();
        let (mut s, mut q) = (vec![0.0; n], vec![0.0; n]);
        let (mut u, mut change) = (vec![0.0; d], vec![0.0; d]);
        for _ in 0..STEPS {
            if !(ry > goal) {
                break;
            }
            u.fill(0.0);
            (0..n).for_each(|k| rows.add(cell(k), p[k], &mut u));
            let bias = self.square * p.iter().sum::<f64>();
            (0..n).for_each(|k| q[k] = rows.dot(cell(k), &u) + bias + ridge[k] * p[k]);
            let curvature: f64 = p.iter().zip(&q).map(|(p, q)| p * q).sum();
            if !(curvature > 0.0) {
                break;
            }
            let t = ry / curvature;
            for k in 0..n {
                s[k] += t * p[k];
                r[k] -= t * q[k];
                y[k] = r[k] / diagonal[k];
            }
            change.iter_mut().zip(&u).for_each(|(c, u)| *c += t * u);
            let next: f64 = r.iter().zip(&y).map(|(r, y)| r * y).sum();
            let keep = next / ry;
            ry = next;
            p.iter_mut().zip(&y).for_each(|(p, y)| *p = y + keep * *p);
        }
        if !s.iter().all(|v| v.is_finite()) {
            return;
        }
        // The part of the box on this side of the kink at 0.
        let sides: Vec<(f64, f64)> = (0..n)
            .map(|k| {
                let (t, beta) = (term(k), cell(k).beta);
                match t.eps > 0.0 {
                    true if beta > 0.0 => (t.lo.max(0.0), t.hi),
                    true => (t.lo, t.hi.min(0.0)),
                    false => (t.lo, t.hi),
                }
            })
            .collect();
        let new: Vec<f64> = (0..n).map(|k| (cell(k).beta + s[k]).max(sides[k].0).min(sides[k].1)).collect();
        let mut whole = 1.0f64;
        for k in 0..n {
            let beta = cell(k).beta;
            if new[k] != beta + s[k] && s[k] != 0.0 {
                whole = whole.min((if s[k] > 0.0 { sides[k].1 - beta } else { sides[k].0 - beta }) / s[k]);
            }
        }
        let mut deltas: Vec<f64> = (0..n).map(|k| new[k] - cell(k).beta).collect();
        if whole < 1.0 {
            // All of the step, clipped, if that gains; otherwise as much of it as fits.
            u.fill(0.0);
            (0..n).for_each(|k| rows.add(cell(k), deltas[k], &mut u));
            let shift = self.square * deltas.iter().sum::<f64>();
            let mut gain: f64 = moving.w.iter().zip(&u).map(|(w, u)| w * u + 0.5 * u * u).sum();
            if self.square > 0.0 {
                gain += (2.0 * *moving.b + shift) * shift / (2.0 * self.square);
            }
            for k in 0..n {
                let (t, old) = (term(k), cell(k).beta);
                gain += t.p * deltas[k] + t.eps * (new[k].abs() - old.abs());
                gain += 0.5 * t.d * (new[k] * new[k] - old * old);
            }
            if gain < 0.0 {
                change = u;
            } else {
                let part = whole.max(0.0);
                deltas.iter_mut().zip(&s).for_each(|(delta, s)| *delta = part * s);
                change.iter_mut().for_each(|c| *c *= part);
            }
        }
        let total: f64 = deltas.iter().sum();
        moving.w.iter_mut().zip(&change).for_each(|(w, c)| *w += c);
        *moving.b += self.square * total;
        *moving.sum += total;
        for (k, delta) in deltas.iter().enumerate() {
            let cell = &mut self.cells[face[k] as usize];
            cell.beta = (cell.beta + delta).max(sides[k].0).min(sides[k].1);
        }
    }
}
