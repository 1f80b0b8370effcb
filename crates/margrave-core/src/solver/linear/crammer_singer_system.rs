//! Newton's system of the proximal point method for the model of Crammer and Singer.
//!
//! ```text
//! (I + Σᵢ (cᵢ/width)·xᵢxᵢᵀ ⊗ Pᵢ)·ΔW = Σᵢ xᵢαᵢᵀ − W,   Pᵢ = I − 11ᵀ/|S| over the classes S of sample i
//! ```
//!
//! Pᵢ is zero on vectors that are equal in all classes, and the columns of W always sum to zero over the classes. So the
//! system is solved for the differences from one class: its block is left out, and the identity becomes I − 11ᵀ/k. This
//! leaves (k − 1)·d unknowns. The class left out is the one with most samples, whose products are then never formed.
//!
//! M = Σ cᵢ·xᵢxᵢᵀ ⊗ Pᵢ does not depend on the width. It is kept, and only samples whose S changed are subtracted and
//! added again; where it has few terms it is formed anew. Systems of more than 1 500 unknowns are solved by conjugate gradients.

use super::class_lanes::{LANES, Lane, add_scaled, at, dot};
use super::crammer_singer::{CHECK_INTERVAL, CrammerSingerState};
use crate::control::Status;
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::sparse;
use crate::linalg::vectorised::{Vectorised, vectorised};

/// Most unknowns of a system that is factored.
pub(super) const MAX_DIRECT_UNKNOWNS: usize = 1500;
/// Most conjugate gradient steps.
const MAX_CG_STEPS: usize = 200;
/// Most updates before M is formed anew, so that rounding does not accumulate.
const MAX_UPDATES: usize = 40;

/// A set of classes for every sample.
#[derive(Clone)]
pub(super) struct ClassSets {
    words: usize,
    bits: Vec<u64>,
}

impl ClassSets {
    pub(super) fn new(n: usize, k: usize) -> Self {
        let words = k.div_ceil(64);
        Self { words, bits: vec![0; n * words] }
    }

    /// Sets the classes of sample `i` to those with a > 0, and returns their number.
    #[inline(always)]
    pub(super) fn assign(&mut self, i: usize, a: &[Lane]) -> u32 {
        let bits = &mut self.bits[i * self.words..(i + 1) * self.words];
        let mut count = 0;
        for (word, a) in bits.iter_mut().zip(a.chunks(64 / LANES)) {
            *word = 0;
            for (at, a) in a.iter().flatten().enumerate() {
                *word |= u64::from(*a > 0.0) << at;
            }
            count += word.count_ones();
        }
        count
    }

    fn of(&self, i: usize) -> &[u64] {
        &self.bits[i * self.words..(i + 1) * self.words]
    }

    fn copy(&mut self, i: usize, from: &Self) {
        let range = i * self.words..(i + 1) * self.words;
        self.bits[range.clone()].copy_from_slice(&from.bits[range]);
    }

    /// Number of classes of sample `i`.
    fn count(&self, i: usize) -> usize {
        self.of(i).iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The classes of sample `i`, ascending.
    pub(super) fn list(&self, i: usize, out: &mut Vec<usize>) {
        out.clear();
        for (at, &word) in self.of(i).iter().enumerate() {
            let mut word = word;
            while word != 0 {
                out.push(64 * at + word.trailing_zeros() as usize);
                word &= word - 1;
            }
        }
    }
}

/// The matrix M of the samples with at least two classes, updated from step to step.
pub(super) struct NewtonSystem {
    /// Features, including that of the bias.
    d: usize,
    size: usize,
    /// The block of each class; `None` for the class left out.
    blocks: Vec<Option<usize>>,
    /// Lower triangle of M, by class, then by feature; empty before the first step.
    matrix: Vec<f64>,
    /// Memory for the factor.
    square: Vec<f64>,
    /// The classes of each sample in M.
    applied: ClassSets,
    updates: usize,
    /// The features of the present row, and their values.
    columns: Vec<u32>,
    values: Vec<f64>,
    classes: Vec<usize>,
}

impl NewtonSystem {
    /// Adds the term of sample `i` with the classes in `self.classes`, times `sign`; the row is in `self.columns` and
    /// `self.values`.
    fn add_sample(&mut self, cost: f64) {
        if self.classes.len() > 1 {
            vectorised(AddSample { system: self, cost });
        }
    }
}

struct AddSample<'s> {
    system: &'s mut NewtonSystem,
    cost: f64,
}

