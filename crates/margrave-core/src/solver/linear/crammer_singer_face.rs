//! Steps over all free variables of a Crammer–Singer model at once: `face.rs` for several classes.
//!
//! Dual descent soon finds which a are zero, and then solves a linear system over the others by Gauss–Seidel, which is
//! slow for similar rows. A step by conjugate gradients on that system, within Σ_m a_im = cᵢ, is faster. The end point is
//! projected on the simplex of each sample, and the best point between it and the current one is taken, so the dual
//! never falls; the next epochs correct the set.

use super::class_lanes::{LANES, Lane, Shifted, add_scaled, at, dot, exchange, sum_of_others};
use super::crammer_singer::{CHECK_INTERVAL, CrammerSingerState};
use crate::control::Status;

/// Most conjugate gradient steps.
const MAX_CG_STEPS: usize = 30;
/// Tolerance of the squared relative residual.
const RESIDUAL_TOLERANCE: f64 = 1e-4;

/// The free variables: for each sample with at least two classes with a > 0, those classes.
struct Face {
    rows: Vec<u32>,
    starts: Vec<usize>,
    classes: Vec<u32>,
}

impl Face {
    /// The position in vectors of free variables, and the classes, of the sample at `at`.
    fn span(&self, at: usize) -> std::ops::Range<usize> {
        self.starts[at]..self.starts[at + 1]
    }
}

/// Subtracts the mean.
fn centre(z: &mut [f64]) {
    let mean = z.iter().sum::<f64>() / z.len() as f64;
    z.iter_mut().for_each(|z| *z -= mean);
}

