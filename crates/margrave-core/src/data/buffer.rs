//! Shared, immutable storage that may be owned by the caller.

use std::ops::Deref;
use std::sync::Arc;

/// A scalar that data may be stored in.
pub trait Real: Copy + Send + Sync + PartialOrd + std::fmt::Debug + Default + 'static {
    /// The value in double precision (exact).
    fn to_f64(self) -> f64;
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }
}

/// An immutable slice with shared ownership: a `Vec`, a memory map, or an array owned by Python. Cloning shares the
/// data without copying it.
pub struct Buffer<T: 'static>(Arc<dyn AsRef<[T]> + Send + Sync>);

impl<T: Send + Sync + 'static> Buffer<T> {
    /// Shares the slice of `owner`; `owner` is kept alive as long as any clone of the buffer.
    ///
    /// `owner.as_ref()` must always return the same slice.
    pub fn from_owner(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(owner))
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        (*self.0).as_ref()
    }
}

impl<T: Send + Sync + 'static> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Self {
        Self::from_owner(values)
    }
}

impl<T> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} elements)", self.len())
    }
}
/// The position of the first value that is not finite. Parts are searched only if they contain one, so that the usual case is
/// a loop without an exit.
pub(super) fn first_not_finite<T: Real>(values: &[T]) -> Option<usize> {
    const PART: usize = 4096;
    let is_finite = |v: &T| v.to_f64().is_finite();
    let mut parts = values.chunks(PART);
    let at = parts.position(|part| !part.iter().fold(true, |all, v| all & is_finite(v)))?;
    values[at * PART..].iter().position(|v| !is_finite(v)).map(|inside| at * PART + inside)
}
