//! Some rows of a Gram and the same columns, as a Gram.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Accuracy, Chain, Gram, Pick, Precision};
use crate::control::{Control, Interrupt};

/// K restricted to the given rows and the same columns: [`Gram::select`] if the Gram supports it, otherwise a
/// [`Picked`] view.
pub fn part<'a>(gram: &'a dyn Gram, rows: &[u32]) -> Box<dyn Gram + 'a> {
    gram.select(rows).unwrap_or_else(|| Box::new(Picked::new(gram, rows.to_vec())))
}

/// A view of a square Gram: nothing is copied, entries are computed by the underlying Gram. Rows may occur several times; a
/// product computes each once.
pub struct Picked<'a> {
    gram: Box<dyn Gram + 'a>,
    rows: Vec<u32>,
    diag: Vec<f64>,
    /// Entries read through this view; `None`: all that the underlying Gram has computed.
    read: Option<AtomicU64>,
}

impl<'a> Picked<'a> {
    /// The given rows of `gram`, which must exist, and the same columns.
    pub fn new(gram: &'a dyn Gram, rows: Vec<u32>) -> Self {
        Self { read: Some(AtomicU64::new(0)), ..Self::of(Box::new(gram), rows) }
    }

    /// The same with a Gram of its own.
    pub fn of(gram: Box<dyn Gram + 'a>, rows: Vec<u32>) -> Self {
        let all = gram.diag();
        let diag = rows.iter().map(|&row| all[row as usize]).collect();
        Self { gram, rows, diag, read: None }
    }

    fn underlying(&self, pick: Pick<'_>) -> Vec<u32> {
        (0..pick.len(self.rows.len())).map(|i| self.rows[pick.get(i)]).collect()
    }

    fn count(&self, entries: usize) {
        if let Some(read) = &self.read {
            read.fetch_add(entries as u64, Ordering::Relaxed);
        }
    }
}

impl Gram for Picked<'_> {
    fn shape(&self) -> (usize, usize) {
        (self.rows.len(), self.rows.len())
    }

    fn diag(&self) -> Vec<f64> {
        self.diag.clone()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        self.count(out.len());
        self.gram.block_f32(Pick::List(&self.underlying(rows)), Pick::List(&self.underlying(cols)), out, control)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.count(out.len());
        self.gram.block_f64(Pick::List(&self.underlying(rows)), Pick::List(&self.underlying(cols)), out, control)
    }

    fn apply(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        // Columns that are not selected have zero coefficients and cost nothing.
        let mut wide = vec![0.0; self.gram.shape().1 * k];
        let mut used = 0;
        for (&column, v) in self.rows.iter().zip(v.chunks_exact(k)) {
            used += usize::from(v.iter().any(|v| *v != 0.0));
            let to = &mut wide[column as usize * k..(column as usize + 1) * k];
            to.iter_mut().zip(v).for_each(|(to, v)| *to += v);
        }
        let there = self.underlying(rows);
        let mut distinct = there.clone();
        distinct.sort_unstable();
        distinct.dedup();
        self.count(distinct.len() * used);
        if distinct.len() == there.len() {
            return self.gram.apply(precision, Pick::List(&there), &wide, k, out, control);
        }
        let mut product = vec![0.0; distinct.len() * k];
        let pick = if distinct.len() == self.gram.shape().0 { Pick::All } else { Pick::List(&distinct) };
        self.gram.apply(precision, pick, &wide, k, &mut product, control)?;
        let mut place = vec![0usize; self.gram.shape().0];
        distinct.iter().enumerate().for_each(|(at, &row)| place[row as usize] = at * k);
        for (&row, out) in there.iter().zip(out.chunks_exact_mut(k)) {
            out.copy_from_slice(&product[place[row as usize]..][..k]);
        }
        Ok(())
    }

    fn select(&self, rows: &[u32]) -> Option<Box<dyn Gram + '_>> {
        // A view of the underlying Gram avoids one level of indirection; all of it needs no view.
        let there: Vec<u32> = rows.iter().map(|&row| self.rows[row as usize]).collect();
        let all = there.len() == self.gram.shape().0 && there.iter().enumerate().all(|(i, &row)| i == row as usize);
        Some(if all { Box::new(self.gram.as_ref()) } else { part(self.gram.as_ref(), &there) })
    }

    fn accuracy(&self) -> Accuracy {
        let behind = self.gram.accuracy();
        let size = self.rows.iter().map(|&row| behind.size[row as usize]).collect();
        // Coefficients of equal rows are added up before the product.
        let chain = Chain { columns: behind.chain.columns.min(Chain::default().columns), ..behind.chain };
        Accuracy { size, chain, ..behind }
    }

    fn entries(&self) -> u64 {
        self.read.as_ref().map_or_else(|| self.gram.entries(), |read| read.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::gram::PrecomputedGram;

    #[test]
    fn a_view_has_the_entries_of_the_underlying_gram() {
        let n = 5;
        let values: Vec<f64> = (0..n * n).map(|at| (10 * (at / n) + at % n) as f64).collect();
        let gram = PrecomputedGram::new(Points::dense_f64(n, n, values).unwrap());
        let control = Control::unlimited(Threads::one());
        let view = part(&gram, &[4, 1, 3]);
        assert_eq!((view.shape(), view.diag()), ((3, 3), vec![44.0, 11.0, 33.0]));
        let mut block = [0.0; 4];
        view.block_f64(Pick::Range(1, 3), Pick::List(&[2, 0]), &mut block, &control).unwrap();
        assert_eq!(block, [13.0, 14.0, 33.0, 34.0]);
        let mut out = [0.0; 3];
        view.apply(Precision::Double, Pick::All, &[1.0, 0.0, 2.0], 1, &mut out, &control).unwrap();
        assert_eq!(out, [44.0 + 2.0 * 43.0, 14.0 + 2.0 * 13.0, 34.0 + 2.0 * 33.0]);
        let inner = view.select(&[2]).unwrap();
        assert_eq!(inner.diag(), [33.0]);
    }

    #[test]
    fn repeated_rows_share_entries_and_products() {
        let distinct = PrecomputedGram::new(Points::dense_f64(2, 2, vec![2.0, 1.0, 1.0, 3.0]).unwrap());
        let gram = Picked::of(Box::new(distinct), vec![0, 1, 0, 1]);
        let control = Control::unlimited(Threads::one());
        assert_eq!((gram.shape(), gram.diag()), ((4, 4), vec![2.0, 3.0, 2.0, 3.0]));
        let mut block = [0.0; 16];
        gram.block_f64(Pick::All, Pick::All, &mut block, &control).unwrap();
        assert_eq!(&block[..8], [2.0, 1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 3.0]);
        let v = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0];
        // Sums 4 and 6 (tenfold in the second column): K·(4, 6) = (14, 22).
        let mut out = [0.0; 6];
        gram.apply(Precision::Double, Pick::List(&[3, 0, 1]), &v, 2, &mut out, &control).unwrap();
        assert_eq!(out, [22.0, 220.0, 14.0, 140.0, 22.0, 220.0]);
        let mut out = [0.0; 4];
        gram.apply(Precision::Double, Pick::List(&[2, 0]), &v, 2, &mut out, &control).unwrap();
        assert_eq!(out, [14.0, 140.0, 14.0, 140.0]);
        assert_eq!(gram.select(&[0, 1]).unwrap().diag(), [2.0, 3.0]);
        assert_eq!(gram.select(&[3, 2, 1]).unwrap().diag(), [3.0, 2.0, 3.0]);
        assert_eq!(gram.accuracy().size.len(), 4);
    }
}
