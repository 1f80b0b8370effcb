//! Shared, immutable storage that may be owned by the caller.

use std::any::Any;
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

/// Values that live elsewhere, in the memory of a graphics card for instance: what can be asked there, so that they are
/// copied to the memory of the processor only where nothing else helps. `dims` is the length of a row.
///
/// Answers are the same, bit for bit, as those computed from the copy; `None` means that there is none and that the copy
/// is to be used.
pub trait Remote<T: Real>: Any + Send + Sync {
    /// Number of values.
    fn count(&self) -> usize;

    /// The values in the memory of the processor, copied on first use.
    fn values(&self) -> &[T];

    /// This value as its own type, by which a backend recognises the values it holds.
    fn as_any(&self) -> &dyn Any;

    /// The position of the first value that is not finite, and that value, if there is one.
    fn first_not_finite(&self) -> Option<Option<(usize, f64)>>;

    /// The sum of squares of each row.
    fn squared_norms(&self, dims: usize) -> Option<Vec<f64>>;

    /// The listed rows, in that order, in the same place.
    fn gather(&self, dims: usize, rows: &[u32]) -> Option<Buffer<T>>;

    /// The hash of each row: see `RowHash`.
    fn hashes(&self, dims: usize, hash: RowHash) -> Option<Vec<u64>>;

    /// Whether the two rows of every pair are equal, zeros of either sign being the same.
    fn all_equal(&self, dims: usize, pairs: &[(u32, u32)]) -> Option<bool>;
}

/// How the rows of dense points are hashed; all values are taken as doubles.
///
/// Starting from `start`, each nonzero value v of a column j makes state = (rotate_left(state, 5) ⊕ bits(v) ⊕ `column`·j)·`factor`,
/// and the hash is (state ⊕ (state ≫ 29))·`start`, all modulo 2⁶⁴. With `sampled` = s > 0 only the columns ⌊i·dims/s⌋ for i < s are used.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RowHash {
    /// The hash of no values.
    pub start: u64,
    /// Factor of column numbers.
    pub column: u64,
    /// Factor after each value.
    pub factor: u64,
    /// Number of columns that are used; 0 for all.
    pub sampled: u64,
}

/// An immutable slice with shared ownership: a `Vec`, a memory map, an array owned by Python, or values that live
/// elsewhere. Cloning shares the data without copying it.
pub struct Buffer<T: 'static>(Owner<T>);

enum Owner<T: 'static> {
    Here(Arc<dyn AsRef<[T]> + Send + Sync>),
    Elsewhere(Arc<dyn RemoteSlice<T>>),
}

/// What a buffer asks of [`Remote`] values, whatever their type.
trait RemoteSlice<T>: Send + Sync {
    fn count(&self) -> usize;
    fn values(&self) -> &[T];
    fn as_any(&self) -> &dyn Any;
}

/// Remote values of a numeric type: a sized value, so that [`Buffer::remote`] finds it by its type.
struct Held<T: Real>(Arc<dyn Remote<T>>);

impl<T: Real> RemoteSlice<T> for Held<T> {
    fn count(&self) -> usize {
        self.0.count()
    }
    fn values(&self) -> &[T] {
        self.0.values()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<T: Send + Sync + 'static> Buffer<T> {
    /// Shares the slice of `owner`; `owner` is kept alive as long as any clone of the buffer.
    ///
    /// `owner.as_ref()` must always return the same slice.
    pub fn from_owner(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        Self(Owner::Here(Arc::new(owner)))
    }

    /// Number of values; unlike `len` of the slice it copies nothing.
    pub fn count(&self) -> usize {
        match &self.0 {
            Owner::Here(owner) => (**owner).as_ref().len(),
            Owner::Elsewhere(owner) => owner.count(),
        }
    }
}

impl<T: Real> Buffer<T> {
    /// Values that live elsewhere.
    pub fn from_remote(values: Arc<dyn Remote<T>>) -> Self {
        Self(Owner::Elsewhere(Arc::new(Held(values))))
    }

    /// The values, if they live elsewhere.
    pub fn remote(&self) -> Option<&dyn Remote<T>> {
        match &self.0 {
            Owner::Here(_) => None,
            Owner::Elsewhere(owner) => owner.as_any().downcast_ref::<Held<T>>().map(|held| held.0.as_ref()),
        }
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Owner::Here(owner) => Owner::Here(owner.clone()),
            Owner::Elsewhere(owner) => Owner::Elsewhere(owner.clone()),
        })
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Owner::Here(owner) => (**owner).as_ref(),
            Owner::Elsewhere(owner) => owner.values(),
        }
    }
}

impl<T: Send + Sync + 'static> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Self {
        Self::from_owner(values)
    }
}

impl<T: Send + Sync + 'static> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} elements)", self.count())
    }
}

/// The position of the first value that is not finite, and the value.
pub(super) fn not_finite<T: Real>(values: &Buffer<T>) -> Option<(usize, f64)> {
    if let Some(answer) = values.remote().and_then(Remote::first_not_finite) {
        return answer;
    }
    first_not_finite(values).map(|at| (at, values[at].to_f64()))
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
