//! Steps over all free β at once, for slow phases of coordinate descent.
//!
//! Coordinate descent soon finds the β at a bound, and then solves a linear system over the others by Gauss–Seidel,
//! which is slow for similar rows. A step by conjugate gradients on that system, cut off at the bounds, is faster; the
//! next epochs correct the set. This is the scheme of Moré and Toraldo (SIAM J. Optim. 1, 1991) with epochs instead of
//! projected gradients.

use super::coordinate::{CoordinateDescent, PrimalPoint};
use super::rows::RowAccess;

/// Most conjugate gradient steps.
const MAX_CG_STEPS: usize = 10;
/// Tolerance of the squared relative residual.
const RESIDUAL_TOLERANCE: f64 = 1e-3;
/// Most stored values of the free rows: beyond, epochs are as fast.
const MAX_STORED: usize = 1 << 18;

impl CoordinateDescent<'_> {
    /// One step over all free β, if few rows became free or bounded in the last epoch.
    pub(super) fn face_step<R: RowAccess>(&mut self, rows: R, point: &mut PrimalPoint<'_>) {
        let free = |&i: &u32| {
            let (row, t) = (&self.row_states[i as usize], self.term(i as usize));
            row.beta > t.lo && row.beta < t.hi && (t.eps == 0.0 || row.beta != 0.0)
        };
        let face: Vec<u32> = self.active.iter().copied().filter(free).collect();
        let stored: usize = face.iter().map(|&i| self.row_states[i as usize].stored()).sum();
        if face.is_empty() || 10 * self.changed > face.len() || stored > MAX_STORED {
            return;
        }
        let (step, change) = self.solve_face(rows, point, &face);
        if !step.iter().all(|v| v.is_finite()) {
            return;
        }
        let pieces = self.face_pieces(&face);
        let (deltas, change) = self.clip_face_step(rows, point, &face, &pieces, &step, change);
        let total: f64 = deltas.iter().sum();
        point.w.iter_mut().zip(&change).for_each(|(w, c)| *w += c);
        *point.b += self.square * total;
        *point.sum += total;
        for (k, delta) in deltas.iter().enumerate() {
            let row = &mut self.row_states[face[k] as usize];
            row.beta = (row.beta + delta).max(pieces[k].0).min(pieces[k].1);
        }
    }

    /// Solves the linear system over the free β by conjugate gradients. Returns the change of β and that of w.
    fn solve_face<R: RowAccess>(&self, rows: R, point: &PrimalPoint<'_>, face: &[u32]) -> (Vec<f64>, Vec<f64>) {
        let n = face.len();
        let row = |k: usize| &self.row_states[face[k] as usize];
        let term = |k: usize| self.term(face[k] as usize);
        let ridge: Vec<f64> = (0..n).map(|k| term(k).d).collect();
        let mut r: Vec<f64> = (0..n)
            .map(|k| {
                let (row, t) = (row(k), term(k));
                let z = rows.dot(row, point.w) + *point.b;
                -(z + t.p + t.d * row.beta + t.eps * row.beta.signum() * f64::from(u8::from(t.eps > 0.0)))
            })
            .collect();
        let diagonal: Vec<f64> = (0..n).map(|k| (row(k).q + ridge[k]).max(f64::MIN_POSITIVE)).collect();
        let mut y: Vec<f64> = r.iter().zip(&diagonal).map(|(r, d)| r / d).collect();
        let mut p = y.clone();
        let mut ry: f64 = r.iter().zip(&y).map(|(r, y)| r * y).sum();
        let goal = RESIDUAL_TOLERANCE * ry;
        let d = point.w.len();
        let (mut s, mut q) = (vec![0.0; n], vec![0.0; n]);
        let (mut u, mut change) = (vec![0.0; d], vec![0.0; d]);
        for _ in 0..MAX_CG_STEPS {
            if !(ry > goal) {
                break;
            }
            u.fill(0.0);
            (0..n).for_each(|k| rows.add(row(k), p[k], &mut u));
            let bias = self.square * p.iter().sum::<f64>();
            (0..n).for_each(|k| q[k] = rows.dot(row(k), &u) + bias + ridge[k] * p[k]);
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
            let ratio = next / ry;
            ry = next;
            p.iter_mut().zip(&y).for_each(|(p, y)| *p = y + ratio * *p);
        }
        (s, change)
    }

    /// For each free β the part of its box on the current side of the kink at 0.
    fn face_pieces(&self, face: &[u32]) -> Vec<(f64, f64)> {
        let piece = |&i: &u32| {
            let (t, beta) = (self.term(i as usize), self.row_states[i as usize].beta);
            match t.eps > 0.0 {
                true if beta > 0.0 => (t.lo.max(0.0), t.hi),
                true => (t.lo, t.hi.min(0.0)),
                false => (t.lo, t.hi),
            }
        };
        face.iter().map(piece).collect()
    }

    /// Restricts a step to the pieces: the whole step clipped if that lowers the objective, otherwise the part of it up
    /// to the first bound. `change` is the change of w of the whole step. Returns the changes of β and of w.
    fn clip_face_step<R: RowAccess>(
        &self,
        rows: R,
        point: &PrimalPoint<'_>,
        face: &[u32],
        pieces: &[(f64, f64)],
        step: &[f64],
        mut change: Vec<f64>,
    ) -> (Vec<f64>, Vec<f64>) {
        let n = face.len();
        let row = |k: usize| &self.row_states[face[k] as usize];
        let new: Vec<f64> = (0..n).map(|k| (row(k).beta + step[k]).max(pieces[k].0).min(pieces[k].1)).collect();
        let mut fraction = 1.0f64;
        for k in 0..n {
            let beta = row(k).beta;
            if new[k] != beta + step[k] && step[k] != 0.0 {
                let bound = if step[k] > 0.0 { pieces[k].1 } else { pieces[k].0 };
                fraction = fraction.min((bound - beta) / step[k]);
            }
        }
        let mut deltas: Vec<f64> = (0..n).map(|k| new[k] - row(k).beta).collect();
        if !(fraction < 1.0) {
            return (deltas, change);
        }
        let mut u = vec![0.0; change.len()];
        (0..n).for_each(|k| rows.add(row(k), deltas[k], &mut u));
        let shift = self.square * deltas.iter().sum::<f64>();
        let mut difference: f64 = point.w.iter().zip(&u).map(|(w, u)| w * u + 0.5 * u * u).sum();
        if self.square > 0.0 {
            difference += (2.0 * *point.b + shift) * shift / (2.0 * self.square);
        }
        for k in 0..n {
            let (t, old) = (self.term(face[k] as usize), row(k).beta);
            difference += t.p * deltas[k] + t.eps * (new[k].abs() - old.abs());
            difference += 0.5 * t.d * (new[k] * new[k] - old * old);
        }
        if difference < 0.0 {
            return (deltas, u);
        }
        let fraction = fraction.max(0.0);
        deltas.iter_mut().zip(step).for_each(|(delta, s)| *delta = fraction * s);
        change.iter_mut().for_each(|c| *c *= fraction);
        (deltas, change)
    }
}
