//! Kernel entries of a few rows, from the original points.
//!
//! Preparing columns reads and writes all of them, which costs as much as evaluating the kernel for a row or two: a
//! prediction of one row is faster without.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exact;
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::gram::{Gram, Pick, Precision};
use crate::kernel::Kernel;

/// Most rows for which columns are not prepared.
pub(crate) const FEW_ROWS: usize = 4;
/// Columns per task.
const CHUNK: usize = 256;

/// The Gram of a kernel over points, rows × columns, each entry computed on its own in double precision.
#[derive(Debug)]
pub(crate) struct DirectGram {
    kernel: Kernel,
    rows: Points,
    cols: Points,
    entries: AtomicU64,
}

impl DirectGram {
    /// Rows and columns must have the same features, which the kernel must accept.
    pub(crate) fn new(kernel: Kernel, rows: &Points, cols: &Points) -> Self {
        Self { kernel, rows: rows.clone(), cols: cols.clone(), entries: AtomicU64::new(0) }
    }

    /// K[i, cols] into `out`.
    fn fill(&self, i: usize, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        let statistic = self.kernel.statistic();
        control.threads.chunks(out, CHUNK, |task, part| {
            if control.check().is_err() {
                return;
            }
            for (c, out) in part.iter_mut().enumerate() {
                let s = exact::statistic(statistic, &self.rows, i, &self.cols, cols.get(task * CHUNK + c));
                *out = self.kernel.of_statistic(s);
            }
        });
        control.spend(out.len() * (self.cols.dims() + 4));
        self.entries.fetch_add(out.len() as u64, Ordering::Relaxed);
        control.check()
    }
}

impl Gram for DirectGram {
    fn shape(&self) -> (usize, usize) {
        (self.rows.len(), self.cols.len())
    }

    fn diag(&self) -> Vec<f64> {
        let own = |i: usize| exact::statistic(self.kernel.statistic(), &self.rows, i, &self.cols, i);
        (0..self.rows.len().min(self.cols.len())).map(|i| self.kernel.of_statistic(own(i))).collect()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        let mut values = vec![0.0; out.len()];
        self.block_f64(rows, cols, &mut values, control)?;
        out.iter_mut().zip(values).for_each(|(out, v)| *out = v as f32);
        Ok(())
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        let width = cols.len(self.cols.len()).max(1);
        for (r, out) in out.chunks_exact_mut(width).enumerate() {
            self.fill(rows.get(r), cols, out, control)?;
        }
        Ok(())
    }

    fn apply(
        &self,
        _precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let used = |j: &u32| v[*j as usize * k..(*j as usize + 1) * k].iter().any(|x| *x != 0.0);
        let active: Vec<u32> = (0..self.cols.len() as u32).filter(used).collect();
        let mut values = vec![0.0; active.len()];
        for (r, out) in out.chunks_exact_mut(k.max(1)).enumerate() {
            self.fill(rows.get(r), Pick::List(&active), &mut values, control)?;
            out.fill(0.0);
            for (&j, value) in active.iter().zip(&values) {
                let own = &v[j as usize * k..(j as usize + 1) * k];
                out.iter_mut().zip(own).for_each(|(out, v)| *out += value * v);
            }
        }
        Ok(())
    }

    fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    fn effort(&self) -> f64 {
        self.cols.dims() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::{CpuGram, Level};
    use crate::control::Threads;
    use crate::data::Csr;

    #[test]
    fn entries_and_products_are_those_of_prepared_columns() {
        let control = Control::unlimited(Threads::one());
        let values = |n: usize| (0..3 * n).map(|i| ((i * i) as f64 * 0.37).sin().abs()).collect::<Vec<f64>>();
        let (rows, m) = (Points::dense_f64(2, 3, values(2)).unwrap(), 300);
        let starts = (0..=m).map(|i| 3 * i).collect::<Vec<usize>>();
        let columns: Vec<u32> = (0..m).flat_map(|_| 0..3).collect();
        let sparse: Points = Csr::new(3, starts, columns, values(m)).unwrap().into();
        for cols in [Points::dense_f64(m, 3, values(m)).unwrap(), sparse] {
            for kernel in
                [Kernel::rbf(0.8), Kernel::Linear, Kernel::Laplacian { gamma: 0.4 }, Kernel::Chi2 { gamma: 0.3 }]
            {
                let (direct, packed) =
                    (DirectGram::new(kernel, &rows, &cols), CpuGram::new(kernel, &rows, &cols).unwrap());
                let v: Vec<f64> = (0..2 * m).map(|i| (i % 5) as f64 - 2.0).collect();
                let (mut own, mut other) = (vec![0.0; 4], vec![0.0; 4]);
                direct.apply(Precision::Single, Pick::All, &v, 2, &mut own, &control).unwrap();
                packed.apply(Precision::Double, Pick::All, &v, 2, &mut other, &control).unwrap();
                assert!(own.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-11), "{kernel}: {own:?} {other:?}");
                let (mut own, mut other) = (vec![0f32; 2], vec![0f32; 2]);
                direct.block_f32(Pick::List(&[1]), Pick::List(&[299, 4]), &mut own, &control).unwrap();
                packed.block_f32(Pick::List(&[1]), Pick::List(&[299, 4]), &mut other, &control).unwrap();
                assert!(own.iter().zip(&other).all(|(a, b)| (a - b).abs() < 3e-6), "{kernel}: {own:?} {other:?}");
                assert!(direct.entries() > 0 && direct.shape() == (2, 300));
            }
        }
    }

    /// 240 features are computed again with vectors of 512 bits, 1 000 are not.
    #[test]
    fn wider_vectors_raise_the_limit_from_which_entries_are_kept() {
        for (features, level, kept) in [
            (150, Level::Avx2, false),
            (240, Level::Avx2, true),
            (240, Level::Avx512, false),
            (1000, Level::Avx2, true),
            (1000, Level::Avx512, true),
        ] {
            let values: Vec<f64> = (0..4 * features).map(|i| (i as f64 * 0.37).sin()).collect();
            let points = Points::dense_f64(4, features, values).unwrap();
            let gram = CpuGram::square(Kernel::rbf(0.1), &points).unwrap().with_level(level);
            if level == level.min(Level::detect()) {
                assert_eq!(gram.worth_keeping(), kept, "{features} features, {level:?}");
            }
        }
    }
}
