//! The type used by all solvers and kernels: rows of features in any storage.

use std::sync::{Arc, OnceLock};

use super::{Csr, Dense, Real};
use crate::error::Result;

/// How the rows are stored.
#[derive(Debug, Clone)]
pub enum Storage {
    /// Dense, single precision.
    DenseF32(Dense<f32>),
    /// Dense, double precision.
    DenseF64(Dense<f64>),
    /// Sparse, single precision.
    SparseF32(Csr<f32>),
    /// Sparse, double precision.
    SparseF64(Csr<f64>),
}

/// `n` points of `d` features. Cheap to clone: the features are shared, never copied.
#[derive(Debug, Clone)]
pub struct Points {
    storage: Storage,
    norms: Arc<OnceLock<Vec<f64>>>,
}

/// Evaluates `$body` with `$m` bound to the stored matrix of any type.
macro_rules! each_storage {
    ($storage:expr, $m:ident => $body:expr) => {
        match $storage {
            Storage::DenseF32($m) => $body,
            Storage::DenseF64($m) => $body,
            Storage::SparseF32($m) => $body,
            Storage::SparseF64($m) => $body,
        }
    };
}

impl Points {
    fn from_storage(storage: Storage) -> Self {
        Self { storage, norms: Arc::new(OnceLock::new()) }
    }

    /// Dense points from row-major values.
    pub fn dense_f64(n: usize, d: usize, values: impl Into<super::Buffer<f64>>) -> Result<Self> {
        Ok(Dense::new(n, d, values)?.into())
    }

    /// Dense points from row-major values in single precision.
    pub fn dense_f32(n: usize, d: usize, values: impl Into<super::Buffer<f32>>) -> Result<Self> {
        Ok(Dense::new(n, d, values)?.into())
    }

    /// How the rows are stored.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        each_storage!(&self.storage, m => m.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of features.
    pub fn dims(&self) -> usize {
        each_storage!(&self.storage, m => m.dims())
    }

    /// Whether stored sparse.
    pub fn is_sparse(&self) -> bool {
        matches!(self.storage, Storage::SparseF32(_) | Storage::SparseF64(_))
    }

    /// Number of stored values: `n·d` if dense.
    pub fn stored(&self) -> usize {
        match &self.storage {
            Storage::DenseF32(m) => m.len() * m.dims(),
            Storage::DenseF64(m) => m.len() * m.dims(),
            Storage::SparseF32(m) => m.stored(),
            Storage::SparseF64(m) => m.stored(),
        }
    }

    /// Calls `visit(column, value)` for every stored value of row `i`, columns ascending.
    #[inline]
    pub fn visit(&self, i: usize, mut visit: impl FnMut(usize, f64)) {
        #[inline]
        fn dense<T: Real>(m: &Dense<T>, i: usize, visit: &mut impl FnMut(usize, f64)) {
            for (k, v) in m.row(i).iter().enumerate() {
                visit(k, v.to_f64());
            }
        }
        #[inline]
        fn sparse<T: Real>(m: &Csr<T>, i: usize, visit: &mut impl FnMut(usize, f64)) {
            let (columns, values) = m.row(i);
            for (k, v) in columns.iter().zip(values) {
                visit(*k as usize, v.to_f64());
            }
        }
        match &self.storage {
            Storage::DenseF32(m) => dense(m, i, &mut visit),
            Storage::DenseF64(m) => dense(m, i, &mut visit),
            Storage::SparseF32(m) => sparse(m, i, &mut visit),
            Storage::SparseF64(m) => sparse(m, i, &mut visit),
        }
    }

    /// Writes row `i` into `out` (length `d`), zeros included.
    pub fn copy_row(&self, i: usize, out: &mut [f64]) {
        out.fill(0.0);
        self.visit(i, |k, v| out[k] = v);
    }

