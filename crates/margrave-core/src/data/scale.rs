//! Feature scaling, stored in the model.

use serde::{Deserialize, Serialize};

use super::{Csr, Dense, Points, Real, Storage};
use crate::error::{Error, Result, check_len};

/// Kind of scaling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleKind {
    /// Dense: each feature to [0, 1]. Sparse: each feature divided by its largest magnitude, so that zeros stay zeros.
    MinMax,
    /// Dense: each feature to mean 0, deviation 1. Sparse: divided by its deviation, so that zeros stay zeros.
    Standard,
}

impl ScaleKind {
    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            ScaleKind::MinMax => "minmax",
            ScaleKind::Standard => "standard",
        }
    }
}

/// x ↦ (x − shift) · factor, feature by feature. A feature that is constant in the training data becomes 0 there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The kind of scaling.
    pub kind: ScaleKind,
    /// Subtracted first; all zero for sparse data.
    pub shift: Vec<f64>,
    /// Multiplied afterwards.
    pub factor: Vec<f64>,
}

impl Scaling {
    /// Determines the scaling from `points`.
    pub fn fit(kind: ScaleKind, points: &Points) -> Self {
        let mut found = ColumnRanges::new(points.dims());
        found.add(points);
        found.scaling(kind)
    }

    /// The scaled points, same storage kind (single precision stays single).
    pub fn apply(&self, points: &Points) -> Result<Points> {
        check_len("number of features", self.factor.len(), points.dims())?;
        fn dense<T: Real>(s: &Scaling, m: &Dense<T>) -> Result<Points>
        where
            Points: From<Dense<T>>,
        {
            let mut values = Vec::with_capacity(m.values().len());
            for i in 0..m.len() {
                let row = m.row(i).iter().enumerate();
                values.extend(row.map(|(k, v)| T::from_f64((v.to_f64() - s.shift[k]) * s.factor[k])));
            }
            Ok(Dense::new(m.len(), m.dims(), values)?.into())
        }
        fn sparse<T: Real>(s: &Scaling, m: &Csr<T>) -> Result<Points>
        where
            Points: From<Csr<T>>,
        {
            if s.shift.iter().any(|v| *v != 0.0) {
                return Err(Error::data(
                    "this model was trained on dense data with a shifting scale and is given sparse data: convert the data to a dense format",
                ));
            }
            let scaled =
                m.columns().iter().zip(m.values()).map(|(k, v)| T::from_f64(v.to_f64() * s.factor[*k as usize]));
            Ok(Csr::new(m.dims(), m.starts().to_vec(), m.columns().to_vec(), scaled.collect::<Vec<_>>())?.into())
        }
        match points.storage() {
            Storage::DenseF32(m) => dense(self, m),
            Storage::DenseF64(m) => dense(self, m),
            Storage::SparseF32(m) => sparse(self, m),
            Storage::SparseF64(m) => sparse(self, m),
        }
    }
}

/// Range, mean and spread of every column, gathered from rows that may come in parts.
#[derive(Debug, Clone)]
pub struct ColumnRanges {
    rows: usize,
    sparse: bool,
    low: Vec<f64>,
    high: Vec<f64>,
    // Welford's update: a second moment about zero would lose small variances around large means.
    count: Vec<u64>,
    mean: Vec<f64>,
    m2: Vec<f64>,
}

impl ColumnRanges {
    /// Of `d` columns, before any row.
    pub fn new(d: usize) -> Self {
        let (low, high) = (vec![f64::INFINITY; d], vec![f64::NEG_INFINITY; d]);
        Self { rows: 0, sparse: false, low, high, count: vec![0; d], mean: vec![0.0; d], m2: vec![0.0; d] }
    }

    /// Adds rows.
    pub fn add(&mut self, points: &Points) {
        self.rows += points.len();
        self.sparse |= points.is_sparse();
        for i in 0..points.len() {
            points.visit(i, |k, v| {
                self.low[k] = self.low[k].min(v);
                self.high[k] = self.high[k].max(v);
                self.count[k] += 1;
                let delta = v - self.mean[k];
                self.mean[k] += delta / self.count[k] as f64;
                self.m2[k] += delta * (v - self.mean[k]);
            });
        }
    }

    /// The scaling that follows from all rows.
    pub fn scaling(mut self, kind: ScaleKind) -> Scaling {
        let (n, d, sparse) = (self.rows, self.count.len(), self.sparse);
        let (mut shift, mut factor) = (vec![0.0; d], vec![1.0; d]);
        for k in 0..d {
            let stored = self.count[k] as f64;
            // Absent entries of sparse rows are zeros.
            let absent = n as f64 - stored;
            let all = n as f64;
            let full_mean = self.mean[k] * stored / all;
            let variance = (self.m2[k] + self.mean[k] * self.mean[k] * stored * absent / all) / all;
            if absent > 0.0 {
                self.low[k] = self.low[k].min(0.0);
                self.high[k] = self.high[k].max(0.0);
            }
            let (low, high) = (self.low[k], self.high[k]);
            let constant = !(high > low);
            let (move_by, spread) = match (kind, sparse) {
                (ScaleKind::MinMax, false) => (low, high - low),
                (ScaleKind::MinMax, true) => (0.0, high.abs().max(low.abs())),
                (ScaleKind::Standard, false) => (full_mean, variance.sqrt()),
                (ScaleKind::Standard, true) => (0.0, variance.sqrt()),
            };
            if n > 0 && self.count[k] > 0 {
                shift[k] = if constant && !sparse { low } else { move_by };
                factor[k] = if constant || !(spread > 0.0) || !(1.0 / spread).is_finite() { 1.0 } else { 1.0 / spread };
            }
        }
        Scaling { kind, shift, factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_and_minmax_by_hand() {
        let x = Points::dense_f64(3, 2, vec![1e9, 5.0, 1e9 + 1.0, 5.0, 1e9 + 2.0, 5.0]).unwrap();
        let s = Scaling::fit(ScaleKind::Standard, &x);
        let y = s.apply(&x).unwrap();
        let mut row = [0.0; 2];
        y.copy_row(0, &mut row);
        assert!((row[0] + 1.5f64.sqrt()).abs() < 1e-9, "{row:?}");
        assert_eq!(row[1], 0.0);
        let y = Scaling::fit(ScaleKind::MinMax, &x).apply(&x).unwrap();
        y.copy_row(2, &mut row);
        assert_eq!(row, [1.0, 0.0]);
    }

    #[test]
    fn sparse_zeros_stay_zeros() {
        let m = Csr::new(3, vec![0, 1, 2, 2, 3], vec![0, 0, 2], vec![2.0, -4.0, 3.0]).unwrap();
        let x: Points = m.into();
        let s = Scaling::fit(ScaleKind::Standard, &x);
        // column 0 is (2, −4, 0, 0): mean −½, variance 5 − ¼.
        assert!((s.factor[0] - 1.0 / 4.75f64.sqrt()).abs() < 1e-12);
        assert_eq!(s.shift, [0.0; 3]);
        assert_eq!(s.apply(&x).unwrap().stored(), 3);
        assert_eq!(Scaling::fit(ScaleKind::MinMax, &x).factor[0], 0.25);
    }
}
