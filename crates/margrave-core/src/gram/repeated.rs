//! A Gram whose rows and columns repeat those of a smaller one.

use super::{Accuracy, Gram, Pick, Precision, part};
use crate::control::{Control, Interrupt};

/// `K[i, j] = U[of[i], of[j]]` with U over the distinct points: entries of equal points are computed once.
pub struct Repeated {
    distinct: Box<dyn Gram>,
    of: Vec<u32>,
}

impl Repeated {
    /// Row and column i are those numbered `of[i]` in `distinct`.
    pub fn new(distinct: Box<dyn Gram>, of: Vec<u32>) -> Self {
        Self { distinct, of }
    }

    fn underlying(&self, pick: Pick<'_>) -> Vec<u32> {
        (0..pick.len(self.of.len())).map(|i| self.of[pick.get(i)]).collect()
    }
}

impl Gram for Repeated {
    fn shape(&self) -> (usize, usize) {
        (self.of.len(), self.of.len())
    }

    fn diag(&self) -> Vec<f64> {
        let all = self.distinct.diag();
        self.of.iter().map(|&row| all[row as usize]).collect()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        self.distinct.block_f32(Pick::List(&self.underlying(rows)), Pick::List(&self.underlying(cols)), out, control)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.distinct.block_f64(Pick::List(&self.underlying(rows)), Pick::List(&self.underlying(cols)), out, control)
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
        // Coefficients of equal points add up, and their rows of the product are equal.
        let m = self.distinct.shape().1;
        let mut sums = vec![0.0; m * k];
        for (&column, v) in self.of.iter().zip(v.chunks_exact(k.max(1))) {
            let to = &mut sums[column as usize * k..(column as usize + 1) * k];
            to.iter_mut().zip(v).for_each(|(to, v)| *to += v);
        }
        let wanted = self.underlying(rows);
        let mut distinct = wanted.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut product = vec![0.0; distinct.len() * k];
        let pick = if distinct.len() == m { Pick::All } else { Pick::List(&distinct) };
        self.distinct.apply(precision, pick, &sums, k, &mut product, control)?;
        let mut place = vec![0u32; m];
        distinct.iter().enumerate().for_each(|(at, &row)| place[row as usize] = at as u32);
        for (&row, out) in wanted.iter().zip(out.chunks_exact_mut(k.max(1))) {
            let from = place[row as usize] as usize * k;
            out.copy_from_slice(&product[from..from + k]);
        }
        Ok(())
    }

    fn entries(&self) -> u64 {
        self.distinct.entries()
    }

    fn select(&self, rows: &[u32]) -> Option<Box<dyn Gram + '_>> {
        let there: Vec<u32> = rows.iter().map(|&row| self.of[row as usize]).collect();
        let all = there.len() == self.distinct.shape().0 && there.iter().enumerate().all(|(i, &row)| i == row as usize);
        Some(if all { Box::new(Whole(self.distinct.as_ref())) } else { part(self.distinct.as_ref(), &there) })
    }

    fn effort(&self) -> f64 {
        self.distinct.effort()
    }

    fn accuracy(&self) -> Accuracy {
        let behind = self.distinct.accuracy();
        Accuracy { size: self.of.iter().map(|&row| behind.size[row as usize]).collect(), ..behind }
    }
}

/// All of another Gram.
struct Whole<'a>(&'a dyn Gram);

impl Gram for Whole<'_> {
    fn shape(&self) -> (usize, usize) {
        self.0.shape()
    }

    fn diag(&self) -> Vec<f64> {
        self.0.diag()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        self.0.block_f32(rows, cols, out, control)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.0.block_f64(rows, cols, out, control)
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
        self.0.apply(precision, rows, v, k, out, control)
    }

    fn entries(&self) -> u64 {
        self.0.entries()
    }

    fn select(&self, rows: &[u32]) -> Option<Box<dyn Gram + '_>> {
        self.0.select(rows)
    }

    fn rough(&self) -> Option<Box<dyn Gram + '_>> {
        self.0.rough()
    }

    fn effort(&self) -> f64 {
        self.0.effort()
    }

    fn accuracy(&self) -> Accuracy {
        self.0.accuracy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Threads;
    use crate::data::Points;
    use crate::gram::PrecomputedGram;

    #[test]
    fn entries_and_products_are_those_of_the_repeated_matrix() {
        let distinct = PrecomputedGram::new(Points::dense_f64(2, 2, vec![2.0, 1.0, 1.0, 3.0]).unwrap());
        let gram = Repeated::new(Box::new(distinct), vec![0, 1, 0, 1]);
        let control = Control::unlimited(Threads::one());
        assert_eq!((gram.shape(), gram.diag()), ((4, 4), vec![2.0, 3.0, 2.0, 3.0]));
        let mut block = [0.0; 16];
        gram.block_f64(Pick::All, Pick::All, &mut block, &control).unwrap();
        assert_eq!(&block[..8], [2.0, 1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 3.0]);
        let v = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0];
        let mut out = [0.0; 6];
        gram.apply(Precision::Double, Pick::List(&[3, 0, 1]), &v, 2, &mut out, &control).unwrap();
        // Sums 4 and 6 (tenfold in the second column): K·(4, 6) = (14, 22).
        assert_eq!(out, [22.0, 220.0, 14.0, 140.0, 22.0, 220.0]);
        assert_eq!(gram.select(&[0, 1]).unwrap().diag(), [2.0, 3.0]);
        assert_eq!(gram.select(&[3, 2, 1]).unwrap().diag(), [3.0, 2.0, 3.0]);
        assert_eq!(gram.accuracy().size.len(), 4);
    }
}