    /// ‖xᵢ‖² of every point, computed once and cached.
    pub fn squared_norms(&self) -> &[f64] {
        fn dense<T: Real>(m: &Dense<T>) -> Vec<f64> {
            if let Some(norms) = m.remote().and_then(|values| values.squared_norms(m.dims())) {
                return norms;
            }
            match m.dims() {
                0 => vec![0.0; m.len()],
                d => m.values().chunks_exact(d).map(sum_of_squares).collect(),
            }
        }
        fn sparse<T: Real>(m: &Csr<T>) -> Vec<f64> {
            let (starts, values) = (m.starts(), m.values());
            starts.windows(2).map(|w| sum_of_squares(&values[w[0]..w[1]])).collect()
        }
        self.norms.get_or_init(|| match &self.storage {
            Storage::DenseF32(m) => dense(m),
            Storage::DenseF64(m) => dense(m),
            Storage::SparseF32(m) => sparse(m),
            Storage::SparseF64(m) => sparse(m),
        })
    }

    /// Sparse points without their empty columns, and the indices of the remaining columns; values and norms are shared.
    /// `None` for dense points, and if no column is left.
    pub(crate) fn without_empty_columns(&self) -> Option<(Self, Vec<u32>)> {
        fn compact<T: Real>(m: &Csr<T>) -> Option<(Csr<T>, Vec<u32>)> {
            // Marks of one byte: those of 40 000 columns stay in the first-level cache.
            let mut used = vec![false; m.dims()];
            m.columns().iter().for_each(|&j| used[j as usize] = true);
            // Without a branch for each column, which no processor could predict.
            let (mut place, mut columns, mut count) = (vec![0u32; m.dims()], vec![0u32; m.dims()], 0);
            for (j, used) in used.iter().enumerate() {
                place[j] = count as u32;
                columns[count] = j as u32;
                count += usize::from(*used);
            }
            columns.truncate(count);
            let moved: Vec<u32> = m.columns().iter().map(|&j| place[j as usize]).collect();
            (!columns.is_empty()).then(|| (m.with_columns(columns.len(), moved), columns))
        }
        let (storage, columns) = match &self.storage {
            Storage::SparseF32(m) => compact(m).map(|(m, columns)| (Storage::SparseF32(m), columns))?,
            Storage::SparseF64(m) => compact(m).map(|(m, columns)| (Storage::SparseF64(m), columns))?,
            Storage::DenseF32(_) | Storage::DenseF64(_) => return None,
        };
        Some((Self { storage, norms: Arc::clone(&self.norms) }, columns))
    }

    /// A copy of the chosen rows, in the order given, same storage kind.
    pub fn gather(&self, rows: &[u32]) -> Self {
        fn dense<T: Real>(m: &Dense<T>, rows: &[u32]) -> Dense<T> {
            if let Some(there) = m.remote().and_then(|values| values.gather(m.dims(), rows)) {
                return Dense::of_finite(rows.len(), m.dims(), there);
            }
            let mut values = Vec::with_capacity(rows.len() * m.dims());
            rows.iter().for_each(|&i| values.extend_from_slice(m.row(i as usize)));
            // Rows of a matrix that was checked.
            Dense::of_finite(rows.len(), m.dims(), values.into())
        }
        fn sparse<T: Real>(m: &Csr<T>, rows: &[u32]) -> Csr<T> {
            let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
            for &i in rows {
                let (c, v) = m.row(i as usize);
                columns.extend_from_slice(c);
                values.extend_from_slice(v);
                starts.push(columns.len());
            }
            Csr::new(m.dims(), starts, columns, values).expect("rows of a checked matrix")
        }
        match &self.storage {
            Storage::DenseF32(m) => dense(m, rows).into(),
            Storage::DenseF64(m) => dense(m, rows).into(),
            Storage::SparseF32(m) => sparse(m, rows).into(),
            Storage::SparseF64(m) => sparse(m, rows).into(),
        }
    }

