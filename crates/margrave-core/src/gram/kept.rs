//! A small Gram matrix kept in memory in double precision.
//!
//! Up to [`KeptGram::MOST`] points all of K is a few cache-sized pages. Computing each entry once costs less than asking
//! for blocks again and again, each of which packs its points and divides its work into tasks; and with double precision
//! at hand a solver has no rounding to correct afterwards.

use super::{Accuracy, Chain, Gram, Pick, Precision};
use crate::control::{Control, Interrupt};
use crate::linalg::sweep;

/// All entries of a small square Gram.
pub struct KeptGram {
    n: usize,
    values: Vec<f64>,
    diag: Vec<f64>,
    accuracy: Accuracy,
}

impl KeptGram {
    /// Largest number of points: 2 MiB.
    pub const MOST: usize = 512;

    /// Computes all entries of a square Gram. `None` if it is too large, or if an entry is not finite: a product must not
    /// read the columns of such entries where their coefficients are 0.
    pub fn new(gram: &dyn Gram, control: &Control) -> Result<Option<Self>, Interrupt> {
        let n = gram.shape().0;
        if n > Self::MOST {
            return Ok(None);
        }
        let mut values = vec![0.0; n * n];
        gram.block_f64(Pick::All, Pick::All, &mut values, control)?;
        let finite = values.iter().all(|v| v.is_finite());
        // Products are computed here, however those of `gram` are.
        let accuracy = Accuracy { chain: Chain::default(), ..gram.accuracy() };
        Ok(finite.then(|| Self { n, values, diag: gram.diag(), accuracy }))
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.n..(i + 1) * self.n]
    }

    fn copy<T: Copy>(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [T],
        control: &Control,
        convert: impl Fn(f64) -> T,
    ) -> Result<(), Interrupt> {
        control.check()?;
        control.spend(out.len() / 4);
        let width = cols.len(self.n).max(1);
        for (r, out) in out.chunks_exact_mut(width).enumerate() {
            let row = self.row(rows.get(r));
            match cols {
                Pick::All => out.iter_mut().zip(row).for_each(|(out, v)| *out = convert(*v)),
                Pick::Range(from, to) => out.iter_mut().zip(&row[from..to]).for_each(|(out, v)| *out = convert(*v)),
                Pick::List(list) => out.iter_mut().zip(list).for_each(|(out, &c)| *out = convert(row[c as usize])),
            }
        }
        Ok(())
    }
}

impl Gram for KeptGram {
    fn shape(&self) -> (usize, usize) {
        (self.n, self.n)
    }

    fn diag(&self) -> Vec<f64> {
        self.diag.clone()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        self.copy(rows, cols, out, control, |v| v as f32)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.copy(rows, cols, out, control, |v| v)
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
        control.check()?;
        control.spend(rows.len(self.n) * self.n * k / 4);
        for (r, out) in out.chunks_exact_mut(k.max(1)).enumerate() {
            let row = self.row(rows.get(r));
            if let [out] = out {
                *out = sweep::dot(row, v);
            } else {
                out.fill(0.0);
                for (value, v) in row.iter().zip(v.chunks_exact(k)) {
                    out.iter_mut().zip(v).for_each(|(out, v)| *out += value * v);
                }
            }
        }
        Ok(())
    }

    fn entries(&self) -> u64 {
        self.values.len() as u64
    }

    fn select(&self, rows: &[u32]) -> Option<Box<dyn Gram + '_>> {
        let mut values = Vec::with_capacity(rows.len() * rows.len());
        for &i in rows {
            let row = self.row(i as usize);
            values.extend(rows.iter().map(|&j| row[j as usize]));
        }
        let some = |all: &[f64]| rows.iter().map(|&row| all[row as usize]).collect();
        let accuracy = Accuracy { size: some(&self.accuracy.size), ..self.accuracy };
        Some(Box::new(Self { n: rows.len(), values, diag: some(&self.diag), accuracy }))
    }

    fn effort(&self) -> f64 {
        1.0
    }

    fn in_memory(&self) -> bool {
        true
    }

    fn accuracy(&self) -> Accuracy {
        self.accuracy.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::gram::PrecomputedGram;
    use crate::kernel::Kernel;

    fn control() -> Control {
        Control::unlimited(Threads::one())
    }

    #[test]
    fn entries_products_and_parts_are_those_of_the_gram() {
        let n = 11;
        let points = Points::dense_f64(n, 2, (0..2 * n).map(|i| (i as f64 * 0.7).sin()).collect::<Vec<f64>>()).unwrap();
        let gram = CpuGram::square(Kernel::rbf(0.6), &points).unwrap();
        let kept = KeptGram::new(&gram, &control()).unwrap().unwrap();
        assert_eq!((kept.shape(), kept.entries(), kept.diag()), ((n, n), 121, gram.diag()));
        assert!(kept.accuracy().definite && kept.accuracy().relative == gram.accuracy().relative);
        let (mut own, mut other) = (vec![0.0; 6], vec![0.0; 6]);
        for cols in [Pick::List(&[7, 0, 10]), Pick::Range(4, 7)] {
            kept.block_f64(Pick::List(&[9, 2]), cols, &mut own, &control()).unwrap();
            gram.block_f64(Pick::List(&[9, 2]), cols, &mut other, &control()).unwrap();
            assert!(own.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-15), "{own:?} {other:?}");
        }
        let mut single = vec![0f32; 6];
        kept.block_f32(Pick::List(&[9, 2]), Pick::Range(4, 7), &mut single, &control()).unwrap();
        assert!(single.iter().zip(&other).all(|(a, b)| *a == *b as f32));
        let v: Vec<f64> = (0..2 * n).map(|i| (i % 3) as f64 - 1.0).collect();
        let (mut own, mut other) = (vec![0.0; 4], vec![0.0; 4]);
        kept.apply(Precision::Double, Pick::List(&[3, 8]), &v, 2, &mut own, &control()).unwrap();
        gram.apply(Precision::Double, Pick::List(&[3, 8]), &v, 2, &mut other, &control()).unwrap();
        assert!(own.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-14), "{own:?} {other:?}");
        let part = kept.select(&[8, 3]).unwrap();
        let mut two = [0.0; 2];
        part.apply(Precision::Double, Pick::All, &[0.0, 2.0], 1, &mut two, &control()).unwrap();
        let mut one = [0.0; 1];
        kept.block_f64(Pick::List(&[8]), Pick::List(&[3]), &mut one, &control()).unwrap();
        assert_eq!((two[0], part.shape(), part.in_memory()), (2.0 * one[0], (2, 2), true));
    }

    #[test]
    fn large_matrices_and_infinite_entries_are_not_kept() {
        let infinite = PrecomputedGram::new(Points::dense_f64(2, 2, vec![1.0, f64::MAX, f64::MAX, 1.0]).unwrap());
        assert!(KeptGram::new(&infinite, &control()).unwrap().is_some());
        let points = Points::dense_f64(2, 1, vec![1e200, 1.0]).unwrap();
        let overflow = CpuGram::square(Kernel::Linear, &points).unwrap();
        assert!(KeptGram::new(&overflow, &control()).unwrap().is_none());
        let many = Points::dense_f64(KeptGram::MOST + 1, 1, vec![0.5; KeptGram::MOST + 1]).unwrap();
        let many = CpuGram::square(Kernel::rbf(1.0), &many).unwrap();
        assert!(KeptGram::new(&many, &control()).unwrap().is_none());
        assert_eq!(many.entries(), 0);
    }
}
