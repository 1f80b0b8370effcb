//! Chooses dense or sparse storage.

use margrave_core::data::Dense;
use margrave_core::{Error, error};

use crate::number::Number;

/// Whether `n × d` values of which `stored` are given are better stored dense, where products run at GEMM speed. Below
/// a density of a third dense rows would take more than twice the memory of sparse ones.
pub(crate) fn prefer_dense(n: usize, d: usize, stored: usize) -> bool {
    n.checked_mul(d).is_some_and(|all| all <= stored.saturating_mul(3))
}

/// Dense values from CSR arrays; no copy if every value is given.
pub(crate) fn dense_from_csr<T: Number>(
    n: usize,
    d: usize,
    starts: &[usize],
    columns: &[u32],
    values: Vec<T>,
) -> error::Result<Dense<T>> {
    let all = n.checked_mul(d).ok_or_else(|| Error::data(format!("{n} rows × {d} features is too large")))?;
    if values.len() == all {
        return Dense::new(n, d, values);
    }
    let mut dense = Vec::new();
    dense.try_reserve_exact(all).map_err(|_| Error::data(format!("not enough memory for {n} rows × {d} features")))?;
    dense.resize(all, T::default());
    for row in 0..n {
        for at in starts[row]..starts[row + 1] {
            dense[row * d + columns[at] as usize] = values[at];
        }
    }
    Dense::new(n, d, dense)
}