    /// The points of all parts, which have the same number of features, one part after the other: sparse if one of them is, and in
    /// double precision if one of them is.
    pub fn concat(parts: &[Self]) -> Self {
        fn dense<T: Real>(parts: &[Points], d: usize) -> Dense<T> {
            let n = parts.iter().map(Points::len).sum();
            let mut values = Vec::with_capacity(n * d);
            let mut row = vec![0.0; d];
            for part in parts {
                for i in 0..part.len() {
                    part.copy_row(i, &mut row);
                    values.extend(row.iter().map(|v| T::from_f64(*v)));
                }
            }
            Dense::new(n, d, values).expect("rows of checked matrices")
        }
        fn sparse<T: Real>(parts: &[Points], d: usize) -> Csr<T> {
            let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
            for part in parts {
                for i in 0..part.len() {
                    part.visit(i, |k, v| {
                        if v != 0.0 {
                            columns.push(k as u32);
                            values.push(T::from_f64(v));
                        }
                    });
                    starts.push(columns.len());
                }
            }
            Csr::new(d, starts, columns, values).expect("rows of checked matrices")
        }
        if let [only] = parts {
            return only.clone();
        }
        let d = parts.iter().map(Points::dims).max().unwrap_or(0);
        let double = parts.iter().any(|p| matches!(p.storage, Storage::DenseF64(_) | Storage::SparseF64(_)));
        match (parts.iter().any(Points::is_sparse), double) {
            (false, false) => dense::<f32>(parts, d).into(),
            (false, true) => dense::<f64>(parts, d).into(),
            (true, false) => sparse::<f32>(parts, d).into(),
            (true, true) => sparse::<f64>(parts, d).into(),
        }
    }

    /// The same points with one more feature that has the same value everywhere.
    pub fn with_constant(&self, value: f64) -> Self {
        fn dense<T: Real>(m: &Dense<T>, value: f64) -> Dense<T> {
            let mut values = Vec::with_capacity(m.len() * (m.dims() + 1));
            for i in 0..m.len() {
                values.extend_from_slice(m.row(i));
                values.push(T::from_f64(value));
            }
            Dense::new(m.len(), m.dims() + 1, values).expect("rows of a checked matrix")
        }
        fn sparse<T: Real>(m: &Csr<T>, value: f64) -> Csr<T> {
            let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
            for i in 0..m.len() {
                let (c, v) = m.row(i);
                columns.extend_from_slice(c);
                values.extend_from_slice(v);
                columns.push(m.dims() as u32);
                values.push(T::from_f64(value));
                starts.push(columns.len());
            }
            Csr::new(m.dims() + 1, starts, columns, values).expect("rows of a checked matrix")
        }
        match &self.storage {
            Storage::DenseF32(m) => dense(m, value).into(),
            Storage::DenseF64(m) => dense(m, value).into(),
            Storage::SparseF32(m) => sparse(m, value).into(),
            Storage::SparseF64(m) => sparse(m, value).into(),
        }
    }

    /// The same points with at least `d` features: sparse data may lack the last ones. Dense data is unchanged.
    pub fn widen(self, d: usize) -> Self {
        match self.storage {
            Storage::SparseF32(m) => m.widen(d).into(),
            Storage::SparseF64(m) => m.widen(d).into(),
            other => Self { storage: other, norms: self.norms },
        }
    }
}

/// Σ v², in eight sums: one alone would wait for every addition.
fn sum_of_squares<T: Real>(values: &[T]) -> f64 {
    let mut sums = [0.0f64; 8];
    let parts = values.chunks_exact(8);
    let rest = parts.remainder();
    for part in parts {
        for l in 0..8 {
            let v = part[l].to_f64();
            sums[l] += v * v;
        }
    }
    for (sum, v) in sums.iter_mut().zip(rest) {
        *sum += v.to_f64() * v.to_f64();
    }
    ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]))
}

impl From<Dense<f32>> for Points {
    fn from(m: Dense<f32>) -> Self {
        Self::from_storage(Storage::DenseF32(m))
    }
}
impl From<Dense<f64>> for Points {
    fn from(m: Dense<f64>) -> Self {
        Self::from_storage(Storage::DenseF64(m))
    }
}
impl From<Csr<f32>> for Points {
    fn from(m: Csr<f32>) -> Self {
        Self::from_storage(Storage::SparseF32(m))
    }
}
impl From<Csr<f64>> for Points {
    fn from(m: Csr<f64>) -> Self {
        Self::from_storage(Storage::SparseF64(m))
    }
}