fn inner(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

impl CrammerSingerState<'_, '_> {
    fn face(&self) -> Face {
        let mut face = Face { rows: Vec::new(), starts: vec![0], classes: Vec::new() };
        for i in (0..self.n()).filter(|&i| self.costs[i] > 0.0) {
            let before = face.classes.len();
            let a = self.a[self.span(i)].as_flattened();
            face.classes.extend((0..self.k as u32).filter(|&m| a[m as usize] > 0.0));
            if face.classes.len() > before + 1 {
                face.rows.push(i as u32);
                face.starts.push(face.classes.len());
            } else {
                face.classes.truncate(before);
            }
        }
        face
    }

    /// The products of the rows of the face with `w`, for the free classes, into `out`.
    fn face_products(&self, face: &Face, w: &[Lane], out: &mut [f64]) -> Result<(), Status> {
        let lanes = self.lanes;
        for (r, &i) in face.rows.iter().enumerate() {
            if r % CHECK_INTERVAL == 0 {
                self.control.check().map_err(Status::from)?;
            }
            let classes = &face.classes[face.span(r)];
            let z = &mut out[face.span(r)];
            z.fill(0.0);
            self.visit(i as usize, |j, x| {
                let row = w[j * lanes..(j + 1) * lanes].as_flattened();
                z.iter_mut().zip(classes).for_each(|(z, &m)| *z += x * row[m as usize]);
            });
        }
        Ok(())
    }

    /// `Σ x·p` over the face, in the shape of W.
    fn face_combined(&self, face: &Face, p: &[f64], out: &mut [Lane]) -> Result<(), Status> {
        let lanes = self.lanes;
        out.fill([0.0; LANES]);
        for (r, &i) in face.rows.iter().enumerate() {
            if r % CHECK_INTERVAL == 0 {
                self.control.check().map_err(Status::from)?;
            }
            let (classes, p) = (&face.classes[face.span(r)], &p[face.span(r)]);
            self.visit(i as usize, |j, x| {
                let row = out[j * lanes..(j + 1) * lanes].as_flattened_mut();
                p.iter().zip(classes).for_each(|(p, &m)| row[m as usize] += x * p);
            });
        }
        Ok(())
    }

    /// One step over all free variables. Returns its multiply–adds.
    pub(super) fn face_step(&mut self) -> Result<f64, Status> {
        let face = self.face();
        let size = face.classes.len();
        // The slope of the dual, within the sums.
        let mut slopes = vec![0.0; size];
        self.face_products(&face, &self.w, &mut slopes)?;
        for r in 0..face.rows.len() {
            let own = self.codes[face.rows[r] as usize];
            let classes = &face.classes[face.span(r)];
            let z = &mut slopes[face.span(r)];
            z.iter_mut().zip(classes).filter(|(_, m)| **m != own).for_each(|(z, _)| *z += 1.0);
            centre(z);
        }
        let mut u = vec![[0.0; LANES]; self.w.len()];
        let (mut change, steps) = self.solve_face(&face, &slopes, &mut u)?;
        let per_row = size / face.rows.len().max(1) + 1;
        let work = (2 * (steps + 2) * per_row * face.rows.len() * self.row_cost() / (LANES * self.lanes)) as f64;
        if !change.iter().all(|v| v.is_finite()) {
            return Ok(work);
        }
        self.project_change(&face, &mut change);
        self.face_combined(&face, &change, &mut u)?;
        // Along the segment the dual is a parabola; W changes by −u.
        let t = (inner(&slopes, &change) / dot(&u, &u)).min(1.0);
        if t > 0.0 {
            add_scaled(&u, -t, &mut self.w);
            for (r, &i) in face.rows.iter().enumerate() {
                let (span, c, own) =
                    (self.span(i as usize), self.costs[i as usize], at(self.codes[i as usize] as usize));
                let a = &mut self.a[span];
                let tiny = 1e-14 * sum_of_others(a, own);
                for (&m, change) in face.classes[face.span(r)].iter().zip(&change[face.span(r)]) {
                    let (lane, l) = at(m as usize);
                    let new = a[lane][l] + t * change;
                    a[lane][l] = if new > tiny { new } else { 0.0 };
                }
                let own_a = c - sum_of_others(a, own);
                a[own.0][own.1] = if own_a > 1e-14 * c { own_a } else { 0.0 };
            }
        }
        Ok(work)
    }

    /// Solves the linear system over the free variables by conjugate gradients; `u` is scratch in the shape of W.
    fn solve_face(&mut self, face: &Face, right: &[f64], u: &mut [Lane]) -> Result<(Vec<f64>, usize), Status> {
        let bias_square = self.scaling * self.scaling;
        let inverse: Vec<f64> =
            face.rows.iter().map(|&i| 1.0 / (self.points.squared_norms()[i as usize] + bias_square)).collect();
        let precondition = |r: &[f64], y: &mut [f64]| {
            for (at, inverse) in inverse.iter().enumerate() {
                let span = face.span(at);
                y[span.clone()].iter_mut().zip(&r[span]).for_each(|(y, r)| *y = inverse * r);
            }
        };
        let (mut s, mut r, mut y, mut q) = (vec![0.0; right.len()], right.to_vec(), right.to_vec(), right.to_vec());
        precondition(&r, &mut y);
        let mut p = y.clone();
        let mut ry = inner(&r, &y);
        let goal = RESIDUAL_TOLERANCE * ry;
        for step in 0..MAX_CG_STEPS {
            if !(ry > goal) {
                return Ok((s, step));
            }
            self.poll("coordinate", face.rows.len())?;
            self.control.spend(2 * right.len() * (self.row_cost() / (LANES * self.lanes)));
            self.face_combined(face, &p, u)?;
            self.face_products(face, u, &mut q)?;
            (0..face.rows.len()).for_each(|r| centre(&mut q[face.span(r)]));
            let curvature = inner(&p, &q);
            if !(curvature > 0.0) {
                return Ok((s, step));
            }
            let t = ry / curvature;
            for j in 0..s.len() {
                s[j] += t * p[j];
                r[j] -= t * q[j];
            }
            precondition(&r, &mut y);
            let next = inner(&r, &y);
            let ratio = next / ry;
            ry = next;
            p.iter_mut().zip(&y).for_each(|(p, y)| *p = y + ratio * *p);
        }
        Ok((s, MAX_CG_STEPS))
    }

    /// Shortens the change of every sample so that a + change is the nearest point of its simplex.
    fn project_change(&self, face: &Face, change: &mut [f64]) {
        let (mut u, mut moved) = (vec![[0.0; LANES]; self.lanes], vec![[0.0; LANES]; self.lanes]);
        let mut old = moved.clone();
        for (r, &i) in face.rows.iter().enumerate() {
            let (i, classes, change) = (i as usize, &face.classes[face.span(r)], &mut change[face.span(r)]);
            let a = self.a[self.span(i)].as_flattened();
            if classes.iter().zip(&*change).all(|(&m, change)| a[m as usize] + change >= 0.0) {
                continue;
            }
            moved.fill([0.0; LANES]);
            classes.iter().zip(&*change).for_each(|(&m, c)| moved[at(m as usize).0][at(m as usize).1] = *c);
            let (c, own) = (self.costs[i], at(self.codes[i] as usize));
            old.copy_from_slice(&self.a[self.span(i)]);
            let is_projected = Shifted::new(&moved, &old, 1.0, c, own, &mut u).project(c);
            exchange(&mut old, &mut u, own);
            for (&m, change) in classes.iter().zip(change) {
                *change = if is_projected { -u.as_flattened()[m as usize] } else { 0.0 };
            }
        }
    }
}
