//! A row times the weights of all classes, and the update of these weights by a row: the inner loops of Crammer–Singer
//! models.
//!
//! The weights are stored feature by feature with the classes side by side in lanes. The last feature is that of the bias.

use super::class_lanes::{LANES, Lane, add_scaled};
use crate::data::{Points, Real, Storage};
use crate::linalg::vectorised::{Vectorised, vectorised};

/// The arrays of the data: reading them through [`Points`] takes a virtual call per row and array.
#[derive(Clone, Copy)]
pub(super) enum ClassRows<'a> {
    DenseF32(&'a [f32]),
    DenseF64(&'a [f64]),
    SparseF32(&'a [usize], &'a [u32], &'a [f32]),
    SparseF64(&'a [usize], &'a [u32], &'a [f64]),
}

impl<'a> ClassRows<'a> {
    pub(super) fn new(points: &'a Points) -> Self {
        match points.storage() {
            Storage::DenseF32(m) => Self::DenseF32(m.values()),
            Storage::DenseF64(m) => Self::DenseF64(m.values()),
            Storage::SparseF32(m) => Self::SparseF32(m.starts(), m.columns(), m.values()),
            Storage::SparseF64(m) => Self::SparseF64(m.starts(), m.columns(), m.values()),
        }
    }
}

/// A row of the data with the constant feature of the bias, whose value is `scaling`; 0 without a bias.
#[derive(Clone, Copy)]
pub(super) struct ClassRow<'a> {
    pub(super) rows: ClassRows<'a>,
    pub(super) row: usize,
    pub(super) dims: usize,
    pub(super) scaling: f64,
}

impl ClassRow<'_> {
    /// `out = wᵀx` for every class.
    #[inline(always)]
    pub(super) fn products(self, w: &[Lane], out: &mut [Lane]) {
        vectorised(Products { of: self, w, out });
    }

    /// `w += x·uᵀ`.
    #[inline(always)]
    pub(super) fn add(self, u: &[Lane], w: &mut [Lane]) {
        vectorised(Add { of: self, u, w });
    }

    /// Calls `each` with the features of the row, including that of the bias.
    #[inline(always)]
    pub(super) fn visit(self, each: impl FnMut(usize, f64)) {
        struct Each<F>(F);
        impl<F: FnMut(usize, f64)> Entries for Each<F> {
            #[inline(always)]
            fn visit(&mut self, entries: impl Iterator<Item = (usize, f64)> + Clone) {
                entries.for_each(|(j, x)| self.0(j, x));
            }
        }
        let mut each = Each(each);
        self.each(&mut each);
        if self.scaling > 0.0 {
            each.0(self.dims, self.scaling);
        }
    }

    /// The entries of the row, ascending by feature.
    #[inline(always)]
    fn each(self, visitor: &mut impl Entries) {
        #[inline(always)]
        fn dense<T: Real>(of: ClassRow<'_>, values: &[T]) -> impl Iterator<Item = (usize, f64)> + Clone {
            values[of.row * of.dims..(of.row + 1) * of.dims].iter().enumerate().map(|(j, x)| (j, x.to_f64()))
        }
        #[inline(always)]
        fn sparse<T: Real>(
            of: ClassRow<'_>,
            starts: &[usize],
            columns: &[u32],
            values: &[T],
        ) -> impl Iterator<Item = (usize, f64)> + Clone {
            let range = starts[of.row]..starts[of.row + 1];
            columns[range.clone()].iter().zip(&values[range]).map(|(j, x)| (*j as usize, x.to_f64()))
        }
        match self.rows {
            ClassRows::DenseF32(values) => visitor.visit(dense(self, values)),
            ClassRows::DenseF64(values) => visitor.visit(dense(self, values)),
            ClassRows::SparseF32(starts, columns, values) => visitor.visit(sparse(self, starts, columns, values)),
            ClassRows::SparseF64(starts, columns, values) => visitor.visit(sparse(self, starts, columns, values)),
        }
    }
}

/// What is done with the entries of a row.
trait Entries {
    fn visit(&mut self, entries: impl Iterator<Item = (usize, f64)> + Clone);
}

struct Products<'a> {
    of: ClassRow<'a>,
    w: &'a [Lane],
    out: &'a mut [Lane],
}

impl Products<'_> {
    /// `B` lanes from lane `from` on, with their sums in registers. Returns `B`.
    #[inline(always)]
    fn lanes<const B: usize>(&mut self, entries: impl Iterator<Item = (usize, f64)>, from: usize) -> usize {
        let lanes = self.out.len();
        let mut sums = [[0.0; LANES]; B];
        for (j, x) in entries {
            add_scaled(&self.w[j * lanes + from..][..B], x, &mut sums);
        }
        if self.of.scaling > 0.0 {
            add_scaled(&self.w[self.of.dims * lanes + from..][..B], self.of.scaling, &mut sums);
        }
        self.out[from..from + B].copy_from_slice(&sums);
        B
    }
}

impl Entries for Products<'_> {
    #[inline(always)]
    fn visit(&mut self, entries: impl Iterator<Item = (usize, f64)> + Clone) {
        let mut from = 0;
        while from < self.out.len() {
            from += match self.out.len() - from {
                1 => self.lanes::<1>(entries.clone(), from),
                2 => self.lanes::<2>(entries.clone(), from),
                3 => self.lanes::<3>(entries.clone(), from),
                4..=6 => self.lanes::<4>(entries.clone(), from),
                7 => self.lanes::<7>(entries.clone(), from),
                _ => self.lanes::<8>(entries.clone(), from),
            };
        }
    }
}

