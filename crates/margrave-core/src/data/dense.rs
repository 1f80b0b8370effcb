//! Dense rows, row-major.

use super::buffer::{Buffer, Real, Remote, not_finite};
use crate::error::{Error, Result, check_len};

/// `n` rows of `d` features each, row-major, all finite.
#[derive(Debug, Clone)]
pub struct Dense<T: Real> {
    n: usize,
    d: usize,
    values: Buffer<T>,
}

impl<T: Real> Dense<T> {
    /// Takes `values` as `n × d`, row-major; fails if the length is wrong or a value is not finite.
    pub fn new(n: usize, d: usize, values: impl Into<Buffer<T>>) -> Result<Self> {
        let values = values.into();
        let expected = n.checked_mul(d).ok_or_else(|| Error::data(format!("{n} rows × {d} features is too large")))?;
        check_len("values of a dense matrix", expected, values.count())?;
        if let Some((at, value)) = not_finite(&values) {
            return Err(Error::NotFinite { what: "the feature matrix", row: at / d, column: Some(at % d), value });
        }
        Ok(Self { n, d, values })
    }

    /// The same for values that are known to be finite and `n × d`.
    pub(super) fn of_finite(n: usize, d: usize, values: Buffer<T>) -> Self {
        Self { n, d, values }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.n
    }
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }
    /// Number of features.
    pub fn dims(&self) -> usize {
        self.d
    }
    /// The values where they live, if that is not the memory of the processor.
    pub fn remote(&self) -> Option<&dyn Remote<T>> {
        self.values.remote()
    }
    /// All values, row-major.
    pub fn values(&self) -> &[T] {
        &self.values
    }
    /// Row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> &[T] {
        &self.values[i * self.d..(i + 1) * self.d]
    }
}