impl Vectorised for AddSample<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { system: NewtonSystem { d, size, blocks, matrix, columns, values, classes, .. }, cost } = self;
        let (d, size) = (*d, *size);
        let share = cost / classes.len() as f64;
        let is_dense = columns.len() == d;
        for &m in &*classes {
            let Some(of_row) = blocks[m] else { continue };
            for &other in &*classes {
                let Some(of_column) = blocks[other].filter(|b| *b <= of_row) else { continue };
                let weight = if m == other { cost - share } else { -share };
                for (at, (&j, &x)) in columns.iter().zip(&*values).enumerate() {
                    let from = (of_row * d + j as usize) * size + of_column * d;
                    let line = &mut matrix[from..from + d];
                    // Of a diagonal block only the lower triangle is read; the entries of a row ascend by feature.
                    let count = if m == other { at + 1 } else { columns.len() };
                    let weight = weight * x;
                    if is_dense {
                        line.iter_mut().zip(&values[..count]).for_each(|(line, y)| *line += weight * y);
                    } else {
                        sparse::add(&columns[..count], &values[..count], weight, line);
                    }
                }
            }
        }
    }
}

impl CrammerSingerState<'_, '_> {
    /// Features, including that of the bias.
    fn features(&self) -> usize {
        self.points.dims() + usize::from(self.scaling > 0.0)
    }

    /// Number of unknowns of Newton's system.
    pub(super) fn unknowns(&self) -> usize {
        self.features() * (self.k - 1)
    }

    /// Whether Newton's system is factored.
    pub(super) fn can_factor_newton(&self) -> bool {
        let size = self.unknowns();
        size <= MAX_DIRECT_UNKNOWNS && 24 * (size * size) as u64 <= self.options.memory
    }

    pub(super) fn new_system(&self) -> NewtonSystem {
        let mut counts = vec![0usize; self.k];
        self.codes.iter().for_each(|&code| counts[code as usize] += 1);
        let omitted = (0..self.k).rev().max_by_key(|&m| counts[m]).unwrap_or(0);
        let block = |m: usize| if m == omitted { None } else { Some(m - usize::from(m > omitted)) };
        let applied = ClassSets::new(if self.can_factor_newton() { self.n() } else { 0 }, self.k);
        NewtonSystem {
            d: self.features(),
            size: self.unknowns(),
            blocks: (0..self.k).map(block).collect(),
            matrix: Vec::new(),
            square: Vec::new(),
            applied,
            updates: 0,
            columns: Vec::new(),
            values: Vec::new(),
            classes: Vec::new(),
        }
    }