impl Vectorised for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let of = self.of;
        of.each(&mut self);
    }
}

struct Add<'a> {
    of: ClassRow<'a>,
    u: &'a [Lane],
    w: &'a mut [Lane],
}

impl Add<'_> {
    /// All lanes, of which there are `B`, in registers.
    #[inline(always)]
    fn all<const B: usize>(&mut self, entries: impl Iterator<Item = (usize, f64)>) {
        let mut u = [[0.0; LANES]; B];
        u.copy_from_slice(&self.u[..B]);
        for (j, x) in entries {
            add_scaled(&u, x, &mut self.w[j * B..][..B]);
        }
        if self.of.scaling > 0.0 {
            add_scaled(&u, self.of.scaling, &mut self.w[self.of.dims * B..][..B]);
        }
    }

    /// One lane.
    #[inline(always)]
    fn one(&mut self, entries: impl Iterator<Item = (usize, f64)>, lane: usize) {
        let (lanes, u) = (self.u.len(), self.u[lane]);
        for (j, x) in entries {
            let w = &mut self.w[j * lanes + lane];
            (0..LANES).for_each(|l| w[l] += x * u[l]);
        }
        if self.of.scaling > 0.0 {
            let w = &mut self.w[self.of.dims * lanes + lane];
            (0..LANES).for_each(|l| w[l] += self.of.scaling * u[l]);
        }
    }
}

impl Entries for Add<'_> {
    #[inline(always)]
    fn visit(&mut self, entries: impl Iterator<Item = (usize, f64)> + Clone) {
        match self.u.len() {
            1 => self.all::<1>(entries),
            2 => self.all::<2>(entries),
            3 => self.all::<3>(entries),
            // Most steps change few of many classes.
            lanes => {
                for lane in 0..lanes {
                    if self.u[lane] != [0.0; LANES] {
                        self.one(entries.clone(), lane);
                    }
                }
            }
        }
    }
}

impl Vectorised for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let of = self.of;
        of.each(&mut self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Csr;

    /// The same 3 × 5 matrix in every storage.
    fn storages() -> Vec<Points> {
        let rows = [[0.5, 0.0, -2.0, 0.0, 4.0], [0.0; 5], [0.0, 1.5, 0.25, -8.0, 0.0]];
        let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in &rows {
            for (j, x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                columns.push(j as u32);
                values.push(*x);
            }
            starts.push(columns.len());
        }
        let single = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<f32>>();
        let dense: Vec<f64> = rows.concat();
        vec![
            Points::dense_f32(3, 5, single(&dense)).unwrap(),
            Points::dense_f64(3, 5, dense).unwrap(),
            Csr::new(5, starts.clone(), columns.clone(), single(&values)).unwrap().into(),
            Csr::new(5, starts, columns, values).unwrap().into(),
        ]
    }

    fn filled(count: usize, seed: usize) -> Vec<Lane> {
        let value = |at: usize| ((at * 37 + seed * 11) % 29) as f64 / 8.0 - 1.5;
        (0..count).map(|lane| std::array::from_fn(|l| value(LANES * lane + l))).collect()
    }

    #[test]
    fn products_and_updates_are_those_of_every_entry() {
        for (storage, points) in storages().iter().enumerate() {
            let dense: Vec<Vec<f64>> = (0..3)
                .map(|i| {
                    let mut row = vec![0.0; 5];
                    points.copy_row(i, &mut row);
                    row
                })
                .collect();
            // Values are multiples of powers of two, so that sums are exact in any order.
            for (lanes, scaling) in (1..=17).flat_map(|lanes| [(lanes, 0.0), (lanes, 2.0)]) {
                for i in 0..3 {
                    let row = ClassRow { rows: ClassRows::new(points), row: i, dims: 5, scaling };
                    let mut x = dense[i].clone();
                    x.push(scaling);
                    let (w, mut out) = (filled(6 * lanes, 1), filled(lanes, 2));
                    row.products(&w, &mut out);
                    let mut u = filled(lanes, 3);
                    u[lanes / 2] = [0.0; LANES];
                    let mut updated = w.clone();
                    row.add(&u, &mut updated);
                    let mut visited = vec![0.0; 6];
                    row.visit(|j, x| visited[j] += x);
                    assert_eq!(visited, x, "storage {storage}, row {i}");
                    for (lane, l) in (0..lanes).flat_map(|lane| (0..LANES).map(move |l| (lane, l))) {
                        let product: f64 = (0..6).map(|j| x[j] * w[j * lanes + lane][l]).sum();
                        assert_eq!(
                            out[lane][l], product,
                            "storage {storage}, {lanes} lanes, row {i}, scaling {scaling}"
                        );
                        for j in 0..6 {
                            let expected = w[j * lanes + lane][l] + x[j] * u[lane][l];
                            assert_eq!(
                                updated[j * lanes + lane][l],
                                expected,
                                "storage {storage}, {lanes} lanes, row {i}"
                            );
                        }
                    }
                }
            }
        }
    }
}