    /// Brings M up to date with the classes of the samples.
    fn update_system(&mut self, system: &mut NewtonSystem, sets: &ClassSets) -> Result<(), Status> {
        let n = self.n();
        let mut changed: Vec<usize> = (0..n).filter(|&i| system.applied.of(i) != sets.of(i)).collect();
        system.updates += 1;
        // Where it costs less than the factorisation, M is formed anew: differences of large terms leave their rounding.
        let row = self.points.stored() / n.max(1) + 1;
        let work: usize =
            (0..n).map(|i| sets.count(i)).filter(|count| *count > 1).map(|count| (count * row).pow(2) / 2).sum();
        let is_cheap = work <= system.size.pow(3) / 6;
        if system.matrix.is_empty() || is_cheap || system.updates > MAX_UPDATES || 2 * changed.len() > n {
            system.matrix.clear();
            system.matrix.resize(system.size * system.size, 0.0);
            system.applied.bits.fill(0);
            system.updates = 0;
            changed = (0..n).collect();
        }
        for (count, &i) in changed.iter().enumerate() {
            if count % CHECK_INTERVAL == 0 {
                self.poll("newton", changed.len())?;
            }
            let mut work = 0;
            for (from, sign) in [(0, -1.0), (1, 1.0)] {
                let mut classes = std::mem::take(&mut system.classes);
                if from == 0 { &system.applied } else { sets }.list(i, &mut classes);
                system.classes = classes;
                if system.classes.len() < 2 {
                    continue;
                }
                if work == 0 {
                    let (columns, values) = (&mut system.columns, &mut system.values);
                    columns.clear();
                    values.clear();
                    self.visit(i, |j, x| {
                        columns.push(j as u32);
                        values.push(x);
                    });
                }
                work += (system.classes.len() * system.columns.len()).pow(2) / 2;
                system.add_sample(sign * self.costs[i]);
            }
            self.control.spend(work);
            system.applied.copy(i, sets);
        }
        Ok(())
    }

    /// Solves Newton's system with the right-hand side `right`; `curved` are the samples with at least two classes.
    pub(super) fn newton_direction(
        &mut self,
        system: &mut NewtonSystem,
        sets: &ClassSets,
        curved: &[u32],
        width: f64,
        right: &[Lane],
    ) -> Result<Vec<Lane>, Status> {
        if self.can_factor_newton() {
            self.update_system(system, sets)?;
            self.direct_direction(system, width, right)
        } else {
            self.cg_direction(sets, curved, width, right)
        }
    }

    /// Solves the system by Cholesky.
    fn direct_direction(&mut self, system: &mut NewtonSystem, width: f64, right: &[Lane]) -> Result<Vec<Lane>, Status> {
        let (k, d, size) = (self.k, system.d, system.size);
        let share = 1.0 / k as f64;
        let entry = |i: usize| system.matrix[i * size + i] / width + 1.0 - share;
        let roots: Vec<f64> = (0..size).map(|i| 1.0 / entry(i).sqrt()).collect();
        let mut jitter = 0.0;
        let factor = loop {
            let mut square = std::mem::take(&mut system.square);
            square.resize(size * size, 0.0);
            for i in 0..size {
                let factor = roots[i] / width;
                let (from, to) = (&system.matrix[i * size..=i * size + i], &mut square[i * size..=i * size + i]);
                to.iter_mut().zip(from).zip(&roots).for_each(|((to, from), root)| *to = from * factor * root);
                for other in (i % d..i).step_by(d) {
                    to[other] -= share * roots[i] * roots[other];
                }
                to[i] = 1.0 + jitter;
            }
            match Cholesky::new(square, size, size, self.control) {
                Ok(factor) => break factor,
                Err(FactorError::Interrupted(why)) => return Err(why.into()),
                Err(FactorError::NotPositive(_)) if jitter > 1.0 => return Err(Status::Stalled),
                // The matrix is definite; the factorisation can fail only by rounding.
                Err(FactorError::NotPositive(_)) => jitter = if jitter == 0.0 { 1e-14 } else { 30.0 * jitter },
            }
        };
        let place = |j: usize, m: usize| (j * self.lanes + at(m).0, at(m).1);
        let mut s = vec![0.0; size];
        for (m, block) in system.blocks.iter().enumerate() {
            let Some(block) = block else { continue };
            for j in 0..d {
                let (lane, l) = place(j, m);
                s[block * d + j] = right[lane][l] * roots[block * d + j];
            }
        }
        factor.solve(&mut s);
        system.square = factor.into_square();
        s.iter_mut().zip(&roots).for_each(|(s, root)| *s *= root);
        let mut out = vec![[0.0; LANES]; right.len()];
        for j in 0..d {
            let mean = (0..k - 1).map(|block| s[block * d + j]).sum::<f64>() * share;
            for (m, block) in system.blocks.iter().enumerate() {
                let (lane, l) = place(j, m);
                out[lane][l] = block.map_or(0.0, |block| s[block * d + j]) - mean;
            }
        }
        Ok(out)
    }

    /// Solves the system by conjugate gradients with a diagonal preconditioner, for all classes.
    fn cg_direction(
        &mut self,
        sets: &ClassSets,
        curved: &[u32],
        width: f64,
        right: &[Lane],
    ) -> Result<Vec<Lane>, Status> {
        let lanes = self.lanes;
        let mut classes: Vec<usize> = Vec::new();
        let mut diagonal = vec![[1.0; LANES]; right.len()];
        for &i in curved {
            let i = i as usize;
            sets.list(i, &mut classes);
            let gain = self.costs[i] / width;
            let weight = gain - gain / classes.len() as f64;
            self.visit(i, |j, x| {
                for &m in &classes {
                    let (lane, l) = at(m);
                    diagonal[j * lanes + lane][l] += weight * x * x;
                }
            });
        }
        let precondition = |r: &[Lane], y: &mut [Lane]| {
            for ((y, r), d) in y.iter_mut().zip(r).zip(&diagonal) {
                (0..LANES).for_each(|l| y[l] = r[l] / d[l]);
            }
        };
        let (mut s, mut r, mut y) = (vec![[0.0; LANES]; right.len()], right.to_vec(), right.to_vec());
        precondition(&r, &mut y);
        let mut p = y.clone();
        let mut ry = dot(&r, &y);
        let goal = 1e-4 * ry;
        let mut q = p.clone();
        for _ in 0..MAX_CG_STEPS {
            if !(ry > goal) {
                break;
            }
            self.poll("newton", curved.len())?;
            q.copy_from_slice(&p);
            self.add_curvature(sets, curved, width, &p, &mut q)?;
            let curvature = dot(&p, &q);
            if !(curvature > 0.0) {
                break;
            }
            let t = ry / curvature;
            add_scaled(&p, t, &mut s);
            add_scaled(&q, -t, &mut r);
            precondition(&r, &mut y);
            let next = dot(&r, &y);
            let ratio = next / ry;
            ry = next;
            for (p, y) in p.iter_mut().zip(&y) {
                (0..LANES).for_each(|l| p[l] = y[l] + ratio * p[l]);
            }
        }
        Ok(s)
    }

    /// `q += M·p / width`.
    fn add_curvature(
        &mut self,
        sets: &ClassSets,
        curved: &[u32],
        width: f64,
        p: &[Lane],
        q: &mut [Lane],
    ) -> Result<(), Status> {
        let lanes = self.lanes;
        let (mut classes, mut z) = (Vec::new(), Vec::new());
        let mut g = vec![[0.0; LANES]; lanes];
        self.control.spend(curved.len() * self.row_cost());
        for (count, &i) in curved.iter().enumerate() {
            if count % CHECK_INTERVAL == 0 {
                self.control.check().map_err(Status::from)?;
            }
            let i = i as usize;
            sets.list(i, &mut classes);
            z.clear();
            z.resize(classes.len(), 0.0);
            // Few classes are read one by one, many all at once.
            if classes.len() <= lanes {
                self.visit(i, |j, x| {
                    let row = &p[j * lanes..(j + 1) * lanes];
                    z.iter_mut().zip(&classes).for_each(|(z, &m)| *z += x * row[at(m).0][at(m).1]);
                });
            } else {
                self.products(i, p, &mut g);
                z.iter_mut().zip(&classes).for_each(|(z, &m)| *z = g[at(m).0][at(m).1]);
            }
            let gain = self.costs[i] / width;
            let mean = z.iter().sum::<f64>() / z.len() as f64;
            z.iter_mut().for_each(|z| *z = gain * (*z - mean));
            self.visit(i, |j, x| {
                let row = &mut q[j * lanes..(j + 1) * lanes];
                z.iter().zip(&classes).for_each(|(z, &m)| row[at(m).0][at(m).1] += x * z);
            });
        }
        Ok(())
    }
}
